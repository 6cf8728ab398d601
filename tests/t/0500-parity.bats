#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0500-parity.bats - a parallel run is the one-rank run
#
# Ten steps without warm-up of two small models (GPT-2: tied, dropout, a
# vocabulary no tp divides; Llama: untied, two kv heads) under every layout,
# clipping active; along all axes, and at night along one, also without.
# hold_runs holds losses, norms and gradients against the run on one rank.
#
# long

load cluster
load parity

setup_file()
{
    pack_text
    for model in gpt2-tied llama-untied; do
        for clip in 0.5 0; do
            run_model $model $clip 1 1 1
        done
    done
}

@test "clipping is active at 0.5" {
    run jq -es 'map(.grad_norm) | min > 0.5' \
        "$RUNS/gpt2-tied-c0.5-tp1-pp1-dp1/metrics.jsonl"
    [ "$status" -eq 0 ]
}

@test "tp 2" { near 2 1 1; }
@test "tp 4, kv heads fewer than tp" { near 4 1 1; }
@test "dp 2" { near 1 1 2; }
@test "tp 2, dp 2" { near 2 1 2; }
@test "sequence parallelism at tp 2, dp 2" { near 2 1 2 sp --sp on; }
@test "dp 4" { near 1 1 4; }

@test "cp 2, keys gathered or heads exchanged" { CP=2 near 1 1 1 cp2; }
@test "cp 4" { CP=4 near 1 1 1 cp4; }
@test "cp 4 over two nodes, tp 2 and cp 2 each on one" {
    CP=4 PER_TASK="-N2 --ntasks-per-node=2" near 1 1 1 far-cp4
    CP=2 PER_TASK="-N2 --ntasks-per-node=2" near 2 1 1 far-cp2
}
@test "cp 2, tp 2, sequence parallelism" { CP=2 near 2 1 1 cp2 --sp on; }

@test "pp 2, dp 2, cp 2 is bit-equal to dp 2, cp 2" {
    CP=2 near 1 1 2 cp2
    CP=2 near 1 2 2 cp2
    equal tp1-pp2-dp2-cp2 tp1-pp1-dp2-cp2
}

@test "pp 2 is bit-equal to pp 1" {
    near 1 2 1
    equal tp1-pp2-dp1 tp1-pp1-dp1
}

@test "pp 4 is bit-equal to pp 1" {
    near 1 4 1
    equal tp1-pp4-dp1 tp1-pp1-dp1
}

@test "tp 2, pp 2 is bit-equal to tp 2" {
    near 2 2 1
    equal tp2-pp2-dp1 tp2-pp1-dp1
}

@test "stage boundaries in parts change no bit" {
    near 2 2 1 parts --boundary scatter
    equal tp2-pp2-dp1-parts tp2-pp1-dp1
}

@test "pp 2, dp 2 is bit-equal to dp 2" {
    near 1 2 2
    equal tp1-pp2-dp2 tp1-pp1-dp2
}

@test "pp 2, dp 2 with sequence parallelism asked for" {
    near 1 2 2 sp --sp on
}

@test "tp 2, pp 2, dp 2 is bit-equal to tp 2, dp 2" {
    near 2 2 2
    equal tp2-pp2-dp2 tp2-pp1-dp2
}

@test "pp 2, dp 4 is bit-equal to dp 4" {
    near 1 2 4
    equal tp1-pp2-dp4 tp1-pp1-dp4
}

@test "gpipe is bit-equal to 1f1b" {
    for model in gpt2-tied llama-untied; do
        run_model $model 0.5 1 2 1 $model-c0.5-gpipe --schedule gpipe
    done
    equal gpipe tp1-pp2-dp1
}

@test "three threads are bit-equal to one" {
    for model in gpt2-tied llama-untied; do
        run_model $model 0.5 1 1 1 $model-c0.5-threads --threads 3
    done
    equal threads tp1-pp1-dp1
}

# Waits that do not spin: a rank's communication thread has no core of its own.
@test "ranks of one core are bit-equal to others" {
    local core

    core=$(taskset -cp $$ | sed 's/.*: *//; s/[-,].*//')
    for model in gpt2-tied llama-untied; do
        PER_TASK="taskset -c $core" run_model $model 0.5 2 2 1 $model-c0.5-core
    done
    equal core tp2-pp2-dp1
}

@test "without ZeRO-1 the run is bit-equal" {
    for model in gpt2-tied llama-untied; do
        run_model $model 0.5 1 1 2 $model-c0.5-nozero --zero1 no
    done
    equal nozero tp1-pp1-dp2
}

# Replicas that each compute all of the update, on unlike processors.
@test "ranks of unlike processors use what all have" {
    local script=$RUNS/unlike

    printf '%s\n' '#!/bin/bash' \
        '[ "$SLURM_PROCID" -eq 0 ] || export MERAK_CPU_ISA=base' 'exec "$@"' \
        >"$script"
    chmod +x "$script"
    PER_TASK=$script run_model gpt2-tied 0.5 1 1 2 gpt2-tied-c0.5-unlike \
        --zero1 no
    PER_TASK="env MERAK_CPU_ISA=base" run_model gpt2-tied 0.5 1 1 2 \
        gpt2-tied-c0.5-base --zero1 no
    hold_runs equal "$RUNS/gpt2-tied-c0.5-unlike" \
        "$RUNS/gpt2-tied-c0.5-base"
    grep -q 'backend cpu: base kernels' "$RUNS/gpt2-tied-c0.5-unlike/out"
    [ "$(uname -m)" != x86_64 ] ||
        grep -Eq 'processors differ, [a-z0-9_]+ on n[1-4] and base on n[1-4]: all ranks use base' \
            "$RUNS/gpt2-tied-c0.5-unlike/out"
}

@test "a save and resume in the middle is bit-equal" {
    for model in gpt2-tied llama-untied; do
        name=$model-c0.5-resumed
        run_model $model 0.5 1 2 1 $name --steps 4
        run_model $model 0.5 1 2 1 $name
        rm -r "$RUNS/$name/grads/step-00000003"
        [ -d "$RUNS/$name/grads/step-00000009" ]
    done
    equal resumed tp1-pp2-dp1
}

@test "an accelerator's run resumes the cpu's, bit-equal" {
    for model in gpt2-tied llama-untied; do
        name=$model-c0.5-fake
        run_model $model 0.5 2 2 1 $name --steps 4
        run_model $model 0.5 2 2 1 $name --backend fake
        rm -r "$RUNS/$name/grads/step-00000003"
    done
    equal fake tp2-pp2-dp1
}

@test "resuming on another layout goes on with the same losses" {
    run_model gpt2-tied 0.5 2 2 1 moved --steps 4
    run_model gpt2-tied 0.5 1 2 2 moved
    rm -r "$RUNS/moved/grads/step-00000003"
    hold_runs near "$RUNS/gpt2-tied-c0.5-tp1-pp1-dp1" "$RUNS/moved" \
        --first 1 --last 1e-4
}

@test "sequences that were cut are whole after a resume" {
    CP=2 run_model gpt2-tied 0.5 1 1 2 moved-cp --steps 4
    run_model gpt2-tied 0.5 1 1 2 moved-cp
    rm -r "$RUNS/moved-cp/grads/step-00000003"
    hold_runs near "$RUNS/gpt2-tied-c0.5-tp1-pp1-dp1" \
        "$RUNS/moved-cp" --first 1 --last 1e-4
}
