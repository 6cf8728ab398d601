/* SPDX-License-Identifier: Apache-2.0 */
/* io/corrupt.h - tokens that are hidden, to be predicted
 *
 * What is hidden is a pure function of a key, which the caller makes of seed,
 * split and sample: every rank that reads a sample hides the same of it, and
 * no state has to be saved.  How many tokens of a sample are to be predicted
 * depends on its length alone.
 */
#ifndef MERAK_IO_CORRUPT_H
#define MERAK_IO_CORRUPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "merak/status.h"

enum merak_corrupt_kind {
    MERAK_CORRUPT_AUTO, /* what the model's inputs are made by, or none */
    MERAK_CORRUPT_NONE,
    MERAK_CORRUPT_MASK,  /* single tokens.  Devlin et al. 2019
                            (arXiv:1810.04805), sec. 3.1, task 1 */
    MERAK_CORRUPT_SPANS, /* runs of tokens.  Raffel et al. 2020
                            (arXiv:1910.10683), sec. 3.1.4 */
};

struct merak_corrupt {
    enum merak_corrupt_kind kind;
    double density; /* share of tokens that are hidden */
    double mean;    /* SPANS: tokens of one */
};

/* "mask:0.15", "spans:0.15,3", without numbers those, "none", "auto". */
enum merak_status merak_corrupt_parse(const char *text,
                                      struct merak_corrupt *corrupt,
                                      struct merak_error *err) MERAK_CHECKED;
enum { MERAK_CORRUPT_TEXT = 64 };
const char *merak_corrupt_text(const struct merak_corrupt *corrupt,
                               char text[MERAK_CORRUPT_TEXT]);

/* --- masks ------------------------------------------------------------------
 */

struct merak_masking {
    size_t seq, chosen; /* tokens of a sample, and those to be predicted */
    size_t vocab;       /* random tokens are below it */
    int32_t mask;
    /* Ascending; of these one is chosen only where there are not enough
     * others. */
    const int32_t *special;
    size_t n_special;
};

/* How many of seq tokens are chosen: round(density seq), halves to even. */
size_t merak_masking_chosen(const struct merak_corrupt *corrupt, size_t seq);
/*
 * Hide tokens of a sample.  Of those that are chosen 80 % become the mask, 10 %
 * any token, and 10 % stay, each by a draw of its own.
 *
 *   ids     in, out  [seq]
 *   masked  out      [seq], what was at chosen places, else MERAK_NO_TARGET
 */
void merak_masking_apply(const struct merak_masking *m, uint64_t key,
                         int32_t *ids, int32_t *masked);

/* --- spans ------------------------------------------------------------------
 */

/* Lengths of samples with spans; the same for all. */
struct merak_spans {
    size_t raw;            /* tokens of a text before */
    size_t noise, spans;   /* of them in spans, and how many there are */
    size_t source, target; /* after: raw - noise + spans + 1, the last one ends
                              the text, and noise + spans + 1 */
};
struct merak_span_ids {
    int32_t sentinel; /* of the first span; others are below it, each by one */
    int32_t end;      /* of a text */
    int32_t pad, start; /* behind a text; before what a decoder reads */
};

/* Those of a text of `raw` tokens: noise is round(density raw), spans
 * round(noise / mean), halves to even.  False if there would be no span, or no
 * token between two. */
bool merak_spans_of(const struct merak_corrupt *corrupt, size_t raw,
                    struct merak_spans *spans);
/* The longest text of which no more than `source` tokens are left; false if
 * there is none. */
bool merak_spans_fit(const struct merak_corrupt *corrupt, size_t source,
                     struct merak_spans *spans);
/* The same for a `target`. */
bool merak_spans_fit_target(const struct merak_corrupt *corrupt, size_t target,
                            struct merak_spans *spans);
/*
 * The text with a sentinel in the place of each span, and the spans, each
 * behind its sentinel.  Lengths of spans are a random composition of `noise`,
 * those between them of the rest; a text begins with a token that is not
 * hidden.
 *
 *   raw     in   [raw]
 *   source  out  [source]
 *   target  out  [target]
 */
void merak_spans_apply(const struct merak_spans *spans,
                       const struct merak_span_ids *ids, uint64_t key,
                       const int32_t *raw, int32_t *source, int32_t *target);

#endif
