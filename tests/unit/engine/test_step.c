/* SPDX-License-Identifier: Apache-2.0 */
/* test_step.c - the engine on one rank against an independent implementation
 *
 * Steps of tiny models of all families through the whole chain (model, graph,
 * layouts, stages, schedule, program, engine, kernels): losses, gradient norm,
 * every gradient, and the losses after three AdamW steps, or 30; with adapters,
 * those of PEFT, of pairs of answers, those of DPO.
 *
 * Rows of an accelerator are its engine and, of "fake", the cpu's kernels;
 * MERAK_TEST_BACKEND is one that takes their place.
 */
#include "config.h"

#include "unit/near.h"
#include "unit/vectors.h"
#include "unit/with_accel.h"

#include "base/size.h"
#include "io/hf_config.h"
#include "runtime/engine/engine.h"
#include "partitioner/order/shard_order.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* f32 arithmetic of ours against float64: rounding grows with the depth of
 * the sums (at most 61 x 32 terms); measured within 2e-6. */
#define LOSS_REL 1e-5
#define GRAD_REL 2e-5
#define GRAD_ABS 1e-7
/* Of adapters: the smaller part of the model is rounded in every step. */
#define LORA_LOSS_REL 1e-6
#define LORA_GRAD_REL 1e-5

struct row {
    const char *config, *file, *backend;
    int microbatches;
    size_t micro_batch;
    const char *schedule;
};

