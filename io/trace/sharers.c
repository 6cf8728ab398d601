/* SPDX-License-Identifier: Apache-2.0 */
/* sharers.c - how many ranks of a node used its uplink at once */
#include "config.h"

#include "io/trace/sharers.h"

#include <math.h>
#include <stdlib.h>

/* A time when a way's number of users changes. */
struct turn {
    int64_t at;
    int by;
    double share_ns; /* integral of 1/users up to here */
};

enum merak_status merak_trace_use(struct merak_trace_uses *uses, int way,
                                  int event, struct merak_error *err)
{
    size_t room = 2 * uses->room + 256;
    struct merak_trace_use *use;

    if (uses->n == uses->room) {
        use = realloc(uses->use, room * sizeof(*use));
        if (use == NULL)
            return merak_fail_nomem(err, room * sizeof(*use));
        uses->use = use;
        uses->room = room;
    }
    uses->use[uses->n++] = (struct merak_trace_use){way, event};
    return MERAK_OK;
}

static int by_way(const void *a, const void *b)
{
    const struct merak_trace_use *x = a, *y = b;

    if (x->way != y->way)
        return x->way < y->way ? -1 : 1;
    return (x->event > y->event) - (x->event < y->event);
}

static int by_time(const void *a, const void *b)
{
    const struct turn *x = a, *y = b;

    return (x->at > y->at) - (x->at < y->at);
}

/* Any turn at this time will do: equal times have equal integrals. */
static double share_at(const struct turn *turn, size_t n, int64_t at)
{
    size_t lo = 0;

    while (n > 1) {
        size_t half = n / 2;

        if (turn[lo + half].at <= at)
            lo += half;
        n -= half;
    }
    return turn[lo].share_ns;
}

/* Process one way; turn has room for two per use. */
static void share_way(const struct merak_trace_use *use, size_t n,
                      struct turn *turn, struct merak_trace_event *events)
{
    size_t n_turns = 0;
    int users = 0;

    for (size_t i = 0; i < n; i++) {
        const struct merak_trace_event *e = &events[use[i].event];

        if (e->to <= e->from)
            continue; /* shares with nobody */
        turn[n_turns++] = (struct turn){.at = e->from, .by = 1};
        turn[n_turns++] = (struct turn){.at = e->to, .by = -1};
    }
    if (n_turns > 0)
        qsort(turn, n_turns, sizeof(*turn), by_time);
    for (size_t i = 1; i < n_turns; i++) {
        users += turn[i - 1].by;
        turn[i].share_ns = turn[i - 1].share_ns;
        if (users > 0)
            turn[i].share_ns += (double)(turn[i].at - turn[i - 1].at) / users;
    }
    for (size_t i = 0; i < n; i++) {
        struct merak_trace_event *e = &events[use[i].event];
        double share;

        if (e->to <= e->from)
            continue;
        share =
            share_at(turn, n_turns, e->to) - share_at(turn, n_turns, e->from);
        if (share > 0) /* not lost to rounding */
            e->sharers = fmax(e->sharers, (double)(e->to - e->from) / share);
    }
}

enum merak_status merak_trace_share(struct merak_trace_uses *uses,
                                    struct merak_trace_event *events, int n,
                                    struct merak_error *err)
{
    struct turn *turn = calloc(2 * uses->n + 1, sizeof(*turn));
    size_t first = 0;

    if (turn == NULL)
        return merak_fail_nomem(err, 2 * uses->n * sizeof(*turn));
    for (int i = 0; i < n; i++)
        events[i].sharers = 1;
    if (uses->n > 0)
        qsort(uses->use, uses->n, sizeof(*uses->use), by_way);
    for (size_t i = 1; i <= uses->n; i++) {
        if (i < uses->n && uses->use[i].way == uses->use[first].way)
            continue;
        share_way(&uses->use[first], i - first, turn, events);
        first = i;
    }
    free(turn);
    return MERAK_OK;
}
