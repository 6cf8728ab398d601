#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0303-ckpt-faults.bats - training whose disk fails in the middle of a save, or
# that is killed at one of its calls: it goes on from what was committed, with
# the losses of a run that was never disturbed; and one whose disk is slow
#
# MERAK_TEST_ALL_CALLS=1 kills at each call, not at some.

# train RUN METRICS [OPTION]...
train()
{
    merak train --model "$CONFIG" --data "$RUNS/text" --seq 16 \
        --global-batch 2 --threads 1 --steps 6 --ckpt-every 2 \
        --eval-samples 0 --ckpt "$1" --metrics "$2" "${@:3}"
}

setup_file()
{
    export RUNS=$BATS_FILE_TMPDIR
    export CONFIG=$TESTS/vectors/parity/gpt2-tied.json
    merak data pack --tokenizer byte --out "$RUNS/text" \
        /usr/share/common-licenses/GPL-3 >/dev/null
    train "$RUNS/whole" "$RUNS/whole.jsonl"
}

setup()
{
    layer=$BUILD/tests/unit/.libs/fault_layer.so
    run=$BATS_TEST_TMPDIR/run
    metrics=$BATS_TEST_TMPDIR/metrics.jsonl
    calls=$BATS_TEST_TMPDIR/calls
    log=$BATS_TEST_TMPDIR/log
    [ -e "$layer" ]
    # a library in front of the sanitizers' own
    export ASAN_OPTIONS=verify_asan_link_order=0
}

# failing WITH AT [OPTION]...: train, and have a call fail; what it did is in
# $log, its calls in $calls
failing()
{
    rm -rf "$run" "$metrics" "$calls"
    setsid -w env LD_PRELOAD="$layer" MERAK_FAULT_DIR="$run" \
        MERAK_FAULT_WITH="$1" MERAK_FAULT_AT="$2" MERAK_FAULT_LOG="$calls" \
        bash -c "$(declare -f train)"'; train "$@"' bash "$run" "$metrics" \
        "${@:3}" >"$log" 2>&1
}

# The numbers of the calls of the second save, of a run that none failed of.
calls_of_second_save()
{
    awk '/ mkdir .*step-00000004.tmp$/ { on = 1 }
        / mkdir .*step-00000006.tmp$/ { on = 0 } on { print $1, $2 }' "$calls"
}

# The losses of this run and of its resumption are those of the whole run, and
# so are its weights.
same_curve()
{
    curve() { jq -sc 'map({key: "\(.step)", value: [.loss, .grad_norm]}) |
        from_entries' "$1"; }
    train "$run" "$metrics"
    [ "$(curve "$metrics" | jq length)" -eq 6 ]
    [ "$(curve "$RUNS/whole.jsonl")" = "$(curve "$metrics")" ]
    merak ckpt verify "$run"
    merak ckpt diff "$RUNS/whole" "$run"
}

# The steps that are committed.
committed()
{
    merak ckpt ls --json "$run" | jq -r '[.checkpoints[] |
        select(.status == "committed") | .step] | sort | join(" ")'
}

@test "a disk that is full, bad or over quota in mid-write costs the save" {
    declare -A says=([ENOSPC]="No space left on device" [EIO]="Input/output error"
        [EDQUOT]="Disk quota exceeded")
    for async in yes no; do
        failing EIO 0 --ckpt-async $async
        # in the middle of the shard
        at=$(calls_of_second_save | awk '$2 == "write"' | sed -n 12p)
        for with in ENOSPC EIO EDQUOT; do
            code=0
            failing $with "${at% *}" --ckpt-async $async || code=$?
            cat "$log"
            [ $code -eq 69 ] || [ $with$code = EIO1 ]
            [ "$(grep -c "error: .*${says[$with]}" "$log")" -eq 1 ]
            [ "$(committed)" = 2 ]
            [ ! -e "$run/step-00000004.tmp" ]
            same_curve
        done
    done
}

@test "killed at a call of a save beside training, a run loses steps alone" {
    failing EIO 0 --ckpt-async yes
    calls_of_second_save >"$BATS_TEST_TMPDIR/all"
    n=$(wc -l <"$BATS_TEST_TMPDIR/all")
    [ "$n" -gt 40 ]
    every=$((n / 4))
    [ -z "${TEST_ALL_CALLS-}" ] || every=1
    for ((i = 1; i <= n; i += every)); do
        at=$(sed -n "${i}s/ .*//p" "$BATS_TEST_TMPDIR/all")
        code=0
        failing KILL "$at" --ckpt-async yes || code=$?
        echo "killed at call $i of $n: code $code, committed: $(committed)"
        [ $code -eq 137 ]
        [[ $(committed) == 2 || $(committed) == "2 4" ]]
        same_curve
    done
}

@test "a save that takes long says how far it is on a terminal, in a pipe nothing" {
    for async in no yes; do
        # --log-every 1: a step says what a save beside it has written
        failing SLOW 0 --ckpt-async $async --log-every 1
        cat "$log"
        [ "$(grep -c $'\r' "$log")" -eq 0 ]
        [ "$(grep -cE 'step [246] saved: 716.6 KiB in [0-9.]+ s, [0-9.]+ GB/s(; training waited [0-9.]+ s)?$' "$log")" -eq 3 ]
        [ "$(grep -cE 'step [3456]/6 .*  saving [0-9]+ %$' "$log")" -gt 0 ] ||
            [ $async = no ]
        rm -rf "$run"
        SHELL=$BASH setsid -w script -qec "$(declare -f train)
            export LD_PRELOAD='$layer' MERAK_FAULT_DIR='$run' \
                MERAK_FAULT_WITH=SLOW MERAK_FAULT_AT=0
            train '$run' '$metrics' --ckpt-async $async" "$log" >/dev/null
        tr '\r' '\n' <"$log"
        # a line over the other, and gone before the next of the log
        tr '\r' '\n' <"$log" | grep -qE \
            '^save: [0-9.]+ KiB of 716.6 KiB, [0-9.]+ [KM]iB/s, 0:0[0-9] left'
        tr '\r' '\n' <"$log" | grep -q 'save: 716.6 KiB of 716.6 KiB, .*, syncing'
        [ "$(grep -c $'save: .*\r\033\[Kmerak: step 6 saved' "$log")" -eq 1 ]
    done
}
