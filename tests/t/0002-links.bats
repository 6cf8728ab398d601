#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0002-links.bats - merak sandbox --link-gbit: links of that rate
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
    in_calm gets rate 0.3
    in_calm gets rate 1
}

@test "a link carries both directions at once, each at its rate" {
    need_root
    in_calm gets both 0.5 # taking turns, 0.24 to 0.38
}

overlaps() # BYTES
{
    merak sandbox --nodes 2 --link-gbit 1 -- \
        srun -N2 -n2 "$make_link" overlap "$1"
}

overlaps_not()
{
    local said

    ! said=$(overlaps "$1") && echo "$said" &&
        [[ $said == *"0 of 5 in time"* ]]
}

@test "a transfer posted before 50 ms of compute is over when that is" {
    need_root
    # 2 MiB take 17 ms of the 50
    in_calm overlaps $((2 << 20))
    # 16 MiB take 134 ms: a test that these pass would pass anything
    in_calm overlaps_not $((16 << 20))
}
