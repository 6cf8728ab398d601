/* SPDX-License-Identifier: Apache-2.0 */
/* json_tokens.c - vocabulary and added tokens of a tokenizer.json
 *
 * Tokens of a byte-level model are written in an alphabet: printable bytes as
 * themselves, the others as U+0100 and on in order.  Those of SentencePiece
 * are characters, with blanks written as U+2581, and single bytes as "<0x0A>".
 */
#include "config.h"

#include "text/tokenizer/json_impl.h"

#include "base/error.h"
#include "text/tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>

#define MAX_ID (1 << 24)

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

/* Convert a token from the alphabet to bytes, in place; *n_p is updated.
 * False, with nothing changed, if a character is not in the alphabet. */
static bool to_bytes(const struct merak_json_loader *ld, char *text,
                     size_t *n_p)
{
    const unsigned char *in = (const unsigned char *)text;
    size_t n = *n_p, out = 0, bytes;
    uint32_t cp;

    for (size_t done = 0; done < n; done += bytes) {
        bytes = merak_utf8_decode(in + done, n - done, &cp);
        if (bytes == 0 || cp >= MERAK_ALPHABET_END || ld->byte_of[cp] < 0)
            return false;
    }
    for (size_t done = 0; done < n; done += bytes) {
        bytes = merak_utf8_decode(in + done, n - done, &cp);
        text[out++] = (char)ld->byte_of[cp];
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

static bool byte_token(const char *text, size_t n, unsigned *byte_p)
{
    static const char digits[] = "0123456789ABCDEF";
    const char *high, *low;

    if (n != 6 || strncmp(text, "<0x", 3) != 0 || text[5] != '>')
        return false;
    high = strchr(digits, text[3]);
    low = strchr(digits, text[4]);
    if (high == NULL || low == NULL)
        return false;
    *byte_p = (unsigned)((high - digits) * 16 + (low - digits));
    return true;
}

/* Convert a token of characters to bytes, in place: marks become blanks, and
 * "<0x0A>" the byte. */
static size_t to_text(char *text, size_t n)
{
    size_t out = 0, mark = strlen(MERAK_MARK);
    unsigned byte;

    if (byte_token(text, n, &byte)) {
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

/* Index a token as pieces of text are looked up: bytes of a byte-level model,
 * else characters as the file has them.  A byte-level token with a character
 * beyond the alphabet is found in no text, since that is written in it. */
static enum merak_status index_token(struct merak_json_loader *ld, size_t id,
                                     const char *text, size_t n)
{
    struct merak_token_text *token = &ld->vocab->token[id];
    enum merak_status rc;

    if (ld->byte_level) {
        rc = to_bytes(ld, token->bytes, &token->n)
                 ? merak_token_index_add(ld->vocab->index, token->bytes,
                                         token->n, (int32_t)id, ld->err)
                 : MERAK_OK;
        return rc;
    }
    rc = merak_token_index_add(ld->vocab->index, text, n, (int32_t)id, ld->err);
    token->n = to_text(token->bytes, token->n);
    return rc;
}

static enum merak_status set_token(struct merak_json_loader *ld, size_t id,
                                   const char *text, bool added)
{
    struct merak_token_text *token = &ld->vocab->token[id];
    enum merak_status rc = MERAK_OK;
    char *plain;
    size_t n;

    if (token->bytes != NULL)
        return merak_fail(ld->err, MERAK_ERR_FORMAT,
                          "%s: id %zu is given to \"%.40s\" and to another "
                          "token",
                          ld->path, id, text);
    token->bytes = merak_json_text(ld, text, &token->n);
    plain = merak_json_text(ld, text, &n);
    if (token->bytes == NULL || plain == NULL)
        rc = merak_fail_nomem(ld->err, n + 1);
    else if (!added)
        rc = index_token(ld, id, plain, n);
    free(plain);
    return rc;
}

/* Count the ids of the vocabulary: those given, or indices in a list. */
static enum merak_status count_tokens(struct merak_json_loader *ld,
                                      json_t *added)
{
    enum merak_status rc = MERAK_OK;
    const char *text;
    json_t *id, *entry;
    size_t i;

    if (ld->unigram && json_array_size(ld->tokens) > MAX_ID)
        return merak_json_malformed(ld, "the model has too many tokens");
    ld->vocab->n = json_array_size(ld->tokens);
    json_object_foreach(ld->tokens, text, id)
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
    return rc;
}

/* Backwards: if a text occurs twice, the last id counts. */
static enum merak_status set_listed(struct merak_json_loader *ld)
{
    enum merak_status rc = MERAK_OK;

    for (size_t i = json_array_size(ld->tokens); i-- > 0 && rc == MERAK_OK;) {
        const json_t *text = json_array_get(json_array_get(ld->tokens, i), 0);

        if (!json_is_string(text))
            return merak_fail(ld->err, MERAK_ERR_FORMAT,
                              "%s: entry %zu of the vocabulary is not a token "
                              "with a score",
                              ld->path, i);
        rc = set_token(ld, i, json_string_value(text), false);
    }
    return rc;
}

static enum merak_status load_tokens(struct merak_json_loader *ld,
                                     json_t *added)
{
    enum merak_status rc = count_tokens(ld, added);
    const char *text;
    json_t *id;

    if (rc != MERAK_OK)
        return rc;
    ld->vocab->token = calloc(ld->vocab->n + 1, sizeof(*ld->vocab->token));
    if (ld->vocab->token == NULL)
        return merak_fail_nomem(ld->err, ld->vocab->n);
    rc = merak_token_index_create(ld->vocab->n, &ld->vocab->index, ld->err);
    if (rc != MERAK_OK || ld->unigram)
        return rc == MERAK_OK ? set_listed(ld) : rc;
    json_object_foreach(ld->tokens, text, id)
    {
        rc = set_token(ld, (size_t)json_integer_value(id), text, false);
        if (rc != MERAK_OK)
            return rc;
    }
    return MERAK_OK;
}

static int32_t find_listed(const struct merak_json_loader *ld, const char *text)
{
    size_t n;
    char *plain = merak_json_text(ld, text, &n);
    int32_t id =
        plain == NULL ? -1 : merak_token_index_find(ld->vocab->index, plain, n);

    free(plain);
    return id;
}

int32_t merak_json_token_id(const struct merak_json_loader *ld,
                            const char *text)
{
    const json_t *id = json_object_get(ld->tokens, text);

    if (ld->unigram)
        return find_listed(ld, text);
    return id == NULL ? -1 : (int32_t)json_integer_value(id);
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
                          "%s: added token \"%.40s\" does not give whether it "
                          "is normalized",
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

/* Set the text that an added token matches: that of a normalized one is
 * normalized too. */
static enum merak_status set_added_text(struct merak_json_loader *ld,
                                        struct merak_added_token *added,
                                        const char *content)
{
    struct merak_buffer text = {0};
    enum merak_status rc = MERAK_OK;
    size_t n;
    char *plain = merak_json_text(ld, content, &n);

    if (plain == NULL)
        return merak_fail_nomem(ld->err, strlen(content));
    if (added->normalized)
        rc = merak_rules_normalize(
            &ld->vocab->rules, (const unsigned char *)plain, n, &text, ld->err);
    else
        rc = merak_buffer_add(&text, plain, n, ld->err);
    free(plain);
    if (rc != MERAK_OK)
        merak_error_wrap(ld->err, "%s: added token \"%.40s\"", ld->path,
                         content);
    added->text = (char *)text.text;
    added->n = text.n;
    return rc;
}

static enum merak_status add_token(struct merak_json_loader *ld, json_t *entry)
{
    const char *content = json_string_value(json_object_get(entry, "content"));
    struct merak_added_token *added = &ld->vocab->added[ld->vocab->n_added];
    json_int_t id = json_integer_value(json_object_get(entry, "id"));
    int32_t known;
    enum merak_status rc = check_added(ld, entry, content);

    if (rc != MERAK_OK)
        return rc;
    known = merak_json_token_id(ld, content);
    if (known >= 0 && known != id)
        return merak_fail(ld->err, MERAK_ERR_FORMAT,
                          "%s: added token \"%.40s\" has id %lld, %d in the "
                          "vocabulary",
                          ld->path, content, (long long)id, (int)known);
    /* It is matched as written, not in the alphabet. */
    if (known >= 0) {
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

static enum merak_status load_added(struct merak_json_loader *ld, json_t *added)
{
    size_t n = json_array_size(added), i;
    json_t *entry;

    ld->vocab->added = calloc(n + 1, sizeof(*ld->vocab->added));
    if (ld->vocab->added == NULL)
        return merak_fail_nomem(ld->err, n * sizeof(*ld->vocab->added));
    json_array_foreach(added, i, entry)
    {
        enum merak_status rc = add_token(ld, entry);

        if (rc != MERAK_OK)
            return rc;
    }
    return MERAK_OK;
}

enum merak_status merak_json_tokens(struct merak_json_loader *ld)
{
    json_t *added = json_object_get(ld->root, "added_tokens");
    enum merak_status rc;

    if (!merak_json_is_unset(added) && !json_is_array(added))
        return merak_json_malformed(ld, "added_tokens is not a list");
    set_alphabet(ld);
    rc = load_tokens(ld, added);
    return rc == MERAK_OK ? load_added(ld, added) : rc;
}
