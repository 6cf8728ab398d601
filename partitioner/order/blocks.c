/* SPDX-License-Identifier: Apache-2.0 */
/* blocks.c - items to blocks, by merging and moving
 *
 * As RaNNC (Tanaka et al. 2021) makes blocks of atoms:
 *
 *   coarsen    shortest first, an item is merged with the neighbour that the
 *              most bytes cross to, if the union is convex, fits and takes no
 *              longer than the mean plus two standard deviations; the unions
 *              are merged likewise, until k are left or none can be merged;
 *   compact    the pair of least time, adjacent in an order that all can run
 *              in, is merged until k are left;
 *   uncoarsen  merges are undone level by level, and items at the edge of a
 *              block move to another one if fewer bytes cross then.
 *
 * Differences.  Kernels run one by one, so a union takes the sum of its parts,
 * and what a merge saves is the bytes that no longer cross; nothing is
 * measured.  Items that take equally long have no deviation: a union may take
 * twice the mean.  From the first merge on, every edge leads to a block with a
 * higher number, which is more than convexity: all cuts between blocks are cuts
 * through one order.  That order is the one with the fewest bytes alive
 * (dag_order.c), and a move is judged by the bytes over all of its cuts, not
 * by those between two blocks.
 *
 * Items are merged in coarsen.c; here merges are undone.
 */
#include "config.h"

#include "partitioner/order/coarsen.h"

#include "base/arrays.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

#define ROUNDS 4 /* of moves on a level, at most */

/* --- uncoarsening --------------------------------------------------------- */

/* Blocks of a level's items. */
struct blocks {
    int n;
    int *of;                  /* by item */
    double *seconds, *memory; /* by block */
    int *items;               /* by block: how many */
    double most;              /* seconds a block may take after a move to it */
};

/* The blocks that an item may move to, and how strongly each way pulls it. */
struct pull {
    int lo, hi;
    double down, up; /* bytes that it reads, that others read of it */
};

static struct pull pull_of(const struct merak_level *l, const struct blocks *b,
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

static bool has_room(const struct merak_coarsening *w,
                     const struct merak_level *l, const struct blocks *b,
                     int item, int block)
{
    return b->seconds[block] + l->dag.seconds[item] <= b->most &&
           merak_block_fits(w, b->memory[block] + l->dag.memory[item]);
}

/* Would the longer of two blocks be shorter? */
static bool evens_out(const struct merak_level *l, const struct blocks *b,
                      int item, int block)
{
    return b->seconds[block] + l->dag.seconds[item] <
           b->seconds[b->of[item]] * (1 - 1e-9);
}

/* The best block for an item: each step in the direction of the stronger pull
 * saves the difference between the two once. */
static int target_of(const struct merak_coarsening *w,
                     const struct merak_level *l, const struct blocks *b,
                     int item)
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

static void move(const struct merak_level *l, struct blocks *b, int item,
                 int to)
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

static void measure(const struct merak_coarsening *w,
                    const struct merak_level *l, struct blocks *b)
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
    b->most = merak_level_deviation(&sum);
    b->most = b->most < w->most ? b->most : w->most;
}

static void refine(const struct merak_coarsening *w,
                   const struct merak_level *l, struct blocks *b)
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

/* Renumber the blocks if fewer bytes are alive in the new order. */
static enum merak_status order_blocks(struct merak_coarsening *w,
                                      const struct merak_dag *dag,
                                      struct blocks *b)
{
    int *order = calloc(3 * (size_t)b->n + 1, sizeof(*order));
    int *same = order + b->n, *rank = same + b->n;
    double cost;
    enum merak_status rc;

    if (order == NULL)
        return merak_fail_nomem(w->err, 3 * (size_t)b->n * sizeof(*order));
    rc = merak_level_push(w, dag, b->of, b->n);
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

/* From the coarsest level, each item of which is a block, to the finest. */
static enum merak_status uncoarsen(struct merak_coarsening *w, struct blocks *b,
                                   int *coarse)
{
    enum merak_status rc;

    for (int i = 0; i < b->n; i++)
        b->of[i] = i;
    rc = order_blocks(w, &w->level->dag, b);
    if (rc == MERAK_OK)
        merak_level_pop(w);
    while (rc == MERAK_OK && w->level->finer != NULL) {
        const struct merak_level *fine = w->level->finer;

        memcpy(coarse, b->of, (size_t)w->level->dag.n * sizeof(*coarse));
        for (int i = 0; i < fine->dag.n; i++)
            b->of[i] = coarse[fine->up[i]];
        merak_level_pop(w);
        refine(w, w->level, b);
    }
    if (rc == MERAK_OK)
        rc = order_blocks(w, &w->level->dag, b);
    if (rc == MERAK_OK) {
        merak_level_pop(w);
        refine(w, w->level, b);
    }
    return rc;
}

static enum merak_status make_blocks(struct merak_coarsening *w, int *block,
                                     int *n_blocks_p)
{
    struct blocks b = {.n = w->level->dag.n, .of = block};
    size_t n = (size_t)b.n + 1;
    int *coarse;
    const struct merak_array arrays[] = {
        MERAK_ARRAY(coarse, (size_t)w->n + 1), MERAK_ARRAY(b.seconds, n),
        MERAK_ARRAY(b.memory, n), MERAK_ARRAY(b.items, n)};
    enum merak_status rc = MERAK_ARRAYS(arrays, w->err);

    if (rc == MERAK_OK)
        rc = uncoarsen(w, &b, coarse);
    *n_blocks_p = b.n;
    free(coarse);
    return rc;
}

enum merak_status merak_dag_blocks(const struct merak_dag *dag,
                                   const struct merak_block_options *opt,
                                   int *block, int *n_blocks_p,
                                   struct merak_error *err)
{
    struct merak_coarsening w = {.opt = opt, .n = dag->n, .err = err};
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
    rc = merak_level_push(&w, dag, block, dag->n);
    if (rc == MERAK_OK)
        rc = merak_coarsen(&w);
    if (rc == MERAK_OK)
        rc = merak_compact(&w);
    if (rc == MERAK_OK)
        rc = make_blocks(&w, block, n_blocks_p);
    while (w.level != NULL)
        merak_level_pop(&w);
    return rc;
}
