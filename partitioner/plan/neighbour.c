/* SPDX-License-Identifier: Apache-2.0 */
/* neighbour.c - other values of a choice, the nearest first */
#include "config.h"

#include "partitioner/plan/choice.h"

#include <string.h>

/* --- numbers -------------------------------------------------------------- */

/* Of two numbers, which is nearer to a third?  The larger, if both are. */
static bool is_nearer(size_t a, size_t b, size_t to)
{
    size_t far_a = a > to ? a - to : to - a, far_b = b > to ? b - to : to - b;

    return far_a < far_b || (far_a == far_b && a > b);
}

void merak_near_insert(size_t list[MERAK_MAX_NEAR], int *n, size_t value,
                       size_t to)
{
    int at = *n;

    for (int i = 0; i < *n; i++) {
        if (list[i] == value)
            return;
    }
    if (value == 0 || value == to)
        return;
    while (at > 0 && is_nearer(value, list[at - 1], to))
        at--;
    if (at == MERAK_MAX_NEAR)
        return;
    *n += *n < MERAK_MAX_NEAR;
    memmove(&list[at + 1], &list[at], (size_t)(*n - at - 1) * sizeof(*list));
    list[at] = value;
}

/* The i-th, if there is one. */
static bool take(const struct merak_choice *choice, const size_t *list, int n,
                 int i, struct merak_choices *to)
{
    if (i < n)
        merak_choice_set(choice, to, (long)list[i]);
    return i < n;
}

bool merak_near_size(const struct merak_choice *choice, struct merak_near *near,
                     int i, struct merak_choices *to)
{
    size_t asked = to->micro_batch, list[MERAK_MAX_NEAR];
    int n = 0;

    for (size_t b = 1; asked > 0 && b <= near->global_batch; b++) {
        if (near->global_batch % b == 0)
            merak_near_insert(list, &n, b, asked);
    }
    return take(choice, list, n, i, to);
}

bool merak_near_chunks(const struct merak_choice *choice,
                       struct merak_near *near, int i, struct merak_choices *to)
{
    size_t list[MERAK_MAX_NEAR];
    int n = 0;

    (void)near;
    for (size_t v = 1; to->chunks > 0 && v <= MERAK_MAX_NEAR; v++)
        merak_near_insert(list, &n, v, (size_t)to->chunks);
    return take(choice, list, n, i, to);
}

/* --- words ---------------------------------------------------------------- */

bool merak_near_usual(const struct merak_choice *choice,
                      struct merak_near *near, int i, struct merak_choices *to)
{
    (void)near;
    if (i > 0 || !to->given[choice - merak_choice] ||
        merak_choice_get(choice, to) == choice->usual)
        return false;
    merak_choice_set(choice, to, choice->usual);
    return true;
}

bool merak_near_zero(const struct merak_choice *choice, struct merak_near *near,
                     int i, struct merak_choices *to)
{
    bool *given = &to->given[choice - merak_choice];
    long level = *given ? merak_choice_get(choice, to) : choice->usual;

    (void)near;
    if (level + 1 + i > (long)choice->option.most ||
        (!*given && merak_choice_get(choice, to) == MERAK_OPTION_AUTO))
        return false;
    merak_choice_set(choice, to, level + 1 + i);
    *given = true;
    return true;
}

bool merak_near_offload(const struct merak_choice *choice,
                        struct merak_near *near, int i,
                        struct merak_choices *to)
{
    (void)near;
    if (i > 0 || !to->given[choice - merak_choice] ||
        to->offload != MERAK_OFFLOAD_NONE)
        return false;
    to->offload = MERAK_OFFLOAD_STATE;
    return true;
}

bool merak_near_schedule(const struct merak_choice *choice,
                         struct merak_near *near, int i,
                         struct merak_choices *to)
{
    const struct merak_schedule *const *all = merak_schedules();

    (void)choice;
    (void)near;
    for (int k = 0; to->schedule != NULL && all[k] != NULL; k++) {
        if (strcmp(all[k]->name, to->schedule) == 0 || all[k]->forward_only ||
            i-- > 0)
            continue;
        to->schedule = all[k]->name;
        return true;
    }
    return false;
}

/* --- lists ---------------------------------------------------------------- */

/* Numbers that do not divide may be due to a list, but never to a word. */
bool merak_near_recompute(const struct merak_choice *choice,
                          struct merak_near *near, int i,
                          struct merak_choices *to)
{
    bool word = to->given[choice - merak_choice] &&
                to->recompute != MERAK_RECOMPUTE_AUTO;

    if (i > 0 || (to->list.drop == NULL && !(near->memory && word)))
        return false;
    to->list.drop = NULL;
    to->recompute = MERAK_RECOMPUTE_AUTO;
    return true;
}

/* Move a cut point; false if the cut points do not ascend then. */
static bool move_place(int *cut, int n, int i, int by)
{
    cut[i] += by;
    return cut[i] > (i > 0 ? cut[i - 1] : -1) &&
           (i + 1 == n || cut[i] < cut[i + 1]);
}

bool merak_near_cut(const struct merak_choice *choice, struct merak_near *near,
                    int i, struct merak_choices *to)
{
    struct merak_given_lists *list = &to->list;
    bool moves = near->memory && list->n_cut <= MERAK_NEAR_PLACES;
    int n = list->n_cut, found = 0;

    (void)choice;
    if (list->cut == NULL)
        return false;
    for (int by = 1; moves && by <= MERAK_MAX_NEAR; by++) {
        for (int k = 0; k < 2 * n && found < MERAK_MAX_NEAR; k++) {
            memcpy(near->place, list->cut, (size_t)n * sizeof(*list->cut));
            if (!move_place(near->place, n, k / 2, k % 2 == 0 ? -by : by) ||
                found++ < i)
                continue;
            list->cut = near->place;
            return true;
        }
    }
    list->cut = NULL;
    return found == i;
}
