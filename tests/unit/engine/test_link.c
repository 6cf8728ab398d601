/* SPDX-License-Identifier: Apache-2.0 */
/* test_link.c - what is moved between accelerators, without any
 *
 * The module merak_nccl.so drives a stand-in for NCCL (stand_in_nccl.c) that
 * works on the fake device's queues and is held up at random.  Exchanges are
 * compared with a serial one, and weights after some steps with those of hosts
 * that exchange by UCX: to the bit.
 */
#include "config.h"

#include "unit/engine/accel_train.h"
#include "unit/all_rows.h"
#include "unit/engine/event_order.h"
#include "unit/serial_exchange.h"
#include "unit/engine/stand_in_path.h"
#include "unit/test_ranks.h"

#include "base/size.h"
#include "partitioner/program/streams.h"
#include "runtime/engine/engine.h"
#include "runtime/link/link.h"

#include <dlfcn.h>
#include <signal.h>

#define SEEDS 2 /* MERAK_TEST_SEEDS: others */
#define N_FATES (sizeof(fates) / sizeof(*fates))
#define N_OTHERS 6 /* tests that have no rows */

static const struct merak_link_ops *nccl(void)
{
    const struct merak_link_ops *ops = NULL;

    CHECK_OK(merak_link_load("nccl", &ops, ERR));
    return ops;
}

static const struct merak_accel_ops *fake(void)
{
    const struct merak_backend *b;

    CHECK_OK(merak_backend_find("fake", &b, ERR));
    return b->accel;
}

static int seeds(void)
{
    const char *text = getenv("MERAK_TEST_SEEDS");

    return text != NULL ? atoi(text) : SEEDS;
}

/* --- exchanges --------------------------------------------------------------
 */

/* A program of all rows' exchanges among all ranks, to make a link of. */
struct all_rows {
    struct merak_program program;
    struct merak_group group;
    struct merak_instr *instr;
    struct merak_exchange *ex;
};

static void all_rows_init(struct all_rows *a, const struct rank *me)
{
    a->instr = calloc(n_exchange_rows, sizeof(*a->instr));
    a->ex = calloc(n_exchange_rows, sizeof(*a->ex));
    CHECK(a->instr != NULL && a->ex != NULL);
    a->group = (struct merak_group){.n = me->all.n,
                                    .me = me->all.me,
                                    .rank = (int *)(uintptr_t)me->rank_of};
    a->program = (struct merak_program){.rank = me->all.me,
                                        .instr = a->instr,
                                        .n_instrs = (int)n_exchange_rows,
                                        .group = &a->group,
                                        .n_groups = 1};
    for (size_t i = 0; i < n_exchange_rows; i++) {
        exchange_make(&a->ex[i], &exchange_rows[i], me->all.n, me->all.me);
        a->instr[i] = (struct merak_instr){.kind = MERAK_INSTR_EXCHANGE,
                                           .exchange = &a->ex[i]};
    }
}

static void all_rows_fini(struct all_rows *a)
{
    for (size_t i = 0; i < n_exchange_rows; i++)
        merak_exchange_fini(&a->ex[i]);
    free(a->ex);
    free(a->instr);
}

/* A rank's device, with room for any row's operands. */
struct device {
    struct merak_accel *accel;
    struct merak_event *event;
    struct merak_link *link;
    unsigned char *memory;
    int comm;
};

#define DEVICE_BYTES ((size_t)32 << 20)
#define GUARD 64

