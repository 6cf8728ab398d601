/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/module.h - backends, and what else is in shared objects of its own
 *
 * merak_NAME.so is opened when somebody asks for backend NAME, so a node
 * without what it needs (CUDA's libraries) can run everything else.  It shows
 * one symbol, `merak_module`; a module that is no backend shows another one.
 */
#ifndef MERAK_KERNELS_MODULE_H
#define MERAK_KERNELS_MODULE_H

#include "kernels/kernels.h"

#define MERAK_MODULE_ABI 3
#define MERAK_MODULE_SYMBOL "merak_module"

/* A module is of the very build of the library that opens it: it is handed
 * the library's structs. */
struct merak_module {
    unsigned abi;        /* MERAK_MODULE_ABI */
    const char *version; /* PACKAGE_VERSION */
    size_t call_bytes;   /* sizeof(struct merak_kernel_call) */
    size_t accel_bytes;  /* sizeof(struct merak_accel_ops) */
    const struct merak_backend *backend;
};

/* A module, as whoever opens it knows it. */
struct merak_module_ask {
    const char *name;   /* "nccl": it is merak_nccl.so */
    const char *kind;   /* "transport", for messages */
    const char *built;  /* folder of the tree that it is built in */
    const char *symbol; /* what it shows */
    const char *mend; /* what to do where there is none, "use --backend cpu" */
};

/*
 * What merak_NAME.so shows, for the caller to check.  It is looked for in
 * MERAK_MODULE_DIR if that is set, and nowhere else then; else in the directory
 * "merak" beside libmerak, where it is built, and where it was to be installed.
 * It stays open for the process's life; not thread-safe.
 *
 * MERAK_ERR_NOT_FOUND names the places without one, MERAK_ERR_UNSUPPORTED says
 * why one that is there cannot be used.  path  out  PATH_MAX bytes, or NULL.
 */
enum merak_status merak_module_symbol(const struct merak_module_ask *ask,
                                      const void **symbol_p, char *path,
                                      struct merak_error *err) MERAK_CHECKED;

/* The backend of merak_NAME.so, found so; one of another build than this one
 * is MERAK_ERR_UNSUPPORTED. */
enum merak_status merak_module_open(const char *name,
                                    const struct merak_backend **backend_p,
                                    struct merak_error *err) MERAK_CHECKED;

#endif
