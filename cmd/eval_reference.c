/* SPDX-License-Identifier: Apache-2.0 */
/* eval_reference.c - what a model makes of pairs of answers, kept beside them
 * as the reference that training on preferences starts from
 */
#include "config.h"

#include "cmd/eval.h"
#include "cmd/eval_score.h"
#include "cmd/finish.h"

#include "base/error.h"
#include "base/json_number.h"
#include "io/ckpt/durable.h"
#include "io/file.h"
#include "io/tokens/parts.h"
#include "io/tokens/reference.h"
#include "io/tokens/spec.h"
#include "io/weights/weights_id.h"
#include "runtime/boot/boot.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum merak_status score_file(struct merak_scorer *s,
                                    const struct merak_token_file *file)
{
    struct merak_loss_sink to = {NULL, NULL};
    enum merak_status rc =
        merak_reference_create(file, &s->model, &to.writer, s->err);

    if (rc == MERAK_OK)
        rc = merak_score_pairs(s, file, 0, file->documents, &to);
    if (rc == MERAK_OK)
        rc = merak_reference_commit(to.writer, s->most, s->err);
    merak_reference_destroy(to.writer);
    return rc;
}

/* --- all files --------------------------------------------------------------
 */

struct files {
    struct merak_token_file *file;
    size_t n;
};

/* Is there a pair of which both documents have at most so many tokens? */
static bool has_pair(const struct files *files, uint64_t most)
{
    for (size_t f = 0; f < files->n; f++) {
        const uint64_t *begin = files->file[f].begin;

        for (uint64_t d = 0; d + 1 < files->file[f].documents; d += 2) {
            if (begin[d + 1] - begin[d] <= most &&
                begin[d + 2] - begin[d + 1] <= most)
                return true;
        }
    }
    return false;
}

/* Open them, and find the tokens of all and of the longest document. */
static enum merak_status open_files(const char *path, struct files *files,
                                    uint64_t *tokens, uint64_t *longest,
                                    struct merak_error *err)
{
    enum merak_status rc =
        merak_token_files_open(path, &files->file, &files->n, err);

    for (size_t f = 0; rc == MERAK_OK && f < files->n; f++) {
        struct merak_token_file *file = &files->file[f];

        rc = merak_token_file_require_pairs(file, err);
        if (rc == MERAK_OK)
            rc = merak_token_file_documents(file, err);
        *tokens += file->tokens;
        for (uint64_t d = 0; rc == MERAK_OK && d < file->documents; d++) {
            uint64_t n = file->begin[d + 1] - file->begin[d];

            *longest = n > *longest ? n : *longest;
        }
    }
    return rc;
}

/* Longer documents than the model's positions are of no use, nor, if --seq is
 * given, than a sequence of training. */
static uint64_t most_tokens(const struct merak_eval *eval,
                            const struct merak_lm *lm, uint64_t longest)
{
    uint64_t most = eval->seq > 0 ? eval->seq : lm->config.positions;

    return most > 0 && most < longest ? most : longest;
}

static void print_tally(const struct merak_eval *eval,
                        const struct merak_scorer *s)
{
    const struct merak_pair_tally *t = &s->tally;
    struct merak_json_number a, b, c;
    double share = t->pairs > 0 ? (double)t->preferred / (double)t->pairs : 0;
    double mean[2];

    for (int k = 0; k < 2; k++)
        mean[k] = t->tokens[k] > 0 ? t->nll[k] / (double)t->tokens[k] : 0;
    if (eval->json) {
        printf("{\"pairs\": %" PRIu64 ", \"too_long\": %" PRIu64
               ", \"chosen_loss\": %s, \"rejected_loss\": %s, "
               "\"preferred\": %s}\n",
               t->pairs, s->too_long, merak_json_number(&a, 9, mean[0]),
               merak_json_number(&b, 9, mean[1]),
               merak_json_number(&c, 9, share));
        return;
    }
    printf("chosen answers    %.4f nats a token\n"
           "rejected answers  %.4f nats a token\n"
           "chosen likelier   %.1f %% of %" PRIu64 " pairs\n",
           mean[0], mean[1], 100 * share, t->pairs);
    if (s->too_long > 0)
        printf("left out          %" PRIu64 " documents of more than %" PRIu64
               " tokens\n",
               s->too_long, s->most);
}

