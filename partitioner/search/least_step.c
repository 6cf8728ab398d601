/* SPDX-License-Identifier: Apache-2.0 */
/* least_step.c - what no plan can take less than */
#include "config.h"

#include "partitioner/search/search_impl.h"

#include <math.h>

/* All kernels of all sequences, evenly on all ranks, which wait for nothing:
 * tensor ranks together never do less, and whatever else a plan has to do comes
 * on top of it. */
double merak_search_least_step(const struct merak_search *s)
{
    const struct merak_device *device = s->in->device;
    struct merak_cost_model cost = s->cost;
    double peak = device->peak_flops_per_s[s->in->dtype], sequence_s = 0;

    /* Where kernels were measured, some may be faster than the mean. */
    if (cost.rates != NULL) {
        cost.flops_per_s = fmax(cost.flops_per_s, peak);
        cost.attention_flops_per_s = 0;
        cost.bytes_per_s = INFINITY;
    }
    if (merak_graphs_least_s(s->graphs, &cost, &sequence_s, NULL) != MERAK_OK)
        return 0;
    return sequence_s * (double)s->in->global_batch / s->tasks;
}
