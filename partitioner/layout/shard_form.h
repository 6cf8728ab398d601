/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/layout/shard_form.h - a forward node under one strategy, with
 * all that follows from it in the backward pass
 */
#ifndef MERAK_PARTITIONER_LAYOUT_SHARD_FORM_H
#define MERAK_PARTITIONER_LAYOUT_SHARD_FORM_H

#include "partitioner/layout/shard_impl.h"

#define MERAK_FORM_USES 32

struct merak_use {
    int value;
    int code; /* layout required or produced */
};

struct merak_form {
    struct merak_strategy strategy;
    /* Seconds that do not depend on other nodes: kernels of all phases and
     * conversions between this node and its own gradient nodes. */
    double fixed_s;
    int code[MERAK_MAX_OPERANDS]; /* layouts of inputs, then outputs */
    int n_back;                   /* forward values that gradient nodes read */
    struct merak_use back[MERAK_FORM_USES];
    int n_grad; /* contributions to gradients of inputs */
    struct merak_use grad[MERAK_FORM_USES];
};

struct merak_forms {
    const struct merak_graph *graph;
    const struct merak_mesh *mesh;
    const struct merak_signature *sig;
    struct merak_shard_costs *costs;
    int *first_grad; /* by forward node: a gradient node of it, or -1 */
    int *next_grad;  /* by node: the next of the same forward node, or -1 */
    int *code;       /* by value: of gradients inside the current node */
};

enum merak_status merak_forms_init(struct merak_forms *forms,
                                   struct merak_error *err) MERAK_CHECKED;
void merak_forms_fini(struct merak_forms *forms);
void merak_form_fill(struct merak_forms *forms, const struct merak_node *node,
                     const struct merak_strategy *strategy,
                     struct merak_form *form);

/* The layout, as a code, of a gradient of a value in layout `code`. */
int merak_code_dual(const struct merak_mesh *mesh, int code);

#endif
