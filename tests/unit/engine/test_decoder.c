/* SPDX-License-Identifier: Apache-2.0 */
/* test_decoder.c - text generated token by token is transformers' text
 *
 * The vectors are made by vectors/hf/make_greedy.py: of each family 200 greedy
 * ids, log-likelihoods of 200 ids at random, and all logits behind some.
 */
#include "config.h"

#include "unit/near.h"
#include "unit/vectors.h"

#include "io/ckpt/ckpt.h"
#include "io/hf_config.h"
#include "partitioner/graph/graph.h"
#include "runtime/infer/decoder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROMPT 8
#define TEXT 200
#define VECTORS TEST_SRCDIR "/vectors/hf/"

static char scratch[64];

static void ok(enum merak_status rc, const struct merak_error *err)
{
    if (rc != MERAK_OK)
        fail_msg("%s", err->text);
}

static void run(const char *command)
{
    assert_int_equal(system(command), 0);
}

static int make_scratch(void **state)
{
    (void)state;
    strcpy(scratch, "/tmp/merak-decoder-XXXXXX");
    return mkdtemp(scratch) == NULL;
}

static int remove_scratch(void **state)
{
    char command[100];

    (void)state;
    snprintf(command, sizeof(command), "rm -rf %s", scratch);
    run(command);
    return 0;
}

/* --- a model's weights in a checkpoint ----------------------------------- */

static enum merak_status agree(void *arg, enum merak_status mine,
                               struct merak_error *err)
{
    (void)arg;
    (void)err;
    return mine;
}

/* A model that has parameters alone tells their names and shapes. */
static void save(const char *name, struct merak_hf_config *config)
{
    static struct merak_ckpt_piece piece[100];
    static char names[100][256];
    const struct merak_model_options mo = {
        .micro_batch = 1, .seq = 4, .dtype = MERAK_F32};
    const struct merak_ckpt_comm comm = {.size = 1, .agree = agree};
    struct merak_ckpt_state state = {
        .step = 1, .dtype = "f32", .tp = 1, .pp = 1, .dp = 1};
    struct merak_model *model;
    struct merak_graph *graph;
    struct merak_error err;
    char path[300];
    struct vectors *v;
    int n = 0;

    snprintf(path, sizeof(path), "hf/%s.vec", name);
    v = vectors_load(path);
    ok(merak_model_create(&mo, &model, &err), &err);
    merak_hf_describe(model, config);
    ok(merak_model_graph(model, &graph, &err), &err);
    merak_graph_fingerprint(graph, state.model_id);
    for (int i = 0; i < graph->n_values; i++) {
        const struct merak_value *p = graph->value[i];

        if (p->kind != MERAK_VALUE_PARAM)
            continue;
        assert_true(n < 100);
        snprintf(names[n], sizeof(names[n]), "param/%s", p->name);
        piece[n] = (struct merak_ckpt_piece){
            .name = names[n],
            .shape = p->shape,
            .flat_hi = merak_shape_count(&p->shape),
            .data = vectors_find(v, "param/", p->name, 'f')->f};
        piece[n].box.ndim = p->shape.ndim;
        memcpy(piece[n].box.full, p->shape.dim, sizeof(piece[n].box.full));
        memcpy(piece[n].box.len, p->shape.dim, sizeof(piece[n].box.len));
        n++;
    }
    snprintf(path, sizeof(path), "%s/%s", scratch, name);
    ok(merak_ckpt_save(path, &state, piece, n, (struct merak_ckpt_keep){0},
                       &comm, &err),
       &err);
    merak_model_destroy(model);
    vectors_free(v);
}

static void load_config(const char *name, struct merak_hf_config *config)
{
    struct merak_error err;
    char path[1024];

    snprintf(path, sizeof(path), VECTORS "%s.json", name);
    ok(merak_hf_config_load(path, config, &err), &err);
}

/* grows: as `merak generate` opens it. */
/* Of decoders that are opened.  Products this small leave a pool waiting, so
 * there is one in the first test of each model alone. */
static int threads = 1;

