#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# train_alone.sh - what `merak train` of one process obeys and refuses
#
# Run from the build directory of tests/.

set -u
export LC_ALL=C

here=$(cd "$(dirname "$0")" && pwd)
. "$here/tap.sh"

merak=$PWD/../cmd/merak
model=$here/../vectors/parity/gpt2-tied.json
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

# train OPTION...: a run on $tmp/data, its output in $tmp/out
train()
{
    "$merak" train --model "$model" --data "$tmp/data" --threads 1 \
        --log-every 1 "$@" >"$tmp/out" 2>&1
}

echo 1..8

seq 20000 >"$tmp/text"
"$merak" data pack --tokenizer byte --out "$tmp/data" "$tmp/text" >/dev/null
train --seq 64 --global-batch 1 --steps 1 --ckpt "$tmp/run"

# --- Slurm's variables ---

# refuses VALUE COMMAND OPTION...
refuses()
{
    local value=$1

    shift
    SLURM_CPUS_PER_TASK=$value "$merak" "$@" >"$tmp/out" 2>&1
    [ $? -eq 66 ] && grep -q "SLURM_CPUS_PER_TASK is \"$value\"" "$tmp/out"
    ok $? "SLURM_CPUS_PER_TASK=$value is refused by $1" "$tmp/out"
}
step=(--model "$model" --data "$tmp/data" --seq 64 --global-batch 1
    --steps 1)
for value in abc 0 -1 2x 1.5; do
    refuses $value train "${step[@]}"
done
refuses abc eval --ckpt "$tmp/run" --model "$model" --data "$tmp/data"
SLURM_CPUS_PER_TASK=abc train --seq 64 --global-batch 1 --steps 1
ok $? "it is not looked at where --threads is given" "$tmp/out"
SLURM_CPUS_PER_TASK=2 "$merak" train "${step[@]}" >"$tmp/out" 2>&1
grep -q ' 2 threads a task' "$tmp/out"
ok $? "it is the number of threads" "$tmp/out"
