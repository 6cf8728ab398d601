#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0501-bf16.bats - a parallel run in bf16 is about as far from fp32 as one
# rank's
#
# long

load cluster
load parity

setup_file()
{
    pack_text
    share_cores
}

# The distance between two bf16 runs is noise with a long tail (a run now and
# then takes another turn), so the medians of five seeds are compared.
@test "bf16: no further from one rank than twice its distance to fp32" {
    local layouts=("1 1 1" "4 1 1" "2 2 2") layout name

    [ -z "${TEST_ALL-}" ] || layouts+=("2 1 1") # at night
    for model in gpt2-tied llama-untied; do
        name=$model-bf16
        for seed in 1 2 3 4 5; do
            run_model $model 0.5 1 1 1 $model-fp32-$seed --seed $seed
            for layout in "${layouts[@]}"; do
                run_model $model 0.5 $layout $name-${layout// /}-$seed \
                    --dtype bf16 --seed $seed
            done
        done
        for layout in "${layouts[@]:1}"; do
            hold_runs bf16 "$RUNS/$model-fp32-" \
                "$RUNS/$name-111-" "$RUNS/$name-${layout// /}-"
        done
        run_model $model 0.5 1 2 1 $name-121-1 --dtype bf16 --seed 1
        hold_runs equal "$RUNS/$name-111-1" "$RUNS/$name-121-1"
    done
}

# Machines without bf16 instructions, or with fewer others, round elsewhere
# and no more.
@test "bf16: on every instruction set as far from the reference backend" {
    local isa seed

    for seed in 1 2 3; do
        run_model gpt2-tied 0.5 1 1 1 gpt2-tied-ref-$seed --dtype bf16 \
            --backend ref --seed $seed
        for isa in base avx2 avx512; do
            if ! MERAK_CPU_ISA=$isa run_model gpt2-tied 0.5 1 1 1 \
                gpt2-tied-$isa-$seed --dtype bf16 --seed $seed; then
                grep -q "MERAK_CPU_ISA is \"$isa\": this machine has" \
                    "$RUNS/gpt2-tied-$isa-$seed/out"
                continue
            fi
            grep "backend cpu: $isa kernels.*bf16 as fp32" \
                "$RUNS/gpt2-tied-$isa-$seed/out"
        done
    done
    for isa in base avx2 avx512; do
        [ ! -d "$RUNS/gpt2-tied-$isa-1/ckpt" ] ||
            hold_runs bf16 "$RUNS/gpt2-tied-fp32-" \
                "$RUNS/gpt2-tied-ref-" "$RUNS/gpt2-tied-$isa-"
    done
}
