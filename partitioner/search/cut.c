/* SPDX-License-Identifier: Apache-2.0 */
/* cut.c - where a candidate's stages begin
 *
 * If there are few ways to cut, all are rated.  If there are many, dynamic
 * programming finds the one whose longest stage is shortest, among those that
 * fit in memory; the even cut is tried, too.  The cut of a finalist is then
 * improved by moving boundaries, one or a run of them, while the step gets
 * shorter, since the dynamic program ignores transfers and the step's end.
 */
#include "config.h"

#include "partitioner/search/cut.h"
#include "partitioner/program/balance.h"
#include "partitioner/search/fixed.h"
#include "partitioner/search/need.h"
#include "partitioner/search/search_impl.h"

#include "base/error.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

/* Every cut is rated up to this product of cuts, parts and units. */
#define EXHAUSTIVE 20000
#define MAX_ROUNDS 40
/* Of a round, about: in longer pipelines no longer runs of boundaries move. */
#define MAX_MOVES 256

struct cuts {
    struct merak_rater rater;
    struct merak_candidate *cand;
    double limit;            /* bytes that a stage has to fit in, or DBL_MAX */
    double part_bytes_limit; /* of it, for one part: merak_part_limit() */
    double known_s;          /* upper bound of the best cut's step */
    int n, parts;            /* segments to be cut, and parts to cut them into:
                                without vocabulary-parallel layers */
    size_t bound_bytes;      /* of bound[] */
    int *bound;
    int *light;     /* while boundaries move to fit: the least full cut, .. */
    double least;   /* .. and bytes of its fullest stage */
    double *rest_s; /* [segment + 1] seconds from there to the end */
    struct merak_balance balance;
};

/* --- trying one ----------------------------------------------------------- */

/* Keep c->bound if it is the best so far. */
static bool try_cut(struct cuts *c)
{
    struct merak_candidate *cand = c->cand;
    double part_s[MERAK_PART_COUNT], bytes = 0, step;
    int stage = 0;

    if (!merak_fixed_allows(cand, c->bound))
        return false;
    c->rater.most_bytes = c->limit;
    c->rater.most_s = c->known_s;
    if (cand->rated_s > 0 && cand->rated_s < c->known_s)
        c->rater.most_s = cand->rated_s;
    step = merak_rate(&c->rater, c->bound, part_s, &bytes, &stage);
    if (bytes > c->limit || step > c->rater.most_s ||
        (cand->rated_s > 0 && step >= cand->rated_s * (1 - 1e-9)))
        return false;
    cand->rated_s = step;
    cand->bytes = bytes;
    cand->stage = stage;
    memcpy(cand->part_s, part_s, sizeof(part_s));
    memcpy(cand->bound, c->bound, c->bound_bytes);
    memcpy(cand->drop, c->rater.drop,
           (size_t)c->rater.parts * sizeof(*cand->drop));
    return true;
}

/* --- all of them ---------------------------------------------------------- */

static bool is_small(const struct cuts *c)
{
    return merak_cuts_count(c->parts, c->n) * c->parts *
               c->rater.lists->units <=
           EXHAUSTIVE;
}

void merak_cuts_first(int *bound, int parts, int n)
{
    for (int s = 0; s < parts; s++)
        bound[s] = s;
    bound[parts] = n;
}

bool merak_cuts_next(int *bound, int parts, int n)
{
    int at = parts - 1; /* the last that can move */

    while (at > 0 && bound[at] >= n - (parts - at))
        at--;
    if (at == 0)
        return false;
    bound[at]++;
    for (int s = at + 1; s < parts; s++)
        bound[s] = bound[s - 1] + 1;
    return true;
}

double merak_cuts_count(int parts, int n)
{
    double ways = 1;

    for (int k = 1; k < parts; k++)
        ways *= (double)(n - k) / k;
    return ways;
}

/* The balanced cut's step is an upper bound that rejects most others early. */
static void try_all(struct cuts *c)
{
    double bytes = 0, step;
    int stage;

    step = merak_rate(&c->rater, c->cand->balanced, NULL, &bytes, &stage);
    if (bytes <= c->limit)
        c->known_s = step * (1 + 1e-6);
    merak_cuts_first(c->bound, c->parts, c->n);
    do
        try_cut(c);
    while (merak_cuts_next(c->bound, c->parts, c->n));
}

/* --- the shortest longest stage ------------------------------------------- */

