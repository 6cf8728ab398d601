/* SPDX-License-Identifier: Apache-2.0 */
/* test_hf_options.c - the options of families in config.json, good and bad */
#include "config.h"

#include "unit/graph/config_patch.h"
#include "unit/near.h"

/* What is always so, by default, and by a field. */
static void options_of_families_are_read(void **state)
{
    struct merak_hf_config c;

    (void)state;
    assert_int_equal(config_load(GEMMA, &c, NULL), MERAK_OK);
    assert_true(c.act == MERAK_HF_GELU_TANH && c.norm.plus_1 && c.embd_scaled);
    assert_true(!c.norm.is_both && !c.norm.of_qk && c.tied && c.window == 0);
    assert_int_equal(load_patched(GEMMA, "{\"hidden_act\":\"gelu\"}", &c, NULL),
                     MERAK_OK);
    assert_true(c.act == MERAK_HF_GELU_TANH);
    assert_int_equal(config_load(GEMMA3, &c, NULL), MERAK_OK);
    assert_true(c.norm.of_qk && c.norm.is_both && c.attn_cap == 0);
    assert_true(c.slides[4] && !c.slides[5] && c.slides[6]);
    assert_true(c.rope.theta == 1e6f && c.rope.slide_theta == 1e4f);
    assert_int_equal(config_load(ARCEE, &c, NULL), MERAK_OK);
    assert_true(c.act == MERAK_HF_RELU2 && c.plain_mlp && !c.mlp_bias);
    assert_int_equal(config_load(GRANITE, &c, NULL), MERAK_OK);
    assert_true(c.embd_factor == 1 && c.attn_scale == 1);
    assert_int_equal(config_load(SMOLLM3, &c, NULL), MERAK_OK);
    assert_true(!c.rope.is_off[2] && c.rope.is_off[3] && c.window == 0);
    assert_int_equal(load_patched(SMOLLM3,
                                  "{\"no_rope_layer_interval\":2,"
                                  "\"use_sliding_window\":true,"
                                  "\"sliding_window\":8}",
                                  &c, NULL),
                     MERAK_OK);
    assert_true(c.rope.is_off[1] && c.slides[1] && !c.slides[0] &&
                c.window == 8);
    assert_int_equal(load_patched(OLMO3, "{\"rope_theta\":7e5}", &c, NULL),
                     MERAK_OK);
    assert_true(c.rope.theta == 7e5f && c.rope.slide_theta == 5e5f);
    assert_int_equal(config_load(STABLELM, &c, NULL), MERAK_OK);
    assert_true(c.norm.has_mean && !c.parallel && c.rope.scaling.turned == 20);
    assert_int_equal(config_load(STARCODER2, &c, NULL), MERAK_OK);
    assert_true(c.plain_mlp && c.attn_bias && c.mlp_bias && c.window == 0);
    assert_true(c.act == MERAK_HF_GELU_TANH && c.init_std == 0.018042f);
    assert_int_equal(config_load(PHI, &c, NULL), MERAK_OK);
    assert_true(c.head_bias && c.parallel && c.norm.is_one && !c.norm.of_qk);
    assert_true(c.rope.scaling.turned == 32 && c.kv_heads == 32);
    assert_int_equal(config_load(GPT_NEOX, &c, NULL), MERAK_OK);
    assert_true(c.parallel && !c.norm.is_one && c.act == MERAK_HF_GELU);
    assert_true(c.rope.scaling.turned == 24 && c.kv_heads == 64);
    /* as transformers 4 wrote it */
    assert_int_equal(load_patched(GPT_NEOX,
                                  "{\"rotary_pct\":0.5,\"rotary_emb_base\":"
                                  "500,\"rope_theta\":500,"
                                  "\"partial_rotary_factor\":0.5}",
                                  &c, NULL),
                     MERAK_OK);
    assert_true(c.rope.scaling.turned == 48 && c.rope.theta == 500);
    assert_string_equal(c.note, "");
}

