/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokens/reference.h - losses of a token file's answers under a reference
 * model, for training on preferences
 *
 * PREFIX.ref is beside PREFIX.bin, .idx and .mask; `merak eval --reference`
 * makes it.
 */
#ifndef MERAK_IO_TOKENS_REFERENCE_H
#define MERAK_IO_TOKENS_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/tokens/token_file.h"
#include "merak/status.h"

#define MERAK_REFERENCE_SUFFIX ".ref"

struct merak_reference;

/* Which model it is. */
struct merak_reference_model {
    uint64_t weights; /* `whole` of weights_id.h */
    char from[256];   /* where they were, cut if it is longer */
};

/*
 * Open the one that belongs to a token file with a mask, and check all of it.
 *
 * MERAK_ERR_NOT_FOUND says how to make it, MERAK_ERR_CORRUPT,
 * MERAK_ERR_FORMAT and MERAK_ERR_MISMATCH what was found and expected.
 */
enum merak_status merak_reference_open(const struct merak_token_file *file,
                                       struct merak_reference **reference_p,
                                       struct merak_error *err) MERAK_CHECKED;
void merak_reference_close(struct merak_reference *reference);
/* The longest document that it was made for, in tokens. */
uint64_t merak_reference_longest(const struct merak_reference *reference);
/* Whose losses they are; NULL: a file of an earlier version does not say. */
const struct merak_reference_model *
merak_reference_model(const struct merak_reference *reference);
const char *merak_reference_path(const struct merak_reference *reference);
/* The checksum of its numbers. */
uint64_t merak_reference_checksum(const struct merak_reference *reference);
/* The losses of tokens [at, at + n), 0 for those that are not predicted.  At
 * most one thread at a time. */
enum merak_status merak_reference_read(const struct merak_reference *reference,
                                       uint64_t at, size_t n, float *out,
                                       struct merak_error *err) MERAK_CHECKED;

/* --- writing ---------------------------------------------------------------
 */

struct merak_reference_writer;

enum merak_status
merak_reference_create(const struct merak_token_file *file,
                       const struct merak_reference_model *model,
                       struct merak_reference_writer **writer_p,
                       struct merak_error *err) MERAK_CHECKED;
/* The losses of the next n tokens. */
enum merak_status merak_reference_put(struct merak_reference_writer *writer,
                                      const float *loss, size_t n,
                                      struct merak_error *err) MERAK_CHECKED;
/* All tokens have one: sync, and rename it into its place.  Documents of more
 * than `longest` tokens have none of use. */
enum merak_status merak_reference_commit(struct merak_reference_writer *writer,
                                         uint64_t longest,
                                         struct merak_error *err) MERAK_CHECKED;
/* What was not committed is removed. */
void merak_reference_destroy(struct merak_reference_writer *writer);

#endif
