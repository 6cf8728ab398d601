/* SPDX-License-Identifier: Apache-2.0 */
/* hf_weights.c - read a model's parameters from a Hugging Face folder
 *
 * A box of a parameter is some rows and some columns of a matrix, which is
 * stored by rows or, transposed, by columns, perhaps below other matrices.
 * Whole stored rows are read, a block at a time, and the needed elements are
 * picked: many small reads would cost more than unneeded bytes.
 */
#include "config.h"

#include "io/weights/hf_weights.h"

#include "base/error.h"
#include "io/ckpt/ckpt_impl.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK ((size_t)1 << 20) /* elements */
#define STRIPE ((size_t)16)     /* elements of a row picked at a time */

struct merak_hf_weights {
    struct merak_hf_config config;
    struct merak_safetensors *st;
    const struct merak_named *param;
    struct merak_hf_layout layout;
    const struct merak_safetensor **place; /* [layout.n] of each tensor */
    const struct merak_safetensor *copy;   /* of a tied output layer, or NULL */
};

/* --- opening ---------------------------------------------------------------
 */

static const char *base_name(const struct merak_hf_weights *w,
                             const struct merak_safetensor *t)
{
    return merak_hf_tensor_base(&w->config, t->name);
}

/* Shapes of more dims than ours have are truncated: they never match
 * anyway. */
static struct merak_named named(const char *name, const size_t *dim, int ndim)
{
    struct merak_named out = {.name = name};

    out.shape.ndim = ndim < MERAK_MAX_DIMS ? ndim : MERAK_MAX_DIMS;
    memcpy(out.shape.dim, dim, (size_t)out.shape.ndim * sizeof(*dim));
    return out;
}

static enum merak_status check_same(const struct merak_hf_weights *w,
                                    const char *dir, struct merak_named *want,
                                    struct merak_named *have,
                                    struct merak_error *err)
{
    int n = 0;

    for (int i = 0; i < w->layout.n; i++)
        want[i] = named(w->layout.tensor[i].name, w->layout.tensor[i].dim,
                        w->layout.tensor[i].ndim);
    for (int i = 0; i < w->st->n; i++) {
        const struct merak_safetensor *t = &w->st->tensor[i];
        const char *name = base_name(w, t);

        if (!merak_hf_tensor_is_spare(&w->config, name))
            have[n++] = named(name, t->dim, t->ndim);
    }
    return merak_named_compare(want, w->layout.n, have, n, dir, err);
}

static enum merak_status check_tensors(const struct merak_hf_weights *w,
                                       const char *dir, struct merak_error *err)
{
    size_t most = (size_t)w->layout.n + (size_t)w->st->n + 1;
    struct merak_named *want = calloc(most, sizeof(*want));
    enum merak_status rc;

    if (want == NULL)
        return merak_fail_nomem(err, most * sizeof(*want));
    rc = check_same(w, dir, want, want + w->layout.n, err);
    free(want);
    return rc;
}

/* Before names: tensors in fp8 have scales beside them. */
static enum merak_status check_types(const struct merak_hf_weights *w,
                                     struct merak_error *err)
{
    for (int i = 0; i < w->st->n; i++) {
        const struct merak_safetensor *t = &w->st->tensor[i];

        if (t->type == MERAK_SAFETENSORS_OTHER &&
            merak_hf_layout_find(&w->layout, base_name(w, t)) >= 0)
            return merak_fail(err, MERAK_ERR_FORMAT,
                              "%.80s: tensor %.80s is of %s, expected F32, "
                              "BF16 or F16: convert the folder",
                              w->st->file[t->file].path, t->name, t->dtype);
    }
    return MERAK_OK;
}

/* Find each tensor, stored with the family's prefix or without it. */
static enum merak_status place_tensors(struct merak_hf_weights *w,
                                       struct merak_error *err)
{
    w->place =
        calloc((size_t)w->layout.n + 1, sizeof(struct merak_safetensor *));
    if (w->place == NULL)
        return merak_fail_nomem(err, (size_t)w->layout.n * sizeof(void *));
    for (int i = 0; i < w->st->n; i++) {
        const struct merak_safetensor *t = &w->st->tensor[i];
        int at = merak_hf_layout_find(&w->layout, base_name(w, t));

        if (at < 0 && merak_hf_tensor_is_head(&w->config, t->name))
            w->copy = t;
        if (at < 0)
            continue;
        if (w->place[at] != NULL)
            return merak_fail(err, MERAK_ERR_MISMATCH,
                              "tensors %.80s and %.80s are the same weight",
                              w->place[at]->name, t->name);
        w->place[at] = t;
    }
    return MERAK_OK;
}

