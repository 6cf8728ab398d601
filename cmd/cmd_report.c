/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_report.c - `merak report`: a run as a self-contained page for a browser
 */
#include "config.h"

#include "cmd/cmd.h"
#include "cmd/report_ranks.h"
#include "cmd/run_state.h"

#include "base/error.h"
#include "base/options.h"
#include "base/output.h"
#include "base/size.h"
#include "partitioner/simulate/svg.h"
#include "runtime/runtime.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A chart's size in pixels, the most points of a line, and of those that get a
 * dot each; the most labels of an axis. */
enum {
    WIDTH = 1000,
    HEIGHT = 220,
    LEFT = 80,
    RIGHT = 30,
    TOP = 12,
    POINTS = 500
};
enum { DOTS = 40, LABELS = 5, STEP_LABELS = 10 };

struct report {
    const char *out;
    bool help;
};

static const struct merak_option rows[] = {
    {"out", MERAK_OPTION_TEXT, offsetof(struct report, out),
     .about = "output file, -: standard output (required)", .arg = "FILE",
     .letter = 'o'},
};

static const struct merak_option_table table = {rows,
                                                sizeof(rows) / sizeof(rows[0])};

/* --- charts --------------------------------------------------------------- */

/* The value of a step in a chart; NAN: none. */
typedef double (*value_fn)(const struct merak_run_step *step);

static double loss_of(const struct merak_run_step *s)
{
    return s->loss;
}

static double valid_loss_of(const struct merak_run_step *s)
{
    return s->valid_loss;
}

static double norm_of(const struct merak_run_step *s)
{
    return s->grad_norm;
}

static double rate_of(const struct merak_run_step *s)
{
    return s->tokens_per_s;
}

static double samples_rate_of(const struct merak_run_step *s)
{
    return s->samples_per_s;
}

static double peak_of(const struct merak_run_step *s)
{
    return s->peak_bytes > 0 ? s->peak_bytes / 0x1p20 : NAN;
}

static double load_of(const struct merak_run_step *s)
{
    return s->load_max;
}

static double again_of(const struct merak_run_step *s)
{
    return s->overflow_rows > 0 ? s->overflow_rows : NAN;
}

struct chart {
    const struct merak_run_log *log;
    double least, most; /* of values; round numbers */
    double tick;        /* between labels */
    uint64_t from, to;  /* steps */
};

/* A file may hold any number; those that no chart can span are not drawn. */
static bool is_drawn(double v)
{
    return isfinite(v) && fabs(v) < 1e100;
}

static void widen(struct chart *c, value_fn value)
{
    for (size_t i = 0; value != NULL && i < c->log->n; i++) {
        double v = value(&c->log->step[i]);

        if (!is_drawn(v))
            continue;
        c->least = fmin(c->least, v);
        c->most = fmax(c->most, v);
    }
}

/* Let the values' axis begin and end at labels, which are round numbers. */
static void round_axis(struct chart *c)
{
    double size = fmax(fabs(c->least), fabs(c->most));

    if (c->most - c->least <= 1e-6 * size || size == 0) {
        double around = size > 0 ? 0.1 * size : 1;

        c->least -= around;
        c->most += around;
    }
    c->tick = merak_svg_tick(c->most - c->least, LABELS);
    c->least = floor(c->least / c->tick) * c->tick;
    c->most = ceil(c->most / c->tick) * c->tick;
}

static double x_of(const struct chart *c, double step)
{
    double span = c->to > c->from ? (double)(c->to - c->from) : 1;

    return LEFT + (step - (double)c->from) / span * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct chart *c, double v)
{
    double span = c->most > c->least ? c->most - c->least : 1;

    return TOP + (c->most - v) / span * (HEIGHT - TOP - 24);
}

/* Means over equal parts of the steps with a value; few of them are dots, too,
 * which show one that stands alone. */
