#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0532-calibrate.bats - ranks that measure their node together
#
# long

load cluster
load auto

setup_file() { pack_runs; }
teardown() { assert_no_node_drained; }

@test "ranks measure together, and tensor ranks are planned by their times" {
    run srun -N1 -n2 --overcommit merak calibrate --threads 1 --memory-gib 1 \
        --quick --steps 3 --out "$RUNS/two.json"
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c 'exchanges: ' <<<"$output")" -eq 1 ] # rank 0 alone prints
    [ "$(grep -c 'during an exchange, kernels lose ' <<<"$output")" -eq 1 ]
    jq -e '.ranks_per_node == 2 and .link.latency_s > 0' "$RUNS/two.json"
    jq -e '.beside == null or (.beside | .latency_s < 10 and
        .latency_s + .bytes_per_s > 0)' "$RUNS/two.json"
    for table in kernels tp_kernels; do
        for dtype in f32 bf16; do
            jq -e --arg t $table --arg d $dtype '.[$t][$d] |
                (.linear | length) > 20 and (.attention_packed_dx | length) > 5
                and all(.[][]; length == 5 and .[2] > 0)
                and all(.linear[]; .[4] > 0) and all(.adamw[]; .[4] == 0)' \
                "$RUNS/two.json"
        done
    done
    run merak plan --model "$MODEL" --device "$RUNS/two.json" --dtype fp32 \
        "${usual[@]}" --what-if tp=2
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *"on 1 x 2 cpu, 1 thread"* ]]
}

@test "nodes measure themselves, and the links between them" {
    run srun -N2 -n2 --overcommit merak calibrate --quick \
        --steps 1 --out "$RUNS/nodes.json"
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c 'between 2 nodes: ' <<<"$output")" -eq 1 ]
    jq -e '.ranks_per_node == 1 and .net.latency_s != .link.latency_s and
        .net.bytes_per_s != .link.bytes_per_s and .tp_kernels == null and
        (.net | has("node_bytes_per_s") | not) and
        (.kernels.f32.linear | length) > 20' "$RUNS/nodes.json"
    run merak plan --model "$MODEL" --device "$RUNS/nodes.json" --nodes 2 \
        --dtype fp32 "${usual[@]}"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *"on 2 x 1 cpu, 1 thread"* ]]
}

# refused TEXT SRUN-OPTION... -- OPTION...: by one line with TEXT
refused()
{
    local text=$1 launch=()

    shift
    while [ "$1" != -- ]; do
        launch+=("$1")
        shift
    done
    shift
    run srun --overcommit "${launch[@]}" merak calibrate \
        --out "$RUNS/none.json" "$@"
    echo "$output"
    [ "$status" -eq 66 ]
    [ "$(grep -c 'merak calibrate: ' <<<"$output")" -eq 1 ]
    [[ $output == *"merak calibrate: $text"* ]]
    [ ! -e "$RUNS/none.json" ]
}

@test "what says nothing of links is refused in one line" {
    refused "2 ranks on n1, 1 on n2: plans have the same number on each node: \
start that many (srun -N 2 --ntasks-per-node=2)" -N2 -n3 --
    refused "--net measures links between nodes, and there is only n1: " \
        -N1 -n2 -w n1 -- --net
    refused "no device \"abacus\"" -N2 -n2 -- --net --device abacus
    refused "--net measures only links: " -n1 -- --net --threads 2
}
