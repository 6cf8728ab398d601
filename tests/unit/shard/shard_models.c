/* SPDX-License-Identifier: Apache-2.0 */
/* shard_models.c - small transformers for tests of sharding */
#include "config.h"

#include "unit/near.h"
#include "unit/shard/shard_models.h"

#include "partitioner/order/shard_order.h"

#include <string.h>

static struct merak_value *norm(struct merak_model *m, struct merak_value *x,
                                const struct spec *s, const char *name)
{
    struct merak_value *g =
        MERAK_PARAM(m, merak_name(m, "%s.g", name), MERAK_ONES, s->width);

    if (s->llama)
        return merak_rmsnorm(m, x, g, 1e-5f);
    return merak_layernorm(
        m, x, g,
        MERAK_PARAM(m, merak_name(m, "%s.b", name), MERAK_ZEROS, s->width),
        1e-5f);
}

#define W MERAK_NORMAL(0.3f)

static struct merak_value *gpt_attention(struct merak_model *m,
                                         struct merak_value *x,
                                         const struct spec *s, const char *p)
{
    size_t H = s->heads, D = s->width / H, C = s->width;
    struct merak_value *qkv, *o;

    qkv = merak_linear(
        m, x, MERAK_PARAM(m, merak_name(m, "%s.qkv.w", p), W, 3, H, D, C),
        MERAK_PARAM(m, merak_name(m, "%s.qkv.b", p), W, 3, H, D), 1);
    o = merak_attention_packed(m, qkv);
    return merak_linear(m, o,
                        MERAK_PARAM(m, merak_name(m, "%s.o.w", p), W, C, H, D),
                        MERAK_PARAM(m, merak_name(m, "%s.o.b", p), W, C), 2);
}

static struct merak_value *gpt_mlp(struct merak_model *m, struct merak_value *x,
                                   const struct spec *s, const char *p)
{
    size_t C = s->width;

    x = merak_linear(m, x,
                     MERAK_PARAM(m, merak_name(m, "%s.up.w", p), W, 4 * C, C),
                     MERAK_PARAM(m, merak_name(m, "%s.up.b", p), W, 4 * C), 1);
    x = merak_gelu(m, x, true);
    return merak_linear(
        m, x, MERAK_PARAM(m, merak_name(m, "%s.down.w", p), W, C, 4 * C),
        MERAK_PARAM(m, merak_name(m, "%s.down.b", p), W, C), 1);
}

static struct merak_value *llama_attention(struct merak_model *m,
                                           struct merak_value *x,
                                           const struct spec *s, const char *p)
{
    size_t G = s->kv, R = s->heads / G, D = s->width / s->heads;
    size_t C = s->width;
    struct merak_value *q, *k, *v;

    q = merak_linear(m, x,
                     MERAK_PARAM(m, merak_name(m, "%s.q.w", p), W, G, R, D, C),
                     NULL, 1);
    k = merak_linear(
        m, x, MERAK_PARAM(m, merak_name(m, "%s.k.w", p), W, G, D, C), NULL, 1);
    v = merak_linear(
        m, x, MERAK_PARAM(m, merak_name(m, "%s.v.w", p), W, G, D, C), NULL, 1);
    x = merak_attention(m, merak_rope(m, q, 10000), merak_rope(m, k, 10000), v);
    return merak_linear(
        m, x, MERAK_PARAM(m, merak_name(m, "%s.o.w", p), W, C, G, R, D), NULL,
        3);
}

static struct merak_value *llama_mlp(struct merak_model *m,
                                     struct merak_value *x,
                                     const struct spec *s, const char *p)
{
    size_t C = s->width, hidden = 3 * C;
    struct merak_value *gate, *up;

    gate = merak_linear(
        m, x, MERAK_PARAM(m, merak_name(m, "%s.gate.w", p), W, hidden, C), NULL,
        1);
    up = merak_linear(m, x,
                      MERAK_PARAM(m, merak_name(m, "%s.up.w", p), W, hidden, C),
                      NULL, 1);
    return merak_linear(
        m, merak_swiglu(m, gate, up),
        MERAK_PARAM(m, merak_name(m, "%s.down.w", p), W, C, hidden), NULL, 1);
}

