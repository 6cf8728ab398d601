/* SPDX-License-Identifier: Apache-2.0 */
/* gather.c - a sharded graph's nodes in an order that is better to cut
 *
 * A model is described in some order, and where branches run beside each other
 * many are possible: two towers may be told layer by layer in turns, a short
 * branch long before what reads it.  Whatever is made before a cut and read
 * behind it crosses that cut, so that the order decides what stages send.
 *
 * Of all orders that keep what nodes need, the one is looked for that has the
 * fewest bytes cross at a time drawn from the step: the sum over nodes of
 * their seconds times the bytes alive before them.  Orders that have run the
 * same nodes are one state, of which the cheapest is kept; states grow by a
 * node at a time, and the most promising WIDTH of each size go on.  With
 * fewer states than that, as two towers have, the result is the best there
 * is.
 *
 * Sums keep their order: the uses of a value, or of a parameter, stay in the
 * order in which they were described.  All nodes have the operands that they
 * had, so that an order changes no bit of any result.
 * Compare RaNNC (Tanaka et al. 2021), which merges nodes to blocks by their
 * times and keeps the order of a depth-first walk.
 */
#include "config.h"

#include "partitioner/layout/shard.h"

#include "base/error.h"
#include "base/rng.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH 64     /* sets of a size that are followed */
#define MAX_READY 32 /* nodes that can be next; more are not seen */
#define MAX_NODES 6000
#define BLOCK 20   /* forward nodes between places where one value crosses */
#define WORTH 0.97 /* of the described order's cost: less is not worth it */

/* A forward node that is no conversion, counted from 0. */
struct item {
    int node;
    double seconds;     /* with its gradient nodes */
    double made, freed; /* bytes that are read later, or here for the last
                           time */
    int need, next;     /* begins of its lists */
    uint64_t key;
};

/* `then` comes after `first`. */
struct edge {
    int first, then;
};

/* A set of items that has run. */
struct state {
    double cost, alive, seconds, rank;
    uint64_t key;     /* all of its items' */
    int parent, item; /* the set before, and the item that came last */
    int n_ready;
    int ready[MAX_READY]; /* ascending */
};

struct gatherer {
    const struct merak_sharded *sharded;
    const struct merak_graph *graph;
    struct item *item; /* [n + 1] */
    int n;
    int *item_of;  /* by node id, or -1 */
    int *last_use; /* by value id: the item, or -1 */
    struct edge *edge;
    int n_edges;
    int *need, *next;            /* lists of items, by item */
    double seconds;              /* of all */
    int words;                   /* of a set */
    struct state *state, *grown; /* [WIDTH], [WIDTH * MAX_READY] */
    uint64_t *set, *set_after;   /* [WIDTH][words] */
    struct step {
        int parent, item;
    } * step;   /* [n][WIDTH]: how each set came to be */
    int *order; /* [n] items */
};

static bool is_convert(const struct gatherer *g, int node)
{
    return g->sharded->hop[node].kind != MERAK_CONVERT_NONE;
}

static const struct merak_value *root_of(const struct gatherer *g,
                                         const struct merak_value *v)
{
    while (v->producer >= 0 && is_convert(g, v->producer) &&
           g->graph->node[v->producer]->phase == MERAK_PHASE_F)
        v = g->graph->node[v->producer]->in[0];
    return v;
}

/* --- the items ------------------------------------------------------------ */

static double seconds_of(const struct merak_node *node)
{
    struct merak_infer inf;
    struct merak_cost cost = {0};

    if (node->op->cost == NULL)
        return 0;
    merak_node_infer(node, &inf);
    node->op->cost(&inf, &cost);
    return cost.flops / 1e12 + cost.bytes / 1e11;
}

