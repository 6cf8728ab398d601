/* SPDX-License-Identifier: Apache-2.0 */
/* tried.c - what is known of candidates that were built */
#include "config.h"

#include "partitioner/search/finalist.h"
#include "partitioner/search/tried.h"

#include "base/grow.h"
#include "base/rng.h"

#include <string.h>

/* A candidate as it was given to merak_search_try(), and as it came back. */
struct merak_tried {
    uint64_t hash; /* of its cut and what it was to drop */
    bool leaves;   /* s->trials.leaves */
    struct merak_candidate given, made;
    enum merak_status rc;
    struct merak_error why;
};

/* --- known results -------------------------------------------------------- */

static uint64_t hash_of(const struct merak_candidate *c)
{
    int parts = merak_plan_parts(&c->plan);
    uint64_t hash = (uint64_t)parts;

    for (int p = 0; p <= parts; p++)
        hash = merak_rng_mix(hash, (uint64_t)c->bound[p]);
    for (int p = 0; p < parts; p++)
        hash = merak_rng_mix(hash, 2 * (uint64_t)c->drop[p].blocks +
                                       c->drop[p].attention);
    return hash;
}

static bool is_same_cut(const struct merak_candidate *a,
                        const struct merak_candidate *b)
{
    int parts = merak_plan_parts(&a->plan);

    if (merak_plan_parts(&b->plan) != parts ||
        memcmp(a->bound, b->bound, ((size_t)parts + 1) * sizeof(*a->bound)) !=
            0)
        return false;
    for (int p = 0; p < parts; p++) {
        if (a->drop[p].blocks != b->drop[p].blocks ||
            a->drop[p].attention != b->drop[p].attention ||
            a->drop[p].again != b->drop[p].again)
            return false;
    }
    return true;
}

/* Are the same programs built, and settled in the same order? */
static bool is_same(const struct merak_candidate *a,
                    const struct merak_candidate *b)
{
    return a->stage == b->stage && a->table == b->table &&
           a->schedule == b->schedule && a->given.cut == b->given.cut &&
           a->given.drop == b->given.drop &&
           a->plan.microbatches == b->plan.microbatches &&
           a->plan.scatter == b->plan.scatter &&
           merak_search_compare_plans(&a->plan, &b->plan) == 0 &&
           is_same_cut(a, b);
}

static const struct merak_tried *find(const struct merak_search *s,
                                      const struct merak_candidate *cand)
{
    uint64_t hash = hash_of(cand);

    for (int i = 0; i < s->trials.tried.n; i++) {
        const struct merak_tried *t = &s->trials.tried.list[i];

        if (t->hash == hash && t->leaves == s->trials.leaves &&
            is_same(&t->given, cand))
            return t;
    }
    return NULL;
}

/* What was built changes nothing else of a candidate. */
static void take(const struct merak_candidate *made,
                 struct merak_candidate *cand)
{
    memcpy(cand->drop, made->drop,
           (size_t)merak_plan_parts(&cand->plan) * sizeof(*cand->drop));
    memcpy(cand->part_s, made->part_s, sizeof(cand->part_s));
    cand->stage = made->stage;
    cand->rated_s = made->rated_s;
    cand->bytes = made->bytes;
    cand->step_s = made->step_s;
    cand->arena = made->arena;
    cand->fetch_s = made->fetch_s;
    cand->offload_s = made->offload_s;
}

/* --- trying ----------------------------------------------------------------
 */

static enum merak_status try_new(struct merak_search *s,
                                 struct merak_candidate *cand,
                                 struct merak_error *err)
{
    struct merak_tried t = {.hash = hash_of(cand), .leaves = s->trials.leaves};

    if (!merak_search_copy(s, cand, &t.given))
        return s->rc;
    t.rc = merak_search_try(s, cand, err);
    if (t.rc != MERAK_OK && t.rc != MERAK_ERR_CORRUPT &&
        t.rc != MERAK_ERR_UNSUPPORTED)
        return t.rc;
    t.why = *err;
    if (merak_search_copy(s, cand, &t.made))
        s->rc = merak_grow(&s->trials.tried.list, &s->trials.tried.room,
                           s->trials.tried.n, sizeof(*s->trials.tried.list),
                           s->err);
    if (s->rc == MERAK_OK)
        s->trials.tried.list[s->trials.tried.n++] = t;
    return t.rc;
}

enum merak_status merak_search_try_once(struct merak_search *s,
                                        struct merak_candidate *cand,
                                        struct merak_error *err)
{
    const struct merak_tried *t = find(s, cand);

    if (t == NULL)
        return try_new(s, cand, err);
    take(&t->made, cand);
    *err = t->why;
    return t->rc;
}