static void device_open(struct device *d, struct rank *me,
                        const struct all_rows *rows, bool fast, size_t fragment)
{
    const struct merak_program *program = &rows->program;
    const struct merak_link_options opt = {.ops = nccl(),
                                           .boot = me->boot,
                                           .tr = me->tr,
                                           .transport_rank = me->rank_of,
                                           .program = &program,
                                           .n_programs = 1,
                                           .deadline_s = 60,
                                           .fragment_bytes = fragment,
                                           .fast = fast};
    struct merak_link_options mine = opt;
    void *memory;

    CHECK_OK(fake()->open(0, MERAK_STREAMS, 1, &d->accel, ERR));
    CHECK_OK(fake()->event_create(d->accel, &d->event, ERR));
    CHECK_OK(fake()->alloc(d->accel, DEVICE_BYTES, &memory, ERR));
    d->memory = memory;
    mine.accel = d->accel;
    mine.trial = memory;
    mine.trial_bytes = MERAK_LINK_TRIAL_BYTES;
    CHECK_OK(merak_link_open(&mine, &d->link, ERR));
    d->comm = merak_link_team(d->link, &me->all);
    CHECK(d->comm >= 0);
}

static void device_close(struct device *d)
{
    merak_link_close(d->link);
    fake()->event_destroy(d->accel, d->event);
    fake()->free(d->accel, d->memory);
    fake()->close(d->accel);
}

static void wait_until_empty(struct device *d)
{
    CHECK_OK(fake()->record(d->accel, MERAK_QUEUE_COLLECTIVE, d->event, ERR));
    CHECK_OK(accel_settle(d->accel, d->event, ERR));
}

/* Run one; what this member got, from malloc. */
static unsigned char *exchange(struct device *d,
                               const struct merak_exchange *ex, bool in_place)
{
    size_t es = merak_dtype_bytes(ex->dtype);
    size_t in = merak_shape_count(&ex->in) * es;
    size_t out = merak_shape_count(&ex->out) * es;
    size_t at_out = exchange_out_at(ex, in_place);
    size_t at_scratch = merak_size_align(in, 64) + merak_size_align(out, 64);
    size_t end = at_scratch + merak_link_scratch(d->link, ex);
    const struct merak_link_call call = {.ex = ex,
                                         .in = d->memory,
                                         .out = d->memory + at_out,
                                         .scratch = d->memory + at_scratch,
                                         .queue = MERAK_QUEUE_COLLECTIVE};
    unsigned char *host = malloc(in > out ? in : out), guard[GUARD];
    int q = MERAK_QUEUE_COLLECTIVE;

    CHECK(host != NULL && end + GUARD <= DEVICE_BYTES);
    exchange_bring(host, ex, ex->me);
    CHECK_OK(fake()->fill(d->accel, q, d->memory, 0x5a, end + GUARD, ERR));
    CHECK_OK(fake()->write(d->accel, q, d->memory, host, in, ERR));
    CHECK_OK(merak_link_exchange(d->link, d->comm, &call, 1, ERR));
    wait_until_empty(d); /* `host` is borrowed until then */
    CHECK_OK(fake()->read(d->accel, q, host, d->memory + at_out, out, ERR));
    CHECK_OK(fake()->read(d->accel, q, guard, d->memory + end, GUARD, ERR));
    wait_until_empty(d);
    for (int i = 0; i < GUARD; i++)
        CHECK(guard[i] == 0x5a);
    return host;
}

static void run_rows(struct rank *me, const void *arg)
{
    const size_t *fragment = arg;
    struct all_rows rows;
    struct device d;

    all_rows_init(&rows, me);
    device_open(&d, me, &rows, false, *fragment);
    for (size_t i = 0; i < n_exchange_rows; i++) {
        const struct merak_exchange *ex = &rows.ex[i];
        size_t n = merak_shape_count(&ex->out);
        unsigned char *got = exchange(&d, ex, false), *again = got;

        exchange_check(ex, got, &exchange_rows[i]);
        if (exchange_in_place(ex))
            again = exchange(&d, ex, true);
        CHECK(memcmp(again, got, n * merak_dtype_bytes(ex->dtype)) == 0);
        free(again != got ? again : NULL);
        free(got);
    }
    device_close(&d);
    all_rows_fini(&rows);
}

static void exchanges_match_the_serial_one(void **state)
{
    static const struct {
        int n;
        size_t fragment;
    } rows[] = {{3, 0}, {3, 65536}, {2, 4096 * 33}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct setup setup = {.n = rows[i].n, .deadline_s = 60};

        assert_int_equal(run_ranks(&setup, run_rows, &rows[i].fragment), 0);
    }
}

