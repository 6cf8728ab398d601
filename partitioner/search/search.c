/* SPDX-License-Identifier: Apache-2.0 */
/* search.c - the planner: which candidates there are
 *
 * Every combination of degrees, micro-batch size, sequence parallelism,
 * sub-pipeline, chunks, schedule, ZeRO-1 and order that divides exactly is
 * rated, unless even a perfect cut of it would lose by a quarter.  What is
 * recomputed is no combination of its own: with a cut given, each stage drops
 * the least that fits, and with more it would not be faster.
 */
#include "config.h"

#include "partitioner/search/search_impl.h"

#include "base/error.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOPELESS 1.25 /* lower bounds above so many times the best */
#define CHEAP 2000    /* instructions of a plan that is tried on suspicion */
#define TIGHT 1.25    /* memory by the table that such a plan may be above */
#define MAX_SCHEDULES 32
#define MAX_TASKS INT32_MAX
#define FEW 10              /* micro-batches a stage and more fill a pipeline */
#define MIN_SLICE 8         /* tokens */
#define MAX_BATCH (1 << 20) /* sequences: as many micro-batches to follow */

const char *merak_search_part_name(enum merak_search_part part)
{
    static const char *const name[MERAK_PART_COUNT] = {
        [MERAK_PART_COMPUTE] = "compute",
        [MERAK_PART_RECOMPUTE] = "recomputation",
        [MERAK_PART_TP] = "tensor-parallel communication",
        [MERAK_PART_BUBBLE] = "pipeline bubble",
        [MERAK_PART_DP] = "data-parallel communication",
        [MERAK_PART_OPTIMIZER] = "optimizer"};

    return (unsigned)part < MERAK_PART_COUNT ? name[part] : "?";
}

/* --- rating one ----------------------------------------------------------- */

enum merak_status merak_search_keep(struct merak_search *s,
                                    struct merak_candidate **list, int *n,
                                    const struct merak_candidate *cand)
{
    void *grown = *list;

    if ((*n & (*n - 1)) == 0) { /* room for a power of two */
        grown = realloc(*list, (*n == 0 ? 1 : 2 * (size_t)*n) * sizeof(**list));
        if (grown == NULL)
            return merak_fail_nomem(s->err, (size_t)*n * sizeof(**list));
    }
    *list = grown;
    (*list)[*n] = *cand;
    (*list)[(*n)++].follow = NULL; /* lives no longer than the rating */
    return MERAK_OK;
}

enum merak_status merak_search_room(struct merak_search *s,
                                    struct merak_candidate *cand)
{
    size_t parts = (size_t)merak_plan_parts(&cand->plan);

    cand->bound = merak_pool_alloc(s->pool, (parts + 1) * sizeof(*cand->bound));
    cand->drop = merak_pool_alloc(s->pool, parts * sizeof(*cand->drop));
    if (cand->bound == NULL || cand->drop == NULL)
        return merak_fail_nomem(s->err, parts * sizeof(int));
    return MERAK_OK;
}

/* Hardly a cut can be faster: all work evenly on the stages, and the pipeline
 * filled once, with chunks or by the gradients of activations alone. */
static double lower_bound(const struct merak_candidate *cand)
{
    const struct merak_plan *p = &cand->plan;
    double fill = (p->pp - 1.0) / (p->chunks > 1 ? p->chunks : 1.5);

    return cand->table->total_s * (merak_plan_units(p) + fill) / p->pp;
}

double merak_search_effort(const struct merak_candidate *c)
{
    double slices = c->table->slices, settled = c->plan.pp + 3;
    double units = merak_plan_units(&c->plan) / slices;

    return c->table->n_nodes * slices * (units < settled ? units : settled);
}

/* Cuts that may fit although the table says no, if they are faster than
 * those that it says yes to. */
