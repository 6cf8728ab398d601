/* SPDX-License-Identifier: Apache-2.0 */
/* table.c - the best plans for several machines, or saved plans, a row each
 *
 * A row that has no plan has the reason in its place.
 */
#include "config.h"

#include "runtime/plan/auto.h"
#include "runtime/plan/start_time.h"
#include "runtime/plan/plan_saved.h"

#include "base/error.h"
#include "base/size.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

struct row {
    const char *path, *device; /* of a saved plan; of the machine */
    int nodes, ranks;
    struct merak_plan plan; /* without its lists */
    double step_s, tokens_per_s, bubble;
    size_t memory_bytes;
    struct plan_start start;
    double run_s;               /* of all its steps */
    struct merak_error refusal; /* its status is OK: there is a plan */
};

struct table {
    const struct plan_options *opt;
    struct row *row; /* [n] */
    int n;
    const struct row *first; /* that has a plan; others are relative to it */
};

enum { MOST_ROWS = PLAN_MOST_NODES * PLAN_MOST_DEVICES };

_Static_assert((int)MOST_ROWS >= (int)PLAN_MOST_SAVED, "a row for each");

/* --- columns -------------------------------------------------------------- */

enum { CELL = 80 };

/* Tokens that hours are printed of. */
static double tokens_of(const struct plan_options *opt)
{
    return opt->run.tokens > 0 ? opt->run.tokens : 1e9;
}

static double hours_of(const struct table *t, const struct row *r)
{
    return tokens_of(t->opt) / r->tokens_per_s / 3600;
}

static void put_path(const struct table *t, const struct row *r, char *text)
{
    (void)t;
    snprintf(text, CELL, "%s", r->path);
}

static void put_device(const struct table *t, const struct row *r, char *text)
{
    (void)t;
    snprintf(text, CELL, "%s", r->device);
}

static void put_nodes(const struct table *t, const struct row *r, char *text)
{
    (void)t;
    snprintf(text, CELL, "%d", r->nodes);
}

static void put_ranks(const struct table *t, const struct row *r, char *text)
{
    (void)t;
    snprintf(text, CELL, "%d", r->ranks);
}

/* "2 x 4 x 1, 1, 1f1b" */
static void put_plan(const struct table *t, const struct row *r, char *text)
{
    const struct merak_plan *p = &r->plan;
    char cp[24] = "", ep[24] = "";

    (void)t;
    if (p->cp > 1)
        snprintf(cp, sizeof(cp), " (cp %d)", p->cp);
    if (p->ep > 1)
        snprintf(ep, sizeof(ep), " (ep %d)", p->ep);
    snprintf(text, CELL, "%d%s%s x %d x %d, %zu, %s", p->tp, cp, ep, p->pp,
             p->dp, p->micro_batch * (p->sub_pipeline ? 2 : 1), p->schedule);
}

static void put_step(const struct table *t, const struct row *r, char *text)
{
    (void)t;
    merak_seconds_text(r->step_s, text);
}

static void put_rate(const struct table *t, const struct row *r, char *text)
{
    (void)t;
    merak_number_text(r->tokens_per_s, text);
}

static void put_relative(const struct table *t, const struct row *r, char *text)
{
    snprintf(text, CELL, "%.2fx", r->tokens_per_s / t->first->tokens_per_s);
}

/* Of a node's tokens per second on the fewest nodes. */
static void put_efficiency(const struct table *t, const struct row *r,
                           char *text)
{
    snprintf(text, CELL, "%.0f%%",
             100 * r->tokens_per_s / t->first->tokens_per_s * t->first->nodes /
                 r->nodes);
}

static void put_bubble(const struct table *t, const struct row *r, char *text)
{
    (void)t;
    snprintf(text, CELL, "%.1f%%", 100 * r->bubble / r->step_s);
}

