/* SPDX-License-Identifier: Apache-2.0 */
/* decoder.c - a model run forward, token after token
 *
 * A value of positions is [1, T, ..]: what an op computes of positions
 * [from, from + n) is contiguous.  Values that attention reads back to
 * position 0 have memory for all T positions and are filled part by part;
 * others have memory for one part, taken over by a later value as soon as
 * their last reader has run.
 *
 * Three lists of nodes serve three wishes: keys and values alone (all but the
 * last token of a prompt), the logits too, or the loss of known targets.
 */
#include "config.h"

#include "runtime/infer/decoder.h"

#include "base/error.h"
#include "base/size.h"
#include "io/ckpt/ckpt.h"
#include "kernels/kernels.h"
#include "partitioner/graph/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PART 256                /* tokens computed at once, at most */
#define ALIGN 64                /* bytes, as kernels like their operands */
#define CHUNK ((size_t)1 << 20) /* elements read of a checkpoint at once */

enum wish { WISH_CACHE, WISH_LOGITS, WISH_LOSS, WISHES };

/* Where a value lies. */
struct place {
    char *data;
    size_t row;     /* bytes of a position, or all bytes of what has none */
    bool positions; /* it is [1, T, ..] */
    bool kept;      /* for all positions */
    bool owned;     /* data is to be freed here */
    int last;       /* node that reads it last */
};

struct merak_decoder {
    struct merak_model *model;
    const struct merak_graph *graph;
    const struct merak_backend *backend;
    const struct merak_kernel **kernel; /* [n_forward]; NULL: never run */
    struct place *place;                /* by value */
    bool *wanted[WISHES];               /* by node */
    const struct merak_value *logits, *nll;
    size_t part, length;
    char *scratch;
    size_t scratch_bytes;
    float *wide; /* logits as f32, where they are not */
};

/* --- which nodes ------------------------------------------------------- */

static bool has_positions(const struct merak_graph *g,
                          const struct merak_value *v)
{
    return (v->kind == MERAK_VALUE_ACTIVATION ||
            v->kind == MERAK_VALUE_INPUT) &&
           v->shape.ndim >= 2 && v->shape.dim[0] == 1 &&
           v->shape.dim[1] == g->seq;
}

/* Mark what value v depends on, itself computed by node `at` or before. */
static void mark(const struct merak_graph *g, const struct merak_value *v,
                 bool *node)
{
    if (v->producer < 0 || node[v->producer])
        return;
    node[v->producer] = true;
    for (int n = v->producer; n >= 0; n--) {
        for (int i = 0; node[n] && i < g->node[n]->n_in; i++) {
            if (g->node[n]->in[i]->producer >= 0)
                node[g->node[n]->in[i]->producer] = true;
        }
    }
}

static const struct merak_node *find_node(const struct merak_graph *g,
                                          const char *op)
{
    for (int n = 0; n < g->n_forward; n++) {
        if (strcmp(g->node[n]->op->name, op) == 0)
            return g->node[n];
    }
    return NULL;
}

/* Does positions' mixing in a node go beyond what a cache gives? */
static bool mixes_positions(const struct merak_graph *g,
                            const struct merak_node *node)
{
    struct merak_signature sig = {0};
    struct merak_infer inf;

    if (merak_node_reads_back(node, 0) || merak_node_reads_back(node, 1))
        return false;
    merak_node_infer(node, &inf);
    node->op->signature(&inf, &sig);
    for (int o = 0; o < node->n_in + node->n_out; o++) {
        const struct merak_value *v =
            o < node->n_in ? node->in[o] : node->out[o - node->n_in];

        if (has_positions(g, v) &&
            sig.index[sig.operand_dim[o][1]].kind == MERAK_INDEX_WHOLE)
            return true;
        if (o >= node->n_in && !has_positions(g, v))
            return true;
    }
    return false;
}

static enum merak_status find_kernels(struct merak_decoder *d,
                                      struct merak_error *err)
{
    const struct merak_graph *g = d->graph;

    for (int n = 0; n < g->n_forward; n++) {
        enum merak_status rc;

        if (!d->wanted[WISH_LOSS][n])
            continue;
        if (mixes_positions(g, g->node[n]))
            return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                              "op %s computes a position from others: no "
                              "token can be computed after another",
                              g->node[n]->name);
        rc = merak_kernel_find(d->backend, g->node[n]->op->name, &d->kernel[n],
                               err);
        if (rc != MERAK_OK)
            return rc;
    }
    return MERAK_OK;
}

