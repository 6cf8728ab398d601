/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - reading a tokenizer.json
 *
 * Such a file has a "model" of one of two kinds, "added_tokens", and the
 * processing before and after (json_rules.c).  A BPE model has a "vocab"
 * (token -> id) and "merges" (in rank order, "a b" or ["a", "b"]); a Unigram
 * model has a "vocab" of tokens with scores, in the order of ids.  Anything
 * that is not known to be harmless is refused by name, since ignoring it could
 * give wrong ids.
 */
#include "config.h"

#include "text/tokenizer/json_impl.h"

#include "base/error.h"
#include "base/open.h"
#include "text/tokenizer/unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- keys ------------------------------------------------- */

static const char *const root_keys[] = {
    "version",       "truncation",     "padding", "added_tokens", "normalizer",
    "pre_tokenizer", "post_processor", "decoder", "model"};
static const char *const bpe_keys[] = {
    "type",          "dropout",
    "unk_token",     "continuing_subword_prefix",
    "fuse_unk",      "end_of_word_suffix",
    "byte_fallback", "ignore_merges",
    "vocab",         "merges"};
static const char *const unigram_keys[] = {"type", "unk_id", "vocab",
                                           "byte_fallback"};

static enum merak_status check_keys(struct merak_json_loader *ld,
                                    const char *where, json_t *object,
                                    const char *const *known, size_t n_known)
{
    const char *key;
    json_t *value;

    json_object_foreach(object, key, value)
    {
        size_t k = 0;

        while (k < n_known && strcmp(key, known[k]) != 0)
            k++;
        if (k == n_known)
            return merak_fail(ld->err, MERAK_ERR_UNSUPPORTED,
                              "%s: unknown field \"%s\" of %s", ld->path, key,
                              where);
    }
    return MERAK_OK;
}

/* Refuse what would truncate or pad a text. */
static enum merak_status check_absent(struct merak_json_loader *ld)
{
    static const char *const parts[] = {"truncation", "padding"};

    for (size_t i = 0; i < 2; i++) {
        json_t *part = json_object_get(ld->root, parts[i]);

        if (!merak_json_is_unset(part))
            return merak_json_unsupported(ld, parts[i], part, "null");
    }
    return MERAK_OK;
}

static enum merak_status check_bpe(struct merak_json_loader *ld, json_t *model)
{
    static const char *const affixes[] = {"continuing_subword_prefix",
                                          "end_of_word_suffix"};
    json_t *dropout = json_object_get(model, "dropout");
    json_t *ignore = json_object_get(model, "ignore_merges");

    if (!merak_json_is_unset(dropout) &&
        !(json_is_number(dropout) && json_number_value(dropout) == 0))
        return merak_json_unsupported(ld, "model.dropout", dropout,
                                      "null or 0");
    if (ignore != NULL && !json_is_boolean(ignore))
        return merak_json_unsupported(ld, "model.ignore_merges", ignore,
                                      "true or false");
    for (size_t i = 0; i < 2; i++) {
        json_t *affix = json_object_get(model, affixes[i]);

        if (!merak_json_is_unset(affix) && !merak_json_is_text(affix, ""))
            return merak_json_unsupported(ld, affixes[i], affix, "null");
    }
    return check_keys(ld, "model", model, bpe_keys,
                      sizeof(bpe_keys) / sizeof(*bpe_keys));
}

/* GPT-2's own file names no type. */
static enum merak_status check_model(struct merak_json_loader *ld,
                                     json_t *model)
{
    json_t *type = json_object_get(model, "type");

    if (!json_is_object(model))
        return merak_json_malformed(ld, "no model");
    if (type == NULL || merak_json_is_text(type, "BPE"))
        return check_bpe(ld, model);
    if (!merak_json_is_text(type, "Unigram"))
        return merak_json_unsupported(ld, "model.type", type,
                                      "\"BPE\" or \"Unigram\"");
    ld->unigram = true;
    return check_keys(ld, "model", model, unigram_keys,
                      sizeof(unigram_keys) / sizeof(*unigram_keys));
}

static enum merak_status check_request(struct merak_json_loader *ld)
{
    json_t *version = json_object_get(ld->root, "version");
    enum merak_status rc;

