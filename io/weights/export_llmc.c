/* SPDX-License-Identifier: Apache-2.0 */
/* export_llmc.c - a checkpoint's weights to llm.c's model.bin
 *
 *   256 int32    header, little-endian: 20240326; 3 for f32 or 5 for bf16;
 *                positions; vocabulary V; layers; heads; width C; V rounded up
 *                to a multiple of 128; zeros
 *   16 tensors   consecutive, each with all layers; matrices are
 *                [out, in]; the token table has zeros below its V rows
 *
 * Only GPT-2's mathematics, with the tanh form of GELU, an epsilon of 1e-5, an
 * MLP of 4 C, and a tied output layer.
 */
#include "config.h"

#include "io/weights/transfer_impl.h"

#include "base/error.h"
#include "io/ckpt/durable.h"
#include "io/weights/float_file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { HEADER = 256, MAGIC = 20240326, PAD_TO = 128 };

/* In the file's order; "%d" is a layer. */
static const char *const order[] = {
    "wte.weight",
    "wpe.weight",
    "h.%d.ln_1.weight",
    "h.%d.ln_1.bias",
    "h.%d.attn.c_attn.weight",
    "h.%d.attn.c_attn.bias",
    "h.%d.attn.c_proj.weight",
    "h.%d.attn.c_proj.bias",
    "h.%d.ln_2.weight",
    "h.%d.ln_2.bias",
    "h.%d.mlp.c_fc.weight",
    "h.%d.mlp.c_fc.bias",
    "h.%d.mlp.c_proj.weight",
    "h.%d.mlp.c_proj.bias",
    "ln_f.weight",
    "ln_f.bias",
};

enum { N_ORDER = sizeof(order) / sizeof(order[0]) };

static enum merak_status check_model(const struct merak_hf_config *c,
                                     struct merak_error *err)
{
    const char *wrong = NULL;

    if (c->family != MERAK_GPT2)
        wrong = "the gpt2 family";
    else if (!c->tied)
        wrong = "tie_word_embeddings true";
    else if (c->act != MERAK_HF_GELU_TANH)
        wrong = "activation_function gelu_new";
    else if (fabsf(c->norm.eps - 1e-5f) > 1e-9f)
        wrong = "layer_norm_epsilon 1e-5";
    else if (c->ffn != 4 * c->hidden)
        wrong = "n_inner 4 n_embd";
    if (wrong == NULL)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--format llmc: llm.c has only models of %s, and this is "
                      "not one; --format hf takes it",
                      wrong);
}

static size_t padded(size_t vocab)
{
    return (vocab + PAD_TO - 1) / PAD_TO * PAD_TO;
}

static enum merak_status write_header(const struct merak_hf_config *c,
                                      enum merak_safetensors_type type,
                                      struct merak_float_file *file,
                                      struct merak_error *err)
{
    const uint32_t word[] = {MAGIC,
                             type == MERAK_SAFETENSORS_F32 ? 3 : 5,
                             (uint32_t)c->positions,
                             (uint32_t)c->vocab,
                             (uint32_t)c->layers,
                             (uint32_t)c->heads,
                             (uint32_t)c->hidden,
                             (uint32_t)padded(c->vocab)};
    unsigned char raw[HEADER * 4] = {0};

    for (size_t i = 0; i < sizeof(word) / sizeof(word[0]); i++) {
        for (int b = 0; b < 4; b++)
            raw[4 * i + (size_t)b] = (unsigned char)(word[i] >> (8 * b));
    }
    return merak_float_file_bytes(file, raw, sizeof(raw), err);
}

/* Its index, or the number of parameters. */
static int find_param(const struct merak_exporting *e, const char *name)
{
    int p = 0;

    while (p < e->params.n && strcmp(e->params.param[p].name, name) != 0)
        p++;
    return p;
}

static enum merak_status write_param(struct merak_exporting *e,
                                     enum merak_safetensors_type type,
                                     const char *name,
                                     struct merak_float_file *file,
                                     struct merak_error *err)
{
    int p = find_param(e, name);
    size_t n;
    enum merak_status rc;

    if (p == e->params.n)
        return merak_fail(err, MERAK_ERR_NOT_FOUND,
                          "the model has no parameter %.80s", name);
    n = merak_shape_count(&e->params.param[p].shape);
    rc = merak_exporting_read(e, p, e->buf, err);
    if (rc == MERAK_OK)
        rc = merak_float_file_put(file, type, e->buf, n, err);
    if (rc != MERAK_OK) {
        merak_error_wrap(err, "tensor %.100s", name);
        return rc;
    }
    return merak_exporting_tell(e, n * merak_safetensors_type_bytes(type), err);
}

static enum merak_status write_padding(const struct merak_hf_config *c,
                                       enum merak_safetensors_type type,
                                       struct merak_float_file *file,
                                       struct merak_error *err)
{
    size_t n = (padded(c->vocab) - c->vocab) * c->hidden;
    enum merak_status rc = MERAK_OK;
    const float zero = 0;

    for (size_t i = 0; i < n && rc == MERAK_OK; i++)
        rc = merak_float_file_put(file, type, &zero, 1, err);
    return rc;
}

static enum merak_status write_tensors(struct merak_exporting *e,
                                       enum merak_safetensors_type type,
                                       struct merak_float_file *file,
                                       struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;
    char name[64];

    for (int i = 0; i < N_ORDER && rc == MERAK_OK; i++) {
        const char *layer = strstr(order[i], "%d");
        size_t layers = layer == NULL ? 1 : e->config.layers;

        for (size_t l = 0; l < layers && rc == MERAK_OK; l++) {
            if (layer == NULL)
                snprintf(name, sizeof(name), "%s", order[i]);
            else
                snprintf(name, sizeof(name), "%.*s%zu%s",
                         (int)(layer - order[i]), order[i], l, layer + 2);
            rc = write_param(e, type, name, file, err);
        }
        if (i == 0 && rc == MERAK_OK)
            rc = write_padding(&e->config, type, file, err);
    }
    return rc;
}

enum merak_status merak_export_llmc(struct merak_exporting *e,
                                    struct merak_transfer_summary *summary,
                                    struct merak_error *err)
{
    enum merak_safetensors_type type =
        e->export->typed ? e->export->type : MERAK_SAFETENSORS_F32;
    struct merak_float_file *file = NULL;
    char path[PATH_MAX];
    enum merak_status rc = check_model(&e->config, err);

    if (rc == MERAK_OK && type == MERAK_SAFETENSORS_F16)
        rc = merak_fail(err, MERAK_ERR_CONFIG,
                        "--format llmc: its files hold fp32 or bf16, not fp16");
    if (rc != MERAK_OK)
        return rc;
    for (int i = 0; i < e->params.n; i++)
        e->all += merak_shape_count(&e->params.param[i].shape) *
                  merak_safetensors_type_bytes(type);
    rc = merak_float_file_create(merak_path(path, e->export->out, "model.bin"),
                                 &file, err);
    if (rc == MERAK_OK)
        rc = write_header(&e->config, type, file, err);
    if (rc == MERAK_OK)
        rc = write_tensors(e, type, file, err);
    if (rc == MERAK_OK)
        rc = merak_float_file_commit(file, err);
    merak_float_file_destroy(file);
    if (rc == MERAK_OK)
        *summary = (struct merak_transfer_summary){
            .family = merak_hf_family_name(e->config.family),
            .tensors = N_ORDER,
            .files = 1,
            .bytes = e->all};
    return rc;
}
