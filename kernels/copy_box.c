/* SPDX-License-Identifier: Apache-2.0 */
/* copy_box.c - copy a part of a tensor */
#include "config.h"

#include "kernels/accel.h"

#include <string.h>

void merak_pack_box(void *to, const void *from,
                    const struct merak_accel_box *box)
{
    size_t at[MERAK_MAX_DIMS] = {0};
    size_t row = box->len[box->ndim - 1] * box->elem_bytes;
    const unsigned char *in = from;
    unsigned char *out = to;
    int d;

    for (d = 0; d < box->ndim; d++) {
        if (box->len[d] == 0)
            return;
    }
    do {
        size_t first = 0;

        for (d = 0; d < box->ndim; d++)
            first = first * box->full[d] + box->lo[d] + at[d];
        memcpy(out, in + first * box->elem_bytes, row);
        out += row;
        for (d = box->ndim - 2; d >= 0; d--) {
            if (++at[d] < box->len[d])
                break;
            at[d] = 0;
        }
    } while (d >= 0);
}
