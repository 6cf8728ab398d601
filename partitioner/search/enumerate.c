/* SPDX-License-Identifier: Apache-2.0 */
/* enumerate.c - enumeration of the candidates
 *
 * Every combination of degrees, micro-batch size, sequence parallelism,
 * sub-pipeline, chunks, schedule, ZeRO-1 and order that divides exactly is
 * rated, unless even a perfect cut of it would lose by a quarter.  Recompute is
 * not enumerated: for a given cut, each stage drops the least that fits, since
 * dropping more would not make it faster.
 */
#include "config.h"

#include "partitioner/program/fold.h"
#include "partitioner/search/cut.h"
#include "partitioner/search/fixed.h"
#include "partitioner/search/search_impl.h"

#include "base/error.h"
#include "base/factors.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SMALL 300 /* nodes */

static enum merak_recompute recompute_of(const struct merak_search *s)
{
    return s->in->pin.given[MERAK_CHOICE_RECOMPUTE] ? s->in->pin.recompute
                                                    : MERAK_RECOMPUTE_AUTO;
}

/* Have so many stages the hops that are to be sent in part? */
static bool has_hops(const struct merak_choices *pin, int pp)
{
    return !merak_lossy_any(&pin->lossy) ||
           (pp > 1 && merak_lossy_last(&pin->lossy) < pp);
}

struct merak_plan merak_search_key(const struct merak_search *s, int tp,
                                   size_t b)
{
    const struct merak_choices *pin = &s->in->pin;

    return (struct merak_plan){
        .tp = tp,
        .ep = 1,
        .expert_room =
            pin->expert_room > 0 ? pin->expert_room : MERAK_EXPERT_ROOM,
        .cp = merak_search_cp(s->in),
        .cp_axes = pin->cp_axes,
        .cp_form = pin->cp_form,
        .cp_order = pin->cp_order,
        .tp_axes = merak_search_axes(s),
        .sp = pin->given[MERAK_CHOICE_SP] ? pin->sp : MERAK_SP_AUTO,
        .tp_plan = pin->tp_plan,
        .loss_pieces =
            pin->given[MERAK_CHOICE_LOSS_PIECES] ? pin->loss_pieces : 1,
        .micro_batch = b,
        .branches = MERAK_BRANCHES_DESCRIBED};
}

bool merak_search_start(struct merak_search *s, const struct merak_table *table,
                        int pp, struct merak_candidate *cand)
{
    const struct merak_choices *pin = &s->in->pin;
    int rest = s->tasks / merak_plan_tensor_ranks(&table->plan);
    size_t dp = (size_t)(rest / pp), pass = dp * table->plan.micro_batch;

    *cand = (struct merak_candidate){
        .table = table, .given = pin->list, .tally = &s->tally};
    if (pp > table->n || rest % pp != 0 ||
        s->in->global_batch % (pass * (size_t)table->width) != 0 ||
        (pin->pp != 0 && pin->pp != pp) ||
        merak_given_parts(&pin->list) % pp != 0 ||
        (pin->dp != 0 && pin->dp != rest / pp) || !has_hops(pin, pp))
        return false;
    cand->plan = table->plan;
    cand->plan.pp = pp;
    cand->plan.dp = rest / pp;
    cand->plan.chunks = 1;
    cand->plan.sub_pipeline = table->width > 1;
    cand->plan.recompute = recompute_of(s);
    cand->plan.lossy = pin->lossy;
    cand->plan.fetch = s->in->pin.fetch;
    cand->plan.offload = s->in->pin.offload;
    cand->plan.microbatches = (int)(s->in->global_batch / pass);
    cand->plan.passes = table->passes;
    cand->plan.dtype = s->in->dtype;
    cand->plan.grad_dtype = s->in->pin.grad_dtype;
    cand->plan.threads = s->in->threads;
    cand->plan.scatter = merak_search_scatter(s, cand);
    return true;
}

/* Of two that take as long the earlier is kept. */
static const struct {
    int zero;
    enum merak_grad_sum sum;
} zero_rows[MERAK_SEARCH_LEVELS] = {{MERAK_ZERO_STATE, MERAK_SUM_MICRO},
                                    {MERAK_ZERO_NONE, MERAK_SUM_MICRO},
                                    {MERAK_ZERO_GRADS, MERAK_SUM_MICRO},
                                    {MERAK_ZERO_PARAMS, MERAK_SUM_MICRO},
                                    {MERAK_ZERO_PARAMS, MERAK_SUM_STEP}};

