/* SPDX-License-Identifier: Apache-2.0 */
/* test_fetch_llama.c - ZeRO-2 and ZeRO-3 of Llama 8 B: bytes kept and sent and
 * seconds exposed by closed forms, and the level that a search finds
 */
#include "config.h"

#include "unit/near.h"

#include "io/hf_config.h"
#include "partitioner/assembly/assembly.h"
#include "partitioner/device/device.h"
#include "partitioner/search/search.h"
#include "partitioner/simulate/fetches.h"
#include "partitioner/simulate/simulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

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

/* Of the embedding, the first block, or of a layer's attention, the second. */
#define EMBEDDING (2.0 * 128256 * 4096 * 7 / 8)
/* Blocks with matrices, and the last norm. */
#define FETCHED (2 * 32 + 2)
#define BLOCKS (FETCHED + 1)

/* Sums over replicas. */
#define EACH MERAK_SUM_MICRO
#define ONE MERAK_SUM_STEP

/* Bytes that a rank keeps, and sends over dp in a step. */
static const struct {
    int dp, m, zero, fetch;
    enum merak_grad_sum sum;
    size_t kept;
    double sent; /* 0: not compared */
} llama_rows[] = {
    {8, 1, 0, 0, EACH, 144544169984, 56211832810.},
    {8, 1, 1, 0, EACH, 60227358720, 42159341546.},
    {8, 1, 2, 0, EACH, 32122376192, 42159341546.},
    {8, 1, 3, 0, EACH, 18069884928, 56211832810. - ONCE - STILL(1)},
    {8, 1, 3, BLOCKS, EACH, 18069884928, 56211832810. - ONCE - STILL(1)},
    {8, 1, 3, 1, EACH, 32122376192 - (size_t)EMBEDDING, 42159341546.},
    {8, 4, 2, 0, EACH, 32122376192, 126474289130.},
    {8, 4, 3, 0, EACH, 18069884928, 224841727978. - 4 * ONCE - STILL(4)},
    {8, 4, 3, 1, EACH, 32122376192 - (size_t)EMBEDDING,
     126474289130. + 3 * EMBEDDING},
    {8, 4, 3, 2, EACH, 32122376192 - (size_t)(EMBEDDING + ATTENTION), 0},
    {8, 4, 3, 0, ONE, 46174867456, 140526780394. - 4 * ONCE - STILL(4)},
    {8, 4, 3, 1, ONE, 60227358720 - (size_t)EMBEDDING,
     42159341546. + 3 * EMBEDDING},
    {128, 1, 1, 0, EACH, 48934928640, 0},
    {128, 1, 2, 0, EACH, 17065885952, 0},
    {128, 1, 3, 0, EACH, 1131364608, 0},
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
                                  .fetch = llama_rows[i].fetch,
                                  .grad_sum = llama_rows[i].sum,
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
            fail_msg("dp %d, zero %d, fetch %d: keeps %zu bytes, not %zu",
                     plan.dp, plan.zero, plan.fetch, prog->persistent_bytes,
                     llama_rows[i].kept);
        if (llama_rows[i].sent > 0 && sent != llama_rows[i].sent)
            fail_msg("m %d, zero %d, fetch %d: sends %.0f bytes, not %.0f",
                     plan.microbatches, plan.zero, plan.fetch, sent,
                     llama_rows[i].sent);
        print_message("# dp %d, m %d, zero %d, fetch %d: %zu bytes kept of "
                      "%zu, gradients %zu, fetched %zu\n",
                      plan.dp, plan.microbatches, plan.zero, plan.fetch,
                      prog->persistent_bytes, prog->arena_bytes,
                      prog->category_bytes[MERAK_CAT_GRAD],
                      prog->category_bytes[MERAK_CAT_FETCHED]);
        merak_planned_destroy(p);
    }
}

/* --- parts inside nodes ----------------------------------------------------
 */

/* 64 replicas, 8 to a node.  Between nodes go a step's sums of gradients and
 * the matrices updated from them, (4 + 2) bytes of an element and 7 / 64 of
 * them, whatever the number of micro-batches; and norms and biases, 8 bytes of
 * an element, and the squares' sums of 291 parameters. */
static const struct {
    int m, zero;
    enum merak_zero_home home;
    size_t kept;
    double out;
} home_rows[] = {
    {1, 3, MERAK_HOME_IN, 8032158208, 5269684224. + 232960 + 4074},
    {4, 3, MERAK_HOME_IN, 8032158208, 5269684224. + 232960 + 4074},
    {4, 2, MERAK_HOME_IN, 8032158208 + 2ul * 8029995008 * 7 / 8,
     5269684224. + 232960 + 4074},
    {1, 1, MERAK_HOME_ALL, 0, 5269684224. + 232960 + 4074},
};

