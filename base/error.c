/* SPDX-License-Identifier: Apache-2.0 */
/* error.c - filling in a struct merak_error */
#include "config.h"

#include "base/error.h"

#include "base/printable.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *merak_status_name(enum merak_status status)
{
    switch (status) {
    case MERAK_OK:
        return "ok";
    case MERAK_IN_PROGRESS:
        return "in progress";
    case MERAK_ERR_PARAM:
        return "bad argument";
    case MERAK_ERR_UNSUPPORTED:
        return "unsupported";
    case MERAK_ERR_CONFIG:
        return "bad configuration";
    case MERAK_ERR_NOT_FOUND:
        return "not found";
    case MERAK_ERR_NOMEM:
        return "out of memory";
    case MERAK_ERR_IO:
        return "input/output error";
    case MERAK_ERR_NOSPACE:
        return "no space left";
    case MERAK_ERR_SYSTEM:
        return "system error";
    case MERAK_ERR_PEER:
        return "a peer failed";
    case MERAK_ERR_TIMEOUT:
        return "timed out";
    case MERAK_ERR_FABRIC:
        return "fabric error";
    case MERAK_ERR_LOST:
        return "a peer is gone";
    case MERAK_ERR_CORRUPT:
        return "damaged data";
    case MERAK_ERR_MISMATCH:
        return "data of another model or run";
    case MERAK_ERR_FORMAT:
        return "unknown format";
    }
    return "unknown status";
}

enum merak_status merak_fail(struct merak_error *err, enum merak_status status,
                             const char *fmt, ...)
{
    int saved = errno;
    va_list ap;

    if (err != NULL) {
        err->status = status;
        va_start(ap, fmt);
        vsnprintf(err->text, sizeof(err->text), fmt, ap);
        va_end(ap);
        merak_keep_to_a_line(err->text);
        err->fix = 0;
    }
    errno = saved;
    return status;
}

enum merak_status merak_error_fix(struct merak_error *err,
                                  enum merak_status status, const char *fmt,
                                  ...)
{
    int saved = errno;
    va_list ap;

    if (err != NULL) {
        err->fix = (int)strlen(err->text);
        va_start(ap, fmt);
        vsnprintf(err->text + err->fix, sizeof(err->text) - (size_t)err->fix,
                  fmt, ap);
        va_end(ap);
        merak_keep_to_a_line(err->text + err->fix);
    }
    errno = saved;
    return status;
}

void merak_error_drop_fix(struct merak_error *err)
{
    if (err->fix > 0)
        err->text[err->fix] = '\0';
    err->fix = 0;
}

void merak_error_wrap(struct merak_error *err, const char *fmt, ...)
{
    int saved = errno;
    char old[sizeof(err->text)];
    va_list ap;
    int n;

    if (err == NULL)
        return;
    memcpy(old, err->text, sizeof(old));
    va_start(ap, fmt);
    n = vsnprintf(err->text, sizeof(err->text), fmt, ap);
    va_end(ap);
    /* Truncation is intended; the precision makes that clear to compilers. */
    if (n >= 0 && (size_t)n < sizeof(err->text))
        snprintf(err->text + n, sizeof(err->text) - (size_t)n, ": %.*s",
                 (int)(sizeof(err->text) - (size_t)n - 1), old);
    merak_keep_to_a_line(err->text);
    err->fix = err->fix > 0 ? err->fix + n + 2 : 0;
    if (err->fix >= (int)sizeof(err->text))
        err->fix = 0; /* cut off */
    errno = saved;
}

enum merak_status merak_fail_nomem(struct merak_error *err, size_t bytes)
{
    return merak_fail(err, MERAK_ERR_NOMEM, "cannot allocate %zu bytes", bytes);
}

enum merak_status merak_error_as_config(enum merak_status rc,
                                        struct merak_error *err)
{
    if (rc == MERAK_OK || rc == MERAK_ERR_NOMEM)
        return rc;
    if (err != NULL)
        err->status = MERAK_ERR_CONFIG;
    return MERAK_ERR_CONFIG;
}
