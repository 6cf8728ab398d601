/* SPDX-License-Identifier: Apache-2.0 */
/* variants.c - candidates for given degrees and a table: chunks, schedules,
 * ZeRO-1, orders of ranks, slices
 */
#include "config.h"

#include "partitioner/search/cut.h"
#include "partitioner/search/fixed.h"
#include "partitioner/search/need.h"
#include "partitioner/search/replicas.h"
#include "partitioner/search/search_impl.h"

#include "base/error.h"
#include "base/grow.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SCHEDULES 32
#define FAR_TOO_BIG 2 /* times the memory, for what is kept at the least */
#define HARDLY 0.98   /* of what half as many slices take is no gain */
#define FEW 10        /* micro-batches a stage from which a pipeline is full */
#define MIN_SLICE 8   /* tokens */
/* Percent of the time that grow with the square of a sequence's length, from
 * which on its slices have unlike lengths. */
#define MIN_UNLIKE 10

void merak_search_rate_homes(struct merak_search *s,
                             const struct merak_candidate *cand,
                             const int **initial_p, bool *recomputes_p)
{
    struct merak_home home[MERAK_MAX_HOMES];
    int n = merak_search_homes(s, cand, home);

    for (int i = 0; i < n && s->rc == MERAK_OK; i++) {
        struct merak_candidate c = *cand;

        c.plan.dp_in = home[i].dp_in;
        c.plan.zero_home = home[i].home;
        merak_search_rate_variant(s, &c, initial_p);
        if (s->rc == MERAK_OK)
            *recomputes_p = *recomputes_p ||
                            merak_drops_any(c.drop, merak_plan_parts(&c.plan));
    }
}

/* Rate with each level of ZeRO, each order of ranks; *recomputes_p: any do. */
static void rate_variants(struct merak_search *s, struct merak_candidate *cand,
                          bool *recomputes_p)
{
    const int *initial = NULL;

    for (int i = 0; i < MERAK_SEARCH_LEVELS; i++) {
        for (int order = 0; order < 2; order++) {
            struct merak_candidate c = *cand;

            if (!merak_search_set_level(s, i, &c.plan) ||
                !merak_search_has_order(s, &cand->plan, order == 1))
                continue;
            c.plan.order_tp_pp_dp = order == 1;
            merak_search_rate_homes(s, &c, &initial, recomputes_p);
            if (s->rc != MERAK_OK)
                return;
        }
    }
}

/* Can programs be built for it, and does the table cover what they do? */
static bool can_run(struct merak_search *s,
                    const struct merak_schedule *schedule,
                    const struct merak_plan *plan)
{
    struct merak_schedule_args args = merak_plan_schedule_args(plan, 0);
    struct merak_plan with = *plan;
    const struct merak_schedule *found;
    struct merak_error why = {.status = MERAK_OK};

    if (schedule->feeds != NULL) /* shared.c */
        return false;
    snprintf(with.schedule, sizeof(with.schedule), "%s", schedule->name);
    args = merak_schedule_defaults(schedule, &args);
    if (merak_plan_schedule(&with, &found, &why) != MERAK_OK &&
        plan->chunks <= (schedule->min_chunks > 1 ? schedule->min_chunks : 1))
        s->schedule_error = why;
    return !schedule->forward_only && args.slices <= 1 &&
           why.status == MERAK_OK;
}

/* Can it be cut and recompute as requested under this schedule? */
static bool is_asked(struct merak_search *s, const struct merak_candidate *cand,
                     const struct merak_schedule *schedule)
{
    struct merak_candidate with = *cand;
    struct merak_error why;

    snprintf(with.plan.schedule, sizeof(with.plan.schedule), "%s",
             schedule->name);
    if (!merak_fixed_parts(&with))
        return false;
    if (merak_fixed_check(&with, schedule, &why) == MERAK_OK)
        return true;
    if (s->fixed_error.status == MERAK_OK)
        s->fixed_error = why;
    return false;
}

