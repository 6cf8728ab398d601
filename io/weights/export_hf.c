/* SPDX-License-Identifier: Apache-2.0 */
/* export_hf.c - a checkpoint's weights to a Hugging Face folder
 *
 * Imported weights are exported exactly as they were, bytewise: names, types,
 * files and their order (RUN/model/weights.json).  Else files are as
 * transformers writes them: tensors in model order, split into files by size,
 * sorted by name in a file.  So are those of experts that were stacked, each
 * expert in tensors of its own, of the stack's type: that is what others read,
 * and needs no memory for all experts of a layer.
 *
 * config.json is written last: a folder without one is not a model.
 */
#include "config.h"

#include "io/weights/transfer_impl.h"

#include "base/error.h"
#include "base/hub.h"
#include "io/ckpt/durable.h"
#include "io/weights/run_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHARD_BYTES ((uint64_t)5 * 1000 * 1000 * 1000)
#define SLICE ((size_t)4096) /* elements that are transposed at a time */

struct out_tensor {
    char name[MERAK_HF_NAME_BYTES + 16];
    int tensor; /* of the layout */
    enum merak_safetensors_type type;
};

struct out_file {
    char name[256];
    int first, n;           /* in the list of tensors */
    const json_t *metadata; /* NULL: the default */
};

struct hf {
    struct merak_exporting *e;
    json_t *record; /* of an import, or NULL */
    bool as_it_was; /* files are as in the record */
    bool packed;    /* those that were imported were in MXFP4 */
    struct out_tensor *tensor;
    int n; /* the layout's */
    struct out_file *file;
    int n_files;
};

/* --- what is written -------------------------------------------------------
 */

static struct merak_safetensors_entry entry_of(const struct hf *hf, int i)
{
    const struct out_tensor *t = &hf->tensor[i];
    const struct merak_hf_layout_tensor *l = &hf->e->layout.tensor[t->tensor];

    return (struct merak_safetensors_entry){.name = t->name,
                                            .type = t->type,
                                            .ndim = l->ndim,
                                            .dim = {l->dim[0], l->dim[1],
                                                    l->dim[2]}};
}

static uint64_t bytes_of(const struct hf *hf, int i)
{
    const struct merak_safetensors_entry entry = entry_of(hf, i);

    return merak_safetensors_bytes(&entry);
}

static void list_as_described(struct hf *hf)
{
    const struct merak_exporting *e = hf->e;

    for (int i = 0; i < e->layout.n; i++) {
        struct out_tensor *t = &hf->tensor[hf->n++];
        const char *base = e->layout.tensor[i].name;

        snprintf(t->name, sizeof(t->name), "%s%s",
                 merak_hf_tensor_prefix(&e->config, base), base);
        t->tensor = i;
        t->type = e->export->type;
        if (!e->export->typed)
            t->type = MERAK_SAFETENSORS_F32;
    }
}

static enum merak_safetensors_type type_named(const char *name)
{
    enum merak_safetensors_type type = MERAK_SAFETENSORS_F32;

    while (type < MERAK_SAFETENSORS_OTHER &&
           strcmp(name, merak_safetensors_type_name(type)) != 0)
        type++;
    return type;
}

/* Take one [NAME, DTYPE] of the record; false if the model has no such
 * tensor. */
static bool take_recorded(struct hf *hf, const json_t *json)
{
    const struct merak_exporting *e = hf->e;
    const char *name = json_string_value(json_array_get(json, 0));
    struct out_tensor *t = &hf->tensor[hf->n];

    if (hf->n == e->layout.n || strlen(name) >= sizeof(t->name))
        return false;
    strcpy(t->name, name);
    t->tensor = merak_hf_layout_find(&e->layout,
                                     merak_hf_tensor_base(&e->config, name));
    t->type = e->export->typed
                  ? e->export->type
                  : type_named(json_string_value(json_array_get(json, 1)));
    for (int i = 0; i < hf->n; i++) {
        if (hf->tensor[i].tensor == t->tensor)
            return false;
    }
    hf->n++;
    return t->tensor >= 0 && t->type != MERAK_SAFETENSORS_OTHER;
}

static bool list_recorded(struct hf *hf)
{
    const json_t *files = json_object_get(hf->record, "files"), *file, *one;
    size_t i, k;

    json_array_foreach(files, i, file)
    {
        struct out_file *f = &hf->file[hf->n_files++];

        snprintf(f->name, sizeof(f->name), "%s",
                 json_string_value(json_object_get(file, "file")));
        f->metadata = json_object_get(file, "metadata");
        f->first = hf->n;
        json_array_foreach(json_object_get(file, "tensors"), k, one)
        {
            if (!take_recorded(hf, one))
                return false;
        }
        f->n = hf->n - f->first;
    }
    return hf->n == hf->e->layout.n;
}

