/* SPDX-License-Identifier: Apache-2.0 */
/* test_channels.c - norms of groups of channels: published numbers, gradients
 * of sums and norm together against finite differences, what is refused
 *
 * Numbers are PyTorch's 2.15 in f64, of inputs that are functions of the
 * element.
 */
#include "config.h"

#include "unit/near.h"

#include "kernels/kernels.h"
#include "merak/model.h"
#include "unit/kernels/raw_call.h"

#include <string.h>

#define ROOM 128

static void fill(double *x, size_t n, size_t by, size_t from, size_t of,
                 double scale)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (double)((by * i + from) % of) / scale - 1;
}

/* A norm in f64: B samples of `points`, C channels in groups of k; a batch norm
 * if samples share statistics. */
struct norm {
    size_t B, points, C, k;
    double eps;
    size_t samples;
    double x[ROOM], gamma[ROOM], beta[ROOM], y[ROOM], sums[ROOM];
    double mean[ROOM], variance[ROOM];
    bool evaluates;
};

static void run(const char *op, int n_in, int n_out,
                const struct merak_operand *operand,
                const struct merak_attrs *attrs, bool accumulate, bool train)
{
    const struct merak_step step = {.train = train};
    struct merak_kernel_call call = {.attrs = attrs,
                                     .step = &step,
                                     .n_in = n_in,
                                     .n_out = n_out,
                                     .accumulate = accumulate};
    const struct merak_backend *ref;
    const struct merak_kernel *k;

    memcpy(call.operand, operand,
           (size_t)(n_in + n_out) * sizeof(*call.operand));
    assert_int_equal(merak_backend_find("ref", &ref, NULL), MERAK_OK);
    assert_int_equal(merak_kernel_find(ref, op, &k, NULL), MERAK_OK);
    assert_int_equal(k->fn(&call, NULL), MERAK_OK);
}

static struct merak_attrs attrs_of(const struct norm *n)
{
    return (struct merak_attrs){.i = {(int64_t)n->k,
                                      n->samples > 0 ? (int64_t)n->samples : 1,
                                      0, (int64_t)n->points},
                                .f = {n->eps}};
}

static void forward(struct norm *n)
{
    const struct merak_attrs attrs = attrs_of(n);
    const struct merak_operand x = F64(n->x, n->B, n->points, n->C);
    const struct merak_operand sums = F64(n->sums, n->B, n->C, 2);
    struct merak_operand in[7];

    run("channel_sums", 1, 1, (struct merak_operand[]){x, sums}, &attrs, false,
        true);
    memcpy(in,
           (struct merak_operand[7]){x, sums, F64(n->gamma, n->C),
                                     F64(n->beta, n->C), F64(n->mean, n->C),
                                     F64(n->variance, n->C)},
           sizeof(in));
    in[n->samples > 0 ? 6 : 4] = F64(n->y, n->B, n->points, n->C);
    run(n->samples > 0 ? "batch_norm" : "channel_norm", n->samples > 0 ? 6 : 4,
        1, in, &attrs, false, !n->evaluates);
}

struct slopes {
    double dx[ROOM], dgamma[ROOM], dbeta[ROOM];
};

static void backward(struct norm *n, double *dy, struct slopes *s)
{
    const struct merak_attrs attrs = attrs_of(n);
    const struct merak_operand x = F64(n->x, n->B, n->points, n->C);
    const struct merak_operand d_y = F64(dy, n->B, n->points, n->C);
    const struct merak_operand sums = F64(n->sums, n->B, n->C, 2);
    double dsum[ROOM];
    const struct merak_operand dsums = F64(dsum, n->B, n->C, 2);

    run("channel_sums", 2, 1, (struct merak_operand[]){d_y, x, dsums}, &attrs,
        false, true);
    run("channel_norm_dx", 5, 1,
        (struct merak_operand[]){d_y, x, sums, dsums, F64(n->gamma, n->C),
                                 F64(s->dx, n->B, n->points, n->C)},
        &attrs, false, true);
    run("channel_norm_dw", 2, 2,
        (struct merak_operand[]){sums, dsums, F64(s->dgamma, n->C),
                                 F64(s->dbeta, n->C)},
        &attrs, true, true);
}

