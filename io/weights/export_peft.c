/* SPDX-License-Identifier: Apache-2.0 */
/* export_peft.c - a checkpoint's adapters to a folder of PEFT
 *
 * adapter_model.safetensors has two matrices per module,
 *
 *   base_model.model.MODULE.lora_A.weight   [rank, in]
 *   base_model.model.MODULE.lora_B.weight   [out, rank]
 *
 * sorted by name.  Of a module that holds several of our weights (qkv_proj of
 * Phi-3) each has an adapter of its own: A has theirs below each other, and B
 * is block diagonal.  That has n times the rank, and n times alpha, in
 * rank_pattern and alpha_pattern.  The blocks of a weight without an adapter
 * are zeros.
 */
#include "config.h"

#include "io/weights/transfer_impl.h"

#include "base/error.h"
#include "io/ckpt/durable.h"
#include "io/weights/adapters.h"
#include "io/weights/peft_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HUB "models--"

struct module {
    char name[2 * MERAK_HF_NAME_BYTES]; /* with the family's prefix */
    size_t rows, cols;                  /* out and in */
    int n_parts;
    bool chosen;
};

struct peft {
    struct merak_exporting *e;
    struct module *module; /* one per tensor of the layout */
    struct merak_adaptable *layer;
    int *order; /* the chosen modules by name */
    int n_chosen;
    bool in_out;       /* weights are stored as [in, out] */
    float *buf, *part; /* room for a tensor, and for one part of it */
    size_t most;       /* elements of each */
};

static size_t rank_of(const struct peft *peft, const struct module *m)
{
    return peft->e->lora.lora.rank * (size_t)m->n_parts;
}

/* --- which modules ----------------------------------------------------------
 */

static struct merak_adapter adapter_of(const struct merak_exporting *e, int p)
{
    return merak_adapter_of(e->params.whole, e->params.n_whole,
                            e->params.param[p].name);
}

/* Has no module adapters that PEFT would not take? */
static enum merak_status check_modules(const struct peft *peft,
                                       struct merak_error *err)
{
    const struct merak_exporting *e = peft->e;

    for (int t = 0; t < e->layout.n; t++) {
        if (peft->module[t].chosen &&
            merak_hf_tensor_is_unadapted(&e->config, e->layout.tensor[t].name))
            return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                              "--format peft: PEFT has no adapters for %.100s "
                              "of %s: train without (--lora-targets), or give "
                              "--format hf --merge",
                              peft->module[t].name,
                              merak_hf_family_class(e->config.family));
    }
    return MERAK_OK;
}

static void find_modules(struct peft *peft)
{
    struct merak_exporting *e = peft->e;

    for (int t = 0; t < e->layout.n; t++) {
        const char *base = e->layout.tensor[t].name;
        struct module *m = &peft->module[t];

        snprintf(m->name, sizeof(m->name), "%s%.*s",
                 merak_hf_tensor_prefix(&e->config, base),
                 (int)(strrchr(base, '.') - base), base);
    }
    for (int p = 0; p < e->params.n; p++) {
        struct module *m = &peft->module[e->layout.tensor_of[p]];

        m->rows = e->layout.part[p].of_rows;
        m->cols = e->layout.part[p].cols;
        m->n_parts++;
        if (adapter_of(e, p).a == NULL)
            continue;
        m->chosen = true;
        peft->in_out = e->layout.part[p].transposed;
    }
    for (int t = 0; t < e->layout.n; t++) {
        /* a bias is no module of its own */
        peft->layer[t] = (struct merak_adaptable){
            e->layout.tensor[t].ndim == 2 ? peft->module[t].name : "",
            peft->module[t].chosen};
        if (peft->module[t].chosen)
            peft->order[peft->n_chosen++] = t;
    }
}

static void sort_by_name(struct peft *peft)
{
    for (int i = 1; i < peft->n_chosen; i++) {
        int t = peft->order[i], k = i;

        for (; k > 0 && strcmp(peft->module[peft->order[k - 1]].name,
                               peft->module[t].name) > 0;
             k--)
            peft->order[k] = peft->order[k - 1];
        peft->order[k] = t;
    }
}

static enum merak_status get_memory(struct peft *peft, struct merak_error *err)
{
    const struct merak_exporting *e = peft->e;
    size_t n = (size_t)e->layout.n + 1;

