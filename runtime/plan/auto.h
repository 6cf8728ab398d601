/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/plan/auto.h - a plan for a machine: the search for choices */
#ifndef MERAK_RUNTIME_PLAN_AUTO_H
#define MERAK_RUNTIME_PLAN_AUTO_H

#include "base/size.h"
#include "io/plan_file.h"
#include "kernels/kernels.h"
#include "partitioner/device/island_ways.h"
#include "partitioner/search/search.h"
#include "runtime/plan/planned_model.h"

#include <jansson.h>

struct plan_advice;    /* advice.h */
struct merak_planned;  /* assembly.h */
struct merak_timeline; /* timeline.h */

struct plan_auto {
    const struct plan_options *opt;
    struct plan_model model;
    struct merak_device device; /* of several kinds, the slowest */
    struct merak_device kind[MERAK_MAX_KINDS];
    struct merak_search_input in;
    bool by_hosts; /* none was proved for NCCL */
    struct merak_island_hops hops; /* between the islands of --links */
    /* At --expert-load: the step's seconds, 0 if it is not given; and the
     * highest load that there can be, 1 if experts are not divided. */
    double loaded_s, most_load;
    struct {
        size_t n;           /* 0: they are not divided */
        double layer, most; /* bytes that a rank keeps for gradients of a
                               micro-batch: of a layer; and rows that it can
                               have, times an even share */
    } experts;
    bool identified; /* `file` is filled in */
    struct merak_plan_file file;
};

/* `merak plan` if its options ask for a search. */
enum merak_status merak_plan_auto(const struct plan_options *opt,
                                  struct merak_error *err) MERAK_CHECKED;

/* auto.c: fill in the rest from the options; merak_device_fini() is due even
 * after an error. */
enum merak_status plan_auto_fill(struct plan_auto *plan,
                                 struct merak_error *err) MERAK_CHECKED;
/* auto.c: the backend of a run on the device, whose name `merak calibrate`
 * begins with the backend's; it uses the device's tuned algorithms.  NULL if it
 * is not known: then scratch is not counted. */
enum merak_status plan_device_backend(const struct plan_options *opt,
                                      const struct merak_device *device,
                                      const struct merak_backend **backend_p,
                                      struct merak_error *err) MERAK_CHECKED;
/* auto.c: build and simulate one rank of each stage, at this load of experts
 * (merak_cost_model); stage: the result's, which may be on nodes of several
 * kinds. */
enum merak_status plan_auto_build(const struct plan_auto *plan,
                                  const struct merak_plan *built,
                                  const struct merak_search_stage *stage,
                                  double load, struct merak_planned **planned_p,
                                  struct merak_timeline **timeline_p,
                                  struct merak_error *err) MERAK_CHECKED;
/* uneven_load.c: fill in experts, loaded_s and most_load; print them. */
enum merak_status plan_load_add(struct plan_auto *plan,
                                const struct merak_search_result *result,
                                struct merak_error *err) MERAK_CHECKED;
void plan_load_print(const struct plan_auto *plan, const struct merak_plan *p);
/* table.c: the best plans for several machines, or saved plans, a row each. */
enum merak_status plan_table_print(const struct plan_options *opt,
                                   struct merak_error *err) MERAK_CHECKED;
/* table.c: a table has no pictures or files of a single plan. */
enum merak_status plan_table_check(const struct plan_options *opt,
                                   struct merak_error *err) MERAK_CHECKED;
/* emit_rated.c: print the plan for another trainer, with the time that it takes
 * there.  MERAK_ERR_CONFIG, after that, if it does not have or accept what was
 * asked for, unless the options say that this does not matter. */
enum merak_status plan_emit_rated(struct plan_auto *plan,
                                  const struct merak_search_result *result,
                                  struct merak_error *err) MERAK_CHECKED;
/* The options of what is trained and how documents are masked, which other
 * trainers set in ways of their own: "--lora-rank, --freeze"; "" if none. */
#define PLAN_TRAINING_TEXT 128
const char *plan_emit_training(const struct plan_options *opt,
                               char text[PLAN_TRAINING_TEXT]);
/* plan_search.c: merak_search() for as long as the options say, or until
 * Ctrl-C. */
enum merak_status plan_search(struct plan_auto *plan,
                              struct merak_search_result **result_p,
                              struct merak_error *err) MERAK_CHECKED;
/* plan_search.c, each in one line: that it was cut short, or NULL; how far the
 * plan is above the least that any takes, or NULL if that is not known. */
enum { PLAN_SEARCH_TEXT = 256 };
const char *plan_search_text(const struct merak_search_result *result,
                             char text[PLAN_SEARCH_TEXT]);
const char *plan_bound_text(const struct merak_search_result *result,
                            char text[PLAN_SEARCH_TEXT]);
/* plan_report.c: what is planned, in one line. */
void plan_report_heading(const struct plan_auto *plan,
                         const struct merak_search_result *result, char *text,
                         size_t bytes);
/* plan_report.c: the chosen plan with the resolved automatic choices; and the
 * peak that its utilisation refers to. */
void plan_report_choice(const struct merak_search_result *result, char *text,
                        size_t bytes);
const char *plan_report_utilisation(const struct merak_search_result *result);
/* plan_report.c: " on stage 3, which has the most work", which the parts of
 * a step are of, or "" if there is one; and what is said beside a part that is
 * not all of it. */
enum { PLAN_WHERE_TEXT = 64 };
const char *plan_report_where(const struct merak_search_result *result,
                              char text[PLAN_WHERE_TEXT]);
const char *plan_report_elsewhere(const struct merak_search_result *result,
                                  enum merak_search_part part);
/* plan_report.c: "20.26 B". */
const char *plan_count_text(double n, char text[MERAK_SECONDS_TEXT]);
/* plan_report.c: print the results; write them to a file. */
void plan_report_print(const struct plan_auto *plan,
                       const struct merak_search_result *result,
                       const struct plan_advice *advice);
enum merak_status plan_report_save(const struct plan_auto *plan,
                                   const struct merak_search_result *result,
                                   const struct plan_advice *advice,
                                   struct merak_error *err) MERAK_CHECKED;

/* plan_report.c: what was asked for. */
json_t *plan_request_object(const struct plan_model *model,
                            const struct merak_search_input *in);
/* Write an object and release it; path "-" is standard output.
 * MERAK_ERR_NOMEM if there is no object. */
enum merak_status plan_json_save(json_t *object, const char *path,
                                 struct merak_error *err) MERAK_CHECKED;

#endif
