/* SPDX-License-Identifier: Apache-2.0 */
/* cmd/finish.h - how a subcommand ends: its exit code, its output, its signals
 *
 * `name` is the subcommand as called: "eval", "data pack".
 */
#ifndef MERAK_CMD_FINISH_H
#define MERAK_CMD_FINISH_H

#include "merak/status.h"

/* Print the error as one line, "merak NAME: .."; returns the exit code of its
 * status. */
int merak_cmd_failed(const char *name, enum merak_status rc,
                     const struct merak_error *err);
/* "merak NAME WHAT; see `merak NAME --help`", where WHAT completes the
 * sentence: "needs a directory"; returns MERAK_EXIT_CONFIG. */
int merak_cmd_misused(const char *name, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The last check before success, since standard output may be on a full disk.
 * Returns `code`, or that of a failure, which is printed. */
int merak_cmd_flush(const char *name, int code);

/* Catch signals that ask the process to stop, so that an incomplete file can
 * be removed first.  Without SA_RESTART they also interrupt a read from a
 * pipe. */
void merak_cmd_catch_stops(void);
/* MERAK_ERR_SYSTEM once such a signal has arrived. */
enum merak_status merak_cmd_check_stop(struct merak_error *err) MERAK_CHECKED;
/* After cleaning up, end by the signal, if one has arrived. */
void merak_cmd_die_of_stop(void);

#endif