/* Schedules that were rated for the same stages. */
struct seen {
    struct merak_follow follow[MAX_SCHEDULES];
    bool recompute[MAX_SCHEDULES]; /* a rated plan recomputes */
    int n;
};

/* Do both take as long?  Those that only differ in when they recompute do where
 * nothing is recomputed. */
static bool is_alike(const struct merak_follow *a, const struct merak_follow *b,
                     bool recompute)
{
    return merak_lists_equal(a->lists, b->lists) &&
           (!recompute || merak_lists_recompute_alike(a->lists, b->lists));
}

/* Does it differ from all before it? */
static bool is_new(struct seen *seen, const struct merak_schedule *schedule,
                   const struct merak_plan *plan)
{
    struct merak_follow *follow = &seen->follow[seen->n];
    bool ok = seen->n < MAX_SCHEDULES;

    if (!ok)
        return false;
    ok = merak_follow_init(follow, schedule, plan);
    for (int i = 0; i < seen->n && ok; i++)
        ok = !is_alike(follow, &seen->follow[i], seen->recompute[i]);
    if (!ok) {
        merak_follow_fini(follow);
        return false;
    }
    seen->recompute[seen->n++] = false;
    return true;
}

/* eager:W, whose lists depend on its name. */
static void rate_warmups(struct merak_search *s,
                         const struct merak_candidate *cand, const char *name)
{
    struct merak_candidate with = *cand;
    struct merak_error why = {.status = MERAK_OK};
    struct merak_follow follow;
    bool recomputes = false;

    snprintf(with.plan.schedule, sizeof(with.plan.schedule), "%s", name);
    if (merak_plan_schedule(&with.plan, &with.schedule, &why) != MERAK_OK) {
        s->schedule_error = why;
        return;
    }
    if (!is_asked(s, cand, with.schedule))
        return;
    if (!merak_follow_init(&follow, with.schedule, &with.plan)) {
        s->rc = merak_fail_nomem(s->err, sizeof(*follow.lists));
        return;
    }
    with.follow = &follow;
    if (with.balanced == NULL)
        merak_search_balance(s, &with);
    rate_variants(s, &with, &recomputes);
    merak_follow_fini(&follow);
}

static void rate_schedules(struct merak_search *s, struct merak_candidate *cand)
{
    const struct merak_schedule *const *all = merak_schedules();
    const char *want = s->in->pin.schedule;
    struct seen seen = {.n = 0};
    char name[sizeof(cand->plan.schedule)];

    if (want != NULL && merak_schedule_warmups(want) != NULL) {
        rate_warmups(s, cand, want);
        return;
    }

    for (int i = 0; all[i] != NULL && merak_search_goes_on(s); i++) {
        if ((want != NULL && strcmp(want, all[i]->name) != 0) ||
            !can_run(s, all[i], &cand->plan) || !is_asked(s, cand, all[i]) ||
            !is_new(&seen, all[i], &cand->plan))
            continue;
        cand->schedule = all[i];
        cand->follow = &seen.follow[seen.n - 1];
        if (cand->balanced == NULL)
            merak_search_balance(s, cand);
        snprintf(cand->plan.schedule, sizeof(cand->plan.schedule), "%s",
                 all[i]->name);
        rate_variants(s, cand, &seen.recompute[seen.n - 1]);
        if (cand->plan.pp == 1)
            break; /* one stage: all the same */
    }
    cand->follow = NULL;
    while (seen.n > 0)
        merak_follow_fini(&seen.follow[--seen.n]);
    /* where hops differ, as many as they need */
    if (want == NULL && s->cost.links.islands != NULL && cand->plan.pp > 1 &&
        cand->plan.chunks <= 1 && cand->balanced != NULL &&
        merak_search_goes_on(s) &&
        merak_search_least_warmups(s, cand, name, sizeof(name)))
        rate_warmups(s, cand, name);
}

double merak_search_shortest(const struct merak_search *s, int first)
{
    double best = DBL_MAX;

    for (int i = first; i < s->n_cands; i++)
        best = s->cand[i].rated_s < best ? s->cand[i].rated_s : best;
    return best;
}

