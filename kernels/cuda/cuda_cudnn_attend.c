/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_cudnn_attend.c - calls of attention that cuDNN runs
 *
 * A shape's plan is made at its first call, in the warm-up.  What cuDNN cannot
 * run is logged once and left to the own kernel.
 */
#include "config.h"

#include "kernels/cuda/cuda_cudnn.h"

#include "base/error.h"
#include "base/log.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_VERSION 91002 /* 9.10.0 and 9.10.1 give wrong results */
#define WHOLE_TILES_UNTIL                              \
    91500 /* so do these without whole tiles of keys   \
           */
#define WAYS 8
#define REASONS 16

/* A requested shape. */
struct entry {
    struct entry *next;
    struct merak_cudnn_shape shape;
    struct merak_cudnn_way way;
    struct merak_cudnn_plan *plan; /* NULL: the own kernel runs it */
};

struct merak_cudnn_attention {
    pthread_mutex_t lock; /* for all below */
    char *soname;
    int major;
    bool tried;                /* cuDNN was to be opened */
    struct merak_cudnn *cudnn; /* or NULL */
    struct entry *entry;
    const char *said[REASONS]; /* reasons already logged */
};

enum merak_status
merak_cudnn_attention_create(const char *soname, int major,
                             struct merak_cudnn_attention **attention_p,
                             struct merak_error *err)
{
    struct merak_cudnn_attention *a;
    enum merak_cudnn_mode mode;
    enum merak_status rc = merak_cudnn_mode(&mode, err);

    if (rc != MERAK_OK)
        return rc;
    a = calloc(1, sizeof(*a));
    if (a != NULL)
        a->soname = strdup(soname);
    if (a == NULL || a->soname == NULL) {
        free(a);
        return merak_fail_nomem(err, sizeof(*a));
    }
    a->major = major;
    pthread_mutex_init(&a->lock, NULL);
    *attention_p = a;
    return MERAK_OK;
}

void merak_cudnn_attention_destroy(struct merak_cudnn_attention *a)
{
    struct entry *next;

    if (a == NULL)
        return;
    for (struct entry *e = a->entry; e != NULL; e = next) {
        next = e->next;
        merak_cudnn_plan_destroy(e->plan);
        free(e);
    }
    merak_cudnn_close(a->cudnn);
    pthread_mutex_destroy(&a->lock);
    free(a->soname);
    free(a);
}

/* cuDNN, opened at the first call; NULL: it cannot be, as was logged. */
static struct merak_cudnn *cudnn_of(struct merak_cudnn_attention *a)
{
    struct merak_error err = {.status = MERAK_OK};

    if (a->tried)
        return a->cudnn;
    a->tried = true;
    if (merak_cudnn_open(a->soname, NULL, &a->cudnn, &err) != MERAK_OK) {
        a->cudnn = NULL;
        merak_warn("cuda", "%s: attention runs in Merak's own kernels",
                   err.text);
    }
    return a->cudnn;
}

bool merak_cudnn_may(const struct merak_cudnn_shape *shape, int64_t version,
                     int major, const char **why)
{
    *why = NULL;
    if (version < LEAST_VERSION)
        *why = "is older than 9.10.2";
    else if (major < 8)
        *why = "needs compute capability 8.0";
    /* The deterministic form of the graph was verified on Hopper, but not on
     * other generations. */
    else if (shape->backward != 0 && major != 9)
        *why = "has deterministic gradients only on compute capability 9";
    else if (shape->backward != 0 && version <= WHOLE_TILES_UNTIL &&
             shape->T % 128 != 0)
        *why = "needs multiples of 128 positions before 9.15.1";
    return *why == NULL;
}

/* --- plans ------------------------------------------------------------------
 */

static void tell_plan(const struct merak_cudnn *c, const struct entry *e)
{
    char shape[160];

    merak_cudnn_name_shape(&e->shape, shape, sizeof(shape));
    merak_info(
        "cuda",
        "%s: cuDNN %" PRId64 ".%" PRId64 ".%" PRId64 ", engine %" PRId64
        ", %" PRId64 " of %" PRId64 " samples at once in %" PRId64 " bytes",
        shape, merak_cudnn_version(c) / 10000,
        merak_cudnn_version(c) / 100 % 100, merak_cudnn_version(c) % 100,
        e->way.engine, e->way.samples, e->shape.B, e->way.workspace_bytes);
}

