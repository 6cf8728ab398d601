/* SPDX-License-Identifier: Apache-2.0 */
/* blocks.c - items to blocks, by merging and moving
 *
 * As RaNNC (Tanaka et al. 2021) makes blocks of atoms:
 *
 *   coarsen    shortest first, an item is merged with the neighbour that most
 *              crosses to, if the union is convex, fits and takes no longer
 *              than the mean and two standard deviations; then what came of it
 *              likewise, until k are left or none can be merged;
 *   compact    the two of least time, side by side in an order that all can
 *              run in, until k are left;
 *   uncoarsen  merges are undone level by level, and what then stands at the
 *              edge of a block moves to another where less crosses.
 *
 * Where ours differs.  Kernels run one by one, so a union takes the sum of its
 * parts and what a merge saves is what does not cross any more; nothing is
 * measured.  Items that take equally long have no deviation: a union may have
 * twice the mean.  Blocks have numbers that every edge leads up, from the
 * first merge on, which is more than convex: all cuts between blocks are cuts
 * through one order.  That order is the one with the fewest bytes alive
 * (dag_order.c), and a move is judged by the bytes over all cuts of it, not
 * by those between two blocks.
 *
 * Looking for a path around two items ends after LOOK items and merging those
 * that stand more than REACH apart is left to a later level, where they stand
 * nearer; both bound the work of a merge, so that all takes little more than
 * linear time.
 */
#include "config.h"

#include "partitioner/order/dag.h"

#include "base/error.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define LOOK 256
#define REACH 1024
#define MAX_LEVELS 64
#define ROUNDS 4 /* of moves on a level, at most */

/* What is left after so many merges; its items are those of `finer`. */
struct level {
    struct merak_dag dag; /* edges sorted, one between any two */
    int *next;            /* [n + 1] by item: begins of its edges */
    int *prev, *prev_of;  /* edges by the item they lead to: [n + 1], begins */
    int *up;              /* by item: what it is merged to, on the next level */
    struct level *finer;
};

struct work {
    const struct merak_block_options *opt;
    double seconds; /* of all */
    double most;    /* that a block may take, unless it is one item */
    int n;          /* items */
    struct level *level;
    int depth;
    struct merak_error *err;
};

/* --- levels --------------------------------------------------------------- */

static void level_destroy(struct level *l)
{
    if (l == NULL)
        return;
    free(l->dag.seconds);
    free(l->dag.memory);
    free(l->dag.edge);
    free(l->next);
    free(l->prev);
    free(l->prev_of);
    free(l->up);
    free(l);
}

static struct level *level_create(int n, int n_edges)
{
    struct level *l = calloc(1, sizeof(*l));
    size_t items = (size_t)n + 1, edges = (size_t)n_edges + 1;

    if (l == NULL)
        return NULL;
    l->dag.n = n;
    l->dag.seconds = calloc(items, sizeof(double));
    l->dag.memory = calloc(items, sizeof(double));
    l->dag.edge = calloc(edges, sizeof(*l->dag.edge));
    l->next = calloc(items, sizeof(int));
    l->prev = calloc(edges, sizeof(int));
    l->prev_of = calloc(items, sizeof(int));
    l->up = calloc(items, sizeof(int));
    if (l->dag.seconds == NULL || l->dag.memory == NULL ||
        l->dag.edge == NULL || l->next == NULL || l->prev == NULL ||
        l->prev_of == NULL || l->up == NULL) {
        level_destroy(l);
        return NULL;
    }
    return l;
}

static int compare_edges(const void *a, const void *b)
{
    const struct merak_dag_edge *x = a, *y = b;

    return x->from != y->from ? x->from - y->from : x->to - y->to;
}

/* Sort its edges, join those of the same two, and list them both ways. */
static void index_edges(struct level *l)
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

