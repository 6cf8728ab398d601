/* SPDX-License-Identifier: Apache-2.0 */
/* plan_islands.c - `merak plan --links FILE`: islands of nodes */
#include "config.h"

#include "runtime/plan/plan_islands.h"

#include "runtime/plan/auto.h"
#include "runtime/plan/plan_options.h"

#include "base/error.h"
#include "base/size.h"
#include "partitioner/search/island_orders.h"

#include <stdio.h>
#include <string.h>

/* --- options -------------------------------------------------------------- */

/* Stages are whole in islands, as many in each. */
static enum merak_status check_alike(const struct plan_options *opt,
                                     struct merak_error *err)
{
    const struct merak_island *island = opt->machine.islands->island;

    for (int i = 1; i < opt->machine.islands->n; i++) {
        if (island[i].nodes != island[0].nodes)
            return merak_fail(
                err, MERAK_ERR_CONFIG,
                "--links: %.80s: island \"%s\" has %d node%s, and "
                "\"%s\" %d: islands have equal numbers of "
                "stages; give as many nodes of each",
                opt->machine.links, island[0].name, island[0].nodes,
                merak_plural(island[0].nodes), island[i].name, island[i].nodes);
    }
    return MERAK_OK;
}

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
    if (check_alike(opt, err) != MERAK_OK)
        return MERAK_ERR_CONFIG;
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

/* --- search --------------------------------------------------------------- */

enum merak_status plan_islands_search(struct plan_auto *plan,
                                      struct merak_search_result **result_p,
                                      struct merak_error *err)
{
    struct merak_islands *islands = plan->opt->machine.islands;

    if (islands == NULL)
        return merak_search(&plan->in, result_p, err);
    return merak_search_islands(&plan->in, islands, &plan->hops, result_p, err);
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
static void print_bound(FILE *out, const struct plan_auto *plan,
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
        fprintf(out,
                "what bounds the step: the way %s -> %s is busy for %s with a "
                "micro-batch, stage %d\nfor %s\n",
                island_at(plan, from)->name, island_at(plan, to)->name, way,
                r->busiest, work);
    else
        fprintf(out,
                "what bounds the step: stage %d works %s on a micro-batch, the "
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

void plan_islands_print(FILE *out, const struct plan_auto *plan,
                        const struct merak_search_result *r)
{
    const struct merak_islands *islands = plan->opt->machine.islands;
    bool any = false;

    if (islands == NULL)
        return;
    fputs("islands, in the order of ranks:", out);
    for (int k = 0; k < islands->n; k++) {
        int stages[2];

        find_stages(plan, &r->choice[0].plan, k, stages);
        fprintf(out, "%s %s (stage%s %d", k > 0 ? "," : "",
                island_at(plan, k)->name, stages[0] < stages[1] ? "s" : "",
                stages[0]);
        fprintf(out, stages[0] < stages[1] ? "-%d)" : ")", stages[1]);
    }
    fputs("\nhops of a micro-batch: ", out);
    for (int a = 0; a < islands->n; a++) {
        for (int b = 0; b < islands->n; b++) {
            char bytes[MERAK_BYTES_TEXT], seconds[MERAK_SECONDS_TEXT];

            if (plan->hops.bytes[a][b] == 0)
                continue;
            merak_bytes_text(plan->hops.bytes[a][b], bytes);
            merak_seconds_text(hop_s(plan, a, b), seconds);
            fprintf(out, "%s%s -> %s %s in %s", any ? ", " : "",
                    island_at(plan, a)->name, island_at(plan, b)->name, bytes,
                    seconds);
            any = true;
        }
    }
    fputs(any ? "\n" : "none, pipelines stay on their islands\n", out);
    if (!are_named(islands))
        fputs("a run does not know these islands: name their nodes in the "
              "file\n",
              out);
    print_bound(out, plan, r);
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
