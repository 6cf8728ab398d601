/* SPDX-License-Identifier: Apache-2.0 */
/* plan_options.c - options of `merak plan`; named as in `merak train` */
#include "config.h"

#include "runtime/plan/auto.h"
#include "runtime/plan/listed.h"
#include "runtime/plan/planned_model.h"
#include "runtime/plan/node_kinds.h"
#include "runtime/plan/plan_islands.h"
#include "runtime/plan/start_time.h"
#include "runtime/plan/plan_options.h"
#include "runtime/plan/plan_saved.h"

#include "base/error.h"
#include "base/options.h"
#include "base/size.h"
#include "partitioner/device/device.h"
#include "partitioner/program/boundary.h"
#include "partitioner/search/search.h"
#include "runtime/train/phases.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(struct plan_options, field)
#define GIVEN(field) .given = AT(given.field)
#define DEGREE .least = 1, .most = 65535
#define MOST_GIB 1e6
#define SPEED .least = 1e-9, .most = 1e12, GIVEN(cost)
#define BUILT_IN "a100, h100, h200, b200, gb200, rtx3090, cpu"

/* In the order of the help. */
#define CHOICES(first, last) MERAK_CHOICE_ROWS(option, first, last, AT(choice))
#define CHOICE_ROWS                                                          \
    CHOICES(TP, SUB_PIPELINE), CHOICES(RECOMPUTE, RECOMPUTE),                \
        CHOICES(ZERO, SP), CHOICES(TP_BATCH, LOSSY_HOPS), CHOICES(CUT, CUT), \
        CHOICES(BRANCHES, COUNT - 1)

static const struct merak_option choice_rows[] = {CHOICE_ROWS};

enum { N_CHOICE_ROWS = sizeof(choice_rows) / sizeof(choice_rows[0]) };

static const struct merak_option_table choices = {choice_rows, N_CHOICE_ROWS};

static enum merak_status set_freeze(void *target, const char *text,
                                    struct merak_error *err)
{
    struct plan_options *opt = target;

    return merak_param_rules_add(&opt->rules, MERAK_FREEZE, text, err);
}

/* "4,8,16", ascending. */
static enum merak_status set_nodes(void *target, const char *text,
                                   struct merak_error *err)
{
    struct plan_options *opt = target;
    const char *at = text;
    int n = 0, last = 0;

    if (plan_kinds_are_named(text))
        return plan_kinds_set(opt, text, err);
    opt->several.kinds.n = 0;
    for (;;) {
        char *end;
        long value = strtol(at, &end, 10);

        if (*at < '0' || *at > '9' || value <= last || value > 65535 ||
            n == PLAN_MOST_NODES || (*end != '\0' && *end != ','))
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "--nodes: expected an integer 1..65535, got "
                              "\"%.60s\"; several, up to %d, are ascending, "
                              "with commas between",
                              text, PLAN_MOST_NODES);
        opt->several.nodes[n++] = last = (int)value;
        if (*end == '\0')
            break;
        at = end + 1;
    }
    opt->several.n_nodes = n;
    opt->nodes = opt->several.nodes[0];
    return MERAK_OK;
}

/* "a100,h100,gpu.json" */
static enum merak_status set_device(void *target, const char *text,
                                    struct merak_error *err)
{
    struct plan_options *opt = target;
    char *at = strdup(text);

    free(opt->several.words);
    opt->several.words = at;
    opt->several.n_devices = 0;
    if (at == NULL)
        return merak_fail_nomem(err, strlen(text));
    while (at != NULL) {
        char *next = strchr(at, ',');

        if (next != NULL)
            *next++ = '\0';
        if (*at == '\0' || opt->several.n_devices == PLAN_MOST_DEVICES)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "--device: expected a name or several, up to "
                              "%d, with commas between; got \"%.60s\"",
                              PLAN_MOST_DEVICES, text);
        opt->several.device[opt->several.n_devices++] = at;
        at = next;
    }
    opt->device = opt->several.device[0];
    return MERAK_OK;
}

static enum merak_status add_saved(void *target, const char *text,
                                   struct merak_error *err)
{
    struct plan_options *opt = target;

    if (opt->saved.n == PLAN_MOST_SAVED)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--plan %.80s: %d plans are the most that are "
                          "compared",
                          text, PLAN_MOST_SAVED);
    opt->saved.path[opt->saved.n++] = text;
    return MERAK_OK;
}

