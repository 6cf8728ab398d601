/* SPDX-License-Identifier: Apache-2.0 */
/* base/output.h - files that a command writes where the user said
 *
 * Whether one can be made there is asked before what it will hold is computed;
 * one that cannot be written whole leaves what was there before. */
#ifndef MERAK_BASE_OUTPUT_H
#define MERAK_BASE_OUTPUT_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>

#include "merak/status.h"

/*
 * A file that will be made or replaced; path may be NULL or "-" (standard
 * output).
 *
 *   option  as the user gave it: "--out"
 *
 * MERAK_ERR_NOSPACE, with the folder if that is the reason.
 */
enum merak_status merak_output_check(const char *option, const char *path,
                                     struct merak_error *err) MERAK_CHECKED;
/*
 * Several, each with a place of its own: MERAK_ERR_CONFIG if two are to be
 * written to one.
 */
struct merak_output_place {
    const char *option, *path;
};
enum merak_status merak_outputs_check(const struct merak_output_place *out,
                                      size_t n,
                                      struct merak_error *err) MERAK_CHECKED;
/*
 * A directory that may be made, with those above it; path may be NULL.
 *
 * MERAK_ERR_CONFIG if a file is in the way, MERAK_ERR_NOSPACE if nothing can be
 * made there.
 */
enum merak_status
merak_output_folder_check(const char *option, const char *path,
                          struct merak_error *err) MERAK_CHECKED;

/* A file while it is written. */
struct merak_output {
    FILE *file;       /* what to write to */
    const char *path; /* "-": standard output */
    char
        part[PATH_MAX]; /* where it is until it is whole; empty: in its place */
};
/*
 * Begin to write: beside the place, if a file of our own is there or none.
 * Links, pipes, devices and what is in a folder that cannot be written are
 * written in place.  The path is borrowed until the end.
 */
enum merak_status merak_output_open(struct merak_output *o, const char *path,
                                    struct merak_error *err) MERAK_CHECKED;
/*
 * The end, once after each open: if all has been written (fine), it is in its
 * place then, else the part of it is removed.  Fails with the reason in errno
 * if not fine.
 */
enum merak_status merak_output_close(struct merak_output *o, bool fine,
                                     struct merak_error *err) MERAK_CHECKED;

#endif
