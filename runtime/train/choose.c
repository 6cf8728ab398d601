/* SPDX-License-Identifier: Apache-2.0 */
/* choose.c - a run's plan: from a file, or searched for
 *
 * Rank 0 reads the plan that --plan names, or, where degrees are auto,
 * searches for one: it knows the graph, the nodes and the least memory of any
 * task.  The others get the plan as text, and all follow it exactly.  Both
 * ways end in a struct merak_plan_file.
 */
#include "config.h"

#include "runtime/train/chosen.h"
#include "runtime/train/run_islands.h"
#include "runtime/train/trainer.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/options.h"
#include "partitioner/assembly/assembly.h"
#include "partitioner/search/search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *saved_plan(const struct merak_trainer *t)
{
    const char *path = getenv("MERAK_PLAN_FILE");

    if (t->opt.plan != NULL)
        return t->opt.plan;
    return path != NULL && *path != '\0' ? path : NULL;
}

/* --- the machine ---------------------------------------------------------- */

int merak_tasks_per_node(const struct merak_boot *boot)
{
    int common = 0;

    for (int node = 0; node < boot->n_nodes; node++) {
        int n = 0;

        for (int r = 0; r < boot->size; r++)
            n += boot->node_of[r] == node;
        while (n != 0) { /* Euclid */
            int rest = common % n;

            common = n;
            n = rest;
        }
    }
    return common;
}

/* The costs of this job's ranks. */
static void set_cost(const struct merak_trainer *t,
                     struct merak_cost_model *cost)
{
    int per_node = merak_tasks_per_node(t->boot);

    merak_device_job_cost(&t->device, t->opt.dtype, t->boot->size / per_node,
                          per_node, cost);
}

static enum merak_status find_device(struct merak_trainer *t, const char *word,
                                     struct merak_error *err)
{
    struct merak_device *device = &t->device;
    enum merak_status rc;

    rc = merak_error_as_config(merak_chosen_device(word, device, err), err);
    if (rc == MERAK_OK)
        rc = merak_run_islands_set(t, err);
    if (rc != MERAK_OK)
        return rc;
    /* The built-in device is one core; a file was measured as it will be used,
     * and what is emulated is used as given. */
    if (t->opt.device == NULL && strcasecmp(word, "cpu") == 0 &&
        !t->compute.backend->emulated) {
        for (int d = 0; d < MERAK_DTYPE_COUNT; d++) {
            device->flops_per_s[d] *= t->threads;
            device->peak_flops_per_s[d] *= t->threads;
        }
    }
    set_cost(t, &t->cost);
    if (t->linked.direct)
        merak_links_use_library(&t->cost.links, t->opt.reduce_fast);
    return MERAK_OK;
}

/* Without --device, links have default speeds. */
static enum merak_status find_links(struct merak_trainer *t,
                                    struct merak_error *err)
{
    struct merak_cost_model usual;
    enum merak_status rc = merak_device_find("cpu", &t->device, err);

    if (rc == MERAK_OK)
        rc = merak_run_islands_set(t, err);
    if (rc != MERAK_OK)
        return rc;
    set_cost(t, &usual);
    t->cost.links = usual.links;
    return MERAK_OK;
}

/* --- searching, on rank 0 ------------------------------------------------- */

/* Given choices are not changed. */
static enum merak_status fill_pins(const struct merak_trainer *t,
                                   struct merak_choices *pin,
                                   struct merak_error *err)
{
    const struct merak_train_options *o = &t->opt;
    const struct merak_ranks *r = &t->ranks;
    enum merak_order order = MERAK_ORDER_AUTO;

    *pin = o->choice;
    pin->tp = r->tp;
    pin->ep = r->ep;
    pin->pp = r->pp;
    pin->dp = r->dp;
    pin->cp = r->cp;
    pin->given[MERAK_CHOICE_CP] = r->cp > 0; /* else 1, or auto */
    pin->given[MERAK_CHOICE_BRANCHES] = pin->branches != MERAK_BRANCHES_AUTO;
    if (r->launched)
        order = r->launch.input.order;
    pin->given[MERAK_CHOICE_ORDER] = order != MERAK_ORDER_AUTO;
    pin->order_tp_pp_dp = order == MERAK_ORDER_TP_PP_DP;
    if (o->emu_unit_ms > 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--emu-unit-ms makes all stages identical: there is "
                          "nothing to plan; give tp and pp");
    return merak_choices_check_cp(pin, r->cp, err);
}

