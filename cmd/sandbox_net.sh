# SPDX-License-Identifier: Apache-2.0
# sandbox_net.sh - nodes as far apart as on a real network (--link-gbit)
#
# Read by sandbox.sh.  `merak sandbox` has entered a network namespace of its
# own before it ran that script; everything here is inside of it:
#
#   switch          a bridge, 10.77.0.254: slurmctld, srun, COMMAND
#   portK -- eth0   a pair per node; eth0 is 10.77.0.K and in the node's own
#                   network namespace
#
# Both ends of a pair send through a token bucket, so a node's link is limited
# in either direction, whoever it talks to.  A node also has process ids, IPC
# and host name of its own: libraries that look for the same kernel (UCX asks
# for these namespaces) must not find shared memory between nodes.
#
# Nothing has a name outside, and namespaces, bridge and pairs go with the last
# process in them: there is nothing to be left behind.

net=10.77.0

# Lose nothing, as the networks of clusters do: queues are longer than all
# that TCP sends ahead.  The bucket holds 0.2 ms, or a few packets as TCP hands
# them down (16 KiB here): what a link that was idle sends at once.
limit_link() # interface
{
    local burst=$((link_kbit / 40))

    [ "$burst" -ge 36000 ] || burst=36000
    ip link set "$1" gso_max_size 16384
    tc qdisc add dev "$1" root tbf rate "${link_kbit}kbit" burst "$burst" \
        limit 64mb
}

need_net_programs()
{
    local p missing=

    for p in ip tc unshare hostname mount; do
        command -v "$p" >/dev/null || missing="$missing $p"
    done
    [ -z "$missing" ] || die "--link-gbit: not installed:$missing (Debian:" \
        "apt-get install iproute2 util-linux hostname)"
}

make_switch()
{
    local why

    ip link show switch >/dev/null 2>&1 && return # a second try
    why=$({
        ip link set lo up && ip link add switch mtu 9000 type bridge &&
            ip addr add "$net.254/24" dev switch && ip link set switch up
    } 2>&1) || die "--link-gbit: no bridge in this kernel: ${why%%$'\n'*}"
    steady_tcp
}

# Windows that neither shrink while a rank computes nor probe for less.
steady_tcp()
{
    (
        cd /proc/sys/net/ipv4 || exit
        echo 0 >tcp_slow_start_after_idle
        echo cubic >tcp_congestion_control
        echo 1 >tcp_no_metrics_save
    ) 2>/dev/null
}

# The process that `unshare --fork` at pid $1 started, once it is there.
child_of()
{
    local child= i

    for ((i = 0; i < 100; i++)); do
        read -r child _ 2>/dev/null <"/proc/$1/task/$1/children"
        [ -z "$child" ] || break
        sleep 0.02
    done
    printf '%s' "$child"
}

# Start node $1 and plug it in.
launch_node()
{
    local name=n$1 pid

    failed=$name
    setsid unshare --net --uts --ipc --pid --mount-proc --fork \
        "$BASH" "$self" node --dir "$dir" --node "$1" \
        --link-kbit "$link_kbit" </dev/null >"$dir/$name.out" 2>&1 3>&- &
    pid=$(child_of $!)
    [ -n "$pid" ] || return 1
    printf '%s %s %s\n' "$pid" "$(start_time "$pid")" "$name" \
        >>"$dir/processes"
    # what goes wrong here is told by last_words()
    {
        ip link add "port$1" mtu 9000 type veth \
            peer name eth0 mtu 9000 netns "$pid" &&
            limit_link "port$1" &&
            ip link set "port$1" master switch up
    } >>"$dir/$name.out" 2>&1
}

# What lies in /sys/class/net is of the namespace that mounted /sys.
own_sys()
{
    local cgroup=$dir/n$node/cgroup

    mkdir -p "$cgroup" && mount --rbind /sys/fs/cgroup "$cgroup" &&
        mount -t sysfs sysfs /sys && mount --rbind "$cgroup" /sys/fs/cgroup
}

# In the node, as its process 1: when this ends, all in the node does.
node()
{
    local daemon= i

    trap '[ -z "$daemon" ] || kill -TERM "$daemon"' TERM
    hostname "n$node" && own_sys && ip link set lo up || exit 1
    for ((i = 0; i < 250; i++)); do
        ip link show eth0 >/dev/null 2>&1 && break
        sleep 0.02
    done
    ip addr add "$net.$node/24" dev eth0 && limit_link eth0 &&
        ip link set eth0 up || exit 1
    steady_tcp
    export SLURM_CONF=$dir/slurm.conf
    slurmd -D -N "n$node" &
    daemon=$!
    while kill -0 "$daemon" 2>/dev/null; do
        wait "$daemon"
    done
}
