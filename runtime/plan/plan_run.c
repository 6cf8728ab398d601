/* SPDX-License-Identifier: Apache-2.0 */
/* plan_run.c - `merak plan`: what a run would look like */
#include "config.h"

#include "runtime/plan/node_kinds.h"
#include "runtime/plan/plan_run.h"

#include "runtime/plan/auto.h"
#include "runtime/plan/draw.h"
#include "runtime/plan/listed.h"
#include "runtime/plan/planned_model.h"
#include "runtime/plan/plan_options.h"
#include "runtime/plan/plan_saved.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/output.h"
#include "base/size.h"
#include "io/plan_file.h"
#include "kernels/kernels.h"
#include "partitioner/assembly/assembly.h"
#include "partitioner/graph/letters.h"
#include "partitioner/search/node_orders.h"
#include "partitioner/simulate/timeline.h"
#include "partitioner/simulate/check.h"
#include "partitioner/simulate/check_streams.h"
#include "partitioner/simulate/fetches.h"
#include "partitioner/simulate/simulate.h"
#include "runtime/runtime.h"
#include "runtime/train/chosen.h"
#include "runtime/train/phases.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct report {
    const struct plan_options *opt;
    const struct plan_model *model;
    struct merak_planned *planned;
    struct merak_timeline *timeline;
    struct merak_search_stage *stage; /* rows as a search returns them */
    double fetch_s;    /* of the step, waiting for fetched parameters */
    double offload_s;  /* and for what is the host's */
    double idle;       /* of the compute queues, as a share of the step */
    uint64_t programs; /* program id */
};

/* --- numbers -------------------------------------------------------------- */

static double mib(size_t bytes)
{
    return (double)bytes / 0x1p20;
}

static char letter_of(const struct report *r)
{
    return merak_graph_sequence_letter(r->planned->graph);
}

static struct plan_rate rate_of(const struct report *r)
{
    return plan_rate_of(letter_of(r), r->opt->global_batch, r->opt->seq,
                        r->timeline->step_s);
}

/* First or last parameter of a stage. */
static const char *param_name(const struct report *r, int stage, bool last)
{
    const struct merak_program *prog = r->planned->program[stage];

    if (prog->n_params == 0)
        return "-";
    return prog->param[last ? prog->n_params - 1 : 0].name;
}

static double mean_idle(const struct report *r)
{
    double busy = 0;

    for (int s = 0; s < r->timeline->n; s++)
        busy += r->timeline->busy_s[s];
    return 1.0 - busy / r->timeline->n / r->timeline->step_s;
}

/* --- text ----------------------------------------------------------------- */

static void print_head(const struct report *r)
{
    const struct merak_plan *p = &r->planned->plan;
    char degrees[MERAK_DEGREES_TEXT], machine[PLAN_MACHINE_TEXT], lossy[256];

    printf("%s, %.1f M parameters", r->model->name,
           (double)merak_graph_param_count(r->planned->graph) / 1e6);
    if (r->model->layers > 0)
        printf(", %zu layer%s", r->model->layers,
               merak_plural((long)r->model->layers));
    puts(plan_listed_text(r->opt, merak_plan_ranks(p), machine));
    printf("%d rank%s: %s; %s, %s%s\n", merak_plan_ranks(p),
           merak_plural(merak_plan_ranks(p)),
           merak_plan_degrees_text(p, ", ", degrees), p->schedule,
           merak_plan_dtype_text(p), merak_plan_state_text(p));
    if (letter_of(r) == MERAK_LETTER_POSITIONS)
        printf("%zu sequence%s of %zu tokens", r->opt->global_batch,
               merak_plural((long)r->opt->global_batch), r->opt->seq);
    else
        printf("%zu sample%s", r->opt->global_batch,
               merak_plural((long)r->opt->global_batch));
    printf(" a step: %d micro-batch%s of %zu on %s\nprogram id %016" PRIx64
           "\n",
           p->microbatches, p->microbatches == 1 ? "" : "es", p->micro_batch,
           p->stage != NULL ? "all replicas together" : "each replica",
           r->programs);
    if (merak_lossy_any(&p->lossy))
        puts(merak_lossy_describe(&p->lossy, p->pp, lossy, sizeof(lossy)));
}

