/* SPDX-License-Identifier: Apache-2.0 */
/* least_bound.c - what no plan of the degrees that were looked at takes less
 * than
 *
 * For each table and number of stages, whatever the cuts, chunks and schedule:
 *
 *   work    All stages together work W seconds for a unit: its kernels, and
 *           what exchanges between tensor ranks leave exposed.  The mean stage
 *           works W/pp for each of the units, and waits first until the first
 *           unit has gone through a segment of each stage before it.
 *   pieces  Segments are not divided, but for layers that all stages run: some
 *           stage has n/pp, rounded up, of the n that work longest, for any n.
 *   memory  What a segment keeps of a unit is held at least while the unit goes
 *           through all later segments and back, forward and input gradients.
 *           Bytes times seconds, added up over segments and units, cannot
 *           exceed those of all stages in a step, less what these hold all the
 *           time.  If they would, segments recompute, those first that save
 *           most for a second, or the step takes longer.
 */
#include "config.h"

#include "partitioner/search/search_impl.h"

#include "base/error.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

/* Of the seconds of a table, which joins a segment's kernels and exchanges at
 * its end: where a part ends, the next action's kernels run meanwhile. */
#define OVERLAP 0.01

/* What recomputing a segment saves, in bytes times seconds. */
struct saving {
    double saved, seconds;
};

/* A unit of work on all stages. */
struct unit {
    double work_s;
    double area; /* bytes times seconds that it is held */
    struct saving *saving;
    int n;
};

static double piece_s(const struct merak_table *t, int segment)
{
    const struct merak_segment *seg = &t->segment[segment];
    double again = (t->passes > 1 ? t->passes - 1 : 0) * seg->f_s;
    double all = (1 - OVERLAP) * (seg->f_s + seg->b_s + again);

    return t->width > 1 ? all : fmax(seg->kernel_s, all);
}

static double work_of(const struct merak_table *t)
{
    double all = 0;

    for (int i = 0; i < t->n; i++)
        all += piece_s(t, i);
    return all;
}

static int longer(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x < *y) - (*x > *y);
}

/* Seconds of a unit on the stage that works longest: of the segments that one
 * stage runs. */
static double longest_stage(const struct merak_table *t, double *pieces_s,
                            int pp)
{
    int n = t->n - t->n_shared;
    double most = 0;

    for (int i = 0; i < n; i++)
        pieces_s[i] = piece_s(t, i);
    qsort(pieces_s, (size_t)n, sizeof(*pieces_s), longer);
    for (int i = 0; i < n; i++)
        most = fmax(most, (i / pp + 1) * pieces_s[i]);
    return most;
}

/* The mean wait of stages for the first unit. */
static double first_wait(const struct merak_table *t, int pp)
{
    double before = 0, all = 0;

    for (int s = 1; s < pp && s < t->n; s++) {
        before += (1 - OVERLAP) * t->segment[s].f_s / t->width;
        all += before;
    }
    return all / pp;
}

/* Bytes of a segment that no earlier one keeps, too. */
static double kept_of(const struct merak_table *t, int segment,
                      enum merak_keep keep)
{
    const struct merak_segment *seg = &t->segment[segment];
    double kept = seg->kept[keep];

    for (int i = 0; i < seg->n_shares; i++)
        kept -= t->share[seg->first_share + i].kept[keep];
    return fmax(kept, 0);
}

/* The most that a segment can save, as if all of it were saved at the rate of
 * the cheapest way. */
static struct saving saving_of(const struct merak_table *t, int segment,
                               double held_s)
{
    const struct merak_segment *seg = &t->segment[segment];
    double kept = kept_of(t, segment, MERAK_KEEP_ALL), best = 0;
    struct saving saving = {0};

    for (int k = MERAK_KEEP_ALL + 1; k < MERAK_KEEPS; k++) {
        double saved = kept - kept_of(t, segment, (enum merak_keep)k);
        double seconds = seg->recompute_s[k];

        saving.saved = fmax(saving.saved, saved * held_s);
        if (saved > 0)
            best = fmax(best, seconds > 0 ? saved * held_s / seconds : DBL_MAX);
    }
    saving.seconds = best > 0 ? saving.saved / best : 0;
    return saving;
}

/* The most saved for a second first. */
static int cheaper(const void *a, const void *b)
{
    const struct saving *x = a, *y = b;
    double dx = x->saved * y->seconds, dy = y->saved * x->seconds;

    return (dx < dy) - (dx > dy);
}

