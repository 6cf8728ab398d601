/* SPDX-License-Identifier: Apache-2.0 */
/* page.c - a plan as a self-contained page for a browser */
#include "config.h"

#include "runtime/plan/advice.h"
#include "runtime/plan/auto.h"
#include "runtime/plan/draw.h"

#include "base/size.h"
#include "base/text_writer.h"
#include "io/plan_file.h"
#include "partitioner/simulate/svg.h"

#include <stdio.h>
#include <stdlib.h>

static void put_cell(FILE *out, const char *text)
{
    fputs("<td>", out);
    merak_svg_text(out, text);
    fputs("</td>", out);
}

static void put_right(FILE *out, const char *text)
{
    fprintf(out, "<td class=\"r\">%s</td>", text);
}

static void put_seconds(FILE *out, double s)
{
    char text[MERAK_SECONDS_TEXT];

    put_right(out, merak_seconds_text(s, text));
}

static void put_share(FILE *out, double share)
{
    fprintf(out, "<td class=\"r\">%.1f %%</td>", 100 * share);
}

static void put_size(FILE *out, double bytes)
{
    char text[MERAK_BYTES_TEXT];

    merak_bytes_text(bytes, text);
    put_right(out, text);
}

static void put_head(FILE *out, const struct plan_drawing *d)
{
    char plan[MERAK_PLAN_TEXT];

    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<title>merak plan</title>\n<style>\n"
          "body{font:14px sans-serif;color:#333;max-width:1200px;"
          "margin:24px auto;padding:0 16px}\n"
          "h1{font-size:20px}h2{font-size:16px;margin-top:28px}\n"
          "table{border-collapse:collapse}\n"
          "th,td{padding:3px 10px;border-bottom:1px solid #ddd;"
          "text-align:left}\n"
          "th{font-weight:600}.r{text-align:right;white-space:nowrap}\n"
          "pre,code{font:12px monospace;white-space:pre-wrap;"
          "overflow-wrap:anywhere}\n"
          "pre{background:#f4f4f4;padding:10px}\n"
          ".b{background:#4e79a7;height:12px;display:inline-block}\n"
          "svg{max-width:100%;height:auto}\n"
          "</style></head><body>\n<h1>",
          out);
    merak_svg_text(out, d->heading);
    fputs("</h1>\n<p>", out);
    if (d->result != NULL)
        plan_report_choice(d->result, plan, sizeof(plan));
    else
        merak_plan_describe(d->plan, plan, sizeof(plan));
    merak_svg_text(out, plan);
    fputs("</p>\n", out);
}

/* All choices, as they can be given to a search. */
static void put_choices(FILE *out, const struct merak_plan *plan)
{
    char *choices = merak_choices_line(plan);

    if (choices != NULL) {
        fputs("<p><code>--what-if ", out);
        merak_svg_text(out, choices);
        fputs("</code></p>\n", out);
    }
    free(choices);
}

static void put_totals(FILE *out, const struct plan_drawing *d)
{
    double link = 0, net = 0;
    char fetches[PLAN_FETCH_TEXT];
    char rate[MERAK_NUMBER_TEXT];
    size_t most = 0;

    for (int s = 0; s < d->plan->pp; s++) {
        const struct merak_stage_mesh mesh = merak_plan_mesh(d->plan, s);
        double ranks = merak_stage_ranks(&mesh);

        link += d->stage[s].sent_bytes[0] * ranks;
        net += merak_search_far_bytes(&d->stage[s]) * ranks;
        if (d->stage[s].arena_bytes > most)
            most = d->stage[s].arena_bytes;
    }
    fputs("<table><tr><td>step</td>", out);
    put_seconds(out, d->step_s);
    fprintf(out, "</tr><tr><td>%s a second</td><td class=\"r\">%s</td>",
            d->rate.what, merak_number_text(d->rate.per_s, rate));
    if (d->result != NULL) {
        fprintf(out, "</tr><tr><td>of %s</td>",
                plan_report_utilisation(d->result));
        put_share(out, d->utilisation);
    }
    fputs("</tr><tr><td>largest rank</td>", out);
    put_size(out, (double)most);
    fprintf(out, "</tr><tr><td>sent in a step, within %ss</td>", d->near);
    put_size(out, link);
    fprintf(out, "</tr><tr><td>sent in a step, between %ss</td>", d->near);
    put_size(out, net);
    fputs("</tr></table>\n", out);
    if (*plan_fetch_text(d->stage, d->plan->pp, d->fetch_s, fetches))
        fprintf(out, "<p>%s</p>\n", fetches);
    if (*plan_offload_text(d->plan, d->stage, d->offload_s, fetches))
        fprintf(out, "<p>%s</p>\n", fetches);
}

