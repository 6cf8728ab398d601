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
    .aux = 0.01,
};

/* DeepSeek-AI 2024 (arXiv:2412.19437), sec. 2.1.2. */
const struct merak_hf_experts merak_hf_glm4_experts = {
    .count_field = "n_routed_experts",
    .count = 128,
    .chosen = 8,
    .width_field = "moe_intermediate_size",
    .width = 1408,
    .normal_field = "norm_topk_prob",
    .is_normal = true,
    .sigmoid = true,
    .wide = true,
    .shared_count_field = "n_shared_experts",
    .dense_first_field = "first_k_dense_replace",
    .dense_first = 1,
};

/* The same source. */
const struct merak_hf_experts merak_hf_deepseek_v3_experts = {
    .count_field = "n_routed_experts",
    .count_alias = "num_local_experts",
    .count = 256,
    .chosen = 8,
    .width_field = "moe_intermediate_size",
    .width = 2048,
    .normal_field = "norm_topk_prob",
    .is_normal = true,
    .sigmoid = true,
    .wide = true,
    .shared_count_field = "n_shared_experts",
    .dense_first_field = "first_k_dense_replace",
    .dense_first = 3,
    .groups = 8,
    .groups_kept = 4,
    .scale = 2.5,
};

/* DeepSeek-AI 2024 (arXiv:2405.04434), sec. 2.2. */
const struct merak_hf_experts merak_hf_deepseek_v2_experts = {
    .count_field = "n_routed_experts",
    .count_alias = "num_experts",
    .count = 64,
    .width_field = "moe_intermediate_size",
    .width = 1407,
    .wide = true,
    .shared_count_field = "n_shared_experts",
    .shared_count = 2,
    .dense_first_field = "first_k_dense_replace",
    .groups_by_method = true,
};

/* OpenAI 2025 (arXiv:2508.10925), sec. 2. */
const struct merak_hf_experts merak_hf_gpt_oss_experts = {
    .count_field = "num_local_experts",
    .count_alias = "num_experts",
    .count = 128,
    .chosen = 4,
    .is_normal = true,
    .rounded = true,
};

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
static void read_sparse(struct merak_hf_reader *r, size_t layers,
                        struct merak_hf_mixture *m)
{
    size_t step = merak_hf_size(r, "decoder_sparse_step", MERAK_HF_LAYERS, 1);
    const json_t *list = merak_hf_field(r, "mlp_only_layers"), *layer;
    size_t i;

    for (i = 0; i < layers; i++)
        m->is_dense[i] = (i + 1) % step != 0;
    if (list != NULL && !json_is_array(list))
        merak_hf_refuse(r, "mlp_only_layers", "a list of layers");
    json_array_foreach(list, i, layer)
    {
        json_int_t at = json_integer_value(layer);

        if (!json_is_integer(layer) || at < 0)
            merak_hf_refuse(r, "mlp_only_layers", "a list of layers");
        else if ((size_t)at < layers)
            m->is_dense[at] = true;
    }
}

/* Of a softmax: topk_method says whether there are groups, whose numbers then
 * have no defaults. */
static bool has_groups(struct merak_hf_reader *r)
{
    const char *method = merak_hf_word(r, "topk_method", "greedy");

    if (strcmp(method, "group_limited_greedy") == 0)
        return true;
    if (strcmp(method, "greedy") != 0)
        merak_hf_refuse(r, "topk_method", "greedy or group_limited_greedy");
    (void)merak_hf_field(r, "n_group");
    (void)merak_hf_field(r, "topk_group");
    return false;
}

static void read_groups(struct merak_hf_reader *r,
                        const struct merak_hf_experts *f,
                        struct merak_hf_mixture *m)
{
    size_t groups = f->groups > 0 ? f->groups : 1;
    size_t kept = f->groups_kept > 0 ? f->groups_kept : 1;