/* The input of the search, as in `merak plan` for this allocation. */
static enum merak_status fill_input(struct merak_trainer *t,
                                    struct merak_search_input *in,
                                    struct merak_error *err)
{
    int per_node = merak_tasks_per_node(t->boot);

    *in = (struct merak_search_input){
        .describe = t->source.describe,
        .arg = t->source.describe_arg,
        .seq = t->opt.seq,
        .dtype = t->opt.dtype,
        .global_batch = t->opt.global_batch,
        .nodes = t->boot->size / per_node,
        .ranks_per_node = per_node,
        .stays_on_node = !merak_ranks_may_leave_node(&t->ranks),
        .memory_bytes = t->memory_bytes,
        .threads = 1,
        .seconds = t->opt.search_seconds,
        .device = &t->device};
    if (merak_backend_find(t->opt.backend, &t->compute.backend, err) !=
        MERAK_OK)
        return err->status;
    in->memory = merak_backend_memory(t->compute.backend);
    in->unlike = true;
    in->direct = t->linked.direct;
    in->fast_sums = in->direct && t->opt.reduce_fast;
    in->comms = merak_link_comms_cost;
    in->insists_direct = t->opt.transport == MERAK_TRANSPORT_NCCL;
    return fill_pins(t, &in->pin, err);
}

static enum merak_status encode(struct merak_plan_file *file, char **text_p,
                                struct merak_error *err)
{
    json_t *object = merak_plan_file_object(file);

    *text_p = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    return *text_p != NULL ? MERAK_OK : merak_fail_nomem(err, sizeof(*file));
}

static void log_search(const struct merak_search_input *in,
                       const struct merak_search_result *result,
                       int64_t start_ns)
{
    merak_info("train",
               "searched for a plan for %d x %d tasks (%s), %.2f GiB each: %d "
               "estimated, %d simulated in %.2f s",
               in->nodes, in->ranks_per_node, in->device->name,
               (double)result->memory_limit / 0x1p30, result->n_rated,
               result->n_simulated, merak_clock_since_s(start_ns));
    if (result->cut_short)
        merak_warn("train",
                   "the search was cut short after %.0f s, and another run may "
                   "get another plan: save one with `merak plan --json` and "
                   "give --plan, or raise --search-seconds",
                   result->took_s);
}

static enum merak_status search(struct merak_trainer *t, const char *given,
                                char **text_p, struct merak_error *err)
{
    struct merak_chosen_kinds *kinds = calloc(1, sizeof(*kinds));
    struct merak_search_result *result = NULL;
    struct merak_plan_file file = {0};
    struct merak_search_input in;
    int64_t start_ns = merak_clock_ns();
    enum merak_status rc = kinds == NULL ? merak_fail_nomem(err, sizeof(*kinds))
                                         : fill_input(t, &in, err);

    if (rc == MERAK_OK && merak_device_has_kinds(given))
        rc = merak_chosen_kinds_add(given, kinds, &in, err);
    if (rc == MERAK_OK)
        rc = merak_run_islands_search(&in, t->ranks.islands, &result, &file,
                                      err);
    if (rc == MERAK_OK)
        rc = encode(&file, text_p, err);
    if (rc == MERAK_OK)
        log_search(&in, result, start_ns);
    merak_search_destroy(result);
    merak_chosen_kinds_destroy(kinds);
    return rc;
}

static enum merak_status read_saved(const char *path, char **text_p,
                                    struct merak_error *err)
{
    struct merak_plan_file *file = NULL;
    enum merak_status rc = merak_plan_file_load(path, &file, err);

    if (rc == MERAK_OK)
        rc = encode(file, text_p, err);
    merak_plan_file_destroy(file);
    return rc;
}

/* --- does the plan match the options?
 * ------------------------------------- */

static enum merak_status contradicts(const char *name, const char *said,
                                     const char *has, struct merak_error *err)
{
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--%s %s contradicts the plan, which has %s: leave the "
                      "option out, or plan again",
                      name, said, has);
}

static enum merak_status check_number(const char *name, bool given, size_t said,
                                      size_t has, struct merak_error *err)
{
    char a[24], b[24];

    if (!given || said == has)
        return MERAK_OK;
    snprintf(a, sizeof(a), "%zu", said);
    snprintf(b, sizeof(b), "%zu", has);
    return contradicts(name, a, b, err);
}

