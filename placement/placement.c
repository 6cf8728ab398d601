/* SPDX-License-Identifier: Apache-2.0 */
/* placement.c - which task is which rank of the DP/PP/TP mesh */
#include "config.h"

#include "placement/placement_impl.h"

#include "base/error.h"
#include "placement/hostlist.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- sites --------------------------------------------------------------- */

enum merak_status merak_site_init(struct merak_site *site, int n_nodes,
                                  int n_tasks, struct merak_error *err)
{
    struct merak_site s = {.n_nodes = n_nodes, .n_tasks = n_tasks};

    if (n_nodes < 1 || n_nodes > MERAK_MAX_NODES || n_tasks < 1 ||
        n_tasks > MERAK_MAX_TASKS)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "%d tasks on %d nodes: out of range", n_tasks,
                          n_nodes);
    s.node_name = calloc((size_t)n_nodes, sizeof(*s.node_name));
    s.node_path = calloc((size_t)n_nodes, sizeof(*s.node_path));
    s.node_of_task = calloc((size_t)n_tasks, sizeof(*s.node_of_task));
    if (s.node_name == NULL || s.node_path == NULL || s.node_of_task == NULL) {
        merak_site_fini(&s);
        return merak_fail_nomem(err, (size_t)n_tasks * sizeof(int));
    }
    *site = s;
    return MERAK_OK;
}

static void free_strings(char **strings, int n)
{
    for (int i = 0; strings != NULL && i < n; i++)
        free(strings[i]);
    free(strings);
}

void merak_site_fini(struct merak_site *site)
{
    free_strings(site->node_name, site->n_nodes);
    free_strings(site->node_path, site->n_nodes);
    free(site->node_of_task);
    memset(site, 0, sizeof(*site));
}

static enum merak_status check_node(const struct merak_site *s, int i,
                                    struct merak_error *err)
{
    const char *path = s->node_path[i];
    int depth = 1;

    if (s->node_name[i] == NULL || path == NULL ||
        strlen(s->node_name[i]) > MERAK_NAME_MAX ||
        strlen(path) > MERAK_NAME_MAX)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "node %d: a name is missing or too long", i);
    for (const char *p = path; *p != '\0'; p++)
        depth += *p == '.';
    if (depth > MERAK_MAX_SWITCH_DEPTH)
        return merak_fail(err, MERAK_ERR_PARAM, "node %s: below %d switches",
                          s->node_name[i], depth);
    return MERAK_OK;
}

static enum merak_status site_check(const struct merak_site *s,
                                    struct merak_error *err)
{
    if (s->n_nodes < 1 || s->n_nodes > MERAK_MAX_NODES || s->n_tasks < 1 ||
        s->n_tasks > MERAK_MAX_TASKS)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "%d tasks on %d nodes: out of range", s->n_tasks,
                          s->n_nodes);
    for (int i = 0; i < s->n_tasks; i++) {
        if (s->node_of_task[i] < 0 || s->node_of_task[i] >= s->n_nodes)
            return merak_fail(err, MERAK_ERR_PARAM,
                              "task %d is on node %d of %d", i,
                              s->node_of_task[i], s->n_nodes);
    }
    for (int i = 0; i < s->n_nodes; i++) {
        enum merak_status rc = check_node(s, i, err);

        if (rc != MERAK_OK)
            return rc;
    }
    return MERAK_OK;
}

/* --- building the map ---------------------------------------------------- */

/* Set the weights, at most MERAK_MAX_WEIGHT; nonzero bytes keep some weight. */
static void weigh(struct merak_grid *grid, enum merak_order order,
                  uint64_t pp_bytes, uint64_t dp_bytes)
{
    uint64_t pp = pp_bytes, dp = dp_bytes;

    if (pp == 0 && dp == 0) {
        pp = order == MERAK_ORDER_TP_PP_DP ? MERAK_NEARER : 1;
        dp = order == MERAK_ORDER_TP_DP_PP ? MERAK_NEARER : 1;
    }
    while (pp > MERAK_MAX_WEIGHT || dp > MERAK_MAX_WEIGHT) {
        pp = pp / 2 + pp % 2;
        dp = dp / 2 + dp % 2;
    }
    grid->pp_weight = (int64_t)pp;
    grid->dp_weight = (int64_t)dp;
}

/* List the places of the members of all islands. */
static int *list_places(const struct merak_placing *b, int width,
                        struct merak_error *err)
{
    struct merak_placement *p = b->p;
    int tp = p->degree[MERAK_AXIS_TP];
    size_t n = (size_t)(p->n_tasks / tp) * (size_t)width;
    int *place = calloc(n, sizeof(*place));

