/* SPDX-License-Identifier: Apache-2.0 */
/* chosen.c - the result of a search, as a plan file for a run */
#include "config.h"

#include "runtime/train/chosen.h"

#include "kernels/kernels.h"
#include "partitioner/assembly/assembly.h"

#include <stdio.h>
#include <strings.h>

enum merak_status merak_chosen_device(const char *word,
                                      struct merak_device *device,
                                      struct merak_error *err)
{
    const struct merak_backend *cpu;
    enum merak_status rc = merak_device_find(word, device, err);

    if (rc == MERAK_OK && strcasecmp(word, "cpu") == 0 &&
        merak_backend_find("cpu", &cpu, NULL) == MERAK_OK &&
        !merak_backend_is_native(cpu, MERAK_BF16))
        merak_device_as_f32(device, MERAK_BF16);
    return rc;
}

enum merak_status merak_chosen_file(const struct merak_search_input *in,
                                    const struct merak_search_result *result,
                                    struct merak_plan_file *file,
                                    struct merak_error *err)
{
    const struct merak_search_choice *best = &result->choice[0];
    const struct merak_program_options po = {.memory = in->memory};
    size_t n = 0;

    *file = (struct merak_plan_file){.plan = best->plan,
                                     .seq = in->seq,
                                     .global_batch = in->global_batch,
                                     .step_s = best->step_s,
                                     .memory_bytes = best->memory_bytes};
    snprintf(file->device, sizeof(file->device), "%s", in->device->name);
    for (int k = 0; k < in->n_kinds && n < sizeof(file->device); k++)
        n += (size_t)snprintf(file->device + n, sizeof(file->device) - n,
                              "%s%s", k > 0 ? "," : "",
                              in->kind[k].device->name);
    return merak_plan_identify(&file->plan, in->seq, in->describe, in->arg, &po,
                               &file->program, &file->sent, file->model, err);
}
