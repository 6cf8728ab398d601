/* SPDX-License-Identifier: Apache-2.0 */
/* hf_experts.c - experts in config.json, and the families that have them */
#include "config.h"

#include "io/hf_family.h"

#include "base/error.h"

#include <string.h>

#define MOST_EXPERTS ((size_t)1 << 15)
#define MOST_FFN ((size_t)1 << 22)

/* Jiang et al. 2024 (arXiv:2401.04088), sec. 2.1. */
const struct merak_hf_experts merak_hf_mixtral_experts = {
    .count_field = "num_local_experts",
    .count = 8,
    .chosen = 2,
    .is_normal = true,
};

const struct merak_hf_experts merak_hf_qwen2_experts = {
    .count_field = "num_experts",
    .count = 60,
    .chosen = 4,
    .width_field = "moe_intermediate_size",
    .width = 1408,
    .normal_field = "norm_topk_prob",
    .rounded = true,
    .shared_width_field = "shared_expert_intermediate_size",
    .shared_width = 5632,
    .sparse_fields = true,
};

const struct merak_hf_experts merak_hf_qwen3_experts = {
    .count_field = "num_experts",
    .count_alias = "num_local_experts",
    .count = 128,
    .chosen = 8,
    .width_field = "moe_intermediate_size",
    .width = 768,
    .normal_field = "norm_topk_prob",
    .rounded = true,
    .sparse_fields = true,
};

/* Muennighoff et al. 2024 (arXiv:2409.02060), sec. 2. */
const struct merak_hf_experts merak_hf_olmoe_experts = {
    .count_field = "num_experts",
    .count = 64,
    .chosen = 8,
    .normal_field = "norm_topk_prob",
    .rounded = true,
};

/* DeepSeek-AI 2024 (arXiv:2412.19437), sec. 2.1.2, without its attention. */
const struct merak_hf_experts merak_hf_glm4_experts = {
    .count_field = "n_routed_experts",
    .count = 128,
    .chosen = 8,
    .width_field = "moe_intermediate_size",
    .width = 1408,
    .normal_field = "norm_topk_prob",
    .is_normal = true,
    .sigmoid = true,
    .shared_count_field = "n_shared_experts",
    .dense_first_field = "first_k_dense_replace",
};

static const struct {
    const char *type, *why;
} refused[] = {
    {"deepseek_v3", "multi-head latent attention (kv_lora_rank)"},
    {"gpt_oss", "attention sinks and MXFP4 weights"},
};

const char *merak_hf_refused_type(const char *type)
{
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        if (strcmp(refused[i].type, type) == 0)
            return refused[i].why;
    }
    return NULL;
}

/* A count from 0 on. */
static size_t read_count(struct merak_hf_reader *r, const char *name,
                         size_t most, size_t or_else)
{
    const json_t *value = merak_hf_field(r, name);

    if (json_is_integer(value) && json_integer_value(value) == 0)
        return 0;
    return value == NULL ? or_else : merak_hf_size(r, name, most, or_else);
}

/* Layers without experts: those that decoder_sparse_step leaves out, counted
 * from 1, and those of a list. */
static void read_sparse(struct merak_hf_reader *r, struct merak_hf_config *c)
{
    size_t step = merak_hf_size(r, "decoder_sparse_step", MERAK_HF_LAYERS, 1);
    const json_t *list = merak_hf_field(r, "mlp_only_layers"), *layer;
    size_t i;

    for (i = 0; i < c->layers; i++)
        c->dense[i] = (i + 1) % step != 0;
    if (list != NULL && !json_is_array(list))
        merak_hf_refuse(r, "mlp_only_layers", "a list of layers");
    json_array_foreach(list, i, layer)
    {
        json_int_t at = json_integer_value(layer);

        if (!json_is_integer(layer) || at < 0)
            merak_hf_refuse(r, "mlp_only_layers", "a list of layers");
        else if ((size_t)at < c->layers)
            c->dense[at] = true;
    }
}

static void read_groups(struct merak_hf_reader *r, struct merak_hf_config *c)
{
    c->expert_groups = merak_hf_size(r, "n_group", MOST_EXPERTS, 1);
    c->groups_kept = merak_hf_size(r, "topk_group", MOST_EXPERTS, 1);
    c->route_scale = merak_hf_positive(r, "routed_scaling_factor", 1);
    if (r->rc == MERAK_OK &&
        (c->experts % c->expert_groups != 0 ||
         c->groups_kept > c->expert_groups ||
         c->groups_kept * (c->experts / c->expert_groups) < c->chosen))
        r->rc =
            merak_fail(r->err, MERAK_ERR_CONFIG,
                       "%zu of %zu groups of %zu experts cannot have the "
                       "%zu of a token; topk_group has to be at most "
                       "n_group, which divides n_routed_experts",
                       c->groups_kept, c->expert_groups, c->experts, c->chosen);
}

static void read_shared(struct merak_hf_reader *r,
                        const struct merak_hf_experts *f,
                        struct merak_hf_config *c)
{
    if (f->shared_width_field != NULL) {
        c->shared_ffn =
            merak_hf_size(r, f->shared_width_field, MOST_FFN, f->shared_width);
        c->shared_gate = true;
    } else if (f->shared_count_field != NULL) {
        c->shared_ffn =
            merak_hf_size(r, f->shared_count_field, MOST_EXPERTS, 1) *
            c->expert_ffn;
    }
}

void merak_hf_experts_read(struct merak_hf_reader *r,
                           const struct merak_hf_experts *f,
                           struct merak_hf_config *c)
{
    size_t first = 0;

    c->experts =
        f->count_alias == NULL
            ? merak_hf_size(r, f->count_field, MOST_EXPERTS, f->count)
            : merak_hf_twin(r, f->count_field, f->count_alias, MOST_EXPERTS,
                            f->count);
    c->chosen =
        merak_hf_size(r, "num_experts_per_tok", MOST_EXPERTS, f->chosen);
    c->expert_ffn = f->width_field == NULL
                        ? c->ffn
                        : merak_hf_size(r, f->width_field, MOST_FFN, f->width);
    c->route_sigmoid = f->sigmoid;
    c->route_rounded = f->rounded;
    c->route_normal = f->normal_field == NULL
                          ? f->is_normal
                          : merak_hf_bool(r, f->normal_field, f->is_normal);
    if (r->rc == MERAK_OK && c->chosen > c->experts)
        r->rc = merak_fail(r->err, MERAK_ERR_CONFIG,
                           "%zu of %zu experts for each token: "
                           "num_experts_per_tok is above %s",
                           c->chosen, c->experts, f->count_field);
    if (f->sparse_fields)
        read_sparse(r, c);
    if (f->dense_first_field != NULL)
        first = read_count(r, f->dense_first_field, MERAK_HF_LAYERS, 1);
    for (size_t i = 0; i < first && i < c->layers; i++)
        c->dense[i] = true;
    if (f->sigmoid)
        read_groups(r, c);
    read_shared(r, f, c);
    /* used where output_router_logits is true */
    (void)merak_hf_field(r, "router_aux_loss_coef");
    merak_hf_require_bool(r, "output_router_logits", false);
}
