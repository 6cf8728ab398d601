/* SPDX-License-Identifier: Apache-2.0 */
/* io/special_ids.h - ids with a meaning of their own, of a Hugging Face folder
 *
 * They are read without the tokenizer's model, which may be of a kind that is
 * not supported: token files are then made by other tools.
 */
#ifndef MERAK_IO_SPECIAL_IDS_H
#define MERAK_IO_SPECIAL_IDS_H

#include <stddef.h>
#include <stdint.h>

#include "merak/status.h"

/* An id of -1 is not known. */
struct merak_special_ids {
    int32_t mask;
    int32_t sentinel; /* "<extra_id_0>"; each next one is below it, by one .. */
    size_t n_sentinels;      /* .. and there are so many; 0: not known */
    int32_t end, pad, start; /* of a text; behind it; before what a decoder
                                reads: of config.json */
    int32_t *special;        /* all, ascending; owned */
    size_t n_special;
};

/*
 * Of tokenizer.json and tokenizer_config.json, or vocab.txt, and config.json.
 *
 *   model  a folder, or a file in it; NULL: nothing is known
 *   ids    out  set in any case; to be ended by merak_special_ids_fini()
 *
 * MERAK_ERR_FORMAT names a file that is no JSON object.
 */
enum merak_status merak_special_ids_read(const char *model,
                                         struct merak_special_ids *ids,
                                         struct merak_error *err) MERAK_CHECKED;
void merak_special_ids_fini(struct merak_special_ids *ids);

#endif
