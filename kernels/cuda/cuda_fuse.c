/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_fuse.c - which consecutive calls one kernel computes
 *
 *   add, layernorm | rmsnorm          the residual and the norm of it
 *   .._dx, add, .._dw                 a norm's gradients, and the sum with that
 *   .._dx, add     .._dx, .._dw       of the residual
 *   xent_max, xent_sum                of a whole vocabulary; the two losses may
 *     [, xent_loss, mean_loss]        be between, and are launched behind
 *     [, xent_dlogits]
 *
 * That a call reads what another has written, or what another reads, is seen
 * by addresses: calls do not alias but for equal operands (merak_accel_ops).
 */
#include "config.h"

#include "kernels/cuda/cuda_fuse.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/geometry.h"

#include "base/error.h"

#include <string.h>

/* The calls of a pattern; NULL: it has none. */
struct fused {
    const struct merak_kernel_call *add, *norm; /* forward */
    const struct merak_kernel_call *dx, *dw;    /* with add: backward */
    const struct merak_kernel_call *max, *sum, *dlogits;
    bool center;           /* layernorm */
    int after[2], n_after; /* calls that are launched behind the kernel */
    int n;
};

struct run {
    const struct merak_kernel *const *kernel;
    const struct merak_kernel_call *const *call;
    int n;
};

static bool is_op(const struct run *r, int i, const char *name)
{
    return i < r->n && strcmp(r->kernel[i]->name, name) == 0;
}

static bool is_same(const struct merak_operand *a,
                    const struct merak_operand *b)
{
    return a->data == b->data && a->dtype == b->dtype &&
           merak_local_count(a) == merak_local_count(b) && a->ld == b->ld;
}

static bool is_at(const struct merak_operand *a, const struct merak_operand *b)
{
    return a->data == b->data;
}

static bool has_cuda_dtype(const struct merak_kernel_call *call)
{
    enum merak_dtype d = call->operand[0].dtype;

    return d == MERAK_F32 || d == MERAK_BF16;
}

/* --- forward ----------------------------------------------------------------
 */

static int match_forward(const struct run *r, struct fused *f)
{
    if (!is_op(r, 0, "add") ||
        (!is_op(r, 1, "layernorm") && !is_op(r, 1, "rmsnorm")) ||
        !is_same(merak_call_out(r->call[0], 0), &r->call[1]->operand[0]) ||
        !has_cuda_dtype(r->call[0]))
        return 0;
    f->add = r->call[0];
    f->norm = r->call[1];
    f->center = is_op(r, 1, "layernorm");
    return 2;
}

/* --- backward ---------------------------------------------------------------
 */

/* Is call i the sum of dx's output and another gradient? */
static bool adds_to(const struct run *r, int i)
{
    const struct merak_operand *dx, *in;

    if (!is_op(r, i, "add"))
        return false;
    dx = merak_call_out(r->call[0], 0);
    in = r->call[i]->operand;
    return is_same(&in[0], dx) != is_same(&in[1], dx);
}

/* Is call i of the weights that dx went through, from what dx was from? */
static bool is_dw_of(const struct run *r, int i, bool center)
{
    const struct merak_operand *dx = r->call[0]->operand;
    const struct merak_operand *dw;

    if (!is_op(r, i, center ? "layernorm_dw" : "rmsnorm_dw"))
        return false;
    dw = r->call[i]->operand;
    if (!is_same(&dw[0], &dx[0]) || !is_same(&dw[1], &dx[1]) ||
        !is_same(&dw[2], &dx[3]) || (center && !is_same(&dw[3], &dx[4])))
        return false;
    for (int k = 0; k < i; k++) { /* and not overwritten in between */
        const struct merak_operand *out = merak_call_out(r->call[k], 0);

        if (is_at(out, &dw[0]) || is_at(out, &dw[1]))
            return false;
    }
    return merak_cuda_norm_back_fits(r->call[0]);
}

static int match_backward(const struct run *r, struct fused *f)
{
    int n = 1;

    f->center = is_op(r, 0, "layernorm_dx");
    if ((!f->center && !is_op(r, 0, "rmsnorm_dx")) ||
        !has_cuda_dtype(r->call[0]))
        return 0;
    f->dx = r->call[0];
    if (adds_to(r, n))
        f->add = r->call[n++];
    if (is_dw_of(r, n, f->center))
        f->dw = r->call[n++];
    return n;
}

