/* SPDX-License-Identifier: Apache-2.0 */
/* plan_report.c - results of the search for a plan: as text, and as the plan
 * file that merak-plan(1) describes
 */
#include "config.h"

#include "runtime/plan/advice.h"
#include "runtime/plan/auto.h"
#include "runtime/plan/draw.h"
#include "runtime/plan/plan_islands.h"
#include "runtime/plan/plan_levels.h"
#include "runtime/plan/node_kinds.h"
#include "runtime/plan/plan_saved.h"

#include "base/error.h"
#include "base/output.h"
#include "base/size.h"
#include "io/json_real.h"
#include "partitioner/graph/letters.h"
#include "partitioner/simulate/timeline.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- text ----------------------------------------------------------------- */

const char *plan_count_text(double n, char text[MERAK_SECONDS_TEXT])
{
    static const char *const unit[] = {"", " k", " M", " B", " T"};
    int u = 0;

    while (n >= 999.95 && u < 4) {
        n /= 1000;
        u++;
    }
    snprintf(text, MERAK_SECONDS_TEXT, "%.4g%s", n, unit[u]);
    return text;
}

void plan_report_heading(const struct plan_auto *plan,
                         const struct merak_search_result *r, char *text,
                         size_t bytes)
{
    char params[MERAK_SECONDS_TEXT], nodes[PLAN_KINDS_TEXT];

    snprintf(text, bytes, "%s, %s parameters, on %s", plan->model.name,
             plan_count_text((double)r->params, params),
             plan_kinds_text(&plan->in, nodes));
}

/* To be copied and edited. */
static void print_choices(const struct merak_plan *plan)
{
    char *choices = merak_choices_line(plan);

    if (choices != NULL)
        printf("all choices of this plan, to fix some of them:\n"
               "--what-if %s\n\n",
               choices);
    free(choices);
}

void plan_report_choice(const struct merak_search_result *r, char *text,
                        size_t bytes)
{
    const struct merak_search_choice *c = &r->choice[0];
    size_t n;

    merak_plan_describe(&c->plan, text, bytes);
    n = strlen(text);
    if (c->plan.tp > 1 && c->plan.sp == MERAK_SP_AUTO)
        snprintf(text + n, bytes - n, "; %s cut over tp",
                 c->cuts.over_tp ? "sequences are" : "no sequence is");
    n = strlen(text);
    if (c->plan.cp > 1 && c->cuts.letter != MERAK_LETTER_POSITIONS)
        merak_space_cuts_text(&c->cuts, text + n, bytes - n);
    else if (c->plan.cp > 1)
        snprintf(text + n, bytes - n,
                 "; over cp (%s) keys are gathered in %d attention%s, heads "
                 "exchanged in %d",
                 c->cuts.head_tail ? "head-tail" : "contiguous",
                 c->cuts.gathered, merak_plural(c->cuts.gathered),
                 c->cuts.exchanged);
}

static void print_choice(const struct plan_auto *plan,
                         const struct merak_search_result *r)
{
    char text[MERAK_PLAN_TEXT];

    plan_report_heading(plan, r, text, sizeof(text));
    printf("%s\n", text);
    plan_report_choice(r, text, sizeof(text));
    printf("%s\n", text);
    if (plan->identified)
        printf("program id %016" PRIx64 "\n", plan->file.program);
    plan_saved_print(plan->opt, plan->file.program);
    if (plan->by_hosts && plan->in.n_kinds > 1)
        puts("transport: ucx, staged through host memory, between nodes of "
             "several kinds");
    else if (plan->by_hosts && r->choice[0].plan.stage != NULL)
        puts("transport: ucx, staged through host memory: unlike stages are "
             "predicted so; a run\nuses NCCL if it can");
    else if (plan->by_hosts)
        puts("transport: ucx, staged through host memory: no plan was proved "
             "to run to its end in NCCL's in-order queues");
}

const char *plan_report_utilisation(const struct merak_search_result *r)
{
    return r->of_peak ? "peak FLOP/s"
                      : "sustained FLOP/s (the device file has no "
                        "peak_flops_per_s)";
}

