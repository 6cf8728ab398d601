/* SPDX-License-Identifier: Apache-2.0 */
/* warmups.c - the least micro-batches in flight with which hops cost nothing
 *
 * In the steady state a stage that works t on a micro-batch, forward and
 * backward, is up to c + t + c ahead of the next one, which is c away.  For a
 * period P, that of the stage or way which is busy longest, it needs (2c + t)/P
 * micro-batches more in flight, from the last stage on, rounded up.
 */
#include "config.h"

#include "partitioner/program/instr_cost.h"
#include "partitioner/search/rate.h"
#include "partitioner/search/search_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define ROUNDING 1e-9

/* Of a stage: its work on a micro-batch, and both transfers of the hop after
 * it. */
struct stage_time {
    double work_s, hops_s;
};

static double transfer_s(const struct merak_links *links,
                         const struct merak_plan *p, int stage, double bytes)
{
    return merak_links_transfer_s(links, merak_plan_rank(p, 0, 0, stage),
                                  merak_plan_rank(p, 0, 0, stage + 1), bytes);
}

/* Fill time[stages] of a candidate's balanced bounds; returns the period. */
static double find_times(const struct merak_search *s,
                         const struct merak_candidate *cand,
                         struct stage_time *time)
{
    const struct merak_plan *p = &cand->plan;
    const struct merak_links links = merak_links_shared(&s->cost.links, p, 0);
    const int *bound = cand->balanced;
    double period_s = 0;

    for (int q = 0; q < p->pp; q++) {
        const struct merak_segment *seg = cand->table->segment;
        double up, down;

        time[q] = (struct stage_time){0, 0};
        for (int i = bound[q]; i < bound[q + 1]; i++)
            time[q].work_s += seg[i].f_s + seg[i].b_s;
        period_s = fmax(period_s, time[q].work_s);
        if (q + 1 == p->pp)
            break;
        seg = &seg[bound[q + 1]];
        up = p->scatter > 0 ? seg->up_part : seg->up_bytes;
        down = p->scatter > 0 ? seg->down_part : seg->down_bytes;
        up *= merak_rate_sent_share(p, q, q + 1, true);
        down *= merak_rate_sent_share(p, q, q + 1, false);
        time[q].hops_s =
            transfer_s(&links, p, q, up) + transfer_s(&links, p, q, down);
        period_s = fmax(period_s, transfer_s(&links, p, q, fmax(up, down)) -
                                      transfer_s(&links, p, q, 0));
    }
    return period_s;
}

bool merak_search_least_warmups(const struct merak_search *s,
                                const struct merak_candidate *cand, char *name,
                                size_t bytes)
{
    int pp = cand->plan.pp, units = merak_plan_units(&cand->plan);
    struct stage_time *time = calloc((size_t)pp, sizeof(*time));
    int *held = calloc((size_t)pp, sizeof(*held));
    bool ok = time != NULL && held != NULL;
    double period_s = ok ? find_times(s, cand, time) : 0, ahead = 0;
    size_t n = 0;

    ok = ok && period_s > 0;
    for (int q = pp - 1; ok && q >= 0; q--) {
        double share = time[q].work_s / period_s;

        ahead += share + time[q].hops_s / period_s;
        held[q] = ahead < units ? (int)ceil(ahead - ROUNDING) : units;
        held[q] = held[q] > 1 ? held[q] : 1;
        ahead = fmin(fmax(ahead, held[q] - 1 + share), units);
    }
    for (int q = 0; ok && q < pp && n < bytes; q++)
        n += (size_t)snprintf(name + n, bytes - n, "%s%d",
                              q == 0 ? "eager:" : "-", held[q]);
    if (ok && n >= bytes) /* too long for a name: on a line */
        snprintf(name, bytes, "eager:%d", held[0]);
    free(time);
    free(held);
    return ok;
}
