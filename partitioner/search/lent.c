/* SPDX-License-Identifier: Apache-2.0 */
/* lent.c - what ZeRO-2 and 3 exchange in actions
 *
 * With ZeRO-3 forwards and backwards gather what they fetch, a segment at a
 * time, with 2 gradients are summed over replicas where they are made.  Both
 * overlap with kernels of the same action; what takes longer than they do, it
 * waits for.  The last micro-batch's sums are ends.c's.
 */
#include "config.h"

#include "partitioner/search/lent.h"

#include "partitioner/search/replicas.h"

#include <math.h>

/* Exchanges beside kernels: how long they take, and what kernels lose. */
struct beside {
    double took_s;
    struct merak_interference loss; /* wake_s: of one */
    int n;
};

/* --- what is still there -------------------------------------------------- */

/* Two blocks are there at a time (program/fetch.c), so that an action does not
 * gather the two that it begins with where another of its part has just ended:
 * a backward behind a forward, or a forward behind a backward. */
enum { STAYS = 2 };

/* Which of a part's actions of a kind, from 0 to 1, follow one that ends where
 * they begin. */
static double turns_of(const struct merak_lists *lists, int stage, int chunk,
                       enum merak_action_kind kind)
{
    const struct merak_step_action *a = merak_lists_of(lists, stage);
    const struct merak_step_action *last = NULL;
    int n = 0, turned = 0;

    for (int i = 0; i < lists->n[stage]; i++) {
        if (a[i].kind != MERAK_ACT_F && a[i].kind != MERAK_ACT_B)
            continue;
        if (a[i].kind == kind && a[i].chunk == chunk) {
            n++;
            turned +=
                last != NULL && last->kind != kind && last->chunk == chunk;
        }
        last = &a[i];
    }
    return n > 0 ? (double)turned / n : 0;
}

void merak_lent_count_turns(struct merak_rater *r)
{
    if (merak_rater_held(r, MERAK_HELD_PARAM, true).used == 0)
        return;
    for (int i = 0; i < r->table->n_shares; i++)
        r->lends_tied = r->lends_tied || r->table->share[i].hold.n_lent > 0;
    for (int s = 0; s < r->plan->pp; s++) {
        for (int c = 0; c < r->chunks; c++) {
            double *turns = r->turns[r->lists->part[s * r->chunks + c]];

            turns[0] = turns_of(r->lists, s, c, MERAK_ACT_F);
            turns[1] = turns_of(r->lists, s, c, MERAK_ACT_B);
        }
    }
}

/* What two parts read stays whole. */
static void leave_tied(const struct merak_rater *r, int part, bool backward,
                       struct merak_lent *lent)
{
    const struct merak_range *g = &r->range[part];

    for (int i = 0; i < r->table->n_shares && r->lends_tied; i++) {
        const struct merak_share *share = &r->table->share[i];
        const struct merak_param_state *h = &share->hold;
        bool first = share->prev >= g->from && share->prev < g->to;
        bool later = share->segment >= g->from && share->segment < g->to;

        if (first == later)
            continue;
        lent->part -= backward ? h->lent_back_part : h->lent_part;
        lent->gather_s -= backward ? h->lent_back_gather_s : h->lent_gather_s;
    }
}

/* Take away what of the fetched an action finds there; of so many blocks. */
static int leave_out(const struct merak_rater *r, int part, bool backward,
                     struct merak_lent *lent)
{
    const struct merak_range *g = &r->range[part];
    double turned = r->turns[part][backward];
    int n = 0;

    if (g->to - g->from <= STAYS && r->chunks == 1)
        turned = 1; /* all of them stay */
    for (int i = 0; i < STAYS && i < g->to - g->from; i++) {
        int at = backward ? g->to - 1 - i : g->from + i;
        const struct merak_param_state *h = &r->table->segment[at].hold;

        if (at >= g->from + lent->segments)
            continue;
        lent->part -= turned * (backward ? h->lent_back_part : h->lent_part);
        lent->gather_s -=
            turned * (backward ? h->lent_back_gather_s : h->lent_gather_s);
        n++;
    }
    leave_tied(r, part, backward, lent);
    lent->part = fmax(lent->part, 0);
    lent->gather_s = fmax(lent->gather_s, 0);
    return (int)lround(turned * n);
}

/* --- beside kernels ------------------------------------------------------- */

/* Of a part: the gathers of what it fetches, and the share of its kernels that
 * they run beside. */
