#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0514-images.bats - a classifier of images, over stages, tensor ranks, replicas
#
# examples/classify.c and convnet.c on arrays in files: losses, norms, gradients
# and weights of ten steps against one rank, bit for bit over stages, to 1e-6
# over replicas.

load cluster
load parity

setup_file()
{
    export RUNS=$BATS_FILE_TMPDIR
    "$TESTS/make_images.py" "$RUNS" 100
    chmod -R a+rX "$RUNS"
    classify one 1 1 1
}

teardown() { assert_no_node_drained; }

# classify NAME TP PP DP [OPTION...]: by $program if that is set
classify()
{
    DATA=$RUNS/images.json run_example "$1" "${@:2:3}" "${program:-classify}" \
        "${@:5}"
}

evaluation() { jq '.valid_loss // empty' "$RUNS/$1/metrics.jsonl" | tail -n 1; }

@test "stages have the bits of one" {
    classify two 1 2 1
    classify four 1 4 1 --schedule gpipe
    "$TESTS/parity.py" equal "$RUNS/one" "$RUNS/two"
    "$TESTS/parity.py" equal "$RUNS/one" "$RUNS/four"
    [ -n "$(evaluation one)" ]
    [ "$(evaluation one)" = "$(evaluation two)" ]
}

@test "replicas and tensor ranks are near one, and stages of theirs equal" {
    classify replicas 1 1 2
    classify both 1 2 2
    classify tensor 2 1 1
    "$TESTS/parity.py" near --loss 1e-6 "$RUNS/one" "$RUNS/replicas" \
        "$RUNS/one" "$RUNS/tensor"
    "$TESTS/parity.py" equal "$RUNS/replicas" "$RUNS/both"
}

@test "convolutions train alike over stages, replicas and tensor ranks" {
    program=convnet
    classify c-one 1 1 1 --lr 1e-4
    classify c-stages 1 4 1 --lr 1e-4 --schedule zb-h1
    classify c-both 2 1 2 --lr 1e-4
    "$TESTS/parity.py" equal "$RUNS/c-one" "$RUNS/c-stages"
    "$TESTS/parity.py" near --loss 1e-6 "$RUNS/c-one" "$RUNS/c-both"
}

@test "a run goes on with other replicas, and the same samples" {
    classify cut 1 1 2 --steps 5
    classify cut 1 2 1 --steps 10
    rm -r "$RUNS"/cut/grads/step-00000004 # of the first start
    "$TESTS/parity.py" near --loss 1e-6 --last 10 "$RUNS/one" "$RUNS/cut"
}
