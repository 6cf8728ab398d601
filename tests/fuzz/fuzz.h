/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz.h - what the fuzz targets share
 *
 * A target is one file, fuzz_NAME.c, which reads bytes as a reader of ours
 * does and ends the process where that breaks a promise.  It is linked with
 * libFuzzer where the tree is built for that, and elsewhere with
 * fuzz_driver.c, which changes the same seeds by rules of its own.
 */
#ifndef MERAK_TESTS_FUZZ_H
#define MERAK_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "merak/status.h"

/* --- what a target defines ----------------------------------------------- */

/* Read one input; 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
/* Add what changes start from, by the functions below; sound ones first. */
void fuzz_seeds(void);

/* --- what it calls ---------------------------------------------------------
 */

/* A copy of the bytes becomes a seed. */
void fuzz_add(const void *data, size_t n);
/* The same with a byte in front, of targets that read more than one kind. */
void fuzz_add_kind(uint8_t kind, const void *data, size_t n);
void fuzz_add_text(const char *text);
/* A file below tests/vectors; it must be there.  kind < 0: no byte in front. */
void fuzz_add_vector(int kind, const char *name);
/* A file by its path; it must be there. */
void fuzz_add_file(int kind, const char *path);

/* A directory of this process, gone when it ends well. */
const char *fuzz_dir(void);
/* Write a file in it; its path, good until the next 8 calls. */
const char *fuzz_file(const char *name, const void *data, size_t n);
/* The path alone. */
const char *fuzz_path(const char *name);
/* The bytes as a string that ends at the first that is 0; free() it. */
char *fuzz_text(const uint8_t *data, size_t n);

/* End the process, with what was promised, unless it holds. */
void fuzz_must(bool holds, const char *promise);
/* A refusal gives its reason, in one line, and does not blame memory or this
 * machine for what a file says. */
void fuzz_refused(enum merak_status rc, const struct merak_error *err);

/* --- for the driver --------------------------------------------------------
 */

struct fuzz_seed {
    uint8_t *data;
    size_t n;
};
const struct fuzz_seed *fuzz_all_seeds(size_t *n_p);

#endif