static struct merak_decoder *open_to(const char *name, const char *backend,
                                     enum merak_dtype dtype, int tokens,
                                     bool grows, struct merak_hf_config *config)
{
    struct merak_decoder_options opt = {.describe = merak_hf_describe,
                                        .arg = config,
                                        .backend = backend,
                                        .dtype = dtype,
                                        .positions = (size_t)(PROMPT + tokens),
                                        .threads = threads};
    struct merak_decoder *d = NULL;
    struct merak_error err = {.text = ""};
    char path[300];

    snprintf(path, sizeof(path), "%s/%s", scratch, name);
    load_config(name, config);
    if (access(path, F_OK) != 0)
        save(name, config);
    opt.early = grows ? config->rope.short_positions : 0;
    ok(merak_decoder_create(&opt, &d, &err), &err);
    ok(merak_decoder_load(d, path, &err), &err);
    return d;
}

static struct merak_decoder *open_model(const char *name, const char *backend,
                                        enum merak_dtype dtype, int tokens,
                                        struct merak_hf_config *config)
{
    return open_to(name, backend, dtype, tokens, false, config);
}

/* --- what transformers says ----------------------------------------------- */

#define STOPS 4 /* places with logits, equally far apart */
#define VOCAB 61

struct text {
    int32_t prompt[PROMPT], greedy[TEXT];
    int32_t id[TEXT];
    float nll[TEXT - 1];
    float logits[STOPS][VOCAB];
};

static int read_numbers(char *words, double *x, int most)
{
    int n = 0;

    for (char *p = strtok(words, " \n"); p != NULL; p = strtok(NULL, " \n")) {
        assert_true(n < most);
        x[n++] = strtod(p, NULL);
    }
    return n;
}

static void take_greedy(char *words, struct text *t)
{
    double x[PROMPT + TEXT];

    assert_int_equal(read_numbers(words, x, PROMPT + TEXT), PROMPT + TEXT);
    for (int i = 0; i < PROMPT; i++)
        t->prompt[i] = (int32_t)x[i];
    for (int i = 0; i < TEXT; i++)
        t->greedy[i] = (int32_t)x[PROMPT + i];
}

static void take_likelihoods(char *words, struct text *t)
{
    double x[2 * TEXT];

    assert_int_equal(read_numbers(words, x, 2 * TEXT), 2 * TEXT - 1);
    for (int i = 0; i < TEXT; i++)
        t->id[i] = (int32_t)x[i];
    for (int i = 0; i < TEXT - 1; i++)
        t->nll[i] = (float)x[TEXT + i];
}

static void take_logits(char *words, struct text *t)
{
    double x[STOPS * VOCAB];

    assert_int_equal(read_numbers(words, x, STOPS * VOCAB), STOPS * VOCAB);
    for (int i = 0; i < STOPS * VOCAB; i++)
        t->logits[i / VOCAB][i % VOCAB] = (float)x[i];
}

static void read_text(const char *name, struct text *t)
{
    static char line[65536];
    FILE *f = fopen(VECTORS "greedy.txt", "r");
    size_t n = strlen(name);
    int found = 0;

    assert_non_null(f);
    while (fgets(line, sizeof(line), f) != NULL) {
        char *words = line + n + 1;

        if (strncmp(line, name, n) != 0 || line[n] != ' ')
            continue;
        if (strncmp(words, "nll ", 4) == 0)
            take_likelihoods(words + 4, t);
        else if (strncmp(words, "logits ", 7) == 0)
            take_logits(words + 7, t);
        else
            take_greedy(words, t);
        found++;
    }
    fclose(f);
    assert_int_equal(found, 3);
}

/* --- families --------------------------------------------------------------
 */

static const char *const models[] = {"gpt2_long",
                                     "llama3",
                                     "linear",
                                     "dynamic",
                                     "yarn",
                                     "qwen2",
                                     "qwen3",
                                     "phi3",
                                     "olmo2",
                                     "mistral",
                                     "mistral-window",
                                     "qwen2-window",
                                     "phi3-window",
                                     "gemma2",
                                     "llama2",
                                     "smollm",
                                     "phi3-long",
                                     "phi3-short",
                                     "phi4",
                                     "gemma",
                                     "gemma3",
                                     "arcee",
                                     "granite",
                                     "smollm3",
                                     "olmo3",
                                     "stablelm",
                                     "starcoder2",
                                     "phi",
                                     "phi-norms",
                                     "gpt_neox",
                                     "stablelm-parallel",
                                     "gpt_neox-serial",
                                     "mixtral",
                                     "qwen2_moe",
                                     "qwen3_moe",
                                     "olmoe",
                                     "glm4_moe",
                                     "deepseek_v3",
                                     "deepseek_v3-direct",
                                     "deepseek_v2",
                                     "gpt_oss"};
