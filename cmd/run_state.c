/* SPDX-License-Identifier: Apache-2.0 */
/* run_state.c - whether a run is running, its progress, and its files */
#include "config.h"

#include "cmd/run_state.h"

#include "base/ask.h"
#include "base/error.h"
#include "io/ckpt/ckpt.h"
#include "io/ckpt/ckpt_impl.h"

#include <dirent.h>
#include <glob.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The number of steps for the median step time; and how much longer than that,
 * and how long at least, a silence must be to count. */
enum { MEDIAN_STEPS = 50, SILENT_STEPS = 10 };
#define SILENT_S 30.0

const char *const merak_run_phases[] = {"starting", "running", "silent",
                                        "stopped", "finished"};

static void find_checkpoint(const char *dir, struct merak_run_state *state)
{
    struct merak_ckpt_entry *entries = NULL;
    char path[PATH_MAX], file[PATH_MAX];
    struct merak_error err;
    struct stat st;
    int n = 0;

    if (merak_ckpt_list(dir, &entries, &n, &err) != MERAK_OK)
        return;
    if (merak_ckpt_branch_mark(dir, entries, n, &err) != MERAK_OK)
        n = 0;
    for (int i = 0; i < n && state->checkpoint[0] == '\0'; i++) {
        if (entries[i].kind == MERAK_CKPT_TMP || entries[i].elsewhere)
            continue;
        merak_path(path, dir, entries[i].name);
        if (stat(merak_path(file, path, MERAK_CKPT_COMMITTED), &st) != 0)
            continue;
        snprintf(state->checkpoint, sizeof(state->checkpoint), "%.63s",
                 entries[i].name);
        state->checkpoint_s = state->now - (double)st.st_mtim.tv_sec -
                              (double)st.st_mtim.tv_nsec * 1e-9;
    }
    free(entries);
}

static int is_hang(const struct dirent *entry)
{
    return strncmp(entry->d_name, "hang-", 5) == 0;
}

/* Hang reports are next to the metrics. */
static void find_hangs(const struct merak_run_log *log,
                       struct merak_run_state *state)
{
    struct dirent **entry = NULL;
    char *slash;
    int n;

    snprintf(state->hangs_in, sizeof(state->hangs_in), "%s", log->metrics);
    slash = strrchr(state->hangs_in, '/');
    if (slash != NULL)
        *slash = '\0';
    else
        strcpy(state->hangs_in, ".");
    n = scandir(state->hangs_in, &entry, is_hang, alphasort);

    state->hang = n > 0 ? calloc((size_t)n, sizeof(*state->hang)) : NULL;
    for (int i = 0; i < n; i++) {
        if (state->hang != NULL)
            state->hang[state->n_hangs++] = strdup(entry[i]->d_name);
        free(entry[i]);
    }
    free(entry);
}

/* A metrics file has no owner beside it: who writes it may be at its first
 * step. */
static enum merak_run_phase phase_of(const char *dir,
                                     const struct merak_run_state *s)
{
    double patience = fmax(SILENT_S, SILENT_STEPS * s->step_s);
    char owner[PATH_MAX];
    struct stat st;

    if (s->steps > 0 && s->step >= s->steps)
        return MERAK_RUN_DONE;
    if (s->step == 0 && stat(dir, &st) == 0 && S_ISREG(st.st_mode))
        return MERAK_RUN_STARTING;
    snprintf(owner, sizeof(owner), "%s/OWNER", dir);
    if (access(owner, F_OK) != 0)
        return MERAK_RUN_STOPPED;
    if (s->silent_s > patience)
        return MERAK_RUN_SILENT;
    return s->step == 0 ? MERAK_RUN_STARTING : MERAK_RUN_GOING;
}

