#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0610-jobscript.bats - pretrain.sbatch: what it decides, and a run that is
# asked to stop, requeues itself, resumes and is done

load cluster
load jobs

setup()
{
    SCRIPT=$BUILD/jobscripts/pretrain.sbatch
    export RUN_DIR=$BATS_TEST_TMPDIR/run
    LOG=$BATS_TEST_TMPDIR/log
    cd "$BATS_TEST_TMPDIR"
}

teardown()
{
    scancel -u "$(id -un)"
    assert_no_job_left
    assert_no_node_drained
}

# submit WORD...: the script on one node, with a program of our own
submit()
{
    JOB=$(MERAK_TP=2 MERAK_PP=2 sbatch --parsable -N1 --ntasks-per-node=4 \
        --cpus-per-task=1 --time=10 --output="$LOG" "$SCRIPT" "$@")
}

# ends EXIT_CODE: the job is over, was never restarted, and failed so
ends()
{
    within 600 is_over
    cat "$LOG"
    [ "$(field Restarts)" = 0 ]
    [ "$(field ExitCode)" = "$1:0" ]
}

@test "what the exit code, progress and counts lead to" {
    export MAX_RESTARTS=5 MAX_CRASHES=3
    . "$SCRIPT"
    set +u
    while read -r code idle restarts crashes want; do
        got=$(decide "$code" "$idle" "$restarts" "$crashes")
        echo "$code $idle $restarts $crashes: $got, expected $want"
        [ "${got%% *}" = "$want" ]
    done <<'TABLE'
0 0 0 0 done
0 1 0 0 done
0 9 9 9 done
75 0 0 0 again
75 0 4 0 again
75 0 5 0 stop
75 1 0 0 again
75 2 0 0 stop
66 0 0 0 stop
67 0 0 0 stop
68 0 0 0 stop
69 0 0 0 stop
1 0 0 1 again
1 0 0 2 again
1 0 0 3 stop
1 1 0 1 again
1 2 0 1 stop
1 0 5 1 stop
137 0 0 1 again
137 2 0 1 stop
143 0 0 1 again
65 0 0 1 again
70 0 0 1 again
TABLE
}

@test "the newest checkpoint is the committed one of the highest step" {
    . "$SCRIPT"
    set +u
    [ -z "$(newest_checkpoint)" ]
    mkdir -p "$RUN_DIR"/ckpt/step-{00000020,00000100,00000200.tmp,00000300,00000020.old}
    [ -z "$(newest_checkpoint)" ]
    touch "$RUN_DIR"/ckpt/step-{00000020,00000100,00000200.tmp,00000020.old}/COMMITTED
    [ "$(newest_checkpoint)" = step-00000100 ]
    mkdir "$RUN_DIR/ckpt/step-100000000"
    touch "$RUN_DIR/ckpt/step-100000000/COMMITTED"
    [ "$(newest_checkpoint)" = step-100000000 ]
}

@test "crashes count until an orderly end" {
    . "$SCRIPT"
    set +u
    mkdir "$RUN_DIR"
    [ "$(count_crash 1)" -eq 1 ]
    [ "$(count_crash 137)" -eq 2 ]
    [ "$(count_crash 66)" -eq 2 ]
    [ "$(count_crash 75)" -eq 0 ]
    [ "$(count_crash 1)" -eq 1 ]
}

@test "asked to stop it saves, requeues, resumes and is done" {
    merak data pack --tokenizer byte --out text \
        /usr/share/common-licenses/GPL-3
    submit merak train --model "$TESTS/vectors/parity/gpt2-tied.json" \
        --data text --seq 32 --global-batch 8 --steps 120 --log-every 5 \
        --threads 1 --deadline 900
    within 600 grep -q 'step 5/120 ' "$LOG"
    scancel --batch --signal=USR1 "$JOB"
    within 600 is_requeued 1
    grep -q 'exit code 75, newest checkpoint step-.*: again' "$LOG"
    [ ! -e "$RUN_DIR/DONE" ]
    # a job is not started again before its credential has expired: 31 s
    within 600 test -e "$RUN_DIR/DONE"
    cat "$LOG"
    saved=$(sed -n 's/.*stopped after step \([0-9]*\) of 120; saved.*/\1/p' "$LOG")
    [ "$saved" -ge 5 ]
    grep -q "resumed $RUN_DIR/ckpt/step-0*$saved: step $saved, .* tp 2 x pp 2" "$LOG"
    grep -q "step 120/120 " "$LOG"
    grep -q "restart 1 on .*, from step-0*$saved" "$LOG"
    # every step once, in order
    [ "$(sed 's/{"step": \([0-9]*\),.*/\1/' "$RUN_DIR/metrics.jsonl")" = \
        "$(seq 120)" ]
    [ "$(cat "$RUN_DIR/ckpt/LATEST")" = step-00000120 ]

    # the next of the chain finds that there is nothing to do
    within 600 is_over
    submit sh -c 'touch started'
    ends 0
    grep -q 'DONE exists: nothing to do' "$LOG"
    [ ! -e started ]
}

@test "a wrong option is not tried again" {
    submit merak train --no-such-option
    ends 66
    [ "$(grep -c 'error' "$LOG")" -ge 1 ]
    grep -q 'exit code 66, newest checkpoint none: stop' "$LOG"
    [ ! -e "$RUN_DIR/DONE" ]
    [ ! -e "$RUN_DIR/crashes" ]
}

@test "starts from one checkpoint are counted, of one series" {
    . "$SCRIPT"
    set +u
    mkdir "$RUN_DIR"
    [ "$(idle_starts 7 step-2)" -eq 0 ]
    cat >"$RUN_DIR/starts" <<'STARTS'
2026-01-01 00:00:00 7 none n1
2026-01-01 00:00:01 7 step-2 n1
2026-01-01 00:00:02 8 step-2 n1
2026-01-01 00:00:03 7 step-2 n1
STARTS
    [ "$(idle_starts 7 step-2)" -eq 2 ]
    [ "$(idle_starts 8 step-2)" -eq 1 ]
    [ "$(idle_starts 9 step-2)" -eq 0 ]
    [ "$(idle_starts 7 step-3)" -eq 0 ]
    [ "$(idle_starts 7 "")" -eq 0 ]
}

@test "the second run without a new checkpoint is the last" {
    mkdir -p "$RUN_DIR/ckpt/step-00000010"
    touch "$RUN_DIR/ckpt/step-00000010/COMMITTED"
    # the program makes the file tell of a start before this one
    submit sh -c '[ "$SLURM_PROCID" != 0 ] || sed -i p "$RUN_DIR/starts"
        exit 3'
    ends 3
    grep -q 'stop exit code 3, 2 runs without a new checkpoint' "$LOG"
    [ "$(wc -l <"$RUN_DIR/crashes")" -eq 1 ]
}

@test "a crash is tried again" {
    submit sh -c 'mkdir -p "$RUN_DIR/ckpt/step-00000010" &&
        touch "$RUN_DIR/ckpt/step-00000010/COMMITTED"; exit 3'
    within 600 is_requeued 1
    grep -q 'exit code 3, newest checkpoint step-00000010: again' "$LOG"
    [ "$(wc -l <"$RUN_DIR/crashes")" -eq 1 ]
}
