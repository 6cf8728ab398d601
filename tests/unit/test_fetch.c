/* SPDX-License-Identifier: Apache-2.0 */
/* test_fetch.c - ZeRO-2 and ZeRO-3: matrices that are whole only while they are
 * used: the same bits, less memory, the bytes sent
 */
#include "config.h"

#include "unit/parity.h"

#include "base/size.h"
#include "io/hf_config.h"
#include "partitioner/graph/graph.h"
#include "partitioner/device/device.h"
#include "partitioner/program/memplan.h"
#include "partitioner/search/search.h"
#include "partitioner/simulate/check.h"
#include "partitioner/simulate/check_streams.h"
#include "partitioner/simulate/fetches.h"
#include "partitioner/simulate/simulate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

static const struct merak_plan rows[] = {
    {.tp = 1, .pp = 1, .dp = 2, .schedule = "1f1b"},
    {.tp = 1, .pp = 1, .dp = 3, .schedule = "gpipe"},
    {.tp = 1, .pp = 2, .dp = 2, .schedule = "1f1b"},
    {.tp = 2, .pp = 1, .dp = 2, .schedule = "1f1b"},
    {.tp = 2, .pp = 2, .dp = 2, .schedule = "1f1b", .sp = MERAK_SP_ON},
    {.tp = 2, .pp = 2, .dp = 2, .schedule = "zb-h1"},
    {.tp = 1, .pp = 2, .dp = 2, .schedule = "sliced"},
    {.tp = 2,
     .pp = 1,
     .dp = 2,
     .schedule = "1f1b",
     .tp_batch_percent = 100,
     .sp = MERAK_SP_OFF},
    {.tp = 1,
     .pp = 1,
     .dp = 2,
     .schedule = "1f1b",
     .recompute = MERAK_RECOMPUTE_FULL},
    {.tp = 2,
     .pp = 2,
     .dp = 2,
     .schedule = "1f1b",
     .sp = MERAK_SP_ON,
     .recompute = MERAK_RECOMPUTE_SELECTIVE},
    {.tp = 1,
     .pp = 2,
     .dp = 2,
     .chunks = 2,
     .schedule = "interleaved",
     .recompute = MERAK_RECOMPUTE_FULL},
    {.tp = 2, .pp = 1, .dp = 2, .schedule = "1f1b", .sub_pipeline = true},
    {.tp = 2,
     .pp = 2,
     .dp = 2,
     .schedule = "1f1b",
     .sub_pipeline = true,
     .recompute = MERAK_RECOMPUTE_FULL},
    {.tp = 2,
     .pp = 1,
     .dp = 2,
     .schedule = "1f1b",
     .sub_pipeline = true,
     .tp_batch_percent = 100,
     .sp = MERAK_SP_OFF},
};

static struct merak_plan with(const struct merak_plan *row, int zero, int m)
{
    struct merak_plan plan = *row;

    plan.zero = zero;
    plan.microbatches = m;
    return plan;
}

static const struct small_model *model_of(size_t row, bool untied)
{
    static struct small_model model;

    model = parity_gpt;
    model.layers = 4;
    model.untied = untied;
    model.shared_proj = row % 3 == 2 && untied;
    return &model;
}

/* --- numbers -------------------------------------------------------------- */

/* One micro-batch is summed over ranks as with ZeRO-1.  More are summed over
 * ranks one by one, so they are near, and the same at both levels. */
static void levels_agree(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        for (int untied = 0; untied < 2; untied++) {
            const struct small_model *model = model_of(i, untied != 0);

            for (int m = 1; m < 5; m += 3) {
                struct merak_plan z1 = with(&rows[i], MERAK_ZERO_STATE, m);
                struct merak_plan z2 = with(&rows[i], MERAK_ZERO_GRADS, m);
                struct merak_plan z3 = with(&rows[i], MERAK_ZERO_PARAMS, m);
                struct merak_plan whole = z3;

                /* these take micro-batches in twos */
                if (m % 2 != 0 &&
                    (rows[i].sub_pipeline ||
                     strcmp(rows[i].schedule, "interleaved") == 0))
                    continue;
                whole.sub_pipeline = false;
                if (rows[i].sub_pipeline)
                    parity_plans(model, &whole, &z3, true);
                parity_plans(model, &z1, &z2, m == 1);
                parity_plans(model, &z2, &z3, true);
            }
        }
    }
}

