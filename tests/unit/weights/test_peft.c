/* SPDX-License-Identifier: Apache-2.0 */
/* test_peft.c - folders that PEFT has written (vectors/lora/make_peft.py) */
#include "config.h"

#include "unit/near.h"
#include "unit/scratch_dir.h"

#include "io/weights/peft.h"
#include "io/weights/peft_config.h"
#include "io/weights/transfer_impl.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VECTORS TEST_SRCDIR "/vectors/lora/"

static struct merak_hf_config config;

/* The folder of this name, which PEFT has written, anew. */
static void make_folder(const char *name, char path[200])
{
    char command[2000];

    snprintf(path, 200, "%s/%s", scratch_dir, name);
    snprintf(command, sizeof(command),
             "rm -rf %s && mkdir %s && cd " VECTORS " && "
             "cp peft-%s.json %s/" MERAK_PEFT_CONFIG " && "
             "cp peft-%s.safetensors %s/" MERAK_PEFT_FILE " && "
             "cp peft-%s-model.json %s/config.json && chmod -R u+w %s",
             path, path, name, path, name, path, name, path, path);
    assert_int_equal(system(command), 0);
}

static struct merak_peft *open_folder(const char *name)
{
    static char path[200]; /* it is borrowed */
    struct merak_peft *peft = NULL;
    struct merak_error err;