static bool has_stacked(const struct merak_hf_weights *w)
{
    int i = 0;

    while (i < w->st->n && !merak_hf_tensor_is_stacked(
                               &w->config, base_name(w, &w->st->tensor[i])))
        i++;
    return i < w->st->n;
}

static enum merak_status lay_out(struct merak_hf_weights *w, const char *dir,
                                 int n_params, struct merak_error *err)
{
    enum merak_status rc = merak_hf_layout_init(
        &w->layout, &w->config, w->param, n_params, has_stacked(w), err);

    if (rc != MERAK_OK) /* the message has only names and shapes */
        merak_error_wrap(err, "%.60s", dir);
    return rc;
}

static enum merak_status open_folder(struct merak_hf_weights *w,
                                     const char *dir, int n_params,
                                     struct merak_error *err)
{
    enum merak_status rc;

    rc = merak_hf_config_read(dir, MERAK_HF_UNKNOWN_IGNORE, &w->config, err);
    if (rc == MERAK_OK)
        rc = merak_safetensors_open(dir, &w->st, err);
    if (rc == MERAK_OK)
        rc = merak_safetensors_unpack(w->st, &w->config.mixture.packed, err);
    if (rc == MERAK_OK)
        rc = lay_out(w, dir, n_params, err);
    if (rc == MERAK_OK)
        rc = check_types(w, err);
    if (rc == MERAK_OK)
        rc = check_tensors(w, dir, err);
    if (rc == MERAK_OK)
        rc = place_tensors(w, err);
    return rc;
}

enum merak_status merak_hf_weights_open(const char *dir,
                                        const struct merak_named *param,
                                        int n_params,
                                        struct merak_hf_weights **weights_p,
                                        struct merak_error *err)
{
    struct merak_hf_weights *w = calloc(1, sizeof(*w));
    enum merak_status rc;

    if (w == NULL)
        return merak_fail_nomem(err, sizeof(*w));
    w->param = param;
    rc = open_folder(w, dir, n_params, err);
    if (rc == MERAK_OK)
        *weights_p = w;
    else
        merak_hf_weights_close(w);
    return rc;
}

void merak_hf_weights_close(struct merak_hf_weights *weights)
{
    if (weights == NULL)
        return;
    merak_safetensors_close(weights->st);
    merak_hf_layout_fini(&weights->layout);
    free(weights->place);
    free(weights);
}

const struct merak_safetensors *
merak_hf_weights_files(const struct merak_hf_weights *weights)
{
    return weights->st;
}

bool merak_hf_weights_has(const struct merak_hf_weights *weights,
                          const struct merak_safetensor *tensor)
{
    return merak_hf_layout_find(&weights->layout, base_name(weights, tensor)) >=
           0;
}

/* --- reading ---------------------------------------------------------------
 */

/* The coordinates of a box's elements along dims [first, end), merged into one
 * dim. */
static size_t *list_coordinates(const struct merak_box *box, int first, int end,
                                size_t *n_p)
{
    size_t n = 1, *list;

    for (int d = first; d < end; d++)
        n *= box->len[d];
    list = malloc((n + 1) * sizeof(*list));
    for (size_t i = 0; list != NULL && i < n; i++) {
        size_t at = 0, rest = i, step = n;

        for (int d = first; d < end; d++) {
            step /= box->len[d];
            at = at * box->full[d] + box->lo[d] + rest / step;
            rest %= step;
        }
        list[i] = at;
    }
    *n_p = n;
    return list;
}

/* How many dims form the matrix's rows. */
static int row_dims(const struct merak_shape *shape, size_t rows)
{
    size_t n = 1;
    int d = 0;

    while (d < shape->ndim && n < rows)
        n *= shape->dim[d++];
    return d;
}

/*
 * Reading a box: element each[k] of stored row line[i] goes to out[i *
 * line_step + k * each_step].
 */
