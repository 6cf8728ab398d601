#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0510-bad-input.bats - what cannot run is refused: one clear line, the
# documented exit code, no node drained, nothing lost

load cluster

setup_file()
{
    export RUNS=$BATS_FILE_TMPDIR
    export CONFIG=$TESTS/vectors/parity/gpt2-tied.json
    merak data pack --tokenizer byte --out "$RUNS/text" \
        /usr/share/common-licenses/GPL-3 >/dev/null
}

teardown()
{
    ! mountpoint -q "$RUNS/disk" || umount "$RUNS/disk"
    assert_no_node_drained
}

# train N OPTION...: two steps on N tasks; output and status as bats' run
train()
{
    local n=$1

    shift
    run srun -n"$n" --overcommit "${SRUN[@]}" merak train \
        --model "${MODEL:-$CONFIG}" --data "${DATA:-$RUNS/text}" --seq 32 \
        --global-batch 4 --steps 2 --threads 1 --deadline 900 "$@"
}

# refused CODE TEXT: the exit code, and exactly one line of ours, with TEXT
refused()
{
    local lines

    echo "$output"
    [ "$status" -eq "$1" ]
    # Slurm says what it ended, or not, as tasks end by themselves in time
    lines=$(grep -v '^slurmstepd-' <<<"${output//srun: error: n/}" |
        grep -c 'error: ')
    [ "$lines" -eq 1 ]
    [[ $output == *"$2"* ]]
}

@test "heads that tp does not divide" {
    SRUN=(--ntasks-per-node=3 -N1 --merak-tp=3)
    train 3
    refused 66 "4 heads cannot be cut over tp=3"
}

@test "a global batch that does not divide" {
    SRUN=(--merak-dp=2)
    train 2 --global-batch 3
    refused 66 "--global-batch 3 is not a multiple"
}

@test "more stages than the model has places to cut" {
    SRUN=(--merak-pp=16)
    train 16
    refused 66 "stages"
}

@test "a config without a required field" {
    jq 'del(.model_type)' "$CONFIG" >"$RUNS/no-field.json"
    MODEL=$RUNS/no-field.json SRUN=()
    train 1
    refused 66 "model_type"
}

@test "a config that asks for mathematics that is not there" {
    jq '.activation_function = "relu6"' "$CONFIG" >"$RUNS/relu6.json"
    MODEL=$RUNS/relu6.json SRUN=()
    train 1
    refused 66 "relu6"
}

# Such a file blocked its opener, in srun inside the allocation.
@test "a pipe is no file" {
    local what

    mkfifo "$RUNS/pipe"
    run --separate-stderr timeout -k 5 120 srun -Q -n1 --merak-plan="$RUNS/pipe" \
        echo started
    [ "$status" -eq 66 ]
    [ -z "$output" ]
    [ "$stderr" = "srun: error: merak: --merak-plan: $RUNS/pipe: a pipe, not \
a file" ]
    run timeout -k 5 120 srun -Q -n1 --merak-map="$RUNS/pipe" echo ran
    [[ $output == *"cannot write $RUNS/pipe"*ran* ]]
    for what in "train --model $CONFIG --data $RUNS/text --plan" \
        "train --data $RUNS/text --model" \
        "plan --model" "plan --model $CONFIG --global-batch 8 --device" \
        "data pack --out x $CONFIG --tokenizer"; do
        run timeout -k 5 120 merak $what "$RUNS/pipe"
        echo "$what: $status $output"
        [ "$status" -eq 66 ] || [ "$status" -eq 67 ]
        [ "$(grep -c "$RUNS/pipe: .*a pipe, not a file" <<<"$output")" -eq 1 ]
        [ "${#lines[@]}" -eq 1 ]
    done
}

@test "memory that one task of two cannot get" {
    run srun -n2 bash -c '
        trap "" XFSZ
        [ "$SLURM_PROCID" -eq 0 ] || ulimit -f 1 # KiB, of shared memory too
        exec merak train "$@"' - --model "$CONFIG" --data "$RUNS/text" \
        --seq 32 --global-batch 4 --steps 2 --threads 1 --pp 2
    refused 69 "an arena of"
}

@test "no such data" {
    DATA=$RUNS/nothing SRUN=(--merak-pp=2)
    train 2
    refused 67 "nothing"
}

@test "a truncated data file" {
    cp "$RUNS/text.idx" "$RUNS/short.idx"
    head -c 1000 "$RUNS/text.bin" >"$RUNS/short.bin"
    DATA=$RUNS/short SRUN=(--merak-pp=2)
    train 2
    refused 67 "short.bin"
}

