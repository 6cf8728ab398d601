/* SPDX-License-Identifier: Apache-2.0 */
/* findings.c - a list of findings */
#include "config.h"

#include "runtime/doctor/doctor.h"

#include "base/printable.h"

#include <stdarg.h>
#include <stdio.h>

struct merak_finding *merak_find(struct merak_findings *found,
                                 enum merak_finding_level level,
                                 const char *area, const char *fmt, ...)
{
    struct merak_finding *f;
    va_list ap;

    if (found->n < MERAK_MAX_FINDINGS)
        found->n++;
    f = &found->one[found->n - 1];
    f->level = level;
    f->code = 0;
    f->fix[0] = '\0';
    snprintf(f->area, sizeof(f->area), "%s", area);
    va_start(ap, fmt);
    vsnprintf(f->text, sizeof(f->text), fmt, ap);
    va_end(ap);
    merak_keep_to_a_line(f->text);
    return f;
}

void merak_find_fix(struct merak_finding *finding, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(finding->fix, sizeof(finding->fix), fmt, ap);
    va_end(ap);
    merak_keep_to_a_line(finding->fix);
}

void merak_find_code(struct merak_finding *finding, int code)
{
    finding->level = MERAK_FINDING_ERROR;
    finding->code = code;
}
