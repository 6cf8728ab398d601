/* SPDX-License-Identifier: Apache-2.0 */
/* test_kernels_ref.c - the reference kernels against formulas, their gradients
 * against finite differences, shards against the whole; the registry */
#include "config.h"

#include "unit/near.h"

#include "unit/kernels/kcase.h"

#include "base/rng.h"

#include <string.h>
#include <time.h>

#define STEP 1e-4 /* of central differences: error about STEP^2, 1e-8 */

/* Gradients of outputs 0 and 1; NULL: the loss does not depend on it. */
struct incoming {
    const double *dy[2];
};

/* sum over elements of these outputs times dy */
static double dotted(const struct kc *f, const struct incoming *in)
{
    double sum = 0;

    for (int k = 0; k < 2; k++) {
        int o = f->call.n_in + k;

        for (size_t i = 0; in->dy[k] != NULL && i < kc_count(f, o); i++)
            sum += in->dy[k][i] * kc_get(f, o, i);
    }
    return sum;
}

static double difference(const struct kc *forward, int operand, size_t i,
                         const struct incoming *in)
{
    struct kc c;
    double x = kc_get(forward, operand, i), up, down;

    kc_copy(&c, forward);
    kc_set(&c, operand, i, x + STEP);
    kc_run(&c, "ref");
    up = dotted(&c, in);
    kc_set(&c, operand, i, x - STEP);
    kc_run(&c, "ref");
    down = dotted(&c, in);
    kc_destroy(&c);
    return (up - down) / (2 * STEP);
}

/* Every output of one gradient kernel. */
static void check_gradient(const struct kc_grad *grad, const struct kc *forward)
{
    struct incoming in = {{NULL, NULL}};
    struct kc g, first;

    kc_create_grad(&g, grad, forward, MERAK_F64, 5);
    kc_run(&g, "ref");
    for (int o = 0; o < grad->n_in; o++) {
        if (grad->from[o] == KC_DY)
            in.dy[0] = g.call.operand[o].data;
        if (grad->from[o] == KC_DY_OF(1))
            in.dy[1] = g.call.operand[o].data;
    }
    kc_create_before(&first, grad, forward, MERAK_F64);
    if (first.call.n_in > 0)
        in.dy[0] = first.call.operand[0].data;
    for (int o = grad->n_in; o < grad->n_in + grad->n_out; o++) {
        int of = -2 - grad->from[o]; /* else for another gradient */
        for (size_t i = 0; of < forward->call.n_in && i < kc_count(&g, o);
             i++) {
            double got = kc_get(&g, o, i);
            double want = difference(forward, of, i, &in);

            if (fabs(got - want) > 1e-6 * (1 + fabs(want)))
                print_error("%s output %d element %zu: %g, difference %g\n",
                            grad->op, o - grad->n_in, i, got, want);
            assert_true(fabs(got - want) <= 1e-6 * (1 + fabs(want)));
        }
    }
    kc_destroy(&first);
    kc_destroy(&g);
}

static void gradients_match_finite_differences(void **state)
{
    struct kc_row row[KC_MAX_ROWS];
    int seen = 0;

    (void)state;
    for (int size = 0; size < 2; size++) {
        int n = kc_rows(size, row, KC_MAX_ROWS);

        for (int r = 0; r < n; r++) {
            struct kc f;

            kc_create(&f, &row[r], MERAK_F64, 1);
            kc_run(&f, "ref");
            for (int g = 0; g < kc_n_grads; g++) {
                if (!kc_grad_fits(&kc_grads[g], &f))
                    continue;
                check_gradient(&kc_grads[g], &f);
                seen++;
            }
            kc_destroy(&f);
        }
    }
    /* of fourteen ops there are two rows that have the same gradients, of one
     * of these two more, of attention eight more, and seven convolutions and
     * five poolings of two kinds */
    assert_int_equal(seen, 2 * (kc_n_grads + 16 + 2 + 8 + 2 * 6 + 3));
}

