/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - reading a tokenizer.json
 *
 * Such a file has a "model" with a "vocab" (token -> id) and "merges" (in
 * rank order, "a b" or ["a", "b"]), "added_tokens", and what is done before
 * and after (json_rules.c).  Tokens of a byte-level model are written in an
 * alphabet: printable bytes as themselves, the others as U+0100 and on in
 * order.  Those of SentencePiece's kind are characters, blanks written as
 * U+2581, and bytes that no token has as "<0x0A>".  A file that asks for
 * anything else would give other ids than it should, so whatever is not known
 * to be harmless is refused by its name.
 */
#include "config.h"

#include "io/tokenizer/json_impl.h"

#include "base/error.h"
#include "base/open.h"
#include "io/tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_ID (1 << 24)

/* --- what is asked for ------------------------------------------------- */

static const char *const root_keys[] = {
    "version",       "truncation",     "padding", "added_tokens", "normalizer",
    "pre_tokenizer", "post_processor", "decoder", "model"};
static const char *const model_keys[] = {
    "type",          "dropout",
    "unk_token",     "continuing_subword_prefix",
    "fuse_unk",      "end_of_word_suffix",
    "byte_fallback", "ignore_merges",
    "vocab",         "merges"};

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

/* What would cut a text short, or make it longer. */
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

/* GPT-2's own file names no type. */
static enum merak_status check_model(struct merak_json_loader *ld,
                                     json_t *model)
{
    static const char *const affixes[] = {"continuing_subword_prefix",
                                          "end_of_word_suffix"};
    json_t *type = json_object_get(model, "type");
    json_t *dropout = json_object_get(model, "dropout");
    json_t *ignore = json_object_get(model, "ignore_merges");

    if (!json_is_object(model))
        return merak_json_malformed(ld, "no model");
    if (type != NULL && !merak_json_is_text(type, "BPE"))
        return merak_json_unsupported(ld, "model.type", type, "\"BPE\"");
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
    return check_keys(ld, "model", model, model_keys,
                      sizeof(model_keys) / sizeof(*model_keys));
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
    if (rc == MERAK_OK)
        rc = check_keys(ld, "the file", ld->root, root_keys,
                        sizeof(root_keys) / sizeof(*root_keys));
    return rc;
}

/* --- tokens ------------------------------------------------------------ */

