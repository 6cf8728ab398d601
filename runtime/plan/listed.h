/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/plan/listed.h - `merak plan --stages LIST --device NAME`: unlike
 * stages on a machine */
#ifndef MERAK_RUNTIME_PLAN_LISTED_H
#define MERAK_RUNTIME_PLAN_LISTED_H

#include "partitioner/assembly/assembly.h"
#include "runtime/plan/plan_options.h"

/* Load the device, and take dtype, costs, limit of memory and nodes from it, as
 * far as they are not given.  plan_listed_fini() is due even after an error. */
enum merak_status plan_listed_take(struct plan_options *opt,
                                   struct merak_error *err) MERAK_CHECKED;
void plan_listed_fini(struct plan_options *opt);
/* MERAK_ERR_CONFIG names the first stage with a rank that needs more than the
 * limit.  The plan has the programs of all ranks. */
enum merak_status
plan_listed_check_memory(const struct plan_options *opt,
                         const struct merak_planned *planned,
                         struct merak_error *err) MERAK_CHECKED;
/* ", on 2 x 8 h100", or "" if the machine is not known. */
enum { PLAN_MACHINE_TEXT = 96 };
const char *plan_listed_text(const struct plan_options *opt, int ranks,
                             char text[PLAN_MACHINE_TEXT]);

#endif
