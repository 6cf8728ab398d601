/* SPDX-License-Identifier: Apache-2.0 */
/* trace_svg.c - `merak trace svg`: a picture of one step */
#include "config.h"

#include "cmd/trace/trace_verbs.h"

#include "base/size.h"

#include "io/file.h"
#include "partitioner/simulate/timeline.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Runs with more ranks than this are drawn by stage. */
enum { MOST_ROWS = 32 };

/* The ranks that are drawn, from top to bottom. */
struct rows {
    int *rank;
    int n;
    char (*name)[48];
    struct merak_bar_share *share; /* [n + 1] */
    bool stages;                   /* one rank of each */
};

static struct merak_bar bar_of(const struct merak_trace_rank *rank,
                               const struct merak_trace_view *view, int row,
                               bool splits_w,
                               const struct merak_trace_span *span)
{
    const struct merak_trace_record *rec = span->record;
    enum merak_bar_kind kind =
        merak_bar_kind((enum merak_queue)rec->queue,
                       (enum merak_phase)rec->phase, rec->microbatch, splits_w);

    if (rank->planned != NULL && rank->planned[rec->instr].again &&
        merak_bar_track(&(struct merak_bar){.kind = kind}) == 0)
        kind = MERAK_BAR_RECOMPUTE;
    return (struct merak_bar){
        .row = row,
        .kind = kind,
        .microbatch = rec->microbatch,
        .start_s = (double)(span->start_ns - view->start_ns) * 1e-9,
        .end_s = (double)(span->end_ns - view->start_ns) * 1e-9,
        .part = rec->chunk};
}

/* The bars of a step, time from its start; free() picture->bars. */
static enum merak_status make_bars(const struct trace *trace,
                                   const struct rows *rows, int32_t step,
                                   struct merak_picture *picture,
                                   struct merak_error *err)
{
    bool splits_w = merak_bars_splits_w(trace->rank[0].info.schedule);
    struct merak_trace_view *view;
    struct merak_bar *bars;
    size_t most = 1;
    int n = 0;
    enum merak_status rc =
        merak_trace_view_create(trace->rank, trace->n, step, &view, err);

    if (rc != MERAK_OK)
        return rc;
    for (int r = 0; r < rows->n; r++)
        most += view->rank[rows->rank[r]].n;
    bars = calloc(most, sizeof(*bars));
    if (bars == NULL) {
        merak_trace_view_destroy(view);
        return MERAK_ERR_NOMEM;
    }
    for (int r = 0; r < rows->n; r++) {
        int rank = rows->rank[r];

        for (size_t i = 0; i < view->rank[rank].n; i++)
            bars[n++] = bar_of(&trace->rank[rank], view, r, splits_w,
                               &view->rank[rank].span[i]);
    }
    picture->end_s = (double)(view->end_ns - view->start_ns) * 1e-9;
    merak_trace_view_destroy(view);
    picture->bars = bars;
    if (picture->end_s > 0)
        rc = merak_bars_share(bars, n, rows->n, picture->end_s, rows->share,
                              err);
    picture->n_bars =
        merak_bars_join(bars, n, picture->end_s / MERAK_BARS_FINEST);
    return rc;
}

/* "stage 1" if a stage is one row, else "s1 d0 t1" for stage, dp, tp. */
static void name_row(const struct merak_trace_info *info, bool stages,
                     char name[48])
{
    if (stages || info->tp * info->dp <= 1)
        snprintf(name, 48, "stage %d", info->stage);
    else
        snprintf(name, 48, "s%d d%d t%d", info->stage, info->dp_index,
                 info->tp_index);
}

static bool rows_init(const struct trace *trace, struct rows *rows)
{
    size_t n = (size_t)trace->n;

    *rows = (struct rows){.rank = calloc(n, sizeof(*rows->rank)),
                          .name = calloc(n, sizeof(*rows->name)),
                          .share = calloc(n + 1, sizeof(*rows->share)),
                          .stages = trace->n > MOST_ROWS};
    if (rows->rank == NULL || rows->name == NULL || rows->share == NULL)
        return false;
    for (int r = 0; r < trace->n; r++) {
        const struct merak_trace_info *info = &trace->rank[r].info;

        if (rows->stages && (info->dp_index > 0 || info->tp_index > 0))
            continue;
        name_row(info, rows->stages, rows->name[rows->n]);
        rows->rank[rows->n++] = r;
    }
    return true;
}

static void rows_fini(struct rows *rows)
{
    free(rows->share);
    free(rows->name);
    free(rows->rank);
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
    return (width > 400 ? 400 : width) - 10; /* for the names */
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

static void set_title(const struct trace *trace, const struct merak_picture *p,
                      int32_t step, char *title, size_t size)
{
    const struct merak_trace_info *info = &trace->rank[0].info;
    char degrees[MERAK_TRACE_DEGREES];

    snprintf(title, size,
             "step %d: %.2f ms, idle %.1f %%, %s, %s, %d micro-batch%s", step,
             p->end_s * 1e3, 100 * p->share[p->n_rows].idle, info->schedule,
             merak_trace_degrees(info, degrees), info->microbatches,
             info->microbatches == 1 ? "" : "es");
}

static enum merak_status draw(const struct trace_options *opt,
                              const struct trace *trace,
                              const struct rows *rows, int32_t step,
                              struct merak_picture *picture,
                              struct merak_error *err)
{
    char title[200], note[64], *text = NULL;
    enum merak_status rc = make_bars(trace, rows, step, picture, err);

    if (rc != MERAK_OK)
        return rc;
    set_title(trace, picture, step, title, sizeof(title));
    snprintf(note, sizeof(note), "drawn: a stage's first rank, of %d ranks",
             trace->n);
    picture->title = title;
    picture->note = rows->stages ? note : NULL;
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

int trace_run_svg(const struct trace_options *opt, const struct trace *trace)
{
    struct merak_picture picture = {.n_rows = 0};
    struct merak_error err = {.status = MERAK_ERR_NOMEM,
                              .text = "out of memory"};
    enum merak_status rc = MERAK_ERR_NOMEM;
    const char **name = calloc((size_t)trace->n, sizeof(*name));
    struct rows rows;
    int32_t step;

    if (!trace_choose_one(opt, trace, &step)) {
        free(name);
        return MERAK_EXIT_CONFIG;
    }
    if (rows_init(trace, &rows) && name != NULL) {
        for (int r = 0; r < rows.n; r++)
            name[r] = rows.name[r];
        picture.n_rows = rows.n;
        picture.row_name = name;
        picture.share = rows.share;
        rc = draw(opt, trace, &rows, step, &picture, &err);
    }
    free((void *)picture.bars);
    free(name);
    rows_fini(&rows);
    return rc == MERAK_OK ? trace_flushed(opt) : trace_failed(opt, rc, &err);
}
