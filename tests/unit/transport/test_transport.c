/* SPDX-License-Identifier: Apache-2.0 */
/* test_transport.c - boots, messages, waiting, and the blocking collectives */
#include "config.h"

#include "unit/near.h"
#include "unit/transport/setups.h"

static const size_t sizes[] = {0,    1,    7,     1024,    4096,         8191,
                               8192, 8193, 65537, 1 << 20, (2 << 20) + 3};
#define N_SIZES (sizeof(sizes) / sizeof(*sizes))
#define MAX_BYTES ((size_t)(2 << 20) + 64)

static unsigned char pattern(int from, int to, size_t size, size_t i)
{
    return (unsigned char)(i * 31 + i / 256 + size * 7 + (size_t)from * 101 +
                           (size_t)to * 53);
}

static void fill(unsigned char *p, int from, int to, size_t size)
{
    for (size_t i = 0; i < size; i++)
        p[i] = pattern(from, to, size, i);
}

static void check_filled(const unsigned char *p, int from, int to, size_t size)
{
    for (size_t i = 0; i < size; i++)
        CHECK(p[i] == pattern(from, to, size, i));
    CHECK(p[size] == 0xee); /* nothing behind it */
}

/* All ranks send one size to all, themselves too; odd ranks receive first,
 * even ones send first, and half of them wait in reverse. */
static void swap_with_all(struct rank *me, size_t size, bool in_arena)
{
    struct merak_request *req[16];
    int n = me->all.n, self = me->all.me, k = 0;
    unsigned char *out = in_arena ? me->arena.base : malloc(5 * MAX_BYTES);
    unsigned char *in = in_arena ? out + 5 * MAX_BYTES : malloc(5 * MAX_BYTES);

    for (int q = 0; q < n; q++) {
        fill(out + (size_t)q * MAX_BYTES, self, q, size);
        in[(size_t)q * MAX_BYTES + size] = 0xee;
    }
    for (int half = 0; half < 2; half++) {
        for (int q = 0; q < n; q++, k++) {
            size_t at = (size_t)q * MAX_BYTES;

            if (half == self % 2)
                CHECK_OK(
                    merak_send(me->tr, out + at, size, q, size, &req[k], ERR));
            else
                CHECK_OK(
                    merak_recv(me->tr, in + at, size, q, size, &req[k], ERR));
        }
    }
    for (int i = 0; i < k; i++)
        CHECK_OK(
            merak_request_wait(me->tr, req[size % 2 ? i : k - 1 - i], ERR));
    for (int q = 0; q < n; q++)
        check_filled(in + (size_t)q * MAX_BYTES, q, self, size);
    if (!in_arena) {
        free(out);
        free(in);
    }
}

static void sizes_and_orders(struct rank *me, const void *arg)
{
    (void)arg;
    for (size_t i = 0; i < N_SIZES; i++) {
        swap_with_all(me, sizes[i], i % 2 == 0);
        swap_with_all(me, sizes[i], i % 2 != 0);
    }
}

static void messages_arrive_whole(void **state)
{
    (void)state;
    on_all_setups(sizes_and_orders);
}

/* Long and short ones under one tag, received late by the second rank. */
static void same_tag(struct rank *me, const void *arg)
{
    struct merak_request *req[12];
    unsigned char *buf = me->arena.base;

    (void)arg;
    if (me->all.me > 1)
        return;
    for (int i = 0; i < 12; i++) {
        size_t size = i % 3 == 0 ? 100000 : (size_t)i;
        unsigned char *p = buf + (size_t)i * 131072;

        if (me->all.me == 0) {
            fill(p, i, 1, size);
            CHECK_OK(merak_send(me->tr, p, size, 1, 5, &req[i], ERR));
        } else {
            if (i == 0)
                usleep(20000);
            p[size] = 0xee;
            CHECK_OK(merak_recv(me->tr, p, size, 0, 5, &req[i], ERR));
        }
    }
    for (int i = 0; i < 12; i++) {
        CHECK_OK(merak_request_wait(me->tr, req[i], ERR));
        if (me->all.me == 1)
            check_filled(buf + (size_t)i * 131072, i, 1,
                         i % 3 == 0 ? 100000 : (size_t)i);
    }
}

static void one_tag_keeps_its_order(void **state)
{
    (void)state;
    on_all_setups(same_tag);
}

