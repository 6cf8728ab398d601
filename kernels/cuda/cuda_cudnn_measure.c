/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_cudnn_measure.c - is cuDNN faster than the own kernel?
 *
 * Used by calibrations, never in a run.  A faster way is only accepted if it
 * matches the own kernel's results and gives the same bits again: cuDNN's notes
 * do not reliably state the latter.
 */
#include "config.h"

#include "kernels/cuda/cuda_cudnn.h"

#include "base/error.h"
#include "base/half.h"
#include "base/log.h"
#include "kernels/geometry.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUNS 20
#define WAYS 8
#define GAIN 0.98 /* of the best time so far: a smaller gain is noise */
/* Both round probabilities and results to bf16 separately. */
#define NEAR (1.0 / 64)
#define MOST_BYTES (INT64_C(4) << 30)

struct measuring {
    struct merak_cudnn *cudnn;
    const struct merak_cudnn_bench *bench;
    const char *op;
    struct merak_kernel_call call;
    struct merak_cudnn_choice *choice;
    float ms; /* of the choice */
    size_t bytes;
    unsigned char *own, *once, *again; /* outputs, one after the other */
};

/* --- outputs ----------------------------------------------------------------
 */

static enum merak_status read_outputs(const struct measuring *m,
                                      unsigned char *to,
                                      struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (int o = m->call.n_in;
         o < m->call.n_in + m->call.n_out && rc == MERAK_OK; o++) {
        const struct merak_operand *op = &m->call.operand[o];

        rc = m->bench->read(m->bench->arg, to, op->data, merak_local_bytes(op),
                            err);
        to += merak_local_bytes(op);
    }
    return rc;
}

static double number(const unsigned char *from, size_t i,
                     enum merak_dtype dtype)
{
    if (dtype == MERAK_BF16)
        return (double)merak_bf16_to_f32(((const uint16_t *)from)[i]);
    return (double)((const float *)from)[i];
}

/* NaNs are not near anything. */
static bool is_near(const unsigned char *a, const unsigned char *b, size_t n,
                    enum merak_dtype dtype)
{
    double largest = 0;

    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(number(b, i, dtype)));
    for (size_t i = 0; i < n; i++) {
        double x = number(a, i, dtype), y = number(b, i, dtype);

        if (!(fabs(x - y) <= NEAR * (largest + fabs(y))))
            return false;
    }
    return true;
}

static bool are_near(const struct measuring *m)
{
    size_t at = 0;

    for (int o = m->call.n_in; o < m->call.n_in + m->call.n_out; o++) {
        const struct merak_operand *op = &m->call.operand[o];

        if (!is_near(m->once + at, m->own + at, merak_shape_count(&op->local),
                     op->dtype))
            return false;
        at += merak_local_bytes(op);
    }
    return true;
}

/* --- times ------------------------------------------------------------------
 */

/* Time a plan, or the own kernel without one, in the runs after the first. */
static enum merak_status time_runs(const struct measuring *m,
                                   const struct merak_cudnn_plan *plan,
                                   const struct merak_cudnn_memory *memory,
                                   float *ms_p, struct merak_error *err)
{
    const struct merak_cudnn_bench *b = m->bench;
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i <= RUNS && rc == MERAK_OK; i++) {
        if (i == 1)
            rc = b->begin(b->arg, err);
        if (rc == MERAK_OK)
            rc = plan != NULL ? merak_cudnn_run(plan, b->stream, memory, err)
                              : b->own(b->arg, &m->call, err);
    }
    return rc == MERAK_OK ? b->end(b->arg, ms_p, err) : rc;
}

/* Check a plan's results; *why is set if they are wrong. */
static enum merak_status check_plan(const struct measuring *m,
                                    const struct merak_cudnn_plan *plan,
                                    const struct merak_cudnn_memory *memory,
                                    const char **why, struct merak_error *err)
{
    enum merak_status rc;

    if (merak_cudnn_run(plan, m->bench->stream, memory, NULL) != MERAK_OK) {
        *why = "an error";
        return MERAK_OK;
    }
    rc = read_outputs(m, m->once, err);
    if (rc == MERAK_OK)
        rc = merak_cudnn_run(plan, m->bench->stream, memory, err);
    if (rc == MERAK_OK)
        rc = read_outputs(m, m->again, err);
    if (rc == MERAK_OK && !are_near(m))
        *why = "results that differ from Merak's own kernel's";
    else if (rc == MERAK_OK && memcmp(m->once, m->again, m->bytes) != 0)
        *why = "different bits in a second run";
    return rc;
}

