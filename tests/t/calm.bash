# SPDX-License-Identifier: Apache-2.0
# calm.bash - for scripts that compare times
#
# What other programs and other guests take from a machine is in no
# prediction.  So a comparison of times that fails counts only if the machine
# was ours just before and just after it, by a control that is measured then.

# is_calm: nine tenths of every processor are ours
is_calm()
{
    local share

    share=$("$BUILD/tests/unit/calm_make") || return
    echo "of the busiest processor $share is ours"
    awk "BEGIN { exit !($share >= 0.9) }"
}

# in_calm COMMAND...: it succeeds, at the third try at the latest.  Where it
# does not, and fewer than two of the tries were on a calm machine, the test is
# skipped.  The command's every step must end it by itself: it is part of a
# condition, where bats does not see what fails.
in_calm()
{
    local calm=0 before

    for _ in 1 2 3; do
        before=no
        ! is_calm || before=yes
        ! "$@" || return 0
        if is_calm && [ $before = yes ]; then
            calm=$((calm + 1))
        fi
    done
    [ $calm -ge 2 ] ||
        skip "other programs or guests take part of this machine"
    echo "not so, on a machine that was ours: $*"
    return 1
}
