#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0530-auto.bats - degrees that are left to the planner, and plans that were
# saved: what is planned is what runs, to the bit
#
# alone: it compares times

load cluster
load parity

setup_file()
{
    export RUNS=$BATS_FILE_TMPDIR
    export MODEL=$TESTS/vectors/parity/gpt2-tied.json
    merak data pack --tokenizer byte --out "$RUNS/text" \
        /usr/share/common-licenses/GPL-3 >/dev/null
}

teardown() { assert_no_node_drained; }

# train N NAME SRUN-OPTION... -- OPTION...: ten steps; metrics in $RUNS/NAME
train()
{
    local n=$1 name=$2 launch=()

    shift 2
    while [ "$1" != -- ]; do
        launch+=("$1")
        shift
    done
    shift
    mkdir -p "$RUNS/$name"
    run srun -n"$n" --overcommit "${launch[@]}" merak train --model "$MODEL" \
        --data "$RUNS/text" --steps 10 --eval-samples 0 --threads 1 \
        --deadline 60 --metrics "$RUNS/$name/metrics.jsonl" "$@"
    echo "$output"
}

usual=(--seq 32 --global-batch 8)

losses() { jq -c '[.loss, .grad_norm]' "$RUNS/$1/metrics.jsonl"; }

# same_losses A B
same_losses()
{
    [ "$(losses "$1" | wc -l)" -eq 10 ]
    diff <(losses "$1") <(losses "$2")
}

# The chosen plan's number after a word of the line that tells it.
chosen() { sed -n "s/.*chosen .*$1 \([0-9]*\).*/\1/p" <<<"$output"; }

programs() { sed -n 's/.*programs \([0-9a-f]\{16\}\)$/\1/p' <<<"$output"; }

# by_hand N NAME SRUN-OPTION...: what the line in $output says, given as options
by_hand()
{
    local line ranks schedule micro chunks recompute sub=no zero1=no

    line=$(grep 'chosen ' <<<"$output")
    schedule=$(sed 's/.*dp [0-9]*; \([a-z0-9:-]*\).*/\1/' <<<"$line")
    chunks=$(sed -n 's/.* of \([0-9]*\) chunks.*/\1/p' <<<"$line")
    micro=$(sed 's/.*micro-batch[es]* of \([0-9]*\).*/\1/' <<<"$line")
    ranks=$(sed 's/.*ranks \([a-z-]*\),.*/\1/' <<<"$line")
    recompute=$(sed 's/.*recomputation \([a-z]*\);.*/\1/' <<<"$line")
    [[ $line != *"state split"* ]] || zero1=yes
    [[ $line != *"in halves"* ]] || sub=yes
    train "$1" "$2" "${@:3}" --merak-tp="$(chosen tp)" --merak-pp="$(chosen pp)" \
        --merak-order="$ranks" -- "${usual[@]}" --schedule "$schedule" \
        --micro-batch "$micro" --zero1 $zero1 --chunks "${chunks:-1}" \
        --sub-pipeline $sub --recompute "$recompute"
    [ "$status" -eq 0 ]
}

# refused CODE TEXT: the exit code, and exactly one line of ours, with TEXT
refused()
{
    local lines

    [ "$status" -eq "$1" ]
    lines=$(grep -c 'error: ' <<<"${output//srun: error: n/}")
    [ "$lines" -eq 1 ]
    [[ $output == *"$2"* ]]
}

# save FILE OPTION...
save()
{
    local file=$1

    shift
    run merak plan --model "$MODEL" --device cpu --dtype fp32 --json "$file" \
        "${usual[@]}" "$@"
    echo "$output"
    [ "$status" -eq 0 ]
}

# --- chosen by the run --------------------------------------------------------

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

