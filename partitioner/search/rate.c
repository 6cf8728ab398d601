/* SPDX-License-Identifier: Apache-2.0 */
/* rate.c - estimate a candidate's step, action by action
 *
 * The schedule's lists of actions are played (player.h) with durations from the
 * table; ends.c and first_forward.c add what comes before and after them.
 */
#include "config.h"

#include "partitioner/search/ends.h"
#include "partitioner/search/lent.h"
#include "partitioner/search/need.h"
#include "partitioner/search/replicas.h"
#include "partitioner/program/instr_cost.h"

#include "base/arrays.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

static enum merak_status make_lists(struct merak_rater *r,
                                    const struct merak_candidate *cand,
                                    struct merak_error *err)
{
    const struct merak_follow *follow = cand->follow;

    if (follow == NULL) {
        if (!merak_follow_init(&r->own, cand->schedule, r->plan))
            return merak_fail_nomem(err, (size_t)r->parts * sizeof(int));
        follow = &r->own;
    }
    r->lists = follow->lists;
    r->lists_less = follow->less;
    return MERAK_OK;
}

/* Fill work_s and forward_s: sums over all segments before each one. */
static void fill_sums(struct merak_rater *r)
{
    int passes = merak_plan_passes(r->plan);

    for (int i = 0; i < r->table->n; i++) {
        const struct merak_segment *seg = &r->table->segment[i];

        r->work_s[i + 1] = r->work_s[i] + passes * seg->f_s + seg->b_s;
        r->forward_s[i + 1] = r->forward_s[i] + seg->f_s;
    }
}

static enum merak_status alloc(struct merak_rater *r, struct merak_error *err)
{
    size_t parts = (size_t)r->parts, n = (size_t)r->table->n;
    size_t hops = (parts - (size_t)r->chain) * (size_t)r->plan->pp;
    const struct merak_array arrays[] = {
        MERAK_ARRAY(r->work_s, n + 1),    MERAK_ARRAY(r->forward_s, n + 1),
        MERAK_ARRAY(r->part_cost, parts), MERAK_ARRAY(r->hop, hops),
        MERAK_ARRAY(r->range, parts),     MERAK_ARRAY(r->keeps, parts),
        MERAK_ARRAY(r->drop, parts),      MERAK_ARRAY(r->turns, parts),
        MERAK_ARRAY(r->marks.mark, n),    MERAK_ARRAY(r->marks.top, n)};

    return MERAK_ARRAYS(arrays, err);
}

/* How the ranks of several stages share uplinks: of the domains of the level
 * whose links need most time. */
static void set_uplink_sharing(struct merak_rater *r,
                               const struct merak_cost_model *cost)
{
    const struct merak_plan *p = r->plan;
    struct merak_spread stage = merak_links_sharers(&cost->links, p, 0, false);
    struct merak_spread all = merak_links_sharers(&cost->links, p, 0, true);
    int last = merak_links_last(&cost->links);

    r->contended = merak_links_contended(&cost->links, &all);
    for (int l = 0; l < last; l++) {
        double s_per_byte;

        if (all.n[l] <= stage.n[l])
            continue;
        s_per_byte = merak_reduced_far(r, l) * stage.n[l] /
                     cost->links.level[l].way_bytes_per_s;
        if (s_per_byte <= r->uplink_s_per_byte)
            continue;
        r->uplink_s_per_byte = s_per_byte;
        r->uplink_level = l;
    }
}

enum merak_status merak_rater_init(struct merak_rater *rater,
                                   const struct merak_cost_model *cost,
                                   const struct merak_candidate *cand,
                                   double limit, struct merak_error *err)
{
    const struct merak_plan *p = &cand->plan;
    size_t parts = (size_t)merak_plan_parts(p);
    enum merak_status rc;

    *rater =
        (struct merak_rater){.cost = cost,
                             .links = merak_links_shared(&cost->links, p, 0),
                             .table = cand->table,
                             .plan = p,
                             .mesh = merak_plan_mesh(p, 0),
                             .parts = (int)parts,
                             .chain = (int)parts - merak_plan_shared(p),
                             .chunks = merak_plan_chunks(p),
                             .limit = limit};
    merak_replicas_init(rater);
    set_uplink_sharing(rater, cost);
    rc = merak_ends_init(rater, err);
    if (rc == MERAK_OK)
        rc = make_lists(rater, cand, err);
    if (rc == MERAK_OK)
        rc = alloc(rater, err);
    if (rc != MERAK_OK)
        return rc;
    if (!merak_player_init(&rater->player, rater->lists))
        return merak_fail_nomem(err, parts * sizeof(*rater->part_cost));
    rater->delays_reduce =
        merak_plan_delays_reduce(rater->lists->schedule, p, 0, 1);
    fill_sums(rater);
    merak_lent_count_turns(rater);
    if (cand->given.drop != NULL) {
        rater->fixed = true;
        memcpy(rater->drop, cand->given.drop,
               (size_t)rater->chain * sizeof(*rater->drop));
    }
    return MERAK_OK;
}

