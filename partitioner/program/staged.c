/* SPDX-License-Identifier: Apache-2.0 */
/* staged.c - what an exchange stages in a device's memory */
#include "config.h"

#include "partitioner/program/staged.h"

#include "base/size.h"

/* What the fragments of all members take together, unless they would be too
 * small to be moved efficiently: queueing one takes the host some 100 us, in
 * which a GPU moves 20 MiB to another. */
#define WINDOW_BYTES ((size_t)64 << 20)
#define MOST_FRAGMENT ((size_t)32 << 20)
#define LEAST_FRAGMENT ((size_t)1 << 20)
/* An all-reduce of at most this size is done in one round, if all that is
 * received takes no more than SHORT_STAGING. */
#define SHORT_BYTES ((size_t)128 << 10)
#define SHORT_STAGING ((size_t)4 << 20)

static size_t aligned(size_t bytes)
{
    return merak_size_align(bytes, MERAK_STAGED_ALIGN);
}

static size_t bytes_of(const struct merak_exchange *ex,
                       const struct merak_box *box)
{
    return merak_box_count(box) * merak_dtype_bytes(ex->dtype);
}

size_t merak_staged_fragment(int n)
{
    size_t fragment = n < 2 ? MOST_FRAGMENT : WINDOW_BYTES / (size_t)(n - 1);

    if (fragment > MOST_FRAGMENT)
        return MOST_FRAGMENT;
    return fragment < LEAST_FRAGMENT
               ? LEAST_FRAGMENT
               : fragment / MERAK_STAGED_ALIGN * MERAK_STAGED_ALIGN;
}

bool merak_staged_is_short(const struct merak_exchange *ex)
{
    size_t bytes = merak_shape_count(&ex->in) * merak_dtype_bytes(ex->dtype);

    if (ex->kind != MERAK_CONVERT_ALL_REDUCE)
        return false;
    return ex->n == 2 ||
           (bytes <= SHORT_BYTES && bytes * (size_t)ex->n <= SHORT_STAGING);
}

/* Everything of an all-reduce, as one box. */
static struct merak_box whole_box(const struct merak_exchange *ex)
{
    struct merak_box box = {.ndim = 1};

    box.full[0] = box.len[0] = merak_shape_count(&ex->in);
    return box;
}

struct merak_box merak_staged_sent(const struct merak_exchange *ex, int q)
{
    return merak_staged_is_short(ex) ? whole_box(ex) : ex->send[q];
}

struct merak_box merak_staged_combined(const struct merak_exchange *ex)
{
    return merak_staged_is_short(ex) ? whole_box(ex) : ex->recv[ex->me];
}

size_t merak_staged_stride(const struct merak_exchange *ex, size_t fragment)
{
    struct merak_box box = merak_staged_combined(ex);
    size_t bytes = bytes_of(ex, &box);

    return aligned(bytes < fragment ? bytes : fragment);
}

static size_t combined_bytes(const struct merak_exchange *ex, size_t fragment)
{
    struct merak_box box = merak_staged_combined(ex);
    size_t bytes = (size_t)(ex->n - 1) * merak_staged_stride(ex, fragment);

    if (!merak_box_contiguous(&box, NULL))
        bytes += aligned(bytes_of(ex, &box));
    for (int q = 0; q < ex->n; q++) {
        box = merak_staged_sent(ex, q);
        if (!merak_box_contiguous(&box, NULL))
            bytes += aligned(bytes_of(ex, &box));
    }
    return bytes;
}

/* What a member sends to itself: stored before others' pieces are moved. */
static size_t own_bytes(const struct merak_exchange *ex)
{
    if (merak_box_contiguous(&ex->send[ex->me], NULL) ||
        merak_box_contiguous(&ex->recv[ex->me], NULL))
        return 0;
    return aligned(bytes_of(ex, &ex->send[ex->me]));
}

size_t merak_staged_bytes(const struct merak_exchange *ex, size_t fragment)
{
    size_t moved, own;

    if (ex->n > 1 && ex->combine != MERAK_STORE)
        return combined_bytes(ex, fragment > 0 ? fragment
                                               : merak_staged_fragment(ex->n));
    if (ex->kind == MERAK_CONVERT_ALL_REDUCE)
        return 0; /* of one member */
    moved = merak_exchange_scratch(ex);
    own = own_bytes(ex);
    return moved > own ? moved : own;
}

size_t merak_exchange_room(const struct merak_exchange *ex, bool direct)
{
    size_t host = merak_exchange_scratch(ex);
    size_t staged = direct ? merak_staged_bytes(ex, 0) : 0;

    return host > staged ? host : staged;
}
