/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_generate.c - `merak generate`: a model continues a text */
#include "config.h"

#include "cmd/cmd.h"
#include "cmd/finish.h"
#include "cmd/language_model.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/options.h"
#include "runtime/infer/next_token.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct job {
    struct merak_lm_options lm;
    const char *prompt, *prompt_file;
    bool ids, ignore_eod;
    size_t tokens, top_k;
    double temperature, top_p;
    uint64_t seed;
};

static const struct merak_option rows[] = {
    MERAK_LM_ROWS(struct job),
    {"prompt", MERAK_OPTION_TEXT, offsetof(struct job, prompt),
     .about = "the text to continue", .arg = "TEXT"},
    {"prompt-file", MERAK_OPTION_TEXT, offsetof(struct job, prompt_file),
     .about = "the same from a file; - is standard input", .arg = "FILE"},
    {"ids", MERAK_OPTION_YES, offsetof(struct job, ids),
     .about = "the prompt is token ids, and ids are printed: no tokenizer"},
    {"tokens", MERAK_OPTION_SIZE, offsetof(struct job, tokens),
     .about = "tokens to generate, at most (128)", .least = 1},
    {"temperature", MERAK_OPTION_REAL, offsetof(struct job, temperature),
     .about = "0 takes the likeliest token, 1 samples as the model predicts "
              "(0)"},
    {"top-k", MERAK_OPTION_SIZE, offsetof(struct job, top_k),
     .about = "sample from the K likeliest tokens; 0: all (0)", .arg = "K"},
    {"top-p", MERAK_OPTION_REAL, offsetof(struct job, top_p),
     .about = "sample from the fewest tokens of total probability P (1)",
     .most = 1, .positive = true, .arg = "P"},
    {"seed", MERAK_OPTION_COUNT, offsetof(struct job, seed),
     .about = "of the sampling (0)"},
    {"ignore-eod", MERAK_OPTION_YES, offsetof(struct job, ignore_eod),
     .about = "continue after the token that ends a text"},
};
static const struct merak_option_table table = {rows,
                                                sizeof(rows) / sizeof(rows[0])};

/* --- the prompt ---------------------------------------------------------- */

static enum merak_status read_file(const char *path, char **text_p, size_t *n_p,
                                   struct merak_error *err)
{
    bool piped = strcmp(path, "-") == 0;
    FILE *in = piped ? stdin : fopen(path, "re"), *out;
    char room[4096];
    size_t n;

    if (in == NULL)
        return merak_fail(err, MERAK_ERR_NOT_FOUND, "%s: %s", path,
                          strerror(errno));
    out = open_memstream(text_p, n_p);
    while (out != NULL && (n = fread(room, 1, sizeof(room), in)) > 0)
        fwrite(room, 1, n, out);
    if (ferror(in))
        merak_fail(err, MERAK_ERR_IO, "cannot read %s", path);
    else if (out == NULL || ferror(out))
        merak_fail_nomem(err, sizeof(room));
    else
        err->status = MERAK_OK;
    if (out != NULL)
        fclose(out);
    if (!piped)
        fclose(in);
    return err->status;
}

static enum merak_status parse_ids(const char *text, struct merak_ids *ids,
                                   struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (;;) {
        char *end;
        long id;

        text += strspn(text, " \t\r\n,");
        if (*text == '\0' || rc != MERAK_OK)
            return rc;
        errno = 0;
        id = strtol(text, &end, 10);
        if (end == text || errno != 0 || id < 0 || id > INT32_MAX)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "--ids: \"%.20s\" is not a token id", text);
        rc = merak_ids_add(ids, &(int32_t){(int32_t)id}, 1, err);
        text = end;
    }
}

static enum merak_status encode(const struct job *job, struct merak_lm *lm,
                                struct merak_ids *ids, struct merak_error *err)
{
    const char *text = job->prompt;
    char *read = NULL;
    size_t n = text != NULL ? strlen(text) : 0;
    enum merak_status rc = MERAK_OK;

    if (text == NULL) {
        rc = read_file(job->prompt_file, &read, &n, err);
        text = read;
    }
    if (rc == MERAK_OK)
        rc = job->ids ? parse_ids(text, ids, err)
                      : merak_tokenizer_encode_whole(lm->tokenizer, text, n,
                                                     merak_ids_add, ids, err);
    free(read);
    if (rc == MERAK_OK && ids->n == 0)
        rc = merak_fail(err, MERAK_ERR_CONFIG,
                        "the prompt has no tokens: give at least one");
    return rc;
}

/* --- the text ------------------------------------------------------------ */

static bool is_end(const struct merak_lm *lm, int32_t id)
{
    for (int i = 0; i < lm->n_ends; i++) {
        if (lm->end[i] == id)
            return true;
    }
    return false;
}

/* Print text as it is generated; a character whose bytes are in several tokens
 * is printed when it is complete. */
static enum merak_status show(const struct job *job, struct merak_text *text,
                              int32_t id, struct merak_error *err)
{
    const char *bytes;
    size_t n;
    enum merak_status rc;

    if (job->ids) {
        printf("%d\n", (int)id);
        return MERAK_OK;
    }
    rc = merak_text_add(text, id, &bytes, &n, err);
    if (rc == MERAK_OK) {
        fwrite(bytes, 1, n, stdout);
        fflush(stdout);
    }
    return rc;
}

