/* SPDX-License-Identifier: Apache-2.0 */
/* registry.c - find backends and their kernels */
#include "config.h"

#include "kernels/backends.h"
#include "kernels/module.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

#define BACKEND_COUNT 4

/* The built-in backends, in the order they are listed to users. */
static const struct merak_backend *backend_at(size_t i)
{
    switch (i) {
    case 0:
        return merak_backend_cpu();
    case 1:
        return &merak_backend_ref;
    case 2:
        return &merak_backend_emu;
    default:
        return &merak_backend_fake;
    }
}

/* Kernels that a program adds; they live as long as the process.  The list is
 * filled before models are built (merak/op.h), so it needs no lock. */
struct registered {
    struct registered *next;
    const struct merak_backend *backend;
    struct merak_kernel kernel;
};
static struct registered *registered;

/* Backends that are not built in. */
static const char *const modules[] = {"cuda"};
#define MODULE_COUNT (sizeof(modules) / sizeof(*modules))

/* "cpu, ref, emu, fake, cuda" */
static void list_backends(char *text, size_t bytes)
{
    text[0] = '\0';
    for (size_t i = 0; i < BACKEND_COUNT; i++) {
        strncat(text, backend_at(i)->name, bytes - strlen(text) - 1);
        strncat(text, ", ", bytes - strlen(text) - 1);
    }
    for (size_t i = 0; i < MODULE_COUNT; i++) {
        if (i > 0)
            strncat(text, ", ", bytes - strlen(text) - 1);
        strncat(text, modules[i], bytes - strlen(text) - 1);
    }
}

enum merak_status merak_backend_find(const char *name,
                                     const struct merak_backend **backend_p,
                                     struct merak_error *err)
{
    char known[64];

    for (size_t i = 0; i < BACKEND_COUNT; i++) {
        if (strcmp(backend_at(i)->name, name) == 0) {
            *backend_p = backend_at(i);
            return MERAK_OK;
        }
    }
    for (size_t i = 0; i < MODULE_COUNT; i++) {
        if (strcmp(modules[i], name) == 0)
            return merak_module_open(name, backend_p, err);
    }
    list_backends(known, sizeof(known));
    return merak_fail(err, MERAK_ERR_NOT_FOUND,
                      "there is no backend \"%s\"; there are %s", name, known);
}

bool merak_backend_is_emulated(const char *name)
{
    for (size_t i = 0; i < BACKEND_COUNT; i++) {
        if (strcmp(backend_at(i)->name, name) == 0)
            return backend_at(i)->emulated;
    }
    return false;
}

/* The backend that provides a backend's rows and scratch. */
static const struct merak_backend *kernels_of(const struct merak_backend *b)
{
    return b->kernels_of != NULL ? b->kernels_of() : b;
}

/* A dtype as users write it. */
static const char *dtype_word(enum merak_dtype dtype)
{
    return dtype == MERAK_F32 ? "fp32" : merak_dtype_name(dtype);
}

enum merak_status merak_backend_check_dtype(const struct merak_backend *backend,
                                            enum merak_dtype dtype,
                                            struct merak_error *err)
{
    char known[64] = "";

    if (backend->dtypes == 0 || (backend->dtypes >> dtype & 1u) != 0)
        return MERAK_OK;
    for (int d = 0; d < MERAK_DTYPE_COUNT; d++) {
        if ((backend->dtypes >> d & 1u) == 0)
            continue;
        if (known[0] != '\0')
            strncat(known, " or ", sizeof(known) - strlen(known) - 1);
        strncat(known, dtype_word((enum merak_dtype)d),
                sizeof(known) - strlen(known) - 1);
    }
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "backend \"%s\" does not compute in %s here: use "
                      "--dtype %s",
                      backend->name, dtype_word(dtype), known);
}

/* Only CUDA queues have a library (NCCL) for direct communication. */
bool merak_backend_is_direct(const struct merak_backend *backend)
{
    return backend->accel != NULL &&
           backend->accel->streams == MERAK_STREAMS_CUDA;
}

