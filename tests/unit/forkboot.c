/* SPDX-License-Identifier: Apache-2.0 */
/* forkboot.c - a boot for N forked ranks, without a launcher */
#include "config.h"

#include "unit/forkboot.h"

#include "base/error.h"
#include "runtime/boot/boot_impl.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct fork_boot {
    struct merak_boot base;
    int fd;
};

static bool read_all(int fd, void *buf, size_t bytes)
{
    char *p = buf;

    while (bytes > 0) {
        ssize_t n = read(fd, p, bytes);

        if (n <= 0 && !(n < 0 && errno == EINTR))
            return false;
        if (n > 0) {
            p += n;
            bytes -= (size_t)n;
        }
    }
    return true;
}

static bool write_all(int fd, const void *buf, size_t bytes)
{
    const char *p = buf;

    while (bytes > 0) {
        ssize_t n = send(fd, p, bytes, MSG_NOSIGNAL);

        if (n <= 0 && !(n < 0 && errno == EINTR))
            return false;
        if (n > 0) {
            p += n;
            bytes -= (size_t)n;
        }
    }
    return true;
}

static enum merak_status fork_allgather(struct merak_boot *base,
                                        const void *card, size_t bytes,
                                        void *cards, struct merak_error *err)
{
    int fd = ((struct fork_boot *)base)->fd;

    if (!write_all(fd, &bytes, sizeof(bytes)) || !write_all(fd, card, bytes) ||
        !read_all(fd, cards, bytes * (size_t)base->size))
        return merak_fail(err, MERAK_ERR_PEER, "a forked rank is gone");
    return MERAK_OK;
}

static enum merak_status fork_broadcast(struct merak_boot *base, void *data,
                                        size_t bytes, struct merak_error *err)
{
    char *all = malloc(bytes * (size_t)base->size);
    enum merak_status rc = fork_allgather(base, data, bytes, all, err);

    if (rc == MERAK_OK)
        memcpy(data, all, bytes);
    free(all);
    return rc;
}

static enum merak_status fork_barrier(struct merak_boot *base,
                                      struct merak_error *err)
{
    char card = 0, *cards = malloc((size_t)base->size);
    enum merak_status rc = fork_allgather(base, &card, 1, cards, err);

    free(cards);
    return rc;
}

static void fork_abort(struct merak_boot *boot, int code, const char *why)
{
    fprintf(stderr, "rank %d aborts: %s\n", boot->rank, why);
    _exit(code);
}

static void fork_close(struct merak_boot *boot)
{
    struct fork_boot *b = (struct fork_boot *)boot;

    /* what a rank runs may have closed it */
    if (b->fd >= 0)
        close(b->fd);
    b->fd = -1;
    merak_boot_clear_nodes(boot);
}

static const struct merak_boot_ops fork_ops = {
    .name = "fork",
    .allgather = fork_allgather,
    .broadcast = fork_broadcast,
    .barrier = fork_barrier,
    .abort = fork_abort,
    .close = fork_close,
};

static int be_rank(int rank, int n, const int *node_of, int fd, fork_fn fn,
                   void *arg)
{
    struct fork_boot boot = {
        .base = {.ops = &fork_ops, .rank = rank, .size = n}, .fd = fd};
    char(*name)[16] = calloc((size_t)n, sizeof(*name));
    const char **host = calloc((size_t)n, sizeof(*host));
    int rc;

    for (int r = 0; r < n; r++) {
        snprintf(name[r], sizeof(*name), "node%d",
                 node_of != NULL ? node_of[r] : 0);
        host[r] = name[r];
    }
    if (merak_boot_set_nodes(&boot.base, host, NULL) != MERAK_OK)
        return 1;
    rc = fn(&boot.base, arg);
    merak_boot_close(&boot.base);
    free(host);
    free(name);
    return rc;
}

/* Serve rounds of allgather until a rank has left. */
static void serve(const int *fd, int n)
{
    size_t bytes, count = (size_t)n;
    char cards[64 * 4096];

    for (;;) {
        for (size_t r = 0; r < count; r++) {
            if (!read_all(fd[r], &bytes, sizeof(bytes)) ||
                bytes * count > sizeof(cards) ||
                !read_all(fd[r], cards + r * bytes, bytes))
                return;
        }
        for (size_t r = 0; r < count; r++) {
            if (!write_all(fd[r], cards, bytes * count))
                return;
        }
    }
}

/* An assertion that fails in a rank makes cmocka go on with the next test there:
 * such a process would fork ranks of its own, and these others, without end. */
static void end_a_rank_that_failed(void)
{
    static pid_t parent;

    if (parent == 0)
        parent = getpid();
    else if (parent != getpid())
        _exit(1);
}

int fork_ranks(int n, const int *node_of, unsigned timeout_s, fork_fn fn,
               void *arg)
{
    int fd[64] = {0}, failed = 0;
    pid_t pid[64];

    end_a_rank_that_failed();
    fflush(NULL);
    for (int r = 0; r < n; r++) {
        int pair[2];

        if (n > 64 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
            abort();
        pid[r] = fork();
        if (pid[r] == 0) {
            alarm(timeout_s);
            for (int i = 0; i < r; i++)
                close(fd[i]);
            close(pair[0]);
            _exit(be_rank(r, n, node_of, pair[1], fn, arg));
        }
        close(pair[1]);
        fd[r] = pair[0];
    }
    serve(fd, n);
    for (int r = 0; r < n; r++)
        close(fd[r]);
    for (int r = 0; r < n; r++) {
        int status = 1;

        if (pid[r] < 0 || waitpid(pid[r], &status, 0) < 0 || status != 0) {
            fprintf(stderr, "rank %d of %d: status 0x%x\n", r, n,
                    (unsigned)status);
            failed++;
        }
    }
    return failed;
}
