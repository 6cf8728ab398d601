/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/train/metrics.h - what is known of a step, and where it is written
 *
 * The values of a step are gathered once, by rank 0; every output is made from
 * them: metrics.jsonl, TensorBoard's events and the OpenMetrics page.
 */
#ifndef MERAK_RUNTIME_TRAIN_METRICS_H
#define MERAK_RUNTIME_TRAIN_METRICS_H

#include <jansson.h>
#include <stdint.h>

#include "merak/op.h"
#include "merak/status.h"

struct merak_trainer;

/* Of pairs of answers: beta times the logarithm of how much likelier than under
 * the reference they are; the share in which the chosen one is. */
struct merak_rewards {
    double chosen, rejected, margin, accuracy;
};

/* NAN: there is none, or it is not known. */
struct merak_step_values {
    uint64_t step, samples, tokens, empty_steps;
    double loss, valid_loss, grad_norm, lr;
    /* by number, of several losses: without their weights */
    double part[MERAK_MAX_LOSSES], valid_part[MERAK_MAX_LOSSES];
    struct merak_rewards reward, valid_reward;
    /* Of routers (merak_balance()): their losses, without coefficients; the
     * rows of the fullest expert over the mean, in the worst layer, and which
     * they are; rows that were computed again, and those that were dropped. */
    double aux, router_z, load_max, load_layer, load_expert;
    double overflow_rows, dropped_rows;
    double step_s, samples_per_s, tokens_per_s, flops_per_s, mfu;
    double idle; /* of a step in which ranks were compared (pace.c) */
    double time, elapsed_s;
    double memory_bytes, memory_peak_bytes;
};

struct merak_metrics;

/* Open what the options name; rank 0 only. */
enum merak_status merak_metrics_open(struct merak_trainer *t,
                                     struct merak_error *err) MERAK_CHECKED;
/* Also writes the last page. */
void merak_metrics_close(struct merak_trainer *t);
/* Write the values of a step: given are its losses, rewards, norm, learning
 * rate and time, the others are filled in. */
enum merak_status merak_metrics_step(struct merak_trainer *t,
                                     struct merak_step_values *v,
                                     struct merak_error *err) MERAK_CHECKED;
/* redone.c: take the steps after t->step out of this metrics file, and count
 * them in t->lineage.n_redone. */
enum merak_status merak_metrics_cut(struct merak_trainer *t, const char *path,
                                    struct merak_error *err) MERAK_CHECKED;

/* metrics_page.c: the OpenMetrics page; NULL if there is none. */
struct merak_metrics_page;
enum merak_status
merak_metrics_page_open(const struct merak_trainer *t,
                        struct merak_metrics_page **page_p,
                        struct merak_error *err) MERAK_CHECKED;
/* Take the values of a step; the page is written at most once a second. */
void merak_metrics_page_step(struct merak_metrics_page *page,
                             const struct merak_trainer *t,
                             const struct merak_step_values *v);
/* Count an incident, and write the page, which may be the last. */
void merak_metrics_page_incident(struct merak_metrics_page *page,
                                 const struct merak_trainer *t,
                                 const json_t *incident);
void merak_metrics_page_close(struct merak_metrics_page *page,
                              const struct merak_trainer *t);

#endif
