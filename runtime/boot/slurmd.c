/* SPDX-License-Identifier: Apache-2.0 */
/* slurmd.c - noticing that this node's slurmd has ended
 *
 * slurmstepd, the parent of tasks, is not a child of slurmd, and Slurm tells
 * neither of them where the other is.  So slurmd is found by its name in /proc,
 * root's or this user's; where one machine runs several nodes, by its -N, too.
 */
#include "config.h"

#include "runtime/boot/slurmd.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOK_NS INT64_C(2000000000)
/* `systemctl restart slurmd` takes some seconds, and is no news. */
#define RESTART_NS INT64_C(10000000000)
/* Between searches, once it is told. */
#define SEARCH_NS INT64_C(30000000000)

static size_t read_proc(long pid, const char *file, char *text, size_t size)
{
    char path[64];
    size_t n;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%ld/%s", pid, file);
    f = fopen(path, "re");
    if (f == NULL)
        return 0;
    n = fread(text, 1, size - 1, f);
    fclose(f);
    text[n] = '\0';
    return n;
}

static bool is_slurmd(long pid)
{
    char path[64], name[32];
    struct stat st;

    snprintf(path, sizeof(path), "/proc/%ld", pid);
    return read_proc(pid, "comm", name, sizeof(name)) > 0 &&
           strcmp(name, "slurmd\n") == 0 && stat(path, &st) == 0 &&
           (st.st_uid == 0 || st.st_uid == getuid());
}

/* 0 if there is no such process any more. */
static long parent_of(long pid)
{
    char text[512];
    size_t n = read_proc(pid, "stat", text, sizeof(text));
    const char *end = n > 0 ? strrchr(text, ')') : NULL; /* of the name */
    long parent;

    return end != NULL && sscanf(end, ") %*c %ld", &parent) == 1 ? parent : 0;
}

/* The value of -N, or NULL; args are n bytes, each argument ends with NUL. */
static const char *node_of_args(const char *args, size_t n)
{
    for (size_t i = 0; i < n; i += strlen(args + i) + 1) {
        const char *arg = args + i;
        size_t next = i + strlen(arg) + 1;

        if (strcmp(arg, "-N") == 0)
            return next < n ? args + next : NULL;
        if (strncmp(arg, "-N", 2) == 0)
            return arg + 2;
    }
    return NULL;
}

/* One whose -N is `node`, or one without -N; 0: there is none, or several are.
 */
static long find_slurmd(const char *node, bool named)
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    long found = 0;
    int n = 0;

    while (proc != NULL && (entry = readdir(proc)) != NULL) {
        char args[4096];
        const char *its;
        long pid;

        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        pid = strtol(entry->d_name, NULL, 10);
        /* One that it has forked looks like it until it is another program. */
        if (!is_slurmd(pid) || is_slurmd(parent_of(pid)))
            continue;
        its = node_of_args(args, read_proc(pid, "cmdline", args, sizeof(args)));
        if (named ? its == NULL || strcmp(its, node) != 0 : its != NULL)
            continue;
        found = pid;
        n++;
    }
    if (proc != NULL)
        closedir(proc);
    return n == 1 ? found : 0;
}

void merak_slurmd_watch(struct merak_slurmd *slurmd, const char *name)
{
    memset(slurmd, 0, sizeof(*slurmd));
    if (name == NULL || strlen(name) >= sizeof(slurmd->node))
        return;
    slurmd->pid = find_slurmd(name, true);
    slurmd->named = slurmd->pid > 0;
    if (!slurmd->named)
        slurmd->pid = find_slurmd(name, false);
    if (slurmd->pid > 0)
        strcpy(slurmd->node, name);
}

enum merak_slurmd_news merak_slurmd_check(struct merak_slurmd *slurmd,
                                          int64_t now_ns)
{
    bool was_told = slurmd->told;
    long pid;

    if (slurmd->node[0] == '\0' || now_ns < slurmd->next_ns)
        return MERAK_SLURMD_NO_NEWS;
    slurmd->next_ns = now_ns + (was_told ? SEARCH_NS : LOOK_NS);
    if (slurmd->ended_ns == 0 && is_slurmd(slurmd->pid))
        return MERAK_SLURMD_NO_NEWS;
    pid = find_slurmd(slurmd->node, slurmd->named);
    if (pid > 0) {
        slurmd->pid = pid;
        slurmd->ended_ns = 0;
        slurmd->told = false;
        return was_told ? MERAK_SLURMD_BACK : MERAK_SLURMD_NO_NEWS;
    }
    if (slurmd->ended_ns == 0)
        slurmd->ended_ns = now_ns;
    if (was_told || now_ns - slurmd->ended_ns < RESTART_NS)
        return MERAK_SLURMD_NO_NEWS;
    slurmd->told = true;
    return MERAK_SLURMD_GONE;
}