/* [1,3,3,4] in two groups. */
static void group_norms_have_published_numbers(void **state)
{
    static const double want[] = {-1.49602368948, 35.9989268483};
    struct norm n = {.B = 1, .points = 9, .C = 4, .k = 2, .eps = 1e-5};
    double got[2] = {0};

    (void)state;
    fill(n.x, 36, 37, 11, 101, 50);
    for (size_t c = 0; c < n.C; c++)
        n.gamma[c] = 1;
    forward(&n);
    got[0] = n.y[0];
    for (size_t i = 0; i < 36; i++)
        got[1] += n.y[i] * n.y[i];
    assert_near(got, want, 2, 1e-11, 0);
}

/* [2,3,3,2]: y, dx, and what averages become of 0 and 1; with statistics of
 * each sample y is another. */
static void batch_norms_have_published_numbers(void **state)
{
    static const double want[] = {-1.78897669127, -2.47268740335,
                                  84.2070994026,  0.000166666666667,
                                  0.993636823529, -1.54313675787};
    struct norm n = {.B = 2,
                     .points = 9,
                     .C = 2,
                     .k = 1,
                     .eps = 1e-5,
                     .samples = 2,
                     .gamma = {1.5, 0.5},
                     .beta = {0.25, -0.25},
                     .variance = {1, 1}};
    const struct merak_attrs to = {.f = {0.01, 0.5}};
    struct merak_attrs attrs = attrs_of(&n);
    struct slopes s = {.dgamma = {0}};
    double dy[ROOM], got[6] = {0}, mean[2] = {0}, variance[2] = {0};

    (void)state;
    fill(n.x, 36, 37, 11, 101, 50);
    fill(dy, 36, 41, 5, 83, 41);
    forward(&n);
    got[0] = n.y[0];
    backward(&n, dy, &s);
    got[1] = s.dx[0];
    for (size_t i = 0; i < 36; i++)
        got[2] += s.dx[i] * s.dx[i];
    for (int twice = 0; twice < 2; twice++) /* two micro-batches alike */
        run("batch_stats", 1, 2,
            (struct merak_operand[]){F64(n.sums, 2, 2, 2), F64(mean, 2),
                                     F64(variance, 2)},
            &attrs, true, true);
    run("mean_step", 1, 1,
        (struct merak_operand[]){F64(mean, 2), F64(n.mean, 2)}, &to, false,
        true);
    run("mean_step", 1, 1,
        (struct merak_operand[]){F64(variance, 2), F64(n.variance, 2)}, &to,
        false, true);
    got[3] = n.mean[0];
    got[4] = n.variance[0];
    n.samples = 1;
    forward(&n);
    got[5] = n.y[0];
    assert_near(got, want, 6, 1e-10, 0);
}

/* Not in training: whatever the samples are. */
static void averages_are_taken_in_evaluation(void **state)
{
    struct norm n = {.B = 1,
                     .points = 2,
                     .C = 1,
                     .k = 1,
                     .eps = 1,
                     .samples = 1,
                     .x = {5, 9},
                     .gamma = {2},
                     .beta = {1},
                     .mean = {3},
                     .variance = {3},
                     .evaluates = true};

    (void)state;
    forward(&n);
    assert_near(n.y, ((double[]){3, 7}), 2, 1e-12, 0);
}

static double loss(struct norm *n, const double *dy)
{
    double sum = 0;

    forward(n);
    for (size_t i = 0; i < n->B * n->points * n->C; i++)
        sum += dy[i] * n->y[i];
    return sum;
}

static void check_slope(struct norm *n, double *at, const double *dy,
                        double got)
{
    const double step = 1e-5;
    double was = *at, slope;

    *at = was + step;
    slope = loss(n, dy);
    *at = was - step;
    slope = (slope - loss(n, dy)) / (2 * step);
    *at = was;
    assert_near(&got, &slope, 1, 1e-7, 1e-7);
}

