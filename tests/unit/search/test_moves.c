/* SPDX-License-Identifier: Apache-2.0 */
/* test_moves.c - what memory makes slow gets more room, what waits for one sum
 * two, unless that is refused
 */
#include "config.h"

#include "unit/search/gpt2_request.h"

#include <float.h>

#define ERROR 1.005 /* by which no runner-up is faster when it is given */

struct row {
    const char *name;
    struct request request;
    int least_zero; /* that is chosen */
};

/* In less memory than a step with ZeRO-1 would like, where links are fast and
 * where they are slow; in enough. */
static const struct row rows[] = {
    {"2.5 B on 8 a100",
     {12, 4096, 32, 32000, "a100", 1, 8, 64, 15, {0}},
     MERAK_ZERO_GRADS},
    {"2.5 B on 2 x 4 rtx3090",
     {12, 4096, 32, 32000, "rtx3090", 2, 4, 64, 10, {0}},
     MERAK_ZERO_NONE},
    {"1.3 B on 8 a100",
     {24, 2048, 16, 50304, "a100", 1, 8, 64, 0, {0}},
     MERAK_ZERO_NONE},
};

/* Seconds of the best plan; DBL_MAX: there is none. */
static double search(const struct row *row, int zero, int *chosen_p)
{
    struct merak_search_result *r = NULL;
    struct merak_search_input in;
    struct merak_hf_config config;
    struct merak_device device;
    struct merak_error err = {.text = ""};
    double step_s = DBL_MAX;

    request_fill(&row->request, &config, &device, &in);
    if (zero >= 0) {
        in.pin.zero = zero;
        in.pin.given[MERAK_CHOICE_ZERO] = true;
    }
    if (merak_search(&in, &r, &err) == MERAK_OK) {
        step_s = r->choice[0].step_s;
        *chosen_p = r->choice[0].plan.zero;
    } else if (zero < 0) {
        fail_msg("%s: %s", row->name, err.text);
    }
    merak_search_destroy(r);
    return step_s;
}

static void no_level_is_faster(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct row *row = &rows[i];
        int chosen = -1, given;
        double step_s = search(row, -1, &chosen);

        print_message("# %s: --zero %d, %g s", row->name, chosen, step_s);
        assert_true(chosen >= row->least_zero);
        for (int zero = 0; zero <= MERAK_MAX_ZERO; zero++) {
            double other_s = search(row, zero, &given);

            print_message(", %d %g", zero, other_s < DBL_MAX ? other_s : 0);
            if (step_s > ERROR * other_s)
                fail_msg("%s: %g s, with --zero %d %g s", row->name, step_s,
                         zero, other_s);
        }
        print_message("\n");
    }
}

/* Replicas on several nodes, whose sums a step waits for. */
static void two_sums_are_tried(void **state)
{
    const struct request request = {12, 2048, 16, 32000, "a100", 4, 4, 64, 0,
                                    {0}};
    struct merak_search_result *r[2] = {NULL};
    struct merak_search_input in;
    struct merak_hf_config config;
    struct merak_device device;

    (void)state;
    request_fill(&request, &config, &device, &in);
    config.positions = in.seq = 1024;
    in.direct = true;
    for (int any = 0; any < 2; any++) {
        if (any == 1)
            in.pin.dp_in = MERAK_OPTION_AUTO;
        assert_int_equal(merak_search(&in, &r[any], NULL), MERAK_OK);
        print_message("# %s: dp-in %d, %g s\n", any ? "auto" : "default",
                      r[any]->choice[0].plan.dp_in,
                      r[any]->choice[0].step_s);
    }
    assert_true(r[0]->choice[0].plan.dp_in > 1);
    assert_true(r[0]->choice[0].step_s <= ERROR * r[1]->choice[0].step_s);
    /* unless that is refused */
    in.pin.dp_in = 1;
    in.pin.given[MERAK_CHOICE_DP_IN] = true;
    merak_search_destroy(r[1]);
    assert_int_equal(merak_search(&in, &r[1], NULL), MERAK_OK);
    assert_int_equal(r[1]->choice[0].plan.dp_in, 1);
    assert_true(r[1]->choice[0].step_s > ERROR * r[0]->choice[0].step_s);
    merak_search_destroy(r[0]);
    merak_search_destroy(r[1]);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_sums_are_tried),
        cmocka_unit_test(no_level_is_faster),
    };

    return cmocka_run_group_tests_name("moves", tests, NULL, NULL);
}
