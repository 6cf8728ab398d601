# SPDX-License-Identifier: Apache-2.0
# lib.sh - what ./check and ./quickstart share; sourced by bash
#
# The caller sets $top, the source tree, and $build, the build tree.

say()
{
    printf '\n== %s\n' "$*"
}

# The packages of the named groups that are not installed.
missing_packages()
{
    local group name

    for group in "$@"; do
        sed -n "s/^$group //p" "$top/.ci/packages"
    done | tr ' ' '\n' | while read -r name; do
        dpkg-query -W -f '${Status}\n' "$name" 2>/dev/null |
            grep -q '^install ok installed$' || echo "$name"
    done
}

# Install the named groups, as root or through sudo; nothing to do is nothing
# asked for.
install_packages()
{
    local missing sudo=

    command -v dpkg-query >/dev/null || {
        echo "not a Debian system: install what .ci/packages lists" >&2
        return 1
    }
    missing=$(missing_packages "$@")
    [ -n "$missing" ] || return 0
    if [ "$EUID" -ne 0 ]; then
        command -v sudo >/dev/null || {
            echo "as root: apt-get install" $missing >&2
            return 1
        }
        sudo="sudo env DEBIAN_FRONTEND=noninteractive"
    fi
    say "installing" $missing
    export DEBIAN_FRONTEND=noninteractive
    $sudo apt-get -q update &&
        $sudo apt-get -qy -o Dpkg::Use-Pty=0 install --no-install-recommends \
            $missing
}

# Configure in $build, if that is not done, and build; arguments go to
# configure.
build_tree()
{
    [ -f "$top/configure" ] && [ "$top/configure" -nt "$top/configure.ac" ] ||
        "$top/autogen.sh" || return
    mkdir -p "$build" && cd "$build" || return
    [ -f config.status ] || "$top/configure" "$@" || return
    make -j"$(nproc)"
}

# Run a command with its output in file $1; show the end of it if it fails.
quietly()
{
    local log=$1

    shift
    "$@" >"$log" 2>&1 || {
        local rc=$?

        tail -n 40 "$log" >&2
        echo "failed: $* (all of it: $log)" >&2
        return $rc
    }
}
