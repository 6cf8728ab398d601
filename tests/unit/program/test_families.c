/* SPDX-License-Identifier: Apache-2.0 */
/* test_families.c - Hugging Face models compute the same on any number of ranks
 *
 * Two steps of each model of tests/vectors/hf, on one rank and on several:
 * fewer kv heads than tensor ranks, norms of queries and keys, a padding
 * token, dropout of attention, windows, soft caps; pipeline stages, slices of
 * sequences, recomputation; and some of them with documents packed into
 * sequences, and targets that do not count; and adapters beside some.
 */
#include "config.h"

#include "unit/execute.h"
#include "unit/near.h"

#include "io/hf_config.h"
#include "partitioner/plan/plan.h"

#include <stdio.h>
#include <string.h>

#define STEPS 2
#define BATCHES 4 /* micro-batches of a step over all replicas */

/* What a run was like. */
struct result {
    double loss[STEPS];
    double rewards[STEPS]
                  [MERAK_LOSS_PARTS]; /* of pairs: MERAK_LOSS_CHOSEN .. */
    float norm;
};

/* A layout, and the schedule: slices are of a single sequence. */
struct layout {
    int tp, pp, dp;
    const char *schedule;
    size_t micro_batch;
    bool recompute;
};

/* A model of tests/vectors/hf. */
struct family {
    const char *file;
    bool documents;
    bool encodes; /* its sequences are not cut */
    float beta; /* of a loss of pairs of answers; 0: of targets */
    struct merak_lora lora;
    struct merak_hf_config config;
};

static void describe(struct merak_model *m, void *arg)
{
    struct family *family = arg;

    if (family->documents)
        merak_documents(m);
    if (family->beta > 0)
        merak_preferences(m, family->beta);
    if (family->lora.rank > 0)
        merak_lora(m, &family->lora);
    merak_hf_describe(m, &family->config);
}

static enum merak_status build(struct family *family, const struct layout *at,
                               struct merak_planned **planned_p,
                               struct merak_error *err)
{
    struct merak_plan plan = planned_plan(
        at->tp, at->pp, at->dp, BATCHES / at->dp, at->schedule, at->dp > 1);

    plan.micro_batch = at->micro_batch;
    if (strncmp(at->schedule, "sliced", 6) == 0)
        plan.sp = MERAK_SP_OFF;
    if (at->recompute)
        plan.recompute = MERAK_RECOMPUTE_FULL;
    return merak_plan_build(&plan, 16, describe, family, MERAK_PLAN_ALL, NULL,
                            planned_p, err);
}

static struct result run(struct family *family, const struct layout *at)
{
    struct merak_planned *planned = NULL;
    struct merak_error err = {.text = ""};
    struct executed *ex;
    struct result r = {.norm = 0};

    if (build(family, at, &planned, &err) != MERAK_OK)
        fail_msg("%s: tp %d, pp %d, dp %d, %s: %s", family->file, at->tp,
                 at->pp, at->dp, at->schedule, err.text);
    planned_assert_sound(planned);
    ex = executed_create(planned);
    for (int s = 0; s < STEPS; s++) {
        executed_step(ex, (uint64_t)(at->tp * 100 + at->pp * 10 + at->dp + s));
        r.loss[s] = executed_loss(ex);
        for (int k = 0; family->beta > 0 && k < MERAK_LOSS_PARTS; k++)
            r.rewards[s][k] = executed_loss_part(ex, k);
    }
    r.norm = executed_norm(ex, 0);
    executed_destroy(ex);
    return r;
}

static void compare(struct family *family, const struct layout *at,
                    const struct result *one)
{
    struct result r = run(family, at);

    /* sums over ranks are rounded in another order, as in test_parity.c; what
     * losses of pairs are made of is added in double */
    assert_near(r.loss, one->loss, STEPS, family->beta > 0 ? 1e-6 : 1e-5, 0);
    assert_near(&r.norm, &one->norm, 1, 1e-5, 0);
    for (int s = 0; s < STEPS && family->beta > 0; s++)
        assert_near(r.rewards[s], one->rewards[s], MERAK_LOSS_PARTS, 1e-6,
                    1e-6);
}

/* Both answers of a pair are in one sequence, which is not cut; nor is one that
 * attention reads as a whole. */
static void is_refused(struct family *family, const struct layout *at)
{
    struct merak_planned *planned = NULL;
    struct merak_error err = {.text = ""};

    assert_int_equal(build(family, at, &planned, &err), MERAK_ERR_UNSUPPORTED);
    if (strstr(err.text, family->beta > 0 ? "cuts sequences, and pair_loss."
                                          : "cuts sequences, and attention") ==
        NULL)
        fail_msg("%s", err.text);
}

