/* SPDX-License-Identifier: Apache-2.0 */
/* site_islands.c - nodes in the order of islands
 *
 * A plan that was made for islands, as sites, has their nodes in the order in
 * which its pipeline passes them: "n[5-8];n[1-4]"; without one it is that of
 * the file of links.  Each island becomes the outermost part of its nodes'
 * paths, "island0" first, so that the walk visits one after the other.
 */
#include "config.h"

#include "placement/placement.h"

#include "base/error.h"
#include "placement/hostlist.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Mark the site's nodes that are of island i. */
static enum merak_status mark(const struct merak_site *site, const char *text,
                              int i, int *island_of, struct merak_error *err)
{
    struct merak_hostlist list = {0};
    enum merak_status rc =
        merak_hostlist_expand(text, MERAK_MAX_NODES, &list, err);

    if (rc != MERAK_OK)
        return rc;
    for (int k = 0; k < list.n; k++) {
        for (int n = 0; n < site->n_nodes; n++) {
            if (strcmp(site->node_name[n], list.name[k]) == 0)
                island_of[n] = i;
        }
    }
    merak_hostlist_fini(&list);
    return MERAK_OK;
}

static int tasks_of(const struct merak_site *site, const int *island_of, int i)
{
    int tasks = 0;

    for (int t = 0; t < site->n_tasks; t++)
        tasks += island_of[site->node_of_task[t]] == i;
    return tasks;
}

/* Every node is of one, and all islands, or those that have tasks, have as
 * many. */
static enum merak_status check(const struct merak_site *site,
                               const char *islands, bool all, int n,
                               const int *island_of, struct merak_error *err)
{
    int used = all ? n : 0;

    for (int k = 0; k < site->n_nodes; k++) {
        if (island_of[k] < 0)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "node %s is in none of the islands %.120s: ask "
                              "for their nodes, or name it in the file that "
                              "--links reads",
                              site->node_name[k], islands);
    }
    for (int i = 0; i < n && !all; i++)
        used += tasks_of(site, island_of, i) > 0;
    for (int i = 0; i < n; i++) {
        int tasks = tasks_of(site, island_of, i);

        if (tasks * used != site->n_tasks && (tasks > 0 || all))
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "island %d of %d, %.120s, has %d of %d tasks: "
                              "ask for as many of each",
                              i + 1, n, islands, tasks, site->n_tasks);
    }
    return MERAK_OK;
}

static enum merak_status prefix(char **path, int island,
                                struct merak_error *err)
{
    char text[MERAK_NAME_MAX + 1];
    const char *old = *path != NULL ? *path : "";
    char *made;
    int n = snprintf(text, sizeof(text), "island%d%s%s", island,
                     *old != '\0' ? "." : "", old);

    if ((size_t)n >= sizeof(text)) /* of a deep tree the islands are enough */
        snprintf(text, sizeof(text), "island%d", island);
    made = strdup(text);
    if (made == NULL)
        return merak_fail_nomem(err, sizeof(text));
    free(*path);
    *path = made;
    return MERAK_OK;
}

enum merak_status merak_site_take_islands(struct merak_site *site,
                                          const char *islands, bool all,
                                          struct merak_error *err)
{
    int *island_of = malloc(((size_t)site->n_nodes + 1) * sizeof(*island_of));
    char *text = strdup(islands), *at = text;
    enum merak_status rc = MERAK_OK;
    int n = 0;

    if (island_of == NULL || text == NULL)
        rc = merak_fail_nomem(err, (size_t)site->n_nodes * sizeof(*island_of));
    for (int k = 0; rc == MERAK_OK && k < site->n_nodes; k++)
        island_of[k] = -1;
    while (rc == MERAK_OK && at != NULL) {
        char *next = strchr(at, ';');

        if (next != NULL)
            *next++ = '\0';
        rc = mark(site, at, n++, island_of, err);
        at = next;
    }
    if (rc == MERAK_OK)
        rc = check(site, islands, all, n, island_of, err);
    for (int k = 0; rc == MERAK_OK && k < site->n_nodes; k++)
        rc = prefix(&site->node_path[k], island_of[k], err);
    free(text);
    free(island_of);
    return rc;
}