const char *plan_report_where(const struct merak_search_result *r,
                              char text[PLAN_WHERE_TEXT])
{
    text[0] = '\0';
    if (r->choice[0].plan.pp > 1)
        snprintf(text, PLAN_WHERE_TEXT, " on stage %d, which has the most work",
                 r->busiest);
    return text;
}

const char *plan_report_elsewhere(const struct merak_search_result *r,
                                  enum merak_search_part part)
{
    const struct merak_search_stage *busiest = &r->stage[r->busiest];
    bool here = busiest->attention || busiest->blocks_recomputed > 0;

    for (int s = 0; s < r->choice[0].plan.pp && !here; s++) {
        if (part == MERAK_PART_RECOMPUTE &&
            (r->stage[s].attention || r->stage[s].blocks_recomputed > 0))
            return "  (other stages recompute, see below)";
    }
    return "";
}

static void print_time(const struct plan_auto *plan,
                       const struct merak_search_result *r)
{
    const struct merak_search_choice *c = &r->choice[0];
    struct plan_rate rate = plan_rate_of(c->cuts.letter, plan->in.global_batch,
                                         plan->in.seq, c->step_s);
    char step[MERAK_SECONDS_TEXT], part[MERAK_SECONDS_TEXT];
    char where[PLAN_WHERE_TEXT];

    plan_report_where(r, where);
    printf("step %s, %.0f %s/s, %.1f%% of %s%s%s%s\n",
           merak_seconds_text(c->step_s, step), rate.per_s, rate.what,
           100 * r->flop_utilisation, plan_report_utilisation(r),
           where[0] != '\0' ? ";" : "", where, where[0] != '\0' ? ":" : "");
    for (int i = 0; i < MERAK_PART_COUNT; i++)
        printf("  %-32s %12s %6.1f%%%s\n",
               merak_search_part_name((enum merak_search_part)i),
               merak_seconds_text(c->part_s[i], part),
               100 * c->part_s[i] / c->step_s,
               plan_report_elsewhere(r, (enum merak_search_part)i));
}

/* Of what is sent between nodes, the bytes of each level of links if there are
 * several. */
static void print_levels(const struct plan_auto *plan,
                         const struct merak_search_result *r)
{
    const struct merak_links links = merak_search_links(&plan->in);
    const struct merak_plan *p = &r->choice[0].plan;
    int last = merak_links_last(&links);
    char text[MERAK_BYTES_TEXT];

    for (int l = 1; l <= last && last > 1; l++) {
        double bytes = 0;

        for (int s = 0; s < p->pp; s++) {
            const struct merak_stage_mesh mesh = merak_plan_mesh(p, s);

            bytes += r->stage[s].sent_bytes[l] * merak_stage_ranks(&mesh);
        }
        merak_bytes_text(bytes, text);
        printf("%s%s %s%s", l == 1 ? " (" : ", ", links.level[l].name, text,
               l == last ? ")" : "");
    }
}

/* Bytes that all ranks send in a step. */
static void print_links(const struct plan_auto *plan,
                        const struct merak_search_result *r)
{
    const struct merak_plan *p = &r->choice[0].plan;
    double link = 0, net = 0, cp = 0;
    char fetches[PLAN_FETCH_TEXT];
    char inside[MERAK_BYTES_TEXT], between[MERAK_BYTES_TEXT];
    char over_cp[MERAK_BYTES_TEXT];

    for (int s = 0; s < p->pp; s++) {
        const struct merak_stage_mesh mesh = merak_plan_mesh(p, s);
        double ranks = merak_stage_ranks(&mesh);

        link += r->stage[s].sent_bytes[0] * ranks;
        net += merak_search_far_bytes(&r->stage[s]) * ranks;
        cp += r->stage[s].cp_bytes * ranks;
    }
    merak_bytes_text(link, inside);
    merak_bytes_text(net, between);
    merak_bytes_text(cp, over_cp);
    printf("sent in a step: %s within %ss, %s between", inside,
           merak_search_near_word(&plan->in), between);
    print_levels(plan, r);
    if (p->cp > 1)
        printf("; over cp %s beside gradients", over_cp);
    putchar('\n');
    if (*plan_fetch_text(r->stage, p->pp, r->choice[0].fetch_s, fetches))
        puts(fetches);
    if (*plan_offload_text(p, r->stage, r->choice[0].offload_s, fetches))
        puts(fetches);
}