struct picking {
    const struct merak_safetensors *st;
    const struct merak_safetensor *t;
    size_t width; /* of a stored row */
    const size_t *line, *each;
    size_t n_lines, n_each, line_step, each_step;
    float *out;
};

/* Elements [k, end) of the list of stored row i. */
static void pick_stripe(const struct picking *p, const float *row, size_t i,
                        size_t k, size_t end)
{
    float *out = p->out + i * p->line_step;

    for (; k < end; k++)
        out[k * p->each_step] = row[p->each[k] - p->each[0]];
}

/* Stored rows [i, i + n) of the list are adjacent.  When transposing, STRIPE
 * cache lines are written in turn until they are full. */
static enum merak_status pick_block(const struct picking *p, size_t i, size_t n,
                                    float *buf, struct merak_error *err)
{
    size_t first = p->line[i] * p->width + p->each[0];
    size_t end = p->line[i + n - 1] * p->width + p->each[p->n_each - 1] + 1;
    enum merak_status rc =
        merak_safetensors_read(p->st, p->t, first, end - first, buf, err);

    if (rc != MERAK_OK)
        return rc;
    for (size_t k = 0; k < p->n_each; k += STRIPE) {
        size_t end_k = p->n_each - k < STRIPE ? p->n_each : k + STRIPE;

        for (size_t r = 0; r < n; r++)
            pick_stripe(p, buf + r * p->width, i + r, k, end_k);
    }
    return MERAK_OK;
}

/* Is the box a run of whole stored rows, in order?  Rows of rotated channels
 * may be in another one. */
static bool is_run(const struct picking *p)
{
    size_t i = 1;

    while (i < p->n_lines && p->line[i] == p->line[0] + i)
        i++;
    return p->n_each == p->width && p->each_step == 1 &&
           p->line_step == p->width && i == p->n_lines;
}

static enum merak_status pick(const struct picking *p, float *buf,
                              size_t buf_lines, struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;
    size_t n;

    if (is_run(p))
        return merak_safetensors_read(p->st, p->t, p->line[0] * p->width,
                                      p->n_lines * p->width, p->out, err);
    for (size_t i = 0; i < p->n_lines && rc == MERAK_OK; i += n) {
        n = 1;
        while (n < buf_lines && i + n < p->n_lines &&
               p->line[i + n] == p->line[i] + n)
            n++;
        rc = pick_block(p, i, n, buf, err);
    }
    return rc;
}

/* Read a box of matrix `at` of tensor `tensor`, `shape` of the parameter. */
static enum merak_status read_matrix(const struct merak_hf_weights *w,
                                     const struct merak_hf_tensor *part,
                                     int tensor, size_t at,
                                     const struct merak_shape *shape,
                                     const struct merak_box *box, float *out,
                                     struct merak_error *err)
{
    int split = row_dims(shape, part->rows);
    struct picking p = {.st = w->st,
                        .t = w->place[tensor],
                        .width = part->transposed ? part->of_rows : part->cols,
                        .out = out};
    size_t n_rows = 0, n_cols = 0, lines;
    size_t *rows = list_coordinates(box, 0, split, &n_rows);
    size_t *cols = list_coordinates(box, split, box->ndim, &n_cols);
    enum merak_status rc = MERAK_OK;
    float *buf;

    lines = BLOCK / p.width + 1;
    buf = malloc(lines * p.width * sizeof(*buf));
    if (rows == NULL || cols == NULL || buf == NULL) {
        rc = merak_fail_nomem(err, lines * p.width * sizeof(*buf));
        goto out;
    }
    for (size_t i = 0; i < n_rows; i++)
        rows[i] = merak_hf_tensor_row(part, rows[i]);
    p.line = part->transposed ? cols : rows;
    p.each = part->transposed ? rows : cols;
    p.n_lines = part->transposed ? n_cols : n_rows;
    p.n_each = part->transposed ? n_rows : n_cols;
    for (size_t i = 0; i < p.n_lines; i++) /* behind other matrices */
        (part->transposed ? cols : rows)[i] +=
            at * (part->transposed ? part->cols : part->of_rows);
    p.line_step = part->transposed ? 1 : n_cols;
    p.each_step = part->transposed ? n_cols : 1;
    if (n_rows > 0 && n_cols > 0)
        rc = pick(&p, buf, lines, err);
out:
    free(buf);
    free(rows);
    free(cols);
    return rc;
}

