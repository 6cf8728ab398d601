/* SPDX-License-Identifier: Apache-2.0 */
/* text/tokenizer/rules.h - processing of a text before its pieces are merged,
 * and of tokens when they become text again
 *
 * A text is split at added tokens that are matched verbatim; each part between
 * is normalized, split at added tokens that are matched in normalized text,
 * and each part of that prepared: blanks are marked, a blank is prepended, and
 * it is split into pieces.
 */
#ifndef MERAK_TEXT_TOKENIZER_RULES_H
#define MERAK_TEXT_TOKENIZER_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/tokenizer/buffer.h"
#include "text/tokenizer/nfc.h"
#include "text/tokenizer/pieces.h"
#include "text/tokenizer/spm_normal.h"

#define MERAK_MARK                                             \
    "\xe2\x96\x81" /* U+2581, a blank in SentencePiece's files \
                    */

enum merak_step_kind {
    MERAK_NORMAL_PREPEND, /* prepend `to` unless empty */
    MERAK_NORMAL_REPLACE, /* each `from` by `to` */
    MERAK_NORMAL_BLANKS,  /* two or more blanks by `to` */
    MERAK_NORMAL_STRIP,   /* remove white space at the ends */
    MERAK_NORMAL_FORM,    /* of Unicode, `form` */
    MERAK_NORMAL_SPM,     /* as specified by `spm` */
    MERAK_NORMAL_MAP,     /* only its map, as in Hugging Face's library */
};
struct merak_normal_step {
    enum merak_step_kind kind;
    char *from, *to;  /* NULL if not used */
    bool left, right; /* which ends */
    enum merak_form form;
};

/* When a blank is prepended to a part. */
enum merak_prefix {
    MERAK_PREFIX_NEVER,
    MERAK_PREFIX_FIRST,  /* at the beginning of the text */
    MERAK_PREFIX_ALWAYS, /* unless one is there */
};

#define MERAK_MAX_STEPS 8
#define MERAK_MAX_AROUND 8

struct merak_rules {
    struct merak_normal_step step[MERAK_MAX_STEPS];
    int n_steps;
    struct merak_spm_normal spm;
    bool words; /* first split at white space, which is dropped */
    enum merak_prefix prefix;
    bool marks;     /* replace blanks by MERAK_MARK */
    bool cut_marks; /* and each begins a piece */
    enum merak_digits digits;
    enum merak_split split;
    bool drop_blank; /* decoding drops a blank at the beginning */
    /* Tokens that the template puts around a text. */
    int32_t before[MERAK_MAX_AROUND], after[MERAK_MAX_AROUND];
    int n_before, n_after;
};

void merak_rules_fini(struct merak_rules *rules);
/* Append the text after all normalization steps. */
enum merak_status merak_rules_normalize(const struct merak_rules *rules,
                                        const unsigned char *text, size_t n,
                                        struct merak_buffer *out,
                                        struct merak_error *err) MERAK_CHECKED;
/* Does preparing change a text?  If not it is only split. */
bool merak_rules_prepares(const struct merak_rules *rules);
/* Append a part with blanks marked and one prepended; `first`: the part begins
 * the text. */
enum merak_status merak_rules_prepare(const struct merak_rules *rules,
                                      const unsigned char *text, size_t n,
                                      bool first, struct merak_buffer *out,
                                      struct merak_error *err) MERAK_CHECKED;
/* The next word of text: *from_p and its length; 0: no more. */
size_t merak_rules_word(const unsigned char *text, size_t n, size_t *from_p);
typedef enum merak_status (*merak_piece_fn)(void *arg,
                                            const unsigned char *piece,
                                            size_t n, struct merak_error *err);
/* Split prepared text: call fn for the pieces in order, until it fails. */
enum merak_status merak_rules_cut(const struct merak_rules *rules,
                                  const unsigned char *text, size_t n,
                                  merak_piece_fn fn, void *arg,
                                  struct merak_error *err) MERAK_CHECKED;

#endif
