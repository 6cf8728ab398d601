/* SPDX-License-Identifier: Apache-2.0 */
/* base/output.h - can an output be made there?  Asked before what it will hold
 * is computed. */
#ifndef MERAK_BASE_OUTPUT_H
#define MERAK_BASE_OUTPUT_H

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
 * A directory that may be made, with those above it; path may be NULL.
 *
 * MERAK_ERR_CONFIG if a file is in the way, MERAK_ERR_NOSPACE if nothing can be
 * made there.
 */
enum merak_status
merak_output_folder_check(const char *option, const char *path,
                          struct merak_error *err) MERAK_CHECKED;

#endif
