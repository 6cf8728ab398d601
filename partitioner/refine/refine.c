/* SPDX-License-Identifier: Apache-2.0 */
/* refine.c - samples by class, and corrections of kernel times */
#include "config.h"

#include "partitioner/refine/refine_impl.h"

#include "base/error.h"
#include "base/grow.h"
#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- samples -------------------------------------------------------------- */

enum merak_status merak_refine_create(int steps, struct merak_refine **refine_p,
                                      struct merak_error *err)
{
    struct merak_refine *refine = calloc(1, sizeof(*refine));

    if (refine == NULL)
        return merak_fail_nomem(err, sizeof(*refine));
    refine->steps = steps;
    *refine_p = refine;
    return MERAK_OK;
}

void merak_refine_destroy(struct merak_refine *refine)
{
    if (refine == NULL)
        return;
    free(refine->class);
    free(refine->bucket);
    free(refine);
}

static bool is_same(const struct merak_sample_class *a,
                    const struct merak_sample_class *b)
{
    if (a->kind != b->kind || a->size.bytes != b->size.bytes ||
        a->size.flops != b->size.flops || a->size.width != b->size.width ||
        a->size.reuse != b->size.reuse)
        return false;
    if (a->kind == MERAK_SAMPLE_KERNEL)
        return a->tp == b->tp && strcmp(a->op, b->op) == 0;
    return a->kind == MERAK_SAMPLE_COPY ||
           (a->n == b->n && a->inside == b->inside && a->convert == b->convert);
}

static uint64_t mix_real(uint64_t hash, double x)
{
    uint64_t bits;

    x += 0.0; /* no -0 */
    memcpy(&bits, &x, sizeof(bits));
    return merak_rng_mix(hash, bits);
}

/* Hash what is_same() compares, or a part of it. */
static int *bucket_of(const struct merak_refine *refine,
                      const struct merak_sample_class *class)
{
    uint64_t hash = mix_real((uint64_t) class->kind, class->size.bytes);

    hash = mix_real(mix_real(hash, class->size.flops), class->size.width);
    hash = mix_real(hash, class->size.reuse);
    if (class->kind == MERAK_SAMPLE_KERNEL) {
        for (const char *c = class->op; *c != '\0'; c++)
            hash = merak_rng_mix(hash, (unsigned char)*c);
    }
    return &refine->bucket[hash & (uint64_t)(refine->room - 1)];
}

static enum merak_status grow(struct merak_refine *refine,
                              struct merak_error *err)
{
    int room = refine->room == 0 ? 64 : 2 * refine->room;
    struct refine_class *class;
    int *bucket;

    if (refine->n < refine->room)
        return MERAK_OK;
    class = realloc(refine->class, (size_t)room * sizeof(*class));
    if (class != NULL)
        refine->class = class;
    bucket = realloc(refine->bucket, (size_t)room * sizeof(*bucket));
    if (bucket != NULL)
        refine->bucket = bucket;
    if (class == NULL || bucket == NULL)
        return merak_fail_nomem(err, (size_t)room * sizeof(*class));
    refine->room = room;
    for (int i = 0; i < room; i++)
        bucket[i] = -1;
    for (int i = 0; i < refine->n; i++) {
        int *first = bucket_of(refine, &class[i].what);

        class[i].next = *first;
        *first = i;
    }
    return MERAK_OK;
}

enum merak_status merak_refine_class(struct merak_refine *refine,
                                     const struct merak_sample_class *class,
                                     int *id_p, struct merak_error *err)
{
    int *first;

    if (grow(refine, err) != MERAK_OK)
        return err->status;
    first = bucket_of(refine, class);
    for (int i = *first; i >= 0; i = refine->class[i].next) {
        if (is_same(&refine->class[i].what, class)) {
            *id_p = i;
            return MERAK_OK;
        }
    }
    refine->class[refine->n] =
        (struct refine_class){.what = *class, .next = *first};
    *first = refine->n;
    *id_p = refine->n++;
    return MERAK_OK;
}

int merak_refine_members(const struct merak_refine *refine, int id)
{
    int n = refine->class[id].what.n;

    return n < 2 ? 0 : n;
}

