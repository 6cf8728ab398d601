/* SPDX-License-Identifier: Apache-2.0 */
/* pairs.c - in which order the two micro-batches of a sub-pipeline run
 *
 * Programs are in order on every queue, so what an exchange overlaps with is
 * decided here: after it in the program, the other half must have as much to
 * compute.  Halves that alternate at exchanges have that if the kernels between
 * two exchanges take long.  Sequence parallelism has pairs of exchanges with
 * almost nothing between them, a reduce-scatter, a norm and an all-gather: the
 * norm must run in the middle of the other half's kernels, or the all-gather
 * has nothing to overlap with.
 *
 * So two queues are played, kernel by kernel: the half that can start its next
 * kernel sooner does, and of several that can, the one that is nearest to its
 * next exchange.  How slow exchanges are relative to kernels is not known:
 * several guesses give several orders, each is played at several ratios, and
 * the one that ends first on average is taken.  It does not depend on links,
 * and kernels have their built-in costs, so that all ranks agree.
 */
#include "config.h"

#include "partitioner/program/pairs.h"

#include "base/arrays.h"
#include "base/error.h"
#include "partitioner/program/program.h"

#include <stdlib.h>
#include <string.h>

enum { STREAMS = 4 }; /* two halves of the list, two of the lead */

/* The time of all exchanges of a list relative to all of its kernels: orders
 * are found for the guesses, and the best of them by the judges.  Faster
 * exchanges than these overlap, too, and much slower ones cannot. */
static const double guesses[] = {0.25, 0.5, 1.0, 2.0};
static const double judges[] = {0.3, 0.4, 0.5, 0.6};
enum {
    N_GUESSES = sizeof(guesses) / sizeof(*guesses),
    N_JUDGES = sizeof(judges) / sizeof(*judges)
};

/* A lead ends before a row of kernels that takes more than this fraction of the
 * longest row between two exchanges. */
#define SMALL 0.25

struct item {
    const struct merak_node *node;
    double seconds; /* of an exchange: at guess 1 */
    double left;    /* kernels from here to the next exchange */
    bool exchange;
};

struct pair {
    const struct merak_sharded *sharded;
    struct item *item; /* the list's, then the lead's */
    int n, n_lead;
    int *place;      /* by node: in the list, or -1 */
    double window_s; /* seconds of kernels left when the lead may begin */
    /* While it is played: */
    double *end[STREAMS];       /* by item */
    int next[STREAMS];          /* item */
    double guess, left_s;       /* kernels of the list still to come */
    double compute, collective; /* when queues are free */
};

/* --- durations ------------------------------------------------------------ */

/* Of the first tensor rank's shard. */
static struct merak_shape local_shape(const struct merak_sharded *sharded,
                                      const struct merak_value *value)
{
    const int first[MERAK_MAX_AXES] = {0};
    struct merak_box box;

    merak_layout_box(&sharded->mesh, &sharded->layout[value->id], &value->shape,
                     first, &box);
    return merak_box_shape(&box);
}

static double kernel_seconds(const struct merak_sharded *sharded,
                             const struct merak_node *node)
{
    struct merak_infer inf = {.attrs = &node->attrs,
                              .n_in = node->n_in,
                              .n_out = node->n_out,
                              .pieces =
                                  merak_node_pieces(sharded->graph, node)};
    struct merak_kernel_size size = {0};
    struct merak_cost cost = {0};

    for (int i = 0; i < node->n_in + node->n_out; i++) {
        const struct merak_value *v = merak_node_operand(node, i);

        inf.shape[i] = local_shape(sharded, v);
        inf.dtype[i] = v->dtype;
    }
    node->op->cost(&inf, &cost);
    size.flops = cost.flops;
    size.bytes = cost.bytes;
    return merak_cost_kernel(merak_cost_default(), node->op, 1, &size);
}

/* Elements that a rank moves; scale() turns them into seconds. */
static double exchange_words(const struct merak_sharded *sharded,
                             const struct merak_node *node)
{
    bool reduces = sharded->hop[node->id].kind == MERAK_CONVERT_ALL_REDUCE;
    struct merak_shape from = local_shape(sharded, node->in[0]);
    struct merak_shape to = local_shape(sharded, node->out[0]);
    size_t in = merak_shape_count(&from), out = merak_shape_count(&to);

    return (double)(in > out ? in : out) * (reduces ? 2 : 1);
}