/* The kind of the nodes of a stage; equal stages may be on any. */
static const char *device_of(const struct plan_auto *plan,
                             const struct merak_search_result *r, int stage)
{
    return r->stage[stage].limit_bytes > 0
               ? plan->in.kind[r->stage[stage].kind].device->name
               : "any";
}

/* Of stages whose ranks or nodes are unlike: what they are. */
static void print_ranks(const struct plan_auto *plan,
                        const struct merak_search_result *r, int s)
{
    struct merak_stage_mesh mesh;
    char ranks[24] = "ranks";

    if (r->choice[0].plan.stage == NULL && plan->in.n_kinds < 2)
        return;
    if (s >= 0) {
        mesh = merak_plan_mesh(&r->choice[0].plan, s);
        snprintf(ranks, sizeof(ranks), "%d x %d", mesh.dp, mesh.tp);
    }
    printf(" %8s", ranks);
    if (plan->in.n_kinds > 1)
        printf(" %10s", s < 0 ? "device" : device_of(plan, r, s));
}

static void print_stages(const struct plan_auto *plan,
                         const struct merak_search_result *r)
{
    printf("\nstage");
    print_ranks(plan, r, -1);
    printf("     layers   params    forward   backward  in flight  "
           "recomputed  intra-%s GB  inter-%s GB  parameters\n",
           merak_search_near_word(&plan->in),
           merak_search_near_word(&plan->in));
    for (int s = 0; s < r->choice[0].plan.pp; s++) {
        const struct merak_search_stage *st = &r->stage[s];
        char again[32], params[MERAK_SECONDS_TEXT];
        char forward[MERAK_SECONDS_TEXT], backward[MERAK_SECONDS_TEXT];

        snprintf(again, sizeof(again), "%d/%d", st->blocks_recomputed,
                 st->n_blocks);
        printf("%5d", s);
        print_ranks(plan, r, s);
        printf(" %10s %8s %10s %10s %10d %11s %14.4g %14.4g  %s .. %s\n",
               st->layers, plan_count_text((double)st->params, params),
               merak_seconds_text(st->forward_s, forward),
               merak_seconds_text(st->backward_s, backward), st->in_flight,
               st->attention ? "attention" : again, st->sent_bytes[0] / 1e9,
               merak_search_far_bytes(st) / 1e9, st->first_param,
               st->last_param);
    }
}

static void print_memory(const struct merak_search_result *r)
{
    int pp = r->choice[0].plan.pp;
    char text[MERAK_BYTES_TEXT];
    bool shown[MERAK_CAT_COUNT], away = false;

    for (int c = 0; c < MERAK_CAT_COUNT; c++)
        shown[c] = plan_shows_category(r->stage, pp, (enum merak_category)c);
    for (int s = 0; s < pp; s++)
        away = away || r->stage[s].host_bytes > 0;
    merak_bytes_text((double)r->memory_limit, text);
    printf("\nmemory of a rank; the limit is %s", text);
    merak_bytes_text((double)(r->memory_limit + r->direct_bytes), text);
    if (r->direct_bytes > 0)
        printf(": %s", text);
    merak_bytes_text((double)r->direct_bytes, text);
    if (r->direct_bytes > 0)
        printf(" less %s that NCCL may take", text);
    printf("\nstage");
    for (int c = 0; c < MERAK_CAT_COUNT; c++) {
        if (shown[c])
            printf(" %13s", merak_category_name((enum merak_category)c));
    }
    printf(" %13s %13s%s\n", "total", "left", away ? "  in the host's" : "");
    for (int s = 0; s < pp; s++) {
        const struct merak_search_stage *st = &r->stage[s];

        printf("%5d", s);
        for (int c = 0; c < MERAK_CAT_COUNT; c++) {
            merak_bytes_text((double)st->category_bytes[c], text);
            if (shown[c])
                printf(" %13s", text);
        }
        merak_bytes_text((double)st->arena_bytes, text);
        printf(" %13s", text);
        merak_bytes_text(
            (double)(st->limit_bytes > 0 ? st->limit_bytes : r->memory_limit) -
                (double)st->arena_bytes,
            text);
        printf(" %13s", text);
        merak_bytes_text((double)st->host_bytes, text);
        if (away)
            printf(" %14s", text);
        putchar('\n');
    }
}

