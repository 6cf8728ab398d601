/* SPDX-License-Identifier: Apache-2.0 */
/* topology.c - the switch tree, from Slurm's text
 *
 * topology.conf lists nodes at leaves only; `scontrol show topology` repeats
 * all nodes below a switch at every level.  So a line with Switches= is an
 * inner switch and its Nodes= are not read.  Blocks are leaves without a
 * parent, since the text does not give their connections.
 */
#include "config.h"

#include "placement/topology.h"

#include "base/bisect.h"
#include "base/error.h"
#include "placement/hostlist.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    MAX_SWITCHES = 65536,
    MAX_NODES = 1 << 20,
    MAX_DEPTH = 8,
};

struct a_switch {
    char *name;
    char *children; /* the Switches= list, or NULL */
    char *nodes;    /* the Nodes= list, or NULL */
    int parent;     /* index, or -1 */
};

struct a_node {
    char *name;
    int leaf;
};

struct merak_topology {
    int n_switches, n_nodes;
    struct a_switch *sw; /* sorted by name */
    struct a_node *node; /* sorted by name */
};

void merak_topology_destroy(struct merak_topology *t)
{
    if (t == NULL)
        return;
    for (int i = 0; i < t->n_switches; i++) {
        free(t->sw[i].name);
        free(t->sw[i].children);
        free(t->sw[i].nodes);
    }
    for (int i = 0; i < t->n_nodes; i++)
        free(t->node[i].name);
    free(t->sw);
    free(t->node);
    free(t);
}

/* Grow an array by one zeroed element; NULL if that fails. */
static void *grow(void *array, int n, size_t size)
{
    /* doubling at powers of two keeps this amortized without a field */
    if ((n & (n - 1)) == 0) {
        size_t room = n == 0 ? 1 : 2 * (size_t)n;

        array = realloc(array, room * size);
        if (array == NULL)
            return NULL;
    }
    memset((char *)array + (size_t)n * size, 0, size);
    return array;
}

/* If the word at p is KEY=value, store a copy of the value. */
static bool take_value(const char *p, size_t len, const char *key, char **out)
{
    size_t n = strlen(key);

    if (len <= n || strncasecmp(p, key, n) != 0 || p[n] != '=')
        return false;
    free(*out);
    *out = strndup(p + n + 1, len - n - 1);
    return true;
}

static void parse_words(const char *line, const char *end, struct a_switch *sw)
{
    while (line < end) {
        size_t len = 0;

        while (line < end && isspace((unsigned char)*line))
            line++;
        while (line + len < end && !isspace((unsigned char)line[len]))
            len++;
        if (len > 0 && *line == '#')
            return;
        if (!take_value(line, len, "SwitchName", &sw->name) &&
            !take_value(line, len, "BlockName", &sw->name) &&
            !take_value(line, len, "Switches", &sw->children))
            take_value(line, len, "Nodes", &sw->nodes);
        line += len;
    }
}

static void switch_fini(struct a_switch *sw)
{
    free(sw->name);
    free(sw->children);
    free(sw->nodes);
}

static enum merak_status parse_line(struct merak_topology *t, const char *line,
                                    const char *end, struct merak_error *err)
{
    struct a_switch sw = {.parent = -1};
    struct a_switch *grown;

    parse_words(line, end, &sw);
    if (sw.name == NULL) { /* a comment, or BlockSizes= and the like */
        switch_fini(&sw);
        return MERAK_OK;
    }
    grown = t->n_switches < MAX_SWITCHES
                ? grow(t->sw, t->n_switches, sizeof(*t->sw))
                : NULL;
    if (grown == NULL) {
        switch_fini(&sw);
        return merak_fail(err, MERAK_ERR_NOMEM, "too many switches");
    }
    t->sw = grown;
    t->sw[t->n_switches++] = sw;
    return MERAK_OK;
}

static int compare_switches(const void *a, const void *b)
{
    return strcmp(((const struct a_switch *)a)->name,
                  ((const struct a_switch *)b)->name);
}

static int compare_nodes(const void *a, const void *b)
{
    const struct a_node *x = a, *y = b;
    int order = strcmp(x->name, y->name);

    return order != 0 ? order : (x->leaf > y->leaf) - (x->leaf < y->leaf);
}

static int find_switch(const struct merak_topology *t, char *name)
{
    struct a_switch key = {.name = name};
    struct a_switch *hit = NULL;

    if (t->n_switches > 0)
        hit = bsearch(&key, t->sw, (size_t)t->n_switches, sizeof(key),
                      compare_switches);
    return hit == NULL ? -1 : (int)(hit - t->sw);
}

static enum merak_status link_children(struct merak_topology *t, int parent,
                                       struct merak_error *err)
{
    struct merak_hostlist list;
    enum merak_status rc;

