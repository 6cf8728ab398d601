/* SPDX-License-Identifier: Apache-2.0 */
/* cmd/plan_auto.h - `merak plan` for a machine: the search for degrees */
#ifndef MERAK_CMD_PLAN_AUTO_H
#define MERAK_CMD_PLAN_AUTO_H

#include "io/hf_config.h"
#include "partitioner/search/search.h"

struct plan_auto {
    const char *model; /* config.json */
    const char *json;  /* file, or NULL */
    const char *what_if;
    bool help;
    struct merak_hf_config config;
    struct merak_device device;
    struct merak_search_input in;
};

/* Do these arguments ask for the search?  They do if they name a machine. */
bool plan_auto_wanted(int argc, char **argv);
/* `merak plan` with them; the exit code. */
int merak_cmd_plan_auto(int argc, char **argv);

/* plan_report.c: what was found, for people, and into a file. */
void plan_report_print(const struct plan_auto *opt,
                       const struct merak_search_result *result);
enum merak_status plan_report_save(const struct plan_auto *opt,
                                   const struct merak_search_result *result,
                                   struct merak_error *err) MERAK_CHECKED;

#endif