static void make_items(struct gatherer *g)
{
    for (int n = 0; n < g->graph->n_nodes; n++) {
        const struct merak_node *node = g->graph->node[n];

        g->item_of[n] = -1;
        if (node->phase != MERAK_PHASE_F || is_convert(g, n))
            continue;
        g->item_of[n] = g->n;
        g->item[g->n] = (struct item){
            .node = n, .key = merak_rng_key((uint64_t)g->n, "gather")};
        g->n++;
    }
    for (int n = 0; n < g->graph->n_nodes; n++) {
        const struct merak_node *node = g->graph->node[n];
        double s = is_convert(g, n) ? 0 : seconds_of(node);

        if (g->item_of[node->forward] >= 0)
            g->item[g->item_of[node->forward]].seconds += s;
        g->seconds += s;
    }
}

static double bytes_of(const struct merak_value *v)
{
    return (double)merak_shape_count(&v->shape) *
           (double)merak_dtype_bytes(v->dtype);
}

/* An item comes after the makers of what it reads, and after the other
 * readers that were described before it. */
static void add_edges(struct gatherer *g, int item)
{
    const struct merak_node *node = g->graph->node[g->item[item].node];

    for (int i = 0; i < node->n_in; i++) {
        const struct merak_value *v = root_of(g, node->in[i]);
        int first = g->last_use[v->id];

        if (first < 0 && v->producer >= 0)
            first = g->item_of[v->producer];
        if (v->kind == MERAK_VALUE_INPUT || first == item)
            continue;
        if (first >= 0)
            g->edge[g->n_edges++] = (struct edge){first, item};
        g->last_use[v->id] = item;
    }
}

static void measure_tensors(struct gatherer *g)
{
    for (int v = 0; v < g->graph->n_values; v++) {
        const struct merak_value *value = g->graph->value[v];

        if (g->last_use[v] < 0 || value->producer < 0)
            continue;
        g->item[g->item_of[value->producer]].made += bytes_of(value);
        g->item[g->last_use[v]].freed += bytes_of(value);
    }
}

/* Both lists of all items from the edges. */
static void sort_edges(struct gatherer *g)
{
    for (int e = 0; e < g->n_edges; e++) {
        g->item[g->edge[e].then].need++;
        g->item[g->edge[e].first].next++;
    }
    for (int i = 1; i <= g->n; i++) {
        g->item[i].need += g->item[i - 1].need;
        g->item[i].next += g->item[i - 1].next;
    }
    for (int e = g->n_edges - 1; e >= 0; e--) {
        g->need[--g->item[g->edge[e].then].need] = g->edge[e].first;
        g->next[--g->item[g->edge[e].first].next] = g->edge[e].then;
    }
}

/* --- is there anything to gain? ------------------------------------------- */

/* A chain of blocks: places where no more than one value crosses are never
 * far apart. */
static bool is_chain(const struct gatherer *g, int *open)
{
    int alive = 0, since = 0;

    memset(open, 0, ((size_t)g->n + 1) * sizeof(*open));
    for (int v = 0; v < g->graph->n_values; v++) {
        if (g->last_use[v] < 0 || g->graph->value[v]->producer < 0)
            continue;
        open[g->item_of[g->graph->value[v]->producer]]++;
        open[g->last_use[v]]--;
    }
    for (int i = 0; i < g->n; i++, since++) {
        alive += open[i];
        if (alive <= 1)
            since = 0;
        if (since > BLOCK)
            return false;
    }
    return true;
}

static double described_cost(const struct gatherer *g)
{
    double cost = 0, alive = 0;

    for (int i = 0; i < g->n; i++) {
        cost += g->item[i].seconds * alive;
        alive += g->item[i].made - g->item[i].freed;
    }
    return cost;
}

/* --- sets, by size -------------------------------------------------------- */

static bool has(const uint64_t *set, int item)
{
    return (set[item / 64] >> item % 64 & 1) != 0;
}

static bool is_ready(const struct gatherer *g, const uint64_t *set, int item)
{
    for (int k = g->item[item].need; k < g->item[item + 1].need; k++) {
        if (!has(set, g->need[k]))
            return false;
    }
    return true;
}