static enum merak_status find_nodes(struct merak_decoder *d,
                                    struct merak_error *err)
{
    const struct merak_graph *g = d->graph;
    const struct merak_node *max = find_node(g, "xent_max");
    const struct merak_node *loss = find_node(g, "xent_loss");

    if (g->passes > 1)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "the model runs %d passes: no token can be computed "
                          "after another",
                          g->passes);
    if (max == NULL || loss == NULL)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "the model has no cross-entropy loss, so nothing "
                          "tells which of its values are logits");
    d->logits = max->in[0];
    d->nll = loss->out[0];
    mark(g, d->logits, d->wanted[WISH_LOGITS]);
    mark(g, d->nll, d->wanted[WISH_LOSS]);
    for (int n = 0; n < g->n_forward; n++) {
        for (int i = 0; i < g->node[n]->n_in; i++) {
            const struct merak_value *in = g->node[n]->in[i];

            if (!d->wanted[WISH_LOSS][n] ||
                !merak_node_reads_back(g->node[n], i))
                continue;
            d->place[in->id].kept = true;
            mark(g, in, d->wanted[WISH_CACHE]);
        }
    }
    return find_kernels(d, err);
}

/* --- memory ------------------------------------------------------------ */

static void measure(struct merak_decoder *d)
{
    const struct merak_graph *g = d->graph;

    for (int v = 0; v < g->n_values; v++) {
        const struct merak_value *value = g->value[v];
        size_t bytes =
            merak_shape_count(&value->shape) * merak_dtype_bytes(value->dtype);

        d->place[v].positions = has_positions(g, value);
        d->place[v].row = d->place[v].positions ? bytes / g->seq : bytes;
        d->place[v].last = -1;
    }
    for (int n = 0; n < g->n_forward; n++) {
        for (int i = 0; i < g->node[n]->n_in; i++)
            d->place[g->node[n]->in[i]->id].last = n;
    }
    /* read by the caller */
    d->place[d->logits->id].last = d->place[d->nll->id].last = g->n_nodes;
}

static enum merak_status allocate(struct place *p, size_t rows,
                                  struct merak_error *err)
{
    size_t bytes;

    if (!merak_size_mul(p->row, rows, &bytes) ||
        !merak_size_add(bytes, ALIGN, &bytes))
        return merak_fail_nomem(err, p->row);
    bytes = merak_size_align(bytes, ALIGN);
    p->data = aligned_alloc(ALIGN, bytes);
    if (p->data == NULL)
        return merak_fail_nomem(err, bytes);
    p->owned = true;
    return MERAK_OK;
}

/* A value of the same size that no node from `node` on reads; its memory
 * then is the new value's. */
static bool take_over(struct merak_decoder *d, struct place *p, int node)
{
    for (int v = 0; v < d->graph->n_values; v++) {
        struct place *old = &d->place[v];

        if (!old->owned || old->kept || !old->positions || old->row != p->row ||
            old->last >= node || old->last < 0)
            continue;
        p->data = old->data;
        p->owned = true;
        old->owned = false;
        return true;
    }
    return false;
}

static enum merak_status place_output(struct merak_decoder *d, int node,
                                      struct place *p, struct merak_error *err)
{
    if (p->last < 0)
        p->last = node; /* nobody reads it: a statistic */
    if (p->kept)
        return allocate(p, d->graph->seq, err);
    return take_over(d, p, node) ? MERAK_OK : allocate(p, d->part, err);
}

static enum merak_status place_values(struct merak_decoder *d,
                                      struct merak_error *err)
{
    const struct merak_graph *g = d->graph;
    enum merak_status rc = MERAK_OK;

