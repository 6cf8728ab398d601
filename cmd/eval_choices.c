/* SPDX-License-Identifier: Apache-2.0 */
/* eval_choices.c - which of several answers is the likeliest
 *
 * A line of the file is {"prompt": TEXT, "choices": [TEXT, ..], "answer": N},
 * with the optional answer counted from 0.  The tokens of a choice are those
 * of prompt and choice together after those of the prompt alone; if these do
 * not agree, from where they begin to differ.
 */
#include "config.h"

#include "cmd/eval.h"

#include "base/error.h"
#include "base/json_number.h"
#include "base/open.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct question {
    const char *prompt;
    json_t *choices;
    int answer; /* -1: not given */
};

struct tally {
    uint64_t questions, answered, right, right_by_byte;
};

struct reader {
    const struct merak_eval *eval;
    struct merak_lm *lm;
    struct merak_ids prompt, whole;
    struct merak_ids kept; /* the decoder's sequence */
    float *nll;
    size_t line;
    struct tally tally;
    struct merak_error *err;
};

static enum merak_status bad_line(struct reader *r, const char *what)
{
    return merak_fail(r->err, MERAK_ERR_FORMAT, "%s, line %zu: %s",
                      r->eval->choices, r->line, what);
}

static enum merak_status parse(struct reader *r, json_t *root,
                               struct question *q)
{
    json_t *answer = json_object_get(root, "answer"), *choice;
    size_t i;

    q->prompt = json_string_value(json_object_get(root, "prompt"));
    q->choices = json_object_get(root, "choices");
    q->answer = -1;
    if (q->prompt == NULL)
        return bad_line(r, "no text under \"prompt\"");
    if (json_array_size(q->choices) == 0)
        return bad_line(r, "no list under \"choices\"");
    json_array_foreach(q->choices, i, choice)
    {
        if (json_string_length(choice) == 0)
            return bad_line(r, "a choice is not a text of at least a byte");
    }
    if (answer == NULL || json_is_null(answer))
        return MERAK_OK;
    if (!json_is_integer(answer) || json_integer_value(answer) < 0 ||
        (size_t)json_integer_value(answer) >= json_array_size(q->choices))
        return bad_line(r, "\"answer\" is not the number of a choice, from 0");
    q->answer = (int)json_integer_value(answer);
    return MERAK_OK;
}

/* --- one choice ----------------------------------------------------------- */

static enum merak_status encode(struct reader *r, const char *a, const char *b,
                                struct merak_ids *ids)
{
    size_t n = strlen(a), m = strlen(b);
    char *text = malloc(n + m + 1);
    int32_t eod = merak_tokenizer_eod(r->lm->tokenizer);
    enum merak_status rc;

    ids->n = 0;
    if (text == NULL)
        return merak_fail_nomem(r->err, n + m + 1);
    memcpy(text, a, n);
    memcpy(text + n, b, m + 1);
    rc = merak_tokenizer_encode_whole(r->lm->tokenizer, text, n + m,
                                      merak_ids_add, ids, r->err);
    free(text);
    /* the first token needs a context: use the end of a document */
    if (rc == MERAK_OK && n == 0 && eod >= 0 &&
        (ids->n == 0 || ids->id[0] != eod)) {
        rc = merak_ids_add(ids, &eod, 1, r->err);
        if (rc == MERAK_OK && ids->n > 1) {
            memmove(ids->id + 1, ids->id, (ids->n - 1) * sizeof(*ids->id));
            ids->id[0] = eod;
        }
    }
    return rc;
}

static size_t common(const struct merak_ids *a, const struct merak_ids *b)
{
    size_t n = 0;

    while (n < a->n && n < b->n && a->id[n] == b->id[n])
        n++;
    return n;
}

/* Log-likelihood of the tokens of r->whole from `start` on.  Tokens that the
 * decoder already has are reused. */
static enum merak_status judge(struct reader *r, size_t start, double *sum_p)
{
    struct merak_decoder *d = r->lm->decoder;
    size_t n = r->whole.n - 1, kept = common(&r->kept, &r->whole);
    enum merak_status rc = MERAK_OK;

    kept = kept < start - 1 ? kept : start - 1;
    kept = kept < n ? kept : n;
    merak_decoder_rewind(d, kept);
    if (kept < start - 1)
        rc = merak_decoder_next(d, r->whole.id + kept, start - 1 - kept, NULL,
                                r->err);
    if (rc == MERAK_OK)
        rc =
            merak_decoder_score(d, r->whole.id + start - 1, r->whole.id + start,
                                n - (start - 1), r->nll, r->err);
    r->kept.n = 0;
    if (rc == MERAK_OK)
        rc = merak_ids_add(&r->kept, r->whole.id, n, r->err);
    *sum_p = 0;
    for (size_t i = 0; rc == MERAK_OK && i < n - (start - 1); i++)
        *sum_p -= (double)r->nll[i];
    return rc;
}

static enum merak_status judge_choice(struct reader *r,
                                      const struct question *q,
                                      const char *choice, double *sum_p,
                                      size_t *tokens_p)
{
    enum merak_status rc = encode(r, q->prompt, choice, &r->whole);
    size_t start;

    if (rc != MERAK_OK)
        return rc;
    start = common(&r->prompt, &r->whole);
    if (start == 0 || start == r->whole.n)
        return bad_line(r, "a choice has no token of its own after the "
                           "prompt's: give a prompt");
    if (r->whole.n > r->eval->seq)
        return merak_fail(r->err, MERAK_ERR_CONFIG,
                          "%s, line %zu: %zu tokens, more than --seq %zu",
                          r->eval->choices, r->line, r->whole.n, r->eval->seq);
    *tokens_p = r->whole.n - start;
    return judge(r, start, sum_p);
}

