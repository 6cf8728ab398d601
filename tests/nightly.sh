#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# nightly.sh - what takes too long for ./check: everything under sanitizers
#
#   tests/nightly.sh [--build DIR] [--units | --cluster] [PART]...
#
# PART is one of these; all of them if none is given:
#
#   address  unit and cluster tests under the address and undefined sanitizers
#   thread   unit tests, and runs of two ranks and more, under the thread
#            sanitizer
#   all      unit tests with the rows that take many seconds, every call of a
#            save and more seeds (MERAK_TEST_ALL, _ALL_CALLS, _SEEDS), and the
#            scripts that have such rows
#   distro   unit tests on the other releases of Debian (tests/distro.sh)
#   debug    unit and cluster tests with --enable-debug
#   fuzz     make fuzz, FUZZ_SECONDS (300) a target
#   hangs    a rank stopped or killed in every kind of wait, HANG_COUNT (20)
#            times each (t/0522-every-wait.bats)
#   survive  a job ended ten times and robbed of two nodes, and SURVIVE_SECONDS
#            (600) of work under limits of two minutes (t/0612-survive.bats)
#
# Build trees are DIR/PART (DIR: build-nightly).  --units leaves cluster tests
# out, --cluster unit tests.  The last line is "N passed, N failed, N skipped";
# the exit code is 0 just if nothing failed.  It takes hours.

set -u -o pipefail
top=$(cd "$(dirname "$0")/.." && pwd -P)
all=$top/build-nightly
units=yes cluster=yes parts=()
passed=0 failed=0 skipped=0
unit_limit=14400
. "$top/.ci/lib.sh"

while [ $# -gt 0 ]; do
    case $1 in
    --build) all=$(mkdir -p "$2" && cd "$2" && pwd -P) || exit 2; shift ;;
    --units) cluster=no ;;
    --cluster) units=no ;;
    address | thread | all | distro | debug | fuzz | hangs | survive) parts+=("$1") ;;
    *)
        sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
        [ "$1" = --help ]
        exit
        ;;
    esac
    shift
done
[ ${#parts[@]} -gt 0 ] || parts=(address thread all distro debug fuzz hangs survive)

# What the sanitizers are told, in all processes of a run.  HDF5 and PMIx keep
# memory until the process ends; a rank that another one ends has no time to
# free anything.
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS="halt_on_error=1 suppressions=$top/tests/tsan.supp"
export LSAN_OPTIONS="suppressions=$top/tests/lsan.supp:print_suppressions=0"

# Scripts also run programs that only `make check` builds.
build_all()
{
    build_tree "$@" && make -j"$(nproc)" -C "$build/tests" check TESTS=
}

# build_part PART [OPTION OF CONFIGURE]...; gcc's warnings are ./check's
build_part()
{
    build=$all/$1
    shift
    say "building in $build"
    mkdir -p "$build"
    (quietly "$build/build.log" build_all --without-cuda "$@") && cd "$build"
}

# Slurm's daemons and srun are not instrumented, and load no plugin that is.
put_plain_plugin()
{
    local build=$all/plain

    mkdir -p "$build"
    (quietly "$build/build.log" build_tree --without-cuda) &&
        cp "$build"/spank_plugin/.libs/spank_merak.so spank_plugin/.libs/
}

# run_scripts FILE.bats...: all without any
run_scripts()
{
    [ "$cluster" = yes ] || return 0
    "$top/tests/cluster.sh" --srcdir "$top/tests" --builddir "$build" "$@" \
        2>&1 | tee cluster.log | grep --line-buffered -vE "$totals"
    count_totals cluster.log "${PIPESTATUS[0]}"
}

address()
{
    build_part address --enable-sanitizer=address,undefined || return
    [ "$units" = no ] || run_units
    [ "$cluster" = no ] || put_plain_plugin || return
    run_scripts
}

# UCX's memory hooks and this sanitizer do not go together.
thread()
{
    export UCX_MEM_EVENTS=n
    build_part thread --enable-sanitizer=thread || return
    [ "$units" = no ] || run_units
    [ "$cluster" = no ] || put_plain_plugin || return
    run_scripts "$top"/tests/t/{0020-grid,0511-lost-runs}.bats \
        "$top"/tests/t/{0520-everywhere,0507-samples}.bats
    unset UCX_MEM_EVENTS
}

all()
{
    local files
    local -x MERAK_TEST_ALL=1 MERAK_TEST_ALL_CALLS=1 MERAK_TEST_SEEDS=20

    build_part all || return
    [ "$units" = no ] || run_units
    mapfile -t files < <(grep -lE 'TEST_ALL|^load parity' "$top"/tests/t/*.bats)
    run_scripts "${files[@]}"
}

distro()
{
    local name log=$all/distro.log

    mkdir -p "$all" || return
    [ "$units" = yes ] || return 0
    for name in bookworm trixie; do
        say "unit tests on Debian's $name"
        "$top/tests/distro.sh" --units "$name" 2>&1 | tee "$log" |
            grep --line-buffered -vE "$totals"
        count_totals "$log" "$((PIPESTATUS[0] == 77 ? 0 : PIPESTATUS[0]))"
    done
}

debug()
{
    build_part debug --enable-debug || return
    [ "$units" = no ] || run_units
    run_scripts
}

fuzz()
{
    build_part fuzz || return
    if make fuzz FUZZ_SECONDS="${FUZZ_SECONDS:-300}" 2>&1 | tee fuzz.log |
        grep -E '^(ok|FAIL|with) |^fuzz'; then
        :
    fi
    passed=$((passed + $(grep -c '^ok ' fuzz.log)))
    failed=$((failed + $(grep -c '^FAIL ' fuzz.log)))
    grep -q '^ok ' fuzz.log
}

hangs()
{
    build_part hangs || return
    HANG_COUNT=${HANG_COUNT:-20} run_scripts "$top"/tests/t/0522-*.bats
}

survive()
{
    build_part survive || return
    SURVIVE_SECONDS=${SURVIVE_SECONDS:-600} run_scripts \
        "$top"/tests/t/0612-*.bats
}

for part in "${parts[@]}"; do
    say "$part"
    "$part" || {
        echo "nightly.sh: $part did not come to its end"
        failed=$((failed + 1))
    }
done
echo
print_totals
