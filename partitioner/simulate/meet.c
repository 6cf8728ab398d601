/* SPDX-License-Identifier: Apache-2.0 */
/* meet.c - which instructions of several programs are one event
 *
 * A hash table over (tag, members).  All matches are made in advance, so
 * that arriving cannot fail.
 */
#include "config.h"

#include "partitioner/simulate/meet.h"

#include "base/error.h"
#include "base/rng.h"
#include "partitioner/graph/mem_pool.h"

#include <stdlib.h>

struct rank_at {
    int rank, program;
};

struct merak_meet {
    struct merak_program *const *programs;
    int n;
    struct rank_at *by_rank; /* sorted */
    struct merak_match **bucket;
    size_t n_buckets; /* a power of two */
    struct merak_match **all, ***of; /* by program and instruction, or NULL */
    struct merak_pool *pool;
};

static int compare_ranks(const void *a, const void *b)
{
    const struct rank_at *x = a, *y = b;

    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

int merak_meet_program(const struct merak_meet *meet, int rank)
{
    const struct rank_at key = {.rank = rank};
    const struct rank_at *at = bsearch(&key, meet->by_rank, (size_t)meet->n,
                                       sizeof(key), compare_ranks);

    return at == NULL ? -1 : at->program;
}

static bool has_peers(const struct merak_instr *in)
{
    return in->kind == MERAK_INSTR_SEND || in->kind == MERAK_INSTR_RECV ||
           in->kind == MERAK_INSTR_EXCHANGE;
}

static struct merak_match who(const struct merak_program *prog,
                              const struct merak_instr *in)
{
    struct merak_match key = {.tag = in->tag};

    if (in->kind == MERAK_INSTR_EXCHANGE) {
        key.first = prog->group[in->group].rank[0];
        key.second = -prog->group[in->group].n;
    } else if (in->kind == MERAK_INSTR_SEND) {
        key.first = prog->rank;
        key.second = in->peer;
    } else {
        key.first = in->peer;
        key.second = prog->rank;
    }
    return key;
}

static struct merak_match **bucket_of(const struct merak_meet *meet,
                                      const struct merak_match *key)
{
    uint64_t h = merak_rng_mix(key->tag, (uint64_t)(uint32_t)key->first << 32 |
                                             (uint32_t)key->second);

    return &meet->bucket[h & (meet->n_buckets - 1)];
}

struct merak_match *merak_meet_find(struct merak_meet *meet, int program,
                                    const struct merak_instr *instr)
{
    struct merak_match *met = meet->of[program][instr->id];

    return met != NULL && met->n_all > 1 ? met : NULL;
}

void merak_meet_restart(struct merak_meet *meet)
{
    for (int p = 0; p < meet->n; p++) {
        for (int i = 0; i < meet->programs[p]->n_instrs; i++) {
            if (meet->of[p][i] != NULL)
                meet->of[p][i]->n_here = 0;
        }
    }
}

/* How many members of each of a program's groups are among the programs: an
 * array that the caller frees. */
static int *count_members(const struct merak_meet *meet,
                          const struct merak_program *prog)
{
    int *members = calloc((size_t)prog->n_groups + 1, sizeof(*members));

    for (int g = 0; g < prog->n_groups && members != NULL; g++) {
        for (int i = 0; i < prog->group[g].n; i++)
            members[g] +=
                merak_meet_program(meet, prog->group[g].rank[i]) >= 0;
    }
    return members;
}

static enum merak_status add_match(struct merak_meet *meet, int program,
                                   const int *of_group,
                                   const struct merak_instr *in,
                                   struct merak_error *err)
{
    const struct merak_program *prog = meet->programs[program];
    struct merak_match key, **bucket, *met;
    int members;

    if (!has_peers(in))
        return MERAK_OK;
    key = who(prog, in);
    bucket = bucket_of(meet, &key);
    for (met = *bucket; met != NULL; met = met->next) {
        if (met->tag == key.tag && met->first == key.first &&
            met->second == key.second) {
            meet->of[program][in->id] = met;
            return MERAK_OK;
        }
    }
    if (in->kind == MERAK_INSTR_EXCHANGE)
        members = of_group[in->group];
    else
        members = merak_meet_program(meet, in->peer) >= 0 ? 2 : 1;
    met = merak_pool_alloc(meet->pool,
                           sizeof(*met) + (size_t)members * sizeof(*met->at));
    if (met == NULL)
        return merak_fail_nomem(err, sizeof(*met));
    *met = key;
    met->n_all = members;
    met->at = (struct merak_member *)(met + 1);
    met->next = *bucket;
    *bucket = met;
    meet->of[program][in->id] = met;
    return MERAK_OK;
}

const struct merak_match *merak_meet_arrive(struct merak_meet *meet,
                                            int program,
                                            const struct merak_instr *instr,
                                            double at_s)
{
    struct merak_match *met = merak_meet_find(meet, program, instr);

    if (met == NULL || met->n_here == met->n_all)
        return NULL;
    met->at[met->n_here++] =
        (struct merak_member){.program = program, .instr = instr->id};
    if (at_s > met->latest_s)
        met->latest_s = at_s;
    return met;
}

static enum merak_status add_program(struct merak_meet *meet, int program,
                                     struct merak_error *err)
{
    const struct merak_program *prog = meet->programs[program];
    int *members = count_members(meet, prog);
    enum merak_status rc = MERAK_OK;

    if (members == NULL)
        return merak_fail_nomem(err, (size_t)prog->n_groups * sizeof(*members));
    for (int i = 0; i < prog->n_instrs && rc == MERAK_OK; i++)
        rc = add_match(meet, program, members, &prog->instr[i], err);
    free(members);
    return rc;
}

static enum merak_status fill(struct merak_meet *meet, struct merak_error *err)
{
    struct merak_match **of = meet->all;
    enum merak_status rc = MERAK_OK;

    for (int p = 0; p < meet->n; p++) {
        meet->of[p] = of;
        of += meet->programs[p]->n_instrs;
    }
    for (int p = 0; p < meet->n; p++)
        meet->by_rank[p] = (struct rank_at){meet->programs[p]->rank, p};
    qsort(meet->by_rank, (size_t)meet->n, sizeof(*meet->by_rank),
          compare_ranks);
    for (int p = 0; p < meet->n && rc == MERAK_OK; p++)
        rc = add_program(meet, p, err);
    return rc;
}

enum merak_status merak_meet_create(struct merak_program *const *programs,
                                    int n, struct merak_meet **meet_p,
                                    struct merak_error *err)
{
    struct merak_meet *meet = calloc(1, sizeof(*meet));
    size_t instrs = 1;
    enum merak_status rc = MERAK_OK;

    if (meet == NULL)
        return merak_fail_nomem(err, sizeof(*meet));
    for (int p = 0; p < n; p++)
        instrs += (size_t)programs[p]->n_instrs;
    meet->programs = programs;
    meet->n = n;
    for (meet->n_buckets = 64; meet->n_buckets < instrs;)
        meet->n_buckets *= 2;
    meet->pool = merak_pool_create();
    meet->by_rank = calloc((size_t)n + 1, sizeof(*meet->by_rank));
    meet->bucket = calloc(meet->n_buckets, sizeof(struct merak_match *));
    meet->all = calloc(instrs, sizeof(struct merak_match *));
    meet->of = calloc((size_t)n + 1, sizeof(struct merak_match **));
    if (meet->pool == NULL || meet->by_rank == NULL || meet->bucket == NULL ||
        meet->all == NULL || meet->of == NULL)
        rc = merak_fail_nomem(err, instrs * sizeof(*meet->bucket));
    if (rc == MERAK_OK)
        rc = fill(meet, err);
    if (rc == MERAK_OK)
        *meet_p = meet;
    else
        merak_meet_destroy(meet);
    return rc;
}

void merak_meet_destroy(struct merak_meet *meet)
{
    if (meet == NULL)
        return;
    free(meet->by_rank);
    free(meet->bucket);
    free(meet->all);
    free(meet->of);
    merak_pool_destroy(meet->pool);
    free(meet);
}
