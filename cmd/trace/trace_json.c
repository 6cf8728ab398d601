/* SPDX-License-Identifier: Apache-2.0 */
/* trace_json.c - what the verbs of `merak trace` with --json have in common */
#include "config.h"

#include "cmd/trace/trace_verbs.h"

#include "cmd/json_line.h"
#include "io/json_real.h"

#include <string.h>

int trace_flushed_json(const struct trace_options *opt, json_t *root)
{
    char name[32];

    snprintf(name, sizeof(name), "trace %s", opt->verb);
    return merak_cmd_flush_json(name, root, MERAK_EXIT_DONE);
}

json_t *trace_json_run(const struct trace *trace)
{
    const struct merak_trace_info *info = &trace->rank[0].info;

    json_t *run = json_pack("{s:o, s:i, s:i, s:s, s:i, s:s}", "dir",
                            merak_json_text(trace->dir, strlen(trace->dir)),
                            "ranks", trace->n, "pp", info->stages, "schedule",
                            info->schedule, "microbatches", info->microbatches,
                            "transport", info->transport);
    json_t *list = json_array();

    if (info->degrees == NULL) {
        json_object_set_new(run, "tp",
                            json_integer(info->tp / info->cp / info->ep));
        json_object_set_new(run, "cp", json_integer(info->cp));
        json_object_set_new(run, "ep", json_integer(info->ep));
        json_object_set_new(run, "dp", json_integer(info->dp));
    }
    for (int s = 0; info->degrees != NULL && s < info->stages; s++)
        json_array_append_new(list,
                              json_pack("{s:i, s:i}", "dp", info->degrees[s].dp,
                                        "tp", info->degrees[s].tp));
    if (info->degrees != NULL)
        json_object_set(run, "stages", list);
    json_decref(list);
    return run;
}

json_t *trace_json_steps(const int32_t *step, int n)
{
    json_t *all = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(all, json_integer(step[i]));
    return all;
}

json_t *trace_json_split(const struct merak_trace_split *s)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "step_ms",
                     merak_json_real(s->step_s * 1e3), "compute_ms",
                     merak_json_real(s->compute_s * 1e3), "exposed_ms",
                     merak_json_real(s->exposed_s * 1e3), "hidden_ms",
                     merak_json_real(s->hidden_s * 1e3), "wait_ms",
                     merak_json_real(s->wait_s * 1e3), "idle_ms",
                     merak_json_real(s->idle_s * 1e3));
}
