/* SPDX-License-Identifier: Apache-2.0 */
/* test_cudnn.c - attention by cuDNN, without a GPU
 *
 * A stand-in that keeps cuDNN's rules runs the graphs on the host, where they
 * have to give the reference's attention.  cuDNN itself, where it is installed,
 * is asked whether it has kernels for them on an H200 that is not there.
 */
#include "config.h"

#include "unit/near.h"

#include "unit/kernels/cudnn_tests.h"
#include "unit/kernels/kcheck.h"

#include "base/error.h"
#include "base/log.h"

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SUM_TERMS (1.0 / 128) /* of the largest: bf16 probabilities */
#define ROUNDING (1.0 / 128)  /* to bf16 */
#define HOPPER 9

static char stand_in[PATH_MAX];
static int *descs, *runs; /* the stand-in's counts */
static void **last_stream;
struct merak_cudnn_attention *cudnn;
static bool was_done;
int cudnn_told;
char cudnn_line[512];

/* --- the stand-in -----------------------------------------------------------
 */

static void count_line(void *arg, enum merak_log_level level,
                       const char *module, const char *line)
{
    (void)arg;
    (void)level;
    if (strcmp(module, "cuda") != 0)
        return;
    cudnn_told++;
    snprintf(cudnn_line, sizeof(cudnn_line), "%s", line);
}

/* It is built beside this program. */
static void find_stand_in(void)
{
    char path[PATH_MAX] = "";
    const char *dir;
    void *library;

    assert_true(readlink("/proc/self/exe", path, sizeof(path) - 1) > 0);
    dir = dirname(path);
    snprintf(stand_in, sizeof(stand_in), "%.2000s/stand_in_cudnn.so", dir);
    if (access(stand_in, F_OK) != 0)
        snprintf(stand_in, sizeof(stand_in), "%.2000s/.libs/stand_in_cudnn.so",
                 dir);
    library = dlopen(stand_in, RTLD_NOW);
    assert_non_null(library);
    descs = dlsym(library, "merak_stand_in_descs");
    runs = dlsym(library, "merak_stand_in_runs");
    last_stream = dlsym(library, "merak_stand_in_stream");
}

static int set_up(void **state)
{
    struct merak_error err;

    (void)state;
    setenv("MERAK_CUDA_ATTENTION", "cudnn", 1);
    unsetenv("MERAK_STAND_IN_CUDNN");
    assert_int_equal(merak_cudnn_use(NULL, 0, &err), MERAK_OK);
    assert_int_equal(
        merak_cudnn_attention_create(stand_in, HOPPER, &cudnn, &err), MERAK_OK);
    *runs = cudnn_told = 0;
    return 0;
}

/* All that was made is gone. */
static int tear_down(void **state)
{
    (void)state;
    merak_cudnn_attention_destroy(cudnn);
    assert_int_equal(*descs, 0);
    return 0;
}

/* --- a backend of four ops --------------------------------------------------
 */

static int stream; /* its address is */

