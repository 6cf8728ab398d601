/* SPDX-License-Identifier: Apache-2.0 */
/* shard_strategy.c - the ways to cut a node, and what each needs of operands
 *
 * Which index may be cut along an axis for weights (its role):
 *   - the samples (b), only of nodes that the rule names: those of all others
 *     are left to data parallelism;
 *   - the sequence (t), as the rule allows;
 *   - only what divides evenly, unless the index may be uneven;
 *   - experts never: they have an axis of their own, and beside it are cut by
 *     their inner width, so that ranks of an expert have as many rows.
 * The purpose of tensor parallelism is that no rank holds whole weights or does
 * all of the work, at any size of model.  So if a node has indices of two kinds
 * that divide, one of them must be cut:
 *   - those that split a weight matrix: along a parameter, and missing from
 *     an activation, which is summed over them or repeated for each (in and
 *     out of a linear, the rows of an embedding table; not the channels of
 *     a table that is added);
 *   - those of a node with whole rows: a node that cannot cut its rows
 *     (attention, rotary positions) is cut by heads.
 * Samples, where the rule allows them, are a choice besides these: weights are
 * then whole, as the rule intends.  There a table that nothing but its lookup
 * reads may be cut by columns, too: an all-to-all then takes what was looked up
 * from columns to samples, in an Nth of the words, over N ranks, that it takes
 * to reduce-scatter the partial sums of a table cut by its vocabulary.
 *
 * Along the axis of the sequence (t) every node that can be cut along it is; no
 * weight is, and gradients of weights are partial sums.  A node that reads
 * positions which it cannot be cut along, attention, may be cut by heads
 * instead.
 *
 * A model without sequences is cut by its first dim of space along that axis,
 * by its second one along a second: nodes with windows over it then read what
 * their neighbours have, and those whose weights run along it are whole.
 *
 * Along an axis for experts, these are cut where a node has them; all else is
 * cut by samples, or by its vocabulary, or not at all.
 */
#include "config.h"

#include "partitioner/layout/shard_impl.h"

#include "partitioner/graph/letters.h"

#include "base/error.h"

#include <stdlib.h>

enum merak_status merak_signatures(const struct merak_graph *graph,
                                   struct merak_signature **sig_p,
                                   struct merak_error *err)
{
    size_t n = (size_t)graph->n_nodes;
    struct merak_signature *sig = calloc(n + 1, sizeof(*sig));

    if (sig == NULL)
        return merak_fail_nomem(err, (n + 1) * sizeof(*sig));
    for (int i = 0; i < graph->n_nodes; i++)
        merak_node_signature(graph->node[i], &sig[i]);
    *sig_p = sig;
    return MERAK_OK;
}

static int dim_with(const struct merak_signature *sig, int o, int ndim,
                    int index)
{
    for (int d = 0; d < ndim; d++)
        if (sig->operand_dim[o][d] == index)
            return d;
    return -1;
}

void merak_strategy_layout(const struct merak_mesh *mesh,
                           const struct merak_signature *sig, int n_in,
                           const struct merak_strategy *strategy, int o,
                           struct merak_layout *layout)
{
    merak_layout_replicated(layout);
    for (int x = 0; x < mesh->n_axes; x++) {
        struct merak_place *place = &layout->at[x];
        int cut = strategy->cut[x], d;

        if (cut == MERAK_CUT_LINEAR)
            place->kind = MERAK_PARTIAL_SUM;
        if (cut < 0)
            continue;
        d = dim_with(sig, o, MERAK_MAX_DIMS, cut);
        if (d >= 0)
            *place =
                (struct merak_place){.kind = MERAK_SPLIT, .dim = (int8_t)d};
        else if (o >= n_in)
            place->kind = sig->index[cut].kind == MERAK_INDEX_MAX
                              ? MERAK_PARTIAL_MAX
                              : MERAK_PARTIAL_SUM;
    }
}

