#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# transport.sh - point to point and all-reduce against Open MPI
#
#   make -C bench transport            (in the build tree)
#   transport.sh [RANKS [ROUNDS]]      (in BUILD/bench, programs built)
#
# Runs both, one after the other, ROUNDS times, under the same mpirun with the
# same binding.  Open MPI runs twice a round, with and without its
# kernel-assisted copy, and the faster of the two counts at each size.  Prints
# a Markdown table of the ratio Open MPI's time / Merak's (above 1: Merak is
# faster), once of the medians over the rounds and once of the best rounds:
# Open MPI spins where Merak blocks, so that other load on the machine slows
# it more, and the best rounds are the least disturbed.  Exit code 1 if either
# ratio is below 0.8 with no more ranks than cores, or if a transfer did not
# overlap with compute, or the machine was busy
# to begin with, which makes every number above worthless as a verdict.
set -eu
ranks=${1:-2} rounds=${2:-7}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
run="mpirun -n $ranks"
[ "$(id -u)" -ne 0 ] || run="$run --allow-run-as-root"
cores=$(nproc) judge=1 pages=small
# Open MPI gets the pages that Merak's shared arena can have.
case $(cat /sys/kernel/mm/transparent_hugepage/shmem_enabled 2>/dev/null) in
*\[never\]* | *\[deny\]* | "") unset BENCH_HUGEPAGES ;;
*) export BENCH_HUGEPAGES=1 pages=huge ;;
esac
if [ "$ranks" -gt "$cores" ]; then
    run="$run --oversubscribe" judge=0
fi
load=$(cut -d' ' -f1 /proc/loadavg)
what="p2p allreduce"
[ "$ranks" -eq 2 ] || what=allreduce

# Lines "WHO ROUND NAME BYTES MICROSECONDS".
for round in $(seq "$rounds"); do
    for name in $what; do
        $run ./mpi_peer "$name" | sed "s/^/mpi $round /"
        $run "./$name" | sed "s/^/merak $round /"
        $run --mca btl_vader_single_copy_mechanism none ./mpi_peer "$name" |
            sed "s/^/mpi $round /"
    done
done >"$tmp/lines"

cat <<EOF
# Transport against Open MPI

\`make -C bench transport\`: $ranks ranks, $rounds alternating rounds,
$(mpirun --version | head -n 1), $(date -u +%Y-%m-%d),
$cores cores of $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1),
load $load at the start, $(cut -d' ' -f1 /proc/loadavg) at the end, $pages pages on both sides.
Times include writing to every cache line of what is sent.
Ratio: Open MPI's time / Merak's, above 1 Merak is faster.
EOF
if awk "BEGIN { exit !($load > 0.5) }"; then
    printf '\n**The machine was busy (load %s): this decides nothing.**\n' "$load"
    failed=1
fi
sort -k1,1 -k3,3r -k4,4n -k2,2n -k5,5n "$tmp/lines" |
    awk '!seen[$1 $2 $3 $4]++' | # the faster Open MPI of a round
    sort -k1,1 -k3,3r -k4,4n -k5,5n |
    awk -v judge=$judge '
    { key = $3 " " $4; n[$1 key]++; v[$1 key, n[$1 key]] = $5
      if ($1 == "merak") { if (n[$1 key] == 1) keys[++n_keys] = key } }
    function median(k) { return v[k, int((n[k] + 1) / 2)] }
    function ratio(a, b) { if (low == "" || a / b < low) low = a / b
                           return a / b }
    END {
        for (i = 1; i <= n_keys; i++) {
            key = keys[i]; split(key, part, " ")
            if (part[1] != last) {
                printf "\n| %s, bytes | Open MPI, us | Merak, us | ratio |" \
                       " best: Open MPI | Merak | ratio |\n", part[1]
                print "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
            }
            last = part[1]
            a = median("mpi" key); b = median("merak" key)
            c = v["mpi" key, 1]; d = v["merak" key, 1]
            printf "| %d | %.1f | %.1f | %.2f | %.1f | %.1f | %.2f |\n",
                   part[2], a, b, ratio(a, b), c, d, ratio(c, d)
        }
        printf "\nLowest ratio %.2f.\n", low
        exit judge && low < 0.8
    }' || failed=1

if [ "$ranks" -eq 2 ]; then
    printf '\nA 16 MiB transfer posted before 50 ms of compute:\n\n```\n'
    $run ./p2p overlap || failed=1
    printf '```\n'
fi
exit ${failed:-0}
