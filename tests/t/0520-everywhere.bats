#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0520-everywhere.bats - a run over four nodes, as root, as an ordinary user,
# and over TCP
# modes: root guest tcp

load cluster
load calm

setup_file()
{
    export RUNS=$BATS_FILE_TMPDIR
    merak data pack --tokenizer byte --out "$RUNS/text" \
        /usr/share/common-licenses/GPL-3 >/dev/null
}

# run_model NAME SRUN-OPTION...
run_model()
{
    local dir=$RUNS/$1

    shift
    mkdir -p "$dir"
    srun "$@" merak train --model "$TESTS/vectors/parity/gpt2-tied.json" \
        --data "$RUNS/text" --seq 32 --global-batch 8 --steps 6 --lr 1e-3 \
        --threads 1 --deadline 900 --eval-samples 16 \
        --metrics "$dir/metrics.jsonl" --dump-grads "$dir/grads" \
        --ckpt "$dir/ckpt" --trace "$dir/trace" >"$dir/out" 2>&1 || {
        cat "$dir/out"
        return 1
    }
}

@test "eight tasks on four nodes do what one does" {
    run_model one -n1
    run_model eight -n8 --ntasks-per-node=2 --merak-tp=2 --merak-pp=2
    "$BUILD/tests/unit/hold_runs" near "$RUNS/one" "$RUNS/eight"
    grep -q "tp 2 x pp 2 x dp 2 on 4 nodes (placement: spank)" \
        "$RUNS/eight/out"
}

@test "its trace tells of every rank" {
    run merak trace summary "$RUNS/eight/trace"
    echo "$output"
    [ "$status" -eq 0 ]
    for rank in 0 1 2 3 4 5 6 7; do
        grep -Eq "^ *$rank " <<<"$output"
    done
}

# What a node's clock is off is asked over the transport: on a busy machine
# every answer may be late.
clocks_agree()
{
    [ -e "$RUNS/$traced" ] ||
        run_model $traced -n8 --ntasks-per-node=2 --merak-tp=2 --merak-pp=2 ||
        return
    trace=$RUNS/$traced/trace traced=again$RANDOM
    merak trace perfetto "$trace" -o - | jq -e '
        .traceEvents | map(select(.ph == "s" or .ph == "f")) |
        group_by(.id) | length > 0 and
        all((map({(.ph): .ts}) | add) | .f - .s > -50)'
}

@test "its ranks' clocks agree: nothing arrives before it is sent" {
    traced=eight
    in_calm clocks_agree
}

@test "its checkpoint is sound" {
    merak ckpt verify "$RUNS/eight/ckpt"/step-00000006
}

# killed SRUN_OPTION...: rank 2 of four dies in a step, once all are in one
killed()
{
    rm -f "$RUNS/killed.jsonl"
    run srun -n4 --kill-on-bad-exit=0 "$@" bash -c '
        "$@" &
        if [ "$SLURM_PROCID" = 2 ]; then
            until [ -s '"$RUNS"'/killed.jsonl ]; do sleep 0.1; done
            kill -9 $!
            wait
            exit 0 # so that this code ends nothing
        fi
        wait $!' - merak train \
        --model "$TESTS/vectors/parity/gpt2-tied.json" \
        --data "$RUNS/text" --seq 32 --global-batch 8 --steps 1000000 \
        --metrics "$RUNS/killed.jsonl" --threads 1 --deadline 3600
    echo "$output"
    case $status in
    0 | 6[6-9] | 75) return 1 ;;
    esac
}

@test "a task that is killed ends the step, and no node is drained" {
    killed --ntasks-per-node=1 --merak-dp=4
    assert_no_node_drained
    assert_no_job_left
}

# Slurm ends the step as well, a little later, and may be first by chance.
@test "a task that is killed is named, with its node, by one beside it" {
    said=0
    for degree in tp pp dp; do
        killed -N1 "--merak-$degree=4"
        [[ $output != *"error: rank 2 on n"*" is gone: "* ]] || said=1
    done
    [ "$said" -eq 1 ]
    assert_no_node_drained
    assert_no_job_left
}
