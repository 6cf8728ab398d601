/* SPDX-License-Identifier: Apache-2.0 */
/* shard.c - from a graph and tp to a sharded graph */
#include "config.h"

#include "partitioner/layout/shard_impl.h"

#include "partitioner/graph/layer_names.h"
#include "partitioner/graph/letters.h"

#include "base/arrays.h"
#include "base/error.h"
#include "base/text_writer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the search
 * -------------------------------------------------------------------- */

struct search {
    const struct merak_graph *graph;
    const struct merak_shard_options *opt;
    struct merak_sharded *sharded; /* its mesh is set */
    struct merak_signature *sig;
    struct merak_shard_costs *costs;
    uint8_t *samples; /* by forward node: enum merak_samples_rule */
    enum merak_tp_style *style; /* by forward node, if tp_plan names some */
    struct merak_strategy *strategy; /* the cheapest so far */
    double cost;                     /* INFINITY: none yet */
};

/* Search by another rule; the result is taken if it is cheaper by more than
 * rounding. */
static enum merak_status try_rule(struct search *s,
                                  const struct merak_cut_rule *rule,
                                  struct merak_error *err)
{
    size_t bytes = ((size_t)s->graph->n_forward + 1) * sizeof(*s->strategy);
    struct merak_strategy *strategy = malloc(bytes);
    struct merak_shard_found next;
    enum merak_status rc;

    if (strategy == NULL)
        return merak_fail_nomem(err, bytes);
    rc = merak_shard_search(s->graph, &s->sharded->mesh, s->sig, s->costs, rule,
                            strategy, &next, err);
    if (rc == MERAK_OK && next.cost < s->cost * (1 - 1e-9)) {
        memcpy(s->strategy, strategy, bytes - sizeof(*strategy));
        s->cost = next.cost;
    }
    s->sharded->records += next.records;
    free(strategy);
    return rc;
}

/* The last `percent` of all nodes. */
static void mark_percent(const struct merak_graph *graph, int percent,
                         uint8_t *samples)
{
    int from = (int)((long)graph->n_forward * (100 - percent) / 100);

    for (int n = from; n < graph->n_forward; n++)
        samples[n] = MERAK_SAMPLES_MAY;
}

/* Nodes of these layers; before the first layer and behind the last nodes have
 * the choice, if that layer is one of them. */
static enum merak_status mark_layers(const struct merak_graph *graph,
                                     const struct merak_layer_split *split,
                                     uint8_t *samples, struct merak_error *err)
{
    int n_layers = merak_graph_layers(graph), last = merak_split_last(split);
    size_t bytes = ((size_t)graph->n_forward + 1) * sizeof(int);
    int *layer;
    bool began = false;

    if (last >= n_layers)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--split: layer %d of a model of %d, counted from 0",
                          last, n_layers);
    layer = malloc(bytes);
    if (layer == NULL)
        return merak_fail_nomem(err, bytes);
    merak_layers_mark(graph, layer);
    for (int n = 0; n < graph->n_forward; n++) {
        began = began || layer[n] >= 0;
        if (merak_split_has(split, layer[n]))
            samples[n] = MERAK_SAMPLES_MUST;
        else if (layer[n] < 0 &&
                 merak_split_has(split, began ? n_layers - 1 : 0))
            samples[n] = MERAK_SAMPLES_MAY;
    }
    free(layer);
    return MERAK_OK;
}

static enum merak_status mark_styles(struct search *s, struct merak_error *err)
{
    s->style = calloc((size_t)s->graph->n_forward + 1, sizeof(*s->style));
    if (s->style == NULL)
        return merak_fail_nomem(err, sizeof(*s->style));
    return merak_tp_plan_mark(&s->opt->tp_plan, s->graph, s->sig,
                              &s->sharded->mesh, s->style, err);
}

/* First with the sequence never cut, unless SP_ON requires it; for SP_AUTO also
 * with the sequence free to be cut; then, if allowed, with samples, too. Layers
 * that are named leave only that open. */
static enum merak_status try_rules(struct search *s, struct merak_error *err)
{
    struct merak_cut_rule rule = {.t = MERAK_T_NEVER,
                                  .cp = s->opt->cp_form,
                                  .style = s->style,
                                  .tp_plan = &s->opt->tp_plan,
                                  .deadline = s->opt->deadline};
    bool is_cut = s->opt->tp > 1, by_layer = merak_split_any(&s->opt->split);
    double whole;
    enum merak_status rc;

