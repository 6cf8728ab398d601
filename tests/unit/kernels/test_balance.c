/* SPDX-License-Identifier: Apache-2.0 */
/* test_balance.c - how evenly experts are loaded, against numbers of
 * transformers 5.24 and against differences
 */
#include "config.h"

#include "unit/near.h"
#include "unit/kernels/raw_call.h"

#include "kernels/kernels.h"
#include "partitioner/graph/graph.h"

#include <string.h>

#define NEAR 6e-7 /* numbers are given to six digits */

static void run(const char *op, struct merak_kernel_call *call)
{
    static const struct merak_step step = {.token_share = 1};
    const struct merak_backend *b;
    const struct merak_kernel *k;

    assert_int_equal(merak_backend_find("ref", &b, NULL), MERAK_OK);
    assert_int_equal(merak_kernel_find(b, op, &k, NULL), MERAK_OK);
    call->step = &step;
    assert_int_equal(k->fn(call, NULL), MERAK_OK);
}

/* The losses of B sequences of T tokens, and the rows of E experts. */
struct router {
    size_t B, T, E, K;
    double z[32], load[32], tally[16], dz[32];
    int32_t ids[16];
    struct merak_attrs attrs;
};

static void forward(struct router *r)
{
    struct merak_attrs sizes = {.i = {(int64_t)r->E, (int64_t)r->T}};
    struct merak_kernel_call call = {
        .attrs = &r->attrs, .n_in = 2, .n_out = 1};

    call.operand[0] = F64(r->z, r->B, r->T, r->E);
    call.operand[1] = I32(r->ids, r->B, r->T, r->K);
    call.operand[2] = F64(r->load, r->B, 2 * r->E + 1);
    run("route_load", &call);
    call = (struct merak_kernel_call){.attrs = &sizes, .n_in = 1, .n_out = 1};
    call.operand[0] = F64(r->load, r->B, 2 * r->E + 1);
    call.operand[1] = F64(r->tally, r->E + 2);
    run("balance", &call);
}

static void backward(struct router *r)
{
    struct merak_kernel_call call = {
        .attrs = &r->attrs, .n_in = 2, .n_out = 1};

    call.operand[0] = F64(r->z, r->B, r->T, r->E);
    call.operand[1] = F64(r->load, r->B, 2 * r->E + 1);
    call.operand[2] = F64(r->dz, r->B, r->T, r->E);
    run("balance_dx", &call);
}

static const struct router three = {.B = 1,
                                    .T = 3,
                                    .E = 4,
                                    .K = 2,
                                    .z = {0.9, -0.3, 0.4, 1.1, 0.2, 0.2, -0.5,
                                          0.1, -1, 2, 0, 0.5},
                                    .ids = {3, 0, 0, 1, 1, 3}};

static void losses_are_those_of_transformers(void **state)
{
    static const double load[] = {2, 2, 0, 2, 0.216309, 0.366783,
                                  0.145310, 0.271598};
    struct router r = three;

    (void)state;
    for (int i = 4; i < 8; i++)
        r.load[i] = NAN;
    forward(&r);
    assert_near(r.load, load, 4, 0, 0);
    for (int i = 4; i < 8; i++) /* a sum of three */
        assert_near(&(double){r.load[i] / 3}, &load[i], 1, 0, NEAR);
    assert_near(r.tally, &(double){2.279174}, 1, 0, NEAR);
    assert_near(r.tally + 1, &(double){3.893202}, 1, 0, NEAR);
    assert_near(r.tally + 2, load, 4, 0, 0);
}

/* Megatron's loss counts a k-th of a token's rows. */
static void gradients_are_those_of_transformers(void **state)
{
    static const double dz[] = {0.02753111, 0.00829221, -0.06944989,
                                0.03362657};
    struct router r = three;

    (void)state;
    r.attrs.f[0] = 0.5;
    forward(&r);
    backward(&r);
    assert_near(r.dz, dz, 4, 0, 6e-9);
}

/* A layer's own product: of the same tokens in another order and with experts
 * mirrored it is the same, where a product pooled over both layers is not. */
static void a_layer_has_its_own_product(void **state)
{
    struct router r = three;

    (void)state;
    for (int t = 0; t < 3; t++) {
        for (int e = 0; e < 4; e++)
            r.z[t * 4 + e] = three.z[(t + 2) % 3 * 4 + 3 - e];
        for (int k = 0; k < 2; k++)
            r.ids[t * 2 + k] = 3 - three.ids[(t + 2) % 3 * 2 + k];
    }
    forward(&r);
    assert_near(r.tally, &(double){2.279174}, 1, 0, NEAR);
    /* Megatron and DeepSpeed count a k-th */
    assert_near(&(double){r.tally[0] / (double)r.K}, &(double){1.139587}, 1, 0,
                NEAR);
}

