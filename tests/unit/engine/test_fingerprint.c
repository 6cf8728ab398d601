/* SPDX-License-Identifier: Apache-2.0 */
/* test_fingerprint.c - what a resumed run compares with its checkpoint */
#include "config.h"

#include "unit/near.h"

#include "io/hf_config.h"
#include "partitioner/graph/graph.h"
#include "runtime/train/fingerprint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL "rope theta=10000 x 2; operations=42, 0123456789abcdef"

static const struct {
    const char *then, *now;
    int n;
    /* the first, if there is one */
    enum merak_difference_kind kind;
    const char *key, *a, *b;
} rows[] = {
    {MODEL, MODEL, 0, 0, NULL, NULL, NULL},
    {MODEL, "rope theta=500000 x 2; operations=42, 0123456789abcdef", 1,
     MERAK_DIFFERENCE_MODEL, "rope theta", "10000 x 2", "500000 x 2"},
    /* an attribute that is 0 is not listed */
    {MODEL, "attention window=16, 0; " MODEL, 1, MERAK_DIFFERENCE_MODEL,
     "attention window", "0", "16, 0"},
    {"softcap=30; " MODEL, MODEL, 1, MERAK_DIFFERENCE_MODEL, "softcap", "30",
     "0"},
    {MODEL, "operations=43, 0123456789abcdef", 2, MERAK_DIFFERENCE_MODEL,
     "operations", "42, 0123456789abcdef", "43, 0123456789abcdef"},
    {"data=9 tokens in 1 file, 1; --valid-fraction=0.05; " MODEL,
     "data=9 tokens in 1 file, 2; --valid-fraction=0.1; " MODEL, 2,
     MERAK_DIFFERENCE_DATA, "data", "9 tokens in 1 file, 1",
     "9 tokens in 1 file, 2"},
    {"--valid-fraction=0.05", "--valid-fraction=0.05; --packing=stream", 0, 0,
     NULL, NULL, NULL},
    {"--packing=best-fit", "--packing=stream", 1, MERAK_DIFFERENCE_DATA,
     "--packing", "best-fit", "stream"},
    {"--doc-mask=no", "--doc-mask=yes", 1, MERAK_DIFFERENCE_DATA, "--doc-mask",
     "no", "yes"},
    {"--clip=1", "--clip=0.5", 1, MERAK_DIFFERENCE_SAID, "--clip", "1", "0.5"},
    /* an option of a later version, an import, an earlier version */
    {"--later=1; " MODEL, MODEL, 0, 0, NULL, NULL, NULL},
    {MODEL, "data=9; --clip=1; " MODEL, 0, 0, NULL, NULL, NULL},
    {"", "data=9; --clip=1; " MODEL, 0, 0, NULL, NULL, NULL},
    /* a key that begins as another, what is no entry */
    {"rope=1; rope theta=2; operations=1", "rope theta=2; rope=1; operations=1",
     0, 0, NULL, NULL, NULL},
    {"nonsense", "also; a=b", 0, 0, NULL, NULL, NULL},
    {"", "", 0, 0, NULL, NULL, NULL},
};

static void differences_are_found_and_classed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_difference d;
        int n = 0;

        while (merak_fingerprint_difference(rows[i].then, rows[i].now, n, &d)) {
            if (n++ > 0)
                continue;
            assert_int_equal(d.kind, rows[i].kind);
            assert_string_equal(d.key, rows[i].key);
            assert_string_equal(d.then, rows[i].a);
            assert_string_equal(d.now, rows[i].b);
        }
        if (n != rows[i].n)
            print_error("row %zu\n", i);
        assert_int_equal(n, rows[i].n);
    }
}

/* --- numbers of models ------------------------------------------------------
 */

#define LLAMA                                                              \
    "\"model_type\": \"llama\", \"num_hidden_layers\": 2, "                \
    "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, "             \
    "\"hidden_size\": 16, \"intermediate_size\": 32, \"vocab_size\": 64, " \
    "\"max_position_embeddings\": 64, \"hidden_act\": \"silu\", "          \
    "\"tie_word_embeddings\": false"

static void describe(const char *text, size_t seq, char **numbers_p,
                     char id[MERAK_FINGERPRINT_TEXT])
{
    const struct merak_model_options opt = {
        .micro_batch = 1, .seq = seq, .dtype = MERAK_F32};
    struct merak_hf_config config;
    struct merak_model *model;
    struct merak_graph *graph;
    struct merak_error err;
    char path[] = "/tmp/merak-config-XXXXXX";
    FILE *f = fdopen(mkstemp(path), "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(merak_hf_config_read(path, MERAK_HF_UNKNOWN_REFUSE, &config, &err),
                     MERAK_OK);
    unlink(path);
    assert_int_equal(merak_model_create(&opt, &model, &err), MERAK_OK);
    merak_hf_describe(model, &config);
    assert_int_equal(merak_model_graph(model, &graph, &err), MERAK_OK);
    assert_int_equal(merak_graph_numbers(graph, numbers_p, &err), MERAK_OK);
    merak_graph_fingerprint(graph, id);
    merak_model_destroy(model);
}

/* Fields of a configuration without a shape: the parameters' fingerprint does
 * not see them. */
