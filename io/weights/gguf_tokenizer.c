/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_tokenizer.c - the tokenizer of a model's folder, as keys of GGUF
 *
 *   tokenizer.ggml.model      "gpt2": BPE of bytes, "llama": BPE of
 *                             characters with bytes as a last resort, "none"
 *   tokenizer.ggml.pre        how gpt2's texts are split into words
 *   tokenizer.ggml.tokens     by id; an id without a token is "[PAD<id>]"
 *   tokenizer.ggml.token_type by id
 *   tokenizer.ggml.merges     of gpt2, "a b", best first
 *   tokenizer.ggml.scores     of llama: of tokenizer.model the piece's, else
 *                             minus the rank of the first merge that makes the
 *                             token
 *   tokenizer.ggml.add_space_prefix  of llama: a blank is put before a text
 *
 * Types of tokens have the numbers that tokenizer.model has for pieces.
 */
#include "config.h"

#include "io/weights/gguf.h"

#include "base/error.h"
#include "io/ckpt/durable.h"
#include "text/tokenizer/spm.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AT "tokenizer.ggml."

struct token {
    const char *text; /* NULL: none has this id */
    size_t bytes;
    int type;
    float score;
};

struct tokenizer {
    const char *dir;
    json_t *root, *config;  /* tokenizer.json, tokenizer_config.json */
    json_t *added;          /* added_tokens.json */
    struct merak_spm model; /* tokenizer.model, where there is no root */
    struct token *token;
    size_t n;
    bool spm;
    bool prefix; /* of spm */
};

/* --- files ------------------------------------------------------------------
 */

static bool is_there(const char *dir, const char *name)
{
    char path[PATH_MAX];

    return access(merak_path(path, dir, name), F_OK) == 0;
}

/* NULL if there is none. */
static enum merak_status load(const char *dir, const char *name, json_t **p,
                              struct merak_error *err)
{
    char path[PATH_MAX], *text = NULL;
    size_t bytes = 0;
    enum merak_status rc;

    if (!is_there(dir, name))
        return MERAK_OK;
    rc = merak_durable_read(merak_path(path, dir, name), &text, &bytes, err);
    if (rc != MERAK_OK)
        return rc;
    *p = json_loadb(text, bytes, JSON_ALLOW_NUL, NULL);
    free(text);
    return *p != NULL ? MERAK_OK
                      : merak_fail(err, MERAK_ERR_FORMAT,
                                   "%.120s is not valid JSON", path);
}

static json_t *model_of(const struct tokenizer *t)
{
    return json_object_get(t->root, "model");
}

static enum merak_status refuse(const struct tokenizer *t, const char *what,
                                struct merak_error *err)
{
    return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                      "--format gguf: %.80s/tokenizer.json has %s, which it "
                      "cannot say; export with --format hf",
                      t->dir, what);
}

/* --- words ------------------------------------------------------------------
 */

/* The regular expressions by which texts are split, and llama.cpp's name of
 * that. */
static const struct {
    const char *regex, *pre;
} known[] = {
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
     "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     "llama-bpe"},
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
     "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     "qwen2"},
};

static bool is_type(const json_t *json, const char *type)
{
    const char *word = json_string_value(json_object_get(json, "type"));

    return word != NULL && strcmp(word, type) == 0;
}

static const char *name_splits(const json_t *pre)
{
    const json_t *list = json_object_get(pre, "pretokenizers");
    const json_t *first = json_array_get(list, 0);
    const json_t *last = json_array_get(list, 1);
    const char *regex;

    if (is_type(pre, "ByteLevel"))
        return json_is_false(json_object_get(pre, "use_regex")) ? NULL
                                                                : "gpt-2";
    if (!is_type(pre, "Sequence") || json_array_size(list) != 2 ||
        !is_type(last, "ByteLevel"))
        return NULL;
    if (is_type(first, "Digits"))
        return json_is_true(json_object_get(first, "individual_digits"))
                   ? "smollm"
                   : NULL;
    regex = json_string_value(
        json_object_get(json_object_get(first, "pattern"), "Regex"));
    for (size_t i = 0; regex != NULL && i < sizeof(known) / sizeof(known[0]);
         i++) {
        if (is_type(first, "Split") && strcmp(regex, known[i].regex) == 0)
            return known[i].pre;
    }
    return NULL;
}

