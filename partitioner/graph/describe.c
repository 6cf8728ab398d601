/* SPDX-License-Identifier: Apache-2.0 */
/* describe.c - describing a model: parameters, recycling, and the call that
 * adds an op; describe_inputs.c has its inputs, describe_layers.c the layers,
 * describe_losses.c the losses */
#include "config.h"

#include "merak/model.h"

#include "partitioner/graph/describe.h"
#include "partitioner/graph/dims.h"
#include "partitioner/graph/letters.h"
#include "partitioner/graph/graph.h"
#include "partitioner/graph/mem_pool.h"

#include "base/error.h"
#include "base/size.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the model itself
 * ----------------------------------------------------------- */

static enum merak_status check_options(const struct merak_model_options *opt,
                                       struct merak_error *err)
{
    size_t n;

    if (opt->dtype != MERAK_F32 && opt->dtype != MERAK_BF16)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "compute type %s, expected f32 or bf16",
                          merak_dtype_name(opt->dtype));
    if (opt->grad_dtype != MERAK_F32 &&
        (opt->grad_dtype != MERAK_BF16 || opt->dtype != MERAK_BF16))
        return merak_fail(err, MERAK_ERR_PARAM,
                          "gradients in %s of a model in %s, expected f32, or "
                          "bf16 of a model in bf16",
                          merak_dtype_name(opt->grad_dtype),
                          merak_dtype_name(opt->dtype));
    if (opt->micro_batch == 0 || opt->seq == 0 ||
        !merak_size_mul(opt->micro_batch, opt->seq, &n) || n > INT32_MAX)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "micro-batch %zu of %zu tokens, expected at least 1 "
                          "of each and at most %d total",
                          opt->micro_batch, opt->seq, INT32_MAX);
    if (!(opt->expert_room >= 0) || !isfinite(opt->expert_room))
        return merak_fail(err, MERAK_ERR_PARAM,
                          "room for %g of the rows of experts, expected a "
                          "positive number, or 0 for all",
                          opt->expert_room);
    return MERAK_OK;
}

enum merak_status merak_model_create(const struct merak_model_options *opt,
                                     struct merak_model **model_p,
                                     struct merak_error *err)
{
    struct merak_model *m;
    enum merak_status rc = check_options(opt, err);

    if (rc != MERAK_OK)
        return rc;
    m = calloc(1, sizeof(*m));
    if (m == NULL)
        return merak_fail_nomem(err, sizeof(*m));
    rc = merak_graph_create(&m->graph, err);
    if (rc != MERAK_OK) {
        merak_model_destroy(m);
        return rc;
    }
    m->graph->dtype = opt->dtype;
    m->graph->grad_dtype = opt->grad_dtype;
    m->graph->micro_batch = opt->micro_batch;
    m->graph->seq = opt->seq;
    m->expert_room = opt->expert_room;
    m->expert_exchange = opt->expert_exchange;
    m->balance = (struct merak_balance_options){-1, -1, -1};
    *model_p = m;
    return MERAK_OK;
}

void merak_model_destroy(struct merak_model *model)
{
    if (model == NULL)
        return;
    merak_graph_destroy(model->graph);
    free(model);
}

enum merak_status merak_model_status(const struct merak_model *model,
                                     struct merak_error *err)
{
    if (model->status != MERAK_OK && err != NULL)
        *err = model->error;
    return model->status;
}

size_t merak_model_micro_batch(const struct merak_model *model)
{
    return model->graph->micro_batch;
}

enum merak_dtype merak_model_dtype(const struct merak_model *model)
{
    return model->graph->dtype;
}

size_t merak_model_seq(const struct merak_model *model)
{
    return model->graph->seq;
}

void merak_model_fail(struct merak_model *m, enum merak_status status,
                      const char *fmt, ...)
{
    va_list ap;

    if (m->status != MERAK_OK)
        return;
    m->status = status;
    m->error.status = status;
    va_start(ap, fmt);
    vsnprintf(m->error.text, sizeof(m->error.text), fmt, ap);
    va_end(ap);
}

void merak_model_keep(struct merak_model *m, enum merak_status rc)
{
    if (rc != MERAK_OK)
        m->status = rc;
}

