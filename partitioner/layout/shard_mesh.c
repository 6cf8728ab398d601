/* SPDX-License-Identifier: Apache-2.0 */
/* shard_mesh.c - the axes that a graph is cut over, and whether it can be */
#include "config.h"

#include "partitioner/layout/shard_impl.h"

#include "partitioner/graph/letters.h"

#include "base/error.h"
#include "base/factors.h"
#include "base/size.h"

#include <stdio.h>
#include <string.h>

/* --- numbers that have to divide ------------------------------------------ */

struct heads {
    size_t kv;    /* gcd of the kv heads of all attentions; 0: none */
    size_t query; /* the same for query heads, */
    size_t own;   /* and for the queries of a kv head */
    bool packed;  /* some attention cannot be cut along the sequence */
};

/* They determine the factors of tp before there is anything to search. */
static void find_heads(const struct merak_graph *graph, struct heads *heads)
{
    *heads = (struct heads){0};
    for (int i = 0; i < graph->n_forward; i++) {
        const struct merak_node *node = graph->node[i];
        struct merak_signature sig;
        struct merak_infer inf;
        size_t kv, query;

        if (node->op->heads == NULL)
            continue;
        merak_node_signature(node, &sig);
        heads->packed = heads->packed || !merak_strategy_has_positions(&sig);
        merak_node_infer(node, &inf);
        node->op->heads(&inf, &kv, &query);
        heads->kv = merak_size_gcd(heads->kv, kv);
        heads->query = merak_size_gcd(heads->query, query);
        heads->own = merak_size_gcd(heads->own, query / kv);
    }
}

static size_t cp_of(const struct merak_shard_options *opt)
{
    return opt->cp > 1 ? (size_t)opt->cp : 1;
}

/* The nearest lengths that the number of parts divides. */
static enum merak_status fix_length(size_t seq, size_t parts,
                                    struct merak_error *err)
{
    size_t below = seq / parts * parts;

    if (below == 0)
        return merak_error_fix(err, MERAK_ERR_CONFIG, " (nearest: %zu)", parts);
    return merak_error_fix(err, MERAK_ERR_CONFIG, " (nearest: %zu or %zu)",
                           below, below + parts);
}

/* Samples that a micro-batch has to be divided into over an axis. */
static enum merak_status check_samples(const struct merak_graph *graph,
                                       const struct merak_shard_options *opt,
                                       const char *axis, size_t n,
                                       struct merak_error *err)
{
    size_t halves = opt->halved ? 2 : 1;
    char option[32] = "it";

    if (graph->micro_batch % n == 0)
        return MERAK_OK;
    if (merak_split_any(&opt->split))
        snprintf(option, sizeof(option), "--split");
    else if (opt->tp_batch_percent > 0)
        snprintf(option, sizeof(option), "--tp-batch %d",
                 opt->tp_batch_percent);
    merak_fail(err, MERAK_ERR_CONFIG,
               "%sa micro-batch of %zu cannot be cut over %s=%zu; %s needs a "
               "--micro-batch that %s%s divides",
               opt->halved ? "half of " : "", graph->micro_batch * halves, axis,
               n, option, opt->halved ? "twice " : "", axis);
    return merak_error_fix(err, MERAK_ERR_CONFIG, " (nearest: %zu)",
                           (graph->micro_batch / n + 1) * n * halves);
}

size_t merak_shard_experts(const struct merak_graph *graph)
{
    size_t n = 0;

    for (int i = 0; i < graph->n_forward; i++) {
        struct merak_signature sig;

        merak_node_signature(graph->node[i], &sig);
        for (int x = 0; x < sig.n_index; x++)
            if (sig.index[x].experts && sig.index[x].extent > 1)
                n = merak_size_gcd(n, sig.index[x].extent);
    }
    return n;
}

/* Can positions of nodes with experts, and with them the rows kept for each
 * expert, be cut in so many parts? */
static bool rows_fit(const struct merak_graph *graph, size_t parts)
{
    for (int i = 0; i < graph->n_forward; i++) {
        struct merak_signature sig;
        size_t extent = 0;
        bool experts = false;

        merak_node_signature(graph->node[i], &sig);
        for (int x = 0; x < sig.n_index; x++) {
            experts = experts || sig.index[x].experts;
            if (sig.index[x].name == MERAK_LETTER_POSITIONS)
                extent = sig.index[x].extent;
        }
        if (experts && extent % parts != 0 && graph->seq % parts == 0)
            return false;
    }
    return true;
}