static void a_step_sends_between_nodes_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(home_rows); i++) {
        struct merak_hf_config config = llama_8b;
        struct merak_plan plan = {.tp = 1,
                                  .pp = 1,
                                  .dp = 64,
                                  .dp_in = 8,
                                  .micro_batch = 1,
                                  .microbatches = home_rows[i].m,
                                  .zero = home_rows[i].zero,
                                  .zero_home = home_rows[i].home,
                                  .dtype = MERAK_BF16,
                                  .schedule = "1f1b"};
        struct merak_planned *p = NULL;
        struct merak_error err = {0};
        double out = 0;

        if (merak_plan_build(&plan, 128, merak_hf_describe, &config,
                             MERAK_PLAN_STAGES, NULL, &p, &err) != MERAK_OK)
            fail_msg("%s", err.text);
        for (int k = 0; k < p->program[0]->n_instrs; k++) {
            const struct merak_instr *in = &p->program[0]->instr[k];

            if (in->kind == MERAK_INSTR_EXCHANGE &&
                strcmp(p->program[0]->group[in->group].name, "dp.out") == 0)
                out += (double)in->bytes;
        }
        if (home_rows[i].kept > 0)
            assert_int_equal(p->program[0]->persistent_bytes,
                             home_rows[i].kept);
        if (out != home_rows[i].out)
            fail_msg("m %d, zero %d: %.0f bytes leave a node, not %.0f",
                     plan.microbatches, plan.zero, out, home_rows[i].out);
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
        if (merak_simulate(p->program, 1, NULL, NULL, &timeline, &err) !=
            MERAK_OK)
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

/* --- optimizer state of the host's ---------------------------------------- */

/* 12 bytes of a matrix's element and 8 of a norm's, an eighth of each; a step
 * copies them there and back, at 50 GB/s one way at a time. */
static void state_is_the_hosts(void **state)
{
    const size_t away = 12045258752;
    const double copies = 2.0 * 12045258752 / 5e10;
    struct merak_hf_config config = llama_8b;
    struct merak_plan plan = {.tp = 1,
                              .pp = 1,
                              .dp = 8,
                              .micro_batch = 1,
                              .microbatches = 1,
                              .zero = 1,
                              .offload = MERAK_OFFLOAD_STATE,
                              .dtype = MERAK_BF16,
                              .schedule = "1f1b"};
    struct merak_device device;
    struct merak_cost_model cost;
    const struct merak_program_options opt = {.cost = &cost};
    struct merak_timeline *timeline = NULL;
    struct merak_planned *p = NULL;
    struct merak_error err = {.text = ""};
    double exposed;

    (void)state;
    assert_int_equal(merak_device_find("h100", &device, &err), MERAK_OK);
    merak_device_cost(&device, MERAK_BF16, 8, &cost);
    if (merak_plan_build(&plan, 4096, merak_hf_describe, &config,
                         MERAK_PLAN_STAGES, &opt, &p, &err) != MERAK_OK ||
        merak_simulate(p->program, 1, NULL, NULL, &timeline, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    assert_int_equal(p->program[0]->host_bytes, away);
    assert_int_equal(p->program[0]->persistent_bytes, 60227358720 - away);
    exposed = merak_offload_exposed(p->program, timeline);
    print_message("# %zu bytes of the host, %.4f s exposed, %.4f s without "
                  "latency\n",
                  p->program[0]->host_bytes, exposed, copies);
    /* latencies of 10 us, two for each 16 MiB or vector of three kinds, and the
     * updates of the first piece and the last */
    assert_true(exposed >= 0.99 * copies && exposed < 1.05 * copies);
    merak_timeline_destroy(timeline);
    merak_planned_destroy(p);
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
    int fetch[2]; /* how many blocks are fetched at least and at most; 0: all */
    bool here;    /* no state is to be offloaded; .. */
    bool away;    /* it is in the plan found */
} found_rows[] = {
    {38, 4096, 64, NOT_GIVEN, 3, NULL, .fetch = {0}},
    {76, 4096, 64, NOT_GIVEN, 1, NULL, .fetch = {0}},
    {38, 4096, 64, MERAK_OPTION_AUTO, 3, NULL,
     .fetch = {0}}, /* 2 recomputes more */
    {38, 4096, 64, 3, 3, NULL, .fetch = {0}},
    {38, 4096, 64, 1, -1, "or --zero 2", {0}, .here = true},
    {28, 4096, 64, 1, -1, "or --zero 3", {0}, .here = true},
    {20, 4096, 64, 3, -1, "or --offload state", {0}, .here = true},
    {54, 4096, 64, 1, 1, NULL, {0}, .away = true},
    {54, 4096, 64, NOT_GIVEN, 2, NULL,
     .fetch = {0}}, /* it is the last resort */
    {20, 4096, 64, NOT_GIVEN, 3, NULL, {0}, .away = true},
    {76, 128, 64, MERAK_OPTION_AUTO, 1, NULL, .fetch = {0}}, /* too few tokens
                                                       to gather by */
    /* few tokens to gather by, but memory for all blocks except some */
    {38, 1024, 64, 3, 3, NULL, .fetch = {1, 10}},
    {32, 1024, 64, MERAK_OPTION_AUTO, 3, NULL, .fetch = {20, 45}},
    /* and for whole gradients, which are summed once */
    {53, 1024, 64, MERAK_OPTION_AUTO, 3, NULL, .fetch = {30, 50}},
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

    assert_int_equal(stage->blocks_fetched, FETCHED);
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
                    .given[MERAK_CHOICE_ZERO] = row->pin >= 0,
                    .given[MERAK_CHOICE_OFFLOAD] = row->here}};
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
        print_message("# %g GiB, %zu tokens: zero %d, fetch %d, %g s\n",
                      row->gib, row->seq, found->choice[0].plan.zero,
                      found->choice[0].plan.fetch, found->choice[0].step_s);
        assert_int_equal(found->choice[0].plan.zero, row->zero);
        assert_int_equal(found->choice[0].plan.offload,
                         row->away ? MERAK_OFFLOAD_STATE : MERAK_OFFLOAD_NONE);
        assert_in_range(found->choice[0].plan.fetch, row->fetch[0],
                        row->fetch[1]);
        assert_true(found->choice[0].memory_bytes <= in.memory_bytes);
        assert_int_equal(found->choice[0].plan.grad_sum,
                         row->gib == 53 ? MERAK_SUM_STEP : MERAK_SUM_MICRO);
        if (row->zero >= MERAK_ZERO_PARAMS && row->fetch[1] == 0)
            check_fetches(found, found->choice[0].plan.microbatches);
        merak_search_destroy(found);
    }
}

