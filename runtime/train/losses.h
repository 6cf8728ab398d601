/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/train/losses.h - what a step's losses are divided by, and their sums
 * over a rank's micro-batches
 */
#ifndef MERAK_RUNTIME_TRAIN_LOSSES_H
#define MERAK_RUNTIME_TRAIN_LOSSES_H

#include "io/tokens/tokens.h"
#include "merak/op.h"

struct merak_program;
struct merak_trainer;

enum {
    /* The loss; what one of pairs consists of, or several losses by number. */
    MERAK_STEP_LOSSES = 1 + MERAK_MAX_LOSSES,
    MERAK_STEP_SUM = MERAK_STEP_LOSSES + 2
};

struct merak_shares {
    double all;                     /* that gradients are divided by */
    double loss[MERAK_MAX_LOSSES];  /* that each loss is divided by */
    double scale[MERAK_MAX_LOSSES]; /* merak_step.loss_scale */
};
void merak_losses_shares(const struct merak_trainer *t, enum merak_split split,
                         uint64_t base, uint64_t n,
                         struct merak_shares *shares);
/* The sum of the losses that this rank reports, each divided by its shares: the
 * loss, or the weighted sum of several; behind it what one of pairs consists
 * of, or each of these; else zeros. */
void merak_losses_own(const struct merak_trainer *t,
                      const struct merak_program *p,
                      const struct merak_shares *shares,
                      double sum[MERAK_STEP_LOSSES]);
/* Is a validation's loss a mean of those of its global batches? */
bool merak_losses_are_of_means(const struct merak_trainer *t);
/* Say once of each loss that a step has none of it. */
void merak_losses_warn(struct merak_trainer *t,
                       const struct merak_shares *shares);
/* "  NAME 1.2345" of each of several losses, else "". */
const char *merak_losses_text(const struct merak_trainer *t,
                              const double part[MERAK_MAX_LOSSES], char *text,
                              size_t size);

#endif