void merak_rater_fini(struct merak_rater *rater)
{
    merak_follow_fini(&rater->own);
    merak_player_fini(&rater->player);
    merak_ends_fini(rater);
    free(rater->work_s); /* and all others */
}

/* Does each tensor rank send all of a value across stages, not a part? */
static bool sends_whole(const struct merak_rater *r, int level)
{
    return r->plan->scatter == 0 || (level == 0 && r->plan->scatter > 1);
}

/* Where two stages meet: a rank of each, and the level of links between them.
 */
struct meeting {
    int rank_a, rank_b, level;
};

static struct meeting meeting_of(const struct merak_rater *r, int a, int b)
{
    struct meeting at = {.rank_a = merak_plan_rank(r->plan, 0, 0, a),
                         .rank_b = merak_plan_rank(r->plan, 0, 0, b)};

    at.level = merak_links_level(&r->links, at.rank_a, at.rank_b);
    return at;
}

/* Seconds to cross a cut; negative: there is nothing to wait for, as at a cut
 * after the last node that has a gradient.  Of a pair's halves one is gathered
 * while the other computes. */
static double cross_s(const struct merak_rater *r, double bytes, double part,
                      const struct meeting *at, double *gather_s)
{
    const int level = at->level;
    bool whole = sends_whole(r, level);
    int tp = r->mesh.tp;

    *gather_s = 0;
    if (bytes == 0)
        return -1;
    if (!whole && part < bytes)
        *gather_s = merak_links_exchange_s(&r->links, MERAK_CONVERT_ALL_GATHER,
                                           (bytes - part) / r->table->width,
                                           &(struct merak_spread){.n = {tp}});
    return merak_links_transfer_s(&r->links, at->rank_a, at->rank_b,
                                  whole ? bytes : part);
}

/* What kernels at either end lose to a crossing. */
static double crossing_loss_s(const struct merak_rater *r, double bytes,
                              double part, int level)
{
    struct merak_interference interference = {0};

    if (bytes > 0)
        interference =
            merak_cost_interference(r->cost, MERAK_CONVERT_ALL_GATHER,
                                    sends_whole(r, level) ? bytes : part, 2);
    return interference.wake_s + interference.copy_s;
}

/* The input of vocabulary-parallel layers is passed from stage to stage: a
 * gradient goes up for the first, activations go down for the second. */
static void set_hops(struct merak_rater *r)
{
    int pp = r->plan->pp;

    for (int part = r->chain; part < r->parts; part++) {
        const struct merak_segment *seg =
            &r->table->segment[r->range[part].from];
        bool head = part > r->chain;
        double bytes = head ? seg->up_bytes : seg->down_bytes;
        double one = head ? seg->up_part : seg->down_part;
        double *hop_s = r->hop + (part - r->chain) * pp;

        for (int s = head ? 0 : 1; s < (head ? pp - 1 : pp); s++) {
            const struct meeting at = meeting_of(r, s, head ? s + 1 : s - 1);
            double gather_s, took = cross_s(r, bytes, one, &at, &gather_s);

            hop_s[s] = took > 0 ? took + gather_s : 0;
        }
    }
}

/* Transfers across a part's lower end, and what kernels lose to them. */
struct crossing {
    double up, down, up_gather, down_gather, up_lost, down_lost;
};

double merak_rate_sent_share(const struct merak_plan *plan, int from, int to,
                             bool up)
{
    const struct merak_lossy *lossy = &plan->lossy;
    int ratio = merak_lossy_ratio(lossy, merak_lossy_hop_between(from, to));
    double bits = 8 * (double)merak_dtype_bytes(plan->dtype);

    ratio = ratio > 0 ? ratio : lossy->most; /* to be found: the most */
    if (ratio == 0 || from == to)
        return 1;
    return 1.0 / ratio + (up ? 1 / bits : 0);
}

