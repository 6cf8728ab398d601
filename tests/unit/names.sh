#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# names.sh - ops and backends are asked what they are, not compared by name
#
# What an op or a backend is treated apart for is a field of its struct, or a
# function there (merak/op.h, kernels/kernels.h): code that compares a name is
# wrong for the next op of the kind, and for those of users.  Only what finds
# them by name may compare names; these files and their reasons:

set -u -o pipefail
export LC_ALL=C

may='
partitioner/graph/op.c      finds ops
kernels/registry.c          finds backends and kernels
kernels/module.c            checks that a module is the backend that was asked for
kernels/cuda/cuda_fuse.c    finds the kernels that it has in one, by their calls
kernels/cuda/cuda_repeat.c  finds its kernels for tables of calls
runtime/train/choose.c      the device "cpu", not the backend
runtime/train/chosen.c      the device "cpu", not the backend
'
folders='base placement spank_plugin partitioner kernels text io runtime cmd'

top=$(cd "$(dirname "$0")/../.." && pwd)
. "$(dirname "$0")/tap.sh"

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cd "$top" || exit 1

# find_compared FOLDER..: the files that compare a name.  "linear" and "gelu"
# are words of configurations, too, which io/ reads.
find_compared()
{
    local inner='(?:[^(){};]|\((?:[^()]|\([^()]*\))*\))*?'
    local call="\b(str(n|case|ncase)?cmp|memcmp|strstr)\s*\($inner"
    local what='\b(op|kernel|backend|backend_at\(\w+\)|[bk])(\[\w+\])?(->|\.)name\b'
    local row="\\{\"($ops)\",(?! *'[ifl]')" # but not of struct merak_number

    grep -rlPz --include='*.[ch]' --include='*.cu' --include='*.cuh' \
        "$call($what|\"($backends)\")" "$@"
    grep -rlPz --include='*.[ch]' --include='*.cu' --include='*.cuh' \
        "$call\"($ops)\"" "$@" | grep -v '^io/hf_'
    grep -rlP --include='*.c' "$row" "$@" | grep '^partitioner/\|/partitioner/'
}

ops=$(sed -n 's/^ *OP(\([a-z_0-9]*\),.*/\1/p' kernels/ops.h |
    paste -sd '|')'|convert'
backends=$(grep -rhoP '^    \.name = "\K\w+' kernels/*/*.c | sort -u |
    paste -sd '|')
[[ "|$ops|" == *'|attention|'* && "|$backends|" == *'|cpu|'* &&
    "|$backends|" == *'|cuda|'* ]]
ok $? "the names of ops and backends are found"

# shellcheck disable=SC2086
find_compared $folders | sort -u >"$tmp/does"
awk 'NF { print $1 }' <<<"$may" | sort >"$tmp/may"
comm -13 "$tmp/may" "$tmp/does" |
    sed 's|$| compares the name of an op or a backend: ask for a field of it|' \
        >"$tmp/wrong"
[ ! -s "$tmp/wrong" ]
ok $? "only what finds ops and backends compares their names" "$tmp/wrong"

comm -23 "$tmp/may" "$tmp/does" |
    sed 's|$| compares no name any more: take it out of the list|' >"$tmp/idle"
[ ! -s "$tmp/idle" ]
ok $? "every file of the list compares names" "$tmp/idle"

# What has to be found, each in a file of its own.
mkdir -p "$tmp/tree/partitioner" "$tmp/tree/runtime"
cat >"$tmp/tree/runtime/a.c" <<'END'
    if (strcmp(node->op->name, word) == 0)
END
cat >"$tmp/tree/runtime/b.c" <<'END'
    return strncmp(word,
                   "xent_loss", 9) == 0;
END
cat >"$tmp/tree/runtime/c.c" <<'END'
    if (strcmp(t->backend->name, "x") == 0)
END
cat >"$tmp/tree/runtime/d.c" <<'END'
    is_gpu = strcasecmp(text, "cuda") == 0;
END
cat >"$tmp/tree/partitioner/e.c" <<'END'
    {"rope", 1},
END
cat >"$tmp/tree/runtime/right.c" <<'END'
    rc = merak_backend_find("cuda", &t->backend, err);
    if (strcmp(option->name, word) == 0)
        rc = merak_apply(m, "rope");
END
find_compared "$tmp/tree" | sed 's|.*/||' | sort -u | paste -sd ' ' >"$tmp/seen"
[ "$(<"$tmp/seen")" = 'a.c b.c c.c d.c e.c' ]
ok $? "comparisons are found, on two lines and in tables too" "$tmp/seen"
echo "1..$n"
