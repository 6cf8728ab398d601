/* SPDX-License-Identifier: Apache-2.0 */
/* describe_layers.c - the layers of a model: each adds one op or a few to its
 * graph */
#include "config.h"

#include "merak/model.h"

#include "partitioner/graph/describe.h"

#include <math.h>

struct merak_value *merak_embedding(struct merak_model *m,
                                    struct merak_value *tokens,
                                    struct merak_value *table)
{
    return merak_model_apply(m, "embedding", NULL, 2,
                             (struct merak_value *[]){tokens, table});
}

struct merak_value *merak_embedding_padded(struct merak_model *m,
                                           struct merak_value *tokens,
                                           struct merak_value *table,
                                           size_t pad)
{
    const struct merak_embedding_options opt = {.padded = true, .pad = pad};

    return merak_embedding_with(m, tokens, table, &opt);
}

/* x as rounded to a compute dtype. */
static double round_to(enum merak_dtype dtype, float x)
{
    union {
        float f;
        uint32_t u;
    } bits = {x};

    if (dtype != MERAK_BF16)
        return (double)x;
    bits.u = (bits.u + 0x7fff + (bits.u >> 16 & 1)) & 0xffff0000u;
    return (double)bits.f;
}

struct merak_value *
merak_embedding_with(struct merak_model *m, struct merak_value *tokens,
                     struct merak_value *table,
                     const struct merak_embedding_options *opt)
{
    struct merak_attrs attrs = {.f = {round_to(m->graph->dtype, opt->scale)}};

    if (merak_model_open_for(m, "embedding") == NULL || table == NULL)
        return NULL;
    if (opt->padded) {
        table->init.zero_row = opt->pad + 1;
        attrs.i[0] = (int64_t)opt->pad + 1;
    }
    return merak_model_apply(m, "embedding", &attrs, 2,
                             (struct merak_value *[]){tokens, table});
}

struct merak_value *merak_add_position(struct merak_model *m,
                                       struct merak_value *x,
                                       struct merak_value *table)
{
    struct merak_value *in[3] = {x, table};

    return merak_model_apply(m, "add_position", NULL,
                             merak_model_add_starts(m, in, 2), in);
}

/* A parameter that no op has read so far? */
static bool is_new_param(const struct merak_model *m,
                         const struct merak_value *v)
{
    if (v == NULL || v->kind != MERAK_VALUE_PARAM)
        return false;
    for (int n = 0; n < m->graph->n_nodes; n++) {
        for (int i = 0; i < m->graph->node[n]->n_in; i++) {
            if (m->graph->node[n]->in[i] == v)
                return false;
        }
    }
    return true;
}

/* Also one of several dims, heads and channels. */
void merak_model_make_bias(struct merak_model *m, struct merak_value *bias)
{
    if (!is_new_param(m, bias))
        return;
    bias->dtype = MERAK_F32;
    bias->decay = false;
}

struct merak_value *merak_linear(struct merak_model *m, struct merak_value *x,
                                 struct merak_value *w,
                                 struct merak_value *bias, int n_contract)
{
    struct merak_attrs attrs = {.i = {n_contract}};
    struct merak_value *y;

    if (merak_model_open_for(m, "linear") == NULL)
        return NULL;
    merak_model_make_bias(m, bias);
    if (x != NULL && x->dtype == MERAK_F32 && is_new_param(m, w))
        w->dtype = MERAK_F32;
    y = merak_model_apply(m, "linear", &attrs, bias == NULL ? 2 : 3,
                          (struct merak_value *[]){x, w, bias});
    return merak_lora_add(m, x, w, n_contract, y);
}

static bool check_eps(struct merak_model *m, const char *op, float eps)
{
    if (merak_model_open_for(m, op) != NULL && !(eps > 0 && isfinite(eps)))
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "%s: eps is %g, expected a positive number", op,
                         (double)eps);
    return m->status == MERAK_OK;
}

struct merak_value *merak_layernorm(struct merak_model *m,
                                    struct merak_value *x,
                                    struct merak_value *gamma,
                                    struct merak_value *beta, float eps)
{
    struct merak_attrs attrs = {.f = {(double)eps}};

