/* SPDX-License-Identifier: Apache-2.0 */
/* manifest.c - reading and checking a checkpoint's manifest
 *
 * The format is described in save.c.  Nothing in the JSON is trusted before it
 * is checked: names must stay inside the directory, boxes inside their tensor,
 * products inside size_t.
 */
#include "config.h"

#include "io/ckpt/ckpt_impl.h"

#include "base/error.h"
#include "base/size.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *merak_shape_text(char *buf, const struct merak_shape *shape)
{
    size_t at = 0;

    buf[at++] = '[';
    for (int d = 0; d < shape->ndim; d++)
        at += (size_t)sprintf(buf + at, d > 0 ? ", %zu" : "%zu", shape->dim[d]);
    strcpy(buf + at, "]");
    return buf;
}

char *merak_ckpt_dataset_name(char *buf, const char *tensor,
                              const struct merak_box *box)
{
    size_t at = (size_t)snprintf(buf, MERAK_CKPT_MAX_TENSOR, "%s", tensor);

    buf[at++] = '@';
    for (int d = 0; d < box->ndim; d++)
        at += (size_t)sprintf(buf + at, d > 0 ? ",%zu:%zu" : "%zu:%zu",
                              box->lo[d], box->lo[d] + box->len[d]);
    buf[at] = '\0';
    return buf;
}

json_t *merak_ckpt_sizes_json(const size_t *value, int n)
{
    json_t *array = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(array, json_integer((json_int_t)value[i]));
    return array;
}

/* The seed is text: JSON integers are limited to 2^63 here and to 2^53
 * elsewhere. */
json_t *merak_ckpt_state_json(const struct merak_ckpt_state *state)
{
    char seed[24];
    json_t *json;

    snprintf(seed, sizeof(seed), "%" PRIu64, state->seed);
    json = json_pack("{s:I, s:I, s:I, s:s, s:s, s:s, s:s, s:i, s:i, s:i}",
                     "step", (json_int_t)state->step, "consumed_samples",
                     (json_int_t)state->consumed_samples, "consumed_tokens",
                     (json_int_t)state->consumed_tokens, "seed", seed,
                     "model_id", state->model_id, "data_id", state->data_id,
                     "dtype", state->dtype, "tp", state->tp, "pp", state->pp,
                     "dp", state->dp);
    if (state->cp > 1)
        json_object_set_new(json, "cp", json_integer(state->cp));
    if (state->ep > 1)
        json_object_set_new(json, "ep", json_integer(state->ep));
    if (state->stages[0] != '\0')
        json_object_set_new(json, "stages", json_string(state->stages));
    if (state->seq > 0)
        json_object_set_new(json, "seq", json_integer((json_int_t)state->seq));
    if (state->global_batch > 0)
        json_object_set_new(json, "global_batch",
                            json_integer((json_int_t)state->global_batch));
    if (state->imported)
        json_object_set_new(json, "imported", json_true());
    if (state->init_from[0] != '\0')
        json_object_set_new(json, "init_from", json_string(state->init_from));
    if (state->recipe[0] != '\0')
        json_object_set_new(json, "recipe", json_string(state->recipe));
    if (state->fingerprint[0] != '\0')
        json_object_set_new(json, "fingerprint",
                            json_string(state->fingerprint));
    if (state->branch[0] != '\0')
        json_object_set_new(json, "branch", json_string(state->branch));
    if (state->steps > 0)
        json_object_set_new(json, "steps",
                            json_integer((json_int_t)state->steps));
    return json;
}

const char *merak_ckpt_degrees(const struct merak_ckpt_state *state,
                               const char *between,
                               char text[MERAK_DEGREES_TEXT])
{
    const struct merak_degrees degrees = {.tp = state->tp,
                                          .cp = state->cp,
                                          .ep = state->ep,
                                          .pp = state->pp,
                                          .dp = state->dp};

    if (state->stages[0] == '\0')
        return merak_degrees_text(&degrees, between, text);
    snprintf(text, MERAK_DEGREES_TEXT, "stages %s", state->stages);
    return text;
}

static bool take_text(char *to, size_t size, const char *from)
{
    return (size_t)snprintf(to, size, "%s", from) < size;
}

