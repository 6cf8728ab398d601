#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# paths.sh - every path that the pages for developers name is there, no two
# files have one name, and none is long
#
# A page names files and folders in backquotes.  One with a slash inside counts
# from the top, one without (`atoms.c`, `emu/`) may be anywhere; `*` and names in
# capitals (`NAME`) stand for anything.  Run from anywhere.

set -u -o pipefail
export LC_ALL=C

top=$(cd "$(dirname "$0")/../.." && pwd)
. "$(dirname "$0")/tap.sh"

# What page $1 names that looks like a path: by its slash or its ending.
paths_of()
{
    grep -oE '`[A-Za-z0-9_./*-]+`' "$1" | tr -d '`' |
        grep -E '^[^-].*/|\.(c|h|sh|am|bats|py|md)$' |
        sed -E 's|^\./||' | sort -u
}

# Is there something that $1 names?
is_there()
{
    local path=${1%/} pattern

    pattern=$(sed -E 's/\b(NAME|AREA|KIND)\b/*/g; s/(NAME|AREA|KIND)/*/g' \
        <<<"$path")
    case $pattern in
    */*) compgen -G "$top/$pattern" >/dev/null ;;
    *)
        [ -n "$(find "$top" -name .git -prune -o -name 'build*' -prune -o \
            -name "$pattern" -print -quit)" ]
        ;;
    esac
}

# Every path of page $1 leads somewhere, and it has $2 of them at least.
page()
{
    local missing=0 count=0 path

    for path in $(paths_of "$top/$1"); do
        count=$((count + 1))
        if ! is_there "$path"; then
            echo "# $1 names $path, which is not there"
            missing=1
        fi
    done
    if [ "$count" -lt "$2" ]; then
        echo "# $1 names $count paths, expected $2 or more"
        missing=1
    fi
    ok "$missing" "every path that $1 names is there"
}

is_there partitioner/no_such_file.c || is_there no_such_file.c
[ $? -ne 0 ]
ok $? "a path that leads nowhere is noticed"
pages=(HACKING.md {io,kernels,kernels/cuda,partitioner,placement,runtime,tests,text}/README.md)
page HACKING.md 40
for name in "${pages[@]:1}"; do
    page "$name" 5
done
page CONTRIBUTING.md 8
page doc/families.md 8
page doc/glossary.md 3

# A row of HACKING's table or a section of these pages names functions: each
# is in a file of its row or section.
missing=0 count=0
while IFS= read -r part; do
    files=$(grep -oE '`[A-Za-z0-9_./-]+\.[ch]`' <<<"$part" | tr -d '`' | sort -u)
    for name in $(grep -oE '`[a-z_0-9]+\(\)`' <<<"$part" | tr -d '`()'); do
        count=$((count + 1))
        (cd "$top" && grep -qE "\\b$name\(" /dev/null $files) || {
            echo "# no $name() in $(echo $files)"
            missing=1
        }
    done
done < <(cd "$top" && {
    sed -n '/^### Where to look/,/^## /p' HACKING.md
    cat {io,partitioner,placement,runtime,text}/README.md
    echo "#"
} | awk '/^\|/ { print; next } /^#/ { print part; part = ""; next }
        { part = part " " $0 }')
if [ "$count" -lt 20 ]; then
    echo "# $count functions are named, expected 20 or more"
    missing=1
fi
ok "$missing" "every function that these pages name is in its file"

# A claim names the test that holds it, behind the file that has it.
missing=0 count=0
while read -r file names; do
    for name in ${names//,/ }; do
        count=$((count + 1))
        grep -q "cmocka_unit_test($name)" "$top"/tests/unit/{,*/}"$file" \
            2>/dev/null || {
            echo "# doc/published.md: no test $name in $file"
            missing=1
        }
    done
done < <(grep -oE '`test_[a-z0-9_]+\.c` [a-z0-9]+_[a-z0-9_]+(, [a-z0-9]+_[a-z0-9_]+)*' \
    "$top/doc/published.md" | tr -d '`')
if [ "$count" -lt 30 ]; then
    echo "# doc/published.md names $count tests, expected 30 or more"
    missing=1
fi
ok "$missing" "every test that doc/published.md names is in its file"

# A table that a script made may be as long as it is.
long=$(cd "$top" && find base cmd examples include io kernels partitioner \
    placement runtime spank_plugin tests -type d -name 'build*' -prune -o \
    -type f \( -name '*.[ch]' -o -name '*.cc' -o -name '*.cu' -o \
    -name '*.cuh' \) -exec awk '
        function look() { if (lines > 600 && !made) print "# " file, lines }
        FNR == 1 { look(); made = 0; file = FILENAME }
        FNR == 2 && /^\/\* Made by / { made = 1 }
        { lines = FNR }
        END { look() }' {} +)
[ -z "$long" ] || echo "$long"
[ -z "$long" ]
ok $? "no file has more than 600 lines"

# A name says which file is meant only while no other has it.
if [ -e "$top/.git" ]; then
    twice=$(git -c safe.directory='*' -C "$top" ls-files |
        sed 's|.*/||' | grep -vxE 'Makefile.am|README.md' | sort | uniq -d)
    [ -z "$twice" ] || printf '# there are two %s\n' $twice
    [ -z "$twice" ]
    ok $? "no file name is there twice, but Makefile.am and README.md"
else
    n=$((n + 1))
    echo "ok $n - no file name is there twice # SKIP not a git checkout"
fi
echo "1..$n"
