/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/plan/plan_levels.h - `merak plan --levels node:4,nvl:72,leaf:576` */
#ifndef MERAK_RUNTIME_PLAN_PLAN_LEVELS_H
#define MERAK_RUNTIME_PLAN_PLAN_LEVELS_H

#include "partitioner/device/device.h"

/* Give a device the levels of links that a text names, each with the ranks of
 * its domains: NAME:RANKS[:N],.., from a node's outwards; with N, what leaves a
 * domain has 1 part in N of what its ranks could send.  Their rates are the
 * device's; its last level stays. */
enum merak_status plan_levels_set(const char *text, struct merak_device *device,
                                  struct merak_error *err) MERAK_CHECKED;
/* The same text for a device's levels, without its islands; "" if there are but
 * nodes. */
enum { PLAN_LEVELS_TEXT = 192 };
const char *plan_levels_text(const struct merak_device *device,
                             char text[PLAN_LEVELS_TEXT]);

#endif
