/* SPDX-License-Identifier: Apache-2.0 */
/* watch.c - noticing that a process of the same node has ended
 *
 * Every rank listens on an abstract unix socket with a random name, known only
 * from its card.  Of two ranks the lower one connects and sends its number,
 * four bytes.  Nothing else is ever sent, so an end that becomes readable has
 * been closed.
 */
#include "config.h"

#include "runtime/boot/watch.h"

#include "base/error.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct merak_watch {
    struct merak_boot *boot;
    int listener; /* -1 once all have connected */
    int epoll;
    int *fd;     /* [size] the connection to a node peer; -1: none */
    bool *ended; /* [size] */
    int watched;
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
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

/* On failure, listener stays -1 and card empty. */
static void listen_for_peers(struct merak_watch *w,
                             struct merak_watch_card *card)
{
    struct sockaddr_un addr;
    uint64_t random[2];
    socklen_t length;
    int fd;

    if (getrandom(random, sizeof(random), GRND_NONBLOCK) != sizeof(random))
        return;
    snprintf(card->name, sizeof(card->name), "merak%016llx%016llx",
             (unsigned long long)random[0], (unsigned long long)random[1]);
    length = address_of(card, &addr);
    fd = make_socket();
    if (fd >= 0 && bind(fd, (struct sockaddr *)&addr, length) == 0 &&
        listen(fd, w->boot->local_size) == 0 &&
        fcntl(fd, F_SETFL, O_NONBLOCK) == 0) {
        w->listener = fd;
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
    w->listener = w->epoll = -1;
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

/* False: see errno. */
static bool add_peer(struct merak_watch *w, int rank, int fd)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP,
                             .data.u32 = (uint32_t)rank};

    if (epoll_ctl(w->epoll, EPOLL_CTL_ADD, fd, &ev) != 0)
        return false;
    w->fd[rank] = fd;
    w->watched++;
    return true;
}

static bool connect_peer(struct merak_watch *w, int rank,
                         const struct merak_watch_card *card)
{
    struct sockaddr_un addr;
    socklen_t length = address_of(card, &addr);
    int32_t me = w->boot->rank;
    int fd = make_socket(), saved;

    if (fd >= 0 && connect(fd, (struct sockaddr *)&addr, length) == 0 &&
        send(fd, &me, sizeof(me), MSG_NOSIGNAL) == sizeof(me) &&
        add_peer(w, rank, fd))
        return true;
    saved = errno;
    if (fd >= 0)
        close(fd);
    errno = saved;
    return false;
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
    for (int r = w->boot->rank + 1; r < w->boot->size; r++) {
        const struct merak_watch_card *card =
            (const void *)((const char *)cards + (size_t)r * stride);

        if (!is_peer(w, r) || w->epoll < 0)
            continue;
        if (card->name[0] == '\0')
            errno = ENOTSUP;
        else if (connect_peer(w, r, card))
            continue;
        warn_unwatched(w, r, strerror(errno));
        return; /* the lines of the others would be the same */
    }
}

/* The peer's number arrives before its connection can be accepted. */
static void accept_one(struct merak_watch *w, int fd)
{
    int32_t rank = -1;

    if (recv(fd, &rank, sizeof(rank), MSG_DONTWAIT) == sizeof(rank) &&
        rank >= 0 && rank < w->boot->rank && is_peer(w, rank) &&
        w->fd[rank] < 0 && add_peer(w, rank, fd))
        return;
    close(fd);
}

void merak_watch_accept(struct merak_watch *w)
{
    int fd;

    if (w->listener < 0)
        return;
    for (;;) {
        fd = accept4(w->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0 && errno != EINTR)
            break;
        if (fd >= 0)
            accept_one(w, fd);
    }
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
