/* SPDX-License-Identifier: Apache-2.0 */
/* conv_primitive.c - cache of oneDNN's convolutions, each for one thread
 *
 * A primitive divides its work by the number of threads that OpenMP has when it
 * is made, gradients of weights also their sums: they are made for one thread.
 * Of oneDNN's ways those are left that have code for windows.  Its reference is
 * slow, and its products of gathered rows are what window.c has in tiles.
 */
#include "config.h"

#include "kernels/cpu/conv_primitive.h"

#include "base/error.h"
#include "base/size.h"
#include "kernels/cpu/dnnl_conv.h"
#include "kernels/cpu/gemm_primitive.h"
#include "kernels/cpu/thread_pool.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#define CACHE_MAX 256
#define FEW_CHANNELS 8

struct slot {
    dnnl_memory_t memory[CONV_SLOTS];
};

struct merak_conv_primitive {
    struct merak_conv_key key;
    dnnl_primitive_t primitive; /* NULL: there is none */
    dnnl_primitive_t reorder;   /* of weights: to it, or from it */
    dnnl_memory_t plain, packed;
    struct merak_dnnl_md weights;
    size_t weight_bytes, scratch_bytes;
    struct slot *slot; /* [threads] */
};

/* Global like the thread pool. */
static struct {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    int threads;
    size_t count, oldest;
    struct merak_conv_primitive *primitive[CACHE_MAX];
} conv;

/* Of threads that oneDNN sees on the calling one. */
static int only_one(void)
{
    int threads = omp_get_max_threads();

    omp_set_num_threads(1);
    return threads;
}

static void primitive_destroy(struct merak_conv_primitive *p)
{
    if (p == NULL)
        return;
    for (int i = 0; p->slot != NULL && i < conv.threads; i++)
        for (int m = 0; m < CONV_SLOTS; m++)
            dnnl_memory_destroy(p->slot[i].memory[m]);
    dnnl_memory_destroy(p->plain);
    dnnl_memory_destroy(p->packed);
    dnnl_primitive_destroy(p->primitive);
    dnnl_primitive_destroy(p->reorder);
    merak_dnnl_md_fini(&p->weights);
    free(p->slot);
    free(p);
}

/* --- descriptions ----------------------------------------------------------
 */

static const struct {
    dnnl_format_tag_t points, weights;
} tags[] = {
    {dnnl_nwc, dnnl_owi}, {dnnl_nhwc, dnnl_ohwi}, {dnnl_ndhwc, dnnl_odhwi}};

static dnnl_status_t describe(struct merak_dnnl_md *md, int64_t dims,
                              int64_t first, int64_t second,
                              const int64_t *space, dnnl_data_type_t type,
                              dnnl_format_tag_t tag)
{
    dnnl_dims_t all = {first, second};

    for (int64_t d = 0; d < dims; d++)
        all[2 + d] = space[d];
    return merak_dnnl_md_tag(md, (int)dims + 2, all, type, tag);
}

static dnnl_status_t describe_all(const struct merak_conv_key *k,
                                  struct merak_dnnl_md md[CONV_DESCRIBED],
                                  struct merak_dnnl_md *plain)
{
    dnnl_data_type_t type = k->bf16 != 0 ? dnnl_bf16 : dnnl_f32;
    dnnl_data_type_t sums = k->kind == MERAK_CONV_DW ? dnnl_f32 : type;
    dnnl_format_tag_t points = tags[k->dims - 1].points;
    dnnl_dims_t bias = {k->O};
    dnnl_status_t rc;