    if (!check_eps(m, "layernorm", eps))
        return NULL;
    return merak_model_apply(m, "layernorm", &attrs, 3,
                             (struct merak_value *[]){x, gamma, beta});
}

struct merak_value *merak_rmsnorm(struct merak_model *m, struct merak_value *x,
                                  struct merak_value *gamma, float eps)
{
    return merak_rmsnorm_offset(m, x, gamma, 0, eps);
}

struct merak_value *merak_rmsnorm_offset(struct merak_model *m,
                                         struct merak_value *x,
                                         struct merak_value *gamma,
                                         float offset, float eps)
{
    struct merak_attrs attrs = {.f = {(double)eps, (double)offset}};

    if (!check_eps(m, "rmsnorm", eps) || gamma == NULL)
        return NULL;
    attrs.i[0] = gamma->shape.ndim;
    if (attrs.i[0] > 1)
        merak_model_make_bias(m, gamma);
    return merak_model_apply(m, "rmsnorm", &attrs, 2,
                             (struct merak_value *[]){x, gamma});
}

struct merak_value *merak_rope(struct merak_model *m, struct merak_value *x,
                               float theta)
{
    const struct merak_rope_scaling plain = {.kind = MERAK_ROPE_PLAIN};

    return merak_rope_scaled(m, x, theta, &plain);
}

struct merak_value *merak_rope_scaled(struct merak_model *m,
                                      struct merak_value *x, float theta,
                                      const struct merak_rope_scaling *scaling)
{
    const struct merak_rope_scaling *s = scaling;
    struct merak_attrs attrs = {
        .i = {0, (int64_t)s->kind, 0, (int64_t)s->turned},
        .f = {(double)theta, s->factor, s->low, s->high, s->amplitude}};

    if (s->kind == MERAK_ROPE_PAIRS) {
        attrs.i[2] = (int64_t)s->n_by;
        attrs.list = s->by;
    }

    return merak_model_apply(m, "rope", &attrs, 1, &x);
}

struct merak_value *merak_gelu(struct merak_model *m, struct merak_value *x,
                               bool tanh_approximation)
{
    struct merak_attrs attrs = {.i = {tanh_approximation}};

    return merak_model_apply(m, "gelu", &attrs, 1, &x);
}

struct merak_value *merak_mean(struct merak_model *m, struct merak_value *x,
                               char letter)
{
    struct merak_attrs attrs = {.i = {0}};
    int along = 0;

    for (int d = 1; x != NULL && letter != 0 && d < x->shape.ndim; d++) {
        if (x->letter[d] == letter)
            along = d;
    }
    if (x != NULL && along == 0)
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "mean: nothing runs along '%c' in %s, expected the "
                         "letter of a dim behind that of samples",
                         letter, x->name);
    attrs.i[0] = along;
    return merak_model_apply(m, "mean", &attrs, 1, &x);
}

struct merak_value *merak_relu(struct merak_model *m, struct merak_value *x)
{
    return merak_model_apply(m, "relu", NULL, 1, &x);
}

struct merak_value *merak_leaky_relu(struct merak_model *m,
                                     struct merak_value *x, float slope)
{
    struct merak_attrs attrs = {.f = {(double)slope}};

    return merak_model_apply(m, "relu", &attrs, 1, &x);
}

struct merak_value *merak_log1p(struct merak_model *m, struct merak_value *x)
{
    return merak_model_apply(m, "log1p", NULL, 1, &x);
}

struct merak_value *merak_tanh(struct merak_model *m, struct merak_value *x)
{
    return merak_model_apply(m, "tanh", NULL, 1, &x);
}

struct merak_value *merak_relu2(struct merak_model *m, struct merak_value *x)
{
    return merak_model_apply(m, "relu2", NULL, 1, &x);
}

struct merak_value *merak_widen(struct merak_model *m, struct merak_value *x)
{
    return x != NULL && x->dtype == MERAK_F32
               ? x
               : merak_model_apply(m, "widen", NULL, 1, &x);
}