/* A file that is refused, and what the message must name. */
static const struct {
    const char *base, *patch, *says;
} bad_rows[] = {
    {GEMMA, "{\"hidden_act\":\"silu\"}",
     "hidden_act is \"silu\", which is not supported; expected "
     "gelu_pytorch_tanh"},
    {GEMMA, "{\"use_bidirectional_attention\":true}", "bidirectional"},
    {GEMMA3, "{\"sliding_window\":null}", "sliding_window is null"},
    {GEMMA3, "{\"sliding_window_pattern\":0}", "sliding_window_pattern is 0"},
    {GEMMA3, "{\"rope_local_base_freq\":0}", "rope_local_base_freq is 0"},
    {GEMMA3, "{\"partial_rotary_factor\":0.5}", "partial_rotary_factor is"},
    {GEMMA3, "{\"rope_parameters\":{\"rope_theta\":1e6}}",
     "rope_parameters.rope_theta is not of a kind of layers; the gemma3_text "
     "family has full_attention and sliding_attention there"},
    {GEMMA3, "{\"rope_parameters\":{\"sliding_attention\":7}}",
     "sliding_attention is 7, which is not"},
    {GEMMA3,
     "{\"rope_parameters\":{\"full_attention\":{\"rope_type\":"
     "\"longrope\"}}}",
     "expected rope_type default, linear"},
    {ARCEE, "{\"hidden_act\":\"silu\"}",
     "expected gelu_pytorch_tanh, gelu or relu2"},
    {GRANITE, "{\"logits_scaling\":0}", "logits_scaling is 0"},
    {GRANITE, "{\"residual_multiplier\":-1}", "residual_multiplier is -1"},
    {SMOLLM3, "{\"no_rope_layers\":[1]}", "no_rope_layers is [1]"},
    {SMOLLM3, "{\"num_hidden_layers\":1,\"no_rope_layers\":[2]}",
     "expected 0 or 1 for each layer"},
    {SMOLLM3, "{\"no_rope_layer_interval\":0}", "no_rope_layer_interval is 0"},
    {SMOLLM3,
     "{\"num_hidden_layers\":1,\"sliding_window\":8,\"layer_types\":"
     "[\"sliding_attention\"]}",
     "or use_sliding_window true and a sliding_window"},
    {STABLELM, "{\"qk_layernorm\":true}", "qk_layernorm is true"},
    {STABLELM, "{\"head_dim\":128}",
     "head_dim is 128, which is not supported; expected hidden_size /"},
    {STABLELM, "{\"hidden_size\":2570}", "is not a multiple of"},
    {STABLELM, "{\"partial_rotary_factor\":0.01}", "partial_rotary_factor"},
    {STABLELM, "{\"layer_norm_eps\":0}", "layer_norm_eps is 0"},
    {STARCODER2, "{\"hidden_act\":\"silu\"}",
     "expected gelu_pytorch_tanh, gelu or relu2"},
    {STARCODER2, "{\"norm_epsilon\":-1}", "norm_epsilon is -1"},
    {STARCODER2, "{\"residual_dropout\":1}", "residual_dropout is 1"},
    {PHI, "{\"partial_rotary_factor\":2}", "partial_rotary_factor is 2"},
    {PHI, "{\"embd_pdrop\":2}", "embd_pdrop is 2"},
    {GPT_NEOX, "{\"rotary_pct\":0}", "rotary_pct is 0"},
    {GPT_NEOX, "{\"rotary_emb_base\":0}", "rotary_emb_base is 0"},
    {GPT_NEOX, "{\"rope_theta\":500}",
     "rope_theta is 500, which is not supported; expected rotary_emb_base"},
    {GPT_NEOX, "{\"partial_rotary_factor\":1}",
     "partial_rotary_factor is 1, which is not supported; expected rotary_pct"},
    {GPT_NEOX, "{\"hidden_dropout\":1}", "hidden_dropout is 1"},
};

static void bad_fields_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bad_rows) / sizeof(*bad_rows); i++) {
        struct merak_hf_config c;
        struct merak_error err = {0};

        if (load_patched(bad_rows[i].base, bad_rows[i].patch, &c, &err) !=
                MERAK_ERR_CONFIG ||
            strstr(err.text, bad_rows[i].says) == NULL)
            fail_msg("%s: got \"%s\", expected \"%s\"", bad_rows[i].patch,
                     err.text, bad_rows[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_of_families_are_read),
        cmocka_unit_test(bad_fields_are_named),
    };

    return cmocka_run_group_tests_name("hf_options", tests, NULL, NULL);
}
