/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_generate.c - `merak generate`: a model continues a text */
#include "config.h"

#include "cmd/cmd.h"
#include "cmd/finish.h"
#include "cmd/json_line.h"
#include "cmd/language_model.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/options.h"
#include "base/size.h"
#include "io/generation_config.h"
#include "runtime/infer/logit_rules.h"
#include "runtime/infer/next_token.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_TOKENS 128

struct job {
    struct merak_lm_options lm;
    const char *prompt, *prompt_file;
    bool ids, ignore_eod, json;
    size_t tokens, top_k;
    double temperature, top_p;
    uint64_t seed;
};

static const struct merak_option rows[] = {
    MERAK_LM_ROWS(struct job),
    {"prompt", MERAK_OPTION_TEXT, offsetof(struct job, prompt),
     .about = "the text to continue", .arg = "TEXT", .may_be_empty = true},
    {"prompt-file", MERAK_OPTION_TEXT, offsetof(struct job, prompt_file),
     .about = "the same from a file; - is standard input", .arg = "FILE"},
    {"ids", MERAK_OPTION_YES, offsetof(struct job, ids),
     .about = "the prompt is token ids, and ids are printed: no tokenizer"},
    {"tokens", MERAK_OPTION_SIZE, offsetof(struct job, tokens),
     .about = "tokens to generate, at most (max_new_tokens of the model's "
              "generation_config.json or 128; no more than fit)",
     .least = 1},
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
    {"json", MERAK_OPTION_YES, offsetof(struct job, json),
     .about = "print prompt, text and why it ended as a line of JSON"},
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

struct prompt {
    char *text; /* free() */
    size_t n;
};

static enum merak_status read_prompt(const struct job *job,
                                     struct prompt *prompt,
                                     struct merak_error *err)
{
    if (job->prompt == NULL)
        return read_file(job->prompt_file, &prompt->text, &prompt->n, err);
    prompt->n = strlen(job->prompt);
    prompt->text = strdup(job->prompt);
    return prompt->text != NULL ? MERAK_OK
                                : merak_fail_nomem(err, prompt->n + 1);
}

static enum merak_status encode(const struct job *job, struct merak_lm *lm,
                                const struct prompt *prompt,
                                struct merak_ids *ids, struct merak_error *err)
{
    enum merak_status rc =
        job->ids
            ? parse_ids(prompt->text, ids, err)
            : merak_tokenizer_encode_whole(lm->tokenizer, prompt->text,
                                           prompt->n, merak_ids_add, ids, err);

    if (rc == MERAK_OK && ids->n == 0)
        rc = merak_fail(err, MERAK_ERR_CONFIG,
                        "the prompt has no tokens: give at least one");
    return rc;
}

/* The token that the tokenizer puts in front of a text, before a text that
 * begins with it: nothing that was trained on looks like that. */
static void warn_of_twice(const struct merak_lm *lm,
                          const struct merak_ids *ids)
{
    if (lm->tokenizer != NULL && ids->n > 1 && ids->id[0] == ids->id[1] &&
        merak_tokenizer_is_special(lm->tokenizer, ids->id[0]))
        merak_warn("cmd",
                   "the prompt begins with token %d twice: the tokenizer puts "
                   "it in front; leave it out of the prompt",
                   (int)ids->id[0]);
}

/* --- what the model's folder says ---------------------------------------- */

/* What it says about sampling is for the options to say. */
static void name_sampling(const struct job *job,
                          const struct merak_generation_config *c)
{
    char text[160] = "";
    size_t n = 0;

    if (!c->samples)
        return;
    if (job->temperature <= 0 && c->temperature > 0)
        n += (size_t)snprintf(text + n, sizeof(text) - n, " --temperature %g",
                              c->temperature);
    if (job->top_k == 0 && c->top_k > 0)
        n += (size_t)snprintf(text + n, sizeof(text) - n, " --top-k %zu",
                              c->top_k);
    if (job->top_p >= 1 && c->top_p < 1)
        snprintf(text + n, sizeof(text) - n, " --top-p %g", c->top_p);
    if (text[0] != '\0')
        merak_info("cmd",
                   "the model's generation_config.json would sample with"
                   "%s, which is not done unless asked for",
                   text);
}

/* As transformers takes them: the ends of the folder's file, if it has any,
 * are the only ones.  A tokenizer that was given knows its own, too. */
static enum merak_status read_rules(const struct job *job, struct merak_lm *lm,
                                    struct merak_generation_config *c,
                                    struct merak_error *err)
{
    int32_t eod =
        lm->tokenizer != NULL ? merak_tokenizer_eod(lm->tokenizer) : -1;
    enum merak_status rc =
        merak_generation_config_read(lm->folder, lm->config.vocab, c, err);

    if (rc != MERAK_OK)
        return rc;
    if (eod >= 0 && (c->ends.n == 0 || job->lm.tokenizer != NULL))
        rc = merak_token_list_add(&c->ends, eod, err);
    if (c->ignored[0] != '\0')
        merak_warn("cmd",
                   "of the model's generation_config.json these are not "
                   "obeyed: %s",
                   c->ignored);
    name_sampling(job, c);
    return rc;
}

/* --tokens, or as many as the model's folder says and fit. */
static enum merak_status count_tokens(const struct job *job,
                                      const struct merak_lm *lm,
                                      const struct merak_generation_config *c,
                                      size_t prompt, size_t *n_p,
                                      struct merak_error *err)
{
    size_t positions = lm->config.positions, most = positions;
    size_t n = c->max_new > 0 ? c->max_new : DEFAULT_TOKENS;

    if (c->max_tokens > prompt && c->max_tokens < most)
        most = c->max_tokens;
    if (prompt >= positions)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "a prompt of %zu tokens leaves no room for another "
                          "in the model's %zu positions",
                          prompt, positions);
    if (job->tokens > positions - prompt)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "a prompt of %zu tokens and --tokens %zu are more "
                          "than the model's %zu positions",
                          prompt, job->tokens, positions);
    if (job->tokens > 0)
        n = job->tokens;
    else if (n > most - prompt)
        n = most - prompt;
    *n_p = n;
    return MERAK_OK;
}

