/* SPDX-License-Identifier: Apache-2.0 */
/* accel_choice.c - which backend a run uses, and which task uses which
 * accelerator
 *
 * Slurm may show a task only its own GPU or all of the node's.  Both work the
 * same way: tasks of a node exchange the bus addresses of the GPUs that they
 * see, and all compute the same assignment.
 */
#include "config.h"

#include "runtime/train/accel_choice.h"

#include "base/error.h"
#include "base/log.h"
#include "runtime/train/trainer.h"

#include <dirent.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Memory of an accelerator kept free for its libraries. */
#define RESERVE ((size_t)1 << 30)
#define MAX_CPUS 4096

/* --- who takes what ---------------------------------------------------------
 */

static bool is_same(const struct merak_accel_device *a,
                    const struct merak_accel_device *b)
{
    return strcmp(a->bus, b->bus) == 0;
}

/* How many of the first n tasks use this device. */
static int holders(const struct merak_accel_card *card, const int *choice,
                   int n, const struct merak_accel_device *device)
{
    int holding = 0;

    for (int i = 0; i < n; i++)
        holding += is_same(&card[i].device[choice[i]], device);
    return holding;
}

void merak_accel_assign(const struct merak_accel_card *card, int n, int *choice)
{
    for (int i = 0; i < n; i++) {
        int least = INT_MAX;

        choice[i] = 0;
        for (int d = 0; d < card[i].n; d++) {
            const struct merak_accel_device *device = &card[i].device[d];
            bool far = card[i].numa >= 0 && device->numa >= 0 &&
                       card[i].numa != device->numa;
            int cost = 2 * holders(card, choice, i, device) + far;

            if (cost < least) {
                least = cost;
                choice[i] = d;
            }
        }
    }
}

int merak_accel_sharers(const struct merak_accel_card *card, const int *choice,
                        int i)
{
    return holders(card, choice, i, &card[i].device[choice[i]]);
}

int merak_accel_tasks(const struct merak_accel_card *card, const int *choice,
                      int n, int i)
{
    return holders(card, choice, n, &card[i].device[choice[i]]);
}

enum merak_status merak_accel_judge_sharing(const struct merak_accel_device *d,
                                            const char *host, int rank,
                                            const char *transport,
                                            struct merak_error *err)
{
    if (transport != NULL && strcmp(transport, "nccl") == 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "task %d on %.40s shares %.40s at %s with another "
                          "task, and NCCL needs a GPU for each: start no more "
                          "tasks than there are GPUs, or use --transport ucx",
                          rank, host, d->name, d->bus);
    merak_warn("train",
               "task %d on %s shares %s at %s with another task: "
               "start no more tasks than there are GPUs",
               rank, host, d->name, d->bus);
    return MERAK_OK;
}

/* --- what a task sees -------------------------------------------------------
 */

/* The NUMA node of a processor, or -1. */
static int numa_of_cpu(int cpu)
{
    char path[64];
    struct dirent *entry;
    int node = -1;
    DIR *dir;

    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d", cpu);
    dir = opendir(path);
    if (dir == NULL)
        return -1;
    while (node < 0) {
        entry = readdir(dir);
        if (entry == NULL)
            break;
        if (sscanf(entry->d_name, "node%d", &node) != 1)
            node = -1;
    }
    closedir(dir);
    return node;
}

/* The NUMA node of all processors that this process may run on, or -1. */
static int own_numa(void)
{
    size_t bytes = CPU_ALLOC_SIZE(MAX_CPUS);
    cpu_set_t *set = CPU_ALLOC(MAX_CPUS);
    int node = -1;

    if (set == NULL || sched_getaffinity(0, bytes, set) != 0) {
        CPU_FREE(set);
        return -1;
    }
    for (int cpu = 0; cpu < MAX_CPUS; cpu++) {
        int here;

        if (!CPU_ISSET_S(cpu, bytes, set))
            continue;
        here = numa_of_cpu(cpu);
        if (here < 0 || (node >= 0 && here != node)) {
            node = -1;
            break;
        }
        node = here;
    }
    CPU_FREE(set);
    return node;
}

