/* SPDX-License-Identifier: Apache-2.0 */
/* test_parity_experts.c - experts cut over ranks: every plan computes what one
 * rank computes, whatever the router does
 */
#include "config.h"

#include "unit/parity.h"

#include <stdio.h>
#include <string.h>

static const struct small_model mixture = {.layers = 2,
                                           .vocab = 13,
                                           .hidden = 8,
                                           .heads = 4,
                                           .experts = 8,
                                           .chosen = 2,
                                           .untied = true};

/* All experts on one rank, beside the same replicas and stages. */
static struct merak_plan uncut(const struct merak_plan *plan)
{
    struct merak_plan one = *plan;

    one.ep = 1;
    return one;
}

static void experts_over_ranks_compute_the_same(void **state)
{
    static const struct {
        struct parity_variant v;
        int ep, room;
    } rows[] = {
        {{1, 1, 1, "1f1b", 0, MERAK_SP_OFF}, 2, 0},
        {{1, 1, 1, "1f1b", 1, MERAK_SP_OFF}, 4, 0},
        {{1, 1, 1, "1f1b", 1, MERAK_SP_OFF}, 4, 100},
        {{1, 1, 1, "1f1b", 1, MERAK_SP_OFF}, 4, 400}, /* the bound */
        {{1, 1, 1, "1f1b", 1, MERAK_SP_OFF}, 4, 1},   /* all again */
        {{1, 1, 2, "1f1b", 1, MERAK_SP_OFF}, 2, 0},
        {{1, 2, 1, "1f1b", 1, MERAK_SP_OFF}, 2, 0},
        {{1, 2, 2, "zb-h1", 2, MERAK_SP_OFF}, 2, 50},
        {{1, 2, 2, "1f1b", 3, MERAK_SP_OFF}, 4, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_plan plan = parity_plan(&rows[i].v), one;

        plan.micro_batch = 4;
        plan.ep = rows[i].ep;
        plan.expert_room = rows[i].room;
        one = uncut(&plan);
        parity_plans(&mixture, &one, &plan, false);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_over_ranks_compute_the_same),
    };

    return cmocka_run_group_tests_name("parity_experts", tests, NULL, NULL);
}
