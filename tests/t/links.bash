# SPDX-License-Identifier: Apache-2.0
# links.bash - for scripts about merak sandbox --link-gbit

setup()
{
    cd "$BATS_TEST_TMPDIR"
    make_link=$BUILD/tests/unit/link_make
    nap="sleep 1$BASHPID" # like no one else's
    ip link show >/dev/null && command -v tc unshare >/dev/null ||
        skip "needs ip, tc and unshare"
}

# Does a task sleep that long?  srun gives a program's path as its name.
nap_runs() { pgrep -f "(^|/)$nap\$" >/dev/null; }

# Wait for a condition; the count only keeps a hang from lasting for ever.
wait_until()
{
    for ((i = 0; i < 3000; i++)); do
        ! "$@" || return 0
        sleep 0.1
    done
    return 1
}

need_root()
{
    [ "$EUID" -eq 0 ] || skip "needs root"
    unshare --net --ipc --pid --fork true 2>/dev/null ||
        skip "needs CAP_SYS_ADMIN"
}
