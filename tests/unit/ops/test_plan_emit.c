/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_emit.c - plans in the words of other trainers, costs, knees */
#include "config.h"

#include "unit/ops/emitted_plan.h"
#include "unit/near.h"

#include "runtime/plan/trainers.h"

#include "partitioner/plan/choice.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static void emit(enum plan_emit what, const struct merak_plan *plan,
                 const struct merak_hf_config *config, char **out_p,
                 char **notes_p)
{
    const struct plan_emitted e = {
        .plan = plan, .seq = 4096, .global_batch = 256, .config = config};

    emit_as(what, &e, out_p, notes_p);
}

static void megatron_gets_flags(void **state)
{
    struct merak_hf_config llama = {.family = MERAK_LLAMA,
                                    .layers = 32,
                                    .hidden = 4096,
                                    .heads = 32,
                                    .kv_heads = 8,
                                    .head_dim = 128,
                                    .ffn = 14336,
                                    .vocab = 128256,
                                    .positions = 8192,
                                    .rope.theta = 5e5f};
    char *out, *notes;

    (void)state;
    emit(PLAN_EMIT_MEGATRON, &plain, &llama, &out, &notes);
    assert_string_equal(
        out, "# before Blackwell, run it with CUDA_DEVICE_MAX_CONNECTIONS=1\n"
             "--tensor-model-parallel-size 4\n"
             "--pipeline-model-parallel-size 2\n--micro-batch-size 2\n"
             "--global-batch-size 256\n--seq-length 4096\n"
             "--sequence-parallel\n--use-distributed-optimizer\n--bf16\n"
             "--num-layers 32\n--hidden-size 4096\n"
             "--ffn-hidden-size 14336\n--num-attention-heads 32\n"
             "--max-position-embeddings 8192\n--vocab-size 128256\n"
             "--group-query-attention\n--num-query-groups 8\n--swiglu\n"
             "--normalization RMSNorm\n--disable-bias-linear\n"
             "--position-embedding-type rope\n--rotary-base 500000\n"
             "--untie-embeddings-and-output-weights\n");
    assert_string_equal(notes, "");
    free(out);
    free(notes);
}

