#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0611-jobs.bats - merak jobscript: what it refuses, and its scripts as they
# run: a chain, an array, a heterogeneous job, spare nodes
#
# long

load cluster
load jobs

setup_file()
{
    cd "$BATS_FILE_TMPDIR"
    merak data pack --tokenizer byte --out text \
        /usr/share/common-licenses/GPL-3 >/dev/null
    mkdir model
    cp "$TESTS/vectors/parity/gpt2-tied.json" model/config.json
}

setup()
{
    cd "$BATS_FILE_TMPDIR"
    RUN=$BATS_TEST_TMPDIR/run
    LOG=job$BATS_TEST_NUMBER-'*'.log
    TRAIN=(merak train --model "$PWD/model" --data "$PWD/text" --seq 32
        --global-batch 8 --threads 1 --eval-samples 0 --log-every 1)
}

teardown()
{
    scancel -u "$(id -un)"
    assert_no_job_left
    assert_no_node_drained
}

# make KIND OPTION...: the script, for tasks of one CPU
make()
{
    merak jobscript "$1" --cpus 1 --time 10 --shared --save-seconds 60 \
        --run-dir "$RUN" --name "job$BATS_TEST_NUMBER" "${@:2}" >script
    bash -n script
}

# says TEXT: the log of a job of this test
says()
{
    grep -q "$1" "job$BATS_TEST_NUMBER"-*.log
}

all_over()
{
    [ -z "$(squeue -h -o %A)" ]
}

# steps_are N [DIR]: steps 1 to N, each once and in order
steps_are()
{
    [ "$(jq .step "${2:-$RUN}/metrics.jsonl")" = "$(seq "$1")" ]
}

@test "every kind with nothing said is what is installed" {
    for kind in single chain array het spare; do
        file=$BUILD/jobscripts/${kind/single/pretrain}.sbatch
        # but for the degrees, which are planned for the nodes that are said;
        # no Slurm answers, whose nodes might not suffice
        [ -z "$(SLURM_CONF=/dev/null merak jobscript $kind | diff - "$file" | grep '^[<>]' |
            grep -v '^[<>] degrees=')" ]
        bash -n "$file"
    done
}

