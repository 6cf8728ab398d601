/* SPDX-License-Identifier: Apache-2.0 */
/* site.c - the layout of a step and the switch tree, from slurmctld
 *
 * Two RPCs, made by srun.  Slurm's functions are looked up in the process:
 * linking libslurm would add a second copy of its state.
 */
#include "config.h"

#include "spank_plugin/plugin.h"

#include "base/error.h"
#include "placement/hostlist.h"
#include "placement/topology.h"

#include <dlfcn.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Since 23.11 the answer is opaque, and printing it is the public way. */
#define TOPOLOGY_IS_OPAQUE \
    (SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 11, 0))
/* Since 25.05 a cluster has several topologies; NULL is the default one. */
#define TOPOLOGY_HAS_NAME (SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 5, 0))

/* --- the layout ---------------------------------------------------------- */

static enum merak_status unexpected(struct merak_error *err)
{
    return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                      "Slurm's answer about the step's layout makes no sense");
}

/* Copy the nodes' names, in Slurm's order, and the node of every task. */
static enum merak_status copy_layout(const slurm_step_layout_t *layout,
                                     struct merak_site *site,
                                     struct merak_error *err)
{
    struct merak_hostlist list;
    enum merak_status rc;
    uint32_t seen = 0;

    if (layout->node_list == NULL || layout->node_cnt > MERAK_MAX_NODES ||
        layout->task_cnt > MERAK_MAX_TASKS)
        return unexpected(err);
    rc = merak_hostlist_expand(layout->node_list, MERAK_MAX_NODES, &list, err);
    if (rc != MERAK_OK)
        return rc;
    if (list.n != (int)layout->node_cnt)
        rc = unexpected(err);
    else
        rc = merak_site_init(site, list.n, (int)layout->task_cnt, err);
    for (int i = 0; rc == MERAK_OK && i < list.n; i++) {
        site->node_name[i] = list.name[i];
        list.name[i] = NULL; /* now owned by the site */
        for (int k = 0; k < layout->tasks[i]; k++, seen++) {
            if (layout->tids[i][k] < layout->task_cnt)
                site->node_of_task[layout->tids[i][k]] = i;
        }
    }
    merak_hostlist_fini(&list);
    if (rc == MERAK_OK && seen != layout->task_cnt) {
        merak_site_fini(site);
        rc = unexpected(err);
    }
    return rc;
}

static enum merak_status load_layout(uint32_t job, uint32_t step,
                                     struct merak_site *site,
                                     struct merak_error *err)
{
    __typeof__(slurm_job_step_layout_get) *get =
        dlsym(RTLD_DEFAULT, "slurm_job_step_layout_get");
    __typeof__(slurm_job_step_layout_free) *release =
        dlsym(RTLD_DEFAULT, "slurm_job_step_layout_free");
    slurm_step_id_t id = {
        .job_id = job, .step_id = step, .step_het_comp = NO_VAL};
    slurm_step_layout_t *layout;
    enum merak_status rc;

    if (get == NULL || release == NULL)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "this Slurm does not report a step's layout");
    layout = get(&id);
    if (layout == NULL)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "slurmctld does not report the step's layout");
    rc = copy_layout(layout, site, err);
    release(layout);
    return rc;
}

/* --- the tree ------------------------------------------------------------ */

#if TOPOLOGY_IS_OPAQUE
static void write_answer(FILE *out, topo_info_response_msg_t *answer)
{
    __typeof__(slurm_print_topo_info_msg) *print =
        dlsym(RTLD_DEFAULT, "slurm_print_topo_info_msg");

#if TOPOLOGY_HAS_NAME
    if (print != NULL)
        print(out, answer, NULL, NULL, 1); /* all nodes, all units */
#else
    if (print != NULL)
        print(out, answer, NULL, 1);
#endif
}
#else
static void write_answer(FILE *out, topo_info_response_msg_t *answer)
{
    for (uint32_t i = 0; i < answer->record_count; i++) {
        const topo_info_t *sw = &answer->topo_array[i];

        if (sw->name == NULL)
            continue;
        fprintf(out, "SwitchName=%s", sw->name);
        if (sw->nodes != NULL && sw->nodes[0] != '\0')
            fprintf(out, " Nodes=%s", sw->nodes);
        if (sw->switches != NULL && sw->switches[0] != '\0')
            fprintf(out, " Switches=%s", sw->switches);
        fputc('\n', out);
    }
}
#endif

/* The tree as text, to be freed; NULL if there is none. */
static char *load_topology(void)
{
    __typeof__(slurm_load_topo) *load = dlsym(RTLD_DEFAULT, "slurm_load_topo");
    __typeof__(slurm_free_topo_info_msg) *release =
        dlsym(RTLD_DEFAULT, "slurm_free_topo_info_msg");
    topo_info_response_msg_t *answer = NULL;
    char *text = NULL;
    size_t size;
    FILE *out;

    if (load == NULL || release == NULL)
        return NULL;
#if TOPOLOGY_HAS_NAME
    if (load(&answer, NULL) != SLURM_SUCCESS)
        return NULL;
#else
    if (load(&answer) != SLURM_SUCCESS)
        return NULL;
#endif
    out = open_memstream(&text, &size);
    if (out != NULL) {
        write_answer(out, answer);
        if (fclose(out) != 0) {
            free(text);
            text = NULL;
        }
    }
    release(answer);
    return text;
}

/* Set every node's path, "" if it is not in the tree. */
static enum merak_status find_paths(struct merak_site *site,
                                    struct merak_error *err)
{
    char *text = load_topology();
    char path[MERAK_NAME_MAX + 1] = "";
    struct merak_topology *tree = NULL;
    struct merak_error why;
    enum merak_status rc = MERAK_OK;

    if (text != NULL && merak_topology_parse(text, &tree, &why) != MERAK_OK)
        slurm_info("merak: switch tree not used: %s", why.text);
    if (tree == NULL)
        slurm_verbose("merak: no switch tree: all nodes are equally far");
    for (int i = 0; i < site->n_nodes && rc == MERAK_OK; i++) {
        if (tree != NULL && merak_topology_path(tree, site->node_name[i], path,
                                                sizeof(path)) != MERAK_OK)
            slurm_verbose("merak: node %s is on no leaf switch",
                          site->node_name[i]);
        site->node_path[i] = strdup(path);
        if (site->node_path[i] == NULL)
            rc = merak_fail_nomem(err, sizeof(path));
    }
    merak_topology_destroy(tree);
    free(text);
    return rc;
}

enum merak_status site_of_step(uint32_t job, uint32_t step,
                               struct merak_site *site, struct merak_error *err)
{
    struct merak_site s = {.n_nodes = 0};
    enum merak_status rc = load_layout(job, step, &s, err);

    if (rc == MERAK_OK)
        rc = find_paths(&s, err);
    if (rc != MERAK_OK) {
        merak_site_fini(&s);
        return rc;
    }
    *site = s;
    return MERAK_OK;
}
