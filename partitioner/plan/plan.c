/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - a plan's ranks, parts and schedule */
#include "config.h"

#include "partitioner/plan/plan.h"

#include "base/error.h"
#include "base/factors.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>

enum merak_status merak_plan_split_batch(struct merak_plan *plan,
                                         size_t global_batch,
                                         struct merak_error *err)
{
    size_t pass = plan->micro_batch * (size_t)plan->dp;

    if (global_batch % pass != 0 && plan->stage != NULL)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--global-batch %zu is not a multiple of "
                          "--micro-batch %zu, of all replicas; nearest: %zu",
                          global_batch, plan->micro_batch,
                          (global_batch / pass + 1) * pass);
    if (global_batch % pass != 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--global-batch %zu is not a multiple of "
                          "--micro-batch %zu x dp %d; nearest: %zu",
                          global_batch, plan->micro_batch, plan->dp,
                          (global_batch / pass + 1) * pass);
    if (plan->sub_pipeline && plan->micro_batch % 2 != 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--sub-pipeline halves --micro-batch %zu: expected "
                          "an even number",
                          plan->micro_batch);
    for (int s = 0; s < plan->pp && plan->sub_pipeline; s++) {
        size_t batch = merak_plan_mesh(plan, s).batch;

        if (batch % 2 != 0)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "--sub-pipeline halves the micro-batch: %zu "
                              "sequences in stage %d; expected an even number",
                              batch, s);
    }
    plan->microbatches = (int)(global_batch / pass);
    if (plan->sub_pipeline) {
        plan->microbatches *= 2;
        plan->micro_batch /= 2;
    }
    return MERAK_OK;
}

/* Ranks are numbered by an int. */
static enum merak_status check_ranks(const struct merak_plan *plan,
                                     struct merak_error *err)
{
    const int degree[] = {plan->tp, plan->cp, plan->ep, plan->pp, plan->dp};
    char text[MERAK_DEGREES_TEXT];
    int64_t n = 1;

    if (plan->stage != NULL) /* merak_plan_set_stages() has counted them */
        return MERAK_OK;
    for (size_t i = 0; i < sizeof(degree) / sizeof(*degree); i++) {
        if (degree[i] > 1)
            n *= degree[i];
        if (n > INT_MAX)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "%s: more than %d ranks; use lower degrees",
                              merak_plan_degrees_text(plan, " x ", text),
                              INT_MAX);
    }
    return MERAK_OK;
}

static enum merak_status check_axes(const struct merak_plan *plan,
                                    struct merak_error *err)
{
    struct merak_shard_options shards;

    if (plan->stage != NULL)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "--tp-axes and stages of unlike degrees: leave out "
                          "--tp-axes or --stages");
    shards = merak_plan_shards(plan, 0);
    return merak_shard_check_axes(&shards, err);
}

enum merak_status merak_grad_dtype_check(enum merak_dtype dtype,
                                         enum merak_dtype grad_dtype,
                                         struct merak_error *err)
{
    if (grad_dtype != MERAK_BF16 || dtype == MERAK_BF16)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--grad-dtype bf16 with --dtype fp32: gradients of fp32 "
                      "weights are fp32; give --dtype bf16, or leave out "
                      "--grad-dtype");
}

/* Slices are pieces of rows, too; and of a pair's two lists of nodes the order
 * is by node. */
static enum merak_status check_pieces(const struct merak_plan *plan,
                                      struct merak_error *err)
{
    if (merak_plan_loss_pieces(plan) == 1)
        return MERAK_OK;
    if (plan->sub_pipeline)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "--loss-pieces %d and --sub-pipeline yes: give one "
                          "of them",
                          plan->loss_pieces);
    if (merak_plan_slices(plan) > 1)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "--loss-pieces %d and --schedule %s, which cuts "
                          "sequences: give one of them",
                          plan->loss_pieces, plan->schedule);
    return MERAK_OK;
}