/* Does it need far more memory than there is, with any level of ZeRO that is
 * rated?  *cand becomes the plan that needs least. */
static bool is_far_too_big(struct merak_search *s, struct merak_candidate *cand)
{
    struct merak_candidate least = *cand;
    double least_bytes = DBL_MAX;

    for (int l = 0; l < MERAK_SEARCH_LEVELS; l++) {
        struct merak_candidate c = *cand;
        double bytes;

        if (!merak_search_set_level(s, l, &c.plan))
            continue;
        bytes = merak_stages_least(&s->cost, &c);
        if (bytes <= FAR_TOO_BIG * merak_search_limit(s, &c))
            return false;
        if (bytes < least_bytes)
            least = c;
        least_bytes = fmin(least_bytes, bytes);
    }
    *cand = least;
    return least_bytes < DBL_MAX;
}

bool merak_search_rate_far_too_big(struct merak_search *s,
                                   const struct merak_candidate *cand)
{
    const struct merak_choices *pin = &s->in->pin;
    struct merak_candidate c = *cand;
    struct merak_follow follow;
    const int *initial = NULL;
    bool far = false;

    c.plan.order_tp_pp_dp = !merak_search_has_order(s, &c.plan, false);
    if (c.plan.order_tp_pp_dp && !merak_search_has_order(s, &c.plan, true))
        return false;
    if (pin->schedule != NULL || pin->chunks > 1 || pin->list.cut != NULL ||
        pin->list.drop != NULL || pin->given[MERAK_CHOICE_DP_IN] ||
        pin->given[MERAK_CHOICE_ZERO_HOME] ||
        merak_schedule_find("1f1b", &c.schedule, NULL) != MERAK_OK)
        return false;
    snprintf(c.plan.schedule, sizeof(c.plan.schedule), "1f1b");
    if (!merak_follow_init(&follow, c.schedule, &c.plan)) {
        s->rc = merak_fail_nomem(s->err, sizeof(*follow.lists));
        return true;
    }
    c.follow = &follow;
    c.plan.dp_in = 1;
    far = is_far_too_big(s, &c);
    if (far) {
        merak_search_balance(s, &c);
        merak_search_rate_variant(s, &c, &initial);
    }
    merak_follow_fini(&follow);
    return far;
}

/* Try more chunks while that helps. */
void merak_search_rate_chunks(struct merak_search *s,
                              struct merak_candidate *cand)
{
    int pinned = merak_fixed_chunks(&s->in->pin, cand->plan.pp);
    int first = s->n_cands, most = cand->table->n / cand->plan.pp;
    double before = DBL_MAX;

    if (pinned <= 1)
        rate_schedules(s, cand);
    for (int v = 2; v <= most && cand->plan.pp > 1 && merak_search_goes_on(s);
         v++) {
        if (pinned == 1 || (pinned > 1 && pinned != v))
            continue;
        cand->plan.chunks = v;
        cand->balanced = NULL;
        first = s->n_cands;
        rate_schedules(s, cand);
        if (s->n_cands > first && merak_search_shortest(s, first) > before)
            break;
        before = merak_search_shortest(s, first);
    }
}

struct merak_table *merak_search_find_table(const struct merak_search *s,
                                            const struct merak_plan *key,
                                            const struct merak_plan *plan,
                                            int width, int slices)
{
    int n_shared = plan != NULL ? merak_plan_shared(plan) : 0;

    for (int i = 0; i < s->n_tables; i++) {
        struct merak_table *t = s->table[i];

        if (t->width == width && t->slices == slices &&
            t->n_shared == n_shared && merak_plan_shards_alike(&t->plan, key) &&
            merak_plan_loss_pieces(&t->plan) == merak_plan_loss_pieces(key) &&
            (n_shared == 0 || (t->shared_pp == plan->pp &&
                               t->shared_pp_dp == plan->order_tp_pp_dp)))
            return t;
    }
    return NULL;
}

