/* SPDX-License-Identifier: Apache-2.0 */
/* hf_config.c - reading Hugging Face config.json files
 *
 * Fields that say what is computed are read or refused by name; what does
 * not change the mathematics (token ids, dtypes, library versions) is passed
 * over.
 */
#include "config.h"

#include "io/hf_config.h"

#include "base/error.h"
#include "base/log.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES ((size_t)1024 * 1024) /* real ones have a few KiB */

/* Reads fields until the first that is wrong; then every call is a no-op. */
struct reader {
    const json_t *root;
    const char *family; /* for messages */
    enum merak_status rc;
    struct merak_error *err;
};

/* A field, or NULL where it is absent or null, which mean the same. */
static const json_t *find(const struct reader *r, const char *name)
{
    const json_t *value = json_object_get(r->root, name);

    return json_is_null(value) ? NULL : value;
}

static void fail_type(struct reader *r, const char *name, const json_t *value,
                      const char *want)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);

    r->rc =
        merak_fail(r->err, MERAK_ERR_CONFIG, "field %s is %.60s, expected %s",
                   name, text == NULL ? "?" : text, want);
    free(text);
}

static void fail_missing(struct reader *r, const char *name)
{
    r->rc = merak_fail(r->err, MERAK_ERR_CONFIG,
                       "field %s is missing; the %s family needs it", name,
                       r->family);
}

/* A count of 1 to 2^31 - 1; or_else 0: the field is required. */
static size_t read_size(struct reader *r, const char *name, size_t or_else)
{
    const json_t *value = find(r, name);
    json_int_t n = json_integer_value(value);

    if (r->rc != MERAK_OK)
        return or_else;
    if (value == NULL) {
        if (or_else == 0)
            fail_missing(r, name);
        return or_else;
    }
    if (json_is_integer(value) && n >= 1 && n <= INT32_MAX)
        return (size_t)n;
    fail_type(r, name, value, "a whole number from 1 to 2147483647");
    return or_else;
}

static double read_real(struct reader *r, const char *name, double or_else)
{
    const json_t *value = find(r, name);

    if (r->rc != MERAK_OK || value == NULL)
        return or_else;
    if (json_is_number(value))
        return json_number_value(value);
    fail_type(r, name, value, "a number");
    return or_else;
}

static float read_positive(struct reader *r, const char *name, double or_else)
{
    float x = (float)read_real(r, name, or_else);

    if (r->rc == MERAK_OK && !(x > 0 && isfinite(x)))
        fail_type(r, name, find(r, name), "a number above 0");
    return x;
}

static float read_dropout(struct reader *r, const char *name, double or_else)
{
    float p = (float)read_real(r, name, or_else);

    if (r->rc == MERAK_OK && !(p >= 0 && p < 1))
        fail_type(r, name, find(r, name), "a probability, 0 <= p < 1");
    return p;
}

static bool read_bool(struct reader *r, const char *name, bool or_else)
{
    const json_t *value = find(r, name);

    if (r->rc != MERAK_OK || value == NULL)
        return or_else;
    if (json_is_boolean(value))
        return json_is_true(value);
    fail_type(r, name, value, "true or false");
    return or_else;
}

static const char *read_word(struct reader *r, const char *name,
                             const char *or_else)
{
    const json_t *value = find(r, name);

    if (r->rc != MERAK_OK || value == NULL)
        return or_else;
    if (json_is_string(value))
        return json_string_value(value);
    fail_type(r, name, value, "a string");
    return or_else;
}

/* --- mathematics that is not there
 * -------------------------------------------- */

static void refuse(struct reader *r, const char *name, const char *want)
{
    char *text;

    if (r->rc != MERAK_OK)
        return;
    text = json_dumps(find(r, name), JSON_ENCODE_ANY | JSON_COMPACT);
    r->rc = merak_fail(r->err, MERAK_ERR_CONFIG,
                       "field %s is %.80s, which is not supported; expected %s",
                       name, text == NULL ? "?" : text, want);
    free(text);
}

static void require_bool(struct reader *r, const char *name, bool want)
{
    if (read_bool(r, name, want) != want)
        refuse(r, name, want ? "true" : "false");
}

static void require_absent(struct reader *r, const char *name)
{
    if (find(r, name) != NULL)
        refuse(r, name, "null");
}

/*
 * Attention probabilities are never stored, so nothing can be dropped from
 * them.  A file that asks for it is refused; where it is silent the value is
 * 0, also for gpt2, where transformers would take 0.1: that is said once.
 */
