/* SPDX-License-Identifier: Apache-2.0 */
/* cmd/eval_score.h - the losses of pairs of answers under a model
 *
 * A pair is evaluated by itself, so that it makes no difference to its losses
 * which task does it, and in which part.
 */
#ifndef MERAK_CMD_EVAL_SCORE_H
#define MERAK_CMD_EVAL_SCORE_H

#include <stdio.h>

#include "base/progress.h"
#include "cmd/language_model.h"
#include "io/tokens/reference.h"

struct merak_pair_tally {
    uint64_t pairs, preferred; /* preferred: the chosen answer is likelier */
    uint64_t tokens[2];        /* of chosen and rejected answers */
    double nll[2];
};

/* One document, with room for the longest. */
struct merak_scored {
    int32_t *id, *target;
    unsigned char *counted;
    float *loss; /* of each token */
    size_t n;
    size_t run; /* its first tokens, which the decoder has run */
};

struct merak_scorer {
    struct merak_lm *lm;
    struct merak_scored *doc[2]; /* the present one and the one before */
    uint64_t most;               /* tokens of a document that is scored */
    uint64_t too_long;           /* documents that are not */
    struct merak_reference_model model;
    struct merak_pair_tally tally;
    struct merak_progress progress;
    struct merak_error *err;
};

/* Where losses go: a reference, or the file of a part. */
struct merak_loss_sink {
    struct merak_reference_writer *writer;
    FILE *part;
};

enum merak_status merak_scored_create(size_t most, struct merak_scored **doc_p,
                                      struct merak_error *err) MERAK_CHECKED;
void merak_scored_destroy(struct merak_scored *d);
/* Of documents [first, end) of a file, which are pairs. */
enum merak_status
merak_score_pairs(struct merak_scorer *s, const struct merak_token_file *file,
                  uint64_t first, uint64_t end,
                  const struct merak_loss_sink *to) MERAK_CHECKED;

#endif
