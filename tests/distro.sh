#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# distro.sh - build and test this checkout on another release of Debian
#
#   distro.sh [OPTION]... NAME                 NAME: bookworm, trixie, ...
#   distro.sh [OPTION]... NAME -- COMMAND...
#
#   --prepare      only make the system and install packages
#   --units        only the build and the unit tests, not both commands
#   --without AREA[,AREA]...   leave out unit tests in tests/unit/AREA.am
#   --user         build and run as an ordinary user; packages are root's
#   --arch arm64   cross-built; the kernels' and the partitioner's unit tests
#                  under qemu's emulation of a CPU
#   --dir DIR      where systems are kept (/var/lib/merak-distro)
#   --mirror URL   of Debian, else the variable MERAK_DEBIAN_MIRROR, else what
#                  this machine's apt is set up with
#   --fresh        make the system anew
#
# Makes the release in DIR/NAME with debootstrap, unless it is there, copies
# the checkout to /src/merak in it, and runs ./check and ./quickstart there, or
# COMMAND.  The last line is "N passed, N failed, N skipped" (COMMAND: its
# own).  Needs root, debootstrap and a mirror: exit code 77 and one skipped
# where something of that is not to be had, else as ./check.
#
# Whatever runs inside has mounts, processes and shared memory of its own: they
# are gone when this script is, however it ended, and no other process sees
# them.  So nothing can be left mounted, and no removal runs into /dev.

set -u
top=$(cd "$(dirname "$0")/.." && pwd -P)
self=$top/tests/distro.sh
. "$top/.ci/lib.sh"

base=/var/lib/merak-distro
mirror=${MERAK_DEBIAN_MIRROR-}
name= arch= what=both fresh= user= inside= without=
command=()

usage()
{
    sed -n '2,/^$/s/^# \{0,1\}//p' "$self"
}

die()
{
    echo "distro.sh: $*" >&2
    exit 2
}

# Where it cannot be tried, nothing has failed.
skip()
{
    echo "ok - ${name:-distro} # skip $*"
    echo "0 passed, 0 failed, 1 skipped"
    exit 77
}

while [ $# -gt 0 ]; do
    case $1 in
    --dir | --mirror | --arch | --without)
        [ $# -ge 2 ] || die "$1: its value is missing"
        case $1 in
        --dir) base=$2 ;;
        --mirror) mirror=$2 ;;
        --arch) arch=$2 ;;
        --without) without=$2 ;;
        esac
        shift
        ;;
    --prepare) what=prepare ;;
    --units) what=units ;;
    --user) user=merak ;;
    --fresh) fresh=yes ;;
    --inside) inside=yes ;; # ourselves, in namespaces of our own
    --help | -h) usage && exit ;;
    --)
        what=command
        shift
        command=("$@")
        break
        ;;
    -*) die "\"$1\" is no option; distro.sh --help" ;;
    *)
        [ -z "$name" ] || die "one release, not \"$name\" and \"$1\""
        name=$1
        ;;
    esac
    shift
done
[[ $name =~ ^[a-z]+$ ]] ||
    die "expected a release of Debian like trixie, got \"$name\""
