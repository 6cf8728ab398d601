/* SPDX-License-Identifier: Apache-2.0 */
/* test_experts.c - routing and experts against numbers of transformers 5.24, in
 * f64, and against what the formulas give by hand
 */
#include "config.h"

#include "unit/near.h"
#include "unit/kernels/raw_call.h"

#include "base/half.h"
#include "kernels/kernels.h"

#include <string.h>

#define NEAR 6e-7 /* numbers are given to six digits */
/* Transformers has a softmax in f32 also where all else is f64. */
#define BLOCK 6e-7

static enum merak_status run(const char *op, struct merak_kernel_call *call,
                             struct merak_error *err)
{
    const struct merak_backend *b;
    const struct merak_kernel *k;

    assert_int_equal(merak_backend_find("ref", &b, NULL), MERAK_OK);
    assert_int_equal(merak_kernel_find(b, op, &k, NULL), MERAK_OK);
    return k->fn(call, err);
}

static void check(const char *op, struct merak_kernel_call *call)
{
    struct merak_error err = {.text = ""};

    assert_int_equal(run(op, call, &err), MERAK_OK);
}

/* --- routing ---------------------------------------------------------------
 */

static double logits[12] = {0.9,  -0.3, 0.4, 1.1, 0.2, 0.2,
                            -0.5, 0.1,  -1,  2,   0,   0.5};

static void a_softmax_chooses_and_weighs(void **state)
{
    static const int32_t chosen[] = {3, 0, 0, 1, 1, 3};
    static const double normal[] = {0.549834, 0.450166, 0.5,
                                    0.5,      0.817574, 0.182426};
    static const double plain[] = {0.390333, 0.319578, 0.293995,
                                   0.293995, 0.710100, 0.158445};
    double w[6];
    int32_t ids[6];
    struct merak_attrs attrs = {.i = {2, 0, 1}};
    struct merak_kernel_call call = {.attrs = &attrs, .n_in = 1, .n_out = 2};

    (void)state;
    call.operand[0] = F64(logits, 1, 3, 4);
    call.operand[1] = F64(w, 1, 3, 2);
    call.operand[2] = I32(ids, 1, 3, 2);
    check("route", &call);
    assert_memory_equal(ids, chosen, sizeof(ids));
    assert_near(w, normal, 6, 0, NEAR);
    attrs.i[2] = 0;
    check("route", &call);
    assert_memory_equal(ids, chosen, sizeof(ids));
    assert_near(w, plain, 6, 0, NEAR);
}

static void sigmoids_choose_in_groups_by_bias(void **state)
{
    double z[] = {0.3, -0.2, 1, 0.4, -1, 2, 0.6, 0.5};
    double bias[] = {0, 0.3, -0.4, 0, 0.1, -0.5, 0, 0.05}, w[3];
    static const double want[] = {0.654965, 0.905642, 0.939392};
    int32_t ids[3];
    struct merak_attrs attrs = {.i = {3, 1, 1, 4}, .f = {2.5, 2}};
    struct merak_kernel_call call = {.attrs = &attrs, .n_in = 2, .n_out = 2};

    (void)state;
    call.operand[0] = F64(z, 1, 1, 8);
    call.operand[1] = F64(bias, 8);
    call.operand[2] = F64(w, 1, 1, 3);
    call.operand[3] = I32(ids, 1, 1, 3);
    check("route", &call);
    assert_memory_equal(ids, ((int32_t[]){1, 7, 6}), sizeof(ids));
    assert_near(w, want, 3, 0, NEAR);
}

static void equal_and_missing_numbers_choose_the_first(void **state)
{
    double z[] = {1, 1, 1, 1, NAN, NAN, NAN, NAN}, w[4];
    int32_t ids[4];
    struct merak_attrs attrs = {.i = {2, 0, 1}};
    struct merak_kernel_call call = {.attrs = &attrs, .n_in = 1, .n_out = 2};

    (void)state;
    call.operand[0] = F64(z, 1, 2, 4);
    call.operand[1] = F64(w, 1, 2, 2);
    call.operand[2] = I32(ids, 1, 2, 2);
    check("route", &call);
    assert_memory_equal(ids, ((int32_t[]){0, 1, 0, 1}), sizeof(ids));
    assert_true(isnan(w[2])); /* the loss will say so */
}

