/* SPDX-License-Identifier: Apache-2.0 */
/* walk.c - nodes in the order of a walk through the switch tree, and groups of
 * islands along it */
#include "config.h"

#include "placement/placement_impl.h"

#include "base/error.h"
#include "placement/hostlist.h"

#include <stdlib.h>
#include <string.h>

/* --- the walk ------------------------------------------------------------ */

struct sort_key {
    const char *name, *path;
    int node;
};

/* Compare one switch name of each path and step over it. */
static int compare_part(const char **a, const char **b)
{
    char part_a[MERAK_NAME_MAX + 1], part_b[MERAK_NAME_MAX + 1];
    size_t len_a = strcspn(*a, "."), len_b = strcspn(*b, ".");

    /* merak_site_check() bounds paths by MERAK_NAME_MAX */
    memcpy(part_a, *a, len_a);
    part_a[len_a] = '\0';
    memcpy(part_b, *b, len_b);
    part_b[len_b] = '\0';
    *a += len_a + ((*a)[len_a] == '.');
    *b += len_b + ((*b)[len_b] == '.');
    return merak_name_compare(part_a, part_b);
}

static int compare_keys(const void *x, const void *y)
{
    const struct sort_key *a = x, *b = y;
    const char *path_a = a->path, *path_b = b->path;
    int order;

    while (*path_a != '\0' && *path_b != '\0') {
        order = compare_part(&path_a, &path_b);
        if (order != 0)
            return order;
    }
    if (*path_a != *path_b)
        return *path_a == '\0' ? -1 : 1;
    order = merak_name_compare(a->name, b->name);
    return order != 0 ? order : (a->node > b->node) - (a->node < b->node);
}

static int path_depth(const char *path)
{
    int depth = *path != '\0';

    for (; *path != '\0'; path++)
        depth += *path == '.';
    return depth;
}

/* Length of the first n switch names of a path; 0 if it has fewer. */
static size_t prefix_length(const char *path, int n)
{
    const char *p = path;

    while (*p != '\0') {
        p += strcspn(p, ".");
        if (--n == 0)
            return (size_t)(p - path);
        p += *p == '.';
    }
    return 0;
}

/* Nodes with the same prefix are adjacent in the walk, so comparing neighbors
 * is enough to number prefixes. */
static void number_prefixes(struct merak_walk *w, const struct merak_site *s)
{
    for (int d = 0; d < w->depth; d++) {
        int number = 0;

        for (int i = 0; i < w->n_nodes; i++) {
            const char *path = s->node_path[w->node[i]];
            size_t len = prefix_length(path, d + 1);

            if (i > 0) {
                const char *before = s->node_path[w->node[i - 1]];

                if (len == 0 || prefix_length(before, d + 1) != len ||
                    memcmp(path, before, len) != 0)
                    number++;
            }
            w->prefix[i * w->depth + d] = number;
        }
    }
}

static void sort_nodes(struct merak_walk *w, const struct merak_site *s,
                       struct sort_key *key)
{
    for (int i = 0; i < s->n_nodes; i++) {
        int depth = path_depth(s->node_path[i]);

        if (depth > w->depth)
            w->depth = depth;
        key[i] = (struct sort_key){s->node_name[i], s->node_path[i], i};
    }
    qsort(key, (size_t)s->n_nodes, sizeof(*key), compare_keys);
    for (int i = 0; i < s->n_nodes; i++) {
        w->node[i] = key[i].node;
        w->place_of[key[i].node] = i;
    }
}

enum merak_status merak_walk_init(struct merak_walk *walk,
                                  const struct merak_site *site,
                                  struct merak_error *err)
{
    size_t n = (size_t)site->n_nodes;
    struct sort_key *key = calloc(n, sizeof(*key));
    struct merak_walk w = {.n_nodes = site->n_nodes};

    w.node = calloc(n, sizeof(*w.node));
    w.place_of = calloc(n, sizeof(*w.place_of));
    if (key != NULL && w.node != NULL && w.place_of != NULL) {
        sort_nodes(&w, site, key);
        w.prefix = calloc(n * (size_t)w.depth + 1, sizeof(*w.prefix));
    }
    free(key);
    if (w.prefix == NULL) {
        merak_walk_fini(&w);
        return merak_fail_nomem(err, n * sizeof(*key));
    }
    number_prefixes(&w, site);
    *walk = w;
    return MERAK_OK;
}

void merak_walk_fini(struct merak_walk *walk)
{
    free(walk->node);
    free(walk->place_of);
    free(walk->prefix);
    memset(walk, 0, sizeof(*walk));
}

