/* SPDX-License-Identifier: Apache-2.0 */
/* text/tokenizer/grapheme.h - user-perceived characters */
#ifndef MERAK_TEXT_TOKENIZER_GRAPHEME_H
#define MERAK_TEXT_TOKENIZER_GRAPHEME_H

#include <stddef.h>

/* Bytes of the extended grapheme cluster (UAX #29) at the beginning of text[0
 * .. n), n >= 1; a byte that is not UTF-8 counts as one. */
size_t merak_grapheme(const unsigned char *text, size_t n);

#endif
