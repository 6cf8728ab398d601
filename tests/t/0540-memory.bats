#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0540-memory.bats - what a run takes of memory is what was planned
#
# What is reserved is what was predicted, to the byte.  Peak resident size less
# what a process takes without a model: within 3 % of the arena where the arena
# is large, and within 6 MiB of it where it is not.  What is left over is HDF5's
# (a checkpoint), the heap's and UCX's.
#
# long

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
    sed "s/embd\": 256/embd\": 512/" "$RUNS/wide.json" >"$RUNS/broad.json"
    sed "s/layer\": 4/layer\": 8/; s/8001/16001/" "$RUNS/broad.json" \
        >"$RUNS/deep.json"
}

setup()
{
    ! is_built_with || skip "sanitizers take memory of their own"
}

# train MODEL SEQ MICRO-BATCH TP PP DP [OPTION...]: over CP, if it is set; what
# all ranks say is then in $RUNS/out
train()
{
    local model=$1 seq=$2 micro=$3 tp=$4 pp=$5 dp=$6

    shift 6
    MERAK_LOG=train:debug srun -n$((tp * ${CP:-1} * pp * dp)) --overcommit \
        --merak-tp="$tp" --merak-cp="${CP:-1}" --merak-pp="$pp" \
        merak train --model "$model" --data "$RUNS/text" --seq "$seq" \
        --micro-batch "$micro" --global-batch $((micro * 2 * dp)) --steps 2 \
        --threads 1 --deadline 900 --eval-samples 0 --trace "$RUNS/trace" \
        "$@" >"$RUNS/out" 2>&1 || {
        cat "$RUNS/out"
        return 1
    }
}

