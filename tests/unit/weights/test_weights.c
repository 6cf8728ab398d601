/* SPDX-License-Identifier: Apache-2.0 */
/* test_weights.c - weights in and out: every family there and back to the
 * byte, parts of tensors as parts of the whole, and what does not fit by name
 */
#include "config.h"

#include "unit/weights/hf_folder.h"
#include "unit/scratch_dir.h"

#include "base/half.h"
#include "base/rng.h"
#include "io/ckpt/ckpt.h"
#include "io/ckpt/durable.h"
#include "io/weights/transfer.h"
#include "io/weights/transfer_impl.h"

#include <glob.h>

static const char *const families[] = {
    "gpt2",       "llama",   "mistral",  "qwen2",       "qwen3",
    "phi3",       "olmo2",   "gemma2",   "gemma",       "gemma3_text",
    "arcee",      "granite", "smollm3",  "olmo3",       "stablelm",
    "starcoder2", "phi",     "gpt_neox", "mixtral",     "qwen2_moe",
    "qwen3_moe",  "olmoe",   "glm4_moe", "deepseek_v3", "deepseek_v2",
    "gpt_oss",    "bert",    "t5"};

enum { N_FAMILIES = sizeof(families) / sizeof(families[0]) };

static void shell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void shell(const char *fmt, ...)
{
    char command[2048];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(command, sizeof(command), fmt, ap);
    va_end(ap);
    if (system(command) != 0)
        fail_msg("%s", command);
}

/* The folder of a family, made of tests/vectors/weights/FAMILY.*. */
static const char *folder_of(const char *family)
{
    const char *dir = scratch_path(family);

    if (access(dir, F_OK) != 0)
        shell("mkdir %s; cd %s/vectors/weights && for f in %s.*; do "
              "cp $f %s/${f#*.}; done; rm -f %s/loss",
              dir, TEST_SRCDIR, family, dir, dir);
    return dir;
}

static void bring_in(const char *dir, const char *run)
{
    const struct merak_import import = {.dir = dir, .run = run};
    struct merak_transfer_summary summary;
    char note[MERAK_HF_NOTE_BYTES];
    struct merak_error err;

    if (merak_weights_import(&import, note, &summary, &err) != MERAK_OK)
        fail_msg("%s", err.text);
}

static struct merak_transfer_summary send_out(struct merak_export export)
{
    struct merak_transfer_summary summary;
    struct merak_error err;

