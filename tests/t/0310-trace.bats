#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0310-trace.bats - merak trace: numbers and pictures of a pipeline whose
# times are known (tests/unit/trace_make.c)

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
}

@test "svg draws every action once" {
    run merak trace svg run --step 5 -o picture.svg
    echo "$output"
    [ "$status" -eq 0 ]
    [ -z "$output" ]
    /usr/bin/python3 -c 'import xml.dom.minidom as m; m.parse("picture.svg")'
    [ "$(grep -c '<title>forward' picture.svg)" -eq 32 ]
    [ "$(grep -c '<title>backward' picture.svg)" -eq 32 ]
    grep -q 'step 5: 356.00 ms, 1f1b' picture.svg
    [ "$(merak trace svg run --step 5 -o - | cksum)" = "$(cksum <picture.svg)" ]
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
took = (step["end_ns"] - step["start_ns"])[step["instr"] == 0]
print(names[0].decode(), len(took), took.sum(),
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
