/* SPDX-License-Identifier: Apache-2.0 */
/* memory_limit.c - how much memory a task may take
 *
 * The smallest of the node's MemAvailable and the free memory of every cgroup
 * above the task (Slurm limits a job's memory on a node by one), divided by
 * the node's tasks.  Inactive file pages of a cgroup are reclaimable and count
 * as free.
 */
#include "config.h"

#include "runtime/train/trainer.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PATH 4096

/* Open a file below `root` for reading. */
static FILE *open_below(const char *root, const char *file)
{
    char path[MAX_PATH];

    snprintf(path, sizeof(path), "%s%s", root, file);
    return fopen(path, "re");
}

static size_t node_available(const char *root)
{
    FILE *f = open_below(root, "/proc/meminfo");
    char line[128];
    size_t kib = SIZE_MAX / 1024;

    if (f == NULL)
        return SIZE_MAX;
    while (fgets(line, sizeof(line), f) != NULL) {
        if (sscanf(line, "MemAvailable: %zu kB", &kib) == 1)
            break;
    }
    fclose(f);
    return kib * 1024;
}

/* A number in a file of a cgroup, after `key` if that is not NULL; SIZE_MAX if
 * there is none, or for "max". */
static size_t read_number(const char *dir, const char *name, const char *key)
{
    char path[MAX_PATH + 64], line[128];
    uint64_t v;
    size_t got = SIZE_MAX, n = key != NULL ? strlen(key) : 0;
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    f = fopen(path, "re");
    if (f == NULL)
        return SIZE_MAX;
    while (got == SIZE_MAX && fgets(line, sizeof(line), f) != NULL) {
        if (n > 0 && (strncmp(line, key, n) != 0 || line[n] != ' '))
            continue;
        if (sscanf(line + n, "%" SCNu64, &v) == 1)
            got = (size_t)v;
        else if (n == 0)
            break;
    }
    fclose(f);
    return got;
}

static size_t group_available(const char *dir, bool unified)
{
    size_t most = read_number(
        dir, unified ? "memory.max" : "memory.limit_in_bytes", NULL);
    size_t used = read_number(
        dir, unified ? "memory.current" : "memory.usage_in_bytes", NULL);
    size_t files = read_number(
        dir, "memory.stat", unified ? "inactive_file" : "total_inactive_file");

    if (most == SIZE_MAX || used == SIZE_MAX)
        return SIZE_MAX;
    if (files != SIZE_MAX)
        used -= files < used ? files : used;
    return most > used ? most - used : 0;
}

/* The least memory that is free in the groups from `path` up to the root of
 * the hierarchy; modifies path. */
static size_t groups_available(const char *root, const char *hierarchy,
                               char *path)
{
    bool unified = *hierarchy == '\0';
    char dir[MAX_PATH];
    size_t least = SIZE_MAX;

    for (;;) {
        char *slash = strrchr(path, '/');
        size_t here;

        snprintf(dir, sizeof(dir), "%s/sys/fs/cgroup%s%s", root, hierarchy,
                 path);
        here = group_available(dir, unified);
        least = here < least ? here : least;
        if (slash == NULL)
            return least;
        *slash = '\0';
    }
}

static size_t cgroup_available(const char *root)
{
    FILE *f = open_below(root, "/proc/self/cgroup");
    char line[2048];
    size_t least = SIZE_MAX;

    if (f == NULL)
        return SIZE_MAX;
    while (fgets(line, sizeof(line), f) != NULL) {
        char *kinds = strchr(line, ':');
        char *path = kinds != NULL ? strchr(kinds + 1, ':') : NULL;
        size_t here = SIZE_MAX;

        if (path == NULL)
            continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        if (kinds[1] == '\0')
            here = groups_available(root, "", path);
        else if (strcmp(kinds + 1, "memory") == 0)
            here = groups_available(root, "/memory", path);
        least = here < least ? here : least;
    }
    fclose(f);
    return least;
}

size_t merak_memory_left(const char *root)
{
    size_t node = node_available(root), group = cgroup_available(root);

    return node < group ? node : group;
}

size_t merak_memory_available(const struct merak_boot *boot)
{
    size_t least = merak_memory_left("");

    return least == SIZE_MAX ? SIZE_MAX : least / (size_t)boot->local_size;
}

enum merak_status merak_memory_least(struct merak_boot *boot, size_t have,
                                     size_t *bytes_p, struct merak_error *err)
{
    size_t least = have / 8 * 7;
    size_t *all = calloc((size_t)boot->size, sizeof(*all));
    enum merak_status rc = MERAK_OK;

    if (all == NULL)
        rc = merak_fail_nomem(err, (size_t)boot->size * sizeof(*all));
    rc = merak_boot_allgather(boot, rc, &least, sizeof(least), all, err);
    for (int r = 0; r < boot->size && rc == MERAK_OK; r++)
        least = all[r] < least ? all[r] : least;
    if (rc == MERAK_OK)
        *bytes_p = least;
    free(all);
    return rc;
}
