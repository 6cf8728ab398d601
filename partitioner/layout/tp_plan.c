/* SPDX-License-Identifier: Apache-2.0 */
/* tp_plan.c - how tensor ranks divide parameters that a user has named */
#include "config.h"

#include "partitioner/layout/tp_plan.h"

#include "partitioner/layout/shard_impl.h"

#include "base/error.h"
#include "base/nearest.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEPARATORS ",+"

static const char *const style_word[] = {
    [MERAK_TP_COLWISE] = "colwise",
    [MERAK_TP_ROWWISE] = "rowwise",
    [MERAK_TP_REPLICATE] = "replicate",
};

enum { N_STYLES = sizeof(style_word) / sizeof(*style_word) };

bool merak_tp_plan_any(const struct merak_tp_plan *plan)
{
    return plan->text[0] != '\0';
}

bool merak_tp_plan_equal(const struct merak_tp_plan *a,
                         const struct merak_tp_plan *b)
{
    return strcmp(a->text, b->text) == 0;
}

/* --- text ----------------------------------------------------------------- */

struct entry {
    char pattern[MERAK_TP_PLAN_TEXT];
    enum merak_tp_style style;
};

enum { STYLE_TEXT = 16 };

static const char *word_of(enum merak_tp_style style, char text[STYLE_TEXT])
{
    if (style >= MERAK_TP_DIM)
        snprintf(text, STYLE_TEXT, "%d", (int)style - MERAK_TP_DIM);
    else
        snprintf(text, STYLE_TEXT, "%s", style_word[style]);
    return text;
}

/* Take the next entry; false at the end, or if it is none (FREE). */
static bool next_entry(const char **text_p, struct entry *e)
{
    const char *at = *text_p;
    size_t n = strcspn(at, SEPARATORS);
    const char *word = memchr(at, ':', n);

    *e = (struct entry){.style = MERAK_TP_FREE};
    if (*at == '\0')
        return false;
    *text_p = at + n + (at[n] != '\0');
    if (word == NULL || word == at)
        return false;
    snprintf(e->pattern, sizeof(e->pattern), "%.*s", (int)(word - at), at);
    word++;
    n -= (size_t)(word - at);
    if (n == 1 && *word >= '0' && *word < '0' + MERAK_MAX_DIMS)
        e->style = (enum merak_tp_style)(MERAK_TP_DIM + *word - '0');
    for (int i = MERAK_TP_COLWISE; i < N_STYLES; i++) {
        if (strlen(style_word[i]) == n && strncmp(word, style_word[i], n) == 0)
            e->style = (enum merak_tp_style)i;
    }
    return e->style != MERAK_TP_FREE;
}

enum merak_status merak_tp_plan_parse(const char *text,
                                      struct merak_tp_plan *plan,
                                      struct merak_error *err)
{
    struct merak_tp_plan found = {""};
    const char *at = text;
    struct entry e;
    char word[STYLE_TEXT];
    size_t n = 0;

    if (strlen(text) >= sizeof(found.text))
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--tp-plan: %zu characters, expected at most %zu: "
                          "name more parameters by a pattern",
                          strlen(text), sizeof(found.text) - 1);
    do {
        if (!next_entry(&at, &e))
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "--tp-plan: expected PATTERN:STYLE,.. with "
                              "styles colwise, rowwise, replicate or a dim, as "
                              "in "
                              "*.up.weight:colwise,*.down.weight:rowwise, got "
                              "\"%.80s\"",
                              text);
        n += (size_t)snprintf(found.text + n, sizeof(found.text) - n,
                              "%s%s:%s", n > 0 ? "+" : "", e.pattern,
                              word_of(e.style, word));
    } while (*at != '\0');
    *plan = found;
    return MERAK_OK;
}

/* --- nodes ---------------------------------------------------------------- */

static bool has(const struct merak_signature *sig, int operand, int index)
{
    for (int d = 0; d < MERAK_MAX_DIMS; d++) {
        if (sig->operand_dim[operand][d] == index)
            return true;
    }
    return false;
}