/* --- tokens -----------------------------------------------------------------
 */

static void put(struct tokenizer *t, json_int_t id, const json_t *text,
                int type)
{
    if (id < 0 || (size_t)id >= t->n || !json_is_string(text))
        return;
    t->token[id] = (struct token){json_string_value(text),
                                  json_string_length(text), type, 0};
}

/* "<0x0A>" */
static bool is_byte(const char *text, size_t n)
{
    return n == 6 && strncmp(text, "<0x", 3) == 0 && text[5] == '>';
}

static void take_vocab(struct tokenizer *t)
{
    json_t *vocab = json_object_get(model_of(t), "vocab"), *id, *one;
    const char *unknown =
        json_string_value(json_object_get(model_of(t), "unk_token"));
    const char *text;
    size_t i, n;

    json_object_keylen_foreach(vocab, text, n, id)
    {
        json_int_t at = json_integer_value(id);
        int type =
            t->spm && is_byte(text, n) ? MERAK_SPM_BYTE : MERAK_SPM_NORMAL;

        if (at >= 0 && (size_t)at < t->n)
            t->token[at] = (struct token){text, n, type, 0};
        if (unknown != NULL && strcmp(text, unknown) == 0 && at >= 0 &&
            (size_t)at < t->n)
            t->token[at].type = MERAK_SPM_UNKNOWN;
    }
    json_array_foreach(json_object_get(t->root, "added_tokens"), i, one)
    {
        json_t *content = json_object_get(one, "content");
        json_int_t at = json_integer_value(json_object_get(one, "id"));

        if (at >= 0 && (size_t)at < t->n &&
            t->token[at].type == MERAK_SPM_UNKNOWN)
            continue;
        put(t, at, content,
            json_is_true(json_object_get(one, "special"))
                ? MERAK_SPM_CONTROL
                : MERAK_SPM_USER_DEFINED);
    }
}

/* Both parts of a merge: ["a", "b"], or "a b" in older files; false if it is
 * neither. */
static bool read_merge(const json_t *merge, char *joined, size_t room,
                       const char *between)
{
    const char *a = json_string_value(json_array_get(merge, 0));
    const char *b = json_string_value(json_array_get(merge, 1));
    const char *text = json_string_value(merge), *blank;
    int n;

    if (text != NULL) {
        blank = strchr(text, ' ');
        n = blank != NULL
                ? snprintf(joined, room, "%.*s%s%s", (int)(blank - text), text,
                           between, blank + 1)
                : -1;
    } else {
        n = a != NULL && b != NULL
                ? snprintf(joined, room, "%s%s%s", a, between, b)
                : -1;
    }
    return n > 0 && (size_t)n < room;
}

enum { MERGE = 4096 };

static enum merak_status take_scores(struct tokenizer *t,
                                     struct merak_error *err)
{
    json_t *vocab = json_object_get(model_of(t), "vocab"), *one, *id;
    json_t *merges = json_object_get(model_of(t), "merges");
    char joined[MERGE];
    size_t i;

    json_array_foreach(merges, i, one)
    {
        if (!read_merge(one, joined, sizeof(joined), ""))
            return refuse(t, "a merge that is no pair", err);
        id = json_object_get(vocab, joined);
        if (id != NULL && (size_t)json_integer_value(id) < t->n &&
            t->token[json_integer_value(id)].score == 0)
            t->token[json_integer_value(id)].score = -(float)(i + 1);
    }
    return MERAK_OK;
}

