/* SPDX-License-Identifier: Apache-2.0 */
/* sources.c - which file an input is read of, and whether it fits */
#include "config.h"

#include "io/samples/sample_set_impl.h"

#include "base/error.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- FILE.json -------------------------------------------------------------
 */

static const struct merak_wish *
find_wish(const struct merak_samples_options *opt, const char *name)
{
    for (int i = 0; i < opt->n_wishes; i++) {
        if (strcmp(opt->wish[i].name, name) == 0)
            return &opt->wish[i];
    }
    return NULL;
}

/* Names that nothing reads are mistakes more often than not. */
static enum merak_status check_names(const struct merak_samples_options *opt,
                                     json_t *root, struct merak_error *err)
{
    const char *name;
    json_t *value;

    json_object_foreach(root, name, value)
    {
        if (find_wish(opt, name) == NULL)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "%s: the model has no input \"%.60s\": its first "
                              "is \"%s\"; take the name out",
                              opt->path, name, opt->wish[0].name);
    }
    for (int i = 0; i < opt->n_wishes; i++) {
        if (json_object_get(root, opt->wish[i].name) == NULL)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "%s has no file for input \"%s\" of the model: "
                              "expected \"%s\": \"PATH\"",
                              opt->path, opt->wish[i].name, opt->wish[i].name);
    }
    return MERAK_OK;
}

/* A number of a source, or what it is by default. */
static bool read_number(json_t *object, const char *key, double *x)
{
    json_t *value = json_object_get(object, key);

    if (value == NULL)
        return true;
    *x = json_number_value(value);
    return json_is_number(value) && isfinite(*x);
}

static bool knows_keys(json_t *object)
{
    static const char *const keys[] = {"file",  "files", "dataset",
                                       "scale", "shift", "axes"};
    size_t known = 0;

    for (size_t k = 0; k < sizeof(keys) / sizeof(*keys); k++)
        known += json_object_get(object, keys[k]) != NULL;
    return known == json_object_size(object);
}

/* A text that an object may have; false: it is something else. */
static bool read_text(json_t *object, const char *key, const char **text)
{
    json_t *value = json_object_get(object, key);

    if (value == NULL)
        return true;
    *text = json_string_value(value);
    return *text != NULL;
}

/* One of "file" and "files" is the name. */
static bool read_names(json_t *entry, struct samples_source *s,
                       const char **file, const char **set, const char **axes)
{
    const char *files = NULL;

    *file = json_string_value(entry);
    *set = s->name;
    *axes = NULL;
    s->scale = 1;
    if (*file != NULL)
        return true;
    if (!json_is_object(entry) || !knows_keys(entry) ||
        !read_text(entry, "file", file) || !read_text(entry, "files", &files) ||
        !read_text(entry, "dataset", set) || !read_text(entry, "axes", axes) ||
        !read_number(entry, "scale", &s->scale) ||
        !read_number(entry, "shift", &s->shift) ||
        (*file == NULL) == (files == NULL))
        return false;
    s->each = files != NULL;
    if (s->each)
        *file = files;
    return true;
}

static enum merak_status read_entry(const char *path, json_t *entry,
                                    struct samples_source *s,
                                    struct merak_error *err)
{
    const char *file, *set, *axes;

    if (!read_names(entry, s, &file, &set, &axes))
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%s: \"%s\": expected a path, or an object with "
                          "\"file\" or \"files\", and if need be "
                          "\"dataset\", \"axes\", \"scale\" and \"shift\"",
                          path, s->name);
    s->file = strdup(file);
    s->set = strdup(set);
    s->axes = axes == NULL ? NULL : strdup(axes);
    return s->file == NULL || s->set == NULL ||
                   (axes != NULL && s->axes == NULL)
               ? merak_fail_nomem(err, 1)
               : MERAK_OK;
}

/* --- files -----------------------------------------------------------------
 */

/* A file's name is relative to the folder of FILE.json, of which no character
 * is a pattern's if that name is one. */
static char *beside(const char *path, const char *file, bool pattern)
{
    const char *slash = strrchr(path, '/');
    size_t folder =
        slash == NULL || file[0] == '/' ? 0 : (size_t)(slash - path) + 1;
    char *joined = malloc(2 * folder + strlen(file) + 1), *at = joined;

    if (joined == NULL)
        return NULL;
    for (size_t i = 0; i < folder; i++) {
        if (pattern && strchr("*?[\\", path[i]) != NULL)
            *at++ = '\\';
        *at++ = path[i];
    }
    strcpy(at, file);
    return joined;
}

/* "[60000,28,28]" */
static void print_dims(const size_t *dim, int n, char *text, size_t size)
{
    size_t at = (size_t)snprintf(text, size, "[");

    for (int d = 0; d < n && at < size; d++)
        at += (size_t)snprintf(text + at, size - at, "%s%zu", d > 0 ? "," : "",
                               dim[d]);
    if (at < size)
        snprintf(text + at, size - at, "]");
}

/* The same dims, but for those of extent 1: images of one channel are [28,28]
 * in most files. */
static bool match_dims(struct samples_source *s)
{
    const struct merak_shape *file = &s->array.shape, *sample = &s->shape;
    int f = 1, d = 0;

    for (;;) {
        for (; f < file->ndim && file->dim[f] == 1; f++)
            s->dim_of[f] = -1;
        while (d < sample->ndim && sample->dim[d] == 1)
            d++;
        if (f == file->ndim || d == sample->ndim)
            return f == file->ndim && d == sample->ndim;
        s->dim_of[f] = (int8_t)d;
        if (file->dim[f++] != sample->dim[d++])
            return false;
    }
}

/* The sample's dim with a letter; of those without one, which any other letter
 * stands for, the first that is not taken; or -1. */