/* Print choices that differ from the chosen plan and that the line does not
 * have yet. */
static void print_others(const struct merak_plan *p,
                         const struct merak_plan *chosen)
{
    struct merak_choices choices;
    char text[MERAK_CHOICE_TEXT(0)];

    merak_choices_of(p, &choices);
    for (int i = 0; i < MERAK_CHOICE_COUNT; i++) {
        const struct merak_choice *c = &merak_choice[i];

        if (!c->is_told || p->zero < c->least_zero[0] ||
            (i == MERAK_CHOICE_SP && merak_plan_tensor_ranks(p) == 1) ||
            merak_choice_compare(c, p, chosen) == 0)
            continue;
        merak_choice_text(c, &choices, text, sizeof(text));
        printf(", %s %s", c->option.name, text);
    }
}

static void print_runner(const struct merak_search_choice *c,
                         const struct merak_plan *chosen)
{
    const struct merak_plan *p = &c->plan;
    char step[MERAK_SECONDS_TEXT], degrees[MERAK_DEGREES_TEXT];

    printf("  %s, micro-batch %zu", merak_plan_degrees_text(p, ", ", degrees),
           p->micro_batch * (p->sub_pipeline ? 2 : 1));
    if (p->pp > 1 || strcmp(p->schedule, "1f1b") != 0)
        printf(", %s", p->schedule);
    if (p->chunks > 1)
        printf(" of %d chunks", p->chunks);
    if (p->tp_batch_percent > 0)
        printf(", tp-batch %d", p->tp_batch_percent);
    printf("%s%s%s", p->sub_pipeline ? ", sub-pipeline" : "",
           p->recompute == MERAK_RECOMPUTE_NONE ? "" : ", recomputation",
           merak_plan_branches_text(p));
    print_others(p, chosen);
    printf(": %s%s\n      %s\n", merak_seconds_text(c->step_s, step),
           c->simulated ? "" : " (estimated)", c->why);
}

static void print_runners(const struct merak_search_result *r)
{
    if (r->n_choices < 2) /* all choices were given */
        return;
    printf("\n%d plan%s estimated, %d simulated; runners-up:\n", r->n_rated,
           merak_plural(r->n_rated), r->n_simulated);
    for (int i = 1; i < r->n_choices; i++)
        print_runner(&r->choice[i], &r->choice[0].plan);
}

void plan_report_print(const struct plan_auto *plan,
                       const struct merak_search_result *result,
                       const struct plan_advice *advice)
{
    char text[PLAN_SEARCH_TEXT];

    print_choice(plan, result);
    print_time(plan, result);
    plan_load_print(plan, &result->choice[0].plan);
    if (plan_search_text(result, text) != NULL)
        puts(text);
    if (plan_bound_text(result, text) != NULL)
        puts(text);
    plan_advice_print(advice);
    print_choices(&result->choice[0].plan);
    print_links(plan, result);
    plan_islands_print(stdout, plan, result);
    print_stages(plan, result);
    print_memory(result);
    print_runners(result);
}

/* --- the plan file -------------------------------------------------------- */

