/* SPDX-License-Identifier: Apache-2.0 */
/* coarsen.c - merging items to a few: neighbours first, then rows of items
 *
 * The search for a path around two items ends after LOOK items, and items more
 * than REACH apart are left to a later level, where they are closer.  Both
 * bound the work of a merge: the total takes little more than linear time.
 */
#include "config.h"

#include "partitioner/order/coarsen.h"

#include "base/arrays.h"
#include "base/error.h"

#include <math.h>
#include <stdlib.h>

#define LOOK 256
#define REACH 1024
#define MAX_LEVELS 64

/* --- levels --------------------------------------------------------------- */

static void level_destroy(struct merak_level *l)
{
    if (l != NULL)
        free(l->dag.seconds);
    free(l);
}

static enum merak_status level_alloc(struct merak_level *l, size_t items,
                                     size_t edges, struct merak_error *err)
{
    const struct merak_array arrays[] = {
        MERAK_ARRAY(l->dag.seconds, items), MERAK_ARRAY(l->dag.memory, items),
        MERAK_ARRAY(l->dag.edge, edges),    MERAK_ARRAY(l->next, items),
        MERAK_ARRAY(l->prev, edges),        MERAK_ARRAY(l->prev_of, items),
        MERAK_ARRAY(l->up, items)};

    return MERAK_ARRAYS(arrays, err);
}

static struct merak_level *level_create(int n, int n_edges)
{
    struct merak_level *l = calloc(1, sizeof(*l));
    size_t items = (size_t)n + 1, edges = (size_t)n_edges + 1;

    if (l == NULL)
        return NULL;
    l->dag.n = n;
    if (level_alloc(l, items, edges, NULL) == MERAK_OK)
        return l;
    level_destroy(l);
    return NULL;
}

static int compare_edges(const void *a, const void *b)
{
    const struct merak_dag_edge *x = a, *y = b;

    return x->from != y->from ? x->from - y->from : x->to - y->to;
}

/* Sort the edges, join those between the same two items, and list them by
 * either end. */
static void index_edges(struct merak_level *l)
{
    struct merak_dag_edge *e = l->dag.edge;
    int kept = 0;

    qsort(e, (size_t)l->dag.n_edges, sizeof(*e), compare_edges);
    for (int i = 0; i < l->dag.n_edges; i++) {
        if (kept > 0 && compare_edges(&e[i], &e[kept - 1]) == 0)
            e[kept - 1].bytes += e[i].bytes;
        else
            e[kept++] = e[i];
    }
    l->dag.n_edges = kept;
    for (int i = 0; i < kept; i++) {
        l->next[e[i].from + 1]++;
        l->prev_of[e[i].to]++;
    }
    for (int i = 1; i <= l->dag.n; i++) {
        l->next[i] += l->next[i - 1];
        l->prev_of[i] += l->prev_of[i - 1];
    }
    for (int i = kept - 1; i >= 0; i--)
        l->prev[--l->prev_of[e[i].to]] = i;
}

enum merak_status merak_level_push(struct merak_coarsening *w,
                                   const struct merak_dag *from, const int *up,
                                   int n)
{
    struct merak_level *l = level_create(n, from->n_edges);

    if (l == NULL)
        return merak_fail_nomem(w->err, (size_t)from->n_edges * sizeof(int));
    for (int i = 0; i < from->n; i++) {
        l->dag.seconds[up[i]] += from->seconds[i];
        l->dag.memory[up[i]] += from->memory[i];
    }
    for (int e = 0; e < from->n_edges; e++) {
        struct merak_dag_edge edge = from->edge[e];

        edge.from = up[edge.from];
        edge.to = up[edge.to];
        if (edge.from != edge.to)
            l->dag.edge[l->dag.n_edges++] = edge;
    }
    index_edges(l);
    l->finer = w->level;
    w->level = l;
    w->depth++;
    return MERAK_OK;
}

void merak_level_pop(struct merak_coarsening *w)
{
    struct merak_level *l = w->level;

    w->level = l->finer;
    level_destroy(l);
}

double merak_level_deviation(const struct merak_dag *dag)
{
    double mean = 0, square = 0;

    for (int i = 0; i < dag->n; i++)
        mean += dag->seconds[i] / dag->n;
    for (int i = 0; i < dag->n; i++) {
        double d = dag->seconds[i] - mean;

        square += d * d / dag->n;
    }
    return mean + 2 * sqrt(square);
}

bool merak_block_fits(const struct merak_coarsening *w, double memory)
{
    return w->opt->memory <= 0 || memory <= w->opt->memory;
}

/* --- coarsening ----------------------------------------------------------- */

/* One level's items while some are being merged; the lower number of two stands
 * for both. */
struct merging {
    const struct merak_level *level;
    double most; /* seconds of a union */
    int left;    /* how many there are now */
    int *mate;   /* by item: the other of the two, or -1 */
    int *at;     /* [n] an order they can run in; -1: nothing */
    int *pos;    /* by item: its position there */
    int *mark;   /* by item: the search that has seen it */
    int serial;
    int *stack, *moved; /* scratch */
};

