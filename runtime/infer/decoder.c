/* SPDX-License-Identifier: Apache-2.0 */
/* decoder.c - forward passes of a model, token by token
 *
 * For each token, the nodes of one of the lists run (decoder_nodes.c) on
 * values with fixed addresses (decoder_memory.c).
 */
#include "config.h"

#include "runtime/infer/decoder_impl.h"

#include "base/error.h"
#include "base/size.h"

#include <stdlib.h>
#include <string.h>

#define PART 256 /* the most tokens computed at once */

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

static enum merak_status describe_one(const struct merak_decoder_options *opt,
                                      size_t seq, struct merak_model **model_p,
                                      const struct merak_graph **graph_p,
                                      struct merak_error *err)
{
    const struct merak_model_options mo = {
        .micro_batch = 1, .seq = seq, .dtype = opt->dtype};
    struct merak_graph *graph = NULL;
    enum merak_status rc = merak_model_create(&mo, model_p, err);

    if (rc != MERAK_OK)
        return rc;
    opt->describe(*model_p, opt->arg);
    rc = merak_model_graph(*model_p, &graph, err);
    *graph_p = graph;
    return rc;
}

static enum merak_status describe(struct merak_decoder *d,
                                  const struct merak_decoder_options *opt,
                                  struct merak_error *err)
{
    enum merak_status rc =
        describe_one(opt, opt->positions, &d->model, &d->graph, err);

    if (rc != MERAK_OK || opt->early == 0 || opt->early >= opt->positions)
        return rc;
    rc = describe_one(opt, opt->early, &d->early_model, &d->early, err);
    if (rc == MERAK_OK && d->early->n_forward != d->graph->n_forward)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "a model of %d nodes for %zu tokens and of %d for "
                          "%zu",
                          d->early->n_forward, opt->early, d->graph->n_forward,
                          opt->positions);
    d->told = calloc(opt->positions, sizeof(*d->told));
    return d->told != NULL || rc != MERAK_OK
               ? rc
               : merak_fail_nomem(err, opt->positions * sizeof(*d->told));
}

static enum merak_status make_lists(struct merak_decoder *d,
                                    struct merak_error *err)
{
    size_t nodes = (size_t)d->graph->n_nodes;
    bool ok;

    d->place = calloc((size_t)d->graph->n_values, sizeof(*d->place));
    d->kernel = calloc(nodes, sizeof(*d->kernel));
    ok = d->place != NULL && d->kernel != NULL;
    for (int w = 0; w < MERAK_WISHES; w++) {
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
    if (rc == MERAK_OK && opt->weights != NULL)
        rc = merak_decoder_check(d, opt->weights, err);
    if (rc == MERAK_OK)
        rc = make_lists(d, err);
    if (rc == MERAK_OK)
        rc = merak_decoder_find_nodes(d, err);
    if (rc == MERAK_OK)
        rc = merak_decoder_place_values(d, err);
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
    for (int w = 0; w < MERAK_WISHES; w++)
        free(d->wanted[w]);
    free(d->place);
    free(d->weights);
    free(d->kernel);
    free(d->scratch);
    free(d->wide);
    free(d->told);
    merak_model_destroy(d->early_model);
    merak_model_destroy(d->model);
    free(d);
}

/* --- running ----------------------------------------------------------- */

/* The new n positions of a value, or all from 0 on if earlier ones are
 * read. */
static void set_operand(const struct merak_decoder *d,
                        const struct merak_value *v, size_t n, bool back,
                        struct merak_operand *op)
{
    const struct merak_decoder_place *p = &d->place[v->id];

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
        char *more = aligned_alloc(
            MERAK_DECODER_ALIGN, merak_size_align(bytes, MERAK_DECODER_ALIGN));

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
    const struct merak_node *how =
        d->early != NULL && !d->is_late ? d->early->node[at] : node;
    struct merak_kernel_call call = {.attrs = &how->attrs,
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

static void set_input(struct merak_decoder *d, enum merak_input_class class,
                      const int32_t *ids)
{
    for (int v = 0; v < d->graph->n_values; v++) {
        if (merak_value_is(d->graph->value[v], class))
            d->place[v].data = (char *)(uintptr_t)ids; /* only read */
    }
}

/* Run one part of the sequence, n <= d->part tokens. */
static enum merak_status run_part(struct merak_decoder *d, enum merak_wish wish,
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
                      "%zu tokens after %zu, with room for %zu total", n,
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

/* Run tokens of which only keys and values are needed. */
static enum merak_status run_cache(struct merak_decoder *d,
                                   const int32_t *tokens, size_t n,
                                   struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;
    size_t part;

    for (size_t at = 0; at < n && rc == MERAK_OK; at += part) {
        part = n - at < d->part ? n - at : d->part;
        rc = run_part(d, MERAK_WISH_CACHE, tokens + at, NULL, part, err);
    }
    return rc;
}

/* Begin n more tokens: once the sequence is longer than the early model's,
 * keys and values of all earlier tokens are computed again. */
static enum merak_status begin(struct merak_decoder *d, const int32_t *tokens,
                               size_t n, struct merak_error *err)
{
    enum merak_status rc = check_room(d, n, err);
    size_t length = d->length;

    if (rc != MERAK_OK || d->early == NULL)
        return rc;
    memcpy(d->told + length, tokens, n * sizeof(*tokens));
    if (length == 0)
        d->is_late = false;
    if (d->is_late || length + n <= d->early->seq)
        return MERAK_OK;
    d->is_late = true;
    d->length = 0;
    return run_cache(d, d->told, length, err);
}

/* Only keys and values are computed for all but the last token, since nobody
 * needs their logits. */
enum merak_status merak_decoder_next(struct merak_decoder *d,
                                     const int32_t *tokens, size_t n,
                                     const float **logits_p,
                                     struct merak_error *err)
{
    enum merak_status rc = begin(d, tokens, n, err);
    size_t last = logits_p != NULL ? n - 1 : n;

    if (rc == MERAK_OK)
        rc = run_cache(d, tokens, last, err);
    if (rc != MERAK_OK || logits_p == NULL)
        return rc;
    rc = run_part(d, MERAK_WISH_LOGITS, tokens + last, NULL, 1, err);
    if (rc == MERAK_OK)
        *logits_p = last_logits(d);
    return rc;
}

enum merak_status merak_decoder_score(struct merak_decoder *d,
                                      const int32_t *tokens,
                                      const int32_t *targets, size_t n,
                                      float *nll, struct merak_error *err)
{
    enum merak_status rc = begin(d, tokens, n, err);
    size_t part;

    for (size_t at = 0; at < n && rc == MERAK_OK; at += part) {
        part = n - at < d->part ? n - at : d->part;
        rc = run_part(d, MERAK_WISH_LOSS, tokens + at, targets + at, part, err);
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