/* Options that only a search reads come last. */
static const struct merak_option rows[] = {
    CHOICE_ROWS,
    {"model", MERAK_OPTION_TEXT, AT(model),
     .about = "Hugging Face folder, or its config.json (required)",
     .arg = "DIR"},
    {"config-unknown", MERAK_OPTION_WORD, AT(config.unknown),
     .about = MERAK_HF_UNKNOWN_ABOUT, .words = MERAK_HF_UNKNOWN_WORDS},
    {"encoder-seq", MERAK_OPTION_SIZE, AT(config.encoder_seq),
     .about = MERAK_HF_ENCODER_SEQ_ABOUT, .least = 1, .most = INT_MAX},
    {"plan", MERAK_OPTION_CALL, 0,
     .about = "the plan that --json saved there, instead of choices; given "
              "several times: one table of these plans",
     .arg = "FILE", .set = add_saved},
    {"global-batch", MERAK_OPTION_SIZE, AT(global_batch),
     .about = "sequences in a step (4 pp micro-batches a replica)", .least = 1,
     .most = INT_MAX},
    {"seq", MERAK_OPTION_SIZE, AT(seq),
     .about = "tokens of a sequence (256, or the model's if fewer)", .least = 1,
     .most = INT_MAX},
    {"memory-gib", MERAK_OPTION_REAL, AT(memory_bytes),
     .about = "what a rank may use (no bound, or the device's)",
     .most = MOST_GIB, .positive = true, .unit = 0x1p30, .of = "GiB"},
    {"memory", MERAK_OPTION_REAL, AT(memory_bytes), .about = "the same",
     .most = MOST_GIB, .positive = true, .unit = 0x1p30, .of = "GiB"},
    {"dtype", MERAK_OPTION_WORD, AT(plan.dtype),
     .about = "fp32 or bf16 (fp32; with a device the faster)",
     .words = "fp32|bf16", GIVEN(dtype)},
    MERAK_CHOICE_ROWS(alias, ZERO, ZERO, AT(choice)),
    {"no-zero1", MERAK_OPTION_YES, AT(given.no_zero1), .about = "as zero 0"},
    {"backend", MERAK_OPTION_TEXT, AT(backend),
     .about = "kernels whose scratch memory is counted (cpu; the device's)",
     .arg = "NAME", GIVEN(backend)},
    {"transport", MERAK_OPTION_WORD, AT(transport),
     .about = "ucx: through host memory; nccl: GPU to GPU (auto: nccl on GPUs)",
     .words = "auto|ucx|nccl"},
    {"reduce", MERAK_OPTION_BOOL, AT(reduce_fast),
     .about = "order of sums over ranks: theirs, or with nccl the library's "
              "(ordered)",
     .words = "ordered|fast"},
    {"gflops", MERAK_OPTION_REAL, AT(cost.flops_per_s),
     .about = "of one rank (150)", .unit = 1e9, SPEED},
    {"memory-gbs", MERAK_OPTION_REAL, AT(cost.bytes_per_s),
     .about = "GB/s of one rank's memory (10)", .unit = 1e9, SPEED},
    {"link-gbs", MERAK_OPTION_REAL, AT(cost.links.level[0].bytes_per_s),
     .about = "GB/s between ranks (5)", .unit = 1e9, SPEED},
    {"unit-ms", MERAK_OPTION_REAL, AT(unit_ms),
     .about = "identical stages: a forward takes X ms, a backward twice that",
     SPEED},
    {"svg", MERAK_OPTION_TEXT, AT(svg),
     .about = "write the picture there: the step, and memory", .arg = "FILE"},
    {"html", MERAK_OPTION_TEXT, AT(html),
     .about = "write a page with the picture and all numbers there",
     .arg = "FILE"},
    {"json", MERAK_OPTION_FILE, AT(json),
     .about = "one JSON object, there or instead of the text"},
    {"freeze", MERAK_OPTION_CALL,
     .about = "parameters that are not trained, by names that match; may be "
              "repeated",
     .arg = "PATTERN", .set = set_freeze},
    MERAK_LORA_OPTIONS(AT(lora)),
    MERAK_OBJECTIVE_OPTIONS(AT(objective)),
    MERAK_ROUTER_OPTIONS(AT(objective)),
    {"doc-mask", MERAK_OPTION_YES, AT(doc_mask),
     .about = "documents of a sequence do not see each other"},
    {"emit", MERAK_OPTION_WORD, AT(emit),
     .about = "instead of the text the plan as another trainer's flags or "
              "file; what it cannot express goes to standard error",
     .words = "none|megatron|torchtitan|deepspeed"},
    {"emit-anyway", MERAK_OPTION_YES, AT(emit_anyway),
     .about = "exit with 0 where that trainer does not have, or refuses, what "
              "was asked for"},
    {"tokens", MERAK_OPTION_CALL, 0,
     .about = "days and GPU-hours of a run over N tokens, as 1T or 300G",
     .arg = "N", .set = plan_tokens_set},
    {"price", MERAK_OPTION_REAL, AT(run.price), .positive = true,
     .about = "of a rank's device an hour: the run's cost, too"},
    {"sbatch", MERAK_OPTION_TEXT, AT(run.sbatch), .arg = "ARGS",
     .may_be_empty = true,
     .about = "of --nodes 4,8,..: when Slurm would start them, by sbatch ARGS"},
    {"expert-load", MERAK_OPTION_REAL, AT(expert_load), .positive = true,
     .about = "also the step if the fullest rank has so many times its rows"},
    {"program", MERAK_OPTION_YES, AT(program), .about = "as --print program"},
    {"print", MERAK_OPTION_TEXT, AT(print),
     .about = "phases of the plan, too: any of graph, layouts, blocks, "
              "stages, schedule, program; or device, alone: as a file",
     .arg = "LIST"},
    {"device", MERAK_OPTION_CALL, 0,
     .about =
         BUILT_IN ", or a device file; several, a100,h100: one table of the "
                  "best plans",
     .arg = "NAME", .set = set_device},
    {"nodes", MERAK_OPTION_CALL, 0,
     .about = "of the machine (1), or of kinds, 4:h100,2:a100; several, "
              "4,8,16: one table of the best "
              "plans",
     GIVEN(nodes), .arg = "N", .set = set_nodes},
    {"ranks-per-node", MERAK_OPTION_INT, AT(ranks_per_node),
     .about = "(the device's)", DEGREE},
    {"gpus-per-node", MERAK_OPTION_INT, AT(ranks_per_node), .about = "the same",
     DEGREE},
    {"rack-nodes", MERAK_OPTION_INT, AT(machine.rack_nodes),
     .about = "that links of a rack join, as NVLink does, at most (the "
              "device's)",
     DEGREE},
    {"levels", MERAK_OPTION_TEXT, AT(machine.levels), .arg = "NAME:RANKS,..",
     .about = "of links, from a node outwards, as node:8,leaf:256:2; :N after "
              "ranks: oversubscribed (the device's)"},
    {"links", MERAK_OPTION_TEXT, AT(machine.links), .arg = "FILE",
     .about = "islands of nodes, as sites, with the links of each pair"},
    {"what-if", MERAK_OPTION_TEXT, AT(what_if),
     .about = "choices that are fixed, tp=4,micro-batch=1,..: any of tp to "
              "branches above",
     .arg = "LIST"},
    {"search-seconds", MERAK_OPTION_REAL, AT(search_seconds),
     .about = "then, or at Ctrl-C, the best plan so far; 0: search to the end "
              "(60)",
     .most = 1e9},
};