bool merak_search_may_be_flat(const struct merak_choices *pin)
{
    if (pin->given[MERAK_CHOICE_ZERO])
        return pin->zero >= MERAK_ZERO_GRADS;
    return pin->zero == MERAK_OPTION_AUTO ||
           merak_choices_least_zero(pin) >= MERAK_ZERO_GRADS;
}

/* Has it what is given beside a level?  If sums are not, those of a step are
 * tried where a step has several of a micro-batch. */
static bool has_given(const struct merak_choices *pin,
                      const struct merak_plan *plan)
{
    bool once = plan->grad_sum == MERAK_SUM_STEP;

    if (plan->zero < merak_choices_least_zero(pin))
        return false;
    if (pin->given[MERAK_CHOICE_GRAD_SUM])
        return plan->grad_sum == pin->grad_sum;
    return !once || plan->microbatches > (plan->sub_pipeline ? 2 : 1);
}

bool merak_search_set_level(const struct merak_search *s, int level,
                            struct merak_plan *plan)
{
    const struct merak_choices *pin = &s->in->pin;
    bool given = pin->given[MERAK_CHOICE_ZERO];
    int zero = zero_rows[level].zero;

    plan->zero = zero;
    plan->grad_sum = zero_rows[level].sum;
    if (s->shards_more && zero < MERAK_ZERO_GRADS)
        return false;
    /* Levels from 2 on are tried if they are given, or auto. */
    if (zero >= MERAK_ZERO_GRADS &&
        (!merak_search_may_be_flat(pin) ||
         merak_plan_check_zero(plan, NULL) != MERAK_OK))
        return false;
    return has_given(pin, plan) &&
           merak_choice_allows(given, pin->zero, zero) &&
           (zero == MERAK_ZERO_STATE || merak_plan_shares(plan) || given);
}

/* Are stages whole in islands, or replicas, or both in several whole ones, if
 * these ranks follow one another? */
static bool is_whole(const struct merak_search *s, int ranks)
{
    const struct merak_links *links = &s->cost.links;
    int island = links->level[merak_links_last(links) - 1].ranks;

    return links->islands == NULL || island == 0 || island % ranks == 0 ||
           ranks % island == 0;
}

bool merak_search_has_order(const struct merak_search *s,
                            const struct merak_plan *plan, bool order_tp_pp_dp)
{
    int tp = merak_plan_tensor_ranks(plan);
    bool given = s->in->pin.given[MERAK_CHOICE_ORDER];
    bool levels = s->in->nodes > 1 && plan->dp > 1 && plan->pp > 1;

    return merak_choice_allows(given, s->in->pin.order_tp_pp_dp,
                               order_tp_pp_dp) &&
           (!order_tp_pp_dp || levels || given) &&
           is_whole(s, tp * (order_tp_pp_dp ? plan->pp : plan->dp));
}

bool merak_search_is_small(const struct merak_search *s)
{
    return s->n_nodes < SMALL;
}

/* Is the requested schedule one with vocabulary-parallel layers? */
static bool wants_shared(const struct merak_search *s)
{
    const struct merak_schedule *want;

    return s->in->pin.schedule != NULL &&
           merak_schedule_find(s->in->pin.schedule, &want, NULL) == MERAK_OK &&
           want->feeds != NULL;
}

static void bound_degrees(struct merak_search *s,
                          const struct merak_table *table)
{
    int rest = s->tasks / merak_plan_tensor_ranks(&table->plan);

    for (int pp = 1; pp <= rest && pp <= table->n; pp++) {
        struct merak_candidate cand;

        if (merak_search_start(s, table, pp, &cand))
            merak_search_bound(s, &cand);
    }
}

static void rate_degrees(struct merak_search *s,
                         const struct merak_table *table)
{
    int rest = s->tasks / merak_plan_tensor_ranks(&table->plan);

    bound_degrees(s, table);
    if (wants_shared(s)) {
        merak_search_rate_shared(s, table);
        return;
    }
    for (int pp = 1; pp <= rest && pp <= table->n && merak_search_goes_on(s);
         pp++) {
        struct merak_candidate cand;

        if (!merak_search_start(s, table, pp, &cand))
            continue;
        if (merak_search_rate_far_too_big(s, &cand))
            continue;
        if (s->relax_time_bound ||
            !merak_search_is_slow(s, merak_search_lower_bound(&cand)))
            merak_search_rate_chunks(s, &cand);
        merak_search_rate_slices(s, &cand);
    }
}

