#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0511-lost-runs.bats - what would cost a run its work: an interrupt, weights
# that diverged, a directory that cannot be saved to, another run in it, damage

load cluster

setup_file()
{
    export RUNS=$BATS_FILE_TMPDIR
    export CONFIG=$TESTS/vectors/parity/gpt2-tied.json
    merak data pack --tokenizer byte --out "$RUNS/text" \
        /usr/share/common-licenses/GPL-3 >/dev/null
}

setup()
{
    CKPT=$RUNS/$BATS_TEST_NUMBER
    TRAIN=(merak train --model "$CONFIG" --data "$RUNS/text" --seq 32
        --global-batch 4 --steps 4 --threads 1 --deadline 60)
}

teardown()
{
    assert_no_node_drained
}

# failed_as CODE TEXT: the exit code, and one line of ours, with TEXT
failed_as()
{
    echo "$output"
    [ "$status" -eq "$1" ]
    [ "$(grep -c 'merak: error: ' <<<"$output")" -eq 1 ]
    [[ $output == *"$2"* ]]
}

# start COMMAND...: in the background, with an interrupt that is not ignored;
# returns once it is in its steps, or has printed $UNTIL
start()
{
    local until=${UNTIL:-step 1/}

    : >"$CKPT.log"
    env --default-signal=INT "$@" >"$CKPT.log" 2>&1 3>&- &
    pid=$!
    for ((i = 0; i < 600; i++)); do
        ! grep -q "$until" "$CKPT.log" || return 0
        sleep 0.1
    done
    cat "$CKPT.log"
    return 1
}

# ended_as CODE TEXT: what was started
ended_as()
{
    local code=0

    wait "$pid" || code=$?
    cat "$CKPT.log"
    [ "$code" -eq "$1" ]
    grep -q "$2" "$CKPT.log"
}

@test "Ctrl-C finishes the step, saves and ends with 75" {
    start "${TRAIN[@]}" --steps 10000000 --ckpt "$CKPT"
    kill -INT "$pid"
    ended_as 75 "interrupted: the step is finished and saved"
    merak ckpt verify "$CKPT"
}

# A handler on the stack of a product cost the heap every fifth run.
@test "a signal in the middle of a product harms nothing" {
    for signal in INT USR1 TERM INT USR1 TERM; do
        start "${TRAIN[@]}" --steps 10000000
        kill -$signal "$pid"
        ended_as 75 "stopped after step"
    done
}

@test "Ctrl-C without --ckpt says that nothing is saved" {
    start "${TRAIN[@]}" --steps 10000000
    kill -INT "$pid"
    ended_as 75 "nothing is saved (no --ckpt)"
}

@test "a second Ctrl-C ends the run at once" {
    ! is_built_with thread || skip "the thread sanitizer delivers signals late"
    # a step of a minute: emulated ones take what they are told to
    start "${TRAIN[@]}" --steps 10000000 --ckpt "$CKPT" --eval-samples 0 \
        --backend emu --emu-unit-ms 300
    kill -INT "$pid"
    for ((i = 0; i < 100; i++)); do
        ! grep -q interrupted "$CKPT.log" || break
        sleep 0.1
    done
    kill -INT "$pid"
    ended_as 130 "interrupted"
    [ ! -e "$CKPT"/step-* ]
}

@test "srun -X hands one Ctrl-C on: the tasks save" {
    start srun -X -n2 --merak-pp=2 "${TRAIN[@]}" --steps 10000000 \
        --ckpt "$CKPT"
    kill -INT "$pid"
    ended_as 75 "interrupted: the step is finished and saved"
    merak ckpt verify "$CKPT"
}

# Of a minute and more that the validation would take, emulated, nothing is left.
@test "Ctrl-C during a validation ends it, on all ranks" {
    UNTIL="validation begins" MERAK_LOG=debug start srun -X -n2 --merak-pp=2 \
        "${TRAIN[@]}" --ckpt "$CKPT" --backend emu --emu-unit-ms 20 \
        --eval-every 1 --valid-fraction 0.5 --eval-samples 100000
    SECONDS=0
    kill -INT "$pid"
    ended_as 75 "step 1  validation ends here"
    [ "$SECONDS" -lt 20 ]
    merak ckpt verify "$CKPT/step-00000001"
}

@test "weights that diverge in their last step are not saved" {
    run "${TRAIN[@]}" --ckpt "$CKPT" --steps 2
    [ "$status" -eq 0 ]
    for validation in 64 0; do
        # a rate at which the update itself is infinite
        run srun -n2 --merak-dp=2 "${TRAIN[@]}" --ckpt "$CKPT" --steps 3 \
            --lr 3e38 --weight-decay 1e3 --eval-samples $validation
        failed_as 1 "not finite"
        [[ $output != *"step 3  held-out"* ]]
    done
    [[ $output == *"param/"* ]]
    run merak ckpt verify "$CKPT"
    echo "$output"
    [ "$status" -eq 0 ]
    [ "${#lines[@]}" -eq 1 ]
    [[ $output == *"step-00000002: sound"* ]]
}

