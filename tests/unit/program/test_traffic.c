/* SPDX-License-Identifier: Apache-2.0 */
/* test_traffic.c - bytes that ranks send in a step, against the published
 * closed forms
 *
 * Of sequences s, micro-batch b, width h, w bytes an element, and e(n) for
 * (n - 1)/n:
 *
 *   tensor ranks  Shoeybi et al. 2019 (arXiv:1909.08053): four all-reduces of
 *                 bsh a layer and micro-batch, 8 e(t) w bsh.  With the sequence
 *                 cut (Korthikanti et al. 2022, arXiv:2205.05198) gathers and
 *                 reduce-scatters of as much, and two gathers more for the
 *                 gradients of qkv and fc: 10 e(t) w bsh
 *   stages        w bsh for each boundary, micro-batch and direction, w bsh/t
 *                 where tensor peers send parts and gather them
 *   replicas      Rajbhandari et al. 2020 (arXiv:1910.02054): an all-reduce of
 *                 gradients, or ZeRO-1's reduce-scatter of gradients and
 *                 all-gather of parameters: 2 e(d) psi elements a step, of psi
 *                 parameters that a rank holds
 *   cp            Jacobs et al. 2023 (arXiv:2309.14509): of q, k, v and o each
 *                 rank sends what others have heads of, forward and backward,
 *                 4 e(c)/c w bs(h + kv) a layer, of keys kv wide; or keys and
 *                 values are gathered, twice, and their gradients summed to
 *                 parts: 6 e(c) w bs kv.  Weights are whole: their gradients
 *                 are summed as over replicas
 *
 * What is not the layers' is put down as exactly.  All is counted in the
 * programs' exchanges, and by level of links in the planner's report.
 */
#include "config.h"

#include "unit/gpt2_config.h"
#include "unit/near.h"

#include "partitioner/assembly/assembly.h"
#include "partitioner/device/device.h"
#include "partitioner/search/search.h"

#include <stdio.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

enum {
    LAYERS = 4,
    BATCH = 4,
    SEQ = 32,
    WIDTH = 64,
    HEADS = 8,
    VOCAB = 128,
    PARAMS = 12 * LAYERS + 4 /* tensors, of a tied model */
};

struct row {
    int tp, pp, dp, m;
    int zero;
    bool sp, scatter;
    enum merak_dtype dtype;
    bool untied;
};

static const struct row rows[] = {
    {1, 1, 1, 3, false, false, false, MERAK_F32, false},
    {2, 1, 1, 3, false, false, false, MERAK_F32, false},
    {4, 1, 1, 2, false, false, false, MERAK_BF16, false},
    {4, 1, 1, 3, false, true, false, MERAK_F32, false},
    {2, 1, 1, 2, false, true, false, MERAK_BF16, false},
    {1, 1, 4, 2, false, false, false, MERAK_F32, false},
    {1, 1, 4, 3, true, false, false, MERAK_F32, false},
    {1, 1, 2, 3, true, false, false, MERAK_BF16, false},
    {2, 1, 4, 2, true, true, false, MERAK_BF16, false},
    {4, 1, 2, 2, false, false, false, MERAK_BF16, false},
    {1, 2, 1, 4, false, false, false, MERAK_F32, true},
    {1, 4, 1, 4, false, false, false, MERAK_BF16, true},
    {1, 4, 1, 4, false, false, false, MERAK_BF16, false},
    {2, 2, 1, 4, false, false, false, MERAK_F32, true},
    {4, 2, 1, 4, false, false, true, MERAK_BF16, true},
    {2, 4, 1, 4, false, false, true, MERAK_F32, false},
    {2, 4, 1, 4, false, true, true, MERAK_F32, true},
    {2, 2, 4, 4, true, true, false, MERAK_BF16, true},
    {2, 4, 2, 4, true, false, true, MERAK_BF16, false},
};

/* Bytes that one rank sends in a step. */
struct sent {
    double tp;       /* to tensor peers, with micro-batches */
    double join;     /* of boundaries' parts */
    double tp_end;   /* at the step's end: gradients, sums for their norm */
    double dp;       /* gradients, parameters, sums for the norm */
    double boundary; /* to other stages, with micro-batches */
    double pp_end;   /* a tied table's gradients, sums for the norm */
};

/* --- the closed forms ----------------------------------------------------- */

static double e(int n)
{
    return (n - 1.) / n;
}

struct params {
    double cut;     /* elements that a rank has of what tensor ranks share */
    double alike;   /* elements of what all of them have */
    double vectors; /* of both, norms and biases: f32 whatever the dtype */
};

