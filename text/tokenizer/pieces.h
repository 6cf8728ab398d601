/* SPDX-License-Identifier: Apache-2.0 */
/* text/tokenizer/pieces.h - the patterns that split texts into pieces
 *
 * Known patterns are recognized as a whole and matched by our own code: what a
 * regular expression engine considers a letter depends on its version.  A run
 * of bytes that are not UTF-8 is a separate piece, and the text before it ends
 * there.
 */
#ifndef MERAK_TEXT_TOKENIZER_PIECES_H
#define MERAK_TEXT_TOKENIZER_PIECES_H

#include <stddef.h>

enum merak_split {
    MERAK_SPLIT_NONE,
    /* GPT-2:
     * 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+|
     * ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
     */
    MERAK_SPLIT_GPT2,
    /* Llama 3 (\p{N}{1,3}), and Qwen2, which takes digits one by one (\p{N}):
     * (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
     *  ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
     */
    MERAK_SPLIT_LLAMA3,
    MERAK_SPLIT_QWEN2,
};

/* The pattern of this text, or MERAK_SPLIT_NONE if it is not known. */
enum merak_split merak_split_find(const char *pattern);
/* Length of the first piece of text[0 .. n), n >= 1. */
size_t merak_piece(enum merak_split split, const unsigned char *text, size_t n);

/* How digits are split off first. */
enum merak_digits {
    MERAK_DIGITS_NONE,
    MERAK_DIGITS_RUNS, /* a run is a piece */
    MERAK_DIGITS_EACH, /* each is a piece */
};
size_t merak_digits_piece(enum merak_digits digits, const unsigned char *text,
                          size_t n);

#endif