# refused_before_step CODE TEXT OPTION...
refused_before_step()
{
    local code=$1 text=$2

    shift 2
    run "${TRAIN[@]}" "$@"
    failed_as "$code" "$text"
    [[ $output != *"step 1/"* ]]
}

@test "a --ckpt that cannot be used is refused before the first step" {
    touch "$CKPT-file"
    refused_before_step 66 "$CKPT-file is not a directory" --ckpt "$CKPT-file"
    refused_before_step 66 "$CKPT-file is not a directory" --ckpt "$CKPT-file/x"
    refused_before_step 69 "cannot make directory /proc/x" --ckpt /proc/x
    run "${TRAIN[@]}" --steps 1 --ckpt "$CKPT/made/with/parents/"
    [ "$status" -eq 0 ]
    merak ckpt verify "$CKPT/made/with/parents"
}

@test "a read-only --ckpt, or one without room, is refused before the first step" {
    [ "$EUID" -eq 0 ] || skip "mounting a small file system needs root"
    mkdir "$CKPT"
    mount -t tmpfs -o size=2200k tmpfs "$CKPT"
    # one of 734 kB fits, the two that are there while one replaces another
    # do not
    run "${TRAIN[@]}" --steps 2 --ckpt "$CKPT"
    local one=$status
    run "${TRAIN[@]}" --ckpt "$CKPT" --steps 4 --ckpt-every 1
    mount -o remount,ro "$CKPT"
    local second=$status said=$output
    run "${TRAIN[@]}" --ckpt "$CKPT" --resume no
    umount "$CKPT"
    failed_as 69 "Read-only file system"
    [[ $output != *"step 1/"* ]]
    [ "$one" -eq 0 ]
    status=$second output=$said
    failed_as 69 "GB free, and this run adds up to 2 checkpoints of 0.001 GB"
    [[ $output != *"step 3/"* ]]
}

@test "metrics and traces that cannot be written are told as disk" {
    refused_before_step 69 "cannot write /proc/x" --metrics /proc/x
    refused_before_step 69 "/proc/x" --trace /proc/x
}

@test "a second run in the same directory is refused, and harms nothing" {
    start "${TRAIN[@]}" --steps 10000000 --ckpt "$CKPT" --ckpt-every 20
    jq -e ".pid == $(pgrep -P "$pid" || echo "$pid") or .pid == $pid" \
        "$CKPT/OWNER"
    run srun -n2 --merak-pp=2 "${TRAIN[@]}" --ckpt "$CKPT"
    kill -INT "$pid"
    ended_as 75 "saved: resubmit to continue"
    failed_as 66 "$CKPT is in use by process $pid on "
    merak ckpt verify "$CKPT"
    [ ! -e "$CKPT/OWNER" ]
}

@test "what a killed run left is taken over at once" {
    start "${TRAIN[@]}" --steps 10000000 --ckpt "$CKPT" --ckpt-every 20
    until [ -e "$CKPT/LATEST" ]; do sleep 0.1; done
    kill -KILL "$pid"
    wait "$pid" || true
    [ -e "$CKPT/OWNER" ]
    mkdir "$CKPT/step-99999999.tmp"
    run "${TRAIN[@]}" --ckpt "$CKPT" --steps 1
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *"resumed $CKPT/step-"* ]]
    [ ! -e "$CKPT/OWNER" ]
    [ ! -e "$CKPT/step-99999999.tmp" ]
}

# flip FILE: one bit in its middle
flip()
{
    local at=$(($(stat -c %s "$1") / 2)) byte

    byte=$(od -An -tu1 -j "$at" -N 1 "$1")
    printf "\\x$(printf %x $((byte ^ 1)))" |
        dd of="$1" bs=1 seek="$at" conv=notrunc status=none
}

@test "a damaged newest checkpoint is named, and the one before is resumed" {
    local good

    run srun -n2 --merak-pp=2 "${TRAIN[@]}" --ckpt "$CKPT" --ckpt-every 2 \
        --metrics "$CKPT.jsonl"
    [ "$status" -eq 0 ]
    good=$(tail -1 "$CKPT.jsonl" | jq .loss)
    flip "$CKPT/step-00000004/shard-00001.h5"
    run "${TRAIN[@]}" --ckpt "$CKPT" --resume must
    failed_as 67 "step-00000004/shard-00001.h5 is damaged"
    run srun -n2 --merak-pp=2 "${TRAIN[@]}" --ckpt "$CKPT" \
        --metrics "$CKPT.jsonl"
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c 'step-00000004 skipped: .*shard-00001.h5 is damaged' \
        <<<"$output")" -eq 1 ]
    [[ $output == *"resumed $CKPT/step-00000002: step 2"* ]]
    [ "$(tail -1 "$CKPT.jsonl" | jq .loss)" = "$good" ]
    run merak ckpt verify "$CKPT"
    [ "$status" -eq 0 ]
    [ "${#lines[@]}" -eq 2 ]
    # all of them: no reason to start anew
    flip "$CKPT/step-00000002/shard-00000.h5"
    flip "$CKPT/step-00000004/shard-00000.h5"
    run "${TRAIN[@]}" --ckpt "$CKPT"
    failed_as 67 "step-00000002 is damaged, and there is no older checkpoint"
}

