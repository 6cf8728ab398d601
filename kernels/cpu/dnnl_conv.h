/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cpu/dnnl_conv.h - convolutions of oneDNN 2 and oneDNN 3, as dnnl.h
 * has products */
#ifndef MERAK_KERNELS_CPU_DNNL_CONV_H
#define MERAK_KERNELS_CPU_DNNL_CONV_H

#include "kernels/cpu/dnnl.h"

#include "kernels/cpu/conv_primitive.h"

/* Descriptors of a convolution's input, weights or their gradient, output, bias,
 * scratch; and of the weights that go with a gradient. */
enum {
    CONV_X,
    CONV_W,
    CONV_OUT,
    CONV_BIAS,
    CONV_SCRATCH,
    CONV_SLOTS,
    CONV_READ = CONV_SLOTS,
    CONV_DESCRIBED
};

/* How windows move, as oneDNN counts: dilations from 0. */
struct merak_dnnl_windows {
    dnnl_dims_t strides, dilations, before, after;
};

#if DNNL_VERSION_MAJOR >= 3

static inline dnnl_status_t merak_dnnl_md_tag(struct merak_dnnl_md *md, int n,
                                              const dnnl_dims_t dims,
                                              dnnl_data_type_t type,
                                              dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_create_with_tag(&md->desc, n, dims, type, tag);
}

static inline bool merak_dnnl_md_equal(const struct merak_dnnl_md *a,
                                       const struct merak_dnnl_md *b)
{
    return dnnl_memory_desc_equal(a->desc, b->desc) != 0;
}

/* One that a primitive chose. */
static inline dnnl_status_t merak_dnnl_md_query(struct merak_dnnl_md *md,
                                                const_dnnl_primitive_desc_t pd,
                                                dnnl_query_t what)
{
    const_dnnl_memory_desc_t found = dnnl_primitive_desc_query_md(pd, what, 0);

    return found == NULL ? dnnl_unimplemented
                         : dnnl_memory_desc_clone(&md->desc, found);
}

static inline dnnl_status_t
merak_dnnl_conv(dnnl_primitive_desc_t *pd_p, dnnl_engine_t engine,
                enum merak_conv_kind kind, const struct merak_dnnl_md *md,
                bool bias, const struct merak_dnnl_windows *w,
                const_dnnl_primitive_attr_t attr)
{
    dnnl_primitive_desc_t forward = NULL;
    dnnl_status_t rc;

    rc = dnnl_convolution_forward_primitive_desc_create(
        &forward, engine, dnnl_forward_training, dnnl_convolution_direct,
        md[CONV_X].desc, md[CONV_READ].desc, bias ? md[CONV_BIAS].desc : NULL,
        md[CONV_OUT].desc, w->strides, w->dilations, w->before, w->after, attr);
    if (rc != dnnl_success || kind == MERAK_CONV_Y) {
        *pd_p = forward;
        return rc;
    }
    if (kind == MERAK_CONV_DX)
        rc = dnnl_convolution_backward_data_primitive_desc_create(
            pd_p, engine, dnnl_convolution_direct, md[CONV_X].desc,
            md[CONV_W].desc, md[CONV_OUT].desc, w->strides, w->dilations,
            w->before, w->after, forward, attr);
    else
        rc = dnnl_convolution_backward_weights_primitive_desc_create(
            pd_p, engine, dnnl_convolution_direct, md[CONV_X].desc,
            md[CONV_W].desc, NULL, md[CONV_OUT].desc, w->strides, w->dilations,
            w->before, w->after, forward, attr);
    dnnl_primitive_desc_destroy(forward);
    return rc;
}

static inline dnnl_status_t merak_dnnl_reorder(dnnl_primitive_desc_t *pd_p,
                                               dnnl_engine_t engine,
                                               const struct merak_dnnl_md *from,
                                               const struct merak_dnnl_md *to)
{
    return dnnl_reorder_primitive_desc_create(pd_p, from->desc, engine,
                                              to->desc, engine, NULL);
}

#else

static inline dnnl_status_t merak_dnnl_md_tag(struct merak_dnnl_md *md, int n,
                                              const dnnl_dims_t dims,
                                              dnnl_data_type_t type,
                                              dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_init_by_tag(&md->desc, n, dims, type, tag);
}

static inline bool merak_dnnl_md_equal(const struct merak_dnnl_md *a,
                                       const struct merak_dnnl_md *b)
{
    return dnnl_memory_desc_equal(&a->desc, &b->desc) != 0;
}

static inline dnnl_status_t merak_dnnl_md_query(struct merak_dnnl_md *md,
                                                const_dnnl_primitive_desc_t pd,
                                                dnnl_query_t what)
{
    const dnnl_memory_desc_t *found = dnnl_primitive_desc_query_md(pd, what, 0);

    if (found == NULL)
        return dnnl_unimplemented;
    md->desc = *found;
    return dnnl_success;
}

static inline dnnl_status_t
merak_dnnl_conv(dnnl_primitive_desc_t *pd_p, dnnl_engine_t engine,
                enum merak_conv_kind kind, const struct merak_dnnl_md *md,
                bool bias, const struct merak_dnnl_windows *w,
                const_dnnl_primitive_attr_t attr)
{
    dnnl_primitive_desc_t forward = NULL;
    dnnl_convolution_desc_t desc;
    dnnl_status_t rc;

    rc = dnnl_dilated_convolution_forward_desc_init(
        &desc, dnnl_forward_training, dnnl_convolution_direct, &md[CONV_X].desc,
        &md[CONV_READ].desc, bias ? &md[CONV_BIAS].desc : NULL, &md[CONV_OUT].desc,
        w->strides, w->dilations, w->before, w->after);
    if (rc == dnnl_success)
        rc = dnnl_primitive_desc_create(&forward, &desc, attr, engine, NULL);
    if (rc != dnnl_success || kind == MERAK_CONV_Y) {
        *pd_p = forward;
        return rc;
    }
    if (kind == MERAK_CONV_DX)
        rc = dnnl_dilated_convolution_backward_data_desc_init(
            &desc, dnnl_convolution_direct, &md[CONV_X].desc, &md[CONV_W].desc,
            &md[CONV_OUT].desc, w->strides, w->dilations, w->before, w->after);
    else
        rc = dnnl_dilated_convolution_backward_weights_desc_init(
            &desc, dnnl_convolution_direct, &md[CONV_X].desc, &md[CONV_W].desc,
            NULL, &md[CONV_OUT].desc, w->strides, w->dilations, w->before,
            w->after);
    if (rc == dnnl_success)
        rc = dnnl_primitive_desc_create(pd_p, &desc, attr, engine, forward);
    dnnl_primitive_desc_destroy(forward);
    return rc;
}

static inline dnnl_status_t merak_dnnl_reorder(dnnl_primitive_desc_t *pd_p,
                                               dnnl_engine_t engine,
                                               const struct merak_dnnl_md *from,
                                               const struct merak_dnnl_md *to)
{
    return dnnl_reorder_primitive_desc_create(pd_p, &from->desc, engine,
                                              &to->desc, engine, NULL);
}

#endif

#endif
