/* SPDX-License-Identifier: Apache-2.0 */
/* run_model.c - RUN/model: the files that make a checkpoint a model folder
 *
 * A folder of small files next to a run's checkpoints:
 *
 *   config.json            of the run's model, as given by --model
 *   tokenizer.json ..      as they are in the model's folder
 *   weights.json           of an import: how tensors were stored, so that
 *                          an export can write the same files
 *   model.safetensors.index.json
 *                          of an import of several files, unchanged
 *
 * weights.json is one object:
 *   format "merak-weights", version 1
 *   from     the folder, as given
 *   files    [ { file, metadata (of the safetensors header, may be absent),
 *                tensors [ [ NAME, DTYPE ] ] in the order of their data } ]
 */
#include "config.h"

#include "io/weights/run_model.h"

#include "base/error.h"
#include "base/hub.h"
#include "io/ckpt/durable.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORD_FORMAT "merak-weights"
#define RECORD_VERSION 1

/* Files that transformers and similar libraries read besides config.json. */
static const char *const tokenizer_files[] = {
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "spiece.model",
    "tekken.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
};

enum { N_FILES = sizeof(tokenizer_files) / sizeof(tokenizer_files[0]) };

/* --- files ------------------------------------------------------------------
 */

/* By a temporary name, so that readers find the old file or the new one. */
static enum merak_status replace(const char *path, const char *text,
                                 size_t bytes, struct merak_error *err)
{
    char tmp[PATH_MAX + 8];
    enum merak_status rc;

    snprintf(tmp, sizeof(tmp), "%s.tmp", path);
    rc = merak_durable_write(tmp, text, bytes, err);
    if (rc == MERAK_OK && rename(tmp, path) != 0)
        rc = merak_fail(err, MERAK_ERR_IO, "cannot rename %.120s: %s", tmp,
                        strerror(errno));
    return rc;
}

/* Does the file have exactly these contents? */
static bool holds(const char *path, const char *text, size_t bytes)
{
    size_t n = 0;
    char *old = NULL;
    bool same = merak_durable_read(path, &old, &n, NULL) == MERAK_OK &&
                n == bytes && memcmp(old, text, n) == 0;

    free(old);
    return same;
}

static enum merak_status copy_file(const char *from, const char *to,
                                   struct merak_error *err)
{
    size_t bytes = 0;
    char *text = NULL;
    enum merak_status rc = merak_durable_read(from, &text, &bytes, err);

    if (rc == MERAK_OK && !holds(to, text, bytes))
        rc = replace(to, text, bytes, err);
    free(text);
    return rc;
}

enum merak_status merak_run_model_copy(const char *from, const char *to,
                                       const char *name, bool missing_ok,
                                       struct merak_error *err)
{
    char a[PATH_MAX], b[PATH_MAX], room[PATH_MAX];

    merak_path(a, merak_hub_path(from, room), name);
    if (missing_ok && access(a, F_OK) != 0)
        return MERAK_OK;
    return copy_file(a, merak_path(b, to, name), err);
}

enum merak_status merak_run_model_copy_tokenizer(const char *from,
                                                 const char *to,
                                                 struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < N_FILES && rc == MERAK_OK; i++)
        rc = merak_run_model_copy(from, to, tokenizer_files[i], true, err);
    return rc;
}

enum merak_status merak_run_model_record(const char *run_dir, const char *model,
                                         struct merak_error *err)
{
    char dir[PATH_MAX], from[PATH_MAX], to[PATH_MAX], room[PATH_MAX];
    struct stat st;
    enum merak_status rc;

    model = merak_hub_path(model, room);
    rc = merak_hf_path(model, "config.json", from, sizeof(from), err);
    if (rc == MERAK_OK)
        rc = merak_dir_make(merak_path(dir, run_dir, MERAK_RUN_MODEL), err);
    /* Whoever may write to a run's folder could point the link at one of the
     * user's own. */
    if (rc == MERAK_OK && lstat(dir, &st) == 0 && S_ISLNK(st.st_mode))
        rc = merak_fail(err, MERAK_ERR_CONFIG,
                        "%.150s is a link: a run writes into a folder of its "
                        "own, remove the link",
                        dir);
    if (rc == MERAK_OK)
        rc = copy_file(from, merak_path(to, dir, "config.json"), err);
    if (rc == MERAK_OK && stat(model, &st) == 0 && S_ISDIR(st.st_mode))
        rc = merak_run_model_copy_tokenizer(model, dir, err);
    if (rc == MERAK_OK)
        rc = merak_dir_sync(dir, err);
    return rc;
}