/* --reduce fast: whole numbers come to the same, others to other bits, which
 * shows that the sums are the library's; what only moves is exact. */
static void run_fast(struct rank *me, const void *arg)
{
    struct all_rows rows;
    struct device d[2];
    int other = 0;

    (void)arg;
    all_rows_init(&rows, me);
    for (int k = 0; k < 2; k++)
        device_open(&d[k], me, &rows, k != 0, 0);
    for (size_t i = 0; i < n_exchange_rows; i++) {
        const struct merak_exchange *ex = &rows.ex[i];
        size_t bytes =
            merak_shape_count(&ex->out) * merak_dtype_bytes(ex->dtype);
        unsigned char *got[3];
        bool same;

        if (bytes > 1 << 16)
            continue;
        for (int k = 0; k < 3; k++) /* the third in place, if it may be */
            got[k] = exchange(&d[k > 0], ex, k == 2 && exchange_in_place(ex));
        same = memcmp(got[0], got[1], bytes) == 0;
        CHECK(same || (ex->combine == MERAK_SUM && ex->dtype != MERAK_I32));
        other += !same;
        CHECK(memcmp(got[1], got[2], bytes) == 0);
        for (int k = 0; k < 3; k++)
            free(got[k]);
    }
    CHECK(other > 2);
    for (int k = 0; k < 2; k++)
        device_close(&d[k]);
    all_rows_fini(&rows);
}

static void fast_sums_are_the_librarys(void **state)
{
    const struct setup setup = {.n = 3, .deadline_s = 60};

    (void)state;
    assert_int_equal(run_ranks(&setup, run_fast, NULL), 0);
}

/* --- programs ---------------------------------------------------------------
 */

static void compare_rank(struct rank *me, const void *arg)
{
    const struct accel_row *row = arg;
    struct accel_how how = {.fake = false};
    const struct merak_backend *cpu;
    struct merak_planned *planned;
    const struct merak_program *p;
    unsigned char *want;
    size_t bytes;

    CHECK_OK(merak_backend_find("cpu", &cpu, ERR));
    CHECK_OK(cpu->open(1, ERR));
    planned = accel_build(row, cpu, true);
    p = planned->program[me->all.me];
    want = accel_train(me, p, &how, &bytes);
    how = (struct accel_how){
        .fake = true, .link = nccl(), .opened = event_order_watch};
    for (int seed = 0; seed < seeds(); seed++) {
        unsigned char *got;
        size_t n;

        how.seed = seed * 64 + me->all.me;
        /* two members' sums have one order only */
        how.times = seed % 2 == 1;
        how.fast = row->tp == 2 && row->dp == 1 && !row->bf16 && seed == 1;
        got = accel_train(me, p, &how, &n);
        CHECK(n == bytes);
        CHECK(event_order_early() == 0);
        if (memcmp(got, want, bytes) != 0) {
            fprintf(stderr, "%s: rank %d differs with seed %d\n", row->name,
                    me->all.me, how.seed);
            _exit(1);
        }
        free(got);
    }
    free(want);
    merak_planned_destroy(planned);
}

/* Whatever the delays, weights are those of hosts that exchange by UCX. */
static void weights_are_those_of_hosts(void **state)
{
    const struct accel_row *row = *state;
    const struct setup setup = {
        .n = accel_ranks(row), .arena = true, .deadline_s = 60};

    assert_int_equal(run_ranks(&setup, compare_rank, row), 0);
}

/* --- what goes wrong --------------------------------------------------------
 */

struct fate {
    const char *name;
    int row;            /* of accel_rows */
    const char *faults; /* of rank 1's stand-in */
    bool killed;        /* rank 1 is */
    double deadline_s;
    const char *text; /* that one of the statuses comes with */
    int microbatches; /* 0: the row's */
    bool stopped;     /* rank 0 is, while rank 1 gives up and ends */
};