/* --- several tasks (parts.h) ------------------------------------------------
 */

/* How many share the work; 0: this one is of no step, and does all. */
static int count_tasks(void)
{
    const char *by;
    int tasks = merak_boot_launched(&by);

    return tasks > 1 || getenv("SLURM_STEP_NUM_TASKS") != NULL ? tasks : 0;
}

/* Inputs are cut by the bytes of their tokens. */
static uint64_t cut_bytes(const char *path, const char *key)
{
    struct stat st;

    (void)key;
    return stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
}

static json_t *describe(const struct merak_eval *eval,
                        const struct merak_scorer *s)
{
    return json_pack("{s:s, s:s*, s:i, s:I, s:I}", "--ckpt", eval->lm.ckpt,
                     "--model", eval->lm.model, "--dtype", eval->lm.dtype,
                     "--seq", (json_int_t)s->most, "the model's weights",
                     (json_int_t)s->model.weights);
}

/* The pairs that begin in a part, as documents [first, end). */
static void find_pairs(const struct merak_token_file *file,
                       const struct merak_part *part, uint64_t *first,
                       uint64_t *end)
{
    const size_t each = merak_token_bytes(file->type);

    for (*first = 0;
         *first < file->documents && file->begin[*first] * each < part->begin;)
        *first += 2;
    for (*end = *first;
         *end < file->documents &&
         (part->end == 0 || file->begin[*end] * each < part->end);)
        *end += 2;
}

static char *loss_path(const char *folder, const char *files,
                       char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/%s.loss", folder, files);
    return path;
}

static enum merak_status score_part(struct merak_scorer *s,
                                    const struct merak_parts *parts, size_t i,
                                    const struct merak_token_file *file)
{
    char *prefix = merak_parts_prefix(parts, i), path[PATH_MAX];
    struct merak_loss_sink to = {NULL, NULL};
    uint64_t first, end;
    enum merak_status rc = MERAK_OK;
    const struct merak_pair_tally *t = &s->tally;
    json_t *counts;

    if (prefix == NULL)
        return merak_fail_nomem(s->err, PATH_MAX);
    snprintf(path, sizeof(path), "%s.loss", prefix);
    free(prefix);
    to.part = fopen(path, "we");
    if (to.part == NULL)
        return merak_file_fail(s->err, "create", path);
    s->tally = (struct merak_pair_tally){.pairs = 0};
    s->too_long = 0;
    find_pairs(file, &parts->part[i], &first, &end);
    rc = merak_score_pairs(s, file, first, end, &to);
    if (rc == MERAK_OK && (fflush(to.part) != 0 || fsync(fileno(to.part)) != 0))
        rc = merak_file_fail(s->err, "write", path);
    fclose(to.part);
    if (rc != MERAK_OK)
        return rc;
    counts = json_pack(
        "{s:I, s:I, s:[I, I], s:[f, f], s:I}", "pairs", (json_int_t)t->pairs,
        "preferred", (json_int_t)t->preferred, "tokens",
        (json_int_t)t->tokens[0], (json_int_t)t->tokens[1], "nll", t->nll[0],
        t->nll[1], "too_long", (json_int_t)s->too_long);
    rc = merak_parts_done(parts, i, counts, s->err);
    json_decref(counts);
    return rc;
}

