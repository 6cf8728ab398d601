/* SPDX-License-Identifier: Apache-2.0 */
/* spm.c - reading a SentencePiece model, tokenizer.model
 *
 * Such a file is a protocol buffer: fields in any order, each a number with a
 * kind (varint, 8 bytes, a length and that many bytes, 4 bytes) and its value.
 * In the model, field 1 is a piece, repeated in the order of ids (1 its text,
 * 2 its score, 3 its type); 2 is the training specification (3 the model's
 * type, 24 blanks after words, 35 byte fallback, 40 to 42 the ids of unknown,
 * begin and end); 3 is the normalizer (2 its map, 3 prepend a blank, 4
 * collapse blanks, 5 mark blanks).  Absent fields have defaults.
 *
 * BPE merges the adjacent pair whose piece has the best score, the leftmost of
 * equals: all pairs that make up a piece have its rank.
 */
#include "config.h"

#include "text/tokenizer/spm.h"
#include "text/tokenizer/vocab.h"

#include "base/error.h"
#include "base/open.h"
#include "text/tokenizer/unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE_BYTES ((size_t)1 << 28)
#define UNKNOWN_PENALTY 10.0f /* below the least likely piece */

enum model_type { MODEL_UNIGRAM = 1, MODEL_BPE };

struct spm {
    const char *path;
    unsigned char *file;
    struct merak_spm_piece *piece;
    size_t n, room;
    uint64_t model, suffix, byte_fallback;
    int64_t unknown, begin, end;
    uint64_t dummy_prefix, remove_extra, escape;
    const unsigned char *map;
    size_t map_bytes;
    struct merak_vocab *vocab;
    struct merak_error *err;
};

/* --- protocol buffers ---------------------------------------------------- */

struct span {
    const unsigned char *at, *end;
};

struct field {
    uint64_t number, value; /* of a varint, or the bits of 4 bytes */
    struct span bytes;      /* of kinds with a length */
};

static bool take_varint(struct span *s, uint64_t *value_p)
{
    uint64_t value = 0;

    for (int shift = 0; shift < 64 && s->at < s->end; shift += 7) {
        unsigned char byte = *s->at++;

        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *value_p = value;
            return true;
        }
    }
    return false;
}

/* False if the span does not begin with a field. */
static bool take_field(struct span *s, struct field *f)
{
    uint64_t key, n = 0;

    if (!take_varint(s, &key))
        return false;
    *f = (struct field){.number = key >> 3};
    switch (key & 7) {
    case 0:
        return take_varint(s, &f->value);
    case 1:
        n = 8;
        break;
    case 2:
        if (!take_varint(s, &n))
            return false;
        break;
    case 5:
        n = 4;
        break;
    default:
        return false;
    }
    if (n > (uint64_t)(s->end - s->at))
        return false;
    f->bytes = (struct span){s->at, s->at + n};
    if ((key & 7) == 5)
        memcpy(&f->value, s->at, 4);
    s->at += n;
    return true;
}

static enum merak_status damaged(struct spm *m, const char *what)
{
    return merak_fail(m->err, MERAK_ERR_FORMAT,
                      "%s: not a SentencePiece model: %s", m->path, what);
}

static enum merak_status unsupported(struct spm *m, const char *what)
{
    return merak_fail(m->err, MERAK_ERR_UNSUPPORTED, "%s: %s", m->path, what);
}

static enum merak_status add_piece(struct spm *m, struct span s)
{
    struct merak_spm_piece p = {.type = MERAK_SPM_NORMAL};
    struct field f;

    while (s.at < s.end) {
        uint32_t bits;

        if (!take_field(&s, &f))
            return damaged(m, "a piece ends early");
        if (f.number == 1) {
            p.text = f.bytes.at;
            p.n = (size_t)(f.bytes.end - f.bytes.at);
        } else if (f.number == 2) {
            bits = (uint32_t)f.value;
            memcpy(&p.score, &bits, sizeof(p.score));
        } else if (f.number == 3) {
            p.type = f.value;
        }
    }
    if (p.n == 0 || p.type < MERAK_SPM_NORMAL || p.type > MERAK_SPM_BYTE)
        return damaged(m, "a piece has no text, or a type that is not known");
    if (m->n == m->room) {
        size_t room = 2 * m->room + 1024;
        struct merak_spm_piece *more = realloc(m->piece, room * sizeof(*more));

        if (more == NULL)
            return merak_fail_nomem(m->err, room * sizeof(*more));
        m->piece = more;
        m->room = room;
    }
    m->piece[m->n++] = p;
    return MERAK_OK;
}

static enum merak_status read_trainer(struct spm *m, struct span s)
{
    struct field f;

