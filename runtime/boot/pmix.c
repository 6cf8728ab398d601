/* SPDX-License-Identifier: Apache-2.0 */
/* pmix.c - the boot under srun --mpi=pmix, prterun, mpirun or flux
 *
 * Uses what every PMIx server has, Slurm's included: init, get, put, commit,
 * fence, abort, resolve.  No groups, no events.  Hosts come from the
 * PMIX_HOSTNAME key: the environment variable of that name is gethostname's
 * answer and may differ from Slurm's node name, and node ids of remote ranks
 * are wrong before Slurm 25.05.  For a task's own rank PMIx 5 returns
 * gethostname for the key too: that name is looked up in the job's list of
 * nodes.
 */
#include "config.h"

#include "runtime/boot/pmix_calls.h"
#include "runtime/boot/watch.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CARD_MAX 4096
#define DEADLINE_S 300.0
/* Limits for finding out which tasks have not reached a fence that timed
 * out. */
#define ASK_S 2.0
#define MOST_ASKED 4096

/* Put it for all other tasks, which can get it after a commit. */
static enum merak_status put(const char *key, const void *data, size_t bytes,
                             struct merak_error *err)
{
    pmix_value_t value;
    pmix_status_t st;
    pmix_byte_object_t bo = {.bytes = (char *)(uintptr_t)data, .size = bytes};

    PMIX_VALUE_LOAD(&value, &bo, PMIX_BYTE_OBJECT); /* copies the bytes */
    st = PMIx_Put(PMIX_GLOBAL, key, &value);
    PMIX_VALUE_DESTRUCT(&value);
    return st == PMIX_SUCCESS ? MERAK_OK : merak_pmix_fail(err, "PMIx_Put", st);
}

/* --- who has not come ------------------------------------------------------
 */

/* The key under which a task puts its process id before its n-th fence. */
static void mark_key(unsigned n, char key[PMIX_MAX_KEYLEN + 1])
{
    snprintf(key, PMIX_MAX_KEYLEN + 1, "merak.fence.%u", n);
}

/* Ask for a task's mark of this fence; NULL: it could not be asked for.  A
 * mark of an earlier fence is no answer. */
static struct pmix_call *ask_for_mark(struct pmix_boot *boot, int rank)
{
    struct pmix_call *c = merak_pmix_call_create();
    bool yes = true;

    if (c == NULL)
        return NULL;
    merak_pmix_proc(boot, (pmix_rank_t)rank, &c->proc);
    mark_key(boot->fences, c->key);
    PMIX_INFO_LOAD(&c->info, PMIX_GET_REFRESH_CACHE, &yes, PMIX_BOOL);
    if (PMIx_Get_nb(&c->proc, c->key, &c->info, 1, merak_pmix_on_value, c) ==
        PMIX_SUCCESS)
        return c;
    merak_pmix_call_destroy(c);
    return NULL;
}

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void name_absent(const struct merak_boot *boot, int rank, int n,
                        char *text, size_t size)
{
    size_t used = strlen(text);

    if (n < 4)
        snprintf(text + used, size - used, "%stask %d on %s", n > 0 ? ", " : "",
                 rank, boot->hosts[boot->node_of[rank]]);
    else if (n == 4)
        snprintf(text + used, size - used, ", ..");
}

/* A task of this node that was stopped after it had put its mark. */
static bool is_stopped(const struct pmix_boot *boot, int rank,
                       const pmix_value_t *mark)
{
    int64_t pid = 0;

    if (boot->base.node_of[rank] != boot->base.node_of[boot->base.rank] ||
        mark == NULL || mark->type != PMIX_BYTE_OBJECT ||
        mark->data.bo.size != sizeof(pid))
        return false;
    memcpy(&pid, mark->data.bo.bytes, sizeof(pid));
    return merak_process_state((long)pid) == 'T';
}

/* "task 2 on n1 has": the tasks without a mark.  For a task that never
 * reaches the fence the question gets no answer. */
static void tell_absent(struct pmix_boot *boot, char *text, size_t size)
{
    int n = 0,
        most = boot->base.size < MOST_ASKED ? boot->base.size : MOST_ASKED;
    struct pmix_call **c = calloc((size_t)most, sizeof(struct pmix_call *));
    double limit = now_s() + ASK_S;

    text[0] = '\0';
    for (int r = 0; c != NULL && r < most; r++)
        c[r] = r == boot->base.rank ? NULL : ask_for_mark(boot, r);
    for (int r = 0; c != NULL && r < most; r++) {
        double left = limit - now_s();
        bool here = c[r] == NULL;

        if (c[r] != NULL &&
            merak_pmix_call_is_over(c[r], left > 0 ? left : 0)) {
            here = c[r]->status == PMIX_SUCCESS &&
                   !is_stopped(boot, r, c[r]->value);
            merak_pmix_call_destroy(c[r]);
        }
        if (!here)
            name_absent(&boot->base, r, n++, text, size);
    }
    if (n > 0) {
        size_t used = strlen(text);

        snprintf(text + used, size - used, " %s", n == 1 ? "has" : "have");
    }
    free(c);
}

