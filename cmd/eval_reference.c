/* SPDX-License-Identifier: Apache-2.0 */
/* eval_reference.c - what a model makes of pairs of answers, kept beside them
 * as the reference that training on preferences starts from
 */
#include "config.h"

#include "cmd/eval.h"
#include "cmd/finish.h"

#include "base/error.h"
#include "base/json_number.h"
#include "base/progress.h"
#include "io/tokens/reference.h"
#include "io/tokens/spec.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tally {
    uint64_t pairs, preferred; /* preferred: the chosen answer is likelier */
    uint64_t tokens[2];        /* of chosen and rejected answers */
    double nll[2];
};

/* One document, with room for the longest. */
struct document {
    int32_t *id, *target;
    unsigned char *counted;
    float *loss; /* of each token */
    size_t n;
    size_t run; /* its first tokens, which the decoder has run */
};

struct scorer {
    struct merak_lm *lm;
    struct document *doc[2]; /* the present one and the one before */
    uint64_t most;           /* tokens of a document that is scored */
    uint64_t too_long;       /* documents that are not */
    struct tally tally;
    struct merak_progress progress;
    struct merak_error *err;
};

static enum merak_status document_create(size_t most, struct document **doc_p,
                                         struct merak_error *err)
{
    struct document *d = *doc_p = calloc(1, sizeof(*d));

    if (d == NULL)
        return merak_fail_nomem(err, sizeof(*d));
    d->id = calloc(most, sizeof(*d->id));
    d->target = calloc(most, sizeof(*d->target));
    d->counted = calloc(most, 1);
    d->loss = calloc(most, sizeof(*d->loss));
    return d->id != NULL && d->target != NULL && d->counted != NULL &&
                   d->loss != NULL
               ? MERAK_OK
               : merak_fail_nomem(err, most * sizeof(*d->id));
}

static void document_destroy(struct document *d)
{
    if (d == NULL)
        return;
    free(d->id);
    free(d->target);
    free(d->counted);
    free(d->loss);
    free(d);
}

static size_t common(const struct document *a, const struct document *b)
{
    size_t n = 0;

    while (n < a->n && n < b->n && a->id[n] == b->id[n])
        n++;
    return n;
}

/* Losses of the document's answer; what it has in common with the one before,
 * its prompt, the decoder still has. */
static enum merak_status score(struct scorer *s)
{
    struct document *d = s->doc[0];
    size_t kept = common(d, s->doc[1]), first = 1;
    enum merak_status rc = MERAK_OK;

    kept = kept < s->doc[1]->run ? kept : s->doc[1]->run;
    d->run = kept;
    while (first < d->n && !d->counted[first])
        first++;
    if (first == d->n)
        return MERAK_OK;
    for (size_t i = 0; i + 1 < d->n; i++)
        d->target[i] = d->counted[i + 1] ? d->id[i + 1] : MERAK_NO_TARGET;
    kept = kept < first - 1 ? kept : first - 1;
    d->run = d->n - 1;
    merak_decoder_rewind(s->lm->decoder, kept);
    if (kept < first - 1)
        rc = merak_decoder_next(s->lm->decoder, d->id + kept, first - 1 - kept,
                                NULL, s->err);
    return rc == MERAK_OK
               ? merak_decoder_score(s->lm->decoder, d->id + first - 1,
                                     d->target + first - 1, d->n - first,
                                     d->loss + first, s->err)
               : rc;
}

static enum merak_status score_document(struct scorer *s,
                                        const struct merak_token_file *file,
                                        uint64_t at, uint64_t n)
{
    struct document *d = s->doc[1];
    enum merak_status rc;

    s->doc[1] = s->doc[0];
    s->doc[0] = d;
    d->n = n <= s->most ? (size_t)n : 0;
    d->run = 0;
    s->too_long += d->n == 0;
    if (d->n == 0)
        return MERAK_OK;
    memset(d->loss, 0, d->n * sizeof(*d->loss));
    rc = merak_token_file_read(file, at, d->n, s->lm->config.vocab, d->id,
                               s->err);
    if (rc == MERAK_OK)
        rc = merak_mask_read(file->mask, at, d->n, d->counted, s->err);
    return rc == MERAK_OK ? score(s) : rc;
}

