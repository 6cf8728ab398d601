/* SPDX-License-Identifier: Apache-2.0 */
/* cmd/json_line.h - shared by the commands with --json: one line of it */
#ifndef MERAK_CMD_JSON_LINE_H
#define MERAK_CMD_JSON_LINE_H

#include <jansson.h>
#include <stddef.h>

/* A new reference: text as a string of JSON.  Each byte that is no UTF-8, which
 * JSON has no place for, is U+FFFD; paths and texts of models have such bytes.
 */
json_t *merak_json_text(const char *text, size_t n);
/*
 * Print root on a line of its own, and flush the output.
 *
 *   name  the subcommand as called: "data show"
 *   root  its reference is taken; NULL: out of memory
 *
 * Returns `code`, or that of a failure, which is printed.
 */
int merak_cmd_flush_json(const char *name, json_t *root, int code);

#endif
