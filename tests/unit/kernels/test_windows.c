/* SPDX-License-Identifier: Apache-2.0 */
/* test_windows.c - convolution and pooling: published numbers, layers as models
 * describe them
 *
 * Numbers are PyTorch's 2.15 in f64, of inputs that are functions of the
 * element.
 */
#include "config.h"

#include "unit/near.h"

#include "kernels/kernels.h"
#include "merak/model.h"
#include "partitioner/graph/graph.h"
#include "unit/kernels/raw_call.h"

#include <string.h>

#define ROOM 1024

static void fill(double *x, size_t n, size_t by, size_t from, size_t of,
                 double scale)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (double)((by * i + from) % of) / scale - 1;
}

static void input_a(double *x, size_t n)
{
    fill(x, n, 37, 11, 101, 50);
}

static void input_b(double *x, size_t n)
{
    fill(x, n, 53, 7, 97, 48);
}

static void input_g(double *x, size_t n)
{
    fill(x, n, 41, 5, 83, 41);
}

static void run(const char *op, struct merak_kernel_call *call)
{
    const struct merak_backend *ref;
    const struct merak_kernel *k;

    assert_int_equal(merak_backend_find("ref", &ref, NULL), MERAK_OK);
    assert_int_equal(merak_kernel_find(ref, op, &k, NULL), MERAK_OK);
    assert_int_equal(k->fn(call, NULL), MERAK_OK);
}

/* --- numbers -------------------------------------------------------------- */

/* Equal along each dim. */
struct shape {
    int dims;
    size_t B, in[3], I, O, size, stride, pad, dilation;
};

static struct merak_attrs attrs_of(const struct shape *s, double *list,
                                   size_t *out)
{
    struct merak_attrs attrs = {
        .i = {s->dims, 0, MERAK_WINDOW_NUMBERS * s->dims}, .list = list};

    for (int d = 0; d < s->dims; d++, list += MERAK_WINDOW_NUMBERS) {
        out[d] = (s->in[d] + 2 * s->pad - s->dilation * (s->size - 1) - 1) /
                     s->stride +
                 1;
        list[MERAK_WINDOW_SIZE] = (double)s->size;
        list[MERAK_WINDOW_STRIDE] = (double)s->stride;
        list[MERAK_WINDOW_PAD] = (double)s->pad;
        list[MERAK_WINDOW_DILATION] = (double)s->dilation;
        list[MERAK_WINDOW_IN] = (double)s->in[d];
        list[MERAK_WINDOW_OUT] = (double)out[d];
    }
    return attrs;
}

static struct merak_operand operand(double *data, int dims, size_t before,
                                    const size_t *space, size_t after,
                                    size_t *n_p)
{
    size_t dim[5] = {before};

    memcpy(dim + 1, space, (size_t)dims * sizeof(*dim));
    dim[dims + 1] = after;
    *n_p = 1;
    for (int d = 0; d < dims + 2; d++)
        *n_p *= dim[d];
    assert_true(*n_p <= ROOM);
    return raw_operand(data, MERAK_F64, dims + 2, dim);
}

static void check(const double *x, size_t n, const double *want)
{
    const double got[] = {x[0], x[n - 1]};
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    assert_near(got, want, 2, 1e-10, 1e-12);
    assert_near(&sum, &want[2], 1, 1e-10, 0);
}