/* Moves of one rank: some of the rehearsal, then of the first step. */
static const struct fate fates[] = {
    {"a move that never ends, tensor parallel", 6, "stall=9", false, 2, " 2 s",
     0, false},
    {"a move that never ends, two stages", 1, "stall=6", false, 2, " 2 s", 0,
     false},
    {"a communicator that fails, tensor parallel", 6, "error=9", false, 60,
     "NCCL can", 0, false},
    {"a communicator that fails, two stages", 1, "error=6", false, 60,
     "NCCL can", 0, false},
    {"a rank that is killed, tensor parallel", 6, "", true, 60,
     "rank 1 on node0 is gone", 0, false},
    {"a rank that is killed, two stages", 1, "", true, 60,
     "rank 1 on node0 is gone", 0, false},
    {"a move that never ends, ZeRO-3", 12, "stall=9", false, 2, " 2 s", 0,
     false},
    {"a rank that is killed, ZeRO-3", 12, "", true, 60,
     "rank 1 on node0 is gone", 0, false},
    /* what hosts wait to hear of depends on exchanges that do not end */
    {"a move that never ends, rows of experts", 21, "stall=16", false, 2,
     " timed out after 2 s", 0, false},
    {"a move that never ends, rows of a later micro-batch", 21, "stall=40",
     false, 2, " timed out after 2 s", 0, false},
    {"a rank that is killed, rows of experts", 21, "", true, 60,
     "rank 1 on node0 is gone", 0, false},
    /* a step of more operations than the device's queues hold */
    {"a move that never ends before a long queue, tensor parallel", 6,
     "stall=9", false, 2, " timed out after 2 s", 24, false},
    {"a move that never ends before a long queue, two stages", 1, "stall=6",
     false, 2, " timed out after 2 s", 24, false},
    /* what its peer said last is there when it finds that the peer is gone */
    {"a rank without a core while its peer gives up, ZeRO-3", 12, "stall=9",
     false, 2, " 2 s", 0, true},
};

#define FATAL_STEP 2

/* Of rank 1 where it is to be killed. */
static const uint64_t *victims_step;

static enum merak_status load_input(void *arg, const struct merak_load *load,
                                    void *out, struct merak_error *err)
{
    (void)arg;
    (void)err;
    if (victims_step != NULL && *victims_step == FATAL_STEP &&
        load->microbatch == 1)
        raise(SIGKILL);
    planned_ids(load->microbatch, out);
    return MERAK_OK;
}

/* How steps end that do not go on for ever. */
static enum merak_status run_steps(struct rank *me, const struct fate *fate,
                                   const struct merak_program *p,
                                   struct merak_accel *accel, void *arena,
                                   struct merak_link *link)
{
    struct merak_engine_options eo = {.tr = me->tr,
                                      .transport_rank = me->rank_of,
                                      .accel = accel,
                                      .staging = me->arena.base,
                                      .link = link,
                                      .load = load_input,
                                      .deadline_s = fate->deadline_s};
    struct merak_step step = planned_step;
    enum merak_status rc = MERAK_OK;
    struct merak_engine *engine;

    CHECK_OK(merak_backend_find("fake", &eo.backend, ERR));
    eo.arena = arena;
    CHECK_OK(fake()->fill(accel, 0, arena, 0, p->arena_bytes, ERR));
    CHECK_OK(merak_engine_create(p, &eo, &engine, ERR));
    if (fate->killed && me->all.me == 1)
        victims_step = &step.step;
    for (; rc == MERAK_OK; step.step++)
        rc = merak_engine_run(engine, &step, ERR);
    merak_engine_destroy(engine);
    return rc;
}