enum {
    N_ROWS = sizeof(rows) / sizeof(rows[0]),
    N_SEARCH = 8,
};

static const struct merak_option_table table = {rows, N_ROWS};

/* --- choices that are fixed ----------------------------------------------- */

static enum merak_status no_choice(const char *name, struct merak_error *err)
{
    char list[320];

    merak_options_names(&choices, list, sizeof(list));
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--what-if: no choice \"%.40s\"; there are %s", name,
                      list);
}

static bool is_named(const struct merak_choice *c, const char *name)
{
    return strcmp(c->option.name, name) == 0 ||
           (c->alias.name != NULL && strcmp(c->alias.name, name) == 0);
}

/* Is it fixed already, by its option or earlier in the list?  One of two
 * values would be dropped silently. */
static enum merak_status check_once(const struct merak_choices *made,
                                    const char *name, const char *value,
                                    struct merak_error *err)
{
    for (int i = 0; i < MERAK_CHOICE_COUNT; i++) {
        if (made->given[i] && is_named(&merak_choice[i], name))
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "--what-if %s=%.40s: %s is fixed already, by "
                              "--%s or in the same list; give it once",
                              name, value, name, name);
    }
    return MERAK_OK;
}

static void mark_listed(struct merak_choices *made, const char *name)
{
    for (int i = 0; i < MERAK_CHOICE_COUNT; i++)
        made->listed[i] = made->listed[i] || is_named(&merak_choice[i], name);
}

