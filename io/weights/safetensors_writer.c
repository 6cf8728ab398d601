/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_writer.c - write a safetensors file, tensor by tensor
 *
 * The header is compact JSON, a tensor's members in the order dtype, shape,
 * data_offsets, padded with spaces to a multiple of 8 bytes, as in other
 * writers of the format, so that equal tensors in equal order give equal
 * files.
 */
#include "config.h"

#include "io/weights/safetensors.h"

#include "base/error.h"
#include "base/size.h"
#include "io/weights/float_file.h"

#include <stdlib.h>
#include <string.h>

struct merak_safetensors_writer {
    struct merak_float_file *file;
    struct merak_safetensors_entry *entry; /* names borrowed */
    int n, at;                             /* at: the one being written */
    size_t done;                           /* elements of it */
};

static size_t count_of(const struct merak_safetensors_entry *e)
{
    size_t n = 1;

    for (int d = 0; d < e->ndim; d++)
        n *= e->dim[d];
    return n;
}

uint64_t merak_safetensors_bytes(const struct merak_safetensors_entry *entry)
{
    return (uint64_t)count_of(entry) *
           merak_safetensors_type_bytes(entry->type);
}

static json_t *entry_json(const struct merak_safetensors_entry *e,
                          uint64_t *offset)
{
    uint64_t lo = *offset;
    json_t *shape = json_array();

    for (int d = 0; d < e->ndim; d++)
        json_array_append_new(shape, json_integer((json_int_t)e->dim[d]));
    *offset += merak_safetensors_bytes(e);
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype",
                     merak_safetensors_type_name(e->type), "shape", shape,
                     "data_offsets", (json_int_t)lo, (json_int_t)*offset);
}

/* The header's text, padded; NULL: no memory. */
static char *header_text(const struct merak_safetensors_entry *entry, int n,
                         const json_t *metadata, size_t *bytes_p)
{
    json_t *root = json_object();
    uint64_t offset = 0;
    char *text, *padded;
    size_t bytes;

    json_object_set_new(root, "__metadata__",
                        metadata != NULL ? json_deep_copy(metadata)
                                         : json_pack("{s:s}", "format", "pt"));
    for (int i = 0; i < n; i++)
        json_object_set_new(root, entry[i].name,
                            entry_json(&entry[i], &offset));
    text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    if (text == NULL)
        return NULL;
    bytes = strlen(text);
    *bytes_p = merak_size_align(bytes, 8);
    padded = realloc(text, *bytes_p + 1);
    if (padded == NULL) {
        free(text);
        return NULL;
    }
    memset(padded + bytes, ' ', *bytes_p - bytes);
    return padded;
}

static enum merak_status write_header(struct merak_safetensors_writer *w,
                                      const json_t *metadata,
                                      struct merak_error *err)
{
    unsigned char raw[8];
    size_t bytes = 0;
    char *text = header_text(w->entry, w->n, metadata, &bytes);
    enum merak_status rc;

    if (text == NULL)
        return merak_fail_nomem(err, bytes);
    for (int i = 0; i < 8; i++)
        raw[i] = (unsigned char)(bytes >> (8 * i));
    rc = merak_float_file_bytes(w->file, raw, sizeof(raw), err);
    if (rc == MERAK_OK)
        rc = merak_float_file_bytes(w->file, text, bytes, err);
    free(text);
    return rc;
}

enum merak_status merak_safetensors_create(
    const char *path, const struct merak_safetensors_entry *entry, int n,
    const json_t *metadata, struct merak_safetensors_writer **writer_p,
    struct merak_error *err)
{
    struct merak_safetensors_writer *w = calloc(1, sizeof(*w));
    size_t bytes = ((size_t)n + 1) * sizeof(*entry);
    enum merak_status rc;

    if (w == NULL)
        return merak_fail_nomem(err, sizeof(*w));
    w->n = n;
    w->entry = malloc(bytes);
    if (w->entry == NULL) {
        free(w);
        return merak_fail_nomem(err, bytes);
    }
    memcpy(w->entry, entry, (size_t)n * sizeof(*entry));
    rc = merak_float_file_create(path, &w->file, err);
    if (rc == MERAK_OK)
        rc = write_header(w, metadata, err);
    if (rc == MERAK_OK)
        *writer_p = w;
    else
        merak_safetensors_destroy(w);
    return rc;
}

/* Skip tensors that are complete. */
static void skip_done(struct merak_safetensors_writer *w)
{
    while (w->at < w->n && w->done == count_of(&w->entry[w->at])) {
        w->at++;
        w->done = 0;
    }
}

enum merak_status merak_safetensors_put(struct merak_safetensors_writer *writer,
                                        const float *x, size_t n,
                                        struct merak_error *err)
{
    const struct merak_safetensors_entry *e;
    enum merak_status rc;

    if (n == 0) /* also after the last tensor */
        return MERAK_OK;
    skip_done(writer);
    e = &writer->entry[writer->at];
    if (writer->at == writer->n || n > count_of(e) - writer->done)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "more elements than the tensor has");
    rc = merak_float_file_put(writer->file, e->type, x, n, err);
    if (rc != MERAK_OK)
        merak_error_wrap(err, "tensor %.100s", e->name);
    writer->done += n;
    return rc;
}

enum merak_status
merak_safetensors_commit(struct merak_safetensors_writer *writer,
                         struct merak_error *err)
{
    skip_done(writer);
    if (writer->at < writer->n)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "tensor %.100s is not written completely",
                          writer->entry[writer->at].name);
    return merak_float_file_commit(writer->file, err);
}

void merak_safetensors_destroy(struct merak_safetensors_writer *writer)
{
    if (writer == NULL)
        return;
    merak_float_file_destroy(writer->file);
    free(writer->entry);
    free(writer);
}
