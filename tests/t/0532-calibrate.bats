#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0532-calibrate.bats - ranks that measure their node together
#
# alone: it compares times

load cluster
load auto

setup_file() { pack_runs; }
teardown() { assert_no_node_drained; }

@test "ranks measure together, and tensor ranks are planned by their times" {
    run srun -N1 -n2 --overcommit merak calibrate --threads 1 --memory-gib 1 \
        --out "$RUNS/two.json"
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c 'exchanges: ' <<<"$output")" -eq 1 ] # rank 0 alone prints
    [ "$(grep -c 'beside an exchange, kernels lose ' <<<"$output")" -eq 1 ]
    jq -e '.ranks_per_node == 2 and .link.latency_s > 0' "$RUNS/two.json"
    jq -e '.beside == null or (.beside | .latency_s < 0.1 and
        .latency_s + .bytes_per_s > 0)' "$RUNS/two.json"
    for table in kernels tp_kernels; do
        for dtype in f32 bf16; do
            jq -e --arg t $table --arg d $dtype '.[$t][$d] |
                (.linear | length) > 20 and (.attention_packed_dx | length) > 5
                and all(.[][]; length == 4 and .[2] > 0)' "$RUNS/two.json"
        done
    done
    run merak plan --model "$MODEL" --device "$RUNS/two.json" --dtype fp32 \
        "${usual[@]}" --what-if tp=2
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *"on 1 x 2 cpu, 1 thread"* ]]
}

@test "calibrate refuses ranks of several nodes" {
    run srun -N2 -n2 merak calibrate --out "$RUNS/nodes.json"
    echo "$output"
    [ "$status" -eq 66 ]
    [ "$(grep -c 'merak calibrate: ' <<<"$output")" -eq 1 ]
    [[ $output == *"2 ranks on 2 nodes: start those of one node"* ]]
    [ ! -e "$RUNS/nodes.json" ]
}