/* The fewest blocks that a part has: those that the request recomputes. */
static int least_blocks(const struct cuts *c, int part)
{
    const struct merak_drop *drop = c->cand->given.drop;

    return drop != NULL ? drop[part].blocks : 0;
}

/* Among cuts whose longest parts are equal, the one with the smallest sum of
 * squares is chosen: its parts differ least. */
static void join(struct merak_balance *b, int part, int from, int to,
                 double time)
{
    merak_balance_join(b, part, from, to, time, time * time);
}

static void extend(struct merak_balance *balance, int part, int from,
                   double most)
{
    struct cuts *c = balance->arg;
    const struct merak_segment *segment = c->cand->table->segment;
    int blocks = 0, least = least_blocks(c, part);
    double f_s = 0, b_s = 0;

    for (int to = from + 1; to <= merak_balance_last_end(balance, part); to++) {
        c->rater.tally.parts++;
        f_s += segment[to - 1].f_s;
        b_s += segment[to - 1].b_s;
        blocks += to == from + 1 || segment[to - 1].begins_block;
        if (f_s + b_s > most)
            return;
        if (blocks >= least)
            join(balance, part, from, to, f_s + b_s);
    }
}

/* Each part gets an equal fraction of its stage's memory; the cut that is found
 * is then rated with all parts of a stage together. */
static void extend_strictly(struct merak_balance *balance, int part, int from,
                            double most)
{
    struct cuts *c = balance->arg;
    double part_bytes = c->part_bytes_limit;
    struct merak_range range;
    int known = 0; /* a longer part drops at least as many blocks */
    int least = least_blocks(c, part);

    merak_range_start(&range, from, &c->rater.marks);
    while (range.to < merak_balance_last_end(balance, part)) {
        struct merak_need need;
        double time;

        c->rater.tally.parts++;
        merak_range_add(c->cand->table, &range);
        if (range.f_s + range.b_s > most)
            return;
        need = merak_part_need(&c->rater, &range, part, part_bytes, known);
        if (need.bytes > part_bytes)
            return;
        known = need.blocks > 0 ? need.blocks - 1 : 0;
        time = range.f_s + range.b_s + need.recompute_s;
        if (time <= most && range.n_blocks >= least)
            join(balance, part, from, range.to, time);
    }
}

/* Can there be a cut whose parts fit?  Each part takes as many segments as it
 * can, so that none could end later than it does here. */
static bool may_fit(struct cuts *c)
{
    double part_bytes = c->part_bytes_limit;
    int from = 0;

    for (int part = 0; part < c->parts && from < c->n; part++) {
        struct merak_range range;
        bool fits = true;

        merak_range_start(&range, from, &c->rater.marks);
        while (fits && range.to < c->n) {
            merak_range_add(c->cand->table, &range);
            fits = merak_part_least(&c->rater, &range, part) <= part_bytes;
        }
        from = fits ? range.to : range.to - 1;
    }
    return from == c->n;
}

/* Segments cannot be cut; except for a longer segment, no part of the best cut
 * takes more than twice the mean. */
static double longest_worth(const struct cuts *c)
{
    const struct merak_table *t = c->cand->table;
    double most = 2 * c->rest_s[0] / c->parts;

    for (int s = 0; s < c->n; s++) {
        double time = t->segment[s].f_s + t->segment[s].b_s;

        most = time > most ? time : most;
    }
    return most;
}

/*
 * The cut whose longest part is shortest; in every cut some part takes at least
 * `least`.  Any limit that the cut stays within gives the same cut, and a tight
 * one leaves little to examine.
 */
static bool balance(struct cuts *c, double least)
{
    double most = longest_worth(c);

    for (double within = 1.02 * least; within < most; within *= 1.15) {
        if (merak_balance_within(&c->balance, within, c->bound))
            return true;
    }
    return merak_balance_within(&c->balance, most, c->bound) ||
           merak_balance_within(&c->balance, DBL_MAX, c->bound);
}

/* The same with recomputation, and only for cuts that fit. */
static bool balance_strictly(struct cuts *c, double least)
{
    bool found;

    c->balance.extend = extend_strictly;
    c->part_bytes_limit = merak_part_limit(&c->rater, c->rater.limit);
    found = may_fit(c) && balance(c, least);
    for (int s = 0; s < c->parts; s++)
        c->rater.range[s].to = 0; /* others have used their marks (range.h) */
    return found;
}

