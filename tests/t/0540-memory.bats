#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0540-memory.bats - what a run takes of memory is what was planned
#
# Peak resident size less what a process takes without a model: within 3 % of
# the arena where the arena is large, and within 6 MiB of it where it is not.
# What is left over is HDF5's (a checkpoint), the heap's and UCX's.

load cluster

setup_file()
{
    export RUNS=$BATS_FILE_TMPDIR
    merak data pack --tokenizer byte --out "$RUNS/text" \
        /usr/share/common-licenses/GPL-3 >/dev/null
    cat >"$RUNS/wide.json" <<'END'
{
  "model_type": "gpt2",
  "n_embd": 256, "n_layer": 4, "n_head": 8, "n_positions": 128,
  "vocab_size": 8001, "activation_function": "gelu_new",
  "embd_pdrop": 0.1, "resid_pdrop": 0.1, "attn_pdrop": 0.0,
  "tie_word_embeddings": true
}
END
}

# measure MODEL SEQ MICRO-BATCH TP PP DP: $arena, $own (MiB, with tenths as
# ten times as many) and $touched (tenths of a percent)
measure()
{
    local line

    srun -n$(($4 * $5 * $6)) --overcommit --merak-tp="$4" --merak-pp="$5" \
        merak train --model "$1" --data "$RUNS/text" --seq "$2" \
        --micro-batch "$3" --global-batch $(($3 * 2 * $6)) --steps 2 \
        --threads 1 --deadline 60 --eval-samples 0 --ckpt "$RUNS/ckpt-${1##*/}-$4-$5-$6" \
        --trace "$RUNS/trace" >"$RUNS/out" 2>&1 || {
        cat "$RUNS/out"
        return 1
    }
    line=$(grep 'peak resident' "$RUNS/out")
    echo "$*: $line"
    [[ $line =~ is\ ([0-9]+)\.([0-9])\ MiB,.*predicted\ ([0-9]+)\.([0-9])\;\ ([0-9]+)\.([0-9])\ %\ of ]]
    own=$((10#${BASH_REMATCH[1]}${BASH_REMATCH[2]}))
    arena=$((10#${BASH_REMATCH[3]}${BASH_REMATCH[4]}))
    touched=$((10#${BASH_REMATCH[5]}${BASH_REMATCH[6]}))
    [ "$touched" -ge 950 ]
}

@test "a large arena's peak is within 3 % of the plan" {
    for layout in "1 1 1" "2 1 1" "1 2 1" "1 1 2"; do
        measure "$RUNS/wide.json" 128 24 $layout
        [ "$arena" -ge 2000 ]
        [ $((100 * own)) -le $((103 * arena)) ]
        [ $((100 * own)) -ge $((97 * arena)) ]
    done
}

@test "a small arena's peak is within 6 MiB of the plan" {
    for layout in "1 1 1" "2 1 1" "1 2 1" "1 1 2" "2 2 1" "1 2 2"; do
        measure "$TESTS/vectors/parity/gpt2-tied.json" 32 1 $layout
        [ $((own - arena)) -le 60 ]
    done
}
