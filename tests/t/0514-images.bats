#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0514-images.bats - a classifier of images, over stages, tensor ranks, replicas
#
# examples/classify.c, convnet.c and unet3d.c on arrays in files, and bert.c and
# T5 on a text of which tokens are hidden: losses, norms, gradients and weights of
# ten steps against one rank, bit for bit over stages, to 1e-6 over replicas.

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

# losses NAME KEY: those of each step, to four digits
losses()
{
    jq -r "select(.$2 != null) | .$2 | [.class, .pixels] | map(. * 1e4 | round)
        | @tsv" "$RUNS/some-$1/metrics.jsonl"
}

evaluation() { jq '.valid_loss // empty' "$RUNS/$1/metrics.jsonl" | tail -n 1; }

@test "stages have the bits of one" {
    classify two 1 2 1
    classify four 1 4 1 --schedule gpipe
    hold_runs equal "$RUNS/one" "$RUNS/two"
    hold_runs equal "$RUNS/one" "$RUNS/four"
    [ -n "$(evaluation one)" ]
    [ "$(evaluation one)" = "$(evaluation two)" ]
}

@test "replicas and tensor ranks are near one, and stages of theirs equal" {
    classify replicas 1 1 2
    classify both 1 2 2
    classify tensor 2 1 1
    hold_runs near --loss 1e-6 "$RUNS/one" "$RUNS/replicas" \
        "$RUNS/one" "$RUNS/tensor"
    hold_runs equal "$RUNS/replicas" "$RUNS/both"
}

@test "convolutions train alike over stages, replicas, channels and space" {
    program=convnet
    classify c-one 1 1 1 --lr 1e-5
    classify c-stages 1 4 1 --lr 1e-5 --schedule zb-h1
    classify c-both 2 1 2 --lr 1e-5
    hold_runs equal "$RUNS/c-one" "$RUNS/c-stages"
    CP=2 classify c-halos 1 2 1 --lr 1e-5
    hold_runs near --loss 1e-6 "$RUNS/c-one" "$RUNS/c-both" \
        "$RUNS/c-one" "$RUNS/c-halos"
}

# volumes NAME [OPTION...]: of 16 points a side, over $CP ranks
volumes()
{
    DATA=$RUNS/volumes.json run_example "$1" 1 1 1 "unet3d 16,4" --lr 1e-5 \
        "${@:2}"
}

@test "volumes cut along two dims have the sums of whole ones" {
    "$TESTS/make_volumes.py" "$RUNS" 40 16
    chmod -R a+rX "$RUNS"
    volumes u-one
    CP=4 volumes u-blocks --cp-axes 2x2
    hold_runs near --loss 1e-6 "$RUNS/u-one" "$RUNS/u-blocks"
}

# The entropy of the classes is 0.48.
@test "a network of volumes tells balls from cubes" {
    "$TESTS/make_volumes.py" "$RUNS" 40 16
    run srun -n1 "$BUILD/examples/unet3d" 16,8,nearest --data "$RUNS/volumes.json" \
        --micro-batch 1 --global-batch 8 --steps 25 --lr 1e-2 \
        --lr-schedule constant --eval-samples 8 --metrics "$RUNS/learned.jsonl"
    [ "$status" -eq 0 ]
    jq -se '.[-1].valid_loss < 0.24' "$RUNS/learned.jsonl"
}

@test "several losses have their denominators, however a batch is split" {
    mkdir "$RUNS/some"
    "$TESTS/make_images.py" "$RUNS/some" 100 3
    chmod -R a+rX "$RUNS/some"
    for split in "one 1 1 1" "replicas 1 1 2" "four 1 1 4" "all 2 2 2"; do
        read -r name tp pp dp <<<"$split"
        DATA=$RUNS/some/images.json run_example "some-$name" "$tp" "$pp" "$dp" \
            "classify 0.3" --valid-fraction 0.2
    done
    hold_runs near --loss 1e-6 "$RUNS/some-one" "$RUNS/some-replicas" \
        "$RUNS/some-one" "$RUNS/some-four"
    hold_runs near "$RUNS/some-one" "$RUNS/some-all"
    for name in replicas four all; do
        for key in losses valid_losses; do
            diff <(losses one $key) <(losses "$name" $key)
        done
    done
    jq -se '.[-1] | (.losses.class + 0.3 * .losses.pixels - .loss) | fabs < 1e-12' \
        "$RUNS/some-one/metrics.jsonl"
}

@test "a run goes on with other replicas, and the same samples" {
    classify cut 1 1 2 --steps 5
    classify cut 1 2 1 --steps 10
    rm -r "$RUNS"/cut/grads/step-00000004 # of the first start
    hold_runs near --loss 1e-6 --last 10 "$RUNS/one" "$RUNS/cut"
}

# masked NAME TP PP DP [OPTION...]
masked()
{
    run_example "$1" "${@:2:3}" "bert tiny" --mask-id 257 "${@:5}"
}

@test "another start hides the same tokens" {
    pack_text
    masked m-one 1 1 1
    masked m-cut 1 2 1 --steps 5
    masked m-cut 1 1 1
    rm -r "$RUNS"/m-cut/grads/step-00000004
    hold_runs equal "$RUNS/m-one" "$RUNS/m-cut"
}

# spans NAME TP PP DP: T5 of a folder, on a text of which spans are hidden
spans()
{
    MODELS=$RUNS run_model t5 0.5 "${@:2:3}" "$1" --encoder-seq 64 \
        --sentinel-id 255
}

@test "an encoder and a decoder of a folder: every rank hides the same spans" {
    jq '.vocab_size = 258' "$TESTS/vectors/hf/t5.json" >"$RUNS/t5.json"
    spans s-one 1 1 1
    spans s-all 2 2 2
    hold_runs near "$RUNS/s-one" "$RUNS/s-all"
}