/* Fill in what is summed over the parts of a stage. */
static void fill_parts(const struct report *r, int s,
                       struct merak_search_stage *stage)
{
    const struct merak_stages *stages = r->planned->stages;
    const struct merak_plan *plan = &r->planned->plan;
    const struct merak_schedule *schedule;

    if (merak_plan_schedule(plan, &schedule, NULL) != MERAK_OK)
        return; /* a plan that was built has a schedule */
    for (int c = 0; c < merak_plan_chunks(plan); c++) {
        int part = merak_plan_part(schedule, plan, s, c);
        /* A vocabulary-parallel layer is divided among all stages. */
        int share = part < stages->n - merak_plan_shared(plan) ? 1 : plan->pp;

        stage->params += stages->params[part] / (size_t)share;
        stage->flops += stages->flops[part] / share;
        stage->n_blocks += stages->n_blocks[part];
        merak_search_stage_drops(plan, &stages->drop[part], stage);
    }
}

static struct merak_search_stage *make_stages(const struct report *r)
{
    struct merak_search_stage *stage =
        calloc((size_t)r->planned->n_programs, sizeof(*stage));

    for (int s = 0; stage != NULL && s < r->planned->n_programs; s++) {
        fill_parts(r, s, &stage[s]);
        stage[s].kind = plan_listed_kind(r->opt, &r->planned->plan, s);
        stage[s].limit_bytes = plan_listed_memory(r->opt, &r->planned->plan, s);
        plan_stage_fill(r->planned->program[s], &r->opt->cost.links, &stage[s]);
    }
    return stage;
}

static void print_stages(const struct report *r)
{
    const struct merak_plan *p = &r->planned->plan;
    bool kinds = plan_listed_has_kinds(r->opt);

    printf("\nstage%s%s     layers   M params   GFLOP/micro-batch  busy  "
           "recomputed   parameters\n",
           p->stage != NULL ? "    ranks" : "", kinds ? "     device" : "");
    for (int s = 0; s < r->planned->n_programs; s++) {
        const struct merak_search_stage *st = &r->stage[s];
        char again[32];

        snprintf(again, sizeof(again), "%d/%d", st->blocks_recomputed,
                 st->n_blocks);
        printf("%5d", s);
        if (p->stage != NULL)
            printf(" %4d x %d", p->stage[s].dp, p->stage[s].tp);
        if (kinds)
            printf(" %10s", r->opt->machine.kind[st->kind].name);
        printf(" %10s %10.2f %19.2f %5.0f%%  %-10s   %s .. %s\n", st->layers,
               (double)st->params / 1e6, st->flops / 1e9,
               100.0 * r->timeline->busy_s[s] / r->timeline->step_s,
               st->attention ? "attention" : again, param_name(r, s, false),
               param_name(r, s, true));
    }
}

static void print_memory(const struct report *r)
{
    printf("\nMiB of a rank of stage");
    for (int s = 0; s < r->planned->n_programs; s++)
        printf(" %9d", s);
    putchar('\n');
    for (int c = 0; c < MERAK_CAT_COUNT; c++) {
        if (!plan_shows_category(r->stage, r->planned->n_programs,
                                 (enum merak_category)c))
            continue;
        printf("  %-20s", merak_category_name((enum merak_category)c));
        for (int s = 0; s < r->planned->n_programs; s++)
            printf(" %9.2f", mib(r->planned->program[s]->category_bytes[c]));
        putchar('\n');
    }
    printf("  %-20s", "total");
    for (int s = 0; s < r->planned->n_programs; s++)
        printf(" %9.2f", mib(r->planned->program[s]->arena_bytes));
    if (plan_uses_host(r->stage, r->planned->plan.pp)) {
        printf("\n  %-20s", "in the host's memory");
        for (int s = 0; s < r->planned->n_programs; s++)
            printf(" %9.2f", mib(r->planned->program[s]->host_bytes));
    }
    if (r->opt->machine.is_known && !plan_listed_has_kinds(r->opt)) {
        printf("\n  of a limit of %.2f", mib(r->opt->plan.memory_bytes));
    } else if (r->opt->machine.is_known) {
        printf("\n  %-20s", "limit");
        for (int s = 0; s < r->planned->n_programs; s++)
            printf(" %9.2f", mib(r->stage[s].limit_bytes));
    }
    printf("\n\n");
}

