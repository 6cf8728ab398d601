/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokens/json_lines.h - a line of JSON as a document or a conversation */
#ifndef MERAK_IO_TOKENS_JSON_LINES_H
#define MERAK_IO_TOKENS_JSON_LINES_H

#include "io/tokens/documents.h"

struct merak_json_lines {
    const char *path, *key; /* key NULL: none was given */
    const struct merak_document_reader *reader;
    const char *unit; /* "line", "object" of a list, "row" of a table */
    unsigned long long number; /* of the current one, from 1 .. */
    int fd;                    /* .. behind byte `from` of this file */
    uint64_t from;
    struct merak_chat_turn *turn;
    size_t room;
};

/* Pass on what the line has, n bytes; keys that are not read are skipped.
 * MERAK_ERR_FORMAT says what is wrong with it, without its number. */
enum merak_status merak_json_line_take(struct merak_json_lines *l,
                                       const char *line, size_t n,
                                       struct merak_error *err) MERAK_CHECKED;
/* Is this text an object with nothing behind it, `keyed`: one with keys that
 * are read without --json-key? */
bool merak_json_line_is(const char *line, size_t n, bool keyed);
/* The keys that are read without --json-key, *n_p of them. */
const char *const *merak_json_line_keys(size_t *n_p);

#endif
