/* SPDX-License-Identifier: Apache-2.0 */
/* arrange.c - assign islands to the cells of the grid of stages and replicas
 *
 * The cost of a map is the sum, over each link of a pipeline (stage s to s + 1)
 * and of a ring of replicas (r to r + 1), of the bytes it carries times 4 to
 * the power of the level it spans: links between nodes are much slower than
 * those inside, and fabrics have less bandwidth at higher levels.
 *
 * The search starts from three maps: islands packed into groups of the nearer
 * axis (walk.c), the same with islands and groups sorted by position, and
 * islands in the order of the walk, as with ranks numbered along it.  Each is
 * improved by swapping lines of the grid, and cells, while that lowers the
 * cost; the cheapest is taken.  So no map is worse than ranks along the walk.
 *
 * It only uses integers and is bounded by a count of steps, not by a clock:
 * every task of a step has to find the same map.
 */
#include "config.h"

#include "placement/placement_impl.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

enum {
    /* links evaluated for one kind of move in a round, and rounds */
    MAX_WORK = 1 << 17,
    MAX_ROUNDS = 8,
    /* cells up to which all pairs are tried; in larger grids, only those that
     * would bring an island close to its peer's */
    ALL_PAIRS = 128,
    NEAR = 8,
};

struct arrangement {
    const struct merak_grid *grid;
    int n;
    int *at;      /* [n] island of each cell, stage * dp + replica */
    int *cell_of; /* [n] cell of each island */
    int64_t work; /* links that may still be evaluated */
};

/* Cost per byte of the link between two islands. */
static int64_t link_cost(struct arrangement *a, int island, int other)
{
    const struct merak_grid *g = a->grid;
    const int *x = g->place + (size_t)island * (size_t)g->width;
    const int *y = g->place + (size_t)other * (size_t)g->width;
    int64_t cost = 0;

    a->work -= g->width;
    for (int i = 0; i < g->width; i++)
        cost += (int64_t)1 << (2 * merak_walk_level(g->walk, x[i], y[i]));
    return cost;
}

/* Cost of a cell's links to the next stage and to the next replica. */
static int64_t links_from(struct arrangement *a, int cell)
{
    const struct merak_grid *g = a->grid;
    int replica = cell % g->dp, row = cell - replica;
    int64_t cost = 0;

    if (g->dp > 1 && g->dp_weight > 0)
        cost += g->dp_weight *
                link_cost(a, a->at[cell], a->at[row + (replica + 1) % g->dp]);
    if (cell + g->dp < a->n && g->pp_weight > 0)
        cost += g->pp_weight * link_cost(a, a->at[cell], a->at[cell + g->dp]);
    return cost;
}

/* Cost of all links of a cell. */
static int64_t links_of(struct arrangement *a, int cell)
{
    const struct merak_grid *g = a->grid;
    int replica = cell % g->dp, row = cell - replica;
    int64_t cost = links_from(a, cell);

    if (g->dp > 1 && g->dp_weight > 0)
        cost += g->dp_weight *
                link_cost(a, a->at[cell],
                          a->at[row + (replica + g->dp - 1) % g->dp]);
    if (row > 0 && g->pp_weight > 0)
        cost += g->pp_weight * link_cost(a, a->at[cell], a->at[cell - g->dp]);
    return cost;
}

static int64_t whole_cost(struct arrangement *a)
{
    int64_t cost = 0;

    for (int cell = 0; cell < a->n; cell++)
        cost += links_from(a, cell);
    return cost;
}

static void swap_cells(struct arrangement *a, int x, int y)
{
    int island = a->at[x];

    a->at[x] = a->at[y];
    a->at[y] = island;
    a->cell_of[a->at[x]] = x;
    a->cell_of[a->at[y]] = y;
}

/* Swap the islands of two cells if that lowers the cost.  A link between the
 * two costs the same either way. */
static bool try_cells(struct arrangement *a, int x, int y)
{
    int64_t before;

    if (x == y)
        return false;
    before = links_of(a, x) + links_of(a, y);
    swap_cells(a, x, y);
    if (links_of(a, x) + links_of(a, y) < before)
        return true;
    swap_cells(a, x, y);
    return false;
}