static void add_ready(struct state *s, int item)
{
    int at = s->n_ready;

    if (s->n_ready == MAX_READY)
        return;
    for (; at > 0 && s->ready[at - 1] > item; at--)
        s->ready[at] = s->ready[at - 1];
    s->ready[at] = item;
    s->n_ready++;
}

/* All ways to run one item more; returns how many. */
static int grow(struct gatherer *g, int n_states)
{
    int n = 0;

    for (int p = 0; p < n_states; p++) {
        const struct state *from = &g->state[p];

        for (int r = 0; r < from->n_ready; r++) {
            const struct item *it = &g->item[from->ready[r]];
            struct state *to = &g->grown[n++];

            *to = (struct state){.cost = from->cost + it->seconds * from->alive,
                                 .alive = from->alive + it->made - it->freed,
                                 .seconds = from->seconds + it->seconds,
                                 .key = from->key ^ it->key,
                                 .parent = p,
                                 .item = from->ready[r]};
            /* as if no more and no less were alive for all that is left */
            to->rank = to->cost + (g->seconds - to->seconds) * to->alive;
        }
    }
    return n;
}

/* Equal sets side by side, the cheapest first. */
static int compare_sets(const void *a, const void *b)
{
    const struct state *x = a, *y = b;

    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    if (x->cost != y->cost)
        return x->cost < y->cost ? -1 : 1;
    return x->item - y->item;
}

static int compare_ranks(const void *a, const void *b)
{
    const struct state *x = a, *y = b;

    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->parent != y->parent)
        return x->parent - y->parent;
    return x->item - y->item;
}

/* One of each set, and of those the most promising; returns how many. */
static int choose(struct gatherer *g, int n)
{
    int kept = 0;

    qsort(g->grown, (size_t)n, sizeof(*g->grown), compare_sets);
    for (int i = 0; i < n; i++) {
        if (kept == 0 || g->grown[i].key != g->grown[kept - 1].key)
            g->grown[kept++] = g->grown[i];
    }
    qsort(g->grown, (size_t)kept, sizeof(*g->grown), compare_ranks);
    return kept < WIDTH ? kept : WIDTH;
}

/* The chosen ones become the states, so many items in. */
static void settle(struct gatherer *g, int n, int size)
{
    uint64_t *swap = g->set;

    for (int i = 0; i < n; i++) {
        struct state *s = &g->grown[i];
        const struct state *from = &g->state[s->parent];
        uint64_t *set = &g->set_after[i * g->words];

        memcpy(set, &g->set[s->parent * g->words],
               (size_t)g->words * sizeof(*set));
        set[s->item / 64] |= (uint64_t)1 << s->item % 64;
        for (int r = 0; r < from->n_ready; r++) {
            if (from->ready[r] != s->item)
                add_ready(s, from->ready[r]);
        }
        for (int k = g->item[s->item].next; k < g->item[s->item + 1].next;
             k++) {
            if (is_ready(g, set, g->next[k]) &&
                (k == g->item[s->item].next || g->next[k] != g->next[k - 1]))
                add_ready(s, g->next[k]);
        }
        g->step[size * WIDTH + i] = (struct step){s->parent, s->item};
    }
    memcpy(g->state, g->grown, (size_t)n * sizeof(*g->state));
    g->set = g->set_after;
    g->set_after = swap;
}

/* Fill order[]; returns its cost, or DBL_MAX if nodes were overlooked. */
static double search(struct gatherer *g)
{
    int n = 1, at = 0;

    g->state[0] = (struct state){.parent = -1};
    memset(g->set, 0, (size_t)g->words * sizeof(*g->set));
    for (int i = 0; i < g->n; i++) {
        if (g->item[i].need == g->item[i + 1].need)
            add_ready(&g->state[0], i);
    }
    for (int size = 0; size < g->n; size++) {
        n = choose(g, grow(g, n));
        if (n == 0)
            return DBL_MAX;
        settle(g, n, size);
    }
    for (int size = g->n - 1; size >= 0; size--) {
        g->order[size] = g->step[size * WIDTH + at].item;
        at = g->step[size * WIDTH + at].parent;
    }
    return g->state[0].cost;
}