    for (int v = 0; v < g->n_values && rc == MERAK_OK; v++) {
        if (g->value[v]->kind == MERAK_VALUE_PARAM)
            rc = allocate(&d->place[v], 1, err);
    }
    for (int n = 0; n < g->n_forward && rc == MERAK_OK; n++) {
        for (int o = 0; o < g->node[n]->n_out && rc == MERAK_OK; o++) {
            if (d->wanted[WISH_LOSS][n])
                rc = place_output(d, n, &d->place[g->node[n]->out[o]->id], err);
        }
    }
    if (rc == MERAK_OK && d->logits->dtype != MERAK_F32) {
        size_t n = merak_decoder_vocab(d);

        d->wide = malloc(n * sizeof(*d->wide));
        if (d->wide == NULL)
            rc = merak_fail_nomem(err, n * sizeof(*d->wide));
    }
    return rc;
}

/* --- creation ---------------------------------------------------------- */

static enum merak_status open_backend(struct merak_decoder *d,
                                      const struct merak_decoder_options *opt,
                                      struct merak_error *err)
{
    const char *name = opt->backend != NULL ? opt->backend : "cpu";
    enum merak_status rc = merak_backend_find(name, &d->backend, err);

    if (rc == MERAK_OK)
        rc = merak_backend_check_dtype(d->backend, opt->dtype, err);
    if (rc != MERAK_OK)
        return rc;
    if (d->backend->accel != NULL || d->backend->emulated)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "backend \"%s\" does not compute on the host", name);
    return d->backend->open == NULL ? MERAK_OK
                                    : d->backend->open(opt->threads, err);
}

static enum merak_status describe(struct merak_decoder *d,
                                  const struct merak_decoder_options *opt,
                                  struct merak_error *err)
{
    const struct merak_model_options mo = {
        .micro_batch = 1, .seq = opt->positions, .dtype = opt->dtype};
    struct merak_graph *graph = NULL;
    enum merak_status rc = merak_model_create(&mo, &d->model, err);

    if (rc != MERAK_OK)
        return rc;
    opt->describe(d->model, opt->arg);
    rc = merak_model_graph(d->model, &graph, err);
    d->graph = graph;
    return rc;
}

static enum merak_status make_lists(struct merak_decoder *d,
                                    struct merak_error *err)
{
    size_t nodes = (size_t)d->graph->n_nodes;
    bool ok;

    d->place = calloc((size_t)d->graph->n_values, sizeof(*d->place));
    d->kernel = calloc(nodes, sizeof(*d->kernel));
    ok = d->place != NULL && d->kernel != NULL;
    for (int w = 0; w < WISHES; w++) {
        d->wanted[w] = calloc(nodes, sizeof(*d->wanted[w]));
        ok = ok && d->wanted[w] != NULL;
    }
    return ok ? MERAK_OK : merak_fail_nomem(err, nodes * sizeof(*d->kernel));
}

enum merak_status merak_decoder_create(const struct merak_decoder_options *opt,
                                       struct merak_decoder **decoder_p,
                                       struct merak_error *err)
{
    struct merak_decoder *d = calloc(1, sizeof(*d));
    enum merak_status rc;

    if (d == NULL)
        return merak_fail_nomem(err, sizeof(*d));
    d->part = opt->positions < PART ? opt->positions : PART;
    rc = open_backend(d, opt, err);
    if (rc == MERAK_OK)
        rc = describe(d, opt, err);
    if (rc == MERAK_OK)
        rc = make_lists(d, err);
    if (rc == MERAK_OK)
        rc = find_nodes(d, err);
    if (rc == MERAK_OK) {
        measure(d);
        rc = place_values(d, err);
    }
    if (rc != MERAK_OK) {
        merak_decoder_destroy(d);
        return rc;
    }
    *decoder_p = d;
    return MERAK_OK;
}

void merak_decoder_destroy(struct merak_decoder *d)
{
    if (d == NULL)
        return;
    for (int v = 0; d->place != NULL && v < d->graph->n_values; v++) {
        if (d->place[v].owned)
            free(d->place[v].data);
    }
    for (int w = 0; w < WISHES; w++)
        free(d->wanted[w]);
    free(d->place);
    free(d->kernel);
    free(d->scratch);
    free(d->wide);
    merak_model_destroy(d->model);
    free(d);
}

/* --- weights ----------------------------------------------------------- */

static void narrow(const float *from, size_t n, uint16_t *to)
{
    for (size_t i = 0; i < n; i++)
        to[i] = merak_f32_to_bf16(from[i]);
}

/* A checkpoint has f32, and so may the parameter; else it is rounded part by
 * part. */
