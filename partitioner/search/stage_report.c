/* SPDX-License-Identifier: Apache-2.0 */
/* stage_report.c - report on the chosen plan's stages, from their programs */
#include "config.h"

#include "partitioner/program/instr_cost.h"
#include "partitioner/program/offload.h"
#include "partitioner/search/finalist.h"
#include "partitioner/simulate/fetches.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void merak_search_stage_drops(const struct merak_plan *plan,
                              const struct merak_drop *drop,
                              struct merak_search_stage *stage)
{
    bool away = merak_plan_offloads_acts(plan) && drop->again == 0;

    stage->attention = stage->attention || (drop->attention && !away);
    stage->attention_away = stage->attention_away || (drop->attention && away);
    if (drop->attention)
        return;
    stage->blocks_recomputed += merak_plan_blocks_again(plan, drop);
    stage->blocks_away += merak_plan_blocks_away(plan, drop);
}

void merak_search_stage_fill(const struct merak_program *prog,
                             struct merak_search_stage *stage)
{
    const char *first = "-", *last = "-";

    if (prog->n_params > 0) {
        first = prog->param[0].name;
        last = prog->param[prog->n_params - 1].name;
    }
    snprintf(stage->first_param, sizeof(stage->first_param), "%s", first);
    snprintf(stage->last_param, sizeof(stage->last_param), "%s", last);
    merak_program_layers(prog, stage->layers);
    stage->arena_bytes = prog->arena_bytes;
    stage->host_bytes = prog->host_bytes;
    stage->offloaded_bytes = merak_offload_bytes(prog, 1);
    stage->blocks_fetched = prog->fetched_blocks;
    memcpy(stage->category_bytes, prog->category_bytes,
           sizeof(stage->category_bytes));
}

/* Of what rank 0 of a stage sends evenly to these peers, the fractions that go
 * over links of each level, as a mean over replicas, which may be placed
 * differently on nodes. Tensor peers are not, since tp divides the ranks of a
 * node. */
struct fractions {
    double of[MERAK_LEVELS];
};

static struct fractions find_fractions(const struct merak_program *prog,
                                       const struct merak_links *links,
                                       const int *peer, int n_peers)
{
    const struct merak_plan *plan = &prog->plan;
    int in = merak_plan_dp_in(plan, prog->stage);
    /* in which of their two coordinates the peers are unlike replicas */
    bool inner = false, outer = false;
    struct fractions f = {{1}};
    int met[MERAK_LEVELS] = {0}, n = 0, t, d, s;

    for (int k = 0; k < n_peers; k++) {
        merak_plan_coords(plan, peer[k], &t, &d, &s);
        inner = inner || d % in != prog->dp_index % in;
        outer = outer || d / in != prog->dp_index / in;
        n += peer[k] != prog->rank;
    }
    for (int i = 0; i < prog->mesh.dp; i++) {
        int me = merak_stage_rank(&prog->mesh, prog->tp_index, i);

        for (int k = 0; k < n_peers; k++) {
            merak_plan_coords(plan, peer[k], &t, &d, &s);
            d = (outer ? d : i) / in * in + (inner ? d : i) % in;
            met[merak_links_level(links, me, merak_plan_rank(plan, t, d, s))]++;
        }
    }
    for (int l = 1; l < MERAK_LEVELS && n > 0; l++) {
        f.of[l] = (double)met[l] / n / prog->mesh.dp;
        f.of[0] -= f.of[l];
    }
    return f;
}

double merak_search_far_bytes(const struct merak_search_stage *stage)
{
    double bytes = 0;

    for (int l = 1; l < MERAK_LEVELS; l++)
        bytes += stage->sent_bytes[l];
    return bytes;
}

/* Of a ring's members in a domain, one sends to another domain. */
static struct fractions ring_fractions(struct fractions direct, int n)
{
    struct fractions f = {{1}};
    double here = 0, out = 1;

    for (int l = 1; l < MERAK_LEVELS && out > 0; l++) {
        here += direct.of[l - 1] * (n - 1);
        f.of[l - 1] = out;
        out = here + 1 < n ? 1 / (here + 1) : 0;
        f.of[l - 1] -= out;
        f.of[l] = out;
    }
    return f;
}

enum merak_status merak_search_stage_sent(const struct merak_program *prog,
                                          const struct merak_cost_model *cost,
                                          double repeat,
                                          struct merak_search_stage *stage,
                                          struct merak_error *err)
{
    const struct merak_links *links = &cost->links;
    size_t n = (size_t)prog->n_groups + 1;
    struct fractions *group = calloc(n, sizeof(*group));

    if (group == NULL)
        return merak_fail_nomem(err, n * sizeof(*group));
    for (int g = 0; g < prog->n_groups; g++)
        group[g] =
            find_fractions(prog, links, prog->group[g].rank, prog->group[g].n);
    for (int i = 0; i < prog->n_instrs; i++) {
        const struct merak_instr *in = &prog->instr[i];
        double bytes = (double)in->bytes * (in->microbatch >= 0 ? repeat : 1);
        struct fractions f;

        if (!merak_instr_may_run(cost, in))
            continue;
        if (in->kind == MERAK_INSTR_EXCHANGE)
            f = (links->rings >> in->exchange->kind & 1) != 0
                    ? ring_fractions(group[in->group], prog->group[in->group].n)
                    : group[in->group];
        else if (in->kind == MERAK_INSTR_SEND)
            f = find_fractions(prog, links, &in->peer, 1);
        else
            continue;
        if (merak_instr_fetches(prog, in))
            stage->fetched_bytes += bytes;
        /* of nodes, not gathers and sums of parameters */
        if (in->kind == MERAK_INSTR_EXCHANGE && in->node >= 0 &&
            prog->group[in->group].role == MERAK_AXIS_SEQUENCE)
            stage->cp_bytes += bytes;
        for (int l = 0; l < MERAK_LEVELS; l++)
            stage->sent_bytes[l] += f.of[l] * bytes;
    }
    stage->offloaded_bytes = merak_offload_bytes(prog, repeat);
    free(group);
    return MERAK_OK;
}

