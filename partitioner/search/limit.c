/* SPDX-License-Identifier: Apache-2.0 */
/* limit.c - the end of a search's time
 *
 * The clock enters a search only here, and only past its limit: a search that
 * ends before is the same on any machine.  Time is shared out so that there is
 * an answer when all of it has passed: most of it for estimates, in the order
 * of enumerate.c, of which each tensor degree gets an equal part, and then, one
 * after the other, what all of them left over; some for the plainest plans of
 * tensor degrees for which none was found; the rest for building the best.
 */
#include "config.h"

#include "partitioner/search/search_impl.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/size.h"

#define FULL_SHARE 0.6  /* of the time, for estimates */
#define PLAIN_SHARE 0.8 /* and for the plainest plans, too */

static void set_until(struct merak_search *s, double share)
{
    s->over = false;
    s->until_ns = s->in->seconds > 0
                      ? s->start_ns + (int64_t)(share * s->in->seconds * 1e9)
                      : INT64_MAX;
}

void merak_search_limit_init(struct merak_search *s)
{
    s->start_ns = merak_clock_ns();
    set_until(s, 1);
}

bool merak_search_is_past(int64_t end_ns)
{
    return end_ns < INT64_MAX && merak_clock_ns() > end_ns;
}

bool merak_search_is_late(const struct merak_search *s)
{
    if (s->insists && s->n_cands == 0)
        return false;
    return s->over || (s->in->stop != NULL && *s->in->stop != 0) ||
           merak_search_is_past(s->until_ns);
}

bool merak_search_is_over(struct merak_search *s)
{
    s->over = merak_search_is_late(s);
    s->cut_short = s->cut_short || s->over;
    return s->over;
}

bool merak_search_goes_on(struct merak_search *s)
{
    return s->rc == MERAK_OK && !merak_search_is_over(s);
}

double merak_search_seconds(const struct merak_search *s)
{
    return (double)(merak_clock_ns() - s->start_ns) * 1e-9;
}

int64_t merak_search_share_ns(const struct merak_search *s, int parts)
{
    int64_t now = merak_clock_ns();

    return s->until_ns < INT64_MAX && now < s->until_ns
               ? now + (s->until_ns - now) / parts
               : s->until_ns;
}

/* Is there a plan of this tensor degree that may fit? */
static bool has_tp(const struct merak_search *s, int tp)
{
    for (int i = 0; i < s->n_cands; i++) {
        if (s->cand[i].plan.tp == tp)
            return true;
    }
    return false;
}

/* Rate the plainest plans of each tensor degree that has none: without them a
 * search might only know plans of small degrees, or none at all. */
static void rate_rest(struct merak_search *s)
{
    const struct merak_search_input *asked = s->in;
    struct merak_search_input plain = *asked;

    merak_search_narrow(&plain.pin);
    s->in = &plain;
    for (int tp = 1; tp <= merak_search_in_node(s); tp++) {
        if ((asked->pin.tp > 0 && asked->pin.tp != tp) || has_tp(s, tp))
            continue;
        if (merak_search_is_over(s))
            break;
        plain.pin.tp = tp;
        merak_search_rate_all(s);
    }
    s->in = asked;
}

void merak_search_rate_in_time(struct merak_search *s)
{
    set_until(s, FULL_SHARE);
    merak_search_rate_all(s);
    if (s->rc == MERAK_OK && s->cut_short) {
        set_until(s, PLAIN_SHARE);
        s->insists = true;
        rate_rest(s);
        s->insists = false;
    }
    set_until(s, 1);
}

enum merak_status merak_search_no_time(const struct merak_search *s)
{
    const struct merak_candidate *least = NULL;
    char need[MERAK_BYTES_TEXT], have[MERAK_BYTES_TEXT];
    char degrees[MERAK_DEGREES_TEXT];

    for (int i = 0; i < s->n_bigs; i++) {
        if (least == NULL || s->big[i].bytes < least->bytes)
            least = &s->big[i];
    }
    if (least == NULL)
        return merak_fail(s->err, MERAK_ERR_CONFIG,
                          "the search was cut short after %.0f s, before it "
                          "found a plan; give it longer with "
                          "--search-seconds",
                          merak_search_seconds(s));
    merak_bytes_text(least->bytes, need);
    merak_bytes_text(s->limit, have);
    return merak_fail(
        s->err, MERAK_ERR_CONFIG,
        "the search was cut short after %.0f s: of %d plans "
        "none fits in %s per rank, and the smallest (%s) needs %s; "
        "give it longer with --search-seconds, or more memory or "
        "ranks",
        merak_search_seconds(s), s->n_rated, have,
        merak_plan_degrees_text(&least->plan, ", ", degrees), need);
}
