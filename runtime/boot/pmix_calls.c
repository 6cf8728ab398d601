/* SPDX-License-Identifier: Apache-2.0 */
/* pmix_calls.c - waiting for PMIx calls, and getting the values of many ranks
 * at once */
#include "config.h"

#include "runtime/boot/pmix_calls.h"

#include "base/error.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The most calls in flight: each takes some kilobytes. */
#define AT_ONCE 256

/* The thread sanitizer does not see how PMIx passes a call to its thread. */
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#define GIVE_TO_PMIX(call) __tsan_release(call)
#define TAKE_FROM_PMIX(call) __tsan_acquire(call)
#else
#define GIVE_TO_PMIX(call) ((void)(call))
#define TAKE_FROM_PMIX(call) ((void)(call))
#endif

enum merak_status merak_pmix_fail(struct merak_error *err, const char *call,
                                  pmix_status_t status)
{
    return merak_fail(err, MERAK_ERR_PEER, "%s: %s", call,
                      PMIx_Error_string(status));
}

void merak_pmix_proc(const struct pmix_boot *boot, pmix_rank_t rank,
                     pmix_proc_t *proc)
{
    memset(proc, 0, sizeof(*proc));
    memcpy(proc->nspace, boot->me.nspace, sizeof(proc->nspace));
    proc->rank = rank;
}

struct pmix_call *merak_pmix_call_create(void)
{
    struct pmix_call *c = calloc(1, sizeof(*c));
    pthread_condattr_t attr;

    if (c == NULL)
        return NULL;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, &attr);
    pthread_condattr_destroy(&attr);
    GIVE_TO_PMIX(c);
    return c;
}

void merak_pmix_call_destroy(struct pmix_call *c)
{
    PMIX_INFO_DESTRUCT(&c->info);
    if (c->value != NULL)
        PMIX_VALUE_RELEASE(c->value);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* Take the lock before touching anything else of the call. */
static void take_value(struct pmix_call *c, pmix_status_t status,
                       pmix_value_t *value)
{
    bool given_up;

    TAKE_FROM_PMIX(c);
    pthread_mutex_lock(&c->lock);
    if (status == PMIX_SUCCESS && value != NULL)
        PMIX_VALUE_XFER(status, c->value, value); /* allocates c->value */
    c->status = status;
    c->over = true;
    given_up = c->given_up;
    pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (given_up)
        merak_pmix_call_destroy(c);
}

void merak_pmix_on_fence(pmix_status_t status, void *arg)
{
    take_value(arg, status, NULL);
}

void merak_pmix_on_value(pmix_status_t status, pmix_value_t *value, void *arg)
{
    take_value(arg, status, value);
}

bool merak_pmix_call_is_over(struct pmix_call *c, double seconds)
{
    struct timespec until;
    double whole;
    bool over;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(modf(seconds, &whole) * 1e9);
    until.tv_sec += (time_t)whole + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&c->lock);
    while (!c->over &&
           pthread_cond_timedwait(&c->changed, &c->lock, &until) == 0)
        ;
    over = c->over;
    c->given_up = !over;
    pthread_mutex_unlock(&c->lock);
    return over;
}

/* Ask what a rank has put under this key.  If a rank on another node has not
 * put it, the library waits forever, with Slurm's server even if PMIX_TIMEOUT
 * is given. */
static enum merak_status ask(const struct pmix_boot *boot, int rank,
                             const char *key, struct pmix_call **c_p,
                             struct merak_error *err)
{
    struct pmix_call *c = merak_pmix_call_create();
    pmix_status_t st;

    if (c == NULL)
        return merak_fail_nomem(err, sizeof(*c));
    merak_pmix_proc(boot, (pmix_rank_t)rank, &c->proc);
    snprintf(c->key, sizeof(c->key), "%s", key);
    st = PMIx_Get_nb(&c->proc, c->key, NULL, 0, merak_pmix_on_value, c);
    if (st != PMIX_SUCCESS) { /* the error is the answer */
        c->status = st;
        c->over = true;
    }
    *c_p = c;
    return MERAK_OK;
}

static enum merak_status fail_get(const struct merak_boot *boot, int rank,
                                  const char *key, pmix_status_t st,
                                  struct merak_error *err)
{
    const char *host = boot->hosts == NULL ? "a node not known yet"
                                           : boot->hosts[boot->node_of[rank]];

    if (st == PMIX_ERR_TIMEOUT)
        return merak_fail(err, MERAK_ERR_TIMEOUT,
                          "task %d on %s has not put %s in time, for task %d; "
                          "do all tasks run the same merak?",
                          rank, host, key, boot->rank);
    return merak_fail(err, MERAK_ERR_PEER,
                      "task %d on %s: PMIx_Get_nb of its %s: %s", rank, host,
                      key, PMIx_Error_string(st));
}

enum merak_status merak_pmix_given_up(const struct pmix_boot *boot,
                                      struct merak_error *err)
{
    if (boot->gave_up.status == MERAK_OK)
        return MERAK_OK;
    return merak_fail(err, boot->gave_up.status, "%s", boot->gave_up.text);
}

/* Wait for one answer and release c. */
static enum merak_status take_answer(struct pmix_boot *boot, int rank,
                                     const char *key, struct pmix_call *c,
                                     merak_pmix_take_fn take, void *arg,
                                     struct merak_error *err)
{
    enum merak_status rc;

    if (!merak_pmix_call_is_over(c, boot->base.deadline_s)) {
        boot->stuck = true;
        (void)!fail_get(&boot->base, rank, key, PMIX_ERR_TIMEOUT,
                        &boot->gave_up);
        return merak_pmix_given_up(boot, err);
    }
    rc = c->status != PMIX_SUCCESS
             ? fail_get(&boot->base, rank, key, c->status, err)
             : take(rank, c->value, arg, err);
    merak_pmix_call_destroy(c);
    return rc;
}

/* Give up a call whose answer is no longer needed. */
static void drop(struct pmix_boot *boot, struct pmix_call *c)
{
    if (c == NULL)
        return;
    if (merak_pmix_call_is_over(c, 0))
        merak_pmix_call_destroy(c);
    else
        boot->stuck = true;
}

/* All calls are started before the first is waited for: one after the other,
 * each would put this thread to sleep and wake it up. */
static enum merak_status get_at_once(struct pmix_boot *boot, int first, int end,
                                     const char *key, merak_pmix_take_fn take,
                                     void *arg, struct merak_error *err)
{
    struct pmix_call *call[AT_ONCE] = {NULL};
    enum merak_status rc = MERAK_OK;

    for (int r = first; r < end && rc == MERAK_OK; r++)
        rc = ask(boot, r, key, &call[r - first], err);
    for (int r = first; r < end; r++) {
        if (rc == MERAK_OK)
            rc = take_answer(boot, r, key, call[r - first], take, arg, err);
        else
            drop(boot, call[r - first]);
    }
    return rc;
}

enum merak_status merak_pmix_get(struct pmix_boot *boot, int first, int end,
                                 const char *key, merak_pmix_take_fn take,
                                 void *arg, struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (int r = first; r < end && rc == MERAK_OK; r += AT_ONCE)
        rc = get_at_once(boot, r, r + AT_ONCE < end ? r + AT_ONCE : end, key,
                         take, arg, err);
    return rc;
}
