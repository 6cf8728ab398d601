/* SPDX-License-Identifier: Apache-2.0 */
/* hf_gpt2.c - describing GPT-2 */
#include "config.h"

#include "io/hf_describe.h"

#include <math.h>

/* Radford et al. 2019: the initial values of projections onto the residual are
 * divided by the square root of their number. */
static struct merak_init residual_init(const struct merak_hf_config *c)
{
    return MERAK_NORMAL(c->init_std / sqrtf(2 * (float)c->layers));
}

static struct merak_value *gpt2_attention(struct merak_model *m,
                                          const struct merak_hf_config *c,
                                          struct merak_value *x, const char *at)
{
    const struct merak_attention_options opt = {.dropout = c->attn_dropout};
    size_t H = c->heads, D = c->head_dim, C = c->hidden;
    struct merak_value *w, *b;

    w = MERAK_PARAM(m, merak_name(m, "%s.attn.c_attn.weight", at),
                    MERAK_NORMAL(c->init_std), 3, H, D, C);
    b = MERAK_PARAM(m, merak_name(m, "%s.attn.c_attn.bias", at), MERAK_ZEROS, 3,
                    H, D);
    x = merak_attention_packed_with(m, merak_linear(m, x, w, b, 1), &opt);
    w = MERAK_PARAM(m, merak_name(m, "%s.attn.c_proj.weight", at),
                    residual_init(c), C, H, D);
    b = MERAK_PARAM(m, merak_name(m, "%s.attn.c_proj.bias", at), MERAK_ZEROS,
                    C);
    return merak_dropout(m, merak_linear(m, x, w, b, 2), c->resid_dropout);
}

static struct merak_value *gpt2_mlp(struct merak_model *m,
                                    const struct merak_hf_config *c,
                                    struct merak_value *x, const char *at)
{
    size_t C = c->hidden, F = c->ffn;
    struct merak_value *w, *b;

    w = MERAK_PARAM(m, merak_name(m, "%s.mlp.c_fc.weight", at),
                    MERAK_NORMAL(c->init_std), F, C);
    b = MERAK_PARAM(m, merak_name(m, "%s.mlp.c_fc.bias", at), MERAK_ZEROS, F);
    x = merak_gelu(m, merak_linear(m, x, w, b, 1),
                   c->act == MERAK_HF_GELU_TANH);
    w = MERAK_PARAM(m, merak_name(m, "%s.mlp.c_proj.weight", at),
                    residual_init(c), C, F);
    b = MERAK_PARAM(m, merak_name(m, "%s.mlp.c_proj.bias", at), MERAK_ZEROS, C);
    return merak_dropout(m, merak_linear(m, x, w, b, 1), c->resid_dropout);
}

void merak_hf_describe_gpt2(struct merak_model *m,
                            const struct merak_hf_config *c)
{
    struct merak_init init = MERAK_NORMAL(c->init_std);
    struct merak_value *wte, *wpe, *x, *h;

    if (!merak_hf_check_seq(m, c))
        return;
    wte = MERAK_PARAM(m, "wte.weight", init, c->vocab, c->hidden);
    wpe = MERAK_PARAM(m, "wpe.weight", init, c->positions, c->hidden);
    x = merak_embedding(m, merak_tokens(m), wte);
    x = merak_dropout(m, merak_add_position(m, x, wpe), c->embd_dropout);
    for (size_t i = 0; i < c->layers; i++) {
        const char *at = merak_name(m, "h.%zu", i);

        h = merak_hf_layernorm(m, c, x, merak_name(m, "%s.ln_1", at));
        x = merak_add(m, x, gpt2_attention(m, c, h, at));
        h = merak_hf_layernorm(m, c, x, merak_name(m, "%s.ln_2", at));
        x = merak_add(m, x, gpt2_mlp(m, c, h, at));
    }
    merak_hf_head(m, c, merak_hf_layernorm(m, c, x, "ln_f"), wte, "lm_head");
}
