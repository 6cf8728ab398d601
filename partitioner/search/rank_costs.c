/* SPDX-License-Identifier: Apache-2.0 */
/* rank_costs.c - what a request's ranks have: memory, links, rates */
#include "config.h"

#include "partitioner/search/search_impl.h"

size_t merak_search_memory(const struct merak_search_input *in)
{
    return in->memory_bytes > 0 ? in->memory_bytes : in->device->memory_bytes;
}

/* Which nodes of which kind are in one rack is not known. */
static int nodes_of(const struct merak_search_input *input)
{
    return input->n_kinds > 0 ? 1 : input->nodes;
}

int merak_search_rack_nodes(const struct merak_search_input *input)
{
    int each = input->ranks_per_node > 0 ? input->ranks_per_node : 1;
    const struct merak_links job =
        merak_links_of_job(&input->device->links, nodes_of(input), each);

    return job.level[0].ranks / each;
}

const char *merak_search_node_word(const struct merak_search_input *input)
{
    return merak_search_node(input) > input->ranks_per_node ? "rack" : "node";
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
