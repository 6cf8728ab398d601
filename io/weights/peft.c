/* SPDX-License-Identifier: Apache-2.0 */
/* peft.c - read adapters from a folder of PEFT
 *
 * A module that holds several of our weights (qkv_proj of Phi-3) has one
 * adapter.  If it is block diagonal, as an export writes it, each weight gets
 * its block.  If it has the rank of all others, each gets all of A, and its
 * rows of B.
 */
#include "config.h"

#include "io/weights/peft.h"

#include "base/error.h"
#include "io/lora_record.h"
#include "io/weights/adapters.h"
#include "io/weights/peft_config.h"
#include "io/weights/transfer_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSOR_NAME = 2 * MERAK_HF_NAME_BYTES + 64 };

/* Where the adapter of a parameter is; NULL: it has none. */
struct source {
    const struct merak_safetensor *a, *b;
    size_t rank, block; /* rows of A, and columns of B, from block * rank */
};

/* A tensor of the file: its name without PEFT's prefix and the family's. */
struct listed {
    const char *name;
    const struct merak_safetensor *tensor;
};

struct merak_peft {
    const char *dir;
    struct merak_hf_config model;
    struct merak_peft_config config;
    struct merak_safetensors *st;
    struct merak_hf_params params; /* of the model without adapters */
    struct merak_hf_layout layout;
    struct source *source; /* [params.n] */
    int n_sources;
    struct listed *sorted; /* [st->n], by name */
    bool *used;            /* [st->n] */
    struct merak_lora_record lora;
};

/* --- one module -------------------------------------------------------------
 */

static int compare_listed(const void *a, const void *b)
{
    return strcmp(((const struct listed *)a)->name,
                  ((const struct listed *)b)->name);
}

/* Names without PEFT's prefix are no adapters of a model's: find() does not
 * ask for them. */
static enum merak_status sort_tensors(struct merak_peft *peft,
                                      struct merak_error *err)
{
    size_t n = strlen(MERAK_PEFT_PREFIX), most = (size_t)peft->st->n;

    peft->sorted = calloc(most + 1, sizeof(*peft->sorted));
    if (peft->sorted == NULL)
        return merak_fail_nomem(err, most * sizeof(*peft->sorted));
    for (size_t i = 0; i < most; i++) {
        const char *name = peft->st->tensor[i].name;

        peft->sorted[i] =
            (struct listed){strncmp(name, MERAK_PEFT_PREFIX, n) == 0
                                ? merak_hf_tensor_base(&peft->model, name + n)
                                : "",
                            &peft->st->tensor[i]};
    }
    qsort(peft->sorted, most, sizeof(*peft->sorted), compare_listed);
    return MERAK_OK;
}

/* The file's tensor of a module, A or B, named with the family's prefix or
 * without. */
static const struct merak_safetensor *find(const struct merak_peft *peft,
                                           const char *module, char which)
{
    char name[TENSOR_NAME];
    const struct listed key = {name, NULL}, *found;

    snprintf(name, sizeof(name), "%s.lora_%c.weight", module, which);
    found = bsearch(&key, peft->sorted, (size_t)peft->st->n,
                    sizeof(*peft->sorted), compare_listed);
    return found != NULL ? found->tensor : NULL;
}

static enum merak_status check_shapes(const struct merak_peft *peft,
                                      const char *module,
                                      const struct merak_hf_tensor *part,
                                      const struct merak_safetensor *a,
                                      const struct merak_safetensor *b,
                                      struct merak_error *err)
{
    if (b == NULL)
        return merak_fail(err, MERAK_ERR_MISMATCH,
                          "%.80s has lora_A of %.60s and no lora_B of it",
                          peft->dir, module);
    if (a->ndim == 2 && b->ndim == 2 && a->dim[0] >= 1 &&
        a->dim[0] == b->dim[1] && a->dim[1] == part->cols &&
        b->dim[0] == part->of_rows)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_MISMATCH,
                      "%.80s: adapters of %.60s are [%zu, %zu] and [%zu, %zu], "
                      "expected [rank, %zu] and [%zu, rank]",
                      peft->dir, module, a->dim[0], a->dim[1], b->dim[0],
                      b->dim[1], part->cols, part->of_rows);
}

/* What PEFT calls a module: as in the file, with the family's prefix, if it has
 * one. */
static void name_of_a(const struct merak_safetensor *a, char name[TENSOR_NAME])
{
    snprintf(name, TENSOR_NAME, "%s", a->name + strlen(MERAK_PEFT_PREFIX));
    name[strlen(name) - strlen(".lora_A.weight")] = '\0';
}

