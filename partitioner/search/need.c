/* SPDX-License-Identifier: Apache-2.0 */
/* need.c - memory of a candidate's stages by the table, and what they drop
 *
 * Stages drop what program/recompute.c allows them to drop, and of that the
 * least, by seconds of recomputation, that fits the limit.  What counts in the
 * end is the arena of the stage's program (finalist.c).
 */
#include "config.h"

#include "partitioner/search/need.h"

#include "partitioner/program/offload.h"

#include "base/bisect.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

static int part_at(const struct merak_rater *r, int stage, int chunk)
{
    return r->lists->part[stage * r->chunks + chunk];
}

typedef int count_fn(const struct merak_lists *lists, int stage, int chunk);

/* A count of the lists, and, if the schedule does not settle (GPipe), what the
 * remaining units add to it. */
static double count_of(const struct merak_rater *r, count_fn *count, int stage,
                       int chunk)
{
    double n = count(r->lists, stage, chunk);

    if (r->lists_less != NULL) {
        int less = count(r->lists_less, stage, chunk);
        int by = r->lists->units - r->lists_less->units;

        n += (n - less) / by * (merak_plan_units(r->plan) - r->lists->units);
    }
    return n;
}

/* Forwards that a part holds. */
static double in_flight(const struct merak_rater *r, int stage, int chunk)
{
    return count_of(r, merak_lists_in_flight, stage, chunk);
}

/* --- bytes ---------------------------------------------------------------- */

/* Memory of one part, or of all parts of a stage. */
struct sum {
    struct merak_range holds;
    double held;  /* bytes kept by all micro-batches in flight */
    double above; /* most that the running part takes on top of that */
    double moving;
    double away; /* bytes in the host's memory */
};

/* Bytes received ahead of a part, from below and above, or, for a
 * vocabulary-parallel layer, from the next stage. */
static double moving_bytes(const struct merak_rater *r,
                           const struct merak_range *g)
{
    const struct merak_segment *segment = r->table->segment;
    int chain = r->table->n - r->table->n_shared;

    if (g->from >= chain)
        return segment[g->from].up_bytes + segment[g->from].down_bytes;
    return segment[g->from].up_bytes +
           (g->to < chain ? segment[g->to].down_bytes : 0);
}

/* Weight gradients that are put off read what B recomputed and the gradients
 * that it made: what is dropped is only dropped until then. */
static double late_bytes(const struct merak_rater *r, int stage, int chunk,
                         const struct merak_range *g,
                         const struct merak_keeps *k)
{
    double more = g->late - k->kept;
    double n = count_of(r, merak_lists_waiting, stage, chunk);

    return more > 0 ? n * more : 0;
}

static void add_part(const struct merak_rater *r, int stage, int chunk,
                     const struct merak_range *g, const struct merak_keeps *k,
                     struct sum *sum)
{
    /* vocabulary-parallel layers stay as with ZeRO-1 */
    bool lends = part_at(r, stage, chunk) < r->chain;
    struct merak_lent lent = merak_range_fetched_to(g, r->plan->fetch);
    double peak = k->peak;

    if (!lends)
        lent = (struct merak_lent){0};

    /* A separate R recomputes all of the part at once. */
    if (r->lists->early[stage] && g->peak[MERAK_KEEP_ALL] > peak)
        peak = g->peak[MERAK_KEEP_ALL];
    merak_param_state_add(&sum->holds.hold, &g->hold);
    sum->holds.tied += g->tied;
    sum->holds.shared_later_elems += g->shared_later_elems;
    if (g->largest > sum->holds.largest)
        sum->holds.largest = g->largest;
    sum->holds.hold.lent_bytes -= g->hold.lent_bytes - lent.bytes;
    sum->holds.hold.lent_part -= g->hold.lent_part - lent.part;
    sum->holds.most_lent = fmax(sum->holds.most_lent, lent.most);
    sum->holds.hold.lent_grad_bytes -= lends ? 0 : g->hold.lent_grad_bytes;
    sum->holds.hold.lent_grad_part -= lends ? 0 : g->hold.lent_grad_part;
    if (lends)
        sum->holds.most_lent_grad =
            fmax(sum->holds.most_lent_grad, g->most_lent_grad);
    sum->held += in_flight(r, stage, chunk) * k->kept;
    sum->away += in_flight(r, stage, chunk) * k->away;
    sum->held += late_bytes(r, stage, chunk, g, k);
    if (peak - k->kept > sum->above)
        sum->above = peak - k->kept;
    sum->moving += moving_bytes(r, g);
}

