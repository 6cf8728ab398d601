/* SPDX-License-Identifier: Apache-2.0 */
/* trace.c - `merak trace`: where a step's time went, in numbers and pictures */
#include "config.h"

#include "cmd/cmd.h"
#include "io/ckpt/durable.h"
#include "io/file.h"
#include "io/trace/summary.h"
#include "partitioner/simulate/timeline.h"
#include "runtime/runtime.h"

#include <fcntl.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const char usage[] =
    "usage: merak trace summary DIR [--step N] [--top N]\n"
    "       merak trace svg DIR [--step N] (-o FILE | --text)\n"
    "\n"
    "  summary      each rank's compute, communication (exposed, and hidden\n"
    "               behind compute) and idle time; the busiest instructions\n"
    "  svg          a picture of one step\n"
    "\n"
    "  --step N     this step (summary: default all but the first; svg: the\n"
    "               last)\n"
    "  --top N      instructions shown (default 10)\n"
    "  -o FILE      where the picture goes; - is standard output\n"
    "  --text       draw it in the terminal instead\n"
    "\n"
    "DIR holds the files trace-RANK.h5 of a run.  Exit codes: 0 fine,\n"
    "66 usage, 67 no trace or a damaged one, 69 no memory or no space.\n"
    "merak-trace(1) has the rest.\n";

struct options {
    const char *verb, *dir, *out;
    bool text, has_step;
    int step, top;
};

struct trace {
    struct merak_trace_rank *rank;
    int n;
    int32_t *step; /* in all ranks */
    int n_steps;
};

static int failed(const struct options *opt, enum merak_status rc,
                  const struct merak_error *err)
{
    fprintf(stderr, "merak trace %s: %s\n", opt->verb, err->text);
    if (rc == MERAK_ERR_NOMEM || rc == MERAK_ERR_NOSPACE)
        return MERAK_EXIT_RESOURCE;
    return MERAK_EXIT_DATA;
}

static int flushed(const struct options *opt)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return MERAK_EXIT_DONE;
    fprintf(stderr, "merak trace %s: cannot write the output\n", opt->verb);
    return MERAK_EXIT_RESOURCE;
}

static void unload(struct trace *trace)
{
    merak_trace_unload(trace->rank, trace->n);
    free(trace->step);
}

static int load(const struct options *opt, struct trace *trace)
{
    struct merak_error err;
    enum merak_status rc;

    rc = merak_trace_load(opt->dir, &trace->rank, &trace->n, &err);
    if (rc == MERAK_OK)
        rc = merak_trace_steps(trace->rank, trace->n, &trace->step,
                               &trace->n_steps, &err);
    if (rc != MERAK_OK)
        return failed(opt, rc, &err);
    if (trace->n_steps > 0)
        return MERAK_EXIT_DONE;
    fprintf(stderr, "merak trace %s: no step in %s has finished on all ranks\n",
            opt->verb, opt->dir);
    return MERAK_EXIT_DATA;
}

static void print_steps(FILE *out, const int32_t *step, int n)
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

static bool has_step(const struct options *opt, const struct trace *trace)
{
    for (int i = 0; i < trace->n_steps; i++) {
        if (trace->step[i] == opt->step)
            return true;
    }
    fprintf(stderr, "merak trace %s: step %d was not kept; there are",
            opt->verb, opt->step);
    print_steps(stderr, trace->step, trace->n_steps);
    fputs("\n", stderr);
    return false;
}

/* --- summary ----------------------------------------------------------------
 */

static void print_header(const struct options *opt, const struct trace *trace,
                         const int32_t *step, int n_steps)
{
    const struct merak_trace_info *info = &trace->rank[0].info;

    printf("%s: %d ranks, tp %d, pp %d, dp %d, %s, %d micro-batches, %s\n",
           opt->dir, trace->n, info->tp, info->stages, info->dp, info->schedule,
           info->microbatches, info->transport);
    printf("steps kept:");
    print_steps(stdout, trace->step, trace->n_steps);
    printf("\nmean of steps:");
    print_steps(stdout, step, n_steps);
    printf("\n\n");
}

static enum merak_status add_steps(const struct trace *trace,
                                   const int32_t *step, int n_steps,
                                   struct merak_trace_split *sum,
                                   struct merak_error *err)
{
    struct merak_trace_split *split = calloc((size_t)trace->n, sizeof(*split));
    enum merak_status rc = split == NULL ? MERAK_ERR_NOMEM : MERAK_OK;

