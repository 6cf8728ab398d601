/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/schedule/list_check.h - are a schedule's lists complete and in
 * order?
 */
#ifndef MERAK_PARTITIONER_SCHEDULE_LIST_CHECK_H
#define MERAK_PARTITIONER_SCHEDULE_LIST_CHECK_H

#include "partitioner/schedule/time.h"

/* Check that the rows have every required action as often as required, and
 * after those of its own stage that it needs.  MERAK_ERR_CONFIG names the first
 * action that violates this. */
enum merak_status merak_timetable_check(const struct merak_timetable *table,
                                        struct merak_error *err) MERAK_CHECKED;
/* "B3", with chunk, slice and pass if there are several. */
void merak_action_name(const struct merak_timetable *table,
                       const struct merak_action *action, char *buf,
                       size_t size);

#endif
