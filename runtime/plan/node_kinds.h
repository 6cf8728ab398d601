/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/plan/node_kinds.h - `merak plan --nodes 4:h100,2:a100`: nodes of
 * several kinds */
#ifndef MERAK_RUNTIME_PLAN_NODE_KINDS_H
#define MERAK_RUNTIME_PLAN_NODE_KINDS_H

#include "runtime/plan/auto.h"
#include "runtime/plan/plan_options.h"

/* Does --nodes name kinds? */
bool plan_kinds_are_named(const char *text);
/* Store them; the text is copied. */
enum merak_status plan_kinds_set(struct plan_options *opt, const char *text,
                                 struct merak_error *err) MERAK_CHECKED;
/* Each kind has to be one of --device, which then is no table's. */
enum merak_status plan_kinds_check(struct plan_options *opt,
                                   struct merak_error *err) MERAK_CHECKED;
/* Load their devices into kind[MERAK_MAX_KINDS], zeroed, and into `any` what all
 * of them can do: the slowest, with the least memory of any, for stages of equal
 * ranks.  plan_kinds_fini() is due even after an error. */
enum merak_status plan_kinds_load(const struct plan_options *opt,
                                  struct merak_device *kind,
                                  struct merak_device *any,
                                  struct merak_error *err) MERAK_CHECKED;
/* Print the one device as a file, with the racks and levels of links that
 * options name. */
enum merak_status plan_kinds_print(const struct plan_options *opt,
                                   struct merak_error *err) MERAK_CHECKED;
/* Let the request have them. */
void plan_kinds_fill(const struct plan_options *opt,
                     const struct merak_device *kind,
                     struct merak_search_input *in);
void plan_kinds_fini(struct merak_device *kind);
/* "4 x 8 h100 + 2 x 8 a100"; also of a single kind, "32 x 4 gb200 in racks of
 * 16". */
enum { PLAN_KINDS_TEXT = 160 };
const char *plan_kinds_text(const struct merak_search_input *in,
                            char text[PLAN_KINDS_TEXT]);

#endif