static enum merak_status read_param(struct merak_ckpt *ckpt,
                                    const struct merak_value *v, void *data,
                                    float *room, struct merak_error *err)
{
    size_t n = merak_shape_count(&v->shape);
    size_t step = v->dtype == MERAK_F32 ? n : CHUNK;
    enum merak_status rc = MERAK_OK;
    char name[512];
    struct merak_ckpt_piece piece = {.name = name, .shape = v->shape};

    snprintf(name, sizeof(name), "param/%s", v->name);
    piece.box.ndim = v->shape.ndim;
    memcpy(piece.box.full, v->shape.dim, sizeof(piece.box.full));
    memcpy(piece.box.len, v->shape.dim, sizeof(piece.box.len));
    for (size_t lo = 0; lo < n && rc == MERAK_OK; lo += step) {
        piece.flat_lo = lo;
        piece.flat_hi = n - lo < step ? n : lo + step;
        piece.data = v->dtype == MERAK_F32 ? data : room;
        rc = merak_ckpt_read(ckpt, &piece, err);
        if (rc == MERAK_OK && v->dtype != MERAK_F32)
            narrow(room, piece.flat_hi - lo, (uint16_t *)data + lo);
    }
    return rc;
}

static enum merak_status check_model(const struct merak_decoder *d,
                                     const struct merak_ckpt *ckpt,
                                     struct merak_error *err)
{
    const char *theirs = merak_ckpt_state(ckpt)->model_id;
    char mine[MERAK_FINGERPRINT_TEXT];

    merak_graph_fingerprint(d->graph, mine);
    if (strcmp(mine, theirs) == 0)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_MISMATCH,
                      "checkpoint %s is of another model (%s, this one is "
                      "%s): give the config.json that it was trained with",
                      merak_ckpt_path(ckpt), theirs, mine);
}

enum merak_status merak_decoder_load(struct merak_decoder *d,
                                     const char *ckpt_dir,
                                     struct merak_error *err)
{
    const struct merak_graph *g = d->graph;
    struct merak_ckpt *ckpt = NULL;
    float *room = malloc(CHUNK * sizeof(*room));
    enum merak_status rc;

    if (room == NULL)
        return merak_fail_nomem(err, CHUNK * sizeof(*room));
    rc = merak_ckpt_open(ckpt_dir, &ckpt, err);
    if (rc == MERAK_OK)
        rc = check_model(d, ckpt, err);
    for (int v = 0; v < g->n_values && rc == MERAK_OK; v++) {
        if (g->value[v]->kind == MERAK_VALUE_PARAM)
            rc = read_param(ckpt, g->value[v], d->place[v].data, room, err);
    }
    merak_ckpt_close(ckpt);
    free(room);
    return rc;
}

/* --- running ----------------------------------------------------------- */

/* Positions [from, from + n) of a value, or from 0 on if it is read back. */
static void set_operand(const struct merak_decoder *d,
                        const struct merak_value *v, size_t n, bool back,
                        struct merak_operand *op)
{
    const struct place *p = &d->place[v->id];

    *op = (struct merak_operand){.data = p->data,
                                 .dtype = v->dtype,
                                 .local = v->shape,
                                 .full = v->shape};
    if (!p->positions)
        return;
    op->local.dim[1] = back ? d->length + n : n;
    if (back)
        return;
    op->lo[1] = d->length;
    if (p->kept)
        op->data = p->data + d->length * p->row;
}

static enum merak_status grow_scratch(struct merak_decoder *d,
                                      struct merak_kernel_call *call,
                                      const struct merak_kernel *kernel,
                                      struct merak_error *err)
{
    size_t bytes = kernel->scratch != NULL ? kernel->scratch(call) : 0;

    if (bytes > d->scratch_bytes) {
        char *more = aligned_alloc(ALIGN, merak_size_align(bytes, ALIGN));

        if (more == NULL)
            return merak_fail_nomem(err, bytes);
        free(d->scratch);
        d->scratch = more;
        d->scratch_bytes = bytes;
    }
    call->scratch = bytes > 0 ? d->scratch : NULL;
    call->scratch_bytes = bytes;
    return MERAK_OK;
}