#define ATTEND(op)                                                            \
    static enum merak_status op(const struct merak_kernel_call *call,         \
                                struct merak_error *err)                      \
    {                                                                         \
        return merak_cudnn_attend(cudnn, #op, call, &stream, &was_done, err); \
    }                                                                         \
    static size_t op##_scratch(const struct merak_kernel_call *call)          \
    {                                                                         \
        return merak_cudnn_scratch(#op, call, 0);                             \
    }
ATTEND(attention)
ATTEND(attention_packed)
ATTEND(attention_dx)
ATTEND(attention_packed_dx)

#define ROW(op)                                        \
    {                                                  \
        .name = #op, .fn = op, .scratch = op##_scratch \
    }
static const struct merak_kernel kernels[] = {
    ROW(attention),
    ROW(attention_packed),
    ROW(attention_dx),
    ROW(attention_packed_dx),
    {0},
};
static const struct merak_backend backend = {.name = "cudnn",
                                             .kernel = kernels};

/* --- graphs -----------------------------------------------------------------
 */

struct kc_row cudnn_grouped(size_t B, size_t T, size_t G, size_t R, size_t D)
{
    return (struct kc_row){.op = "attention",
                           .n_in = 3,
                           .n_out = 2,
                           .operand = {{'c', 5, {B, T, G, R, D}},
                                       {'c', 4, {B, T, G, D}},
                                       {'c', 4, {B, T, G, D}},
                                       {'c', 5, {B, T, G, R, D}},
                                       {'f', 4, {B, T, G, R}}}};
}

struct kc_row cudnn_packed(size_t B, size_t T, size_t H, size_t D)
{
    return (struct kc_row){.op = "attention_packed",
                           .n_in = 1,
                           .n_out = 2,
                           .operand = {{'c', 5, {B, T, 3, H, D}},
                                       {'c', 4, {B, T, H, D}},
                                       {'f', 3, {B, T, H}}}};
}

static void check_output(const struct kc *got, const struct kc *want, int o)
{
    kc_check_near(got, want, o, SUM_TERMS * kc_largest(want, o), ROUNDING);
}

static void run_on_stand_in(struct kc *c)
{
    was_done = false;
    kc_run_on(c, &backend);
}

bool cudnn_runs(struct kc *c)
{
    run_on_stand_in(c);
    return was_done;
}

static const struct kc_suite suite = {run_on_stand_in, check_output};

static void compare_with_ref(const struct kc *c)
{
    struct kc want, got;
    int before = *runs;

    kc_copy(&want, c);
    kc_copy(&got, c);
    kc_run(&want, "ref");
    run_on_stand_in(&got);
    assert_true(was_done);
    assert_ptr_equal(*last_stream, &stream);
    assert_int_equal(*runs - before, 1); /* all samples at once */
    kc_check_outputs(&suite, &got, &want);
    kc_destroy(&want);
    kc_destroy(&got);
}

static void graphs_compute_attention(void **state)
{
    const struct kc_row rows[] = {
        cudnn_grouped(2, 19, 3, 1, 16), cudnn_grouped(2, 17, 2, 3, 8),
        cudnn_grouped(1, 70, 1, 2, 24), cudnn_packed(3, 13, 2, 8),
        cudnn_packed(2, 2, 1, 40)};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct kc_row row = rows[i];

        for (int kind = 0; kind < 3; kind++) {
            row.attrs.i[1] = kind == 1 ? 5 : kind == 2 ? 1 : 0; /* a window */
            row.attrs.f[1] = kind == 1 ? 0.4 : 0;               /* a scale */
            kc_visit_row(&row, MERAK_BF16, compare_with_ref);
        }
    }
}

/* --- what cuDNN is not to have ----------------------------------------------
 */

static const char *refused; /* by the case that was visited */

static void run_alone(const struct kc *c)
{
    struct kc mine;

    kc_copy(&mine, c);
    run_on_stand_in(&mine);
    assert_false(was_done);
    mine.call.attrs = &mine.attrs;
    mine.call.step = NULL; /* as scratch is asked */
    refused = NULL;
    if (!merak_cudnn_shape_of(mine.op, &mine.call,
                              &(struct merak_cudnn_shape){0}, &refused)) {
        assert_non_null(refused);
        assert_int_equal(merak_cudnn_scratch(mine.op, &mine.call, 77), 77);
    }
    kc_destroy(&mine);
}

static void what_it_has_not_is_left_alone(void **state)
{
    struct kc_row row = cudnn_grouped(1, 9, 2, 2, 8),
                  odd = cudnn_grouped(1, 9, 2, 2, 12),
                  wide = cudnn_grouped(1, 3, 1, 1, 264),
                  one = cudnn_packed(2, 1, 2, 8);
    int lines;

    (void)state;
    kc_visit_row(&row, MERAK_F32, run_alone);
    assert_string_equal(refused, "in f32");
    kc_visit_row(&odd, MERAK_BF16, run_alone);
    assert_string_equal(refused, "with such heads");
    kc_visit_row(&wide, MERAK_BF16, run_alone);
    assert_string_equal(refused, "with such heads");
    kc_visit_row(&one, MERAK_BF16, run_alone);
    assert_string_equal(refused, "of one position");
    row.attrs.f[0] = 0.1;
    kc_visit_row(&row, MERAK_BF16, run_alone);
    assert_string_equal(refused, "with dropout");
    row.attrs.f[0] = 0;
    row.attrs.f[2] = 30;
    kc_visit_row(&row, MERAK_BF16, run_alone);
    assert_string_equal(refused, "with capped scores");
    assert_int_equal(*runs, 0);
    /* each is said once */
    lines = cudnn_told;
    assert_int_equal(lines, 5);
    kc_visit_row(&row, MERAK_BF16, run_alone);
    kc_visit_row(&odd, MERAK_BF16, run_alone);
    assert_int_equal(cudnn_told, lines);
}

static void check_refused(struct kc *c, const char *why)
{
    c->call.attrs = &c->attrs;
    assert_false(merak_cudnn_shape_of(
        c->op, &c->call, &(struct merak_cudnn_shape){0}, &refused));
    assert_string_equal(refused, why);
    kc_destroy(c);
}

static void documents_slices_and_masks_are_left_alone(void **state)
{
    static const struct kc_operand starts = {'s', 2, {2, 16}};
    struct kc_row row = cudnn_packed(2, 16, 2, 8);
    struct kc c;

    (void)state;
    kc_create(&c, &row, MERAK_BF16, 1);
    c.call.operand[0].local.dim[1] = 16;
    c.call.operand[1].lo[1] = 8;
    c.call.operand[1].local.dim[1] = 8;
    check_refused(&c, "of a slice of the sequence");
    row.attrs.i[2] = -1;
    kc_create(&c, &row, MERAK_BF16, 1);
    check_refused(&c, "that is not causal");
    row.attrs.i[2] = 0;
    row.n_in = 2;
    row.operand[3] = row.operand[2];
    row.operand[2] = row.operand[1];
    row.operand[1] = starts;
    kc_create(&c, &row, MERAK_BF16, 1);
    check_refused(&c, "with documents");
}

/* --- modes and choices ------------------------------------------------------
 */

static size_t scratch_of(struct kc *c)
{
    c->call.attrs = &c->attrs;
    return merak_cudnn_scratch(c->op, &c->call, 0);
}

static void a_mode_decides(void **state)
{
    struct kc_row row = cudnn_packed(2, 16, 2, 8);
    enum merak_cudnn_mode mode;
    struct merak_error err;
    struct kc c;

    (void)state;
    kc_create(&c, &row, MERAK_BF16, 1);
    assert_true(scratch_of(&c) > 0);
    setenv("MERAK_CUDA_ATTENTION", "own", 1);
    assert_int_equal(scratch_of(&c), 0);
    run_on_stand_in(&c);
    assert_false(was_done);
    unsetenv("MERAK_CUDA_ATTENTION"); /* nothing was measured */
    assert_int_equal(scratch_of(&c), 0);
    run_on_stand_in(&c);
    assert_false(was_done);
    assert_int_equal(cudnn_told, 0);
    setenv("MERAK_CUDA_ATTENTION", "flash", 1);
    assert_int_equal(merak_cudnn_mode(&mode, &err), MERAK_ERR_PARAM);
    assert_non_null(strstr(err.text, "own, cudnn or auto"));
    assert_int_equal(merak_cudnn_attention_create(stand_in, HOPPER, NULL, &err),
                     MERAK_ERR_PARAM);
    kc_destroy(&c);
}

/* Backward by as many samples as fit into 512 MiB, in equal parts. */
static void samples_are_limited_by_memory(void **state)
{
    static const struct {
        int64_t B, T, H, samples;
    } rows[] = {{16, 1024, 12, 16}, {6, 2048, 12, 3}, {4, 8192, 32, 1}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_cudnn_shape shape = {.B = rows[i].B,
                                          .T = rows[i].T,
                                          .H = rows[i].H,
                                          .G = rows[i].H,
                                          .D = 64,
                                          .backward = 1};
        struct merak_cudnn_way way;

        assert_true(merak_cudnn_wants(&shape, &way));
        assert_int_equal(way.samples, rows[i].samples);
        shape.backward = 0;
        assert_true(merak_cudnn_wants(&shape, &way));
        assert_int_equal(way.samples, rows[i].B);
    }
}

static void make_line(struct kc *c, bool own, int64_t version, char *line,
                      size_t bytes)
{
    struct merak_cudnn_choice choice = {.own = own};

    c->call.attrs = &c->attrs;
    assert_true(merak_cudnn_shape_of(c->op, &c->call, &choice.shape, NULL));
    choice.way = (struct merak_cudnn_way){.samples = 2,
                                          .workspace_bytes = 512,
                                          .version = version,
                                          .engine = 7,
                                          .n_knobs = 1};
    choice.way.knob[0].type = 24;
    choice.way.knob[0].value = 26;
    merak_cudnn_write(&choice, line, bytes);
}

/* Run with this line in force; is it cuDNN's? */
static bool run_chosen(struct kc *c, const char *line)
{
    struct merak_error err = {.text = ""};
    int before = *runs;

    unsetenv("MERAK_CUDA_ATTENTION");
    assert_int_equal(merak_cudnn_use(&line, 1, &err), MERAK_OK);
    run_on_stand_in(c);
    assert_int_equal(was_done, *runs > before);
    return was_done;
}

static void a_choice_decides(void **state)
{
    struct kc_row row = cudnn_packed(4, 16, 2, 8),
                  other = cudnn_packed(4, 17, 2, 8);
    struct kc c, d;
    char line[1024];

    (void)state;
    kc_create(&c, &row, MERAK_BF16, 1);
    kc_create(&d, &other, MERAK_BF16, 1);
    make_line(&c, true, 0, line, sizeof(line));
    assert_false(run_chosen(&c, line));
    make_line(&c, false, 91900, line, sizeof(line));
    assert_false(run_chosen(&d, line)); /* of another shape */
    assert_true(run_chosen(&c, line));
    assert_int_equal(*runs, 2); /* two samples at once */
    assert_non_null(strstr(cudnn_line, "engine 7"));
    kc_destroy(&c);
    kc_destroy(&d);
}

static void a_choice_of_another_version_is_not_taken(void **state)
{
    struct kc_row row = cudnn_packed(4, 16, 2, 8);
    char line[1024];
    struct kc c;

    (void)state;
    kc_create(&c, &row, MERAK_BF16, 1);
    make_line(&c, false, 91000, line, sizeof(line));
    assert_false(run_chosen(&c, line));
    assert_non_null(strstr(cudnn_line, "calibrate again"));
    kc_destroy(&c);
}

static void lines_are_read_as_they_were_written(void **state)
{
    static const char *const bad[] = {
        "attention flash", "attention own 1 2 3",
        "attention cudnn 2 16 2 2 8 0 48 48 48 16 0 0 0 0 0.5 0",
        "attention cudnn 2 16 2 2 8 0 48 48 48 16 0 0 0 0 0.5 0 91900 3 1 7"};
    struct merak_cudnn_choice choice, back;
    struct merak_error err;
    char line[1024];

    (void)state;
    memset(&choice, 0, sizeof(choice));
    choice.shape = (struct merak_cudnn_shape){4, 16, 4, 2, 8, 3, 1,       2,
                                              3, 4,  5, 6, 7, 8, 1 / 3.0, 1};
    choice.way =
        (struct merak_cudnn_way){2, 1 << 20, 91900, 6, 2, {{24, 26}, {27, -1}}};
    merak_cudnn_write(&choice, line, sizeof(line));
    assert_true(merak_cudnn_is_line(line));
    assert_true(merak_cudnn_read(line, &back));
    assert_memory_equal(&back, &choice, sizeof(choice));
    assert_false(merak_cudnn_is_line("1024 768 768"));
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        assert_int_equal(merak_cudnn_use(&bad[i], 1, &err), MERAK_ERR_FORMAT);
        assert_non_null(strstr(err.text, "calibrate again"));
    }
}