/* "tp=4,schedule=gpipe": like the options of these names. */
static enum merak_status fix_choices(struct plan_options *opt,
                                     struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;
    char *text = opt->words = strdup(opt->what_if);

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
        rc = check_once(&opt->choice, text, value, err);
        if (rc == MERAK_OK)
            rc = merak_options_set(&merak_choice_table, text, value,
                                   &opt->choice, err);
        if (rc == MERAK_ERR_NOT_FOUND)
            return no_choice(text, err);
        mark_listed(&opt->choice, text);
        text = next;
    }
    return rc;
}

/* --- checks of several options together ------------------------ */

static enum merak_status count_microbatches(struct plan_options *opt,
                                            struct merak_error *err)
{
    const struct merak_plan *plan = &opt->plan;

    if (opt->global_batch == 0) /* enough to fill the pipeline */
        opt->global_batch = merak_plan_samples(plan) * 4 * (size_t)plan->pp;
    return merak_plan_split_batch(&opt->plan, opt->global_batch, err);
}

/* Cuts and recomputation of a plan whose degrees are given. */
static enum merak_status take_lists(struct plan_options *opt,
                                    struct merak_error *err)
{
    const struct merak_schedule *schedule;
    enum merak_status rc = MERAK_OK;

    if (merak_given_parts(&opt->choice.list) == 0)
        return MERAK_OK;
    rc = merak_plan_schedule(&opt->plan, &schedule, err);
    if (rc == MERAK_OK)
        rc = merak_given_check(&opt->choice.list, &opt->plan, err);
    opt->plan.cut = opt->choice.list.cut;
    opt->plan.drop = opt->choice.list.drop;
    return rc;
}

static enum merak_status check_machine(const struct plan_options *opt,
                                       struct merak_error *err)
{
    if (plan_table_check(opt, err) != MERAK_OK)
        return err->status;
    if (opt->device == NULL)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "give --device: " BUILT_IN
                          ", or a file that `merak calibrate` wrote");
    if (opt->global_batch == 0 && opt->choice.list.stage == NULL)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "give --global-batch: sequences in a step, over all "
                          "ranks");
    if (opt->given.cost)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--gflops, --memory-gbs, --link-gbs and --unit-ms "
                          "are for a plan without --device, which describes "
                          "the machine");
    if (opt->machine.levels != NULL && opt->machine.rack_nodes > 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--levels and --rack-nodes both given; --levels "
                          "node:4,nvl:72 says as much as --rack-nodes 18");
    if (opt->machine.levels != NULL && opt->several.kinds.n > 1)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--levels: which nodes of which kind share a domain "
                          "is not known; give --nodes of one kind");
    return MERAK_OK;
}

/* --print-device prints a device file to edit and plans nothing. */
static enum merak_status check_print_device(struct plan_options *opt,
                                            struct merak_error *err)
{
    if (opt->device == NULL)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--print device: give --device, one of " BUILT_IN
                          ", or a device file");
    opt->print_device = true;
    return MERAK_OK;
}

/* An unknown device name is reported before options that a device needs. */
static enum merak_status check_device(const struct plan_options *opt,
                                      struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < opt->several.n_devices && rc == MERAK_OK; i++) {
        struct merak_device device = {0};

        rc = merak_device_find(opt->several.device[i], &device, err);
        merak_device_fini(&device);
    }
    return rc;
}

static enum merak_status check(struct plan_options *opt,
                               struct merak_error *err)
{
    const struct merak_schedule *schedule;
    bool listed = opt->choice.list.stage != NULL; /* equal ones are degrees */
    enum merak_status rc = check_device(opt, err);

