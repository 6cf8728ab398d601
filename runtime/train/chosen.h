/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/train/chosen.h - the result of a search, as a plan file */
#ifndef MERAK_TRAIN_CHOSEN_H
#define MERAK_TRAIN_CHOSEN_H

#include "io/plan_file.h"
#include "partitioner/search/search.h"

/* merak_device_find(), with the built-in "cpu" adapted to this machine: bf16
 * is as slow as f32 if the processor has no bf16 instructions. */
enum merak_status merak_chosen_device(const char *word,
                                      struct merak_device *device,
                                      struct merak_error *err) MERAK_CHECKED;

/* Fill the file with the first choice and its program id; the plan's lists are
 * still owned by the result. */
enum merak_status merak_chosen_file(const struct merak_search_input *in,
                                    const struct merak_search_result *result,
                                    struct merak_plan_file *file,
                                    struct merak_error *err) MERAK_CHECKED;

/* What a plan's stages are on: the device, and the kinds of nodes in the order of
 * their stages; of a plan of equal stages that any nodes run, the slowest. */
void merak_chosen_kinds_fill(const struct merak_search_input *in,
                             const struct merak_search_stage *stage,
                             struct merak_plan_file *file);

/* Nodes of several kinds, and for stages of equal ranks the slowest of them,
 * with the least memory of any. */
struct merak_chosen_kinds {
    struct merak_device device[MERAK_MAX_KINDS], slowest;
};

/* Let a search have the kinds of "2:fast.json,1:slow.json"; kinds, zeroed, are
 * borrowed by it. */
enum merak_status merak_chosen_kinds_add(const char *given,
                                         struct merak_chosen_kinds *kinds,
                                         struct merak_search_input *in,
                                         struct merak_error *err) MERAK_CHECKED;
/* NULL is fine. */
void merak_chosen_kinds_destroy(struct merak_chosen_kinds *kinds);

#endif