/* Of six tokens each of four experts takes three rows. */
static void later_rows_are_dropped(void **state)
{
    int32_t ids[] = {0, 1, 0, 2, 0, 1, 0, 3, 1, 2, 0, 1}, kept[12];
    static const int32_t want[] = {0, 1, 0, 2, 0, 1, -1, 3, 1, 2, -1, -1};
    struct merak_attrs attrs = {.i = {3, 4}};
    struct merak_kernel_call call = {.attrs = &attrs, .n_in = 1, .n_out = 1};
    double dropped = 0;

    (void)state;
    call.operand[0] = I32(ids, 1, 6, 2);
    call.operand[1] = I32(kept, 1, 6, 2);
    check("experts_capacity", &call);
    assert_memory_equal(kept, want, sizeof(want));
    call.operand[0] = call.operand[1];
    call.operand[1] = F64(&dropped, 1);
    check("experts_dropped", &call);
    assert_near(&dropped, &(double){3}, 1, 0, 0);
}

static void gradients_reach_the_logits(void **state)
{
    double dw[] = {1, -2, 0.5, 3, 2, 1}, dz[12];
    int32_t ids[] = {3, 0, 1, 0, 1, 3};
    static const double normal[] = {-0.74254972, 0,          0, 0.74254972,
                                    0.625,       -0.625,     0, 0,
                                    0,           0.14914645, 0, -0.14914645};
    static const double plain[] = {-0.55963762, 0.02395041, 0.04823020,
                                   0.48745701};
    struct merak_attrs attrs = {.i = {2, 0, 1}};
    struct merak_kernel_call call = {.attrs = &attrs, .n_in = 3, .n_out = 1};

    (void)state;
    call.operand[0] = F64(dw, 1, 3, 2);
    call.operand[1] = F64(logits, 1, 3, 4);
    call.operand[2] = I32(ids, 1, 3, 2);
    call.operand[3] = F64(dz, 1, 3, 4);
    check("route_dx", &call);
    assert_near(dz, normal, 12, 0, 6e-9);
    attrs.i[2] = 0;
    check("route_dx", &call);
    assert_near(dz, plain, 4, 0, 6e-9);
}

/* --- a block of transformers ------------------------------------------------
 */

enum { T = 5, C = 4, F = 3, E = 4, K = 2 };

/* The block of a family, and its gradients. */
struct block {
    double x[T * C], router[E * C], gate[E * F * C], up[E * F * C];
    double down[E * C * F], z[T * E], w[T * K], y[T * C], pool[T * K * 2 * F];
    double dy[T * C], dw[T * K], dz[T * E], dx[T * C], more[T * C];
    double dpool[T * K * 2 * F], drouter[E * C];
    double dgate[E * F * C], dup[E * F * C], ddown[E * C * F];
    double bias[E];
    bool biased;
    int32_t ids[T * K];
};

static void fill(struct block *b)
{
    b->biased = false;
    for (int j = 0; j < T * C; j++) {
        b->x[j] = cos(0.5 * j);
        b->dy[j] = sin(0.3 * j);
    }
    for (int j = 0; j < E * C; j++)
        b->router[j] = sin(0.1 + 0.7 * j);
    for (int n = 0; n < E; n++) {
        for (int j = 0; j < F * C; j++) {
            b->gate[n * F * C + j] = sin(1 + n + 0.7 * j);
            b->up[n * F * C + j] = sin(2 + n + 0.7 * j);
            b->down[n * F * C + j] = sin(3 + n + 0.7 * j);
        }
    }
}

static void forward(struct block *b, struct merak_attrs *route)
{
    struct merak_attrs one = {.i = {1}};
    struct merak_kernel_call call = {.attrs = &one, .n_in = 2, .n_out = 1};

    call.operand[0] = F64(b->x, 1, T, C);
    call.operand[1] = F64(b->router, E, C);
    call.operand[2] = F64(b->z, 1, T, E);
    check("linear", &call);
    call = (struct merak_kernel_call){
        .attrs = route, .n_in = b->biased ? 2 : 1, .n_out = 2};
    call.operand[0] = F64(b->z, 1, T, E);
    call.operand[1] = F64(b->bias, E);
    call.operand[call.n_in] = F64(b->w, 1, T, K);
    call.operand[call.n_in + 1] = I32(b->ids, 1, T, K);
    check("route", &call);
    call = (struct merak_kernel_call){.attrs = &one, .n_in = 6, .n_out = 2};
    call.operand[0] = F64(b->x, 1, T, C);
    call.operand[1] = F64(b->w, 1, T, K);
    call.operand[2] = I32(b->ids, 1, T, K);
    call.operand[3] = F64(b->gate, E, F, C);
    call.operand[4] = F64(b->up, E, F, C);
    call.operand[5] = F64(b->down, E, C, F);
    call.operand[6] = F64(b->y, 1, T, C);
    call.operand[7] = F64(b->pool, 1, T, K, 2, F);
    check("experts", &call);
}

