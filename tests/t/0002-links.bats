#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0002-links.bats - merak sandbox --link-gbit: links of that rate
#
# alone: it compares times

load cluster
load links

# Median of the lines of numbers.
median()
{
    sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

@test "two tasks on two nodes get the rate that was asked for" {
    need_root
    for gbit in 0.3 1; do
        got=$(merak sandbox --nodes 2 --link-gbit "$gbit" -- sh -c "
            for i in 1 2 3; do srun -N2 -n2 $make_link rate; done" | median)
        echo "asked for $gbit, got $got"
        awk "BEGIN { exit !($got > 0.9 * $gbit && $got < 1.1 * $gbit) }"
    done
}

@test "a link carries both directions at once, each at its rate" {
    need_root
    got=$(merak sandbox --nodes 2 --link-gbit 0.5 -- sh -c "
        for i in 1 2 3; do srun -N2 -n2 $make_link both; done" | median)
    echo "asked for 0.5, got $got" # taking turns, 0.24 to 0.38
    awk "BEGIN { exit !($got > 0.45 && $got < 0.55) }"
}

@test "a transfer posted before 50 ms of compute is over when that is" {
    need_root
    # 2 MiB take 17 ms of the 50
    merak sandbox --nodes 2 --link-gbit 1 -- \
        srun -N2 -n2 "$make_link" overlap $((2 << 20))
    # 16 MiB take 134 ms: a test that these pass would pass anything
    run merak sandbox --nodes 2 --link-gbit 1 -- \
        srun -N2 -n2 "$make_link" overlap $((16 << 20))
    echo "$output"
    [ "$status" -eq 1 ]
    [[ $output == *"0 of 5 in time"* ]]
}
