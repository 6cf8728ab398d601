/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.c - degrees, the rank map and this task's position in it */
#include "config.h"

#include "runtime/train/run_islands.h"
#include "runtime/train/trainer.h"

#include "base/error.h"
#include "base/log.h"
#include "base/options.h"
#include "partitioner/plan/mesh.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* A degree from the environment variable `name`, set by the plugin or the
 * user; 0 if it is not set. */
static enum merak_status degree_from_env(const char *name, int *degree_p,
                                         struct merak_error *err)
{
    const char *text = getenv(name);
    char *end;
    long v;

    *degree_p = 0;
    if (text == NULL || *text == '\0')
        return MERAK_OK;
    if (strcmp(text, "auto") == 0) {
        *degree_p = MERAK_OPTION_AUTO;
        return MERAK_OK;
    }
    v = strtol(text, &end, 10);
    if (*end != '\0' || v < 1 || v > 65535)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%s: expected an integer 1..65535 or auto, got "
                          "\"%.40s\"",
                          name, text);
    *degree_p = (int)v;
    return MERAK_OK;
}

/* One of the degrees, and the variables it may come from. */
struct degree_names {
    const char *what, *resolved, *wish;
};

/* The program's option, else what the plugin resolved (`placed`, 0 if it did
 * not), else the user's variable.  The option may not contradict the
 * plugin. */
static enum merak_status resolve_degree(int option, int placed,
                                        const struct degree_names *names,
                                        int *degree_p, struct merak_error *err)
{
    int resolved, wish;
    enum merak_status rc = degree_from_env(names->resolved, &resolved, err);

    if (rc == MERAK_OK)
        rc = degree_from_env(names->wish, &wish, err);
    if (rc != MERAK_OK)
        return rc;
    if (placed > 0)
        resolved = placed;
    if (option != 0 && resolved > 0 && option != resolved) {
        char text[16] = "auto";

        if (option > 0)
            snprintf(text, sizeof(text), "%d", option);
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--%s %s contradicts the launch: srun placed the "
                          "tasks for --merak-%s=%d",
                          names->what, text, names->what, resolved);
    }
    *degree_p = option != 0 ? option : resolved > 0 ? resolved : wish;
    return MERAK_OK;
}

/* The launch may leave the choice to the program, which may pin it.  dp does
 * not count: it follows from the others, given or not.  stages: are they
 * auto? */
static void settle_auto(struct merak_ranks *r, bool stages)
{
    r->automatic = r->tp == MERAK_OPTION_AUTO || r->pp == MERAK_OPTION_AUTO ||
                   r->cp == MERAK_OPTION_AUTO || r->ep == MERAK_OPTION_AUTO ||
                   stages ||
                   (r->launched && merak_degrees_auto(&r->launch.input));
    if (r->tp == MERAK_OPTION_AUTO)
        r->tp = 0;
    if (r->pp == MERAK_OPTION_AUTO)
        r->pp = 0;
    if (r->dp == MERAK_OPTION_AUTO)
        r->dp = 0;
}

/* The site as PMIx describes it. */
static enum merak_status site_from_boot(const struct merak_boot *boot,
                                        struct merak_site *site,
                                        struct merak_error *err)
{
    enum merak_status rc =
        merak_site_init(site, boot->n_nodes, boot->size, err);

    if (rc != MERAK_OK)
        return rc;
    for (int i = 0; i < boot->n_nodes; i++) {
        site->node_name[i] = strdup(boot->hosts[i]);
        site->node_path[i] = strdup("");
        if (site->node_name[i] == NULL || site->node_path[i] == NULL)
            return merak_fail_nomem(err, strlen(boot->hosts[i]) + 1);
    }
    memcpy(site->node_of_task, boot->node_of,
           (size_t)boot->size * sizeof(*site->node_of_task));
    return MERAK_OK;
}

/* Is every task of the plan on the host that PMIx names? */
static bool site_is_ours(const struct merak_site *site,
                         const struct merak_boot *boot)
{
    if (site->n_tasks != boot->size || site->n_nodes != boot->n_nodes)
        return false;
    for (int r = 0; r < boot->size; r++) {
        if (strcmp(site->node_name[site->node_of_task[r]],
                   boot->hosts[boot->node_of[r]]) != 0)
            return false;
    }
    return true;
}

