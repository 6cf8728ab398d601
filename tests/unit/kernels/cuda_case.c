/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_case.c - a case run by the bodies of the CUDA kernels, and when its
 * outputs are right */
#include "config.h"

#include "unit/near.h"

#include "unit/kernels/cuda_case.h"

#include <string.h>

/*
 * The reference computes in double and rounds once; the kernels sum in f32, a
 * share of the terms a thread.  A bf16 result may round to the neighbour of
 * the reference's, 2^-7 relative at worst.
 */
#define F32_TOLERANCE 1e-5
#define BF16_TOLERANCE (1.0 / 128)
/* A norm over one column has a gradient near 0, here the difference of terms
 * that 1/sqrt(eps) = 316 makes large. */
#define CANCELLED 1e-4
/* Probabilities and score gradients are rounded to bf16 before they are
 * multiplied: 2^-9 of each term, and the sum may be small. */
#define BF16_TERMS (1.0 / 256)
/* Where queries see one key each, or dropout keeps one, the gradient of a score
 * is the difference of two equal terms, of a rounded output below 16. */
#define ONE_KEY 1e-6

/* A product by loops, where a device has a library. */
static float element(const struct merak_cuda_matrix *x, size_t row,
                     size_t column)
{
    size_t at = row * x->ld + column;

    return x->dtype == MERAK_BF16
               ? merak_bf16_to_f32(((const uint16_t *)x->data)[at])
               : ((const float *)x->data)[at];
}

static void store(const struct merak_cuda_matrix *x, size_t row, size_t column,
                  double value)
{
    size_t at = row * x->ld + column;

    if (x->dtype == MERAK_BF16)
        ((uint16_t *)x->data)[at] = merak_f32_to_bf16((float)value);
    else
        ((float *)x->data)[at] = (float)value;
}

static double bias_of(const struct merak_cuda_product *p, size_t column)
{
    const struct merak_cuda_matrix row = {(void *)(uintptr_t)p->bias,
                                          p->d.dtype, 0};

    return p->bias != NULL ? (double)element(&row, 0, column) : 0;
}

/* What cuda_product.h promises of rows. */
static void check_rows(const struct merak_cuda_matrix *x, size_t columns)
{
    assert_true(x->ld >= columns);
    if (x->dtype == MERAK_BF16)
        assert_int_equal(x->ld * sizeof(uint16_t) % 16, 0);
}

int cuda_products;

static enum merak_status plain_product(void *arg,
                                       const struct merak_cuda_context *context,
                                       const struct merak_cuda_product *p,
                                       struct merak_error *err)
{
    (void)arg;
    (void)context;
    (void)err;
    cuda_products++;
    assert_true(p->m > 0 && p->n > 0 && p->k > 0 && p->alpha == 1);
    assert_int_equal((uintptr_t)p->work % MERAK_CUDA_WORK_ALIGN, 0);
    assert_true(p->work_bytes >= merak_cuda_work_bytes(p->m, p->n));
    memset(p->work, 0xa5, p->work_bytes);
    check_rows(&p->a, p->a_transposed ? p->m : p->k);
    check_rows(&p->b, p->b_transposed ? p->k : p->n);
    check_rows(&p->d, p->n);
    for (size_t i = 0; i < p->m; i++) {
        for (size_t j = 0; j < p->n; j++) {
            double sum = bias_of(p, j);

            for (size_t k = 0; k < p->k; k++) {
                float a = p->a_transposed ? element(&p->a, k, i)
                                          : element(&p->a, i, k);
                float b = p->b_transposed ? element(&p->b, j, k)
                                          : element(&p->b, k, j);

                sum += (double)a * (double)b;
            }
            if (p->beta != 0)
                sum += (double)p->beta * (double)element(&p->d, i, j);
            store(&p->d, i, j, sum);
        }
    }
    return MERAK_OK;
}

const struct merak_backend cuda_host = {.name = "cuda-host",
                                        .kernel = merak_cuda_kernels};

struct merak_cuda_fault cuda_fault;

const struct merak_cuda_context cuda_context = {.product = plain_product,
                                                .fault = &cuda_fault};

void cuda_run(struct kc *c)
{
    cuda_fault.raised = 0;
    cuda_products = 0;
    c->call.device = (void *)(uintptr_t)&cuda_context;
    kc_run_on(c, &cuda_host);
    c->call.device = NULL;
    assert_int_equal(cuda_fault.raised, 0);
}

static bool is_bf16(const struct kc *c, int operand)
{
    return c->call.operand[operand].dtype == MERAK_BF16;
}

/* What a result may be off by, whatever its size. */
static double absolute(const struct kc *want, int o)
{
    const struct merak_shape *x = &want->call.operand[0].local;
    double size = kc_largest(want, o);

    if (strstr(want->op, "norm_dx") != NULL && x->dim[x->ndim - 1] == 1)
        return CANCELLED;
    if (strncmp(want->op, "attention", 9) == 0)
        return fmax(ONE_KEY,
                    size * (is_bf16(want, o) ? BF16_TERMS : F32_TOLERANCE));
    if (strncmp(want->op, "experts", 7) == 0 && is_bf16(want, 0))
        return BF16_TERMS * size; /* rounded between two products */
    return F32_TOLERANCE * size;
}

static void check_output(const struct kc *got, const struct kc *want, int o)
{
    kc_check_near(got, want, o, absolute(want, o),
                  is_bf16(want, o) ? BF16_TOLERANCE : F32_TOLERANCE);
}

const struct kc_suite cuda_suite = {cuda_run, check_output};

/* A bias enters a bf16 product rounded to bf16 (cuda_product.h). */
static void round_bias(struct kc *c)
{
    if ((strcmp(c->op, "linear") != 0 && strcmp(c->op, "conv") != 0) ||
        c->call.n_in < 3 || c->call.operand[0].dtype != MERAK_BF16)
        return;
    for (size_t i = 0; i < kc_count(c, 2); i++)
        kc_set(c, 2, i,
               (double)merak_bf16_to_f32(
                   merak_f32_to_bf16((float)kc_get(c, 2, i))));
}

void cuda_compare_with_ref(const struct kc *c)
{
    struct kc want, got;

    kc_copy(&want, c);
    round_bias(&want);
    kc_copy(&got, &want);
    kc_run(&want, "ref");
    cuda_run(&got);
    kc_check_outputs(&cuda_suite, &got, &want);
    kc_destroy(&want);
    kc_destroy(&got);
}
