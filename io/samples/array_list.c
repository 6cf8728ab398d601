/* SPDX-License-Identifier: Apache-2.0 */
/* array_list.c - an array of which each row has a file of its own
 *
 * Row i is file i in the order of their names' bytes, whatever the locale.
 * Files are opened when they are read, and some stay open.
 */
#include "config.h"

#include "io/samples/array.h"

#include "base/error.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_OPEN 64

struct merak_array_list {
    size_t n;
    char **path, *set;
    /* File i is at i % MAX_OPEN, if any is there. */
    struct opened {
        size_t file; /* n: none */
        struct merak_array array;
    } opened[MAX_OPEN];
};

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static enum merak_status find_files(struct merak_array_list *list,
                                    const char *pattern,
                                    struct merak_error *err)
{
    glob_t found = {0};
    int code = glob(pattern, GLOB_NOSORT, NULL, &found);
    enum merak_status rc = MERAK_OK;

    if (code != 0 || found.gl_pathc == 0) {
        globfree(&found);
        return merak_fail(err, MERAK_ERR_NOT_FOUND,
                          "no file is called %s: expected names that * and ? "
                          "match, such as train/*.h5",
                          pattern);
    }
    list->path = calloc(found.gl_pathc, sizeof(*list->path));
    if (list->path == NULL)
        rc = merak_fail_nomem(err, found.gl_pathc * sizeof(*list->path));
    for (size_t i = 0; i < found.gl_pathc && rc == MERAK_OK; i++) {
        list->path[i] = strdup(found.gl_pathv[i]);
        if (list->path[i] == NULL)
            rc = merak_fail_nomem(err, strlen(found.gl_pathv[i]));
        else
            list->n++;
    }
    globfree(&found);
    if (rc == MERAK_OK)
        qsort(list->path, list->n, sizeof(*list->path), by_bytes);
    return rc;
}

/* "[4,128,128,128] of i16" */
static void print_form(const struct merak_array *array, int from, char *text,
                       size_t size)
{
    size_t at = (size_t)snprintf(text, size, "[");

    for (int d = from; d < array->shape.ndim && at < size; d++)
        at += (size_t)snprintf(text + at, size - at, "%s%zu",
                               d > from ? "," : "", array->shape.dim[d]);
    if (at < size)
        snprintf(text + at, size - at, "] of %s",
                 merak_element_name(array->type));
}

/* All files are like the first. */
static enum merak_status check_like(const struct merak_array *all,
                                    const struct merak_array *one,
                                    struct merak_error *err)
{
    bool like =
        one->type == all->type && one->shape.ndim + 1 == all->shape.ndim;
    char is[128], expected[128];

    for (int d = 0; d < one->shape.ndim && like; d++)
        like = one->shape.dim[d] == all->shape.dim[d + 1];
    if (like)
        return MERAK_OK;
    print_form(one, 0, is, sizeof(is));
    print_form(all, 1, expected, sizeof(expected));
    return merak_fail(err, MERAK_ERR_MISMATCH,
                      "%s is %s, expected %s as %s is: samples are alike",
                      one->path, is, expected, all->list->path[0]);
}

static enum merak_status find_file(const struct merak_array *all, size_t i,
                                   const struct merak_array **one_p,
                                   struct merak_error *err)
{
    struct merak_array_list *list = all->list;
    struct opened *at = &list->opened[i % MAX_OPEN];
    enum merak_status rc = MERAK_OK;

    if (at->file != i) {
        if (at->file < list->n)
            merak_array_close(&at->array);
        at->file = list->n;
        rc = merak_array_open(list->path[i], list->set, &at->array, err);
        if (rc == MERAK_OK)
            at->file = i;
    }
    if (rc == MERAK_OK)
        *one_p = &at->array;
    return rc;
}

static enum merak_status open_list(struct merak_array *array, const char *set,
                                   struct merak_error *err)
{
    const struct merak_array *first = NULL;
    enum merak_status rc = find_files(array->list, array->path, err);

    if (rc != MERAK_OK)
        return rc;
    for (int i = 0; i < MAX_OPEN; i++)
        array->list->opened[i].file = array->list->n;
    array->list->set = strdup(set);
    if (array->list->set == NULL)
        return merak_fail_nomem(err, strlen(set));
    rc = find_file(array, 0, &first, err);
    if (rc != MERAK_OK)
        return rc;
    if (first->shape.ndim == MERAK_MAX_DIMS)
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "%s has %d dims, expected at most %d of a sample",
                          first->path, first->shape.ndim, MERAK_MAX_DIMS - 1);
    array->type = first->type;
    array->row = first->row * first->shape.dim[0];
    array->shape.ndim = first->shape.ndim + 1;
    array->shape.dim[0] = array->list->n;
    memcpy(array->shape.dim + 1, first->shape.dim,
           (size_t)first->shape.ndim * sizeof(*first->shape.dim));
    return MERAK_OK;
}

enum merak_status merak_array_open_list(const char *pattern, const char *set,
                                        struct merak_array *array,
                                        struct merak_error *err)
{
    enum merak_status rc;

    *array = (struct merak_array){.fd = -1,
                                  .path = strdup(pattern),
                                  .list = calloc(1, sizeof(*array->list))};
    if (array->path == NULL || array->list == NULL)
        rc = merak_fail_nomem(err, sizeof(*array->list));
    else
        rc = open_list(array, set, err);
    if (rc != MERAK_OK)
        merak_array_close(array);
    return rc;
}

enum merak_status merak_array_list_read(const struct merak_array *array,
                                        const size_t *lo, const size_t *len,
                                        merak_numbers_fn take, void *arg,
                                        struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (size_t i = lo[0]; i < lo[0] + len[0] && rc == MERAK_OK; i++) {
        const struct merak_array *one;

        rc = find_file(array, i, &one, err);
        if (rc == MERAK_OK)
            rc = check_like(array, one, err);
        if (rc == MERAK_OK)
            rc = merak_array_read_box(one, lo + 1, len + 1, take, arg, err);
    }
    return rc;
}

const struct merak_array *
merak_array_list_opened(const struct merak_array_list *list, size_t row)
{
    const struct opened *at = &list->opened[row % MAX_OPEN];

    return at->file == row ? &at->array : NULL;
}

const char *merak_array_row_path(const struct merak_array *array, size_t row)
{
    return array->list == NULL ? array->path : array->list->path[row];
}

void merak_array_list_close(struct merak_array_list *list)
{
    if (list == NULL)
        return;
    for (int i = 0; i < MAX_OPEN && list->set != NULL; i++) {
        if (list->opened[i].file < list->n)
            merak_array_close(&list->opened[i].array);
    }
    for (size_t i = 0; i < list->n; i++)
        free(list->path[i]);
    free(list->path);
    free(list->set);
    free(list);
}
