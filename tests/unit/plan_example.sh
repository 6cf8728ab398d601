#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plan_example.sh - `PROGRAM plan`: examples/ planned as they are, without a
# task, and what is refused
#
# Run from the build directory of tests/.

set -u
export LC_ALL=C

unet=../examples/unet
. "$(dirname "$0")/tap.sh"

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

# plan PROGRAM [WORD..] -- OPTION..: into $tmp/out and $tmp/err
plan()
{
    local program=()

    while [ "$1" != -- ]; do
        program+=("$1")
        shift
    done
    "${program[@]}" plan "${@:2}" >"$tmp/out" 2>"$tmp/err"
}

# has DESCRIPTION TEXT..: what was planned last was, and prints every text.
has()
{
    local status=$? what=$1 text

    [ ! -s "$tmp/err" ] || status=1
    for text in "${@:2}"; do
        grep -qF -- "$text" "$tmp/out" || status=1
    done
    ok $status "$what" "$tmp/out" "$tmp/err"
}

# refuses TEXT OPTION..: exits 66 with one line on standard error that has it.
refuses()
{
    plan $unet -- "${@:2}"
    [ $? -eq 66 ] && [ ! -s "$tmp/out" ] &&
        [ "$(wc -l <"$tmp/err")" -eq 1 ] &&
        grep -q "^unet plan: " "$tmp/err" && grep -qF -- "$1" "$tmp/err"
    ok $? "refused: $1" "$tmp/out" "$tmp/err"
}

plan $unet -- --nodes 1 --device h200 --global-batch 64
has "a program's model is planned" "unet, 582.6 k parameters, on 1 x 8 h200" \
    "% of peak FLOP/s" "memory of a rank; the limit is " "runners-up:"
# Without what else was tried, in a share of the time, and the commands.
choice() { sed '/^what binds/,/^sent in/d' "$tmp/out"; }
choice >"$tmp/short"
plan $unet -- --nodes 1 --device h200 --global-batch 64 --seq 256
choice | cmp -s "$tmp/short" -
ok $? "of as many tokens as a run without --seq" "$tmp/out" "$tmp/err"

cpu=(--device cpu --ranks-per-node 4 --global-batch 8 --seq 32 --dtype fp32)
plan $unet -- "${cpu[@]}" --what-if pp=4,schedule=gpipe --print graph,blocks \
    --json "$tmp/p.json" --svg "$tmp/p.svg" --html "$tmp/p.html"
has "with choices that are fixed, and its phases" "tp 1, pp 4, dp 1" "gpipe" \
    "linear(" "block 0, part 0: " "part 3: " "program id "
[ "$(grep -o '</svg>' "$tmp/p.svg" | wc -l)" -eq 3 ] &&
    grep -q '>stage 3<' "$tmp/p.svg" && grep -q '>unet, ' "$tmp/p.html" &&
    tail -n 1 "$tmp/p.html" | grep -q '</html>$'
ok $? "and pictures" "$tmp/out" "$tmp/err"
grep -q "\"program\": \"$(sed -n 's/^program id //p' "$tmp/out")\"" \
    "$tmp/p.json" && grep -q '"model": ".*/unet"' "$tmp/p.json"
ok $? "and a file of the programs that are printed" "$tmp/out" "$tmp/err"

plan $unet -- --pp 2 --seq 32
has "a plan that is given" "unet, 0.6 M parameters" "2 ranks: tp 1, pp 2" \
    "stage 1  "
plan ../examples/recycle 3 -- --pp 2 --seq 32
has "of several passes: by the schedule for them" "pp 2, dp 1; 3f1b"
plan ../examples/recycle 3 -- "${cpu[@]}" --what-if pp=2
has "and one that is searched for" "pp 2, dp 2; 3f1b"

# README's first program, on as many tensor ranks and stages as it promises
for tp in 1 2 4 8 16; do
    for pp in 1 2 3 4 8 15 16; do
        plan ../examples/train -- --tp $tp --pp $pp
        has "train.c by tp $tp and pp $pp" "tp $tp, pp $pp, dp 1"
    done
done

plan $unet -- --help
has "help" "/unet plan [OPTION]..." "--what-if LIST" "--global-batch N"
! grep -q -- '--model FILE' "$tmp/out"
ok $? "without --model" "$tmp/out" "$tmp/err"
$unet --help >"$tmp/out" 2>"$tmp/err"
has "which the program's own names" "/unet plan [OPTION]..."

# not the last word, nor a later one
$unet --data plan --seq 0 >"$tmp/out" 2>"$tmp/err"
[ $? -eq 66 ] && grep -q -- '--seq: expected' "$tmp/err"
ok $? "plan is the first argument or none" "$tmp/out" "$tmp/err"
$unet --seq 32 plan >"$tmp/out" 2>"$tmp/err"
[ $? -eq 66 ] && grep -q 'unknown option "plan"' "$tmp/err"
ok $? "no later one" "$tmp/out" "$tmp/err"
SLURM_PROCID=1 $unet plan --pp 2 >"$tmp/out" 2>"$tmp/err" &&
    [ ! -s "$tmp/out" ]
ok $? "of several tasks the first one plans" "$tmp/out" "$tmp/err"

refuses "--model x.json: unet has a model of its own; leave it out" \
    --model x.json --pp 2
refuses "unknown option \"--data\"" --data text
refuses "give --global-batch" --device h200
refuses "give --device" --nodes 4 --global-batch 64
refuses "no device \"h1000\"" --device h1000 --global-batch 64
refuses "no choice \"chunk\"" "${cpu[@]}" --what-if chunk=2
refuses "--print: no phase \"layout\"" --print layout
refuses "--nodes: expected an integer 1..65535, got \"x\"" --nodes x
refuses "memory: no plan fits in 1 KiB per rank" "${cpu[@]}" \
    --memory 0.00000095367432
refuses "tp x pp x dp must be the 4 ranks" "${cpu[@]}" --what-if tp=3
echo "1..$n"