/* Is this width allowed?  2, a sub-pipeline, needs communication to overlap. */
static bool has_width(const struct merak_search *s,
                      const struct merak_plan *key, int width)
{
    bool fixed = s->in->pin.given[MERAK_CHOICE_SUB_PIPELINE];
    bool wanted = s->in->pin.sub_pipeline;
    size_t unit = s->in->pin.micro_batch;

    if (unit > 0 && unit != (size_t)width * key->micro_batch)
        return false;
    if (width == 1)
        return merak_choice_allows(fixed, wanted, false);
    if (merak_plan_loss_pieces(key) > 1)
        return false;
    return (merak_plan_tensor_ranks(key) > 1 || fixed) &&
           merak_choice_allows(fixed, wanted, true) &&
           s->in->global_batch % (2 * key->micro_batch) == 0;
}

/* Is the order of nodes given? */
static bool is_pinned(const struct merak_search *s)
{
    return s->in->pin.given[MERAK_CHOICE_BRANCHES] &&
           s->in->pin.branches != MERAK_BRANCHES_AUTO;
}

void merak_search_tables(struct merak_search *s, const struct merak_plan *key,
                         struct merak_table *table[2])
{
    const struct merak_sharded *sharded = NULL;
    struct merak_error why;
    enum merak_status rc;

    table[0] = table[1] = NULL;
    if (!merak_search_goes_on(s))
        return;
    rc = merak_search_shard(s, key, &sharded, &why);
    if (rc == MERAK_ERR_TIMEOUT)
        return;
    if (rc == MERAK_ERR_CONFIG && merak_plan_tensor_ranks(key) > 1) {
        if (merak_search_cp(s->in) == 1 ||
            s->n_tp_refused == 0) /* what cp refuses of any tp */
            s->tp_error = why;
        s->n_tp_refused++;
        return;
    }
    if (rc != MERAK_OK) {
        merak_search_fail(s, rc, &why);
        return;
    }
    if (merak_fold_check(sharded, merak_plan_loss_pieces(key), &why) !=
        MERAK_OK) {
        if (s->fixed_error.status == MERAK_OK)
            s->fixed_error = why;
        return;
    }
    s->branches = s->branches || sharded->branches;
    s->n_nodes = sharded->graph->n_nodes;
    for (int width = 1; width <= 2; width++) {
        /* If the graph has no such order, a pinned one falls back to the order
         * of its description. */
        if (has_width(s, key, width) &&
            (sharded->order == key->branches || is_pinned(s)) &&
            merak_search_may_pay(s, key, sharded))
            table[width - 1] =
                merak_search_add_table(s, sharded, key, NULL, width, 1);
    }
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

void merak_search_rate_tables(struct merak_search *s,
                              struct merak_table *const table[2],
                              struct merak_table *const other[2])
{
    for (int i = 0; i < 2; i++) {
        if (table[i] != NULL &&
            (other[i] == NULL || !same_table(table[i], other[i])))
            rate_degrees(s, table[i]);
    }
}

/* Where the sizes of micro-batches of tensor degrees have come to. */
struct sizes {
    int tp, ep;
    size_t b, no_gain;
    double before; /* best_s when the last one began */
    bool is_rated; /* one was: those before it were hopeless */
    bool is_done;
};

/* Rate with the cheapest layouts, then with the sequence split wherever
 * possible, which takes less memory. */
static void rate_key(struct merak_search *s, struct merak_plan key)
{
    struct merak_table *automatic[2], *on[2], *none[2] = {NULL, NULL};

    merak_search_tables(s, &key, automatic);
    merak_search_rate_tables(s, automatic, none);
    if (key.tp == 1 || s->in->pin.given[MERAK_CHOICE_SP] ||
        (automatic[0] == NULL && automatic[1] == NULL))
        return;
    key.sp = MERAK_SP_ON;
    merak_search_tables(s, &key, on);
    merak_search_rate_tables(s, on, automatic);
}

/* Rate with whole logits, or in as many pieces as are given; and in pieces, if
 * it is to be found which is faster. */
static void rate_layouts(struct merak_search *s, const struct sizes *at,
                         enum merak_branches branches, enum merak_ep_form form)
{
    const struct merak_choices *pin = &s->in->pin;
    const struct merak_sharded *sharded;
    struct merak_plan key = merak_search_key(s, at->tp, at->b);
    int most;

