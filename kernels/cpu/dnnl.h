/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cpu/dnnl.h - a common interface to oneDNN 2 and oneDNN 3
 *
 * In oneDNN 2 memory descriptors are structs, with an operation descriptor
 * between them and the primitive; in oneDNN 3 they are handles that must be
 * destroyed, without that middle step.  Nothing else that gemm_primitive.c
 * calls differs.
 */
#ifndef MERAK_KERNELS_CPU_DNNL_H
#define MERAK_KERNELS_CPU_DNNL_H

#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl_debug.h>

/* Descriptors of a product's operands, bias and scratch. */
enum { SLOT_A, SLOT_B, SLOT_C, SLOT_BIAS, SLOT_SCRATCH, SLOT_COUNT };

/* Has to be zeroed before the first use, and always released by fini. */
struct merak_dnnl_md {
    dnnl_memory_desc_t desc;
};

#if DNNL_VERSION_MAJOR >= 3

static inline void merak_dnnl_md_fini(struct merak_dnnl_md *md)
{
    if (md->desc != NULL)
        dnnl_memory_desc_destroy(md->desc);
    md->desc = NULL;
}

static inline dnnl_status_t merak_dnnl_md_init(struct merak_dnnl_md *md,
                                               const dnnl_dims_t dims,
                                               dnnl_data_type_t type,
                                               const dnnl_dims_t strides)
{
    return dnnl_memory_desc_create_with_strides(&md->desc, 2, dims, type,
                                                strides);
}

static inline size_t merak_dnnl_md_bytes(const struct merak_dnnl_md *md)
{
    return dnnl_memory_desc_get_size(md->desc);
}

static inline dnnl_status_t merak_dnnl_memory(dnnl_memory_t *memory_p,
                                              const struct merak_dnnl_md *md,
                                              dnnl_engine_t engine)
{
    return dnnl_memory_create(memory_p, md->desc, engine, DNNL_MEMORY_NONE);
}

static inline dnnl_status_t merak_dnnl_append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
}

/* Fills md[SLOT_SCRATCH]; the others are read. */
static inline dnnl_status_t
merak_dnnl_matmul(dnnl_primitive_desc_t *pd_p, dnnl_engine_t engine,
                  struct merak_dnnl_md md[SLOT_COUNT], int bias,
                  dnnl_primitive_attr_t attr)
{
    dnnl_status_t rc;

    rc = dnnl_matmul_primitive_desc_create(
        pd_p, engine, md[SLOT_A].desc, md[SLOT_B].desc,
        bias ? md[SLOT_BIAS].desc : NULL, md[SLOT_C].desc, attr);
    if (rc != dnnl_success)
        return rc;
    return dnnl_memory_desc_clone(
        &md[SLOT_SCRATCH].desc,
        dnnl_primitive_desc_query_md(*pd_p, dnnl_query_scratchpad_md, 0));
}

#else

static inline void merak_dnnl_md_fini(struct merak_dnnl_md *md)
{
    (void)md;
}

static inline dnnl_status_t merak_dnnl_md_init(struct merak_dnnl_md *md,
                                               const dnnl_dims_t dims,
                                               dnnl_data_type_t type,
                                               const dnnl_dims_t strides)
{
    return dnnl_memory_desc_init_by_strides(&md->desc, 2, dims, type, strides);
}

static inline size_t merak_dnnl_md_bytes(const struct merak_dnnl_md *md)
{
    return dnnl_memory_desc_get_size(&md->desc);
}

static inline dnnl_status_t merak_dnnl_memory(dnnl_memory_t *memory_p,
                                              const struct merak_dnnl_md *md,
                                              dnnl_engine_t engine)
{
    return dnnl_memory_create(memory_p, &md->desc, engine, DNNL_MEMORY_NONE);
}

static inline dnnl_status_t merak_dnnl_append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0f);
}

static inline dnnl_status_t
merak_dnnl_matmul(dnnl_primitive_desc_t *pd_p, dnnl_engine_t engine,
                  struct merak_dnnl_md md[SLOT_COUNT], int bias,
                  dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t desc;
    dnnl_status_t rc;

    rc = dnnl_matmul_desc_init(&desc, &md[SLOT_A].desc, &md[SLOT_B].desc,
                               bias ? &md[SLOT_BIAS].desc : NULL,
                               &md[SLOT_C].desc);
    if (rc == dnnl_success)
        rc = dnnl_primitive_desc_create(pd_p, &desc, attr, engine, NULL);
    if (rc == dnnl_success)
        md[SLOT_SCRATCH].desc =
            *dnnl_primitive_desc_query_md(*pd_p, dnnl_query_scratchpad_md, 0);
    return rc;
}

#endif

#endif
