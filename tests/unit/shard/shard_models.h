/* SPDX-License-Identifier: Apache-2.0 */
/* shard_models.h - small transformers for tests of sharding */
#ifndef MERAK_TESTS_SHARD_MODELS_H
#define MERAK_TESTS_SHARD_MODELS_H

#include "partitioner/layout/shard.h"

enum block {
    BLOCK_PRE,      /* x + f(norm(x)) */
    BLOCK_POST,     /* norm(x + f(x)): two kinds of gradients meet at x */
    BLOCK_PARALLEL, /* x + (attention(y) + mlp(y)), y = norm(x) */
};

struct spec {
    bool llama; /* else GPT-2's block */
    size_t batch, seq, layers, width, heads, kv, vocab;
    bool tied;
    float dropout;
    enum block block;
};

/* The model; its graph, differentiated, is the model's. */
struct merak_model *spec_model(const struct spec *spec, enum merak_dtype dtype,
                               struct merak_graph **graph_p);
/* The graph, sharded; it fails the test. */
struct merak_sharded *spec_shard(const struct merak_graph *graph,
                                 const struct merak_shard_options *opt);
/* Sharding the model fails with MERAK_ERR_CONFIG and this text. */
void spec_refuses(const struct spec *spec,
                  const struct merak_shard_options *opt, const char *text);

/* The layout of a value, as text; returns text. */
const char *spec_layout(const struct merak_sharded *s, int value,
                        char text[32]);
/* Node `nth` of an op; the parameter of a name.  They fail the test. */
const struct merak_node *spec_node(const struct merak_graph *graph,
                                   const char *op, int nth);
const struct merak_value *spec_param(const struct merak_graph *graph,
                                     const char *name);

#endif
