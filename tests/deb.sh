#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deb.sh - build the Debian packages and try them
#
#   deb.sh             unpack them into a folder; a sandbox's Slurm loads the
#                      plugin from there; some minutes
#   deb.sh --install   install them, as root, in a system that is there for it:
#                      tests/distro.sh bookworm -- tests/deb.sh --install
#
# Prints TAP; the last line is "N passed, N failed, N skipped".

set -u -o pipefail
export LC_ALL=C
top=$(cd "$(dirname "$0")/.." && pwd -P)
how=${1-unpack}
passed=0 failed=0

check()
{
    if [ "$1" -eq 0 ]; then
        passed=$((passed + 1))
        echo "ok - $2"
    else
        failed=$((failed + 1))
        echo "not ok - $2"
        [ $# -lt 3 ] || tail -n 40 "$3" | sed 's/^/# /'
    fi
}

finish()
{
    echo "$passed passed, $failed failed, 0 skipped"
    [ "$failed" -eq 0 ]
    exit
}

if ! command -v dpkg-buildpackage >/dev/null || ! command -v dh >/dev/null; then
    echo "ok - deb.sh # skip no dpkg-buildpackage, or no debhelper"
    echo "0 passed, 0 failed, 1 skipped"
    exit 77
fi

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/merak"
(cd "$top" && git -c safe.directory='*' ls-files -z 2>/dev/null ||
    find . -type f -not -path './build*' -print0) |
    (cd "$top" && xargs -0 tar -cf - --ignore-failed-read) |
    tar -xf - -C "$tmp/merak"
(cd "$tmp/merak" && DEB_BUILD_OPTIONS="nocheck parallel=2" \
    dpkg-buildpackage -us -uc -b) >"$tmp/log" 2>&1
check $? "dpkg-buildpackage" "$tmp/log"
[ "$failed" -eq 0 ] || finish

root=$tmp/root
plugin=$(cd / && echo usr/lib/*/slurm-wlm)/spank_merak.so
if [ "$how" = --install ]; then
    root=
    dpkg -i "$tmp"/*.deb >"$tmp/log" 2>&1
    check $? "dpkg -i" "$tmp/log"
else
    for deb in "$tmp"/*.deb; do
        case $deb in *-dbgsym_*) continue ;; esac
        dpkg -x "$deb" "$root"
    done
    check $? "dpkg -x"
    export LD_LIBRARY_PATH=$(echo "$root"/usr/lib/*-linux-gnu*)
fi
"$root/usr/bin/merak" --version >"$tmp/out" 2>&1 &&
    grep -q "^merak " "$tmp/out"
check $? "the command runs" "$tmp/out"
grep -qx "include /usr/share/merak/plugstack.conf.d/\*.conf" \
    "$root/etc/slurm/plugstack.conf.d/merak.conf" &&
    grep -qx "optional /$plugin" \
        "$root/usr/share/merak/plugstack.conf.d/merak.conf" &&
    [ -e "$root/$plugin" ]
check $? "the line that loads the plugin names what is installed"
"$root/usr/bin/merak" sandbox --nodes 1 --plugin "$root/$plugin" -- \
    srun -Q -n2 --merak-tp=2 sh -c 'echo $MERAK_TP_SIZE' >"$tmp/out" 2>&1
[ "$(sort -u "$tmp/out")" = 2 ]
check $? "srun loads the plugin from where it is installed" "$tmp/out"

if [ "$how" = --install ]; then
    dpkg -L merak libmerak0 libmerak-dev slurm-spank-merak | sort -u |
        while read -r file; do
            [ -d "$file" ] || echo "$file"
        done | grep -v ^/etc/ >"$tmp/files"
    dpkg -r merak libmerak0 libmerak-dev slurm-spank-merak >"$tmp/log" 2>&1
    check $? "dpkg -r" "$tmp/log"
    while read -r file; do
        [ ! -e "$file" ] || echo "$file"
    done <"$tmp/files" >"$tmp/left"
    [ -s "$tmp/files" ] && [ ! -s "$tmp/left" ]
    check $? "nothing but the site's line is left" "$tmp/left"
    dpkg -P slurm-spank-merak >"$tmp/log" 2>&1
    [ ! -e /etc/slurm/plugstack.conf.d/merak.conf ]
    check $? "dpkg -P takes that, too" "$tmp/log"
fi
finish
