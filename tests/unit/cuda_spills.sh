#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cuda_spills.sh - where warnings are errors, the module's kernels do not build
# if registers spill
#
# What builds them is tried on a kernel that has to spill, for every
# architecture that the module is for, and on one that has not.  Run from the
# build directory of tests/.

set -u
export LC_ALL=C

cuda=../kernels/cuda
. "$(dirname "$0")/tap.sh"

# Variable $1 of the module's Makefile.
value()
{
    printf 'include Makefile\nvalue:\n\t@echo "$(%s)"\n' "$1" |
        env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make -s -C "$cuda" -f - value
}

if ! grep -q '^NVCC = .' "$cuda/Makefile" 2>/dev/null; then
    echo "1..0 # SKIP no nvcc: merak_cuda.so is not built"
    exit 0
fi
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

# A kernel with $1 numbers that are alive at once, in registers or spilled.
kernel()
{
    cat <<EOF
__global__ void __launch_bounds__(128) sum(const float *x, float *y)
{
    float v[$1], s = 0;
#pragma unroll
    for (int i = 0; i < $1; i++)
        v[i] = x[i * 128 + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < $1; i++)
        s = s * v[i] + v[$1 - 1 - i];
    y[threadIdx.x] = s;
}
EOF
}

# build N ARCH: as the module's kernels are built, for one architecture.
build()
{
    kernel "$1" >"$tmp/sum.cu"
    # shellcheck disable=SC2086
    (cd "$cuda" && $nvcc $others -gencode "arch=compute_$2,code=sm_$2" \
        -c -o "$tmp/sum.o" "$tmp/sum.cu") >"$tmp/log" 2>&1
}

nvcc=$(value NVCC)
flags=$(value CUDA_ARCH_FLAGS)
others=$(value nvcc_flags)
others=$(sed -E 's/-gencode [^ ]+//g' <<<"${others//\\/}")
# as with --enable-werror, whether this build has it or not
case $others in
*all-warnings*) ;;
*) others="$others -Werror all-warnings" ;;
esac
for arch in $(grep -oE 'code=sm_[0-9a-z]+' <<<"$flags" | sed 's/code=sm_//'); do
    build 64 "$arch"
    ok $? "a kernel whose registers suffice is built for sm_$arch" "$tmp/log"
    ! build 400 "$arch" && grep -q 'spilled' "$tmp/log"
    ok $? "a kernel that spills is not built for sm_$arch" "$tmp/log"
done
[ "$n" -gt 0 ]
ok $? "the module is for one architecture at least"
echo "1..$n"
