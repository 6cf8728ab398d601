#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cp.sh - a sequence cut over two ranks, beside PyTorch over gloo
#
#   cp.sh --builddir DIR
#
# A llama of 4 layers trains on one sequence of $SEQ tokens (8192), on one node,
# a thread a rank: PyTorch as in cp_pytorch.py, and Merak in both orders, in
# turn, $ROUNDS (2) times $STEPS (3) steps.  All begin from the same weights, so
# their losses are the same.  PYTHON names a python3 with torch and safetensors.
# Prints Markdown.
set -eu
rounds=${ROUNDS:-2} steps=${STEPS:-3} seq=${SEQ:-8192}
python=${PYTHON:-python3}
here=$(cd "$(dirname "$0")" && pwd)
if [ "${1-}" = --builddir ]; then
    merak=$(cd "$2" && pwd)/cmd/merak
    exec "$merak" sandbox --nodes 1 -- "$here/cp.sh"
fi

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
seq 100000 | head -c $((seq + 1)) >"$tmp/text"
merak data pack --tokenizer byte --out "$tmp/data" "$tmp/text" >/dev/null
"$python" "$here/cp_pytorch.py" make "$tmp/model"

# ours ORDER: "SECONDS MIB FIRST-LOSS LAST-LOSS"
ours()
{
    MERAK_LOG=train:debug srun -n2 --overcommit --merak-cp=2 merak train \
        --model "$tmp/model" --init-from "$tmp/model" --data "$tmp/data" \
        --seq "$seq" --micro-batch 1 --global-batch 1 --steps "$steps" \
        --lr 1e-3 --lr-schedule constant --clip 1 --threads 1 \
        --cp-form gather --cp-order "$1" --valid-fraction 0 \
        --eval-samples 0 --deadline 900 \
        --metrics "$tmp/metrics" >"$tmp/log" 2>&1 ||
        { cat "$tmp/log" >&2; exit 2; }
    python3 - "$tmp/metrics" "$tmp/log" <<'END'
import json
import re
import statistics
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    steps = [line for line in map(json.loads, file) if "step_s" in line]
with open(sys.argv[2], encoding="utf-8") as file:
    mib = re.findall(r"peak resident.* is ([0-9.]*) MiB,", file.read())
print(f"{statistics.median(s['step_s'] for s in steps[1:]):.3f}",
      max(map(float, mib), default=0), f"{steps[0]['loss']:.6f}",
      f"{steps[-1]['loss']:.6f}")
END
    rm -f "$tmp/metrics"
}

theirs()
{
    "$python" -W ignore "$here/cp_pytorch.py" train "$tmp/model" \
        --text "$tmp/text" --seq "$seq" --steps "$steps" 2>"$tmp/log" ||
        { cat "$tmp/log" >&2; exit 2; }
}

echo "| round | | s a step | MiB of a rank | first loss |" \
    "loss of step $steps |"
echo "| --- | --- | --- | --- | --- | --- |"
for ((i = 1; i <= rounds; i++)); do
    for which in "head-tail ours head-tail" "PyTorch theirs" \
        "contiguous ours contiguous"; do
        read -r seconds mib first last < <(${which#* })
        echo "| $i | ${which%% *} | $seconds | $mib | $first | $last |"
    done
done