/* --- lines of the grid ---------------------------------------------------- */

/* The cells of a line along an axis: first, step, number. */
struct line {
    int first, step, n;
};

static struct line line_of(const struct merak_grid *g, bool stage, int i)
{
    return stage ? (struct line){i * g->dp, 1, g->dp}
                 : (struct line){i, g->dp, g->pp};
}

static void swap_lines(struct arrangement *a, struct line x, struct line y)
{
    a->work -= x.n;
    for (int i = 0; i < x.n; i++)
        swap_cells(a, x.first + i * x.step, y.first + i * y.step);
}

/* Rotate the line's islands by one cell. */
static void rotate_line(struct arrangement *a, struct line x)
{
    a->work -= x.n;
    for (int i = x.n - 1; i > 0; i--)
        swap_cells(a, x.first + i * x.step, x.first + (i - 1) * x.step);
}

static void reverse_lines(struct arrangement *a, bool stage, int from, int to)
{
    for (; from < to; from++, to--)
        swap_lines(a, line_of(a->grid, stage, from),
                   line_of(a->grid, stage, to));
}

/* Cost of the links of a line; those inside it do not change if it moves. */
static int64_t links_of_line(struct arrangement *a, struct line x)
{
    int64_t cost = 0;

    for (int i = 0; i < x.n; i++)
        cost += links_of(a, x.first + i * x.step);
    return cost;
}

static void move_lines(struct arrangement *a, bool stage, int i, int k,
                       bool reverse)
{
    if (reverse)
        reverse_lines(a, stage, i, k);
    else
        swap_lines(a, line_of(a->grid, stage, i), line_of(a->grid, stage, k));
}

/* Swap two lines, or reverse all from one to the other, if that lowers the
 * cost.  Only links of these two change. */
static bool try_lines(struct arrangement *a, bool stage, int i, int k,
                      bool reverse)
{
    const struct line x = line_of(a->grid, stage, i);
    const struct line y = line_of(a->grid, stage, k);
    int64_t before = links_of_line(a, x) + links_of_line(a, y);

    move_lines(a, stage, i, k, reverse);
    if (links_of_line(a, x) + links_of_line(a, y) < before)
        return true;
    move_lines(a, stage, i, k, reverse);
    return false;
}

static bool improve_lines(struct arrangement *a, bool stage)
{
    int n = stage ? a->grid->pp : a->grid->dp;
    bool better = false;

    for (int i = 0; i < n; i++) {
        for (int k = i + 1; k < n && a->work > 0; k++) {
            better = try_lines(a, stage, i, k, false) || better;
            better = try_lines(a, stage, i, k, true) || better;
        }
    }
    return better;
}

/* Rotate the replicas of a stage along its ring to where the links to the
 * adjacent stages are cheapest. */
static bool improve_ring(struct arrangement *a, struct line stage)
{
    int64_t least = links_of_line(a, stage);
    int best = 0;

    for (int turn = 1; turn <= stage.n; turn++) {
        int64_t now;

        rotate_line(a, stage);
        now = links_of_line(a, stage);
        if (now < least) {
            least = now;
            best = turn;
        }
    }
    for (int turn = 0; turn < best; turn++)
        rotate_line(a, stage);
    return best > 0;
}

static bool improve_rings(struct arrangement *a)
{
    const struct merak_grid *g = a->grid;
    bool better = false;

    for (int i = 0; i < g->pp && g->pp > 1 && g->dp > 1; i++) {
        /* links that the rotations of one ring evaluate */
        if ((int64_t)g->dp * g->dp * 4 <= a->work)
            better = improve_ring(a, line_of(g, true, i)) || better;
    }
    return better;
}

/* --- cells ---------------------------------------------------------------- */