struct merak_value *merak_swiglu(struct merak_model *m,
                                 struct merak_value *gate,
                                 struct merak_value *up)
{
    return merak_model_apply(m, "swiglu", NULL, 2,
                             (struct merak_value *[]){gate, up});
}

struct merak_value *merak_geglu(struct merak_model *m, struct merak_value *gate,
                                struct merak_value *up)
{
    struct merak_attrs attrs = {.i = {1}};

    return merak_model_apply(m, "swiglu", &attrs, 2,
                             (struct merak_value *[]){gate, up});
}

void merak_route(struct merak_model *m, struct merak_value *logits,
                 struct merak_value *bias,
                 const struct merak_route_options *opt,
                 struct merak_value **weights_p, struct merak_value **ids_p)
{
    struct merak_attrs attrs = {
        .i = {(int64_t)opt->k, opt->sigmoid, opt->normalise,
              (int64_t)opt->groups, opt->groups_by_best},
        .f = {(double)opt->scale, (double)opt->groups_kept, opt->rounded}};
    struct merak_value *in[] = {logits, bias}, *out[2] = {NULL, NULL};

    (void)!merak_apply(m, "route", &attrs, bias == NULL ? 1 : 2, in, out);
    *weights_p = out[0];
    *ids_p = out[1];
}

void merak_balance_as(struct merak_model *m,
                      const struct merak_balance_options *opt)
{
    if (merak_model_open_for(m, "merak_balance_as") != NULL)
        m->balance = *opt;
}

/* Nothing but the load moves a bias: with a rate of 0 it is frozen. */
static bool moves(struct merak_model *m, struct merak_value *bias, float rate)
{
    if (bias == NULL || bias->frozen)
        return false;
    if (rate == 0) {
        bias->frozen = true;
        return false;
    }
    if (bias->kind != MERAK_VALUE_PARAM || !(rate > 0) || !isfinite(rate))
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "balance: %s moves by %g, expected a parameter and a "
                         "positive number, or 0 for none",
                         bias->name, (double)rate);
    bias->sign_rate = rate;
    return true;
}

void merak_balance(struct merak_model *m, struct merak_value *logits,
                   struct merak_value *ids, struct merak_value *bias,
                   const struct merak_route_options *route,
                   const struct merak_balance_options *opt)
{
    const struct merak_balance_options *as = &m->balance;
    struct merak_attrs attrs = {
        .i = {0, route->sigmoid},
        .f = {(double)(as->aux >= 0 ? as->aux : opt->aux),
              (double)(as->z >= 0 ? as->z : opt->z)}};
    struct merak_value *in[] = {logits, ids, bias}, *load, *tally;

    if (logits == NULL || ids == NULL)
        return;
    load = merak_model_apply(
        m, "route_load", &attrs,
        moves(m, bias, as->bias_rate >= 0 ? as->bias_rate : opt->bias_rate) ? 3
                                                                            : 2,
        in);
    attrs = (struct merak_attrs){
        .i = {(int64_t)logits->shape.dim[2], (int64_t)m->graph->seq}};
    tally =
        load != NULL ? merak_model_apply(m, "balance", &attrs, 1, &load) : NULL;
    if (tally != NULL)
        tally->reported = true;
}

void merak_model_balances(const struct merak_model *model, bool *any_p,
                          bool *moves_p)
{
    const struct merak_graph *graph = model->graph;

    *any_p = *moves_p = false;
    for (int i = 0; i < graph->n_nodes; i++) {
        if (graph->node[i]->op->role != MERAK_ROLE_OTHER_LOSS)
            continue;
        *any_p = true;
        *moves_p = *moves_p || graph->node[i]->n_in > 2;
    }
}

bool merak_model_limits_experts(const struct merak_model *model)
{
    const struct merak_graph *graph = model->graph;
    bool found = false;

    for (int i = 0; i < graph->n_nodes; i++)
        found = found || graph->node[i]->op->role == MERAK_ROLE_DROP;
    return found;
}

/* Rows that each expert brings to the pool of its rank; all, if that is less.
 */
