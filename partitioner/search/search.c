/* SPDX-License-Identifier: Apache-2.0 */
/* search.c - the planner: from a request to the chosen plan
 *
 * enumerate.c lists degrees, sizes and tables, variants.c the schedules of
 * each, rate.c estimates their steps, finalists.c builds the best.
 */
#include "config.h"

#include "partitioner/program/offload.h"
#include "partitioner/search/cut.h"
#include "partitioner/search/fixed.h"
#include "partitioner/search/need.h"
#include "partitioner/search/search_impl.h"
#include "partitioner/search/unlike.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/factors.h"
#include "base/size.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIGHT 1.25         /* memory by the table, over the limit */
/* Times the best: such a cheap plan's cut is polished before it is compared. */
#define POLISHED 1.5
#define HOPELESS_SHARE 0.5 /* of the time, to see what would do */
#define MAX_TASKS INT32_MAX
#define MAX_BATCH (1 << 20) /* sequences, and so micro-batches to play */

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

void merak_search_fail(struct merak_search *s, enum merak_status rc,
                       const struct merak_error *why)
{
    s->rc = rc;
    if (s->err != NULL)
        *s->err = *why;
}

/* --- rating one ----------------------------------------------------------- */

void merak_search_keep(struct merak_search *s, struct merak_candidate **list,
                       int *n, const struct merak_candidate *cand)
{
    void *grown = *list;

    if (s->rc != MERAK_OK)
        return;
    if ((*n & (*n - 1)) == 0) { /* room for a power of two */
        grown = realloc(*list, (*n == 0 ? 1 : 2 * (size_t)*n) * sizeof(**list));
        if (grown == NULL) {
            s->rc = merak_fail_nomem(s->err, (size_t)*n * sizeof(**list));
            return;
        }
    }
    *list = grown;
    (*list)[*n] = *cand;
    (*list)[(*n)++].follow = NULL; /* it only lives while rating */
}

bool merak_search_room(struct merak_search *s, struct merak_candidate *cand)
{
    size_t parts = (size_t)merak_plan_parts(&cand->plan);

    if (s->rc != MERAK_OK)
        return false;
    cand->bound = merak_pool_alloc(s->pool, (parts + 1) * sizeof(*cand->bound));
    cand->drop = merak_pool_alloc(s->pool, parts * sizeof(*cand->drop));
    if (cand->bound == NULL || cand->drop == NULL)
        s->rc = merak_fail_nomem(s->err, parts * sizeof(int));
    return s->rc == MERAK_OK;
}

bool merak_search_copy(struct merak_search *s,
                       const struct merak_candidate *from,
                       struct merak_candidate *to)
{
    size_t parts = (size_t)merak_plan_parts(&from->plan);

    *to = *from;
    if (!merak_search_room(s, to))
        return false;
    memcpy(to->bound, from->bound, (parts + 1) * sizeof(*to->bound));
    memcpy(to->drop, from->drop, parts * sizeof(*to->drop));
    return true;
}

/* Hardly any cut can be faster: work is even over the stages, and the pipeline
 * is filled once, by chunks or with the bubble of a zero-bubble schedule. */
double merak_search_lower_bound(const struct merak_candidate *cand)
{
    const struct merak_plan *p = &cand->plan;
    double fill = (p->pp - 1.0) / (p->chunks > 1 ? p->chunks : 1.5);

    return cand->table->total_s * (merak_plan_units(p) + fill) / p->pp;
}

bool merak_search_is_slow(const struct merak_search *s, double least_s)
{
    return least_s >= fmin(MERAK_SEARCH_HOPELESS * s->best_s,
                           MERAK_SEARCH_ERROR * merak_search_worth_s(s->in));
}

double merak_search_effort(const struct merak_candidate *c)
{
    double slices = c->table->slices, settled = c->plan.pp + 3;
    double units = merak_plan_units(&c->plan) / slices;

    return c->table->n_nodes * slices * (units < settled ? units : settled);
}

