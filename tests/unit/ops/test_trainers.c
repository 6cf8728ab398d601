/* SPDX-License-Identifier: Apache-2.0 */
/* test_trainers.c - what is printed for other trainers passes their own checks
 * of arguments, or is said to be refused
 *
 * The checks are written here once more, of the text that was printed.
 */
#include "config.h"

#include "unit/ops/emitted_plan.h"
#include "unit/near.h"

#include "partitioner/plan/choice.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The number behind a name in flags, TOML or JSON; 0: it is not there. */
static size_t number_at(const char *text, const char *name)
{
    const char *at = strstr(text, name);

    if (at == NULL)
        return 0;
    at += strlen(name);
    return (size_t)strtoull(at + strcspn(at, "0123456789"), NULL, 10);
}

static size_t or_1(size_t n)
{
    return n > 0 ? n : 1;
}

/* Megatron-LM's checks of what was printed, in words of our own. */
static bool megatron_takes(const char *out, size_t ranks)
{
    size_t tp = number_at(out, "--tensor-model-parallel-size");
    size_t pp = number_at(out, "--pipeline-model-parallel-size");
    size_t v = or_1(number_at(out, "--num-virtual-stages-per-pipeline-rank"));
    size_t layers = number_at(out, "--num-layers");
    size_t heads = number_at(out, "--num-attention-heads");
    size_t micro = number_at(out, "--micro-batch-size");
    size_t batch = number_at(out, "--global-batch-size");
    size_t cp = or_1(number_at(out, "--context-parallel-size"));
    size_t dp = ranks / tp / pp / cp;
    bool one_queue = strstr(out, "CUDA_DEVICE_MAX_CONNECTIONS=1") != NULL;
    bool fsdp = strstr(out, "--use-megatron-fsdp") != NULL;

    size_t ep = or_1(number_at(out, "--expert-model-parallel-size"));
    size_t experts = number_at(out, "--num-experts");

    return one_queue == (!fsdp && tp * cp > 1) &&
           (ep == 1 || (experts > 0 && experts % ep == 0)) &&
           dp * cp % ep == 0 &&
           (experts == 0 || tp == 1 ||
            strstr(out, "--sequence-parallel") != NULL) &&
           ranks % (tp * pp * cp) == 0 &&
           number_at(out, "--seq-length") % (cp > 1 ? 2 * cp : 1) == 0 &&
           batch % (micro * dp) == 0 && layers % (pp * v) == 0 &&
           heads % tp == 0 &&
           (v == 1 || (pp > 1 && batch / micro / dp % pp == 0)) &&
           number_at(out, "--max-position-embeddings") >=
               number_at(out, "--seq-length");
}

static bool torchtitan_takes(const char *out, size_t ranks)
{
    size_t tp = number_at(out, "tensor_parallel_degree");
    size_t sp = strstr(out, "no_enable_sequence_parallel") != NULL ? 1 : tp;
    size_t pp = number_at(out, "pipeline_parallel_degree");
    size_t dp =
        number_at(out, "replicate_degree") * number_at(out, "shard_degree");
    size_t cp = or_1(number_at(out, "context_parallel_degree"));
    size_t local = number_at(out, "local_batch_size");
    size_t micro = or_1(number_at(out, "pipeline_parallel_microbatch_size"));
    size_t ep = or_1(number_at(out, "expert_parallel_degree"));

    return number_at(out, "shard_degree") * cp * tp % ep == 0 &&
           tp * pp * dp * cp == ranks &&
           number_at(out, "global_batch_size") % (local * dp) == 0 &&
           local % micro == 0 &&
           number_at(out, "seq_len") % (sp * (cp > 1 ? 2 * cp : 1)) == 0 &&
           ((pp == 1 && ep == 1) ||
            strstr(out, "disable_cuda_graphs\n") != NULL) &&
           (strstr(out, "schedule 1F1B") == NULL || local / micro >= pp);
}