static struct row rows[] = {
    {"gpt2.json", "gpt2.vec", "ref", 1, 2, "1f1b"},
    {"gpt2.json", "gpt2.vec", "cpu", 1, 2, "1f1b"},
    {"gpt2.json", "gpt2.vec", "cpu", 2, 1, "gpipe"},
    {"llama.json", "llama.vec", "ref", 1, 2, "1f1b"},
    {"llama.json", "llama.vec", "cpu", 1, 2, "1f1b"},
    {"llama.json", "llama.vec", "cpu", 2, 1, "1f1b"},
    {"hf/gpt2-plain.json", "hf/gpt2-plain.vec", "cpu", 1, 2, "1f1b"},
    {"hf/llama2.json", "hf/llama2.vec", "cpu", 1, 2, "1f1b"},
    {"hf/smollm.json", "hf/smollm.vec", "cpu", 2, 1, "1f1b"},
    {"hf/llama3.json", "hf/llama3.vec", "ref", 1, 2, "1f1b"},
    {"hf/llama3.json", "hf/llama3.vec", "cpu", 1, 2, "1f1b"},
    {"hf/linear.json", "hf/linear.vec", "cpu", 1, 2, "1f1b"},
    {"hf/dynamic.json", "hf/dynamic.vec", "cpu", 1, 2, "1f1b"},
    {"hf/yarn.json", "hf/yarn.vec", "ref", 1, 2, "1f1b"},
    {"hf/yarn.json", "hf/yarn.vec", "cpu", 2, 1, "gpipe"},
    {"hf/qwen2.json", "hf/qwen2.vec", "cpu", 1, 2, "1f1b"},
    {"hf/qwen3.json", "hf/qwen3.vec", "cpu", 1, 2, "1f1b"},
    {"hf/mistral.json", "hf/mistral.vec", "cpu", 1, 2, "1f1b"},
    {"hf/phi3.json", "hf/phi3.vec", "cpu", 1, 2, "1f1b"},
    {"hf/phi3-long.json", "hf/phi3-long.vec", "cpu", 1, 2, "1f1b"},
    {"hf/phi3-short.json", "hf/phi3-short.vec", "ref", 1, 2, "1f1b"},
    {"hf/phi4.json", "hf/phi4.vec", "ref", 1, 2, "1f1b"},
    {"hf/phi4.json", "hf/phi4.vec", "cpu", 2, 1, "1f1b"},
    {"hf/olmo2.json", "hf/olmo2.vec", "ref", 1, 2, "1f1b"},
    {"hf/olmo2.json", "hf/olmo2.vec", "cpu", 2, 1, "1f1b"},
    {"hf/gpt2-dropout.json", "hf/gpt2-dropout.vec", "ref", 1, 2, "1f1b"},
    {"hf/gpt2-dropout.json", "hf/gpt2-dropout.vec", "cpu", 2, 1, "gpipe"},
    {"hf/dropout.json", "hf/dropout.vec", "cpu", 1, 2, "1f1b"},
    {"hf/mistral-window.json", "hf/mistral-window.vec", "ref", 1, 2, "1f1b"},
    {"hf/mistral-window.json", "hf/mistral-window.vec", "cpu", 1, 2, "1f1b"},
    {"hf/qwen2-window.json", "hf/qwen2-window.vec", "cpu", 1, 2, "1f1b"},
    {"hf/phi3-window.json", "hf/phi3-window.vec", "cpu", 2, 1, "1f1b"},
    {"hf/gemma2.json", "hf/gemma2.vec", "ref", 1, 2, "1f1b"},
    {"hf/gemma2.json", "hf/gemma2.vec", "cpu", 2, 1, "1f1b"},
    {"hf/gemma.json", "hf/gemma.vec", "cpu", 1, 2, "1f1b"},
    {"hf/gemma3.json", "hf/gemma3.vec", "ref", 1, 2, "1f1b"},
    {"hf/gemma3.json", "hf/gemma3.vec", "cpu", 2, 1, "1f1b"},
    {"hf/arcee.json", "hf/arcee.vec", "ref", 1, 2, "1f1b"},
    {"hf/arcee.json", "hf/arcee.vec", "cpu", 2, 1, "gpipe"},
    {"hf/granite.json", "hf/granite.vec", "ref", 1, 2, "1f1b"},
    {"hf/granite.json", "hf/granite.vec", "cpu", 2, 1, "1f1b"},
    {"hf/smollm3.json", "hf/smollm3.vec", "cpu", 1, 2, "1f1b"},
    {"hf/olmo3.json", "hf/olmo3.vec", "cpu", 1, 2, "1f1b"},
    {"hf/stablelm.json", "hf/stablelm.vec", "cpu", 1, 2, "1f1b"},
    {"hf/stablelm-parallel.json", "hf/stablelm-parallel.vec", "ref", 1, 2,
     "1f1b"},
    {"hf/starcoder2.json", "hf/starcoder2.vec", "ref", 1, 2, "1f1b"},
    {"hf/starcoder2.json", "hf/starcoder2.vec", "cpu", 2, 1, "1f1b"},
    {"hf/phi.json", "hf/phi.vec", "ref", 1, 2, "1f1b"},
    {"hf/phi.json", "hf/phi.vec", "cpu", 2, 1, "gpipe"},
    {"hf/phi-norms.json", "hf/phi-norms.vec", "cpu", 1, 2, "1f1b"},
    {"hf/gpt_neox.json", "hf/gpt_neox.vec", "ref", 1, 2, "1f1b"},
    {"hf/gpt_neox.json", "hf/gpt_neox.vec", "cpu", 2, 1, "1f1b"},
    {"hf/gpt_neox-serial.json", "hf/gpt_neox-serial.vec", "cpu", 2, 1, "1f1b"},
    {"hf/mixtral.json", "hf/mixtral.vec", "ref", 1, 2, "1f1b"},
    {"hf/mixtral.json", "hf/mixtral.vec", "cpu", 2, 1, "1f1b"},
    {"hf/qwen2_moe.json", "hf/qwen2_moe.vec", "ref", 1, 2, "1f1b"},
    {"hf/qwen2_moe.json", "hf/qwen2_moe.vec", "cpu", 2, 1, "1f1b"},
    {"hf/qwen3_moe.json", "hf/qwen3_moe.vec", "cpu", 2, 1, "gpipe"},
    {"hf/olmoe.json", "hf/olmoe.vec", "cpu", 1, 2, "1f1b"},
    {"hf/qwen2_moe-aux.json", "hf/qwen2_moe-aux.vec", "ref", 1, 2, "1f1b"},
    {"hf/qwen2_moe-aux.json", "hf/qwen2_moe-aux.vec", "cpu", 2, 1, "1f1b"},
    {"hf/glm4_moe.json", "hf/glm4_moe.vec", "ref", 1, 2, "1f1b"},
    {"hf/glm4_moe.json", "hf/glm4_moe.vec", "cpu", 2, 1, "1f1b"},
    {"hf/deepseek_v3.json", "hf/deepseek_v3.vec", "ref", 1, 2, "1f1b"},
    {"hf/deepseek_v3.json", "hf/deepseek_v3.vec", "cpu", 2, 1, "1f1b"},
    {"hf/deepseek_v3-direct.json", "hf/deepseek_v3-direct.vec", "cpu", 1, 2,
     "1f1b"},
    {"hf/deepseek_v2.json", "hf/deepseek_v2.vec", "ref", 1, 2, "1f1b"},
    {"hf/deepseek_v2.json", "hf/deepseek_v2.vec", "cpu", 2, 1, "1f1b"},
    {"hf/gpt_oss.json", "hf/gpt_oss.vec", "ref", 1, 2, "1f1b"},
    {"hf/gpt_oss.json", "hf/gpt_oss.vec", "cpu", 2, 1, "1f1b"},
    {"hf/gpt_oss-dropout.json", "hf/gpt_oss-dropout.vec", "cpu", 1, 2, "1f1b"},
    {"hf/bert.json", "hf/bert.vec", "ref", 1, 2, "1f1b"},
    {"hf/bert.json", "hf/bert.vec", "cpu", 2, 1, "1f1b"},
    {"hf/bert-untied.json", "hf/bert-untied.vec", "cpu", 1, 2, "1f1b"},
    {"hf/t5.json", "hf/t5.vec", "ref", 1, 2, "1f1b"},
    {"hf/t5.json", "hf/t5.vec", "cpu", 2, 1, "gpipe"},
    {"hf/t5-v1_1.json", "hf/t5-v1_1.vec", "cpu", 2, 1, "1f1b"},
    {"gpt2.json", "documents/gpt2-documents.vec", "ref", 1, 2, "1f1b"},
    {"gpt2.json", "documents/gpt2-documents.vec", "cpu", 2, 1, "gpipe"},
    {"llama.json", "documents/llama-documents.vec", "ref", 1, 2, "1f1b"},
    {"llama.json", "documents/llama-documents.vec", "cpu", 2, 1, "1f1b"},
    {"gpt2.json", "documents/gpt2-preferences.vec", "ref", 1, 2, "1f1b"},
    {"gpt2.json", "documents/gpt2-preferences.vec", "cpu", 2, 1, "gpipe"},
    {"llama.json", "documents/llama-preferences.vec", "cpu", 1, 2, "1f1b"},
    {"llama.json", "documents/llama-preferences.vec", "fake", 2, 1, "1f1b"},
    {"hf/gpt2-plain.json", "lora/lora-gpt2.vec", "ref", 1, 2, "1f1b"},
    {"hf/gpt2-plain.json", "lora/lora-gpt2.vec", "cpu", 2, 1, "gpipe"},
    {"hf/llama2.json", "lora/lora-llama.vec", "ref", 1, 2, "1f1b"},
    {"hf/llama2.json", "lora/lora-llama.vec", "cpu", 2, 1, "1f1b"},
    {"hf/qwen2.json", "lora/lora-qwen2.vec", "cpu", 1, 2, "1f1b"},
    {"hf/llama2.json", "lora/lora-dropout.vec", "cpu", 2, 1, "1f1b"},
    {"hf/llama2.json", "lora/lora-rslora.vec", "cpu", 1, 2, "1f1b"},
    {"gpt2.json", "gpt2.vec", "fake", 1, 2, "1f1b"},
    {"gpt2.json", "gpt2.vec", "fake", 2, 1, "gpipe"},
    {"llama.json", "llama.vec", "fake", 2, 1, "1f1b"},
    {"hf/qwen3.json", "hf/qwen3.vec", "fake", 1, 2, "1f1b"},
    {"hf/phi3.json", "hf/phi3.vec", "fake", 1, 2, "1f1b"},
    {"hf/mixtral.json", "hf/mixtral.vec", "fake", 1, 2, "1f1b"},
};