/* Also keep a cut that may fit though by the table it does not, if it is faster
 * than the one that does. */
static void rate_tight(struct merak_search *s,
                       const struct merak_candidate *cand)
{
    struct merak_candidate tight = *cand;

    if (!merak_search_room(s, &tight))
        return;
    merak_search_cut(s, &tight, NULL, merak_search_limit(s, &tight) * TIGHT,
                     false);
    if (tight.rated_s > 0 && tight.rated_s < cand->rated_s)
        merak_search_keep(s, &s->big, &s->n_bigs, &tight);
}

/* Cut it so that it fits, or, if it cannot, without a limit; true: it fits.
 * rated_s stays 0 if it cannot be cut. */
static bool rate(struct merak_search *s, struct merak_candidate *cand,
                 const int *initial)
{
    double most = merak_search_limit(s, cand);
    double limit = most * MERAK_SEARCH_SLACK;
    double least = merak_stages_least(&s->cost, cand);

    cand->rated_s = 0;
    if (least <= limit)
        merak_search_cut(s, cand, initial, limit, false);
    if (cand->rated_s > 0)
        return true;
    if (s->in->most_s > 0 && least > most * TIGHT) {
        /* whether it fits is all that is asked of it */
        cand->rated_s = DBL_MAX;
        cand->bytes = least;
    } else {
        merak_search_cut(s, cand, initial, limit, true);
    }
    return false;
}

void merak_search_rate_variant(struct merak_search *s,
                               struct merak_candidate *cand,
                               const int **initial)
{
    struct merak_candidate fewer;
    bool fits;

    if (!merak_search_room(s, cand))
        return;
    s->n_rated++;
    if (s->best_s < DBL_MAX)
        merak_progress_note(s->in->progress, "best %.4g s a step", s->best_s);
    merak_progress_add(s->in->progress, 1);
    fits = rate(s, cand, *initial);
    if (fits) {
        if (merak_search_effort(cand) < MERAK_SEARCH_CHEAP) {
            /* Of few segments a stage an even cut may be far from the best. */
            if (cand->rated_s < POLISHED * s->best_s)
                merak_search_polish(s, cand);
            rate_tight(s, cand);
        }
        *initial = cand->bound;
        if (cand->rated_s < s->best_s)
            s->best_s = cand->rated_s;
        merak_search_keep(s, &s->cand, &s->n_cands, cand);
        if (merak_search_fewest(s, cand, merak_search_limit(s, cand), &fewer))
            merak_search_keep(s, &s->cand, &s->n_cands, &fewer);
        return;
    }
    if (cand->rated_s > 0)
        merak_search_keep(s, &s->big, &s->n_bigs, cand);
}

double merak_search_time(const struct merak_candidate *c)
{
    return c->step_s > 0 ? c->step_s : c->rated_s * fmax(c->error, 1);
}

/* --- the search ----------------------------------------------------------- */

void merak_search_fini(struct merak_search *s)
{
    for (int i = 0; i < s->n_tables; i++)
        merak_table_destroy(s->table[i]);
    free(s->table);
    free(s->trials.tried.list);
    free(s->cand);
    free(s->big);
    merak_pool_destroy(s->pool);
    merak_graphs_destroy(s->graphs);
}

static bool start(struct merak_search *s, const struct merak_search_input *in,
                  struct merak_error *err)
{
    *s = (struct merak_search){.in = in,
                               .best_s = merak_search_worth_s(in),
                               .bound_s = DBL_MAX,
                               .turn.none_ns = INT64_MAX,
                               .trials.deadline.at_ns = INT64_MAX,
                               .trials.too_much = DBL_MAX,
                               .err = err};
    s->tasks = in->nodes * in->ranks_per_node;
    s->spread = s->tasks / merak_search_cp(s->in);
    s->most = merak_search_most_memory(in);
    merak_search_limit_init(s);
    merak_search_cost(in, &s->cost);
    s->pool = merak_pool_create();
    if (s->pool == NULL)
        s->rc = merak_fail_nomem(err, sizeof(*s));
    return s->rc == MERAK_OK;
}

