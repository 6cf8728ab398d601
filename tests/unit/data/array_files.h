/* SPDX-License-Identifier: Apache-2.0 */
/* array_files.h - files of arrays, for tests */
#ifndef MERAK_TESTS_ARRAY_FILES_H
#define MERAK_TESTS_ARRAY_FILES_H

#include "unit/scratch_dir.h"

#include <stdio.h>

/* A header of npy. */
#define DICT(descr, shape) \
    "{'descr': '" descr "', 'fortran_order': False, 'shape': (" shape "), }\n"

/* An idx file of rows [n, dims..], big-endian, whose elements follow. */
static inline void write_idx(const char *name, int type, int ndim,
                             const int *dim, const void *elements, size_t bytes)
{
    unsigned char head[64] = {0, 0, (unsigned char)type, (unsigned char)ndim};
    FILE *f = fopen(scratch_path(name), "wb");

    assert_non_null(f);
    for (int d = 0; d < ndim; d++) {
        head[4 + 4 * d + 2] = (unsigned char)(dim[d] >> 8);
        head[4 + 4 * d + 3] = (unsigned char)dim[d];
    }
    assert_int_equal(fwrite(head, 1, 4 + 4 * (size_t)ndim, f), 4 + 4 * ndim);
    assert_int_equal(fwrite(elements, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

static inline void write_npy(const char *name, const char *header,
                             const void *elements, size_t bytes)
{
    size_t n = strlen(header);
    unsigned char head[10] = "\x93NUMPY\1\0";
    FILE *f = fopen(scratch_path(name), "wb");

    assert_non_null(f);
    head[8] = (unsigned char)n;
    head[9] = (unsigned char)(n >> 8);
    assert_int_equal(fwrite(head, 1, sizeof(head), f), sizeof(head));
    assert_int_equal(fwrite(header, 1, n, f), n);
    assert_int_equal(fwrite(elements, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

static inline void write_text(const char *name, const char *text)
{
    scratch_write(name, text, strlen(text));
}

#endif
