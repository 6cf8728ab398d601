/* SPDX-License-Identifier: Apache-2.0 */
/* experts.c - gated MLPs of chosen rows; the equations are in
 * ref/ref_experts.c
 */
#include "config.h"

#include "kernels/cpu/experts_chunk.h"

/* The gate's and the other layer's rows to the pool, and what they make. */
INLINE void join_rows(const struct chunk *c, size_t item, bool bf16)
{
    size_t end = cpu_range_end(item, GRAIN, c->rows), F = c->s.F;
    const struct gates by = gates_of(c);

    for (size_t i = item * GRAIN; i < end; i++) {
        void *to = i < c->placed ? layer_of(c, c->pool, NULL, i) : NULL;

        for (size_t f = 0; f < F; f += LANES) {
            vf g = vload_n(c->room.gate + i * F, f, F - f, false), u;

            u = vload_n(c->room.up + i * F, f, F - f, false);
            g = rounded(with_bias(c, g, 0, f), bf16);
            u = rounded(with_bias(c, u, 1, f), bf16);
            if (to != NULL) {
                vstore_n(to, f, F - f, g, bf16);
                vstore_n(to, F + f, F - f, u, bf16);
            }
            vstore_n(c->room.h, i * F + f, F - f, gated(&by, g, u), bf16);
        }
    }
}

static void join_item(void *arg, size_t item, int thread)
{
    const struct chunk *c = arg;

    (void)thread;
    if (c->bf16)
        join_rows(c, item, true);
    else
        join_rows(c, item, false);
}

static enum merak_status forward(struct chunk *c, struct merak_error *err)
{
    size_t C = c->s.C, F = c->s.F;
    struct room *r = &c->room;
    enum merak_status rc = first_products(c, err);

    if (rc != MERAK_OK)
        return rc;
    merak_pool_run(join_item, c, cpu_range_count(c->rows, GRAIN));
    rc = multiply(c, c->rows, C, F, r->h, matrix(c, 2), true, false, r->out,
                  err);
    if (rc == MERAK_OK)
        merak_pool_run(add_weighted_item, c, cpu_range_count(C, SLAB));
    return rc;
}

CPU_KERNEL(experts)
{
    struct chunk c = {.x = call->operand[0].data,
                      .pool = merak_call_out(call, 1)->data};

    return each_sum(call, &c, forward, err);
}

EXPERTS_SCRATCH(experts)
