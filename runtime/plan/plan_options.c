/* SPDX-License-Identifier: Apache-2.0 */
/* plan_options.c - options of `merak plan`; named as `merak train` names
 * them */
#include "config.h"

#include "runtime/plan/cut_options.h"
#include "runtime/plan/planned_model.h"
#include "runtime/plan/plan_options.h"

#include "base/error.h"
#include "base/options.h"
#include "partitioner/device/device.h"
#include "runtime/train/phases.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(struct plan_options, field)
#define GIVEN(field) .given = AT(given.field)
#define DEGREE .least = 1, .most = 65535
#define MOST_GIB 1e6

static enum merak_status set_cut(void *target, const char *text,
                                 struct merak_error *err)
{
    struct plan_options *opt = target;

    return plan_lists_cut(text, &opt->list, err);
}

static enum merak_status set_recompute(void *target, const char *text,
                                       struct merak_error *err)
{
    struct plan_options *opt = target;

    return plan_lists_recompute(text, &opt->list, &opt->plan.recompute, err);
}

/* The choices of a plan come first, each with a flag that says it was given;
 * what only a search reads comes last. */
static const struct merak_option rows[] = {
    {"tp", MERAK_OPTION_INT, AT(plan.tp), .about = "tensor-parallel degree (1)",
     DEGREE, .words = "auto", GIVEN(tp)},
    {"pp", MERAK_OPTION_INT, AT(plan.pp), .about = "pipeline stages (1)",
     DEGREE, .words = "auto", GIVEN(pp)},
    {"dp", MERAK_OPTION_INT, AT(plan.dp), .about = "replicas (1)", DEGREE,
     .words = "auto", GIVEN(dp)},
    {"micro-batch", MERAK_OPTION_SIZE, AT(plan.micro_batch),
     .about = "sequences in a micro-batch (1)", .least = 1, .most = INT_MAX,
     GIVEN(micro_batch)},
    {"schedule", MERAK_OPTION_NAME, AT(plan.schedule),
     .about = "order of forwards and backwards, or auto; a wrong name lists "
              "them (1f1b)",
     GIVEN(schedule)},
    {"chunks", MERAK_OPTION_INT, AT(plan.chunks),
     .about = "model parts per rank, for interleaved schedules (1); 2 or 3 "
              "of interlaced (3)",
     DEGREE, GIVEN(chunks)},
    {"sub-pipeline", MERAK_OPTION_BOOL, AT(plan.sub_pipeline),
     .about =
         "micro-batches in two halves, exchanges of one behind compute of the "
         "other (no)",
     .words = "no|yes", GIVEN(sub_pipeline)},
    {"recompute", MERAK_OPTION_CALL,
     .about =
         "none, full, selective (attention) or auto: per stage the least that "
         "fits; or for each part a (attention) or how many of its first "
         "blocks: a-2-0 (none)",
     .arg = "WORD", .set = set_recompute, GIVEN(recompute)},
    {"zero1", MERAK_OPTION_BOOL, AT(plan.zero1),
     .about = "optimizer state split over replicas: yes or no (yes)",
     .words = "no|yes", GIVEN(zero1)},
    {"order", MERAK_OPTION_BOOL, AT(plan.order_tp_pp_dp),
     .about = "tp-dp-pp or tp-pp-dp: how ranks are numbered (tp-dp-pp)",
     .words = "tp-dp-pp|tp-pp-dp", GIVEN(order)},
    {"sp", MERAK_OPTION_WORD, AT(plan.sp),
     .about = "sequence parallelism: auto, off or on (auto)",
     .words = "auto|off|on", GIVEN(sp)},
    {"tp-batch", MERAK_OPTION_INT, AT(plan.tp_batch_percent),
     .about = "percent of the model, from its end, where tensor ranks may "
              "share out samples and hold whole weights (0)",
     .most = 100, GIVEN(tp_batch)},
    {"boundary", MERAK_OPTION_WORD, AT(boundary),
     .about = "what tensor ranks hold alike, to the next stage: auto, whole "
              "or scatter (auto)",
     .words = "auto|whole|scatter", GIVEN(boundary)},
    {"cut", MERAK_OPTION_CALL,
     .about = "places where parts but the first begin, 1-3-5, or auto (even "
              "work)",
     .arg = "PLACES", .set = set_cut, GIVEN(cut)},
    {"branches", MERAK_OPTION_WORD, AT(plan.branches),
     .about = "order of nodes, where the model is no chain: described, "
              "gathered, blocks or auto (described)",
     .words = "described|gathered|blocks|auto", GIVEN(branches)},
    {"model", MERAK_OPTION_TEXT, AT(model),
     .about = "Hugging Face folder, or its config.json (required)",
     .arg = "DIR"},
    {"config-unknown", MERAK_OPTION_WORD, AT(unknown),
     .about = "fields of config.json that nothing is known of (refuse)",
     .words = "refuse|ignore"},
    {"global-batch", MERAK_OPTION_SIZE, AT(global_batch),
     .about = "sequences in a step (4 pp micro-batches a replica)", .least = 1,
     .most = INT_MAX},
    {"seq", MERAK_OPTION_SIZE, AT(seq),
     .about = "tokens of a sequence (256 at most; with --model and a device "
              "the most that it takes)",
     .least = 1, .most = INT_MAX},
    {"memory-gib", MERAK_OPTION_REAL, AT(memory_bytes),
     .about = "what a rank may use (no bound, or the device's)",
     .most = MOST_GIB, .positive = true, .unit = 0x1p30},
    {"memory", MERAK_OPTION_REAL, AT(memory_bytes), .about = "the same",
     .most = MOST_GIB, .positive = true, .unit = 0x1p30},
    {"dtype", MERAK_OPTION_WORD, AT(plan.dtype),
     .about = "fp32 or bf16 (fp32; with a device the faster)",
     .words = "fp32|bf16", GIVEN(dtype)},
    {"no-zero1", MERAK_OPTION_NO, AT(plan.zero1), .about = "as zero1 no",
     GIVEN(zero1)},
    {"backend", MERAK_OPTION_TEXT, AT(backend),
     .about = "kernels whose scratch memory is counted (cpu; the device's)",
     .arg = "NAME", GIVEN(backend)},
    {"gflops", MERAK_OPTION_REAL, AT(cost.flops_per_s),
     .about = "of one rank (150)", .positive = true, .unit = 1e9, GIVEN(cost)},
    {"memory-gbs", MERAK_OPTION_REAL, AT(cost.bytes_per_s),
     .about = "GB/s of one rank's memory (10)", .positive = true, .unit = 1e9,
     GIVEN(cost)},
    {"link-gbs", MERAK_OPTION_REAL, AT(cost.link_bytes_per_s),
     .about = "GB/s between ranks (5)", .positive = true, .unit = 1e9,
     GIVEN(cost)},
    {"unit-ms", MERAK_OPTION_REAL, AT(unit_ms),
     .about = "stages alike: a forward takes X ms, a backward twice",
     .positive = true, GIVEN(cost)},
    {"svg", MERAK_OPTION_TEXT, AT(svg),
     .about = "write the picture there: the step, and memory", .arg = "FILE"},
    {"html", MERAK_OPTION_TEXT, AT(html),
     .about = "write a page with the picture and all numbers there",
     .arg = "FILE"},
    {"json", MERAK_OPTION_FILE, AT(json),
     .about = "one JSON object, there or instead of the text"},
    {"program", MERAK_OPTION_YES, AT(program), .about = "as --print program"},
    {"print", MERAK_OPTION_TEXT, AT(print),
     .about = "phases of the plan, too: any of graph, layouts, blocks, "
              "stages, schedule, program; or device, alone: as a file",
     .arg = "LIST"},
    {"device", MERAK_OPTION_TEXT, AT(device),
     .about = "a100, h100, h200, rtx3090, cpu, or a device file",
     .arg = "NAME"},
    {"nodes", MERAK_OPTION_INT, AT(nodes), .about = "of the machine (1)",
     DEGREE, GIVEN(nodes)},
    {"ranks-per-node", MERAK_OPTION_INT, AT(ranks_per_node),
     .about = "(the device's)", DEGREE},
    {"gpus-per-node", MERAK_OPTION_INT, AT(ranks_per_node), .about = "the same",
     DEGREE},
    {"what-if", MERAK_OPTION_TEXT, AT(what_if),
     .about = "choices that are fixed, tp=4,micro-batch=1,..: any of tp to "
              "branches above",
     .arg = "LIST"},
};