static enum merak_status mark_and_commit(struct pmix_boot *boot,
                                         struct merak_error *err)
{
    char key[PMIX_MAX_KEYLEN + 1];
    const int64_t pid = getpid();
    enum merak_status rc;
    pmix_status_t st;

    mark_key(++boot->fences, key);
    rc = put(key, &pid, sizeof(pid), err);
    if (rc != MERAK_OK)
        return rc;
    st = PMIx_Commit();
    return st == PMIX_SUCCESS ? MERAK_OK
                              : merak_pmix_fail(err, "PMIx_Commit", st);
}

/* Commits what this task has put before.  Always collects data: without it
 * Slurm completes a fence at once, without waiting for other nodes, unless the
 * site sets PMIxFenceBarrier in mpi.conf. */
static enum merak_status fence(struct pmix_boot *boot, struct merak_error *err)
{
    const bool collect = true;
    struct pmix_call *c;
    pmix_status_t st;
    char absent[160];
    enum merak_status rc;

    rc = merak_pmix_given_up(boot, err);
    if (rc == MERAK_OK)
        rc = mark_and_commit(boot, err);
    if (rc != MERAK_OK)
        return rc;
    c = merak_pmix_call_create();
    if (c == NULL)
        return merak_fail_nomem(err, sizeof(*c));
    merak_pmix_proc(boot, PMIX_RANK_WILDCARD, &c->proc);
    PMIX_INFO_LOAD(&c->info, PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
    st = PMIx_Fence_nb(&c->proc, 1, &c->info, 1, merak_pmix_on_fence, c);
    if (st == PMIX_SUCCESS) {
        if (!merak_pmix_call_is_over(c, boot->base.deadline_s)) {
            boot->stuck = true;
            tell_absent(boot, absent, sizeof(absent));
            merak_fail(&boot->gave_up, MERAK_ERR_TIMEOUT,
                       "%s not reached a PMIx fence within %.0f s, as task %d "
                       "has",
                       absent[0] != '\0' ? absent : "some tasks have",
                       boot->base.deadline_s, boot->base.rank);
            return merak_pmix_given_up(boot, err);
        }
        st = c->status;
    }
    merak_pmix_call_destroy(c);
    if (st == PMIX_SUCCESS || st == PMIX_OPERATION_SUCCEEDED)
        return MERAK_OK;
    return merak_pmix_fail(err, "PMIx_Fence_nb", st);
}

struct cards {
    size_t bytes; /* of one */
    char *at;
};

static enum merak_status take_card(int rank, const pmix_value_t *value,
                                   void *arg, struct merak_error *err)
{
    const struct cards *cards = arg;

    if (value->type != PMIX_BYTE_OBJECT || value->data.bo.size != cards->bytes)
        return merak_fail(err, MERAK_ERR_PEER,
                          "endpoint address of rank %d has %zu bytes, expected "
                          "%zu; do all tasks run the same merak?",
                          rank, value->data.bo.size, cards->bytes);
    memcpy(cards->at + (size_t)rank * cards->bytes, value->data.bo.bytes,
           cards->bytes);
    return MERAK_OK;
}

static enum merak_status pmix_allgather(struct merak_boot *base,
                                        const void *card, size_t bytes,
                                        void *cards, struct merak_error *err)
{
    struct pmix_boot *boot = (struct pmix_boot *)base;
    struct cards all = {.bytes = bytes, .at = cards};
    char key[PMIX_MAX_KEYLEN];
    enum merak_status rc;

    if (bytes == 0 || bytes > CARD_MAX)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "a boot card of %zu bytes, at most %d fit", bytes,
                          CARD_MAX);
    snprintf(key, sizeof(key), "merak.card.%u", boot->round++);
    rc = put(key, card, bytes, err);
    if (rc == MERAK_OK)
        rc = fence(boot, err);
    if (rc != MERAK_OK)
        return rc;
    return merak_pmix_get(boot, 0, base->size, key, take_card, &all, err);
}

/* Rank 0 puts the data; the fence brings it to each node once. */
static enum merak_status pmix_broadcast(struct merak_boot *base, void *data,
                                        size_t bytes, struct merak_error *err)
{
    struct pmix_boot *boot = (struct pmix_boot *)base;
    struct cards one = {.bytes = bytes, .at = data};
    char key[PMIX_MAX_KEYLEN];
    enum merak_status rc = MERAK_OK;

    if (bytes == 0)
        return MERAK_OK;
    snprintf(key, sizeof(key), "merak.cast.%u", boot->round++);
    if (base->rank == 0)
        rc = put(key, data, bytes, err);
    if (rc == MERAK_OK)
        rc = fence(boot, err);
    if (rc == MERAK_OK && base->rank != 0)
        rc = merak_pmix_get(boot, 0, 1, key, take_card, &one, err);
    return rc;
}

static enum merak_status pmix_barrier(struct merak_boot *base,
                                      struct merak_error *err)
{
    return fence((struct pmix_boot *)base, err);
}

static void pmix_abort(struct merak_boot *boot, int code, const char *why)
{
    (void)boot;
    PMIx_Abort(code, why, NULL, 0);
    _exit(code);
}

