#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0010-refuse.bats - what srun refuses: one line, exit code 66, nothing
# started, no node drained
#
# modes: root guest user

load cluster

# rejects TEXT OPTION...: srun with these options refuses with just this line
rejects()
{
    local text=$1

    shift
    refuse srun -Q "$@" echo started
    [ "$line" = "srun: error: merak: $text" ]
}

@test "tasks that tp x pp does not divide" {
    rejects "12 tasks cannot be split into tp=8 x pp=1; nearest: 8 or 16 tasks" \
        -n12 --merak-tp=8
    rejects "4 tasks cannot be split into tp=2 x pp=4; nearest: 8 tasks" \
        -n4 --merak-tp=2 --merak-pp=4
    rejects "4 tasks cannot be split into tp=2 x cp=3 x pp=1; nearest: 6 tasks" \
        -n4 --merak-tp=2 --merak-cp=3
    rejects "4 tasks cannot be split into tp=8 x ep=2 x pp=1; nearest: 16 tasks" \
        -n4 --merak-tp=8 --merak-ep=2
    rejects "4 tasks are not a multiple of the 32 of tp=8 x ep=2 x pp=auto x \
dp=2; nearest: 32 tasks" -n4 --merak-tp=8 --merak-ep=2 --merak-pp=auto --merak-dp=2
    rejects "1 task cannot be split into tp=1 x pp=2; nearest: 2 tasks" \
        -n1 --merak-pp=2
    rejects "4 tasks cannot be split into tp=65535 x pp=65535; nearest: \
4294836225 tasks" -n4 --merak-tp=65535 --merak-pp=65535
}

@test "a dp that does not fit" {
    rejects "tp=2 x pp=1 x dp=3 makes 6, not the 4 tasks of the step; nearest: \
dp=2, or 6 tasks" -n4 --merak-tp=2 --merak-dp=3
}

@test "a node whose tasks are no multiple of tp" {
    rejects "node n1 has 3 tasks (of 3,1), not a multiple of tp=2; nearest: \
--ntasks-per-node=2" -n4 -N2 -m plane=3 --overcommit --merak-tp=2
    rejects "node n1 has 3 tasks (of 3,1), not a multiple of tp x ep=2; nearest: \
--ntasks-per-node=2" -n4 -N2 -m plane=3 --overcommit --merak-ep=2
}

# These would wait for an hour if they were submitted.
@test "what no nodes can change is refused before there is a job" {
    rejects "12 tasks cannot be split into tp=8 x pp=1; nearest: 8 or 16 tasks" \
        --begin=now+1hour -n12 --merak-tp=8
    rejects "tp=4 does not fit in nodes of 2 tasks; nearest: \
--ntasks-per-node=4, tp=2, or --merak-tp-domain=any" \
        --begin=now+1hour -N2 --ntasks-per-node=2 --merak-tp=4
    rejects "3 tasks in each node are not a multiple of tp=2; nearest: \
--ntasks-per-node=2" --begin=now+1hour -N2 -n6 --ntasks-per-node=3 --merak-tp=2
    rejects "4 tasks on 4 nodes: a node has fewer than tp=2; nearest: 8 tasks, \
-N 2, or --merak-tp-domain=any" --begin=now+1hour -N4 -n4 --merak-tp=2
    rejects "6 tasks are not a multiple of the 4 of tp=auto x pp=4 x dp=auto; \
nearest: 8 tasks" --begin=now+1hour -n6 --merak-tp=auto --merak-pp=4
    cd "$BATS_TEST_TMPDIR"
    rejects "--merak-plan: absent.json: No such file or directory" \
        --begin=now+1hour -n2 --merak-plan=absent.json
}

@test "values that are no degree" {
    for value in x 0 -1 65536 99999999999999999999 1.5 2x "" " 2" 0x2; do
        for option in tp pp dp; do
            rejects "--merak-$option: expected an integer 1..65535 or auto, \
got \"$value\"" -n2 "--merak-$option=$value"
        done
    done
}

@test "words that are no order, domain, map or plan" {
    rejects '--merak-order: expected tp-dp-pp, tp-pp-dp or auto, got "dp"' \
        -n2 --merak-order=dp
    rejects '--merak-env: expected none or torch, got "mpi"' -n2 --merak-env=mpi
    rejects '--merak-tp-domain: expected node, leaf or any, got "rack"' \
        -n2 --merak-tp-domain=rack
    rejects '--merak-map: expected show, quiet, or a file with a / in its '\
'name, got "verbose"' -n2 --merak-map=verbose
    rejects '--merak-plan: expected a file of `merak plan --json` (the rank '\
'map has --merak-map), got "show"' -n2 --merak-plan=show
}

@test "two values for one option" {
    rejects '--merak-tp: one value expected, was "2", got "1"' \
        -n2 --merak-tp=2 --merak-tp=1
}

