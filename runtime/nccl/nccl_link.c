/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_link.c - NCCL as a link library: the module merak_nccl.so
 *
 * libnccl.so.2, or the file that MERAK_NCCL_LIBRARY names, is opened with a
 * link.  Communicators are non-blocking (blocking = 0): NCCL returns "in
 * progress", and test() gets the result.  NCCL's codes and types are used only
 * here.
 *
 * From 2.26 on NCCL runs work of several communicators on one device in the
 * order in which this process issues it (NCCL_LAUNCH_ORDER_IMPLICIT).  Before,
 * the caller had to wait between them, so older versions are refused.
 * partitioner/simulate/check_streams.c proves that the order is the same on
 * all ranks.
 */
#include "config.h"

#include "base/error.h"
#include "base/wait.h"
#include "runtime/link/link_ops.h"
#include "runtime/nccl/nccl_api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LIBRARY "libnccl.so.2"
#define LEAST_VERSION 22600
/* How long leave() waits for other members, in polls of POLL_NS. */
#define LEAVE_POLLS 100000
#define POLL_NS 100000
#define ABORT_S 30 /* for kernels to notice the abort */
/* Exported by stand-ins for NCCL on the fake device's queues. */
#define STAND_IN_SYMBOL "merak_nccl_stand_in"

struct merak_link_library {
    void *handle;
    struct nccl_functions nccl;
};

struct merak_link_comm {
    struct merak_link_library *library;
    struct nccl_comm *comm; /* NULL once it has ended */
    int n, me;
};

/* --- errors -----------------------------------------------------------------
 */

static enum merak_status status_of(int result)
{
    switch (result) {
    case NCCL_INVALID_ARGUMENT:
    case NCCL_INVALID_USAGE:
        return MERAK_ERR_PARAM;
    case NCCL_UNHANDLED_CUDA_ERROR:
        return MERAK_ERR_SYSTEM;
    case NCCL_REMOTE_ERROR:
        return MERAK_ERR_LOST;
    default:
        return MERAK_ERR_FABRIC;
    }
}

static enum merak_status fail(const struct merak_link_library *library,
                              struct nccl_comm *comm, const char *what,
                              int result, struct merak_error *err)
{
    const char *more = library->nccl.get_last_error(comm);

    if (more == NULL || *more == '\0')
        return merak_fail(err, status_of(result),
                          "NCCL cannot %s: %.80s; NCCL_DEBUG=WARN shows more",
                          what, library->nccl.get_error_string(result));
    return merak_fail(err, status_of(result), "NCCL cannot %s: %.60s (%.120s)",
                      what, library->nccl.get_error_string(result), more);
}

static enum merak_status check(const struct merak_link_comm *c,
                               const char *what, int result,
                               struct merak_error *err)
{
    if (result == NCCL_SUCCESS)
        return MERAK_OK;
    if (result == NCCL_IN_PROGRESS)
        return MERAK_IN_PROGRESS;
    return fail(c->library, c->comm, what, result, err);
}

/* --- the library ------------------------------------------------------------
 */

static enum merak_status find_functions(struct merak_link_library *library,
                                        const char *name,
                                        struct merak_error *err)
{
    struct nccl_functions *f = &library->nccl;
    const struct {
        const char *symbol;
        void *at;
    } wanted[] = {
        {"ncclGetVersion", &f->get_version},
        {"ncclGetUniqueId", &f->get_unique_id},
        {"ncclGetErrorString", &f->get_error_string},
        {"ncclGetLastError", &f->get_last_error},
        {"ncclCommInitRankConfig", &f->comm_init_rank_config},
        {"ncclCommGetAsyncError", &f->comm_get_async_error},
        {"ncclCommFinalize", &f->comm_finalize},
        {"ncclCommDestroy", &f->comm_destroy},
        {"ncclCommAbort", &f->comm_abort},
        {"ncclGroupStart", &f->group_start},
        {"ncclGroupEnd", &f->group_end},
        {"ncclSend", &f->send},
        {"ncclRecv", &f->recv},
        {"ncclAllReduce", &f->all_reduce},
        {"ncclReduceScatter", &f->reduce_scatter},
        {"ncclAllGather", &f->all_gather},
    };

