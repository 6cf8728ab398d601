#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# degrees.sh - the ranks of a stage are asked for, not computed
#
# partitioner/plan/mesh.h numbers ranks and says what degrees a stage has.
# Code that reads tp or dp of a plan takes all stages to be alike; only what
# chooses such plans, or tells them to people, may.  These files and why:

set -u -o pipefail
export LC_ALL=C

may='
partitioner/plan/mesh.c         numbers ranks
partitioner/plan/levels.c       checks the replicas of a level of ZeRO
partitioner/plan/plan.c         checks the degrees, divides a batch among them
partitioner/search/enumerate.c  tries all degrees
partitioner/search/grids.c      factors tp
partitioner/search/layer_splits.c  of these degrees, layers by samples
partitioner/search/unlike_types.c  finds the table of these degrees
partitioner/search/limit.c      names the degrees of a plan
partitioner/search/refuse.c     names the degrees of a plan
partitioner/search/refuse_islands.c  tries and names degrees
io/plan_text.c                  names the degrees of a plan
runtime/plan/table.c            names the degrees of a plan
runtime/plan/emit_megatron.c    other trainers have one tp and dp
runtime/plan/plan_emit.c        other trainers have one tp and dp
runtime/plan/trainers.c         other trainers have one tp and dp
runtime/plan/plan_report.c      names the degrees of a plan
runtime/train/choose.c          compares the degrees of a file with the launch
runtime/train/run_files.c       names the degrees of a plan
'
folders='base placement spank_plugin partitioner kernels text io runtime cmd'

top=$(cd "$(dirname "$0")/../.." && pwd)
. "$(dirname "$0")/tap.sh"

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cd "$top" || exit 1

# find_readers FOLDER..: the files that read tp or dp of a plan, by the names
# of their plans
find_readers()
{
    local file names

    grep -rlE --include='*.[ch]' 'merak_plan |plan(->|\.)' "$@" |
        while read -r file; do
            names=$(grep -oP 'struct merak_plan \**(const )?\K\w+(?=[;,)=\[ ])' \
                "$file" | sort -u | paste -sd '|')
            grep -qP "\b(plan${names:+|$names})(->|\.)(tp|dp)\b(?!\s*=[^=])" \
                "$file" && echo "$file"
        done
}

# shellcheck disable=SC2086
find_readers $folders | sort -u >"$tmp/does"
awk 'NF { print $1 }' <<<"$may" | sort >"$tmp/may"
comm -13 "$tmp/may" "$tmp/does" |
    sed 's|$| reads tp or dp of a plan: ask merak_plan_mesh()|' >"$tmp/wrong"
[ ! -s "$tmp/wrong" ]
ok $? "only what chooses or names degrees reads those of a plan" "$tmp/wrong"

comm -23 "$tmp/may" "$tmp/does" |
    sed 's|$| reads no degree any more: take it out of the list|' >"$tmp/idle"
[ ! -s "$tmp/idle" ]
ok $? "every file of the list reads degrees" "$tmp/idle"

# What has to be found, each in a file of its own.
mkdir -p "$tmp/tree"
cat >"$tmp/tree/a.c" <<'END'
    return prog->plan.dp * 2;
END
cat >"$tmp/tree/b.c" <<'END'
static int width(const struct merak_plan *p)
{
    return p->tp;
}
END
cat >"$tmp/tree/c.c" <<'END'
    if (t->plan.tp == 1)
END
cat >"$tmp/tree/right.c" <<'END'
static void set(struct merak_plan *p, const struct merak_stage_mesh *mesh)
{
    p->tp = mesh->tp;
    p->dp = prog->mesh.dp;
}
END
find_readers "$tmp/tree" | sed 's|.*/||' | sort | paste -sd ' ' >"$tmp/seen"
[ "$(<"$tmp/seen")" = 'a.c b.c c.c' ]
ok $? "reads are found, whatever the plan is called" "$tmp/seen"
echo "1..$n"
