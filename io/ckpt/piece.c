/* SPDX-License-Identifier: Apache-2.0 */
/* piece.c - a flat range of a box of a tensor, as boxes of the tensor */
#include "config.h"

#include "io/ckpt/ckpt_impl.h"

#include "base/error.h"

#include <string.h>

int merak_ckpt_piece_boxes(const struct merak_ckpt_piece *piece,
                           struct merak_box boxes[MERAK_FLAT_BOXES])
{
    struct merak_shape local = merak_box_shape(&piece->box);
    int n = merak_flat_boxes(&local, piece->flat_lo, piece->flat_hi, boxes);
    for (int i = 0; i < n; i++) {
        for (int d = 0; d < boxes[i].ndim; d++) {
            boxes[i].full[d] = piece->shape.dim[d];
            boxes[i].lo[d] += piece->box.lo[d];
        }
    }
    return n;
}

size_t merak_ckpt_piece_bytes(const struct merak_ckpt_piece *piece)
{
    return (piece->flat_hi - piece->flat_lo) * sizeof(*piece->data);
}

bool merak_ckpt_box_meet(const struct merak_box *a, const struct merak_box *b,
                         struct merak_box *both)
{
    *both = *a;
    for (int d = 0; d < a->ndim; d++) {
        size_t a_hi = a->lo[d] + a->len[d], b_hi = b->lo[d] + b->len[d];
        size_t hi = a_hi < b_hi ? a_hi : b_hi;

        if (b->lo[d] > a->lo[d])
            both->lo[d] = b->lo[d];
        if (both->lo[d] >= hi)
            return false;
        both->len[d] = hi - both->lo[d];
    }
    return true;
}

/* A name is an HDF5 path: no component may be empty or begin with a dot, so
 * that the path is literal. */
static bool is_tensor_name(const char *name)
{
    const char *at = name;
    size_t n;

    if (name == NULL || strlen(name) >= MERAK_CKPT_MAX_TENSOR)
        return false;
    for (;;) {
        n = strcspn(at, "/");
        if (n == 0 || (n == 1 && at[0] == '.'))
            return false;
        if (at[n] == '\0')
            return true;
        at += n + 1;
    }
}

enum merak_status merak_ckpt_piece_check(const struct merak_ckpt_piece *piece,
                                         struct merak_error *err)
{
    const struct merak_box *box = &piece->box;
    bool sound = box->ndim == piece->shape.ndim && box->ndim >= 0 &&
                 box->ndim <= MERAK_MAX_DIMS;

    if (!is_tensor_name(piece->name))
        return merak_fail(err, MERAK_ERR_PARAM,
                          "\"%.100s\" cannot name a tensor of a checkpoint",
                          piece->name == NULL ? "" : piece->name);
    for (int d = 0; sound && d < box->ndim; d++)
        sound = box->full[d] == piece->shape.dim[d] &&
                box->lo[d] <= box->full[d] &&
                box->len[d] <= box->full[d] - box->lo[d];
    if (!sound || piece->flat_lo > piece->flat_hi ||
        piece->flat_hi > merak_box_count(box) ||
        (piece->data == NULL && piece->flat_lo < piece->flat_hi))
        return merak_fail(err, MERAK_ERR_PARAM,
                          "tensor %s: the piece is not in the tensor",
                          piece->name);
    return MERAK_OK;
}