/* The entry that holds for a name; FREE: none. */
static void entry_of(const struct merak_tp_plan *plan, const char *name,
                     struct entry *e)
{
    const char *at = plan->text;

    while (next_entry(&at, e)) {
        if (fnmatch(e->pattern, name, 0) == 0)
            return;
    }
    *e = (struct entry){.style = MERAK_TP_FREE};
}

static bool is_named(const struct merak_tp_plan *plan,
                     const struct merak_value *v)
{
    struct entry e;

    if (v->kind != MERAK_VALUE_PARAM)
        return false;
    entry_of(plan, v->name, &e);
    return e.style != MERAK_TP_FREE;
}

/* Does a dim of a named parameter run along it? */
static bool is_of_named(const struct merak_node *node,
                        const struct merak_signature *sig,
                        const struct merak_tp_plan *plan, int index)
{
    for (int o = 0; o < node->n_in; o++) {
        if (is_named(plan, node->in[o]) && has(sig, o, index))
            return true;
    }
    return false;
}

/* Is it what runs along this dim of one? */
static bool is_dim_of_named(const struct merak_node *node,
                            const struct merak_signature *sig,
                            const struct merak_tp_plan *plan, int dim,
                            int index)
{
    for (int o = 0; o < node->n_in; o++) {
        if (is_named(plan, node->in[o]) && sig->operand_dim[o][dim] == index)
            return true;
    }
    return false;
}

bool merak_tp_style_allows(const struct merak_node *node,
                           const struct merak_signature *sig,
                           const struct merak_tp_plan *plan,
                           enum merak_tp_style style, int index)
{
    bool read = false, all_read = true, made = false;

    if (style >= MERAK_TP_DIM)
        return is_dim_of_named(node, sig, plan, (int)style - MERAK_TP_DIM,
                               index);
    if (!is_of_named(node, sig, plan, index))
        return style == MERAK_TP_REPLICATE || style == MERAK_TP_FREE;
    for (int o = 0; o < node->n_in; o++) {
        bool is = has(sig, o, index);

        if (node->in[o]->kind != MERAK_VALUE_ACTIVATION &&
            node->in[o]->kind != MERAK_VALUE_RECYCLED)
            continue;
        read = read || is;
        all_read = all_read && is;
    }
    for (int o = 0; o < node->n_out; o++)
        made = made || has(sig, node->n_in + o, index);
    switch (style) {
    case MERAK_TP_COLWISE:
        return made && !(read && all_read);
    case MERAK_TP_ROWWISE:
        return !made;
    default:
        return style == MERAK_TP_FREE;
    }
}

/* Tensor ranks that divide weights. */
static size_t parts_of(const struct merak_mesh *mesh)
{
    size_t parts = 1;

    for (int x = 0; x < mesh->n_axes; x++) {
        if (mesh->axis[x].role == MERAK_AXIS_WEIGHTS)
            parts *= (size_t)mesh->axis[x].size;
    }
    return parts;
}

/* A node's style needs an index that all tensor ranks can divide. */
static enum merak_status check_node(const struct merak_tp_plan *plan,
                                    const struct merak_node *node,
                                    const struct merak_signature *sig,
                                    size_t parts, const struct entry *e,
                                    const char *name, struct merak_error *err)
{
    char word[STYLE_TEXT];
    size_t extent = 0;

    if (e->style == MERAK_TP_REPLICATE)
        return MERAK_OK;
    for (int i = 0; i < sig->n_index; i++) {
        const struct merak_index *index = &sig->index[i];

        if (index->kind == MERAK_INDEX_WHOLE ||
            index->kind == MERAK_INDEX_WINDOW || index->experts ||
            !merak_tp_style_allows(node, sig, plan, e->style, i))
            continue;
        extent = index->extent;
        if (index->uneven ? extent >= parts : extent % parts == 0)
            return MERAK_OK;
    }
    if (extent == 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--tp-plan %s:%s: %s, which %s reads, has no dim to "
                          "be cut so",
                          e->pattern, word_of(e->style, word), name,
                          node->name);
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--tp-plan %s:%s: %zu tensor ranks do not divide the %zu "
                      "of %s",
                      e->pattern, word_of(e->style, word), parts, extent, name);
}