static void put_line(FILE *out, const struct chart *c, value_fn value,
                     const char *color)
{
    size_t n = c->log->n < POINTS ? c->log->n : POINTS, points = 0;
    double x[POINTS], y[POINTS];

    for (size_t i = 0; i < n; i++) {
        double sum = 0, at = 0;
        size_t have = 0;

        for (size_t j = merak_cut(c->log->n, n, i);
             j < merak_cut(c->log->n, n, i + 1); j++) {
            double v = value(&c->log->step[j]);

            if (!is_drawn(v))
                continue;
            sum += v;
            at += (double)c->log->step[j].step;
            have++;
        }
        if (have > 0) {
            x[points] = x_of(c, at / (double)have);
            y[points++] = y_of(c, sum / (double)have);
        }
    }
    fprintf(out, "<polyline fill=\"none\" stroke=\"%s\" points=\"", color);
    for (size_t i = 0; i < points; i++)
        fprintf(out, "%.1f,%.1f ", x[i], y[i]);
    fputs("\"/>\n", out);
    for (size_t i = 0; i < points && points <= DOTS; i++)
        fprintf(out,
                "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"%s\"/>\n",
                x[i], y[i], color);
}

static void put_axes(FILE *out, const struct chart *c)
{
    double span = (double)(c->to - c->from);
    double tick = fmax(1, merak_svg_tick(fmax(span, 1), STEP_LABELS));
    int n = (int)lround((c->most - c->least) / c->tick);

    for (int i = 0; i <= n; i++) {
        double v = c->least + i * c->tick, y = y_of(c, v);

        /* 0 and not what is left of 0.3 - 3 x 0.1 */
        fprintf(out,
                "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" "
                "stroke=\"#e4e4e4\"/>"
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.10g</text>\n",
                LEFT, WIDTH - RIGHT, y, y, LEFT - 8, y + 4,
                fabs(v) < 1e-9 * c->tick ? 0 : v);
    }
    for (int i = 0; i <= STEP_LABELS; i++) {
        double step = (ceil((double)c->from / tick) + i) * tick;

        if (step > (double)c->to)
            break;
        fprintf(out,
                "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.0f</text>"
                "\n",
                x_of(c, step), HEIGHT - 4, step);
    }
}

/* `second` may be NULL. */
static void put_chart(FILE *out, const struct merak_run_log *log,
                      const char *title, value_fn value, value_fn second)
{
    struct chart c = {.log = log, .least = INFINITY, .most = -INFINITY};

    if (log->n == 0)
        return;
    c.from = log->step[0].step;
    c.to = log->step[log->n - 1].step;
    widen(&c, value);
    widen(&c, second);
    if (!is_drawn(c.least))
        return;
    round_axis(&c);
    fprintf(out,
            "<h2>%s</h2>\n<svg viewBox=\"0 0 %d %d\" font-size=\"11\" "
            "font-family=\"sans-serif\">\n",
            title, WIDTH, HEIGHT);
    put_axes(out, &c);
    put_line(out, &c, value, "#4e79a7");
    if (second != NULL)
        put_line(out, &c, second, "#e15759");
    fputs("</svg>\n", out);
}

/* --- time ----------------------------------------------------------------- */

/* Is there a gap between two steps of more than a number of step lengths, and
 * a minute? */
static bool is_gap(const struct merak_run_step *before,
                   const struct merak_run_step *after)
{
    double gap = after->time - after->step_s - before->time;

    return before->time > 0 && after->time > 0 &&
           gap > fmax(60, 20 * after->step_s);
}

static void put_stretch(FILE *out, double from, double to, double first,
                        double last)
{
    double span = last > first ? last - first : 1;
    double x = LEFT + (from - first) / span * (WIDTH - LEFT - RIGHT);
    double width = (to - from) / span * (WIDTH - LEFT - RIGHT);

    fprintf(out,
            "<rect x=\"%.1f\" y=\"4\" width=\"%.1f\" height=\"18\" "
            "fill=\"#59a14f\"/>",
            x, width > 0.5 ? width : 0.5);
}

