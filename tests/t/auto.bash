# SPDX-License-Identifier: Apache-2.0
# auto.bash - runs whose plan was searched for or saved, and how two of them
# are compared; for scripts that load cluster.bash, too
#
# A script that loads it calls pack_runs() in its setup_file().

# Where the runs go, and what they read.
pack_runs()
{
    export RUNS=$BATS_FILE_TMPDIR
    export MODEL=$TESTS/vectors/parity/gpt2-tied.json
    merak data pack --tokenizer byte --out "$RUNS/text" \
        /usr/share/common-licenses/GPL-3 >/dev/null
}

# train N NAME SRUN-OPTION... -- OPTION...: ten steps; metrics in $RUNS/NAME
train()
{
    local n=$1 name=$2 launch=()

    shift 2
    while [ "$1" != -- ]; do
        launch+=("$1")
        shift
    done
    shift
    mkdir -p "$RUNS/$name"
    run srun -n"$n" --overcommit "${launch[@]}" merak train --model "$MODEL" \
        --data "$RUNS/text" --steps 10 --eval-samples 0 --threads 1 \
        --deadline 900 --metrics "$RUNS/$name/metrics.jsonl" "$@"
    echo "$output"
}

usual=(--seq 32 --global-batch 8)

losses() { jq -c '[.loss, .grad_norm]' "$RUNS/$1/metrics.jsonl"; }

# same_losses A B
same_losses()
{
    [ "$(losses "$1" | wc -l)" -eq 10 ]
    diff <(losses "$1") <(losses "$2")
}

programs() { sed -n 's/.*program id \([0-9a-f]\{16\}\)$/\1/p' <<<"$output"; }

# refused CODE TEXT: the exit code, and exactly one line of ours, with TEXT
refused()
{
    local lines

    [ "$status" -eq "$1" ]
    lines=$(grep -c 'error: ' <<<"${output//srun: error: n/}")
    [ "$lines" -eq 1 ]
    [[ $output == *"$2"* ]]
}
