/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/plan/plan_saved.h - plans that were saved, instead of choices */
#ifndef MERAK_RUNTIME_PLAN_PLAN_SAVED_H
#define MERAK_RUNTIME_PLAN_PLAN_SAVED_H

#include "io/plan_file.h"
#include "runtime/plan/plan_options.h"

/*
 * Load the plans that --plan names, and take the first one's choices, run,
 * device and machine as if options had given them; its lists stay the file's.
 * Does nothing without --plan.
 *
 * MERAK_ERR_CONFIG if options give what a plan has.
 */
enum merak_status plan_saved_open(struct plan_options *opt,
                                  struct merak_error *err) MERAK_CHECKED;
/* Take those of plan i; the device only if none is known yet. */
void plan_saved_take(struct plan_options *opt, int i);
/* MERAK_ERR_CONFIG if a plan is for another model than this one, of `seq`
 * tokens. */
enum merak_status plan_saved_check(const struct plan_options *opt,
                                   const struct plan_model *model, size_t seq,
                                   struct merak_error *err) MERAK_CHECKED;
/* A line about what was predicted when it was saved.
 *   program   the id of the programs that it has now */
void plan_saved_print(const struct plan_options *opt, uint64_t program);
void plan_saved_fini(struct plan_options *opt);

#endif