    if (f->groups_by_method)
        m->groups_by_best = has_groups(r);
    if (m->groups_by_best)
        groups = kept = 0;
    m->groups = m->groups_kept = 1;
    if (m->groups_by_best || !f->groups_by_method) {
        m->groups = merak_hf_size(r, "n_group", MOST_EXPERTS, groups);
        m->groups_kept = merak_hf_size(r, "topk_group", MOST_EXPERTS, kept);
    }
    m->scale = merak_hf_positive(r, "routed_scaling_factor",
                                 f->scale > 0 ? f->scale : 1);
    if (r->rc == MERAK_OK &&
        (m->experts % m->groups != 0 || m->groups_kept > m->groups ||
         m->groups_kept * (m->experts / m->groups) < m->chosen))
        r->rc = merak_fail(r->err, MERAK_ERR_CONFIG,
                           "%zu of %zu groups of %zu experts cannot have the "
                           "%zu of a token; topk_group has to be at most "
                           "n_group, which divides n_routed_experts",
                           m->groups_kept, m->groups, m->experts, m->chosen);
}

static void read_shared(struct merak_hf_reader *r,
                        const struct merak_hf_experts *f,
                        struct merak_hf_mixture *m)
{
    if (f->shared_width_field != NULL) {
        m->shared_ffn =
            merak_hf_size(r, f->shared_width_field, MOST_FFN, f->shared_width);
        m->shared_gate = true;
    } else if (f->shared_count_field != NULL) {
        m->shared_ffn =
            merak_hf_size(r, f->shared_count_field, MOST_EXPERTS,
                          f->shared_count > 0 ? f->shared_count : 1) *
            m->ffn;
    }
}

/* Transformers adds it to the loss where output_router_logits is true. */
static void read_loss(struct merak_hf_reader *r,
                      const struct merak_hf_experts *f,
                      struct merak_hf_mixture *m)
{
    double aux =
        merak_hf_real(r, "router_aux_loss_coef", f->aux > 0 ? f->aux : 0.001);

    if (!(aux >= 0))
        merak_hf_refuse(r, "router_aux_loss_coef", "a number not below 0");
    if (merak_hf_bool(r, "output_router_logits", false) && !f->sigmoid)
        m->aux = (float)aux;
}

void merak_hf_experts_read(struct merak_hf_reader *r,
                           const struct merak_hf_experts *f,
                           struct merak_hf_config *c)
{
    struct merak_hf_mixture *m = &c->mixture;
    size_t first = 0;

    m->experts = f->count_alias == NULL
                     ? merak_hf_size(r, f->count_field, MOST_EXPERTS, f->count)
                     : merak_hf_twin(r, f->count_field, f->count_alias,
                                     MOST_EXPERTS, f->count);
    m->chosen =
        merak_hf_size(r, "num_experts_per_tok", MOST_EXPERTS, f->chosen);
    m->ffn = f->width_field == NULL
                 ? c->ffn
                 : merak_hf_size(r, f->width_field, MOST_FFN, f->width);
    m->sigmoid = f->sigmoid;
    m->rounded = f->rounded;
    m->wide = f->wide;
    m->normal = f->normal_field == NULL
                    ? f->is_normal
                    : merak_hf_bool(r, f->normal_field, f->is_normal);
    if (r->rc == MERAK_OK && m->chosen > m->experts)
        r->rc = merak_fail(r->err, MERAK_ERR_CONFIG,
                           "%zu of %zu experts for each token: "
                           "num_experts_per_tok is above %s",
                           m->chosen, m->experts, f->count_field);
    if (f->sparse_fields)
        read_sparse(r, c->layers, m);
    if (f->dense_first_field != NULL)
        first = read_count(r, f->dense_first_field, MERAK_HF_LAYERS,
                           f->dense_first);
    for (size_t i = 0; i < first && i < c->layers; i++)
        m->is_dense[i] = true;
    if (f->sigmoid || f->groups_by_method)
        read_groups(r, f, m);
    read_shared(r, f, m);
    read_loss(r, f, m);
}
