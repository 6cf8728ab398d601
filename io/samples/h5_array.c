/* SPDX-License-Identifier: Apache-2.0 */
/* h5_array.c - arrays in HDF5 files, of whatever layout and filters HDF5 has */
#include "config.h"

#include "io/samples/array.h"

#include "base/error.h"
#include "io/h5.h"

#include <stdlib.h>

struct merak_h5_array {
    hid_t file, set, space;
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
    *array->h5 = (struct merak_h5_array){-1, -1, -1};
    merak_h5_quiet(&saved);
    rc = open_set(array, set, err);
    merak_h5_restore(&saved);
    return rc;
}

static bool read_rows(const struct merak_array *array, size_t first, size_t n,
                      double *out)
{
    const struct merak_h5_array *h5 = array->h5;
    hsize_t from[MERAK_MAX_DIMS] = {first}, count[MERAK_MAX_DIMS] = {n};
    hid_t memory;
    bool ok;

    for (int d = 1; d < array->shape.ndim; d++)
        count[d] = array->shape.dim[d];
    memory = H5Screate_simple(array->shape.ndim, count, NULL);
    ok = memory >= 0 &&
         H5Sselect_hyperslab(h5->space, H5S_SELECT_SET, from, NULL, count,
                             NULL) >= 0 &&
         H5Dread(h5->set, H5T_NATIVE_DOUBLE, memory, h5->space, H5P_DEFAULT,
                 out) >= 0;
    merak_h5_drop(memory);
    return ok;
}

enum merak_status merak_h5_array_read(const struct merak_array *array,
                                      size_t first, size_t n, double *out,
                                      struct merak_error *err)
{
    struct merak_h5_quiet saved;
    enum merak_status rc = MERAK_OK;

    merak_h5_quiet(&saved);
    if (!read_rows(array, first, n, out))
        rc = merak_h5_fail(err, "%s: rows from %zu on", array->path, first);
    merak_h5_restore(&saved);
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
