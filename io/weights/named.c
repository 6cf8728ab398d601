/* SPDX-License-Identifier: Apache-2.0 */
/* named.c - names with shapes, of a model or of a file */
#include "config.h"

#include "io/weights/named.h"

#include "base/error.h"
#include "base/nearest.h"
#include "partitioner/graph/dims.h"
#include "partitioner/graph/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum merak_status merak_named_params(const struct merak_graph *graph,
                                     bool adapters,
                                     struct merak_named **named_p, int *n_p,
                                     struct merak_error *err)
{
    size_t most = (size_t)graph->n_values + 1;
    struct merak_named *named = calloc(most, sizeof(*named));
    int n = 0;

    if (named == NULL)
        return merak_fail_nomem(err, most * sizeof(*named));
    for (int i = 0; i < graph->n_values; i++) {
        const struct merak_value *v = graph->value[i];

        if (v->kind == MERAK_VALUE_PARAM && (adapters || !v->adapter))
            named[n++] = (struct merak_named){v->name, v->shape};
    }
    *named_p = named;
    *n_p = n;
    return MERAK_OK;
}

static int compare_names(const void *a, const void *b)
{
    const struct merak_named *x = a, *y = b;

    return strcmp(x->name, y->name);
}

static struct merak_named *sorted(const struct merak_named *list, int n)
{
    struct merak_named *copy = malloc(((size_t)n + 1) * sizeof(*copy));

    if (copy != NULL) {
        memcpy(copy, list, (size_t)n * sizeof(*copy));
        qsort(copy, (size_t)n, sizeof(*copy), compare_names);
    }
    return copy;
}

static const struct merak_named *find(const struct merak_named *list, int n,
                                      const char *name)
{
    const struct merak_named key = {.name = name};

    return bsearch(&key, list, (size_t)n, sizeof(*list), compare_names);
}

/* ", the nearest name is NAME", or "": among those that `others` lacks, which
 * may be this one under another name, else among all. */
static const char *nearest(const struct merak_named *list, int n,
                           const struct merak_named *others, int n_others,
                           const char *name, char *text, size_t bytes)
{
    struct merak_nearest near;

    merak_nearest_init(&near, name);
    for (int i = 0; i < n; i++) {
        if (find(others, n_others, list[i].name) == NULL)
            merak_nearest_offer(&near, list[i].name);
    }
    for (int i = 0; near.name == NULL && i < n; i++)
        merak_nearest_offer(&near, list[i].name);
    text[0] = '\0';
    if (near.name != NULL)
        snprintf(text, bytes, ", the nearest name is %.70s", near.name);
    return text;
}

/* " (and N more)", or "". */
static const char *more(int n, char *text, size_t bytes)
{
    text[0] = '\0';
    if (n > 0)
        snprintf(text, bytes, " (and %d more)", n);
    return text;
}

static void shape_text(const struct merak_shape *s, char *text, size_t bytes)
{
    size_t at = (size_t)snprintf(text, bytes, "[");

    for (int d = 0; d < s->ndim && at < bytes; d++)
        at += (size_t)snprintf(text + at, bytes - at, d > 0 ? ", %zu" : "%zu",
                               s->dim[d]);
    if (at < bytes)
        snprintf(text + at, bytes - at, "]");
}

static enum merak_status fail_shape(const struct merak_named *want,
                                    const struct merak_named *have, int others,
                                    const char *where, struct merak_error *err)
{
    char is[48], expected[48], rest[32];

    shape_text(&have->shape, is, sizeof(is));
    shape_text(&want->shape, expected, sizeof(expected));
    return merak_fail(
        err, MERAK_ERR_MISMATCH, "%.60s: tensor %.70s is %s, expected %s%s",
        where, want->name, is, expected, more(others, rest, sizeof(rest)));
}

/* Names of `list` that are not in `others`: how many, and the first. */
static int count_missing(const struct merak_named *list, int n,
                         const struct merak_named *others, int n_others,
                         const struct merak_named **first_p)
{
    int missing = 0;

    for (int i = 0; i < n; i++) {
        if (find(others, n_others, list[i].name) != NULL)
            continue;
        if (missing++ == 0)
            *first_p = &list[i];
    }
    return missing;
}

static enum merak_status check_shapes(const struct merak_named *want,
                                      int n_want,
                                      const struct merak_named *have,
                                      int n_have, const char *where,
                                      struct merak_error *err)
{
    const struct merak_named *bad = NULL;
    int wrong = 0;

    for (int i = 0; i < n_want; i++) {
        const struct merak_named *there = find(have, n_have, want[i].name);

        if (there != NULL &&
            !merak_shape_equal(&there->shape, &want[i].shape) && wrong++ == 0)
            bad = &want[i];
    }
    if (wrong == 0)
        return MERAK_OK;
    return fail_shape(bad, find(have, n_have, bad->name), wrong - 1, where,
                      err);
}

static enum merak_status compare(const struct merak_named *want, int n_want,
                                 const struct merak_named *have, int n_have,
                                 const char *where, struct merak_error *err)
{
    const struct merak_named *one = NULL;
    char near[100], rest[32];
    int n = count_missing(want, n_want, have, n_have, &one);

    if (n > 0)
        return merak_fail(
            err, MERAK_ERR_MISMATCH, "%.60s has no tensor %.70s%s%s", where,
            one->name,
            nearest(have, n_have, want, n_want, one->name, near, sizeof(near)),
            more(n - 1, rest, sizeof(rest)));
    if (check_shapes(want, n_want, have, n_have, where, err) != MERAK_OK)
        return MERAK_ERR_MISMATCH;
    n = count_missing(have, n_have, want, n_want, &one);
    if (n > 0)
        return merak_fail(
            err, MERAK_ERR_MISMATCH, "%.60s: the model has no tensor %.70s%s%s",
            where, one->name,
            nearest(want, n_want, have, n_have, one->name, near, sizeof(near)),
            more(n - 1, rest, sizeof(rest)));
    return MERAK_OK;
}

enum merak_status merak_named_compare(const struct merak_named *want,
                                      int n_want,
                                      const struct merak_named *have,
                                      int n_have, const char *where,
                                      struct merak_error *err)
{
    struct merak_named *a = sorted(want, n_want), *b = sorted(have, n_have);
    enum merak_status rc;

    if (a == NULL || b == NULL)
        rc = merak_fail_nomem(err, (size_t)(n_want + n_have) * sizeof(*a));
    else
        rc = compare(a, n_want, b, n_have, where, err);
    free(a);
    free(b);
    return rc;
}
