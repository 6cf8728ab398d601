/* SPDX-License-Identifier: Apache-2.0 */
/* decoder_memory.c - memory of a decoder's values
 *
 * A value with positions is [1, T, ..], so the part that an op computes for
 * positions [from, from + n) is contiguous.  Values that attention reads back
 * to position 0 have memory for all T positions and are filled part by part;
 * others have memory for one part, which a later value reuses once their last
 * reader has run.
 */
#include "config.h"

#include "runtime/infer/decoder_impl.h"

#include "base/error.h"
#include "base/size.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define LARGE_PAGE ((size_t)2 << 20) /* bytes; other sizes work too */

static void measure(struct merak_decoder *d)
{
    const struct merak_graph *g = d->graph;

    for (int v = 0; v < g->n_values; v++) {
        const struct merak_value *value = g->value[v];
        size_t bytes = merak_value_bytes(value);

        d->place[v].row = d->place[v].positions ? bytes / g->seq : bytes;
        d->place[v].last = -1;
    }
    for (int n = 0; n < g->n_forward; n++) {
        for (int i = 0; i < g->node[n]->n_in; i++)
            d->place[g->node[n]->in[i]->id].last = n;
    }
    /* read by the caller */
    d->place[d->logits->id].last = d->place[d->nll->id].last = g->n_nodes;
}

static enum merak_status allocate(struct merak_decoder_place *p, size_t rows,
                                  struct merak_error *err)
{
    size_t bytes;

    if (!merak_size_mul(p->row, rows, &bytes) ||
        !merak_size_add(bytes, MERAK_DECODER_ALIGN, &bytes))
        return merak_fail_nomem(err, p->row);
    bytes = merak_size_align(bytes, MERAK_DECODER_ALIGN);
    p->data = aligned_alloc(MERAK_DECODER_ALIGN, bytes);
    if (p->data == NULL)
        return merak_fail_nomem(err, bytes);
    p->owned = true;
    return MERAK_OK;
}

/* Weights are read from end to end for each token: with small pages each 4 KiB
 * would need a TLB lookup, and the processor prefetches only within a page.
 * So they are one allocation, in huge pages if possible. */
static enum merak_status allocate_weights(struct merak_decoder *d, size_t bytes,
                                          struct merak_error *err)
{
    d->weights = aligned_alloc(LARGE_PAGE, bytes);
    if (d->weights == NULL)
        return merak_fail_nomem(err, bytes);
    (void)madvise(d->weights, bytes, MADV_HUGEPAGE);
    return MERAK_OK;
}

static enum merak_status place_params(struct merak_decoder *d,
                                      struct merak_error *err)
{
    const struct merak_graph *g = d->graph;
    enum merak_status rc;
    size_t bytes = 0;

    for (int v = 0; v < g->n_values; v++) {
        if (g->value[v]->kind != MERAK_VALUE_PARAM)
            continue;
        if (!merak_size_add(bytes, d->place[v].row, &bytes) ||
            bytes > SIZE_MAX - 2 * LARGE_PAGE)
            return merak_fail_nomem(err, SIZE_MAX);
        bytes = merak_size_align(bytes, MERAK_DECODER_ALIGN);
    }
    rc = allocate_weights(
        d, merak_size_align(bytes + MERAK_DECODER_ALIGN, LARGE_PAGE), err);
    bytes = 0;
    for (int v = 0; v < g->n_values && rc == MERAK_OK; v++) {
        if (g->value[v]->kind != MERAK_VALUE_PARAM)
            continue;
        d->place[v].data = d->weights + bytes;
        bytes = merak_size_align(bytes + d->place[v].row, MERAK_DECODER_ALIGN);
    }
    return rc;
}

/* Reuse the memory of a value of the same size that no node from `node` on
 * reads. */
static bool take_over(struct merak_decoder *d, struct merak_decoder_place *p,
                      int node)
{
    for (int v = 0; v < d->graph->n_values; v++) {
        struct merak_decoder_place *old = &d->place[v];

        if (!old->owned || old->kept || !old->positions || old->row != p->row ||
            old->last >= node || old->last < 0)
            continue;
        p->data = old->data;
        p->owned = true;
        old->owned = false;
        return true;
    }
    return false;
}

static enum merak_status place_output(struct merak_decoder *d, int node,
                                      struct merak_decoder_place *p,
                                      struct merak_error *err)
{
    if (p->last < 0)
        p->last = node; /* never read: a statistic */
    if (p->kept)
        return allocate(p, d->graph->seq, err);
    return take_over(d, p, node) ? MERAK_OK : allocate(p, d->part, err);
}

enum merak_status merak_decoder_place_values(struct merak_decoder *d,
                                             struct merak_error *err)
{
    const struct merak_graph *g = d->graph;
    enum merak_status rc;

    measure(d);
    rc = place_params(d, err);
    for (int n = 0; n < g->n_forward && rc == MERAK_OK; n++) {
        for (int o = 0; o < g->node[n]->n_out && rc == MERAK_OK; o++) {
            if (d->wanted[MERAK_WISH_LOSS][n])
                rc = place_output(d, n, &d->place[g->node[n]->out[o]->id], err);
        }
    }
    if (rc == MERAK_OK && d->logits->dtype != MERAK_F32) {
        size_t n = merak_decoder_vocab(d);

        d->wide = malloc(n * sizeof(*d->wide));
        if (d->wide == NULL)
            rc = merak_fail_nomem(err, n * sizeof(*d->wide));
    }
    return rc;
}
