/* SPDX-License-Identifier: Apache-2.0 */
/* float_file.c - write a file of numbers */
#include "config.h"

#include "io/weights/float_file.h"

#include "base/error.h"
#include "base/half.h"
#include "base/open.h"
#include "io/file.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK ((size_t)1 << 20)

struct merak_float_file {
    char *path, *tmp;
    int fd; /* -1: closed */
    size_t used;
    unsigned char *block; /* [BLOCK] */
};

enum merak_status merak_float_file_create(const char *path,
                                          struct merak_float_file **file_p,
                                          struct merak_error *err)
{
    size_t bytes = strlen(path) + sizeof(".tmp");
    struct merak_float_file *file = calloc(1, sizeof(*file));
    enum merak_status rc;

    if (file == NULL)
        return merak_fail_nomem(err, sizeof(*file));
    file->fd = -1;
    file->path = strdup(path);
    file->tmp = malloc(bytes);
    file->block = malloc(BLOCK);
    if (file->path == NULL || file->tmp == NULL || file->block == NULL) {
        rc = merak_fail_nomem(err, BLOCK);
        goto out;
    }
    snprintf(file->tmp, bytes, "%s.tmp", path);
    if (merak_open_new(file->tmp, 0666, &file->fd) != NULL) {
        rc = merak_file_fail(err, "create", file->tmp);
        goto out;
    }
    *file_p = file;
    return MERAK_OK;
out:
    merak_float_file_destroy(file);
    return rc;
}

static enum merak_status flush(struct merak_float_file *file,
                               struct merak_error *err)
{
    enum merak_status rc =
        merak_file_write(file->fd, file->tmp, file->block, file->used, err);

    file->used = 0;
    return rc;
}

enum merak_status merak_float_file_bytes(struct merak_float_file *file,
                                         const void *data, size_t n,
                                         struct merak_error *err)
{
    enum merak_status rc = flush(file, err);

    return rc == MERAK_OK ? merak_file_write(file->fd, file->tmp, data, n, err)
                          : rc;
}

/* Does rounding make a finite number infinite? */
static bool is_lost(float x, uint16_t half, enum merak_safetensors_type type)
{
    uint16_t exponent = type == MERAK_SAFETENSORS_BF16 ? 0x7f80 : 0x7c00;

    return (half & 0x7fff) == exponent && isfinite(x);
}

/* Round n numbers to 16 bits; returns the index of the first that is lost, or
 * n. */
static size_t narrow(unsigned char *to, enum merak_safetensors_type type,
                     const float *x, size_t n)
{
    size_t first = n;

    for (size_t i = 0; i < n; i++) {
        uint16_t half = type == MERAK_SAFETENSORS_BF16 ? merak_f32_to_bf16(x[i])
                                                       : merak_f32_to_f16(x[i]);

        memcpy(to + i * sizeof(half), &half, sizeof(half));
        if (is_lost(x[i], half, type) && first == n)
            first = i;
    }
    return first;
}

enum merak_status merak_float_file_put(struct merak_float_file *file,
                                       enum merak_safetensors_type type,
                                       const float *x, size_t n,
                                       struct merak_error *err)
{
    size_t each = merak_safetensors_type_bytes(type), part;
    enum merak_status rc = MERAK_OK;

    for (size_t at = 0; at < n && rc == MERAK_OK; at += part) {
        unsigned char *to = file->block + file->used;
        size_t lost;

        part = (BLOCK - file->used) / each;
        part = n - at < part ? n - at : part;
        lost = part;
        if (each == sizeof(float))
            memcpy(to, x + at, part * each);
        else
            lost = narrow(to, type, x + at, part);
        if (lost < part)
            return merak_fail(err, MERAK_ERR_MISMATCH,
                              "element %zu is %g, which %s cannot hold",
                              at + lost, (double)x[at + lost],
                              merak_safetensors_type_name(type));
        file->used += part * each;
        if (file->used > BLOCK - sizeof(float))
            rc = flush(file, err);
    }
    return rc;
}

enum merak_status merak_float_file_commit(struct merak_float_file *file,
                                          struct merak_error *err)
{
    enum merak_status rc = flush(file, err);

    if (rc != MERAK_OK)
        return rc;
    rc = merak_file_sync_close(file->fd, file->tmp, err);
    file->fd = -1;
    if (rc == MERAK_OK && rename(file->tmp, file->path) != 0)
        rc = merak_file_fail(err, "rename", file->tmp);
    if (rc != MERAK_OK)
        return rc;
    free(file->tmp);
    file->tmp = NULL;
    return merak_file_sync_dir(file->path, err);
}

void merak_float_file_destroy(struct merak_float_file *file)
{
    if (file == NULL)
        return;
    if (file->fd >= 0)
        close(file->fd);
    if (file->tmp != NULL)
        (void)unlink(file->tmp);
    free(file->block);
    free(file->tmp);
    free(file->path);
    free(file);
}
