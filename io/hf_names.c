/* SPDX-License-Identifier: Apache-2.0 */
/* hf_names.c - our parameters and the tensors of Hugging Face folders
 *
 * The rows are in hf_rows.h.
 */
#include "config.h"

#include "io/hf_names.h"

#include "base/error.h"
#include "io/hf_rows.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct names {
    const struct row *row, *fused; /* NULL: nothing is fused */
    const char *const *spare;
    const char *prefix; /* that may be in front of all names, or NULL */
    const char *head;   /* the output layer, which has none; NULL: lm_head */
    /* Before the numbers of layers of which a file may have more than the
     * model: those behind its own predict further tokens.  NULL: it has not. */
    const char *behind;
    bool stacks; /* `fused` has all experts of a layer in a tensor */
    /* The bias of the output layer where that is tied, which has a copy of it;
     * else this is no weight.  NULL: the layer has its own, if any. */
    const char *tied_bias;
    /* What has another name in older folders; NULL: nothing. */
    const struct row *other;
    const char *unadapted; /* modules that PEFT has no adapters for, or NULL */
};

static const struct names usual = {.row = model_rows, .spare = llama_spare};
/* Those of other families; the rest have NULL for rows. */
static const struct names own[MERAK_FAMILIES] = {
    [MERAK_GPT2] = {.row = gpt2_rows,
                    .spare = gpt2_spare,
                    .prefix = "transformer."},
    [MERAK_PHI3] = {.row = model_rows,
                    .fused = phi3_rows,
                    .spare = llama_spare},
    [MERAK_GPT_NEOX] = {.row = gpt_neox_rows,
                        .spare = gpt_neox_spare,
                        .prefix = "gpt_neox.",
                        .head = "embed_out"},
    [MERAK_GLM4_MOE] = {.row = model_rows,
                        .spare = llama_spare,
                        .behind = "model.layers."},
    [MERAK_DEEPSEEK_V2] = {.row = model_rows,
                           .fused = latent_rows,
                           .spare = llama_spare},
    [MERAK_DEEPSEEK_V3] = {.row = model_rows,
                           .fused = latent_rows,
                           .spare = llama_spare,
                           .behind = "model.layers."},
    [MERAK_GPT_OSS] = {.row = model_rows,
                       .fused = gpt_oss_rows,
                       .spare = llama_spare,
                       .stacks = true,
                       .unadapted = ".mlp.router."},
    [MERAK_BERT] = {.row = bert_rows,
                    .spare = bert_spare,
                    .head = "cls.predictions.decoder",
                    .tied_bias = "cls.predictions.bias",
                    .other = bert_old_rows},
    [MERAK_T5] = {.row = t5_rows, .spare = t5_spare},
};

static const struct names *names_of(const struct merak_hf_config *config)
{
    const struct names *names = &own[config->family];

    return names->row != NULL ? names : &usual;
}

/* Does the pattern match the name?  Also returns the digits that match "*". */
static bool matches(const char *pattern, const char *name,
                    const char **digits_p, int *n_p)
{
    const char *star = strchr(pattern, '*');
    size_t before = star == NULL ? strlen(pattern) : (size_t)(star - pattern);

    *n_p = 0;
    if (strncmp(pattern, name, before) != 0)
        return false;
    if (star == NULL)
        return name[before] == '\0';
    *digits_p = name + before;
    while (isdigit((unsigned char)(*digits_p)[*n_p]))
        ++*n_p;
    return *n_p > 0 && strcmp(star + 1, *digits_p + *n_p) == 0;
}

static size_t extent_of(const struct merak_hf_config *c, enum extent e)
{
    switch (e) {
    case HIDDEN:
        return c->hidden;
    case FFN:
        return c->ffn;
    case VOCAB:
        return c->vocab;
    case POSITIONS:
        return c->positions;
    case QUERIES:
        return c->heads * c->head_dim;
    case KEYS:
        return c->kv_heads * c->head_dim;
    case PACKED:
        return 3 * c->heads * c->head_dim;
    case Q_NORM:
        return c->norm.of_heads ? c->heads * c->head_dim : c->head_dim;
    case K_NORM:
        return c->norm.of_heads ? c->kv_heads * c->head_dim : c->head_dim;
    case EXPERTS:
        return c->mixture.experts;
    case EXPERT_FFN:
        return c->mixture.ffn;
    case SHARED_FFN:
        return c->mixture.shared_ffn;
    case Q_RANK:
        return c->latent.q_rank;
    case KV_RANK:
        return c->latent.kv_rank;
    case OWN_KEYS:
        return c->heads * c->latent.own;
    case TURNED:
        return c->latent.turned;
    case VALUES:
        return c->heads * c->latent.value;
    case HEADS:
        return c->heads;
    case EXPERT_PAIRS:
        return 2 * c->mixture.ffn;
    case TYPES:
        return c->encoder.types;
    case BUCKETS:
        return c->encoder.buckets;
    case ONE:
        break;
    }
    return 1;
}

