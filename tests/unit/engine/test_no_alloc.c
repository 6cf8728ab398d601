/* SPDX-License-Identifier: Apache-2.0 */
/* test_no_alloc.c - a step allocates nothing
 *
 * malloc() and its like are this program's own.  While steps run, each call on
 * any thread is noted with who made it, and none may be ours.  A library that
 * allocates on the way (UCX does, for what it has in flight) is told of, not
 * refused: its memory is not the plan's to lay out.  What the C library
 * allocates is whose call it was (UCX 1.18 has error numbers put in words).
 */
#include "config.h"

#include "unit/small_plans.h"
#include "unit/test_ranks.h"

#include "kernels/kernels.h"
#include "runtime/engine/engine.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CALLS 4096
#define WARM_UP 3 /* steps: what is made on first use */
#define STEPS 5
#define FRAMES 12

/* --- who allocates ---------------------------------------------------------
 */

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define COUNTS 1

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t align, size_t size);
#else
#define COUNTS 0 /* the sanitizer has its own */
#endif

static atomic_bool counting;
static atomic_int n_calls;
static struct call {
    void *from; /* who called; and who called that, outermost last */
    void *frame[FRAMES];
    int n;
} calls[MAX_CALLS];

static void note(void *from)
{
    int i;

    if (!atomic_load_explicit(&counting, memory_order_relaxed))
        return;
    i = atomic_fetch_add(&n_calls, 1);
    if (i >= MAX_CALLS)
        return;
    calls[i].from = from;
    calls[i].n = backtrace(calls[i].frame, FRAMES);
}

#if COUNTS
void *malloc(size_t size)
{
    note(__builtin_return_address(0));
    return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    note(__builtin_return_address(0));
    return __libc_calloc(n, size);
}

void *realloc(void *old, size_t size)
{
    note(__builtin_return_address(0));
    return __libc_realloc(old, size);
}

void *aligned_alloc(size_t align, size_t size)
{
    note(__builtin_return_address(0));
    return __libc_memalign(align, size);
}

int posix_memalign(void **p, size_t align, size_t size)
{
    note(__builtin_return_address(0));
    *p = __libc_memalign(align, size);
    return *p == NULL ? ENOMEM : 0;
}
#endif

/* libstdc++ is what the C++ among them allocates by: nothing of ours does. */
static bool is_library(const char *file)
{
    static const char *const known[] = {"libuct", "libucp",  "libucs",
                                        "libucm", "libdnnl", "libstdc++"};

    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
        if (strstr(file, known[i]) != NULL)
            return true;
    }
    return false;
}

/* Who called, beyond the C library. */
static void find_caller(const struct call *call, Dl_info *info)
{
    int at = 0;

    while (at < call->n && call->frame[at] != call->from)
        at++;
    *info = (Dl_info){0};
    (void)dladdr(call->from, info);
    while (info->dli_fname != NULL &&
           strstr(info->dli_fname, "/libc.so") != NULL && ++at < call->n) {
        *info = (Dl_info){0};
        (void)dladdr(call->frame[at], info);
    }
}

/* How many calls were not a known library's; says whose they were. */
static int count_ours(const char *what)
{
    int n = atomic_load(&n_calls), ours = 0, theirs = 0;

    for (int i = 0; i < n && i < MAX_CALLS; i++) {
        Dl_info info;

        find_caller(&calls[i], &info);
        if (info.dli_fname != NULL && is_library(info.dli_fname)) {
            theirs++;
            continue;
        }
        ours++;
        fprintf(stderr, "# %s: allocated by %s in %s\n", what,
                info.dli_sname == NULL ? "?" : info.dli_sname,
                info.dli_fname == NULL ? "?" : info.dli_fname);
    }
    if (theirs > 0)
        fprintf(stderr, "# %s: %d allocations of libraries\n", what, theirs);
    return n > MAX_CALLS ? n : ours;
}

/* --- steps -----------------------------------------------------------------
 */

struct row {
    const char *name;
    struct merak_plan plan;
};

static struct row rows[] = {
    {"one rank", {.tp = 1, .pp = 1, .dp = 1, .threads = 2}},
    {"two stages", {.tp = 1, .pp = 2, .dp = 1, .threads = 1}},
    {"tensor parallel", {.tp = 2, .pp = 1, .dp = 1, .threads = 1}},
    {"data parallel", {.tp = 1, .pp = 1, .dp = 2, .threads = 1, .zero = 1}},
};

static enum merak_status load_input(void *arg, const struct merak_load *load,
                                    void *out, struct merak_error *err)
{
    (void)arg;
    (void)err;
    planned_ids(load->microbatch, out);
    return MERAK_OK;
}

static void run_steps(struct merak_engine *engine)
{
    struct merak_step step = planned_step;

    for (step.step = 0; step.step < WARM_UP + STEPS; step.step++) {
        enum merak_status rc;

        atomic_store(&counting, step.step >= WARM_UP);
        rc = merak_engine_run(engine, &step, ERR);
        atomic_store(&counting, false);
        CHECK_OK(rc);
    }
}

