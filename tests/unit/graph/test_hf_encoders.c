/* SPDX-License-Identifier: Apache-2.0 */
/* test_hf_encoders.c - BERT's and T5's config.json: what is read, and what is
 * refused; how long the text is that an encoder reads */
#include "config.h"

#include "unit/config_files.h"
#include "unit/graph/config_patch.h"

#include "partitioner/graph/graph.h"

#include <string.h>

#define BERT "{\"model_type\":\"bert\"}"
#define T5 "{\"model_type\":\"t5\"}"

/* bert-base-uncased has what its tools wrote. */
static void published_files_are_read(void **state)
{
    struct merak_hf_config c;
    struct merak_error err;

    (void)state;
    if (load_patched(BERT,
                     "{\"architectures\":[\"BertForMaskedLM\"],"
                     "\"gradient_checkpointing\":false,"
                     "\"position_embedding_type\":\"absolute\","
                     "\"hidden_act\":\"gelu\",\"type_vocab_size\":2}",
                     &c, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    assert_string_equal(c.note, "");
    assert_int_equal(c.head_dim, 64);
    assert_int_equal(c.positions, 512);
    assert_int_equal(c.encoder.types, 2);
    assert_true(c.tied && c.has_pad && c.pad == 0 && c.act == MERAK_HF_GELU);
    assert_true(c.norm.eps == 1e-12f && c.attn_dropout == 0.1f);
    if (load_patched(T5,
                     "{\"d_ff\":1024,\"num_layers\":8,\"num_heads\":6,"
                     "\"feed_forward_proj\":\"gated-gelu\","
                     "\"tie_word_embeddings\":false,\"n_positions\":512}",
                     &c, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    assert_string_equal(c.note, "");
    assert_int_equal(c.encoder.decoder_layers, 8);
    assert_int_equal(c.head_dim, 64);
    assert_true(!c.tied && !c.plain_mlp && c.act == MERAK_HF_GELU_TANH);
    assert_true(c.logit_divisor == 0);
}

/* Version 1.1 as transformers 5 writes it is tied by its word, and not scaled;
 * the first version is both. */
static void an_output_layer_is_tied_if_its_input_is_scaled(void **state)
{
    static const struct {
        const char *patch;
        bool tied, scaled;
    } rows[] = {
        {"{}", true, true},
        {"{\"tie_word_embeddings\":true}", true, true},
        {"{\"tie_word_embeddings\":false}", false, false},
        {"{\"tie_word_embeddings\":true,\"scale_decoder_outputs\":false}",
         false, false},
        {"{\"tie_word_embeddings\":false,\"scale_decoder_outputs\":true}",
         false, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_hf_config c;

        assert_int_equal(load_patched(T5, rows[i].patch, &c, NULL), MERAK_OK);
        assert_int_equal(c.tied, rows[i].tied);
        assert_int_equal(c.logit_divisor > 0, rows[i].scaled);
    }
}

static void bad_fields_are_named(void **state)
{
    static const struct {
        const char *base, *patch, *says;
    } rows[] = {
        {BERT, "{\"is_decoder\":true}", "is_decoder is true"},
        {BERT, "{\"add_cross_attention\":true}", "add_cross_attention is true"},
        {BERT, "{\"is_encoder_decoder\":true}", "is_encoder_decoder is true"},
        {BERT, "{\"position_embedding_type\":\"relative_key\"}",
         "position_embedding_type is \"relative_key\", which is not supported; "
         "expected absolute"},
        {BERT, "{\"hidden_act\":\"silu\"}", "hidden_act is \"silu\""},
        {BERT, "{\"num_attention_heads\":7}",
         "hidden_size 768 is not a multiple of num_attention_heads 7"},
        {BERT, "{\"pad_token_id\":30522}", "pad_token_id is 30522"},
        {BERT, "{\"type_vocab_size\":0}", "type_vocab_size is 0"},
        {T5, "{\"is_encoder_decoder\":false}", "is_encoder_decoder is false"},
        {T5, "{\"feed_forward_proj\":\"gated-relu\"}",
         "feed_forward_proj is \"gated-relu\", which is not supported; "
         "expected relu, gated-gelu"},
        {T5, "{\"feed_forward_proj\":\"gated-gelu\",\"is_gated_act\":false}",
         "is_gated_act is false"},
        {T5, "{\"dense_act_fn\":\"gelu\"}", "dense_act_fn is \"gelu\""},
        {T5, "{\"initializer_factor\":0.5}", "initializer_factor is 0.5"},
        {T5, "{\"num_heads\":8,\"num_attention_heads\":4}",
         "num_heads 8 and num_attention_heads 4 are two names"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_hf_config c;
        struct merak_error err = {.text = ""};

        if (load_patched(rows[i].base, rows[i].patch, &c, &err) !=
                MERAK_ERR_CONFIG ||
            strstr(err.text, rows[i].says) == NULL)
            fail_msg("%s: got \"%s\", expected \"%s\"", rows[i].patch, err.text,
                     rows[i].says);
    }
}

/* T5's 512 tokens for 114 of the decoder, if nothing else is asked for. */
static void an_encoder_reads_what_fills_the_decoder(void **state)
{
    static const struct {
        size_t seq, given, read;
    } rows[] = {
        {114, 0, 512}, {114, 100, 100}, {14, 0, 64}, {2, 0, 2}, {16, 0, 64}};
    struct merak_hf_config c;

    (void)state;
    assert_int_equal(load_patched(T5, "{\"num_layers\":1}", &c, NULL),
                     MERAK_OK);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct merak_model_options opt = {
            .micro_batch = 1, .seq = rows[i].seq, .dtype = MERAK_F32};
        struct merak_model *m = NULL;
        struct merak_graph *graph;

        c.encoder.seq = rows[i].given;
        assert_int_equal(merak_model_create(&opt, &m, NULL), MERAK_OK);
        merak_hf_describe(m, &c);
        assert_int_equal(merak_model_graph(m, &graph, NULL), MERAK_OK);
        assert_string_equal(graph->input[0].name, "source");
        assert_int_equal(graph->input[0].shape.dim[1], rows[i].read);
        merak_model_destroy(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_files_are_read),
        cmocka_unit_test(an_output_layer_is_tied_if_its_input_is_scaled),
        cmocka_unit_test(bad_fields_are_named),
        cmocka_unit_test(an_encoder_reads_what_fills_the_decoder),
    };

    return cmocka_run_group_tests_name("hf_encoders", tests, NULL, NULL);
}
