/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_show.c - `merak ckpt show`: the contents of a checkpoint
 *
 * A tensor may be named as in the checkpoint (param/h.0.ln.g), as training
 * prints parameters (h.0.ln.g: its weights), with a leading slash as in h5ls,
 * and followed by the box of a part.
 */
#include "config.h"

#include "cmd/ckpt/ckpt_verbs.h"

#include "base/error.h"
#include "base/nearest.h"
#include "base/size.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct show {
    bool json;
};

static const struct merak_option rows[] = {
    {"json", MERAK_OPTION_YES, offsetof(struct show, json),
     .about = "as a line of JSON"},
};
const struct merak_option_table ckpt_show_options = {rows, sizeof(rows) /
                                                               sizeof(rows[0])};

/* --- all of it --------------------------------------------------------------
 */

/* One entry a line (runtime/train/fingerprint.h). */
static void print_fingerprint(const char *text)
{
    for (size_t n; *text != '\0'; text += n) {
        n = strcspn(text, ";");
        printf("%-18s%.*s\n", "", (int)n, text);
        n += strspn(text + n, "; ");
    }
}

static void print_state(const char *dir, const struct merak_ckpt_manifest *mf)
{
    const struct merak_ckpt_state *state = &mf->state;
    char when[32], size[16], by[MERAK_DEGREES_TEXT];

    printf("checkpoint        %s\n", dir);
    printf("saved             %s\n", ckpt_time_text(when, dir, false));
    printf("step              %" PRIu64 "\n", state->step);
    printf("consumed samples  %" PRIu64 "\n", state->consumed_samples);
    printf("consumed tokens   %" PRIu64 "\n", state->consumed_tokens);
    if (state->seq > 0 && state->global_batch > 0)
        printf("trained with      sequences of %" PRIu64
               ", global batch %" PRIu64 "\n",
               state->seq, state->global_batch);
    else if (state->global_batch > 0)
        printf("trained with      global batch %" PRIu64 "\n",
               state->global_batch);
    printf("seed              %" PRIu64 "\n", state->seed);
    if (state->init_from[0] != '\0')
        printf("first weights     %s%s\n",
               state->imported ? "imported from " : "", state->init_from);
    printf("dtype             %s\n", state->dtype);
    printf("written by        %s\n", merak_ckpt_degrees(state, ", ", by));
    printf("model             %s\n", state->model_id);
    printf("data              %s\n",
           state->data_id[0] != '\0' ? state->data_id : "-");
    print_fingerprint(state->fingerprint);
    printf("size              %s in %d shard%s\n",
           ckpt_size_text(size, ckpt_total_bytes(mf)), mf->n_shards,
           merak_plural(mf->n_shards));
}

static void print_tensors(const struct merak_ckpt_manifest *mf)
{
    char shape[160];

    printf("\n%-40s %-20s %12s %6s\n", "TENSOR", "SHAPE", "ELEMENTS", "PARTS");
    for (int i = 0; i < mf->n_tensors; i++) {
        const struct merak_ckpt_tensor *t = &mf->tensor[i];

        printf("%-40s %-20s %12zu %6d\n", t->name,
               merak_shape_text(shape, &t->shape), merak_shape_count(&t->shape),
               t->n);
    }
}

static json_t *json_all(const char *dir, const struct merak_ckpt_manifest *mf)
{
    json_t *tensors = json_array();
    char when[32];

    for (int i = 0; i < mf->n_tensors; i++) {
        const struct merak_ckpt_tensor *t = &mf->tensor[i];

        json_array_append_new(
            tensors,
            json_pack("{s:s, s:o, s:I, s:i}", "name", t->name, "shape",
                      merak_ckpt_sizes_json(t->shape.dim, t->shape.ndim),
                      "elements", (json_int_t)merak_shape_count(&t->shape),
                      "parts", t->n));
    }
    return json_pack("{s:s, s:s, s:I, s:i, s:o, s:o}", "checkpoint", dir,
                     "saved", ckpt_time_text(when, dir, true), "bytes",
                     (json_int_t)ckpt_total_bytes(mf), "shards", mf->n_shards,
                     "state", merak_ckpt_state_json(&mf->state), "tensors",
                     tensors);
}

/* --- one tensor -------------------------------------------------------------
 */

