/* SPDX-License-Identifier: Apache-2.0 */
/* search.c - the planner: which candidates there are
 *
 * Every combination of degrees, micro-batch size, sequence parallelism,
 * schedule, ZeRO-1 and order that divides exactly is rated, unless even a
 * perfect cut of it would lose by half.
 */
#include "config.h"

#include "partitioner/search/impl.h"

#include "base/error.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOPELESS 1.5 /* lower bounds above so many times the best */
#define CHEAP 2000   /* instructions of a plan that is tried on suspicion */
#define TIGHT 1.25   /* memory by the table that such a plan may be above */
#define MAX_SCHEDULES 32

const char *merak_search_part_name(enum merak_search_part part)
{
    static const char *const name[MERAK_PART_COUNT] = {
        [MERAK_PART_COMPUTE] = "compute",
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
    (*list)[(*n)++] = *cand;
    return MERAK_OK;
}

int *merak_search_bound(struct merak_search *s, int pp)
{
    return merak_pool_alloc(s->pool, ((size_t)pp + 1) * sizeof(int));
}

/* No cut can be faster: all work evenly on the stages, and the pipeline
 * filled once. */
static double lower_bound(const struct merak_candidate *cand)
{
    const struct merak_plan *p = &cand->plan;

    return cand->table->total_s * (p->microbatches + p->pp - 1) / p->pp;
}

double merak_search_effort(const struct merak_candidate *c)
{
    double m = c->plan.microbatches, settled = c->plan.pp + 3;

    return c->table->n_nodes * (m < settled ? m : settled);
}

/* Cuts that may fit although the table says no, if they are faster than
 * those that it says yes to. */
static enum merak_status rate_tight(struct merak_search *s,
                                    const struct merak_candidate *cand)
{
    struct merak_candidate tight = *cand;
    enum merak_status rc;

    tight.bound = merak_search_bound(s, cand->plan.pp);
    if (tight.bound == NULL)
        return merak_fail_nomem(s->err, (size_t)cand->plan.pp * sizeof(int));
    rc = merak_search_cut(&s->cost, &tight, NULL, s->limit * TIGHT, s->err);
    if (rc == MERAK_OK && tight.rated_s < cand->rated_s)
        rc = merak_search_keep(s, &s->big, &s->n_bigs, &tight);
    return rc;
}

/* Rate with cuts that fit, or without a limit. */
static enum merak_status rate(struct merak_search *s,
                              struct merak_candidate *cand, const int **like)
{
    enum merak_status rc;

    s->n_rated++;
    cand->bound = merak_search_bound(s, cand->plan.pp);
    if (cand->bound == NULL)
        return merak_fail_nomem(s->err, (size_t)cand->plan.pp * sizeof(int));
    rc = merak_search_cut(&s->cost, cand, *like, s->limit * MERAK_SEARCH_SLACK,
                          s->err);
    if (rc != MERAK_OK)
        return rc;
    if (cand->rated_s > 0 && merak_search_effort(cand) < CHEAP)
        rc = rate_tight(s, cand);
    if (rc != MERAK_OK)
        return rc;
    if (cand->rated_s > 0) {
        *like = cand->bound;
        if (cand->rated_s < s->best_s)
            s->best_s = cand->rated_s;
        return merak_search_keep(s, &s->cand, &s->n_cands, cand);
    }
    rc = merak_search_cut(&s->cost, cand, *like, DBL_MAX, s->err);
    if (rc == MERAK_OK && cand->rated_s > 0)
        rc = merak_search_keep(s, &s->big, &s->n_bigs, cand);
    return rc;
}

double merak_search_time(const struct merak_candidate *c)
{
    return c->step_s > 0 ? c->step_s : c->rated_s;
}

/* --- enumeration ---------------------------------------------------------- */

static bool pin_allows(enum merak_pin pin, bool value)
{
    return pin == MERAK_PIN_FREE || (pin == MERAK_PIN_YES) == value;
}

/* ZeRO-1 and the order of ranks, where they make a difference; if not, what
 * is the default elsewhere. */
static enum merak_status rate_variants(struct merak_search *s,
                                       struct merak_candidate *cand)
{
    const struct merak_search_pins *pin = &s->in->pin;
    bool levels = s->in->nodes > 1 && cand->plan.dp > 1 && cand->plan.pp > 1;
    const int *like = NULL;
    enum merak_status rc = MERAK_OK;

    for (int zero1 = 1; zero1 >= 0; zero1--) {
        for (int order = 0; order < 2 && rc == MERAK_OK; order++) {
            struct merak_candidate c = *cand;

            if (!pin_allows(pin->zero1, zero1 == 1) ||
                !pin_allows(pin->order_tp_pp_dp, order == 1))
                continue;
            if ((zero1 == 0 && c.plan.dp == 1 &&
                 pin->zero1 == MERAK_PIN_FREE) ||
                (order == 1 && !levels &&
                 pin->order_tp_pp_dp == MERAK_PIN_FREE))
                continue;
            c.plan.zero1 = zero1 == 1;
            c.plan.order_tp_pp_dp = order == 1;
            rc = rate(s, &c, &like);
        }
    }
    return rc;
}

static bool can_run(const struct merak_schedule *schedule,
                    const struct merak_plan *plan)
{
    struct merak_plan with = *plan;
    const struct merak_schedule *found;

    snprintf(with.schedule, sizeof(with.schedule), "%s", schedule->name);
    return !schedule->forward_only &&
           merak_plan_schedule(&with, &found, NULL) == MERAK_OK;
}

/* Is it unlike all before it for these stages?  Schedules that differ in
 * when they recompute are alike where nothing is recomputed. */
static bool is_new(struct merak_lists **seen, int *n,
                   const struct merak_schedule *schedule,
                   const struct merak_plan *plan)
{
    int settled = merak_rate_settled(plan->pp);
    int m = plan->microbatches < settled ? plan->microbatches : settled;
    struct merak_lists *lists = merak_lists_create(schedule, plan->pp, m);

    for (int i = 0; i < *n && lists != NULL; i++) {
        if (merak_lists_equal(lists, seen[i])) {
            merak_lists_destroy(lists);
            return false;
        }
    }
    if (*n < MAX_SCHEDULES)
        seen[(*n)++] = lists;
    else
        merak_lists_destroy(lists);
    return lists != NULL;
}

static enum merak_status rate_schedules(struct merak_search *s,
                                        struct merak_candidate *cand)
{
    const struct merak_schedule *const *all = merak_schedules();
    struct merak_lists *seen[MAX_SCHEDULES];
    enum merak_status rc = MERAK_OK;
    int n = 0;

    for (int i = 0; all[i] != NULL && rc == MERAK_OK; i++) {
        const char *want = s->in->pin.schedule;

        if ((want != NULL && strcmp(want, all[i]->name) != 0) ||
            !can_run(all[i], &cand->plan) ||
            !is_new(seen, &n, all[i], &cand->plan))
            continue;
        cand->schedule = all[i];
        snprintf(cand->plan.schedule, sizeof(cand->plan.schedule), "%s",
                 all[i]->name);
        rc = rate_variants(s, cand);
        if (cand->plan.pp == 1)
            break; /* one stage: all the same */
    }
    while (n > 0)
        merak_lists_destroy(seen[--n]);
    return rc;
}

static enum merak_status rate_degrees(struct merak_search *s,
                                      const struct merak_table *table)
{
    const struct merak_search_pins *pin = &s->in->pin;
    int rest = s->tasks / table->tp;
    enum merak_status rc = MERAK_OK;

    for (int pp = 1; pp <= rest && pp <= table->n && rc == MERAK_OK; pp++) {
        struct merak_candidate cand = {.table = table};
        size_t pass = (size_t)(rest / pp) * table->micro_batch;

        if (rest % pp != 0 || s->in->global_batch % pass != 0 ||
            (pin->pp != 0 && pin->pp != pp) ||
            (pin->dp != 0 && pin->dp != rest / pp))
            continue;
        cand.plan = (struct merak_plan){.tp = table->tp,
                                        .pp = pp,
                                        .dp = rest / pp,
                                        .microbatches =
                                            (int)(s->in->global_batch / pass),
                                        .micro_batch = table->micro_batch,
                                        .sp = table->sp,
                                        .dtype = s->in->dtype,
                                        .threads = s->in->threads};
        if (s->desperate || lower_bound(&cand) < HOPELESS * s->best_s)
            rc = rate_schedules(s, &cand);
    }
    return rc;
}

/* A table of these; NULL if the model cannot be cut so. */
static enum merak_status make_table(struct merak_search *s, int tp,
                                    enum merak_seq_parallel sp, size_t b,
                                    struct merak_table **table_p)
{
    struct merak_sharded *sharded = NULL;
    struct merak_error why;
    struct merak_table **grown;
    enum merak_status rc =
        merak_graphs_shard(s->graphs, tp, sp, b, &sharded, &why);

    *table_p = NULL;
    if (rc == MERAK_ERR_CONFIG && tp > 1) {
        s->tp_error = why;
        s->n_tp_refused++;
        return MERAK_OK;
    }
    if (rc != MERAK_OK) {
        if (s->err != NULL)
            *s->err = why;
        return rc;
    }
    grown = realloc(s->table, ((size_t)s->n_tables + 1) * sizeof(*grown));
    if (grown == NULL) {
        rc = merak_fail_nomem(s->err, (size_t)s->n_tables * sizeof(*grown));
        goto out;
    }
    s->table = grown;
    rc = merak_table_create(s->in, &s->cost, sharded, table_p, s->err);
    if (rc != MERAK_OK)
        goto out;
    (*table_p)->tp = tp;
    (*table_p)->sp = sp;
    (*table_p)->micro_batch = b;
    s->table[s->n_tables++] = *table_p;
out:
    merak_sharded_destroy(sharded);
    return rc;
}

static bool same_table(const struct merak_table *a, const struct merak_table *b)
{
    for (int s = 0; s < a->n; s++) {
        if (a->segment[s].kept != b->segment[s].kept ||
            a->segment[s].f_s != b->segment[s].f_s ||
            a->segment[s].b_s != b->segment[s].b_s ||
            a->segment[s].peak != b->segment[s].peak)
            return false;
    }
    return true;
}

/* With the cheapest layouts, then with the sequence cut wherever it can be:
 * the latter takes less memory. */
static enum merak_status rate_tables(struct merak_search *s, int tp, size_t b)
{
    struct merak_table *automatic = NULL, *on = NULL;
    enum merak_seq_parallel sp =
        s->in->pin.fix_sp ? s->in->pin.sp : MERAK_SP_AUTO;
    enum merak_status rc = make_table(s, tp, sp, b, &automatic);

    if (rc != MERAK_OK || automatic == NULL)
        return rc;
    rc = rate_degrees(s, automatic);
    if (rc != MERAK_OK || tp == 1 || s->in->pin.fix_sp)
        return rc;
    rc = make_table(s, tp, MERAK_SP_ON, b, &on);
    if (rc == MERAK_OK && on != NULL && !same_table(automatic, on))
        rc = rate_degrees(s, on);
    return rc;
}

/* Does a micro-batch of b divide the batch for any dp of this tp? */
static bool is_size(const struct merak_search *s, int tp, size_t b)
{
    int rest = s->tasks / tp;

    if (s->in->pin.micro_batch != 0 && s->in->pin.micro_batch != b)
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
        if (!is_size(s, tp, b))
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

/* Tensor groups never leave a node. */
enum merak_status merak_search_rate_all(struct merak_search *s)
{
    enum merak_status rc = MERAK_OK;
    int per_node = s->in->ranks_per_node;

    for (int tp = 1; tp <= per_node && rc == MERAK_OK; tp++) {
        if (per_node % tp == 0 && (s->in->pin.tp == 0 || s->in->pin.tp == tp))
            rc = rate_sizes(s, tp);
    }
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

enum merak_status merak_search_init(struct merak_search *s,
                                    const struct merak_search_input *in,
                                    struct merak_error *err)
{
    *s = (struct merak_search){.in = in, .best_s = DBL_MAX, .err = err};
    s->tasks = in->nodes * in->ranks_per_node;
    s->limit = (double)(in->memory_bytes > 0 ? in->memory_bytes
                                             : in->device->memory_bytes);
    merak_device_cost(in->device, in->dtype, in->ranks_per_node, &s->cost);
    s->pool = merak_pool_create();
    if (s->pool == NULL)
        return merak_fail_nomem(err, sizeof(*s));
    return merak_graphs_create(in, &s->graphs, err);
}

static enum merak_status check(const struct merak_search_input *in,
                               struct merak_error *err)
{
    const struct merak_schedule *schedule;

    if (in->nodes < 1 || in->ranks_per_node < 1 || in->global_batch < 1 ||
        in->nodes > INT32_MAX / in->ranks_per_node)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "%d nodes of %d ranks and a global batch of %zu: "
                          "each must be at least 1",
                          in->nodes, in->ranks_per_node, in->global_batch);
    if (in->pin.schedule == NULL)
        return MERAK_OK;
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
    if (rc == MERAK_OK)
        rc = merak_search_rate_all(&s);
    if (rc == MERAK_OK)
        rc = merak_search_finals(&s);
    /* Then slower ones, which are smaller, may. */
    if (rc == MERAK_OK && s.n_cands > 0 && !s.cand[0].settled) {
        s.n_cands = s.n_bigs = 0;
        s.effort = 0;
        s.desperate = true;
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
