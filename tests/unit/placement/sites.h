/* SPDX-License-Identifier: Apache-2.0 */
/* sites.h - sites from a string, and their maps, for tests */
#ifndef MERAK_TESTS_SITES_H
#define MERAK_TESTS_SITES_H

#include "unit/near.h"

#include "placement/placement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * A site from one string: "leaf:tasks,tasks;leaf:..." gives nodes n1, n2, ..
 * with so many tasks below "root.leaf".  cyclic deals the tasks round robin.
 */
static inline void make_site(struct merak_site *s, const char *text,
                             bool cyclic)
{
    int count[64], n_nodes = 0, n_tasks = 0, task = 0;
    char leaf[64][32];

    for (const char *p = text; *p != '\0';) {
        int used = 0;

        if (sscanf(p, "%31[a-z0-9.]:%n", leaf[n_nodes], &used) != 1 ||
            used == 0) {
            assert_true(n_nodes > 0);
            memcpy(leaf[n_nodes], leaf[n_nodes - 1], sizeof(leaf[0]));
        } else {
            p += used;
        }
        count[n_nodes] = (int)strtol(p, (char **)&p, 10);
        n_tasks += count[n_nodes++];
        p += *p != '\0';
    }
    assert_int_equal(merak_site_init(s, n_nodes, n_tasks, NULL), MERAK_OK);
    for (int i = 0; i < n_nodes; i++) {
        char text_of[64];

        snprintf(text_of, sizeof(text_of), "n%d", i + 1);
        s->node_name[i] = strdup(text_of);
        snprintf(text_of, sizeof(text_of), "root.%.31s", leaf[i]);
        s->node_path[i] = strdup(leaf[i][0] == '.' ? "" : text_of);
    }
    while (task < n_tasks) {
        for (int i = 0; i < n_nodes; i++) {
            int n = cyclic ? (count[i] > 0) : count[i];

            for (count[i] -= n; n > 0; n--)
                s->node_of_task[task++] = i;
        }
    }
}

static inline struct merak_placement *
must_compute(const struct merak_site *s, int tp, int pp, enum merak_order order)
{
    struct merak_placement_input in = {
        .site = s, .tp = tp, .pp = pp, .order = order};
    struct merak_placement *p = NULL;
    struct merak_error err = {.text = ""};

    if (merak_placement_compute(&in, &p, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return p;
}

#endif
