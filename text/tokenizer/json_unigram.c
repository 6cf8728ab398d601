/* SPDX-License-Identifier: Apache-2.0 */
/* json_unigram.c - the scores of a tokenizer.json's Unigram model
 *
 * Hugging Face's library adds scores in double precision, uses the lowest
 * score minus a penalty for unknown characters, and matches every token in a
 * text, even those for bytes.
 */
#include "config.h"

#include "text/tokenizer/json_impl.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN_PENALTY 10.0 /* below the least likely token */

static enum merak_status take_scores(struct merak_json_loader *ld,
                                     double *score,
                                     struct merak_unigram_options *opt)
{
    double least = 0;
    json_t *entry;
    size_t i;

    json_array_foreach(ld->tokens, i, entry)
    {
        const json_t *number = json_array_get(entry, 1);
        /* no shorter than with the NULs that something stands for */
        size_t n = strlen(json_string_value(json_array_get(entry, 0)));

        if (json_array_size(entry) != 2 || !json_is_number(number))
            return merak_fail(ld->err, MERAK_ERR_FORMAT,
                              "%s: entry %zu of the vocabulary is not a token "
                              "with a score",
                              ld->path, i);
        score[i] = json_number_value(number);
        least = i == 0 || score[i] < least ? score[i] : least;
        opt->longest = n > opt->longest ? n : opt->longest;
    }
    opt->unknown_score = least - UNKNOWN_PENALTY;
    return MERAK_OK;
}

static void find_bytes(const struct merak_json_loader *ld, const json_t *model,
                       int32_t byte_id[256])
{
    bool wanted = json_is_true(json_object_get(model, "byte_fallback"));
    char name[8];

    for (unsigned b = 0; b < 256; b++) {
        snprintf(name, sizeof(name), "<0x%02X>", b);
        byte_id[b] = wanted ? merak_json_token_id(ld, name) : -1;
    }
}

enum merak_status merak_json_unigram(struct merak_json_loader *ld,
                                     json_t *model)
{
    const json_t *unknown = json_object_get(model, "unk_id");
    size_t n = json_array_size(ld->tokens);
    double *score = calloc(n + 1, sizeof(*score));
    struct merak_unigram_options opt = {.index = ld->vocab->index,
                                        .score = score,
                                        .vocab = n,
                                        .runs_are_pieces = true,
                                        .unknown = -1};
    enum merak_status rc;

    if (score == NULL)
        return merak_fail_nomem(ld->err, n * sizeof(*score));
    if (json_is_integer(unknown) && json_integer_value(unknown) >= 0 &&
        (size_t)json_integer_value(unknown) < n)
        opt.unknown = (int32_t)json_integer_value(unknown);
    if (opt.unknown < 0)
        rc = merak_json_unsupported(ld, "model.unk_id", unknown,
                                    "the id of a token of the vocabulary");
    else
        rc = take_scores(ld, score, &opt);
    if (rc == MERAK_OK) {
        find_bytes(ld, model, opt.byte_id);
        rc = merak_unigram_create(&opt, &ld->vocab->unigram, ld->err);
    }
    free(score);
    return rc;
}
