/* SPDX-License-Identifier: Apache-2.0 */
/* run_log.c - reading what a run wrote about itself */
#include "config.h"

#include "io/run_log.h"

#include "base/error.h"
#include "base/open.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

FILE *merak_run_log_open(struct merak_run_log *log, const char *path)
{
    FILE *in = NULL;
    const char *why = merak_fopen_own(path, log->owner, &in);
    size_t n = strlen(log->refused);

    if (why == NULL)
        return in;
    if (errno != ENOENT)
        snprintf(log->refused + n, sizeof(log->refused) - n,
                 "%s%.100s is not read: it is %s", n > 0 ? "; " : "", path,
                 why);
    return NULL;
}

/* Call take() for each line that is an object, from `last` bytes before the
 * end on (0: from the start); false if the file cannot be read. */
static bool each_line(struct merak_run_log *log, const char *path, size_t last,
                      enum merak_status (*take)(struct merak_run_log *log,
                                                json_t *line),
                      enum merak_status *rc_p)
{
    FILE *in = merak_run_log_open(log, path);
    char *line = NULL;
    size_t size = 0;
    struct stat st;
    long bytes;

    if (in == NULL)
        return false;
    if (log->owner == MERAK_ANY_OWNER && fstat(fileno(in), &st) == 0)
        log->owner = st.st_uid;
    if (last > 0 && fseek(in, 0, SEEK_END) == 0) {
        bytes = ftell(in);
        rewind(in);
        /* skip the first line, which is nearly always cut */
        if (bytes > (long)last && fseek(in, bytes - (long)last, SEEK_SET) == 0)
            (void)!getline(&line, &size, in);
    }
    while (*rc_p == MERAK_OK && getline(&line, &size, in) >= 0) {
        json_t *object = json_loads(line, 0, NULL);

        if (json_is_object(object))
            *rc_p = take(log, object);
        json_decref(object);
    }
    free(line);
    fclose(in);
    return true;
}

static double number(const json_t *line, const char *key, double otherwise)
{
    const json_t *value = json_object_get(line, key);

    return json_is_number(value) ? json_number_value(value) : otherwise;
}

static enum merak_status take_start(struct merak_run_log *log, json_t *line)
{
    double redone = number(line, "redone", 0);

    json_array_append(log->starts, line);
    if (redone > 0 && redone < 0x1p53)
        log->n_redone += (size_t)redone;
    return MERAK_OK;
}

/* 0: none; no step has that number. */
static uint64_t step_number(const json_t *line)
{
    double step = number(line, "step", 0);

    return step >= 1 && step < 0x1p63 ? (uint64_t)step : 0;
}

/* A run that resumed repeats steps: the last record counts.  Since 0.2 it takes
 * the others out of its own file. */
static enum merak_status take_step(struct merak_run_log *log, json_t *line)
{
    struct merak_run_step *grown,
        s = {
            .step = step_number(line),
            .loss = number(line, "loss", NAN),
            .valid_loss = number(line, "valid_loss", NAN),
            .grad_norm = number(line, "grad_norm", NAN),
            .lr = number(line, "lr", NAN),
            .step_s = number(line, "step_s", 0),
            .samples_per_s = number(line, "samples_per_s", NAN),
            .tokens_per_s = number(line, "tokens_per_s", NAN),
            .time = number(line, "time", 0),
            .peak_bytes = number(line, "memory_peak_bytes", 0),
            .mfu = number(line, "mfu", 0),
            .load_max = number(line, "load_max", NAN),
            .load_layer = number(line, "load_layer", NAN),
            .load_expert = number(line, "load_expert", NAN),
            .overflow_rows = number(line, "overflow_rows", NAN),
        };

    if (s.step == 0)
        return MERAK_OK;
    while (log->n > 0 && log->step[log->n - 1].step >= s.step) {
        log->n--;
        log->n_redone++;
    }
    if ((log->n & (log->n - 1)) == 0) {
        grown = realloc(log->step, (2 * log->n + 1) * sizeof(*grown));
        if (grown == NULL)
            return MERAK_ERR_NOMEM;
        log->step = grown;
    }
    log->step[log->n++] = s;
    return MERAK_OK;
}

static enum merak_status take_incident(struct merak_run_log *log, json_t *line)
{
    json_array_append(log->incidents, line);
    return MERAK_OK;
}