    peft->module = calloc(n, sizeof(*peft->module));
    peft->layer = calloc(n, sizeof(*peft->layer));
    peft->order = calloc(n, sizeof(*peft->order));
    if (peft->module == NULL || peft->layer == NULL || peft->order == NULL)
        return merak_fail_nomem(err, n * sizeof(*peft->module));
    find_modules(peft);
    sort_by_name(peft);
    for (int i = 0; i < peft->n_chosen; i++) {
        const struct module *m = &peft->module[peft->order[i]];
        size_t wide = m->rows > m->cols ? m->rows : m->cols;

        if (wide * rank_of(peft, m) > peft->most)
            peft->most = wide * rank_of(peft, m);
    }
    peft->buf = malloc((peft->most + 1) * sizeof(*peft->buf));
    peft->part = malloc((peft->most + 1) * sizeof(*peft->part));
    return peft->buf != NULL && peft->part != NULL
               ? MERAK_OK
               : merak_fail_nomem(err, peft->most * sizeof(*peft->buf));
}

/* --- tensors ----------------------------------------------------------------
 */

/* Part `k` of a module's A: rows of it. */
static enum merak_status read_a(struct peft *peft, int p, size_t k,
                                struct merak_error *err)
{
    struct merak_exporting *e = peft->e;
    size_t n = e->lora.lora.rank * e->layout.part[p].cols;

    return merak_ckpt_read_param(e->ckpt, adapter_of(e, p).a, peft->buf + k * n,
                                 err);
}

/* Part `k` of a module's B: a block of its rows, and of all columns. */
static enum merak_status read_b(struct peft *peft, int p, size_t k,
                                size_t width, struct merak_error *err)
{
    struct merak_exporting *e = peft->e;
    const struct merak_hf_tensor *part = &e->layout.part[p];
    size_t r = e->lora.lora.rank;
    enum merak_status rc =
        merak_ckpt_read_param(e->ckpt, adapter_of(e, p).b, peft->part, err);

    for (size_t i = 0; i < part->rows && rc == MERAK_OK; i++)
        memcpy(peft->buf + merak_hf_tensor_row(part, i) * width + k * r,
               peft->part + i * r, r * sizeof(*peft->buf));
    return rc;
}

static enum merak_status write_tensor(struct peft *peft, int t, bool is_b,
                                      const struct merak_safetensors_entry *to,
                                      struct merak_safetensors_writer *w,
                                      struct merak_error *err)
{
    struct merak_exporting *e = peft->e;
    size_t n = to->dim[0] * to->dim[1], k = 0;
    enum merak_status rc = MERAK_OK;

    memset(peft->buf, 0, n * sizeof(*peft->buf));
    for (int p = 0; p < e->params.n && rc == MERAK_OK; p++) {
        if (e->layout.tensor_of[p] != t)
            continue;
        if (adapter_of(e, p).a != NULL)
            rc = is_b ? read_b(peft, p, k, to->dim[1], err)
                      : read_a(peft, p, k, err);
        k++;
    }
    if (rc == MERAK_OK)
        rc = merak_safetensors_put(w, peft->buf, n, err);
    return rc == MERAK_OK
               ? merak_exporting_tell(e, merak_safetensors_bytes(to), err)
               : rc;
}

static enum merak_status write_entries(struct peft *peft,
                                       struct merak_safetensors_entry *entry,
                                       struct merak_error *err)
{
    struct merak_safetensors_writer *w = NULL;
    char path[PATH_MAX];
    enum merak_status rc;

    for (int i = 0; i < 2 * peft->n_chosen; i++)
        peft->e->all += merak_safetensors_bytes(&entry[i]);
    rc = merak_safetensors_create(
        merak_path(path, peft->e->export->out, MERAK_PEFT_FILE), entry,
        2 * peft->n_chosen, NULL, &w, err);
    for (int i = 0; i < 2 * peft->n_chosen && rc == MERAK_OK; i++)
        rc = write_tensor(peft, peft->order[i / 2], i % 2 == 1, &entry[i], w,
                          err);
    if (rc == MERAK_OK)
        rc = merak_safetensors_commit(w, err);
    merak_safetensors_destroy(w);
    return rc;
}

static enum merak_status write_tensors(struct peft *peft,
                                       struct merak_error *err)
{
    size_t n = 2 * (size_t)peft->n_chosen + 1;
    struct merak_safetensors_entry *entry = calloc(n, sizeof(*entry));
    char(*name)[sizeof(MERAK_PEFT_PREFIX) + sizeof(peft->module->name) + 16] =
        calloc(n, sizeof(*name));
    bool typed = peft->e->export->typed;
    enum merak_status rc = MERAK_OK;

