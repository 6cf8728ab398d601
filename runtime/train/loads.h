/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/train/loads.h - how evenly a step loaded the experts */
#ifndef MERAK_RUNTIME_TRAIN_LOADS_H
#define MERAK_RUNTIME_TRAIN_LOADS_H

#include "merak/status.h"
#include "runtime/train/metrics.h"

/* For a model that reports loads; all ranks. */
enum merak_status merak_loads_open(struct merak_trainer *t,
                                   struct merak_error *err) MERAK_CHECKED;
void merak_loads_close(struct merak_trainer *t);
/* Fill in the loads of the step that has run, NAN without experts; all ranks.
 * Allocates nothing. */
enum merak_status merak_loads_step(struct merak_trainer *t,
                                   struct merak_step_values *v,
                                   struct merak_error *err) MERAK_CHECKED;

#endif
