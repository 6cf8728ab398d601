/* SPDX-License-Identifier: Apache-2.0 */
/* export.c - a checkpoint's weights to a folder of another format */
#include "config.h"

#include "io/weights/transfer.h"

#include "base/error.h"
#include "base/log.h"
#include "io/ckpt/durable.h"
#include "io/weights/adapters.h"
#include "io/weights/run_model.h"
#include "io/weights/transfer_impl.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum merak_status merak_exporting_tell(struct merak_exporting *e,
                                       uint64_t bytes, struct merak_error *err)
{
    e->done += bytes;
    return e->export->progress == NULL
               ? MERAK_OK
               : e->export->progress(e->export->arg, e->done, e->all, err);
}

enum merak_status merak_exporting_json(const struct merak_exporting *e,
                                       const char *name, const json_t *root,
                                       size_t flags, struct merak_error *err)
{
    char *text = root == NULL ? NULL : json_dumps(root, flags);
    char path[PATH_MAX];
    size_t n;
    enum merak_status rc;

    if (text == NULL)
        return merak_fail_nomem(err, 0);
    n = strlen(text);
    text[n] = '\n'; /* instead of the null byte */
    rc = merak_durable_write(merak_path(path, e->export->out, name), text,
                             n + 1, err);
    free(text);
    return rc;
}

static enum merak_status merge(struct merak_exporting *e, int p,
                               const struct merak_adapter *adapter, float *data,
                               struct merak_error *err)
{
    const struct merak_hf_tensor *part = &e->layout.part[p];
    size_t r = e->lora.lora.rank, n = r * (part->rows + part->cols);
    float *a = malloc((n + 1) * sizeof(*a)), *b;
    enum merak_status rc;

    if (a == NULL)
        return merak_fail_nomem(err, n * sizeof(*a));
    b = a + r * part->cols;
    rc = merak_ckpt_read_param(e->ckpt, adapter->a, a, err);
    if (rc == MERAK_OK)
        rc = merak_ckpt_read_param(e->ckpt, adapter->b, b, err);
    if (rc == MERAK_OK)
        rc = merak_adapter_merge(&e->lora.lora, part->rows, part->cols, a, b,
                                 data, err);
    free(a);
    return rc;
}

enum merak_status merak_exporting_read(struct merak_exporting *e, int p,
                                       float *data, struct merak_error *err)
{
    const struct merak_named *param = &e->params.param[p];
    const struct merak_adapter adapter =
        merak_adapter_of(e->params.whole, e->params.n_whole, param->name);
    enum merak_status rc = merak_ckpt_read_param(e->ckpt, param, data, err);

    return rc == MERAK_OK && adapter.a != NULL && adapter.b != NULL
               ? merge(e, p, &adapter, data, err)
               : rc;
}

/* Read a parameter, or matrix `at` of a stacked one, which has no adapters. */
static enum merak_status read_rows(struct merak_exporting *e, int p, size_t at,
                                   float *rows, struct merak_error *err)
{
    return e->layout.part[p].stacked
               ? merak_ckpt_read_first(e->ckpt, &e->params.param[p], at, 1,
                                       rows, err)
               : merak_exporting_read(e, p, rows, err);
}

/* Read parameter p, or the one of its experts that tensor t, or its matrix
 * `at`, has, into its rows of the tensor in the buffer. */
static enum merak_status read_part(struct merak_exporting *e, int p, int t,
                                   size_t at, struct merak_error *err)
{
    const struct merak_hf_tensor *part = &e->layout.part[p];
    size_t cols = part->cols;
    enum merak_status rc;
    float *rows;

    if (part->each)
        return merak_ckpt_read_first(e->ckpt, &e->params.param[p],
                                     (size_t)(t - e->layout.tensor_of[p]), 1,
                                     e->buf, err);
    if (merak_hf_tensor_is_run(part))
        return read_rows(e, p, at, e->buf + part->first_row * cols, err);
    rows = malloc(part->rows * cols * sizeof(*rows));
    if (rows == NULL)
        return merak_fail_nomem(err, part->rows * cols * sizeof(*rows));
    rc = read_rows(e, p, at, rows, err);
    for (size_t i = 0; i < part->rows && rc == MERAK_OK; i++)
        memcpy(e->buf + merak_hf_tensor_row(part, i) * cols, rows + i * cols,
               cols * sizeof(*rows));
    free(rows);
    return rc;
}

enum merak_status merak_exporting_tensor(struct merak_exporting *e, int t,
                                         size_t at, struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (int p = 0; p < e->params.n && rc == MERAK_OK; p++) {
        if (merak_hf_layout_is_in(&e->layout, p, t))
            rc = read_part(e, p, t, at, err);
    }
    return rc;
}

/* The run's directory is the one that contains the checkpoint. */
static void name_run(struct merak_exporting *e)
{
    char *slash;

    snprintf(e->run_dir, sizeof(e->run_dir), "%s", merak_ckpt_path(e->ckpt));
    slash = strrchr(e->run_dir, '/');
    if (slash == NULL)
        strcpy(e->run_dir, ".");
    else
        slash[slash == e->run_dir] = '\0';
}

/* A checkpoint may be given with a trailing slash, "step-N/". */
static enum merak_status open_ckpt(struct merak_exporting *e,
                                   struct merak_error *err)
{
    char path[PATH_MAX];
    size_t n = strlen(e->export->ckpt);
    enum merak_status rc;

    if (n >= MERAK_DIR_MAX || strlen(e->export->out) >= MERAK_DIR_MAX)
        return merak_fail(err, MERAK_ERR_PARAM, "path too long");
    strcpy(path, e->export->ckpt);
    while (n > 1 && path[n - 1] == '/')
        path[--n] = '\0';
    rc = merak_ckpt_open(path, &e->ckpt, err);
    if (rc == MERAK_OK)
        name_run(e);
    return rc;
}