@test "what is said beside auto is kept" {
    train 8 pinned --merak-tp=auto --merak-pp=4 -- "${usual[@]}" \
        --micro-batch 2 --schedule gpipe --zero1 no
    [ "$status" -eq 0 ]
    [ "$(chosen pp)" = 4 ]
    [[ $output == *"; gpipe, "*" of 2; "* ]]
    [[ $output != *"state split"* ]]
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
        --deadline 60 "${usual[@]}"
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

# --- saved --------------------------------------------------------------------

@test "a plan that was saved runs the programs that were planned" {
    save "$RUNS/8.json" --nodes 2 --ranks-per-node 4
    planned=$(programs)
    train 8 replayed -N2 --merak-plan="$RUNS/8.json" --
    [ "$status" -eq 0 ]
    [ -n "$planned" ]
    [ "$(programs)" = "$planned" ]
    [ "$(jq -r .program "$RUNS/8.json")" = "$planned" ]
    [[ $output == *"$(jq -r .id "$RUNS/8.json")"* ]]
    # memory, to the byte
    bytes=$(jq '.stages[0].arena_bytes' "$RUNS/8.json")
    [[ $output == *"memory of rank 0: predicted $bytes bytes"* ]]
    [[ $output == *"reserved $bytes"* ]]
    # again, by the program's option and by the environment
    train 8 replay-option -N2 -- --plan "$RUNS/8.json"
    [ "$(programs)" = "$planned" ]
    MERAK_PLAN_FILE=$RUNS/8.json train 8 replay-env -N2 --
    [ "$(programs)" = "$planned" ]
    same_losses replayed replay-option
    same_losses replayed replay-env
}

@test "a saved plan equals the run that chose it" {
    train 4 chose -N2 --merak-tp=auto -- "${usual[@]}"
    ran=$(programs)
    save "$RUNS/4.json" --nodes 2 --ranks-per-node 2
    [ "$(programs)" = "$ran" ]
    train 4 replay-4 -N2 --merak-plan="$RUNS/4.json" --
    [ "$(programs)" = "$ran" ]
    same_losses chose replay-4
}

@test "choices that were given are saved, too" {
    run merak plan --model "$MODEL" --pp 2 --tp 2 --micro-batch 2 \
        --schedule gpipe --recompute full --json "$RUNS/given.json" \
        "${usual[@]}"
    planned=$(programs)
    train 4 given --merak-plan="$RUNS/given.json" --
    [ "$status" -eq 0 ]
    [ "$(programs)" = "$planned" ]
    train 4 given-by-hand --merak-tp=2 --merak-pp=2 -- "${usual[@]}" \
        --micro-batch 2 --schedule gpipe --recompute full
    [ "$(programs)" = "$planned" ]
    same_losses given given-by-hand
}

@test "the plugin places the tasks as the plan says" {
    save "$RUNS/what.json" --nodes 1 --ranks-per-node 4 \
        --what-if tp=2,pp=2,order=tp-pp-dp
    run srun -n4 --overcommit --merak-plan="$RUNS/what.json" sh -c \
        'echo $MERAK_TP_SIZE $MERAK_PP_SIZE $MERAK_ORDER $MERAK_PLAN_FILE'
    [ "$(sort -u <<<"$output")" = "2 2 tp-pp-dp $RUNS/what.json" ]
    cd "$RUNS"
    run srun -n4 --overcommit --export=NONE --chdir=/ \
        --merak-plan=what.json /bin/sh -c 'echo $MERAK_PLAN_FILE'
    echo "$output"
    [ "$(sort -u <<<"$output")" = "$RUNS/what.json" ]
    # what is said less firmly than the plan gives way
    MERAK_TP=1 run srun -n4 --overcommit --merak-plan=what.json \
        sh -c 'echo $MERAK_TP_SIZE'
    [ "$(sort -u <<<"$output")" = 2 ]
}

@test "a plan that does not fit is refused, before a task starts if srun sees it" {
    save "$RUNS/fit.json" --nodes 1 --ranks-per-node 4 --what-if tp=2,pp=2
    refuse srun -n8 --overcommit --merak-plan="$RUNS/fit.json" echo ran
    [[ $line == *"tp=2 x pp=2 x dp=1 makes 4, not the 8 tasks"* ]]
    refuse srun -n4 --overcommit --merak-plan="$RUNS/fit.json" --merak-tp=4 \
        echo ran
    [[ $line == *"--merak-tp=4 contradicts the plan"*"which has 2"* ]]
    refuse srun -n4 --overcommit --merak-plan="$RUNS/fit.json" \
        --merak-order=tp-pp-dp echo ran
    [[ $line == *"--merak-order=tp-pp-dp contradicts the plan"* ]]
    refuse srun -n4 --overcommit --merak-plan="$RUNS/none.json" echo ran
    [[ $line == *"none.json: No such file"* ]]
    echo '{"tp": 2}' >"$RUNS/other.json"
    refuse srun -n4 --overcommit --merak-plan="$RUNS/other.json" echo ran
    [[ $line == *"other.json is no plan that"* ]]
    sed 's/"merak_plan": 2/"merak_plan": 1/' "$RUNS/fit.json" \
        >"$RUNS/other.json"
    refuse srun -n4 --overcommit --merak-plan="$RUNS/other.json" echo ran
    [[ $line == *"other.json is no plan that"*"another version"* ]]
    train 8 refused -- --plan "$RUNS/fit.json"
    refused 66 "the plan is for 4 tasks (tp 2 x pp 2 x dp 1) and this run has 8"
    train 4 refused --merak-plan="$RUNS/fit.json" -- --seq 16
    refused 66 "--seq 16 contradicts the plan, which has 32"
    train 4 refused --merak-plan="$RUNS/fit.json" -- --micro-batch 3
    refused 66 "--micro-batch 3 contradicts the plan"
    train 4 refused --merak-plan="$RUNS/fit.json" -- --boundary scatter
    refused 66 "--boundary scatter contradicts the plan, which has whole"
    train 4 refused --merak-tp=4 -- --plan "$RUNS/fit.json"
    refused 66 "--tp 4 contradicts the plan"
    MODEL=$TESTS/vectors/parity/llama-untied.json
    train 4 refused --merak-plan="$RUNS/fit.json" --
    refused 66 "the plan is for another model"
}

@test "a plan that was edited, cut short or is no plan is refused" {
    save "$RUNS/good.json" --nodes 1 --ranks-per-node 4 \
        --what-if tp=2,pp=2,schedule=1f1b
    edit()
    {
        jq "$1" "$RUNS/good.json" >"$RUNS/bad.json"
        train 4 refused --merak-plan="$RUNS/bad.json" --
        refused 66 "$2"
    }
    edit '.plan.micro_batch += 1' "was changed after it was saved"
    edit '.plan.cut = [1]' "was changed after it was saved"
    edit '.run.seq = 64' "was changed after it was saved"
    edit '.plan.cut = [2, 1]' 'cut is [2, 1], expected 1 ascending'
    edit '.plan.schedule = "best"' 'schedule is "best", expected'
    edit 'del(.plan.zero1)' "zero1 is missing, expected true or false"
    edit '.program = "x"' 'program is "x", expected 16 hexadecimal digits'
    edit 'del(.run)' "run is missing, expected an object"
    head -c 300 "$RUNS/good.json" >"$RUNS/bad.json"
    train 4 refused --merak-plan="$RUNS/bad.json" --
    refused 66 "bad.json is not JSON: line "
    head -c 300 /dev/urandom >"$RUNS/bad.json"
    train 4 refused -- --plan "$RUNS/bad.json"
    refused 66 "bad.json is not JSON"
    train 4 refused -- --plan "$RUNS"
    [ "$status" -eq 66 ]
}

@test "recomputation, chunks, sub-pipelines and boundaries are saved, too" {
    for what in schedule=interleaved,chunks=2,recompute=full \
        schedule=1f1b,recompute=selective schedule=1f1b,sub-pipeline=yes \
        schedule=1f1b,sp=off,boundary=scatter; do
        save "$RUNS/more.json" --nodes 1 --ranks-per-node 4 \
            --what-if tp=2,pp=2,micro-batch=2,$what
        planned=$(programs)
        rm -rf "$RUNS/more" "$RUNS/pinned-more"
        train 4 more --merak-plan="$RUNS/more.json" --
        [ "$status" -eq 0 ]
        [ "$(programs)" = "$planned" ]
        train 4 pinned-more --merak-tp=auto --merak-pp=2 -- "${usual[@]}" \
            --tp 2 --micro-batch 2 \
            $(sed 's/\([a-z0-9-]*\)=\([a-z0-9]*\),*/ --\1 \2/g' <<<"$what")
        [ "$status" -eq 0 ]
        [ "$(programs)" = "$planned" ]
        same_losses more pinned-more
    done
}

# --- measured -----------------------------------------------------------------

@test "ranks measure together, and tensor ranks are planned by their times" {
    run srun -N1 -n2 --overcommit merak calibrate --threads 1 --memory-gib 1 \
        --out "$RUNS/two.json"
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c 'exchanges: ' <<<"$output")" -eq 1 ] # rank 0 alone prints
    [ "$(grep -c 'beside an exchange, kernels lose ' <<<"$output")" -eq 1 ]
    jq -e '.ranks_per_node == 2 and .link.latency_s > 0' "$RUNS/two.json"
    jq -e '.beside == null or (.beside | .latency_s < 0.1 and
        .latency_s + .bytes_per_s > 0)' "$RUNS/two.json"
    for table in kernels tp_kernels; do
        for dtype in f32 bf16; do
            jq -e --arg t $table --arg d $dtype '.[$t][$d] |
                (.linear | length) > 20 and (.attention_packed_dx | length) > 5
                and all(.[][]; length == 4 and .[2] > 0)' "$RUNS/two.json"
        done
    done
    run merak plan --model "$MODEL" --device "$RUNS/two.json" --dtype fp32 \
        "${usual[@]}" --what-if tp=2
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *"on 1 x 2 cpu, 1 thread"* ]]
}

@test "calibrate refuses ranks of several nodes" {
    run srun -N2 -n2 merak calibrate --out "$RUNS/nodes.json"
    echo "$output"
    [ "$status" -eq 66 ]
    [ "$(grep -c 'merak calibrate: ' <<<"$output")" -eq 1 ]
    [[ $output == *"2 ranks on 2 nodes: start those of one node"* ]]
    [ ! -e "$RUNS/nodes.json" ]
}
