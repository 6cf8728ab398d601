/* SPDX-License-Identifier: Apache-2.0 */
/* metrics_page.c - --openmetrics: the state of the run, for Prometheus
 *
 * The page is written beside its place and renamed, so that a reader sees a
 * whole one.  It has the last step's values, and for those that not every step
 * has (held-out loss, idle share) the last ones of this start.  Times are in
 * seconds since 1970 and not ago: the page of a run that hangs grows old.
 *
 * What may go down when steps are done again is a gauge, also if it is a count.
 * Incidents are those of all starts, by incidents.jsonl.
 */
#include "config.h"

#include "runtime/train/metrics.h"
#include "runtime/train/trainer.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/open.h"
#include "io/openmetrics.h"
#include "io/run_log.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

/* The shortest interval of writing the page after a step. */
#define WRITE_NS INT64_C(1000000000)

static const char *const kinds[] = {"hang", "straggler"};
enum { KINDS = sizeof(kinds) / sizeof(*kinds) };

struct merak_metrics_page {
    char path[PATH_MAX], part[PATH_MAX + 8];
    char labels[PATH_MAX + 1024];
    struct merak_step_values last;
    double incidents[KINDS];
    int64_t written_ns;
    bool warned;
};

#define AT(field) offsetof(struct merak_step_values, field)

/* The values that are numbers of a step. */
static const struct {
    struct merak_openmetric m;
    size_t at;
} rows[] = {
    {{"merak_loss", .help = "Training loss of the last step."}, AT(loss)},
    {{"merak_valid_loss", .help = "Last held-out loss."}, AT(valid_loss)},
    {{"merak_reward_chosen",
      .help = "Mean reward of the last step's chosen answers."},
     AT(reward.chosen)},
    {{"merak_reward_rejected",
      .help = "Mean reward of the last step's rejected answers."},
     AT(reward.rejected)},
    {{"merak_reward_margin",
      .help = "Mean of how much larger the chosen answer's reward is."},
     AT(reward.margin)},
    {{"merak_reward_accuracy_ratio", .unit = "ratio",
      .help = "Share of the last step's pairs whose chosen answer has the "
              "larger reward."},
     AT(reward.accuracy)},
    {{"merak_valid_reward_margin",
      .help = "Last mean of how much larger the chosen answer's reward is, of "
              "held-out pairs."},
     AT(valid_reward.margin)},
    {{"merak_valid_reward_accuracy_ratio", .unit = "ratio",
      .help = "Last share of held-out pairs whose chosen answer has the larger "
              "reward."},
     AT(valid_reward.accuracy)},
    {{"merak_router_aux", .help = "Load-balancing loss of the last step."},
     AT(aux)},
    {{"merak_router_z", .help = "Loss by logits of the last step's routers."},
     AT(router_z)},
    {{"merak_expert_load_max",
      .help = "Rows of the last step's fullest expert over the mean."},
     AT(load_max)},
    {{"merak_expert_overflow_rows",
      .help = "Rows of the last step that experts computed again."},
     AT(overflow_rows)},
    {{"merak_expert_dropped_rows",
      .help = "Rows of the last step beyond --expert-capacity."},
     AT(dropped_rows)},
    {{"merak_grad_norm",
      .help = "Norm of the last step's gradient before clipping."},
     AT(grad_norm)},
    {{"merak_learning_rate", .help = "Learning rate of the last step."},
     AT(lr)},
    {{"merak_step_duration_seconds", .unit = "seconds",
      .help = "Time that the last step took."},
     AT(step_s)},
    {{"merak_samples_per_second", .unit = "samples_per_second",
      .help = "Samples of the last step over its time, of all tasks."},
     AT(samples_per_s)},
    {{"merak_tokens_per_second", .unit = "tokens_per_second",
      .help = "Tokens of the last step over its time, of all tasks."},
     AT(tokens_per_s)},
    {{"merak_flops_per_second", .unit = "flops_per_second",
      .help = "Model FLOPs of the last step over its time, of all tasks."},
     AT(flops_per_s)},
    {{"merak_mfu_ratio", .unit = "ratio",
      .help = "Model FLOPS utilization of the last step."},
     AT(mfu)},
    {{"merak_idle_ratio", .unit = "ratio",
      .help = "Share of a step in which tasks do not compute, on average."},
     AT(idle)},
    {{"merak_memory_bytes", .unit = "bytes",
      .help = "Resident memory of the first task."},
     AT(memory_bytes)},
    {{"merak_memory_peak_bytes", .unit = "bytes",
      .help = "Most resident memory of the first task so far."},
     AT(memory_peak_bytes)},
    {{"merak_step_timestamp_seconds", .unit = "seconds",
      .help = "When the last step ended, since 1970."},
     AT(time)},
};

/* What is not. */
static const struct merak_openmetric step = {
    "merak_step", .help = "Steps done, of all starts of the run."};
static const struct merak_openmetric planned = {
    "merak_steps_planned", .help = "Steps after which the run is finished."};
static const struct merak_openmetric tokens = {
    "merak_tokens", .help = "Tokens seen since the run's first step."};
static const struct merak_openmetric saved = {
    "merak_checkpoint_step", .help = "Step of the newest checkpoint."};
static const struct merak_openmetric saved_at = {
    "merak_checkpoint_timestamp_seconds", .unit = "seconds",
    .help = "When the newest checkpoint was complete, since 1970."};
static const struct merak_openmetric incidents = {
    "merak_incidents", .type = "counter",
    .help = "Stragglers and hangs, of all starts of the run."};

