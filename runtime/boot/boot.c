/* SPDX-License-Identifier: Apache-2.0 */
/* boot.c - choosing the boot, and grouping ranks by node */
#include "config.h"

#include "runtime/boot/boot_impl.h"

#include "base/error.h"
#include "base/log.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_THREADS 1024

/* -1: not set, or no number of at least 0. */
static int env_int(const char *name)
{
    const char *text = getenv(name);
    char *end;
    long n;

    if (text == NULL || *text == '\0')
        return -1;
    n = strtol(text, &end, 10);
    return *end == '\0' && n >= 0 && n < 1 << 30 ? (int)n : -1;
}

enum merak_status merak_boot_cpus(int *cores_p, struct merak_error *err)
{
    const char *text = getenv("SLURM_CPUS_PER_TASK");
    int n = env_int("SLURM_CPUS_PER_TASK");

    if (text == NULL || *text == '\0')
        return MERAK_OK;
    if (n < 1)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "SLURM_CPUS_PER_TASK is \"%.40s\", expected a "
                          "positive integer, the cores of a task; unset it, "
                          "or give -c N to sbatch and srun",
                          text);
    *cores_p = n;
    return MERAK_OK;
}

enum merak_status merak_boot_threads(int tasks, int *threads_p,
                                     struct merak_error *err)
{
    long share = sysconf(_SC_NPROCESSORS_ONLN) / tasks;
    int n = share < 1 ? 1 : share > MOST_THREADS ? MOST_THREADS : (int)share;
    enum merak_status rc = merak_boot_cpus(&n, err);

    if (rc == MERAK_OK)
        *threads_p = n > MOST_THREADS ? MOST_THREADS : n;
    return rc;
}

/* SLURM_NTASKS counts only inside a step: a batch script also has it, but is a
 * single process. */
int merak_boot_launched(const char **by_p)
{
    static const char *const names[] = {"SLURM_STEP_NUM_TASKS",
                                        "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
    int n;

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        *by_p = names[i];
        n = env_int(names[i]);
        if (n > 0)
            return n;
    }
    *by_p = "SLURM_NTASKS";
    n = env_int("SLURM_NTASKS");
    if (n > 0 &&
        (env_int("SLURM_STEP_ID") >= 0 || env_int("SLURM_STEPID") >= 0))
        return n;
    return 1;
}

int merak_boot_rank(void)
{
    static const char *const names[] = {"PMIX_RANK", "SLURM_PROCID",
                                        "OMPI_COMM_WORLD_RANK", "PMI_RANK"};

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        int rank = env_int(names[i]);

        if (rank >= 0)
            return rank;
    }
    return 0;
}

bool merak_boot_is_first(void)
{
    return merak_boot_rank() == 0;
}

static enum merak_status refuse_singletons(int tasks, const char *by,
                                           struct merak_error *err)
{
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "%d tasks were started (%s) but no PMIx server answers, "
                      "so they cannot find each other; start them with "
                      "`srun --mpi=pmix` (`srun --mpi=list` shows what this "
                      "Slurm offers)",
                      tasks, by);
}

static void warn_alone_in_job(void)
{
    int n = env_int("SLURM_NTASKS");

    if (n > 1)
        merak_warn("boot",
                   "running as one process in a job of %d tasks; start with "
                   "srun to use them all",
                   n);
}

/* For builds without PMIx. */
#ifndef HAVE_PMIX
static enum merak_status refuse_without_pmix(int tasks, const char *by,
                                             struct merak_error *err)
{
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "%d tasks were started (%s), but this Merak was built "
                      "without PMIx, which they need to find each other: start "
                      "one, or build it with PMIx and UCX",
                      tasks, by);
}
#endif

static struct merak_boot *given;

void merak_boot_give(struct merak_boot *boot)
{
    given = boot;
}

enum merak_status merak_boot_open(struct merak_boot **boot_p,
                                  struct merak_error *err)
{
    const char *by;
    int tasks = merak_boot_launched(&by);

    if (boot_p == NULL)
        return merak_fail(err, MERAK_ERR_PARAM, "boot_p is NULL");
    if (given != NULL) {
        *boot_p = given;
        given = NULL;
        return MERAK_OK;
    }
#ifdef HAVE_PMIX
    if (getenv("PMIX_NAMESPACE") != NULL) {
        enum merak_status rc = merak_boot_pmix_open(boot_p, err);

        if (rc != MERAK_ERR_NOT_FOUND)
            return rc;
    }
#else
    if (tasks > 1)
        return refuse_without_pmix(tasks, by, err);
#endif
    if (tasks > 1)
        return refuse_singletons(tasks, by, err);
    warn_alone_in_job();
    return merak_boot_single_open(boot_p, err);
}

