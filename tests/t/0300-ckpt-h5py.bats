#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0300-ckpt-h5py.bats - other programs read checkpoints through the master

setup()
{
    /usr/bin/python3 -c 'import h5py' 2>/dev/null ||
        skip "python3-h5py is not installed"
    make_ckpt=$BUILD/tests/unit/ckpt_make
    cd "$BATS_TEST_TMPDIR"
}

# read_all TP PP DP ZERO: write in this layout, read from another directory,
# also after the run's directory was moved
read_all()
{
    rm -rf run run.want moved
    "$make_ckpt" run 20 "$@"
    cd /
    run /usr/bin/python3 "$BATS_TEST_DIRNAME/ckpt_h5py.py" \
        "$BATS_TEST_TMPDIR/run/step-00000020" "$BATS_TEST_TMPDIR/run.want" 20
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$output" = "21 tensors" ]
    cd "$BATS_TEST_TMPDIR"
    mv run moved
    run /usr/bin/python3 "$BATS_TEST_DIRNAME/ckpt_h5py.py" \
        moved/step-00000020 run.want 20
    echo "$output"
    [ "$status" -eq 0 ]
}

@test "h5py reads whole tensors of one rank's checkpoint" {
    read_all 1 1 1 0
}

@test "h5py reads whole tensors of tp 2, pp 2, dp 2 with ZeRO" {
    read_all 2 2 2 1
}

@test "h5py reads whole tensors of tp 3, dp 2, unevenly cut" {
    read_all 3 1 2 1
}

@test "a missing shard shows as NaN, not as numbers" {
    "$make_ckpt" run 20 2 1 1 0
    rm run/step-00000020/shard-00001.h5
    run /usr/bin/python3 -c 'import h5py, numpy
w = h5py.File("run/step-00000020/master.h5", "r")["param/wte"][...]
print(numpy.isnan(w).sum(), w.size)'
    echo "$output"
    [ "$output" = "228 444" ]
}

@test "h5ls and h5dump show shards and master" {
    command -v h5ls >/dev/null || skip "hdf5-tools is not installed"
    "$make_ckpt" run 20 2 1 1 0
    run h5ls -r run/step-00000020/master.h5
    [[ $output == *"/param/wte"*"Dataset {37, 12}"* ]]
    run h5ls -r run/step-00000020/shard-00001.h5
    [[ $output == *"/param/wte@18:37,0:12"*"Dataset {19, 12}"* ]]
}

@test "checksums in the manifest are what xxhsum prints" {
    command -v xxhsum >/dev/null || skip "xxhash is not installed"
    "$make_ckpt" run 20 1 1 1 0
    sum=$(xxhsum -H2 run/step-00000020/shard-00000.h5 | cut -d' ' -f1)
    grep -q "\"file\":\"shard-00000.h5\",\"bytes\":[0-9]*,\"xxh128\":\"$sum\"" \
        run/step-00000020/manifest.json
}
