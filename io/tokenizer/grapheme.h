/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokenizer/grapheme.h - what a reader takes for one character */
#ifndef MERAK_IO_TOKENIZER_GRAPHEME_H
#define MERAK_IO_TOKENIZER_GRAPHEME_H

#include <stddef.h>

/* Bytes of the extended grapheme cluster (UAX #29) that text[0 .. n) begins
 * with, n >= 1; a byte that is no UTF-8 is one. */
size_t merak_grapheme(const unsigned char *text, size_t n);

#endif