static enum merak_status rate_tight(struct merak_search *s,
                                    const struct merak_candidate *cand)
{
    struct merak_candidate tight = *cand;
    enum merak_status rc = merak_search_room(s, &tight);

    if (rc == MERAK_OK)
        rc = merak_search_cut(&s->cost, &tight, NULL, s->limit * TIGHT, false,
                              s->err);
    if (rc == MERAK_OK && tight.rated_s > 0 && tight.rated_s < cand->rated_s)
        rc = merak_search_keep(s, &s->big, &s->n_bigs, &tight);
    return rc;
}

enum merak_status merak_search_rate_variant(struct merak_search *s,
                                            struct merak_candidate *cand,
                                            const int **like)
{
    double limit = s->limit * MERAK_SEARCH_SLACK;
    enum merak_status rc = merak_search_room(s, cand);

    s->n_rated++;
    if (rc == MERAK_OK)
        rc = merak_search_cut(&s->cost, cand, *like, limit, false, s->err);
    if (rc == MERAK_OK && cand->rated_s > 0 &&
        merak_search_effort(cand) < CHEAP)
        rc = rate_tight(s, cand);
    if (rc != MERAK_OK)
        return rc;
    if (cand->rated_s > 0) {
        *like = cand->bound;
        if (cand->rated_s < s->best_s)
            s->best_s = cand->rated_s;
        return merak_search_keep(s, &s->cand, &s->n_cands, cand);
    }
    rc = merak_search_cut(&s->cost, cand, *like, limit, true, s->err);
    if (rc == MERAK_OK && cand->rated_s > 0)
        rc = merak_search_keep(s, &s->big, &s->n_bigs, cand);
    return rc;
}

double merak_search_time(const struct merak_candidate *c)
{
    return c->step_s > 0 ? c->step_s : c->rated_s;
}

/* --- enumeration ---------------------------------------------------------- */

/* ZeRO-1 and the order of ranks, where they make a difference; if not, what
 * is the default elsewhere.  *recomputes_p: some of these recompute. */
static enum merak_status rate_variants(struct merak_search *s,
                                       struct merak_candidate *cand,
                                       bool *recomputes_p)
{
    const struct merak_search_pins *pin = &s->in->pin;
    bool levels = s->in->nodes > 1 && cand->plan.dp > 1 && cand->plan.pp > 1;
    bool shares =
        cand->plan.dp > 1 ||
        (cand->plan.tp > 1 && cand->plan.tp_batch_percent > 0); /* state */
    const int *like = NULL;
    enum merak_status rc = MERAK_OK;

    for (int zero1 = 1; zero1 >= 0; zero1--) {
        for (int order = 0; order < 2 && rc == MERAK_OK; order++) {
            struct merak_candidate c = *cand;

            if (!merak_pin_allows(pin->zero1, zero1 == 1) ||
                !merak_pin_allows(pin->order_tp_pp_dp, order == 1))
                continue;
            if ((zero1 == 0 && !shares && pin->zero1 == MERAK_PIN_FREE) ||
                (order == 1 && !levels &&
                 pin->order_tp_pp_dp == MERAK_PIN_FREE))
                continue;
            c.plan.zero1 = zero1 == 1;
            c.plan.order_tp_pp_dp = order == 1;
            rc = merak_search_rate_variant(s, &c, &like);
            *recomputes_p =
                *recomputes_p ||
                (rc == MERAK_OK &&
                 merak_drops_any(c.drop, merak_plan_parts(&c.plan)));
        }
    }
    return rc;
}

/* Can programs be made of it, and does the table know what they do? */
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

/* Can it be cut and recompute as is asked, under this schedule? */
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
    bool recompute[MAX_SCHEDULES]; /* with recomputation */
    int n;
};

/* Is it unlike all before it?  Schedules that differ in when they recompute
 * are alike where nothing is recomputed. */