enum merak_status merak_search_init(struct merak_search *s,
                                    const struct merak_search_input *in,
                                    struct merak_error *err)
{
    if (start(s, in, err))
        s->rc = merak_graphs_create(in, &s->graphs, err);
    return s->rc;
}

enum merak_status merak_search_init_like(struct merak_search *s,
                                         const struct merak_search_input *in,
                                         const struct merak_search *other)
{
    if (start(s, in, NULL))
        s->graphs = merak_graphs_share(other->graphs);
    s->start_ns = other->start_ns;
    s->turn.from_ns = other->turn.from_ns;
    s->until_ns = other->until_ns;
    return s->rc;
}

/* Can sequences be cut over so many ranks, within a node or over whole ones? */
static bool may_cut(const struct merak_search_input *in)
{
    bool may = false;

    if (!merak_search_leaves_node(in))
        return true;
    for (int tp = 1; tp <= merak_search_node(in) && in->pin.ep <= 1; tp++)
        may = may || ((in->pin.tp == 0 || in->pin.tp == tp) &&
                      merak_search_fills_nodes(in, tp));
    return may;
}

static enum merak_status fail_cp(const struct merak_search_input *in,
                                 struct merak_error *err)
{
    int node = merak_search_node(in);
    size_t below, above;
    bool more =
        merak_divisors_near((size_t)node, (size_t)in->pin.cp, &below, &above);

    merak_fail(err, MERAK_ERR_CONFIG,
               "cp %d does not divide the %d rank%s of a %s", in->pin.cp, node,
               merak_plural(node), merak_search_node_word(in));
    if (!more)
        return merak_error_fix(err, MERAK_ERR_CONFIG, "; nearest: --cp %zu",
                               below);
    return merak_error_fix(err, MERAK_ERR_CONFIG, "; nearest: --cp %zu or %zu",
                           below, above);
}

static enum merak_status check_offload(const struct merak_search_input *in,
                                       struct merak_error *err)
{
    const struct merak_plan plan = {.offload = in->pin.offload};
    enum merak_status rc = MERAK_OK;

    for (int k = 0; k < (in->n_kinds > 0 ? in->n_kinds : 1); k++) {
        struct merak_cost_model cost;

        if (in->n_kinds > 0)
            merak_search_kind_cost(in, &in->kind[k], &cost);
        else
            merak_search_cost(in, &cost);
        if (rc == MERAK_OK)
            rc = merak_offload_check(&plan, &cost, err);
    }
    return rc;
}

/* Are there ranks enough for the hops that are to be sent in part? */
static enum merak_status check_lossy(const struct merak_search_input *in,
                                     struct merak_error *err)
{
    int ranks = in->nodes * in->ranks_per_node;
    int last = merak_lossy_last(&in->pin.lossy);

    if (!merak_lossy_any(&in->pin.lossy) || (ranks > 1 && last < ranks))
        return MERAK_OK;
    if (ranks == 1)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--lossy-hops: one rank sends nothing to another "
                          "stage; leave it out");
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--lossy-hops: %d ranks have no hop behind stage %d; "
                      "expected stages 0..%d",
                      ranks, last, ranks - 2);
}

static enum merak_status check(const struct merak_search_input *in,
                               struct merak_error *err)
{
    const struct merak_plan degrees = {.tp = in->pin.tp > 0 ? in->pin.tp : 1,
                                       .ep = in->pin.ep,
                                       .tp_axes =
                                           in->pin.tp > 0 ? in->pin.tp_axes : 0,
                                       .cp = in->pin.cp,
                                       .pp = 1,
                                       .dp = 1,
                                       .microbatches = 1};
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
                          "total",
                          in->nodes, in->ranks_per_node, MAX_TASKS);
    if (in->global_batch > MAX_BATCH)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "a global batch of %zu: plans are searched for at "
                          "most %d sequences a step",
                          in->global_batch, MAX_BATCH);
    if (!may_cut(in))
        return fail_cp(in, err);
    rc = merak_plan_check_degrees(&degrees, err);
    if (rc == MERAK_OK)
        rc = check_offload(in, err);
    if (rc == MERAK_OK)
        rc = check_lossy(in, err);
    if (rc == MERAK_OK)
        rc = merak_fixed_valid(&in->pin.list, err);
    if (rc != MERAK_OK || in->pin.schedule == NULL)
        return rc;
    return merak_schedule_find(in->pin.schedule, &schedule, err);
}

