/* SPDX-License-Identifier: Apache-2.0 */
/* base/text_writer.h - text of any length, by fprintf() */
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

/* What to print to; NULL if there is no memory. */
FILE *merak_text_open(struct merak_text_writer *writer);
/* The text, the caller's to free; MERAK_ERR_NOMEM if opening or printing had
 * too little memory.  Once, also after a failure to open. */
enum merak_status merak_text_close(struct merak_text_writer *writer,
                                   char **text_p,
                                   struct merak_error *err) MERAK_CHECKED;

#endif