static bool is_new(struct seen *seen, const struct merak_schedule *schedule,
                   const struct merak_plan *plan)
{
    struct merak_follow *follow = &seen->follow[seen->n];
    bool ok = seen->n < MAX_SCHEDULES;

    if (!ok)
        return false;
    ok = merak_follow_init(follow, schedule, plan);
    for (int i = 0; i < seen->n && ok; i++)
        ok = seen->recompute[i] ||
             !merak_lists_equal(follow->lists, seen->follow[i].lists);
    if (!ok) {
        merak_follow_fini(follow);
        return false;
    }
    seen->recompute[seen->n++] = false;
    return true;
}

enum merak_status merak_search_find_balance(struct merak_search *s,
                                            struct merak_candidate *cand)
{
    size_t bytes = ((size_t)merak_plan_parts(&cand->plan) + 1) * sizeof(int);

    cand->balanced = merak_pool_alloc(s->pool, bytes);
    if (cand->balanced == NULL)
        return merak_fail_nomem(s->err, bytes);
    return merak_search_balance(&s->cost, cand, s->err);
}

static enum merak_status rate_schedules(struct merak_search *s,
                                        struct merak_candidate *cand)
{
    const struct merak_schedule *const *all = merak_schedules();
    const char *want = s->in->pin.schedule;
    struct seen seen = {.n = 0};
    enum merak_status rc = MERAK_OK;

    for (int i = 0; all[i] != NULL && rc == MERAK_OK; i++) {
        if ((want != NULL && strcmp(want, all[i]->name) != 0) ||
            !can_run(s, all[i], &cand->plan) || !is_asked(s, cand, all[i]) ||
            !is_new(&seen, all[i], &cand->plan))
            continue;
        cand->schedule = all[i];
        cand->follow = &seen.follow[seen.n - 1];
        if (cand->balanced == NULL)
            rc = merak_search_find_balance(s, cand);
        if (rc != MERAK_OK)
            break;
        snprintf(cand->plan.schedule, sizeof(cand->plan.schedule), "%s",
                 all[i]->name);
        rc = rate_variants(s, cand, &seen.recompute[seen.n - 1]);
        if (cand->plan.pp == 1)
            break; /* one stage: all the same */
    }
    cand->follow = NULL;
    while (seen.n > 0)
        merak_follow_fini(&seen.follow[--seen.n]);
    return rc;
}

double merak_search_shortest(const struct merak_search *s, int first)
{
    double best = DBL_MAX;

    for (int i = first; i < s->n_cands; i++)
        best = s->cand[i].rated_s < best ? s->cand[i].rated_s : best;
    return best;
}

/* More chunks for as long as that helps. */
static enum merak_status rate_chunks(struct merak_search *s,
                                     struct merak_candidate *cand)
{
    int pinned = merak_fixed_chunks(&s->in->pin, cand->plan.pp);
    int first = s->n_cands, most = cand->table->n / cand->plan.pp;
    double before = DBL_MAX;
    enum merak_status rc = MERAK_OK;

    if (pinned <= 1)
        rc = rate_schedules(s, cand);
    for (int v = 2; v <= most && cand->plan.pp > 1 && rc == MERAK_OK; v++) {
        if (pinned == 1 || (pinned > 1 && pinned != v))
            continue;
        cand->plan.chunks = v;
        cand->balanced = NULL;
        first = s->n_cands;
        rc = rate_schedules(s, cand);
        if (s->n_cands > first && merak_search_shortest(s, first) > before)
            break;
        before = merak_search_shortest(s, first);
    }
    return rc;
}

/* What a table says of the plans that are rated with it. */
static struct merak_plan plan_of(const struct merak_table *table)
{
    return (struct merak_plan){.tp = table->tp,
                               .sp = table->sp,
                               .tp_batch_percent = table->tp_batch_percent,
                               .branches = table->branches,
                               .micro_batch = table->micro_batch};
}

enum merak_status merak_search_add_table(struct merak_search *s,
                                         const struct merak_sharded *sharded,
                                         const struct merak_table *like,
                                         const struct merak_plan *plan,
                                         int width, int slices,
                                         struct merak_table **table_p)
{
    struct merak_table **grown =
        realloc(s->table, ((size_t)s->n_tables + 1) * sizeof(*grown));
    enum merak_status rc;