/* --- the text ------------------------------------------------------------ */

/* A text that is being made. */
struct making {
    const struct job *job;
    struct merak_lm *lm;
    struct merak_ids *ids; /* prompt and text */
    const struct merak_generation_config *rules;
    struct merak_sampler *sampler;
    struct merak_text text;
    FILE *out;     /* of the text: standard output, or for --json memory */
    float *logits; /* [vocab] under the rules */
    size_t prompt, tokens;
    size_t silent; /* ids without a token */
    bool stopped;  /* by a token that ends a text */
};

/* The id that comes next. */
static enum merak_status choose(struct making *m, const float *logits,
                                int32_t *id_p, struct merak_error *err)
{
    size_t vocab = merak_decoder_vocab(m->lm->decoder);
    int32_t id;

    memcpy(m->logits, logits, vocab * sizeof(*logits));
    for (size_t i = 0; i < vocab; i++) {
        if (isnan(logits[i]))
            return merak_fail(err, MERAK_ERR_CORRUPT,
                              "after %zu tokens the model computes NaN: its "
                              "weights have numbers that are none or are too "
                              "large",
                              m->ids->n);
    }
    merak_logit_rules_apply(m->rules, m->ids->id, m->ids->n, m->prompt,
                            m->logits);
    id = merak_sampler_next(m->sampler, m->logits, m->ids->n);
    if (!isfinite(m->logits[id]))
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "after %zu tokens the model's generation_config.json "
                          "forbids all others",
                          m->ids->n);
    *id_p = id;
    return MERAK_OK;
}

/* Print text as it is generated; a character whose bytes are in several tokens
 * is printed when it is complete. */
static enum merak_status show(struct making *m, int32_t id,
                              struct merak_error *err)
{
    const char *bytes;
    size_t n;
    enum merak_status rc;

    if (m->job->ids) {
        fprintf(m->out, "%d\n", (int)id);
        return MERAK_OK;
    }
    /* vocabularies of models are often larger than their tokenizers' */
    if (merak_tokenizer_decode(m->lm->tokenizer, id, &bytes, &n, NULL) !=
        MERAK_OK) {
        m->silent++;
        return MERAK_OK;
    }
    rc = merak_text_add(&m->text, id, &bytes, &n, err);
    if (rc == MERAK_OK) {
        fwrite(bytes, 1, n, m->out);
        fflush(m->out);
    }
    return rc;
}

struct timing {
    size_t prompt, made;
    int64_t start, first, end; /* ns */
};

static enum merak_status go_on(struct making *m, struct timing *t,
                               struct merak_error *err)
{
    struct merak_decoder *decoder = m->lm->decoder;
    const float *logits = NULL;
    enum merak_status rc;
    int32_t id = -1;

    t->start = merak_clock_ns();
    rc = merak_decoder_next(decoder, m->ids->id, m->prompt, &logits, err);
    t->first = merak_clock_ns();
    while (rc == MERAK_OK) {
        rc = choose(m, logits, &id, err);
        m->stopped = rc == MERAK_OK && !m->job->ignore_eod &&
                     merak_token_list_has(&m->rules->ends, id);
        if (rc != MERAK_OK || m->stopped)
            break;
        rc = show(m, id, err);
        if (rc == MERAK_OK)
            rc = merak_ids_add(m->ids, &id, 1, err);
        t->made++;
        if (rc != MERAK_OK || t->made == m->tokens)
            break;
        rc = merak_decoder_next(decoder, &id, 1, &logits, err);
    }
    t->end = merak_clock_ns();
    return rc;
}

static void print_timing(const struct timing *t)
{
    double prompt = (double)(t->first - t->start) * 1e-9;
    double rest = (double)(t->end - t->first) * 1e-9;

    fprintf(stderr,
            "merak generate: prompt of %zu token%s in %.2f s, %zu token%s in "
            "%.2f s",
            t->prompt, merak_plural((long)t->prompt), prompt, t->made,
            merak_plural((long)t->made), rest);
    if (t->made > 1 && rest > 0)
        fprintf(stderr, ", %.1f a second", (double)(t->made - 1) / rest);
    fputc('\n', stderr);
}