/* On each rank; the arena has room for any of the plans. */
static void run_row(struct rank *me, const void *arg)
{
    const struct row *row = arg;
    const struct small_model model = {
        .layers = 2, .vocab = 61, .hidden = 32, .heads = 4};
    const struct merak_backend *backend;
    struct merak_program_options po = {.unit_s = 0};
    struct merak_engine_options eo = {.tr = me->tr,
                                      .transport_rank = me->rank_of,
                                      .arena = me->arena.base,
                                      .load = load_input,
                                      .deadline_s = 300};
    struct merak_plan plan = row->plan;
    struct merak_planned *planned;
    struct merak_engine *engine;

    CHECK_OK(merak_backend_find("cpu", &backend, ERR));
    CHECK_OK(backend->open(plan.threads, ERR));
    po.memory = merak_backend_memory(backend);
    plan.microbatches = 4;
    strcpy(plan.schedule, "1f1b");
    planned = planned_build(&model, &plan, &po);
    CHECK(planned->program[me->all.me]->arena_bytes <= me->arena.bytes);
    eo.backend = backend;
    CHECK_OK(
        merak_engine_create(planned->program[me->all.me], &eo, &engine, ERR));
    run_steps(engine);
    merak_engine_destroy(engine);
    merak_planned_destroy(planned);
    CHECK(count_ours(row->name) == 0);
}

static void a_step_allocates_nothing(void **state)
{
    const struct row *row = *state;
    const struct setup setup = {.n = row->plan.tp * row->plan.pp * row->plan.dp,
                                .arena = true};

    if (!COUNTS)
        skip();
    assert_int_equal(run_ranks(&setup, run_row, row), 0);
}

/* --- what was reserved -----------------------------------------------------
 */

/* A sum that takes many fragments, by messages: the first one after a small
 * one, which makes the endpoints. */
static void run_reserved(struct rank *me, const void *arg)
{
    size_t n = *(const size_t *)arg;
    double *few = calloc(16, sizeof(*few)), *many = calloc(n, sizeof(*many));
    struct merak_exchange ex = {.kind = MERAK_CONVERT_ALL_REDUCE,
                                .combine = MERAK_SUM,
                                .dtype = MERAK_F64,
                                .n = me->all.n,
                                .me = me->all.me,
                                .in = {.ndim = 1, .dim = {n}},
                                .out = {.ndim = 1, .dim = {n}}};
    void *scratch = malloc(n * sizeof(*many));
    struct merak_request *req;
    enum merak_status rc;

    CHECK(few != NULL && many != NULL && scratch != NULL);
    CHECK_OK(merak_transport_reserve(me->tr, 0, 1, me->all.n, ERR));
    CHECK_OK(merak_all_reduce_sum(me->tr, &me->all, few, 16, ERR));
    atomic_store(&n_calls, 0);
    atomic_store(&counting, true);
    rc = merak_exchange(me->tr, &me->all, &ex, many, many, scratch, 5, &req,
                        ERR);
    if (rc == MERAK_OK)
        rc = merak_request_wait(me->tr, req, ERR);
    atomic_store(&counting, false);
    CHECK_OK(rc);
    free(few);
    free(many);
    free(scratch);
    CHECK(count_ours("reserved") == 0);
}

/* Two sums that are too long for a small message. */
static void run_sums(struct rank *me, const void *arg)
{
    static double many[5000];

    (void)arg;
    CHECK_OK(merak_all_reduce_sum(me->tr, &me->all, many, 5000, ERR));
    atomic_store(&n_calls, 0);
    atomic_store(&counting, true);
    CHECK_OK(merak_all_reduce_sum(me->tr, &me->all, many, 4999, ERR));
    atomic_store(&counting, false);
    CHECK(count_ours("sums") == 0);
}

static void what_was_reserved_is_enough(void **state)
{
    static const size_t n = (size_t)1 << 19;

    (void)state;
    if (!COUNTS)
        skip();
    for (int ranks = 2; ranks <= 5; ranks++)
        assert_int_equal(
            run_ranks(&(struct setup){.n = ranks}, run_reserved, &n), 0);
}

static void only_the_first_sum_allocates(void **state)
{
    (void)state;
    if (!COUNTS)
        skip();
    for (int ranks = 2; ranks <= 3; ranks++)
        assert_int_equal(run_ranks(&(struct setup){.n = ranks}, run_sums, NULL),
                         0);
}

/* The test can fail: a call is seen, and is ours. */
static void an_allocation_is_seen(void **state)
{
    char *volatile copy; /* or a compiler leaves both calls out */

    (void)state;
    if (!COUNTS)
        skip();
    atomic_store(&n_calls, 0);
    atomic_store(&counting, true);
    copy = strdup("seen");
    free(copy);
    atomic_store(&counting, false);
    assert_int_equal(count_ours("on purpose"), 1);
    atomic_store(&n_calls, 0);
}

int main(void)
{
    struct CMUnitTest tests[3 + sizeof(rows) / sizeof(rows[0])] = {
        cmocka_unit_test(an_allocation_is_seen),
        cmocka_unit_test(what_was_reserved_is_enough),
        cmocka_unit_test(only_the_first_sum_allocates)};
    static char name[sizeof(rows) / sizeof(rows[0])][64];
    void *frame;

    (void)backtrace(&frame, 1); /* the first one loads what it needs */
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        snprintf(name[i], sizeof(name[i]), "a step allocates nothing: %s",
                 rows[i].name);
        tests[3 + i] = (struct CMUnitTest){name[i], a_step_allocates_nothing,
                                           NULL, NULL, &rows[i]};
    }
    return cmocka_run_group_tests_name("no_alloc", tests, NULL, NULL);
}
