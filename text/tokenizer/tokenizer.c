/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.c - text to token ids and back
 *
 * A text is split at added tokens that are matched verbatim; each part between
 * is normalized, split at those that are matched in normalized text, and the
 * rest is prepared, split into pieces and merged (rules.h).
 */
#include "config.h"

#include "text/tokenizer/tokenizer.h"

#include "base/error.h"
#include "base/hub.h"
#include "text/tokenizer/unicode.h"
#include "text/tokenizer/vocab.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BATCH 4096 /* ids passed on at a time */
#define EOD_TEXT "<|endoftext|>"

struct merak_tokenizer {
    struct merak_vocab vocab; /* without index: the byte tokenizer */
    int32_t eod;
    bool *special; /* by id: not part of a text */
    struct merak_added_set *raw, *normalized;
    struct merak_buffer normal, prepared; /* scratch */
};

/* One encoding: where the ids go. */
struct encoding {
    struct merak_tokenizer *tok;
    merak_ids_fn sink;
    void *arg;
    struct merak_error *err;
    const unsigned char *text; /* being split */
    bool first;                /* it begins the whole text */
    size_t n;
    int32_t id[BATCH];
};

/* --- opening ----------------------------------------------------------- */

/* Names of the token that ends a document, in order of preference. */
static const char *const eod_texts[] = {
    EOD_TEXT, "<|end_of_text|>", "</s>", "<|eos|>", "<eos>", "[EOS]",
};

static void find_eod(struct merak_tokenizer *tok)
{
    const struct merak_vocab *v = &tok->vocab;

    for (size_t t = 0; t < sizeof(eod_texts) / sizeof(*eod_texts); t++) {
        for (size_t i = 0; i < v->n_added && tok->eod < 0; i++) {
            const char *text = v->token[v->added[i].id].bytes;

            if (strcmp(text, eod_texts[t]) == 0)
                tok->eod = v->added[i].id;
        }
    }
}

static enum merak_status index_added(struct merak_tokenizer *tok,
                                     struct merak_error *err)
{
    const struct merak_vocab *v = &tok->vocab;
    enum merak_status rc;

    tok->special = calloc(v->n + 1, sizeof(*tok->special));
    if (tok->special == NULL)
        return merak_fail_nomem(err, v->n);
    for (size_t i = 0; i < v->n_added; i++)
        tok->special[v->added[i].id] = v->added[i].special;
    rc = merak_added_set_create(v->added, v->n_added, false, &tok->raw, err);
    return rc == MERAK_OK ? merak_added_set_create(v->added, v->n_added, true,
                                                   &tok->normalized, err)
                          : rc;
}

/* Make the tokenizer "byte": 256 bytes and the end of a document. */
static enum merak_status make_bytes(struct merak_tokenizer *tok,
                                    struct merak_error *err)
{
    struct merak_vocab *v = &tok->vocab;

    v->n = 257;
    v->eod = 256;
    v->token = calloc(v->n, sizeof(*v->token));
    if (v->token == NULL)
        return merak_fail_nomem(err, v->n * sizeof(*v->token));
    for (size_t id = 0; id < v->n; id++) {
        char byte[2] = {(char)id, '\0'};

        v->token[id].n = id < 256 ? 1 : strlen(EOD_TEXT);
        v->token[id].bytes = id < 256 ? malloc(2) : strdup(EOD_TEXT);
        if (v->token[id].bytes == NULL)
            return merak_fail_nomem(err, 2);
        if (id < 256)
            memcpy(v->token[id].bytes, byte, sizeof(byte));
    }
    return MERAK_OK;
}

/* What is put around a text is not in a SentencePiece model, but next to it:
 * as in transformers the token that begins a text is, unless add_bos_token is
 * false, and the one that ends it is not, unless add_eos_token is true.  (A
 * tokenizer.json says it itself, and these fields are then not read.) */
