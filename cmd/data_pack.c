/* SPDX-License-Identifier: Apache-2.0 */
/* data_pack.c - `merak data pack`: text files, and conversations, to token
 * files */
#include "config.h"

#include "cmd/cmd.h"
#include "cmd/data.h"
#include "cmd/data_pack.h"
#include "cmd/finish.h"
#include "cmd/json_line.h"

#include "base/error.h"
#include "base/options.h"
#include "base/output.h"
#include "base/size.h"
#include "runtime/boot/boot.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum merak_status merak_pack_of_output(enum merak_status rc,
                                       struct merak_error *err)
{
    if (rc == MERAK_ERR_IO || rc == MERAK_ERR_NOT_FOUND)
        rc = err->status = MERAK_ERR_SYSTEM;
    return rc;
}

static enum merak_status take_ids(void *arg, const int32_t *ids, size_t n,
                                  struct merak_error *err)
{
    struct merak_pack_job *job = arg;
    enum merak_status rc = merak_cmd_check_stop(err);

    return rc == MERAK_OK ? merak_pack_of_output(
                                merak_pack_tokens(job->pack, ids, n, err), err)
                          : rc;
}

static void tell_progress(struct merak_pack_job *job, size_t bytes)
{
    merak_progress_note(
        &job->progress, "%llu tokens",
        (unsigned long long)merak_pack_totals(job->pack).tokens);
    merak_progress_add(&job->progress, (double)bytes);
}

enum merak_status merak_pack_hold(struct merak_pack_job *job,
                                  enum merak_pack_holds what,
                                  struct merak_error *err)
{
    static const char *const name[] = {[MERAK_PACK_TEXTS] = "texts",
                                       [MERAK_PACK_ANSWERS] = "answers",
                                       [MERAK_PACK_PAIRS] = "pairs of answers"};
    enum merak_status rc = MERAK_OK;

    if (job->holds == what)
        return MERAK_OK;
    if (job->holds != MERAK_PACK_NOTHING)
        return merak_fail(
            err, MERAK_ERR_MISMATCH, "%s, after %s: pack them separately%s",
            name[what], name[job->holds],
            what == MERAK_PACK_PAIRS || job->holds == MERAK_PACK_PAIRS
                ? ""
                : ", training takes both (--data \"1 A 1 B\")");
    job->holds = what;
    if (what != MERAK_PACK_TEXTS)
        rc = merak_pack_add_mask(job->pack, job->prefix, err);
    if (rc == MERAK_OK && what == MERAK_PACK_PAIRS)
        merak_pack_set_pairs(job->pack);
    return merak_pack_of_output(rc, err);
}

enum merak_status merak_pack_chat(struct merak_pack_job *job,
                                  struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    if (job->chat == NULL)
        rc = merak_chat_open(job->tokenizer, job->chat_format, &job->chat, err);
    job->answers.chat = job->chat;
    return rc;
}

static enum merak_status take_turns(void *arg, bool is_chat,
                                    const struct merak_chat_talk *talk,
                                    struct merak_error *err)
{
    struct merak_pack_job *job = arg;
    enum merak_status rc = merak_pack_hold(
        job,
        talk->side == MERAK_CHAT_ALONE ? MERAK_PACK_ANSWERS : MERAK_PACK_PAIRS,
        err);
    size_t bytes = 0;

    for (size_t i = 0; i < talk->n; i++)
        bytes += talk->turn[i].n;
    tell_progress(job, bytes);
    if (rc == MERAK_OK)
        rc = merak_cmd_check_stop(err);
    if (rc == MERAK_OK && is_chat)
        rc = merak_pack_chat(job, err);
    return rc == MERAK_OK
               ? merak_pack_of_output(
                     merak_answers_take(&job->answers, is_chat, talk, err), err)
               : rc;
}

static enum merak_status take_document(void *arg, const char *text, size_t n,
                                       struct merak_error *err)
{
    struct merak_pack_job *job = arg;
    int32_t eod = merak_tokenizer_eod(job->tok);
    enum merak_status rc = merak_pack_hold(job, MERAK_PACK_TEXTS, err);

    if (rc != MERAK_OK)
        return rc;
    tell_progress(job, n);
    if (n == 0) {
        job->empty++;
        return MERAK_OK;
    }
    rc = job->special
             ? merak_tokenizer_encode_whole(job->tok, text, n, take_ids, job,
                                            err)
             : merak_tokenizer_encode(job->tok, text, n, take_ids, job, err);
    if (rc == MERAK_OK && job->append_eod)
        rc = take_ids(job, &eod, 1, err);
    if (rc == MERAK_OK)
        rc = merak_pack_of_output(merak_pack_end_document(job->pack, err), err);
    return rc;
}