static struct merak_value *attention(struct merak_model *m,
                                     struct merak_value *x,
                                     const struct spec *s, const char *p)
{
    return s->llama ? llama_attention(m, x, s, p) : gpt_attention(m, x, s, p);
}

static struct merak_value *mlp(struct merak_model *m, struct merak_value *x,
                               const struct spec *s, const char *p)
{
    return s->llama ? llama_mlp(m, x, s, p) : gpt_mlp(m, x, s, p);
}

static struct merak_value *block(struct merak_model *m, struct merak_value *x,
                                 const struct spec *s, size_t layer)
{
    const char *p = merak_name(m, "h.%zu", layer);
    const char *n1 = merak_name(m, "%s.n1", p), *n2 = merak_name(m, "%s.n2", p);
    struct merak_value *y = x;

    if (s->block == BLOCK_POST) {
        y = merak_dropout(m, attention(m, x, s, p), s->dropout);
        x = norm(m, merak_add(m, x, y), s, n1);
        y = merak_dropout(m, mlp(m, x, s, p), s->dropout);
        return norm(m, merak_add(m, x, y), s, n2);
    }
    y = norm(m, x, s, n1);
    if (s->block == BLOCK_PARALLEL) {
        y = merak_add(m, attention(m, y, s, p), mlp(m, y, s, p));
        return merak_add(m, x, merak_dropout(m, y, s->dropout));
    }
    y = attention(m, y, s, p);
    x = merak_add(m, x, merak_dropout(m, y, s->dropout));
    y = mlp(m, norm(m, x, s, n2), s, p);
    return merak_add(m, x, merak_dropout(m, y, s->dropout));
}

struct merak_model *spec_model(const struct spec *s, enum merak_dtype dtype,
                               struct merak_graph **graph_p)
{
    const struct merak_model_options opt = {
        .micro_batch = s->batch, .seq = s->seq, .dtype = dtype};
    struct merak_value *x, *table, *head;
    struct merak_model *m;
    struct merak_error err = {0};

    assert_int_equal(merak_model_create(&opt, &m, &err), MERAK_OK);
    table = MERAK_PARAM(m, "wte", W, s->vocab, s->width);
    x = merak_embedding(m, merak_tokens(m), table);
    if (!s->llama)
        x = merak_add_position(m, x,
                               MERAK_PARAM(m, "wpe", W, s->seq + 3, s->width));
    for (size_t i = 0; i < s->layers; i++)
        x = block(m, x, s, i);
    x = norm(m, x, s, "nf");
    head = s->tied ? table : MERAK_PARAM(m, "head", W, s->vocab, s->width);
    merak_cross_entropy(m, merak_linear(m, x, head, NULL, 1), merak_targets(m));
    if (merak_model_graph(m, graph_p, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return m;
}

struct merak_sharded *spec_shard(const struct merak_graph *graph,
                                 const struct merak_shard_options *opt)
{
    struct merak_sharded *sharded = NULL;
    struct merak_error err = {0};

    if (merak_shard(graph, opt, &sharded, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return sharded;
}

void spec_refuses(const struct spec *spec,
                  const struct merak_shard_options *opt, const char *text)
{
    struct merak_sharded *sharded = NULL;
    struct merak_graph *graph;
    struct merak_model *m = spec_model(spec, MERAK_F32, &graph);
    struct merak_error err;

    assert_int_equal(merak_shard(graph, opt, &sharded, &err), MERAK_ERR_CONFIG);
    assert_string_equal(err.text, text);
    merak_model_destroy(m);
}

const char *spec_layout(const struct merak_sharded *s, int value, char text[32])
{
    return merak_layout_print(&s->mesh, &s->layout[value], text, 32);
}

const struct merak_node *spec_node(const struct merak_graph *graph,
                                   const char *op, int nth)
{
    for (int i = 0; i < graph->n_nodes; i++)
        if (strcmp(graph->node[i]->op->name, op) == 0 && nth-- == 0)
            return graph->node[i];
    fail_msg("no node %s", op);
    return NULL;
}

const struct merak_value *spec_param(const struct merak_graph *graph,
                                     const char *name)
{
    for (int i = 0; i < graph->n_values; i++)
        if (graph->value[i]->kind == MERAK_VALUE_PARAM &&
            strcmp(graph->value[i]->name, name) == 0)
            return graph->value[i];
    fail_msg("no parameter %s", name);
    return NULL;
}
