/* SPDX-License-Identifier: Apache-2.0 */
/* watch.c - noticing that a process of the same node has ended
 *
 * Every rank listens on an abstract unix socket with a random name.  Of two
 * ranks the lower one connects and sends a hello: the other's secret, known
 * from its card, and its own number.  Nothing else is ever sent, so an end that
 * becomes readable has been closed.
 *
 * Any user of the node finds the name in /proc/net/unix and may connect.  A
 * thread lets callers in from merak_watch_open() to merak_watch_accept(), so
 * that strangers cannot fill the queue and keep peers out; who is of another
 * user (SO_PEERCRED) or does not know the secret is dropped and does not count.
 */
#include "config.h"

#include "runtime/boot/watch.h"

#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
    QUEUE = 4096, /* connections that wait; the kernel may allow fewer */
    CALLERS = 64, /* of this user, who have not yet said who they are */
    RETRY_NS = 2000000,
};

/* What a caller says first, and all that it ever says. */
struct hello {
    uint64_t secret[2];
    int64_t rank;
};

struct merak_watch {
    struct merak_boot *boot;
    uint64_t secret[2];
    int listener; /* -1 once all have connected */
    int stop;     /* an eventfd that ends the thread; -1: there is no thread */
    int epoll;
    int *fd;     /* [size] the connection to a node peer; -1: none */
    bool *ended; /* [size] */
    int watched; /* of higher rank; the lower ones are added by accept */
    int let_in;  /* by the thread, which alone writes it until it has ended */
    int caller[CALLERS], n_callers; /* by age */
    pthread_t thread;
};

static bool is_peer(const struct merak_watch *w, int rank)
{
    const struct merak_boot *b = w->boot;

    return rank != b->rank && b->node_of[rank] == b->node_of[b->rank];
}

static socklen_t address_of(const struct merak_watch_card *card,
                            struct sockaddr_un *addr)
{
    size_t length = strnlen(card->name, sizeof(card->name));

    memset(addr, 0, sizeof(*addr));
    addr->sun_family = AF_UNIX;
    memcpy(addr->sun_path + 1, card->name, length); /* abstract: NUL first */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

static int make_socket(void)
{
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* False: see errno. */
static bool add_peer(struct merak_watch *w, int rank, int fd)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP,
                             .data.u32 = (uint32_t)rank};

    if (epoll_ctl(w->epoll, EPOLL_CTL_ADD, fd, &ev) != 0)
        return false;
    w->fd[rank] = fd;
    return true;
}

/* Is the other end a process of this user? */
static bool is_same_user(int fd)
{
    struct ucred cred;
    socklen_t length = sizeof(cred);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &length) == 0 &&
           cred.uid == geteuid();
}

/* --- letting callers in -------------------------------------------------- */

/* Is it the hello of a peer that is to be let in? */
static bool is_welcome(const struct merak_watch *w, const struct hello *hello)
{
    return memcmp(hello->secret, w->secret, sizeof(w->secret)) == 0 &&
           hello->rank >= 0 && hello->rank < w->boot->rank &&
           is_peer(w, (int)hello->rank) && w->fd[hello->rank] < 0;
}

/* Let the caller in, or drop it; false: it has said nothing yet. */
static bool answer(struct merak_watch *w, int fd)
{
    struct hello hello;
    ssize_t n = recv(fd, &hello, sizeof(hello), MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n == sizeof(hello) && is_welcome(w, &hello) &&
        add_peer(w, (int)hello.rank, fd))
        w->let_in++;
    else
        close(fd);
    return true;
}

static void answer_all(struct merak_watch *w)
{
    int kept = 0;

    for (int i = 0; i < w->n_callers; i++) {
        if (!answer(w, w->caller[i]))
            w->caller[kept++] = w->caller[i];
    }
    w->n_callers = kept;
}

/* A peer speaks at once: the eldest who is silent makes room. */
static void note_caller(struct merak_watch *w, int fd)
{
    if (w->n_callers == CALLERS)
        answer_all(w);
    if (w->n_callers == CALLERS) {
        close(w->caller[0]);
        memmove(w->caller, w->caller + 1,
                sizeof(w->caller) - sizeof(*w->caller));
        w->n_callers--;
    }
    w->caller[w->n_callers++] = fd;
}

