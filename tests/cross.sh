#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cross.sh - build for aarch64 on x86-64 Debian, test under qemu's emulation
#
#   cross.sh [--no-install] [--build DIR]
#
# Everything is built, the tests too; those of the kernels and the partitioner
# are run, which need one process and no network.  Installs a cross compiler,
# qemu, and this machine's release of the libraries for arm64, which it adds to
# dpkg's architectures: tests/distro.sh --arch arm64 does that in a system of
# its own.  Here it stops where apt would remove packages to make room for them,
# as some cannot be installed for two architectures.  The last line is "N passed, N failed, N skipped".

set -u
top=$(cd "$(dirname "$0")/.." && pwd -P)
build=$top/build-aarch64
install=yes
host=aarch64-linux-gnu
passed=0 failed=0 skipped=0
. "$top/.ci/lib.sh"

while [ $# -gt 0 ]; do
    case $1 in
    --no-install) install=no ;;
    --build) build=$2 && shift ;;
    *)
        sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
        [ "$1" = --help ]
        exit
        ;;
    esac
    shift
done

must()
{
    "$@" || {
        failed=$((failed + 1))
        print_totals
        exit
    }
}

install_cross()
{
    local libraries

    # what is linked, for the other architecture; the tools are this one's
    libraries=$(sed -n 's/^build //p' "$top/.ci/packages" | tr ' ' '\n' |
        grep '^lib.*-dev$' | grep -v '^libc6-dev$' | sed 's/$/:arm64/')
    export DEBIAN_FRONTEND=noninteractive
    dpkg --add-architecture arm64 && apt-get -q update &&
        apt-get -qy --no-remove -o Dpkg::Use-Pty=0 install \
            --no-install-recommends \
            autoconf automake libtool make pkg-config libc6-dev:arm64 \
            $(sed -n 's/^cross //p' "$top/.ci/packages") $libraries
}

# The tests that the named fragments of tests/unit list.
tests_of()
{
    local area

    for area in "$@"; do
        sed -n '/^TESTS/,/[^\\]$/p' "$top/tests/unit/$area.am"
    done | grep -o 'unit/[a-z0-9_]*\.t' | sort -u | tr '\n' ' '
}

if [ "$install" = yes ]; then
    say "installing what it takes to build for $host"
    mkdir -p "$build"
    must quietly "$build/install.log" install_cross
fi
say "building in $build"
mkdir -p "$build"
export PKG_CONFIG_LIBDIR=/usr/lib/$host/pkgconfig:/usr/share/pkgconfig
must quietly "$build/build.log" build_tree --host="$host" --enable-werror
cd "$build" || exit 2
export MERAK_TEST_EMULATED=1
say "unit tests of the kernels and the partitioner under qemu-aarch64"
# libtool knows where a program finds the libraries that are not installed
run_units TESTS="$(tests_of kernels cuda graph shard program search)" \
    T_LOG_COMPILER="$top/tests/unit/run_tap.sh $build/libtool --mode=execute \
qemu-aarch64"
print_totals