/* False if nothing more may be added. */
static bool open_for(struct merak_model *m, const char *what)
{
    if (m->status == MERAK_OK && m->complete)
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "%s: the model is complete and in use", what);
    return m->status == MERAK_OK;
}

struct merak_graph *merak_model_open_for(struct merak_model *model,
                                         const char *what)
{
    return open_for(model, what) ? model->graph : NULL;
}

static bool is_read(const struct merak_graph *graph,
                    const struct merak_value *value)
{
    for (int n = 0; n < graph->n_nodes; n++) {
        for (int i = 0; i < graph->node[n]->n_in; i++) {
            if (graph->node[n]->in[i] == value)
                return true;
        }
    }
    return false;
}

/* Every recycled value must have an output and a reader, and the number of
 * passes must fit. */
static void check_recycling(struct merak_model *m)
{
    const struct merak_graph *graph = m->graph;

    for (int i = 0; i < graph->n_recycling; i++) {
        if (graph->recycling[i].out == NULL)
            merak_model_fail(m, MERAK_ERR_PARAM,
                             "nothing is passed on for %s: give it with "
                             "merak_recycle()",
                             graph->recycling[i].in->name);
    }
    for (int i = 0; i < graph->n_recycling; i++) {
        if (!is_read(graph, graph->recycling[i].in))
            merak_model_fail(m, MERAK_ERR_PARAM,
                             "nothing reads %s: use it or leave it out",
                             graph->recycling[i].in->name);
    }
    if (graph->n_recycling > 0 && graph->passes == 0)
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "the model recycles %s and does not set the number of "
                         "its passes: call merak_passes()",
                         graph->recycling[0].in->name);
    if (graph->n_recycling == 0 && graph->passes > 1)
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "%d passes of a model that recycles nothing are all "
                         "the same: use merak_recycled(), or 1 pass",
                         graph->passes);
}

/* What a program declares has to be of use; tokens may be left out. */
static void check_inputs(struct merak_model *m)
{
    for (int i = 0; i < m->graph->n_inputs; i++) {
        if (m->graph->input[i].class == MERAK_INPUT_NAMED &&
            !is_read(m->graph, m->input[i]))
            merak_model_fail(m, MERAK_ERR_PARAM,
                             "nothing reads input %s: use it or leave it out",
                             m->graph->input[i].name);
    }
}

static void check_frozen(struct merak_model *m)
{
    const struct merak_graph *graph = m->graph;
    bool any = false, trains = false;

    for (int i = 0; i < graph->n_values; i++) {
        if (graph->value[i]->kind != MERAK_VALUE_PARAM)
            continue;
        any = true;
        trains = trains || !graph->value[i]->frozen;
    }
    if (any && !trains)
        merak_model_fail(m, MERAK_ERR_CONFIG,
                         "all parameters are frozen: nothing is left to train");
}

/* Complete the graph; nothing may be added to it from now on. */
static void complete(struct merak_model *m)
{
    merak_model_settle_loss(m);
    if (m->status != MERAK_OK)
        return;
    check_recycling(m);
    check_inputs(m);
    merak_lora_check(m);
    check_frozen(m);
    if (m->status != MERAK_OK)
        return;
    if (m->graph->passes == 0)
        m->graph->passes = 1;
    merak_model_keep(m, merak_graph_differentiate(m->graph, &m->error));
    m->complete = m->status == MERAK_OK;
}

enum merak_status merak_model_graph(struct merak_model *model,
                                    struct merak_graph **graph_p,
                                    struct merak_error *err)
{
    struct merak_graph *graph = model->graph;
    enum merak_status rc;

    if (model->status == MERAK_OK && model->n_made == 0)
        merak_model_fail(model, MERAK_ERR_PARAM,
                         "the model declares no loss; end it with "
                         "merak_cross_entropy()");
    if (model->status == MERAK_OK && !model->complete)
        complete(model);
    for (int i = 0; i < graph->n_values && model->status == MERAK_OK; i++) {
        const struct merak_value *v = graph->value[i];
        bool used = v->kind != MERAK_VALUE_PARAM || v->frozen;

        for (int j = i + 1; j < graph->n_values && !used; j++)
            used = graph->value[j]->kind == MERAK_VALUE_PARAM_GRAD &&
                   graph->value[j]->of == i;
        if (!used)
            merak_model_fail(model, MERAK_ERR_PARAM,
                             "the loss does not depend on parameter %s; use "
                             "it or leave it out",
                             v->name);
    }
    rc = merak_model_status(model, err);
    if (rc == MERAK_OK)
        *graph_p = graph;
    return rc;
}