static void add_tokens(struct merak_gguf *g, const struct tokenizer *t)
{
    char pad[32];

    merak_gguf_begin(g, AT "tokens", MERAK_GGUF_TEXTS, t->n);
    for (size_t i = 0; i < t->n; i++) {
        if (t->token[i].text != NULL) {
            merak_gguf_add_text(g, t->token[i].text, t->token[i].bytes);
            continue;
        }
        snprintf(pad, sizeof(pad), "[PAD%zu]", i);
        merak_gguf_add_text(g, pad, strlen(pad));
    }
    merak_gguf_begin(g, AT "token_type", MERAK_GGUF_INTS, t->n);
    for (size_t i = 0; i < t->n; i++)
        merak_gguf_add_int(g, t->token[i].text != NULL ? t->token[i].type
                                                       : MERAK_SPM_UNUSED);
}

static enum merak_status add_merges(struct merak_gguf *g,
                                    const struct tokenizer *t,
                                    struct merak_error *err)
{
    json_t *merges = json_object_get(model_of(t), "merges"), *one;
    char joined[MERGE];
    size_t i;

    merak_gguf_begin(g, AT "merges", MERAK_GGUF_TEXTS, json_array_size(merges));
    json_array_foreach(merges, i, one)
    {
        if (!read_merge(one, joined, sizeof(joined), " "))
            return refuse(t, "a merge that is no pair", err);
        merak_gguf_add_text(g, joined, strlen(joined));
    }
    return MERAK_OK;
}

/* --- special tokens, and the template ---------------------------------------
 */

/* "<s>", or { "content": "<s>" } */
static const char *word_of(const json_t *config, const char *key)
{
    const json_t *word = json_object_get(config, key);

    return json_is_object(word)
               ? json_string_value(json_object_get(word, "content"))
               : json_string_value(word);
}

/* The id of the token that a post-processor puts in front of a text, or behind
 * it; -1: none. */
static int64_t put_around(const json_t *post, bool behind)
{
    const json_t *parts = json_object_get(post, "processors"), *part, *ids;
    const json_t *single = json_object_get(post, "single");
    size_t n = json_array_size(single), i;
    const char *name;
    int64_t id = -1;

    json_array_foreach(parts, i, part)
    {
        if (id < 0)
            id = put_around(part, behind);
    }
    if (id >= 0 || n == 0)
        return id;
    part = json_object_get(json_array_get(single, behind ? n - 1 : 0),
                           "SpecialToken");
    name = json_string_value(json_object_get(part, "id"));
    if (name == NULL)
        return -1;
    ids = json_object_get(
        json_object_get(json_object_get(post, "special_tokens"), name), "ids");
    return json_is_integer(json_array_get(ids, 0))
               ? json_integer_value(json_array_get(ids, 0))
               : -1;
}

/* The id of the token that a field of the config names; -1: none. */
static int64_t named_token(const struct tokenizer *t, const char *field)
{
    const char *word = word_of(t->config, field);
    size_t n = word != NULL ? strlen(word) : 0;

    for (size_t i = 0; word != NULL && i < t->n; i++) {
        if (t->token[i].text != NULL && t->token[i].bytes == n &&
            memcmp(t->token[i].text, word, n) == 0)
            return (int64_t)i;
    }
    return -1;
}

/* Readers have rules of their own for what no field says: with a
 * tokenizer.json all is said. */
static void add_special(struct merak_gguf *g, const struct tokenizer *t)
{
    static const struct {
        const char *field, *key, *add, *add_key;
        bool behind;
    } kinds[] = {{"bos_token", AT "bos_token_id", "add_bos_token",
                  AT "add_bos_token", false},
                 {"eos_token", AT "eos_token_id", "add_eos_token",
                  AT "add_eos_token", true},
                 {"unk_token", AT "unknown_token_id", NULL, NULL, false},
                 {"pad_token", AT "padding_token_id", NULL, NULL, false}};
    const json_t *post = json_object_get(t->root, "post_processor");

    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        const json_t *add = kinds[k].add != NULL
                                ? json_object_get(t->config, kinds[k].add)
                                : NULL;
        int64_t around =
            kinds[k].add != NULL ? put_around(post, kinds[k].behind) : -1;
        int64_t id = around >= 0 && (uint64_t)around < t->n
                         ? around
                         : named_token(t, kinds[k].field);

        if (id >= 0)
            merak_gguf_number(g, kinds[k].key, (uint64_t)id);
        if (json_is_boolean(add))
            merak_gguf_yes(g, kinds[k].add_key, json_is_true(add));
        else if (kinds[k].add != NULL && t->root != NULL)
            merak_gguf_yes(g, kinds[k].add_key, around >= 0);
    }
}