/* --- memory --------------------------------------------------------------- */

static bool is_matrix(const struct merak_param_slots *p)
{
    return p->shape.ndim > 1;
}

/* A slot's bytes, of which replica r of n has its part. */
static size_t part_bytes(size_t elements, size_t bytes, int r, int n)
{
    size_t to = elements * ((size_t)r + 1) / (size_t)n;

    return merak_size_align((to - elements * (size_t)r / (size_t)n) * bytes,
                            MERAK_ALIGN);
}

/* Of one use each. */
static size_t kept_bytes(const struct merak_program *prog,
                         const struct merak_param_slots *p, int zero)
{
    size_t n = merak_box_count(&prog->slot[p->param].box);
    size_t bytes = merak_dtype_bytes(prog->slot[p->param].dtype);
    size_t flat = part_bytes(n, 4, prog->dp_index, prog->plan.dp);
    int states = bytes == 4 ? 2 : 3; /* moments; a master copy */
    size_t sum = (size_t)(states + 1) * flat;

    sum += zero >= MERAK_ZERO_GRADS && is_matrix(p)
               ? 0
               : part_bytes(n, 4, 0, 1); /* the accumulator */
    return sum + (zero >= MERAK_ZERO_PARAMS && is_matrix(p)
                      ? part_bytes(n, bytes, prog->dp_index, prog->plan.dp)
                      : part_bytes(n, bytes, 0, 1));
}

static void check_kept(const struct merak_planned *p, const char *what)
{
    for (int r = 0; r < p->n_programs; r++) {
        const struct merak_program *prog = p->program[r];
        size_t sum = 0;

        for (int i = 0; i < prog->n_params; i++)
            sum += kept_bytes(prog, &prog->param[i], p->plan.zero);
        if (sum != prog->persistent_bytes)
            fail_msg("%s, zero %d, rank %d keeps %zu bytes, not %zu", what,
                     p->plan.zero, r, prog->persistent_bytes, sum);
        assert_int_equal(prog->category_bytes[MERAK_CAT_FETCHED] > 0,
                         p->plan.zero >= MERAK_ZERO_PARAMS);
    }
}

static void programs_are_sound_and_keep_parts(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        for (int zero = MERAK_ZERO_STATE; zero <= MERAK_MAX_ZERO; zero++) {
            for (int low = 0; low < 2; low++) {
                struct merak_plan plan = with(&rows[i], zero, 4);
                struct small_model model = *model_of(1, true);
                struct merak_error err = {.text = ""};
                struct merak_planned *p;

                model.dtype = low ? MERAK_BF16 : MERAK_F32;
                p = planned_build(&model, &plan, NULL);
                planned_assert_sound(p);
                /* at no level do pairs of several stages go from device to
                 * device */
                if (!(plan.sub_pipeline && plan.pp > 1) &&
                    merak_program_check_streams(p->program, p->n_programs,
                                                &err) != MERAK_OK)
                    fail_msg("%s: %s", rows[i].schedule, err.text);
                if (rows[i].tp_batch_percent == 0) /* or tensor ranks, too */
                    check_kept(p, rows[i].schedule);
                merak_planned_destroy(p);
            }
        }
    }
}

/* --- Llama 8 B: the closed forms' values ---------------------------------- */

