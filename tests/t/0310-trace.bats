#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0310-trace.bats - merak trace: numbers and pictures of a pipeline whose
# times are known (tests/unit/ckpt/trace_make.c)

setup()
{
    cd "$BATS_TEST_TMPDIR"
    "$BUILD/tests/unit/trace_make" run 1f1b 4 8
}

@test "summary tells the step's time and where it went" {
    run merak trace summary run
    echo "$output"
    [ "$status" -eq 0 ]
    [[ ${lines[0]} == "run: 4 ranks, tp 1, pp 4, dp 1, 1f1b, 8 micro-batches,"* ]]
    [[ ${lines[1]} == "steps kept: 0, 5, 7" ]]
    # 8 x (10 + 20) ms of compute and 6 of optimizer on every rank
    for rank in 0 1 2 3; do
        [[ $output =~ \ $rank\ +$rank\ +356\.000\ +246\.000\ +69% ]]
    done
    [[ $output =~ blocks_dx\ +640\.000 ]]
    # the last stage is done 3 x 21 ms before the first, sends for one of them,
    # and waits
    [[ $output =~ \ 3\ +3\ .*\ 62\.000\ +17%\ +32\.000\ +9% ]]
    [[ $output =~ \ 0\ +0\ .*\ 0\.000\ +0%\ +95\.000\ +27% ]]
    [[ $output =~ plan\ +356\.000\ +246\.000 ]]
    [[ $output == *"the step took 1.000 times as long as predicted"* ]]
    [[ $output == *$'\n'"bound by the pipeline's bubble: "??" % of the step of the mean rank, with 4 stages and 8 micro-batches; "* ]]
}

@test "diff tells which instructions made a step longer" {
    "$BUILD/tests/unit/trace_make" slow 1f1b 4 8 22
    run merak trace diff run slow
    echo "$output"
    [ "$status" -eq 0 ]
    # (8 + 3) backwards of 2 ms more, one after another
    [[ $output =~ step\ +356\.000\ +378\.000\ +\+22\.000\ +1\.062\ +100\.0% ]]
    [[ $output =~ \ compute\ +246\.000\ +262\.000\ +\+16\.000 ]]
    for stage in 0 1 2 3; do
        [[ $output =~ \ $stage\ B\ +blocks_dx\ +20000\.0\ +22000\.0\ +1\.100\ +\+16\.000 ]]
    done
    [[ $output =~ \ 0\ F\ +blocks\ +10000\.0\ +10000\.0\ +1\.000\ +\+0\.000 ]]
    predicted=$(merak trace diff slow --predicted | sed -n '/^STAGE/,+4p')
    [ "$(sed -n '/^STAGE/,+4p' <<<"$output")" = "$predicted" ]
    run merak trace diff run run
    [[ $output =~ step\ +356\.000\ +356\.000\ +\+0\.000\ +1\.000 ]]
}

@test "perfetto has an event for each instruction, an arrow for each transfer" {
    merak trace perfetto run -o events.json
    jq -e '.traceEvents | length > 0' events.json
    count() { jq "[.traceEvents[] | select($1)] | length" events.json; }
    [ "$(count '.name == "process_name"')" -eq 4 ]
    # a step: 4 x (8 x (F + B) + 2), and 3 x 8 x 2 transfers of two ends
    [ "$(count '.ph == "X"')" -eq $((3 * (4 * 18 + 96))) ]
    [ "$(count '.ph == "X" and .args.step == 7')" -eq 168 ]
    [ "$(count '.ph == "s"')" -eq $((3 * 48)) ]
    # every arrow begins in a send and ends in its receive: of the same
    # micro-batch, at the peer, no earlier
    jq -e '
        (.traceEvents | map(select(.ph == "X" and .args.peer != null)))
            as $ends |
        .traceEvents | map(select(.ph == "s" or .ph == "f")) |
        group_by(.id) | all(
            length == 2 and .[0].ph != .[1].ph and
            (map(. as $a | $ends | map(select(
                .pid == $a.pid and .tid == $a.tid and .ts <= $a.ts + 1e-6 and
                .ts + .dur > $a.ts - 1e-6)) | .[0]) |
                .[0].args.micro_batch == .[1].args.micro_batch and
                .[0].args.peer == .[1].pid and .[1].args.peer == .[0].pid) and
            (map({(.ph): .ts}) | add | .s <= .f))' events.json
    # slices of one thread do not overlap
    jq -e '.traceEvents | map(select(.ph == "X")) | group_by([.pid, .tid]) |
        all(sort_by(.ts) | . as $e | [range(1; length)] |
            all($e[. - 1].ts + $e[. - 1].dur <= $e[.].ts + 1e-6))' events.json
    [ "$(merak trace perfetto run --step 5 -o - |
        jq '[.traceEvents[] | select(.ph == "X")] | length')" -eq 168 ]
    merak trace perfetto run --predicted -o - | jq -e '
        .traceEvents | map(select(.args.op == "all-reduce grads")) |
        length == 4 and all(.dur == 4000)'
}

