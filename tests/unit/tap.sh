# SPDX-License-Identifier: Apache-2.0
# tap.sh - what the unit tests that are shell scripts share; sourced by bash
n=0

# ok STATUS DESCRIPTION [FILE...]: one line of TAP; where it failed, what is in
# the files
ok()
{
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $n - $2"
    else
        echo "not ok $n - $2"
        [ $# -lt 3 ] || sed 's/^/# /' "${@:3}"
    fi
}