/* Log why cuDNN is not used; a warning if it was chosen by measuring, since
 * other ranks may use it. */
static void tell_refusal(const struct entry *e, const char *why)
{
    char shape[160];

    merak_cudnn_name_shape(&e->shape, shape, sizeof(shape));
    merak_log(e->way.version != 0 ? MERAK_LOG_WARN : MERAK_LOG_INFO, "cuda",
              "%s: Merak's own kernel, as %s", shape, why);
}

/* Make a plan of the first of cuDNN's answers that allows one. */
static enum merak_status first_plan(struct merak_cudnn *c, struct entry *e,
                                    struct merak_error *err)
{
    struct merak_cudnn_shape part = e->shape;
    struct merak_cudnn_way way[WAYS];
    enum merak_status rc;
    int n = 0;

    part.B = e->way.samples;
    rc = merak_cudnn_ways(c, &part, e->way.workspace_bytes, way, WAYS, &n, err);
    if (rc == MERAK_OK && n == 0)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "cuDNN has none that fits %" PRId64 " bytes",
                          e->way.workspace_bytes);
    for (int i = 0; i < n && e->plan == NULL; i++) {
        rc = merak_cudnn_plan_create(c, &e->shape, &way[i], &e->plan, err);
        if (rc == MERAK_OK)
            e->way.engine = way[i].engine;
    }
    return rc;
}

static enum merak_status chosen_plan(struct merak_cudnn *c, struct entry *e,
                                     struct merak_error *err)
{
    if (e->way.version != merak_cudnn_version(c))
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "version %" PRId64
                          " of cuDNN was measured and this is %" PRId64
                          ": calibrate again",
                          e->way.version, merak_cudnn_version(c));
    return merak_cudnn_plan_create(c, &e->shape, &e->way, &e->plan, err);
}

static void make_plan(struct merak_cudnn_attention *a, struct entry *e,
                      size_t scratch_bytes)
{
    struct merak_cudnn *c = cudnn_of(a);
    struct merak_error err = {.status = MERAK_OK};
    const char *why = NULL;
    enum merak_status rc;

    if (c == NULL)
        return;
    if (!merak_cudnn_may(&e->shape, merak_cudnn_version(c), a->major, &why))
        rc = merak_fail(&err, MERAK_ERR_UNSUPPORTED, "cuDNN %s", why);
    else if (scratch_bytes < merak_cudnn_way_bytes(&e->shape, &e->way))
        rc = merak_fail(&err, MERAK_ERR_UNSUPPORTED,
                        "the plan reserves too little memory for it");
    else if (e->way.engine < 0)
        rc = first_plan(c, e, &err);
    else
        rc = chosen_plan(c, e, &err);
    if (rc == MERAK_OK)
        tell_plan(c, e);
    else
        tell_refusal(e, err.text);
}

/* The shape's entry, made at the first call; NULL: out of memory. */
static struct entry *entry_of(struct merak_cudnn_attention *a,
                              const struct merak_cudnn_shape *shape,
                              const struct merak_cudnn_way *way,
                              size_t scratch_bytes)
{
    struct entry *e = a->entry;

    while (e != NULL && memcmp(&e->shape, shape, sizeof(*shape)) != 0)
        e = e->next;
    if (e != NULL)
        return e;
    e = calloc(1, sizeof(*e));
    if (e == NULL)
        return NULL;
    e->shape = *shape;
    e->way = *way;
    e->next = a->entry;
    a->entry = e;
    make_plan(a, e, scratch_bytes);
    return e;
}

/* Log each reason once, and only if cuDNN is requested. */
static void tell_reason(struct merak_cudnn_attention *a, const char *why)
{
    enum merak_cudnn_mode mode;

    if (merak_cudnn_mode(&mode, NULL) != MERAK_OK ||
        mode != MERAK_CUDNN_MODE_CUDNN)
        return;
    for (int i = 0; i < REASONS; i++) {
        if (a->said[i] == why)
            return;
        if (a->said[i] != NULL)
            continue;
        a->said[i] = why;
        merak_info("cuda", "attention %s: Merak's own kernel, cuDNN has none",
                   why);
        return;
    }
}

