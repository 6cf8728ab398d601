#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0508-branches.bats - a model that is no chain, its nodes in every order
#
# examples/unet.c, with dropout: losses, norms, gradients and weights of ten
# steps on several stages against one, bit for bit, at the same tp, dp and
# micro-batch; and which order a run takes whose degrees are given.

load cluster
load parity

setup_file()
{
    pack_text
    # what crosses a cut takes about as long as a layer
    cat >"$RUNS/slow.json" <<END
{"name": "slow links", "ranks_per_node": 4, "memory_bytes": 4000000000,
 "flops_per_s": {"f32": 1e11, "bf16": 1e11}, "bytes_per_s": 1e10,
 "kernel_s": 1e-6, "link": {"bytes_per_s": 2e7, "latency_s": 1e-5}}
END
}

teardown() { assert_no_node_drained; }

# unet NAME TP PP DP [OPTION...]
unet() { run_example "${@:1:4}" unet "${@:5}"; }

same() { hold_runs equal "$RUNS/$1" "$RUNS/$2"; }

# A word in the line of the run NAME that tells its degrees.
degrees() { grep 'schedule 1f1b' "$RUNS/$1/out"; }

@test "every order on four stages is bit-equal to one stage" {
    unet one 1 1 1
    [[ $(degrees one) != *branches* ]]
    for order in described gathered blocks; do
        unet $order 1 4 1 --branches $order
        same one $order
    done
    [[ $(degrees described) != *branches* ]]
    [[ $(degrees blocks) == *", branches in blocks, 8 micro-batches"* ]]
}

@test "so are tensor ranks and replicas" {
    for layout in "2 1" "1 2"; do
        set -- $layout
        unet "tp$1-dp$2" "$1" 1 "$2"
        unet "tp$1-dp$2-blocks" "$1" 2 "$2" --branches blocks
        same "tp$1-dp$2" "tp$1-dp$2-blocks"
    done
}

# gained NAME TIMES WHAT: the line that tells the order has WHAT, and a step
# predicted to be so many times shorter
gained()
{
    local line

    line=$(grep ' branches: nodes ' "$RUNS/$1/out")
    echo "$line"
    [[ $line == *" branches: nodes $3: "* ]]
    [[ $line =~ step\ ([0-9.e-]+)\ s\;\ as\ described,.*\ ([0-9.e-]+)\ s$ ]]
    awk "BEGIN { exit !(${BASH_REMATCH[2]} > $2 * ${BASH_REMATCH[1]}) }"
}

@test "given degrees run in the order that is predicted to be fastest" {
    unet one 1 1 1
    unet auto 1 4 1
    same one auto
    [[ $(degrees auto) == *", branches in blocks,"* ]]
    gained auto 1.04 "in blocks, cut by time"
    # the described order says nothing
    unet told 1 2 1 --device "$RUNS/slow.json" --branches described
    run grep branches "$RUNS/told/out"
    [ "$status" -eq 1 ]
}

# Percent of the work that the first stage of run NAME has.
first_stage() { sed -n 's/.* stage 0: .* \([0-9]*\)\..* of the flops/\1/p' "$RUNS/$1/out"; }

@test "cuts are for the device: where links are slow, little crosses them" {
    unet one 1 1 1
    unet even 1 2 1
    unet slow 1 2 1 --device "$RUNS/slow.json"
    same one even
    same one slow
    [[ $(degrees slow) != *branches* ]]
    [ "$(first_stage even)" -gt 40 ] && [ "$(first_stage even)" -lt 60 ]
    # sending a layer's output takes longer than computing all of them
    [ "$(first_stage slow)" -eq 100 ]
}

@test "a checkpoint of one order goes on in another" {
    unet one 1 1 1
    unet resumed 1 4 1 --branches blocks --steps 5
    unet resumed 1 2 1 --branches described
    grep -q 'resumed .*step 5' "$RUNS/resumed/out"
    rm -r "$RUNS/resumed/grads/step-00000004" # the reference dumps no middle
    same one resumed
}

# sum FIELD < LINES: of what comes before a word
sum() { grep -oE "[0-9.e+]+ $1" | awk '{ s += $1 } END { printf "%.3g", s }'; }

@test "a run prints its blocks: all nodes, part by part" {
    unet printed 1 4 1 --branches blocks --steps 1 --print blocks,stages
    blocks=$(grep '^block [0-9]' "$RUNS/printed/out")
    stages=$(grep '^  chunk 0, part' "$RUNS/printed/out")
    echo "$blocks"
    [ "$(wc -l <<<"$stages")" -eq 4 ]
    [ "$(wc -l <<<"$blocks")" -gt 4 ]
    for what in nodes FLOP; do
        [ "$(sum $what <<<"$blocks")" = "$(sum $what <<<"$stages")" ]
    done
    sed 's/.*, part \([0-9]\).*/\1/' <<<"$blocks" | sort -nc
    # nothing crosses the last one's end
    [ "$(grep -c ' values of ' <<<"$blocks")" -eq $(($(wc -l <<<"$blocks") - 1)) ]
}

@test "an order goes into searched plans, and against saved ones is refused" {
    run srun -n4 --overcommit --merak-tp=1 --merak-pp=auto --merak-dp=1 \
        "$BUILD/examples/unet" --data "$RUNS/text" --seq 32 --branches blocks \
        --global-batch 8 --steps 1 --eval-samples 0 --threads 1 --deadline 900
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *"chosen "*"branches in blocks"* ]]
    run srun -n2 --overcommit --merak-pp=2 "$BUILD/examples/unet" \
        --data "$RUNS/text" --branches sideways
    echo "$output"
    [ "$status" -eq 66 ]
    [[ $output == *"--branches: expected described|gathered|blocks|auto, got \"sideways\""* ]]
    # a chain has one order: as described, whatever is asked for
    model=$TESTS/vectors/parity/gpt2-tied.json
    merak plan --model "$model" --device cpu --seq 32 --global-batch 8 \
        --dtype fp32 --nodes 1 --ranks-per-node 2 --what-if pp=2 \
        --json "$RUNS/chain.json" >/dev/null
    run srun -n2 --overcommit merak train --model "$model" --data "$RUNS/text" \
        --plan "$RUNS/chain.json" --branches blocks
    echo "$output"
    [ "$status" -eq 66 ]
    [[ $output == *"--branches blocks contradicts the plan, which has described"* ]]
    run srun -n2 --overcommit --merak-pp=2 merak train --model "$model" \
        --data "$RUNS/text" --seq 32 --branches blocks --steps 1 \
        --eval-samples 0 --threads 1 --deadline 900
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output != *branches* ]]
}