/* --- names
 * ------------------------------------------------------------------------- */

const char *merak_name(struct merak_model *m, const char *fmt, ...)
{
    const char *name;
    va_list ap;

    va_start(ap, fmt);
    name = merak_pool_vprintf(m->graph->pool, fmt, ap);
    va_end(ap);
    if (name != NULL)
        return name;
    merak_model_fail(m, MERAK_ERR_NOMEM, "no memory for a name");
    return "";
}

bool merak_is_name(const char *name)
{
    size_t n = 0;

    if (name == NULL)
        return false;
    for (; name[n] != '\0'; n++) {
        if (name[n] <= ' ' || name[n] > '~' || name[n] == '/')
            return false;
    }
    return n > 0 && n <= MERAK_NAME_MOST;
}

static bool check_param(struct merak_model *m, const char *name, int ndim,
                        const size_t *dim, struct merak_init init)
{
    if (!merak_is_name(name))
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "parameter name \"%.60s\": expected 1 to %d printable "
                         "characters, no space and no slash",
                         name == NULL ? "" : name, MERAK_NAME_MOST);
    else if (ndim < 1 || ndim > MERAK_MAX_DIMS || dim == NULL)
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "parameter %s: %d dims, expected 1 to %d", name, ndim,
                         MERAK_MAX_DIMS);
    else if ((init.kind == MERAK_INIT_NORMAL ||
              init.kind == MERAK_INIT_UNIFORM) &&
             !(init.std >= 0 && isfinite(init.std)))
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "parameter %s: standard deviation %g, expected a "
                         "number not below 0",
                         name, (double)init.std);
    for (int i = 0; i < m->graph->n_values && m->status == MERAK_OK; i++) {
        if (m->graph->value[i]->kind == MERAK_VALUE_PARAM &&
            strcmp(m->graph->value[i]->name, name) == 0)
            merak_model_fail(m, MERAK_ERR_PARAM,
                             "parameter %s: the name is taken; use the same "
                             "value twice to tie weights",
                             name);
    }
    return m->status == MERAK_OK;
}

/* --- parameters ---------------------------------------------------------- */

void merak_documents(struct merak_model *m)
{
    if (!open_for(m, "merak_documents"))
        return;
    if (m->graph->n_nodes > 0)
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "merak_documents: expected before the first layer");
    m->graph->documents = true;
}

void merak_preferences(struct merak_model *m, float beta)
{
    merak_documents(m);
    if (!(beta > 0 && isfinite(beta)))
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "merak_preferences: beta %g, expected a positive "
                         "number",
                         (double)beta);
    m->pair_beta = beta;
}

struct merak_value *merak_param(struct merak_model *m, const char *name,
                                int ndim, const size_t *dim,
                                struct merak_init init)
{
    struct merak_value proto = {.kind = MERAK_VALUE_PARAM,
                                .name = name,
                                .dtype =
                                    ndim >= 2 ? m->graph->dtype : MERAK_F32,
                                .producer = -1,
                                .init = init,
                                .decay = ndim >= 2,
                                .frozen = m->lora.rank > 0 && !m->adapting,
                                .adapter = m->adapting,
                                .of = -1};
    struct merak_value *value = NULL;

    if (!open_for(m, "merak_param") || !check_param(m, name, ndim, dim, init))
        return NULL;
    proto.shape.ndim = ndim;
    memcpy(proto.shape.dim, dim, (size_t)ndim * sizeof(*dim));
    merak_model_keep(m, merak_graph_value(m->graph, &proto, &value, &m->error));
    return value;
}

/* --- recycling
 * ------------------------------------------------------------------------- */

void merak_passes(struct merak_model *m, int n)
{
    if (!open_for(m, "merak_passes"))
        return;
    if (n < 1 || n > MERAK_MAX_PASSES)
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "merak_passes: %d passes, expected 1 to %d", n,
                         MERAK_MAX_PASSES);
    else if (m->graph->passes != 0 && m->graph->passes != n)
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "merak_passes: %d passes, after %d were asked for", n,
                         m->graph->passes);
    else
        m->graph->passes = n;
}

