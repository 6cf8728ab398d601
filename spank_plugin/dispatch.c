/* SPDX-License-Identifier: Apache-2.0 */
/* dispatch.c - the callbacks of the SPANK plugin
 *
 *   srun    init, options   store the settings
 *           init_post_opt   refuse settings that are invalid in themselves,
 *                           or do not fit the tasks that srun was asked for,
 *                           before a job is submitted
 *           local_user_init the step exists and nothing runs yet: ask Slurm
 *                           where the tasks will be, compute the plan, refuse
 *                           what does not fit, pass the plan to the tasks
 *   sbatch, salloc          store, refuse, and pass on to the job as MERAK_*;
 *                           Slurm itself passes on the options
 *   node    task_init       as the user: set variables from the plan
 *
 * On nodes, callbacks before task_init do nothing: they run as root, and an
 * error in them drains the node.  A refusal is one line and exit code 66; the
 * descriptors, signals and directory of the process are its host's and stay as
 * they are.  The plugin should be `optional` in plugstack.conf, so that a
 * missing file does not break jobs.
 */
#include "config.h"

#include "spank_plugin/plugin.h"
#include "spank_plugin/task.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <slurm/slurm_errno.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SPANK_PLUGIN(merak, 1)

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 5, 0)
/* If init ever fails, fail the job, not the node. */
int slurm_spank_init_failure_mode = ESPANK_JOB_FAILURE;
#endif

/* Nodes shown by --merak-map=show; a file lists all. */
enum { MAX_SHOWN = 32 };

/* SPANK has no place for a plugin's state.  Filled by the main thread before a
 * step exists, read-only after that. */
static struct settings settings;
static struct request request;
static struct plan_head head; /* of the plan that is given */

static void refuse(const struct merak_error *err)
{
    slurm_error("merak: %s", err->text);
    exit(EXIT_REFUSED);
}

/*
 * Refuse a step that exists but is not launched.  srun releases its own
 * allocation when it exits.  In an existing allocation the step would hold its
 * CPUs until the job ends, since no public call ends a step that never ran.
 * There it is launched, and its tasks exit in task_init, before the program;
 * srun's line about their exit codes follows ours.
 */
static void refuse_step(const struct merak_error *err)
{
    if (!request.in_allocation)
        refuse(err);
    slurm_error("merak: %s", err->text);
    setenv(PLAN_VARIABLE, PLAN_REFUSED, 1);
}

/* --- options ------------------------------------------------------------- */

/* Did srun get this value from the sbatch or salloc around it?  It is then in
 * the environment under one of Slurm's names. */
static bool is_inherited(enum setting setting, const char *text)
{
    static const char *const prefixes[] = {
        "_SLURM_SPANK_OPTION_merak_",
        "SLURM_SPANK__SLURM_SPANK_OPTION_merak_",
    };
    char name[128];

    for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++) {
        const char *value;

        snprintf(name, sizeof(name), "%s%s", prefixes[i],
                 setting_option(setting));
        for (char *p = name; *p != '\0'; p++)
            *p = *p == '-' ? '_' : *p;
        value = getenv(name);
        if (value != NULL && strcmp(value, text) == 0)
            return true;
    }
    return false;
}

/*
 * srun calls this first for inherited options, then for its command line, where
 * a second, different value is a mistake, typically of the components of a
 * heterogeneous step, which share one value.  sbatch calls it for #SBATCH lines
 * and then for its command line: the last one counts.
 */
static int note_option(int val, const char *given, int remote)
{
    enum setting setting = (enum setting)val;
    const char *text = given != NULL ? given : "";
    bool srun = spank_context() == S_CTX_LOCAL;

    if (remote)
        return 0;
    if (srun && settings.value[setting].source < FROM_INHERITED &&
        is_inherited(setting, text))
        settings_note(&settings, setting, FROM_INHERITED, text, false);
    else
        settings_note(&settings, setting, FROM_LINE, text, srun);
    return 0;
}

/* Without an option that srun passes on, slurmstepd warns and runs the step;
 * with a failed init a `required` plugin drains the node. */
static int register_options(spank_t sp)
{
    bool remote = spank_context() == S_CTX_REMOTE;

    for (int i = 0; i < SET_COUNT; i++) {
        struct spank_option option = {
            .name = (char *)setting_option((enum setting)i),
            .arginfo = (char *)setting_arginfo((enum setting)i),
            .usage = (char *)setting_usage((enum setting)i),
            .has_arg = 1,
            .val = i,
            .cb = note_option,
        };

        if (spank_option_register(sp, &option) != ESPANK_SUCCESS && !remote)
            return -1;
    }
    return 0;
}

/* Plugins are also loaded into slurmd and for prologs: do nothing there. */
int slurm_spank_init(spank_t sp, int ac, char *av[])
{
    spank_context_t context = spank_context();

    if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR &&
        context != S_CTX_REMOTE)
        return 0;
    if (context != S_CTX_REMOTE) {
        for (int i = 0; i < ac; i++)
            settings_note_site(&settings, av[i]);
    }
    return register_options(sp);
}