    while (s.at < s.end) {
        if (!take_field(&s, &f))
            return damaged(m, "the trainer's settings end early");
        switch (f.number) {
        case 3:
            m->model = f.value;
            break;
        case 24:
            m->suffix = f.value;
            break;
        case 35:
            m->byte_fallback = f.value;
            break;
        case 40:
            m->unknown = (int32_t)f.value;
            break;
        case 41:
            m->begin = (int32_t)f.value;
            break;
        case 42:
            m->end = (int32_t)f.value;
            break;
        default:
            break;
        }
    }
    return MERAK_OK;
}

static enum merak_status read_normalizer(struct spm *m, struct span s)
{
    struct field f;

    while (s.at < s.end) {
        if (!take_field(&s, &f))
            return damaged(m, "the normalizer ends early");
        switch (f.number) {
        case 2:
            m->map = f.bytes.at;
            m->map_bytes = (size_t)(f.bytes.end - f.bytes.at);
            break;
        case 3:
            m->dummy_prefix = f.value;
            break;
        case 4:
            m->remove_extra = f.value;
            break;
        case 5:
            m->escape = f.value;
            break;
        default:
            break;
        }
    }
    return MERAK_OK;
}

static enum merak_status read_model(struct spm *m, struct span s)
{
    enum merak_status rc = MERAK_OK;
    struct field f;

    while (rc == MERAK_OK && s.at < s.end) {
        if (!take_field(&s, &f))
            return damaged(m, "it ends early");
        if (f.number == 1)
            rc = add_piece(m, f.bytes);
        else if (f.number == 2)
            rc = read_trainer(m, f.bytes);
        else if (f.number == 3)
            rc = read_normalizer(m, f.bytes);
    }
    return rc;
}

static enum merak_status check(struct spm *m)
{
    if (m->n == 0)
        return damaged(m, "it has no pieces");
    if (m->model != MODEL_UNIGRAM && m->model != MODEL_BPE)
        return unsupported(m, "a model of words or characters, supported: "
                              "Unigram and BPE");
    if (m->suffix != 0)
        return unsupported(m, "spaces after words, supported: before");
    if (m->map_bytes > 0 && !merak_spm_map_is_sound(m->map, m->map_bytes))
        return damaged(m, "the normalizer's map has no trie");
    if (m->unknown < 0 || (size_t)m->unknown >= m->n ||
        m->piece[m->unknown].type != MERAK_SPM_UNKNOWN)
        return damaged(m, "no piece for unknown text");
    if (m->begin >= (int64_t)m->n || m->end >= (int64_t)m->n)
        return damaged(m, "no piece begins or ends a text");
    for (size_t i = 0; i < m->n; i++) {
        if (m->piece[i].type == MERAK_SPM_UNUSED && m->model == MODEL_BPE)
            return unsupported(m, "BPE with unused pieces");
    }
    return MERAK_OK;
}

/* --- tokens -------------------------------------------------------------- */

/* Set the text of a piece: marks become blanks, "<0x0A>" the byte. */
static enum merak_status set_text(struct spm *m, size_t id,
                                  struct merak_token_text *token)
{
    const struct merak_spm_piece *p = &m->piece[id];
    size_t mark = strlen(MERAK_MARK), n = 0;
    unsigned byte;

    token->bytes = malloc(p->n + 1);
    if (token->bytes == NULL)
        return merak_fail_nomem(m->err, p->n + 1);
    for (size_t i = 0; i < p->n;) {
        bool blank =
            p->n - i >= mark && memcmp(p->text + i, MERAK_MARK, mark) == 0;

        token->bytes[n++] = blank ? ' ' : (char)p->text[i];
        i += blank ? mark : 1;
    }
    token->bytes[n] = '\0';
    token->n = n;
    if (p->type != MERAK_SPM_BYTE)
        return MERAK_OK;
    if (n != 6 || sscanf(token->bytes, "<0x%2X>", &byte) != 1)
        return damaged(m, "a byte's piece is not written as <0x0A>");
    token->bytes[0] = (char)byte;
    token->n = 1;
    return MERAK_OK;
}

/* Add pieces that are matched verbatim in a text, or never. */
static enum merak_status set_added(struct spm *m, size_t id)
{
    struct merak_added_token *added = &m->vocab->added[m->vocab->n_added];
    const struct merak_spm_piece *p = &m->piece[id];

    *added = (struct merak_added_token){
        .id = (int32_t)id,
        .normalized = true,
        .special = p->type != MERAK_SPM_USER_DEFINED,
    };
    m->vocab->n_added++;
    if (added->special)
        return MERAK_OK;
    added->text = malloc(p->n);
    if (added->text == NULL)
        return merak_fail_nomem(m->err, p->n);
    memcpy(added->text, p->text, p->n);
    added->n = p->n;
    return MERAK_OK;
}