bool merak_strategy_reach(const struct merak_mesh *mesh,
                          const struct merak_signature *sig, int o,
                          struct merak_layout *layout)
{
    for (int x = 0; x < mesh->n_axes; x++) {
        struct merak_place *place = &layout->at[x];
        int i =
            place->kind == MERAK_SPLIT ? sig->operand_dim[o][place->dim] : -1;

        if (i < 0 || sig->index[i].kind != MERAK_INDEX_WINDOW)
            continue;
        place->before = sig->reach[o][place->dim].before;
        place->after = sig->reach[o][place->dim].after;
    }
    return merak_layout_reaches(layout);
}

void merak_strategy_inherit(const struct merak_mesh *mesh,
                            const struct merak_signature *forward_sig,
                            const struct merak_strategy *forward,
                            const struct merak_signature *sig,
                            struct merak_strategy *strategy)
{
    for (int x = 0; x < mesh->n_axes; x++) {
        int cut = forward->cut[x];

        strategy->cut[x] = MERAK_CUT_NONE;
        for (int i = 0; i < sig->n_index && cut >= 0; i++)
            if (sig->index[i].name == forward_sig->index[cut].name &&
                sig->index[i].kind != MERAK_INDEX_WHOLE)
                strategy->cut[x] = (int8_t)i;
    }
}

void merak_strategy_alike(const struct merak_mesh *mesh,
                          const struct merak_signature *sig, int n_in,
                          const struct merak_layout *layout,
                          struct merak_strategy *strategy)
{
    for (int x = 0; x < mesh->n_axes; x++) {
        const struct merak_place *place = &layout->at[x];

        strategy->cut[x] = MERAK_CUT_NONE;
        if (place->kind == MERAK_PARTIAL_SUM)
            strategy->cut[x] = MERAK_CUT_LINEAR;
        else if (place->kind == MERAK_SPLIT)
            strategy->cut[x] = sig->operand_dim[n_in][place->dim];
    }
}

double merak_strategy_degree(const struct merak_mesh *mesh,
                             const struct merak_strategy *strategy)
{
    double degree = 1;

    for (int x = 0; x < mesh->n_axes; x++)
        if (strategy->cut[x] >= 0)
            degree *= mesh->axis[x].size;
    return degree;
}

bool merak_strategy_has_positions(const struct merak_signature *sig)
{
    for (int i = 0; i < sig->n_index; i++) {
        if (sig->index[i].name == MERAK_LETTER_POSITIONS &&
            sig->index[i].kind != MERAK_INDEX_WHOLE)
            return true;
    }
    return false;
}

void merak_layout_dual(const struct merak_mesh *mesh,
                       const struct merak_layout *layout,
                       struct merak_layout *dual)
{
    merak_layout_replicated(dual);
    for (int x = 0; x < mesh->n_axes; x++)
        if (layout->at[x].kind == MERAK_SPLIT)
            dual->at[x] = layout->at[x];
}

bool merak_node_is_sum(const struct merak_node *node)
{
    return node->phase == MERAK_PHASE_B && node->out[0]->of >= 0 &&
           node->op->role == MERAK_ROLE_SUM;
}

bool merak_copy_is_kept(const struct merak_mesh *mesh,
                        const struct merak_shape *shape,
                        const struct merak_layout *natural,
                        const struct merak_layout *copy)
{
    /* the factor is for rounding */
    return merak_layout_words(mesh, copy, shape) <=
           merak_layout_words(mesh, natural, shape) * (1 + 1e-9);
}

/* --- enumeration -----------------------------------------------------------
 */

struct choice {
    const struct merak_graph *graph;
    const struct merak_mesh *mesh;
    const struct merak_node *node;
    const struct merak_signature *sig;
    const struct merak_cut_rule *rule;
    bool strict; /* weights must be split */
};

static bool is_samples(const struct merak_index *index)
{
    return index->name == MERAK_LETTER_SAMPLES;
}