/* One f64 operand over the caller's numbers. */
static struct merak_operand over(double *data, int ndim, const size_t *dim)
{
    struct merak_operand op = {.data = data, .dtype = MERAK_F64};

    op.local.ndim = ndim;
    memcpy(op.local.dim, dim, (size_t)ndim * sizeof(*dim));
    op.full = op.local;
    return op;
}

static void run_ref(const char *op, struct merak_kernel_call *call)
{
    const struct merak_backend *b;
    const struct merak_kernel *k;

    assert_int_equal(merak_backend_find("ref", &b, NULL), MERAK_OK);
    assert_int_equal(merak_kernel_find(b, op, &k, NULL), MERAK_OK);
    assert_int_equal(k->fn(call, NULL), MERAK_OK);
}

static void linear_is_x_w_transposed_plus_bias(void **state)
{
    double x[] = {1, 2, 3, 4, 5, 6}, w[] = {1, 0, -1, 2, 2, 2}, b[] = {10, 20};
    double y[4], want[] = {8, 32, 8, 50}, no_bias[] = {-2, 12, -2, 30};
    struct merak_attrs attrs = {.i = {1}};
    struct merak_kernel_call call = {
        .attrs = &attrs, .n_in = 3, .n_out = 1, .first = true};

    (void)state;
    call.operand[0] = over(x, 2, (size_t[]){2, 3});
    call.operand[1] = over(w, 2, (size_t[]){2, 3});
    call.operand[2] = over(b, 1, (size_t[]){2});
    call.operand[3] = over(y, 2, (size_t[]){2, 2});
    run_ref("linear", &call);
    assert_near(y, want, 4, 0, 0);
    call.first = false; /* a later shard of the contracted dim */
    run_ref("linear", &call);
    assert_near(y, no_bias, 4, 0, 0);
}

static void attention_is_causal_softmax(void **state)
{
    double q[] = {1, 0, 0, 2}, k[] = {1, 1, 3, -1}, v[] = {5, 6, 7, 8};
    double o[4], lse[2], s = 1 / sqrt(2), a = exp(2 * s), b = exp(-2 * s);
    double want_o[] = {5, 6, (5 * a + 7 * b) / (a + b),
                       (6 * a + 8 * b) / (a + b)};
    double want_lse[] = {s, log(a + b)};
    struct merak_attrs attrs = {.i = {0}};
    struct merak_kernel_call call = {.attrs = &attrs, .n_in = 3, .n_out = 2};

    (void)state;
    call.operand[0] = over(q, 5, (size_t[]){1, 2, 1, 1, 2});
    call.operand[1] = over(k, 4, (size_t[]){1, 2, 1, 2});
    call.operand[2] = over(v, 4, (size_t[]){1, 2, 1, 2});
    call.operand[3] = over(o, 5, (size_t[]){1, 2, 1, 1, 2});
    call.operand[4] = over(lse, 4, (size_t[]){1, 2, 1, 1});
    run_ref("attention", &call);
    assert_near(o, want_o, 4, 1e-14, 0);
    assert_near(lse, want_lse, 2, 1e-14, 0);
    attrs.i[1] = 1; /* each query sees its own key */
    run_ref("attention", &call);
    assert_near(o, v, 4, 1e-14, 0);
    attrs = (struct merak_attrs){.f = {0, 0.25, 1.5}};
    a = exp(1.5 * tanh(2 * 0.25 / 1.5));
    b = exp(1.5 * tanh(-2 * 0.25 / 1.5));
    run_ref("attention", &call);
    assert_near(o + 2, ((double[]){(5 * a + 7 * b) / (a + b)}), 1, 1e-14, 0);
}

/* A rank of context parallelism has some of the queries, from first on, and all
 * keys; what keys have of their gradients is summed over ranks. */
