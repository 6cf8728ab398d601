/* SPDX-License-Identifier: Apache-2.0 */
/* text_writer.c - print text of any length with fprintf() */
#include "config.h"

#include "base/text_writer.h"

#include "base/error.h"

#include <stdlib.h>

FILE *merak_text_open(struct merak_text_writer *writer)
{
    *writer = (struct merak_text_writer){.text = NULL};
    writer->out = open_memstream(&writer->text, &writer->bytes);
    return writer->out;
}

enum merak_status merak_text_close(struct merak_text_writer *writer,
                                   char **text_p, struct merak_error *err)
{
    if (writer->out != NULL && fclose(writer->out) == 0) {
        *text_p = writer->text;
        return MERAK_OK;
    }
    free(writer->text);
    return merak_fail_nomem(err, writer->bytes + 1);
}
