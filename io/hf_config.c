/* SPDX-License-Identifier: Apache-2.0 */
/* hf_config.c - reading Hugging Face config.json files
 *
 * Fields that determine what is computed are read or refused by name
 * (hf_family.c).  What else transformers' code reads, and what its version 4
 * wrote into any file, changes no number that is trained and is in lists.  Any
 * other field is read by nobody: files have many of those, from the tools that
 * a model went through, and they are named in a note.
 * tests/vectors/hf/make_fields.py lists what transformers reads.
 */
#include "config.h"

#include "io/hf_config.h"

#include "base/error.h"
#include "base/hub.h"
#include "io/file.h"
#include "io/hf_family.h"
#include "io/hf_reader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_BYTES ((size_t)1024 * 1024) /* real ones have a few KiB */

/* --- fields that change no numbers ---------------------------------------- */

/*
 * Fields that transformers reads for uses of a model other than training, or
 * that its version 4 wrote into any file: token ids, generation, classes and
 * labels, returned outputs, dtypes and devices, how something is computed but
 * not what.
 */
static const char *const common_known[] = {"architectures",
                                           "assistant_confidence_threshold",
                                           "assistant_lookbehind",
                                           "attn_implementation",
                                           "bad_words_ids",
                                           "begin_suppress_tokens",
                                           "bos_token_id",
                                           "cache_implementation",
                                           "chunk_size_feed_forward",
                                           "classifier_dropout",
                                           "cross_attention_hidden_size",
                                           "decoder_start_token_id",
                                           "diversity_penalty",
                                           "do_sample",
                                           "dtype",
                                           "early_stopping",
                                           "encoder_no_repeat_ngram_size",
                                           "encoder_repetition_penalty",
                                           "eos_token_id",
                                           "epsilon_cutoff",
                                           "eta_cutoff",
                                           "experts_implementation",
                                           "exponential_decay_length_penalty",
                                           "finetuning_task",
                                           "forced_bos_token_id",
                                           "forced_eos_token_id",
                                           "gradient_checkpointing",
                                           "hidden_dropout",
                                           "id2label",
                                           "is_decoder",
                                           "label2id",
                                           "length_penalty",
                                           "max_length",
                                           "min_length",
                                           "name_or_path",
                                           "no_repeat_ngram_size",
                                           "num_assistant_tokens",
                                           "num_assistant_tokens_schedule",
                                           "num_beam_groups",
                                           "num_beams",
                                           "num_labels",
                                           "num_return_sequences",
                                           "output_attentions",
                                           "output_hidden_states",
                                           "output_past",
                                           "output_scores",
                                           "prefix",
                                           "problem_type",
                                           "remove_invalid_values",
                                           "repetition_penalty",
                                           "return_dict",
                                           "return_dict_in_generate",
                                           "sep_token_id",
                                           "suppress_tokens",
                                           "target_lookbehind",
                                           "task_specific_params",
                                           "temperature",
                                           "tf_legacy_loss",
                                           "tie_encoder_decoder",
                                           "token_classification_bias",
                                           "tokenizer_class",
                                           "top_k",
                                           "top_p",
                                           "torch_dtype",
                                           "torchscript",
                                           "transformers_version",
                                           "typical_p",
                                           "use_bfloat16",
                                           "use_cache",
                                           NULL};

/* --- the model
 * ------------------------------------------------------------------------ */

/* The method of quantization that weights of files may have, or NULL; numbers
 * are those of a model that is computed without. */
static const char *quantized(struct merak_hf_reader *r,
                             const struct merak_hf_family *f)
{
    const json_t *of = merak_hf_field(r, "quantization_config");
    const char *method =
        json_string_value(json_object_get(of, "quant_method"));

    if (method != NULL && (strcmp(method, "fp8") == 0 ||
                           (f->packs && strcmp(method, "mxfp4") == 0)))
        return method;
    return NULL;
}

/* Append to the note. */
static void add_note(struct merak_hf_config *c, const char *text)
{
    size_t n = strlen(c->note);

    snprintf(c->note + n, sizeof(c->note) - n, "%s%s", n > 0 ? "; " : "", text);
}

