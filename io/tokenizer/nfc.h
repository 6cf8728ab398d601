/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokenizer/nfc.h - normalization form C (UAX #15) */
#ifndef MERAK_IO_TOKENIZER_NFC_H
#define MERAK_IO_TOKENIZER_NFC_H

#include "io/tokenizer/buffer.h"

/* Append text in form C; bytes that are not UTF-8 are unchanged. */
enum merak_status merak_nfc(const unsigned char *text, size_t n,
                            struct merak_buffer *out,
                            struct merak_error *err) MERAK_CHECKED;

#endif
