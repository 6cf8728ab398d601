/* SPDX-License-Identifier: Apache-2.0 */
/* node_kinds.c - `merak plan --nodes 4:h100,2:a100`: nodes of several kinds */
#include "config.h"

#include "runtime/plan/node_kinds.h"

#include "runtime/plan/plan_islands.h"
#include "runtime/plan/plan_levels.h"

#include "base/error.h"
#include "runtime/train/chosen.h"
#include "runtime/train/trainer.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- options ---------------------------------------------------------------
 */

bool plan_kinds_are_named(const char *text)
{
    return strchr(text, ':') != NULL;
}

static enum merak_status bad_kinds(const char *text, struct merak_error *err)
{
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--nodes: expected numbers of nodes and their kinds, "
                      "which --device lists, up to %d, as in 4:h100,2:a100; "
                      "got \"%.60s\"",
                      MERAK_MAX_KINDS, text);
}

enum merak_status plan_kinds_set(struct plan_options *opt, const char *text,
                                 struct merak_error *err)
{
    char *words = strdup(text);
    const char *at = words;
    int n = 0;

    free(opt->several.kinds.words);
    opt->several.kinds.words = words;
    opt->several.kinds.n = 0;
    opt->nodes = 0;
    if (words == NULL)
        return merak_fail_nomem(err, strlen(text));
    do {
        const char *name;
        long nodes;
        size_t bytes;

        if (n == MERAK_MAX_KINDS ||
            !merak_device_next_kind(&at, &nodes, &name, &bytes))
            return bad_kinds(text, err);
        words[name - words + (ptrdiff_t)bytes] = '\0';
        opt->several.kinds.name[n] = name;
        opt->several.kinds.nodes[n++] = (int)nodes;
        opt->several.kinds.n = n;
        opt->nodes += (int)nodes;
    } while (*at != '\0');
    opt->several.n_nodes = 1;
    return MERAK_OK;
}

enum merak_status plan_kinds_check(struct plan_options *opt,
                                   struct merak_error *err)
{
    for (int k = 0; k < opt->several.kinds.n; k++) {
        int i = 0;

        while (i < opt->several.n_devices &&
               strcmp(opt->several.device[i], opt->several.kinds.name[k]) != 0)
            i++;
        if (i == opt->several.n_devices)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "--nodes: no kind \"%.60s\" is in --device: give "
                              "--device the kinds of --nodes, with commas "
                              "between",
                              opt->several.kinds.name[k]);
    }
    for (int i = 0; opt->several.kinds.n > 0 && i < opt->several.n_devices;
         i++) {
        int k = 0;

        while (k < opt->several.kinds.n &&
               strcmp(opt->several.device[i], opt->several.kinds.name[k]) != 0)
            k++;
        if (k == opt->several.kinds.n)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "--device %.60s: --nodes has no nodes of it; "
                              "leave it out",
                              opt->several.device[i]);
    }
    if (opt->several.kinds.n > 0 && opt->emit != PLAN_EMIT_NONE)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "--emit: no other trainer can express stages on "
                          "unlike nodes; give --nodes of one kind");
    if (opt->several.kinds.n > 0)
        opt->several.n_devices = 1;
    return MERAK_OK;
}

/* --- devices ---------------------------------------------------------------
 */

/* Give a device the racks and levels of links that options name. */
static enum merak_status set_links(const struct plan_options *opt,
                                   struct merak_device *device,
                                   struct merak_error *err)
{
    if (opt->machine.rack_nodes > 0) {
        if (opt->ranks_per_node > 0) /* they are no domains */
            device->links.level[0].ranks = opt->ranks_per_node;
        merak_links_set_rack(&device->links, opt->machine.rack_nodes);
    }
    return opt->machine.levels != NULL
               ? plan_levels_set(opt->machine.levels, device, err)
               : MERAK_OK;
}

enum merak_status plan_kinds_load(const struct plan_options *opt,
                                  struct merak_device *kind,
                                  struct merak_device *any,
                                  struct merak_error *err)
{
    const char *slowest = opt->device;
    double least_s = 0;
    size_t memory = 0;
    enum merak_status rc = MERAK_OK;

    for (int k = 0; k < opt->several.kinds.n && rc == MERAK_OK; k++) {
        struct merak_device *device = &kind[k];
        enum merak_dtype dtype;

        rc = merak_chosen_device(opt->several.kinds.name[k], device, err);
        if (rc != MERAK_OK)
            break;
        dtype = opt->given.dtype ? opt->plan.dtype : merak_device_dtype(device);
        if (k == 0 || device->flops_per_s[dtype] < least_s) {
            least_s = device->flops_per_s[dtype];
            slowest = opt->several.kinds.name[k];
        }
        if (k == 0 || device->memory_bytes < memory)
            memory = device->memory_bytes;
    }
    if (rc == MERAK_OK)
        rc = merak_chosen_device(slowest, any, err);
    if (rc == MERAK_OK && opt->several.kinds.n > 0)
        any->memory_bytes = memory;
    if (rc == MERAK_OK)
        rc = set_links(opt, any, err);
    return rc == MERAK_OK ? plan_islands_set(opt, any, err) : rc;
}

enum merak_status plan_kinds_print(const struct plan_options *opt,
                                   struct merak_error *err)
{
    struct merak_device device = {0};
    enum merak_status rc = merak_device_find(opt->device, &device, err);

    if (rc == MERAK_OK)
        rc = set_links(opt, &device, err);
    if (rc == MERAK_OK)
        rc = merak_device_save(&device, "-", err);
    merak_device_fini(&device);
    return rc;
}

void plan_kinds_fill(const struct plan_options *opt,
                     const struct merak_device *kind,
                     struct merak_search_input *in)
{
    for (int k = 0; k < opt->several.kinds.n; k++)
        in->kind[k] = (struct merak_search_kind){
            .device = &kind[k], .nodes = opt->several.kinds.nodes[k]};
    in->n_kinds = opt->several.kinds.n > 1 ? opt->several.kinds.n : 0;
}

void plan_kinds_fini(struct merak_device *kind)
{
    for (int k = 0; k < MERAK_MAX_KINDS; k++)
        merak_device_fini(&kind[k]);
}

const char *plan_kinds_text(const struct merak_search_input *in,
                            char text[PLAN_KINDS_TEXT])
{
    const struct merak_links links = merak_search_links(in);
    size_t n = (size_t)snprintf(text, PLAN_KINDS_TEXT, "%d x %d %s", in->nodes,
                                in->ranks_per_node, in->device->name);

    if (in->n_kinds > 0)
        n = 0;
    for (int k = 0; k < in->n_kinds && n < PLAN_KINDS_TEXT; k++)
        n += (size_t)snprintf(text + n, PLAN_KINDS_TEXT - n, "%s%d x %d %s",
                              k > 0 ? " + " : "", in->kind[k].nodes,
                              in->ranks_per_node, in->kind[k].device->name);
    if (merak_search_rack_nodes(in) > 1 && n < PLAN_KINDS_TEXT)
        n += (size_t)snprintf(text + n, PLAN_KINDS_TEXT - n, " in racks of %d",
                              merak_search_rack_nodes(in));
    for (int l = 1; links.level[l].ranks > 0 && n < PLAN_KINDS_TEXT; l++)
        n += (size_t)snprintf(text + n, PLAN_KINDS_TEXT - n, ", %s of %d ranks",
                              links.level[l].name, links.level[l].ranks);
    return text;
}
