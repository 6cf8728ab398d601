/* SPDX-License-Identifier: Apache-2.0 */
/* shared.c - candidates with vocabulary-parallel layers, run by all stages
 *
 * An embedding and a head that are too large for one stage, or for one that
 * also has a fair share of the rest, are split over all stages.  Each number of
 * stages then needs its own sharded graph and table, so these are made only if
 * they could come near the best of the other schedules, which are all rated
 * before.
 */
#include "config.h"

#include "partitioner/program/fold.h"
#include "partitioner/search/cut.h"
#include "partitioner/search/fixed.h"
#include "partitioner/search/search_impl.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

#define NEAR 1.1 /* times the best step: the error of an estimate */

/* --- a lower bound of the step -------------------------------------------- */

/*
 * From the table of the same model without such layers.  One of two neighbor
 * stages runs a forward while the other runs a backward, so that a micro-batch
 * takes two of the longer ones on two stages.  Then all run their parts of the
 * layers.  The first micro-batch goes up, and the last one comes down, alone.
 */
static double least_step(const struct merak_candidate *cand)
{
    const struct merak_table *t = cand->table;
    const struct merak_plan *p = &cand->plan;
    bool head = merak_plan_shared(p) > 1;
    double f = 0, b = 0, ends = 0, slots;

    for (int i = 0; i < t->n; i++) {
        const struct merak_segment *seg = &t->segment[i];

        if (i == 0 || (head && i == t->n - 1)) {
            ends += seg->f_s + seg->b_s; /* includes the layer's time */
            continue;
        }
        f += seg->f_s;
        b += seg->b_s;
    }
    slots = 2 * (f > b ? f : b) / (p->pp + p->pp % 2);
    return f + b + (p->microbatches - 1) * slots +
           p->microbatches * ends / p->pp;
}

static bool may_pay(const struct merak_search *s,
                    const struct merak_candidate *cand)
{
    return s->relax_time_bound || merak_search_is_small(s) ||
           s->in->pin.schedule != NULL || least_step(cand) < NEAR * s->best_s;
}

/* --- rating --------------------------------------------------------------- */

/* The table with its layers shared; NULL if they cannot be. */
static const struct merak_table *
shared_table(struct merak_search *s, const struct merak_candidate *cand)
{
    const struct merak_plan *key = &cand->table->plan, *p = &cand->plan;
    const struct merak_table *found = merak_search_find_table(s, key, p, 1, 1);
    const struct merak_sharded *sharded = NULL;
    struct merak_error why = {.status = MERAK_OK};
    enum merak_status rc;

    if (found != NULL)
        return found;
    rc = merak_search_shard(s, p, &sharded, &why);
    if (rc == MERAK_ERR_TIMEOUT)
        return NULL;
    if (rc == MERAK_OK)
        rc = merak_fold_check(sharded, merak_plan_loss_pieces(key), &why);
    if (rc == MERAK_ERR_CONFIG || rc == MERAK_ERR_UNSUPPORTED) {
        s->schedule_error = why; /* nothing to split, or not over pp stages */
        return NULL;
    }
    if (rc != MERAK_OK)
        merak_search_fail(s, rc, &why);
    return merak_search_add_table(s, sharded, key, p, 1, 1);
}

/* Rate with and without ZeRO-1, for an order of ranks: that order changes the
 * time of communication between stages, and so the table. */
static void rate_order(struct merak_search *s, struct merak_candidate *cand)
{
    const struct merak_plan *p = &cand->plan;
    const struct merak_table *table = shared_table(s, cand);
    struct merak_error why;
    const int *initial = NULL;
    bool recomputes = false; /* none do */

    if (table == NULL)
        return;
    if (table->n - table->n_shared < p->pp) {
        merak_fail(&s->schedule_error, MERAK_ERR_CONFIG,
                   "stages: besides %d vocabulary-parallel layers the model "
                   "cannot be cut for pp %d, only into %d parts",
                   table->n_shared, p->pp, table->n - table->n_shared);
        return;
    }
    cand->table = table;
    if (merak_fixed_check(cand, cand->schedule, &why) != MERAK_OK) {
        if (s->fixed_error.status == MERAK_OK)
            s->fixed_error = why;
        return;
    }
    cand->plan.scatter = merak_search_scatter(s, cand);
    merak_search_bound(s, cand);
    if (cand->balanced == NULL)
        merak_search_balance(s, cand);
    for (int i = 0; i < MERAK_SEARCH_LEVELS; i++) {
        struct merak_candidate c = *cand;

        if (merak_search_set_level(s, i, &c.plan))
            merak_search_rate_homes(s, &c, &initial, &recomputes);
    }
}

static void rate_orders(struct merak_search *s, struct merak_candidate *cand)
{
    const struct merak_table *whole = cand->table;

    for (int order = 0; order < 2; order++) {
        if (!merak_search_has_order(s, &cand->plan, order == 1))
            continue;
        cand->table = whole;
        cand->plan.order_tp_pp_dp = order == 1;
        rate_order(s, cand);
    }
}

static void rate_chunks(struct merak_search *s,
                        const struct merak_schedule *schedule,
                        const struct merak_candidate *whole, int chunks)
{
    struct merak_candidate cand = *whole;
    struct merak_error why = {.status = MERAK_OK};
    struct merak_follow follow;

    snprintf(cand.plan.schedule, sizeof(cand.plan.schedule), "%s",
             schedule->name);
    cand.plan.chunks = chunks;
    if (merak_plan_schedule(&cand.plan, &cand.schedule, &why) != MERAK_OK) {
        s->schedule_error = why;
        return;
    }
    if (!merak_fixed_parts(&cand) || !may_pay(s, &cand))
        return;
    cand.follow = &follow;
    if (merak_follow_init(&follow, cand.schedule, &cand.plan))
        rate_orders(s, &cand);
    else
        s->rc = merak_fail_nomem(s->err, sizeof(*follow.lists));
    merak_follow_fini(&follow);
}

/* Rate with both vocabulary-parallel layers, then with one. */
static void rate_schedule(struct merak_search *s,
                          const struct merak_schedule *schedule,
                          const struct merak_candidate *whole)
{
    int pinned = s->in->pin.chunks;

    for (int v = MERAK_MAX_SHARED + 1;
         v >= schedule->min_chunks && merak_search_goes_on(s); v--) {
        if (pinned == 0 || pinned == v)
            rate_chunks(s, schedule, whole, v);
    }
    if (pinned > MERAK_MAX_SHARED + 1 || (pinned > 0 && pinned < 2))
        rate_chunks(s, schedule, whole, pinned); /* sets the error */
}

void merak_search_rate_shared(struct merak_search *s,
                              const struct merak_table *whole)
{
    const struct merak_schedule *const *all = merak_schedules();
    const char *want = s->in->pin.schedule;

    if (whole->width > 1 || whole->slices > 1 || whole->n_shared > 0)
        return;
    for (int pp = 1; pp <= s->tasks / merak_plan_tensor_ranks(&whole->plan) &&
                     merak_search_goes_on(s);
         pp++) {
        struct merak_candidate cand;

        if (!merak_search_start(s, whole, pp, &cand) ||
            (pp == 1 && s->in->pin.pp != 1))
            continue;
        for (int i = 0; all[i] != NULL; i++) {
            if (all[i]->feeds != NULL &&
                (want == NULL || strcmp(want, all[i]->name) == 0))
                rate_schedule(s, all[i], &cand);
        }
    }
}
