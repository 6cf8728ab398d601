/* SPDX-License-Identifier: Apache-2.0 */
/* data_tasks.c - `merak data pack` by several tasks, or in several runs */
#include "config.h"

#include "cmd/data_pack.h"
#include "cmd/finish.h"
#include "cmd/json_line.h"

#include "base/error.h"
#include "base/hub.h"
#include "base/size.h"
#include "io/tokens/parts.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* --- what has to be the same for all ---------------------------------------
 */

/* Sizes and times of the tokenizer's files. */
static json_t *describe_tokenizer(const char *path)
{
    static const char *const name[] = {"",
                                       "/tokenizer.json",
                                       "/tokenizer.model",
                                       "/tokenizer_config.json",
                                       "/special_tokens_map.json",
                                       "/chat_template.jinja"};
    json_t *list = json_array();
    char file[PATH_MAX + 32], room[PATH_MAX];
    struct stat st;

    path = merak_hub_path(path, room);
    for (size_t i = 0; i < sizeof(name) / sizeof(*name); i++) {
        snprintf(file, sizeof(file), "%s%s", path, name[i]);
        if (stat(file, &st) == 0 && S_ISREG(st.st_mode))
            json_array_append_new(list, json_pack("[s, I, I]", name[i],
                                                  (json_int_t)st.st_size,
                                                  (json_int_t)st.st_mtime));
    }
    return list;
}

static json_t *text_or_null(const char *text)
{
    return text != NULL ? merak_json_text(text, strlen(text)) : json_null();
}

static json_t *describe(const struct merak_pack_job *job)
{
    return json_pack("{s:o, s:o, s:b, s:b, s:o, s:o, s:b, s:o}", "--tokenizer",
                     text_or_null(job->tokenizer), "the tokenizer's files",
                     describe_tokenizer(job->tokenizer), "--append-eod",
                     job->append_eod, "--special-tokens", job->special,
                     "--json-key", text_or_null(job->json_key), "--chat",
                     text_or_null(job->chat_format), "--bad-lines",
                     job->bad_lines == MERAK_BAD_SKIP, "SOURCE_DATE_EPOCH",
                     text_or_null(getenv("SOURCE_DATE_EPOCH")));
}

/* Parts that are packed on other days have the same date in their texts. */
static void share_date(const struct merak_parts *parts)
{
    char text[32];

    snprintf(text, sizeof(text), "%lld", (long long)parts->now);
    (void)setenv("SOURCE_DATE_EPOCH", text, 0);
}

/* --- a part ----------------------------------------------------------------
 */

static json_t *count(const struct merak_pack_job *job, uint64_t left_before)
{
    struct merak_pack_totals t = merak_pack_totals(job->pack);

    return json_pack(
        "{s:I, s:i, s:I, s:I, s:I, s:I, s:i, s:o, s:b, s:b}", "tokens",
        (json_int_t)t.tokens, "holds", (int)job->holds, "empty",
        (json_int_t)job->empty, "left_out",
        (json_int_t)(merak_tokenizer_left_out(job->tok) - left_before), "bad",
        (json_int_t)job->bad.n, "twice", (json_int_t)job->answers.twice,
        "twice_id", (int)job->answers.twice_id, "first_bad",
        merak_json_text(job->bad.first, strlen(job->bad.first)), "chat",
        job->chat != NULL, "date",
        job->chat != NULL && merak_chat_has_date(job->chat));
}

static enum merak_status pack_part(struct merak_pack_job *job,
                                   const struct merak_parts *parts, size_t i,
                                   char **paths, struct merak_error *err)
{
    const struct merak_document_reader reader = merak_pack_reader(job);
    const struct merak_part *part = &parts->part[i];
    const uint64_t left_before = merak_tokenizer_left_out(job->tok);
    char *prefix = merak_parts_prefix(parts, i);
    enum merak_status rc;
    json_t *counts;

    if (prefix == NULL)
        return merak_fail_nomem(err, PATH_MAX);
    job->bad.n = job->empty = job->answers.twice = 0;
    job->bad.first[0] = '\0';
    rc = merak_pack_open(job, prefix, MERAK_PACK_MEGATRON, err);
    if (rc == MERAK_OK)
        rc = merak_documents_read_part(paths[part->input], job->json_key,
                                       part->begin, part->end, &reader, err);
    if (merak_cmd_check_stop(err) != MERAK_OK)
        rc = MERAK_ERR_SYSTEM;
    if (rc == MERAK_OK && merak_pack_totals(job->pack).tokens > 0)
        rc = merak_pack_of_output(merak_pack_commit(job->pack, err), err);
    if (rc == MERAK_OK) {
        counts = count(job, left_before);
        rc = merak_pack_of_output(merak_parts_done(parts, i, counts, err), err);
        json_decref(counts);
    }
    free(prefix);
    return rc;
}

