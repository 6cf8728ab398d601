/* SPDX-License-Identifier: Apache-2.0 */
/* losses.c - what a step's losses are divided by, and their sums over a rank's
 * micro-batches
 *
 * The sum of the micro-batches' losses and gradients, each a mean over all its
 * targets, is divided by a number of shares: that of micro-batches in the
 * samples; or, if not every target counts, the number of counted targets
 * divided by those of a micro-batch.  All ranks know it for the whole global
 * batch in advance, so the mean does not depend on how the batch is split.
 * Infinite: no target counts.
 *
 * Of several losses each has shares of its own.  Gradients are then divided by
 * the number of micro-batches, and what is left for each loss is in
 * merak_step.loss_scale.
 */
#include "config.h"

#include "runtime/train/losses.h"
#include "runtime/train/trainer.h"

#include "base/log.h"

#include <math.h>
#include <string.h>

/* Are there targets that do not count? */
static bool is_masked(const struct merak_trainer *t, int loss)
{
    int input = t->sharded->graph->losses[loss].input;

    return input >= 0 && merak_samples_is_masked(t->load.samples, input);
}

static bool has_names(const struct merak_trainer *t)
{
    return t->sharded->graph->losses[0].name != NULL;
}

bool merak_losses_are_of_means(const struct merak_trainer *t)
{
    return !has_names(t) && !is_masked(t, 0);
}

/* Those of one loss, in samples [base, base + n). */
static double shares_of(const struct merak_trainer *t, int loss,
                        enum merak_split split, uint64_t base, uint64_t n)
{
    double batch = (double)merak_plan_loss_mesh(&t->plan).batch;
    double targets = batch * (double)t->sharded->graph->losses[loss].per_sample;
    uint64_t counted;

    if (!is_masked(t, loss))
        return (double)n / batch;
    counted = merak_inputs_counted(t, loss, split, base, n);
    return counted > 0 ? (double)counted / targets : INFINITY;
}

void merak_losses_shares(const struct merak_trainer *t, enum merak_split split,
                         uint64_t base, uint64_t n, struct merak_shares *shares)
{
    const struct merak_graph *graph = t->sharded->graph;
    double batch = (double)merak_plan_loss_mesh(&t->plan).batch;
    bool any = false;

    memset(shares, 0, sizeof(*shares));
    for (int k = 0; k < graph->n_losses; k++) {
        shares->loss[k] = shares_of(t, k, split, base, n);
        shares->scale[k] =
            graph->losses[k].weight * ((double)n / batch) / shares->loss[k];
        any = any || !isinf(shares->loss[k]);
    }
    shares->all = !has_names(t) ? shares->loss[0]
                  : any         ? (double)n / batch
                                : INFINITY;
}

/* Micro-batches of a loss without a name; of pairs, of its parts. */
static void add_parts(const double *loss, size_t m, size_t parts,
                      double n_shares, double sum[MERAK_STEP_LOSSES])
{
    for (size_t i = 0; i < m * parts; i++)
        sum[i % parts] += loss[i];
    for (size_t k = 0; k < parts; k++)
        sum[k] /= n_shares;
}

void merak_losses_own(const struct merak_trainer *t,
                      const struct merak_program *p,
                      const struct merak_shares *shares,
                      double sum[MERAK_STEP_LOSSES])
{
    const struct merak_graph *graph = t->sharded->graph;
    size_t m = (size_t)p->plan.microbatches;
    const double *loss;

    memset(sum, 0, MERAK_STEP_LOSSES * sizeof(*sum));
    if (p->loss < 0 || p->tp_index != 0)
        return;
    loss = merak_slot_host(t, p, p->loss);
    if (!has_names(t)) {
        add_parts(loss, m, merak_box_count(&p->slot[p->loss].box) / m,
                  shares->loss[0], sum);
        return;
    }
    for (int k = 0; k < graph->n_losses; k++) {
        for (size_t i = 0; i < m; i++)
            sum[1 + k] += loss[i * (size_t)graph->n_losses + (size_t)k];
        sum[1 + k] /= shares->loss[k];
        sum[0] += graph->losses[k].weight * sum[1 + k];
    }
}

void merak_losses_warn(struct merak_trainer *t,
                       const struct merak_shares *shares)
{
    const struct merak_graph *graph = t->sharded->graph;

    for (int k = 0; k < graph->n_losses && has_names(t); k++) {
        if (!isinf(shares->loss[k]) || (t->load.warned >> k & 1) != 0)
            continue;
        t->load.warned |= 1u << k;
        if (t->program->rank == 0)
            merak_warn("train",
                       "step %llu: no target of loss %s counts in its samples: "
                       "the loss is 0 there, also in other such steps; a "
                       "larger --global-batch has fewer of them",
                       (unsigned long long)t->step + 1, graph->losses[k].name);
    }
}

const char *merak_losses_text(const struct merak_trainer *t,
                              const double part[MERAK_MAX_LOSSES], char *text,
                              size_t size)
{
    const struct merak_graph *graph = t->sharded->graph;
    size_t at = 0;

    text[0] = '\0';
    for (int k = 0; k < graph->n_losses && has_names(t) && at < size; k++)
        at += (size_t)snprintf(text + at, size - at, "  %s %.4f",
                               graph->losses[k].name, part[k]);
    return text;
}