static enum merak_status open_job(struct merak_pack_job *job,
                                  struct merak_error *err)
{
    char first[PATH_MAX];
    enum merak_status rc;

    snprintf(first, sizeof(first), "%s.bin", job->out);
    rc = merak_output_check("--out", first, err);
    if (rc == MERAK_OK)
        rc = merak_tokenizer_open(job->tokenizer, &job->tok, err);
    if (rc != MERAK_OK)
        return rc;
    if (job->append_eod && merak_tokenizer_eod(job->tok) < 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--append-eod: %s has no added token <|endoftext|>, "
                          "nor another that ends a text",
                          job->tokenizer);
    job->answers.tokenizer = job->tok;
    job->answers.special = job->special;
    job->answers.append_eod = job->append_eod;
    return MERAK_OK;
}

enum merak_status merak_pack_open(struct merak_pack_job *job,
                                  const char *prefix,
                                  enum merak_pack_format format,
                                  struct merak_error *err)
{
    enum merak_status rc;

    merak_pack_destroy(job->pack);
    job->pack = NULL;
    job->prefix = prefix;
    job->holds = MERAK_PACK_NOTHING;
    rc = merak_pack_create(prefix, format, merak_tokenizer_vocab(job->tok),
                           &job->pack, err);
    job->answers.pack = job->pack;
    return merak_pack_of_output(rc, err);
}

/* 0 if the size of one is unknown, as for standard input. */
static double bytes_of(int n, char **paths)
{
    double bytes = 0;

    for (int i = 0; i < n; i++) {
        double more = merak_documents_bytes(paths[i]);

        if (more == 0)
            return 0;
        bytes += more;
    }
    return bytes;
}

void merak_pack_tell_unread(struct merak_pack_job *job, const char *path)
{
    if (job->chat == NULL || merak_chat_unread(job->chat)[0] == '\0')
        return;
    merak_progress_clear(&job->progress);
    fprintf(stderr,
            "merak data pack: note: %s: messages have %s, which the chat %s "
            "%s does not put out\n",
            path, merak_chat_unread(job->chat),
            job->chat_format != NULL ? "format" : "template of",
            merak_chat_name(job->chat));
    merak_chat_forget_unread(job->chat);
}

static void warn_of_twice(const struct merak_pack_job *job)
{
    if (job->answers.twice > 0)
        fprintf(stderr,
                "merak data pack: warning: %llu documents begin with token %d "
                "twice: what puts it in front of a conversation, and the text "
                "itself; leave it out of one\n",
                (unsigned long long)job->answers.twice,
                (int)job->answers.twice_id);
}

struct merak_document_reader merak_pack_reader(struct merak_pack_job *job)
{
    return (struct merak_document_reader){
        .document = take_document,
        .turns = take_turns,
        .arg = job,
        .bad = job->bad_lines == MERAK_BAD_SKIP ? &job->bad : NULL};
}

static enum merak_status pack_files(struct merak_pack_job *job, int n,
                                    char **paths, struct merak_error *err)
{
    const struct merak_document_reader reader = merak_pack_reader(job);
    enum merak_status rc = merak_pack_open(job, job->out, job->format, err);

    merak_progress_init(&job->progress, stderr, "pack", "B",
                        bytes_of(n, paths));
    for (int i = 0; rc == MERAK_OK && i < n; i++) {
        rc = merak_documents_read(paths[i], job->json_key, &reader, err);
        merak_pack_tell_unread(job, paths[i]);
    }
    merak_progress_clear(&job->progress);
    if (merak_cmd_check_stop(err) != MERAK_OK)
        return MERAK_ERR_SYSTEM;
    if (rc != MERAK_OK)
        return rc;
    if (merak_pack_totals(job->pack).tokens == 0)
        return merak_fail(err, MERAK_ERR_MISMATCH,
                          "no text in the %d file%s given", n, merak_plural(n));
    return merak_pack_of_output(merak_pack_commit(job->pack, err), err);
}

static bool has_date(const struct merak_pack_job *job)
{
    return job->with_date || merak_chat_has_date(job->chat);
}

static uint64_t left_out(const struct merak_pack_job *job)
{
    return job->left_out + merak_tokenizer_left_out(job->tok);
}