static enum merak_status parse_state(json_t *json,
                                     struct merak_ckpt_state *state,
                                     struct merak_error *err)
{
    const char *seed, *model_id, *data_id, *dtype;
    const char *recipe = "", *init_from = "", *fingerprint = "", *branch = "";
    const char *stages = "";
    json_int_t step, samples, tokens, seq = 0, global_batch = 0, steps = 0;
    json_error_t why;
    int imported = 0;
    char *end;

    state->cp = state->ep = 1; /* named only where they are more */
    /* Checkpoints of 0.1 have neither seq nor the fields after it. */
    if (json_unpack_ex(
            json, &why, 0,
            "{s:I, s:I, s:I, s:s, s:s, s:s, s:s, s:i, s:i, s:i, "
            "s?I, s?I, s?s, s?b, s?s, s?s, s?I, s?s, s?s, s?i, s?i}",
            "step", &step, "consumed_samples", &samples, "consumed_tokens",
            &tokens, "seed", &seed, "model_id", &model_id, "data_id", &data_id,
            "dtype", &dtype, "tp", &state->tp, "pp", &state->pp, "dp",
            &state->dp, "seq", &seq, "global_batch", &global_batch, "recipe",
            &recipe, "imported", &imported, "init_from", &init_from,
            "fingerprint", &fingerprint, "steps", &steps, "branch", &branch,
            "stages", &stages, "cp", &state->cp, "ep", &state->ep) != 0)
        return merak_fail(err, MERAK_ERR_CORRUPT, "state: %s", why.text);
    state->step = (uint64_t)step;
    state->consumed_samples = (uint64_t)samples;
    state->consumed_tokens = (uint64_t)tokens;
    state->seq = (uint64_t)seq;
    state->global_batch = (uint64_t)global_batch;
    state->steps = (uint64_t)steps;
    state->imported = imported != 0;
    state->seed = strtoull(seed, &end, 10);
    if (step < 0 || samples < 0 || tokens < 0 || seq < 0 || global_batch < 0 ||
        steps < 0 || state->tp < 1 || state->pp < 1 || state->dp < 1 ||
        state->cp < 1 || state->ep < 1 || *seed == '\0' || *end != '\0' ||
        !take_text(state->model_id, sizeof(state->model_id), model_id) ||
        !take_text(state->data_id, sizeof(state->data_id), data_id) ||
        !take_text(state->dtype, sizeof(state->dtype), dtype) ||
        stages[strspn(stages, "0123456789x-.")] != '\0' ||
        !take_text(state->stages, sizeof(state->stages), stages) ||
        !take_text(state->recipe, sizeof(state->recipe), recipe) ||
        !take_text(state->fingerprint, sizeof(state->fingerprint),
                   fingerprint) ||
        !take_text(state->branch, sizeof(state->branch), branch) ||
        !merak_ckpt_branch_is_text(state->branch) ||
        !take_text(state->init_from, sizeof(state->init_from), init_from))
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          "state: a value out of its range");
    return MERAK_OK;
}

/* A plain file name, so that nothing outside of the directory is used. */
static bool is_file_name(const char *name)
{
    return *name != '\0' && *name != '.' && strlen(name) < 64 &&
           strchr(name, '/') == NULL;
}

static enum merak_status parse_file(json_t *json, struct merak_ckpt_file *file,
                                    struct merak_error *err)
{
    json_error_t why;
    json_int_t bytes;

    if (json_unpack_ex(json, &why, 0, "{s:s, s:I, s:s, s?s}", "file",
                       &file->name, "bytes", &bytes, "xxh128", &file->hash,
                       "rest", &file->rest) != 0)
        return merak_fail(err, MERAK_ERR_CORRUPT, "file entry: %s", why.text);
    if (!is_file_name(file->name) || bytes < 0 ||
        strlen(file->hash) != MERAK_HASH_TEXT - 1 ||
        (file->rest != NULL && strlen(file->rest) != MERAK_HASH_TEXT - 1))
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          "file entry \"%.64s\": a value out of its range",
                          file->name);
    file->bytes = (uint64_t)bytes;
    return MERAK_OK;
}