static void add_counts(struct merak_scorer *s, const json_t *counts)
{
    struct merak_pair_tally *t = &s->tally;

    t->pairs += (uint64_t)json_integer_value(json_object_get(counts, "pairs"));
    t->preferred +=
        (uint64_t)json_integer_value(json_object_get(counts, "preferred"));
    s->too_long +=
        (uint64_t)json_integer_value(json_object_get(counts, "too_long"));
    for (size_t k = 0; k < 2; k++) {
        t->tokens[k] += (uint64_t)json_integer_value(
            json_array_get(json_object_get(counts, "tokens"), k));
        t->nll[k] += json_number_value(
            json_array_get(json_object_get(counts, "nll"), k));
    }
}

/* Append the losses of a part. */
static enum merak_status join_part(struct merak_scorer *s,
                                   const struct merak_parts *parts, size_t i,
                                   struct merak_reference_writer *writer)
{
    json_t *counts = merak_parts_counts(parts, i);
    const char *files = json_string_value(json_object_get(counts, "files"));
    enum merak_status rc = MERAK_OK;
    char path[PATH_MAX];
    float loss[4096];
    size_t n = 1;
    FILE *in =
        fopen(loss_path(parts->folder, files != NULL ? files : "", path), "re");

    if (in == NULL)
        rc = merak_file_fail(s->err, "read", path);
    while (rc == MERAK_OK && n > 0) {
        n = fread(loss, sizeof(*loss), 4096, in);
        rc = merak_reference_put(writer, loss, n, s->err);
    }
    if (in != NULL)
        fclose(in);
    add_counts(s, counts);
    json_decref(counts);
    return rc;
}

static enum merak_status join(struct merak_scorer *s,
                              const struct merak_parts *parts,
                              struct merak_token_file *const *file, size_t n)
{
    enum merak_status rc = MERAK_OK;
    size_t i = 0;

    s->tally = (struct merak_pair_tally){.pairs = 0};
    s->too_long = 0;
    for (size_t f = 0; rc == MERAK_OK && f < n; f++) {
        struct merak_reference_writer *writer = NULL;

        rc = merak_reference_create(file[f], &s->model, &writer, s->err);
        for (; rc == MERAK_OK && i < parts->n && parts->part[i].input == f; i++)
            rc = join_part(s, parts, i, writer);
        if (rc == MERAK_OK)
            rc = merak_reference_commit(writer, s->most, s->err);
        merak_reference_destroy(writer);
    }
    return rc == MERAK_OK ? merak_parts_remove(parts, s->err) : rc;
}

/* This task's share of the parts, and if it is the last one the whole. */
static enum merak_status score_tasks(const struct merak_eval *eval,
                                     struct merak_scorer *s,
                                     struct merak_token_file *const *file,
                                     char *const *paths, size_t n,
                                     bool *joined_p)
{
    const int tasks = count_tasks(), task = merak_boot_rank();
    struct merak_parts parts;
    json_t *facts = describe(eval, s);
    char prefix[PATH_MAX];
    size_t left = 0;
    enum merak_status rc;

    snprintf(prefix, sizeof(prefix), "%.*s" MERAK_REFERENCE_SUFFIX,
             (int)(strlen(paths[0]) - strlen(".bin")), paths[0]);
    rc = merak_parts_open(prefix, facts, n, paths, cut_bytes, NULL, tasks,
                          &parts, s->err);
    for (size_t i = (size_t)task; rc == MERAK_OK && i < parts.n;
         i += (size_t)tasks) {
        json_t *done = merak_parts_counts(&parts, i);

        if (done == NULL)
            rc = score_part(s, &parts, i, file[parts.part[i].input]);
        json_decref(done);
    }
    if (rc == MERAK_OK)
        rc = merak_parts_arrive(&parts, task, tasks, joined_p, &left, s->err);
    if (rc == MERAK_OK && *joined_p)
        rc = join(s, &parts, file, n);
    else if (rc == MERAK_OK)
        printf("task %d of %d is done: %zu of %zu parts are scored\n", task,
               tasks, parts.n - left, parts.n);
    json_decref(facts);
    merak_parts_close(&parts);
    return rc;
}

