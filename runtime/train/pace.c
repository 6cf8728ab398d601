/* SPDX-License-Identifier: Apache-2.0 */
/* pace.c - how long each rank computes, and who is slower than its peers
 *
 * Every rank keeps the times of its kernels for the last --straggler-steps
 * steps.  Each time that many steps are done (and at steps 1, 2, 4, .. before,
 * for `merak top`) the quartiles of all ranks are appended to the sum of the
 * losses, as separate elements: this adds no collective and leaves the losses'
 * sum bitwise unchanged.
 */
#include "config.h"

#include "runtime/train/pace.h"
#include "runtime/train/losses.h"
#include "runtime/train/trainer.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/open.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* Values of a rank in the sum: three quartiles, resident bytes. */
enum { VALUES = 4 };
/* The shortest interval of writing RUN/ranks.json. */
#define WRITE_NS INT64_C(1000000000)

struct merak_pace {
    uint64_t steps; /* recorded */
    int window;
    double *compute_s; /* [window], a ring: of this rank */
    double *step_s;    /* [window], a ring: whole steps */
    double *sorted;    /* [window]: scratch */
    double *sum;       /* of a step: the loop's values, VALUES per rank */
    size_t used;       /* the caller's values in it; 0: it is not due */
    struct merak_pace_rank *rank; /* [ranks], rank 0's */
    double usual_step_s, idle;    /* as of used > 0 */
    int64_t written_ns;
};

/* --- judging -------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Median of sorted[n] without one of the values that equal `own`. */
static double median_without(const double *sorted, int n, double own)
{
    int skip = 0, low = (n - 2) / 2, high = (n - 1) / 2;

    while (skip < n - 1 && sorted[skip] < own)
        skip++;
    low += low >= skip;
    high += high >= skip;
    return (sorted[low] + sorted[high]) / 2;
}

/* Relative times by which ranks are compared. */
struct measure {
    double quarter, median, three_quarters;
};

static struct measure measure_of(const struct merak_pace_rank *r, bool alone)
{
    double unit = alone ? r->least_s : 1;

    return (struct measure){r->quarter_s / unit, r->median_s / unit,
                            r->three_quarters_s / unit};
}

/* Compare the ranks of a stage, or if stage is -1 all ranks, each relative to
 * its own least time.  median and late are scratch of n. */
static void find_in(struct merak_pace_rank *rank, int n, int stage,
                    double limit, double *median, double *late)
{
    bool alone = stage < 0;
    int k = 0;

    for (int i = 0; i < n; i++) {
        struct measure m = measure_of(&rank[i], alone);

        if (!alone && rank[i].stage != stage)
            continue;
        median[k] = m.median;
        late[k++] = m.three_quarters;
    }
    if (k < 2)
        return;
    qsort(median, (size_t)k, sizeof(*median), compare);
    qsort(late, (size_t)k, sizeof(*late), compare);
    for (int i = 0; i < n; i++) {
        struct measure m = measure_of(&rank[i], alone);
        double usual, bound = 1 + (rank[i].slow ? limit / 2 : limit) / 100;
        bool now;

        /* among all ranks, only those without peers are judged */
        if (alone ? rank[i].percent >= 0 : rank[i].stage != stage)
            continue;
        usual = median_without(median, k, m.median);
        rank[i].percent = usual > 0 ? 100 * (m.median / usual - 1) : 0;
        rank[i].percent = rank[i].percent > 0 ? rank[i].percent : 0;
        now = m.quarter > bound * usual &&
              m.quarter > median_without(late, k, m.three_quarters);
        rank[i].slow = now && rank[i].suspect;
        rank[i].suspect = now;
    }
}

void merak_pace_find(struct merak_pace_rank *rank, int n, double limit)
{
    double *scratch = calloc(2 * (size_t)n + 1, sizeof(*scratch));
    bool seen = true;
    int stages = 0;

    if (scratch == NULL)
        return;
    for (int i = 0; i < n; i++) {
        rank[i].percent = -1; /* not judged yet */
        seen = seen && rank[i].least_s > 0;
        stages = rank[i].stage >= stages ? rank[i].stage + 1 : stages;
    }
    for (int s = 0; s < stages; s++)
        find_in(rank, n, s, limit, scratch, scratch + n);
    if (seen)
        find_in(rank, n, -1, limit, scratch, scratch + n);
    for (int i = 0; i < n; i++) {
        rank[i].percent = rank[i].percent > 0 ? rank[i].percent : 0;
        if (rank[i].least_s <= 0 || rank[i].median_s < rank[i].least_s)
            rank[i].least_s = rank[i].median_s;
    }
    free(scratch);
}

/* --- measuring ------------------------------------------------------------ */