/* The same for latent attention. */
static void place_latent(const struct merak_hf_config *c, enum part part,
                         struct merak_hf_tensor *t)
{
    const struct merak_hf_latent *of = &c->latent;

    if (part == TURNED_Q)
        t->run = t->step = c->head_dim;
    if (part == TURNED_Q || part == SHARED_K) {
        t->turned = of->turned;
        t->interleaved = of->interleaved;
    }
    if (part == LATENT || part == SHARED_K) {
        t->of_rows = of->kv_rank + of->turned;
        t->first_row = part == LATENT ? 0 : of->kv_rank;
    } else if (part == LATENT_K || part == LATENT_V) {
        t->run = part == LATENT_K ? of->own : of->value;
        t->step = of->own + of->value;
        t->of_rows = c->heads * t->step;
        t->first_row = part == LATENT_K ? 0 : of->own;
    }
}

static void place_part(const struct merak_hf_config *c, enum part part,
                       struct merak_hf_tensor *t)
{
    size_t q = extent_of(c, QUERIES), kv = extent_of(c, KEYS);

    t->first_row = 0;
    t->of_rows = t->rows;
    t->run = t->step = t->rows;
    t->turned = 0;
    t->interleaved = false;
    if (part == FUSED_Q || part == FUSED_K || part == FUSED_V) {
        t->of_rows = q + 2 * kv;
        t->first_row = part == FUSED_Q ? 0 : part == FUSED_K ? q : q + kv;
    } else if (part == FUSED_GATE || part == FUSED_UP) {
        t->of_rows = 2 * c->ffn;
        t->first_row = part == FUSED_GATE ? 0 : c->ffn;
    } else if (part == EXPERT_GATE || part == EXPERT_UP) {
        t->of_rows = 2 * t->rows;
        t->first_row = part == EXPERT_GATE ? 0 : t->rows;
    } else if (part == MIXED_Q || part == MIXED_K || part == MIXED_V) {
        t->run = c->head_dim;
        t->step = 3 * t->run;
        t->of_rows = c->heads * t->step;
        t->first_row = (part - MIXED_Q) * t->run;
    } else if (part == EVEN || part == ODD) {
        t->run = 1;
        t->step = 2;
        t->of_rows = 2 * t->rows;
        t->first_row = part == ODD;
    } else if (part == ALTERNATING) {
        t->turned = t->rows;
        t->interleaved = true;
    } else {
        place_latent(c, part, t);
    }
}

static void fill_tensor(const struct merak_hf_config *c, const struct row *row,
                        const char *digits, int n, struct merak_hf_tensor *t)
{
    const char *name = row->tensor != NULL ? row->tensor : row->param;
    const char *star = strchr(name, '*');

    if (star == NULL)
        snprintf(t->name, sizeof(t->name), "%s", name);
    else
        snprintf(t->name, sizeof(t->name), "%.*s%.*s%s", (int)(star - name),
                 name, n, digits, star + 1);
    t->transposed =
        row->transposed && !(row->stacked && c->mixture.packed);
    t->vector = row->cols == ONE;
    t->rows = extent_of(c, row->rows);
    t->cols = extent_of(c, row->cols);
    t->count = row->each ? c->mixture.experts : 1;
    t->each = row->each;
    t->stack = row->stacked ? c->mixture.experts : 1;
    t->stacked = row->stacked;
    place_part(c, row->part, t);
}

static const struct row *find_row(const struct row *row, const char *param,
                                  const char **digits_p, int *n_p)
{
    for (; row != NULL && row->param != NULL; row++) {
        if (matches(row->param, param, digits_p, n_p))
            return row;
    }
    return NULL;
}

/* What is elsewhere in a folder of the family's other form, or NULL. */
static const struct row *other_rows(const struct merak_hf_config *config)
{
    const struct names *names = names_of(config);

    return names->other == NULL && config->mixture.experts > 0 && !names->stacks
               ? stacked_rows
               : names->other;
}

