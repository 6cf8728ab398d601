/* SPDX-License-Identifier: Apache-2.0 */
/* plan_islands.c - `merak plan --links FILE`: islands of nodes
 *
 * The order of islands is that of logical ranks, so a search knows it from the
 * start.  Which one is best depends on what crosses, which only a plan has.  So
 * the first search has an order for equal hops; if what its plan sends is
 * better served by another one, a second search has that.
 */
#include "config.h"

#include "runtime/plan/plan_islands.h"

#include "runtime/plan/auto.h"
#include "runtime/plan/plan_options.h"

#include "base/error.h"
#include "base/size.h"
#include "partitioner/assembly/assembly.h"
#include "partitioner/program/instr_cost.h"
#include "partitioner/simulate/timeline.h"

#include <stdio.h>
#include <string.h>

#define USUAL_BYTES 0x1p24 /* of a hop, before there is a plan */

/* --- options -------------------------------------------------------------- */

enum merak_status plan_islands_open(struct plan_options *opt,
                                    struct merak_error *err)
{
    const char *other = NULL;
    int nodes;

    if (opt->machine.links == NULL)
        return MERAK_OK;
    if (opt->choice.list.stage != NULL)
        other = "--stages";
    else if (opt->several.kinds.n > 1)
        other = "--nodes of several kinds";
    else if (opt->saved.n > 1)
        other = "several --plan";
    else if (opt->print != NULL && strcmp(opt->print, "device") == 0)
        other = "--print device";
    if (other != NULL)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--links beside %s: islands have equal stages on "
                          "nodes of one kind, of one plan; leave one of them "
                          "out",
                          other);
    if (merak_error_as_config(
            merak_islands_load(opt->machine.links, &opt->machine.islands, err),
            err) != MERAK_OK) {
        merak_error_wrap(err, "--links");
        return MERAK_ERR_CONFIG;
    }
    nodes = merak_islands_nodes(opt->machine.islands);
    if (opt->given.nodes && (opt->nodes != nodes || opt->several.n_nodes > 1))
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--nodes: the islands of %s have %d together; give "
                          "that, or leave --nodes out",
                          opt->machine.links, nodes);
    opt->nodes = nodes;
    opt->given.nodes = true;
    return MERAK_OK;
}

enum merak_status plan_islands_set(const struct plan_options *opt,
                                   struct merak_device *device,
                                   struct merak_error *err)
{
    int node = device->links.level[0].ranks;

    if (opt->machine.islands == NULL)
        return MERAK_OK;
    if (node < opt->ranks_per_node)
        node = opt->ranks_per_node;
    if (merak_error_as_config(merak_links_set_islands(&device->links,
                                                      opt->machine.islands,
                                                      node, err),
                              err) == MERAK_OK)
        return MERAK_OK;
    merak_error_wrap(err, "--links");
    return MERAK_ERR_CONFIG;
}

/* --- what crosses --------------------------------------------------------- */

/* Add what a stage sends of its first micro-batch, all its ranks together. */
static void add_sent(const struct merak_links *links,
                     const struct merak_program *prog,
                     struct merak_island_hops *hops)
{
    int last = merak_links_last(links);
    int ranks = links->level[last - 1].ranks;
    const struct merak_spread sharers =
        merak_links_sharers(links, &prog->plan, prog->rank, false);

    for (int i = 0; i < prog->n_instrs; i++) {
        const struct merak_instr *in = &prog->instr[i];

        if (in->kind != MERAK_INSTR_SEND || in->microbatch != 0 ||
            prog->rank / ranks == in->peer / ranks)
            continue;
        hops->bytes[prog->rank / ranks][in->peer / ranks] +=
            (double)in->bytes * sharers.n[last - 1];
    }
}

static enum merak_status find_hops(struct plan_auto *plan,
                                   const struct merak_search_result *result,
                                   struct merak_error *err)
{
    const struct merak_links links = merak_search_links(&plan->in);
    struct plan_auto of = *plan;
    struct merak_planned *planned = NULL;
    struct merak_timeline *timeline = NULL;
    enum merak_status rc;

    memset(&plan->hops, 0, sizeof(plan->hops));
    of.in.direct = result->direct;
    rc = plan_auto_build(&of, &result->choice[0].plan, result->stage, 0,
                         &planned, &timeline, err);
    for (int s = 0; rc == MERAK_OK && s < planned->n_programs; s++)
        add_sent(&links, planned->program[s], &plan->hops);
    merak_timeline_destroy(timeline);
    merak_planned_destroy(planned);
    return rc;
}