/* The layers at either end may be shared by all stages, which run them faster:
 * they hold up nothing here.  Of a pair, a half may be ahead of the other, and
 * a slice of those before it. */
static bool unit_init(struct unit *u, const struct merak_table *t)
{
    double held_s = 0, parts = t->width * (double)t->slices;

    *u = (struct unit){.work_s = work_of(t)};
    u->saving = calloc((size_t)t->n, sizeof(*u->saving));
    if (u->saving == NULL)
        return false;
    for (int i = t->n - 1; i >= 0; i--) {
        const struct merak_segment *seg = &t->segment[i];

        u->area += kept_of(t, i, MERAK_KEEP_ALL) * held_s;
        u->saving[u->n] = saving_of(t, i, held_s);
        u->n += u->saving[u->n].saved > 0;
        if (i < t->n - 1 && i < t->n - t->n_shared)
            held_s += (seg->f_s + seg->x_s) * (1 - OVERLAP) / parts;
    }
    qsort(u->saving, (size_t)u->n, sizeof(*u->saving), cheaper);
    return true;
}

/* Seconds of a unit on all stages together, each with `room` bytes. */
static double unit_seconds(const struct unit *u, double room)
{
    double area = u->area, all_s = u->work_s;

    for (int i = 0; i < u->n && area > room * all_s; i++) {
        const struct saving *saving = &u->saving[i];
        double need =
            (area - room * all_s) / (saving->saved + room * saving->seconds);

        need = need < 1 ? need : 1;
        area -= need * saving->saved;
        all_s += need * saving->seconds;
    }
    return fmax(all_s, area / room);
}

/* Bytes that the mean stage holds all the time, shared out as far as a request
 * allows. */
static double state_of(const struct merak_search *s,
                       const struct merak_table *t, int pp, int replicas)
{
    struct merak_param_state hold = {0};
    double whole, lent = 0, parts = replicas;

    for (int i = 0; i < t->n; i++)
        merak_param_state_add(&hold, &t->segment[i].hold);
    for (int i = 0; i < t->n_shares; i++)
        merak_param_state_drop(&hold, &t->share[i].hold);
    if (merak_search_may_be_flat(&s->in->pin))
        lent = (hold.lent_bytes + hold.lent_grad_bytes) * (1 - 1 / parts);
    whole = hold.param_bytes + hold.grad_bytes - lent;
    hold = merak_param_state_of(&hold, true);
    if (s->in->pin.offload == MERAK_OFFLOAD_NONE) /* else the host may have it */
        whole += merak_param_state_optimizer(&hold) / parts;
    return fmax(whole, 0) / pp;
}

static double room_of(const struct merak_search *s,
                      const struct merak_candidate *c)
{
    return merak_search_limit(s, c) * MERAK_SEARCH_SLACK -
           state_of(s, c->table, c->plan.pp,
                    merak_plan_mesh(&c->plan, 0).dp * merak_search_cp(s->in));
}

static enum merak_status find_bound(struct merak_search *s,
                                    const struct merak_candidate *c,
                                    double *seconds_p)
{
    const struct merak_table *t = c->table;
    double units = merak_plan_units(&c->plan), room = room_of(s, c);
    struct unit unit = {0};
    double *pieces = calloc((size_t)t->n, sizeof(*pieces)), all_s;

    if (pieces == NULL || !unit_init(&unit, t)) {
        free(pieces);
        return merak_fail_nomem(s->err, (size_t)t->n * sizeof(*unit.saving));
    }
    all_s = unit_seconds(&unit, room);
    *seconds_p = fmax(units * all_s / c->plan.pp + first_wait(t, c->plan.pp),
                      units * longest_stage(t, pieces, c->plan.pp));
    free(unit.saving);
    free(pieces);
    return MERAK_OK;
}

void merak_search_bound(struct merak_search *s, const struct merak_candidate *c)
{
    double seconds = DBL_MAX;

    /* Where nothing fits, or others are faster, there is nothing to find. */
    if (s->rc != MERAK_OK || room_of(s, c) <= 0 ||
        work_of(c->table) * merak_plan_units(&c->plan) / c->plan.pp >=
            s->bound_s)
        return;
    s->rc = find_bound(s, c, &seconds);
    s->bound_s = fmin(s->bound_s, seconds);
}
