#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0001-sandbox.bats - merak sandbox: what it gives and that nothing outlives it
#
# modes: root user

load cluster

setup()
{
    cd "$BATS_TEST_TMPDIR"
    DIR=$(mktemp -d /tmp/merak-s-XXXXXX)
    [ "$EUID" -ne 0 ] || chmod 755 "$DIR"
}

teardown()
{
    rm -rf "$DIR"
}

# Processes whose environment names a slurm.conf in $1.
processes_of()
{
    local p

    grep -lzF "SLURM_CONF=$1/" /proc/[0-9]*/environ 2>/dev/null |
        while IFS=/ read -r _ _ p _; do
            echo "$p $(cat "/proc/$p/comm")"
        done
}

# Nothing runs in $1 before long.
assert_gone()
{
    local i left

    for ((i = 0; i < 1500; i++)); do
        left=$(processes_of "$1")
        [ -n "$left" ] || return 0
        sleep 0.2
    done
    echo "still there: $left"
    return 1
}

@test "four nodes under two leaf switches, PMIx, and the plugin" {
    run sinfo -h -o %D
    [ "$output" = 4 ]
    run srun -N4 --ntasks-per-node=1 sh -c 'echo $SLURM_TOPOLOGY_ADDR $PMIX_RANK'
    [ "$(sort <<<"$output" | tr '\n' ';')" = \
        "root.leaf1.n1 0;root.leaf1.n2 1;root.leaf2.n3 2;root.leaf2.n4 3;" ]
    srun --help | grep -q -- --merak-tp
}