static bool is_sequence(const struct merak_index *index)
{
    return merak_letter_is_sequence(index->name);
}

static bool fits(const struct merak_index *index, size_t parts)
{
    return index->extent >= parts &&
           (index->uneven || index->extent % parts == 0);
}

/* Attention: its queries are cut along the sequence's own axis only. */
static bool reads_back(const struct merak_node *node)
{
    return node->op->back_in != 0;
}

static enum merak_samples_rule samples_rule(const struct choice *c)
{
    return c->rule->samples == NULL
               ? MERAK_SAMPLES_NEVER
               : (enum merak_samples_rule)c->rule->samples[c->node->id];
}

static bool is_cuttable(const struct choice *c, int i, size_t parts)
{
    const struct merak_index *index = &c->sig->index[i];

    return index->kind != MERAK_INDEX_WHOLE &&
           index->kind != MERAK_INDEX_WINDOW && !index->experts &&
           fits(index, parts) &&
           !(is_samples(index) && samples_rule(c) == MERAK_SAMPLES_NEVER) &&
           !(is_sequence(index) &&
             (c->rule->t == MERAK_T_NEVER || reads_back(c->node)));
}

static bool is_param(const struct choice *c, int o)
{
    return o < c->node->n_in && c->node->in[o]->kind == MERAK_VALUE_PARAM;
}

/* An input of the model is not an activation: ids have no channels. */
static bool is_activation(const struct choice *c, int o)
{
    return o >= c->node->n_in ||
           c->node->in[o]->kind == MERAK_VALUE_ACTIVATION ||
           c->node->in[o]->kind == MERAK_VALUE_RECYCLED;
}

static bool splits_weight(const struct choice *c, int i)
{
    bool in_weight = false, missing = false;

    for (int o = 0; o < c->node->n_in + c->node->n_out; o++) {
        bool has = dim_with(c->sig, o, MERAK_MAX_DIMS, i) >= 0;

        if (is_param(c, o))
            in_weight = in_weight || has;
        else if (is_activation(c, o))
            missing = missing || !has;
    }
    return in_weight && missing;
}

/* Does the node need a dim of an activation whole? */
static bool has_whole_rows(const struct choice *c)
{
    for (int o = 0; o < c->node->n_in + c->node->n_out; o++) {
        for (int d = 0; d < MERAK_MAX_DIMS && is_activation(c, o); d++) {
            int i = c->sig->operand_dim[o][d];

            if (i >= 0 &&
                (c->sig->index[i].kind == MERAK_INDEX_WHOLE ||
                 c->sig->index[i].kind == MERAK_INDEX_WINDOW) &&
                c->sig->index[i].extent > 1)
                return true;
        }
    }
    return false;
}

/* Samples and points are divided by choice only. */
static bool is_wanted(const struct choice *c, int i)
{
    return splits_weight(c, i) ||
           (!merak_letter_is_known(c->sig->index[i].name) && has_whole_rows(c));
}

static bool reads_alone(const struct choice *c, const struct merak_value *v)
{
    int n = 0;

    for (int k = 0; k < c->graph->n_forward; k++) {
        for (int o = 0; o < c->graph->node[k]->n_in; o++)
            n += c->graph->node[k]->in[o] == v;
    }
    return n == 1;
}

/* A column of a table that is looked up by inputs of the model and nowhere
 * else, where the samples may be cut. */
static bool is_column(const struct choice *c, int i)
{
    bool table = false, column = false;

    if (samples_rule(c) == MERAK_SAMPLES_NEVER)
        return false;
    for (int k = 0; k < c->sig->n_index; k++)
        table = table || c->sig->index[k].vocabulary;
    for (int o = 0; o < c->node->n_in && table; o++) {
        if (is_activation(c, o))
            return false;
        column = column || (is_param(c, o) &&
                            dim_with(c->sig, o, MERAK_MAX_DIMS, i) >= 0 &&
                            reads_alone(c, c->node->in[o]));
    }
    return column;
}

