/* SPDX-License-Identifier: Apache-2.0 */
/* logit_rules.c - what a model's folder forbids or makes less likely
 *
 * In the order of transformers, which matters to the penalty alone: it comes
 * first.
 */
#include "config.h"

#include "runtime/infer/logit_rules.h"

#include <math.h>
#include <string.h>

/* Once for each token, however often it has occurred. */
static void penalize(double penalty, const int32_t *ids, size_t n,
                     float *logits)
{
    for (size_t i = 0; i < n; i++) {
        float *x = &logits[ids[i]];
        size_t first = 0;

        while (ids[first] != ids[i])
            first++;
        if (first == i)
            *x = (float)(*x < 0 ? (double)*x * penalty : (double)*x / penalty);
    }
}

/* What would repeat a sequence of k tokens. */
static void forbid_repeats(size_t k, const int32_t *ids, size_t n,
                           float *logits)
{
    for (size_t i = 0; i + k <= n; i++) {
        if (memcmp(ids + i, ids + n - (k - 1), (k - 1) * sizeof(*ids)) == 0)
            logits[ids[i + k - 1]] = -INFINITY;
    }
}

static void forbid(const struct merak_token_list *list, float *logits)
{
    for (size_t i = 0; i < list->n; i++)
        logits[list->id[i]] = -INFINITY;
}

void merak_logit_rules_apply(const struct merak_generation_config *config,
                             const int32_t *ids, size_t n, size_t prompt,
                             float *logits)
{
    if (config->repetition_penalty != 1)
        penalize(config->repetition_penalty, ids, n, logits);
    if (config->no_repeat > 0)
        forbid_repeats(config->no_repeat, ids, n, logits);
    if (n < config->min_tokens || n - prompt < config->min_new)
        forbid(&config->ends, logits);
    forbid(&config->suppress, logits);
    if (n == prompt)
        forbid(&config->begin_suppress, logits);
}