    if (rc == MERAK_OK)
        rc = plan_kinds_check(opt, err);
    if (rc == MERAK_OK)
        rc = plan_islands_open(opt, err);
    if (rc != MERAK_OK)
        return rc;
    if (opt->given.no_zero1) {
        if (opt->choice.given[MERAK_CHOICE_ZERO] && opt->choice.zero != 0)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "--no-zero1 is --zero 0, and --zero has another "
                              "level: give one of them");
        opt->choice.zero = 0;
        opt->choice.given[MERAK_CHOICE_ZERO] = true;
    }
    rc = merak_choices_settle(&opt->choice, err);
    if (rc == MERAK_OK)
        rc = merak_choices_settle_stages(&opt->choice, err);
    if (rc == MERAK_OK)
        rc = merak_lora_settle(&opt->lora, err);
    if (rc == MERAK_OK)
        rc = merak_objective_settle(&opt->objective, err);
    if (rc == MERAK_OK)
        rc = plan_saved_open(opt, err);
    if (rc != MERAK_OK)
        return rc;
    if (opt->choice.schedule != NULL &&
        merak_schedule_find(opt->choice.schedule, &schedule, err) != MERAK_OK)
        return err->status;
    if (opt->print != NULL && strcmp(opt->print, "device") == 0 &&
        opt->several.n_devices < 2)
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
    if (plan_cost_check(&opt->run, err) != MERAK_OK ||
        plan_start_check(opt, err) != MERAK_OK ||
        plan_load_check(opt, err) != MERAK_OK)
        return err->status;
    if (opt->program)
        opt->phases = MERAK_PHASES_PROGRAM;
    if (opt->print != NULL &&
        merak_phases_parse(opt->print, &opt->phases, err) != MERAK_OK)
        return err->status;
    opt->plan.memory_bytes = (size_t)opt->memory_bytes;
    opt->search = opt->device != NULL || opt->given.nodes ||
                  opt->ranks_per_node > 0 || opt->machine.rack_nodes > 0 ||
                  opt->machine.levels != NULL || opt->machine.links != NULL ||
                  opt->what_if != NULL || opt->choice.list.auto_stages ||
                  opt->choice.tp < 0 || opt->choice.pp < 0 ||
                  opt->choice.dp < 0 || opt->choice.cp < 0 ||
                  opt->choice.ep < 0;
    if (opt->search)
        rc = check_machine(opt, err);
    listed = plan_listed_has_kinds(opt) && (listed || opt->saved.n > 0);
    if (rc == MERAK_OK && opt->search &&
        (listed || opt->choice.list.stage != NULL)) {
        opt->search = false;
        rc = plan_listed_take(opt, err);
    }
    if (rc != MERAK_OK || opt->search)
        return rc;
    merak_choices_take(&opt->choice, &opt->plan);
    opt->plan.scatter = /* by latencies alone: nothing is cut yet */
        merak_boundary_choose(opt->choice.boundary, &opt->cost, &opt->plan, 0);
    if (opt->saved.n > 0)
        opt->plan.scatter = opt->saved.file[opt->saved.at]->plan.scatter;
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
                                 .search_seconds = MERAK_SEARCH_SECONDS,
                                 .objective.balance = MERAK_BALANCE_OF_MODEL,
                                 .given.argc = argc,
                                 .given.argv = argv,
                                 .plan = {.dtype = MERAK_F32, .threads = 1},
                                 .cost = *merak_cost_default()};
    rc = merak_options_parse(&table, argc, argv, opt, &opt->help, err);
    if (rc == MERAK_OK && !opt->help && opt->what_if != NULL)
        rc = fix_choices(opt, err);
    return rc != MERAK_OK || opt->help ? rc : check(opt, err);
}

void plan_options_fini(struct plan_options *opt)
{
    plan_listed_fini(opt);
    plan_saved_fini(opt);
    merak_given_fini(&opt->choice.list);
    merak_islands_destroy(opt->machine.islands);
    free(opt->several.words);
    free(opt->several.kinds.words);
    free(opt->words);
}

static bool is_output(const char *path)
{
    return path != NULL && strcmp(path, "-") == 0;
}

bool plan_options_has_text(const struct plan_options *opt)
{
    return !is_output(opt->json) && !is_output(opt->svg) &&
           !is_output(opt->html) && opt->emit == PLAN_EMIT_NONE;
}

enum merak_status plan_options_check_reduce(const struct plan_options *opt,
                                            bool direct,
                                            struct merak_error *err)
{
    if (!opt->reduce_fast || direct)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--reduce fast needs --transport nccl: others add in "
                      "the order of the ranks");
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
    /* without --model, --config-unknown and --encoder-seq */
    int first = N_CHOICE_ROWS + (own != NULL ? 3 : 0);

    printf("usage: %s plan %s[OPTION]...\n\n",
           own != NULL ? own->name : "merak",
           own != NULL ? "" : "--model DIR ");
    puts("What a training run would look like, without running it: stages, "
         "memory per\n"
         "rank, step time, idle time, and a picture of the step.");
    print_rows("\nThe choices:", 0, N_CHOICE_ROWS);
    print_rows("\nThe run, and what to print:", first,
               N_ROWS - first - N_SEARCH);
    print_rows("\nWith one of these, or a degree that is auto, all choices "
               "that are not given are\nsearched for, for the shortest step "
               "on that machine:",
               N_ROWS - N_SEARCH, N_SEARCH);
}
