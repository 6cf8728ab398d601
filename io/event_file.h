/* SPDX-License-Identifier: Apache-2.0 */
/* io/event_file.h - scalars of steps in the files that TensorBoard reads */
#ifndef MERAK_IO_EVENT_FILE_H
#define MERAK_IO_EVENT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "merak/status.h"

struct merak_scalar {
    const char *tag; /* "train/loss" */
    double value;    /* NAN: there is none */
};

struct merak_event_file;

/*
 * Begin a file in a directory, which is there, for the steps after `step`.
 *
 *   cut  in  take what earlier files of Merak's there have of these steps out
 *            of them: each step is then once in the directory
 */
enum merak_status merak_event_file_open(const char *dir, uint64_t step,
                                        bool cut,
                                        struct merak_event_file **file_p,
                                        struct merak_error *err) MERAK_CHECKED;
/* Add scalars of a step that ended at `time`, in seconds since 1970; they are
 * with the system when this returns. */
enum merak_status merak_event_file_add(struct merak_event_file *file,
                                       double time, uint64_t step,
                                       const struct merak_scalar *scalars,
                                       size_t n,
                                       struct merak_error *err) MERAK_CHECKED;
void merak_event_file_close(struct merak_event_file *file);

/* CRC32C (Castagnoli) of n bytes. */
uint32_t merak_crc32c(const void *data, size_t n);

#endif