static enum merak_status check_tasks(const struct merak_trainer *t,
                                     struct merak_error *err)
{
    const struct merak_plan *p = &t->chosen->plan;
    const long long tasks = merak_plan_ranks(p);
    char degrees[MERAK_DEGREES_TEXT];

    if (tasks == t->boot->size)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "the plan is for %lld tasks (%s) "
                      "and this run has %d; start it with %lld, or plan again "
                      "for %d",
                      tasks, merak_plan_degrees_text(p, " x ", degrees),
                      t->boot->size, tasks, t->boot->size);
}

/* The choices of options and launch that a plan could contradict. */
static struct merak_choices choices_said(const struct merak_trainer *t)
{
    const struct merak_ranks *r = &t->ranks;
    struct merak_choices said = t->opt.choice;
    bool *given = said.given, alike;

    said.tp = r->tp;
    said.ep = r->ep;
    said.pp = r->pp;
    said.dp = r->dp;
    said.cp = r->cp;
    /* Unlike stages are placed in the tasks' order, whatever a launch with one
     * tensor rank and one stage calls them. */
    alike = r->stage == NULL &&
            (t->chosen->plan.stage == NULL || r->tp > 1 || r->pp > 1);
    given[MERAK_CHOICE_TP] = r->tp > 0 && alike;
    given[MERAK_CHOICE_EP] = r->ep > 0 && alike;
    given[MERAK_CHOICE_PP] = r->pp > 0 && alike;
    given[MERAK_CHOICE_DP] = r->dp > 0 && alike;
    given[MERAK_CHOICE_CP] = r->cp > 0;
    given[MERAK_CHOICE_BOUNDARY] = said.boundary != MERAK_BOUNDARY_AUTO;
    given[MERAK_CHOICE_LOSSY_HOPS] =
        given[MERAK_CHOICE_LOSSY_HOPS] &&
        !merak_lossy_obeys(&t->chosen->plan.lossy, &said.lossy,
                           t->chosen->plan.pp);
    /* A search knows it, and may have found no such order. */
    given[MERAK_CHOICE_BRANCHES] =
        said.branches != MERAK_BRANCHES_AUTO && saved_plan(t) != NULL;
    return said;
}

static enum merak_status check_choices(const struct merak_trainer *t,
                                       struct merak_error *err)
{
    const struct merak_plan *p = &t->chosen->plan;
    const struct merak_choices said = choices_said(t);
    struct merak_choices has;

    merak_choices_of(p, &has);
    has.list.cut = NULL; /* no option has these */
    has.list.drop = NULL;
    has.boundary =
        p->scatter > 0 ? MERAK_BOUNDARY_SCATTER : MERAK_BOUNDARY_WHOLE;
    for (int i = 0; i < MERAK_CHOICE_COUNT; i++) {
        const struct merak_choice *c = &merak_choice[i];
        char a[MERAK_CHOICE_TEXT(64)], b[MERAK_CHOICE_TEXT(64)];

        if (!said.given[i])
            continue;
        merak_choice_text(c, &said, a, sizeof(a));
        merak_choice_text(c, &has, b, sizeof(b));
        if (strcmp(a, b) != 0)
            return contradicts(c->option.name, a, b, err);
    }
    return MERAK_OK;
}

/* Check the plan, and what a saved one was made for. */
static enum merak_status check_chosen(const struct merak_trainer *t,
                                      struct merak_error *err)
{
    static const char *const dtype[] = {"fp32", "bf16"};
    const struct merak_train_options *o = &t->opt;
    const struct merak_plan *p = &t->chosen->plan;
    enum merak_status rc = check_tasks(t, err);

    if (rc == MERAK_OK)
        rc = check_choices(t, err);
    if (rc == MERAK_OK)
        rc = check_number("seq", o->given.seq, o->seq, t->chosen->seq, err);
    if (rc == MERAK_OK)
        rc = check_number("global-batch", o->given.global_batch,
                          o->global_batch, t->chosen->global_batch, err);
    if (rc == MERAK_OK && o->given.dtype && o->dtype != p->dtype)
        rc = contradicts("dtype", dtype[o->dtype], dtype[p->dtype], err);
    return rc;
}