    if (!json_is_object(ld->root))
        return merak_json_malformed(ld, "not an object");
    if (version != NULL && !merak_json_is_text(version, "1.0"))
        return merak_json_unsupported(ld, "version", version, "\"1.0\"");
    rc = check_model(ld, json_object_get(ld->root, "model"));
    if (rc == MERAK_OK)
        rc = check_absent(ld);
    if (rc == MERAK_OK)
        rc = merak_json_rules(ld);
    if (rc == MERAK_OK && ld->unigram && ld->byte_level)
        rc = merak_json_unsupported(ld, "pre_tokenizer",
                                    json_object_get(ld->root, "pre_tokenizer"),
                                    "no ByteLevel before a Unigram model");
    if (rc == MERAK_OK)
        rc = check_keys(ld, "the file", ld->root, root_keys,
                        sizeof(root_keys) / sizeof(*root_keys));
    return rc;
}

/* --- NUL in texts ------------------------------------------------------ */

/* jansson refuses a key with a NUL in it, which vocabularies of characters
 * have: a character that does not occur in the file stands for it. */
#define NUL_ESCAPE "\\u0000"
enum { ESCAPE_BYTES = 6, FIRST_NONCHARACTER = 0xfdd0, NONCHARACTERS = 32 };

/* The next escape of a NUL in [at, end), or NULL: a backslash before it would
 * make it a text of six characters. */
static char *find_nul(char *at, const char *end)
{
    while (at < end) {
        char *slash = memchr(at, '\\', (size_t)(end - at));

        if (slash == NULL || end - slash < ESCAPE_BYTES)
            return NULL;
        if (memcmp(slash, NUL_ESCAPE, ESCAPE_BYTES) == 0)
            return slash;
        at = slash + 2;
    }
    return NULL;
}

static bool contains(const char *text, size_t n, const char *part)
{
    return memmem(text, n, part, strlen(part)) != NULL;
}

/* Let a noncharacter stand for NUL in the file's text. */
static enum merak_status replace_nuls(struct merak_json_loader *ld, char *text,
                                      size_t n)
{
    char *at = find_nul(text, text + n), lower[8], upper[8];

    for (unsigned cp = FIRST_NONCHARACTER;
         at != NULL && cp < FIRST_NONCHARACTER + NONCHARACTERS; cp++) {
        unsigned char bytes[4] = {0};

        (void)merak_utf8_encode(cp, bytes);
        snprintf(lower, sizeof(lower), "\\u%04x", cp);
        snprintf(upper, sizeof(upper), "\\u%04X", cp);
        if (contains(text, n, lower) || contains(text, n, upper) ||
            contains(text, n, (const char *)bytes))
            continue;
        memcpy(ld->nul, bytes, sizeof(ld->nul));
        for (; at != NULL; at = find_nul(at, text + n))
            memcpy(at, lower, ESCAPE_BYTES);
        return MERAK_OK;
    }
    return at == NULL ? MERAK_OK
                      : merak_json_malformed(ld, "NUL and all noncharacters "
                                                 "from U+FDD0 in one file");
}

char *merak_json_text(const struct merak_json_loader *ld, const char *text,
                      size_t *n_p)
{
    size_t n = strlen(text), mark = strlen(ld->nul), out = 0;
    char *copy = malloc(n + 1);

    for (size_t i = 0; copy != NULL && i < n; out++) {
        bool is_nul = mark > 0 && strncmp(text + i, ld->nul, mark) == 0;

        copy[out] = is_nul ? '\0' : text[i];
        i += is_nul ? mark : 1;
    }
    if (copy != NULL)
        copy[out] = '\0';
    *n_p = out;
    return copy;
}

/* --- the file ---------------------------------------------------------- */

static enum merak_status check_around(struct merak_json_loader *ld,
                                      const int32_t *ids, int n)
{
    for (int i = 0; i < n; i++) {
        if ((size_t)ids[i] >= ld->vocab->n ||
            ld->vocab->token[ids[i]].bytes == NULL)
            return merak_fail(ld->err, MERAK_ERR_FORMAT,
                              "%s: post_processor puts token %d around a text, "
                              "and it does not exist",
                              ld->path, (int)ids[i]);
    }
    return MERAK_OK;
}

