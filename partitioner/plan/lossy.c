/* SPDX-License-Identifier: Apache-2.0 */
/* lossy.c - hops between stages that are sent in part, as text and by closed
 * form */
#include "config.h"

#include "partitioner/plan/plan.h"

#include "base/digits.h"
#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool merak_lossy_equal(const struct merak_lossy *a, const struct merak_lossy *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

bool merak_lossy_any(const struct merak_lossy *lossy)
{
    static const struct merak_lossy none;

    return !merak_lossy_equal(lossy, &none);
}

int merak_lossy_last(const struct merak_lossy *lossy)
{
    int last = MERAK_LOSSY_HOPS - 1;

    while (last >= 0 && lossy->ratio[last] == 0)
        last--;
    return last;
}

int merak_lossy_ratio(const struct merak_lossy *lossy, int hop)
{
    if (lossy->all > 0)
        return lossy->all;
    return hop >= 0 && hop < MERAK_LOSSY_HOPS ? lossy->ratio[hop] : 0;
}

bool merak_lossy_obeys(const struct merak_lossy *has,
                       const struct merak_lossy *asked, int n)
{
    bool obeys = true;

    for (int h = 0; h < n; h++) {
        int ratio = merak_lossy_ratio(has, h);
        int said = merak_lossy_ratio(asked, h);

        if (h == n - 1 && (has->all > 0 || asked->all > 0))
            break; /* there may be none from the last stage to the first */
        obeys =
            obeys && (asked->most > 0 ? ratio <= asked->most : ratio == said);
    }
    return obeys;
}

int merak_lossy_hop_between(int from, int to)
{
    int low = from < to ? from : to, high = from < to ? to : from;

    return high == low + 1 ? low : high; /* else from the last to the first */
}

/* --- text ----------------------------------------------------------------- */

static enum merak_status bad_lossy(const char *text, struct merak_error *err)
{
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--lossy-hops: expected a ratio for all hops, as in 8, "
                      "ratios behind stages, as in 1:8,2:4, or auto:8, the "
                      "largest, got \"%.60s\"",
                      text);
}

static enum merak_status check_ratio(int ratio, struct merak_error *err)
{
    if (ratio >= 2 && ratio <= MERAK_LOSSY_MOST)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--lossy-hops: ratio %d, expected 2..%d%s", ratio,
                      MERAK_LOSSY_MOST,
                      ratio == 1 ? "; a hop that is not named is whole" : "");
}

/* One ratio, of all hops or of the slowest. */
static enum merak_status parse_one(const char *text, const char *at,
                                   uint8_t *ratio_p, struct merak_error *err)
{
    int ratio;

    if (!merak_next_number(&at, &ratio) || *at != '\0')
        return bad_lossy(text, err);
    *ratio_p = (uint8_t)ratio;
    return check_ratio(ratio, err);
}

static enum merak_status parse_list(const char *text, struct merak_lossy *lossy,
                                    struct merak_error *err)
{
    const char *at = text;

    for (;;) {
        enum merak_status rc;
        int hop, ratio;

        if (!merak_next_number(&at, &hop) || *at++ != ':' ||
            !merak_next_number(&at, &ratio))
            return bad_lossy(text, err);
        rc = check_ratio(ratio, err);
        if (rc != MERAK_OK)
            return rc;
        if (hop >= MERAK_LOSSY_HOPS)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "--lossy-hops: the hop behind stage %d, expected "
                              "0..%d, or one ratio for all",
                              hop, MERAK_LOSSY_HOPS - 1);
        if (lossy->ratio[hop] > 0)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "--lossy-hops: the hop behind stage %d is named "
                              "twice; expected each once",
                              hop);
        lossy->ratio[hop] = (uint8_t)ratio;
        if (*at == '\0')
            return MERAK_OK;
        if (*at != ',' && *at != '-')
            return bad_lossy(text, err);
        at++;
    }
}

enum merak_status merak_lossy_parse(const char *text, struct merak_lossy *lossy,
                                    struct merak_error *err)
{
    struct merak_lossy found = {0};
    enum merak_status rc = MERAK_OK;

    if (strncmp(text, "auto:", 5) == 0)
        rc = parse_one(text, text + 5, &found.most, err);
    else if (strpbrk(text, ":,-") != NULL)
        rc = parse_list(text, &found, err);
    else if (strcmp(text, "none") != 0)
        rc = parse_one(text, text, &found.all, err);
    if (rc == MERAK_OK)
        *lossy = found;
    return rc;
}

const char *merak_lossy_text(const struct merak_lossy *lossy,
                             const char *between, char *text, size_t bytes)
{
    size_t at = 0;

    if (lossy->all > 0)
        snprintf(text, bytes, "%d", lossy->all);
    else if (lossy->most > 0)
        snprintf(text, bytes, "auto:%d", lossy->most);
    else
        snprintf(text, bytes, "none");
    for (int h = 0; h < MERAK_LOSSY_HOPS && at < bytes; h++) {
        if (lossy->ratio[h] > 0)
            at += (size_t)snprintf(text + at, bytes - at, "%s%d:%d",
                                   at > 0 ? between : "", h, lossy->ratio[h]);
    }
    return text;
}

