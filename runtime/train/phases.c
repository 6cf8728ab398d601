/* SPDX-License-Identifier: Apache-2.0 */
/* phases.c - the phases from a model to its programs, one per section
 *
 * The model's graph; how each node is split (layouts); the nodes between two
 * cut points (blocks); which stage and which ranks run them (stages); the
 * order in which a stage works (schedule); and all of it as instructions
 * (program).
 */
#include "config.h"

#include "runtime/train/phases.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum merak_status (*print_fn)(const struct merak_planned *planned,
                                      struct merak_error *err);

/* --- graph, layouts, program: texts made by other modules -----------------
 */

static enum merak_status put(enum merak_status rc, char *text)
{
    if (rc == MERAK_OK) {
        fputs(text, stdout);
        free(text);
    }
    return rc;
}

static enum merak_status print_graph(const struct merak_planned *planned,
                                     struct merak_error *err)
{
    char *text = NULL;
    enum merak_status rc = merak_graph_print(planned->graph, &text, err);

    return put(rc, text);
}

static enum merak_status print_layouts(const struct merak_planned *planned,
                                       struct merak_error *err)
{
    char *text = NULL;
    enum merak_status rc = merak_sharded_print(planned->sharded, &text, err);

    return put(rc, text);
}

static enum merak_status print_program(const struct merak_planned *planned,
                                       struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (int s = 0; s < planned->n_programs && rc == MERAK_OK; s++) {
        char *text = NULL;

        rc = merak_program_print(planned->program[s], &text, err);
        rc = put(rc, text);
    }
    return rc;
}

/* --- blocks ----------------------------------------------------------------
 */

/* FLOP of a forward node and of its gradients. */
static double node_flops(const struct merak_graph *graph, const int *gradient,
                         int node)
{
    double flops = 0;

    for (int n = node; n >= 0; n = gradient[n])
        flops += merak_node_cost(graph->node[n]).flops;
    return flops;
}

/* Nodes from cut point place[0] to place[1].  seen[], by value: the last block
 * that read it, counted from 1. */
static void print_block(const struct merak_planned *planned, int block,
                        const struct merak_cut_point *place,
                        const int *gradient, int *seen)
{
    const struct merak_graph *graph = planned->sharded->graph;
    const char *first = "", *last = "";
    size_t params = 0;
    double flops = 0;
    int n = 0;

    for (int i = place[0].node; i < place[1].node && i < graph->n_forward;
         i++) {
        const struct merak_node *node = graph->node[i];

        if (merak_node_is_convert(graph->node[i]))
            continue;
        last = node->name;
        if (n++ == 0)
            first = last;
        flops += node_flops(graph, gradient, i);
        for (int k = 0; k < node->n_in; k++) {
            const struct merak_value *v =
                merak_value_origin(graph, node->in[k]);

            if (v->kind == MERAK_VALUE_PARAM && seen[v->id] != block + 1)
                params += merak_shape_count(&v->shape);
            seen[v->id] = block + 1;
        }
    }
    printf("block %d, part %d: %d nodes, %s .. %s, %zu parameters, %.4g FLOP",
           block, planned->stages->of_node[place[0].node], n, first, last,
           params, flops);
    if (place[1].node < graph->n_forward)
        printf(", then %d values of %.4g bytes", place[1].alive,
               place[1].bytes);
    putchar('\n');
}

/* Numbers are for one micro-batch and all tensor ranks together. */
static enum merak_status print_blocks(const struct merak_planned *planned,
                                      struct merak_error *err)
{
    const struct merak_graph *graph = planned->sharded->graph;
    size_t n = (size_t)graph->n_nodes + (size_t)graph->n_values;
    int *gradient = calloc(n, sizeof(*gradient)); /* the node's next one */
    int *seen = gradient + graph->n_nodes, n_places = 0;
    struct merak_cut_point *place = NULL;
    enum merak_status rc;

    if (gradient == NULL)
        return merak_fail_nomem(err, n * sizeof(*gradient));
    for (int i = 0; i < graph->n_nodes; i++) {
        int of = graph->node[i]->forward;

        gradient[i] = -1;
        if (of != i && !merak_node_is_convert(graph->node[i])) {
            gradient[i] = gradient[of];
            gradient[of] = i;
        }
    }
    rc = merak_stages_list(planned->sharded, &place, &n_places, err);
    for (int i = 0; rc == MERAK_OK && i <= n_places; i++)
        print_block(planned, i, &place[i], gradient, seen);
    free(place);
    free(gradient);
    return rc;
}

/* --- stages ----------------------------------------------------------------
 */

/* "ranks 4 5 6 7" of a stage, by tensor group. */
static void print_ranks(const struct merak_plan *plan, int stage)
{
    const struct merak_stage_mesh mesh = merak_plan_mesh(plan, stage);

    printf("stage %d, ranks", stage);
    for (int d = 0; d < mesh.dp; d++) {
        for (int t = 0; t < mesh.tp; t++)
            printf("%c%d", t > 0 ? '+' : ' ', merak_stage_rank(&mesh, t, d));
    }
}

/* The range and number of a part's forward nodes, its parameters, and FLOP per
 * micro-batch forward and backward. */