static enum merak_status set_tokens(struct spm *m)
{
    struct merak_vocab *v = m->vocab;
    enum merak_status rc;

    v->token = calloc(m->n, sizeof(*v->token));
    v->added = calloc(m->n, sizeof(*v->added));
    if (v->token == NULL || v->added == NULL)
        return merak_fail_nomem(m->err, m->n * sizeof(*v->added));
    v->n = m->n;
    rc = merak_token_index_create(m->n, &v->index, m->err);
    for (size_t i = 0; i < m->n && rc == MERAK_OK; i++) {
        const struct merak_spm_piece *p = &m->piece[i];

        rc = set_text(m, i, &v->token[i]);
        if (rc == MERAK_OK && p->type == MERAK_SPM_NORMAL)
            rc = merak_token_index_add(v->index, p->text, p->n, (int32_t)i,
                                       m->err);
        else if (rc == MERAK_OK && p->type != MERAK_SPM_BYTE &&
                 p->type != MERAK_SPM_UNUSED)
            rc = set_added(m, i);
    }
    return rc;
}

static enum merak_status find_bytes(struct spm *m, int32_t byte_id[256])
{
    size_t found = 0;

    memset(byte_id, 0xff, 256 * sizeof(*byte_id));
    for (size_t i = 0; m->byte_fallback != 0 && i < m->n; i++) {
        unsigned char byte = (unsigned char)m->vocab->token[i].bytes[0];

        if (m->piece[i].type != MERAK_SPM_BYTE)
            continue;
        found += byte_id[byte] < 0;
        byte_id[byte] = (int32_t)i;
    }
    return m->byte_fallback == 0 || found == 256
               ? MERAK_OK
               : damaged(m, "byte fallback does not have all bytes");
}

/* --- merges -------------------------------------------------------------- */

struct ranked {
    float score;
    int32_t id;
};