    if (grown == NULL)
        return merak_fail_nomem(s->err, (size_t)s->n_tables * sizeof(*grown));
    s->table = grown;
    rc = merak_table_create(s->in, &s->cost, sharded, plan, width, slices,
                            table_p, s->err);
    if (rc != MERAK_OK)
        return rc;
    (*table_p)->tp = like->tp;
    (*table_p)->sp = like->sp;
    (*table_p)->tp_batch_percent = like->tp_batch_percent;
    (*table_p)->micro_batch = like->micro_batch;
    (*table_p)->passes = sharded->graph->passes;
    (*table_p)->branches = sharded->order;
    (*table_p)->may_slice = merak_sharded_may_slice(sharded);
    s->table[s->n_tables++] = *table_p;
    return MERAK_OK;
}

/* Of what tensor ranks hold alike, where most of it crosses. */
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

/* The table with micro-batches in so many slices; NULL if that cannot be.
 * Where tensor peers have parts of sequences, they have to give that up. */
static enum merak_status sliced_table(struct merak_search *s,
                                      const struct merak_table *whole,
                                      int slices, struct merak_table **table_p)
{
    const struct merak_sharded *sharded = NULL;
    struct merak_table like = *whole;
    struct merak_plan plan;
    enum merak_status rc = MERAK_OK;

    *table_p = NULL;
    if (!whole->may_slice && (s->in->pin.fix_sp || whole->sp == MERAK_SP_ON))
        return MERAK_OK;
    if (!whole->may_slice)
        like.sp = MERAK_SP_OFF;
    for (int i = 0; i < s->n_tables; i++) {
        struct merak_table *t = s->table[i];

        if (t->tp == like.tp && t->sp == like.sp && t->micro_batch == 1 &&
            t->tp_batch_percent == like.tp_batch_percent &&
            t->branches == like.branches && t->slices == slices) {
            *table_p = t;
            return MERAK_OK;
        }
    }
    plan = plan_of(&like);
    rc = merak_graphs_shard(s->graphs, &plan, &sharded, s->err);
    if (rc == MERAK_OK)
        rc =
            merak_search_add_table(s, sharded, &like, NULL, 1, slices, table_p);
    return rc;
}

/* May the candidate run in slices, and so many?  It pays where there are few
 * micro-batches for its stages. */
static bool may_slice(const struct merak_search *s,
                      const struct merak_candidate *cand, int slices)
{
    const char *want = s->in->pin.schedule;
    const struct merak_plan *p = &cand->plan;

    if (want != NULL && merak_schedule_slices(want) != slices)
        return false;
    return p->pp > 1 && p->micro_batch == 1 && cand->table->width == 1 &&
           cand->table->passes <= 1 && s->in->pin.chunks <= 1 &&
           s->in->seq % (size_t)slices == 0 &&
           (want != NULL || (p->microbatches < FEW * (p->pp - 1) &&
                             s->in->seq / (size_t)slices >= MIN_SLICE));
}

static enum merak_status rate_sliced(struct merak_search *s,
                                     struct merak_candidate *cand, int slices)
{
    struct merak_follow follow;
    enum merak_status rc;
    bool recomputes = false;

    snprintf(cand->plan.schedule, sizeof(cand->plan.schedule), "sliced:%d",
             slices);
    cand->plan.chunks = 1;
    cand->plan.sp = cand->table->sp;
    cand->plan.scatter = merak_search_scatter(s, cand);
    cand->balanced = NULL;
    if (!s->relax_time_bound && lower_bound(cand) >= HOPELESS * s->best_s)
        return MERAK_OK;
    rc = merak_schedule_find(cand->plan.schedule, &cand->schedule, s->err);
    if (rc != MERAK_OK || !is_asked(s, cand, cand->schedule))
        return rc;
    if (!merak_follow_init(&follow, cand->schedule, &cand->plan))
        rc = merak_fail_nomem(s->err, sizeof(*follow.lists));
    cand->follow = &follow;
    if (rc == MERAK_OK)
        rc = merak_search_find_balance(s, cand);
    if (rc == MERAK_OK)
        rc = rate_variants(s, cand, &recomputes);
    merak_follow_fini(&follow);
    cand->follow = NULL;
    return rc;
}