static struct params count_params(const struct row *row, int stage)
{
    const double h = WIDTH, layers = (double)LAYERS / row->pp;
    const bool first = stage == 0, last = stage == row->pp - 1;
    int tables = first + last;

    if (first && last && !row->untied)
        tables = 1;
    return (struct params){
        .cut = (layers * (12 * h * h + 7 * h) + tables * VOCAB * h) / row->tp,
        .alike = layers * 6 * h + first * SEQ * h + last * 2 * h,
        .vectors = layers * (7 * h / row->tp + 6 * h) + last * 2 * h};
}

/* A sum of n doubles over a group, one rank of which sends this. */
static double vector_bytes(int n, int ranks)
{
    return 2 * e(ranks) * n * 8;
}

static struct sent closed_form(const struct row *row, int stage)
{
    const double t = row->tp, w = (double)merak_dtype_bytes(row->dtype);
    const double bs = BATCH * SEQ, bsh = w * bs * WIDTH, et = e(row->tp);
    const double h = WIDTH, layers = (double)LAYERS / row->pp;
    const bool first = stage == 0, last = stage == row->pp - 1;
    const int n = PARAMS + row->untied, hops = !first + !last;
    const bool parts = row->scatter && !row->sp && row->tp > 1;
    const struct params p = count_params(row, stage);
    const double psi = p.cut + p.alike;
    /* of each parameter a sum of squares */
    struct sent s = {.tp_end = vector_bytes(n, row->tp),
                     .dp = vector_bytes(n, row->dp),
                     .pp_end = vector_bytes(n, row->pp)};

    if (row->sp) {
        /* of the embedding rows are summed to parts, their gradients gathered;
         * the head's input is gathered, for its gradient again, and the
         * gradient summed to parts */
        s.tp = row->m * et * bsh * (10 * layers + 2 * first + 3 * last);
        /* what works on parts of sequences has partial gradients: norms and
         * positions, but no projection, whose output's are gathered */
        s.tp_end += 2 * et * 4 * (p.alike - layers * 2 * h);
    } else {
        s.tp = row->m * et * bsh * (8 * layers + 2 * first + 2 * last);
    }
    /* the loss: of each row the largest, the sum and the target's; with the
     * sequence cut the target's to parts, whose losses are summed */
    s.tp += last * row->m * et * (row->sp ? 5 * 4 * bs + 2 * 8 : 6 * 4 * bs);
    s.dp += e(row->dp) *
            (4 * psi + (row->zero ? w * psi + (4 - w) * p.vectors : 4 * psi));
    s.boundary = row->m * hops * (parts || row->sp ? bsh / t : bsh);
    s.join = parts ? row->m * hops * et * bsh : 0;
    if (!row->untied && row->pp > 1 && (first || last))
        s.pp_end += 4 * VOCAB * h / t;
    return s;
}

/* --- programs --------------------------------------------------------------
 */

static struct merak_hf_config config_of(const struct row *row)
{
    struct merak_hf_config config = gpt2_config(LAYERS, WIDTH, HEADS, VOCAB);

    config.positions = SEQ;
    config.tied = !row->untied;
    return config;
}

static void add_instr(const struct merak_program *prog,
                      const struct merak_instr *in, struct sent *s)
{
    const char *group =
        in->kind == MERAK_INSTR_EXCHANGE ? prog->group[in->group].name : "pp";
    double *to = NULL;

    if (in->kind != MERAK_INSTR_EXCHANGE && in->kind != MERAK_INSTR_SEND)
        return;
    if (strcmp(group, "dp") == 0)
        to = &s->dp;
    else if (strcmp(group, "pp") == 0)
        to = in->microbatch < 0 ? &s->pp_end : &s->boundary;
    else if (strcmp(group, "tp") == 0)
        to = in->microbatch < 0 ? &s->tp_end : in->node < 0 ? &s->join : &s->tp;
    assert_non_null(to);
    *to += (double)in->bytes;
}

static void check_program(const struct row *row,
                          const struct merak_program *prog)
{
    const struct sent want = closed_form(row, prog->stage);
    struct sent got = {0};
    char name[96];

    for (int i = 0; i < prog->n_instrs; i++)
        add_instr(prog, &prog->instr[i], &got);
    snprintf(name, sizeof(name), "tp %d, pp %d, dp %d, %s%s%s%s, rank %d",
             row->tp, row->pp, row->dp, merak_dtype_name(row->dtype),
             row->zero ? ", ZeRO-1" : "", row->sp ? ", sequence cut" : "",
             row->scatter ? ", scattered" : "", prog->rank);
#define CHECK(what)                                                        \
    do {                                                                   \
        if (got.what != want.what)                                         \
            fail_msg("%s: sends %.0f bytes of " #what ", not %.17g", name, \
                     got.what, want.what);                                 \
    } while (0)
    CHECK(tp);
    CHECK(tp_end);
    CHECK(dp);
    CHECK(boundary);
    CHECK(join);
    CHECK(pp_end);
#undef CHECK
}