void merak_run_state_find(const char *dir, const struct merak_run_log *log,
                          double now, struct merak_run_state *state)
{
    const struct merak_run_step *last =
        log->n > 0 ? &log->step[log->n - 1] : NULL;
    double since = merak_run_log_number(log, "time", now), steps;

    memset(state, 0, sizeof(*state));
    state->now = now;
    state->step = last != NULL ? last->step : 0;
    steps = merak_run_log_number(log, "steps", 0);
    state->steps = steps >= 0 && steps < 0x1p63 ? (uint64_t)steps : 0;
    state->step_s = merak_run_log_step_s(log, MEDIAN_STEPS);
    if (last != NULL && last->time > since)
        since = last->time;
    state->silent_s = now > since ? now - since : 0;
    if (state->step_s > 0)
        state->flops_per_s =
            merak_run_log_number(log, "flops", 0) / state->step_s;
    state->eta_s = state->steps > 0 && state->step_s > 0
                       ? state->step_s * (double)(state->steps - state->step)
                       : -1;
    find_checkpoint(dir, state);
    find_hangs(log, state);
    state->idle = log->ranks != NULL
                      ? json_number_value(json_object_get(log->ranks, "idle"))
                      : -1;
    state->phase = phase_of(dir, state);
}

static const json_t *last_ranks(const struct merak_run_log *log,
                                const json_t **hosts_p)
{
    size_t n = json_array_size(log->starts);
    const json_t *start = n > 0 ? json_array_get(log->starts, n - 1) : NULL;

    *hosts_p = json_object_get(start, "hosts");
    return json_object_get(start, "ranks");
}

size_t merak_run_ranks(const struct merak_run_log *log)
{
    const json_t *hosts;

    return json_array_size(last_ranks(log, &hosts));
}

static int int_at(const json_t *list, size_t i)
{
    const json_t *value = json_array_get(list, i);

    json_int_t n = json_is_integer(value) ? json_integer_value(value) : -1;

    return n >= 0 && n <= INT_MAX ? (int)n : -1;
}

/* A degree that a run of n ranks can have; 0: it has none. */
static int degree(const struct merak_run_log *log, const char *key, size_t n)
{
    double value = merak_run_log_number(log, key, 0);

    return value >= 1 && value <= (double)n ? (int)value : 0;
}

static double real_at(const json_t *list, size_t i)
{
    const json_t *value = json_array_get(list, i);

    return json_is_number(value) ? json_number_value(value) : -1;
}

struct merak_run_rank merak_run_rank(const struct merak_run_log *log, size_t r)
{
    const json_t *hosts;
    const json_t *place = json_array_get(last_ranks(log, &hosts), r);
    const json_t *did = json_array_get(json_object_get(log->ranks, "ranks"), r);
    const char *host =
        json_string_value(json_array_get(hosts, (size_t)int_at(place, 0)));

    return (struct merak_run_rank){
        .host = host != NULL ? host : "?",
        .stage = int_at(place, 1),
        .tp = int_at(place, 2),
        .dp = int_at(place, 3),
        .compute_s = real_at(did, 0),
        .memory_bytes = real_at(did, 1),
        .percent = real_at(did, 2),
        .slow = int_at(did, 3) == 1,
    };
}

bool merak_run_is_unlike(const struct merak_run_log *log)
{
    return merak_run_log_text(log, "stages") != NULL;
}

/* Append "4-7" to the ranks of a stage, if they fit. */
static void add_ranks(struct merak_run_stage *st, size_t first, size_t last)
{
    size_t n = strlen(st->which), room = sizeof(st->which) - n;
    const char *comma = n > 0 ? "," : "";

    if (room < 32) { /* two numbers, and the dots */
        if (n < 2 || strcmp(st->which + n - 2, "..") != 0)
            snprintf(st->which + n, room, "..");
    } else if (first == last) {
        snprintf(st->which + n, room, "%s%zu", comma, first);
    } else {
        snprintf(st->which + n, room, "%s%zu-%zu", comma, first, last);
    }
}

static void add_rank(struct merak_run_stage *st,
                     const struct merak_run_rank *rank)
{
    st->compute_s =
        rank->compute_s < 0 || st->compute_s < 0
            ? -1
            : (st->compute_s * st->ranks + rank->compute_s) / (st->ranks + 1);
    st->memory_bytes = fmax(st->memory_bytes, rank->memory_bytes);
    st->dp = rank->dp >= st->dp && rank->dp < INT_MAX ? rank->dp + 1 : st->dp;
    st->tp = rank->tp >= st->tp && rank->tp < INT_MAX ? rank->tp + 1 : st->tp;
    st->ranks++;
}

