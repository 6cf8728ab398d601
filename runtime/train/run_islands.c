/* SPDX-License-Identifier: Apache-2.0 */
/* run_islands.c - the islands of a run's nodes: --links, MERAK_LINKS
 *
 * Rank 0 reads the file and finds the nodes of the job in it; the others get
 * what it found.  A job may have some of an island's nodes, or none: islands
 * are then as large as the job's part of them.
 */
#include "config.h"

#include "runtime/train/run_islands.h"

#include "runtime/train/chosen.h"
#include "runtime/train/trainer.h"

#include "base/error.h"
#include "base/log.h"
#include "partitioner/search/island_orders.h"
#include "placement/hostlist.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *links_file(const struct merak_trainer *t)
{
    const char *path = getenv("MERAK_LINKS");

    if (t->opt.links != NULL)
        return t->opt.links;
    return path != NULL && *path != '\0' ? path : NULL;
}

/* --- which node is where -------------------------------------------------- */

/* Does the expression have this name?  One that is none has not. */
static bool has_host(const char *hosts, const char *name)
{
    struct merak_hostlist list = {0};
    bool found = false;

    if (merak_hostlist_expand(hosts, MERAK_MAX_NODES, &list, NULL) != MERAK_OK)
        return false;
    for (int i = 0; i < list.n && !found; i++)
        found = strcmp(list.name[i], name) == 0;
    merak_hostlist_fini(&list);
    return found;
}

enum merak_status merak_run_islands_find(const struct merak_boot *boot,
                                         const struct merak_islands *islands,
                                         int *island_of,
                                         struct merak_error *err)
{
    for (int k = 0; k < islands->n; k++) {
        if (islands->island[k].hosts == NULL)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "island \"%s\" has only the number of its nodes; "
                              "here their names are needed, as \"n[1-4]\"",
                              islands->island[k].name);
    }
    for (int node = 0; node < boot->n_nodes; node++) {
        int at = -1;

        for (int k = 0; k < islands->n; k++) {
            if (!has_host(islands->island[k].hosts, boot->hosts[node]))
                continue;
            if (at >= 0)
                return merak_fail(err, MERAK_ERR_CONFIG,
                                  "node %s is in islands \"%s\" and \"%s\"",
                                  boot->hosts[node], islands->island[at].name,
                                  islands->island[k].name);
            at = k;
        }
        if (at < 0)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "node %s is in none of its %d islands: name it "
                              "in one, or ask for their nodes (srun -w)",
                              boot->hosts[node], islands->n);
        island_of[node] = at;
    }
    return MERAK_OK;
}

/* Count the job's nodes of each island. */
static enum merak_status count_nodes(const struct merak_boot *boot,
                                     const struct merak_islands *islands,
                                     int *count, struct merak_error *err)
{
    int *island_of = calloc((size_t)boot->n_nodes, sizeof(*island_of));
    enum merak_status rc =
        island_of == NULL
            ? merak_fail_nomem(err, (size_t)boot->n_nodes * sizeof(*island_of))
            : merak_run_islands_find(boot, islands, island_of, err);

    memset(count, 0, MERAK_MOST_ISLANDS * sizeof(*count));
    for (int node = 0; rc == MERAK_OK && node < boot->n_nodes; node++)
        count[island_of[node]]++;
    free(island_of);
    return rc;
}

/* "2 of a, 3 of b" */
static const char *counts_text(const struct merak_islands *islands,
                               const int *count, char text[128])
{
    size_t n = 0;

    for (int k = 0; k < islands->n && n < 90; k++)
        n +=
            (size_t)snprintf(text + n, 128 - n, "%s%d of %s", k > 0 ? ", " : "",
                             count[k], islands->island[k].name);
    return text;
}

/* Keep the islands that have nodes. */
static enum merak_status keep(const struct merak_islands *all, const int *count,
                              struct merak_run_islands *own,
                              struct merak_error *err)
{
    struct merak_islands *ways = &own->ways;
    int from[MERAK_MOST_ISLANDS];
    char text[128];

