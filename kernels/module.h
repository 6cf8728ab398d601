/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/module.h - backends and other parts in separate shared objects
 *
 * merak_NAME.so is opened when backend NAME is requested, so a node without its
 * dependencies (the CUDA libraries) can run everything else.  It exports one
 * symbol, `merak_module`; a module that is not a backend exports another one.
 */
#ifndef MERAK_KERNELS_MODULE_H
#define MERAK_KERNELS_MODULE_H

#include "kernels/kernels.h"

#define MERAK_MODULE_ABI 5
#define MERAK_MODULE_SYMBOL "merak_module"

/* A module has to be from the same build as the library that opens it, since
 * they share structs. */
struct merak_module {
    unsigned abi;        /* MERAK_MODULE_ABI */
    const char *version; /* PACKAGE_VERSION */
    size_t call_bytes;   /* sizeof(struct merak_kernel_call) */
    size_t accel_bytes;  /* sizeof(struct merak_accel_ops) */
    const struct merak_backend *backend;
};

/* A request for a module. */
struct merak_module_ask {
    const char *name;   /* "nccl": it is merak_nccl.so */
    const char *kind;   /* "transport", for messages */
    const char *built;  /* folder of the tree that it is built in */
    const char *symbol; /* the symbol it exports */
    const char *mend;   /* the fix if it is missing, "use --backend cpu" */
};

/*
 * The symbol that merak_NAME.so exports, for the caller to check.  The file is
 * searched only in MERAK_MODULE_DIR if that is set; otherwise in the directory
 * "merak" next to libmerak, in its build folder, and in the installation path.
 * It stays open until the process ends; not thread-safe.
 *
 * MERAK_ERR_NOT_FOUND names the paths searched, MERAK_ERR_UNSUPPORTED says why
 * an existing file cannot be used.  path  out  PATH_MAX bytes, or NULL.
 */
enum merak_status merak_module_symbol(const struct merak_module_ask *ask,
                                      const void **symbol_p, char *path,
                                      struct merak_error *err) MERAK_CHECKED;

/* The backend of merak_NAME.so, found as above; one of another build is
 * MERAK_ERR_UNSUPPORTED. */
enum merak_status merak_module_open(const char *name,
                                    const struct merak_backend **backend_p,
                                    struct merak_error *err) MERAK_CHECKED;

#endif