static void print_totals(const struct merak_pack_job *job)
{
    struct merak_pack_totals t = merak_pack_totals(job->pack);

    printf("%s.bin: %llu %s token%s of %llu document%s, vocabulary %zu (%s)\n",
           job->out, (unsigned long long)t.tokens,
           merak_token_type_name(t.type), merak_plural((long)t.tokens),
           (unsigned long long)t.documents, merak_plural((long)t.documents),
           merak_tokenizer_vocab(job->tok), job->tokenizer);
    if (job->holds > MERAK_PACK_TEXTS)
        printf("%s.mask: %llu of them are in answers%s%s%s%s\n", job->out,
               (unsigned long long)t.counted,
               job->holds == MERAK_PACK_PAIRS ? ", chosen and rejected" : "",
               job->chat == NULL          ? ""
               : job->chat_format != NULL ? ", chat format "
                                          : ", chat template of ",
               job->chat != NULL ? merak_chat_name(job->chat) : "",
               job->chat != NULL && has_date(job) ? ", with the date" : "");
    if (left_out(job) > 0)
        printf("%llu byte%s left out: %s has no token for them\n",
               (unsigned long long)left_out(job),
               merak_plural((long)left_out(job)), job->tokenizer);
    if (job->bad.n > 0)
        printf("%llu bad line%s left out, the first: %s\n", job->bad.n,
               merak_plural((long)job->bad.n), job->bad.first);
    if (job->empty > 0)
        printf("%llu empty document%s left out\n",
               (unsigned long long)job->empty, merak_plural((long)job->empty));
}

/* The same counts, all of them. */
static json_t *json_totals(const struct merak_pack_job *job)
{
    struct merak_pack_totals t = merak_pack_totals(job->pack);
    json_t *root = json_pack(
        "{s:o, s:I, s:s, s:I, s:I, s:I, s:I, s:I}", "out",
        merak_json_text(job->out, strlen(job->out)), "tokens",
        (json_int_t)t.tokens, "type", merak_token_type_name(t.type),
        "documents", (json_int_t)t.documents, "vocab",
        (json_int_t)merak_tokenizer_vocab(job->tok), "left_out_bytes",
        (json_int_t)left_out(job), "bad_lines", (json_int_t)job->bad.n,
        "empty_documents", (json_int_t)job->empty);

    if (job->holds > MERAK_PACK_TEXTS)
        json_object_set_new(root, "answers",
                            json_integer((json_int_t)t.counted));
    if (job->holds == MERAK_PACK_PAIRS)
        json_object_set_new(root, "pairs",
                            json_integer((json_int_t)(t.documents / 2)));
    if (job->chat != NULL)
        json_object_set_new(root, "with_date", json_boolean(has_date(job)));
    return root;
}

static int report(const struct merak_pack_job *job)
{
    warn_of_twice(job);
    if (job->json)
        return merak_cmd_flush_json("data pack", json_totals(job),
                                    MERAK_EXIT_DONE);
    print_totals(job);
    return merak_cmd_flush("data pack", MERAK_EXIT_DONE);
}

/* A task that was not the last one. */
static int report_task(const struct merak_pack_job *job, size_t left,
                       size_t parts)
{
    if (job->json)
        return merak_cmd_flush_json(
            "data pack",
            json_pack("{s:s, s:i, s:i, s:I, s:I}", "out", job->out, "task",
                      job->task, "tasks", job->n_tasks, "parts",
                      (json_int_t)parts, "parts_left", (json_int_t)left),
            MERAK_EXIT_DONE);
    printf("task %d of %d is done: %zu of %zu parts are packed\n", job->task,
           job->n_tasks, parts - left, parts);
    return merak_cmd_flush("data pack", MERAK_EXIT_DONE);
}

/* --- the command line -------------------------------------------------- */

/* "I/N" */
static enum merak_status set_task(void *target, const char *text,
                                  struct merak_error *err)
{
    struct merak_pack_job *job = target;
    char end;

    if (sscanf(text, "%9d/%9d%c", &job->task, &job->n_tasks, &end) != 2 ||
        job->n_tasks < 1 || job->n_tasks > 1000000 || job->task < 0 ||
        job->task >= job->n_tasks)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--task %.40s: expected I/N, this is task I, from 0, "
                          "of N",
                          text);
    return MERAK_OK;
}

#define AT(field) offsetof(struct merak_pack_job, field)