static bool improve_cell(struct arrangement *a, int cell)
{
    const struct merak_grid *g = a->grid;
    int replica = cell % g->dp, row = cell - replica;
    const int peers[] = {row + (replica + 1) % g->dp,
                         row + (replica + g->dp - 1) % g->dp,
                         cell + g->dp < a->n ? cell + g->dp : cell,
                         row > 0 ? cell - g->dp : cell};
    bool better = false;

    if (a->n <= ALL_PAIRS) {
        for (int other = cell + 1; other < a->n; other++)
            better = try_cells(a, cell, other) || better;
        return better;
    }
    for (int i = 0; i < 4; i++) {
        int island = a->at[peers[i]];

        for (int d = -NEAR; d <= NEAR && peers[i] != cell; d++) {
            if (island + d >= 0 && island + d < a->n)
                better = try_cells(a, cell, a->cell_of[island + d]) || better;
        }
    }
    return better;
}

static bool improve_cells(struct arrangement *a)
{
    bool better = false;

    for (int cell = 0; cell < a->n && a->work > 0; cell++)
        better = improve_cell(a, cell) || better;
    return better;
}

/* --- one map, and the best of three --------------------------------------- */

/* Improve the map in at[] and return its cost. */
static int64_t improve(struct arrangement *a)
{
    bool better = true;

    for (int cell = 0; cell < a->n; cell++)
        a->cell_of[a->at[cell]] = cell;
    for (int round = 0; better && round < MAX_ROUNDS; round++) {
        better = false;
        for (int way = 0; way < 4; way++) {
            a->work = MAX_WORK;
            better = (way == 0   ? improve_lines(a, true)
                      : way == 1 ? improve_lines(a, false)
                      : way == 2 ? improve_rings(a)
                                 : improve_cells(a)) ||
                     better;
        }
    }
    return whole_cost(a);
}

/* The cell that the i-th island is assigned to. */
static int cell_at(const struct merak_grid *g, enum merak_order order, int i)
{
    return order == MERAK_ORDER_TP_DP_PP ? i : i % g->pp * g->dp + i / g->pp;
}

static int compare_ints(const void *x, const void *y)
{
    const int *a = x, *b = y;

    return (*a > *b) - (*a < *b);
}

/* Sort the islands of each group, and groups by their first island. */
static void sort_groups(int *islands, int n, int group)
{
    for (int i = 0; i < n; i += group)
        qsort(islands + i, (size_t)group, sizeof(*islands), compare_ints);
    qsort(islands, (size_t)(n / group), (size_t)group * sizeof(*islands),
          compare_ints);
}

/* Improve the map that assigns islands in this order; keep the best so far. */
static void begin_with(struct arrangement *a, enum merak_order order,
                       const int *islands, int *best, int64_t *best_cost)
{
    int64_t cost;

    for (int i = 0; i < a->n; i++)
        a->at[cell_at(a->grid, order, i)] = islands[i];
    cost = improve(a);
    if (cost >= *best_cost)
        return;
    *best_cost = cost;
    memcpy(best, a->at, (size_t)a->n * sizeof(*best));
}

enum merak_status merak_arrange(const struct merak_grid *grid,
                                enum merak_order order, const int *count,
                                int *island_of, int64_t *cost_p,
                                struct merak_error *err)
{
    struct arrangement a = {.grid = grid, .n = grid->pp * grid->dp};
    int group = order == MERAK_ORDER_TP_DP_PP ? grid->dp : grid->pp;
    size_t n = (size_t)a.n;
    int *scratch = calloc(3 * n, sizeof(*scratch));
    enum merak_status rc;
    int *islands;

    if (scratch == NULL)
        return merak_fail_nomem(err, 3 * n * sizeof(*scratch));
    islands = scratch + 2 * n;
    a.at = scratch;
    a.cell_of = scratch + n;
    rc = merak_pack_islands(grid->walk, count, group, islands, err);
    *cost_p = INT64_MAX;
    if (rc == MERAK_OK) {
        begin_with(&a, order, islands, island_of, cost_p);
        sort_groups(islands, a.n, group);
        begin_with(&a, order, islands, island_of, cost_p);
        sort_groups(islands, a.n, a.n);
        begin_with(&a, order, islands, island_of, cost_p);
    }
    free(scratch);
    return rc;
}
