/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/boot/pmix_calls.h - asynchronous PMIx calls
 *
 * Slurm's server may never answer, and PMIx calls have no deadline.  So each
 * call is waited for up to a deadline of ours; after that it belongs to the
 * library.
 */
#ifndef MERAK_RUNTIME_BOOT_PMIX_CALLS_H
#define MERAK_RUNTIME_BOOT_PMIX_CALLS_H

#include <pmix.h>
#include <pthread.h>

#include "runtime/boot/boot_impl.h"

struct pmix_boot {
    struct merak_boot base;
    pmix_proc_t me;
    unsigned round;  /* makes keys of allgathers and broadcasts unique */
    unsigned fences; /* that this task has entered */
    bool stuck;      /* a call has not completed: Finalize would wait for it */
    struct merak_error gave_up; /* why; status 0: no call was given up */
};

/* A fence or a get under way.  The library may answer after the deadline, so
 * neither its thread nor the waiting one knows whether it is the last user;
 * whichever is frees the call. */
struct pmix_call {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pmix_proc_t proc; /* the library uses these three until it answers */
    pmix_info_t info;
    char key[PMIX_MAX_KEYLEN + 1];
    pmix_value_t *value; /* of a get: a copy, the caller's on completion */
    pmix_status_t status;
    bool over, given_up;
};

enum merak_status merak_pmix_fail(struct merak_error *err, const char *call,
                                  pmix_status_t status);
/* The PMIx name of a rank of this job, or of all ranks
 * (PMIX_RANK_WILDCARD). */
void merak_pmix_proc(const struct pmix_boot *boot, pmix_rank_t rank,
                     pmix_proc_t *proc);

/* NULL: no memory. */
struct pmix_call *merak_pmix_call_create(void);
void merak_pmix_call_destroy(struct pmix_call *c);
/* Callbacks of the library, when it has an answer. */
void merak_pmix_on_fence(pmix_status_t status, void *arg);
void merak_pmix_on_value(pmix_status_t status, pmix_value_t *value, void *arg);
/* False if it does not complete within `seconds`; the library then owns c. */
bool merak_pmix_call_is_over(struct pmix_call *c, double seconds);

/* Has a wait reached its deadline?  If so, this and all later calls fail at
 * once with the same error, so that agreeing on the failure does not wait for
 * another deadline. */
enum merak_status merak_pmix_given_up(const struct pmix_boot *boot,
                                      struct merak_error *err) MERAK_CHECKED;

/* Called with each value that was fetched; the value is borrowed. */
typedef enum merak_status (*merak_pmix_take_fn)(int rank,
                                                const pmix_value_t *value,
                                                void *arg,
                                                struct merak_error *err);
/*
 * Fetch what ranks [first, end) put under a key, in rank order, each within
 * the boot's deadline.
 */
enum merak_status merak_pmix_get(struct pmix_boot *boot, int first, int end,
                                 const char *key, merak_pmix_take_fn take,
                                 void *arg,
                                 struct merak_error *err) MERAK_CHECKED;

#endif
