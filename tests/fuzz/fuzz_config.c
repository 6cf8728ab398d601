/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_config.c - config.json of a Hugging Face folder, and the model it
 * describes */
#include "config.h"

#include "fuzz/fuzz.h"

#include "io/hf_config.h"
#include "partitioner/graph/graph.h"

#include <string.h>

void fuzz_seeds(void)
{
    static const char *const name[] = {
        "hf/gemma2.json",       "hf/gpt2_long.json",
        "hf/gpt2-dropout.json", "hf/llama3.json",
        "hf/linear.json",       "hf/dynamic.json",
        "hf/yarn.json",         "hf/mistral-window.json",
        "hf/olmo2.json",        "hf/phi3.json",
        "hf/phi3-window.json",  "hf/qwen2-window.json",
        "hf/qwen3.json",        "gpt2.json",
        "llama.json",           "hf/gemma3.json",
        "hf/olmo3.json",        "hf/smollm3.json",
        "hf/granite.json",      "hf/gpt_neox.json",
        "hf/phi.json",          "hf/stablelm.json",
        "hf/qwen2_moe.json",    "hf/glm4_moe.json",
        "hf/deepseek_v3.json",  "hf/gpt_oss.json",
        "hf/bert.json",         "hf/t5-v1_1.json",
    };

    for (size_t i = 0; i < sizeof(name) / sizeof(*name); i++)
        fuzz_add_vector(-1, name[i]);
}

/* A config that is accepted can be described, or the model says why not. */
static void describe(struct merak_hf_config *config)
{
    const struct merak_model_options opt = {
        .micro_batch = 1, .seq = 8, .dtype = MERAK_F32};
    struct merak_model *m = NULL;
    struct merak_graph *graph;
    struct merak_error err = {.text = ""};
    enum merak_status rc = merak_model_create(&opt, &m, &err);

    fuzz_must(rc == MERAK_OK, "an empty model is made");
    merak_hf_describe(m, config);
    rc = merak_model_graph(m, &graph, &err);
    if (rc != MERAK_OK)
        fuzz_refused(rc, &err);
    merak_model_destroy(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct merak_hf_config config;
    struct merak_error err = {.text = ""};
    const char *path = fuzz_file("config.json", data, n);
    enum merak_status strict, rc;

    strict = merak_hf_config_read(path, MERAK_HF_UNKNOWN_REFUSE, &config, &err);
    if (strict != MERAK_OK)
        fuzz_refused(strict, &err);
    rc = merak_hf_config_read(path, MERAK_HF_UNKNOWN_IGNORE, &config, &err);
    fuzz_must(strict != MERAK_OK || rc == MERAK_OK,
              "what is read strictly is read otherwise, too");
    if (rc != MERAK_OK)
        fuzz_refused(rc, &err);
    else if (config.layers <= 16) /* more are as these, and take long */
        describe(&config);
    return 0;
}