enum merak_status merak_plan_check_degrees(const struct merak_plan *plan,
                                           struct merak_error *err)
{
    if (merak_grad_dtype_check(plan->dtype, plan->grad_dtype, err) != MERAK_OK)
        return MERAK_ERR_CONFIG;
    if (plan->stage != NULL && (plan->cp > 1 || plan->ep > 1))
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "%s %d and stages of unlike degrees: use --%s 1",
                          plan->cp > 1 ? "cp" : "ep",
                          plan->cp > 1 ? plan->cp : plan->ep,
                          plan->cp > 1 ? "cp" : "ep");
    if (plan->tp_axes > 0) {
        enum merak_status rc = check_axes(plan, err);

        if (rc != MERAK_OK)
            return rc;
    }
    if (plan->tp < 1 || plan->pp < 1 || plan->dp < 1 || plan->microbatches < 1)
        return merak_fail(
            err, MERAK_ERR_CONFIG,
            "tp %d, pp %d, dp %d and %d micro-batches: each must be at least 1",
            plan->tp, plan->pp, plan->dp, plan->microbatches);
    if (check_ranks(plan, err) != MERAK_OK)
        return MERAK_ERR_CONFIG;
    if (check_pieces(plan, err) != MERAK_OK)
        return MERAK_ERR_UNSUPPORTED;
    return merak_plan_check_lossy(plan, err);
}

int merak_plan_dp_in(const struct merak_plan *plan, int stage)
{
    int dp = merak_plan_mesh(plan, stage).dp;

    return plan->dp_in > 1 && plan->dp_in < dp ? plan->dp_in : dp;
}

int merak_plan_dp_axes(const struct merak_plan *plan, int stage)
{
    int dp = merak_plan_mesh(plan, stage).dp;

    return (dp > 1) + (merak_plan_dp_in(plan, stage) < dp);
}

bool merak_plan_shares(const struct merak_plan *plan)
{
    bool by_samples =
        plan->tp_batch_percent > 0 || merak_split_any(&plan->split);

    return plan->dp > 1 || plan->cp > 1 || plan->ep > 1 ||
           (plan->tp > 1 && by_samples);
}

bool merak_plan_is_home_in(const struct merak_plan *plan)
{
    return plan->zero >= MERAK_ZERO_GRADS && plan->zero_home == MERAK_HOME_IN &&
           merak_plan_dp_axes(plan, 0) > 1;
}

static void stages_text(const struct merak_plan *plan,
                        char text[MERAK_DEGREES_TEXT])
{
    int n = snprintf(text, MERAK_DEGREES_TEXT, "stages of unlike ranks: ");

    for (int s = 0; s < plan->pp; s++) {
        if (n + 24 > MERAK_DEGREES_TEXT) {
            snprintf(text + n, (size_t)(MERAK_DEGREES_TEXT - n), ", ..");
            return;
        }
        n += snprintf(text + n, (size_t)(MERAK_DEGREES_TEXT - n), "%s%d x %d",
                      s > 0 ? ", " : "", plan->stage[s].dp, plan->stage[s].tp);
    }
}

const char *merak_plan_degrees_text(const struct merak_plan *plan,
                                    const char *between,
                                    char text[MERAK_DEGREES_TEXT])
{
    const struct merak_degrees degrees = {.tp = plan->tp,
                                          .cp = plan->cp,
                                          .ep = plan->ep,
                                          .pp = plan->pp,
                                          .dp = plan->dp};

    if (plan->stage == NULL)
        return merak_degrees_text(&degrees, between, text);
    stages_text(plan, text);
    return text;
}

int merak_plan_chunks(const struct merak_plan *plan)
{
    const struct merak_schedule *schedule;

    if (plan->chunks > 0)
        return plan->chunks;
    if (merak_schedule_find(plan->schedule, &schedule, NULL) != MERAK_OK ||
        schedule->usual_chunks == 0)
        return 1;
    return schedule->usual_chunks;
}

int merak_plan_shared(const struct merak_plan *plan)
{
    struct merak_schedule_args args = merak_plan_schedule_args(plan, 0);
    const struct merak_schedule *schedule;
    int n = 0;

    if (merak_schedule_find(plan->schedule, &schedule, NULL) != MERAK_OK)
        return 0;
    for (int c = 0; c < args.chunks; c++)
        n += merak_schedule_shares(schedule, &args, c);
    return n;
}

int merak_plan_parts(const struct merak_plan *plan)
{
    int shared = merak_plan_shared(plan);

    return plan->pp * (merak_plan_chunks(plan) - shared) + shared;
}

struct merak_expert_form merak_plan_experts(const struct merak_plan *plan)
{
    int room = plan->expert_room > 0 ? plan->expert_room : MERAK_EXPERT_ROOM;
    struct merak_expert_form form = {0};

    if (plan->ep > 1)
        form = (struct merak_expert_form){.room = room / 100.0,
                                          .exchange = plan->ep_form ==
                                                      MERAK_EP_EXCHANGE};
    return form;
}

