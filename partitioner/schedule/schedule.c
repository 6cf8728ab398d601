/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.c - the schedules by name, and what they have in common */
#include "config.h"

#include "partitioner/schedule/schedule.h"

#include "base/error.h"
#include "partitioner/schedule/kinds.h"

#include <stdio.h>
#include <string.h>

#define AS_ADDRESS(schedule) &schedule
static const struct merak_schedule *const schedules[] = {
    MERAK_SCHEDULES(AS_ADDRESS), NULL};

static const char *const move_names[] = {"drop-last", "early", "third"};
#define N_MOVES (sizeof(move_names) / sizeof(move_names[0]))

const struct merak_schedule *const *merak_schedules(void)
{
    return schedules;
}

static void list_names(char *buf, size_t size)
{
    size_t used = 0;

    buf[0] = '\0';
    for (int i = 0; schedules[i] != NULL && used < size; i++)
        used += (size_t)snprintf(buf + used, size - used, "%s%s",
                                 i > 0 ? ", " : "", schedules[i]->name);
}

/* "early,third" as bits; 0 if a word is not a move or occurs twice. */
static unsigned parse_moves(const char *list)
{
    unsigned moves = 0;

    for (;;) {
        size_t n = strcspn(list, ",");
        size_t i = 0;

        while (i < N_MOVES && (strlen(move_names[i]) != n ||
                               strncmp(move_names[i], list, n) != 0))
            i++;
        if (i == N_MOVES || (moves & 1U << i))
            return 0;
        moves |= 1U << i;
        if (list[n] == '\0')
            return moves;
        list += n + 1;
    }
}

enum merak_status merak_schedule_find(const char *name,
                                      const struct merak_schedule **sched_p,
                                      struct merak_error *err)
{
    char names[160];

    for (int i = 0; schedules[i] != NULL; i++) {
        if (strcmp(schedules[i]->name, name) == 0) {
            *sched_p = schedules[i];
            return MERAK_OK;
        }
    }
    if (strncmp(name, "scp:", 4) == 0) {
        unsigned moves = parse_moves(name + 4);

        if (moves == 0)
            return merak_fail(err, MERAK_ERR_NOT_FOUND,
                              "no schedule '%s'; after scp: come one or more "
                              "of drop-last, early, third, with commas",
                              name);
        *sched_p = merak_schedule_moves(moves);
        return MERAK_OK;
    }
    if (merak_schedule_slices(name) > 0) {
        *sched_p = &merak_schedule_sliced;
        return MERAK_OK;
    }
    if (merak_schedule_warmups(name) != NULL) {
        *sched_p = &merak_schedule_eager;
        return MERAK_OK;
    }
    if (strncmp(name, "eager:", 6) == 0)
        return merak_fail(err, MERAK_ERR_NOT_FOUND,
                          "no schedule '%s'; after eager: comes the number of "
                          "micro-batches in flight on the first stage, or one "
                          "for each stage, with dashes, as in eager:7-4-1",
                          name);
    list_names(names, sizeof(names));
    return merak_fail(err, MERAK_ERR_NOT_FOUND,
                      "no schedule '%s'; there are: %s", name, names);
}

struct merak_schedule_args
merak_schedule_defaults(const struct merak_schedule *sched,
                        const struct merak_schedule_args *args)
{
    struct merak_schedule_args full = *args;

    if (full.slices == 0)
        full.slices = 1;
    if (full.passes == 0)
        full.passes = sched->passes > 0 ? sched->passes : 1;
    full.moves = sched->moves;
    return full;
}

static enum merak_status check_sizes(const struct merak_schedule_args *args,
                                     struct merak_error *err)
{
    if (args->stages < 1 || args->microbatches < 1 || args->chunks < 1)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%d stages, %d micro-batches, %d chunks per rank "
                          "given: each must be 1 or more",
                          args->stages, args->microbatches, args->chunks);
    if (args->slices < 0 || args->passes < 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%d slices, %d passes given: each must be 1 or more, "
                          "or 0 for the default",
                          args->slices, args->passes);
    if (args->stage < 0 || args->stage >= args->stages)
        return merak_fail(err, MERAK_ERR_PARAM, "no stage %d of %d",
                          args->stage, args->stages);
    return MERAK_OK;
}

