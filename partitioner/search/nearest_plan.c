/* SPDX-License-Identifier: Apache-2.0 */
/* nearest_plan.c - where a search found no plan, the nearest changes that would
 * do
 *
 * A change is only named after a plan was found with it, whose programs were
 * built and fit.  That plan is the plainest there is of each tp and pp: the
 * search with the change has more to choose from.
 */
#include "config.h"

#include "partitioner/search/finalist.h"
#include "partitioner/search/search_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_NAMED 3   /* changes */
#define MAX_TRIED 4   /* of the same tp and pp: built */
#define MAX_NEAR 12   /* values of one choice that are tried */
#define MAX_PLACES 10 /* of a cut that is named: it has to fit in the text */

/* --- would it do? --------------------------------------------------------- */

bool merak_search_has_plan(const struct merak_search *of,
                           const struct merak_search_input *in)
{
    struct merak_search s;
    bool found = false;

    if (merak_search_init_like(&s, in, of) == MERAK_OK &&
        !merak_search_is_hopeless(&s) &&
        merak_search_rate_all(&s) == MERAK_OK) {
        for (int i = 0; i < s.n_cands && i < MAX_TRIED && !found; i++) {
            struct merak_candidate *c = &s.cand[i];

            found = merak_search_try(in, &s.cost, s.graphs, s.limit, c, NULL) ==
                        MERAK_OK &&
                    c->arena <= s.limit;
        }
    }
    merak_search_fini(&s);
    return found;
}

void merak_search_narrow(struct merak_choices *pin)
{
    static const enum merak_choice_id usual[] = {
        MERAK_CHOICE_ZERO1, MERAK_CHOICE_ORDER, MERAK_CHOICE_SUB_PIPELINE,
        MERAK_CHOICE_TP_BATCH};

    for (size_t i = 0; i < sizeof(usual) / sizeof(*usual); i++) {
        const struct merak_choice *c = &merak_choice[usual[i]];

        if (!pin->given[usual[i]])
            merak_choice_set(c, pin, c->usual);
        pin->given[usual[i]] = true;
    }
    if (pin->schedule == NULL && pin->chunks == 0 &&
        merak_given_parts(&pin->list) == 0)
        pin->schedule = "1f1b";
    if (pin->micro_batch == 0 && pin->tp_batch_percent == 0)
        pin->micro_batch = pin->sub_pipeline ? 2 : 1;
}

/* Is there a plan, of any tp and pp that are allowed? */
static bool would_do(const struct merak_search *s,
                     const struct merak_search_input *in)
{
    struct merak_search_input one = *in;
    const struct merak_choices *pin = &in->pin;
    int tasks = in->nodes * in->ranks_per_node;

    merak_search_narrow(&one.pin);
    for (int tp = in->ranks_per_node; tp >= 1; tp--) {
        if (in->ranks_per_node % tp != 0 || (pin->tp > 0 && pin->tp != tp))
            continue;
        for (int pp = 1; pp <= tasks / tp; pp++) {
            int dp = tasks / tp / pp;

            if (tasks / tp % pp != 0 || (pin->pp > 0 && pin->pp != pp) ||
                merak_given_parts(&pin->list) % pp != 0 ||
                (pin->dp > 0 && pin->dp != dp) ||
                in->global_batch % (size_t)dp != 0)
                continue;
            one.pin.tp = tp;
            one.pin.pp = pp;
            if (merak_search_has_plan(s, &one))
                return true;
        }
    }
    return false;
}

/* --- changes -------------------------------------------------------------- */

/* Change one thing of a request so that it has a plan, and say what to; false
 * if nothing tried does. */
typedef bool (*change_fn)(const struct merak_search *s, char *text);

/* Degrees that multiply to the ranks; 0 where none is asked for. */
struct degrees {
    int tp, pp, dp;
    double far; /* from those asked for, in octaves */
};

/* How far a degree is from the wanted one, if any is. */
static double degree_distance(int wanted, int degree)
{
    return wanted > 0 ? fabs(log2((double)wanted / degree)) : 0;
}

static void insert_degrees(struct degrees near[MAX_NEAR], int *n,
                           struct degrees d)
{
    int at = *n;

