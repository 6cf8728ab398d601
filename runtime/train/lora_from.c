/* SPDX-License-Identifier: Apache-2.0 */
/* lora_from.c - --lora-from: adapters that PEFT has saved, to go on from
 *
 * Their options are those of the run, so they are opened before the model is
 * described.  Adapters are small: every rank reads those that it has a part of.
 */
#include "config.h"

#include "runtime/train/trainer.h"

#include "base/error.h"
#include "base/hub.h"
#include "base/log.h"
#include "io/hf_config.h"
#include "io/lora_record.h"
#include "io/weights/peft.h"
#include "io/weights/peft_config.h"
#include "runtime/boot/boot.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

struct merak_lora_source {
    char dir[PATH_MAX];
    struct merak_peft *peft;
};

enum merak_status merak_lora_from_open(struct merak_trainer *t,
                                       struct merak_error *err)
{
    const struct merak_ruled_model *ruled = &t->source.ruled;
    float dropout = t->opt.lora.dropout;
    struct merak_lora_source *from;
    char room[PATH_MAX], text[512];
    enum merak_status rc;

    if (t->opt.ckpt.lora_from == NULL)
        return MERAK_OK;
    if (ruled->describe != merak_hf_describe)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--lora-from is for models of Hugging Face folders, "
                          "whose layers PEFT names");
    from = t->source.lora_from = calloc(1, sizeof(*from));
    if (from == NULL)
        return merak_fail_nomem(err, sizeof(*from));
    snprintf(from->dir, sizeof(from->dir), "%s",
             merak_hub_path(t->opt.ckpt.lora_from, room));
    if (access(from->dir, F_OK) != 0 && errno == ENOENT)
        return merak_fail_no_weights(err, "--lora-from", t->opt.ckpt.lora_from,
                                     "a folder of PEFT");
    if (!merak_peft_is_one(from->dir))
        return merak_fail(err, MERAK_ERR_NOT_FOUND,
                          "--lora-from %.100s: it has no " MERAK_PEFT_CONFIG
                          ", as folders of PEFT do",
                          t->opt.ckpt.lora_from);
    rc = merak_peft_open(from->dir, ruled->arg, &from->peft, err);
    if (rc != MERAK_OK) {
        merak_error_wrap(err, "--lora-from");
        return rc;
    }
    t->opt.lora = *merak_peft_lora(from->peft);
    if (dropout > 0)
        t->opt.lora.dropout = dropout;
    merak_lora_print(&t->opt.lora, text, sizeof(text));
    if (merak_boot_is_first())
        merak_info("train", "adapters are those of %.100s:%s",
                   t->opt.ckpt.lora_from, text);
    return merak_lora_settle(&t->opt.lora, err);
}

void merak_lora_from_close(struct merak_trainer *t)
{
    if (t->source.lora_from == NULL)
        return;
    merak_peft_close(t->source.lora_from->peft);
    free(t->source.lora_from);
    t->source.lora_from = NULL;
}

enum merak_status merak_lora_from_check(const struct merak_trainer *t,
                                        const struct merak_graph *graph,
                                        struct merak_error *err)
{
    int n = 0;

    for (int v = 0; v < graph->n_values; v++)
        n += graph->value[v]->kind == MERAK_VALUE_PARAM &&
             graph->value[v]->adapter;
    return n == merak_peft_count(t->source.lora_from->peft)
               ? MERAK_OK
               : merak_fail(err, MERAK_ERR_UNSUPPORTED,
                            "--lora-from %.100s: there are adapters beside a "
                            "weight that is used otherwise, too",
                            t->opt.ckpt.lora_from);
}

enum merak_status merak_lora_from_read(const struct merak_lora_source *from,
                                       const char *param,
                                       const struct merak_ckpt_piece *piece,
                                       struct merak_error *err)
{
    const struct merak_named named = {.name = param};
    size_t n = merak_shape_count(&piece->shape);
    float *whole = malloc(n * sizeof(*whole));
    enum merak_status rc;

    if (whole == NULL)
        return merak_fail_nomem(err, n * sizeof(*whole));
    rc = merak_peft_read(from->peft, &named, whole, err);
    for (size_t i = piece->flat_lo; rc == MERAK_OK && i < piece->flat_hi; i++)
        piece->data[i - piece->flat_lo] =
            whole[merak_box_global(&piece->box, i)];
    free(whole);
    return rc;
}