static enum merak_status check_chunks(const struct merak_schedule *sched,
                                      int chunks, struct merak_error *err)
{
    int least = sched->min_chunks > 0 ? sched->min_chunks : 1;

    if (sched->max_chunks == 1 && chunks > 1) {
        merak_fail(err, MERAK_ERR_CONFIG,
                   "%d model chunks per rank given, it runs 1", chunks);
        return merak_error_fix(err, MERAK_ERR_CONFIG,
                               ": set chunks = 1, or use interleaved");
    }
    if (chunks < least) {
        merak_fail(err, MERAK_ERR_CONFIG,
                   "it runs %d or more model chunks per rank", least);
        return merak_error_fix(err, MERAK_ERR_CONFIG,
                               ": set chunks = %d, or use 1f1b", least);
    }
    if (sched->max_chunks > 0 && chunks > sched->max_chunks) {
        merak_fail(err, MERAK_ERR_CONFIG,
                   "%d model chunks per rank given, it runs at most %d", chunks,
                   sched->max_chunks);
        return merak_error_fix(err, MERAK_ERR_CONFIG, ": set chunks = %d",
                               sched->max_chunks);
    }
    return MERAK_OK;
}

/* Too few stages, and numbers that this schedule does not use. */
static enum merak_status check_extras(const struct merak_schedule *sched,
                                      const struct merak_schedule_args *args,
                                      struct merak_error *err)
{
    if (args->stages < sched->min_stages) {
        merak_fail(err, MERAK_ERR_CONFIG, "%d stage given, it needs %d or more",
                   args->stages, sched->min_stages);
        return merak_error_fix(err, MERAK_ERR_CONFIG,
                               ": set pp = %d, or use 1f1b", sched->min_stages);
    }
    if (args->slices > 1 && !sched->takes_slices) {
        merak_fail(err, MERAK_ERR_CONFIG,
                   "%d slices given, it runs whole sequences", args->slices);
        return merak_error_fix(err, MERAK_ERR_CONFIG,
                               ": set slices = 1, or use sliced");
    }
    if (args->passes > 1 && sched->passes == 0 && args->stages > 1) {
        merak_fail(err, MERAK_ERR_CONFIG,
                   "a model of %d forward passes on %d stages given, it runs "
                   "several passes on one stage only",
                   args->passes, args->stages);
        return merak_error_fix(err, MERAK_ERR_CONFIG, ": use 3f1b");
    }
    if (args->passes > 1 && (args->chunks > 1 || args->slices > 1))
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "a model of %d forward passes given, in %d chunks "
                          "and %d slices: several passes run whole, set both "
                          "to 1",
                          args->passes, args->chunks,
                          args->slices > 0 ? args->slices : 1);
    return MERAK_OK;
}

/* A schedule without support for passes runs them one after the other, on its
 * only stage. */
static bool repeats(const struct merak_schedule *sched,
                    const struct merak_schedule_args *full)
{
    return sched->passes == 0 && full->passes > 1;
}

static int count_repeats(const struct merak_schedule *sched,
                         const struct merak_schedule_args *full)
{
    return repeats(sched, full) ? (full->passes - 1) * full->microbatches : 0;
}

enum merak_status merak_schedule_check(const struct merak_schedule *sched,
                                       const struct merak_schedule_args *args,
                                       struct merak_error *err)
{
    struct merak_schedule_args full = merak_schedule_defaults(sched, args);
    enum merak_status rc;

    rc = check_sizes(args, err);
    if (rc == MERAK_OK)
        rc = check_chunks(sched, args->chunks, err);
    if (rc == MERAK_OK)
        rc = check_extras(sched, args, err);
    if (rc == MERAK_OK && sched->check != NULL)
        rc = sched->check(&full, err);
    if (rc != MERAK_OK)
        merak_error_wrap(err, "schedule %s", sched->name);
    return rc;
}

int merak_schedule_count(const struct merak_schedule *sched,
                         const struct merak_schedule_args *args)
{
    struct merak_schedule_args full = merak_schedule_defaults(sched, args);

    return sched->count(&full) + count_repeats(sched, &full);
}

void merak_schedule_fill(const struct merak_schedule *sched,
                         const struct merak_schedule_args *args,
                         struct merak_action *actions)
{
    struct merak_schedule_args full = merak_schedule_defaults(sched, args);
    int more = count_repeats(sched, &full);