static void reject(const struct measuring *m, const struct merak_cudnn_way *way,
                   const char *why)
{
    char shape[160];

    merak_cudnn_name_shape(&m->choice->shape, shape, sizeof(shape));
    merak_warn("cuda", "%s: cuDNN's engine %" PRId64 " gives %s: left out",
               shape, way->engine, why);
}

static enum merak_status measure_plan(struct measuring *m,
                                      const struct merak_cudnn_way *way,
                                      const struct merak_cudnn_plan *plan,
                                      void *scratch, struct merak_error *err)
{
    struct merak_cudnn_memory memory;
    const char *why = NULL;
    float ms = 0;
    enum merak_status rc;

    m->call.scratch = scratch;
    merak_cudnn_memory_of(m->op, &m->call, &m->choice->shape, way, &memory);
    rc = check_plan(m, plan, &memory, &why, err);
    if (rc == MERAK_OK && why == NULL)
        rc = time_runs(m, plan, &memory, &ms, err);
    if (rc != MERAK_OK)
        return rc;
    if (why != NULL) {
        reject(m, way, why);
    } else if (ms < (float)GAIN * m->ms) {
        m->ms = ms;
        m->choice->own = false;
        m->choice->way = *way;
    }
    return MERAK_OK;
}

/* Measure a way; one that cannot be prepared is skipped. */
static enum merak_status measure_way(struct measuring *m,
                                     const struct merak_cudnn_way *way,
                                     struct merak_error *err)
{
    size_t bytes = merak_cudnn_way_bytes(&m->choice->shape, way);
    struct merak_cudnn_plan *plan = NULL;
    enum merak_status rc = MERAK_OK;
    void *scratch;

    if (merak_cudnn_plan_create(m->cudnn, &m->choice->shape, way, &plan,
                                NULL) != MERAK_OK)
        return MERAK_OK;
    scratch = m->bench->alloc(m->bench->arg, bytes);
    if (scratch != NULL) {
        rc = measure_plan(m, way, plan, scratch, err);
        m->bench->free(m->bench->arg, scratch);
    }
    merak_cudnn_plan_destroy(plan);
    return rc;
}

static enum merak_status measure_samples(struct measuring *m, int64_t samples,
                                         struct merak_error *err)
{
    struct merak_cudnn_shape part = m->choice->shape;
    struct merak_cudnn_way way[WAYS];
    enum merak_status rc = MERAK_OK;
    int n = 0;

    part.B = samples;
    if (merak_cudnn_ways(m->cudnn, &part, MOST_BYTES, way, WAYS, &n, NULL) !=
        MERAK_OK)
        n = 0; /* there are none */
    for (int i = 0; i < n && rc == MERAK_OK; i++)
        rc = measure_way(m, &way[i], err);
    return rc;
}

static enum merak_status measure_own(struct measuring *m,
                                     struct merak_error *err)
{
    enum merak_status rc = time_runs(m, NULL, NULL, &m->ms, err);

    m->choice->own = true;
    return rc == MERAK_OK ? read_outputs(m, m->own, err) : rc;
}

/* The memory of the backward pass grows with the samples run at once, so few of
 * them are tried first. */
static enum merak_status measure_ways(struct measuring *m,
                                      struct merak_error *err)
{
    const struct merak_cudnn_shape *s = &m->choice->shape;
    enum merak_status rc = MERAK_OK;

    for (int64_t n = s->backward != 0 ? 1 : s->B; n < s->B && rc == MERAK_OK;
         n *= 2) {
        if (s->B % n == 0)
            rc = measure_samples(m, n, err);
    }
    return rc == MERAK_OK ? measure_samples(m, s->B, err) : rc;
}

enum merak_status merak_cudnn_measure(struct merak_cudnn *cudnn,
                                      const struct merak_cudnn_bench *bench,
                                      const char *op,
                                      const struct merak_kernel_call *call,
                                      struct merak_cudnn_choice *choice,
                                      struct merak_error *err)
{
    struct measuring m = {.cudnn = cudnn,
                          .bench = bench,
                          .op = op,
                          .call = *call,
                          .choice = choice};
    enum merak_status rc;

    for (int o = call->n_in; o < call->n_in + call->n_out; o++)
        m.bytes += merak_local_bytes(&call->operand[o]);
    m.own = malloc(3 * m.bytes);
    if (m.own == NULL)
        return merak_fail_nomem(err, 3 * m.bytes);
    m.once = m.own + m.bytes;
    m.again = m.once + m.bytes;
    rc = measure_own(&m, err);
    if (rc == MERAK_OK)
        rc = measure_ways(&m, err);
    free(m.own);
    return rc;
}
