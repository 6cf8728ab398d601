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

@test "ways that cannot be measured are refused" {
    echo '{"islands": [{"name": "a", "nodes": "n1"},
                       {"name": "b", "nodes": "n[2-9]"}]}' >"$RUNS/islands.json"
    echo '{"islands": [{"name": "a", "nodes": "n[1-2]"},
                       {"name": "b", "nodes": 1}]}' >"$RUNS/numbers.json"
    refused "--between: $RUNS/islands.json: island \"b\" has no node of this job" \
        -N1 -n1 -w n1 -- --between "$RUNS/islands.json"
    refused '--between: island "b" has only the number of its nodes' \
        -N2 -n2 -- --between "$RUNS/numbers.json"
    refused '--between measures only ways' \
        -N1 -n1 -- --between "$RUNS/islands.json" --net
}

# corrects_none CODE TEXT ARGUMENT...: in one line with TEXT, and nothing is
# written
corrects_none()
{
    local code=$1 text=$2

    shift 2
    run merak calibrate --out "$RUNS/none.json" "$@"
    echo "$output"
    [ "$status" -eq "$code" ]
    [ "${#lines[@]}" -eq 1 ]
    [[ $output == "merak calibrate: "*"$text"* ]]
    [ ! -e "$RUNS/none.json" ]
}

@test "traces that cannot correct a device are refused in one line" {
    train 1 short -- "${usual[@]}" --micro-batch 2 --steps 3 \
        --trace "$RUNS/short/trace" --trace-every 1
    corrects_none 66 "has 3 steps, of which the first does not count; expected 3" \
        --from "$RUNS/short/trace"
    corrects_none 66 "no device \"abacus\"" --from "$RUNS/short/trace" \
        --device abacus
    corrects_none 67 "no trace in $RUNS/nowhere" --from "$RUNS/nowhere"
    corrects_none 66 "is of a run on backend cpu, not emu" \
        --from "$RUNS/short/trace" --backend emu
    corrects_none 66 "--from measures nothing" --from "$RUNS/short/trace" \
        --threads 2
    corrects_none 66 "give --from DIR" --device cpu
    # one line of them all; srun's own are of their exit codes
    run srun -N1 -n2 --overcommit merak calibrate --out "$RUNS/none.json" \
        --from "$RUNS/short/trace"
    echo "$output"
    [ "$status" -eq 66 ]
    [ "$(grep -c "^merak calibrate: 2 tasks were started (SLURM_STEP_NUM_TASKS),\
 and all would write $RUNS/none.json" <<<"$output")" -eq 1 ]
    [ "$(grep -c "^merak" <<<"$output")" -eq 1 ]
    [ ! -e "$RUNS/none.json" ]
    echo junk >"$RUNS/short/trace/trace-00000.h5"
    corrects_none 67 "trace-00000.h5" --from "$RUNS/short/trace"
    train 2 emulated -- "${usual[@]}" --tp 2 --micro-batch 1 --steps 5 \
        --trace "$RUNS/emulated/trace" --trace-every 1 --backend emu \
        --emu-unit-ms 5
    corrects_none 66 "on backend emu, not cpu: its kernels take the times they" \
        --from "$RUNS/emulated/trace"
    # its exchanges are real
    run merak calibrate --from "$RUNS/emulated/trace" --backend emu \
        --out "$RUNS/emu.json"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *"link among 2, latency"* ]]
    jq -e '.kernels == null and .link.groups[0].latency_s > 0' "$RUNS/emu.json"
}
