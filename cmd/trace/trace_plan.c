/* SPDX-License-Identifier: Apache-2.0 */
/* trace_plan.c - `merak trace plan`: the plan that a traced run followed */
#include "config.h"

#include "cmd/trace/trace_verbs.h"

#include "io/plan_file.h"

#include <errno.h>
#include <string.h>

static int write_plan(const struct trace_options *opt, const char *text)
{
    bool to_stdout = strcmp(opt->out, "-") == 0;
    FILE *out = to_stdout ? stdout : fopen(opt->out, "we");
    bool failed;

    if (out == NULL) {
        fprintf(stderr, "merak trace plan: cannot write %s: %s\n", opt->out,
                strerror(errno));
        return MERAK_EXIT_RESOURCE;
    }
    fprintf(out, "%s\n", text);
    if (to_stdout)
        return trace_flushed(opt);
    failed = ferror(out) != 0;
    failed = fclose(out) != 0 || failed;
    if (!failed)
        return MERAK_EXIT_DONE;
    fprintf(stderr, "merak trace plan: cannot write %s\n", opt->out);
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
