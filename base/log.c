/* SPDX-License-Identifier: Apache-2.0 */
/* log.c - log lines through the program's sink */
#include "config.h"

#include "base/log.h"

#include "base/printable.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_MODULES 16

/* The log sink is the library's only mutable global: lines come from places
 * that have no context. */
static struct {
    merak_log_fn fn;
    void *arg;
    int rank;
    bool ready;
    enum merak_log_level level;
    int n_modules;
    struct {
        char name[16];
        enum merak_log_level level;
    } module[MAX_MODULES];
} sink = {.rank = -1, .level = MERAK_LOG_INFO};

static const char *const level_name[] = {"error", "warn", "info", "debug",
                                         "trace"};

static bool parse_level(const char *word, size_t n, enum merak_log_level *out)
{
    for (int i = 0; i <= MERAK_LOG_TRACE; i++) {
        if (strlen(level_name[i]) == n &&
            strncmp(word, level_name[i], n) == 0) {
            *out = (enum merak_log_level)i;
            return true;
        }
    }
    return false;
}

static void parse_word(const char *word, size_t n)
{
    const char *colon = memchr(word, ':', n);
    enum merak_log_level level;
    size_t name;

    if (colon == NULL) {
        if (parse_level(word, n, &level))
            sink.level = level;
        return;
    }
    name = (size_t)(colon - word);
    if (name == 0 || name >= sizeof(sink.module[0].name) ||
        sink.n_modules == MAX_MODULES ||
        !parse_level(colon + 1, n - name - 1, &level))
        return;
    memcpy(sink.module[sink.n_modules].name, word, name);
    sink.module[sink.n_modules].name[name] = '\0';
    sink.module[sink.n_modules].level = level;
    sink.n_modules++;
}

void merak_log_setup(const char *spec)
{
    size_t n;

    sink.ready = true;
    sink.n_modules = 0;
    sink.level = MERAK_LOG_INFO;
    if (spec == NULL)
        spec = getenv("MERAK_LOG");
    while (spec != NULL && *spec != '\0') {
        n = strcspn(spec, ",");
        parse_word(spec, n);
        spec += n;
        spec += *spec == ',';
    }
}

void merak_log_sink(merak_log_fn fn, void *arg)
{
    sink.fn = fn;
    sink.arg = arg;
}

void merak_log_rank(int rank)
{
    sink.rank = rank;
}

static bool is_enabled(enum merak_log_level level, const char *module)
{
    enum merak_log_level limit;

    if (!sink.ready)
        merak_log_setup(NULL);
    limit = sink.level;
    for (int i = 0; i < sink.n_modules; i++) {
        if (strcmp(sink.module[i].name, module) == 0)
            limit = sink.module[i].level;
    }
    if (level == MERAK_LOG_INFO && sink.rank > 0 && limit == MERAK_LOG_INFO)
        return false;
    return level <= limit;
}

static void print_line(enum merak_log_level level, const char *module,
                       const char *line)
{
    char rank[24] = "";

    if (sink.rank > 0)
        snprintf(rank, sizeof(rank), "[%d] ", sink.rank);
    if (level == MERAK_LOG_INFO)
        fprintf(stderr, "merak: %s%s\n", rank, line);
    else
        fprintf(stderr, "merak: %s%s: %s: %s\n", rank, level_name[level],
                module, line);
}

void merak_log(enum merak_log_level level, const char *module, const char *fmt,
               ...)
{
    char line[1024];
    va_list ap;

    if (!is_enabled(level, module))
        return;
    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    merak_keep_to_a_line(line);
    if (sink.fn != NULL)
        sink.fn(sink.arg, level, module, line);
    else
        print_line(level, module, line);
}
