/* SPDX-License-Identifier: Apache-2.0 */
/* planned.h - small models and all programs of their plans, for tests */
#ifndef MERAK_TESTS_PLANNED_H
#define MERAK_TESTS_PLANNED_H

#include "unit/near.h"

#include "partitioner/program.h"

struct small_model {
    int layers;
    size_t vocab;
    size_t hidden, heads;
    bool untied;       /* a head of its own instead of the embedding table */
    bool shared_proj;  /* all layers use one output projection */
    enum merak_dtype dtype;
};

struct planned {
    struct merak_model *model;
    struct merak_sharded *sharded;
    struct merak_stages *stages;
    struct merak_plan plan;
    struct merak_program **program; /* [n], all ranks */
    int n;
};

/* Fails the test on any error.  opt may be NULL. */
void planned_build(struct planned *p, const struct small_model *model,
                   const struct merak_plan *plan,
                   const struct merak_program_options *opt);
void planned_destroy(struct planned *p);

#endif