static void print_rates(const struct report *r)
{
    const struct merak_links *links = &r->opt->cost.links;
    int last = r->opt->machine.is_known ? merak_links_last(links) : 0;

    printf("at %.4g GFLOP/s and %.4g GB/s a rank, links of %.4g GB/s",
           r->opt->cost.flops_per_s / 1e9, r->opt->cost.bytes_per_s / 1e9,
           r->opt->cost.links.level[0].bytes_per_s / 1e9);
    for (int l = 1; l <= last; l++)
        printf(", %s %.4g GB/s", l == 1 ? "between nodes" : "then",
               links->level[l].bytes_per_s / 1e9);
    if (last > 0 && r->opt->machine.device.direct)
        printf("\ntransport: ucx, staged through host memory: unlike stages are "
               "predicted so; such\nlinks may be slower than these; a run uses "
               "NCCL if it can");
    printf("\n\n");
}

static void print_prediction(const struct report *r)
{
    const struct merak_plan *p = &r->planned->plan;

    const struct plan_rate rate = rate_of(r);
    char step[MERAK_NUMBER_TEXT], per_s[MERAK_NUMBER_TEXT];
    char fetches[PLAN_FETCH_TEXT];

    printf("step %s s, %s %s/s, idle %.1f%% (a pipeline of even "
           "stages: %.1f%%)\n",
           merak_number_text(r->timeline->step_s, step),
           merak_number_text(rate.per_s, per_s), rate.what, 100.0 * r->idle,
           100.0 * (p->pp - 1) / (p->microbatches + p->pp - 1));
    if (*plan_fetch_text(r->stage, p->pp, r->fetch_s, fetches))
        puts(fetches);
    if (*plan_offload_text(p, r->stage, r->offload_s, fetches))
        puts(fetches);
    for (int k = 0; k < r->opt->several.kinds.n; k++)
        printf("%s: at %.4g GFLOP/s and %.4g GB/s a rank\n",
               r->opt->machine.kind[k].name,
               r->opt->machine.kind[k].flops_per_s[p->dtype] / 1e9,
               r->opt->machine.kind[k].bytes_per_s / 1e9);
    if (plan_listed_has_kinds(r->opt))
        printf("transport: ucx, staged through host memory, between nodes of "
               "several kinds\n\n");
    else
        print_rates(r);
}

/* --- JSON ----------------------------------------------------------------- */

static json_t *stage_object(const struct report *r, int s)
{
    const struct merak_search_stage *st = &r->stage[s];
    json_t *memory = json_object();

    for (int c = 0; c < MERAK_CAT_COUNT; c++)
        json_object_set_new(memory, merak_category_name((enum merak_category)c),
                            json_integer((json_int_t)st->category_bytes[c]));
    return json_pack(
        "{s:i, s:s, s:I, s:f, s:f, s:s, s:s, s:I, s:o, s:i, s:i, "
        "s:i, s:b, s:i, s:f, s:I, s:f, s:s*}",
        "stage", s, "layers", st->layers, "params", (json_int_t)st->params,
        "flops", st->flops, "busy_s", r->timeline->busy_s[s], "first_param",
        param_name(r, s, false), "last_param", param_name(r, s, true),
        "arena_bytes", (json_int_t)st->arena_bytes, "memory_bytes", memory,
        "blocks", st->n_blocks, "blocks_recomputed", st->blocks_recomputed,
        "blocks_offloaded", st->blocks_away, "attention_recomputed",
        st->attention, "blocks_fetched", st->blocks_fetched, "fetched_bytes",
        st->fetched_bytes, "host_bytes", (json_int_t)st->host_bytes,
        "offloaded_bytes", st->offloaded_bytes, "device",
        plan_listed_has_kinds(r->opt) ? r->opt->machine.kind[st->kind].name
                                      : NULL);
}

