/* SPDX-License-Identifier: Apache-2.0 */
/* eval_score.c - the losses of pairs of answers under a model */
#include "config.h"

#include "cmd/eval_score.h"
#include "cmd/finish.h"

#include "base/error.h"
#include "io/file.h"

#include <stdlib.h>
#include <string.h>

enum merak_status merak_scored_create(size_t most, struct merak_scored **doc_p,
                                      struct merak_error *err)
{
    struct merak_scored *d = *doc_p = calloc(1, sizeof(*d));

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

void merak_scored_destroy(struct merak_scored *d)
{
    if (d == NULL)
        return;
    free(d->id);
    free(d->target);
    free(d->counted);
    free(d->loss);
    free(d);
}

static size_t common(const struct merak_scored *a, const struct merak_scored *b)
{
    size_t n = 0;

    while (n < a->n && n < b->n && a->id[n] == b->id[n])
        n++;
    return n;
}

/* Losses of the document's answer; what it has in common with the chosen one,
 * its prompt, the decoder still has. */
static enum merak_status score(struct merak_scorer *s)
{
    struct merak_scored *d = s->doc[0];
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

static enum merak_status score_document(struct merak_scorer *s,
                                        const struct merak_token_file *file,
                                        uint64_t at, uint64_t n)
{
    struct merak_scored *d = s->doc[1];
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

static enum merak_status put(const struct merak_loss_sink *to,
                             const float *loss, size_t n,
                             struct merak_error *err)
{
    if (to->part == NULL)
        return merak_reference_put(to->writer, loss, n, err);
    return fwrite(loss, sizeof(*loss), n, to->part) == n
               ? MERAK_OK
               : merak_file_fail(err, "write", "the losses of a part");
}

/* Losses in the file, of a document that is too long zeros. */
static enum merak_status put_document(const struct merak_loss_sink *to,
                                      const struct merak_scored *d, uint64_t n,
                                      struct merak_error *err)
{
    static const float none[4096];
    enum merak_status rc = MERAK_OK;

    if (d->n > 0)
        return put(to, d->loss, d->n, err);
    for (size_t part; rc == MERAK_OK && n > 0; n -= part) {
        part = n < 4096 ? (size_t)n : 4096;
        rc = put(to, none, part, err);
    }
    return rc;
}

/* A pair whose documents are both scored. */
static void count_pair(struct merak_pair_tally *t,
                       const struct merak_scored *const *pair)
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

enum merak_status merak_score_pairs(struct merak_scorer *s,
                                    const struct merak_token_file *file,
                                    uint64_t first, uint64_t end,
                                    const struct merak_loss_sink *to)
{
    enum merak_status rc = MERAK_OK;

    for (uint64_t d = first; rc == MERAK_OK && d < end; d++) {
        uint64_t n = file->begin[d + 1] - file->begin[d];

        if (d % 2 == 0)
            s->doc[0]->n = s->doc[0]->run = 0; /* of another pair */
        rc = merak_cmd_check_stop(s->err);
        if (rc == MERAK_OK)
            rc = score_document(s, file, file->begin[d], n);
        if (rc == MERAK_OK)
            rc = put_document(to, s->doc[0], n, s->err);
        if (rc == MERAK_OK && d % 2 == 1 && s->doc[0]->n > 0 &&
            s->doc[1]->n > 0)
            count_pair(&s->tally,
                       (const struct merak_scored *[]){s->doc[1], s->doc[0]});
        merak_progress_add(&s->progress, (double)n);
    }
    return rc;
}