static int64_t kept_rows(double room, const struct merak_shape *ids,
                         const struct merak_shape *gate)
{
    double rows = (double)merak_shape_count(ids);
    double all = rows / (double)ids->dim[ids->ndim > 0 ? ids->ndim - 1 : 0];
    double kept = ceil(room * rows / (double)gate->dim[0]);

    return (int64_t)fmax(1, fmin(kept, all));
}

/* The attributes of a gate's numbers, and of a bias. */
static void set_gating(struct merak_model *m, struct merak_attrs *attrs,
                       const struct merak_expert_options *opt)
{
    attrs->i[2] = opt->bias != NULL;
    attrs->f[1] = (double)opt->limit;
    attrs->f[2] = (double)opt->slope;
    attrs->f[3] = (double)opt->shift;
    merak_model_make_bias(m, opt->bias);
}

/* The same by rows that travel to places of their experts; what is left over
 * has its own outputs. */
static struct merak_value *
travelling_experts(struct merak_model *m, struct merak_value *const *in,
                   const struct merak_expert_options *opt)
{
    struct merak_value *x = in[0], *w = in[1], *ids = in[2], *gate = in[3];
    struct merak_value *at[2], *out[3], *left, *rows;
    struct merak_attrs attrs;

    if (merak_model_open_for(m, "experts") == NULL || ids == NULL ||
        gate == NULL)
        return NULL;
    attrs = (struct merak_attrs){
        .i = {kept_rows(m->expert_room / (double)ids->shape.dim[0], &ids->shape,
                        &gate->shape),
              (int64_t)gate->shape.dim[0]}};
    if (attrs.i[0] > (int64_t)ids->shape.dim[1])
        attrs.i[0] = (int64_t)ids->shape.dim[1];
    if (merak_apply(m, "experts_places", &attrs, 2,
                    (struct merak_value *[]){w, ids}, at) != MERAK_OK)
        return NULL;
    rows = merak_model_apply(m, "experts_send", &attrs, 2,
                             (struct merak_value *[]){x, ids});
    left = merak_model_apply(m, "experts_left", NULL, 1, &at[1]);
    if (rows == NULL || left == NULL)
        return NULL;
    left->reported = true;
    attrs = (struct merak_attrs){
        .i = {attrs.i[1]},
        .f = {(double)(attrs.i[0] * attrs.i[1]) /
              (double)(ids->shape.dim[1] * ids->shape.dim[2])}};
    set_gating(m, &attrs, opt);
    if (merak_apply(m, "experts_rows", &attrs, opt->bias != NULL ? 10 : 9,
                    (struct merak_value *[]){rows, at[0], gate, in[4], in[5], x,
                                             w, at[1], left, opt->bias},
                    out) != MERAK_OK)
        return NULL;
    return merak_model_apply(m, "experts_join", NULL, 3,
                             (struct merak_value *[]){out[0], ids, out[1]});
}

void merak_expert_capacity(struct merak_model *m, double x)
{
    if (merak_model_open_for(m, "merak_expert_capacity") == NULL)
        return;
    if (!(x >= 0) || !isfinite(x))
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "expert_capacity: %g times an even share, expected a "
                         "positive number, or 0 for no limit",
                         x);
    m->expert_capacity = x;
}

/* Chosen experts without the rows that these do not take. */
static struct merak_value *within_capacity(struct merak_model *m,
                                           struct merak_value *ids,
                                           const struct merak_value *gate)
{
    const size_t *dim;
    struct merak_attrs attrs;
    struct merak_value *kept, *dropped;
    double rows;

    if (m->expert_capacity == 0 || ids == NULL || gate == NULL ||
        ids->shape.ndim != 3)
        return ids;
    dim = ids->shape.dim;
    rows = m->expert_capacity * (double)(dim[1] * dim[2]) /
           (double)gate->shape.dim[0];
    /* a factor of ten digits that gives a whole number gives just that */
    attrs = (struct merak_attrs){
        .i = {(int64_t)fmin(ceil(rows * (1 - 1e-10)), (double)dim[1]),
              (int64_t)gate->shape.dim[0]}};
    kept = merak_model_apply(m, "experts_capacity", &attrs, 1, &ids);
    dropped = kept != NULL
                  ? merak_model_apply(m, "experts_dropped", NULL, 1, &kept)
                  : NULL;
    if (dropped != NULL)
        dropped->reported = true;
    return kept;
}

