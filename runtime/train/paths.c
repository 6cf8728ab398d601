/* SPDX-License-Identifier: Apache-2.0 */
/* paths.c - are the files there that a run is to read, and can those be made
 * that it is to write, before it searches for a plan or describes its model?
 */
#include "config.h"

#include "runtime/train/trainer.h"

#include "base/error.h"
#include "base/hub.h"
#include "base/output.h"
#include "io/tokens/spec.h"
#include "io/tokens/token_file.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static enum merak_status check_data(const char *text, struct merak_error *err)
{
    struct merak_data_spec spec = {.n = 0};
    enum merak_status rc = merak_data_spec_parse(text, &spec, err);

    for (size_t i = 0; i < spec.n && rc == MERAK_OK; i++) {
        struct merak_token_file *files;
        size_t n;

        rc = merak_token_files_open(spec.path[i], &files, &n, err);
        if (rc == MERAK_OK)
            merak_token_files_close(files, n);
    }
    merak_data_spec_fini(&spec);
    return rc;
}

static enum merak_status check_there(const char *option, const char *path,
                                     const char *expected,
                                     struct merak_error *err)
{
    char room[PATH_MAX];

    if (path == NULL || access(merak_hub_path(path, room), R_OK) == 0)
        return MERAK_OK;
    if (errno == ENOENT)
        return merak_fail_no_weights(err, option, path, expected);
    return merak_fail(err, MERAK_ERR_NOT_FOUND, "%s %.100s: %m; give %s",
                      option, path, expected);
}

/* Is it --ckpt's directory or above it?  Those are made by the run. */
static bool is_made(const char *folder, const char *ckpt)
{
    size_t n = strlen(folder);

    return ckpt != NULL && strncmp(ckpt, folder, n) == 0 &&
           (ckpt[n] == '/' || ckpt[n] == '\0');
}

/* The folder of a file that will be made. */
static enum merak_status check_folder(const char *option, const char *path,
                                      const char *ckpt, struct merak_error *err)
{
    char copy[PATH_MAX];
    const char *folder;

    if (path == NULL || strlen(path) >= sizeof(copy))
        return MERAK_OK;
    snprintf(copy, sizeof(copy), "%s", path);
    folder = dirname(copy);
    return access(folder, F_OK) != 0 && is_made(folder, ckpt)
               ? MERAK_OK
               : merak_output_check(option, path, err);
}

enum merak_status merak_paths_check(const struct merak_trainer *t,
                                    struct merak_error *err)
{
    const struct merak_train_options *o = &t->opt;
    enum merak_status rc;

    if (t->boot->rank != 0)
        return MERAK_OK;
    rc = merak_data_is_arrays(o->data.files)
             ? check_there("--data", o->data.files,
                           "token files, or FILE.json with files for a "
                           "model's inputs",
                           err)
             : check_data(o->data.files, err);
    if (rc == MERAK_OK)
        rc = check_there("--init-from", o->ckpt.init_from,
                         "a Hugging Face folder, a run or one of its "
                         "checkpoints",
                         err);
    if (rc == MERAK_OK)
        rc = merak_output_folder_check("--ckpt", o->ckpt.dir, err);
    if (rc == MERAK_OK)
        rc = merak_output_folder_check("--trace", o->output.trace, err);
    if (rc == MERAK_OK)
        rc = merak_output_folder_check("--dump-grads", o->output.dump_grads,
                                       err);
    if (rc == MERAK_OK)
        rc = check_folder("--metrics", o->output.metrics, o->ckpt.dir, err);
    if (rc == MERAK_OK && o->output.tensorboard != NULL &&
        strcmp(o->output.tensorboard, "yes") != 0)
        rc = merak_output_folder_check("--tensorboard", o->output.tensorboard,
                                       err);
    return rc == MERAK_OK ? check_folder("--openmetrics", o->output.openmetrics,
                                         o->ckpt.dir, err)
                          : rc;
}
