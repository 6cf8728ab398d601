/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_trace.c - `merak trace`: how a step spent its time; the command line */
#include "config.h"

#include "cmd/cmd.h"
#include "cmd/finish.h"
#include "cmd/trace/trace_verbs.h"

#include "base/nearest.h"
#include "base/options.h"
#include "base/output.h"
#include "base/size.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: merak trace summary DIR [--step N] [--top N] [--json]\n"
    "       merak trace svg DIR [--step N] [--predicted] (-o FILE | --text)\n"
    "       merak trace perfetto DIR [--step N] [--predicted] -o FILE\n"
    "       merak trace plan DIR -o FILE\n"
    "       merak trace diff DIR (DIR | --predicted) [--step N] [--top N] "
    "[--json]\n"
    "\n"
    "  summary      each rank's compute, communication (exposed, and hidden,\n"
    "               i.e. overlapped with compute), waits for others in\n"
    "               collectives, and idle time; the busiest instructions\n"
    "  svg          a picture of one step\n"
    "  perfetto     all steps as events for ui.perfetto.dev\n"
    "  plan         the plan that the run followed, for another to follow\n"
    "  diff         two runs, or a run and its prediction, side by side:\n"
    "               where the difference of their steps comes from\n"
    "\n";

static const char notes[] =
    "\n"
    "DIR holds the files trace-RANK.h5 of a run.  Exit codes: 0 fine,\n"
    "66 usage, 67 no trace or a damaged one, 69 no memory or no space.\n"
    "merak-trace(1) has the rest.\n";

#define AT(field) offsetof(struct trace_options, field)

static const struct merak_option rows[] = {
    {"step", MERAK_OPTION_INT, AT(step),
     .about = "this step (summary, diff: all but the first; svg: the last; "
              "perfetto: all)",
     .given = AT(has_step)},
    {"top", MERAK_OPTION_INT, AT(top), .about = "rows shown (10)"},
    {"predicted", MERAK_OPTION_YES, AT(predicted),
     .about = "the predicted step instead (diff: as the first of the two)"},
    {"out", MERAK_OPTION_TEXT, AT(out),
     .about = "where the picture, the events or the plan go; - is standard "
              "output",
     .arg = "FILE", .letter = 'o'},
    {"text", MERAK_OPTION_YES, AT(text),
     .about = "draw the picture in the terminal instead"},
    {"json", MERAK_OPTION_YES, AT(json),
     .about = "summary, diff: as a line of JSON"},
};
static const struct merak_option_table table = {rows,
                                                sizeof(rows) / sizeof(rows[0])};

/* The options of each verb. */
static const struct verb {
    const char *name;
    int (*run)(const struct trace_options *opt, const struct trace *trace);
    bool draws, predicts, is_table;
} verbs[] = {
    {"summary", trace_run_summary, false, false, true},
    {"svg", trace_run_svg, true, true, false},
    {"perfetto", trace_run_perfetto, true, true, false},
    {"plan", trace_run_plan, true, false, false},
    {"diff", trace_run_diff, false, true, true},
};

/* --- functions for the verbs
   --------------------------------------------------
 */

int trace_failed(const struct trace_options *opt, enum merak_status rc,
                 const struct merak_error *err)
{
    fprintf(stderr, "merak trace %s: %s\n", opt->verb, err->text);
    if (rc == MERAK_ERR_NOMEM || rc == MERAK_ERR_NOSPACE)
        return MERAK_EXIT_RESOURCE;
    return MERAK_EXIT_DATA;
}

int trace_flushed(const struct trace_options *opt)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return MERAK_EXIT_DONE;
    fprintf(stderr, "merak trace %s: cannot write the output\n", opt->verb);
    return MERAK_EXIT_RESOURCE;
}

void trace_unload(struct trace *trace)
{
    merak_trace_unload(trace->rank, trace->n);
    free(trace->step);
}