    rc =
        merak_hostlist_expand(t->sw[parent].children, MAX_SWITCHES, &list, err);
    if (rc != MERAK_OK)
        return rc;
    for (int i = 0; i < list.n; i++) {
        int child = find_switch(t, list.name[i]);

        /* A job only sees the switches of its partitions: a child that is not
         * listed has none of its nodes. */
        if (child >= 0 && child != parent)
            t->sw[child].parent = parent;
    }
    merak_hostlist_fini(&list);
    return MERAK_OK;
}

static enum merak_status add_nodes(struct merak_topology *t, int leaf,
                                   struct merak_error *err)
{
    struct merak_hostlist list;
    enum merak_status rc;

    rc = merak_hostlist_expand(t->sw[leaf].nodes, MAX_NODES, &list, err);
    if (rc != MERAK_OK)
        return rc;
    for (int i = 0; i < list.n; i++) {
        struct a_node *grown = t->n_nodes < MAX_NODES
                                   ? grow(t->node, t->n_nodes, sizeof(*grown))
                                   : NULL;

        if (grown == NULL) {
            rc = merak_fail(err, MERAK_ERR_NOMEM, "too many nodes");
            break;
        }
        t->node = grown;
        t->node[t->n_nodes].leaf = leaf;
        t->node[t->n_nodes++].name = list.name[i];
        list.name[i] = NULL; /* now owned by the topology */
    }
    merak_hostlist_fini(&list);
    return rc;
}

static enum merak_status link_switch(struct merak_topology *t, int i,
                                     struct merak_error *err)
{
    struct a_switch *sw = &t->sw[i];
    enum merak_status rc = MERAK_OK;

    if (sw->children != NULL && strcmp(sw->children, "(null)") != 0)
        rc = link_children(t, i, err);
    else if (sw->nodes != NULL && strcmp(sw->nodes, "(null)") != 0)
        rc = add_nodes(t, i, err);
    if (rc != MERAK_OK)
        merak_error_wrap(err, "switch %.64s", sw->name);
    return rc;
}

/* Every path to the root must end: a cycle would exceed MAX_DEPTH. */
static enum merak_status check_depth(const struct merak_topology *t,
                                     struct merak_error *err)
{
    for (int i = 0; i < t->n_switches; i++) {
        int depth = 0;

        for (int s = i; s >= 0; s = t->sw[s].parent) {
            if (++depth > MAX_DEPTH)
                return merak_fail(err, MERAK_ERR_FORMAT,
                                  "switch %.64s: more than %d levels, or a "
                                  "cycle",
                                  t->sw[i].name, MAX_DEPTH);
        }
    }
    return MERAK_OK;
}

static enum merak_status build(struct merak_topology *t, const char *text,
                               struct merak_error *err)
{
    enum merak_status rc;

    for (const char *end; *text != '\0'; text = end + (*end == '\n')) {
        end = text + strcspn(text, "\n");
        rc = parse_line(t, text, end, err);
        if (rc != MERAK_OK)
            return rc;
    }
    if (t->n_switches > 1)
        qsort(t->sw, (size_t)t->n_switches, sizeof(*t->sw), compare_switches);
    for (int i = 0; i < t->n_switches; i++) {
        rc = link_switch(t, i, err);
        if (rc != MERAK_OK)
            return rc;
    }
    if (t->n_nodes > 1)
        qsort(t->node, (size_t)t->n_nodes, sizeof(*t->node), compare_nodes);
    return check_depth(t, err);
}

enum merak_status merak_topology_parse(const char *text,
                                       struct merak_topology **topology_p,
                                       struct merak_error *err)
{
    struct merak_topology *t = calloc(1, sizeof(*t));
    enum merak_status rc;

    if (t == NULL)
        return merak_fail_nomem(err, sizeof(*t));
    rc = build(t, text, err);
    if (rc != MERAK_OK) {
        merak_topology_destroy(t);
        return rc;
    }
    *topology_p = t;
    return MERAK_OK;
}

/* The first leaf (by name) that lists the node, or -1. */
static int find_leaf(const struct merak_topology *t, const char *name)
{
    int i;

    MERAK_BISECT(i, 0, t->n_nodes, strcmp(t->node[i].name, name) >= 0);
    if (i == t->n_nodes || strcmp(t->node[i].name, name) != 0)
        return -1;
    return t->node[i].leaf;
}

enum merak_status merak_topology_path(const struct merak_topology *t,
                                      const char *node, char *path, size_t size)
{
    int up[MAX_DEPTH], depth = 0;
    size_t used = 0;

    path[0] = '\0';
    for (int s = find_leaf(t, node); s >= 0; s = t->sw[s].parent)
        up[depth++] = s; /* check_depth() bounds it */
    while (depth-- > 0) {
        int n = snprintf(path + used, size - used, "%s%s", used > 0 ? "." : "",
                         t->sw[up[depth]].name);

        if ((size_t)n >= size - used) {
            path[0] = '\0';
            return MERAK_ERR_NOT_FOUND;
        }
        used += (size_t)n;
    }
    return used > 0 ? MERAK_OK : MERAK_ERR_NOT_FOUND;
}