static void require_no_attention_dropout(struct reader *r, const char *name)
{
    if (read_dropout(r, name, 0) != 0)
        refuse(r, name, "0 (no dropout of attention probabilities)");
}

/* --- the families
 * ----------------------------------------------------------------- */

static bool gpt2_activation(struct reader *r)
{
    const char *name = read_word(r, "activation_function", "gelu_new");

    if (strcmp(name, "gelu") == 0)
        return false;
    if (strcmp(name, "gelu_new") != 0 && strcmp(name, "gelu_pytorch_tanh") != 0)
        refuse(r, "activation_function", "gelu_new, gelu_pytorch_tanh or gelu");
    return true;
}

static void read_gpt2(struct reader *r, struct merak_hf_config *c)
{
    bool old = find(r, "n_positions") == NULL && find(r, "n_ctx") != NULL;

    c->vocab = read_size(r, "vocab_size", 0);
    c->hidden = read_size(r, "n_embd", 0);
    c->layers = read_size(r, "n_layer", 0);
    c->heads = read_size(r, "n_head", 0);
    c->positions = read_size(r, old ? "n_ctx" : "n_positions", 0);
    c->ffn = read_size(r, "n_inner", 4 * c->hidden);
    c->norm_eps = read_positive(r, "layer_norm_epsilon", 1e-5);
    c->init_std = read_positive(r, "initializer_range", 0.02);
    c->embd_dropout = read_dropout(r, "embd_pdrop", 0.1);
    c->resid_dropout = read_dropout(r, "resid_pdrop", 0.1);
    require_no_attention_dropout(r, "attn_pdrop");
    c->tied = read_bool(r, "tie_word_embeddings", true);
    c->gelu_tanh = gpt2_activation(r);
    c->attn_bias = true;
    c->mlp_bias = true;
    require_bool(r, "scale_attn_weights", true);
    require_bool(r, "scale_attn_by_inverse_layer_idx", false);
    require_bool(r, "reorder_and_upcast_attn", false);
    require_bool(r, "add_cross_attention", false);
    c->kv_heads = c->heads;
    if (r->rc == MERAK_OK && c->hidden % c->heads != 0)
        r->rc = merak_fail(r->err, MERAK_ERR_CONFIG,
                           "n_embd %zu is not a multiple of n_head %zu",
                           c->hidden, c->heads);
    if (r->rc == MERAK_OK)
        c->head_dim = c->hidden / c->heads;
    if (r->rc == MERAK_OK && find(r, "attn_pdrop") == NULL)
        merak_info("io", "attn_pdrop is not given: 0 (transformers: 0.1)");
}

/* Newer files keep theta inside "rope_parameters", beside a kind. */
static float llama_theta(struct reader *r)
{
    const json_t *rope = find(r, "rope_parameters");
    const json_t *kind = json_object_get(rope, "rope_type");
    const json_t *theta = json_object_get(rope, "rope_theta");
    struct reader inner = *r;
    float x;

    require_absent(r, "rope_scaling");
    if (rope == NULL || theta == NULL)
        x = read_positive(r, "rope_theta", 10000);
    else {
        inner.root = rope;
        x = read_positive(&inner, "rope_theta", 10000);
        if (r->rc == MERAK_OK)
            r->rc = inner.rc;
    }
    if (rope != NULL &&
        (!json_is_object(rope) ||
         (kind != NULL && (!json_is_string(kind) ||
                           strcmp(json_string_value(kind), "default") != 0))))
        refuse(r, "rope_parameters", "rope_type \"default\"");
    return x;
}

static void check_llama(struct reader *r, const struct merak_hf_config *c)
{
    if (r->rc != MERAK_OK)
        return;
    if (c->head_dim == 0)
        r->rc = merak_fail(r->err, MERAK_ERR_CONFIG,
                           "hidden_size %zu is not a multiple of "
                           "num_attention_heads %zu, and head_dim is not given",
                           c->hidden, c->heads);
    else if (c->heads % c->kv_heads != 0)
        r->rc = merak_fail(r->err, MERAK_ERR_CONFIG,
                           "num_attention_heads %zu is not a multiple of "
                           "num_key_value_heads %zu",
                           c->heads, c->kv_heads);
    else if (c->head_dim % 2 != 0)
        r->rc = merak_fail(r->err, MERAK_ERR_CONFIG,
                           "head_dim %zu is odd; rotary positions turn pairs",
                           c->head_dim);
}

