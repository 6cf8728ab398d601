/* SPDX-License-Identifier: Apache-2.0 */
/* few_calls.h - small models of a few calls, for tests */
#ifndef MERAK_TESTS_FEW_CALLS_H
#define MERAK_TESTS_FEW_CALLS_H

#include "unit/near.h"

#include "partitioner/graph/graph.h"

static inline struct merak_model *create(enum merak_dtype dtype)
{
    struct merak_model_options opt = {
        .micro_batch = 2, .seq = 16, .dtype = dtype};
    struct merak_model *m = NULL;

    assert_int_equal(merak_model_create(&opt, &m, NULL), MERAK_OK);
    return m;
}

static inline struct merak_graph *graph_of(struct merak_model *m)
{
    struct merak_graph *graph = NULL;
    struct merak_error err;

    if (merak_model_graph(m, &graph, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return graph;
}

/* tokens -> table [61,32] -> the body -> head -> loss. */
static inline struct merak_value *begin(struct merak_model *m)
{
    return merak_embedding(m, merak_tokens(m),
                           MERAK_PARAM(m, "in", MERAK_NORMAL(1), 61, 32));
}

static inline void end(struct merak_model *m, struct merak_value *x)
{
    x = merak_linear(m, x, MERAK_PARAM(m, "out", MERAK_NORMAL(1), 61, 32), NULL,
                     1);
    merak_cross_entropy(m, x, merak_targets(m));
}

#endif