/* Rank and alpha that adapter_config.json gives a module: PEFT takes no
 * tensors of another rank. */
static enum merak_status check_config(const struct merak_peft *peft,
                                      const struct merak_safetensor *a,
                                      double *alpha_p, struct merak_error *err)
{
    char module[TENSOR_NAME];
    double rank = 0;
    enum merak_status rc;

    name_of_a(a, module);
    rc = merak_peft_config_of(&peft->config, module, &rank, alpha_p, err);
    if (rc != MERAK_OK || rank == (double)a->dim[0])
        return rc;
    return merak_fail(err, MERAK_ERR_MISMATCH,
                      "%.80s: the adapter of %.60s has rank %zu, and "
                      MERAK_PEFT_CONFIG " gives it %g: these two files are not "
                      "of one adapter",
                      peft->dir, module, a->dim[0], rank);
}

static bool all_zero(const float *x, size_t n)
{
    while (n > 0 && x[n - 1] == 0)
        n--;
    return n == 0;
}

/* Is B zero outside of the blocks, one per part? */
static bool is_diagonal(const struct merak_peft *peft, int t, size_t rank,
                        const float *b, size_t width)
{
    size_t k = 0;

    for (int p = 0; p < peft->params.n; p++) {
        const struct merak_hf_tensor *part = &peft->layout.part[p];

        if (peft->layout.tensor_of[p] != t)
            continue;
        for (size_t i = 0; i < part->rows; i++) {
            const float *row = b + merak_hf_tensor_row(part, i) * width;

            if (!all_zero(row, k * rank) ||
                !all_zero(row + (k + 1) * rank, width - (k + 1) * rank))
                return false;
        }
        k++;
    }
    return k * rank == width;
}

static enum merak_status check_diagonal(const struct merak_peft *peft, int t,
                                        const char *module, size_t rank,
                                        const struct merak_safetensor *b,
                                        struct merak_error *err)
{
    float *data = malloc(b->count * sizeof(*data));
    enum merak_status rc;

    if (data == NULL)
        return merak_fail_nomem(err, b->count * sizeof(*data));
    rc = merak_safetensors_read(peft->st, b, 0, b->count, data, err);
    if (rc == MERAK_OK && !is_diagonal(peft, t, rank, data, b->dim[1]))
        rc = merak_fail(err, MERAK_ERR_UNSUPPORTED,
                        "%.60s: %.50s holds several weights, and its adapter "
                        "of rank %zu is neither block diagonal nor of rank "
                        "%zu, as r is: merge it with PEFT's "
                        "merge_and_unload()",
                        peft->dir, module, b->dim[1], peft->config.rank);
    free(data);
    return rc;
}

/* A block of a weight without an adapter is zero, in A, too. */
static enum merak_status is_absent(const struct merak_peft *peft,
                                   const struct source *s, bool *absent_p,
                                   struct merak_error *err)
{
    size_t n = s->rank * s->a->dim[1];
    float *data = malloc(n * sizeof(*data));
    enum merak_status rc;

    if (data == NULL)
        return merak_fail_nomem(err, n * sizeof(*data));
    rc = merak_safetensors_read(peft->st, s->a, s->block * n, n, data, err);
    *absent_p = rc == MERAK_OK && all_zero(data, n);
    free(data);
    return rc;
}

/* All layers have one rank and one alpha. */
static enum merak_status agree(struct merak_peft *peft, const char *module,
                               size_t rank, double alpha,
                               struct merak_error *err)
{
    struct merak_lora *lora = &peft->lora.lora;

    if (lora->rank == 0) {
        lora->rank = rank;
        lora->alpha = (float)alpha;
    }
    if (lora->rank == rank && lora->alpha == (float)alpha)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                      "%.60s: the adapter of %.60s has rank %zu and alpha %g, "
                      "others have %zu and %g: only one of each is supported",
                      peft->dir, module, rank, alpha, lora->rank,
                      (double)lora->alpha);
}

/* Give the parts of tensor t their adapters. */
static enum merak_status take_parts(struct merak_peft *peft, int t,
                                    const struct source *whole, bool blocks,
                                    struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;
    size_t k = 0;

    for (int p = 0; p < peft->params.n && rc == MERAK_OK; p++) {
        struct source *s = &peft->source[p];
        bool absent = false;

        if (peft->layout.tensor_of[p] != t)
            continue;
        *s = *whole;
        s->block = blocks ? k++ : 0;
        if (blocks)
            rc = is_absent(peft, s, &absent, err);
        if (absent)
            *s = (struct source){.a = NULL};
        peft->n_sources += !absent;
    }
    return rc;
}