#define N_MODELS (sizeof(models) / sizeof(*models))

static int32_t likeliest(const struct merak_decoder *d, const float *logits)
{
    size_t best = 0;

    for (size_t i = 1; i < merak_decoder_vocab(d); i++)
        best = logits[i] > logits[best] ? i : best;
    return (int32_t)best;
}

static void greedy_ids_are_those_of_transformers(void **state)
{
    const char *name = *state;
    struct merak_hf_config config;
    struct merak_decoder *d;
    struct merak_error err;
    struct text want;
    const float *logits;

    threads = 2;
    d = open_to(name, "cpu", MERAK_F32, TEXT, true, &config);
    threads = 1;
    read_text(name, &want);
    ok(merak_decoder_next(d, want.prompt, PROMPT, &logits, &err), &err);
    for (int i = 0; i < TEXT; i++) {
        int32_t id = likeliest(d, logits);

        if (id != want.greedy[i])
            fail_msg("token %d is %d, expected %d", i, (int)id,
                     (int)want.greedy[i]);
        if (i + 1 < TEXT)
            ok(merak_decoder_next(d, &id, 1, &logits, &err), &err);
    }
    merak_decoder_destroy(d);
}

static float nll_of(const struct merak_decoder *d, const float *logits,
                    int32_t id)
{
    double sum = 0;

    for (size_t i = 0; i < merak_decoder_vocab(d); i++)
        sum += exp((double)(logits[i] - logits[id]));
    return (float)log(sum);
}

/* n ids in parts of these sizes; 0: one by one, by logits. */
static void score(struct merak_decoder *d, const struct text *t, size_t end,
                  size_t part, float *nll)
{
    struct merak_error err;

    merak_decoder_rewind(d, 0);
    for (size_t at = 0; at < end;) {
        size_t left = end - at, n = part < left ? part : left;
        const float *logits;

        if (part > 0) {
            ok(merak_decoder_score(d, t->id + at, t->id + at + 1, n, nll + at,
                                   &err),
               &err);
            at += n;
            continue;
        }
        ok(merak_decoder_next(d, t->id + at, 1, &logits, &err), &err);
        nll[at] = nll_of(d, logits, t->id[at + 1]);
        at++;
    }
    assert_int_equal(merak_decoder_length(d), end);
}

static void likelihoods_are_those_of_transformers(void **state)
{
    static const size_t parts[] = {TEXT, 64, 37, 1, 0};
    const char *name = *state;
    struct merak_hf_config config;
    struct merak_decoder *d = open_model(name, "cpu", MERAK_F32, TEXT, &config);
    size_t n = TEXT - 1;
    float nll[TEXT - 1];
    struct text want;

    read_text(name, &want);
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        score(d, &want, n, parts[i], nll);
        /* f32 against float64: measured within 5e-6 */
        assert_near(nll, want.nll, n, 1e-5f, 2e-5f);
    }
    merak_decoder_destroy(d);
    d = open_model(name, "ref", MERAK_F32, TEXT, &config);
    score(d, &want, n, 50, nll);
    assert_near(nll, want.nll, n, 1e-5f, 2e-5f);
    merak_decoder_destroy(d);
}

/* Relative to the largest of a position: f32 against float64. */
static void logits_are_those_of_transformers(void **state)
{
    const char *name = *state;
    struct merak_hf_config config;
    struct merak_decoder *d = open_model(name, "cpu", MERAK_F32, TEXT, &config);
    struct merak_error err;
    struct text want;

    read_text(name, &want);
    for (int stop = 0; stop < STOPS; stop++) {
        size_t n = TEXT / STOPS;
        const float *logits;
        float most = 0;

        ok(merak_decoder_next(d, want.id + (size_t)stop * n, n, &logits, &err),
           &err);
        for (int i = 0; i < VOCAB; i++)
            most = fmaxf(most, fabsf(want.logits[stop][i]));
        assert_near(logits, want.logits[stop], VOCAB, 0, 1e-5f * most);
    }
    merak_decoder_destroy(d);
}

