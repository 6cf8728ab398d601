/* SPDX-License-Identifier: Apache-2.0 */
/* test_corrupt.c - which tokens of a sample are hidden, whoever asks and in
 * what order
 */
#include "config.h"

#include "unit/data_files.h"

#include "io/samples/corrupted.h"
#include "merak/types.h"

#include <math.h>

/* --- the option -------------------------------------------------------------
 */

static void words_are_read_and_printed_alike(void **state)
{
    static const struct {
        const char *word, *printed; /* NULL: refused */
    } rows[] = {
        {"mask", "mask:0.15"},
        {"mask:0.15", "mask:0.15"},
        {"mask:0.4", "mask:0.4"},
        {"spans", "spans:0.15,3"},
        {"spans:0.5", "spans:0.5,3"},
        {"spans:0.25,2.5", "spans:0.25,2.5"},
        {"none", "none"},
        {"auto", "auto"},
        {"", NULL},
        {"masks", NULL},
        {"mas", NULL},
        {"mask:", NULL},
        {"mask:0", NULL},
        {"mask:1", NULL},
        {"mask:nan", NULL},
        {"mask:0.15,3", NULL},
        {"mask:15%", NULL},
        {"spans:0.15,", NULL},
        {"spans:0.15,0.5", NULL},
        {"spans:0.15,inf", NULL},
        {"spans:0.15,3,1", NULL},
        {"none:1", NULL},
    };
    char text[MERAK_CORRUPT_TEXT];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_corrupt c = {.mean = -1};
        struct merak_error err = {.text = ""};
        enum merak_status rc = merak_corrupt_parse(rows[i].word, &c, &err);

        if (rows[i].printed == NULL) {
            assert_int_equal(rc, MERAK_ERR_CONFIG);
            assert_non_null(strstr(err.text, "as spans:0.15,3"));
            assert_true(c.mean == -1);
            continue;
        }
        assert_int_equal(rc, MERAK_OK);
        assert_string_equal(merak_corrupt_text(&c, text), rows[i].printed);
    }
}

/* --- masks ------------------------------------------------------------------
 */

enum { T = 200, VOCAB = 1000, MASK = 999, TRIES = 400 };

static void of_each_sample_as_many_tokens_are_chosen(void **state)
{
    static const int32_t special[] = {3, 5};
    const struct merak_masking m = {.seq = T,
                                    .chosen = 30,
                                    .vocab = VOCAB,
                                    .mask = MASK,
                                    .special = special,
                                    .n_special = 2};
    int masks = 0, stayed = 0, at[T] = {0};
    int32_t ids[T], masked[T];

    (void)state;
    for (uint64_t key = 0; key < TRIES; key++) {
        int chosen = 0;

        for (int i = 0; i < T; i++)
            ids[i] = i % 10 == 0 ? special[i / 10 % 2] : 100 + i;
        merak_masking_apply(&m, key, ids, masked);
        for (int i = 0; i < T; i++) {
            int32_t was = i % 10 == 0 ? special[i / 10 % 2] : 100 + i;

            if (masked[i] == MERAK_NO_TARGET) {
                assert_int_equal(ids[i], was);
                continue;
            }
            assert_int_equal(masked[i], was);
            assert_in_range(ids[i], 0, VOCAB - 1);
            masks += ids[i] == MASK;
            stayed += ids[i] == was;
            at[i]++;
            chosen++;
        }
        assert_int_equal(chosen, 30);
    }
    /* of 12000: within four standard deviations of 80 %, and of 10 % and the
     * thousandth of another 10 % */
    assert_true(fabs(masks - 0.8 * TRIES * 30) < 4 * sqrt(0.16 * TRIES * 30));
    assert_true(fabs(stayed - 0.1 * TRIES * 30) < 4 * sqrt(0.09 * TRIES * 30));
    for (int i = 0; i < T; i++) {
        double p = i % 10 == 0 ? 0 : 30.0 / 180;

        assert_true(fabs(at[i] - p * TRIES) <= 5 * sqrt(p * (1 - p) * TRIES));
    }
}

