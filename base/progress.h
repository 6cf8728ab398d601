/* SPDX-License-Identifier: Apache-2.0 */
/* base/progress.h - a progress line on a terminal during long operations
 *
 * The code that does the work counts; the program that made the struct chose
 * where the line goes.  Nothing is printed if that is not a terminal, in the
 * first half second, or more than five times a second, and the line is erased
 * at the end.  A NULL struct prints nothing.
 */
#ifndef MERAK_BASE_PROGRESS_H
#define MERAK_BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { MERAK_PROGRESS_TEXT = 160 };

struct merak_progress {
    FILE *out;        /* NULL: print nothing */
    const char *what; /* "verify" */
    const char *unit; /* "plans"; "B": bytes */
    double total;     /* 0: not known */
    double done;
    int64_t start_ns, shown_ns;
    char note[48]; /* additional text, "best 1.2 s" */
    bool shown;
};

/* `what` and `unit` have to outlive it. */
void merak_progress_init(struct merak_progress *p, FILE *out, const char *what,
                         const char *unit, double total);
/* Add to what is done. */
void merak_progress_add(struct merak_progress *p, double more);
void merak_progress_note(struct merak_progress *p, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Show what is being done now, without a count, as a note; shown at once. */
void merak_progress_phase(struct merak_progress *p, const char *what);
/* Erase the line, for other output or at the end. */
void merak_progress_clear(struct merak_progress *p);
/* The line as it is after `seconds`; returns text. */
const char *merak_progress_text(const struct merak_progress *p, double seconds,
                                char text[MERAK_PROGRESS_TEXT]);

#endif
