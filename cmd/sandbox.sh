#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# sandbox.sh - start and stop a private real Slurm on this machine
#
#   sandbox.sh start --dir DIR [--nodes N] [--cpus N] [--plugin FILE]
#                    [--link-kbit N] [--islands LIST --ways LIST]
#                    [--keeper stay|remove]
#   sandbox.sh stop --dir DIR [--keeper remove]
#
# `merak sandbox` is the front; this file owns DIR:
#
#   DIR/slurm.conf, topology.conf, plugstack.conf   the configuration, and
#                    cgroup.conf where no cgroup file system is mounted
#   DIR/munge/       key, socket and log of a munged of its own
#   DIR/ctld/        slurmctld's state and log
#   DIR/nK/          spool, log and temporary files of the slurmd named nK
#   DIR/processes    one line a daemon: pid, start time, name
#
# Nothing is shared with another Slurm on the machine: own keys, sockets,
# ports (on 127.0.0.1 alone) and directories.  A daemon is signalled only if
# its pid still has the start time that was noted, so a stale DIR kills nobody.
#
# Ports are open to all users of the machine, and who can speak to munged and
# read slurm.conf can have tasks run.  An ordinary user's slurmd runs all of
# them as himself, so his DIR is closed to others.  Root's runs them as those
# who ask, as a cluster's does, and is open.  What lies in DIR is trusted (links
# are followed, processes signalled, the configuration used), so DIR must belong
# to the caller, and nobody else may write there, nor replace it from above.
# With --link-kbit or --islands nodes have networks of their own:
# sandbox_net.sh.
#
# --keeper: descriptor 3 is a pipe whose other end the caller holds.  When the
# caller is gone, however it went, the pipe ends and the sandbox stops itself.
# "remove": DIR goes with it.

set -u
umask 022
LC_ALL=C
PATH=$PATH:/usr/sbin:/sbin
export PATH LC_ALL

dir= nodes=4 cpus=8 plugin= keeper=
link_kbit= islands= ways= node=
apart= # nodes have networks of their own, as this option wants
dir_mode=700
[ "$EUID" -ne 0 ] || dir_mode=755
start_seconds=180 # for all daemons; 3 s on an idle machine
self=$(readlink -f "$0")
. "$self-net" || exit 69

die()
{
    printf 'merak sandbox: %s\n' "$*" >&2
    exit 69
}

# An option that is wrong in itself.
misuse()
{
    printf 'merak sandbox: %s\n' "$*" >&2
    exit 66
}

# --- processes ---------------------------------------------------------------