static void put_memory(const struct table *t, const struct row *r, char *text)
{
    (void)t;
    merak_bytes_text((double)r->memory_bytes, text);
}

static void put_days(const struct table *t, const struct row *r, char *text)
{
    snprintf(text, CELL, "%.4g", hours_of(t, r) / 24);
}

static void put_hours(const struct table *t, const struct row *r, char *text)
{
    merak_number_text(hours_of(t, r) * r->ranks, text);
}

static void put_cost(const struct table *t, const struct row *r, char *text)
{
    merak_number_text(hours_of(t, r) * r->ranks * t->opt->run.price, text);
}

static void put_start(const struct table *t, const struct row *r, char *text)
{
    (void)t;
    if (r->start.at == 0)
        snprintf(text, CELL, "not known");
    else
        plan_start_text(r->start.at, text);
}

static time_t done_at(const struct row *r)
{
    return r->start.at + (time_t)ceil(r->run_s);
}

static void put_done(const struct table *t, const struct row *r, char *text)
{
    (void)t;
    if (r->start.at == 0)
        snprintf(text, CELL, "-");
    else
        plan_start_text(done_at(r), text);
}

/* The tables that a column is in, or what has to be given for it. */
enum {
    SAVED = 1,
    NODES = 2, /* several counts */
    DEVICES = 4,
    TOKENS = 8,
    PRICE = 16,
    STARTS = 32,
};

static const struct column {
    const char *head;
    int width;     /* negative: left-aligned */
    int in;        /* any of these */
    bool is_label; /* also known without a plan */
    void (*put)(const struct table *t, const struct row *r, char *text);
} columns[] = {
    {"plan", -20, SAVED, true, put_path},
    {"device", -12, DEVICES, true, put_device},
    {"nodes", 6, NODES | DEVICES, true, put_nodes},
    {"ranks", 6, NODES | DEVICES, true, put_ranks},
    {"tp x pp x dp, micro-batch", -32, SAVED | NODES | DEVICES, false,
     put_plan},
    {"ranks", 6, SAVED, false, put_ranks},
    {"step", 9, SAVED | NODES | DEVICES, false, put_step},
    {"tokens/s", 12, SAVED | NODES | DEVICES, false, put_rate},
    {"efficiency", 10, NODES, false, put_efficiency},
    {"relative", 8, SAVED | DEVICES, false, put_relative},
    {"bubble", 7, SAVED, false, put_bubble},
    {"memory", 10, SAVED | DEVICES, false, put_memory},
    {"days", 9, TOKENS, false, put_days},
    {"GPU-hours", 11, TOKENS, false, put_hours},
    {"GPU-hours/1G", 12, DEVICES, false, put_hours},
    {"cost", 11, PRICE, false, put_cost},
    {"starts", 16, STARTS, false, put_start},
    {"done", 16, STARTS, false, put_done},
};

enum { N_COLUMNS = sizeof(columns) / sizeof(*columns) };

static int kind_of(const struct plan_options *opt)
{
    int kind = opt->saved.n > 1             ? SAVED
               : opt->several.n_devices > 1 ? DEVICES
                                            : NODES;

    if (opt->run.tokens > 0 && kind != SAVED)
        kind |= TOKENS;
    if (opt->run.price > 0 && kind != SAVED)
        kind |= PRICE;
    if (opt->run.sbatch != NULL)
        kind |= STARTS;
    return kind;
}

/* Hours are of the tokens that are given, or else of 1G. */
static bool is_shown(const struct column *c, int kind)
{
    return (c->in & kind) != 0 &&
           !(c->put == put_hours && c->in == DEVICES && (kind & TOKENS) != 0);
}

