/* SPDX-License-Identifier: Apache-2.0 */
/* shard_search.c - a dynamic program over the forward nodes
 *
 * The state after each node is all that later costs can depend on: for every
 * value still to be used, its layout, the layouts it has been converted to
 * (forward and backward: a copy is made once) and those in which contributions
 * to its gradient are summed before they are converted once.  Of equal states
 * the cheapest is kept.  Transformers have a handful of states at any time, for
 * which the search is exact; the beam bounds the states of other graphs.
 * Ties go to the state found first: the result depends only on the graph.
 */
#include "config.h"

#include "partitioner/layout/shard_form.h"

#include "base/arrays.h"
#include "base/error.h"
#include "base/rng.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BEAM 256
#define NO_CODE UINT64_MAX
#define SET_WORDS (MERAK_KIND_LAYOUTS / 64)
/* Seconds for converting a parameter in every micro-batch: one that is used
 * twice (tied weights) keeps one layout unless there is no other way. */
#define PARAM_CONVERT_S 1e6

/* A live value.  It has only words, since records are compared by memcmp(). */
struct record {
    uint64_t code; /* NO_CODE: a parameter before its first use */
    /* sets of layouts, by their numbers (merak_shard_layout_number()) */
    uint64_t copies[SET_WORDS], back[SET_WORDS], grads[SET_WORDS];
};

struct layer {
    int n, n_live;
    double *cost;
    uint64_t *hash;        /* of all records of a state */
    struct record *record; /* [n][n_live] */
};

/* How a state was reached. */
struct trace {
    int parent;
    struct merak_strategy strategy;
};

struct candidate {
    double cost;
    int index; /* in order of discovery */
    uint64_t hash;
    struct trace trace;
};

/* A state after one more node: all slots, and those that stay live. */
struct next_state {
    struct record *at, *kept;
    uint64_t hash;
};

struct search {
    struct merak_forms forms;
    const struct merak_cut_rule *rule;
    int *last_use; /* by value: the last forward node that reads it, or -1 */
    int *slot;     /* by value: its index in the current slots, or -1 */
    int *live;     /* values of the current layer's records */
    int n_live;
    int *slots; /* live values, then those of the current node */
    int n_slots;
    struct layer now;
    struct trace **trace; /* by node: of its layer's states */
    /* the next layer, while it is collected */
    struct candidate *found;
    struct record *found_record;
    int n_found, room, n_keep;
    int *keep;       /* slots that stay live */
    bool *lasts;     /* by slot: it is one of them */
    bool *may_touch; /* by slot: some form of the current node may change it */
    int *touched;    /* those slots, ascending */
    int n_touched;
    long n_records; /* hashed */
    int *table;     /* hash of records -> candidate, or -1 */
    int n_table;
};

static bool set_has(const uint64_t *set, int number)
{
    return (set[number / 64] >> (number % 64)) & 1;
}

static void set_add(uint64_t *set, int number)
{
    set[number / 64] |= (uint64_t)1 << (number % 64);
}

/* --- the price of one step
 * ---------------------------------------------------- */

static double convert_from_any(struct search *s, int value,
                               const struct record *r, int code)
{
    struct merak_shard_costs *costs = s->forms.costs;
    double best = merak_shard_convert_s(costs, value, (int)r->code, code);

    for (int n = 0; n < merak_shard_layout_numbers(costs, value); n++) {
        int from = merak_shard_numbered_code(costs, value, n);

        if (set_has(r->copies, n))
            best = fmin(best, merak_shard_convert_s(costs, value, from, code));
    }
    return best;
}

static double use_forward(struct search *s, int value, struct record *r,
                          int code)
{
    bool param = s->forms.graph->value[value]->kind == MERAK_VALUE_PARAM;
    int number = merak_shard_layout_number(s->forms.costs, value, code);
    double cost;

    if (r->code == NO_CODE) {
        r->code = (uint64_t)code;
        return merak_shard_param_s(s->forms.costs, value, code);
    }
    if (r->code == (uint64_t)code || set_has(r->copies, number))
        return 0;
    cost = convert_from_any(s, value, r, code);
    set_add(r->copies, number);
    return param ? cost + PARAM_CONVERT_S : cost;
}