/* --- the graph in that order ---------------------------------------------- */

/* Nodes in their new order; forward ones first, gradients as far from the
 * loss as their forward nodes. */
struct renumbering {
    int *at;   /* new id by old */
    int *from; /* old id by new */
    int n;
};

static void take(struct renumbering *r, int node)
{
    r->from[r->n] = node;
    r->at[node] = r->n++;
}

/* A node, and before it the conversions that it is the first to need. */
static void take_item(const struct gatherer *g, struct renumbering *r, int node)
{
    const struct merak_node *n = g->graph->node[node];

    for (int i = 0; i < n->n_in; i++) {
        int p = n->in[i]->producer;

        if (p >= 0 && r->at[p] < 0 && is_convert(g, p))
            take_item(g, r, p);
    }
    take(r, node);
}

struct late {
    int node, of; /* forward node's new id */
};

static int compare_late(const void *a, const void *b)
{
    const struct late *x = a, *y = b;

    return x->of != y->of ? y->of - x->of : x->node - y->node;
}

static bool is_in_order(const struct gatherer *g, const struct renumbering *r)
{
    for (int n = 0; n < r->n; n++) {
        const struct merak_node *node = g->graph->node[r->from[n]];

        for (int i = 0; i < node->n_in; i++) {
            if (node->in[i]->producer >= 0 && r->at[node->in[i]->producer] >= n)
                return false;
        }
    }
    return r->n == g->graph->n_nodes;
}

/* False if that is no order to run them in. */
static bool renumber(const struct gatherer *g, struct renumbering *r,
                     struct late *late)
{
    int n_late = 0;

    for (int n = 0; n < g->graph->n_nodes; n++)
        r->at[n] = -1;
    for (int i = 0; i < g->n; i++)
        take_item(g, r, g->item[g->order[i]].node);
    for (int n = 0; n < g->graph->n_nodes; n++) { /* copies for gradients */
        if (r->at[n] < 0 && g->graph->node[n]->phase == MERAK_PHASE_F)
            take(r, n);
    }
    for (int n = 0; n < g->graph->n_nodes; n++) {
        const struct merak_node *node = g->graph->node[n];

        if (r->at[n] < 0)
            late[n_late++] = (struct late){n, r->at[node->forward]};
    }
    qsort(late, (size_t)n_late, sizeof(*late), compare_late);
    for (int i = 0; i < n_late; i++)
        take(r, late[i].node);
    return is_in_order(g, r);
}

/* Put everything that goes by node where it belongs; room for one of each. */
static void apply(struct merak_sharded *s, const struct renumbering *r,
                  struct merak_node **node, struct merak_strategy *strategy,
                  struct merak_hop *hop)
{
    size_t n = (size_t)r->n;

    for (int i = 0; i < r->n; i++) {
        node[i] = s->graph->node[r->from[i]];
        strategy[i] = s->strategy[r->from[i]];
        hop[i] = s->hop[r->from[i]];
    }
    memcpy(s->graph->node, node, n * sizeof(*node));
    memcpy(s->strategy, strategy, n * sizeof(*strategy));
    memcpy(s->hop, hop, n * sizeof(*hop));
    for (int i = 0; i < r->n; i++) {
        s->graph->node[i]->id = i;
        s->graph->node[i]->forward = r->at[s->graph->node[i]->forward];
    }
    for (int v = 0; v < s->graph->n_values; v++) {
        if (s->graph->value[v]->producer >= 0)
            s->graph->value[v]->producer = r->at[s->graph->value[v]->producer];
    }
}

static enum merak_status rewrite(const struct gatherer *g,
                                 struct merak_sharded *s,
                                 struct merak_error *err)
{
    size_t n = (size_t)g->graph->n_nodes + 1;
    struct renumbering r = {.at = malloc(n * sizeof(*r.at)),
                            .from = malloc(n * sizeof(*r.from))};
    struct late *late = malloc(n * sizeof(*late));
    struct merak_node **node = malloc(n * sizeof(struct merak_node *));
    struct merak_strategy *strategy = malloc(n * sizeof(*strategy));
    struct merak_hop *hop = malloc(n * sizeof(*hop));
    enum merak_status rc = MERAK_OK;