static enum merak_status load(const struct merak_eval *eval,
                              struct merak_scorer *s)
{
    struct merak_weights_id id = {.whole = 0};
    enum merak_status rc =
        merak_lm_load(s->lm, &eval->lm, (size_t)s->most, false, s->err);

    if (rc == MERAK_OK)
        rc = merak_decoder_identify(s->lm->decoder, &id, s->err);
    s->model.weights = id.whole;
    snprintf(s->model.from, sizeof(s->model.from), "%s", eval->lm.ckpt);
    return rc;
}

/* By this task alone, or together with others. */
static enum merak_status score_all(const struct merak_eval *eval,
                                   struct merak_scorer *s,
                                   const struct files *files, size_t n,
                                   uint64_t tokens, bool *joined_p)
{
    struct merak_token_file **file = NULL;
    char **path = NULL;
    size_t all = 0, at = 0;
    enum merak_status rc = load(eval, s);

    for (size_t k = 0; k < n; k++)
        all += files[k].n;
    file = calloc(all + 1, sizeof(*file));
    path = calloc(all + 1, sizeof(*path));
    if (rc == MERAK_OK && (file == NULL || path == NULL))
        rc = merak_fail_nomem(s->err, all * sizeof(*file));
    for (size_t k = 0; rc == MERAK_OK && k < n; k++) {
        for (size_t f = 0; f < files[k].n; f++) {
            file[at] = &files[k].file[f];
            path[at++] = files[k].file[f].path;
        }
    }
    *joined_p = true;
    merak_progress_init(&s->progress, stderr, "reference", "tokens",
                        count_tasks() > 0 ? 0 : (double)tokens);
    if (rc == MERAK_OK && count_tasks() > 0)
        rc = score_tasks(eval, s, file, path, all, joined_p);
    for (size_t f = 0; rc == MERAK_OK && count_tasks() == 0 && f < all; f++)
        rc = score_file(s, file[f]);
    merak_progress_clear(&s->progress);
    free(file);
    free(path);
    return rc;
}

enum merak_status merak_eval_reference(const struct merak_eval *eval,
                                       struct merak_lm *lm,
                                       struct merak_error *err)
{
    struct merak_scorer s = {.lm = lm, .err = err};
    struct merak_data_spec spec = {0};
    struct files *files = NULL;
    uint64_t tokens = 0, longest = 0;
    bool any = false, joined = false;
    enum merak_status rc = merak_data_spec_parse(eval->data, &spec, err);

    if (rc == MERAK_OK) {
        files = calloc(spec.n, sizeof(*files));
        rc = files != NULL ? MERAK_OK
                           : merak_fail_nomem(err, spec.n * sizeof(*files));
    }
    for (size_t k = 0; rc == MERAK_OK && k < spec.n; k++)
        rc = open_files(spec.path[k], &files[k], &tokens, &longest, err);
    s.most = most_tokens(eval, lm, longest);
    for (size_t k = 0; rc == MERAK_OK && k < spec.n; k++)
        any = any || has_pair(&files[k], s.most);
    if (rc == MERAK_OK && !any)
        rc = merak_fail(err, MERAK_ERR_MISMATCH,
                        "--data has no pair of answers of at most %" PRIu64
                        " tokens: the longest document has %" PRIu64,
                        s.most, longest);
    for (int k = 0; rc == MERAK_OK && k < 2; k++)
        rc = merak_scored_create((size_t)s.most, &s.doc[k], err);
    if (rc == MERAK_OK) {
        merak_cmd_catch_stops();
        rc = score_all(eval, &s, files, spec.n, tokens, &joined);
    }
    if (rc == MERAK_OK && joined)
        print_tally(eval, &s);
    for (int k = 0; k < 2; k++)
        merak_scored_destroy(s.doc[k]);
    for (size_t k = 0; files != NULL && k < spec.n; k++)
        merak_token_files_close(files[k].file, files[k].n);
    free(files);
    merak_data_spec_fini(&spec);
    return rc;
}
