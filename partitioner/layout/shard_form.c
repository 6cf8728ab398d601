/* SPDX-License-Identifier: Apache-2.0 */
/* shard_form.c - what a forward node's strategy requires and produces
 *
 * Forward: layouts of inputs and outputs.  Backward: the node's gradient
 * nodes take the same cuts; the forward values they read and the
 * contributions they make are listed, each with its layout.  Conversions
 * between this node's outputs and its own gradient nodes are priced here.
 */
#include "config.h"

#include "partitioner/layout/shard_form.h"

#include "partitioner/graph/dims.h"

#include "base/arrays.h"
#include "base/error.h"

#include <assert.h>
#include <stdlib.h>

enum merak_status merak_forms_init(struct merak_forms *forms,
                                   struct merak_error *err)
{
    const struct merak_graph *graph = forms->graph;
    size_t n = (size_t)graph->n_nodes + 1, v = (size_t)graph->n_values + 1;
    const struct merak_array arrays[] = {MERAK_ARRAY(forms->first_grad, n),
                                         MERAK_ARRAY(forms->next_grad, n),
                                         MERAK_ARRAY(forms->code, v)};
    enum merak_status rc = MERAK_ARRAYS(arrays, err);

    if (rc != MERAK_OK)
        return rc;
    for (size_t i = 0; i < n; i++)
        forms->first_grad[i] = forms->next_grad[i] = -1;
    for (int i = graph->n_nodes - 1; i >= graph->n_forward; i--) {
        int f = graph->node[i]->forward;

        if (merak_node_is_sum(graph->node[i]))
            continue;
        forms->next_grad[i] = forms->first_grad[f];
        forms->first_grad[f] = i;
    }
    return MERAK_OK;
}

void merak_forms_fini(struct merak_forms *forms)
{
    free(forms->first_grad);
}

int merak_code_dual(const struct merak_mesh *mesh, int code)
{
    struct merak_layout layout, dual;

    merak_code_layout(mesh, code, &layout);
    merak_layout_dual(mesh, &layout, &dual);
    return merak_layout_code(mesh, &dual);
}

static void add_use(struct merak_use *uses, int *n, int value, int code)
{
    assert(*n < MERAK_FORM_USES);
    uses[(*n)++] = (struct merak_use){value, code};
}

static bool has_use(const struct merak_use *uses, int n, int value, int code)
{
    for (int i = 0; i < n; i++)
        if (uses[i].value == value && uses[i].code == code)
            return true;
    return false;
}

static int find_output(const struct merak_node *node, int value)
{
    for (int i = 0; i < node->n_out; i++)
        if (node->out[i]->id == value)
            return i;
    return -1;
}

static bool is_input(const struct merak_node *node, int value)
{
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i]->id == value)
            return true;
    return false;
}

/* The output whose gradient is `dy`.  Another node may have passed `dy` on, so
 * it is recognized by its shape. */
static int output_of_grad(const struct merak_node *node,
                          const struct merak_value *dy)
{
    for (int i = 0; i < node->n_out; i++)
        if (merak_shape_equal(&node->out[i]->shape, &dy->shape))
            return i;
    return 0;
}

/* A gradient node reads value v in layout `code`. */
static void read_value(struct merak_forms *forms, const struct merak_node *node,
                       const struct merak_value *v, int code,
                       struct merak_form *form)
{
    bool is_grad = v->kind == MERAK_VALUE_GRADIENT;
    int from, out = find_output(node, v->id);

    if (is_grad && forms->graph->node[v->producer]->forward == node->id &&
        !merak_node_is_sum(forms->graph->node[v->producer]))
        from = forms->code[v->id];
    else if (is_grad)
        from = merak_code_dual(
            forms->mesh, form->code[node->n_in + output_of_grad(node, v)]);
    else if (out >= 0)
        from = form->code[node->n_in + out];
    else
        from = -1;
    if (from < 0) {
        if (!has_use(form->back, form->n_back, v->id, code))
            add_use(form->back, &form->n_back, v->id, code);
        return;
    }
    form->fixed_s += merak_shard_convert_s(forms->costs, v->id, from, code);
}

static void add_grad_node(struct merak_forms *forms,
                          const struct merak_node *node,
                          const struct merak_node *grad,
                          struct merak_form *form)
{
    const struct merak_signature *sig = &forms->sig[grad->id];
    struct merak_strategy s;
    struct merak_layout layout;

    merak_strategy_inherit(forms->mesh, &forms->sig[node->id], &form->strategy,
                           sig, &s);
    form->fixed_s += merak_shard_node_s(forms->costs, grad, sig, &s);
    for (int o = 0; o < grad->n_in + grad->n_out; o++) {
        const struct merak_value *v = merak_node_operand(grad, o);
        int code;

        merak_strategy_layout(forms->mesh, sig, grad->n_in, &s, o, &layout);
        code = merak_layout_code(forms->mesh, &layout);
        if (o < grad->n_in) {
            read_value(forms, node, v, code, form);
            continue;
        }
        forms->code[v->id] = code;
        if (is_input(node, v->of))
            add_use(form->grad, &form->n_grad, v->of, code);
    }
}

/* Ops such as add pass the gradient of their output on unchanged. */
static void add_passed_on(struct merak_forms *forms,
                          const struct merak_node *node,
                          struct merak_form *form)
{
    int dual = merak_code_dual(forms->mesh, form->code[node->n_in]);

    for (int i = 0; i < node->n_in && node->op->grad != NULL; i++) {
        const struct merak_value *v = node->in[i];
        bool brought = false;

        for (int g = 0; g < form->n_grad; g++)
            brought = brought || form->grad[g].value == v->id;
        if (v->kind == MERAK_VALUE_ACTIVATION && !brought &&
            merak_shape_equal(&v->shape, &node->out[0]->shape))
            add_use(form->grad, &form->n_grad, v->id, dual);
    }
}

void merak_form_fill(struct merak_forms *forms, const struct merak_node *node,
                     const struct merak_strategy *strategy,
                     struct merak_form *form)
{
    const struct merak_signature *sig = &forms->sig[node->id];

    *form = (struct merak_form){.strategy = *strategy};
    form->fixed_s = merak_shard_node_s(forms->costs, node, sig, strategy);
    for (int o = 0; o < node->n_in + node->n_out; o++) {
        struct merak_layout layout;

        merak_strategy_layout(forms->mesh, sig, node->n_in, strategy, o,
                              &layout);
        form->code[o] = merak_layout_code(forms->mesh, &layout);
    }
    for (int g = forms->first_grad[node->id]; g >= 0; g = forms->next_grad[g])
        add_grad_node(forms, node, forms->graph->node[g], form);
    if (forms->graph->n_nodes > forms->graph->n_forward)
        add_passed_on(forms, node, form);
}
