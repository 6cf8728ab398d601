/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - reading a tokenizer.json of the GPT-2 kind
 *
 * Such a file has a "model" with a "vocab" (token -> id) and "merges" (in
 * rank order, "a b" or ["a", "b"]), a ByteLevel "pre_tokenizer" and
 * "added_tokens".  Tokens are written in the byte-level alphabet: printable
 * bytes as themselves, the others as U+0100 and on in order.  A file that
 * asks for anything else would give other ids than it should, so whatever
 * is not known to be harmless is refused by its name.
 */
#include "config.h"

#include "io/tokenizer/json.h"

#include "base/error.h"
#include "base/open.h"
#include "io/tokenizer/unicode.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ALPHABET_END 0x144 /* the alphabet's last character plus one */
#define MAX_ID (1 << 24)

struct loader {
    json_t *root;
    const char *path;
    struct merak_vocab *vocab;
    int16_t byte_of[ALPHABET_END]; /* -1: not in the alphabet */
    struct merak_error *err;
};

static enum merak_status unsupported(struct loader *ld, const char *what,
                                     const json_t *given, const char *wanted)
{
    char *text = json_dumps(given, JSON_ENCODE_ANY | JSON_COMPACT);
    enum merak_status rc = merak_fail(
        ld->err, MERAK_ERR_UNSUPPORTED, "%s: %s is %.60s, supported: %s",
        ld->path, what, text == NULL ? "?" : text, wanted);

    free(text);
    return rc;
}

static enum merak_status malformed(struct loader *ld, const char *what)
{
    return merak_fail(ld->err, MERAK_ERR_FORMAT, "%s: %s", ld->path, what);
}

static bool is_unset(const json_t *value)
{
    return value == NULL || json_is_null(value);
}

static bool is_text(const json_t *value, const char *text)
{
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

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

static enum merak_status check_keys(struct loader *ld, const char *where,
                                    json_t *object, const char *const *known,
                                    size_t n_known)
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

/* Parts that must be absent, and parts that must be ByteLevel or absent. */
static enum merak_status check_parts(struct loader *ld)
{
    static const struct {
        const char *name;
        bool byte_level;
    } parts[] = {{"truncation", false},
                 {"padding", false},
                 {"normalizer", false},
                 {"post_processor", true},
                 {"decoder", true}};

    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        json_t *part = json_object_get(ld->root, parts[i].name);
        json_t *type = json_object_get(part, "type");

        if (is_unset(part) ||
            (parts[i].byte_level && is_text(type, "ByteLevel")))
            continue;
        return unsupported(ld, parts[i].name, type == NULL ? part : type,
                           parts[i].byte_level ? "null or \"ByteLevel\""
                                               : "null");
    }
    return MERAK_OK;
}

static enum merak_status check_pre_tokenizer(struct loader *ld)
{
    json_t *pre = json_object_get(ld->root, "pre_tokenizer");
    json_t *type = json_object_get(pre, "type");
    json_t *prefix = json_object_get(pre, "add_prefix_space");
    json_t *regex = json_object_get(pre, "use_regex");

    if (is_unset(pre))
        return malformed(ld, "no pre_tokenizer, supported: \"ByteLevel\"");
    if (!is_text(type, "ByteLevel"))
        return unsupported(ld, "pre_tokenizer", type == NULL ? pre : type,
                           "\"ByteLevel\"");
    if (!json_is_false(prefix))
        return prefix == NULL
                   ? malformed(ld, "pre_tokenizer has no add_prefix_space")
                   : unsupported(ld, "pre_tokenizer.add_prefix_space", prefix,
                                 "false");
    if (regex != NULL && !json_is_true(regex))
        return unsupported(ld, "pre_tokenizer.use_regex", regex, "true");
    return MERAK_OK;
}

/* GPT-2's own file names no type.  What is said about unknown characters
 * does not matter: every byte has a token. */
static enum merak_status check_model(struct loader *ld, json_t *model)
{
    static const char *const affixes[] = {"continuing_subword_prefix",
                                          "end_of_word_suffix"};
    json_t *type = json_object_get(model, "type");
    json_t *dropout = json_object_get(model, "dropout");
    json_t *ignore = json_object_get(model, "ignore_merges");

    if (!json_is_object(model))
        return malformed(ld, "no model");
    if (type != NULL && !is_text(type, "BPE"))
        return unsupported(ld, "model.type", type, "\"BPE\"");
    if (!is_unset(dropout) &&
        !(json_is_number(dropout) && json_number_value(dropout) == 0))
        return unsupported(ld, "model.dropout", dropout, "null or 0");
    if (ignore != NULL && !json_is_false(ignore))
        return unsupported(ld, "model.ignore_merges", ignore, "false");
    for (size_t i = 0; i < 2; i++) {
        json_t *affix = json_object_get(model, affixes[i]);

        if (!is_unset(affix) && !is_text(affix, ""))
            return unsupported(ld, affixes[i], affix, "null");
    }
    return check_keys(ld, "model", model, model_keys,
                      sizeof(model_keys) / sizeof(*model_keys));
}

static enum merak_status check_request(struct loader *ld)
{
    json_t *version = json_object_get(ld->root, "version");
    enum merak_status rc;

    if (!json_is_object(ld->root))
        return malformed(ld, "not an object");
    if (version != NULL && !is_text(version, "1.0"))
        return unsupported(ld, "version", version, "\"1.0\"");
    rc = check_model(ld, json_object_get(ld->root, "model"));
    if (rc == MERAK_OK)
        rc = check_parts(ld);
    if (rc == MERAK_OK)
        rc = check_pre_tokenizer(ld);
    if (rc == MERAK_OK)
        rc = check_keys(ld, "the file", ld->root, root_keys,
                        sizeof(root_keys) / sizeof(*root_keys));
    return rc;
}