/* Fields that any file may set, for features not supported here. */
static void read_common(struct merak_hf_reader *r,
                        const struct merak_hf_family *f)
{
    const json_t *pruned = merak_hf_field(r, "pruned_heads");

    if (quantized(r, f) == NULL)
        merak_hf_require_absent(r, "quantization_config");
    merak_hf_require_absent(r, "per_layer_config");
    merak_hf_require_absent(r, "transformers_weights");
    if (f->reads != MERAK_HF_BOTH_WAYS)
        merak_hf_require_bool(r, "is_causal", true);
    merak_hf_require_bool(r, "is_encoder_decoder",
                          f->reads == MERAK_HF_ANOTHER_TEXT);
    merak_hf_require_bool(r, "add_cross_attention", false);
    if (json_object_size(pruned) > 0)
        merak_hf_refuse(r, "pruned_heads", "{}");
}

/* Code beside the file that computes something else than the family.  That of
 * the family's own class is what transformers took over. */
static void check_code(struct merak_hf_reader *r,
                       const struct merak_hf_family *f)
{
    static const char *const what[] = {"AutoConfig", "AutoModel",
                                       "AutoModelForCausalLM"};
    const json_t *map = merak_hf_field(r, "auto_map");

    for (size_t i = 0; i < sizeof(what) / sizeof(what[0]); i++) {
        const char *code = json_string_value(json_object_get(map, what[i]));
        const char *name = code != NULL ? strrchr(code, '.') : NULL;
        char own[64];

        snprintf(own, sizeof(own), "%s%s", f->class, what[i] + strlen("Auto"));
        if (code == NULL || r->rc != MERAK_OK ||
            (name != NULL &&
             (strcmp(name + 1, own) == 0 || strcmp(name + 1, f->model) == 0)))
            continue;
        r->rc = merak_fail(r->err, MERAK_ERR_CONFIG,
                           "field auto_map has the model computed by code of "
                           "its own, %.80s, which Merak does not run; if it "
                           "computes what transformers' %s does, remove the "
                           "field",
                           code, own);
    }
}

static const struct merak_hf_family *find_family(struct merak_hf_reader *r)
{
    const struct merak_hf_family *f;
    const char *type;
    char names[160];

    merak_hf_family_list(names, sizeof(names));
    r->family = names;
    if (merak_hf_field(r, "model_type") == NULL)
        merak_hf_missing(r, "model_type");
    type = merak_hf_word(r, "model_type", "");
    f = merak_hf_family_find(type);
    if (f == NULL)
        merak_hf_refuse(r, "model_type", names);
    else
        r->family = f->type;
    return f;
}

static void check_unread(struct merak_hf_reader *r,
                         const struct merak_hf_family *f,
                         enum merak_hf_unknown unknown,
                         struct merak_hf_config *c)
{
    const struct merak_hf_names *names = &r->unread;
    char more[32] = "";

    merak_hf_list_unread(r, common_known, f->known, "", &r->unread);
    if (r->rc != MERAK_OK || names->n == 0)
        return;
    if (names->left_out > 0)
        snprintf(more, sizeof(more), " and %d more", names->left_out);
    if (unknown == MERAK_HF_UNKNOWN_REFUSE)
        r->rc = merak_fail(r->err, MERAK_ERR_CONFIG,
                           "not read for %s by transformers: %s%s; "
                           "--config-unknown ignore leaves %s out",
                           f->type, names->text, more,
                           names->n == 1 ? "it" : "them");
    else
        snprintf(c->note, sizeof(c->note),
                 "fields that transformers does not read for %s are ignored: "
                 "%s%s",
                 f->type, names->text, more);
}

static void read_root(struct merak_hf_reader *r, enum merak_hf_unknown unknown,
                      struct merak_hf_config *c)
{
    const struct merak_hf_family *f = find_family(r);