    if (merak_weights_export(&export, &summary, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return summary;
}

/* --- there and back ----------------------------------------------------------
 */

static void every_family_goes_in_and_out_to_the_byte(void **state)
{
    (void)state;
    for (int i = 0; i < N_FAMILIES; i++) {
        const char *dir = folder_of(families[i]);
        struct merak_transfer_summary summary;

        bring_in(dir, scratch_path("run"));
        summary = send_out((struct merak_export){.ckpt = scratch_path("run"),
                                                 .out = scratch_path("out")});
        assert_string_equal(summary.family, families[i]);
        shell("cd %s && diff -r %s out && rm -r run out", scratch_dir,
              families[i]);
    }
}

/* The folder of a family with its experts stacked. */
static const char *stacked_folder_of(const char *family)
{
    const char *dir = folder_of(family), *stacked = scratch_path("stacked");

    shell("mkdir %s; cp %s/*config.json %s && cp "
          "%s/vectors/weights/stacked-%s.model.safetensors "
          "%s/model.safetensors",
          stacked, dir, stacked, TEST_SRCDIR, family, stacked);
    return stacked;
}

/* They are exported one by one, as if they had been imported so; those in MXFP4
 * as transformers saves them in bf16; norms of BERT under their newer names. */
static void stacked_experts_are_taken_apart(void **state)
{
    static const char *const mixtures[] = {
        "mixtral",  "qwen2_moe",   "qwen3_moe",  "olmoe",
        "glm4_moe", "deepseek_v3", "deepseek_v2", "bert"};
    const struct merak_export apart = {.ckpt = scratch_path("run"),
                                       .out = scratch_path("want"),
                                       .shard_bytes = 1000000};
    const struct merak_export stack = {.ckpt = scratch_path("run2"),
                                       .out = scratch_path("out")};

    (void)state;
    for (size_t i = 0; i < sizeof(mixtures) / sizeof(mixtures[0]); i++) {
        bring_in(folder_of(mixtures[i]), apart.ckpt);
        send_out(apart);
        bring_in(stacked_folder_of(mixtures[i]), stack.ckpt);
        send_out(stack);
        shell("cd %s && diff -r want out && rm -r run run2 want out stacked",
              scratch_dir);
    }
    bring_in(folder_of("mxfp4"), stack.ckpt);
    send_out(stack);
    shell("cd %s && cmp out/model.safetensors %s/vectors/weights/unpacked-mxfp4"
          ".model.safetensors && ! grep quantiz out/*.json && rm -r run2 out",
          scratch_dir, TEST_SRCDIR);
}

/* Cut otherwise, the tensors are the same; and cut again as they were, the
 * files are. */
static void files_of_another_size_hold_the_same_tensors(void **state)
{
    const char *dir = folder_of("gpt2");
    struct merak_transfer_summary summary;

    (void)state;
    bring_in(dir, scratch_path("run"));
    summary = send_out((struct merak_export){.ckpt = scratch_path("run"),
                                             .out = scratch_path("small"),
                                             .shard_bytes = 10000});
    assert_true(summary.files > 2);
    shell("test -e %s/small/model-00002-of-%05d.safetensors", scratch_dir,
          summary.files);
    bring_in(scratch_path("small"), scratch_path("again"));
    summary = send_out((struct merak_export){.ckpt = scratch_path("again"),
                                             .out = scratch_path("one"),
                                             .shard_bytes = 1000000});
    assert_int_equal(summary.files, 1);
    shell("cd %s && diff -r gpt2 one && rm -r run small again one",
          scratch_dir);
}

/* Wider numbers hold narrower ones: there and back nothing is lost. */
static void wider_types_lose_nothing(void **state)
{
    static const struct {
        const char *family, *says;
        enum merak_safetensors_type type;
    } rows[] = {
        {"llama", "\"bfloat16\"", MERAK_SAFETENSORS_BF16},
        {"mistral", "\"float16\"", MERAK_SAFETENSORS_F16},
    };

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        bring_in(folder_of(rows[i].family), scratch_path("run"));
        send_out((struct merak_export){.ckpt = scratch_path("run"),
                                       .out = scratch_path("wide"),
                                       .typed = true,
                                       .type = MERAK_SAFETENSORS_F32});
        shell("grep -q '\"float32\"' %s/wide/config.json", scratch_dir);
        bring_in(scratch_path("wide"), scratch_path("again"));
        send_out((struct merak_export){.ckpt = scratch_path("again"),
                                       .out = scratch_path("narrow"),
                                       .typed = true,
                                       .type = rows[i].type});
        shell("cd %s && grep -q '%s' narrow/config.json && for f in %s/*.*s; "
              "do cmp $f narrow/${f#*/}; done && rm -r run wide again narrow",
              scratch_dir, rows[i].says, rows[i].family);
    }
}

/* llm.c's file, by its own description. */
static void llmc_files_are_as_it_reads_them(void **state)
{
    struct merak_transfer_summary summary;
    struct merak_ckpt *ckpt;
    struct merak_shape shape = {2, {257, 16}};
    const struct merak_named wte = {"wte.weight", shape};
    const struct merak_named fc = {"h.1.mlp.c_fc.bias", {1, {64}}};
    static const int32_t want[8] = {20240326, 3, 64, 257, 2, 4, 16, 384};
    unsigned char *file;
    float table[257 * 16];
    size_t n, at = 1024;

    (void)state;
    bring_in(folder_of("gpt2"), scratch_path("run"));
    summary = send_out((struct merak_export){.ckpt = scratch_path("run"),
                                             .out = scratch_path("llmc"),
                                             .format = MERAK_EXPORT_LLMC});
    assert_int_equal(summary.tensors, 16);
    file = read_whole(scratch_path("llmc/model.bin"), &n);
    /* 384 C + 64 C + L (12 C^2 + 13 C) + 2 C */
    assert_int_equal(
        n, 1024 + 4 * (384 * 16 + 64 * 16 + 2 * (12 * 256 + 13 * 16) + 2 * 16));
    assert_memory_equal(file, want, sizeof(want));
    for (size_t i = sizeof(want); i < 1024; i++)
        assert_int_equal(file[i], 0);
    assert_int_equal(merak_ckpt_open(scratch_path("run"), &ckpt, NULL),
                     MERAK_OK);
    assert_int_equal(merak_ckpt_read_param(ckpt, &wte, table, NULL), MERAK_OK);
    assert_memory_equal(file + at, table, sizeof(table));
    at += sizeof(table);
    for (size_t i = 0; i < 127 * 16 * 4; i++)
        assert_int_equal(file[at + i], 0);
    /* wpe; ln1 2 L C; qkv; proj; ln2; fc; the first layer's bias */
    at = 1024 + 4 * (384 * 16 + 64 * 16 + 2 * 2 * 16 + 2 * (768 + 48) +
                     2 * (256 + 16) + 2 * 2 * 16 + 2 * 1024 + 64);
    assert_int_equal(merak_ckpt_read_param(ckpt, &fc, table, NULL), MERAK_OK);
    assert_memory_equal(file + at, table, 64 * 4);
    free(file);
    merak_ckpt_close(ckpt);
    send_out((struct merak_export){.ckpt = scratch_path("run"),
                                   .out = scratch_path("half"),
                                   .format = MERAK_EXPORT_LLMC,
                                   .typed = true,
                                   .type = MERAK_SAFETENSORS_BF16});
    file = read_whole(scratch_path("half/model.bin"), &n);
    assert_int_equal(file[4], 5);
    assert_int_equal(
        n, 1024 + 2 * (384 * 16 + 64 * 16 + 2 * (12 * 256 + 13 * 16) + 2 * 16));
    free(file);
    shell("cd %s && rm -r run llmc half", scratch_dir);
}

/* --- parts
 * -------------------------------------------------------------------- */

struct dice {
    uint64_t key, at;
};

static size_t roll(struct dice *d, size_t n)
{
    return (size_t)(merak_rng_mix(d->key, d->at++) % n);
}

/* A box of the tensor, and a range of its elements. */
static struct merak_ckpt_piece
some_piece(struct dice *d, const struct merak_named *param, float *data)
{
    struct merak_ckpt_piece piece =
        merak_whole_piece("param/any", &param->shape, data);

    for (int k = 0; k < piece.box.ndim; k++) {
        piece.box.lo[k] = roll(d, param->shape.dim[k]);
        piece.box.len[k] = 1 + roll(d, param->shape.dim[k] - piece.box.lo[k]);
    }
    piece.flat_hi = 1 + roll(d, merak_box_count(&piece.box));
    piece.flat_lo = roll(d, piece.flat_hi);
    return piece;
}

/* Element i of a box, of the whole tensor's data. */
static float element(const struct merak_box *box, size_t i, const float *whole)
{
    size_t at = 0, step = merak_box_count(box);

    for (int d = 0; d < box->ndim; d++) {
        step /= box->len[d];
        at = at * box->full[d] + box->lo[d] + i / step;
        i %= step;
    }
    return whole[at];
}

static void a_part_of_a_parameter_is_read_as_in_the_whole(void **state)
{
    static float whole[1 << 16], part[1 << 16];

    (void)state;
    for (int f = 0; f < N_FAMILIES; f++) {
        const char *dir = folder_of(families[f]);
        struct dice d = {merak_rng_key(5, families[f]), 0};
        struct merak_hf_config config;
        struct merak_hf_params params;
        struct merak_hf_weights *w;
        struct merak_error err;

        assert_int_equal(merak_hf_config_load(dir, &config, NULL), MERAK_OK);
        assert_int_equal(merak_hf_params_init(&params, &config, NULL, NULL),
                         MERAK_OK);
        if (merak_hf_weights_open(dir, params.param, params.n, &w, &err) !=
            MERAK_OK)
            fail_msg("%s", err.text);
        for (int i = 0; i < params.n; i++) {
            const struct merak_named *param = &params.param[i];
            struct merak_ckpt_piece piece =
                merak_whole_piece("param/any", &param->shape, whole);

            assert_int_equal(
                merak_hf_weights_read(w, param->name, &piece, NULL), MERAK_OK);
            for (int k = 0; k < 20; k++) {
                piece = some_piece(&d, param, part);
                if (merak_hf_weights_read(w, param->name, &piece, &err) !=
                    MERAK_OK)
                    fail_msg("%s", err.text);
                for (size_t e = piece.flat_lo; e < piece.flat_hi; e++)
                    assert_true(part[e - piece.flat_lo] ==
                                element(&piece.box, e, whole));
            }
        }
        merak_hf_weights_close(w);
        merak_hf_params_fini(&params);
    }
}

/* --- files of any size ------------------------------------------------------
 */

static float random_number(void *arg, const char *name, int ndim, size_t i)
{
    (void)name;
    (void)ndim;
    (void)i;
    return (float)roll(arg, 1 << 20);
}

/* A family's folder whose matrices have multiples of 4096 elements, as those
 * of published models, and random numbers. */
static const char *wide_folder(const char *family)
{
    struct dice d = {merak_rng_key(6, family), 0};
    const char *dir = scratch_path("wide");
    char path[PATH_MAX];
    json_t *config = json_load_file(
        merak_path(path, folder_of(family), "config.json"), 0, NULL);
    json_t *wide = json_pack("{s:i, s:i, s:i}", "n_embd", 64, "hidden_size", 64,
                             "intermediate_size", 128);

    assert_int_equal(json_object_update_existing(config, wide), 0);
    hf_folder_make(dir, config, random_number, &d);
    json_decref(config);
    json_decref(wide);
    return dir;
}

/* The tensors of two folders are equal, whatever the files, and no file has
 * more bytes of them than `most`, except for a single tensor. */
static void assert_same_tensors(const char *a, const char *b, uint64_t most)
{
    static float x[1 << 16], y[1 << 16];
    struct merak_safetensors *s, *t;
    uint64_t bytes[64] = {0};
    int count[64] = {0};

    assert_int_equal(merak_safetensors_open(a, &s, NULL), MERAK_OK);
    assert_int_equal(merak_safetensors_open(b, &t, NULL), MERAK_OK);
    assert_int_equal(s->n, t->n);
    for (int i = 0; i < s->n; i++) {
        struct merak_safetensor *p = &s->tensor[i], *q = t->tensor;

        while (q < t->tensor + t->n &&
               strcmp(q->name + strlen(q->name) - strlen(p->name), p->name))
            q++;
        assert_true(q < t->tensor + t->n && p->count == q->count);
        assert_in_range(p->count, 1, 1 << 16);
        assert_int_equal(merak_safetensors_read(s, p, 0, p->count, x, NULL),
                         MERAK_OK);
        assert_int_equal(merak_safetensors_read(t, q, 0, q->count, y, NULL),
                         MERAK_OK);
        assert_memory_equal(x, y, p->count * sizeof(*x));
        bytes[q->file] += q->bytes;
        count[q->file]++;
    }
    for (int i = 0; i < t->n_files; i++)
        assert_true(bytes[i] <= most || count[i] == 1);
    merak_safetensors_close(s);
    merak_safetensors_close(t);
}

/* Each tensor is the last of a file for some size; and folders of many files
 * come back with the same files. */
static void any_size_of_files_holds_any_family(void **state)
{
    (void)state;
    for (int f = 0; f < N_FAMILIES; f++) {
        const char *dir = wide_folder(families[f]);
        struct dice d = {merak_rng_key(7, families[f]), 0};
        uint64_t all;

        bring_in(dir, scratch_path("run"));
        all = send_out((struct merak_export){.ckpt = scratch_path("run"),
                                             .out = scratch_path("out")})
                  .bytes;
        shell("cd %s && cmp wide/model.safetensors out/model.safetensors && "
              "rm -r out",
              scratch_dir);
        for (int k = 0; k < 4; k++) {
            uint64_t most = k == 0 ? 1 : 1 + roll(&d, all);

            send_out((struct merak_export){.ckpt = scratch_path("run"),
                                           .out = scratch_path("cut"),
                                           .shard_bytes = most});
            assert_same_tensors(dir, scratch_path("cut"), most);
            if (k == 1) {
                bring_in(scratch_path("cut"), scratch_path("run2"));
                send_out((struct merak_export){.ckpt = scratch_path("run2"),
                                               .out = scratch_path("same")});
                shell("cd %s && diff -r cut same && rm -r run2 same",
                      scratch_dir);
            }
            shell("rm -r %s/cut", scratch_dir);
        }
        shell("cd %s && rm -r run wide", scratch_dir);
    }
}

/* --- what does not fit
 * ---------------------------------------------------------- */

/* A change of the header that leaves its length, and what is said then. */
static const struct {
    const char *family, *file, *from, *to, *says;
} changes[] = {
    {"gpt2", "model.safetensors", "transformer.h.1.ln_1.bias",
     "transformer.h.1.ln_l.bias",
     "has no tensor h.1.ln_1.bias, the nearest name is h.1.ln_l.bias"},
    {"qwen2", "model.safetensors", "[16,16]", "[2,128]",
     "is [2, 128], expected [16, 16] (and 3 more)"},
    {"phi3", "model.safetensors", "[32,16]", "[16,32]",
     "qkv_proj.weight is [16, 32], expected [32, 16] (and 1 more)"},
    {"olmo2", "config.json", "\"tie_word_embeddings\": false",
     "\"tie_word_embeddings\": true", "lm_head.weight differs from"},
    {"qwen3", "config.json", "\"tie_word_embeddings\": true",
     "\"tie_word_embeddings\": false", "has no tensor lm_head.weight"},
    {"llama", "config.json", "\"num_hidden_layers\": 2",
     "\"num_hidden_layers\": 1", "the model has no tensor model.layers.1."},
    {"llama", "config.json", "\"num_hidden_layers\": 2",
     "\"num_hidden_layers\": 3",
     "has no tensor model.layers.2.input_layernorm.weight, the nearest name "
     "is model.layers.0.input_layernorm.weight (and 8 more)"},
    {"llama", "config.json", "\"attention_bias\": false",
     "\"attention_bias\": true",
     "has no tensor model.layers.0.self_attn.k_proj.bias"},
};

static void change_file(const char *path, const char *from, const char *to)
{
    size_t n, length = strlen(from);
    unsigned char *data = read_whole(path, &n);
    FILE *f = fopen(path, "wb");
    int found = 0;

    for (size_t i = 0; i < n;) {
        if (i + length <= n && memcmp(data + i, from, length) == 0) {
            fputs(to, f);
            i += length;
            found++;
        } else {
            fputc(data[i++], f);
        }
    }
    assert_int_equal(fclose(f), 0);
    free(data);
    if (found == 0)
        fail_msg("%s has no %s", path, from);
}

static void weights_of_another_model_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        char path[1024];
        struct merak_import import = {.dir = scratch_path("changed"),
                                      .run = scratch_path("run")};
        struct merak_transfer_summary summary;
        char note[MERAK_HF_NOTE_BYTES];
        struct merak_error err = {.text = ""};

