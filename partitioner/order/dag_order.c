/* SPDX-License-Identifier: Apache-2.0 */
/* dag_order.c - an order of items in which few bytes are alive
 *
 * The search is for the order with the fewest bytes alive at a random time of
 * the step: the sum over items of their seconds times the bytes alive before
 * them is minimal.  Orders that have run the same items are one state, of which
 * the cheapest is kept; states grow by an item at a time, and the most
 * promising WIDTH of each size are kept.  With fewer states than that, as two
 * towers have, the result is optimal.
 */
#include "config.h"

#include "partitioner/order/dag.h"

#include "base/arrays.h"
#include "base/error.h"
#include "base/rng.h"

#include <float.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH 64     /* sets kept of each size */
#define MAX_READY 32 /* items that can be next; more are ignored */

struct item {
    double delta;   /* change of the bytes alive once it has run */
    int need, next; /* starts of its lists */
    uint64_t key;
};

/* A set of items that has run. */
struct state {
    double cost, alive, seconds, rank;
    uint64_t key;     /* of all its items */
    int parent, item; /* the set before, and the item that ran last */
    int n_ready;
    int ready[MAX_READY]; /* ascending */
};

struct search {
    const struct merak_dag *dag;
    struct item *item;           /* [n + 1] */
    int *need, *next;            /* lists of items, by item */
    double seconds;              /* of all */
    int words;                   /* of a set */
    struct state *state, *grown; /* [WIDTH], [WIDTH * MAX_READY] */
    uint64_t *set, *set_after;   /* [WIDTH][words] */
    struct step {
        int parent, item;
    } * step; /* [n][WIDTH]: how each set was reached */
};

double merak_dag_cost(const struct merak_dag *dag, const int *order)
{
    double *delta = calloc((size_t)dag->n + 1, sizeof(*delta));
    double cost = 0, alive = 0;

    if (delta == NULL)
        return DBL_MAX;
    for (int e = 0; e < dag->n_edges; e++) {
        delta[dag->edge[e].from] += dag->edge[e].bytes;
        delta[dag->edge[e].to] -= dag->edge[e].bytes;
    }
    for (int i = 0; i < dag->n; i++) {
        cost += dag->seconds[order[i]] * alive;
        alive += delta[order[i]];
    }
    free(delta);
    return cost;
}

/* --- sets, by size -------------------------------------------------------- */

static bool has(const uint64_t *set, int item)
{
    return (set[item / 64] >> item % 64 & 1) != 0;
}

