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
    # libtool, a script, is run for every file: that takes dash half as long
    [ ! -x /bin/dash ] || local -x CONFIG_SHELL=/bin/dash
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

# Add the results that automake's TAP driver wrote under the working directory
# to $passed, $failed and $skipped.
count_units()
{
    local all

    all=$(find tests -name '*.trs' -exec cat {} +)
    passed=$((passed + $(grep -cE '^:test-result: (PASS|XFAIL)' <<<"$all")))
    failed=$((failed + $(grep -cE '^:test-result: (FAIL|XPASS|ERROR)' <<<"$all")))
    skipped=$((skipped + $(grep -c '^:test-result: SKIP' <<<"$all")))
}

unit_lines='^(FAIL|ERROR|XPASS|SKIP|# (TOTAL|PASS|FAIL|SKIP))'

# Run make's target check, with arguments for make, and count; what did not
# pass is printed.  What failed runs once more, by itself, and that counts:
# what another guest of the machine disturbed passes, what is broken does not.
run_units()
{
    # nothing takes near as long: what does waits for something for ever
    local limit="timeout --kill-after=10 ${unit_limit:-1200}"
    # tests take longer to optimize than they save; what they test is optimized
    local how=(CFLAGS="-g -O0" TEST_LIMIT="$limit")

    make -k -j"$(nproc)" check "${how[@]}" "$@" 2>&1 |
        tee check.log | grep --line-buffered -E "$unit_lines"
    local rc=${PIPESTATUS[0]} before=$failed

    if [ "$rc" -ne 0 ] && grep -qE '^(FAIL|ERROR|XPASS)' check.log; then
        say "what failed, once more"
        make -k -C tests recheck "${how[@]}" "$@" 2>&1 |
            tee -a check.log | grep --line-buffered -E "$unit_lines"
        rc=${PIPESTATUS[0]}
    fi
    count_units
    if [ "$rc" -ne 0 ] && [ "$failed" -eq "$before" ]; then
        tail -n 40 check.log
        echo "make check failed outside a test"
        failed=$((failed + 1))
    fi
}

# The same without the tests of some areas, if any are named: "search,shard".
# They are not built, either.
run_units_but()
{
    local area own= kind
    local -A left

    [ -n "$1" ] || {
        run_units
        return
    }
    for area in ${1//,/ }; do
        own+=$(grep -oE 'unit/[a-z0-9_]*\.(t|sh|la)\b' \
            "$top/tests/unit/$area.am" 2>/dev/null)$'\n' || {
            echo "no area \"$area\": there is no tests/unit/$area.am" >&2
            failed=$((failed + 1))
            return
        }
    done
    for kind in tests programs libraries; do
        left[$kind]=$(make -s -C tests list-$kind |
            grep -vxF "${own%$'\n'}" | tr '\n' ' ')
    done
    run_units TESTS="${left[tests]}" check_PROGRAMS="${left[programs]}" \
        check_LTLIBRARIES="${left[libraries]}"
}

# The closing line of everything that tests.
totals='^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$'

# Add the last line of totals in file $1; none is a failure.  $2 is the exit
# code of what wrote it, which has to agree.
count_totals()
{
    local p f s line

    line=$(grep -E "$totals" "$1" | tail -n 1)
    read -r p _ f _ s _ <<<"$line"
    passed=$((passed + ${p:-0})) failed=$((failed + ${f:-0}))
    skipped=$((skipped + ${s:-0}))
    if [ -z "$line" ] || { [ "$2" -ne 0 ] && [ "$f" -eq 0 ]; }; then
        echo "ended with exit code $2 and ${line:-no totals}"
        failed=$((failed + 1))
    fi
}

print_totals()
{
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}
