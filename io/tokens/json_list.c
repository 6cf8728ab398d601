/* SPDX-License-Identifier: Apache-2.0 */
/* json_list.c - the elements of a list of JSON, one after another */
#include "config.h"

#include "io/tokens/json_list.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

static int next_sign(FILE *f)
{
    int c;

    do
        c = getc(f);
    while (c == ' ' || c == '\t' || c == '\r' || c == '\n');
    return c;
}

static enum merak_status put(struct merak_json_list *list, int c,
                             struct merak_error *err)
{
    if (list->n + 1 >= list->room) {
        size_t room = list->room > 0 ? 2 * list->room : 4096;
        char *grown = realloc(list->text, room);

        if (grown == NULL)
            return merak_fail_nomem(err, room);
        list->text = grown;
        list->room = room;
    }
    list->text[list->n++] = (char)c;
    list->text[list->n] = '\0';
    return MERAK_OK;
}

static enum merak_status fail_end(struct merak_error *err)
{
    return merak_fail(err, MERAK_ERR_FORMAT,
                      "the list of JSON is not closed: the file was cut off");
}

/* Up to the comma or the bracket behind the element that begins with c. */
static enum merak_status take(struct merak_json_list *list, int c,
                              struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;
    bool quoted = false;
    size_t depth = 0;

    for (; rc == MERAK_OK && c != EOF; c = getc(list->f)) {
        if (!quoted && depth == 0 && (c == ',' || c == ']')) {
            list->closed = c == ']';
            return MERAK_OK;
        }
        if (c == '"')
            quoted = !quoted;
        else if (!quoted && (c == '{' || c == '['))
            depth++;
        else if (!quoted && (c == '}' || c == ']') && depth > 0)
            depth--;
        rc = put(list, c, err);
        if (rc == MERAK_OK && quoted && c == '\\') {
            c = getc(list->f);
            rc = c != EOF ? put(list, c, err) : MERAK_OK;
        }
    }
    return rc == MERAK_OK ? fail_end(err) : rc;
}

enum merak_status merak_json_list_next(struct merak_json_list *list,
                                       struct merak_error *err)
{
    bool first = !list->begun;
    int c;

    list->n = 0;
    if (first && next_sign(list->f) != '[')
        return fail_end(err);
    list->begun = true;
    if (!list->closed) {
        c = next_sign(list->f);
        if (c != ']' || !first)
            return take(list, c, err);
    }
    list->ended = true;
    return next_sign(list->f) == EOF
               ? MERAK_OK
               : merak_fail(err, MERAK_ERR_FORMAT,
                            "more behind the list of JSON");
}