    for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++) {
        void *symbol = dlsym(library->handle, wanted[i].symbol);

        if (symbol == NULL)
            return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                              "%.120s has no %s: transport nccl needs NCCL "
                              "2.26 or later; or use --transport ucx",
                              name, wanted[i].symbol);
        memcpy(wanted[i].at, &symbol, sizeof(symbol));
    }
    return MERAK_OK;
}

/* Does it take queues of this kind? */
static enum merak_status check_streams(const struct merak_link_library *library,
                                       const char *name,
                                       enum merak_streams streams,
                                       struct merak_error *err)
{
    bool plays = dlsym(library->handle, STAND_IN_SYMBOL) != NULL;

    if (plays == (streams == MERAK_STREAMS_FAKE))
        return MERAK_OK;
    if (plays)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%.120s stands in for NCCL in tests and transfers "
                          "nothing between GPUs: unset MERAK_NCCL_LIBRARY",
                          name);
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "NCCL moves data between NVIDIA GPUs, and this backend's "
                      "device is not one: use --backend cuda, or --transport "
                      "ucx");
}

static enum merak_status check_version(const struct merak_link_library *library,
                                       const char *name, char *about,
                                       struct merak_error *err)
{
    int version = 0, result = library->nccl.get_version(&version);

    if (result != NCCL_SUCCESS)
        return fail(library, NULL, "report its version", result, err);
    if (version < LEAST_VERSION)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "%.120s is NCCL %d.%d.%d, and transport nccl needs "
                          "2.26 or later: name a newer one with "
                          "MERAK_NCCL_LIBRARY, or use --transport ucx",
                          name, version / 10000, version / 100 % 100,
                          version % 100);
    snprintf(about, 256, "NCCL %d.%d.%d", version / 10000, version / 100 % 100,
             version % 100);
    return MERAK_OK;
}

static void nccl_close(struct merak_link_library *library)
{
    /* The library's threads may outlive communicators, so no dlclose(). */
    free(library);
}

static enum merak_status nccl_open(enum merak_streams streams,
                                   struct merak_link_library **library_p,
                                   char *about, struct merak_error *err)
{
    const char *name = getenv("MERAK_NCCL_LIBRARY");
    struct merak_link_library *library = calloc(1, sizeof(*library));
    enum merak_status rc;

    if (library == NULL)
        return merak_fail_nomem(err, sizeof(*library));
    if (name == NULL || *name == '\0')
        name = LIBRARY;
    /* NCCL reads it when opened or first used; a site's setting is kept */
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
    library->handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library->handle == NULL)
        rc = merak_fail(err, MERAK_ERR_UNSUPPORTED,
                        "NCCL cannot be loaded (%.120s): name its libnccl.so.2 "
                        "with MERAK_NCCL_LIBRARY, or use --transport ucx",
                        dlerror());
    else
        rc = find_functions(library, name, err);
    if (rc == MERAK_OK)
        rc = check_streams(library, name, streams, err);
    if (rc == MERAK_OK)
        rc = check_version(library, name, about, err);
    if (rc == MERAK_OK)
        *library_p = library;
    else
        nccl_close(library);
    return rc;
}

static enum merak_status nccl_make_id(struct merak_link_library *library,
                                      struct merak_link_id *id,
                                      struct merak_error *err)
{
    struct nccl_id own;
    int result = library->nccl.get_unique_id(&own);

    if (result != NCCL_SUCCESS)
        return fail(library, NULL,
                    "open a socket for others to meet at (NCCL_SOCKET_IFNAME "
                    "names the interface)",
                    result, err);
    memcpy(id->bytes, own.internal, sizeof(id->bytes));
    return MERAK_OK;
}

