/* SPDX-License-Identifier: Apache-2.0 */
/* gpt2_request.h - searches for plans of GPT-2s, as rows */
#ifndef MERAK_UNIT_GPT2_REQUEST_H
#define MERAK_UNIT_GPT2_REQUEST_H

#include "unit/gpt2_config.h"
#include "unit/near.h"

#include "partitioner/search/search.h"

struct request {
    size_t layers, hidden, heads, vocab; /* of a GPT-2 */
    const char *device;
    int nodes, ranks_per_node; /* 0: the device's */
    size_t batch, memory_gib;
    struct merak_choices pin;
};

static inline void request_fill(const struct request *r,
                                struct merak_hf_config *config,
                                struct merak_device *device,
                                struct merak_search_input *in)
{
    *config = gpt2_config(r->layers, r->hidden, r->heads, r->vocab);
    config->positions = 512;
    assert_int_equal(merak_device_find(r->device, device, NULL), MERAK_OK);
    *in = (struct merak_search_input){
        .describe = merak_hf_describe,
        .arg = config,
        .seq = 512,
        .dtype = MERAK_BF16,
        .global_batch = r->batch,
        .nodes = r->nodes,
        .ranks_per_node = r->ranks_per_node > 0 ? r->ranks_per_node
                                                : device->links.level[0].ranks,
        .memory_bytes = r->memory_gib << 30,
        .threads = 1,
        .device = device,
        .pin = r->pin};
}

#endif
