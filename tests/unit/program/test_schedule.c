/* SPDX-License-Identifier: Apache-2.0 */
/* test_schedule.c - the order of forwards and backwards */
#include "config.h"

#include "unit/near.h"
#include "unit/program/schedule_rows.h"

#include "partitioner/schedule/action_lists.h"
#include "partitioner/schedule/schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct merak_schedule *find(const char *name)
{
    const struct merak_schedule *sched = NULL;
    struct merak_error err;

    if (merak_schedule_find(name, &sched, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return sched;
}

static struct merak_action *fill(const struct merak_schedule *sched,
                                 const struct merak_schedule_args *args,
                                 int *n_p)
{
    struct merak_action *actions;

    *n_p = merak_schedule_count(sched, args);
    actions = calloc((size_t)*n_p, sizeof(*actions));
    assert_non_null(actions);
    merak_schedule_fill(sched, args, actions);
    return actions;
}

/* --- lists written out ---------------------------------------------------- */

/* Chunk 0 in capitals, chunk 1 in small letters: "F0 f0 b0 B0", chunk 2 as
 * "f0'"; a slice or a pass other than 0 as "F0.1". */
static void print_actions(const char *name,
                          const struct merak_schedule_args *args, char *buf,
                          size_t size)
{
    int n;
    struct merak_action *actions = fill(find(name), args, &n);
    size_t used = 0;

    for (int i = 0; i < n; i++) {
        const struct merak_action *a = &actions[i];
        int sub = a->slice + a->pass;

        used += (size_t)snprintf(buf + used, size - used, "%s%c%d%s",
                                 i > 0 ? " " : "",
                                 (a->chunk > 0 ? "fbwr" : "FBWR")[a->kind],
                                 a->microbatch, a->chunk > 1 ? "'" : "");
        if (sub > 0)
            used += (size_t)snprintf(buf + used, size - used, ".%d", sub);
    }
    free(actions);
}

/* Schedules of one chunk at p = 4, m = 8, by stage.  Those with R are the
 * orders of Merak's own schedules. */
struct list_row {
    const char *name;
    const char *stage[4];
};

/* The others, at the sizes that show their shape. */
struct shape_row {
    const char *name;
    struct merak_schedule_args args;
    const char *list;
};

static const struct list_row list_rows[] = {
    {"1f1b",
     {"F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7",
      "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7",
      "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7",
      "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7"}},
    {"gpipe",
     {"F0 F1 F2 F3 F4 F5 F6 F7 B0 B1 B2 B3 B4 B5 B6 B7",
      "F0 F1 F2 F3 F4 F5 F6 F7 B0 B1 B2 B3 B4 B5 B6 B7",
      "F0 F1 F2 F3 F4 F5 F6 F7 B0 B1 B2 B3 B4 B5 B6 B7",
      "F0 F1 F2 F3 F4 F5 F6 F7 B0 B1 B2 B3 B4 B5 B6 B7"}},
    {"early",
     {"F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 R5 B5 R6 B6 R7 B7",
      "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 R6 B6 R7 B7",
      "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 R7 B7",
      "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7"}},
    {"last",
     {"F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 R5 B5 R6 B6 R7 B7",
      "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 R6 B6 R7 B7",
      "F0 F1 R0 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7",
      "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7"}},
    {"scp",
     {"F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 R5 B5 R6 B6 R7 B7",
      "F0 F1 F2 R0 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 R6 B6 R7 B7",
      "F0 F1 F2 R0 B0 R1 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7",
      "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7"}},
    {"scp:third",
     {"F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7",
      "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7",
      "F0 F1 F2 B0 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7",
      "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7"}},
    {"scp:early,third",
     {"F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 R5 B5 R6 B6 R7 B7",
      "F0 F1 F2 R0 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 R6 B6 R7 B7",
      "F0 F1 F2 R0 B0 R1 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 R7 B7",
      "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7"}},
    {"eager",
     {"F0 F1 F2 F3 F4 F5 F6 B0 F7 B1 B2 B3 B4 B5 B6 B7",
      "F0 F1 F2 F3 F4 B0 F5 B1 F6 B2 F7 B3 B4 B5 B6 B7",
      "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7",
      "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7"}},
    {"forward",
     {"F0 F1 F2 F3 F4 F5 F6 F7", "F0 F1 F2 F3 F4 F5 F6 F7",
      "F0 F1 F2 F3 F4 F5 F6 F7", "F0 F1 F2 F3 F4 F5 F6 F7"}},
};

static const struct shape_row shape_rows[] = {
    {"zb-h1",
     {.stages = 4, .microbatches = 8, .chunks = 1, .stage = 0},
     "F0 F1 F2 F3 B0 W0 F4 B1 W1 F5 B2 W2 F6 B3 W3 F7 B4 W4 B5 W5 B6 W6 B7 "
     "W7"},
    {"zb-h1",
     {.stages = 4, .microbatches = 8, .chunks = 1, .stage = 2},
     "F0 F1 B0 F2 B1 F3 B2 W0 F4 B3 W1 F5 B4 W2 F6 B5 W3 F7 B6 W4 B7 W5 W6 "
     "W7"},
    {"zb-h1",
     {.stages = 4, .microbatches = 8, .chunks = 1, .stage = 3},
     "F0 B0 F1 B1 F2 B2 F3 B3 W0 F4 B4 W1 F5 B5 W2 F6 B6 W3 F7 B7 W4 W5 W6 "
     "W7"},
    {"interleaved",
     {.stages = 4, .microbatches = 8, .chunks = 2, .stage = 0},
     "F0 F1 F2 F3 f0 f1 f2 f3 F4 F5 F6 b0 F7 b1 f4 b2 f5 b3 f6 B0 f7 B1 B2 "
     "B3 b4 b5 b6 b7 B4 B5 B6 B7"},
    {"interleaved",
     {.stages = 4, .microbatches = 8, .chunks = 2, .stage = 3},
     "F0 F1 F2 F3 f0 b0 f1 b1 f2 b2 f3 b3 F4 B0 F5 B1 F6 B2 F7 B3 f4 b4 f5 "
     "b5 f6 b6 f7 b7 B4 B5 B6 B7"},
    {"zb-v",
     {.stages = 2, .microbatches = 4, .chunks = 2, .stage = 0},
     "F0 F1 F2 f0 b0 w0 f1 b1 w1 F3 B0 W0 f2 b2 w2 B1 W1 f3 b3 w3 B2 W2 B3 "
     "W3"},
    {"zb-v",
     {.stages = 2, .microbatches = 4, .chunks = 2, .stage = 1},
     "F0 f0 F1 f1 b0 w0 F2 B0 W0 f2 b1 w1 F3 B1 W1 f3 b2 w2 B2 b3 B3 W2 w3 "
     "W3"},
    {"zb-v",
     {.stages = 2, .microbatches = 1, .chunks = 2, .stage = 1},
     "F0 f0 b0 w0 B0 W0"},
    {"sliced",
     {.stages = 2, .microbatches = 2, .chunks = 1, .stage = 0, .slices = 2},
     "F0 F0.1 F1 B0.1 F1.1 B0 B1.1 B1"},
    {"sliced",
     {.stages = 2, .microbatches = 2, .chunks = 1, .stage = 1, .slices = 2},
     "F0 F0.1 B0.1 F1 B0 F1.1 B1.1 B1"},
    {"3f1b",
     {.stages = 2, .microbatches = 3, .chunks = 1, .stage = 0, .passes = 2},
     "F0 F1 F2 F0.1 F1.1 B0 F2.1 B1 B2"},
    {"3f1b",
     {.stages = 2, .microbatches = 3, .chunks = 1, .stage = 1, .passes = 2},
     "F0 F1 F2 F0.1 B0 F1.1 B1 F2.1 B2"},
    {"3f1b",
     {.stages = 1, .microbatches = 3, .chunks = 1, .stage = 0, .passes = 2},
     "F0 F1 F0.1 B0 F2 F1.1 B1 F2.1 B2"},
    {"1f1b",
     {.stages = 1, .microbatches = 2, .chunks = 1, .stage = 0, .passes = 3},
     "F0 F0.1 F0.2 B0 F1 F1.1 F1.2 B1"},
    {"gpipe",
     {.stages = 1, .microbatches = 2, .chunks = 1, .stage = 0, .passes = 2},
     "F0 F0.1 F1 F1.1 B0 B1"},
    {"interlaced",
     {.stages = 4, .microbatches = 2, .chunks = 2, .stage = 0},
     "f0 F0 f1 F1 B0 b0 B1 b1"},
    {"interlaced",
     {.stages = 4, .microbatches = 2, .chunks = 2, .stage = 3},
     "f0 f1 F0 B0 F1 B1 b0 b1"},
    {"interlaced",
     {.stages = 4, .microbatches = 2, .chunks = 3, .stage = 0},
     "f0 F0 f1 F1 f0' b0' f1' b1' B0 b0 B1 b1"},
    {"interlaced",
     {.stages = 4, .microbatches = 2, .chunks = 3, .stage = 3},
     "f0 f1 F0 f0' b0' B0 F1 f1' b1' B1 b0 b1"},
    {"interlaced",
     {.stages = 3, .microbatches = 2, .chunks = 3, .stage = 1},
     "f0 F0 f1 f0' b0' F1 B0 f1' b1' b0 B1 b1"},
    {"interlaced",
     {.stages = 3, .microbatches = 2, .chunks = 3, .stage = 2},
     "f0 f1 F0 f0' b0' B0 F1 f1' b1' B1 b0 b1"},
    {"interlaced",
     {.stages = 2, .microbatches = 2, .chunks = 3, .stage = 0},
     "f0 F0 f0' b0' f1 F1 B0 f1' b1' b0 B1 b1"},
};

static void lists_are_the_known_ones(void **state)
{
    char got[512];

    (void)state;
    for (size_t i = 0; i < sizeof(list_rows) / sizeof(list_rows[0]); i++) {
        for (int s = 0; s < 4; s++) {
            struct merak_schedule_args args = {
                .stages = 4, .microbatches = 8, .chunks = 1, .stage = s};

            print_actions(list_rows[i].name, &args, got, sizeof(got));
            assert_string_equal(got, list_rows[i].stage[s]);
        }
    }
    for (size_t i = 0; i < sizeof(shape_rows) / sizeof(shape_rows[0]); i++) {
        print_actions(shape_rows[i].name, &shape_rows[i].args, got,
                      sizeof(got));
        assert_string_equal(got, shape_rows[i].list);
    }
}

/* --- every size ----------------------------------------------------------- */

/* How often a stage runs each kind of action on one chunk, and that each
 * kind comes in ascending order of micro-batches. */
static void check_kind(const struct merak_action *actions, int n, int chunk,
                       enum merak_action_kind kind, int want)
{
    int found = 0, latest = 0;

    for (int i = 0; i < n; i++) {
        if (actions[i].kind != kind || actions[i].chunk != chunk)
            continue;
        assert_in_range(actions[i].microbatch, latest, latest + 1);
        latest = actions[i].microbatch;
        found++;
    }
    assert_int_equal(found, want);
}

static int index_of(const struct merak_action *actions, int n,
                    enum merak_action_kind kind, const struct merak_action *of)
{
    for (int i = 0; i < n; i++) {
        if (actions[i].kind == kind && actions[i].chunk == of->chunk &&
            actions[i].microbatch == of->microbatch &&
            actions[i].slice == of->slice)
            return i;
    }
    return n;
}

/* F before R before B before W, of each micro-batch. */
static void check_order(const struct merak_action *actions, int n)
{
    for (int i = 0; i < n; i++) {
        const struct merak_action *a = &actions[i];
        int f = index_of(actions, n, MERAK_ACT_F, a);
        int b = index_of(actions, n, MERAK_ACT_B, a);

        assert_true(a->kind == MERAK_ACT_F || f < i);
        if (a->kind == MERAK_ACT_R)
            assert_in_range(b, i + 1, n - 1);
        if (a->kind == MERAK_ACT_W)
            assert_true(b < i);
    }
}

static void check_stage(const struct merak_schedule *sched,
                        const struct merak_schedule_args *args)
{
    struct merak_schedule_args full = merak_schedule_defaults(sched, args);
    int n, each = args->microbatches * full.slices;
    struct merak_action *actions = fill(sched, args, &n);

    for (int c = 0; c < args->chunks; c++) {
        int back = sched->forward_only ? 0 : each;

        check_kind(actions, n, c, MERAK_ACT_B, back);
        check_kind(actions, n, c, MERAK_ACT_W, sched->splits_w ? back : 0);
        if (full.passes == 1)
            check_kind(actions, n, c, MERAK_ACT_F, each);
        else
            assert_int_equal(n, (full.passes + 1) * each);
    }
    check_order(actions, n);
    free(actions);
}

static void check_sizes(const struct schedule_row *row)
{
    const struct merak_schedule *sched = find(row->name);
    struct merak_error err;
    int checked = 0;

    for (int p = 2; p <= 16; p++) {
        for (int m = 4; m <= 64; m += m < 20 ? 1 : 4) {
            struct merak_schedule_args args = schedule_row_args(row, p, m);

            if (merak_schedule_check(sched, &args, &err) != MERAK_OK)
                continue;
            checked++;
            for (; args.stage < p; args.stage++)
                check_stage(sched, &args);
        }
    }
    assert_true(checked >= 60);
}

static void every_size_is_complete_and_in_order(void **state)
{
    (void)state;
    for_each_schedule(check_sizes);
}

/* --- memory --------------------------------------------------------------- */

/* By chunk 0, or by all chunks together. */
static int held_by(const char *name, const struct merak_schedule_args *args,
                   bool together)
{
    int n, open[2], most[2];
    struct merak_action *actions = fill(find(name), args, &n);

    assert_true(args->chunks <= 2);
    for (int i = 0; i < n && together; i++)
        actions[i].chunk = 0;
    merak_actions_in_flight_each(actions, n, args->chunks, open, most);
    free(actions);
    return most[0];
}

static int held(const char *name, const struct merak_schedule_args *args)
{
    return held_by(name, args, true);
}

static int min(int a, int b)
{
    return a < b ? a : b;
}

static void in_flight_is_what_each_schedule_says(void **state)
{
    (void)state;
    for (int p = 1; p <= 16; p++) {
        for (int m = 1; m <= 64; m += 3) {
            for (int s = 0; s < p; s++) {
                struct merak_schedule_args args = {
                    .stages = p, .microbatches = m, .chunks = 1, .stage = s};

                assert_int_equal(held("gpipe", &args), m);
                assert_int_equal(held("1f1b", &args), min(m, p - s));
                assert_int_equal(held("early", &args), min(m, p - s));
                assert_int_equal(held("last", &args), min(m, p - s));
                assert_int_equal(held("eager", &args), min(m, 2 * (p - s) - 1));
                assert_int_equal(held("forward", &args), 0);
            }
        }
    }
}

static void in_flight_of_chunks_slices_and_halves(void **state)
{
    (void)state;
    for (int p = 4; p <= 16; p++) {
        for (int s = 0; s < p; s++) {
            struct merak_schedule_args args = {
                .stages = p, .microbatches = 4 * p, .chunks = 1, .stage = s};

            assert_int_equal(held("zb-h1", &args), p);
            assert_int_equal(held("3f1b", &args), p - s);
            args.slices = 5;
            assert_int_equal(held("sliced", &args), 5 + p - 1 - s);
            args.slices = 0;
            args.chunks = 2;
            assert_int_equal(held("zb-v", &args), 2 * p);
            assert_int_equal(held("interleaved", &args),
                             2 * (p - 1 - s) + p + 1);
            assert_int_equal(held_by("interlaced", &args, false), p - s);
        }
    }
}

/* Part by part down the ranks; back up them in a V; blocks come after. */
static void chunks_stand_where_the_schedule_says(void **state)
{
    struct merak_schedule_args args = {
        .stages = 4, .microbatches = 8, .chunks = 3, .stage = 1};

    (void)state;
    assert_int_equal(merak_schedule_part(find("interleaved"), &args, 0), 1);
    assert_int_equal(merak_schedule_part(find("interleaved"), &args, 2), 9);
    assert_int_equal(merak_schedule_part(find("1f1b"), &args, 0), 1);
    assert_int_equal(merak_schedule_part(find("zb-v"), &args, 0), 1);
    assert_int_equal(merak_schedule_part(find("zb-v"), &args, 1), 6);
    assert_int_equal(merak_schedule_part(find("interlaced"), &args, 0), 1);
    assert_int_equal(merak_schedule_part(find("interlaced"), &args, 2), 5);
    assert_int_equal(merak_schedule_feeds(find("interlaced"), &args, 0), -1);
    assert_int_equal(merak_schedule_feeds(find("interlaced"), &args, 1), 0);
    assert_int_equal(merak_schedule_feeds(find("interlaced"), &args, 2), -1);
    assert_int_equal(merak_schedule_feeds(find("interlaced"), &args, 3), 2);
    assert_int_equal(merak_schedule_follows(find("interlaced"), &args, 1), -1);
    assert_int_equal(merak_schedule_follows(find("interlaced"), &args, 2), 3);
    assert_false(merak_schedule_shares(find("interlaced"), &args, 0));
    assert_true(merak_schedule_shares(find("interlaced"), &args, 2));
    assert_int_equal(merak_schedule_feeds(find("interleaved"), &args, 2), -1);
}

static void shifted_critical_path_holds_one_more(void **state)
{
    static const int want[4] = {4, 3, 3, 1};

    (void)state;
    for (int s = 0; s < 4; s++) {
        struct merak_schedule_args args = {
            .stages = 4, .microbatches = 8, .chunks = 1, .stage = s};

        assert_int_equal(held("scp", &args), want[s]);
        args = (struct merak_schedule_args){
            .stages = 2, .microbatches = 8, .chunks = 1, .stage = s % 2};
        assert_int_equal(held("scp", &args), s % 2 == 0 ? 3 : 1);
    }
}

static void only_a_last_stage_without_recomputation_says_so(void **state)
{
    static const char *const dropping[] = {"last", "scp", "scp:drop-last",
                                           "scp:drop-last,third"};
    struct merak_schedule_args args = {
        .stages = 4, .microbatches = 8, .chunks = 1};

    (void)state;
    for (; args.stage < 4; args.stage++) {
        for (int i = 0; i < 4; i++)
            assert_int_equal(
                merak_schedule_recomputes(find(dropping[i]), &args),
                args.stage < 3);
        assert_true(merak_schedule_recomputes(find("1f1b"), &args));
        assert_true(merak_schedule_recomputes(find("early"), &args));
        assert_true(merak_schedule_recomputes(find("scp:third"), &args));
    }
}

static void evaluation_keeps_the_forwards(void **state)
{
    struct merak_schedule_args args = {
        .stages = 4, .microbatches = 8, .chunks = 1, .stage = 2};
    int n;
    struct merak_action *actions = fill(find("scp"), &args, &n);

    (void)state;
    assert_int_equal(n, 18);
    n = merak_actions_forward(actions, n);
    assert_int_equal(n, 8);
    for (int i = 0; i < n; i++) {
        assert_int_equal(actions[i].kind, MERAK_ACT_F);
        assert_int_equal(actions[i].microbatch, i);
    }
    free(actions);
}

static struct merak_lists *lists_of(const char *name)
{
    struct merak_schedule_args args = {
        .stages = 4, .chunks = 1, .microbatches = 8, .slices = 1};
    const struct merak_schedule *schedule;
    struct merak_lists *lists;

    assert_int_equal(merak_schedule_find(name, &schedule, NULL), MERAK_OK);
    lists = merak_lists_create(schedule, &args);
    assert_non_null(lists);
    return lists;
}

/* A schedule in one slice is 1F1B.  One that recomputes early is 1F1B only where
 * nothing is recomputed, and GPipe never. */
static void lists_that_are_alike_are_known(void **state)
{
    static const struct {
        const char *name;
        bool equal, recompute_alike;
    } rows[] = {{"1f1b", true, true},
                {"sliced:1", true, true},
                {"early", true, false},
                {"gpipe", false, false}};
    struct merak_lists *one = lists_of("1f1b");

    (void)state;
    for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++) {
        struct merak_lists *other = lists_of(rows[r].name);
        bool equal = merak_lists_equal(one, other);

        assert_int_equal(equal, rows[r].equal);
        if (equal)
            assert_int_equal(merak_lists_recompute_alike(one, other),
                             rows[r].recompute_alike);
        merak_lists_destroy(other);
    }
    merak_lists_destroy(one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_the_known_ones),
        cmocka_unit_test(every_size_is_complete_and_in_order),
        cmocka_unit_test(in_flight_is_what_each_schedule_says),
        cmocka_unit_test(in_flight_of_chunks_slices_and_halves),
        cmocka_unit_test(chunks_stand_where_the_schedule_says),
        cmocka_unit_test(shifted_critical_path_holds_one_more),
        cmocka_unit_test(only_a_last_stage_without_recomputation_says_so),
        cmocka_unit_test(evaluation_keeps_the_forwards),
        cmocka_unit_test(lists_that_are_alike_are_known),
    };

    return cmocka_run_group_tests_name("schedule", tests, NULL, NULL);
}
