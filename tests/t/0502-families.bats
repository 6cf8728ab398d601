#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0502-families.bats - every family's model is the same on several ranks
#
# Four steps of models of tests/vectors/hf: on one rank, on four that share two
# kv heads, on stages and replicas, and with windows that end within a slice of
# the sequence.  hold_runs holds losses, norms and gradients against one
# rank.  Runs of so few steps are mostly start: the one rank is a process by
# itself, no checkpoint is written, and two runs go at a time.

load cluster
load parity

families=(gpt2-plain llama3 smollm qwen2-window qwen3 mistral-window phi3 olmo2
    gemma2 gemma3 arcee granite phi-norms gpt_neox mixtral qwen3_moe)
# their vocabulary is of 61 tokens, and digits are bytes below
MODELS=$TESTS/vectors/hf
few=(--seq 16 --global-batch 4 --steps 4)

# train_to NAME MODEL [WORD... --] [OPTION...]: behind words, into NAME
train_to()
{
    local dir=$RUNS/$1 model=$2 before=()

    shift 2
    while [ "$1" != -- ]; do
        before+=("$1")
        shift
    done
    mkdir -p "$dir"
    "${before[@]}" merak train --model "$MODELS/$model.json" \
        --data "$RUNS/text" --micro-batch 1 --lr 1e-3 --lr-schedule constant \
        --clip 1 --eval-samples 0 --threads 1 --deadline 900 \
        --metrics "$dir/metrics.jsonl" --dump-grads "$dir/grads" \
        "${few[@]}" "${@:2}" >"$dir/out" 2>&1 &&
        planned_is_reserved "$dir/out" || {
        cat "$dir/out"
        return 1
    }
}

# wait_for PID..: runs in the background; fails where one of them did
wait_for()
{
    local each failed=0

    for each; do
        wait "$each" || failed=1
    done
    return $failed
}