static void attention_is_divided_by_queries(void **state)
{
    enum { T = 4, D = 2, RANKS = 2, PART = T / RANKS };
    double q[] = {1, 0, 0, 1, 1, 1, 2, -1}, k[] = {1, 1, 0, 2, 1, 0, -1, 1};
    double v[] = {1, 0, 0, 1, 2, 2, -1, 3}, d_o[] = {1, 0, 0, 1, 1, -1, .5, .5};
    double o[T * D], lse[T], dq[T * D], dk[RANKS][T * D], dv[RANKS][T * D];
    const double want_o[] = {1.558147111, 1.357434638};
    const double want_lse[] = {0.707106781, 1.815047089, 2.327727920,
                               1.872472006};
    const double want_dq[] = {0.037245962, -0.267770196};
    const double want_dk[RANKS][T * D] = {
        {0, -0.156398597, 0, 0.156398597, 0, 0, 0, 0},
        {-0.138722386, 0.494804814, -0.334257724, -0.258314759, 0.484911750,
         -0.242455875, -0.011931640, 0.005965820}};
    const double want_dv[] = {0.557016473, -0.245207712};
    struct merak_attrs attrs = {.i = {0}};

    (void)state;
    for (size_t r = 0; r < RANKS; r++) {
        const size_t first = r * PART;
        struct merak_kernel_call f = {.attrs = &attrs, .n_in = 3, .n_out = 2};
        struct merak_kernel_call b = {.attrs = &attrs, .n_in = 6, .n_out = 3};

        f.operand[0] = over(q + first * D, 5, (size_t[]){1, PART, 1, 1, D});
        f.operand[0].lo[1] = first;
        f.operand[0].full.dim[1] = T;
        f.operand[1] = over(k, 4, (size_t[]){1, T, 1, D});
        f.operand[2] = over(v, 4, (size_t[]){1, T, 1, D});
        f.operand[3] = f.operand[0];
        f.operand[3].data = o + first * D;
        f.operand[4] = over(lse + first, 4, (size_t[]){1, PART, 1, 1});
        f.operand[4].lo[1] = first;
        f.operand[4].full.dim[1] = T;
        run_ref("attention", &f);

        b.operand[0] = f.operand[0];
        b.operand[0].data = d_o + first * D;
        memcpy(b.operand + 1, f.operand, 5 * sizeof(*b.operand));
        b.operand[6] = f.operand[0];
        b.operand[6].data = dq + first * D;
        b.operand[7] = over(dk[r], 4, (size_t[]){1, T, 1, D});
        b.operand[8] = over(dv[r], 4, (size_t[]){1, T, 1, D});
        run_ref("attention_dx", &b);
        assert_near(dk[r], want_dk[r], T * D, 0, 5e-10);
    }
    assert_near(o + 3 * D, want_o, D, 0, 5e-10);
    assert_near(lse, want_lse, T, 0, 5e-10);
    assert_near(dq + 3 * D, want_dq, D, 0, 5e-10);
    assert_near(dv[1], want_dv, D, 0, 5e-10);
}

/* Each probability is dropped or grows, by the numbers that op.h's step and
 * the op's stream give; evaluation drops nothing. */