static double loss_of(const struct router *r)
{
    struct router at = *r;

    forward(&at);
    return r->attrs.f[0] * at.tally[0] + r->attrs.f[1] * at.tally[1];
}

static void gradients_are_differences(void **state)
{
    const double h = 1e-5;

    (void)state;
    for (int sigmoid = 0; sigmoid < 2; sigmoid++) {
        struct router r = {.B = 2,
                           .T = 3,
                           .E = 5,
                           .K = 2,
                           .ids = {0, 1, 0, 3, 4, 0, 2, 3, 3, 1, 3, 0},
                           .attrs = {.i = {0, sigmoid}, .f = {0.7, 0.3}}};

        for (int i = 0; i < 30; i++)
            r.z[i] = 2 * sin(1.3 * i);
        forward(&r);
        backward(&r);
        for (int i = 0; i < 30; i++) {
            struct router more = r, less = r;
            double d;

            more.z[i] += h;
            less.z[i] -= h;
            d = (loss_of(&more) - loss_of(&less)) / (2 * h);
            assert_near(&r.dz[i], &d, 1, 0, 1e-9);
        }
    }
}

/* Of two micro-batches, counted alone and together. */
static void biases_move_by_the_sign_of_counts(void **state)
{
    static const float want[] = {0.001f, 0.009f, -0.02f, 0};
    float load[][9] = {{6, 10, 12, 12}, {4, 20, 8, 8}}, counts[4];
    float bias[] = {0, 0.01f, -0.02f, 0};
    struct merak_attrs attrs = {.i = {4, 40, 1}, .f = {1e-3}};
    struct merak_kernel_call call = {.attrs = &attrs, .n_in = 1, .n_out = 1};

    (void)state;
    call.operand[1] = F32(counts, 4);
    for (int i = 0; i < 2; i++) {
        call.operand[0] = F32(load[i], 1, 9);
        call.accumulate = i > 0;
        run("balance_count", &call);
    }
    assert_near(counts, ((float[]){-10, 10, 0, 0}), 4, 0, 0);
    call.operand[0] = F32(counts, 4);
    call.operand[1] = F32(bias, 4);
    run("sign_step", &call);
    assert_near(bias, want, 4, 0, 1e-9);
}

/* 7 rows of 3 experts: a mean of 7/3, which no number of rows is. */
static void counts_are_whole_numbers(void **state)
{
    float load[7] = {2, 2, 3}, counts[3];
    struct merak_attrs attrs = {.i = {3, 7, 1}};
    struct merak_kernel_call call = {.attrs = &attrs, .n_in = 1, .n_out = 1};

    (void)state;
    call.operand[0] = F32(load, 1, 7);
    call.operand[1] = F32(counts, 3);
    run("balance_count", &call);
    assert_near(counts, ((float[]){-1, -1, 2}), 3, 0, 0);
}

/* Rows of 8 experts, two a rank: 60, 32, 22 and 14. */
static void rows_without_room_are_counted(void **state)
{
    static const int rows[] = {40, 20, 16, 16, 12, 10, 8, 6};
    static const struct {
        size_t rank, kept;
        double over;
    } row[] = {{0, 16, 28}, {0, 20, 20}, {0, 24, 12}, {0, 32, 0},
               {1, 16, 0},  {2, 16, 0},  {3, 5, 4}};
    struct merak_attrs none = {.i = {0}};
    struct merak_kernel_call call = {.attrs = &none, .n_in = 2, .n_out = 1};
    int32_t ids[128];
    double over;

    (void)state;
    for (int e = 0, n = 0; e < 8; e++) {
        for (int i = 0; i < rows[e]; i++)
            ids[n++] = e;
    }
    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        call.operand[0] = I32(ids, 1, 64, 2);
        call.operand[1] = F64(NULL, 2, row[i].kept, 2, 3);
        call.operand[1].lo[0] = 2 * row[i].rank;
        call.operand[2] = F64(&over, 1);
        run("experts_overflow", &call);
        assert_near(&over, &row[i].over, 1, 0, 0);
    }
}

/* --- descriptions ----------------------------------------------------------
 */