    if (r->rc != MERAK_OK)
        return;
    c->family = f->family;
    read_common(r, f);
    check_code(r, f);
    merak_hf_family_read(r, f, c);
    merak_hf_family_check(r, f, c);
    check_unread(r, f, unknown, c);
    if (quantized(r, f) != NULL) {
        char text[80];

        c->mixture.may_pack = strcmp(quantized(r, f), "mxfp4") == 0;
        snprintf(text, sizeof(text),
                 "quantization_config: computed without %s", quantized(r, f));
        add_note(c, text);
    }
    if (c->mixture.aux > 0 && c->note[0] == '\0')
        snprintf(c->note, sizeof(c->note),
                 "router_aux_loss_coef %g: the mean over layers and sequences "
                 "of their own losses, where transformers pools layers and "
                 "sequences before one product",
                 (double)c->mixture.aux);
}

/* --- the file
 * ------------------------------------------------------------------------ */

enum merak_status merak_hf_path(const char *path, const char *name, char *out,
                                size_t bytes, struct merak_error *err)
{
    struct stat st;
    char room[PATH_MAX];
    const char *at = merak_hub_path(path, room);
    bool folder = stat(at, &st) == 0 && S_ISDIR(st.st_mode);
    size_t n = strlen(at);
    const char *slash = n > 0 && at[n - 1] == '/' ? "" : "/";
    int len = snprintf(out, bytes, "%s%s%s", at, folder ? slash : "",
                       folder ? name : "");

    if (len < 0 || (size_t)len >= bytes)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "the path %.60s.. has more than %zu bytes", path,
                          bytes - 1);
    return MERAK_OK;
}

static enum merak_status read_file(const char *path, char *text, size_t *n_p,
                                   struct merak_error *err)
{
    uint64_t bytes = 0;
    int fd = -1;
    enum merak_status rc = merak_file_open(path, &fd, &bytes, err);

    if (rc != MERAK_OK)
        return rc;
    if (bytes >= MAX_BYTES)
        rc = merak_fail(err, MERAK_ERR_CONFIG,
                        "more than %zu bytes; a config.json has a few thousand",
                        MAX_BYTES - 1);
    else
        rc = merak_file_read(fd, path, text, (size_t)bytes, 0, err);
    close(fd);
    *n_p = (size_t)bytes;
    return rc;
}

static enum merak_status parse(const char *text, size_t n,
                               enum merak_hf_unknown unknown,
                               struct merak_hf_config *config,
                               struct merak_error *err)
{
    json_error_t why;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    struct merak_hf_reader r = {.root = root, .rc = MERAK_OK, .err = err};
    struct merak_hf_config c = {0};

    if (root == NULL)
        return merak_fail(err, MERAK_ERR_CONFIG, "not valid JSON: line %d: %s",
                          why.line, why.text);
    if (json_is_object(root))
        read_root(&r, unknown, &c);
    else
        r.rc = merak_fail(err, MERAK_ERR_CONFIG, "expected a JSON object");
    json_decref(root);
    if (r.rc == MERAK_OK)
        *config = c;
    return r.rc;
}

enum merak_status merak_hf_config_read(const char *path,
                                       enum merak_hf_unknown unknown,
                                       struct merak_hf_config *config,
                                       struct merak_error *err)
{
    char *text = malloc(MAX_BYTES), file[PATH_MAX], room[PATH_MAX];
    enum merak_status rc;
    size_t n = 0;

    if (text == NULL)
        return merak_fail_nomem(err, MAX_BYTES);
    if (access(merak_hub_path(path, room), F_OK) != 0 && errno == ENOENT) {
        free(text);
        return merak_fail_no_path(err, "model", path,
                                  "a folder with a config.json, or that file");
    }
    rc = merak_hf_path(path, "config.json", file, sizeof(file), err);
    if (rc == MERAK_OK)
        rc = read_file(file, text, &n, err);
    if (rc == MERAK_OK)
        rc = parse(text, n, unknown, config, err);
    if (rc != MERAK_OK)
        merak_error_wrap(err, "model %.100s", path);
    free(text);
    return rc;
}

enum merak_status merak_hf_config_load(const char *path,
                                       struct merak_hf_config *config,
                                       struct merak_error *err)
{
    return merak_hf_config_read(path, MERAK_HF_UNKNOWN_IGNORE, config, err);
}