enum {
    N_ROWS = sizeof(rows) / sizeof(rows[0]),
    N_CHOICES = 15,
    N_SEARCH = 5,
};

static const struct merak_option_table table = {rows, N_ROWS};
static const struct merak_option_table choices = {rows, N_CHOICES};

/* --- choices that are fixed ----------------------------------------------- */

static enum merak_status no_choice(const char *name, struct merak_error *err)
{
    char list[160] = "";

    for (int i = 0; i < N_CHOICES; i++)
        snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s",
                 i > 0 ? ", " : "", rows[i].name);
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--what-if: no choice \"%.40s\"; there are %s", name,
                      list);
}

/* Fixed already, by its option or earlier in the list?  Of two values one
 * would be dropped without a word. */
static enum merak_status check_once(const struct plan_options *opt,
                                    const char *name, const char *value,
                                    struct merak_error *err)
{
    for (int i = 0; i < N_CHOICES; i++) {
        const bool *given = (const void *)((const char *)opt + rows[i].given);

        if (*given && strcmp(rows[i].name, name) == 0)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "--what-if %s=%.40s: %s is fixed already, by "
                              "--%s or in the same list; give it once",
                              name, value, name, name);
    }
    return MERAK_OK;
}

/* "tp=4,schedule=gpipe": each as if it were an option. */
static enum merak_status fix_choices(struct plan_options *opt,
                                     struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;
    char *text = opt->choices = strdup(opt->what_if);

    if (text == NULL)
        return merak_fail_nomem(err, strlen(opt->what_if));
    while (text != NULL && rc == MERAK_OK) {
        char *next = strchr(text, ','), *value = strchr(text, '=');

        if (next != NULL)
            *next++ = '\0';
        if (value == NULL || (next != NULL && value >= next))
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "--what-if: expected NAME=VALUE,.., got "
                              "\"%.60s\"",
                              text);
        *value++ = '\0';
        if (strpbrk(value, "=; ") != NULL)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "--what-if: \"%s=%.60s\" is more than one "
                              "choice; write commas between: tp=2,pp=2",
                              text, value);
        rc = check_once(opt, text, value, err);
        if (rc == MERAK_OK)
            rc = merak_options_set(&choices, text, value, opt, err);
        if (rc == MERAK_ERR_NOT_FOUND)
            return no_choice(text, err);
        text = next;
    }
    return rc;
}

