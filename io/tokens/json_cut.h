/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokens/json_cut.h - JSON cut at its keys and elements, without parsing
 * the values
 *
 * Texts end with NUL, which is not counted.
 */
#ifndef MERAK_IO_TOKENS_JSON_CUT_H
#define MERAK_IO_TOKENS_JSON_CUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "merak/status.h"

struct merak_json_span {
    const char *at;
    size_t n;
};

struct merak_json_member {
    struct merak_json_span key, value; /* the key without its quotes */
};

const char *merak_json_skip_blanks(const char *at, const char *end);
/* Behind an opening sign or a comma: the next member of an object, or element
 * of a list (its key is then empty).  1: one more, 0: the end, -1: not JSON. */
int merak_json_next(const char **at, const char *end, char close, bool first,
                    struct merak_json_member *m);
/* The value, yours; NULL: `bad` says why it is none. */
json_t *merak_json_parse(struct merak_json_span span, json_error_t *bad);
bool merak_json_is_key(struct merak_json_span key, const char *name);
/* A list of messages, yours; fields that are not read may have any value. */
enum merak_status
merak_json_parse_messages(struct merak_json_span span, json_t **list_p,
                          struct merak_error *err) MERAK_CHECKED;
/* Fail with "not JSON: WHY". */
enum merak_status merak_json_refuse(const char *why,
                                    struct merak_error *err) MERAK_CHECKED;

#endif