/* What binds, what would change it, what to type. */
static void put_advice(FILE *out, const struct plan_advice *advice)
{
    fputs("<h2>What to do</h2>\n<ul>\n", out);
    for (int i = 0; i < advice->words.n; i++) {
        fputs("<li>", out);
        merak_svg_text(out, advice->words.line[i]);
        fputs("</li>\n", out);
    }
    fprintf(out,
            "</ul>\n<table>\n<tr><th>what would change it (same degrees, "
            "unless said)</th><th class=\"r\">step</th><th class=\"r\">%s a "
            "second</th><th class=\"r\">GPU-hours</th></tr>\n",
            advice->counts);
    for (int i = 0; i < advice->n_changes; i++) {
        const struct plan_change *c = &advice->change[i];

        fputs("<tr>", out);
        put_cell(out, c->what);
        if (c->step_s == 0)
            put_right(out, "no plan");
        else
            put_seconds(out, c->step_s);
        if (c->step_s > 0)
            fprintf(out,
                    "<td class=\"r\">%.2f times</td><td class=\"r\">%.2f "
                    "times</td>",
                    c->tokens_per_s, c->gpu_hours);
        fputs("</tr>\n", out);
    }
    fputs("</table>\n<p>What to type:</p>\n<pre>", out);
    for (int i = 0; i < advice->commands.n; i++) {
        merak_svg_text(out, advice->commands.line[i]);
        fputc('\n', out);
    }
    fputs("</pre>\n", out);
}

/* As they are on a terminal. */
static void put_islands(FILE *out, const char *lines)
{
    fputs("<h2>Islands</h2>\n<pre>", out);
    merak_svg_text(out, lines);
    fputs("</pre>\n", out);
}

static void put_parts(FILE *out, const struct merak_search_result *r)
{
    const struct merak_search_choice *c = &r->choice[0];
    char where[PLAN_WHERE_TEXT];

    plan_report_where(r, where);
    fprintf(out, "<h2>Where the time of a step goes%s%s</h2>\n<table>\n",
            where[0] != '\0' ? ";" : "", where);
    for (int i = 0; i < MERAK_PART_COUNT; i++) {
        enum merak_search_part part = (enum merak_search_part)i;
        double share = c->part_s[i] / c->step_s;

        fputs("<tr>", out);
        put_cell(out, merak_search_part_name(part));
        put_seconds(out, c->part_s[i]);
        put_share(out, share);
        fprintf(out,
                "<td><span class=\"b\" style=\"width:%.0fpx\"></span>%s</td>"
                "</tr>\n",
                share > 0 ? 400 * share : 0.0, plan_report_elsewhere(r, part));
    }
    fputs("</table>\n", out);
}

/* Of stages whose ranks or nodes are unlike: which they are. */
static void put_ranks(FILE *out, const struct plan_drawing *d, int s)
{
    const struct merak_stage_mesh mesh = merak_plan_mesh(d->plan, s);

    if (d->plan->stage != NULL)
        fprintf(out, "<td>%d x %d</td><td class=\"r\">%d-%d</td>", mesh.dp,
                mesh.tp, mesh.first, mesh.first + merak_stage_ranks(&mesh) - 1);
    if (d->kind != NULL)
        put_cell(out, d->kind[d->stage[s].kind].device->name);
}

static void put_stage(FILE *out, const struct plan_drawing *d, int s)
{
    const struct merak_search_stage *st = &d->stage[s];
    char text[160];

    fprintf(out, "<tr><td class=\"r\">%d</td>", s);
    put_ranks(out, d, s);
    put_cell(out, st->layers);
    put_right(out, plan_count_text((double)st->params, text));
    fprintf(out, "<td class=\"r\">%d</td>", st->n_blocks);
    snprintf(text, sizeof(text), "%d%s", st->blocks_recomputed,
             st->attention ? " and attention" : "");
    put_cell(out, text);
    put_seconds(out, st->forward_s);
    put_seconds(out, st->backward_s);
    put_seconds(out, st->recompute_s);
    put_size(out, st->sent_bytes[0]);
    put_size(out, merak_search_far_bytes(st));
    snprintf(text, sizeof(text), "%s .. %s", st->first_param, st->last_param);
    put_cell(out, text);
    fputs("</tr>\n", out);
}

