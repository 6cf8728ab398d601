/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/nccl/nccl_api.h - the part of NCCL's interface that is used
 *
 * NCCL is opened at run time, so its header is not needed for the build: these
 * are our own declarations of the interface that libnccl.so.2 has had since
 * 2.18.  tests/unit/engine/test_nccl_api.c checks them against nccl.h where there is
 * one.
 */
#ifndef MERAK_RUNTIME_NCCL_NCCL_API_H
#define MERAK_RUNTIME_NCCL_NCCL_API_H

#include <stddef.h>

/* ncclResult_t */
enum {
    NCCL_SUCCESS = 0,
    NCCL_UNHANDLED_CUDA_ERROR = 1,
    NCCL_SYSTEM_ERROR = 2,
    NCCL_INTERNAL_ERROR = 3,
    NCCL_INVALID_ARGUMENT = 4,
    NCCL_INVALID_USAGE = 5,
    NCCL_REMOTE_ERROR = 6,
    NCCL_IN_PROGRESS = 7
};

/* ncclDataType_t */
enum {
    NCCL_INT8 = 0,
    NCCL_INT32 = 2,
    NCCL_FLOAT32 = 7,
    NCCL_FLOAT64 = 8,
    NCCL_BFLOAT16 = 9
};

/* ncclRedOp_t */
enum { NCCL_SUM = 0, NCCL_MAX = 2 };

struct nccl_id { /* ncclUniqueId, which is passed by value */
    char internal[128];
};

/* ncclConfig_t as 2.18 had it.  `size` and `version` tell later versions which
 * fields exist. */
struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share;
    /* Padding in 2.18; 2.25 and later have the traffic class here, and some
     * of them read it whatever `version` says. */
    int traffic_class;
};
#define NCCL_CONFIG_MAGIC 0xcafebeefu
#define NCCL_CONFIG_VERSION 21800u
#define NCCL_CONFIG_UNDEFINED (-2147483647 - 1)

struct nccl_comm; /* ncclComm_t points to one */

struct nccl_functions {
    int (*get_version)(int *version);
    int (*get_unique_id)(struct nccl_id *id);
    const char *(*get_error_string)(int result);
    const char *(*get_last_error)(struct nccl_comm *comm);
    int (*comm_init_rank_config)(struct nccl_comm **comm, int ranks,
                                 struct nccl_id id, int rank,
                                 struct nccl_config *config);
    int (*comm_get_async_error)(struct nccl_comm *comm, int *result);
    int (*comm_finalize)(struct nccl_comm *comm);
    int (*comm_destroy)(struct nccl_comm *comm);
    int (*comm_abort)(struct nccl_comm *comm);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*send)(const void *at, size_t count, int type, int peer,
                struct nccl_comm *comm, void *stream);
    int (*recv)(void *at, size_t count, int type, int peer,
                struct nccl_comm *comm, void *stream);
    int (*all_reduce)(const void *in, void *out, size_t count, int type, int op,
                      struct nccl_comm *comm, void *stream);
    int (*reduce_scatter)(const void *in, void *out, size_t count, int type,
                          int op, struct nccl_comm *comm, void *stream);
    int (*all_gather)(const void *in, void *out, size_t count, int type,
                      struct nccl_comm *comm, void *stream);
};

#endif
