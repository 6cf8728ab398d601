/* SPDX-License-Identifier: Apache-2.0 */
/* plan_search.c - a search that ends in time, or at Ctrl-C, with an answer */
#include "config.h"

#include "runtime/plan/auto.h"
#include "runtime/plan/plan_islands.h"

#include "base/size.h"

#include <signal.h>
#include <stdio.h>

/* Of --search-seconds: the rest is for what is said of the plan. */
#define PLAN_SEARCH_SHARE 0.9

/* A signal handler can only access globals.  It stays set: of several searches
 * the rest end at once, too. */
static volatile sig_atomic_t stop_asked;

static void ask_to_stop(int number)
{
    (void)number;
    stop_asked = 1;
}

enum merak_status plan_search(struct plan_auto *plan,
                              struct merak_search_result **result_p,
                              struct merak_error *err)
{
    /* A second Ctrl-C ends the program. */
    const struct sigaction once = {.sa_handler = ask_to_stop,
                                   .sa_flags = SA_RESTART | (int)SA_RESETHAND};
    struct sigaction before;
    bool caught = stop_asked == 0 && sigaction(SIGINT, NULL, &before) == 0 &&
                  before.sa_handler == SIG_DFL &&
                  sigaction(SIGINT, &once, NULL) == 0;
    enum merak_status rc;

    plan->in.seconds = PLAN_SEARCH_SHARE * plan->opt->search_seconds;
    plan->in.stop = &stop_asked;
    rc = plan_islands_search(plan, result_p, err);
    if (caught)
        sigaction(SIGINT, &before, NULL);
    return rc;
}

const char *plan_search_text(const struct merak_search_result *r,
                             char text[PLAN_SEARCH_TEXT])
{
    if (!r->cut_short)
        return NULL;
    snprintf(
        text, PLAN_SEARCH_TEXT,
        "the search was cut short after %.0f s%s, with %d plan%s estimated "
        "and %d simulated",
        r->took_s, stop_asked != 0 ? "" : " (--search-seconds)", r->n_rated,
        merak_plural(r->n_rated), r->n_simulated);
    return text;
}

const char *plan_bound_text(const struct merak_search_result *r,
                            char text[PLAN_SEARCH_TEXT])
{
    double step_s = r->choice[0].step_s;
    bool kernels = r->bound_s <= r->least_s;
    char least[MERAK_SECONDS_TEXT], above[64] = "";

    if (r->bound_s <= 0)
        return NULL;
    merak_seconds_text(r->bound_s, least);
    if (step_s < 2 * r->bound_s)
        snprintf(above, sizeof(above), "; this one takes %.1f%% more",
                 100 * (step_s / r->bound_s - 1));
    snprintf(text, PLAN_SEARCH_TEXT, "no plan%s can take less than %s%s%s",
             kernels ? "" : " with any of the degrees that were looked at",
             least, kernels ? ", the time of its kernels alone" : "", above);
    return text;
}
