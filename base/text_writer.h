/* SPDX-License-Identifier: Apache-2.0 */
/* base/text_writer.h - print text of any length with fprintf() */
#ifndef MERAK_BASE_TEXT_WRITER_H
#define MERAK_BASE_TEXT_WRITER_H

#include <stddef.h>
#include <stdio.h>

#include "merak/status.h"

struct merak_text_writer {
    FILE *out;
    char *text;
    size_t bytes;
};

/* The stream to print to; NULL when out of memory. */
FILE *merak_text_open(struct merak_text_writer *writer);
/* The text, to be freed by the caller; MERAK_ERR_NOMEM if opening or printing
 * ran out of memory.  Call it once, also after a failure to open. */
enum merak_status merak_text_close(struct merak_text_writer *writer,
                                   char **text_p,
                                   struct merak_error *err) MERAK_CHECKED;

#endif