/* Fill in what is summed over the parts of a stage. */
static void fill_parts(const struct merak_built *b,
                       const struct merak_candidate *cand,
                       const struct merak_rater *rater, int s,
                       struct merak_search_stage *stage)
{
    double width = (double)cand->table->width / cand->table->slices;

    for (int c = 0; c < rater->chunks; c++) {
        int part = rater->lists->part[s * rater->chunks + c];
        const struct merak_range *range = &rater->range[part];
        int stages = part < rater->chain ? 1 : b->plan.pp; /* running it */

        if (c == 0)
            stage->first_segment = cand->bound[part];
        if (stages == 1)
            stage->n_segments += cand->bound[part + 1] - cand->bound[part];
        stage->params += b->stages->params[part] / (size_t)stages;
        stage->flops += b->stages->flops[part] / stages;
        stage->forward_s += range->f_s / width;
        stage->backward_s += range->b_s / width;
        stage->recompute_s += rater->keeps[part].recompute_s / width;
        merak_search_stage_drops(&cand->plan, &cand->drop[part], stage);
        stage->n_blocks += b->stages->n_blocks[part];
    }
}

static enum merak_status fill_stage(const struct merak_built *b,
                                    const struct merak_candidate *cand, int s,
                                    struct merak_search_stage *stage,
                                    struct merak_error *err)
{
    const struct merak_program *prog = b->program[s];

    merak_search_stage_fill(prog, stage);
    return merak_search_stage_sent(
        prog, &b->search->cost,
        (double)cand->plan.microbatches / prog->plan.microbatches, stage, err);
}

/* Build the program whose arena is the stage's, with few micro-batches if more
 * do not change it.  The micro-batches in flight use the slots in turn, and
 * packing depends on whose turn is last, so `few` and `all` must leave the same
 * remainder.  Chunks, pairs and slices have other turns: they are built in
 * full. */
static enum merak_status
report_stage(struct merak_built *b, const struct merak_candidate *cand, int few,
             int s, struct merak_search_stage *stage, struct merak_error *err)
{
    int all = cand->plan.microbatches;
    bool plain = b->plan.chunks <= 1 && !b->plan.sub_pipeline &&
                 merak_plan_slices(&b->plan) == 1;
    enum merak_status rc;

    b->plan.microbatches = all;
    if (plain && stage->in_flight < few)
        b->plan.microbatches = few + (all - few) % stage->in_flight;
    rc = merak_built_stage(b, s, err);
    if (rc == MERAK_OK && b->program[s]->loss >= 0 &&
        b->plan.microbatches < all) {
        b->plan.microbatches = all;
        rc = merak_built_stage(b, s, err);
    }
    if (rc != MERAK_OK)
        return rc;
    rc = fill_stage(b, cand, s, stage, err);
    merak_program_destroy(b->program[s]); /* one at a time */
    b->program[s] = NULL;
    return rc;
}

enum merak_status merak_search_count_in_flight(
    const struct merak_schedule *schedule, const struct merak_plan *p,
    struct merak_search_stage *stage, struct merak_error *err)
{
    int chunks = merak_plan_chunks(p), width = p->sub_pipeline ? 2 : 1;
    struct merak_lists *lists =
        merak_plan_lists(schedule, p, merak_plan_units(p));

    if (lists == NULL)
        return merak_fail_nomem(err, (size_t)p->pp * sizeof(int));
    for (int s = 0; s < p->pp; s++) {
        for (int c = 0; c < chunks - merak_plan_shared(p); c++)
            stage[s].in_flight += width * merak_lists_in_flight(lists, s, c);
    }
    merak_lists_destroy(lists);
    return MERAK_OK;
}

enum merak_status merak_search_report(const struct merak_search *search,
                                      const struct merak_candidate *cand,
                                      struct merak_search_result *result)
{
    const struct merak_plan *p = &cand->plan;
    struct merak_error *err = search->err;
    struct merak_rater rater = {0};
    struct merak_built b;
    int few = p->microbatches;
    /* an answer takes the time that it takes */
    enum merak_status rc = merak_built_init(&b, search, cand, NULL, err);

    if (rc == MERAK_OK)
        rc = merak_rater_init(&rater, &search->cost, cand, 0, err);
    if (rc == MERAK_OK) {
        rater.fixed = true;
        memcpy(rater.drop, cand->drop,
               (size_t)rater.parts * sizeof(*cand->drop));
        merak_rate(&rater, cand->bound, NULL, NULL, NULL);
        result->busiest = rater.busiest;
        rc =
            merak_search_count_in_flight(cand->schedule, p, result->stage, err);
    }
    if (rc == MERAK_OK)
        rc = merak_built_enough(cand, &few, err);
    for (int s = 0; s < p->pp && rc == MERAK_OK; s++) {
        struct merak_search_stage *stage = &result->stage[s];

        fill_parts(&b, cand, &rater, s, stage);
        rc = report_stage(&b, cand, few, s, stage, err);
        result->flops_per_step +=
            stage->flops * p->microbatches * rater.mesh.dp;
    }
    merak_rater_fini(&rater);
    merak_built_fini(&b);
    return rc;
}
