/* SPDX-License-Identifier: Apache-2.0 */
/* chosen.c - the result of a search, as a plan file for a run */
#include "config.h"

#include "runtime/train/chosen.h"

#include "runtime/train/trainer.h"

#include "kernels/kernels.h"
#include "partitioner/assembly/assembly.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
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

_Static_assert((int)MERAK_PLAN_KINDS >= (int)MERAK_MAX_KINDS, "all are saved");

void merak_chosen_kinds_fill(const struct merak_search_input *in,
                             const struct merak_search_stage *stage,
                             struct merak_plan_file *file)
{
    size_t n = 0;

    snprintf(file->device, sizeof(file->device), "%s", in->device->name);
    if (in->n_kinds < 2 || stage[0].limit_bytes == 0) /* on any nodes */
        return;
    for (int k = 0; k < in->n_kinds && n < sizeof(file->device); k++)
        n +=
            (size_t)snprintf(file->device + n, sizeof(file->device) - n, "%s%s",
                             k > 0 ? "," : "", in->kind[k].device->name);
    for (int s = 0; s < file->plan.pp; s++) {
        const struct merak_search_kind *kind = &in->kind[stage[s].kind];
        struct merak_plan_kind *to = &file->kind[file->n_kinds];

        if (s > 0 && stage[s].kind == stage[s - 1].kind)
            continue;
        file->n_kinds++;
        snprintf(to->device, sizeof(to->device), "%s", kind->device->name);
        to->nodes = kind->nodes;
        to->flops_per_s = kind->device->flops_per_s[in->dtype];
    }
}

enum merak_status merak_chosen_file(const struct merak_search_input *in,
                                    const struct merak_search_result *result,
                                    struct merak_plan_file *file,
                                    struct merak_error *err)
{
    const struct merak_search_choice *best = &result->choice[0];
    struct merak_cost_model searched, cost = *merak_cost_default();
    const struct merak_program_options po = {.memory = in->memory,
                                             .cost = &cost};

    /* What programs are, and so their id, is the same for all devices but for
     * that: one without a host cannot offload. */
    merak_search_cost(in, &searched);
    cost.host = searched.host;

    *file = (struct merak_plan_file){.plan = best->plan,
                                     .seq = in->seq,
                                     .global_batch = in->global_batch,
                                     .step_s = best->step_s,
                                     .memory_bytes = best->memory_bytes};
    merak_chosen_kinds_fill(in, result->stage, file);
    return merak_plan_identify(&file->plan, in->seq, in->describe, in->arg, &po,
                               &file->program, &file->sent, file->model, err);
}

static enum merak_status add_kind(struct merak_chosen_kinds *kinds,
                                  const char *word, size_t bytes, long nodes,
                                  struct merak_search_input *in,
                                  struct merak_error *err)
{
    struct merak_device *device = &kinds->device[in->n_kinds];
    size_t least = kinds->slowest.memory_bytes;
    char name[PATH_MAX];

    snprintf(name, sizeof(name), "%.*s", (int)bytes, word);
    if (in->n_kinds == MERAK_MAX_KINDS)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--device %.60s: more than %d kinds of nodes", name,
                          MERAK_MAX_KINDS);
    if (merak_error_as_config(merak_chosen_device(name, device, err), err) !=
        MERAK_OK)
        return err->status;
    if (in->n_kinds == 0 ||
        device->flops_per_s[in->dtype] < kinds->slowest.flops_per_s[in->dtype])
        kinds->slowest = *device;
    if (in->n_kinds > 0 && least < kinds->slowest.memory_bytes)
        kinds->slowest.memory_bytes = least;
    if (device->memory_bytes < kinds->slowest.memory_bytes)
        kinds->slowest.memory_bytes = device->memory_bytes;
    in->kind[in->n_kinds++] =
        (struct merak_search_kind){.device = device, .nodes = (int)nodes};
    return MERAK_OK;
}

enum merak_status merak_chosen_kinds_add(const char *given,
                                         struct merak_chosen_kinds *kinds,
                                         struct merak_search_input *in,
                                         struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;
    const char *word;
    size_t bytes;
    long nodes;

    while (rc == MERAK_OK && *given != '\0' &&
           merak_device_next_kind(&given, &nodes, &word, &bytes))
        rc = add_kind(kinds, word, bytes, nodes, in, err);
    in->device = &kinds->slowest;
    if (in->n_kinds == 1)
        in->n_kinds = 0;
    return rc;
}

void merak_chosen_kinds_destroy(struct merak_chosen_kinds *kinds)
{
    for (int k = 0; kinds != NULL && k < MERAK_MAX_KINDS; k++)
        merak_device_fini(&kinds->device[k]);
    free(kinds);
}