    for (int i = 0; i < *n; i++) {
        if (near[i].tp == d.tp && near[i].pp == d.pp && near[i].dp == d.dp)
            return;
    }
    while (at > 0 && d.far < near[at - 1].far)
        at--;
    if (at == MAX_NEAR)
        return;
    *n += *n < MAX_NEAR;
    memmove(&near[at + 1], &near[at], (size_t)(*n - at - 1) * sizeof(*near));
    near[at] = d;
}

/* Those nearest to what is asked for, in order; returns how many. */
static int near_degrees(const struct merak_search *s,
                        struct degrees near[MAX_NEAR])
{
    const struct merak_choices *pin = &s->in->pin;
    int n = 0;

    for (int tp = 1; tp <= s->in->ranks_per_node; tp++) {
        for (int pp = 1; pp <= s->tasks / tp; pp++) {
            int dp = s->tasks / tp / pp;
            double far = degree_distance(pin->tp, tp) +
                         degree_distance(pin->pp, pp) +
                         degree_distance(pin->dp, dp);

            if (s->in->ranks_per_node % tp != 0 || s->tasks / tp % pp != 0)
                continue;
            insert_degrees(near, &n,
                           (struct degrees){pin->tp > 0 ? tp : 0,
                                            pin->pp > 0 ? pp : 0,
                                            pin->dp > 0 ? dp : 0, far});
        }
    }
    return n;
}

static void name_degrees(struct degrees d, char *text)
{
    const struct {
        const char *name;
        int degree;
    } row[] = {{"tp", d.tp}, {"pp", d.pp}, {"dp", d.dp}};

    text[0] = '\0';
    for (size_t i = 0; i < 3; i++) {
        size_t n = strlen(text);

        if (row[i].degree > 0)
            snprintf(text + n, MERAK_CHANGE_TEXT - n, "%s%s %d",
                     n > 0 ? ", " : "", row[i].name, row[i].degree);
    }
}

bool merak_search_has_degrees(const struct merak_search *s,
                              char given[MERAK_CHANGE_TEXT])
{
    const struct merak_choices *pin = &s->in->pin;
    struct degrees near[MAX_NEAR];

    name_degrees((struct degrees){pin->tp, pin->pp, pin->dp, 0}, given);
    return near_degrees(s, near) > 0 && near[0].far == 0;
}

static bool change_degrees(const struct merak_search *s, char *text)
{
    struct merak_search_input in = *s->in;
    struct degrees near[MAX_NEAR];
    int n = near_degrees(s, near);

    for (int i = 0; i < n; i++) {
        if (near[i].far == 0) /* what was asked for */
            continue;
        in.pin.tp = near[i].tp;
        in.pin.pp = near[i].pp;
        in.pin.dp = near[i].dp;
        name_degrees(near[i], text);
        if (would_do(s, &in))
            return true;
    }
    return false;
}

/* Of two numbers, which is nearer to a third?  The larger, if both are. */
static bool is_nearer(size_t a, size_t b, size_t to)
{
    size_t far_a = a > to ? a - to : to - a, far_b = b > to ? b - to : to - b;

    return far_a < far_b || (far_a == far_b && a > b);
}

/* Insert a number into an ascending list, by how near it is. */
static void insert_near(size_t near[MAX_NEAR], int *n, size_t value, size_t to)
{
    int at = *n;

    for (int i = 0; i < *n; i++) {
        if (near[i] == value)
            return;
    }
    if (value == 0 || value == to)
        return;
    while (at > 0 && is_nearer(value, near[at - 1], to))
        at--;
    if (at == MAX_NEAR)
        return;
    *n += *n < MAX_NEAR;
    memmove(&near[at + 1], &near[at], (size_t)(*n - at - 1) * sizeof(*near));
    near[at] = value;
}