    if (s->opt->sp == MERAK_SP_ON)
        rule.t = MERAK_T_MUST;
    if (by_layer && is_cut) {
        rule.samples = s->samples;
        if (s->opt->sp == MERAK_SP_AUTO)
            rule.t = MERAK_T_MAY;
        return try_rule(s, &rule, err);
    }
    rc = try_rule(s, &rule, err);
    if (rc == MERAK_OK && s->opt->sp == MERAK_SP_AUTO && is_cut) {
        rule.t = MERAK_T_MAY;
        rc = try_rule(s, &rule, err);
    }
    whole = s->cost;
    if (rc == MERAK_OK && s->opt->tp_batch_percent > 0 && is_cut) {
        rule.samples = s->samples;
        rc = try_rule(s, &rule, err);
    }
    if (s->cost < whole)
        s->sharded->saved = 1 - s->cost / whole;
    return rc;
}

/* In how many pieces sequences are.  Unless that was given, in none if no rank
 * has less attention for it: all attention is cut by heads, or has a short
 * window. */
static size_t settle_order(const struct search *s)
{
    size_t pieces = merak_shard_pieces(s->graph, s->opt);
    double even = 0, in_order = 0;

    if (s->opt->cp_order != MERAK_CP_ORDER_AUTO)
        return pieces;
    for (int n = 0; n < s->graph->n_forward && pieces > 0; n++) {
        const struct merak_node *node = s->graph->node[n];

        even += merak_shard_queries_flops(s->costs, node, &s->sig[n],
                                          &s->strategy[n], pieces);
        in_order += merak_shard_queries_flops(s->costs, node, &s->sig[n],
                                              &s->strategy[n], 0);
    }
    return even < in_order * (1 - 1e-9) ? pieces : 0;
}

/* Add the axis along which shared layers are cut over all stages. */
static enum merak_status share(struct search *s, struct merak_error *err)
{
    struct merak_mesh *mesh = &s->sharded->mesh;

    /* there has to be room for replicas, too */
    if (mesh->n_axes + 1 == MERAK_MAX_AXES) {
        const char *axis = s->opt->ep > 1 ? "ep" : "cp";

        return merak_fail(err, MERAK_ERR_CONFIG,
                          "vocabulary-parallel layers: with %s %d, tp %d is to "
                          "be one axis, but it is kv heads times queries of "
                          "each: use a tp that divides the kv heads, --%s 1 or "
                          "--schedule 1f1b",
                          axis, s->opt->ep > 1 ? s->opt->ep : s->opt->cp,
                          s->opt->tp, axis);
    }
    mesh->axis[mesh->n_axes++] =
        (struct merak_axis){.name = "pp", .size = s->opt->stages};
    s->sharded->n_shared = s->opt->shared;
    return merak_shared_cut(s->graph, s->sig, mesh, s->opt->shared, s->strategy,
                            err);
}

int merak_sharded_tensor_axes(const struct merak_sharded *sharded)
{
    return sharded->mesh.n_axes - (sharded->n_shared > 0);
}

double merak_sharded_split_fraction(const struct merak_sharded *sharded)
{
    double all = 0, cut = 0;

    for (int v = 0; v < sharded->graph->n_values; v++) {
        const struct merak_value *value = sharded->graph->value[v];
        double count = (double)merak_shape_count(&value->shape);
        bool split = false;

        if (value->kind != MERAK_VALUE_PARAM)
            continue;
        for (int a = 0; a < merak_sharded_tensor_axes(sharded); a++)
            split = split || sharded->layout[v].at[a].kind == MERAK_SPLIT;
        all += count;
        cut += split ? count : 0;
    }
    return all > 0 ? cut / all : 0;
}

/* Does an axis for weights cut a value along positions? */
static bool is_cut_over_tp(const struct merak_sharded *s, int value)
{
    const struct merak_value *v = s->graph->value[value];

    for (int a = 0; a < merak_sharded_tensor_axes(s); a++) {
        const struct merak_place *at = &s->layout[value].at[a];

        if (s->mesh.axis[a].role == MERAK_AXIS_WEIGHTS &&
            at->kind == MERAK_SPLIT &&
            v->letter[at->dim] == MERAK_LETTER_POSITIONS)
            return true;
    }
    return false;
}

