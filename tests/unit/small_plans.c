/* SPDX-License-Identifier: Apache-2.0 */
/* small_plans.c - small models and all programs of their plans, for tests */
#include "config.h"

#include "unit/small_plans.h"
#include "partitioner/simulate/check.h"

#include <stdio.h>

/* Attention with packed heads and the projection after it. */
static struct merak_value *packed(struct merak_model *m,
                                  const struct small_model *s, int l,
                                  struct merak_value *x,
                                  struct merak_value *proj)
{
    size_t C = s->hidden, H = s->heads, D = C / H;
    struct merak_value *w, *bias, *h;

    w = MERAK_PARAM(m, merak_name(m, "h.%d.qkv.w", l), MERAK_NORMAL(0.02f), 3,
                    H, D, C);
    bias = MERAK_PARAM(m, merak_name(m, "h.%d.qkv.b", l), MERAK_ZEROS, 3, H, D);
    h = merak_attention_packed_with(m, merak_linear(m, x, w, bias, 1),
                                    &s->attention);
    if (proj == NULL)
        proj = MERAK_PARAM(m, merak_name(m, "h.%d.proj.w", l),
                           MERAK_NORMAL(0.02f), C, H, D);
    bias = MERAK_PARAM(m, merak_name(m, "h.%d.proj.b", l), MERAK_ZEROS, C);
    return merak_linear(m, h, proj, bias, 2);
}

static struct merak_value *grouped(struct merak_model *m,
                                   const struct small_model *s, int l,
                                   struct merak_value *x)
{
    size_t C = s->hidden, G = s->kv_heads, R = s->heads / G;
    size_t D = C / s->heads;
    struct merak_value *q, *k, *v, *w, *of = s->crossed ? s->other : x;

    w = MERAK_PARAM(m, merak_name(m, "h.%d.q.w", l), MERAK_NORMAL(0.02f), G, R,
                    D, C);
    q = merak_rope(m, merak_linear(m, x, w, NULL, 1), 1e4f);
    w = MERAK_PARAM(m, merak_name(m, "h.%d.k.w", l), MERAK_NORMAL(0.02f), G, D,
                    C);
    k = merak_rope(m, merak_linear(m, of, w, NULL, 1), 1e4f);
    w = MERAK_PARAM(m, merak_name(m, "h.%d.v.w", l), MERAK_NORMAL(0.02f), G, D,
                    C);
    v = merak_linear(m, of, w, NULL, 1);
    w = MERAK_PARAM(m, merak_name(m, "h.%d.proj.w", l), MERAK_NORMAL(0.02f), C,
                    G, R, D);
    return merak_linear(m, merak_attention_with(m, q, k, v, &s->attention), w,
                        NULL, 3);
}

/* An expert of twice the channels that all tokens have. */
static struct merak_value *add_common(struct merak_model *m, int l,
                                      struct merak_value *x,
                                      struct merak_value *to, size_t C)
{
    const struct merak_route_options route = {.k = 1, .sigmoid = true};
    struct merak_value *w, *weights, *ids, *gate, *up;

    w = MERAK_PARAM(m, merak_name(m, "h.%d.common.w", l), MERAK_NORMAL(0.5f), 1,
                    C);
    merak_route(m, merak_linear(m, x, w, NULL, 1), NULL, &route, &weights,
                &ids);
    gate = MERAK_PARAM(m, merak_name(m, "h.%d.common.gate.w", l),
                       MERAK_NORMAL(0.2f), 1, 2 * C, C);
    up = MERAK_PARAM(m, merak_name(m, "h.%d.common.up.w", l),
                     MERAK_NORMAL(0.2f), 1, 2 * C, C);
    w = MERAK_PARAM(m, merak_name(m, "h.%d.common.down.w", l),
                    MERAK_NORMAL(0.2f), 1, C, 2 * C);
    return merak_add(m, to, merak_experts(m, x, weights, ids, gate, up, w));
}

/* Experts of twice the channels in place of an MLP. */
static struct merak_value *mixture(struct merak_model *m,
                                   const struct small_model *s, int l,
                                   struct merak_value *x)
{
    const struct merak_route_options route = {.k = s->chosen,
                                              .normalise = true};
    struct merak_expert_options opt = {.bias = NULL};
    size_t E = s->experts, C = s->hidden;
    struct merak_value *w, *weights, *ids, *gate, *up, *z, *bias = NULL;

