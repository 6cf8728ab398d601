#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0507-samples.bats - tensor ranks that share out samples
#
# Layers whose tensor ranks hold whole weights and a part of the samples,
# beside a vocabulary that is cut over them, or on a stage after one whose
# weights are: losses, norms and gradients of ten steps are those of one
# rank, memory is what was predicted.  So they are where these ranks share out
# the state of such weights.  The vocabulary is large for the 64
# tokens of a micro-batch, and no tp divides it.
#
# long

load cluster
load parity

setup_file()
{
    pack_text
    share_cores
    export MODELS=$RUNS
    for model in gpt2-tied llama-untied; do
        jq '.vocab_size = 2039' "$TESTS/vectors/parity/$model.json" \
            >"$RUNS/$model.json"
        run_model $model 0.5 1 1 1 $model-c0.5-one --micro-batch 2
    done
}

# samples "TP PP DP" NAME OPTION...: both models, against one rank
samples()
{
    local model degrees=$1 name=$2

    shift 2
    for model in gpt2-tied llama-untied; do
        run_model $model 0.5 $degrees $model-c0.5-$name --micro-batch 2 "$@"
        hold_runs near "$RUNS/$model-c0.5-one" \
            "$RUNS/$model-c0.5-$name"
    done
}


@test "layers are whole beside a vocabulary that is cut" {
    samples "2 1 1" whole --tp-batch 100
    samples "2 1 1" cut --tp-batch 0
    for model in gpt2-tied llama-untied; do
        run hold_runs equal "$RUNS/$model-c0.5-whole" \
            "$RUNS/$model-c0.5-cut"
        [ "$status" -eq 1 ] # they are not the same sums
    done
}

@test "a stage of whole layers after one of cut layers" {
    samples "2 1 1" half --tp-batch 50
    samples "2 2 1" half-2 --tp-batch 50
    equal half half-2
}

@test "its boundary in parts, and recomputed" {
    samples "2 2 1" half-parts --tp-batch 50 --boundary scatter \
        --recompute full
    equal half half-parts
}

@test "over replicas, with sequence parallelism, and without ZeRO-1" {
    samples "2 2 2" replicas --tp-batch 60 --sp on
    samples "2 2 2" nozero --tp-batch 60 --sp on --zero1 no
}

@test "in halves of a micro-batch" {
    samples "2 2 1" sub --tp-batch 50 --micro-batch 4 --sub-pipeline yes
}

@test "kv heads fewer than tp" {
    samples "4 1 1" four --tp-batch 50 --micro-batch 4
}

@test "embedding and head over all stages" {
    samples "2 2 1" shared --tp-batch 100 --schedule interlaced
}

# moved NAME "TP PP DP" PERCENT "TP PP DP" PERCENT: four steps, then the rest
moved()
{
    run_model gpt2-tied 0.5 $2 $1 --micro-batch 2 --tp-batch $3 --steps 4
    run_model gpt2-tied 0.5 $4 $1 --micro-batch 2 --tp-batch $5
    rm -r "$RUNS/$1/grads/step-00000003"
    hold_runs near "$RUNS/gpt2-tied-c0.5-one" "$RUNS/$1" \
        --first 1 --last 1e-4
}

@test "a checkpoint goes on with weights cut, and whole" {
    moved to-cut "2 2 1" 50 "4 1 1" 0
    moved to-whole "1 2 2" 0 "2 2 1" 50
}

# reserved NAME: bytes of rank 0
reserved()
{
    sed -n 's/.*memory of rank 0: .* reserved \([0-9]*\)$/\1/p' "$RUNS/$1/out"
}

# equal_runs NAME NAME
equal_runs()
{
    hold_runs equal "$RUNS/$1" "$RUNS/$2"
}

