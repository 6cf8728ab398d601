/* SPDX-License-Identifier: Apache-2.0 */
/* export_gguf.c - a checkpoint's weights to a file of GGUF, for llama.cpp
 *
 * Vectors and tables of positions are F32, matrices of the type that is asked
 * for; one whose rows are not of whole blocks is F16 instead of q8_0.
 */
#include "config.h"

#include "io/weights/transfer_impl.h"

#include "base/error.h"
#include "base/hub.h"
#include "io/ckpt/durable.h"
#include "io/weights/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROPE "rope_freqs.weight"

struct gguf {
    struct merak_exporting *e;
    struct merak_gguf header;
    struct merak_gguf_tensor *tensor; /* as the layout, then ROPE */
    int *first;                       /* of the layout: what it is made of */
    int n;
};

/* The number that files have for the type of most tensors. */
static const struct {
    enum merak_gguf_type type;
    uint64_t number;
} file_type[] = {
    {MERAK_GGUF_F32, 0},
    {MERAK_GGUF_F16, 1},
    {MERAK_GGUF_Q8_0, 7},
    {MERAK_GGUF_BF16, 32},
};

static enum merak_gguf_type type_asked(const struct merak_export *export)
{
    if (export->blocks)
        return MERAK_GGUF_Q8_0;
    return !export->typed                          ? MERAK_GGUF_F16
           : export->type == MERAK_SAFETENSORS_F32 ? MERAK_GGUF_F32
           : export->type == MERAK_SAFETENSORS_F16 ? MERAK_GGUF_F16
                                                   : MERAK_GGUF_BF16;
}

static enum merak_gguf_type type_of(const struct gguf *gguf,
                                    const struct merak_gguf_tensor *t)
{
    enum merak_gguf_type type = type_asked(gguf->e->export);

    if (t->ndim == 1 || merak_gguf_is_precise(t->name))
        return MERAK_GGUF_F32;
    return type == MERAK_GGUF_Q8_0 && t->dim[1] % MERAK_GGUF_BLOCK != 0
               ? MERAK_GGUF_F16
               : type;
}

static enum merak_status list_tensors(struct gguf *gguf,
                                      struct merak_error *err)
{
    struct merak_exporting *e = gguf->e;
    size_t factors = merak_gguf_rope_factors(&e->config);
    enum merak_status rc = MERAK_OK;

    gguf->tensor = calloc((size_t)e->layout.n + 1, sizeof(*gguf->tensor));
    gguf->first = calloc((size_t)e->layout.n + 1, sizeof(*gguf->first));
    if (gguf->tensor == NULL || gguf->first == NULL)
        return merak_fail_nomem(err,
                                (size_t)e->layout.n * sizeof(*gguf->tensor));
    for (int p = 0; p < e->params.n && rc == MERAK_OK; p++) {
        const struct merak_hf_tensor *part = &e->layout.part[p];
        struct merak_gguf_tensor *t = &gguf->tensor[e->layout.tensor_of[p]];

        t->ndim = part->vector ? 1 : part->each ? 3 : 2;
        t->dim[0] = part->of_rows;
        t->dim[1] = part->cols;
        t->stacked = part->count;
        if (t->ndim == 2 && part->of_rows == 1) { /* a gate of one number */
            t->ndim = 1;
            t->dim[0] = part->cols;
        }
        rc = merak_gguf_name(&e->config, part->name, t->name, err);
        t->type = type_of(gguf, t);
    }
    /* Of experts only the first one's place is filled: all are in it. */
    for (int i = 0; i < e->layout.n; i++) {
        if (gguf->tensor[i].ndim == 0)
            continue;
        gguf->first[gguf->n] = i;
        gguf->tensor[gguf->n++] = gguf->tensor[i];
    }
    gguf->first[gguf->n] = e->layout.n;
    if (factors > 0)
        gguf->tensor[gguf->n++] = (struct merak_gguf_tensor){
            .name = ROPE, .ndim = 1, .dim = {factors}};
    for (int i = 0; i < gguf->n; i++)
        e->all += merak_gguf_bytes(&gguf->tensor[i]);
    return rc;
}

static enum merak_status make_header(struct gguf *gguf, struct merak_error *err)
{
    struct merak_exporting *e = gguf->e;
    char room[PATH_MAX];
    size_t i = 0;

    merak_gguf_model_keys(&gguf->header, &e->config);
    while (file_type[i].type != type_asked(e->export))
        i++;
    merak_gguf_number(&gguf->header, "general.file_type", file_type[i].number);
    merak_gguf_number(&gguf->header, "general.quantization_version", 2);
    return merak_gguf_tokenizer(&gguf->header, merak_hub_path(e->model, room),
                                e->config.vocab, err);
}

/* Rows i and i + half of each head, a pair, become neighbors. */
static enum merak_status pair_rows(float *x, size_t rows, size_t cols,
                                   size_t heads, struct merak_error *err)
{
    size_t each = rows / heads, half = each / 2, n = each * cols;
    float *old = malloc(n * sizeof(*old));

    if (old == NULL)
        return merak_fail_nomem(err, n * sizeof(*old));
    for (size_t h = 0; h < heads; h++, x += n) {
        memcpy(old, x, n * sizeof(*old));
        for (size_t i = 0; i < each; i++)
            memcpy(x + (i % half * 2 + i / half) * cols, old + i * cols,
                   cols * sizeof(*old));
    }
    free(old);
    return MERAK_OK;
}

