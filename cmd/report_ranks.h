/* SPDX-License-Identifier: Apache-2.0 */
/* cmd/report_ranks.h - where a run's ranks are, for its page */
#ifndef MERAK_CMD_REPORT_RANKS_H
#define MERAK_CMD_REPORT_RANKS_H

#include "cmd/run_state.h"

#include <stdio.h>

/* The stages of the last start and its nodes, each with its ranks and what
 * these did. */
void report_put_ranks(FILE *out, const struct merak_run_log *log);

#endif