static enum merak_status add_template(struct merak_gguf *g,
                                      const struct tokenizer *t,
                                      struct merak_error *err)
{
    const char *text =
        json_string_value(json_object_get(t->config, "chat_template"));
    char path[PATH_MAX], *own = NULL;
    size_t bytes = 0;
    enum merak_status rc = MERAK_OK;

    if (is_there(t->dir, "chat_template.jinja"))
        rc = merak_durable_read(merak_path(path, t->dir, "chat_template.jinja"),
                                &own, &bytes, err);
    if (own != NULL)
        text = own;
    if (rc == MERAK_OK && text != NULL)
        merak_gguf_text(g, "tokenizer.chat_template", text);
    free(own);
    return rc;
}

/* --- all of it --------------------------------------------------------------
 */

static size_t count_ids(const struct tokenizer *t)
{
    json_t *vocab = json_object_get(model_of(t), "vocab"), *one;
    json_int_t most = -1;
    const char *text;
    size_t i;

    json_object_foreach(vocab, text, one)
    {
        if (json_integer_value(one) > most)
            most = json_integer_value(one);
    }
    json_array_foreach(json_object_get(t->root, "added_tokens"), i, one)
    {
        json_int_t id = json_integer_value(json_object_get(one, "id"));

        most = id > most ? id : most;
    }
    return (size_t)(most + 1);
}

/* Is a blank put before a text?  By a normalizer that prepends the mark of one,
 * or by the splitter, also as one of several. */
static bool prepends(const json_t *step)
{
    const json_t *one, *scheme = json_object_get(step, "prepend_scheme"),
                       *list = json_object_get(step, "normalizers");
    size_t i;

    if (is_type(step, "Prepend"))
        return true;
    if (is_type(step, "Metaspace"))
        return scheme != NULL
                   ? strcmp(json_string_value(scheme), "never") != 0
                   : !json_is_false(json_object_get(step, "add_prefix_space"));
    if (list == NULL)
        list = json_object_get(step, "pretokenizers");
    json_array_foreach(list, i, one)
    {
        if (prepends(one))
            return true;
    }
    return false;
}

static enum merak_status allocate(struct tokenizer *t, size_t ids,
                                  const char *file, struct merak_error *err)
{
    if (ids > t->n)
        return merak_fail(err, MERAK_ERR_MISMATCH,
                          "%.80s/%s has %zu tokens, the model %zu", t->dir,
                          file, ids, t->n);
    t->token = calloc(t->n + 1, sizeof(*t->token));
    return t->token != NULL ? MERAK_OK
                            : merak_fail_nomem(err, t->n * sizeof(*t->token));
}

static void add_scores(struct merak_gguf *g, const struct tokenizer *t)
{
    merak_gguf_begin(g, AT "scores", MERAK_GGUF_REALS, t->n);
    for (size_t i = 0; i < t->n; i++)
        merak_gguf_add_real(g, t->token[i].score);
    merak_gguf_yes(g, AT "add_space_prefix", t->prefix);
}

static enum merak_status add_all(struct merak_gguf *g, struct tokenizer *t,
                                 struct merak_error *err)
{
    const char *pre = name_splits(json_object_get(t->root, "pre_tokenizer"));
    enum merak_status rc = MERAK_OK;

    t->spm = json_is_true(json_object_get(model_of(t), "byte_fallback"));
    if (!is_type(model_of(t), "BPE"))
        return refuse(t, "a model other than BPE", err);
    if (!t->spm && pre == NULL)
        return refuse(t, "a pre_tokenizer", err);
    rc = allocate(t, count_ids(t), "tokenizer.json", err);
    if (rc != MERAK_OK)
        return rc;
    take_vocab(t);
    merak_gguf_text(g, AT "model", t->spm ? "llama" : "gpt2");
    merak_gguf_text(g, AT "pre", t->spm ? "default" : pre);
    add_tokens(g, t);
    if (t->spm)
        rc = take_scores(t, err);
    else
        rc = add_merges(g, t, err);
    t->prefix = prepends(json_object_get(t->root, "normalizer")) ||
                prepends(json_object_get(t->root, "pre_tokenizer"));
    if (rc == MERAK_OK && t->spm)
        add_scores(g, t);
    add_special(g, t);
    return rc == MERAK_OK ? add_template(g, t, err) : rc;
}