static void read_around(struct merak_vocab *v, const char *path)
{
    const char *slash = strrchr(path, '/');
    char file[4096];
    json_t *root;

    snprintf(file, sizeof(file), "%.*stokenizer_config.json",
             slash == NULL ? 0 : (int)(slash + 1 - path), path);
    root = json_load_file(file, 0, NULL);
    if (json_is_false(json_object_get(root, "add_bos_token")))
        v->rules.n_before = 0;
    if (json_is_true(json_object_get(root, "add_eos_token")) && v->eod >= 0)
        v->rules.after[v->rules.n_after++] = v->eod;
    json_decref(root);
}

/* Load *.model as SentencePiece's, anything else as a tokenizer.json. */
static enum merak_status load_path(struct merak_tokenizer *tok,
                                   const char *path, struct merak_error *err)
{
    size_t n = strlen(path);
    bool named = n >= 6 && strcmp(path + n - 6, ".model") == 0;

    enum merak_status rc;

    if (!named)
        return merak_vocab_load(path, &tok->vocab, err);
    rc = merak_vocab_load_spm(path, &tok->vocab, err);
    if (rc == MERAK_OK)
        read_around(&tok->vocab, path);
    return rc;
}

/* Load the file, or the one in the folder. */
static enum merak_status load_file(struct merak_tokenizer *tok,
                                   const char *name, struct merak_error *err)
{
    static const char *const files[] = {"tokenizer.json", "tokenizer.model"};
    char path[PATH_MAX], room[PATH_MAX];
    const char *given = name;
    struct stat st;

    name = merak_hub_path(given, room);
    if (access(name, F_OK) != 0 && errno == ENOENT)
        return merak_fail_no_path(err, "tokenizer", given,
                                  "byte, a tokenizer.json or tokenizer.model, "
                                  "or a folder that has one");
    if (stat(name, &st) != 0 || !S_ISDIR(st.st_mode))
        return load_path(tok, name, err);
    for (size_t i = 0; i < 2; i++) {
        if (snprintf(path, sizeof(path), "%s/%s", name, files[i]) >=
            (int)sizeof(path))
            return merak_fail(err, MERAK_ERR_CONFIG, "%.60s..: path too long",
                              name);
        if (stat(path, &st) == 0)
            return load_path(tok, path, err);
    }
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "%s: neither tokenizer.json nor tokenizer.model is there",
                      name);
}

enum merak_status merak_tokenizer_open(const char *name,
                                       struct merak_tokenizer **tok_p,
                                       struct merak_error *err)
{
    struct merak_tokenizer *tok = calloc(1, sizeof(*tok));
    enum merak_status rc;

    if (tok == NULL)
        return merak_fail_nomem(err, sizeof(*tok));
    tok->eod = -1;
    rc = strcmp(name, "byte") == 0 ? make_bytes(tok, err)
                                   : load_file(tok, name, err);
    if (rc == MERAK_OK)
        rc = index_added(tok, err);
    if (rc != MERAK_OK) {
        merak_tokenizer_close(tok);
        return rc;
    }
    tok->eod = tok->vocab.eod;
    find_eod(tok);
    if (tok->eod >= 0)
        tok->special[tok->eod] = true;
    *tok_p = tok;
    return MERAK_OK;
}

void merak_tokenizer_close(struct merak_tokenizer *tok)
{
    if (tok == NULL)
        return;
    merak_added_set_destroy(tok->raw);
    merak_added_set_destroy(tok->normalized);
    merak_vocab_fini(&tok->vocab);
    free(tok->special);
    free(tok->normal.text);
    free(tok->prepared.text);
    free(tok);
}

size_t merak_tokenizer_vocab(const struct merak_tokenizer *tok)
{
    return tok->vocab.n;
}

uint64_t merak_tokenizer_left_out(const struct merak_tokenizer *tok)
{
    return tok->vocab.bpe == NULL ? 0 : merak_bpe_left_out(tok->vocab.bpe);
}

int32_t merak_tokenizer_eod(const struct merak_tokenizer *tok)
{
    return tok->eod;
}

bool merak_tokenizer_is_special(const struct merak_tokenizer *tok, int32_t id)
{
    return id >= 0 && (size_t)id < tok->vocab.n && tok->special[id];
}

/* --- encoding ---------------------------------------------------------- */

static enum merak_status flush(struct encoding *e)
{
    size_t n = e->n;

    e->n = 0;
    return n > 0 ? e->sink(e->arg, e->id, n, e->err) : MERAK_OK;
}

