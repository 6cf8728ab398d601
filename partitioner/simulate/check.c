/* SPDX-License-Identifier: Apache-2.0 */
/* check.c - prove a set of programs sound before any process waits
 *
 * Three independent proofs:
 *   memory   each program by itself: check_program.c.
 *   matches  every receive has a send of equal bytes and tag and vice versa;
 *            members of a group run the same exchanges in the same order.
 *   progress the programs, simulated, all end.
 * Nothing here uses the builder's data, only the finished programs.
 */
#include "config.h"

#include "partitioner/simulate/check.h"

#include "base/error.h"
#include "partitioner/simulate/check_impl.h"
#include "partitioner/simulate/meet.h"
#include "partitioner/simulate/simulate.h"

#include <string.h>

/* --- matches -------------------------------------------------------------- */

static enum merak_status check_arrival(struct merak_meet *meet,
                                       struct merak_program *const *programs,
                                       int p, const struct merak_instr *in,
                                       struct merak_error *err)
{
    struct merak_match *met = merak_meet_find(meet, p, in);
    const struct merak_program *prog = programs[p], *other;
    const struct merak_instr *first;

    if (met == NULL)
        return MERAK_OK; /* its peers are not among the programs */
    for (int i = 0; i < met->n_here; i++) {
        if (met->at[i].program == p)
            return merak_check_fail(prog, in, err,
                                    ": its tag is used twice in the step");
    }
    (void)merak_meet_arrive(meet, p, in, 0.0);
    other = programs[met->at[0].program];
    first = &other->instr[met->at[0].instr];
    if (in->kind == MERAK_INSTR_EXCHANGE
            ? in->exchange->kind == first->exchange->kind &&
                  in->exchange->dtype == first->exchange->dtype &&
                  in->exchange->n == first->exchange->n &&
                  in->joined == first->joined
            : prog->slot[in->slot[0]].bytes ==
                  other->slot[first->slot[0]].bytes)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CORRUPT,
                      "rank %d instruction %d (%s) and rank %d instruction %d "
                      "(%s) do not agree on what is sent",
                      prog->rank, in->id, in->name, other->rank, first->id,
                      first->name);
}

static enum merak_status check_complete(struct merak_meet *meet,
                                        struct merak_program *const *programs,
                                        int p, const struct merak_instr *in,
                                        struct merak_error *err)
{
    const struct merak_match *met = merak_meet_find(meet, p, in);

    if (met == NULL || met->n_here == met->n_all)
        return MERAK_OK;
    if (in->kind == MERAK_INSTR_EXCHANGE)
        return merak_check_fail(
            programs[p], in, err,
            ": not all members of its group run this exchange");
    return merak_check_fail(programs[p], in, err,
                            " has no %s of tag %llu on rank %d",
                            in->kind == MERAK_INSTR_SEND ? "receive" : "send",
                            (unsigned long long)in->tag, in->peer);
}

static enum merak_status check_matches(struct merak_meet *meet,
                                       struct merak_program *const *programs,
                                       int n, struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (int p = 0; p < n; p++) {
        for (int i = 0; i < programs[p]->n_instrs && rc == MERAK_OK; i++)
            rc = check_arrival(meet, programs, p, &programs[p]->instr[i], err);
    }
    for (int p = 0; p < n; p++) {
        for (int i = 0; i < programs[p]->n_instrs && rc == MERAK_OK; i++)
            rc = check_complete(meet, programs, p, &programs[p]->instr[i], err);
    }
    return rc;
}

/* --- order of exchanges --------------------------------------------------- */

/* The next exchange after `from` among the members of a group. */
static const struct merak_instr *next_in(const struct merak_program *prog,
                                         int from, const int *rank, int n)
{
    for (int i = from; i < prog->n_instrs; i++) {
        const struct merak_instr *in = &prog->instr[i];
        const struct merak_group *g;

        if (in->kind != MERAK_INSTR_EXCHANGE)
            continue;
        g = &prog->group[in->group];
        if (g->n == n && memcmp(g->rank, rank, (size_t)n * sizeof(int)) == 0)
            return in;
    }
    return NULL;
}

static enum merak_status compare_orders(const struct merak_program *a,
                                        const struct merak_program *b,
                                        const struct merak_group *group,
                                        struct merak_error *err)
{
    int i = 0, j = 0;

    for (;;) {
        const struct merak_instr *x = next_in(a, i, group->rank, group->n);
        const struct merak_instr *y = next_in(b, j, group->rank, group->n);

        if (x == NULL && y == NULL)
            return MERAK_OK;
        if (x == NULL || y == NULL || x->tag != y->tag)
            return merak_fail(
                err, MERAK_ERR_CORRUPT,
                "group %s: rank %d runs %s (instruction %d, micro-batch %d) "
                "where rank %d runs %s (instruction %d, micro-batch %d)",
                group->name, a->rank, x != NULL ? x->name : "nothing",
                x != NULL ? x->id : -1, x != NULL ? x->microbatch : -1, b->rank,
                y != NULL ? y->name : "nothing", y != NULL ? y->id : -1,
                y != NULL ? y->microbatch : -1);
        i = x->id + 1;
        j = y->id + 1;
    }
}

/* Compare each member with the first one of its group among the programs. */
static enum merak_status check_orders(const struct merak_meet *meet,
                                      struct merak_program *const *programs,
                                      int n, struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (int p = 0; p < n; p++) {
        for (int g = 0; g < programs[p]->n_groups && rc == MERAK_OK; g++) {
            const struct merak_group *group = &programs[p]->group[g];
            int first = -1;

            for (int i = 0; i < group->n && first < 0; i++)
                first = merak_meet_program(meet, group->rank[i]);
            if (first >= 0 && first != p)
                rc = compare_orders(programs[first], programs[p], group, err);
        }
    }
    return rc;
}

enum merak_status merak_program_check(struct merak_program *const *programs,
                                      int n, struct merak_error *err)
{
    struct merak_timeline *timeline = NULL;
    struct merak_meet *meet = NULL;
    enum merak_status rc = MERAK_OK;

    for (int p = 0; p < n && rc == MERAK_OK; p++)
        rc = merak_check_program(programs[p], err);
    if (rc == MERAK_OK)
        rc = merak_meet_create(programs, n, &meet, err);
    if (rc == MERAK_OK)
        rc = check_orders(meet, programs, n, err);
    if (rc == MERAK_OK)
        rc = check_matches(meet, programs, n, err);
    if (rc == MERAK_OK)
        rc = merak_simulate(programs, n, NULL, NULL, &timeline, err);
    merak_timeline_destroy(timeline);
    merak_meet_destroy(meet);
    return rc;
}
