#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0506-recycling.bats - a model of several forward passes, over stages
#
# examples/recycle.c, with dropout: losses, norms, gradients and weights of ten
# steps on several stages against one, bit for bit, at the same tp, dp and
# micro-batch.

load cluster
load parity

setup_file()
{
    pack_text
}

teardown() { assert_no_node_drained; }

# recycle NAME PASSES TP PP DP [OPTION...]
recycle() { run_example "$1" "${@:3:3}" "recycle $2" "${@:6}"; }

# refused TEXT: of the run before, one line of ours with TEXT
refused()
{
    echo "$output"
    [ "$status" -ne 0 ]
    [ "$(grep -c 'merak.*error: ' <<<"$output")" -eq 1 ]
    [[ $output == *"$1"* ]]
}

evaluation() { jq '.valid_loss // empty' "$RUNS/$1/metrics.jsonl" | tail -n 1; }

# same A B: as trained, and as evaluated
same()
{
    hold_runs equal "$RUNS/$1" "$RUNS/$2"
    [ -n "$(evaluation "$1")" ]
    [ "$(evaluation "$1")" = "$(evaluation "$2")" ]
}

@test "two and four stages are bit-equal to one" {
    recycle one 3 1 1 1 --schedule gpipe
    recycle two 3 1 2 1 --schedule 3f1b
    recycle four 3 1 4 1 --schedule auto
    grep -q 3f1b "$RUNS/four/out"
    same one two
    same one four
}

@test "recomputation, another number of passes and one stage by 3f1b" {
    recycle two-full 3 1 2 1 --recompute full
    same two two-full
    recycle five 5 1 1 1 --schedule 3f1b
    recycle five-two 5 1 2 1
    same five five-two
    run hold_runs equal "$RUNS/one" "$RUNS/five"
    [ "$status" -eq 1 ]
}

@test "stages of tensor ranks and of replicas are bit-equal to one stage" {
    recycle tp 3 2 1 1
    recycle tp-two 3 2 2 1
    same tp tp-two
    hold_runs near "$RUNS/one" "$RUNS/tp-two"
    recycle dp 3 1 1 2
    recycle dp-two 3 1 2 2
    same dp dp-two
}

@test "what cannot run is refused by name" {
    run recycle refused 3 1 2 1 --schedule 1f1b
    refused "schedule 1f1b: a model of 3 forward passes on 2 stages given"
    run recycle refused 1 1 2 1 --schedule 3f1b
    refused "schedule 3f1b: a model of 1 forward pass given"
    run recycle refused 3 1 2 1 --sub-pipeline yes --micro-batch 2
    refused "does not run with --sub-pipeline yes"
    run recycle refused 3 1 4 1 --global-batch 2
    refused "2 micro-batches on 4 stages given"
    run recycle refused 99 1 1 1
    refused "99 passes, expected 1 to 64"
}

@test "degrees that are auto run several stages by 3f1b" {
    run srun -n4 --overcommit --merak-tp=1 --merak-pp=auto --merak-dp=1 \
        "$BUILD/examples/recycle" 3 --data "$RUNS/text" --seq 32 \
        --global-batch 8 --steps 2 --eval-samples 0 --threads 1 --deadline 900
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *"chosen "*"3f1b"* ]]
}
