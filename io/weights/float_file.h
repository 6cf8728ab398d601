/* SPDX-License-Identifier: Apache-2.0 */
/* io/weights/float_file.h - write a file of numbers, a stream of f32 rounded
 * to what the file holds
 */
#ifndef MERAK_IO_WEIGHTS_FLOAT_FILE_H
#define MERAK_IO_WEIGHTS_FLOAT_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "io/weights/safetensors.h"
#include "merak/status.h"

struct merak_float_file;

/* Make PATH.tmp; borrows nothing. */
enum merak_status
merak_float_file_create(const char *path, struct merak_float_file **file_p,
                        struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_float_file_bytes(struct merak_float_file *file,
                                         const void *data, size_t n,
                                         struct merak_error *err) MERAK_CHECKED;
/*
 * n numbers, to nearest, ties to even.  MERAK_ERR_MISMATCH if a finite one
 * becomes infinite: its index and value, without a name.
 */
enum merak_status merak_float_file_put(struct merak_float_file *file,
                                       enum merak_safetensors_type type,
                                       const float *x, size_t n,
                                       struct merak_error *err) MERAK_CHECKED;
/* Sync, and give the file its name. */
enum merak_status
merak_float_file_commit(struct merak_float_file *file,
                        struct merak_error *err) MERAK_CHECKED;
/* A file that was not committed is removed. */
void merak_float_file_destroy(struct merak_float_file *file);

#endif