static struct merak_model *described(const struct merak_balance_options *as,
                                     const struct merak_balance_options *opt,
                                     bool frozen)
{
    const struct merak_model_options mo = {
        .micro_batch = 2, .seq = 4, .dtype = MERAK_F32};
    const struct merak_route_options route = {.k = 2, .sigmoid = true};
    struct merak_model *m;
    struct merak_value *x, *z, *bias, *w, *ids;

    assert_int_equal(merak_model_create(&mo, &m, NULL), MERAK_OK);
    if (as != NULL)
        merak_balance_as(m, as);
    x = merak_embedding(m, merak_tokens(m),
                        MERAK_PARAM(m, "table", MERAK_NORMAL(1), 9, 4));
    z = merak_linear(m, x, MERAK_PARAM(m, "router", MERAK_NORMAL(1), 3, 4),
                     NULL, 1);
    bias = MERAK_PARAM(m, "bias", MERAK_ZEROS, 3);
    if (frozen)
        merak_freeze(m, "bias");
    merak_route(m, z, bias, &route, &w, &ids);
    merak_balance(m, z, ids, bias, &route, opt);
    x = merak_experts(m, x, w, ids,
                      MERAK_PARAM(m, "gate", MERAK_NORMAL(1), 3, 5, 4),
                      MERAK_PARAM(m, "up", MERAK_NORMAL(1), 3, 5, 4),
                      MERAK_PARAM(m, "down", MERAK_NORMAL(1), 3, 4, 5));
    x = merak_linear(m, x, MERAK_PARAM(m, "head", MERAK_NORMAL(1), 9, 4), NULL,
                     1);
    merak_cross_entropy(m, x, merak_targets(m));
    return m;
}

static int count_nodes(const struct merak_graph *graph, const char *op)
{
    int n = 0;

    for (int i = 0; i < graph->n_nodes; i++)
        n += strcmp(graph->node[i]->op->name, op) == 0;
    return n;
}

static void only_what_is_asked_for_is_computed(void **state)
{
    static const struct {
        struct merak_balance_options as, own;
        bool frozen;
        int dx, count;
    } row[] = {{{-1, -1, -1}, {0.1f, 0, 1e-3f}, false, 1, 1},
               {{-1, -1, -1}, {0, 0, 1e-3f}, false, 0, 1},
               {{-1, 0.1f, -1}, {0, 0, 0}, false, 1, 0},
               {{0, 0, 0}, {0.1f, 0.1f, 1e-3f}, false, 0, 0},
               {{0, -1, 1e-3f}, {0, 0.1f, 0}, true, 1, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        struct merak_model *m =
            described(&row[i].as, &row[i].own, row[i].frozen);
        struct merak_graph *graph;
        struct merak_error err = {.text = ""};

        if (merak_model_graph(m, &graph, &err) != MERAK_OK)
            fail_msg("row %zu: %s", i, err.text);
        assert_int_equal(count_nodes(graph, "balance_dx"), row[i].dx);
        assert_int_equal(count_nodes(graph, "balance_count"), row[i].count);
        merak_model_destroy(m);
    }
}

/* The pool of a layer, on one of e ranks with 4096 tokens each, in bf16. */
static double pool_bytes(size_t E, size_t k, size_t F, size_t e, double room)
{
    const struct merak_model_options mo = {.micro_batch = e,
                                           .seq = 4096,
                                           .dtype = MERAK_BF16,
                                           .expert_room = room};
    const struct merak_route_options route = {.k = k};
    struct merak_model *m;
    struct merak_value *x, *w, *ids;
    double bytes;

    assert_int_equal(merak_model_create(&mo, &m, NULL), MERAK_OK);
    x = merak_embedding(m, merak_tokens(m),
                        MERAK_PARAM(m, "table", MERAK_NORMAL(1), 9, 4));
    merak_route(m,
                merak_linear(m, x,
                             MERAK_PARAM(m, "router", MERAK_NORMAL(1), E, 4),
                             NULL, 1),
                NULL, &route, &w, &ids);
    x = merak_experts(m, x, w, ids,
                      MERAK_PARAM(m, "gate", MERAK_NORMAL(1), E, F, 4),
                      MERAK_PARAM(m, "up", MERAK_NORMAL(1), E, F, 4),
                      MERAK_PARAM(m, "down", MERAK_NORMAL(1), E, 4, F));
    assert_int_equal(merak_model_status(m, NULL), MERAK_OK);
    bytes = (double)merak_value_bytes(
                merak_node_out(x->graph->node[x->producer], 1)) /
            (double)e;
    merak_model_destroy(m);
    return bytes;
}

static void pools_have_the_bytes_of_the_closed_form(void **state)
{
    static const struct {
        size_t E, k, F, e;
        double room, bytes;
    } row[] = {{8, 2, 14336, 8, 1, 469762048},
               {8, 2, 14336, 8, 1.25, 587202560},
               {8, 2, 14336, 8, 4, 1879048192},
               {128, 8, 768, 8, 1, 96 * 1048576.0},
               {128, 8, 768, 8, 1.25, 120 * 1048576.0},
               {128, 8, 768, 8, 8, 768 * 1048576.0}};

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        double bytes = pool_bytes(row[i].E, row[i].k, row[i].F, row[i].e,
                                  row[i].room);

        assert_near(&bytes, &row[i].bytes, 1, 0, 0);
    }
}

