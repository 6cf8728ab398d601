/* SPDX-License-Identifier: Apache-2.0 */
/* fingerprint.c - may this run go on from that checkpoint? */
#include "config.h"

#include "runtime/train/fingerprint.h"

#include "runtime/train/trainer.h"

#include "base/error.h"
#include "base/rng.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Levels of ZeRO sum gradients of several micro-batches in one of three orders,
 * those of one micro-batch alike. */
static const char *sums_text(const struct merak_plan *plan)
{
    if (!merak_plan_sums_each(plan) || plan->microbatches == 1)
        return "0 or 1 (sums of a step)";
    return merak_plan_is_home_in(plan)
               ? "2 or 3 in (inner sums of each micro-batch)"
               : "2 or 3 (sums of each micro-batch)";
}

/* Gradients of fp32 weights are fp32. */
static const char *grads_text(const struct merak_plan *plan)
{
    if (plan->dtype != MERAK_BF16)
        return "";
    return plan->grad_dtype == MERAK_BF16 ? "--grad-dtype=bf16; "
                                          : "--grad-dtype=fp32; ";
}

/* What hides tokens, and by which ids; nothing if none are hidden. */
static size_t put_corrupt(const struct merak_trainer *t, char *text,
                          size_t size)
{
    const struct merak_corrupt *corrupt = &t->opt.data.corrupt;
    char kind[MERAK_CORRUPT_TEXT];

    merak_corrupt_text(corrupt, kind);
    if (corrupt->kind == MERAK_CORRUPT_NONE)
        return 0;
    if (corrupt->kind == MERAK_CORRUPT_MASK)
        return (size_t)snprintf(text, size, "--corrupt=%s; --mask-id=%d; ",
                                kind, t->load.ids.mask);
    return (size_t)snprintf(
        text, size, "--corrupt=%s; --sentinel-id=%d; --encoder-seq=%zu; ", kind,
        t->load.ids.sentinel, t->load.encoder_seq);
}

enum merak_status merak_fingerprint_make(struct merak_trainer *t,
                                         struct merak_error *err)
{
    const struct merak_train_options *o = &t->opt;
    struct merak_data_packed packed;
    char content[MERAK_DATA_CONTENT], hops[MERAK_LOSSY_TEXT];
    size_t n, size = sizeof(t->lineage.fingerprint);

    merak_samples_content(t->load.samples, content);
    n = (size_t)snprintf(
        t->lineage.fingerprint, size,
        "data=%s; --valid-fraction=%.9g; --packing=%s; --doc-mask=%s; "
        "--dtype=%s; %s--weight-decay=%g; --beta1=%g; --beta2=%g; --eps=%g; "
        "--clip=%g; --zero=%s; --lossy-hops=%s; --loss-pieces=%d; ",
        content, o->data.valid_fraction,
        merak_data_is_packed(t->data, &packed) ? "best-fit" : "stream",
        o->data.doc_mask ? "yes" : "no", merak_dtype_name(t->plan.dtype),
        grads_text(&t->plan), (double)o->optimizer.weight_decay,
        (double)o->optimizer.beta1, (double)o->optimizer.beta2,
        (double)o->optimizer.eps, (double)o->optimizer.clip,
        sums_text(&t->plan),
        merak_lossy_text(&t->plan.lossy, ",", hops, sizeof(hops)),
        merak_plan_loss_pieces(&t->plan));
    n += put_corrupt(t, t->lineage.fingerprint + n, size - n);
    if (n + strlen(t->lineage.numbers) < size) {
        strcpy(t->lineage.fingerprint + n, t->lineage.numbers);
        return MERAK_OK;
    }
    /* an op with very many attributes: they are compared, but not named */
    if (n + sizeof("operations=0123456789abcdef") > size)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "the fingerprint of the run is too long: %zu bytes",
                          n + strlen(t->lineage.numbers));
    sprintf(t->lineage.fingerprint + n, "operations=%016" PRIx64,
            merak_rng_key(0, t->lineage.numbers));
    return MERAK_OK;
}

/* --- comparing --------------------------------------------------------------
 */

struct entry {
    const char *key, *value;
    int key_bytes, value_bytes;
};

/* Take the entry at *at_p and move on; false at the end. */
static bool take(const char **at_p, struct entry *e)
{
    const char *at = *at_p, *equals = strchr(at, '='), *end = strstr(at, "; ");

    if (equals == NULL || (end != NULL && end < equals))
        return false;
    if (end == NULL)
        end = at + strlen(at);
    *e = (struct entry){.key = at,
                        .value = equals + 1,
                        .key_bytes = (int)(equals - at),
                        .value_bytes = (int)(end - equals - 1)};
    *at_p = *end == '\0' ? end : end + 2;
    return true;
}

static bool find(const char *text, const struct entry *like, struct entry *e)
{
    while (take(&text, e)) {
        if (e->key_bytes == like->key_bytes &&
            memcmp(e->key, like->key, (size_t)e->key_bytes) == 0)
            return true;
    }
    return false;
}

static bool is_key(const struct entry *e, const char *key)
{
    return strlen(key) == (size_t)e->key_bytes &&
           memcmp(e->key, key, (size_t)e->key_bytes) == 0;
}

static enum merak_difference_kind kind_of(const struct entry *e)
{
    static const char *const data[] = {
        "data",      "--valid-fraction", "--packing",     "--doc-mask",
        "--corrupt", "--mask-id",        "--sentinel-id", "--encoder-seq"};

    for (size_t i = 0; i < sizeof(data) / sizeof(*data); i++) {
        if (is_key(e, data[i]))
            return MERAK_DIFFERENCE_DATA;
    }
    return e->key[0] == '-' ? MERAK_DIFFERENCE_SAID : MERAK_DIFFERENCE_MODEL;
}

/* Is the entry another one in the other text?  Sets *other, its key included.
 */
static bool differs(const char *text, const struct entry *e,
                    struct entry *other)
{
    static const struct entry operations = {.key = "operations",
                                            .key_bytes = 10};
    struct entry found;

    if (find(text, e, other))
        return other->value_bytes != e->value_bytes ||
               memcmp(other->value, e->value, (size_t)e->value_bytes) != 0;
    *other = *e;
    other->value = "0";
    other->value_bytes = 1;
    return kind_of(e) == MERAK_DIFFERENCE_MODEL &&
           find(text, &operations, &found);
}

static void copy(char *to, size_t size, const char *from, int bytes)
{
    snprintf(to, size, "%.*s", bytes, from);
}

static void fill(struct merak_difference *d, const struct entry *then,
                 const struct entry *now)
{
    d->kind = kind_of(now);
    copy(d->key, sizeof(d->key), now->key, now->key_bytes);
    copy(d->then, sizeof(d->then), then->value, then->value_bytes);
    copy(d->now, sizeof(d->now), now->value, now->value_bytes);
}

bool merak_fingerprint_difference(const char *then, const char *now, int i,
                                  struct merak_difference *d)
{
    const char *at = now;
    struct entry mine, theirs;

    while (take(&at, &mine)) {
        if (differs(then, &mine, &theirs) && i-- == 0) {
            fill(d, &theirs, &mine);
            return true;
        }
    }
    at = then; /* what only the checkpoint has */
    while (take(&at, &theirs)) {
        if (!find(now, &theirs, &mine) && differs(now, &theirs, &mine) &&
            i-- == 0) {
            fill(d, &theirs, &mine);
            return true;
        }
    }
    return false;
}