    for (int s = 0; s < n_steps && rc == MERAK_OK; s++) {
        rc = merak_trace_split(trace->rank, trace->n, step[s], split, err);
        for (int r = 0; r < trace->n && rc == MERAK_OK; r++) {
            sum[r].step_s += split[r].step_s / n_steps;
            sum[r].compute_s += split[r].compute_s / n_steps;
            sum[r].exposed_s += split[r].exposed_s / n_steps;
            sum[r].hidden_s += split[r].hidden_s / n_steps;
            sum[r].idle_s += split[r].idle_s / n_steps;
        }
    }
    free(split);
    return rc;
}

static void print_row(const char *rank, const char *stage,
                      const struct merak_trace_split *s)
{
    double percent = s->step_s > 0 ? 100.0 / s->step_s : 0;

    printf("%6s %6s %10.3f %10.3f %3.0f%% %10.3f %3.0f%% %10.3f %10.3f "
           "%3.0f%%\n",
           rank, stage, s->step_s * 1e3, s->compute_s * 1e3,
           s->compute_s * percent, s->exposed_s * 1e3, s->exposed_s * percent,
           s->hidden_s * 1e3, s->idle_s * 1e3, s->idle_s * percent);
}

static void print_ranks(const struct trace *trace,
                        const struct merak_trace_split *split)
{
    struct merak_trace_split mean = {0};
    char rank[16], stage[16];

    printf("%6s %6s %10s %15s %15s %10s %15s\n", "RANK", "STAGE", "STEP ms",
           "COMPUTE ms", "EXPOSED ms", "HIDDEN ms", "IDLE ms");
    for (int r = 0; r < trace->n; r++) {
        snprintf(rank, sizeof(rank), "%d", trace->rank[r].info.rank);
        snprintf(stage, sizeof(stage), "%d", trace->rank[r].info.stage);
        print_row(rank, stage, &split[r]);
        mean.step_s += split[r].step_s / trace->n;
        mean.compute_s += split[r].compute_s / trace->n;
        mean.exposed_s += split[r].exposed_s / trace->n;
        mean.hidden_s += split[r].hidden_s / trace->n;
        mean.idle_s += split[r].idle_s / trace->n;
    }
    if (trace->n > 1)
        print_row("mean", "", &mean);
}

static enum merak_status print_busiest(const struct options *opt,
                                       const struct trace *trace,
                                       const int32_t *step, int n_steps,
                                       struct merak_error *err)
{
    struct merak_trace_busy *busy = NULL;
    double total = 0;
    size_t n;
    enum merak_status rc = merak_trace_busiest(trace->rank, trace->n, step,
                                               n_steps, &busy, &n, err);

    if (rc != MERAK_OK)
        return rc;
    for (size_t i = 0; i < n; i++)
        total += busy[i].total_s;
    printf("\n%-40s %12s %6s %8s %12s\n", "BUSIEST INSTRUCTIONS", "ms A STEP",
           "SHARE", "CALLS", "MEAN us");
    for (size_t i = 0; i < n && i < (size_t)opt->top; i++)
        printf("%-40s %12.3f %5.1f%% %8zu %12.1f\n", busy[i].name,
               busy[i].total_s * 1e3 / n_steps,
               total > 0 ? 100 * busy[i].total_s / total : 0, busy[i].calls,
               busy[i].total_s * 1e6 / (double)busy[i].calls);
    free(busy);
    return MERAK_OK;
}

static int run_summary(const struct options *opt, const struct trace *trace)
{
    const int32_t one = (int32_t)opt->step;
    /* The first step pays for page faults and first touches. */
    int skip = trace->n_steps > 1;
    const int32_t *step = opt->has_step ? &one : trace->step + skip;
    int n_steps = opt->has_step ? 1 : trace->n_steps - skip;
    struct merak_trace_split *split;
    struct merak_error err = {MERAK_ERR_NOMEM, "out of memory"};
    enum merak_status rc = MERAK_ERR_NOMEM;

    if (opt->has_step && !has_step(opt, trace))
        return MERAK_EXIT_CONFIG;
    split = calloc((size_t)trace->n, sizeof(*split));
    if (split != NULL)
        rc = add_steps(trace, step, n_steps, split, &err);
    if (rc == MERAK_OK) {
        print_header(opt, trace, step, n_steps);
        print_ranks(trace, split);
        rc = print_busiest(opt, trace, step, n_steps, &err);
    }
    free(split);
    return rc == MERAK_OK ? flushed(opt) : failed(opt, rc, &err);
}