static int list_steps(const struct trace_options *opt, struct trace *trace)
{
    struct merak_error err;
    enum merak_status rc = merak_trace_steps(
        trace->rank, trace->n, &trace->step, &trace->n_steps, &err);

    if (rc != MERAK_OK)
        return trace_failed(opt, rc, &err);
    if (trace->n_steps > 0)
        return MERAK_EXIT_DONE;
    fprintf(stderr, "merak trace %s: no step in %s has finished on all ranks\n",
            opt->verb, trace->dir);
    return MERAK_EXIT_DATA;
}

int trace_load(const struct trace_options *opt, const char *dir,
               struct trace *trace)
{
    struct merak_error err;
    enum merak_status rc = merak_trace_load(dir, &trace->rank, &trace->n, &err);

    if (rc != MERAK_OK)
        return trace_failed(opt, rc, &err);
    trace->dir = dir;
    return list_steps(opt, trace);
}

int trace_load_predicted(const struct trace_options *opt,
                         const struct trace *from, struct trace *trace)
{
    struct merak_error err;
    enum merak_status rc =
        merak_trace_predicted(from->rank, from->n, &trace->rank, &err);

    if (rc != MERAK_OK)
        return trace_failed(opt, rc, &err);
    trace->n = from->n;
    trace->dir = from->dir;
    return list_steps(opt, trace);
}

void trace_print_steps(FILE *out, const int32_t *step, int n)
{
    const int most = 8;

    for (int i = 0; i < n; i++) {
        if (n > most && i == most - 1) {
            fprintf(out, ", .. %d", step[n - 1]);
            return;
        }
        fprintf(out, i > 0 ? ", %d" : " %d", step[i]);
    }
}

void trace_print_run(const struct trace *trace)
{
    const struct merak_trace_info *info = &trace->rank[0].info;
    char degrees[MERAK_TRACE_DEGREES];

    printf("%s: %d rank%s, %s, %s, %d micro-batch%s, %s\n", trace->dir,
           trace->n, merak_plural(trace->n), merak_trace_degrees(info, degrees),
           info->schedule, info->microbatches,
           info->microbatches == 1 ? "" : "es", info->transport);
}

static bool has_step(const struct trace_options *opt, const struct trace *trace)
{
    for (int i = 0; i < trace->n_steps; i++) {
        if (trace->step[i] == opt->step)
            return true;
    }
    fprintf(stderr, "merak trace %s: step %d was not kept in %s; there are",
            opt->verb, opt->step, trace->dir);
    trace_print_steps(stderr, trace->step, trace->n_steps);
    fputs("\n", stderr);
    return false;
}

bool trace_choose_steps(const struct trace_options *opt,
                        const struct trace *trace, struct trace_steps *steps)
{
    int skip = trace->n_steps > 1;

    steps->one = (int32_t)opt->step;
    steps->step = opt->has_step ? &steps->one : trace->step + skip;
    steps->n = opt->has_step ? 1 : trace->n_steps - skip;
    return !opt->has_step || has_step(opt, trace);
}

bool trace_choose_one(const struct trace_options *opt,
                      const struct trace *trace, int32_t *step_p)
{
    *step_p =
        opt->has_step ? (int32_t)opt->step : trace->step[trace->n_steps - 1];
    return !opt->has_step || has_step(opt, trace);
}

/* --- the command line ------------------------------------------------------
 */

static int help(const struct trace_options *opt)
{
    fputs(usage, stdout);
    merak_options_help(&table, stdout);
    fputs(notes, stdout);
    return trace_flushed(opt);
}

