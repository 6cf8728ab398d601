#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ckpt.sh - checkpoints against memcpy, write, read and torch.save
#
#   make -C bench ckpt-report           (in the build tree)
#   ckpt.sh SRCDIR [MIB [ROUNDS]]       (in BUILD/bench, bench_ckpt built)
#
# Runs bench_ckpt, and PyTorch where $PYTHON (python3) has it, in each of $DIRS
# (/dev/shm and /var/tmp): memory, where the processor's work shows, and a disk.
# Prints a Markdown table; 1 if one of the limits that it names is not kept.
set -eu
srcdir=$1 mib=${2:-512} rounds=${3:-7} python=${PYTHON:-python3}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad=0

get()
{
    awk -v what="$1" '$1 == what { print $2 }' "$tmp/out"
}

# row WHAT VALUE LIMIT: at most LIMIT, or at least -LIMIT
row()
{
    verdict=$(awk -v v="$2" -v l="$3" 'BEGIN {
        print (l < 0 ? v >= -l : v <= l) ? "" : " **missed**" }')
    [ -z "$verdict" ] || bad=1
    echo "| $1 | $2 | $(echo "$3" | sed 's/^-/>= /; t; s/^/<= /')$verdict |"
}

echo "load $(cut -d' ' -f1 /proc/loadavg), $(nproc) cores, $mib MiB, $rounds rounds"
for dir in ${DIRS:-/dev/shm /var/tmp}; do
    place=$(mktemp -d "$dir/merak-bench-XXXXXX")
    ./bench_ckpt "$place" "$mib" "$rounds" >"$tmp/out"
    if "$python" -c 'import torch' 2>/dev/null; then
        "$python" "$srcdir/ckpt_pytorch.py" "$place" "$(get bytes)" "$rounds" \
            >>"$tmp/out"
    fi
    rm -rf "$place"
    echo
    echo "$dir, best and median seconds:" \
        "$(grep -vE '/|bytes' "$tmp/out" | paste -sd ',')"
    echo
    echo "| | | |"
    echo "|---|---|---|"
    row "stall of a save beside training / memcpy" "$(get stall/memcpy)" 1.2
    row "stall of the first / memcpy" "$(get stall_first/memcpy)" 1.2
    row "write + fsync / save that is waited for" "$(get write/save)" -0.85
    row "load / read" "$(get load/read)" 1.5
    row "load in another layout, two ranks / read" "$(get reshard/read)" 1.5
    row "verify, GB/s of one core" "$(get verify_GB/s)" -3
    [ -z "$(get torch_save)" ] || {
        awk '{ v[$1] = $2 } END {
            printf "| torch.save + fsync / save | %.2f | |\n",
                v["torch_save"] / v["save"]
            printf "| torch.load / load | %.2f | |\n",
                v["torch_load"] / v["load"] }' "$tmp/out"
    }
done
exit $bad