static void pmix_close(struct merak_boot *boot)
{
    if (!((struct pmix_boot *)boot)->stuck)
        PMIx_Finalize(NULL, 0);
    merak_boot_clear_nodes(boot);
    free(boot);
}

static const struct merak_boot_ops pmix_ops = {
    .name = "pmix",
    .allgather = pmix_allgather,
    .broadcast = pmix_broadcast,
    .barrier = pmix_barrier,
    .abort = pmix_abort,
    .close = pmix_close,
};

static enum merak_status get_size(struct pmix_boot *boot,
                                  struct merak_error *err)
{
    pmix_value_t *value = NULL;
    pmix_proc_t job;
    pmix_status_t st;
    uint32_t n = 0;

    merak_pmix_proc(boot, PMIX_RANK_WILDCARD, &job);
    st = PMIx_Get(&job, PMIX_JOB_SIZE, NULL, 0, &value);
    if (st != PMIX_SUCCESS)
        return merak_pmix_fail(err, "PMIx_Get of the job size", st);
    if (value->type == PMIX_UINT32)
        n = value->data.uint32;
    PMIX_VALUE_RELEASE(value);
    if (n == 0 || n > 1u << 20 || boot->me.rank >= n)
        return merak_fail(err, MERAK_ERR_PEER,
                          "the PMIx server gives rank %u of %u", boot->me.rank,
                          n);
    boot->base.size = (int)n;
    boot->base.rank = (int)boot->me.rank;
    return MERAK_OK;
}

static bool has_me(const struct pmix_boot *boot, const char *node)
{
    pmix_proc_t *peers = NULL;
    size_t n = 0;
    bool found = false;

    if (PMIx_Resolve_peers(node, boot->me.nspace, &peers, &n) != PMIX_SUCCESS)
        return false;
    for (size_t i = 0; i < n; i++)
        found = found || peers[i].rank == boot->me.rank;
    PMIX_PROC_FREE(peers, n);
    return found;
}

/* The name by which other tasks know this node; NULL if the server has no list
 * of nodes. */
static char *resolve_my_node(const struct pmix_boot *boot)
{
    char *nodes = NULL, *name = NULL, *rest = NULL;

    if (PMIx_Resolve_nodes(boot->me.nspace, &nodes) != PMIX_SUCCESS ||
        nodes == NULL)
        return NULL;
    for (char *node = strtok_r(nodes, ",", &rest); node != NULL && name == NULL;
         node = strtok_r(NULL, ",", &rest)) {
        if (has_me(boot, node))
            name = strdup(node);
    }
    free(nodes);
    return name;
}

/* Copies the name into host[rank]. */
static enum merak_status take_host(int rank, const pmix_value_t *value,
                                   void *arg, struct merak_error *err)
{
    char **host = arg;

    if (value->type != PMIX_STRING)
        return merak_fail(err, MERAK_ERR_PEER,
                          "the PMIx server does not give the node of rank %d",
                          rank);
    host[rank] = strdup(value->data.string);
    return host[rank] != NULL ? MERAK_OK : merak_fail_nomem(err, 256);
}

static enum merak_status get_nodes(struct pmix_boot *boot,
                                   struct merak_error *err)
{
    size_t n = (size_t)boot->base.size;
    char **host = calloc(n, sizeof(*host));
    enum merak_status rc;
    char *mine;

    if (host == NULL)
        return merak_fail_nomem(err, n * sizeof(*host));
    rc = merak_pmix_get(boot, 0, boot->base.size, PMIX_HOSTNAME, take_host,
                        host, err);
    mine = rc == MERAK_OK ? resolve_my_node(boot) : NULL;
    if (mine != NULL) {
        free(host[boot->base.rank]);
        host[boot->base.rank] = mine;
    }
    if (rc == MERAK_OK)
        rc = merak_boot_set_nodes(&boot->base, (const char *const *)host, err);
    for (size_t r = 0; r < n; r++)
        free(host[r]);
    free(host);
    return rc;
}

enum merak_status merak_boot_pmix_open(struct merak_boot **boot_p,
                                       struct merak_error *err)
{
    struct pmix_boot *boot = calloc(1, sizeof(*boot));
    enum merak_status rc;
    pmix_status_t st;

    if (boot == NULL)
        return merak_fail_nomem(err, sizeof(*boot));
    boot->base.ops = &pmix_ops;
    boot->base.deadline_s = DEADLINE_S;
    st = PMIx_Init(&boot->me, NULL, 0);
    if (st != PMIX_SUCCESS) {
        free(boot);
        return merak_fail(
            err, st == PMIX_ERR_UNREACH ? MERAK_ERR_NOT_FOUND : MERAK_ERR_PEER,
            "PMIx_Init: %s", PMIx_Error_string(st));
    }
    rc = get_size(boot, err);
    if (rc == MERAK_OK)
        rc = get_nodes(boot, err);
    if (rc != MERAK_OK) {
        pmix_close(&boot->base);
        return rc;
    }
    *boot_p = &boot->base;
    return MERAK_OK;
}
