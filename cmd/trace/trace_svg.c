/* SPDX-License-Identifier: Apache-2.0 */
/* trace_svg.c - `merak trace svg`: a picture of one step */
#include "config.h"

#include "cmd/trace/trace_verbs.h"

#include "io/file.h"
#include "partitioner/simulate/timeline.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static struct merak_bar bar_of(const struct merak_trace_view *view, int row,
                               const struct merak_trace_span *span)
{
    const struct merak_trace_record *rec = span->record;

    return (struct merak_bar){
        .row = row,
        .kind = merak_bar_kind((enum merak_queue)rec->queue,
                               (enum merak_phase)rec->phase, rec->microbatch),
        .microbatch = rec->microbatch,
        .start_s = (double)(span->start_ns - view->start_ns) * 1e-9,
        .end_s = (double)(span->end_ns - view->start_ns) * 1e-9};
}

/* The bars of a step, time from its start; free() picture->bars. */
static enum merak_status make_bars(const struct trace *trace, int32_t step,
                                   struct merak_picture *picture,
                                   struct merak_error *err)
{
    struct merak_trace_view *view;
    struct merak_bar *bars;
    size_t most = 1;
    int n = 0;
    enum merak_status rc =
        merak_trace_view_create(trace->rank, trace->n, step, &view, err);

    if (rc != MERAK_OK)
        return rc;
    for (int r = 0; r < view->n; r++)
        most += view->rank[r].n;
    bars = calloc(most, sizeof(*bars));
    if (bars == NULL) {
        merak_trace_view_destroy(view);
        return MERAK_ERR_NOMEM;
    }
    for (int r = 0; r < view->n; r++) {
        for (size_t i = 0; i < view->rank[r].n; i++)
            bars[n++] = bar_of(view, r, &view->rank[r].span[i]);
    }
    picture->end_s = (double)(view->end_ns - view->start_ns) * 1e-9;
    merak_trace_view_destroy(view);
    /* Finer than a picture shows. */
    picture->n_bars = merak_bars_join(bars, n, picture->end_s / 4000);
    picture->bars = bars;
    return MERAK_OK;
}

/* "stage 1" where a stage is one rank, else "s1 d0 t1" for stage, dp, tp. */
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

static enum merak_status draw(const struct trace_options *opt,
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

int trace_run_svg(const struct trace_options *opt, const struct trace *trace)
{
    struct merak_picture picture = {.n_rows = trace->n};
    struct merak_error err = {.status = MERAK_ERR_NOMEM,
                              .text = "out of memory"};
    enum merak_status rc = MERAK_ERR_NOMEM;
    int32_t step;
    char **name;

    if (!trace_choose_one(opt, trace, &step))
        return MERAK_EXIT_CONFIG;
    name = make_names(trace);
    picture.row_name = (const char *const *)name;
    if (name != NULL)
        rc = draw(opt, trace, step, &picture, &err);
    free((void *)picture.bars);
    free(name);
    return rc == MERAK_OK ? trace_flushed(opt) : trace_failed(opt, rc, &err);
}