    for (int k = 0; k < all->n; k++) {
        if (count[k] == 0)
            continue;
        if (ways->n > 0 && count[k] != count[from[0]])
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "the job has %s nodes: islands have equal "
                              "numbers of stages; ask for as many of each",
                              counts_text(all, count, text));
        ways->island[ways->n] = all->island[k];
        ways->island[ways->n].nodes = count[k];
        ways->island[ways->n].hosts = NULL;
        snprintf(own->hosts[ways->n], sizeof(own->hosts[0]), "%s",
                 all->island[k].hosts);
        from[ways->n++] = k;
    }
    for (int a = 0; a < ways->n; a++) {
        ways->at[a] = a;
        for (int b = 0; b < ways->n; b++)
            ways->way[a][b] = all->way[from[a]][from[b]];
    }
    return MERAK_OK;
}

/* --- what goes with them -------------------------------------------------- */

/* Has srun placed the tasks of a launch without knowing of islands? */
static bool is_placed_without(const struct merak_ranks *r)
{
    return r->launched && !merak_degrees_auto(&r->launch.input) &&
           strncmp(r->launch.site.node_path[0], "island", 6) != 0;
}

static enum merak_status check(const struct merak_trainer *t,
                               struct merak_error *err)
{
    const struct merak_boot *boot = t->boot;

    if (t->opt.choice.list.stage != NULL ||
        merak_device_has_kinds(t->opt.device))
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "islands have equal stages on nodes of one kind: "
                          "leave out %s",
                          t->opt.choice.list.stage != NULL
                              ? "--stages"
                              : "--device of several kinds");
    if (is_placed_without(&t->ranks))
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "srun placed the tasks, and does not know of it: "
                          "give srun --merak-links, too");
    if (merak_tasks_per_node(boot) * boot->n_nodes != boot->size)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%d tasks on %d nodes: islands have as many on each",
                          boot->size, boot->n_nodes);
    return MERAK_OK;
}

static enum merak_status find(const struct merak_trainer *t, const char *path,
                              struct merak_run_islands *own,
                              struct merak_error *err)
{
    struct merak_islands *all = NULL;
    int count[MERAK_MOST_ISLANDS];
    enum merak_status rc =
        merak_error_as_config(merak_islands_load(path, &all, err), err);

    if (rc != MERAK_OK) {
        merak_error_wrap(err, "--links");
        return rc;
    }
    rc = check(t, err);
    if (rc == MERAK_OK)
        rc = count_nodes(t->boot, all, count, err);
    if (rc == MERAK_OK)
        rc = keep(all, count, own, err);
    if (rc != MERAK_OK)
        merak_error_wrap(err, "--links %.80s", path);
    else if (own->ways.n == 1)
        merak_info("train",
                   "all nodes are on island %s: --links changes nothing",
                   own->ways.island[0].name);
    merak_islands_destroy(all);
    return rc;
}

enum merak_status merak_run_islands_open(struct merak_trainer *t,
                                         struct merak_error *err)
{
    const char *path = links_file(t);
    struct merak_run_islands *own;
    enum merak_status rc = MERAK_OK;

    if (path == NULL)
        return MERAK_OK;
    own = calloc(1, sizeof(*own));
    if (own == NULL)
        rc = merak_fail_nomem(err, sizeof(*own));
    else if (t->boot->rank == 0)
        rc = find(t, path, own, err);
    rc = merak_boot_agree(t->boot, rc, err);
    if (rc == MERAK_OK)
        rc = t->boot->ops->broadcast(t->boot, own, sizeof(*own), err);
    if (rc == MERAK_OK && own->ways.n > 1) {
        t->ranks.islands = own;
        own = NULL; /* the run's now */
    }
    free(own);
    return rc;
}

enum merak_status merak_run_islands_set(struct merak_trainer *t,
                                        struct merak_error *err)
{
    struct merak_links *links = &t->device.links;
    int node = merak_tasks_per_node(t->boot);

