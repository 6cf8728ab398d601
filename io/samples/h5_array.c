/* SPDX-License-Identifier: Apache-2.0 */
/* h5_array.c - arrays in HDF5 files, of whatever layout and filters HDF5 has
 *
 * A data set that is neither chunked nor filtered is a range of its file, of
 * which boxes are read as of any other file.  HDF5 reads all others, and chunks
 * whole.
 */
#include "config.h"

#include "io/samples/array.h"

#include "base/error.h"
#include "base/log.h"
#include "base/size.h"
#include "io/h5.h"

#include <stdlib.h>

struct merak_h5_array {
    hid_t file, set, space;
    int n_chunk_dims; /* 0: it is not chunked */
    hsize_t chunk[MERAK_MAX_DIMS];
    bool has_warned;
};

static bool find_type(hid_t set, struct merak_array *array)
{
    hid_t type = H5Dget_type(set);
    H5T_class_t class = H5Tget_class(type);
    size_t bytes = H5Tget_size(type);
    bool is_signed = class == H5T_INTEGER && H5Tget_sign(type) == H5T_SGN_2;

    merak_h5_drop(type);
    for (int k = 0; k < MERAK_ELEMENT_COUNT; k++) {
        const char *name = merak_element_name((enum merak_element)k);
        char kind = class == H5T_FLOAT ? 'f' : is_signed ? 'i' : 'u';

        if ((class != H5T_FLOAT && class != H5T_INTEGER) || name[0] != kind ||
            merak_element_bytes((enum merak_element)k) != bytes)
            continue;
        array->type = (enum merak_element)k;
        return true;
    }
    return false;
}

/* Where the elements are, if they are a range of the file and as they are in
 * memory but for their byte order. */
static bool find_range(struct merak_array *array)
{
    const struct {
        hid_t little, big;
    } types[MERAK_ELEMENT_COUNT] = {
        [MERAK_ELEMENT_U8] = {H5T_STD_U8LE, H5T_STD_U8BE},
        [MERAK_ELEMENT_I8] = {H5T_STD_I8LE, H5T_STD_I8BE},
        [MERAK_ELEMENT_U16] = {H5T_STD_U16LE, H5T_STD_U16BE},
        [MERAK_ELEMENT_I16] = {H5T_STD_I16LE, H5T_STD_I16BE},
        [MERAK_ELEMENT_U32] = {H5T_STD_U32LE, H5T_STD_U32BE},
        [MERAK_ELEMENT_I32] = {H5T_STD_I32LE, H5T_STD_I32BE},
        [MERAK_ELEMENT_U64] = {H5T_STD_U64LE, H5T_STD_U64BE},
        [MERAK_ELEMENT_I64] = {H5T_STD_I64LE, H5T_STD_I64BE},
        [MERAK_ELEMENT_F32] = {H5T_IEEE_F32LE, H5T_IEEE_F32BE},
        [MERAK_ELEMENT_F64] = {H5T_IEEE_F64LE, H5T_IEEE_F64BE},
    };
    hid_t set = array->h5->set, type = H5Dget_type(set);
    hid_t plist = H5Dget_create_plist(set);
    haddr_t at = H5Dget_offset(set);
    bool little, big, range;

    little = types[array->type].little > 0 &&
             H5Tequal(type, types[array->type].little) > 0;
    big = types[array->type].big > 0 &&
          H5Tequal(type, types[array->type].big) > 0;
    range = (little || big) && at != HADDR_UNDEF &&
            H5Pget_layout(plist) == H5D_CONTIGUOUS &&
            H5Pget_external_count(plist) == 0;
    if (H5Pget_layout(plist) == H5D_CHUNKED)
        array->h5->n_chunk_dims =
            H5Pget_chunk(plist, MERAK_MAX_DIMS, array->h5->chunk);
    merak_h5_drop(plist);
    merak_h5_drop(type);
    if (!range)
        return false;
    array->big_endian = !little;
    array->begin = (uint64_t)at;
    array->within = true;
    return true;
}

static enum merak_status open_set(struct merak_array *array, const char *set,
                                  struct merak_error *err)
{
    struct merak_h5_array *h5 = array->h5;
    hsize_t dim[MERAK_MAX_DIMS];
    int ndim;

    h5->file = merak_h5_open(array->path);
    if (h5->file < 0)
        return merak_h5_fail(err, "%s", array->path);
    h5->set = H5Dopen2(h5->file, set, H5P_DEFAULT);
    if (h5->set < 0)
        return merak_h5_fail(err, "%s: data set %s", array->path, set);
    h5->space = H5Dget_space(h5->set);
    ndim = H5Sget_simple_extent_ndims(h5->space);
    if (ndim < 1 || ndim > MERAK_MAX_DIMS || !find_type(h5->set, array))
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "%s: data set %s has %d dims, or elements of another "
                          "kind; expected integers or floats of up to 8 bytes, "
                          "with 1 to %d dims",
                          array->path, set, ndim, MERAK_MAX_DIMS);
    if (H5Sget_simple_extent_dims(h5->space, dim, NULL) < 0)
        return merak_h5_fail(err, "%s: data set %s", array->path, set);
    array->shape.ndim = ndim;
    for (int d = 0; d < ndim; d++)
        array->shape.dim[d] = (size_t)dim[d];
    return MERAK_OK;
}