struct merak_table *merak_search_make_table(struct merak_search *s,
                                            const struct merak_sharded *sharded,
                                            const struct merak_plan *key,
                                            const struct merak_plan *plan,
                                            int width, int slices)
{
    struct merak_table *table = NULL;

    if (s->rc != MERAK_OK)
        return NULL;
    s->rc = merak_grow(&s->table, &s->table_room, s->n_tables,
                       sizeof(*s->table), s->err);
    if (s->rc != MERAK_OK)
        return NULL;
    s->rc = merak_table_create(s->in, &s->cost, sharded, plan, width, slices,
                               merak_plan_loss_pieces(key), &table, s->err);
    if (s->rc != MERAK_OK)
        return NULL;
    table->plan = *key;
    table->plan.branches = sharded->order;
    table->passes = sharded->graph->passes;
    table->shared_pp = plan != NULL ? plan->pp : 0;
    table->shared_pp_dp = plan != NULL && plan->order_tp_pp_dp;
    table->n_axes = sharded->mesh.n_axes;
    table->may_slice =
        merak_plan_loss_pieces(key) == 1 && merak_sharded_may_slice(sharded);
    merak_sharded_sequence_cuts(sharded, &table->cuts);
    s->table[s->n_tables++] = table;
    return table;
}

struct merak_table *merak_search_add_table(struct merak_search *s,
                                           const struct merak_sharded *sharded,
                                           const struct merak_plan *key,
                                           const struct merak_plan *plan,
                                           int width, int slices)
{
    struct merak_table *table =
        merak_search_find_table(s, key, plan, width, slices);

    return table != NULL
               ? table
               : merak_search_make_table(s, sharded, key, plan, width, slices);
}

/* Bytes that tensor ranks replicate at the cut where most of it crosses. */
static double boundary_bytes(const struct merak_table *table)
{
    double most = 0;

    for (int i = 0; i < table->n; i++) {
        const struct merak_segment *seg = &table->segment[i];

        if (seg->up_part < seg->up_bytes && seg->up_bytes > most)
            most = seg->up_bytes;
    }
    return most * table->slices / table->width;
}

int merak_search_scatter(const struct merak_search *s,
                         const struct merak_candidate *cand)
{
    return merak_boundary_choose(s->in->pin.boundary, &s->cost, &cand->plan,
                                 boundary_bytes(cand->table));
}

/* --- slices --------------------------------------------------------------- */

/* The table with micro-batches in `slices` slices; NULL if that is impossible.
 * Sequences split over tensor ranks have to be given up for it. */
static const struct merak_table *sliced_table(struct merak_search *s,
                                              const struct merak_table *whole,
                                              int slices)
{
    const struct merak_sharded *sharded = NULL;
    const struct merak_table *made;
    struct merak_plan key = whole->plan;
    enum merak_status rc;

    if (merak_plan_loss_pieces(&key) > 1)
        return NULL;
    if (!whole->may_slice &&
        (s->in->pin.given[MERAK_CHOICE_SP] || key.sp == MERAK_SP_ON))
        return NULL;
    if (!whole->may_slice)
        key.sp = MERAK_SP_OFF;
    made = merak_search_find_table(s, &key, NULL, 1, slices);
    if (made != NULL)
        return made->may_slice ? made : NULL;
    rc = s->rc == MERAK_OK ? merak_search_shard(s, &key, &sharded, s->err)
                           : s->rc;
    if (rc == MERAK_ERR_TIMEOUT)
        return NULL;
    s->rc = rc;
    made = merak_search_add_table(s, sharded, &key, NULL, 1, slices);
    /* Ops may need whole sequences. */
    return made != NULL && made->may_slice ? made : NULL;
}

/* May the candidate run in this many slices?  It pays if there are few
 * micro-batches for its stages. */
