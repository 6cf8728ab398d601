/* SPDX-License-Identifier: Apache-2.0 */
/* cmd/data_pack.h - shared by the files of `merak data pack` */
#ifndef MERAK_CMD_DATA_PACK_H
#define MERAK_CMD_DATA_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/progress.h"
#include "cmd/data_answers.h"
#include "io/tokens/documents.h"
#include "io/tokens/pack.h"
#include "text/tokenizer/tokenizer.h"
#include "merak/status.h"

enum merak_pack_holds {
    MERAK_PACK_NOTHING,
    MERAK_PACK_TEXTS,
    MERAK_PACK_ANSWERS,
    MERAK_PACK_PAIRS
};

struct merak_pack_job {
    const char *tokenizer, *out, *json_key, *chat_format;
    enum merak_pack_format format;
    bool append_eod, special, json, help;
    enum { MERAK_BAD_REFUSE, MERAK_BAD_SKIP } bad_lines;
    int task, n_tasks; /* n_tasks 0: one that packs all at once */
    /* what is packed now, and where */
    const char *prefix;
    struct merak_tokenizer *tok;
    struct merak_pack *pack;
    enum merak_pack_holds holds; /* so far */
    struct merak_chat *chat;     /* opened at the first messages */
    struct merak_answers answers;
    struct merak_progress progress;
    /* what was counted */
    struct merak_bad_lines bad;
    uint64_t empty;    /* documents without text */
    uint64_t left_out; /* bytes without a token, by other tasks */
    bool with_date;
};

/* data_pack.c */
enum merak_status merak_pack_open(struct merak_pack_job *job,
                                  const char *prefix,
                                  enum merak_pack_format format,
                                  struct merak_error *err) MERAK_CHECKED;
/* Texts and answers cannot be in one file: all of a text is predicted. */
enum merak_status merak_pack_hold(struct merak_pack_job *job,
                                  enum merak_pack_holds what,
                                  struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_pack_chat(struct merak_pack_job *job,
                                  struct merak_error *err) MERAK_CHECKED;
struct merak_document_reader merak_pack_reader(struct merak_pack_job *job);
/* Name, once a file, what messages hold beside what is learned. */
void merak_pack_tell_unread(struct merak_pack_job *job, const char *path);
/* Failures of the output are not those of the data. */
enum merak_status merak_pack_of_output(enum merak_status rc,
                                       struct merak_error *err) MERAK_CHECKED;

/* data_tasks.c: this task's parts, and if it is the last one the whole.
 *   *joined_p  it was: job->pack is complete
 *   *left_p    parts that are not complete, of *parts_p */
enum merak_status merak_pack_tasks(struct merak_pack_job *job, int n,
                                   char **paths, bool *joined_p, size_t *left_p,
                                   size_t *parts_p,
                                   struct merak_error *err) MERAK_CHECKED;

#endif
