#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0505-schedules.bats - what a run computes does not depend on its schedule
#
# Every schedule, recomputation and sub-pipelines of two stages against 1f1b,
# bit for bit (slices to rounding): losses, norms, gradients and weights of
# ten steps.
#
# long

load cluster
load parity

setup_file()
{
    pack_text
    share_cores
    for model in gpt2-tied llama-untied; do
        for layout in "1 2 1" "2 1 1" "2 2 1" "1 2 2"; do
            set -- $layout
            run_model $model 0.5 $1 $2 $3
        done
    done
}

# SCHEDULE [CHUNKS]: two stages against 1f1b; also recomputing, which at night
# (TEST_ALL=1) both models do
schedule()
{
    local model mode modes="none full" pairs=()

    for model in gpt2-tied llama-untied; do
        for mode in $modes; do
            run_model $model 0.5 1 2 1 $model-c0.5-$1-$mode --schedule "$1" \
                --chunks "${2:-1}" --recompute $mode
            pairs+=("$RUNS/$model-c0.5-$1-$mode" "$RUNS/$model-c0.5-tp1-pp2-dp1")
        done
        [ -n "${TEST_ALL-}" ] || modes=none
    done
    hold_runs equal "${pairs[@]}"
}

@test "early recomputation is bit-equal to 1f1b" { schedule early; }
@test "last-no-recompute is bit-equal to 1f1b" { schedule last; }
@test "shifted critical path is bit-equal to 1f1b" { schedule scp; }
@test "eager 1f1b is bit-equal to 1f1b" {
    schedule eager
    [ -z "${TEST_ALL-}" ] || schedule eager:5
}
@test "interleaved parts are bit-equal to 1f1b" { schedule interleaved 2; }
@test "split backwards are bit-equal to 1f1b" { schedule zb-h1; }
@test "parts in a V, tied ends on one rank, are bit-equal to 1f1b" {
    schedule zb-v 2
}

# Of 32 tokens, each slice reads the keys of those before it.
@test "slices of sequences are equal to whole ones, to rounding" {
    for model in gpt2-tied llama-untied; do
        for layout in "1 2 1 4" "2 2 1 3/60"; do
            set -- $layout
            name=tp$1-pp$2-dp$3
            run_model $model 0.5 $1 $2 $3 $model-c0.5-sliced-$name \
                --schedule "sliced:$4" --sp off
            hold_runs near "$RUNS/$model-c0.5-$name" \
                "$RUNS/$model-c0.5-sliced-$name"
        done
        run_model $model 0.5 1 2 1 $model-c0.5-sliced-full --sp off \
            --schedule sliced:4 --recompute full
    done
    equal sliced-full sliced-tp1-pp2-dp1
}

@test "selective recomputation is bit-equal to none" {
    for model in gpt2-tied llama-untied; do
        run_model $model 0.5 2 2 1 $model-c0.5-selective --sp on \
            --recompute selective
        run_model $model 0.5 2 2 1 $model-c0.5-sp --sp on
    done
    equal selective sp
}

# MODEL FILTER OPTION...: what a filter makes of a plan on two stages
planned()
{
    local model=$1 filter=$2

    shift 2
    merak plan --model "$TESTS/vectors/parity/$model.json" --pp 2 --seq 32 \
        --global-batch 8 --json "$@" | jq -r "$filter"
}

# Memory for more than everything dropped and less than nothing.
@test "recomputation by stage is bit-equal to none" {
    most='[.stages[].arena_bytes] | max'
    part='[.stages[] | .blocks_recomputed < .blocks and
        (.blocks_recomputed > 0 or .attention_recomputed)] | any'
    for model in gpt2-tied llama-untied; do
        none=$(planned $model "$most")
        full=$(planned $model "$most" --recompute full)
        gib=$(jq -n "($none + $full) / 2 / 1024 / 1024 / 1024")
        [ "$(planned $model "$part" --recompute auto --memory-gib "$gib")" \
            = true ]
        run_model $model 0.5 1 2 1 $model-c0.5-auto --recompute auto \
            --memory-gib "$gib"
    done
    equal auto tp1-pp2-dp1
}

@test "a sub-pipeline is bit-equal to micro-batches of half the size" {
    local pairs=()

    for model in gpt2-tied llama-untied; do
        for layout in "2 1 1" "2 2 1" "1 2 2"; do
            set -- $layout
            name=tp$1-pp$2-dp$3
            run_model $model 0.5 $1 $2 $3 $model-c0.5-sub-$name \
                --micro-batch 2 --sub-pipeline yes
            pairs+=("$RUNS/$model-c0.5-sub-$name" "$RUNS/$model-c0.5-$name")
        done
    done
    hold_runs equal "${pairs[@]}"
}

# The pair of nodes at a hop is of the cut, not of the schedule: what is sent in
# part is said, and a checkpoint of it is resumed whole.
@test "hops in part are bit-equal under each schedule, and resumed whole" {
    local name=gpt2-tied-lossy

    run_model gpt2-tied 0.5 1 2 1 $name --lossy-hops 0:4
    run_model gpt2-tied 0.5 1 2 1 $name-zb --lossy-hops 4 --schedule zb-h1
    hold_runs equal "$RUNS/$name" "$RUNS/$name-zb"
    grep 'lossy: stage 0 -> 1 ratio 4' "$RUNS/$name/out"
    jq -es 'all(.[]; .lossy_hops == "0:4")' "$RUNS/$name/metrics.jsonl"
    grep -F -- '--lossy-hops=0:4; ' "$RUNS/$name"/ckpt/step-*/manifest.json
    merak generate --model "$TESTS/vectors/parity/gpt2-tied.json" --ids \
        --ckpt "$RUNS/$name/ckpt" --prompt "1 2 3" --tokens 1 2>&1 |
        grep 'trained with --lossy-hops 0:4; here hops are whole'
    run_model gpt2-tied 0.5 1 2 1 $name --steps 11
    grep -- '--lossy-hops is none, but .* was trained with 0:4' \
        "$RUNS/$name/out"
}