bool merak_accel_is_given(char *(*get)(const char *name),
                          bool (*exists)(const char *path))
{
    static const char *const given[] = {"SLURM_STEP_GPUS", "SLURM_JOB_GPUS",
                                        "CUDA_VISIBLE_DEVICES"};

    if (!exists("/dev/nvidiactl"))
        return false;
    if (get("SLURM_JOB_ID") == NULL)
        return true;
    for (size_t i = 0; i < sizeof(given) / sizeof(*given); i++) {
        const char *value = get(given[i]);

        if (value != NULL && *value != '\0' && strcmp(value, "NoDevFiles") != 0)
            return true;
    }
    return false;
}

static bool file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

enum merak_status merak_accel_list(const struct merak_backend *backend,
                                   struct merak_accel_card *card,
                                   struct merak_error *err)
{
    *card = (struct merak_accel_card){.numa = own_numa()};
    if (backend->accel == NULL)
        return MERAK_OK;
    if (backend->accel->devices != NULL)
        return backend->accel->devices(card->device, MERAK_ACCEL_MAX, &card->n,
                                       err);
    card->n = 1; /* one per task */
    snprintf(card->device[0].bus, sizeof(card->device[0].bus), "%d",
             (int)getpid());
    card->device[0].numa = -1;
    return MERAK_OK;
}

/* Find the backend and its devices. */
static enum merak_status look(const char *name,
                              const struct merak_backend **backend_p,
                              struct merak_accel_card *card,
                              struct merak_error *err)
{
    enum merak_status rc = merak_backend_find(name, backend_p, err);

    return rc == MERAK_OK ? merak_accel_list(*backend_p, card, err) : rc;
}

/* --- the run's backend ------------------------------------------------------
 */

/* What one task finds for backend "auto". */
struct vote {
    bool can;
    char why[300]; /* why not, though there are GPUs; or "" */
};

static struct vote vote(void)
{
    const struct merak_backend *backend;
    struct merak_error err = {.status = MERAK_OK};
    struct merak_accel_card *card = malloc(sizeof(*card));
    struct vote v = {.can = false};

    if (card != NULL && merak_accel_is_given(getenv, file_exists)) {
        v.can = look("cuda", &backend, card, &err) == MERAK_OK;
        if (!v.can)
            snprintf(v.why, sizeof(v.why), "%.299s", err.text);
    }
    if (!v.can && v.why[0] == '\0' && file_exists("/dev/nvidiactl"))
        snprintf(v.why, sizeof(v.why),
                 "Slurm gave none to this job, ask for them with "
                 "--gpus-per-node=N");
    free(card);
    return v;
}

static enum merak_status refuse_mixture(const struct merak_boot *boot,
                                        const struct vote *votes,
                                        struct merak_error *err)
{
    int with = 0, without = 0;

    while (!votes[with].can)
        with++;
    while (votes[without].can)
        without++;
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "task %d on %.40s has a GPU and task %d on %.40s has "
                      "none (%.160s): start tasks that all have one, or use "
                      "--backend cpu",
                      with, boot->hosts[boot->node_of[with]], without,
                      boot->hosts[boot->node_of[without]],
                      votes[without].why[0] != '\0' ? votes[without].why
                                                    : "none was given to it");
}

/* Resolve "auto" to a backend; the same on all ranks. */
static enum merak_status resolve(struct merak_trainer *t,
                                 struct merak_error *err)
{
    struct vote mine = vote(), *votes;
    enum merak_status rc = MERAK_OK;
    int can = 0;

    votes = calloc((size_t)t->boot->size, sizeof(*votes));
    if (votes == NULL)
        rc = merak_fail_nomem(err, (size_t)t->boot->size * sizeof(*votes));
    rc = merak_boot_allgather(t->boot, rc, &mine, sizeof(mine), votes, err);
    for (int r = 0; r < t->boot->size && rc == MERAK_OK; r++)
        can += votes[r].can;
    if (rc == MERAK_OK && can > 0 && can < t->boot->size)
        rc = refuse_mixture(t->boot, votes, err);
    t->opt.backend = can > 0 ? "cuda" : "cpu";
    if (rc == MERAK_OK && can > 0)
        snprintf(t->compute.why, sizeof(t->compute.why),
                 "chosen because tasks have GPUs; --backend cpu overrides it");
    else if (rc == MERAK_OK && votes[0].why[0] != '\0')
        snprintf(t->compute.why, sizeof(t->compute.why),
                 "chosen although there are GPUs: %s", votes[0].why);
    free(votes);
    return rc;
}

