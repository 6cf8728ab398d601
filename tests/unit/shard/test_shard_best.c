/* SPDX-License-Identifier: Apache-2.0 */
/* test_shard_best.c - the search for layouts against all there are
 *
 * Small random models, on one tensor axis and two, with links and memory of
 * random speeds.  Every way to cut all their nodes is walked, with books of
 * its own of what is converted, and none may be cheaper than what the dynamic
 * programme finds.  A walk stops where it has become dearer than that: no cost
 * is negative.  What a node costs by itself is layout/shard_cost.c's.
 */
#include "config.h"

#include "unit/near.h"

#include "partitioner/layout/shard_form.h"

#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

enum { MODELS = 600, MAX_NODES = 24, MAX_VALUES = 160, MAX_COPIES = 12 };

/* --- models ----------------------------------------------------------------
 */

static uint32_t draw(uint64_t *seed, uint32_t n)
{
    *seed = merak_rng_mix(*seed, 0x5eed);
    return (uint32_t)(*seed >> 33) % n;
}

enum { B = 4, T = 8, C = 8, V = 16, MAX_OPS = 8 };

static struct merak_value *weight(struct merak_model *m, int i,
                                  const char *name, size_t out, size_t in)
{
    return MERAK_PARAM(m, merak_name(m, "%s.%d", name, i), MERAK_NORMAL(0.1f),
                       out, in);
}

/* One op on a value; two values of width C are at hand. */
static struct merak_value *apply(struct merak_model *m, uint64_t *seed, int i,
                                 struct merak_value *x, struct merak_value *y,
                                 struct merak_value **tied)
{
    struct merak_value *h;

    switch (draw(seed, 7)) {
    case 0: /* up, and down again */
        h = merak_linear(m, x, weight(m, i, "up", 4 * C, C), NULL, 1);
        return merak_linear(m, h, weight(m, i, "down", C, 4 * C), NULL, 1);
    case 1:
        return merak_linear(m, x, weight(m, i, "w", C, C), NULL, 1);
    case 2:
        return merak_gelu(m, x, true);
    case 3:
        return merak_add(m, x, y);
    case 4:
        return merak_rmsnorm(
            m, x, MERAK_PARAM(m, merak_name(m, "g.%d", i), MERAK_ONES, C),
            1e-5f);
    case 5:
        return merak_swiglu(m, x, y);
    default: /* with a weight that others use */
        if (*tied == NULL)
            *tied = weight(m, 0, "tied", C, C);
        return merak_linear(m, x, *tied, NULL, 1);
    }
}

static struct merak_model *random_model(uint64_t *seed, int ops,
                                        struct merak_graph **graph_p)
{
    const struct merak_model_options opt = {
        .micro_batch = B, .seq = T, .dtype = MERAK_F32};
    struct merak_value *table, *tied = NULL, *at[MAX_OPS + 1];
    struct merak_model *m;
    struct merak_error err = {0};

