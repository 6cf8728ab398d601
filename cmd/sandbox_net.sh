# SPDX-License-Identifier: Apache-2.0
# sandbox_net.sh - nodes as far apart as on a real network (--link-gbit,
# --links)
#
# Read by sandbox.sh.  `merak sandbox` has entered a network namespace of its
# own before it ran that script; everything here is inside of it:
#
#   switch          a bridge, 10.77.0.254: slurmctld, srun, COMMAND
#   portK -- eth0   a pair per node; eth0 is 10.77.0.K and in the node's own
#                   network namespace
#
# With --link-gbit both ends of a pair send through a token bucket, so a node's
# link is limited in either direction, whoever it talks to.  With --links nodes
# are plugged into their island's bridge instead, and
#
#   islandI         a bridge
#   upI -- downI    a pair from it to the switch
#
# upI has a token bucket for each other island, which all nodes of the island
# share: a way from one island to another, and in upJ one for the way back.
# What goes to the switch itself, as to slurmctld, is not limited.
#
# A node also has process ids, IPC
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
    ip link set "$1" gso_max_size 16384 || return
    [ -n "$link_kbit" ] || return 0
    tc qdisc add dev "$1" root tbf rate "${link_kbit}kbit" burst "$burst" \
        limit 64mb
}

need_net_programs()
{
    local p missing=

    for p in ip tc unshare hostname mount; do
        command -v "$p" >/dev/null || missing="$missing $p"
    done
    [ -z "$missing" ] || die "$apart: not installed:$missing (Debian:" \
        "apt-get install iproute2 util-linux hostname)"
}

make_switch()
{
    local why

    ip link show switch >/dev/null 2>&1 && return # a second try
    why=$({
        ip link set lo up && ip link add switch mtu 9000 type bridge &&
            ip addr add "$net.254/24" dev switch && ip link set switch up
    } 2>&1) || die "$apart: no bridge in this kernel: ${why%%$'\n'*}"
    steady_tcp
}

# Windows that neither shrink while a rank computes nor probe for less, and
# nothing sent again because it is late.
steady_tcp()
{
    (
        cd /proc/sys/net/ipv4 || exit
        echo 0 >tcp_slow_start_after_idle
        echo cubic >tcp_congestion_control
        echo 1 >tcp_no_metrics_save
        echo 0 >tcp_early_retrans
    ) 2>/dev/null
}

# --- islands -----------------------------------------------------------------

# The bridge that node $1 is plugged into.
bridge_of()
{
    local island i=0

    while read -r island; do
        case " $island " in
        *" $1 "*) printf 'island%d' "$i" && return ;;
        esac
        i=$((i + 1))
    done <<<"${islands//;/$'\n'}"
    printf switch
}

# Limit what island $1 sends to island $2, whose nodes are $5: to $3 bytes a
# second after $4 microseconds.  Less than 1 ms is about what TCP takes here.
limit_way()
{
    local burst=$(($3 / 5000)) node why

    [ "$burst" -ge 36000 ] || burst=36000
    tc class add dev "up$1" parent 1: classid "1:$((16 + $2))" htb \
        rate "${3}bps" burst "$burst" cburst "$burst" quantum 16384 || return
    if [ "$4" -lt 1000 ]; then
        tc qdisc add dev "up$1" parent "1:$((16 + $2))" bfifo limit 64mb
    else
        why=$(tc qdisc add dev "up$1" parent "1:$((16 + $2))" netem \
            delay "${4}us" limit 100000 2>&1) || die "--links: this kernel" \
            "cannot delay what is sent (no netem: ${why%%$'\n'*}): load" \
            "sch_netem, or give each latency_s below 0.001 (one is ${4} us)"
    fi || return
    for node in $5; do
        tc filter add dev "up$1" parent 1: protocol ip u32 \
            match ip dst "$net.$node/32" flowid "1:$((16 + $2))" || return
    done
}

make_island() # number
{
    ip link add "island$1" mtu 9000 type bridge && ip link set "island$1" up &&
        ip link add "up$1" mtu 9000 type veth \
            peer name "down$1" mtu 9000 &&
        ip link set "up$1" gso_max_size 16384 &&
        tc qdisc add dev "up$1" root handle 1: htb default 0 &&
        ip link set "up$1" master "island$1" up &&
        ip link set "down$1" master switch up
}

make_islands()
{
    local list a b rate delay i

    ip link show island0 >/dev/null 2>&1 && return # a second try
    mapfile -t list <<<"${islands//;/$'\n'}"
    for i in "${!list[@]}"; do
        make_island "$i" || die "--links: no island $i (see above)"
    done
    while read -r a b rate delay; do
        limit_way "$a" "$b" "$rate" "$delay" "${list[b]}" &&
            limit_way "$b" "$a" "$rate" "$delay" "${list[a]}" ||
            die "--links: no way between islands $a and $b (see above)"
    done <<<"${ways//;/$'\n'}"
}

# --- nodes -------------------------------------------------------------------

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
            ip link set "port$1" master "$(bridge_of "$1")" up
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
    # What waits in a queue is not lost: sent again it would take the link twice.
    ip route change "$net.0/24" dev eth0 src "$net.$node" rto_min 10s
    steady_tcp
    export SLURM_CONF=$dir/slurm.conf
    slurmd -D -N "n$node" &
    daemon=$!
    while kill -0 "$daemon" 2>/dev/null; do
        wait "$daemon"
    done
}
