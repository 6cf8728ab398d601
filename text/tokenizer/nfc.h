/* SPDX-License-Identifier: Apache-2.0 */
/* text/tokenizer/nfc.h - the normalization forms (UAX #15) */
#ifndef MERAK_TEXT_TOKENIZER_NFC_H
#define MERAK_TEXT_TOKENIZER_NFC_H

#include "text/tokenizer/buffer.h"

enum merak_form {
    MERAK_NFC,
    MERAK_NFD,  /* not composed again */
    MERAK_NFKC, /* compatible characters too are decomposed */
    MERAK_NFKD,
};

/* Append text in a form; bytes that are not UTF-8 are unchanged. */
enum merak_status merak_normal_form(enum merak_form form,
                                    const unsigned char *text, size_t n,
                                    struct merak_buffer *out,
                                    struct merak_error *err) MERAK_CHECKED;

#endif
