/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_eval.c - `merak eval`: the likelihood of token files, of one of several
 * answers, or of pairs of them for training on preferences
 */
#include "config.h"

#include "cmd/cmd.h"
#include "cmd/eval.h"
#include "cmd/finish.h"

#include "base/error.h"
#include "base/json_number.h"
#include "base/options.h"
#include "io/tokens/tokens.h"
#include "runtime/runtime.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct merak_option rows[] = {
    MERAK_LM_ROWS(struct merak_eval),
    {"data", MERAK_OPTION_TEXT, offsetof(struct merak_eval, data),
     .about = "token files, as merak train takes them", .arg = "DATA"},
    {"seq", MERAK_OPTION_SIZE, offsetof(struct merak_eval, seq),
     .about = "tokens in a sequence, or the most in a prompt with a choice "
              "(256, or the model's if fewer)",
     .least = 1},
    {"valid-fraction", MERAK_OPTION_REAL,
     offsetof(struct merak_eval, valid_fraction),
     .about = "evaluate only this tail of every file (all of it)", .most = 1,
     .positive = true},
    {"packing", MERAK_OPTION_WORD, offsetof(struct merak_eval, packing),
     .about = "documents into sequences, as in training (auto: best-fit where "
              "answers are marked)",
     .words = "auto|stream|best-fit"},
    {"doc-mask", MERAK_OPTION_YES, offsetof(struct merak_eval, doc_mask),
     .about = "each document of a sequence separately, from position 0"},
    {"samples", MERAK_OPTION_COUNT, offsetof(struct merak_eval, samples),
     .about = "the first so many sequences of --data; 0: all (0)"},
    {"choices", MERAK_OPTION_TEXT, offsetof(struct merak_eval, choices),
     .about = "JSON lines with prompt, choices and answer", .arg = "FILE"},
    {"reference", MERAK_OPTION_YES, offsetof(struct merak_eval, reference),
     .about = "write the losses of pairs of answers to PREFIX.ref beside "
              "--data, for training on preferences"},
    {"json", MERAK_OPTION_YES, offsetof(struct merak_eval, json),
     .about = "print the results as a line of JSON"},
};
static const struct merak_option_table table = {rows,
                                                sizeof(rows) / sizeof(rows[0])};

/* --- token files ---------------------------------------------------------- */

struct totals {
    double nll; /* nats */
    uint64_t tokens, bytes;
};

/* Bytes of text of the targets; special tokens have none. */
static enum merak_status count_bytes(const struct merak_lm *lm,
                                     const int32_t *ids, size_t n,
                                     struct totals *t, struct merak_error *err)
{
    for (size_t i = 0; lm->tokenizer != NULL && i < n; i++) {
        enum merak_status rc;
        const char *text;
        size_t bytes;

        if (ids[i] == MERAK_NO_TARGET ||
            merak_tokenizer_is_special(lm->tokenizer, ids[i]))
            continue;
        rc = merak_tokenizer_decode(lm->tokenizer, ids[i], &text, &bytes, err);
        if (rc != MERAK_OK)
            return rc;
        t->bytes += bytes;
    }
    return MERAK_OK;
}

/* The data to evaluate, and room for a sequence. */
struct judge {
    const struct merak_data *data;
    enum merak_split split;
    size_t seq;
    bool by_document;
    int32_t *tokens, *targets, *starts;
    float *nll;
};

/* The end of the document that begins at i; without documents, of the
 * sequence. */
static size_t document_end(const struct judge *j, size_t i)
{
    size_t end = i + 1;

    while (end < j->seq && (!j->by_document || j->starts[end] == j->starts[i]))
        end++;
    return end;
}

static bool has_target(const struct judge *j, size_t from, size_t end)
{
    while (from < end && j->targets[from] == MERAK_NO_TARGET)
        from++;
    return from < end;
}

/* Documents do not attend to each other: each is a separate sequence. */
static enum merak_status score(const struct judge *j, struct merak_lm *lm,
                               struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (size_t i = 0, end; i < j->seq && rc == MERAK_OK; i = end) {
        end = document_end(j, i);
        memset(j->nll + i, 0, (end - i) * sizeof(*j->nll));
        if (!has_target(j, i, end))
            continue;
        merak_decoder_rewind(lm->decoder, 0);
        rc = merak_decoder_score(lm->decoder, j->tokens + i, j->targets + i,
                                 end - i, j->nll + i, err);
    }
    return rc;
}

static enum merak_status judge_sample(const struct judge *j,
                                      struct merak_lm *lm, uint64_t index,
                                      struct totals *t, struct merak_error *err)
{
    enum merak_status rc =
        merak_data_sample(j->data, j->split, index, j->tokens, j->targets, err);

    if (rc == MERAK_OK && j->by_document)
        rc = merak_data_starts(j->data, j->split, index, j->starts, err);
    if (rc == MERAK_OK)
        rc = score(j, lm, err);
    for (size_t i = 0; rc == MERAK_OK && i < j->seq; i++)
        t->nll += (double)j->nll[i];
    t->tokens += merak_data_counted(j->data, j->split, index, 1);
    return rc == MERAK_OK ? count_bytes(lm, j->targets, j->seq, t, err) : rc;
}

static enum merak_status judge_all(const struct merak_eval *eval,
                                   struct merak_lm *lm,
                                   const struct merak_data *data, size_t seq,
                                   struct totals *t, struct merak_error *err)
{
    enum merak_split split =
        eval->valid_fraction > 0 ? MERAK_VALID : MERAK_TRAIN;
    uint64_t n = merak_data_samples(data, split);
    int32_t *ids = malloc(3 * seq * sizeof(*ids));
    struct judge j = {.data = data,
                      .split = split,
                      .seq = seq,
                      .by_document = eval->doc_mask,
                      .tokens = ids,
                      .targets = ids + seq,
                      .starts = ids + 2 * seq,
                      .nll = malloc(seq * sizeof(float))};
    enum merak_status rc = MERAK_OK;

