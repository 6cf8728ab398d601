/* SPDX-License-Identifier: Apache-2.0 */
/* base/log.h - log lines through the program's sink
 *
 * Levels per module from MERAK_LOG, "info,io:debug".  The library logs warnings
 * and less; errors are returned.  Lower case, no period, values not quoted.
 */
#ifndef MERAK_BASE_LOG_H
#define MERAK_BASE_LOG_H

#include <stdbool.h>

enum merak_log_level {
    MERAK_LOG_ERROR,
    MERAK_LOG_WARN,
    MERAK_LOG_INFO,
    MERAK_LOG_DEBUG,
    MERAK_LOG_TRACE,
};

typedef void (*merak_log_fn)(void *arg, enum merak_log_level level,
                             const char *module, const char *line);

/* Set where lines go; NULL restores the default (standard error, "merak: ..",
 * with the rank in the prefix, see merak_log_rank()). */
void merak_log_sink(merak_log_fn fn, void *arg);
/* Ranks above 0 are shown in the prefix and do not print info by default. */
void merak_log_rank(int rank);
/* Parse a MERAK_LOG value; unknown words are ignored.  NULL: getenv. */
void merak_log_setup(const char *spec);
void merak_log(enum merak_log_level level, const char *module,
               const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#define merak_warn(module, ...) merak_log(MERAK_LOG_WARN, module, __VA_ARGS__)
#define merak_info(module, ...) merak_log(MERAK_LOG_INFO, module, __VA_ARGS__)
#define merak_debug(module, ...)                                               \
    merak_log(MERAK_LOG_DEBUG, module, __VA_ARGS__)

#endif
