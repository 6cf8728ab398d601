/* SPDX-License-Identifier: Apache-2.0 */
/* nearest_plan.c - the smallest changes to a request for which a search found
 * no plan
 *
 * A change is only named after a plan was found with it whose programs were
 * built and fit.  Only the plainest plan of each tp and pp is tried; a search
 * with the change has more to choose from.
 */
#include "config.h"

#include "partitioner/search/finalist.h"
#include "partitioner/search/search_impl.h"

#include "base/error.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_TRIED 4 /* plans built for a request */

/* --- does a change work? -------------------------------------------------- */

bool merak_search_has_plan(const struct merak_search *of,
                           const struct merak_search_input *in)
{
    struct merak_search s;
    bool found = false;

    if (merak_search_init_like(&s, in, of) == MERAK_OK &&
        !merak_search_is_hopeless(&s))
        merak_search_rate_all(&s);
    s.trials.deadline = (struct merak_deadline){s.until_ns, in->stop};
    for (int i = 0;
         s.rc == MERAK_OK && i < s.n_cands && i < MAX_TRIED && !found; i++) {
        struct merak_candidate *c = &s.cand[i];

        found = merak_search_try(&s, c, NULL) == MERAK_OK &&
                c->arena <= merak_search_limit(&s, c);
    }
    merak_search_fini(&s);
    return found;
}

void merak_search_narrow(struct merak_choices *pin)
{
    for (int i = 0; i < MERAK_CHOICE_COUNT; i++) {
        const struct merak_choice *c = &merak_choice[i];

        if (!c->is_narrowed || pin->given[i] ||
            merak_choice_get(c, pin) == MERAK_OPTION_AUTO) /* all values */
            continue;
        merak_choice_set(c, pin, c->usual);
        pin->given[i] = true;
    }
    if (pin->schedule == NULL && pin->chunks == 0 &&
        merak_given_parts(&pin->list) == 0)
        pin->schedule = "1f1b";
    if (pin->micro_batch == 0 && !merak_choices_share_samples(pin))
        pin->micro_batch = merak_choices_least_samples(pin);
}

