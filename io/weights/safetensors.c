/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.c - the safetensors files of a folder, and reading their numbers
 *
 * The format is described in safetensors_header.c and safetensors_index.c.
 * Data is read with pread: a file that shrinks is an error, where a mapping
 * would kill the process.
 */
#include "config.h"

#include "io/weights/safetensors_impl.h"

#include "base/error.h"
#include "base/half.h"
#include "base/hub.h"
#include "io/file.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum merak_status merak_safetensors_add_file(struct merak_safetensors *st,
                                             const char *dir, const char *name,
                                             struct merak_error *err)
{
    struct merak_safetensors_file *f;
    size_t bytes = strlen(dir) + strlen(name) + sizeof("/");

    f = realloc(st->file, ((size_t)st->n_files + 1) * sizeof(*f));
    if (f == NULL)
        return merak_fail_nomem(err, ((size_t)st->n_files + 1) * sizeof(*f));
    st->file = f;
    f += st->n_files;
    *f = (struct merak_safetensors_file){.fd = -1, .path = malloc(bytes)};
    if (f->path == NULL)
        return merak_fail_nomem(err, bytes);
    st->n_files++;
    snprintf(f->path, bytes, "%s/%s", dir, name);
    f->name = f->path + strlen(dir) + 1;
    return merak_safetensors_load(st, f, err);
}

/* --- a folder --------------------------------------------------------------
 */

static bool is_there(const char *dir, const char *name)
{
    char path[PATH_MAX];

    return snprintf(path, sizeof(path), "%s/%s", dir, name) < PATH_MAX &&
           access(path, F_OK) == 0;
}

bool merak_safetensors_is_one(const char *dir)
{
    char room[PATH_MAX];

    dir = merak_hub_path(dir, room);
    return is_there(dir, MERAK_SAFETENSORS_FILE) ||
           is_there(dir, MERAK_SAFETENSORS_INDEX);
}

static enum merak_status fail_absent(const char *dir, struct merak_error *err)
{
    bool pickle = is_there(dir, "pytorch_model.bin") ||
                  is_there(dir, "pytorch_model.bin.index.json");

    return merak_fail(
        err, MERAK_ERR_NOT_FOUND,
        "%.100s has neither " MERAK_SAFETENSORS_FILE
        " nor " MERAK_SAFETENSORS_INDEX "%s",
        dir,
        pickle ? "; pytorch_model.bin is not read: save_pretrained() of "
                 "transformers makes safetensors of it"
               : "");
}

enum merak_status merak_safetensors_open(const char *dir,
                                         struct merak_safetensors **st_p,
                                         struct merak_error *err)
{
    struct merak_safetensors *st = calloc(1, sizeof(*st));
    char path[PATH_MAX], room[PATH_MAX];
    enum merak_status rc;

    if (st == NULL)
        return merak_fail_nomem(err, sizeof(*st));
    dir = merak_hub_path(dir, room);
    if (is_there(dir, MERAK_SAFETENSORS_FILE)) {
        rc = merak_safetensors_add_file(st, dir, MERAK_SAFETENSORS_FILE, err);
    } else if (is_there(dir, MERAK_SAFETENSORS_INDEX)) {
        snprintf(path, sizeof(path), "%s/%s", dir, MERAK_SAFETENSORS_INDEX);
        rc = merak_safetensors_open_index(st, dir, path, err);
    } else {
        rc = fail_absent(dir, err);
    }
    if (rc == MERAK_OK)
        *st_p = st;
    else
        merak_safetensors_close(st);
    return rc;
}

enum merak_status merak_safetensors_open_file(const char *dir, const char *name,
                                              struct merak_safetensors **st_p,
                                              struct merak_error *err)
{
    struct merak_safetensors *st = calloc(1, sizeof(*st));
    enum merak_status rc;

    if (st == NULL)
        return merak_fail_nomem(err, sizeof(*st));
    rc = merak_safetensors_add_file(st, dir, name, err);
    if (rc == MERAK_OK)
        *st_p = st;
    else
        merak_safetensors_close(st);
    return rc;
}

void merak_safetensors_close(struct merak_safetensors *st)
{
    if (st == NULL)
        return;
    for (int i = 0; i < st->n_files; i++) {
        if (st->file[i].fd >= 0)
            close(st->file[i].fd);
        json_decref(st->file[i].root);
        free(st->file[i].path);
    }
    for (int i = 0; i < st->n_made; i++)
        free(st->made[i]);
    free(st->made);
    free(st->file);
    free(st->tensor);
    free(st);
}

/* --- numbers ---------------------------------------------------------------
 */

/* Widen n 16-bit numbers in the upper half of `out` in place: writes never
 * pass what is still to be read. */
static void widen(float *out, size_t n, enum merak_safetensors_type type)
{
    const char *raw = (const char *)out + n * sizeof(uint16_t);

    for (size_t i = 0; i < n; i++) {
        uint16_t half;

        memcpy(&half, raw + i * sizeof(half), sizeof(half));
        out[i] = type == MERAK_SAFETENSORS_BF16 ? merak_bf16_to_f32(half)
                                                : merak_f16_to_f32(half);
    }
}

enum merak_status merak_safetensors_read(const struct merak_safetensors *st,
                                         const struct merak_safetensor *t,
                                         size_t first, size_t n, float *out,
                                         struct merak_error *err)
{
    const struct merak_safetensors_file *f = &st->file[t->file];
    size_t each = merak_safetensors_type_bytes(t->type);
    enum merak_status rc;
    char *to = (char *)out;

    if (each == 0)
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "%.80s: tensor %.60s is of %s, expected F32, BF16 "
                          "or F16",
                          f->path, t->name, t->dtype);
    if (first > t->count || n > t->count - first)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "tensor %.80s has %zu elements, not %zu", t->name,
                          t->count, first + n);
    if (t->packed)
        return merak_safetensors_read_packed(st, t, first, n, out, err);
    if (each == sizeof(uint16_t))
        to += n * sizeof(uint16_t);
    rc = merak_file_read(f->fd, f->path, to, n * each, t->offset + first * each,
                         err);
    if (rc == MERAK_OK && each == sizeof(uint16_t))
        widen(out, n, t->type);
    return rc;
}
