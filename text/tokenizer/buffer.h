/* SPDX-License-Identifier: Apache-2.0 */
/* text/tokenizer/buffer.h - a growing buffer of bytes, up to a bound if it has
 * one */
#ifndef MERAK_TEXT_TOKENIZER_BUFFER_H
#define MERAK_TEXT_TOKENIZER_BUFFER_H

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "merak/status.h"

struct merak_buffer {
    unsigned char *text;
    size_t n, room;
    size_t most; /* bytes; 0: no bound */
};

static inline MERAK_CHECKED enum merak_status
merak_buffer_add(struct merak_buffer *b, const void *bytes, size_t n,
                 struct merak_error *err)
{
    if (b->most > 0 && n > b->most - b->n)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "a text grows to more than %zu bytes", b->most);
    if (n > b->room - b->n) {
        size_t room = 2 * (b->n + n) + 64;
        unsigned char *more = realloc(b->text, room);

        if (more == NULL)
            return merak_fail_nomem(err, room);
        b->text = more;
        b->room = room;
    }
    if (n > 0)
        memcpy(b->text + b->n, bytes, n);
    b->n += n;
    return MERAK_OK;
}

#endif
