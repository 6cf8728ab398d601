/* SPDX-License-Identifier: Apache-2.0 */
/* kcheck.h - what holds of a backend's kernels: parts against the whole, bits
 * that do not change
 *
 * A suite says how a case is run and when an output is right; the cases are
 * those of kcase.h.
 */
#ifndef MERAK_TESTS_KCHECK_H
#define MERAK_TESTS_KCHECK_H

#include "unit/kernels/kcase.h"

struct kc_suite {
    void (*run)(struct kc *c);
    /* Fails the test unless the operand of `got` is that of `want`, as far as
     * rounding allows. */
    void (*check)(const struct kc *got, const struct kc *want, int operand);
};

/* Calls visit(case) for every op at a size and dtype: forward rows, and
 * gradients of what the forward kernels of the reference wrote. */
typedef void (*kc_visit_fn)(const struct kc *c);
void kc_visit_all(int size, enum merak_dtype dtype, kc_visit_fn visit);
void kc_visit_gradients(const struct kc *forward, enum merak_dtype dtype,
                        kc_visit_fn visit);
/* A row of one's own, and its gradients. */
void kc_visit_row(const struct kc_row *row, enum merak_dtype dtype,
                  kc_visit_fn visit);

/* A wrong case is counted, and ends the test unless tests go on to find what
 * else is wrong. */
extern bool kc_goes_on;
extern int kc_failures;
void kc_fail_case(void);

double kc_largest(const struct kc *c, int operand);
/* Fails the test unless each element of an operand is within abs + rel of the
 * wanted one's size. */
void kc_check_near(const struct kc *got, const struct kc *want, int operand,
                   double abs, double rel);
/* Every output, with the suite's check. */
void kc_check_outputs(const struct kc_suite *suite, const struct kc *got,
                      const struct kc *want);
void kc_check_same_bits(const struct kc *got, const struct kc *want,
                        const char *what);
/* The suite's bits stay as they are where every operand is moved by an element
 * off its boundary. */
void kc_check_addresses(const struct kc_suite *suite, const struct kc *c);

/* Gradients of matrices that are kept in bf16 are those in f32, added in f32
 * and rounded once; to a rounding where a kernel does that itself.  1 if the
 * call makes such gradients. */
int kc_check_narrow(const struct kc_suite *suite,
                    const struct merak_backend *backend, const struct kc *c);

/* The suite's outputs are those of contiguous rows where rows are padded, with
 * NaNs, of every operand that the op takes so; how many there are. */
int kc_check_padding(const struct kc_suite *suite, const struct kc *c);

/* Shards of a call make what the reference gives for the whole; how many ways
 * this op was cut. */
int kc_check_cuts(const struct kc_suite *suite, const struct kc *c);
/* Slices of a sequence, of attention alone; 1 if this is such a call. */
int kc_check_slices(const struct kc_suite *suite, const struct kc *c);
/* Does a slice of the sequence need operand o from its beginning on? */
bool kc_is_back(const struct merak_op *op, int n_in, int o);

#endif