/* In more slices for as long as that helps; in as many as are asked for. */
static enum merak_status rate_slices(struct merak_search *s,
                                     const struct merak_candidate *whole)
{
    const char *want = s->in->pin.schedule;
    int asked = want != NULL ? merak_schedule_slices(want) : 0;
    double before = DBL_MAX;
    enum merak_status rc = MERAK_OK;

    for (int n = asked > 1 ? asked : 2;
         n <= MERAK_MAX_SLICES && may_slice(s, whole, n); n *= 2) {
        struct merak_candidate cand = *whole;
        struct merak_table *table;
        int first = s->n_cands;

        rc = sliced_table(s, whole->table, n, &table);
        if (rc != MERAK_OK || table == NULL)
            break;
        cand.table = table;
        rc = rate_sliced(s, &cand, n);
        if (rc != MERAK_OK || merak_search_shortest(s, first) > before)
            break;
        before = merak_search_shortest(s, first);
    }
    return rc;
}

static enum merak_recompute recompute_of(const struct merak_search *s)
{
    return s->in->pin.fix_recompute ? s->in->pin.recompute
                                    : MERAK_RECOMPUTE_AUTO;
}

bool merak_search_start(struct merak_search *s, const struct merak_table *table,
                        int pp, struct merak_candidate *cand)
{
    const struct merak_search_pins *pin = &s->in->pin;
    int rest = s->tasks / table->tp;
    size_t dp = (size_t)(rest / pp), pass = dp * table->micro_batch;

    *cand = (struct merak_candidate){
        .table = table, .lists = &pin->list, .tally = &s->tally};
    if (pp > table->n || rest % pp != 0 ||
        s->in->global_batch % (pass * (size_t)table->width) != 0 ||
        (pin->pp != 0 && pin->pp != pp) ||
        merak_given_parts(&pin->list) % pp != 0 ||
        (pin->dp != 0 && pin->dp != rest / pp))
        return false;
    cand->plan = plan_of(table);
    cand->plan.pp = pp;
    cand->plan.dp = rest / pp;
    cand->plan.chunks = 1;
    cand->plan.sub_pipeline = table->width > 1;
    cand->plan.recompute = recompute_of(s);
    cand->plan.microbatches = (int)(s->in->global_batch / pass);
    cand->plan.passes = table->passes;
    cand->plan.dtype = s->in->dtype;
    cand->plan.threads = s->in->threads;
    cand->plan.scatter = merak_search_scatter(s, cand);
    return true;
}

/* Is a schedule asked for whose blocks all stages run? */
static bool wants_shared(const struct merak_search *s)
{
    const struct merak_schedule *want;

    return s->in->pin.schedule != NULL &&
           merak_schedule_find(s->in->pin.schedule, &want, NULL) == MERAK_OK &&
           want->feeds != NULL;
}

static enum merak_status rate_degrees(struct merak_search *s,
                                      const struct merak_table *table)
{
    int rest = s->tasks / table->tp;
    enum merak_status rc = MERAK_OK;

    if (wants_shared(s))
        return merak_search_rate_shared(s, table);
    for (int pp = 1; pp <= rest && pp <= table->n && rc == MERAK_OK; pp++) {
        struct merak_candidate cand;

        if (!merak_search_start(s, table, pp, &cand))
            continue;
        if (s->relax_time_bound || lower_bound(&cand) < HOPELESS * s->best_s)
            rc = rate_chunks(s, &cand);
        if (rc == MERAK_OK)
            rc = rate_slices(s, &cand);
    }
    return rc;
}