/* The types by the names of the record; false if it has stacked experts. */
static bool list_types(const struct hf *hf, json_t *types)
{
    const json_t *files = json_object_get(hf->record, "files"), *file, *one;
    bool stacked = false;
    size_t i, k;

    json_array_foreach(files, i, file)
    {
        json_array_foreach(json_object_get(file, "tensors"), k, one)
        {
            const char *base = merak_hf_tensor_base(
                &hf->e->config, json_string_value(json_array_get(one, 0)));

            json_object_set(types, base, json_array_get(one, 1));
            stacked |= merak_hf_tensor_is_stacked(&hf->e->config, base);
        }
    }
    return stacked;
}

/* Give each tensor the type that the record has for the stacked one. */
static enum merak_status take_types(struct hf *hf, const json_t *types,
                                    bool *are_p, struct merak_error *err)
{
    const struct merak_exporting *e = hf->e;
    struct merak_hf_layout from;
    enum merak_status rc = merak_hf_layout_init(
        &from, &e->config, e->params.param, e->params.n, true, err);

    *are_p = rc == MERAK_OK;
    for (int p = 0; p < e->params.n && *are_p; p++) {
        const char *word = json_string_value(
            json_object_get(types, from.tensor[from.tensor_of[p]].name));

        *are_p = word != NULL && type_named(word) != MERAK_SAFETENSORS_OTHER;
        for (int t = 0; t < hf->n && *are_p && !e->export->typed; t++) {
            if (merak_hf_layout_is_in(&e->layout, p, t))
                hf->tensor[t].type = type_named(word);
        }
    }
    if (rc == MERAK_OK)
        merak_hf_layout_fini(&from);
    return rc;
}

/* List what the record has; *is_p: it is of this model. */
static enum merak_status list_imported(struct hf *hf, bool *is_p,
                                       struct merak_error *err)
{
    json_t *types = json_object();
    enum merak_status rc = MERAK_OK;

    /* what was packed is not written so */
    if (list_types(hf, types) || hf->packed) {
        hf->as_it_was = false;
        list_as_described(hf);
        rc = take_types(hf, types, is_p, err);
    } else {
        *is_p = list_recorded(hf);
    }
    json_decref(types);
    return rc;
}

/* Split into files with the default names, tensors in order. */
static void cut_files(struct hf *hf)
{
    uint64_t most = hf->e->export->shard_bytes, bytes = 0;
    struct out_file *f = hf->file;

    if (most == 0)
        most = SHARD_BYTES;
    hf->n_files = 1;
    *f = (struct out_file){.first = 0};
    for (int i = 0; i < hf->n; i++) {
        if (f->n > 0 && bytes + bytes_of(hf, i) > most) {
            f = &hf->file[hf->n_files++];
            *f = (struct out_file){.first = i};
            bytes = 0;
        }
        f->n++;
        bytes += bytes_of(hf, i);
    }
    for (int i = 0; i < hf->n_files && hf->n_files > 1; i++)
        snprintf(hf->file[i].name, sizeof(hf->file[i].name),
                 "model-%05d-of-%05d.safetensors", i + 1, hf->n_files);
    if (hf->n_files == 1)
        strcpy(hf->file[0].name, MERAK_SAFETENSORS_FILE);
}

/* In a file the widest types come first, then names. */
static int compare_tensors(const void *a, const void *b)
{
    const struct out_tensor *x = a, *y = b;
    size_t m = merak_safetensors_type_bytes(x->type);
    size_t n = merak_safetensors_type_bytes(y->type);

    return m != n ? (m < n) - (m > n) : strcmp(x->name, y->name);
}

static enum merak_status make_lists(struct hf *hf, struct merak_error *err)
{
    size_t n = (size_t)hf->e->layout.n + 1;
    size_t files = json_array_size(json_object_get(hf->record, "files"));

    enum merak_status rc = MERAK_OK;
    bool is = true;

    hf->as_it_was = hf->record != NULL && hf->e->export->shard_bytes == 0;
    hf->tensor = calloc(n, sizeof(*hf->tensor));
    hf->file = calloc(n > files ? n : files, sizeof(*hf->file));
    if (hf->tensor == NULL || hf->file == NULL)
        return merak_fail_nomem(err, n * sizeof(*hf->file));
    if (hf->record == NULL)
        list_as_described(hf);
    else
        rc = list_imported(hf, &is, err);
    if (rc == MERAK_OK && !is)
        return merak_fail(err, MERAK_ERR_MISMATCH,
                          "%.100s/" MERAK_RUN_MODEL
                          "/weights.json is of another model than its "
                          "config.json",
                          hf->e->run_dir);
    if (rc != MERAK_OK || hf->as_it_was)
        return rc;
    cut_files(hf);
    for (int i = 0; i < hf->n_files; i++)
        qsort(hf->tensor + hf->file[i].first, (size_t)hf->file[i].n,
              sizeof(*hf->tensor), compare_tensors);
    return MERAK_OK;
}