static struct beside gathers_of(const struct merak_rater *r, int part,
                                bool backward, double *share)
{
    const struct merak_range *g = &r->range[part];
    struct merak_lent lent = merak_range_fetched_to(g, r->plan->fetch);
    const struct merak_held held = merak_rater_held(r, MERAK_HELD_PARAM, true);
    int n = lent.n < lent.segments ? lent.n : lent.segments; /* bundles */

    *share = (double)lent.segments / (g->to - g->from);
    if (held.used == 0 || n == 0)
        return (struct beside){0};
    if (backward) {
        lent.part = lent.back_part;
        lent.gather_s = lent.back_gather_s;
    }
    n -= leave_out(r, part, backward, &lent);
    return (struct beside){
        .took_s = merak_over_home(r, false, lent.part, n) + lent.gather_s,
        .loss = merak_over_home_interference(r, false, lent.part),
        .n = n};
}

/* The sums of its gradients. */
static struct beside sums_of(const struct merak_rater *r,
                             const struct merak_range *g)
{
    const struct merak_param_state *h = &g->hold;
    int width = r->plan->sub_pipeline ? 2 : 1;
    double bytes = width * h->lent_grad_part;

    if (merak_rater_held(r, MERAK_HELD_GRAD, true).used == 0 || h->n_lent == 0)
        return (struct beside){0};
    return (struct beside){
        .took_s =
            width * (merak_over_home(r, true, h->lent_grad_part, h->n_lent) +
                     h->lent_sum_s),
        .loss = merak_over_home_interference(r, true, bytes),
        .n = width * h->n_lent};
}

/* Kernels of so many seconds wait for what takes longer, and are slowed down by
 * all of it.  Each exchange wakes communication if it ends before the next. */
static double longer_s(const struct beside *gathers, const struct beside *sums,
                       double share, double seconds)
{
    double took = share * (gathers->took_s + sums->took_s), lost = 0;
    const struct beside *of[] = {gathers, sums};

    for (int i = 0; i < 2; i++) {
        bool apart = took < seconds && of[i]->n * of[i]->loss.wake_s < seconds;

        lost +=
            share * (of[i]->loss.copy_s +
                     (apart ? of[i]->n : of[i]->n > 0) * of[i]->loss.wake_s);
    }
    return fmax(took - seconds, lost);
}

/* Seconds of an action beside which exchanges over replicas run: all of it, or
 * where these stay in a node without exchanges with tensor ranks, about half of
 * which are the forward's, since both share its links. */
static double hiding_s(const struct merak_rater *r, int part,
                        enum merak_phase phase)
{
    const struct merak_range *g = &r->range[part];
    bool splits = r->lists->schedule->splits_w;
    double exchanges = merak_home_is_in_node(r)
                           ? fmax(g->f_s + g->b_s - g->kernel_s, 0) / 2
                           : 0;

    if (phase == MERAK_PHASE_W)
        return g->w_s;
    if (phase == MERAK_PHASE_F)
        return fmax(g->f_s - exchanges, 0);
    return fmax(
        r->keeps[part].recompute_s + (splits ? g->x_s : g->b_s) - exchanges, 0);
}

/* How much longer an action takes, with or without sums; kernels of blocks that
 * are not fetched hide these alone. */
static double action_s(const struct merak_rater *r, int part,
                       enum merak_phase phase, bool sums)
{
    const struct beside none = {0};
    struct beside gather, sum = sums ? sums_of(r, &r->range[part]) : none;
    double share, seconds = hiding_s(r, part, phase);

    gather = gathers_of(r, part, phase != MERAK_PHASE_F, &share);
    if (phase == MERAK_PHASE_W)
        gather = none;
    if (share > 0) { /* all of them, beside that share */
        gather.took_s /= share;
        gather.loss.copy_s /= share;
    }
    return longer_s(&gather, &sum, share, share * seconds) +
           longer_s(&none, &sum, 1 - share, (1 - share) * seconds);
}

/* Vocabulary-parallel layers lend nothing. */
static bool lends(const struct merak_rater *r, int part)
{
    return part < r->chain && r->plan->zero >= MERAK_ZERO_GRADS;
}

double merak_lent_s(const struct merak_rater *r, int part,
                    enum merak_phase phase)
{
    bool splits = r->lists->schedule->splits_w;

    if (!lends(r, part) || (phase == MERAK_PHASE_W && !splits))
        return 0;
    return action_s(r, part, phase,
                    phase == (splits ? MERAK_PHASE_W : MERAK_PHASE_B));
}

double merak_lent_sums_s(const struct merak_rater *r, int part)
{
    if (!lends(r, part))
        return 0;
    if (r->lists->schedule->splits_w)
        return merak_lent_s(r, part, MERAK_PHASE_W);
    return action_s(r, part, MERAK_PHASE_B, true) -
           action_s(r, part, MERAK_PHASE_B, false);
}
