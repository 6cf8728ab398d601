#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# kernels_count.sh - instructions of the AVX2 kernels, so that none becomes
# slow unseen.  Run from the build directory of tests/.
#
# kernels_count.t runs each once; callgrind, which has AVX2 and no AVX-512,
# counts.  With vectors that gcc keeps in memory all of them need several times
# as much; the bounds are half above what gcc 12 makes, for other compilers.

set -u -o pipefail
export LC_ALL=C
unset MERAK_CPU_ISA

n=0

# at_most KERNEL UNITS BOUND: no more than BOUND instructions for each of the
# UNITS that one call computes.
at_most()
{
    local count

    count=$(sed -n "s/^ *\([0-9,]*\) .*:merak_$1_cpu_avx2 .*/\1/p" \
        "$tmp/text" | head -n 1 | tr -d ,)
    n=$((n + 1))
    echo "# $1: ${count:-no} instructions, $((${count:-0} * 10 / $2)) tenths" \
        "a unit of $2"
    if [ -n "$count" ] && [ "$count" -le $(($2 * $3)) ]; then
        echo "ok $n - $1 takes at most $3 instructions a unit"
    else
        echo "not ok $n - $1 takes at most $3 instructions a unit"
    fi
}

if ! command -v valgrind >/dev/null; then
    echo "1..0 # SKIP there is no valgrind"
    exit 0
fi
if ! grep -qw avx2 /proc/cpuinfo 2>/dev/null; then
    echo "1..0 # SKIP this processor has no AVX2"
    exit 0
fi

if grep -q -e -fsanitize ../Makefile; then
    echo "1..0 # SKIP valgrind does not run what has a sanitizer"
    exit 0
fi

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

if ! ../libtool --mode=execute valgrind --tool=callgrind \
    --callgrind-out-file="$tmp/out" ./unit/kernels_count.t >"$tmp/log" 2>&1 ||
    ! callgrind_annotate --inclusive=yes --threshold=100 "$tmp/out" \
        >"$tmp/text" 2>>"$tmp/log"; then
    sed 's/^/# /' "$tmp/log"
    # valgrind 3.19 and what clang 14 writes
    if grep -q "debuginfo reader" "$tmp/log"; then
        echo "1..0 # SKIP valgrind cannot read what this compiler writes"
        exit 0
    fi
    echo "Bail out! callgrind cannot run the kernels"
    exit 1
fi

# A unit of attention is a query, a key that it sees and a head: 128
# multiplications forward, 320 backward, eight an instruction.
pairs=$((2 * 256 * 257 / 2))
at_most attention_packed $pairs 84
at_most attention_packed_dx $pairs 174
# and of a window of 64 in 512: what no query of a tile sees takes no time
seen=$((2 * (64 * 65 / 2 + 448 * 64)))
at_most attention $seen 138
at_most attention_dx $seen 273
# else an element
at_most layernorm $((256 * 128)) 10
at_most layernorm_dx $((256 * 128)) 9
at_most layernorm_dw $((256 * 128)) 2
at_most gelu $((256 * 128)) 8
at_most gelu_dx $((256 * 128)) 9
at_most xent_sum $((256 * 1024)) 5
echo "1..$n"
