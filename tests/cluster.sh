#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cluster.sh - run tests/t/*.bats under a private real Slurm
#
#   cluster.sh --builddir DIR [--srcdir DIR] [--log DIR] [--jobs N] [--again]
#              [--beside LOCK] [FILE.bats]...
#
# Every script gets a sandbox of its own, four nodes of four CPUs, so that
# what one breaks the next does not see.  A line "# modes: A B" near a script's
# top says how it runs (default: root):
#
#   root   the sandbox and the commands as root (as the caller, if he is not)
#   guest  root's sandbox, the commands as an ordinary user: slurmstepd has
#          to change over to him
#   user   the sandbox and the commands as an ordinary user
#   tcp    as root, with UCX_TLS=tcp,self
#   installed   as user, with what `make install` installs at its prefix, laid
#               over the system's folders for this script alone, and nothing of
#               the build tree in its PATH
#
# Prints TAP as it comes, then one line of totals; exit code 0 if nothing
# failed.  A script that says nothing, or too little, has failed.
#
# Scripts mostly wait for Slurm: with --jobs N so many of them run at once, and
# each is printed when it has ended.  One that takes more than a minute says
# "# long" near its top, and is among the first, so that it is not what all wait
# for in the end.  One that compares times says "# alone", and runs by itself,
# after the others, when nobody holds file LOCK any more, as who keeps the
# machine busy beside these tests does.  With --again a script that failed runs
# once more, by itself, and that counts: what another guest of the machine
# disturbed passes, what is broken fails twice.

set -u

srcdir=$(cd "$(dirname "$0")" && pwd)
builddir= logdir= jobs=1 again= beside=
files=()
limit=3600 # seconds a script may take: it hangs
user=nobody

while [ $# -gt 0 ]; do
    case $1 in
    --builddir) builddir=$(cd "$2" && pwd) && shift 2 || exit 2 ;;
    --srcdir) srcdir=$(cd "$2" && pwd) && shift 2 || exit 2 ;;
    --log) logdir=$2 && shift 2 || exit 2 ;;
    --jobs) jobs=$2 && shift 2 || exit 2 ;;
    --again) again=yes && shift ;;
    --beside) beside=$2 && shift 2 || exit 2 ;;
    *) files+=("$1") && shift ;;
    esac
done
[ -x "$builddir/cmd/merak" ] || {
    echo "cluster.sh: --builddir: no cmd/merak in \"$builddir\"" >&2
    exit 2
}
[ ${#files[@]} -gt 0 ] || files=("$srcdir"/t/*.bats)
logdir=${logdir:-$builddir/tests/cluster}
mkdir -p "$logdir" || exit 2

[[ $jobs =~ ^[1-9][0-9]*$ ]] || {
    echo "cluster.sh: --jobs: expected a number from 1, got \"$jobs\"" >&2
    exit 2
}

# The sandbox takes variables that begin with MERAK_ away.
export TEST_ALL=${MERAK_TEST_ALL-} TEST_ALL_CALLS=${MERAK_TEST_ALL_CALLS-}

passed=0 failed=0 skipped=0

# What makes a command run as the ordinary user.
if [ "$EUID" -eq 0 ]; then
    as_user=(setpriv --reuid "$user" --regid "$(id -g "$user")"
        --clear-groups)
else
    as_user=()
fi

# Why mode $1 cannot be tried here; nothing if it can.
obstacle()
{
    case $1 in
    installed)
        if [ "$EUID" -ne 0 ] || ! unshare -m true 2>/dev/null; then
            echo "needs root and a mount namespace"
        else
            obstacle user
        fi
        ;;
    guest | user)
        if [ "$EUID" -ne 0 ]; then
            [ "$1" = user ] || echo "needs root to change the user"
        elif ! "${as_user[@]}" test -x "$builddir/cmd/merak" -a -r "$srcdir/t"; then
            echo "user $user cannot read $builddir and $srcdir"
        fi
        ;;
    esac
}

# Install in folder $1; sets $prefix, and $lay_over: commands that lay each of
# the folders over its place.  What is above a place that is not there is hidden.
as_installed()
{
    local dir at

    make -s -C "$builddir" install DESTDIR="$1" && chmod -R go+rX "$1" || return
    prefix=$(sed -n 's/^prefix = //p' "$builddir/Makefile")
    dir=$prefix at=$prefix
    lay_over="set -e;"
    if [ ! -d "$at" ]; then
        lay_over+=" mount -t tmpfs none '$(dirname "$at")'; mkdir '$at';"
    fi
    lay_over+=" mount -t overlay -o 'lowerdir=$1$dir:$at' none '$at';"
    # who installs in /usr/local runs ldconfig
    lay_over+=" ldconfig -C '$1.cache'; touch /etc/ld.so.cache;"
    lay_over+=" mount --bind '$1.cache' /etc/ld.so.cache;"
}