static struct crossing crossing_of(const struct merak_rater *r, int part)
{
    const int *stage_of = r->lists->stage_of;
    const struct merak_segment *seg = &r->table->segment[r->range[part].from];
    const struct meeting at = meeting_of(r, stage_of[part - 1], stage_of[part]);
    double up = merak_rate_sent_share(r->plan, stage_of[part - 1],
                                      stage_of[part], true);
    double down = merak_rate_sent_share(r->plan, stage_of[part - 1],
                                        stage_of[part], false);
    struct crossing c = {0};

    c.up = cross_s(r, up * seg->up_bytes, up * seg->up_part, &at, &c.up_gather);
    c.down = cross_s(r, down * seg->down_bytes, down * seg->down_part, &at,
                     &c.down_gather);
    if (stage_of[part - 1] == stage_of[part])
        return c;
    c.up_lost =
        crossing_loss_s(r, up * seg->up_bytes, up * seg->up_part, at.level);
    c.down_lost = crossing_loss_s(r, down * seg->down_bytes,
                                  down * seg->down_part, at.level);
    return c;
}

/* An action loses time to the transfers before and after it; there are none at
 * the outermost ends and for vocabulary-parallel layers. */
static void set_costs(struct merak_rater *r)
{
    bool splits = r->lists->schedule->splits_w;
    struct crossing below = {0};

    for (int k = 0; k < r->parts; k++) {
        const struct merak_range *g = &r->range[k];
        const struct merak_segment *first = &r->table->segment[g->from];
        double b_s = splits ? g->x_s : g->b_s, lost_s;
        double once = r->keeps[k].recompute_s;
        struct crossing above = {0};

        if (k + 1 < r->chain)
            above = crossing_of(r, k + 1);
        lost_s = below.down_lost + above.down_lost +
                 merak_lent_s(r, k, MERAK_PHASE_B);
        r->part_cost[k] = (struct merak_part_cost){
            .f = g->f_s + (below.up_lost + above.up_lost) +
                 merak_lent_s(r, k, MERAK_PHASE_F),
            .b = lost_s + b_s,
            .b_recomputing = once + lost_s + b_s,
            .w = g->w_s + merak_lent_s(r, k, MERAK_PHASE_W),
            .r = once,
            .up = below.up,
            .down = below.down,
            .up_gather = below.up_gather,
            .down_gather = below.down_gather,
            .f_latency = first->f_latency_s,
            .b_latency = first->b_latency_s};
        below = above;
    }
    set_hops(r);
    r->player.cost = (struct merak_play_cost){
        .part = r->part_cost,
        .hop = r->hop,
        .unposted = merak_schedule_warmups(r->plan->schedule) != NULL,
        .first_more = merak_first_forward_more,
        .arg = r};
}

/* Seconds of a stage for a unit: total, in kernels, recomputing. */
struct work {
    double all_s, kernel_s, recompute_s;
};

static struct work work_of(const struct merak_rater *r, int stage)
{
    struct work work = {0};
    int more = merak_plan_passes(r->plan) - 1;
    bool splits = r->lists->schedule->splits_w;

    for (int c = 0; c < r->chunks; c++) {
        int part = r->lists->part[stage * r->chunks + c];
        const struct merak_range *g = &r->range[part];

        work.recompute_s += r->keeps[part].recompute_s;
        work.kernel_s += g->kernel_s + more * g->f_s;
        work.all_s += (1 + more) * g->f_s + r->keeps[part].recompute_s +
                      (splits ? g->x_s + g->w_s : g->b_s);
    }
    if (work.kernel_s > work.all_s - work.recompute_s)
        work.kernel_s = work.all_s - work.recompute_s;
    return work;
}