void merak_refine_add(struct merak_refine *refine, int id, double seconds,
                      double sharers)
{
    struct refine_class *c = &refine->class[id];

    c->n++;
    c->mean += (seconds - c->mean) / (double)c->n;
    c->sharers += (sharers - c->sharers) / (double)c->n;
}

/* --- statistics ----------------------------------------------------------- */

struct weighted {
    double value, weight;
};

static int compare_weighted(const void *a, const void *b)
{
    double x = ((const struct weighted *)a)->value;
    double y = ((const struct weighted *)b)->value;

    return (x > y) - (x < y);
}

/* The value at half the weight of n > 0 pairs, which get sorted. */
static double median(struct weighted *pair, int n)
{
    double total = 0, below = 0;
    int at = 0;

    qsort(pair, (size_t)n, sizeof(*pair), compare_weighted);
    for (int i = 0; i < n; i++)
        total += pair[i].weight;
    while (at < n - 1 && below + pair[at].weight < total / 2)
        below += pair[at++].weight;
    return pair[at].value;
}

double merak_refine_bound(double x, double most)
{
    return fmin(fmax(x, 1 / most), most);
}

enum merak_status merak_refine_note(struct refine_run *run,
                                    const struct merak_change *change)
{
    enum merak_status rc = merak_grow(&run->change, &run->room, run->n_changes,
                                      sizeof(*run->change), run->err);

    if (rc == MERAK_OK)
        run->change[run->n_changes++] = *change;
    return rc;
}

/* --- kernels -------------------------------------------------------------- */

static bool is_work(const struct refine_class *c)
{
    return (c->what.kind == MERAK_SAMPLE_KERNEL ||
            c->what.kind == MERAK_SAMPLE_COPY) &&
           c->mean > 0 && c->what.size.flops + c->what.size.bytes > 0;
}

static const char *op_of(const struct merak_sample_class *what)
{
    return what->kind == MERAK_SAMPLE_COPY ? MERAK_RATE_COPY : what->op;
}

static double predict(const struct refine_run *run,
                      const struct merak_sample_class *what)
{
    const struct merak_op other = {.name = what->op}; /* one of a user's */
    const struct merak_op *op;

    if (what->kind == MERAK_SAMPLE_COPY)
        return merak_cost_copy(&run->base, what->size.bytes);
    op = merak_op_find(what->op);
    return merak_cost_kernel(&run->base, op != NULL ? op : &other, what->tp,
                             &what->size);
}

/* Which of a device's numbers bounds a kernel by the roofline. */
enum decider { BY_PRODUCTS, BY_MEMORY, BY_CALL, DECIDERS };

static enum decider decider_of(const struct merak_cost_model *model,
                               const struct merak_kernel_size *size)
{
    double compute = size->flops / model->flops_per_s;
    double memory = size->bytes / model->bytes_per_s;

    if (fmax(compute, memory) < model->kernel_s)
        return BY_CALL;
    return compute > memory ? BY_PRODUCTS : BY_MEMORY;
}

/* Ratios of measured to predicted time of classes.  Weights are the geometric
 * mean of both times, since outliers would otherwise dominate. */
struct ratios {
    struct weighted *pair;
    int n;
    long samples;
    double before, after; /* seconds, all samples */
};

static void add_ratio(struct ratios *r, const struct refine_class *c,
                      double predicted)
{
    double n = (double)c->n;

    r->pair[r->n++] =
        (struct weighted){c->mean / predicted, n * sqrt(c->mean * predicted)};
    r->samples += c->n;
    r->before += n * predicted;
    r->after += n * c->mean;
}

static void scale_rate(struct refine_run *run, enum decider by, double factor)
{
    struct merak_device *d = run->device;

    if (by == BY_PRODUCTS) {
        d->flops_per_s[run->dtype] /= factor;
        d->attention_flops_per_s[run->dtype] /= factor;
        if (d->peak_flops_per_s[run->dtype] > 0)
            d->peak_flops_per_s[run->dtype] = fmax(
                d->peak_flops_per_s[run->dtype], d->flops_per_s[run->dtype]);
    } else if (by == BY_MEMORY)
        d->bytes_per_s /= factor;
    else
        d->kernel_s *= factor;
}

