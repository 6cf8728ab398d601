/* SPDX-License-Identifier: Apache-2.0 */
/* cores.c - which cores the tasks of a node may use, and whether they share
 * any */
#include "config.h"

#include "runtime/doctor/doctor.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has(const struct merak_cores *cores, int i)
{
    return cores->has[i / 8] >> i % 8 & 1;
}

static void add(struct merak_cores *cores, int i)
{
    cores->has[i / 8] |= (unsigned char)(1u << i % 8);
}

bool merak_cores_gather(struct merak_cores *cores)
{
    cpu_set_t *set = CPU_ALLOC(MERAK_MOST_CORES);
    size_t bytes = CPU_ALLOC_SIZE(MERAK_MOST_CORES);
    bool fine = set != NULL && sched_getaffinity(0, bytes, set) == 0;

    memset(cores, 0, sizeof(*cores));
    for (int i = 0; fine && i < MERAK_MOST_CORES; i++) {
        if (CPU_ISSET_S((size_t)i, bytes, set))
            add(cores, i);
    }
    if (set != NULL)
        CPU_FREE(set);
    return fine;
}

bool merak_cores_parse(const char *text, struct merak_cores *cores)
{
    memset(cores, 0, sizeof(*cores));
    while (*text != '\0') {
        char *end;
        long from = strtol(text, &end, 10), to = from;

        if (end == text)
            return false;
        if (*end == '-') {
            text = end + 1;
            to = strtol(text, &end, 10);
            if (end == text)
                return false;
        }
        if (from < 0 || to < from || to >= MERAK_MOST_CORES)
            return false;
        for (long i = from; i <= to; i++)
            add(cores, (int)i);
        if (*end != '\0' && *end != ',')
            return false;
        text = end + (*end == ',');
    }
    return true;
}

void merak_cores_text(const struct merak_cores *cores, char *text, size_t size)
{
    size_t n = 0;

    text[0] = '\0';
    for (int i = 0; i < MERAK_MOST_CORES && n < size; i++) {
        int to = i;

        if (!has(cores, i))
            continue;
        while (to + 1 < MERAK_MOST_CORES && has(cores, to + 1))
            to++;
        n += (size_t)snprintf(text + n, size - n, "%s%d", n > 0 ? "," : "", i);
        if (to > i && n < size)
            n += (size_t)snprintf(text + n, size - n, "-%d", to);
        i = to;
    }
}

int merak_cores_count(const struct merak_cores *cores)
{
    int n = 0;

    for (int i = 0; i < MERAK_MOST_CORES; i++)
        n += has(cores, i);
    return n;
}

/* The number of tasks that share a core with another task. */
static int count_sharers(const struct merak_cores *cores, int n)
{
    unsigned char *taken = calloc(MERAK_MOST_CORES, 1);
    int sharers = 0;

    if (taken == NULL)
        return 0;
    for (int t = 0; t < n; t++) {
        for (int i = 0; i < MERAK_MOST_CORES; i++)
            taken[i] =
                (unsigned char)(taken[i] + (has(&cores[t], i) && taken[i] < 2));
    }
    for (int t = 0; t < n; t++) {
        bool shares = false;

        for (int i = 0; i < MERAK_MOST_CORES && !shares; i++)
            shares = has(&cores[t], i) && taken[i] > 1;
        sharers += shares;
    }
    free(taken);
    return sharers;
}

static struct merak_cores all_of(const struct merak_cores *cores, int n)
{
    struct merak_cores all = {{0}};

    for (int t = 0; t < n; t++) {
        for (size_t i = 0; i < sizeof(all.has); i++)
            all.has[i] |= cores[t].has[i];
    }
    return all;
}

static void judge_sharing(const struct merak_cores *cores, int n, int total,
                          struct merak_findings *found)
{
    int sharers = count_sharers(cores, n);
    struct merak_finding *f;

    if (sharers == 0)
        return;
    if (total < n) {
        f = merak_find(found, MERAK_FINDING_WARNING, "binding",
                       "%d tasks on %d core%s: they take turns", n, total,
                       total == 1 ? "" : "s");
        merak_find_fix(f, "fewer tasks per node, or nodes with more cores");
        return;
    }
    f = merak_find(found, MERAK_FINDING_WARNING, "binding",
                   "%d of %d tasks are not bound to cores of their own",
                   sharers, n);
    merak_find_fix(f,
                   "srun --cpu-bind=cores --cpus-per-task=%d; from 22.05 on "
                   "srun does not take --cpus-per-task from sbatch "
                   "(SRUN_CPUS_PER_TASK does it)",
                   total / n);
}

void merak_cores_judge(const struct merak_cores *cores, int n, int threads,
                       struct merak_findings *found)
{
    struct merak_cores all = all_of(cores, n);
    int total = merak_cores_count(&all), least = total, before = found->n;
    struct merak_finding *f;
    char text[128];

    judge_sharing(cores, n, total, found);
    for (int t = 0; t < n; t++) {
        int own = merak_cores_count(&cores[t]);

        least = own < least ? own : least;
    }
    if (threads > least) {
        f = merak_find(found, MERAK_FINDING_WARNING, "binding",
                       "a task asks for %d threads (SLURM_CPUS_PER_TASK) and "
                       "may use %d core%s",
                       threads, least, least == 1 ? "" : "s");
        merak_find_fix(f, "srun --cpus-per-task=%d --cpu-bind=cores", threads);
    }
    if (found->n > before)
        return;
    merak_cores_text(&all, text, sizeof(text));
    merak_find(found, MERAK_FINDING_OK, "binding",
               "%d task%s, %d core%s (%s)%s", n, n == 1 ? "" : "s", total,
               total == 1 ? "" : "s", text, n > 1 ? ", each with its own" : "");
}
