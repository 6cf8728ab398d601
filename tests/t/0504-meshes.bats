#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0504-meshes.bats - stages of unlike ranks compute what one rank computes
#
# The models of 0500-parity.bats on 3, 5, 6, 7 and 10 ranks: every stage its own
# replicas and tensor ranks, which uniform plans of these numbers of ranks do
# not have.
#
# long

load cluster
load parity

setup_file()
{
    pack_text
    for model in gpt2-tied llama-untied; do
        run_model $model 0.5 1 1 1 $model-one
    done
    run_model gpt2-tied 0.5 1 1 1 gpt2-tied-20-steps --steps 20
}

# train MODEL NAME RANKS WORD..: on so many ranks
train()
{
    local dir=$RUNS/$1-$2 model=$1 ranks=$3

    shift 3
    mkdir -p "$dir"
    srun -n"$ranks" --overcommit merak train \
        --model "${MODELS:-$TESTS/vectors/parity}/$model.json" \
        --data "$RUNS/text" --seq 32 --global-batch 8 --steps 10 --lr 1e-3 \
        --lr-schedule constant --clip 0.5 --eval-samples 0 --threads 1 \
        --deadline 900 --metrics "$dir/metrics.jsonl" \
        --dump-grads "$dir/grads" --ckpt "$dir/ckpt" "$@" \
        >"$dir/out" 2>&1 || {
        cat "$dir/out"
        return 1
    }
    planned_is_reserved "$dir/out"
}

# near_one RANKS LIST WORD..: both models, held against one rank
near_one()
{
    local model ranks=$1 list=$2 pairs=()

    shift 2
    for model in gpt2-tied llama-untied; do
        train $model "$list" "$ranks" --stages "$list" "$@"
        pairs+=("$RUNS/$model-one" "$RUNS/$model-$list")
    done
    hold_runs near "${pairs[@]}"
}

@test "3 ranks: 2 replicas, then 1" {
    near_one 3 2x1,1x1
    grep 'stages of unlike ranks: 2 x 1, 1 x 1 on' "$RUNS/gpt2-tied-2x1,1x1/out"
}

@test "5 ranks: 1 of 1, then 2 of 2, ZeRO off; the trace has their places" {
    local trace=$RUNS/trace run=$RUNS/llama-untied-1x1,2x2

    near_one 5 1x1,2x2 --zero 0 --trace "$trace"
    run merak trace summary "$trace"
    echo "$output"
    [[ $output == *': 5 ranks, stages 1x1-2x2, 1f1b, '* ]]
    [[ $output == *'times as long as predicted'* ]]
    merak trace summary --json "$trace" | jq -e '.pp == 2 and .tp == null and
        .stages == [{dp: 1, tp: 1}, {dp: 2, tp: 2}] and
        [.by_rank[].stage] == [0, 1, 1, 1, 1]'
    merak trace svg "$trace" --out "$RUNS/trace.svg"
    for row in 'stage 0' 's1 d0 t0' 's1 d0 t1' 's1 d1 t0' 's1 d1 t1'; do
        grep ">$row<" "$RUNS/trace.svg" >/dev/null
    done
    merak trace diff --predicted "$trace"
    merak top --once "$run/ckpt" | grep 'stage 0 *1 x 1, rank 0'
    merak top --once "$run/ckpt" | grep 'stage 1 *2 x 2, ranks 1-4'
    merak top --json "$run/ckpt" | jq -e '[.stages[].ranks] == ["0", "1-4"]'
    merak report "$run/ckpt" --out "$RUNS/run.html"
    grep '<td>1</td><td>2</td><td>2</td><td>1-4</td>' "$RUNS/run.html"
}
@test "6 ranks: tp 2, then 4 replicas, gpipe" {
    near_one 6 1x2,4x1 --schedule gpipe
}
@test "7 ranks: 4, 2 and 1 replicas, zb-h1" {
    near_one 7 4x1,2x1,1x1 --schedule zb-h1
}
@test "3 ranks: a mixture, whose routers' losses are of a stage's sequences" {
    local -x MODELS=$RUNS/models

    mkdir "$MODELS"
    sed 's/"vocab_size": 61/"vocab_size": 257/' \
        "$TESTS/vectors/hf/mixtral.json" >"$MODELS/mixtral.json"
    run_model mixtral 0.5 1 1 1 mixtral-one --router-aux 1 --router-z 0.1
    train mixtral 2x1,1x1 3 --stages 2x1,1x1 --router-aux 1 --router-z 0.1
    hold_runs near "$RUNS/mixtral-one" "$RUNS/mixtral-2x1,1x1"
}
@test "10 ranks: 2 replicas, tp 4, 4 replicas" {
    near_one 10 2x1,1x4,4x1 --sp on --boundary scatter
}