/* What make_lora.py has asked PEFT for, in our words. */
static const struct adapted {
    const char *file;
    struct merak_lora lora;
} adapted[] = {
    {"lora/lora-gpt2.vec", {4, 6, 0, "c_*", false}},
    {"lora/lora-llama.vec", {4, 4, 0, "q_proj,model.layers.*.v_proj", false}},
    {"lora/lora-qwen2.vec", {3, 5, 0, "*.*", false}},
    {"lora/lora-dropout.vec", {2, 3, 0.25f, "*.*", false}},
    {"lora/lora-rslora.vec", {3, 2, 0, "*.*", true}}};

struct fixture {
    const struct row *row;
    const struct merak_lora *lora; /* or NULL */
    struct vectors *v;
    struct merak_hf_config config;
    struct merak_model *model;
    struct merak_sharded *sharded;
    struct merak_stages *stages;
    struct merak_plan plan;
    struct merak_program *program;
    const struct merak_backend *backend;
    struct merak_boot *boot;
    struct merak_transport *tr;
    struct merak_engine *engine;
    unsigned char *arena; /* with an accelerator, a copy of its own */
    unsigned char *staging;
    struct with_accel accel;
    int transport_rank;
    size_t seq;
    volatile sig_atomic_t skip;
};

static void ok(enum merak_status rc, const struct merak_error *err)
{
    if (rc != MERAK_OK)
        fail_msg("%s", err->text);
}

