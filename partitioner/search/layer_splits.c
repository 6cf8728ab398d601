/* SPDX-License-Identifier: Apache-2.0 */
/* layer_splits.c - candidates whose tensor ranks split samples in some layers,
 * weights in the others
 *
 * A layer cut by samples exchanges nothing but gradients of its weights, once a
 * step, and holds all of them; one cut by weights exchanges activations in
 * every micro-batch.  Where memory does not hold all layers' weights whole,
 * some of them may be.  Which ones follows from a weight of memory, in seconds
 * a byte: with a low one all layers are cut by samples, with a high one none,
 * and each changes over at the seconds of its exchanges for the bytes of its
 * parameters. So layers are ordered by that quotient once, and a sweep over the
 * weight is one over how many of the first are cut by samples: each is rated as
 * any other table, with all memory that it takes.  Of equal layers those at
 * both ends come first: there ranks have samples of their own already.
 *
 * Tried are the tensor degrees and pipelines of the best plans found without,
 * with micro-batches of a sample for each tensor rank, and of two where one
 * helped; and only if layers exchange less when they are cut by samples.
 * Source: Miao et al. 2022 (arXiv:2211.13878), whose dynamic program over
 * layers has memory as a dimension instead.
 */
#include "config.h"

#include "partitioner/search/search_impl.h"

#include "base/error.h"
#include "partitioner/graph/layer_names.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#define BEST 2        /* pairs of a tensor degree and stages */
#define MOST_TABLES 7 /* of a sweep */

/* --- the order of layers ---------------------------------------------------
 */

struct layer {
    int number;
    double words;    /* that a rank sends for it */
    double elements; /* of its parameters */
    double from_end; /* layers between it and the nearer end */
    int level; /* of its weight, in quarters of the highest: those at the ends
                  differ a little from others of their kind */
};

/* Seconds for a byte, but for factors that all layers have in common. */
static double weight_of(const struct layer *layer)
{
    return layer->elements > 0 ? layer->words / layer->elements : 0;
}

static int by_weight(const void *a, const void *b)
{
    const struct layer *x = a, *y = b;

    if (x->level != y->level)
        return x->level > y->level ? -1 : 1;
    if (x->from_end != y->from_end)
        return x->from_end < y->from_end ? -1 : 1;
    return y->number - x->number;
}

static void set_levels(struct layer *layer, int n)
{
    double most = 0;

    for (int k = 0; k < n; k++)
        most = fmax(most, weight_of(&layer[k]));
    for (int k = 0; k < n && most > 0; k++)
        layer[k].level = (int)(4 * weight_of(&layer[k]) / most + 0.5);
}

static void count_words(const struct merak_sharded *sharded, const int *of_node,
                        struct layer *layer)
{
    const struct merak_graph *graph = sharded->graph;

    for (int i = 0; i < graph->n_nodes; i++) {
        const struct merak_node *node = graph->node[i];
        int k = of_node[node->phase == MERAK_PHASE_F ? i : node->forward];

        if (k >= 0)
            layer[k].words += sharded->hop[i].words;
    }
    for (int v = 0; v < graph->n_values; v++) {
        const struct merak_value *value = graph->value[v];
        int k = value->kind == MERAK_VALUE_PARAM
                    ? merak_layer_of_name(value->name)
                    : -1;

        if (k >= 0)
            layer[k].elements += (double)merak_shape_count(&value->shape);
    }
}

/* The layers of a model, all cut by weights, those first that are worth most to
 * be cut by samples; NULL if there are too few or too many, or the search has
 * failed.  The caller frees them. */
static struct layer *order_layers(struct merak_search *s,
                                  const struct merak_plan *key, int *n_p)
{
    const struct merak_sharded *sharded = NULL;
    struct layer *layer = NULL;
    int *of_node = NULL, n;

    if (merak_search_shard(s, key, &sharded, NULL) != MERAK_OK)
        return NULL; /* this micro-batch is not for this tp */
    n = *n_p = merak_graph_layers(sharded->graph);
    if (n < 2 || n > MERAK_MAX_SPLIT)
        return NULL;
    layer = calloc((size_t)n, sizeof(*layer));
    of_node = calloc((size_t)sharded->graph->n_forward + 1, sizeof(*of_node));
    if (layer == NULL || of_node == NULL) {
        s->rc = merak_fail_nomem(s->err, (size_t)n * sizeof(*layer));
        free(layer);
        free(of_node);
        return NULL;
    }
    for (int k = 0; k < n; k++)
        layer[k] = (struct layer){.number = k,
                                  .from_end = k < n - 1 - k ? k : n - 1 - k};
    merak_layers_mark(sharded->graph, of_node);
    count_words(sharded, of_node, layer);
    set_levels(layer, n);
    free(of_node);
    qsort(layer, (size_t)n, sizeof(*layer), by_weight);
    return layer;
}

/* Does a layer exchange less if it is cut by samples: sums of its gradients, in
 * f32, in place of activations in every micro-batch? */