static const struct merak_hf_config llama_8b = {
    .family = MERAK_LLAMA,
    .layers = 32,
    .hidden = 4096,
    .heads = 32,
    .kv_heads = 8,
    .head_dim = 128,
    .ffn = 14336,
    .vocab = 128256,
    .positions = 131072,
    .rope.theta = 5e5f,
    .norm.eps = 1e-5f,
    .init_std = 0.02f,
};

/* An embedding's backward reads no matrix, and the head's follows its forward:
 * each is gathered once a micro-batch, not twice.  In bf16, to 7 others. */
#define ONCE (2.0 * 2 * 128256 * 4096 * 7 / 8)
/* Where a backward follows its forward the last layer is still there, since it
 * fits beside the head; where a forward follows a backward, what the embedding
 * leaves room for: the first layer and the second one's attention. */
#define LAYER (2.0 * 218103808 * 7 / 8)
#define ATTENTION (2.0 * 41943040 * 7 / 8)
#define STILL(m) ((m)*LAYER + ((m)-1) * (LAYER + ATTENTION))

/* Bytes that a rank keeps, and sends over dp in a step. */
static const struct {
    int dp, m, zero;
    size_t kept;
    double sent; /* 0: not compared */
} llama_rows[] = {
    {8, 1, 0, 144544169984, 56211832810.},
    {8, 1, 1, 64242489344, 42159341546.},
    {8, 1, 2, 32122509312, 42159341546.},
    {8, 1, 3, 18070018048, 56211832810. - ONCE - STILL(1)},
    {8, 4, 2, 32122509312, 126474289130.},
    {8, 4, 3, 18070018048, 224841727978. - 4 * ONCE - STILL(4)},
    {128, 1, 1, 49185874304, 0},
    {128, 1, 2, 17065894272, 0},
    {128, 1, 3, 1131372928, 0},
};

static double sent_over_dp(const struct merak_program *prog)
{
    double sum = 0;

    for (int i = 0; i < prog->n_instrs; i++) {
        const struct merak_instr *in = &prog->instr[i];

        if (in->kind == MERAK_INSTR_EXCHANGE &&
            prog->group[in->group].axis == MERAK_ALONG_DP)
            sum += (double)in->bytes;
    }
    return sum;
}

static void llama_takes_what_the_closed_forms_say(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(llama_rows); i++) {
        struct merak_hf_config config = llama_8b;
        struct merak_plan plan = {.tp = 1,
                                  .pp = 1,
                                  .dp = llama_rows[i].dp,
                                  .micro_batch = 1,
                                  .microbatches = llama_rows[i].m,
                                  .zero = llama_rows[i].zero,
                                  .dtype = MERAK_BF16,
                                  .schedule = "1f1b"};
        struct merak_planned *p = NULL;
        struct merak_error err = {0};
        const struct merak_program *prog;
        double sent;

        if (merak_plan_build(&plan, 128, merak_hf_describe, &config,
                             MERAK_PLAN_STAGES, NULL, &p, &err) != MERAK_OK)
            fail_msg("%s", err.text);
        prog = p->program[0];
        sent = sent_over_dp(prog);
        if (prog->persistent_bytes != llama_rows[i].kept)
            fail_msg("dp %d, zero %d: keeps %zu bytes, not %zu", plan.dp,
                     plan.zero, prog->persistent_bytes, llama_rows[i].kept);
        if (llama_rows[i].sent > 0 && sent != llama_rows[i].sent)
            fail_msg("m %d, zero %d: sends %.0f bytes, not %.0f",
                     plan.microbatches, plan.zero, sent, llama_rows[i].sent);
        print_message("# dp %d, m %d, zero %d: %zu bytes kept of %zu, "
                      "gradients %zu, fetched %zu\n",
                      plan.dp, plan.microbatches, plan.zero,
                      prog->persistent_bytes, prog->arena_bytes,
                      prog->category_bytes[MERAK_CAT_GRAD],
                      prog->category_bytes[MERAK_CAT_FETCHED]);
        merak_planned_destroy(p);
    }
}