        shell("cp -r %s %s/changed", folder_of(changes[i].family), scratch_dir);
        snprintf(path, sizeof(path), "%s/changed/%s", scratch_dir,
                 changes[i].file);
        change_file(path, changes[i].from, changes[i].to);
        if (merak_weights_import(&import, note, &summary, &err) !=
            MERAK_ERR_MISMATCH)
            fail_msg("row %zu: \"%s\"", i, err.text);
        if (strstr(err.text, changes[i].says) == NULL)
            fail_msg("row %zu: \"%s\", expected \"%s\"", i, err.text,
                     changes[i].says);
        assert_int_not_equal(access(import.run, F_OK), 0);
        shell("rm -r %s/changed", scratch_dir);
    }
}

static float one_nan(void *arg, const char *name, int ndim, size_t i)
{
    (void)arg;
    (void)ndim;
    if (i != 3)
        return 0.5f;
    return strcmp(name, "model.layers.1.input_layernorm.weight") == 0 ? NAN
           : strcmp(name, "model.norm.weight") == 0 ? -INFINITY
                                                    : 0.5f;
}

/* Such weights are brought in as they are, and named. */
static void numbers_that_are_none_are_named(void **state)
{
    json_t *config = json_load_file(
        merak_path((char[PATH_MAX]){""}, folder_of("llama"), "config.json"), 0,
        NULL);
    struct merak_import import = {.dir = scratch_path("nan"),
                                  .run = scratch_path("run")};
    struct merak_transfer_summary summary;
    char note[MERAK_HF_NOTE_BYTES];

    (void)state;
    hf_folder_make(import.dir, config, one_nan, NULL);
    json_decref(config);
    assert_int_equal(merak_weights_import(&import, note, &summary, NULL),
                     MERAK_OK);
    assert_int_equal(summary.not_finite, 2);
    assert_string_equal(summary.first_not_finite,
                        "model.layers.1.input_layernorm.weight");
    shell("rm -r %s/run %s/nan", scratch_dir, scratch_dir);
}