static json_t *stage_object(const struct merak_search_stage *s)
{
    json_t *memory = json_object();

    for (int c = 0; c < MERAK_CAT_COUNT; c++)
        json_object_set_new(memory, merak_category_name((enum merak_category)c),
                            json_integer((json_int_t)s->category_bytes[c]));
    return json_pack(
        "{s:s, s:I, s:f, s:f, s:f, s:f, s:b, s:i, s:i, s:i, s:i, s:f, s:i, "
        "s:s, s:s, s:f, s:f, s:I, s:I, s:f, s:o}",
        "layers", s->layers, "params", (json_int_t)s->params, "flops", s->flops,
        "forward_s", s->forward_s, "backward_s", s->backward_s, "recompute_s",
        s->recompute_s, "attention_recomputed", s->attention, "blocks",
        s->n_blocks, "blocks_recomputed", s->blocks_recomputed,
        "blocks_offloaded", s->blocks_away, "blocks_fetched", s->blocks_fetched,
        "fetched_bytes", s->fetched_bytes, "in_flight", s->in_flight,
        "first_param", s->first_param, "last_param", s->last_param,
        "link_bytes", s->sent_bytes[0], "net_bytes", merak_search_far_bytes(s),
        "arena_bytes", (json_int_t)s->arena_bytes, "host_bytes",
        (json_int_t)s->host_bytes, "offloaded_bytes", s->offloaded_bytes,
        "memory_bytes", memory);
}

static json_t *runner_object(const struct merak_search_choice *c)
{
    json_t *runner = merak_plan_object(&c->plan);

    json_object_set_new(runner, "step_s", merak_json_real(c->step_s));
    json_object_set_new(runner, "simulated", json_boolean(c->simulated));
    json_object_set_new(runner, "fits", json_boolean(c->fits));
    json_object_set_new(runner, "why", json_string(c->why));
    return runner;
}

/* A name that is not UTF-8, as paths may be, becomes null. */
json_t *plan_request_object(const struct plan_model *model,
                            const struct merak_search_input *in)
{
    char device[PLAN_KINDS_TEXT], levels[PLAN_LEVELS_TEXT];
    size_t n = 0;
    json_t *request;

    snprintf(device, sizeof(device), "%s", in->device->name);
    for (int k = 0; k < in->n_kinds && n < sizeof(device); k++)
        n += (size_t)snprintf(device + n, sizeof(device) - n, "%s%d:%s",
                              k > 0 ? "," : "", in->kind[k].nodes,
                              in->kind[k].device->name);
    request = json_pack("{s:o?, s:o?, s:i, s:i, s:i, s:I, s:I}", "model",
                        json_string(model->source), "device",
                        json_string(device), "nodes", in->nodes,
                        "ranks_per_node", in->ranks_per_node, "rack_nodes",
                        merak_search_rack_nodes(in), "seq", (json_int_t)in->seq,
                        "global_batch", (json_int_t)in->global_batch);
    if (in->n_kinds == 0 && *plan_levels_text(in->device, levels))
        json_object_set_new(request, "levels", json_string(levels));
    return request;
}

/* Bytes by level of links if there are more than two. */
static void put_level_bytes(json_t *out, const struct plan_auto *plan,
                            const struct merak_search_stage *stage)
{
    const struct merak_links links = merak_search_links(&plan->in);
    int last = merak_links_last(&links);
    json_t *bytes;

    if (last == 1)
        return;
    bytes = json_object();
    for (int l = 0; l <= last; l++)
        json_object_set_new(bytes, links.level[l].name,
                            merak_json_real(stage->sent_bytes[l]));
    json_object_set_new(out, "level_bytes", bytes);
}