    if (r.at == NULL || r.from == NULL || late == NULL || node == NULL ||
        strategy == NULL || hop == NULL) {
        rc = merak_fail_nomem(err, n * sizeof(*hop));
    } else if (renumber(g, &r, late)) {
        apply(s, &r, node, strategy, hop);
        s->gathered = true;
    }
    free(r.at);
    free(r.from);
    free(late);
    free(node);
    free(strategy);
    free(hop);
    return rc;
}

/* --- together ------------------------------------------------------------- */

static enum merak_status init(struct gatherer *g,
                              const struct merak_sharded *sharded,
                              struct merak_error *err)
{
    size_t nodes = (size_t)sharded->graph->n_nodes + 2;
    size_t values = (size_t)sharded->graph->n_values + 1, edges = nodes;

    for (int n = 0; n < sharded->graph->n_nodes; n++)
        edges += (size_t)sharded->graph->node[n]->n_in;
    *g = (struct gatherer){.sharded = sharded, .graph = sharded->graph};
    g->item = calloc(nodes, sizeof(*g->item));
    g->item_of = calloc(nodes, sizeof(*g->item_of));
    g->last_use = malloc(values * sizeof(*g->last_use));
    g->edge = calloc(edges, sizeof(*g->edge));
    g->need = calloc(edges, sizeof(*g->need));
    g->next = calloc(edges, sizeof(*g->next));
    g->order = calloc(nodes, sizeof(*g->order));
    if (g->item == NULL || g->item_of == NULL || g->last_use == NULL ||
        g->edge == NULL || g->need == NULL || g->next == NULL ||
        g->order == NULL)
        return merak_fail_nomem(err, edges * sizeof(*g->edge));
    for (size_t v = 0; v < values; v++)
        g->last_use[v] = -1;
    make_items(g);
    for (int i = 0; i < g->n; i++)
        add_edges(g, i);
    return MERAK_OK;
}

static enum merak_status init_search(struct gatherer *g,
                                     struct merak_error *err)
{
    size_t n = (size_t)g->n;

    g->words = g->n / 64 + 1;
    g->state = calloc(WIDTH, sizeof(*g->state));
    g->grown = calloc((size_t)WIDTH * MAX_READY, sizeof(*g->grown));
    g->set = calloc((size_t)WIDTH * (size_t)g->words, sizeof(*g->set));
    g->set_after = calloc((size_t)WIDTH * (size_t)g->words, sizeof(*g->set));
    g->step = calloc(n * WIDTH, sizeof(*g->step));
    if (g->state == NULL || g->grown == NULL || g->set == NULL ||
        g->set_after == NULL || g->step == NULL)
        return merak_fail_nomem(err, n * WIDTH * sizeof(*g->step));
    measure_tensors(g);
    sort_edges(g);
    return MERAK_OK;
}

static void fini(struct gatherer *g)
{
    free(g->item);
    free(g->item_of);
    free(g->last_use);
    free(g->edge);
    free(g->need);
    free(g->next);
    free(g->order);
    free(g->state);
    free(g->grown);
    free(g->set);
    free(g->set_after);
    free(g->step);
}

enum merak_status merak_sharded_gather(struct merak_sharded *sharded,
                                       bool gather, struct merak_error *err)
{
    struct gatherer g;
    enum merak_status rc = init(&g, sharded, err);

    if (rc == MERAK_OK)
        sharded->branches = g.n <= MAX_NODES && sharded->graph->passes <= 1 &&
                            !is_chain(&g, g.order);
    if (rc == MERAK_OK && gather && sharded->branches) {
        rc = init_search(&g, err);
        if (rc == MERAK_OK && search(&g) < WORTH * described_cost(&g))
            rc = rewrite(&g, sharded, err);
    }
    fini(&g);
    return rc;
}