    if (entry == NULL || name == NULL)
        rc = merak_fail_nomem(err, n * sizeof(*name));
    for (size_t i = 0; rc == MERAK_OK && i < n - 1; i++) {
        const struct module *m = &peft->module[peft->order[i / 2]];

        snprintf(name[i], sizeof(*name), MERAK_PEFT_PREFIX "%s.lora_%c.weight",
                 m->name, i % 2 == 0 ? 'A' : 'B');
        entry[i] = (struct merak_safetensors_entry){
            .name = name[i],
            .type = typed ? peft->e->export->type : MERAK_SAFETENSORS_F32,
            .ndim = 2,
            .dim = {m->rows, m->cols}};
        entry[i].dim[i % 2] = rank_of(peft, m);
    }
    if (rc == MERAK_OK)
        rc = write_entries(peft, entry, err);
    free(name);
    free(entry);
    return rc;
}

/* --- adapter_config.json ----------------------------------------------------
 */

/* Where the base model is: its name, if it is in a cache of the hub, which is
 * CACHE/models--ORG--NAME/snapshots/COMMIT. */
static void name_base(const char *from, char *base, size_t bytes)
{
    const char *hub = strstr(from, HUB), *end;
    char *between;

    snprintf(base, bytes, "%s", from);
    end = hub != NULL ? strstr(hub, "/snapshots/") : NULL;
    if (end == NULL || (hub != from && hub[-1] != '/'))
        return;
    hub += strlen(HUB);
    snprintf(base, bytes, "%.*s", (int)(end - hub), hub);
    between = strstr(base, "--");
    if (between == NULL)
        return;
    *between = '/';
    memmove(between + 1, between + 2, strlen(between + 2) + 1);
}

static void put_patterns(const struct peft *peft,
                         const struct merak_peft_config *config, json_t *root)
{
    for (int i = 0; i < peft->n_chosen; i++) {
        const struct module *m = &peft->module[peft->order[i]];
        size_t n = (size_t)m->n_parts;

        if (n > 1)
            merak_peft_config_pattern(
                root, strrchr(m->name, '.') + 1, rank_of(peft, m),
                merak_peft_blocks_alpha(config, n) * config->alpha);
    }
}

static enum merak_status write_config(const struct peft *peft,
                                      struct merak_error *err)
{
    const struct merak_exporting *e = peft->e;
    size_t bytes = merak_adaptable_print(peft->layer, e->layout.n, NULL, 0) + 1;
    char base[MERAK_CKPT_ORIGIN], *targets = malloc(bytes);
    struct merak_peft_config config = {.rank = e->lora.lora.rank,
                                       .alpha = (double)e->lora.lora.alpha,
                                       .dropout = e->lora.lora.dropout,
                                       .by_root = e->lora.lora.by_root,
                                       .base = base};
    enum merak_status rc;
    json_t *root;

    if (targets == NULL)
        return merak_fail_nomem(err, bytes);
    (void)merak_adaptable_print(peft->layer, e->layout.n, targets, bytes);
    name_base(merak_ckpt_state(e->ckpt)->init_from, base, sizeof(base));
    if (base[0] == '\0')
        config.base = NULL;
    root = merak_peft_config_make(&config, targets, peft->in_out);
    put_patterns(peft, &config, root);
    rc = merak_exporting_json(
        e, MERAK_PEFT_CONFIG, root,
        JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(7), err);
    json_decref(root);
    free(targets);
    return rc;
}

/* --- all of it --------------------------------------------------------------
 */

enum merak_status merak_export_peft(struct merak_exporting *e,
                                    struct merak_transfer_summary *summary,
                                    struct merak_error *err)
{
    struct peft peft = {.e = e};
    enum merak_status rc = get_memory(&peft, err);

    if (rc == MERAK_OK)
        rc = check_modules(&peft, err);
    if (rc == MERAK_OK)
        rc = write_tensors(&peft, err);
    if (rc == MERAK_OK)
        rc = write_config(&peft, err);
    if (rc == MERAK_OK)
        rc = merak_dir_sync(e->export->out, err);
    if (rc == MERAK_OK)
        *summary = (struct merak_transfer_summary){
            .family = merak_hf_family_name(e->config.family),
            .tensors = 2 * peft.n_chosen,
            .files = 1,
            .bytes = e->all};
    free(peft.part);
    free(peft.buf);
    free(peft.order);
    free(peft.layer);
    free(peft.module);
    return rc;
}