static void ranks_do_not_matter(void **state)
{
    static const struct layout alone[] = {{1, 1, 1, "1f1b", 2, false},
                                          {1, 1, 1, "1f1b", 1, false}};
    static const struct layout layouts[] = {{2, 1, 1, "1f1b", 2, false},
                                            {4, 2, 1, "1f1b", 2, false},
                                            {1, 2, 2, "1f1b", 2, true}};
    static const struct layout sliced[] = {{1, 2, 1, "sliced:4", 1, false},
                                           {2, 1, 1, "sliced:2", 1, true}};
    struct family *family = *state;
    struct merak_error err;
    struct result one;
    char path[1024];

    snprintf(path, sizeof(path), "%s/vectors/hf/%s.json", TEST_SRCDIR,
             family->file);
    if (merak_hf_config_load(path, &family->config, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    one = run(family, &alone[0]);
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
        compare(family, &layouts[i], &one);
    one = run(family, &alone[1]);
    for (size_t i = 0; i < sizeof(sliced) / sizeof(sliced[0]); i++) {
        if (family->beta > 0 || family->encodes)
            is_refused(family, &sliced[i]);
        else
            compare(family, &sliced[i], &one);
    }
}

int main(void)
{
    static struct family families[] = {
        {.file = "llama3"},
        {.file = "linear"},
        {.file = "qwen2"},
        {.file = "qwen3"},
        {.file = "phi3"},
        {.file = "olmo2"},
        {.file = "gpt2-dropout"},
        {.file = "dropout"},
        {.file = "mistral-window"},
        {.file = "phi3-window"},
        {.file = "gemma2"},
        {.file = "phi3-long"},
        {.file = "phi4"},
        {.file = "gemma"},
        {.file = "gemma3"},
        {.file = "arcee"},
        {.file = "granite"},
        {.file = "smollm3"},
        {.file = "olmo3"},
        {.file = "stablelm"},
        {.file = "stablelm-parallel"},
        {.file = "starcoder2"},
        {.file = "phi"},
        {.file = "phi-norms"},
        {.file = "gpt_neox"},
        {.file = "gpt_neox-serial"},
        {.file = "mixtral"},
        {.file = "qwen2_moe"},
        {.file = "qwen3_moe"},
        {.file = "olmoe"},
        {.file = "glm4_moe"},
        {.file = "deepseek_v3"},
        {.file = "deepseek_v3-direct"},
        {.file = "deepseek_v2"},
        {.file = "gpt_oss"},
        {.file = "gpt_oss-dropout"},
        {.file = "qwen2_moe-aux"},
        {.file = "bert", .encodes = true},
        {.file = "bert-untied", .encodes = true},
        {.file = "t5", .encodes = true},
        {.file = "t5-v1_1", .encodes = true},
        {.file = "gpt2-dropout", .documents = true},
        {.file = "qwen2", .documents = true},
        {.file = "mistral-window", .documents = true},
        {.file = "qwen2", .beta = 0.1f},
        {.file = "gemma2", .beta = 0.5f, .lora = {2, 2, 0, "*.*", false}},
        {.file = "gpt2-dropout", .lora = {4, 8, 0.1f, "*.*", false}},
        {.file = "qwen2", .lora = {4, 6, 0, "*.*", false}},
        {.file = "phi3",
         .lora = {3, 3, 0.2f, "qkv_proj,v_proj,down_proj", false}},
        {.file = "gpt_neox",
         .lora = {3, 2, 0, "attention.*,dense_h_to_4h", false}},
        {.file = "gemma2", .lora = {2, 1, 0, "*.1.*", false}},
        {.file = "t5-v1_1", .encodes = true,
         .lora = {2, 2, 0, "q,v,wi_0", false}},
    };
    enum { N = sizeof(families) / sizeof(families[0]) };
    struct CMUnitTest tests[N];
    char names[N][48];

    for (size_t i = 0; i < N; i++) {
        snprintf(names[i], sizeof(names[i]), "%s%s%s%s", families[i].file,
                 families[i].documents ? ", documents" : "",
                 families[i].beta > 0 ? ", preferences" : "",
                 families[i].lora.rank > 0 ? ", adapters" : "");
        tests[i] = (struct CMUnitTest){names[i], ranks_do_not_matter, NULL,
                                       NULL, &families[i]};
    }
    return cmocka_run_group_tests_name("families", tests, NULL, NULL);
}