static enum merak_status mark_node(const struct merak_tp_plan *plan,
                                   const struct merak_node *node,
                                   const struct merak_signature *sig,
                                   size_t parts, enum merak_tp_style *style,
                                   struct merak_error *err)
{
    struct entry first = {.style = MERAK_TP_FREE}, e;
    const char *name = NULL;
    char word[2][STYLE_TEXT];

    for (int o = 0; o < node->n_in; o++) {
        if (node->in[o]->kind != MERAK_VALUE_PARAM)
            continue;
        entry_of(plan, node->in[o]->name, &e);
        if (e.style == MERAK_TP_FREE)
            continue;
        if (name != NULL && e.style != first.style)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "--tp-plan: %s reads %s, to be cut %s, and %s, "
                              "%s: give one style for both",
                              node->name, name, word_of(first.style, word[0]),
                              node->in[o]->name, word_of(e.style, word[1]));
        if (name == NULL) {
            first = e;
            name = node->in[o]->name;
        }
    }
    *style = first.style;
    return name == NULL ? MERAK_OK
                        : check_node(plan, node, sig, parts, &first, name, err);
}

/* MERAK_ERR_CONFIG if no parameter's name matches a pattern. */
static enum merak_status check_patterns(const struct merak_tp_plan *plan,
                                        const struct merak_graph *graph,
                                        struct merak_error *err)
{
    const char *at = plan->text;
    struct merak_nearest nearest;
    struct entry e;

    while (next_entry(&at, &e)) {
        bool found = false;

        merak_nearest_init(&nearest, e.pattern);
        for (int v = 0; v < graph->n_values && !found; v++) {
            const struct merak_value *value = graph->value[v];

            if (value->kind != MERAK_VALUE_PARAM)
                continue;
            merak_nearest_offer(&nearest, value->name);
            found = fnmatch(e.pattern, value->name, 0) == 0;
        }
        if (!found)
            return merak_fail(
                err, MERAK_ERR_CONFIG,
                "--tp-plan %.80s: no parameter has such a name%s%s", e.pattern,
                nearest.name != NULL ? "; the nearest is " : "",
                nearest.name != NULL ? nearest.name : "");
    }
    return MERAK_OK;
}

enum merak_status merak_tp_plan_mark(const struct merak_tp_plan *plan,
                                     const struct merak_graph *graph,
                                     const struct merak_signature *sig,
                                     const struct merak_mesh *mesh,
                                     enum merak_tp_style *style,
                                     struct merak_error *err)
{
    const size_t parts = parts_of(mesh);
    enum merak_status rc = check_patterns(plan, graph, err);

    for (int n = 0; n < graph->n_forward && rc == MERAK_OK; n++)
        rc = mark_node(plan, graph->node[n], &sig[n], parts, &style[n], err);
    return rc;
}

enum merak_status merak_tp_plan_check(const struct merak_tp_plan *plan,
                                      const struct merak_graph *graph,
                                      struct merak_error *err)
{
    const struct merak_mesh alone = {.n_axes = 0};
    size_t n = (size_t)graph->n_forward + 1;
    struct merak_signature *sig = NULL;
    enum merak_tp_style *style;
    enum merak_status rc;

    if (!merak_tp_plan_any(plan))
        return MERAK_OK;
    style = calloc(n, sizeof(*style));
    if (style == NULL)
        return merak_fail_nomem(err, n * sizeof(*style));
    rc = merak_signatures(graph, &sig, err);
    if (rc == MERAK_OK)
        rc = merak_tp_plan_mark(plan, graph, sig, &alone, style, err);
    free(sig);
    free(style);
    return rc;
}