/* For a heterogeneous step this is called once for each component, and all
 * tasks get the environment of the last. */
static void pass_wishes(void)
{
    if (getenv(PLAN_VARIABLE) != NULL)
        setenv(PLAN_VARIABLE, "", 1);
    settings_pass(&settings);
}

/* --- planning, in srun --------------------------------------------------- */

/* Open without blocking: a pipe without a reader is an error. */
static FILE *open_map(const char *where)
{
    int fd = open(where, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK,
                  0666);
    FILE *out = NULL;

    if (fd >= 0 && fcntl(fd, F_SETFL, 0) == 0)
        out = fdopen(fd, "w");
    if (out == NULL && fd >= 0)
        close(fd);
    return out;
}

static void show(const struct merak_placement *p)
{
    const char *where = settings_text(&settings, SET_MAP);
    FILE *out;

    if (strcmp(where, "show") == 0) {
        merak_placement_print(p, stderr, head.ranks, MAX_SHOWN);
        return;
    }
    if (strchr(where, '/') == NULL)
        return;
    out = open_map(where);
    if (out != NULL)
        merak_placement_print(p, out, head.ranks, MERAK_MAX_NODES);
    if (out == NULL || fclose(out) != 0)
        slurm_error("merak: --merak-map: cannot write %s: %s", where,
                    strerror(errno));
}

/* Compute the map and store the result in the plan. */
static enum merak_status place(struct merak_placement_plan *plan,
                               struct merak_error *err)
{
    struct merak_placement *p;
    enum merak_status rc;

    plan->input.site = &plan->site;
    rc = merak_placement_compute(&plan->input, &p, err);
    if (rc != MERAK_OK)
        return rc;
    plan->id = merak_placement_id(p);
    merak_placement_resolved(p, &plan->input);
    show(p);
    merak_placement_destroy(p);
    return MERAK_OK;
}

/* Is it a mistake that the user has to fix?  With any other error the program
 * makes its own plan. */
static bool is_refusal(enum merak_status status)
{
    return status == MERAK_ERR_CONFIG || status == MERAK_ERR_PARAM;
}

/* Take the degrees from a plan file, if one is given. */
static enum merak_status apply_plan_file(struct merak_placement_input *input,
                                         bool *is_auto, struct merak_error *err)
{
    const char *path = settings_text(&settings, SET_PLAN);
    enum merak_status rc;

    if (path[0] == '\0')
        return MERAK_OK;
    rc = plan_head_read(path, &head, err);
    if (rc == MERAK_OK)
        rc = settings_apply_plan(&settings, &head, input, err);
    if (rc == MERAK_OK)
        *is_auto = false;
    return rc;
}

static bool wants_torch(void)
{
    return strcmp(settings_text(&settings, SET_ENV), "torch") == 0;
}

/* Torch cannot use ranks without coordinates. */
static enum merak_status check_env(const char *why, struct merak_error *err)
{
    if (!wants_torch())
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--merak-env=torch needs ranks that srun knows, and %s",
                      why);
}

/* Which degrees and order, and whether the program chooses them. */
static enum merak_status read_wishes(struct merak_placement_input *input,
                                     bool *is_auto, struct merak_error *err)
{
    enum merak_status rc;

    settings_input(&settings, input, is_auto);
    rc = apply_plan_file(input, is_auto, err);
    if (rc == MERAK_OK && *is_auto)
        rc = check_env("a degree is auto: give numbers, or a plan", err);
    return rc;
}

/* Tensor groups that no placement of the step can fill within its nodes. */
static enum merak_status check_nodes(const struct merak_placement_input *in,
                                     struct merak_error *err)
{
    const struct request *r = &request;
    int cp = in->cp > 1 ? in->cp : 1, ep = in->ep > 1 ? in->ep : 1;
    int group = in->tp * cp * ep; /* at most the tasks */
    const char *what = merak_tensor_group_word(cp, ep);

    if (in->tp_domain != MERAK_DOMAIN_NODE ||
        merak_tensor_group_is_nodes(group, cp, ep, r->per_node))
        return MERAK_OK;
    if (r->per_node > 0 && r->per_node < group)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%s=%d does not fit in nodes of %d task%s; nearest: "
                          "--ntasks-per-node=%d, %s=%d, or "
                          "--merak-tp-domain=any",
                          what, group, r->per_node, r->per_node == 1 ? "" : "s",
                          group, what, r->per_node);
    if (r->per_node % group != 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%d tasks in each node are not a multiple of %s=%d; "
                          "nearest: --ntasks-per-node=%d",
                          r->per_node, what, group,
                          r->per_node / group * group);
    if ((long long)r->nodes * group > r->tasks)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%d tasks on %d nodes: a node has fewer than %s=%d; "
                          "nearest: %lld tasks, -N %d, or "
                          "--merak-tp-domain=any",
                          r->tasks, r->nodes, what, group,
                          (long long)r->nodes * group, r->tasks / group);
    return MERAK_OK;
}

