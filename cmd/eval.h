/* SPDX-License-Identifier: Apache-2.0 */
/* cmd/eval.h - shared by the parts of `merak eval` */
#ifndef MERAK_CMD_EVAL_H
#define MERAK_CMD_EVAL_H

#include "cmd/language_model.h"
#include "io/tokens/tokens.h"

struct merak_eval {
    struct merak_lm_options lm;
    const char *data, *choices;
    size_t seq;
    double valid_fraction;
    uint64_t samples;
    enum merak_packing_kind packing;
    bool doc_mask;
    bool reference, json;
};

/*
 * Print log-likelihoods of the answers in a file of JSON lines, and how often
 * the right one is the likeliest.
 */
enum merak_status merak_eval_choices(const struct merak_eval *eval,
                                     struct merak_lm *lm,
                                     struct merak_error *err) MERAK_CHECKED;

/*
 * Keep the losses of pairs of answers beside each file of --data (reference.h),
 * and print how they compare.
 */
enum merak_status merak_eval_reference(const struct merak_eval *eval,
                                       struct merak_lm *lm,
                                       struct merak_error *err) MERAK_CHECKED;

#endif