/* --- tokens ------------------------------------------------------------ */

static void set_alphabet(struct loader *ld)
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
static bool to_bytes(const struct loader *ld, char *text, size_t *n_p)
{
    const unsigned char *in = (const unsigned char *)text;
    size_t done = 0, n = *n_p, out = 0;
    uint32_t cp;

    while (done < n) {
        size_t bytes = merak_utf8_decode(in + done, n - done, &cp);

        if (bytes == 0 || cp >= ALPHABET_END || ld->byte_of[cp] < 0)
            return false;
        text[out++] = (char)ld->byte_of[cp];
        done += bytes;
    }
    *n_p = out;
    return true;
}

static enum merak_status count_ids(struct loader *ld, const json_t *id,
                                   const char *token)
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

static enum merak_status set_token(struct loader *ld, size_t id,
                                   const char *text, bool alphabet)
{
    struct merak_token_text *token = &ld->vocab->token[id];
    size_t n = strlen(text);
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
    if (alphabet && !to_bytes(ld, bytes, &n))
        memcpy(bytes, text, n + 1);
    token->bytes = bytes;
    token->n = n;
    return MERAK_OK;
}

static enum merak_status load_tokens(struct loader *ld, json_t *tokens,
                                     json_t *added)
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
    ld->vocab->token = calloc(ld->vocab->n, sizeof(*ld->vocab->token));
    if (ld->vocab->token == NULL)
        return merak_fail_nomem(ld->err, ld->vocab->n);
    json_object_foreach(tokens, text, id)
    {
        rc = set_token(ld, (size_t)json_integer_value(id), text, true);
        if (rc != MERAK_OK)
            return rc;
    }
    return MERAK_OK;
}

/* --- added tokens ------------------------------------------------------ */

static enum merak_status check_added(struct loader *ld, json_t *entry,
                                     const char *content)
{
    static const char *const flags[] = {"single_word", "lstrip", "rstrip"};
    char what[80];

    if (content == NULL || content[0] == '\0')
        return malformed(ld, "an added token without content");
    if (!json_is_boolean(json_object_get(entry, "normalized")))
        return merak_fail(ld->err, MERAK_ERR_FORMAT,
                          "%s: added token \"%.40s\" does not tell whether "
                          "it is normalized",
                          ld->path, content);
    for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++) {
        json_t *flag = json_object_get(entry, flags[i]);

        snprintf(what, sizeof(what), "%s of added token \"%.30s\"", flags[i],
                 content);
        if (flag != NULL && !json_is_false(flag))
            return unsupported(ld, what, flag, "false");
    }
    return MERAK_OK;
}

static enum merak_status add_token(struct loader *ld, json_t *tokens,
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
    rc = set_token(ld, (size_t)id, content, false);
    if (rc != MERAK_OK)
        return rc;
    added->id = (int32_t)id;
    added->normalized = json_is_true(json_object_get(entry, "normalized"));
    ld->vocab->n_added++;
    return MERAK_OK;
}

static enum merak_status load_added(struct loader *ld, json_t *tokens,
                                    json_t *added)
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

static enum merak_status find_bytes(struct loader *ld, json_t *tokens,
                                    int32_t byte_id[256])
{
    for (uint32_t cp = 0; cp < ALPHABET_END; cp++) {
        unsigned char name[5] = {0};
        json_t *id;

        if (ld->byte_of[cp] < 0)
            continue;
        merak_utf8_encode(cp, name);
        id = json_object_get(tokens, (const char *)name);
        if (id == NULL)
            return merak_fail(ld->err, MERAK_ERR_FORMAT,
                              "%s: no token for byte %d, expected all 256",
                              ld->path, ld->byte_of[cp]);
        byte_id[ld->byte_of[cp]] = (int32_t)json_integer_value(id);
    }
    return MERAK_OK;
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

static enum merak_status load_merge(struct loader *ld, json_t *tokens, size_t i,
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

static enum merak_status load_merges(struct loader *ld, json_t *tokens,
                                     json_t *merges)
{
    int32_t byte_id[256];
    json_t *merge;
    size_t i;
    enum merak_status rc = find_bytes(ld, tokens, byte_id);

    if (rc == MERAK_OK)
        rc = merak_bpe_create(byte_id, json_array_size(merges), &ld->vocab->bpe,
                              ld->err);
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

static enum merak_status load_parts(struct loader *ld)
{
    json_t *model = json_object_get(ld->root, "model");
    json_t *tokens = json_object_get(model, "vocab");
    json_t *merges = json_object_get(model, "merges");
    json_t *added = json_object_get(ld->root, "added_tokens");
    enum merak_status rc;

    if (!json_is_object(tokens) || !json_is_array(merges))
        return malformed(ld, "the model has no vocab or no merges");
    if (!is_unset(added) && !json_is_array(added))
        return malformed(ld, "added_tokens is not a list");
    rc = load_tokens(ld, tokens, added);
    if (rc == MERAK_OK)
        rc = load_added(ld, tokens, added);
    if (rc == MERAK_OK)
        rc = load_merges(ld, tokens, merges);
    return rc;
}

enum merak_status merak_vocab_load(const char *path, struct merak_vocab *vocab,
                                   struct merak_error *err)
{
    struct merak_vocab v = {0};
    struct loader ld = {.path = path, .vocab = &v, .err = err};
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
    free(vocab->token);
    free(vocab->added);
    merak_bpe_destroy(vocab->bpe);
}
