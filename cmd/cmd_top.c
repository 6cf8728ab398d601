/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_top.c - `merak top`: shows a running run, from its files */
#include "config.h"

#include "cmd/cmd.h"
#include "cmd/run_state.h"

#include "base/error.h"
#include "base/options.h"
#include "base/printable.h"
#include "base/size.h"
#include "io/json_real.h"
#include "placement/hostlist.h"
#include "runtime/runtime.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

/* How much of the metrics is read: some thousand steps. */
#define LAST_BYTES ((size_t)1 << 20)
enum { SPARK_WIDTH = 60 };
/* The most ranks with one line each. */
enum { MOST_RANKS = 16 };

struct top {
    bool once, json, help;
    double every_s;
};

#define AT(field) offsetof(struct top, field)

static const struct merak_option rows[] = {
    {"once", MERAK_OPTION_YES, AT(once),
     .about = "print the page once and exit, as it does where standard output "
              "is not a terminal"},
    {"json", MERAK_OPTION_YES, AT(json),
     .about = "print a JSON object once and exit"},
    {"every", MERAK_OPTION_REAL, AT(every_s),
     .about = "seconds between updates (2)", .least = 0.2, .most = 3600},
};

static const struct merak_option_table table = {rows,
                                                sizeof(rows) / sizeof(rows[0])};

