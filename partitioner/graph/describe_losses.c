/* SPDX-License-Identifier: Apache-2.0 */
/* describe_losses.c - what a model is trained by */
#include "config.h"

#include "merak/model.h"

#include "partitioner/graph/describe.h"

#include <math.h>
#include <string.h>

/* Keep a loss.  Its denominator is the number of targets that count. */
static struct merak_value *made(struct merak_model *m, struct merak_value *loss,
                                const struct merak_value *targets, int input)
{
    size_t B = m->graph->micro_batch;

    if (loss != NULL && m->n_made == MERAK_MAX_LOSSES)
        merak_model_fail(m, MERAK_ERR_UNSUPPORTED,
                         "the model has more than %d losses", MERAK_MAX_LOSSES);
    if (loss == NULL || m->status != MERAK_OK)
        return NULL;
    m->made[m->n_made++] = (struct merak_made_loss){
        loss,
        {.weight = 1,
         .input = input,
         .per_sample = merak_shape_count(&targets->shape) / B}};
    return loss;
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

    max = merak_model_apply(m, "xent_max", NULL, 1, &logits);
    if (merak_apply(m, "xent_sum", NULL, 3,
                    (struct merak_value *[]){logits, max, targets},
                    sum) != MERAK_OK)
        return NULL;
    in[0] = out[0] = merak_model_apply(
        m, "xent_loss", NULL, 3, (struct merak_value *[]){max, sum[0], sum[1]});
    if (merak_model_add_pairs(m, in + 1)) {
        if (merak_apply(m, "pair_loss", &pair, 3, in, out) != MERAK_OK)
            return NULL;
        loss =
            merak_model_apply(m, "mean_loss", &mean, 3,
                              (struct merak_value *[]){out[0], out[2], in[1]});
    } else {
        loss = merak_model_apply(m, "mean_loss", &mean, 1, out);
    }
    return made(m, loss, targets,
                targets != NULL && targets->kind == MERAK_VALUE_INPUT
                    ? targets->input
                    : -1);
}

/* --- of elements ------------------------------------------------------------
 */

static struct merak_value *point_loss(struct merak_model *m,
                                      enum merak_point_loss kind,
                                      struct merak_value *x,
                                      struct merak_value *targets)
{
    struct merak_attrs attrs = {.i = {0, kind}}, mean = {.f = {1}};
    struct merak_value *e = merak_model_apply(
        m, "point_loss", &attrs, 2, (struct merak_value *[]){x, targets});

    if (e != NULL)
        mean.f[0] = 1 / (double)merak_shape_count(&e->shape);
    return made(m, merak_model_apply(m, "mean_loss", &mean, 1, &e), targets,
                -1);
}

struct merak_value *merak_mse(struct merak_model *m, struct merak_value *x,
                              struct merak_value *targets)
{
    return point_loss(m, MERAK_POINT_MSE, x, targets);
}

struct merak_value *merak_mae(struct merak_model *m, struct merak_value *x,
                              struct merak_value *targets)
{
    return point_loss(m, MERAK_POINT_MAE, x, targets);
}

struct merak_value *merak_bce(struct merak_model *m, struct merak_value *x,
                              struct merak_value *targets)
{
    return point_loss(m, MERAK_POINT_BCE, x, targets);
}

/* Each class of each sample counts as one element. */
struct merak_value *merak_softmax_dice(struct merak_model *m,
                                       struct merak_value *logits,
                                       struct merak_value *targets)
{
    struct merak_attrs mean = {.f = {1}};
    struct merak_value *sums, *e;

    sums = merak_model_apply(m, "dice_sums", NULL, 2,
                             (struct merak_value *[]){logits, targets});
    e = merak_model_apply(m, "dice_loss", NULL, 1, &sums);
    if (e != NULL)
        mean.f[0] = 1 / (double)merak_shape_count(&e->shape);
    return made(m, merak_model_apply(m, "mean_loss", &mean, 1, &e), e, -1);
}

/* --- several ----------------------------------------------------------------
 */

/* Names are keys of JSON and words of reports. */
static bool is_plain(const char *name)
{
    return merak_is_name(name) && strpbrk(name, "\"\\{}") == NULL;
}

static struct merak_made_loss *find_made(struct merak_model *m,
                                         const struct merak_value *value)
{
    for (int i = 0; i < m->n_made; i++) {
        if (m->made[i].value == value)
            return &m->made[i];
    }
    return NULL;
}

static void check_name(struct merak_model *m, const char *name)
{
    if (!is_plain(name))
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "loss name \"%.60s\": expected 1 to %d printable "
                         "characters, no space, slash, quote or brace",
                         name == NULL ? "" : name, MERAK_NAME_MOST);
    for (int i = 0; i < m->n_made && m->status == MERAK_OK; i++) {
        if (m->made[i].loss.name != NULL &&
            strcmp(m->made[i].loss.name, name) == 0)
            merak_model_fail(m, MERAK_ERR_PARAM, "loss %s: the name is taken",
                             name);
    }
}

void merak_loss(struct merak_model *m, const char *name,
                struct merak_value *value, double weight)
{
    struct merak_made_loss *of = find_made(m, value);

    if (merak_model_open_for(m, "merak_loss") == NULL)
        return;
    check_name(m, name);
    if (m->status == MERAK_OK && of == NULL)
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "loss %s: %s is none, expected what "
                         "merak_cross_entropy(), merak_mse(), merak_mae(), "
                         "merak_bce() or merak_softmax_dice() returned",
                         name, value == NULL ? "NULL" : value->name);
    else if (m->status == MERAK_OK && of->loss.name != NULL)
        merak_model_fail(m, MERAK_ERR_PARAM, "loss %s: it already is loss %s",
                         name, of->loss.name);
    else if (m->status == MERAK_OK && m->pair_beta > 0)
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "loss %s: that of preferences is the model's only one",
                         name);
    else if (m->status == MERAK_OK && (weight == 0 || !isfinite(weight)))
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "loss %s: weight %g, expected a finite number other "
                         "than 0; leave a loss without weight out",
                         name, weight);
    if (m->status != MERAK_OK)
        return;
    of->loss.name = merak_name(m, "%s", name);
    of->loss.weight = weight;
}

static void name_all(struct merak_model *m)
{
    struct merak_graph *graph = m->graph;
    double weight[MERAK_MAX_LOSSES];
    struct merak_attrs attrs = {.i = {0, 0, m->n_made}, .list = weight};
    struct merak_value *in[MERAK_MAX_LOSSES];

    for (int i = 0; i < m->n_made; i++) {
        if (m->made[i].loss.name == NULL)
            merak_model_fail(m, MERAK_ERR_PARAM,
                             "loss %s has no name, and others have: give it "
                             "one, and a weight, with merak_loss()",
                             m->made[i].value->name);
        in[i] = m->made[i].value;
        weight[i] = m->made[i].loss.weight;
        graph->losses[i] = m->made[i].loss;
    }
    graph->n_losses = m->n_made;
    graph->loss = merak_model_apply(m, "losses", &attrs, m->n_made, in);
}

void merak_model_settle_loss(struct merak_model *m)
{
    bool named = false;

    for (int i = 0; i < m->n_made; i++)
        named = named || m->made[i].loss.name != NULL;
    if (named) {
        name_all(m);
        return;
    }
    if (m->n_made > 1)
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "the model has %d losses, of which none has a name: "
                         "give each one, and a weight, with merak_loss()",
                         m->n_made);
    m->graph->loss = m->made[0].value;
    m->graph->losses[0] = m->made[0].loss;
    m->graph->n_losses = 1;
}