/* --- communicators ----------------------------------------------------------
 */

static enum merak_status nccl_join(struct merak_link_library *library,
                                   const struct merak_link_join *how,
                                   struct merak_link_comm **comm_p,
                                   struct merak_error *err)
{
    struct nccl_config config = {
        .size = sizeof(config),
        .magic = NCCL_CONFIG_MAGIC,
        .version = NCCL_CONFIG_VERSION,
        .blocking = 0,
        .cga_cluster_size = NCCL_CONFIG_UNDEFINED,
        .min_ctas = NCCL_CONFIG_UNDEFINED,
        .max_ctas = how->most_ctas > 0 ? how->most_ctas : NCCL_CONFIG_UNDEFINED,
        .split_share = NCCL_CONFIG_UNDEFINED,
        .traffic_class = NCCL_CONFIG_UNDEFINED,
    };
    struct merak_link_comm *c = calloc(1, sizeof(*c));
    struct nccl_id id;
    int result;

    if (c == NULL)
        return merak_fail_nomem(err, sizeof(*c));
    c->library = library;
    c->n = how->n;
    c->me = how->me;
    memcpy(id.internal, how->id.bytes, sizeof(id.internal));
    result = library->nccl.comm_init_rank_config(&c->comm, how->n, id, how->me,
                                                 &config);
    if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS) {
        free(c);
        return fail(library, NULL, "begin a communicator", result, err);
    }
    *comm_p = c;
    return MERAK_OK;
}

static enum merak_status nccl_test(struct merak_link_comm *c,
                                   struct merak_error *err)
{
    int state = NCCL_SUCCESS, result;

    if (c->comm == NULL)
        return merak_fail(err, MERAK_ERR_FABRIC,
                          "the communicator has been aborted");
    result = c->library->nccl.comm_get_async_error(c->comm, &state);
    if (result != NCCL_SUCCESS)
        return fail(c->library, c->comm, "report its state", result, err);
    return check(c, "go on", state, err);
}

/* The abort of one communicator, on its own thread. */
struct ending {
    pthread_t thread;
    bool started;
    struct merak_link_library *library;
    struct nccl_comm *comm;
};

static void *end_one(void *arg)
{
    struct ending *e = arg;

    (void)e->library->nccl.comm_abort(e->comm);
    return NULL;
}

static void begin_end(struct merak_link_comm *c, struct ending *e)
{
    if (c->comm == NULL)
        return;
    e->library = c->library;
    e->comm = c->comm;
    c->comm = NULL;
    e->started = pthread_create(&e->thread, NULL, end_one, e) == 0;
    if (!e->started)
        (void)end_one(e);
}

/*
 * NCCL's abort waits for the communicator's kernels, and one of them may be
 * queued after a kernel of a communicator that has not been aborted yet: one
 * after the other, aborts could wait forever.  A thread that does not end is
 * abandoned, with its data.
 */
static void nccl_abort(struct merak_link_comm *const *comm, int n)
{
    struct ending *ending = calloc((size_t)n, sizeof(*ending));
    struct timespec limit;
    bool all = true;

    if (ending == NULL)
        return; /* the process is about to end anyway */
    for (int i = 0; i < n; i++)
        begin_end(comm[i], &ending[i]);
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += ABORT_S;
    for (int i = 0; i < n; i++) {
        if (ending[i].started &&
            pthread_timedjoin_np(ending[i].thread, NULL, &limit) != 0)
            all = false;
    }
    if (all)
        free(ending);
}

/* Flush it, but do not wait forever for a missing member. */
static bool finalize(struct merak_link_comm *c)
{
    int state = c->library->nccl.comm_finalize(c->comm);

    for (int i = 0; state == NCCL_IN_PROGRESS && i < LEAVE_POLLS; i++) {
        if (i > 0)
            merak_nap(POLL_NS);
        if (c->library->nccl.comm_get_async_error(c->comm, &state) !=
            NCCL_SUCCESS)
            return false;
    }
    return state == NCCL_SUCCESS;
}

