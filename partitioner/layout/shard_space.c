/* SPDX-License-Identifier: Apache-2.0 */
/* shard_space.c - over which dims of space the ranks of cp are a grid
 *
 * A rank exchanges the points on the faces of its part.  Of a cube of n points
 * a side, in four slabs, two faces of n^2; in 2 x 2, two of n^2 / 2.
 */
#include "config.h"

#include "partitioner/layout/shard_impl.h"

#include "partitioner/graph/letters.h"

#include "base/error.h"
#include "base/factors.h"
#include "base/size.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The k-th dim of space: the points that factors of cp have to divide, the
 * greatest common divisor of what inputs have along it. */
static size_t points_along(const struct merak_graph *graph, int k)
{
    char letter = merak_graph_space_letter(graph, k);
    size_t n = 0;

    for (int i = 0; i < graph->n_inputs; i++) {
        const struct merak_input *input = &graph->input[i];

        for (int d = 0; d < input->shape.ndim; d++) {
            if (input->letter[d] == letter)
                n = merak_size_gcd(n, input->shape.dim[d]);
        }
    }
    return n;
}

static int space_dims(const struct merak_graph *graph)
{
    int n = 0;

    while (n < MERAK_MAX_FACTORS && merak_graph_space_letter(graph, n) != 0)
        n++;
    return n;
}

/* The first dim that the factors do not divide, or -1. */
static int dim_in_the_way(const struct merak_graph *graph, int64_t grid)
{
    int list[MERAK_MAX_FACTORS], n = merak_factors_list(grid, list);

    for (int k = 0; k < n; k++) {
        if (points_along(graph, k) % (size_t)list[k] != 0)
            return k;
    }
    return -1;
}

/* Points on those faces of a part that have a neighbour, at the busiest rank,
 * by the points that all inputs have along each dim. */
static double faces(const struct merak_graph *graph, int64_t grid)
{
    int list[MERAK_MAX_FACTORS], n = merak_factors_list(grid, list);
    int dims = space_dims(graph);
    double part = 1, sum = 0;

    for (int k = 0; k < dims; k++)
        part *= (double)points_along(graph, k) / (k < n ? list[k] : 1);
    for (int k = 0; k < n; k++)
        sum += (list[k] > 2 ? 2 : 1) * part /
               ((double)points_along(graph, k) / list[k]);
    return sum;
}

static enum merak_status fail_points(const struct merak_graph *graph,
                                     int64_t grid, int k,
                                     struct merak_error *err)
{
    int list[MERAK_MAX_FACTORS];
    size_t points = points_along(graph, k), parts;
    char letter = merak_graph_space_letter(graph, k);

    merak_factors_list(grid, list);
    parts = (size_t)list[k];
    for (int i = 0; i < graph->n_inputs; i++) {
        const struct merak_input *input = &graph->input[i];

        for (int d = 0; d < input->shape.ndim; d++) {
            if (input->letter[d] != letter || input->shape.dim[d] % parts == 0)
                continue;
            merak_fail(err, MERAK_ERR_CONFIG,
                       "input %s has %zu points along %c, which cannot be cut "
                       "over cp=%zu",
                       input->name, input->shape.dim[d], letter, parts);
            return merak_divisors_fix(points, parts, err);
        }
    }
    return MERAK_OK;
}

/* Is what --cp-axes asks for possible? */
static enum merak_status check_asked(const struct merak_graph *graph,
                                     const struct merak_shard_options *opt,
                                     int most, struct merak_error *err)
{
    int list[MERAK_MAX_FACTORS], n = merak_factors_list(opt->cp_axes, list);
    int64_t product = merak_factors_product(opt->cp_axes);
    bool positions =
        merak_graph_sequence_letter(graph) == MERAK_LETTER_POSITIONS;
    int dims = space_dims(graph), k = -1;
    char text[MERAK_FACTORS_TEXT];

    merak_factors_text(opt->cp_axes, "x", text);
    if (positions || dims == 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--cp-axes %s cuts dims of space, and this model has "
                          "%s: leave it out",
                          text, positions ? "sequences" : "none");
    if (product != opt->cp) {
        merak_fail(err, MERAK_ERR_CONFIG, "--cp-axes %s is not cp %d", text,
                   opt->cp);
        return merak_error_fix(err, MERAK_ERR_CONFIG, ": use --cp %lld",
                               (long long)product);
    }
    if (n > dims)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--cp-axes %s cuts %d dims of space, and this model "
                          "has %d: use fewer factors",
                          text, n, dims);
    if (n > most)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--cp-axes %s makes %d axes beside tp and ep, "
                          "expected at most %d: use fewer factors",
                          text, n, most);
    k = dim_in_the_way(graph, opt->cp_axes);
    return k < 0 ? MERAK_OK : fail_points(graph, opt->cp_axes, k, err);
}

/* Of n factors those with the fewest points on faces, of equal ones those with
 * the most parts of the first dim, which lie in a row; 0: none divide. */
static int64_t best_grid(const struct merak_graph *graph, int cp, int n)
{
    double least = INFINITY;
    int64_t next = 0, best = 0;

    while (merak_factors_next(cp, n, &next)) {
        double all =
            dim_in_the_way(graph, next) < 0 ? faces(graph, next) : INFINITY;

        if (all <= least && !isinf(all)) {
            best = next;
            least = all;
        }
    }
    return best;
}

enum merak_status merak_space_grids(const struct merak_graph *graph,
                                    const struct merak_shard_options *opt,
                                    int most, int64_t grid[MERAK_MAX_MESHES],
                                    int *n_p, struct merak_error *err)
{
    int dims = space_dims(graph);
    enum merak_status rc;

    *n_p = 1;
    grid[0] = 0;
    if (opt->cp_axes > 0) {
        rc = check_asked(graph, opt, most, err);
        grid[0] = opt->cp_axes;
        return rc;
    }
    if (opt->cp < 2 || dims == 0 ||
        merak_graph_sequence_letter(graph) == MERAK_LETTER_POSITIONS)
        return MERAK_OK;
    *n_p = 0;
    for (int n = 1; n <= dims && (n <= most || n == 1); n++) {
        grid[*n_p] = best_grid(graph, opt->cp, n);
        *n_p += grid[*n_p] != 0;
    }
    return *n_p > 0 ? MERAK_OK : fail_points(graph, opt->cp, 0, err);
}

void merak_space_cuts_text(const struct merak_sequence_cuts *cuts, char *text,
                           size_t bytes)
{
    char grid[MERAK_FACTORS_TEXT];
    size_t n = strlen(cuts->letters);
    size_t at = (size_t)snprintf(text, bytes, "; over cp samples are cut along ");

    for (size_t i = 0; i < n && at < bytes; i++)
        at += (size_t)snprintf(text + at, bytes - at, "%s%c",
                               i == 0       ? ""
                               : i + 1 == n ? " and "
                                            : ", ",
                               cuts->letters[i]);
    if (n > 1 && at < bytes)
        snprintf(text + at, bytes - at, ", %s",
                 merak_factors_text(cuts->grid, " x ", grid));
}
