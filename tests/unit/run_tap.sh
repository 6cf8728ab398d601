#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run_tap.sh - run a unit test: for make check, and for scripts that run one
#
#   run_tap.sh PROGRAM [ARGUMENT]...
#
# Exits as the program does, but with 1 where that is 0 and the output tells of
# something else: no plan, another number of results than planned, a failure.  A
# program that ends early by exit(0) says no more than that, and cmocka 1.1.5
# exits with 0 after the teardown of a group has crashed.
#
# cmocka before 1.1.6 says "not ok N # SKIP" of a case that was skipped, which
# automake takes for a failure.

export CMOCKA_MESSAGE_OUTPUT=TAP

"$@" | awk '
    /^not ok [0-9]+ # SKIP/ { sub(/^not /, "") }
    { print; fflush() }
    /^ok / { results++ }
    /^not ok / { results++; failed++ }
    /^1\.\.[0-9]+/ { planned = substr($0, 4) + 0; plans++ }
    END {
        if (plans != 1 || results != planned)
            print "# " results + 0 " results, planned: " \
                (plans == 1 ? planned : plans ? "several times" : "none")
        exit plans != 1 || results != planned || failed
    }'
status=("${PIPESTATUS[@]}")
[ "${status[0]}" -ne 0 ] || exit "${status[1]}"
exit "${status[0]}"