static const struct {
    const char *fields, *key, *a, *b; /* NULL: equal */
} fields[] = {
    {"\"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0", NULL, NULL, NULL},
    {"\"rms_norm_eps\": 1e-6, \"rope_theta\": 10000.0", "rmsnorm eps",
     "1e-05 x 5", "1e-06 x 5"},
    {"\"rms_norm_eps\": 1e-5, \"rope_theta\": 500000.0", "rope theta",
     "10000 x 4", "500000 x 4"},
    {"\"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, \"rope_scaling\": "
     "{\"rope_type\": \"linear\", \"factor\": 2.0}",
     "rope scaling", "0", "1 x 4"},
    {"\"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, "
     "\"attention_dropout\": 0.1",
     "attention dropout", "0", "0.1 x 2"},
};

static void each_number_of_a_config_is_seen(void **state)
{
    char *first = NULL, id[MERAK_FINGERPRINT_TEXT];

    (void)state;
    for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
        char text[1024], *now, other[MERAK_FINGERPRINT_TEXT];
        struct merak_difference d;
        bool differs;

        snprintf(text, sizeof(text), "{" LLAMA ", %s}", fields[i].fields);
        describe(text, i % 2 == 0 ? 32 : 16, &now, other);
        if (first == NULL) {
            first = now;
            memcpy(id, other, sizeof(id));
            continue;
        }
        assert_string_equal(other, id);
        differs = merak_fingerprint_difference(first, now, 0, &d);
        assert_int_equal(differs, fields[i].key != NULL);
        if (differs) {
            assert_int_equal(d.kind, MERAK_DIFFERENCE_MODEL);
            assert_string_equal(d.key, fields[i].key);
            assert_string_equal(d.then, fields[i].a);
        }
        if (differs)
            assert_string_equal(d.now, fields[i].b);
        free(now);
    }
    free(first);
}

static const char *const windows[] = {
    "{\"model_type\": \"mistral\", \"num_hidden_layers\": 2, "
    "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
    "\"hidden_size\": 16, \"intermediate_size\": 32, \"vocab_size\": 64, "
    "\"max_position_embeddings\": 64, \"hidden_act\": \"silu\", "
    "\"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, "
    "\"tie_word_embeddings\": false, \"sliding_window\": 16}"};

/* A window that the sequence does not reach is in the model all the same: so
 * the length makes no difference. */
static void the_length_of_sequences_makes_no_difference(void **state)
{
    char *a, *b, id[MERAK_FINGERPRINT_TEXT];

    (void)state;
    describe(windows[0], 8, &a, id);
    describe(windows[0], 64, &b, id);
    assert_string_equal(a, b);
    assert_non_null(strstr(a, "attention window=16 x 2; "));
    free(a);
    free(b);
    /* but the factors of a rope may be those of short or of long ones */
    assert_true(merak_number_follows_seq("rope scaling list"));
    assert_false(merak_number_follows_seq("rope theta"));
    assert_false(merak_number_follows_seq("attention window"));
}

/* Of an op that lists no attributes all of them are compared; two ops with one
 * list have the same ones. */
static void ops_say_which_attributes_count(void **state)
{
    const struct merak_model_options opt = {
        .micro_batch = 1, .seq = 8, .dtype = MERAK_F32};
    const struct merak_attrs attrs = {.i = {1, 0, 7}, .f = {0, 0.25}};
    static struct merak_op own, like;
    struct merak_model *m;
    struct merak_value *x, *table;
    struct merak_graph *graph;
    char *numbers;

    (void)state;
    own = like = *merak_op_find("gelu");
    own.name = "own_gelu";
    own.numbers = NULL;
    like.name = "like_gelu";
    assert_int_equal(merak_op_register(&own, NULL), MERAK_OK);
    assert_int_equal(merak_op_register(&like, NULL), MERAK_OK);
    assert_int_equal(merak_model_create(&opt, &m, NULL), MERAK_OK);
    table = MERAK_PARAM(m, "table", MERAK_NORMAL(0.02f), 16, 4);
    x = merak_gelu(m, merak_embedding(m, merak_tokens(m), table), false);
    assert_int_equal(merak_apply(m, "own_gelu", &attrs, 1, &x, &x), MERAK_OK);
    assert_int_equal(merak_apply(m, "like_gelu", &attrs, 1, &x, &x), MERAK_OK);
    merak_cross_entropy(m, merak_linear(m, x, table, NULL, 1),
                        merak_targets(m));
    assert_int_equal(merak_model_graph(m, &graph, NULL), MERAK_OK);
    assert_int_equal(merak_graph_numbers(graph, &numbers, NULL), MERAK_OK);
    if (strstr(numbers, "gelu tanh form=0, 1; own_gelu i[0]=1; own_gelu "
                        "i[2]=7; own_gelu f[1]=0.25; operations=") != numbers)
        fail_msg("%s", numbers);
    free(numbers);
    merak_model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(differences_are_found_and_classed),
        cmocka_unit_test(each_number_of_a_config_is_seen),
        cmocka_unit_test(the_length_of_sequences_makes_no_difference),
        cmocka_unit_test(ops_say_which_attributes_count),
    };

    return cmocka_run_group_tests_name("fingerprint", tests, NULL, NULL);
}