/* --- what goes wrong --------------------------------------------------------
 */

/* Of a call of a gradient, what is done and said. */
static void run_gradient(const struct kc *c)
{
    struct kc mine;

    kc_copy(&mine, c);
    if (strstr(mine.op, "_dx") != NULL)
        run_on_stand_in(&mine);
    kc_destroy(&mine);
}

static void what_fails_is_said_and_left(void **state)
{
    static const struct {
        const char *fault, *says;
        bool done;
    } rows[] = {
        {"create", "cuDNN cannot take this device", false},
        {"version=91001", "cuDNN is older than 9.10.2", false},
        {"version=91500", "multiples of 128 positions", false},
        {"nothing", "cuDNN has none that fits", false},
        {"plan", "engine 7", true}, /* the next one */
        {"", "engine 6", true},     /* 5 is not exact */
    };
    struct kc_row row = cudnn_grouped(1, 12, 2, 2, 8);

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        (void)tear_down(NULL);
        (void)set_up(NULL);
        setenv("MERAK_STAND_IN_CUDNN", rows[i].fault, 1);
        for (int again = 0; again < 2; again++)
            kc_visit_row(&row, MERAK_BF16, run_gradient);
        assert_int_equal(was_done, rows[i].done);
        assert_non_null(strstr(cudnn_line, rows[i].says));
        assert_int_equal(cudnn_told, 1);
    }
}

