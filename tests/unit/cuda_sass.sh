#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cuda_sass.sh - kernels that are bound by memory access it 16 bytes at a time
#
# nvcc may divide such an access, which no host shows.  Reads the machine code
# of sm_90a with cuobjdump.  Run from the build directory of tests/.

set -u
export LC_ALL=C

cuda=../kernels/cuda
. "$(dirname "$0")/tap.sh"

# FILE KERNEL LOADS STORES: at least so many of 16 bytes in every instance
kernels='
cuda_copy combine_floats 2 1
cuda_embed gather_rows 4 4
cuda_embed add_segments 8 1
cuda_position add_positions 8 4
cuda_position sum_positions 5 1
cuda_norm norm_rows 5 2
cuda_norm norm_rows_dx 7 2
cuda_columns norm_rows_back 6 3
cuda_columns column_parts 1 0
cuda_loss row_maxima 1 0
cuda_loss row_gradients 1 1
cuda_xent row_losses 1 1
cuda_pointwise map_elements 3 3
cuda_pointwise drop_strips 4 4
cuda_rope turn_pairs 3 3
cuda_step square_blocks 8 0
cuda_step adamw_blocks 4 3
'

# The instances of kernel $1 in $tmp/sass: their number, and the fewest of
# LDG.E.128 and STG.E.128 in one.
fewest()
{
    awk -v name="[0-9]$1[^a-z_]" '
        /Function :/ { found = $0 ~ name; n += found; of[n] += 0; st[n] += 0 }
        found && /LDG\.E\.128/ { of[n]++ }
        found && /STG\.E\.128/ { st[n]++ }
        END {
            for (i = 1; i <= n; i++) {
                if (i == 1 || of[i] < loads) loads = of[i]
                if (i == 1 || st[i] < stores) stores = st[i]
            }
            print n + 0, loads + 0, stores + 0
        }' "$tmp/sass"
}

if ! grep -q 'sm_90a' "$cuda/Makefile" 2>/dev/null ||
    ! [ -f "$cuda/.libs/cuda_step.o" ]; then
    echo "1..0 # SKIP merak_cuda.so is not built for sm_90a"
    exit 0
fi
if ! command -v cuobjdump >/dev/null; then
    echo "1..0 # SKIP no cuobjdump in PATH"
    exit 0
fi
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

while read -r file kernel loads stores; do
    [ -n "$file" ] || continue
    cuobjdump -arch sm_90a -sass "$cuda/.libs/$file.o" >"$tmp/sass" 2>&1
    read -r n_found l s < <(fewest "$kernel")
    [ "$n_found" -gt 0 ] && [ "$l" -ge "$loads" ] && [ "$s" -ge "$stores" ]
    ok $? "$kernel loads and stores 16 bytes at a time"
    [ "$n_found" -gt 0 ] || echo "# not found in $file.o"
    echo "# at least $l loads, $s stores in each of $n_found instances"
done <<<"$kernels"
echo "1..$n"
