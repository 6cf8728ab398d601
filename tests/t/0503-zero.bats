#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0503-zero.bats - levels of ZeRO: matrices whole only while they are used
#
# With one micro-batch a step is ZeRO-1's, bit for bit.  With more, gradients are
# summed over replicas first and over micro-batches then: near, and the same
# whether parameters are fetched or not, whatever the pipeline.
#
# long

load cluster
load parity

setup_file()
{
    pack_text
    share_cores
    for model in gpt2-tied llama-untied; do
        run_model $model 0.5 1 1 1
        zero 1 1 2 one --zero 1 --micro-batch 4 --eval-every 7 --eval-samples 8
        zero 1 1 2 sums --zero 2
    done
}

# zero TP PP DP NAME OPTION...: a run of $model, named by all but OPTION
zero()
{
    run_model $model 0.5 "$1" "$2" "$3" "$model-c0.5-$4" "${@:5}"
}

# level TP PP DP NAME LIKE OPTION...: both models; as the runs LIKE, bit for bit
level()
{
    for model in gpt2-tied llama-untied; do
        zero "$1" "$2" "$3" "$4" "${@:6}"
    done
    equal "$4" "$5"
}

@test "one micro-batch: gradients shared out are ZeRO-1's to the bit" {
    [ -n "${TEST_ALL-}" ] || skip "nightly"
    level 1 1 2 one-2 one --zero 2 --micro-batch 4 --eval-every 7 \
        --eval-samples 8
}

@test "one micro-batch: so are parameters, with evaluations in between" {
    level 1 1 2 one-3 one --zero 3 --micro-batch 4 --eval-every 7 \
        --eval-samples 8
    for model in gpt2-tied llama-untied; do
        cmp <(jq -c 'select(has("eval_loss")) | .eval_loss' \
            "$RUNS/$model-c0.5-one/metrics.jsonl") \
            <(jq -c 'select(has("eval_loss")) | .eval_loss' \
                "$RUNS/$model-c0.5-one-3/metrics.jsonl")
        grep -Eq 'fetched [0-9.]+' "$RUNS/$model-c0.5-one-3/out"
    done
}

@test "micro-batches: sums are near one rank's" {
    for model in gpt2-tied llama-untied; do
        hold_runs near "$RUNS/$model-c0.5-tp1-pp1-dp1" \
            "$RUNS/$model-c0.5-sums"
    done
}

@test "fetched, recomputed, in stages: the same bits" {
    level 1 1 2 fetch sums --zero 3
    level 1 2 2 stages sums --zero 3 --recompute full
    [ -n "${TEST_ALL-}" ] || return 0
    level 1 1 2 some sums --zero 3 --fetch 3
    for model in gpt2-tied llama-untied; do
        zero 1 1 2 whole --zero 1
    done
    level 1 1 2 once whole --zero 3 --grad-sum step
    for model in gpt2-tied llama-untied; do
        zero 1 2 2 laced --zero 2 --schedule interlaced
    done
    level 1 2 2 laced-3 laced --zero 3 --schedule interlaced
    level 1 1 2 again sums --zero 3 --recompute full
    level 1 2 2 split sums --zero 3 --schedule zb-h1
}

@test "frozen matrices are fetched, too: the same bits, and resumed as level 1" {
    local -A layer=([gpt2-tied]='h.0.*' [llama-untied]='*layers.0.*')
    local steps name level

    for steps in 20 22; do
        for model in gpt2-tied llama-untied; do
            for name in frozen frozen-3; do
                level=1
                # the second time they change places
                [ $name$steps != frozen-320 ] && [ $name$steps != frozen22 ] ||
                    level=3
                zero 1 1 2 $name --zero $level --micro-batch 4 --dtype bf16 \
                    --freeze "${layer[$model]}" --steps $steps
                grep -q ' frozen, ' "$RUNS/$model-c0.5-$name/out"
            done
        done
        equal frozen-3 frozen
    done
}

# Transports sum them in f32, in member order, and round once.
@test "gradients in bf16: the same bits over stages, and fetched" {
    local half="--dtype bf16 --grad-dtype bf16"

    for model in gpt2-tied llama-untied; do
        zero 1 1 2 half --zero 1 $half
        grep -q 'bf16 with gradients in bf16, backend' \
            "$RUNS/$model-c0.5-half/out"
        zero 2 1 2 half-tp --zero 2 $half
    done
    level 1 2 2 half-pp half --zero 1 $half
    level 2 2 2 half-all half-tp --zero 3 $half
}

@test "tp 2, dp 2: fetched are near one rank's, and in stages the same" {
    level 2 1 2 tp tp --zero 3
    for model in gpt2-tied llama-untied; do
        hold_runs near "$RUNS/$model-c0.5-tp1-pp1-dp1" \
            "$RUNS/$model-c0.5-tp"
    done
    level 2 2 2 all tp --zero 3
    [ -n "${TEST_ALL-}" ] || return 0
    level 2 1 2 pairs tp --zero 3 --micro-batch 2 --sub-pipeline yes
}

@test "bf16: one micro-batch is ZeRO-1's to the bit" {
    [ -n "${TEST_ALL-}" ] || skip "nightly"
    level 1 1 2 low low --zero 1 --micro-batch 4 --dtype bf16
    level 1 1 2 low-3 low --zero 3 --micro-batch 4 --dtype bf16
}