static enum merak_status check_experts(const struct merak_graph *graph,
                                       const struct merak_shard_options *opt,
                                       struct merak_error *err)
{
    size_t n = merak_shard_experts(graph), ep = (size_t)opt->ep;

    if (n == 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--ep %d: the model has no experts; use --tp or --dp",
                          opt->ep);
    if (n % ep == 0 && !rows_fit(graph, cp_of(opt)))
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "the rows kept for each expert cannot be cut over "
                          "cp=%d: use another --expert-room, such as 100, or a "
                          "longer --seq",
                          opt->cp);
    if (n % ep == 0)
        return check_samples(graph, opt, "ep", ep, err);
    merak_fail(err, MERAK_ERR_CONFIG, "%zu experts cannot be cut over ep=%zu",
               n, ep);
    return merak_divisors_fix(n, ep, err);
}

/* --- factors of tp -------------------------------------------------------- */

enum merak_status merak_shard_check_axes(const struct merak_shard_options *opt,
                                         struct merak_error *err)
{
    int list[MERAK_MAX_FACTORS], n = merak_factors_list(opt->tp_axes, list);
    int64_t product = merak_factors_product(opt->tp_axes);
    const char *other = opt->ep > 1 ? "ep" : "cp";
    char text[MERAK_FACTORS_TEXT];
    int most = MERAK_STAGE_AXES - (opt->cp > 1) - (opt->ep > 1);

    merak_factors_text(opt->tp_axes, "x", text);
    if (n > 0 && product != opt->tp) {
        merak_fail(err, MERAK_ERR_CONFIG, "--tp-axes %s is not tp %d", text,
                   opt->tp);
        return merak_error_fix(err, MERAK_ERR_CONFIG, ": use --tp %lld",
                               (long long)product);
    }
    if (n <= most)
        return MERAK_OK;
    merak_fail(err, MERAK_ERR_CONFIG,
               "--tp-axes %s makes %d axes beside %s %d, expected at most %d",
               text, n, other, opt->ep > 1 ? opt->ep : opt->cp, most);
    return merak_error_fix(err, MERAK_ERR_CONFIG,
                           ": use fewer factors, or --%s 1", other);
}

/* May kv heads and queries of each be divided by n sizes, each of which cuts
 * one of the two? */
static bool divide_heads(size_t kv, size_t own, const size_t *size, int n)
{
    if (n == 0)
        return true;
    return (kv % *size == 0 &&
            divide_heads(kv / *size, own, size + 1, n - 1)) ||
           (own % *size == 0 && divide_heads(kv, own / *size, size + 1, n - 1));
}

/* The sizes of the axes that tp is made of. */
static int tensor_axes(const struct merak_shard_options *opt, size_t kv,
                       size_t size[MERAK_STAGE_AXES])
{
    size_t tp = (size_t)opt->tp, outer = kv == 0 ? tp : merak_size_gcd(kv, tp);
    int list[MERAK_MAX_FACTORS], n = merak_factors_list(opt->tp_axes, list);

    for (int i = 0; i < n; i++)
        size[i] = (size_t)list[i];
    if (n > 0 || tp == 1)
        return n;
    /* one, or kv heads times queries of a kv head */
    size[0] = outer == 1 ? tp : outer;
    size[1] = tp / size[0];
    return size[1] == 1 ? 1 : 2;
}

/* Each factor that is asked for has to divide heads. */
static enum merak_status check_factors(const struct merak_shard_options *opt,
                                       const struct heads *heads,
                                       struct merak_error *err)
{
    struct merak_shard_options usual = {.tp = opt->tp};
    size_t size[MERAK_STAGE_AXES];
    char text[MERAK_FACTORS_TEXT], which[48] = "its factors together divide";
    int n = tensor_axes(opt, heads->kv, size);

    if (opt->tp_axes == 0 || heads->kv == 0 ||
        divide_heads(heads->kv, heads->own, size, n))
        return MERAK_OK;
    for (int i = n - 1; i >= 0; i--) {
        if (heads->kv % size[i] != 0 && heads->own % size[i] != 0)
            snprintf(which, sizeof(which), "%zu divides", size[i]);
    }
    merak_fail(err, MERAK_ERR_CONFIG,
               "--tp-axes %s: %s neither %zu kv heads nor %zu queries of each",
               merak_factors_text(opt->tp_axes, "x", text), which, heads->kv,
               heads->own);
    n = tensor_axes(&usual, heads->kv, size);
    if (n == 1)
        return merak_error_fix(err, MERAK_ERR_CONFIG, " (nearest: %zu)",
                               size[0]);
    return merak_error_fix(err, MERAK_ERR_CONFIG, " (nearest: %zux%zu)",
                           size[0], size[1]);
}