# The kernel's start time of process $1, empty if there is none (or only what
# its parent has yet to collect).
start_time()
{
    local stat

    # the command's name (field 2) may hold spaces: cut it off
    read -r stat 2>/dev/null <"/proc/$1/stat" || return 0
    set -- ${stat##*) }
    [ "$1" != Z ] || return 0
    shift 19
    printf '%s' "$1"
}

# Start the daemon "$2"... in a session of its own, so that a ^C at the
# terminal reaches the command and not the daemons; note it under the name $1.
launch()
{
    local name=$1

    shift
    # No descriptor of ours may stay open in a daemon: a reader of our
    # output would wait for its end, and the keeper's pipe would not close.
    setsid "$@" </dev/null >"$dir/$name.out" 2>&1 3>&- &
    printf '%s %s %s\n' $! "$(start_time $!)" "$name" >>"$dir/processes"
}

is_alive() # pid start-time
{
    [ -n "$2" ] && [ "$(start_time "$1")" = "$2" ]
}

# Print "pid start-time" of what runs on behalf of this sandbox's nodes:
# slurmstepd and tasks.  They are known by their environment, which names our
# slurm.conf; a user's shell that also does is no task and is left alone.
strays()
{
    local p env=SLURM_CONF=$dir/slurm.conf

    # entries of environ end with NUL; one grep, as there are many processes
    grep -lzxF "$env" /proc/[0-9]*/environ 2>/dev/null |
        while IFS=/ read -r _ _ p _; do
            if [ "$(cat "/proc/$p/comm" 2>/dev/null)" = slurmstepd ] ||
                grep -qz '^SLURM_TASK_PID=' "/proc/$p/environ" 2>/dev/null; then
                printf '%s %s\n' "$p" "$(start_time "$p")"
            fi
        done
}

# Signal $1 every "pid start-time" line of standard input that still lives.
signal_all()
{
    local pid when rest

    while read -r pid when rest; do
        is_alive "$pid" "$when" && kill "-$1" "$pid" 2>/dev/null
    done
    return 0
}

# Wait up to $1 tenths of a second until no process of the list is left.
wait_gone()
{
    local n=$1 list pid when rest left

    list=$(cat)
    while :; do
        left=
        while read -r pid when rest; do
            [ -n "$pid" ] && is_alive "$pid" "$when" && left=1
        done <<<"$list"
        [ -z "$left" ] && return 0
        [ $((n -= 1)) -lt 0 ] && return 1
        sleep 0.1
    done
}

# --- configuration -----------------------------------------------------------

# A random block of free ports below the ephemeral range.  Another program
# may take one before our daemon does; that daemon then says so and start()
# tries another block.
choose_ports()
{
    local want=$1 base port used

    used=" $(awk 'FNR > 1 { split($2, a, ":"); print a[2] }' /proc/net/tcp \
        /proc/net/tcp6 2>/dev/null | sort -u | tr '\n' ' ')"
    while :; do
        base=$((10240 + (RANDOM * 32768 + RANDOM) % 22000 / 64 * 64))
        for ((port = base; port < base + want; port++)); do
            case $used in
            *" $(printf %04X "$port") "*) continue 2 ;;
            esac
        done
        printf '%s' "$base"
        return
    done
}

