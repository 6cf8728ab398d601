/* SPDX-License-Identifier: Apache-2.0 */
/* task.c - apply the plan to one task, on the node and as the user
 *
 * The plan comes from the job's environment, where the user can put anything:
 * it is decoded here, with the user's rights, and never before.
 */
#include "config.h"

#include "spank_plugin/task.h"

#include "base/error.h"
#include "spank_plugin/plugin.h"

#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Linux starts no program with an environment string of 128 KiB. */
enum { LONGEST_VARIABLE = 100000 };

static void set(spank_t sp, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void set(spank_t sp, const char *name, const char *fmt, ...)
{
    char value[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(value, sizeof(value), fmt, ap);
    va_end(ap);
    spank_setenv(sp, name, value, 1);
}

/* The plan's text, to be freed; NULL if there is none. */
static char *get_plan(spank_t sp)
{
    char *text = NULL;

    for (int size = 4096; size <= 2 * LONGEST_PLAN; size *= 2) {
        char *longer = realloc(text, (size_t)size);
        spank_err_t rc;

        if (longer == NULL)
            break;
        text = longer;
        rc = spank_getenv(sp, PLAN_VARIABLE, text, size);
        if (rc == ESPANK_SUCCESS)
            return text;
        if (rc != ESPANK_NOSPACE)
            break;
    }
    free(text);
    return NULL;
}

/* A number from the task's environment, -1 if there is none. */
static long get_number(spank_t sp, const char *name)
{
    char text[32], *end;
    long value;

    if (spank_getenv(sp, name, text, sizeof(text)) != ESPANK_SUCCESS)
        return -1;
    value = strtol(text, &end, 10);
    return end != text && *end == '\0' ? value : -1;
}

/* Is the plan for this step?  It may be left over from another one. */
static bool is_ours(spank_t sp, const struct merak_placement_plan *plan)
{
    uint32_t job, step;

    return spank_get_item(sp, S_JOB_ID, &job) == ESPANK_SUCCESS &&
           spank_get_item(sp, S_JOB_STEPID, &step) == ESPANK_SUCCESS &&
           plan->job == job && plan->step == step &&
           get_number(sp, "SLURM_STEP_NUM_TASKS") == plan->site.n_tasks;
}

static void set_coordinates(spank_t sp, const struct merak_placement *p,
                            int task)
{
    int logical = merak_placement_logical_of(p, task);
    struct merak_coords c = merak_placement_coords(p, logical);
    int cp = merak_placement_cp(p), ep = merak_placement_ep(p);
    int tp = merak_placement_degree(p, MERAK_AXIS_TP) / cp / ep;

    set(sp, "MERAK_TP_SIZE", "%d", tp);
    set(sp, "MERAK_CP_SIZE", "%d", cp);
    set(sp, "MERAK_EP_SIZE", "%d", ep);
    set(sp, "MERAK_PP_SIZE", "%d", merak_placement_degree(p, MERAK_AXIS_PP));
    set(sp, "MERAK_DP_SIZE", "%d", merak_placement_degree(p, MERAK_AXIS_DP));
    set(sp, "MERAK_TP_RANK", "%d", c.tp % tp);
    set(sp, "MERAK_CP_RANK", "%d", c.tp / tp % cp);
    set(sp, "MERAK_EP_RANK", "%d", c.tp / tp / cp);
    set(sp, "MERAK_PP_RANK", "%d", c.pp);
    set(sp, "MERAK_DP_RANK", "%d", c.dp);
    set(sp, "MERAK_RANK", "%d", logical);
    set(sp, "MERAK_ORDER", "%s", merak_order_name(merak_placement_order(p)));
    set(sp, "MERAK_PLAN_ID", "%016" PRIx64, merak_placement_id(p));
}

static void set_facts(spank_t sp, const struct merak_placement_plan *plan,
                      const char *text, int task)
{
    int node = plan->site.node_of_task[task];
    const char *path = plan->site.node_path[node];

    set(sp, "MERAK_VERSION", "%s", PACKAGE_VERSION);
    set(sp, "MERAK_PLAN_SOURCE", "spank");
    set(sp, "MERAK_WORLD_SIZE", "%d", plan->site.n_tasks);
    set(sp, "MERAK_TOPO_ADDR", "%s%s%s", path, path[0] != '\0' ? "." : "",
        plan->site.node_name[node]);
    if (strlen(text) < LONGEST_VARIABLE)
        spank_setenv(sp, "MERAK_PLAN", text, 1);
}

/* Set what torchrun sets, for programs that rendezvous by it.  Rank 0 is that
 * of the mesh; the port is below Linux's ephemeral ports and depends on the
 * step. */
static void set_torch(spank_t sp, const struct merak_placement_plan *plan,
                      const struct merak_placement *p, int task)
{
    const struct merak_site *site = &plan->site;
    int node = site->node_of_task[task], before = 0, all = 0;
    int first = site->node_of_task[merak_placement_physical_of(p, 0)];

    for (int t = 0; t < site->n_tasks; t++) {
        before += t < task && site->node_of_task[t] == node;
        all += site->node_of_task[t] == node;
    }
    set(sp, "MASTER_ADDR", "%s", site->node_name[first]);
    set(sp, "MASTER_PORT", "%u",
        20000 + (plan->job * 131 + plan->step) % 12000);
    set(sp, "RANK", "%d", merak_placement_logical_of(p, task));
    set(sp, "WORLD_SIZE", "%d", site->n_tasks);
    set(sp, "LOCAL_RANK", "%d", before);
    set(sp, "LOCAL_WORLD_SIZE", "%d", all);
}

static enum merak_status apply(spank_t sp, const char *text, int task,
                               bool torch, struct merak_error *err)
{
    struct merak_placement_plan plan;
    struct merak_placement *p = NULL;
    enum merak_status rc = merak_plan_decode(text, &plan, err);

    if (rc != MERAK_OK)
        return rc;
    if (!is_ours(sp, &plan) || task < 0 || task >= plan.site.n_tasks)
        rc = merak_fail(err, MERAK_ERR_MISMATCH, "it is another step's");
    else if (!merak_degrees_auto(&plan.input))
        rc = merak_plan_placement(&plan, &p, err);
    if (rc == MERAK_OK)
        set_facts(sp, &plan, text, task);
    if (p != NULL)
        set_coordinates(sp, p, task);
    if (p != NULL && rc == MERAK_OK && torch)
        set_torch(sp, &plan, p, task);
    merak_placement_destroy(p);
    merak_plan_fini(&plan);
    return rc;
}

/* Remove the wishes from the environment; text  out  "" where there is none. */
static void take_wishes(spank_t sp, char text[SET_COUNT][PATH_MAX])
{
    for (int i = 0; i < SET_COUNT; i++) {
        char wish[NAME_LONGEST];

        text[i][0] = '\0';
        if (setting_variable((enum setting)i) == NULL)
            continue;
        setting_wish((enum setting)i, wish);
        if (spank_getenv(sp, wish, text[i], PATH_MAX) != ESPANK_SUCCESS)
            text[i][0] = '\0';
        spank_unsetenv(sp, wish);
    }
}

/* Set the files of the plan and of links for the program to read, and, without
 * a map from srun, all other settings. */
static void apply_wishes(spank_t sp, char text[SET_COUNT][PATH_MAX],
                         bool is_placed)
{
    for (int i = 0; i < SET_COUNT; i++) {
        if (text[i][0] != '\0' &&
            (i == SET_PLAN || i == SET_LINKS || !is_placed))
            spank_setenv(sp, setting_variable((enum setting)i), text[i], 1);
    }
}

void task_apply_plan(spank_t sp)
{
    char *text = get_plan(sp), wish[SET_COUNT][PATH_MAX];
    long task = get_number(sp, "SLURM_PROCID");
    bool is_placed = false, torch;
    struct merak_error err;

    if (text != NULL && strcmp(text, PLAN_REFUSED) == 0)
        _exit(EXIT_REFUSED);
    take_wishes(sp, wish);
    torch = strcmp(wish[SET_ENV], "torch") == 0;
    if (text != NULL)
        spank_unsetenv(sp, PLAN_VARIABLE);
    if (text != NULL &&
        text[0] != '\0') { /* "": srun emptied a leftover */
        is_placed = apply(sp, text, (int)task, torch, &err) == MERAK_OK;
        /* The program can make its own plan: warn, and let the task run. */
        if (!is_placed && task == 0)
            slurm_error("merak: " PLAN_VARIABLE " not used: %s", err.text);
    }
    apply_wishes(sp, wish, is_placed);
    free(text);
}
