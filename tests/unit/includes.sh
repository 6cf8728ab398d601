#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# includes.sh - includes point one way
#
# Each folder with the folders whose headers it includes.  A folder may name
# rows above its own only, so that the table can have no cycle; every include
# of the tree has to be in it, and everything in it has to be used.

set -u -o pipefail
export LC_ALL=C

table='
include/merak
base                    include/merak
placement               base include/merak
spank_plugin            base placement
kernels                 base include/merak
kernels/ref             base kernels
kernels/cpu             base include/merak kernels
kernels/emu             kernels
kernels/fake            base kernels
kernels/cuda            base include/merak kernels
text/template           base include/merak
text/tokenizer          base include/merak text/template
partitioner/graph       base include/merak
partitioner/device      base include/merak partitioner/graph
partitioner/layout      base include/merak partitioner/graph partitioner/device
partitioner/order       base include/merak partitioner/layout
partitioner/schedule    base include/merak
partitioner/plan        base partitioner/layout partitioner/schedule
partitioner/refine      base partitioner/device
partitioner/program     base include/merak partitioner/graph partitioner/layout partitioner/schedule partitioner/plan partitioner/device
partitioner/simulate    base partitioner/graph partitioner/schedule partitioner/device partitioner/program
partitioner/assembly    base include/merak partitioner/graph partitioner/order partitioner/program
partitioner/search      base partitioner/graph partitioner/schedule partitioner/plan partitioner/device partitioner/program partitioner/simulate partitioner/assembly
partitioner/search/table base partitioner/graph partitioner/program partitioner/search
io                      base include/merak partitioner/plan
io/ckpt                 base include/merak io partitioner/layout
io/tokens               base include/merak io text/tokenizer
io/samples              base include/merak io io/tokens
io/weights              base include/merak io io/ckpt text/tokenizer partitioner/graph
io/trace                base include/merak io io/ckpt partitioner/plan partitioner/program partitioner/refine
runtime
runtime/boot            base include/merak
runtime/transport       base include/merak partitioner/layout runtime/boot
runtime/doctor          base include/merak placement kernels runtime runtime/boot runtime/transport
runtime/link            base include/merak kernels partitioner/program runtime/boot runtime/transport
runtime/nccl            base runtime/link
runtime/engine          base io/trace kernels partitioner/program runtime/link runtime/transport
runtime/infer           base include/merak io io/ckpt io/weights kernels partitioner/graph
runtime/train           base include/merak io io/ckpt io/weights io/tokens io/samples io/trace kernels placement partitioner/graph partitioner/plan partitioner/program partitioner/device partitioner/simulate partitioner/assembly partitioner/search runtime runtime/boot runtime/engine runtime/link runtime/transport
runtime/plan            base include/merak io kernels placement partitioner/graph partitioner/plan partitioner/device partitioner/program partitioner/simulate partitioner/assembly partitioner/search runtime runtime/boot runtime/link runtime/train
cmd                     base include/merak placement io io/ckpt io/weights text/tokenizer io/tokens io/trace kernels partitioner/device partitioner/program partitioner/refine partitioner/simulate partitioner/assembly runtime runtime/boot runtime/doctor runtime/engine runtime/infer runtime/link runtime/plan runtime/train runtime/transport
cmd/ckpt                base cmd io io/ckpt io/weights partitioner/plan partitioner/assembly runtime
cmd/trace               base cmd io io/trace partitioner/program partitioner/simulate runtime
'

top=$(cd "$(dirname "$0")/../.." && pwd)
. "$(dirname "$0")/tap.sh"

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cd "$top" || exit 1

# "folder other" for each folder that a row may use.
awk 'NF { for (i = 2; i <= NF; i++) print $1, $i }' <<<"$table" |
    sort -u >"$tmp/may"
awk 'NF { print $1 }' <<<"$table" >"$tmp/rows"

# The same for what is included, the folder's own headers left out.
find include base placement spank_plugin kernels text partitioner io runtime \
    cmd -name '*.[ch]' -print | sort >"$tmp/files"
while read -r file; do
    folder=${file%/*}
    sed -n 's|^#include ["<]\(.*\)/[^/]*\.h[">].*|\1|p' "$file" |
        sed 's|^merak$|include/merak|' |
        while read -r other; do
            [ -d "$other" ] && [ "$other" != "$folder" ] &&
                echo "$folder $other $file"
        done
done <"$tmp/files" | sort -u >"$tmp/uses"
cut -d' ' -f1,2 "$tmp/uses" | sort -u >"$tmp/does"

awk 'NF { for (i = 2; i <= NF; i++) if (!($i in above)) {
              print "# " $1 " names " $i ", which is not above it"; bad = 1 }
          above[$1] } END { exit bad }' <<<"$table"
ok $? "a folder may use folders above it only"

comm -13 "$tmp/may" "$tmp/does" | while read -r folder other; do
    grep "^$folder $other " "$tmp/uses" |
        sed 's|.* \(.*\)|# \1 includes a header of '"$other"', which '"$folder"' may not|'
done >"$tmp/wrong"
cat "$tmp/wrong"
[ -s "$tmp/does" ] && [ ! -s "$tmp/wrong" ]
ok $? "every include is one that the table allows"

comm -23 "$tmp/may" "$tmp/does" |
    sed 's|\(.*\) \(.*\)|# \1 may use \2 and does not: take it out|' >"$tmp/idle"
cat "$tmp/idle"
[ ! -s "$tmp/idle" ]
ok $? "everything that the table allows is used"

sed 's|/[^/]*$||' "$tmp/files" | sort -u | grep -vxF -f "$tmp/rows" |
    sed 's|^|# no row for |' >"$tmp/new"
cat "$tmp/new"
[ ! -s "$tmp/new" ]
ok $? "every folder with sources has a row"
echo "1..$n"