/* Activations that it has flags for, and a model that it has none for. */
static void megatron_is_told_what_it_cannot_have(void **state)
{
    static const struct {
        struct merak_hf_config config;
        const char *flag, *note;
    } rows[] = {
        {{.family = MERAK_GPT2, .act = MERAK_HF_GELU_TANH}, "", ""},
        {{.family = MERAK_ARCEE, .act = MERAK_HF_RELU2, .plain_mlp = true},
         "--squared-relu\n",
         ""},
        {{.family = MERAK_GEMMA, .act = MERAK_HF_GELU_TANH},
         "--swiglu\n",
         "not those of Llama"},
        {{.family = MERAK_SMOLLM3, .layers = 4, .rope.is_off = {[3] = true}},
         "--swiglu\n",
         "not those of Llama"},
        {{.family = MERAK_GRANITE, .embd_factor = 12},
         "--swiglu\n",
         "not those of Llama"},
        {{.family = MERAK_GEMMA2, .attn_cap = 50},
         "--swiglu\n",
         "not those of Llama"},
        /* Llama 3.1's positions, and those of a model with YaRN */
        {{.family = MERAK_LLAMA,
          .rope.scaling = {.kind = MERAK_ROPE_FREQUENCY_RAMP,
                           .factor = 8,
                           .low = 1 / 8192.0,
                           .high = 4 / 8192.0}},
         "--rotary-base 0\n--use-rope-scaling\n--rope-scaling-factor 8\n",
         ""},
        {{.family = MERAK_LLAMA,
          .rope.scaling = {.kind = MERAK_ROPE_PAIR_RAMP, .factor = 4}},
         "--rotary-base 0\n--untie",
         "not those of Llama"},
        {{.family = MERAK_MIXTRAL,
          .mixture = {.experts = 8, .chosen = 2, .ffn = 96, .normal = true}},
         "\n--num-experts 8\n--moe-router-topk 2\n--moe-ffn-hidden-size 96\n"
         "--moe-grouped-gemm\n--moe-token-dispatcher-type alltoall\n"
         "--moe-router-load-balancing-type none\n",
         ""},
        {{.family = MERAK_QWEN2_MOE,
          .mixture = {.experts = 8,
                      .chosen = 4,
                      .ffn = 96,
                      .shared_ffn = 256,
                      .shared_gate = true,
                      .aux = 0.5f}},
         "--moe-shared-expert-intermediate-size 256\n"
         "--moe-shared-expert-gate\n--moe-router-pre-softmax\n"
         "--moe-router-load-balancing-type aux_loss\n"
         "--moe-aux-loss-coeff 0.5\n",
         ""},
        {{.family = MERAK_GLM4_MOE,
          .mixture = {.experts = 8,
                      .chosen = 2,
                      .ffn = 96,
                      .shared_ffn = 96,
                      .is_dense = {true},
                      .sigmoid = true,
                      .normal = true,
                      .wide = true,
                      .groups = 4,
                      .groups_kept = 2,
                      .scale = 2.5f}},
         "--moe-layer-freq [0]*1+[1]*3\n"
         "--moe-shared-expert-intermediate-size 96\n"
         "--moe-router-score-function sigmoid\n"
         "--moe-router-enable-expert-bias\n--moe-router-dtype fp32\n"
         "--moe-router-num-groups 4\n--moe-router-group-topk 2\n"
         "--moe-router-topk-scaling-factor 2.5\n",
         ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct merak_hf_config c = rows[i].config;
        char *out, *notes;

        c.layers = 4;
        c.hidden = 64;
        c.heads = c.kv_heads = 4;
        c.head_dim = 16;
        c.positions = 4096;
        emit(PLAN_EMIT_MEGATRON, &plain, &c, &out, &notes);
        assert_non_null(strstr(out, rows[i].flag));
        assert_non_null(strstr(notes, rows[i].note));
        assert_int_equal(notes[0] == '\0', rows[i].note[0] == '\0');
        free(out);
        free(notes);
    }
}

struct layers_row {
    int pp, chunks, n, count[6], split;
    const char *megatron, *titan; /* what is emitted */
    const char *deepspeed;        /* what is noted */
};

static const struct layers_row layers_rows[] = {
    {2,
     1,
     2,
     {16, 16},
     0,
     "--seq-length 4096\n--sequence",
     ",layers.15\n  layers.16,",
     ""},
    {2,
     2,
     4,
     {8, 8, 8, 8},
     0,
     "--num-virtual-stages-per-pipeline-rank 2\n",
     "\n  layers.8,",
     ""},
    {5,
     1,
     5,
     {4, 4, 4, 4, 0},
     0,
     "--pipeline-model-parallel-layout Et*4|t*4|t*4|t*4|L\n",
     "\n  norm,lm_head\n",
     "unequal numbers of layers: 4, 4, 4, 4, 0"},
    {2,
     2,
     4,
     {9, 8, 8, 7},
     0,
     "--pipeline-model-parallel-layout Et*9|t*8|t*8|t*7L\n",
     "\n  tok_embeddings,layers.0,",
     "unequal numbers of layers: 9, 8, 8"},
    {2,
     1,
     2,
     {16, 16},
     1,
     "--pipeline-model-parallel-layout Et*16|t*16L\n",
     ",layers.31,norm,lm_head\n",
     "unequal numbers of layers: 16, 16"},
};

/* Megatron-LM refuses numbers of layers that pp does not divide. */
static void uneven_stages_get_a_layout(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(layers_rows) / sizeof(layers_rows[0]); i++) {
        const struct layers_row *row = &layers_rows[i];
        struct merak_plan plan = plain;
        int count[6];
        struct plan_emitted e = {.plan = &plan,
                                 .seq = 4096,
                                 .global_batch = 256,
                                 .layers = {row->n, count, row->split}};
        char *out[4], *notes[4];

        memcpy(count, row->count, sizeof(count));
        plan.pp = row->pp;
        plan.chunks = row->chunks;
        if (row->chunks > 1)
            strcpy(plan.schedule, "interleaved");
        for (int t = PLAN_EMIT_MEGATRON; t <= PLAN_EMIT_DEEPSPEED; t++)
            emit_as((enum plan_emit)t, &e, &out[t], &notes[t]);
        assert_int_equal(strstr(out[PLAN_EMIT_MEGATRON],
                                "1 cut of the plan inside a layer") != NULL,
                         row->split == 1);
        assert_non_null(strstr(out[PLAN_EMIT_MEGATRON], row->megatron));
        assert_int_equal(strstr(out[PLAN_EMIT_MEGATRON], "num-virtual") !=
                                 NULL &&
                             strstr(out[PLAN_EMIT_MEGATRON], "-layout") != NULL,
                         0);
        assert_non_null(strstr(out[PLAN_EMIT_TORCHTITAN], row->titan));
        assert_null(strstr(notes[PLAN_EMIT_TORCHTITAN], "unequal"));
        if (row->chunks == 1)
            assert_int_equal(strstr(notes[PLAN_EMIT_DEEPSPEED], "unequal") !=
                                 NULL,
                             row->deepspeed[0] != '\0');
        for (int t = PLAN_EMIT_MEGATRON; t <= PLAN_EMIT_DEEPSPEED; t++) {
            free(out[t]);
            free(notes[t]);
        }
    }
}

