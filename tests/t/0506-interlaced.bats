#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0506-interlaced.bats - embedding and head cut over all stages
#
# Against one rank, to rounding: losses, norms and gradients of ten steps;
# and from a checkpoint of another layout, both ways.

load cluster
load parity

setup_file()
{
    pack_text
    for model in gpt2-tied llama-untied; do
        run_model $model 0.5 1 1 1
    done
}

# shared TP PP DP [OPTION...]: both models
shared()
{
    local tp=$1 pp=$2 dp=$3 model name pairs=()

    shift 3
    for model in gpt2-tied llama-untied; do
        name=$model-c0.5-shared-$BATS_TEST_NUMBER
        run_model $model 0.5 $tp $pp $dp "$name" --schedule interlaced "$@"
        pairs+=("$RUNS/$model-c0.5-tp1-pp1-dp1" "$RUNS/$name")
    done
    hold_runs near "${pairs[@]}"
}

@test "two stages agree with one rank, and recomputing changes no bit" {
    shared 1 2 1
    for model in gpt2-tied llama-untied; do
        run_model $model 0.5 1 2 1 $model-c0.5-full --schedule interlaced \
            --recompute full
    done
    equal shared-1 full
}

@test "three stages agree with one rank" { shared 1 3 1; }
@test "four stages agree with one rank" { shared 1 4 1; }
@test "tp 2 and two stages agree with one rank" { shared 2 2 1 --sp on; }
@test "replicas of two stages agree with one rank" { shared 1 2 2; }
@test "replicas agree in the other order of ranks, without ZeRO-1" {
    export MERAK_ORDER=tp-pp-dp
    shared 1 2 2 --zero1 no
}

@test "an embedding alone, beside a head of its own" {
    run_model llama-untied 0.5 1 2 1 embedding --schedule interlaced --chunks 2
    hold_runs near "$RUNS/llama-untied-c0.5-tp1-pp1-dp1" \
        "$RUNS/embedding"
    run srun -n2 --overcommit --merak-tp=1 --merak-pp=2 \
        merak train --model "$TESTS/vectors/parity/gpt2-tied.json" \
        --data "$RUNS/text" --seq 32 --micro-batch 1 --global-batch 8 \
        --steps 1 --schedule interlaced --chunks 2
    echo "$output"
    [ "$status" -eq 66 ]
    [[ $output == *"wte.weight is tied"*"use --chunks 3"* ]]
}

# moved "TP PP DP SCHEDULE" "TP PP DP SCHEDULE": four steps, then the rest
moved()
{
    local name=moved-$BATS_TEST_NUMBER from=($1) to=($2)

    run_model gpt2-tied 0.5 "${from[@]:0:3}" $name --schedule "${from[3]}" \
        --steps 4
    run_model gpt2-tied 0.5 "${to[@]:0:3}" $name --schedule "${to[3]}"
    rm -r "$RUNS/$name/grads/step-00000003"
    hold_runs near "$RUNS/gpt2-tied-c0.5-tp1-pp1-dp1" \
        "$RUNS/$name" --first 1 --last 1e-4
}

@test "a checkpoint goes on without shared blocks" {
    moved "1 4 1 interlaced" "2 2 1 1f1b"
}

@test "a checkpoint goes on with shared blocks" {
    moved "1 2 2 1f1b" "1 3 1 interlaced"
}
