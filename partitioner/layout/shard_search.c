/* SPDX-License-Identifier: Apache-2.0 */
/* shard_search.c - a dynamic programme over the forward nodes
 *
 * After each node a state is what later costs can depend on: for every value
 * still to be used, its layout, the layouts it has been converted to (forward
 * and backward: a copy is made once) and those in which contributions to its
 * gradient are summed before they are converted once.  Of equal states the
 * cheapest is kept.  Transformers have a handful of states at any time, so
 * that the search is exact; the beam bounds graphs that are not so kind.
 * Ties go to what was found first: the result is a function of the graph.
 */
#include "config.h"

#include "partitioner/layout/shard_form.h"

#include "base/error.h"
#include "base/rng.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BEAM 256
#define NO_CODE UINT64_MAX
/* Seconds for converting a parameter in every micro-batch: one that is used
 * twice (tied weights) keeps one layout unless there is no other way. */
#define PARAM_CONVERT_S 1e6

/* A live value.  Words only: records are compared as memory. */
struct record {
    uint64_t code; /* NO_CODE: a parameter before its first use */
    uint64_t copies[2], back[2], grads[2]; /* sets of codes */
};

struct layer {
    int n, n_live;
    double *cost;
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
    struct trace trace;
};

struct search {
    struct merak_forms forms;
    const struct merak_cut_rule *rule;
    int *last_use; /* by value: the last forward node that reads it, or -1 */
    int *slot;     /* by value: in the slots at hand, or -1 */
    int *live;     /* values of the current layer's records */
    int n_live;
    int *slots; /* live values, then those of the node at hand */
    int n_slots;
    struct layer now;
    struct trace **trace; /* by node: of its layer's states */
    /* the next layer, while it is collected */
    struct candidate *found;
    struct record *found_record;
    int n_found, room, n_keep;
    int *keep;  /* slots that live on */
    int *table; /* hash of records -> candidate, or -1 */
    int n_table;
};

static bool set_has(const uint64_t *set, uint64_t code)
{
    return (set[code / 64] >> (code % 64)) & 1;
}

static void set_add(uint64_t *set, uint64_t code)
{
    set[code / 64] |= (uint64_t)1 << (code % 64);
}

/* --- the price of one step
 * ---------------------------------------------------- */

static double convert_from_any(struct search *s, int value,
                               const struct record *r, const uint64_t *more,
                               int code)
{
    struct merak_shard_costs *costs = s->forms.costs;
    double best = merak_shard_convert_s(costs, value, (int)r->code, code);

    for (int c = 0; c < MERAK_CODES; c++) {
        if (set_has(r->copies, (uint64_t)c) ||
            (more != NULL && set_has(more, (uint64_t)c)))
            best = fmin(best, merak_shard_convert_s(costs, value, c, code));
    }
    return best;
}

static double use_forward(struct search *s, int value, struct record *r,
                          int code)
{
    bool param = s->forms.graph->value[value]->kind == MERAK_VALUE_PARAM;
    double cost;

    if (r->code == NO_CODE) {
        r->code = (uint64_t)code;
        return merak_shard_param_s(s->forms.costs, value, code);
    }
    if (r->code == (uint64_t)code || set_has(r->copies, (uint64_t)code))
        return 0;
    cost = convert_from_any(s, value, r, NULL, code);
    set_add(r->copies, (uint64_t)code);
    return param ? cost + PARAM_CONVERT_S : cost;
}

static double use_backward(struct search *s, int value, struct record *r,
                           int code)
{
    const struct merak_shape *shape = &s->forms.graph->value[value]->shape;
    struct merak_layout natural, copy;

    if (r->code == (uint64_t)code || set_has(r->back, (uint64_t)code))
        return 0;
    merak_code_layout(s->forms.mesh, (int)r->code, &natural);
    merak_code_layout(s->forms.mesh, code, &copy);
    if (set_has(r->copies, (uint64_t)code) &&
        merak_copy_is_kept(s->forms.mesh, shape, &natural, &copy))
        return 0;
    set_add(r->back, (uint64_t)code);
    return merak_shard_convert_s(s->forms.costs, value, (int)r->code, code);
}

/* Contributions in one layout are summed, then converted once.  Those to a
 * parameter stay apart, but are converted once a step. */