/* The parts of this task that are not complete. */
static enum merak_status pack_own(struct merak_pack_job *job,
                                  const struct merak_parts *parts, char **paths,
                                  struct merak_error *err)
{
    const size_t n_tasks = (size_t)job->n_tasks;
    enum merak_status rc = MERAK_OK;
    const char *path = NULL;

    for (size_t i = (size_t)job->task; rc == MERAK_OK && i < parts->n;
         i += n_tasks) {
        json_t *counts = merak_parts_counts(parts, i);

        if (counts == NULL) {
            if (path != NULL && path != paths[parts->part[i].input])
                merak_pack_tell_unread(job, path);
            path = paths[parts->part[i].input];
            rc = pack_part(job, parts, i, paths, err);
        }
        json_decref(counts);
    }
    if (path != NULL)
        merak_pack_tell_unread(job, path);
    return rc;
}

/* --- the whole -------------------------------------------------------------
 */

static uint64_t number(const json_t *counts, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(counts, key));
}

static enum merak_status join_part(struct merak_pack_job *job,
                                   const struct merak_parts *parts,
                                   const json_t *counts,
                                   struct merak_error *err)
{
    const char *first = json_string_value(json_object_get(counts, "first_bad"));
    enum merak_status rc = merak_cmd_check_stop(err);

    if (job->bad.n == 0 && first != NULL)
        snprintf(job->bad.first, sizeof(job->bad.first), "%s", first);
    job->bad.n += number(counts, "bad");
    if (job->answers.twice == 0)
        job->answers.twice_id = (int32_t)number(counts, "twice_id");
    job->answers.twice += number(counts, "twice");
    job->empty += number(counts, "empty");
    job->left_out += number(counts, "left_out");
    job->with_date |= json_is_true(json_object_get(counts, "date"));
    if (rc == MERAK_OK && json_is_true(json_object_get(counts, "chat")))
        rc = merak_pack_chat(job, err);
    if (rc != MERAK_OK || number(counts, "tokens") == 0)
        return rc;
    rc = merak_pack_hold(job, (enum merak_pack_holds)number(counts, "holds"),
                         err);
    return rc == MERAK_OK ? merak_parts_join(parts, counts,
                                             merak_tokenizer_vocab(job->tok),
                                             job->pack, err)
                          : rc;
}

static enum merak_status join(struct merak_pack_job *job,
                              const struct merak_parts *parts, int n,
                              char **paths, struct merak_error *err)
{
    enum merak_status rc = merak_pack_open(job, job->out, job->format, err);

    job->bad.n = job->empty = job->answers.twice = 0;
    /* counted in the parts */
    job->left_out = 0 - merak_tokenizer_left_out(job->tok);
    for (size_t i = 0; rc == MERAK_OK && i < parts->n; i++) {
        json_t *counts = merak_parts_counts(parts, i);

        rc = join_part(job, parts, counts, err);
        if (rc == MERAK_ERR_MISMATCH)
            merak_error_wrap(err, "%s", paths[parts->part[i].input]);
        json_decref(counts);
    }
    if (rc == MERAK_OK && merak_pack_totals(job->pack).tokens == 0)
        rc = merak_fail(err, MERAK_ERR_MISMATCH,
                        "no text in the %d file%s given", n, merak_plural(n));
    if (rc == MERAK_OK)
        rc = merak_pack_of_output(merak_pack_commit(job->pack, err), err);
    return rc == MERAK_OK
               ? merak_pack_of_output(merak_parts_remove(parts, err), err)
               : rc;
}

enum merak_status merak_pack_tasks(struct merak_pack_job *job, int n,
                                   char **paths, bool *joined_p, size_t *left_p,
                                   size_t *parts_p, struct merak_error *err)
{
    json_t *facts = describe(job);
    struct merak_parts parts;
    enum merak_status rc = merak_parts_open(
        job->out, facts, (size_t)n, paths, merak_documents_cut_bytes,
        job->json_key, job->n_tasks, &parts, err);

    *joined_p = false;
    merak_progress_init(&job->progress, stderr, "pack", "B", 0);
    if (rc == MERAK_OK) {
        share_date(&parts);
        rc = pack_own(job, &parts, paths, err);
    }
    if (rc == MERAK_OK)
        rc = merak_pack_of_output(merak_parts_arrive(&parts, job->task,
                                                     job->n_tasks, joined_p,
                                                     left_p, err),
                                  err);
    *parts_p = parts.n;
    if (rc == MERAK_OK && *joined_p) {
        rc = join(job, &parts, n, paths, err);
        /* by the last task of an ended step that lived on */
        if (rc == MERAK_ERR_NOT_FOUND && merak_parts_are_joined(&parts)) {
            *joined_p = false;
            rc = MERAK_OK;
        }
    }
    merak_progress_clear(&job->progress);
    json_decref(facts);
    merak_parts_close(&parts);
    return rc;
}
