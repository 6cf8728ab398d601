/* SPDX-License-Identifier: Apache-2.0 */
/* trace_plan.c - `merak trace plan`: the plan that a traced run followed */
#include "config.h"

#include "cmd/trace/trace_verbs.h"

#include "base/output.h"
#include "io/plan_file.h"

#include <string.h>

static int write_plan(const struct trace_options *opt, const char *text)
{
    struct merak_error err;
    struct merak_output out;
    enum merak_status rc = merak_output_open(&out, opt->out, &err);

    if (rc == MERAK_OK)
        rc = merak_output_close(&out, fprintf(out.file, "%s\n", text) >= 0,
                                &err);
    if (rc == MERAK_OK)
        return MERAK_EXIT_DONE;
    fprintf(stderr, "merak trace plan: %s\n", err.text);
    return MERAK_EXIT_RESOURCE;
}

int trace_run_plan(const struct trace_options *opt, const struct trace *trace)
{
    const char *text = trace->rank[0].plan;
    struct merak_plan_file *file = NULL;
    struct merak_error err = {.status = MERAK_OK};

    if (text == NULL) {
        fprintf(stderr,
                "merak trace plan: %s has no plan: it was written by an older "
                "merak\n",
                trace->dir);
        return MERAK_EXIT_DATA;
    }
    if (merak_plan_file_decode(text, strlen(text), trace->dir, &file, &err) !=
        MERAK_OK)
        return trace_failed(opt, err.status, &err);
    merak_plan_file_destroy(file);
    return write_plan(opt, text);
}