static void meet_fate(struct rank *me, const void *arg)
{
    const struct fate *fate = arg;
    const struct merak_backend *cpu;
    struct merak_planned *planned;
    struct accel_row row = accel_rows[fate->row];
    struct merak_link *link = NULL;
    struct merak_accel *accel;
    const struct merak_program *p;
    struct merak_link_options lo = {.ops = nccl(),
                                    .boot = me->boot,
                                    .tr = me->tr,
                                    .transport_rank = me->rank_of,
                                    .n_programs = 1,
                                    .deadline_s = 60};
    enum merak_status rc;

    if (me->all.me == 1)
        setenv("MERAK_STAND_IN", fate->faults, 1);
    CHECK_OK(merak_backend_find("cpu", &cpu, ERR));
    CHECK_OK(cpu->open(1, ERR));
    if (fate->microbatches > 0)
        row.microbatches = fate->microbatches;
    planned = accel_build(&row, cpu, true);
    p = planned->program[me->all.me];
    CHECK_OK(fake()->open(0, MERAK_STREAMS, 1, &accel, ERR));
    CHECK_OK(fake()->alloc(accel, p->arena_bytes, &lo.trial, ERR));
    lo.trial_bytes = p->arena_bytes;
    lo.accel = accel;
    lo.program = &p;
    CHECK_OK(merak_link_open(&lo, &link, ERR));
    if (fate->stopped && me->all.me == 0)
        stop_rank(getpid());
    rc = run_steps(me, fate, p, accel, lo.trial, link);
    if (strstr(test_error.text, fate->text) == NULL) {
        fprintf(stderr, "rank %d: %s: %s\n", me->all.me, merak_status_name(rc),
                test_error.text);
        _exit(1);
    }
    merak_link_close(link);
    fake()->close(accel);
    merak_planned_destroy(planned);
}

/* All ranks end, with what happened. */
static void all_ranks_hear_of_it(void **state)
{
    const struct fate *fate = *state;
    const struct setup setup = {.n = 2, .arena = true, .deadline_s = 60};

    if (fate->stopped && !test_all_rows())
        skip(); /* a machine with other work may give it too little time */
    assert_int_equal(run_ranks(&setup, meet_fate, fate), fate->killed ? 1 : 0);
}

static void fail_to_join(struct rank *me, const void *arg)
{
    struct merak_link_options opt = {.ops = nccl(),
                                     .boot = me->boot,
                                     .tr = me->tr,
                                     .transport_rank = me->rank_of,
                                     .n_programs = 1,
                                     .deadline_s = 60};
    const struct merak_program *p;
    struct merak_link *link = NULL;
    struct all_rows rows;

    if (me->all.me == 1)
        setenv("MERAK_STAND_IN", arg, 1);
    all_rows_init(&rows, me);
    p = &rows.program;
    opt.program = &p;
    CHECK_OK(fake()->open(0, MERAK_STREAMS, 1, &opt.accel, ERR));
    opt.trial_bytes = MERAK_LINK_TRIAL_BYTES;
    CHECK_OK(fake()->alloc(opt.accel, opt.trial_bytes, &opt.trial, ERR));
    CHECK(merak_link_open(&opt, &link, ERR) != MERAK_OK);
    if (strcmp(arg, "init") == 0)
        CHECK(strstr(test_error.text, "unhandled system error") != NULL);
    else
        CHECK(strstr(test_error.text,
                     "is NCCL 2.25.9, and transport nccl needs 2.26") != NULL);
    fake()->close(opt.accel);
    all_rows_fini(&rows);
}

/* One of them cannot: none goes on, and all say why. */
static void a_rank_that_cannot_join_is_not_waited_for(void **state)
{
    const struct setup setup = {.n = 3, .deadline_s = 60};

    (void)state;
    assert_int_equal(run_ranks(&setup, fail_to_join, "init"), 0);
    assert_int_equal(run_ranks(&setup, fail_to_join, "version=22509"), 0);
}

/* --- the library ------------------------------------------------------------
 */