static const struct merak_ckpt_tensor *
find_tensor(const struct merak_ckpt_manifest *mf, const char *word)
{
    char name[MERAK_CKPT_MAX_TENSOR + 8];
    const struct merak_ckpt_tensor *t;
    const char *box = strrchr(word, '@');
    size_t n;

    word += strspn(word, "/");
    n = box == NULL || box < word ? strlen(word) : (size_t)(box - word);
    t = merak_ckpt_tensor_find(mf, word);
    if (t == NULL && n < MERAK_CKPT_MAX_TENSOR) {
        snprintf(name, sizeof(name), "%.*s", (int)n, word);
        t = merak_ckpt_tensor_find(mf, name);
    }
    if (t == NULL && n < MERAK_CKPT_MAX_TENSOR) {
        snprintf(name, sizeof(name), "param/%.*s", (int)n, word);
        t = merak_ckpt_tensor_find(mf, name);
    }
    return t;
}

enum { MOST_NEAREST = 5 };

/* First names that contain the word, then similar ones; for a name without a
 * kind only weights. */
static int find_nearest(const struct merak_ckpt_manifest *mf, const char *word,
                        const char *list[MOST_NEAREST])
{
    bool bare = strchr(word, '/') == NULL;
    size_t skip = bare ? strlen("param/") : 0;
    bool *taken = calloc((size_t)mf->n_tensors + 1, sizeof(*taken));
    int n = 0;

    for (int i = 0; taken != NULL && i < mf->n_tensors; i++) {
        const char *name = mf->tensor[i].name;

        taken[i] = bare && strncmp(name, "param/", skip) != 0;
        if (taken[i] || n == MOST_NEAREST || strstr(name + skip, word) == NULL)
            continue;
        taken[i] = true;
        list[n++] = name;
    }
    while (taken != NULL && n < MOST_NEAREST) {
        struct merak_nearest near;
        int at = -1;

        merak_nearest_init(&near, word);
        for (int i = 0; i < mf->n_tensors; i++) {
            if (taken[i])
                continue;
            merak_nearest_offer(&near, mf->tensor[i].name + skip);
            if (near.name == mf->tensor[i].name + skip)
                at = i;
        }
        if (at < 0)
            break;
        taken[at] = true;
        list[n++] = mf->tensor[at].name;
    }
    free(taken);
    return n;
}

static int no_tensor(const char *dir, const struct merak_ckpt_manifest *mf,
                     const char *word)
{
    const char *near[MOST_NEAREST];
    int n = find_nearest(mf, word + strspn(word, "/"), near);

    fprintf(stderr, "merak ckpt show: no tensor %s in %s; ", word, dir);
    if (n == 0)
        fputs("`merak ckpt show DIR` lists them\n", stderr);
    for (int i = 0; i < n; i++)
        fprintf(stderr, "%s%s%s", i == 0 ? "the nearest are " : ", ", near[i],
                i == n - 1 ? "\n" : "");
    return MERAK_EXIT_CONFIG;
}

struct numbers {
    double least, most, mean, rms;
    size_t n, not_finite;
};

static struct numbers count_up(const float *data, size_t n)
{
    struct numbers c = {.least = INFINITY, .most = -INFINITY, .n = n};
    double sum = 0, squares = 0, finite;

    for (size_t i = 0; i < n; i++) {
        double x = (double)data[i];

        if (!isfinite(x)) {
            c.not_finite++;
            continue;
        }
        sum += x;
        squares += x * x;
        c.least = fmin(c.least, x);
        c.most = fmax(c.most, x);
    }
    finite = (double)(n - c.not_finite);
    c.mean = finite > 0 ? sum / finite : 0;
    c.rms = finite > 0 ? sqrt(squares / finite) : 0;
    return c;
}

static enum merak_status read_numbers(struct merak_ckpt *ckpt,
                                      const struct merak_ckpt_tensor *t,
                                      struct numbers *numbers,
                                      struct merak_error *err)
{
    size_t n = merak_shape_count(&t->shape);
    struct merak_ckpt_piece piece = {
        .name = t->name, .shape = t->shape, .flat_hi = n};
    enum merak_status rc;

    piece.box.ndim = t->shape.ndim;
    memcpy(piece.box.full, t->shape.dim, sizeof(piece.box.full));
    memcpy(piece.box.len, t->shape.dim, sizeof(piece.box.len));
    piece.data = malloc(n * sizeof(*piece.data) + 1);
    if (piece.data == NULL)
        return merak_fail_nomem(err, n * sizeof(*piece.data));
    rc = merak_ckpt_read(ckpt, &piece, err);
    if (rc == MERAK_OK)
        *numbers = count_up(piece.data, n);
    free(piece.data);
    return rc;
}

/* Bytes of the part in the shard file. */
static size_t part_bytes(const struct merak_ckpt_part *part)
{
    return merak_box_count(&part->box) * sizeof(float);
}