    key.ep = at->ep;
    key.ep_form = form;
    key.split = pin->split;
    key.branches = branches;
    if (at->tp > 1 || at->ep == 1)
        key.tp_batch_percent = pin->tp_batch_percent;
    rate_key(s, key);
    if (pin->loss_pieces != MERAK_OPTION_AUTO || !merak_search_goes_on(s) ||
        merak_search_shard(s, &key, &sharded, NULL) != MERAK_OK)
        return;
    most = merak_fold_most(sharded);
    for (key.loss_pieces = 4; key.loss_pieces <= most; key.loss_pieces *= 4)
        rate_key(s, key);
}

/* May experts have this form? */
static bool may_have_form(const struct merak_search *s, int ep,
                          enum merak_ep_form form)
{
    const struct merak_choices *pin = &s->in->pin;

    if (ep == 1 || pin->given[MERAK_CHOICE_EP_FORM])
        return form == (ep > 1 ? pin->ep_form : MERAK_EP_GATHER);
    return form == MERAK_EP_GATHER ||
           ((pin->ep_form == MERAK_EP_AUTO || pin->ep <= 0) &&
            merak_search_cp(s->in) == 1);
}

/* Rate each form of experts. */
static void rate_forms(struct merak_search *s, const struct sizes *at,
                       enum merak_branches branches)
{
    for (int form = MERAK_EP_GATHER; form < MERAK_EP_AUTO; form++) {
        if (may_have_form(s, at->ep, (enum merak_ep_form)form))
            rate_layouts(s, at, branches, (enum merak_ep_form)form);
    }
}

/* Rate with nodes in the order of the description, then in other orders. */
static void rate_tables(struct merak_search *s, const struct sizes *at)
{
    if (is_pinned(s)) {
        rate_forms(s, at, s->in->pin.branches);
        return;
    }
    rate_forms(s, at, MERAK_BRANCHES_DESCRIBED);
    if (s->branches) {
        rate_forms(s, at, MERAK_BRANCHES_GATHERED);
        rate_forms(s, at, MERAK_BRANCHES_BLOCKS);
    }
}

bool merak_search_is_size(const struct merak_search *s, int tp, size_t b)
{
    int rest = s->spread / tp;
    size_t unit = s->in->pin.micro_batch;

    if (unit != 0 && unit != b &&
        (unit != 2 * b ||
         !merak_choice_allows(s->in->pin.given[MERAK_CHOICE_SUB_PIPELINE],
                              s->in->pin.sub_pipeline, true)))
        return false;
    if (merak_choices_share_samples(&s->in->pin) && b % (size_t)tp != 0)
        return false;
    for (int dp = 1; dp <= rest; dp++) {
        if (rest % dp == 0 && (s->in->pin.dp == 0 || s->in->pin.dp == dp) &&
            s->in->global_batch % ((size_t)dp * b) == 0)
            return true;
    }
    return false;
}

static void rate_size(struct merak_search *s, struct sizes *at)
{
    int refused = s->n_tp_refused, n = s->n_cands, all = n + s->n_bigs;

    rate_tables(s, at);
    if (s->n_tp_refused > refused)
        at->is_done = true;
    else if (s->n_cands > n && s->best_s < at->before)
        at->no_gain = 0;
    else
        at->no_gain += at->is_rated && at->b > 2;
    at->before = s->best_s;
    at->is_rated = at->is_rated || s->n_cands + s->n_bigs > all;
}

/* Does ep divide the micro-batch?  One that is given is tried all the same, for
 * the reason why it cannot be; halves of it only if no others are allowed. */
static bool may_divide(const struct merak_search *s, const struct sizes *at)
{
    const struct merak_choices *pin = &s->in->pin;
    size_t given = pin->micro_batch / (pin->sub_pipeline ? 2 : 1);

    return at->b % (size_t)at->ep == 0 || (pin->ep > 1 && at->b == given);
}

/* Larger micro-batches are tried until two in a row bring nothing; twice as
 * large ones while they are hopeless beside other degrees.  Those that are not
 * reached by end_ns are left for later. */
static void rate_sizes(struct merak_search *s, struct sizes *at, int64_t end_ns)
{
    if (at->b == 1)
        at->before = s->best_s;
    while (!at->is_done && merak_search_goes_on(s)) {
        bool is_size = may_divide(s, at) &&
                       merak_search_is_size(s, at->tp * at->ep, at->b);

        if (is_size)
            rate_size(s, at);
        at->b += is_size && !at->is_rated ? at->b : 1;
        at->is_done =
            at->is_done || at->no_gain == 2 || at->b > s->in->global_batch;
        if (merak_search_is_past(end_ns))
            return;
    }
}

int merak_search_ep(const struct merak_search *s)
{
    const struct merak_choices *pin = &s->in->pin;

    if (pin->ep > 0)
        return pin->ep;
    if (pin->ep == 0 && pin->tp > 0)
        return 1;
    return merak_graphs_experts(s->graphs) > 0 ? 0 : 1;
}

int64_t merak_search_axes(const struct merak_search *s)
{
    return s->in->pin.tp_axes > 0 ? s->in->pin.tp_axes : 0;
}

static bool may_have_tp(const struct merak_search *s, int tp)
{
    int64_t axes = merak_search_axes(s);

    return merak_search_in_node(s) % tp == 0 &&
           merak_search_fills_nodes(s->in, tp) &&
           (axes == 0 || merak_factors_product(axes) == tp) &&
           (tp > 1 || !merak_split_any(&s->in->pin.split)) &&
           (s->in->pin.tp == 0 || s->in->pin.tp == tp);
}

/* Experts are cut over ranks of a node. */
static bool may_have_ep(const struct merak_search *s, int ep)
{
    int asked = merak_search_ep(s);

    if (ep > 1 && merak_search_leaves_node(s->in))
        return false;
    if (merak_search_in_node(s) % ep != 0 || (asked > 0 && asked != ep))
        return false;
    return asked > 0 || ep == 1 ||
           merak_graphs_experts(s->graphs) % (size_t)ep == 0;
}

/* The allowed degrees of tensor groups, each alone and then both, smaller ones
 * first; returns how many. */
static int list_sizes(const struct merak_search *s, struct sizes *sizes)
{
    int most = merak_search_in_node(s), n = 0;

    for (int tp = 1; tp <= most; tp++) {
        if (may_have_tp(s, tp) && may_have_ep(s, 1))
            sizes[n++] = (struct sizes){.tp = tp, .ep = 1, .b = 1};
    }
    for (int ep = 2; ep <= most; ep++) {
        if (may_have_tp(s, 1) && may_have_ep(s, ep))
            sizes[n++] = (struct sizes){.tp = 1, .ep = ep, .b = 1};
    }
    for (int ep = 2; ep <= most; ep++) {
        for (int tp = 2; tp <= most / ep && may_have_ep(s, ep); tp++) {
            if (may_have_tp(s, tp) && most % (tp * ep) == 0)
                sizes[n++] = (struct sizes){.tp = tp, .ep = ep, .b = 1};
        }
    }
    return n;
}

/* Tensor degrees share the time; what some leave over is for the others. */
static void rate_all_sizes(struct merak_search *s, struct sizes *sizes, int n)
{
    for (int i = 0; i < n; i++)
        rate_sizes(s, &sizes[i],
                   s->turn.insists ? INT64_MAX
                                   : merak_search_share_ns(s, n - i + 1));
    for (int i = 0; i < n; i++)
        rate_sizes(s, &sizes[i], INT64_MAX);
}

/* Tensor groups never leave a node. */
void merak_search_rate_all(struct merak_search *s)
{
    int most = merak_search_in_node(s);
    size_t room = 0; /* pairs whose product is at most that */
    struct sizes *sizes;

    for (int tp = 1; tp <= most; tp++)
        room += (size_t)(most / tp);
    sizes = calloc(room, sizeof(*sizes));
    if (sizes == NULL) {
        s->rc = merak_fail_nomem(s->err, room * sizeof(*sizes));
        return;
    }
    rate_all_sizes(s, sizes, list_sizes(s, sizes));
    free(sizes);
    for (int tp = 2; tp <= most; tp++) {
        if (may_have_tp(s, tp) && may_have_ep(s, 1) &&
            !s->in->pin.given[MERAK_CHOICE_TP_BATCH] &&
            !s->in->pin.given[MERAK_CHOICE_SPLIT])
            merak_search_rate_samples(s, tp);
    }
    merak_search_rate_grids(s);
    merak_search_rate_splits(s);
    /* Given cuts refer to a model without vocabulary-parallel layers. */
    if (s->in->pin.schedule != NULL || s->in->pin.list.cut != NULL)
        return;
    for (int i = 0, n = s->n_tables; i < n; i++)
        merak_search_rate_shared(s, s->table[i]);
}