# Each sandbox takes seconds: one shows all that a command meets.
@test "nodes as asked for, no foreign variables, the command's exit code" {
    export SLURM_JOB_ID=1 SLURM_NTASKS=9 MERAK_TP=3 PMIX_RANK=0 SRUN_X=1
    run merak sandbox --nodes 3 --cpus 7 -- sh -c 'sinfo -h -o "%D %c"
        env | grep -E "^(SLURM|MERAK|PMIX|SRUN)"; exit 7'
    echo "$output"
    [ "$status" -eq 7 ]
    [ "${lines[0]}" = "3 7" ]
    [[ ${lines[1]} == SLURM_CONF=*/merak-*/slurm.conf ]]
    [ "${#lines[@]}" -eq 2 ]
    # the temporary directory is removed
    [ ! -e "$(dirname "${lines[1]#*=}")" ]
}

@test "nothing is left when the command ends, jobs running or not" {
    run merak sandbox --nodes 2 --dir "$DIR" -- \
        sh -c 'srun -N2 sleep 600 & sbatch -o /dev/null --wrap "sleep 601";
            while [ "$(squeue -h -t R | wc -l)" != 2 ]; do sleep 0.1; done
            kill -9 $$'
    [ "$status" -eq 137 ]
    [ -z "$(processes_of "$DIR")" ]
}

# Start one in the background; its pid is in $sandbox, its command has begun.
start_background()
{
    merak sandbox --nodes 1 --dir "$DIR" -- \
        sh -c 'echo >begun; exec sleep 600' 3>&- &
    sandbox=$!
    for ((i = 0; i < 3000; i++)); do
        [ ! -e begun ] || return 0
        sleep 0.1
    done
    echo "the command did not begin"
    return 1
}

@test "nothing is left after SIGTERM" {
    start_background
    kill -TERM "$sandbox"
    wait "$sandbox" || true
    assert_gone "$DIR"
}

# Slurm 22.05's srun is such a one after some heterogeneous steps.
@test "a command that heeds no signal is killed, and what it started" {
    merak sandbox --nodes 1 --dir "$DIR" -- bash -c 'trap "" TERM
        (trap "" TERM; exec sleep 600) & echo >begun; sleep 600; wait' \
        2>said 3>&- &
    sandbox=$!
    for ((i = 0; i < 300; i++)); do
        [ ! -e begun ] || break
        sleep 0.1
    done
    kill -TERM "$sandbox"
    wait "$sandbox" && rc=0 || rc=$?
    [ "$rc" -eq 137 ]
    [ "$(cat said)" = "merak sandbox: the command does not end: killed" ]
    assert_gone "$DIR"
}

@test "what the nodes can never hold is refused, with the way out" {
    run merak sandbox --nodes 2 --cpus 3 -- srun -n7 true
    echo "$output"
    [ "$status" -eq 1 ]
    [ "${lines[0]}" = "srun: error: Unable to allocate resources: More \
processors requested than permitted" ]
    [ "${lines[1]}" = "merak sandbox: a job asked for more than the \
available 2 nodes of 3 CPUs; --nodes and --cpus set these" ]
    [ "${#lines[@]}" -eq 2 ]
}

@test "nothing is left after SIGKILL" {
    start_background
    # libtool's wrapper is a shell that became the program
    kill -KILL "$sandbox"
    wait "$sandbox" || true
    for p in $(processes_of "$DIR" | sed -n 's/ sleep$//p'); do
        kill "$p"
    done
    assert_gone "$DIR"
}

@test "two run side by side" {
    for i in 1 2; do
        merak sandbox --nodes 2 -- srun -Q -N2 --ntasks-per-node=1 \
            sh -c 'sleep 2; echo $SLURMD_NODENAME' >"out$i" 2>&1 3>&- &
        pids[i]=$!
    done
    wait "${pids[1]}"
    wait "${pids[2]}"
    [ "$(sort out1 | tr '\n' ' ')" = "n1 n2 " ]
    [ "$(sort out2 | tr '\n' ' ')" = "n1 n2 " ]
}

@test "one can be left running and be used from any shell" {
    eval "$(merak sandbox start --nodes 2 --dir "$DIR/lasting")"
    [ "$SLURM_CONF" = "$DIR/lasting/slurm.conf" ]
    run srun -N2 --ntasks-per-node=1 true
    [ "$status" -eq 0 ]
    run merak sandbox start --dir "$DIR/lasting"
    [ "$status" -eq 69 ]
    [ "$output" = "merak sandbox: $DIR/lasting holds a sandbox; \
\`merak sandbox stop --dir $DIR/lasting\` ends it" ]
    merak sandbox stop --dir "$DIR/lasting"
    unset SLURM_CONF
    [ -z "$(processes_of "$DIR/lasting")" ]
    # what it left does not keep another from starting there
    run -127 merak sandbox --nodes 1 --dir "$DIR/lasting" -- /no/such/command
    [[ $output == *"/no/such/command: No such file"* ]]
}

@test "stop does not signal a process that took over a daemon's pid" {
    sleep 600 3>&- &
    echo "$! 1 slurmctld" >"$DIR/processes"
    merak sandbox stop --dir "$DIR"
    kill -0 $!
    kill $!
}

# bad CODE TEXT OPTION...: one line with TEXT, that exit code
bad()
{
    local code=$1 text=$2

    shift 2
    run merak sandbox "$@"
    echo "$status $output"
    [ "$status" -eq "$code" ]
    [ "${#lines[@]}" -eq 1 ]
    [[ $output == "merak sandbox: "*"$text"* ]]
}

@test "bad options are refused in one line" {
    bad 66 'expected an integer 1..60, got "x"' --nodes x -- true
    bad 66 'expected an integer 1..60, got "61"' --nodes 61 -- true
    bad 66 'expected an integer 1..60, got ""' --nodes "" -- true
    bad 66 'expected an integer 1..60, got "0"' --nodes 0 -- true
    bad 66 'expected an integer 1..256, got "0"' --cpus 0 -- true
    bad 66 'unknown option "--what"' --what -- true
    bad 66 "--nodes needs a value" --nodes
    bad 66 "expected \`-- COMMAND\`" --nodes 2
    bad 66 "expected \`-- COMMAND\`"
    bad 66 "expected \`-- COMMAND\`" start
    bad 69 "no directory /no/such" stop --dir /no/such
    cd "$BATS_TEST_TMPDIR"
    touch there
    bad 66 "there is a file, expected a folder" start --dir there
    bad 69 "no sandbox runs" stop --dir "$DIR"
    bad 69 "/no/such.so: No such file" --plugin /no/such.so -- true
    bad 66 "a directory is missing" --dir -- true
    bad 66 "can stand in a slurm.conf" --dir "$DIR/a b" -- true
    bad 66 "longer than" --dir "$DIR/$(printf 'x%.0s' {1..60})" -- true
}

# The directory of a sandbox is the caller's alone: what lies there is trusted.
@test "a directory that others can change is refused" {
    mkdir -m 777 "$DIR/wide"
    bad 69 "can be written by others (mode 777)" start --dir "$DIR/wide"
    bad 69 "can be written by others" stop --dir "$DIR/wide"
    mkdir -m 700 "$DIR/wide/in"
    bad 69 "others can replace what lies in $DIR/wide" --dir "$DIR/wide/in" -- true
    chmod 1777 "$DIR/wide" # where others may only add
    bad 69 "no sandbox runs" stop --dir "$DIR/wide/in"
    # umask 002: a group of the user alone is no other, that of several is
    mkdir -m 775 "$DIR/shared"
    mkdir -m 700 "$DIR/shared/in"
    if [ "$(id -gn)" = "$(id -un)" ]; then
        bad 69 "no sandbox runs" stop --dir "$DIR/shared/in"
    fi
    [ "$EUID" -ne 0 ] || {
        chgrp daemon "$DIR/shared"
        bad 69 "no group of several users can write to" \
            stop --dir "$DIR/shared/in"
        chgrp root "$DIR/shared"
        getent() { command getent "$@" && [ "$1" = passwd ] &&
            echo other:x:4242:0::/:/bin/sh; }
        export -f getent
        bad 69 "others can replace what" stop --dir "$DIR/shared/in"
        unset -f getent
    }
    [ "$EUID" -eq 0 ] || {
        mkdir -m 755 "$DIR/open"
        bad 69 "who could run commands as you: chmod 700" --dir "$DIR/open" -- true
        return 0
    }
    install -d -o nobody -m 755 "$DIR/theirs"
    echo precious >"$DIR/mine"
    ln -s "$DIR/mine" "$DIR/theirs/topology.conf"
    bad 69 "belongs to nobody: expected a directory of your own" \
        start --dir "$DIR/theirs"
    [ "$(cat "$DIR/mine")" = precious ]
    sleep 600 3>&- &
    echo "$! $(sed 's/.*) //' "/proc/$!/stat" | cut -d' ' -f20) x" \
        >"$DIR/theirs/processes"
    bad 69 "belongs to nobody" stop --dir "$DIR/theirs"
    kill $!
}

# as USER COMMAND...: this test's, and not root's
as()
{
    setpriv --reuid "$1" --regid "$(id -g "$1")" --clear-groups \
        env -u SLURM_CONF HOME=/tmp PATH="$PATH" "${@:2}"
}

@test "another user runs, reads and stops nothing of an ordinary user's" {
    local i pid rc command pids=() conf=$DIR/known.conf

    [ "$EUID" -eq 0 ] || skip "needs root to become two users"
    chown nobody "$DIR" && cd "$DIR"
    as nobody merak sandbox --nodes 1 --dir "$DIR/theirs" -- sh -c "
        : >'$DIR/begun'
        until [ -e '$DIR/go' ]; do sleep 0.1; done
        srun -n1 id -un" >out 2>&1 3>&- &
    pid=$!
    for ((i = 0; i < 300; i++)); do
        [ ! -e "$DIR/begun" ] || break
        sleep 0.1
    done
    # he may have guessed all that the configuration says
    grep -v PlugStackConfig "$DIR/theirs/slurm.conf" >"$conf"
    [ -z "$(as daemon find "$DIR/theirs" -mindepth 1 2>/dev/null)" ]
    # each tries for a while
    for command in "srun -n1 id -un" sinfo "scontrol shutdown"; do
        as daemon env SLURM_CONF="$conf" timeout -k 5 100 $command \
            >"said.${command%% *}" 2>&1 3>&- &
        pids+=("$!")
    done
    for ((i = 0; i < 3; i++)); do
        wait "${pids[i]}" && rc=0 || rc=$?
        [ "$rc" -ne 0 ] && [ "$rc" -ne 124 ]
    done
    tail -n 2 said.*
    grep -q munge said.srun
    run ! grep -q nobody said.*
    run -69 as daemon merak sandbox stop --dir "$DIR/theirs"
    run ! grep -rwiE 'uid[ =:]*'"$(id -u daemon)"'|user[ =:]*daemon' "$DIR/theirs"
    : >"$DIR/go"
    wait "$pid"
    cat out
    [ "$(cat out)" = nobody ]
}

# changed COMMAND: start a sandbox on a machine that the command has changed
changed()
{
    [ "$EUID" -eq 0 ] && unshare --mount true || skip "needs root, for mounts"
    run timeout -k 5 120 unshare --mount --propagation private bash -c "$1"'
        merak sandbox --nodes 1 --plugin none -- srun -Q -n1 echo ran'
    echo "$status $output"
}

@test "neither a cgroup file system is needed nor an address of localhost" {
    echo "127.0.0.1 $(hostname -s)" >hosts
    changed 'mount --bind hosts /etc/hosts
        umount -R /sys/fs/cgroup 2>/dev/null ||
            mount -t tmpfs none /sys/fs/cgroup;'
    [ "$output" = ran ]
}

@test "a machine without an address of its own is told so" {
    echo "127.0.0.1 localhost" >hosts
    [ "$EUID" -ne 0 ] || ! unshare --mount --propagation private sh -c \
        'mount --bind hosts /etc/hosts && getent ahosts "$(hostname -s)"' ||
        skip "its name is known without /etc/hosts"
    changed 'mount --bind hosts /etc/hosts;'
    [ "$status" -eq 69 ]
    [ "$output" = "merak sandbox: this machine's name, $(hostname -s), has no \
address: add the line \"127.0.0.1 localhost $(hostname -s)\" to /etc/hosts" ]
}

@test "a directory that cannot be written is named" {
    run merak sandbox --dir /proc/no -- true
    [ "$status" -eq 69 ]
    [[ $output == *"/proc/no"* ]]
}
