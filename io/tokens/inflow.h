/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokens/inflow.h - the bytes of an input, decompressed where its first
 * bytes say that it is gzip or Zstandard
 *
 * Members that follow each other are one text, as for gzip and zstd.  What
 * Merak was built without passes as it is.
 */
#ifndef MERAK_IO_TOKENS_INFLOW_H
#define MERAK_IO_TOKENS_INFLOW_H

#include <stdbool.h>
#include <stddef.h>

#include "merak/status.h"

struct merak_inflow;

/*
 * Look at the first bytes of fd, which remains the caller's, as the path that
 * errors name does.  Uses memory for two buffers and what a decompressor
 * looks back on: 32 KiB for gzip, for Zstandard what the file asks, at most
 * 2 GiB.
 */
enum merak_status merak_inflow_open(int fd, const char *path,
                                    struct merak_inflow **in_p,
                                    struct merak_error *err) MERAK_CHECKED;
void merak_inflow_close(struct merak_inflow *in);
bool merak_inflow_is_compressed(const struct merak_inflow *in);
/*
 * Up to n bytes; *got_p is 0 at the end, and there only.
 * MERAK_ERR_CORRUPT names the byte of the file where the data are damaged or
 * cut off.
 */
enum merak_status merak_inflow_read(struct merak_inflow *in, void *to, size_t n,
                                    size_t *got_p,
                                    struct merak_error *err) MERAK_CHECKED;

#endif
