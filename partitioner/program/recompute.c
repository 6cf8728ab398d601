/* SPDX-License-Identifier: Apache-2.0 */
/* recompute.c - what each stage drops after its forward
 *
 * Stages differ in what they hold: under 1F1B the first keeps p micro-batches
 * and the last keeps one.  AUTO lets each stage recompute the least that fits:
 * nothing, attention only, or the first k blocks, whichever recomputes least.
 * What fits is not estimated: the stage's program is built and its memory plan
 * read.
 */
#include "config.h"

#include "partitioner/program/program.h"
#include "partitioner/program/recompute.h"

#include "base/error.h"

#include <limits.h>
#include <stdlib.h>

struct chooser {
    const struct merak_sharded *sharded;
    struct merak_stages *stages;
    const struct merak_plan *plan;
    const struct merak_program_options *opt;
    const struct merak_schedule *schedule;
    int stage;
};

struct need {
    size_t bytes;
    double recompute_s; /* recomputation in a step */
};

static int part_of(const struct chooser *c, int chunk)
{
    return merak_plan_part(c->schedule, c->plan, c->stage, chunk);
}

void merak_recompute_set(struct merak_stages *stages,
                         const struct merak_schedule *schedule,
                         const struct merak_plan *plan, int stage,
                         struct merak_drop drop)
{
    int left = drop.blocks;

    for (int c = 0; c < merak_plan_chunks(plan); c++) {
        int part = merak_plan_part(schedule, plan, stage, c);
        int all = stages->n_blocks[part];

        drop.blocks = left < all ? left : all;
        stages->drop[part] = drop;
        left -= drop.blocks;
    }
}

/* Drop what attention makes, or all of the first blocks of the stage. */
static void set_drop(struct chooser *c, bool attention, int blocks)
{
    merak_recompute_set(
        c->stages, c->schedule, c->plan, c->stage,
        (struct merak_drop){.attention = attention, .blocks = blocks});
}

static int count_blocks(const struct chooser *c)
{
    int chunks = merak_plan_chunks(c->plan), n = 0;

    for (int i = 0; i < chunks; i++)
        n += c->stages->n_blocks[part_of(c, i)];
    return n;
}

/* Measure the last rank of the stage: cuts give it the largest pieces, and all
 * ranks of a stage must make the same choice. */
static enum merak_status measure(const struct chooser *c, struct need *need,
                                 struct merak_error *err)
{
    const struct merak_plan *plan = c->plan;
    struct merak_program *prog = NULL;
    const struct merak_stage_mesh mesh = merak_plan_mesh(plan, c->stage);
    int rank = merak_stage_rank(&mesh, mesh.tp - 1, mesh.dp - 1);
    enum merak_status rc = merak_program_build(c->sharded, c->stages, plan,
                                               rank, c->opt, &prog, err);

    if (rc != MERAK_OK)
        return rc;
    *need = (struct need){.bytes = prog->arena_bytes};
    for (int i = 0; i < prog->n_instrs; i++) {
        if (prog->instr[i].recompute)
            need->recompute_s += prog->instr[i].cost_s;
    }
    merak_program_destroy(prog);
    return MERAK_OK;
}

static enum merak_status measure_blocks(struct chooser *c, int blocks,
                                        struct need *need,
                                        struct merak_error *err)
{
    set_drop(c, false, blocks);
    return measure(c, need, err);
}

static enum merak_status refuse(const struct chooser *c, size_t bytes,
                                struct merak_error *err)
{
    return merak_fail(err, MERAK_ERR_NOMEM,
                      "stage %d needs %.1f MiB per rank with everything "
                      "recomputed, and the limit is %.1f MiB; use more stages, "
                      "a larger tp or a smaller micro-batch",
                      c->stage, (double)bytes / 0x1p20,
                      (double)c->plan->memory_bytes / 0x1p20);
}

