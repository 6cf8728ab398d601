/* SPDX-License-Identifier: Apache-2.0 */
/* trace_perfetto.c - `merak trace perfetto`: events for ui.perfetto.dev */
#include "config.h"

#include "cmd/trace/trace_verbs.h"

#include "base/output.h"
#include "io/trace/perfetto.h"

#include <string.h>

static enum merak_status write_file(const char *path, const struct trace *trace,
                                    const int32_t *step, int n_steps,
                                    struct merak_error *err)
{
    struct merak_error why;
    struct merak_output out;
    enum merak_status rc = merak_output_open(&out, path, err), closed;

    if (rc != MERAK_OK)
        return rc;
    rc = merak_trace_perfetto(trace->rank, trace->n, step, n_steps, out.file,
                              err);
    closed = merak_output_close(&out, rc == MERAK_OK,
                                rc == MERAK_OK ? err : &why);
    return rc == MERAK_OK ? closed : rc;
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
