/* SPDX-License-Identifier: Apache-2.0 */
/* io/samples/array.h - arrays of numbers in files: idx, npy, HDF5
 *
 * The first bytes say what a file is.  An idx or npy file may be compressed
 * (gzip, Zstandard): it is then unpacked into memory when it is opened.
 */
#ifndef MERAK_IO_SAMPLES_ARRAY_H
#define MERAK_IO_SAMPLES_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "merak/status.h"
#include "merak/types.h"

/* The type of an element as files have it. */
enum merak_element {
    MERAK_ELEMENT_U8,
    MERAK_ELEMENT_I8,
    MERAK_ELEMENT_U16,
    MERAK_ELEMENT_I16,
    MERAK_ELEMENT_U32,
    MERAK_ELEMENT_I32,
    MERAK_ELEMENT_U64,
    MERAK_ELEMENT_I64,
    MERAK_ELEMENT_F16,
    MERAK_ELEMENT_F32,
    MERAK_ELEMENT_F64,
    MERAK_ELEMENT_COUNT
};
const char *merak_element_name(enum merak_element type);
size_t merak_element_bytes(enum merak_element type);
bool merak_element_is_float(enum merak_element type);

struct merak_array {
    char *path;
    enum merak_element type;
    bool big_endian;
    struct merak_shape shape;  /* rows first */
    size_t row;                /* elements of one */
    int fd;                    /* -1: in memory, or HDF5's */
    unsigned char *memory;     /* NULL: in the file */
    size_t bytes;              /* of memory */
    uint64_t begin;            /* where the first element is */
    struct merak_h5_array *h5; /* NULL: it is none of HDF5 */
};

/*
 * Open an array for reading.
 *
 *   set  of an HDF5 file: the data set's name
 *
 * MERAK_ERR_FORMAT: the file is of no kind, or of a type, that is read;
 * MERAK_ERR_CORRUPT: it has fewer bytes than it says.
 */
enum merak_status merak_array_open(const char *path, const char *set,
                                   struct merak_array *array,
                                   struct merak_error *err) MERAK_CHECKED;
void merak_array_close(struct merak_array *array);
/* Rows [first, first + n) as numbers: out[n * row].  Integers beyond 2^53 are
 * rounded.  One thread at a time. */
enum merak_status merak_array_read(const struct merak_array *array,
                                   size_t first, size_t n, double *out,
                                   struct merak_error *err) MERAK_CHECKED;

/* --- formats ------------------------------------------------------------- */

/* Read a header of `n` bytes, all of the file's or more than it can take, and
 * fill type, big_endian, shape and begin. */
enum merak_status merak_array_idx(struct merak_array *array,
                                  const unsigned char *head, size_t n,
                                  struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_array_npy(struct merak_array *array,
                                  const unsigned char *head, size_t n,
                                  struct merak_error *err) MERAK_CHECKED;
/* h5_array.c, or no_h5_array.c */
enum merak_status merak_h5_array_open(struct merak_array *array,
                                      const char *set,
                                      struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_h5_array_read(const struct merak_array *array,
                                      size_t first, size_t n, double *out,
                                      struct merak_error *err) MERAK_CHECKED;
void merak_h5_array_close(struct merak_h5_array *h5);

#endif