@test "a long value is cut, not overrun" {
    refuse srun -n2 "--merak-tp=$(printf '1%.0s' {1..5000})" echo started
    [ "${#line}" -lt 250 ]
    [[ $line == *'--merak-tp: too long, got "1111'* ]]
}

@test "the environment is refused like the options, by its own name" {
    MERAK_TP=x rejects 'MERAK_TP: expected an integer 1..65535 or auto, got "x"' \
        -n2
    MERAK_PP=3 rejects "4 tasks cannot be split into tp=1 x pp=3; nearest: 3 \
or 6 tasks" -n4
}

@test "an option spares a mistake in the environment" {
    MERAK_TP=x run srun -n2 --merak-tp=2 sh -c 'echo $MERAK_TP_SIZE'
    [ "$output" = "$(printf '2\n2')" ]
}

@test "torch needs ranks that srun knows" {
    rejects "--merak-env=torch needs ranks that srun knows, and a degree is \
auto: give numbers, or a plan" -n2 --merak-tp=auto --merak-env=torch
}

@test "what is said beside auto must divide the tasks" {
    rejects "6 tasks are not a multiple of the 4 of tp=auto x pp=4 x dp=auto; \
nearest: 8 tasks" -n6 --merak-tp=auto --merak-pp=4
}

@test "sbatch and salloc refuse before there is a job" {
    refuse sbatch --merak-tp=0 --wrap 'echo started'
    [ "$line" = "sbatch: error: merak: --merak-tp: expected an integer \
1..65535 or auto, got \"0\"" ]
    refuse salloc --merak-pp=x -n2 echo started
    [ "$line" = "salloc: error: merak: --merak-pp: expected an integer \
1..65535 or auto, got \"x\"" ]
}

@test "components of a heterogeneous step that disagree" {
    rejects '--merak-tp: one value expected, was "2", got "1"' \
        -n2 --merak-tp=2 true : -n2 --merak-tp=1
}

# In an allocation of somebody else's the refused step must not hold its CPUs.
@test "in an allocation the next step runs at once" {
    cat >"$BATS_TEST_TMPDIR/steps" <<'STEPS'
srun -Q --merak-tp=3 echo started
echo "exit code $?"
srun -Q --merak-tp=2 sh -c 'echo $MERAK_TP_SIZE'
STEPS
    run --separate-stderr timeout -k 5 600 salloc -Q -N2 --ntasks-per-node=2 \
        sh "$BATS_TEST_TMPDIR/steps"
    echo "$output / $stderr"
    [ "$status" -eq 0 ]
    [ "$output" = "$(printf 'exit code 66\n2\n2\n2\n2')" ]
    [ "${#stderr_lines[@]}" -eq 1 ]
    [ "${stderr_lines[0]}" = "srun: error: merak: 4 tasks cannot be split into \
tp=3 x pp=1; nearest: 3 or 6 tasks" ]
    assert_no_job_left
    assert_no_node_drained
}

# Where the tasks are is known when the step exists: its tasks end at once, and
# what srun says of them, or has to say later, is read as ever.
@test "a step refused in an allocation ends, and srun goes on speaking" {
    local id

    cd "$BATS_TEST_TMPDIR"
    id=$(salloc -N2 --exclusive --no-shell 2>&1 |
        sed -n 's/.*Granted job allocation //p')
    run --separate-stderr timeout -k 5 600 srun -Q --jobi="$id" -N2 -n4 \
        -m plane=3 --overcommit --merak-tp=2 echo started
    echo "$status $output / $stderr"
    [ "$status" -eq 66 ]
    [ -z "$output" ]
    [ "${stderr_lines[0]}" = "srun: error: merak: node n1 has 3 tasks (of \
3,1), not a multiple of tp=2; nearest: --ntasks-per-node=2" ]
    [[ ${stderr_lines[*]:1} == *"srun: error: n2: task 3: Exited with exit \
code 66"* ]]
    run timeout -k 5 600 srun -Q --jobid="$id" -N2 \
        --ntasks-per-node=2 --merak-tp=2 sh -c 'echo $MERAK_TP_SIZE'
    scancel "$id"
    echo "$output"
    [ "$output" = "$(printf '2\n2\n2\n2')" ]
    assert_no_job_left
    assert_no_node_drained
}

@test "a batch job's refused step is the job's exit code" {
    cd "$BATS_TEST_TMPDIR"
    run timeout -k 5 600 sbatch -W -Q -n4 -o out --wrap 'srun --merak-tp=3 echo started'
    [ "$status" -eq 66 ]
    [ "$(cat out)" = "srun: error: merak: 4 tasks cannot be split into tp=3 x \
pp=1; nearest: 3 or 6 tasks" ]
    assert_no_job_left
    assert_no_node_drained
}