/* --- order ---------------------------------------------------------------- */

/* Search once more with the order that suits a plan, if there is another, and
 * keep the better plan. */
static enum merak_status search_again(struct plan_auto *plan,
                                      struct merak_search_result **result_p,
                                      struct merak_error *err)
{
    struct merak_islands *islands = plan->opt->machine.islands;
    struct merak_search_result *second = NULL;
    const struct merak_island_hops first_hops = plan->hops;
    struct merak_island_order best, now;
    int at[MERAK_MOST_ISLANDS], first_at[MERAK_MOST_ISLANDS];
    enum merak_status rc;

    best = merak_islands_arrange(islands, &plan->hops, at);
    now = merak_islands_rate(islands, &plan->hops, islands->at);
    if (best.most_s >= now.most_s && best.sum_s >= now.sum_s)
        return MERAK_OK;
    memcpy(first_at, islands->at, sizeof(first_at));
    memcpy(islands->at, at, sizeof(at));
    rc = merak_search(&plan->in, &second, err);
    if (rc == MERAK_OK)
        rc = find_hops(plan, second, err);
    if (rc == MERAK_OK &&
        second->choice[0].step_s <= (*result_p)->choice[0].step_s) {
        merak_search_destroy(*result_p);
        *result_p = second;
        return MERAK_OK;
    }
    memcpy(islands->at, first_at, sizeof(first_at));
    plan->hops = first_hops;
    merak_search_destroy(second);
    return rc;
}

enum merak_status plan_islands_search(struct plan_auto *plan,
                                      struct merak_search_result **result_p,
                                      struct merak_error *err)
{
    struct merak_islands *islands = plan->opt->machine.islands;
    struct merak_search_result *result = NULL;
    enum merak_status rc;

    if (islands == NULL)
        return merak_search(&plan->in, result_p, err);
    memset(&plan->hops, 0, sizeof(plan->hops));
    for (int k = 0; k + 1 < islands->n; k++)
        plan->hops.bytes[k][k + 1] = USUAL_BYTES;
    merak_islands_arrange(islands, &plan->hops, islands->at);
    rc = merak_search(&plan->in, &result, err);
    if (rc == MERAK_OK)
        rc = find_hops(plan, result, err);
    if (rc == MERAK_OK)
        rc = search_again(plan, &result, err);
    if (rc == MERAK_OK)
        *result_p = result;
    else
        merak_search_destroy(result);
    return rc;
}

/* --- reports -------------------------------------------------------------- */

/* The first and the last of the stages that have ranks at a place. */
static void find_stages(const struct plan_auto *plan,
                        const struct merak_plan *p, int place, int stages[2])
{
    const struct merak_links links = merak_search_links(&plan->in);
    int ranks = links.level[merak_links_last(&links) - 1].ranks;

    stages[0] = p->pp - 1;
    stages[1] = 0;
    for (int r = place * ranks; r < (place + 1) * ranks; r++) {
        int tp_index, dp_index, stage;

        merak_plan_coords(p, r, &tp_index, &dp_index, &stage);
        if (stage < stages[0])
            stages[0] = stage;
        if (stage > stages[1])
            stages[1] = stage;
    }
}

static const struct merak_island *island_at(const struct plan_auto *plan,
                                            int place)
{
    const struct merak_islands *islands = plan->opt->machine.islands;

    return &islands->island[islands->at[place]];
}

static double hop_s(const struct plan_auto *plan, int from, int to)
{
    const struct merak_islands *islands = plan->opt->machine.islands;

    return merak_islands_hop_s(islands, &plan->hops, islands->at, from, to);
}

/* Does a micro-batch keep a way busy for longer than the stage with most work
 * needs for it? */