/* The plan as a file that a run can replay. */
static void fill_file(const struct report *r, struct merak_plan_file *file)
{
    struct merak_search_input in;

    *file = (struct merak_plan_file){.plan = r->planned->plan,
                                     .seq = r->opt->seq,
                                     .global_batch = r->opt->global_batch,
                                     .program = r->programs,
                                     .step_s = r->timeline->step_s,
                                     .device = "given speeds"};
    /* A run would balance stages by its own machine's costs. */
    if (r->planned->sharded->parts != NULL)
        file->plan.cut = r->planned->sharded->parts->place + 1;
    if (r->opt->machine.is_known) {
        plan_listed_request(r->opt, &in);
        merak_chosen_kinds_fill(&in, r->stage, file);
    }
    merak_graph_fingerprint(r->planned->graph, file->model);
    for (int s = 0; s < r->planned->n_programs; s++) {
        size_t bytes = r->planned->program[s]->arena_bytes;

        merak_program_sent(r->planned->program[s], &file->sent);
        if (bytes > file->memory_bytes)
            file->memory_bytes = bytes;
    }
    merak_sent_per_link(&file->sent, r->planned->n_programs);
}

/* What a search adds, too. */
static json_t *machine_object(const struct report *r)
{
    const struct plan_options *opt = r->opt;
    struct merak_search_input in;

    plan_listed_request(opt, &in);
    return json_pack("{s:o, s:I}", "request",
                     plan_request_object(r->model, &in), "memory_limit_bytes",
                     (json_int_t)opt->plan.memory_bytes);
}

static enum merak_status print_json(const struct report *r,
                                    struct merak_error *err)
{
    json_t *stages = json_array(), *all;
    struct merak_parts *parts = NULL;
    struct merak_plan_file file;
    enum merak_status rc = MERAK_OK;

    for (int s = 0; s < r->planned->n_programs; s++)
        json_array_append_new(stages, stage_object(r, s));
    fill_file(r, &file);
    if (file.plan.cut == NULL)
        rc = merak_stages_parts(r->planned->sharded, r->planned->stages, &parts,
                                err);
    if (parts != NULL && parts->n > 1)
        file.plan.cut = parts->place + 1;
    all = merak_plan_file_object(&file);
    json_object_update_new(
        all, json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:o}", "params",
                       (json_int_t)merak_graph_param_count(r->planned->graph),
                       "step_s", r->timeline->step_s, rate_of(r).key,
                       rate_of(r).per_s, "idle", r->idle, "fetch_exposed_s",
                       r->fetch_s, "offload_exposed_s", r->offload_s, "stages",
                       stages));
    if (r->opt->machine.is_known)
        json_object_update_new(all, machine_object(r));
    merak_parts_destroy(parts);
    if (rc != MERAK_OK) {
        json_decref(all);
        return rc;
    }
    return plan_json_save(all, r->opt->json, err);
}

/* --- pictures ------------------------------------------------------------- */

static enum merak_status print_pictures(const struct report *r,
                                        struct merak_error *err)
{
    char heading[128 + PLAN_MACHINE_TEXT], machine[PLAN_MACHINE_TEXT];
    struct merak_search_input in;
    struct plan_drawing drawing = {
        .heading = heading,
        .plan = &r->planned->plan,
        .planned = r->planned,
        .timeline = r->timeline,
        .stage = r->stage,
        .kind = plan_listed_has_kinds(r->opt) ? in.kind : NULL,
        .near = "node",
        .limit_bytes = r->opt->plan.memory_bytes,
        .step_s = r->timeline->step_s,
        .rate = rate_of(r),
        .fetch_s = r->fetch_s,
        .offload_s = r->offload_s};
    enum merak_status rc = MERAK_OK;

    plan_listed_request(r->opt, &in);
    if (r->opt->machine.is_known)
        drawing.near = merak_search_near_word(&in);
    snprintf(
        heading, sizeof(heading), "%s, %.1f M parameters%s", r->model->name,
        (double)merak_graph_param_count(r->planned->graph) / 1e6,
        plan_listed_text(r->opt, merak_plan_ranks(&r->planned->plan), machine));
    if (plan_options_has_text(r->opt))
        rc = plan_draw_text(&drawing, err);
    if (rc == MERAK_OK && r->opt->svg != NULL)
        rc = plan_draw_svg(&drawing, r->opt->svg, err);
    if (rc == MERAK_OK && r->opt->html != NULL)
        rc = plan_draw_html(&drawing, r->opt->html, err);
    return rc;
}

