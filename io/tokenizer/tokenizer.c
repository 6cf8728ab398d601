/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.c - text to token ids and back
 *
 * A text passes through levels, each cutting it for the next: added tokens
 * that are not normalized, those that are, then pieces.  At each level the
 * leftmost added token is taken, the longest of those that begin there.
 */
#include "config.h"

#include "io/tokenizer/tokenizer.h"

#include "base/error.h"
#include "io/tokenizer/json.h"

#include <stdlib.h>
#include <string.h>

#define BATCH 4096 /* ids handed on at a time */
#define EOD_TEXT "<|endoftext|>"

enum level { LEVEL_RAW, LEVEL_NORMALIZED, LEVEL_PIECES };

struct merak_tokenizer {
    struct merak_vocab vocab; /* without merges: the byte tokenizer */
    int32_t eod;
    /* Does an added token of this level begin with this byte? */
    bool begins[LEVEL_PIECES][256];
    bool has[LEVEL_PIECES];
};

/* One encoding: where the ids go. */
struct encoding {
    struct merak_tokenizer *tok;
    merak_ids_fn sink;
    void *arg;
    struct merak_error *err;
    size_t n;
    int32_t id[BATCH];
};

/* --- opening ----------------------------------------------------------- */

static const struct merak_token_text *added_text(const struct merak_vocab *v,
                                                 size_t i)
{
    return &v->token[v->added[i].id];
}

static void index_added(struct merak_tokenizer *tok)
{
    for (size_t i = 0; i < tok->vocab.n_added; i++) {
        const struct merak_token_text *t = added_text(&tok->vocab, i);
        enum level level =
            tok->vocab.added[i].normalized ? LEVEL_NORMALIZED : LEVEL_RAW;

        tok->has[level] = true;
        tok->begins[level][(unsigned char)t->bytes[0]] = true;
        if (strcmp(t->bytes, EOD_TEXT) == 0)
            tok->eod = tok->vocab.added[i].id;
    }
}

/* The ids of "byte": 256 bytes and the end of a document. */
static enum merak_status make_bytes(struct merak_tokenizer *tok,
                                    struct merak_error *err)
{
    struct merak_vocab *v = &tok->vocab;

    v->n = 257;
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
    tok->eod = 256;
    return MERAK_OK;
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
                                   : merak_vocab_load(name, &tok->vocab, err);
    if (rc != MERAK_OK) {
        merak_tokenizer_close(tok);
        return rc;
    }
    index_added(tok);
    *tok_p = tok;
    return MERAK_OK;
}

void merak_tokenizer_close(struct merak_tokenizer *tok)
{
    if (tok == NULL)
        return;
    merak_vocab_fini(&tok->vocab);
    free(tok);
}

size_t merak_tokenizer_vocab(const struct merak_tokenizer *tok)
{
    return tok->vocab.n;
}

int32_t merak_tokenizer_eod(const struct merak_tokenizer *tok)
{
    return tok->eod;
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

/* The longest added token of a level that text begins with, or NULL. */
static const struct merak_added_token *
match_added(const struct merak_tokenizer *tok, enum level level,
            const unsigned char *text, size_t n)
{
    const struct merak_vocab *v = &tok->vocab;
    const struct merak_added_token *best = NULL;
    size_t longest = 0;

    for (size_t i = 0; i < v->n_added; i++) {
        const struct merak_token_text *t = added_text(v, i);

        if (v->added[i].normalized == (level == LEVEL_NORMALIZED) &&
            t->n <= n && t->n > longest && memcmp(t->bytes, text, t->n) == 0) {
            best = &v->added[i];
            longest = t->n;
        }
    }
    return best;
}

static enum merak_status encode_pieces(struct encoding *e,
                                       const unsigned char *text, size_t n)
{
    while (n > 0) {
        size_t bytes = merak_piece(text, n), n_ids;
        const int32_t *ids;
        enum merak_status rc = merak_bpe_encode(e->tok->vocab.bpe, text, bytes,
                                                &ids, &n_ids, e->err);

        if (rc == MERAK_OK)
            rc = emit(e, ids, n_ids);
        if (rc != MERAK_OK)
            return rc;
        text += bytes;
        n -= bytes;
    }
    return MERAK_OK;
}

static enum merak_status encode_level(struct encoding *e, int level,
                                      const unsigned char *text, size_t n)
{
    enum merak_status rc = MERAK_OK;
    size_t from = 0;

    if (level == LEVEL_PIECES)
        return encode_pieces(e, text, n);
    for (size_t i = 0; e->tok->has[level] && i < n; i++) {
        const struct merak_added_token *t;

        if (!e->tok->begins[level][text[i]])
            continue;
        t = match_added(e->tok, (enum level)level, text + i, n - i);
        if (t == NULL)
            continue;
        rc = encode_level(e, level + 1, text + from, i - from);
        if (rc == MERAK_OK)
            rc = emit(e, &t->id, 1);
        if (rc != MERAK_OK)
            return rc;
        from = i + e->tok->vocab.token[t->id].n;
        i = from - 1;
    }
    return encode_level(e, level + 1, text + from, n - from);
}

static enum merak_status encode_bytes(struct encoding *e,
                                      const unsigned char *text, size_t n)
{
    enum merak_status rc = MERAK_OK;

    for (size_t i = 0; rc == MERAK_OK && i < n; i++)
        rc = emit(e, &(int32_t){text[i]}, 1);
    return rc;
}

enum merak_status merak_tokenizer_encode(struct merak_tokenizer *tok,
                                         const void *text, size_t n,
                                         merak_ids_fn sink, void *arg,
                                         struct merak_error *err)
{
    struct encoding e = {.tok = tok, .sink = sink, .arg = arg, .err = err};
    enum merak_status rc;

    rc = tok->vocab.bpe == NULL ? encode_bytes(&e, text, n)
                                : encode_level(&e, LEVEL_RAW, text, n);
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