    rc = describe(&md[CONV_X], k->dims, k->samples, k->I, k->in, type,
                  points);
    if (rc == dnnl_success)
        rc = describe(&md[CONV_OUT], k->dims, k->samples, k->O, k->out, type,
                      points);
    if (rc == dnnl_success)
        rc = describe(&md[CONV_W], k->dims, k->O, k->I, k->size, sums,
                      dnnl_format_tag_any);
    if (rc == dnnl_success)
        rc = describe(&md[CONV_READ], k->dims, k->O, k->I, k->size, type,
                      dnnl_format_tag_any);
    if (rc == dnnl_success)
        rc = describe(plain, k->dims, k->O, k->I, k->size, sums,
                      tags[k->dims - 1].weights);
    if (rc == dnnl_success)
        rc = merak_dnnl_md_tag(&md[CONV_BIAS], 1, bias, dnnl_f32, dnnl_a);
    return rc;
}

/* Has oneDNN code for these windows?  Few channels are worth its products. */
static bool is_fast(const_dnnl_primitive_desc_t pd,
                    const struct merak_conv_key *k)
{
    const char *way = NULL;

    if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0,
                                  (void *)&way) != dnnl_success)
        return false;
    return strstr(way, "ref:") == NULL &&
           (strstr(way, "gemm:") == NULL || k->I <= FEW_CHANNELS);
}

/* --- making ----------------------------------------------------------------
 */

static dnnl_status_t make_convolution(struct merak_conv_primitive *p,
                                      struct merak_dnnl_md md[CONV_DESCRIBED])
{
    const struct merak_conv_key *k = &p->key;
    struct merak_dnnl_windows w = {.strides = {0}};
    struct merak_dnnl_md any = {0};
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t rc;

    for (int64_t d = 0; d < k->dims; d++) {
        w.strides[d] = k->stride[d];
        w.dilations[d] = k->dilation[d] - 1;
        w.before[d] = k->before[d];
        w.after[d] = k->after[d];
    }
    rc = dnnl_primitive_attr_create(&attr);
    if (rc == dnnl_success)
        rc = dnnl_primitive_attr_set_scratchpad_mode(attr,
                                                     dnnl_scratchpad_mode_user);
    if (rc == dnnl_success)
        rc = merak_dnnl_conv(&pd, conv.engine, (enum merak_conv_kind)k->kind,
                             md, k->bias != 0, &w, attr);
    if (rc == dnnl_success && !is_fast(pd, k))
        rc = dnnl_unimplemented;
    any = md[CONV_W];
    md[CONV_W] = (struct merak_dnnl_md){0};
    if (rc == dnnl_success)
        rc = merak_dnnl_md_query(&md[CONV_W], pd,
                                 k->kind == MERAK_CONV_DW
                                     ? dnnl_query_diff_weights_md
                                     : dnnl_query_weights_md);
    if (rc == dnnl_success)
        rc = merak_dnnl_md_query(&md[CONV_SCRATCH], pd,
                                 dnnl_query_scratchpad_md);
    if (rc == dnnl_success)
        rc = dnnl_primitive_create(&p->primitive, pd);
    merak_dnnl_md_fini(&any);
    dnnl_primitive_desc_destroy(pd);
    dnnl_primitive_attr_destroy(attr);
    return rc;
}

static dnnl_status_t make_reorder(struct merak_conv_primitive *p,
                                  const struct merak_dnnl_md *plain,
                                  const struct merak_dnnl_md *packed)
{
    bool back = p->key.kind == MERAK_CONV_DW;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t rc;

    rc = merak_dnnl_reorder(&pd, conv.engine, back ? packed : plain,
                            back ? plain : packed);
    if (rc == dnnl_success)
        rc = dnnl_primitive_create(&p->reorder, pd);
    if (rc == dnnl_success)
        rc = merak_dnnl_memory(&p->plain, plain, conv.engine);
    if (rc == dnnl_success)
        rc = merak_dnnl_memory(&p->packed, packed, conv.engine);
    dnnl_primitive_desc_destroy(pd);
    return rc;
}