/* --- the command ---------------------------------------------------------- */

/* All choices are given, so there is no other plan to use instead. */
static enum merak_status prove_direct(struct merak_planned *planned,
                                      const struct merak_program_options *opt,
                                      struct merak_error *err)
{
    enum merak_status rc = merak_stages_check_streams(
        planned->sharded, planned->stages, &planned->plan, opt, err);

    if (rc == MERAK_ERR_CORRUPT)
        merak_error_wrap(err, MERAK_PLAN_NOT_DIRECT, planned->plan.schedule);
    return rc;
}

static enum merak_status refuse_unlike(const struct plan_options *opt,
                                       struct merak_error *err)
{
    if (opt->emit != PLAN_EMIT_NONE)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "--emit: no other trainer can express stages of "
                          "unlike ranks; give tp, pp and dp");
    return MERAK_OK;
}

static enum merak_status make_report(struct report *r, struct merak_error *err)
{
    const struct merak_backend *backend = NULL;
    struct merak_program_options po = {.cost = &r->opt->cost,
                                       .unit_s = r->opt->unit_ms * 1e-3};
    bool unlike = r->opt->plan.stage != NULL || plan_listed_has_kinds(r->opt);
    bool known = r->opt->machine.is_known;
    enum merak_status rc =
        known ? plan_device_backend(r->opt, &r->opt->machine.device, &backend,
                                    err)
              : merak_backend_find(r->opt->backend, &backend, err);

    if (rc != MERAK_OK)
        return rc;
    if (backend != NULL)
        po.memory = merak_backend_memory(backend);
    if (unlike && refuse_unlike(r->opt, err) != MERAK_OK)
        return err->status;
    po.direct = !unlike && (r->opt->transport == PLAN_TRANSPORT_NCCL ||
                            (r->opt->transport == PLAN_TRANSPORT_AUTO &&
                             merak_backend_is_direct(backend)));
    rc = plan_options_check_reduce(r->opt, po.direct, err);
    if (rc != MERAK_OK)
        return rc;
    rc = plan_listed_build(r->opt, r->model, &po, &r->planned, err);
    if (rc == MERAK_OK)
        rc = merak_program_check(r->planned->program, r->planned->n_programs,
                                 err);
    if (rc == MERAK_OK && po.direct)
        rc = prove_direct(r->planned, &po, err);
    if (rc == MERAK_OK)
        rc = plan_listed_check_memory(r->opt, r->planned, err);
    if (rc == MERAK_OK)
        rc = merak_simulate(r->planned->program, r->planned->n_programs,
                            known && !unlike ? &r->opt->cost : NULL, NULL,
                            &r->timeline, err);
    if (rc == MERAK_OK && unlike)
        rc = plan_keep_firsts(r->planned, r->timeline, err);
    if (rc != MERAK_OK)
        return rc;
    r->stage = make_stages(r);
    if (r->stage == NULL)
        return merak_fail_nomem(err, sizeof(*r->stage));
    r->fetch_s = merak_fetches_exposed(r->planned->program, r->timeline);
    r->offload_s = merak_offload_exposed(r->planned->program, r->timeline);
    r->idle = mean_idle(r);
    r->programs = (uint64_t)r->planned->n_programs;
    for (int s = 0; s < r->planned->n_programs; s++)
        r->programs = merak_program_ids(
            r->programs, merak_program_id(r->planned->program[s]));
    return MERAK_OK;
}

static enum merak_status print_report(const struct report *r,
                                      struct merak_error *err)
{
    struct plan_layers layers = {.count = NULL};
    char training[PLAN_TRAINING_TEXT];
    enum merak_status rc = MERAK_OK;
    int lost = 0;

