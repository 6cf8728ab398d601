#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0430-answers.bats - fine-tuning on answers, documents packed into sequences
#
# Questions and answers of many lengths: the loss of answers alone, by document,
# is the same to the bit on any stages, schedules and recomputation, and to
# rounding on any ranks and in slices, and where each document is judged alone;
# lines that are wrong are named.

load cluster
load parity

setup_file()
{
    export RUNS=$BATS_FILE_TMPDIR
    jq -nc 'range(120) | {prompt: "count \(.): ",
        completion: ([range(. % 9 + 1)] | join(" "))}' >"$RUNS/talks.jsonl"
    merak data pack --tokenizer byte --out "$RUNS/talks" "$RUNS/talks.jsonl"
    short gpt2-tied "1 1 1" one
    short llama-untied "1 1 1" one
}

# short MODEL "TP PP DP" NAME OPTION...: six steps
short()
{
    local model=$1 degrees=$2 name=$1-$3

    shift 3
    # shellcheck disable=SC2086
    run_model "$model" 0.5 $degrees "$name" --data "$RUNS/talks" --doc-mask \
        --seq 64 --steps 6 --valid-fraction 0.2 --eval-samples 4 "$@"
}

@test "stages, schedules and recomputation do not change a bit" {
    short llama-untied "1 2 1" pp --recompute full
    hold_runs equal "$RUNS/llama-untied-one" "$RUNS/llama-untied-pp"
    short gpt2-tied "1 2 1" pp --schedule zb-h1
    hold_runs equal "$RUNS/gpt2-tied-one" "$RUNS/gpt2-tied-pp"
}

# Each micro-batch and replica has another number of answers' tokens.
@test "tensor ranks, replicas, slices and micro-batches agree" {
    short llama-untied "2 1 1" tp
    hold_runs near "$RUNS/llama-untied-one" "$RUNS/llama-untied-tp"
    short gpt2-tied "1 1 2" dp --micro-batch 2 --sub-pipeline yes
    hold_runs near "$RUNS/gpt2-tied-one" "$RUNS/gpt2-tied-dp"
    short llama-untied "1 2 1" sliced --schedule sliced:4 --sp off
    hold_runs near "$RUNS/llama-untied-one" "$RUNS/llama-untied-sliced"
}

# merak eval goes through each document alone.
@test "eval finds the held-out loss of training" {
    local want got

    want=$(jq -s '.[-1].valid_loss' "$RUNS/gpt2-tied-one/metrics.jsonl")
    got=$(merak eval --ckpt "$RUNS/gpt2-tied-one/ckpt" --tokenizer byte \
        --model "$TESTS/vectors/parity/gpt2-tied.json" --data "$RUNS/talks" \
        --doc-mask --seq 64 --valid-fraction 0.2 --samples 8 --threads 1 \
        --json | jq .loss)
    echo "$want $got"
    jq -en "($want - $got) | fabs < 1e-5 * $want"
}

@test "show counts answers, and what is no conversation is named" {
    run merak data show "$RUNS/talks"
    [ "$status" -eq 0 ]
    [[ $output == *"answers    "* ]]
    cd "$BATS_TEST_TMPDIR"
    printf '{"prompt":"a","completion":"b"}\n{"prompt":"a"}\n' >bad.jsonl
    run merak data pack --tokenizer byte --out x bad.jsonl
    [ "$status" -eq 67 ]
    [[ $output == *"bad.jsonl line 2: \"completion\" is nothing, expected a text" ]]
    printf '{"messages":[{"role":"assistant","content":"b"}]}\n' >chat.jsonl
    run merak data pack --tokenizer byte --out x chat.jsonl
    [ "$status" -eq 66 ]
    [[ $output == *"chat.jsonl line 1: messages need a chat template"* ]]
    [[ $output == *"--chat FORMAT"* ]]
    run merak data pack --tokenizer byte --format llmc --out x bad.jsonl
    [ "$status" -eq 66 ]
    run merak data pack --tokenizer byte --chat zephyr --out x chat.jsonl
    [ "$status" -eq 0 ]
    [ "${lines[1]}" = "x.mask: 5 of them are in answers, chat format zephyr" ]
    printf 'some text of a few words, and some more\n' >t.txt
    merak data pack --tokenizer byte --format llmc --out l t.txt
    run merak train --model "$TESTS/vectors/parity/gpt2-tied.json" --steps 1 \
        --data l.bin --seq 8 --doc-mask --global-batch 1 --valid-fraction 0
    [ "$status" -eq 67 ]
    [[ $output == *"do not record where documents begin"* ]]
}