static bool same_number(const char *name, uint32_t value)
{
    const char *text = getenv(name);

    return text != NULL && strtoul(text, NULL, 10) == value;
}

/* The plugin's plan, if there is one and it was made for this step. */
static bool read_plan(const struct merak_boot *boot,
                      struct merak_placement_plan *plan)
{
    const char *text = getenv("MERAK_PLAN");
    struct merak_error why;

    if (text == NULL)
        return false;
    if (merak_plan_decode(text, plan, &why) != MERAK_OK) {
        merak_info("train", "the launch's plan is not used: %s", why.text);
        return false;
    }
    if (same_number("SLURM_JOB_ID", plan->job) &&
        same_number("SLURM_STEP_ID", plan->step) &&
        site_is_ours(&plan->site, boot))
        return true;
    merak_info("train", "the launch's plan is not used: it was made for "
                        "another step or other hosts");
    merak_plan_fini(plan);
    return false;
}

static enum merak_status fill_map(const struct merak_placement *p,
                                  const struct merak_boot *boot,
                                  struct merak_ranks *r,
                                  struct merak_error *err)
{
    r->transport_rank = calloc((size_t)boot->size, sizeof(int));
    if (r->transport_rank == NULL)
        return merak_fail_nomem(err, (size_t)boot->size * sizeof(int));
    r->logical_rank = calloc((size_t)boot->size, sizeof(int));
    if (r->logical_rank == NULL)
        return merak_fail_nomem(err, (size_t)boot->size * sizeof(int));
    for (int i = 0; i < boot->size; i++) {
        r->transport_rank[i] = merak_placement_physical_of(p, i);
        r->logical_rank[r->transport_rank[i]] = i;
    }
    r->logical = merak_placement_logical_of(p, boot->rank);
    r->order_tp_pp_dp = merak_placement_order(p) == MERAK_ORDER_TP_PP_DP;
    return MERAK_OK;
}

/* Unlike stages take the place of degrees, which srun may not have applied. */
static enum merak_status take_stages(const struct merak_given_lists *list,
                                     struct merak_ranks *r,
                                     struct merak_error *err)
{
    static const struct {
        const char *name;
        size_t at;
    } axis[] = {{"tp", offsetof(struct merak_placement_input, tp)},
                {"cp", offsetof(struct merak_placement_input, cp)},
                {"ep", offsetof(struct merak_placement_input, ep)},
                {"pp", offsetof(struct merak_placement_input, pp)}};
    const struct merak_placement_input *placed = &r->launch.input;

    for (size_t i = 0; r->launched && i < sizeof(axis) / sizeof(*axis); i++) {
        int n = *(const int *)((const char *)placed + axis[i].at);

        if (n > 1)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "--stages contradicts the launch: srun placed "
                              "the tasks for --merak-%s=%d; leave it out",
                              axis[i].name, n);
    }
    r->stage = list->stage;
    r->tp = r->dp = 1;
    r->pp = list->n_stages;
    r->automatic = false;
    return MERAK_OK;
}

/* Tensor ranks on several nodes are slow, but right. */
static void warn_of_nodes(const struct merak_boot *boot,
                          const struct merak_ranks *r)
{
    int rank = 0;

    for (int s = 0; s < r->pp; s++) {
        for (int d = 0; d < r->stage[s].dp; d++, rank += r->stage[s].tp) {
            for (int t = 1; t < r->stage[s].tp; t++) {
                if (boot->node_of[rank + t] == boot->node_of[rank])
                    continue;
                merak_warn("train",
                           "stage %d, %d x %d: its tensor ranks are on several "
                           "nodes, which is slow; order the stages so that "
                           "they fill nodes",
                           s, r->stage[s].dp, r->stage[s].tp);
                return;
            }
        }
    }
}

/* The tasks of the nodes in their order by kinds, each node's in order. */
static void order_by_nodes(const struct merak_boot *boot, struct merak_ranks *r)
{
    int at = 0;

    for (int i = 0; i < boot->n_nodes; i++) {
        for (int task = 0; task < boot->size; task++) {
            if (boot->node_of[task] == r->nodes[i])
                r->transport_rank[at++] = task;
        }
    }
}

