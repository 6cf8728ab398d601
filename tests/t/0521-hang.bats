#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0521-hang.bats - a rank that is stopped: who waits for whom is told, and by
# which node the rank that does not answer is

load cluster

setup_file()
{
    export RUNS=$BATS_FILE_TMPDIR
    merak data pack --tokenizer byte --out "$RUNS/text" \
        /usr/share/common-licenses/GPL-3 >/dev/null
}

teardown() { assert_no_node_drained; }

# stopped DEGREES SRUN_OPTION...: rank 2 of four is stopped in a step, once all
# are in one; what is said goes into a directory of that name.  Between two
# steps there is a moment, too: then once more.
stopped()
{
    for _ in 1 2 3; do
        stop_once "$@"
        grep -qE '^  rank [013] on n[1-4]: .* after [0-9]+ steps' \
            "$RUNS/$1"/hang-*.txt || return 0
    done
}

stop_once()
{
    local dir=$RUNS/$1 status=0

    shift
    rm -rf "$dir"
    mkdir -p "$dir"
    srun --kill-on-bad-exit=0 -n4 "$@" bash -c '
        "$@" &
        if [ "$SLURM_PROCID" = 2 ]; then
            until [ -s '"$dir"'/metrics.jsonl ]; do sleep 0.1; done
            kill -STOP $!
        fi
        wait $!' - merak train \
        --model "$TESTS/vectors/parity/gpt2-tied.json" --data "$RUNS/text" \
        --seq 32 --global-batch 8 --steps 1000000 --eval-samples 0 \
        --metrics "$dir/metrics.jsonl" --threads 1 --deadline 6 \
        >"$dir/out" 2>&1 || status=$?
    echo $status >"$dir/status"
}

@test "a stopped rank is named, in waits of tp, pp and dp" {
    stopped tp -N1 --merak-tp=4 &
    stopped pp -N2 --ntasks-per-node=2 --merak-pp=4 &
    stopped dp -N1 --merak-dp=4 &
    wait
    for run in tp pp dp; do
        cat "$RUNS/$run/out"
        cat "$RUNS/$run"/hang-*.txt
        page=$(echo "$RUNS/$run"/hang-*.txt)
        # it alone is first, with its node and why; then the three others
        [ "$(grep -c 'hang report of rank' "$page")" -eq 1 ]
        sed -n 2p "$page" | grep -Eq 'rank 2 on n[1-4] gave no answer'
        [ "$(grep -cE '^  rank [013] on n[1-4]: step [0-9]+, ' "$page")" -eq 3 ]
        grep -q 'rank 2.* is stopped' "$page"
        grep -q ', last finished instruction [0-9]* (' "$page"
        # the line that logs keep begins with it
        last=$(grep 'merak: .*error: ' "$RUNS/$run/out" | tail -n 1)
        [[ $last =~ error:\ rank\ 2\ on\ n[1-4]\ does\ not\ answer:\ its\ process\ is\ stopped\;\  ]]
        # all of it on standard error, too
        [ "$(grep -cFf "$page" "$RUNS/$run/out")" -ge 5 ]
        [ "$(cat "$RUNS/$run/status")" -eq 1 ]
    done
    grep -Eq 'in flight instruction .*peer rank 2' "$RUNS/pp"/hang-*.txt
    grep -q 'group tp of 4 ranks' "$RUNS/tp"/hang-*.txt
    grep -q 'group dp of 4 ranks' "$RUNS/dp"/hang-*.txt
    assert_no_job_left
}