/* dgamma and dbeta are added to what was there. */
static void gradients_match_finite_differences(void **state)
{
    struct norm n = {.B = 2, .points = 3, .C = 6, .k = 3, .eps = 1e-3};
    struct slopes s = {.dgamma = {0}};
    double dy[ROOM];

    if (*state != NULL) { /* of a batch */
        n.k = 1;
        n.samples = 2;
    }
    fill(n.x, 36, 37, 11, 101, 50);
    fill(n.gamma, 6, 53, 7, 97, 48);
    fill(n.beta, 6, 29, 3, 97, 48);
    fill(dy, 36, 41, 5, 83, 41);
    for (size_t c = 0; c < n.C; c++) {
        s.dgamma[c] = 5;
        s.dbeta[c] = (double)c;
    }
    forward(&n);
    backward(&n, dy, &s);
    for (size_t i = 0; i < 36; i++)
        check_slope(&n, &n.x[i], dy, s.dx[i]);
    for (size_t c = 0; c < n.C; c++) {
        check_slope(&n, &n.gamma[c], dy, s.dgamma[c] - 5);
        check_slope(&n, &n.beta[c], dy, s.dbeta[c] - (double)c);
    }
}

/* f32 near 1000 has a variance of 1 all the same. */
static void a_large_mean_takes_no_digits(void **state)
{
    float x[48], y[48], gamma[2] = {1, 1}, beta[2] = {0};
    double sums[4], square = 0, want = 48;
    const struct merak_attrs attrs = {.i = {1, 1}, .f = {1e-8}};

    (void)state;
    for (size_t i = 0; i < 48; i++)
        x[i] = 1000 + (i / 2 % 2 == 0 ? 1.0f : -1.0f);
    run("channel_sums", 1, 1,
        (struct merak_operand[]){F32(x, 1, 24, 2), F64(sums, 1, 2, 2)}, &attrs,
        false, true);
    run("channel_norm", 4, 1,
        (struct merak_operand[]){F32(x, 1, 24, 2), F64(sums, 1, 2, 2),
                                 F32(gamma, 2), F32(beta, 2), F32(y, 1, 24, 2)},
        &attrs, false, true);
    for (size_t i = 0; i < 48; i++)
        square += (double)(y[i] * y[i]);
    assert_near(&square, &want, 1, 1e-6, 0);
}

/* By cpu and ref. */
static void logarithms_of_less_than_counts_are_refused(void **state)
{
    static const char *const backends[] = {"ref", "cpu"};
    float x[] = {0, 3, -1, 2}, y[4];
    const struct merak_attrs none = {.i = {0}};
    struct merak_kernel_call call = {.attrs = &none, .n_in = 1, .n_out = 1};
    const struct merak_kernel *k;
    const struct merak_backend *b;
    struct merak_error err;

    (void)state;
    call.operand[0] = F32(x, 1, 4);
    call.operand[1] = F32(y, 1, 4);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(merak_backend_find(backends[i], &b, NULL), MERAK_OK);
        assert_int_equal(merak_kernel_find(b, "log1p", &k, NULL), MERAK_OK);
        if (b->open != NULL)
            assert_int_equal(b->open(1, NULL), MERAK_OK);
        assert_int_equal(k->fn(&call, &err), MERAK_ERR_PARAM);
        assert_non_null(strstr(err.text, "log1p: element 2 of 4 is -1, less"));
    }
}

/* --- layers --------------------------------------------------------------- */

static struct merak_value *param(struct merak_model *m, const char *name,
                                 int ndim, const size_t *dim)
{
    return merak_param(m, name, ndim, dim, (struct merak_init){0});
}

/* Two inputs of a model of [2,8] positions: [2,4,4,6] and [2,8,6]. */
struct inputs {
    struct merak_model *m;
    struct merak_value *image, *text, *one;
};

static void two_groups(struct inputs *in)
{
    merak_groupnorm(in->m, in->image, in->one, in->one, 4, 1e-5f);
}

static void no_groups(struct inputs *in)
{
    merak_groupnorm(in->m, in->image, in->one, in->one, 0, 1e-5f);
}