static dnnl_status_t make_slots(struct merak_conv_primitive *p,
                                const struct merak_dnnl_md md[CONV_SLOTS])
{
    dnnl_status_t rc = dnnl_success;

    for (int i = 0; i < conv.threads * CONV_SLOTS && rc == dnnl_success; i++)
        rc = merak_dnnl_memory(&p->slot[i / CONV_SLOTS].memory[i % CONV_SLOTS],
                               &md[i % CONV_SLOTS], conv.engine);
    return rc;
}

/* What oneDNN does not have leaves p->primitive NULL. */
static enum merak_status make(struct merak_conv_primitive *p,
                              struct merak_error *err)
{
    struct merak_dnnl_md md[CONV_DESCRIBED] = {0}, plain = {0};
    int threads = only_one();
    dnnl_status_t rc;

    rc = describe_all(&p->key, md, &plain);
    if (rc == dnnl_success)
        rc = make_convolution(p, md);
    if (rc == dnnl_success)
        rc = make_reorder(p, &plain, &md[CONV_W]);
    if (rc == dnnl_success)
        rc = make_slots(p, md);
    omp_set_num_threads(threads);
    if (rc == dnnl_success) {
        p->weight_bytes = merak_dnnl_md_bytes(&md[CONV_W]);
        p->scratch_bytes = merak_dnnl_md_bytes(&md[CONV_SCRATCH]);
        p->weights = md[CONV_W];
        md[CONV_W] = (struct merak_dnnl_md){0};
    } else {
        dnnl_primitive_destroy(p->primitive);
        p->primitive = NULL;
    }
    for (int m = 0; m < CONV_DESCRIBED; m++)
        merak_dnnl_md_fini(&md[m]);
    merak_dnnl_md_fini(&plain);
    return rc == dnnl_out_of_memory
               ? merak_gemm_fail(err, "make a convolution", rc)
               : MERAK_OK;
}

/* Drop what was cached for another thread count. */
static enum merak_status open_for_threads(struct merak_error *err)
{
    dnnl_status_t rc = dnnl_success;

    if (conv.threads == merak_pool_threads())
        return MERAK_OK;
    for (size_t i = 0; i < conv.count; i++)
        primitive_destroy(conv.primitive[i]);
    conv.count = conv.oldest = 0;
    if (conv.engine == NULL)
        rc = dnnl_engine_create(&conv.engine, dnnl_cpu, 0);
    if (rc == dnnl_success && conv.stream == NULL)
        rc = dnnl_stream_create(&conv.stream, conv.engine,
                                dnnl_stream_default_flags);
    conv.threads = rc == dnnl_success ? merak_pool_threads() : 0;
    return rc == dnnl_success ? MERAK_OK
                              : merak_gemm_fail(err, "open a CPU engine", rc);
}

static enum merak_status create(const struct merak_conv_key *key,
                                struct merak_conv_primitive **primitive_p,
                                struct merak_error *err)
{
    struct merak_conv_primitive *p = calloc(1, sizeof(*p));
    enum merak_status rc;

    if (p != NULL)
        p->slot = calloc((size_t)conv.threads, sizeof(*p->slot));
    if (p == NULL || p->slot == NULL) {
        primitive_destroy(p);
        return merak_fail_nomem(err, sizeof(*p));
    }
    p->key = *key;
    rc = make(p, err);
    if (rc != MERAK_OK)
        primitive_destroy(p);
    else
        *primitive_p = p;
    return rc;
}

struct merak_conv_primitive *
merak_conv_primitive_cached(const struct merak_conv_key *key)
{
    for (size_t i = 0; i < conv.count; i++) {
        if (memcmp(&conv.primitive[i]->key, key, sizeof(*key)) == 0)
            return conv.primitive[i];
    }
    return NULL;
}

enum merak_status
merak_conv_primitive_find(const struct merak_conv_key *key,
                          struct merak_conv_primitive **primitive_p,
                          struct merak_error *err)
{
    struct merak_conv_primitive *p = NULL;
    enum merak_status rc = open_for_threads(err);

