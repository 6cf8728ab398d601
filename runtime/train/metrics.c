/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.c - the values of each step, metrics.jsonl and --tensorboard */
#include "config.h"

#include "runtime/train/metrics.h"
#include "runtime/train/pace.h"
#include "runtime/train/trainer.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/json_number.h"
#include "base/open.h"
#include "io/ckpt/durable.h"
#include "io/event_file.h"
#include "io/file.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct merak_metrics {
    FILE *lines;                     /* NULL: no file of lines */
    struct merak_event_file *events; /* NULL: none for TensorBoard */
    struct merak_metrics_page *page;
};

/* --- the values ----------------------------------------------------------- */

/* FLOP/s of a step, and its share of the device's peak; NAN if unknown. */
static double flops_per_s(const struct merak_trainer *t, double step_s,
                          double *mfu_p)
{
    bool known = t->opt.device != NULL ||
                 merak_device_of_hardware(t->compute.card.name) != NULL;
    double peak = known ? t->device.peak_flops_per_s[t->plan.dtype] : 0;
    double rate = merak_graph_flops(t->sharded->graph) *
                  (double)t->plan.microbatches * t->program->mesh.dp / step_s;

    *mfu_p = peak > 0 ? rate / peak / t->program->ranks : NAN;
    return rate;
}

static void gather(const struct merak_trainer *t, struct merak_step_values *v)
{
    size_t resident, peak;

    merak_resident_bytes(&resident, &peak);
    v->step = t->step;
    v->samples = t->consumed;
    v->tokens = t->tokens;
    v->empty_steps = t->empty_steps;
    v->samples_per_s = (double)t->opt.global_batch / v->step_s;
    v->tokens_per_s =
        merak_trainer_positions(t) > 0 ? merak_step_tokens(t) / v->step_s : NAN;
    v->flops_per_s = flops_per_s(t, v->step_s, &v->mfu);
    v->idle = merak_pace_idle(t);
    v->time = merak_clock_wall_s();
    v->elapsed_s = merak_clock_since_s(t->start.ns);
    v->memory_bytes = (double)resident;
    v->memory_peak_bytes = (double)peak;
}

/* --- metrics.jsonl -------------------------------------------------------- */

/* By the names that TRL gives them. */
static void write_rewards(FILE *out, const char *of,
                          const struct merak_rewards *r)
{
    struct merak_json_number a, b, c, d;

    if (isnan(r->margin))
        return;
    fprintf(out,
            ", \"%srewards/chosen\": %s, \"%srewards/rejected\": %s, "
            "\"%srewards/margins\": %s, \"%srewards/accuracies\": %s",
            of, merak_json_number(&a, 9, r->chosen), of,
            merak_json_number(&b, 9, r->rejected), of,
            merak_json_number(&c, 9, r->margin), of,
            merak_json_number(&d, 9, r->accuracy));
}

static void write_loads(FILE *out, const struct merak_step_values *v)
{
    struct merak_json_number a, b, c, layer, expert;

    if (isnan(v->aux))
        return;
    fprintf(out,
            ", \"aux\": %s, \"z\": %s, \"load_max\": %s, "
            "\"load_layer\": %s, \"load_expert\": %s, \"overflow_rows\": %.0f, \"dropped_rows\": %.0f",
            merak_json_number(&a, 9, v->aux),
            merak_json_number(&b, 9, v->router_z),
            merak_json_number(&c, 9, v->load_max),
            merak_json_number(&layer, 9, v->load_layer),
            merak_json_number(&expert, 9, v->load_expert), v->overflow_rows,
            v->dropped_rows);
}

/* Of several losses each by its name, which needs no escapes. */
static void write_parts(const struct merak_trainer *t, FILE *out,
                        const char *key, const double *part)
{
    const struct merak_graph *graph = t->sharded->graph;
    struct merak_json_number x;

    if (graph->losses[0].name == NULL)
        return;
    fprintf(out, ", \"%s\": {", key);
    for (int k = 0; k < graph->n_losses; k++)
        fprintf(out, "%s\"%s\": %s", k == 0 ? "" : ", ", graph->losses[k].name,
                merak_json_number(&x, 17, part[k]));
    fputc('}', out);
}

/* With one digit, or null if there is none. */
static const char *rate(char text[32], double x)
{
    snprintf(text, 32, isnan(x) ? "null" : "%.1f", x);
    return text;
}