/* Without a sub-pipeline, or with one where there are exchanges to hide? */
static bool has_width(const struct merak_search *s,
                      const struct merak_table *like, int width)
{
    enum merak_pin pin = s->in->pin.sub_pipeline;
    size_t unit = s->in->pin.micro_batch;

    if (unit > 0 && unit != (size_t)width * like->micro_batch)
        return false;
    if (width == 1)
        return merak_pin_allows(pin, false);
    return (like->tp > 1 || pin == MERAK_PIN_YES) &&
           merak_pin_allows(pin, true) &&
           s->in->global_batch % (2 * like->micro_batch) == 0;
}

/* Is the order of nodes not the search's to find? */
static bool is_pinned(const struct merak_search *s)
{
    return s->in->pin.fix_branches &&
           s->in->pin.branches != MERAK_BRANCHES_AUTO;
}

enum merak_status merak_search_tables(struct merak_search *s,
                                      const struct merak_table *like,
                                      struct merak_table *table[2])
{
    const struct merak_sharded *sharded = NULL;
    struct merak_error why;
    const struct merak_plan plan = plan_of(like);
    enum merak_status rc = merak_graphs_shard(s->graphs, &plan, &sharded, &why);

    table[0] = table[1] = NULL;
    if (rc == MERAK_ERR_CONFIG && like->tp > 1) {
        s->tp_error = why;
        s->n_tp_refused++;
        return MERAK_OK;
    }
    if (rc != MERAK_OK && s->err != NULL)
        *s->err = why;
    if (rc == MERAK_OK) {
        s->branches = s->branches || sharded->branches;
        s->n_nodes = sharded->graph->n_nodes;
    }
    for (int width = 1; width <= 2 && rc == MERAK_OK; width++) {
        /* There may be no such order: a pinned one then falls back to the
         * order as described. */
        if (has_width(s, like, width) &&
            (sharded->order == like->branches || is_pinned(s)) &&
            merak_search_may_pay(s, like, sharded))
            rc = merak_search_add_table(s, sharded, like, NULL, width, 1,
                                        &table[width - 1]);
    }
    return rc;
}

static bool same_table(const struct merak_table *a, const struct merak_table *b)
{
    for (int s = 0; s < a->n; s++) {
        if (a->segment[s].kept[MERAK_KEEP_ALL] !=
                b->segment[s].kept[MERAK_KEEP_ALL] ||
            a->segment[s].f_s != b->segment[s].f_s ||
            a->segment[s].b_s != b->segment[s].b_s ||
            a->segment[s].peak != b->segment[s].peak)
            return false;
    }
    return true;
}

enum merak_status merak_search_rate_tables(struct merak_search *s,
                                           struct merak_table *const table[2],
                                           struct merak_table *const other[2])
{
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < 2 && rc == MERAK_OK; i++) {
        if (table[i] != NULL &&
            (other[i] == NULL || !same_table(table[i], other[i])))
            rc = rate_degrees(s, table[i]);
    }
    return rc;
}

/* With the cheapest layouts, then with the sequence cut wherever it can be:
 * the latter takes less memory. */
static enum merak_status rate_layouts(struct merak_search *s, int tp, size_t b,
                                      enum merak_branches branches)
{
    struct merak_table *automatic[2], *on[2], *none[2] = {NULL, NULL};
    struct merak_table like = {.tp = tp,
                               .sp = s->in->pin.fix_sp ? s->in->pin.sp
                                                       : MERAK_SP_AUTO,
                               .tp_batch_percent = s->in->pin.tp_batch_percent,
                               .micro_batch = b,
                               .branches = branches};
    enum merak_status rc = merak_search_tables(s, &like, automatic);

