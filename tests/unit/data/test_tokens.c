/* SPDX-License-Identifier: Apache-2.0 */
/* test_tokens.c - which tokens a sample holds, whoever asks and in what order
 */
#include "config.h"

#include "unit/data_files.h"

#include "io/tokens/tokens.h"
#include "io/tokens/blend.h"

#define SEQ 8

static struct merak_data *open_data(const char *spec, double valid)
{
    struct merak_data_options opt = {
        .spec = spec, .seq = SEQ, .seed = 7, .valid_fraction = valid};
    struct merak_data *data = NULL;
    struct merak_error err = {.text = ""};

    if (merak_data_open(&opt, &data, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return data;
}

static enum merak_status refuse(struct merak_data_options opt, const char *text)
{
    struct merak_data *data = NULL;
    struct merak_error err = {.text = ""};
    enum merak_status rc = merak_data_open(&opt, &data, &err);

    assert_null(data);
    if (strstr(err.text, text) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", text, err.text);
    return rc;
}

/* First token of a sample, having checked that the others follow it. */
static int32_t first_token(const struct merak_data *data,
                           enum merak_split split, uint64_t index)
{
    int32_t x[SEQ], y[SEQ];

    assert_int_equal(merak_data_sample(data, split, index, x, y, NULL),
                     MERAK_OK);
    for (int i = 0; i < SEQ; i++)
        assert_int_equal(y[i], i + 1 < SEQ ? x[i + 1] : x[i] + 1);
    return x[0];
}

static void write_counting(const char *name, int32_t first, int32_t tokens)
{
    int32_t lengths[3] = {tokens / 3, 1, tokens - tokens / 3 - 1};

    write_megatron(at(name), first, lengths, 3);
}

static void an_epoch_holds_every_sample_once(void **state)
{
    struct merak_data *data;
    int moved = 0;

    (void)state;
    write_counting("a", 0, 50 * SEQ + 1);
    data = open_data(at("a"), 0.0);
    assert_int_equal(merak_data_samples(data, MERAK_TRAIN), 50);
    assert_int_equal(merak_data_samples(data, MERAK_VALID), 0);
    assert_int_equal(merak_data_tokens(data), 50 * SEQ + 1);
    for (uint64_t epoch = 0; epoch < 4; epoch++) {
        int seen[50] = {0};

        for (uint64_t i = 0; i < 50; i++) {
            int32_t x = first_token(data, MERAK_TRAIN, epoch * 50 + i);

            assert_int_equal(x % SEQ, 0);
            assert_int_equal(seen[x / SEQ]++, 0);
            moved += x / SEQ != first_token(data, MERAK_TRAIN, i) / SEQ;
        }
    }
    /* Each later epoch has another order: about 49 of 50 move. */
    assert_in_range(moved, 130, 150);
    merak_data_close(data);
}

/* A sample is what it is, read forwards, backwards or alone. */
static void a_sample_depends_on_its_index_alone(void **state)
{
    struct merak_data *one, *two;
    int32_t want[120];

    (void)state;
    write_counting("a", 0, 50 * SEQ + 1);
    one = open_data(at("a"), 0.1);
    for (uint64_t i = 0; i < 120; i++)
        want[i] = first_token(one, MERAK_TRAIN, i);
    two = open_data(at("a.bin"), 0.1);
    for (uint64_t i = 120; i-- > 0;)
        assert_int_equal(first_token(two, MERAK_TRAIN, i), want[i]);
    assert_string_equal(merak_data_id(one), merak_data_id(two));
    assert_int_equal(strlen(merak_data_id(one)), 64);
    merak_data_close(one);
    merak_data_close(two);
}

static void the_seed_changes_the_order(void **state)
{
    struct merak_data_options opt = {.seq = SEQ, .seed = 8};
    struct merak_data *one, *two = NULL;
    int same = 0;

    (void)state;
    write_counting("a", 0, 200 * SEQ + 1);
    opt.spec = at("a");
    one = open_data(opt.spec, 0.0);
    assert_int_equal(merak_data_open(&opt, &two, NULL), MERAK_OK);
    for (uint64_t i = 0; i < 200; i++)
        same += first_token(one, MERAK_TRAIN, i) ==
                first_token(two, MERAK_TRAIN, i);
    assert_true(same < 8); /* 1 expected */
    merak_data_close(one);
    merak_data_close(two);
}

/* The tail of every file, in file order; the rest is never mixed with it. */
static void validation_is_the_tail_in_order(void **state)
{
    struct merak_data *data;

    (void)state;
    write_counting("a", 0, 100);
    write_counting("b", 1000, 200);
    data = open_data(at("?.bin"), 0.5);
    /* 50 + 100 tokens each: 49 + 100 pairs */
    assert_int_equal(merak_data_samples(data, MERAK_VALID), 149 / SEQ);
    assert_int_equal(merak_data_samples(data, MERAK_TRAIN), 149 / SEQ);
    for (uint64_t i = 0; i < 6; i++)
        assert_int_equal(first_token(data, MERAK_VALID, i), 50 + i * SEQ);
    for (uint64_t i = 7; i < 18; i++)
        assert_int_equal(first_token(data, MERAK_VALID, i),
                         1100 + i * SEQ - 50);
    assert_int_equal(first_token(data, MERAK_VALID, 18), 50);
    merak_data_close(data);
}

/* To evaluate data, each of its samples is used once, whatever the weights. */
static void samples_in_order_are_those_of_the_files(void **state)
{
    struct merak_data_options opt = {.seq = SEQ, .in_order = true};
    struct merak_data *data;
    char spec[512];

    (void)state;
    write_counting("a", 0, 5 * SEQ + 1);
    write_counting("b", 1000, 3 * SEQ + 1);
    snprintf(spec, sizeof(spec), "0.1 %s 0.9 %s", at("a"), at("b"));
    opt.spec = spec;
    assert_int_equal(merak_data_open(&opt, &data, NULL), MERAK_OK);
    assert_int_equal(merak_data_samples(data, MERAK_TRAIN), 8);
    for (uint64_t i = 0; i < 8; i++)
        assert_int_equal(first_token(data, MERAK_TRAIN, i),
                         i < 5 ? i * SEQ : 1000 + (i - 5) * SEQ);
    merak_data_close(data);
}

/* Sample 6 of both splits above crosses from one file to the next. */
static void samples_cross_files(void **state)
{
    struct merak_data *data;
    const int32_t want[SEQ] = {98, 99, 1100, 1101, 1102, 1103, 1104, 1105};
    int32_t x[SEQ], y[SEQ];

    (void)state;
    write_counting("a", 0, 100);
    write_counting("b", 1000, 200);
    data = open_data(at("?.bin"), 0.5);
    assert_int_equal(merak_data_sample(data, MERAK_VALID, 6, x, y, NULL),
                     MERAK_OK);
    assert_memory_equal(x, want, sizeof(want));
    assert_memory_equal(y, want + 1, sizeof(want) - sizeof(*want));
    assert_int_equal(y[SEQ - 1], 1106);
    merak_data_close(data);
}

static void blends_keep_their_proportions(void **state)
{
    struct merak_data *data;
    char spec[300];
    int from_b = 0;

    (void)state;
    write_counting("a", 0, 30 * SEQ + 1);
    write_counting("b", 100000, 1000 * SEQ + 1);
    snprintf(spec, sizeof(spec), "0.7 %s 0.3 %s", at("a"), at("b"));
    data = open_data(spec, 0.0);
    assert_int_equal(merak_data_samples(data, MERAK_TRAIN), 1030);
    for (uint64_t i = 0; i < 1000; i++) {
        from_b += first_token(data, MERAK_TRAIN, i) >= 100000;
        assert_true(fabs(from_b - 0.3 * (double)(i + 1)) < 1.0);
    }
    assert_int_equal(from_b, 300);
    merak_data_close(data);
}

/* Each source goes through epochs of its own: 30 turns of a, whenever they
 * come, are its 30 samples. */
static void blended_sources_keep_their_epochs(void **state)
{
    struct merak_data *data;
    char spec[300];
    int seen[30] = {0};
    int had = 0;

    (void)state;
    write_counting("a", 0, 30 * SEQ + 1);
    write_counting("b c", 100000, 1000 * SEQ + 1);
    snprintf(spec, sizeof(spec), "0.7 %s 0.3 '%s'", at("a"), at("b c"));
    data = open_data(spec, 0.0);
    for (uint64_t i = 0; had < 90; i++) {
        int32_t x = first_token(data, MERAK_TRAIN, i);

        if (x >= 100000)
            continue;
        assert_int_equal(seen[x / SEQ]++, had++ / 30);
    }
    merak_data_close(data);
}

static const struct {
    size_t n;
    double weight[4];
    uint32_t period;
} blend_rows[] = {
    {1, {3.0}, 1},
    {2, {0.7, 0.3}, 10},
    {2, {2, 6}, 4},
    {3, {0.5, 0.3, 0.2}, 10},
    {4, {0.415, 0.25, 0.235, 0.1}, 200},
    {2, {1.0, 3.141592653589793}, 65536},
    {2, {1, 60000}, 60001},
};

/* Against a replay of the rule with nothing but the weights. */
static void turns_go_to_the_largest_deficit(void **state)
{
    (void)state;
    for (size_t r = 0; r < sizeof(blend_rows) / sizeof(*blend_rows); r++) {
        struct merak_blend b;
        uint64_t had[4] = {0}, number;

        assert_int_equal(
            merak_blend_init(&b, blend_rows[r].weight, blend_rows[r].n, NULL),
            MERAK_OK);
        assert_int_equal(b.period, blend_rows[r].period);
        for (uint64_t i = 0; i < 3 * (uint64_t)b.period; i++) {
            size_t got = merak_blend_at(&b, i, &number), want = 0;
            int64_t most = INT64_MIN;

            for (size_t k = 0; k < b.n; k++) {
                int64_t d = (int64_t)(b.count[k] * (i + 1)) -
                            (int64_t)(had[k] * b.period);

                if (d > most) {
                    most = d;
                    want = k;
                }
            }
            assert_int_equal(got, want);
            assert_int_equal(number, had[got]++);
        }
        for (size_t k = 0; k < b.n; k++)
            assert_int_equal(had[k], 3 * (uint64_t)b.count[k]);
        merak_blend_fini(&b);
    }
}

/* 2^62 samples on, nothing has wrapped or slowed down. */
static void far_indices_are_as_good(void **state)
{
    struct merak_data *data;
    char spec[300];

    (void)state;
    write_counting("a", 0, 30 * SEQ + 1);
    write_counting("b", 100000, 40 * SEQ + 1);
    snprintf(spec, sizeof(spec), "0.7 %s 0.3 %s", at("a"), at("b"));
    data = open_data(spec, 0.0);
    for (uint64_t i = 0; i < 100; i++)
        first_token(data, MERAK_TRAIN, (1ull << 62) + i);
    merak_data_close(data);
}

static void bad_requests_are_refused(void **state)
{
    struct merak_data_options opt = {.seq = SEQ};
    char spec[300];

    (void)state;
    write_counting("a", 0, 100);
    opt.spec = "";
    assert_int_equal(refuse(opt, "no path"), MERAK_ERR_CONFIG);
    opt.spec = "0.5 x 0.5";
    assert_int_equal(refuse(opt, "a weight or a path is missing"),
                     MERAK_ERR_CONFIG);
    opt.spec = "0.5 x half y";
    assert_int_equal(refuse(opt, "a weight is not a number"), MERAK_ERR_CONFIG);
    opt.spec = "0.5 x 0 y";
    assert_int_equal(refuse(opt, "weight 2 of the blend is 0, expected a "
                                 "positive number"),
                     MERAK_ERR_CONFIG);
    opt.spec = "1 x 1e-9 y";
    assert_int_equal(refuse(opt, "weight 2 of the blend is 1e-09 of the "
                                 "whole, expected at least 1/65536"),
                     MERAK_ERR_CONFIG);
    snprintf(spec, sizeof(spec), "1 %s 1 %s", at("a"), at("absent"));
    opt.spec = spec;
    assert_int_equal(refuse(opt, "absent: no such data set"),
                     MERAK_ERR_NOT_FOUND);
    opt.spec = at("a");
    opt.valid_fraction = 1.0;
    assert_int_equal(refuse(opt, "validation fraction 1, expected"),
                     MERAK_ERR_CONFIG);
}

static void too_little_data_is_refused_with_both_numbers(void **state)
{
    struct merak_data_options opt = {.seq = 100};

    (void)state;
    write_counting("a", 0, 100);
    opt.spec = at("a");
    assert_int_equal(
        refuse(opt, "100 tokens for training, one sample of 100 needs 101: "
                    "give more data or a smaller --seq"),
        MERAK_ERR_MISMATCH);
    opt.seq = SEQ;
    opt.valid_fraction = 0.05;
    assert_int_equal(
        refuse(opt, "5 tokens for validation, one sample of 8 needs 9: give "
                    "more data, a smaller --seq or --valid-fraction 0"),
        MERAK_ERR_MISMATCH);
}

static void an_id_outside_the_vocabulary_stops_the_sample(void **state)
{
    struct merak_data_options opt = {.seq = SEQ, .vocab = 3000};
    struct merak_data *data = NULL;
    struct merak_error err;
    unsigned char bytes[4 * 5000 + 4];
    int32_t x[SEQ], y[SEQ];
    int bad = 0;

    (void)state;
    write_counting("a", 0, 5000);
    assert_int_equal(read_file(at("a.bin"), bytes, sizeof(bytes)), 4 * 5000);
    for (size_t i = 3000; i < 5000; i++)
        memset(bytes + 4 * i, 0, 4);
    memcpy(bytes + 4 * 2500, &(int32_t){3000}, 4);
    write_file(at("a.bin"), bytes, 4 * 5000);
    opt.spec = at("a");
    assert_int_equal(merak_data_open(&opt, &data, NULL), MERAK_OK);
    for (uint64_t i = 0; i < merak_data_samples(data, MERAK_TRAIN); i++) {
        if (merak_data_sample(data, MERAK_TRAIN, i, x, y, &err) == MERAK_OK)
            continue;
        assert_int_equal(err.status, MERAK_ERR_CORRUPT);
        assert_non_null(strstr(err.text, "a.bin: token 2500 is 3000, outside "
                                         "the vocabulary of 3000"));
        bad++;
    }
    assert_int_equal(bad, 1);
    merak_data_close(data);
}

static void the_fingerprint_tells_data_sets_apart(void **state)
{
    struct merak_data *one, *two;
    char spec[2][300];

    (void)state;
    write_counting("a", 0, 100);
    write_counting("b", 500, 100);
    snprintf(spec[0], sizeof(spec[0]), "1 %s 2 %s", at("a"), at("b"));
    snprintf(spec[1], sizeof(spec[1]), "1 %s 3 %s", at("a"), at("b"));
    one = open_data(spec[0], 0.0);
    two = open_data(spec[1], 0.0);
    assert_string_not_equal(merak_data_id(one), merak_data_id(two));
    merak_data_close(two);
    write_counting("b", 501, 100); /* same name and size */
    two = open_data(spec[0], 0.0);
    assert_string_not_equal(merak_data_id(one), merak_data_id(two));
    merak_data_close(one);
    merak_data_close(two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_epoch_holds_every_sample_once),
        cmocka_unit_test(a_sample_depends_on_its_index_alone),
        cmocka_unit_test(the_seed_changes_the_order),
        cmocka_unit_test(validation_is_the_tail_in_order),
        cmocka_unit_test(samples_in_order_are_those_of_the_files),
        cmocka_unit_test(samples_cross_files),
        cmocka_unit_test(blends_keep_their_proportions),
        cmocka_unit_test(blended_sources_keep_their_epochs),
        cmocka_unit_test(turns_go_to_the_largest_deficit),
        cmocka_unit_test(far_indices_are_as_good),
        cmocka_unit_test(bad_requests_are_refused),
        cmocka_unit_test(too_little_data_is_refused_with_both_numbers),
        cmocka_unit_test(an_id_outside_the_vocabulary_stops_the_sample),
        cmocka_unit_test(the_fingerprint_tells_data_sets_apart),
    };

    return cmocka_run_group_tests_name("tokens", tests, make_scratch,
                                       remove_scratch);
}
