/* SPDX-License-Identifier: Apache-2.0 */
/* test_next_token.c - a token is drawn by its share of what is kept */
#include "config.h"

#include "unit/near.h"

#include "runtime/infer/next_token.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define V 50
#define DRAWS 40000

static void draw(const struct merak_sampling *how, const float *logits,
                 double share[V])
{
    struct merak_sampler *s;
    struct merak_error err;

    if (merak_sampler_create(how, V, &s, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    memset(share, 0, V * sizeof(*share));
    for (uint64_t i = 0; i < DRAWS; i++)
        share[merak_sampler_next(s, logits, i)] += 1.0 / DRAWS;
    assert_int_equal(merak_sampler_next(s, logits, 5),
                     merak_sampler_next(s, logits, 5));
    merak_sampler_destroy(s);
}

/* Shares of what is kept of a softmax, by its definition. */
static void expect(const struct merak_sampling *how, const float *logits,
                   double want[V])
{
    double sum = 0, before = 0, all = 0;
    bool kept[V];

    for (int i = 0; i < V; i++) {
        int rank = 0;

        want[i] = exp((double)logits[i] / how->temperature);
        for (int j = 0; j < V; j++)
            rank += logits[j] > logits[i] || (logits[j] == logits[i] && j < i);
        kept[i] = how->top_k == 0 || rank < (int)how->top_k;
        all += kept[i] ? want[i] : 0;
    }
    for (int i = 0; i < V; i++) {
        before = 0;
        for (int j = 0; j < V; j++) {
            if (kept[j] &&
                (logits[j] > logits[i] || (logits[j] == logits[i] && j < i)))
                before += want[j];
        }
        if (!kept[i] || before >= how->top_p * all)
            want[i] = 0;
        sum += want[i];
    }
    for (int i = 0; i < V; i++)
        want[i] /= sum;
}

static void tokens_are_drawn_by_their_share(void **state)
{
    static const struct merak_sampling ways[] = {
        {1.0, 0, 1.0, 1},  {0.7, 0, 1.0, 2},     {1.0, 5, 1.0, 3},
        {1.3, 0, 0.6, 4},  {0.9, 8, 0.8, 5},     {1.0, 1, 1.0, 6},
        {1.0, 0, 1e-9, 7}, {1.0, V + 3, 1.0, 8},
    };
    double share[V], want[V];
    float logits[V];

    (void)state;
    for (int i = 0; i < V; i++)
        logits[i] = (float)(i * 7 % 13) / 3;
    for (size_t w = 0; w < sizeof(ways) / sizeof(*ways); w++) {
        draw(&ways[w], logits, share);
        expect(&ways[w], logits, want);
        for (int i = 0; i < V; i++) {
            /* four times the deviation that so many draws leave */
            double room = 4 * sqrt(want[i] * (1 - want[i]) / DRAWS);

            if (fabs(share[i] - want[i]) > room + 1e-9)
                fail_msg("way %zu: token %d is drawn %g, expected %g", w, i,
                         share[i], want[i]);
        }
    }
}

static void no_temperature_takes_the_likeliest(void **state)
{
    const struct merak_sampling how = {0, 3, 0.5, 1};
    float logits[V] = {[7] = 2, [9] = 2};
    double share[V];

    (void)state;
    draw(&how, logits, share);
    assert_true(fabs(share[7] - 1) < 1e-9);
}

static void odd_ways_of_drawing_are_refused(void **state)
{
    static const struct {
        struct merak_sampling how;
        const char *text;
    } odd[] = {
        {{-1, 0, 1, 0}, "temperature is -1, expected a number not below 0"},
        {{NAN, 0, 1, 0}, "temperature is nan, expected a number not below 0"},
        {{1, 0, 0, 0}, "top-p is 0, expected above 0 and at most 1"},
        {{1, 0, 1.5, 0}, "top-p is 1.5, expected above 0 and at most 1"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(odd) / sizeof(*odd); i++) {
        struct merak_sampler *s = NULL;
        struct merak_error err;

        assert_int_equal(merak_sampler_create(&odd[i].how, V, &s, &err),
                         MERAK_ERR_CONFIG);
        assert_string_equal(err.text, odd[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_drawn_by_their_share),
        cmocka_unit_test(no_temperature_takes_the_likeliest),
        cmocka_unit_test(odd_ways_of_drawing_are_refused),
    };

    return cmocka_run_group_tests_name("next_token", tests, NULL, NULL);
}