static double now_s(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* "12.3 G" */
static const char *count_text(double n, char text[16])
{
    static const char unit[] = " kMGTPE";
    int u = 0;

    for (; n >= 1000 && u < 6; u++)
        n /= 1000;
    snprintf(text, 16, u == 0 ? "%.0f " : "%.3g %c", n, unit[u]);
    return text;
}

/* --- the page ------------------------------------------------------------- */

/* NAN: none of these steps has a loss. */
static double mean_loss(const struct merak_run_log *log, size_t from, size_t to)
{
    double sum = 0;
    int n = 0;

    for (size_t i = from; i < to; i++) {
        if (isnan(log->step[i].loss))
            continue;
        sum += log->step[i].loss;
        n++;
    }
    return n > 0 ? sum / n : NAN;
}

/* Means of equal parts of the losses, as bars of eight heights. */
static void print_spark(const struct merak_run_log *log, FILE *out)
{
    static const char *const bar[] = {"\u2581", "\u2582", "\u2583", "\u2584",
                                      "\u2585", "\u2586", "\u2587", "\u2588"};
    size_t width = log->n < SPARK_WIDTH ? log->n : SPARK_WIDTH;
    double mean[SPARK_WIDTH], least = INFINITY, most = -INFINITY;

    if (width < 2)
        return;
    for (size_t i = 0; i < width; i++) {
        size_t from = merak_cut(log->n, width, i),
               to = merak_cut(log->n, width, i + 1);

        mean[i] = mean_loss(log, from, to);
        least = fmin(least, mean[i]);
        most = fmax(most, mean[i]);
    }
    fprintf(out, "            ");
    for (size_t i = 0; i < width; i++) {
        double height = most > least ? (mean[i] - least) / (most - least) : 0;

        fputs(isfinite(height) ? bar[(int)(height * 7.0 + 0.5)] : "?", out);
    }
    fprintf(out, "  steps %" PRIu64 " to %" PRIu64 "\n", log->step[0].step,
            log->step[log->n - 1].step);
}

static void print_ranks(const struct merak_run_log *log, FILE *out)
{
    size_t n_starts = json_array_size(log->starts), n;
    char by[MERAK_DEGREES_TEXT];
    json_t *hosts;
    char **name;

    if (n_starts == 0)
        return;
    hosts = json_object_get(json_array_get(log->starts, n_starts - 1), "hosts");
    n = json_array_size(hosts);
    name = calloc(n + 1, sizeof(*name));
    for (size_t i = 0; name != NULL && i < n; i++)
        name[i] =
            (char *)(uintptr_t)json_string_value(json_array_get(hosts, i));
    fprintf(out, "  ranks     %s, %s, on ",
            merak_run_degrees(json_array_get(log->starts, n_starts - 1), by),
            merak_run_log_text(log, "schedule"));
    if (name != NULL)
        merak_hostlist_fold(out, name, (int)n);
    fputc('\n', out);
    free(name);
}

static void print_step(const struct merak_run_log *log,
                       const struct merak_run_state *s, FILE *out)
{
    const struct merak_run_step *last = &log->step[log->n - 1];
    double predicted = merak_run_log_number(log, "predicted_s", 0);
    char flops[16], bytes[MERAK_BYTES_TEXT], loads[MERAK_RUN_LOADS];
    char loss[32] = "no token to predict";

    if (!isnan(last->loss))
        snprintf(loss, sizeof(loss), "%.4f", last->loss);
    fprintf(out, "  loss      %s  |g| %.3f  lr %.2e", loss, last->grad_norm,
            last->lr);
    for (size_t i = log->n; i-- > 0;) {
        if (isnan(log->step[i].valid_loss))
            continue;
        fprintf(out, "  held-out %.4f at %" PRIu64, log->step[i].valid_loss,
                log->step[i].step);
        break;
    }
    fputc('\n', out);
    print_spark(log, out);
    if (isnan(last->tokens_per_s))
        fprintf(out, "  speed     %.1f samples/s, %.4g s a step",
                last->samples_per_s, s->step_s);
    else
        fprintf(out, "  speed     %.0f tokens/s, %.4g s a step",
                last->tokens_per_s, s->step_s);
    if (predicted > 0)
        fprintf(out, " (%.4g predicted)", predicted);
    if (s->flops_per_s > 0)
        fprintf(out, ", %sFLOP/s", count_text(s->flops_per_s, flops));
    if (last->mfu > 0)
        fprintf(out, ", MFU %.1f %%", 100 * last->mfu);
    fputc('\n', out);
    merak_run_loads(last, loads);
    if (loads[0] != '\0')
        fprintf(out, "  expert    %s\n", loads);
    if (s->idle >= 0)
        fprintf(out,
                "  idle      %.1f %% of a step without compute: bubble and "
                "waits\n",
                100 * s->idle);
    merak_bytes_text(last->peak_bytes, bytes);
    fprintf(out, "  memory    %s peak resident, of rank 0", bytes);
    merak_bytes_text(merak_run_log_number(log, "memory", 0), bytes);
    fprintf(out, "; its arena %s\n", bytes);
}

/* Which ranks get a line: all of a small run, else slow ones. */
static bool is_listed(const struct merak_run_rank *rank, size_t n)
{
    return n <= MOST_RANKS || rank->slow;
}

/* What each rank did in the last steps. */
static void print_pace(const struct merak_run_log *log, FILE *out)
{
    double step_s = json_number_value(json_object_get(log->ranks, "step_s"));
    size_t n = merak_run_ranks(log);
    double least = INFINITY, most = 0;
    char bytes[MERAK_BYTES_TEXT], text[MERAK_BYTES_TEXT];

    for (size_t r = 0; log->ranks != NULL && r < n; r++) {
        struct merak_run_rank rank = merak_run_rank(log, r);

        least = fmin(least, rank.memory_bytes);
        most = fmax(most, rank.memory_bytes);
        if (!is_listed(&rank, n))
            continue;
        merak_bytes_text(rank.memory_bytes, bytes);
        fprintf(out,
                "  rank %-4zu %s, stage %d, computes %.1f %% of a step, %s", r,
                rank.host, rank.stage,
                step_s > 0 ? 100 * rank.compute_s / step_s : 0, bytes);
        if (rank.slow)
            fprintf(out, ", SLOW: %.0f %% longer than its peers", rank.percent);
        fputc('\n', out);
    }
    if (log->ranks == NULL || n <= MOST_RANKS)
        return;
    merak_bytes_text(least, text);
    merak_bytes_text(most, bytes);
    fprintf(out, "  resident  %s to %s a rank\n", text, bytes);
}

/* Each stage with its ranks, where they are not alike, or too many for a line
 * each. */
static void print_stages(const struct merak_run_log *log, FILE *out)
{
    double step_s = json_number_value(json_object_get(log->ranks, "step_s"));
    bool listed = merak_run_is_unlike(log) || merak_run_ranks(log) > MOST_RANKS;
    int n;
    struct merak_run_stage *stage = merak_run_stages(log, &n);
    char bytes[MERAK_BYTES_TEXT];

    for (int s = 0; s < n && n > 1 && listed; s++) {
        const struct merak_run_stage *st = &stage[s];

        fprintf(out, "  stage %-3d %d x %d, rank%s %s", s, st->dp, st->tp,
                st->ranks == 1 ? "" : "s", st->which);
        if (st->compute_s >= 0 && log->ranks != NULL && step_s > 0) {
            merak_bytes_text(st->memory_bytes, bytes);
            fprintf(out, ", computes %.1f %% of a step, %s",
                    100 * st->compute_s / step_s, bytes);
        }
        fputc('\n', out);
    }
    free(stage);
}

static void print_page(const char *dir, const struct merak_run_log *log,
                       const struct merak_run_state *s, FILE *out)
{
    size_t starts = json_array_size(log->starts);
    const char *job = merak_run_log_text(log, "job");
    char text[32];

    fprintf(out, "%s  %s", dir, merak_run_phases[s->phase]);
    if (job != NULL)
        fprintf(out, "  job %s", job);
    if (starts > 1)
        fprintf(out, "  start %zu", starts);
    fprintf(out, "\n  step      %" PRIu64, s->step);
    if (s->steps > 0)
        fprintf(out, " of %" PRIu64 ", %.1f %%", s->steps,
                100.0 * (double)s->step / (double)s->steps);
    if (s->phase == MERAK_RUN_GOING && s->eta_s >= 0)
        fprintf(out, ", %s left", merak_run_time_text(s->eta_s, text));
    if (s->phase != MERAK_RUN_GOING)
        fprintf(out, ", last update %s ago",
                merak_run_time_text(s->silent_s, text));
    fputc('\n', out);
    if (log->n > 0)
        print_step(log, s, out);
    print_ranks(log, out);
    print_stages(log, out);
    print_pace(log, out);
    if (s->checkpoint[0] != '\0')
        fprintf(out, "  saved     %s, %s ago\n", s->checkpoint,
                merak_run_time_text(s->checkpoint_s, text));
    for (int i = 0; i < s->n_hangs; i++)
        fprintf(out, "  hang      %s/%s\n", s->hangs_in, s->hang[i]);
    if (log->refused[0] != '\0')
        fprintf(out, "  warning   %s\n", log->refused);
}

static json_t *ranks_json(const struct merak_run_log *log)
{
    json_t *list = json_array();

    for (size_t r = 0; r < merak_run_ranks(log); r++) {
        struct merak_run_rank rank = merak_run_rank(log, r);

        json_array_append_new(
            list,
            json_pack("{s: I, s: s, s: i, s: i, s: i, s: f, s: f, s: f, "
                      "s: b}",
                      "rank", (json_int_t)r, "host", rank.host, "stage",
                      rank.stage, "tp", rank.tp, "dp", rank.dp, "compute_s",
                      rank.compute_s, "memory_bytes", rank.memory_bytes,
                      "percent", rank.percent, "slow", rank.slow));
    }
    return list;
}

static json_t *stages_json(const struct merak_run_log *log)
{
    json_t *list = json_array();
    int n;
    struct merak_run_stage *stage = merak_run_stages(log, &n);

    for (int s = 0; s < n; s++)
        json_array_append_new(
            list, json_pack("{s: i, s: i, s: i, s: s, s: f, s: f}", "stage", s,
                            "dp", stage[s].dp, "tp", stage[s].tp, "ranks",
                            stage[s].which, "compute_s", stage[s].compute_s,
                            "memory_bytes", stage[s].memory_bytes));
    free(stage);
    return list;
}

static json_t *state_json(const char *dir, const struct merak_run_log *log,
                          const struct merak_run_state *s)
{
    json_t *o =
        json_pack("{s: s, s: s, s: I, s: I, s: f, s: f, s: f, s: i}", "run",
                  dir, "state", merak_run_phases[s->phase], "step",
                  (json_int_t)s->step, "steps", (json_int_t)s->steps,
                  "silent_s", s->silent_s, "step_s", s->step_s, "flops_per_s",
                  s->flops_per_s, "starts", (int)json_array_size(log->starts));
    json_t *hangs = json_array();
    size_t n = json_array_size(log->starts);

    for (int i = 0; i < s->n_hangs; i++)
        json_array_append_new(hangs, json_string(s->hang[i]));
    json_object_set_new(o, "hangs", hangs);
    json_object_set(o, "incidents", log->incidents);
    json_object_set_new(o, "stages", stages_json(log));
    if (log->ranks != NULL) {
        json_object_set_new(o, "idle", merak_json_real(s->idle));
        json_object_set_new(o, "ranks", ranks_json(log));
    }
    if (s->eta_s >= 0)
        json_object_set_new(o, "eta_s", merak_json_real(s->eta_s));
    if (s->checkpoint[0] != '\0') {
        json_object_set_new(o, "checkpoint", json_string(s->checkpoint));
        json_object_set_new(o, "checkpoint_age_s",
                            merak_json_real(s->checkpoint_s));
    }
    if (log->n > 0) {
        const struct merak_run_step *last = &log->step[log->n - 1];

        json_object_set_new(o, "loss", merak_json_real(last->loss));
        json_object_set_new(o, "samples_per_s",
                            merak_json_real(last->samples_per_s));
        json_object_set_new(o, "tokens_per_s",
                            merak_json_real(last->tokens_per_s));
        json_object_set_new(o, "peak_bytes", merak_json_real(last->peak_bytes));
        if (isfinite(last->load_max)) {
            json_object_set_new(o, "load_max", merak_json_real(last->load_max));
            json_object_set_new(o, "load_layer",
                                merak_json_real(last->load_layer));
            json_object_set_new(o, "load_expert",
                                merak_json_real(last->load_expert));
            json_object_set_new(o, "overflow_rows",
                                merak_json_real(last->overflow_rows));
        }
        if (last->mfu > 0)
            json_object_set_new(o, "mfu", merak_json_real(last->mfu));
    }
    if (n > 0)
        json_object_set(o, "start", json_array_get(log->starts, n - 1));
    return o;
}

static enum merak_status show(const char *dir, bool json, FILE *out,
                              struct merak_error *err)
{
    struct merak_run_log *log = NULL;
    struct merak_run_state state;
    json_t *object;
    enum merak_status rc = merak_run_log_load(dir, LAST_BYTES, &log, err);

    if (rc != MERAK_OK)
        return rc;
    merak_run_state_find(dir, log, now_s(), &state);
    if (json) {
        object = state_json(dir, log, &state);
        json_dumpf(object, out, JSON_INDENT(2));
        fputc('\n', out);
        json_decref(object);
    } else {
        print_page(dir, log, &state, out);
    }
    merak_run_state_fini(&state);
    merak_run_log_destroy(log);
    return MERAK_OK;
}

/* --- refreshing -------------------------------------------------------- */

/* The terminal's settings, to be restored at any end. */
static struct termios terminal_was;

static void restore_terminal(void)
{
    fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    tcsetattr(0, TCSANOW, &terminal_was);
}

static void leave(int number)
{
    static const char text[] = "\033[?25h\033[?1049l";

    (void)!write(1, text, sizeof(text) - 1);
    tcsetattr(0, TCSANOW, &terminal_was);
    signal(number, SIG_DFL);
    raise(number);
}

static bool take_terminal(void)
{
    struct termios raw;

    if (tcgetattr(0, &terminal_was) != 0)
        return false;
    raw = terminal_was;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    tcsetattr(0, TCSANOW, &raw);
    signal(SIGINT, leave);
    signal(SIGTERM, leave);
    signal(SIGHUP, leave);
    fputs("\033[?1049h\033[?25l", stdout);
    return true;
}

/* Wait for the next refresh; false: q was pressed. */
static bool wait_for_key(double seconds)
{
    struct pollfd key = {.fd = 0, .events = POLLIN};
    char c = 0;

    if (poll(&key, 1, (int)(seconds * 1e3)) <= 0)
        return true;
    return read(0, &c, 1) == 1 && c != 'q' && c != 'Q';
}

/* What is in the run's files must not direct the terminal, as this does. */
static void print_clean(const char *page)
{
    FILE *screen = merak_screen_open(STDOUT_FILENO);

    fflush(stdout);
    if (screen == NULL)
        return;
    fputs(page, screen);
    fclose(screen);
}

static enum merak_status show_once(const char *dir, bool json,
                                   struct merak_error *err)
{
    FILE *screen = merak_screen_open(STDOUT_FILENO);
    enum merak_status rc = screen == NULL ? merak_fail_nomem(err, BUFSIZ)
                                          : show(dir, json, screen, err);

    if (screen != NULL && fclose(screen) != 0 && rc == MERAK_OK)
        rc = merak_fail(err, MERAK_ERR_IO, "cannot write the output");
    return rc;
}

static enum merak_status watch(const char *dir, double every_s,
                               struct merak_error *err)
{
    enum merak_status rc;
    bool go_on = true;

    if (!take_terminal())
        return show_once(dir, false, err);
    do {
        char *page = NULL;
        size_t bytes = 0;
        FILE *out = open_memstream(&page, &bytes);

        rc =
            out == NULL ? merak_fail_nomem(err, 0) : show(dir, false, out, err);
        if (out != NULL)
            fclose(out);
        fputs("\033[H\033[2J", stdout);
        print_clean(page != NULL ? page : "");
        puts("\n  q quits");
        free(page);
        fflush(stdout);
        if (rc == MERAK_OK)
            go_on = wait_for_key(every_s);
    } while (rc == MERAK_OK && go_on);
    restore_terminal();
    return rc;
}

static void print_help(void)
{
    puts("usage: merak top RUN|JOBID [OPTION]...\n"
         "\n"
         "Watch a run: loss, speed, memory, checkpoints, from the files\n"
         "in RUN, where its checkpoints are.  A job's run is looked for below "
         "the\n"
         "directory that the job was started in.\n");
    merak_options_help(&table, stdout);
}

int merak_cmd_top(int argc, char **argv)
{
    struct top top = {.every_s = 2};
    struct merak_error err = {.status = MERAK_OK};
    char dir[PATH_MAX];
    enum merak_status rc =
        merak_cmd_one_word(&table, argc, argv, &top, &top.help, &err);
    const char *word = argv[1];

    if (rc == MERAK_OK && top.help) {
        print_help();
        return MERAK_EXIT_DONE;
    }
    if (rc == MERAK_OK && word == NULL)
        rc = merak_fail(&err, MERAK_ERR_CONFIG,
                        "which run? give its --ckpt directory, or a job's "
                        "number");
    if (rc != MERAK_OK) {
        fprintf(stderr, "merak top: %s\n", err.text);
        return MERAK_EXIT_CONFIG;
    }
    if (!merak_run_find(word, dir, sizeof(dir), &err))
        rc = err.status;
    else if (top.once || top.json || !isatty(0) || !isatty(1))
        rc = show_once(dir, top.json, &err);
    else
        rc = watch(dir, top.every_s, &err);
    if (rc == MERAK_OK && fflush(stdout) == 0)
        return MERAK_EXIT_DONE;
    if (rc == MERAK_OK)
        rc = merak_fail(&err, MERAK_ERR_IO, "cannot write the output");
    fprintf(stderr, "merak top: %s\n", err.text);
    return rc != MERAK_ERR_IO ? MERAK_EXIT_DATA : MERAK_EXIT_RESOURCE;
}