    if (place == NULL)
        (void)merak_fail_nomem(err, n * sizeof(*place));
    for (size_t i = 0; place != NULL && i < n; i++)
        place[i] = p->place_of_task[b->tasks[width == 1 ? i * (size_t)tp : i]];
    return place;
}

/* Arrange the islands for this order. */
static enum merak_status deal(struct merak_placing *b, enum merak_order order,
                              int *island_of, int64_t *cost_p,
                              struct merak_error *err)
{
    const struct merak_placement *p = b->p;
    struct merak_grid grid = {.walk = &p->walk,
                              .width = b->leaves ? p->degree[MERAK_AXIS_TP] : 1,
                              .pp = p->degree[MERAK_AXIS_PP],
                              .dp = p->degree[MERAK_AXIS_DP]};
    int *place = list_places(b, grid.width, err);
    enum merak_status rc;

    if (place == NULL)
        return MERAK_ERR_NOMEM;
    grid.place = place;
    weigh(&grid, order, p->pp_bytes, p->dp_bytes);
    rc = merak_arrange(&grid, order, b->count, island_of, cost_p, err);
    free(place);
    return rc;
}

static void fill_maps(struct merak_placing *b, enum merak_order order)
{
    struct merak_placement *p = b->p;
    int tp = p->degree[MERAK_AXIS_TP];

    p->order = order;
    for (int l = 0; l < p->n_tasks; l++) {
        struct merak_coords c = merak_placement_coords(p, l);
        int island = b->islands[c.pp * p->degree[MERAK_AXIS_DP] + c.dp];
        int task = b->tasks[island * tp + c.tp];

        p->physical_of[l] = task;
        p->logical_of[task] = l;
    }
}

/* --- what groups span ---------------------------------------------------- */

static int level_of(const struct merak_placement *p, struct merak_coords a,
                    struct merak_coords b)
{
    return merak_placement_level(p, p->physical_of[merak_placement_rank(p, a)],
                                 p->physical_of[merak_placement_rank(p, b)]);
}

/* The coordinates with the one along `axis` replaced. */
static struct merak_coords at(struct merak_coords c,
                              enum merak_parallel_axis axis, int value)
{
    if (axis == MERAK_AXIS_TP)
        c.tp = value;
    else if (axis == MERAK_AXIS_PP)
        c.pp = value;
    else
        c.dp = value;
    return c;
}

/* Each group is counted at its member 0. */
static void count_groups(struct merak_placement *p,
                         enum merak_parallel_axis axis)
{
    int levels = merak_placement_levels(p);

    for (int l = 0; l < p->n_tasks; l++) {
        struct merak_coords c = merak_placement_coords(p, l);
        struct merak_coords first = at(c, axis, 0);
        int level = 0;

        if (memcmp(&c, &first, sizeof(c)) != 0)
            continue;
        for (int i = 1; i < p->degree[axis]; i++) {
            int here = level_of(p, first, at(c, axis, i));

            level = here > level ? here : level;
        }
        p->groups_at[axis * levels + level]++;
    }
}

/* --- compute ------------------------------------------------------------- */

/* Choose the order with the cheaper map, or, if equal, the one whose nearer
 * axis has more bytes.  The bytes used to compare become the placement's. */
static enum merak_status choose_order(struct merak_placing *b, int *other,
                                      enum merak_order *order_p,
                                      struct merak_error *err)
{
    struct merak_placement *p = b->p;
    int64_t cost, other_cost;
    enum merak_status rc;

    if (p->pp_bytes == 0 && p->dp_bytes == 0)
        p->pp_bytes = p->dp_bytes = 1;
    *order_p = MERAK_ORDER_TP_DP_PP;
    rc = deal(b, MERAK_ORDER_TP_DP_PP, b->islands, &cost, err);
    if (rc == MERAK_OK)
        rc = deal(b, MERAK_ORDER_TP_PP_DP, other, &other_cost, err);
    if (rc == MERAK_OK && (other_cost < cost ||
                           (other_cost == cost && p->pp_bytes > p->dp_bytes))) {
        *order_p = MERAK_ORDER_TP_PP_DP;
        memcpy(b->islands, other,
               (size_t)(p->n_tasks / p->degree[MERAK_AXIS_TP]) *
                   sizeof(*other));
    }
    return rc;
}