@test "what is said stands in the script" {
    merak jobscript spare --name web --partition main --account physics \
        --qos high --nodes 2 --spares 2 --gpus 4 --cpus 6 --memory-gib 100 \
        --time 1-12 --save-seconds 600 --mail me@example.org --tp 4 --pp 2 \
        --run-dir "/scratch/it's" --setup 'module load merak' -- \
        merak train --data "0.5 a 0.5 b" >script
    bash -n script
    for line in job-name=web partition=main account=physics qos=high nodes=4 \
        ntasks-per-node=4 gpus-per-node=4 cpus-per-task=6 mem=100G time=1-12 \
        signal=B:USR1@600 mail-user=me@example.org; do
        grep -qx "#SBATCH --$line" script
    done
    grep -qx 'module load merak' script
    grep -qx 'SPARES=${SPARES:-2}' script
    set +u
    module() { :; }
    . ./script
    [ "${program[3]}" = "0.5 a 0.5 b" ] && [ ${#program[@]} -eq 4 ]
    [ "$RUN_DIR" = "/scratch/it's" ]
    [ "${degrees[*]}" = "--merak-tp=4 --merak-pp=2" ]
}

@test "what could not run is refused" {
    while IFS='|' read -r words want; do
        eval "refuse merak jobscript $words"
        [[ $line == "merak jobscript: "*"$want"* ]]
    done <<'TABLE'
|which kind? single, chain, array, het or spare
singel|did you mean single?
single --nodes 0|--nodes
single --nodes 9|9 nodes, but partition main has 4
single --partition gpu|there is no "gpu" here; there are main
single --time tomorrow|--time: expected minutes
single --time 0|--time: expected minutes
single --time 5 --save-seconds 250|leave nothing of --time 5
single --tp 3|--tp 3 does not divide the 4 tasks
single --tp 2 --cp 3|--tp 2 x --cp 3 does not divide the 4 tasks
single --tp 4 --pp 3|does not divide the 16 tasks of 4 nodes
single --gpus 2 --tasks 4|a task has one GPU
single --account "a b"|--account: expected one word
single --name a/b|without a /
single --setup $'a\nb'|--setup: expected one line
single --spares 1|--spares is for spare, not for single
chain --array 0-3|--array is for array, not for chain
array --array 0-|--array: expected elements
array --array 0-3 --variant "--lr 1"|elements are 0 to 0
single -- srun merak train|srun is added by the script
single -- merak train --ckpt x|--ckpt is set by the script
single --partion x|(did you mean --partition?)
TABLE
}

@test "a chain goes on after USR1, and ends when it is done" {
    make chain --nodes 1 --tasks 2 --tp 1 --pp 2 -- "${TRAIN[@]}" --steps 150
    sbatch script
    within 300 test -s "$RUN/metrics.jsonl"
    first=$(squeue -h -t R -o %A)
    scancel --batch --signal=USR1 "$first"
    within 300 test -e "$RUN/DONE"
    within 300 all_over
    cat "job$BATS_TEST_NUMBER"-*.log
    steps_are 150
    [ "$(wc -l <"$RUN/starts")" -eq 2 ]
    # both are of the chain of the first
    [ "$(cut -d' ' -f3 "$RUN/starts" | sort -u)" = "$first" ]
    grep -q "exit code 75, newest checkpoint step-.*: again" \
        "job$BATS_TEST_NUMBER-$first.log"
}

@test "a chain whose jobs make no progress ends" {
    make chain --nodes 1 --tasks 2 -- sh -c 'exit 3'
    sbatch script
    within 300 says 'stop exit code 3, 2 runs without'
    assert_no_job_left
    [ "$(wc -l <"$RUN/starts")" -eq 2 ]
}

@test "elements of an array are runs of their own" {
    make array --nodes 1 --tasks 2 --variant "--lr 1e-3" \
        --variant "--lr 2e-3" -- "${TRAIN[@]}" --steps 4
    timeout -k 5 600 sbatch -W script
    cat "job$BATS_TEST_NUMBER"-*.log
    for element in 0 1; do
        [ -e "$RUN/$element/DONE" ]
        steps_are 4 "$RUN/$element"
        grep -qx "lr = 0.00$((element + 1))" "$RUN/$element/ckpt/settings.toml"
    done
}

@test "beside training the second component judges checkpoints" {
    make het --nodes 2 --tasks 2 --tp 2 --pp 2 -- "${TRAIN[@]}" --steps 4 \
        --ckpt-every 2
    sed -i "s|^judging=.*|judging=(merak eval --data $PWD/text --ckpt)|
        s|^#SBATCH --cpus-per-task=8|#SBATCH --cpus-per-task=1|" script
    JUDGE_EVERY=0.2 sbatch script
    within 300 test -e "$RUN/DONE"
    within 300 all_over
    cat "job$BATS_TEST_NUMBER"-*.log "$RUN/evals.log"
    steps_are 4
    grep -q 'evaluating step-00000004' "$RUN/evals.log"
    grep -q 'loss' "$RUN/evals.log"
}

# once COMMAND: what task 1 of the first run does to its program, in bash;
# the program goes on for some steps first
once()
{
    cat >program <<SCRIPT
"\$@" &
if [ "\$SLURM_PROCID" = 1 ] && mkdir "$RUN/once" 2>/dev/null; then
    until grep -qs '"step": 2,' "$RUN/metrics.jsonl"; do sleep 0.05; done
    echo "\$SLURMD_NODENAME" >"$RUN/where"
    $1
fi
wait \$!
SCRIPT
}

@test "a node whose rank hangs is left out, and a spare one takes its place" {
    once 'kill -STOP $!'
    make spare --nodes 2 --spares 1 --tasks 1 --tp 1 --pp 2 -- \
        bash "$PWD/program" "${TRAIN[@]}" --steps 30 --ckpt-every 1 --deadline 3
    timeout -k 5 600 sbatch -W script
    cat "job$BATS_TEST_NUMBER"-*.log
    bad=$(cat "$RUN/where")
    grep -q "leaving out $bad: no answer from a rank there, see hang-" \
        "job$BATS_TEST_NUMBER"-*.log
    [ -e "$RUN/DONE" ]
    # the second start was on the two others
    tail -n 1 "$RUN/ckpt/run.jsonl" |
        jq -e --arg bad "$bad" '.hosts | length == 2 and all(. != $bad)'
    [ "$(wc -l <"$RUN/starts")" -eq 2 ]
    tail -n 1 "$RUN/metrics.jsonl" | jq -e '.step == 30'
}

@test "a rank that is killed once costs no node" {
    once 'kill -KILL $!'
    make spare --nodes 2 --spares 1 --tasks 1 --tp 1 --pp 2 -- \
        bash "$PWD/program" "${TRAIN[@]}" --steps 30 --ckpt-every 1
    timeout -k 5 600 sbatch -W script
    cat "job$BATS_TEST_NUMBER"-*.log
    (! grep -q "leaving out" "job$BATS_TEST_NUMBER"-*.log)
    [ -e "$RUN/DONE" ]
    [ "$(wc -l <"$RUN/starts")" -eq 2 ]
    # srun picks two of all three nodes again: those of Slurm 24.11 may differ,
    # if the first step has not ended on its nodes
    grep -q 'restart 0\.1 on n\[1-3\]' "job$BATS_TEST_NUMBER"-*.log
    jq -es 'length == 2 and all(.hosts | length == 2)' "$RUN/ckpt/run.jsonl"
}

@test "with spare nodes, too, the second run without progress is the last" {
    make spare --nodes 2 --spares 1 --tasks 1 -- sh -c 'exit 3'
    run timeout -k 5 600 sbatch -W script
    [ "$status" -eq 3 ]
    cat "job$BATS_TEST_NUMBER"-*.log
    [ "$(wc -l <"$RUN/starts")" -eq 2 ]
    grep -q 'stop exit code 3, 2 runs without' "job$BATS_TEST_NUMBER"-*.log
}