static enum merak_status find_config(struct merak_exporting *e,
                                     struct merak_error *err)
{
    char path[PATH_MAX];
    enum merak_status rc;

    if (e->export->model != NULL)
        snprintf(e->model, sizeof(e->model), "%s", e->export->model);
    else
        merak_path(e->model, e->run_dir, MERAK_RUN_MODEL);
    if (e->export->model == NULL &&
        access(merak_path(path, e->model, "config.json"), F_OK) != 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%.120s does not exist: give the config.json of the "
                          "run with --model DIR",
                          path);
    rc = merak_hf_config_read(e->model, e->export->unknown, &e->config, err);
    if (rc == MERAK_OK && e->config.note[0] != '\0')
        merak_info("io", "%s", e->config.note);
    return rc;
}

static enum merak_status get_memory(struct merak_exporting *e,
                                    struct merak_error *err)
{
    size_t most = 1;

    for (int i = 0; i < e->layout.n; i++) {
        const struct merak_hf_layout_tensor *t = &e->layout.tensor[i];
        const size_t *dim = t->dim + (t->ndim > 2); /* of one matrix */
        size_t n = dim[0] * (t->ndim > 1 ? dim[1] : 1);

        most = n > most ? n : most;
    }
    e->buf = malloc(most * sizeof(*e->buf));
    return e->buf != NULL ? MERAK_OK
                          : merak_fail_nomem(err, most * sizeof(*e->buf));
}

/* In the order of enum merak_export_format. */
static const struct {
    const char *name;
    bool adapters; /* writes adapters, and not weights */
    bool blocks;   /* has q8_0 */
    enum merak_status (*write)(struct merak_exporting *e,
                               struct merak_transfer_summary *summary,
                               struct merak_error *err);
} format[] = {
    {.name = "hf", .write = merak_export_hf},
    {.name = "llmc", .write = merak_export_llmc},
    {.name = "peft", .adapters = true, .write = merak_export_peft},
    {.name = "gguf", .blocks = true, .write = merak_export_gguf},
};

/* Without its adapters the model would be that of before the run. */
static enum merak_status check_adapters(struct merak_exporting *e,
                                        struct merak_error *err)
{
    const struct merak_export *export = e->export;
    bool has = merak_lora_parse(merak_ckpt_state(e->ckpt)->recipe, &e->lora);
    bool alone = format[export->format].adapters;

    if (alone && export->merge)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--merge: --format %s has adapters without the "
                          "weights; give --format hf, or no --merge",
                          format[export->format].name);
    if (!has && (alone || export->merge))
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%.120s has no adapters, and %s%s is for those of "
                          "--lora-rank; give --format hf alone",
                          merak_ckpt_path(e->ckpt),
                          alone ? "--format " : "--merge",
                          alone ? format[export->format].name : "");
    if (has && !alone && !export->merge)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "%.120s was trained with --lora-rank: give --merge "
                          "for weights with its adapters in them, or --format "
                          "peft for the adapters",
                          merak_ckpt_path(e->ckpt));
    return MERAK_OK;
}

static enum merak_status open_all(struct merak_exporting *e,
                                  struct merak_error *err)
{
    enum merak_status rc = open_ckpt(e, err);

    if (rc == MERAK_OK)
        rc = check_adapters(e, err);
    if (rc == MERAK_OK)
        rc = find_config(e, err);
    if (rc == MERAK_OK)
        rc = merak_hf_params_init(&e->params, &e->config, &e->lora.lora, err);
    if (rc == MERAK_OK)
        rc = merak_ckpt_has_params(e->ckpt, e->params.whole, e->params.n_whole,
                                   err);
    if (rc == MERAK_OK)
        rc = merak_hf_layout_init(&e->layout, &e->config, e->params.param,
                                  e->params.n, false, err);
    return rc == MERAK_OK ? get_memory(e, err) : rc;
}

/* Make the folder, or check that it is empty. */
static enum merak_status make_out(const char *out, struct merak_error *err)
{
    enum merak_status rc = merak_dir_make(out, err);
    struct dirent *entry;
    DIR *dir;

    if (rc != MERAK_OK)
        return rc;
    dir = opendir(out);
    while (dir != NULL && rc == MERAK_OK && (entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            rc = merak_fail(err, MERAK_ERR_CONFIG,
                            "%.100s is not empty, it has %.60s: give --out a "
                            "name that does not exist yet",
                            out, entry->d_name);
    }
    if (dir != NULL)
        closedir(dir);
    return rc;
}

enum merak_status merak_weights_export(const struct merak_export *export,
                                       struct merak_transfer_summary *summary,
                                       struct merak_error *err)
{
    struct merak_exporting *e = calloc(1, sizeof(*e));
    enum merak_status rc;

    if (e == NULL)
        return merak_fail_nomem(err, sizeof(*e));
    e->export = export;
    rc = export->blocks && !format[export->format].blocks
             ? merak_fail(err, MERAK_ERR_CONFIG,
                          "--dtype q8_0 is of --format gguf, not %s",
                          format[export->format].name)
             : open_all(e, err);
    if (rc == MERAK_OK)
        rc = make_out(export->out, err);
    if (rc == MERAK_OK) {
        rc = format[export->format].write(e, summary, err);
        if (rc != MERAK_OK) /* everything in it was made here */
            (void)merak_dir_remove(export->out, NULL);
    }
    free(e->buf);
    merak_hf_layout_fini(&e->layout);
    merak_hf_params_fini(&e->params);
    merak_ckpt_close(e->ckpt);
    free(e);
    return rc;
}