/* --- this task's accelerator ------------------------------------------------
 */

/* The cards of this node's tasks, in order; *me_p is this one's index. */
static int node_cards(const struct merak_boot *boot,
                      const struct merak_accel_card *all,
                      struct merak_accel_card *here, int *me_p)
{
    int n = 0;

    for (int r = 0; r < boot->size; r++) {
        if (boot->node_of[r] != boot->node_of[boot->rank])
            continue;
        if (r == boot->rank)
            *me_p = n;
        here[n++] = all[r];
    }
    return n;
}

/* The index of this task's accelerator among those it sees; -1 on failure.
 * Collective. */
static enum merak_status assign(struct merak_trainer *t,
                                const struct merak_accel_card *mine,
                                struct merak_error *err)
{
    size_t size = (size_t)t->boot->size;
    struct merak_accel_card *all = calloc(2 * size, sizeof(*all));
    int *choice = calloc(size, sizeof(*choice));
    enum merak_status rc = MERAK_OK;
    int me = 0, n;

    if (all == NULL || choice == NULL)
        rc = merak_fail_nomem(err, 2 * size * sizeof(*all));
    rc = merak_boot_agree(t->boot, rc, err);
    if (rc == MERAK_OK)
        rc = t->boot->ops->allgather(t->boot, mine, sizeof(*mine), all, err);
    if (rc == MERAK_OK) {
        n = node_cards(t->boot, all, all + size, &me);
        merak_accel_assign(all + size, n, choice);
        t->compute.card = mine->device[choice[me]];
        t->compute.card_tasks = merak_accel_tasks(all + size, choice, n, me);
        /* said once, by the second */
        if (merak_accel_sharers(all + size, choice, me) == 1)
            rc = merak_accel_judge_sharing(
                &t->compute.card, t->boot->host, t->boot->rank,
                t->opt.transport == MERAK_TRANSPORT_NCCL ? "nccl" : NULL, err);
    }
    free(all);
    free(choice);
    return rc;
}

/* --- the same kernels on all ranks ------------------------------------------
 */

static const char *host_of(const struct merak_boot *boot, int rank)
{
    return boot->hosts[boot->node_of[rank]];
}

enum merak_status
merak_accel_judge_kernels(const struct merak_boot *boot, const char *variable,
                          const struct merak_accel_kernels *all,
                          struct merak_error *err)
{
    int r;

    for (r = 1; r < boot->size; r++) {
        if (strcmp(all[r].value, all[0].value) == 0)
            continue;
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%s is \"%s\" for rank 0 on %s and \"%s\" for rank "
                          "%d on %s: their kernels would differ in bits; give "
                          "all tasks the same",
                          variable, all[0].value, host_of(boot, 0),
                          all[r].value, r, host_of(boot, r));
    }
    for (r = 1; r < boot->size && boot->rank == 0; r++) {
        if (strcmp(all[r].made_for, all[0].made_for) == 0)
            continue;
        merak_warn("train",
                   "rank 0 on %s has %s and rank %d on %s has %s: what both "
                   "compute may differ in the last bits",
                   host_of(boot, 0), all[0].made_for, r, host_of(boot, r),
                   all[r].made_for);
        break;
    }
    return MERAK_OK;
}

/* Collective; rc is this rank's status so far. */
static enum merak_status compare_kernels(const struct merak_trainer *t,
                                         enum merak_status rc,
                                         struct merak_error *err)
{
    const char *variable = t->compute.backend->variable;
    const char *value = variable == NULL ? "" : getenv(variable);
    struct merak_accel_kernels mine = {.value = ""}, *all;

    all = calloc((size_t)t->boot->size, sizeof(*all));
    if (rc == MERAK_OK && all == NULL)
        rc = merak_fail_nomem(err, (size_t)t->boot->size * sizeof(*all));
    if (variable != NULL && (value == NULL || *value == '\0'))
        value = t->compute.backend->variable_default;
    snprintf(mine.value, sizeof(mine.value), "%s", value);
    if (rc == MERAK_OK && t->compute.accel->ops->tuned_for != NULL)
        t->compute.accel->ops->tuned_for(t->compute.accel, mine.made_for,
                                         sizeof(mine.made_for));
    rc = merak_boot_allgather(t->boot, rc, &mine, sizeof(mine), all, err);
    if (rc == MERAK_OK)
        rc = merak_accel_judge_kernels(t->boot, variable, all, err);
    free(all);
    return rc;
}