/* Seconds of a cut's longest part, without recomputation. */
static double longest_part(const struct cuts *c, const int *bound)
{
    double most = 0;

    for (int s = 0; s < c->parts; s++) {
        double time = c->rest_s[bound[s]] - c->rest_s[bound[s + 1]];

        most = time > most ? time : most;
    }
    return most;
}

/* --- moving boundaries ---------------------------------------------------- */

/* Move `n` boundaries from the s-th on by one segment; false: a part would be
 * empty. */
static bool shift(struct cuts *c, const int *from, int s, int n, int by)
{
    memcpy(c->bound, from, c->bound_bytes);
    for (int i = s; i < s + n; i++)
        c->bound[i] += by;
    return c->bound[s] > c->bound[s - 1] &&
           c->bound[s + n - 1] < c->bound[s + n];
}

/* Move runs of boundaries of `from`, which `keeps` changes if it keeps what is
 * in c->bound; does it keep any?
 *
 * Where a run of boundaries moves, a part gives a segment to one that is not
 * beside it, and those between keep their size: one boundary at a time would
 * first have to make one of them longer. */
static bool move_runs(struct cuts *c, const int *from,
                      bool (*keeps)(struct cuts *c),
                      const struct merak_deadline *deadline)
{
    const int run = 1 + MAX_MOVES / c->parts;
    bool moved = false;

    for (int s = 1; s < c->parts; s++) {
        for (int n = 1;
             n <= run && s + n <= c->parts && !merak_deadline_is_past(deadline);
             n++) {
            moved = (shift(c, from, s, n, -1) && keeps(c)) || moved;
            moved = (shift(c, from, s, n, 1) && keeps(c)) || moved;
        }
    }
    return moved;
}

static void improve(struct cuts *c, const struct merak_deadline *deadline)
{
    bool moved = c->cand->rated_s > 0;

    for (int round = 0; moved && round < MAX_ROUNDS; round++)
        moved = move_runs(c, c->cand->bound, try_cut, deadline);
}

/* Keep c->bound if none that was tried fits yet, and its fullest stage is less
 * full. */
static bool keep_lighter(struct cuts *c)
{
    double bytes = 0;
    int stage;

    if (c->least <= c->limit || !merak_fixed_allows(c->cand, c->bound))
        return false;
    c->rater.most_bytes = c->limit;
    c->rater.most_s = DBL_MAX;
    (void)merak_rate(&c->rater, c->bound, NULL, &bytes, &stage);
    if (bytes >= c->least)
        return false;
    c->least = bytes;
    memcpy(c->light, c->bound, c->bound_bytes);
    return true;
}

/* Move boundaries of `bound` while the fullest stage gets less full, until it
 * fits; false: it does not. */
static bool lighten(struct cuts *c, int *bound,
                    const struct merak_deadline *deadline)
{
    memcpy(c->bound, bound, c->bound_bytes);
    c->light = bound;
    c->least = DBL_MAX;
    if (!keep_lighter(c))
        return false;
    while (c->least > c->limit && move_runs(c, bound, keep_lighter, deadline))
        ;
    memcpy(c->bound, bound, c->bound_bytes);
    return c->least <= c->limit;
}

/* The balanced cut is the best if it fits in memory without recomputation. */
static void try_some(struct cuts *c, const int *balanced)
{
    memcpy(c->bound, balanced, c->bound_bytes);
    try_cut(c);
    if (c->limit < DBL_MAX &&
        (c->cand->rated_s == 0 || merak_drops_any(c->cand->drop, c->parts))) {
        if (balance_strictly(c, longest_part(c, balanced)))
            try_cut(c);
    }
    for (int s = 0; s <= c->parts; s++)
        c->bound[s] = (int)((long)c->n * s / c->parts);
    try_cut(c);
}

/* False if the search has failed. */
static bool cuts_init(struct cuts *c, struct merak_search *s,
                      struct merak_candidate *cand, double limit, bool any)
{
    bool ok;

