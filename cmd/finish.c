/* SPDX-License-Identifier: Apache-2.0 */
/* finish.c - how a subcommand ends: its exit code, its output, its signals */
#include "config.h"

#include "cmd/finish.h"

#include "base/error.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

int merak_cmd_failed(const char *name, enum merak_status rc,
                     const struct merak_error *err)
{
    fprintf(stderr, "merak %s: %s\n", name, err->text);
    switch (rc) {
    case MERAK_ERR_PARAM:
    case MERAK_ERR_CONFIG:
    case MERAK_ERR_UNSUPPORTED:
        return MERAK_EXIT_CONFIG;
    case MERAK_ERR_NOMEM:
    case MERAK_ERR_NOSPACE:
    case MERAK_ERR_SYSTEM:
        return MERAK_EXIT_RESOURCE;
    default:
        return MERAK_EXIT_DATA;
    }
}

int merak_cmd_misused(const char *name, const char *fmt, ...)
{
    va_list ap;

    fprintf(stderr, "merak %s ", name);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "; see `merak %s --help`\n", name);
    return MERAK_EXIT_CONFIG;
}

int merak_cmd_flush(const char *name, int code)
{
    bool fails = fflush(stdout) != 0;

    if (!fails && !ferror(stdout))
        return code;
    fprintf(stderr, "merak %s: cannot write the output%s%s\n", name,
            fails ? ": " : "", fails ? strerror(errno) : "");
    return MERAK_EXIT_RESOURCE;
}

/* A signal handler can only access globals. */
static volatile sig_atomic_t stop_signal;

static void note_stop(int number)
{
    stop_signal = number;
}

void merak_cmd_catch_stops(void)
{
    static const int stops[] = {SIGHUP, SIGINT, SIGTERM};
    struct sigaction old, action = {.sa_handler = note_stop};

    for (size_t i = 0; i < sizeof(stops) / sizeof(*stops); i++) {
        /* nohup ignores SIGHUP, which is kept */
        if (sigaction(stops[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(stops[i], &action, NULL);
    }
}

enum merak_status merak_cmd_check_stop(struct merak_error *err)
{
    return stop_signal == 0
               ? MERAK_OK
               : merak_fail(err, MERAK_ERR_SYSTEM, "stopped by signal %d",
                            (int)stop_signal);
}

void merak_cmd_die_of_stop(void)
{
    if (stop_signal == 0)
        return;
    signal(stop_signal, SIG_DFL);
    raise(stop_signal);
}