static void experts_back(struct block *b)
{
    struct merak_attrs none = {.i = {0}};
    struct merak_kernel_call call = {.attrs = &none, .n_in = 7, .n_out = 3};

    call.operand[0] = F64(b->dy, 1, T, C);
    call.operand[1] = F64(b->w, 1, T, K);
    call.operand[2] = I32(b->ids, 1, T, K);
    call.operand[3] = F64(b->gate, E, F, C);
    call.operand[4] = F64(b->up, E, F, C);
    call.operand[5] = F64(b->down, E, C, F);
    call.operand[6] = F64(b->pool, 1, T, K, 2, F);
    call.operand[7] = F64(b->dx, 1, T, C);
    call.operand[8] = F64(b->dw, 1, T, K);
    call.operand[9] = F64(b->dpool, 1, T, K, 2, F);
    check("experts_dx", &call);
    call = (struct merak_kernel_call){.attrs = &none, .n_in = 6, .n_out = 3};
    call.operand[0] = F64(b->x, 1, T, C);
    call.operand[1] = F64(b->w, 1, T, K);
    call.operand[2] = I32(b->ids, 1, T, K);
    call.operand[3] = F64(b->dy, 1, T, C);
    call.operand[4] = F64(b->pool, 1, T, K, 2, F);
    call.operand[5] = F64(b->dpool, 1, T, K, 2, F);
    call.operand[6] = F64(b->dgate, E, F, C);
    call.operand[7] = F64(b->dup, E, F, C);
    call.operand[8] = F64(b->ddown, E, C, F);
    check("experts_dw", &call);
}

static void backward(struct block *b, struct merak_attrs *route)
{
    struct merak_attrs one = {.i = {1}};
    struct merak_kernel_call call = {.attrs = route, .n_in = 3, .n_out = 1};

    experts_back(b);
    call.operand[0] = F64(b->dw, 1, T, K);
    call.operand[1] = F64(b->z, 1, T, E);
    call.operand[2] = I32(b->ids, 1, T, K);
    call.operand[3] = F64(b->dz, 1, T, E);
    check("route_dx", &call);
    call = (struct merak_kernel_call){.attrs = &one, .n_in = 2, .n_out = 1};
    call.operand[0] = F64(b->dz, 1, T, E);
    call.operand[1] = F64(b->router, E, C);
    call.operand[2] = F64(b->more, 1, T, C);
    check("linear_dx", &call);
    call.operand[0] = F64(b->x, 1, T, C);
    call.operand[1] = F64(b->dz, 1, T, E);
    call.operand[2] = F64(b->drouter, E, C);
    check("linear_dw", &call);
    for (int j = 0; j < T * C; j++)
        b->dx[j] += b->more[j];
}