static const struct merak_option rows[] = {
    {"tokenizer", MERAK_OPTION_TEXT, AT(tokenizer),
     .about = "byte, a Hugging Face tokenizer.json, a SentencePiece *.model, "
              "or a folder that has one (required)",
     .arg = "T"},
    {"out", MERAK_OPTION_TEXT, AT(out),
     .about = "write PREFIX.bin and PREFIX.idx (required)", .arg = "PREFIX"},
    {"append-eod", MERAK_OPTION_YES, AT(append_eod),
     .about = "end every document with the end-of-document token"},
    {"special-tokens", MERAK_OPTION_YES, AT(special),
     .about = "add the tokenizer's special tokens to every document"},
    {"json-key", MERAK_OPTION_TEXT, AT(json_key),
     .about = "key of the text in a line of JSON (text)", .arg = "KEY"},
    {"chat", MERAK_OPTION_TEXT, AT(chat_format),
     .about = "how messages become text (as the tokenizer's chat template "
              "does): chatml, gemma, llama2, llama3, llama3.1, mistral, phi3, "
              "qwen3 or zephyr",
     .arg = "FORMAT"},
    {"bad-lines", MERAK_OPTION_WORD, AT(bad_lines), .words = "refuse|skip",
     .about = "what to do with a line that is not as expected: end with its "
              "number, or leave it out and count it"},
    {"format", MERAK_OPTION_WORD, AT(format), .words = "megatron|llmc",
     .about = ".bin and .idx, or .bin alone"},
    {"task", MERAK_OPTION_CALL, 0, .set = set_task,
     .about = "pack a share of the parts, as one of several tasks (those of "
              "srun)",
     .arg = "I/N"},
    {"json", MERAK_OPTION_YES, AT(json),
     .about = "report what was written as a line of JSON"},
};
static const struct merak_option_table table = {rows,
                                                sizeof(rows) / sizeof(rows[0])};

static void print_help(void)
{
    puts("usage: merak data pack --tokenizer T --out PREFIX [OPTION]... "
         "FILE...\n"
         "\n"
         "Each FILE is a document; of a .jsonl file, each line.  Files of gzip "
         "and zstd\n"
         "are read; \"-\" is standard input.  Lines with \"prompt\" and "
         "\"completion\", or\n"
         "with \"messages\", are packed with a mask: training predicts only "
         "their answers.\n"
         "Of lines with \"chosen\" and \"rejected\", training prefers "
         "one of the two.\n");
    merak_options_help(&table, stdout);
}

/* Words of the command line are kept in argv[1 .. *argc). */
static int parse(struct merak_pack_job *job, int *argc, char **argv)
{
    struct merak_error err;
    enum merak_status rc =
        merak_options_words(&table, false, argc, argv, job, &job->help, &err);

    if (rc != MERAK_OK)
        return merak_cmd_failed("data pack", rc, &err);
    if (job->help)
        return MERAK_EXIT_DONE;
    if (job->tokenizer == NULL)
        return merak_cmd_misused("data", "pack: no --tokenizer given");
    if (job->out == NULL)
        return merak_cmd_misused("data", "pack: no --out given");
    if (*argc < 2)
        return merak_cmd_misused("data", "pack: no files given");
    return MERAK_EXIT_DONE;
}

/* The tasks of a step of Slurm, unless --task says something else.  One alone
 * may read standard input. */
static void find_tasks(struct merak_pack_job *job, int n, char **paths)
{
    const char *by;
    int tasks = merak_boot_launched(&by);
    bool alone = tasks == 1 && getenv("SLURM_STEP_NUM_TASKS") == NULL;

    for (int i = 0; i < n; i++)
        alone = alone || (tasks == 1 && strcmp(paths[i], "-") == 0);
    if (job->n_tasks > 0 || alone)
        return;
    job->n_tasks = tasks;
    job->task = merak_boot_rank();
}

int merak_data_pack(int argc, char **argv)
{
    struct merak_pack_job job = {.tokenizer = NULL};
    struct merak_error err;
    enum merak_status rc;
    size_t left = 0, parts = 0;
    bool joined = true;
    int code = parse(&job, &argc, argv);

    if (code != MERAK_EXIT_DONE)
        return code;
    if (job.help) {
        print_help();
        return merak_cmd_flush("data pack", MERAK_EXIT_DONE);
    }
    merak_cmd_catch_stops();
    find_tasks(&job, argc - 1, argv + 1);
    rc = open_job(&job, &err);
    if (rc == MERAK_OK)
        rc = job.n_tasks > 0 ? merak_pack_tasks(&job, argc - 1, argv + 1,
                                                &joined, &left, &parts, &err)
                             : pack_files(&job, argc - 1, argv + 1, &err);
    if (rc == MERAK_OK) {
        code = joined ? report(&job) : report_task(&job, left, parts);
    } else {
        code = merak_cmd_failed("data pack", rc, &err);
    }
    merak_pack_destroy(job.pack);
    merak_answers_fini(&job.answers);
    merak_chat_close(job.chat);
    merak_tokenizer_close(job.tok);
    merak_cmd_die_of_stop();
    return code;
}