struct drops_row {
    struct merak_drop drop[2];
    const char *flags; /* NULL: none about recomputation */
    bool noted;
};

static const struct drops_row drops_rows[] = {
    {{{.blocks = 0}, {.blocks = 0}}, NULL, false},
    {{{.attention = true}, {.attention = true}}, "--recompute-granularity selective\n", false},
    {{{.attention = true}, {.blocks = 0}}, "--recompute-granularity full\n", true},
    {{{.blocks = 3}, {.blocks = 0}}, "--recompute-granularity full\n", true},
};

static void what_parts_recompute_is_said_if_they_do(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(drops_rows) / sizeof(drops_rows[0]); i++) {
        const struct drops_row *row = &drops_rows[i];
        struct merak_plan plan = plain;
        char *out, *notes;

        plan.drop = row->drop;
        emit(PLAN_EMIT_MEGATRON, &plan, NULL, &out, &notes);
        if (row->flags != NULL)
            assert_non_null(strstr(out, row->flags));
        else
            assert_null(strstr(out, "--recompute"));
        assert_int_equal(strstr(notes, "recompute different") != NULL,
                         row->noted);
        free(out);
        free(notes);
    }
}

static void torchtitan_gets_options(void **state)
{
    struct merak_plan plan = plain;
    char *out, *notes;

    (void)state;
    plan.recompute = MERAK_RECOMPUTE_SELECTIVE;
    plan.sp = MERAK_SP_OFF;
    emit(PLAN_EMIT_TORCHTITAN, &plan, NULL, &out, &notes);
    assert_string_equal(
        out, "# cannot express: zero 1; emitted 2\n"
             "# its selective recomputes what lies between matrix products and "
             "attention, not attention\n"
             "# it shards parameters, too, and gathers them once a step\n"
             "# before these options, give the model by its own names for it: "
             "--module and --config\n"
             "--training.seq_len 4096\n--training.local_batch_size 32\n"
             "--training.global_batch_size 256\n"
             "--training.mixed_precision_param bfloat16\n"
             "--parallelism.data_parallel_replicate_degree 1\n"
             "--parallelism.data_parallel_shard_degree 8\n"
             "--parallelism.tensor_parallel_degree 4\n"
             "--parallelism.pipeline_parallel_degree 2\n"
             "--parallelism.no_enable_sequence_parallel\n"
             "--parallelism.fsdp_reshard_after_forward never\n"
             "--parallelism.pipeline_parallel_schedule 1F1B\n"
             "--parallelism.pipeline_parallel_microbatch_size 2\n"
             "--training.disable_cuda_graphs\n"
             "activation-checkpoint:selective\n");
    assert_string_equal(notes,
                        "merak plan: cannot express: zero 1; emitted 2\n");
    free(out);
    free(notes);
}

/* Parts inside a node are its hybrid sharding. */
static void torchtitan_shards_inside(void **state)
{
    struct merak_plan plan = plain;
    char *out, *notes;

    (void)state;
    plan.zero = MERAK_ZERO_PARAMS;
    plan.zero_home = MERAK_HOME_IN;
    plan.dp_in = 4;
    emit(PLAN_EMIT_TORCHTITAN, &plan, NULL, &out, &notes);
    assert_non_null(strstr(out,
                           "--parallelism.data_parallel_replicate_degree 2\n"
                           "--parallelism.data_parallel_shard_degree 4\n"));
    free(out);
    free(notes);
}