static void nccl_leave(struct merak_link_comm *c)
{
    if (c == NULL)
        return;
    if (c->comm != NULL && finalize(c))
        (void)c->library->nccl.comm_destroy(c->comm);
    else
        nccl_abort(&c, 1);
    free(c);
}

/* --- moves ------------------------------------------------------------------
 */

static int type_of(enum merak_dtype dtype)
{
    switch (dtype) {
    case MERAK_F32:
        return NCCL_FLOAT32;
    case MERAK_BF16:
        return NCCL_BFLOAT16;
    case MERAK_F64:
        return NCCL_FLOAT64;
    default:
        return NCCL_INT32;
    }
}

/* The result of a call within a group, whose end returns it again if it is in
 * progress. */
static int within_group(int result)
{
    return result == NCCL_IN_PROGRESS ? NCCL_SUCCESS : result;
}

/* `result` is that of the first call in it that failed. */
static enum merak_status end_group(struct merak_link_comm *c, const char *what,
                                   int result, struct merak_error *err)
{
    int end = c->library->nccl.group_end();

    return check(c, what, result != NCCL_SUCCESS ? result : end, err);
}

static enum merak_status nccl_move(struct merak_link_comm *c, void *stream,
                                   const struct merak_link_message *message,
                                   int n, struct merak_error *err)
{
    const struct nccl_functions *f = &c->library->nccl;
    int result = f->group_start();

    if (result != NCCL_SUCCESS)
        return fail(c->library, c->comm, "begin a group", result, err);
    for (int i = 0; i < n && result == NCCL_SUCCESS; i++) {
        const struct merak_link_message *p = &message[i];

        result = within_group(p->send ? f->send(p->at, p->bytes, NCCL_INT8,
                                                p->peer, c->comm, stream)
                                      : f->recv(p->at, p->bytes, NCCL_INT8,
                                                p->peer, c->comm, stream));
    }
    return end_group(c, "move data", result, err);
}

static enum merak_status nccl_sum(struct merak_link_comm *c, void *stream,
                                  const struct merak_link_sum *sum,
                                  struct merak_error *err)
{
    const struct nccl_functions *f = &c->library->nccl;
    int op = sum->max ? NCCL_MAX : NCCL_SUM, type = type_of(sum->dtype);
    int result = sum->scatter ? f->reduce_scatter(sum->in, sum->out, sum->count,
                                                  type, op, c->comm, stream)
                              : f->all_reduce(sum->in, sum->out, sum->count,
                                              type, op, c->comm, stream);

    return check(c, "add what the ranks have", result, err);
}

static enum merak_status nccl_gather(struct merak_link_comm *c, void *stream,
                                     const struct merak_link_gather *gather,
                                     int n, struct merak_error *err)
{
    const struct nccl_functions *f = &c->library->nccl;
    int result = f->group_start();

    if (result != NCCL_SUCCESS)
        return fail(c->library, c->comm, "begin a group", result, err);
    for (int i = 0; i < n && result == NCCL_SUCCESS; i++)
        result = within_group(f->all_gather(gather[i].in, gather[i].out,
                                            gather[i].bytes, NCCL_INT8, c->comm,
                                            stream));
    return end_group(c, "gather what the ranks have", result, err);
}

static const struct merak_link_ops ops = {
    .name = "nccl",
    .open = nccl_open,
    .close = nccl_close,
    .make_id = nccl_make_id,
    .join = nccl_join,
    .test = nccl_test,
    .move = nccl_move,
    .sum = nccl_sum,
    .gather = nccl_gather,
    .abort = nccl_abort,
    .leave = nccl_leave,
};

const struct merak_link_module merak_link_module = {
    .abi = MERAK_LINK_ABI,
    .version = PACKAGE_VERSION,
    .ops_bytes = sizeof(struct merak_link_ops),
    .ops = &ops,
};