enum merak_status merak_hf_tensor_find(const struct merak_hf_config *config,
                                       const char *param, bool stacked,
                                       struct merak_hf_tensor *tensor,
                                       struct merak_error *err)
{
    const struct names *names = names_of(config);
    const struct row *row = NULL;
    const char *digits = NULL;
    int n;

    if (stacked)
        row = find_row(other_rows(config), param, &digits, &n);
    if (row == NULL)
        row = find_row(names->fused, param, &digits, &n);
    if (row == NULL)
        row = find_row(names->row, param, &digits, &n);
    if (row == NULL)
        return merak_fail(err, MERAK_ERR_NOT_FOUND,
                          "the %s family has no parameter %.120s",
                          merak_hf_family_name(config->family), param);
    fill_tensor(config, row, digits, n, tensor);
    return MERAK_OK;
}

bool merak_hf_tensor_is_stacked(const struct merak_hf_config *config,
                                const char *base)
{
    bool names = names_of(config)->other != NULL;
    const struct row *row = other_rows(config);
    const char *digits;
    int n;

    for (; row != NULL && row->param != NULL; row++) {
        if ((row->stacked || names) && matches(row->tensor, base, &digits, &n))
            return true;
    }
    return false;
}

void merak_hf_tensor_name(const struct merak_hf_tensor *tensor, size_t n,
                          char name[MERAK_HF_NAME_BYTES])
{
    const char *star = tensor->each ? strchr(tensor->name, '*') : NULL;

    if (star == NULL)
        memcpy(name, tensor->name, MERAK_HF_NAME_BYTES);
    else
        snprintf(name, MERAK_HF_NAME_BYTES, "%.*s%zu%s",
                 (int)(star - tensor->name), tensor->name, n, star + 1);
}

const char *merak_hf_tensor_base(const struct merak_hf_config *config,
                                 const char *name)
{
    const char *prefix = names_of(config)->prefix;
    size_t n = prefix == NULL ? 0 : strlen(prefix);

    return n > 0 && strncmp(name, prefix, n) == 0 ? name + n : name;
}

/* What follows the output layer's name, ".weight" or ".bias"; NULL: the tensor
 * is another's. */
static const char *end_of_head(const struct merak_hf_config *config,
                               const char *name)
{
    const char *head = names_of(config)->head;
    size_t n;

    if (head == NULL)
        head = "lm_head";
    n = strlen(head);
    return strncmp(name, head, n) == 0 && name[n] == '.' ? name + n : NULL;
}

bool merak_hf_tensor_is_head(const struct merak_hf_config *config,
                             const char *name)
{
    const char *end = end_of_head(config, name);

    return end != NULL && strcmp(end, ".weight") == 0;
}

const char *merak_hf_tensor_prefix(const struct merak_hf_config *config,
                                   const char *base)
{
    const char *prefix = names_of(config)->prefix;

    return prefix == NULL || end_of_head(config, base) != NULL ? "" : prefix;
}

/* Is it of a layer behind the model's own? */
static bool is_behind(const struct merak_hf_config *c, const char *name)
{
    const char *layers = names_of(c)->behind;
    size_t n = layers != NULL ? strlen(layers) : 0;

    return n > 0 && strncmp(name, layers, n) == 0 &&
           strtoul(name + n, NULL, 10) >= c->layers;
}

/* Is it the one of two biases of the output layer that is not read? */
static bool is_other_bias(const struct merak_hf_config *config,
                          const char *name)
{
    const char *bias = names_of(config)->tied_bias;
    const char *end = end_of_head(config, name);

    if (bias == NULL)
        return false;
    return config->tied ? end != NULL && strcmp(end, ".bias") == 0
                        : strcmp(name, bias) == 0;
}

bool merak_hf_tensor_is_spare(const struct merak_hf_config *config,
                              const char *name)
{
    const char *const *spare = names_of(config)->spare;
    const char *digits;
    int n;

    if (config->tied && merak_hf_tensor_is_head(config, name))
        return true;
    if (is_other_bias(config, name) || is_behind(config, name))
        return true;
    for (; *spare != NULL; spare++) {
        if (matches(*spare, name, &digits, &n))
            return true;
    }
    return false;
}

bool merak_hf_tensor_is_unadapted(const struct merak_hf_config *config,
                                  const char *base)
{
    const char *word = names_of(config)->unadapted;

    return word != NULL && strstr(base, word) != NULL;
}
