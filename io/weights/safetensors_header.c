/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_header.c - reading and checking the header of a safetensors file
 *
 * A file is
 *
 *   8 bytes   N, little-endian
 *   N bytes   a JSON object; spaces may follow it
 *   the rest  data
 *
 * The object has a member for each tensor, {"dtype": "F32", "shape": [2, 3],
 * "data_offsets": [0, 24]}: offsets in the data, of the first byte and after
 * the last.  The optional "__metadata__" is not a tensor but an object of
 * strings.  Tensors are row-major and little-endian, and cover the data
 * without gap or overlap.
 *
 * Nothing in a header is trusted before it is checked.
 */
#include "config.h"

#include "io/weights/safetensors_impl.h"

#include "base/error.h"
#include "base/size.h"
#include "io/file.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH_BYTES ((uint64_t)8)

/* --- types ---------------------------------------------------------------- */

static const struct {
    const char *name;
    unsigned bits;
    enum merak_safetensors_type type;
} types[] = {
    {"F32", 32, MERAK_SAFETENSORS_F32},
    {"BF16", 16, MERAK_SAFETENSORS_BF16},
    {"F16", 16, MERAK_SAFETENSORS_F16},
    {"BOOL", 8, MERAK_SAFETENSORS_OTHER},
    {"U8", 8, MERAK_SAFETENSORS_OTHER},
    {"I8", 8, MERAK_SAFETENSORS_OTHER},
    {"F8_E5M2", 8, MERAK_SAFETENSORS_OTHER},
    {"F8_E4M3", 8, MERAK_SAFETENSORS_OTHER},
    {"F8_E8M0", 8, MERAK_SAFETENSORS_OTHER},
    {"F6_E2M3", 6, MERAK_SAFETENSORS_OTHER},
    {"F6_E3M2", 6, MERAK_SAFETENSORS_OTHER},
    {"F4", 4, MERAK_SAFETENSORS_OTHER},
    {"I16", 16, MERAK_SAFETENSORS_OTHER},
    {"U16", 16, MERAK_SAFETENSORS_OTHER},
    {"I32", 32, MERAK_SAFETENSORS_OTHER},
    {"U32", 32, MERAK_SAFETENSORS_OTHER},
    {"F64", 64, MERAK_SAFETENSORS_OTHER},
    {"I64", 64, MERAK_SAFETENSORS_OTHER},
    {"U64", 64, MERAK_SAFETENSORS_OTHER},
    {"C64", 64, MERAK_SAFETENSORS_OTHER},
};

enum { N_TYPES = sizeof(types) / sizeof(types[0]) };

const char *merak_safetensors_type_name(enum merak_safetensors_type type)
{
    return type < MERAK_SAFETENSORS_OTHER ? types[type].name : "?";
}

size_t merak_safetensors_type_bytes(enum merak_safetensors_type type)
{
    return type < MERAK_SAFETENSORS_OTHER ? types[type].bits / 8 : 0;
}

/* --- a tensor's entry ----------------------------------------------------- */

/* The contents of a header's entry. */
struct entry {
    const char *dtype;
    json_t *shape, *offsets;
    unsigned bits;
};

static enum merak_status fail_entry(const char *name, const json_t *json,
                                    struct merak_error *err)
{
    char *text = json_dumps(json, JSON_ENCODE_ANY | JSON_COMPACT);

    merak_fail(err, MERAK_ERR_FORMAT,
               "tensor %.60s is %.60s, expected dtype, shape and data_offsets",
               name, text == NULL ? "?" : text);
    free(text);
    return MERAK_ERR_FORMAT;
}

static enum merak_status take_type(const char *name, struct entry *e,
                                   struct merak_safetensor *t,
                                   struct merak_error *err)
{
    for (int i = 0; i < N_TYPES; i++) {
        if (strcmp(types[i].name, e->dtype) == 0) {
            t->type = types[i].type;
            t->dtype = types[i].name;
            e->bits = types[i].bits;
            return MERAK_OK;
        }
    }
    return merak_fail(err, MERAK_ERR_FORMAT,
                      "tensor %.80s has dtype %.40s, which is unknown", name,
                      e->dtype);
}

static enum merak_status take_shape(const char *name, const struct entry *e,
                                    struct merak_safetensor *t, size_t *bits_p,
                                    struct merak_error *err)
{
    size_t n = json_array_size(e->shape);

