#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# packages.sh - the Debian packages and the RPM have every file that is
# installed, each in one place, and uninstalling leaves none
#
# Run from the build directory of tests/, whose programs are installed into a
# folder.  Building the packages is tests/deb.sh.

set -u -o pipefail
export LC_ALL=C

top=$(cd "$(dirname "$0")/../.." && pwd)
. "$(dirname "$0")/tap.sh"

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

# make's own variables would make it a part of the make that runs the tests
run_make()
{
    env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make -s -C .. \
        DESTDIR="$tmp/root" "$@"
}

# Where this build installs, and where packages have that; the longest first.
places()
{
    run_make --eval 'places: ; @echo "$(bindir) usr/bin"; \
        echo "$(libdir) usr/lib/x86_64-linux-gnu"; \
        echo "$(libexecdir) usr/libexec"; echo "$(docdir) usr/share/doc/merak"; \
        echo "$(mandir) usr/share/man"; echo "$(datadir) usr/share"; \
        echo "$(includedir) usr/include"; \
        echo "$(slurmplugindir) usr/lib/x86_64-linux-gnu/slurm-wlm"' places |
        awk '{ print length($1), $0 }' | sort -rn | cut -d' ' -f2-
}

installed()
{
    # Packages are built without CUDA.
    (cd "$tmp/root" && find . ! -type d |
        sed 's|^\.||; /\.la$/d; /merak_cuda\.so$/d' | sort)
}

# The files of packages that those are.
as_packaged()
{
    installed | while read -r file; do
        while read -r from to; do
            [ "${file#"$from"/}" = "$file" ] || {
                printf '%s/%s\n' "$to" "${file#"$from"/}"
                break
            }
        done <"$tmp/places"
    done
}

places >"$tmp/places"
plugin=$(sed -n 's| usr/lib/x86_64-linux-gnu/slurm-wlm$||p' "$tmp/places")
run_make install >"$tmp/log" 2>&1
ok $? "make install into a folder" "$tmp/log"
as_packaged >"$tmp/files"
[ "$(installed | wc -l)" -eq "$(wc -l <"$tmp/files")" ]
ok $? "every file is in a place that packages have" "$tmp/places"

# Patterns of the lists, one a line, as find's.
cat "$top"/debian/*.install | grep -v '^packaging/' >"$tmp/patterns"
while read -r file; do
    hits=0
    while read -r pattern; do
        # shellcheck disable=SC2254
        case $file in
        $pattern | $pattern/*) hits=$((hits + 1)) ;;
        esac
    done <"$tmp/patterns"
    [ "$hits" -eq 1 ] || echo "$hits packages have $file"
done <"$tmp/files" >"$tmp/wrong"
[ -s "$tmp/files" ] && [ ! -s "$tmp/wrong" ]
ok $? "every file is in one Debian package" "$tmp/wrong"

while read -r pattern; do
    found=
    while read -r file; do
        # shellcheck disable=SC2254
        case $file in
        $pattern | $pattern/*) found=yes && break ;;
        esac
    done <"$tmp/files"
    [ -n "$found" ] || echo "$pattern"
done <"$tmp/patterns" >"$tmp/wrong"
[ ! -s "$tmp/wrong" ]
ok $? "the Debian packages list nothing else" "$tmp/wrong"

if command -v rpmspec >/dev/null; then
    rpmspec -P "$top/packaging/merak.spec" 2>"$tmp/log" |
        sed -n '/^%files/,/^%changelog/p' |
        sed -nE 's/^(%doc |%config\(noreplace\) )?(\/[^ ]*)/\2/p' |
        sed 's|^/||; s|^usr/lib64/|usr/lib/x86_64-linux-gnu/|' |
        sed 's|x86_64-linux-gnu/slurm/|x86_64-linux-gnu/slurm-wlm/|' |
        grep -v '^etc/' >"$tmp/patterns"
    while read -r file; do
        hits=0
        while read -r pattern; do
            case $file in
            $pattern | $pattern/*) hits=$((hits + 1)) ;;
            esac
        done <"$tmp/patterns"
        [ "$hits" -eq 1 ] || echo "$hits packages have $file"
    done <"$tmp/files" >"$tmp/wrong"
    [ -s "$tmp/patterns" ] && [ ! -s "$tmp/wrong" ]
    ok $? "every file is in one RPM package" "$tmp/wrong" "$tmp/log"
else
    n=$((n + 1))
    echo "ok $n - every file is in one RPM package # skip no rpmspec"
fi

# The page that the packages' plugstack.conf includes loads that plugin.
grep -qx "optional $plugin/spank_merak.so" \
    "$tmp/root$(sed -n 's| usr/share$||p' "$tmp/places")/merak/plugstack.conf.d/merak.conf"
ok $? "the line that loads the plugin names where it is installed"

version=$(sed -n 's/^AC_INIT(\[merak\], \[\(.*\)\])/\1/p' "$top/configure.ac")
for said in "$(sed -n '1s/.*(\(.*\)).*/\1/p' "$top/debian/changelog")" \
    "$(sed -n 's/^Version: *//p' "$top/packaging/merak.spec")"; do
    [ "$said" = "$version" ] || echo "# $said is not $version"
    [ "$said" = "$version" ]
    ok $? "a package's version is configure.ac's"
done

run_make uninstall >"$tmp/log" 2>&1
ok $? "make uninstall" "$tmp/log"
installed >"$tmp/left"
[ ! -s "$tmp/left" ]
ok $? "it leaves no file" "$tmp/left"
echo "1..$n"