static bool gains(const struct merak_search *s, const struct merak_plan *key,
                  int pp, const struct layer *layer)
{
    double tp = key->tp, dp = (double)s->spread / key->tp / pp;
    double m = (double)s->in->global_batch / dp / (double)key->micro_batch;
    double item = (double)merak_dtype_bytes(s->in->dtype);

    return m * layer->words * item > 2 * (tp - 1) / tp * layer->elements * 4;
}

/* --- the sweep -------------------------------------------------------------
 */

struct sweep {
    struct merak_search *s;
    struct merak_plan key;
    int pp;
    const struct layer *layer;
    int n_layers, n_tables;
};

/* The shortest step with the layers of w->key cut by samples; DBL_MAX if none
 * fits. */
static double rate_key(struct sweep *w)
{
    struct merak_table *table[2];
    int first = w->s->n_cands;

    merak_search_tables(w->s, &w->key, table);
    w->n_tables++;
    for (int i = 0; i < 2; i++) {
        struct merak_candidate cand;

        if (table[i] == NULL ||
            !merak_search_start(w->s, table[i], w->pp, &cand))
            continue;
        merak_search_bound(w->s, &cand);
        if (!merak_search_is_slow(w->s, merak_search_lower_bound(&cand)))
            merak_search_rate_chunks(w->s, &cand);
    }
    return merak_search_shortest(w->s, first);
}

/* With the last n layers cut by samples: there are fewer places between unlike
 * layers than if they are at both ends, which takes less memory. */
static double rate_last(struct sweep *w, int n)
{
    w->key.split = (struct merak_layer_split){{0}};
    for (int k = 0; k < n; k++)
        merak_split_add(&w->key.split, w->n_layers - 1 - k);
    return rate_key(w);
}

/* With the first n of their order. */
static double rate_first(struct sweep *w, int n)
{
    double step_s;

    if (n < 1 || n >= w->n_layers)
        return DBL_MAX;
    w->key.split = (struct merak_layer_split){{0}};
    for (int k = 0; k < n; k++)
        merak_split_add(&w->key.split, w->layer[k].number);
    step_s = rate_key(w);
    return step_s < DBL_MAX || n == 1 ? step_s : rate_last(w, n);
}

/* From half of the layers on, in steps that are halved. */
static void sweep(struct sweep *w)
{
    int at = w->n_layers / 2, step = (w->n_layers + 2) / 4;
    double best = rate_first(w, at);

    for (; step > 0 && merak_search_goes_on(w->s); step /= 2) {
        double fewer, more;

        if (w->n_tables + 2 > MOST_TABLES)
            break;
        fewer = rate_first(w, at - step);
        more = rate_first(w, at + step);
        if (more < best || fewer < best || best == DBL_MAX) {
            at += more < fewer ? step : -step;
            best = fmin(more, fewer);
        }
    }
    /* what fits by estimate may not fit as built */
    if (best < DBL_MAX && at > 1)
        rate_last(w, at);
}

static void rate_splits(struct merak_search *s,
                        const struct merak_candidate *like, size_t b)
{
    struct sweep w = {.s = s, .key = like->table->plan, .pp = like->plan.pp};
    struct layer *layer;

    w.key.micro_batch = b;
    if (!merak_search_is_size(s, w.key.tp, b))
        return;
    w.layer = layer = order_layers(s, &w.key, &w.n_layers);
    if (layer != NULL && gains(s, &w.key, w.pp, layer))
        sweep(&w);
    free(layer);
}

/* --- the best plans --------------------------------------------------------
 */

/* The best whose degrees are none of these; NULL: there is no other. */
static const struct merak_candidate *
next_best(const struct merak_search *s, const struct merak_candidate *before,
          int n)
{
    const struct merak_candidate *best = NULL;

    for (int i = 0; i < s->n_cands; i++) {
        const struct merak_candidate *c = &s->cand[i];
        bool again = c->plan.tp == 1 || c->plan.ep > 1 || c->plan.cp > 1 ||
                     c->plan.tp_batch_percent > 0 || c->table->n_shared > 0 ||
                     c->table->slices > 1;

        for (int k = 0; k < n; k++)
            again = again || (before[k].plan.tp == c->plan.tp &&
                              before[k].plan.pp == c->plan.pp);
        if (!again && (best == NULL || c->rated_s < best->rated_s))
            best = c;
    }
    return best;
}

void merak_search_rate_splits(struct merak_search *s)
{
    struct merak_candidate best[BEST];
    int n = 0;

    if (s->in->pin.given[MERAK_CHOICE_TP_BATCH] ||
        s->in->pin.given[MERAK_CHOICE_SPLIT])
        return;
    for (; n < BEST; n++) {
        const struct merak_candidate *c = next_best(s, best, n);

        if (c == NULL)
            break;
        best[n] = *c;
    }
    for (int i = 0; i < n && merak_search_goes_on(s); i++) {
        double before = s->best_s;

        rate_splits(s, &best[i], (size_t)best[i].plan.tp);
        if (s->best_s < before)
            rate_splits(s, &best[i], 2 * (size_t)best[i].plan.tp);
    }
}
