/* SPDX-License-Identifier: Apache-2.0 */
/* text/tokenizer/spm_normal.h - SentencePiece's normalizer */
#ifndef MERAK_TEXT_TOKENIZER_SPM_NORMAL_H
#define MERAK_TEXT_TOKENIZER_SPM_NORMAL_H

#include <stdbool.h>

#include "text/tokenizer/buffer.h"

struct merak_spm_normal {
    bool dummy_prefix, remove_extra, escape;
    unsigned char *map; /* precompiled: trie and texts; NULL: none */
    size_t map_bytes;
};

/* Is the map one that merak_spm_normalize() can follow? */
bool merak_spm_map_is_sound(const unsigned char *map, size_t bytes);
/* Append the text in the form of the model's pieces. */
enum merak_status merak_spm_normalize(const struct merak_spm_normal *normal,
                                      const unsigned char *text, size_t n,
                                      struct merak_buffer *out,
                                      struct merak_error *err) MERAK_CHECKED;
/*
 * The same map as used by Hugging Face's library, without other rules: a
 * grapheme of less than six bytes is replaced as a whole by the replacement of
 * its shortest prefix in the map; else each code point separately.
 */
enum merak_status merak_spm_replace(const struct merak_spm_normal *normal,
                                    const unsigned char *text, size_t n,
                                    struct merak_buffer *out,
                                    struct merak_error *err) MERAK_CHECKED;

#endif
