/* SPDX-License-Identifier: Apache-2.0 */
/* text/tokenizer/spm.h - what a SentencePiece model, tokenizer.model, says */
#ifndef MERAK_TEXT_TOKENIZER_SPM_H
#define MERAK_TEXT_TOKENIZER_SPM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "merak/status.h"

enum merak_spm_type {
    MERAK_SPM_NORMAL = 1,
    MERAK_SPM_UNKNOWN,
    MERAK_SPM_CONTROL,
    MERAK_SPM_USER_DEFINED,
    MERAK_SPM_UNUSED,
    MERAK_SPM_BYTE,
};

struct merak_spm_piece {
    const unsigned char *text; /* in the file, n bytes */
    size_t n;
    float score;
    uint64_t type; /* enum merak_spm_type */
};

struct merak_spm {
    unsigned char *file;
    struct merak_spm_piece *piece; /* by id */
    size_t n;
    bool bpe;                    /* not Unigram */
    bool prefix;                 /* a blank is put in front of a text */
    int64_t begin, end, unknown; /* ids; -1: none */
};

/* Read it; to be freed also after a failure. */
enum merak_status merak_spm_read(const char *path, struct merak_spm *spm,
                                 struct merak_error *err) MERAK_CHECKED;
void merak_spm_fini(struct merak_spm *spm);

#endif