    if (r->opt->json != NULL)
        rc = print_json(r, err);
    if (rc == MERAK_OK && plan_options_has_text(r->opt)) {
        print_head(r);
        plan_saved_print(r->opt, r->programs);
        print_stages(r);
        print_memory(r);
        print_prediction(r);
        plan_cost_print(&r->opt->run, rate_of(r).per_s,
                        merak_plan_ranks(&r->planned->plan), stdout);
    }
    if (rc == MERAK_OK && r->opt->emit != PLAN_EMIT_NONE)
        rc = plan_layers_of(r->planned, &layers, err);
    if (rc == MERAK_OK && r->opt->emit != PLAN_EMIT_NONE)
        rc = plan_emit((enum plan_emit)r->opt->emit,
                       &(struct plan_emitted){
                           .plan = &r->planned->plan,
                           .seq = r->opt->seq,
                           .global_batch = r->opt->global_batch,
                           .config = plan_model_config(r->model),
                           .layers = layers,
                           .given = r->opt->choice.given,
                           .training = plan_emit_training(r->opt, training)},
                       stdout, stderr, &lost, err);
    if (rc == MERAK_OK)
        rc = plan_emit_status(r->opt, lost, err);
    free(layers.count);
    if (rc == MERAK_OK)
        rc = print_pictures(r, err);
    if (rc == MERAK_OK && plan_options_has_text(r->opt))
        rc = merak_phases_print(r->planned, r->opt->phases, err);
    return rc;
}

static int exit_code(enum merak_status rc)
{
    switch (rc) {
    case MERAK_OK:
        return MERAK_EXIT_DONE;
    case MERAK_ERR_NOMEM:
    case MERAK_ERR_NOSPACE:
    case MERAK_ERR_IO:
        return MERAK_EXIT_RESOURCE;
    default:
        return MERAK_EXIT_CONFIG;
    }
}

/* All choices are given: build, check and simulate. */
static enum merak_status plan_given(const struct plan_options *opt,
                                    struct merak_error *err)
{
    struct plan_model model;
    struct plan_options filled = *opt;
    struct report r = {.opt = &filled, .model = &model};
    int passes;
    enum merak_status rc = plan_model_open(opt, &model, err);

    if (rc == MERAK_OK)
        rc = plan_model_seq(&model, opt, &filled.seq, err);
    if (rc == MERAK_OK)
        rc = plan_saved_check(&filled, &model, filled.seq, err);
    if (rc == MERAK_OK)
        rc = plan_model_passes(&model, filled.seq, &passes, err);
    if (rc == MERAK_OK) {
        merak_plan_take_passes(&filled.plan, passes,
                               opt->choice.schedule != NULL);
        rc = make_report(&r, err);
    }
    if (rc == MERAK_OK)
        rc = print_report(&r, err);
    free(r.stage);
    merak_timeline_destroy(r.timeline);
    merak_planned_destroy(r.planned);
    return rc;
}

static enum merak_status run(const struct plan_options *opt,
                             struct merak_error *err)
{
    const struct merak_output_place out[] = {
        {"--json", opt->json}, {"--svg", opt->svg}, {"--html", opt->html}};
    enum merak_status rc =
        merak_outputs_check(out, sizeof(out) / sizeof(out[0]), err);

    if (rc != MERAK_OK)
        return rc;
    if (opt->print_device)
        return plan_kinds_print(opt, err);
    return opt->search ? merak_plan_auto(opt, err) : plan_given(opt, err);
}

int merak_plan_main(int argc, char **argv, const struct merak_plan_program *own)
{
    struct plan_options opt;
    struct merak_error err;
    enum merak_status rc;

    merak_heap_keep();
    rc = plan_options_parse(argc, argv, own, &opt, &err);
    if (rc == MERAK_OK && opt.help) {
        plan_options_help(own);
        return MERAK_EXIT_DONE;
    }
    if (rc == MERAK_OK)
        rc = run(&opt, &err);
    if (rc == MERAK_OK && (fflush(stdout) != 0 || ferror(stdout)))
        rc = merak_fail(&err, MERAK_ERR_IO, "cannot write the output: %m");
    if (rc != MERAK_OK)
        fprintf(stderr, "%s plan: %s\n", plan_model_planner(own), err.text);
    plan_options_fini(&opt);
    return exit_code(rc);
}