/* --- calls ------------------------------------------------------------------
 */

static enum merak_status attend(struct merak_cudnn_attention *a, const char *op,
                                const struct merak_kernel_call *call,
                                const struct merak_cudnn_shape *shape,
                                const struct merak_cudnn_way *way, void *stream,
                                bool *done_p, struct merak_error *err)
{
    const struct entry *e = entry_of(a, shape, way, call->scratch_bytes);
    struct merak_cudnn_memory memory;
    enum merak_status rc;

    if (e == NULL)
        return merak_fail_nomem(err, sizeof(*e));
    if (e->plan == NULL ||
        call->scratch_bytes < merak_cudnn_way_bytes(shape, &e->way))
        return MERAK_OK;
    merak_cudnn_memory_of(op, call, shape, &e->way, &memory);
    rc = merak_cudnn_run(e->plan, stream, &memory, err);
    *done_p = rc == MERAK_OK;
    return rc;
}

enum merak_status merak_cudnn_attend(struct merak_cudnn_attention *a,
                                     const char *op,
                                     const struct merak_kernel_call *call,
                                     void *stream, bool *done_p,
                                     struct merak_error *err)
{
    struct merak_cudnn_shape shape;
    struct merak_cudnn_way way;
    enum merak_status rc = MERAK_OK;
    const char *why = NULL;

    *done_p = false;
    if (!merak_cudnn_is_op(op))
        return MERAK_OK;
    pthread_mutex_lock(&a->lock);
    if (!merak_cudnn_shape_of(op, call, &shape, &why))
        tell_reason(a, why);
    else if (merak_cudnn_wants(&shape, &way))
        rc = attend(a, op, call, &shape, &way, stream, done_p, err);
    pthread_mutex_unlock(&a->lock);
    return rc;
}

/* --- choosing ---------------------------------------------------------------
 */

/* Drop the shape's entry. */
static void forget(struct merak_cudnn_attention *a,
                   const struct merak_cudnn_shape *shape)
{
    struct entry **at = &a->entry, *e;

    while (*at != NULL && memcmp(&(*at)->shape, shape, sizeof(*shape)) != 0)
        at = &(*at)->next;
    e = *at;
    if (e == NULL)
        return;
    *at = e->next;
    merak_cudnn_plan_destroy(e->plan);
    free(e);
}

static enum merak_status tune(struct merak_cudnn_attention *a,
                              const struct merak_cudnn_bench *bench,
                              const char *op,
                              const struct merak_kernel_call *call,
                              struct merak_cudnn_choice *choice,
                              bool *is_choice_p, struct merak_error *err)
{
    struct merak_cudnn *c = cudnn_of(a);
    const char *why;
    enum merak_status rc;

    if (c == NULL || !merak_cudnn_may(&choice->shape, merak_cudnn_version(c),
                                      a->major, &why))
        return MERAK_OK;
    rc = merak_cudnn_measure(c, bench, op, call, choice, err);
    if (rc == MERAK_OK)
        rc = merak_cudnn_add(choice, err);
    forget(a, &choice->shape);
    *is_choice_p = rc == MERAK_OK;
    return rc;
}

enum merak_status merak_cudnn_tune(struct merak_cudnn_attention *a,
                                   const struct merak_cudnn_bench *bench,
                                   const char *op,
                                   const struct merak_kernel_call *call,
                                   struct merak_cudnn_choice *choice,
                                   bool *is_choice_p, struct merak_error *err)
{
    enum merak_cudnn_mode mode;
    enum merak_status rc = merak_cudnn_mode(&mode, err);

    *is_choice_p = false;
    memset(choice, 0, sizeof(*choice));
    if (rc != MERAK_OK || mode == MERAK_CUDNN_MODE_OWN ||
        !merak_cudnn_shape_of(op, call, &choice->shape, NULL))
        return rc;
    pthread_mutex_lock(&a->lock);
    rc = tune(a, bench, op, call, choice, is_choice_p, err);
    pthread_mutex_unlock(&a->lock);
    return rc;
}