static void attention_drops_probabilities(void **state)
{
    enum { T = 6, D = 2 };
    double q[T * D] = {0}, v[T * D] = {0}, o[T * D], lse[T];
    struct merak_step step = {.seed = 3, .step = 5, .sample = 8, .train = true};
    struct merak_attrs attrs = {.i = {4}, .f = {0.5}};
    struct merak_kernel_call call = {
        .attrs = &attrs, .step = &step, .n_in = 3, .n_out = 2};
    uint64_t key = merak_rng_mix(merak_rng_key(3, "dropout"), 5);

    (void)state;
    key = merak_rng_mix(merak_rng_mix(key, 8), 4);
    call.operand[0] = over(q, 5, (size_t[]){1, T, 1, 1, D});
    call.operand[1] = over(q, 4, (size_t[]){1, T, 1, D});
    call.operand[2] = over(v, 4, (size_t[]){1, T, 1, D});
    call.operand[3] = over(o, 5, (size_t[]){1, T, 1, 1, D});
    call.operand[4] = over(lse, 4, (size_t[]){1, T, 1, 1});
    for (size_t j = 0; j < T; j++) { /* all see alike; one value is not 0 */
        memset(v, 0, sizeof(v));
        v[j * D] = 1;
        step.train = true;
        run_ref("attention", &call);
        for (size_t i = j; i < T; i++) {
            bool kept = merak_rng_uniform(key, j * 8 + i) >= 0.5f;
            double want = kept ? 2.0 / (double)(i + 1) : 0;

            assert_near(o + i * D, &want, 1, 1e-14, 0);
        }
        step.train = false;
        run_ref("attention", &call);
        for (size_t i = j; i < T; i++)
            assert_near(o + i * D, ((double[]){1.0 / (double)(i + 1)}), 1,
                        1e-14, 0);
    }
}

static void norms_scale_to_unit_variance(void **state)
{
    double x[] = {1, 3, 5, 7}, g[] = {1, 1, 2, 1}, b[] = {0, 0, 0, 9};
    double y[4], mean[1], rstd[1], r = 1 / sqrt(5.5);
    double want[] = {-3 * r, -r, 2 * r, 9 + 3 * r};
    double rms = 1 / sqrt(21.5), want_rms[] = {rms, 3 * rms, 10 * rms, 7 * rms};
    struct merak_attrs attrs = {.f = {0.5}};
    struct merak_kernel_call call = {.attrs = &attrs, .n_in = 3, .n_out = 3};

    (void)state;
    call.operand[0] = call.operand[3] = over(x, 2, (size_t[]){1, 4});
    call.operand[1] = over(g, 1, (size_t[]){4});
    call.operand[2] = over(b, 1, (size_t[]){4});
    call.operand[3].data = y;
    call.operand[4] = over(mean, 1, (size_t[]){1});
    call.operand[5] = over(rstd, 1, (size_t[]){1});
    run_ref("layernorm", &call);
    assert_near(y, want, 4, 1e-14, 0);
    assert_near(mean, ((double[]){4}), 1, 0, 0);
    assert_near(rstd, &r, 1, 1e-15, 0);
    call.n_in = call.n_out = 2;
    call.operand[2] = call.operand[3];
    call.operand[3] = call.operand[5];
    run_ref("rmsnorm", &call);
    assert_near(y, want_rms, 4, 1e-14, 0);
}

static void pointwise_ops_match_published_values(void **state)
{
    /* Phi(1) and -2 Phi(-2); the tanh form of the same */
    double x[] = {1, -2}, y[2];
    double erf_form[] = {0.8413447460685429, -0.04550026389635842};
    double tanh_form[] = {0.8411919906082768, -0.045402305912224854};
    double up[] = {3, 5}, silu[] = {3 / (1 + exp(-1.0)), -10 / (1 + exp(2.0))};
    struct merak_attrs attrs = {.i = {0}};
    struct merak_kernel_call call = {.attrs = &attrs, .n_in = 1, .n_out = 1};

    (void)state;
    call.operand[0] = over(x, 1, (size_t[]){2});
    call.operand[1] = over(y, 1, (size_t[]){2});
    run_ref("gelu", &call);
    assert_near(y, erf_form, 2, 1e-13, 0);
    attrs.i[0] = 1;
    run_ref("gelu", &call);
    assert_near(y, tanh_form, 2, 1e-13, 0);
    run_ref("relu2", &call);
    assert_near(y, ((double[]){1, 0}), 2, 0, 0);
    call.n_in = 2;
    call.operand[2] = call.operand[1];
    call.operand[1] = over(up, 1, (size_t[]){2});
    attrs.i[0] = 0;
    run_ref("swiglu", &call);
    assert_near(y, silu, 2, 1e-13, 0);
    attrs.i[0] = 1;
    run_ref("swiglu", &call);
    assert_near(y, ((double[]){3 * tanh_form[0], 5 * tanh_form[1]}), 2, 1e-13,
                0);
    call.n_in = 1;
    call.operand[1] = call.operand[2];
    attrs.f[0] = 4;
    run_ref("softcap", &call);
    assert_near(y, ((double[]){4 * tanh(0.25), -4 * tanh(0.5)}), 2, 1e-13, 0);
    run_ref("scale", &call);
    assert_near(y, ((double[]){4, -8}), 2, 0, 0);
}

