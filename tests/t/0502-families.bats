#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0502-families.bats - every family's model is the same on several ranks
#
# Four steps of models of tests/vectors/hf: on one rank, on four that share two
# kv heads, on stages and replicas, and with windows that end within a slice of
# the sequence.  tests/parity.py holds losses, norms and gradients against one
# rank.

load cluster
load parity

families=(gpt2-plain llama3 smollm qwen2-window qwen3 mistral-window phi3 olmo2
    gemma2)
# their vocabulary is of 61 tokens, and digits are bytes below
MODELS=$TESTS/vectors/hf
few=(--seq 16 --global-batch 4 --steps 4)

setup_file()
{
    export RUNS=$BATS_FILE_TMPDIR
    seq 3000 >"$RUNS/digits"
    merak data pack --tokenizer byte --out "$RUNS/text" "$RUNS/digits"
    for model in "${families[@]}"; do
        run_model $model 1 1 1 1 $model "${few[@]}"
    done
}

# as_one TP PP DP NAME MODELS [OPTION...]
as_one()
{
    local tp=$1 pp=$2 dp=$3 name=$4 models=$5 model

    shift 5
    for model in $models; do
        run_model $model 1 $tp $pp $dp $model-$name "${few[@]}" "$@"
        "$TESTS/parity.py" near "$RUNS/$model" "$RUNS/$model-$name"
    done
}

@test "four tensor ranks share two kv heads" {
    as_one 4 1 1 tp4 "llama3 phi3 olmo2 mistral-window gemma2"
}

@test "tensor ranks, stages and replicas" {
    as_one 2 1 2 replicas "gpt2-plain qwen3"
    as_one 3 2 1 stages smollm
}

@test "windows go over slices of a sequence" {
    as_one 1 2 1 sliced "qwen2-window gemma2" --schedule sliced:4
}
