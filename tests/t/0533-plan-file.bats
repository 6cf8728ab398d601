#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0533-plan-file.bats - plans that were saved: what was planned is what runs, to
# the bit, and what does not fit is refused

load cluster
load auto

setup_file() { pack_runs; }
teardown() { assert_no_node_drained; }

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

@test "the plan in a trace is followed again" {
    train 2 traced -- "${usual[@]}" --pp 2 --micro-batch 2 \
        --recompute selective --trace "$RUNS/trace"
    merak trace plan "$RUNS/trace" -o "$RUNS/plan.json"
    [ "$(jq -c '[.plan.pp, .plan.microbatches, .plan.recompute]' \
        "$RUNS/plan.json")" = '[2,4,"selective"]' ]
    train 2 again --merak-plan="$RUNS/plan.json" --
    [ "$status" -eq 0 ]
    same_losses traced again
}

@test "the plugin places the tasks as the plan says" {
    save "$RUNS/what.json" --nodes 1 --ranks-per-node 4 \
        --what-if tp=2,pp=2,order=tp-pp-dp
    run srun -n4 --overcommit --merak-plan="$RUNS/what.json" sh -c \
        'echo $MERAK_TP_SIZE $MERAK_PP_SIZE $MERAK_ORDER $MERAK_PLAN_FILE'
    [ "$(sort -u <<<"$output")" = "2 2 tp-pp-dp $RUNS/what.json" ]
    # by the bytes that it sends, which the map carries
    sent=$(jq -r '.sent | "\(.pp_bytes):\(.dp_bytes)"' "$RUNS/what.json")
    [[ $sent =~ ^[1-9][0-9]*:0$ ]]
    run srun -n4 --overcommit --merak-plan="$RUNS/what.json" sh -c \
        'echo ${MERAK_PLAN#*/*/*/}'
    [[ $output == "2x2x1/tp-pp-dp:$sent/node/"* ]]
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

@test "ranks are placed on islands in the plan's order, which runs" {
    cat >"$RUNS/links.json" <<'EOF'
{"islands": [{"name": "b", "nodes": "n[2]"}, {"name": "a", "nodes": "n1"}],
 "between": [["a", "b", {"bytes_per_s": 1e8, "latency_s": 1e-4}]]}
EOF
    save "$RUNS/islands.json" --links "$RUNS/links.json" --ranks-per-node 2 \
        --what-if tp=2,pp=2
    planned=$(programs)
    run srun -n4 --ntasks-per-node=2 -w 'n[1-2]' --overcommit \
        --merak-plan="$RUNS/islands.json" sh -c \
        'echo $MERAK_PP_RANK $SLURMD_NODENAME'
    echo "$output"
    [ "$(sort -u <<<"$output")" = "0 n2
1 n1" ]
    train 4 islands --ntasks-per-node=2 -w 'n[1-2]' \
        --merak-plan="$RUNS/islands.json" --
    [ "$status" -eq 0 ]
    [ "$(programs)" = "$planned" ]
    run merak plan --model "$MODEL" --plan "$RUNS/islands.json"
    [ "$status" -eq 66 ]
    [[ $output == *"give --links the file that it was made with" ]]
    merak plan --model "$MODEL" --plan "$RUNS/islands.json" \
        --links "$RUNS/links.json" | grep -F "b (stage 0), a (stage 1)"
    sed 's/n\[2\];n1/n1;n[2]/' "$RUNS/islands.json" >"$RUNS/turned.json"
    run merak plan --model "$MODEL" --plan "$RUNS/turned.json" \
        --links "$RUNS/links.json"
    [[ $output == *"was changed after it was saved"* ]]
}

# links_of NODES-OF-A NODES-OF-B
links_of()
{
    cat >"$RUNS/links.json" <<EOF
{"islands": [{"name": "a", "nodes": $1}, {"name": "b", "nodes": $2}],
 "between": [["a", "b", {"bytes_per_s": 1e5, "latency_s": 1e-4}]]}
EOF
}

# Of a run's output and trace: where ranks are, in ms the step predicted.
order() { grep -o 'islands, in the order of ranks: .*' <<<"$output"; }
predicted()
{
    merak trace summary "$1" --top 0 | awk '$1 == "plan" { print int($2) }'
}

@test "a run knows islands: where srun places, where it does, in a search" {
    local here=(-N2 --ntasks-per-node=1 -w 'n[1-2]')

    links_of '"n[2,3]"' '"n[1,4-6]"'
    run srun -n2 --overcommit "${here[@]}" --merak-pp=2 \
        --merak-links="$RUNS/links.json" \
        sh -c 'echo $MERAK_PP_RANK $SLURMD_NODENAME $MERAK_LINKS'
    [ "$(sort -u <<<"$output")" = "0 n2 $RUNS/links.json
1 n1 $RUNS/links.json" ]
    train 2 alone "${here[@]}" -- --pp 2 --trace "$RUNS/alone/trace"
    train 2 known "${here[@]}" -- --pp 2 --trace "$RUNS/known/trace" \
        --links "$RUNS/links.json"
    [ "$(order)" = "islands, in the order of ranks: a, b" ]
    # hops of 64 KiB at 1e5 bytes/s, eight micro-batches
    [ "$(predicted "$RUNS/alone/trace")" -lt 1000 ]
    [ "$(predicted "$RUNS/known/trace")" -gt 1000 ]
    same_losses alone known
    # gradients over islands would take longer than hops
    train 2 found "${here[@]}" --merak-tp=1 --merak-pp=auto \
        --merak-links="$RUNS/links.json" -- "${usual[@]}"
    [ "$status" -eq 0 ]
    [[ $output == *"islands, in the order of ranks: a, b"* ]]
    grep -q 'pp 2, dp 1' <<<"$output"
}

@test "links that do not fit a job's nodes are refused by name" {
    local here=(-N2 --ntasks-per-node=1 -w 'n[1-2]')
    local links="$RUNS/links.json"

    links_of '"n1"' '"n[3-4]"'
    sed -i 's/"n1"/"n[1,3]"/' "$links"
    refuse srun -n2 --overcommit "${here[@]}" --merak-pp=2 \
        --merak-links="$links" echo ran
    [[ $line == *"node n2 is in none of the islands n[1,3];n[3-4]"* ]]
    train 2 bad "${here[@]}" -- --pp 2 --links "$links"
    refused 66 "node n2 is in none of its 2 islands"
    links_of '"n[1-2]"' '"n[2-3]"'
    train 2 bad "${here[@]}" -- --pp 2 --links "$links"
    refused 66 'node n2 is in islands "a" and "b"'
    links_of 2 2
    refuse srun -n2 --overcommit "${here[@]}" --merak-pp=2 \
        --merak-links="$links" echo ran
    [[ $line == *"an island without the names of its nodes"* ]]
    train 2 bad "${here[@]}" --merak-pp=2 -- --links "$links"
    refused 66 'srun placed the tasks, and does not know of it'
    train 2 bad "${here[@]}" -- --pp 2 --links "$links"
    refused 66 'has only the number of its nodes'
    links_of '"n[1-2]"' '"n[3-4]"'
    train 3 bad -N3 --ntasks-per-node=1 -w 'n[1-3]' -- --pp 3 --links "$links"
    refused 66 "the job has 2 of a, 1 of b nodes"
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
    [[ $line == *"other.json is not a plan that"* ]]
    sed 's/"merak_plan": 2/"merak_plan": 1/' "$RUNS/fit.json" \
        >"$RUNS/other.json"
    refuse srun -n4 --overcommit --merak-plan="$RUNS/other.json" echo ran
    [[ $line == *"other.json is not a plan that"*"another version"* ]]
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

@test "every choice that is printed can be fixed, and runs the same programs" {
    save "$RUNS/found.json" --nodes 1 --ranks-per-node 4 \
        --what-if tp=2,pp=2,micro-batch=2,cut=3,recompute=a-2 \
        --sp off --sub-pipeline no --tp-batch 0
    planned=$(programs)
    list=$(sed -n 's/^--what-if //p' <<<"$output")
    [[ ,$list, == *,cut=3,* && ,$list, == *,recompute=a-2,* ]]
    save "$RUNS/fixed.json" --nodes 1 --ranks-per-node 4 --what-if "$list"
    [ "$(programs)" = "$planned" ]
    [ "$(jq -r .id "$RUNS/fixed.json")" = "$(jq -r .id "$RUNS/found.json")" ]
    train 4 fixed --merak-plan="$RUNS/fixed.json" --
    [ "$status" -eq 0 ]
    [ "$(programs)" = "$planned" ]
    # without a search; what recomputes and where it is cut changes no loss
    run merak plan --model "$MODEL" --tp 2 --pp 2 --micro-batch 2 --sp off \
        --cut 2 --recompute 1-a --json "$RUNS/given-cut.json" "${usual[@]}"
    planned=$(programs)
    train 4 given-cut --merak-plan="$RUNS/given-cut.json" --
    [ "$status" -eq 0 ]
    [ "$(programs)" = "$planned" ]
    same_losses fixed given-cut
}