static enum merak_status write_line(const struct merak_trainer *t, FILE *out,
                                    const struct merak_step_values *v,
                                    struct merak_error *err)
{
    struct merak_json_number a, b;
    char c[32], path[PATH_MAX], hops[MERAK_LOSSY_TEXT];
    int why;

    fprintf(out,
            "{\"step\": %" PRIu64 ", \"loss\": %s, \"grad_norm\": %s, "
            "\"lr\": %.9g, \"samples\": %" PRIu64
            ", \"step_s\": %.6f, \"samples_per_s\": %.3f, "
            "\"tokens_per_s\": %s",
            v->step, merak_json_number(&a, 17, v->loss),
            merak_json_number(&b, 9, v->grad_norm), v->lr, v->samples,
            v->step_s, v->samples_per_s, rate(c, v->tokens_per_s));
    fprintf(out,
            ", \"time\": %.3f, \"elapsed_s\": %.3f, \"tokens\": %" PRIu64
            ", \"flops_per_s\": %.6g",
            v->time, v->elapsed_s, v->tokens, v->flops_per_s);
    if (!isnan(v->mfu))
        fprintf(out, ", \"mfu\": %.6g", v->mfu);
    if (!isnan(v->idle))
        fprintf(out, ", \"idle\": %.6g", v->idle);
    fprintf(out, ", \"memory_bytes\": %.0f, \"memory_peak_bytes\": %.0f",
            v->memory_bytes, v->memory_peak_bytes);
    if (!isnan(v->valid_loss))
        fprintf(out, ", \"valid_loss\": %s",
                merak_json_number(&a, 17, v->valid_loss));
    write_parts(t, out, "losses", v->part);
    if (!isnan(v->valid_loss))
        write_parts(t, out, "valid_losses", v->valid_part);
    write_rewards(out, "", &v->reward);
    write_rewards(out, "valid_", &v->valid_reward);
    write_loads(out, v);
    if (merak_lossy_any(&t->plan.lossy))
        fprintf(out, ", \"lossy_hops\": \"%s\"",
                merak_lossy_text(&t->plan.lossy, ",", hops, sizeof(hops)));
    if (v->empty_steps > 0)
        fprintf(out, ", \"empty_steps\": %" PRIu64, v->empty_steps);
    fputs("}\n", out);
    if (fflush(out) == 0)
        return MERAK_OK;
    why = errno;
    merak_run_files_metrics(t, path, sizeof(path));
    errno = why;
    return merak_file_fail(err, "write", path);
}

static enum merak_status open_lines(struct merak_trainer *t, FILE **lines_p,
                                    struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;
    char path[PATH_MAX];
    const char *why;

    merak_run_files_metrics(t, path, sizeof(path));
    if (path[0] == '\0')
        return MERAK_OK;
    /* A file that the user names may be that of several runs, of which this
     * one begins. */
    if (t->opt.output.metrics == NULL || t->step > 0)
        rc = merak_metrics_cut(t, path, err);
    if (rc != MERAK_OK)
        return rc;
    if (t->opt.output.metrics == NULL) {
        why = merak_fopen_append(path, lines_p);
    } else { /* named by the user, who may want a link or a pipe */
        *lines_p = fopen(path, "ae");
        why = *lines_p != NULL ? NULL : strerror(errno);
    }
    return why == NULL ? MERAK_OK
                       : merak_fail(err, MERAK_ERR_IO,
                                    "cannot write %.150s: %s", path, why);
}

/* --- TensorBoard ---------------------------------------------------------- */

#define AT(field) offsetof(struct merak_step_values, field)

static const struct {
    const char *tag; /* TensorBoard groups them by what precedes the slash */
    size_t at;
} scalars[] = {
    {"train/loss", AT(loss)},
    {"train/grad_norm", AT(grad_norm)},
    {"train/lr", AT(lr)},
    {"valid/loss", AT(valid_loss)},
    {"train/rewards/chosen", AT(reward.chosen)},
    {"train/rewards/rejected", AT(reward.rejected)},
    {"train/rewards/margins", AT(reward.margin)},
    {"train/rewards/accuracies", AT(reward.accuracy)},
    {"valid/rewards/chosen", AT(valid_reward.chosen)},
    {"valid/rewards/rejected", AT(valid_reward.rejected)},
    {"valid/rewards/margins", AT(valid_reward.margin)},
    {"valid/rewards/accuracies", AT(valid_reward.accuracy)},
    {"train/aux", AT(aux)},
    {"train/z", AT(router_z)},
    {"train/load_max", AT(load_max)},
    {"train/overflow_rows", AT(overflow_rows)},
    {"train/dropped_rows", AT(dropped_rows)},
    {"speed/samples_per_s", AT(samples_per_s)},
    {"speed/tokens_per_s", AT(tokens_per_s)},
    {"speed/step_s", AT(step_s)},
    {"speed/flops_per_s", AT(flops_per_s)},
    {"speed/mfu", AT(mfu)},
    {"speed/idle", AT(idle)},
    {"memory/bytes", AT(memory_bytes)},
    {"memory/peak_bytes", AT(memory_peak_bytes)},
};
enum { SCALARS = sizeof(scalars) / sizeof(*scalars) };

