/* SPDX-License-Identifier: Apache-2.0 */
/* report_ranks.c - a run's stages and nodes, each with its ranks, in a page */
#include "config.h"

#include "cmd/report_ranks.h"

#include "base/size.h"
#include "partitioner/simulate/svg.h"

#include <stdlib.h>
#include <string.h>

/* The most nodes that are listed; and the most ranks that are expanded by
 * default. */
enum { MOST_HOSTS = 256, OPEN_RANKS = 64 };

static void put_rank(FILE *out, const struct merak_run_log *log, size_t r)
{
    struct merak_run_rank rank = merak_run_rank(log, r);
    double step_s = json_number_value(json_object_get(log->ranks, "step_s"));
    char bytes[MERAK_BYTES_TEXT];

    fprintf(out, "<tr%s><td>%zu</td><td>%d</td><td>%d</td><td>%d</td>",
            rank.slow ? " class=\"slow\"" : "", r, rank.stage, rank.tp,
            rank.dp);
    if (rank.compute_s >= 0) {
        merak_bytes_text(rank.memory_bytes, bytes);
        fprintf(out, "<td>%.3g s, %.1f %%</td><td>%s</td>", rank.compute_s,
                step_s > 0 ? 100 * rank.compute_s / step_s : 0, bytes);
    }
    fputs("</tr>\n", out);
}

/* A node and its ranks. */
static void put_host(FILE *out, const struct merak_run_log *log,
                     const char *host)
{
    size_t n = merak_run_ranks(log), here = 0;
    bool slow = false;

    for (size_t r = 0; r < n; r++) {
        struct merak_run_rank rank = merak_run_rank(log, r);

        here += strcmp(rank.host, host) == 0;
        slow = slow || (rank.slow && strcmp(rank.host, host) == 0);
    }
    fputs(slow || n <= OPEN_RANKS ? "<details open><summary>"
                                  : "<details><summary>",
          out);
    merak_svg_text(out, host);
    fprintf(out,
            ", %zu rank%s</summary>\n<table><tr><th>rank</th>"
            "<th>stage</th><th>tp</th><th>dp</th>%s</tr>\n",
            here, here == 1 ? "" : "s",
            log->ranks != NULL ? "<th>compute per step</th><th>resident</th>"
                               : "");
    for (size_t r = 0; r < n; r++) {
        if (strcmp(merak_run_rank(log, r).host, host) == 0)
            put_rank(out, log, r);
    }
    fputs("</table></details>\n", out);
}

static void put_stage(FILE *out, const struct merak_run_stage *st, int stage,
                      double step_s)
{
    char bytes[MERAK_BYTES_TEXT];

    fprintf(out, "<tr><td>%d</td><td>%d</td><td>%d</td><td>%s</td>", stage,
            st->dp, st->tp, st->which);
    if (step_s > 0 && st->compute_s >= 0) {
        merak_bytes_text(st->memory_bytes, bytes);
        fprintf(out, "<td>%.3g s, %.1f %%</td><td>%s</td>", st->compute_s,
                100 * st->compute_s / step_s, bytes);
    }
    fputs("</tr>\n", out);
}

/* Stages, each with its ranks. */
static void put_stages(FILE *out, const struct merak_run_log *log)
{
    double step_s = json_number_value(json_object_get(log->ranks, "step_s"));
    int n;
    struct merak_run_stage *stage = merak_run_stages(log, &n);

    if (n > 1)
        fprintf(out,
                "<h2>Stages</h2>\n<table><tr><th>stage</th><th>replicas</th>"
                "<th>tp</th><th>ranks</th>%s</tr>\n",
                step_s > 0 ? "<th>compute per step, mean</th>"
                             "<th>resident, most</th>"
                           : "");
    for (int s = 0; s < n && n > 1; s++)
        put_stage(out, &stage[s], s, step_s);
    if (n > 1)
        fputs("</table>\n", out);
    free(stage);
}

/* Nodes, each with its ranks. */
static void put_placement(FILE *out, const struct merak_run_log *log)
{
    size_t n = json_array_size(log->starts);
    const json_t *start = n > 0 ? json_array_get(log->starts, n - 1) : NULL;
    const json_t *hosts = json_object_get(start, "hosts");
    const json_t *host;
    size_t i;

    if (merak_run_ranks(log) == 0)
        return;
    fputs("<h2>Placement</h2>\n", out);
    json_array_foreach(hosts, i, host)
    {
        if (i < MOST_HOSTS && json_is_string(host))
            put_host(out, log, json_string_value(host));
    }
    if (json_array_size(hosts) > MOST_HOSTS)
        fprintf(out, "<p>and %zu more nodes</p>\n",
                json_array_size(hosts) - MOST_HOSTS);
}

void report_put_ranks(FILE *out, const struct merak_run_log *log)
{
    put_stages(out, log);
    put_placement(out, log);
}