/* A step of one micro-batch of so many sequences of 128 tokens. */
static struct merak_planned *llama_on_8(int sequences,
                                        const struct merak_cost_model *cost)
{
    struct merak_hf_config config = llama_8b;
    struct merak_plan plan = {.tp = 1,
                              .pp = 1,
                              .dp = 8,
                              .micro_batch = (size_t)sequences,
                              .microbatches = 1,
                              .zero = MERAK_ZERO_PARAMS,
                              .dtype = MERAK_BF16,
                              .schedule = "1f1b"};
    const struct merak_program_options po = {.cost = cost};
    struct merak_planned *p = NULL;
    struct merak_error err = {.text = ""};

    if (merak_plan_build(&plan, 128, merak_hf_describe, &config,
                         MERAK_PLAN_STAGES, &po, &p, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return p;
}

/* The layer that an instruction is of, by the names of what it touches. */
static int layer_of(const struct merak_program *prog,
                    const struct merak_instr *in)
{
    for (int k = 0; k < in->n_in + in->n_out; k++) {
        const char *at = strstr(prog->slot[in->slot[k]].name, "layers.");

        if (at != NULL)
            return atoi(at + strlen("layers."));
    }
    return -1;
}

/* A layer's matrices are two bundles, of attention and MLP: each takes the
 * rounds of one exchange. */
static void a_bundle_takes_the_rounds_of_one_exchange(void **state)
{
    const double latency = 15e-6, rate = 45e9, peers = 7;
    const double want = 2 * peers * latency + LAYER / rate;
    struct merak_cost_model cost = *merak_cost_default();
    const struct merak_program *prog;
    struct merak_planned *p;
    double took = 0;
    int bundles = 0;

    (void)state;
    cost.links = (struct merak_links){
        .level[0] = {.latency_s = latency, .bytes_per_s = rate}};
    p = llama_on_8(1, &cost);
    prog = p->program[0];
    for (int i = 0; i < prog->n_instrs; i++) {
        const struct merak_instr *in = &prog->instr[i];

        if (!merak_instr_fetches(prog, in) || layer_of(prog, in) != 7)
            continue;
        took += in->cost_s;
        bundles += !in->joined;
    }
    assert_int_equal(bundles, 2 * 2); /* forward and backward */
    if (fabs(took - 2 * want) > 1e-12 * want)
        fail_msg("gathers of a layer take %g s, not %g", took, 2 * want);
    merak_planned_destroy(p);
}

/* --- what is not hidden ----------------------------------------------------
 */

/* Of a rank, whose kernels take what their FLOPs do: tokens of a micro-batch,
 * links. */
static const struct exposed_row {
    int tokens;
    double rate, latency;
} exposed_rows[] = {
    {8192, 45e9, 15e-6}, {16384, 45e9, 15e-6}, {1024, 45e9, 15e-6},
    {8192, 360e9, 8e-6}, {1024, 360e9, 8e-6},
};

/* When a phase of a layer begins in a simulated step. */
static double begin_s(const struct merak_program *prog,
                      const struct merak_timeline *timeline,
                      enum merak_phase phase, int layer)
{
    for (int i = 0; i < prog->n_instrs; i++) {
        const struct merak_instr *in = &prog->instr[i];

        if (in->kind == MERAK_INSTR_KERNEL && in->phase == phase &&
            layer_of(prog, in) == layer)
            return timeline->start[0][i];
    }
    return NAN;
}

/* From there to the next layer's; and the seconds of kernels in between. */
static void layer_s(const struct merak_program *prog,
                    const struct merak_timeline *timeline,
                    enum merak_phase phase, int layer, double *period_p,
                    double *kernels_p)
{
    int next = phase == MERAK_PHASE_F ? layer + 1 : layer - 1;
    double from = begin_s(prog, timeline, phase, layer);
    double to = begin_s(prog, timeline, phase, next);

    *period_p = to - from;
    *kernels_p = 0;
    for (int i = 0; i < prog->n_instrs; i++) {
        if (prog->instr[i].queue == MERAK_QUEUE_COMPUTE &&
            timeline->start[0][i] >= from && timeline->start[0][i] < to)
            *kernels_p += prog->instr[i].cost_s;
    }
}

/* A layer takes what its kernels do, or else what is moved beside them: forward
 * its matrices, in two bundles; backward these, 7 sums, and 2 of norms.  A
 * kernel may also wait for a moment where links are busy with what is needed
 * later. */
#define BUSY 1.01

static void a_layer_waits_for_what_its_kernels_do_not_hide(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(exposed_rows); i++) {
        const struct exposed_row *row = &exposed_rows[i];
        const double rounds = 7 * row->latency, moved = LAYER / row->rate;
        const double vectors = 2 * 4096 * 4 * 7. / 8 / row->rate;
        struct merak_cost_model cost = {.flops_per_s = 4e14,
                                        .bytes_per_s = 1e18};
        struct merak_planned *p;
        struct merak_timeline *timeline = NULL;
        struct merak_error err = {.text = ""};

        cost.links = (struct merak_links){
            .level[0] = {.latency_s = row->latency, .bytes_per_s = row->rate}};
        p = llama_on_8(row->tokens / 128, &cost);
        if (merak_simulate(p->program, 1, NULL, &timeline, &err) != MERAK_OK)
            fail_msg("%s", err.text);
        for (int back = 0; back < 2; back++) {
            double take =
                back ? 3 * moved + vectors + 11 * rounds : moved + 2 * rounds;
            double period, kernels, want;

            layer_s(p->program[0], timeline,
                    back ? MERAK_PHASE_B : MERAK_PHASE_F, 16, &period,
                    &kernels);
            want = fmax(take, kernels);
            print_message("# %d tokens, %g GB/s, %s: kernels %.3f ms, moved "
                          "%.3f ms, exposed %.3f ms\n",
                          row->tokens, row->rate / 1e9,
                          back ? "backward" : "forward", 1e3 * kernels,
                          1e3 * take, 1e3 * (period - kernels));
            if (period < want * (1 - 1e-9) || period > want * BUSY)
                fail_msg("a layer takes %g s, not %g", period, want);
        }
        merak_timeline_destroy(timeline);
        merak_planned_destroy(p);
    }
}

/* --- what a search finds -------------------------------------------------- */

#define NOT_GIVEN (-100)

/* Llama 8 B, one replica on each rank; on A100s. */
static const struct found_row {
    double gib;
    size_t seq, batch; /* of a step */
    int pin;           /* MERAK_OPTION_AUTO: any level; NOT_GIVEN: 0 or 1 if
                          there is such a plan, else any */
    int zero;          /* found; -1: none, and the nearest */
    const char *says;
} found_rows[] = {
    {38, 4096, 64, NOT_GIVEN, 3, NULL},
    {76, 4096, 64, NOT_GIVEN, 1, NULL},
    {38, 4096, 64, MERAK_OPTION_AUTO, 3, NULL}, /* 2 recomputes more */
    {38, 4096, 64, 3, 3, NULL},
    {38, 4096, 64, 1, -1, "or --zero 2"},
    {28, 4096, 64, 1, -1, "or --zero 3"},
    {76, 128, 64, MERAK_OPTION_AUTO, 1, NULL}, /* too few tokens to gather by */
};

/* What is reported of a rank of one stage that fetches everything, for m
 * micro-batches: elements of matrices are gathered twice in each, and summed.
 */
static void check_fetches(const struct merak_search_result *found, int m)
{
    const struct merak_search_stage *stage = &found->stage[0];
    const double matrices = 8029995008., norms = 266240, q = 7. / 8;
    double fetched = m * (4 * matrices * q - ONCE) - STILL(m);
    double sent = fetched + (m * 4 * matrices + 8 * norms + 16 * 291) * q;

    assert_int_equal(stage->blocks_fetched, 2 * 32 + 2);
    if (fabs(stage->fetched_bytes - fetched) > 1e-12 * fetched)
        fail_msg("fetches %.0f bytes, not %.0f", stage->fetched_bytes, fetched);
    if (fabs(stage->sent_bytes[0] - sent) > 1e-12 * sent)
        fail_msg("sends %.0f bytes, not %.0f", stage->sent_bytes[0], sent);
    assert_true(found->choice[0].fetch_s >= 0);
    assert_true(found->choice[0].fetch_s < 0.2 * found->choice[0].step_s);
}

static void the_level_that_fits_is_found(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(found_rows); i++) {
        const struct found_row *row = &found_rows[i];
        struct merak_hf_config config = llama_8b;
        struct merak_device device;
        struct merak_search_result *found = NULL;
        struct merak_error err = {.text = ""};
        struct merak_search_input in = {
            .describe = merak_hf_describe,
            .arg = &config,
            .seq = row->seq,
            .dtype = MERAK_BF16,
            .global_batch = row->batch,
            .nodes = 1,
            .ranks_per_node = 8,
            .threads = 1,
            .memory_bytes = (size_t)(row->gib * 0x1p30),
            .device = &device,
            .pin = {.tp = 1,
                    .pp = 1,
                    .micro_batch = 1,
                    .zero = row->pin == NOT_GIVEN ? 0 : row->pin,
                    .given[MERAK_CHOICE_ZERO] = row->pin >= 0}};
        enum merak_status rc;

        assert_int_equal(merak_device_find("a100", &device, &err), MERAK_OK);
        rc = merak_search(&in, &found, &err);
        if (rc != MERAK_OK && row->zero >= 0)
            fail_msg("row %zu: %s", i, err.text);
        if (rc != MERAK_OK) {
            if (strstr(err.text, row->says) == NULL)
                fail_msg("row %zu says \"%s\"", i, err.text);
            continue;
        }
        print_message("# %g GiB, %zu tokens: zero %d, %g s\n", row->gib,
                      row->seq, found->choice[0].plan.zero,
                      found->choice[0].step_s);
        assert_int_equal(found->choice[0].plan.zero, row->zero);
        if (row->zero >= MERAK_ZERO_PARAMS)
            check_fetches(found, found->choice[0].plan.microbatches);
        merak_search_destroy(found);
    }
}