    make_folder(name, path);
    if (merak_hf_config_load(path, &config, &err) != MERAK_OK ||
        merak_peft_open(path, &config, &peft, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return peft;
}

static void check_lora(const struct merak_peft *peft, size_t rank, float alpha,
                       float dropout, const char *targets, int count)
{
    const struct merak_lora *lora = merak_peft_lora(peft);

    assert_int_equal(lora->rank, rank);
    assert_true(lora->alpha == alpha);
    assert_true(lora->dropout == dropout);
    assert_string_equal(lora->targets, targets);
    assert_int_equal(merak_peft_count(peft), count);
}

/* `rows` rows of `cols` of a parameter, from element `first` of the file's
 * tensor, whose element i is (i mod m) / m. */
static void check_numbers(const struct merak_peft *peft, const char *name,
                          size_t rows, size_t cols, size_t first, size_t m)
{
    const struct merak_named param = {
        .name = name, .shape = {.ndim = 2, .dim = {rows, cols}}};
    float got[1024];
    struct merak_error err;

    assert_in_range(rows * cols, 1, 1024);
    assert_true(merak_peft_has(peft, name));
    if (merak_peft_read(peft, &param, got, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < rows * cols; i++)
        assert_true(got[i] == (float)((first + i) % m) / (float)m);
}

#define AT "model.layers.1."

static void fused_modules_give_each_weight_its_rows(void **state)
{
    struct merak_peft *peft = open_folder("phi3");

    (void)state;
    check_lora(peft, 3, 6, 0.1f,
               "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj", 28);
    check_numbers(peft, AT "self_attn.q_proj.lora_A.weight", 3, 16, 0, 97);
    check_numbers(peft, AT "self_attn.v_proj.lora_A.weight", 3, 16, 0, 97);
    check_numbers(peft, AT "self_attn.q_proj.lora_B.weight", 16, 3, 0, 89);
    check_numbers(peft, AT "self_attn.k_proj.lora_B.weight", 8, 3, 16 * 3, 89);
    check_numbers(peft, AT "self_attn.v_proj.lora_B.weight", 8, 3, 24 * 3, 89);
    check_numbers(peft, AT "mlp.up_proj.lora_B.weight", 24, 3, 24 * 3, 89);
    check_numbers(peft, AT "mlp.down_proj.lora_A.weight", 3, 24, 0, 97);
    assert_false(merak_peft_has(peft, AT "mlp.up_proj.weight"));
    merak_peft_close(peft);
}

static void layers_without_adapters_are_left_out(void **state)
{
    struct merak_peft *peft = open_folder("llama");

    (void)state;
    check_lora(peft, 2, 5, 0, "1.self_attn.q_proj,1.mlp.down_proj", 4);
    check_numbers(peft, AT "mlp.down_proj.lora_B.weight", 16, 2, 0, 89);
    assert_false(
        merak_peft_has(peft, "model.layers.0.mlp.down_proj.lora_B.weight"));
    merak_peft_close(peft);
    peft = open_folder("gpt2");
    check_lora(peft, 2, 2, 0, "c_attn", 2);
    check_numbers(peft, "h.0.attn.c_attn.lora_A.weight", 2, 8, 0, 97);
    check_numbers(peft, "h.0.attn.c_attn.lora_B.weight", 24, 2, 0, 89);
    merak_peft_close(peft);
}

/* --- refusals ---------------------------------------------------------------
 */

static const struct refusal {
    const char *key, *value, *text;
} refusals[] = {
    {"peft_type", "\"LOHA\"", "peft_type \"LOHA\""},
    {"use_dora", "true", "use_dora true"},
    {"use_rslora", "1", "use_rslora is 1, expected true or false"},
    {"lora_bias", "true", "lora_bias true"},
    {"bias", "\"all\"", "bias \"all\""},
    {"modules_to_save", "[\"lm_head\"]", "modules_to_save [\"lm_head\"]"},
    {"layer_replication", "[[0,2]]", "layer_replication [[0,2]]"},
    {"init_lora_weights", "\"pissa\"", "init_lora_weights \"pissa\""},
    {"a_new_field", "{\"x\":1}", "a_new_field {\"x\":1}"},
    {"r", "0", "r is 0, expected an integer from 1 to 65535"},
    {"r", "\"4\"", "r is \"4\", expected an integer"},
    {"r", "4.0", "r is 4.0, expected an integer"},
    {"lora_alpha", "-1", "lora_alpha is -1, expected a number above 0"},
    {"lora_dropout", "1.0", "lora_dropout is 1.0, expected a number"},
    {"rank_pattern", "[\"q_proj\"]", "rank_pattern is [\"q_proj\"], expected"},
    {"alpha_pattern", "7", "alpha_pattern is 7, expected an object"},
    {"alpha_pattern", "{\"down_proj\":9}", "has rank 2 and alpha 9"},
    {"r", "3", "has rank 2, and adapter_config.json gives it 3"},
    {"rank_pattern", "{\"q_proj\":4}", "gives it 4"},
    {"alpha_pattern", "{\".*_proj\":9}", "alpha_pattern has \".*_proj\""},
};

/* Give a field of a folder's adapter_config.json another value. */
static void set_field(const char *dir, const char *key, const char *value)
{
    char path[300];
    json_t *root;

    snprintf(path, sizeof(path), "%s/" MERAK_PEFT_CONFIG, dir);
    root = json_load_file(path, 0, NULL);
    json_object_set_new(root, key, json_loads(value, JSON_DECODE_ANY, NULL));
    assert_int_equal(json_dump_file(root, path, 0), 0);
    json_decref(root);
}

/* PEFT's names of modules have the prefix that ours need not have. */
static void patterns_may_have_whole_names(void **state)
{
    struct merak_peft *peft = NULL;
    char dir[200];

    (void)state;
    make_folder("gpt2", dir);
    set_field(dir, "r", "7");
    set_field(dir, "rank_pattern", "{\"transformer.h.0.attn.c_attn\": 2}");
    set_field(dir, "alpha_pattern", "{\"transformer.h.0.attn.c_attn\": 9}");
    assert_int_equal(merak_hf_config_load(dir, &config, NULL), MERAK_OK);
    assert_int_equal(merak_peft_open(dir, &config, &peft, NULL), MERAK_OK);
    check_lora(peft, 2, 9, 0, "c_attn", 2);
    merak_peft_close(peft);
}

static void what_is_not_plain_lora_is_refused(void **state)
{
    char dir[200];

    (void)state;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        const struct refusal *r = &refusals[i];
        struct merak_peft *peft = NULL;
        struct merak_error err = {.text = ""};

        make_folder("llama", dir);
        set_field(dir, r->key, r->value);
        assert_int_equal(merak_hf_config_load(dir, &config, NULL), MERAK_OK);
        assert_int_not_equal(merak_peft_open(dir, &config, &peft, &err),
                             MERAK_OK);
        if (strstr(err.text, r->text) == NULL)
            fail_msg("%s: %s", r->text, err.text);
    }
}

static void adapters_of_another_model_are_refused(void **state)
{
    struct merak_peft *peft = NULL;
    struct merak_error err;
    char gpt2[200], llama[200];

    (void)state;
    make_folder("gpt2", gpt2);
    make_folder("llama", llama);
    assert_int_equal(merak_hf_config_load(llama, &config, NULL), MERAK_OK);
    assert_int_equal(merak_peft_open(gpt2, &config, &peft, &err),
                     MERAK_ERR_MISMATCH);
    assert_non_null(strstr(err.text, "no adapter of a linear layer"));
    config.hidden = 32;
    assert_int_equal(merak_peft_open(llama, &config, &peft, &err),
                     MERAK_ERR_MISMATCH);
    assert_non_null(strstr(err.text, "expected [rank, "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fused_modules_give_each_weight_its_rows),
        cmocka_unit_test(layers_without_adapters_are_left_out),
        cmocka_unit_test(patterns_may_have_whole_names),
        cmocka_unit_test(what_is_not_plain_lora_is_refused),
        cmocka_unit_test(adapters_of_another_model_are_refused),
    };

    return cmocka_run_group_tests_name("peft", tests, scratch_make,
                                       scratch_remove);
}
