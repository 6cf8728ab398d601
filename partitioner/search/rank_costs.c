/* SPDX-License-Identifier: Apache-2.0 */
/* rank_costs.c - what a request's ranks have: memory, links, rates */
#include "config.h"

#include "partitioner/search/search_impl.h"

#include <string.h>

size_t merak_search_memory(const struct merak_search_input *in)
{
    return in->memory_bytes > 0 ? in->memory_bytes : in->device->memory_bytes;
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