static void wrong_sizes(struct rank *me, const void *arg)
{
    static const size_t sent[] = {10, 30, 20000, 40000};
    static const size_t expected[] = {20, 20, 30000, 30000};
    struct merak_request *req;

    (void)arg;
    for (size_t i = 0; i < 4; i++) {
        if (me->all.me == 0) {
            CHECK_OK(
                merak_send(me->tr, me->arena.base, sent[i], 1, i, &req, ERR));
            continue; /* an offer nobody takes is never over */
        }
        enum merak_status rc =
            merak_recv(me->tr, me->arena.base, expected[i], 0, i, &req, ERR);

        if (rc == MERAK_OK)
            rc = merak_request_wait(me->tr, req, ERR);
        CHECK(rc == MERAK_ERR_PEER);
        CHECK(strstr(test_error.text, "rank 0") != NULL);
    }
    CHECK_OK(merak_barrier(me->tr, &me->all, ERR));
}

static void a_message_of_wrong_size_is_refused(void **state)
{
    static const struct setup rows[] = {{NULL, 2, NULL, true, 0},
                                        {NULL, 2, NULL, false, 0},
                                        {"tcp,self", 2, own_nodes, true, 0}};

    (void)state;
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(run_ranks(&rows[i], wrong_sizes, NULL), 0);
}

/* --- waiting -------------------------------------------------------------- */

static void never_sent(struct rank *me, const void *arg)
{
    struct merak_request *req;
    double start = seconds(CLOCK_MONOTONIC);
    int other = 1 - me->all.me;
    char buf[64];

    (void)arg;
    CHECK_OK(merak_recv(me->tr, buf, sizeof(buf), other, 9, &req, ERR));
    CHECK(merak_request_wait(me->tr, req, ERR) == MERAK_ERR_TIMEOUT);
    CHECK(seconds(CLOCK_MONOTONIC) - start >= 0.3); /* later if others have
                                                       the cores */
    CHECK(strstr(test_error.text, other ? "from rank 1" : "from rank 0"));
}

static void a_wait_ends_at_its_deadline(void **state)
{
    static const struct setup rows[] = {{NULL, 2, NULL, true, 0.3},
                                        {"tcp,self", 2, NULL, true, 0.3}};

    (void)state;
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(run_ranks(&rows[i], never_sent, NULL), 0);
}

static void late_sender(struct rank *me, const void *arg)
{
    struct merak_request *req;
    double start;

    (void)arg;
    CHECK_OK(merak_barrier(me->tr, &me->all, ERR));
    if (me->all.me == 1) {
        sleep(1);
        CHECK_OK(merak_send(me->tr, me->arena.base, 100, 0, 1, &req, ERR));
    } else {
        CHECK_OK(merak_recv(me->tr, me->arena.base, 100, 1, 1, &req, ERR));
    }
    start = seconds(CLOCK_PROCESS_CPUTIME_ID);
    CHECK_OK(merak_request_wait(me->tr, req, ERR));
    CHECK(seconds(CLOCK_PROCESS_CPUTIME_ID) - start < 0.05);
}

static void waiting_takes_no_processor_time(void **state)
{
    static const struct setup rows[] = {{NULL, 2, NULL, true, 0},
                                        {"tcp,self", 2, own_nodes, true, 0}};

    (void)state;
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(run_ranks(&rows[i], late_sender, NULL), 0);
}

/* Rank 0 offers and does nothing until rank 1 has the data, which says so in
 * shared memory. */
static void idle_owner(struct rank *me, const void *arg)
{
    const size_t size = 4 << 20;
    unsigned char *buf = me->arena.base;
    atomic_int *has = *(atomic_int *const *)arg;
    struct merak_request *req;

    if (me->all.me == 0)
        fill(buf, 0, 1, size);
    CHECK_OK(merak_barrier(me->tr, &me->all, ERR));
    if (me->all.me == 0) {
        CHECK_OK(merak_send(me->tr, buf, size, 1, 1, &req, ERR));
        while (atomic_load(has) == 0)
            usleep(1000);
        CHECK_OK(merak_request_wait(me->tr, req, ERR));
    } else {
        buf[size] = 0xee;
        CHECK_OK(merak_recv(me->tr, buf, size, 0, 1, &req, ERR));
        CHECK_OK(merak_request_wait(me->tr, req, ERR));
        check_filled(buf, 0, 1, size);
        atomic_store(has, 1);
    }
}

static void data_is_read_while_its_owner_sleeps(void **state)
{
    static const struct setup row = {NULL, 2, NULL, true, 0};
    atomic_int *has = shared_ints(1);

    (void)state;
    assert_int_equal(run_ranks(&row, idle_owner, &has), 0);
    munmap(has, sizeof(*has));
}

/* --- blocking collectives ------------------------------------------------- */

