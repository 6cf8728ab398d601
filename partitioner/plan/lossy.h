/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/plan/lossy.h - hops between stages that are sent in part
 *
 * A hop is what stage h sends to stage h + 1, and of the last one of a model
 * in several rounds of parts what it sends to the first.  At ratio r a row of C
 * elements goes as its ceil(C / r) largest ones, with a bit for each place, and
 * its gradient comes back at these places: graph/pack_parts.c.  Which elements
 * these are depends on the row alone, so neither on micro-batches, nor on
 * replicas, slices or schedules; but it is another model than the one whose
 * hops are whole.
 */
#ifndef MERAK_PARTITIONER_PLAN_LOSSY_H
#define MERAK_PARTITIONER_PLAN_LOSSY_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MERAK_LOSSY_HOPS 126  /* with a ratio each */
#define MERAK_LOSSY_MOST 255  /* 1 would be the whole */
#define MERAK_LOSSY_TEXT 1024 /* bytes of any such text */

struct merak_lossy {
    uint8_t all;  /* of every hop; 0: each has its own */
    uint8_t most; /* of the slowest one, of others as merak_lossy_settle()
                     finds; 0: they are known */
    uint8_t ratio[MERAK_LOSSY_HOPS]; /* by the stage before it; 0: whole */
};

bool merak_lossy_any(const struct merak_lossy *lossy);
bool merak_lossy_equal(const struct merak_lossy *a,
                       const struct merak_lossy *b);
/* The highest hop with a ratio of its own; -1: none. */
int merak_lossy_last(const struct merak_lossy *lossy);
/* 0: it is whole. */
int merak_lossy_ratio(const struct merak_lossy *lossy, int hop);
/* Do the hops of a plan of n stages have the ratios that were asked for, or, of
 * "auto", no higher ones? */
bool merak_lossy_obeys(const struct merak_lossy *has,
                       const struct merak_lossy *asked, int n);
/* The hop by which neighbouring parts of two stages are joined. */
int merak_lossy_hop_between(int from, int to);
/* "8" for every hop, "1:8,2:4" (also with dashes between) for those behind
 * stages 1 and 2, "auto:8" for 8 at most, or "none".  MERAK_ERR_CONFIG names
 * the option, what was given and what was expected. */
enum merak_status merak_lossy_parse(const char *text, struct merak_lossy *lossy,
                                    struct merak_error *err) MERAK_CHECKED;
/* The same text, `between` two hops; returns text. */
const char *merak_lossy_text(const struct merak_lossy *lossy,
                             const char *between, char *text, size_t bytes);
/* For people: "lossy: stage 1 -> 2 ratio 8, stage 2 -> 3 ratio 4", of n stages;
 * a long list ends with ".."; "" if all are whole.  Returns text. */
const char *merak_lossy_describe(const struct merak_lossy *lossy, int n,
                                 char *text, size_t bytes);
/*
 * Ratios from what hops take if they are whole: the slowest has lossy->most,
 * others as much less as they are faster, rounded down to a power of two or to
 * 3/2 of one; what would be below 2 stays whole, since places and packing do
 * not pay.
 *
 *   seconds  in   [n] of each hop
 *
 * After AdaTopK of FusionLLM, Tang et al. 2024 (arXiv:2410.12707), whose ratio
 * has a factor of 3 for values with indices of 4 bytes; here it is that of
 * elements.
 */
void merak_lossy_settle(struct merak_lossy *lossy, const double *seconds,
                        int n);

#endif