/*
 * Is it a node between blocks that only the sequence can divide, because it
 * needs whole rows (norms)?  Its neighbours follow by cost.
 */
static bool only_t_divides(const struct choice *c)
{
    bool t = false;

    for (int i = 0; i < c->sig->n_index; i++) {
        const struct merak_index *index = &c->sig->index[i];

        if (index->kind == MERAK_INDEX_WHOLE || is_samples(index))
            continue;
        if (!is_sequence(index))
            return false;
        t = true;
    }
    return t && has_whole_rows(c);
}

bool merak_node_needs_sequences(const struct merak_node *node,
                                const struct merak_signature *sig)
{
    for (int o = 0; o < node->n_in; o++) {
        const struct merak_value *v = node->in[o];

        for (int d = 0; d < v->shape.ndim; d++) {
            int i = sig->operand_dim[o][d];

            if (i >= 0 && sig->index[i].kind == MERAK_INDEX_WHOLE &&
                v->letter[d] == MERAK_LETTER_POSITIONS)
                return true;
        }
    }
    return false;
}

/* The candidates without a cut: whole, or linear, which passes a partial sum
 * through.  Returns how many they are. */
static int list_uncut(const struct choice *c, int8_t *cuts)
{
    cuts[0] = MERAK_CUT_NONE;
    cuts[1] = MERAK_CUT_LINEAR;
    return c->sig->linear ? 2 : 1;
}

/* Candidates on an axis of the sequence.  Where heads are asked for and cannot
 * be cut over all of its ranks, the outer ones may gather keys. */
static int list_sequence_cuts(const struct choice *c, int axis, int8_t *cuts)
{
    size_t parts = (size_t)c->mesh->axis[axis].size;
    bool whole = merak_node_needs_sequences(c->node, c->sig);
    char letter = merak_axis_letter(c->graph, c->mesh, axis);
    bool heads = whole && c->rule->cp != MERAK_CP_GATHER;
    bool positions = !whole || c->rule->cp != MERAK_CP_HEADS ||
                     merak_axis_is_outer(c->mesh, axis);
    int n = 0;

    for (int i = 0; i < c->sig->n_index; i++) {
        const struct merak_index *index = &c->sig->index[i];

        if (index->kind == MERAK_INDEX_WHOLE || !fits(index, parts))
            continue;
        if ((positions && index->name == letter &&
             (letter == MERAK_LETTER_POSITIONS || !splits_weight(c, i))) ||
            (heads && !merak_letter_is_known(index->name) &&
             !splits_weight(c, i)))
            cuts[n++] = (int8_t)i;
    }
    return n > 0 ? n : list_uncut(c, cuts);
}

/* Candidates on the axis of experts.  One that all tokens have is whole. */
static int list_expert_cuts(const struct choice *c, size_t parts, int8_t *cuts)
{
    bool experts = false;
    int n = 0;

    for (int i = 0; i < c->sig->n_index; i++)
        experts = experts || (c->sig->index[i].experts &&
                              c->sig->index[i].kind != MERAK_INDEX_WHOLE);
    if (!experts)
        n = list_uncut(c, cuts);
    for (int i = 0; i < c->sig->n_index; i++) {
        const struct merak_index *index = &c->sig->index[i];

        if (index->kind == MERAK_INDEX_WHOLE || !fits(index, parts))
            continue;
        if (experts ? index->experts : is_samples(index) || index->vocabulary)
            cuts[n++] = (int8_t)i;
    }
    return n;
}

/* The candidate of a node that must be cut by samples; none, if it cannot. */
static int list_samples(const struct choice *c, size_t parts, int8_t *cuts)
{
    for (int i = 0; i < c->sig->n_index; i++) {
        if (is_samples(&c->sig->index[i]) && is_cuttable(c, i, parts)) {
            cuts[0] = (int8_t)i;
            return 1;
        }
    }
    return 0;
}