/* Load ranks.json, unless it is from an earlier start than the last. */
static void load_ranks(struct merak_run_log *log, const char *dir)
{
    char path[PATH_MAX];
    json_t *object;
    FILE *in;

    snprintf(path, sizeof(path), "%s/ranks.json", dir);
    in = merak_run_log_open(log, path);
    if (in == NULL)
        return;
    object = json_loadf(in, 0, NULL);
    fclose(in);
    if (object != NULL &&
        number(object, "time", 0) >= merak_run_log_number(log, "time", 0))
        log->ranks = object;
    else
        json_decref(object);
}

static enum merak_status load_beside(struct merak_run_log *log, const char *dir,
                                     bool *starts_p)
{
    const char *metrics;
    char path[PATH_MAX];
    enum merak_status rc = MERAK_OK;

    snprintf(path, sizeof(path), "%s/run.jsonl", dir);
    *starts_p = each_line(log, path, 0, take_start, &rc);
    snprintf(path, sizeof(path), "%s/incidents.jsonl", dir);
    if (rc == MERAK_OK)
        (void)each_line(log, path, 0, take_incident, &rc);
    load_ranks(log, dir);
    metrics = merak_run_log_text(log, "metrics");
    if (metrics != NULL)
        snprintf(log->metrics, sizeof(log->metrics), "%s", metrics);
    else
        snprintf(log->metrics, sizeof(log->metrics), "%.4000s/metrics.jsonl",
                 dir);
    return rc;
}

static enum merak_status load(struct merak_run_log *log, const char *dir,
                              size_t last, struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;
    bool starts = false, steps;
    struct stat st;

    if (stat(dir, &st) != 0)
        return merak_fail(err, MERAK_ERR_NOT_FOUND, "there is no %.200s", dir);
    if (!S_ISDIR(st.st_mode)) {
        snprintf(log->metrics, sizeof(log->metrics), "%s", dir);
    } else {
        rc = load_beside(log, dir, &starts);
    }
    steps = each_line(log, log->metrics, last, take_step, &rc);
    if (rc != MERAK_OK)
        return merak_fail_nomem(err, log->n * sizeof(*log->step));
    if (!S_ISDIR(st.st_mode) && steps && log->n == 0 && st.st_size > 0)
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "%.150s has no step of a run: expected the file of "
                          "--metrics, or the --ckpt directory",
                          dir);
    if (!starts && !steps && log->refused[0] != '\0')
        return merak_fail(err, MERAK_ERR_FORMAT, "%s", log->refused);
    if (!starts && !steps)
        return merak_fail(err, MERAK_ERR_NOT_FOUND,
                          "%.150s has no run.jsonl and no metrics.jsonl: it is "
                          "not the --ckpt directory of a run",
                          dir);
    return MERAK_OK;
}

enum merak_status merak_run_log_load(const char *dir, size_t last,
                                     struct merak_run_log **log_p,
                                     struct merak_error *err)
{
    struct merak_run_log *log = calloc(1, sizeof(*log));
    enum merak_status rc;

    if (log == NULL)
        return merak_fail_nomem(err, sizeof(*log));
    log->owner = MERAK_ANY_OWNER;
    log->starts = json_array();
    log->incidents = json_array();
    rc = load(log, dir, last, err);
    if (rc == MERAK_OK)
        *log_p = log;
    else
        merak_run_log_destroy(log);
    return rc;
}

void merak_run_log_destroy(struct merak_run_log *log)
{
    if (log == NULL)
        return;
    json_decref(log->starts);
    json_decref(log->incidents);
    json_decref(log->ranks);
    free(log->step);
    free(log);
}

static const json_t *last_start(const struct merak_run_log *log)
{
    size_t n = json_array_size(log->starts);

    return n > 0 ? json_array_get(log->starts, n - 1) : NULL;
}

double merak_run_log_number(const struct merak_run_log *log, const char *key,
                            double otherwise)
{
    return number(last_start(log), key, otherwise);
}

const char *merak_run_log_text(const struct merak_run_log *log, const char *key)
{
    return json_string_value(json_object_get(last_start(log), key));
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double merak_run_log_step_s(const struct merak_run_log *log, size_t last)
{
    size_t n = last < log->n ? last : log->n;
    double *s = calloc(n + 1, sizeof(*s)), median;

    if (s == NULL || n == 0) {
        free(s);
        return 0;
    }
    for (size_t i = 0; i < n; i++)
        s[i] = log->step[log->n - n + i].step_s;
    qsort(s, n, sizeof(*s), compare);
    median = s[n / 2];
    free(s);
    return median;
}