static void programs_send_what_the_closed_forms_say(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct merak_hf_config config = config_of(&rows[i]);
        struct merak_plan plan = {.tp = rows[i].tp,
                                  .pp = rows[i].pp,
                                  .dp = rows[i].dp,
                                  .micro_batch = BATCH,
                                  .microbatches = rows[i].m,
                                  .zero = rows[i].zero,
                                  .scatter = rows[i].scatter,
                                  .sp = rows[i].sp ? MERAK_SP_ON : MERAK_SP_OFF,
                                  .dtype = rows[i].dtype,
                                  .schedule = "1f1b"};
        struct merak_planned *p = NULL;
        struct merak_error err = {0};

        if (merak_plan_build(&plan, SEQ, merak_hf_describe, &config,
                             MERAK_PLAN_ALL, NULL, &p, &err) != MERAK_OK)
            fail_msg("%s", err.text);
        for (int r = 0; r < p->n_programs; r++)
            check_program(&rows[i], p->program[r]);
        merak_planned_destroy(p);
    }
}

/* --- context parallelism -----------------------------------------------------
 */

enum {
    CP_HEADS = 16,
    KV_HEADS = 4,
    KV_WIDTH = KV_HEADS * WIDTH / CP_HEADS,
    FFN = 256,
    CP_VOCAB = 256, /* tables and FFN weights: state divided over cp, too */
    CP_PARAMS = 9 * LAYERS + 3
};

static const struct cp_row {
    int cp, dp, m;
    int zero;
    enum merak_cp_form form;
    enum merak_dtype dtype;
} cp_rows[] = {
    {2, 1, 3, 0, MERAK_CP_GATHER, MERAK_F32},
    {2, 1, 3, 0, MERAK_CP_HEADS, MERAK_F32},
    {4, 1, 2, 0, MERAK_CP_GATHER, MERAK_BF16},
    {4, 1, 2, 0, MERAK_CP_HEADS, MERAK_BF16},
    {2, 1, 2, 1, MERAK_CP_GATHER, MERAK_BF16},
    {4, 1, 2, 1, MERAK_CP_HEADS, MERAK_BF16},
    {2, 2, 2, 0, MERAK_CP_HEADS, MERAK_F32},
    {2, 2, 2, 1, MERAK_CP_GATHER, MERAK_BF16},
    {4, 2, 2, 1, MERAK_CP_HEADS, MERAK_BF16},
    {4, 2, 3, 1, MERAK_CP_GATHER, MERAK_F32},
};

/* Bytes that one rank sends in a step. */
struct cp_sent {
    double layers; /* over cp, with micro-batches */
    double end;    /* over cp, at the step's end */
    double dp;
};

static struct cp_sent cp_closed_form(const struct cp_row *row)
{
    const double h = WIDTH, kv = KV_WIDTH, c = row->cp, ec = e(row->cp);
    const double w = (double)merak_dtype_bytes(row->dtype), bs = BATCH * SEQ;
    const double ed = e(row->dp);
    const double vectors = LAYERS * 2 * h + h;
    const double large = LAYERS * 3 * h * FFN + 2 * CP_VOCAB * h;
    const double psi = LAYERS * 2 * h * (h + kv) + vectors + large;
    const double form =
        row->form == MERAK_CP_GATHER ? 6 * kv : 4 * (h + kv) / c;
    struct cp_sent s = {/* and the sum of all losses */
                        .layers =
                            row->m * (LAYERS * form * ec * bs * w + 2 * ec * 8),
                        .end = ec * 8 * psi + vector_bytes(CP_PARAMS, row->cp),
                        .dp = ed * 8 * psi + vector_bytes(CP_PARAMS, row->dp)};

    if (row->zero) {
        /* gathered again in their dtype, norms excepted; what is divided over
         * cp is that much less for replicas to divide */
        s.end -= ec * (4 - w) * large;
        s.dp = ed * ((4 + w) * (psi - vectors - (c - 1) / c * large) +
                     8 * vectors) +
               vector_bytes(CP_PARAMS, row->dp);
    }
    return s;
}