struct merak_value *merak_recycled(struct merak_model *m, int ndim,
                                   const size_t *dim)
{
    struct merak_graph *graph = m->graph;
    struct merak_value proto = {
        .kind = MERAK_VALUE_RECYCLED,
        .name = merak_name(m, "recycled.%d", graph->n_recycling),
        .dtype = graph->dtype,
        .producer = -1,
        .input = MERAK_NO_INPUT,
        .of = -1};
    struct merak_value *value = NULL;

    if (!open_for(m, "merak_recycled"))
        return NULL;
    if (ndim < 1 || ndim > MERAK_MAX_DIMS || dim == NULL) {
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "merak_recycled: %d dims, expected 1 to %d", ndim,
                         MERAK_MAX_DIMS);
        return NULL;
    }
    if (graph->n_recycling == MERAK_MAX_RECYCLED) {
        merak_model_fail(m, MERAK_ERR_UNSUPPORTED,
                         "more than %d recycled values", MERAK_MAX_RECYCLED);
        return NULL;
    }
    proto.shape.ndim = ndim;
    memcpy(proto.shape.dim, dim, (size_t)ndim * sizeof(*dim));
    merak_model_keep(m, merak_graph_value(graph, &proto, &value, &m->error));
    if (value != NULL)
        graph->recycling[graph->n_recycling++].in = value;
    return value;
}

static struct merak_recycling *find_recycling(struct merak_graph *graph,
                                              const struct merak_value *in)
{
    for (int i = 0; i < graph->n_recycling; i++) {
        if (graph->recycling[i].in == in)
            return &graph->recycling[i];
    }
    return NULL;
}

static bool is_alike(const struct merak_value *a, const struct merak_value *b)
{
    return a->dtype == b->dtype && merak_shape_equal(&a->shape, &b->shape);
}

void merak_recycle(struct merak_model *m, struct merak_value *recycled,
                   struct merak_value *output)
{
    struct merak_recycling *to = find_recycling(m->graph, recycled);
    char a[MERAK_SHAPE_TEXT], b[MERAK_SHAPE_TEXT];

    if (!open_for(m, "merak_recycle"))
        return;
    if (to == NULL)
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "merak_recycle: %s is not from merak_recycled()",
                         recycled == NULL ? "NULL" : recycled->name);
    else if (output == NULL || output->graph != m->graph ||
             output->producer < 0)
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "merak_recycle: %s cannot be passed on for %s: "
                         "expected an output of an op of this model",
                         output == NULL ? "NULL" : output->name,
                         recycled->name);
    else if (to->out != NULL)
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "merak_recycle: %s is already passed on for %s, and "
                         "now %s",
                         to->out->name, recycled->name, output->name);
    else if (!is_alike(recycled, output))
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "merak_recycle: %s is %s%s and %s expects %s%s",
                         output->name, merak_dtype_name(output->dtype),
                         merak_shape_print(&output->shape, a), recycled->name,
                         merak_dtype_name(recycled->dtype),
                         merak_shape_print(&recycled->shape, b));
    else
        to->out = output;
}

/* --- ops
 * ---------------------------------------------------------------------------
 */

enum merak_status merak_apply(struct merak_model *m, const char *op,
                              const struct merak_attrs *attrs, int n_in,
                              struct merak_value *const *in,
                              struct merak_value **out)
{
    const struct merak_op *found = merak_op_find(op);
    struct merak_node *node = NULL;

    if (!open_for(m, op))
        return m->status;
    if (found == NULL) {
        merak_model_fail(m, MERAK_ERR_NOT_FOUND, "op %s is not registered", op);
        return m->status;
    }
    merak_model_keep(m, merak_graph_node(m->graph, found, attrs, MERAK_PHASE_F,
                                         0, n_in, in, &node, &m->error));
    for (int i = 0; m->status == MERAK_OK && i < node->n_out; i++)
        out[i] = node->out[i];
    return m->status;
}

struct merak_value *merak_model_apply(struct merak_model *m, const char *op,
                                      const struct merak_attrs *attrs, int n_in,
                                      struct merak_value *const *in)
{
    struct merak_value *out[MERAK_MAX_OPERANDS];

    return merak_apply(m, op, attrs, n_in, in, out) == MERAK_OK ? out[0] : NULL;
}
