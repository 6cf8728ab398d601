/* SPDX-License-Identifier: Apache-2.0 */
/* bigram.c - a bigram model as a baseline
 *
 * Pairs are counted in a hash table with open addressing, so the cost depends
 * on the text and not on the size of the vocabulary.  The count of a token, as
 * context or as successor, is stored as a pair with a wildcard.
 */
#include "config.h"

#include "io/tokens/bigram.h"

#include "base/error.h"
#include "merak/types.h"
#include "base/rng.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define ANY UINT32_MAX /* no id: ids are below 2^31 */
#define DISCOUNTS 20   /* D = (i + 1) / DISCOUNTS */
#define HELD_OUT 10    /* one sample in ten chooses D */

struct cell {
    uint32_t a, b; /* both ANY: free */
    uint64_t count;
    uint64_t distinct; /* of (a, ANY): successors seen after a */
};

struct counts {
    struct cell *cell;
    size_t mask, used; /* at most half full */
    uint64_t total;
    size_t vocab;
};

/* --- counting ---------------------------------------------------------- */

static struct cell *find(const struct counts *c, uint32_t a, uint32_t b)
{
    size_t at = (size_t)merak_rng_mix(a, b);

    for (;; at++) {
        struct cell *cell = &c->cell[at & c->mask];

        if ((cell->a == a && cell->b == b) ||
            (cell->a == ANY && cell->b == ANY))
            return cell;
    }
}

static enum merak_status counts_init(struct counts *c, size_t cells,
                                     struct merak_error *err)
{
    c->cell = malloc(cells * sizeof(*c->cell));
    if (c->cell == NULL)
        return merak_fail_nomem(err, cells * sizeof(*c->cell));
    for (size_t i = 0; i < cells; i++)
        c->cell[i] = (struct cell){.a = ANY, .b = ANY};
    c->mask = cells - 1;
    return MERAK_OK;
}

static enum merak_status grow(struct counts *c, struct merak_error *err)
{
    struct counts old = *c;
    enum merak_status rc = counts_init(c, 2 * (old.mask + 1), err);

    if (rc != MERAK_OK) {
        *c = old;
        return rc;
    }
    for (size_t i = 0; i <= old.mask; i++) {
        struct cell cell = old.cell[i];

        if (cell.a != ANY || cell.b != ANY)
            *find(c, cell.a, cell.b) = cell;
    }
    free(old.cell);
    return MERAK_OK;
}

/* Count one more (a, b); true if it is the first. */
static bool bump(struct counts *c, uint32_t a, uint32_t b)
{
    struct cell *cell = find(c, a, b);
    bool first = cell->count++ == 0;

    cell->a = a;
    cell->b = b;
    c->used += first;
    return first;
}

static enum merak_status count_pair(struct counts *c, int32_t a, int32_t b,
                                    struct merak_error *err)
{
    bool first;

    if (2 * (c->used + 3) > c->mask) {
        enum merak_status rc = grow(c, err);

        if (rc != MERAK_OK)
            return rc;
    }
    first = bump(c, (uint32_t)a, (uint32_t)b);
    bump(c, (uint32_t)a, ANY);
    bump(c, ANY, (uint32_t)b);
    if (first)
        find(c, (uint32_t)a, ANY)->distinct++;
    c->total++;
    return MERAK_OK;
}

/* --- probabilities ----------------------------------------------------- */

static double unigram(const struct counts *c, int32_t b)
{
    return ((double)find(c, ANY, (uint32_t)b)->count + 0.5) /
           ((double)c->total + 0.5 * (double)c->vocab);
}

/* P(b|a) for each of the discounts d[n]. */
static void bigram(const struct counts *c, int32_t a, int32_t b,
                   const double *d, int n, double *p)
{
    const struct cell *context = find(c, (uint32_t)a, ANY);
    double pair = (double)find(c, (uint32_t)a, (uint32_t)b)->count;
    double seen = (double)context->count, u = unigram(c, b);

    for (int i = 0; i < n; i++) {
        double kept = pair > d[i] ? pair - d[i] : 0.0;

        p[i] =
            seen > 0 ? (kept + d[i] * (double)context->distinct * u) / seen : u;
    }
}

/* --- passes over samples ----------------------------------------------- */

struct pass {
    const struct merak_data *data;
    size_t seq;
    int32_t *tokens, *targets;
    struct counts counts;
    double discount[DISCOUNTS];
    int n_discounts;
    double nats[DISCOUNTS], unigram_nats;
};

typedef enum merak_status (*pair_fn)(struct pass *pass, int32_t a, int32_t b,
                                     struct merak_error *err);

static enum merak_status add_pair(struct pass *pass, int32_t a, int32_t b,
                                  struct merak_error *err)
{
    return count_pair(&pass->counts, a, b, err);
}