/* What experts make of in[6]: x, weights, ids and their matrices. */
static struct merak_value *apply_experts(struct merak_model *m,
                                         struct merak_value *const *in,
                                         bool shares,
                                         const struct merak_expert_options *opt)
{
    struct merak_value *ids = in[2], *gate = in[3], *out[2], *over = NULL;
    struct merak_attrs attrs = {.i = {0}};

    if (shares && m->expert_exchange)
        return travelling_experts(m, in, opt);
    if (shares && ids != NULL && gate != NULL)
        attrs = (struct merak_attrs){
            .i = {kept_rows(m->expert_room, &ids->shape, &gate->shape),
                  (int64_t)gate->shape.dim[0]}};
    if (merak_model_open_for(m, "experts") == NULL)
        return NULL;
    set_gating(m, &attrs, opt);
    if (merak_apply(m, "experts", &attrs, opt->bias != NULL ? 7 : 6,
                    (struct merak_value *[]){in[0], in[1], ids, gate, in[4],
                                             in[5], opt->bias},
                    out) != MERAK_OK)
        return NULL;
    if (attrs.i[0] > 0)
        over = merak_model_apply(m, "experts_overflow", NULL, 2,
                                 (struct merak_value *[]){ids, out[1]});
    if (over != NULL)
        over->reported = true;
    return out[0];
}

struct merak_value *
merak_experts_with(struct merak_model *m, struct merak_value *x,
                   struct merak_value *weights, struct merak_value *ids,
                   struct merak_value *const matrix[3],
                   const struct merak_expert_options *opt)
{
    const struct merak_value *gate = matrix[0];
    struct merak_value *y;
    /* one that all tokens have is no part of a rank: there is nothing to cut,
     * and no row too many */
    bool one = gate != NULL && gate->shape.ndim > 0 && gate->shape.dim[0] == 1;

    if (!one)
        ids = within_capacity(m, ids, gate);
    y = apply_experts(m,
                      (struct merak_value *[]){x, weights, ids, matrix[0],
                                               matrix[1], matrix[2]},
                      m->expert_room > 0 && !one, opt);
    if (opt->down_bias == NULL || y == NULL)
        return y;
    merak_model_make_bias(m, opt->down_bias);
    return merak_model_apply(
        m, "experts_bias", NULL, 4,
        (struct merak_value *[]){y, weights, ids, opt->down_bias});
}

struct merak_value *merak_experts(struct merak_model *m, struct merak_value *x,
                                  struct merak_value *weights,
                                  struct merak_value *ids,
                                  struct merak_value *gate,
                                  struct merak_value *up,
                                  struct merak_value *down)
{
    static const struct merak_expert_options none;

    return merak_experts_with(m, x, weights, ids,
                              (struct merak_value *[]){gate, up, down}, &none);
}

struct merak_value *merak_softcap(struct merak_model *m, struct merak_value *x,
                                  float cap)
{
    struct merak_attrs attrs = {.f = {(double)cap}};

    return cap == 0.0f ? x : merak_model_apply(m, "softcap", &attrs, 1, &x);
}

struct merak_value *merak_add(struct merak_model *m, struct merak_value *a,
                              struct merak_value *b)
{
    return merak_model_apply(m, "add", NULL, 2, (struct merak_value *[]){a, b});
}

struct merak_value *merak_scale(struct merak_model *m, struct merak_value *x,
                                float factor)
{
    struct merak_attrs attrs = {.f = {(double)factor}};

    return factor == 1.0f ? x : merak_model_apply(m, "scale", &attrs, 1, &x);
}

struct merak_value *merak_dropout(struct merak_model *m, struct merak_value *x,
                                  float p)
{
    struct merak_attrs attrs = {.f = {(double)p}};

    if (p == 0.0f)
        return x;
    attrs.i[0] = m->n_dropouts++;
    return merak_model_apply(m, "dropout", &attrs, 1, &x);
}
