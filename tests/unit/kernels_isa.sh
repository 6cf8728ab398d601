#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# kernels_isa.sh - the kernels' unit tests on the instruction sets of lesser
# machines, and what is said of them.  Run from the build directory of tests/.

set -u -o pipefail
export LC_ALL=C
unset MERAK_CPU_ISA ONEDNN_MAX_CPU_ISA DNNL_MAX_CPU_ISA

merak=../cmd/merak
. "$(dirname "$0")/tap.sh"

# VARIABLE=WORD [PATTERN]: kernels_cpu.t, or its tests of these names, or with -
# before the pattern all but those
kernels_on()
{
    "$(dirname "$0")/run_tap.sh" env "$1" ./unit/kernels_cpu.t ${2:+"$2"} \
        >"$tmp/out" 2>&1
    local status=$?

    grep -v '^ok' "$tmp/out" | sed 's/^/# /'
    ok $status "kernels agree with the reference under $1"
}

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

MERAK_CPU_ISA=avx9 $merak calibrate --out "$tmp/device.json" >"$tmp/out" 2>&1
status=$?
sed 's/^/# /' "$tmp/out"
[ $status -eq 66 ] && grep -q 'MERAK_CPU_ISA is "avx9": this machine has base' \
    "$tmp/out"
ok $? "an unknown instruction set is refused with those that there are"

# By day what kernels_cpu.t itself holds of older sets is not repeated.
ours="-every_op_*" theirs="-*_older_set_*"
[ -z "${MERAK_TEST_ALL-}" ] || ours='' theirs=''
kernels_on MERAK_CPU_ISA=base "$ours"
if [ "$(uname -m)" = x86_64 ]; then
    # oneDNN's instructions, not ours
    kernels_on ONEDNN_MAX_CPU_ISA=AVX2 "$theirs"
    kernels_on ONEDNN_MAX_CPU_ISA=SSE41 '*agree_with_the_reference*'
    # what it has that is less than its best, which kernels_cpu.t takes
    if grep -qw avx512f /proc/cpuinfo; then
        kernels_on MERAK_CPU_ISA=avx2 "$ours"
    else
        n=$((n + 1))
        echo "ok $n - avx2 # SKIP this processor has nothing better"
    fi
fi
echo "1..$n"
