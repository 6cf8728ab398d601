# SPDX-License-Identifier: Apache-2.0
# parity.bash - runs of small models, and how they are held against another
#
# A script that loads it calls pack_text() in its setup_file().

# Where the runs go, and what they read.
pack_text()
{
    export RUNS=$BATS_FILE_TMPDIR
    merak data pack --tokenizer byte --out "$RUNS/text" \
        /usr/share/common-licenses/GPL-3 >/dev/null
}

# How runs are held against each other: tests/unit/ckpt/hold_runs.c.
hold_runs()
{
    "$BUILD/tests/unit/hold_runs" "$@"
}

# share_cores: a rank of a run that follows has one core, in turns.  Then none
# spins where it waits, which takes twice the time of its work from the scripts
# beside this one; t/0500 has runs that do.
share_cores()
{
    cat >"$RUNS/one_core" <<'END'
#!/bin/bash
cores=()
IFS=, read -ra ranges < <(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' \
    /proc/self/status)
for range in "${ranges[@]}"; do
    cores+=($(seq "${range%-*}" "${range#*-}"))
done
exec taskset -c "${cores[SLURM_PROCID % ${#cores[@]}]}" "$@"
END
    chmod +x "$RUNS/one_core"
    export PER_TASK=$RUNS/one_core
}

# run_model MODEL CLIP TP PP DP [NAME [OPTION...]]: train into a directory of
# that name, ten steps, behind the words of $PER_TASK if there are any, with
# sequences cut over $CP tasks if that is set; prints nothing.
run_model()
{
    local model=$1 clip=$2 tp=$3 pp=$4 dp=$5
    local dir=$RUNS/${6:-$1-c$2-tp$3-pp$4-dp$5}

    shift $(($# < 6 ? $# : 6))
    mkdir -p "$dir"
    # shellcheck disable=SC2086
    srun -n$((tp * ${CP:-1} * pp * dp)) --overcommit --merak-tp="$tp" \
        --merak-cp="${CP:-1}" --merak-pp="$pp" ${PER_TASK:-} merak train \
        --model "${MODELS:-$TESTS/vectors/parity}/$model.json" \
        --data "$RUNS/text" --seq 32 --micro-batch 1 --global-batch 8 \
        --steps 10 --lr 1e-3 --lr-schedule constant --clip "$clip" \
        --eval-samples 0 --threads 1 --deadline 900 \
        --metrics "$dir/metrics.jsonl" --dump-grads "$dir/grads" \
        --ckpt "$dir/ckpt" "$@" >"$dir/out" 2>&1 || {
        cat "$dir/out"
        return 1
    }
    planned_is_reserved "$dir/out"
}

# run_example NAME TP PP DP "PROGRAM [WORD...]" [OPTION...]: as run_model, a
# model of examples/; of $DATA if that is set, which are no sequences.
run_example()
{
    local dir=$RUNS/$1 tp=$2 pp=$3 dp=$4 program seq=(--seq 32)

    [ -z "${DATA:-}" ] || seq=()

    read -ra program <<<"$5"
    shift 5
    mkdir -p "$dir"
    srun -n$((tp * ${CP:-1} * pp * dp)) --overcommit --merak-tp="$tp" \
        --merak-cp="${CP:-1}" --merak-pp="$pp" \
        "$BUILD/examples/${program[0]}" "${program[@]:1}" \
        --data "${DATA:-$RUNS/text}" "${seq[@]}" \
        --micro-batch 1 --global-batch 8 --steps 10 --lr 1e-3 \
        --lr-schedule constant --clip 0.5 --eval-samples 8 --threads 1 \
        --deadline 900 --metrics "$dir/metrics.jsonl" \
        --dump-grads "$dir/grads" --ckpt "$dir/ckpt" "$@" >"$dir/out" 2>&1 || {
        cat "$dir/out"
        return 1
    }
    planned_is_reserved "$dir/out"
}

# What rank 0 predicted of its memory, and of the host's, is what it reserved,
# to the byte.
planned_is_reserved()
{
    local line lines

    mapfile -t lines < <(grep 'memory of rank 0: predicted' "$1")
    [ "${#lines[@]}" -gt 0 ] || {
        echo "no memory in $1"
        return 1
    }
    for line in "${lines[@]}"; do
        if ! [[ $line =~ predicted\ ([0-9]+)\ bytes.*reserved\ ([0-9]+)$ ]] ||
            [ "${BASH_REMATCH[1]}" != "${BASH_REMATCH[2]}" ]; then
            echo "$line"
            return 1
        fi
    done
}

# against one rank, both models, clipping active; along all axes, at night along
# one, without clipping too
near()
{
    local model clip clips=0.5 pairs=()

    case ${TEST_ALL:+night }$1$2$3${4-} in
    222 | "night 222" | "night 411" | "night 141" | "night 114") clips+=" 0" ;;
    esac
    for model in gpt2-tied llama-untied; do
        for clip in $clips; do
            name=$model-c$clip-tp$1-pp$2-dp$3${4:+-$4}
            run_model $model $clip "$1" "$2" "$3" "$name" ${5:+$5 $6}
            pairs+=("$RUNS/$model-c$clip-tp1-pp1-dp1" "$RUNS/$name")
        done
    done
    hold_runs near "${pairs[@]}"
}

# two runs of both models, clipping active, bit for bit
equal() # name-suffix-A name-suffix-B
{
    local model pairs=()

    for model in gpt2-tied llama-untied; do
        pairs+=("$RUNS/$model-c0.5-$1" "$RUNS/$model-c0.5-$2")
    done
    hold_runs equal "${pairs[@]}"
}