static bool is_ready(const struct search *s, const uint64_t *set, int item)
{
    for (int k = s->item[item].need; k < s->item[item + 1].need; k++) {
        if (!has(set, s->need[k]))
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
static int grow(struct search *s, int n_states)
{
    int n = 0;

    for (int p = 0; p < n_states; p++) {
        const struct state *from = &s->state[p];

        for (int r = 0; r < from->n_ready; r++) {
            int item = from->ready[r];
            double seconds = s->dag->seconds[item];
            struct state *to = &s->grown[n++];

            *to = (struct state){.cost = from->cost + seconds * from->alive,
                                 .alive = from->alive + s->item[item].delta,
                                 .seconds = from->seconds + seconds,
                                 .key = from->key ^ s->item[item].key,
                                 .parent = p,
                                 .item = item};
            /* as if the same bytes stayed alive for all that is left */
            to->rank = to->cost + (s->seconds - to->seconds) * to->alive;
        }
    }
    return n;
}

/* Equal sets next to each other, the cheapest first. */
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
static int choose(struct search *s, int n)
{
    int kept = 0;

    qsort(s->grown, (size_t)n, sizeof(*s->grown), compare_sets);
    for (int i = 0; i < n; i++) {
        if (kept == 0 || s->grown[i].key != s->grown[kept - 1].key)
            s->grown[kept++] = s->grown[i];
    }
    qsort(s->grown, (size_t)kept, sizeof(*s->grown), compare_ranks);
    return kept < WIDTH ? kept : WIDTH;
}

/* What can run after a set that grew by its item. */
static void find_ready(const struct search *s, const uint64_t *set,
                       const struct state *from, struct state *to)
{
    for (int r = 0; r < from->n_ready; r++) {
        if (from->ready[r] != to->item)
            add_ready(to, from->ready[r]);
    }
    for (int k = s->item[to->item].next; k < s->item[to->item + 1].next; k++) {
        bool again = k > s->item[to->item].next && s->next[k] == s->next[k - 1];

        if (!again && is_ready(s, set, s->next[k]))
            add_ready(to, s->next[k]);
    }
}

/* The n chosen sets become the states; `size` items had run before them. */
static void settle(struct search *s, int n, int size)
{
    uint64_t *swap = s->set;

    for (int i = 0; i < n; i++) {
        struct state *to = &s->grown[i];
        uint64_t *set = &s->set_after[i * s->words];

        memcpy(set, &s->set[to->parent * s->words],
               (size_t)s->words * sizeof(*set));
        set[to->item / 64] |= (uint64_t)1 << to->item % 64;
        find_ready(s, set, &s->state[to->parent], to);
        s->step[size * WIDTH + i] = (struct step){to->parent, to->item};
    }
    memcpy(s->state, s->grown, (size_t)n * sizeof(*s->state));
    s->set = s->set_after;
    s->set_after = swap;
}

/* Fill order[]; returns its cost, or DBL_MAX if ready items were ignored. */
static double run(struct search *s, int *order)
{
    int n = 1, at = 0;

    s->state[0] = (struct state){.parent = -1};
    for (int i = 0; i < s->dag->n; i++) {
        if (s->item[i].need == s->item[i + 1].need)
            add_ready(&s->state[0], i);
    }
    for (int size = 0; size < s->dag->n; size++) {
        n = choose(s, grow(s, n));
        if (n == 0)
            return DBL_MAX;
        settle(s, n, size);
    }
    for (int size = s->dag->n - 1; size >= 0; size--) {
        order[size] = s->step[size * WIDTH + at].item;
        at = s->step[size * WIDTH + at].parent;
    }
    return s->state[0].cost;
}

/* --- set-up --------------------------------------------------------------- */

static int compare_next(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* Fill both lists of all items from the edges. */
static void sort_edges(struct search *s)
{
    const struct merak_dag *dag = s->dag;

    for (int e = 0; e < dag->n_edges; e++) {
        s->item[dag->edge[e].to].need++;
        s->item[dag->edge[e].from].next++;
        s->item[dag->edge[e].from].delta += dag->edge[e].bytes;
        s->item[dag->edge[e].to].delta -= dag->edge[e].bytes;
    }
    for (int i = 1; i <= dag->n; i++) {
        s->item[i].need += s->item[i - 1].need;
        s->item[i].next += s->item[i - 1].next;
    }
    for (int e = dag->n_edges - 1; e >= 0; e--) {
        s->need[--s->item[dag->edge[e].to].need] = dag->edge[e].from;
        s->next[--s->item[dag->edge[e].from].next] = dag->edge[e].to;
    }
    for (int i = 0; i < dag->n; i++)
        qsort(&s->next[s->item[i].next],
              (size_t)(s->item[i + 1].next - s->item[i].next), sizeof(*s->next),
              compare_next);
}

static enum merak_status init(struct search *s, const struct merak_dag *dag,
                              struct merak_error *err)
{
    size_t n = (size_t)dag->n + 1, edges = (size_t)dag->n_edges + 1;
    size_t words = (size_t)dag->n / 64 + 1;
    const struct merak_array arrays[] = {
        MERAK_ARRAY(s->item, n),
        MERAK_ARRAY(s->need, edges),
        MERAK_ARRAY(s->next, edges),
        MERAK_ARRAY(s->state, WIDTH),
        MERAK_ARRAY(s->grown, (size_t)WIDTH * MAX_READY),
        MERAK_ARRAY(s->set, WIDTH * words),
        MERAK_ARRAY(s->set_after, WIDTH * words),
        MERAK_ARRAY(s->step, n * WIDTH)};
    enum merak_status rc;

    *s = (struct search){.dag = dag, .words = (int)words};
    rc = MERAK_ARRAYS(arrays, err);
    if (rc != MERAK_OK)
        return rc;
    for (int i = 0; i < dag->n; i++) {
        s->item[i].key = merak_rng_key((uint64_t)i, "gather");
        s->seconds += dag->seconds[i];
    }
    sort_edges(s);
    return MERAK_OK;
}

enum merak_status merak_dag_order(const struct merak_dag *dag, int *order,
                                  double *cost_p, struct merak_error *err)
{
    struct search s;
    enum merak_status rc = init(&s, dag, err);

    if (rc == MERAK_OK)
        *cost_p = run(&s, order);
    free(s.item); /* and all others */
    return rc;
}
