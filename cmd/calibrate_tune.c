/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate_tune.c - choose an accelerator's algorithms for one model's shapes
 *
 * The fastest algorithm for a matrix product, or kernel for attention, is only
 * known by trying.  Runs must not try, since ranks could choose differently,
 * and a second run differently from the first.  So it is tried here, once for
 * each product of a model's step, and stored in the device file, which runs
 * read.
 */
#include "config.h"

#include "cmd/calibrate.h"

#include "base/error.h"
#include "base/log.h"
#include "io/hf_config.h"
#include "partitioner/program/closure.h"
#include "partitioner/program/instr_cost.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_SEQ 1024 /* unless --seq gives more */

struct tuner {
    struct calibrate_world *world;
    struct merak_device *device;
    enum merak_status rc;
    struct merak_error *err;
};

static void keep(void *arg, const char *line)
{
    struct tuner *t = arg;

    if (t->rc == MERAK_OK)
        t->rc = merak_device_add_tuned(t->device, line, t->err);
}

static bool has_role(const struct merak_instr *in, enum merak_op_role role)
{
    return in->kind == MERAK_INSTR_KERNEL && in->op->role == role;
}

/* Are there several ways to compute it? */
static bool is_tuned(const struct merak_instr *in)
{
    return has_role(in, MERAK_ROLE_ATTENTION) ||
           has_role(in, MERAK_ROLE_PRODUCT);
}

/* Is there such a call among the first n of a program? */
static bool has_call(const struct merak_program *prog, int n,
                     const struct merak_program *other,
                     const struct merak_instr *in)
{
    for (int i = 0; i < n; i++) {
        if (is_tuned(&prog->instr[i]) &&
            merak_instr_is_same_call(prog, &prog->instr[i], other, in))
            return true;
    }
    return false;
}

/* Ranks of a tensor-parallel group differ where a dimension does not divide,
 * and in who adds a bias. */
static bool was_tuned(const struct merak_planned *planned, int rank, int at)
{
    const struct merak_program *prog = planned->program[rank];
    const struct merak_instr *in = &prog->instr[at];

    for (int r = 0; r < rank; r++) {
        const struct merak_program *other = planned->program[r];

        if (has_call(other, other->n_instrs, prog, in))
            return true;
    }
    return has_call(prog, at, prog, in);
}

/* Time the chosen kernel, for the cost of this model's attention in plans. */
static enum merak_status add_rate(struct tuner *t,
                                  const struct merak_program *prog,
                                  const struct merak_instr *in)
{
    struct merak_rates **rates =
        &t->device->rates[prog->slot[in->slot[0]].dtype];
    struct merak_rate_point point = {.size = merak_instr_size(prog, in)};
    struct merak_kernel_call call;
    enum merak_status rc;

    if (*rates == NULL)
        *rates = calloc(1, sizeof(**rates));
    if (*rates == NULL)
        return merak_fail_nomem(t->err, sizeof(**rates));
    merak_program_call(prog, in, &call);
    rc = calibrate_accel_time(t->world, in->op->name, &call, &point.seconds,
                              t->err);
    if (rc == MERAK_OK && point.seconds > 0)
        merak_rates_set(*rates, in->op->name, &point);
    return rc;
}

static void tune_rank(struct tuner *t, const struct merak_planned *planned,
                      int rank)
{
    const struct merak_program *prog = planned->program[rank];

    for (int i = 0; i < prog->n_instrs && t->rc == MERAK_OK; i++) {
        const struct merak_instr *in = &prog->instr[i];
        struct merak_kernel_call call;
        enum merak_status rc;

        if (!is_tuned(in) || was_tuned(planned, rank, i))
            continue;
        merak_program_call(prog, in, &call);
        rc = calibrate_accel_tune(t->world, in->op->name, &call, keep, t,
                                  t->err);
        if (rc == MERAK_OK && has_role(in, MERAK_ROLE_ATTENTION))
            rc = add_rate(t, prog, in);
        if (t->rc == MERAK_OK)
            t->rc = rc;
    }
}

static enum merak_status
build(const struct calibrate_tune *how, const struct merak_backend *backend,
      struct merak_hf_config *config, enum merak_dtype dtype,
      struct merak_planned **planned_p, struct merak_error *err)
{
    struct merak_plan plan = {.tp = how->tp,
                              .pp = 1,
                              .dp = 1,
                              .microbatches = 1,
                              .micro_batch = (size_t)how->micro_batch,
                              .dtype = dtype,
                              .threads = 1,
                              .schedule = "1f1b"};
    const struct merak_program_options opt = {
        .memory = merak_backend_memory(backend),
    };

    return merak_plan_build(&plan, (size_t)how->seq, merak_hf_describe, config,
                            MERAK_PLAN_ALL, &opt, planned_p, err);
}

static enum merak_status tune_dtype(struct tuner *t,
                                    const struct calibrate_tune *how,
                                    struct merak_hf_config *config,
                                    enum merak_dtype dtype)
{
    struct merak_planned *planned = NULL;

    t->rc = build(how, t->world->backend, config, dtype, &planned, t->err);
    for (int rank = 0; rank < how->tp && t->rc == MERAK_OK; rank++)
        tune_rank(t, planned, rank);
    merak_planned_destroy(planned);
    return t->rc;
}

enum merak_status calibrate_tune_check(const struct merak_backend *backend,
                                       struct calibrate_tune *how,
                                       struct merak_error *err)
{
    struct merak_planned *planned = NULL;
    struct merak_hf_config config;
    enum merak_status rc;

    if (backend->accel == NULL || backend->accel->tune == NULL)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--model tunes kernels, and backend %s has none to "
                          "choose from: leave it out, or use --backend cuda",
                          backend->name);
    rc = merak_hf_config_load(how->model, &config, err);
    if (rc == MERAK_OK && how->seq == 0)
        how->seq = config.positions > 0 && config.positions < MOST_SEQ
                       ? (int)config.positions
                       : MOST_SEQ;
    if (rc == MERAK_OK && config.positions > 0 &&
        (size_t)how->seq > config.positions)
        rc = merak_fail(err, MERAK_ERR_CONFIG,
                        "--seq %d is longer than the %zu positions of "
                        "--model %.200s",
                        how->seq, config.positions, how->model);
    if (rc == MERAK_OK)
        rc = build(how, backend, &config, MERAK_BF16, &planned, err);
    merak_planned_destroy(planned);
    return rc;
}

enum merak_status calibrate_tune(struct calibrate_world *world,
                                 const struct calibrate_tune *how,
                                 struct merak_device *device,
                                 struct merak_error *err)
{
    const struct merak_accel_ops *ops = world->accel->ops;
    struct tuner t = {.world = world, .device = device, .err = err};
    struct merak_hf_config config;
    char text[128];
    enum merak_status rc;

    rc = merak_hf_config_load(how->model, &config, err);
    if (rc == MERAK_OK && world->boot->rank == 0 && config.note[0] != '\0')
        merak_info("io", "%s", config.note);
    ops->tuned_for(world->accel, text, sizeof(text));
    if (rc == MERAK_OK && device->tuned_for == NULL) {
        device->tuned_for = strdup(text);
        if (device->tuned_for == NULL)
            rc = merak_fail_nomem(err, strlen(text));
    }
    if (rc == MERAK_OK)
        rc = tune_dtype(&t, how, &config, MERAK_BF16);
    if (rc == MERAK_OK)
        rc = tune_dtype(&t, how, &config, MERAK_F32);
    if (rc == MERAK_OK)
        printf("  tuned for %s: %d calls of %s\n", device->tuned_for,
               device->n_tuned, how->model);
    return rc;
}