static void print_bound(const struct plan_auto *plan,
                        const struct merak_search_result *r)
{
    const struct merak_islands *islands = plan->opt->machine.islands;
    const struct merak_search_stage *busiest = &r->stage[r->busiest];
    double work_s =
        busiest->forward_s + busiest->backward_s + busiest->recompute_s;
    double most_s = 0;
    int from = 0, to = 0;
    char way[MERAK_SECONDS_TEXT], work[MERAK_SECONDS_TEXT];

    for (int a = 0; a < islands->n; a++) {
        for (int b = 0; b < islands->n; b++) {
            double s = hop_s(plan, a, b);

            if (s > 0)
                s -= islands->way[islands->at[a]][islands->at[b]].latency_s;
            if (s <= most_s)
                continue;
            most_s = s;
            from = a;
            to = b;
        }
    }
    if (most_s == 0)
        return;
    merak_seconds_text(most_s, way);
    merak_seconds_text(work_s, work);
    if (most_s > work_s)
        printf("what bounds the step: the way %s -> %s is busy for %s with a "
               "micro-batch, stage %d\nfor %s\n",
               island_at(plan, from)->name, island_at(plan, to)->name, way,
               r->busiest, work);
    else
        printf("what bounds the step: stage %d works %s on a micro-batch, the "
               "way %s -> %s is\nbusy for %s\n",
               r->busiest, work, island_at(plan, from)->name,
               island_at(plan, to)->name, way);
}

/* Do all have the names of their nodes? */
static bool are_named(const struct merak_islands *islands)
{
    for (int i = 0; i < islands->n; i++) {
        if (islands->island[i].hosts == NULL)
            return false;
    }
    return true;
}

void plan_islands_name(struct plan_auto *plan)
{
    const struct merak_islands *islands = plan->opt->machine.islands;
    size_t n = 0;

    if (islands == NULL || !are_named(islands))
        return;
    for (int k = 0; k < islands->n; k++)
        n += (size_t)snprintf(plan->file.islands + n,
                              sizeof(plan->file.islands) - n, "%s%s",
                              k > 0 ? ";" : "", island_at(plan, k)->hosts);
}

void plan_islands_print(const struct plan_auto *plan,
                        const struct merak_search_result *r)
{
    const struct merak_islands *islands = plan->opt->machine.islands;
    bool any = false;

    if (islands == NULL)
        return;
    printf("islands, in the order of ranks:");
    for (int k = 0; k < islands->n; k++) {
        int stages[2];

        find_stages(plan, &r->choice[0].plan, k, stages);
        printf("%s %s (stage%s %d", k > 0 ? "," : "", island_at(plan, k)->name,
               stages[0] < stages[1] ? "s" : "", stages[0]);
        printf(stages[0] < stages[1] ? "-%d)" : ")", stages[1]);
    }
    printf("\nhops of a micro-batch: ");
    for (int a = 0; a < islands->n; a++) {
        for (int b = 0; b < islands->n; b++) {
            char bytes[MERAK_BYTES_TEXT], seconds[MERAK_SECONDS_TEXT];

            if (plan->hops.bytes[a][b] == 0)
                continue;
            merak_bytes_text(plan->hops.bytes[a][b], bytes);
            merak_seconds_text(hop_s(plan, a, b), seconds);
            printf("%s%s -> %s %s in %s", any ? ", " : "",
                   island_at(plan, a)->name, island_at(plan, b)->name, bytes,
                   seconds);
            any = true;
        }
    }
    puts(any ? "" : "none, pipelines stay on their islands");
    if (!are_named(islands))
        puts("a run does not know these islands: name their nodes in the file");
    print_bound(plan, r);
}

json_t *plan_islands_object(const struct plan_auto *plan,
                            const struct merak_search_result *r)
{
    const struct merak_islands *islands = plan->opt->machine.islands;
    json_t *list;

    if (islands == NULL)
        return NULL;
    list = json_array();
    for (int k = 0; k < islands->n; k++) {
        const struct merak_island *island = island_at(plan, k);
        int stages[2];

        find_stages(plan, &r->choice[0].plan, k, stages);
        json_array_append_new(
            list, json_pack("{s:s, s:i, s:s*, s:[ii]}", "name", island->name,
                            "nodes", island->nodes, "hosts", island->hosts,
                            "stages", stages[0], stages[1]));
    }
    return list;
}

json_t *plan_hops_object(const struct plan_auto *plan)
{
    const struct merak_islands *islands = plan->opt->machine.islands;
    json_t *list;

    if (islands == NULL)
        return NULL;
    list = json_array();
    for (int i = 0; i < islands->n * islands->n; i++) {
        int from = i / islands->n, to = i % islands->n;

        if (plan->hops.bytes[from][to] > 0)
            json_array_append_new(list,
                                  json_pack("{s:s, s:s, s:f, s:f}", "from",
                                            island_at(plan, from)->name, "to",
                                            island_at(plan, to)->name, "bytes",
                                            plan->hops.bytes[from][to],
                                            "seconds", hop_s(plan, from, to)));
    }
    return list;
}