static void print_part(const struct merak_planned *planned, int part)
{
    const struct merak_stages *stages = planned->stages;
    const struct merak_graph *graph = planned->sharded->graph;
    const char *first = "", *last = "";
    int n = 0;

    for (int i = 0; i < graph->n_forward; i++) {
        if (stages->of_node[i] != part)
            continue;
        last = graph->node[i]->name;
        if (n++ == 0)
            first = last;
    }
    printf("part %d: %d nodes, %s .. %s, %zu parameters, %.4g FLOP", part, n,
           first, last, stages->params[part], stages->flops[part]);
}

static void print_drop(const struct merak_plan *plan,
                       const struct merak_drop *drop, int blocks)
{
    const char *const what = merak_plan_offloads_acts(plan) && drop->again == 0
                                 ? "offloaded"
                                 : "recomputed";

    if (drop->attention) {
        printf(", attention %s", what);
        return;
    }
    if (drop->blocks > 0)
        printf(", %d of %d blocks %s", drop->blocks, blocks, what);
    if (drop->blocks > 0 && merak_plan_offloads_acts(plan) && drop->again > 0) {
        printf(" or offloaded: of these");
        for (int b = 0; b < drop->blocks; b++) {
            if (!merak_drop_is_again(drop, b))
                printf(" %d", b);
        }
    }
}

static enum merak_status print_stages(const struct merak_planned *planned,
                                      struct merak_error *err)
{
    const struct merak_plan *plan = &planned->plan;
    const struct merak_schedule *schedule = NULL;
    enum merak_status rc = merak_plan_schedule(plan, &schedule, err);

    for (int s = 0; s < plan->pp && rc == MERAK_OK; s++) {
        print_ranks(plan, s);
        putchar('\n');
        for (int c = 0; c < merak_plan_chunks(plan); c++) {
            int part = merak_plan_part(schedule, plan, s, c);
            const struct merak_drop *drop = &planned->stages->drop[part];

            printf("  chunk %d, ", c);
            print_part(planned, part);
            print_drop(plan, drop, planned->stages->n_blocks[part]);
            putchar('\n');
        }
    }
    return rc;
}

/* --- schedule ---------------------------------------------------------------
 */

/* "F3", with ".chunk", "/slice" and "'pass" where there are several. */
static void print_action(const struct merak_plan *plan,
                         const struct merak_schedule_args *args,
                         const struct merak_action *a)
{
    printf(" %c%d", "FBWR"[a->kind], a -> microbatch);
    if (merak_plan_chunks(plan) > 1)
        printf(".%d", a->chunk);
    if (args->slices > 1)
        printf("/%d", a->slice);
    if (args->passes > 1 && a->kind == MERAK_ACT_F)
        printf("'%d", a->pass);
}

static enum merak_status print_schedule(const struct merak_planned *planned,
                                        struct merak_error *err)
{
    const struct merak_plan *plan = &planned->plan;
    const struct merak_schedule *schedule = NULL;
    enum merak_status rc = merak_plan_schedule(plan, &schedule, err);

    for (int s = 0; s < plan->pp && rc == MERAK_OK; s++) {
        struct merak_schedule_args args = merak_plan_schedule_args(plan, s);
        int n = merak_schedule_count(schedule, &args);
        struct merak_action *action = calloc((size_t)n, sizeof(*action));

        if (action == NULL)
            return merak_fail_nomem(err, (size_t)n * sizeof(*action));
        merak_schedule_fill(schedule, &args, action);
        printf("stage %d:", s);
        for (int i = 0; i < n; i++)
            print_action(plan, &args, &action[i]);
        putchar('\n');
        free(action);
    }
    return rc;
}

/* --- the list ---------------------------------------------------------------
 */

static const struct {
    const char *name;
    print_fn print;
} phases[] = {
    {"graph", print_graph},       {"layouts", print_layouts},
    {"blocks", print_blocks},     {"stages", print_stages},
    {"schedule", print_schedule}, {"program", print_program},
};

enum { N_PHASES = sizeof(phases) / sizeof(phases[0]) };

static int find(const char *name, size_t n)
{
    for (int i = 0; i < N_PHASES; i++) {
        if (strlen(phases[i].name) == n && memcmp(phases[i].name, name, n) == 0)
            return i;
    }
    return -1;
}

enum merak_status merak_phases_parse(const char *list, unsigned *phases_p,
                                     struct merak_error *err)
{
    while (*list != '\0') {
        size_t n = strcspn(list, ",");
        int i = find(list, n);

        if (i < 0)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "--print: no phase \"%.*s\"; there are graph, "
                              "layouts, blocks, stages, schedule, program",
                              n > 40 ? 40 : (int)n, list);
        *phases_p |= 1U << i;
        list += n;
        list += *list == ',';
    }
    return MERAK_OK;
}

enum merak_status merak_phases_print(const struct merak_planned *planned,
                                     unsigned wanted, struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < N_PHASES && rc == MERAK_OK; i++) {
        if ((wanted >> i & 1U) == 0)
            continue;
        printf("\n%s\n", phases[i].name);
        rc = phases[i].print(planned, err);
    }
    return rc;
}