static void put_timeline(FILE *out, const struct merak_run_log *log)
{
    double first, last, busy = 0, start;
    char text[32];

    if (log->n == 0 || log->step[0].time <= 0)
        return;
    first = start = log->step[0].time - log->step[0].step_s;
    last = log->step[log->n - 1].time;
    fprintf(out, "<h2>Wall-clock time</h2>\n<svg viewBox=\"0 0 %d 26\">\n",
            WIDTH);
    for (size_t i = 0; i < log->n; i++) {
        busy += log->step[i].step_s;
        if (i + 1 < log->n && !is_gap(&log->step[i], &log->step[i + 1]))
            continue;
        put_stretch(out, start, log->step[i].time, first, last);
        if (i + 1 < log->n)
            start = log->step[i + 1].time - log->step[i + 1].step_s;
    }
    fprintf(out,
            "</svg>\n<p>%s from the first step to the last, %.1f %% of it in "
            "steps that count.</p>\n",
            merak_run_time_text(last - first, text),
            last > first ? 100 * fmin(1, busy / (last - first)) : 100);
}

/* --- tables --------------------------------------------------------------- */

static void put_row(FILE *out, const char *name, const char *value)
{
    fprintf(out, "<tr><th>%s</th><td>", name);
    merak_svg_text(out, value);
    fputs("</td></tr>\n", out);
}

static void put_summary(FILE *out, const struct merak_run_log *log,
                        const struct merak_run_state *s)
{
    const char *schedule = merak_run_log_text(log, "schedule");
    char text[256], bytes[MERAK_BYTES_TEXT], bound[MERAK_BOUND_BYTES];
    char by[MERAK_DEGREES_TEXT], loads[MERAK_RUN_LOADS] = "";
    double predicted = merak_run_log_number(log, "predicted_s", 0);

    fputs("<table>\n", out);
    put_row(out, "state", merak_run_phases[s->phase]);
    snprintf(text, sizeof(text), "%" PRIu64 " of %" PRIu64, s->step, s->steps);
    put_row(out, "steps", text);
    if (json_array_size(log->starts) > 0) {
        snprintf(
            text, sizeof(text),
            "%s, %s, %.0f micro-batches, %.4g M parameters, %s",
            merak_run_degrees(
                json_array_get(log->starts, json_array_size(log->starts) - 1),
                by),
            schedule != NULL ? schedule : "",
            merak_run_log_number(log, "microbatches", 1),
            merak_run_log_number(log, "parameters", 0) / 1e6,
            merak_run_log_text(log, "dtype"));
        put_row(out, "plan", text);
        merak_bytes_text(merak_run_log_number(log, "memory", 0), bytes);
        snprintf(text, sizeof(text), "%s, planned for rank 0", bytes);
        put_row(out, "arena", text);
    }
    snprintf(text, sizeof(text), "%.4g s%s", s->step_s,
             predicted > 0 ? "" : ", median of the last steps");
    if (predicted > 0)
        snprintf(text, sizeof(text), "%.4g s, predicted %.4g s", s->step_s,
                 predicted);
    put_row(out, "step", text);
    if (log->n > 0) {
        double loss = log->step[log->n - 1].loss;

        if (isnan(loss))
            snprintf(text, sizeof(text),
                     "step %" PRIu64 " had no token to predict", s->step);
        else
            snprintf(text, sizeof(text), "%.6g at step %" PRIu64, loss,
                     s->step);
        put_row(out, "loss", text);
    }
    if (log->n > 0)
        merak_run_loads(&log->step[log->n - 1], loads);
    if (loads[0] != '\0')
        put_row(out, "expert", loads);
    if (s->checkpoint[0] != '\0')
        put_row(out, "newest checkpoint", s->checkpoint);
    if (s->idle >= 0) {
        snprintf(text, sizeof(text), "%.1f %% of a step", 100 * s->idle);
        put_row(out, "idle", text);
    }
    merak_run_bound(log, bound);
    if (bound[0] != '\0')
        put_row(out, "a step is", bound);
    if (log->n > 0 && log->step[log->n - 1].mfu > 0) {
        snprintf(text, sizeof(text), "%.1f %%",
                 100 * log->step[log->n - 1].mfu);
        put_row(out, "MFU", text);
    }
    fputs("</table>\n", out);
}

