/* SPDX-License-Identifier: Apache-2.0 */
/* test_watch.c - ranks of a node watch each other, whoever else calls
 *
 * Both ranks are in this process: their sockets do not care.  Strangers find a
 * socket's name where everybody does, and here in the card.
 */
#include "config.h"

#include "base/error.h"
#include "unit/quiet.h"
#include "runtime/boot/watch.h"

#include <poll.h>
#include <pwd.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* Ranks 0 and 1 of one node. */
struct pair {
    int node_of[2];
    struct merak_boot boot[2];
    struct merak_watch *watch[2];
    struct merak_watch_card card[2];
};

static void open_pair(struct pair *p)
{
    struct merak_error err;

    memset(p, 0, sizeof(*p));
    for (int r = 0; r < 2; r++) {
        p->boot[r] = (struct merak_boot){.rank = r,
                                         .size = 2,
                                         .node_of = p->node_of,
                                         .local_size = 2,
                                         .deadline_s = 20};
        assert_int_equal(
            merak_watch_open(&p->boot[r], &p->watch[r], &p->card[r], &err),
            MERAK_OK);
        assert_true(p->card[r].name[0] != '\0');
    }
}

static void meet(struct pair *p)
{
    for (int r = 0; r < 2; r++)
        merak_watch_connect(p->watch[r], p->card, sizeof(p->card[0]));
    for (int r = 0; r < 2; r++)
        merak_watch_accept(p->watch[r]);
}

static void close_pair(struct pair *p)
{
    for (int r = 0; r < 2; r++)
        merak_watch_close(p->watch[r]);
}

/* Each has the other's process, and notices its end. */
static void check_watched(struct pair *p)
{
    struct pollfd ready;

    for (int r = 0; r < 2; r++) {
        assert_int_equal(merak_watch_pid(p->watch[r], 1 - r), getpid());
        assert_int_equal(merak_watch_next_ended(p->watch[r]), -1);
    }
    merak_watch_close(p->watch[0]);
    p->watch[0] = NULL;
    ready =
        (struct pollfd){.fd = merak_watch_fd(p->watch[1]), .events = POLLIN};
    assert_int_equal(poll(&ready, 1, 5000), 1);
    assert_int_equal(merak_watch_next_ended(p->watch[1]), 0);
    assert_true(merak_watch_has_ended(p->watch[1], 0));
}

/* --- strangers ----------------------------------------------------------- */

/* A connection that never blocks; -1: refused, or the queue is full. */
static int call(const struct merak_watch_card *card)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    size_t n = strlen(card->name);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -1;
    memcpy(addr.sun_path + 1, card->name, n);
    if (connect(fd, (struct sockaddr *)&addr,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)) ==
        0)
        return fd;
    close(fd);
    return -1;
}

/* Wait until the other end has closed. */
static void check_dropped(int fd)
{
    struct pollfd gone = {.fd = fd, .events = POLLIN};
    char byte;

    assert_true(fd >= 0);
    assert_int_equal(poll(&gone, 1, 5000), 1);
    assert_true(read(fd, &byte, 1) <= 0);
    close(fd);
}

static void peers_find_each_other(void **state)
{
    struct pair p;

    (void)state;
    open_pair(&p);
    meet(&p);
    check_watched(&p);
    close_pair(&p);
}

/* What the protocol was, what it is with a wrong secret, and half of it. */
static void a_stranger_of_this_user_is_no_peer(void **state)
{
    static const int32_t words[6] = {0};
    static const size_t bytes[] = {4, 8, 16, 24};
    struct pair p;

    (void)state;
    for (size_t i = 0; i < sizeof(bytes) / sizeof(*bytes); i++) {
        int fd;

        open_pair(&p);
        fd = call(&p.card[1]);
        assert_true(fd >= 0);
        assert_int_equal(send(fd, words, bytes[i], 0), (long)bytes[i]);
        check_dropped(fd);
        meet(&p);
        check_watched(&p);
        close_pair(&p);
    }
}