static enum merak_status load_input(void *arg, const struct merak_load *load,
                                    void *out, struct merak_error *err)
{
    const struct fixture *f = arg;
    const struct vectors_record *r = vectors_find(
        f->v, "", load->of->name, load->of->dtype == MERAK_F32 ? 'f' : 'i');
    size_t n = merak_shape_count(&load->of->shape);

    (void)err;
    memcpy(out, (const int32_t *)r->any + (size_t)load->microbatch * n,
           n * sizeof(int32_t));
    return MERAK_OK;
}

/* Sequences hold several documents. */
static bool has_documents(const struct fixture *f)
{
    return strncmp(f->row->file, "documents/", 10) == 0;
}

/* They are pairs of a chosen and a rejected answer. */
static bool has_pairs(const struct fixture *f)
{
    return strstr(f->row->file, "-preferences") != NULL;
}

/* What micro-batches' means are summed and divided by: how many there are,
 * unless not all targets count, or pairs do. */
static double shares(const struct fixture *f)
{
    const struct merak_graph *graph = f->sharded->graph;
    const char *name = has_pairs(f) ? "pairs"
                                    : graph->input[graph->losses[0].input].name;
    const struct vectors_record *r = vectors_find(f->v, "", name, 'i');
    double n = 0;

    for (size_t i = 0; i < r->n; i++)
        n += has_pairs(f)
                 ? r->i[i] != 0 && (i % f->seq == 0 || r->i[i] != r->i[i - 1])
                 : r->i[i] != MERAK_NO_TARGET;
    return n / (double)(f->plan.micro_batch * f->seq);
}

static void make_program(struct fixture *f)
{
    struct merak_model_options mo = {
        .micro_batch = f->row->micro_batch, .seq = f->seq, .dtype = MERAK_F32};
    struct merak_shard_options so = {.tp = 1};
    struct merak_program_options po = {
        .dump_grads = true, .memory = merak_backend_memory(f->backend)};
    struct merak_graph *graph;
    struct merak_error err;

    ok(merak_model_create(&mo, &f->model, &err), &err);
    if (has_documents(f))
        merak_documents(f->model);
    if (has_pairs(f))
        merak_preferences(f->model, 0.3f);
    if (f->lora != NULL)
        merak_lora(f->model, f->lora);
    merak_hf_describe(f->model, &f->config);
    ok(merak_model_graph(f->model, &graph, &err), &err);
    ok(merak_shard(graph, &so, &f->sharded, &err), &err);
    ok(merak_stages_cut(f->sharded, 1, NULL, NULL, &f->stages, &err), &err);
    f->plan = (struct merak_plan){.tp = 1,
                                  .pp = 1,
                                  .dp = 1,
                                  .microbatches = f->row->microbatches,
                                  .micro_batch = f->row->micro_batch,
                                  .zero = 1,
                                  .threads = 2};
    snprintf(f->plan.schedule, sizeof(f->plan.schedule), "%s",
             f->row->schedule);
    ok(merak_program_build(f->sharded, f->stages, &f->plan, 0, &po, &f->program,
                           &err),
       &err);
}

