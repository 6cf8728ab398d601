#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run_offload.sh - runs whose optimizer state, or activations, are in the host's
# memory: numbers, memory and checkpoints are those of others
#
# Run from the build directory of tests/.

set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
. "$here/tap.sh"
. "$here/in_tmp.sh"

# HOST: a device file, with this field in it
device()
{
    cat <<JSON
{"name": "box", "ranks_per_node": 1, "memory_bytes": 4e9,
 "flops_per_s": {"f32": 1e11, "bf16": 1e11}, "bytes_per_s": 1e10,
 "kernel_s": 2e-6, $1 "link": {"bytes_per_s": 5e9, "latency_s": 5e-6}}
JSON
}
small_llama >small.json
device '"host": {"memory_bytes": 1e9, "bytes_per_s": 1e9, "latency_s": 1e-5},' \
    >host.json
device '' >none.json
seq 5000 >x.txt
"$merak" data pack --tokenizer byte --out d x.txt >/dev/null
train=("$merak" train --model small.json --data d --seq 32 --global-batch 4
    --log-every 1 --threads 1 --lr-schedule constant)

# DIR STEPS OPTION..: a run there
run()
{
    "${train[@]}" --ckpt "$1" --steps "$2" "${@:3}" >"log.$1" 2>&1
}

# DIR: what each step computed
numbers()
{
    sed -n 's/.*"step": \([0-9]*\),.*"loss": \([^,]*\),.*"grad_norm": \([^,}]*\).*/\1 \2 \3/p' \
        "$1/metrics.jsonl"
}

echo 1..19

away=(--offload state --device host.json)
for dtype in fp32 bf16; do
    run "here.$dtype" 4 --dtype $dtype
    run "away.$dtype" 4 --dtype $dtype "${away[@]}"
    [ "$(numbers "here.$dtype" | wc -l)" -eq 4 ] &&
        [ "$(numbers "here.$dtype")" = "$(numbers "away.$dtype")" ]
    ok $? "$dtype: every step has the same bits" "log.away.$dtype"
done
reserved=$(sed -n 's/.*predicted \([0-9]*\) bytes of the host.*reserved \([0-9]*\)$/\1 \2/p' \
    log.away.bf16)
[ -n "$reserved" ] && [ "${reserved% *}" = "${reserved#* }" ]
ok $? "what is predicted of the host's memory is reserved" log.away.bf16

run fake 4 --dtype bf16 --backend fake "${away[@]}"
run fake.here 4 --dtype bf16 --backend fake
[ "$(numbers fake | wc -l)" -eq 4 ] &&
    [ "$(numbers fake)" = "$(numbers fake.here)" ]
ok $? "so it is where copies go to an accelerator and back" log.fake

# What is recomputed elsewhere is brought back.
acts=(--offload acts --recompute full --device host.json)
run acts 4 --dtype bf16 "${acts[@]}"
[ "$(numbers acts | wc -l)" -eq 4 ] &&
    [ "$(numbers acts)" = "$(numbers here.bf16)" ]
ok $? "activations in the host's memory: every step has the same bits" log.acts
reserved=$(sed -n 's/.*predicted \([0-9]*\) bytes of the host.*reserved \([0-9]*\)$/\1 \2/p' \
    log.acts)
[ -n "$reserved" ] && [ "${reserved% *}" = "${reserved#* }" ]
ok $? "and what is predicted is reserved" log.acts
run fake.acts 4 --dtype bf16 --backend fake "${acts[@]}" --eval-every 2
[ "$(numbers fake.acts)" = "$(numbers fake.here)" ]
ok $? "so they have on an accelerator, with evaluations in between" log.fake.acts
plan=("$merak" plan --model small.json --seq 32 --global-batch 4 --dtype bf16
    --tp 1 --pp 1 --dp 1 --device host.json)
"${plan[@]}" --micro-batch 1 --offload acts --recompute 5/3 --json some.json \
    >log.plan 2>&1
run some 4 --plan some.json --backend fake --device host.json
[ "$(numbers some | wc -l)" -eq 4 ] &&
    [ "$(numbers some)" = "$(numbers fake.here)" ]
ok $? "a plan that recomputes some of it all the same: so they have" log.some
reserved=$(sed -n 's/.*predicted \([0-9]*\) bytes of the host.*reserved \([0-9]*\)$/\1 \2/p' \
    log.some)
[ -n "$reserved" ] && [ "${reserved% *}" = "${reserved#* }" ]
ok $? "and what is predicted is reserved" log.some
run all 4 --dtype bf16 --recompute selective --offload all \
    --device host.json
[ "$(numbers all)" = "$(numbers here.bf16)" ]
ok $? "attention's alone, and optimizer state, too" log.all

run there 2 --dtype bf16 "${away[@]}"
run there 4 --dtype bf16
[ "$(numbers there)" = "$(numbers here.bf16)" ]
ok $? "a checkpoint of offloaded state is resumed by a run without" log.there
run back 2 --dtype bf16
run back 4 --dtype bf16 "${away[@]}"
[ "$(numbers back)" = "$(numbers here.bf16)" ]
ok $? "and the other way round" log.back

run emu 2 --backend emu "${away[@]}"
ok $? "an emulated run takes the time of the copies" log.emu

"$merak" plan --model small.json --seq 32 --global-batch 4 --nodes 2 \
    "${away[@]}" --json found.json >log 2>&1 &&
    "$merak" plan --model small.json --plan found.json --device host.json \
        2>&1 | tee -a log | grep -q "optimizer state in the host's memory"
ok $? "a plan that a search found is saved and read" log

"$merak" plan --model small.json --seq 32 --global-batch 4 --nodes 1 \
    --offload acts --recompute none --device host.json >log 2>&1 &&
    grep -q "in the host's memory: nothing, since no stage drops" log
ok $? "where nothing is dropped a plan says so" log

# refuses TEXT OPTION..
refuses()
{
    "${train[@]}" --steps 1 "${@:2}" >log 2>&1
    [ $? -eq 66 ] && grep 'error: ' log | grep -qF -- "$1"
    ok $? "refused: $1" log
}
refuses '--offload state needs "host" in the device file, and device box has none' \
    --offload state --device none.json
refuses '--offload state needs "host" in the device file, and device cpu has none' \
    --offload state
refuses '--offload: expected none|state|acts|all|auto, got "disk"' \
    --offload disk
"${plan[@]}" --recompute 3/2 >log 2>&1
[ $? -eq 66 ] && grep -qF 'recompute 3/2: what follows / is recomputed where' log
ok $? "refused: a part of nothing offloaded" log