static void set_alphabet(struct merak_json_loader *ld)
{
    int next = 0x100;

    memset(ld->byte_of, 0xff, sizeof(ld->byte_of));
    for (int b = 0; b < 256; b++) {
        bool printable =
            (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;

        ld->byte_of[printable ? b : next++] = (int16_t)b;
    }
}

/* Bytes of a token written in the alphabet; in place, n becomes theirs.
 * False if a character is not of the alphabet. */
static bool to_bytes(const struct merak_json_loader *ld, char *text,
                     size_t *n_p)
{
    const unsigned char *in = (const unsigned char *)text;
    size_t done = 0, n = *n_p, out = 0;
    uint32_t cp;

    while (done < n) {
        size_t bytes = merak_utf8_decode(in + done, n - done, &cp);

        if (bytes == 0 || cp >= MERAK_ALPHABET_END || ld->byte_of[cp] < 0)
            return false;
        text[out++] = (char)ld->byte_of[cp];
        done += bytes;
    }
    *n_p = out;
    return true;
}

static enum merak_status count_ids(struct merak_json_loader *ld,
                                   const json_t *id, const char *token)
{
    json_int_t value = json_integer_value(id);

    if (!json_is_integer(id) || value < 0 || value >= MAX_ID)
        return merak_fail(ld->err, MERAK_ERR_FORMAT,
                          "%s: token \"%.40s\" has no id from 0 to %d",
                          ld->path, token, MAX_ID - 1);
    if ((size_t)value >= ld->vocab->n)
        ld->vocab->n = (size_t)value + 1;
    return MERAK_OK;
}

static bool byte_token(const char *text, unsigned *byte_p)
{
    static const char digits[] = "0123456789ABCDEF";
    const char *high, *low;

    if (strlen(text) != 6 || strncmp(text, "<0x", 3) != 0 || text[5] != '>')
        return false;
    high = strchr(digits, text[3]);
    low = strchr(digits, text[4]);
    if (high == NULL || low == NULL)
        return false;
    *byte_p = (unsigned)((high - digits) * 16 + (low - digits));
    return true;
}

/* Bytes of a token of characters; in place: blanks for their marks, and the
 * byte that "<0x0A>" stands for. */
static size_t to_text(char *text)
{
    size_t n = strlen(text), out = 0, mark = strlen(MERAK_MARK);
    unsigned byte;

    if (byte_token(text, &byte)) {
        text[0] = (char)byte;
        return 1;
    }
    for (size_t i = 0; i < n;) {
        if (strncmp(text + i, MERAK_MARK, mark) == 0) {
            text[out++] = ' ';
            i += mark;
        } else {
            text[out++] = text[i++];
        }
    }
    return out;
}

static enum merak_status set_token(struct merak_json_loader *ld, size_t id,
                                   const char *text, bool added)
{
    struct merak_token_text *token = &ld->vocab->token[id];
    size_t n = strlen(text), text_n = n;
    char *bytes;

    if (token->bytes != NULL)
        return merak_fail(ld->err, MERAK_ERR_FORMAT,
                          "%s: id %zu is given to \"%.40s\" and to another "
                          "token",
                          ld->path, id, text);
    bytes = strdup(text);
    if (bytes == NULL)
        return merak_fail_nomem(ld->err, n + 1);
    /* Special tokens may have characters that are not of the alphabet: they
     * then stand for themselves. */
    if (!added && ld->byte_level && !to_bytes(ld, bytes, &n))
        memcpy(bytes, text, n + 1);
    token->bytes = bytes;
    token->n = n;
    if (added)
        return MERAK_OK;
    if (ld->byte_level) {
        text = bytes;
        text_n = n;
    } else {
        token->n = to_text(bytes);
        text_n = strlen(text);
    }
    return merak_token_index_add(ld->vocab->index, text, text_n, (int32_t)id,
                                 ld->err);
}

static enum merak_status load_tokens(struct merak_json_loader *ld,
                                     json_t *tokens, json_t *added)
{
    enum merak_status rc = MERAK_OK;
    const char *text;
    json_t *id, *entry;
    size_t i;

    json_object_foreach(tokens, text, id)
    {
        rc = count_ids(ld, id, text);
        if (rc != MERAK_OK)
            return rc;
    }
    json_array_foreach(added, i, entry)
    {
        text = json_string_value(json_object_get(entry, "content"));
        rc = count_ids(ld, json_object_get(entry, "id"),
                       text == NULL ? "?" : text);
        if (rc != MERAK_OK)
            return rc;
    }
    ld->vocab->token = calloc(ld->vocab->n + 1, sizeof(*ld->vocab->token));
    if (ld->vocab->token == NULL)
        return merak_fail_nomem(ld->err, ld->vocab->n);
    rc = merak_token_index_create(json_object_size(tokens), &ld->vocab->index,
                                  ld->err);
    if (rc != MERAK_OK)
        return rc;
    json_object_foreach(tokens, text, id)
    {
        rc = set_token(ld, (size_t)json_integer_value(id), text, false);
        if (rc != MERAK_OK)
            return rc;
    }
    return MERAK_OK;
}

/* --- added tokens ------------------------------------------------------ */

static enum merak_status check_added(struct merak_json_loader *ld,
                                     json_t *entry, const char *content)
{
    static const char *const flags[] = {"single_word", "lstrip", "rstrip",
                                        "special"};

    if (content == NULL || content[0] == '\0')
        return merak_json_malformed(ld, "an added token without content");
    if (!json_is_boolean(json_object_get(entry, "normalized")))
        return merak_fail(ld->err, MERAK_ERR_FORMAT,
                          "%s: added token \"%.40s\" does not tell whether "
                          "it is normalized",
                          ld->path, content);
    for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++) {
        json_t *flag = json_object_get(entry, flags[i]);

        if (flag != NULL && !json_is_boolean(flag))
            return merak_fail(ld->err, MERAK_ERR_FORMAT,
                              "%s: %s of added token \"%.30s\" is not true "
                              "or false",
                              ld->path, flags[i], content);
    }
    return MERAK_OK;
}

/* What of an added token is looked for: a normalized one goes through the
 * normalizer, too. */
static enum merak_status set_added_text(struct merak_json_loader *ld,
                                        struct merak_added_token *added,
                                        const char *content)
{
    struct merak_buffer text = {0};
    enum merak_status rc = MERAK_OK;

    if (added->normalized)
        rc = merak_rules_normalize(&ld->vocab->rules,
                                   (const unsigned char *)content,
                                   strlen(content), &text, ld->err);
    else
        rc = merak_buffer_add(&text, content, strlen(content), ld->err);
    added->text = (char *)text.text;
    added->n = text.n;
    return rc;
}

