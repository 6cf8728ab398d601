#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# structs.sh - no struct has more than 40 fields
#
# One that grows beyond holds what several parts need: each gets a struct of its
# own, and functions take that.  Fields of structs inside do not count.

set -u -o pipefail
export LC_ALL=C

most=40
folders='base placement spank_plugin partitioner kernels text io runtime cmd include'

top=$(cd "$(dirname "$0")/../.." && pwd)
. "$(dirname "$0")/tap.sh"

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cd "$top" || exit 1

# count_fields FOLDER..: "FIELDS STRUCT FILE" of every struct with a name
count_fields()
{
    find "$@" \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
        xargs -0 awk '
        function end_of_file(    n, rest, c, i, depth, inside, name)
        {
            gsub(/\/\*([^*]|\*+[^*\/])*\*+\//, "", text)
            while (match(text, /struct [a-z_0-9]+[ \n]*\{/)) {
                name = substr(text, RSTART + 7, RLENGTH - 8)
                sub(/[ \n]*$/, "", name)
                text = substr(text, RSTART + RLENGTH)
                depth = 1
                inside = n = 0
                for (i = 1; depth > 0 && i <= length(text); i++) {
                    c = substr(text, i, 1)
                    depth += (c == "{") - (c == "}")
                    inside += (c == "(") - (c == ")")
                    n += depth == 1 && inside == 0 && (c == ";" || c == ",")
                }
                print n, name, file
            }
            text = ""
        }
        FNR == 1 { end_of_file(); file = FILENAME }
        { sub(/\/\/.*/, ""); text = text $0 "\n" }
        END { end_of_file() }'
}

# shellcheck disable=SC2086
count_fields $folders | sort -rn >"$tmp/structs"
awk -v most=$most '$1 > most {
    print $3 ": struct " $2 " has " $1 " fields, " most " are the most"
}' "$tmp/structs" >"$tmp/wrong"
[ ! -s "$tmp/wrong" ]
ok $? "no struct has more than $most fields" "$tmp/wrong"

# What has to be counted.
mkdir "$tmp/tree"
cat >"$tmp/tree/a.c" <<'END2'
/* struct in_words { int a, b; }; */
struct five {
    int a, b[2]; /* one, two; */
    struct {
        int x, y, z;
    } c;
    enum merak_status (*d)(int n, const char *text);
    unsigned e : 1;
};
struct one { struct five five; };
END2
count_fields "$tmp/tree" | awk '{ print $2, $1 }' | paste -sd ' ' >"$tmp/seen"
[ "$(<"$tmp/seen")" = 'five 5 one 1' ] && [ "$(wc -l <"$tmp/structs")" -gt 500 ]
ok $? "fields are counted, those of structs inside apart" "$tmp/seen"
echo "1..$n"