    if (n > MERAK_SAFETENSORS_DIMS)
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "tensor %.80s has %zu dims, expected at most %d",
                          name, n, MERAK_SAFETENSORS_DIMS);
    t->ndim = (int)n;
    t->count = 1;
    for (size_t d = 0; d < n; d++) {
        const json_t *dim = json_array_get(e->shape, d);

        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return merak_fail(err, MERAK_ERR_FORMAT,
                              "tensor %.80s: dim %zu of its shape is not a "
                              "whole number",
                              name, d);
        t->dim[d] = (size_t)json_integer_value(dim);
        if (!merak_size_mul(t->count, t->dim[d], &t->count))
            t->count = SIZE_MAX;
    }
    if (t->count > SIZE_MAX / 8 || !merak_size_mul(t->count, e->bits, bits_p))
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "tensor %.80s: the product of its shape is too large",
                          name);
    return MERAK_OK;
}

static enum merak_status take_offsets(const char *name, const struct entry *e,
                                      uint64_t data_at, uint64_t data_bytes,
                                      size_t bits, struct merak_safetensor *t,
                                      struct merak_error *err)
{
    const json_t *a = json_array_get(e->offsets, 0);
    const json_t *b = json_array_get(e->offsets, 1);
    json_int_t lo = json_integer_value(a), hi = json_integer_value(b);

    if (json_array_size(e->offsets) != 2 || !json_is_integer(a) ||
        !json_is_integer(b) || lo < 0 || hi < lo)
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "tensor %.80s: data_offsets are not two ascending "
                          "whole numbers",
                          name);
    if ((uint64_t)hi > data_bytes)
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          "tensor %.80s ends at byte %lld of the data, of "
                          "which there are %llu: the file is cut short or "
                          "damaged",
                          name, (long long)hi, (unsigned long long)data_bytes);
    t->offset = data_at + (uint64_t)lo;
    t->bytes = (uint64_t)(hi - lo);
    if (bits % 8 == 0 && t->bytes == bits / 8)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CORRUPT,
                      "tensor %.80s: data_offsets [%lld, %lld] are %llu "
                      "bytes, expected %zu by shape and dtype %s",
                      name, (long long)lo, (long long)hi,
                      (unsigned long long)t->bytes, bits / 8, t->dtype);
}

static enum merak_status take_tensor(const char *name, json_t *json,
                                     uint64_t data_at, uint64_t data_bytes,
                                     struct merak_safetensor *t,
                                     struct merak_error *err)
{
    struct entry e = {.dtype = NULL};
    enum merak_status rc;
    size_t bits = 0;

    if (json_unpack(json, "{s:s, s:o, s:o}", "dtype", &e.dtype, "shape",
                    &e.shape, "data_offsets", &e.offsets) != 0 ||
        !json_is_array(e.shape) || !json_is_array(e.offsets))
        return fail_entry(name, json, err);
    t->name = name;
    rc = take_type(name, &e, t, err);
    if (rc == MERAK_OK)
        rc = take_shape(name, &e, t, &bits, err);
    if (rc == MERAK_OK)
        rc = take_offsets(name, &e, data_at, data_bytes, bits, t, err);
    return rc;
}

/* --- a file --------------------------------------------------------------- */

static int compare_places(const void *a, const void *b)
{
    const struct merak_safetensor *x = a, *y = b;
    int c = (x->offset > y->offset) - (x->offset < y->offset);

    if (c == 0)
        c = (x->bytes > y->bytes) - (x->bytes < y->bytes);
    return c == 0 ? strcmp(x->name, y->name) : c;
}

/* Check that each tensor, sorted, begins where the one before it ends. */
static enum merak_status check_places(const struct merak_safetensor *t, int n,
                                      uint64_t at, uint64_t end,
                                      struct merak_error *err)
{
    for (int i = 0; i < n; i++) {
        if (t[i].offset != at)
            return merak_fail(err, MERAK_ERR_CORRUPT,
                              "tensor %.80s begins at byte %llu of the file, "
                              "expected %llu, where %.80s",
                              t[i].name, (unsigned long long)t[i].offset,
                              (unsigned long long)at,
                              i == 0 ? "the header ends" : t[i - 1].name);
        at += t[i].bytes;
    }
    if (at == end)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CORRUPT,
                      "the tensors end at byte %llu, the file at %llu",
                      (unsigned long long)at, (unsigned long long)end);
}