static double contribute(struct search *s, int value, struct record *r,
                         int code)
{
    bool param = s->forms.graph->value[value]->kind == MERAK_VALUE_PARAM;
    int dual = merak_code_dual(s->forms.mesh, (int)r->code);
    double cost = merak_shard_convert_s(s->forms.costs, value, code, dual);

    if (param)
        return cost / MERAK_SHARD_MICROBATCHES;
    if (set_has(r->grads, (uint64_t)code))
        return 0;
    set_add(r->grads, (uint64_t)code);
    return cost;
}

/* Take the node in this form; `at` holds a record per slot. */
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

/* The loss and what is left for the next pass are wanted whole. */
static bool is_whole(const struct merak_graph *graph,
                     const struct merak_value *value)
{
    bool whole = value == graph->loss;

    for (int i = 0; i < graph->n_recycling; i++)
        whole = whole || value == graph->recycling[i].out;
    return whole;
}

static double whole_cost(struct search *s, const struct merak_node *node,
                         const struct merak_form *form)
{
    double cost = 0;

    for (int i = 0; i < node->n_out; i++)
        if (is_whole(s->forms.graph, node->out[i]))
            cost += merak_shard_convert_s(s->forms.costs, node->out[i]->id,
                                          form->code[node->n_in + i], 0);
    return cost;
}

/* --- collecting the next layer
 * -------------------------------------------------- */

static uint64_t hash_records(const struct record *record, int n)
{
    const uint64_t *word = (const uint64_t *)record;
    uint64_t h = 0;

    for (size_t i = 0; i < (size_t)n * sizeof(*record) / sizeof(*word); i++)
        h = merak_rng_mix(h, word[i]);
    return h;
}

static struct record *found_at(struct search *s, int i)
{
    return s->found_record + (size_t)i * (size_t)s->n_keep;
}

/* The place in the table of the candidate with these records, or of none. */
static int *find_candidate(struct search *s, const struct record *record)
{
    size_t bytes = (size_t)s->n_keep * sizeof(*record);
    uint64_t mask = (uint64_t)s->n_table - 1;
    uint64_t h = hash_records(record, s->n_keep) & mask;

    while (s->table[h] >= 0 &&
           memcmp(found_at(s, s->table[h]), record, bytes) != 0)
        h = (h + 1) & mask;
    return &s->table[h];
}

static void offer(struct search *s, double cost, const struct trace *trace,
                  const struct record *record)
{
    int *place = find_candidate(s, record);

    if (*place >= 0) {
        if (cost < s->found[*place].cost) {
            s->found[*place].cost = cost;
            s->found[*place].trace = *trace;
        }
        return;
    }
    assert(s->n_found < s->room);
    *place = s->n_found;
    s->found[s->n_found] = (struct candidate){cost, s->n_found, *trace};
    memcpy(found_at(s, s->n_found), record,
           (size_t)s->n_keep * sizeof(*record));
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

/* Slots: what lives, then what this node touches first. */
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
    for (int i = 0; i < s->n_slots; i++)
        if (s->last_use[s->slots[i]] > node->id)
            s->keep[s->n_keep++] = i;
}

static void close_slots(struct search *s)
{
    for (int i = 0; i < s->n_slots; i++)
        s->slot[s->slots[i]] = -1;
    s->n_live = s->n_keep;
    for (int i = 0; i < s->n_keep; i++)
        s->live[i] = s->slots[s->keep[i]];
}

/* A value that the search has not met: inputs are whole everywhere. */
static struct record first_record(const struct search *s, int value)
{
    bool param = s->forms.graph->value[value]->kind == MERAK_VALUE_PARAM;

    return (struct record){.code = param ? NO_CODE : 0};
}

static void expand(struct search *s, const struct merak_node *node,
                   const struct merak_form *form, int state,
                   struct record *start, struct record *at, struct record *kept)
{
    const struct trace trace = {state, form->strategy};
    double cost;

    memcpy(at, start, (size_t)s->n_slots * sizeof(*at));
    cost = s->now.cost[state] + take(s, node, form, at) +
           whole_cost(s, node, form);
    if (isinf(cost))
        return;
    for (int i = 0; i < s->n_keep; i++)
        kept[i] = at[s->keep[i]];
    offer(s, cost, &trace, kept);
}

static enum merak_status expand_all(struct search *s,
                                    const struct merak_node *node,
                                    const struct merak_form *form, int n_forms,
                                    struct merak_error *err)
{
    size_t n = (size_t)s->n_slots;
    struct record *scratch = malloc(3 * (n + 1) * sizeof(*scratch));

