/* SPDX-License-Identifier: Apache-2.0 */
/* json_rows.h - the lines of a JSONL file of tests/vectors, one by one */
#ifndef MERAK_TESTS_JSON_ROWS_H
#define MERAK_TESTS_JSON_ROWS_H

#include "unit/near.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

struct json_rows {
    FILE *file;
    char *line;
    size_t room;
    json_t *row; /* the line that was read last; owned */
};

static inline struct json_rows open_rows(const char *path)
{
    struct json_rows rows = {.file = fopen(path, "r")};

    assert_non_null(rows.file);
    return rows;
}

/* Reads the next line into rows->row, which is good until the next call.
 * Returns false at the end of the file, and closes it then. */
static inline bool next_row(struct json_rows *rows)
{
    json_decref(rows->row);
    rows->row = NULL;
    if (getline(&rows->line, &rows->room, rows->file) > 0) {
        rows->row = json_loads(rows->line, 0, NULL);
        assert_non_null(rows->row);
        return true;
    }
    free(rows->line);
    fclose(rows->file);
    return false;
}

#endif