/* As Switch and GShard have it, rounded up. */
static void capacities_are_rounded_up(void **state)
{
    static const struct {
        size_t T, k, E;
        double x;
        int64_t rows;
    } row[] = {{4096, 2, 8, 1, 1024},  {4096, 8, 128, 1.25, 320},
               {1024, 8, 60, 1, 137},  {7, 2, 4, 1, 4},
               {4096, 8, 128, 1.1, 282}, {1000, 1, 10, 1.1, 110},
               {16, 2, 4, 100, 16}};

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        const struct merak_model_options mo = {
            .micro_batch = 1, .seq = row[i].T, .dtype = MERAK_F32};
        const struct merak_route_options route = {.k = row[i].k};
        size_t E = row[i].E;
        struct merak_value *x, *w, *ids;
        struct merak_model *m;
        struct merak_graph *graph;
        int found = 0;

        assert_int_equal(merak_model_create(&mo, &m, NULL), MERAK_OK);
        x = merak_embedding(m, merak_tokens(m),
                            MERAK_PARAM(m, "table", MERAK_NORMAL(1), 9, 4));
        w = MERAK_PARAM(m, "router", MERAK_NORMAL(1), E, 4);
        merak_route(m, merak_linear(m, x, w, NULL, 1), NULL, &route, &w, &ids);
        merak_expert_capacity(m, row[i].x);
        (void)merak_experts(m, x, w, ids,
                            MERAK_PARAM(m, "gate", MERAK_NORMAL(1), E, 5, 4),
                            MERAK_PARAM(m, "up", MERAK_NORMAL(1), E, 5, 4),
                            MERAK_PARAM(m, "down", MERAK_NORMAL(1), E, 4, 5));
        assert_int_equal(merak_model_status(m, NULL), MERAK_OK);
        graph = ids->graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            if (strcmp(graph->node[n]->op->name, "experts_capacity") != 0)
                continue;
            assert_int_equal(graph->node[n]->attrs.i[0], row[i].rows);
            found++;
        }
        assert_int_equal(found, 1);
        merak_model_destroy(m);
    }
}

/* As many rows as a rank can get: each token at most one of each expert. */
static void rooms_at_the_bound_have_every_row(void **state)
{
    static const struct {
        size_t E, k, e;
        double bound;
    } row[] = {{8, 2, 8, 4},    {8, 2, 4, 4},  {128, 8, 8, 8},
               {128, 8, 32, 16}, {60, 4, 4, 4}, {256, 8, 64, 32}};

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        size_t own = row[i].E / row[i].e;
        double most = 4096.0 * (double)row[i].e *
                      (double)(own < row[i].k ? own : row[i].k);
        double rows =
            pool_bytes(row[i].E, row[i].k, 1, row[i].e, row[i].bound) / 4;

        /* each expert's part is rounded up */
        assert_true(rows >= most && rows < most + (double)own);
    }
}

static void a_wrong_rate_is_named(void **state)
{
    struct merak_model *m = described(
        NULL, &(struct merak_balance_options){0, 0, -1e-3f}, false);
    struct merak_error err = {.text = ""};

    (void)state;
    assert_int_equal(merak_model_status(m, &err), MERAK_ERR_PARAM);
    assert_string_equal(err.text,
                        "balance: bias moves by -0.001, expected a parameter "
                        "and a positive number, or 0 for none");
    merak_model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_those_of_transformers),
        cmocka_unit_test(gradients_are_those_of_transformers),
        cmocka_unit_test(a_layer_has_its_own_product),
        cmocka_unit_test(gradients_are_differences),
        cmocka_unit_test(biases_move_by_the_sign_of_counts),
        cmocka_unit_test(counts_are_whole_numbers),
        cmocka_unit_test(only_what_is_asked_for_is_computed),
        cmocka_unit_test(rows_without_room_are_counted),
        cmocka_unit_test(pools_have_the_bytes_of_the_closed_form),
        cmocka_unit_test(capacities_are_rounded_up),
        cmocka_unit_test(rooms_at_the_bound_have_every_row),
        cmocka_unit_test(a_wrong_rate_is_named),
    };

    return cmocka_run_group_tests_name("balance", tests, NULL, NULL);
}