static enum merak_status add_token(struct merak_json_loader *ld, json_t *tokens,
                                   json_t *entry)
{
    const char *content = json_string_value(json_object_get(entry, "content"));
    struct merak_added_token *added = &ld->vocab->added[ld->vocab->n_added];
    json_int_t id = json_integer_value(json_object_get(entry, "id"));
    json_t *known;
    enum merak_status rc = check_added(ld, entry, content);

    if (rc != MERAK_OK)
        return rc;
    known = json_object_get(tokens, content);
    if (known != NULL && json_integer_value(known) != id)
        return merak_fail(ld->err, MERAK_ERR_FORMAT,
                          "%s: added token \"%.40s\" has id %lld, %lld in "
                          "the vocabulary",
                          ld->path, content, (long long)id,
                          (long long)json_integer_value(known));
    /* It is found in the text as written, not in the alphabet. */
    if (known != NULL) {
        free(ld->vocab->token[id].bytes);
        ld->vocab->token[id].bytes = NULL;
    }
    rc = set_token(ld, (size_t)id, content, true);
    if (rc != MERAK_OK)
        return rc;
    added->id = (int32_t)id;
    added->normalized = json_is_true(json_object_get(entry, "normalized"));
    added->special = json_is_true(json_object_get(entry, "special"));
    added->single_word = json_is_true(json_object_get(entry, "single_word"));
    added->lstrip = json_is_true(json_object_get(entry, "lstrip"));
    added->rstrip = json_is_true(json_object_get(entry, "rstrip"));
    ld->vocab->n_added++;
    return set_added_text(ld, added, content);
}

static enum merak_status load_added(struct merak_json_loader *ld,
                                    json_t *tokens, json_t *added)
{
    size_t n = json_array_size(added), i;
    json_t *entry;

    ld->vocab->added = calloc(n + 1, sizeof(*ld->vocab->added));
    if (ld->vocab->added == NULL)
        return merak_fail_nomem(ld->err, n * sizeof(*ld->vocab->added));
    json_array_foreach(added, i, entry)
    {
        enum merak_status rc = add_token(ld, tokens, entry);

        if (rc != MERAK_OK)
            return rc;
    }
    return MERAK_OK;
}

/* --- merges ------------------------------------------------------------ */

static enum merak_status find_bytes(struct merak_json_loader *ld,
                                    int32_t byte_id[256])
{
    for (int b = 0; b < 256; b++) {
        const unsigned char byte = (unsigned char)b;

        byte_id[b] = merak_token_index_find(ld->vocab->index, &byte, 1);
        if (byte_id[b] < 0)
            return merak_fail(ld->err, MERAK_ERR_FORMAT,
                              "%s: no token for byte %d, expected all 256",
                              ld->path, b);
    }
    return MERAK_OK;
}

/* Tokens of characters: what stands for a character that is none. */
static enum merak_status find_fallback(struct merak_json_loader *ld,
                                       json_t *model,
                                       struct merak_bpe_options *opt)
{
    json_t *unknown = json_object_get(model, "unk_token");
    bool bytes = json_is_true(json_object_get(model, "byte_fallback"));
    char name[8];

    for (unsigned b = 0; b < 256; b++) {
        snprintf(name, sizeof(name), "<0x%02X>", b);
        opt->byte_id[b] =
            bytes ? merak_token_index_find(ld->vocab->index, name, 6) : -1;
    }
    if (json_is_string(unknown))
        opt->unknown =
            merak_token_index_find(ld->vocab->index, json_string_value(unknown),
                                   json_string_length(unknown));
    if (json_is_string(unknown) && opt->unknown < 0)
        return merak_fail(ld->err, MERAK_ERR_FORMAT,
                          "%s: unk_token \"%.40s\" is not in the vocabulary",
                          ld->path, json_string_value(unknown));
    if (!bytes && opt->unknown < 0)
        return merak_fail(ld->err, MERAK_ERR_UNSUPPORTED,
                          "%s: neither ByteLevel nor byte_fallback nor "
                          "unk_token: a character without a token would be "
                          "left out",
                          ld->path);
    return MERAK_OK;
}

static enum merak_status create_bpe(struct merak_json_loader *ld, json_t *model,
                                    size_t n_merges)
{
    struct merak_bpe_options opt = {
        .chars = !ld->byte_level,
        .ignore_merges = json_is_true(json_object_get(model, "ignore_merges")),
        .unknown = -1,
        .fuse_unknown = json_is_true(json_object_get(model, "fuse_unk")),
        .index = ld->vocab->index,
    };
    enum merak_status rc = ld->byte_level ? find_bytes(ld, opt.byte_id)
                                          : find_fallback(ld, model, &opt);

    return rc == MERAK_OK
               ? merak_bpe_create(&opt, n_merges, &ld->vocab->bpe, ld->err)
               : rc;
}

/* The two sides of merge number i; left is copied into room. */
static bool merge_sides(const json_t *merge, char *room, size_t max,
                        const char **left_p, const char **right_p)
{
    const char *text = json_string_value(merge);
    const char *space = text == NULL ? NULL : strchr(text, ' ');

    if (json_is_array(merge) && json_array_size(merge) == 2) {
        *left_p = json_string_value(json_array_get(merge, 0));
        *right_p = json_string_value(json_array_get(merge, 1));
        return *left_p != NULL && *right_p != NULL;
    }
    if (space == NULL || strchr(space + 1, ' ') != NULL ||
        (size_t)(space - text) >= max)
        return false;
    memcpy(room, text, (size_t)(space - text));
    room[space - text] = '\0';
    *left_p = room;
    *right_p = space + 1;
    return true;
}