/* Where cp is two axes an attention may do both. */
static void count_form(const struct merak_sharded *s,
                       const struct merak_node *node,
                       struct merak_sequence_cuts *cuts)
{
    bool gathers = false, exchanges = false;
    struct merak_signature sig;

    merak_node_signature(node, &sig);
    if (!merak_node_needs_sequences(node, &sig))
        return;
    for (int a = 0; a < merak_sharded_tensor_axes(s); a++) {
        int cut = s->strategy[node->id].cut[a];

        if (s->mesh.axis[a].role != MERAK_AXIS_SEQUENCE || cut < 0)
            continue;
        if (sig.index[cut].name == MERAK_LETTER_POSITIONS)
            gathers = true;
        else
            exchanges = true;
    }
    cuts->gathered += gathers;
    cuts->exchanged += exchanges;
}

/* The axes along which dims of space are cut. */
static void find_grid(const struct merak_sharded *s,
                      struct merak_sequence_cuts *cuts)
{
    int n = 0;

    for (int a = 0; a < merak_sharded_tensor_axes(s); a++) {
        char letter = merak_axis_letter(s->graph, &s->mesh, a);

        if (s->mesh.axis[a].role != MERAK_AXIS_SEQUENCE ||
            !merak_letter_is_space(letter))
            continue;
        cuts->grid |= (int64_t)s->mesh.axis[a].size << (16 * n);
        cuts->letters[n++] = letter;
    }
}

void merak_sharded_sequence_cuts(const struct merak_sharded *sharded,
                                 struct merak_sequence_cuts *cuts)
{
    *cuts = (struct merak_sequence_cuts){
        .letter = merak_graph_sequence_letter(sharded->graph)};
    cuts->head_tail = sharded->graph->position_pieces > 0;
    find_grid(sharded, cuts);
    for (int v = 0; v < sharded->graph->n_values; v++)
        cuts->over_tp = cuts->over_tp || is_cut_over_tp(sharded, v);
    for (int n = 0; n < sharded->graph->n_nodes; n++) {
        if (sharded->graph->node[n]->phase == MERAK_PHASE_F)
            count_form(sharded, sharded->graph->node[n], cuts);
    }
}

bool merak_sharded_exchanges(const struct merak_sharded *sharded, int node)
{
    enum merak_convert_kind kind = sharded->hop[node].kind;

    return kind != MERAK_CONVERT_NONE && kind != MERAK_CONVERT_SLICE;
}

int merak_sharded_path(const struct merak_sharded *sharded,
                       const struct merak_shape *shape,
                       const struct merak_layout *from,
                       const struct merak_layout *to, struct merak_hop *hops,
                       double *cost_p)
{
    int pp = merak_sharded_tensor_axes(sharded);
    struct merak_mesh mesh = sharded->mesh;

    if (from->at[pp].kind == MERAK_REPLICATED &&
        to->at[pp].kind == MERAK_REPLICATED)
        mesh.n_axes = pp;
    return merak_layout_path(&mesh, shape, from, to, hops, cost_p);
}

/* --- parts, and the graphs of unlike stages --------------------------------
 */

enum merak_status merak_parts_create(int n_nodes, int n,
                                     struct merak_parts **parts_p,
                                     struct merak_error *err)
{
    size_t nodes = (size_t)n_nodes + 1, places = (size_t)n + 1;
    struct merak_parts p = {.n = n, .n_nodes = n_nodes}, *parts;
    const struct merak_array arrays[] = {
        MERAK_ARRAY(parts, 1), MERAK_ARRAY(p.of_node, nodes),
        MERAK_ARRAY(p.block, nodes), MERAK_ARRAY(p.n_blocks, places),
        MERAK_ARRAY(p.place, places)};
    enum merak_status rc = MERAK_ARRAYS(arrays, err);

    if (rc == MERAK_OK) {
        *parts = p;
        *parts_p = parts;
    }
    return rc;
}

void merak_parts_destroy(struct merak_parts *parts)
{
    free(parts); /* and its arrays */
}

static enum merak_status copy_parts(const struct merak_parts *from,
                                    struct merak_parts **parts_p,
                                    struct merak_error *err)
{
    size_t nodes = (size_t)from->n_nodes * sizeof(int);
    enum merak_status rc =
        merak_parts_create(from->n_nodes, from->n, parts_p, err);