static enum merak_status emit(struct encoding *e, const int32_t *ids, size_t n)
{
    while (n > 0) {
        size_t part = BATCH - e->n < n ? BATCH - e->n : n;

        memcpy(e->id + e->n, ids, part * sizeof(*ids));
        e->n += part;
        ids += part;
        n -= part;
        if (e->n == BATCH) {
            enum merak_status rc = flush(e);

            if (rc != MERAK_OK)
                return rc;
        }
    }
    return MERAK_OK;
}

static enum merak_status encode_piece(void *arg, const unsigned char *piece,
                                      size_t n, struct merak_error *err)
{
    struct encoding *e = arg;
    const int32_t *ids;
    size_t n_ids;
    struct merak_vocab *v = &e->tok->vocab;
    enum merak_status rc =
        v->unigram != NULL
            ? merak_unigram_encode(v->unigram, piece, n, &ids, &n_ids, err)
            : merak_bpe_encode(v->bpe, piece, n, &ids, &n_ids, err);

    return rc == MERAK_OK ? emit(e, ids, n_ids) : rc;
}

static enum merak_status
encode_part(struct encoding *e, const unsigned char *text, size_t n, bool first)
{
    const struct merak_rules *rules = &e->tok->vocab.rules;
    struct merak_buffer *room = &e->tok->prepared;
    enum merak_status rc;

    if (!merak_rules_prepares(rules))
        return merak_rules_cut(rules, text, n, encode_piece, e, e->err);
    room->n = 0;
    rc = merak_rules_prepare(rules, text, n, first, room, e->err);
    return rc == MERAK_OK ? merak_rules_cut(rules, room->text, room->n,
                                            encode_piece, e, e->err)
                          : rc;
}

/* Encode text between added tokens of both kinds. */
static enum merak_status
encode_text(struct encoding *e, const unsigned char *text, size_t n, bool first)
{
    enum merak_status rc = MERAK_OK;
    size_t from, word;

    if (!e->tok->vocab.rules.words)
        return encode_part(e, text, n, first);
    for (size_t at = 0; at < n && rc == MERAK_OK; at += from + word) {
        word = merak_rules_word(text + at, n - at, &from);
        if (word > 0)
            rc =
                encode_part(e, text + at + from, word, first && at + from == 0);
    }
    return rc;
}

static enum merak_status take_normalized(void *arg,
                                         const struct merak_added_part *part,
                                         struct merak_error *err)
{
    struct encoding *e = arg;

    (void)err; /* e->err */
    if (part->token != NULL)
        return emit(e, &part->token->id, 1);
    return encode_text(e, e->text + part->from, part->end - part->from,
                       e->first && part->from == 0);
}

static enum merak_status take_raw(void *arg,
                                  const struct merak_added_part *part,
                                  struct merak_error *err)
{
    struct encoding *e = arg;
    const unsigned char *whole = e->text;
    struct merak_buffer *room = &e->tok->normal;
    enum merak_status rc;

    if (part->token != NULL)
        return emit(e, &part->token->id, 1);
    e->first = part->from == 0;
    if (e->tok->vocab.rules.n_steps == 0) {
        e->text += part->from;
        rc = merak_added_cut(e->tok->normalized, e->text,
                             part->end - part->from, take_normalized, e, err);
    } else {
        room->n = 0;
        rc = merak_rules_normalize(&e->tok->vocab.rules, whole + part->from,
                                   part->end - part->from, room, err);
        e->text = room->text;
        if (rc == MERAK_OK)
            rc = merak_added_cut(e->tok->normalized, room->text, room->n,
                                 take_normalized, e, err);
    }
    e->text = whole;
    return rc;
}

static enum merak_status encode_bytes(struct encoding *e,
                                      const unsigned char *text, size_t n)
{
    enum merak_status rc = MERAK_OK;

    for (size_t i = 0; rc == MERAK_OK && i < n; i++)
        rc = emit(e, &(int32_t){text[i]}, 1);
    return rc;
}

