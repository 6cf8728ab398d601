/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox_child.c - waiting for a command, and killing it with all that it
 * started
 */
#include "config.h"

#include "cmd/sandbox_child.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int exit_code(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Has pid ended?  Also reaps orphans that were left to us.
 */
static bool has_ended(pid_t pid, int *status_p)
{
    int status;
    pid_t ended;

    while ((ended = waitpid(-1, &status, WNOHANG)) > 0) {
        if (ended == pid) {
            *status_p = status;
            return true;
        }
    }
    return false;
}

/* The parent of a process, 0 if it is gone. */
static pid_t parent_of(pid_t pid)
{
    char name[64], line[512], *end;
    FILE *in;
    size_t n;

    snprintf(name, sizeof(name), "/proc/%d/stat", (int)pid);
    in = fopen(name, "re");
    if (in == NULL)
        return 0;
    n = fread(line, 1, sizeof(line) - 1, in);
    fclose(in);
    line[n] = '\0';
    end = strrchr(line, ')'); /* a program's name may contain anything */
    return end != NULL && strlen(end) > 4 ? (pid_t)atoi(end + 4) : 0;
}

static bool is_ours(pid_t pid)
{
    while (pid > 1 && pid != getpid())
        pid = parent_of(pid);
    return pid == getpid();
}

/* Kill COMMAND and all that it started.  The daemons are not our descendants:
 * init adopted them before we became a subreaper. */
static void kill_all(pid_t pid)
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;

    while (proc != NULL && (entry = readdir(proc)) != NULL) {
        pid_t other = (pid_t)atoi(entry->d_name);

        if (other > 0 && other != getpid() && is_ours(other))
            kill(other, SIGKILL);
    }
    if (proc != NULL)
        closedir(proc);
    kill(pid, SIGKILL);
}

static int64_t now_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

int merak_child_wait(pid_t pid, const sigset_t *signals, int grace)
{
    const struct timespec tick = {.tv_sec = 1};
    int64_t deadline = INT64_MAX;
    int status, sig;

    while (!has_ended(pid, &status)) {
        sig = sigtimedwait(signals, NULL, deadline == INT64_MAX ? NULL : &tick);
        if (sig == SIGTERM || sig == SIGHUP) {
            kill(pid, sig);
            deadline = deadline == INT64_MAX ? now_seconds() + grace : 0;
        }
        if (grace > 0 && now_seconds() >= deadline) {
            fputs("merak sandbox: the command does not end: killed\n", stderr);
            kill_all(pid);
            grace = 0;
        }
    }
    return exit_code(status);
}

void merak_child_run(const sigset_t *signals, char *const *argv)
{
    sigprocmask(SIG_UNBLOCK, signals, NULL);
    execvp(argv[0], argv);
    fprintf(stderr, "merak sandbox: %s: %s\n", argv[0], strerror(errno));
    _exit(errno == ENOENT ? 127 : 126);
}