/* A call of rope: position 6 of a text of 8, with one head of four channels. */
static struct merak_kernel_call rope_call(const struct merak_attrs *attrs,
                                          double *x, double *y)
{
    struct merak_kernel_call call = {.attrs = attrs, .n_in = 1, .n_out = 1};

    call.operand[0] = over(x, 3, (size_t[]){1, 1, 4});
    call.operand[0].full.dim[1] = 8;
    call.operand[0].lo[1] = 6;
    call.operand[1] = call.operand[0];
    call.operand[1].data = y;
    return call;
}

static void rope_turns_pairs_by_position(void **state)
{
    double x[] = {1, 2, 3, 4}, y[4]; /* t = 6, D = 4: angles 6 and 6/10 */
    double want[] = {cos(6) - 3 * sin(6), 2 * cos(.6) - 4 * sin(.6),
                     3 * cos(6) + sin(6), 4 * cos(.6) + 2 * sin(.6)};
    struct merak_attrs attrs = {.f = {100}};
    struct merak_kernel_call call = rope_call(&attrs, x, y);

    (void)state;
    run_ref("rope", &call);
    assert_near(y, want, 4, 1e-13, 0);
}

/* The first two of four channels, and back again. */
static void rope_turns_some_channels(void **state)
{
    double x[] = {1, 2, 3, 4}, y[4];
    double want[] = {cos(6) - 2 * sin(6), 2 * cos(6) + sin(6), 3, 4};
    struct merak_attrs attrs = {.i = {0, 0, 0, 2}, .f = {100}};
    struct merak_kernel_call call = rope_call(&attrs, x, y);

    (void)state;
    run_ref("rope", &call);
    assert_near(y, want, 4, 1e-13, 0);
    attrs.i[0] = 1;
    call.operand[0].data = y;
    run_ref("rope", &call);
    assert_near(y, x, 4, 1e-13, 0);
}

/* Pair 0 of 2 turns by 1, pair 1 by 1/10: each kind divides another share. */
static void rope_divides_frequencies(void **state)
{
    const double t = 6, full = 1 / (2 * M_PI), by[] = {1.25, 8};
    const struct {
        struct merak_attrs attrs;
        double turn[2], amplitude;
    } rows[] = {
        {{.i = {0, 1}, .f = {100, 4}}, {1. / 4, .1 / 4}, 1},
        {{.i = {0, 2}, .f = {100, 4, .1 * full, full}}, {1, .1 / 4}, 1},
        {{.i = {0, 2}, .f = {100, 4, 0, 2 * full}},
         {.5 + .5 / 4, .1 * (.05 + .95 / 4)},
         1},
        {{.i = {0, 3}, .f = {100, 4, 0, 2, 1.5}}, {1, .05 + .05 / 4}, 1.5},
        {{.i = {0, 4, 2}, .f = {100, 4, 0, 0, 1.5}, .list = by},
         {.8, .0125},
         1.5},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        double x[] = {1, 2, 0, 0}, y[4], want[4];
        struct merak_kernel_call call = {
            .attrs = &rows[i].attrs, .n_in = 1, .n_out = 1};

        for (int p = 0; p < 2; p++) {
            double angle = t * rows[i].turn[p];

            want[p] = rows[i].amplitude * x[p] * cos(angle);
            want[p + 2] = rows[i].amplitude * x[p] * sin(angle);
        }
        call.operand[0] = over(x, 3, (size_t[]){1, 1, 4});
        call.operand[0].full.dim[1] = 8;
        call.operand[0].lo[1] = 6;
        call.operand[1] = call.operand[0];
        call.operand[1].data = y;
        run_ref("rope", &call);
        assert_near(y, want, 4, 1e-13, 0);
    }
}