static double norm(const double *x, int n, double more)
{
    double sum = more;

    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

static double loss(const struct block *b)
{
    double sum = 0;

    for (int j = 0; j < T * C; j++)
        sum += b->y[j] * b->dy[j];
    return sum;
}

static void near_to(double got, double want)
{
    assert_near(&got, &want, 1, 0, BLOCK);
}

static void a_mixtral_block_is_that_of_transformers(void **state)
{
    static const double y[] = {-1.084946312, -0.291639751, 1.379412696,
                               -1.101142501};
    static const double dx[] = {0.084820602, -0.235783521, -0.445494970,
                                -0.445683174};
    static const int pairs[T][K] = {{0, 3}, {1, 3}, {0, 2}, {0, 2}, {1, 3}};
    struct merak_attrs route = {.i = {K, 0, 1}};
    struct block b;
    double up;

    (void)state;
    fill(&b);
    forward(&b, &route);
    backward(&b, &route);
    for (int t = 0; t < T; t++) {
        int a = b.ids[t * K], c = b.ids[t * K + 1];

        assert_int_equal(a < c ? a : c, pairs[t][0]);
        assert_int_equal(a < c ? c : a, pairs[t][1]);
    }
    assert_near(b.y, y, C, 0, BLOCK);
    near_to(loss(&b), 2.231474519);
    assert_near(b.dx, dx, C, 0, BLOCK);
    near_to(norm(b.drouter, E * C, 0), 0.370792689);
    up = norm(b.dup, E * F * C, 0);
    near_to(norm(b.dgate, E * F * C, up * up), 1.741136219);
    near_to(norm(b.ddown, E * C * F, 0), 3.614093382);
}

/* Add the MLP that all tokens have: the only one of its experts, which is
 * chosen with a sigmoid as its weight, or 1. */
static void add_shared(struct block *b, bool gated)
{
    struct merak_attrs one = {.i = {1}}, route = {.i = {1, 1, 0}};
    struct merak_kernel_call call = {.attrs = &one, .n_in = 2, .n_out = 1};
    double router[C], z[T], w[T], y[T * C], pool[T * 2 * F];
    double gate[F * C], up[F * C], down[C * F];
    int32_t ids[T];

    for (int j = 0; j < F * C; j++) {
        gate[j] = sin(4 + 0.7 * j);
        up[j] = sin(5 + 0.7 * j);
        down[j] = sin(6 + 0.7 * j);
    }
    for (int j = 0; j < C; j++)
        router[j] = sin(7 + 0.7 * j);
    call.operand[0] = F64(b->x, 1, T, C);
    call.operand[1] = F64(router, 1, C);
    call.operand[2] = F64(z, 1, T, 1);
    check("linear", &call);
    call = (struct merak_kernel_call){.attrs = &route, .n_in = 1, .n_out = 2};
    call.operand[0] = F64(z, 1, T, 1);
    call.operand[1] = F64(w, 1, T, 1);
    call.operand[2] = I32(ids, 1, T, 1);
    check("route", &call);
    for (int t = 0; t < T && !gated; t++)
        w[t] = 1;
    call = (struct merak_kernel_call){.attrs = &one, .n_in = 6, .n_out = 2};
    call.operand[0] = F64(b->x, 1, T, C);
    call.operand[1] = F64(w, 1, T, 1);
    call.operand[2] = I32(ids, 1, T, 1);
    call.operand[3] = F64(gate, 1, F, C);
    call.operand[4] = F64(up, 1, F, C);
    call.operand[5] = F64(down, 1, C, F);
    call.operand[6] = F64(y, 1, T, C);
    call.operand[7] = F64(pool, 1, T, 1, 2, F);
    check("experts", &call);
    for (int j = 0; j < T * C; j++)
        b->y[j] += y[j];
}

static void a_qwen2_moe_block_is_that_of_transformers(void **state)
{
    struct merak_attrs route = {.i = {K, 0, 0}};
    struct block b;

    (void)state;
    fill(&b);
    forward(&b, &route);
    add_shared(&b, true);
    near_to(b.y[0], 0.537964151);
    near_to(loss(&b), 1.266484186);
}

/* Of two groups one is kept, by scores with biases. */
static void a_glm4_moe_block_is_that_of_transformers(void **state)
{
    static const double bias[E] = {0.3, -0.2, 0.1, 0};
    static const int first[T] = {2, 0, 2, 2, 0};
    struct merak_attrs route = {.i = {K, 1, 1, 2}, .f = {2.5, 1}};
    struct block b;

    (void)state;
    fill(&b);
    b.biased = true;
    memcpy(b.bias, bias, sizeof(bias));
    forward(&b, &route);
    backward(&b, &route);
    add_shared(&b, false);
    for (int t = 0; t < T; t++) /* a group is chosen whole */
        assert_int_equal(b.ids[t * K] / 2 * 2, first[t]);
    near_to(b.y[0], 3.089588415);
    near_to(loss(&b), 1.990989881);
    near_to(norm(b.drouter, E * C, 0), 0.940478610);
}

/* The balance of a block's router, as load_balancing_loss_func() has it. */
static void the_auxiliary_loss_is_that_of_transformers(void **state)
{
    struct merak_attrs route = {.i = {K, 0, 1}}, none = {.i = {0}};
    struct merak_attrs sizes = {.i = {E, T}};
    struct merak_kernel_call call = {.attrs = &none, .n_in = 2, .n_out = 1};
    double load[2 * E + 1], tally[2 + E];
    struct block b;

    (void)state;
    fill(&b);
    forward(&b, &route);
    call.operand[0] = F64(b.z, 1, T, E);
    call.operand[1] = I32(b.ids, 1, T, K);
    call.operand[2] = F64(load, 1, 2 * E + 1);
    check("route_load", &call);
    call = (struct merak_kernel_call){.attrs = &sizes, .n_in = 1, .n_out = 1};
    call.operand[0] = F64(load, 1, 2 * E + 1);
    call.operand[1] = F64(tally, 2 + E);
    check("balance", &call);
    near_to(tally[0], 1.993346214);
}

static void an_olmoe_block_is_that_of_transformers(void **state)
{
    struct merak_attrs route = {.i = {K, 0, 0}};
    struct block b;

    (void)state;
    fill(&b);
    forward(&b, &route);
    backward(&b, &route);
    near_to(b.y[0], -0.859380015);
    near_to(loss(&b), 1.953160195);
    near_to(norm(b.drouter, E * C, 0), 0.653094764);
}

/* Glm4MoeTopkRouter's logits of bf16, and its weights; with a matrix in bf16,
 * logits differ by up to 0.005. */
static void a_router_in_fp32_is_that_of_transformers(void **state)
{
    static const float want[] = {
        1.32527649f, -0.711447954f, 0.0154078007f, 0.682412803f, -2.3597486f,
        2.05925179f, -1.52079737f,  0.806607008f,  0.637682915f, -1.00017905f,
        1.2470994f,  -1.34991062f,  1.82799423f,   -1.22445154f, 0.479417056f,
        0.32101661f, -2.15927553f,  2.02042365f,   -1.64810109f, 1.08533168f};
    static const int32_t chosen[] = {0, 3, 1, 3, 2, 0, 0, 2, 1, 3};
    static const float weights[] = {
        0.543243587f, 0.456756443f, 0.561932862f, 0.438067079f, 0.542825103f,
        0.457174838f, 0.582451105f, 0.417548835f, 0.541530013f, 0.458470017f};
    struct merak_attrs one = {.i = {1}}, route = {.i = {K, 1, 1}};
    struct merak_kernel_call call = {.attrs = &one, .n_in = 1, .n_out = 1};
    uint16_t x[T * C];
    float wide[T * C], router[E * C], z[T * E], w[T * K];
    int32_t ids[T * K];

    (void)state;
    for (int j = 0; j < T * C; j++)
        x[j] = merak_f32_to_bf16((float)cos(0.5 * j));
    for (int j = 0; j < E * C; j++)
        router[j] = (float)sin(0.1 + 0.7 * j);
    call.operand[0] = RAW(MERAK_BF16, x, 1, T, C);
    call.operand[1] = F32(wide, 1, T, C);
    check("widen", &call);
    call.n_in = 2;
    call.operand[0] = call.operand[1];
    call.operand[1] = F32(router, E, C);
    call.operand[2] = F32(z, 1, T, E);
    check("linear", &call);
    call = (struct merak_kernel_call){.attrs = &route, .n_in = 1, .n_out = 2};
    call.operand[0] = F32(z, 1, T, E);
    call.operand[1] = F32(w, 1, T, K);
    call.operand[2] = I32(ids, 1, T, K);
    check("route", &call);
    assert_memory_equal(ids, chosen, sizeof(ids));
    for (int j = 0; j < T * E; j++) /* rounding of sums of four */
        assert_true(fabsf(z[j] - want[j]) <= 4e-7f);
    for (int j = 0; j < T * K; j++)
        assert_true(fabsf(w[j] - weights[j]) <= 4e-7f);
}

static void an_expert_that_does_not_exist_is_named(void **state)
{
    struct merak_attrs none = {.i = {0}};
    struct merak_kernel_call call = {.attrs = &none, .n_in = 6, .n_out = 2};
    struct merak_error err;
    struct block b = {.ids = {0, 1, 2, 3, 4}};

    (void)state;
    call.operand[0] = F64(b.x, 1, T, C);
    call.operand[1] = F64(b.w, 1, T, K);
    call.operand[2] = I32(b.ids, 1, T, K);
    call.operand[3] = call.operand[4] = F64(b.gate, E, F, C);
    call.operand[5] = F64(b.down, E, C, F);
    call.operand[6] = F64(b.y, 1, T, C);
    call.operand[7] = F64(b.pool, 1, T, K, 2, F);
    assert_int_equal(run("experts", &call, &err), MERAK_ERR_PARAM);
    assert_string_equal(err.text, "expert 4 of token 2, expected 0 to 3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_softmax_chooses_and_weighs),
        cmocka_unit_test(sigmoids_choose_in_groups_by_bias),
        cmocka_unit_test(equal_and_missing_numbers_choose_the_first),
        cmocka_unit_test(later_rows_are_dropped),
        cmocka_unit_test(gradients_reach_the_logits),
        cmocka_unit_test(a_mixtral_block_is_that_of_transformers),
        cmocka_unit_test(an_olmoe_block_is_that_of_transformers),
        cmocka_unit_test(a_qwen2_moe_block_is_that_of_transformers),
        cmocka_unit_test(a_glm4_moe_block_is_that_of_transformers),
        cmocka_unit_test(the_auxiliary_loss_is_that_of_transformers),
        cmocka_unit_test(a_router_in_fp32_is_that_of_transformers),
        cmocka_unit_test(an_expert_that_does_not_exist_is_named),
    };

    return cmocka_run_group_tests_name("experts", tests, NULL, NULL);
}