@test "a checkpoint under another step's name is named, and not taken" {
    run "${TRAIN[@]}" --ckpt "$CKPT" --ckpt-every 2
    cp -r "$CKPT/step-00000004" "$CKPT/step-00000040"
    for command in "merak ckpt verify $CKPT" "merak ckpt ls $CKPT"; do
        run $command
        echo "$output"
        [ "$status" -eq 67 ]
        [[ $output == *"step-00000040"*"it holds step 4, not the one in its name"* ]]
    done
    run "${TRAIN[@]}" --ckpt "$CKPT" --steps 5
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *"step-00000040 skipped: manifest.json: it holds step 4"* ]]
    [[ $output == *"resumed $CKPT/step-00000004"* ]]
}

@test "a sequence that is not what it was is refused, a batch is said" {
    run "${TRAIN[@]}" --ckpt "$CKPT" --steps 1
    run srun -n2 --merak-pp=2 "${TRAIN[@]}" --ckpt "$CKPT" --steps 2 --lr 1e-5
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c 'the learning rate of step 2 is .*e-0[0-9]; by the options' \
        <<<"$output")" -eq 1 ]
    [[ $output != *"was trained with --"* && $output != *", but "* ]]
    run srun -n2 --merak-pp=2 "${TRAIN[@]}" --ckpt "$CKPT" --steps 3 --seq 16
    failed_as 67 "step-00000002 was trained with --seq 32, not 16"
    run srun -n2 --merak-pp=2 "${TRAIN[@]}" --ckpt "$CKPT" --steps 3 --seq 16 \
        --global-batch 8 --data-changed yes
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c -e '--seq 16, but .*/step-00000002 was trained with --seq 32' \
        <<<"$output")" -eq 1 ]
    [ "$(grep -c -e '--global-batch 8, but .* with --global-batch 4:' \
        <<<"$output")" -eq 1 ]
    [ "$(jq '.state.consumed_tokens' "$CKPT/step-00000003/manifest.json")" \
        -eq $((2 * 4 * 32 + 8 * 16)) ]
}

@test "a checkpoint that is resumed by name is left as it is" {
    run "${TRAIN[@]}" --ckpt "$CKPT" --ckpt-every 2
    ls "$CKPT/step-00000002" >"$CKPT.before"
    run "${TRAIN[@]}" --ckpt "$CKPT/step-00000002" --steps 3
    echo "$output"
    [ "$status" -eq 0 ]
    ls "$CKPT/step-00000002" | diff "$CKPT.before" -
    merak ckpt verify "$CKPT/step-00000003"
}

# hashes DIR: of every tensor in its checkpoints, and where it lies
hashes()
{
    merak ckpt verify "$1" >&2
    jq -c '.state, [.shards[].parts[] | [.tensor, .lo, .offset, .xxh128]]' \
        "$1"/step-*/manifest.json
}

@test "saves while training goes on are the same to the bit, and so is the run" {
    for async in no yes; do
        run srun -n2 --overcommit --merak-pp=2 "${TRAIN[@]}" \
            --ckpt "$CKPT-$async" --steps 9 --ckpt-every 2 --keep 0 \
            --trace "$CKPT-trace-$async" --trace-every 1 --ckpt-async $async \
            --metrics "$CKPT-$async.jsonl"
        echo "$output"
        [ "$status" -eq 0 ]
        jq -c '[.loss, .grad_norm, .valid_loss]' "$CKPT-$async.jsonl" \
            >"$CKPT-$async.losses"
        hashes "$CKPT-$async" >"$CKPT-$async.hashes"
    done
    [[ $output == *"bytes more, "*" MiB, for the copy that is saved"* ]]
    diff "$CKPT-no.losses" "$CKPT-yes.losses"
    diff "$CKPT-no.hashes" "$CKPT-yes.hashes"
    [ "$(wc -l <"$CKPT-yes.hashes")" -eq $((5 * 2)) ]
    merak trace summary "$CKPT-trace-yes"
    # what was saved before a step that fails is committed all the same
    run "${TRAIN[@]}" --ckpt "$CKPT-f" --steps 4 --ckpt-every 2 --warmup 3 \
        --lr 3e38 --weight-decay 1e3 --ckpt-async yes
    [ "$status" -eq 1 ]
    run "${TRAIN[@]}" --ckpt "$CKPT-f" --steps 4 --ckpt-every 3 --lr 1e-3
    run "${TRAIN[@]}" --ckpt "$CKPT-f" --steps 7 --ckpt-every 5 \
        --lr 1e-3 --ckpt-keep-every 4
    [ "$status" -eq 0 ]
    [ "$(cd "$CKPT-f" && echo step-*)" = \
        "step-00000004 step-00000005 step-00000007" ]
}