/* Is the best one built, and does it fit? */
static bool has_plan(const struct merak_search *s)
{
    return s->rc == MERAK_OK && s->n_cands > 0 && s->cand[0].settled;
}

/* Begin another round, with empty lists. */
static void start_again(struct merak_search *s)
{
    s->n_cands = s->n_bigs = 0;
    s->effort.done = 0;
}

/* Rate and build, the best first of s->cand; false: only the plainest plans
 * were, since none can fit. */
static bool rate_and_build(struct merak_search *s)
{
    int before = s->n_bigs;
    bool all;

    merak_search_limit_begin(s);
    if (s->rc == MERAK_OK && merak_search_is_hopeless(s)) {
        merak_search_limit_share(s, HOPELESS_SHARE);
        merak_search_rate_plain(s);
    }
    all = s->n_bigs == before;
    if (all)
        merak_search_rate_in_time(s);
    merak_search_finals(s);
    /* Nothing fits: try slower plans, which may take less memory. */
    if (s->n_cands > 0 && !s->cand[0].settled &&
        merak_search_worth_s(s->in) == DBL_MAX &&
        !merak_search_is_over(s) && !s->cut_short) {
        start_again(s);
        s->relax_time_bound = true;
        s->shards_more = false;
        merak_search_rate_in_time(s);
        merak_search_finals(s);
    }
    return all;
}

/* Is there no plan yet, and time to look for another? */
static bool needs_more(const struct merak_search *s)
{
    return s->rc == MERAK_OK && !has_plan(s) &&
           merak_search_has_spare_time(s) && s->n_cands + s->n_bigs > 0;
}

bool merak_search_may_shard_more(const struct merak_search *s,
                                 struct merak_search_input *sharded)
{
    const struct merak_choices *pin = &s->in->pin;

    *sharded = *s->in;
    sharded->pin.zero = MERAK_OPTION_AUTO;
    return !pin->given[MERAK_CHOICE_ZERO] && pin->zero != MERAK_OPTION_AUTO &&
           pin->dp != 1 && s->tasks > 1;
}

/* The answer to a request with most_s. */
static enum merak_status choose_time(const struct merak_search *s,
                                     struct merak_search_result **result_p)
{
    struct merak_search_result *r;

    if (!has_plan(s) || s->cand[0].step_s >= s->in->most_s)
        return MERAK_ERR_CONFIG;
    r = calloc(1, sizeof(*r));
    if (r == NULL)
        return merak_fail_nomem(s->err, sizeof(*r));
    r->choice[0].plan = s->cand[0].plan;
    r->choice[0].step_s = s->cand[0].step_s;
    *result_p = r;
    return MERAK_OK;
}

/* Search for what the request becomes then.  `all` that it was before is not
 * rated again if only ZeRO changes and none of it fits by the table. */
static bool search_with(struct merak_search *s,
                        const struct merak_search_input *in, bool all)
{
    int n_bigs = s->n_bigs;

    s->shards_more = all && !s->cut_short && s->n_cands == 0 &&
                     in->pin.zero != s->in->pin.zero;
    start_again(s);
    s->n_bigs = s->shards_more ? n_bigs : 0;
    s->in = in;
    s->relax_time_bound = false;
    return rate_and_build(s);
}

/* Is the memory too little for what any plan keeps from step to step, with all
 * that the request allows to share it out or to move it away? */
