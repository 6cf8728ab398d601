/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/train/chosen.h - what a search chose, as a plan file */
#ifndef MERAK_TRAIN_CHOSEN_H
#define MERAK_TRAIN_CHOSEN_H

#include "io/plan_file.h"
#include "partitioner/search/search.h"

/* merak_device_find(), and the one that is built in as "cpu" is as good at
 * bf16 as the machine that asks: no better than at f32 where the processor
 * does not multiply bf16. */
enum merak_status merak_chosen_device(const char *word,
                                      struct merak_device *device,
                                      struct merak_error *err) MERAK_CHECKED;

/* Fill the file with the first choice, identified; its plan's lists stay the
 * result's. */
enum merak_status merak_chosen_file(const struct merak_search_input *in,
                                    const struct merak_search_result *result,
                                    struct merak_plan_file *file,
                                    struct merak_error *err) MERAK_CHECKED;

#endif