static bool deepspeed_takes(const char *out, size_t ranks, const char *degrees)
{
    size_t pp = or_1(number_at(degrees, "num_pp="));
    size_t tp = or_1(number_at(degrees, "num_mp="));
    size_t stage = number_at(out, "\"stage\"");
    size_t cp = or_1(number_at(degrees, "cuts sequences over"));

    return number_at(out, "train_batch_size") ==
               number_at(out, "train_micro_batch_size_per_gpu") *
                   number_at(out, "gradient_accumulation_steps") *
                   (ranks / tp / pp / cp) &&
           stage <= 3 && (pp == 1 || stage < 2);
}

static bool is_taken(enum plan_emit what, const char *out, size_t ranks)
{
    return what == PLAN_EMIT_MEGATRON     ? megatron_takes(out, ranks)
           : what == PLAN_EMIT_TORCHTITAN ? torchtitan_takes(out, ranks)
                                          : deepspeed_takes(out, ranks, out);
}

static int among(uint64_t *seed, const int *values, int n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return values[(*seed >> 33) % (uint64_t)n];
}

#define AMONG(seed, ...)              \
    among(seed, (int[]){__VA_ARGS__}, \
          (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)))

static void make_plan(uint64_t *seed, struct merak_plan *plan)
{
    static const char *const schedule[] = {"1f1b", "interleaved", "gpipe",
                                           "zb-v", "zb-h1",       "eager"};

    *plan = plain;
    plan->tp = AMONG(seed, 1, 2, 4, 8);
    plan->pp = AMONG(seed, 1, 2, 4, 3);
    plan->cp = AMONG(seed, 1, 1, 2);
    plan->dp = AMONG(seed, 1, 2, 4);
    strcpy(plan->schedule, schedule[AMONG(seed, 0, 1, 2, 3, 4, 5)]);
    plan->chunks = 1;
    if (strcmp(plan->schedule, "interleaved") == 0)
        plan->chunks = AMONG(seed, 2, 3);
    if (strcmp(plan->schedule, "zb-v") == 0)
        plan->chunks = 2;
    plan->ep = AMONG(seed, 1, 1, 2, 4);
    plan->micro_batch = (size_t)AMONG(seed, 1, 2, 4) * (size_t)plan->ep;
    plan->microbatches = AMONG(seed, 1, 2, 6, 8, 12);
    plan->zero = AMONG(seed, 0, 1, 2, 3);
    plan->sub_pipeline =
        plan->microbatches % 2 == 0 && AMONG(seed, 0, 0, 1) > 0;
    plan->order_tp_pp_dp = AMONG(seed, 0, 1) > 0;
    plan->sp = AMONG(seed, 0, 1) > 0 ? MERAK_SP_ON : MERAK_SP_OFF;
    plan->recompute = (enum merak_recompute)AMONG(seed, MERAK_RECOMPUTE_NONE,
                                                  MERAK_RECOMPUTE_FULL,
                                                  MERAK_RECOMPUTE_SELECTIVE);
}

/* Where MERAK_TEST_EMITTED names a folder, for ops/check_emitted.py: a file in
 * the trainer's folder there, named by ranks and a number. */
static void keep_emitted(enum plan_emit what, size_t ranks, int number,
                         const char *out)
{
    static const char *const folder[] = {[PLAN_EMIT_MEGATRON] = "megatron",
                                         [PLAN_EMIT_TORCHTITAN] = "torchtitan",
                                         [PLAN_EMIT_DEEPSPEED] = "deepspeed"};
    const char *root = getenv("MERAK_TEST_EMITTED");
    char path[4096];
    FILE *file;

    if (root == NULL)
        return;
    snprintf(path, sizeof(path), "%s/%s/%zu.%d", root, folder[what], ranks,
             number);
    file = fopen(path, "w");
    assert_non_null(file);
    fputs(out, file);
    assert_int_equal(fclose(file), 0);
}