/* A box of a parameter: of each expert's matrix, if it is of experts. */
static enum merak_status read_box(const struct merak_hf_weights *w, int param,
                                  const struct merak_box *box, float *out,
                                  struct merak_error *err)
{
    const struct merak_hf_tensor *part = &w->layout.part[param];
    const struct merak_shape *shape = &w->param[param].shape;
    int first = w->layout.tensor_of[param];
    struct merak_shape matrix = {.ndim = shape->ndim - 1};
    struct merak_box one = {.ndim = box->ndim - 1};
    enum merak_status rc = MERAK_OK;

    if (!part->each && !part->stacked)
        return read_matrix(w, part, first, 0, shape, box, out, err);
    for (int d = 1; d < shape->ndim; d++) {
        matrix.dim[d - 1] = shape->dim[d];
        one.full[d - 1] = box->full[d];
        one.lo[d - 1] = box->lo[d];
        one.len[d - 1] = box->len[d];
    }
    for (size_t n = 0; n < box->len[0] && rc == MERAK_OK; n++) {
        size_t at = box->lo[0] + n;

        rc = read_matrix(w, part, part->each ? first + (int)at : first,
                         part->each ? 0 : at, &matrix, &one,
                         out + n * merak_box_count(&one), err);
    }
    return rc;
}

enum merak_status merak_hf_weights_read(const struct merak_hf_weights *weights,
                                        const char *param,
                                        const struct merak_ckpt_piece *piece,
                                        struct merak_error *err)
{
    struct merak_box boxes[MERAK_FLAT_BOXES];
    enum merak_status rc = merak_ckpt_piece_check(piece, err);
    float *data = piece->data;
    int i = 0, n;

    if (rc != MERAK_OK)
        return rc;
    while (i < weights->layout.n_params &&
           strcmp(weights->param[i].name, param) != 0)
        i++;
    if (i == weights->layout.n_params)
        return merak_fail(err, MERAK_ERR_NOT_FOUND, "no parameter %.120s",
                          param);
    n = merak_ckpt_piece_boxes(piece, boxes);
    for (int b = 0; b < n && rc == MERAK_OK; b++) {
        rc = read_box(weights, i, &boxes[b], data, err);
        data += merak_box_count(&boxes[b]);
    }
    return rc;
}

/* --- tied output layers ------------------------------------------------------
 */

static enum merak_status compare_block(const struct merak_hf_weights *w,
                                       const struct merak_safetensor *table,
                                       size_t at, size_t n, float *buf,
                                       struct merak_error *err)
{
    enum merak_status rc =
        merak_safetensors_read(w->st, w->copy, at, n, buf, err);

    if (rc == MERAK_OK)
        rc = merak_safetensors_read(w->st, table, at, n, buf + n, err);
    if (rc == MERAK_OK && memcmp(buf, buf + n, n * sizeof(*buf)) != 0)
        rc = merak_fail(err, MERAK_ERR_MISMATCH,
                        "tensor %.80s differs from %.80s, and config.json has "
                        "tie_word_embeddings true: one of them would be lost",
                        w->copy->name, table->name);
    return rc;
}

enum merak_status
merak_hf_weights_check_tied(const struct merak_hf_weights *weights,
                            struct merak_error *err)
{
    /* the embedding is the first parameter in every family */
    const struct merak_safetensor *table = weights->place[0];
    enum merak_status rc = MERAK_OK;
    float *buf;

    if (weights->copy == NULL)
        return MERAK_OK;
    if (table->count != weights->copy->count)
        return merak_fail(err, MERAK_ERR_MISMATCH,
                          "tensor %.80s has %zu elements, expected the %zu of "
                          "%.80s, which it is tied to",
                          weights->copy->name, weights->copy->count,
                          table->count, table->name);
    buf = malloc(2 * BLOCK * sizeof(*buf));
    if (buf == NULL)
        return merak_fail_nomem(err, 2 * BLOCK * sizeof(*buf));
    for (size_t at = 0; at < table->count && rc == MERAK_OK; at += BLOCK) {
        size_t n = table->count - at < BLOCK ? table->count - at : BLOCK;

        rc = compare_block(weights, table, at, n, buf, err);
    }
    free(buf);
    return rc;
}
