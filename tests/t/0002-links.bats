#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0002-links.bats - merak sandbox --link-gbit, --links: links of that rate
#
# alone: it compares times

load cluster
load calm
load links

# Median of the lines of numbers.
median()
{
    sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

# gets WAY GBIT: what link_make measures that WAY is GBIT, to a tenth
gets()
{
    local got

    got=$(merak sandbox --nodes 2 --link-gbit "$2" -- sh -c "
        for i in 1 2 3; do srun -N2 -n2 $make_link $1; done" | median)
    echo "asked for $2, got $got"
    awk "BEGIN { exit !($got > 0.9 * $2 && $got < 1.1 * $2) }"
}

@test "two tasks on two nodes get the rate that was asked for" {
    need_root
    in_calm gets rate 0.3 # 1 is below
}

@test "a link carries both directions at once, each at its rate" {
    need_root
    in_calm gets both 0.5 # taking turns, 0.24 to 0.38
}

# Gbit/s between three islands: of a way, of one both ways, of two at once that
# share it, and inside an island.
measure_islands()
{
    cat >sites.json <<'END'
{"islands": [{"name": "a", "nodes": "n[1-2]"}, {"name": "b", "nodes": "n[4,3]"},
             {"name": "c", "nodes": "n[5-6]"}],
 "between": [["a", "b", {"bytes_per_s": 5e7, "latency_s": 0}],
             ["b", "c", {"bytes_per_s": 1.25e7, "latency_s": 0}],
             ["c", "a", {"bytes_per_s": 2.5e7, "latency_s": 1e-4}]]}
END
    cat >rates <<'END'
rate() { srun -Q -w "$1" -N2 -n2 "$make_link" "$2"; }
rate n1,n4 rate
rate n3,n6 both
rate n1,n5 rate >first &
rate n2,n6 rate >second
wait
awk '{ sum += $1 } END { print sum }' first second
rate n1,n2 rate
END
    make_link=$make_link merak sandbox --links sites.json -- bash rates
}

islands_get()
{
    local got

    got=$(measure_islands | tr '\n' ' ') || return
    echo "asked for 0.4 0.1 0.2 (0.32 at most) and more than 0.8, got $got"
    awk '
        function is(x, want) { return x > 0.9 * want && x < 1.1 * want }
        # Of the two one begins first and is alone for a while; without a way
        # in common they would have 0.4.
        { exit !(is($1, 0.4) && is($2, 0.1) && $3 > 0.18 && $3 < 0.32 &&
            $4 > 0.8) }' \
        <<<"$got"
}

@test "islands have ways of their own, which their nodes share" {
    need_root
    in_calm islands_get
}

# At 1 Gbit/s: the rate; 2 MiB, which take 17 ms of the 50; 16 MiB, which take
# 134: a test that these pass would pass anything.
overlaps()
{
    local said

    said=$(merak sandbox --nodes 2 --link-gbit 1 -- bash -c "
        for i in 1 2 3; do srun -N2 -n2 $make_link rate; done |
            sort -g | sed -n '2s/^/rate /p'
        srun -N2 -n2 $make_link overlap $((2 << 20)) && echo small: in time
        ! srun -Q -N2 -n2 $make_link overlap $((16 << 20)) && echo large: not")
    echo "$said"
    awk '$1 == "rate" { ok = $2 > 0.9 && $2 < 1.1 } END { exit !ok }' \
        <<<"$said" && [[ $said == *"small: in time"*"0 of 5 in time"*large:* ]]
}

@test "a transfer posted before 50 ms of compute is over when that is" {
    need_root
    in_calm overlaps
}
