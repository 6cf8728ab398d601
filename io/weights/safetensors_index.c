/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_index.c - the index of a folder of several safetensors files
 *
 * It is a JSON object whose "weight_map" has the file name of each tensor.
 * Every tensor must be in exactly one file, the one in the index.
 */
#include "config.h"

#include "io/weights/safetensors_impl.h"

#include "base/error.h"
#include "base/hub.h"
#include "io/file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The file must be in the index's folder. */
static bool is_file_name(const char *name)
{
    return *name != '\0' && *name != '.' && strlen(name) < 256 &&
           strchr(name, '/') == NULL;
}

static const struct merak_safetensors_file *
find_file(const struct merak_safetensors *st, const char *name)
{
    for (int i = 0; i < st->n_files; i++) {
        if (strcmp(st->file[i].name, name) == 0)
            return &st->file[i];
    }
    return NULL;
}

/* A download that was ended, for example: a link to nothing, or no file. */
static enum merak_status check_present(const char *dir, const char *file,
                                       struct merak_error *err)
{
    char path[PATH_MAX], load[256];

    if (snprintf(path, sizeof(path), "%s/%s", dir, file) >= PATH_MAX ||
        access(path, F_OK) == 0 || errno != ENOENT)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_NOT_FOUND,
                      "%.100s lacks %.80s, which " MERAK_SAFETENSORS_INDEX
                      " names: the model is not there as a whole; %s goes on "
                      "with the download",
                      dir, file, merak_hub_download(dir, load, sizeof(load)));
}

static enum merak_status add_files(struct merak_safetensors *st,
                                   const char *dir, json_t *map,
                                   struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;
    const char *tensor;
    json_t *json;

    json_object_foreach(map, tensor, json)
    {
        const char *file = json_string_value(json);

        if (file == NULL || !is_file_name(file))
            return merak_fail(err, MERAK_ERR_FORMAT,
                              "%.60s/" MERAK_SAFETENSORS_INDEX
                              ": tensor %.60s is in \"%.60s\", expected a "
                              "file of the folder",
                              dir, tensor, file == NULL ? "" : file);
        if (find_file(st, file) == NULL) {
            rc = check_present(dir, file, err);
            if (rc == MERAK_OK)
                rc = merak_safetensors_add_file(st, dir, file, err);
        }
        if (rc != MERAK_OK)
            return rc;
    }
    return MERAK_OK;
}

static int compare_names(const void *a, const void *b)
{
    const struct merak_safetensor *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

static int compare_name(const void *key, const void *entry)
{
    const struct merak_safetensor *const *y = entry;

    return strcmp(key, (*y)->name);
}

/* Is each tensor of the index in its file? */
static enum merak_status check_map(const struct merak_safetensors *st,
                                   const struct merak_safetensor **sorted,
                                   const char *dir, json_t *map,
                                   struct merak_error *err)
{
    const char *name;
    json_t *json;

    json_object_foreach(map, name, json)
    {
        const struct merak_safetensor **t =
            bsearch(name, sorted, (size_t)st->n, sizeof(*sorted), compare_name);

        if (t == NULL ||
            strcmp(st->file[(*t)->file].name, json_string_value(json)) != 0)
            return merak_fail(err, MERAK_ERR_CORRUPT,
                              "%.60s/" MERAK_SAFETENSORS_INDEX
                              ": tensor %.60s is not in %.60s",
                              dir, name, json_string_value(json));
    }
    return MERAK_OK;
}

static enum merak_status check_names(const struct merak_safetensors *st,
                                     const char *dir, json_t *map,
                                     struct merak_error *err)
{
    const struct merak_safetensor **sorted =
        calloc((size_t)st->n + 1, sizeof(*sorted));
    enum merak_status rc = MERAK_OK;

    if (sorted == NULL)
        return merak_fail_nomem(err, (size_t)st->n * sizeof(*sorted));
    for (int i = 0; i < st->n; i++)
        sorted[i] = &st->tensor[i];
    qsort(sorted, (size_t)st->n, sizeof(*sorted), compare_names);
    for (int i = 1; i < st->n && rc == MERAK_OK; i++) {
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            rc = merak_fail(err, MERAK_ERR_CORRUPT,
                            "%.60s: tensor %.60s is in %.40s and in %.40s", dir,
                            sorted[i]->name, st->file[sorted[i - 1]->file].name,
                            st->file[sorted[i]->file].name);
    }
    if (rc == MERAK_OK)
        rc = check_map(st, sorted, dir, map, err);
    free(sorted);
    return rc;
}

/* The index's JSON. */
static enum merak_status load_index(const char *path, json_t **root_p,
                                    struct merak_error *err)
{
    uint64_t bytes = 0;
    char *text = NULL;
    json_error_t why;
    int fd = -1;
    enum merak_status rc = merak_file_open(path, &fd, &bytes, err);

    if (rc != MERAK_OK)
        return rc;
    if (bytes > MERAK_SAFETENSORS_MOST_HEADER)
        rc = merak_fail(err, MERAK_ERR_FORMAT,
                        "%.120s has %llu bytes, expected at most %llu", path,
                        (unsigned long long)bytes,
                        (unsigned long long)MERAK_SAFETENSORS_MOST_HEADER);
    else
        text = malloc(bytes + 1);
    if (rc == MERAK_OK && text == NULL)
        rc = merak_fail_nomem(err, bytes + 1);
    if (rc == MERAK_OK)
        rc = merak_file_read(fd, path, text, bytes, 0, err);
    close(fd);
    if (rc == MERAK_OK) {
        *root_p = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
        if (*root_p == NULL)
            rc = merak_fail(err, MERAK_ERR_FORMAT,
                            "%.100s is not valid JSON: line %d: %.100s", path,
                            why.line, why.text);
    }
    free(text);
    return rc;
}

enum merak_status merak_safetensors_open_index(struct merak_safetensors *st,
                                               const char *dir,
                                               const char *path,
                                               struct merak_error *err)
{
    json_t *root = NULL, *map;
    enum merak_status rc = load_index(path, &root, err);

    if (rc != MERAK_OK)
        return rc;
    st->indexed = true;
    map = json_object_get(root, "weight_map");
    if (!json_is_object(map) || json_object_size(map) == 0)
        rc = merak_fail(err, MERAK_ERR_FORMAT,
                        "%.120s has no weight_map: a file for each tensor",
                        path);
    if (rc == MERAK_OK)
        rc = add_files(st, dir, map, err);
    if (rc == MERAK_OK)
        rc = check_names(st, dir, map, err);
    json_decref(root);
    return rc;
}
