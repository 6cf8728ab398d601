#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0612-survive.bats - jobs that are killed at random instants, lose nodes and
# run over their time limit finish by themselves, with the losses of a run that
# nobody disturbed, to the bit
#
# A sample of it; with SURVIVE_SECONDS=SECONDS of work (600 for a night) a job
# of that much under limits of 2 minutes, and ten kills and two lost nodes.

load cluster
load jobs

setup_file()
{
    cd "$BATS_FILE_TMPDIR"
    merak data pack --tokenizer byte --out text \
        /usr/share/common-licenses/GPL-3 >/dev/null
    cat >small.json <<'JSON'
{"model_type": "gpt2", "n_layer": 2, "n_head": 4, "n_embd": 128,
 "vocab_size": 257, "n_positions": 64}
JSON
}

setup()
{
    cd "$BATS_FILE_TMPDIR"
    RUN=$BATS_TEST_TMPDIR/run
    TRAIN=(merak train --model "$PWD/small.json" --data "$PWD/text" --seq 64
        --global-batch 8 --threads 1 --eval-samples 0 --deadline 60)
    LOG=job$BATS_TEST_NUMBER-'*'.log
}

teardown()
{
    scancel -u "$(id -un)"
    assert_no_job_left
    assert_no_node_drained
}

# make KIND OPTION...: the script of a job on two nodes of two tasks
make()
{
    merak jobscript "$1" --cpus 1 --nodes 2 --tasks 2 --tp 2 --pp 2 --shared \
        --run-dir "$RUN" --name "job$BATS_TEST_NUMBER" "${@:2}" >script
}

# losses FILE: of each step the last time it was done
losses()
{
    jq -s -c 'group_by(.step)[] | last | [.step, .loss, .grad_norm]' "$1"
}

# same_as_undisturbed STEPS OPTION...: RUN's losses
same_as_undisturbed()
{
    local steps=$1

    shift
    srun -Q -N2 -n4 --ntasks-per-node=2 --merak-tp=2 --merak-pp=2 \
        "${TRAIN[@]}" --steps "$steps" "$@" --metrics "$RUN/calm.jsonl" \
        2>"$RUN/calm.log" || cat "$RUN/calm.log"
    [ "$(wc -l <"$RUN/calm.jsonl")" -eq "$steps" ]
    diff <(losses "$RUN/calm.jsonl") <(losses "$RUN/metrics.jsonl")
}

newest()
{
    cat "$RUN/ckpt/LATEST" 2>/dev/null || echo none
}

is_new()
{
    [ "$(newest)" != "$1" ] || [ -e "$RUN/DONE" ]
}

running()
{
    squeue -h -t R -o "$1"
}

has_started()
{
    [ -e "$RUN/DONE" ] || [ "$(wc -l <"$RUN/starts")" -gt "$1" ]
}

# A node that still ends a job's step cannot be resumed: asked again each time.
serves()
{
    scontrol update nodename="$1" state=resume 2>/dev/null || true
    [ -n "$(sinfo -h -n "$1" -t idle,alloc,mix,comp -o %N)" ]
}

# disturb KIND: at a random instant, once there is progress;
# returns when the next job of the chain has started
disturb()
{
    local starts lost

    within 600 is_new "$(newest)"
    starts=$(wc -l <"$RUN/starts")
    sleep "$(awk "BEGIN { srand($RANDOM); print 0.6 * rand() }")"
    [ ! -e "$RUN/DONE" ] || return 0
    case $1 in
    # as preemption: TERM, by which the program saves, and KILL
    preempt) scancel --signal=KILL --full "$(running %A)" ;;
    # and without a word
    crash) scancel --signal=KILL "$(running %A).0" ;;
    node)
        lost=$(scontrol show hostnames "$(running %N)" | tail -n 1)
        scontrol update nodename="$lost" state=down reason=test
        echo "$lost" >>"$RUN/lost"
        ;;
    esac
    within 600 has_started "$starts"
}

# chain STEPS KIND...: disturbed so, one after the other
chain()
{
    local steps=$1 kind

    shift
    make chain --time 60 --save-seconds 60 -- "${TRAIN[@]}" --steps "$steps" \
        --ckpt-every 3
    MAX_CRASHES=100 sbatch script
    for kind in "$@"; do
        disturb "$kind"
    done
    within 1800 test -e "$RUN/DONE"
    cat "$RUN/starts" $LOG
    # one more than disturbances: none came too late
    [ "$(wc -l <"$RUN/starts")" -eq $(($# + 1)) ]
    # nodes come back by themselves, as their slurmd registers, or are asked to;
    # the chain has two others and does not wait for them
    sort -u "$RUN/lost" | while read -r node; do
        within 300 serves "$node"
    done
    same_as_undisturbed "$steps"
}

@test "killed at a random instant and robbed of a node it ends with the same losses" {
    chain "${SURVIVE_STEPS:-100}" crash node
}

@test "ten ends at random instants and two lost nodes change nothing" {
    [ -n "${SURVIVE_SECONDS-}" ] || skip "for a night: SURVIVE_SECONDS=600"
    # so many that none comes after the end
    chain 1500 preempt crash preempt crash preempt node preempt crash preempt \
        crash preempt node
}

@test "much work under a short limit finishes by itself" {
    [ -n "${SURVIVE_SECONDS-}" ] || skip "for a night: SURVIVE_SECONDS=600"
    # how many steps that is
    srun -Q -N2 -n4 --ntasks-per-node=2 --merak-tp=2 --merak-pp=2 \
        "${TRAIN[@]}" --steps 40 --metrics rate.jsonl 2>rate.log
    steps=$(jq -s --argjson s "$SURVIVE_SECONDS" \
        '$s / (map(.step_s) | sort | .[length / 2 | floor]) | ceil' rate.jsonl)
    make single --time 2 --save-seconds 45 -- "${TRAIN[@]}" \
        --steps "$steps" --ckpt-every 1000
    sbatch script
    within $((SURVIVE_SECONDS * 10 + 600)) test -e "$RUN/DONE"
    cat $LOG
    [ "$(grep -c 'exit code 75' $LOG)" -ge $((SURVIVE_SECONDS / 120)) ]
    same_as_undisturbed "$steps"
}
