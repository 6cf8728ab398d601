/* SPDX-License-Identifier: Apache-2.0 */
/* io/weights/adapters.h - the adapters of parameters, and merging them */
#ifndef MERAK_IO_WEIGHTS_ADAPTERS_H
#define MERAK_IO_WEIGHTS_ADAPTERS_H

#include <stdbool.h>
#include <stddef.h>

#include "io/weights/named.h"
#include "merak/model.h"

/* A and B of one weight, [rank, in..] and [out.., rank]; NULL: it has none. */
struct merak_adapter {
    const struct merak_named *a, *b;
};

/* Find the adapter of parameter `weight` in a list of parameters. */
struct merak_adapter merak_adapter_of(const struct merak_named *list, int n,
                                      const char *weight);
/*
 * Add factor B A to w, as merak_lora_factor() gives it.
 *
 *   w  inout  [rows, cols]
 *   a  in     [rank, cols]
 *   b  in     [rows, rank]
 *
 * Every sum is in double and is rounded once.  Allocates a row.
 * Source: Hu et al. 2021 (arXiv:2106.09685), sec. 4.1.
 */
enum merak_status merak_adapter_merge(const struct merak_lora *lora,
                                      size_t rows, size_t cols, const float *a,
                                      const float *b, float *w,
                                      struct merak_error *err) MERAK_CHECKED;

struct merak_adaptable {
    const char *name; /* of a layer, a path with dots between its parts */
    bool chosen;
};
/*
 * Add to `text` the shortest ends of names, each from after a dot or whole,
 * that are the ends of all chosen layers and of no others, with commas
 * between; truncated to `bytes`.  Returns the length of all.
 */
size_t merak_adaptable_print(const struct merak_adaptable *layer, int n,
                             char *text, size_t bytes);

#endif