static enum merak_status grow(struct merak_safetensors *st, size_t n,
                              struct merak_error *err)
{
    size_t all = (size_t)st->n + n;
    struct merak_safetensor *tensor;

    if (all > INT_MAX / 2)
        return merak_fail(err, MERAK_ERR_FORMAT, "%zu tensors are too many",
                          all);
    tensor = realloc(st->tensor, (all + 1) * sizeof(*tensor));
    if (tensor == NULL)
        return merak_fail_nomem(err, all * sizeof(*tensor));
    memset(tensor + st->n, 0, (n + 1) * sizeof(*tensor));
    st->tensor = tensor;
    return MERAK_OK;
}

static enum merak_status take_header(struct merak_safetensors *st, json_t *root,
                                     uint64_t data_at, uint64_t file_bytes,
                                     struct merak_error *err)
{
    int first = st->n;
    enum merak_status rc = grow(st, json_object_size(root), err);
    const char *name;
    json_t *json;

    if (rc != MERAK_OK)
        return rc;
    json_object_foreach(root, name, json)
    {
        struct merak_safetensor *t = &st->tensor[st->n];

        if (strcmp(name, "__metadata__") == 0)
            continue;
        t->file = st->n_files - 1;
        rc = take_tensor(name, json, data_at, file_bytes - data_at, t, err);
        if (rc != MERAK_OK)
            return rc;
        st->n++;
    }
    qsort(st->tensor + first, (size_t)(st->n - first), sizeof(*st->tensor),
          compare_places);
    return check_places(st->tensor + first, st->n - first, data_at, file_bytes,
                        err);
}

/* Read N, and check that the file has that many bytes. */
static enum merak_status read_length(const struct merak_safetensors_file *f,
                                     uint64_t file_bytes, uint64_t *n_p,
                                     struct merak_error *err)
{
    unsigned char raw[LENGTH_BYTES];
    enum merak_status rc;
    uint64_t n = 0;

    if (file_bytes < LENGTH_BYTES)
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          "it has %llu bytes, expected %llu and a header",
                          (unsigned long long)file_bytes,
                          (unsigned long long)LENGTH_BYTES);
    rc = merak_file_read(f->fd, f->name, raw, sizeof(raw), 0, err);
    if (rc != MERAK_OK)
        return rc;
    for (int i = (int)LENGTH_BYTES - 1; i >= 0; i--)
        n = n << 8 | raw[i];
    if (n > MERAK_SAFETENSORS_MOST_HEADER)
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "its header has %llu bytes, expected at most %llu: "
                          "not a safetensors file",
                          (unsigned long long)n,
                          (unsigned long long)MERAK_SAFETENSORS_MOST_HEADER);
    if (n > file_bytes - LENGTH_BYTES)
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          "its header has %llu bytes, the file only %llu: it "
                          "is cut short or damaged",
                          (unsigned long long)n,
                          (unsigned long long)file_bytes);
    *n_p = n;
    return MERAK_OK;
}

static enum merak_status read_header(struct merak_safetensors_file *f,
                                     uint64_t n, struct merak_error *err)
{
    char *text = malloc(n + 1);
    json_error_t why;
    enum merak_status rc;

    if (text == NULL)
        return merak_fail_nomem(err, n + 1);
    rc = merak_file_read(f->fd, f->name, text, n, LENGTH_BYTES, err);
    if (rc == MERAK_OK) {
        f->root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
        if (f->root == NULL)
            rc = merak_fail(err, MERAK_ERR_FORMAT,
                            "its header is not valid JSON: byte %d: %.120s",
                            why.position, why.text);
        else if (!json_is_object(f->root))
            rc = merak_fail(err, MERAK_ERR_FORMAT,
                            "its header is not a JSON object");
    }
    free(text);
    return rc;
}

enum merak_status merak_safetensors_load(struct merak_safetensors *st,
                                         struct merak_safetensors_file *f,
                                         struct merak_error *err)
{
    uint64_t bytes = 0, n = 0;
    enum merak_status rc = merak_file_open(f->path, &f->fd, &bytes, err);

    if (rc != MERAK_OK)
        return rc;
    rc = read_length(f, bytes, &n, err);
    if (rc == MERAK_OK)
        rc = read_header(f, n, err);
    if (rc == MERAK_OK)
        rc = take_header(st, f->root, LENGTH_BYTES + n, bytes, err);
    if (rc != MERAK_OK)
        merak_error_wrap(err, "%.120s", f->path);
    return rc;
}