static double use_backward(struct search *s, int value, struct record *r,
                           int code)
{
    const struct merak_shape *shape = &s->forms.graph->value[value]->shape;
    int number = merak_shard_layout_number(s->forms.costs, value, code);
    struct merak_layout natural, copy;

    if (r->code == (uint64_t)code || set_has(r->back, number))
        return 0;
    merak_code_layout(s->forms.mesh, (int)r->code, &natural);
    merak_code_layout(s->forms.mesh, code, &copy);
    if (set_has(r->copies, number) &&
        merak_copy_is_kept(s->forms.mesh, shape, &natural, &copy))
        return 0;
    set_add(r->back, number);
    return merak_shard_convert_s(s->forms.costs, value, (int)r->code, code);
}

/* Contributions in one layout are summed, then converted once.  Those to a
 * parameter stay separate, but are converted once per step. */
static double contribute(struct search *s, int value, struct record *r,
                         int code)
{
    bool param = s->forms.graph->value[value]->kind == MERAK_VALUE_PARAM;
    int number = merak_shard_layout_number(s->forms.costs, value, code);
    int dual = merak_code_dual(s->forms.mesh, (int)r->code);
    double cost = merak_shard_convert_s(s->forms.costs, value, code, dual);

    if (param)
        return cost / MERAK_SHARD_MICROBATCHES;
    if (set_has(r->grads, number))
        return 0;
    set_add(r->grads, number);
    return cost;
}

/* Apply the node in this form and return the cost; `at` has a record per slot.
 */
static double take(struct search *s, const struct merak_node *node,
                   const struct merak_form *form, struct record *at)
{
    double cost = form->fixed_s;

    for (int i = 0; i < node->n_in; i++) {
        int v = node->in[i]->id;

        cost += use_forward(s, v, &at[s->slot[v]], form->code[i]);
    }
    for (int i = 0; i < node->n_out; i++)
        at[s->slot[node->out[i]->id]] =
            (struct record){.code = (uint64_t)form->code[node->n_in + i]};
    for (int i = 0; i < form->n_back; i++) {
        int v = form->back[i].value;

        if (s->slot[v] >= 0)
            cost += use_backward(s, v, &at[s->slot[v]], form->back[i].code);
    }
    for (int i = 0; i < form->n_grad; i++) {
        int v = form->grad[i].value;

        cost += contribute(s, v, &at[s->slot[v]], form->grad[i].code);
    }
    return cost;
}

/* --- collecting the next layer
 * -------------------------------------------------- */

/* A state's hash is the sum of its records' hashes, so that a node updates only
 * those of the values it touches, which are few if many values skip over it. */
static uint64_t hash_record(const struct record *record, int value)
{
    const uint64_t *word = (const uint64_t *)record;
    uint64_t h = (uint64_t)value;

    for (size_t i = 0; i < sizeof(*record) / sizeof(*word); i++)
        h = merak_rng_mix(h, word[i]);
    return h;
}

/* Hash of the touched slots that were live before the node. */
static uint64_t hash_before(struct search *s, const struct record *record)
{
    uint64_t h = 0;

    s->n_records += s->n_touched;
    for (int i = 0; i < s->n_touched && s->touched[i] < s->n_live; i++)
        h += hash_record(&record[s->touched[i]], s->slots[s->touched[i]]);
    return h;
}

/* Hash of the touched slots that stay live after it. */
static uint64_t hash_behind(struct search *s, const struct record *record)
{
    uint64_t h = 0;

    s->n_records += s->n_touched;
    for (int i = 0; i < s->n_touched; i++) {
        int slot = s->touched[i];

        if (s->lasts[slot])
            h += hash_record(&record[slot], s->slots[slot]);
    }
    return h;
}

static struct record *found_at(struct search *s, int i)
{
    return s->found_record + (size_t)i * (size_t)s->n_keep;
}