static int best_first(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* All pairs that make up a piece; bpe NULL: count them. */
static size_t merge_pairs(const struct spm *m, const struct ranked *r,
                          uint32_t rank, struct merak_bpe *bpe)
{
    const struct merak_spm_piece *p = &m->piece[r->id];
    const struct merak_token_index *index = m->vocab->index;
    size_t pairs = 0;

    for (size_t cut = 1; cut < p->n; cut++) {
        int32_t left, right;

        if ((p->text[cut] & 0xc0) == 0x80)
            continue;
        left = merak_token_index_find(index, p->text, cut);
        right = merak_token_index_find(index, p->text + cut, p->n - cut);
        if (left < 0 || right < 0)
            continue;
        pairs++;
        if (bpe != NULL)
            merak_bpe_merge_ranked(bpe, left, right, r->id, rank);
    }
    return pairs;
}

static enum merak_status load_merges(struct spm *m, const struct ranked *r,
                                     size_t n)
{
    struct merak_bpe_options opt = {.chars = true,
                                    .unknown = (int32_t)m->unknown,
                                    .fuse_unknown = true,
                                    .index = m->vocab->index};
    enum merak_status rc = find_bytes(m, opt.byte_id);
    size_t pairs = 0;
    uint32_t rank = 0;

    for (size_t i = 0; i < n; i++)
        pairs += merge_pairs(m, &r[i], 0, NULL);
    if (rc == MERAK_OK)
        rc = merak_bpe_create(&opt, pairs, &m->vocab->bpe, m->err);
    for (size_t i = 0; i < n && rc == MERAK_OK; i++) {
        rank += i > 0 && r[i].score != r[i - 1].score;
        merge_pairs(m, &r[i], rank, m->vocab->bpe);
    }
    return rc;
}

static enum merak_status create_bpe(struct spm *m)
{
    struct ranked *r = calloc(m->n, sizeof(*r));
    enum merak_status rc;
    size_t n = 0;

    if (r == NULL)
        return merak_fail_nomem(m->err, m->n * sizeof(*r));
    for (size_t i = 0; i < m->n; i++) {
        if (m->piece[i].type == MERAK_SPM_NORMAL)
            r[n++] = (struct ranked){m->piece[i].score, (int32_t)i};
    }
    qsort(r, n, sizeof(*r), best_first);
    rc = load_merges(m, r, n);
    free(r);
    return rc;
}

static enum merak_status create_unigram(struct spm *m)
{
    double *score = calloc(m->n, sizeof(*score));
    struct merak_unigram_options opt = {.index = m->vocab->index,
                                        .score = score,
                                        .vocab = m->n,
                                        .single = true,
                                        .unknown = (int32_t)m->unknown};
    enum merak_status rc;
    bool first = true;
    float least = 0;

    if (score == NULL)
        return merak_fail_nomem(m->err, m->n * sizeof(*score));
    for (size_t i = 0; i < m->n; i++) {
        const struct merak_spm_piece *p = &m->piece[i];

        score[i] = (double)p->score;
        if (p->type != MERAK_SPM_NORMAL)
            continue;
        least = first || p->score < least ? p->score : least;
        first = false;
        opt.longest = p->n > opt.longest ? p->n : opt.longest;
    }
    opt.unknown_score = (double)(least - UNKNOWN_PENALTY);
    rc = find_bytes(m, opt.byte_id);
    if (rc == MERAK_OK)
        rc = merak_unigram_create(&opt, &m->vocab->unigram, m->err);
    free(score);
    return rc;
}

/* --- the file ------------------------------------------------------------ */

static enum merak_status set_rules(struct spm *m)
{
    struct merak_rules *rules = &m->vocab->rules;
    struct merak_spm_normal *normal = &rules->spm;

    rules->step[rules->n_steps++].kind = MERAK_NORMAL_SPM;
    normal->dummy_prefix = m->dummy_prefix != 0;
    normal->remove_extra = m->remove_extra != 0;
    normal->escape = m->escape != 0;
    rules->drop_blank = normal->dummy_prefix;
    if (m->begin >= 0)
        rules->before[rules->n_before++] = (int32_t)m->begin;
    m->vocab->eod = (int32_t)m->end;
    if (m->map_bytes == 0)
        return MERAK_OK;
    normal->map = malloc(m->map_bytes);
    if (normal->map == NULL)
        return merak_fail_nomem(m->err, m->map_bytes);
    memcpy(normal->map, m->map, m->map_bytes);
    normal->map_bytes = m->map_bytes;
    return MERAK_OK;
}

static enum merak_status read_file(struct spm *m, size_t *n_p)
{
    FILE *in = NULL;
    const char *why = merak_fopen_regular(m->path, &in);
    long n;

    if (why != NULL)
        return merak_fail(m->err, MERAK_ERR_NOT_FOUND, "%s: %s", m->path, why);
    fseek(in, 0, SEEK_END);
    n = ftell(in);
    rewind(in);
    if (n < 0 || (size_t)n > MAX_FILE_BYTES) {
        fclose(in);
        return damaged(m, "it is larger than 256 MiB");
    }
    m->file = malloc((size_t)n + 1);
    if (m->file != NULL)
        *n_p = fread(m->file, 1, (size_t)n, in);
    fclose(in);
    return m->file != NULL ? MERAK_OK : merak_fail_nomem(m->err, (size_t)n);
}

/* To be freed also after a failure. */
static enum merak_status open_model(struct spm *m, const char *path,
                                    struct merak_vocab *vocab,
                                    struct merak_error *err)
{
    size_t n = 0;
    enum merak_status rc;

    *m = (struct spm){.path = path,
                      .model = MODEL_UNIGRAM,
                      .begin = 1,
                      .end = 2,
                      .dummy_prefix = 1,
                      .remove_extra = 1,
                      .escape = 1,
                      .vocab = vocab,
                      .err = err};
    rc = read_file(m, &n);
    if (rc == MERAK_OK)
        rc = read_model(m, (struct span){m->file, m->file + n});
    return rc == MERAK_OK ? check(m) : rc;
}

enum merak_status merak_vocab_load_spm(const char *path,
                                       struct merak_vocab *vocab,
                                       struct merak_error *err)
{
    struct merak_vocab v = {.eod = -1};
    struct spm m;
    enum merak_status rc = open_model(&m, path, &v, err);

    if (rc == MERAK_OK)
        rc = set_tokens(&m);
    if (rc == MERAK_OK)
        rc = set_rules(&m);
    if (rc == MERAK_OK)
        rc = m.model == MODEL_BPE ? create_bpe(&m) : create_unigram(&m);
    free(m.piece);
    free(m.file);
    if (rc == MERAK_OK)
        *vocab = v;
    else
        merak_vocab_fini(&v);
    return rc;
}

enum merak_status merak_spm_read(const char *path, struct merak_spm *spm,
                                 struct merak_error *err)
{
    struct spm m;
    enum merak_status rc = open_model(&m, path, NULL, err);

    *spm = (struct merak_spm){.file = m.file,
                              .piece = m.piece,
                              .n = m.n,
                              .bpe = m.model == MODEL_BPE,
                              .prefix = m.dummy_prefix != 0,
                              .begin = m.begin,
                              .end = m.end,
                              .unknown = m.unknown};
    return rc;
}

void merak_spm_fini(struct merak_spm *spm)
{
    free(spm->piece);
    free(spm->file);
}