/* --- one question --------------------------------------------------------- */

static void print_line(const struct question *q, const double *sum,
                       const size_t *tokens, size_t best)
{
    size_t n = json_array_size(q->choices);
    struct merak_json_number room;

    printf("{\"loglikelihood\": [");
    for (size_t i = 0; i < n; i++)
        printf("%s%s", i > 0 ? ", " : "", merak_json_number(&room, 9, sum[i]));
    printf("], \"tokens\": [");
    for (size_t i = 0; i < n; i++)
        printf("%s%zu", i > 0 ? ", " : "", tokens[i]);
    if (isnan(sum[best]))
        printf("], \"best\": null");
    else
        printf("], \"best\": %zu", best);
    if (q->answer >= 0)
        printf(", \"answer\": %d", q->answer);
    puts("}");
}

static void count(struct tally *t, const struct question *q, const double *sum,
                  size_t *best_p)
{
    size_t n = json_array_size(q->choices), best = 0, by_byte = 0;

    for (size_t i = 1; i < n; i++) {
        double bytes =
            (double)json_string_length(json_array_get(q->choices, i));
        double most =
            (double)json_string_length(json_array_get(q->choices, by_byte));

        best = sum[i] > sum[best] || isnan(sum[i]) ? i : best;
        by_byte = sum[i] / bytes > sum[by_byte] / most ? i : by_byte;
    }
    t->questions++;
    t->answered += q->answer >= 0;
    if (q->answer >= 0 && !isnan(sum[best])) {
        t->right += best == (size_t)q->answer;
        t->right_by_byte += by_byte == (size_t)q->answer;
    }
    *best_p = best;
}

static enum merak_status ask(struct reader *r, const struct question *q)
{
    size_t n = json_array_size(q->choices), best;
    double *sum = calloc(n, sizeof(*sum));
    size_t *tokens = calloc(n, sizeof(*tokens));
    enum merak_status rc = encode(r, q->prompt, "", &r->prompt);

    if (sum == NULL || tokens == NULL)
        rc = merak_fail_nomem(r->err, n * sizeof(*sum));
    for (size_t i = 0; i < n && rc == MERAK_OK; i++)
        rc =
            judge_choice(r, q, json_string_value(json_array_get(q->choices, i)),
                         &sum[i], &tokens[i]);
    if (rc == MERAK_OK) {
        count(&r->tally, q, sum, &best);
        print_line(q, sum, tokens, best);
    }
    free(sum);
    free(tokens);
    return rc;
}

static enum merak_status take_line(struct reader *r, const char *text, size_t n)
{
    struct question q = {.answer = -1};
    json_error_t bad;
    json_t *root;
    enum merak_status rc;

    r->line++;
    if (strspn(text, " \t\r\n") == n)
        return MERAK_OK;
    root = json_loadb(text, n, 0, &bad);
    if (root == NULL)
        return merak_fail(r->err, MERAK_ERR_FORMAT,
                          "%s, line %zu: not JSON: %s", r->eval->choices,
                          r->line, bad.text);
    rc = parse(r, root, &q);
    if (rc == MERAK_OK)
        rc = ask(r, &q);
    json_decref(root);
    return rc;
}

static enum merak_status read_lines(struct reader *r, FILE *in)
{
    enum merak_status rc = MERAK_OK;
    char *text = NULL;
    size_t room = 0;
    ssize_t n;

    while (rc == MERAK_OK && (n = getline(&text, &room, in)) >= 0)
        rc = take_line(r, text, (size_t)n);
    if (rc == MERAK_OK && ferror(in))
        rc = merak_fail(r->err, MERAK_ERR_IO, "cannot read %s",
                        r->eval->choices);
    free(text);
    return rc;
}

static void print_tally(const struct tally *t)
{
    fprintf(stderr, "merak eval: %llu questions",
            (unsigned long long)t->questions);
    if (t->answered > 0)
        fprintf(stderr,
                ", %.2f %% right by log-likelihood, %.2f %% by log-likelihood "
                "a byte",
                100.0 * (double)t->right / (double)t->answered,
                100.0 * (double)t->right_by_byte / (double)t->answered);
    fputc('\n', stderr);
}

enum merak_status merak_eval_choices(const struct merak_eval *eval,
                                     struct merak_lm *lm,
                                     struct merak_error *err)
{
    struct reader r = {.eval = eval, .lm = lm, .err = err};
    FILE *in = NULL;
    const char *why = merak_fopen_regular(eval->choices, &in);
    enum merak_status rc;

    if (why != NULL)
        return merak_fail(err, MERAK_ERR_NOT_FOUND, "%s: %s", eval->choices,
                          why);
    r.nll = malloc(eval->seq * sizeof(*r.nll));
    rc = r.nll != NULL ? merak_lm_load(lm, &eval->lm, eval->seq, true, err)
                       : merak_fail_nomem(err, eval->seq * sizeof(*r.nll));
    if (rc == MERAK_OK)
        rc = read_lines(&r, in);
    fclose(in);
    free(r.nll);
    free(r.prompt.id);
    free(r.whole.id);
    free(r.kept.id);
    if (rc == MERAK_OK)
        print_tally(&r.tally);
    return rc;
}