/* --- cross-entropy ----------------------------------------------------------
 */

static bool is_whole(const struct merak_operand *logits)
{
    return merak_local_last(logits) == logits->full.dim[logits->full.ndim - 1];
}

/* Call i, if it is the gradient of these logits; calls that are launched
 * behind the kernel do not read what it overwrites. */
static bool is_gradient(const struct run *r, int i, const struct fused *f)
{
    const struct merak_kernel_call *d;

    if (!is_op(r, i, "xent_dlogits"))
        return false;
    d = r->call[i];
    if (d->n_in > 4) /* weights */
        return false;
    for (int k = 0; k < f->n_after; k++) {
        const struct merak_kernel_call *late = r->call[f->after[k]];

        for (int o = 0; o < late->n_in + late->n_out; o++) {
            if (is_at(&late->operand[o], merak_call_out(d, 0)))
                return false;
        }
    }
    return is_same(&d->operand[0], &f->max->operand[0]) &&
           is_same(&d->operand[1], merak_call_out(f->max, 0)) &&
           is_same(&d->operand[2], merak_call_out(f->sum, 0)) &&
           is_same(&d->operand[3], &f->sum->operand[2]) &&
           merak_cuda_xent_fits(f->max, d);
}

static int match_loss(const struct run *r, struct fused *f)
{
    int n = 2;

    if (!is_op(r, 0, "xent_max") || !is_op(r, 1, "xent_sum") ||
        !is_same(&r->call[0]->operand[0], &r->call[1]->operand[0]) ||
        !is_same(merak_call_out(r->call[0], 0), &r->call[1]->operand[1]) ||
        !is_whole(&r->call[0]->operand[0]) || !has_cuda_dtype(r->call[0]) ||
        !merak_cuda_xent_fits(r->call[0], NULL))
        return 0;
    f->max = r->call[0];
    f->sum = r->call[1];
    while (f->n_after < 2 &&
           (is_op(r, n, "xent_loss") || is_op(r, n, "mean_loss")))
        f->after[f->n_after++] = n++;
    if (!is_gradient(r, n, f)) {
        f->n_after = 0; /* they need not be part of it */
        return 2;
    }
    f->dlogits = r->call[n];
    return n + 1;
}

/* --- running ----------------------------------------------------------------
 */

/* Less than 2: there is nothing to fuse. */
static int match(const struct run *r, struct fused *f)
{
    static int (*const patterns[])(const struct run *, struct fused *) = {
        match_forward, match_backward, match_loss};

    for (size_t i = 0; i < sizeof(patterns) / sizeof(*patterns); i++) {
        *f = (struct fused){.n = 0};
        f->n = patterns[i](r, f);
        if (f->n > 1)
            return f->n;
    }
    return 0;
}

int merak_cuda_fusable(const struct merak_kernel *const *kernel,
                       const struct merak_kernel_call *const *call, int n)
{
    const struct run r = {kernel, call, n};
    struct fused f;

    return match(&r, &f);
}

static enum merak_status run_kernel(const struct fused *f, bool store,
                                    struct merak_error *err)
{
    if (f->norm != NULL)
        return merak_cuda_add_norm(f->add, f->norm, f->center, err);
    if (f->dw != NULL)
        return merak_cuda_norm_back(f->dx, f->add, f->dw, store, f->center,
                                    err);
    if (f->dx != NULL)
        return merak_cuda_norm_dx_add(f->dx, f->add, store, f->center, err);
    return merak_cuda_xent_rows(f->max, f->sum, f->dlogits, err);
}

enum merak_status
merak_cuda_run_fused(const struct merak_kernel *const *kernel,
                     const struct merak_kernel_call *const *call,
                     const unsigned *unread, int n, struct merak_error *err)
{
    const struct run r = {kernel, call, n};
    struct fused f;
    enum merak_status rc;

    if (match(&r, &f) != n)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "these %d calls are not run as one kernel", n);
    /* a norm's gradient may be left out once it has been added */
    rc = run_kernel(&f, f.add == NULL || (unread[0] & 1u) == 0, err);
    for (int i = 0; i < f.n_after && rc == MERAK_OK; i++)
        rc = kernel[f.after[i]]->fn(call[f.after[i]], err);
    return rc;
}