int merak_walk_level(const struct merak_walk *w, int a, int b)
{
    int common = 0;

    if (a == b)
        return 0;
    while (common < w->depth &&
           w->prefix[a * w->depth + common] == w->prefix[b * w->depth + common])
        common++;
    return 1 + w->depth - common;
}

/* --- groups of islands --------------------------------------------------- */

/* Islands left over at one child of a switch: rest[start .. start + n). */
struct leftover {
    int start, n;
};

struct packing {
    const struct merak_walk *walk;
    const int *count, *first; /* islands of each place, and the first one */
    int group;
    int *order; /* out */
    int n_order;
    int *rest; /* a stack: islands not in a group yet, by switch */
    int n_rest;
    struct leftover *left; /* a stack: the children's parts of rest */
    int n_left;
    int *sorted; /* scratch, as large as rest */
};

static int compare_leftovers(const void *x, const void *y)
{
    const struct leftover *a = x, *b = y;

    if (a->n != b->n)
        return a->n > b->n ? -1 : 1;
    return (a->start > b->start) - (a->start < b->start);
}

/*
 * Everything below a switch is done; islands that its children could not use
 * are in rest[rest_base..], in the parts left[left_base..].  Form all whole
 * groups, from the largest parts first, so that a group has islands from few
 * children.
 */
static void combine(struct packing *p, int rest_base, int left_base)
{
    int n = 0, used;

    qsort(p->left + left_base, (size_t)(p->n_left - left_base),
          sizeof(*p->left), compare_leftovers);
    for (int i = left_base; i < p->n_left; i++) {
        memcpy(p->sorted + n, p->rest + p->left[i].start,
               (size_t)p->left[i].n * sizeof(*p->rest));
        n += p->left[i].n;
    }
    used = n - n % p->group;
    memcpy(p->order + p->n_order, p->sorted, (size_t)used * sizeof(*p->order));
    p->n_order += used;
    memcpy(p->rest + rest_base, p->sorted + used,
           (size_t)(n - used) * sizeof(*p->rest));
    p->n_rest = rest_base + n - used;
    p->n_left = left_base;
    p->left[p->n_left++] = (struct leftover){rest_base, n - used};
}

static void pack_node(struct packing *p, int place)
{
    int rest_base = p->n_rest, left_base = p->n_left;

    for (int i = 0; i < p->count[place]; i++)
        p->rest[p->n_rest++] = p->first[place] + i;
    p->left[p->n_left++] = (struct leftover){rest_base, p->count[place]};
    combine(p, rest_base, left_base);
}

/* Pack the places [low, high), which share the first d switches. */
static void pack_range(struct packing *p, int low, int high, int d)
{
    const struct merak_walk *w = p->walk;
    int rest_base = p->n_rest, left_base = p->n_left;

    for (int end; low < high; low = end) {
        end = low + 1;
        if (d == w->depth) {
            pack_node(p, low);
            continue;
        }
        while (end < high &&
               w->prefix[end * w->depth + d] == w->prefix[low * w->depth + d])
            end++;
        pack_range(p, low, end, d + 1);
    }
    combine(p, rest_base, left_base);
}

static void packing_fini(struct packing *p)
{
    free(p->rest);
    free(p->sorted);
    free(p->left);
}

static enum merak_status packing_init(struct packing *p, int total,
                                      struct merak_error *err)
{
    size_t islands = (size_t)total + 1;
    /* parts of all children on the way down, and one for each switch */
    size_t parts = (size_t)(p->walk->n_nodes + p->walk->depth) + 2;

    p->rest = calloc(islands, sizeof(*p->rest));
    p->sorted = calloc(islands, sizeof(*p->sorted));
    p->left = calloc(parts, sizeof(*p->left));
    if (p->rest != NULL && p->sorted != NULL && p->left != NULL)
        return MERAK_OK;
    packing_fini(p);
    return merak_fail_nomem(err, islands * sizeof(*p->rest));
}

enum merak_status merak_pack_islands(const struct merak_walk *walk,
                                     const int *count, int group, int *order,
                                     struct merak_error *err)
{
    struct packing p = {
        .walk = walk, .count = count, .group = group, .order = order};
    int *first = calloc((size_t)walk->n_nodes, sizeof(*first));
    enum merak_status rc;
    int total = 0;

    if (first == NULL)
        return merak_fail_nomem(err, (size_t)walk->n_nodes * sizeof(*first));
    for (int i = 0; i < walk->n_nodes; i++) {
        first[i] = total;
        total += count[i];
    }
    p.first = first;
    rc = packing_init(&p, total, err);
    if (rc == MERAK_OK) {
        pack_range(&p, 0, walk->n_nodes, 0);
        packing_fini(&p);
    }
    free(first);
    return rc;
}
