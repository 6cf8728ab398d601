/* SPDX-License-Identifier: Apache-2.0 */
/* text/tokenizer/unicode.h - UTF-8, and the character classes of split
 * patterns */
#ifndef MERAK_TEXT_TOKENIZER_UNICODE_H
#define MERAK_TEXT_TOKENIZER_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum merak_char {
    MERAK_CHAR_OTHER,
    MERAK_CHAR_LETTER,  /* \p{L} */
    MERAK_CHAR_NUMBER,  /* \p{N} */
    MERAK_CHAR_SPACE,   /* White_Space */
    MERAK_CHAR_INVALID, /* a byte that does not begin well-formed UTF-8 */
};

/* Class of the character at text[0 .. n), n >= 1; *bytes_p is its length,
 * 1 for an invalid byte. */
enum merak_char merak_char_at(const unsigned char *text, size_t n,
                              size_t *bytes_p);
/* The same for a code point. */
enum merak_char merak_char_class(uint32_t cp);
/* \w: letters, marks, decimal digits, connectors. */
bool merak_is_word(uint32_t cp);
/* Decode one character: its length, or 0 if it is not well formed
 * (Unicode 16, table 3-7: no surrogates, nothing overlong). */
size_t merak_utf8_decode(const unsigned char *text, size_t n, uint32_t *cp_p);
/* Encode cp into out[4]; its length. */
size_t merak_utf8_encode(uint32_t cp, unsigned char *out);

#endif