@test "equal stages are tp, pp and dp: the same program, the same bits" {
    run_model gpt2-tied 0.5 2 2 1 gpt2-tied-uniform
    train gpt2-tied equal 4 --stages 1x2,1x2 --micro-batch 1
    hold_runs equal "$RUNS/gpt2-tied-uniform" "$RUNS/gpt2-tied-equal"
    run grep -ho 'program id [0-9a-f]*' "$RUNS"/gpt2-tied-{uniform,equal}/out
    [ "${lines[0]}" = "${lines[1]}" ]
}

# resumed RANKS STEPS WORD..: up to that step, from what is in its checkpoints
resumed()
{
    local dir=$RUNS/mixed ranks=$1 steps=$2

    shift 2
    srun -n"$ranks" --overcommit merak train \
        --model "$TESTS/vectors/parity/gpt2-tied.json" --data "$RUNS/text" \
        --seq 32 --global-batch 8 --steps "$steps" --lr 1e-3 \
        --lr-schedule constant --clip 0.5 --eval-samples 0 --threads 1 \
        --deadline 900 --metrics "$dir/metrics.jsonl" --ckpt "$dir/ckpt" \
        --resume auto "$@" >"$dir/out" 2>&1 || {
        cat "$dir/out"
        return 1
    }
}

@test "a run goes on from uniform stages to unlike ones and back" {
    local uniform=$RUNS/gpt2-tied-20-steps/metrics.jsonl

    mkdir "$RUNS/mixed"
    resumed 2 5 --dp 2
    resumed 3 10 --stages 2x1,1x1
    grep 'resumed .*step 5, .*written by tp 1 x pp 1 x dp 2' "$RUNS/mixed/out"
    resumed 6 15 --stages 1x2,4x1
    grep 'resumed .*step 10, .*written by stages 2x1-1x1' "$RUNS/mixed/out"
    run merak ckpt ls "$RUNS/mixed/ckpt"
    [[ $output == *' 1x2-4x1 '* ]]
    merak ckpt ls --json "$RUNS/mixed/ckpt" |
        jq -e '[.checkpoints[].stages] == ["1x2-4x1", "2x1-1x1"]'
    merak top --once "$RUNS/mixed/ckpt" | grep 'ranks *stages 1x2-4x1, '
    merak ckpt reshard "$RUNS/mixed/ckpt" --out "$RUNS/whole"
    run merak ckpt diff "$RUNS/mixed/ckpt" "$RUNS/whole"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *'stages: "1x2-4x1" and nothing, which makes no difference'* ]]
    resumed 6 16 --config "$RUNS/mixed/ckpt/settings.toml"
    grep 'stages of unlike ranks: 1 x 2, 4 x 1 on' "$RUNS/mixed/out"
    resumed 4 20 --tp 2 --pp 2
    [ "$(jq -s length "$RUNS/mixed/metrics.jsonl")" -eq 20 ]
    run jq -ens --slurpfile a "$uniform" --slurpfile b \
        "$RUNS/mixed/metrics.jsonl" \
        '[range(20) | ($a[.].loss - $b[.].loss) / $a[.].loss | fabs] |
         max < 1e-4'
    [ "$status" -eq 0 ]
}

@test "eager, interleaved and ZeRO-3: losses of one rank" {
    [ -n "${TEST_ALL-}" ] || skip "nightly"
    near_one 5 1x1,2x2 --schedule eager
    near_one 3 1x1,2x1 --schedule interleaved --chunks 2
    near_one 5 2x2,1x1 --schedule zb-v --chunks 2
    near_one 6 2x1,4x1 --zero 3 --micro-batch 4
}

@test "3 replicas, then 1: a step of 12 sequences" {
    run_model gpt2-tied 0.5 1 1 1 twelve --global-batch 12
    train gpt2-tied three 4 --stages 3x1,1x1 --global-batch 12
    hold_runs near "$RUNS/twelve" "$RUNS/gpt2-tied-three"
}

@test "targets that do not count: each replica has another number of them" {
    jq -nc 'range(120) | {prompt: "count \(.): ",
        completion: ([range(. % 9 + 1)] | join(" "))}' >"$RUNS/talks.jsonl"
    merak data pack --tokenizer byte --out "$RUNS/talks" "$RUNS/talks.jsonl"
    words=(--data "$RUNS/talks" --doc-mask --seq 64 --steps 6)
    run_model llama-untied 0.5 1 1 1 masked-one "${words[@]}"
    train llama-untied masked 4 --stages 1x2,2x1 "${words[@]}"
    hold_runs near "$RUNS/masked-one" "$RUNS/llama-untied-masked"
}

# recycled NAME RANKS WORD..: ten steps of a model of three passes, evaluated
recycled()
{
    local dir=$RUNS/$1 ranks=$2

    shift 2
    mkdir -p "$dir"
    srun -n"$ranks" --overcommit "$BUILD/examples/recycle" 3 \
        --data "$RUNS/text" --seq 32 --global-batch 8 --steps 10 --lr 1e-3 \
        --lr-schedule constant --clip 0.5 --eval-samples 8 --threads 1 \
        --deadline 900 --metrics "$dir/metrics.jsonl" \
        --dump-grads "$dir/grads" --ckpt "$dir/ckpt" "$@" >"$dir/out" 2>&1 || {
        cat "$dir/out"
        return 1
    }
    planned_is_reserved "$dir/out"
}