bool merak_expert_form_equal(const struct merak_expert_form *a,
                             const struct merak_expert_form *b)
{
    return a->room == b->room && a->exchange == b->exchange;
}

struct merak_shard_options merak_plan_shards(const struct merak_plan *plan,
                                             int stage)
{
    const int cp = plan->cp > 1 ? plan->cp : 1;
    const int ep = plan->ep > 1 ? plan->ep : 1;
    const int ranks = merak_plan_mesh(plan, stage).tp;
    /* sequences that a schedule slices are not cut over ranks, too */
    const bool never_cut =
        plan->sp == MERAK_SP_AUTO && merak_plan_slices(plan) > 1;

    return (struct merak_shard_options){.tp = ranks / cp / ep,
                                        .tp_axes = plan->tp_axes,
                                        .cp = cp,
                                        .cp_axes = plan->cp_axes,
                                        .cp_form = plan->cp_form,
                                        .cp_order = plan->cp_order,
                                        .ep = ep,
                                        .sp = never_cut ? MERAK_SP_OFF
                                                        : plan->sp,
                                        .tp_batch_percent =
                                            plan->tp_batch_percent,
                                        .split = plan->split,
                                        .tp_plan = plan->tp_plan,
                                        .halved = plan->sub_pipeline,
                                        .branches = plan->branches,
                                        .stages = plan->pp,
                                        .shared = merak_plan_shared(plan)};
}

/* `stages` only matters if layers are shared, `halved` only for errors. */
static bool same_options(const struct merak_shard_options *a,
                         const struct merak_shard_options *b)
{
    return a->tp == b->tp && a->ep == b->ep && a->cp == b->cp &&
           a->tp_axes == b->tp_axes && a->cp_axes == b->cp_axes &&
           a->cp_form == b->cp_form && a->cp_order == b->cp_order && a->shared == b->shared &&
           (a->shared == 0 || a->stages == b->stages) && a->sp == b->sp &&
           a->tp_batch_percent == b->tp_batch_percent &&
           merak_split_equal(&a->split, &b->split) &&
           merak_tp_plan_equal(&a->tp_plan, &b->tp_plan) &&
           a->branches == b->branches && a->cost == b->cost;
}

bool merak_plan_shards_alike(const struct merak_plan *a,
                             const struct merak_plan *b)
{
    const struct merak_shard_options of_a = merak_plan_shards(a, 0);
    const struct merak_shard_options of_b = merak_plan_shards(b, 0);
    const struct merak_expert_form form_a = merak_plan_experts(a);
    const struct merak_expert_form form_b = merak_plan_experts(b);

    return a->micro_batch == b->micro_batch &&
           merak_expert_form_equal(&form_a, &form_b) &&
           same_options(&of_a, &of_b);
}

int merak_plan_slices(const struct merak_plan *plan)
{
    int slices = merak_schedule_slices(plan->schedule);

    return slices > 1 ? slices : 1;
}

int merak_plan_units(const struct merak_plan *plan)
{
    return plan->microbatches / (plan->sub_pipeline ? 2 : 1) *
           merak_plan_slices(plan);
}

int merak_plan_passes(const struct merak_plan *plan)
{
    return plan->passes > 0 ? plan->passes : 1;
}

struct merak_schedule_args
merak_plan_schedule_args(const struct merak_plan *plan, int stage)
{
    return (struct merak_schedule_args){
        .stages = plan->pp,
        .microbatches = plan->microbatches / (plan->sub_pipeline ? 2 : 1),
        .chunks = merak_plan_chunks(plan),
        .slices = merak_schedule_slices(plan->schedule),
        .warmups = merak_schedule_warmups(plan->schedule),
        .passes = merak_plan_passes(plan),
        .stage = stage};
}

void merak_plan_take_passes(struct merak_plan *plan, int passes, bool named)
{
    plan->passes = passes;
    if (passes > 1 && plan->pp > 1 && !named)
        snprintf(plan->schedule, sizeof(plan->schedule), "3f1b");
}