static void check_cp_program(const struct cp_row *row,
                             const struct merak_program *prog)
{
    const struct cp_sent want = cp_closed_form(row);
    struct cp_sent got = {0};

    for (int i = 0; i < prog->n_instrs; i++) {
        const struct merak_instr *in = &prog->instr[i];

        if (in->kind != MERAK_INSTR_EXCHANGE)
            continue;
        if (strcmp(prog->group[in->group].name, "dp") == 0)
            got.dp += (double)in->bytes;
        else if (strcmp(prog->group[in->group].name, "cp") != 0)
            fail_msg("an exchange over %s", prog->group[in->group].name);
        else if (in->microbatch < 0)
            got.end += (double)in->bytes;
        else
            got.layers += (double)in->bytes;
    }
    if (got.layers != want.layers || got.end != want.end || got.dp != want.dp)
        fail_msg("cp %d, dp %d, %s%s, %s, rank %d: sends %.0f, %.0f and %.0f "
                 "bytes over cp in layers, at the end and over dp, not %.17g, "
                 "%.17g and %.17g",
                 row->cp, row->dp, merak_dtype_name(row->dtype),
                 row->zero ? ", ZeRO-1" : "",
                 row->form == MERAK_CP_GATHER ? "gather" : "heads", prog->rank,
                 got.layers, got.end, got.dp, want.layers, want.end, want.dp);
}

static struct merak_hf_config cp_config(void)
{
    return (struct merak_hf_config){.family = MERAK_LLAMA,
                                    .layers = LAYERS,
                                    .hidden = WIDTH,
                                    .heads = CP_HEADS,
                                    .kv_heads = KV_HEADS,
                                    .head_dim = WIDTH / CP_HEADS,
                                    .ffn = FFN,
                                    .vocab = CP_VOCAB,
                                    .positions = SEQ,
                                    .norm.eps = 1e-5f,
                                    .init_std = 0.02f,
                                    .rope.theta = 1e4f};
}

static void sequences_over_ranks_send_what_the_closed_forms_say(void **state)
{
    struct merak_hf_config config = cp_config();

    (void)state;
    for (size_t i = 0; i < COUNT(cp_rows); i++) {
        const struct cp_row *row = &cp_rows[i];
        struct merak_plan plan = {.tp = 1,
                                  .pp = 1,
                                  .dp = row->dp,
                                  .cp = row->cp,
                                  .cp_form = row->form,
                                  .micro_batch = BATCH,
                                  .microbatches = row->m,
                                  .zero = row->zero,
                                  .dtype = row->dtype,
                                  .schedule = "1f1b"};
        struct merak_planned *p = NULL;
        struct merak_error err = {0};

        if (merak_plan_build(&plan, SEQ, merak_hf_describe, &config,
                             MERAK_PLAN_ALL, NULL, &p, &err) != MERAK_OK)
            fail_msg("%s", err.text);
        for (int r = 0; r < p->n_programs; r++)
            check_cp_program(row, p->program[r]);
        merak_planned_destroy(p);
    }
}

/* --- the report --------------------------------------------------------------
 */

/* On nodes of so many ranks; of what replicas and stages send each other, the
 * share that leaves a node.  Of many micro-batches programs of few are
 * counted. */
static const struct level_row {
    struct row row;
    int nodes, ranks;
    bool tp_pp_dp;
    double far_dp, far_pp;
} levels[] = {
    {{1, 1, 4, 2, true, false, false, MERAK_F32, true}, 2, 2, false, 2 / 3., 0},
    {{2, 1, 2, 48, true, false, false, MERAK_BF16, true}, 2, 2, false, 1, 0},
    {{2, 2, 1, 96, false, true, false, MERAK_F32, true}, 2, 2, false, 0, 1},
    {{2, 2, 2, 1024, true, false, false, MERAK_F32, true}, 2, 4, false, 0, 1},
    {{2, 2, 2, 64, true, false, false, MERAK_F32, true}, 2, 4, true, 1, 0},
    {{2, 2, 1, 96, false, false, true, MERAK_BF16, true}, 2, 2, false, 0, 1},
};

