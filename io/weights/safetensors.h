/* SPDX-License-Identifier: Apache-2.0 */
/* io/weights/safetensors.h - the one or several safetensors files of a folder
 *
 * The format is described in safetensors_header.c.
 */
#ifndef MERAK_IO_WEIGHTS_SAFETENSORS_H
#define MERAK_IO_WEIGHTS_SAFETENSORS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "merak/status.h"

#define MERAK_SAFETENSORS_FILE "model.safetensors"
#define MERAK_SAFETENSORS_INDEX "model.safetensors.index.json"

enum { MERAK_SAFETENSORS_DIMS = 8 };

/* The types that are read and written; others are known only by name. */
enum merak_safetensors_type {
    MERAK_SAFETENSORS_F32,
    MERAK_SAFETENSORS_BF16,
    MERAK_SAFETENSORS_F16,
    MERAK_SAFETENSORS_OTHER,
};

/* "F32", "BF16", "F16"; "?" for others. */
const char *merak_safetensors_type_name(enum merak_safetensors_type type);
/* Bytes of an element: 4, 2, 2; 0 for others. */
size_t merak_safetensors_type_bytes(enum merak_safetensors_type type);

struct merak_safetensor {
    const char *name, *dtype; /* as in the file; borrowed from it */
    enum merak_safetensors_type type;
    int ndim;
    size_t dim[MERAK_SAFETENSORS_DIMS];
    size_t count;
    int file;
    uint64_t offset, bytes; /* in the file */
    /* merak_safetensors_unpack(): numbers are in MXFP4, and their scales
     * there. */
    bool packed;
    int scales_file;
    uint64_t scales_offset;
};

struct merak_safetensors_file {
    char *path;
    const char *name; /* without the folder */
    int fd;
    json_t *root; /* the header: owns the tensors' names */
};

struct merak_safetensors {
    struct merak_safetensors_file *file;
    int n_files;
    struct merak_safetensor *tensor; /* by file, then by offset */
    int n;
    bool indexed; /* the folder has an index */
    char **made;  /* names of tensors that no file has */
    int n_made;
};

/*
 * Open the files of a folder: model.safetensors, or those that
 * model.safetensors.index.json names.  Headers are read and checked
 * completely: every tensor is inside its file, has the length of its shape,
 * overlaps no other, and has a unique name.
 *
 * MERAK_ERR_NOT_FOUND if the folder has neither file; MERAK_ERR_CORRUPT or
 * MERAK_ERR_FORMAT name the file and what is wrong with it.
 */
enum merak_status merak_safetensors_open(const char *dir,
                                         struct merak_safetensors **st_p,
                                         struct merak_error *err) MERAK_CHECKED;
/* The same of one file of a folder, which has another name. */
enum merak_status
merak_safetensors_open_file(const char *dir, const char *name,
                            struct merak_safetensors **st_p,
                            struct merak_error *err) MERAK_CHECKED;
void merak_safetensors_close(struct merak_safetensors *st);
/* Join tensors NAME_blocks and NAME_scales in MXFP4 to one, NAME, as if it were
 * in bf16; *any_p: there are such (mxfp4.c).  MERAK_ERR_FORMAT names those that
 * do not match. */
enum merak_status
merak_safetensors_unpack(struct merak_safetensors *st, bool *any_p,
                         struct merak_error *err) MERAK_CHECKED;
/* Does the folder have files that merak_safetensors_open() would open? */
bool merak_safetensors_is_one(const char *dir);
/* Elements [first, first + n) of a tensor.  MERAK_ERR_FORMAT if it has none of
 * the three types; MERAK_ERR_CORRUPT if the file has become shorter. */
enum merak_status merak_safetensors_read(const struct merak_safetensors *st,
                                         const struct merak_safetensor *t,
                                         size_t first, size_t n, float *out,
                                         struct merak_error *err) MERAK_CHECKED;

/* --- writing ------------------------------------------------------------- */

struct merak_safetensors_entry {
    const char *name;
    enum merak_safetensors_type type;
    int ndim;
    size_t dim[MERAK_SAFETENSORS_DIMS];
};

/* Bytes of an entry's elements. */
uint64_t merak_safetensors_bytes(const struct merak_safetensors_entry *entry);

struct merak_safetensors_writer;

/*
 * Create PATH.tmp and write the header: metadata (NULL: {"format": "pt"}),
 * then the tensors in this order, which is also that of their data.
 */
enum merak_status merak_safetensors_create(
    const char *path, const struct merak_safetensors_entry *entry, int n,
    const json_t *metadata, struct merak_safetensors_writer **writer_p,
    struct merak_error *err) MERAK_CHECKED;
/*
 * Append the next n elements, of one tensor, rounded to its type: to nearest,
 * ties to even.  MERAK_ERR_MISMATCH names the first finite one that the type
 * cannot represent.
 */
enum merak_status merak_safetensors_put(struct merak_safetensors_writer *writer,
                                        const float *x, size_t n,
                                        struct merak_error *err) MERAK_CHECKED;
/* After all elements: sync, and rename the file to PATH. */
enum merak_status
merak_safetensors_commit(struct merak_safetensors_writer *writer,
                         struct merak_error *err) MERAK_CHECKED;
/* A file that was not committed is removed. */
void merak_safetensors_destroy(struct merak_safetensors_writer *writer);

#endif