    if (rc == MERAK_OK)
        rc = merak_search_rate_tables(s, automatic, none);
    if (rc != MERAK_OK || tp == 1 || s->in->pin.fix_sp ||
        (automatic[0] == NULL && automatic[1] == NULL))
        return rc;
    like.sp = MERAK_SP_ON;
    rc = merak_search_tables(s, &like, on);
    return rc == MERAK_OK ? merak_search_rate_tables(s, on, automatic) : rc;
}

/* With nodes in the order in which they were described, then in others. */
static enum merak_status rate_tables(struct merak_search *s, int tp, size_t b)
{
    const struct merak_search_pins *pin = &s->in->pin;
    enum merak_status rc = MERAK_OK;

    if (is_pinned(s))
        return rate_layouts(s, tp, b, pin->branches);
    rc = rate_layouts(s, tp, b, MERAK_BRANCHES_DESCRIBED);
    if (rc == MERAK_OK && s->branches)
        rc = rate_layouts(s, tp, b, MERAK_BRANCHES_GATHERED);
    if (rc == MERAK_OK && s->branches)
        rc = rate_layouts(s, tp, b, MERAK_BRANCHES_BLOCKS);
    return rc;
}

bool merak_search_is_size(const struct merak_search *s, int tp, size_t b)
{
    int rest = s->tasks / tp;
    size_t unit = s->in->pin.micro_batch;

    if (unit != 0 && unit != b &&
        (unit != 2 * b || s->in->pin.sub_pipeline == MERAK_PIN_NO))
        return false;
    if (s->in->pin.tp_batch_percent > 0 && b % (size_t)tp != 0)
        return false;
    for (int dp = 1; dp <= rest; dp++) {
        if (rest % dp == 0 && (s->in->pin.dp == 0 || s->in->pin.dp == dp) &&
            s->in->global_batch % ((size_t)dp * b) == 0)
            return true;
    }
    return false;
}

/* Larger micro-batches are tried for as long as they are not much worse. */
static enum merak_status rate_sizes(struct merak_search *s, int tp)
{
    enum merak_status rc = MERAK_OK;
    int refused = s->n_tp_refused, n;
    double before = s->best_s;

    for (size_t b = 1, idle = 0;
         b <= s->in->global_batch && idle < 2 && rc == MERAK_OK; b++) {
        if (!merak_search_is_size(s, tp, b))
            continue;
        n = s->n_cands;
        rc = rate_tables(s, tp, b);
        if (s->n_tp_refused > refused)
            break;
        idle = s->n_cands > n && s->best_s < before ? 0 : idle + (b > 2);
        before = s->best_s;
    }
    return rc;
}

static bool may_have_tp(const struct merak_search *s, int tp)
{
    return s->in->ranks_per_node % tp == 0 &&
           (s->in->pin.tp == 0 || s->in->pin.tp == tp);
}

/* Tensor groups never leave a node. */
enum merak_status merak_search_rate_all(struct merak_search *s)
{
    enum merak_status rc = MERAK_OK;
    int most = s->in->ranks_per_node;

    for (int tp = 1; tp <= most && rc == MERAK_OK; tp++) {
        if (may_have_tp(s, tp))
            rc = rate_sizes(s, tp);
    }
    for (int tp = 2; tp <= most && rc == MERAK_OK; tp++) {
        if (may_have_tp(s, tp) && !s->in->pin.fix_tp_batch)
            rc = merak_search_rate_samples(s, tp);
    }
    /* Given cuts are counted as of a model without such blocks. */
    if (s->in->pin.schedule != NULL || s->in->pin.list.cut != NULL)
        return rc;
    for (int i = 0, n = s->n_tables; i < n && rc == MERAK_OK; i++)
        rc = merak_search_rate_shared(s, s->table[i]);
    return rc;
}

/* --- the search ----------------------------------------------------------- */

void merak_search_fini(struct merak_search *s)
{
    for (int i = 0; i < s->n_tables; i++)
        merak_table_destroy(s->table[i]);
    free(s->table);
    free(s->cand);
    free(s->big);
    merak_pool_destroy(s->pool);
    merak_graphs_destroy(s->graphs);
}