static enum merak_status run_node(struct merak_decoder *d, int at, size_t n,
                                  struct merak_error *err)
{
    static const struct merak_step step = {.train = false};
    const struct merak_node *node = d->graph->node[at];
    struct merak_kernel_call call = {.attrs = &node->attrs,
                                     .n_in = node->n_in,
                                     .n_out = node->n_out,
                                     .first = true,
                                     .step = &step};
    enum merak_status rc;

    for (int i = 0; i < node->n_in; i++)
        set_operand(d, node->in[i], n, merak_node_reads_back(node, i),
                    &call.operand[i]);
    for (int o = 0; o < node->n_out; o++)
        set_operand(d, node->out[o], n, false, &call.operand[node->n_in + o]);
    rc = grow_scratch(d, &call, d->kernel[at], err);
    return rc == MERAK_OK ? d->kernel[at]->fn(&call, err) : rc;
}

static void set_input(struct merak_decoder *d, enum merak_input_kind kind,
                      const int32_t *ids)
{
    for (int v = 0; v < d->graph->n_values; v++) {
        if (d->graph->value[v]->kind == MERAK_VALUE_INPUT &&
            d->graph->value[v]->input == kind)
            d->place[v].data = (char *)(uintptr_t)ids; /* only read */
    }
}

/* One part of the sequence, n <= d->part tokens. */
static enum merak_status run_part(struct merak_decoder *d, enum wish wish,
                                  const int32_t *tokens, const int32_t *targets,
                                  size_t n, struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    set_input(d, MERAK_INPUT_TOKENS, tokens);
    set_input(d, MERAK_INPUT_TARGETS, targets);
    for (int i = 0; i < d->graph->n_forward && rc == MERAK_OK; i++) {
        if (d->wanted[wish][i])
            rc = run_node(d, i, n, err);
    }
    if (rc == MERAK_OK)
        d->length += n;
    return rc;
}

static enum merak_status check_room(const struct merak_decoder *d, size_t n,
                                    struct merak_error *err)
{
    if (n > 0 && n <= d->graph->seq - d->length)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_PARAM,
                      "%zu tokens behind %zu, with room for %zu in all", n,
                      d->length, d->graph->seq);
}

static const float *last_logits(struct merak_decoder *d)
{
    const char *data = d->place[d->logits->id].data;
    const uint16_t *narrow = (const uint16_t *)data;

    if (d->wide == NULL)
        return (const float *)data;
    for (size_t i = 0; i < merak_decoder_vocab(d); i++)
        d->wide[i] = merak_bf16_to_f32(narrow[i]);
    return d->wide;
}

/* All but the last token leave keys and values alone: of their logits nobody
 * asks. */
enum merak_status merak_decoder_next(struct merak_decoder *d,
                                     const int32_t *tokens, size_t n,
                                     const float **logits_p,
                                     struct merak_error *err)
{
    enum merak_status rc = check_room(d, n, err);
    size_t last = logits_p != NULL ? n - 1 : n, part;

    for (size_t at = 0; at < last && rc == MERAK_OK; at += part) {
        part = last - at < d->part ? last - at : d->part;
        rc = run_part(d, WISH_CACHE, tokens + at, NULL, part, err);
    }
    if (rc != MERAK_OK || logits_p == NULL)
        return rc;
    rc = run_part(d, WISH_LOGITS, tokens + last, NULL, 1, err);
    if (rc == MERAK_OK)
        *logits_p = last_logits(d);
    return rc;
}

enum merak_status merak_decoder_score(struct merak_decoder *d,
                                      const int32_t *tokens,
                                      const int32_t *targets, size_t n,
                                      float *nll, struct merak_error *err)
{
    enum merak_status rc = check_room(d, n, err);
    size_t part;

    for (size_t at = 0; at < n && rc == MERAK_OK; at += part) {
        part = n - at < d->part ? n - at : d->part;
        rc = run_part(d, WISH_LOSS, tokens + at, targets + at, part, err);
        if (rc == MERAK_OK)
            memcpy(nll + at, d->place[d->nll->id].data, part * sizeof(*nll));
    }
    return rc;
}

size_t merak_decoder_vocab(const struct merak_decoder *d)
{
    return d->logits->shape.dim[2];
}

size_t merak_decoder_length(const struct merak_decoder *d)
{
    return d->length;
}

void merak_decoder_rewind(struct merak_decoder *d, size_t n)
{
    if (n < d->length)
        d->length = n;
}