static void another_generation_computes_forward_alone(void **state)
{
    struct merak_cudnn_shape shape = {.T = 128};
    const char *why;

    (void)state;
    assert_true(merak_cudnn_may(&shape, 91900, 8, &why));
    assert_false(merak_cudnn_may(&shape, 91900, 7, &why));
    shape.backward = 1;
    assert_true(merak_cudnn_may(&shape, 91500, 9, &why));
    assert_false(merak_cudnn_may(&shape, 91900, 8, &why));
    assert_false(merak_cudnn_may(&shape, 91900, 10, &why));
    assert_non_null(strstr(why, "only on compute capability 9"));
}

/* A plan that was made for the own kernel has not the memory. */
static void without_scratch_nothing_is_done(void **state)
{
    struct kc_row row = cudnn_packed(2, 16, 2, 8);
    struct kc c;

    (void)state;
    kc_create(&c, &row, MERAK_BF16, 1);
    c.call.attrs = &c.attrs;
    c.call.scratch_bytes = scratch_of(&c) - 1;
    was_done = true;
    assert_int_equal(attention_packed(&c.call, NULL), MERAK_OK);
    assert_false(was_done);
    assert_non_null(strstr(cudnn_line, "the plan reserves too little"));
    kc_destroy(&c);
}

/* Half of it may be queued: that is no matter of another kernel. */
static void a_call_that_fails_is_an_error(void **state)
{
    struct kc_row row = cudnn_packed(2, 16, 2, 8);
    struct merak_error err;
    struct kc c;

    (void)state;
    setenv("MERAK_STAND_IN_CUDNN", "execute", 1);
    kc_create(&c, &row, MERAK_BF16, 1);
    c.call.scratch_bytes = scratch_of(&c);
    c.call.scratch = malloc(c.call.scratch_bytes);
    assert_int_equal(attention_packed(&c.call, &err), MERAK_ERR_SYSTEM);
    assert_non_null(strstr(err.text, "attention of 2 x 16 positions"));
    assert_non_null(strstr(err.text, "no such luck"));
    free(c.call.scratch);
    kc_destroy(&c);
}

