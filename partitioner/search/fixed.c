/* SPDX-License-Identifier: Apache-2.0 */
/* fixed.c - cuts and recomputation that are given, not searched for
 *
 * A given cut is the only one that a candidate is rated with; its degrees and
 * chunks have to match the number of parts.  Given recomputation excludes cuts
 * whose parts have fewer blocks than are to be recomputed, a given number of
 * blocks to be fetched those of which no part has as many.
 */
#include "config.h"

#include "partitioner/search/fixed.h"

#include "base/error.h"

int merak_candidate_segments(const struct merak_candidate *cand)
{
    return cand->table->n - cand->table->n_shared;
}

int merak_candidate_parts(const struct merak_candidate *cand)
{
    return merak_plan_parts(&cand->plan) - cand->table->n_shared;
}

enum merak_status merak_fixed_valid(const struct merak_given_lists *lists,
                                    struct merak_error *err)
{
    char cut[64], drop[64];

    merak_cut_text(lists->cut, lists->cut != NULL ? lists->n_cut : 0, cut,
                   sizeof(cut));
    for (int i = 0; lists->cut != NULL && i < lists->n_cut; i++) {
        int before = i > 0 ? lists->cut[i - 1] : -1;

        if (lists->cut[i] <= before)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "cut %s: %d comes after %d; expected ascending "
                              "cut points from 0",
                              cut, lists->cut[i], before);
    }
    if (lists->cut == NULL || lists->drop == NULL ||
        lists->n_drop == lists->n_cut + 1)
        return MERAK_OK;
    merak_drop_text(lists->drop, lists->n_drop, drop, sizeof(drop));
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "cut %s makes %d parts, and recompute %s lists %d: give "
                      "recompute a list of %d",
                      cut, lists->n_cut + 1, drop, lists->n_drop,
                      lists->n_cut + 1);
}

int merak_fixed_chunks(const struct merak_choices *pin, int pp)
{
    return pin->chunks > 0 ? pin->chunks : merak_given_parts(&pin->list) / pp;
}

void merak_fixed_bound(const struct merak_candidate *cand, int *bound)
{
    const struct merak_given_lists *lists = &cand->given;

    bound[0] = 0;
    for (int i = 0; i < lists->n_cut; i++)
        bound[i + 1] = lists->cut[i] + 1;
    bound[lists->n_cut + 1] = merak_candidate_segments(cand);
}

/* Number of blocks of segments from .. to - 1 as a part. */
static int count_blocks(const struct merak_table *table, int from, int to)
{
    int n = 1;

    for (int s = from + 1; s < to; s++)
        n += table->segment[s].begins_block;
    return n;
}

/* Does some part have the blocks that are to be fetched? */
static bool has_fetched(const struct merak_candidate *cand, const int *bound)
{
    bool has = cand->plan.fetch == 0;

    for (int p = 0; !has && p < merak_candidate_parts(cand); p++)
        has = count_blocks(cand->table, bound[p], bound[p + 1]) >=
              cand->plan.fetch;
    return has;
}

bool merak_fixed_allows(const struct merak_candidate *cand, const int *bound)
{
    const struct merak_given_lists *lists = &cand->given;
    bool allows = has_fetched(cand, bound);

    for (int p = 0; lists->drop != NULL && p < lists->n_drop; p++)
        allows = allows && count_blocks(cand->table, bound[p], bound[p + 1]) >=
                               lists->drop[p].blocks;
    return allows;
}

/* --- can the lists be met? ------------------------------------------------ */

static enum merak_status check_places(const struct merak_candidate *cand,
                                      struct merak_error *err)
{
    const struct merak_given_lists *lists = &cand->given;
    int most = merak_candidate_segments(cand) - 2;
    char list[64];

    if (lists->n_cut == 0 || lists->cut[lists->n_cut - 1] <= most)
        return MERAK_OK;
    merak_cut_text(lists->cut, lists->n_cut, list, sizeof(list));
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "cut %s: there is no cut point %d; expected 0 to %d",
                      list, lists->cut[lists->n_cut - 1], most);
}

