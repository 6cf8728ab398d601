/* SPDX-License-Identifier: Apache-2.0 */
/* choice_values.c - values of choices: of one, compared, and all of a plan's */
#include "config.h"

#include "partitioner/plan/choice.h"

#include "base/error.h"
#include "base/factors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- values --------------------------------------------------------------- */

static long load(enum merak_option_kind kind, const void *at)
{
    switch (kind) {
    case MERAK_OPTION_INT:
    case MERAK_OPTION_WORD: /* the enums are ints */
        return *(const int *)at;
    case MERAK_OPTION_SIZE:
        return (long)*(const size_t *)at;
    case MERAK_OPTION_GRID:
        return (long)*(const int64_t *)at;
    case MERAK_OPTION_BOOL:
        return *(const bool *)at;
    default:
        return 0;
    }
}

static void store(enum merak_option_kind kind, void *at, long value)
{
    switch (kind) {
    case MERAK_OPTION_INT:
    case MERAK_OPTION_WORD:
        *(int *)at = (int)value;
        break;
    case MERAK_OPTION_SIZE:
        *(size_t *)at = (size_t)value;
        break;
    case MERAK_OPTION_GRID:
        *(int64_t *)at = value;
        break;
    case MERAK_OPTION_BOOL:
        *(bool *)at = value != 0;
        break;
    default:
        break;
    }
}

long merak_choice_get(const struct merak_choice *choice,
                      const struct merak_choices *choices)
{
    return load(choice->kind,
                (const char *)choices + merak_choice_plain(choice)->at);
}

long merak_choice_of(const struct merak_choice *choice,
                     const struct merak_plan *plan)
{
    return load(choice->kind, (const char *)plan + choice->plan_at);
}

void merak_choice_set(const struct merak_choice *choice,
                      struct merak_choices *choices, long value)
{
    store(choice->kind, (char *)choices + merak_choice_plain(choice)->at,
          value);
}

const char *merak_choice_key(const struct merak_choice *choice, long value)
{
    return choice->flag_key != NULL && value <= 1 ? choice->flag_key
                                                  : choice->key;
}

bool merak_choice_struct_any(const struct merak_choice_struct *is,
                             const void *value)
{
    const char *byte = value;

    for (size_t i = 0; i < is->bytes; i++) {
        if (byte[i] != 0)
            return true;
    }
    return false;
}

int merak_choice_compare(const struct merak_choice *choice,
                         const struct merak_plan *a, const struct merak_plan *b)
{
    long x, y;

    if (choice->is != NULL)
        return memcmp((const char *)a + choice->is->plan_at,
                      (const char *)b + choice->is->plan_at, choice->is->bytes);
    if (!choice->in_plan)
        return 0;
    x = merak_choice_of(choice, a);
    y = merak_choice_of(choice, b);
    if (x == y)
        return 0;
    if (x == choice->usual || y == choice->usual)
        return x == choice->usual ? -1 : 1;
    return x < y ? -1 : 1;
}

/* --- all of them ---------------------------------------------------------- */

enum merak_status merak_choices_settle(struct merak_choices *choices,
                                       struct merak_error *err)
{
    if (choices->has_zero1 &&
        merak_choices_check_zero1(choices, choices->zero1, err) != MERAK_OK)
        return MERAK_ERR_CONFIG;
    if (choices->fetch == MERAK_OPTION_AUTO)
        choices->fetch = 0;
    if (merak_choices_check_levels(choices, err) != MERAK_OK)
        return MERAK_ERR_CONFIG;
    if (choices->schedule != NULL && strcmp(choices->schedule, "auto") == 0) {
        choices->schedule = NULL;
        choices->given[MERAK_CHOICE_SCHEDULE] = false;
    }
    if (choices->zero == MERAK_OPTION_AUTO) /* all levels, not 0 and 1 */
        choices->given[MERAK_CHOICE_ZERO] = false;
    if (choices->zero_home == MERAK_HOME_AUTO) /* both, not one */
        choices->given[MERAK_CHOICE_ZERO_HOME] = false;
    if (choices->offload == MERAK_OFFLOAD_AUTO) /* by part, and state */
        choices->given[MERAK_CHOICE_OFFLOAD] = false;
    if (choices->ep_form == MERAK_EP_AUTO) /* both, not one */
        choices->given[MERAK_CHOICE_EP_FORM] = false;
    if (choices->loss_pieces == MERAK_OPTION_AUTO) /* whole, and in pieces */
        choices->given[MERAK_CHOICE_LOSS_PIECES] = false;
    if (choices->dp_in == MERAK_OPTION_AUTO) /* 1 and a node's */
        choices->given[MERAK_CHOICE_DP_IN] = false;
    if (choices->cp == MERAK_OPTION_AUTO) /* several, not 1 */
        choices->given[MERAK_CHOICE_CP] = false;
    if (choices->tp_batch_percent > 0 && merak_split_any(&choices->split))
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--tp-batch %d and --split both say which layers' "
                          "samples are split: give one of them",
                          choices->tp_batch_percent);
    if (choices->tp_axes == MERAK_OPTION_AUTO) /* several, not by the heads */
        choices->given[MERAK_CHOICE_TP_AXES] = false;
    if (choices->tp_axes > 0 && choices->tp == 0 &&
        merak_factors_product(choices->tp_axes) <= MERAK_MAX_FACTOR) {
        choices->tp = (int)merak_factors_product(choices->tp_axes);
        choices->given[MERAK_CHOICE_TP] = true;
    }
    if (choices->cp_axes > 0 && choices->cp == 0 &&
        merak_factors_product(choices->cp_axes) <= MERAK_MAX_FACTOR) {
        choices->cp = (int)merak_factors_product(choices->cp_axes);
        choices->given[MERAK_CHOICE_CP] = true;
    }
    return MERAK_OK;
}