static void print_row(const struct table *t, const struct row *r)
{
    int kind = kind_of(t->opt);
    bool refused = r->refusal.status != MERAK_OK;
    char text[CELL];
    int n = 0;

    for (int i = 0; i < N_COLUMNS; i++) {
        if (!is_shown(&columns[i], kind) || (refused && !columns[i].is_label))
            continue;
        columns[i].put(t, r, text);
        printf("%s%*s", n++ > 0 ? " " : "", columns[i].width, text);
    }
    if (refused)
        printf(" refused: %s", r->refusal.text);
    putchar('\n');
}

static void print_head(int kind)
{
    for (int i = 0, n = 0; i < N_COLUMNS; i++) {
        if (is_shown(&columns[i], kind))
            printf("%s%*s", n++ > 0 ? " " : "", columns[i].width,
                   columns[i].head);
    }
    putchar('\n');
}

/* The last count of nodes that is worth it, if there are larger ones. */
static void print_knee(const struct table *t)
{
    double rate[PLAN_MOST_NODES];
    int nodes[PLAN_MOST_NODES], n = 0, knee;

    if (t->first == NULL || (kind_of(t->opt) & (SAVED | DEVICES)) != 0)
        return;
    for (int i = 0; i < t->n; i++) {
        if (t->row[i].refusal.status != MERAK_OK)
            continue;
        nodes[n] = t->row[i].nodes;
        rate[n++] = t->row[i].tokens_per_s;
    }
    knee = plan_knee(nodes, rate, n);
    if (knee < n - 1)
        printf("knee: %d node%s; beyond it a further node adds less than half "
               "of what each of the first added\n",
               nodes[knee], merak_plural(nodes[knee]));
}

/* Why Slurm starts some of the jobs never, and which one is done first. */
static void print_starts(const struct table *t)
{
    const struct row *first = NULL;
    char text[PLAN_START_TEXT];

    for (int i = 0; i < t->n && t->opt->run.sbatch != NULL; i++) {
        const struct row *r = &t->row[i];

        if (r->refusal.status != MERAK_OK)
            continue;
        if (r->start.at == 0)
            printf("%d node%s: sbatch says: %s\n", r->nodes,
                   merak_plural(r->nodes), r->start.why);
        else if (first == NULL || done_at(r) < done_at(first))
            first = r;
    }
    if (first != NULL)
        printf("done first: %d node%s, %s, if Slurm starts it when it says, "
               "and no time limit ends it\n",
               first->nodes, merak_plural(first->nodes),
               plan_start_text(done_at(first), text));
}

/* --- rows ----------------------------------------------------------------- */

/* Fill in the row of a machine, or a saved plan; that there is no plan is in
 * the row. */
static enum merak_status rate(const struct plan_options *one,
                              struct merak_progress *progress, struct row *row,
                              struct merak_error *err)
{
    struct plan_auto plan = {.opt = one};
    struct merak_search_result *result = NULL;
    char text[PLAN_SEARCH_TEXT];
    enum merak_status rc = plan_auto_fill(&plan, &row->refusal);

    row->device = one->device;
    row->nodes = one->nodes;
    row->ranks = one->nodes * plan.in.ranks_per_node;
    plan.in.progress = progress;
    if (rc == MERAK_OK)
        rc = plan_search(&plan, &result, &row->refusal);
    merak_progress_clear(progress);
    if (rc == MERAK_OK && plan_search_text(result, text) != NULL)
        fprintf(stderr, "%d node%s: %s\n", one->nodes, merak_plural(one->nodes),
                text);
    if (rc == MERAK_OK) {
        const struct merak_search_choice *best = &result->choice[0];

        row->bubble = best->part_s[MERAK_PART_BUBBLE];
        row->memory_bytes = best->memory_bytes;
        row->plan = best->plan;
        row->plan.cut = NULL;
        row->plan.drop = NULL;
        row->step_s = best->step_s;
        row->tokens_per_s =
            (double)plan.in.global_batch * (double)plan.in.seq / row->step_s;
        row->run_s = ceil(one->run.tokens / (double)plan.in.global_batch /
                          (double)plan.in.seq) *
                     row->step_s;
    }
    if (rc == MERAK_OK && one->run.sbatch != NULL)
        plan_start_ask(one, one->nodes, plan.in.ranks_per_node, &row->start);
    merak_search_destroy(result);
    merak_device_fini(&plan.device);
    row->refusal.status = rc;
    if (rc != MERAK_OK && rc != MERAK_ERR_CONFIG && err != NULL)
        *err = row->refusal;
    return rc == MERAK_ERR_CONFIG ? MERAK_OK : rc;
}

