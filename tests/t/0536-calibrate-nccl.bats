#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0536-calibrate-nccl.bats - links between accelerators, measured as training
# would use them, with what plays NCCL and CUDA
#
# long

load cluster
load gpus

setup_file()
{
    export RUNS=$BATS_FILE_TMPDIR
    export STAND_IN=$BUILD/tests/unit/.libs/stand_in_nccl.so
    [ -e "$STAND_IN" ] || skip "make -C tests check builds the stand-in"
}

# fake [VAR=VALUE...]: two ranks of a node, whose accelerators are fake
fake()
{
    run srun -N1 -n2 --overcommit env MERAK_NCCL_LIBRARY="$STAND_IN" "$@" \
        merak calibrate --backend fake --transport nccl --quick \
        --steps 1 --out "$RUNS/fake.json"
    echo "$output"
}

@test "ranks of a node measure what NCCL moves between their devices" {
    fake
    [ "$status" -eq 0 ]
    [[ $output == *"links by nccl: NCCL 2.28.9, 3 communicators, "* ]]
    grep -q 'all-reduce .* KiB,    2 a node' <<<"$output"
    grep -Eq 'between 2 ranks of a node: .* GB/s, by nccl$' <<<"$output"
    ! grep -q 'by ucx' <<<"$output"
    jq -e '.transport == "nccl" and .link.latency_s > 0 and
        .link.bytes_per_s > 0 and
        .host.bytes_per_s > 0 and .host.memory_bytes > 0 and
        (.tp_kernels.f32.linear | length) > 20' "$RUNS/fake.json"
    # it is NCCL that moves: where that fails, so does the measurement
    rm "$RUNS/fake.json"
    fake MERAK_STAND_IN=error=40
    [ "$status" -eq 69 ]
    [ "$(grep -c 'merak calibrate: .*NCCL' <<<"$output")" -eq 1 ]
    [ ! -e "$RUNS/fake.json" ]
}

# cuda SRUN-OPTION... -- OPTION...: with one GPU a node, behind $BEFORE
cuda()
{
    local launch=()

    while [ "$1" != -- ]; do
        launch+=("$1")
        shift
    done
    shift
    # shellcheck disable=SC2086
    run srun --overcommit "${launch[@]}" env MERAK_MODULE_DIR="$MODULES" \
        LD_LIBRARY_PATH="$MODULES:${LD_LIBRARY_PATH-}" \
        MERAK_STAND_IN_CUDA=devices=1 ${BEFORE-} \
        merak calibrate --backend cuda --out "$RUNS/cuda.json" --rounds 1 "$@"
    echo "$output"
}

by_hosts="links by ucx, through host memory, although there are GPUs: "

@test "so do nodes, unless something prevents it" {
    modules
    cuda -N2 -n2 -- --net --device h100
    [ "$status" -eq 0 ]
    [[ $output == *"links by nccl: NCCL 2.28.9, 3 communicators, "* ]]
    grep -Eq 'between 2 nodes: .* per rank, by nccl$' <<<"$output"
    jq -e '.transport == "nccl" and .net.bytes_per_s > 0' "$RUNS/cuda.json"
    cuda -N2 -n2 -- --net --device h100 --transport ucx
    [ "$status" -eq 0 ]
    grep -Eq 'between 2 nodes: .* per rank, by ucx$' <<<"$output"
    jq -e '.transport == null' "$RUNS/cuda.json"
    # two ranks of a node share its GPU
    cuda -N2 -n4 -- --net
    [ "$status" -eq 0 ]
    [ "$(grep -c "$by_hosts" <<<"$output")" -eq 1 ]
    grep -q "${by_hosts}ranks [0-9] and [0-9] share .* one task per GPU" \
        <<<"$output"
    grep -Eq 'between 2 nodes: .* together, by ucx$' <<<"$output"
    # on one rank no communicator can be made
    cat >"$MODULES/one-cannot" <<'END'
#!/bin/sh
[ "$PMIX_RANK" != 1 ] || export MERAK_STAND_IN=init
exec "$@"
END
    chmod +x "$MODULES/one-cannot"
    BEFORE=$MODULES/one-cannot cuda -N2 -n2 -- --net
    [ "$status" -eq 0 ]
    grep -q "$by_hosts.*NCCL cannot begin a communicator" <<<"$output"
    grep -Eq 'between 2 nodes: .*, by ucx$' <<<"$output"
}

# refused TEXT: by one line with TEXT, before anything is measured
refused()
{
    [ "$status" -eq 66 ]
    [ "$(grep -c 'merak calibrate: ' <<<"$output")" -eq 1 ]
    [[ $output == *"merak calibrate: $1"* ]]
    ! grep -q 'GFLOP/s' <<<"$output"
    [ ! -e "$RUNS/none.json" ]
}

@test "what NCCL cannot move is refused with --transport nccl" {
    modules
    cuda -N1 -n2 -- --transport nccl --out "$RUNS/none.json"
    refused "ranks 0 and 1 share "
    [[ $output == *"start no more tasks than there are GPUs, or use \
--transport ucx"* ]]
    run srun -n2 --overcommit merak calibrate --transport nccl \
        --out "$RUNS/none.json"
    echo "$output"
    refused "--transport nccl moves data between GPUs, and backend cpu has none"
    run merak calibrate --from trace --transport ucx --out "$RUNS/none.json"
    refused "--from measures nothing: leave out "
}