    if (scratch == NULL)
        return merak_fail_nomem(err, 3 * (n + 1) * sizeof(*scratch));
    for (int state = 0; state < s->now.n; state++) {
        memcpy(scratch, s->now.record + state * s->now.n_live,
               (size_t)s->now.n_live * sizeof(*scratch));
        for (int i = s->now.n_live; i < s->n_slots; i++)
            scratch[i] = first_record(s, s->slots[i]);
        for (int f = 0; f < n_forms; f++)
            expand(s, node, &form[f], state, scratch, scratch + n,
                   scratch + 2 * n);
    }
    free(scratch);
    return MERAK_OK;
}

static void layer_free(struct layer *layer)
{
    free(layer->cost);
    free(layer->record);
}

/* Keep the cheapest and remember how they were reached. */
static enum merak_status next_layer(struct search *s, int node,
                                    struct merak_error *err)
{
    struct layer next = {.n_live = s->n_keep};
    size_t width = (size_t)(s->n_keep > 0 ? s->n_keep : 1), n;
    struct trace *trace;

    qsort(s->found, (size_t)s->n_found, sizeof(*s->found), by_cost);
    next.n = s->n_found < BEAM ? s->n_found : BEAM;
    n = (size_t)next.n;
    next.cost = malloc(n * sizeof(*next.cost));
    next.record = calloc(n * width, sizeof(*next.record));
    trace = s->trace[node] = malloc(n * sizeof(*trace));
    if (next.cost == NULL || next.record == NULL || trace == NULL) {
        layer_free(&next);
        return merak_fail_nomem(err, n * width * sizeof(*next.record));
    }
    for (int i = 0; i < next.n; i++) {
        next.cost[i] = s->found[i].cost;
        trace[i] = s->found[i].trace;
        memcpy(next.record + i * next.n_live, found_at(s, s->found[i].index),
               (size_t)next.n_live * sizeof(*next.record));
    }
    layer_free(&s->now);
    s->now = next;
    return MERAK_OK;
}

static enum merak_status step(struct search *s, const struct merak_node *node,
                              struct merak_error *err)
{
    struct merak_strategy list[MERAK_MAX_STRATEGIES];
    int n = merak_strategy_list(s->forms.mesh, node, &s->forms.sig[node->id],
                                s->rule, list);
    struct merak_form *form = malloc((size_t)n * sizeof(*form));
    enum merak_status rc;

    if (form == NULL)
        return merak_fail_nomem(err, (size_t)n * sizeof(*form));
    for (int i = 0; i < n; i++)
        merak_form_fill(&s->forms, node, &list[i], &form[i]);
    open_slots(s, node);
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

    s->last_use = malloc(n * sizeof(int));
    s->slot = malloc(n * sizeof(int));
    s->live = malloc(n * sizeof(int));
    s->slots = malloc(n * sizeof(int));
    s->keep = malloc(n * sizeof(int));
    s->trace = calloc((size_t)graph->n_forward + 1, sizeof(*s->trace));
    s->now = (struct layer){.n = 1,
                            .cost = calloc(1, sizeof(double)),
                            .record = calloc(1, sizeof(struct record))};
    if (s->last_use == NULL || s->slot == NULL || s->live == NULL ||
        s->slots == NULL || s->keep == NULL || s->trace == NULL ||
        s->now.cost == NULL || s->now.record == NULL)
        return merak_fail_nomem(err, 5 * n * sizeof(int));
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
    free(s->trace);
    free(s->last_use);
    free(s->slot);
    free(s->live);
    free(s->slots);
    free(s->keep);
    layer_free(&s->now);
}

enum merak_status merak_shard_search(const struct merak_graph *graph,
                                     const struct merak_mesh *mesh,
                                     const struct merak_signature *sig,
                                     struct merak_shard_costs *costs,
                                     const struct merak_cut_rule *rule,
                                     struct merak_strategy *strategy,
                                     double *cost_p, struct merak_error *err)
{
    struct search s = {
        .forms = {.graph = graph, .mesh = mesh, .sig = sig, .costs = costs},
        .rule = rule};
    enum merak_status rc = search_init(&s, err);

    for (int i = 0; i < graph->n_forward && rc == MERAK_OK; i++)
        rc = step(&s, graph->node[i], err);
    if (rc == MERAK_OK) {
        /* layers are sorted: the first state is the cheapest */
        for (int i = graph->n_forward - 1, at = 0; i >= 0; i--) {
            strategy[i] = s.trace[i][at].strategy;
            at = s.trace[i][at].parent;
        }
        *cost_p = s.now.cost[0];
    }
    search_fini(&s);
    return rc;
}