    if (rc != MERAK_OK)
        return rc;
    memcpy((*parts_p)->of_node, from->of_node, nodes);
    memcpy((*parts_p)->block, from->block, nodes);
    memcpy((*parts_p)->n_blocks, from->n_blocks, (size_t)from->n * sizeof(int));
    memcpy((*parts_p)->place, from->place, (size_t)from->n * sizeof(int));
    return MERAK_OK;
}

enum merak_status merak_sharded_add(struct merak_sharded *first,
                                    struct merak_sharded *sharded, int stage,
                                    int n, struct merak_error *err)
{
    int ids = sharded->graph->n_values + 2 * sharded->graph->n_nodes;

    if (first->by_stage == NULL) {
        size_t bytes = (size_t)n * sizeof(*first->by_stage);

        first->by_stage = calloc((size_t)n, sizeof(*first->by_stage));
        if (first->by_stage == NULL)
            return merak_fail_nomem(err, bytes);
        first->n_stages = n;
    }
    first->by_stage[stage] = sharded;
    if (ids > first->n_ids)
        first->n_ids = ids;
    return MERAK_OK;
}

const struct merak_sharded *
merak_sharded_of(const struct merak_sharded *sharded, int stage)
{
    return sharded->by_stage == NULL ? sharded : sharded->by_stage[stage];
}

/* What the search counts for slicing inputs that were written as the parts that
 * ranks load. */
static double loaded_s(const struct search *s)
{
    double seconds = 0;

    for (int v = 0; v < s->graph->n_values; v++) {
        const struct merak_value *old = s->graph->value[v];
        const struct merak_graph *written = s->sharded->graph;
        int n = 0;

        while (n < written->n_values && old->kind == MERAK_VALUE_INPUT &&
               !(written->value[n]->kind == MERAK_VALUE_INPUT &&
                 written->value[n]->input == old->input))
            n++;
        if (old->kind == MERAK_VALUE_INPUT && n < written->n_values)
            seconds += merak_shard_convert_s(
                s->costs, v, 0,
                merak_layout_code(&s->sharded->mesh, &s->sharded->layout[n]));
    }
    return seconds;
}

/* With the cheapest layouts over a mesh, which cost *cost_p seconds. */
static enum merak_status shard_over(const struct merak_graph *graph,
                                    const struct merak_shard_options *opt,
                                    const struct merak_mesh *mesh,
                                    struct merak_sharded **sharded_p,
                                    double *cost_p, struct merak_error *err)
{
    struct search s = {.graph = graph, .opt = opt, .cost = INFINITY};
    enum merak_status rc = MERAK_OK;

    s.sharded = calloc(1, sizeof(*s.sharded));
    s.strategy = calloc((size_t)graph->n_forward + 1, sizeof(*s.strategy));
    s.samples = calloc((size_t)graph->n_forward + 1, sizeof(*s.samples));
    if (s.sharded == NULL || s.strategy == NULL || s.samples == NULL) {
        rc = merak_fail_nomem(err, sizeof(*s.sharded));
        goto out;
    }
    s.sharded->mesh = *mesh;
    mark_percent(graph, opt->tp_batch_percent, s.samples);
    rc = merak_split_any(&opt->split)
             ? mark_layers(graph, &opt->split, s.samples, err)
             : MERAK_OK;
    if (rc != MERAK_OK)
        goto out;
    rc = merak_signatures(graph, &s.sig, err);
    if (rc == MERAK_OK && merak_tp_plan_any(&opt->tp_plan))
        rc = mark_styles(&s, err);
    if (rc == MERAK_OK)
        rc = merak_shard_check_cp(graph, s.sig, mesh, opt, err);
    if (rc == MERAK_OK)
        rc = merak_shard_costs_create(graph, &s.sharded->mesh, opt, &s.costs,
                                      err);
    if (rc == MERAK_OK)
        rc = try_rules(&s, err);
    if (rc == MERAK_OK && opt->shared > 0)
        rc = share(&s, err);
    if (rc == MERAK_OK)
        rc = merak_shard_write(graph, s.sig, s.strategy, opt->parts, s.sharded,
                               err);
    if (rc == MERAK_OK)
        s.sharded->graph->position_pieces = settle_order(&s);
    if (rc == MERAK_OK && opt->parts != NULL)
        rc = copy_parts(opt->parts, &s.sharded->parts, err);
    if (rc != MERAK_OK)
        goto out;
    *cost_p = s.cost + merak_shard_halos_s(s.costs, s.sharded) - loaded_s(&s);
    *sharded_p = s.sharded;
    s.sharded = NULL;
out:
    merak_shard_costs_destroy(s.costs);
    free(s.sig);
    free(s.style);
    free(s.samples);
    free(s.strategy);
    merak_sharded_destroy(s.sharded);
    return rc;
}