/* --- refusals ------------------------------------------------------------- */

static const struct {
    struct merak_plan plan;
    const char *says;
} refused[] = {
    {{.tp = 2, .pp = 1, .dp = 1, .zero = 3, .schedule = "1f1b"},
     "--zero 3 needs dp 2 or more"},
    {{.tp = 1, .pp = 2, .dp = 2, .zero = 2, .schedule = "interlaced"},
     "--zero 2: schedule interlaced sums vocabulary layers over stages; use "
     "--zero 1"},
};

static void what_is_not_possible_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(refused); i++) {
        struct merak_plan plan =
            with(&refused[i].plan, refused[i].plan.zero, 4);
        struct merak_error err = {.text = ""};

        assert_int_equal(planned_try(model_of(0, true), &plan, &err),
                         MERAK_ERR_CONFIG);
        if (strstr(err.text, refused[i].says) == NULL)
            fail_msg("row %zu says \"%s\"", i, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_agree),
        cmocka_unit_test(programs_are_sound_and_keep_parts),
        cmocka_unit_test(llama_takes_what_the_closed_forms_say),
        cmocka_unit_test(a_bundle_takes_the_rounds_of_one_exchange),
        cmocka_unit_test(a_layer_waits_for_what_its_kernels_do_not_hide),
        cmocka_unit_test(the_level_that_fits_is_found),
        cmocka_unit_test(what_is_not_possible_is_refused),
    };

    return cmocka_run_group_tests_name("fetch", tests, NULL, NULL);
}