/* ZeRO-2 and 3 as each trainer says it, with and without a pipeline. */
static void zero_2_and_3_are_emitted(void **state)
{
    static const struct {
        enum plan_emit what;
        int pp, zero;
        const char *text, *note;
    } rows[] = {
        {PLAN_EMIT_MEGATRON, 1, 2, "-strategy optim_grads\n", ""},
        {PLAN_EMIT_MEGATRON, 1, 3,
         "--use-megatron-fsdp\n--ckpt-format fsdp_dtensor\n"
         "--data-parallel-sharding-strategy optim_grads_params\n",
         ""},
        {PLAN_EMIT_TORCHTITAN, 1, 2, "reshard_after_forward never\n", ""},
        {PLAN_EMIT_TORCHTITAN, 2, 3, "reshard_after_forward always\n", ""},
        {PLAN_EMIT_DEEPSPEED, 1, 3, "\"stage\": 3", ""},
        {PLAN_EMIT_DEEPSPEED, 1, 2, "\"stage\": 2", ""},
        {PLAN_EMIT_DEEPSPEED, 2, 2, "\"stage\": 1", "zero 2; emitted 1"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct merak_plan plan = plain;
        const struct plan_emitted e = {
            .plan = &plan, .seq = 4096, .global_batch = 256};
        char *out, *notes;

        plan.pp = rows[i].pp;
        plan.zero = rows[i].zero;
        emit_as(rows[i].what, &e, &out, &notes);
        assert_non_null(strstr(out, rows[i].text));
        assert_non_null(strstr(notes, rows[i].note));
        assert_int_equal(strstr(notes, "zero ") != NULL,
                         rows[i].note[0] != '\0');
        free(out);
        free(notes);
    }
}

/* Optimizer state in the host's memory; torchtitan's FSDP keeps it there. */
static void offloaded_state_is_emitted(void **state)
{
    static const struct {
        enum plan_emit what;
        int dp, zero;
        const char *text, *note;
    } rows[] = {
        {PLAN_EMIT_MEGATRON, 8, 1, "--optimizer-cpu-offload\n", ""},
        {PLAN_EMIT_MEGATRON, 1, 0, "--use-precision-aware-optimizer\n", ""},
        {PLAN_EMIT_TORCHTITAN, 8, 3, "\n--training.enable_cpu_offload\n", ""},
        {PLAN_EMIT_TORCHTITAN, 1, 0, "", "offload state; emitted none"},
        {PLAN_EMIT_TORCHTITAN, 8, 0, "", "offload state; emitted none"},
        {PLAN_EMIT_DEEPSPEED, 8, 2, "\"offload_optimizer\": {", ""},
        {PLAN_EMIT_DEEPSPEED, 1, 0, "\"stage\": 1", ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct merak_plan plan = plain;
        char *out, *notes;

        plan.dp = rows[i].dp;
        plan.zero = rows[i].zero;
        plan.offload = MERAK_OFFLOAD_STATE;
        emit(rows[i].what, &plan, NULL, &out, &notes);
        assert_non_null(strstr(out, rows[i].text));
        assert_non_null(strstr(notes, rows[i].note));
        assert_int_equal(strstr(out, "offloaded states on the CPU") != NULL,
                         rows[i].note[0] == '\0');
        free(out);
        free(notes);
    }
}

static void deepspeed_gets_json(void **state)
{
    char *out, *notes;
    json_t *o;

    (void)state;
    emit(PLAN_EMIT_DEEPSPEED, &plain, NULL, &out, &notes);
    o = json_loads(out, 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(o, "train_batch_size")),
                     256);
    assert_int_equal(json_integer_value(
                         json_object_get(o, "train_micro_batch_size_per_gpu")),
                     2);
    assert_int_equal(
        json_integer_value(json_object_get(o, "gradient_accumulation_steps")),
        16);
    assert_int_equal(json_integer_value(json_object_get(
                         json_object_get(o, "zero_optimization"), "stage")),
                     1);
    assert_non_null(strstr(out, "num_pp=2, num_mp=4, num_dp=8"));
    assert_string_equal(notes, "");
    json_decref(o);
    free(out);
    free(notes);
}

struct noted_row {
    enum plan_emit what;
    void (*change)(struct merak_plan *plan);
    const char *text;
};

static void zb_v(struct merak_plan *plan)
{
    strcpy(plan->schedule, "zb-v");
}

static void zb_h1(struct merak_plan *plan)
{
    strcpy(plan->schedule, "zb-h1");
}

static void samples(struct merak_plan *plan)
{
    plan->tp_batch_percent = 25;
}

static void halves(struct merak_plan *plan)
{
    plan->sub_pipeline = true;
}

static void uneven(struct merak_plan *plan)
{
    static const int cut[] = {3};

    plan->cut = cut;
}

static void whole_pipelines_close(struct merak_plan *plan)
{
    plan->order_tp_pp_dp = true;
}

static void experts_apart(struct merak_plan *plan)
{
    plan->ep = 2;
}

static const struct noted_row noted_rows[] = {
    {PLAN_EMIT_MEGATRON, zb_v, "schedule zb-v; emitted 1f1b"},
    {PLAN_EMIT_TORCHTITAN, zb_h1, "schedule zb-h1; emitted 1f1b"},
    {PLAN_EMIT_DEEPSPEED, zb_v, "schedule zb-v; emitted 1f1b"},
    {PLAN_EMIT_MEGATRON, samples, "tp-batch 25; emitted 0"},
    {PLAN_EMIT_TORCHTITAN, halves, "sub-pipeline yes; emitted no"},
    {PLAN_EMIT_DEEPSPEED, uneven, "unequal numbers of layers"},
    {PLAN_EMIT_TORCHTITAN, whole_pipelines_close, "order tp-pp-dp; emitted"},
    {PLAN_EMIT_DEEPSPEED, experts_apart, "ep 2; emitted 1"},
};

static void what_cannot_be_said_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(noted_rows) / sizeof(noted_rows[0]); i++) {
        struct merak_plan plan = plain;
        char *out, *before, *notes;

        emit(noted_rows[i].what, &plan, NULL, &out, &before);
        free(out);
        noted_rows[i].change(&plan);
        emit(noted_rows[i].what, &plan, NULL, &out, &notes);
        assert_null(strstr(before, noted_rows[i].text));
        if (strstr(notes, noted_rows[i].text) == NULL ||
            strstr(out, noted_rows[i].text) == NULL)
            fail_msg("row %zu: \"%s\" is not in: %s", i, noted_rows[i].text,
                     notes);
        free(out);
        free(before);
        free(notes);
    }
}

