#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# completion.sh - what bash offers behind `merak ..`
#
# Run from the build directory of tests/.

set -u -o pipefail
export LC_ALL=C

top=$(cd "$(dirname "$0")/../.." && pwd)
. "$(dirname "$0")/tap.sh"
. "$top/doc/merak-completion.bash"

# offers WORDS... -- WANTED: the words that are offered for the last are these
offers()
{
    local want=${*: -1} got

    COMP_WORDS=(../cmd/merak "${@:1:$#-2}")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _merak
    got=$(printf '%s\n' "${COMPREPLY[@]}" | sort -u | paste -sd ' ')
    [ "$got" = "$want" ] || echo "# got: $got"
    [ "$got" = "$want" ]
    ok $? "merak ${*:1:$#-2} -> $want"
}

offers pl -- plan
offers doc -- doctor
offers --ve -- --version
offers ckpt ve -- verify
offers ckpt re -- reshard
offers ckpt diff --te -- --tensors-only
offers ckpt reshard run --zero1 "" -- "no yes"
offers data p -- pack
offers data pack --tok -- --tokenizer
offers train --dty -- --dtype
offers train --dtype b -- bf16
offers train --lr-schedule "" -- "constant cosine linear wsd"
offers train --data corpus --ckpt-as -- --ckpt-async
offers train --sp = o -- "off on"
offers train --data "" -- ""
offers plan --glob -- --global-batch
offers doctor --d -- "--deadline --dir"
offers sandbox --no -- --nodes
offers nonsense --x -- ""
echo "1..$n"