static enum merak_status take_module(struct merak_peft *peft, int t,
                                     struct merak_error *err)
{
    char module[TENSOR_NAME];
    struct source whole = {.block = 0};
    size_t parts = 0;
    double alpha = 0;
    int first = -1;
    enum merak_status rc;

    snprintf(module, sizeof(module), "%s", peft->layout.tensor[t].name);
    *strrchr(module, '.') = '\0';
    whole.a = find(peft, module, 'A');
    whole.b = find(peft, module, 'B');
    if (whole.a == NULL || peft->layout.tensor[t].ndim != 2)
        return MERAK_OK;
    for (int p = 0; p < peft->params.n; p++) {
        if (peft->layout.tensor_of[p] == t && parts++ == 0)
            first = p;
    }
    rc = check_shapes(peft, module, &peft->layout.part[first], whole.a, whole.b,
                      err);
    if (rc == MERAK_OK)
        rc = check_config(peft, whole.a, &alpha, err);
    if (rc != MERAK_OK)
        return rc;
    peft->used[whole.a - peft->st->tensor] = true;
    peft->used[whole.b - peft->st->tensor] = true;
    whole.rank = whole.a->dim[0];
    if (parts > 1 && whole.rank == peft->config.rank)
        parts = 1;
    whole.rank /= parts;
    if (parts > 1)
        rc = check_diagonal(peft, t, module, whole.rank, whole.b, err);
    if (rc == MERAK_OK)
        rc = agree(peft, module, whole.rank,
                   merak_peft_block_alpha(&peft->config, parts, alpha), err);
    return rc == MERAK_OK ? take_parts(peft, t, &whole, parts > 1, err) : rc;
}

/* --- all of them ------------------------------------------------------------
 */

/* A tensor that is no adapter of the model's linear layers. */
static enum merak_status refuse_rest(const struct merak_peft *peft,
                                     struct merak_error *err)
{
    for (int i = 0; i < peft->st->n; i++) {
        if (!peft->used[i])
            return merak_fail(err, MERAK_ERR_MISMATCH,
                              "%.80s/" MERAK_PEFT_FILE
                              " has %.80s, which is no adapter of a linear "
                              "layer of this model",
                              peft->dir, peft->st->tensor[i].name);
    }
    return peft->st->n > 0
               ? MERAK_OK
               : merak_fail(err, MERAK_ERR_MISMATCH,
                            "%.80s/" MERAK_PEFT_FILE " has no adapters",
                            peft->dir);
}

static enum merak_status name_targets(struct merak_peft *peft,
                                      struct merak_error *err)
{
    size_t n = (size_t)peft->params.n + 1, length, end = strlen(".weight");
    struct merak_adaptable *layer = calloc(n, sizeof(*layer));
    char(*name)[MERAK_HF_NAME_BYTES] = calloc(n, sizeof(*name));
    enum merak_status rc = MERAK_OK;

    if (layer == NULL || name == NULL) {
        rc = merak_fail_nomem(err, n * sizeof(*name));
        goto out;
    }
    for (int p = 0; p < peft->params.n; p++) {
        const char *full = peft->params.param[p].name;

        length = strlen(full);
        if (length > end && strcmp(full + length - end, ".weight") == 0)
            length -= end;
        snprintf(name[p], sizeof(*name), "%.*s", (int)length, full);
        layer[p] = (struct merak_adaptable){name[p], peft->source[p].a != NULL};
    }
    peft->lora.lora.targets = peft->lora.targets;
    length = merak_adaptable_print(layer, peft->params.n, peft->lora.targets,
                                   sizeof(peft->lora.targets));
    if (length >= sizeof(peft->lora.targets))
        rc = merak_fail(err, MERAK_ERR_UNSUPPORTED,
                        "%.80s: the %d layers with adapters cannot be named by "
                        "a --lora-targets of %d characters; %zu are needed",
                        peft->dir, peft->n_sources, MERAK_LORA_TARGETS - 1,
                        length);
out:
    free(name);
    free(layer);
    return rc;
}

static enum merak_status find_all(struct merak_peft *peft,
                                  struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    peft->source = calloc((size_t)peft->params.n + 1, sizeof(*peft->source));
    peft->used = calloc((size_t)peft->st->n + 1, sizeof(*peft->used));
    if (peft->source == NULL || peft->used == NULL)
        return merak_fail_nomem(err,
                                (size_t)peft->params.n * sizeof(*peft->source));
    rc = sort_tensors(peft, err);
    for (int t = 0; t < peft->layout.n && rc == MERAK_OK; t++)
        rc = take_module(peft, t, err);
    if (rc == MERAK_OK)
        rc = refuse_rest(peft, err);
    if (rc == MERAK_OK)
        rc = name_targets(peft, err);
    peft->lora.lora.dropout = (float)peft->config.dropout;
    peft->lora.lora.by_root = peft->config.by_root;
    return rc;
}