static void special_tokens_are_hidden_for_want_of_others(void **state)
{
    static const int32_t special[] = {7};
    const struct merak_masking m = {
        .seq = 10, .chosen = 4, .vocab = 8, .special = special, .n_special = 1};
    int32_t ids[10] = {7, 7, 7, 1, 7, 7, 2, 7, 7, 7}, masked[10];
    int n = 0;

    (void)state;
    merak_masking_apply(&m, 1, ids, masked);
    assert_int_equal(masked[3], 1);
    assert_int_equal(masked[6], 2);
    for (int i = 0; i < 10; i++)
        n += masked[i] == 7;
    assert_int_equal(n, 2);
}

/* --- spans ------------------------------------------------------------------
 */

/* What transformers' example of pre-training T5, run_t5_mlm_flax.py, computes
 * for these (compute_input_and_target_lengths); the longest targets alike. */
static void lengths_are_those_of_t5(void **state)
{
    static const struct {
        double density, mean;
        size_t source, raw, target;
    } rows[] = {
        {0.15, 3, 512, 568, 114},    {0.15, 3, 64, 70, 14},
        {0.15, 3, 114, 126, 26},     {0.15, 3, 1024, 1137, 229},
        {0.5, 3, 512, 767, 513},     {0.15, 8, 512, 588, 100},
        {0.5, 64, 2048, 4031, 2049}, {0.25, 2.5, 256, 300, 106},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct merak_corrupt c = {MERAK_CORRUPT_SPANS, rows[i].density,
                                        rows[i].mean};
        struct merak_spans s, back, longer;

        assert_true(merak_spans_fit(&c, rows[i].source, &s));
        assert_int_equal(s.raw, rows[i].raw);
        assert_int_equal(s.source, rows[i].source);
        assert_int_equal(s.target, rows[i].target);
        assert_true(merak_spans_fit_target(&c, s.target, &back));
        assert_true(back.target == s.target && back.raw >= s.raw);
        assert_true(merak_spans_of(&c, back.raw + 1, &longer));
        assert_true(longer.target > s.target);
    }
    assert_false(
        merak_spans_fit(&(struct merak_corrupt){.density = 0.15, .mean = 3}, 8,
                        &(struct merak_spans){.raw = 0}));
}

static void spans_put_back_are_the_text(void **state)
{
    const struct merak_corrupt c = {MERAK_CORRUPT_SPANS, 0.3, 2};
    const struct merak_span_ids ids = {.sentinel = 500, .end = 1};
    int32_t raw[64], source[64], target[64], text[64];
    int first[64] = {0}, long_spans = 0;
    struct merak_spans s;

    (void)state;
    assert_true(merak_spans_of(&c, 60, &s));
    for (int i = 0; i < 60; i++)
        raw[i] = 10 + i;
    for (uint64_t key = 0; key < TRIES; key++) {
        size_t n = 0, at = 0;

        merak_spans_apply(&s, &ids, key, raw, source, target);
        assert_int_equal(source[0], raw[0]);
        assert_int_equal(source[s.source - 1], 1);
        assert_int_equal(target[s.target - 1], 1);
        for (size_t i = 0; i < s.source - 1; i++) {
            size_t begin = n;

            if (source[i] < 400) {
                text[n++] = source[i];
                continue;
            }
            assert_int_equal(source[i], target[at++]);
            while (at < s.target - 1 && target[at] < 400)
                text[n++] = target[at++];
            assert_true(n > begin);
            long_spans += n - begin > 2;
            if (source[i] == 500)
                first[begin]++;
        }
        assert_int_equal(n, 60);
        assert_memory_equal(text, raw, sizeof(*raw) * 60);
    }
    /* Of 42 tokens that are kept, in 9 runs, the first run is of one with
     * probability 8/41; of 18 in 9 spans one has more than two with probability
     * 15!/(8! 7!) / (17!/(8! 9!)) = 0.2647. */
    assert_true(fabs(first[1] - TRIES * 8.0 / 41) < 4 * sqrt(TRIES * 0.157));
    assert_true(fabs(long_spans - TRIES * 9 * 0.2647) <
                4 * sqrt(TRIES * 9 * 0.195));
}