/* First, last, sum of squares: of y, dx, dw. */
static void convolutions_have_published_numbers(void **state)
{
    static const struct {
        struct shape s;
        double want[3][3];
    } rows[] = {
        {{3, 1, {4, 4, 4}, 2, 3, 3, 1, 1, 1},
         {{-1.535, -0.806666666667, 346.639909722},
          {-1.32469512195, 4.24745934959, 405.445578958},
          {0.967804878049, 1.37512195122, 604.154033076}}},
        {{2, 2, {7, 6}, 2, 3, 3, 2, 1, 1},
         {{-0.151666666667, 0.17625, 71.7158166667},
          {0.733739837398, 0.458333333333, 89.3109905851},
          {-0.176097560976, 0.198536585366, 120.020165616}}},
        {{2, 1, {5, 5}, 2, 2, 2, 1, 0, 1},
         {{-0.170833333333, 1.53083333333, 41.6979460069},
          {0.737296747967, 0.74593495935, 76.7384870324},
          {0.0580487804878, 0.121463414634, 20.4974748364}}},
        {{3, 1, {6, 5, 5}, 1, 2, 3, 1, 2, 2},
         {{0.414583333333, 1.08583333333, 352.596858333},
          {0.80487804878, 0.293191056911, 242.286041605},
          {-1.04585365854, 0.798048780488, 96.1507029149}}},
        {{2, 1, {9, 9}, 3, 2, 7, 2, 3, 1},
         {{-3.20541666667, 2.86375, 493.746126215},
          {0.291666666667, 0.76575203252, 367.786472792},
          {-1.19170731707, -0.213170731707, 267.8650163}}},
    };

    (void)state;
    for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++) {
        const struct shape *s = &rows[r].s;
        static double x[ROOM], w[ROOM], y[ROOM], dx[ROOM], dw[ROOM];
        double list[3 * MERAK_WINDOW_NUMBERS];
        size_t out[3], size[3] = {s->size, s->size, s->size}, nx, nw, ny;
        struct merak_attrs attrs = attrs_of(s, list, out);
        struct merak_kernel_call call = {
            .attrs = &attrs, .n_in = 2, .n_out = 1, .first = true};
        struct merak_operand X = operand(x, s->dims, s->B, s->in, s->I, &nx);
        struct merak_operand W = operand(w, s->dims, s->O, size, s->I, &nw);
        struct merak_operand Y = operand(y, s->dims, s->B, out, s->O, &ny);

        input_a(x, nx);
        input_b(w, nw);
        memcpy(call.operand, (struct merak_operand[]){X, W, Y}, sizeof(X) * 3);
        run("conv", &call);
        check(y, ny, rows[r].want[0]);
        input_g(y, ny);
        memcpy(call.operand, (struct merak_operand[]){Y, W, X}, sizeof(X) * 3);
        call.operand[2].data = dx;
        run("conv_dx", &call);
        check(dx, nx, rows[r].want[1]);
        memcpy(call.operand, (struct merak_operand[]){X, Y, W}, sizeof(X) * 3);
        call.operand[2].data = dw;
        run("conv_dw", &call);
        check(dw, nw, rows[r].want[2]);
    }
}

/* [2,3] points of two channels to [4,6] of three; dx and dw by squares. */
static void a_transposed_convolution_has_published_numbers(void **state)
{
    static const struct shape s = {2, 1, {4, 6}, 3, 2, 2, 2, 0, 1};
    const size_t points[] = {2, 3}, size[] = {2, 2};
    const double first_last[] = {0.65625, -0.665};
    const double squares[] = {20.6756383681, 8.8978901241, 6.11231576443};
    double x[12], w[24], turned[24], y[72], got[3] = {0};
    double list[2 * MERAK_WINDOW_NUMBERS];
    size_t out[2], nx, nw, ny;
    struct merak_attrs attrs = attrs_of(&s, list, out);
    struct merak_kernel_call call = {
        .attrs = &attrs, .n_in = 2, .n_out = 1, .first = true};
    const struct merak_operand X = operand(x, 2, 1, points, 2, &nx);
    const struct merak_operand W = operand(w, 2, 2, size, 3, &nw);
    const struct merak_operand Y = operand(y, 2, 1, s.in, 3, &ny);

    (void)state;
    input_a(x, nx);
    input_b(turned, nw); /* [3,2,2,2], outputs first */
    for (size_t i = 0; i < nw; i++)
        w[i % 2 * 12 + i / 2 % 4 * 3 + i / 8] = turned[i];
    memcpy(call.operand, (struct merak_operand[]){X, W, Y}, sizeof(X) * 3);
    run("conv_dx", &call);
    assert_near(y, first_last, 1, 1e-10, 0);
    assert_near(&y[ny - 1], &first_last[1], 1, 1e-10, 0);
    for (size_t i = 0; i < ny; i++)
        got[0] += y[i] * y[i];
    input_g(y, ny);
    memcpy(call.operand, (struct merak_operand[]){Y, X, W}, sizeof(X) * 3);
    run("conv_dw", &call);
    for (size_t i = 0; i < nw; i++)
        got[2] += w[i] * w[i];
    for (size_t i = 0; i < nw; i++)
        w[i % 2 * 12 + i / 2 % 4 * 3 + i / 8] = turned[i];
    memcpy(call.operand, (struct merak_operand[]){Y, W, X}, sizeof(X) * 3);
    run("conv", &call);
    for (size_t i = 0; i < nx; i++)
        got[1] += x[i] * x[i];
    assert_near(got, squares, 3, 1e-10, 0);
}