static struct merak_search_result *search(const struct level_row *l)
{
    struct merak_hf_config config = config_of(&l->row);
    struct merak_device device;
    struct merak_search_result *result = NULL;
    struct merak_error err = {0};
    struct merak_search_input in = {
        .describe = merak_hf_describe,
        .arg = &config,
        .seq = SEQ,
        .dtype = l->row.dtype,
        .global_batch = (size_t)(BATCH * l->row.m * l->row.dp),
        .nodes = l->nodes,
        .ranks_per_node = l->ranks,
        .threads = 1,
        .device = &device,
        .pin = {.tp = l->row.tp,
                .pp = l->row.pp,
                .dp = l->row.dp,
                .micro_batch = BATCH,
                .schedule = "1f1b",
                .zero = l->row.zero,
                .given[MERAK_CHOICE_ZERO] = true,
                .order_tp_pp_dp = l->tp_pp_dp,
                .given[MERAK_CHOICE_ORDER] = true,
                .given[MERAK_CHOICE_DP_IN] = true, /* one sum */
                .sub_pipeline = false,
                .given[MERAK_CHOICE_SUB_PIPELINE] = true,
                .given[MERAK_CHOICE_SP] = true,
                .sp = l->row.sp ? MERAK_SP_ON : MERAK_SP_OFF,
                .given[MERAK_CHOICE_TP_BATCH] = true,
                .boundary = l->row.scatter ? MERAK_BOUNDARY_SCATTER
                                           : MERAK_BOUNDARY_WHOLE,
                .given[MERAK_CHOICE_RECOMPUTE] = true}};

    assert_int_equal(merak_device_find("h100", &device, &err), MERAK_OK);
    if (merak_search(&in, &result, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return result;
}

/* Of a rank of each stage together, wherever the cuts are. */
static void reports_tell_the_bytes_of_each_level(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(levels); i++) {
        const struct level_row *l = &levels[i];
        struct merak_search_result *result = search(l);
        double link = 0, net = 0, got[2] = {0};

        for (int stage = 0; stage < l->row.pp; stage++) {
            const struct sent s = closed_form(&l->row, stage);
            const double pp = s.boundary + s.pp_end;

            link += s.tp + s.join + s.tp_end + (1 - l->far_dp) * s.dp +
                    (1 - l->far_pp) * pp;
            net += l->far_dp * s.dp + l->far_pp * pp;
            got[0] += result->stage[stage].sent_bytes[0];
            got[1] += result->stage[stage].sent_bytes[1];
        }
        print_message("# row %zu: %.0f bytes inside a node, %.0f between\n", i,
                      got[0], got[1]);
        /* shares of a third are rounded */
        assert_near(&got[0], &link, 1, 1e-12, 0);
        assert_near(&got[1], &net, 1, 1e-12, 0);
        merak_search_destroy(result);
    }
}

/* What goes over cp, and all; replicas are on the same node. */
static void reports_tell_the_bytes_over_cp(void **state)
{
    struct merak_hf_config config = cp_config();
    struct merak_device device;
    struct merak_error err = {0};

    (void)state;
    assert_int_equal(merak_device_find("h100", &device, &err), MERAK_OK);
    for (size_t i = 0; i < COUNT(cp_rows); i++) {
        const struct cp_row *row = &cp_rows[i];
        const struct cp_sent want = cp_closed_form(row);
        const double all = want.layers + want.end + want.dp;
        struct merak_search_result *result = NULL;
        struct merak_search_input in = {
            .describe = merak_hf_describe,
            .arg = &config,
            .seq = SEQ,
            .dtype = row->dtype,
            .global_batch = (size_t)(BATCH * row->m * row->dp),
            .nodes = 1,
            .ranks_per_node = row->cp * row->dp,
            .threads = 1,
            .device = &device,
            .pin = {.tp = 1,
                    .pp = 1,
                    .dp = row->dp,
                    .cp = row->cp,
                    .given[MERAK_CHOICE_CP] = true,
                    .cp_form = row->form,
                    .given[MERAK_CHOICE_CP_FORM] = true,
                    .micro_batch = BATCH,
                    .schedule = "1f1b",
                    .zero = row->zero,
                    .given[MERAK_CHOICE_ZERO] = true,
                    .given[MERAK_CHOICE_RECOMPUTE] = true}};

        if (merak_search(&in, &result, &err) != MERAK_OK)
            fail_msg("%s", err.text);
        assert_near(&result->stage[0].cp_bytes, &want.layers, 1, 0, 0);
        assert_near(&result->stage[0].sent_bytes[0], &all, 1, 0, 0);
        merak_search_destroy(result);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_send_what_the_closed_forms_say),
        cmocka_unit_test(sequences_over_ranks_send_what_the_closed_forms_say),
        cmocka_unit_test(reports_tell_the_bytes_of_each_level),
        cmocka_unit_test(reports_tell_the_bytes_over_cp),
    };

    return cmocka_run_group_tests_name("traffic", tests, NULL, NULL);
}