static bool has_sequences(const struct merak_graph *graph)
{
    return merak_graph_sequence_letter(graph) == MERAK_LETTER_POSITIONS;
}

/* --- all numbers ---------------------------------------------------------- */

static enum merak_status check(const struct merak_graph *graph,
                               const struct merak_shard_options *opt,
                               const struct heads *heads,
                               struct merak_error *err)
{
    size_t tp = (size_t)opt->tp, cp = cp_of(opt);
    enum merak_status rc;

    if (opt->tp < 1)
        return merak_fail(err, MERAK_ERR_PARAM, "tp is %d, expected at least 1",
                          opt->tp);
    if (opt->tp_batch_percent < 0 || opt->tp_batch_percent > 100)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "batch is %d, expected a percentage, 0..100",
                          opt->tp_batch_percent);
    rc = merak_shard_check_axes(opt, err);
    if (rc == MERAK_OK && opt->ep > 1)
        rc = check_experts(graph, opt, err);
    if (rc != MERAK_OK)
        return rc;
    if (heads->query % tp != 0) {
        merak_fail(err, MERAK_ERR_CONFIG,
                   "%zu heads cannot be cut over tp=%zu; tp must divide the "
                   "number of heads",
                   heads->query, tp);
        return merak_divisors_fix(heads->query, tp, err);
    }
    rc = check_factors(opt, heads, err);
    if (rc == MERAK_OK &&
        (opt->tp_batch_percent > 0 || merak_split_any(&opt->split)))
        rc = check_samples(graph, opt, opt->ep > 1 ? "tp x ep" : "tp",
                           opt->ep > 1 ? tp * (size_t)opt->ep : tp, err);
    if (rc != MERAK_OK)
        return rc;
    if (rc != MERAK_OK)
        return rc;
    if (has_sequences(graph) && graph->seq % cp != 0) {
        merak_fail(err, MERAK_ERR_CONFIG,
                   "a sequence of %zu tokens cannot be cut over cp=%zu",
                   graph->seq, cp);
        return fix_length(graph->seq, cp, err);
    }
    if (cp > 1 && opt->cp_order == MERAK_CP_HEAD_TAIL &&
        graph->seq % (2 * cp) != 0) {
        merak_fail(err, MERAK_ERR_CONFIG,
                   "a sequence of %zu tokens cannot be cut over cp=%zu in "
                   "head-tail order, %zu pieces",
                   graph->seq, cp, 2 * cp);
        return fix_length(graph->seq, 2 * cp, err);
    }
    if (opt->sp == MERAK_SP_ON && graph->seq % (cp * tp) != 0) {
        if (cp == 1)
            merak_fail(err, MERAK_ERR_CONFIG,
                       "a sequence of %zu tokens cannot be cut over tp=%zu; "
                       "sequence parallelism needs a length that tp divides",
                       graph->seq, tp);
        else
            merak_fail(err, MERAK_ERR_CONFIG,
                       "a sequence of %zu tokens cannot be cut over cp=%zu x "
                       "tp=%zu; sequence parallelism needs a length that both "
                       "divide",
                       graph->seq, cp, tp);
        return merak_error_fix(err, MERAK_ERR_CONFIG, " (nearest: %zu)",
                               (graph->seq / (cp * tp) + 1) * (cp * tp));
    }
    return MERAK_OK;
}

/* --- the mesh ------------------------------------------------------------- */

static void add_axis(struct merak_mesh *mesh, const char *name, size_t size,
                     enum merak_axis_role role)
{
    struct merak_axis *axis = &mesh->axis[mesh->n_axes++];

    snprintf(axis->name, sizeof(axis->name), "%s", name);
    axis->size = (int)size;
    axis->role = role;
}

/* May cp, as one axis, be cut by heads? */
static bool exchanges_all(const struct merak_shard_options *opt,
                          const struct heads *heads, size_t cp)
{
    size_t size[MERAK_STAGE_AXES + 1];
    int n = tensor_axes(opt, heads->kv, size);

    size[n] = cp;
    return divide_heads(heads->kv, heads->own, size, n + 1);
}

/* Of cp ranks, how many are to exchange heads where all of them cannot, or
 * could only divide the queries of a kv head, with all keys: the most that
 * divide kv heads, else what is left of queries; or 1.  The others gather keys,
 * or divide queries. */