static int stands_for(const struct merging *m, int item)
{
    return m->mate[item] >= 0 && m->mate[item] < item ? m->mate[item] : item;
}

/* Push the successors of an item that are not seen yet, up to a position. */
static int follow(struct merging *m, int item, int upto, int n)
{
    const struct merak_level *l = m->level;

    for (int e = l->next[item]; e < l->next[item + 1]; e++) {
        int to = stands_for(m, l->dag.edge[e].to);

        if (m->pos[to] > upto || m->mark[to] == m->serial || n >= LOOK)
            continue;
        m->mark[to] = m->serial;
        m->stack[n++] = to;
    }
    return n;
}

/* Is there a path from a to b besides their edge, or may there be one?  Marks
 * the items before b that depend on a. */
static bool is_path_around(struct merging *m, int a, int b)
{
    int n, done = 0;

    m->serial++;
    m->mark[b] = m->serial; /* the edge itself */
    n = follow(m, a, m->pos[b], 0);
    m->mark[b] = 0;
    while (done < n && n < LOOK) {
        int item = m->stack[done++];

        n = follow(m, item, m->pos[b], n);
        if (m->mate[item] >= 0)
            n = follow(m, m->mate[item], m->pos[b], n);
        if (m->mark[b] == m->serial)
            return true;
    }
    return n >= LOOK;
}

/* Put b next to a: the items between them that depend on a move after both. */
static void merge(struct merging *m, int a, int b)
{
    int lo = m->pos[a], hi = m->pos[b], to = hi, n = 0;

    for (int p = hi; p > lo; p--) {
        int item = m->at[p];

        if (item >= 0 && item != b && m->mark[item] == m->serial)
            m->at[to--] = item;
        else if (item >= 0 && item != b)
            m->moved[n++] = item;
    }
    m->at[to--] = a < b ? a : b;
    for (int i = 0; i < n; i++)
        m->at[to--] = m->moved[i];
    while (to >= lo)
        m->at[to--] = -1;
    m->mate[a] = b;
    m->mate[b] = a;
    for (int p = lo; p <= hi; p++) {
        if (m->at[p] >= 0)
            m->pos[m->at[p]] = p;
    }
    m->left--;
}

/* A neighbour over an edge, as a candidate for a merge. */
struct offer {
    int item;
    double bytes, seconds;
};

static bool is_better(const struct offer *a, const struct offer *b)
{
    if (a->bytes != b->bytes)
        return a->bytes > b->bytes;
    if (a->seconds != b->seconds)
        return a->seconds < b->seconds;
    return a->item < b->item;
}

static bool may_merge(struct merging *m, const struct merak_coarsening *w,
                      int item, int other)
{
    const struct merak_dag *dag = &m->level->dag;
    int first = m->pos[item] < m->pos[other] ? item : other;
    int last = first == item ? other : item;

    return m->mate[other] < 0 &&
           dag->seconds[item] + dag->seconds[other] <= m->most &&
           merak_block_fits(w, dag->memory[item] + dag->memory[other]) &&
           m->pos[last] - m->pos[first] <= REACH &&
           !is_path_around(m, first, last);
}

static void consider(struct merging *m, const struct merak_coarsening *w,
                     int item, const struct offer *offer, struct offer *best)
{
    if (offer->bytes > 0 && (best->item < 0 || is_better(offer, best)) &&
        may_merge(m, w, item, offer->item))
        *best = *offer;
}

/* Merge an item with the best of its neighbours, if there is one. */
static void merge_item(struct merging *m, const struct merak_coarsening *w,
                       int item)
{
    const struct merak_level *l = m->level;
    struct offer best = {.item = -1};

    for (int i = l->next[item]; i < l->next[item + 1]; i++) {
        const struct merak_dag_edge *e = &l->dag.edge[i];
        struct offer offer = {e->to, e->bytes, l->dag.seconds[e->to]};

        consider(m, w, item, &offer, &best);
    }
    for (int i = l->prev_of[item]; i < l->prev_of[item + 1]; i++) {
        const struct merak_dag_edge *e = &l->dag.edge[l->prev[i]];
        struct offer offer = {e->from, e->bytes, l->dag.seconds[e->from]};

        consider(m, w, item, &offer, &best);
    }
    /* Again, for the marks: other neighbours were examined since. */
    if (best.item >= 0 && may_merge(m, w, item, best.item)) {
        bool first = m->pos[item] < m->pos[best.item];

        merge(m, first ? item : best.item, first ? best.item : item);
    }
}

/* mate[] holds the memory of all its arrays. */
static enum merak_status merging_init(struct merging *m,
                                      const struct merak_level *l, double most,
                                      struct merak_error *err)
{
    size_t n = (size_t)l->dag.n + 1;
    const struct merak_array arrays[] = {
        MERAK_ARRAY(m->mate, n),  MERAK_ARRAY(m->at, n),
        MERAK_ARRAY(m->pos, n),   MERAK_ARRAY(m->mark, n),
        MERAK_ARRAY(m->moved, n), MERAK_ARRAY(m->stack, LOOK + 1)};
    enum merak_status rc;