/* Is there a plan for any allowed tp and pp? */
static bool would_do(const struct merak_search *s,
                     const struct merak_search_input *in)
{
    struct merak_search_input one = *in;
    const struct merak_choices *pin = &in->pin;
    int node = merak_search_most_tp(in);
    int tasks = in->nodes * in->ranks_per_node / merak_search_cp(in);

    merak_search_narrow(&one.pin);
    for (int tp = node; tp >= 1; tp--) {
        int tensor = pin->ep > 1 ? tp * pin->ep : tp;

        if (node % tensor != 0 || (pin->tp > 0 && pin->tp != tp))
            continue;
        for (int pp = 1; pp <= tasks / tensor && !merak_search_is_late(s);
             pp++) {
            int dp = tasks / tensor / pp;

            if (tasks / tensor % pp != 0 || (pin->pp > 0 && pin->pp != pp) ||
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

/* --- in words ------------------------------------------------------------- */

int merak_search_gib_text(double bytes, char text[MERAK_NUMBER_TEXT])
{
    double gib = bytes / 0x1p30;
    int after = 3 - (int)floor(log10(gib)); /* digits after the point */
    double unit = pow(10, after);

    after = after > 0 ? after : 0;
    return snprintf(text, MERAK_NUMBER_TEXT, "%.*f", after,
                    ceil(gib * unit * (1 - 1e-8)) / unit);
}

void merak_search_say_likely(const struct merak_search *s, double bytes,
                             struct merak_error *err)
{
    char gib[MERAK_NUMBER_TEXT];

    if (bytes <= (double)merak_search_memory(s->in) || bytes >= DBL_MAX)
        return;
    merak_search_gib_text(bytes, gib);
    merak_error_fix(err, err->status,
                    "; likely, but not verified: --memory-gib %s", gib);
}

/* --- changes -------------------------------------------------------------- */

/* The changes are tried one after the other until enough of them work. */
struct change {
    const struct merak_search *s;
    struct merak_near near;
    char text[MERAK_FIX_TEXT]; /* "--micro-batch 4" */
};

/* Try changes of something that is not a single choice; false if none gives
 * the request a plan. */
typedef bool (*change_fn)(struct change *c);

/* Degrees that multiply to the number of ranks; 0 where none is requested. */
struct degrees {
    int tp, ep, pp, dp;
    double far; /* distance from the requested ones, in octaves */
};

/* How far a degree is from the requested one, if there is one. */
static double degree_distance(int wanted, int degree)
{
    return wanted > 0 ? fabs(log2((double)wanted / degree)) : 0;
}

static void insert_degrees(struct degrees near[MERAK_MAX_NEAR], int *n,
                           struct degrees d)
{
    int at = *n;

    for (int i = 0; i < *n; i++) {
        if (near[i].tp == d.tp && near[i].ep == d.ep && near[i].pp == d.pp &&
            near[i].dp == d.dp)
            return;
    }
    while (at > 0 && d.far < near[at - 1].far)
        at--;
    if (at == MERAK_MAX_NEAR)
        return;
    *n += *n < MERAK_MAX_NEAR;
    memmove(&near[at + 1], &near[at], (size_t)(*n - at - 1) * sizeof(*near));
    near[at] = d;
}

/* With tensor groups of tp x ep ranks. */
static void near_of(const struct merak_search *s, int tp, int ep,
                    struct degrees near[MERAK_MAX_NEAR], int *n)
{
    const struct merak_choices *pin = &s->in->pin;
    int rest = s->spread / (tp * ep);

    for (int pp = 1; pp <= rest; pp++) {
        int dp = rest / pp;
        double far =
            degree_distance(pin->tp, tp) + degree_distance(pin->ep, ep) +
            degree_distance(pin->pp, pp) + degree_distance(pin->dp, dp);

        if (rest % pp == 0)
            insert_degrees(near, n,
                           (struct degrees){pin->tp > 0 ? tp : 0,
                                            pin->ep > 0 ? ep : pin->ep,
                                            pin->pp > 0 ? pp : 0,
                                            pin->dp > 0 ? dp : 0, far});
    }
}

/* Those nearest to the requested ones, in order; returns their number. */
static int near_degrees(const struct merak_search *s,
                        struct degrees near[MERAK_MAX_NEAR])
{
    const struct merak_choices *pin = &s->in->pin;
    int most = merak_search_in_node(s), n = 0;

    for (int tp = 1; tp <= most; tp++) {
        for (int ep = 1; ep <= (pin->ep > 1 ? most / tp : 1); ep++) {
            if (most % (tp * ep) == 0)
                near_of(s, tp, ep, near, &n);
        }
    }
    return n;
}

void merak_search_name_degrees(const struct merak_choices *degrees,
                               char text[MERAK_FIX_TEXT])
{
    text[0] = '\0';
    for (int i = MERAK_CHOICE_TP; i <= MERAK_CHOICE_DP; i++) {
        const struct merak_choice *c = &merak_choice[i];
        long degree = merak_choice_get(c, degrees);
        size_t n = strlen(text);

        if (degree > 1 || (degree > 0 && i != MERAK_CHOICE_EP))
            snprintf(text + n, MERAK_FIX_TEXT - n, "%s%s %ld",
                     n > 0 ? ", " : "", c->option.name, degree);
    }
}

bool merak_search_has_degrees(const struct merak_search *s)
{
    struct degrees near[MERAK_MAX_NEAR];

    return near_degrees(s, near) > 0 && near[0].far == 0;
}

/* Add to a text what to give instead: "--tp 4", or "tp=4" for what was given
 * so.
 */
static void name_choice(const struct merak_choices *asked, int id,
                        const struct merak_choices *to,
                        char text[MERAK_FIX_TEXT])
{
    const struct merak_choice *choice = &merak_choice[id];
    const char *name = choice->option.name;
    size_t n = strlen(text);

    if (asked->listed[id])
        n += (size_t)snprintf(text + n, MERAK_FIX_TEXT - n,
                              "%s%s=", n > 0 ? "," : "", name);
    else
        n += (size_t)snprintf(text + n, MERAK_FIX_TEXT - n, "%s--%s ",
                              n > 0 ? " " : "", name);
    if (n < MERAK_FIX_TEXT)
        merak_choice_text(choice, to, text + n, MERAK_FIX_TEXT - n);
}

void merak_search_name_plan(const struct merak_search *s,
                            const struct merak_plan *plan,
                            char text[MERAK_FIX_TEXT])
{
    static const enum merak_choice_id named[] = {
        MERAK_CHOICE_TP, MERAK_CHOICE_EP, MERAK_CHOICE_PP,
        MERAK_CHOICE_MICRO_BATCH};
    struct merak_choices choices;

    merak_choices_of(plan, &choices);
    text[0] = '\0';
    for (size_t i = 0; i < sizeof(named) / sizeof(*named); i++) {
        if (named[i] != MERAK_CHOICE_EP || choices.ep > 1)
            name_choice(&s->in->pin, (int)named[i], &choices, text);
    }
}

static bool change_degrees(struct change *c)
{
    struct merak_search_input in = *c->s->in;
    struct degrees near[MERAK_MAX_NEAR];
    int n = near_degrees(c->s, near);

    for (int i = 0; i < n; i++) {
        if (near[i].far == 0) /* as requested */
            continue;
        in.pin.tp = near[i].tp;
        in.pin.ep = near[i].ep;
        in.pin.pp = near[i].pp;
        in.pin.dp = near[i].dp;
        c->text[0] = '\0';
        for (int id = MERAK_CHOICE_TP; id <= MERAK_CHOICE_DP; id++) {
            if (merak_choice_get(&merak_choice[id], &in.pin) > 0)
                name_choice(&c->s->in->pin, id, &in.pin, c->text);
        }
        if (would_do(c->s, &in))
            return true;
    }
    return false;
}

/* Try multiples of every possible dp x micro-batch. */
static bool change_batch(struct change *c)
{
    const struct merak_search *s = c->s;
    struct merak_search_input in = *s->in;
    const struct merak_choices *pin = &in.pin;
    size_t b = s->in->global_batch, near[MERAK_MAX_NEAR];
    size_t size = pin->micro_batch > 0 ? pin->micro_batch : 1;
    int n = 0;

    for (int dp = 1; dp <= s->spread; dp++) {
        for (int tp = 1; tp <= merak_search_in_node(s) && s->spread % dp == 0;
             tp++) {
            /* with split samples, each tensor rank has at least one */
            size_t unit = (size_t)dp * size *
                          (pin->micro_batch > 0               ? 1
                           : pin->ep > 1                      ? (size_t)pin->ep
                           : merak_choices_share_samples(pin) ? (size_t)tp
                                                              : 1);

            if ((pin->dp > 0 && pin->dp != dp) ||
                (pin->tp > 0 && pin->tp != tp) ||
                merak_search_in_node(s) % tp != 0)
                continue;
            merak_near_insert(near, &n, b / unit * unit, b);
            merak_near_insert(near, &n, (b / unit + 1) * unit, b);
        }
    }
    for (int i = 0; i < n; i++) {
        in.global_batch = near[i];
        snprintf(c->text, sizeof(c->text), "--global-batch %zu", near[i]);
        if (would_do(s, &in))
            return true;
    }
    return false;
}

/* Long sequences are cut over more ranks, the fewest that do. */
static bool change_cp(struct change *c)
{
    struct merak_search_input in = *c->s->in;
    int now = merak_search_cp(&in), node = merak_search_node(&in);

    if (in.seq < MERAK_SEARCH_LONG || in.any_cp)
        return false;
    in.pin.given[MERAK_CHOICE_CP] = true;
    for (in.pin.cp = 2 * now; in.pin.cp <= node; in.pin.cp += now) {
        if (node % in.pin.cp != 0)
            continue;
        snprintf(c->text, sizeof(c->text), "--cp %d", in.pin.cp);
        if (would_do(c->s, &in))
            return true;
    }
    return false;
}

static bool change_nodes(struct change *c)
{
    static const int times[] = {2, 3, 4, 6, 8, 12, 16};
    const struct merak_search *s = c->s;
    struct merak_search_input in = *s->in;

    for (size_t i = 0; i < sizeof(times) / sizeof(*times); i++) {
        if (s->in->nodes > INT32_MAX / times[i] / s->in->ranks_per_node)
            return false;
        in.nodes = s->in->nodes * times[i];
        if (!merak_links_may_have(&s->in->device->links, in.nodes))
            return false;
        snprintf(c->text, sizeof(c->text), "--nodes %d", in.nodes);
        if (would_do(s, &in))
            return true;
    }
    return false;
}

/* Joint changes, with their turns (near_memory, near_numbers of choices). */
static const struct {
    change_fn change;
    int memory, numbers;
} joint[] = {{change_cp, 2, 0},
             {change_nodes, 3, 0},
             {change_degrees, 7, 4},
             {change_batch, 0, 5}};

static bool change_choice(struct change *c, const struct merak_choice *choice)
{
    for (int i = 0;; i++) {
        struct merak_search_input in = *c->s->in;

        if (!choice->near(choice, &c->near, i, &in.pin))
            return false;
        c->text[0] = '\0';
        name_choice(&c->s->in->pin, (int)(choice - merak_choice), &in.pin,
                    c->text);
        if (would_do(c->s, &in))
            return true;
    }
}

/* Try the change whose turn is `at`; clears *more_p if there is none. */
static bool change_at(struct change *c, int at, bool *more_p)
{
    for (size_t i = 0; i < sizeof(joint) / sizeof(*joint); i++) {
        if (at == (c->near.memory ? joint[i].memory : joint[i].numbers))
            return joint[i].change(c);
    }
    for (int i = 0; i < MERAK_CHOICE_COUNT; i++) {
        const struct merak_choice *choice = &merak_choice[i];

        if (at == (c->near.memory ? choice->near_memory : choice->near_numbers))
            return change_choice(c, choice);
    }
    *more_p = false;
    return false;
}

void merak_search_find_fixes(const struct merak_search *s,
                             struct merak_refusal *refusal)
{
    struct change change = {
        .s = s,
        .near = {.memory = refusal->constraint == MERAK_BINDS_MEMORY,
                 .global_batch = s->in->global_batch}};
    bool more = true;

    for (int at = 1;
         more && refusal->n_fixes < MERAK_MAX_FIXES && !merak_search_is_late(s);
         at++) {
        if (change_at(&change, at, &more))
            snprintf(refusal->fix[refusal->n_fixes++], MERAK_FIX_TEXT, "%s",
                     change.text);
    }
}
