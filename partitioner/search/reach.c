/* SPDX-License-Identifier: Apache-2.0 */
/* reach.c - how far stages of unlike ranks reach */
#include "config.h"

#include "partitioner/search/reach.h"

#include "base/arrays.h"
#include "base/bisect.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#define MOST_HALVINGS 30
#define CLOSE 1.001

/* A stage that begins somewhere; 0, where none can. */
struct from {
    short type; /* + 1 */
    short to;
};

struct merak_reach {
    const struct merak_reach_input *in;
    struct from *from; /* [stages + 1][ranks + 1][segment + 1] */
    bool *any;         /* [stages + 1][ranks + 1]: of its starts */
    int *earliest;     /* [type][segment + 1], of one number of stages; -1: not
                          known yet */
};

enum merak_status merak_reach_create(const struct merak_reach_input *in,
                                     struct merak_reach **reach_p,
                                     struct merak_error *err)
{
    size_t places = (size_t)(in->most_stages + 1) * (size_t)(in->ranks + 1);
    size_t starts = places * (size_t)(in->n + 1);
    struct merak_reach r = {.in = in};
    struct merak_reach *reach;
    const struct merak_array arrays[] = {
        MERAK_ARRAY(reach, 1), MERAK_ARRAY(r.from, starts),
        MERAK_ARRAY(r.any, places),
        MERAK_ARRAY(r.earliest, (size_t)in->n_types * (size_t)(in->n + 1))};
    enum merak_status rc = MERAK_ARRAYS(arrays, err);

    if (rc == MERAK_OK) {
        *reach = r;
        *reach_p = reach;
    }
    return rc;
}

void merak_reach_destroy(struct merak_reach *reach)
{
    free(reach); /* and its arrays */
}

static size_t place_of(const struct merak_reach *r, int s, int ranks)
{
    return (size_t)s * (size_t)(r->in->ranks + 1) + (size_t)ranks;
}

static struct from *starts_of(const struct merak_reach *r, int s, int ranks)
{
    return &r->from[place_of(r, s, ranks) * (size_t)(r->in->n + 1)];
}

/* The first segment from which the stage takes at most `period` up to `to`;
 * `to`: not even one does. */
static int earliest(struct merak_reach *r, int type, int flight, int to,
                    double period)
{
    const struct merak_reach_input *in = r->in;
    int *known = &r->earliest[type * (in->n + 1) + to];
    int from;

    if (*known >= 0)
        return *known;
    MERAK_BISECT(from, 0, to,
                 in->seconds(in->arg, type, flight, from, to) <= period);
    return *known = from;
}

/* Let the s-th stage from the end be of this type.  Starts of it up to an end
 * are an interval, and both its ends ascend: what is below the end before was
 * marked for that. */
static void try_type(struct merak_reach *r, int s, int ranks, int type,
                     double period)
{
    const struct merak_reach_input *in = r->in;
    int left = ranks - in->type_ranks[type];
    const struct from *behind;
    struct from *at;
    int marked = 0;

    if (left < 0 || !r->any[place_of(r, s - 1, left)] ||
        !in->may_be(in->arg, type, in->ranks - ranks))
        return;
    behind = starts_of(r, s - 1, left);
    at = starts_of(r, s, ranks);
    for (int to = 1; to <= in->n; to++) {
        int i;

        if (behind[to].type == 0)
            continue;
        i = earliest(r, type, s, to, period);
        for (i = i > marked ? i : marked; i < to; i++) {
            if (at[i].type != 0 || (s == 1 && i > in->last))
                continue;
            at[i] = (struct from){(short)(type + 1), (short)to};
            r->any[place_of(r, s, ranks)] = true;
        }
        marked = to;
    }
}

static void reach(struct merak_reach *r, int stages, double period)
{
    const struct merak_reach_input *in = r->in;
    size_t places = place_of(r, stages, in->ranks) + 1;
    int n_known = in->n_types * (in->n + 1);

    memset(r->from, 0, places * (size_t)(in->n + 1) * sizeof(*r->from));
    memset(r->any, 0, places * sizeof(*r->any));
    starts_of(r, 0, 0)[in->n].type = 1;
    r->any[0] = true;
    for (int s = 1; s <= stages; s++) {
        for (int i = 0; i < n_known; i++)
            r->earliest[i] = -1;
        for (int ranks = 1; ranks <= in->ranks; ranks++) {
            for (int t = 0; t < in->n_types; t++)
                try_type(r, s, ranks, t, period);
        }
    }
}

/* Are there so many stages that take at most `period` each?  stage[]: these. */
static bool find_within(struct merak_reach *r, int stages, double period,
                        struct merak_reach_stage *stage)
{
    const struct merak_reach_input *in = r->in;
    int ranks = in->ranks, at = 0;

    if (stages > in->most_stages || stages > in->n)
        return false;
    reach(r, stages, period);
    if (starts_of(r, stages, ranks)[0].type == 0)
        return false;
    for (int s = stages; s > 0; s--) {
        const struct from *from = &starts_of(r, s, ranks)[at];

        stage[stages - s] = (struct merak_reach_stage){from->type - 1, at};
        ranks -= in->type_ranks[from->type - 1];
        at = from->to;
    }
    return true;
}

static double longest(const struct merak_reach_input *in,
                      const struct merak_reach_stage *stage, int stages)
{
    double most = 0;

    for (int i = 0; i < stages; i++) {
        int to = i + 1 < stages ? stage[i + 1].from : in->n;
        double took = in->seconds(in->arg, stage[i].type, stages - i,
                                  stage[i].from, to);

        most = took > most ? took : most;
    }
    return most;
}

double merak_reach_least(struct merak_reach *r, int stages,
                         struct merak_reach_stage *stage)
{
    double lo = 0, hi;

    if (!find_within(r, stages, DBL_MAX / 2, stage))
        return DBL_MAX;
    hi = longest(r->in, stage, stages);
    for (int i = 0; i < MOST_HALVINGS && lo * CLOSE < hi; i++) {
        double mid = lo + (hi - lo) / 2;

        if (find_within(r, stages, mid, stage))
            hi = longest(r->in, stage, stages);
        else
            lo = mid;
    }
    /* The latest one that succeeded, for its stages. */
    find_within(r, stages, hi, stage);
    return longest(r->in, stage, stages);
}