/* MERAK_ERR_CONFIG: whatever nodes the step gets, it will be refused. */
static enum merak_status check_request(struct merak_error *err)
{
    struct merak_placement_input in;
    bool is_auto;
    enum merak_status rc = read_wishes(&in, &is_auto, err);

    if (rc != MERAK_OK || request.tasks == 0)
        return rc;
    if (is_auto)
        return merak_degrees_check_auto(&in, request.tasks, err);
    rc = merak_degrees_resolve(request.tasks, in.cp, in.ep, &in.tp, &in.pp,
                               &in.dp, err);
    return rc == MERAK_OK ? check_nodes(&in, err) : rc;
}

/* Those of the plan, in its order, or else of the file of links; where degrees
 * are auto the program finds the order. */
static enum merak_status take_islands(struct merak_site *site, bool is_auto,
                                      struct merak_error *err)
{
    const char *links = settings_text(&settings, SET_LINKS);
    bool planned = head.islands[0] != '\0';

    if (!planned && links[0] != '\0' && !is_auto &&
        links_head_read(links, head.islands, sizeof(head.islands), err) !=
            MERAK_OK)
        return MERAK_ERR_CONFIG;
    if (head.islands[0] == '\0')
        return MERAK_OK;
    return merak_error_as_config(
        merak_site_take_islands(site, head.islands, planned, err), err);
}

static enum merak_status make_plan(uint32_t job, uint32_t step, char **text_p,
                                   struct merak_error *err)
{
    struct merak_placement_plan plan = {.job = job, .step = step};
    bool is_auto;
    enum merak_status rc;

    rc = read_wishes(&plan.input, &is_auto, err);
    if (rc == MERAK_OK)
        rc = site_of_step(job, step, &plan.site, err);
    if (rc == MERAK_OK)
        rc = take_islands(&plan.site, is_auto, err);
    if (rc == MERAK_OK)
        rc = is_auto
                 ? merak_degrees_check_auto(&plan.input, plan.site.n_tasks, err)
                 : place(&plan, err);
    if (rc == MERAK_OK)
        rc = merak_plan_encode(&plan, text_p, err);
    merak_plan_fini(&plan);
    return rc;
}

/* The components of a heterogeneous step are placed separately, and this
 * callback only sees the first: the program plans such a step. */
static bool is_heterogeneous(void)
{
    const char *size = getenv("SLURM_HET_SIZE");

    return size != NULL && atoi(size) > 1;
}

int slurm_spank_init_post_opt(spank_t sp, int ac, char *av[])
{
    spank_context_t context = spank_context();
    struct merak_error err;

    (void)sp;
    (void)ac;
    (void)av;
    if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR)
        return 0;
    settings_note_environment(&settings);
    if (settings.refused && settings.active)
        refuse(&settings.error);
    if (context == S_CTX_ALLOCATOR) {
        settings_export(&settings);
        return 0;
    }
    request_read(&request);
    if (settings.active && !is_heterogeneous() &&
        check_request(&err) == MERAK_ERR_CONFIG)
        refuse(&err);
    pass_wishes();
    return 0;
}

int slurm_spank_local_user_init(spank_t sp, int ac, char *av[])
{
    struct merak_error err;
    uint32_t job, step;
    char *text = NULL;
    enum merak_status rc;

    (void)ac;
    (void)av;
    if (!settings.active)
        return 0;
    if (is_heterogeneous()) {
        if (check_env("the program places heterogeneous steps", &err) !=
            MERAK_OK)
            refuse_step(&err);
        else
            slurm_info("merak: a heterogeneous step: the program plans by "
                       "itself");
        return 0;
    }
    if (spank_get_item(sp, S_JOB_ID, &job) != ESPANK_SUCCESS ||
        spank_get_item(sp, S_JOB_STEPID, &step) != ESPANK_SUCCESS)
        return 0;
    rc = make_plan(job, step, &text, &err);
    if (rc == MERAK_OK && strlen(text) > LONGEST_PLAN)
        rc = merak_fail(&err, MERAK_ERR_UNSUPPORTED,
                        "the plan is too long for Slurm");
    if (is_refusal(rc) || (rc != MERAK_OK && wants_torch()))
        refuse_step(&err);
    else if (rc != MERAK_OK)
        slurm_info("merak: %s: the program plans by itself", err.text);
    else
        setenv(PLAN_VARIABLE, text, 1);
    free(text);
    return 0;
}

/* --- on the node, as the user -------------------------------------------- */

int slurm_spank_task_init(spank_t sp, int ac, char *av[])
{
    (void)ac;
    (void)av;
    task_apply_plan(sp);
    return 0;
}