case $arch in
'' | arm64) ;;
*) die "--arch: expected arm64, got \"$arch\"" ;;
esac
[ -z "$arch" ] || [ -z "$user" ] || die "--arch and --user: one of them"
[ "$what" != command ] || [ ${#command[@]} -gt 0 ] ||
    die "-- is followed by no command"

# --- outside -----------------------------------------------------------------

host_mirror()
{
    apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' 2>/dev/null |
        sed -n 's|^Debian \(http.*/debian\)/*$|\1|p' | head -n 1
}

namespaces=(unshare --mount --propagation private --ipc --pid --fork
    --kill-child)

# What is missing to make a system or to enter one, if anything.
obstacle()
{
    if [ "$EUID" -ne 0 ]; then
        echo "needs root, for debootstrap and chroot"
    elif ! command -v debootstrap >/dev/null; then
        echo "needs debootstrap (Debian: apt-get install debootstrap)"
    elif ! "${namespaces[@]}" true 2>/dev/null; then
        echo "this machine allows no namespaces for mounts and processes"
    fi
}

# What runs there is root's: why somebody else could change it, if so.
foreign() # directory
{
    local owner mode above=$1

    while :; do
        read -r owner mode < <(stat -c '%u %a' "$above")
        if [ "$owner" != 0 ]; then
            echo "$above is not root's"
        elif [ $((8#$mode & 8#22)) -ne 0 ] &&
            { [ "$above" = "$1" ] || [ $((8#$mode & 8#1000)) -eq 0 ]; }; then
            echo "$above can be written by others (mode $mode)"
        fi
        [ "$above" != / ] || break
        above=$(dirname "$above")
    done | head -n 1
}

if [ -z "$inside" ]; then
    why=$(obstacle)
    [ -z "$why" ] || skip "$why"
    [ -n "$mirror" ] || mirror=$(host_mirror)
    mirror=${mirror:-http://deb.debian.org/debian}
    [ -d "$base" ] || mkdir -p -m 700 "$base" || exit 69
    base=$(cd "$base" && pwd -P) || exit 69
    why=$(foreign "$base")
    [ -z "$why" ] || die "--dir $base: $why"
    [ -d "$base/$name${arch:+-$arch}" ] ||
        wget -q -T 30 -t 2 -O /dev/null "$mirror/dists/$name/InRelease" ||
        skip "no $name at $mirror"
    lock=$base/$name${arch:+-$arch}.lock
    exec 9>"$lock"
    flock -n 9 || die "another run holds $lock"
    options=(--inside --dir "$base" --mirror "$mirror")
    [ -z "$arch" ] || options+=(--arch "$arch")
    [ -z "$user" ] || options+=(--user)
    [ -z "$without" ] || options+=(--without "$without")
    [ -z "$fresh" ] || options+=(--fresh)
    case $what in
    prepare | units) options+=("--$what" "$name") ;;
    command) options+=("$name" -- "${command[@]}") ;;
    both) options+=("$name") ;;
    esac
    # unshare ends its child when it dies, and dies with us.
    setpriv --pdeathsig KILL "${namespaces[@]}" --mount-proc \
        "$BASH" "$self" "${options[@]}" <&0 &
    trap 'kill -KILL $!; exit 130' INT TERM HUP
    wait $!
    exit
fi

# --- inside: the system ------------------------------------------------------

root=$base/$name${arch:+-$arch}
passed=0 failed=0 skipped=0

remove_system() # directory
{
    ! awk '{ print $5 }' /proc/self/mountinfo | grep -qF "$1/" ||
        die "something is mounted in $1: not removed"
    rm -rf --one-file-system "$1"
}

# In two stages, because dpkg can be told between them not to wait for the
# disk after every file.
bootstrap() # directory
{
    debootstrap --foreign --variant=minbase "$name" "$1" "$mirror" &&
        mkdir -p "$1/etc/dpkg/dpkg.cfg.d" &&
        echo force-unsafe-io >"$1/etc/dpkg/dpkg.cfg.d/unsafe-io" &&
        chroot "$1" /debootstrap/debootstrap --second-stage
}

# A system has its name only when it is whole.
make_system()
{
    [ -z "$fresh" ] || remove_system "$root"
    [ ! -d "$root" ] || return 0
    say "making $root from $mirror"
    remove_system "$root.part"
    quietly "$root.log" bootstrap "$root.part" && mv "$root.part" "$root"
}

# Its root is a mount, as that of a machine is: unshare(1) asks for one.
mount_all()
{
    mount --bind "$root" "$root" &&
        mount --rbind /dev "$root/dev" &&
        mount -t tmpfs -o mode=1777 shm "$root/dev/shm" &&
        mount -t proc proc "$root/proc" &&
        mount --rbind /sys "$root/sys" &&
        mount -t tmpfs -o mode=755 run "$root/run"
}

# Slurm's daemons find themselves by the machine's name.
name_hosts()
{
    cp -L /etc/resolv.conf "$root/etc/resolv.conf"
    echo "127.0.0.1 localhost $(uname -n)" >"$root/etc/hosts"
}

# Every file that git knows or could know; of a tarball all but build trees.
list_sources()
{
    cd "$top" || return
    git ls-files -z --cached --others --exclude-standard 2>/dev/null |
        while IFS= read -r -d '' file; do
            [ ! -e "$file" ] || printf '%s\0' "$file"
        done | grep -z . ||
        find . \( -path './build*' -o -path ./.git \) -prune -o -type f -print0
}

copy_sources()
{
    rm -rf "$root/src/merak" && mkdir -p "$root/src/merak" &&
        list_sources | tar -C "$top" -c --null -T - |
        tar -x --no-same-owner -C "$root/src/merak" || return
    [ -z "$user" ] || {
        chroot "$root" useradd --create-home "$user" 2>/dev/null
        chroot "$root" chown -R "$user" /src/merak
    }
}

# Run a command in the system, in the checkout, as user $1.
enter()
{
    local as=(env) home=/root

    [ "$1" = root ] || {
        as=(setpriv --reuid "$1" --regid "$1" --init-groups env)
        home=/home/$1
    }
    shift
    chroot "$root" "${as[@]}" -i HOME="$home" LC_ALL=C.UTF-8 \
        PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin \
        TERM="${TERM-dumb}" CI="${CI-}" \
        ${MERAK_TEST_FUZZ_SECONDS:+MERAK_TEST_FUZZ_SECONDS=$MERAK_TEST_FUZZ_SECONDS} \
        "$BASH" -c 'cd /src/merak && exec "$@"' bash "$@"
}

install_inside()
{
    enter root "$BASH" -c 'top=$PWD; . .ci/lib.sh; install_packages "$@"' \
        bash "$@"
}

# Run one of the commands, and add what it printed last.
count_command() # file to keep the output in, command...
{
    local log=$1

    shift
    say "$name: $*"
    enter "${user:-root}" "$@" 2>&1 | tee "$log" |
        grep --line-buffered -vE "$totals"
    count_totals "$log" "${PIPESTATUS[0]}"
}

run_quickstart()
{
    say "$name: ./quickstart"
    if enter "${user:-root}" ./quickstart --no-install; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
}

must()
{
    "$@" || {
        failed=$((failed + 1))
        print_totals
        exit
    }
}

# --- inside: the work --------------------------------------------------------

must make_system
must mount_all
must name_hosts
must copy_sources
case $what in
command)
    enter "${user:-root}" "${command[@]}"
    exit
    ;;
esac
if [ "$what" = prepare ]; then
    install_inside build test
    exit
fi
if [ -n "$arch" ]; then
    count_command "$root.check.log" tests/cross.sh
elif [ "$what" = units ]; then
    must install_inside build test
    count_command "$root.check.log" ./check --no-install --units \
        ${without:+--without "$without"}
else
    must install_inside build run test
    count_command "$root.check.log" ./check --no-install
    run_quickstart
fi
print_totals