    /* equal scores choose the first experts */
    w = MERAK_PARAM(m, merak_name(m, "h.%d.router.w", l),
                    s->skewed ? MERAK_ONES : MERAK_NORMAL(0.5f), E, C);
    z = merak_linear(m, x, w, NULL, 1);
    if (s->balance.bias_rate > 0)
        bias = MERAK_PARAM(m, merak_name(m, "h.%d.router.bias", l), MERAK_ZEROS,
                           E);
    merak_route(m, z, bias, &route, &weights, &ids);
    merak_balance(m, z, ids, bias, &route, &s->balance);
    merak_expert_capacity(m, s->capacity);
    gate = MERAK_PARAM(m, merak_name(m, "h.%d.gate.w", l), MERAK_NORMAL(0.2f),
                       E, 2 * C, C);
    up = MERAK_PARAM(m, merak_name(m, "h.%d.up.w", l), MERAK_NORMAL(0.2f), E,
                     2 * C, C);
    w = MERAK_PARAM(m, merak_name(m, "h.%d.down.w", l), MERAK_NORMAL(0.2f), E,
                    C, 2 * C);
    if (s->biased) {
        opt.bias = MERAK_PARAM(m, merak_name(m, "h.%d.experts.b", l),
                               MERAK_ZEROS, E, 2, 2 * C);
        opt.down_bias = MERAK_PARAM(m, merak_name(m, "h.%d.experts.db", l),
                                    MERAK_ZEROS, E, C);
        opt.limit = 0.02f;
        opt.slope = 1.7f;
        opt.shift = 1;
    }
    z = merak_experts_with(m, x, weights, ids,
                           (struct merak_value *[]){gate, up, w}, &opt);
    z = merak_add(m, x, z);
    return s->common ? add_common(m, l, x, z, C) : z;
}

static struct merak_value *block(struct merak_model *m,
                                 const struct small_model *s, int l,
                                 struct merak_value *x,
                                 struct merak_value *shared)
{
    size_t C = s->hidden;
    struct merak_value *w, *bias, *h;

    w = MERAK_PARAM(m, merak_name(m, "h.%d.ln.g", l), MERAK_ONES, C);
    h = merak_layernorm(
        m, x, w, MERAK_PARAM(m, merak_name(m, "h.%d.ln.b", l), MERAK_ZEROS, C),
        1e-5f);
    h = s->kv_heads > 0 ? grouped(m, s, l, h) : packed(m, s, l, h, shared);
    x = merak_add(m, x, merak_dropout(m, h, s->dropout));
    if (s->experts > 0)
        return mixture(m, s, l, x);
    w = MERAK_PARAM(m, merak_name(m, "h.%d.fc.w", l), MERAK_NORMAL(0.02f),
                    4 * C, C);
    h = merak_gelu(m, merak_linear(m, x, w, NULL, 1), true);
    w = MERAK_PARAM(m, merak_name(m, "h.%d.out.w", l), MERAK_NORMAL(0.02f), C,
                    4 * C);
    bias = MERAK_PARAM(m, merak_name(m, "h.%d.out.b", l), MERAK_ZEROS, C);
    return merak_add(m, x, merak_linear(m, h, w, bias, 1));
}

/* What is left of a value's rows at this ratio. */
static struct merak_value *repacked(struct merak_model *m,
                                    struct merak_value *x, size_t C, int ratio)
{
    const struct merak_attrs attrs = {
        .i = {((int64_t)C + ratio - 1) / ratio, (int64_t)C}};
    struct merak_value *sent[2], *got;

    if (merak_apply(m, "topk_pack", &attrs, 1, &x, sent) != MERAK_OK ||
        merak_apply(m, "topk_unpack", &attrs, 2, sent, &got) != MERAK_OK)
        fail_msg("cannot pack");
    return got;
}

static struct merak_value *layers(struct merak_model *m,
                                  const struct small_model *s,
                                  struct merak_value *x,
                                  struct merak_value *shared)
{
    size_t C = s->hidden;
    struct merak_value *old = NULL, *h;

    if (s->passes > 1) {
        merak_passes(m, s->passes);
        old = MERAK_RECYCLED(m, merak_model_micro_batch(m), merak_model_seq(m),
                             C);
    }
    for (int l = 0; l < s->layers; l++) {
        if (old != NULL && l == s->reads) {
            h = merak_layernorm(m, old, MERAK_PARAM(m, "old.g", MERAK_ONES, C),
                                MERAK_PARAM(m, "old.b", MERAK_ZEROS, C), 1e-5f);
            h = merak_linear(m, h,
                             MERAK_PARAM(m, "old.w", MERAK_NORMAL(0.02f), C, C),
                             NULL, 1);
            x = merak_add(m, x, merak_dropout(m, h, s->dropout));
        }
        if (old != NULL && l == s->also && s->also != s->reads)
            x = merak_add(m, x, old);
        x = block(m, s, l, x, shared);
        if (l < 4 && s->pair[l] > 0)
            x = repacked(m, x, C, s->pair[l]);
        if (old != NULL && l == s->leaves)
            merak_recycle(m, old, x);
    }
    return x;
}

/* Inputs beside tokens and a parameter, which attention reads. */
static void add_inputs(struct merak_model *m, struct small_model *s)
{
    size_t B = merak_model_micro_batch(m);

    if (s->crossed)
        s->other = merak_input(m, "other", s->dtype, "bsc",
                               (size_t[]){B, PLANNED_OTHER, s->hidden});
    if (s->lengths)
        s->attention.key_lengths =
            merak_input(m, "lengths", MERAK_I32, "b", &B);
    if (s->prefix)
        s->attention.prefix_lengths =
            merak_input(m, "prefix", MERAK_I32, "b", &B);
    if (s->sinks)
        s->attention.sinks =
            MERAK_PARAM(m, "sinks", MERAK_NORMAL(0.5f), s->kv_heads,
                        s->heads / s->kv_heads);
    if (s->biases > 0)
        s->attention.bias.table =
            MERAK_PARAM(m, "bias", MERAK_NORMAL(0.5f), s->biases, s->kv_heads,
                        s->heads / s->kv_heads);
}

