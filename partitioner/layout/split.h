/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/layout/split.h - what tensor ranks divide among them, by layer
 *
 * In layers of the set each has samples of its own and whole weights, in all
 * others a part of the weights.  Layers are those of parameters' names
 * (graph/layer_names.h), counted from 0.
 */
#ifndef MERAK_PARTITIONER_LAYOUT_SPLIT_H
#define MERAK_PARTITIONER_LAYOUT_SPLIT_H

#include "merak/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MERAK_MAX_SPLIT 256 /* layers */
#define MERAK_SPLIT_TEXT 1024

struct merak_layer_split {
    uint64_t samples[MERAK_MAX_SPLIT / 64]; /* a bit each */
};

bool merak_split_any(const struct merak_layer_split *split);
bool merak_split_has(const struct merak_layer_split *split, int layer);
void merak_split_add(struct merak_layer_split *split, int layer);
bool merak_split_equal(const struct merak_layer_split *a,
                       const struct merak_layer_split *b);
/* The highest layer; -1: none. */
int merak_split_last(const struct merak_layer_split *split);
/* "w0-3,b4-27": layers cut by weights (w) and by samples (b); those not named
 * are cut by weights.  Commas may be left out. */
enum merak_status merak_split_parse(const char *text,
                                    struct merak_layer_split *split,
                                    struct merak_error *err) MERAK_CHECKED;
/* Runs of layers, `first` before each and `between` two of them: "b4-27b30" or
 * "4-27, 30"; returns text. */
const char *merak_split_text(const struct merak_layer_split *split,
                             const char *first, const char *between, char *text,
                             size_t bytes);

#endif