static bool never_fits(struct merak_search *s)
{
    const struct merak_search_input *asked = s->in;
    struct merak_search_input in = *asked;
    bool never;

    if (!in.pin.given[MERAK_CHOICE_ZERO])
        in.pin.zero = MERAK_OPTION_AUTO;
    if (!in.pin.given[MERAK_CHOICE_OFFLOAD] && s->cost.host.bytes_per_s > 0)
        in.pin.offload = MERAK_OFFLOAD_STATE;
    s->in = &in;
    never = merak_search_is_hopeless(s);
    s->in = asked;
    (void)merak_search_is_hopeless(s);
    return never;
}

/* What was left out for lack of time does not matter where nothing fits for
 * sure. */
static enum merak_status refuse(struct merak_search *s)
{
    bool some = s->n_cands + s->n_bigs > 0;

    merak_search_limit_share(s, 1);
    if (s->cut_short && !(some && never_fits(s)))
        return merak_search_no_time(s);
    return some ? merak_search_no_memory(s) : merak_search_no_division(s);
}

static enum merak_status search_once(const struct merak_search_input *input,
                                     struct merak_search_result **result_p,
                                     struct merak_error *err)
{
    struct merak_search s = {0};
    struct merak_search_input sharded, away;
    enum merak_status rc = check(input, err);
    bool all = false;

    if (rc != MERAK_OK)
        return rc;
    if (merak_search_init(&s, input, err) == MERAK_OK) {
        s.turn.spare = merak_search_may_shard_more(&s, &sharded) ||
                       merak_search_may_offload(&s, &away);
        all = rate_and_build(&s);
    }
    if (merak_search_may_shard_more(&s, &sharded) && needs_more(&s)) {
        s.turn.spare = merak_search_may_offload(&s, &away);
        all = search_with(&s, &sharded, all);
    }
    if (merak_search_may_offload(&s, &away) && needs_more(&s)) {
        s.turn.spare = false;
        search_with(&s, &away, all);
    }
    if (has_plan(&s) &&
        (input->known_s == 0 || s.cand[0].step_s < input->known_s))
        merak_search_try_named(&s);
    if (s.rc != MERAK_OK)
        rc = s.rc;
    else if (input->most_s > 0)
        rc = choose_time(&s, result_p);
    else if (has_plan(&s))
        rc = merak_search_choose(&s, result_p);
    else
        rc = refuse(&s);
    if (input->cut_short_p != NULL)
        *input->cut_short_p = s.cut_short;
    merak_search_fini(&s);
    if (rc == MERAK_OK)
        (*result_p)->direct = input->direct;
    return rc;
}

enum merak_status
merak_search_given_means(const struct merak_search_input *input,
                         struct merak_search_result **result_p,
                         struct merak_error *err)
{
    int64_t start_ns = merak_clock_ns();
    struct merak_search_input by_hosts = *input;
    enum merak_status rc = search_once(input, result_p, err);

    /* No program ran in a device's queues without a deadlock. */
    if (rc != MERAK_ERR_CORRUPT || !input->direct || input->insists_direct)
        return rc;
    by_hosts.direct = by_hosts.fast_sums = false;
    (void)merak_search_time_left(&by_hosts, start_ns);
    return search_once(&by_hosts, result_p, err);
}

enum merak_status merak_search(const struct merak_search_input *input,
                               struct merak_search_result **result_p,
                               struct merak_error *err)
{
    int64_t start_ns = merak_clock_ns();
    struct merak_search_input rest = *input;
    enum merak_status rc =
        merak_grad_dtype_check(input->dtype, input->pin.grad_dtype, err);

    if (rc != MERAK_OK)
        return rc;
    rc = input->pin.cp == MERAK_OPTION_AUTO
             ? merak_search_all_cp(input, result_p, err)
             : merak_search_given_cp(input, result_p, err);
    return merak_search_time_left(&rest, start_ns)
               ? merak_search_unlike(&rest, rc, result_p, err)
               : rc;
}

void merak_search_destroy(struct merak_search_result *result)
{
    if (result == NULL)
        return;
    merak_pool_destroy(result->pool);
    free(result->stage);
    free(result);
}
