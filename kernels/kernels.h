/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/kernels.h - backends: tables of kernels by op name
 *
 * A kernel obeys its row in partitioner/graph/graph.h and the call struct in
 * merak/op.h.  Results do not depend on the number of threads.  Kernels
 * never allocate.
 */
#ifndef MERAK_KERNELS_KERNELS_H
#define MERAK_KERNELS_KERNELS_H

#include "base/half.h"
#include "kernels/accel.h"
#include "merak/op.h"

/* Name of a kernel that stands for every op of its backend ("emu"). */
#define MERAK_ANY_OP "*"

struct merak_kernel {
    const char *name; /* the op's */
    merak_kernel_fn fn;
    merak_scratch_fn scratch; /* NULL: none */
};

struct merak_backend {
    const char *name; /* the word users type: "cpu", "cuda", .. */
    const struct merak_kernel *kernel; /* by name, NULL-terminated; may be NULL
                                          where kernels_of is not */
    /* The backend whose kernels these are, or stand for: their scratch is
     * planned, and their rows are used where `kernel` is NULL.  May be NULL. */
    const struct merak_backend *(*kernels_of)(void);
    /* Kernels take the time that the cost model gives and compute nothing. */
    bool emulated;
    /* Memory, queues and events of its own: kernels are launched, and operands
     * are device addresses.  NULL: kernels run on host memory and are done
     * when they return. */
    const struct merak_accel_ops *accel;
    /* What a calibration chose among ways to compute (merak_accel_ops.tune), as
     * lines of which it takes those that plans depend on; called again, these
     * instead.  Before plans are made: scratch is asked with it.  May be NULL.
     * MERAK_ERR_FORMAT: one is no such line. */
    enum merak_status (*use_choices)(const char *const *line, int n,
                                     struct merak_error *err);
    /* The environment's variable by which users choose among such ways, so
     * that ranks with unlike values would differ in their bits, and what it
     * means where it is empty or not set.  May be NULL. */
    const char *variable, *variable_default;
    /* What it computes in, a bit 1u << dtype each.  0: in all. */
    unsigned dtypes;
    /* Once, before the first kernel: threads per rank, the BLAS opened.  Of
     * backends without an accelerator; may be NULL. */
    enum merak_status (*open)(int threads, struct merak_error *err);
    /* Products of a dtype have instructions of their own on this machine; if
     * not they are no faster than f32's.  Also before open.  NULL: yes. */
    bool (*is_native)(enum merak_dtype dtype);
    /* What computes a dtype on this machine, for people to read: instruction
     * set, library, detours.  Also before open.  NULL: nothing to say. */
    void (*describe)(enum merak_dtype dtype, char *text, size_t bytes);
};

/* The best instruction set that kernels use on this machine's processor, from
 * 0, the least; and its name. */
int merak_cpu_isa(void);
const char *merak_cpu_isa_name(int isa);
/* Use this one or a lesser: before any backend is found or described. */
void merak_cpu_isa_limit(int isa);

/* "cpu" (fast; falls back to nothing), "ref" (plain loops, any dtype
 * including f64), "emu" (no arithmetic), "fake" (cpu behind a device's
 * interface); "cuda" is a module (kernels/module.h), and its errors are this
 * function's.  MERAK_ERR_NOT_FOUND names the backends there are. */
enum merak_status merak_backend_find(const char *name,
                                     const struct merak_backend **backend_p,
                                     struct merak_error *err) MERAK_CHECKED;
/* MERAK_ERR_CONFIG, which names the dtypes that it has, where a backend does
 * not compute in this one. */
enum merak_status
merak_backend_check_dtype(const struct merak_backend *backend,
                          enum merak_dtype dtype,
                          struct merak_error *err) MERAK_CHECKED;
/* Do its tasks exchange from device to device, by NCCL, if nobody says
 * otherwise? */
bool merak_backend_is_direct(const struct merak_backend *backend);
/* is_native, for backends without it as well. */
bool merak_backend_is_native(const struct merak_backend *backend,
                             enum merak_dtype dtype);
/* describe, "" for backends without it. */
void merak_backend_describe(const struct merak_backend *backend,
                            enum merak_dtype dtype, char *text, size_t bytes);
/* A backend's kernel for an op, user-registered ones included.
 * MERAK_ERR_NOT_FOUND names op and backend. */
enum merak_status merak_kernel_find(const struct merak_backend *backend,
                                    const char *op,
                                    const struct merak_kernel **kernel_p,
                                    struct merak_error *err) MERAK_CHECKED;
/* What a kernel call needs besides its operands, for planners to ask (the
 * scratch of merak_program_options); arg is a const struct merak_backend. */
size_t merak_kernel_scratch(void *arg, const char *op,
                            const struct merak_kernel_call *call);

/* Sleep until CLOCK_MONOTONIC reads deadline_ns: how an instruction of the
 * "emu" backend takes its time.  Returns at once if that is past. */
void merak_emu_wait(int64_t deadline_ns);
/* The calling thread waits for times of emulated kernels: precisely. */
void merak_emu_thread(void);

#endif