/* Check that the verb has the given options, and where its output goes. */
static int check_options(const struct verb *verb,
                         const struct trace_options *opt)
{
    bool is_svg = verb->run == trace_run_svg;

    if (!verb->draws && opt->out != NULL)
        return merak_cmd_misused("trace", "%s has no -o", verb->name);
    if (!is_svg && opt->text)
        return merak_cmd_misused("trace", "%s has no --text", verb->name);
    if (!verb->predicts && opt->predicted)
        return merak_cmd_misused("trace", "%s has no --predicted", verb->name);
    if (!verb->is_table && opt->top >= 0)
        return merak_cmd_misused("trace", "%s has no --top", verb->name);
    if (!verb->is_table && opt->json)
        return merak_cmd_misused("trace", "%s has no --json", verb->name);
    if (is_svg && (opt->out == NULL) == !opt->text)
        return merak_cmd_misused("trace",
                                 "svg needs -o FILE or --text, one of them");
    if (verb->draws && !is_svg && opt->out == NULL)
        return merak_cmd_misused("trace", "%s needs -o FILE", verb->name);
    return -1;
}

static int unknown_verb(const char *name)
{
    struct merak_nearest near;
    char text[MERAK_NEAREST_TEXT];

    merak_nearest_init(&near, name);
    for (size_t i = 0; i < sizeof(verbs) / sizeof(*verbs); i++)
        merak_nearest_offer(&near, verbs[i].name);
    return merak_cmd_misused(
        "trace", "has no command \"%s\"%s", name,
        merak_nearest_word_text(&near, text, sizeof(text)));
}

/* argv[1 .. argc) are words. */
static int check_arguments(int argc, char **argv, struct trace_options *opt,
                           const struct verb **verb_p)
{
    int dirs = 1;

    if (argc < 2)
        return merak_cmd_misused("trace", "needs a command");
    opt->verb = argv[1];
    for (size_t i = 0; i < sizeof(verbs) / sizeof(*verbs); i++) {
        if (strcmp(opt->verb, verbs[i].name) == 0)
            *verb_p = &verbs[i];
    }
    if (*verb_p == NULL)
        return unknown_verb(opt->verb);
    if ((*verb_p)->run == trace_run_diff && !opt->predicted)
        dirs = 2;
    if (argc - 2 < dirs)
        return merak_cmd_misused(
            "trace", "%s needs %s", opt->verb,
            dirs == 1 ? "a directory"
                      : "two directories, or one and --predicted");
    if (argc - 2 > dirs)
        return merak_cmd_misused("trace", "%s: one argument too many, \"%s\"",
                                 opt->verb, argv[2 + dirs]);
    opt->dir = argv[2];
    opt->other = dirs == 2 ? argv[3] : NULL;
    return check_options(*verb_p, opt);
}

static int run(const struct verb *verb, const struct trace_options *opt)
{
    struct trace trace = {0}, predicted = {0};
    struct merak_error err;
    int code;

    if (merak_output_check("--out", opt->out, &err) != MERAK_OK)
        return trace_failed(opt, err.status, &err);
    code = trace_load(opt, opt->dir, &trace);
    if (code == MERAK_EXIT_DONE && verb->draws && opt->predicted) {
        code = trace_load_predicted(opt, &trace, &predicted);
        if (code == MERAK_EXIT_DONE)
            code = verb->run(opt, &predicted);
    } else if (code == MERAK_EXIT_DONE) {
        code = verb->run(opt, &trace);
    }
    trace_unload(&predicted);
    trace_unload(&trace);
    return code;
}

int merak_cmd_trace(int argc, char **argv)
{
    struct trace_options opt = {.verb = "help", .top = -1};
    const struct verb *verb = NULL;
    struct merak_error err;
    bool asked = false;
    int code;

    if (merak_options_words(&table, false, &argc, argv, &opt, &asked, &err) !=
        MERAK_OK)
        return merak_cmd_failed("trace", MERAK_ERR_CONFIG, &err);
    if (asked)
        return help(&opt);
    code = check_arguments(argc, argv, &opt, &verb);
    if (code >= 0)
        return code;
    if (opt.top < 0)
        opt.top = 10;
    return run(verb, &opt);
}