static enum merak_status judge_pair(struct pass *pass, int32_t a, int32_t b,
                                    struct merak_error *err)
{
    double p[DISCOUNTS];

    (void)err;
    bigram(&pass->counts, a, b, pass->discount, pass->n_discounts, p);
    for (int i = 0; i < pass->n_discounts; i++)
        pass->nats[i] -= log(p[i]);
    pass->unigram_nats -= log(unigram(&pass->counts, b));
    return MERAK_OK;
}

static enum merak_status find_vocab(struct pass *pass, int32_t a, int32_t b,
                                    struct merak_error *err)
{
    size_t largest = (size_t)(a > b ? a : b);

    (void)err;
    if (largest >= pass->counts.vocab)
        pass->counts.vocab = largest + 1;
    return MERAK_OK;
}

/* Which samples of a split: all, every tenth, or all but those. */
enum part { ALL, HELD, KEPT };

static enum merak_status each_pair(struct pass *pass, enum merak_split split,
                                   enum part part, pair_fn fn,
                                   struct merak_error *err)
{
    uint64_t n = merak_data_samples(pass->data, split);

    for (uint64_t s = 0; s < n; s++) {
        bool held = s % HELD_OUT == 0;
        enum merak_status rc;

        if ((part == HELD && !held) || (part == KEPT && held))
            continue;
        rc = merak_data_sample(pass->data, split, s, pass->tokens,
                               pass->targets, err);
        for (size_t i = 0; rc == MERAK_OK && i < pass->seq; i++) {
            if (pass->targets[i] != MERAK_NO_TARGET)
                rc = fn(pass, pass->tokens[i], pass->targets[i], err);
        }
        if (rc != MERAK_OK)
            return rc;
    }
    return MERAK_OK;
}

static enum merak_status choose_discount(struct pass *pass,
                                         struct merak_error *err)
{
    enum merak_status rc;
    int best = 0;

    pass->n_discounts = DISCOUNTS;
    for (int i = 0; i < DISCOUNTS; i++)
        pass->discount[i] = (i + 1) / (double)DISCOUNTS;
    rc = each_pair(pass, MERAK_TRAIN, KEPT, add_pair, err);
    if (rc == MERAK_OK)
        rc = each_pair(pass, MERAK_TRAIN, HELD, judge_pair, err);
    if (rc != MERAK_OK)
        return rc;
    for (int i = 1; i < DISCOUNTS; i++) {
        if (pass->nats[i] < pass->nats[best])
            best = i;
    }
    pass->discount[0] = pass->discount[best];
    pass->n_discounts = 1;
    pass->nats[0] = pass->unigram_nats = 0.0;
    return each_pair(pass, MERAK_TRAIN, HELD, add_pair, err);
}

static enum merak_status evaluate(struct pass *pass, size_t vocab,
                                  struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    pass->counts.vocab = vocab;
    if (vocab == 0)
        rc = each_pair(pass, MERAK_TRAIN, ALL, find_vocab, err);
    if (rc == MERAK_OK && vocab == 0)
        rc = each_pair(pass, MERAK_VALID, ALL, find_vocab, err);
    if (rc == MERAK_OK)
        rc = choose_discount(pass, err);
    if (rc == MERAK_OK)
        rc = each_pair(pass, MERAK_VALID, ALL, judge_pair, err);
    return rc;
}

enum merak_status merak_bigram_evaluate(const struct merak_data *data,
                                        const struct merak_data_options *opt,
                                        struct merak_bigram_result *result,
                                        struct merak_error *err)
{
    struct pass pass = {.data = data, .seq = opt->seq};
    uint64_t samples = merak_data_samples(data, MERAK_VALID), valid;
    enum merak_status rc;

    if (samples == 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "a bigram is evaluated on the validation split, "
                          "which is empty: give a validation fraction");
    valid = merak_data_counted(data, MERAK_VALID, 0, samples);
    rc = counts_init(&pass.counts, 1024, err);
    if (rc != MERAK_OK)
        return rc;
    pass.tokens = malloc(opt->seq * sizeof(*pass.tokens));
    pass.targets = malloc(opt->seq * sizeof(*pass.targets));
    if (pass.tokens == NULL || pass.targets == NULL) {
        rc = merak_fail_nomem(err, opt->seq * sizeof(*pass.tokens));
        goto out;
    }
    rc = evaluate(&pass, opt->vocab, err);
    if (rc != MERAK_OK)
        goto out;
    *result = (struct merak_bigram_result){
        .bigram = pass.nats[0] / (double)valid,
        .unigram = pass.unigram_nats / (double)valid,
        .discount = pass.discount[0],
        .train_tokens = pass.counts.total,
        .valid_tokens = valid,
    };
out:
    free(pass.counts.cell);
    free(pass.tokens);
    free(pass.targets);
    return rc;
}