/* A term whose sum depends on the order of the members. */
static double term(int member, size_t i)
{
    static const double part[] = {1.0, 1e16, -1e16, 3.0, 1e-3};

    return part[((size_t)member + i) % 5] * (1.0 + (double)i / 7);
}

static void sum_all_lengths(struct rank *me, const void *arg)
{
    static const size_t lengths[] = {1, 2, 100, 513, 5000};
    double x[5000];

    (void)arg;
    for (size_t k = 0; k < 5; k++) {
        for (size_t i = 0; i < lengths[k]; i++)
            x[i] = term(me->all.me, i);
        CHECK_OK(merak_all_reduce_sum(me->tr, &me->all, x, lengths[k], ERR));
        for (size_t i = 0; i < lengths[k]; i++) {
            double want = term(0, i);

            for (int m = 1; m < me->all.n; m++)
                want += term(m, i);
            CHECK(x[i] == want);
        }
    }
}

static void broadcast_from_all(struct rank *me, const void *arg)
{
    unsigned char *buf = me->arena.base;

    (void)arg;
    for (size_t k = 0; k < N_SIZES; k++) {
        int root = (int)k % me->all.n;

        memset(buf, 0, sizes[k]);
        buf[sizes[k]] = 0xee;
        if (me->all.me == root)
            fill(buf, root, 0, sizes[k]);
        CHECK_OK(merak_broadcast(me->tr, &me->all, buf, sizes[k], root, ERR));
        check_filled(buf, root, 0, sizes[k]);
    }
}

/* Nobody leaves before the last has come, who says so in shared memory:
 * on a loaded machine times tell nothing. */
static void late_to_barrier(struct rank *me, const void *arg)
{
    atomic_int *come = *(atomic_int *const *)arg;

    for (int late = 0; late < me->all.n; late++) {
        if (me->all.me == late) {
            usleep(30000);
            atomic_store(&come[late], 1);
        }
        CHECK_OK(merak_barrier(me->tr, &me->all, ERR));
        CHECK(atomic_load(&come[late]) == 1);
    }
}

/* What is sent after a rehearsal is not taken for a part of it. */
static void rehearse_then_sum(struct rank *me, const void *arg)
{
    double x = me->all.me;

    (void)arg;
    for (int i = 0; i < 2; i++)
        CHECK_OK(merak_transport_warm_up(me->tr, &me->all, ERR));
    CHECK_OK(merak_all_reduce_sum(me->tr, &me->all, &x, 1, ERR));
    CHECK(x == me->all.n * (me->all.n - 1) / 2.0);
}

static void rehearsals_leave_nothing(void **state)
{
    (void)state;
    on_all_setups(rehearse_then_sum);
}

static void sums_are_in_member_order(void **state)
{
    static const struct setup five = {NULL, 5, NULL, true, 0};
    static const struct setup eleven = {NULL, 11, NULL, true, 0};

    (void)state;
    on_all_setups(sum_all_lengths);
    assert_int_equal(run_ranks(&five, sum_all_lengths, NULL), 0);
    assert_int_equal(run_ranks(&eleven, sum_all_lengths, NULL), 0);
}

static void broadcasts_reach_all(void **state)
{
    (void)state;
    on_all_setups(broadcast_from_all);
}

static void barriers_hold(void **state)
{
    static const struct setup five = {NULL, 5, two_nodes, false, 0};

    atomic_int *come = shared_ints(5);

    (void)state;
    assert_int_equal(run_ranks(&five, late_to_barrier, &come), 0);
    munmap(come, 5 * sizeof(*come));
}

/* --- arguments and boots -------------------------------------------------- */

static void clear_launcher(void)
{
    static const char *const names[] = {
        "PMIX_NAMESPACE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS",
        "SLURM_STEP_ID",  "SLURM_STEPID",         "OMPI_COMM_WORLD_SIZE",
        "PMI_SIZE"};

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        unsetenv(names[i]);
}

