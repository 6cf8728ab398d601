/* SPDX-License-Identifier: Apache-2.0 */
/* test_peers.c - what ranks learn of their peers: that one gave up, was killed,
 * waits, or disagrees */
#include "config.h"

#include "unit/transport/setups.h"

#include <signal.h>

static void one_aborts(struct rank *me, const void *arg)
{
    struct merak_request *req;
    char buf[8];

    (void)arg;
    CHECK_OK(merak_barrier(me->tr, &me->all, ERR));
    CHECK_OK(me->boot->ops->barrier(me->boot, ERR)); /* all are out of it */
    if (me->all.me == 1) {
        me->tr->ops->abort(me->tr, "out of paper");
        return;
    }
    CHECK_OK(merak_recv(me->tr, buf, sizeof(buf), 1, 1, &req, ERR));
    CHECK(merak_request_wait(me->tr, req, ERR) == MERAK_ERR_PEER);
    CHECK(strcmp(test_error.text, "rank 1: out of paper") == 0);
    CHECK(strcmp(merak_transport_aborted(me->tr)->text,
                 "rank 1: out of paper") == 0);
}

static void an_abort_reaches_those_who_wait(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SETUPS; i++) {
        if (setups[i].node_of == NULL)
            assert_int_equal(run_ranks(&setups[i], one_aborts, NULL), 0);
    }
}

struct killed {
    struct setup setup;
    const char *where;
    atomic_int *noticed; /* how many have */
};

/* Rank 1 is killed while the others wait, for rank 0: they hear of it long
 * before their deadline, which would be another status. */
static void one_is_killed(struct rank *me, const void *arg)
{
    struct merak_request *req;
    const struct killed *row = arg;
    char buf[8], want[64];

    CHECK_OK(merak_barrier(me->tr, &me->all, ERR));
    CHECK_OK(me->boot->ops->barrier(me->boot, ERR)); /* all are out of it */
    if (me->all.me == 1)
        raise(SIGKILL);
    CHECK_OK(merak_recv(me->tr, buf, sizeof(buf), 0, 1, &req, ERR));
    CHECK(merak_request_wait(me->tr, req, ERR) == MERAK_ERR_LOST);
    snprintf(want, sizeof(want), "rank 1 on %s is gone", row->where);
    CHECK(strstr(test_error.text, want) != NULL);
    atomic_fetch_add(row->noticed, 1);
    while (atomic_load(row->noticed) < me->all.n - 1)
        usleep(1000); /* or this rank were the one that is gone for them */
    if (me->all.me == 2)
        me->tr->ops->abort(me->tr, "no more"); /* not to who is gone */
}

static void a_killed_node_peer_is_noticed(void **state)
{
    struct killed rows[] = {
        {{NULL, 3, NULL, true, 3600}, "node0", NULL},
        {{NULL, 4, NULL, false, 3600}, "node0", NULL},
        {{"tcp,self", 3, NULL, false, 3600}, "node0", NULL}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        rows[i].noticed = shared_ints(1);
        assert_int_equal(run_ranks(&rows[i].setup, one_is_killed, &rows[i]), 1);
        munmap(rows[i].noticed, sizeof(*rows[i].noticed));
    }
}

struct stopped {
    pid_t pid;
};

static void tell_wait(void *arg, char *text, size_t size)
{
    merak_transport_describe_wait(arg, text, size);
}

/* Rank 1 stops; rank 0, whose deadline passes first, asks what all do, while
 * the last one still waits. */
static void one_is_stopped(struct rank *me, const void *arg)
{
    struct stopped *s = *(struct stopped *const *)arg;
    struct merak_told told[5];
    struct merak_request *req;
    char buf[8];

    me->tr->tell = tell_wait;
    me->tr->tell_arg = me->tr;
    CHECK_OK(merak_barrier(me->tr, &me->all, ERR));
    CHECK_OK(me->boot->ops->barrier(me->boot, ERR)); /* all are out of it */
    if (me->all.me == 1) {
        s->pid = getpid();
        raise(SIGSTOP);
    }
    CHECK_OK(merak_recv(me->tr, buf, sizeof(buf), 1, 1, &req, ERR));
    while (*(volatile pid_t *)&s->pid == 0)
        usleep(1000); /* it stops right after that */
    me->tr->deadline_s = me->all.me == 0 ? 1.0 : 3600;
    if (me->all.me != 0) {
        CHECK(merak_request_wait(me->tr, req, ERR) == MERAK_ERR_LOST);
        return;
    }
    CHECK(merak_request_wait(me->tr, req, ERR) == MERAK_ERR_TIMEOUT);
    CHECK(me->tr->ops->survey(me->tr, told));
    CHECK(!told[1].heard);
    CHECK(strcmp(told[1].text, "its process is stopped") == 0);
    for (int r = 0; r < me->all.n; r += 2) {
        CHECK(told[r].heard);
        CHECK(strstr(told[r].text, "waits for a recv of 8 bytes, peer rank 1, "
                                   "for ") == told[r].text);
        CHECK(strstr(told[r].text, "; on its node the process of rank 1 "
                                   "is stopped") != NULL);
    }
    kill(s->pid, SIGKILL);
}

static void a_survey_tells_who_does_what(void **state)
{
    static const struct setup rows[] = {{NULL, 3, NULL, true, 3600},
                                        {"tcp,self", 3, NULL, false, 3600}};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct stopped *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

        assert_true(s != MAP_FAILED);
        assert_int_equal(run_ranks(&rows[i], one_is_stopped, &s), 1);
        munmap(s, sizeof(*s));
    }
}

static void agree_all_ways(struct rank *me, const void *arg)
{
    enum merak_status rc;

    (void)arg;
    CHECK_OK(merak_agree(me->tr, &me->all, MERAK_OK, ERR));
    for (int bad = 0; bad < me->all.n; bad++) {
        char want[64];

        /* ranks from `bad` on fail: the first of them is heard */
        rc = MERAK_OK;
        if (me->all.me >= bad) {
            rc = MERAK_ERR_NOSPACE;
            test_error.status = rc;
            snprintf(test_error.text, sizeof(test_error.text), "disk %d full",
                     me->all.me);
        }
        rc = merak_agree(me->tr, &me->all, rc, ERR);
        CHECK(rc == MERAK_ERR_NOSPACE && test_error.status == rc);
        snprintf(want, sizeof(want), "rank %d: disk %d full", bad, bad);
        CHECK(strcmp(test_error.text, want) == 0);
    }
    CHECK(merak_agree(me->tr, &me->all,
                      me->all.me == 1 ? MERAK_ERR_IO : MERAK_OK,
                      NULL) == MERAK_ERR_IO);
}

static void all_agree_on_the_first_failure(void **state)
{
    static const struct setup five = {NULL, 5, NULL, true, 0};

    (void)state;
    on_all_setups(agree_all_ways);
    assert_int_equal(run_ranks(&five, agree_all_ways, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_abort_reaches_those_who_wait),
        cmocka_unit_test(a_killed_node_peer_is_noticed),
        cmocka_unit_test(a_survey_tells_who_does_what),
        cmocka_unit_test(all_agree_on_the_first_failure),
    };

    return cmocka_run_group_tests_name("peers", tests, NULL, NULL);
}