enum merak_status merak_pace_open(struct merak_trainer *t,
                                  struct merak_error *err)
{
    size_t window = (size_t)t->opt.straggler_steps;
    size_t ranks = (size_t)t->program->ranks;
    struct merak_pace *p;

    if (t->opt.straggler_percent <= 0 || ranks < 2)
        return MERAK_OK;
    p = t->reports.pace = calloc(1, sizeof(*p));
    if (p == NULL)
        return merak_fail_nomem(err, sizeof(*p));
    p->window = t->opt.straggler_steps;
    p->compute_s = calloc(3 * window, sizeof(*p->compute_s));
    p->sum = calloc(MERAK_STEP_SUM + VALUES * ranks, sizeof(*p->sum));
    p->rank = calloc(ranks, sizeof(*p->rank));
    if (p->compute_s == NULL || p->sum == NULL || p->rank == NULL)
        return merak_fail_nomem(err, ranks * sizeof(*p->rank));
    p->step_s = p->compute_s + window;
    p->sorted = p->step_s + window;
    for (size_t r = 0; r < ranks; r++) {
        int tp, dp;

        merak_plan_coords(&t->plan, (int)r, &tp, &dp, &p->rank[r].stage);
    }
    return MERAK_OK;
}

void merak_pace_close(struct merak_trainer *t)
{
    if (t->reports.pace == NULL)
        return;
    free(t->reports.pace->compute_s);
    free(t->reports.pace->sum);
    free(t->reports.pace->rank);
    free(t->reports.pace);
    t->reports.pace = NULL;
}

void merak_pace_note(struct merak_trainer *t)
{
    const struct merak_trace_record *record;
    int64_t ns = 0;

    if (t->reports.pace == NULL)
        return;
    record = merak_engine_records(t->engine);
    for (int i = 0; i < t->program->n_instrs; i++) {
        if (t->program->instr[i].kind == MERAK_INSTR_KERNEL)
            ns += record[i].end_ns - record[i].start_ns;
    }
    t->reports.pace->compute_s[t->reports.pace->steps %
                               (uint64_t)t->reports.pace->window] =
        (double)ns * 1e-9;
    t->reports.pace->steps++;
}

static bool is_due(const struct merak_pace *p)
{
    if (p->steps < (uint64_t)p->window)
        return (p->steps & (p->steps - 1)) == 0;
    return p->steps % (uint64_t)p->window == 0;
}

/* Values of a ring, ascending; how many. */
static size_t sort_ring(struct merak_pace *p, const double *ring)
{
    size_t n =
        p->steps < (uint64_t)p->window ? (size_t)p->steps : (size_t)p->window;

    memcpy(p->sorted, ring, n * sizeof(*ring));
    qsort(p->sorted, n, sizeof(*p->sorted), compare);
    return n;
}

size_t merak_pace_fill(struct merak_trainer *t, size_t used)
{
    struct merak_pace *p = t->reports.pace;
    size_t ranks = (size_t)t->program->ranks, n;
    double *own;

    if (p == NULL)
        return 0;
    p->used = 0;
    if (!is_due(p))
        return 0;
    p->used = used;
    memset(p->sum + used, 0, VALUES * ranks * sizeof(*p->sum));
    own = p->sum + used + VALUES * (size_t)t->program->rank;
    n = sort_ring(p, p->compute_s);
    for (size_t q = 1; q < 4; q++)
        own[q - 1] = p->sorted[(n - 1) * q / 4];
    own[3] = (double)merak_resident_kib("VmRSS:") * 1024;
    return VALUES * ranks;
}

double *merak_pace_sum(struct merak_trainer *t)
{
    return t->reports.pace != NULL ? t->reports.pace->sum : NULL;
}

/* --- reporting
 * -------------------------------------------------------------- */

/* The usual time of peers, from percent. */
static double usual_s(const struct merak_pace_rank *r)
{
    return r->median_s / (1 + r->percent / 100);
}

static bool has_peers(const struct merak_trainer *t)
{
    return merak_stage_ranks(&t->program->mesh) > 1;
}

static void tell_incident(struct merak_trainer *t, int r, const char *host)
{
    const struct merak_pace_rank *p = &t->reports.pace->rank[r];

    merak_run_files_incident(
        t, json_pack("{s: s, s: i, s: s, s: f, s: f, s: f, s: i}", "kind",
                     p->slow ? "straggler" : "straggler-over", "rank", r,
                     "host", host, "percent", p->percent, "compute_s",
                     p->median_s, "usual_s", usual_s(p), "over_steps",
                     t->reports.pace->window));
}