/* --- samples ----------------------------------------------------------------
 */

static struct merak_data *open_data(size_t seq)
{
    const struct merak_data_options opt = {.spec = at("d"),
                                           .seq = seq,
                                           .seed = 7,
                                           .valid_fraction = 0.2,
                                           .vocab = VOCAB};
    struct merak_data *data = NULL;
    struct merak_error err = {.text = ""};

    if (merak_data_open(&opt, &data, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return data;
}

#define ROW(word, n)                                                        \
    {                                                                       \
        .name = word, .dtype = MERAK_I32, .shape = {1, {n}}, .letter = "t", \
        .classes = VOCAB                                                    \
    }
#define NUMBER(word)                     \
    {                                    \
        .name = word, .dtype = MERAK_I32 \
    }
static const struct merak_wish mask_wishes[] = {
    ROW("ids", 32), ROW("types", 32), NUMBER("lengths"), ROW("masked", 32)};
static const struct merak_wish span_wishes[] = {
    ROW("source", 34), NUMBER("lengths"), ROW("decoder", 12),
    ROW("labels", 12)};
static const struct merak_special_ids known = {
    .mask = MASK, .sentinel = 900, .end = 1, .pad = 0, .start = -1};

static struct merak_corrupted_options
options(enum merak_corrupt_kind kind, const struct merak_wish *wish, int n)
{
    return (struct merak_corrupted_options){.corrupt = {kind, 0.15, 3},
                                            .seed = 5,
                                            .ids = &known,
                                            .n_wishes = n,
                                            .wish = wish,
                                            .vocab = VOCAB};
}

static struct merak_samples *
open_samples(const struct merak_corrupted_options *opt,
             struct merak_data **data_p)
{
    struct merak_samples *samples = NULL;
    struct merak_error err = {.text = ""};
    size_t raw;

    if (merak_corrupted_check(opt, &raw, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    *data_p = open_data(raw);
    if (merak_samples_corrupted(opt, *data_p, &samples, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return samples;
}

static void read_all(const struct merak_samples *samples, int wish,
                     uint64_t index, int32_t *out)
{
    assert_int_equal(merak_samples_read(samples, wish, MERAK_TRAIN, index, NULL,
                                        NULL, out, NULL),
                     MERAK_OK);
}

static void samples_are_masked_texts(void **state)
{
    const struct merak_corrupted_options opt =
        options(MERAK_CORRUPT_MASK, mask_wishes, 4);
    struct merak_corrupted_options other = opt;
    struct merak_data *data, *again;
    struct merak_samples *samples = open_samples(&opt, &data), *seeded;
    uint64_t n = merak_samples_count(samples, MERAK_TRAIN);
    int32_t ids[32], masked[32], text[32], next[32], number = 0, part[9];
    const size_t lo = 20, len = 9;

    (void)state;
    assert_int_equal(merak_corrupted_kind(4, mask_wishes), MERAK_CORRUPT_MASK);
    assert_true(merak_samples_is_masked(samples, 3));
    assert_false(merak_samples_is_masked(samples, 0));
    assert_int_equal(merak_samples_counted(samples, 3, MERAK_TRAIN, 2, 3), 15);
    read_all(samples, 2, 3, &number);
    assert_int_equal(number, 32);
    /* another epoch hides other tokens, also of the same text */
    for (uint64_t i = 0; i < 2 * n; i++) {
        int counted = 0;

        read_all(samples, 0, i, ids);
        read_all(samples, 3, i, masked);
        assert_int_equal(
            merak_data_sample(data, MERAK_TRAIN, i, text, next, NULL),
            MERAK_OK);
        for (int k = 0; k < 32; k++) {
            assert_int_equal(masked[k] == MERAK_NO_TARGET ? ids[k] : masked[k],
                             text[k]);
            counted += masked[k] != MERAK_NO_TARGET;
        }
        assert_int_equal(counted, 5);
    }
    read_all(samples, 0, 4, ids);
    assert_int_equal(
        merak_samples_read(samples, 0, MERAK_TRAIN, 4, &lo, &len, part, NULL),
        MERAK_OK);
    assert_memory_equal(part, ids + 20, sizeof(part));
    other.seed = 6;
    seeded = open_samples(&other, &again);
    read_all(seeded, 0, 4, text);
    assert_memory_not_equal(text, ids, sizeof(ids));
    merak_samples_close(seeded);
    merak_data_close(again);
    merak_samples_close(samples);
    merak_data_close(data);
}

static void samples_are_texts_with_spans(void **state)
{
    const struct merak_corrupted_options opt =
        options(MERAK_CORRUPT_SPANS, span_wishes, 4);
    struct merak_data *data;
    struct merak_samples *samples = open_samples(&opt, &data);
    int32_t source[34], decoder[12], labels[12], length = 0;
    struct merak_spans s;

    (void)state;
    assert_int_equal(merak_corrupted_kind(4, span_wishes), MERAK_CORRUPT_SPANS);
    assert_true(merak_spans_fit(&opt.corrupt, 34, &s));
    assert_int_equal(s.raw, 37);
    assert_int_equal(s.target, 9);
    assert_true(merak_samples_is_masked(samples, 3));
    assert_int_equal(merak_samples_counted(samples, 3, MERAK_TRAIN, 0, 2), 18);
    read_all(samples, 1, 0, &length);
    assert_int_equal(length, (int32_t)s.source);
    read_all(samples, 0, 6, source);
    read_all(samples, 2, 6, decoder);
    read_all(samples, 3, 6, labels);
    assert_int_equal(source[s.source - 1], 1);
    assert_int_equal(decoder[0], 0);
    assert_memory_equal(decoder + 1, labels, 9 * sizeof(*labels));
    assert_int_equal(labels[0], 900);
    assert_int_equal(labels[8], 1);
    for (int i = 9; i < 12; i++)
        assert_int_equal(labels[i], MERAK_NO_TARGET);
    assert_int_equal(decoder[10], 0);
    merak_samples_close(samples);
    merak_data_close(data);
}

static void what_cannot_be_is_refused(void **state)
{
    static const struct merak_wish more[] = {ROW("ids", 32), ROW("masked", 32),
                                             ROW("words", 32)};
    static const struct merak_wish uneven[] = {ROW("ids", 32),
                                               ROW("masked", 16)};
    static const struct merak_wish flat[] = {ROW("ids", 32), NUMBER("masked")};
    static const struct merak_wish short_decoder[] = {
        ROW("source", 34), ROW("decoder", 8), ROW("labels", 8)};
    static const struct merak_wish tiny[] = {ROW("ids", 3), ROW("masked", 3)};
    const struct {
        enum merak_corrupt_kind kind;
        const struct merak_wish *wish;
        int n;
        struct merak_special_ids ids;
        const char *text;
    } rows[] = {
        {MERAK_CORRUPT_MASK, span_wishes, 4, known, "makes an input ids"},
        {MERAK_CORRUPT_SPANS, mask_wishes, 4, known, "makes an input source"},
        {MERAK_CORRUPT_MASK, more, 3, known, "makes no input words"},
        {MERAK_CORRUPT_MASK, uneven, 2, known,
         "masked of the model has 16 tokens a sample and ids has 32"},
        {MERAK_CORRUPT_MASK, flat, 2, known, "with 1 dim a sample"},
        {MERAK_CORRUPT_MASK, tiny, 2, known, "hides no token of 3"},
        {MERAK_CORRUPT_MASK, mask_wishes, 4, {.mask = -1}, "give --mask-id N"},
        {MERAK_CORRUPT_MASK,
         mask_wishes,
         4,
         {.mask = VOCAB},
         "expected one below 1000"},
        {MERAK_CORRUPT_SPANS, short_decoder, 3, known, "give --seq 9"},
        {MERAK_CORRUPT_SPANS,
         span_wishes,
         4,
         {.sentinel = -1},
         "give --sentinel-id N"},
        {MERAK_CORRUPT_SPANS,
         span_wishes,
         4,
         {.sentinel = 900, .n_sentinels = 1},
         "there are 1 sentinels"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_corrupted_options opt =
            options(rows[i].kind, rows[i].wish, rows[i].n);
        struct merak_error err = {.text = ""};
        size_t raw;

        opt.ids = &rows[i].ids;
        assert_int_equal(merak_corrupted_check(&opt, &raw, &err),
                         MERAK_ERR_CONFIG);
        if (strstr(err.text, rows[i].text) == NULL)
            fail_msg("\"%s\" is not in \"%s\"", rows[i].text, err.text);
    }
    assert_int_equal(merak_corrupted_kind(3, more), MERAK_CORRUPT_NONE);
}

/* --- ids of folders ---------------------------------------------------------
 */

static void write_text(const char *name, const char *text)
{
    FILE *f = fopen(at(name), "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void ids_are_those_of_a_folder(void **state)
{
    struct merak_special_ids ids;
    struct merak_error err = {.text = ""};

    (void)state;
    assert_int_equal(merak_special_ids_read(NULL, &ids, &err), MERAK_OK);
    assert_int_equal(ids.mask, -1);
    write_text("vocab.txt", "[PAD]\n[UNK]\na\n[CLS]\n[SEP]\n[MASK]\nb\n");
    write_text("config.json", "{\"pad_token_id\": 0, \"eos_token_id\": 1}");
    assert_int_equal(merak_special_ids_read(scratch, &ids, &err), MERAK_OK);
    assert_int_equal(ids.mask, 5);
    assert_int_equal(ids.sentinel, -1);
    assert_int_equal(ids.pad, 0);
    assert_int_equal(ids.end, 1);
    assert_int_equal(ids.start, -1);
    assert_int_equal(ids.n_special, 5);
    assert_int_equal(ids.special[4], 5);
    merak_special_ids_fini(&ids);
    write_text("tokenizer.json",
               "{\"added_tokens\": ["
               "{\"id\": 9, \"content\": \"<extra_id_0>\", \"special\": true},"
               "{\"id\": 7, \"content\": \"<extra_id_2>\", \"special\": true},"
               "{\"id\": 8, \"content\": \"<extra_id_1>\", \"special\": true},"
               "{\"id\": 3, \"content\": \"plain\", \"special\": false}],"
               " \"model\": {\"vocab\": {\"~\": 4}}}");
    write_text("tokenizer_config.json",
               "{\"mask_token\": {\"content\": \"~\"}}");
    assert_int_equal(merak_special_ids_read(at("config.json"), &ids, &err),
                     MERAK_OK);
    assert_int_equal(ids.mask, 4);
    assert_int_equal(ids.sentinel, 9);
    assert_int_equal(ids.n_sentinels, 3);
    assert_int_equal(ids.n_special, 3);
    assert_int_equal(ids.special[0], 7);
    merak_special_ids_fini(&ids);
    write_text("tokenizer.json", "[]");
    assert_int_equal(merak_special_ids_read(scratch, &ids, &err),
                     MERAK_ERR_FORMAT);
    assert_non_null(strstr(err.text, "tokenizer.json: expected a JSON object"));
    merak_special_ids_fini(&ids);
}

static int set_up(void **state)
{
    int32_t lengths[] = {900};

    if (make_scratch(state) != 0)
        return -1;
    write_megatron(at("d"), 0, lengths, 1);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_read_and_printed_alike),
        cmocka_unit_test(of_each_sample_as_many_tokens_are_chosen),
        cmocka_unit_test(special_tokens_are_hidden_for_want_of_others),
        cmocka_unit_test(lengths_are_those_of_t5),
        cmocka_unit_test(spans_put_back_are_the_text),
        cmocka_unit_test(samples_are_masked_texts),
        cmocka_unit_test(samples_are_texts_with_spans),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(ids_are_those_of_a_folder),
    };

    return cmocka_run_group_tests_name("corrupt", tests, set_up,
                                       remove_scratch);
}
