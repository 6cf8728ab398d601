/* SPDX-License-Identifier: Apache-2.0 */
/* export.c - a checkpoint's weights to a folder of another format */
#include "config.h"

#include "io/weights/transfer.h"

#include "base/error.h"
#include "io/ckpt/durable.h"
#include "io/lora_record.h"
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
    return merak_hf_config_read(e->model, e->export->unknown, &e->config, err);
}

static enum merak_status get_memory(struct merak_exporting *e,
                                    struct merak_error *err)
{
    size_t most = 1;

    for (int i = 0; i < e->layout.n; i++) {
        const struct merak_hf_layout_tensor *t = &e->layout.tensor[i];
        size_t n = t->dim[0] * (t->ndim > 1 ? t->dim[1] : 1);

        most = n > most ? n : most;
    }
    e->buf = malloc(most * sizeof(*e->buf));
    return e->buf != NULL ? MERAK_OK
                          : merak_fail_nomem(err, most * sizeof(*e->buf));
}

/* Without its adapters the model would be that of before the run. */
static enum merak_status check_adapters(const struct merak_exporting *e,
                                        struct merak_error *err)
{
    struct merak_lora_record record;

    if (!merak_lora_parse(merak_ckpt_state(e->ckpt)->recipe, &record))
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                      "%.120s was trained with --lora-rank: weights with "
                      "adapters are not exported, use merak generate or eval",
                      merak_ckpt_path(e->ckpt));
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
        rc = merak_hf_params_init(&e->params, &e->config, err);
    if (rc == MERAK_OK)
        rc = merak_ckpt_has_params(e->ckpt, e->params.param, e->params.n, err);
    if (rc == MERAK_OK)
        rc = merak_hf_layout_init(&e->layout, &e->config, e->params.param,
                                  e->params.n, err);
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
    rc = open_all(e, err);
    if (rc == MERAK_OK)
        rc = make_out(export->out, err);
    if (rc == MERAK_OK) {
        rc = export->format == MERAK_EXPORT_HF
                 ? merak_export_hf(e, summary, err)
                 : merak_export_llmc(e, summary, err);
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