static enum merak_status encode(struct encoding *e, const void *text, size_t n)
{
    e->text = text;
    return e->tok->vocab.index == NULL
               ? encode_bytes(e, text, n)
               : merak_added_cut(e->tok->raw, text, n, take_raw, e, e->err);
}

enum merak_status merak_tokenizer_encode(struct merak_tokenizer *tok,
                                         const void *text, size_t n,
                                         merak_ids_fn sink, void *arg,
                                         struct merak_error *err)
{
    struct encoding e = {.tok = tok, .sink = sink, .arg = arg, .err = err};
    enum merak_status rc = encode(&e, text, n);

    return rc == MERAK_OK ? flush(&e) : rc;
}

enum merak_status merak_tokenizer_encode_whole(struct merak_tokenizer *tok,
                                               const void *text, size_t n,
                                               merak_ids_fn sink, void *arg,
                                               struct merak_error *err)
{
    const struct merak_rules *rules = &tok->vocab.rules;
    struct encoding e = {.tok = tok, .sink = sink, .arg = arg, .err = err};
    enum merak_status rc = emit(&e, rules->before, (size_t)rules->n_before);

    if (rc == MERAK_OK)
        rc = encode(&e, text, n);
    if (rc == MERAK_OK)
        rc = emit(&e, rules->after, (size_t)rules->n_after);
    return rc == MERAK_OK ? flush(&e) : rc;
}

/* --- decoding ---------------------------------------------------------- */

enum merak_status merak_tokenizer_decode(const struct merak_tokenizer *tok,
                                         int32_t id, const char **text_p,
                                         size_t *n_p, struct merak_error *err)
{
    if (id < 0 || (size_t)id >= tok->vocab.n ||
        tok->vocab.token[id].bytes == NULL)
        return merak_fail(err, MERAK_ERR_PARAM, "no token has id %d", (int)id);
    *text_p = tok->vocab.token[id].bytes;
    *n_p = tok->vocab.token[id].n;
    return MERAK_OK;
}

void merak_text_begin(struct merak_text *text,
                      const struct merak_tokenizer *tok)
{
    *text = (struct merak_text){.tok = tok};
}

/* How many of the bytes are complete characters: all except an incomplete last
 * one.  Bytes that are not UTF-8 count as complete. */
static size_t whole_bytes(const char *bytes, size_t n)
{
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = (unsigned char)bytes[n - back];
        size_t wanted = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 1;

        if ((c & 0xc0) == 0x80)
            continue;
        return c < 0xf5 && wanted > back ? n - back : n;
    }
    return n;
}

enum merak_status merak_text_add(struct merak_text *text, int32_t id,
                                 const char **bytes_p, size_t *n_p,
                                 struct merak_error *err)
{
    const char *bytes = "";
    size_t n = 0, whole;
    enum merak_status rc =
        merak_tokenizer_decode(text->tok, id, &bytes, &n, err);

    if (rc != MERAK_OK)
        return rc;
    if (text->tok->special[id])
        n = 0;
    if (!text->begun && text->tok->vocab.rules.drop_blank && n > 0 &&
        bytes[0] == ' ') {
        bytes++;
        n--;
    }
    text->begun = text->begun || !text->tok->special[id];
    if (text->n_held + n > text->room_bytes) {
        size_t room = 2 * (text->n_held + n) + 32;
        char *more = realloc(text->room, room);

        if (more == NULL)
            return merak_fail_nomem(err, room);
        text->room = more;
        text->room_bytes = room;
    }
    if (text->n_held + n == 0) {
        *bytes_p = "";
        *n_p = 0;
        return MERAK_OK;
    }
    memcpy(text->room, text->held, text->n_held);
    memcpy(text->room + text->n_held, bytes, n);
    n += text->n_held;
    whole = whole_bytes(text->room, n);
    text->n_held = n - whole;
    memcpy(text->held, text->room + whole, text->n_held);
    *bytes_p = text->room;
    *n_p = whole;
    return MERAK_OK;
}

const char *merak_text_end(struct merak_text *text, size_t *n_p)
{
    *n_p = text->n_held;
    text->n_held = 0;
    return text->held;
}

void merak_text_fini(struct merak_text *text)
{
    free(text->room);
    text->room = NULL;
    text->room_bytes = 0;
}
