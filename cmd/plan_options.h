/* SPDX-License-Identifier: Apache-2.0 */
/* cmd/plan_options.h - options of `merak plan` */
#ifndef MERAK_CMD_PLAN_OPTIONS_H
#define MERAK_CMD_PLAN_OPTIONS_H

#include "partitioner/program/program.h"

struct plan_options {
    const char *model; /* config.json */
    const char *svg;   /* file, or NULL */
    const char *backend;
    size_t seq, global_batch;
    bool json, program, help;
    struct merak_plan plan;
    double unit_ms; /* 0: times as the cost model says */
    struct merak_cost_model cost;
};

/* MERAK_ERR_CONFIG names the option, what was given and what was expected. */
enum merak_status plan_options_parse(int argc, char **argv,
                                     struct plan_options *opt,
                                     struct merak_error *err) MERAK_CHECKED;
void plan_options_help(void);

#endif