static enum merak_status load_merge(struct merak_json_loader *ld,
                                    json_t *tokens, size_t i,
                                    const json_t *merge)
{
    char room[2048], whole[4096];
    const char *left, *right;
    json_t *l, *r, *id;

    if (!merge_sides(merge, room, sizeof(room), &left, &right))
        return merak_fail(ld->err, MERAK_ERR_FORMAT,
                          "%s: merge %zu is not two tokens", ld->path, i);
    if ((size_t)snprintf(whole, sizeof(whole), "%s%s", left, right) >=
        sizeof(whole))
        return merak_fail(ld->err, MERAK_ERR_FORMAT,
                          "%s: merge %zu is longer than %zu bytes", ld->path, i,
                          sizeof(whole));
    l = json_object_get(tokens, left);
    r = json_object_get(tokens, right);
    id = json_object_get(tokens, whole);
    if (l == NULL || r == NULL || id == NULL)
        return merak_fail(ld->err, MERAK_ERR_FORMAT,
                          "%s: merge %zu needs token \"%.40s\", which the "
                          "vocabulary lacks",
                          ld->path, i,
                          l == NULL   ? left
                          : r == NULL ? right
                                      : whole);
    merak_bpe_merge(ld->vocab->bpe, (int32_t)json_integer_value(l),
                    (int32_t)json_integer_value(r),
                    (int32_t)json_integer_value(id));
    return MERAK_OK;
}

static enum merak_status load_merges(struct merak_json_loader *ld,
                                     json_t *model, json_t *tokens,
                                     json_t *merges)
{
    json_t *merge;
    size_t i;
    enum merak_status rc = create_bpe(ld, model, json_array_size(merges));

    if (rc != MERAK_OK)
        return rc;
    json_array_foreach(merges, i, merge)
    {
        rc = load_merge(ld, tokens, i, merge);
        if (rc != MERAK_OK)
            return rc;
    }
    return MERAK_OK;
}

/* --- the file ---------------------------------------------------------- */

static enum merak_status check_around(struct merak_json_loader *ld,
                                      const int32_t *ids, int n)
{
    for (int i = 0; i < n; i++) {
        if ((size_t)ids[i] >= ld->vocab->n ||
            ld->vocab->token[ids[i]].bytes == NULL)
            return merak_fail(ld->err, MERAK_ERR_FORMAT,
                              "%s: post_processor puts token %d around a "
                              "text, and there is none",
                              ld->path, (int)ids[i]);
    }
    return MERAK_OK;
}

static enum merak_status load_parts(struct merak_json_loader *ld)
{
    json_t *model = json_object_get(ld->root, "model");
    json_t *tokens = json_object_get(model, "vocab");
    json_t *merges = json_object_get(model, "merges");
    json_t *added = json_object_get(ld->root, "added_tokens");
    enum merak_status rc;

    if (!json_is_object(tokens) || !json_is_array(merges))
        return merak_json_malformed(ld, "the model has no vocab or no merges");
    if (!merak_json_is_unset(added) && !json_is_array(added))
        return merak_json_malformed(ld, "added_tokens is not a list");
    rc = load_tokens(ld, tokens, added);
    if (rc == MERAK_OK)
        rc = load_added(ld, tokens, added);
    if (rc == MERAK_OK)
        rc = check_around(ld, ld->vocab->rules.before,
                          ld->vocab->rules.n_before);
    if (rc == MERAK_OK)
        rc = check_around(ld, ld->vocab->rules.after, ld->vocab->rules.n_after);
    if (rc == MERAK_OK)
        rc = load_merges(ld, model, tokens, merges);
    return rc;
}

enum merak_status merak_vocab_load(const char *path, struct merak_vocab *vocab,
                                   struct merak_error *err)
{
    struct merak_vocab v = {.eod = -1};
    struct merak_json_loader ld = {.path = path, .vocab = &v, .err = err};
    json_error_t bad;
    enum merak_status rc;
    int fd;
    const char *why = merak_open_regular(path, &fd);

    if (why != NULL)
        return merak_fail(err, MERAK_ERR_NOT_FOUND, "%s: %s", path, why);
    ld.root = json_loadfd(fd, JSON_REJECT_DUPLICATES, &bad);
    close(fd);
    if (ld.root == NULL)
        return merak_fail(err, MERAK_ERR_FORMAT, "%s: not JSON, line %d: %s",
                          path, bad.line, bad.text);
    set_alphabet(&ld);
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
