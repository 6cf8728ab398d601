/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokens/parquet.h - the rows of a Parquet file as lines of JSON, printed by
 * a python3 with pyarrow that is looked for when there is such a file
 *
 * Distributions have no library of C for Parquet, but who has such files has
 * what wrote them.  It is $MERAK_PYTHON, else python3 in PATH.
 */
#ifndef MERAK_IO_TOKENS_PARQUET_H
#define MERAK_IO_TOKENS_PARQUET_H

#include <stdbool.h>
#include <stddef.h>

#include "merak/status.h"

struct merak_parquet;

/* Do n first bytes say that it is one? */
bool merak_parquet_is(const char *begin, size_t n);
/*
 * Start reading the columns with these names; all of them if there is none of
 * these.
 */
enum merak_status merak_parquet_open(const char *path, size_t n,
                                     const char *const *column,
                                     struct merak_parquet **parquet_p,
                                     struct merak_error *err) MERAK_CHECKED;
/* A pipe with a line for every row, in their order; it is not yours. */
int merak_parquet_fd(const struct merak_parquet *parquet);
/*
 * After the pipe's end: have these been all rows?
 *
 * MERAK_ERR_UNSUPPORTED names what was looked for and is not there,
 * MERAK_ERR_CORRUPT has what pyarrow said.
 */
enum merak_status merak_parquet_end(struct merak_parquet *parquet,
                                    struct merak_error *err) MERAK_CHECKED;
/* Also before the end.  NULL is allowed. */
void merak_parquet_close(struct merak_parquet *parquet);

#endif