static void put_start(FILE *out, const json_t *start)
{
    double seconds = json_number_value(json_object_get(start, "time"));
    time_t at = fabs(seconds) < 0x1p53 ? (time_t)seconds : 0;
    const char *job = json_string_value(json_object_get(start, "job"));
    char when[32] = "?", by[MERAK_DEGREES_TEXT];
    struct tm tm;

    if (localtime_r(&at, &tm) != NULL)
        strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &tm);
    fprintf(out, "<tr><td>%s</td><td>started at step %lld, %s on %zu node%s%s",
            when, (long long)json_integer_value(json_object_get(start, "step")),
            merak_run_degrees(start, by),
            json_array_size(json_object_get(start, "hosts")),
            json_array_size(json_object_get(start, "hosts")) == 1 ? "" : "s",
            job != NULL ? ", job " : "");
    if (job != NULL)
        merak_svg_text(out, job);
    fputs("</td></tr>\n", out);
}

static void put_hang(FILE *out, struct merak_run_log *log, const char *dir,
                     const char *name)
{
    char path[PATH_MAX + 256], text[4096];
    size_t n = 0;
    FILE *in;

    snprintf(path, sizeof(path), "%.4000s/%.240s", dir, name);
    fputs("<h3>", out);
    merak_svg_text(out, name);
    fputs("</h3>\n<pre>", out);
    in = merak_run_log_open(log, path);
    n = in != NULL ? fread(text, 1, sizeof(text) - 1, in) : 0;
    text[n] = '\0';
    merak_svg_text(out, text);
    if (in != NULL)
        fclose(in);
    fputs("</pre>\n", out);
}

static void put_straggler(FILE *out, const json_t *incident)
{
    const char *host = json_string_value(json_object_get(incident, "host"));
    const char *kind = json_string_value(json_object_get(incident, "kind"));
    bool over = kind != NULL && strcmp(kind, "straggler-over") == 0;

    if (kind == NULL || strncmp(kind, "straggler", 9) != 0)
        return;
    fprintf(out, "<tr><td>step %lld</td><td>rank %lld on ",
            (long long)json_integer_value(json_object_get(incident, "step")),
            (long long)json_integer_value(json_object_get(incident, "rank")));
    merak_svg_text(out, host != NULL ? host : "?");
    if (over)
        fputs(" was no longer slow</td></tr>\n", out);
    else
        fprintf(out,
                " was slow: it computed %.3g s a step, %.0f %% more than the "
                "usual %.3g</td></tr>\n",
                json_number_value(json_object_get(incident, "compute_s")),
                json_number_value(json_object_get(incident, "percent")),
                json_number_value(json_object_get(incident, "usual_s")));
}

static void put_stragglers(FILE *out, const struct merak_run_log *log)
{
    const json_t *incident;
    size_t i;

    if (json_array_size(log->incidents) == 0)
        return;
    fputs("<table>\n", out);
    json_array_foreach(log->incidents, i, incident)
    {
        put_straggler(out, incident);
    }
    fputs("</table>\n", out);
}

static void put_incidents(FILE *out, struct merak_run_log *log,
                          const struct merak_run_state *s)
{
    size_t n = json_array_size(log->starts);

    fputs("<h2>Starts and incidents</h2>\n<table>\n", out);
    for (size_t i = 0; i < n; i++)
        put_start(out, json_array_get(log->starts, i));
    fputs("</table>\n", out);
    if (log->n_redone > 0)
        fprintf(out, "<p>%zu steps were repeated after a restart.</p>\n",
                log->n_redone);
    put_stragglers(out, log);
    for (int i = 0; i < s->n_hangs; i++)
        put_hang(out, log, s->hangs_in, s->hang[i]);
    if (log->refused[0] != '\0') {
        fputs("<p>", out);
        merak_svg_text(out, log->refused);
        fputs("</p>\n", out);
    }
}