/* Room for an item and what ends a list. */
enum { ITEM = 40 };

const char *merak_lossy_describe(const struct merak_lossy *lossy, int n,
                                 char *text, size_t bytes)
{
    size_t at = 0;

    text[0] = '\0';
    if (lossy->most > 0)
        snprintf(text, bytes, "lossy: at most ratio %d", lossy->most);
    else if (lossy->all > 0 && n != 2)
        snprintf(text, bytes, "lossy: all stages ratio %d", lossy->all);
    if (text[0] != '\0')
        return text;
    for (int h = 0; h < MERAK_LOSSY_HOPS && h < n; h++) {
        int ratio = lossy->all > 0 && h > 0 ? 0 : merak_lossy_ratio(lossy, h);

        if (ratio == 0)
            continue;
        if (at + ITEM > bytes) {
            snprintf(text + at, bytes - at, ", ..");
            break;
        }
        at +=
            (size_t)snprintf(text + at, bytes - at, "%sstage %d -> %d ratio %d",
                             at == 0 ? "lossy: " : ", ", h, (h + 1) % n, ratio);
    }
    return text;
}

/* --- ratios by time ------------------------------------------------------- */

/* Down to 2, 3, 4, 6, 8, 12, ..; 0 for less. */
static uint8_t rounded(double ratio)
{
    int low = 2;

    if (ratio < 2)
        return 0;
    while (2 * low <= ratio)
        low *= 2;
    return (uint8_t)(low + low / 2 <= ratio ? low + low / 2 : low);
}

void merak_lossy_settle(struct merak_lossy *lossy, const double *seconds, int n)
{
    double most = lossy->most, slowest = 0;

    for (int h = 0; h < n; h++)
        slowest = seconds[h] > slowest ? seconds[h] : slowest;
    *lossy = (struct merak_lossy){0};
    for (int h = 0; h < n && h < MERAK_LOSSY_HOPS && slowest > 0; h++)
        lossy->ratio[h] = rounded(most * seconds[h] / slowest);
}

/* --- hops of a plan ------------------------------------------------------- */

static int stage_of(const struct merak_schedule *schedule,
                    const struct merak_plan *plan, int part)
{
    int chunks = merak_plan_chunks(plan);

    for (int i = 0; i < plan->pp * chunks; i++) {
        if (merak_plan_part(schedule, plan, i / chunks, i % chunks) == part)
            return i / chunks;
    }
    return 0;
}

int merak_plan_lossy_hop(const struct merak_schedule *schedule,
                         const struct merak_plan *plan, int part)
{
    int from = stage_of(schedule, plan, part);
    int to = stage_of(schedule, plan, part + 1);

    return from == to ? -1 : merak_lossy_hop_between(from, to);
}

/* The highest hop. */
static int last_hop(const struct merak_schedule *schedule,
                    const struct merak_plan *plan)
{
    int last = plan->pp - 2;

    for (int part = 0; part + 1 < merak_plan_parts(plan); part++) {
        int hop = merak_plan_lossy_hop(schedule, plan, part);

        last = hop > last ? hop : last;
    }
    return last;
}

static enum merak_status check_list(const struct merak_schedule *schedule,
                                    const struct merak_plan *plan,
                                    struct merak_error *err)
{
    int named = merak_lossy_last(&plan->lossy);
    int last = last_hop(schedule, plan);

    if (named <= last)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--lossy-hops: the hop behind stage %d, and of %d stages "
                      "those behind 0..%d send to another; expected one of "
                      "these",
                      named, plan->pp, last);
}

enum merak_status merak_plan_check_lossy(const struct merak_plan *plan,
                                         struct merak_error *err)
{
    const struct merak_schedule *schedule;
    char text[MERAK_LOSSY_TEXT];

    if (!merak_lossy_any(&plan->lossy))
        return MERAK_OK;
    merak_lossy_text(&plan->lossy, ",", text, sizeof(text));
    if (plan->stage != NULL)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "--lossy-hops %.60s and stages of unlike ranks: use "
                          "stages alike, or leave it out",
                          text);
    if (plan->pp == 1)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--lossy-hops %.60s: one stage sends nothing to "
                          "another; use --pp 2 or more, or leave it out",
                          text);
    if (merak_schedule_find(plan->schedule, &schedule, err) != MERAK_OK)
        return MERAK_ERR_CONFIG;
    if (merak_plan_shared(plan) > 0)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "--lossy-hops %.60s under %s, where all stages run "
                          "layers together: use another --schedule, such as "
                          "1f1b",
                          text, plan->schedule);
    if (plan->branches != MERAK_BRANCHES_DESCRIBED &&
        plan->branches != MERAK_BRANCHES_AUTO)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "--lossy-hops %.60s with nodes in another order: use "
                          "--branches described",
                          text);
    return check_list(schedule, plan, err);
}