/* Exactly ndim sizes, or -1. */
static int parse_sizes(json_t *json, size_t *value)
{
    size_t n = json_array_size(json);

    if (!json_is_array(json) || n > MERAK_MAX_DIMS)
        return -1;
    for (size_t i = 0; i < n; i++) {
        json_t *one = json_array_get(json, i);

        if (!json_is_integer(one) || json_integer_value(one) < 0)
            return -1;
        value[i] = (size_t)json_integer_value(one);
    }
    return (int)n;
}

static bool box_is_sound(const struct merak_box *box)
{
    size_t n = 1;

    for (int d = 0; d < box->ndim; d++) {
        if (box->len[d] == 0 || box->lo[d] > box->full[d] ||
            box->len[d] > box->full[d] - box->lo[d] ||
            !merak_size_mul(n, box->full[d], &n))
            return false;
    }
    return n <= SIZE_MAX / sizeof(float);
}

static bool is_inside(json_int_t offset, size_t elements, uint64_t file_bytes)
{
    uint64_t bytes = (uint64_t)elements * sizeof(float);

    return offset >= 0 && bytes <= file_bytes &&
           (uint64_t)offset <= file_bytes - bytes;
}

static enum merak_status parse_part(json_t *json, struct merak_ckpt_part *part,
                                    uint64_t file_bytes,
                                    struct merak_error *err)
{
    json_t *shape, *lo, *len;
    json_error_t why;
    json_int_t offset;
    struct merak_box *box = &part->box;

    if (json_unpack_ex(json, &why, 0, "{s:s, s:o, s:o, s:o, s:I, s:s}",
                       "tensor", &part->tensor, "shape", &shape, "lo", &lo,
                       "len", &len, "offset", &offset, "xxh128",
                       &part->hash) != 0)
        return merak_fail(err, MERAK_ERR_CORRUPT, "part entry: %s", why.text);
    box->ndim = parse_sizes(shape, box->full);
    if (box->ndim < 0 || parse_sizes(lo, box->lo) != box->ndim ||
        parse_sizes(len, box->len) != box->ndim || !box_is_sound(box) ||
        !is_inside(offset, merak_box_count(box), file_bytes) ||
        strlen(part->tensor) >= MERAK_CKPT_MAX_TENSOR ||
        strlen(part->hash) != MERAK_HASH_TEXT - 1)
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          "part of tensor \"%.100s\": a value out of its range",
                          part->tensor);
    part->offset = (uint64_t)offset;
    return MERAK_OK;
}

static int compare_parts(const void *a, const void *b)
{
    const struct merak_ckpt_part *x = a, *y = b;
    int c = strcmp(x->tensor, y->tensor);

    for (int d = 0; c == 0 && d < x->box.ndim && d < y->box.ndim; d++)
        c = (x->box.lo[d] > y->box.lo[d]) - (x->box.lo[d] < y->box.lo[d]);
    return c;
}

static size_t count_parts(json_t *shards)
{
    size_t n = 0;

    for (size_t i = 0; i < json_array_size(shards); i++)
        n += json_array_size(
            json_object_get(json_array_get(shards, i), "parts"));
    return n;
}

static enum merak_status parse_shards(json_t *shards,
                                      struct merak_ckpt_manifest *mf,
                                      struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (size_t i = 0; i < json_array_size(shards) && rc == MERAK_OK; i++) {
        json_t *shard = json_array_get(shards, i);
        json_t *parts = json_object_get(shard, "parts");

        mf->n_shards++;
        rc = parse_file(shard, &mf->shard[i], err);
        for (size_t k = 0; k < json_array_size(parts) && rc == MERAK_OK; k++) {
            mf->part[mf->n_parts].shard = (int)i;
            rc = parse_part(json_array_get(parts, k), &mf->part[mf->n_parts++],
                            mf->shard[i].bytes, err);
        }
    }
    return rc;
}

/* After sorting, the parts of a tensor are adjacent. */
static void find_tensors(struct merak_ckpt_manifest *mf)
{
    struct merak_ckpt_tensor *t = NULL;

    for (int i = 0; i < mf->n_parts; i++) {
        const struct merak_ckpt_part *part = &mf->part[i];

        if (t == NULL || strcmp(t->name, part->tensor) != 0) {
            t = &mf->tensor[mf->n_tensors++];
            t->name = part->tensor;
            t->first = i;
            t->shape.ndim = part->box.ndim;
            memcpy(t->shape.dim, part->box.full, sizeof(t->shape.dim));
        }
        t->n++;
    }
}