/* The table entry of the candidate with these records, or a free entry. */
static int *find_candidate(struct search *s, const struct next_state *next)
{
    size_t bytes = (size_t)s->n_keep * sizeof(*next->kept);
    uint64_t mask = (uint64_t)s->n_table - 1, at = next->hash & mask;

    while (s->table[at] >= 0 &&
           (s->found[s->table[at]].hash != next->hash ||
            memcmp(found_at(s, s->table[at]), next->kept, bytes) != 0))
        at = (at + 1) & mask;
    return &s->table[at];
}

static void offer(struct search *s, double cost, const struct trace *trace,
                  const struct next_state *next)
{
    int *place = find_candidate(s, next);

    if (*place >= 0) {
        if (cost < s->found[*place].cost) {
            s->found[*place].cost = cost;
            s->found[*place].trace = *trace;
        }
        return;
    }
    assert(s->n_found < s->room);
    *place = s->n_found;
    s->found[s->n_found] =
        (struct candidate){cost, s->n_found, next->hash, *trace};
    memcpy(found_at(s, s->n_found), next->kept,
           (size_t)s->n_keep * sizeof(*next->kept));
    s->n_found++;
}

static int by_cost(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    if (x->cost != y->cost)
        return x->cost < y->cost ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static void release_found(struct search *s)
{
    free(s->found);
    free(s->found_record);
    free(s->table);
    s->found = NULL;
    s->found_record = NULL;
    s->table = NULL;
}

static enum merak_status make_room(struct search *s, int n_forms,
                                   struct merak_error *err)
{
    size_t room = (size_t)s->now.n * (size_t)n_forms;
    size_t records = room * (size_t)(s->n_keep > 0 ? s->n_keep : 1);

    s->room = (int)room;
    s->n_found = 0;
    s->n_table = 16;
    while ((size_t)s->n_table < 2 * room)
        s->n_table *= 2;
    s->found = malloc(room * sizeof(*s->found));
    s->found_record = malloc(records * sizeof(*s->found_record));
    s->table = malloc((size_t)s->n_table * sizeof(*s->table));
    if (s->found == NULL || s->found_record == NULL || s->table == NULL)
        return merak_fail_nomem(err, records * sizeof(*s->found_record));
    for (int i = 0; i < s->n_table; i++)
        s->table[i] = -1;
    return MERAK_OK;
}

/* --- one node
 * ---------------------------------------------------------------------- */

static void add_slot(struct search *s, int value)
{
    if (s->slot[value] >= 0)
        return;
    s->slot[value] = s->n_slots;
    s->slots[s->n_slots++] = value;
}

/* Slots: the live values, then those that this node is the first to touch. */
static void open_slots(struct search *s, const struct merak_node *node)
{
    s->n_slots = 0;
    for (int i = 0; i < s->n_live; i++)
        add_slot(s, s->live[i]);
    for (int i = 0; i < node->n_in; i++)
        add_slot(s, node->in[i]->id);
    for (int i = 0; i < node->n_out; i++)
        add_slot(s, node->out[i]->id);
    s->n_keep = 0;
    for (int i = 0; i < s->n_slots; i++) {
        s->lasts[i] = s->last_use[s->slots[i]] > node->id;
        if (s->lasts[i])
            s->keep[s->n_keep++] = i;
    }
}

/* The slots that take() may change, ascending; all others stay the same. */
static void find_touched(struct search *s, const struct merak_node *node,
                         const struct merak_form *form, int n_forms)
{
    bool *may = s->may_touch;

    memset(may, 0, (size_t)s->n_slots * sizeof(*may));
    for (int i = 0; i < node->n_in; i++)
        may[s->slot[node->in[i]->id]] = true;
    for (int i = 0; i < node->n_out; i++)
        may[s->slot[node->out[i]->id]] = true;
    for (const struct merak_form *f = form; f < form + n_forms; f++) {
        for (int i = 0; i < f->n_back; i++) {
            if (s->slot[f->back[i].value] >= 0)
                may[s->slot[f->back[i].value]] = true;
        }
        for (int i = 0; i < f->n_grad; i++)
            may[s->slot[f->grad[i].value]] = true;
    }
    s->n_touched = 0;
    for (int i = 0; i < s->n_slots; i++) {
        if (may[i])
            s->touched[s->n_touched++] = i;
    }
}

static void close_slots(struct search *s)
{
    for (int i = 0; i < s->n_slots; i++)
        s->slot[s->slots[i]] = -1;
    s->n_live = s->n_keep;
    for (int i = 0; i < s->n_keep; i++)
        s->live[i] = s->slots[s->keep[i]];
}

/* The record of a value not met before: inputs are whole on every rank. */
static struct record first_record(const struct search *s, int value)
{
    bool param = s->forms.graph->value[value]->kind == MERAK_VALUE_PARAM;

    return (struct record){.code = param ? NO_CODE : 0};
}

/* `start` has the state's records, and `rest` its hash without those that the
 * node touches. */
static void expand(struct search *s, const struct merak_node *node,
                   const struct merak_form *form, int state,
                   const struct record *start, uint64_t rest,
                   struct next_state *next)
{
    const struct trace trace = {state, form->strategy};
    double cost;

    memcpy(next->at, start, (size_t)s->n_slots * sizeof(*start));
    cost = s->now.cost[state] + take(s, node, form, next->at) +
           merak_shard_whole_s(s->forms.costs, node, form->code + node->n_in);
    if (isinf(cost))
        return;
    for (int i = 0; i < s->n_keep; i++)
        next->kept[i] = next->at[s->keep[i]];
    next->hash = rest + hash_behind(s, next->at);
    offer(s, cost, &trace, next);
}

static enum merak_status expand_all(struct search *s,
                                    const struct merak_node *node,
                                    const struct merak_form *form, int n_forms,
                                    struct merak_error *err)
{
    size_t n = (size_t)s->n_slots;
    struct record *start = malloc(3 * (n + 1) * sizeof(*start));
    struct next_state next = {.at = start + n, .kept = start + 2 * n};

    if (start == NULL)
        return merak_fail_nomem(err, 3 * (n + 1) * sizeof(*start));
    for (int state = 0; state < s->now.n; state++) {
        uint64_t rest;

        memcpy(start, s->now.record + state * s->now.n_live,
               (size_t)s->now.n_live * sizeof(*start));
        for (int i = s->now.n_live; i < s->n_slots; i++)
            start[i] = first_record(s, s->slots[i]);
        rest = s->now.hash[state] - hash_before(s, start);
        for (int f = 0; f < n_forms; f++)
            expand(s, node, &form[f], state, start, rest, &next);
    }
    free(start);
    return MERAK_OK;
}

/* With records of so many values; cost[] holds the memory of all. */
static enum merak_status layer_alloc(struct layer *layer, size_t width,
                                     struct merak_error *err)
{
    size_t n = (size_t)layer->n;
    const struct merak_array arrays[] = {MERAK_ARRAY(layer->cost, n),
                                         MERAK_ARRAY(layer->hash, n),
                                         MERAK_ARRAY(layer->record, n * width)};

    return MERAK_ARRAYS(arrays, err);
}

/* Keep the cheapest states and how they were reached. */
static enum merak_status next_layer(struct search *s, int node,
                                    struct merak_error *err)
{
    struct layer next = {.n_live = s->n_keep};
    size_t width = (size_t)(s->n_keep > 0 ? s->n_keep : 1);
    struct trace *trace;
    enum merak_status rc;

    qsort(s->found, (size_t)s->n_found, sizeof(*s->found), by_cost);
    next.n = s->n_found < BEAM ? s->n_found : BEAM;
    trace = s->trace[node] = malloc((size_t)next.n * sizeof(*trace));
    if (trace == NULL)
        return merak_fail_nomem(err, (size_t)next.n * sizeof(*trace));
    rc = layer_alloc(&next, width, err);
    if (rc != MERAK_OK)
        return rc;
    for (int i = 0; i < next.n; i++) {
        next.cost[i] = s->found[i].cost;
        next.hash[i] = s->found[i].hash;
        trace[i] = s->found[i].trace;
        memcpy(next.record + i * next.n_live, found_at(s, s->found[i].index),
               (size_t)next.n_live * sizeof(*next.record));
    }
    free(s->now.cost);
    s->now = next;
    return MERAK_OK;
}

static enum merak_status step(struct search *s, const struct merak_node *node,
                              struct merak_error *err)
{
    struct merak_strategy list[MERAK_MAX_STRATEGIES];
    int n = merak_strategy_list(s->forms.graph, s->forms.mesh, node,
                                &s->forms.sig[node->id], s->rule, list);
    struct merak_form *form = malloc((size_t)n * sizeof(*form));
    enum merak_status rc;

    if (form == NULL)
        return merak_fail_nomem(err, (size_t)n * sizeof(*form));
    for (int i = 0; i < n; i++)
        merak_form_fill(&s->forms, node, &list[i], &form[i]);
    open_slots(s, node);
    find_touched(s, node, form, n);
    rc = make_room(s, n, err);
    if (rc == MERAK_OK)
        rc = expand_all(s, node, form, n, err);
    if (rc == MERAK_OK && s->n_found == 0)
        rc = merak_fail(err, MERAK_ERR_UNSUPPORTED,
                        "no layout of the inputs of %s can be reached",
                        node->name);
    if (rc == MERAK_OK)
        rc = next_layer(s, node->id, err);
    close_slots(s);
    release_found(s);
    free(form);
    return rc;
}

/* --- the whole
 * ----------------------------------------------------------------------- */

static enum merak_status search_init(struct search *s, struct merak_error *err)
{
    const struct merak_graph *graph = s->forms.graph;
    size_t n = (size_t)graph->n_values + 1;
    const struct merak_array arrays[] = {
        MERAK_ARRAY(s->last_use, n),
        MERAK_ARRAY(s->slot, n),
        MERAK_ARRAY(s->live, n),
        MERAK_ARRAY(s->slots, n),
        MERAK_ARRAY(s->keep, n),
        MERAK_ARRAY(s->lasts, n),
        MERAK_ARRAY(s->may_touch, n),
        MERAK_ARRAY(s->touched, n),
        MERAK_ARRAY(s->trace, (size_t)graph->n_forward + 1)};
    enum merak_status rc = MERAK_ARRAYS(arrays, err);

    s->now.n = 1;
    if (rc == MERAK_OK)
        rc = layer_alloc(&s->now, 1, err);
    if (rc != MERAK_OK)
        return rc;
    for (size_t i = 0; i < n; i++)
        s->last_use[i] = s->slot[i] = -1;
    for (int i = 0; i < graph->n_forward; i++)
        for (int o = 0; o < graph->node[i]->n_in; o++)
            s->last_use[graph->node[i]->in[o]->id] = i;
    return merak_forms_init(&s->forms, err);
}

static void search_fini(struct search *s)
{
    merak_forms_fini(&s->forms);
    for (int i = 0; i < s->forms.graph->n_forward && s->trace != NULL; i++)
        free(s->trace[i]);
    free(s->last_use);
    free(s->now.cost);
}

enum merak_status merak_shard_search(
    const struct merak_graph *graph, const struct merak_mesh *mesh,
    const struct merak_signature *sig, struct merak_shard_costs *costs,
    const struct merak_cut_rule *rule, struct merak_strategy *strategy,
    struct merak_shard_found *found, struct merak_error *err)
{
    struct search s = {
        .forms = {.graph = graph, .mesh = mesh, .sig = sig, .costs = costs},
        .rule = rule};
    enum merak_status rc = search_init(&s, err);

    for (int i = 0; i < graph->n_forward && rc == MERAK_OK; i++) {
        rc = merak_deadline_is_past(rule->deadline)
                 ? merak_fail(err, MERAK_ERR_TIMEOUT,
                              "no time is left to find layouts")
                 : step(&s, graph->node[i], err);
    }
    if (rc == MERAK_OK)
        rc = merak_shard_costs_check(costs, err);
    if (rc == MERAK_OK) {
        /* layers are sorted: the first state is the cheapest */
        for (int i = graph->n_forward - 1, at = 0; i >= 0; i--) {
            strategy[i] = s.trace[i][at].strategy;
            at = s.trace[i][at].parent;
        }
        found->cost = s.now.cost[0];
    }
    found->records = s.n_records;
    search_fini(&s);
    return rc;
}