struct timing {
    size_t prompt, made;
    int64_t start, first, end; /* ns */
};

static enum merak_status go_on(const struct job *job, struct merak_lm *lm,
                               const struct merak_ids *prompt,
                               struct merak_sampler *sampler,
                               struct merak_text *text, struct timing *t,
                               struct merak_error *err)
{
    const float *logits = NULL;
    enum merak_status rc;

    t->start = merak_clock_ns();
    rc = merak_decoder_next(lm->decoder, prompt->id, prompt->n, &logits, err);
    t->first = merak_clock_ns();
    while (rc == MERAK_OK) {
        int32_t id = merak_sampler_next(sampler, logits, prompt->n + t->made);

        if (!job->ignore_eod && is_end(lm, id))
            break;
        rc = show(job, text, id, err);
        t->made++;
        if (rc != MERAK_OK || t->made == job->tokens)
            break;
        rc = merak_decoder_next(lm->decoder, &id, 1, &logits, err);
    }
    t->end = merak_clock_ns();
    return rc;
}

static void print_timing(const struct timing *t)
{
    double prompt = (double)(t->first - t->start) * 1e-9;
    double rest = (double)(t->end - t->first) * 1e-9;

    fprintf(stderr,
            "merak generate: prompt of %zu tokens in %.2f s, %zu tokens in "
            "%.2f s",
            t->prompt, prompt, t->made, rest);
    if (t->made > 1 && rest > 0)
        fprintf(stderr, ", %.1f a second", (double)(t->made - 1) / rest);
    fputc('\n', stderr);
}

static enum merak_status generate(const struct job *job, struct merak_lm *lm,
                                  const struct merak_ids *prompt,
                                  struct timing *t, struct merak_error *err)
{
    const struct merak_sampling how = {job->temperature, job->top_k, job->top_p,
                                       job->seed};
    struct merak_sampler *sampler = NULL;
    struct merak_text text;
    enum merak_status rc;

    if (prompt->n > lm->config.positions ||
        job->tokens > lm->config.positions - prompt->n)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "a prompt of %zu tokens and --tokens %zu are more "
                          "than the model's %zu positions",
                          prompt->n, job->tokens, lm->config.positions);
    rc = merak_lm_load(lm, &job->lm, prompt->n + job->tokens, true, err);
    if (rc == MERAK_OK)
        rc = merak_sampler_create(&how, merak_decoder_vocab(lm->decoder),
                                  &sampler, err);
    merak_text_begin(&text, lm->tokenizer);
    t->prompt = prompt->n;
    if (rc == MERAK_OK)
        rc = go_on(job, lm, prompt, sampler, &text, t, err);
    if (rc == MERAK_OK && !job->ids) {
        size_t n;
        const char *rest = merak_text_end(&text, &n);

        fwrite(rest, 1, n, stdout);
        putchar('\n');
    }
    merak_text_fini(&text);
    merak_sampler_destroy(sampler);
    return rc;
}

/* --- the command --------------------------------------------------------- */

static enum merak_status check(const struct job *job, struct merak_error *err)
{
    if ((job->prompt == NULL) == (job->prompt_file == NULL))
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "give --prompt TEXT or --prompt-file FILE%s",
                          job->prompt == NULL ? "" : ", not both");
    return MERAK_OK;
}

static void print_help(void)
{
    puts("usage: merak generate --ckpt DIR --prompt TEXT [OPTION]...\n"
         "\n"
         "Continue the prompt, token by token; the text is printed as it "
         "comes.\n");
    merak_options_help(&table, stdout);
    puts("\nmerak-generate(1) has the rest.");
}

int merak_cmd_generate(int argc, char **argv)
{
    struct job job = {.tokens = 128, .top_p = 1};
    struct merak_lm lm = {0};
    struct merak_ids prompt = {0};
    struct timing timing = {0};
    struct merak_error err = {.text = ""};
    bool help = false;
    enum merak_status rc;
    int code = MERAK_EXIT_DONE;

    rc = merak_options_parse(&table, argc, argv, &job, &help, &err);
    if (rc == MERAK_OK && help) {
        print_help();
        return merak_cmd_flush("generate", MERAK_EXIT_DONE);
    }
    if (rc == MERAK_OK)
        rc = check(&job, &err);
    if (rc == MERAK_OK)
        rc = merak_lm_open(&job.lm, !job.ids, &lm, &err);
    if (rc == MERAK_OK)
        rc = encode(&job, &lm, &prompt, &err);
    if (rc == MERAK_OK)
        rc = generate(&job, &lm, &prompt, &timing, &err);
    if (rc == MERAK_OK) {
        code = merak_cmd_flush("generate", MERAK_EXIT_DONE);
        print_timing(&timing);
    } else {
        fflush(stdout);
        code = merak_cmd_failed("generate", rc, &err);
    }
    free(prompt.id);
    merak_lm_close(&lm);
    return code;
}