/* What a rank keeps of so many bytes. */
static double kept_of(const struct merak_rater *r, struct merak_held held,
                      double bytes)
{
    return held.kept ? bytes / merak_rater_parts(r, held) : 0;
}

/* The same of parameters or gradients, of which `lent` bytes are matrices', and
 * `part` of these a tensor rank's, where they are shared out. */
static double kept_apart(const struct merak_rater *r, enum merak_held_kind kind,
                         double bytes, double lent, double part)
{
    const struct merak_held held = merak_rater_held(r, kind, true);

    return kept_of(r, merak_rater_held(r, kind, false), bytes - lent) +
           kept_of(r, held, held.over == MERAK_OVER_NONE ? lent : part);
}

/* Bytes of parameters, gradients and optimizer state, beside `away` others in
 * the host's memory. */
static double held_beside(const struct merak_rater *r,
                          const struct merak_param_state *h, double away)
{
    const struct merak_param_state own =
        merak_param_state_of(h, r->plan->zero > 0);
    const struct merak_held state =
        merak_rater_held(r, MERAK_HELD_STATE, false);
    double bytes = kept_of(r, state, merak_param_state_optimizer(&own));

    /* what the host has no room for is not to fit */
    bytes =
        fmax(away + (state.host ? bytes : 0) - (double)r->cost->host.bytes, 0) +
        (state.host ? 0 : bytes);
    return kept_apart(r, MERAK_HELD_PARAM, h->param_bytes, h->lent_bytes,
                      h->lent_part) +
           kept_apart(r, MERAK_HELD_GRAD, h->grad_bytes, h->lent_grad_bytes,
                      h->lent_grad_part) +
           bytes +
           kept_of(r, merak_rater_held(r, MERAK_HELD_SUM, true),
                   h->lent_grad_part);
}

static double held_bytes(const struct merak_rater *r,
                         const struct merak_param_state *h)
{
    return held_beside(r, h, 0);
}

/* What is whole while it is used: twice the largest block.  Programs have two
 * neighbours at a time, but between slots of activations that leave gaps: arenas
 * of Llama 8B with ZeRO-3 are up to 9 % above an estimate by neighbours, which
 * would propose what does not fit, and mostly 2 to 11 % below this one. */
static double lent_bytes(const struct merak_rater *r,
                         const struct merak_range *holds)
{
    return merak_rater_held(r, MERAK_HELD_GRAD, true).used *
               holds->most_lent_grad +
           merak_rater_held(r, MERAK_HELD_PARAM, true).used * holds->most_lent;
}

/* Optimizer state that is in the arena while it is updated, in pieces
 * (program/offload.c). */
static double brought_bytes(const struct merak_rater *r,
                            const struct merak_range *holds)
{
    const struct merak_held state =
        merak_rater_held(r, MERAK_HELD_STATE, false);

    return state.used * 12 *
           fmin(kept_of(r, state, holds->largest), (double)MERAK_OFFLOAD_PIECE);
}

static double bytes_of(const struct merak_rater *r, const struct sum *sum)
{
    double held = held_beside(r, &sum->holds.hold, sum->away), work, step;
    double grad = (double)merak_dtype_bytes(r->plan->grad_dtype);

    work = sum->held + sum->above + sum->moving + lent_bytes(r, &sum->holds);
    step = grad * (sum->holds.tied + sum->holds.shared_later_elems) +
           (r->mesh.dp > 1 ? grad * sum->holds.largest : 0) +
           brought_bytes(r, &sum->holds);
    return held + (work > step ? work : step);
}