    assert_int_equal(merak_model_create(&opt, &m, &err), MERAK_OK);
    table = weight(m, 0, "table", V, C);
    at[0] = merak_embedding(m, merak_tokens(m), table);
    for (int i = 0; i < ops; i++) {
        struct merak_value *old = at[draw(seed, (uint32_t)i + 1)];

        at[i + 1] = apply(m, seed, i, at[i], old, &tied);
    }
    merak_cross_entropy(m, merak_linear(m, at[ops], table, NULL, 1),
                        merak_targets(m));
    if (merak_model_graph(m, graph_p, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return m;
}

/* --- all ways to cut ---------------------------------------------------------
 */

/* Layouts, as codes. */
struct set {
    int n, code[MAX_COPIES];
};

/* What has been decided of a value. */
struct book {
    int code; /* -1: a parameter that nothing has read */
    struct set copies, back, grads;
};

struct walk {
    struct merak_forms forms;
    struct merak_form *form[MAX_NODES];
    int n_forms[MAX_NODES];
    double best, limit;
    long visited;
};

static bool has(const struct set *set, int code)
{
    for (int i = 0; i < set->n; i++) {
        if (set->code[i] == code)
            return true;
    }
    return false;
}

/* False if it was there. */
static bool add(struct set *set, int code)
{
    if (has(set, code))
        return false;
    assert_true(set->n < MAX_COPIES);
    set->code[set->n++] = code;
    return true;
}

static bool is_param(const struct walk *w, int value)
{
    return w->forms.graph->value[value]->kind == MERAK_VALUE_PARAM;
}

/* A copy in each layout that is read, made once, of the nearest there is. */
static double forward(struct walk *w, struct book *b, int value, int code)
{
    double least;

    if (b->code < 0) {
        b->code = code;
        return merak_shard_param_s(w->forms.costs, value, code);
    }
    if (b->code == code || has(&b->copies, code))
        return 0;
    least = merak_shard_convert_s(w->forms.costs, value, b->code, code);
    for (int i = 0; i < b->copies.n; i++)
        least = fmin(least, merak_shard_convert_s(w->forms.costs, value,
                                                  b->copies.code[i], code));
    add(&b->copies, code);
    return least + (is_param(w, value) ? 1e6 : 0);
}

/* Backward a copy is made anew, unless it was no larger than its source. */
static double backward(struct walk *w, struct book *b, int value, int code)
{
    struct merak_layout natural, copy;

    if (b->code == code || has(&b->back, code))
        return 0;
    merak_code_layout(w->forms.mesh, b->code, &natural);
    merak_code_layout(w->forms.mesh, code, &copy);
    if (has(&b->copies, code) &&
        merak_copy_is_kept(w->forms.mesh, &w->forms.graph->value[value]->shape,
                           &natural, &copy))
        return 0;
    add(&b->back, code);
    return merak_shard_convert_s(w->forms.costs, value, b->code, code);
}

/* Gradients are summed where they are alike, and then brought to the value's
 * own layout; a parameter's once a step, each use's by itself. */
static double gradient(struct walk *w, struct book *b, int value, int code)
{
    double cost = merak_shard_convert_s(
        w->forms.costs, value, code, merak_code_dual(w->forms.mesh, b->code));

    if (is_param(w, value))
        return cost / MERAK_SHARD_MICROBATCHES;
    return add(&b->grads, code) ? cost : 0;
}

static double take(struct walk *w, const struct merak_node *node,
                   const struct merak_form *f, struct book *book)
{
    double cost = f->fixed_s;

    for (int i = 0; i < node->n_in; i++)
        cost += forward(w, &book[node->in[i]->id], node->in[i]->id, f->code[i]);
    for (int i = 0; i < node->n_out; i++) {
        int v = node->out[i]->id, code = f->code[node->n_in + i];

        book[v] = (struct book){.code = code};
        if (node->out[i] == w->forms.graph->loss) /* wanted whole */
            cost += merak_shard_convert_s(w->forms.costs, v, code, 0);
    }
    for (int i = 0; i < f->n_back; i++)
        cost += backward(w, &book[f->back[i].value], f->back[i].value,
                         f->back[i].code);
    for (int i = 0; i < f->n_grad; i++)
        cost += gradient(w, &book[f->grad[i].value], f->grad[i].value,
                         f->grad[i].code);
    return cost;
}

static void walk_from(struct walk *w, int n, const struct book *book,
                      double cost)
{
    struct book next[MAX_VALUES];

    w->visited++;
    if (n == w->forms.graph->n_forward) {
        w->best = fmin(w->best, cost);
        return;
    }
    for (int i = 0; i < w->n_forms[n]; i++) {
        double with;

        memcpy(next, book, (size_t)w->forms.graph->n_values * sizeof(*next));
        with = cost + take(w, w->forms.graph->node[n], &w->form[n][i], next);
        if (with <= w->limit)
            walk_from(w, n + 1, next, with);
    }
}

static void list_forms(struct walk *w, const struct merak_cut_rule *rule)
{
    struct merak_strategy list[MERAK_MAX_STRATEGIES];

    for (int n = 0; n < w->forms.graph->n_forward; n++) {
        const struct merak_node *node = w->forms.graph->node[n];

        w->n_forms[n] = merak_strategy_list(w->forms.graph, w->forms.mesh, node,
                                            &w->forms.sig[n], rule, list);
        w->form[n] = malloc((size_t)w->n_forms[n] * sizeof(*w->form[n]));
        assert_non_null(w->form[n]);
        for (int i = 0; i < w->n_forms[n]; i++)
            merak_form_fill(&w->forms, node, &list[i], &w->form[n][i]);
    }
}

/* The least of all ways that are not above `limit`; INFINITY: none. */
static double least(struct walk *w, const struct merak_cut_rule *rule,
                    double limit)
{
    const struct merak_graph *graph = w->forms.graph;
    struct book book[MAX_VALUES] = {{0}};

    assert_true(graph->n_values <= MAX_VALUES);
    assert_true(graph->n_forward <= MAX_NODES);
    assert_int_equal(merak_forms_init(&w->forms, NULL), MERAK_OK);
    for (int v = 0; v < graph->n_values; v++)
        book[v].code = is_param(w, v) ? -1 : 0; /* inputs are whole */
    list_forms(w, rule);
    w->best = INFINITY;
    w->limit = limit;
    walk_from(w, 0, book, 0);
    for (int n = 0; n < graph->n_forward; n++)
        free(w->form[n]);
    merak_forms_fini(&w->forms);
    return w->best;
}

/* --- the test ---------------------------------------------------------------
 */

struct tally {
    long visited, cut; /* ways begun; models with something cut */
};

static bool cuts_any(const struct merak_mesh *mesh,
                     const struct merak_strategy *strategy, int n)
{
    for (int i = 0; i < n; i++) {
        for (int x = 0; x < mesh->n_axes; x++) {
            if (strategy[i].cut[x] >= 0)
                return true;
        }
    }
    return false;
}

static void check_model(uint64_t seed, struct tally *tally)
{
    const uint64_t id = seed;
    const int axes = draw(&seed, 4) == 0 ? 2 : 1;
    struct merak_mesh mesh = {.n_axes = axes};
    struct merak_cost_model cost = {
        .bytes_per_s = 1e11, .flops_per_s = 1e11 * pow(10, draw(&seed, 2))};
    struct merak_shard_options opt = {.cost = &cost};
    struct merak_strategy strategy[MAX_NODES];
    struct merak_shard_found found = {0};
    struct merak_signature *sig = NULL;
    struct merak_shard_costs *costs = NULL;
    struct merak_cut_rule rule;
    uint8_t samples[MAX_NODES];
    struct merak_graph *graph;
    struct merak_model *model;
    struct walk w = {.visited = 0};
    double best;

    memset(samples, MERAK_SAMPLES_MAY, sizeof(samples));
    cost.links.level[0].bytes_per_s = 1e9 * pow(10, draw(&seed, 4));
    cost.links.level[0].latency_s = 1e-8 * pow(10, draw(&seed, 3));
    for (int x = 0; x < axes; x++)
        mesh.axis[x].size = axes == 2 || draw(&seed, 2) ? 2 : 4;
    model = random_model(
        &seed, 1 + (int)draw(&seed, axes == 2 ? MAX_OPS / 2 : MAX_OPS), &graph);
    rule = (struct merak_cut_rule){.t = (enum merak_t_rule)draw(&seed, 3),
                                   .samples = draw(&seed, 2) ? NULL : samples};
    assert_int_equal(merak_signatures(graph, &sig, NULL), MERAK_OK);
    assert_int_equal(merak_shard_costs_create(graph, &mesh, &opt, &costs, NULL),
                     MERAK_OK);
    assert_true(graph->n_forward <= MAX_NODES);
    assert_int_equal(merak_shard_search(graph, &mesh, sig, costs, &rule,
                                        strategy, &found, NULL),
                     MERAK_OK);
    w.forms = (struct merak_forms){
        .graph = graph, .mesh = &mesh, .sig = sig, .costs = costs};
    best = least(&w, &rule, found.cost * (1 + 1e-12));
    if (!(fabs(best - found.cost) <= 1e-12 * found.cost))
        fail_msg("model %d: found %.17g s, of all ways the least is %.17g",
                 (int)id, found.cost, best);
    tally->visited += w.visited;
    tally->cut += cuts_any(&mesh, strategy, graph->n_forward);
    merak_shard_costs_destroy(costs);
    free(sig);
    merak_model_destroy(model);
}

static void the_layout_search_finds_the_cheapest(void **state)
{
    struct tally tally = {0};

    (void)state;
    for (uint64_t i = 0; i < MODELS; i++)
        check_model(i, &tally);
    print_message("# %d models, %ld with something cut; %ld ways begun\n",
                  MODELS, tally.cut, tally.visited);
    assert_true(tally.cut > MODELS / 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_layout_search_finds_the_cheapest),
    };

    return cmocka_run_group_tests_name("shard_best", tests, NULL, NULL);
}