/* --- weights.json ------------------------------------------------------------
 */

static json_t *file_json(const struct merak_hf_weights *weights, int file)
{
    const struct merak_safetensors *st = merak_hf_weights_files(weights);
    json_t *metadata = json_object_get(st->file[file].root, "__metadata__");
    json_t *tensors = json_array();
    json_t *json = json_pack("{s:s, s:o}", "file", st->file[file].name,
                             "tensors", tensors);

    if (json_is_object(metadata))
        json_object_set(json, "metadata", metadata);
    for (int i = 0; json != NULL && i < st->n; i++) {
        const struct merak_safetensor *t = &st->tensor[i];

        if (t->file == file && merak_hf_weights_has(weights, t))
            json_array_append_new(tensors,
                                  json_pack("[s, s]", t->name, t->dtype));
    }
    return json;
}

enum merak_status
merak_run_model_put_weights(const char *run_dir, const char *from,
                            const struct merak_hf_weights *weights,
                            struct merak_error *err)
{
    const struct merak_safetensors *st = merak_hf_weights_files(weights);
    char dir[PATH_MAX], path[PATH_MAX];
    json_t *files = json_array();
    json_t *root =
        json_pack("{s:s, s:i, s:s, s:o}", "format", RECORD_FORMAT, "version",
                  RECORD_VERSION, "from", from, "files", files);
    char *text = NULL;
    enum merak_status rc = MERAK_OK;

    for (int i = 0; root != NULL && i < st->n_files; i++)
        json_array_append_new(files, file_json(weights, i));
    if (root != NULL)
        text = json_dumps(root, JSON_INDENT(1));
    json_decref(root);
    if (text == NULL)
        return merak_fail_nomem(err, 0);
    merak_path(dir, run_dir, MERAK_RUN_MODEL);
    rc =
        replace(merak_path(path, dir, "weights.json"), text, strlen(text), err);
    free(text);
    if (rc == MERAK_OK && st->indexed)
        rc = merak_run_model_copy(from, dir, MERAK_SAFETENSORS_INDEX, false,
                                  err);
    return rc == MERAK_OK ? merak_dir_sync(dir, err) : rc;
}

static bool is_tensor(const json_t *json)
{
    return json_array_size(json) == 2 &&
           json_is_string(json_array_get(json, 0)) &&
           json_is_string(json_array_get(json, 1));
}

static bool is_file(const json_t *json)
{
    const char *name = json_string_value(json_object_get(json, "file"));
    const json_t *tensors = json_object_get(json, "tensors"), *one;
    size_t i;

    if (name == NULL || *name == '\0' || *name == '.' ||
        strchr(name, '/') != NULL || strlen(name) > 255 ||
        !json_is_array(tensors))
        return false;
    json_array_foreach(tensors, i, one)
    {
        if (!is_tensor(one))
            return false;
    }
    return true;
}

static bool is_sound(const json_t *root)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    const json_t *files = json_object_get(root, "files"), *one;
    size_t i;

    if (format == NULL || strcmp(format, RECORD_FORMAT) != 0 ||
        json_integer_value(json_object_get(root, "version")) !=
            RECORD_VERSION ||
        json_array_size(files) == 0)
        return false;
    json_array_foreach(files, i, one)
    {
        if (!is_file(one))
            return false;
    }
    return true;
}

enum merak_status merak_run_model_get_weights(const char *run_dir,
                                              json_t **root_p,
                                              struct merak_error *err)
{
    char dir[PATH_MAX], path[PATH_MAX];
    size_t bytes = 0;
    char *text = NULL;
    json_t *root;
    enum merak_status rc;

    merak_path(dir, run_dir, MERAK_RUN_MODEL);
    merak_path(path, dir, "weights.json");
    *root_p = NULL;
    if (access(path, F_OK) != 0)
        return MERAK_OK;
    rc = merak_durable_read(path, &text, &bytes, err);
    if (rc != MERAK_OK)
        return rc;
    root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    free(text);
    if (is_sound(root)) {
        *root_p = root;
        return MERAK_OK;
    }
    json_decref(root);
    return merak_fail(err, MERAK_ERR_CORRUPT,
                      "%.120s is damaged; without it tensors are stored as "
                      "if they were not imported",
                      path);
}
