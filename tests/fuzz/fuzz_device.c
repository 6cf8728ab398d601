/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_device.c - device files, and the cost model of what they describe */
#include "config.h"

#include "fuzz/fuzz.h"

#include "partitioner/device/device_file.h"

#include <string.h>

static const char full[] =
    "{\"name\": \"x\", \"ranks_per_node\": 8, \"memory_bytes\": 142000000000,"
    " \"notes\": \"any\", \"roofline\": \"sum\","
    " \"peak_flops_per_s\": {\"f32\": 6.7e13, \"bf16\": 9.9e14},"
    " \"flops_per_s\": {\"f32\": 4.5e13, \"bf16\": 6.0e14},"
    " \"attention_flops_per_s\": {\"f32\": 4.5e13, \"bf16\": 3.46e14},"
    " \"bytes_per_s\": 3.8e12, \"kernel_s\": 5e-6,"
    " \"link\": {\"bytes_per_s\": 3.6e11, \"latency_s\": 8e-6, \"groups\":"
    "  [{\"ranks\": 4, \"latency_s\": 2e-5, \"bytes_per_s\": 2e11},"
    "   {\"ranks\": 8, \"latency_s\": 4e-5, \"bytes_per_s\": 1e11}]},"
    " \"net\": {\"bytes_per_s\": 4.5e10, \"latency_s\": 1.5e-5,"
    "  \"node_bytes_per_s\": 9e10},"
    " \"beside\": {\"latency_s\": 6e-5, \"bytes_per_s\": 4e9},"
    " \"kernels\": {\"f32\": {\"linear\":"
    "  [[1e6, 1e4, 2e-3], [1e8, 1e6, 1.1e-1]], \"add\": [[0, 4e6, 0.02]],"
    "  \"attention\": [[1e7, 1e5, 0.04, 32], [1e7, 1e5, 0.01, 128]],"
    "  \"layernorm\": [[1e6, 1e6, 0.02, 0, 1e6], [1e6, 1e6, 0.08, 0, 1e8]]}},"
    " \"tp_kernels\": {\"f32\": {\"linear\": [[1e6, 1e4, 3e-3]]}}}";
static const char least[] =
    "{\"name\": \"x\", \"ranks_per_node\": 1, \"memory_bytes\": 4,"
    " \"flops_per_s\": {\"f32\": 1e9, \"bf16\": 2e9},"
    " \"bytes_per_s\": 1e8, \"kernel_s\": 1e-6,"
    " \"link\": {\"bytes_per_s\": 1, \"latency_s\": 1}}";

void fuzz_seeds(void)
{
    fuzz_add_text(full);
    fuzz_add_text(least);
}

/* What is read is written, and read again as the same. */
static void come_back(const struct merak_device *device)
{
    struct merak_device again = {.memory_bytes = 0};
    struct merak_error err = {.text = ""};
    const char *path = fuzz_path("again.json");
    enum merak_status rc = merak_device_save(device, path, &err);

    fuzz_must(rc == MERAK_OK, "a device that was read is written");
    rc = merak_device_find(path, &again, &err);
    fuzz_must(rc == MERAK_OK, "and read again");
    fuzz_must(strcmp(device->name, again.name) == 0 &&
                  device->memory_bytes == again.memory_bytes &&
                  device->links.n_groups == again.links.n_groups,
              "as it was");
    merak_device_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct merak_device device = {.memory_bytes = 0};
    struct merak_cost_model cost;
    struct merak_error err = {.text = ""};
    const char *path = fuzz_file("device.json", data, n);
    enum merak_status rc = merak_device_find(path, &device, &err);

    if (rc != MERAK_OK) {
        fuzz_refused(rc, &err);
        return 0;
    }
    for (int d = 0; d < MERAK_DTYPE_COUNT; d++)
        merak_device_cost(&device, (enum merak_dtype)d, 2, &cost);
    merak_device_check_ops(path, &device);
    come_back(&device);
    merak_device_fini(&device);
    return 0;
}