/* bf16 has 8 bits: logits of a few units are right to some hundredths. */
static void bf16_logits_are_near_fp32(void **state)
{
    struct merak_hf_config config;
    struct merak_decoder *d =
        open_model("qwen3", "cpu", MERAK_BF16, TEXT, &config);
    float nll[TEXT - 1];
    struct text want;

    (void)state;
    read_text("qwen3", &want);
    score(d, &want, TEXT - 1, 33, nll);
    assert_near(nll, want.nll, TEXT - 1, 0.02f, 0.15f);
    score(d, &want, TEXT - 1, 0, nll);
    assert_near(nll, want.nll, TEXT - 1, 0.02f, 0.15f);
    merak_decoder_destroy(d);
}

static void a_rewound_sequence_goes_on_elsewhere(void **state)
{
    struct merak_hf_config config;
    struct merak_decoder *d =
        open_model("yarn", "cpu", MERAK_F32, TEXT, &config);
    float once[40], again[40];
    struct merak_error err;
    struct text t;

    (void)state;
    read_text("yarn", &t);
    ok(merak_decoder_score(d, t.id, t.id + 1, 40, once, &err), &err);
    ok(merak_decoder_next(d, t.prompt, PROMPT, NULL, &err), &err);
    merak_decoder_rewind(d, 20);
    assert_int_equal(merak_decoder_length(d), 20);
    ok(merak_decoder_score(d, t.id + 20, t.id + 21, 20, again + 20, &err),
       &err);
    assert_near(again + 20, once + 20, 20, 1e-5f, 1e-5f);
    merak_decoder_destroy(d);
}

/* Of 208 positions: 60 tokens are short, 70 are long, and so are the first of
 * them then; from nothing it is short again. */
static void a_sequence_that_becomes_long_is_one(void **state)
{
    struct merak_hf_config config;
    struct merak_decoder *d =
        open_to("phi4", "cpu", MERAK_F32, TEXT, true, &config);
    struct merak_decoder *whole =
        open_model("phi4", "cpu", MERAK_F32, TEXT, &config);
    struct merak_decoder *brief =
        open_model("phi4", "cpu", MERAK_F32, 60 - PROMPT, &config);
    float early[60], late[70], want[70];
    struct merak_error err;
    struct text t;

    (void)state;
    read_text("phi4", &t);
    ok(merak_decoder_score(brief, t.id, t.id + 1, 60, want, &err), &err);
    for (int again = 0; again < 2; again++) {
        ok(merak_decoder_score(d, t.id, t.id + 1, 60, early, &err), &err);
        assert_near(early, want, 60, 1e-6f, 1e-6f);
        ok(merak_decoder_score(d, t.id + 60, t.id + 61, 10, late, &err), &err);
        merak_decoder_rewind(whole, 0);
        ok(merak_decoder_score(whole, t.id, t.id + 1, 70, want, &err), &err);
        assert_near(late, want + 60, 10, 1e-6f, 1e-6f);
        merak_decoder_rewind(d, 0);
        merak_decoder_rewind(brief, 0);
        ok(merak_decoder_score(brief, t.id, t.id + 1, 60, want, &err), &err);
    }
    assert_true(fabsf(early[59] - t.nll[59]) > 1e-3f);
    merak_decoder_destroy(d);
    merak_decoder_destroy(whole);
    merak_decoder_destroy(brief);
}

static void what_does_not_fit_is_refused(void **state)
{
    struct merak_hf_config config, other;
    struct merak_decoder *d =
        open_model("qwen2", "cpu", MERAK_F32, TEXT, &config);
    struct merak_error err;
    int32_t ids[PROMPT + TEXT + 1] = {61};
    char path[300];

    (void)state;
    assert_int_equal(merak_decoder_next(d, ids, 1, NULL, &err),
                     MERAK_ERR_PARAM);
    assert_non_null(strstr(err.text, "token 61 is outside the vocabulary"));
    assert_int_equal(merak_decoder_next(d, ids, PROMPT + TEXT + 1, NULL, &err),
                     MERAK_ERR_PARAM);
    assert_string_equal(err.text,
                        "209 tokens after 0, with room for 208 total");
    load_config("linear", &other);
    save("linear", &other);
    snprintf(path, sizeof(path), "%s/linear", scratch);
    assert_int_equal(merak_decoder_load(d, path, &err), MERAK_ERR_MISMATCH);
    assert_non_null(strstr(err.text, "is of another model"));
    merak_decoder_destroy(d);
}