static int compare_places(const void *a, const void *b)
{
    const struct merak_ckpt_part *x = *(struct merak_ckpt_part *const *)a;
    const struct merak_ckpt_part *y = *(struct merak_ckpt_part *const *)b;

    if (x->shard != y->shard)
        return x->shard - y->shard;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static enum merak_status place_parts(struct merak_ckpt_manifest *mf,
                                     struct merak_error *err)
{
    int at = 0;

    for (int i = 0; i < mf->n_parts; i++)
        mf->placed[i] = &mf->part[i];
    qsort(mf->placed, (size_t)mf->n_parts, sizeof(*mf->placed), compare_places);
    for (int s = 0; s < mf->n_shards; s++) {
        uint64_t end = 0;

        mf->first_placed[s] = at;
        for (; at < mf->n_parts && mf->placed[at]->shard == s; at++) {
            const struct merak_ckpt_part *part = mf->placed[at];
            size_t bytes = merak_ckpt_part_bytes(part);

            if (bytes > 0 && part->offset < end)
                return merak_fail(err, MERAK_ERR_CORRUPT,
                                  "%s: parts of %.100s share bytes",
                                  mf->shard[s].name, part->tensor);
            end = bytes > 0 ? part->offset + bytes : end;
        }
    }
    mf->first_placed[mf->n_shards] = at;
    return MERAK_OK;
}

enum merak_status
merak_ckpt_manifest_shards_take(json_t *root, struct merak_ckpt_manifest **mf_p,
                                struct merak_error *err)
{
    struct merak_ckpt_manifest *mf = calloc(1, sizeof(*mf));
    json_t *shards = json_object_get(root, "shards");
    size_t n = count_parts(shards);
    enum merak_status rc;

    if (mf == NULL) {
        json_decref(root);
        return merak_fail_nomem(err, sizeof(*mf));
    }
    mf->root = root;
    mf->shard = calloc(json_array_size(shards) + 1, sizeof(*mf->shard));
    mf->part = calloc(n + 1, sizeof(*mf->part));
    mf->tensor = calloc(n + 1, sizeof(*mf->tensor));
    mf->placed = calloc(n + 1, sizeof(*mf->placed));
    mf->first_placed =
        calloc(json_array_size(shards) + 1, sizeof(*mf->first_placed));
    if (mf->shard == NULL || mf->part == NULL || mf->tensor == NULL ||
        mf->placed == NULL || mf->first_placed == NULL) {
        rc = merak_fail_nomem(err, (n + 1) * sizeof(*mf->part));
        goto out;
    }
    rc = parse_shards(shards, mf, err);
    if (rc != MERAK_OK)
        goto out;
    qsort(mf->part, (size_t)mf->n_parts, sizeof(*mf->part), compare_parts);
    find_tensors(mf);
    rc = place_parts(mf, err);
    if (rc != MERAK_OK)
        goto out;
    *mf_p = mf;
    mf = NULL;
out:
    merak_ckpt_manifest_destroy(mf);
    return rc;
}

/* Check this first: a later format may be entirely different. */
static enum merak_status check_version(json_t *root, struct merak_error *err)
{
    json_error_t why;
    const char *format;
    int version;

    if (json_unpack_ex(root, &why, 0, "{s:s, s:i}", "format", &format,
                       "version", &version) != 0 ||
        strcmp(format, MERAK_CKPT_FORMAT) != 0)
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "not a manifest of a merak checkpoint");
    if (version != MERAK_CKPT_VERSION)
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "written in format %d, this merak reads format %d",
                          version, MERAK_CKPT_VERSION);
    return MERAK_OK;
}

enum merak_status merak_ckpt_manifest_parse(const char *text, size_t bytes,
                                            struct merak_ckpt_manifest **mf_p,
                                            struct merak_error *err)
{
    struct merak_ckpt_manifest *mf = NULL;
    json_error_t why;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
    enum merak_status rc;