static int dim_with(const struct samples_source *s, char letter,
                    const bool *taken)
{
    bool named = strchr("btszyx", letter) != NULL;

    for (int d = 0; d < s->shape.ndim; d++) {
        if (!taken[d] && s->letter[d] == (named ? letter : 0))
            return d;
    }
    return -1;
}

/* Dims by "axes"; the model's others have extent 1. */
static bool match_axes(struct samples_source *s)
{
    const struct merak_shape *file = &s->array.shape;
    bool taken[MERAK_MAX_DIMS] = {false};

    if (strlen(s->axes) + 1 != (size_t)file->ndim)
        return false;
    for (int f = 1; f < file->ndim; f++) {
        int d = dim_with(s, s->axes[f - 1], taken);

        if (d < 0 || file->dim[f] != s->shape.dim[d])
            return false;
        taken[d] = true;
        s->dim_of[f] = (int8_t)d;
    }
    for (int d = 0; d < s->shape.ndim; d++) {
        if (!taken[d] && s->shape.dim[d] != 1)
            return false;
    }
    return true;
}

/* "zyxc" */
static void print_letters(const struct samples_source *s, char *text)
{
    for (int d = 0; d < s->shape.ndim; d++)
        *text++ = s->letter[d] == 0 ? 'c' : s->letter[d];
    *text = '\0';
}

static enum merak_status check_dims(struct samples_source *s,
                                    struct merak_error *err)
{
    const struct merak_shape *file = &s->array.shape;
    char has[128], wants[128], letters[MERAK_MAX_DIMS + 1];

    if (s->axes == NULL ? match_dims(s) : match_axes(s))
        return MERAK_OK;
    print_dims(file->dim + 1, file->ndim - 1, has, sizeof(has));
    print_dims(s->shape.dim, s->shape.ndim, wants, sizeof(wants));
    if (s->axes == NULL)
        return merak_fail(err, MERAK_ERR_MISMATCH,
                          "input %s: a sample of %s is %s, and the model "
                          "expects %s",
                          s->name, s->array.path, has, wants);
    print_letters(s, letters);
    return merak_fail(err, MERAK_ERR_MISMATCH,
                      "input %s: a sample of %s is %s with axes \"%s\", and the "
                      "model expects %s, \"%s\": expected these letters in the "
                      "file's order",
                      s->name, s->array.path, has, s->axes, wants, letters);
}

static enum merak_status check_fit(struct samples_source *s,
                                   struct merak_error *err)
{
    bool whole = s->dtype == MERAK_I32;
    enum merak_status rc = check_dims(s, err);

    if (rc != MERAK_OK)
        return rc;
    if (whole && (merak_element_is_float(s->array.type) || s->scale != 1 ||
                  s->shift != 0))
        return merak_fail(err, MERAK_ERR_MISMATCH,
                          "input %s: %s has %s%s, and the model expects i32, "
                          "whole numbers as they are",
                          s->name, s->array.path,
                          merak_element_name(s->array.type),
                          s->scale != 1 || s->shift != 0 ? ", scaled" : "");
    return MERAK_OK;
}

static enum merak_status open_source(const struct merak_samples_options *opt,
                                     const struct merak_wish *wish,
                                     json_t *entry, struct samples_source *s,
                                     struct merak_error *err)
{
    enum merak_status rc;
    char *path;

    s->dtype = wish->dtype;
    s->shape = wish->shape;
    s->classes = wish->classes;
    memcpy(s->letter, wish->letter, sizeof(s->letter));
    s->array.fd = -1;
    s->name = strdup(wish->name);
    if (s->name == NULL)
        return merak_fail_nomem(err, strlen(wish->name));
    rc = read_entry(opt->path, entry, s, err);
    if (rc != MERAK_OK)
        return rc;
    path = beside(opt->path, s->file, s->each);
    if (path == NULL)
        return merak_fail_nomem(err, strlen(s->file));
    rc = s->each ? merak_array_open_list(path, s->set, &s->array, err)
                 : merak_array_open(path, s->set, &s->array, err);
    free(path);
    return rc == MERAK_OK ? check_fit(s, err) : rc;
}

enum merak_status samples_sources_open(const struct merak_samples_options *opt,
                                       struct samples_source *source,
                                       struct merak_error *err)
{
    json_error_t why;
    json_t *root = json_load_file(opt->path, JSON_REJECT_DUPLICATES, &why);
    enum merak_status rc = MERAK_OK;

    if (!json_is_object(root))
        rc = merak_fail(err, MERAK_ERR_CONFIG,
                        "%s: expected a JSON object with a file for each input "
                        "of the model%s%s",
                        opt->path, root == NULL ? ": " : "",
                        root == NULL ? why.text : "");
    if (rc == MERAK_OK)
        rc = check_names(opt, root, err);
    for (int i = 0; i < opt->n_wishes && rc == MERAK_OK; i++)
        rc = open_source(opt, &opt->wish[i],
                         json_object_get(root, opt->wish[i].name), &source[i],
                         err);
    for (int i = 1; i < opt->n_wishes && rc == MERAK_OK; i++) {
        const struct merak_array *a = &source[0].array, *b = &source[i].array;

        if (a->shape.dim[0] != b->shape.dim[0])
            rc = merak_fail(err, MERAK_ERR_MISMATCH,
                            "%s has %zu samples and %s has %zu: expected as "
                            "many",
                            a->path, a->shape.dim[0], b->path, b->shape.dim[0]);
    }
    json_decref(root);
    return rc;
}

void samples_source_close(struct samples_source *source)
{
    merak_array_close(&source->array);
    free(source->counted);
    free(source->name);
    free(source->file);
    free(source->set);
    free(source->axes);
}