/* --- picture
 * ------------------------------------------------------------------ */

/* The bars of a step, time from its start. */
static enum merak_status make_bars(const struct trace *trace, int32_t step,
                                   struct merak_picture *picture,
                                   struct merak_error *err)
{
    struct merak_bar *bars;
    int64_t start, end;
    size_t most = 1;
    int n = 0;

    for (int r = 0; r < trace->n; r++)
        most += trace->rank[r].n;
    bars = calloc(most, sizeof(*bars));
    if (bars == NULL)
        return MERAK_ERR_NOMEM;
    picture->bars = bars;
    merak_trace_bounds(trace->rank, trace->n, step, &start, &end);
    picture->end_s = (double)(end - start) * 1e-9;
    for (int r = 0; r < trace->n; r++) {
        struct merak_trace_span *spans = NULL;
        size_t count;
        enum merak_status rc = merak_trace_spans(trace->rank, trace->n, r, step,
                                                 &spans, &count, err);

        if (rc != MERAK_OK)
            return rc;
        for (size_t i = 0; i < count; i++) {
            const struct merak_trace_record *rec = spans[i].record;

            bars[n++] = (struct merak_bar){
                .row = r,
                .kind = merak_bar_kind((enum merak_queue)rec->queue,
                                       (enum merak_phase)rec->phase,
                                       rec->microbatch),
                .microbatch = rec->microbatch,
                .start_s = (double)(spans[i].start_ns - start) * 1e-9,
                .end_s = (double)(spans[i].end_ns - start) * 1e-9};
        }
        free(spans);
    }
    /* Finer than a picture shows. */
    picture->n_bars = merak_bars_join(bars, n, picture->end_s / 4000);
    return MERAK_OK;
}

/* "stage 1" where a stage is one rank, else "1: 0,1" for stage, dp, tp. */
static char **make_names(const struct trace *trace)
{
    const size_t size = 48;
    char **name =
        malloc((size_t)trace->n * (sizeof(char *) + size) + sizeof(char *));
    char *text = (char *)(name + trace->n);

    if (name == NULL)
        return NULL;
    for (int r = 0; r < trace->n; r++) {
        const struct merak_trace_info *info = &trace->rank[r].info;

        name[r] = text + (size_t)r * size;
        if (info->tp * info->dp <= 1)
            snprintf(name[r], size, "stage %d", info->stage);
        else
            snprintf(name[r], size, "s%d d%d t%d", info->stage, info->dp_index,
                     info->tp_index);
    }
    return name;
}

static int terminal_width(void)
{
    struct winsize size;
    const char *columns = getenv("COLUMNS");
    int width = 0;

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0)
        width = size.ws_col;
    else if (columns != NULL)
        width = atoi(columns);
    if (width < 40)
        width = 100;
    return (width > 400 ? 400 : width) - 10; /* names stand in front */
}

static enum merak_status write_out(const char *path, const char *text,
                                   struct merak_error *err)
{
    enum merak_status rc;
    int fd;

    if (strcmp(path, "-") == 0) {
        fputs(text, stdout);
        return MERAK_OK;
    }
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return merak_file_fail(err, "create", path);
    rc = merak_file_write(fd, path, text, strlen(text), err);
    if (close(fd) != 0 && rc == MERAK_OK)
        rc = merak_file_fail(err, "close", path);
    return rc;
}

static void set_title(const struct trace *trace, int32_t step, double step_s,
                      char *title, size_t size)
{
    const struct merak_trace_info *info = &trace->rank[0].info;

    snprintf(title, size,
             "step %d: %.2f ms, %s, tp %d, pp %d, dp %d, %d micro-batches",
             step, step_s * 1e3, info->schedule, info->tp, info->stages,
             info->dp, info->microbatches);
}

static enum merak_status draw(const struct options *opt,
                              const struct trace *trace, int32_t step,
                              struct merak_picture *picture,
                              struct merak_error *err)
{
    char title[160], *text = NULL;
    enum merak_status rc = make_bars(trace, step, picture, err);