struct merak_run_stage *merak_run_stages(const struct merak_run_log *log,
                                         int *n_p)
{
    size_t n = merak_run_ranks(log), first = 0;
    int stages = degree(log, "pp", n), stage = -1;
    struct merak_run_stage *list =
        stages > 0 ? calloc((size_t)stages, sizeof(*list)) : NULL;

    *n_p = list != NULL ? stages : 0;
    for (int s = 0; s < *n_p; s++)
        list[s].memory_bytes = -1;
    for (size_t r = 0; list != NULL && r < n; r++) {
        struct merak_run_rank rank = merak_run_rank(log, r);

        if (rank.stage != stage && stage >= 0)
            add_ranks(&list[stage], first, r - 1);
        if (rank.stage != stage)
            first = r;
        stage = rank.stage < stages ? rank.stage : -1;
        if (stage >= 0)
            add_rank(&list[stage], &rank);
    }
    if (stage >= 0)
        add_ranks(&list[stage], first, n - 1);
    return list;
}

static int64_t degree_in(const json_t *start, const char *key)
{
    const json_t *n = json_object_get(start, key);

    return json_is_integer(n) ? (int64_t)json_integer_value(n) : 1;
}

const char *merak_run_degrees(const json_t *start,
                              char text[MERAK_DEGREES_TEXT])
{
    const char *stages = json_string_value(json_object_get(start, "stages"));
    const struct merak_degrees degrees = {.tp = degree_in(start, "tp"),
                                          .cp = degree_in(start, "cp"),
                                          .ep = degree_in(start, "ep"),
                                          .pp = degree_in(start, "pp"),
                                          .dp = degree_in(start, "dp")};

    if (stages == NULL || stages[strspn(stages, "0123456789x-.")] != '\0')
        return merak_degrees_text(&degrees, " x ", text);
    snprintf(text, MERAK_DEGREES_TEXT, "stages %s", stages);
    return text;
}

/* Of all axes: tp x cp x ep, or the most of any stage; 0: the record is
 * wrong. */
static int tensor_ranks(const struct merak_run_log *log, size_t n)
{
    double ranks = degree(log, "tp", n);
    int stages, most = 0;
    struct merak_run_stage *stage;

    if (merak_run_is_unlike(log)) {
        stage = merak_run_stages(log, &stages);
        for (int s = 0; s < stages; s++)
            most = stage[s].tp > most ? stage[s].tp : most;
        free(stage);
        return most;
    }

    if (merak_run_log_number(log, "cp", 1) != 1)
        ranks *= degree(log, "cp", n);
    if (merak_run_log_number(log, "ep", 1) != 1)
        ranks *= degree(log, "ep", n);
    return ranks <= (double)n ? (int)ranks : 0;
}

void merak_run_bound(const struct merak_run_log *log,
                     char text[MERAK_BOUND_BYTES])
{
    size_t n = merak_run_ranks(log);
    struct merak_bound_rank *rank = calloc(n + 1, sizeof(*rank));
    struct merak_bound_step step = {
        .rank = rank,
        .step_s = json_number_value(json_object_get(log->ranks, "step_s")),
        .stages = degree(log, "pp", n),
        .tp = tensor_ranks(log, n),
        .unlike = merak_run_is_unlike(log),
        .microbatches = degree(log, "microbatches", INT_MAX)};

    text[0] = '\0';
    for (size_t r = 0; rank != NULL && r < n; r++) {
        struct merak_run_rank is = merak_run_rank(log, r);

        if (is.compute_s < 0)
            n = 0; /* not all are known */
        rank[r] = (struct merak_bound_rank){
            .rank = (int)r, .stage = is.stage, .compute_s = is.compute_s};
    }
    step.n = rank == NULL ? 0 : (int)n;
    merak_bound_text(&step, text);
    free(rank);
}