static enum merak_status make_maps(struct merak_placing *b,
                                   enum merak_order order,
                                   struct merak_error *err)
{
    size_t n = (size_t)b->p->n_tasks;
    enum merak_status rc;
    int64_t cost;
    int *other;

    if (order != MERAK_ORDER_AUTO) {
        rc = deal(b, order, b->islands, &cost, err);
    } else {
        other = calloc(n, sizeof(*other));
        rc = other != NULL ? choose_order(b, other, &order, err)
                           : merak_fail_nomem(err, n * sizeof(*other));
        free(other);
    }
    if (rc == MERAK_OK)
        fill_maps(b, order);
    return rc;
}

static enum merak_status copy_strings(char **from, int n, char ***to_p,
                                      struct merak_error *err)
{
    char **to = calloc((size_t)n, sizeof(*to));

    *to_p = to;
    if (to == NULL)
        return merak_fail_nomem(err, (size_t)n * sizeof(*to));
    for (int i = 0; i < n; i++) {
        to[i] = strdup(from[i]);
        if (to[i] == NULL)
            return merak_fail_nomem(err, strlen(from[i]) + 1);
    }
    return MERAK_OK;
}

static enum merak_status allocate(struct merak_placing *b,
                                  struct merak_error *err)
{
    struct merak_placement *p = b->p;
    size_t n = (size_t)b->site->n_tasks;
    enum merak_status rc;

    p->n_tasks = b->site->n_tasks;
    p->n_nodes = b->site->n_nodes;
    rc = merak_walk_init(&p->walk, b->site, err);
    if (rc == MERAK_OK)
        rc = copy_strings(b->site->node_name, p->n_nodes, &p->node_name, err);
    if (rc == MERAK_OK)
        rc = copy_strings(b->site->node_path, p->n_nodes, &p->node_path, err);
    if (rc != MERAK_OK)
        return rc;
    p->place_of_task = calloc(n, sizeof(int));
    p->logical_of = calloc(n, sizeof(int));
    p->physical_of = calloc(n, sizeof(int));
    p->groups_at = calloc(
        (size_t)(MERAK_AXIS_COUNT * merak_placement_levels(p)), sizeof(int));
    b->tasks = calloc(n, sizeof(int));
    b->islands = calloc(n, sizeof(int));
    b->count = calloc((size_t)p->n_nodes, sizeof(int));
    if (p->place_of_task == NULL || p->logical_of == NULL ||
        p->physical_of == NULL || p->groups_at == NULL || b->tasks == NULL ||
        b->islands == NULL || b->count == NULL)
        return merak_fail_nomem(err, n * sizeof(int));
    return MERAK_OK;
}

static enum merak_status build_all(struct merak_placing *b,
                                   const struct merak_placement_input *input,
                                   struct merak_error *err)
{
    struct merak_placement_input resolved = *input;
    struct merak_placement *p = b->p;
    enum merak_status rc;

    rc = merak_degrees_resolve(b->site->n_tasks, resolved.cp, resolved.ep,
                               &resolved.tp, &resolved.pp, &resolved.dp, err);
    if (rc == MERAK_OK)
        rc = allocate(b, err);
    if (rc != MERAK_OK)
        return rc;
    p->cp = resolved.cp > 1 ? resolved.cp : 1;
    p->ep = resolved.ep > 1 ? resolved.ep : 1;
    p->degree[MERAK_AXIS_TP] =
        resolved.tp * p->cp * p->ep; /* at most the tasks */
    p->degree[MERAK_AXIS_PP] = resolved.pp;
    p->degree[MERAK_AXIS_DP] = resolved.dp;
    p->tp_domain = resolved.tp_domain;
    p->pp_bytes = resolved.pp_bytes;
    p->dp_bytes = resolved.dp_bytes;
    rc = merak_placing_list(b, err);
    if (rc == MERAK_OK)
        rc = merak_placing_cut(b, err);
    if (rc == MERAK_OK)
        rc = make_maps(b, input->order, err);
    if (rc != MERAK_OK)
        return rc;
    for (int axis = 0; axis < MERAK_AXIS_COUNT; axis++)
        count_groups(p, (enum merak_parallel_axis)axis);
    merak_placement_resolved(p, &resolved);
    return merak_plan_id(b->site, &resolved, &p->id, err);
}

enum merak_status
merak_placement_compute(const struct merak_placement_input *input,
                        struct merak_placement **placement_p,
                        struct merak_error *err)
{
    struct merak_placing b = {.site = input->site};
    enum merak_status rc = site_check(b.site, err);