void merak_boot_close(struct merak_boot *boot)
{
    if (boot != NULL)
        boot->ops->close(boot);
}

enum merak_status merak_boot_allgather(struct merak_boot *boot,
                                       enum merak_status rc, const void *mine,
                                       size_t bytes, void *all,
                                       struct merak_error *err)
{
    /* A card: this rank's status, then what is shared. */
    const size_t head = sizeof(struct merak_error), stride = head + bytes;
    char *card = calloc((size_t)boot->size + 1, stride);
    struct merak_error why = *err;
    enum merak_status met;

    why.status = rc;
    if (card == NULL) {
        met = merak_fail_nomem(&why, (size_t)boot->size * stride);
    } else {
        memcpy(card, &why, head);
        if (rc == MERAK_OK && bytes > 0)
            memcpy(card + head, mine, bytes);
        met = boot->ops->allgather(boot, card, stride, card + stride, &why);
    }
    if (met != MERAK_OK && rc == MERAK_OK) {
        *err = why;
        if (met != MERAK_ERR_TIMEOUT) /* begins with who is missing */
            merak_error_wrap(err, "tasks cannot agree");
        rc = met;
    }
    for (int r = 0; met == MERAK_OK && r < boot->size; r++) {
        const char *theirs = card + (size_t)(r + 1) * stride;

        memcpy(&why, theirs, head);
        if (why.status != MERAK_OK) {
            *err = why;
            rc = why.status;
            break;
        }
        if (rc == MERAK_OK && bytes > 0)
            memcpy((char *)all + (size_t)r * bytes, theirs + head, bytes);
    }
    free(card);
    return rc;
}

enum merak_status merak_boot_agree(struct merak_boot *boot,
                                   enum merak_status rc,
                                   struct merak_error *err)
{
    return merak_boot_allgather(boot, rc, NULL, 0, NULL, err);
}

static int find_host(const char *const *hosts, int n, const char *name)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(hosts[i], name) == 0)
            return i;
    }
    return -1;
}

/* Nodes are numbered by first appearance. */
static enum merak_status number_nodes(struct merak_boot *boot, char **hosts,
                                      const char *const *host,
                                      struct merak_error *err)
{
    int node = 0;

    for (int r = 0; r < boot->size; r++) {
        /* Consecutive ranks mostly share a node. */
        if (r == 0 || strcmp(host[r], host[r - 1]) != 0)
            node = find_host(boot->hosts, boot->n_nodes, host[r]);
        if (node < 0) {
            node = boot->n_nodes;
            hosts[node] = strdup(host[r]);
            if (hosts[node] == NULL)
                return merak_fail_nomem(err, strlen(host[r]) + 1);
            boot->n_nodes++;
        }
        boot->node_of[r] = node;
    }
    return MERAK_OK;
}

enum merak_status merak_boot_set_nodes(struct merak_boot *boot,
                                       const char *const *host,
                                       struct merak_error *err)
{
    size_t n = (size_t)boot->size;
    char **hosts = calloc(n, sizeof(*hosts));
    enum merak_status rc;
    int mine;

    boot->hosts = (const char *const *)hosts;
    boot->node_of = calloc(n, sizeof(*boot->node_of));
    boot->n_nodes = 0;
    if (hosts == NULL || boot->node_of == NULL) {
        rc = merak_fail_nomem(err, n * sizeof(*hosts));
        goto out;
    }
    rc = number_nodes(boot, hosts, host, err);
    if (rc != MERAK_OK)
        goto out;
    mine = boot->node_of[boot->rank];
    boot->host = hosts[mine];
    boot->local_rank = 0;
    boot->local_size = 0;
    for (int r = 0; r < boot->size; r++) {
        if (boot->node_of[r] != mine)
            continue;
        boot->local_rank += r < boot->rank;
        boot->local_size++;
    }
out:
    if (rc != MERAK_OK)
        merak_boot_clear_nodes(boot);
    return rc;
}

void merak_boot_clear_nodes(struct merak_boot *boot)
{
    char **hosts = (char **)(uintptr_t)boot->hosts;

    for (int i = 0; i < boot->n_nodes; i++)
        free(hosts[i]);
    free(hosts);
    free(boot->node_of);
    boot->hosts = NULL;
    boot->node_of = NULL;
    boot->host = NULL;
    boot->n_nodes = 0;
}