static void libraries_that_cannot_serve_are_refused(void **state)
{
    struct merak_link_library *library;
    char about[256];
    struct merak_error err;

    (void)state;
    assert_int_equal(nccl()->open(MERAK_STREAMS_CUDA, &library, about, &err),
                     MERAK_ERR_CONFIG);
    assert_non_null(strstr(err.text, "unset MERAK_NCCL_LIBRARY"));
    setenv("MERAK_NCCL_LIBRARY", "/nowhere/libnccl.so.2", 1);
    assert_int_equal(nccl()->open(MERAK_STREAMS_CUDA, &library, about, &err),
                     MERAK_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "NCCL cannot be loaded (/nowhere"));
    setenv("MERAK_NCCL_LIBRARY", "libc.so.6", 1);
    assert_int_equal(nccl()->open(MERAK_STREAMS_CUDA, &library, about, &err),
                     MERAK_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "libc.so.6 has no ncclGetVersion"));
    stand_in_use();
}

/* NCCL itself, where it is installed: it opens and makes ids without a GPU,
 * says what is missing then, and has no business with the fake device. */
static int open_nccl_itself(struct merak_boot *boot, void *arg)
{
    struct merak_link_library *library;
    struct merak_link_join how = {.n = 2};
    struct merak_link_comm *comm;
    struct merak_link_id other;
    char about[256];

    (void)boot;
    (void)arg;
    unsetenv("MERAK_NCCL_LIBRARY");
    CHECK(nccl()->open(MERAK_STREAMS_FAKE, &library, about, ERR) ==
          MERAK_ERR_CONFIG);
    CHECK(strstr(test_error.text, "this backend's device is not one") != NULL);
    CHECK_OK(nccl()->open(MERAK_STREAMS_CUDA, &library, about, ERR));
    CHECK(strncmp(about, "NCCL 2.", 7) == 0);
    CHECK_OK(nccl()->make_id(library, &how.id, ERR));
    CHECK_OK(nccl()->make_id(library, &other, ERR));
    CHECK(memcmp(&how.id, &other, sizeof(other)) != 0);
    if (access("/dev/nvidiactl", F_OK) == 0)
        return 0;
    CHECK(nccl()->join(library, &how, &comm, ERR) == MERAK_ERR_SYSTEM);
    CHECK(strstr(test_error.text, "NCCL cannot begin a communicator") != NULL);
    return 0;
}

static int find_nccl_itself(struct merak_boot *boot, void *arg)
{
    (void)boot;
    (void)arg;
    return dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL) == NULL;
}

/* In processes of its own: NCCL has threads, and what is forked beside those
 * may not be whole. */
static void nccl_itself_opens(void **state)
{
    (void)state;
    if (fork_ranks(1, NULL, 120, find_nccl_itself, NULL) != 0)
        skip(); /* not installed */
    assert_int_equal(fork_ranks(1, NULL, 120, open_nccl_itself, NULL), 0);
}

int main(void)
{
    struct CMUnitTest tests[N_OTHERS + N_ACCEL_ROWS + N_FATES] = {
        cmocka_unit_test(exchanges_match_the_serial_one),
        cmocka_unit_test(fast_sums_are_the_librarys),
        cmocka_unit_test(a_rank_that_cannot_join_is_not_waited_for),
        cmocka_unit_test(libraries_that_cannot_serve_are_refused),
        cmocka_unit_test(nccl_itself_opens),
        cmocka_unit_test(accel_leaves_out_what_no_row_needs),
    };

    stand_in_use();
    for (size_t i = 0; i < N_ACCEL_ROWS; i++) {
        tests[N_OTHERS + i] = (struct CMUnitTest){
            .name = accel_rows[i].name,
            .test_func = weights_are_those_of_hosts,
            .initial_state = (void *)(uintptr_t)&accel_rows[i],
        };
    }
    for (size_t i = 0; i < N_FATES; i++) {
        tests[N_OTHERS + N_ACCEL_ROWS + i] = (struct CMUnitTest){
            .name = fates[i].name,
            .test_func = all_ranks_hear_of_it,
            .initial_state = (void *)(uintptr_t)&fates[i],
        };
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("links", tests, NULL, NULL);
}