static void adamw_follows_the_paper(void **state)
{
    double g[] = {4}, scale[] = {0.5, 0}, w[] = {1}, m[] = {0.1}, v[] = {0.2};
    struct merak_step step = {.step = 1,
                              .lr = 0.5f,
                              .beta1 = 0.5f,
                              .beta2 = 0.75f,
                              .eps = 0.25f,
                              .weight_decay = 0.125f};
    struct merak_attrs attrs = {.i = {1}};
    struct merak_kernel_call call = {
        .attrs = &attrs, .step = &step, .n_in = 2, .n_out = 3};
    /* g = 2: m = .05 + 1, v = .15 + 1; corrections 3/4 and 7/16 */
    double want =
        1 - 0.5 * (1.05 / 0.75 / (sqrt(1.15 * 16 / 7) + 0.25) + 0.125);

    (void)state;
    call.operand[0] = over(g, 1, (size_t[]){1});
    call.operand[1] = over(scale, 1, (size_t[]){2});
    call.operand[2] = over(w, 1, (size_t[]){1});
    call.operand[3] = over(m, 1, (size_t[]){1});
    call.operand[4] = over(v, 1, (size_t[]){1});
    run_ref("adamw", &call);
    assert_near(m, ((double[]){1.05}), 1, 1e-15, 0);
    assert_near(v, ((double[]){1.15}), 1, 1e-15, 0);
    assert_near(w, &want, 1, 1e-14, 0);
}

static void clip_scales_the_mean_gradient(void **state)
{
    double sumsq[] = {9, 16}, out[2];
    struct merak_step step = {.clip = 1, .grad_scale = 0.5f};
    struct merak_kernel_call call = {.step = &step, .n_in = 1, .n_out = 1};

    (void)state;
    call.operand[0] = over(sumsq, 1, (size_t[]){2});
    call.operand[1] = over(out, 1, (size_t[]){2});
    run_ref("clip", &call);
    assert_near(out, ((double[]){0.2, 2.5}), 2, 1e-15, 0);
    step.clip = 0;
    run_ref("clip", &call);
    assert_near(out, ((double[]){0.5, 2.5}), 2, 1e-15, 0);
    step.clip = 3;
    run_ref("clip", &call);
    assert_near(out, ((double[]){0.5, 2.5}), 2, 1e-15, 0);
}

static enum merak_status user_kernel(const struct merak_kernel_call *call,
                                     struct merak_error *err)
{
    (void)call;
    (void)err;
    return MERAK_IN_PROGRESS;
}

static void backends_are_found_by_name(void **state)
{
    const struct merak_backend *b = NULL;
    const struct merak_kernel *k = NULL;
    struct merak_error err;

    (void)state;
    assert_int_equal(merak_backend_find("gpu", &b, &err), MERAK_ERR_NOT_FOUND);
    assert_null(b);
    assert_non_null(strstr(err.text, "\"gpu\""));
    assert_non_null(strstr(err.text, "ref, emu"));
    assert_int_equal(merak_backend_find("ref", &b, &err), MERAK_OK);
    assert_int_equal(merak_kernel_find(b, "fft", &k, &err),
                     MERAK_ERR_NOT_FOUND);
    assert_null(k);
    assert_non_null(strstr(err.text, "\"ref\""));
    assert_non_null(strstr(err.text, "\"fft\""));
}

