#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fsdp.sh - ZeRO-3 beside PyTorch's FSDP2 over gloo: memory and time of a step
#
#   fsdp.sh --builddir DIR [MODEL [RANKS..]]      (gpt2-124m 2 4)
#
# On one node, a thread a rank, in turn: transfers are copies of memory, so times
# say little about networks.  Memory is the peak of the rank with the most, less
# what a process takes without a model.  PYTHON names a python3 with torch.
# Prints Markdown.
set -eu
rounds=${ROUNDS:-3} steps=${STEPS:-5}
here=$(cd "$(dirname "$0")" && pwd)
if [ "${1-}" = --builddir ]; then
    merak=$(cd "$2" && pwd)/cmd/merak
    shift 2
    exec "$merak" sandbox --nodes 1 -- "$here/fsdp.sh" "$@"
fi
model=$here/${1:-gpt2-124m}.json
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- 2 4

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
seq 200000 >"$tmp/text"
merak data pack --tokenizer byte --out "$tmp/data" "$tmp/text" >/dev/null

median()
{
    sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

# ours RANKS ZERO: "SECONDS MIB"
ours()
{
    MERAK_LOG=train:debug srun -n"$1" --overcommit --merak-dp="$1" merak train \
        --model "$model" --data "$tmp/data" --seq 256 --micro-batch 2 \
        --global-batch $((2 * $1)) --steps "$steps" --threads 1 --zero "$2" \
        --eval-samples 0 --deadline 900 --metrics "$tmp/metrics" \
        >"$tmp/log" 2>&1 || { cat "$tmp/log" >&2; exit 2; }
    echo "$(sed -n 's/.*"step_s": \([0-9.]*\).*/\1/p' "$tmp/metrics" |
        tail -n +2 | median)" \
        "$(sed -n 's/.*peak resident.* is \([0-9.]*\) MiB,.*/\1/p' "$tmp/log" |
            sort -g | tail -n 1)"
    rm -f "$tmp/metrics"
}

theirs()
{
    "${PYTHON:-python3}" -W ignore "$here/fsdp_pytorch.py" --model "$model" \
        --ranks "$1" --steps "$steps" 2>"$tmp/log" ||
        { cat "$tmp/log" >&2; exit 2; }
}

# column N of a file of rounds: the median, and the least and most
of()
{
    awk "{ print \$$1 }" "$2" | sort -g |
        awk '{ v[NR] = $1 }
             END { printf "%.4g (%.4g to %.4g)", v[int((NR + 1) / 2)], v[1],
                          v[NR] }'
}

echo "| ranks | | s a step | MiB of a rank |"
echo "| --- | --- | --- | --- |"
for ranks in "$@"; do
    rm -f "$tmp"/round.*
    for ((i = 0; i < rounds; i++)); do
        ours "$ranks" 3 >>"$tmp/round.3"
        theirs "$ranks" >>"$tmp/round.f"
        ours "$ranks" 1 >>"$tmp/round.1"
    done
    for which in "3 Merak, zero 3" "f FSDP2" "1 Merak, zero 1"; do
        echo "| $ranks | ${which#* } | $(of 1 "$tmp/round.${which%% *}") |" \
            "$(of 2 "$tmp/round.${which%% *}") |"
    done
done