/* What unlike stages cannot do. */
static enum merak_status check_stages(const struct merak_plan *plan,
                                      const struct merak_schedule_args *args,
                                      struct merak_error *err)
{
    if (plan->stage == NULL)
        return MERAK_OK;
    if (merak_plan_shared(plan) > 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "schedule %s runs layers on all stages: they must be "
                          "alike; use --schedule 1f1b",
                          plan->schedule);
    if (args->slices > 1)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "schedule %s cuts sequences: stages must be alike; "
                          "use --schedule 1f1b",
                          plan->schedule);
    for (int s = 0; s < plan->pp && plan->zero >= MERAK_ZERO_GRADS; s++) {
        if (plan->stage[s].dp < 2)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "--zero %d needs 2 replicas or more in every "
                              "stage, and stage %d has 1: use --zero 1",
                              plan->zero, s);
    }
    return MERAK_OK;
}

enum merak_status merak_plan_schedule(const struct merak_plan *plan,
                                      const struct merak_schedule **schedule_p,
                                      struct merak_error *err)
{
    struct merak_schedule_args args = merak_plan_schedule_args(plan, 0);
    const struct merak_schedule *schedule;
    enum merak_status rc = merak_schedule_find(plan->schedule, &schedule, err);

    if (rc == MERAK_OK)
        rc = merak_schedule_check(schedule, &args, err);
    if (rc != MERAK_OK)
        return rc;
    args = merak_schedule_defaults(schedule, &args);
    rc = check_stages(plan, &args, err);
    if (rc != MERAK_OK)
        return rc;
    if (merak_plan_shared(plan) > MERAK_MAX_SHARED) {
        merak_fail(err, MERAK_ERR_UNSUPPORTED,
                   "schedule %s of %d chunks is for a model with an encoder "
                   "and a decoder",
                   plan->schedule, args.chunks);
        return merak_error_fix(err, MERAK_ERR_UNSUPPORTED,
                               ": set chunks = 3 (embedding and head over all "
                               "stages) or 2 (embedding only)");
    }
    if (plan->sub_pipeline && (merak_plan_shared(plan) > 0 ||
                               (args.passes <= 1 && args.slices > 1))) {
        merak_fail(err, MERAK_ERR_UNSUPPORTED,
                   "schedule %s does not run with --sub-pipeline yes",
                   plan->schedule);
        return merak_error_fix(err, MERAK_ERR_UNSUPPORTED,
                               ": leave one of them out");
    }
    if (plan->sub_pipeline && args.passes > 1) {
        merak_fail(err, MERAK_ERR_UNSUPPORTED,
                   "a model of %d forward passes does not run with "
                   "--sub-pipeline yes",
                   args.passes);
        return merak_error_fix(err, MERAK_ERR_UNSUPPORTED, ": leave it out");
    }
    *schedule_p = schedule;
    return MERAK_OK;
}

int merak_plan_part(const struct merak_schedule *schedule,
                    const struct merak_plan *plan, int stage, int chunk)
{
    struct merak_schedule_args args = merak_plan_schedule_args(plan, stage);

    return merak_schedule_part(schedule, &args, chunk);
}

bool merak_plan_recomputes(const struct merak_schedule *schedule,
                           const struct merak_plan *plan, int stage)
{
    struct merak_schedule_args args = merak_plan_schedule_args(plan, stage);

    return merak_schedule_recomputes(schedule, &args);
}

bool merak_plan_delays_reduce(const struct merak_schedule *schedule,
                              const struct merak_plan *plan, int stage,
                              int part)
{
    return merak_plan_mesh(plan, stage).tp > 1 && part > 0 &&
           !schedule->splits_w && merak_plan_shared(plan) == 0;
}

struct merak_stage_mesh merak_plan_loss_mesh(const struct merak_plan *plan)
{
    const struct merak_schedule *schedule;
    int last = plan->pp - 1, chunks = merak_plan_chunks(plan);

    if (merak_schedule_find(plan->schedule, &schedule, NULL) == MERAK_OK) {
        for (int s = 0; s < plan->pp; s++) {
            if (merak_plan_part(schedule, plan, s, chunks - 1) ==
                merak_plan_parts(plan) - 1)
                last = s;
        }
    }
    return merak_plan_mesh(plan, last);
}

void merak_plan_coord(const struct merak_sharded *sharded, int tp_index,
                      int stage, int *coord)
{
    const struct merak_mesh *mesh = &sharded->mesh;
    int n = merak_sharded_tensor_axes(sharded);

    for (int a = n - 1; a >= 0; a--) {
        coord[a] = tp_index % mesh->axis[a].size;
        tp_index /= mesh->axis[a].size;
    }
    if (mesh->n_axes > n)
        coord[n] = stage;
}