    if (rc == MERAK_OK)
        p = merak_conv_primitive_cached(key);
    if (rc == MERAK_OK && p == NULL) {
        rc = create(key, &p, err);
        if (rc == MERAK_OK && conv.count < CACHE_MAX) {
            conv.primitive[conv.count++] = p;
        } else if (rc == MERAK_OK) {
            primitive_destroy(conv.primitive[conv.oldest]);
            conv.primitive[conv.oldest] = p;
            conv.oldest = (conv.oldest + 1) % CACHE_MAX;
        }
    }
    if (rc == MERAK_OK && p->primitive != NULL)
        rc = merak_gemm_scratch_grow(p->scratch_bytes, err);
    if (rc == MERAK_OK)
        *primitive_p = p->primitive != NULL ? p : NULL;
    return rc;
}

/* --- running ---------------------------------------------------------------
 */

size_t merak_conv_weights(const struct merak_conv_primitive *p)
{
    return p->weight_bytes;
}

bool merak_conv_alike(const struct merak_conv_primitive *a,
                      const struct merak_conv_primitive *b)
{
    return merak_dnnl_md_equal(&a->weights, &b->weights);
}

static enum merak_status reorder(const struct merak_conv_primitive *p,
                                 const void *plain, const void *packed,
                                 struct merak_error *err)
{
    bool back = p->key.kind == MERAK_CONV_DW;
    dnnl_exec_arg_t arg[] = {{DNNL_ARG_FROM, back ? p->packed : p->plain},
                             {DNNL_ARG_TO, back ? p->plain : p->packed}};
    int threads = only_one();
    dnnl_status_t rc;

    rc = dnnl_memory_set_data_handle(p->plain, (void *)(uintptr_t)plain);
    if (rc == dnnl_success)
        rc = dnnl_memory_set_data_handle(p->packed, (void *)(uintptr_t)packed);
    if (rc == dnnl_success)
        rc = dnnl_primitive_execute(p->reorder, conv.stream, 2, arg);
    omp_set_num_threads(threads);
    return rc == dnnl_success ? MERAK_OK
                              : merak_gemm_fail(err, "order weights", rc);
}

enum merak_status merak_conv_pack(const struct merak_conv_primitive *p,
                                  const void *plain, void *packed,
                                  struct merak_error *err)
{
    return reorder(p, plain, packed, err);
}

enum merak_status merak_conv_unpack(const struct merak_conv_primitive *p,
                                    const void *packed, float *plain,
                                    struct merak_error *err)
{
    return reorder(p, plain, packed, err);
}

int merak_conv_primitive_run(const struct merak_conv_primitive *p, int thread,
                             const void *x, const void *w, const void *y,
                             const float *bias)
{
    static const int id[][CONV_SLOTS] = {
        [MERAK_CONV_Y] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST,
                          DNNL_ARG_BIAS, DNNL_ARG_SCRATCHPAD},
        [MERAK_CONV_DX] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS,
                           DNNL_ARG_DIFF_DST, 0, DNNL_ARG_SCRATCHPAD},
        [MERAK_CONV_DW] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS,
                           DNNL_ARG_DIFF_DST, 0, DNNL_ARG_SCRATCHPAD}};
    const void *data[CONV_SLOTS] = {x, w, y, bias, merak_gemm_scratch(thread)};
    dnnl_exec_arg_t arg[CONV_SLOTS];
    int n = 0;

    for (int m = 0; m < CONV_SLOTS; m++) {
        dnnl_status_t rc;

        if (data[m] == NULL)
            continue;
        rc = dnnl_memory_set_data_handle(p->slot[thread].memory[m],
                                         (void *)(uintptr_t)data[m]);
        if (rc != dnnl_success)
            return (int)rc;
        arg[n++] =
            (dnnl_exec_arg_t){id[p->key.kind][m], p->slot[thread].memory[m]};
    }
    return (int)dnnl_primitive_execute(p->primitive, conv.stream, n, arg);
}