static void pools_have_published_numbers(void **state)
{
    static const struct {
        struct shape s;
        enum merak_pooling kind;
        double sum, first; /* 0: not looked at */
    } rows[] = {
        {{2, 1, {5, 5}, 2, 0, 2, 2, 0, 1}, MERAK_POOL_MAX, 6.32, 0},
        {{2, 1, {5, 5}, 2, 0, 3, 2, 1, 1}, MERAK_POOL_MEAN, 0.164444444444, 0},
        {{2, 1, {5, 5}, 2, 0, 3, 2, 1, 1},
         MERAK_POOL_MEAN_INSIDE,
         -0.0144444444444,
         0.125},
    };

    (void)state;
    for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++) {
        const struct shape *s = &rows[r].s;
        static double x[ROOM], y[ROOM];
        double list[3 * MERAK_WINDOW_NUMBERS], sum = 0;
        size_t out[3], nx, ny;
        struct merak_attrs attrs = attrs_of(s, list, out);
        struct merak_kernel_call call = {
            .attrs = &attrs, .n_in = 1, .n_out = 1, .first = true};

        attrs.i[1] = (int64_t)rows[r].kind;
        call.operand[0] = operand(x, s->dims, s->B, s->in, s->I, &nx);
        call.operand[1] = operand(y, s->dims, s->B, out, s->I, &ny);
        input_a(x, nx);
        run("pool", &call);
        for (size_t i = 0; i < ny; i++)
            sum += y[i];
        assert_near(&sum, &rows[r].sum, 1, 1e-10, 1e-12);
        if (rows[r].first != 0)
            assert_near(y, &rows[r].first, 1, 1e-10, 1e-12);
    }
}

/* Of equal points the first one, by rows, has the gradient. */
static void the_first_of_equal_points_is_the_largest(void **state)
{
    static const struct shape s = {2, 1, {2, 2}, 1, 0, 2, 2, 0, 1};
    static const double want[] = {0, 5, 0, 0};
    double x[] = {1, 3, 3, 2}, dy[] = {5}, dx[4];
    double list[2 * MERAK_WINDOW_NUMBERS];
    size_t out[2], n;
    struct merak_attrs attrs = attrs_of(&s, list, out);
    struct merak_kernel_call call = {.attrs = &attrs, .n_in = 2, .n_out = 1};

    (void)state;
    attrs.i[1] = MERAK_POOL_MAX;
    call.operand[0] = operand(dy, 2, 1, out, 1, &n);
    call.operand[1] = operand(x, 2, 1, s.in, 1, &n);
    call.operand[2] = operand(dx, 2, 1, s.in, 1, &n);
    run("pool_dx", &call);
    assert_near(dx, want, 4, 0, 0);
}

/* --- layers --------------------------------------------------------------- */

static struct merak_model *new_model(void)
{
    const struct merak_model_options opt = {
        .micro_batch = 2, .seq = 8, .dtype = MERAK_F32};
    struct merak_model *m = NULL;

    assert_int_equal(merak_model_create(&opt, &m, NULL), MERAK_OK);
    return m;
}

static struct merak_value *param(struct merak_model *m, const char *name,
                                 int ndim, const size_t *dim)
{
    return merak_param(m, name, ndim, dim, (struct merak_init){0});
}