/* A mean over the sequence, as no text model has. */
static void describe_backwards(struct merak_model *m, void *arg)
{
    const size_t dim[] = {1, 16, 8};
    struct merak_value *table =
        MERAK_PARAM(m, "table", MERAK_NORMAL(0.1f), 20, 8);
    struct merak_value *x = merak_embedding(m, merak_tokens(m), table);
    struct merak_value *before = merak_recycled(m, 3, dim);

    (void)arg;
    merak_passes(m, 2);
    x = merak_add(m, x, before);
    merak_recycle(m, before, x);
    merak_cross_entropy(m, merak_linear(m, x, table, NULL, 1),
                        merak_targets(m));
}

static void a_model_of_several_passes_is_refused(void **state)
{
    const struct merak_decoder_options opt = {
        .describe = describe_backwards, .positions = 16, .threads = 1};
    struct merak_decoder *d = NULL;
    struct merak_error err;

    (void)state;
    assert_int_equal(merak_decoder_create(&opt, &d, &err),
                     MERAK_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "the model runs 2 passes"));
}

static void describe_encoder(struct merak_model *m, void *arg)
{
    const struct merak_attention_options full = {.mask = MERAK_MASK_FULL};
    struct merak_value *table = MERAK_PARAM(m, "table", MERAK_ZEROS, 20, 1, 8);
    struct merak_value *qkv = MERAK_PARAM(m, "qkv", MERAK_ZEROS, 3, 1, 8, 8);
    struct merak_value *x = merak_embedding(
        m, merak_tokens(m), MERAK_PARAM(m, "in", MERAK_ZEROS, 20, 8));

    (void)arg;
    x = merak_attention_packed_with(m, merak_linear(m, x, qkv, NULL, 1), &full);
    merak_cross_entropy(m, merak_linear(m, x, table, NULL, 2),
                        merak_targets(m));
}

static void a_model_that_looks_ahead_is_refused(void **state)
{
    const struct merak_decoder_options opt = {
        .describe = describe_encoder, .positions = 16, .threads = 1};
    struct merak_decoder *d = NULL;
    struct merak_error err;

    (void)state;
    assert_int_equal(merak_decoder_create(&opt, &d, &err),
                     MERAK_ERR_UNSUPPORTED);
    assert_string_equal(err.text,
                        "op attention_packed.2 computes a position from "
                        "others: no token can be computed after another");
}

int main(void)
{
    static const struct {
        const char *name;
        CMUnitTestFunction test;
    } each[] = {
        {"greedy_ids_are", greedy_ids_are_those_of_transformers},
        {"logits_are", logits_are_those_of_transformers},
        {"likelihoods_are", likelihoods_are_those_of_transformers},
    };
    struct CMUnitTest tests[3 * N_MODELS + 6];
    static char names[3 * N_MODELS][80];
    size_t n = 0;

    for (size_t i = 0; i < N_MODELS; i++) {
        for (size_t e = 0; e < sizeof(each) / sizeof(*each); e++, n++) {
            snprintf(names[n], sizeof(names[n]), "%s, %s_those_of_transformers",
                     models[i], each[e].name);
            tests[n] = (struct CMUnitTest){names[n], each[e].test, NULL, NULL,
                                           (void *)(uintptr_t)models[i]};
        }
    }
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(bf16_logits_are_near_fp32);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(
        a_rewound_sequence_goes_on_elsewhere);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(
        a_sequence_that_becomes_long_is_one);
    tests[n++] =
        (struct CMUnitTest)cmocka_unit_test(what_does_not_fit_is_refused);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(
        a_model_of_several_passes_is_refused);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(
        a_model_that_looks_ahead_is_refused);
    return _cmocka_run_group_tests("decoder", tests, n, make_scratch,
                                   remove_scratch);
}