    if (root == NULL)
        return merak_fail(err, MERAK_ERR_CORRUPT, "line %d: %s", why.line,
                          why.text);
    rc = check_version(root, err);
    if (rc != MERAK_OK) {
        json_decref(root);
        return rc;
    }
    rc = merak_ckpt_manifest_shards_take(root, &mf, err);
    if (rc != MERAK_OK)
        return rc;
    rc = parse_state(json_object_get(root, "state"), &mf->state, err);
    if (rc == MERAK_OK)
        rc = parse_file(json_object_get(root, "master"), &mf->master, err);
    if (rc == MERAK_OK)
        *mf_p = mf;
    else
        merak_ckpt_manifest_destroy(mf);
    return rc;
}

void merak_ckpt_manifest_destroy(struct merak_ckpt_manifest *mf)
{
    if (mf == NULL)
        return;
    free(mf->shard);
    free(mf->part);
    free(mf->tensor);
    free(mf->placed);
    free(mf->first_placed);
    json_decref(mf->root);
    free(mf);
}

static enum merak_status fail_overlap(const struct merak_ckpt_manifest *mf,
                                      const struct merak_ckpt_part *a,
                                      const struct merak_ckpt_part *b,
                                      enum merak_status status,
                                      struct merak_error *err)
{
    char x[MERAK_CKPT_MAX_DATASET], y[MERAK_CKPT_MAX_DATASET];

    merak_ckpt_dataset_name(x, "", &a->box);
    merak_ckpt_dataset_name(y, "", &b->box);
    return merak_fail(err, status,
                      "tensor %s: elements %s in %s and %s in %s overlap",
                      a->tensor, x + 1, mf->shard[a->shard].name, y + 1,
                      mf->shard[b->shard].name);
}

/* Parts tile a tensor if they are disjoint and their sizes add up.  They are
 * sorted by their first corner, so none that begins past the end of part i
 * along dim 0 intersects it. */
static enum merak_status cover_one(const struct merak_ckpt_manifest *mf,
                                   const struct merak_ckpt_tensor *t,
                                   enum merak_status status,
                                   struct merak_error *err)
{
    const struct merak_ckpt_part *part = &mf->part[t->first];
    struct merak_box both;
    size_t n = 0;

    for (int i = 0; i < t->n; i++) {
        const struct merak_box *box = &part[i].box;

        if (box->ndim != t->shape.ndim ||
            memcmp(box->full, t->shape.dim,
                   (size_t)box->ndim * sizeof(*box->full)) != 0)
            return merak_fail(err, status,
                              "tensor %s has another shape in %s than in %s",
                              t->name, mf->shard[part[i].shard].name,
                              mf->shard[part->shard].name);
        for (int k = i + 1; k < t->n; k++) {
            if (part[k].box.ndim > 0 && box->ndim > 0 &&
                part[k].box.lo[0] >= box->lo[0] + box->len[0])
                break;
            if (part[k].box.ndim == box->ndim &&
                merak_ckpt_box_meet(box, &part[k].box, &both))
                return fail_overlap(mf, &part[i], &part[k], status, err);
        }
        n += merak_box_count(box);
    }
    if (n != merak_shape_count(&t->shape))
        return merak_fail(err, status,
                          "tensor %s: %zu of its %zu elements are in no shard "
                          "file",
                          t->name, merak_shape_count(&t->shape) - n,
                          merak_shape_count(&t->shape));
    return MERAK_OK;
}

enum merak_status
merak_ckpt_manifest_cover(const struct merak_ckpt_manifest *mf,
                          enum merak_status status, struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < mf->n_tensors && rc == MERAK_OK; i++)
        rc = cover_one(mf, &mf->tensor[i], status, err);
    return rc;
}

static int compare_name(const void *key, const void *tensor)
{
    return strcmp(key, ((const struct merak_ckpt_tensor *)tensor)->name);
}

const struct merak_ckpt_tensor *
merak_ckpt_tensor_find(const struct merak_ckpt_manifest *mf, const char *name)
{
    return bsearch(name, mf->tensor, (size_t)mf->n_tensors, sizeof(*mf->tensor),
                   compare_name);
}