# 20 samples a step, one micro-batch, at last five: 4, 2, 5 replicas.
@test "any level resumes any other, with other replicas" {
    local dir=$RUNS/levels/ckpt at=0 says

    model=llama-untied
    for run in "2 1 10" "4 3 5" "2 1 10" "5 2 4" "4 3 1"; do
        set -- $run
        at=$((at + 2))
        zero 1 1 "$1" levels --zero "$2" --global-batch 20 --steps $at \
            --micro-batch "$3" --ckpt "$dir" --keep 0
        # orders of sums are told apart
        says=$(grep -c 'zero is 2 or 3 .* trained with 0 or 1' \
            "$RUNS/$model-c0.5-levels/out" || true)
        [ "$says" -eq $(($3 == 1)) ]
        grep -q "step  *$at" "$RUNS/$model-c0.5-levels/out"
    done
    for step in 2 4 6 8 10; do
        merak ckpt verify "$dir/step-$(printf %08d $step)"
    done
    merak ckpt reshard "$dir/step-00000010" --out "$RUNS/flat" --dp 3 --zero 3
    merak ckpt diff --tensors-only "$dir/step-00000010" "$RUNS/flat/step-00000010"
}

# Two tasks on each of two nodes, of which each node's share matrices out.
@test "inside nodes: the bits of all replicas, and one resumes the other" {
    local dir=$RUNS/inside/ckpt at=0 step

    export SLURM_NNODES=2 SLURM_NTASKS_PER_NODE=2
    model=llama-untied
    zero 1 1 4 by-node --zero 1 --dp-in 2 --micro-batch 2
    zero 1 1 4 inside --zero 3 --dp-in 2 --zero-home in --micro-batch 2
    hold_runs equal "$RUNS/$model-c0.5-by-node" \
        "$RUNS/$model-c0.5-inside"
    grep -Eq 'fetched [0-9.]+' "$RUNS/$model-c0.5-inside/out"
    zero 1 1 4 inside-2 --zero 2 --dp-in 2 --zero-home in
    zero 1 1 4 inside-3 --zero 3 --dp-in 2 --zero-home in
    hold_runs equal "$RUNS/$model-c0.5-inside-2" \
        "$RUNS/$model-c0.5-inside-3"
    for run in "3 in" "1 all" "2 in" "3 all"; do
        set -- $run
        at=$((at + 1))
        zero 1 1 4 homes --zero "$1" --zero-home "$2" --dp-in 2 --steps $at \
            --micro-batch 2 --ckpt "$dir" --keep 0
    done
    zero 1 1 4 straight --zero 1 --dp-in 2 --steps $at --micro-batch 2 \
        --ckpt "$RUNS/straight/ckpt"
    step=step-$(printf %08d $at)
    merak ckpt diff --tensors-only "$dir/$step" "$RUNS/straight/ckpt/$step"
}

# What goes to the host's memory is what --recompute drops.
@test "activations in the host's memory: the bits of those that stay" {
    device_with_host >"$RUNS/host.json"
    level 1 2 2 acts sums --zero 3 --offload acts --recompute full \
        --device "$RUNS/host.json"
    for model in gpt2-tied llama-untied; do
        grep -q 'bytes of the host' "$RUNS/$model-c0.5-acts/out"
    done
}

# Matrices of 2^14 elements and more, which ranks of a sequence share out.
@test "sequences cut, no replicas: the bits of ZeRO-1, one resumes the other" {
    local dir=$RUNS/cut/ckpt at=0 level step

    mkdir -p "$RUNS/wide"
    jq '.hidden_size = 128 | .intermediate_size = 256 | .num_hidden_layers = 2' \
        "$TESTS/vectors/parity/llama-untied.json" >"$RUNS/wide/wide.json"
    export CP=2 MODELS=$RUNS/wide
    model=wide
    zero 1 1 1 cut-1 --zero 1 --micro-batch 8
    zero 1 1 1 cut-3 --zero 3 --micro-batch 8
    hold_runs equal "$RUNS/wide-c0.5-cut-1" "$RUNS/wide-c0.5-cut-3"
    grep -Eq 'fetched [0-9.]+' "$RUNS/wide-c0.5-cut-3/out"
    zero 1 1 1 cut-sums-2 --zero 2 --micro-batch 2
    zero 1 1 1 cut-sums-3 --zero 3 --micro-batch 2
    hold_runs equal "$RUNS/wide-c0.5-cut-sums-2" \
        "$RUNS/wide-c0.5-cut-sums-3"
    for level in 3 1 2 3; do
        at=$((at + 1))
        zero 1 1 1 cut --zero $level --steps $at --micro-batch 8 --ckpt "$dir" \
            --keep 0
    done
    zero 1 1 1 straight --zero 1 --steps $at --micro-batch 8 \
        --ckpt "$RUNS/cut-straight/ckpt"
    step=step-$(printf %08d $at)
    merak ckpt diff --tensors-only "$dir/$step" "$RUNS/cut-straight/ckpt/$step"
    CP=1 zero 1 1 2 cut --zero 3 --steps $((at + 1)) --micro-batch 4 \
        --ckpt "$dir" --keep 0
    merak ckpt verify "$dir/step-$(printf %08d $((at + 1)))"
}

@test "what a level needs is named" {
    run srun -n1 merak train --model "$TESTS/vectors/parity/gpt2-tied.json" \
        --data "$RUNS/text" --zero 3
    [ "$status" -ne 0 ]
    [[ $output == *"--zero 3 needs ranks with the same weights"*"use --zero 1"* ]]
}