static void a_missing_library_is_said_once(void **state)
{
    struct kc_row row = cudnn_packed(2, 16, 2, 8);
    struct kc c;

    (void)state;
    (void)tear_down(NULL);
    assert_int_equal(merak_cudnn_attention_create("libno_such_cudnn.so.9",
                                                  HOPPER, &cudnn, NULL),
                     MERAK_OK);
    kc_create(&c, &row, MERAK_BF16, 1);
    for (int i = 0; i < 2; i++) {
        run_on_stand_in(&c);
        assert_false(was_done);
    }
    assert_int_equal(cudnn_told, 1);
    assert_non_null(strstr(cudnn_line, "attention runs in Merak's own kernel"));
    kc_destroy(&c);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(graphs_compute_attention),
        TEST(what_it_has_not_is_left_alone),
        TEST(documents_slices_and_masks_are_left_alone),
        TEST(a_mode_decides),
        TEST(samples_are_limited_by_memory),
        TEST(a_choice_decides),
        TEST(a_choice_of_another_version_is_not_taken),
        TEST(lines_are_read_as_they_were_written),
        TEST(what_fails_is_said_and_left),
        TEST(another_generation_computes_forward_alone),
        TEST(without_scratch_nothing_is_done),
        TEST(a_call_that_fails_is_an_error),
        TEST(a_missing_library_is_said_once),
        TEST(the_faster_kernel_is_chosen),
        TEST(few_samples_are_chosen_unless_more_are_faster),
        TEST(what_is_not_the_own_kernels_is_not_chosen),
        TEST(where_nothing_can_be_chosen_nothing_is),
        cmocka_unit_test(cudnn_numbers_are_the_headers),
        cmocka_unit_test(cudnn_takes_the_graphs),
    };

    find_stand_in();
    merak_log_setup("info");
    merak_log_sink(count_line, NULL);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("cudnn", tests, NULL, NULL);
}