/* 8 nodes of 8, each a replica on each rank, which fetches everything: with
 * slow links between nodes it does so inside them, if memory allows; with links
 * as fast as those inside, and no latency, over all. */
static const struct {
    double gib, net_bytes_per_s, net_latency_s;
    int dp_in; /* found */
    enum merak_zero_home home;
} cluster_rows[] = {
    {29, 4.5e10, 15e-6, 8, MERAK_HOME_IN},
    {29, 4.5e10, 1e-7, 8, MERAK_HOME_IN},
    {29, 3.6e11, 1e-7, 1, MERAK_HOME_ALL},
    {11.3, 4.5e10, 15e-6, 1, MERAK_HOME_ALL}, /* parts of 1 in 8 do not fit */
};

static void nodes_share_out_where_links_between_are_slow(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(cluster_rows); i++) {
        struct merak_hf_config config = llama_8b;
        struct merak_device device;
        struct merak_search_result *found = NULL;
        struct merak_error err = {.text = ""};
        struct merak_search_input in = {
            .describe = merak_hf_describe,
            .arg = &config,
            .seq = 4096,
            .dtype = MERAK_BF16,
            .global_batch = 64,
            .nodes = 8,
            .ranks_per_node = 8,
            .threads = 1,
            .memory_bytes = (size_t)(cluster_rows[i].gib * 0x1p30),
            .device = &device,
            .pin = {.tp = 1,
                    .pp = 1,
                    .micro_batch = 1,
                    .zero = MERAK_ZERO_PARAMS,
                    .zero_home = MERAK_HOME_AUTO,
                    .given[MERAK_CHOICE_ZERO] = true}};
        const struct merak_plan *plan;

        assert_int_equal(merak_device_find("h100", &device, &err), MERAK_OK);
        device.links.level[1].bytes_per_s = cluster_rows[i].net_bytes_per_s;
        device.links.level[1].latency_s = cluster_rows[i].net_latency_s;
        if (merak_search(&in, &found, &err) != MERAK_OK)
            fail_msg("row %zu: %s", i, err.text);
        plan = &found->choice[0].plan;
        print_message("# %g GiB, %g GB/s: dp-in %d, %g s; bytes %.0f inside, "
                      "%.0f between nodes\n",
                      cluster_rows[i].gib,
                      cluster_rows[i].net_bytes_per_s / 1e9, plan->dp_in,
                      found->choice[0].step_s, found->stage[0].sent_bytes[0],
                      found->stage[0].sent_bytes[1]);
        assert_int_equal(plan->dp_in, cluster_rows[i].dp_in);
        assert_int_equal(plan->zero_home, cluster_rows[i].home);
        if (plan->zero_home == MERAK_HOME_IN && plan->fetch == 0)
            assert_true(fabs(found->stage[0].sent_bytes[1] -
                             (5269684224. + 232960 + 4074)) < 1);
        merak_search_destroy(found);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_takes_what_the_closed_forms_say),
        cmocka_unit_test(a_step_sends_between_nodes_once),
        cmocka_unit_test(a_bundle_takes_the_rounds_of_one_exchange),
        cmocka_unit_test(a_layer_waits_for_what_its_kernels_do_not_hide),
        cmocka_unit_test(state_is_the_hosts),
        cmocka_unit_test(the_level_that_fits_is_found),
        cmocka_unit_test(nodes_share_out_where_links_between_are_slow),
    };

    return cmocka_run_group_tests_name("fetch_llama", tests, NULL, NULL);
}