static void make_engine(struct fixture *f)
{
    struct merak_transport_options to = {.arena_fd = -1};
    struct merak_engine_options eo = {.backend = f->backend,
                                      .transport_rank = &f->transport_rank,
                                      .load = load_input,
                                      .load_arg = f,
                                      .skip = &f->skip};
    struct merak_error err;

    size_t bytes = merak_size_align(f->program->arena_bytes, 64);

    f->arena = aligned_alloc(64, bytes);
    f->staging = aligned_alloc(64, bytes);
    assert_non_null(f->arena);
    assert_non_null(f->staging);
    ok(merak_boot_open(&f->boot, &err), &err);
    ok(merak_transport_open("self", f->boot, &to, &f->tr, &err), &err);
    eo.tr = f->tr;
    eo.arena = f->arena;
    if (f->backend->accel != NULL) {
        with_accel_open(&f->accel, f->backend, bytes);
        eo.arena = f->accel.memory;
        eo.accel = f->accel.a;
        eo.staging = f->staging;
    }
    ok(merak_engine_create(f->program, &eo, &f->engine, &err), &err);
}

static void *slot(const struct fixture *f, int s)
{
    return f->arena + f->program->slot[s].offset;
}

static void set_weights(struct fixture *f)
{
    for (int i = 0; i < f->program->n_params; i++) {
        const struct merak_param_slots *p = &f->program->param[i];
        const struct vectors_record *w =
            vectors_find(f->v, "param/", p->name, 'w');

        memcpy(slot(f, p->master), w->f, w->n * sizeof(float));
        if (p->frozen)
            continue;
        memset(slot(f, p->m), 0, w->n * sizeof(float));
        memset(slot(f, p->v), 0, w->n * sizeof(float));
    }
}

static int set_up(void **state)
{
    static struct fixture fixture; /* one test runs at a time */
    struct fixture *f = &fixture;
    struct merak_error err;
    const char *name;
    char path[1024];

    memset(f, 0, sizeof(*f));
    f->row = *state;
    for (size_t i = 0; i < sizeof(adapted) / sizeof(*adapted); i++) {
        if (strcmp(adapted[i].file, f->row->file) == 0)
            f->lora = &adapted[i].lora;
    }
    f->v = vectors_load(f->row->file);
    snprintf(path, sizeof(path), "%s/vectors/%s", TEST_SRCDIR, f->row->config);
    ok(merak_hf_config_load(path, &f->config, &err), &err);
    f->seq = (size_t)vectors_find(f->v, "", "config", 'i')->i[1];
    name = f->row->backend;
    if (strcmp(name, "fake") == 0)
        name = with_accel_name(name);
    ok(merak_backend_find(name, &f->backend, &err), &err);
    if (f->backend->open != NULL)
        ok(f->backend->open(2, &err), &err);
    make_program(f);
    make_engine(f);
    set_weights(f);
    if (f->accel.a != NULL)
        with_accel_put(&f->accel, f->accel.memory, f->arena, f->accel.bytes);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    merak_engine_destroy(f->engine);
    merak_transport_close(f->tr);
    merak_boot_close(f->boot);
    merak_program_destroy(f->program);
    merak_stages_destroy(f->stages);
    merak_sharded_destroy(f->sharded);
    merak_model_destroy(f->model);
    vectors_free(f->v);
    if (f->accel.a != NULL)
        with_accel_close(&f->accel);
    free(f->arena);
    free(f->staging);
    return 0;
}

/* The loss; of pairs it has all parts. */
static void mean_loss(const struct fixture *f, double part[MERAK_LOSS_PARTS])
{
    const double *loss = slot(f, f->program->loss);
    int parts = has_pairs(f) ? MERAK_LOSS_PARTS : 1;

    memset(part, 0, MERAK_LOSS_PARTS * sizeof(*part));
    for (int i = 0; i < f->plan.microbatches * parts; i++)
        part[i % parts] += loss[i] / shares(f);
}

static void check_gradients(const struct fixture *f, float scale)
{
    double rel = f->lora != NULL ? LORA_GRAD_REL : GRAD_REL;

    for (int i = 0; i < f->program->n_params; i++) {
        const struct merak_param_slots *p = &f->program->param[i];
        const struct vectors_record *want;
        const float *grad;
        double largest = 0;
        float *got;

        if (p->frozen)
            continue;
        want = vectors_find(f->v, "grad/", p->name, 'f');
        grad = slot(f, p->grad);
        got = calloc(want->n, sizeof(*got));
        for (size_t k = 0; k < want->n; k++) {
            got[k] = grad[k] * scale;
            largest = fmax(largest, fabs((double)want->f[k]));
        }
        assert_near(got, want->f, want->n, rel, GRAD_ABS + rel * largest);
        free(got);
    }
}