/* Copy the plan's choices into the options. */
static void take_choices(struct merak_trainer *t)
{
    const struct merak_plan *p = &t->chosen->plan;
    struct merak_train_options *o = &t->opt;

    t->ranks.tp = p->tp;
    t->ranks.ep = p->ep;
    t->ranks.pp = p->pp;
    t->ranks.dp = p->dp;
    t->ranks.cp = p->cp;
    t->ranks.stage = p->stage;
    o->seq = t->chosen->seq;
    o->global_batch = t->chosen->global_batch;
    o->dtype = p->dtype;
    o->choice.recompute = p->recompute;
}

/* A saved plan names the device it was made for, without its costs: they are
 * known if the device is built in, not if it is a file. */
static void predict_as_planned(struct merak_trainer *t)
{
    const char *name = t->chosen->device;
    struct merak_error unknown;
    bool known;

    if (t->opt.device != NULL || *name == '\0')
        return;
    known =
        strchr(name, '/') == NULL && find_device(t, name, &unknown) == MERAK_OK;
    if (t->boot->rank != 0)
        return;
    if (known)
        merak_info("train", "predicted by the built-in costs of %s", name);
    else
        merak_info("train",
                   "predicted by default costs, not by %s, which the plan was "
                   "made with; --device FILE gives others",
                   name);
}

/* --- together ------------------------------------------------------------- */

/* Broadcast rank 0's text. */
static enum merak_status share(struct merak_trainer *t, char **text_p,
                               struct merak_error *err)
{
    size_t n = *text_p != NULL ? strlen(*text_p) + 1 : 0;
    enum merak_status rc = t->boot->ops->broadcast(t->boot, &n, sizeof(n), err);

    if (rc == MERAK_OK && t->boot->rank != 0) {
        *text_p = malloc(n);
        if (*text_p == NULL)
            rc = merak_fail_nomem(err, n);
    }
    rc = merak_boot_agree(t->boot, rc, err);
    if (rc == MERAK_OK)
        rc = t->boot->ops->broadcast(t->boot, *text_p, n, err);
    return rc;
}

static void log_choice(const struct merak_trainer *t, const char *path)
{
    const struct merak_plan_file *file = t->chosen;
    char text[MERAK_PLAN_TEXT];

    merak_plan_describe(&file->plan, text, sizeof(text));
    merak_info("train",
               "%s %s: %s; predicted for %s: step %.4g s, %.1f MiB a task",
               path != NULL ? path : "chosen", file->id, text, file->device,
               file->step_s, (double)file->memory_bytes / 0x1p20);
}

/* Programs depend on link parameters, and files of the same name may differ
 * between nodes: all take rank 0's. */
static enum merak_status share_links(struct merak_trainer *t,
                                     struct merak_error *err)
{
    enum merak_status rc = t->boot->ops->broadcast(t->boot, &t->cost.links,
                                                   sizeof(t->cost.links), err);

    /* what rank 0 borrows is here, too */
    t->cost.links.islands =
        t->ranks.islands != NULL ? &t->ranks.islands->ways : NULL;
    return rc;
}

/* The kernel choices in the device file, if it is for this kind of device, one
 * per line. */
static enum merak_status join_choices(const struct merak_trainer *t,
                                      char **text_p, struct merak_error *err)
{
    const struct merak_accel_ops *ops =
        t->compute.accel == NULL ? NULL : t->compute.accel->ops;
    size_t bytes = 1;
    char here[128] = "";

    if (ops != NULL && ops->tuned_for != NULL)
        ops->tuned_for(t->compute.accel, here, sizeof(here));
    for (int i = 0; i < t->device.n_tuned; i++)
        bytes += strlen(t->device.tuned[i]) + 1;
    *text_p = calloc(1, bytes);
    if (*text_p == NULL)
        return merak_fail_nomem(err, bytes);
    if (t->device.tuned_for == NULL || strcmp(here, t->device.tuned_for) != 0)
        return MERAK_OK;
    for (int i = 0; i < t->device.n_tuned; i++) {
        strcat(*text_p, t->device.tuned[i]);
        strcat(*text_p, "\n");
    }
    return MERAK_OK;
}

static enum merak_status use_lines(const struct merak_trainer *t, char *text,
                                   struct merak_error *err)
{
    const char **line = NULL;
    char *rest = NULL;
    size_t room = 1;
    int n = 0;
    enum merak_status rc;

