/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.c - the schedules there are, by name */
#include "config.h"

#include "partitioner/schedule.h"

#include "base/error.h"
#include "partitioner/schedule_kinds.h"

#include <stdio.h>
#include <string.h>

static const struct merak_schedule *const schedules[] = {
    &merak_schedule_1f1b,
    &merak_schedule_gpipe,
    NULL,
};

const struct merak_schedule *const *merak_schedules(void)
{
    return schedules;
}

static void list_names(char *buf, size_t size)
{
    size_t used = 0;

    buf[0] = '\0';
    for (int i = 0; schedules[i] != NULL && used < size; i++)
        used += (size_t)snprintf(buf + used, size - used, "%s%s",
                                 i > 0 ? ", " : "", schedules[i]->name);
}

enum merak_status merak_schedule_find(const char *name,
                                      const struct merak_schedule **sched_p,
                                      struct merak_error *err)
{
    char names[128];

    for (int i = 0; schedules[i] != NULL; i++) {
        if (strcmp(schedules[i]->name, name) == 0) {
            *sched_p = schedules[i];
            return MERAK_OK;
        }
    }
    list_names(names, sizeof(names));
    return merak_fail(err, MERAK_ERR_NOT_FOUND,
                      "no schedule '%s'; there are: %s", name, names);
}

enum merak_status
merak_schedule_one_chunk(const struct merak_schedule_args *args,
                         struct merak_error *err)
{
    if (args->chunks == 1)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "this schedule runs 1 model chunk per rank, not %d",
                      args->chunks);
}