static enum merak_status make_text(struct making *m, struct timing *t,
                                   struct merak_error *err)
{
    const struct job *job = m->job;
    const struct merak_sampling how = {job->temperature, job->top_k, job->top_p,
                                       job->seed};
    size_t vocab, n;
    enum merak_status rc;

    rc = merak_lm_load(m->lm, &job->lm, m->prompt + m->tokens, true, err);
    if (rc != MERAK_OK)
        return rc;
    vocab = merak_decoder_vocab(m->lm->decoder);
    m->logits = malloc(vocab * sizeof(*m->logits));
    if (m->logits == NULL)
        return merak_fail_nomem(err, vocab * sizeof(*m->logits));
    rc = merak_sampler_create(&how, vocab, &m->sampler, err);
    if (rc == MERAK_OK)
        rc = go_on(m, t, err);
    if (rc == MERAK_OK && !job->ids) {
        const char *rest = merak_text_end(&m->text, &n);

        fwrite(rest, 1, n, m->out);
        if (!job->json)
            putchar('\n');
    }
    if (m->silent > 0)
        merak_warn("cmd",
                   "%zu of the tokens are left out: the model's vocabulary of "
                   "%zu is larger than the tokenizer's %zu",
                   m->silent, vocab, merak_tokenizer_vocab(m->lm->tokenizer));
    return rc;
}

static json_t *json_ids(const int32_t *id, size_t n)
{
    json_t *all = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(all, json_integer(id[i]));
    return all;
}

/* Reasons of the end are called as servers of models call them.  With --ids
 * there is no text. */
static json_t *json_of(const struct making *m, const struct prompt *prompt,
                       const char *text, size_t n)
{
    const struct merak_ids *ids = m->ids;
    json_t *root =
        json_pack("{s:o, s:o, s:I, s:I, s:s}", "prompt",
                  m->job->ids ? json_ids(ids->id, m->prompt)
                              : merak_json_text(prompt->text, prompt->n),
                  "ids", json_ids(ids->id + m->prompt, ids->n - m->prompt),
                  "prompt_tokens", (json_int_t)m->prompt, "tokens",
                  (json_int_t)(ids->n - m->prompt), "finish_reason",
                  m->stopped ? "stop" : "length");

    if (!m->job->ids)
        json_object_set_new(root, "text", merak_json_text(text, n));
    return root;
}

/* As make_text(), and print it as JSON; *code_p: merak_cmd_flush_json(). */
static enum merak_status make_json(struct making *m,
                                   const struct prompt *prompt,
                                   struct timing *t, int *code_p,
                                   struct merak_error *err)
{
    char *text = NULL;
    size_t n = 0;
    enum merak_status rc;

    m->out = open_memstream(&text, &n);
    if (m->out == NULL)
        return merak_fail_nomem(err, 0);
    rc = make_text(m, t, err);
    if (fclose(m->out) != 0 && rc == MERAK_OK)
        rc = merak_fail_nomem(err, n);
    if (rc == MERAK_OK)
        *code_p = merak_cmd_flush_json("generate", json_of(m, prompt, text, n),
                                       MERAK_EXIT_DONE);
    free(text);
    return rc;
}

static enum merak_status generate(const struct job *job, struct merak_lm *lm,
                                  const struct prompt *prompt,
                                  struct merak_ids *ids, struct timing *t,
                                  int *code_p, struct merak_error *err)
{
    struct merak_generation_config rules = {.samples = false};
    struct making m = {.job = job,
                       .lm = lm,
                       .ids = ids,
                       .rules = &rules,
                       .out = stdout,
                       .prompt = ids->n};
    enum merak_status rc;

    t->prompt = ids->n;
    warn_of_twice(lm, ids);
    merak_text_begin(&m.text, lm->tokenizer);
    rc = read_rules(job, lm, &rules, err);
    if (rc == MERAK_OK)
        rc = count_tokens(job, lm, &rules, ids->n, &m.tokens, err);
    if (rc == MERAK_OK && job->json)
        rc = make_json(&m, prompt, t, code_p, err);
    else if (rc == MERAK_OK)
        rc = make_text(&m, t, err);
    merak_text_fini(&m.text);
    merak_sampler_destroy(m.sampler);
    free(m.logits);
    merak_generation_config_fini(&rules);
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
    struct job job = {.top_p = 1};
    struct merak_lm lm = {0};
    struct prompt prompt = {0};
    struct merak_ids ids = {0};
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
        rc = read_prompt(&job, &prompt, &err);
    if (rc == MERAK_OK)
        rc = encode(&job, &lm, &prompt, &ids, &err);
    if (rc == MERAK_OK)
        rc = generate(&job, &lm, &prompt, &ids, &timing, &code, &err);
    if (rc == MERAK_OK) {
        if (!job.json)
            code = merak_cmd_flush("generate", MERAK_EXIT_DONE);
        print_timing(&timing);
    } else {
        fflush(stdout);
        code = merak_cmd_failed("generate", rc, &err);
    }
    free(prompt.text);
    free(ids.id);
    merak_lm_close(&lm);
    return code;
}