static enum merak_status start(struct merak_search *s,
                               const struct merak_search_input *in,
                               struct merak_error *err)
{
    *s = (struct merak_search){.in = in, .best_s = DBL_MAX, .err = err};
    s->tasks = in->nodes * in->ranks_per_node;
    s->limit = (double)(in->memory_bytes > 0 ? in->memory_bytes
                                             : in->device->memory_bytes);
    merak_device_cost(in->device, in->dtype, in->ranks_per_node, &s->cost);
    s->pool = merak_pool_create();
    return s->pool != NULL ? MERAK_OK : merak_fail_nomem(err, sizeof(*s));
}

enum merak_status merak_search_init(struct merak_search *s,
                                    const struct merak_search_input *in,
                                    struct merak_error *err)
{
    enum merak_status rc = start(s, in, err);

    return rc == MERAK_OK ? merak_graphs_create(in, &s->graphs, err) : rc;
}

enum merak_status merak_search_init_like(struct merak_search *s,
                                         const struct merak_search_input *in,
                                         const struct merak_search *like)
{
    enum merak_status rc = start(s, in, NULL);

    if (rc == MERAK_OK)
        s->graphs = merak_graphs_share(like->graphs);
    return rc;
}

static enum merak_status check(const struct merak_search_input *in,
                               struct merak_error *err)
{
    const struct merak_schedule *schedule;
    enum merak_status rc;

    if (in->nodes < 1 || in->ranks_per_node < 1 || in->global_batch < 1)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "%d nodes of %d ranks and a global batch of %zu: "
                          "each must be at least 1",
                          in->nodes, in->ranks_per_node, in->global_batch);
    if (in->nodes > MAX_TASKS / in->ranks_per_node)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "%d nodes of %d ranks: expected at most %d ranks "
                          "in all",
                          in->nodes, in->ranks_per_node, MAX_TASKS);
    if (in->global_batch > MAX_BATCH)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "a global batch of %zu: plans are searched for at "
                          "most %d sequences a step",
                          in->global_batch, MAX_BATCH);
    rc = merak_fixed_valid(&in->pin.list, err);
    if (rc != MERAK_OK || in->pin.schedule == NULL)
        return rc;
    return merak_schedule_find(in->pin.schedule, &schedule, err);
}

enum merak_status merak_search(const struct merak_search_input *input,
                               struct merak_search_result **result_p,
                               struct merak_error *err)
{
    struct merak_search s = {0};
    enum merak_status rc = check(input, err);

    if (rc != MERAK_OK)
        return rc;
    rc = merak_search_init(&s, input, err);
    if (rc == MERAK_OK && merak_search_is_hopeless(&s))
        rc = merak_search_rate_plain(&s);
    if (rc == MERAK_OK && s.n_bigs == 0)
        rc = merak_search_rate_all(&s);
    if (rc == MERAK_OK)
        rc = merak_search_finals(&s);
    /* Then slower ones, which are smaller, may. */
    if (rc == MERAK_OK && s.n_cands > 0 && !s.cand[0].settled) {
        s.n_cands = s.n_bigs = 0;
        s.effort = 0;
        s.relax_time_bound = true;
        rc = merak_search_rate_all(&s);
        if (rc == MERAK_OK)
            rc = merak_search_finals(&s);
    }
    if (rc != MERAK_OK)
        goto out;
    if (s.n_cands > 0 && s.cand[0].settled)
        rc = merak_search_choose(&s, result_p);
    else if (s.n_cands + s.n_bigs > 0)
        rc = merak_search_no_memory(&s);
    else
        rc = merak_search_no_division(&s);
out:
    merak_search_fini(&s);
    return rc;
}

void merak_search_destroy(struct merak_search_result *result)
{
    if (result == NULL)
        return;
    merak_pool_destroy(result->pool);
    free(result->stage);
    free(result);
}