/* --- tokenizer.model -------------------------------------------------------
 */

/* Tokens behind its pieces: {"<pad>": 32000}, and {"32000": {"content":
 * "<pad>", "special": true}}. */
static void take_added(struct tokenizer *t)
{
    json_t *decoder = json_object_get(t->config, "added_tokens_decoder"), *one;
    const char *key;

    json_object_foreach(t->added, key, one)
    {
        json_int_t at = json_integer_value(one);

        if (at >= 0 && (size_t)at < t->n)
            t->token[at] =
                (struct token){key, strlen(key), MERAK_SPM_USER_DEFINED, 0};
    }
    json_object_foreach(decoder, key, one)
    {
        json_int_t at = (json_int_t)strtoll(key, NULL, 10);

        if (at >= 0 && (size_t)at < t->n &&
            t->token[at].type != MERAK_SPM_UNKNOWN)
            put(t, at, json_object_get(one, "content"),
                json_is_true(json_object_get(one, "special"))
                    ? MERAK_SPM_CONTROL
                    : MERAK_SPM_USER_DEFINED);
    }
}

static enum merak_status add_model(struct merak_gguf *g, struct tokenizer *t,
                                   struct merak_error *err)
{
    const struct merak_spm *m = &t->model;
    char path[PATH_MAX];
    enum merak_status rc = merak_spm_read(
        merak_path(path, t->dir, "tokenizer.model"), &t->model, err);

    if (rc == MERAK_OK)
        rc = load(t->dir, "added_tokens.json", &t->added, err);
    if (rc == MERAK_OK && !m->bpe)
        rc = merak_fail(err, MERAK_ERR_UNSUPPORTED,
                        "--format gguf: %.80s/tokenizer.model is of Unigram, "
                        "which it cannot say; export with --format hf",
                        t->dir);
    if (rc == MERAK_OK)
        rc = allocate(t, m->n, "tokenizer.model", err);
    if (rc != MERAK_OK)
        return rc;
    for (size_t i = 0; i < m->n; i++)
        t->token[i] =
            (struct token){(const char *)m->piece[i].text, m->piece[i].n,
                           (int)m->piece[i].type, m->piece[i].score};
    take_added(t);
    t->prefix = m->prefix;
    merak_gguf_text(g, AT "model", "llama");
    merak_gguf_text(g, AT "pre", "default");
    add_tokens(g, t);
    add_scores(g, t);
    add_special(g, t);
    if (t->config == NULL && m->begin >= 0)
        merak_gguf_number(g, AT "bos_token_id", (uint64_t)m->begin);
    if (t->config == NULL && m->end >= 0)
        merak_gguf_number(g, AT "eos_token_id", (uint64_t)m->end);
    return add_template(g, t, err);
}

enum merak_status merak_gguf_tokenizer(struct merak_gguf *g, const char *dir,
                                       size_t vocab, struct merak_error *err)
{
    struct tokenizer t = {.dir = dir, .n = vocab};
    enum merak_status rc = load(dir, "tokenizer.json", &t.root, err);

    if (rc == MERAK_OK)
        rc = load(dir, "tokenizer_config.json", &t.config, err);
    if (rc == MERAK_OK && t.root != NULL)
        rc = add_all(g, &t, err);
    else if (rc == MERAK_OK && is_there(dir, "tokenizer.model"))
        rc = add_model(g, &t, err);
    else if (rc == MERAK_OK)
        merak_gguf_text(g, AT "model", "none");
    free(t.token);
    merak_spm_fini(&t.model);
    json_decref(t.added);
    json_decref(t.config);
    json_decref(t.root);
    return rc;
}