/* False: nobody waits, or there is no descriptor for who does. */
static bool take_next(struct merak_watch *w)
{
    int fd = accept4(w->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd >= 0 && is_same_user(fd))
        note_caller(w, fd);
    else if (fd >= 0)
        close(fd);
    return fd >= 0 || errno == EINTR || errno == ECONNABORTED;
}

static void *let_all_in(void *arg)
{
    struct merak_watch *w = arg;
    struct pollfd ready[2 + CALLERS] = {{.fd = w->stop, .events = POLLIN},
                                        {.fd = w->listener, .events = POLLIN}};

    while (ready[0].revents == 0) {
        for (int i = 0; i < w->n_callers; i++)
            ready[2 + i] =
                (struct pollfd){.fd = w->caller[i], .events = POLLIN};
        if (poll(ready, (nfds_t)(2 + w->n_callers), -1) < 0)
            continue; /* interrupted: what is ready stays so */
        answer_all(w);
        if (ready[1].revents != 0 && !take_next(w))
            merak_nap(RETRY_NS);
    }
    return NULL;
}

/* Without a thread peers are let in at the end, unless strangers have filled
 * the queue. */
static void start_thread(struct merak_watch *w)
{
    w->stop = eventfd(0, EFD_CLOEXEC);
    if (w->stop < 0)
        return;
    if (merak_thread_create(&w->thread, NULL, let_all_in, w) != 0) {
        close(w->stop);
        w->stop = -1;
    }
}

