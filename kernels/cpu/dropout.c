/* SPDX-License-Identifier: Apache-2.0 */
/* dropout.c - the mask of merak_dropout_key(), a Philox block in every lane
 *
 * Element e of a sample uses word e % 4 of block e / 4 (base/rng.h), so a
 * chunk of 32 elements that begins at a multiple of 32 is eight blocks, each
 * in a 64-bit lane.  Runs of a shard may begin anywhere: the first and last
 * chunk of a part are used in part.
 */
#include "config.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/philox.h"
#include "kernels/cpu/vec.h"

#include <math.h>

#define CHUNK 32
#define PART 4096 /* elements of a run an item takes */

struct dropout {
    const struct merak_operand *x;
    const void *in;
    void *out;
    const struct merak_step *step;
    int64_t stream;
    size_t pieces;      /* of sequences */
    size_t run, parts;  /* elements of a run, parts it is cut into */
    uint32_t threshold; /* of 24-bit words: at least this is kept */
    float scale;
    bool bf16;
};

/* Mask n elements from local element `at`, with words from word[] on. */
INLINE void mask(const struct dropout *d, size_t at, size_t n,
                 const uint32_t *word, bool bf16)
{
    for (size_t i = 0; i < n; i += LANES) {
        size_t left = n - i < LANES ? n - i : LANES;
        vu w = {0};
        vi keep;

        memcpy(&w, word + i, left * sizeof(*word));
        keep = (vi)((w >> 8) >= d->threshold);
        vstore_n(d->out, at + i, left,
                 vselect(keep, vload_n(d->in, at + i, left, bf16) * d->scale,
                         vset(0)),
                 bf16);
    }
}

static void part(void *arg, size_t item, int thread)
{
    const struct dropout *d = arg;
    size_t run = item / d->parts, from = item % d->parts * PART;
    size_t end = from + PART < d->run ? from + PART : d->run;
    size_t sample, element, n;
    uint64_t key;

    (void)thread;
    merak_run_place(d->x, d->pieces, run, &sample, &element);
    key = merak_dropout_key(d->step, sample, d->stream);
    for (; from < end; from += n) {
        size_t skip = (element + from) % CHUNK;
        uint32_t word[CHUNK];

        n = CHUNK - skip < end - from ? CHUNK - skip : end - from;
        for (size_t b = 0; b < CHUNK / 4; b += PHILOX_BLOCKS)
            philox(key, (element + from) / CHUNK * (CHUNK / 4) + b,
                   word + 4 * b);
        if (d->bf16)
            mask(d, run * d->run + from, n, word + skip, true);
        else
            mask(d, run * d->run + from, n, word + skip, false);
    }
}

CPU_KERNEL(dropout)
{
    const struct merak_operand *x = &call->operand[0];
    double p = call->step->train ? call->attrs->f[0] : 0.0;
    struct dropout d = {.x = x,
                        .in = x->data,
                        .out = merak_call_out(call, 0)->data,
                        .step = call->step,
                        .stream = call->attrs->i[0],
                        .pieces = call->pieces,
                        .threshold = (uint32_t)ceil(p * 0x1p24),
                        .scale = (float)(1 / (1 - p)),
                        .bf16 = x->dtype == MERAK_BF16};
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);

    if (rc != MERAK_OK)
        return rc;
    d.run = merak_run_length(x, call->pieces);
    d.parts = cpu_range_count(d.run, PART);
    merak_pool_run(part, &d, merak_run_count(x, call->pieces) * d.parts);
    return MERAK_OK;
}