/* --- what single options cannot know of each other ------------------------ */

static enum merak_status count_microbatches(struct plan_options *opt,
                                            struct merak_error *err)
{
    const struct merak_plan *plan = &opt->plan;

    if (opt->global_batch == 0) /* enough to fill the pipeline */
        opt->global_batch =
            plan->micro_batch * (size_t)plan->dp * 4 * (size_t)plan->pp;
    return merak_plan_split_batch(&opt->plan, opt->global_batch, err);
}

/* Cuts, recomputation and the order of nodes of a plan whose degrees are
 * given. */
static enum merak_status take_lists(struct plan_options *opt,
                                    struct merak_error *err)
{
    const struct merak_schedule *schedule;
    enum merak_status rc = MERAK_OK;

    if (opt->plan.branches == MERAK_BRANCHES_AUTO)
        opt->plan.branches = MERAK_BRANCHES_DESCRIBED;
    if (merak_given_parts(&opt->list) == 0)
        return MERAK_OK;
    rc = merak_plan_schedule(&opt->plan, &schedule, err);
    if (rc == MERAK_OK)
        rc = merak_given_check(&opt->list, &opt->plan, err);
    opt->plan.cut = opt->list.cut;
    opt->plan.drop = opt->list.drop;
    return rc;
}

static enum merak_status check_search(const struct plan_options *opt,
                                      struct merak_error *err)
{
    if (opt->device == NULL)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "give --device: a100, h100, h200, rtx3090, cpu, or "
                          "a file that `merak calibrate` wrote");
    if (opt->global_batch == 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "give --global-batch: sequences in a step, over all "
                          "ranks");
    if (opt->given.cost)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--gflops, --memory-gbs, --link-gbs and --unit-ms "
                          "are for a plan without --device, which says what "
                          "the machine does");
    return MERAK_OK;
}

/* A device file to edit: nothing is planned. */
static enum merak_status check_print_device(struct plan_options *opt,
                                            struct merak_error *err)
{
    if (opt->device == NULL)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--print device: give --device, one of a100, h100, "
                          "h200, rtx3090, cpu, or a device file");
    opt->print_device = true;
    return MERAK_OK;
}

/* A name that is none is said before what else is missing for a device. */
static enum merak_status check_device(const struct plan_options *opt,
                                      struct merak_error *err)
{
    struct merak_device device = {0};
    enum merak_status rc = MERAK_OK;