/* The predictions for the plan. */
static json_t *prediction_object(const struct plan_auto *plan,
                                 const struct merak_search_result *r)
{
    const struct merak_search_choice *c = &r->choice[0];
    json_t *stages = json_array(), *runners = json_array();
    json_t *parts = json_object();

    for (int s = 0; s < c->plan.pp; s++) {
        json_t *stage = stage_object(&r->stage[s]);

        put_level_bytes(stage, plan, &r->stage[s]);
        if (plan->in.n_kinds > 1)
            json_object_set_new(stage, "device",
                                json_string(device_of(plan, r, s)));
        json_array_append_new(stages, stage);
    }
    for (int i = 1; i < r->n_choices; i++)
        json_array_append_new(runners, runner_object(&r->choice[i]));
    for (int i = 0; i < MERAK_PART_COUNT; i++)
        json_object_set_new(parts,
                            merak_search_part_name((enum merak_search_part)i),
                            merak_json_real(c->part_s[i]));
    return json_pack(
        "{s:o, s:I, s:f, s:f, s:f, s:f, s:o, s:f, s:s, s:b, s:I, s:o, s:o, "
        "s:o*, s:o*, s:o*, s:o*}",
        "request", plan_request_object(&plan->model, &plan->in), "params",
        (json_int_t)r->params, "step_s", c->step_s, "least_step_s", r->bound_s,
        "fetch_exposed_s", c->fetch_s, "offload_exposed_s", c->offload_s,
        "parts_s", parts, "flop_utilisation", r->flop_utilisation,
        "flop_utilisation_of", r->of_peak ? "peak" : "sustained",
        "sequences_cut", c->cuts.over_tp, "memory_limit_bytes",
        (json_int_t)r->memory_limit, "stages", stages, "runners_up", runners,
        "search_cut_short",
        r->cut_short ? json_pack("{s:f, s:i}", "after_s", r->took_s,
                                 "estimated", r->n_rated)
                     : NULL,
        "expert_load",
        plan->loaded_s > 0
            ? json_pack("{s:f, s:f, s:f}", "load", plan->opt->expert_load,
                        "step_s", plan->loaded_s, "most", plan->most_load)
            : NULL,
        "island_order", plan_islands_object(plan, r), "island_hops",
        plan_hops_object(plan));
}

enum merak_status plan_json_save(json_t *object, const char *path,
                                 struct merak_error *err)
{
    const size_t flags = JSON_INDENT(2) | JSON_REAL_PRECISION(9);
    struct merak_output out;
    enum merak_status rc;
    bool fine;

    if (object == NULL)
        return merak_fail_nomem(err, 1);
    rc = merak_output_open(&out, path, err);
    if (rc == MERAK_OK) {
        fine = json_dumpf(object, out.file, flags) == 0;
        if (fine && out.file == stdout)
            putchar('\n');
        rc = merak_output_close(&out, fine, err);
    }
    json_decref(object);
    return rc;
}

static json_t *lines_object(const struct plan_lines *lines)
{
    json_t *array = json_array();

    for (int i = 0; i < lines->n; i++)
        json_array_append_new(array, json_string(lines->line[i]));
    return array;
}

/* A change without a plan has null for its numbers. */
static json_t *advice_object(const struct plan_advice *advice)
{
    json_t *changes = json_array();

    for (int i = 0; i < advice->n_changes; i++) {
        const struct plan_change *c = &advice->change[i];
        bool plans = c->step_s > 0;

        json_array_append_new(
            changes,
            json_pack("{s:s, s:o?, s:o?, s:o?}", "what", c->what, "step_s",
                      plans ? merak_json_real(c->step_s) : NULL,
                      "tokens_per_s_times",
                      plans ? merak_json_real(c->tokens_per_s) : NULL,
                      "gpu_hours_times",
                      plans ? merak_json_real(c->gpu_hours) : NULL));
    }
    return json_pack("{s:{s:o, s:o, s:o}}", "advice", "says",
                     lines_object(&advice->words), "changes", changes,
                     "commands", lines_object(&advice->commands));
}

enum merak_status plan_report_save(const struct plan_auto *plan,
                                   const struct merak_search_result *result,
                                   const struct plan_advice *advice,
                                   struct merak_error *err)
{
    struct merak_plan_file file = plan->file;
    json_t *object = merak_plan_file_object(&file);

    if (json_object_update_new(object, prediction_object(plan, result)) != 0 ||
        json_object_update_new(object, advice_object(advice)) != 0) {
        json_decref(object);
        object = NULL;
    }
    return plan_json_save(object, plan->opt->json, err);
}