    *m = (struct merging){.level = l, .most = most, .left = l->dag.n};
    rc = MERAK_ARRAYS(arrays, err);
    if (rc != MERAK_OK)
        return rc;
    for (int i = 0; i < l->dag.n; i++) {
        m->mate[i] = -1;
        m->at[i] = m->pos[i] = i;
    }
    return MERAK_OK;
}

struct timed {
    int item;
    double seconds;
};

static int compare_timed(const void *a, const void *b)
{
    const struct timed *x = a, *y = b;

    if (x->seconds != y->seconds)
        return x->seconds < y->seconds ? -1 : 1;
    return x->item - y->item;
}

static enum merak_status merge_all(struct merak_coarsening *w,
                                   struct merging *m)
{
    const struct merak_dag *dag = &m->level->dag;
    struct timed *by_time = calloc((size_t)dag->n + 1, sizeof(*by_time));

    if (by_time == NULL)
        return merak_fail_nomem(w->err, (size_t)dag->n * sizeof(*by_time));
    for (int i = 0; i < dag->n; i++)
        by_time[i] = (struct timed){i, dag->seconds[i]};
    qsort(by_time, (size_t)dag->n, sizeof(*by_time), compare_timed);
    for (int i = 0; i < dag->n && m->left > w->opt->blocks; i++) {
        if (m->mate[by_time[i].item] < 0)
            merge_item(m, w, by_time[i].item);
    }
    free(by_time);
    return MERAK_OK;
}

/* One more level, of unions up to `most` seconds; *merged_p: there were any. */
static enum merak_status coarsen_once(struct merak_coarsening *w, double most,
                                      bool *merged_p)
{
    struct merak_level *l = w->level;
    struct merging m;
    int n = 0;
    enum merak_status rc = merging_init(&m, l, most, w->err);

    if (rc != MERAK_OK)
        return rc;
    rc = merge_all(w, &m);
    *merged_p = m.left < l->dag.n;
    for (int p = 0; p < l->dag.n; p++) {
        int item = m.at[p];

        if (item < 0)
            continue;
        l->up[item] = n++;
        if (m.mate[item] >= 0)
            l->up[m.mate[item]] = l->up[item];
    }
    if (rc == MERAK_OK && *merged_p)
        rc = merak_level_push(w, &l->dag, l->up, n);
    free(m.mate);
    return rc;
}

enum merak_status merak_coarsen(struct merak_coarsening *w)
{
    enum merak_status rc = MERAK_OK;
    bool merged = true;

    while (w->level->dag.n > w->opt->blocks && merged &&
           w->depth < MAX_LEVELS && rc == MERAK_OK) {
        double most = merak_level_deviation(&w->level->dag);
        double twice = 2 * w->seconds / w->level->dag.n;

        most = most > twice ? most : twice;
        rc = coarsen_once(w, most < w->most ? most : w->most, &merged);
        if (rc == MERAK_OK && !merged && most < w->most)
            rc = coarsen_once(w, w->most, &merged);
    }
    return rc;
}

/* --- compacting ----------------------------------------------------------- */

/* Rows of items, each of them a block, as a list. */
struct row {
    double seconds, memory;
    int next; /* row's first item; or -1 */
};

/* The shortest adjacent pair that fits; -1: none does.  Of more than k rows,
 * some pair is short enough for a block, but it may need too much memory. */
static int shortest_pair(const struct merak_coarsening *w,
                         const struct row *row)
{
    int best = -1;
    double most = w->most * (1 + 1e-9), least = 0;

    for (int i = 0; row[i].next >= 0; i = row[i].next) {
        const struct row *after = &row[row[i].next];
        double seconds = row[i].seconds + after->seconds;

        if (seconds <= most &&
            merak_block_fits(w, row[i].memory + after->memory) &&
            (best < 0 || seconds < least)) {
            best = i;
            least = seconds;
        }
    }
    return best;
}

static void join(struct row *row, int first)
{
    int after = row[first].next;

    row[first].seconds += row[after].seconds;
    row[first].memory += row[after].memory;
    row[first].next = row[after].next;
}

enum merak_status merak_compact(struct merak_coarsening *w)
{
    struct merak_level *l = w->level;
    int n = l->dag.n, at = 0, number = 0;
    struct row *row = calloc((size_t)n + 1, sizeof(*row));
    enum merak_status rc;

    if (row == NULL)
        return merak_fail_nomem(w->err, (size_t)n * sizeof(*row));
    for (int i = 0; i < n; i++)
        row[i] = (struct row){l->dag.seconds[i], l->dag.memory[i],
                              i + 1 < n ? i + 1 : -1};
    for (int left = n; left > w->opt->blocks; left--) {
        int pair = shortest_pair(w, row);

        if (pair < 0)
            break;
        join(row, pair);
    }
    for (int i = 0; i < n; i++) {
        if (row[at].next == i) {
            at = i;
            number++;
        }
        l->up[i] = number;
    }
    free(row);
    rc = merak_level_push(w, &l->dag, l->up, number + 1);
    return rc;
}