/*
 * With n forwards in flight a part takes n - 1 times what it keeps of one, and
 * the peak of the one that runs.  Both have a lower bound (range.c):
 *
 *   kept  Each segment keeps at least the least of the ways to keep.  The
 *         minimum is taken by segment, not by part, since a part that drops
 *         only its first blocks has segments of both ways.
 *   peak  While a segment runs, what the segments before its block keep is
 *         live, and all that its block has made, dropped at its end or not
 *         (action_nodes.c recomputes a block as a whole).
 *
 *   late  Of those whose weight gradients wait, what these read is held, if
 *         that is more; with more kept there is less to add, one for one.
 *
 * Values in transfer and the step's end come on top.  All terms are sums or
 * maxima of nonnegative numbers over segments, so that a part extended at
 * either end never takes less: what several segments hold is counted where no
 * earlier segment of the part holds it (parameters), or where it is made
 * (values).  Therefore, if each part takes as many segments as it can, the
 * parts reach at least as far as those of any cut that fits (may_fit() in
 * cut.c).
 */
double merak_part_least(const struct merak_rater *r,
                        const struct merak_range *range, int part)
{
    int stage = r->lists->stage_of[part], chunk = 0;
    double least;

    while (part_at(r, stage, chunk) != part)
        chunk++;
    least = held_bytes(r, &range->hold) +
            (in_flight(r, stage, chunk) - 1) * range->retained +
            range->retained_peak;
    if (range->late > range->retained)
        least += count_of(r, merak_lists_waiting, stage, chunk) *
                 (range->late - range->retained);
    return least;
}