/* A rank that this one does not wait for, although its secret is right. */
static void a_rank_that_is_no_lower_peer_is_dropped(void **state)
{
    static const int64_t rank[] = {-1, 1, 2, INT64_MAX, 1LL << 32};
    struct pair p;

    (void)state;
    for (size_t i = 0; i < sizeof(rank) / sizeof(*rank); i++) {
        uint64_t hello[3];
        int fd;

        open_pair(&p);
        memcpy(hello, p.card[1].secret, sizeof(p.card[1].secret));
        memcpy(hello + 2, &rank[i], sizeof(rank[i]));
        fd = call(&p.card[1]);
        assert_int_equal(send(fd, hello, sizeof(hello), 0), sizeof(hello));
        check_dropped(fd);
        meet(&p);
        check_watched(&p);
        close_pair(&p);
    }
}

/* As another user, who even knows the secret: was it dropped? */
static int call_as_nobody(const struct merak_watch_card *card, uid_t uid)
{
    uint64_t hello[3] = {card->secret[0], card->secret[1], 0};
    struct pollfd gone = {.events = POLLIN};
    char byte;

    if (setuid(uid) != 0)
        return 2;
    gone.fd = call(card);
    if (gone.fd < 0 || send(gone.fd, hello, sizeof(hello), MSG_NOSIGNAL) < 0)
        return gone.fd < 0 ? 3 : 0;
    return poll(&gone, 1, 5000) == 1 && read(gone.fd, &byte, 1) <= 0 ? 0 : 4;
}

static void another_user_is_no_peer(void **state)
{
    const struct passwd *nobody = getpwnam("nobody");
    struct pair p;
    int status;
    pid_t pid;

    (void)state;
    if (geteuid() != 0 || nobody == NULL)
        skip();
    open_pair(&p);
    pid = fork();
    if (pid == 0)
        _exit(call_as_nobody(&p.card[1], nobody->pw_uid));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    meet(&p);
    check_watched(&p);
    close_pair(&p);
}

/* Callers of this user, who would be heard, stay and say nothing. */
static void strangers_cannot_fill_the_queue(void **state)
{
    const struct timespec while_it_calls = {.tv_nsec = 200000000};
    struct pair p;
    pid_t pid;

    (void)state;
    open_pair(&p);
    pid = fork();
    if (pid == 0) {
        for (;;)
            call(&p.card[1]); /* until it has no descriptor left */
    }
    nanosleep(&while_it_calls, NULL);
    meet(&p);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    check_watched(&p);
    close_pair(&p);
}

/* --- a peer that does not let anybody in --------------------------------- */

static char last_line[512];

static void keep_line(void *arg, enum merak_log_level level, const char *module,
                      const char *line)
{
    (void)arg;
    (void)level;
    (void)module;
    snprintf(last_line, sizeof(last_line), "%s", line);
}

static void a_full_queue_ends_at_the_deadline_and_is_named(void **state)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    struct pair p;
    struct timespec begin, end;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0), in_queue[2];

    (void)state;
    open_pair(&p);
    p.boot[0].deadline_s = 0.4;
    snprintf(p.card[1].name, sizeof(p.card[1].name), "merak-full-%d",
             (int)getpid());
    memcpy(addr.sun_path + 1, p.card[1].name, strlen(p.card[1].name));
    assert_int_equal(bind(fd, (struct sockaddr *)&addr,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
                                      1 + strlen(p.card[1].name))),
                     0);
    assert_int_equal(listen(fd, 0), 0);
    in_queue[0] = call(&p.card[1]);
    in_queue[1] = call(&p.card[1]);
    assert_true(in_queue[0] >= 0 && in_queue[1] < 0);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    merak_log_sink(keep_line, NULL);
    merak_watch_connect(p.watch[0], p.card, sizeof(p.card[0]));
    quiet_logs();
    clock_gettime(CLOCK_MONOTONIC, &end);
    assert_true(end.tv_sec - begin.tv_sec < 10);
    assert_string_equal(
        last_line,
        "the process of rank 1 on this node cannot be watched: its socket "
        "takes no connection, others fill its queue; if it is killed, rank 0 "
        "notices at the deadline");
    close(in_queue[0]);
    close(fd);
    close_pair(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peers_find_each_other),
        cmocka_unit_test(a_stranger_of_this_user_is_no_peer),
        cmocka_unit_test(a_rank_that_is_no_lower_peer_is_dropped),
        cmocka_unit_test(another_user_is_no_peer),
        cmocka_unit_test(strangers_cannot_fill_the_queue),
        cmocka_unit_test(a_full_queue_ends_at_the_deadline_and_is_named),
    };

    quiet_logs();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
