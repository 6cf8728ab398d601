/* SPDX-License-Identifier: Apache-2.0 */
/* hf_latent.c - latent attention in config.json
 *
 * Liu et al. 2024 (arXiv:2405.04434), sec. 2.1.
 */
#include "config.h"

#include "io/hf_family.h"

#include "base/error.h"

#include <math.h>
#include <stdio.h>

#define MOST_HEADS ((size_t)1 << 14)
#define MOST_CHANNELS ((size_t)1 << 12)
#define MOST_RANK ((size_t)1 << 20)

/* A size that follows from others, which files repeat. */
static void check_same(struct merak_hf_reader *r, const char *name, size_t n)
{
    char want[32];

    snprintf(want, sizeof(want), "%zu", n);
    if (merak_hf_size(r, name, MOST_HEADS * 2, n) != n)
        merak_hf_refuse(r, name, want);
}

/* Null is a model without it, and not the default. */
static size_t read_q_rank(struct merak_hf_reader *r, size_t or_else)
{
    if (json_is_null(json_object_get(r->root, "q_lora_rank")))
        or_else = 0;
    return merak_hf_field(r, "q_lora_rank") == NULL
               ? or_else
               : merak_hf_size(r, "q_lora_rank", MOST_RANK, or_else);
}

void merak_hf_latent_read(struct merak_hf_reader *r,
                          const struct merak_hf_family *f,
                          struct merak_hf_config *c)
{
    const struct merak_hf_latent_family *of = f->latent;
    struct merak_hf_latent *t = &c->latent;

    c->heads = merak_hf_size(r, "num_attention_heads", MOST_HEADS, f->heads);
    c->kv_heads = c->heads;
    check_same(r, "num_key_value_heads", c->heads);
    t->kv_rank = merak_hf_size(r, "kv_lora_rank", MOST_RANK, of->kv_rank);
    t->q_rank = read_q_rank(r, of->q_rank);
    t->own = merak_hf_size(r, "qk_nope_head_dim", MOST_CHANNELS, of->own);
    t->turned = merak_hf_size(r, "qk_rope_head_dim", MOST_CHANNELS, of->turned);
    t->value = merak_hf_size(r, "v_head_dim", MOST_CHANNELS, of->value);
    t->interleaved = true;
    if (of->interleaves)
        t->interleaved = merak_hf_bool(r, "rope_interleave", true);
    c->head_dim = t->own + t->turned;
    c->rope.scaling.turned = t->turned;
    check_same(r, "head_dim", t->turned); /* as transformers writes it */
    check_same(r, "qk_head_dim", c->head_dim);
    if (r->rc == MERAK_OK && t->turned % 2 != 0)
        merak_hf_refuse(r, "qk_rope_head_dim",
                        "an even number; rotary positions turn pairs");
}