static enum merak_status place_in_order(const struct merak_boot *boot,
                                        struct merak_ranks *r,
                                        struct merak_error *err)
{
    int n = boot->size;

    r->transport_rank = calloc((size_t)n, sizeof(int));
    if (r->transport_rank == NULL)
        return merak_fail_nomem(err, (size_t)n * sizeof(int));
    r->logical_rank = calloc((size_t)n, sizeof(int));
    if (r->logical_rank == NULL)
        return merak_fail_nomem(err, (size_t)n * sizeof(int));
    for (int i = 0; i < n; i++)
        r->transport_rank[i] = i;
    if (r->nodes != NULL)
        order_by_nodes(boot, r);
    for (int i = 0; i < n; i++)
        r->logical_rank[r->transport_rank[i]] = i;
    r->logical = r->logical_rank[boot->rank];
    snprintf(r->source, sizeof(r->source), "%s",
             r->nodes != NULL ? "by kinds" : "in order");
    if (boot->rank == 0 && r->stage != NULL)
        warn_of_nodes(boot, r);
    return MERAK_OK;
}

/* Their ranks are the tasks in order. */
static enum merak_status place_stages(const struct merak_boot *boot,
                                      struct merak_ranks *r,
                                      struct merak_error *err)
{
    int n = merak_stages_ranks(r->stage, r->pp);
    char text[96];

    merak_stages_text(r->stage, r->pp, text, sizeof(text));
    if (n != boot->size)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--stages %s is %d ranks, the job has %d tasks", text,
                          n, boot->size);
    return place_in_order(boot, r, err);
}

enum merak_status merak_ranks_wish(const struct merak_boot *boot,
                                   const struct merak_train_options *opt,
                                   struct merak_ranks *r,
                                   struct merak_error *err)
{
    static const struct degree_names tp = {"tp", "MERAK_TP_SIZE", "MERAK_TP"};
    static const struct degree_names ep = {"ep", "MERAK_EP_SIZE", "MERAK_EP"};
    static const struct degree_names pp = {"pp", "MERAK_PP_SIZE", "MERAK_PP"};
    static const struct degree_names dp = {"dp", "MERAK_DP_SIZE", "MERAK_DP"};
    static const struct degree_names cp = {"cp", "MERAK_CP_SIZE", "MERAK_CP"};
    const struct merak_placement_input *placed = &r->launch.input;
    bool is_placed;
    enum merak_status rc;

    r->launched = read_plan(boot, &r->launch);
    is_placed = r->launched && !merak_degrees_auto(placed);
    if (opt->choice.list.stage != NULL)
        return take_stages(&opt->choice.list, r, err);
    rc = resolve_degree(opt->choice.tp, placed->tp, &tp, &r->tp, err);
    if (rc == MERAK_OK)
        rc = resolve_degree(opt->choice.ep, placed->ep, &ep, &r->ep, err);
    if (rc == MERAK_OK)
        rc = resolve_degree(opt->choice.pp, placed->pp, &pp, &r->pp, err);
    if (rc == MERAK_OK)
        rc = resolve_degree(opt->choice.dp, placed->dp, &dp, &r->dp, err);
    if (rc == MERAK_OK) /* where the program is to choose, 1 is no wish */
        rc = resolve_degree(opt->choice.cp,
                            is_placed || placed->cp > 1 ? placed->cp : 0, &cp,
                            &r->cp, err);
    if (rc == MERAK_OK && r->cp == 0 && placed->cp == MERAK_CP_CHOSEN)
        r->cp = MERAK_OPTION_AUTO;
    if (rc == MERAK_OK && r->ep == 0 && placed->ep == MERAK_EP_CHOSEN)
        r->ep = MERAK_OPTION_AUTO;
    if (rc == MERAK_OK)
        settle_auto(r, opt->choice.list.auto_stages);
    return rc;
}

/* User's variables that srun did not apply: in a heterogeneous step, or with
 * another launcher. */
static enum merak_status wish_from_env(struct merak_placement_input *in,
                                       struct merak_error *err)
{
    const char *order = getenv("MERAK_ORDER");
    const char *domain = getenv("MERAK_TP_DOMAIN");

