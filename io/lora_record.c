/* SPDX-License-Identifier: Apache-2.0 */
/* lora_record.c - the options of adapters, as a checkpoint records them */
#include "config.h"

#include "io/lora_record.h"

#include <stdio.h>
#include <string.h>

#define BY_ROOT " --lora-scale sqrt"

size_t merak_lora_print(const struct merak_lora *lora, char *text, size_t bytes)
{
    if (lora->rank == 0)
        return (size_t)snprintf(text, bytes, "%s", "");
    return (size_t)snprintf(text, bytes,
                            " --lora-rank %zu --lora-alpha %.7g "
                            "--lora-dropout %.7g --lora-targets %s%s",
                            lora->rank, (double)lora->alpha,
                            (double)lora->dropout, lora->targets,
                            lora->by_root ? BY_ROOT : "");
}

bool merak_lora_parse(const char *recipe, struct merak_lora_record *record)
{
    const char *at = strstr(recipe, " --lora-rank ");
    struct merak_lora *lora = &record->lora;
    int end = 0;

    memset(record, 0, sizeof(*record));
    if (at == NULL ||
        sscanf(at,
               " --lora-rank %zu --lora-alpha %f --lora-dropout %f "
               "--lora-targets %199s%n",
               &lora->rank, &lora->alpha, &lora->dropout, record->targets,
               &end) != 4) {
        memset(record, 0, sizeof(*record));
        return false;
    }
    lora->targets = record->targets;
    lora->by_root = strncmp(at + end, BY_ROOT, strlen(BY_ROOT)) == 0;
    return true;
}

void merak_lora_describe(struct merak_model *m, void *lora_model)
{
    const struct merak_lora_model *model = lora_model;

    if (model->lora != NULL && model->lora->rank > 0)
        merak_lora(m, model->lora);
    merak_hf_describe(m, model->config);
}