@test "tensor ranks share out the state of weights that they hold whole" {
    jq '.n_embd = 64' "$MODELS/gpt2-tied.json" >"$MODELS/wide.json"
    run_model wide 0.5 1 1 1 wide-one --micro-batch 2

    # two tensor ranks alone, and two replicas of them
    run_model wide 0.5 2 1 1 wide-tp --micro-batch 2 --tp-batch 100
    run_model wide 0.5 2 1 1 wide-tp-no --micro-batch 2 --tp-batch 100 \
        --zero1 no
    run_model wide 0.5 2 1 2 wide-dp --micro-batch 2 --tp-batch 100
    run_model wide 0.5 2 1 2 wide-dp-no --micro-batch 2 --tp-batch 100 \
        --zero1 no
    run_model wide 0.5 2 2 2 wide-pp --micro-batch 2 --tp-batch 100
    hold_runs near "$RUNS/wide-one" "$RUNS/wide-tp"
    hold_runs near "$RUNS/wide-one" "$RUNS/wide-dp"
    equal_runs wide-tp wide-tp-no
    equal_runs wide-dp wide-dp-no
    equal_runs wide-dp wide-pp

    # eight weights of 16384 elements, their moments of 8 bytes each
    echo "$(reserved wide-tp) of $(reserved wide-tp-no) bytes"
    [ $(($(reserved wide-tp-no) - $(reserved wide-tp))) -ge \
        $((8 * 16384 * 8 / 2)) ]

    # saved in these parts and resumed, in others, and from others
    run_model wide 0.5 2 1 2 wide-on --micro-batch 2 --tp-batch 100 --steps 4
    run_model wide 0.5 2 1 2 wide-on --micro-batch 2 --tp-batch 100
    rm -r "$RUNS/wide-on/grads/step-00000003"
    equal_runs wide-on wide-dp
    run_model wide 0.5 2 1 2 wide-off --micro-batch 2 --tp-batch 100 --steps 4
    run_model wide 0.5 2 1 2 wide-off --micro-batch 2 --tp-batch 100 --zero1 no
    rm -r "$RUNS/wide-off/grads/step-00000003"
    equal_runs wide-off wide-dp
    run_model wide 0.5 2 1 2 wide-out --micro-batch 2 --tp-batch 100 --steps 4
    run_model wide 0.5 1 2 2 wide-out --micro-batch 2
    rm -r "$RUNS/wide-out/grads/step-00000003"
    run_model wide 0.5 4 1 1 wide-in --micro-batch 2 --steps 4
    run_model wide 0.5 2 1 2 wide-in --micro-batch 2 --tp-batch 100
    rm -r "$RUNS/wide-in/grads/step-00000003"
    for name in wide-out wide-in; do
        hold_runs near "$RUNS/wide-one" "$RUNS/$name" \
            --first 1 --last 1e-4
    done
}

@test "a plan has it, a run of the plan has it, other options are refused" {
    merak plan --model "$RUNS/llama-untied.json" --device cpu --nodes 1 \
        --ranks-per-node 4 --global-batch 8 --seq 32 --dtype fp32 \
        --what-if tp=2,pp=2,dp=1,micro-batch=2,tp-batch=50 \
        --json "$RUNS/plan.json"
    [ "$(jq .plan.tp_batch "$RUNS/plan.json")" -eq 50 ]
    samples_of_plan()
    {
        srun -n4 --overcommit merak train --model "$RUNS/llama-untied.json" \
            --data "$RUNS/text" --plan "$RUNS/plan.json" --steps 1 \
            --deadline 900 "$@"
    }
    run samples_of_plan --threads 1
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *"data parallelism over tp in 50 % of the model"* ]]
    run samples_of_plan --tp-batch 10
    [ "$status" -eq 66 ]
    [[ $output == *"--tp-batch 10 contradicts the plan, which has 50"* ]]
}

@test "a micro-batch that tp does not divide is refused by name" {
    run srun -n2 --overcommit --merak-tp=2 merak train \
        --model "$RUNS/llama-untied.json" --data "$RUNS/text" --seq 32 \
        --micro-batch 1 --global-batch 8 --steps 1 --tp-batch 100
    echo "$output"
    [ "$status" -eq 66 ]
    [[ $output == *"a micro-batch of 1 cannot be cut over tp=2"* ]]
}
