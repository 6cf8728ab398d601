#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# dist.sh - a tarball holds every file of the repository, making one runs no
# test and compiles nothing again, and no two tests have the same name
#
# Run from the build directory of tests/.

set -u -o pipefail
export LC_ALL=C

top=$(cd "$(dirname "$0")/../.." && pwd)
dir=../merak-$(sed -n 's/^VERSION = //p' ../Makefile) # what make makes
log=dist-made.log
trap 'chmod -R u+w "$dir"; rm -rf "$dir" "$log"' EXIT

echo 1..4
if [ -n "${MERAK_MAKING_DIST-}" ]; then
    printf 'not ok %d - called by make dist\n' 1 2 3 4
    exit 1
fi

# Run make, but not as a part of the make that runs the tests.
other_make()
{
    env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make "$@"
}

# Two targets of the same file, of which the second makes the first's object
# anew, leave a library out of date: it would be linked again while tests use it.
again=$(other_make -C .. -n all 2>&1) || again="--mode=compile fails: $again"
again=$(grep -oE -e '--mode=(compile|link) .*' <<<"$again")

MERAK_MAKING_DIST=yes other_make -C .. distdir >"$log" 2>&1
rc=$?
if [ "$rc" -eq 0 ] && ! grep -qE '^(PASS|FAIL): ' "$log"; then
    echo "ok 1 - make distdir runs no test"
else
    tail -n 20 "$log" | sed 's/^/# /'
    echo "not ok 1 - make distdir runs no test"
fi

# automake names a log by the test without its ending, and runs one test a log
twice=$(other_make -s \
    --eval 'print-tests: ; @echo $(TESTS)' print-tests | tr ' ' '\n' |
    sed 's/\.[a-z]*$//' | sort | uniq -d)
[ -z "$twice" ] || printf '# twice: %s\nnot ' $twice
echo "ok 2 - every test has a log of its own"

[ -z "$again" ] || {
    head -n 5 <<<"$again" | cut -c 1-200 | sed 's/^/# /'
    echo "# (a source newer than what was built of it: run make first)"
    printf 'not '
}
echo "ok 3 - make finds nothing to do after make"

if [ ! -e "$top/.git" ]; then
    echo "ok 4 - nothing is missing in it # skip not a git checkout"
    exit
fi
missing=$(git -c safe.directory='*' -C "$top" ls-files |
    grep -vE '^\.(clang-format|gitignore)$' | while read -r file; do
        [ ! -e "$top/$file" ] || [ -e "$dir/$file" ] || echo "# missing: $file"
    done)
[ -z "$missing" ] || printf '%s\nnot ' "$missing"
echo "ok 4 - nothing is missing in it"
