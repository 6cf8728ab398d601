#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# shared_links.sh - ranks of a node that send at the same time, predicted and
# measured
#
#   shared_links.sh --builddir DIR     (root, for merak sandbox --link-gbit)
#
# Two nodes with a link of 0.5 Gbit/s; replicas, one on each node, of 1, 2 and
# 4 tensor ranks, who exchange their gradients all at once.  Compute is
# emulated, exchanges are real.  Predicted with the link as each rank's own,
# and as the node's (node_bytes_per_s of device files).  Prints Markdown; exit
# code 1 if the latter is off by more than 10 %.
set -eu
steps=4 vocab=512
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

# run TP DEVICE STEPS: milliseconds of a step, predicted and measured
run()
{
    rm -rf "$tmp/trace" "$tmp/metrics"
    srun -N2 -n $((2 * $1)) --ntasks-per-node="$1" --overcommit \
        --merak-tp="$1" --merak-dp=2 merak train --model "$tmp/model.json" \
        --data "$tmp/data" --seq 64 --threads 1 --backend emu --emu-unit-ms 20 \
        --micro-batch 1 --global-batch 4 --zero1 yes --eval-samples 0 \
        --steps "$3" --log-every 100 --metrics "$tmp/metrics" --device "$2" \
        --trace "$tmp/trace" >"$tmp/log" 2>&1 || { cat "$tmp/log" >&2; exit 2; }
    merak trace summary "$tmp/trace" --top 0 | awk '$1 == "plan" { print $2 }'
    median_step
}

device "$tmp/own.json" ""
device "$tmp/node.json" \
    ", \"node_bytes_per_s\": $(awk "BEGIN { print $gbit * 1.25e8 }")"
echo "# Ranks of a node that share its link"
echo
echo "\`bench/shared_links.sh --builddir BUILD\`, $(date -u +%Y-%m-%d)," \
    "$(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg) at the start: 2 nodes,"
echo "$gbit Gbit/s between them, gpt2 512 x 4, two replicas.  Times in ms."
echo
echo "| tensor ranks of a node | predicted, a link each | predicted, shared" \
    "| measured | off by % |"
echo "| ---: | ---: | ---: | ---: | ---: |"
bad=0
for tp in 1 2 4; do
    mapfile -t own < <(run $tp "$tmp/own.json" 2)
    mapfile -t got < <(run $tp "$tmp/node.json" $steps)
    off=$(awk "BEGIN { printf \"%+.1f\", 100 * (${got[0]} / ${got[1]} - 1) }")
    echo "| $tp | ${own[0]} | ${got[0]} | ${got[1]} | $off |"
    awk "BEGIN { exit !($off > 10 || $off < -10) }" && bad=1
done
exit $bad
