/* SPDX-License-Identifier: Apache-2.0 */
/* narrow.c - kernels whose gradients of parameters are kept in bf16
 *
 * A kernel makes such a gradient in f32.  It gets f32 memory behind its own
 * scratch for it, and what it made there is then added to the accumulator, in
 * f32, and the sum rounded: once a call, whatever the kernel does in parts.
 * Backends need no kernels for it but grad_add and narrow; a kernel that adds
 * to bf16 in the same way itself (adds_bf16) saves that memory and its traffic.
 */
#include "config.h"

#include "kernels/geometry.h"
#include "kernels/kernels.h"

#include "base/size.h"

#define ALIGN 256 /* of what kernels ask on devices, too */

bool merak_kernel_widens(const struct merak_kernel *kernel,
                         const struct merak_kernel_call *call)
{
    bool any = false;

    for (int o = 0; o < call->n_out && call->narrow; o++)
        any = any || merak_call_out(call, o)->dtype == MERAK_BF16;
    return any && (kernel->adds_bf16 == NULL || !kernel->adds_bf16(call));
}

/* The call with its gradients, of vectors, too, in f32 and nothing to add them
 * to, in memory from `at` of its scratch on; returns where that ends. */
static size_t widen(const struct merak_kernel_call *call, size_t at,
                    struct merak_kernel_call *wide)
{
    *wide = *call;
    wide->narrow = wide->accumulate = false;
    for (int o = 0; o < call->n_out; o++) {
        struct merak_operand *out = &wide->operand[call->n_in + o];

        at = merak_size_align(at, ALIGN);
        out->dtype = MERAK_F32;
        out->data =
            call->scratch != NULL ? (char *)call->scratch + at : call->scratch;
        at += merak_local_bytes(out);
    }
    return at;
}

static size_t own_scratch(const struct merak_kernel *kernel,
                          const struct merak_kernel_call *call)
{
    struct merak_kernel_call wide;

    (void)widen(call, 0, &wide);
    return kernel->scratch != NULL ? kernel->scratch(&wide) : 0;
}

size_t merak_kernel_call_scratch(const struct merak_kernel *kernel,
                                 const struct merak_kernel_call *call)
{
    struct merak_kernel_call wide;

    if (!merak_kernel_widens(kernel, call))
        return kernel->scratch != NULL ? kernel->scratch(call) : 0;
    return widen(call, own_scratch(kernel, call), &wide);
}

/* Add output o, or store it. */
static enum merak_status put(const struct merak_backend *backend,
                             const struct merak_kernel_call *call,
                             const struct merak_kernel_call *wide, int o,
                             struct merak_error *err)
{
    static const struct merak_attrs none;
    struct merak_kernel_call add = {
        .attrs = &none,
        .n_in = 1,
        .n_out = 1,
        .operand = {*merak_call_out(wide, o), *merak_call_out(call, o)},
        .step = call->step,
        .device = call->device};
    const struct merak_kernel *kernel;
    enum merak_status rc = merak_kernel_find(
        backend, call->accumulate ? "grad_add" : "narrow", &kernel, err);

    return rc == MERAK_OK ? kernel->fn(&add, err) : rc;
}

enum merak_status merak_kernel_run(const struct merak_backend *backend,
                                   const struct merak_kernel *kernel,
                                   const struct merak_kernel_call *call,
                                   struct merak_error *err)
{
    struct merak_kernel_call wide;
    enum merak_status rc;

    if (!merak_kernel_widens(kernel, call))
        return kernel->fn(call, err);
    (void)widen(call, own_scratch(kernel, call), &wide);
    rc = kernel->fn(&wide, err);
    for (int o = 0; o < call->n_out && rc == MERAK_OK; o++)
        rc = put(backend, call, &wide, o, err);
    return rc;
}