    sched->fill(&full, actions + more);
    if (more > 0) {
        struct merak_action *to = actions;

        /* Each forward is repeated for every pass; the list was filled in
         * `more` actions late to leave room. */
        for (int i = more; i < (more + sched->count(&full)); i++) {
            struct merak_action a = actions[i];
            int times = a.kind == MERAK_ACT_F ? full.passes : 1;

            for (a.pass = 0; a.pass < times; a.pass++)
                *to++ = a;
        }
    }
}

bool merak_schedule_recomputes(const struct merak_schedule *sched,
                               const struct merak_schedule_args *args)
{
    struct merak_schedule_args full = merak_schedule_defaults(sched, args);

    return sched->recomputes == NULL || sched->recomputes(&full);
}

int merak_schedule_part(const struct merak_schedule *sched,
                        const struct merak_schedule_args *args, int chunk)
{
    struct merak_schedule_args full = merak_schedule_defaults(sched, args);

    if (sched->part != NULL)
        return sched->part(&full, chunk);
    return chunk * full.stages + full.stage;
}

int merak_schedule_feeds(const struct merak_schedule *sched,
                         const struct merak_schedule_args *args, int chunk)
{
    struct merak_schedule_args full = merak_schedule_defaults(sched, args);

    return sched->feeds == NULL ? -1 : sched->feeds(&full, chunk);
}

int merak_schedule_follows(const struct merak_schedule *sched,
                           const struct merak_schedule_args *args, int chunk)
{
    struct merak_schedule_args full = merak_schedule_defaults(sched, args);

    return sched->follows == NULL ? -1 : sched->follows(&full, chunk);
}

bool merak_schedule_shares(const struct merak_schedule *sched,
                           const struct merak_schedule_args *args, int chunk)
{
    return merak_schedule_feeds(sched, args, chunk) >= 0 ||
           merak_schedule_follows(sched, args, chunk) >= 0;
}

/* The pass that backwards read, and the kind of action that ends their
 * reading: F if there are no backwards. */
static enum merak_action_kind closing(const struct merak_action *actions, int n,
                                      int *last_pass)
{
    enum merak_action_kind kind = MERAK_ACT_F;

    *last_pass = 0;
    for (int i = 0; i < n; i++) {
        if (actions[i].pass > *last_pass)
            *last_pass = actions[i].pass;
        if (actions[i].kind == MERAK_ACT_W ||
            (actions[i].kind == MERAK_ACT_B && kind != MERAK_ACT_W))
            kind = actions[i].kind;
    }
    return kind;
}

void merak_actions_in_flight_each(const struct merak_action *actions, int n,
                                  int chunks, int *open, int *most)
{
    int last_pass;
    enum merak_action_kind close = closing(actions, n, &last_pass);

    for (int c = 0; c < chunks; c++)
        open[c] = most[c] = 0;
    for (int i = 0; i < n && close != MERAK_ACT_F; i++) {
        int c = actions[i].chunk;

        open[c] +=
            actions[i].kind == MERAK_ACT_F && actions[i].pass == last_pass;
        most[c] = open[c] > most[c] ? open[c] : most[c];
        open[c] -= actions[i].kind == close;
    }
}

int merak_actions_forward(struct merak_action *actions, int n)
{
    int left = 0;

    for (int i = 0; i < n; i++) {
        if (actions[i].kind == MERAK_ACT_F)
            actions[left++] = actions[i];
    }
    return left;
}

int merak_schedule_pairs(const struct merak_schedule_args *args)
{
    return 2 * args->microbatches * args->slices;
}

void merak_schedule_warmup_fill(const struct merak_schedule_args *args,
                                int warmup, struct merak_action *actions)
{
    int slices = args->slices > 0 ? args->slices : 1;
    int total = args->microbatches * slices;
    int opened = 0;

    for (int closed = 0; closed < total;) {
        if (opened < total && opened - closed < warmup) {
            *actions++ = (struct merak_action){.kind = MERAK_ACT_F,
                                               .microbatch = opened / slices,
                                               .slice = opened % slices};
            opened++;
        } else {
            *actions++ =
                (struct merak_action){.kind = MERAK_ACT_B,
                                      .microbatch = closed / slices,
                                      .slice = slices - 1 - closed % slices};
            closed++;
        }
    }
}
