/* SPDX-License-Identifier: Apache-2.0 */
/* rank_costs.c - what a request's ranks have: memory, links, rates */
#include "config.h"

#include "partitioner/plan/comms.h"
#include "partitioner/search/search_impl.h"

#include <math.h>
#include <string.h>

size_t merak_search_memory(const struct merak_search_input *in)
{
    return in->memory_bytes > 0 ? in->memory_bytes : in->device->memory_bytes;
}

/* With one group of all ranks. */
double merak_search_most_memory(const struct merak_search_input *in)
{
    const struct merak_comms least = {
        .groups = in->direct && in->nodes * in->ranks_per_node > 1};

    return fmax((double)merak_search_memory(in) - in->spare_bytes -
                    merak_comms_bytes(least, &in->comms),
                0);
}

/* Have the first stage and the last one a weight in common? */
static bool is_tied(const struct merak_table *t)
{
    for (int i = 0; i < t->n_shares; i++) {
        if (t->share[i].hold.n > 0)
            return true;
    }
    return false;
}

/* Vocabulary-parallel layers have an axis of stages among their table's. */
static int tensor_axes(const struct merak_table *t)
{
    return t->n_axes - (t->shared_pp > 1 ? 1 : 0);
}

double merak_search_library_bytes(const struct merak_search *s,
                                  const struct merak_candidate *c)
{
    struct merak_comms comms;

    if (!s->in->direct)
        return 0;
    comms = merak_plan_comms(&c->plan, c->schedule, tensor_axes(c->table),
                             is_tied(c->table));
    return fmax(merak_comms_bytes(comms, &s->in->comms), c->comms_bytes);
}

double merak_search_limit(const struct merak_search *s,
                          const struct merak_candidate *c)
{
    double used = merak_search_library_bytes(s, c) + s->in->spare_bytes;

    if (c->limit > 0)
        return c->limit;
    return fmax((double)merak_search_memory(s->in) - used, 0);
}

/* Which nodes of which kind are in one rack is not known. */
static int nodes_of(const struct merak_search_input *input)
{
    return input->n_kinds > 0 ? 1 : input->nodes;
}

static int ranks_of_node(const struct merak_search_input *input)
{
    return input->ranks_per_node > 0 ? input->ranks_per_node : 1;
}

struct merak_links merak_search_links(const struct merak_search_input *input)
{
    return merak_links_of_job(&input->device->links, nodes_of(input),
                              ranks_of_node(input));
}

int merak_search_rack_nodes(const struct merak_search_input *input)
{
    const struct merak_links job = merak_search_links(input);

    return job.level[0].ranks / ranks_of_node(input);
}

int merak_search_tensor_ranks(const struct merak_search_input *input)
{
    const struct merak_links job = merak_search_links(input);

    return merak_links_tensor_ranks(&job);
}

const char *merak_search_near_word(const struct merak_search_input *input)
{
    return merak_search_rack_nodes(input) > 1 ? "rack" : "node";
}

/* A level of the job is a row of the device, whose name outlives it. */
const char *merak_search_node_word(const struct merak_search_input *input)
{
    const struct merak_links *device = &input->device->links;
    const struct merak_links job = merak_search_links(input);
    int ranks = merak_search_node(input), last = merak_links_last(device);

    if (ranks <= input->ranks_per_node)
        return "node";
    for (int l = 1; ranks > job.level[0].ranks && l < last; l++) {
        for (int j = 1; job.level[j].ranks > 0; j++) {
            if (job.level[j].ranks == ranks &&
                strcmp(job.level[j].name, device->level[l].name) == 0)
                return device->level[l].name;
        }
    }
    return "rack";
}

void merak_search_cost(const struct merak_search_input *in,
                       struct merak_cost_model *cost)
{
    merak_device_job_cost(in->device, in->dtype, nodes_of(in),
                          in->ranks_per_node, cost);
    if (in->direct || in->fast_sums)
        merak_links_use_library(&cost->links, in->fast_sums);
}

void merak_search_kind_cost(const struct merak_search_input *in,
                            const struct merak_search_kind *kind,
                            struct merak_cost_model *cost)
{
    struct merak_search_input of = *in;

    of.device = kind->device;
    merak_search_cost(&of, cost);
    for (int k = 0; k < in->n_kinds; k++) {
        struct merak_cost_model other;

        of.device = in->kind[k].device;
        merak_search_cost(&of, &other);
        for (int l = 1; l < MERAK_LEVELS; l++) {
            if (other.links.level[l].bytes_per_s <
                cost->links.level[l].bytes_per_s)
                cost->links.level[l] = other.links.level[l];
        }
    }
}