static void no_eps(struct inputs *in)
{
    merak_groupnorm(in->m, in->image, in->one, in->one, 2, 0);
}

static void of_positions(struct inputs *in)
{
    merak_groupnorm(in->m, in->text, in->one, in->one, 2, 1e-5f);
}

static void of_numbers(struct inputs *in)
{
    merak_groupnorm(in->m, in->one, in->one, in->one, 2, 1e-5f);
}

static void batch(struct inputs *in, int samples, float momentum,
                  struct merak_value *mean)
{
    merak_batchnorm(in->m, in->image, in->one, in->one, 1e-5f,
                    &(struct merak_batch_statistics){
                        mean, param(in->m, "v", 1, (const size_t[]){6}),
                        momentum, samples});
}

static void batch_of_three(struct inputs *in)
{
    batch(in, 3, 0, in->one);
}

static void batch_of_momentum(struct inputs *in)
{
    batch(in, 0, 2, in->one);
}

static void batch_without_averages(struct inputs *in)
{
    batch(in, 0, 0, in->image);
}

static void concat_unlike(struct inputs *in)
{
    merak_concat(in->m, 2, (struct merak_value *[]){in->image, in->text});
}

static void concat_one(struct inputs *in)
{
    merak_concat(in->m, 1, &in->image);
}

static void concat_samples(struct inputs *in)
{
    size_t dim[] = {2};
    struct merak_value *x = merak_input(in->m, "size", MERAK_F32, "b", dim);

    merak_concat(in->m, 2, (struct merak_value *[]){x, x});
}

static void layers_that_do_not_fit_are_refused(void **state)
{
    static const struct {
        void (*call)(struct inputs *in);
        const char *why;
    } rows[] = {
        {two_groups, "groupnorm: 4 groups of the 6 channels of image"},
        {no_groups, "groupnorm: 0 groups of the 6 channels"},
        {no_eps, "groupnorm: eps is 0, expected a positive number"},
        {of_positions, "is [2,8,6] with positions of a sequence: expected"},
        {of_numbers, "groupnorm: x, one, is [6]: expected samples"},
        {batch_of_three, "statistics of 3 samples each of a micro-batch of 2"},
        {batch_of_momentum, "batchnorm: momentum is 2, expected 0 to 1"},
        {batch_without_averages, "batchnorm: image is not a parameter"},
        {concat_unlike, "concat: "},
        {concat_one, "concat"},
        {concat_samples, "concat: 'b' runs along the last dim of size"},
    };

    (void)state;
    for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++) {
        const struct merak_model_options opt = {
            .micro_batch = 2, .seq = 8, .dtype = MERAK_F32};
        struct merak_error err = {0};
        struct inputs in;

        assert_int_equal(merak_model_create(&opt, &in.m, NULL), MERAK_OK);
        in.image = merak_input(in.m, "image", MERAK_F32, "byxc",
                               (const size_t[]){2, 4, 4, 6});
        in.text = merak_input(in.m, "text", MERAK_F32, "btc",
                              (const size_t[]){2, 8, 6});
        in.one = param(in.m, "one", 1, (const size_t[]){6});
        rows[r].call(&in);
        assert_int_not_equal(merak_model_status(in.m, &err), MERAK_OK);
        if (strstr(err.text, rows[r].why) == NULL)
            fail_msg("\"%s\" lacks \"%s\"", err.text, rows[r].why);
        merak_model_destroy(in.m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(group_norms_have_published_numbers),
        cmocka_unit_test(batch_norms_have_published_numbers),
        cmocka_unit_test(averages_are_taken_in_evaluation),
        cmocka_unit_test(gradients_match_finite_differences),
        {.name = "gradients of a batch match finite differences",
         .test_func = gradients_match_finite_differences,
         .initial_state = (void *)(uintptr_t) ""},
        cmocka_unit_test(a_large_mean_takes_no_digits),
        cmocka_unit_test(logarithms_of_less_than_counts_are_refused),
        cmocka_unit_test(layers_that_do_not_fit_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