static enum merak_status open_all(struct merak_peft *peft,
                                  struct merak_error *err)
{
    enum merak_status rc =
        merak_peft_config_read(peft->dir, &peft->config, err);

    if (rc == MERAK_OK)
        rc = merak_safetensors_open_file(peft->dir, MERAK_PEFT_FILE, &peft->st,
                                         err);
    if (rc == MERAK_OK)
        rc = merak_hf_params_init(&peft->params, &peft->model, NULL, err);
    if (rc == MERAK_OK)
        rc = merak_hf_layout_init(&peft->layout, &peft->model,
                                  peft->params.param, peft->params.n, false,
                                  err);
    return rc == MERAK_OK ? find_all(peft, err) : rc;
}

enum merak_status merak_peft_open(const char *dir,
                                  const struct merak_hf_config *model,
                                  struct merak_peft **peft_p,
                                  struct merak_error *err)
{
    struct merak_peft *peft = calloc(1, sizeof(*peft));
    enum merak_status rc;

    if (peft == NULL)
        return merak_fail_nomem(err, sizeof(*peft));
    peft->dir = dir;
    peft->model = *model;
    rc = open_all(peft, err);
    if (rc == MERAK_OK)
        *peft_p = peft;
    else
        merak_peft_close(peft);
    return rc;
}

void merak_peft_close(struct merak_peft *peft)
{
    if (peft == NULL)
        return;
    free(peft->source);
    free(peft->sorted);
    free(peft->used);
    merak_hf_layout_fini(&peft->layout);
    merak_hf_params_fini(&peft->params);
    merak_safetensors_close(peft->st);
    merak_peft_config_fini(&peft->config);
    free(peft);
}

const struct merak_lora *merak_peft_lora(const struct merak_peft *peft)
{
    return &peft->lora.lora;
}

int merak_peft_count(const struct merak_peft *peft)
{
    return 2 * peft->n_sources;
}

/* --- reading ---------------------------------------------------------------
 */

/* The weight that an adapter's parameter is beside, and which it is. */
static int find_weight(const struct merak_peft *peft, const char *param,
                       bool *is_b_p)
{
    for (int p = 0; p < peft->params.n; p++) {
        const struct merak_named one = {.name = param};
        const struct merak_adapter found =
            merak_adapter_of(&one, 1, peft->params.param[p].name);

        *is_b_p = found.b != NULL;
        if ((found.a != NULL || found.b != NULL) && peft->source[p].a != NULL)
            return p;
    }
    return -1;
}

bool merak_peft_has(const struct merak_peft *peft, const char *param)
{
    bool is_b;

    return find_weight(peft, param, &is_b) >= 0;
}

/* Rows of B, and of each the columns of a block. */
static enum merak_status read_b(const struct merak_peft *peft, int p,
                                float *data, struct merak_error *err)
{
    const struct merak_hf_tensor *part = &peft->layout.part[p];
    const struct source *s = &peft->source[p];
    size_t width = s->b->dim[1], first = part->first_row;
    size_t last = first + (part->rows / part->run - 1) * part->step + part->run;
    size_t n = (last - first) * width;
    float *rows = malloc(n * sizeof(*rows));
    enum merak_status rc;

    if (rows == NULL)
        return merak_fail_nomem(err, n * sizeof(*rows));
    rc = merak_safetensors_read(peft->st, s->b, first * width, n, rows, err);
    for (size_t i = 0; i < part->rows && rc == MERAK_OK; i++)
        memcpy(data + i * s->rank,
               rows + (merak_hf_tensor_row(part, i) - first) * width +
                   s->block * s->rank,
               s->rank * sizeof(*data));
    free(rows);
    return rc;
}

enum merak_status merak_peft_read(const struct merak_peft *peft,
                                  const struct merak_named *param, float *data,
                                  struct merak_error *err)
{
    bool is_b = false;
    int p = find_weight(peft, param->name, &is_b);
    const struct source *s;
    size_t n;

    if (p < 0)
        return merak_fail(err, MERAK_ERR_NOT_FOUND, "%.80s has no %.100s",
                          peft->dir, param->name);
    if (is_b)
        return read_b(peft, p, data, err);
    s = &peft->source[p];
    n = s->rank * s->a->dim[1];
    return merak_safetensors_read(peft->st, s->a, s->block * n, n, data, err);
}