/* Multiples of what dp and the micro-batch may be. */
static bool change_batch(const struct merak_search *s, char *text)
{
    struct merak_search_input in = *s->in;
    const struct merak_choices *pin = &in.pin;
    size_t b = s->in->global_batch, near[MAX_NEAR];
    size_t size = pin->micro_batch > 0 ? pin->micro_batch : 1;
    int n = 0;

    for (int dp = 1; dp <= s->tasks; dp++) {
        for (int tp = 1; tp <= in.ranks_per_node && s->tasks % dp == 0; tp++) {
            /* samples that tensor ranks share out are in every one */
            size_t unit =
                (size_t)dp * size *
                (pin->micro_batch == 0 && pin->tp_batch_percent > 0 ? (size_t)tp
                                                                    : 1);

            if ((pin->dp > 0 && pin->dp != dp) ||
                (pin->tp > 0 && pin->tp != tp) || in.ranks_per_node % tp != 0)
                continue;
            insert_near(near, &n, b / unit * unit, b);
            insert_near(near, &n, (b / unit + 1) * unit, b);
        }
    }
    for (int i = 0; i < n; i++) {
        in.global_batch = near[i];
        snprintf(text, MERAK_CHANGE_TEXT, "global batch %zu", near[i]);
        if (would_do(s, &in))
            return true;
    }
    return false;
}

/* Those that divide the batch. */
static bool change_micro_batch(const struct merak_search *s, char *text)
{
    struct merak_search_input in = *s->in;
    size_t wanted = in.pin.micro_batch, near[MAX_NEAR];
    int n = 0;

    for (size_t b = 1; wanted > 0 && b <= in.global_batch; b++) {
        if (in.global_batch % b == 0)
            insert_near(near, &n, b, wanted);
    }
    for (int i = 0; i < n; i++) {
        in.pin.micro_batch = near[i];
        snprintf(text, MERAK_CHANGE_TEXT, "micro-batch %zu", near[i]);
        if (would_do(s, &in))
            return true;
    }
    return false;
}

static bool change_schedule(const struct merak_search *s, char *text)
{
    const struct merak_schedule *const *all = merak_schedules();
    struct merak_search_input in = *s->in;

    for (int i = 0; in.pin.schedule != NULL && all[i] != NULL; i++) {
        if (strcmp(all[i]->name, s->in->pin.schedule) == 0 ||
            all[i]->forward_only)
            continue;
        in.pin.schedule = all[i]->name;
        snprintf(text, MERAK_CHANGE_TEXT, "schedule %s", all[i]->name);
        if (would_do(s, &in))
            return true;
    }
    return false;
}

static bool change_chunks(const struct merak_search *s, char *text)
{
    struct merak_search_input in = *s->in;
    size_t near[MAX_NEAR];
    int n = 0;

    for (size_t v = 1; in.pin.chunks > 0 && v <= MAX_NEAR; v++)
        insert_near(near, &n, v, (size_t)in.pin.chunks);
    for (int i = 0; i < n; i++) {
        in.pin.chunks = (int)near[i];
        snprintf(text, MERAK_CHANGE_TEXT, "chunks %zu", near[i]);
        if (would_do(s, &in))
            return true;
    }
    return false;
}

/* What is left of a request after a choice was changed. */
static bool change_to(const struct merak_search *s,
                      const struct merak_search_input *in, const char *what,
                      char *text)
{
    snprintf(text, MERAK_CHANGE_TEXT, "%s", what);
    return would_do(s, in);
}

static bool change_sub_pipeline(const struct merak_search *s, char *text)
{
    struct merak_search_input in = *s->in;

    if (!in.pin.sub_pipeline)
        return false;
    in.pin.sub_pipeline = false;
    return change_to(s, &in, "sub-pipeline no", text);
}

static bool change_tp_batch(const struct merak_search *s, char *text)
{
    struct merak_search_input in = *s->in;

    if (in.pin.tp_batch_percent == 0)
        return false;
    in.pin.tp_batch_percent = 0;
    return change_to(s, &in, "tp-batch 0", text);
}

/* Any cut. */
static bool free_cut(const struct merak_search *s, char *text)
{
    struct merak_search_input in = *s->in;

    if (in.pin.list.cut == NULL)
        return false;
    in.pin.list.cut = NULL;
    return change_to(s, &in, "cut auto", text);
}

/* Move a place of a cut, if it then is still behind the one before it. */
static bool move_place(int *cut, int n, int i, int by)
{
    cut[i] += by;
    return cut[i] > (i > 0 ? cut[i - 1] : -1) &&
           (i + 1 == n || cut[i] < cut[i + 1]);
}