static size_t exchanging(const struct merak_shard_options *opt,
                         const struct heads *heads)
{
    size_t size[MERAK_STAGE_AXES + 1], cp = cp_of(opt), kv = heads->kv, inner;
    int n = tensor_axes(opt, kv, size);
    int most = MERAK_STAGE_AXES - (opt->ep > 1) - (opt->shared > 0);

    if (cp == 1 || kv == 0 || heads->packed || n + 2 > most ||
        opt->cp_form == MERAK_CP_GATHER)
        return 1;
    inner = merak_size_gcd(kv / merak_size_gcd(kv, (size_t)opt->tp), cp);
    if (inner == cp)
        return 1;
    if (inner > 1 && exchanges_all(opt, heads, inner))
        return inner;
    if (exchanges_all(opt, heads, cp))
        return 1;
    inner = cp / 2;
    while (inner > 1 && (cp % inner != 0 || !exchanges_all(opt, heads, inner)))
        inner--;
    return inner;
}

/* Where a dim is cut along several axes only the last can be gathered by
 * itself: ep and cp come first, so that sequence parallelism gathers a rank's
 * own part, and samples over tp are exchanged for heads of a rank's own.
 * cp_axes: factors of cp, or 0, if it is one axis. */
static void make_mesh(const struct merak_shard_options *opt, size_t kv,
                      int64_t cp_axes, struct merak_mesh *mesh)
{
    size_t size[MERAK_STAGE_AXES];
    int n = tensor_axes(opt, kv, size), list[MERAK_MAX_FACTORS] = {opt->cp};
    int n_cp = cp_axes > 0 ? merak_factors_list(cp_axes, list) : opt->cp > 1;

    *mesh = (struct merak_mesh){0};
    if (opt->ep > 1)
        add_axis(mesh, "ep", (size_t)opt->ep, MERAK_AXIS_EXPERTS);
    for (int i = 0; i < n_cp; i++) {
        char name[8] = "cp";

        if (n_cp > 1)
            snprintf(name, sizeof(name), "cp.%d", i);
        add_axis(mesh, name, (size_t)list[i], MERAK_AXIS_SEQUENCE);
    }
    for (int i = 0; i < n; i++) {
        char name[8] = "tp";

        if (n > 1)
            snprintf(name, sizeof(name), "tp.%d", i);
        add_axis(mesh, name, size[i], MERAK_AXIS_WEIGHTS);
    }
}

enum merak_status merak_shard_meshes(const struct merak_graph *graph,
                                     const struct merak_shard_options *opt,
                                     struct merak_mesh mesh[MERAK_MAX_MESHES],
                                     int *n_p, struct merak_error *err)
{
    int64_t grid[MERAK_MAX_MESHES] = {0};
    size_t size[MERAK_STAGE_AXES], inner;
    struct heads heads;
    enum merak_status rc;
    int n_grids = 0;

    find_heads(graph, &heads);
    rc = check(graph, opt, &heads, err);
    if (rc == MERAK_OK)
        rc = merak_space_grids(graph, opt,
                               MERAK_STAGE_AXES - (opt->ep > 1) -
                                   (opt->shared > 0) -
                                   tensor_axes(opt, heads.kv, size),
                               grid, &n_grids, err);
    if (rc != MERAK_OK)
        return rc;
    inner = exchanging(opt, &heads);
    *n_p = 0;
    for (int g = 0; g < n_grids; g++) {
        if (inner == 1 || opt->cp_form != MERAK_CP_HEADS ||
            exchanges_all(opt, &heads, cp_of(opt)))
            make_mesh(opt, heads.kv, grid[g], &mesh[(*n_p)++]);
    }
    if (inner > 1)
        make_mesh(opt, heads.kv,
                  (int64_t)(cp_of(opt) / inner) | (int64_t)inner << 16,
                  &mesh[(*n_p)++]);
    return MERAK_OK;
}

/* --- sequences ------------------------------------------------------------ */

size_t merak_shard_pieces(const struct merak_graph *graph,
                          const struct merak_shard_options *opt)
{
    size_t pieces = 2 * cp_of(opt);

    return opt->cp < 2 || opt->cp_order == MERAK_CP_CONTIGUOUS ||
                   !has_sequences(graph) || graph->seq % pieces != 0
               ? 0
               : pieces;
}

/* Can all ranks of cp exchange heads, or those of a second axis? */
static bool heads_fit(const struct merak_shard_options *opt,
                      const struct heads *heads)
{
    return exchanges_all(opt, heads, cp_of(opt)) || exchanging(opt, heads) > 1;
}

static enum merak_status check_form(const struct merak_node *node, bool packed,
                                    const struct merak_shard_options *opt,
                                    struct merak_error *err)
{
    struct merak_shard_options near = *opt;
    struct heads heads = {.packed = packed};
    struct merak_infer inf;
    size_t kv, query;
    int below, above;

