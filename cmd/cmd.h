/* SPDX-License-Identifier: Apache-2.0 */
/* cmd/cmd.h - the subcommands of `merak`
 *
 * Each gets its own argc and argv (argv[0] is the subcommand's name) and
 * returns the process's exit code (runtime/runtime.h).  It prints its own
 * errors: one line on standard error, "merak NAME: ...".
 */
#ifndef MERAK_CMD_CMD_H
#define MERAK_CMD_CMD_H

#include <stddef.h>
#include <stdio.h>

#include "base/options.h"

int merak_cmd_calibrate(int argc, char **argv);
int merak_cmd_ckpt(int argc, char **argv);
int merak_cmd_data(int argc, char **argv);
int merak_cmd_doctor(int argc, char **argv);
int merak_cmd_eval(int argc, char **argv);
int merak_cmd_generate(int argc, char **argv);
int merak_cmd_jobscript(int argc, char **argv);
int merak_cmd_plan(int argc, char **argv);
int merak_cmd_report(int argc, char **argv);
int merak_cmd_sandbox(int argc, char **argv);
int merak_cmd_top(int argc, char **argv);
int merak_cmd_trace(int argc, char **argv);
int merak_cmd_train(int argc, char **argv);

/*
 * Parse the options of a command with one word, such as RUN or KIND, which is
 * then argv[1], or NULL if not given.  A second word is MERAK_ERR_CONFIG.
 */
enum merak_status merak_cmd_one_word(const struct merak_option_table *table,
                                     int argc, char **argv, void *target,
                                     bool *help_p,
                                     struct merak_error *err) MERAK_CHECKED;

#endif
