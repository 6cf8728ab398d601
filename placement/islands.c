/* SPDX-License-Identifier: Apache-2.0 */
/* islands.c - tasks along the walk, cut into tensor groups */
#include "config.h"

#include "placement/placement_impl.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "3,1": the number of tasks of each of the first nodes. */
static void list_counts(const struct merak_placing *b, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; i < b->p->n_nodes; i++) {
        int count = b->count[b->p->walk.place_of[i]];
        int n =
            snprintf(text + used, size - used, "%s%d", i > 0 ? "," : "", count);

        if ((size_t)n >= size - used || i == 16) {
            snprintf(text + (used < size - 5 ? used : size - 5), 5, ",...");
            return;
        }
        used += (size_t)n;
    }
}

/* Fail since TP groups cannot fill the tasks of the node at `place`. */
static enum merak_status fail_node(const struct merak_placing *b, int place,
                                   struct merak_error *err)
{
    const struct merak_placement *p = b->p;
    const char *name = p->node_name[p->walk.node[place]];
    int tp = p->degree[MERAK_AXIS_TP], count = b->count[place];
    int even = p->n_tasks / p->n_nodes; /* if all had the same */
    const char *what = merak_tensor_group_word(p->cp, p->ep);
    char counts[64];

    if (count < tp)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%s=%d does not fit in node %s, which has %d "
                          "task%s; nearest: --ntasks-per-node=%d, %s=%d, or "
                          "--merak-tp-domain=any",
                          what, tp, name, count, count == 1 ? "" : "s", tp,
                          what, count);
    if (even % tp != 0 || p->n_tasks % p->n_nodes != 0)
        even = even / tp * tp > 0 ? even / tp * tp : tp;
    list_counts(b, counts, sizeof(counts));
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "node %s has %d tasks (of %s), not a multiple of %s=%d; "
                      "nearest: --ntasks-per-node=%d",
                      name, count, counts, what, tp, even);
}

/* Fail since TP groups cannot fill the `count` tasks of the leaf of the node at
 * `place`, or it is not known. */
static enum merak_status fail_leaf(const struct merak_placing *b, int place,
                                   int count, struct merak_error *err)
{
    const struct merak_placement *p = b->p;
    int node = p->walk.node[place], tp = p->degree[MERAK_AXIS_TP];
    int each = p->n_tasks / p->n_nodes; /* if all had the same */
    const char *path = p->node_path[node], *leaf = strrchr(path, '.');
    const char *what = merak_tensor_group_word(p->cp, p->ep);
    char segment[48] = "";

    if (*path == '\0')
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--merak-tp-domain=leaf: Slurm names no leaf switch "
                          "or block of node %s; give node or any",
                          p->node_name[node]);
    if (each > 0 && tp % each == 0)
        snprintf(segment, sizeof(segment), "as sbatch --segment=%d gives, ",
                 tp / each);
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "leaf %s has %d task%s, not a multiple of %s=%d; give "
                      "each leaf whole groups, %sor --merak-tp-domain=any",
                      leaf != NULL ? leaf + 1 : path, count,
                      count == 1 ? "" : "s", what, tp, segment);
}

/* Nodes of a leaf are adjacent in the walk. */
static enum merak_status check_leaves(const struct merak_placing *b,
                                      struct merak_error *err)
{
    const struct merak_placement *p = b->p;
    int tp = p->degree[MERAK_AXIS_TP], count = 0;

    for (int i = 0; i < p->n_nodes; i++) {
        const char *path = p->node_path[p->walk.node[i]];
        bool is_last = i + 1 == p->n_nodes ||
                       strcmp(p->node_path[p->walk.node[i + 1]], path) != 0;

        count += b->count[i];
        if (*path == '\0' || (is_last && count % tp != 0))
            return fail_leaf(b, i, count, err);
        count = is_last ? 0 : count;
    }
    return MERAK_OK;
}

enum merak_status merak_placing_list(struct merak_placing *b,
                                     struct merak_error *err)
{
    struct merak_placement *p = b->p;
    int *next = calloc((size_t)p->n_nodes, sizeof(*next));

    if (next == NULL)
        return merak_fail_nomem(err, (size_t)p->n_nodes * sizeof(*next));
    for (int i = 0; i < p->n_tasks; i++) {
        p->place_of_task[i] = p->walk.place_of[b->site->node_of_task[i]];
        b->count[p->place_of_task[i]]++;
    }
    for (int i = 1; i < p->n_nodes; i++)
        next[i] = next[i - 1] + b->count[i - 1];
    for (int i = 0; i < p->n_tasks; i++)
        b->tasks[next[p->place_of_task[i]]++] = i;
    free(next);
    return MERAK_OK;
}

enum merak_status merak_placing_cut(struct merak_placing *b,
                                    struct merak_error *err)
{
    struct merak_placement *p = b->p;
    int tp = p->degree[MERAK_AXIS_TP];

    b->leaves = p->tp_domain != MERAK_DOMAIN_NODE ||
                merak_tensor_groups_are_nodes(p, b->count);
    for (int i = 0; i < p->n_nodes; i++) {
        if (!b->leaves && b->count[i] % tp != 0)
            return fail_node(b, i, err);
    }
    if (p->tp_domain == MERAK_DOMAIN_LEAF && check_leaves(b, err) != MERAK_OK)
        return MERAK_ERR_CONFIG;
    memset(b->count, 0, (size_t)p->n_nodes * sizeof(*b->count));
    for (int i = 0; i < p->n_tasks; i += tp)
        b->count[p->place_of_task[b->tasks[i]]]++;
    return MERAK_OK;
}
