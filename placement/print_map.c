/* SPDX-License-Identifier: Apache-2.0 */
/* print_map.c - the text of --merak-map=show */
#include "config.h"

#include "placement/placement_impl.h"

#include <inttypes.h>

static void print_level(FILE *out, int level, int levels)
{
    if (level == 0)
        fputs("in a node", out);
    else if (levels == 2)
        fputs("between nodes", out);
    else if (level == 1)
        fputs("under one leaf switch", out);
    else if (level == levels - 1)
        fputs("with no common switch", out);
    else
        fprintf(out, "across %d switch levels", level);
}

/* "  tp groups of 2: 4 in a node" */
static void print_axis(const struct merak_placement *p, FILE *out,
                       enum merak_parallel_axis axis)
{
    const char *const names[] = {merak_tensor_group_word(p->cp, p->ep), "pp",
                                 "dp"};
    int levels = merak_placement_levels(p);
    const char *separator = ": ";

    if (merak_placement_degree(p, axis) == 1)
        return;
    fprintf(out, "  %s groups of %d", names[axis],
            merak_placement_degree(p, axis));
    for (int level = 0; level < levels; level++) {
        int n = merak_placement_groups_at(p, axis, level);

        if (n == 0)
            continue;
        fprintf(out, "%s%d ", separator, n);
        print_level(out, level, levels);
        separator = ", ";
    }
    fputc('\n', out);
}

static void print_node(const struct merak_placement *p, FILE *out, int place)
{
    int node = p->walk.node[place];

    fprintf(out, "  %s %s:", p->node_path[node], p->node_name[node]);
    for (int task = 0; task < p->n_tasks; task++) {
        struct merak_coords c;

        if (p->place_of_task[task] != place)
            continue;
        c = merak_placement_coords(p, p->logical_of[task]);
        fprintf(out, " %d=t%d.p%d.d%d", task, c.tp, c.pp, c.dp);
    }
    fputc('\n', out);
}

/* --- unlike stages -------------------------------------------------------- */

/* Where a task is in stages "2x4-8x1", in the order of which tasks are their
 * ranks; false behind the last one. */
static bool find_stage(const char *ranks, int task, int *stage, int *dp_index,
                       int *tp_index)
{
    int dp, tp, n;

    for (*stage = 0; sscanf(ranks, "%5dx%5d%n", &dp, &tp, &n) == 2; ++*stage) {
        if (dp < 1 || tp < 1)
            return false;
        if (task < dp * tp) {
            *dp_index = task / tp;
            *tp_index = task % tp;
            return true;
        }
        task -= dp * tp;
        ranks += n;
        ranks += *ranks == '-';
    }
    return false;
}

static void print_stages_of(const struct merak_placement *p, FILE *out,
                            const char *ranks, int place)
{
    int node = p->walk.node[place], stage, d, t;

    fprintf(out, "  %s %s:", p->node_path[node], p->node_name[node]);
    for (int task = 0; task < p->n_tasks; task++) {
        if (p->place_of_task[task] != place)
            continue;
        if (find_stage(ranks, task, &stage, &d, &t))
            fprintf(out, " %d=t%d.p%d.d%d", task, t, stage, d);
        else
            fprintf(out, " %d=none", task);
    }
    fputc('\n', out);
}

static void print_stages(const struct merak_placement *p, FILE *out,
                         const char *ranks, int max_nodes)
{
    fprintf(out,
            "merak: placement %016" PRIx64 ": %d tasks on %d node%s, stages of "
            "unlike ranks %s (replicas x tp), tasks in order\n"
            "  node: task=t(tp).p(stage).d(replica) ...\n",
            p->id, p->n_tasks, p->n_nodes, p->n_nodes == 1 ? "" : "s", ranks);
    for (int i = 0; i < p->n_nodes && i < max_nodes; i++)
        print_stages_of(p, out, ranks, i);
    if (p->n_nodes > max_nodes)
        fprintf(out, "  and %d more nodes\n", p->n_nodes - max_nodes);
}

void merak_placement_print(const struct merak_placement *p, FILE *out,
                           const char *stages, int max_nodes)
{
    int tp = p->degree[MERAK_AXIS_TP] / p->cp / p->ep;
    char degrees[MERAK_GROUP_TEXT];

    if (stages[0] != '\0') {
        print_stages(p, out, stages, max_nodes);
        return;
    }
    merak_group_text(tp, p->cp, p->ep, p->degree[MERAK_AXIS_PP], degrees);
    fprintf(out,
            "merak: placement %016" PRIx64 ": %d tasks on %d node%s, %s x "
            "dp=%d, order %s\n",
            p->id, p->n_tasks, p->n_nodes, p->n_nodes == 1 ? "" : "s", degrees,
            p->degree[MERAK_AXIS_DP], merak_order_name(p->order));
    for (int axis = 0; axis < MERAK_AXIS_COUNT; axis++)
        print_axis(p, out, (enum merak_parallel_axis)axis);
    fprintf(out, "  node: task=t(%s).p(stage).d(replica) ...\n",
            p->cp > 1   ? "tp + cp x tp-size"
            : p->ep > 1 ? "ep"
                        : "tp");
    for (int i = 0; i < p->n_nodes && i < max_nodes; i++)
        print_node(p, out, i);
    if (p->n_nodes > max_nodes)
        fprintf(out, "  and %d more nodes\n", p->n_nodes - max_nodes);
}