static void tell(struct merak_trainer *t, int r)
{
    const struct merak_pace_rank *p = &t->reports.pace->rank[r];
    const char *host =
        t->boot->hosts[t->boot->node_of[t->ranks.transport_rank[r]]];

    if (p->slow)
        merak_warn(
            "train",
            "rank %d on %s is slower than %s: it computed %.3g s a "
            "step, %.0f %% more than the usual %.3g, in the last %d "
            "steps",
            r, host, has_peers(t) ? "its peers" : "before, and others are not",
            p->median_s, p->percent, usual_s(p), t->reports.pace->window);
    else
        merak_info("train", "rank %d on %s is no longer slow", r, host);
    tell_incident(t, r, host);
}

static double median_step_s(struct merak_pace *p)
{
    size_t n = sort_ring(p, p->step_s);

    return p->sorted[n / 2];
}

/*
 * RUN/ranks.json, what `merak top` shows of ranks: format "merak-ranks",
 * version 1; time, step; steps (over which times are medians), step_s; idle
 * (the mean share of a step in which ranks do not compute); ranks [[seconds
 * per step that it computes, bytes resident, percent longer than its peers, 1:
 * a straggler], ..] by number.
 */
static json_t *state_json(const struct merak_trainer *t)
{
    const struct merak_pace *p = t->reports.pace;
    int n = t->program->ranks;
    json_t *list = json_array();

    for (int r = 0; r < n; r++)
        json_array_append_new(
            list, json_pack("[f, f, f, i]", p->rank[r].median_s,
                            p->rank[r].memory_bytes, p->rank[r].percent,
                            p->rank[r].slow ? 1 : 0));
    return json_pack("{s: s, s: i, s: I, s: I, s: I, s: f, s: f, s: o}",
                     "format", "merak-ranks", "version", 1, "time",
                     (json_int_t)time(NULL), "step", (json_int_t)t->step,
                     "steps",
                     (json_int_t)(p->steps < (uint64_t)p->window ? (int)p->steps
                                                                 : p->window),
                     "step_s", p->usual_step_s, "idle", p->idle, "ranks", list);
}

static void find_idle(struct merak_pace *p, int n)
{
    double busy = 0, step_s = median_step_s(p);

    for (int r = 0; r < n; r++)
        busy += p->rank[r].median_s / n;
    p->usual_step_s = step_s;
    p->idle = step_s > busy ? 1 - busy / step_s : 0;
}

double merak_pace_idle(const struct merak_trainer *t)
{
    return t->reports.pace != NULL && t->reports.pace->used > 0
               ? t->reports.pace->idle
               : NAN;
}

/* Failures are ignored: only `merak top` reads the file. */
static void write_state(struct merak_trainer *t)
{
    char path[PATH_MAX], part[PATH_MAX];
    FILE *out = NULL;
    json_t *object;
    bool fine;

    if (t->run_dir == NULL)
        return;
    snprintf(path, sizeof(path), "%s/ranks.json", t->run_dir);
    snprintf(part, sizeof(part), "%s/ranks.json.part", t->run_dir);
    object = state_json(t);
    fine = object != NULL && merak_fopen_new(part, &out) == NULL &&
           json_dumpf(object, out, JSON_COMPACT) == 0;
    json_decref(object);
    if (out != NULL && fclose(out) != 0)
        fine = false;
    if (!fine || rename(part, path) != 0)
        unlink(part);
}

/* Find ranks that became slow or are no longer; false: no change. */
static bool find_stragglers(struct merak_trainer *t)
{
    struct merak_pace_rank *rank = t->reports.pace->rank;
    int n = t->program->ranks;
    bool *was = calloc((size_t)n, sizeof(*was)), changed = false;

    if (was == NULL)
        return false;
    for (int r = 0; r < n; r++)
        was[r] = rank[r].slow;
    merak_pace_find(rank, n, t->opt.straggler_percent);
    for (int r = 0; r < n; r++) {
        if (rank[r].slow == was[r])
            continue;
        tell(t, r);
        changed = true;
    }
    free(was);
    return changed;
}

void merak_pace_judge(struct merak_trainer *t, double step_s)
{
    struct merak_pace *p = t->reports.pace;
    const double *value;
    int64_t now = merak_clock_ns();
    bool changed;

    if (p == NULL || t->program->rank != 0)
        return;
    p->step_s[(p->steps - 1) % (uint64_t)p->window] = step_s;
    if (p->used == 0)
        return;
    value = p->sum + p->used;
    for (int r = 0; r < t->program->ranks; r++, value += VALUES) {
        p->rank[r].quarter_s = value[0];
        p->rank[r].median_s = value[1];
        p->rank[r].three_quarters_s = value[2];
        p->rank[r].memory_bytes = value[3];
    }
    find_idle(p, t->program->ranks);
    changed = p->steps >= (uint64_t)p->window && find_stragglers(t);
    if (!changed && now - p->written_ns < WRITE_NS)
        return;
    p->written_ns = now;
    write_state(t);
}