    if (order != NULL && *order != '\0' &&
        merak_order_parse(order, &in->order) != MERAK_OK)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "MERAK_ORDER: expected tp-dp-pp, tp-pp-dp or auto, "
                          "got \"%.40s\"",
                          order);
    if (domain != NULL && *domain != '\0' &&
        merak_domain_parse(domain, &in->tp_domain) != MERAK_OK)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "MERAK_TP_DOMAIN: expected node, leaf or any, "
                          "got \"%.40s\"",
                          domain);
    return MERAK_OK;
}

bool merak_ranks_may_leave_node(const struct merak_ranks *ranks)
{
    struct merak_placement_input in = {.site = NULL};

    if (ranks->launched)
        in = ranks->launch.input;
    else if (wish_from_env(&in, NULL) != MERAK_OK)
        return false; /* it is refused when ranks are placed */
    return in.tp_domain != MERAK_DOMAIN_NODE;
}

/* Let the walk of nodes follow the islands of the plan, or those of --links,
 * unless srun has done so. */
static enum merak_status take_islands(const struct merak_plan_file *chosen,
                                      const struct merak_ranks *r,
                                      struct merak_site *site,
                                      struct merak_error *err)
{
    char text[sizeof(chosen->islands)] = "";

    if (chosen != NULL)
        snprintf(text, sizeof(text), "%s", chosen->islands);
    if (text[0] == '\0' && r->islands != NULL)
        merak_run_islands_text(r->islands, text, sizeof(text));
    if (text[0] == '\0' ||
        (r->launched && !merak_degrees_auto(&r->launch.input)))
        return MERAK_OK;
    return merak_error_as_config(
        merak_site_take_islands(site, text, r->islands == NULL, err), err);
}

enum merak_status merak_ranks_place(const struct merak_boot *boot,
                                    const struct merak_plan_file *chosen,
                                    struct merak_ranks *r,
                                    struct merak_error *err)
{
    struct merak_placement_input input = {.site = NULL};
    struct merak_placement *placement = NULL;
    struct merak_site site = {.n_nodes = 0};
    enum merak_status rc;

    if (r->stage != NULL)
        return place_stages(boot, r, err);
    rc = merak_degrees_resolve(boot->size, r->cp, r->ep, &r->tp, &r->pp, &r->dp,
                               err);
    if (rc == MERAK_OK && r->nodes != NULL)
        return place_in_order(boot, r, err);
    if (rc == MERAK_OK && !r->launched)
        rc = site_from_boot(boot, &site, err);
    if (rc == MERAK_OK && !r->launched)
        rc = wish_from_env(&input, err);
    if (rc != MERAK_OK)
        goto out;
    if (r->launched)
        input = r->launch.input;
    if (chosen != NULL)
        input.order = chosen->plan.order_tp_pp_dp ? MERAK_ORDER_TP_PP_DP
                                                  : MERAK_ORDER_TP_DP_PP;
    /* srun's map is kept: tasks have its coordinates */
    if (chosen != NULL && merak_degrees_auto(&r->launch.input)) {
        input.pp_bytes = chosen->sent.pp_bytes;
        input.dp_bytes = chosen->sent.dp_bytes;
    }
    rc = take_islands(chosen, r, r->launched ? &r->launch.site : &site, err);
    if (rc != MERAK_OK)
        goto out;
    input.site = r->launched ? &r->launch.site : &site;
    input.tp = r->tp;
    input.ep = r->ep;
    input.pp = r->pp;
    input.dp = r->dp;
    input.cp = r->cp;
    rc = merak_placement_compute(&input, &placement, err);
    if (rc == MERAK_OK)
        rc = fill_map(placement, boot, r, err);
    snprintf(r->source, sizeof(r->source), "%s",
             r->launched      ? "spank"
             : boot->size > 1 ? "runtime"
                              : "single");
out:
    merak_placement_destroy(placement);
    merak_site_fini(&site);
    return rc;
}

void merak_ranks_fini(struct merak_ranks *ranks)
{
    if (ranks->launched)
        merak_plan_fini(&ranks->launch);
    ranks->launched = false;
    free(ranks->transport_rank);
    free(ranks->logical_rank);
    free(ranks->nodes);
    free(ranks->islands);
    ranks->islands = NULL;
    ranks->nodes = NULL;
    ranks->transport_rank = NULL;
    ranks->logical_rank = NULL;
}
