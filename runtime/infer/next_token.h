/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/infer/next_token.h - choosing a token from logits */
#ifndef MERAK_RUNTIME_INFER_NEXT_TOKEN_H
#define MERAK_RUNTIME_INFER_NEXT_TOKEN_H

#include <stddef.h>
#include <stdint.h>

#include "merak/status.h"

struct merak_sampling {
    double temperature; /* logits are divided by it; 0: the likeliest token */
    size_t top_k;       /* among the top_k likeliest; 0: all */
    double top_p;       /* among the fewest likeliest whose probabilities add
                           up to this (Holtzman et al. 2020,
                           arXiv:1904.09751); 1: all */
    uint64_t seed;
};

struct merak_sampler;

/* MERAK_ERR_CONFIG for numbers out of range. */
enum merak_status merak_sampler_create(const struct merak_sampling *how,
                                       size_t vocab,
                                       struct merak_sampler **sampler_p,
                                       struct merak_error *err) MERAK_CHECKED;
void merak_sampler_destroy(struct merak_sampler *s);
/*
 * The token at position `index`: a function of the logits, the seed and the
 * index alone.  top_k is applied before top_p; of equally likely tokens the
 * one with the lower id comes first.
 */
int32_t merak_sampler_next(struct merak_sampler *s, const float *logits,
                           uint64_t index);

#endif