static void tasks_without_pmix_are_refused(void **state)
{
    static const struct {
        const char *name[2], *value[2];
        bool refused;
    } rows[] = {
        {{"SLURM_STEP_NUM_TASKS", NULL}, {"4", NULL}, true},
        {{"SLURM_STEP_NUM_TASKS", NULL}, {"1", NULL}, false},
        {{"SLURM_NTASKS", "SLURM_STEP_ID"}, {"2", "0"}, true},
        {{"SLURM_NTASKS", NULL}, {"2", NULL}, false}, /* a batch script */
        {{"OMPI_COMM_WORLD_SIZE", NULL}, {"2", NULL}, true},
        {{"PMI_SIZE", NULL}, {"3", NULL}, true},
        {{NULL, NULL}, {NULL, NULL}, false},
    };
    struct merak_boot *boot;
    struct merak_error err;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        enum merak_status rc;

        clear_launcher();
        for (int k = 0; k < 2 && rows[i].name[k] != NULL; k++)
            setenv(rows[i].name[k], rows[i].value[k], 1);
        rc = merak_boot_open(&boot, &err);
        assert_int_equal(rc, rows[i].refused ? MERAK_ERR_CONFIG : MERAK_OK);
        if (rows[i].refused) {
            assert_non_null(strstr(err.text, "srun --mpi=pmix"));
            assert_non_null(strstr(err.text, "srun --mpi=list"));
        } else {
            merak_boot_close(boot);
        }
    }
    clear_launcher();
}

static void a_lone_rank_talks_to_itself(void **state)
{
    struct merak_team team = {.n = 1, .me = 0, .rank = (int[]){0}};
    struct merak_transport *tr;
    struct merak_request *send, *recv;
    struct merak_boot *boot;
    struct merak_error err;
    double x = 4.5;
    int out = 42, in = 0;

    (void)state;
    clear_launcher();
    assert_int_equal(merak_boot_open(&boot, &err), MERAK_OK);
    assert_string_equal(boot->ops->name, "single");
    assert_int_equal(boot->n_nodes, 1);
    assert_string_equal(boot->host, boot->hosts[0]);
    assert_int_equal(merak_transport_open("self", boot, NULL, &tr, &err),
                     MERAK_OK);
    assert_int_equal(merak_recv(tr, &in, sizeof(in), 0, 7, &recv, &err),
                     MERAK_OK);
    assert_int_equal(merak_request_test(tr, recv, &err), MERAK_IN_PROGRESS);
    assert_int_equal(merak_send(tr, &out, sizeof(out), 0, 7, &send, &err),
                     MERAK_OK);
    assert_int_equal(merak_request_wait(tr, recv, &err), MERAK_OK);
    assert_int_equal(merak_request_wait(tr, send, &err), MERAK_OK);
    assert_int_equal(in, 42);
    assert_int_equal(merak_all_reduce_sum(tr, &team, &x, 1, &err), MERAK_OK);
    assert_true(x == 4.5);
    assert_int_equal(merak_barrier(tr, &team, &err), MERAK_OK);
    assert_int_equal(merak_agree(tr, &team, MERAK_ERR_IO, NULL), MERAK_ERR_IO);
    merak_transport_close(tr);
    merak_boot_close(boot);
}

static void bad_arguments_are_named(void **state)
{
    struct merak_transport *tr;
    struct merak_request *req;
    struct merak_boot *boot;
    struct merak_error err;
    char c = 0;

    (void)state;
    clear_launcher();
    assert_int_equal(merak_boot_open(&boot, &err), MERAK_OK);
    assert_int_equal(merak_transport_open("smoke", boot, NULL, &tr, &err),
                     MERAK_ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "\"smoke\""));
    assert_int_equal(merak_transport_open("self", boot, NULL, &tr, &err),
                     MERAK_OK);
    assert_int_equal(merak_send(tr, &c, 1, 1, 0, &req, &err), MERAK_ERR_PARAM);
    assert_int_equal(merak_send(tr, &c, 1, -1, 0, &req, &err), MERAK_ERR_PARAM);
    assert_int_equal(merak_recv(tr, NULL, 1, 0, 0, &req, &err),
                     MERAK_ERR_PARAM);
    assert_int_equal(
        merak_recv(tr, &c, 1, 0, UINT64_C(1) << MERAK_TAG_BITS, &req, &err),
        MERAK_ERR_PARAM);
    merak_transport_close(tr);
    merak_boot_close(boot);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tasks_without_pmix_are_refused),
        cmocka_unit_test(a_lone_rank_talks_to_itself),
        cmocka_unit_test(bad_arguments_are_named),
        cmocka_unit_test(messages_arrive_whole),
        cmocka_unit_test(one_tag_keeps_its_order),
        cmocka_unit_test(a_message_of_wrong_size_is_refused),
        cmocka_unit_test(a_wait_ends_at_its_deadline),
        cmocka_unit_test(waiting_takes_no_processor_time),
        cmocka_unit_test(data_is_read_while_its_owner_sleeps),
        cmocka_unit_test(sums_are_in_member_order),
        cmocka_unit_test(broadcasts_reach_all),
        cmocka_unit_test(barriers_hold),
        cmocka_unit_test(rehearsals_leave_nothing),
    };

    return cmocka_run_group_tests_name("transport", tests, NULL, NULL);
}