static void programs_add_kernels(void **state)
{
    const struct merak_backend *b;
    const struct merak_kernel *k;
    struct merak_error err;

    (void)state;
    assert_int_equal(
        merak_kernel_register("ref", "fft", user_kernel, NULL, &err), MERAK_OK);
    assert_int_equal(merak_backend_find("ref", &b, &err), MERAK_OK);
    assert_int_equal(merak_kernel_find(b, "fft", &k, &err), MERAK_OK);
    assert_ptr_equal(k->fn, user_kernel);
    assert_int_equal(
        merak_kernel_register("ref", "fft", user_kernel, NULL, &err),
        MERAK_ERR_PARAM);
    assert_int_equal(
        merak_kernel_register("ref", "linear", user_kernel, NULL, &err),
        MERAK_ERR_PARAM);
    assert_int_equal(
        merak_kernel_register("gpu", "fft", user_kernel, NULL, &err),
        MERAK_ERR_NOT_FOUND);
    assert_int_equal(merak_kernel_register("ref", "dct", NULL, NULL, &err),
                     MERAK_ERR_PARAM);
}

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void emu_takes_any_op_and_waits_for_deadlines(void **state)
{
    const struct merak_backend *b;
    const struct merak_kernel *k;
    struct merak_kernel_call call = {.n_out = 1};
    double loss = 3;
    int64_t until = now_ns() + 3000000;

    (void)state;
    assert_int_equal(merak_backend_find("emu", &b, NULL), MERAK_OK);
    assert_int_equal(merak_kernel_find(b, "anything", &k, NULL), MERAK_OK);
    call.operand[0] = over(&loss, 0, (size_t[]){0});
    assert_int_equal(k->fn(&call, NULL), MERAK_OK);
    assert_true(loss == 0);
    merak_emu_wait(until);
    assert_true(now_ns() >= until);
    merak_emu_wait(until); /* past: at once */
    assert_true(now_ns() < until + INT64_C(600000000000));
}

static void ids_outside_the_vocabulary_are_named(void **state)
{
    int32_t ids[] = {0, 7};
    double table[6] = {0}, y[4];
    const struct merak_backend *b;
    const struct merak_kernel *k;
    struct merak_attrs attrs = {.i = {0}};
    struct merak_kernel_call call = {.attrs = &attrs, .n_in = 2, .n_out = 1};
    struct merak_error err;

    (void)state;
    call.operand[0] = over(NULL, 2, (size_t[]){1, 2});
    call.operand[0].data = ids;
    call.operand[0].dtype = MERAK_I32;
    call.operand[1] = over(table, 2, (size_t[]){3, 2});
    call.operand[2] = over(y, 3, (size_t[]){1, 2, 2});
    assert_int_equal(merak_backend_find("ref", &b, NULL), MERAK_OK);
    assert_int_equal(merak_kernel_find(b, "embedding", &k, NULL), MERAK_OK);
    assert_int_equal(k->fn(&call, &err), MERAK_ERR_PARAM);
    assert_non_null(strstr(err.text, "token 7"));
    assert_non_null(strstr(err.text, "vocabulary of 3"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_is_x_w_transposed_plus_bias),
        cmocka_unit_test(attention_is_causal_softmax),
        cmocka_unit_test(attention_is_divided_by_queries),
        cmocka_unit_test(attention_drops_probabilities),
        cmocka_unit_test(norms_scale_to_unit_variance),
        cmocka_unit_test(pointwise_ops_match_published_values),
        cmocka_unit_test(rope_turns_pairs_by_position),
        cmocka_unit_test(rope_turns_some_channels),
        cmocka_unit_test(rope_divides_frequencies),
        cmocka_unit_test(adamw_follows_the_paper),
        cmocka_unit_test(clip_scales_the_mean_gradient),
        cmocka_unit_test(gradients_match_finite_differences),
        cmocka_unit_test(backends_are_found_by_name),
        cmocka_unit_test(programs_add_kernels),
        cmocka_unit_test(emu_takes_any_op_and_waits_for_deadlines),
        cmocka_unit_test(ids_outside_the_vocabulary_are_named),
    };

    return cmocka_run_group_tests_name("kernels_ref", tests, NULL, NULL);
}