/* Stopped, neither of them leaves anything that looks whole. */
static enum merak_status stop_it(void *arg, uint64_t done, uint64_t all,
                                 struct merak_error *err)
{
    int *left = arg;

    assert_true(done <= all);
    err->text[0] = '\0';
    return --*left < 0 ? MERAK_ERR_SYSTEM : MERAK_OK;
}

static void what_is_stopped_leaves_nothing(void **state)
{
    struct merak_transfer_summary summary;
    char note[MERAK_HF_NOTE_BYTES];
    struct merak_error err;
    int left = 5;
    struct merak_import import = {.dir = folder_of("llama"),
                                  .run = scratch_path("run"),
                                  .progress = stop_it,
                                  .arg = &left};
    struct merak_export export = {.ckpt = scratch_path("run"),
                                  .out = scratch_path("out"),
                                  .progress = stop_it,
                                  .arg = &left};

    (void)state;
    assert_int_equal(merak_weights_import(&import, note, &summary, &err),
                     MERAK_ERR_SYSTEM);
    assert_int_not_equal(access(import.run, F_OK), 0);
    left = 1000;
    assert_int_equal(merak_weights_import(&import, note, &summary, &err),
                     MERAK_OK);
    left = 12;
    assert_int_equal(merak_weights_export(&export, &summary, &err),
                     MERAK_ERR_SYSTEM);
    assert_int_not_equal(access(scratch_path("out"), F_OK), 0);
    /* and what is there is nobody's to write over */
    assert_int_equal(merak_weights_import(&import, note, &summary, &err),
                     MERAK_ERR_CONFIG);
    assert_non_null(strstr(err.text, "already has checkpoints"));
    export.out = scratch_path("llama");
    assert_int_equal(merak_weights_export(&export, &summary, &err),
                     MERAK_ERR_CONFIG);
    assert_non_null(strstr(err.text, "is not empty"));
    shell("rm -r %s/run", scratch_dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_goes_in_and_out_to_the_byte),
        cmocka_unit_test(stacked_experts_are_taken_apart),
        cmocka_unit_test(files_of_another_size_hold_the_same_tensors),
        cmocka_unit_test(wider_types_lose_nothing),
        cmocka_unit_test(llmc_files_are_as_it_reads_them),
        cmocka_unit_test(a_part_of_a_parameter_is_read_as_in_the_whole),
        cmocka_unit_test(any_size_of_files_holds_any_family),
        cmocka_unit_test(weights_of_another_model_are_named),
        cmocka_unit_test(numbers_that_are_none_are_named),
        cmocka_unit_test(what_is_stopped_leaves_nothing),
    };

    return cmocka_run_group_tests_name("weights", tests, scratch_make,
                                       scratch_remove);
}