static enum merak_status load_parts(struct merak_json_loader *ld)
{
    json_t *model = json_object_get(ld->root, "model");
    enum merak_status rc;

    ld->tokens = json_object_get(model, "vocab");
    if (ld->unigram && !json_is_array(ld->tokens))
        return merak_json_malformed(ld, "the model has no vocab, a list");
    if (!ld->unigram && (!json_is_object(ld->tokens) ||
                         !json_is_array(json_object_get(model, "merges"))))
        return merak_json_malformed(ld, "the model has no vocab or no merges");
    rc = merak_json_tokens(ld);
    if (rc == MERAK_OK)
        rc = check_around(ld, ld->vocab->rules.before,
                          ld->vocab->rules.n_before);
    if (rc == MERAK_OK)
        rc = check_around(ld, ld->vocab->rules.after, ld->vocab->rules.n_after);
    if (rc == MERAK_OK)
        rc = ld->unigram ? merak_json_unigram(ld, model)
                         : merak_json_merges(ld, model);
    return rc;
}

/* Read all of it: jansson reads a descriptor byte by byte. */
static enum merak_status read_file(struct merak_json_loader *ld,
                                   struct merak_buffer *text)
{
    FILE *file;
    char *block;
    size_t n = 1;
    enum merak_status rc = MERAK_OK;
    const char *why = merak_fopen_regular(ld->path, &file);
    enum { BLOCK = 1 << 20 };

    if (why != NULL)
        return merak_fail(ld->err, MERAK_ERR_NOT_FOUND, "%s: %s", ld->path,
                          why);
    block = malloc(BLOCK);
    if (block == NULL)
        rc = merak_fail_nomem(ld->err, BLOCK);
    while (rc == MERAK_OK && n > 0) {
        n = fread(block, 1, BLOCK, file);
        rc = merak_buffer_add(text, block, n, ld->err);
    }
    if (rc == MERAK_OK && ferror(file))
        rc = merak_fail(ld->err, MERAK_ERR_IO, "%s: it cannot be read",
                        ld->path);
    free(block);
    fclose(file);
    return rc;
}

static enum merak_status parse_file(struct merak_json_loader *ld)
{
    struct merak_buffer text = {0};
    json_error_t bad;
    enum merak_status rc = read_file(ld, &text);

    if (rc == MERAK_OK && text.n > 0)
        rc = replace_nuls(ld, (char *)text.text, text.n);
    if (rc == MERAK_OK) {
        ld->root =
            json_loadb((char *)text.text, text.n, JSON_REJECT_DUPLICATES, &bad);
        if (ld->root == NULL)
            rc = merak_fail(ld->err, MERAK_ERR_FORMAT,
                            "%s: not JSON, line %d: %s", ld->path, bad.line,
                            bad.text);
    }
    free(text.text);
    return rc;
}

enum merak_status merak_vocab_load(const char *path, struct merak_vocab *vocab,
                                   struct merak_error *err)
{
    struct merak_vocab v = {.eod = -1};
    struct merak_json_loader ld = {.path = path, .vocab = &v, .err = err};
    enum merak_status rc = parse_file(&ld);

    if (rc == MERAK_OK)
        rc = check_request(&ld);
    if (rc == MERAK_OK)
        rc = load_parts(&ld);
    json_decref(ld.root);
    if (rc == MERAK_OK)
        *vocab = v;
    else
        merak_vocab_fini(&v);
    return rc;
}

void merak_vocab_fini(struct merak_vocab *vocab)
{
    for (size_t i = 0; vocab->token != NULL && i < vocab->n; i++)
        free(vocab->token[i].bytes);
    for (size_t i = 0; vocab->added != NULL && i < vocab->n_added; i++)
        free(vocab->added[i].text);
    free(vocab->token);
    free(vocab->added);
    merak_rules_fini(&vocab->rules);
    merak_bpe_destroy(vocab->bpe);
    merak_unigram_destroy(vocab->unigram);
    merak_token_index_destroy(vocab->index);
}
