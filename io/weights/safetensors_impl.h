/* SPDX-License-Identifier: Apache-2.0 */
/* io/weights/safetensors_impl.h - shared by the readers of safetensors files
 */
#ifndef MERAK_IO_WEIGHTS_SAFETENSORS_IMPL_H
#define MERAK_IO_WEIGHTS_SAFETENSORS_IMPL_H

#include "io/weights/safetensors.h"

/* The most bytes of a header or an index that the format allows. */
#define MERAK_SAFETENSORS_MOST_HEADER ((uint64_t)100 * 1000 * 1000)

/* safetensors_header.c: open the newest of st's files, f, check its header
 * and add its tensors. */
enum merak_status merak_safetensors_load(struct merak_safetensors *st,
                                         struct merak_safetensors_file *f,
                                         struct merak_error *err) MERAK_CHECKED;
/* safetensors.c: add a file of the folder, with its tensors. */
enum merak_status
merak_safetensors_add_file(struct merak_safetensors *st, const char *dir,
                           const char *name,
                           struct merak_error *err) MERAK_CHECKED;
/* safetensors_index.c: open the files that the index at `path` names. */
enum merak_status
merak_safetensors_open_index(struct merak_safetensors *st, const char *dir,
                             const char *path,
                             struct merak_error *err) MERAK_CHECKED;
/* mxfp4.c: as merak_safetensors_read(), of a packed tensor. */
enum merak_status merak_safetensors_read_packed(
    const struct merak_safetensors *st, const struct merak_safetensor *t,
    size_t first, size_t n, float *out, struct merak_error *err) MERAK_CHECKED;

#endif
