#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# boundary.sh - stage boundaries whole and in parts, on slow links
#
#   boundary.sh --builddir DIR         (root, for merak sandbox --link-gbit)
#
# Two stages of two tensor ranks, a stage on a node, links of 0.5 Gbit/s
# between the nodes, compute emulated, transfers real.  Alternating rounds of
# --boundary whole, scatter and auto, which must be as fast as scatter; bytes
# are those that left the first node, as its link counts them.  Prints
# Markdown.  Exit code 1 if scattering saves less than 45 % of the bytes, or
# 30 % of the time that is not compute.
set -eu
rounds=3 steps=4 unit=100 batch=8 vocab=512
# shellcheck source=links.sh
. "$(dirname "$0")/links.sh"

# Bytes that the first node has sent.
sent()
{
    srun -N1 -n1 -w "$first" cat /proc/net/dev |
        awk '/:/ && !/lo:/ { sub(/.*:/, ""); s += $9 } END { print s }'
}

# step WORD: milliseconds of a step, the median but for the first, and MB a
# step that the first node sent
step()
{
    local before after

    rm -f "$tmp/metrics"
    before=$(sent)
    srun -N2 -n4 --ntasks-per-node=2 --overcommit --merak-tp=2 --merak-pp=2 \
        merak train --model "$tmp/model.json" --data "$tmp/data" --seq 256 \
        --threads 1 --backend emu --emu-unit-ms $unit --lr 1e-3 \
        --micro-batch 4 --global-batch $((4 * batch)) --sp off \
        --eval-samples 0 --steps $steps --log-every 100 --metrics "$tmp/metrics" \
        --boundary "$1" >"$tmp/log" 2>&1 || { cat "$tmp/log" >&2; exit 2; }
    after=$(sent)
    median_step
    awk "BEGIN { printf \"%.1f\n\", ($after - $before) / 1e6 / $steps }"
}

first=$(sinfo -h -N -o %N | sort | head -n 1)
compute=$((3 * unit * (batch + 1)))
echo "# Stage boundaries in parts"
echo
echo "\`bench/boundary.sh --builddir BUILD\`: 2 stages of 2 tensor ranks on 2" \
    "nodes of a sandbox,"
echo "links of $gbit Gbit/s between them, $rounds alternating rounds, medians" \
    "of $((steps - 1)) steps,"
echo "$(date -u +%Y-%m-%d), $(nproc) cores, load" \
    "$(cut -d' ' -f1 /proc/loadavg) at the start.  Compute is emulated" \
    "(a forward $unit ms,"
echo "$batch micro-batches of 4 x 256 tokens, width 512: boundaries of 2 MiB)," \
    "1F1B without"
echo "transfers takes $compute ms a step; transfers are real.  MB: sent by the" \
    "first node in a step."
echo
echo "| round | whole, ms | MB | scatter, ms | MB | auto, ms | MB | saved |"
echo "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
for ((i = 1; i <= rounds; i++)); do
    declare -A ms mb
    row="| $i"
    for word in whole scatter auto; do
        mapfile -t got < <(step $word)
        ms[$word]=${got[0]} mb[$word]=${got[1]}
        row="$row | ${got[0]} | ${got[1]}"
    done
    saved=$(calc "100 * (${ms[whole]} - ${ms[scatter]}) /" \
        "(${ms[whole]} - $compute)")
    echo "$saved" >>"$tmp/saved"
    calc "100 * (1 - ${mb[scatter]} / ${mb[whole]})" >>"$tmp/bytes"
    echo >>"$tmp/bytes"
    echo "$row | $saved % |"
done
saved=$(median <"$tmp/saved")
bytes=$(median <"$tmp/bytes")
echo
echo "Scattering saves $bytes % of the bytes that leave the node (wanted 45 %)" \
    "and $saved % of"
echo "the time that is not compute (wanted 30 %)."
awk "BEGIN { exit !($saved >= 30 && $bytes >= 45) }"
