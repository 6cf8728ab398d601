/* SPDX-License-Identifier: Apache-2.0 */
/* cmd/finish.h - how a subcommand ends: its exit code, its output, its signals
 *
 * `name` is the subcommand as it was called: "eval", "data pack".
 */
#ifndef MERAK_CMD_FINISH_H
#define MERAK_CMD_FINISH_H

#include "merak/status.h"

/* Print the error as one line, "merak NAME: .."; the exit code of its
 * status. */
int merak_cmd_failed(const char *name, enum merak_status rc,
                     const struct merak_error *err);
/* "merak NAME WHAT; see `merak NAME --help`", where WHAT goes on as a sentence:
 * "needs a directory"; MERAK_EXIT_CONFIG. */
int merak_cmd_misused(const char *name, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Standard output may be a full disk: the last check before success.  `code`,
 * or that of a failure, which is printed. */
int merak_cmd_flush(const char *name, int code);

/* Note signals that ask the process to stop, so that half of a file can be
 * removed first.  Without SA_RESTART they also end a read that waits for a
 * pipe. */
void merak_cmd_catch_stops(void);
/* MERAK_ERR_SYSTEM once such a signal has come. */
enum merak_status merak_cmd_check_stop(struct merak_error *err) MERAK_CHECKED;
/* Once what was made is gone, end as the signal would have, if one came. */
void merak_cmd_die_of_stop(void);

#endif
