/* SPDX-License-Identifier: Apache-2.0 */
/* test_lora_export.c - exported adapters and merged weights compute what PEFT's
 * merged model does
 *
 * The vectors are made by vectors/lora/make_lora.py: weights, adapters, and the
 * logits of the model that merge_and_unload() has made of them, in float64.
 */
#include "config.h"

#include "unit/near.h"
#include "unit/scratch_dir.h"
#include "unit/vectors.h"

#include "io/ckpt/ckpt.h"
#include "io/lora_record.h"
#include "io/weights/transfer_impl.h"
#include "runtime/infer/decoder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PARAMS = 128 };

struct row {
    const char *vec, *model;
    struct merak_lora lora;
};

/* As make_lora.py has asked PEFT for them. */
static const struct row rows[] = {
    {"lora-gpt2", "gpt2-plain", {4, 6, 0, "c_*", false}},
    {"lora-llama", "llama2", {4, 4, 0, "q_proj,model.layers.*.v_proj", false}},
    {"lora-qwen2", "qwen2", {3, 5, 0, "*.*", false}},
    {"lora-dropout", "llama2", {2, 3, 0.25f, "*.*", false}},
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

static void ok(enum merak_status rc, const struct merak_error *err)
{
    if (rc != MERAK_OK)
        fail_msg("%s", err->text);
}

static enum merak_status agree(void *arg, enum merak_status mine,
                               struct merak_error *err)
{
    (void)arg;
    (void)err;
    return mine;
}

static const char *at(char room[300], const struct row *row, const char *end)
{
    snprintf(room, 300, "%s/%s-%s", scratch_dir, row->vec, end);
    return room;
}

static void load_config(const struct row *row, struct merak_hf_config *config,
                        char path[300])
{
    struct merak_error err;

    snprintf(path, 300, "%s/vectors/hf/%s.json", TEST_SRCDIR, row->model);
    ok(merak_hf_config_load(path, config, &err), &err);
}

/* A checkpoint of a run with these adapters. */
static void save(const struct row *row, const struct vectors *v,
                 struct merak_hf_config *config, const char *config_path)
{
    static struct merak_ckpt_piece piece[PARAMS];
    static char names[PARAMS][256];
    const struct merak_ckpt_comm comm = {.size = 1, .agree = agree};
    struct merak_ckpt_state state = {
        .step = 1, .dtype = "f32", .tp = 1, .pp = 1, .dp = 1};
    char run[300], command[900];
    struct merak_hf_params params;
    struct merak_error err;

    ok(merak_hf_params_init(&params, config, &row->lora, &err), &err);
    assert_in_range(params.n_whole, params.n + 2, PARAMS);
    strcpy(state.model_id, params.model_id);
    merak_lora_print(&row->lora, state.recipe, sizeof(state.recipe));
    for (int i = 0; i < params.n_whole; i++) {
        const struct merak_named *p = &params.whole[i];

        snprintf(names[i], sizeof(names[i]), "param/%s", p->name);
        piece[i] = merak_whole_piece(
            names[i], &p->shape, vectors_find(v, "param/", p->name, 'f')->f);
    }
    at(run, row, "run");
    ok(merak_ckpt_save(run, &state, piece, params.n_whole,
                       (struct merak_ckpt_keep){0}, &comm, &err),
       &err);
    snprintf(command, sizeof(command), "mkdir %s/model && cp %s %s/model/%s",
             run, config_path, run, "config.json");
    assert_int_equal(system(command), 0);
    merak_hf_params_fini(&params);
}

static void export(const struct row *row, const char *from, const char *to,
                   enum merak_export_format format, bool merge)
{
    char ckpt[300], out[300];
    const struct merak_export export = {.ckpt = at(ckpt, row, from),
                                        .out = at(out, row, to),
                                        .format = format,
                                        .merge = merge};
    struct merak_transfer_summary summary;
    struct merak_error err;

    ok(merak_weights_export(&export, &summary, &err), &err);
    assert_true(summary.tensors > 0);
}

/* Logits of every position, held against PEFT's: float against float64. */
static void compare(const struct row *row, const char *folder,
                    const struct vectors *v, struct merak_hf_config *config,
                    const struct merak_lora *lora)
{
    const struct vectors_record *tokens = vectors_find(v, "", "tokens", 'i');
    const struct vectors_record *want = vectors_find(v, "", "logits", 'd');
    size_t n_vocab = want->shape.dim[2], n_tokens = tokens->shape.dim[1];
    struct merak_lora_model model = {config, lora};
    struct merak_decoder_options opt = {.describe = merak_lora_describe,
                                        .arg = &model,
                                        .backend = "cpu",
                                        .dtype = MERAK_F32,
                                        .positions = n_tokens,
                                        .threads = 1};
    float *expected = malloc(n_vocab * sizeof(*expected));
    char path[300];

    for (size_t i = 0; i < tokens->n; i++) {
        static struct merak_decoder *d;
        struct merak_error err;
        const float *got;
        float most = 0;

        if (i % n_tokens == 0) {
            ok(merak_decoder_create(&opt, &d, &err), &err);
            ok(merak_decoder_load(d, at(path, row, folder), &err), &err);
        }
        ok(merak_decoder_next(d, &tokens->i[i], 1, &got, &err), &err);
        for (size_t k = 0; k < n_vocab; k++) {
            expected[k] = (float)want->d[i * n_vocab + k];
            most = fmaxf(most, fabsf(expected[k]));
        }
        assert_near(got, expected, n_vocab, 0, 1e-5f * most);
        if (i % n_tokens == n_tokens - 1)
            merak_decoder_destroy(d);
    }
    free(expected);
}

static void weights_are_merged_as_by_peft(void **state)
{
    const struct row *row = *state;
    static struct merak_hf_config config;
    char vec[100], path[300];
    struct vectors *v;

    snprintf(vec, sizeof(vec), "lora/%s.vec", row->vec);
    v = vectors_load(vec);
    load_config(row, &config, path);
    save(row, v, &config, path);
    compare(row, "run", v, &config, &row->lora);
    export(row, "run", "merged", MERAK_EXPORT_HF, true);
    compare(row, "merged", v, &config, NULL);
    vectors_free(v);
}

/* By way of the files of PEFT, beside the base model. */
static void adapters_come_back(void **state)
{
    const struct row *row = *state;
    char adapter[300], base[300], run[300], command[900];
    char note[MERAK_HF_NOTE_BYTES];
    const struct merak_import import = {.dir = at(adapter, row, "adapter"),
                                        .base = at(base, row, "merged"),
                                        .run = at(run, row, "back")};
    struct merak_transfer_summary summary;
    struct merak_error err;

    export(row, "run", "adapter", MERAK_EXPORT_PEFT, false);
    ok(merak_weights_import(&import, note, &summary, &err), &err);
    export(row, "back", "again", MERAK_EXPORT_PEFT, false);
    snprintf(command, sizeof(command),
             "cd %s && cmp %s-adapter/%s %s-again/%s && "
             "! grep '[.]0[.]' %s-adapter/adapter_config.json", /* all layers */
             scratch_dir, row->vec, "adapter_model.safetensors", row->vec,
             "adapter_model.safetensors", row->vec);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    struct CMUnitTest tests[2 * ROWS];

    for (int i = 0; i < ROWS; i++) {
        tests[2 * i] = (struct CMUnitTest)cmocka_unit_test_prestate(
            weights_are_merged_as_by_peft, (void *)(uintptr_t)&rows[i]);
        tests[2 * i + 1] = (struct CMUnitTest)cmocka_unit_test_prestate(
            adapters_come_back, (void *)(uintptr_t)&rows[i]);
    }
    return cmocka_run_group_tests_name("lora_export", tests, scratch_make,
                                       scratch_remove);
}
