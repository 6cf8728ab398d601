/* SPDX-License-Identifier: Apache-2.0 */
/* first_forward.c - the start of a step, before its first forwards
 *
 * Parameters that replicas updated in parts are gathered.  A forward waits for
 * those that it reads.
 */
#include "config.h"

#include "partitioner/search/ends.h"
#include "partitioner/search/replicas.h"

#include <math.h>

/* The part of stage s that is the i-th to read its parameters: a
 * vocabulary-parallel embedding comes before the stage's own parts. */
static const struct merak_range *in_read_order(const struct merak_rater *r,
                                               int s, int i)
{
    int chunk = r->parts > r->chain && i < 2 ? 1 - i : i;

    return &r->range[r->lists->part[s * r->chunks + chunk]];
}

/* What stage s gathers for a segment, but not for an earlier one. */
static struct merak_param_state new_hold(const struct merak_rater *r, int s,
                                         const struct merak_segment *seg)
{
    struct merak_param_state hold = seg->hold;

    for (int i = 0; i < seg->n_shares; i++) {
        const struct merak_share *share =
            &r->table->share[seg->first_share + i];

        if (!merak_stage_runs(r, share->prev, s))
            merak_param_state_add(&hold, &share->hold);
    }
    return merak_param_state_of(&hold, r->plan->zero > 0);
}

/* With ZeRO-3 what is gathered for each use is not gathered before the first.
 * If only the first blocks are, the others' gathers follow theirs. */
static bool leaves_lent(const struct merak_rater *r)
{
    return merak_rater_held(r, MERAK_HELD_PARAM, true).used > 0 &&
           r->plan->fetch == 0;
}

static double gather_bytes(const struct merak_rater *r,
                           const struct merak_param_state *hold)
{
    double lent = leaves_lent(r) ? hold->lent_bytes : 0;

    /* frozen parameters are lent, too */
    return fmax(2 * hold->bf16_elems + 4 * hold->f32_elems - lent, 0);
}

double merak_gathers_s(const struct merak_rater *r,
                       const struct merak_param_state *hold)
{
    int n = hold->n;

    if (n <= 0)
        return 0;
    if (!leaves_lent(r))
        return merak_over_dp(r, false, gather_bytes(r, hold), n) +
               hold->gather_s;
    /* Those of all segments are a bundle, with the rounds of one. */
    return merak_over_dp(r, false, gather_bytes(r, hold), 0) + hold->gather_s -
           hold->lent_gather_s + merak_to_home(r, hold->lent_part);
}

static double gather_s(const struct merak_rater *r, int s,
                       const struct merak_segment *seg)
{
    struct merak_param_state hold;

    if (seg->n_shares == 0)
        return r->ends.gather_s[seg - r->table->segment];
    hold = new_hold(r, s, seg);
    return merak_gathers_s(r, &hold);
}

/* Find when the parameters of each segment are there: a stage gathers from the
 * step's start on, in the order in which it reads. */
static void set_gathered(struct merak_rater *r, int s)
{
    double gathered = 0;

    for (int c = 0; c < r->chunks; c++) {
        const struct merak_range *g = in_read_order(r, s, c);

        for (int i = g->from; i < g->to; i++) {
            gathered += gather_s(r, s, &r->table->segment[i]);
            r->ends.gathered[i] = gathered;
        }
    }
    r->ends.all_gathered[s] = gathered;
}

void merak_set_gathered(struct merak_rater *r)
{
    for (int s = 0; s < r->plan->pp && r->ends.gathered != NULL; s++)
        set_gathered(r, s);
}

/* A stage's gathers in the order in which they run: the next one to begin. */
struct gathers {
    int chunk, segment; /* segment -1: the chunk's first */
    double begins;
};

/* What kernels lose to the gather for a segment that begins at `begins`. */
static double interference_s(const struct merak_rater *r, int segment,
                             double begins)
{
    const struct merak_param_state hold =
        merak_param_state_of(&r->table->segment[segment].hold, true);
    struct merak_interference interference =
        merak_over_dp_interference(r, false, gather_bytes(r, &hold));

    return interference.copy_s + (begins > 0 ? 0 : interference.wake_s);
}

/* A gather slows the kernel that runs when it begins: *end_p, the end of
 * kernels that begin at `start`, is moved by that.  Later calls with the same
 * `next` begin no earlier than this one's end. */
static void add_gather_interference(const struct merak_rater *r, int s,
                                    struct gathers *next, double start,
                                    double *end_p)
{
    if (r->cost->interference_latency_s == 0 &&
        r->cost->interference_bytes_per_s == 0)
        return;
    while (next->chunk < r->chunks && next->begins < *end_p) {
        const struct merak_range *g = in_read_order(r, s, next->chunk);

        if (next->segment < 0)
            next->segment = g->from;
        if (next->segment == g->to) {
            next->chunk++;
            next->segment = -1;
            continue;
        }
        /* Equal if it has no parameters to gather. */
        if (r->ends.gathered[next->segment] != next->begins) {
            if (next->begins >= start)
                *end_p += interference_s(r, next->segment, next->begins);
            next->begins = r->ends.gathered[next->segment];
        }
        next->segment++;
    }
}

/* Each segment waits for its own parameters; on all stages except the first,
 * those with collectives wait for all. */
static double first_forward(const struct merak_rater *r, int s, int part,
                            double at)
{
    const struct merak_range *g = &r->range[part];
    struct gathers next = {.segment = -1};
    double end;

    if (r->ends.gathered == NULL || at >= r->ends.all_gathered[s])
        return at + g->f_s;
    for (int i = g->from; i < g->to; i++) {
        const struct merak_segment *seg = &r->table->segment[i];
        double ready = s > 0 && seg->exchanged > 0 ? r->ends.all_gathered[s]
                                                   : r->ends.gathered[i];

        at = ready > at ? ready : at;
        end = at + seg->f_s;
        add_gather_interference(r, s, &next, at, &end);
        at = end;
    }
    return at;
}

double merak_first_forward_more(const void *rater, int s, int part, double at)
{
    const struct merak_rater *r = rater;

    return first_forward(r, s, part, at) - at - r->range[part].f_s;
}