/* One place moved a little, or else any cut. */
static bool change_cut(const struct merak_search *s, char *text)
{
    struct merak_search_input in = *s->in;
    int n = in.pin.list.n_cut, cut[MAX_PLACES], tried = 0;

    if (in.pin.list.cut == NULL || n > MAX_PLACES)
        return free_cut(s, text);
    in.pin.list.cut = cut;
    for (int by = 1; by <= MAX_NEAR; by++) {
        for (int i = 0; i < 2 * n && tried < MAX_NEAR; i++) {
            memcpy(cut, s->in->pin.list.cut, (size_t)n * sizeof(*cut));
            if (!move_place(cut, n, i / 2, i % 2 == 0 ? -by : by))
                continue;
            tried++;
            memcpy(text, "cut ", 5);
            merak_cut_text(cut, n, text + 4, MERAK_CHANGE_TEXT - 4);
            if (would_do(s, &in))
                return true;
        }
    }
    return free_cut(s, text);
}

static bool change_recompute(const struct merak_search *s, char *text)
{
    struct merak_search_input in = *s->in;

    if (in.pin.list.drop == NULL && (!in.pin.given[MERAK_CHOICE_RECOMPUTE] ||
                                     in.pin.recompute == MERAK_RECOMPUTE_AUTO))
        return false;
    in.pin.list.drop = NULL;
    in.pin.recompute = MERAK_RECOMPUTE_AUTO;
    return change_to(s, &in, "recompute auto", text);
}

static bool change_drop(const struct merak_search *s, char *text)
{
    return s->in->pin.list.drop != NULL && change_recompute(s, text);
}

static bool change_zero1(const struct merak_search *s, char *text)
{
    struct merak_search_input in = *s->in;

    if (!in.pin.given[MERAK_CHOICE_ZERO1] || in.pin.zero1)
        return false;
    in.pin.zero1 = true;
    return change_to(s, &in, "zero1 yes", text);
}

static bool change_sp(const struct merak_search *s, char *text)
{
    struct merak_search_input in = *s->in;

    if (!in.pin.given[MERAK_CHOICE_SP] || in.pin.sp == MERAK_SP_AUTO)
        return false;
    in.pin.sp = MERAK_SP_AUTO;
    return change_to(s, &in, "sp auto", text);
}

static bool change_nodes(const struct merak_search *s, char *text)
{
    static const int times[] = {2, 3, 4, 6, 8, 12, 16};
    struct merak_search_input in = *s->in;

    for (size_t i = 0; i < sizeof(times) / sizeof(*times); i++) {
        if (s->in->nodes > INT32_MAX / times[i] / s->in->ranks_per_node)
            return false;
        in.nodes = s->in->nodes * times[i];
        snprintf(text, MERAK_CHANGE_TEXT, "%d nodes", in.nodes);
        if (would_do(s, &in))
            return true;
    }
    return false;
}

enum merak_status merak_search_name_changes(const struct merak_search *s,
                                            bool memory, const char *first)
{
    static const change_fn room[] = {
        change_cut,     change_nodes,       change_recompute, change_zero1,
        change_degrees, change_micro_batch, change_schedule,  change_chunks,
        change_sp,      change_sub_pipeline};
    static const change_fn numbers[] = {
        free_cut,       change_drop,     change_micro_batch,
        change_degrees, change_batch,    change_schedule,
        change_chunks,  change_tp_batch, change_sub_pipeline,
        change_sp};
    const change_fn *change = memory ? room : numbers;
    size_t n = memory ? sizeof(room) / sizeof(*room)
                      : sizeof(numbers) / sizeof(*numbers);
    char list[MAX_NAMED * (MERAK_CHANGE_TEXT + 8)] = "",
                                               text[MERAK_CHANGE_TEXT];
    int named = 0;

    if (s->err == NULL)
        return MERAK_ERR_CONFIG;
    if (first != NULL)
        named += snprintf(list, sizeof(list), "; nearest: %s", first) > 0;
    for (size_t i = 0; i < n && named < MAX_NAMED; i++) {
        size_t at = strlen(list);

        if (change[i](s, text))
            snprintf(list + at, sizeof(list) - at, "%s%s",
                     named++ == 0 ? "; nearest: " : ", or ", text);
    }
    if (named == 0)
        snprintf(list, sizeof(list), "; no single change would do");
    snprintf(s->err->text + strlen(s->err->text),
             sizeof(s->err->text) - strlen(s->err->text), "%s", list);
    return MERAK_ERR_CONFIG;
}
