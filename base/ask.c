/* SPDX-License-Identifier: Apache-2.0 */
/* ask.c - what a command prints, within a time limit */
#include "config.h"

#include "base/ask.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* In the child: make a process group, so that its helpers end with it.  Remove
 * Slurm's step variables, which would change the answers. */
static void run(char *const *argv, int out)
{
    int null = open("/dev/null", O_RDONLY);

    setpgid(0, 0);
    if (null >= 0)
        dup2(null, 0);
    dup2(out, 1);
    dup2(out, 2);
    execvp(argv[0], argv);
    _exit(127);
}

/* Read until the end or the deadline; false: the deadline passed. */
static bool read_all(int fd, int64_t until_ns, char *text, size_t size)
{
    char rest[4096];
    size_t n = 0;

    for (;;) {
        int64_t left_ms = (until_ns - merak_clock_ns()) / 1000000;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        ssize_t got;

        text[n] = '\0';
        if (left_ms <= 0 || poll(&p, 1, (int)left_ms) == 0)
            return false;
        got = n + 1 < size ? read(fd, text + n, size - 1 - n)
                           : read(fd, rest, sizeof(rest));
        if (got == 0)
            return true;
        if (got < 0 && errno != EINTR)
            return false;
        if (got > 0 && n + 1 < size)
            n += (size_t)got;
    }
}

/* A child that outlives its output is not waited for beyond the deadline. */
static int wait_until(pid_t pid, int64_t until_ns)
{
    int status;

    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (merak_clock_ns() > until_ns) {
            kill(-pid, SIGKILL);
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            return -1;
        }
        usleep(1000);
    }
    return WIFEXITED(status) && WEXITSTATUS(status) != 127 ? WEXITSTATUS(status)
                                                           : -1;
}

int merak_ask(char *const *argv, double seconds, char *text, size_t size)
{
    int64_t until_ns = merak_clock_ns() + (int64_t)(seconds * 1e9);
    int ends[2];
    pid_t pid;

    text[0] = '\0';
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    pid = fork();
    if (pid == 0)
        run(argv, ends[1]);
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return -1;
    }
    if (!read_all(ends[0], until_ns, text, size))
        until_ns = 0;
    close(ends[0]);
    return wait_until(pid, until_ns);
}