@test "a data file of the wrong dtype" {
    cp "$RUNS/text.bin" "$RUNS/float.bin"
    cp "$RUNS/text.idx" "$RUNS/float.idx"
    printf '\007' | dd of="$RUNS/float.idx" bs=1 seek=17 conv=notrunc 2>/dev/null
    DATA=$RUNS/float SRUN=()
    train 1
    refused 67 "f32"
}

@test "a token outside the vocabulary" {
    jq '.vocab_size = 100' "$CONFIG" >"$RUNS/small.json"
    MODEL=$RUNS/small.json SRUN=(--merak-tp=2)
    train 2
    refused 67 "vocab"
}

@test "a checkpoint of another model" {
    SRUN=()
    train 1 --ckpt "$RUNS/ckpt"
    [ "$status" -eq 0 ]
    jq '.n_layer = 2' "$CONFIG" >"$RUNS/shallow.json"
    MODEL=$RUNS/shallow.json SRUN=(--merak-pp=2)
    train 2 --ckpt "$RUNS/ckpt"
    refused 67 "another model"
    merak ckpt verify "$RUNS/ckpt"/step-*
}

@test "a checkpoint of another seed" {
    SRUN=()
    train 1 --ckpt "$RUNS/ckpt" --seed 99
    refused 67 "--seed"
}

@test "resume must, and there is no checkpoint" {
    SRUN=(--merak-dp=2)
    train 2 --ckpt "$RUNS/empty" --resume must
    refused 67 "$RUNS/empty"
}

@test "a disk that fills up: the earlier checkpoint stays" {
    [ "$EUID" -eq 0 ] || skip "mounting a small file system needs root"
    mkdir -p "$RUNS/disk"
    mount -t tmpfs -o size=6000k tmpfs "$RUNS/disk"
    SRUN=(--merak-pp=2)
    for async in no yes; do
        local ckpt=$RUNS/disk/$async

        train 2 --ckpt "$ckpt"
        [ "$status" -eq 0 ]
        (
            # the third or a later one: the oldest are removed meanwhile
            until ls "$ckpt"/step-*/COMMITTED 2>/dev/null |
                grep -qv 'step-0000000[12]/'; do
                sleep 0.1
            done
            cat /dev/zero >"$RUNS/disk/filler" 2>/dev/null
        ) 3>&- &
        train 2 --ckpt "$ckpt" --steps 1000000 --ckpt-every 1 \
            --ckpt-async $async
        after=$(merak ckpt ls "$ckpt" | grep -c '^step-.* 1x2x1 ')
        merak ckpt verify "$ckpt"
        [ "$after" -ge 1 ]
        refused 69 "$ckpt"
        wait
        rm "$RUNS/disk/filler"
    done
}

@test "more than one task and no PMIx" {
    SRUN=(--mpi=none)
    train 2
    refused 68 "--mpi=pmix"
}

@test "a task that does not come: its peers wait no longer than they may" {
    printf '#!/bin/sh\n[ "$SLURM_PROCID" != 0 ] || sleep 3000\nexec "$@"\n' \
        >"$RUNS/late"
    chmod +x "$RUNS/late"
    run timeout -k 5 600 srun -n2 --merak-pp=2 "$RUNS/late" merak train \
        --model "$TESTS/vectors/parity/gpt2-tied.json" --data "$RUNS/text" \
        --seq 32 --steps 1 --deadline 3
    echo "$output"
    [ "$status" -ne 0 ] && [ "$status" -ne 124 ] # did not wait for task 0
    [[ $output == *"error: task 0 on n"[1-4]" has not reached a PMIx fence within 3 s, as task 1 has"* ]]
    assert_no_job_left
    assert_no_node_drained
}

@test "a task that brings nothing: its peers name it and what is missing" {
    for nodes in 1 2; do
        run timeout -k 5 600 srun -K -N$nodes -n2 --overcommit \
            "$BUILD/tests/unit/boot_make" absent 3
        echo "$output"
        [ "$status" -ne 0 ] && [ "$status" -ne 124 ]
        [[ $output == *"boot_make: task 1 on n"[1-4]" has not put merak.card.0 in time, for task 0"* ]]
    done
    assert_no_job_left
    assert_no_node_drained
}

@test "an unknown option" {
    SRUN=(--merak-pp=2)
    train 2 --stepz 3
    refused 66 "--stepz"
}

@test "an option that contradicts the launch" {
    SRUN=(--merak-tp=2)
    train 2 --tp 1
    refused 66 "--merak-tp=2"
}