enum merak_status merak_shard_described(const struct merak_graph *graph,
                                        const struct merak_shard_options *opt,
                                        struct merak_sharded **sharded_p,
                                        struct merak_error *err)
{
    struct merak_sharded *best = NULL;
    struct merak_mesh mesh[MERAK_MAX_MESHES];
    double least = INFINITY;
    int n = 0;
    enum merak_status rc = merak_shard_meshes(graph, opt, mesh, &n, err);

    for (int i = 0; i < n && rc == MERAK_OK; i++) {
        struct merak_sharded *sharded = NULL;
        double cost = INFINITY;

        rc = shard_over(graph, opt, &mesh[i], &sharded, &cost, err);
        if (rc == MERAK_OK && (best == NULL || cost < least * (1 - 1e-9))) {
            merak_sharded_destroy(best);
            best = sharded;
            least = cost;
        } else {
            merak_sharded_destroy(sharded);
        }
    }
    if (rc == MERAK_OK)
        *sharded_p = best;
    else
        merak_sharded_destroy(best);
    return rc;
}

void merak_sharded_destroy(struct merak_sharded *sharded)
{
    if (sharded == NULL)
        return;
    for (int s = 1; s < sharded->n_stages; s++) {
        bool again = sharded->by_stage[s] == sharded;

        for (int e = 0; e < s; e++)
            again = again || sharded->by_stage[e] == sharded->by_stage[s];
        if (!again)
            merak_sharded_destroy(sharded->by_stage[s]);
    }
    free(sharded->by_stage);
    free(sharded->origin);
    merak_parts_destroy(sharded->parts);
    merak_graph_destroy(sharded->graph);
    free(sharded->layout);
    free(sharded->strategy);
    free(sharded->hop);
    free(sharded->shared);
    free(sharded->block);
    free(sharded);
}

/* --- printing
 * ------------------------------------------------------------------------ */

static void print_cuts(FILE *f, const struct merak_sharded *s,
                       const struct merak_node *node)
{
    struct merak_signature sig;

    merak_node_signature(node, &sig);
    for (int x = 0; x < s->mesh.n_axes; x++) {
        int cut = s->strategy[node->id].cut[x];

        if (cut == MERAK_CUT_LINEAR)
            fprintf(f, " %s:partial", s->mesh.axis[x].name);
        else if (cut >= 0)
            fprintf(f, " %s:%c", s->mesh.axis[x].name, sig.index[cut].name);
    }
}

static void print_node(FILE *f, const struct merak_sharded *s,
                       const struct merak_node *node)
{
    static const char phase[] = {'F', 'B', 'W'};
    char text[32];

    fprintf(f, "%c %s", phase[node->phase], node->name);
    if (s->hop[node->id].kind != MERAK_CONVERT_NONE)
        fprintf(f, " %s:%s", s->mesh.axis[s->hop[node->id].axis].name,
                merak_convert_name(s->hop[node->id].kind));
    else
        print_cuts(f, s, node);
    for (int o = 0; o < node->n_in + node->n_out; o++) {
        const struct merak_value *v = merak_node_operand(node, o);

        fprintf(f, "%s%s[%s]", o == node->n_in ? " -> " : " ", v->name,
                merak_layout_print(&s->mesh, &s->layout[v->id], text,
                                   sizeof(text)));
    }
    fputc('\n', f);
}

bool merak_sharded_asks(const struct merak_sharded *sharded, int node)
{
    struct merak_node *const *all = sharded->graph->node;
    const struct merak_value *number = all[node]->in[1];
    int first = number->producer + 1;

    while (sharded->hop[first].kind == MERAK_CONVERT_NONE ||
           all[first]->n_in < 2 || all[first]->in[1] != number)
        first++;
    return first == node;
}

enum merak_status merak_sharded_print(const struct merak_sharded *sharded,
                                      char **text_p, struct merak_error *err)
{
    struct merak_text_writer writer;
    FILE *f = merak_text_open(&writer);

    if (f == NULL)
        return merak_text_close(&writer, text_p, err);
    for (int i = 0; i < sharded->graph->n_nodes; i++)
        print_node(f, sharded, sharded->graph->node[i]);
    return merak_text_close(&writer, text_p, err);
}