static void fill(const struct merak_sharded *sharded, const int *node, int n,
                 struct item *item)
{
    double left = 0;

    for (int i = n - 1; i >= 0; i--) {
        struct item *it = &item[i];

        it->node = sharded->graph->node[node[i]];
        it->exchange = merak_sharded_exchanges(sharded, node[i]);
        it->seconds = it->exchange ? exchange_words(sharded, it->node)
                                   : kernel_seconds(sharded, it->node);
        left = it->exchange ? 0 : left + it->seconds;
        it->left = left;
    }
}

static double sum(const struct item *item, int n, bool exchange)
{
    double seconds = 0;

    for (int i = 0; i < n; i++)
        seconds += item[i].exchange == exchange ? item[i].seconds : 0;
    return seconds;
}

/* At guess 1 exchanges take as long as kernels. */
static void scale(struct pair *p)
{
    double exchanges = sum(p->item, p->n, true);
    double by = exchanges > 0 ? sum(p->item, p->n, false) / exchanges : 0;

    for (int i = 0; i < p->n + p->n_lead; i++) {
        if (p->item[i].exchange)
            p->item[i].seconds *= by;
    }
    /* As long as the lead's exchanges take at guess 1, in both halves. */
    p->window_s = 2 * sum(p->item + p->n, p->n_lead, true);
}

/* --- playing -------------------------------------------------------------- */

static bool is_lead(int stream)
{
    return stream >= 2;
}

static int end_of(const struct pair *p, int stream)
{
    return is_lead(stream) ? p->n + p->n_lead : p->n;
}

/* The item that makes a node's input in a stream, or -1: it is ready. */
static int producer_item(const struct pair *p, int stream, int producer)
{
    int at = producer < 0 ? -1 : p->place[producer];

    if (!is_lead(stream) || producer < 0)
        return at;
    for (at = p->next[stream] - 1; at >= p->n; at--) {
        if (p->item[at].node->id == producer)
            return at;
    }
    return -1;
}

/* When the inputs of a stream's next item are ready. */
static double ready_at(const struct pair *p, int stream)
{
    const struct merak_node *node = p->item[p->next[stream]].node;
    double at = 0;

    for (int k = 0; k < node->n_in; k++) {
        int from = producer_item(p, stream, node->in[k]->producer);

        if (from >= 0 && from < p->next[stream] && p->end[stream][from] > at)
            at = p->end[stream][from];
    }
    return at;
}

static bool may_run(const struct pair *p, int stream)
{
    return p->next[stream] < end_of(p, stream) &&
           (stream % 2 == 0 || p->next[stream] < p->next[stream - 1]) &&
           (!is_lead(stream) || p->left_s <= p->window_s || p->next[1] == p->n);
}

static bool goes_before(const struct pair *p, int a, int b)
{
    const struct item *x = &p->item[p->next[a]], *y = &p->item[p->next[b]];
    double x_at = ready_at(p, a), y_at = ready_at(p, b);

    if (x->exchange != y->exchange)
        return x->exchange; /* it takes none of the kernels' time */
    if (x->exchange)
        return x_at < y_at;
    x_at = x_at > p->compute ? x_at : p->compute;
    y_at = y_at > p->compute ? y_at : p->compute;
    return x_at != y_at ? x_at < y_at : x->left < y->left;
}

static int choose(const struct pair *p)
{
    int best = -1;

    for (int s = 0; s < STREAMS; s++) {
        if (may_run(p, s) && (best < 0 || goes_before(p, s, best)))
            best = s;
    }
    return best;
}

static void run(struct pair *p, int stream)
{
    const struct item *it = &p->item[p->next[stream]];
    double *queue = it->exchange ? &p->collective : &p->compute;
    double at = ready_at(p, stream);

    *queue = (at > *queue ? at : *queue) +
             it->seconds * (it->exchange ? p->guess : 1);
    p->end[stream][p->next[stream]++] = *queue;
    if (!it->exchange && !is_lead(stream))
        p->left_s -= it->seconds;
}

