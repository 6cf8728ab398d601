/* SPDX-License-Identifier: Apache-2.0 */
/* base/thread.h - threads that take no signals */
#ifndef MERAK_BASE_THREAD_H
#define MERAK_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

/* pthread_create() of a thread that blocks all signals: the program's handlers
 * run on its own threads.  attr may be NULL. */
static inline int merak_thread_create(pthread_t *thread,
                                      const pthread_attr_t *attr,
                                      void *(*run)(void *arg), void *arg)
{
    sigset_t all, before;
    int code;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    code = pthread_create(thread, attr, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

#endif