# Run script $1 in mode $2; TAP on standard output.
run_script()
{
    local sandbox=("$builddir/cmd/merak" sandbox --cpus 4 --)
    local bats=(bats --tap "$1") tmp

    tmp=$(mktemp -d /tmp/merak-t-XXXXXX) || return
    chmod 1777 "$tmp"
    case $2 in
    guest) set -- "${sandbox[@]}" "${as_user[@]}" "${bats[@]}" ;;
    user) set -- "${as_user[@]}" "${sandbox[@]}" "${bats[@]}" ;;
    installed)
        as_installed "$tmp/root" >"$tmp/install.log" 2>&1 || {
            echo "not ok 1 - make install"
            tail -n 20 "$tmp/install.log" | sed 's/^/# /'
            return 1
        }
        sandbox[0]=$prefix/bin/merak
        set -- unshare -m bash -c "$lay_over"' exec "$@"' - \
            "${as_user[@]}" "${sandbox[@]}" "${bats[@]}"
        export PREFIX=$prefix
        ;;
    tcp) set -- env UCX_TLS=tcp,self "${sandbox[@]}" "${bats[@]}" ;;
    *) set -- "${sandbox[@]}" "${bats[@]}" ;;
    esac
    TMPDIR=$tmp HOME=$tmp TESTS=$srcdir BUILD=$builddir \
        timeout --kill-after=30 "$limit" "$@"
    rm -rf "$tmp"
}

# What the TAP of log $1 says: $ok, $not, $skip and $plan.
read_log()
{
    skip=$(grep -cE '^ok .* # skip' "$1")
    ok=$(($(grep -c '^ok ' "$1") - skip))
    not=$(grep -c '^not ok ' "$1")
    plan=$(sed -n 's/^1\.\.\([0-9][0-9]*\)$/\1/p' "$1" | head -n 1)
}

# Add the TAP of log $1 to the totals; a script that promised more tests than
# it reported has failed.
count()
{
    local ok not skip plan

    read_log "$1"
    if [ -z "$plan" ] || [ "$((ok + not + skip))" -ne "$plan" ]; then
        echo "not ok - $2 reported $((ok + not + skip)) of ${plan:-no} tests" |
            tee -a "$1"
        not=$((not + 1))
    fi
    passed=$((passed + ok)) failed=$((failed + not)) skipped=$((skipped + skip))
}

# Script $1 in mode $2, from its heading to how long it took.
report_script()
{
    local name begin=$SECONDS

    name=$(basename "$1" .bats)
    echo "# $name ($2)"
    run_script "$1" "$2" </dev/null 2>&1 | tee "$logdir/$name.$2.tap"
    echo "# $name ($2) took $((SECONDS - begin)) s"
}

# The same, said at once, so that scripts beside each other do not mix.
report_later()
{
    local said

    said=$(report_script "$@")
    flock "$logdir" cat <<<"$said"
}

# How script $1 runs: long, alone or plain.
kind_of()
{
    sed -n '1,20{s/^# alone\>.*/alone/p;s/^# long$/long/p}' "$1" | grep . ||
        echo plain
}

# Every script of kind $1 in its modes, $2 of them at once.
run_all()
{
    local file mode modes why

    for file in "${files[@]}"; do
        [ "$(kind_of "$file")" = "$1" ] || continue
        modes=$(sed -n '1,20s/^# modes: //p' "$file")
        for mode in ${modes:-root}; do
            why=$(obstacle "$mode")
            if [ -n "$why" ]; then
                echo "ok - $(basename "$file" .bats) ($mode) # skip $why"
                skipped=$((skipped + 1))
                continue
            fi
            ran+=("$(basename "$file" .bats).$mode")
            if [ "$running" -eq "$2" ]; then
                wait -n
                running=$((running - 1))
            fi
            if [ "$2" -eq 1 ]; then
                report_script "$file" "$mode"
            else
                report_later "$file" "$mode" &
                running=$((running + 1))
            fi
        done
    done
}

# What failed, once more.
run_again()
{
    local name file ok not skip plan

    for name in "${ran[@]}"; do
        read_log "$logdir/$name.tap"
        [ "$not" -gt 0 ] || [ "$((ok + skip))" -ne "${plan:--1}" ] || continue
        mv "$logdir/$name.tap" "$logdir/$name.first"
        for file in "${files[@]}"; do
            [ "$(basename "$file" .bats)" = "${name%.*}" ] || continue
            echo "# $name failed; once more, by itself"
            report_script "$file" "${name##*.}"
        done
    done
}

ran=() running=0
run_all long "$jobs"
run_all plain "$jobs"
wait
running=0
[ -z "$beside" ] || flock "$beside" true
run_all alone 1
[ -z "$again" ] || run_again
for name in "${ran[@]}"; do
    count "$logdir/$name.tap" "$name"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
