/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/infer/logit_rules.h - what a model's folder forbids or makes less
 * likely, as transformers does before it chooses a token */
#ifndef MERAK_RUNTIME_INFER_LOGIT_RULES_H
#define MERAK_RUNTIME_INFER_LOGIT_RULES_H

#include "io/generation_config.h"

/*
 * Change the logits of the token that follows a text; forbidden ones become
 * -infinity.
 *
 *   ids, n  the text so far, of which the first `prompt` are the prompt
 *   logits  inout  [vocab]
 */
void merak_logit_rules_apply(const struct merak_generation_config *config,
                             const int32_t *ids, size_t n, size_t prompt,
                             float *logits);

#endif
