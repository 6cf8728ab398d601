/* SPDX-License-Identifier: Apache-2.0 */
/* own_op.c - a GPT whose activation is an op of its own, a leaky ReLU
 *
 *   ./own_op --data PREFIX                                    alone
 *   srun -n4 --merak-tp=2 --merak-pp=2 ./own_op --data PREFIX on four tasks
 *
 * An op has shapes, a cost, a signature, a gradient and a kernel.  The
 * signature is all that Merak needs to divide it over ranks: here every dim may
 * be cut, so that each tensor rank has its part of the hidden layer.
 */
#include <merak/merak.h>
#include <merak/op.h>

#include <stdio.h>

struct gpt {
    int layers;
    size_t heads, head_dim, width, vocab;
};

/* --- y = x, or a tenth of it below 0 -------------------------------------- */

static enum merak_status infer(struct merak_infer *inf, struct merak_error *err)
{
    if (inf->dtype[0] != MERAK_F32) {
        if (err != NULL)
            snprintf(err->text, sizeof(err->text),
                     "leaky_relu: its kernel is for f32, got %s; use --dtype "
                     "fp32",
                     merak_dtype_name(inf->dtype[0]));
        return MERAK_ERR_PARAM;
    }
    inf->shape[inf->n_in] = inf->shape[0];
    inf->dtype[inf->n_in] = inf->dtype[0];
    return MERAK_OK;
}

/* Elementwise: the same index along a dim of all operands, and none is summed
 * over.  The first two dims are samples and positions, named b and t. */
static void signature(const struct merak_infer *inf,
                      struct merak_signature *sig)
{
    static const char name[] = "btefgh";

    *sig = (struct merak_signature){.n_index = inf->shape[0].ndim};
    for (int d = 0; d < sig->n_index; d++) {
        sig->index[d] = (struct merak_index){.kind = MERAK_INDEX_SUM,
                                             .name = name[d],
                                             .extent = inf->shape[0].dim[d]};
        for (int o = 0; o < inf->n_in + inf->n_out; o++)
            sig->operand_dim[o][d] = (int8_t)d;
    }
}

static void cost(const struct merak_infer *inf, struct merak_cost *cost)
{
    double n = (double)merak_shape_count(&inf->shape[0]);

    cost->flops = 2 * n;
    cost->bytes = n * (inf->n_in + 1) * sizeof(float);
}

static enum merak_status leaky_relu(const struct merak_kernel_call *call,
                                    struct merak_error *err)
{
    const float *x = call->operand[0].data;
    float *y = call->operand[1].data;
    size_t n = merak_shape_count(&call->operand[0].local);

    (void)err;
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] > 0 ? x[i] : x[i] / 10;
    return MERAK_OK;
}

/* dx = dy, or a tenth of it */
static enum merak_status leaky_relu_dx(const struct merak_kernel_call *call,
                                       struct merak_error *err)
{
    const float *dy = call->operand[0].data, *x = call->operand[1].data;
    float *dx = call->operand[2].data;
    size_t n = merak_shape_count(&call->operand[0].local);

    (void)err;
    for (size_t i = 0; i < n; i++)
        dx[i] = x[i] > 0 ? dy[i] : dy[i] / 10;
    return MERAK_OK;
}

static enum merak_status grad(struct merak_grad *g,
                              const struct merak_node *node,
                              struct merak_error *err)
{
    struct merak_value *x = merak_node_in(node, 0), *dx;
    struct merak_value *in[] = {merak_grad_out(g, node, 0), x};
    enum merak_status rc;

    if (!merak_grad_wanted(g, x))
        return MERAK_OK;
    rc = merak_grad_node(g, node, MERAK_PHASE_B, "leaky_relu_dx", NULL, 2, in,
                         &dx, err);
    return rc == MERAK_OK ? merak_grad_add(g, x, dx, err) : rc;
}

static const struct merak_op ops[] = {
    {"leaky_relu", 1, 1, 1, infer, signature, cost, grad, .in_place = false,
     .step_use = MERAK_STEP_NONE},
    {"leaky_relu_dx", 2, 2, 1, infer, signature, cost, NULL, .in_place = true,
     .step_use = MERAK_STEP_NONE},
};

static enum merak_status register_ops(struct merak_error *err)
{
    static const merak_kernel_fn kernel[] = {leaky_relu, leaky_relu_dx};
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < 2 && rc == MERAK_OK; i++) {
        rc = merak_op_register(&ops[i], err);
        if (rc == MERAK_OK)
            rc =
                merak_kernel_register("cpu", ops[i].name, kernel[i], NULL, err);
    }
    return rc;
}

/* --- the model ------------------------------------------------------------ */

#define WEIGHT(layer, name, ...)                                            \
    MERAK_PARAM(m, merak_name(m, "h.%d." name, layer), MERAK_NORMAL(0.05f), \
                __VA_ARGS__)
#define NORM(x, layer, name)                                         \
    merak_rmsnorm(m, x,                                              \
                  MERAK_PARAM(m, merak_name(m, "h.%d." name, layer), \
                              MERAK_ONES, g->width),                 \
                  1e-6f)

static struct merak_value *layer(struct merak_model *m, struct merak_value *x,
                                 const struct gpt *g, int i)
{
    const size_t H = g->heads, D = g->head_dim, C = g->width;
    struct merak_value *h = NORM(x, i, "norm_1"), *hidden = NULL;

    h = merak_linear(m, h, WEIGHT(i, "qkv", 3, H, D, C), NULL, 1);
    h = merak_linear(m, merak_attention_packed(m, h),
                     WEIGHT(i, "proj", C, H, D), NULL, 2);
    x = merak_add(m, x, h);
    h = merak_linear(m, NORM(x, i, "norm_2"), WEIGHT(i, "up", 4 * C, C), NULL,
                     1);
    if (merak_apply(m, "leaky_relu", NULL, 1, &h, &hidden) != MERAK_OK)
        return x; /* the model remembers why, and merak_train() says it */
    h = merak_linear(m, hidden, WEIGHT(i, "down", C, 4 * C), NULL, 1);
    return merak_add(m, x, h);
}

static void describe(struct merak_model *m, void *arg)
{
    const struct gpt *g = arg;
    struct merak_value *x,
        *table = MERAK_PARAM(m, "embedding", MERAK_NORMAL(0.05f), g->vocab,
                             g->width);

    x = merak_embedding(m, merak_tokens(m), table);
    x = merak_add_position(m, x,
                           MERAK_PARAM(m, "position", MERAK_NORMAL(0.05f),
                                       merak_model_seq(m), g->width));
    for (int i = 0; i < g->layers; i++)
        x = layer(m, x, g, i);
    x = NORM(x, g->layers, "norm");
    merak_cross_entropy(m, merak_linear(m, x, table, NULL, 1),
                        merak_targets(m));
}

int main(int argc, char **argv)
{
    struct gpt g = {4, 4, 16, 64, 257}; /* bytes */
    struct merak_error err;

    if (register_ops(&err) != MERAK_OK) {
        fprintf(stderr, "own_op: %s\n", err.text);
        return 66;
    }
    return merak_train(argc, argv, describe, &g);
}
