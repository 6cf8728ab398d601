/* SPDX-License-Identifier: Apache-2.0 */
/* test_bigram.c - the bigram model against its formula over dense tables */
#include "config.h"

#include "unit/data_files.h"

#include "base/rng.h"
#include "io/tokens/bigram.h"
#include "io/tokens/pack.h"

#define V 11
#define SEQ 16
#define TOKENS 5000

static struct merak_data_options options(size_t vocab)
{
    return (struct merak_data_options){.spec = at("m"),
                                       .seq = SEQ,
                                       .seed = 3,
                                       .valid_fraction = 0.2,
                                       .vocab = vocab};
}

static void write_text(const int32_t *ids, size_t n)
{
    struct merak_pack *pack = NULL;

    assert_int_equal(
        merak_pack_create(at("m"), MERAK_PACK_MEGATRON, 70000, &pack, NULL),
        MERAK_OK);
    assert_int_equal(merak_pack_tokens(pack, ids, n, NULL), MERAK_OK);
    assert_int_equal(merak_pack_commit(pack, NULL), MERAK_OK);
    merak_pack_destroy(pack);
}

static struct merak_bigram_result evaluate(size_t vocab)
{
    struct merak_data_options opt = options(vocab);
    struct merak_bigram_result r = {0};
    struct merak_data *data = NULL;
    struct merak_error err = {.text = ""};

    if (merak_data_open(&opt, &data, &err) != MERAK_OK ||
        merak_bigram_evaluate(data, &opt, &r, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    merak_data_close(data);
    return r;
}

/* Some successors likely, some rare, some that never come in training. */
static void make_markov(int32_t *ids)
{
    ids[0] = 0;
    for (uint64_t i = 1; i < TOKENS; i++) {
        uint64_t r = merak_rng_mix(5, i);
        int32_t jump = r % 16 < 11   ? 1
                       : r % 16 < 15 ? 3
                                     : (int32_t)(r / 16 % V);

        ids[i] = (ids[i - 1] + jump) % V;
    }
}

struct dense {
    double pair[V][V], context[V], successor[V], distinct[V], total;
};

static void count(struct dense *d, const int32_t *x, const int32_t *y)
{
    for (int i = 0; i < SEQ; i++) {
        d->distinct[x[i]] += d->pair[x[i]][y[i]]++ == 0;
        d->context[x[i]]++;
        d->successor[y[i]]++;
        d->total++;
    }
}

static double nats(const struct dense *d, double discount, const int32_t *x,
                   const int32_t *y)
{
    double sum = 0;

    for (int i = 0; i < SEQ; i++) {
        double u = (d->successor[y[i]] + 0.5) / (d->total + 0.5 * V);
        double c = d->pair[x[i]][y[i]];

        sum -= log((fmax(c - discount, 0) + discount * d->distinct[x[i]] * u) /
                   d->context[x[i]]);
    }
    return sum;
}

/* The same by the header's words, sample by sample. */
static double expected(double *discount_p)
{
    struct merak_data_options opt = options(V);
    struct merak_data *data = NULL;
    struct dense d = {0};
    int32_t x[SEQ], y[SEQ];
    double best = INFINITY, sum = 0;
    uint64_t train, valid;

    assert_int_equal(merak_data_open(&opt, &data, NULL), MERAK_OK);
    train = merak_data_samples(data, MERAK_TRAIN);
    valid = merak_data_samples(data, MERAK_VALID);
    for (int held = 0; held < 2; held++) {
        for (int k = 1; held && k <= 20; k++) {
            sum = 0;
            for (uint64_t s = 0; s < train; s += 10) {
                assert_int_equal(
                    merak_data_sample(data, MERAK_TRAIN, s, x, y, NULL), 0);
                sum += nats(&d, k / 20.0, x, y);
            }
            if (sum < best) {
                best = sum;
                *discount_p = k / 20.0;
            }
        }
        for (uint64_t s = 0; s < train; s++) {
            assert_int_equal(
                merak_data_sample(data, MERAK_TRAIN, s, x, y, NULL), 0);
            if ((s % 10 == 0) == (held == 1))
                count(&d, x, y);
        }
    }
    sum = 0;
    for (uint64_t s = 0; s < valid; s++) {
        assert_int_equal(merak_data_sample(data, MERAK_VALID, s, x, y, NULL),
                         0);
        sum += nats(&d, *discount_p, x, y);
    }
    merak_data_close(data);
    return sum / (double)(valid * SEQ);
}

static void a_markov_text_is_judged_by_the_formula(void **state)
{
    static int32_t ids[TOKENS];
    struct merak_bigram_result r;
    double discount = 0, want;

    (void)state;
    make_markov(ids);
    write_text(ids, TOKENS);
    r = evaluate(V);
    want = expected(&discount);
    /* sums in another order: a few ulp of 1000 terms */
    assert_near(&r.bigram, &want, 1, 1e-12, 0.0);
    assert_near(&r.discount, &discount, 1, 0.0, 0.0);
    assert_int_equal(r.valid_tokens, 999 / SEQ * SEQ);
    assert_int_equal(r.train_tokens, 3999 / SEQ * SEQ);
    /* its entropy is 0.867; a unigram sees next to nothing of it */
    assert_true(r.bigram > 0.82 && r.bigram < 0.92);
    assert_true(r.unigram > 2.3 && r.unigram < 2.5);
}

/* Nothing to learn: log V, a little more for what noise is taken for. */
static void noise_costs_the_logarithm_of_the_vocabulary(void **state)
{
    static int32_t ids[40000];
    struct merak_bigram_result r;

    (void)state;
    for (uint64_t i = 0; i < 40000; i++)
        ids[i] = (int32_t)(merak_rng_mix(9, i) % 61) + 60000;
    write_text(ids, 40000);
    r = evaluate(60061);
    assert_true(r.bigram > log(61) && r.bigram < log(61) + 0.1);
    r = evaluate(0); /* the largest id plus one: the same */
    assert_true(r.bigram > log(61) && r.bigram < log(61) + 0.1);
}

static void a_data_set_without_validation_is_refused(void **state)
{
    static int32_t ids[100];
    struct merak_data_options opt = options(1);
    struct merak_bigram_result r;
    struct merak_data *data = NULL;
    struct merak_error err;

    (void)state;
    write_text(ids, 100);
    opt.valid_fraction = 0;
    assert_int_equal(merak_data_open(&opt, &data, NULL), MERAK_OK);
    assert_int_equal(merak_bigram_evaluate(data, &opt, &r, &err),
                     MERAK_ERR_CONFIG);
    assert_non_null(strstr(err.text, "give a validation fraction"));
    merak_data_close(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_markov_text_is_judged_by_the_formula),
        cmocka_unit_test(noise_costs_the_logarithm_of_the_vocabulary),
        cmocka_unit_test(a_data_set_without_validation_is_refused),
    };

    return cmocka_run_group_tests_name("bigram", tests, make_scratch,
                                       remove_scratch);
}