/* Points of the output for points of the input, windows and padding. */
static void layers_have_as_many_points(void **state)
{
    static const struct {
        size_t in, size;
        struct merak_window how;
        size_t out;
    } rows[] = {
        {7, 3, {0}, 7},
        {7, 4, {0}, 7},
        {7, 3, {.stride = 2}, 4},
        {8, 2, {.stride = 2}, 4},
        {8, 3, {.dilation = 4}, 8},
        {8, 3, {.pad = MERAK_PAD_NONE}, 6},
        {9, 3, {.stride = 2, .pad = 1}, 5},
        {32, 16, {.stride = 16}, 2},
        {33, 16, {.stride = 16, .pad = MERAK_PAD_NONE}, 2},
        {33, 16, {.stride = 16}, 3},
    };

    (void)state;
    for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++) {
        struct merak_model *m = new_model();
        size_t n = rows[r].in, k = rows[r].size;
        struct merak_value *x = param(m, "x", 4, (size_t[]){2, n, n, 3});
        struct merak_value *w = param(m, "w", 4, (size_t[]){5, k, k, 3});
        struct merak_value *y = merak_conv(m, x, w, NULL, &rows[r].how);
        struct merak_value *p =
            merak_pool(m, x, MERAK_POOL_MAX, (int)k, &rows[r].how);
        struct merak_error err;

        if (merak_model_status(m, &err) != MERAK_OK)
            fail_msg("%s", err.text);
        assert_memory_equal(y->shape.dim,
                            ((size_t[]){2, rows[r].out, rows[r].out, 5}),
                            4 * sizeof(size_t));
        assert_memory_equal(p->shape.dim,
                            ((size_t[]){2, rows[r].out, rows[r].out, 3}),
                            4 * sizeof(size_t));
        merak_model_destroy(m);
    }
}

/* Those of the layer that it turns around. */
static void transposed_layers_have_as_many_points(void **state)
{
    static const struct {
        size_t in, size;
        struct merak_window how;
        size_t out; /* 0: refused */
    } rows[] = {
        {4, 2, {.stride = 2}, 8},
        {4, 3, {0}, 4},
        {4, 3, {.stride = 2, .pad = 1}, 7},
        {4, 3, {.pad = MERAK_PAD_NONE}, 6},
        {4, 3, {.dilation = 2, .pad = MERAK_PAD_NONE}, 8},
        {1, 3, {.pad = 2}, 0},
    };

    (void)state;
    for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++) {
        struct merak_model *m = new_model();
        size_t n = rows[r].in, k = rows[r].size;
        struct merak_value *x = param(m, "x", 3, (size_t[]){2, n, 5});
        struct merak_value *w = param(m, "w", 3, (size_t[]){5, k, 3});
        struct merak_value *y = merak_conv_transposed(m, x, w, &rows[r].how);
        struct merak_error err;

        if (rows[r].out > 0)
            assert_memory_equal(y->shape.dim, ((size_t[]){2, rows[r].out, 3}),
                                3 * sizeof(size_t));
        else
            assert_int_not_equal(merak_model_status(m, &err), MERAK_OK);
        merak_model_destroy(m);
    }
}

/* Of x [1,2,2] points, twice along each dim, of four along one. */
static void points_are_repeated(void **state)
{
    static const struct {
        struct shape s;
        double x[4], y[16], dx[4]; /* of dy = 1, 2, .. */
    } rows[] = {
        {{2, 1, {4, 4}, 1, 0, 2, 2, 0, 1},
         {1, 2, 3, 4},
         {1, 1, 2, 2, 1, 1, 2, 2, 3, 3, 4, 4, 3, 3, 4, 4},
         {14, 22, 46, 54}},
        {{1, 2, {6}, 1, 0, 3, 3, 0, 1},
         {1, 2, 3, 4},
         {1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4},
         {6, 15, 24, 33}},
    };

    (void)state;
    for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++) {
        double x[4], y[16], dy[16], list[2 * MERAK_WINDOW_NUMBERS];
        size_t points[2], nx, ny;
        struct merak_attrs attrs = attrs_of(&rows[r].s, list, points);
        struct merak_kernel_call call = {.attrs = &attrs, .n_in = 1, .n_out = 1};
        const struct shape *s = &rows[r].s;

        attrs.i[1] = MERAK_POOL_SUM;
        memcpy(x, rows[r].x, sizeof(x));
        call.operand[0] = operand(x, s->dims, s->B, points, 1, &nx);
        call.operand[1] = operand(y, s->dims, s->B, s->in, 1, &ny);
        run("pool_dx", &call);
        assert_near(y, rows[r].y, ny, 0, 0);
        for (size_t i = 0; i < ny; i++)
            dy[i] = (double)(i + 1);
        call.operand[0] = operand(dy, s->dims, s->B, s->in, 1, &ny);
        call.operand[1] = operand(x, s->dims, s->B, points, 1, &nx);
        run("pool", &call);
        assert_near(x, rows[r].dx, nx, 0, 0);
    }
}