static enum merak_status note_rate(struct refine_run *run, enum decider by,
                                   const struct ratios *r, double factor)
{
    static const char *const what[] = {"rate of products", "rate of memory",
                                       "a kernel's fixed cost"};
    const struct merak_cost_model *b = &run->base;
    double before[] = {b->flops_per_s, b->bytes_per_s, b->kernel_s};
    struct merak_change change = {
        .unit = by == BY_CALL ? MERAK_CHANGE_LATENCY : MERAK_CHANGE_RATE,
        .before = before[by],
        .after = by == BY_CALL ? before[by] * factor : before[by] / factor,
        .classes = r->n,
        .samples = r->samples};

    snprintf(change.what, sizeof(change.what), "%s", what[by]);
    return merak_refine_note(run, &change);
}

/* Scale the device's rates, for kernels that the run did not sample. */
static enum merak_status scale_rates(struct refine_run *run,
                                     struct weighted *pair)
{
    enum merak_status rc = MERAK_OK;

    if (run->base.rates != NULL || run->base.tp_rates != NULL)
        return MERAK_OK;
    for (enum decider by = 0; by < DECIDERS && rc == MERAK_OK; by++) {
        struct ratios r = {.pair = pair};
        double factor;

        for (int i = 0; i < run->refine->n; i++) {
            const struct refine_class *c = &run->refine->class[i];

            if (is_work(c) && decider_of(&run->base, &c->what.size) == by)
                add_ratio(&r, c, predict(run, &c->what));
        }
        if (r.n == 0)
            continue;
        factor = merak_refine_bound(median(pair, r.n), MERAK_REFINE_MOST);
        scale_rate(run, by, factor);
        rc = note_rate(run, by, &r, factor);
    }
    return rc;
}

/* The table that a class is looked up in, created if there is none. */
static enum merak_status table_of(struct refine_run *run,
                                  const struct merak_sample_class *what,
                                  struct merak_rates **rates_p)
{
    bool shared = what->kind == MERAK_SAMPLE_KERNEL && what->tp > 1;
    struct merak_rates **at = shared ? &run->device->tp_rates[run->dtype]
                                     : &run->device->rates[run->dtype];

    if (*at == NULL)
        *at = calloc(1, sizeof(**at));
    *rates_p = *at;
    return *at != NULL ? MERAK_OK : merak_fail_nomem(run->err, sizeof(**at));
}

static bool is_alike(const struct refine_class *c,
                     const struct merak_sample_class *what)
{
    return is_work(c) && c->what.kind == what->kind &&
           strcmp(op_of(&c->what), op_of(what)) == 0;
}

/* Correct an op by all its classes, the first of which is `what`. */
static enum merak_status refine_op(struct refine_run *run,
                                   const struct merak_sample_class *what,
                                   struct weighted *pair)
{
    const char *op = op_of(what);
    struct ratios r = {.pair = pair};
    struct merak_change change = {.unit = MERAK_CHANGE_SECONDS};
    double steps = (double)run->refine->steps * run->ranks;
    struct merak_rates *rates;
    enum merak_status rc = table_of(run, what, &rates);

    if (rc != MERAK_OK)
        return rc;
    for (int i = 0; i < run->refine->n; i++) {
        const struct refine_class *c = &run->refine->class[i];

        if (is_alike(c, what))
            add_ratio(&r, c, predict(run, &c->what));
    }
    merak_rates_scale(rates, op,
                      merak_refine_bound(median(pair, r.n), MERAK_REFINE_MOST));
    for (int i = 0; i < run->refine->n; i++) {
        const struct refine_class *c = &run->refine->class[i];
        struct merak_rate_point point = {c->what.size, c->mean};

        if (is_alike(c, what))
            merak_rates_set(rates, op, &point);
    }
    snprintf(change.what, sizeof(change.what), "%s", op);
    change.before = r.before / steps;
    change.after = r.after / steps;
    change.classes = r.n;
    change.samples = r.samples;
    return merak_refine_note(run, &change);
}

/* Did exchanges or transfers run at the same time as kernels?  Those among
 * tensor ranks are already included in their kernels' times. */
