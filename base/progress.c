/* SPDX-License-Identifier: Apache-2.0 */
/* progress.c - a progress line on a terminal during long operations */
#include "config.h"

#include "base/progress.h"

#include "base/clock.h"
#include "base/size.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define FIRST_NS INT64_C(500000000)
#define EVERY_NS INT64_C(200000000)

static bool is_watched(FILE *out)
{
    const char *term = getenv("TERM");

    return out != NULL && isatty(fileno(out)) &&
           (term == NULL || strcmp(term, "dumb") != 0);
}

void merak_progress_init(struct merak_progress *p, FILE *out, const char *what,
                         const char *unit, double total)
{
    *p = (struct merak_progress){.out = is_watched(out) ? out : NULL,
                                 .what = what,
                                 .unit = unit,
                                 .total = total,
                                 .start_ns = merak_clock_ns()};
}

/* "1.2 GiB", "530 plans". */
static void amount_text(const struct merak_progress *p, double n, char text[40])
{
    char bytes[MERAK_BYTES_TEXT];

    if (strcmp(p->unit, "B") == 0) {
        merak_bytes_text(n, bytes);
        snprintf(text, 40, "%s", bytes);
    } else {
        snprintf(text, 40,
                 n < 10 && n != (double)(int)n ? "%.1f %s" : "%.0f %s", n,
                 p->unit);
    }
}

const char *merak_progress_text(const struct merak_progress *p, double seconds,
                                char text[MERAK_PROGRESS_TEXT])
{
    size_t size = MERAK_PROGRESS_TEXT, n;
    char done[40], of[40] = "", rate[40];
    double left;

    amount_text(p, p->done, done);
    amount_text(p, seconds > 0 ? p->done / seconds : 0, rate);
    if (p->total > 0)
        amount_text(p, p->total, of);
    n = (size_t)snprintf(text, size, "%s: %s%s%s, %s/s", p->what, done,
                         of[0] != '\0' ? " of " : "", of, rate);
    if (p->total > 0 && p->done > 0 && n < size) {
        left = (p->total - p->done) * seconds / p->done;
        left = left > 0 ? left : 0;
        n += (size_t)snprintf(text + n, size - n, ", %d:%02d left",
                              (int)left / 60, (int)left % 60);
    }
    if (p->note[0] != '\0' && n < size)
        snprintf(text + n, size - n, ", %s", p->note);
    return text;
}

/* Truncate at the terminal's width: a line that wraps cannot be erased. */
static void show(struct merak_progress *p, int64_t now)
{
    char text[MERAK_PROGRESS_TEXT];
    struct winsize window;
    int width = 79;

    if (ioctl(fileno(p->out), TIOCGWINSZ, &window) == 0 && window.ws_col > 1)
        width = window.ws_col - 1;
    merak_progress_text(p, (double)(now - p->start_ns) * 1e-9, text);
    fprintf(p->out, "\r%.*s\033[K", width, text);
    fflush(p->out);
    p->shown = true;
    p->shown_ns = now;
}

void merak_progress_add(struct merak_progress *p, double more)
{
    int64_t now;

    if (p == NULL)
        return;
    p->done += more;
    if (p->out == NULL)
        return;
    now = merak_clock_ns();
    if (now - p->start_ns > FIRST_NS && now - p->shown_ns > EVERY_NS)
        show(p, now);
}

void merak_progress_note(struct merak_progress *p, const char *fmt, ...)
{
    va_list ap;

    if (p == NULL || p->out == NULL)
        return;
    va_start(ap, fmt);
    vsnprintf(p->note, sizeof(p->note), fmt, ap);
    va_end(ap);
}

void merak_progress_phase(struct merak_progress *p, const char *what)
{
    int64_t now;

    merak_progress_note(p, "%s", what);
    if (p == NULL || p->out == NULL)
        return;
    now = merak_clock_ns();
    if (now - p->start_ns > FIRST_NS)
        show(p, now);
}

void merak_progress_clear(struct merak_progress *p)
{
    if (p == NULL || !p->shown)
        return;
    fputs("\r\033[K", p->out);
    fflush(p->out);
    p->shown = false;
}