# of RANK: $arena and $own (MiB, with tenths as ten times as many) and
# $touched (tenths of a percent); what is reserved is what was predicted
memory_of()
{
    local line

    line=$(grep "memory of rank $1: predicted" "$RUNS/out")
    [[ $line =~ predicted\ ([0-9]+)\ bytes.*reserved\ ([0-9]+)$ ]]
    [ "${BASH_REMATCH[1]}" -eq "${BASH_REMATCH[2]}" ]
    line=$(grep "memory of rank $1: peak resident" "$RUNS/out")
    echo "$line"
    [[ $line =~ is\ ([0-9]+)\.([0-9])\ MiB,.*predicted\ ([0-9]+)\.([0-9])\;\ ([0-9]+)\.([0-9])\ %\ of ]]
    own=$((10#${BASH_REMATCH[1]}${BASH_REMATCH[2]}))
    arena=$((10#${BASH_REMATCH[3]}${BASH_REMATCH[4]}))
    touched=$((10#${BASH_REMATCH[5]}${BASH_REMATCH[6]}))
    [ "$touched" -ge 950 ]
}

# Every rank of the last run, with an arena of 100 MiB at least.
all_are_near() # RANKS
{
    local rank

    for ((rank = 0; rank < $1; rank++)); do
        memory_of $rank
        [ "$arena" -ge 1000 ]
        [ $((100 * own)) -le $((103 * arena)) ]
        [ $((100 * own)) -ge $((97 * arena)) ]
    done
}

@test "a run's peak is within 3 % of the plan, checkpoint and all" {
    for layout in "1 1 1" "2 1 1" "1 2 1" "1 1 2"; do
        echo "layout $layout"
        set -- $layout
        train "$RUNS/wide.json" 128 12 "$@" --ckpt "$RUNS/ckpt-$1-$2-$3"
        all_are_near $(($1 * $2 * $3))
    done
    # the copy of what is saved while training goes on counts as well; what the
    # library that writes it takes, 6 to 8 MiB, is the same in any arena
    train "$RUNS/wide.json" 128 16 1 1 2 --ckpt "$RUNS/ckpt-async" \
        --ckpt-every 1 --ckpt-async yes
    all_are_near 2
    copy=$(sed -n 's/.*memory of rank 0: \([0-9]*\) bytes more.*/\1/p' \
        "$RUNS/out")
    # weights and two moments of rank 0, which shares them with its replica
    [ "$copy" -gt 0 ]
    [ "$copy" -eq "$(jq '[.shards[0].parts[].len |
        reduce .[] as $n (4; . * $n)] | add' \
        "$RUNS/ckpt-async/step-00000002/manifest.json")" ]
}

# Those of 0500-parity.bats; at night also those that one of the others, or the
# test above, has with an option more.
@test "every layout of the parity tests is within 3 % on every rank" {
    local layouts=("2 2 2" "1 4 1" "2 1 2 --sp on" "1 2 2 --sp on"
        "1 1 2 --zero1 no" "2 2 2 --dtype bf16" "1 1 2 --zero 2"
        "2 1 2 --zero 3" "1 2 2 --zero 1 --dtype bf16 --grad-dtype bf16"
        "1 1 2 --zero 3 --fetch 3 --grad-sum step")

    [ -z "${TEST_ALL-}" ] || layouts+=("2 1 1" "1 2 1" "1 1 2" "2 2 1" "2 1 2"
        "1 2 2" "4 1 1" "1 1 4" "1 2 4")
    for layout in "${layouts[@]}"; do
        echo "layout $layout"
        set -- $layout
        model=broad
        [ $(($1 * $2)) -eq 1 ] || model=deep
        train "$RUNS/$model.json" 32 1 "$@"
        all_are_near $(($1 * $2 * $3))
    done
}

@test "a small arena's peak is within 6 MiB of the plan" {
    for layout in "1 1 1" "2 1 1" "1 2 1" "1 1 2" "2 2 1" "1 2 2"; do
        set -- $layout
        train "$TESTS/vectors/parity/gpt2-tied.json" 32 1 "$@" \
            --ckpt "$RUNS/ckpt-small-$1-$2-$3"
        for ((rank = 0; rank < $1 * $2 * $3; rank++)); do
            memory_of $rank
            [ $((own - arena)) -le 60 ]
        done
    done
}

@test "what ranks that cut sequences take is what was planned" {
    for layout in "4 1 1 1 --cp-form gather" "2 1 2 1 --cp-form heads" \
        "2 1 1 2 --zero 1 --dtype bf16"; do
        echo "cp $layout"
        set -- $layout
        CP=$1 train "$TESTS/vectors/parity/llama-untied.json" 32 1 "${@:2}"
        for ((rank = 0; rank < $1 * $2 * $3 * $4; rank++)); do
            memory_of $rank
            [ $((own - arena)) -le 60 ]
        done
    done
}

# What is frozen stays, saved and resumed on other layouts, and has no state;
# then it is trained like the rest.
@test "frozen parameters are what was planned, too, and stay" {
    local dir=$RUNS/frozen small=$TESTS/vectors/parity/gpt2-tied.json
    local free=(--ckpt "$dir" --keep 0 --freeze 'h.0.*' --freeze 'w?e.weight')

    train "$small" 32 1 1 1 1 --steps 2 "${free[@]}"
    grep -q ' frozen, ' "$RUNS/out"
    memory_of 0
    train "$small" 32 1 1 2 2 --steps 4 "${free[@]}"
    for rank in 0 1 2 3; do
        memory_of $rank
    done
    [ "$(grep -c 'was trained with .*--freeze' "$RUNS/out")" -eq 0 ]
    merak ckpt verify "$dir"
    for param in h.0.mlp.c_fc.weight wte.weight; do
        [ "$(merak ckpt show "$dir/step-00000002" "param/$param")" = \
            "$(merak ckpt show "$dir/step-00000004" "param/$param")" ]
        run merak ckpt show "$dir/step-00000004" "adam_m/$param"
        [ "$status" -eq 66 ]
    done
    train "$small" 32 1 2 1 1 --steps 6 --ckpt "$dir" --dtype bf16
    grep -q 'was trained with .*--freeze h.0.\*' "$RUNS/out"
    [ "$(merak ckpt show "$dir/step-00000006" param/wte.weight)" != \
        "$(merak ckpt show "$dir/step-00000004" param/wte.weight)" ]
}
