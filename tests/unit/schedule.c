/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.c - the order of forwards and backwards */
#include "config.h"

#include "unit/near.h"

#include "partitioner/schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct merak_schedule *find(const char *name)
{
    const struct merak_schedule *sched = NULL;
    struct merak_error err;

    assert_int_equal(merak_schedule_find(name, &sched, &err), MERAK_OK);
    return sched;
}

static struct merak_action *fill(const struct merak_schedule *sched, int p,
                                 int m, int stage, int *n_p)
{
    struct merak_schedule_args args = {
        .stages = p, .microbatches = m, .chunks = 1, .stage = stage};
    struct merak_action *actions;

    *n_p = sched->count(&args);
    actions = calloc((size_t)*n_p, sizeof(*actions));
    assert_non_null(actions);
    sched->fill(&args, actions);
    return actions;
}

static void print_actions(const struct merak_schedule *sched, int p, int m,
                          int stage, char *buf, size_t size)
{
    int n;
    struct merak_action *actions = fill(sched, p, m, stage, &n);
    size_t used = 0;

    for (int i = 0; i < n; i++)
        used += (size_t)snprintf(buf + used, size - used, "%s%c%d",
                                 i > 0 ? " " : "", "FBWR"[actions[i].kind],
                                 actions[i].microbatch);
    free(actions);
}

/* Forwards and backwards of the order Merak's own 1f1b ran (p = 4, m = 8). */
static const char *const order_1f1b[] = {
    "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7",
    "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7",
    "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7",
    "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7",
};
static const char order_gpipe[] =
    "F0 F1 F2 F3 F4 F5 F6 F7 B0 B1 B2 B3 B4 B5 B6 B7";

static void orders_are_the_known_ones(void **state)
{
    char got[256];

    (void)state;
    for (int s = 0; s < 4; s++) {
        print_actions(find("1f1b"), 4, 8, s, got, sizeof(got));
        assert_string_equal(got, order_1f1b[s]);
        print_actions(find("gpipe"), 4, 8, s, got, sizeof(got));
        assert_string_equal(got, order_gpipe);
    }
}

/* Every micro-batch once forward, then once backward, both ascending. */
static int check_stage(const struct merak_schedule *sched, int p, int m,
                       int stage)
{
    int n, forwards = 0, backwards = 0, held = 0;
    struct merak_action *actions = fill(sched, p, m, stage, &n);

    for (int i = 0; i < n; i++) {
        assert_int_equal(actions[i].chunk, 0);
        if (actions[i].kind == MERAK_ACT_F) {
            assert_int_equal(actions[i].microbatch, forwards++);
        } else {
            assert_int_equal(actions[i].kind, MERAK_ACT_B);
            assert_int_equal(actions[i].microbatch, backwards++);
        }
        assert_true(backwards <= forwards);
        if (forwards - backwards > held)
            held = forwards - backwards;
    }
    assert_int_equal(forwards, m);
    assert_int_equal(backwards, m);
    free(actions);
    return held;
}

static int min(int a, int b)
{
    return a < b ? a : b;
}

static void every_size_is_complete_and_holds_what_it_says(void **state)
{
    (void)state;
    for (int p = 1; p <= 16; p++) {
        for (int m = 1; m <= 64; m++) {
            for (int s = 0; s < p; s++) {
                assert_int_equal(check_stage(find("gpipe"), p, m, s), m);
                assert_int_equal(check_stage(find("1f1b"), p, m, s),
                                 min(m, p - s));
            }
        }
    }
}

/* Length of the step when a forward takes 1, a backward 2, transfers
 * nothing: a stage waits for its neighbour's forward or backward. */
static int step_time(const struct merak_schedule *sched, int p, int m)
{
    struct merak_action *actions[16];
    int n, at[16] = {0}, now[16] = {0}, left = 0, last = 0;
    int f_end[17][65], b_end[17][65];

    memset(f_end, -1, sizeof(f_end));
    memset(b_end, -1, sizeof(b_end));
    for (int s = 0; s < p; s++) {
        actions[s] = fill(sched, p, m, s, &n);
        left += n;
    }
    for (bool moved = true; left > 0; assert_true(moved)) {
        moved = false;
        for (int s = 0; s < p; s++) {
            const struct merak_action *a;
            int mb, ready = 0;
            bool forward;

            if (at[s] == 2 * m)
                continue;
            a = &actions[s][at[s]];
            forward = a->kind == MERAK_ACT_F;
            mb = a->microbatch;
            if (forward && s > 0)
                ready = f_end[s - 1][mb];
            if (!forward)
                ready = s < p - 1 ? b_end[s + 1][mb] : f_end[s][mb];
            if (ready < 0)
                continue;
            now[s] = (ready > now[s] ? ready : now[s]) + (forward ? 1 : 2);
            *(forward ? &f_end[s][mb] : &b_end[s][mb]) = now[s];
            last = now[s] > last ? now[s] : last;
            at[s]++;
            left--;
            moved = true;
        }
    }
    for (int s = 0; s < p; s++)
        free(actions[s]);
    return last;
}

static void steps_take_the_closed_form(void **state)
{
    (void)state;
    for (int p = 1; p <= 16; p++) {
        for (int m = 1; m <= 64; m += 3) {
            assert_int_equal(step_time(find("1f1b"), p, m), 3 * (m + p - 1));
            assert_int_equal(step_time(find("gpipe"), p, m), 3 * (m + p - 1));
        }
    }
}

static void unknown_names_list_the_known(void **state)
{
    const struct merak_schedule *sched = NULL;
    struct merak_error err;

    (void)state;
    assert_int_equal(merak_schedule_find("2f2b", &sched, &err),
                     MERAK_ERR_NOT_FOUND);
    assert_string_equal(err.text, "no schedule '2f2b'; there are: 1f1b, gpipe");
    assert_null(sched);
}

static void chunks_are_refused(void **state)
{
    struct merak_schedule_args args = {
        .stages = 2, .microbatches = 4, .chunks = 2};
    struct merak_error err;

    (void)state;
    for (int i = 0; merak_schedules()[i] != NULL; i++)
        assert_int_equal(merak_schedules()[i]->check(&args, &err),
                         MERAK_ERR_CONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orders_are_the_known_ones),
        cmocka_unit_test(every_size_is_complete_and_holds_what_it_says),
        cmocka_unit_test(steps_take_the_closed_form),
        cmocka_unit_test(unknown_names_list_the_known),
        cmocka_unit_test(chunks_are_refused),
    };

    return cmocka_run_group_tests_name("schedule", tests, NULL, NULL);
}
