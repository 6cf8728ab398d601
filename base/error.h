/* SPDX-License-Identifier: Apache-2.0 */
/* base/error.h - filling in a struct merak_error */
#ifndef MERAK_BASE_ERROR_H
#define MERAK_BASE_ERROR_H

#include <stddef.h>

#include "merak/status.h"

/* Fill err (may be NULL) and return status.  Keeps errno. */
enum merak_status merak_fail(struct merak_error *err, enum merak_status status,
                             const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Append the fix, including the separator (": use 1f1b"), and return status.
 * Keeps errno; err may be NULL. */
enum merak_status merak_error_fix(struct merak_error *err,
                                  enum merak_status status, const char *fmt,
                                  ...) __attribute__((format(printf, 3, 4)));
/* Remove the fix, for callers that have a better one. */
void merak_error_drop_fix(struct merak_error *err);
/* Put "context: " in front of the text.  Keeps errno; err may be NULL. */
void merak_error_wrap(struct merak_error *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Of a file that configures a command (a model, a device), all but
 * a lack of memory is a mistake of configuration: return that, also in err. */
enum merak_status merak_error_as_config(enum merak_status rc,
                                        struct merak_error *err) MERAK_CHECKED;
/* MERAK_ERR_NOMEM with the size that could not be allocated. */
enum merak_status merak_fail_nomem(struct merak_error *err, size_t bytes);

#endif