static void put_stages(FILE *out, const struct plan_drawing *d)
{
    fprintf(
        out,
        "<h2>Stages</h2>\n<p>Blocks are attentions and MLPs, or what the "
        "model has instead. Times are of one micro-batch; data sent in a "
        "step are one rank's.</p>\n"
        "<table>\n<tr><th>stage</th>%s%s"
        "<th>layers</th><th>parameters</th><th>blocks</th><th>recomputed</th>"
        "<th>forward</th><th>backward</th><th>recompute</th>"
        "<th>sent intra-%s</th><th>inter-%s</th><th>from .. to</th>"
        "</tr>\n",
        d->plan->stage != NULL
            ? "<th>replicas x tp</th><th class=\"r\">ranks</th>"
            : "",
        d->kind != NULL ? "<th>device</th>" : "", d->near, d->near);
    for (int s = 0; s < d->plan->pp; s++)
        put_stage(out, d, s);
    fputs("</table>\n", out);
}

/* .. and what the limit leaves, if there is one. */
static void put_memory(FILE *out, const struct plan_drawing *d)
{
    const bool away = plan_uses_host(d->stage, d->plan->pp);
    bool shown[MERAK_CAT_COUNT];

    fputs("<h2>Memory of a rank</h2>\n<table>\n<tr><th>stage</th>", out);
    for (int c = 0; c < MERAK_CAT_COUNT; c++) {
        shown[c] =
            plan_shows_category(d->stage, d->plan->pp, (enum merak_category)c);
        if (shown[c])
            fprintf(out, "<th class=\"r\">%s</th>",
                    merak_category_name((enum merak_category)c));
    }
    fputs("<th class=\"r\">total</th>", out);
    if (d->limit_bytes > 0)
        fputs("<th class=\"r\">left</th>", out);
    if (away)
        fputs("<th class=\"r\">in the host's</th>", out);
    fputs("</tr>\n", out);
    for (int s = 0; s < d->plan->pp; s++) {
        const struct merak_search_stage *st = &d->stage[s];

        fprintf(out, "<tr><td class=\"r\">%d</td>", s);
        for (int c = 0; c < MERAK_CAT_COUNT; c++) {
            if (shown[c])
                put_size(out, (double)st->category_bytes[c]);
        }
        put_size(out, (double)st->arena_bytes);
        if (d->limit_bytes > 0)
            put_size(out, (double)(st->limit_bytes > 0 ? st->limit_bytes
                                                       : d->limit_bytes) -
                              (double)st->arena_bytes);
        if (away)
            put_size(out, (double)st->host_bytes);
        fputs("</tr>\n", out);
    }
    fputs("</table>\n", out);
}

static void put_runners(FILE *out, const struct merak_search_result *r)
{
    if (r->n_choices < 2) /* all choices were given */
        return;
    fprintf(out,
            "<h2>Runners-up</h2>\n<p>%d plans estimated, %d simulated.</p>\n"
            "<table>\n<tr><th>plan</th><th>step</th><th>why not chosen</th>"
            "</tr>\n",
            r->n_rated, r->n_simulated);
    for (int i = 1; i < r->n_choices; i++) {
        char plan[MERAK_PLAN_TEXT];

        fputs("<tr>", out);
        merak_plan_describe(&r->choice[i].plan, plan, sizeof(plan));
        put_cell(out, plan);
        put_seconds(out, r->choice[i].step_s);
        put_cell(out, r->choice[i].why);
        fputs("</tr>\n", out);
    }
    fputs("</table>\n", out);
}

enum merak_status plan_page_write(const struct plan_drawing *d, const char *svg,
                                  char **text_p, struct merak_error *err)
{
    struct merak_text_writer writer;
    FILE *out = merak_text_open(&writer);

    if (out == NULL)
        return merak_text_close(&writer, text_p, err);
    put_head(out, d);
    if (d->result != NULL)
        put_choices(out, &d->result->choice[0].plan);
    put_totals(out, d);
    if (d->advice != NULL)
        put_advice(out, d->advice);
    fputs(svg, out);
    if (d->result != NULL)
        put_parts(out, d->result);
    if (d->islands != NULL && *d->islands != '\0')
        put_islands(out, d->islands);
    put_stages(out, d);
    put_memory(out, d);
    if (d->result != NULL)
        put_runners(out, d->result);
    fputs("</body></html>\n", out);
    return merak_text_close(&writer, text_p, err);
}
