#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0511-lost-runs.bats - what would cost a run its work: an interrupt, weights
# that diverged

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
# returns once it is in its steps
start()
{
    env --default-signal=INT "$@" >"$CKPT.log" 2>&1 3>&- &
    pid=$!
    for ((i = 0; i < 600; i++)); do
        ! grep -q "step 1/" "$CKPT.log" || return 0
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

@test "Ctrl-C finishes the step, saves and wants another run" {
    start "${TRAIN[@]}" --steps 10000000 --ckpt "$CKPT"
    kill -INT "$pid"
    ended_as 75 "interrupted: the step is finished and saved"
    merak ckpt verify "$CKPT"
}

@test "Ctrl-C without --ckpt says that nothing is saved" {
    start "${TRAIN[@]}" --steps 10000000
    kill -INT "$pid"
    ended_as 75 "nothing is saved (no --ckpt)"
}

@test "a second Ctrl-C ends the run at once" {
    # a step of a minute: emulated ones take what they are told to
    start "${TRAIN[@]}" --steps 10000000 --ckpt "$CKPT" --eval-samples 0 \
        --backend emu --emu-unit-ms 300
    kill -INT "$pid"
    sleep 0.2
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
