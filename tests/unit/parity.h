/* SPDX-License-Identifier: Apache-2.0 */
/* parity.h - plans trained side by side, for tests
 *
 * Fails the test where losses, norms or parameters of two plans are not what
 * they are to be.
 */
#ifndef MERAK_TESTS_PARITY_H
#define MERAK_TESTS_PARITY_H

#include "unit/execute.h"
#include "unit/small_plans.h"

#define PARITY_STEPS 2
#define PARITY_BATCHES 4 /* micro-batches of a step over all replicas */

extern const struct small_model parity_gpt;

struct parity_variant {
    int tp, pp, dp;
    const char *schedule;
    int zero;
    enum merak_seq_parallel sp;
};

struct merak_plan parity_plan(const struct parity_variant *v);
/* A plan's ranks after PARITY_STEPS steps, and the loss of each. */
struct executed *parity_trained(const struct small_model *model,
                                const struct merak_plan *plan, double *loss);
/* All ranks' parameters of `got` are within `abs` (0: the same bits) of one
 * replica's of `want`, whose first ranks hold all of every tensor between
 * them. */
void parity_params(const struct executed *want, const struct executed *got,
                   double abs);
/* b as a: exactly, or to rounding. */
void parity_plans(const struct small_model *model, const struct merak_plan *a,
                  const struct merak_plan *b, bool exact);
void parity_variants(const struct small_model *model,
                     const struct parity_variant *a,
                     const struct parity_variant *b, bool exact);

#endif