bool merak_backend_is_native(const struct merak_backend *backend,
                             enum merak_dtype dtype)
{
    const struct merak_backend *b = kernels_of(backend);

    return backend->emulated || b->is_native == NULL || b->is_native(dtype);
}

void merak_backend_describe(const struct merak_backend *backend,
                            enum merak_dtype dtype, char *text, size_t bytes)
{
    const struct merak_backend *b = kernels_of(backend);

    text[0] = '\0';
    if (b->describe != NULL && !backend->emulated)
        b->describe(dtype, text, bytes);
}

static const struct merak_kernel *find_builtin(const struct merak_backend *b,
                                               const char *op)
{
    for (const struct merak_kernel *k = b->kernel; k->name != NULL; k++)
        if (strcmp(k->name, op) == 0 || strcmp(k->name, MERAK_ANY_OP) == 0)
            return k;
    return NULL;
}

static const struct merak_kernel *find_registered(const struct merak_backend *b,
                                                  const char *op)
{
    for (const struct registered *r = registered; r != NULL; r = r->next)
        if (r->backend == b && strcmp(r->kernel.name, op) == 0)
            return &r->kernel;
    return NULL;
}

enum merak_status merak_kernel_find(const struct merak_backend *backend,
                                    const char *op,
                                    const struct merak_kernel **kernel_p,
                                    struct merak_error *err)
{
    const struct merak_backend *rows =
        backend->kernel != NULL ? backend : kernels_of(backend);
    const struct merak_kernel *kernel = find_registered(rows, op);

    if (kernel == NULL)
        kernel = find_builtin(rows, op);
    if (kernel == NULL)
        return merak_fail(err, MERAK_ERR_NOT_FOUND,
                          "backend \"%s\" has no kernel for op \"%s\"; give it "
                          "one with merak_kernel_register()",
                          backend->name, op);
    *kernel_p = kernel;
    return MERAK_OK;
}

enum merak_status merak_kernel_register(const char *backend, const char *name,
                                        merak_kernel_fn fn,
                                        merak_scratch_fn scratch,
                                        struct merak_error *err)
{
    const struct merak_backend *b;
    const struct merak_kernel *taken;
    struct registered *r;
    enum merak_status rc;

    if (name == NULL || *name == '\0' || fn == NULL)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "a kernel needs the name of its op and a function");
    rc = merak_backend_find(backend, &b, err);
    if (rc != MERAK_OK)
        return rc;
    if (b->kernel == NULL)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "backend \"%s\" runs the kernels of \"%s\": register "
                          "it there",
                          backend, kernels_of(b)->name);
    taken = find_registered(b, name);
    if (taken == NULL)
        taken = find_builtin(b, name);
    if (taken != NULL && strcmp(taken->name, name) == 0)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "backend \"%s\" already has a kernel for op \"%s\"",
                          backend, name);
    r = calloc(1, sizeof(*r) + strlen(name) + 1);
    if (r == NULL)
        return merak_fail_nomem(err, sizeof(*r) + strlen(name) + 1);
    strcpy((char *)(r + 1), name);
    r->backend = b;
    r->kernel = (struct merak_kernel){
        .name = (const char *)(r + 1), .fn = fn, .scratch = scratch};
    r->next = registered;
    registered = r;
    return MERAK_OK;
}

size_t merak_kernel_scratch(void *arg, const char *op,
                            const struct merak_kernel_call *call)
{
    const struct merak_backend *backend = kernels_of(arg);
    const struct merak_kernel *kernel;

    return merak_kernel_find(backend, op, &kernel, NULL) == MERAK_OK
               ? merak_kernel_call_scratch(kernel, call)
               : 0;
}

struct merak_kernel_memory
merak_backend_memory(const struct merak_backend *backend)
{
    const struct merak_backend *b = kernels_of(backend);

    return (struct merak_kernel_memory){merak_kernel_scratch,
                                        (void *)(uintptr_t)b, b->row_bytes};
}
