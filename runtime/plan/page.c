/* SPDX-License-Identifier: Apache-2.0 */
/* page.c - a plan as a self-contained page for a browser */
#include "config.h"

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

static void put_number(FILE *out, double value, const char *unit)
{
    char number[MERAK_NUMBER_TEXT];

    fprintf(out, "<td class=\"r\">%s%s%s</td>",
            merak_number_text(value, number), unit[0] != '\0' ? " " : "", unit);
}

static void put_size(FILE *out, double bytes)
{
    char text[MERAK_BYTES_TEXT];

    merak_bytes_text(bytes, text);
    fprintf(out, "<td class=\"r\">%s</td>", text);
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
          "th{font-weight:600}.r{text-align:right}\n"
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
    size_t most = 0;

    for (int s = 0; s < d->plan->pp; s++) {
        const struct merak_stage_mesh mesh = merak_plan_mesh(d->plan, s);
        double ranks = merak_stage_ranks(&mesh);

        link += d->stage[s].sent_bytes[0] * ranks;
        net += d->stage[s].sent_bytes[1] * ranks;
        if (d->stage[s].arena_bytes > most)
            most = d->stage[s].arena_bytes;
    }
    fputs("<table><tr><td>step</td>", out);
    put_number(out, d->step_s, "s");
    fputs("</tr><tr><td>tokens a second</td>", out);
    put_number(out, d->tokens_per_s, "");
    fputs("</tr><tr><td>pipeline bubble</td>", out);
    put_number(out, 100 * d->bubble, "%");
    if (d->result != NULL) {
        fprintf(out, "</tr><tr><td>of %s</td>",
                plan_report_utilisation(d->result));
        put_number(out, 100 * d->utilisation, "%");
    }
    fputs("</tr><tr><td>largest rank</td>", out);
    put_size(out, (double)most);
    fputs("</tr><tr><td>sent in a step, within nodes</td>", out);
    put_size(out, link);
    fputs("</tr><tr><td>sent in a step, between nodes</td>", out);
    put_size(out, net);
    fputs("</tr></table>\n", out);
    if (*plan_fetch_text(d->stage, d->plan->pp, d->fetch_s, fetches))
        fprintf(out, "<p>%s</p>\n", fetches);
}

static void put_parts(FILE *out, const struct merak_search_choice *c)
{
    fputs("<h2>Where the time of a step goes</h2>\n<table>\n", out);
    for (int i = 0; i < MERAK_PART_COUNT; i++) {
        double share = c->part_s[i] / c->step_s;

        fputs("<tr>", out);
        put_cell(out, merak_search_part_name((enum merak_search_part)i));
        put_number(out, c->part_s[i], "s");
        put_number(out, 100 * share, "%");
        fprintf(out,
                "<td><span class=\"b\" style=\"width:%.0fpx\"></span></td>"
                "</tr>\n",
                share > 0 ? 400 * share : 0.0);
    }
    fputs("</table>\n", out);
}

static void put_stage(FILE *out, const struct plan_drawing *d, int s)
{
    const struct merak_search_stage *st = &d->stage[s];
    char text[160];

    fprintf(out, "<tr><td class=\"r\">%d</td>", s);
    put_cell(out, st->layers);
    put_number(out, (double)st->params / 1e6, "M");
    fprintf(out, "<td class=\"r\">%d</td>", st->n_blocks);
    snprintf(text, sizeof(text), "%d%s", st->blocks_recomputed,
             st->attention ? " and attention" : "");
    put_cell(out, text);
    put_number(out, 1e3 * st->forward_s, "ms");
    put_number(out, 1e3 * st->backward_s, "ms");
    put_number(out, 1e3 * st->recompute_s, "ms");
    for (int c = 0; c < MERAK_CAT_COUNT; c++) {
        if (plan_shows_category(d->stage, d->plan->pp, (enum merak_category)c))
            put_size(out, (double)st->category_bytes[c]);
    }
    put_size(out, (double)st->arena_bytes);
    put_size(out, st->sent_bytes[0]);
    put_size(out, st->sent_bytes[1]);
    snprintf(text, sizeof(text), "%s .. %s", st->first_param, st->last_param);
    put_cell(out, text);
    fputs("</tr>\n", out);
}

static void put_stages(FILE *out, const struct plan_drawing *d)
{
    fputs("<h2>Stages</h2>\n<p>Blocks are attentions and MLPs, or what the "
          "model has instead. Times are of one micro-batch; memory and data "
          "sent in a step are one rank's.</p>\n"
          "<div style=\"overflow-x:auto\"><table>\n<tr><th>stage</th>"
          "<th>layers</th><th>parameters</th><th>blocks</th><th>recomputed</th>"
          "<th>forward</th><th>backward</th><th>recompute</th>",
          out);
    for (int c = 0; c < MERAK_CAT_COUNT; c++) {
        if (plan_shows_category(d->stage, d->plan->pp, (enum merak_category)c))
            fprintf(out, "<th>%s</th>",
                    merak_category_name((enum merak_category)c));
    }
    fputs("<th>total</th><th>sent intra-node</th><th>inter-node</th><th>from "
          ".. to</th></tr>\n",
          out);
    for (int s = 0; s < d->plan->pp; s++)
        put_stage(out, d, s);
    fputs("</table></div>\n", out);
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
        put_number(out, r->choice[i].step_s, "s");
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
    fputs(svg, out);
    if (d->result != NULL)
        put_parts(out, &d->result->choice[0]);
    put_stages(out, d);
    if (d->result != NULL)
        put_runners(out, d->result);
    fputs("</body></html>\n", out);
    return merak_text_close(&writer, text_p, err);
}