/* Losses in the file, of a document that is too long zeros. */
static enum merak_status put_document(struct merak_reference_writer *writer,
                                      const struct document *d, uint64_t n,
                                      struct merak_error *err)
{
    static const float none[4096];
    enum merak_status rc = MERAK_OK;

    if (d->n > 0)
        return merak_reference_put(writer, d->loss, d->n, err);
    for (size_t part; rc == MERAK_OK && n > 0; n -= part) {
        part = n < 4096 ? (size_t)n : 4096;
        rc = merak_reference_put(writer, none, part, err);
    }
    return rc;
}

/* A pair whose documents are both scored. */
static void count_pair(struct tally *t, const struct document *const *pair)
{
    double nll[2] = {0, 0};

    for (int k = 0; k < 2; k++) {
        for (size_t i = 1; i < pair[k]->n; i++) {
            nll[k] += (double)pair[k]->loss[i];
            t->tokens[k] += pair[k]->counted[i];
        }
        t->nll[k] += nll[k];
    }
    t->pairs++;
    t->preferred += nll[0] < nll[1];
}

static enum merak_status score_file(struct scorer *s,
                                    const struct merak_token_file *file)
{
    struct merak_reference_writer *writer = NULL;
    enum merak_status rc = merak_reference_create(file, &writer, s->err);

    for (uint64_t d = 0; rc == MERAK_OK && d < file->documents; d++) {
        uint64_t n = file->begin[d + 1] - file->begin[d];

        rc = merak_cmd_check_stop(s->err);
        if (rc == MERAK_OK)
            rc = score_document(s, file, file->begin[d], n);
        if (rc == MERAK_OK)
            rc = put_document(writer, s->doc[0], n, s->err);
        if (rc == MERAK_OK && d % 2 == 1 && s->doc[0]->n > 0 &&
            s->doc[1]->n > 0)
            count_pair(&s->tally,
                       (const struct document *[]){s->doc[1], s->doc[0]});
        merak_progress_add(&s->progress, (double)n);
    }
    if (rc == MERAK_OK)
        rc = merak_reference_commit(writer, s->most, s->err);
    merak_reference_destroy(writer);
    return rc;
}

/* --- all files --------------------------------------------------------------
 */

struct files {
    struct merak_token_file *file;
    size_t n;
};

/* Is there a pair of which both documents have at most so many tokens? */
static bool has_pair(const struct files *files, uint64_t most)
{
    for (size_t f = 0; f < files->n; f++) {
        const uint64_t *begin = files->file[f].begin;

        for (uint64_t d = 0; d + 1 < files->file[f].documents; d += 2) {
            if (begin[d + 1] - begin[d] <= most &&
                begin[d + 2] - begin[d + 1] <= most)
                return true;
        }
    }
    return false;
}

/* Open them, and find the tokens of all and of the longest document. */
static enum merak_status open_files(const char *path, struct files *files,
                                    uint64_t *tokens, uint64_t *longest,
                                    struct merak_error *err)
{
    enum merak_status rc =
        merak_token_files_open(path, &files->file, &files->n, err);

    for (size_t f = 0; rc == MERAK_OK && f < files->n; f++) {
        struct merak_token_file *file = &files->file[f];

        rc = merak_token_file_require_pairs(file, err);
        if (rc == MERAK_OK)
            rc = merak_token_file_documents(file, err);
        *tokens += file->tokens;
        for (uint64_t d = 0; rc == MERAK_OK && d < file->documents; d++) {
            uint64_t n = file->begin[d + 1] - file->begin[d];

            *longest = n > *longest ? n : *longest;
        }
    }
    return rc;
}

/* Longer documents than the model's positions are of no use, nor, if --seq is
 * given, than a sequence of training. */