/* Each plan is accepted by the trainer's own checks, or Merak says why not. */
static void plans_are_accepted_or_refused_with_the_reason(void **state)
{
    static const bool given[MERAK_CHOICE_COUNT];
    uint64_t seed = 31;
    int taken[4] = {0}, refused[4] = {0};

    (void)state;
    for (int i = 0; i < 600; i++) {
        enum plan_emit what = (enum plan_emit)(PLAN_EMIT_MEGATRON + i % 3);
        struct merak_hf_config config = small_llama;
        struct merak_plan plan, runs;
        struct plan_emitted e = {
            .plan = &runs, .config = &config, .wanted = &plan, .given = given};
        char *out, *notes;
        size_t ranks;
        int lost;

        make_plan(&seed, &plan);
        ranks = (size_t)(plan.tp * plan.pp * plan.dp * plan.cp * plan.ep);
        config.layers = (size_t)AMONG(&seed, 24, 16, 5);
        config.kv_heads = (size_t)AMONG(&seed, 8, 2, 1);
        config.mixture = (struct merak_hf_mixture){
            .experts = plan.ep > 1 ? (size_t)AMONG(&seed, 8, 2) : 0,
            .chosen = 2,
            .ffn = config.ffn};
        e.seq = (size_t)AMONG(&seed, 512, 100, 8192);
        e.global_batch =
            plan.micro_batch * (size_t)plan.microbatches * (size_t)plan.dp;
        runs = plan_trainer_adapt(plan_trainer_of(what), &plan);
        lost = emit_as(what, &e, &out, &notes);
        if (lost == 0 && !is_taken(what, out, ranks))
            fail_msg("plan %d is refused, and Merak does not say so:\n%s", i,
                     out);
        if (lost == 0)
            keep_emitted(what, ranks, i, out);
        if (lost > 0) {
            assert_non_null(strstr(notes, " refuses it: "));
            assert_non_null(strstr(notes, ".py)"));
        }
        taken[what] += lost == 0;
        refused[what] += lost > 0;
        free(out);
        free(notes);
    }
    for (int what = PLAN_EMIT_MEGATRON; what <= PLAN_EMIT_DEEPSPEED; what++) {
        print_message("# %s: %d accepted, %d refused\n",
                      plan_trainer_of((enum plan_emit)what)->name, taken[what],
                      refused[what]);
        assert_true(taken[what] > 40);
    }
}