enum merak_status merak_h5_array_open(struct merak_array *array,
                                      const char *set, struct merak_error *err)
{
    struct merak_h5_quiet saved;
    enum merak_status rc;

    array->h5 = malloc(sizeof(*array->h5));
    if (array->h5 == NULL)
        return merak_fail_nomem(err, sizeof(*array->h5));
    *array->h5 = (struct merak_h5_array){.file = -1, .set = -1, .space = -1};
    merak_h5_quiet(&saved);
    rc = open_set(array, set, err);
    if (rc == MERAK_OK && find_range(array)) {
        merak_h5_array_close(array->h5);
        array->h5 = NULL;
    }
    merak_h5_restore(&saved);
    return rc;
}

/* --- boxes ----------------------------------------------------------------
 */

/* The elements of the chunks that have some of a box. */
static double chunk_elements(const struct merak_array *array, const size_t *lo,
                             const size_t *len)
{
    const hsize_t *chunk = array->h5->chunk;
    double n = 1;

    for (int d = 0; d < array->h5->n_chunk_dims; d++)
        n *= (double)(((lo[d] + len[d] - 1) / chunk[d] - lo[d] / chunk[d] + 1) *
                      chunk[d]);
    return n;
}

void merak_h5_array_warn(const struct merak_array *array, const size_t *lo,
                         const size_t *len)
{
    double whole = chunk_elements(array, lo, len), count = 1;

    for (int d = 0; d < array->shape.ndim; d++)
        count *= (double)len[d];
    if (array->h5->n_chunk_dims == 0 || array->h5->has_warned ||
        count * 2 >= whole)
        return;
    array->h5->has_warned = true;
    merak_warn("data",
               "%s is stored in chunks that are larger than a rank's part of a "
               "sample: %.0f elements are read for %.0f; store it in smaller "
               "chunks, or without any",
               array->path, whole, count);
}

/* As what HDF5 hands elements over. */
static hid_t memory_type(const struct merak_array *array,
                         enum merak_element *type_p)
{
    const hid_t types[MERAK_ELEMENT_COUNT] = {
        [MERAK_ELEMENT_U8] = H5T_NATIVE_UINT8,
        [MERAK_ELEMENT_I8] = H5T_NATIVE_INT8,
        [MERAK_ELEMENT_U16] = H5T_NATIVE_UINT16,
        [MERAK_ELEMENT_I16] = H5T_NATIVE_INT16,
        [MERAK_ELEMENT_U32] = H5T_NATIVE_UINT32,
        [MERAK_ELEMENT_I32] = H5T_NATIVE_INT32,
        [MERAK_ELEMENT_U64] = H5T_NATIVE_UINT64,
        [MERAK_ELEMENT_I64] = H5T_NATIVE_INT64,
        [MERAK_ELEMENT_F32] = H5T_NATIVE_FLOAT,
        [MERAK_ELEMENT_F64] = H5T_NATIVE_DOUBLE,
    };

    /* HDF5 has no name for halves in memory before 1.14.4 */
    *type_p =
        array->type == MERAK_ELEMENT_F16 ? MERAK_ELEMENT_F32 : array->type;
    return types[*type_p];
}

static bool read_box(const struct merak_array *array, const size_t *lo,
                     const size_t *len, hid_t type, unsigned char *raw)
{
    const struct merak_h5_array *h5 = array->h5;
    hsize_t from[MERAK_MAX_DIMS], count[MERAK_MAX_DIMS];
    hid_t memory;
    bool ok;

    for (int d = 0; d < array->shape.ndim; d++) {
        from[d] = lo[d];
        count[d] = len[d];
    }
    memory = H5Screate_simple(array->shape.ndim, count, NULL);
    ok = memory >= 0 &&
         H5Sselect_hyperslab(h5->space, H5S_SELECT_SET, from, NULL, count,
                             NULL) >= 0 &&
         H5Dread(h5->set, type, memory, h5->space, H5P_DEFAULT, raw) >= 0;
    merak_h5_drop(memory);
    return ok;
}

enum merak_status merak_h5_array_read(const struct merak_array *array,
                                      const size_t *lo, const size_t *len,
                                      enum merak_element *type_p,
                                      unsigned char **raw_p,
                                      struct merak_error *err)
{
    hid_t type = memory_type(array, type_p);
    struct merak_h5_quiet saved;
    enum merak_status rc = MERAK_OK;
    unsigned char *raw;
    size_t count = 1, bytes;

    for (int d = 0; d < array->shape.ndim; d++)
        count *= len[d];
    if (!merak_size_mul(count, merak_element_bytes(*type_p), &bytes))
        return merak_fail_nomem(err, SIZE_MAX);
    raw = malloc(bytes);
    if (raw == NULL)
        return merak_fail_nomem(err, bytes);
    merak_h5_quiet(&saved);
    if (!read_box(array, lo, len, type, raw))
        rc = merak_h5_fail(err, "%s: sample %zu", array->path, lo[0]);
    merak_h5_restore(&saved);
    if (rc == MERAK_OK)
        *raw_p = raw;
    else
        free(raw);
    return rc;
}

void merak_h5_array_close(struct merak_h5_array *h5)
{
    struct merak_h5_quiet saved;

    if (h5 == NULL)
        return;
    merak_h5_quiet(&saved);
    merak_h5_drop(h5->space);
    merak_h5_drop(h5->set);
    if (h5->file >= 0)
        (void)!H5Fclose(h5->file);
    merak_h5_restore(&saved);
    free(h5);
}
