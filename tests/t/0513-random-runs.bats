#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0513-random-runs.bats - runs of random options compute what one rank computes
#
# What no row of another script has: options that were each tried alone, together.
# A failure prints the draw's number and command; tests/random_runs.py.

load cluster
load parity

@test "runs of random options are those of one rank" {
    local count=3

    [ -z "${TEST_ALL-}" ] || count=200
    pack_text
    "$TESTS/random_runs.py" 1 $count "$RUNS"
}