/* Each rule is broken by a plan of numbers that meets all others. */
static void each_rule_can_be_broken(void **state)
{
    static const struct plan_numbers good = {.tp = 2,
                                             .cp = 1,
                                             .ep = 1,
                                             .pp = 2,
                                             .dp = 2,
                                             .micro_batch = 1,
                                             .microbatches = 4,
                                             .global_batch = 8,
                                             .chunks = 1,
                                             .parts = 2,
                                             .seq = 512,
                                             .layers = 8,
                                             .hidden = 64,
                                             .heads = 8,
                                             .kv_heads = 8,
                                             .head_dim = 8,
                                             .positions = 512,
                                             .zero = 1,
                                             .order = PLAN_1F1B,
                                             .sp = true,
                                             .has_model = true};
    static const struct {
        enum plan_emit what;
        struct plan_numbers n;
    } rows[] = {
#define BAD(trainer, ...)    \
    {                        \
        PLAN_EMIT_##trainer, \
        {                    \
            __VA_ARGS__      \
        }                    \
    }
#define SHAPE                                                                 \
    .hidden = 64, .heads = 8, .kv_heads = 8, .head_dim = 8, .positions = 512, \
    .has_model = true, .seq = 512, .cp = 1, .ep = 1
        BAD(MEGATRON, SHAPE, .tp = 1, .pp = 1, .dp = 3, .micro_batch = 1,
            .microbatches = 2, .global_batch = 8, .chunks = 1, .layers = 8),
        BAD(MEGATRON, SHAPE, .tp = 1, .pp = 3, .dp = 1, .micro_batch = 1,
            .microbatches = 6, .global_batch = 6, .chunks = 1, .layers = 8),
        BAD(MEGATRON, SHAPE, .tp = 16, .pp = 1, .dp = 1, .micro_batch = 1,
            .microbatches = 6, .global_batch = 6, .chunks = 1, .layers = 9),
        BAD(MEGATRON, SHAPE, .tp = 1, .pp = 4, .dp = 1, .micro_batch = 1,
            .microbatches = 6, .global_batch = 6, .chunks = 2, .layers = 8),
        BAD(MEGATRON, SHAPE, .tp = 2, .pp = 1, .dp = 1, .micro_batch = 1,
            .microbatches = 6, .global_batch = 6, .chunks = 1, .layers = 8,
            .experts = 8),
        BAD(TORCHTITAN, SHAPE, .tp = 1, .pp = 4, .dp = 1, .micro_batch = 1,
            .microbatches = 2, .global_batch = 2, .chunks = 1, .layers = 8,
            .order = PLAN_1F1B),
        BAD(TORCHTITAN, SHAPE, .tp = 1, .pp = 4, .dp = 1, .micro_batch = 1,
            .microbatches = 10, .global_batch = 10, .chunks = 3, .layers = 48,
            .order = PLAN_OTHER),
        BAD(DEEPSPEED, SHAPE, .tp = 1, .pp = 2, .dp = 2, .micro_batch = 1,
            .microbatches = 4, .global_batch = 8, .chunks = 1, .layers = 8,
            .zero = 2),
        BAD(DEEPSPEED, SHAPE, .tp = 1, .pp = 1, .dp = 2, .micro_batch = 1,
            .microbatches = 2, .global_batch = 4, .bf16_grads = true),
        BAD(DEEPSPEED, SHAPE, .tp = 1, .pp = 1, .dp = 2, .micro_batch = 1,
            .microbatches = 4, .global_batch = 9, .chunks = 1, .layers = 8),
    };

    (void)state;
    for (int what = PLAN_EMIT_MEGATRON; what <= PLAN_EMIT_DEEPSPEED; what++)
        assert_int_equal(
            plan_rules_check((enum plan_emit)what, &good, NULL, NULL), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(plan_rules_check(rows[i].what, &rows[i].n, NULL, NULL),
                         1);
}

static void gradients_in_bf16_are_emitted(void **state)
{
    static const struct {
        enum plan_emit what;
        const char *text, *note;
    } rows[] = {
        {PLAN_EMIT_MEGATRON, "--bf16\n--grad-reduce-in-bf16\n", ""},
        {PLAN_EMIT_TORCHTITAN, "--training.mixed_precision_param bfloat16\n",
         "cannot express: grad-dtype bf16; emitted fp32\n"},
        {PLAN_EMIT_DEEPSPEED, "\"grad_accum_dtype\": \"bf16\"", ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (int narrow = 0; narrow < 2; narrow++) {
            struct merak_plan plan = plain, runs;
            const struct plan_emitted e = {.plan = &runs,
                                           .wanted = &plan,
                                           .seq = 4096,
                                           .global_batch = 256};
            char *out, *notes;

            plan.zero = rows[i].what == PLAN_EMIT_TORCHTITAN ? 2 : 1;
            plan.grad_dtype = narrow ? MERAK_BF16 : MERAK_F32;
            runs = plan_trainer_adapt(plan_trainer_of(rows[i].what), &plan);
            emit_as(rows[i].what, &e, &out, &notes);
            assert_int_equal(strstr(out, rows[i].text) != NULL,
                             narrow || rows[i].note[0] != '\0');
            assert_int_equal(strstr(notes, "grad-dtype") != NULL,
                             narrow && rows[i].note[0] != '\0');
            assert_true(!narrow || strstr(notes, rows[i].note) != NULL);
            free(out);
            free(notes);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_are_accepted_or_refused_with_the_reason),
        cmocka_unit_test(each_rule_can_be_broken),
        cmocka_unit_test(gradients_in_bf16_are_emitted),
    };

    return cmocka_run_group_tests_name("trainers", tests, NULL, NULL);
}