static bool had_beside(const struct merak_refine *refine)
{
    int tp = 1;

    for (int i = 0; i < refine->n; i++) {
        if (refine->class[i].what.kind == MERAK_SAMPLE_KERNEL)
            tp = refine->class[i].what.tp;
    }
    for (int i = 0; i < refine->n; i++) {
        const struct merak_sample_class *what = &refine->class[i].what;

        if (what->kind == MERAK_SAMPLE_TRANSFER ||
            (what->kind == MERAK_SAMPLE_EXCHANGE && what->n != tp))
            return true;
    }
    return false;
}

/* What kernels lose is now included in their times: do not add it twice. */
static enum merak_status drop_beside(struct refine_run *run)
{
    struct merak_device *d = run->device;
    struct merak_change change = {.what = "lost during exchanges, a round",
                                  .unit = MERAK_CHANGE_LATENCY,
                                  .before = d->interference_latency_s};

    if (d->interference_latency_s == 0 && d->interference_bytes_per_s == 0)
        return MERAK_OK;
    d->interference_latency_s = d->interference_bytes_per_s = 0;
    return merak_refine_note(run, &change);
}

static enum merak_status refine_kernels(struct refine_run *run)
{
    const struct merak_refine *refine = run->refine;
    size_t bytes = ((size_t)refine->n + 1) * sizeof(struct weighted);
    struct weighted *pair = malloc(bytes);
    enum merak_status rc =
        pair == NULL ? merak_fail_nomem(run->err, bytes) : MERAK_OK;

    if (rc == MERAK_OK)
        rc = scale_rates(run, pair);
    for (int i = 0; i < refine->n && rc == MERAK_OK; i++) {
        const struct refine_class *c = &refine->class[i];
        bool seen = false;

        for (int k = 0; k < i && !seen; k++)
            seen = is_alike(&refine->class[k], &c -> what);
        if (is_work(c) && !seen)
            rc = refine_op(run, &c->what, pair);
    }
    free(pair);
    return rc == MERAK_OK && had_beside(refine) ? drop_beside(run) : rc;
}

/* --- a device ------------------------------------------------------------- */

/* Copy the device's tables, since the old ones are still used to predict. */
static enum merak_status copy_rates(const struct merak_rates *from,
                                    struct merak_rates **to_p,
                                    struct merak_error *err)
{
    if (from == NULL)
        return MERAK_OK;
    *to_p = malloc(sizeof(**to_p));
    if (*to_p == NULL)
        return merak_fail_nomem(err, sizeof(**to_p));
    memcpy(*to_p, from, sizeof(**to_p));
    return MERAK_OK;
}

static enum merak_status refine_all(struct refine_run *run, bool kernels)
{
    enum merak_status rc = kernels ? refine_kernels(run) : MERAK_OK;

    if (rc == MERAK_OK)
        rc = merak_refine_links(run);
    if (rc == MERAK_OK && run->n_changes == 0)
        rc = merak_fail(
            run->err, MERAK_ERR_PARAM, "the trace has no %s to learn from",
            kernels ? "kernel, exchange or transfer" : "exchange or transfer");
    return rc;
}

enum merak_status merak_refine_device(const struct merak_refine *refine,
                                      enum merak_dtype dtype, int ranks,
                                      bool kernels, struct merak_device *device,
                                      struct merak_change **changes_p, int *n_p,
                                      struct merak_error *err)
{
    struct merak_rates *rates = NULL, *tp_rates = NULL;
    struct merak_device refined = *device;
    struct refine_run run = {.refine = refine,
                             .dtype = dtype,
                             .ranks = ranks,
                             .device = &refined,
                             .err = err};
    enum merak_status rc = copy_rates(device->rates[dtype], &rates, err);

    if (rc == MERAK_OK)
        rc = copy_rates(device->tp_rates[dtype], &tp_rates, err);
    merak_device_cost(device, dtype, 0, &run.base);
    refined.rates[dtype] = rates;
    refined.tp_rates[dtype] = tp_rates;
    if (rc == MERAK_OK)
        rc = refine_all(&run, kernels);
    if (rc != MERAK_OK) {
        free(refined.rates[dtype]);
        free(refined.tp_rates[dtype]);
        free(run.change);
        return rc;
    }
    free(device->rates[dtype]);
    free(device->tp_rates[dtype]);
    *device = refined;
    *changes_p = run.change;
    *n_p = run.n_changes;
    return MERAK_OK;
}
