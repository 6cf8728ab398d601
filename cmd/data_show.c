/* SPDX-License-Identifier: Apache-2.0 */
/* data_show.c - `merak data show`: the contents of a data set, all of it
 * checked */
#include "config.h"

#include "cmd/cmd.h"
#include "cmd/data.h"
#include "cmd/finish.h"
#include "cmd/json_line.h"

#include "base/error.h"
#include "base/options.h"
#include "io/json_real.h"
#include "io/tokens/bigram.h"
#include "text/tokenizer/tokenizer.h"
#include "io/tokens/token_file.h"
#include "io/tokens/spec.h"

#include <ctype.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define FIRST 16   /* tokens printed */
#define BLOCK 8192 /* tokens read at a time */

struct show {
    size_t vocab;
    const char *tokenizer_name;
    struct merak_tokenizer *tokenizer;
    bool bigram, json, help;
    struct merak_data_options data;
};

/* --- one file ---------------------------------------------------------- */

struct scan {
    int32_t least, most;
    int32_t first[FIRST];
    size_t n_first;
};

static enum merak_status scan_file(const struct merak_token_file *file,
                                   size_t vocab, struct scan *scan,
                                   struct merak_error *err)
{
    int32_t ids[BLOCK];

    *scan = (struct scan){.least = INT32_MAX, .most = -1};
    for (uint64_t at = 0; at < file->tokens; at += BLOCK) {
        uint64_t left = file->tokens - at;
        size_t n = left < BLOCK ? (size_t)left : BLOCK;
        enum merak_status rc =
            merak_token_file_read(file, at, n, vocab, ids, err);

        if (rc != MERAK_OK)
            return rc;
        for (size_t i = 0; i < n; i++) {
            scan->least = ids[i] < scan->least ? ids[i] : scan->least;
            scan->most = ids[i] > scan->most ? ids[i] : scan->most;
            if (scan->n_first < FIRST)
                scan->first[scan->n_first++] = ids[i];
        }
    }
    return MERAK_OK;
}

/* What the first tokens are as text; free() it. */
static enum merak_status decode_first(const struct show *show,
                                      const struct scan *scan, char **text_p,
                                      size_t *n_p, struct merak_error *err)
{
    FILE *out = open_memstream(text_p, n_p);
    enum merak_status rc = MERAK_OK;

    if (out == NULL)
        return merak_fail_nomem(err, 0);
    for (size_t i = 0; rc == MERAK_OK && i < scan->n_first; i++) {
        const char *bytes;
        size_t n;

        rc = merak_tokenizer_decode(show->tokenizer, scan->first[i], &bytes, &n,
                                    err);
        if (rc == MERAK_OK)
            fwrite(bytes, 1, n, out);
    }
    if (fclose(out) != 0 && rc == MERAK_OK)
        rc = merak_fail_nomem(err, 0);
    return rc;
}

/* Bytes other than printable ASCII as \xNN. */
static void print_text(const char *text, size_t n)
{
    printf("  text       \"");
    for (size_t c = 0; c < n; c++)
        printf(isprint((unsigned char)text[c]) ? "%c" : "\\x%02x",
               (unsigned char)text[c]);
    printf("\"\n");
}

static void print_file(const struct merak_token_file *file,
                       const struct scan *scan)
{
    printf("%s\n  format     %s\n  type       %s\n", file->path, file->format,
           merak_token_type_name(file->type));
    if (file->documents > 0)
        printf("  documents  %llu\n", (unsigned long long)file->documents);
    printf("  tokens     %llu\n", (unsigned long long)file->tokens);
    if (file->mask != NULL)
        printf("  answers    %llu of them\n",
               (unsigned long long)merak_mask_counted(file->mask));
    if (file->tokens == 0)
        return;
    printf("  ids        %d to %d\n  first     ", scan->least, scan->most);
    for (size_t i = 0; i < scan->n_first; i++)
        printf(" %d", scan->first[i]);
    printf("\n");
}