static uint64_t most_tokens(const struct merak_eval *eval,
                            const struct merak_lm *lm, uint64_t longest)
{
    uint64_t most = eval->seq > 0 ? eval->seq : lm->config.positions;

    return most > 0 && most < longest ? most : longest;
}

static void print_tally(const struct merak_eval *eval, const struct scorer *s)
{
    const struct tally *t = &s->tally;
    struct merak_json_number a, b, c;
    double share = t->pairs > 0 ? (double)t->preferred / (double)t->pairs : 0;
    double mean[2];

    for (int k = 0; k < 2; k++)
        mean[k] = t->tokens[k] > 0 ? t->nll[k] / (double)t->tokens[k] : 0;
    if (eval->json) {
        printf("{\"pairs\": %" PRIu64 ", \"too_long\": %" PRIu64
               ", \"chosen_loss\": %s, \"rejected_loss\": %s, "
               "\"preferred\": %s}\n",
               t->pairs, s->too_long, merak_json_number(&a, 9, mean[0]),
               merak_json_number(&b, 9, mean[1]),
               merak_json_number(&c, 9, share));
        return;
    }
    printf("chosen answers    %.4f nats a token\n"
           "rejected answers  %.4f nats a token\n"
           "chosen likelier   %.1f %% of %" PRIu64 " pairs\n",
           mean[0], mean[1], 100 * share, t->pairs);
    if (s->too_long > 0)
        printf("left out          %" PRIu64 " documents of more than %" PRIu64
               " tokens\n",
               s->too_long, s->most);
}

static enum merak_status score_all(const struct merak_eval *eval,
                                   struct scorer *s, const struct files *files,
                                   size_t n, uint64_t tokens)
{
    enum merak_status rc =
        merak_lm_load(s->lm, &eval->lm, (size_t)s->most, false, s->err);

    merak_progress_init(&s->progress, stderr, "reference", "tokens",
                        (double)tokens);
    for (size_t k = 0; k < n; k++) {
        for (size_t f = 0; rc == MERAK_OK && f < files[k].n; f++)
            rc = score_file(s, &files[k].file[f]);
    }
    merak_progress_clear(&s->progress);
    return rc;
}

enum merak_status merak_eval_reference(const struct merak_eval *eval,
                                       struct merak_lm *lm,
                                       struct merak_error *err)
{
    struct scorer s = {.lm = lm, .err = err};
    struct merak_data_spec spec = {0};
    struct files *files = NULL;
    uint64_t tokens = 0, longest = 0;
    bool any = false;
    enum merak_status rc = merak_data_spec_parse(eval->data, &spec, err);

    if (rc == MERAK_OK) {
        files = calloc(spec.n, sizeof(*files));
        rc = files != NULL ? MERAK_OK
                           : merak_fail_nomem(err, spec.n * sizeof(*files));
    }
    for (size_t k = 0; rc == MERAK_OK && k < spec.n; k++)
        rc = open_files(spec.path[k], &files[k], &tokens, &longest, err);
    s.most = most_tokens(eval, lm, longest);
    for (size_t k = 0; rc == MERAK_OK && k < spec.n; k++)
        any = any || has_pair(&files[k], s.most);
    if (rc == MERAK_OK && !any)
        rc = merak_fail(err, MERAK_ERR_MISMATCH,
                        "--data has no pair of answers of at most %" PRIu64
                        " tokens: the longest document has %" PRIu64,
                        s.most, longest);
    for (int k = 0; rc == MERAK_OK && k < 2; k++)
        rc = document_create((size_t)s.most, &s.doc[k], err);
    if (rc == MERAK_OK) {
        merak_cmd_catch_stops();
        rc = score_all(eval, &s, files, spec.n, tokens);
    }
    if (rc == MERAK_OK)
        print_tally(eval, &s);
    for (int k = 0; k < 2; k++)
        document_destroy(s.doc[k]);
    for (size_t k = 0; files != NULL && k < spec.n; k++)
        merak_token_files_close(files[k].file, files[k].n);
    free(files);
    merak_data_spec_fini(&spec);
    return rc;
}