setup_file()
{
    local model runs=() pairs=()

    export RUNS=$BATS_FILE_TMPDIR
    seq 3000 >"$RUNS/digits"
    merak data pack --tokenizer byte --out "$RUNS/text" "$RUNS/digits"
    for model in "${families[@]}"; do
        train_to $model $model -- 3>&- &
        runs+=($!)
        [ ${#runs[@]} -lt 2 ] || { wait_for "${runs[@]}" && runs=(); } ||
            return 1
    done
    wait_for "${runs[@]}"
}

# as_one TP PP DP NAME MODELS [OPTION...]
as_one()
{
    local tp=$1 pp=$2 dp=$3 name=$4 models=$5 model runs=() pairs=()

    shift 5
    for model in $models; do
        train_to $model-$name $model srun \
            -n$((tp * ${CP:-1} * pp * dp)) --overcommit --merak-tp=$tp \
            --merak-cp="${CP:-1}" --merak-pp=$pp -- "$@" 3>&- &
        runs+=($!)
        [ ${#runs[@]} -lt 2 ] || { wait_for "${runs[@]}" && runs=(); } ||
            return 1
    done
    wait_for "${runs[@]}"
    for model in $models; do
        pairs+=("$RUNS/$model" "$RUNS/$model-$name")
    done
    hold_runs near "${pairs[@]}"
}

@test "four tensor ranks share two kv heads" {
    as_one 4 1 1 tp4 "llama3 phi3 olmo2 mistral-window gemma2"
}

@test "tensor ranks, stages and replicas" {
    as_one 2 1 2 replicas "gpt2-plain qwen3"
    as_one 2 2 1 both "gemma3 arcee granite phi-norms gpt_neox"
    as_one 3 2 1 stages smollm
}

@test "tensor ranks as a grid, replicas as its third dimension" {
    as_one 4 1 2 grid gpt2-plain --tp-axes 2x2 --zero 3
}

@test "windows go over slices of a sequence" {
    as_one 1 2 1 sliced "qwen2-window gemma2" --schedule sliced:4
}

@test "sequences are cut over ranks, either way" {
    CP=2 as_one 1 1 1 cp2 "gpt2-plain"
    CP=2 as_one 1 2 1 gather "llama3 qwen2-window" --cp-form gather
    CP=2 as_one 2 1 1 heads "mistral-window gemma2" --cp-form heads --sp on
}

@test "positions are in pieces, or in a row" {
    local order

    for order in head-tail contiguous; do
        CP=2 as_one 2 1 1 $order "llama3 qwen2-window" --cp-form gather \
            --cp-order $order
        [ -z "${TEST_ALL-}" ] ||
            CP=2 as_one 1 2 2 stages-$order "llama3 qwen2-window" \
                --cp-order $order
    done
}

@test "more ranks than kv heads exchange some of the heads" {
    CP=4 as_one 1 1 1 cp4 llama3 --cp-form heads
}

@test "all of that together, of every family with positions" {
    local form order all="llama3 qwen2-window mistral-window gemma2"

    [ -n "${TEST_ALL-}" ] || skip "of the night"
    for form in gather heads; do
        for order in head-tail contiguous; do
            CP=2 as_one 2 1 1 $form-$order "$all" --cp-form $form \
                --cp-order $order --sp on
            CP=4 as_one 1 1 1 four-$form-$order "$all" --cp-form $form \
                --cp-order $order
            CP=2 as_one 1 2 2 eight-$form-$order "$all" --cp-form $form \
                --cp-order $order
        done
    done
    CP=4 as_one 1 1 1 cp4 gpt2-plain
    CP=2 as_one 1 2 2 eight gpt2-plain
}

@test "documents of sequences that are cut do not see each other" {
    local model form docs=(--data "$RUNS/docs" --doc-mask)

    [ -n "${TEST_ALL-}" ] || skip "of the night"
    split -l 7 "$RUNS/digits" "$RUNS/doc."
    merak data pack --tokenizer byte --out "$RUNS/docs" "$RUNS"/doc.*
    for model in llama3 qwen2-window; do
        train_to $model-docs $model -- "${docs[@]}"
        run hold_runs near "$RUNS/$model" "$RUNS/$model-docs"
        [ "$status" -eq 1 ]
        for form in gather heads; do
            train_to $model-$form-docs $model srun -n2 --overcommit \
                --merak-cp=2 -- "${docs[@]}" --cp-form $form
            hold_runs near "$RUNS/$model-docs" \
                "$RUNS/$model-$form-docs"
        done
    done
}

@test "samples of a layer are cut over tensor ranks, and settings say so" {
    local ckpt=$RUNS/gpt2-plain-split/ckpt

    as_one 2 1 1 split gpt2-plain --micro-batch 2 --split b0 --ckpt "$ckpt"
    grep -x 'split = "b0"' "$ckpt/settings.toml"
    mv "$ckpt/settings.toml" "$RUNS/split.toml"
    train_to split gpt2-plain srun -n2 --overcommit -- --micro-batch 2 \
        --ckpt "$ckpt" --config "$RUNS/split.toml" --steps 5
    grep -x 'split = "b0"' "$ckpt/settings.toml"
}

@test "experts over tasks, beside stages, replicas and sequences" {
    train_to mixtral-ep4 mixtral srun -n4 --overcommit --merak-ep=4 -- \
        --micro-batch 4 --expert-room 1 3>&- &
    local first=$!
    train_to qwen3_moe-ep2 qwen3_moe srun -n4 --overcommit --merak-ep=2 \
        --merak-pp=2 -- --micro-batch 2 3>&- &
    wait_for $first $!
    train_to mixtral-ep2 mixtral srun -n4 --overcommit --merak-ep=auto \
        --merak-tp=1 --merak-pp=1 --merak-dp=2 -- --micro-batch 2
    grep -q 'chosen .*ep 2, pp 1, dp 2' "$RUNS/mixtral-ep2/out"
    train_to mixtral-cp2 mixtral srun -n4 --overcommit --merak-ep=2 \
        --merak-cp=2 -- --micro-batch 2 --expert-room 100 \
        --ckpt "$RUNS/mixtral-cp2/ckpt"
    merak ckpt ls "$RUNS/mixtral-cp2/ckpt" | grep '1x1x1 cp 2 ep 2 '
    for run in mixtral-ep4 mixtral-ep2 mixtral-cp2 qwen3_moe-ep2; do
        hold_runs near "$RUNS/${run%-*}" "$RUNS/$run"
    done
}

@test "rows of experts travel, with and without places for all of them" {
    train_to mixtral-room1 mixtral srun -n2 --overcommit --merak-ep=2 -- \
        --micro-batch 4 --ep-form exchange --expert-room 1
    hold_runs near "$RUNS/mixtral" "$RUNS/mixtral-room1"
    train_to mixtral-tp2 mixtral srun -n4 --overcommit --merak-ep=2 \
        --merak-tp=2 -- --micro-batch 4 --ep-form exchange \
        --ckpt "$RUNS/mixtral-tp2/ckpt"
    hold_runs near "$RUNS/mixtral" "$RUNS/mixtral-tp2"
    [ -n "${TEST_ALL-}" ] || return 0
    train_to mixtral-four mixtral srun -n4 --overcommit --merak-ep=4 -- \
        --micro-batch 4 --ep-form exchange
    train_to mixtral-pp2 mixtral srun -n4 --overcommit --merak-ep=2 \
        --merak-pp=2 -- --micro-batch 2 --ep-form exchange --expert-room 50
    for run in four pp2; do
        hold_runs near "$RUNS/mixtral" "$RUNS/mixtral-$run"
    done
}

# experts_as NAME ROWS TP [OPTION...]: experts of glm4_moe over two ranks, and
# each over TP, where all tokens choose the same ones, all of one rank; without
# room for ROWS of 128
experts_as()
{
    local name=$1 rows=$2 tp=$3

    shift 3
    MODELS=$RUNS train_to biased-$name biased srun -n$((2 * tp)) \
        --overcommit --merak-ep=2 --merak-tp=$tp -- --micro-batch 4 \
        --init-from "$RUNS/biased" "$@"
    hold_runs near "$RUNS/biased-one" "$RUNS/biased-$name"
    [ "$(grep -c "\"load_max\": 2, .*\"overflow_rows\": $rows, \"dropped_rows\": 0[,}]" \
        "$RUNS/biased-$name/metrics.jsonl")" = 4 ]
}

@test "a router sends every row to one rank, which computes them all" {
    mkdir "$RUNS/biased"
    cp "$TESTS/vectors/weights/glm4_moe.config.json" "$RUNS/biased.json"
    cp "$RUNS/biased.json" "$RUNS/biased/config.json"
    # the biases of its experts 0 and 1, which are a group, are above all scores
    python3 - "$TESTS/vectors/weights/glm4_moe.model.safetensors" \
        "$RUNS/biased/model.safetensors" <<'END'
import json
import struct
import sys

data = bytearray(open(sys.argv[1], "rb").read())
end = 8 + struct.unpack("<Q", data[:8])[0]
for name, tensor in json.loads(data[8:end]).items():
    if name.endswith("e_score_correction_bias"):
        assert tensor["dtype"] == "BF16" and tensor["shape"] == [4]
        at = end + tensor["data_offsets"][0]
        data[at:at + 8] = struct.pack("<4H", 0x4120, 0x4120, 0, 0) # 10, 10
open(sys.argv[2], "wb").write(data)
END
    MODELS=$RUNS train_to biased-one biased -- --micro-batch 4 \
        --init-from "$RUNS/biased"
    experts_as gathered 64 1 --expert-room 100
    experts_as exchanged 64 1 --expert-room 100 --ep-form exchange
    experts_as bound 0 1 --expert-room 200
    [ -n "${TEST_ALL-}" ] || return 0
    experts_as gathered-tp2 48 2 --expert-room 125
    experts_as exchanged-tp2 48 2 --expert-room 125 --ep-form exchange
}

# folder_of FAMILY: as it was saved, and its config.json beside it
folder_of()
{
    local file folder=$RUNS/$1-folder

    mkdir "$folder"
    for file in "$TESTS/vectors/weights/$1".*; do
        cp "$file" "$folder/${file##*/"$1".}"
    done
    cp "$folder/config.json" "$RUNS/$1-folder.json"
}

# cut_folder FAMILY EP FORM: its experts over EP, twice; then it goes on at other
# degrees, and is evaluated, written and exported
cut_folder()
{
    local of=$1 ep=$2 ckpt=$RUNS/$1-cut/ckpt
    local same=(--micro-batch "$ep" --global-batch $((2 * ep))
        --init-from "$RUNS/$of-folder")

    folder_of "$of"
    MODELS=$RUNS train_to "$of-whole" "$of-folder" -- "${same[@]}"
    MODELS=$RUNS train_to "$of-cut" "$of-folder" srun -n$((2 * ep)) \
        --overcommit --merak-ep="$ep" -- "${same[@]}" --ep-form "$3" \
        --ckpt "$ckpt"
    hold_runs near "$RUNS/$of-whole" "$RUNS/$of-cut"
    MODELS=$RUNS train_to "$of-cut" "$of-folder" srun -n4 --overcommit \
        --merak-tp=2 --merak-pp=2 -- "${same[@]}" --ckpt "$ckpt" --steps 5
    grep 'resumed .*step 4' "$RUNS/$of-cut/out"
    merak eval --ckpt "$ckpt" --data "$RUNS/text"
    merak generate --ckpt "$ckpt" --tokenizer byte --prompt 12 --tokens 4
    merak ckpt export "$ckpt" --format hf --out "$RUNS/$of-out"
    merak ckpt import "$RUNS/$of-out" --out "$RUNS/$of-in"
}

@test "folders of five families with experts over tasks, and what follows" {
    cut_folder qwen2_moe 3 gather
    [ -n "${TEST_ALL-}" ] || return 0
    cut_folder mixtral 3 exchange
    cut_folder qwen3_moe 4 gather
    cut_folder olmoe 4 exchange
    cut_folder glm4_moe 4 gather
}

@test "rows beyond a capacity are dropped alike on any ranks" {
    local run

    train_to dropping mixtral -- --micro-batch 4 --expert-capacity 1
    train_to dropping-gather mixtral srun -n2 --overcommit --merak-ep=2 -- \
        --micro-batch 4 --expert-capacity 1
    train_to dropping-exchange mixtral srun -n2 --overcommit --merak-ep=2 -- \
        --micro-batch 2 --expert-capacity 1 --ep-form exchange
    for run in gather exchange; do
        hold_runs near "$RUNS/dropping" "$RUNS/dropping-$run"
        cmp <(grep -o '"dropped_rows": [1-9][0-9]*' \
            "$RUNS/dropping/metrics.jsonl") <(grep -o \
            '"dropped_rows": [1-9][0-9]*' "$RUNS/dropping-$run/metrics.jsonl")
    done
}

@test "what four tasks with rows that travel saved, one resumes" {
    local ckpt=$RUNS/travelled/ckpt

    train_to travelled mixtral srun -n4 --overcommit --merak-ep=4 \
        -- --micro-batch 4 --ep-form exchange --ckpt "$ckpt" --steps 2
    train_to travelled mixtral -- --micro-batch 4 --ckpt "$ckpt" \
        --dump-grads "$RUNS/rest-travelled"
    rm -r "$RUNS/travelled/grads"/step-*1
    mv "$RUNS/rest-travelled"/step-*3 "$RUNS/travelled/grads"
    hold_runs near "$RUNS/mixtral" "$RUNS/travelled"
}

@test "what four tasks with halves of experts saved, one resumes" {
    local ckpt=$RUNS/experts/ckpt

    train_to experts mixtral srun -n4 --overcommit --merak-ep=2 --merak-tp=2 \
        -- --micro-batch 4 --ckpt "$ckpt" --steps 2
    train_to experts mixtral -- --micro-batch 4 --ckpt "$ckpt" \
        --dump-grads "$RUNS/rest"
    rm -r "$RUNS/experts/grads"/step-*1
    mv "$RUNS/rest"/step-*3 "$RUNS/experts/grads"
    hold_runs near "$RUNS/mixtral" "$RUNS/experts"
}
