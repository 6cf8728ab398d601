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

#endif
