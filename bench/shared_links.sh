#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# shared_links.sh - ranks of a node that send at the same time, predicted and
# measured
#
#   shared_links.sh --builddir DIR     (root, for merak sandbox --link-gbit)
#
# Nodes with a link of 0.5 Gbit/s each.  Replicas, one on each of two nodes, of
# 1, 2 and 4 tensor ranks or of two stages exchange their gradients all at once;
# and on four nodes two replicas of four stages each, so that a node's two
# stages send gradients to the other replica's while activations pass through.
# Compute is emulated, exchanges and transfers are real.  Predicted with the
# link as each rank's own, and as the node's (node_bytes_per_s of device files).
# Prints Markdown; exit code 1 if the latter is off by more than 10 %.
set -eu
steps=4 vocab=512 nodes=4
# shellcheck source=links.sh
. "$(dirname "$0")/links.sh"

# device FILE NET: of compute nothing matters, units are given
device()
{
    cat >"$1" <<END
{"name": "sandbox", "ranks_per_node": 4, "memory_bytes": 4e9,
 "flops_per_s": {"f32": 1.5e11, "bf16": 3e11}, "bytes_per_s": 1e10,
 "kernel_s": 2e-6, "link": {"bytes_per_s": 5e9, "latency_s": 5e-6},
 "net": {"bytes_per_s": $(awk "BEGIN { print $gbit * 1.25e8 }"),
         "latency_s": 5e-5$2}}
END
}

# run DEVICE STEPS NODES TP PP OPTION...: milliseconds of a step of two
# replicas, predicted and measured; all ranks of a replica before the next's
run()
{
    local device=$1 steps=$2 nodes=$3 tp=$4 pp=$5

    shift 5
    rm -rf "$tmp/trace" "$tmp/metrics"
    srun -N"$nodes" -n $((2 * tp * pp)) --overcommit \
        --ntasks-per-node=$((2 * tp * pp / nodes)) --merak-order=tp-pp-dp \
        --merak-tp="$tp" --merak-pp="$pp" --merak-dp=2 merak train \
        --model "$tmp/model.json" --data "$tmp/data" --threads 1 \
        --backend emu --emu-unit-ms 20 --zero1 yes --eval-samples 0 \
        --steps "$steps" --log-every 100 --metrics "$tmp/metrics" \
        --device "$device" --trace "$tmp/trace" "$@" >"$tmp/log" 2>&1 ||
        { cat "$tmp/log" >&2; exit 2; }
    merak trace summary "$tmp/trace" --top 0 | awk '$1 == "plan" { print $2 }'
    median_step
}

# row WHAT NODES TP PP OPTION...
row()
{
    local what=$1 own got off

    shift
    mapfile -t own < <(run "$tmp/own.json" 2 "$@")
    mapfile -t got < <(run "$tmp/node.json" $steps "$@")
    off=$(awk "BEGIN { printf \"%+.1f\", 100 * (${got[0]} / ${got[1]} - 1) }")
    echo "| $what | ${own[0]} | ${got[0]} | ${got[1]} | $off |"
    awk "BEGIN { exit !($off > 10 || $off < -10) }" && bad=1
    return 0
}

device "$tmp/own.json" ""
device "$tmp/node.json" \
    ", \"node_bytes_per_s\": $(awk "BEGIN { print $gbit * 1.25e8 }")"
echo "# Ranks of a node that share its link"
echo
echo "\`bench/shared_links.sh --builddir BUILD\`, $(date -u +%Y-%m-%d)," \
    "$(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg) at the start: nodes with"
echo "$gbit Gbit/s between them, gpt2 512 x 4, two replicas.  Times in ms."
echo
echo "| ranks of a node | predicted, a link each | predicted, shared" \
    "| measured | off by % |"
echo "| --- | ---: | ---: | ---: | ---: |"
bad=0
few="--seq 64 --micro-batch 1 --global-batch 4"
for tp in 1 2 4; do
    # shellcheck disable=SC2086 # options
    row "$tp tensor rank$([ $tp = 1 ] || echo s)" 2 $tp 1 $few
done
# shellcheck disable=SC2086
row "2 stages" 2 1 2 $few
row "2 of 4 stages" 4 1 4 --seq 256 --micro-batch 4 --global-batch 32
exit $bad