    if (rc != MERAK_OK)
        return rc;
    b.p = calloc(1, sizeof(*b.p));
    if (b.p == NULL)
        return merak_fail_nomem(err, sizeof(*b.p));
    rc = build_all(&b, input, err);
    free(b.tasks);
    free(b.islands);
    free(b.count);
    if (rc != MERAK_OK) {
        merak_placement_destroy(b.p);
        return rc;
    }
    *placement_p = b.p;
    return MERAK_OK;
}

void merak_placement_destroy(struct merak_placement *p)
{
    if (p == NULL)
        return;
    merak_walk_fini(&p->walk);
    free_strings(p->node_name, p->n_nodes);
    free_strings(p->node_path, p->n_nodes);
    free(p->place_of_task);
    free(p->logical_of);
    free(p->physical_of);
    free(p->groups_at);
    free(p);
}

/* --- queries ------------------------------------------------------------- */

int merak_placement_n_tasks(const struct merak_placement *p)
{
    return p->n_tasks;
}

int merak_placement_ep(const struct merak_placement *p)
{
    return p->ep;
}

int merak_placement_degree(const struct merak_placement *p,
                           enum merak_parallel_axis axis)
{
    return p->degree[axis];
}

enum merak_order merak_placement_order(const struct merak_placement *p)
{
    return p->order;
}

int merak_placement_cp(const struct merak_placement *p)
{
    return p->cp;
}

uint64_t merak_placement_id(const struct merak_placement *p)
{
    return p->id;
}

void merak_placement_resolved(const struct merak_placement *p,
                              struct merak_placement_input *input)
{
    input->tp = p->degree[MERAK_AXIS_TP] / p->cp / p->ep;
    input->cp = p->cp;
    input->ep = p->ep;
    input->pp = p->degree[MERAK_AXIS_PP];
    input->dp = p->degree[MERAK_AXIS_DP];
    input->order = p->order;
    input->tp_domain = p->tp_domain;
    input->pp_bytes = p->pp_bytes;
    input->dp_bytes = p->dp_bytes;
}

int merak_placement_logical_of(const struct merak_placement *p, int physical)
{
    return p->logical_of[physical];
}

int merak_placement_physical_of(const struct merak_placement *p, int logical)
{
    return p->physical_of[logical];
}

struct merak_coords merak_placement_coords(const struct merak_placement *p,
                                           int logical)
{
    int tp = p->degree[MERAK_AXIS_TP];
    struct merak_coords c = {.tp = logical % tp};

    logical /= tp;
    if (p->order == MERAK_ORDER_TP_DP_PP) {
        c.dp = logical % p->degree[MERAK_AXIS_DP];
        c.pp = logical / p->degree[MERAK_AXIS_DP];
    } else {
        c.pp = logical % p->degree[MERAK_AXIS_PP];
        c.dp = logical / p->degree[MERAK_AXIS_PP];
    }
    return c;
}

int merak_placement_rank(const struct merak_placement *p, struct merak_coords c)
{
    int outer = p->order == MERAK_ORDER_TP_DP_PP
                    ? c.dp + p->degree[MERAK_AXIS_DP] * c.pp
                    : c.pp + p->degree[MERAK_AXIS_PP] * c.dp;

    return c.tp + p->degree[MERAK_AXIS_TP] * outer;
}

int merak_placement_level(const struct merak_placement *p, int a, int b)
{
    return merak_walk_level(&p->walk, p->place_of_task[a], p->place_of_task[b]);
}

int merak_placement_levels(const struct merak_placement *p)
{
    return 2 + p->walk.depth;
}

int merak_placement_groups_at(const struct merak_placement *p,
                              enum merak_parallel_axis axis, int level)
{
    return p->groups_at[axis * merak_placement_levels(p) + level];
}

enum merak_status merak_plan_placement(const struct merak_placement_plan *plan,
                                       struct merak_placement **placement_p,
                                       struct merak_error *err)
{
    struct merak_placement_input input = plan->input;
    struct merak_placement *p;
    enum merak_status rc;

    input.site = &plan->site;
    rc = merak_placement_compute(&input, &p, err);
    if (rc != MERAK_OK)
        return rc;
    if (merak_placement_id(p) != plan->id) {
        merak_placement_destroy(p);
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          "placement %016" PRIx64 " is damaged: its id does "
                          "not match",
                          plan->id);
    }
    *placement_p = p;
    return MERAK_OK;
}