/* What a search chose, not its user, is changed and only told in the output. */
static void choices_of_a_search_are_changed(void **state)
{
    static const bool given[MERAK_CHOICE_COUNT];
    const struct plan_trainer *trainer = plan_trainer_of(PLAN_EMIT_MEGATRON);
    struct merak_plan plan = plain, runs;
    struct plan_emitted e = {.plan = &runs,
                             .seq = 4096,
                             .global_batch = 256,
                             .config = &small_llama,
                             .wanted = &plan,
                             .wanted_s = 2,
                             .step_s = 2.5,
                             .own = &plain,
                             .own_s = 1.5,
                             .given = given};
    char *out, *notes;

    (void)state;
    zb_h1(&plan);
    runs = plan_trainer_adapt(trainer, &plan);
    assert_int_equal(emit_as(PLAN_EMIT_MEGATRON, &e, &out, &notes), 0);
    assert_string_equal(notes, "");
    assert_non_null(strstr(out, "# best, but not for Megatron-LM: 1.5 s a "
                                "step: tp 4, pp 2, dp 8; 1f1b"));
    assert_non_null(strstr(out, "# planned: 2 s a step: tp 4, pp 2, dp 8"));
    assert_non_null(strstr(out, "# as Megatron-LM runs it: 2.5 s a step: "));
    assert_non_null(strstr(out, "# schedule 1f1b instead of the plan's zb-h1"));
    free(out);
    free(notes);
}

static void a_run_costs_hours_of_every_rank(void **state)
{
    const struct plan_cost cost = {.tokens = 1e12, .price = 2.5};
    const struct plan_cost nothing = {.tokens = 0};
    size_t bytes;
    char *text;
    FILE *out = open_memstream(&text, &bytes);

    (void)state;
    plan_cost_print(&nothing, 1e6, 64, out);
    plan_cost_print(&cost, 1e6, 64, out); /* 1e6 s, 277.8 h */
    fclose(out);
    assert_string_equal(
        text,
        "\n1e+12 tokens: 11.57 days, 17778 GPU-hours, 44444 at 2.5 an hour\n");
    free(text);
}

static void the_knee_is_where_nodes_bring_half(void **state)
{
    const int nodes[] = {2, 4, 8, 16};
    const double even[] = {10, 20, 40, 80}, bent[] = {10, 19, 31, 35},
                 flat[] = {10, 11, 12, 13};

    (void)state;
    assert_int_equal(plan_knee(nodes, even, 4), 3);
    assert_int_equal(plan_knee(nodes, bent, 4), 2);
    assert_int_equal(plan_knee(nodes, flat, 4), 0);
    assert_int_equal(plan_knee(nodes, even, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(megatron_gets_flags),
        cmocka_unit_test(megatron_is_told_what_it_cannot_have),
        cmocka_unit_test(uneven_stages_get_a_layout),
        cmocka_unit_test(what_parts_recompute_is_said_if_they_do),
        cmocka_unit_test(torchtitan_gets_options),
        cmocka_unit_test(torchtitan_shards_inside),
        cmocka_unit_test(zero_2_and_3_are_emitted),
        cmocka_unit_test(offloaded_state_is_emitted),
        cmocka_unit_test(deepspeed_gets_json),
        cmocka_unit_test(what_cannot_be_said_is_named),
        cmocka_unit_test(choices_of_a_search_are_changed),
        cmocka_unit_test(a_run_costs_hours_of_every_rank),
        cmocka_unit_test(the_knee_is_where_nodes_bring_half),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
