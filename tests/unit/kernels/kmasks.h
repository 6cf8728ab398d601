/* SPDX-License-Identifier: Apache-2.0 */
/* kmasks.h - what holds of attention with key lengths in every backend */
#ifndef MERAK_TESTS_KMASKS_H
#define MERAK_TESTS_KMASKS_H

#include "unit/kernels/kcheck.h"

/* What is behind a sample's keys, NaNs among it, changes no bit of outputs and
 * gradients; its own gradients are 0. */
void kc_check_hidden_keys(const struct kc_suite *suite, enum merak_dtype dtype);
/* A sample has the same bits among longer ones as alone. */
void kc_check_alone(const struct kc_suite *suite, enum merak_dtype dtype);

#endif
