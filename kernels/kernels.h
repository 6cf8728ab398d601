/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/kernels.h - backends: tables of kernels by op name
 *
 * A kernel follows its row in partitioner/graph/graph.h and the call struct in
 * merak/op.h.  Results do not depend on the number of threads.  Kernels do not
 * allocate after the first call of a shape.
 */
#ifndef MERAK_KERNELS_KERNELS_H
#define MERAK_KERNELS_KERNELS_H

#include "base/half.h"
#include "kernels/accel.h"
#include "merak/op.h"

/* Name of a kernel that is used for every op of its backend ("emu"). */
#define MERAK_ANY_OP "*"

struct merak_kernel {
    const char *name; /* the op's */
    merak_kernel_fn fn;
    merak_scratch_fn scratch; /* NULL: none */
    /* Does it itself add to gradients that are kept in bf16, in f32, and round
     * each sum once?  NULL: no, and merak_kernel_run() has it make them in
     * f32. */
    bool (*adds_bf16)(const struct merak_kernel_call *call);
};

struct merak_backend {
    const char *name; /* as users type it: "cpu", "cuda", .. */
    const struct merak_kernel *kernel; /* by name, NULL-terminated; may be NULL
                                          if kernels_of is not */
    /* The backend whose kernels these use or emulate: its scratch is planned,
     * and its rows are used if `kernel` is NULL.  May be NULL. */
    const struct merak_backend *(*kernels_of)(void);
    /* Kernels take the time that the cost model gives and compute nothing. */
    bool emulated;
    /* Its own memory, queues and events: kernels are launched, and operands are
     * device addresses.  NULL: kernels run on host memory and are done when
     * they return. */
    const struct merak_accel_ops *accel;
    /* Use a calibration's choices of algorithms (merak_accel_ops.tune), as
     * lines, of which it takes those that plans depend on; another call
     * replaces them.  To be called before plans are made, since scratch depends
     * on them.  May be NULL.  MERAK_ERR_FORMAT: one is not such a line. */
    enum merak_status (*use_choices)(const char *const *line, int n,
                                     struct merak_error *err);
    /* The environment variable by which users choose among such algorithms, so
     * that ranks with different values would compute different bits, and the
     * value it has if it is empty or not set.  May be NULL. */
    const char *variable, *variable_default;
    /* merak_kernel_memory.row_bytes */
    size_t row_bytes;
    /* The dtypes it computes in, a bit 1u << dtype each.  0: all. */
    unsigned dtypes;
    /* Called once, before the first kernel: starts the threads of a rank, opens
     * the BLAS.  For backends without an accelerator; may be NULL. */
    enum merak_status (*open)(int threads, struct merak_error *err);
    /* Does this machine have instructions for products of a dtype?  If not,
     * these are no faster than in f32.  Also before open.  NULL: yes. */
    bool (*is_native)(enum merak_dtype dtype);
    /* Describe for users how a dtype is computed on this machine: instruction
     * set, library, emulation.  Also before open.  NULL: no description. */
    void (*describe)(enum merak_dtype dtype, char *text, size_t bytes);
};

/* The best instruction set that kernels use on this machine's processor (0: the
 * base one), and the name of one. */
int merak_cpu_isa(void);
const char *merak_cpu_isa_name(int isa);
/* Use at most this one.  Call it before any backend is found or described. */
void merak_cpu_isa_limit(int isa);

/* "cpu" (fast; has no fallback), "ref" (plain loops, any dtype including f64),
 * "emu" (no arithmetic), "fake" (cpu kernels behind a device's interface);
 * "cuda" is a module (kernels/module.h), whose errors are returned.
 * MERAK_ERR_NOT_FOUND names the available backends. */
enum merak_status merak_backend_find(const char *name,
                                     const struct merak_backend **backend_p,
                                     struct merak_error *err) MERAK_CHECKED;
/* The `emulated` of the backend of that name, false if there is none.  Loads no
 * module: none is emulated. */
bool merak_backend_is_emulated(const char *name);
/* MERAK_ERR_CONFIG if a backend does not compute in this dtype; names those it
 * has. */
enum merak_status
merak_backend_check_dtype(const struct merak_backend *backend,
                          enum merak_dtype dtype,
                          struct merak_error *err) MERAK_CHECKED;
/* Do its ranks by default communicate from device to device, by NCCL? */
bool merak_backend_is_direct(const struct merak_backend *backend);
/* is_native, also for backends without it. */
bool merak_backend_is_native(const struct merak_backend *backend,
                             enum merak_dtype dtype);
/* describe; "" for backends without it. */
void merak_backend_describe(const struct merak_backend *backend,
                            enum merak_dtype dtype, char *text, size_t bytes);
/* A backend's kernel for an op, user-registered ones included.
 * MERAK_ERR_NOT_FOUND names op and backend. */
enum merak_status merak_kernel_find(const struct merak_backend *backend,
                                    const char *op,
                                    const struct merak_kernel **kernel_p,
                                    struct merak_error *err) MERAK_CHECKED;
/*
 * Run a kernel of a backend, on a device in the call's queue.  Gradients that
 * are kept in bf16 are made in f32, added in f32 and rounded once, in scratch
 * of merak_kernel_call_scratch(): narrow.c.
 */
enum merak_status merak_kernel_run(const struct merak_backend *backend,
                                   const struct merak_kernel *kernel,
                                   const struct merak_kernel_call *call,
                                   struct merak_error *err) MERAK_CHECKED;
size_t merak_kernel_call_scratch(const struct merak_kernel *kernel,
                                 const struct merak_kernel_call *call);
/* Does that make this call's gradients in f32 first? */
bool merak_kernel_widens(const struct merak_kernel *kernel,
                         const struct merak_kernel_call *call);
/* Scratch bytes of a kernel call; arg is a const struct merak_backend. */
size_t merak_kernel_scratch(void *arg, const char *op,
                            const struct merak_kernel_call *call);
/* For planners: what its kernels ask of memory. */
struct merak_kernel_memory
merak_backend_memory(const struct merak_backend *backend);

/* Sleep until CLOCK_MONOTONIC reads deadline_ns, to emulate the time of an
 * instruction of the "emu" backend.  Returns at once if that is past. */
void merak_emu_wait(int64_t deadline_ns);
/* Set the calling thread to precise timers, for merak_emu_wait(). */
void merak_emu_thread(void);

#endif