void merak_choices_of(const struct merak_plan *plan,
                      struct merak_choices *choices)
{
    int parts = merak_plan_own_parts(plan);

    *choices = (struct merak_choices){
        .schedule = plan->schedule,
        /* To scatter only between nodes is what auto chooses. */
        .boundary = plan->scatter == 0   ? MERAK_BOUNDARY_WHOLE
                    : plan->scatter == 1 ? MERAK_BOUNDARY_SCATTER
                                         : MERAK_BOUNDARY_AUTO,
        .list = {.cut = parts > 1 ? plan->cut : NULL,
                 .n_cut = parts - 1,
                 .stage = plan->stage,
                 .n_stages = plan->stage != NULL ? plan->pp : 0,
                 .drop = plan->drop,
                 .n_drop = parts}};
    for (int i = 0; i < MERAK_CHOICE_COUNT; i++) {
        const struct merak_choice *c = &merak_choice[i];

        choices->given[i] = true;
        if (c->in_plan)
            merak_choice_set(c, choices,
                             load(c->kind, (const char *)plan + c->plan_at));
        if (c->is != NULL) {
            const char *value = (const char *)plan + c->is->plan_at;

            memcpy((char *)choices + c->is->at, value, c->is->bytes);
            choices->given[i] = merak_choice_struct_any(c->is, value);
        }
    }
    if (choices->ep == 0)
        choices->ep = 1;
    if (choices->expert_room == 0)
        choices->expert_room = MERAK_EXPERT_ROOM;
    choices->given[MERAK_CHOICE_CUT] = choices->list.cut != NULL;
    choices->given[MERAK_CHOICE_STAGES] = plan->stage != NULL;
    for (int i = MERAK_CHOICE_TP; i <= MERAK_CHOICE_DP; i++)
        choices->given[i] = plan->stage == NULL;
    if (plan->stage != NULL) /* they follow one another */
        choices->given[MERAK_CHOICE_ORDER] = false;
    choices->chunks = merak_plan_chunks(plan);
    choices->cp = plan->cp > 1 ? plan->cp : 1;
    choices->loss_pieces = merak_plan_loss_pieces(plan);
    choices->dp_in = plan->dp_in > 1 ? plan->dp_in : 1;
    if (plan->sub_pipeline)
        choices->micro_batch *= 2;
}

size_t merak_choices_least_samples(const struct merak_choices *choices)
{
    size_t tp = choices->tp > 1 && merak_choices_share_samples(choices)
                    ? (size_t)choices->tp
                    : 1;

    return tp * (size_t)(choices->ep > 1 ? choices->ep : 1) *
           (choices->sub_pipeline ? 2 : 1);
}

void merak_choices_take(const struct merak_choices *choices,
                        struct merak_plan *plan)
{
    const char *schedule =
        choices->schedule != NULL ? choices->schedule : "1f1b";

    for (int i = 0; i < MERAK_CHOICE_COUNT; i++) {
        const struct merak_choice *c = &merak_choice[i];

        if (c->in_plan)
            store(c->kind, (char *)plan + c->plan_at,
                  choices->given[i] ? merak_choice_get(c, choices) : c->usual);
        if (c->is != NULL)
            memcpy((char *)plan + c->is->plan_at,
                   (const char *)choices + c->is->at, c->is->bytes);
    }
    if (!choices->given[MERAK_CHOICE_MICRO_BATCH])
        plan->micro_batch = merak_choices_least_samples(choices);
    plan->stage = choices->list.stage;
    if (plan->stage != NULL) {
        plan->tp = plan->dp = 1;
        plan->pp = choices->list.n_stages;
        plan->order_tp_pp_dp = false;
    }
    snprintf(plan->schedule, sizeof(plan->schedule), "%s", schedule);
    plan->chunks = merak_plan_chunks(plan);
    if (plan->branches == MERAK_BRANCHES_AUTO)
        plan->branches = MERAK_BRANCHES_DESCRIBED;
}
