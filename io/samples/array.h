/* SPDX-License-Identifier: Apache-2.0 */
/* io/samples/array.h - arrays of numbers in files: idx, npy, HDF5
 *
 * Rows come first: an array has as many of them as its first dim says.
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
    bool within;               /* other data may follow the last one */
    struct merak_h5_array *h5; /* NULL: its elements lie in a row, after begin
                                  or in memory, */
    struct merak_array_list *list; /* or each row is a file's */
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
/*
 * Open files with names that match a pattern of the shell (path*?[a-z]) as one
 * array, of which each is a row, in the order of their names.  The first is
 * looked at, the others when they are read: MERAK_ERR_MISMATCH then, if one has
 * other dims or another type.
 */
enum merak_status merak_array_open_list(const char *pattern, const char *set,
                                        struct merak_array *array,
                                        struct merak_error *err) MERAK_CHECKED;
void merak_array_close(struct merak_array *array);
/* The file that a row is in. */
const char *merak_array_row_path(const struct merak_array *array, size_t row);
/* Rows [first, first + n) as numbers: out[n * row].  Integers beyond 2^53 are
 * rounded.  One thread at a time. */
enum merak_status merak_array_read(const struct merak_array *array,
                                   size_t first, size_t n, double *out,
                                   struct merak_error *err) MERAK_CHECKED;

/* What receives the next n numbers of a box, in row-major order. */
typedef enum merak_status (*merak_numbers_fn)(void *arg, const double *x,
                                              size_t n,
                                              struct merak_error *err);
/*
 * Elements [lo, lo + len) of each dim, rows included; none is 0.
 *
 * Of a file whose elements lie in a row (npy, idx, data sets of HDF5 that are
 * neither chunked nor filtered) exactly the box's bytes are read, each once; of
 * a chunked data set all chunks that have some of them.  What `take` returns
 * ends the reading unless it is MERAK_OK.  One thread at a time.
 */
enum merak_status merak_array_read_box(const struct merak_array *array,
                                       const size_t *lo, const size_t *len,
                                       merak_numbers_fn take, void *arg,
                                       struct merak_error *err) MERAK_CHECKED;

/* Warn, once a file, if chunks are read for a box that are twice as large; it is
 * what was read last. */
void merak_array_warn_of_chunks(const struct merak_array *array,
                                const size_t *lo, const size_t *len);

/* array_list.c */
enum merak_status merak_array_list_read(const struct merak_array *array,
                                        const size_t *lo, const size_t *len,
                                        merak_numbers_fn take, void *arg,
                                        struct merak_error *err) MERAK_CHECKED;
/* The open file of a row, or NULL. */
const struct merak_array *
merak_array_list_opened(const struct merak_array_list *list, size_t row);
void merak_array_list_close(struct merak_array_list *list);

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
/* A box as bytes, in elements of *type_p and this machine's byte order; *raw_p
 * is the caller's to free. */
enum merak_status merak_h5_array_read(const struct merak_array *array,
                                      const size_t *lo, const size_t *len,
                                      enum merak_element *type_p,
                                      unsigned char **raw_p,
                                      struct merak_error *err) MERAK_CHECKED;
void merak_h5_array_warn(const struct merak_array *array, const size_t *lo,
                         const size_t *len);
void merak_h5_array_close(struct merak_h5_array *h5);

#endif