static void a_step_is_what_another_implementation_says(void **state)
{
    struct fixture *f = *state;
    const struct vectors_record *losses = vectors_find(f->v, "", "losses", 'd');
    const double *want = losses->d;
    const double *norm = vectors_find(f->v, "", "grad_norm", 'd')->d;
    double rel = f->lora != NULL || has_pairs(f) ? LORA_LOSS_REL : LOSS_REL;
    struct merak_step step = {.lr = 1e-3f,
                              .beta1 = 0.9f,
                              .beta2 = 0.95f,
                              .eps = 1e-8f,
                              .weight_decay = 0.1f,
                              .train = true};
    struct merak_error err;

    step.grad_scale = (float)(1 / shares(f));
    step.token_share = (float)(shares(f) / f->plan.microbatches);
    for (step.step = 0; step.step < losses->n; step.step++) {
        double loss[MERAK_LOSS_PARTS];

        ok(merak_engine_run(f->engine, &step, &err), &err);
        if (f->accel.a != NULL)
            with_accel_get(&f->accel, f->arena, f->accel.memory,
                           f->accel.bytes);
        mean_loss(f, loss);
        assert_near(loss, &want[step.step], 1, rel, 0);
        if (has_pairs(f))
            assert_near(loss + 1,
                        vectors_find(f->v, "", "rewards", 'd')->d +
                            3 * step.step,
                        3, LORA_LOSS_REL, 1e-6);
        if (step.step == 0) {
            double got = ((float *)slot(f, f->program->norm))[1];

            assert_near(&got, norm, 1, rel, 0);
            check_gradients(f, step.grad_scale);
        }
    }
}

/* Whoever asks for the end of a validation waits for no kernel. */
static void once_skipping_a_run_computes_nothing(void **state)
{
    struct fixture *f = *state;
    const struct merak_step step = {
        .lr = 1e-3f, .beta1 = 0.9f, .beta2 = 0.95f, .train = true};
    double *loss = slot(f, f->program->loss);
    const struct merak_param_slots *p = &f->program->param[0];
    const struct vectors_record *w = vectors_find(f->v, "param/", p->name, 'w');
    struct merak_error err;

    for (int i = 0; i < f->plan.microbatches; i++)
        loss[i] = -1;
    if (f->accel.a != NULL)
        with_accel_put(&f->accel, f->accel.memory, f->arena, f->accel.bytes);
    f->skip = 1;
    ok(merak_engine_run(f->engine, &step, &err), &err);
    if (f->accel.a != NULL)
        with_accel_get(&f->accel, f->arena, f->accel.memory, f->accel.bytes);
    for (int i = 0; i < f->plan.microbatches; i++)
        assert_true(loss[i] == -1);
    assert_memory_equal(slot(f, p->master), w->f, w->n * sizeof(float));
}

/* What is captured before is not replayed. */
static int set_up_graphs(void **state)
{
    setenv("MERAK_ACCEL_GRAPHS", "1", 1);
    set_up(state);
    unsetenv("MERAK_ACCEL_GRAPHS");
    return 0;
}

static struct row fake_row = {"gpt2.json", "gpt2.vec", "fake", 2, 1, "1f1b"};

int main(void)
{
    enum { OTHERS = 3 };
    struct CMUnitTest tests[sizeof(rows) / sizeof(rows[0]) + OTHERS] = {
        {"once skipping, a run computes nothing",
         once_skipping_a_run_computes_nothing, set_up, tear_down, &rows[1]},
        {"nor does an accelerator", once_skipping_a_run_computes_nothing,
         set_up, tear_down, &fake_row},
        {"nor what it has captured", once_skipping_a_run_computes_nothing,
         set_up_graphs, tear_down, &fake_row}};
    char names[sizeof(rows) / sizeof(rows[0])][80];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        snprintf(names[i], sizeof(names[i]),
                 "a step is what another implementation says: %s, %s, m=%d",
                 rows[i].file, rows[i].backend, rows[i].microbatches);
        tests[i + OTHERS] = (struct CMUnitTest){
            names[i], a_step_is_what_another_implementation_says, set_up,
            tear_down, &rows[i]};
    }
    return cmocka_run_group_tests_name("step", tests, NULL, NULL);
}
