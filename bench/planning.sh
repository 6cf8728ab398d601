#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# planning.sh - seconds and memory that a search for a plan takes
#
#   make -C bench planning        (in the build tree)
#
# Prints a Markdown table: processor seconds (user and system, one thread) and
# peak resident memory of `merak plan`, the median and the most of three runs.
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
    python3 - "$merak" "$tmp/$1.json" "$2" "$3" >"$tmp/row" <<'EOF'
import resource
import statistics
import subprocess
import sys

merak, model, nodes, batch = sys.argv[1:]
seconds, before = [], 0
for _ in range(3):
    out = subprocess.run([merak, "plan", "--model", model, "--nodes", nodes,
                          "--device", "h200", "--global-batch", batch],
                         check=True, stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, text=True).stdout
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds.append(used.ru_utime + used.ru_stime - before)
    before = used.ru_utime + used.ru_stime
step = next(line for line in out.splitlines() if line.startswith("step "))
print(f"{statistics.median(seconds):.2f} | {used.ru_maxrss // 1024} |",
      step[5:].split(",")[0])
EOF
    echo "| $1 | $(($2 * 8)) h200 | $3 | $(cat "$tmp/row") |"
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
