#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# planning.sh - seconds and memory that a search for a plan takes
#
#   make -C bench planning        (in the build tree)
#
# Prints a Markdown table: processor seconds (user and system, one thread) and
# peak resident memory of `merak plan`, the median of three runs each.
set -eu
merak=${MERAK:-../cmd/merak}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# gpt NAME HIDDEN LAYERS HEADS
gpt()
{
    printf '{"model_type": "gpt2", "n_embd": %d, "n_layer": %d, "n_head": %d,
 "n_positions": 2048, "vocab_size": 50257, "attn_pdrop": 0.0}' \
        "$2" "$3" "$4" >"$tmp/$1.json"
}

# row NAME NODES BATCH
row()
{
    local i step

    for i in 1 2 3; do
        LC_ALL=C bash -c 'TIMEFORMAT="%U %S"; time "$@"' - "$merak" plan \
            --model "$tmp/$1.json" --nodes "$2" --device h200 \
            --global-batch "$3" >"$tmp/out" 2>"$tmp/err"
        tail -n 1 "$tmp/err"
    done | awk '{ print $1 + $2 }' | sort -n >"$tmp/times"
    step=$(sed -n 's/^step \([^,]*\),.*/\1/p' "$tmp/out")
    # peak memory of a child, as the kernel counts it
    python3 - "$merak" "$tmp/$1.json" "$2" "$3" >"$tmp/peak" <<'P'
import resource
import subprocess
import sys

merak, model, nodes, batch = sys.argv[1:]
subprocess.run([merak, "plan", "--model", model, "--nodes", nodes, "--device",
                "h200", "--global-batch", batch], check=True,
               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
P
    echo "| $1 | $(($2 * 8)) h200 | $3 | $(sed -n 2p "$tmp/times") |" \
        "$(cat "$tmp/peak") | $step |"
}

gpt "1.3 B" 2048 24 16
gpt "20 B" 6144 44 64
gpt "175 B" 12288 96 96
gpt "1 T" 25600 128 160
echo "| GPT | ranks | global batch | s | MiB | planned step |"
echo "| --- | --- | ---: | ---: | ---: | ---: |"
row "1.3 B" 2 512
row "20 B" 8 1024
row "175 B" 64 1536
row "1 T" 512 4096
