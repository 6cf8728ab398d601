#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0530-auto.bats - degrees that are left to the planner: what is planned is what
# runs, to the bit

load cluster
load auto

setup_file() { pack_runs; }
teardown() { assert_no_node_drained; }

# The chosen plan's number after a word of the line that tells it.
chosen() { sed -n "s/.*chosen .*$1 \([0-9][0-9]*\).*/\1/p" <<<"$output"; }

# by_hand N NAME SRUN-OPTION...: what the line in $output says, given as options
by_hand()
{
    local line ranks schedule micro chunks recompute samples sub=no zero=0

    line=$(grep 'chosen ' <<<"$output")
    # of one stage none is said
    schedule=$(sed -n 's/.*dp [0-9]*; \([a-z0-9:-]*\)\(,\| of\).*/\1/p' <<<"$line")
    chunks=$(sed -n 's/.* of \([0-9]*\) chunks.*/\1/p' <<<"$line")
    micro=$(sed 's/.*micro-batch[es]* of \([0-9]*\).*/\1/' <<<"$line")
    ranks=$(sed 's/.*ranks \([a-z-]*\),.*/\1/' <<<"$line")
    recompute=$(sed 's/.*recomputation \([a-z]*\).*/\1/' <<<"$line")
    samples=$(sed -n 's/.*data parallelism over tp in \([0-9]*\) %.*/\1/p' <<<"$line")
    [[ $line != *"state sharded"* ]] || zero=1
    [[ $line != *"gradients and optimizer state sharded"* ]] || zero=2
    [[ $line != *"parameters, gradients and"* ]] || zero=3
    [[ $line != *"in halves"* ]] || sub=yes
    train "$1" "$2" "${@:3}" --merak-tp="$(chosen tp)" --merak-pp="$(chosen pp)" \
        --merak-order="$ranks" -- "${usual[@]}" --schedule "${schedule:-1f1b}" \
        --micro-batch "$micro" --zero $zero --chunks "${chunks:-1}" \
        --sub-pipeline $sub --recompute "$recompute" --tp-batch "${samples:-0}"
    [ "$status" -eq 0 ]
}

@test "auto on 4 tasks of two nodes runs what it logs" {
    train 4 auto-4 -N2 --merak-tp=auto --merak-pp=auto -- "${usual[@]}"
    [ "$status" -eq 0 ]
    [[ $output == *"searched for a plan for 2 x 2 tasks (cpu)"* ]]
    [[ $output == *"placement: spank"* ]]
    [ $(($(chosen tp) * $(chosen pp) * $(chosen dp))) -eq 4 ]
    by_hand 4 by-hand-4 -N2
    same_losses auto-4 by-hand-4
}

@test "auto on 8 tasks of four nodes, tp alone said to be auto" {
    train 8 auto-8 -N4 --merak-tp=auto -- "${usual[@]}"
    [ "$status" -eq 0 ]
    [[ $output == *"for 4 x 2 tasks"* ]]
    [ $(($(chosen tp) * $(chosen pp) * $(chosen dp))) -eq 8 ]
    by_hand 8 by-hand-8
    same_losses auto-8 by-hand-8
}

@test "auto of all levels of ZeRO runs what it logs" {
    train 4 auto-zero -N2 --merak-tp=auto --merak-pp=1 -- "${usual[@]}" \
        --zero auto
    [ "$status" -eq 0 ]
    by_hand 4 by-hand-zero -N2
    same_losses auto-zero by-hand-zero
    train 4 auto-three -N2 --merak-tp=auto --merak-pp=1 -- "${usual[@]}" \
        --zero 3
    [ "$status" -eq 0 ]
    [[ $output == *"parameters, gradients and optimizer state sharded over dp"* ]]
    by_hand 4 by-hand-three -N2
    same_losses auto-three by-hand-three
}

@test "what is said beside auto is kept" {
    train 8 pinned --merak-tp=auto --merak-pp=4 -- "${usual[@]}" \
        --micro-batch 2 --schedule gpipe --zero1 no
    [ "$status" -eq 0 ]
    [ "$(chosen pp)" = 4 ]
    [[ $output == *"; gpipe, "*" of 2; "* ]]
    [[ $output != *"state sharded"* ]]
    by_hand 8 by-hand-pinned
    same_losses pinned by-hand-pinned
}

@test "all ranks predict by the costs that the planner went by" {
    # wide enough that the rate of two threads shows
    jq '.n_embd = 256' "$MODEL" >"$RUNS/wide.json"
    MODEL=$RUNS/wide.json train 2 alike --merak-tp=auto --merak-dp=2 -- \
        "${usual[@]}" --threads 2 --steps 2 --trace "$RUNS/alike/trace"
    [ "$status" -eq 0 ]
    run /usr/bin/python3 - "$RUNS/alike/trace" <<'END'
import h5py, sys
ends = [h5py.File(f"{sys.argv[1]}/trace-0000{r}.h5")["planned"]["end_ns"]
        for r in (0, 1)]
assert len(ends[0]) > 0 and max(ends[0]) > 0
assert (ends[0] == ends[1]).all(), [max(e) for e in ends]
END
    echo "$output"
    [ "$status" -eq 0 ]
}