static void split_step(const struct merak_rater *r, double step, int at,
                       const struct merak_tail *t, double *part_s)
{
    double units = merak_plan_units(r->plan);
    struct work work = work_of(r, at);
    double front = merak_first_forward_more(r, 0, 0, 0);

    part_s[MERAK_PART_COMPUTE] = units * work.kernel_s;
    part_s[MERAK_PART_RECOMPUTE] = units * work.recompute_s;
    part_s[MERAK_PART_TP] =
        units * (work.all_s - work.kernel_s - work.recompute_s) + t->tp_s;
    part_s[MERAK_PART_DP] = 0;
    if (r->mesh.dp > 1)
        part_s[MERAK_PART_DP] = t->ready - t->norm_s - merak_stage_end(r, at) -
                                t->tp_s + front; /* all stages wait for it */
    else
        part_s[MERAK_PART_TP] += front; /* gathered over tensor ranks alone */
    part_s[MERAK_PART_OPTIMIZER] = t->norm_s + t->update_s + merak_norm_s(r);
    part_s[MERAK_PART_BUBBLE] = step;
    for (int i = 0; i < MERAK_PART_COUNT; i++) {
        if (i != MERAK_PART_BUBBLE)
            part_s[MERAK_PART_BUBBLE] -= part_s[i];
    }
}

static int busiest_stage(const struct merak_rater *r)
{
    int at = 0;

    for (int s = 1; s < r->plan->pp; s++) {
        if (work_of(r, s).all_s > work_of(r, at).all_s)
            at = s;
    }
    return at;
}

/* Extrapolate the ends of a pipeline that has settled to all units, at the rate
 * of the last ones, but no faster than the busiest stage. */
static void extrapolate(struct merak_rater *r, double less_s, int busiest)
{
    struct merak_player *p = &r->player;
    int by = r->lists->units - r->lists_less->units;
    double period = (p->end[0] - less_s) / by;
    double least = work_of(r, busiest).all_s;
    double more = (period > least ? period : least) *
                  (merak_plan_units(r->plan) - r->lists->units);

    for (int s = 0; s < r->plan->pp; s++)
        p->end[s] += more;
    for (int k = 0; k < r->parts; k++)
        p->made[k] += more;
}

/* Lower bound of a step: each stage's work for all units, after the first unit
 * can have arrived; with recomputation, if that is known. */
static double least_step(const struct merak_rater *r, const int *bound,
                         bool recomputes)
{
    double most = 0, units = merak_plan_units(r->plan);

    for (int s = 0; s < r->plan->pp; s++) {
        double work = 0, step;
        int first = 0;

        for (int c = 0; c < r->chunks; c++) {
            int part = r->lists->part[s * r->chunks + c];

            work += r->work_s[bound[part + 1]] - r->work_s[bound[part]];
            work += recomputes ? r->keeps[part].recompute_s : 0;
        }
        while (r->lists->stage_of[first] != s)
            first++;
        step = r->forward_s[bound[first]] + units * work;
        most = step > most ? step : most;
    }
    return most;
}

/* Does it certainly take longer than most_s? */
static bool is_too_long(const struct merak_rater *r, const int *bound,
                        bool recomputes, double *least_p)
{
    if (r->most_s == 0)
        return false;
    *least_p = least_step(r, bound, recomputes);
    return *least_p * (1 - 1e-6) > r->most_s;
}

static void play(struct merak_rater *r, const struct merak_lists *lists)
{
    r->player.lists = lists;
    merak_play(&r->player);
    for (int s = 0; s < r->plan->pp; s++)
        r->tally.actions += lists->n[s];
}

double merak_rate(struct merak_rater *r, const int *bound, double *part_s,
                  double *bytes_p, int *stage_p)
{
    int stage = 0;
    double less_s = 0, step, bytes;
    struct merak_tail tail = {0};

    if (is_too_long(r, bound, false, &step))
        return step;
    for (int k = 0; k < r->parts; k++) {
        if (r->range[k].to == bound[k + 1] && r->range[k].from == bound[k])
            continue; /* unchanged */
        merak_range_start(&r->range[k], bound[k], &r->marks);
        while (r->range[k].to < bound[k + 1])
            merak_range_add(r->table, &r->range[k]);
    }
    bytes = merak_stages_need(r, &stage);
    if (bytes_p != NULL) {
        *bytes_p = bytes;
        *stage_p = stage;
    }
    if (is_too_long(r, bound, true, &step) ||
        (r->most_s > 0 && bytes > r->most_bytes))
        return step;
    r->tally.rated++;
    r->busiest = busiest_stage(r);
    merak_set_gathered(r);
    set_costs(r);
    if (r->lists_less != NULL) {
        play(r, r->lists_less);
        less_s = r->player.end[0];
    }
    play(r, r->lists);
    if (r->lists_less != NULL)
        extrapolate(r, less_s, r->busiest);
    step = merak_whole_step(r, &tail, r->busiest);
    if (part_s != NULL)
        split_step(r, step, r->busiest, &tail, part_s);
    return step;
}