    if (ids == NULL || j.nll == NULL)
        rc = merak_fail_nomem(err, 3 * seq * sizeof(*ids));
    else if (n == 0)
        rc = merak_fail(err, MERAK_ERR_MISMATCH,
                        "--data has no sequence of %zu tokens", seq);
    if (eval->samples > 0 && n > eval->samples)
        n = eval->samples;
    for (uint64_t i = 0; i < n && rc == MERAK_OK; i++)
        rc = judge_sample(&j, lm, i, t, err);
    if (rc == MERAK_OK && t->tokens == 0)
        rc = merak_fail(err, MERAK_ERR_MISMATCH,
                        "--data has no token to predict in the %" PRIu64
                        " sequences that are evaluated",
                        n);
    free(ids);
    free(j.nll);
    return rc;
}

static void print_totals(const struct merak_eval *eval, const struct totals *t)
{
    double loss = t->nll / (double)t->tokens;
    double bits = t->bytes > 0 ? t->nll / log(2) / (double)t->bytes : 0;

    if (eval->json) {
        struct merak_json_number a, b;

        printf("{\"loss\": %s, \"perplexity\": %s, \"tokens\": %" PRIu64,
               merak_json_number(&a, 9, loss),
               merak_json_number(&b, 9, exp(loss)), t->tokens);
        if (t->bytes > 0)
            printf(", \"bits_per_byte\": %s, \"bytes\": %" PRIu64,
                   merak_json_number(&a, 9, bits), t->bytes);
        puts("}");
        return;
    }
    printf("loss            %.4f nats a token\nperplexity      %.4f\n", loss,
           exp(loss));
    if (t->bytes > 0)
        printf("bits per byte   %.4f\n", bits);
    printf("of              %" PRIu64 " tokens", t->tokens);
    if (t->bytes > 0)
        printf(", %" PRIu64 " bytes", t->bytes);
    putchar('\n');
}

static enum merak_status judge_data(const struct merak_eval *eval,
                                    struct merak_lm *lm,
                                    struct merak_error *err)
{
    size_t seq = eval->seq;
    const struct merak_data_options opt = {.spec = eval->data,
                                           .seq = seq,
                                           .valid_fraction =
                                               eval->valid_fraction,
                                           .vocab = lm->config.vocab,
                                           .packing = eval->packing,
                                           .in_order = true,
                                           .documents = eval->doc_mask};
    struct merak_data *data = NULL;
    struct totals t = {0};
    enum merak_status rc = merak_data_open(&opt, &data, err);

    if (rc == MERAK_OK)
        rc = merak_lm_load(lm, &eval->lm, seq, false, err);
    if (rc == MERAK_OK)
        rc = judge_all(eval, lm, data, seq, &t, err);
    merak_data_close(data);
    if (rc == MERAK_OK)
        print_totals(eval, &t);
    return rc;
}

/* --- the command ---------------------------------------------------------- */

static enum merak_status check(const struct merak_eval *eval,
                               struct merak_error *err)
{
    if ((eval->data == NULL) == (eval->choices == NULL))
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "give --data DATA or --choices FILE%s",
                          eval->data == NULL ? "" : ", not both");
    if (eval->reference &&
        (eval->data == NULL || eval->valid_fraction > 0 || eval->samples > 0 ||
         eval->packing != MERAK_PACKING_AUTO))
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--reference is of every pair of answers in --data, "
                          "each by itself: leave out --choices, "
                          "--valid-fraction, --samples and --packing");
    return MERAK_OK;
}

static void print_help(void)
{
    puts("usage: merak eval --ckpt DIR --data DATA [OPTION]...\n"
         "       merak eval --ckpt DIR --choices FILE [OPTION]...\n"
         "       merak eval --ckpt DIR --data DATA --reference [OPTION]...\n"
         "\n"
         "Loss, perplexity and bits per byte of token files; which of several\n"
         "answers is the likeliest; or the losses that training on "
         "preferences\n"
         "starts from.\n");
    merak_options_help(&table, stdout);
    puts("\nmerak-eval(1) has the rest.");
}

int merak_cmd_eval(int argc, char **argv)
{
    struct merak_eval eval = {.data = NULL};
    struct merak_lm lm = {.tokenizer = NULL};
    struct merak_error err = {.text = ""};
    bool help = false;
    enum merak_status rc;
    int code;

    rc = merak_options_parse(&table, argc, argv, &eval, &help, &err);
    if (rc == MERAK_OK && help) {
        print_help();
        return merak_cmd_flush("eval", MERAK_EXIT_DONE);
    }
    if (rc == MERAK_OK)
        rc = check(&eval, &err);
    if (rc == MERAK_OK)
        rc = merak_lm_open(&eval.lm, eval.choices != NULL, &lm, &err);
    if (rc == MERAK_OK && eval.seq == 0 && !eval.reference)
        eval.seq = merak_default_seq(lm.config.positions);
    if (rc == MERAK_OK)
        rc = eval.reference      ? merak_eval_reference(&eval, &lm, &err)
             : eval.data != NULL ? judge_data(&eval, &lm, &err)
                                 : merak_eval_choices(&eval, &lm, &err);
    code = rc == MERAK_OK ? merak_cmd_flush("eval", MERAK_EXIT_DONE)
                          : merak_cmd_failed("eval", rc, &err);
    merak_lm_close(&lm);
    merak_cmd_die_of_stop();
    return code;
}