static void start(struct pair *p, double guess)
{
    for (int s = 0; s < STREAMS; s++)
        p->next[s] = is_lead(s) ? p->n : 0;
    p->guess = guess;
    p->left_s = 2 * sum(p->item, p->n, false);
    p->compute = p->collective = 0;
}

static void find_order(struct pair *p, double guess,
                       struct merak_pair_step *order)
{
    start(p, guess);
    for (int i = 0; i < 2 * (p->n + p->n_lead); i++) {
        int s = choose(p);

        order[i] =
            (struct merak_pair_step){.at = p->next[s] - (is_lead(s) ? p->n : 0),
                                     .half = (uint8_t)(s % 2),
                                     .next = is_lead(s)};
        run(p, s);
    }
}

/* The end of an order's play, summed over all judges. */
static double played(struct pair *p, const struct merak_pair_step *order)
{
    double end = 0;

    for (int g = 0; g < N_JUDGES; g++) {
        start(p, judges[g]);
        for (int i = 0; i < 2 * (p->n + p->n_lead); i++)
            run(p, order[i].half + (order[i].next ? 2 : 0));
        end += p->compute > p->collective ? p->compute : p->collective;
    }
    return end;
}

/* --- the list ------------------------------------------------------------- */

static enum merak_status pair_init(struct pair *p,
                                   const struct merak_pair_list *list,
                                   struct merak_error *err)
{
    size_t nodes = (size_t)p->sharded->graph->n_nodes + 1;
    size_t items = (size_t)(list->n + list->n_lead) + 1;
    const struct merak_array arrays[] = {
        MERAK_ARRAY(p->item, items), MERAK_ARRAY(p->place, nodes),
        MERAK_ARRAY(p->end[0], STREAMS * items)};
    enum merak_status rc = MERAK_ARRAYS(arrays, err);

    if (rc != MERAK_OK)
        return rc;
    p->n = list->n;
    p->n_lead = list->n_lead;
    for (int s = 1; s < STREAMS; s++)
        p->end[s] = p->end[s - 1] + items;
    for (size_t i = 0; i < nodes; i++)
        p->place[i] = -1;
    for (int i = 0; i < list->n; i++)
        p->place[list->node[i]] = i;
    fill(p->sharded, list->node, list->n, p->item);
    fill(p->sharded, list->lead, list->n_lead, p->item + list->n);
    scale(p);
    return MERAK_OK;
}

static void pair_fini(struct pair *p)
{
    free(p->item);
}

enum merak_status merak_pair_order(const struct merak_sharded *sharded,
                                   const struct merak_pair_list *list,
                                   struct merak_pair_step *order,
                                   struct merak_error *err)
{
    size_t bytes = 2 * (size_t)(list->n + list->n_lead) * sizeof(*order);
    struct merak_pair_step *other = malloc(bytes + 1);
    struct pair p = {.sharded = sharded};
    double least = 0;
    enum merak_status rc =
        other == NULL ? merak_fail_nomem(err, bytes) : pair_init(&p, list, err);

    for (int g = 0; g < N_GUESSES && rc == MERAK_OK; g++) {
        double end;

        find_order(&p, guesses[g], other);
        end = played(&p, other);
        if (g > 0 && end >= least)
            continue;
        least = end;
        memcpy(order, other, bytes);
    }
    free(other);
    pair_fini(&p);
    return rc;
}

int merak_pair_lead(const struct merak_sharded *sharded, const int *node, int n)
{
    double row = 0, longest = 0;
    int lead = 0;

    for (int i = 0; i < n; i++) {
        row =
            merak_sharded_exchanges(sharded, node[i])
                ? 0
                : row + kernel_seconds(sharded, sharded->graph->node[node[i]]);
        longest = row > longest ? row : longest;
    }
    row = 0;
    for (int i = 0; i < n && row <= SMALL * longest; i++) {
        if (merak_sharded_exchanges(sharded, node[i])) {
            lead = i + 1;
            row = 0;
        } else {
            row += kernel_seconds(sharded, sharded->graph->node[node[i]]);
        }
    }
    return lead;
}