    if (opt->device != NULL)
        rc = merak_device_find(opt->device, &device, err);
    if (rc == MERAK_OK)
        merak_device_fini(&device);
    return rc;
}

static enum merak_status check(struct plan_options *opt,
                               struct merak_error *err)
{
    const struct merak_schedule *schedule;
    enum merak_status rc = check_device(opt, err);

    if (rc != MERAK_OK)
        return rc;
    if (strcmp(opt->plan.schedule, "auto") == 0) { /* as if it were left out */
        snprintf(opt->plan.schedule, sizeof(opt->plan.schedule), "1f1b");
        opt->given.schedule = false;
    }
    if (opt->given.schedule &&
        merak_schedule_find(opt->plan.schedule, &schedule, err) != MERAK_OK)
        return err->status;
    if (opt->print != NULL && strcmp(opt->print, "device") == 0)
        return check_print_device(opt, err);
    if (opt->own != NULL && opt->model != NULL)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--model %.80s: %.60s has a model of its own; leave "
                          "it out, or use `merak plan`",
                          opt->model, plan_model_planner(opt->own));
    if (opt->own == NULL && opt->model == NULL)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "no model: give --model DIR, a Hugging Face folder "
                          "or its config.json");
    if (opt->program)
        opt->phases = MERAK_PHASES_PROGRAM;
    if (opt->print != NULL &&
        merak_phases_parse(opt->print, &opt->phases, err) != MERAK_OK)
        return err->status;
    opt->plan.memory_bytes = (size_t)opt->memory_bytes;
    opt->search = opt->device != NULL || opt->given.nodes ||
                  opt->ranks_per_node > 0 || opt->what_if != NULL ||
                  opt->plan.tp < 0 || opt->plan.pp < 0 || opt->plan.dp < 0;
    if (opt->search)
        return check_search(opt, err);
    opt->plan.chunks = merak_plan_chunks(&opt->plan);
    opt->plan.scatter = /* all links are alike */
        merak_boundary_choose(opt->boundary, &opt->cost, &opt->plan, 0);
    rc = count_microbatches(opt, err);
    return rc == MERAK_OK ? take_lists(opt, err) : rc;
}

enum merak_status plan_options_parse(int argc, char **argv,
                                     const struct merak_plan_program *own,
                                     struct plan_options *opt,
                                     struct merak_error *err)
{
    enum merak_status rc;

    *opt = (struct plan_options){.own = own,
                                 .backend = "cpu",
                                 .nodes = 1,
                                 .plan = {.tp = 1,
                                          .pp = 1,
                                          .dp = 1,
                                          .micro_batch = 1,
                                          .zero1 = true,
                                          .dtype = MERAK_F32,
                                          .threads = 1,
                                          .schedule = "1f1b"},
                                 .cost = *merak_cost_default()};
    rc = merak_options_parse(&table, argc, argv, opt, &opt->help, err);
    if (rc == MERAK_OK && !opt->help && opt->what_if != NULL)
        rc = fix_choices(opt, err);
    return rc != MERAK_OK || opt->help ? rc : check(opt, err);
}

void plan_options_fini(struct plan_options *opt)
{
    plan_lists_fini(&opt->list);
    free(opt->choices);
}

static bool is_output(const char *path)
{
    return path != NULL && strcmp(path, "-") == 0;
}

bool plan_options_has_text(const struct plan_options *opt)
{
    return !is_output(opt->json) && !is_output(opt->svg) &&
           !is_output(opt->html);
}

/* --- help ----------------------------------------------------------------- */

static void print_rows(const char *heading, int first, int n)
{
    const struct merak_option_table part = {rows + first, (size_t)n};

    puts(heading);
    merak_options_help(&part, stdout);
}

void plan_options_help(const struct merak_plan_program *own)
{
    /* without --model and --config-unknown */
    int first = N_CHOICES + (own != NULL ? 2 : 0);

    printf("usage: %s plan %s[OPTION]...\n\n",
           own != NULL ? own->name : "merak",
           own != NULL ? "" : "--model DIR ");
    puts("What a training run would look like, without running it: stages, "
         "memory per\n"
         "rank, step time, idle time, and a picture of the step.");
    print_rows("\nThe choices:", 0, N_CHOICES);
    print_rows("\nThe run, and what to print:", first,
               N_ROWS - first - N_SEARCH);
    print_rows("\nWith one of these, or a degree that is auto, all choices "
               "that are not given are\nsearched for, for the shortest step "
               "on that machine:",
               N_ROWS - N_SEARCH, N_SEARCH);
}
