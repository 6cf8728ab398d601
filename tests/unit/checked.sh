#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# checked.sh - what returns a status says MERAK_CHECKED: a caller that drops it
# is warned of.  Run from anywhere.

set -u -o pipefail
export LC_ALL=C

# Where there is often nothing to do about a failure.
unchecked='merak_dir_remove'
# What makes an error of what has failed, for an error that nobody looks at too.
makers='merak_fail|merak_fail_nomem|merak_error_fix|merak_json_unsupported'
makers+='|merak_json_malformed|merak_[a-z0-9_]*_fail'

top=$(cd "$(dirname "$0")/../.." && pwd)
. "$(dirname "$0")/tap.sh"

# "NAME" or "NAME checked" for each function of standard input, a header, that
# returns a status.
functions()
{
    tr '\n' ' ' | sed -E 's|/\*([^*]*\*+[^/*])*[^*]*\*+/||g' |
        grep -oE '(MERAK_CHECKED )?enum merak_status +merak_[a-z0-9_]+\([^;{]*[;{]' |
        sed -E 's/^(MERAK_CHECKED )?enum merak_status +(merak_[a-z0-9_]+).*/&\t\2/' |
        awk -F '\t' '{ print $2 ($1 ~ /MERAK_CHECKED/ ? " checked" : "") }'
}

functions >/dev/null <<<'' && exit 1
[ "$(functions <<<'enum merak_status merak_a(int /* ; */ x);
static inline MERAK_CHECKED enum merak_status merak_b(void)
{ } enum merak_status
merak_c(int x) MERAK_CHECKED;' | tr '\n' ,)" = 'merak_a,merak_b checked,merak_c checked,' ]
ok $? "functions that return a status are found, and whether they are checked"

count=0 missing=0
while read -r file; do
    while read -r name checked; do
        count=$((count + 1))
        if [ -z "$checked" ] && ! grep -qxE "$makers|$unchecked" <<<"$name"; then
            echo "# $file: $name has no MERAK_CHECKED"
            missing=1
        fi
    done < <(functions <"$top/$file")
done < <(cd "$top" && find include base placement spank_plugin kernels \
    partitioner text io runtime cmd -name '*.h' -o -name '*.cuh' | sort)
echo "# $count functions"
[ "$count" -gt 450 ] && [ "$missing" -eq 0 ]
ok $? "every function that returns a status is checked by its callers"
echo "1..$n"
