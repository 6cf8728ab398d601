/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/plan/cut_options.h - cuts and recomputation as options give them */
#ifndef MERAK_RUNTIME_PLAN_LISTS_H
#define MERAK_RUNTIME_PLAN_LISTS_H

#include "partitioner/plan/list_text.h"

/*
 * "1-3-5" or auto, which is none; and "a-2-0" or one of the words for
 * recompute.  They replace what the lists were; plan_lists_fini() frees them.
 *
 *   recompute_p  out  the word; AUTO, or NONE of nothing, beside a list
 *
 * MERAK_ERR_CONFIG names the option, what was given and what was expected.
 */
enum merak_status plan_lists_cut(const char *text,
                                 struct merak_given_lists *lists,
                                 struct merak_error *err) MERAK_CHECKED;
enum merak_status plan_lists_recompute(const char *text,
                                       struct merak_given_lists *lists,
                                       enum merak_recompute *recompute_p,
                                       struct merak_error *err) MERAK_CHECKED;
void plan_lists_fini(struct merak_given_lists *lists);

#endif