/* Given cuts: does each part have the blocks it is to drop? */
static enum merak_status check_blocks(const struct merak_candidate *cand,
                                      struct merak_error *err)
{
    const struct merak_given_lists *lists = &cand->given;
    char list[64];

    merak_drop_text(lists->drop, lists->n_drop, list, sizeof(list));
    for (int p = 0; p < lists->n_drop; p++) {
        int from = p > 0 ? lists->cut[p - 1] + 1 : 0;
        int to = p < lists->n_cut ? lists->cut[p] + 1
                                  : merak_candidate_segments(cand);
        int has = count_blocks(cand->table, from, to);

        if (lists->drop[p].blocks > has)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "recompute %s: part %d has %d block%s, not %d; "
                              "give 0 to %d there",
                              list, p, has, has == 1 ? "" : "s",
                              lists->drop[p].blocks, has);
    }
    return MERAK_OK;
}

/* Does the model have enough blocks for parts as short as possible? */
static enum merak_status find_blocks(const struct merak_candidate *cand,
                                     struct merak_error *err)
{
    const struct merak_given_lists *lists = &cand->given;
    const struct merak_table *table = cand->table;
    char list[64];
    int to = 0, part = 0, end = merak_candidate_segments(cand);

    for (; part < lists->n_drop && to < end; part++) {
        int from = to++;

        while (to < end &&
               count_blocks(table, from, to) < lists->drop[part].blocks)
            to++;
        if (count_blocks(table, from, to) < lists->drop[part].blocks)
            break;
    }
    if (part == lists->n_drop)
        return MERAK_OK;
    merak_drop_text(lists->drop, lists->n_drop, list, sizeof(list));
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "recompute %s: the model's %d blocks cannot be cut into "
                      "parts with that many; give smaller numbers",
                      list, count_blocks(table, 0, end));
}

/* Is there a cut such that some part has the blocks that are to be fetched? */
static enum merak_status check_fetched(const struct merak_candidate *cand,
                                       struct merak_error *err)
{
    int fetch = cand->plan.fetch;
    int has = count_blocks(cand->table, 0, merak_candidate_segments(cand));

    if (fetch <= has)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "fetch %d: the model has %d blocks", fetch, has);
}

/* Some schedules recompute nothing on some stages. */
static enum merak_status check_stages(const struct merak_candidate *cand,
                                      const struct merak_schedule *schedule,
                                      struct merak_error *err)
{
    const struct merak_given_lists *lists = &cand->given;
    const struct merak_plan *plan = &cand->plan;
    char list[64];

    for (int s = 0; s < plan->pp; s++) {
        if (merak_plan_recomputes(schedule, plan, s))
            continue;
        for (int c = 0; c < merak_plan_chunks(plan); c++) {
            int part = merak_plan_part(schedule, plan, s, c);

            if (part >= lists->n_drop ||
                !merak_drops_any(&lists->drop[part], 1))
                continue;
            merak_drop_text(lists->drop, lists->n_drop, list, sizeof(list));
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "recompute %s: schedule %s recomputes nothing on "
                              "stage %d; give 0 for part %d, or schedule 1f1b",
                              list, schedule->name, s, part);
        }
    }
    return MERAK_OK;
}

bool merak_fixed_parts(const struct merak_candidate *cand)
{
    const struct merak_given_lists *lists = &cand->given;

    return merak_given_parts(lists) == 0 ||
           merak_given_check(lists, &cand->plan, NULL) == MERAK_OK;
}

enum merak_status merak_fixed_check(const struct merak_candidate *cand,
                                    const struct merak_schedule *schedule,
                                    struct merak_error *err)
{
    const struct merak_given_lists *lists = &cand->given;
    enum merak_status rc = check_fetched(cand, err);

    if (rc == MERAK_OK && lists->cut != NULL)
        rc = check_places(cand, err);
    if (rc == MERAK_OK && lists->drop != NULL)
        rc = check_stages(cand, schedule, err);
    if (rc == MERAK_OK && lists->drop != NULL)
        rc = lists->cut != NULL ? check_blocks(cand, err)
                                : find_blocks(cand, err);
    return rc;
}
