/* SPDX-License-Identifier: Apache-2.0 */
/* quiet.h - no log of what a test makes fail */
#ifndef MERAK_TESTS_QUIET_H
#define MERAK_TESTS_QUIET_H

#include "base/log.h"

#include <stddef.h>

static inline void quiet_drop(void *arg, enum merak_log_level level,
                              const char *module, const char *line)
{
    (void)arg;
    (void)level;
    (void)module;
    (void)line;
}

/* Until merak_log_sink() is called again. */
static inline void quiet_logs(void)
{
    merak_log_sink(quiet_drop, NULL);
}

#endif