/* Rows of queries, keys and values, by head, become all queries, all keys, all
 * values. */
static enum merak_status sort_rows(float *x, size_t rows, size_t cols,
                                   size_t heads, struct merak_error *err)
{
    size_t each = rows / heads / 3 * cols, n = rows * cols;
    float *old = malloc(n * sizeof(*old));

    if (old == NULL)
        return merak_fail_nomem(err, n * sizeof(*old));
    memcpy(old, x, n * sizeof(*old));
    for (size_t h = 0; h < heads; h++) {
        for (size_t k = 0; k < 3; k++)
            memcpy(x + (k * heads + h) * each, old + (h * 3 + k) * each,
                   each * sizeof(*old));
    }
    free(old);
    return MERAK_OK;
}

/* Tensor t of the layout, in the form of this one. */
static enum merak_status read_tensor(struct gguf *gguf,
                                     const struct merak_gguf_tensor *to, int t,
                                     struct merak_error *err)
{
    struct merak_exporting *e = gguf->e;
    const char *name = e->layout.tensor[t].name;
    size_t cols = to->ndim > 1 ? to->dim[1] : 1;
    size_t heads = merak_gguf_heads(&e->config, name);
    size_t mixed = merak_gguf_mixed(&e->config, name);
    float offset = merak_gguf_offset(&e->config, name);
    enum merak_status rc = merak_exporting_tensor(e, t, 0, err);

    if (rc == MERAK_OK && heads > 0)
        rc = pair_rows(e->buf, to->dim[0], cols, heads, err);
    if (rc == MERAK_OK && mixed > 0)
        rc = sort_rows(e->buf, to->dim[0], cols, mixed, err);
    for (size_t i = 0; offset != 0 && i < to->dim[0] * cols; i++)
        e->buf[i] += offset;
    return rc;
}

/* Those of rotary frequencies. */
static enum merak_status write_factors(const struct gguf *gguf,
                                       const struct merak_gguf_tensor *t,
                                       struct merak_float_file *file,
                                       struct merak_error *err)
{
    float factor[MERAK_HF_PAIRS];

    for (size_t i = 0; i < t->dim[0]; i++)
        factor[i] = merak_gguf_rope_factor(&gguf->e->config, i);
    return merak_gguf_put(file, t, 0, factor, err);
}

static enum merak_status write_tensors(struct gguf *gguf,
                                       struct merak_float_file *file,
                                       struct merak_error *err)
{
    struct merak_exporting *e = gguf->e;
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < gguf->n && rc == MERAK_OK; i++) {
        const struct merak_gguf_tensor *t = &gguf->tensor[i];
        const int first = gguf->first[i];

        if (first == e->layout.n)
            rc = write_factors(gguf, t, file, err);
        for (int k = 0; first < e->layout.n && rc == MERAK_OK &&
                        k < (t->ndim > 2 ? (int)t->stacked : 1);
             k++) {
            rc = read_tensor(gguf, t, first + k, err);
            if (rc == MERAK_OK)
                rc = merak_gguf_put(file, t, (size_t)k, e->buf, err);
        }
        if (rc == MERAK_OK)
            rc = merak_exporting_tell(e, merak_gguf_bytes(t), err);
    }
    return rc;
}

static enum merak_status write_file(struct gguf *gguf, struct merak_error *err)
{
    struct merak_float_file *file = NULL;
    char path[PATH_MAX];
    enum merak_status rc = merak_float_file_create(
        merak_path(path, gguf->e->export->out, "model.gguf"), &file, err);

    if (rc == MERAK_OK)
        rc = merak_gguf_write(&gguf->header, gguf->tensor, gguf->n, file, err);
    if (rc == MERAK_OK)
        rc = write_tensors(gguf, file, err);
    if (rc == MERAK_OK)
        rc = merak_float_file_commit(file, err);
    merak_float_file_destroy(file);
    return rc;
}

enum merak_status merak_export_gguf(struct merak_exporting *e,
                                    struct merak_transfer_summary *summary,
                                    struct merak_error *err)
{
    struct gguf gguf = {.e = e};
    const char *name = NULL;
    enum merak_status rc = merak_gguf_model(&e->config, &name, err);

    if (rc == MERAK_OK)
        rc = list_tensors(&gguf, err);
    if (rc == MERAK_OK)
        rc = make_header(&gguf, err);
    if (rc == MERAK_OK)
        rc = write_file(&gguf, err);
    if (rc == MERAK_OK)
        *summary = (struct merak_transfer_summary){
            .family = merak_hf_family_name(e->config.family),
            .tensors = gguf.n,
            .files = 1,
            .bytes = e->all};
    free(gguf.tensor);
    free(gguf.first);
    free(gguf.header.bytes);
    return rc;
}
