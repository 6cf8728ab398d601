/* SPDX-License-Identifier: Apache-2.0 */
/* choice_stages.c - lists of stages, and how sequences are cut, beside the other
 * choices */
#include "config.h"

#include "partitioner/plan/choice.h"

#include "base/error.h"

#include <stdlib.h>

/* What a list of stages decides is not given otherwise. */
static enum merak_status check_stages(const struct merak_choices *choices,
                                      struct merak_error *err)
{
    static const enum merak_choice_id taken[] = {
        MERAK_CHOICE_TP_AXES, MERAK_CHOICE_TP, MERAK_CHOICE_EP, MERAK_CHOICE_PP,
        MERAK_CHOICE_DP};

    for (size_t i = 0; i < sizeof(taken) / sizeof(*taken); i++) {
        if (choices->given[taken[i]])
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "--stages has the degrees of every stage: leave "
                              "out --%s",
                              merak_choice[taken[i]].option.name);
    }
    if (choices->cp != 0 && choices->cp != 1) /* auto, too */
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "--cp: stages of unlike ranks do not cut sequences; "
                          "leave out --cp or --stages");
    if (choices->given[MERAK_CHOICE_ORDER])
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--order has no meaning with --stages: their ranks "
                          "follow one another");
    return MERAK_OK;
}

/* What a search for unlike stages chooses is not given. */
static enum merak_status check_auto_stages(const struct merak_choices *choices,
                                           struct merak_error *err)
{
    const bool *given = choices->given;

    if (given[MERAK_CHOICE_MICRO_BATCH])
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--micro-batch beside --stages auto: unlike stages "
                          "divide one micro-batch, which is chosen with them; "
                          "leave it out");
    if (given[MERAK_CHOICE_DP] && choices->dp > 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--dp beside --stages auto: every stage has replicas "
                          "of its own; leave it out");
    return MERAK_OK;
}

static enum merak_status settle_list(struct merak_choices *choices,
                                     struct merak_error *err)
{
    const struct merak_stage_degrees *stage = choices->list.stage;
    struct merak_plan plan = {.micro_batch = choices->micro_batch};
    int n = choices->list.n_stages;
    bool *given = choices->given;
    struct merak_stage_mesh mesh;
    enum merak_status rc;

    given[MERAK_CHOICE_STAGES] = stage != NULL;
    if (choices->list.auto_stages)
        return check_auto_stages(choices, err);
    if (stage == NULL)
        return MERAK_OK;
    if (!given[MERAK_CHOICE_MICRO_BATCH]) {
        plan.micro_batch = merak_stages_least_samples(stage, n);
        if (plan.micro_batch == 0)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "--stages: no micro-batch can be divided among "
                              "the replicas of all stages");
    }
    rc = check_stages(choices, err);
    if (rc == MERAK_OK)
        rc = merak_plan_set_stages(&plan, stage, n, err);
    if (rc != MERAK_OK)
        return rc;
    choices->micro_batch = plan.micro_batch;
    given[MERAK_CHOICE_MICRO_BATCH] = true;
    if (plan.stage != NULL)
        return MERAK_OK;
    mesh = merak_plan_mesh(&plan, 0);
    choices->tp = mesh.tp;
    choices->pp = plan.pp;
    choices->dp = mesh.dp;
    given[MERAK_CHOICE_TP] = given[MERAK_CHOICE_PP] = given[MERAK_CHOICE_DP] =
        true;
    given[MERAK_CHOICE_STAGES] = false;
    free((void *)choices->list.stage);
    choices->list.stage = NULL;
    choices->list.n_stages = 0;
    return MERAK_OK;
}

/* Before any plan is made: are there such hops? */
static enum merak_status check_lossy(const struct merak_choices *choices,
                                     struct merak_error *err)
{
    struct merak_plan plan = {.tp = 1};

    if (!merak_lossy_any(&choices->lossy))
        return MERAK_OK;
    merak_choices_take(choices, &plan);
    if (choices->pp <= 0 && plan.stage == NULL) /* any number */
        plan.pp = MERAK_LOSSY_HOPS + 1;
    return merak_plan_check_lossy(&plan, err);
}

enum merak_status merak_choices_settle_stages(struct merak_choices *choices,
                                              struct merak_error *err)
{
    enum merak_status rc = settle_list(choices, err);

    return rc == MERAK_OK ? check_lossy(choices, err) : rc;
}

enum merak_status merak_choices_check_cp(const struct merak_choices *choices,
                                         int cp, struct merak_error *err)
{
    const char *name = NULL;

    if (choices->cp_order != MERAK_CP_ORDER_AUTO)
        name = merak_choice[MERAK_CHOICE_CP_ORDER].option.name;
    if (choices->cp_form != MERAK_CP_AUTO)
        name = merak_choice[MERAK_CHOICE_CP_FORM].option.name;
    if (choices->cp_axes != 0)
        name = merak_choice[MERAK_CHOICE_CP_AXES].option.name;
    if (name == NULL || cp > 1 || cp == MERAK_OPTION_AUTO)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--%s is about %s that %s cut over ranks, and "
                      "cp is 1: give --cp N or --cp auto, or leave out --%s",
                      name, choices->cp_axes != 0 ? "space" : "sequences",
                      choices->cp_axes != 0 ? "is" : "are", name);
}