/* --- tensors -----------------------------------------------------------------
 */

/* Write the matrix in buf by columns. */
static enum merak_status put_transposed(struct merak_safetensors_writer *w,
                                        const float *buf, size_t rows,
                                        size_t cols, struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;
    float slice[SLICE];
    size_t n = 0;

    for (size_t c = 0; c < cols; c++) {
        for (size_t r = 0; r < rows && rc == MERAK_OK; r++) {
            slice[n++] = buf[r * cols + c];
            if (n == SLICE) {
                rc = merak_safetensors_put(w, slice, n, err);
                n = 0;
            }
        }
    }
    return rc == MERAK_OK ? merak_safetensors_put(w, slice, n, err) : rc;
}

/* A tensor, or matrix `at` of a stacked one. */
static enum merak_status write_matrix(struct merak_exporting *e, int tensor,
                                      size_t at,
                                      const struct merak_hf_tensor *part,
                                      struct merak_safetensors_writer *w,
                                      struct merak_error *err)
{
    enum merak_status rc = merak_exporting_tensor(e, tensor, at, err);

    if (rc != MERAK_OK)
        return rc;
    return part->transposed
               ? put_transposed(w, e->buf, part->of_rows, part->cols, err)
               : merak_safetensors_put(w, e->buf, part->of_rows * part->cols,
                                       err);
}

static enum merak_status write_tensor(struct hf *hf, int i,
                                      struct merak_safetensors_writer *w,
                                      struct merak_error *err)
{
    struct merak_exporting *e = hf->e;
    const struct merak_hf_tensor *part = NULL;
    enum merak_status rc = MERAK_OK;

    for (int p = 0; part == NULL; p++) {
        if (merak_hf_layout_is_in(&e->layout, p, hf->tensor[i].tensor))
            part = &e->layout.part[p];
    }
    for (size_t at = 0; at < part->stack && rc == MERAK_OK; at++)
        rc = write_matrix(e, hf->tensor[i].tensor, at, part, w, err);
    return rc == MERAK_OK ? merak_exporting_tell(e, bytes_of(hf, i), err) : rc;
}

static enum merak_status write_file(struct hf *hf, const struct out_file *f,
                                    struct merak_error *err)
{
    struct merak_safetensors_entry *entry =
        calloc((size_t)f->n + 1, sizeof(*entry));
    struct merak_safetensors_writer *w = NULL;
    char path[PATH_MAX];
    enum merak_status rc;

    if (entry == NULL)
        return merak_fail_nomem(err, (size_t)f->n * sizeof(*entry));
    for (int i = 0; i < f->n; i++)
        entry[i] = entry_of(hf, f->first + i);
    rc = merak_safetensors_create(merak_path(path, hf->e->export->out, f->name),
                                  entry, f->n, f->metadata, &w, err);
    for (int i = 0; i < f->n && rc == MERAK_OK; i++)
        rc = write_tensor(hf, f->first + i, w, err);
    if (rc == MERAK_OK)
        rc = merak_safetensors_commit(w, err);
    merak_safetensors_destroy(w);
    free(entry);
    return rc;
}

/* --- the index
 * ---------------------------------------------------------------- */

static json_t *make_index(const struct hf *hf)
{
    json_t *map = json_object();
    uint64_t bytes = 0, elements = 0;

    for (int i = 0; i < hf->n_files; i++) {
        const struct out_file *f = &hf->file[i];

        for (int k = f->first; k < f->first + f->n; k++) {
            json_object_set_new(map, hf->tensor[k].name, json_string(f->name));
            bytes += bytes_of(hf, k);
            elements += bytes_of(hf, k) /
                        merak_safetensors_type_bytes(hf->tensor[k].type);
        }
    }
    return json_pack("{s:{s:I, s:I}, s:o}", "metadata", "total_parameters",
                     (json_int_t)elements, "total_size", (json_int_t)bytes,
                     "weight_map", map);
}

static enum merak_status write_index(const struct hf *hf,
                                     struct merak_error *err)
{
    const struct merak_export *export = hf->e->export;
    char dir[PATH_MAX], path[PATH_MAX];
    enum merak_status rc;
    json_t *root;

    merak_path(dir, hf->e->run_dir, MERAK_RUN_MODEL);
    merak_path(path, dir, MERAK_SAFETENSORS_INDEX);
    if (hf->as_it_was && !export->typed && access(path, F_OK) == 0)
        return merak_run_model_copy(dir, export->out, MERAK_SAFETENSORS_INDEX,
                                    false, err);
    if (hf->n_files == 1 &&
        strcmp(hf->file[0].name, MERAK_SAFETENSORS_FILE) == 0)
        return MERAK_OK;
    root = make_index(hf);
    rc = merak_exporting_json(hf->e, MERAK_SAFETENSORS_INDEX, root,
                              JSON_INDENT(2) | JSON_SORT_KEYS, err);
    json_decref(root);
    return rc;
}

