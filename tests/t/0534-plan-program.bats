#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0534-plan-program.bats - programs that plan their own models: what they plan
# without a task is what a run of them chooses, and what it replays

load cluster
load auto

setup_file() { pack_runs; }
teardown() { assert_no_node_drained; }

# plan FILE "PROGRAM [WORD...]" OPTION...: an example, outside of any job
plan()
{
    local words

    read -ra words <<<"$2"
    run "$BUILD/examples/${words[0]}" "${words[@]:1}" plan --device cpu \
        --dtype fp32 --nodes 2 --json "$1" "${usual[@]}" "${@:3}"
    echo "$output"
    [ "$status" -eq 0 ]
}

# go N "PROGRAM [WORD...]" SRUN-OPTION... -- OPTION...: two steps
go()
{
    local n=$1 words launch=()

    read -ra words <<<"$2"
    shift 2
    while [ "$1" != -- ]; do
        launch+=("$1")
        shift
    done
    run srun -n"$n" -N2 --overcommit "${launch[@]}" \
        "$BUILD/examples/${words[0]}" "${words[@]:1}" --data "$RUNS/text" \
        --steps 2 --eval-samples 0 --threads 1 --deadline 900 "${@:2}"
    echo "$output"
}

@test "a program's plan is replayed: the programs that were planned" {
    plan "$RUNS/unet.json" unet --ranks-per-node 2
    planned=$(programs)
    [ -n "$planned" ]
    [ "$(jq -r .program "$RUNS/unet.json")" = "$planned" ]
    go 4 unet --merak-plan="$RUNS/unet.json" --
    [ "$status" -eq 0 ]
    [ "$(programs)" = "$planned" ]
    [[ $output == *"$(jq -r .id "$RUNS/unet.json")"* ]]
    bytes=$(jq '.stages[0].arena_bytes' "$RUNS/unet.json")
    [[ $output == *"memory of rank 0: predicted $bytes bytes"* ]]
}

@test "it is what auto chooses on an allocation of that device" {
    for ranks in 2 4; do
        for model in unet "recycle 3"; do
            plan "$RUNS/alike.json" "$model" --ranks-per-node $ranks
            planned=$(programs)
            go $((2 * ranks)) "$model" --merak-tp=auto -- "${usual[@]}" \
                --device cpu
            [ "$status" -eq 0 ]
            [ -n "$planned" ]
            [ "$(programs)" = "$planned" ]
            [[ $output == *"chosen $(jq -r .id "$RUNS/alike.json")"* ]]
        done
    done
}

@test "a plan with choices that are fixed, of many stages" {
    plan "$RUNS/fixed.json" unet --ranks-per-node 2 \
        --what-if tp=1,pp=4,micro-batch=1,schedule=gpipe
    planned=$(programs)
    go 4 unet --merak-plan="$RUNS/fixed.json" --
    [ "$status" -eq 0 ]
    [[ $output == *"tp 1 x pp 4 x dp 1"*"schedule gpipe"* ]]
    [ "$(programs)" = "$planned" ]
}

@test "a plan of another program is refused" {
    plan "$RUNS/other.json" train --ranks-per-node 2
    go 4 unet --merak-plan="$RUNS/other.json" --
    refused 66 "the plan is for another model"
    [[ $output == *'`PROGRAM plan --json`'* ]]
}

@test "of several tasks one plans, and nothing waits" {
    run srun -n4 --overcommit "$BUILD/examples/unet" plan --device cpu \
        --global-batch 8 --seq 32
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c 'runners-up' <<<"$output")" -eq 1 ]
    run srun -n4 --overcommit "$BUILD/examples/unet" plan --device cpu
    echo "$output"
    [ "$status" -eq 66 ]
    [ "$(grep -c 'plan: give --global-batch' <<<"$output")" -eq 1 ]
}