static void layers_repeat_points(void **state)
{
    static const struct {
        int k;
        size_t out; /* 0: refused */
        const char *why;
    } rows[] = {{2, 8, ""},
                {1, 4, ""},
                {3, 12, ""},
                {0, 0, "upsample: each point 0 times: expected 1 to 255"}};

    (void)state;
    for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++) {
        struct merak_model *m = new_model();
        struct merak_value *x = param(m, "x", 4, (size_t[]){2, 4, 4, 5});
        struct merak_value *y = merak_upsample(m, x, rows[r].k);
        size_t n = rows[r].out;
        struct merak_error err = {0};

        assert_int_equal(merak_model_status(m, &err) == MERAK_OK, n > 0);
        if (n > 0)
            assert_memory_equal(y->shape.dim, ((size_t[]){2, n, n, 5}),
                                4 * sizeof(size_t));
        assert_non_null(strstr(err.text, rows[r].why));
        merak_model_destroy(m);
    }
}

static void windows_that_do_not_fit_are_refused(void **state)
{
    static const struct {
        int x_dims, w_dims;
        size_t w_in, size;
        struct merak_window how;
        const char *why;
    } rows[] = {
        {2, 2, 3, 3, {0}, "conv: x is [2,8]: expected samples, 1 to 3 dims of"},
        {4, 3, 3, 3, {0}, "and as many dims of the weight"},
        {4, 4, 4, 3, {0}, "conv: w [5,3,3,4] does not fit x [2,8,8,3]"},
        {4, 4, 3, 9, {.pad = -1}, "windows of 9 points do not fit dim 1 of x"},
        {4, 4, 3, 3, {.stride = -1}, "conv: stride -1, dilation 0, padding 0"},
        {4, 4, 3, 3, {.pad = -2}, "padding -2: expected 0 for the default"},
        {4, 4, 3, 3, {.pad = 3}, "conv: padding 3 of a window of 3 points"},
    };

    (void)state;
    for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++) {
        struct merak_model *m = new_model();
        size_t k = rows[r].size;
        size_t x_dim[] = {2, 8, 8, 3}, w_dim[] = {5, k, k, rows[r].w_in};
        struct merak_value *x = param(m, "x", rows[r].x_dims, x_dim);
        struct merak_value *w = param(m, "w", rows[r].w_dims, w_dim);
        struct merak_error err = {0};

        assert_null(merak_conv(m, x, w, NULL, &rows[r].how));
        assert_int_not_equal(merak_model_status(m, &err), MERAK_OK);
        if (strstr(err.text, rows[r].why) == NULL)
            fail_msg("\"%s\" lacks \"%s\"", err.text, rows[r].why);
        merak_model_destroy(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_have_published_numbers),
        cmocka_unit_test(a_transposed_convolution_has_published_numbers),
        cmocka_unit_test(pools_have_published_numbers),
        cmocka_unit_test(points_are_repeated),
        cmocka_unit_test(layers_repeat_points),
        cmocka_unit_test(the_first_of_equal_points_is_the_largest),
        cmocka_unit_test(layers_have_as_many_points),
        cmocka_unit_test(transposed_layers_have_as_many_points),
        cmocka_unit_test(windows_that_do_not_fit_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