@test "svg draws every action once" {
    run merak trace svg run --step 5 -o picture.svg
    echo "$output"
    [ "$status" -eq 0 ]
    [ -z "$output" ]
    /usr/bin/python3 -c 'import xml.dom.minidom as m; m.parse("picture.svg")'
    [ "$(grep -c '<title>forward' picture.svg)" -eq 32 ]
    [ "$(grep -c '<title>backward' picture.svg)" -eq 32 ]
    grep -q 'step 5: 356.00 ms, idle 30.9 %, 1f1b' picture.svg
    # each box has its number
    [ "$(grep -c '<text class="n' picture.svg)" -eq 64 ]
    [ "$(merak trace svg run --step 5 -o - | cksum)" = "$(cksum <picture.svg)" ]
}

@test "a run of more ranks than rows is drawn by stages" {
    "$BUILD/tests/unit/trace_make" wide 1f1b 4 8 20 10 || return
    merak trace svg wide --step 5 -o wide.svg
    [ "$(grep -c '>stage [0-3]<' wide.svg)" -eq 4 ]
    grep -q "drawn: a stage's first rank, of 40 ranks" wide.svg
    [ "$(grep -c '<title>forward' wide.svg)" -eq 32 ]
}

@test "text draws the pipeline in the terminal" {
    run env COLUMNS=100 merak trace svg run --text
    echo "$output"
    [ "$status" -eq 0 ]
    [[ ${lines[1]} =~ ^stage\ 0\ +0+1+2+3+\.+a+ ]]
    [[ ${lines[4]} =~ ^stage\ 3\ +\.+0+a+1+b+2+c+ ]]
}

@test "h5py reads the master and the ranks behind it" {
    /usr/bin/python3 -c 'import h5py' 2>/dev/null ||
        skip "python3-h5py is not installed"
    cd /
    run /usr/bin/python3 -c '
import sys, h5py
t = h5py.File(sys.argv[1] + "/trace.h5", "r")
first, records = t["first"][...], t["records"][...]
assert len(first) == 5 and first[4] == len(records)
mine = records[first[2]:first[3]]
assert (mine == t["rank/00002/records"][...]).all()
names = t["rank/00002/names"]
step = mine[mine["step"] == 7]
first = [i for i, name in enumerate(names) if name == b"blocks"]
took = (step["end_ns"] - step["start_ns"])[[i in first for i in step["instr"]]]
print("blocks", len(took), took.sum(),
      h5py.check_enum_dtype(records.dtype["queue"])["p2p"])
' "$BATS_TEST_TMPDIR/run"
    echo "$output"
    [ "$output" = "blocks 8 80000000 2" ]
}

@test "misuse and absence are one line each" {
    while read -r code arguments; do
        run merak trace $arguments
        echo "$arguments: $output"
        [ "$status" -eq "$code" ]
        [ "${#lines[@]}" -eq 1 ]
    done <<'END'
66
66 summary
66 sumary run
66 svg run
66 svg run --text -o x
66 summary run --step x
66 summary run --what
66 svg run --text --step 3
66 svg run --text --top 3
66 perfetto run
66 perfetto run -o - --text
66 diff run
66 diff run run run
66 diff run run -o x
66 diff run run --predicted
66 summary run --predicted
67 diff run none
67 summary none
END
    echo junk >run/trace-00001.h5
    run merak trace summary run
    [ "$status" -eq 67 ]
    [[ $output == *"trace-00001.h5"* ]]
    [ "${#lines[@]}" -eq 1 ]
    run merak trace --help
    [ "$status" -eq 0 ]
}