void merak_run_loads(const struct merak_run_step *step,
                     char text[MERAK_RUN_LOADS])
{
    int n = 0;

    text[0] = '\0';
    if (!isfinite(step->load_max))
        return;
    if (step->load_expert >= 0 && step->load_layer >= 0)
        n = snprintf(text, MERAK_RUN_LOADS, "%.9g of layer %.9g has ",
                     step->load_expert, step->load_layer);
    n += snprintf(text + n, MERAK_RUN_LOADS - (size_t)n, "%s%.4g x the mean",
                  n > 0 ? "" : "the fullest has ", step->load_max);
    if (step->overflow_rows > 0)
        snprintf(text + n, MERAK_RUN_LOADS - (size_t)n,
                 ", %.9g rows computed again", step->overflow_rows);
}

void merak_run_state_fini(struct merak_run_state *state)
{
    for (int i = 0; i < state->n_hangs; i++)
        free(state->hang[i]);
    free(state->hang);
    state->hang = NULL;
    state->n_hangs = 0;
}

const char *merak_run_time_text(double seconds, char text[32])
{
    long s = seconds > 0 && seconds < 1e12 ? (long)seconds : 0;

    if (s >= 86400)
        snprintf(text, 32, "%ldd %02ld:%02ld", s / 86400, s / 3600 % 24,
                 s / 60 % 60);
    else
        snprintf(text, 32, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    return text;
}

/* --- a job's run ---------------------------------------------------------- */

static bool is_of_job(const char *path, const char *job)
{
    struct merak_run_log *log = NULL;
    struct merak_error err;
    char dir[PATH_MAX], *slash;
    const char *text;
    bool same = false;

    snprintf(dir, sizeof(dir), "%s", path);
    slash = strrchr(dir, '/');
    if (slash == NULL)
        return false;
    *slash = '\0';
    if (merak_run_log_load(dir, 1, &log, &err) == MERAK_OK) {
        text = merak_run_log_text(log, "job");
        same = text != NULL && strcmp(text, job) == 0;
    }
    merak_run_log_destroy(log);
    return same;
}

/* In the directory that the job was started in, or up to three levels
 * below. */
static bool find_below(const char *top, const char *job, char *dir, size_t size)
{
    static const char *const below[] = {"run.jsonl", "*/run.jsonl",
                                        "*/*/run.jsonl", "*/*/*/run.jsonl"};
    char pattern[PATH_MAX];
    bool found = false;

    for (size_t i = 0; i < sizeof(below) / sizeof(below[0]) && !found; i++) {
        glob_t files;

        snprintf(pattern, sizeof(pattern), "%s/%s", top, below[i]);
        if (glob(pattern, 0, NULL, &files) != 0)
            continue;
        for (size_t f = 0; f < files.gl_pathc && !found; f++) {
            found = is_of_job(files.gl_pathv[f], job);
            if (found)
                snprintf(
                    dir, size, "%.*s",
                    (int)(strrchr(files.gl_pathv[f], '/') - files.gl_pathv[f]),
                    files.gl_pathv[f]);
        }
        globfree(&files);
    }
    return found;
}

bool merak_run_find(const char *word, char *dir, size_t size,
                    struct merak_error *err)
{
    char *const argv[] = {"scontrol", "show", "job", (char *)(uintptr_t)word,
                          NULL};
    char text[16384], *at;
    struct stat st;

    if (stat(word, &st) == 0 || strspn(word, "0123456789") != strlen(word)) {
        /* a job script's run has its checkpoints one level below */
        snprintf(dir, size, "%.4000s/ckpt/run.jsonl", word);
        if (stat(dir, &st) == 0)
            snprintf(dir, size, "%.4000s/ckpt", word);
        else
            snprintf(dir, size, "%s", word);
        return true;
    }
    at = merak_ask(argv, 10, text, sizeof(text)) == 0 ? strstr(text, "WorkDir=")
                                                      : NULL;
    if (at == NULL) {
        merak_fail(err, MERAK_ERR_NOT_FOUND,
                   "there is no directory %.64s, and Slurm knows no such job "
                   "(any more); give the run's --ckpt directory",
                   word);
        return false;
    }
    at += strlen("WorkDir=");
    at[strcspn(at, "\n")] = '\0';
    if (find_below(at, word, dir, size))
        return true;
    merak_fail(err, MERAK_ERR_NOT_FOUND,
               "job %.32s: no run.jsonl of it in %.120s nor three directories "
               "below; give the run's --ckpt directory",
               word, at);
    return false;
}