static void end_thread(struct merak_watch *w)
{
    const uint64_t one = 1;

    if (w->stop < 0)
        return;
    while (write(w->stop, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
    pthread_join(w->thread, NULL);
    close(w->stop);
    w->stop = -1;
}

static void drop_callers(struct merak_watch *w)
{
    for (int i = 0; i < w->n_callers; i++)
        close(w->caller[i]);
    w->n_callers = 0;
}

/* --- both sides ---------------------------------------------------------- */

/* On failure, listener stays -1 and card empty. */
static void listen_for_peers(struct merak_watch *w,
                             struct merak_watch_card *card)
{
    struct sockaddr_un addr;
    uint64_t random[4];
    socklen_t length;
    int fd;

    if (getrandom(random, sizeof(random), GRND_NONBLOCK) != sizeof(random))
        return;
    memcpy(w->secret, random + 2, sizeof(w->secret));
    memcpy(card->secret, random + 2, sizeof(card->secret));
    snprintf(card->name, sizeof(card->name), "merak%016llx%016llx",
             (unsigned long long)random[0], (unsigned long long)random[1]);
    length = address_of(card, &addr);
    fd = make_socket();
    if (fd >= 0 && bind(fd, (struct sockaddr *)&addr, length) == 0 &&
        listen(fd, QUEUE) == 0) {
        w->listener = fd;
        start_thread(w);
        return;
    }
    if (fd >= 0)
        close(fd);
    card->name[0] = '\0';
}

enum merak_status merak_watch_open(struct merak_boot *boot,
                                   struct merak_watch **watch_p,
                                   struct merak_watch_card *card,
                                   struct merak_error *err)
{
    struct merak_watch *w = calloc(1, sizeof(*w));
    size_t n = (size_t)boot->size;

    if (w == NULL)
        return merak_fail_nomem(err, sizeof(*w));
    memset(card, 0, sizeof(*card));
    w->boot = boot;
    w->listener = w->stop = w->epoll = -1;
    w->fd = malloc(n * sizeof(*w->fd));
    w->ended = calloc(n, sizeof(*w->ended));
    if (w->fd == NULL || w->ended == NULL) {
        merak_watch_close(w);
        return merak_fail_nomem(err, n * sizeof(*w->fd));
    }
    for (size_t r = 0; r < n; r++)
        w->fd[r] = -1;
    if (boot->local_size > 1)
        w->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (w->epoll >= 0)
        listen_for_peers(w, card);
    *watch_p = w;
    return MERAK_OK;
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Connect as soon as the queue has a place.  NULL, or why not. */
static const char *connect_in_time(int fd, const struct merak_watch_card *card,
                                   double deadline_s)
{
    struct sockaddr_un addr;
    socklen_t length = address_of(card, &addr);

    while (connect(fd, (struct sockaddr *)&addr, length) != 0) {
        if (errno != EAGAIN && errno != EINTR)
            return strerror(errno);
        if (now_s() >= deadline_s)
            return "its socket takes no connection, others fill its queue";
        merak_nap(RETRY_NS);
    }
    return is_same_user(fd) ? NULL : "its socket is of another user";
}

/* NULL, or why not. */
static const char *connect_peer(struct merak_watch *w, int rank,
                                const struct merak_watch_card *card,
                                double deadline_s)
{
    struct hello hello = {.rank = w->boot->rank};
    int fd = make_socket();
    const char *why =
        fd < 0 ? strerror(errno) : connect_in_time(fd, card, deadline_s);

    memcpy(hello.secret, card->secret, sizeof(hello.secret));
    if (why == NULL &&
        (send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello) ||
         !add_peer(w, rank, fd)))
        why = strerror(errno);
    if (why == NULL)
        w->watched++;
    else if (fd >= 0)
        close(fd);
    return why;
}

static void warn_unwatched(const struct merak_watch *w, int rank,
                           const char *why)
{
    merak_warn("boot",
               "the process of rank %d on this node cannot be watched: %s; "
               "if it is killed, rank %d notices at the deadline",
               rank, why, w->boot->rank);
}

void merak_watch_connect(struct merak_watch *w, const void *cards,
                         size_t stride)
{
    double deadline_s = now_s() + w->boot->deadline_s / 2;
    bool warned = false;

    for (int r = w->boot->rank + 1; r < w->boot->size; r++) {
        const struct merak_watch_card *card =
            (const void *)((const char *)cards + (size_t)r * stride);
        const char *why;

        if (!is_peer(w, r) || w->epoll < 0)
            continue;
        why = card->name[0] == '\0' ? strerror(ENOTSUP)
                                    : connect_peer(w, r, card, deadline_s);
        if (why != NULL && !warned)
            warn_unwatched(w, r, why);
        warned = warned || why != NULL; /* more lines would be the same */
    }
}

void merak_watch_accept(struct merak_watch *w)
{
    if (w->listener < 0)
        return;
    end_thread(w);
    /* All peers wait already; who calls now is behind them in the queue. */
    for (int i = 0; i <= QUEUE && take_next(w); i++)
        ;
    answer_all(w);
    drop_callers(w);
    w->watched += w->let_in;
    close(w->listener);
    w->listener = -1;
    for (int r = 0; r < w->boot->rank; r++) {
        if (is_peer(w, r) && w->fd[r] < 0) {
            warn_unwatched(w, r, "it has not connected");
            return;
        }
    }
}

int merak_watch_fd(const struct merak_watch *w)
{
    return w->watched > 0 ? w->epoll : -1;
}

int merak_watch_next_ended(struct merak_watch *w)
{
    struct epoll_event ev;
    int rank;

    if (w->watched == 0 || epoll_wait(w->epoll, &ev, 1, 0) != 1)
        return -1;
    rank = (int)ev.data.u32;
    close(w->fd[rank]); /* leaves the epoll set with it */
    w->fd[rank] = -1;
    w->watched--;
    w->ended[rank] = true;
    return rank;
}

bool merak_watch_has_ended(const struct merak_watch *w, int rank)
{
    return w->ended[rank];
}

long merak_watch_pid(const struct merak_watch *w, int rank)
{
    struct ucred cred = {.pid = 0};
    socklen_t length = sizeof(cred);

    if (w->fd[rank] < 0 ||
        getsockopt(w->fd[rank], SOL_SOCKET, SO_PEERCRED, &cred, &length) != 0)
        return 0;
    return (long)cred.pid;
}

char merak_process_state(long pid)
{
    char path[64], line[512], *end;
    size_t n;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
    f = pid > 0 ? fopen(path, "re") : NULL;
    if (f == NULL)
        return 0;
    n = fread(line, 1, sizeof(line) - 1, f);
    fclose(f);
    line[n] = '\0';
    end = strrchr(line, ')'); /* ends the name, which may contain anything */
    return end != NULL && end[1] == ' ' ? end[2] : 0;
}

void merak_watch_close(struct merak_watch *w)
{
    if (w == NULL)
        return;
    end_thread(w);
    drop_callers(w);
    for (int r = 0; w->fd != NULL && r < w->boot->size; r++) {
        if (w->fd[r] >= 0)
            close(w->fd[r]);
    }
    if (w->listener >= 0)
        close(w->listener);
    if (w->epoll >= 0)
        close(w->epoll);
    free(w->fd);
    free(w->ended);
    free(w);
}