    *c = (struct cuts){.cand = cand,
                       .limit = any ? DBL_MAX : limit,
                       .known_s = DBL_MAX,
                       .n = merak_candidate_segments(cand),
                       .parts = merak_plan_parts(&cand->plan) -
                                merak_plan_shared(&cand->plan)};
    c->bound_bytes =
        (size_t)(merak_plan_parts(&cand->plan) + 1) * sizeof(*c->bound);
    if (s->rc != MERAK_OK)
        return false;
    s->rc = merak_rater_init(&c->rater, &s->cost, cand, limit, s->err);
    c->bound = malloc(c->bound_bytes);
    c->rest_s = calloc((size_t)c->n + 1, sizeof(*c->rest_s));
    ok = merak_balance_init(&c->balance, c->n, c->parts);
    c->balance.extend = extend;
    c->balance.arg = c;
    c->balance.rest_s = c->rest_s;
    if (s->rc == MERAK_OK && (c->bound == NULL || !ok || c->rest_s == NULL))
        s->rc = merak_fail_nomem(s->err, c->bound_bytes);
    if (s->rc != MERAK_OK)
        return false;
    for (int b = 0; b <= cand->table->n_shared; b++)
        c->bound[c->parts + b] = c->n + b;
    for (int i = c->n - 1; i >= 0; i--)
        c->rest_s[i] = c->rest_s[i + 1] + cand->table->segment[i].f_s +
                       cand->table->segment[i].b_s;
    return true;
}

static void cuts_fini(struct cuts *c)
{
    struct merak_search_tally *tally = c->cand->tally;

    if (tally != NULL) {
        tally->rated += c->rater.tally.rated;
        tally->actions += c->rater.tally.actions;
        tally->parts += c->rater.tally.parts;
    }
    free(c->bound);
    merak_balance_fini(&c->balance);
    free(c->rest_s);
    merak_rater_fini(&c->rater);
}

void merak_search_cut(struct merak_search *s, struct merak_candidate *cand,
                      const int *initial, double limit, bool any)
{
    struct cuts c;

    cand->rated_s = 0;
    if (!cuts_init(&c, s, cand, limit, any))
        goto out;
    if (cand->given.cut != NULL) {
        merak_fixed_bound(cand, c.bound);
        try_cut(&c);
        goto out;
    }
    if (is_small(&c)) {
        try_all(&c);
        goto out;
    }
    if (initial != NULL) {
        memcpy(c.bound, initial, c.bound_bytes);
        try_cut(&c);
    }
    if (cand->rated_s == 0)
        try_some(&c, cand->balanced);
out:
    cuts_fini(&c);
}

void merak_search_balance(struct merak_search *s, struct merak_candidate *cand)
{
    struct cuts c;

    if (!cuts_init(&c, s, cand, DBL_MAX, true))
        goto out;
    cand->balanced = merak_pool_alloc(s->pool, c.bound_bytes);
    if (cand->balanced == NULL) {
        s->rc = merak_fail_nomem(s->err, c.bound_bytes);
        goto out;
    }
    if (cand->given.cut != NULL)
        merak_fixed_bound(cand, c.bound);
    else
        balance(&c, c.rest_s[0] / c.parts);
    memcpy(cand->balanced, c.bound, c.bound_bytes);
out:
    cuts_fini(&c);
}

void merak_search_polish(struct merak_search *s, struct merak_candidate *cand)
{
    struct cuts c;

    if (cuts_init(&c, s, cand,
                  merak_search_limit(s, cand) * MERAK_SEARCH_SLACK, false) &&
        cand->given.cut == NULL && !is_small(&c))
        improve(&c, &s->trials.deadline);
    cand->polished = true;
    s->cut_short = s->cut_short || merak_deadline_is_past(&s->trials.deadline);
    cuts_fini(&c);
}

void merak_search_lighten(struct merak_search *s, struct merak_candidate *cand,
                          int *bound, double limit)
{
    struct cuts c;

    cand->rated_s = 0;
    if (cuts_init(&c, s, cand, limit, false) && cand->given.cut == NULL &&
        lighten(&c, bound, &s->trials.deadline) && try_cut(&c))
        improve(&c, &s->trials.deadline);
    cuts_fini(&c);
}

enum merak_status merak_search_rate(const struct merak_cost_model *cost,
                                    struct merak_candidate *cand, double limit,
                                    struct merak_error *err)
{
    size_t parts = (size_t)merak_plan_parts(&cand->plan);
    struct merak_rater rater;
    enum merak_status rc = merak_rater_init(&rater, cost, cand, limit, err);

    if (rc == MERAK_OK) {
        cand->rated_s = merak_rate(&rater, cand->bound, cand->part_s,
                                   &cand->bytes, &cand->stage);
        memcpy(cand->drop, rater.drop, parts * sizeof(*cand->drop));
    }
    merak_rater_fini(&rater);
    return rc;
}