/* The items of `from` put together as `up` says, n of them: w->level. */
static enum merak_status
push_level(struct work *w, const struct merak_dag *from, const int *up, int n)
{
    struct level *l = level_create(n, from->n_edges);

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

static double mean_and_two_deviations(const struct merak_dag *dag)
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

static bool fits(const struct work *w, double memory)
{
    return w->opt->memory <= 0 || memory <= w->opt->memory;
}

/* --- coarsening ----------------------------------------------------------- */

/* One level's items while some are being merged; of two, the lower number
 * stands for both. */
struct merging {
    const struct level *level;
    double most; /* seconds of a union */
    int left;    /* how many there are now */
    int *mate;   /* by item: the other of the two, or -1 */
    int *at;     /* [n] an order they can run in; -1: nothing */
    int *pos;    /* by item: its place there */
    int *mark;   /* by item: the search that has seen it */
    int serial;
    int *stack, *moved; /* scratch */
};

static int stands_for(const struct merging *m, int item)
{
    return m->mate[item] >= 0 && m->mate[item] < item ? m->mate[item] : item;
}

/* Put on the stack what follows an item, up to a place, not seen yet. */
static int follow(struct merging *m, int item, int upto, int n)
{
    const struct level *l = m->level;

    for (int e = l->next[item]; e < l->next[item + 1]; e++) {
        int to = stands_for(m, l->dag.edge[e].to);

        if (m->pos[to] > upto || m->mark[to] == m->serial || n >= LOOK)
            continue;
        m->mark[to] = m->serial;
        m->stack[n++] = to;
    }
    return n;
}

/* Is there a path from a to b but for their edge, or may there be?  Marks what
 * comes after a and stands before b. */
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

/* Put b beside a: what comes after a goes behind both. */
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

/* A neighbour over an edge, were it merged with. */
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

static bool may_merge(struct merging *m, const struct work *w, int item,
                      int other)
{
    const struct merak_dag *dag = &m->level->dag;
    int first = m->pos[item] < m->pos[other] ? item : other;
    int last = first == item ? other : item;

    return m->mate[other] < 0 &&
           dag->seconds[item] + dag->seconds[other] <= m->most &&
           fits(w, dag->memory[item] + dag->memory[other]) &&
           m->pos[last] - m->pos[first] <= REACH &&
           !is_path_around(m, first, last);
}

static void consider(struct merging *m, const struct work *w, int item,
                     const struct offer *offer, struct offer *best)
{
    if (offer->bytes > 0 && (best->item < 0 || is_better(offer, best)) &&
        may_merge(m, w, item, offer->item))
        *best = *offer;
}

/* With the best of its neighbours, if there is one. */
static void merge_item(struct merging *m, const struct work *w, int item)
{
    const struct level *l = m->level;
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
    /* Once more, for the marks: others were looked at since. */
    if (best.item >= 0 && may_merge(m, w, item, best.item)) {
        bool first = m->pos[item] < m->pos[best.item];

        merge(m, first ? item : best.item, first ? best.item : item);
    }
}

static void merging_fini(struct merging *m)
{
    free(m->mate);
    free(m->at);
    free(m->pos);
    free(m->mark);
    free(m->stack);
    free(m->moved);
}

static bool merging_init(struct merging *m, const struct level *l, double most)
{
    size_t n = (size_t)l->dag.n + 1;

    *m = (struct merging){.level = l, .most = most, .left = l->dag.n};
    m->mate = calloc(n, sizeof(int));
    m->at = calloc(n, sizeof(int));
    m->pos = calloc(n, sizeof(int));
    m->mark = calloc(n, sizeof(int));
    m->stack = calloc(LOOK + 1, sizeof(int));
    m->moved = calloc(n, sizeof(int));
    if (m->mate == NULL || m->at == NULL || m->pos == NULL || m->mark == NULL ||
        m->stack == NULL || m->moved == NULL)
        return false;
    for (int i = 0; i < l->dag.n; i++) {
        m->mate[i] = -1;
        m->at[i] = m->pos[i] = i;
    }
    return true;
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

static enum merak_status merge_all(struct work *w, struct merging *m)
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

/* A level more, of unions up to so long; *merged_p: there were any. */
static enum merak_status coarsen_once(struct work *w, double most,
                                      bool *merged_p)
{
    struct level *l = w->level;
    struct merging m;
    int n = 0;
    enum merak_status rc;

    if (!merging_init(&m, l, most)) {
        merging_fini(&m);
        return merak_fail_nomem(w->err, (size_t)l->dag.n * sizeof(int));
    }
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
        rc = push_level(w, &l->dag, l->up, n);
    merging_fini(&m);
    return rc;
}

static enum merak_status coarsen(struct work *w)
{
    enum merak_status rc = MERAK_OK;
    bool merged = true;

    while (w->level->dag.n > w->opt->blocks && merged &&
           w->depth < MAX_LEVELS && rc == MERAK_OK) {
        double most = mean_and_two_deviations(&w->level->dag);
        double twice = 2 * w->seconds / w->level->dag.n;

        most = most > twice ? most : twice;
        rc = coarsen_once(w, most < w->most ? most : w->most, &merged);
        if (rc == MERAK_OK && !merged && most < w->most)
            rc = coarsen_once(w, w->most, &merged);
    }
    return rc;
}

/* --- compacting ----------------------------------------------------------- */

/* Rows of items that are a block each, as a list. */
struct row {
    double seconds, memory;
    int next; /* row's first item; or -1 */
};

/* The shortest two side by side that fit; -1: none do.  Of more than k rows
 * some two take no longer than a block may, but those may be too large. */
static int shortest_pair(const struct work *w, const struct row *row)
{
    int best = -1;
    double most = w->most * (1 + 1e-9), least = 0;

    for (int i = 0; row[i].next >= 0; i = row[i].next) {
        const struct row *after = &row[row[i].next];
        double seconds = row[i].seconds + after->seconds;

        if (seconds <= most && fits(w, row[i].memory + after->memory) &&
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

/* All items' numbers lead up, so that those side by side are convex. */
static enum merak_status compact(struct work *w)
{
    struct level *l = w->level;
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
    rc = push_level(w, &l->dag, l->up, number + 1);
    return rc;
}

/* --- uncoarsening --------------------------------------------------------- */

/* Blocks of a level's items. */
struct blocks {
    int n;
    int *of;                  /* by item */
    double *seconds, *memory; /* by block */
    int *items;               /* by block: how many */
    double most;              /* seconds: of one that is moved to */
};

/* Where an item may go, and whether it is drawn up or down. */
struct pull {
    int lo, hi;
    double down, up; /* bytes that it reads, that others read of it */
};

static struct pull pull_of(const struct level *l, const struct blocks *b,
                           int item)
{
    struct pull pull = {.lo = 0, .hi = b->n - 1};

    for (int i = l->next[item]; i < l->next[item + 1]; i++) {
        int to = b->of[l->dag.edge[i].to];

        pull.up += l->dag.edge[i].bytes;
        pull.hi = to < pull.hi ? to : pull.hi;
    }
    for (int i = l->prev_of[item]; i < l->prev_of[item + 1]; i++) {
        const struct merak_dag_edge *e = &l->dag.edge[l->prev[i]];

        pull.down += e->bytes;
        pull.lo = b->of[e->from] > pull.lo ? b->of[e->from] : pull.lo;
    }
    return pull;
}

static bool has_room(const struct work *w, const struct level *l,
                     const struct blocks *b, int item, int block)
{
    return b->seconds[block] + l->dag.seconds[item] <= b->most &&
           fits(w, b->memory[block] + l->dag.memory[item]);
}

/* Would the longer of two blocks be shorter? */
static bool evens_out(const struct level *l, const struct blocks *b, int item,
                      int block)
{
    return b->seconds[block] + l->dag.seconds[item] <
           b->seconds[b->of[item]] * (1 - 1e-9);
}

/* The block that it is best in: each one nearer to where it is drawn saves
 * the difference once. */
static int target_of(const struct work *w, const struct level *l,
                     const struct blocks *b, int item)
{
    struct pull pull = pull_of(l, b, item);
    int at = b->of[item];
    int end = pull.up > pull.down ? pull.hi : pull.lo;
    int step = end > at ? -1 : 1;

    if (pull.up == pull.down) {
        if (at < pull.hi && has_room(w, l, b, item, at + 1) &&
            evens_out(l, b, item, at + 1))
            return at + 1;
        return at > pull.lo && has_room(w, l, b, item, at - 1) &&
                       evens_out(l, b, item, at - 1)
                   ? at - 1
                   : at;
    }
    while (end != at && !has_room(w, l, b, item, end))
        end += step;
    return end;
}

static void move(const struct level *l, struct blocks *b, int item, int to)
{
    int from = b->of[item];

    b->seconds[from] -= l->dag.seconds[item];
    b->seconds[to] += l->dag.seconds[item];
    b->memory[from] -= l->dag.memory[item];
    b->memory[to] += l->dag.memory[item];
    b->items[from]--;
    b->items[to]++;
    b->of[item] = to;
}

static void measure(const struct work *w, const struct level *l,
                    struct blocks *b)
{
    struct merak_dag sum = {.n = b->n, .seconds = b->seconds};

    memset(b->seconds, 0, (size_t)b->n * sizeof(*b->seconds));
    memset(b->memory, 0, (size_t)b->n * sizeof(*b->memory));
    memset(b->items, 0, (size_t)b->n * sizeof(*b->items));
    for (int i = 0; i < l->dag.n; i++) {
        b->seconds[b->of[i]] += l->dag.seconds[i];
        b->memory[b->of[i]] += l->dag.memory[i];
        b->items[b->of[i]]++;
    }
    b->most = mean_and_two_deviations(&sum);
    b->most = b->most < w->most ? b->most : w->most;
}

static void refine(const struct work *w, const struct level *l,
                   struct blocks *b)
{
    bool moved = true;

    measure(w, l, b);
    for (int round = 0; round < ROUNDS && moved; round++) {
        moved = false;
        for (int i = 0; i < l->dag.n; i++) {
            int to = b->items[b->of[i]] > 1 ? target_of(w, l, b, i) : b->of[i];

            if (to == b->of[i])
                continue;
            move(l, b, i, to);
            moved = true;
        }
    }
}

/* --- the order of blocks -------------------------------------------------- */

/* Number blocks anew, if fewer bytes are alive then. */
static enum merak_status
order_blocks(struct work *w, const struct merak_dag *dag, struct blocks *b)
{
    int *order = calloc(3 * (size_t)b->n + 1, sizeof(*order));
    int *same = order + b->n, *rank = same + b->n;
    double cost;
    enum merak_status rc;

    if (order == NULL)
        return merak_fail_nomem(w->err, 3 * (size_t)b->n * sizeof(*order));
    rc = push_level(w, dag, b->of, b->n);
    if (rc == MERAK_OK)
        rc = merak_dag_order(&w->level->dag, order, &cost, w->err);
    for (int i = 0; i < b->n; i++)
        same[i] = i;
    if (rc == MERAK_OK &&
        cost < merak_dag_cost(&w->level->dag, same) * (1 - 1e-9)) {
        for (int i = 0; i < b->n; i++)
            rank[order[i]] = i;
        for (int i = 0; i < dag->n; i++)
            b->of[i] = rank[b->of[i]];
    }
    free(order);
    return rc;
}

/* --- together ------------------------------------------------------------- */

static void pop_level(struct work *w)
{
    struct level *l = w->level;

    w->level = l->finer;
    level_destroy(l);
}

/* From the coarsest level, of which each item is a block, to the finest. */
static enum merak_status uncoarsen(struct work *w, struct blocks *b,
                                   int *coarse)
{
    enum merak_status rc;

    for (int i = 0; i < b->n; i++)
        b->of[i] = i;
    rc = order_blocks(w, &w->level->dag, b);
    if (rc == MERAK_OK)
        pop_level(w);
    while (rc == MERAK_OK && w->level->finer != NULL) {
        const struct level *fine = w->level->finer;

        memcpy(coarse, b->of, (size_t)w->level->dag.n * sizeof(*coarse));
        for (int i = 0; i < fine->dag.n; i++)
            b->of[i] = coarse[fine->up[i]];
        pop_level(w);
        refine(w, w->level, b);
    }
    if (rc == MERAK_OK)
        rc = order_blocks(w, &w->level->dag, b);
    if (rc == MERAK_OK) {
        pop_level(w);
        refine(w, w->level, b);
    }
    return rc;
}

static enum merak_status make_blocks(struct work *w, int *block,
                                     int *n_blocks_p)
{
    struct blocks b = {.n = w->level->dag.n, .of = block};
    size_t n = (size_t)b.n + 1;
    int *coarse = calloc((size_t)w->n + 1, sizeof(*coarse));
    enum merak_status rc = MERAK_OK;

    b.seconds = calloc(n, sizeof(*b.seconds));
    b.memory = calloc(n, sizeof(*b.memory));
    b.items = calloc(n, sizeof(*b.items));
    if (coarse == NULL || b.seconds == NULL || b.memory == NULL ||
        b.items == NULL)
        rc = merak_fail_nomem(w->err, n * sizeof(double));
    if (rc == MERAK_OK)
        rc = uncoarsen(w, &b, coarse);
    *n_blocks_p = b.n;
    free(coarse);
    free(b.seconds);
    free(b.memory);
    free(b.items);
    return rc;
}

enum merak_status merak_dag_blocks(const struct merak_dag *dag,
                                   const struct merak_block_options *opt,
                                   int *block, int *n_blocks_p,
                                   struct merak_error *err)
{
    struct work w = {.opt = opt, .n = dag->n, .err = err};
    enum merak_status rc;

    if (opt->blocks < 1)
        return merak_fail(err, MERAK_ERR_PARAM, "%d blocks: at least 1",
                          opt->blocks);
    *n_blocks_p = 0;
    if (dag->n == 0)
        return MERAK_OK;
    for (int i = 0; i < dag->n; i++) {
        w.seconds += dag->seconds[i];
        block[i] = i;
    }
    w.most = 2 * w.seconds / opt->blocks;
    rc = push_level(&w, dag, block, dag->n);
    if (rc == MERAK_OK)
        rc = coarsen(&w);
    if (rc == MERAK_OK)
        rc = compact(&w);
    if (rc == MERAK_OK)
        rc = make_blocks(&w, block, n_blocks_p);
    while (w.level != NULL)
        pop_level(&w);
    return rc;
}