    merak_node_infer(node, &inf);
    node->op->heads(&inf, &kv, &query);
    heads.kv = kv;
    heads.query = query;
    heads.own = query / kv;
    if (heads_fit(opt, &heads))
        return MERAK_OK;
    for (below = opt->cp - 1; below > 1; below--) {
        near.cp = below;
        if (heads_fit(&near, &heads))
            break;
    }
    for (above = opt->cp + 1; above <= (int)query; above++) {
        near.cp = above;
        if (heads_fit(&near, &heads))
            break;
    }
    merak_fail(err, MERAK_ERR_CONFIG,
               "the heads of %s, %zu kv heads x %zu queries each, cannot be "
               "cut over cp=%d x tp=%d",
               node->name, kv, query / kv, opt->cp, opt->tp);
    if (above > (int)query)
        return merak_error_fix(err, MERAK_ERR_CONFIG, " (nearest: cp %d)",
                               below);
    return merak_error_fix(err, MERAK_ERR_CONFIG, " (nearest: cp %d or %d)",
                           below, above);
}

bool merak_axis_is_outer(const struct merak_mesh *mesh, int axis)
{
    return axis + 1 < mesh->n_axes &&
           mesh->axis[axis].role == MERAK_AXIS_SEQUENCE &&
           mesh->axis[axis + 1].role == MERAK_AXIS_SEQUENCE;
}

char merak_axis_letter(const struct merak_graph *graph,
                       const struct merak_mesh *mesh, int axis)
{
    char letter = merak_graph_sequence_letter(graph);
    int before = 0;

    for (int x = 0; x < axis; x++)
        before += mesh->axis[x].role == MERAK_AXIS_SEQUENCE;
    return letter == MERAK_LETTER_POSITIONS
               ? letter
               : merak_graph_space_letter(graph, before);
}

/* A node that is no attention reads positions of other ranks. */
static enum merak_status fail_whole(const struct merak_node *node,
                                    const struct merak_shard_options *opt,
                                    struct merak_error *err)
{
    if (node->op->role == MERAK_ROLE_ROWS) {
        merak_fail(err, MERAK_ERR_CONFIG,
                   "--ep-form exchange gives places to rows of whole sequences "
                   "(%s), and cp=%d cuts them",
                   node->name, opt->cp);
        return merak_error_fix(err, MERAK_ERR_CONFIG,
                               ": use --ep-form gather, or --cp 1");
    }
    merak_fail(err, MERAK_ERR_CONFIG, "cp=%d: %s (%s) needs whole sequences",
               opt->cp, node->name, node->op->name);
    return merak_error_fix(err, MERAK_ERR_CONFIG, ": use --cp 1");
}

enum merak_status merak_shard_check_cp(const struct merak_graph *graph,
                                       const struct merak_signature *sig,
                                       const struct merak_mesh *mesh,
                                       const struct merak_shard_options *opt,
                                       struct merak_error *err)
{
    const struct merak_value *second = merak_graph_second_sequence(graph);
    bool two = merak_axis_is_outer(mesh, opt->ep > 1);
    enum merak_status rc;

    if (opt->cp < 2)
        return MERAK_OK;
    if (merak_graph_sequence_letter(graph) == 0) {
        merak_fail(err, MERAK_ERR_CONFIG,
                   "cp=%d cuts sequences or space, and this model has neither",
                   opt->cp);
        return merak_error_fix(err, MERAK_ERR_CONFIG, ": use --cp 1");
    }
    if (second != NULL) {
        merak_fail(err, MERAK_ERR_UNSUPPORTED,
                   "cp=%d cuts one sequence, and this model has a second one "
                   "(%s)",
                   opt->cp, second->name);
        return merak_error_fix(err, MERAK_ERR_UNSUPPORTED, ": use --cp 1");
    }
    for (int n = 0; n < graph->n_forward; n++) {
        const struct merak_node *node = graph->node[n];
        bool positions = merak_strategy_has_positions(&sig[n]);

        if (!merak_node_needs_sequences(node, &sig[n]) ||
            (positions && (two || opt->cp_form != MERAK_CP_HEADS)))
            continue;
        if (node->op->heads == NULL)
            return fail_whole(node, opt, err);
        if (!positions && opt->cp_form == MERAK_CP_GATHER)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "--cp-form gather: %s packs q, k and v, and can "
                              "only be cut by heads: use --cp-form heads",
                              node->name);
        rc = check_form(node, !positions, opt, err);
        if (rc != MERAK_OK)
            return rc;
    }
    return MERAK_OK;
}
