/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.c - read safetensors files, one or several of a folder
 *
 * A file is
 *
 *   8 bytes   N, little-endian
 *   N bytes   a JSON object; spaces may follow it
 *   the rest  data
 *
 * The object has a member for each tensor, {"dtype": "F32", "shape": [2, 3],
 * "data_offsets": [0, 24]}: bytes of the data, first and behind the last.
 * "__metadata__", which may be there, is no tensor but an object of text.
 * Tensors are row-major and little-endian, and cover the data without gap or
 * overlap.
 *
 * A folder of several has an index, a JSON object whose "weight_map" tells the
 * file of each tensor, by its name in the folder.
 *
 * Nothing in a header is believed before it was checked.  Data is read with
 * pread: a file that shrinks is an error, where a mapping would kill the
 * process.
 */
#include "config.h"

#include "io/weights/safetensors.h"

#include "base/error.h"
#include "base/half.h"
#include "base/size.h"
#include "io/file.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What the format allows. */
#define MOST_HEADER ((uint64_t)100 * 1000 * 1000)
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

/* What an entry of a header says. */
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
                      "tensor %.80s has dtype %.40s, which nothing is known of",
                      name, e->dtype);
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
                              "tensor %.80s: dim %zu of its shape is no whole "
                              "number",
                              name, d);
        t->dim[d] = (size_t)json_integer_value(dim);
        if (!merak_size_mul(t->count, t->dim[d], &t->count))
            t->count = SIZE_MAX;
    }
    if (t->count > SIZE_MAX / 8 || !merak_size_mul(t->count, e->bits, bits_p))
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "tensor %.80s: the product of its shape is beyond "
                          "what there can be",
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
                          "tensor %.80s: data_offsets are no two rising whole "
                          "numbers",
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

/* Sorted, each tensor begins where the one before it ends. */
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

/* N, and whether there are so many bytes. */
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
    if (n > MOST_HEADER)
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "its header has %llu bytes, expected at most %llu: "
                          "no safetensors file",
                          (unsigned long long)n,
                          (unsigned long long)MOST_HEADER);
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
                            "its header is no valid JSON: byte %d: %.120s",
                            why.position, why.text);
        else if (!json_is_object(f->root))
            rc = merak_fail(err, MERAK_ERR_FORMAT,
                            "its header is no JSON object");
    }
    free(text);
    return rc;
}

static enum merak_status load_file(struct merak_safetensors *st,
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

static enum merak_status add_file(struct merak_safetensors *st, const char *dir,
                                  const char *name, struct merak_error *err)
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
    return load_file(st, f, err);
}

/* --- the index -------------------------------------------------------------
 */

/* A file beside the index, and no other. */
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
        if (find_file(st, file) == NULL)
            rc = add_file(st, dir, file, err);
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

/* Is each tensor of the index where it says? */
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
    if (bytes > MOST_HEADER)
        rc = merak_fail(err, MERAK_ERR_FORMAT,
                        "%.120s has %llu bytes, expected at most %llu", path,
                        (unsigned long long)bytes,
                        (unsigned long long)MOST_HEADER);
    else if ((text = malloc(bytes + 1)) == NULL)
        rc = merak_fail_nomem(err, bytes + 1);
    else
        rc = merak_file_read(fd, path, text, bytes, 0, err);
    close(fd);
    if (rc == MERAK_OK) {
        *root_p = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
        if (*root_p == NULL)
            rc = merak_fail(err, MERAK_ERR_FORMAT,
                            "%.100s is no valid JSON: line %d: %.100s", path,
                            why.line, why.text);
    }
    free(text);
    return rc;
}

static enum merak_status open_index(struct merak_safetensors *st,
                                    const char *dir, const char *path,
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
    char path[PATH_MAX];
    enum merak_status rc;

    if (st == NULL)
        return merak_fail_nomem(err, sizeof(*st));
    if (is_there(dir, MERAK_SAFETENSORS_FILE)) {
        rc = add_file(st, dir, MERAK_SAFETENSORS_FILE, err);
    } else if (is_there(dir, MERAK_SAFETENSORS_INDEX)) {
        snprintf(path, sizeof(path), "%s/%s", dir, MERAK_SAFETENSORS_INDEX);
        rc = open_index(st, dir, path, err);
    } else {
        rc = fail_absent(dir, err);
    }
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
    free(st->file);
    free(st->tensor);
    free(st);
}

/* --- numbers ---------------------------------------------------------------
 */

/* n halves in the upper half of `out` become n floats: what is written never
 * passes what is still to be read. */
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
    if (each == sizeof(uint16_t))
        to += n * sizeof(uint16_t);
    rc = merak_file_read(f->fd, f->path, to, n * each, t->offset + first * each,
                         err);
    if (rc == MERAK_OK && each == sizeof(uint16_t))
        widen(out, n, t->type);
    return rc;
}