@test "a model that recycles, over unlike stages" {
    recycled recycle-one 1 --micro-batch 1
    recycled recycle-list 4 --stages 1x2,2x1 --schedule 3f1b
    hold_runs near "$RUNS/recycle-one" "$RUNS/recycle-list"
}

# Rank 2 dies once step 4 is saved; the run goes on from there on other stages.
@test "a run of unlike stages is killed, and resumes on others" {
    local uniform=$RUNS/gpt2-tied-20-steps/metrics.jsonl
    words=(--model "$TESTS/vectors/parity/gpt2-tied.json" --data "$RUNS/text"
        --seq 32 --global-batch 8 --lr 1e-3 --lr-schedule constant --clip 0.5
        --eval-samples 0 --threads 1 --deadline 900 --steps 20
        --metrics "$RUNS/again/metrics.jsonl" --ckpt "$RUNS/again/ckpt"
        --ckpt-every 2 --resume auto)
    mkdir "$RUNS/again"
    run srun -n5 --overcommit --kill-on-bad-exit=0 bash -c '
        "$@" &
        if [ "$SLURM_PROCID" = 2 ]; then
            until [ -e '"$RUNS"'/again/ckpt/step-00000004/COMMITTED ]; do
                sleep 0.02
            done
            kill -9 $!
            wait
            exit 0
        fi
        wait $!' - merak train "${words[@]}" --stages 1x1,2x2
    echo "$output"
    [ "$status" -ne 0 ]
    run srun -n6 --overcommit merak train "${words[@]}" --stages 1x2,4x1
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output =~ 'resumed '.*'step '[0-9]+', '.*'written by stages 1x1-2x2' ]]
    run jq -ens --slurpfile a "$uniform" --slurpfile b \
        "$RUNS/again/metrics.jsonl" \
        '($b | map({(.step | tostring): .}) | add) as $last | [range(20) |
          ($a[.].loss - $last[(. + 1 | tostring)].loss) / $a[.].loss | fabs] |
         max < 1e-4'
    echo "$output"
    [ "$status" -eq 0 ]
}

@test "a saved plan of unlike stages runs, and names what does not fit it" {
    local plan="$RUNS/plan.json" model="$TESTS/vectors/parity/gpt2-tied.json"

    merak plan --model "$model" --stages 2x1,1x2 --seq 32 --global-batch 8 \
        --json "$plan" >/dev/null
    [ "$(jq .merak_plan "$plan")" -eq 3 ]
    run srun -n4 --overcommit merak train --model "$model" \
        --data "$RUNS/text" --plan "$plan" --steps 2 --eval-samples 0
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *'stages of unlike ranks: 2 x 1, 1 x 2 on'* ]]
    run srun -n4 --overcommit --merak-plan="$plan" --merak-map=show true
    echo "$output"
    [[ $output == *'stages of unlike ranks 2x1-1x2 (replicas x tp), tasks in order'* ]]
    [[ $output == *' 3=t1.p1.d0'* ]]
    run srun -n4 --overcommit --merak-plan="$plan" merak train \
        --model "$model" --data "$RUNS/text" --steps 2 --eval-samples 0
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *'stages of unlike ranks: 2 x 1, 1 x 2 on'* ]]
    run srun -n3 --overcommit merak train --model "$model" \
        --data "$RUNS/text" --plan "$plan" --steps 2
    [ "$status" -ne 0 ]
    [[ $output == *'the plan is for 4 tasks (stages of unlike ranks: 2 x 1, 1 x 2)'* ]]
    run srun -n4 --overcommit merak train --model "$model" \
        --data "$RUNS/text" --stages 2x1,1x1 --steps 2
    [ "$status" -ne 0 ]
    [[ $output == *'--stages 2x1-1x1 is 3 ranks, the job has 4 tasks'* ]]
    run srun -n3 --overcommit --merak-cp=3 merak train --model "$model" \
        --data "$RUNS/text" --stages 2x1,1x1 --steps 2
    [ "$status" -ne 0 ]
    [[ $output == *'srun placed the tasks for --merak-cp=3; leave it out'* ]]
}

@test "7 ranks with auto degrees: unlike stages are found, and train" {
    jq '.n_layer = 1' "$TESTS/vectors/parity/gpt2-tied.json" >"$RUNS/one.json"
    run srun -n7 -N1 --overcommit merak train --model "$RUNS/one.json" \
        --data "$RUNS/text" --seq 32 --global-batch 8 --steps 2 \
        --eval-samples 0 --threads 1 --deadline 900 --stages auto
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *'chosen '*'stages of unlike ranks: '* ]]
    [[ $output == *'step 2/2 '* ]]
}
