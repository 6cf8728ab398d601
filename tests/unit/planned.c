/* SPDX-License-Identifier: Apache-2.0 */
/* planned.c - small models and all programs of their plans, for tests */
#include "config.h"

#include "unit/planned.h"

#include <stdlib.h>

static struct merak_value *block(struct merak_model *m,
                                 const struct small_model *s, int l,
                                 struct merak_value *x,
                                 struct merak_value *shared)
{
    size_t C = s->hidden, H = s->heads, D = C / H;
    struct merak_value *w, *h;

    w = MERAK_PARAM(m, merak_name(m, "h.%d.ln.g", l), MERAK_ONES, C);
    h = merak_layernorm(m, x, w,
                        MERAK_PARAM(m, merak_name(m, "h.%d.ln.b", l),
                                    MERAK_ZEROS, C),
                        1e-5f);
    w = MERAK_PARAM(m, merak_name(m, "h.%d.qkv.w", l), MERAK_NORMAL(0.02f), 3,
                    H, D, C);
    h = merak_linear(m, h, w,
                     MERAK_PARAM(m, merak_name(m, "h.%d.qkv.b", l),
                                 MERAK_ZEROS, 3, H, D),
                     1);
    h = merak_attention_packed(m, h);
    w = shared;
    if (w == NULL)
        w = MERAK_PARAM(m, merak_name(m, "h.%d.proj.w", l),
                        MERAK_NORMAL(0.02f), C, H, D);
    x = merak_add(m, x, merak_linear(m, h, w, NULL, 2));
    w = MERAK_PARAM(m, merak_name(m, "h.%d.fc.w", l), MERAK_NORMAL(0.02f),
                    4 * C, C);
    h = merak_gelu(m, merak_linear(m, x, w, NULL, 1), true);
    w = MERAK_PARAM(m, merak_name(m, "h.%d.out.w", l), MERAK_NORMAL(0.02f), C,
                    4 * C);
    return merak_add(m, x, merak_linear(m, h, w, NULL, 1));
}

static void describe(struct merak_model *m, const struct small_model *s)
{
    size_t C = s->hidden, T = merak_model_seq(m);
    struct merak_value *wte, *head, *x, *shared = NULL;

    wte = MERAK_PARAM(m, "wte", MERAK_NORMAL(0.02f), s->vocab, C);
    x = merak_embedding(m, merak_tokens(m), wte);
    x = merak_add_position(
        m, x, MERAK_PARAM(m, "wpe", MERAK_NORMAL(0.02f), T, C));
    if (s->shared_proj)
        shared = MERAK_PARAM(m, "proj.w", MERAK_NORMAL(0.02f), C, s->heads,
                             C / s->heads);
    for (int l = 0; l < s->layers; l++)
        x = block(m, s, l, x, shared);
    head = wte;
    if (s->untied)
        head = MERAK_PARAM(m, "head", MERAK_NORMAL(0.02f), s->vocab, C);
    x = merak_layernorm(m, x, MERAK_PARAM(m, "ln.g", MERAK_ONES, C),
                        MERAK_PARAM(m, "ln.b", MERAK_ZEROS, C), 1e-5f);
    merak_cross_entropy(m, merak_linear(m, x, head, NULL, 1),
                        merak_targets(m));
}

static void check(enum merak_status rc, const char *what,
                  const struct merak_error *err)
{
    if (rc != MERAK_OK)
        fail_msg("%s: %s", what, err->text);
}

/* One rank's share is everything. */
static struct merak_sharded *whole(struct merak_graph *graph)
{
    struct merak_sharded *s = calloc(1, sizeof(*s));

    assert_non_null(s);
    s->graph = graph;
    s->layout = calloc((size_t)graph->n_values, sizeof(*s->layout));
    s->strategy = calloc((size_t)graph->n_nodes, sizeof(*s->strategy));
    s->hop = calloc((size_t)graph->n_nodes, sizeof(*s->hop));
    assert_non_null(s->layout);
    assert_non_null(s->strategy);
    assert_non_null(s->hop);
    return s;
}

void planned_build(struct planned *p, const struct small_model *model,
                   const struct merak_plan *plan,
                   const struct merak_program_options *opt)
{
    struct merak_model_options mo = {
        .micro_batch = 2, .seq = 16, .dtype = model->dtype};
    struct merak_graph *graph = NULL;
    struct merak_error err = {0};

    *p = (struct planned){.plan = *plan,
                          .n = plan->tp * plan->pp * plan->dp};
    check(merak_model_create(&mo, &p->model, &err), "model", &err);
    describe(p->model, model);
    check(merak_model_graph(p->model, &graph, &err), "graph", &err);
    p->sharded = whole(graph);
    check(merak_stages_cut(p->sharded, plan->pp, &p->stages, &err), "stages",
          &err);
    p->program = calloc((size_t)p->n, sizeof(struct merak_program *));
    assert_non_null(p->program);
    for (int r = 0; r < p->n; r++)
        check(merak_program_build(p->sharded, p->stages, plan, r, opt,
                                  &p->program[r], &err),
              "program", &err);
}

void planned_destroy(struct planned *p)
{
    for (int r = 0; r < p->n; r++)
        merak_program_destroy(p->program[r]);
    free(p->program);
    merak_stages_destroy(p->stages);
    free(p->sharded->layout);
    free(p->sharded->strategy);
    free(p->sharded->hop);
    free(p->sharded);
    merak_model_destroy(p->model);
}
