/* SPDX-License-Identifier: Apache-2.0 */
/* test_balance.c - how evenly experts are loaded, against numbers of
 * transformers 5.24 and against differences
 */
#include "config.h"

#include "unit/near.h"

#include "kernels/kernels.h"
#include "partitioner/graph/graph.h"

#include <string.h>

#define NEAR 6e-7 /* numbers are given to six digits */

static struct merak_operand operand(void *data, enum merak_dtype dtype,
                                    int ndim, const size_t *dim)
{
    struct merak_operand op = {.data = data, .dtype = dtype};

    op.local.ndim = ndim;
    memcpy(op.local.dim, dim, (size_t)ndim * sizeof(*dim));
    op.full = op.local;
    return op;
}

#define OF(type, data, ...)                                          \
    operand((data), (type),                                          \
            (int)(sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t)), \
            (size_t[]){__VA_ARGS__})
#define F64(data, ...) OF(MERAK_F64, data, __VA_ARGS__)
#define F32(data, ...) OF(MERAK_F32, data, __VA_ARGS__)

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
    call.operand[1] = OF(MERAK_I32, r->ids, r->B, r->T, r->K);
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

/* --- descriptions ---------------------------------------------------------- */

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
        cmocka_unit_test(gradients_are_differences),
        cmocka_unit_test(biases_move_by_the_sign_of_counts),
        cmocka_unit_test(counts_are_whole_numbers),
        cmocka_unit_test(only_what_is_asked_for_is_computed),
        cmocka_unit_test(a_wrong_rate_is_named),
    };

    return cmocka_run_group_tests_name("balance", tests, NULL, NULL);
}