@test "auto by the environment, by options, and without the plugin" {
    MERAK_TP=auto train 4 by-env -- "${usual[@]}"
    [ "$status" -eq 0 ]
    first=$(grep -o 'chosen [0-9a-f]*' <<<"$output")
    train 4 by-option -- "${usual[@]}" --tp auto --pp auto
    [ "$status" -eq 0 ]
    [[ $output == *"placement: runtime"* ]]
    [ "$(grep -o 'chosen [0-9a-f]*' <<<"$output")" = "$first" ]
    same_losses by-env by-option
}

@test "a program of the user's own is planned like the stock trainer" {
    run srun -n4 --overcommit --merak-tp=auto "$BUILD/examples/train" \
        --data "$RUNS/text" --steps 2 --eval-samples 0 --threads 1 \
        --deadline 900 "${usual[@]}"
    echo "$output"
    [ "$status" -eq 0 ]
    [ $(($(chosen tp) * $(chosen pp) * $(chosen dp))) -eq 4 ]
}

@test "few micro-batches on many stages run in slices" {
    local usual=(--seq 256 --global-batch 1)

    jq '.n_embd = 256 | .n_positions = 256' "$MODEL" >"$RUNS/long.json"
    MODEL=$RUNS/long.json
    train 4 sliced --merak-tp=auto --merak-pp=4 -- "${usual[@]}"
    [ "$status" -eq 0 ]
    [[ $output == *"; sliced:"* ]]
    by_hand 4 sliced-by-hand
    same_losses sliced sliced-by-hand
}

@test "nodes with unequal numbers of tasks" {
    printf 'n1\nn1\nn1\nn1\nn2\nn2\n' >"$RUNS/hosts"
    SLURM_HOSTFILE=$RUNS/hosts train 6 uneven -m arbitrary --merak-tp=auto -- \
        --seq 32 --global-batch 12
    [ "$status" -eq 0 ]
    [[ $output == *"for 3 x 2 tasks"* ]]
}

@test "a memory limit is kept, or refused with what binds" {
    train 4 tight --merak-tp=auto -- "${usual[@]}" --memory-gib 0.0012
    [ "$status" -eq 0 ]
    [ "$(grep -oE '[0-9.]+ MiB a task' <<<"$output" | tr -d ' MiB atsk' |
        awk '{ print ($1 <= 1.2288) }')" = 1 ]
    train 4 tighter --merak-tp=auto -- "${usual[@]}" --memory-gib 0.00001
    refused 66 "memory: no plan fits"
    text=${output#*error: }
    run merak plan --model "$MODEL" --device cpu --dtype fp32 --nodes 1 \
        --ranks-per-node 4 "${usual[@]}" --memory-gib 0.00001
    [ "$status" -eq 66 ]
    [[ $text == "${output#merak plan: }"* ]]
}

@test "what cannot be planned is refused" {
    train 4 refused --merak-tp=auto -- --seq 32 --global-batch 7
    [ "$status" -eq 0 ] # one micro-batch of 7 on a pipeline
    train 4 refused --merak-tp=auto --merak-dp=4 -- --seq 32 --global-batch 7
    refused 66 "7"
    train 4 refused --merak-tp=auto -- "${usual[@]}" --schedule nothing
    refused 66 "no schedule 'nothing'"
    train 4 refused --merak-tp=auto -- "${usual[@]}" --device h1000
    refused 66 'no device "h1000"'
    train 2 refused -- "${usual[@]}" --memory-gib 1
    refused 66 "--memory-gib"
}

@test "emu takes the time of the device that was planned for" {
    train 4 emu --merak-tp=auto -- "${usual[@]}" --backend emu
    [ "$status" -eq 0 ]
    [[ $output == *"predicted for cpu"* ]]
    train 4 emu-unit --merak-tp=auto -- "${usual[@]}" --backend emu \
        --emu-unit-ms 1
    refused 66 "--emu-unit-ms"
}

@test "when Slurm would start the jobs of a plan, and which is done first" {
    local job

    job=$(sbatch --parsable -o /dev/null --exclusive -N3 -t 30 \
        --wrap 'sleep 300')
    timeout 60 sh -c 'until squeue -h -j "$0" -o %T | grep -qx RUNNING; do
        sleep 0.1; done' "$job"
    run merak plan --model "$MODEL" --device cpu --seq 16 \
        --ranks-per-node 2 --nodes 1,2,9 --global-batch 18 --tokens 10k \
        --sbatch "--exclusive -t 60"
    scancel "$job"
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(awk '$1 == 1 { print $(NF-3), $(NF-2) }' <<<"$output")" \< \
        "$(awk '$1 == 2 { print $(NF-3), $(NF-2) }' <<<"$output")" ]
    [[ $output == *"9 nodes: sbatch says: "* ]]
    [[ $output == *"done first: 1 node, "* ]]
}

@test "tensor groups over two nodes, as planned for a rack" {
    local plan=$BATS_TEST_TMPDIR/rack.json

    run merak plan --model "$MODEL" --device cpu --dtype fp32 --seq 32 \
        --nodes 2 --ranks-per-node 2 --rack-nodes 2 --tp 4 --global-batch 8 \
        --json "$plan"
    [ "$status" -eq 0 ]
    [[ $output == *"--merak-tp-domain=leaf --merak-plan=$plan"* ]]
    run srun -w 'n[1-2]' --ntasks-per-node=2 --merak-plan="$plan" \
        --merak-tp-domain=leaf merak train --model "$MODEL" \
        --data "$RUNS/text" --steps 2
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *"tp 4 x pp 1 x dp 1 on 2 nodes"* ]]
}