static void put_page(FILE *out, const char *dir, struct merak_run_log *log,
                     const struct merak_run_state *s)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<title>merak report</title>\n<style>\n"
          "body{font:14px sans-serif;color:#333;max-width:1040px;"
          "margin:24px auto;padding:0 16px}\n"
          "h1{font-size:20px}h2{font-size:16px;margin-top:28px}\n"
          "h3{font-size:14px}pre{overflow-x:auto;background:#f6f6f6;"
          "padding:8px}\n"
          "table{border-collapse:collapse}\n"
          "th,td{padding:3px 10px;border-bottom:1px solid #ddd;"
          "text-align:left}\n"
          "tr.slow{background:#fbe3e0}summary{cursor:pointer}\n"
          "svg{max-width:100%;height:auto}\n"
          "</style></head><body>\n<h1>",
          out);
    merak_svg_text(out, dir);
    fputs("</h1>\n", out);
    put_summary(out, log, s);
    put_chart(out, log, "Loss (held-out in red)", loss_of, valid_loss_of);
    put_chart(out, log, "Gradient norm before clipping", norm_of, NULL);
    if (log->n > 0 && isnan(log->step[log->n - 1].tokens_per_s))
        put_chart(out, log, "Samples a second", samples_rate_of, NULL);
    else
        put_chart(out, log, "Tokens a second", rate_of, NULL);
    put_chart(out, log, "Peak resident memory of rank 0's process, MiB",
              peak_of, NULL);
    put_chart(out, log, "Rows of the fullest expert over the mean", load_of,
              NULL);
    put_chart(out, log, "Rows of experts computed again, without room",
              again_of, NULL);
    put_timeline(out, log);
    report_put_ranks(out, log);
    put_incidents(out, log, s);
    fputs("</body></html>\n", out);
}

/* --- the command ---------------------------------------------------------- */

static enum merak_status write_page(const char *dir, const char *path,
                                    struct merak_error *err)
{
    struct merak_run_log *log = NULL;
    struct merak_run_state state;
    struct merak_output out;
    enum merak_status rc = merak_run_log_load(dir, 0, &log, err);

    if (rc != MERAK_OK)
        return rc;
    rc = merak_output_open(&out, path, err);
    if (rc == MERAK_OK) {
        merak_run_state_find(dir, log, (double)time(NULL), &state);
        put_page(out.file, dir, log, &state);
        merak_run_state_fini(&state);
        rc = merak_output_close(&out, true, err);
    }
    merak_run_log_destroy(log);
    return rc;
}

static void print_help(void)
{
    puts("usage: merak report RUN -o FILE.html\n"
         "\n"
         "A run as a page: loss, throughput, memory, time, placement, starts\n"
         "and hang reports, from the files in RUN, where its checkpoints "
         "are.\n");
    merak_options_help(&table, stdout);
}

int merak_cmd_report(int argc, char **argv)
{
    struct report r = {.out = NULL};
    struct merak_error err = {.status = MERAK_OK};
    char dir[PATH_MAX];
    enum merak_status rc =
        merak_cmd_one_word(&table, argc, argv, &r, &r.help, &err);
    const char *word = argv[1];

    if (rc == MERAK_OK && r.help) {
        print_help();
        return MERAK_EXIT_DONE;
    }
    if (rc == MERAK_OK && (word == NULL || r.out == NULL))
        rc = merak_fail(&err, MERAK_ERR_CONFIG,
                        word == NULL ? "which run? give its --ckpt directory"
                                     : "where to? give --out FILE.html");
    if (rc != MERAK_OK) {
        fprintf(stderr, "merak report: %s\n", err.text);
        return MERAK_EXIT_CONFIG;
    }
    rc = merak_output_check("--out", r.out, &err);
    if (rc == MERAK_OK && !merak_run_find(word, dir, sizeof(dir), &err))
        rc = err.status;
    if (rc == MERAK_OK)
        rc = write_page(dir, r.out, &err);
    if (rc == MERAK_OK)
        return MERAK_EXIT_DONE;
    fprintf(stderr, "merak report: %s\n", err.text);
    return rc == MERAK_ERR_IO || rc == MERAK_ERR_NOMEM ||
                   rc == MERAK_ERR_NOSPACE
               ? MERAK_EXIT_RESOURCE
               : MERAK_EXIT_DATA;
}
