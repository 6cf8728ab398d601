/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate_beside.c - what kernels lose to concurrent exchanges
 * (interference)
 *
 * A model is trained by one rank, then by replicas that sum its gradients
 * during the backward: the additional time of the same kernels is their loss.
 * The simulator, given the kernels' undisturbed times, computes the loss per
 * second of latency in each round, and per second for each byte; latency and
 * rate are fitted to all models by the sum of relative errors, since other
 * users of the machine make some errors large.  The weights, and how many
 * rounds find the communication thread awake, depend on the result, so the fit
 * is iterated.
 */
#include "config.h"

#include "cmd/calibrate.h"

#include "base/error.h"
#include "partitioner/simulate/simulate.h"
#include "partitioner/program/instr_cost.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define FIRST_LATENCY 5e-5
#define ROUNDS 12
#define LEAST_ERROR 0.005 /* of a model's time: smaller ones weigh the same */

/* Is it the same instruction in both programs? */
static bool is_same(const struct merak_instr *a, const struct merak_instr *b)
{
    return a->kind == b->kind && a->node == b->node && a->op == b->op &&
           a->microbatch == b->microbatch && a->phase == b->phase &&
           a->recompute == b->recompute && a->bytes == b->bytes;
}

static bool counts(const struct merak_instr *in)
{
    return in->kind == MERAK_INSTR_KERNEL && in->microbatch >= 0;
}

/* -1: none.  Both programs are in nearly the same order. */
static int find_same(const struct merak_program *alone, int from,
                     const struct merak_instr *in)
{
    for (int i = 0; i < alone->n_instrs; i++) {
        int at = (from + i) % alone->n_instrs;

        if (is_same(&alone->instr[at], in))
            return at;
    }
    return -1;
}

/* Keep only this rank's program: if each rank kept all, a node's memory would
 * grow with the square of its ranks. */
static void drop_others(struct merak_planned *planned, int rank)
{
    for (int i = 0; i < planned->n_programs; i++) {
        if (i == rank)
            continue;
        merak_program_destroy(planned->program[i]);
        planned->program[i] = NULL;
    }
}

/* Instructions get the times that they take without communication. */
void calibrate_beside_add(struct calibrate_beside *b,
                          const struct merak_program *alone,
                          const struct calibrate_times *alone_times,
                          struct merak_planned *planned, int rank,
                          const struct calibrate_times *times)
{
    struct merak_program *prog = planned->program[rank];
    struct calibrate_replicas *r = &b->model[b->n++];
    int at = 0;

    drop_others(planned, rank);
    *r = (struct calibrate_replicas){.planned = planned, .program = prog};
    for (int i = 0; i < prog->n_instrs; i++) {
        struct merak_instr *in = &prog->instr[i];
        int same = counts(in) ? find_same(alone, at, in) : -1;

        in->cost_s = times->seconds[i];
        if (same < 0)
            continue;
        at = same + 1;
        in->cost_s = alone_times->seconds[same];
        r->took_s += times->seconds[i];
        r->lost_s += times->seconds[i] - in->cost_s;
    }
}

/* The simulated loss of kernels of micro-batches. */
static enum merak_status simulated_loss(struct merak_program *prog,
                                        const struct merak_cost_model *cost,
                                        double *lost_p, struct merak_error *err)
{
    struct merak_timeline *tl = NULL;
    enum merak_status rc;

    for (int i = 0; i < prog->n_instrs; i++) {
        struct merak_instr *in = &prog->instr[i];

        in->interference = merak_cost_instr_interference(cost, prog, in);
        if (in->kind == MERAK_INSTR_EXCHANGE)
            in->cost_s = merak_cost_instr(cost, prog, in);
    }
    rc = merak_simulate(&prog, 1, NULL, NULL, &tl, err);
    if (rc != MERAK_OK)
        return rc;
    *lost_p = 0;
    for (int i = 0; i < prog->n_instrs; i++) {
        const struct merak_instr *in = &prog->instr[i];

        if (counts(in))
            *lost_p += tl->end[0][i] - tl->start[0][i] - in->cost_s;
    }
    merak_timeline_destroy(tl);
    return MERAK_OK;
}

/* Normal equations of lost = rounds latency + bytes per_byte. */
struct equations {
    double rr, rb, bb, r1, b1;
};

/* latency and per_byte are the last iteration's results. */
static enum merak_status add_model(struct equations *e,
                                   const struct calibrate_replicas *r,
                                   const struct merak_device *device,
                                   double latency, double per_byte,
                                   struct merak_error *err)
{
    struct merak_cost_model cost;
    double rounds = 0, bytes = 0, lost = r->lost_s / r->took_s, weight;
    enum merak_status rc;

    merak_device_cost(device, MERAK_F32, 0, &cost);
    cost.interference_latency_s = latency;
    cost.interference_bytes_per_s = 0;
    rc = simulated_loss(r->program, &cost, &rounds, err);
    cost.interference_latency_s = 0;
    cost.interference_bytes_per_s = 1e9;
    if (rc == MERAK_OK)
        rc = simulated_loss(r->program, &cost, &bytes, err);
    rounds /= latency * r->took_s;
    bytes *= 1e9 / r->took_s;
    weight =
        1 / fmax(fabs(rounds * latency + bytes * per_byte - lost), LEAST_ERROR);
    e->rr += weight * rounds * rounds;
    e->rb += weight * rounds * bytes;
    e->bb += weight * bytes * bytes;
    e->r1 += weight * rounds * lost;
    e->b1 += weight * bytes * lost;
    return rc;
}

/* If one would be negative, fit only the other. */
static void solve(const struct equations *e, double *latency_p,
                  double *per_byte_p)
{
    double det = e->rr * e->bb - e->rb * e->rb;
    double latency = (e->r1 * e->bb - e->b1 * e->rb) / det;
    double per_byte = (e->b1 * e->rr - e->r1 * e->rb) / det;

    if (det <= 0 || per_byte < 0) {
        per_byte = 0;
        latency = e->rr > 0 ? e->r1 / e->rr : 0;
    }
    if (latency < 0) {
        latency = 0;
        per_byte = e->bb > 0 && e->b1 > 0 ? e->b1 / e->bb : 0;
    }
    *latency_p = latency;
    *per_byte_p = per_byte;
}

enum merak_status calibrate_beside_fit(const struct calibrate_beside *b,
                                       struct merak_device *device,
                                       struct merak_error *err)
{
    double latency = FIRST_LATENCY, per_byte = 0;
    enum merak_status rc = MERAK_OK;

    if (b->n == 0)
        return MERAK_OK;
    for (int k = 0; k < ROUNDS && rc == MERAK_OK && latency > 0; k++) {
        struct equations e = {0};

        for (int i = 0; i < b->n && rc == MERAK_OK; i++)
            rc = add_model(&e, &b->model[i], device, latency, per_byte, err);
        solve(&e, &latency, &per_byte);
    }
    if (rc != MERAK_OK)
        return rc;
    device->interference_latency_s = latency;
    device->interference_bytes_per_s = per_byte > 0 ? 1 / per_byte : 0;
    printf("  during an exchange, kernels lose %.1f us a round, %.3f ns a "
           "byte\n",
           latency * 1e6, per_byte * 1e9);
    return MERAK_OK;
}

void calibrate_beside_fini(struct calibrate_beside *b)
{
    for (int i = 0; i < b->n; i++)
        merak_planned_destroy(b->model[i].planned);
    b->n = 0;
}
