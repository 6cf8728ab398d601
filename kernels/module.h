/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/module.h - backends in shared objects of their own
 *
 * merak_NAME.so is opened when somebody asks for backend NAME, so a node
 * without what it needs (CUDA's libraries) can run everything else.  It shows
 * one symbol, `merak_module`.
 */
#ifndef MERAK_KERNELS_MODULE_H
#define MERAK_KERNELS_MODULE_H

#include "kernels/kernels.h"

#define MERAK_MODULE_ABI 1
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

/*
 * The backend of merak_NAME.so.  It is looked for in MERAK_MODULE_DIR if that
 * is set, and nowhere else then; else in the directory "merak" beside
 * libmerak, where it is built, and where it was to be installed.  Opened once,
 * for the process's life; not thread-safe.
 *
 * MERAK_ERR_NOT_FOUND names the places without one, MERAK_ERR_UNSUPPORTED says
 * why one that is there cannot be used.
 */
enum merak_status merak_module_open(const char *name,
                                    const struct merak_backend **backend_p,
                                    struct merak_error *err) MERAK_CHECKED;

#endif