    for (const char *at = text; *at != '\0'; at++)
        room += *at == '\n';
    line = calloc(room, sizeof(*line));
    if (line == NULL)
        return merak_fail_nomem(err, room * sizeof(*line));
    for (char *at = strtok_r(text, "\n", &rest); at != NULL;
         at = strtok_r(NULL, "\n", &rest))
        line[n++] = at;
    rc = t->compute.backend->use_choices(line, n, err);
    if (rc != MERAK_OK)
        merak_error_wrap(err, "device file %.100s", t->opt.device);
    free(line);
    return rc;
}

/* With different kernel choices ranks would compute different bits, and plan
 * different scratch: all take rank 0's, before they plan. */
static enum merak_status use_choices(struct merak_trainer *t,
                                     struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;
    char *text = NULL;

    if (t->compute.backend->use_choices == NULL)
        return MERAK_OK;
    if (t->boot->rank == 0)
        rc = join_choices(t, &text, err);
    rc = merak_boot_agree(t->boot, rc, err);
    if (rc == MERAK_OK)
        rc = share(t, &text, err);
    if (rc == MERAK_OK)
        rc = use_lines(t, text, err);
    free(text);
    return rc;
}

/* The built-in device that stands for this machine without --device: that of
 * rank 0, on all ranks; "": none is needed, and accelerators are unknown.
 * Collective. */
static enum merak_status device_here(const struct merak_trainer *t,
                                     bool searches, char word[32],
                                     struct merak_error *err)
{
    bool on_host =
        t->compute.accel == NULL || t->compute.accel->ops->memory == NULL;
    const char *name =
        on_host ? NULL : merak_device_of_hardware(t->compute.card.name);

    if (name == NULL && searches) {
        name = "cpu";
        if (!on_host && t->boot->rank == 0)
            merak_warn("train",
                       "no speeds of %s are built in: the plan is made for a "
                       "CPU's; calibrate here, and give the file with --device",
                       t->compute.card.name);
    }
    snprintf(word, 32, "%s", name != NULL ? name : "");
    return t->boot->ops->broadcast(t->boot, word, 32, err);
}

enum merak_status merak_choose(struct merak_trainer *t, struct merak_error *err)
{
    const char *path = saved_plan(t);
    bool searches = path == NULL && t->ranks.automatic;
    const char *given = t->opt.device, *device;
    char *text = NULL, here[32];
    enum merak_status rc = merak_device_here(t, err);

    if (rc == MERAK_OK)
        rc = merak_run_islands_open(t, err);
    device = t->opt.device;
    if (rc == MERAK_OK && device == NULL) {
        rc = device_here(t, searches, here, err);
        device = here[0] != '\0' ? here : NULL;
    }
    /* --device without a plan is what emu emulates.  Rank 0 searches, and all
     * ranks predict with the same costs. */
    if (rc == MERAK_OK)
        rc = device != NULL ? find_device(t, device, err) : find_links(t, err);
    rc = merak_boot_agree(t->boot, rc, err);
    if (rc == MERAK_OK)
        rc = use_choices(t, err);
    if (rc == MERAK_OK && t->boot->rank == 0 && path != NULL)
        rc = read_saved(path, &text, err);
    else if (rc == MERAK_OK && t->boot->rank == 0 && searches)
        rc = search(t, given, &text, err);
    rc = merak_boot_agree(t->boot, rc, err);
    if (rc == MERAK_OK)
        rc = share_links(t, err);
    if (rc != MERAK_OK || (path == NULL && !searches))
        goto out;
    rc = share(t, &text, err);
    if (rc == MERAK_OK)
        rc = merak_plan_file_decode(text, strlen(text), "of rank 0", &t->chosen,
                                    err);
    if (rc == MERAK_OK && t->ranks.islands != NULL)
        rc =
            merak_run_islands_follow(t->ranks.islands, t->chosen->islands, err);
    if (rc == MERAK_OK)
        rc = check_chosen(t, err);
    if (rc == MERAK_OK) {
        take_choices(t);
        if (t->boot->rank == 0)
            log_choice(t, path);
        if (path != NULL)
            predict_as_planned(t);
    }
out:
    if (rc == MERAK_OK && t->boot->rank == 0)
        merak_run_islands_log(t->ranks.islands);
    free(text);
    return rc;
}