static void describe(struct merak_model *m, void *arg)
{
    struct small_model with = *(const struct small_model *)arg, *s = &with;
    size_t C = s->hidden, T = merak_model_seq(m);
    struct merak_value *wte, *head, *x, *shared = NULL;

    add_inputs(m, s);
    wte = MERAK_PARAM(m, "wte", MERAK_NORMAL(0.02f), s->vocab, C);
    x = merak_embedding(m, merak_tokens(m), wte);
    x = merak_add_position(m, x,
                           MERAK_PARAM(m, "wpe", MERAK_NORMAL(0.02f), T, C));
    if (s->shared_proj)
        shared = MERAK_PARAM(m, "proj.w", MERAK_NORMAL(0.02f), C, s->heads,
                             C / s->heads);
    x = layers(m, s, x, shared);
    head = wte;
    if (s->untied)
        head = MERAK_PARAM(m, "head", MERAK_NORMAL(0.02f), s->vocab, C);
    x = merak_layernorm(m, x, MERAK_PARAM(m, "ln.g", MERAK_ONES, C),
                        MERAK_PARAM(m, "ln.b", MERAK_ZEROS, C), 1e-5f);
    merak_cross_entropy(m, merak_linear(m, x, head, NULL, 1), merak_targets(m));
}

static enum merak_status build(const struct small_model *model,
                               const struct merak_plan *plan,
                               const struct merak_program_options *opt,
                               struct merak_planned **planned_p,
                               struct merak_error *err)
{
    struct small_model copy = *model;
    struct merak_plan full = *plan;
    struct merak_cost_model cost = *merak_cost_default();
    struct merak_program_options with = {0};

    if (full.micro_batch == 0)
        full.micro_batch = 2;
    full.dtype = model->dtype;
    if (opt != NULL)
        with = *opt;
    if (plan->offload != MERAK_OFFLOAD_NONE && with.cost == NULL) {
        cost.host = (struct merak_host){1 << 30, 1e10, 1e-5};
        with.cost = &cost;
        opt = &with;
    }
    return merak_plan_build(
        &full, model->tokens > 0 ? model->tokens : 16,
        model->describe != NULL ? model->describe : describe,
        model->describe != NULL ? model->arg : &copy, MERAK_PLAN_ALL, opt,
        planned_p, err);
}

struct merak_planned *planned_build(const struct small_model *model,
                                    const struct merak_plan *plan,
                                    const struct merak_program_options *opt)
{
    struct merak_planned *planned = NULL;
    struct merak_error err = {0};

    if (build(model, plan, opt, &planned, &err) != MERAK_OK)
        fail_msg("tp %d pp %d dp %d: %s", plan->tp, plan->pp, plan->dp,
                 err.text);
    return planned;
}

enum merak_status planned_try(const struct small_model *model,
                              const struct merak_plan *plan,
                              struct merak_error *err)
{
    struct merak_planned *planned = NULL;
    enum merak_status rc = build(model, plan, NULL, &planned, err);

    merak_planned_destroy(planned);
    return rc;
}

struct merak_plan planned_plan(int tp, int pp, int dp, int microbatches,
                               const char *schedule, int zero)
{
    struct merak_plan plan = {.tp = tp,
                              .pp = pp,
                              .dp = dp,
                              .microbatches = microbatches,
                              .zero = zero};

    snprintf(plan.schedule, sizeof(plan.schedule), "%s", schedule);
    return plan;
}

void planned_assert_sound(const struct merak_planned *planned)
{
    const struct merak_plan *plan = &planned->plan;
    struct merak_error err = {0};

    if (merak_program_check(planned->program, planned->n_programs, &err) !=
        MERAK_OK)
        fail_msg("tp %d, pp %d, dp %d, %d micro-batches, %s, %d chunks%s, "
                 "recompute %d: %s",
                 plan->tp, plan->pp, plan->dp, plan->microbatches,
                 plan->schedule, plan->chunks,
                 plan->sub_pipeline ? ", sub-pipeline" : "",
                 (int)plan->recompute, err.text);
}

struct merak_instr *planned_find(struct merak_program *prog,
                                 enum merak_instr_kind kind, int nth)
{
    for (int i = 0; i < prog->n_instrs; i++) {
        if (prog->instr[i].kind == kind && nth-- == 0)
            return &prog->instr[i];
    }
    fail_msg("no such instruction");
    return NULL;
}

const struct merak_step planned_step = {.lr = 1e-3f,
                                        .beta1 = 0.9f,
                                        .beta2 = 0.95f,
                                        .eps = 1e-8f,
                                        .grad_scale = 0.25f,
                                        .token_share = 1,
                                        .train = true};

void planned_ids(int microbatch, int32_t *ids)
{
    for (int i = 0; i < 2 * 16; i++)
        ids[i] = (i * 5 + microbatch) % 61;
}