/* Machines: all counts of nodes of each device; or saved plans on one. */
static enum merak_status rate_all(struct table *t, struct merak_error *err)
{
    const struct plan_options *opt = t->opt;
    int n_nodes = opt->several.n_nodes > 1 ? opt->several.n_nodes : 1;
    int n_devices = opt->several.n_devices > 1 ? opt->several.n_devices : 1;
    struct merak_progress progress;
    enum merak_status rc = MERAK_OK;

    t->n = opt->saved.n > 1 ? opt->saved.n : n_devices * n_nodes;
    merak_progress_init(&progress, stderr, "plan", "plans", 0);
    for (int i = 0; i < t->n && rc == MERAK_OK; i++) {
        struct plan_options one = *opt;
        struct row *row = &t->row[i];

        if (opt->saved.n > 1) {
            plan_saved_take(&one, i);
            row->path = opt->saved.path[i];
        }
        if (n_devices > 1)
            one.device = opt->several.device[i / n_nodes];
        if (n_nodes > 1)
            one.nodes = opt->several.nodes[i % n_nodes];
        rc = rate(&one, &progress, row, err);
        if (rc == MERAK_OK && row->refusal.status == MERAK_OK &&
            t->first == NULL)
            t->first = row;
    }
    return rc;
}

/* A row twice would say nothing new. */
static enum merak_status check_devices(const struct plan_options *opt,
                                       struct merak_error *err)
{
    const char *const *device = opt->several.device;

    for (int i = 0; i < opt->several.n_devices; i++) {
        for (int k = 0; k < i; k++) {
            if (strcasecmp(device[i], device[k]) == 0)
                return merak_fail(err, MERAK_ERR_CONFIG,
                                  "--device: %.60s is given twice; name each "
                                  "device once",
                                  device[i]);
        }
    }
    return MERAK_OK;
}

enum merak_status plan_table_check(const struct plan_options *opt,
                                   struct merak_error *err)
{
    if ((opt->several.n_nodes < 2 && opt->several.n_devices < 2 &&
         opt->saved.n < 2) ||
        (opt->json == NULL && opt->svg == NULL && opt->html == NULL &&
         opt->phases == 0 && opt->emit == PLAN_EMIT_NONE))
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--%s prints a table: give one for --json, --svg, "
                      "--html, --print and --emit",
                      opt->saved.n > 1           ? "plan given several times"
                      : opt->several.n_nodes > 1 ? "nodes with several counts"
                                                 : "device with several names");
}

enum merak_status plan_table_print(const struct plan_options *opt,
                                   struct merak_error *err)
{
    struct table t = {.opt = opt};
    enum merak_status rc = check_devices(opt, err);

    if (rc != MERAK_OK)
        return rc;
    t.row = calloc(MOST_ROWS, sizeof(*t.row));
    if (t.row == NULL)
        return merak_fail_nomem(err, MOST_ROWS * sizeof(*t.row));
    rc = rate_all(&t, err);
    if (rc == MERAK_OK) {
        print_head(kind_of(opt));
        for (int i = 0; i < t.n; i++)
            print_row(&t, &t.row[i]);
        print_knee(&t);
        print_starts(&t);
    }
    if (rc == MERAK_OK && t.first == NULL)
        rc = merak_fail(err, MERAK_ERR_CONFIG,
                        "none of these has a plan; each row says why");
    free(t.row);
    return rc;
}