write_topology()
{
    local half=$(((nodes + 1) / 2)) island i=0

    if [ -n "$islands" ]; then
        while read -r island; do
            set -- $island
            echo "SwitchName=leaf$((i += 1)) Nodes=$(IFS=, && echo "${*/#/n}")"
        done <<<"${islands//;/$'\n'}"
        echo "SwitchName=root Switches=leaf[1-$i]"
        return
    fi
    echo "SwitchName=leaf1 Nodes=n[1-$half]"
    if [ "$nodes" -gt "$half" ]; then
        echo "SwitchName=leaf2 Nodes=n[$((half + 1))-$nodes]"
        echo "SwitchName=root Switches=leaf[1-2]"
    else
        echo "SwitchName=root Switches=leaf1"
    fi
}

controller_address()
{
    [ -n "$apart" ] && printf %s "$net.254" || printf 127.0.0.1
}

# Not to be reached from other machines.
communication()
{
    [ -n "$apart" ] ||
        echo CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
}

node_addresses() # this host's name
{
    if [ -n "$apart" ]; then
        printf 'NodeAddr=%s.[1-%d]' "$net" "$nodes"
    else
        printf 'NodeHostname=%s NodeAddr=127.0.0.1' "$1"
    fi
}

own_name()
{
    hostname -s 2>/dev/null || hostname
}

write_config()
{
    local base=$1 user host

    user=$(id -un)
    host=$(own_name)
    write_topology >"$dir/topology.conf"
    : >"$dir/plugstack.conf"
    [ -z "$plugin" ] || echo "optional $plugin" >"$dir/plugstack.conf"
    # TmpFS: the PMIx plugin of several slurmd on one host needs one each.
    # cred_expire also delays a requeued job; the default is two minutes.
    # sched_interval: how soon a job is seen whose time to begin has come.
    # bf_interval: the same of a heterogeneous job, by default 30 s.
    # EnforcePartLimits: what the nodes can never hold is refused, not queued.
    cat >"$dir/slurm.conf" <<CONF
ClusterName=sandbox
SlurmctldHost=$host($(controller_address))
SlurmctldPort=$base
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket,cred_expire=30
$(communication)
StateSaveLocation=$dir/ctld
SlurmctldPidFile=$dir/ctld/pid
SlurmctldLogFile=$dir/ctld/log
SlurmdSpoolDir=$dir/%n/spool
SlurmdPidFile=$dir/%n/pid
SlurmdLogFile=$dir/%n/log
TmpFS=$dir/%n/tmp
PlugStackConfig=$dir/plugstack.conf
MpiDefault=pmix
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
TopologyPlugin=topology/tree
SlurmdParameters=config_overrides
EnforcePartLimits=ALL
SchedulerParameters=batch_sched_delay=0,sched_min_interval=10000,sched_interval=2,bf_interval=2
MailProg=/bin/true
ReturnToService=2
MessageTimeout=60
InactiveLimit=0
KillWait=10
PropagateResourceLimitsExcept=NONE
NodeName=n[1-$nodes] $(node_addresses "$host") \
Port=[$((base + 1))-$((base + nodes))] CPUs=$cpus State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=NO
CONF
}

# slurmd looks for a cgroup file system even though nothing here asks for one;
# containers and chroots may have none.  Older ones cannot be told that there
# is none, but do not look for what version 1 mounts later.
write_cgroup()
{
    local version

    awk '$5 ~ "^/sys/fs/cgroup" && / - cgroup2? /{ found = 1 }
        END { exit !found }' /proc/self/mountinfo && return
    version=$(slurmd -V | sed -n 's/^[^0-9]*\([0-9]*\)\.\([0-9]*\).*/\1\2/p')
    if [ "${version:-0}" -ge 2405 ]; then
        echo CgroupPlugin=disabled
    else
        echo CgroupPlugin=cgroup/v1
    fi >"$dir/cgroup.conf"
}

make_dirs()
{
    local i

    mkdir -p "$dir/munge" "$dir/ctld" || return 1
    for ((i = 1; i <= nodes; i++)); do
        mkdir -p "$dir/n$i/spool" "$dir/n$i/tmp" || return 1
        chmod 1777 "$dir/n$i/tmp"
    done
    (umask 077 && head -c 128 /dev/urandom >"$dir/munge/key")
}

# --- start and stop ----------------------------------------------------------

# Wait until the command "$@" succeeds; fail early if a daemon died.
wait_for()
{
    local pid when name

    while ! "$@" >/dev/null 2>&1; do
        while read -r pid when name; do
            is_alive "$pid" "$when" || {
                failed=$name
                return 1
            }
        done <"$dir/processes"
        if [ "$SECONDS" -ge "$deadline" ]; then
            failed=timeout
            return 1
        fi
        sleep 0.1
    done
}

nodes_are_idle()
{
    [ "$(sinfo -h -N -t idle -o %N 2>/dev/null | sort -u | wc -l)" = "$nodes" ]
}

start_daemons()
{
    local i

    failed=
    deadline=$((SECONDS + start_seconds))
    # --force: a folder that is closed to others is what munged warns of
    launch munged munged --foreground --force --num-threads=2 \
        --key-file="$dir/munge/key" --socket="$dir/munge/socket" \
        --log-file="$dir/munge/log" --pid-file="$dir/munge/pid" \
        --seed-file="$dir/munge/seed"
    wait_for munge -n -S "$dir/munge/socket" || return 1
    launch slurmctld slurmctld -D -i
    for ((i = 1; i <= nodes; i++)); do
        if [ -z "$apart" ]; then
            launch "n$i" slurmd -D -N "n$i"
        else
            launch_node "$i" || return 1
        fi
    done
    wait_for nodes_are_idle
}

# What the daemon that failed said last, on one line.
last_words()
{
    local log=$dir/$failed/log

    [ "$failed" = slurmctld ] && log=$dir/ctld/log
    [ "$failed" = munged ] && log=$dir/munge/log
    cat "$log" "$dir/$failed.out" 2>/dev/null |
        grep -iE 'error|fatal|cannot' | tail -n 1 | sed 's/^\[[^]]*\] //'
}

# Slurm's plugin loads PMIx's library under a name that some distributions have
# in a development package alone; srun then starts nothing, and says little.
warn_of_pmix()
{
    local why

    why=$(grep -hoiE 'can ?not load pmix library' "$dir"/n1/log | head -n 1)
    [ -z "$why" ] || printf 'merak sandbox: %s\n' "Slurm's PMIx plugin does \
not load ($why), so srun needs --mpi=none here and tasks of Merak do not find \
each other: install the libpmix.so that it looks for (Debian: apt-get install \
libpmix-dev)" >&2
}

need_programs()
{
    local p missing=

    for p in munged munge slurmctld slurmd srun sinfo scancel setsid; do
        command -v "$p" >/dev/null || missing="$missing $p"
    done
    [ -z "$missing" ] || die "not installed:$missing (Debian: apt-get" \
        "install munge slurmctld slurmd slurm-client)"
}

# The name under which the daemons look for themselves; without an address
# each waits for the other, and says something else.
need_own_name()
{
    local host

    host=$(own_name)
    getent ahosts "$host" >/dev/null || die "this machine's name, $host, has" \
        "no address: add the line \"127.0.0.1 localhost $host\" to /etc/hosts"
}

# Does the group $1 have no member but this user?  Only a group that has the
# user's own name is believed to: who else has another as his first group cannot
# always be listed.
is_private_group() # gid
{
    local user name gid members

    user=$(id -un) || return 1
    IFS=: read -r name _ gid members < <(getent group "$user") || return 1
    [ "$name" = "$user" ] && [ "$gid" = "$1" ] &&
        { [ -z "$members" ] || [ "$members" = "$user" ]; } &&
        [ "$(getent passwd | awk -F: -v g="$gid" -v u="$user" \
            '$4 == g && $1 != u' | wc -l)" -eq 0 ]
}

# Is $1 this user's, and writable by nobody else?  A sticky folder above lets
# others only add to it; a group of the user alone is no other (umask 002).
is_safe_above() # directory, above DIR
{
    local owner group mode

    read -r owner group mode < <(stat -c '%u %g %a' "$1") || return 1
    [ "$owner" = 0 ] || [ "$owner" = "$EUID" ] || return 1
    [ $((8#$mode & 8#1000)) -eq 0 ] || return 0
    [ $((8#$mode & 8#2)) -eq 0 ] || return 1
    [ $((8#$mode & 8#20)) -eq 0 ] || is_private_group "$group"
}

# DIR, resolved, belongs to the caller and is closed to who must not use it.
check_owner()
{
    local owner name mode above=$dir

    read -r owner name mode < <(stat -c '%u %U %a' "$dir") ||
        die "--dir $dir cannot be examined"
    [ "$owner" = "$EUID" ] || die "--dir $dir belongs to $name: expected a" \
        "directory of your own, or none, which is then made"
    [ $((8#$mode & 8#22)) -eq 0 ] || die "--dir $dir can be written by" \
        "others (mode $mode): chmod go-w it if you trust what lies there"
    [ "$EUID" -eq 0 ] || [ $((8#$mode & 8#77)) -eq 0 ] || die "--dir $dir is" \
        "open to others (mode $mode), who could run commands as you: chmod 700"
    while [ "$above" != / ]; do
        above=$(dirname "$above")
        is_safe_above "$above" || die "--dir $dir: others can replace what" \
            "lies in $above; choose a place that is yours or root's and that no" \
            "group of several users can write to"
    done
}

# The folder of a sandbox that may run: resolved, and ours.
enter_dir()
{
    [ -d "$dir" ] || die "no directory $dir"
    dir=$(cd "$dir" && pwd -P) || exit 69
    check_owner
}

# A unix socket's path has at most 107 characters, and PMIx adds up to 60.
check_dir()
{
    case $dir in
    -*) misuse "--dir: a directory is missing before $dir" ;;
    *[!A-Za-z0-9/._-]*) misuse "--dir $dir: only letters, digits and" \
        "/ . _ - can stand in a slurm.conf" ;;
    esac
    [ ${#dir} -le 48 ] || misuse "--dir $dir: longer than the 48 characters" \
        "that socket paths leave"
}

start()
{
    local try why

    need_programs
    need_own_name
    [ -z "$apart" ] || need_net_programs
    check_dir
    if [ ! -d "$dir" ]; then
        [ ! -e "$dir" ] || misuse "--dir $dir is a file, expected a folder, or" \
            "a name that does not exist yet"
        mkdir -p "$(dirname "$dir")" && mkdir -m "$dir_mode" "$dir" || exit 69
    fi
    enter_dir
    check_dir
    if [ -s "$dir/processes" ]; then
        die "$dir holds a sandbox; \`merak sandbox stop --dir $dir\` ends it"
    fi
    export SLURM_CONF=$dir/slurm.conf
    [ -z "$apart" ] || make_switch
    [ -z "$islands" ] || make_islands
    for try in 1 2 3 4 5; do
        make_dirs || exit 69
        write_cgroup
        write_config "$(choose_ports $((nodes + 1)))"
        if start_daemons; then
            warn_of_pmix
            [ -z "$keeper" ] || start_keeper
            return
        fi
        why="$failed: $(last_words)"
        stop_daemons
        case $why in
        *'in use'*) rm -rf "$dir/ctld" "$dir"/n[0-9]* ;;
        *) break ;;
        esac
    done
    die "cannot start $why (logs in $dir)"
}

start_keeper()
{
    setsid "$BASH" "$self" keep --dir "$dir" --keeper "$keeper" \
        <&3 >/dev/null 2>&1 3>&- &
    printf '%s %s keeper\n' $! "$(start_time $!)" >>"$dir/processes"
}

jobs_are_gone()
{
    [ -z "$(timeout 5 squeue -h -o %i 2>/dev/null)" ]
}

# Jobs first, then what they left, then the daemons, munged last: slurmctld
# and slurmd authenticate each other until they are gone.
stop_daemons()
{
    local n list

    [ -f "$dir/processes" ] || return 0
    export SLURM_CONF=$dir/slurm.conf
    list=$(grep -v ' keeper$' "$dir/processes")
    # without a configuration squeue asks the network for one
    if [ -f "$SLURM_CONF" ] && ! jobs_are_gone; then
        timeout 5 scancel -Q --full $(timeout 5 squeue -h -o %i) 2>/dev/null
        for ((n = 0; n < 50; n++)); do
            jobs_are_gone && break
            sleep 0.1
        done
    fi
    grep -v ' munged$' <<<"$list" | signal_all TERM
    grep -v ' munged$' <<<"$list" | wait_gone 50
    strays | signal_all KILL
    signal_all TERM <<<"$list"
    wait_gone 50 <<<"$list" || signal_all KILL <<<"$list"
    wait_gone 20 <<<"$list"
    rm -f "$dir/processes"
}

remove_if_asked()
{
    [ "$keeper" != remove ] || rm -rf "$dir"
}

stop()
{
    enter_dir
    [ -f "$dir/processes" ] || die "no sandbox runs in $dir"
    grep ' keeper$' "$dir/processes" | signal_all TERM
    stop_daemons
    remove_if_asked
}

# Until the owner is gone.  SIGTERM (from stop) ends the wait, and us.
keep()
{
    enter_dir
    while read -r _; do :; done
    stop_daemons
    remove_if_asked
}

is_count() # text, greatest
{
    case $1 in
    '' | *[!0-9]* | ?????*) return 1 ;;
    esac
    [ "$1" -ge 1 ] && [ "$1" -le "$2" ]
}

verb=${1-}
shift
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || die "$1: its value is missing"
    case $1 in
    --dir) dir=$2 ;;
    --nodes) nodes=$2 ;;
    --cpus) cpus=$2 ;;
    --plugin) plugin=$2 ;;
    --keeper) keeper=$2 ;;
    --link-kbit) link_kbit=$2 apart=--link-gbit ;;
    --islands) islands=$2 apart=--links ;;
    --ways) ways=$2 ;;
    --node) node=$2 ;;
    *) die "unknown option $1" ;;
    esac
    shift 2
done
is_count "$nodes" 60 || misuse "--nodes: expected 1..60, got \"$nodes\""
is_count "$cpus" 256 || misuse "--cpus: expected 1..256, got \"$cpus\""
[ -n "$dir" ] || die "--dir is missing"

case $verb in
start | stop | keep | node) "$verb" ;;
*) die "expected start or stop, got \"$verb\"" ;;
esac