static void print_tensor(const struct merak_ckpt_manifest *mf,
                         const struct merak_ckpt_tensor *t,
                         const struct numbers *c)
{
    char text[MERAK_CKPT_MAX_DATASET];

    printf("tensor            %s\n", t->name);
    printf("shape             %s\n", merak_shape_text(text, &t->shape));
    if (c->n > c->not_finite)
        printf("min %.6g, max %.6g, mean %.6g, rms %.6g\n", c->least, c->most,
               c->mean, c->rms);
    printf("not finite        %zu\n", c->not_finite);
    printf("\n%-18s %-36s %12s %12s %12s\n", "SHARD", "ELEMENTS", "COUNT",
           "OFFSET", "BYTES");
    for (int i = 0; i < t->n; i++) {
        const struct merak_ckpt_part *part = &mf->part[t->first + i];

        merak_ckpt_dataset_name(text, "", &part->box);
        printf("%-18s %-36s %12zu %12" PRIu64 " %12zu\n",
               mf->shard[part->shard].name, text + 1,
               merak_box_count(&part->box), part->offset, part_bytes(part));
    }
}

static json_t *json_tensor(const char *dir,
                           const struct merak_ckpt_manifest *mf,
                           const struct merak_ckpt_tensor *t,
                           const struct numbers *c)
{
    json_t *parts = json_array(), *root;

    for (int i = 0; i < t->n; i++) {
        const struct merak_ckpt_part *part = &mf->part[t->first + i];
        const struct merak_box *box = &part->box;

        json_array_append_new(
            parts, json_pack("{s:s, s:o, s:o, s:I, s:I}", "shard",
                             mf->shard[part->shard].name, "lo",
                             merak_ckpt_sizes_json(box->lo, box->ndim), "len",
                             merak_ckpt_sizes_json(box->len, box->ndim),
                             "offset", (json_int_t)part->offset, "bytes",
                             (json_int_t)part_bytes(part)));
    }
    root = json_pack("{s:s, s:s, s:o, s:I, s:I, s:o}", "checkpoint", dir,
                     "tensor", t->name, "shape",
                     merak_ckpt_sizes_json(t->shape.dim, t->shape.ndim),
                     "elements", (json_int_t)c->n, "not_finite",
                     (json_int_t)c->not_finite, "parts", parts);
    if (c->n > c->not_finite)
        json_object_update_new(root, json_pack("{s:f, s:f, s:f, s:f}", "min",
                                               c->least, "max", c->most, "mean",
                                               c->mean, "rms", c->rms));
    return root;
}

static int show_tensor(const struct show *show, struct merak_ckpt *ckpt,
                       const char *word)
{
    const struct merak_ckpt_manifest *mf = merak_ckpt_manifest(ckpt);
    const struct merak_ckpt_tensor *t = find_tensor(mf, word);
    struct numbers numbers = {.n = 0};
    struct merak_error err;
    enum merak_status rc;

    if (t == NULL)
        return no_tensor(merak_ckpt_path(ckpt), mf, word);
    rc = read_numbers(ckpt, t, &numbers, &err);
    if (rc != MERAK_OK)
        return ckpt_failed("show", rc, &err);
    if (show->json)
        return ckpt_flushed_json(
            "show", json_tensor(merak_ckpt_path(ckpt), mf, t, &numbers),
            MERAK_EXIT_DONE);
    print_tensor(mf, t, &numbers);
    return ckpt_flushed("show", MERAK_EXIT_DONE);
}

static int show_all(const struct show *show, const struct merak_ckpt *ckpt)
{
    const struct merak_ckpt_manifest *mf = merak_ckpt_manifest(ckpt);

    if (show->json)
        return ckpt_flushed_json("show", json_all(merak_ckpt_path(ckpt), mf),
                                 MERAK_EXIT_DONE);
    print_state(merak_ckpt_path(ckpt), mf);
    print_tensors(mf);
    return ckpt_flushed("show", MERAK_EXIT_DONE);
}

int ckpt_run_show(int argc, char **argv)
{
    struct merak_ckpt *ckpt = NULL;
    struct show show = {.json = false};
    struct ckpt_words words;
    struct merak_error err;
    enum merak_status rc;
    int code = ckpt_parse(&ckpt_show_options, &show, argc, argv, 1, 2,
                          "a directory", &words);

    if (code != MERAK_EXIT_DONE)
        return code;
    rc = merak_ckpt_open(words.word[0], &ckpt, &err);
    if (rc != MERAK_OK)
        return ckpt_failed("show", rc, &err);
    code = words.word[1] != NULL ? show_tensor(&show, ckpt, words.word[1])
                                 : show_all(&show, ckpt);
    merak_ckpt_close(ckpt);
    return code;
}
