#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0501-bf16.bats - a parallel run in bf16 is about as far from fp32 as one
# rank's

load cluster
load parity

setup_file() { pack_text; }

# The distance between two bf16 runs is noise with a long tail (a run now and
# then takes another turn), so the medians of five seeds are compared.
@test "bf16: no further from one rank than twice its distance to fp32" {
    for model in gpt2-tied llama-untied; do
        for seed in 1 2 3 4 5; do
            run_model $model 0.5 1 1 1 $model-fp32-$seed --seed $seed
            for layout in "1 1 1" "2 1 1" "4 1 1" "2 2 2"; do
                set -- $layout
                run_model $model 0.5 $1 $2 $3 $model-bf16-$1$2$3-$seed \
                    --dtype bf16 --seed $seed
            done
        done
        for layout in 211 411 222; do
            "$TESTS/parity.py" bf16 "$RUNS/$model-fp32-" \
                "$RUNS/$model-bf16-111-" "$RUNS/$model-bf16-$layout-"
        done
        run_model $model 0.5 1 2 1 $model-bf16-121-1 --dtype bf16 --seed 1
        "$TESTS/parity.py" equal "$RUNS/$model-bf16-111-1" \
            "$RUNS/$model-bf16-121-1"
    done
}
