/* SPDX-License-Identifier: Apache-2.0 */
/* levels.c - which choices go with which level of ZeRO
 *
 * The rule is least_zero of a choice's row; a request is held against it by
 * what is given, a plan by what is not usual.
 */
#include "config.h"

#include "partitioner/plan/choice.h"

#include "base/error.h"
#include "base/factors.h"

/* The lowest level that has a value of a choice.  A word that no plan has
 * leaves the search one that fits. */
static int least_zero(const struct merak_choice *c, long value)
{
    if (c->n_words > 0 && value >= c->n_words)
        return c->least_zero[0];
    return c->least_zero[value != c->usual];
}

static enum merak_status refuse(const struct merak_choice *c,
                                const struct merak_choices *choices, int zero,
                                struct merak_error *err)
{
    char text[MERAK_CHOICE_TEXT(0)];
    int least = least_zero(c, merak_choice_get(c, choices));

    merak_choice_text(c, choices, text, sizeof(text));
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--%s %s needs --zero %s, not %d; give that, or leave "
                      "out --%s",
                      c->option.name, text,
                      least == MERAK_ZERO_GRADS ? "2 or 3" : "3", zero,
                      c->option.name);
}

int merak_choices_least_zero(const struct merak_choices *choices)
{
    int most = MERAK_ZERO_NONE;

    for (int i = 0; i < MERAK_CHOICE_COUNT; i++) {
        const struct merak_choice *c = &merak_choice[i];
        long value;

        if (!choices->given[i] || !c->in_plan || c->least_zero[1] <= most)
            continue;
        value = merak_choice_get(c, choices);
        if (value != c->usual && least_zero(c, value) > most)
            most = least_zero(c, value);
    }
    return most;
}

enum merak_status
merak_choices_check_levels(const struct merak_choices *choices,
                           struct merak_error *err)
{
    int zero = choices->zero;

    if (!choices->given[MERAK_CHOICE_ZERO] || zero == MERAK_OPTION_AUTO)
        return MERAK_OK;
    for (int i = 0; i < MERAK_CHOICE_COUNT; i++) {
        const struct merak_choice *c = &merak_choice[i];

        if (choices->given[i] && c->in_plan &&
            zero < least_zero(c, merak_choice_get(c, choices)))
            return refuse(c, choices, zero, err);
    }
    return MERAK_OK;
}

/* --- plans ---------------------------------------------------------------- */

static enum merak_status check_dp_in(const struct merak_plan *plan,
                                     struct merak_error *err)
{
    if (plan->dp_in > 1 && plan->stage != NULL)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "--dp-in %d: replicas of unlike stages are summed "
                          "all at once; leave it out",
                          plan->dp_in);
    if (plan->dp_in > 1 && plan->dp % plan->dp_in != 0) {
        merak_fail(err, MERAK_ERR_CONFIG, "--dp-in %d does not divide dp %d",
                   plan->dp_in, plan->dp);
        return merak_divisors_fix((size_t)plan->dp, (size_t)plan->dp_in, err);
    }
    if (plan->zero_home != MERAK_HOME_IN || plan->dp_in > 1)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--zero-home in needs dp-in 2 or more: the replicas of a "
                      "node, by which dp %d can be divided",
                      plan->dp);
}

/* What is not usual counts as given. */
static enum merak_status check_plan_levels(const struct merak_plan *plan,
                                           struct merak_error *err)
{
    for (int i = 0; i < MERAK_CHOICE_COUNT; i++) {
        const struct merak_choice *c = &merak_choice[i];
        struct merak_choices choices;
        long value;

        if (!c->in_plan || c->least_zero[1] <= plan->zero)
            continue;
        value = merak_choice_of(c, plan);
        if (value == c->usual || plan->zero >= least_zero(c, value))
            continue;
        merak_choices_of(plan, &choices);
        return refuse(c, &choices, plan->zero, err);
    }
    return MERAK_OK;
}

enum merak_status merak_plan_check_zero(const struct merak_plan *plan,
                                        struct merak_error *err)
{
    enum merak_status rc = check_dp_in(plan, err);

    if (rc == MERAK_OK)
        rc = check_plan_levels(plan, err);
    if (rc != MERAK_OK || plan->zero < MERAK_ZERO_GRADS)
        return rc;
    if (plan->stage == NULL && !merak_plan_shares(plan))
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--zero %d needs ranks with the same weights, which "
                          "share them out: dp or cp 2 or more; use --zero 1",
                          plan->zero);
    return MERAK_OK;
}