static enum merak_status write_events(struct merak_event_file *events,
                                      const struct merak_step_values *v,
                                      struct merak_error *err)
{
    struct merak_scalar s[SCALARS];

    for (size_t i = 0; i < SCALARS; i++) {
        s[i].tag = scalars[i].tag;
        memcpy(&s[i].value, (const char *)v + scalars[i].at,
               sizeof(s[i].value));
    }
    return merak_event_file_add(events, v->time, v->step, s, SCALARS, err);
}

/* A directory that is the run's own, if it is `own`, is behind no link. */
static enum merak_status make_dir(const char *dir, bool own,
                                  struct merak_error *err)
{
    enum merak_status rc = merak_dir_make(dir, err);
    struct stat st;

    if (rc != MERAK_OK || !own)
        return rc;
    if (lstat(dir, &st) == 0 && S_ISDIR(st.st_mode))
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "cannot write to %.150s: it is a link, not a directory "
                      "of the run itself; remove it, or give --tensorboard DIR",
                      dir);
}

static enum merak_status open_events(const struct merak_trainer *t,
                                     struct merak_event_file **events_p,
                                     struct merak_error *err)
{
    const char *wish = t->opt.output.tensorboard;
    bool own = wish != NULL && strcmp(wish, "yes") == 0;
    char dir[PATH_MAX];
    enum merak_status rc;

    if (wish == NULL)
        return MERAK_OK;
    if (own)
        snprintf(dir, sizeof(dir), "%.4000s/tensorboard", t->run_dir);
    else
        snprintf(dir, sizeof(dir), "%.4000s", wish);
    rc = make_dir(dir, own, err);
    if (rc != MERAK_OK)
        return rc;
    /* As with lines: a directory that the user names may be of several runs. */
    return merak_event_file_open(dir, t->step, own || t->step > 0, events_p,
                                 err);
}

/* --- all outputs ---------------------------------------------------------- */

enum merak_status merak_metrics_open(struct merak_trainer *t,
                                     struct merak_error *err)
{
    struct merak_metrics *m = t->reports.metrics = calloc(1, sizeof(*m));
    enum merak_status rc;

    if (m == NULL)
        return merak_fail_nomem(err, sizeof(*m));
    rc = open_lines(t, &m->lines, err);
    if (rc == MERAK_OK)
        rc = open_events(t, &m->events, err);
    return rc == MERAK_OK ? merak_metrics_page_open(t, &m->page, err) : rc;
}

void merak_metrics_close(struct merak_trainer *t)
{
    if (t->reports.metrics == NULL)
        return;
    merak_metrics_page_close(t->reports.metrics->page, t);
    merak_event_file_close(t->reports.metrics->events);
    if (t->reports.metrics->lines != NULL)
        fclose(t->reports.metrics->lines);
    free(t->reports.metrics);
    t->reports.metrics = NULL;
}

enum merak_status merak_metrics_step(struct merak_trainer *t,
                                     struct merak_step_values *v,
                                     struct merak_error *err)
{
    struct merak_metrics *m = t->reports.metrics;
    enum merak_status rc = MERAK_OK;

    if (m == NULL)
        return MERAK_OK;
    gather(t, v);
    merak_metrics_page_step(m->page, t, v);
    if (m->lines != NULL)
        rc = write_line(t, m->lines, v, err);
    if (rc == MERAK_OK && m->events != NULL)
        rc = write_events(m->events, v, err);
    return rc;
}

void merak_metrics_incident(const struct merak_trainer *t,
                            const json_t *incident)
{
    if (t->reports.metrics != NULL)
        merak_metrics_page_incident(t->reports.metrics->page, t, incident);
}