    if (t->ranks.islands == NULL)
        return MERAK_OK;
    if (node < links->level[0].ranks)
        node = links->level[0].ranks;
    if (merak_error_as_config(
            merak_links_set_islands(links, &t->ranks.islands->ways, node, err),
            err) == MERAK_OK)
        return MERAK_OK;
    merak_error_wrap(err, "--links");
    return MERAK_ERR_CONFIG;
}

/* --- their order ---------------------------------------------------------- */

void merak_run_islands_text(const struct merak_run_islands *islands, char *text,
                            size_t bytes)
{
    size_t n = 0;

    text[0] = '\0';
    for (int k = 0; k < islands->ways.n && n < bytes; k++)
        n += (size_t)snprintf(text + n, bytes - n, "%s%s", k > 0 ? ";" : "",
                              islands->hosts[islands->ways.at[k]]);
}

/* "b, a" */
static void names_text(const struct merak_run_islands *islands, char *text,
                       size_t bytes)
{
    size_t n = 0;

    text[0] = '\0';
    for (int k = 0; k < islands->ways.n && n < bytes; k++)
        n += (size_t)snprintf(text + n, bytes - n, "%s%s", k > 0 ? ", " : "",
                              islands->ways.island[islands->ways.at[k]].name);
}

void merak_run_islands_log(const struct merak_run_islands *islands)
{
    char text[MERAK_MOST_ISLANDS * (MERAK_ISLAND_NAME + 2)];

    if (islands == NULL)
        return;
    names_text(islands, text, sizeof(text));
    merak_info("train", "islands, in the order of ranks: %s", text);
}

enum merak_status
merak_run_islands_search(const struct merak_search_input *in,
                         struct merak_run_islands *islands,
                         struct merak_search_result **result_p,
                         struct merak_plan_file *file, struct merak_error *err)
{
    struct merak_island_hops hops;
    enum merak_status rc =
        islands == NULL
            ? merak_search(in, result_p, err)
            : merak_search_islands(in, &islands->ways, &hops, result_p, err);

    if (rc == MERAK_OK)
        rc = merak_chosen_file(in, *result_p, file, err);
    if (rc == MERAK_OK && islands != NULL)
        merak_run_islands_text(islands, file->islands, sizeof(file->islands));
    return rc;
}

/* The island that the plan's part of the text is; -1: none. */
static int find_part(const struct merak_run_islands *islands, const char *part)
{
    struct merak_hostlist list = {0};
    int found = -1;

    if (merak_hostlist_expand(part, MERAK_MAX_NODES, &list, NULL) != MERAK_OK)
        return -1;
    for (int k = 0; k < islands->ways.n && list.n > 0 && found < 0; k++) {
        if (has_host(islands->hosts[k], list.name[0]))
            found = k;
    }
    merak_hostlist_fini(&list);
    return found;
}

enum merak_status merak_run_islands_follow(struct merak_run_islands *islands,
                                           const char *plan,
                                           struct merak_error *err)
{
    char *text = strdup(plan), *rest = NULL;
    int n = 0, at[MERAK_MOST_ISLANDS];
    unsigned seen = 0;
    bool fits = true;

    if (text == NULL)
        return merak_fail_nomem(err, strlen(plan));
    for (char *part = strtok_r(text, ";", &rest); part != NULL && fits;
         part = strtok_r(NULL, ";", &rest)) {
        int k = find_part(islands, part);

        fits = k >= 0 && (seen & 1U << k) == 0;
        if (!fits)
            break;
        seen |= 1U << k;
        at[n++] = k;
    }
    free(text);
    if (n > 0 && fits && n == islands->ways.n)
        memcpy(islands->ways.at, at, sizeof(at));
    else if (*plan != '\0')
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--links has other islands than the plan, which has "
                          "%.120s: plan again with that file",
                          plan);
    return MERAK_OK;
}
