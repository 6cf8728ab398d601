/* SPDX-License-Identifier: Apache-2.0 */
/* trace_perfetto.c - `merak trace perfetto`: events for ui.perfetto.dev */
#include "config.h"

#include "cmd/trace/trace_verbs.h"

#include "base/error.h"
#include "io/file.h"
#include "io/trace/perfetto.h"

#include <string.h>

static enum merak_status close_file(FILE *out, const char *path,
                                    struct merak_error *err)
{
    bool bad = ferror(out);

    if (fclose(out) != 0 || bad)
        return merak_file_fail(err, "write", path);
    return MERAK_OK;
}

static enum merak_status write_file(const char *path, const struct trace *trace,
                                    const int32_t *step, int n_steps,
                                    struct merak_error *err)
{
    FILE *out = fopen(path, "we");
    enum merak_status rc;

    if (out == NULL)
        return merak_file_fail(err, "create", path);
    rc = merak_trace_perfetto(trace->rank, trace->n, step, n_steps, out, err);
    if (rc == MERAK_OK)
        return close_file(out, path, err);
    fclose(out);
    return rc;
}

int trace_run_perfetto(const struct trace_options *opt,
                       const struct trace *trace)
{
    const int32_t *step = trace->step;
    struct merak_error err;
    enum merak_status rc;
    int32_t one;
    int n = trace->n_steps;

    if (opt->has_step) {
        if (!trace_choose_one(opt, trace, &one))
            return MERAK_EXIT_CONFIG;
        step = &one;
        n = 1;
    }
    rc =
        strcmp(opt->out, "-") == 0
            ? merak_trace_perfetto(trace->rank, trace->n, step, n, stdout, &err)
            : write_file(opt->out, trace, step, n, &err);
    return rc == MERAK_OK ? trace_flushed(opt) : trace_failed(opt, rc, &err);
}
