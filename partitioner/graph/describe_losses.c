/* SPDX-License-Identifier: Apache-2.0 */
/* describe_losses.c - what a model is trained by */
#include "config.h"

#include "merak/model.h"

#include "partitioner/graph/describe.h"

/* The first output of an op; the others are there for its gradient. */
static struct merak_value *apply(struct merak_model *m, const char *op,
                                 const struct merak_attrs *attrs, int n_in,
                                 struct merak_value *const *in)
{
    struct merak_value *out[MERAK_MAX_OPERANDS];

    if (merak_apply(m, op, attrs, n_in, in, out) != MERAK_OK)
        return NULL;
    return out[0];
}

/* Its denominator is the number of targets that count. */
static void set_loss(struct merak_model *m, struct merak_value *loss,
                     const struct merak_value *targets)
{
    struct merak_graph *graph = m->graph;
    size_t B = graph->micro_batch;

    graph->loss = loss;
    graph->losses[graph->n_losses++] = (struct merak_loss){
        .input = targets->kind == MERAK_VALUE_INPUT ? targets->input : -1,
        .per_sample = merak_shape_count(&targets->shape) / B};
}

struct merak_value *merak_cross_entropy(struct merak_model *m,
                                        struct merak_value *logits,
                                        struct merak_value *targets)
{
    double counted =
        targets == NULL ? 1 : (double)merak_shape_count(&targets->shape);
    struct merak_attrs mean = {.f = {1 / counted}};
    struct merak_attrs pair = {.f = {(double)m->pair_beta}};
    struct merak_value *max, *sum[2], *in[3], *out[3], *loss;

    if (m->graph->loss != NULL)
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "cross_entropy: the model already has its loss");
    max = apply(m, "xent_max", NULL, 1, &logits);
    if (merak_apply(m, "xent_sum", NULL, 3,
                    (struct merak_value *[]){logits, max, targets},
                    sum) != MERAK_OK)
        return NULL;
    in[0] = out[0] = apply(m, "xent_loss", NULL, 3,
                           (struct merak_value *[]){max, sum[0], sum[1]});
    if (merak_model_add_pairs(m, in + 1)) {
        if (merak_apply(m, "pair_loss", &pair, 3, in, out) != MERAK_OK)
            return NULL;
        loss = apply(m, "mean_loss", &mean, 3,
                     (struct merak_value *[]){out[0], out[2], in[1]});
    } else {
        loss = apply(m, "mean_loss", &mean, 1, out);
    }
    if (loss != NULL)
        set_loss(m, loss, targets);
    return loss;
}