static void read_llama(struct reader *r, struct merak_hf_config *c)
{
    const char *act;

    c->vocab = read_size(r, "vocab_size", 0);
    c->hidden = read_size(r, "hidden_size", 0);
    c->ffn = read_size(r, "intermediate_size", 0);
    c->layers = read_size(r, "num_hidden_layers", 0);
    c->heads = read_size(r, "num_attention_heads", 0);
    c->positions = read_size(r, "max_position_embeddings", 0);
    c->kv_heads = read_size(r, "num_key_value_heads", c->heads);
    if (r->rc != MERAK_OK)
        return;
    if (find(r, "head_dim") != NULL)
        c->head_dim = read_size(r, "head_dim", 0);
    else if (c->hidden % c->heads == 0)
        c->head_dim = c->hidden / c->heads;
    c->norm_eps = read_positive(r, "rms_norm_eps", 1e-6);
    c->init_std = read_positive(r, "initializer_range", 0.02);
    c->rope_theta = llama_theta(r);
    c->attn_bias = read_bool(r, "attention_bias", false);
    c->mlp_bias = read_bool(r, "mlp_bias", false);
    c->tied = read_bool(r, "tie_word_embeddings", false);
    act = read_word(r, "hidden_act", "silu");
    if (strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0)
        refuse(r, "hidden_act", "silu");
    if (read_real(r, "partial_rotary_factor", 1) != 1)
        refuse(r, "partial_rotary_factor", "1");
    require_no_attention_dropout(r, "attention_dropout");
    check_llama(r, c);
}

static void read_family(struct reader *r, struct merak_hf_config *c)
{
    const char *type;

    r->family = "gpt2 or llama";
    if (find(r, "model_type") == NULL) {
        fail_missing(r, "model_type");
        return;
    }
    type = read_word(r, "model_type", "");
    r->family = type;
    require_absent(r, "quantization_config");
    if (r->rc != MERAK_OK)
        return;
    if (strcmp(type, "gpt2") == 0) {
        c->family = MERAK_GPT2;
        read_gpt2(r, c);
    } else if (strcmp(type, "llama") == 0) {
        c->family = MERAK_LLAMA;
        read_llama(r, c);
    } else {
        refuse(r, "model_type", "\"gpt2\" or \"llama\"");
    }
}

/* --- the file
 * ------------------------------------------------------------------------ */

static enum merak_status read_file(const char *path, char *text, size_t *n_p,
                                   struct merak_error *err)
{
    FILE *f = fopen(path, "rb");
    enum merak_status rc = MERAK_OK;

    if (f == NULL)
        return merak_fail(err,
                          errno == ENOENT ? MERAK_ERR_NOT_FOUND : MERAK_ERR_IO,
                          "cannot open: %s", strerror(errno));
    *n_p = fread(text, 1, MAX_BYTES, f);
    if (ferror(f))
        rc = merak_fail(err, MERAK_ERR_IO, "cannot read: %s", strerror(errno));
    else if (*n_p == MAX_BYTES)
        rc = merak_fail(err, MERAK_ERR_CONFIG,
                        "more than %zu bytes; a config.json has a few thousand",
                        MAX_BYTES - 1);
    fclose(f);
    return rc;
}

static enum merak_status parse(const char *text, size_t n,
                               struct merak_hf_config *config,
                               struct merak_error *err)
{
    json_error_t why;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    struct reader r = {.root = root, .rc = MERAK_OK, .err = err};
    struct merak_hf_config c = {0};

    if (root == NULL)
        return merak_fail(err, MERAK_ERR_CONFIG, "no valid JSON: line %d: %s",
                          why.line, why.text);
    if (json_is_object(root))
        read_family(&r, &c);
    else
        r.rc = merak_fail(err, MERAK_ERR_CONFIG, "expected a JSON object");
    json_decref(root);
    if (r.rc == MERAK_OK)
        *config = c;
    return r.rc;
}

enum merak_status merak_hf_config_load(const char *path,
                                       struct merak_hf_config *config,
                                       struct merak_error *err)
{
    char *text = malloc(MAX_BYTES);
    enum merak_status rc;
    size_t n = 0;

    if (text == NULL)
        return merak_fail_nomem(err, MAX_BYTES);
    rc = read_file(path, text, &n, err);
    if (rc == MERAK_OK)
        rc = parse(text, n, config, err);
    if (rc != MERAK_OK)
        merak_error_wrap(err, "model file %.120s", path);
    free(text);
    return rc;
}
