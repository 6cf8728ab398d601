/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_tokenizer.c - tokenizer.json and SentencePiece models, and texts through
 * them */
#include "config.h"

#include "fuzz/fuzz.h"

#include "text/tokenizer/tokenizer.h"

#include <stdio.h>
#include <string.h>

enum { JSON, MODEL };

void fuzz_seeds(void)
{
    static const char *const json[] = {
        "tiny",           "kind_gemma",   "kind_llama2", "kind_llama3",
        "kind_metaspace", "kind_mistral", "kind_prefix", "kind_qwen2",
        "kind_smollm",    "kind_unknown",
    };
    static const char *const model[] = {"kind_spm_bpe", "kind_spm_bytes",
                                        "kind_spm_unigram"};
    char name[64];

    for (size_t i = 0; i < sizeof(json) / sizeof(*json); i++) {
        snprintf(name, sizeof(name), "tokenizer/%s.json", json[i]);
        fuzz_add_vector(JSON, name);
    }
    for (size_t i = 0; i < sizeof(model) / sizeof(*model); i++) {
        snprintf(name, sizeof(name), "tokenizer/%s.model", model[i]);
        fuzz_add_vector(MODEL, name);
    }
}

struct ids {
    int32_t id[4096];
    size_t n;
    size_t vocab;
};

static enum merak_status take_ids(void *arg, const int32_t *ids, size_t n,
                                  struct merak_error *err)
{
    struct ids *all = arg;

    (void)err;
    for (size_t i = 0; i < n; i++) {
        fuzz_must(ids[i] >= 0 && (size_t)ids[i] < all->vocab,
                  "ids are below the vocabulary's size");
        if (all->n < sizeof(all->id) / sizeof(*all->id))
            all->id[all->n++] = ids[i];
    }
    return MERAK_OK;
}

/* Ids that a text was made into have texts. */
static void decode(const struct merak_tokenizer *tok, const struct ids *all)
{
    struct merak_text text;
    struct merak_error err = {.text = ""};
    const char *bytes;
    size_t n;

    merak_text_begin(&text, tok);
    for (size_t i = 0; i < all->n; i++) {
        enum merak_status rc =
            merak_text_add(&text, all->id[i], &bytes, &n, &err);

        fuzz_must(rc == MERAK_OK, "an id that encoding gave has a text");
    }
    (void)merak_text_end(&text, &n);
    merak_text_fini(&text);
    for (int32_t id = -1; id < 300; id++) {
        if (merak_tokenizer_decode(tok, id, &bytes, &n, &err) != MERAK_OK)
            fuzz_must(err.text[0] != '\0', "an id without a text is named");
        (void)merak_tokenizer_is_special(tok, id);
    }
}

static void through(struct merak_tokenizer *tok)
{
    static const char text[] = "Hello  world, it's 1234.5!\n\n\tfa\xc3\xa7"
                               "ade \xe6\x97\xa5\xe6\x9c\xac <|endoftext|>"
                               "\xf0\x9f\x98\x80 \xff\xfe <s> the the the";
    static struct ids all;
    struct merak_error err = {.text = ""};
    enum merak_status rc;

    all.n = 0;
    all.vocab = merak_tokenizer_vocab(tok);
    fuzz_must(merak_tokenizer_eod(tok) < (int64_t)all.vocab,
              "the end of a document is in the vocabulary");
    rc = merak_tokenizer_encode(tok, text, sizeof(text) - 1, take_ids, &all,
                                &err);
    if (rc == MERAK_OK)
        rc = merak_tokenizer_encode_whole(tok, text, 20, take_ids, &all, &err);
    if (rc != MERAK_OK)
        fuzz_refused(rc, &err);
    decode(tok, &all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct merak_tokenizer *tok = NULL;
    struct merak_error err = {.text = ""};
    enum merak_status rc;

    if (n == 0)
        return 0;
    rc = merak_tokenizer_open(
        fuzz_file(data[0] % 2 == JSON ? "tokenizer.json" : "x.model", data + 1,
                  n - 1),
        &tok, &err);
    if (rc == MERAK_OK)
        through(tok);
    else
        fuzz_refused(rc, &err);
    merak_tokenizer_close(tok);
    return 0;
}
