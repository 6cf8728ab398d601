#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0509-nccl.bats - tasks of accelerators that exchange from device to device,
# without any: a stand-in plays NCCL on the fake device's queues, and on the
# streams of what plays CUDA

load cluster
load gpus
load parity

setup_file()
{
    export STAND_IN=$BUILD/tests/unit/.libs/stand_in_nccl.so
    [ -e "$STAND_IN" ] || skip "make -C tests check builds the stand-in"
    pack_text
    run_model gpt2-tied 0.5 2 2 1
}

# nccl NAME TP PP DP [OPTION...]: as run_model
nccl()
{
    local name=$1 tp=$2 pp=$3 dp=$4

    shift 4
    PER_TASK="env MERAK_NCCL_LIBRARY=$STAND_IN" run_model gpt2-tied 0.5 \
        "$tp" "$pp" "$dp" "$name" --backend fake --transport nccl "$@"
}

# refused TEXT OPTION...: two tasks end with exit code 66 and one line of ours,
# with TEXT
refused()
{
    local text=$1

    shift
    run srun -n2 --overcommit --merak-tp=2 merak train \
        --model "$TESTS/vectors/parity/gpt2-tied.json" --data "$RUNS/text" \
        --seq 32 --global-batch 4 --steps 2 --threads 1 "$@"
    echo "$output"
    [ "$status" -eq 66 ]
    [ "$(grep -c '^merak: error: ' <<<"$output")" -eq 1 ]
    grep -qF -- "$text" <<<"$output"
}

@test "from device to device is bit-equal to by way of hosts" {
    nccl nccl 2 2 1
    hold_runs equal "$RUNS/gpt2-tied-c0.5-tp2-pp2-dp1" "$RUNS/nccl"
    grep -q 'transport nccl: NCCL 2.28.9, [0-9]* communicators, .* in member order' \
        "$RUNS/nccl/out"
    # what exchanges stage is in the arena: nothing else is taken
    line=$(grep 'memory of rank 0: predicted' "$RUNS/nccl/out")
    [[ $line =~ predicted\ ([0-9]+)\ bytes.*reserved\ ([0-9]+)$ ]]
    [ "${BASH_REMATCH[1]}" -eq "${BASH_REMATCH[2]}" ]
}

@test "what is fetched from device to device is bit-equal, too" {
    nccl fetched 1 2 2 --zero 3
    run_model gpt2-tied 0.5 1 2 2 fetched-by-hosts --zero 3
    hold_runs equal "$RUNS/fetched-by-hosts" "$RUNS/fetched"
}

# listed NAME [WORD...]: 4 ranks of unlike stages
listed()
{
    local dir=$RUNS/$1

    shift
    mkdir -p "$dir"
    srun -n4 --overcommit env MERAK_NCCL_LIBRARY="$STAND_IN" merak train \
        --model "$TESTS/vectors/parity/gpt2-tied.json" --data "$RUNS/text" \
        --stages 1x2,2x1 --seq 32 --global-batch 8 --steps 6 --lr 1e-3 \
        --lr-schedule constant --clip 0.5 --eval-samples 0 --threads 1 \
        --deadline 900 --metrics "$dir/metrics.jsonl" --ckpt "$dir/ckpt" \
        --dump-grads "$dir/grads" "$@" >"$dir/out" 2>&1 || {
        cat "$dir/out"
        return 1
    }
}

@test "boxes between unlike stages go from device to device, bit-equal" {
    listed boxes-by-hosts
    listed boxes --backend fake --transport nccl
    hold_runs equal "$RUNS/boxes-by-hosts" "$RUNS/boxes"
    grep -q 'transport nccl: NCCL 2.28.9, [0-9]* communicators' "$RUNS/boxes/out"
}

# cuda NAME [OPTION...]: two stages of two tensor-parallel ranks of backend
# cuda, each with a GPU of its own.  Beside the five queues activations, their
# gradients, and both ways of the tied weight's need a stream.
cuda()
{
    PER_TASK="env MERAK_MODULE_DIR=$MODULES \
        LD_LIBRARY_PATH=$MODULES:${LD_LIBRARY_PATH-} \
        MERAK_STAND_IN_CUDA=devices=4,streams=9 ${BEFORE-}" \
        run_model gpt2-tied 0.5 2 2 1 "$1" --backend cuda --steps 6 "${@:2}"
}

@test "backend cuda exchanges by way of hosts and by NCCL to the same bits" {
    modules
    run_model gpt2-tied 0.5 2 2 1 cpu --steps 6
    cuda staged
    hold_runs near "$RUNS/cpu" "$RUNS/staged"
    cuda nccl-cuda --transport nccl
    hold_runs equal "$RUNS/staged" "$RUNS/nccl-cuda"
    # where there is one GPU alone, NCCL refuses
    MERAK_MODULE_DIR=$MODULES LD_LIBRARY_PATH=$MODULES:${LD_LIBRARY_PATH-} \
        refused "with another task, and NCCL needs a GPU for each" \
        --backend cuda --transport nccl
}

# On one task no communicator can be made.
@test "where NCCL cannot start, data goes by way of hosts, unless it must not" {
    modules
    cat >"$MODULES/one-cannot" <<'END'
#!/bin/sh
[ "$PMIX_RANK" != 2 ] || export MERAK_STAND_IN=init
exec "$@"
END
    chmod +x "$MODULES/one-cannot"
    cuda by-hosts --transport ucx
    BEFORE=$MODULES/one-cannot cuda fallen
    hold_runs equal "$RUNS/by-hosts" "$RUNS/fallen"
    [ "$(grep -c 'through host memory, although there are GPUs: .*NCCL cannot begin a communicator: unhandled system error' \
        "$RUNS/fallen/out")" -eq 1 ]
    BEFORE=$MODULES/one-cannot run cuda insists --transport nccl
    echo "$output"
    [ "$status" -ne 0 ]
    grep -q 'error: .*NCCL cannot begin a communicator' "$RUNS/insists/out"
}

@test "sums in NCCL's order are recorded, and a change is told" {
    nccl fast 2 1 1 --steps 9 --reduce fast
    grep -q 'sums in its own order (--reduce fast)' "$RUNS/fast/out"
    grep -q '^reduce = "fast"' "$RUNS/fast/ckpt/settings.toml"
    grep -q -- '--reduce fast' "$RUNS"/fast/ckpt/step-*/manifest.json
    nccl fast 2 1 1
    grep -q 'was trained with .* --reduce fast' "$RUNS/fast/out"
}

@test "what cannot go from device to device is refused" {
    refused "backend cpu has none: use --backend cuda, or --transport ucx" \
        --backend cpu --transport nccl
    refused "--reduce fast needs --transport nccl" --backend cpu --reduce fast
    MERAK_NCCL_LIBRARY=/nowhere/libnccl.so.2 \
        refused "NCCL cannot be loaded (/nowhere" --backend fake \
        --transport nccl
    MERAK_MODULE_DIR=/nowhere refused 'transport "nccl" is in merak_nccl.so' \
        --backend fake --transport nccl
}
