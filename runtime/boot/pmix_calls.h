/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/boot/pmix_calls.h - PMIx calls that are answered later
 *
 * Slurm's server may never answer, and PMIx gives a call up for no deadline:
 * so each is awaited for a time of ours, and left to the library after it.
 */
#ifndef MERAK_RUNTIME_BOOT_PMIX_CALLS_H
#define MERAK_RUNTIME_BOOT_PMIX_CALLS_H

#include <pmix.h>
#include <pthread.h>

#include "runtime/boot/boot_impl.h"

struct pmix_boot {
    struct merak_boot base;
    pmix_proc_t me;
    unsigned round;  /* every allgather and broadcast has keys of its own */
    unsigned fences; /* that this task has come to */
    bool stuck;      /* a call is not over: Finalize would wait for it */
    struct merak_error gave_up; /* why; status 0: it did not */
};

/* A fence or a get under way.  Neither the thread that waits nor the
 * library's, which may answer after the deadline, knows which is last: it
 * frees it. */
struct pmix_call {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pmix_proc_t proc; /* these three are the library's until it answers */
    pmix_info_t info;
    char key[PMIX_MAX_KEYLEN + 1];
    pmix_value_t *value; /* of a get: a copy, the caller's once it is over */
    pmix_status_t status;
    bool over, given_up;
};

enum merak_status merak_pmix_fail(struct merak_error *err, const char *call,
                                  pmix_status_t status);
/* The process of a rank of this job, or of all. */
void merak_pmix_proc(const struct pmix_boot *boot, pmix_rank_t rank,
                     pmix_proc_t *proc);

/* NULL: no memory. */
struct pmix_call *merak_pmix_call_create(void);
void merak_pmix_call_destroy(struct pmix_call *c);
/* What the library calls when it has an answer. */
void merak_pmix_on_fence(pmix_status_t status, void *arg);
void merak_pmix_on_value(pmix_status_t status, pmix_value_t *value, void *arg);
/* False if it is not over within so many seconds; c is then the library's. */
bool merak_pmix_call_is_over(struct pmix_call *c, double seconds);

/* Has a wait come to its deadline?  Then all that follow fail as it did, at
 * once: who comes to agree on that does not wait for as long once more. */
enum merak_status merak_pmix_given_up(const struct pmix_boot *boot,
                                      struct merak_error *err) MERAK_CHECKED;

/* What is done with a value that was asked for; it is borrowed. */
typedef enum merak_status (*merak_pmix_take_fn)(int rank,
                                                const pmix_value_t *value,
                                                void *arg,
                                                struct merak_error *err);
/*
 * What ranks first to end have put under a key, in their order, each within
 * the boot's deadline.
 */
enum merak_status merak_pmix_get(struct pmix_boot *boot, int first, int end,
                                 const char *key, merak_pmix_take_fn take,
                                 void *arg,
                                 struct merak_error *err) MERAK_CHECKED;

#endif