/* Candidates of a node whose style was given: what that allows. */
static int list_styled(const struct choice *c, enum merak_tp_style style,
                       size_t parts, int8_t *cuts)
{
    int n = style == MERAK_TP_REPLICATE ? list_uncut(c, cuts) : 0;

    for (int i = 0; i < c->sig->n_index; i++) {
        if (is_cuttable(c, i, parts) &&
            merak_tp_style_allows(c->node, c->sig, c->rule->tp_plan, style, i))
            cuts[n++] = (int8_t)i;
    }
    return n;
}

/* Candidates on one axis, those without a cut first. */
static int list_cuts(const struct choice *c, int axis, int8_t *cuts)
{
    size_t parts = (size_t)c->mesh->axis[axis].size;
    bool must_t = c->rule->t == MERAK_T_MUST && only_t_divides(c);
    bool wanted = false;
    int n = 0;

    if (c->mesh->axis[axis].role == MERAK_AXIS_SEQUENCE)
        return list_sequence_cuts(c, axis, cuts);
    if (c->mesh->axis[axis].role == MERAK_AXIS_EXPERTS)
        return list_expert_cuts(c, parts, cuts);
    if (c->rule->style != NULL &&
        c->rule->style[c->node->id] != MERAK_TP_FREE)
        return list_styled(c, c->rule->style[c->node->id], parts, cuts);
    if (samples_rule(c) == MERAK_SAMPLES_MUST)
        n = list_samples(c, parts, cuts);
    if (n > 0)
        return n;
    for (int i = 0; i < c->sig->n_index && c->strict; i++)
        wanted = wanted || (is_cuttable(c, i, parts) && is_wanted(c, i));
    if (!wanted && !(c->strict && must_t))
        n = list_uncut(c, cuts);
    for (int i = 0; i < c->sig->n_index; i++) {
        if (!is_cuttable(c, i, parts) ||
            (wanted && !is_wanted(c, i) && !is_samples(&c->sig->index[i]) &&
             !is_column(c, i)))
            continue;
        cuts[n++] = (int8_t)i;
    }
    return n;
}

/* If several axes cut one index, their product has to fit. */
static bool is_sound(const struct choice *c, const struct merak_strategy *s)
{
    for (int i = 0; i < c->sig->n_index; i++) {
        size_t parts = 1;

        for (int x = 0; x < c->mesh->n_axes; x++)
            if (s->cut[x] == i)
                parts *= (size_t)c->mesh->axis[x].size;
        if (parts > 1 && !fits(&c->sig->index[i], parts))
            return false;
    }
    return true;
}

static int list_all(const struct choice *c, struct merak_strategy *list)
{
    int8_t cuts[MERAK_STAGE_AXES][MERAK_MAX_CUTS];
    int count[MERAK_STAGE_AXES], ways = 1, n = 0;

    for (int x = 0; x < c->mesh->n_axes; x++) {
        count[x] = list_cuts(c, x, cuts[x]);
        ways *= count[x];
    }
    for (int way = 0; way < ways; way++) { /* the last axis turns fastest */
        struct merak_strategy s = MERAK_STRATEGY_NONE;
        int rest = way;

        for (int x = c->mesh->n_axes - 1; x >= 0; x--) {
            s.cut[x] = cuts[x][rest % count[x]];
            rest /= count[x];
        }
        if (is_sound(c, &s))
            list[n++] = s;
    }
    return n;
}

int merak_strategy_list(const struct merak_graph *graph,
                        const struct merak_mesh *mesh,
                        const struct merak_node *node,
                        const struct merak_signature *sig,
                        const struct merak_cut_rule *rule,
                        struct merak_strategy *list)
{
    struct choice c = {graph, mesh, node, sig, rule, true};
    int n = list_all(&c, list);

    if (n > 0)
        return n;
    c.strict = false; /* nothing divides: every rank computes all of it */
    return list_all(&c, list);
}
