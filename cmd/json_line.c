/* SPDX-License-Identifier: Apache-2.0 */
/* json_line.c - a line of JSON on standard output */
#include "config.h"

#include "cmd/json_line.h"

#include "base/error.h"
#include "cmd/finish.h"
#include "text/tokenizer/unicode.h"

#include <stdio.h>
#include <stdlib.h>

json_t *merak_json_text(const char *text, size_t n)
{
    json_t *string = NULL;
    char *valid = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&valid, &bytes);

    if (out == NULL)
        return NULL;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        size_t length =
            merak_utf8_decode((const unsigned char *)text + i, n - i, &cp);

        if (length > 0)
            fwrite(text + i, 1, length, out);
        else
            fputs("\xef\xbf\xbd", out);
        i += length > 0 ? length : 1;
    }
    if (fclose(out) == 0)
        string = json_stringn(valid, bytes);
    free(valid);
    return string;
}

int merak_cmd_flush_json(const char *name, json_t *root, int code)
{
    char *text = root == NULL ? NULL : json_dumps(root, JSON_COMPACT);
    struct merak_error err;
    bool printed = text != NULL;

    if (printed)
        (void)puts(text); /* merak_cmd_flush() checks for errors */
    free(text);
    json_decref(root);
    if (printed)
        return merak_cmd_flush(name, code);
    (void)merak_fail_nomem(&err, 0);
    return merak_cmd_failed(name, MERAK_ERR_NOMEM, &err);
}
