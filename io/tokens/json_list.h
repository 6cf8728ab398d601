/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokens/json_list.h - the elements of a list of JSON, one after another
 * from a stream */
#ifndef MERAK_IO_TOKENS_JSON_LIST_H
#define MERAK_IO_TOKENS_JSON_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "merak/status.h"

/* Initialize with the stream and zeros; free text. */
struct merak_json_list {
    FILE *f;
    char *text; /* of the current element, n bytes and NUL */
    size_t n, room;
    bool begun, closed, ended;
};

/*
 * Go on to the next element; `ended` says that there is none.  Uses memory for
 * one.  MERAK_ERR_FORMAT if the list is not closed, or something follows it;
 * a stream that fails ends, too: see ferror().
 */
enum merak_status merak_json_list_next(struct merak_json_list *list,
                                       struct merak_error *err) MERAK_CHECKED;

#endif