/* --- config.json
 * --------------------------------------------------------------- */

/* transformers' name of the type of most numbers. */
static const char *type_word(const struct hf *hf)
{
    static const char *const words[] = {"float32", "bfloat16", "float16"};
    uint64_t bytes[MERAK_SAFETENSORS_OTHER] = {0};
    int most = 0;

    for (int i = 0; i < hf->n; i++)
        bytes[hf->tensor[i].type] += bytes_of(hf, i);
    for (int i = 1; i < MERAK_SAFETENSORS_OTHER; i++) {
        if (bytes[i] > bytes[most])
            most = i;
    }
    return words[most];
}

/* Change fields that do not match the files, and take out that of a
 * quantization that they do not have; returns whether any was
 * changed. */
static bool adapt(const struct hf *hf, json_t *root)
{
    static const char *const fields[] = {"dtype", "torch_dtype"};
    const char *word = type_word(hf);
    bool changed = hf->packed &&
                   json_object_del(root, "quantization_config") == 0;

    for (size_t i = 0; i < 2; i++) {
        const char *now = json_string_value(json_object_get(root, fields[i]));

        if (now == NULL || strcmp(now, word) == 0)
            continue;
        json_object_set_new(root, fields[i], json_string(word));
        changed = true;
    }
    /* other readers look for the class besides model_type */
    if (json_object_get(root, "architectures") == NULL) {
        json_object_set_new(
            root, "architectures",
            json_pack("[s]", merak_hf_family_class(hf->e->config.family)));
        changed = true;
    }
    return changed;
}

static enum merak_status write_config(const struct hf *hf,
                                      struct merak_error *err)
{
    char from[PATH_MAX], to[PATH_MAX];
    char *text = NULL;
    size_t bytes = 0;
    json_t *root;
    enum merak_status rc;

    rc = merak_hf_path(hf->e->model, "config.json", from, sizeof(from), err);
    if (rc == MERAK_OK)
        rc = merak_durable_read(from, &text, &bytes, err);
    if (rc != MERAK_OK)
        return rc;
    root = json_loadb(text, bytes, 0, NULL);
    if (root == NULL)
        rc =
            merak_fail(err, MERAK_ERR_CONFIG, "%.120s is not valid JSON", from);
    else if (adapt(hf, root))
        rc = merak_exporting_json(hf->e, "config.json", root, JSON_INDENT(2),
                                  err);
    else
        rc = merak_durable_write(
            merak_path(to, hf->e->export->out, "config.json"), text, bytes,
            err);
    json_decref(root);
    free(text);
    return rc;
}

static bool is_folder(const char *path)
{
    char room[PATH_MAX];
    struct stat st;

    return stat(merak_hub_path(path, room), &st) == 0 && S_ISDIR(st.st_mode);
}

static enum merak_status write_rest(const struct hf *hf,
                                    struct merak_error *err)
{
    const char *out = hf->e->export->out;
    enum merak_status rc = write_index(hf, err);

    if (rc == MERAK_OK && is_folder(hf->e->model))
        rc = merak_run_model_copy_tokenizer(hf->e->model, out, err);
    if (rc == MERAK_OK)
        rc = write_config(hf, err);
    return rc == MERAK_OK ? merak_dir_sync(out, err) : rc;
}

/* --- all of it
 * ------------------------------------------------------------------- */

static enum merak_status write_all(struct hf *hf, struct merak_error *err)
{
    enum merak_status rc = make_lists(hf, err);

    for (int i = 0; i < hf->n && rc == MERAK_OK; i++)
        hf->e->all += bytes_of(hf, i);
    for (int i = 0; i < hf->n_files && rc == MERAK_OK; i++)
        rc = write_file(hf, &hf->file[i], err);
    return rc == MERAK_OK ? write_rest(hf, err) : rc;
}

enum merak_status merak_export_hf(struct merak_exporting *e,
                                  struct merak_transfer_summary *summary,
                                  struct merak_error *err)
{
    struct hf hf = {.e = e, .packed = e->config.mixture.may_pack};
    enum merak_status rc =
        merak_run_model_get_weights(e->run_dir, &hf.record, err);

    if (rc == MERAK_OK)
        rc = write_all(&hf, err);
    if (rc == MERAK_OK)
        *summary = (struct merak_transfer_summary){
            .family = merak_hf_family_name(e->config.family),
            .tensors = hf.n,
            .files = hf.n_files,
            .bytes = e->all};
    free(hf.tensor);
    free(hf.file);
    json_decref(hf.record);
    return rc;
}