static void print_incidents(const struct merak_metrics_page *p, FILE *out)
{
    merak_openmetrics_family(out, &incidents);
    for (int k = 0; k < KINDS; k++) {
        char kind[32] = "";

        merak_openmetrics_label(kind, sizeof(kind), "kind", kinds[k]);
        merak_openmetrics_sample(out, &incidents, p->labels, kind,
                                 p->incidents[k]);
    }
}

static void print_page(const struct merak_metrics_page *p,
                       const struct merak_trainer *t, FILE *out)
{
    bool has_saved = t->lineage.saved_at > 0;

    merak_openmetrics_one(out, &step, p->labels, (double)t->step);
    merak_openmetrics_one(out, &planned, p->labels, (double)t->opt.steps);
    merak_openmetrics_one(out, &tokens, p->labels, (double)t->tokens);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        double value;

        memcpy(&value, (const char *)&p->last + rows[i].at, sizeof(value));
        merak_openmetrics_one(out, &rows[i].m, p->labels, value);
    }
    merak_openmetrics_one(out, &saved, p->labels,
                          has_saved ? (double)t->lineage.saved_step : NAN);
    merak_openmetrics_one(out, &saved_at, p->labels,
                          has_saved ? t->lineage.saved_at : NAN);
    print_incidents(p, out);
    merak_openmetrics_end(out);
}

/* Returns NULL or why not. */
static const char *write_page(struct merak_metrics_page *p,
                              const struct merak_trainer *t)
{
    FILE *out = NULL;
    const char *why = merak_fopen_new(p->part, &out);
    bool fine;

    p->written_ns = merak_clock_ns();
    if (why != NULL)
        return why;
    print_page(p, t, out);
    fine = !ferror(out);
    if (fclose(out) == 0 && fine && rename(p->part, p->path) == 0)
        return NULL;
    why = strerror(errno);
    (void)unlink(p->part);
    return why;
}

/* A run does not end because it cannot be watched. */
static void update(struct merak_metrics_page *p, const struct merak_trainer *t)
{
    const char *why = write_page(p, t);

    if (why != NULL && !p->warned)
        merak_warn("train",
                   "cannot write --openmetrics %s: %s; the run goes on, and "
                   "tries again",
                   p->path, why);
    p->warned = why != NULL;
}

/* -1: none that is counted. */
static int kind_of(const json_t *incident)
{
    const char *kind = json_string_value(json_object_get(incident, "kind"));

    for (int k = 0; k < KINDS; k++) {
        if (kind != NULL && strcmp(kind, kinds[k]) == 0)
            return k;
    }
    return -1;
}

static void count(struct merak_metrics_page *p, const json_t *incident)
{
    int k = kind_of(incident);

    if (k >= 0)
        p->incidents[k]++;
}

/* Those of earlier starts; a run that begins has none. */
static void count_earlier(struct merak_metrics_page *p, const char *run_dir)
{
    struct merak_run_log *log = NULL;
    json_t *incident;
    size_t i;

    if (run_dir == NULL ||
        merak_run_log_load(run_dir, 1, &log, NULL) != MERAK_OK)
        return;
    json_array_foreach(log->incidents, i, incident) count(p, incident);
    merak_run_log_destroy(log);
}

static void set_labels(struct merak_metrics_page *p, const char *run_dir)
{
    char whole[PATH_MAX];
    const char *run = run_dir != NULL ? realpath(run_dir, whole) : NULL;
    const size_t size = sizeof(p->labels);

    merak_openmetrics_label(p->labels, size, "job_id", getenv("SLURM_JOB_ID"));
    merak_openmetrics_label(p->labels, size, "job_name",
                            getenv("SLURM_JOB_NAME"));
    merak_openmetrics_label(p->labels, size, "run", run);
}

enum merak_status merak_metrics_page_open(const struct merak_trainer *t,
                                          struct merak_metrics_page **page_p,
                                          struct merak_error *err)
{
    struct merak_metrics_page *p;
    const char *why;

    if (t->opt.output.openmetrics == NULL)
        return MERAK_OK;
    p = *page_p = calloc(1, sizeof(*p));
    if (p == NULL)
        return merak_fail_nomem(err, sizeof(*p));
    merak_follow_links(t->opt.output.openmetrics, p->path);
    snprintf(p->part, sizeof(p->part), "%s.part", p->path);
    set_labels(p, t->run_dir);
    count_earlier(p, t->run_dir);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        memcpy((char *)&p->last + rows[i].at, &(double){NAN}, sizeof(double));
    why = write_page(p, t);
    return why == NULL ? MERAK_OK
                       : merak_fail(err, MERAK_ERR_IO,
                                    "cannot write --openmetrics %.150s: %s",
                                    p->path, why);
}

void merak_metrics_page_step(struct merak_metrics_page *page,
                             const struct merak_trainer *t,
                             const struct merak_step_values *v)
{
    struct merak_step_values before;

    if (page == NULL)
        return;
    before = page->last;
    page->last = *v;
    if (isnan(v->valid_loss)) {
        page->last.valid_loss = before.valid_loss;
        page->last.valid_reward = before.valid_reward;
    }
    if (isnan(v->idle))
        page->last.idle = before.idle;
    if (merak_clock_ns() - page->written_ns >= WRITE_NS)
        update(page, t);
}

void merak_metrics_page_incident(struct merak_metrics_page *page,
                                 const struct merak_trainer *t,
                                 const json_t *incident)
{
    if (page == NULL || kind_of(incident) < 0)
        return;
    count(page, incident);
    update(page, t);
}

void merak_metrics_page_close(struct merak_metrics_page *page,
                              const struct merak_trainer *t)
{
    if (page == NULL)
        return;
    update(page, t);
    free(page);
}