    if (rc != MERAK_OK)
        return rc;
    set_title(trace, step, picture->end_s, title, sizeof(title));
    picture->title = title;
    if (opt->text) {
        rc = merak_picture_text(picture, terminal_width(), &text, err);
        if (rc == MERAK_OK)
            printf("%s\n%sdigits forward, letters backward (a is micro-batch "
                   "0), = end of step, - communication, . idle\n",
                   title, text);
    } else {
        rc = merak_picture_svg(picture, &text, err);
        if (rc == MERAK_OK)
            rc = write_out(opt->out, text, err);
    }
    free(text);
    return rc;
}

static int run_svg(const struct options *opt, const struct trace *trace)
{
    struct merak_picture picture = {.n_rows = trace->n};
    struct merak_error err = {MERAK_ERR_NOMEM, "out of memory"};
    enum merak_status rc = MERAK_ERR_NOMEM;
    int32_t step = trace->step[trace->n_steps - 1];
    char **name;

    if (opt->has_step && !has_step(opt, trace))
        return MERAK_EXIT_CONFIG;
    if (opt->has_step)
        step = (int32_t)opt->step;
    name = make_names(trace);
    picture.row_name = (const char *const *)name;
    if (name != NULL)
        rc = draw(opt, trace, step, &picture, &err);
    free((void *)picture.bars);
    free(name);
    return rc == MERAK_OK ? flushed(opt) : failed(opt, rc, &err);
}

/* --- the command line
 * --------------------------------------------------------- */

static int misused(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static int misused(const char *fmt, ...)
{
    va_list ap;

    fputs("merak trace: ", stderr);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputs("; see `merak trace --help`\n", stderr);
    return MERAK_EXIT_CONFIG;
}

static bool parse_count(const char *text, int *value)
{
    char *end;
    long n = strtol(text, &end, 10);

    if (*text == '\0' || *end != '\0' || n < 0 || n > INT32_MAX)
        return false;
    *value = (int)n;
    return true;
}

/* An exit code, or -1 to go on. */
static int parse_options(int argc, char **argv, struct options *opt)
{
    static const struct option longs[] = {
        {"help", no_argument, NULL, 'h'},
        {"step", required_argument, NULL, 's'},
        {"top", required_argument, NULL, 't'},
        {"text", no_argument, NULL, 'x'},
        {NULL, 0, NULL, 0}};
    int c;

    optind = 1;
    opterr = 0;
    while ((c = getopt_long(argc, argv, "o:", longs, NULL)) != -1) {
        if (c == 'h') {
            fputs(usage, stdout);
            return flushed(opt);
        } else if (c == 's' || c == 't') {
            if (!parse_count(optarg, c == 's' ? &opt->step : &opt->top))
                return misused("\"%s\" is no number", optarg);
            opt->has_step |= c == 's';
        } else if (c == 'o') {
            opt->out = optarg;
        } else if (c == 'x') {
            opt->text = true;
        } else {
            return misused("%s is no option, or lacks its value",
                           argv[optind - 1]);
        }
    }
    return -1;
}

static int check_options(int argc, char **argv, struct options *opt)
{
    bool svg;

    if (optind >= argc)
        return misused("a command is missing");
    opt->verb = argv[optind];
    svg = strcmp(opt->verb, "svg") == 0;
    if (!svg && strcmp(opt->verb, "summary") != 0)
        return misused("no command \"%s\"", opt->verb);
    if (optind + 1 >= argc)
        return misused("%s needs a directory", opt->verb);
    opt->dir = argv[optind + 1];
    if (optind + 2 < argc)
        return misused("%s: one argument too many, \"%s\"", opt->verb,
                       argv[optind + 2]);
    if (svg && (opt->out == NULL) == !opt->text)
        return misused("svg needs -o FILE or --text, one of them");
    if (!svg && (opt->out != NULL || opt->text))
        return misused("summary has no -o and no --text");
    return -1;
}

int merak_cmd_trace(int argc, char **argv)
{
    struct options opt = {.verb = "help", .top = 10};
    struct trace trace = {0};
    int code = parse_options(argc, argv, &opt);

    if (code < 0)
        code = check_options(argc, argv, &opt);
    if (code >= 0)
        return code;
    code = load(&opt, &trace);
    if (code == MERAK_EXIT_DONE)
        code = strcmp(opt.verb, "svg") == 0 ? run_svg(&opt, &trace)
                                            : run_summary(&opt, &trace);
    unload(&trace);
    return code;
}
