#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0003-link-nodes.bats - merak sandbox --link-gbit: nodes apart, nothing left
# behind

load cluster
load links

# What a sandbox might leave: interfaces, named namespaces, mounts.
traces()
{
    ip -o link show | awk '{ print $2 }' | sort
    ip netns list
    grep -c . /proc/self/mounts
}

# by_itself FUNCTION: where scripts beside this one add no interface and no mount
by_itself()
{
    unshare --net --mount bash -euc "nap='$nap'
        $(declare -f wait_until nap_runs traces "$1"); $1"
}

@test "tasks of a node share memory, tasks of two nodes do not" {
    need_root
    # UCX 1.13 logs "ep_cfg[0]: tag(..)", 1.18 "cfg#0 tag(..)"
    merak sandbox --nodes 2 --link-gbit 1 -- \
        srun -N1 -n2 env UCX_LOG_LEVEL=info "$make_link" rate >near
    grep -E 'cfg[[#].*(sysv|posix|cma)/memory' near
    merak sandbox --nodes 2 --link-gbit 1 -- \
        srun -N2 -n2 env UCX_LOG_LEVEL=info "$make_link" rate >far
    grep -E 'cfg[[#].*tcp/eth0' far
    run ! grep -E 'cfg[[#].*(sysv|posix|cma)' far
}

@test "nodes have names, addresses and processes of their own" {
    need_root
    run merak sandbox --nodes 3 --link-gbit 1 -- srun -Q -N3 --ntasks-per-node=1 \
        sh -c 'echo $(hostname) $(ls /sys/class/net) $(hostname -I) $(
            tr "\0" " " </proc/1/cmdline | grep -o "node n*[0-9]*")'
    echo "$output"
    [ "$(grep '^n[123]' <<<"$output" | cut -d' ' -f1-4 | sort |
        tr '\n' ';')" = "n1 eth0 lo 10.77.0.1;n2 eth0 lo 10.77.0.2;\
n3 eth0 lo 10.77.0.3;" ]
}

@test "a job of batch and steps runs, sandboxes side by side too" {
    need_root
    for i in 1 2; do
        merak sandbox --nodes 2 --link-gbit 1 -- sh -c "
            sbatch -W -N2 -o out$i --wrap \
                'srun -Q --ntasks-per-node=1 hostname; sleep 1'" 3>&- &
        pids[i]=$!
    done
    wait "${pids[1]}" && wait "${pids[2]}"
    [ "$(sort out1 | tr '\n' ' ')" = "n1 n2 " ]
    [ "$(sort out2 | tr '\n' ' ')" = "n1 n2 " ]
}

ends_well()
{
    local before said

    before=$(traces)
    said=$(merak sandbox --nodes 2 --link-gbit 1 -- \
        sh -c "sbatch -N2 -o /dev/null --wrap 'srun $nap'; srun $nap &
            while [ \"\$(squeue -h -s | wc -l)\" -lt 1 ]; do
                sleep 0.1
            done; echo left \$SLURM_CONF" 2>&1)
    echo "$said"
    [ "$(traces)" = "$before" ]
    ! pgrep -f "$(sed -n 's/^left \(.*\)slurm.conf/\1/p' <<<"$said")" || exit
    ! nap_runs || exit
}

@test "nothing is left when the command ends, jobs running or not" {
    need_root
    by_itself ends_well
}

is_killed()
{
    local before sandbox

    before=$(traces)
    merak sandbox --nodes 2 --link-gbit 1 -- \
        srun -N2 --ntasks-per-node=1 $nap 3>&- &
    sandbox=$!
    wait_until nap_runs
    kill -KILL "$sandbox"
    wait "$sandbox" || true
    no_trace() { ! nap_runs && [ "$(traces)" = "$before" ]; }
    wait_until no_trace
}

@test "nothing is left after SIGKILL" {
    need_root
    by_itself is_killed
}

@test "what cannot be had is refused in one line that says why" {
    for n in x 0 101 -1 1.2.3 "" 1e3; do
        run merak sandbox --link-gbit "$n" -- true
        echo "$output"
        [ "$status" -eq 66 ]
        [ "$output" = "merak sandbox: --link-gbit: expected a number \
from 0.001 to 100, got \"$n\"" ]
    done
    run merak sandbox start --dir "$BATS_TEST_TMPDIR/s" --link-gbit 1
    [ "$status" -eq 66 ]
    [[ $output == "merak sandbox: --link-gbit: that network exists only"* ]]
    [ "$EUID" -ne 0 ] || only="setpriv --bounding-set -sys_admin"
    run $only merak sandbox --link-gbit 1 -- true
    echo "$output"
    [ "$status" -eq 69 ]
    [[ $output == "merak sandbox: --link-gbit: only root"*"sudo"* ]]
    [ "${#lines[@]}" -eq 1 ]
}

@test "islands that a sandbox cannot have are refused by what they lack" {
    need_root
    # sites NODES-OF-A NODES-OF-B RATE LATENCY
    sites()
    {
        cat >sites.json <<END
{"islands": [{"name": "a", "nodes": $1}, {"name": "b", "nodes": $2}],
 "between": [["a", "b", {"bytes_per_s": $3, "latency_s": $4}]]}
END
    }
    refused() # CODE TEXT [OPTION]...
    {
        local code=$1 text=$2

        shift 2
        run merak sandbox --links sites.json "$@" -- true
        echo "$status $output"
        [ "$status" -eq "$code" ] && [ "${#lines[@]}" -eq 1 ] &&
            [[ $output == "merak sandbox: --links: "*"$text"* ]]
    }
    sites '"n[1-2]"' '"n[4-5]"' 1e7 0
    refused 66 'has node n5, and a sandbox has n[1-4]'
    sites '"n[1-2]"' '"n[2-3]"' 1e7 0
    refused 66 'n2 is in two islands'
    sites '"n[1-2]"' 2 1e7 0
    refused 66 '1 of 2 islands have names'
    sites 2 2 100 0
    refused 66 'between "a" and "b": 100 bytes/s'
    sites 40 40 1e7 0
    refused 66 '80 nodes together'
    sites 1 1 1e7 0
    refused 66 'have 2 nodes together, and --nodes 3' --nodes 3
    # where the kernel can delay packets, they are
    sites 1 1 1e7 0.02
    if ! unshare --net tc qdisc add dev lo root netem delay 1ms; then
        refused 69 'no netem'
    fi
}