/* Where tasks share an accelerator, NCCL cannot be used.  Collective; rc is
 * this rank's status so far. */
static enum merak_status do_without_link(struct merak_trainer *t,
                                         enum merak_status rc,
                                         struct merak_error *err)
{
    bool mine = t->compute.card_tasks > 1, *shared;
    int r = 0;

    shared = calloc((size_t)t->boot->size, sizeof(*shared));
    if (rc == MERAK_OK && shared == NULL)
        rc = merak_fail_nomem(err, (size_t)t->boot->size * sizeof(*shared));
    rc = merak_boot_allgather(t->boot, rc, &mine, sizeof(mine), shared, err);
    while (rc == MERAK_OK && r < t->boot->size && !shared[r])
        r++;
    if (rc == MERAK_OK && r < t->boot->size && t->linked.direct) {
        t->linked.direct = false;
        snprintf(t->linked.why, sizeof(t->linked.why),
                 "task %d on %.64s shares its GPU with another task, and NCCL "
                 "needs a GPU for each",
                 r, host_of(t->boot, r));
    }
    free(shared);
    return rc;
}

static void warn_of(const struct merak_trainer *t, int number)
{
    char text[512], warning[256] = "";

    if (t->compute.backend->accel->facts == NULL)
        return;
    t->compute.backend->accel->facts(number, text, sizeof(text), warning,
                                     sizeof(warning));
    if (warning[0] != '\0')
        merak_warn("train", "%s: %s", t->boot->host, warning);
}

/* A failure names the node where it is; what is left out is logged. */
static enum merak_status look_here(struct merak_trainer *t,
                                   struct merak_accel_card *card,
                                   struct merak_error *err)
{
    struct merak_error why = {.text = ""};
    enum merak_status rc =
        look(t->opt.backend, &t->compute.backend, card, &why);

    if (rc == MERAK_OK && why.text[0] != '\0' && t->boot->local_rank == 0)
        merak_warn("train", "%s: not used: %s", t->boot->host, why.text);
    if (rc != MERAK_OK && t->boot->n_nodes > 1)
        merak_error_wrap(&why, "%.64s", t->boot->host);
    if (rc != MERAK_OK && err != NULL)
        *err = why;
    return rc;
}

enum merak_status merak_accel_choose(struct merak_trainer *t,
                                     struct merak_error *err)
{
    struct merak_accel_card *card = malloc(sizeof(*card));
    enum merak_status rc = MERAK_OK;

    if (strcmp(t->opt.backend, "auto") == 0)
        rc = resolve(t, err);
    if (rc == MERAK_OK)
        rc = card == NULL ? merak_fail_nomem(err, sizeof(*card))
                          : look_here(t, card, err);
    rc = merak_boot_agree(t->boot, rc, err);
    /* All ranks have the same backend. */
    t->linked.direct = rc == MERAK_OK && merak_trainer_wants_link(t);
    if (rc == MERAK_OK && t->compute.backend->accel != NULL) {
        rc = do_without_link(t, assign(t, card, err), err);
        if (rc == MERAK_OK)
            rc = t->compute.backend->accel->open(
                t->compute.card.number, merak_link_queues(t), t->threads,
                &t->compute.accel, err);
        if (rc == MERAK_OK)
            warn_of(t, t->compute.card.number);
        rc = compare_kernels(t, rc, err);
    }
    free(card);
    return rc;
}

size_t merak_task_memory(const struct merak_trainer *t)
{
    size_t left = 0, all = 0;

    if (t->compute.accel == NULL || t->compute.accel->ops->memory == NULL)
        return merak_memory_available(t->boot);
    if (t->compute.accel->ops->memory(t->compute.accel, &left, &all, NULL) !=
        MERAK_OK)
        return 0;
    if (t->compute.card_tasks > 1)
        left /= (size_t)t->compute.card_tasks;
    return left > RESERVE ? left - RESERVE : 0;
}