static bool may_slice(const struct merak_search *s,
                      const struct merak_candidate *cand, int slices)
{
    const char *want = s->in->pin.schedule;
    const struct merak_plan *p = &cand->plan;

    if (want != NULL && (merak_schedule_slices(want) != slices ||
                         !merak_schedule_slice(want, s->in->seq, NULL)))
        return false;
    return p->pp > 1 && p->micro_batch == 1 && cand->table->width == 1 &&
           cand->table->passes <= 1 && s->in->pin.chunks <= 1 &&
           (want != NULL || (p->microbatches < FEW * (p->pp - 1) &&
                             s->in->seq % (size_t)slices == 0 &&
                             s->in->seq / (size_t)slices >= MIN_SLICE));
}

/* The asked-for name, or slices that take equal times: of equal lengths where
 * attention is a small part of the time.  What each slice takes once more than
 * the whole does not count, nor does the head, which one stage has. */
static void name_sliced(const struct merak_search *s,
                        const struct merak_candidate *whole,
                        struct merak_candidate *cand, int slices)
{
    const struct merak_table *t = whole->table;
    const struct merak_segment *head = &t->segment[t->n - 1];
    double layers_s = t->total_s - head->f_s - head->b_s;
    double share = layers_s > 0 ? cand->table->square_s / layers_s : 0;
    int percent = (int)(100 * fmin(share, 1) + 0.5);
    char *name = cand->plan.schedule;

    if (s->in->pin.schedule != NULL)
        snprintf(name, sizeof(cand->plan.schedule), "%s", s->in->pin.schedule);
    else if (percent < MIN_UNLIKE)
        snprintf(name, sizeof(cand->plan.schedule), "sliced:%d", slices);
    else
        snprintf(name, sizeof(cand->plan.schedule), "sliced:%d/%d", slices,
                 percent);
}

static void rate_sliced(struct merak_search *s,
                        const struct merak_candidate *whole,
                        struct merak_candidate *cand, int slices)
{
    struct merak_follow follow;
    bool recomputes = false;

    name_sliced(s, whole, cand, slices);
    cand->plan.chunks = 1;
    cand->plan.sp = cand->table->plan.sp;
    cand->plan.scatter = merak_search_scatter(s, cand);
    cand->balanced = NULL;
    merak_search_bound(s, cand);
    if (!s->relax_time_bound &&
        merak_search_is_slow(s, merak_search_lower_bound(cand)))
        return;
    s->rc = merak_schedule_find(cand->plan.schedule, &cand->schedule, s->err);
    if (s->rc != MERAK_OK || !is_asked(s, cand, cand->schedule))
        return;
    if (!merak_follow_init(&follow, cand->schedule, &cand->plan))
        s->rc = merak_fail_nomem(s->err, sizeof(*follow.lists));
    cand->follow = &follow;
    merak_search_balance(s, cand);
    rate_variants(s, cand, &recomputes);
    merak_follow_fini(&follow);
    cand->follow = NULL;
}

/* Of those that do not fit, from one on: what the smallest takes. */
static double least_bytes(const struct merak_search *s, int first)
{
    double least = DBL_MAX;

    for (int i = first; i < s->n_bigs; i++)
        least = fmin(least, s->big[i].bytes);
    return least;
}

/* Try more slices while that helps, or the requested number. */
void merak_search_rate_slices(struct merak_search *s,
                              const struct merak_candidate *whole)
{
    const char *want = s->in->pin.schedule;
    int asked = want != NULL ? merak_schedule_slices(want) : 0;
    double before = DBL_MAX, least = DBL_MAX;

    for (int n = asked > 1 ? asked : 2;
         n <= MERAK_MAX_SLICES && may_slice(s, whole, n) &&
         merak_search_goes_on(s);
         n *= 2) {
        struct merak_candidate cand = *whole;
        int first = s->n_cands, first_big = s->n_bigs;

        cand.table = sliced_table(s, whole->table, n);
        if (cand.table == NULL)
            break;
        rate_sliced(s, whole, &cand, n);
        if (merak_search_shortest(s, first) > before ||
            (s->n_cands == first && least_bytes(s, first_big) > HARDLY * least))
            break;
        before = merak_search_shortest(s, first);
        least = least_bytes(s, first_big);
    }
}