/* The fewest blocks to recompute so that the stage fits; 0 does not. */
static enum merak_status fewest_blocks(struct chooser *c, int *blocks_p,
                                       struct need *need,
                                       struct merak_error *err)
{
    int lo = 0, hi = count_blocks(c);
    enum merak_status rc = measure_blocks(c, hi, need, err);

    if (rc == MERAK_OK && need->bytes > c->plan->memory_bytes)
        return refuse(c, need->bytes, err);
    while (rc == MERAK_OK && hi - lo > 1) {
        int mid = lo + (hi - lo) / 2;
        struct need at = {0};

        rc = measure_blocks(c, mid, &at, err);
        if (at.bytes > c->plan->memory_bytes) {
            lo = mid;
        } else {
            hi = mid;
            *need = at;
        }
    }
    *blocks_p = hi;
    return rc;
}

static enum merak_status choose_least(struct chooser *c,
                                      struct merak_error *err)
{
    struct need blocks_need, attention_need;
    enum merak_status rc;
    int blocks = 0;

    rc = measure_blocks(c, 0, &blocks_need, err);
    if (rc != MERAK_OK || c->plan->memory_bytes == 0 ||
        blocks_need.bytes <= c->plan->memory_bytes)
        return rc;
    set_drop(c, true, 0);
    rc = measure(c, &attention_need, err);
    if (rc != MERAK_OK)
        return rc;
    rc = fewest_blocks(c, &blocks, &blocks_need, err);
    if (rc != MERAK_OK)
        return rc;
    if (attention_need.bytes <= c->plan->memory_bytes &&
        attention_need.recompute_s < blocks_need.recompute_s)
        set_drop(c, true, 0);
    else
        set_drop(c, false, blocks);
    return MERAK_OK;
}

/* Take what a planner or an option has decided. */
static enum merak_status take_given(struct chooser *c, struct merak_error *err)
{
    int chunks = merak_plan_chunks(c->plan);
    bool may = merak_plan_recomputes(c->schedule, c->plan, c->stage);

    for (int i = 0; i < chunks; i++) {
        int part = part_of(c, i), has = c->stages->n_blocks[part];
        struct merak_drop drop = c->plan->drop[part];

        if (drop.blocks > has)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "recompute: part %d has %d blocks, not %d; give "
                              "0 to %d there",
                              part, has, drop.blocks, has);
        if (!may && (drop.attention || drop.blocks > 0))
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "recompute: schedule %s recomputes nothing on "
                              "stage %d; give 0 for part %d, or use 1f1b",
                              c->schedule->name, c->stage, part);
        c->stages->drop[part] = drop;
    }
    return MERAK_OK;
}

static enum merak_status choose(struct chooser *c, struct merak_error *err)
{
    if (c->plan->drop != NULL)
        return take_given(c, err);
    if (!merak_plan_recomputes(c->schedule, c->plan, c->stage)) {
        set_drop(c, false, 0);
        return MERAK_OK;
    }
    switch (c->plan->recompute) {
    case MERAK_RECOMPUTE_NONE:
        set_drop(c, false, 0);
        break;
    case MERAK_RECOMPUTE_FULL:
        set_drop(c, false, INT_MAX);
        break;
    case MERAK_RECOMPUTE_SELECTIVE:
        set_drop(c, true, 0);
        break;
    case MERAK_RECOMPUTE_AUTO:
        return choose_least(c, err);
    }
    return MERAK_OK;
}

enum merak_status
merak_recompute_choose(const struct merak_sharded *sharded,
                       const struct merak_plan *plan, int stage,
                       const struct merak_program_options *opt,
                       struct merak_stages *stages, struct merak_error *err)
{
    struct chooser c = {.sharded = sharded, .plan = plan, .opt = opt};
    enum merak_status rc = merak_plan_schedule(plan, &c.schedule, err);

    for (c.stage = 0; c.stage < plan->pp && rc == MERAK_OK; c.stage++) {
        c.stages =
            stages->by_stage == NULL ? stages : stages->by_stage[c.stage];
        if (stage < 0 || stage == c.stage)
            rc = choose(&c, err);
    }
    return rc;
}