static json_t *json_file(const struct merak_token_file *file,
                         const struct scan *scan)
{
    json_t *one =
        json_pack("{s:o, s:s, s:s, s:I}", "path",
                  merak_json_text(file->path, strlen(file->path)), "format",
                  file->format, "type", merak_token_type_name(file->type),
                  "tokens", (json_int_t)file->tokens);
    json_t *first = json_array();

    if (file->documents > 0)
        json_object_set_new(one, "documents",
                            json_integer((json_int_t)file->documents));
    if (file->mask != NULL)
        json_object_set_new(
            one, "answers",
            json_integer((json_int_t)merak_mask_counted(file->mask)));
    if (file->tokens > 0) {
        json_object_set_new(one, "least", json_integer(scan->least));
        json_object_set_new(one, "greatest", json_integer(scan->most));
    }
    for (size_t i = 0; i < scan->n_first; i++)
        json_array_append_new(first, json_integer(scan->first[i]));
    json_object_set_new(one, "first", first);
    return one;
}

static enum merak_status show_file(const struct show *show,
                                   const struct merak_token_file *file,
                                   json_t *files, struct merak_error *err)
{
    struct scan scan;
    char *text = NULL;
    size_t n = 0;
    enum merak_status rc = scan_file(file, show->vocab, &scan, err);

    if (rc == MERAK_OK && show->tokenizer != NULL && file->tokens > 0)
        rc = decode_first(show, &scan, &text, &n, err);
    if (rc == MERAK_OK && files != NULL) {
        json_t *one = json_file(file, &scan);

        if (text != NULL)
            json_object_set_new(one, "text", merak_json_text(text, n));
        json_array_append_new(files, one);
    } else if (rc == MERAK_OK) {
        print_file(file, &scan);
        if (text != NULL)
            print_text(text, n);
    }
    free(text);
    return rc;
}

static enum merak_status show_path(const struct show *show, const char *path,
                                   json_t *all, struct merak_error *err)
{
    struct merak_token_file *files = NULL;
    size_t n = 0;
    enum merak_status rc = merak_token_files_open(path, &files, &n, err);

    for (size_t i = 0; rc == MERAK_OK && i < n; i++)
        rc = show_file(show, &files[i], all, err);
    merak_token_files_close(files, n);
    return rc;
}

/* --- a data set -------------------------------------------------------- */

static enum merak_status show_bigram(const struct show *show, const char *spec,
                                     json_t *root, struct merak_error *err)
{
    struct merak_data_options opt = show->data;
    struct merak_bigram_result r;
    struct merak_data *data;
    enum merak_status rc;

    opt.spec = spec;
    opt.vocab = show->vocab;
    rc = merak_data_open(&opt, &data, err);
    if (rc != MERAK_OK)
        return rc;
    rc = merak_bigram_evaluate(data, &opt, &r, err);
    if (rc == MERAK_OK && root != NULL)
        json_object_set_new(
            root, "bigram",
            json_pack("{s:o, s:o, s:I, s:I}", "loss", merak_json_real(r.bigram),
                      "unigram", merak_json_real(r.unigram), "valid_tokens",
                      (json_int_t)r.valid_tokens, "train_tokens",
                      (json_int_t)r.train_tokens));
    else if (rc == MERAK_OK)
        printf("  bigram     %.4f nats/token (unigram %.4f) on %llu "
               "validation tokens, from %llu\n",
               r.bigram, r.unigram, (unsigned long long)r.valid_tokens,
               (unsigned long long)r.train_tokens);
    merak_data_close(data);
    return rc;
}

/* One of a blend's; root: into this object, or NULL: print it. */
static enum merak_status show_part(const struct show *show,
                                   const struct merak_data_spec *spec, size_t k,
                                   json_t *root, struct merak_error *err)
{
    json_t *files = root != NULL ? json_array() : NULL;
    enum merak_status rc = show_path(show, spec->path[k], files, err);

    if (root != NULL) {
        json_t *part = json_pack("{s:o}", "files", files);

        if (spec->n > 1)
            json_object_set_new(part, "weight",
                                merak_json_real(spec->weight[k]));
        json_array_append_new(json_object_get(root, "parts"), part);
    } else if (rc == MERAK_OK && spec->n > 1) {
        printf("  weight     %g\n", spec->weight[k]);
    }
    return rc;
}

static enum merak_status show_data(const struct show *show, const char *text,
                                   json_t *root, struct merak_error *err)
{
    struct merak_data_spec spec;
    enum merak_status rc = merak_data_spec_parse(text, &spec, err);

    if (rc != MERAK_OK)
        return rc;
    for (size_t k = 0; rc == MERAK_OK && k < spec.n; k++)
        rc = show_part(show, &spec, k, root, err);
    merak_data_spec_fini(&spec);
    if (rc == MERAK_OK && show->bigram)
        rc = show_bigram(show, text, root, err);
    return rc;
}