static int fewer(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* For each stage the fewest forwards that one of its parts holds, ascending;
 * NULL: no memory. */
static double *fewest_in_flight(const struct merak_rater *r)
{
    int pp = r->plan->pp, chunks = r->lists->chunks;
    double *n = calloc((size_t)pp, sizeof(*n));

    for (int s = 0; n != NULL && s < pp; s++) {
        n[s] = in_flight(r, s, 0);
        for (int c = 1; c < chunks; c++)
            n[s] = fmin(n[s], in_flight(r, s, c));
    }
    if (n != NULL)
        qsort(n, (size_t)pp, sizeof(*n), fewer);
    return n;
}

/*
 * Let all stages together hold H bytes all the time and keep R of a forward,
 * and stage s keep its part of R n[s] times, n ascending.  If none takes more
 * than B, those of least n keep most, B/n[s] each, and with the first k of them
 * full and all else in the others
 *
 *   pp B >= H + k B + n[k] (R - B (1/n[0] + .. + 1/n[k - 1]))
 *
 * which holds for every k, since filling stages in this order costs least and n
 * ascends.  Cuts and drops only change how sums over segments are divided.
 */
static double least_of(const double *n, int pp, double held, double retained)
{
    double least = 0, before = 0;

    for (int k = 0; k < pp; k++) {
        least =
            fmax(least, (held + n[k] * retained) / (pp - k + n[k] * before));
        before += 1 / n[k];
    }
    return fmax(least, retained / before);
}

double merak_stages_least(const struct merak_cost_model *cost,
                          const struct merak_candidate *cand)
{
    const struct merak_table *t = cand->table;
    const struct merak_plan *p = &cand->plan;
    const struct merak_rater r = {.cost = cost,
                                  .plan = p,
                                  .mesh = merak_plan_mesh(p, 0),
                                  .lists = cand->follow->lists,
                                  .lists_less = cand->follow->less};
    double *n = fewest_in_flight(&r), retained = 0, held, least = 0;
    struct merak_param_state hold = {0};

    for (int s = 0; s < t->n; s++) {
        merak_param_state_add(&hold, &t->segment[s].hold);
        retained += merak_segment_least(&t->segment[s]);
    }
    held = held_bytes(&r, &hold);
    if (merak_plan_offloads_state(p)) /* each stage's host takes so much */
        held -= (p->pp - 1) * (double)cost->host.bytes;
    if (n != NULL)
        least = least_of(n, p->pp, held, retained);
    free(n);
    return least;
}

/* Is it a vocabulary-parallel layer?  Those drop nothing: their backward
 * follows at once, or needs next to nothing. */
static bool is_shared(const struct merak_rater *r, int part)
{
    return r->lists->stage_of[part] < 0;
}

static bool stage_has(const struct merak_rater *r, int part, int stage)
{
    return is_shared(r, part) || r->lists->stage_of[part] == stage;
}

/* A parameter of two parts of a stage is held once. */
static void join_shares(const struct merak_rater *r, int stage, struct sum *sum)
{
    const struct merak_table *t = r->table;

    for (int i = 0; i < t->n_shares && r->chunks > 1; i++) {
        const struct merak_share *share = &t->share[i];
        double elements = share->hold.bf16_elems + share->hold.f32_elems;
        int low = 0, high = 0;

        while (r->range[low].to <= share->prev)
            low++;
        while (r->range[high].to <= share->segment)
            high++;
        if (elements == 0 || low == high || !stage_has(r, low, stage) ||
            !stage_has(r, high, stage))
            continue;
        merak_param_state_drop(&sum->holds.hold, &share->hold);
        sum->holds.tied -= elements;
        sum->holds.shared_later_elems -= elements;
    }
}

static struct sum sum_stage(const struct merak_rater *r, int stage)
{
    struct sum sum = {0};

    for (int c = 0; c < r->chunks; c++) {
        int part = part_at(r, stage, c);

        add_part(r, stage, c, &r->range[part], &r->keeps[part], &sum);
    }
    join_shares(r, stage, &sum);
    return sum;
}

struct merak_range merak_stage_holds(const struct merak_rater *r, int stage)
{
    return sum_stage(r, stage).holds;
}

/* --- what to drop --------------------------------------------------------- */

/* All chunks of a stage, or a single one. */
struct chunk_set {
    struct merak_rater *r;
    int stage, first, n;
    int known; /* dropping this many blocks is known not to fit */
    bool again; /* recompute all that is dropped, if that is to be found */
};

/* What they need with the drops in r->drop; sets their keeps. */
static struct merak_need need_with_drops(const struct chunk_set *f)
{
    struct merak_rater *r = f->r;
    struct merak_need need = {0};
    struct sum sum = {0};

    for (int c = f->first; c < f->first + f->n; c++) {
        int part = part_at(r, f->stage, c);

        r->keeps[part] = merak_rater_keeps(r, part);
        need.recompute_s += r->keeps[part].recompute_s;
        add_part(r, f->stage, c, &r->range[part], &r->keeps[part], &sum);
    }
    if (f->n > 1)
        join_shares(r, f->stage, &sum);
    need.bytes = bytes_of(r, &sum);
    return need;
}

/* Drop attention, or the first blocks of the first parts. */
static struct merak_need try_drop(const struct chunk_set *f, bool attention,
                                  int blocks)
{
    struct merak_rater *r = f->r;

    for (int c = f->first; c < f->first + f->n; c++) {
        int part = part_at(r, f->stage, c);
        int most = is_shared(r, part) ? 0 : r->range[part].n_blocks;
        int here = blocks < most ? blocks : most;

        r->drop[part] = (struct merak_drop){
            .attention = attention && !is_shared(r, part), .blocks = here};
        if (merak_plan_seeks_acts(r->plan))
            merak_rater_find_again(r, part, f->again);
        blocks -= here;
    }
    return need_with_drops(f);
}

static int count_blocks(const struct chunk_set *f)
{
    int n = 0;

    for (int c = f->first; c < f->first + f->n; c++) {
        int part = part_at(f->r, f->stage, c);

        n += is_shared(f->r, part) ? 0 : f->r->range[part].n_blocks;
    }
    return n;
}

/* The fewest first blocks that fit, or all; `lo` blocks are known not to. */
static int fewest_blocks(const struct chunk_set *f, double limit, int lo)
{
    int all = count_blocks(f), hi = all, by = 1;

    if (try_drop(f, false, all).bytes > limit)
        return all;
    for (; lo + by < all && try_drop(f, false, lo + by).bytes > limit; by *= 2)
        lo += by;
    hi = lo + by < all ? lo + by : all;
    MERAK_BISECT(by, lo + 1, hi, try_drop(f, false, by).bytes <= limit);
    return by;
}

static struct merak_need choose_least(const struct chunk_set *f, double limit)
{
    struct merak_need need = {0}, attention, blocks;

    if (f->known == 0) {
        need = try_drop(f, false, 0);
        if (need.bytes <= limit)
            return need;
    }
    need.blocks = fewest_blocks(f, limit, f->known);
    blocks = try_drop(f, false, need.blocks);
    blocks.blocks = need.blocks;
    if (blocks.bytes > limit)
        return blocks;
    attention = try_drop(f, true, 0);
    if (attention.bytes <= limit &&
        attention.recompute_s < blocks.recompute_s) {
        attention.blocks = blocks.blocks;
        return attention;
    }
    try_drop(f, false, need.blocks);
    return blocks;
}

static struct merak_need choose_drops(const struct chunk_set *f, double limit)
{
    switch (f->r->plan->recompute) {
    case MERAK_RECOMPUTE_NONE:
        break;
    case MERAK_RECOMPUTE_FULL:
        return try_drop(f, false, INT_MAX);
    case MERAK_RECOMPUTE_SELECTIVE:
        return try_drop(f, true, 0);
    case MERAK_RECOMPUTE_AUTO:
        return choose_least(f, limit);
    }
    return try_drop(f, false, 0);
}

/* Of what is dropped each part has as much copied to the host's memory as saves
 * time.  That takes memory for what is under way, so that to recompute all of
 * less may be faster, or be all that fits. */
static struct merak_need choose_means(const struct chunk_set *f, double limit)
{
    struct chunk_set all = *f;
    struct merak_need again, some;

    all.again = true;
    again = choose_drops(&all, limit);
    if (again.recompute_s == 0)
        return again;
    some = choose_drops(f, limit);
    if (some.bytes > limit
            ? again.bytes >= some.bytes
            : again.bytes > limit || some.recompute_s <= again.recompute_s) {
        some.blocks = some.blocks < again.blocks ? some.blocks : again.blocks;
        return some;
    }
    again = choose_drops(&all, limit);
    again.blocks = some.blocks < again.blocks ? some.blocks : again.blocks;
    return again;
}

static struct merak_need choose(const struct chunk_set *f, double limit)
{
    if (f->r->fixed)
        return need_with_drops(f);
    if (!f->r->lists->recomputes[f->stage])
        return try_drop(f, false, 0);
    return merak_plan_seeks_acts(f->r->plan) ? choose_means(f, limit)
                                             : choose_drops(f, limit);
}

double merak_part_limit(struct merak_rater *r, double limit)
{
    struct sum blocks = {0};

    if (r->parts == r->chain)
        return limit / r->chunks;
    for (int c = 1; c < r->chunks; c++) {
        int part = part_at(r, 0, c);
        struct merak_range *g = &r->range[part];

        merak_range_start(g, r->table->n - r->parts + part, &r->marks);
        merak_range_add(r->table, g);
        r->keeps[part] = merak_range_keeps(g, (struct merak_drop){0});
        add_part(r, 0, c, g, &r->keeps[part], &blocks);
    }
    return limit - held_bytes(r, &blocks.holds.hold) - blocks.held;
}

struct merak_need merak_part_need(struct merak_rater *r,
                                  const struct merak_range *range, int part,
                                  double limit, int known)
{
    struct chunk_set f = {
        .r = r, .stage = r->lists->stage_of[part], .n = 1, .known = known};

    while (part_at(r, f.stage, f.first) != part)
        f.first++;
    r->range[part] = *range;
    return choose(&f, limit);
}

double merak_stage_need(struct merak_rater *r, int stage,
                        const struct merak_drop *drop)
{
    const struct chunk_set f = {.r = r, .stage = stage, .n = r->chunks};

    for (int c = 0; c < r->chunks; c++)
        r->drop[part_at(r, stage, c)] = drop[part_at(r, stage, c)];
    return need_with_drops(&f).bytes;
}

void merak_stage_find_again(struct merak_rater *r, int stage, bool all,
                            struct merak_drop *drop)
{
    for (int c = 0; c < r->chunks; c++) {
        int part = part_at(r, stage, c);

        r->drop[part] = drop[part];
        merak_rater_find_again(r, part, all);
        drop[part] = r->drop[part];
    }
}

double merak_stages_need(struct merak_rater *r, int *stage_p)
{
    double most = 0;

    for (int s = 0; s < r->plan->pp; s++) {
        const struct chunk_set f = {.r = r, .stage = s, .n = r->chunks};
        struct merak_need need = choose(&f, r->limit);

        if (need.bytes > most) {
            most = need.bytes;
            *stage_p = s;
        }
    }
    return most;
}
