/* SPDX-License-Identifier: Apache-2.0 */
/* io/weights/float_file.h - write a stream of f32 to a file, rounded to the
 * file's type
 */
#ifndef MERAK_IO_WEIGHTS_FLOAT_FILE_H
#define MERAK_IO_WEIGHTS_FLOAT_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "io/weights/safetensors.h"
#include "merak/status.h"

struct merak_float_file;

/* Create PATH.tmp; borrows nothing. */
enum merak_status
merak_float_file_create(const char *path, struct merak_float_file **file_p,
                        struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_float_file_bytes(struct merak_float_file *file,
                                         const void *data, size_t n,
                                         struct merak_error *err) MERAK_CHECKED;
/*
 * Append n numbers, rounded to nearest, ties to even.  MERAK_ERR_MISMATCH
 * gives index and value if a finite one becomes infinite.
 */
enum merak_status merak_float_file_put(struct merak_float_file *file,
                                       enum merak_safetensors_type type,
                                       const float *x, size_t n,
                                       struct merak_error *err) MERAK_CHECKED;
/* Sync, and rename the file to PATH. */
enum merak_status
merak_float_file_commit(struct merak_float_file *file,
                        struct merak_error *err) MERAK_CHECKED;
/* A file that was not committed is removed. */
void merak_float_file_destroy(struct merak_float_file *file);

#endif