/* A line of JSON for each data set; *code_p: merak_cmd_flush_json(). */
static enum merak_status show_json(const struct show *show, const char *text,
                                   int *code_p, struct merak_error *err)
{
    json_t *root = json_pack("{s:o, s:[]}", "data",
                             merak_json_text(text, strlen(text)), "parts");
    enum merak_status rc = root == NULL ? merak_fail_nomem(err, 0)
                                        : show_data(show, text, root, err);

    if (rc == MERAK_OK)
        *code_p = merak_cmd_flush_json("data show", root, MERAK_EXIT_DONE);
    else
        json_decref(root);
    return rc;
}

/* --- the command line -------------------------------------------------- */

#define AT(field) offsetof(struct show, field)

static const struct merak_option rows[] = {
    {"vocab", MERAK_OPTION_SIZE, AT(vocab), .about = "ids must be below N"},
    {"tokenizer", MERAK_OPTION_TEXT, AT(tokenizer_name),
     .about = "byte or tokenizer.json: print the first tokens as text; ids "
              "must be in its vocabulary",
     .arg = "T"},
    {"bigram", MERAK_OPTION_YES, AT(bigram),
     .about = "cross-entropy of a bigram model on the validation split (needs "
              "the next two)"},
    {"valid-fraction", MERAK_OPTION_REAL, AT(data.valid_fraction),
     .about = "tail of every file kept for validation", .arg = "F"},
    {"seq", MERAK_OPTION_SIZE, AT(data.seq), .about = "tokens in a sample",
     .arg = "T"},
    {"json", MERAK_OPTION_YES, AT(json),
     .about = "as a line of JSON for each DATA"},
};
static const struct merak_option_table table = {rows,
                                                sizeof(rows) / sizeof(rows[0])};

static void print_help(void)
{
    puts("usage: merak data show [OPTION]... DATA...\n"
         "\n"
         "DATA is what training takes: a Megatron prefix (or its .bin or "
         ".idx), an\n"
         "llm.c file, a quoted pattern of such files, or \"W1 PATH1 W2 PATH2 "
         "..\".\n"
         "Every size, pointer and token is checked.\n");
    merak_options_help(&table, stdout);
}

/* Words of the command line are kept in argv[1 .. *argc). */
static int parse(struct show *show, int *argc, char **argv)
{
    struct merak_error err;
    enum merak_status rc =
        merak_options_words(&table, false, argc, argv, show, &show->help, &err);

    if (rc != MERAK_OK)
        return merak_cmd_failed("data show", rc, &err);
    if (show->help)
        return MERAK_EXIT_DONE;
    if (*argc < 2)
        return merak_cmd_misused("data", "show: no data given");
    if (show->bigram &&
        (show->data.seq == 0 || !(show->data.valid_fraction > 0)))
        return merak_cmd_misused("data", "show: --bigram needs --seq and "
                                         "--valid-fraction above 0");
    return MERAK_EXIT_DONE;
}

static enum merak_status run(struct show *show, int n, char **paths,
                             int *code_p, struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    if (show->tokenizer_name != NULL) {
        rc = merak_tokenizer_open(show->tokenizer_name, &show->tokenizer, err);
        if (rc == MERAK_OK && show->vocab == 0)
            show->vocab = merak_tokenizer_vocab(show->tokenizer);
    }
    for (int i = 0; rc == MERAK_OK && *code_p == MERAK_EXIT_DONE && i < n; i++)
        rc = show->json ? show_json(show, paths[i], code_p, err)
                        : show_data(show, paths[i], NULL, err);
    merak_tokenizer_close(show->tokenizer);
    return rc;
}

int merak_data_show(int argc, char **argv)
{
    struct show show = {0};
    struct merak_error err;
    int code = parse(&show, &argc, argv);
    enum merak_status rc;

    if (code != MERAK_EXIT_DONE)
        return code;
    if (show.help) {
        print_help();
        return merak_cmd_flush("data show", MERAK_EXIT_DONE);
    }
    rc = run(&show, argc - 1, argv + 1, &code, &err);
    if (rc != MERAK_OK)
        return merak_cmd_failed("data show", rc, &err);
    return show.json ? code : merak_cmd_flush("data show", MERAK_EXIT_DONE);
}
