/* SPDX-License-Identifier: Apache-2.0 */
/* no_h5_array.c - arrays of HDF5 in a build without it */
#include "config.h"

#include "io/samples/array.h"

#include "base/error.h"

enum merak_status merak_h5_array_open(struct merak_array *array,
                                      const char *set, struct merak_error *err)
{
    (void)set;
    return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                      "%s is of HDF5, and this build has none: build with "
                      "libhdf5, or use npy",
                      array->path);
}

enum merak_status merak_h5_array_read(const struct merak_array *array,
                                      const size_t *lo, const size_t *len,
                                      enum merak_element *type_p,
                                      unsigned char **raw_p,
                                      struct merak_error *err)
{
    (void)lo;
    (void)len;
    (void)type_p;
    (void)raw_p;
    return merak_fail(err, MERAK_ERR_UNSUPPORTED, "%s: no HDF5", array->path);
}

void merak_h5_array_warn(const struct merak_array *array, const size_t *lo,
                         const size_t *len)
{
    (void)array;
    (void)lo;
    (void)len;
}

void merak_h5_array_close(struct merak_h5_array *h5)
{
    (void)h5;
}
