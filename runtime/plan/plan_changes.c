/* SPDX-License-Identifier: Apache-2.0 */
/* plan_changes.c - what a change of the request would do to a plan
 *
 * A change is searched for like the plan itself, with its choices fixed; where
 * memory or nodes change, the schedule and its chunks, what is recomputed and
 * where it is cut are chosen again.  For twice the memory other degrees are
 * tried, too, in a part of the time that the plan took: that more would not
 * help is only said if none is faster.
 */
#include "config.h"

#include "runtime/plan/plan_changes.h"
#include "runtime/plan/draw.h"

#include "base/clock.h"
#include "base/deadline.h"
#include "base/size.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define ALL_SHARE 0.2 /* of what the search took, .. */
#define ALL_LEAST_S 1 /* .. or so long, one with any degrees may take */
#define MOST_TIMES 16 /* as many nodes, at most, are tried */

const struct plan_resource_text plan_resource_text[PLAN_RESOURCES] = {
    [PLAN_COMPUTE] = {"compute", "twice the FLOP/s"},
    [PLAN_MEMORY] = {"memory", "twice the memory of a rank"},
    [PLAN_LINKS] = {"links within nodes", "links within nodes twice as fast"},
    [PLAN_NET] = {"the network", "a network twice as fast"},
    [PLAN_BATCH] = {"the pipeline bubble, and what is once a step",
                    "twice as many"}, /* .. sequences a step */
};

/* A change that is being made. */
struct changed {
    const struct plan_auto *plan;
    const struct merak_plan *chosen;
    struct merak_search_input in; /* the request, with the plan's choices */
    struct merak_device device;   /* of the request; shares its tables */
    char what[80];
};

const char *plan_batch_word(const struct plan_auto *plan)
{
    return plan_rate_of(plan->model.letter, 1, 1, 1).batch;
}

/* False: there is no such change. */
typedef bool (*change_fn)(struct changed *c);

static bool add_gib(struct changed *c)
{
    c->in.memory_bytes = merak_search_memory(&c->plan->in) + ((size_t)1 << 30);
    snprintf(c->what, sizeof(c->what), "1 GiB more memory of a rank");
    return true;
}

static bool double_memory(struct changed *c)
{
    char text[MERAK_BYTES_TEXT];

    c->in.memory_bytes = 2 * merak_search_memory(&c->plan->in);
    merak_bytes_text((double)c->in.memory_bytes, text);
    snprintf(c->what, sizeof(c->what), "%s (%s)",
             plan_resource_text[PLAN_MEMORY].twice, text);
    return true;
}

static bool double_links(struct changed *c)
{
    merak_links_scale(&c->device.links, 2, 1);
    snprintf(c->what, sizeof(c->what), "%s",
             plan_resource_text[PLAN_LINKS].twice);
    return c->in.ranks_per_node > 1;
}

static bool double_net(struct changed *c)
{
    merak_links_scale(&c->device.links, 1, 2);
    snprintf(c->what, sizeof(c->what), "%s",
             plan_resource_text[PLAN_NET].twice);
    return c->in.nodes > merak_search_rack_nodes(&c->in);
}

static bool double_batch(struct changed *c)
{
    c->in.global_batch *= 2;
    snprintf(c->what, sizeof(c->what), "%s %s a step (%zu)",
             plan_resource_text[PLAN_BATCH].twice, plan_batch_word(c->plan),
             c->in.global_batch);
    return true;
}

/* Replicas of the plan on this many nodes; 0: they do not hold whole replicas,
 * or these do not divide the batch. */
static int replicas_on(const struct changed *c, int nodes)
{
    int dp = merak_plan_mesh(c->chosen, 0).dp;
    int replicas = dp * nodes / c->plan->in.nodes;
    size_t each = merak_plan_samples(c->chosen) / (size_t)dp *
                  (c->chosen->sub_pipeline ? 2 : 1);

    if (c->chosen->stage != NULL) /* each stage has replicas of its own */
        return 0;
    return dp * nodes % c->plan->in.nodes == 0 && replicas > 0 &&
                   c->in.global_batch % ((size_t)replicas * each) == 0
               ? replicas
               : 0;
}

/* Only replicas are more or fewer. */
static bool set_nodes(struct changed *c, int nodes)
{
    c->in.nodes = nodes;
    c->in.pin.dp = replicas_on(c, nodes);
    return c->in.pin.dp > 0 &&
           merak_links_may_have(&c->plan->device.links, nodes);
}

static bool add_nodes(struct changed *c)
{
    int now = c->in.nodes, nodes = now + 1;

    while (nodes < now * MOST_TIMES && replicas_on(c, nodes) == 0)
        nodes++;
    snprintf(c->what, sizeof(c->what), "%d nodes%s", nodes,
             nodes > now + 1 ? " (fewer do not divide the batch)" : "");
    return set_nodes(c, nodes);
}

static bool remove_nodes(struct changed *c)
{
    int now = c->in.nodes, nodes = now - 1;

    while (nodes > 0 && replicas_on(c, nodes) == 0)
        nodes--;
    snprintf(c->what, sizeof(c->what), "%d node%s", nodes, merak_plural(nodes));
    return nodes > 0 && set_nodes(c, nodes);
}

/* In the library's order, where that is for sums over nodes. */
static bool sum_fast(struct changed *c)
{
    c->in.fast_sums = true;
    snprintf(c->what, sizeof(c->what), "sums in NCCL's order (--reduce fast)");
    return c->in.direct && !c->plan->in.fast_sums && c->in.nodes > 1 &&
           merak_plan_mesh(c->chosen, 0).dp > 1;
}

static const struct {
    change_fn make;
    enum plan_resource
        doubles;   /* what there is twice as much of, or PLAN_RESOURCES */
    bool relaxes;  /* the plan itself stays possible, and as fast */
    bool is_same;  /* its schedule, cut and recomputation stay, too */
    bool is_whole; /* searched for with other degrees, too */
} changes[] = {
    {add_nodes, PLAN_RESOURCES, false, false, false},
    {remove_nodes, PLAN_RESOURCES, false, false, false},
    {add_gib, PLAN_RESOURCES, true, false, false},
    {double_net, PLAN_NET, true, true, false},
    {double_links, PLAN_LINKS, true, true, false},
    {double_batch, PLAN_BATCH, false, true, false},
    {sum_fast, PLAN_RESOURCES, true, true, false},
    {double_memory, PLAN_MEMORY, true, false, true}, /* takes longest */
};

enum { N_CHANGES = sizeof(changes) / sizeof(*changes) };

/* --- searching for one ---------------------------------------------------- */

static bool is_over(const struct plan_asked *a)
{
    return merak_stop_is_set(a->plan->in.stop) ||
           (a->until_ns < INT64_MAX && merak_clock_ns() >= a->until_ns);
}

double plan_changed_step(struct plan_asked *a, struct merak_search_input *in,
                         double most_s)
{
    struct merak_search_result *result = NULL;
    double step_s = 0;

    in->most_s = most_s;
    in->cut_short_p = &a->cut_short;
    in->seconds = a->until_ns == INT64_MAX
                      ? 0
                      : (double)(a->until_ns - merak_clock_ns()) * 1e-9;
    if (is_over(a) || merak_search(in, &result, NULL) != MERAK_OK)
        return 0;
    step_s = result->choice[0].step_s;
    merak_search_destroy(result);
    return step_s;
}

/* Fix what the plan has; of what follows from memory, unless `is_same`, only
 * what options gave. */
static void fix(struct changed *c, bool is_same)
{
    static const enum merak_choice_id follows[] = {
        MERAK_CHOICE_RECOMPUTE, MERAK_CHOICE_CUT, MERAK_CHOICE_SCHEDULE,
        MERAK_CHOICE_CHUNKS,    MERAK_CHOICE_SP,  MERAK_CHOICE_BOUNDARY};
    const struct merak_choices *given = &c->plan->in.pin;

    c->in = c->plan->in;
    merak_choices_of(c->chosen, &c->in.pin);
    c->device = c->plan->device;
    c->in.device = &c->device;
    c->in.refusal = NULL;
    c->in.unlike = false;
    if (is_same)
        return;
    c->in.pin.list = given->list;
    c->in.pin.recompute = given->recompute;
    c->in.pin.schedule = given->schedule;
    c->in.pin.chunks = given->chunks;
    c->in.pin.sp = given->sp;
    c->in.pin.boundary = given->boundary;
    for (size_t i = 0; i < sizeof(follows) / sizeof(*follows); i++)
        c->in.pin.given[follows[i]] = given->given[follows[i]];
}

/* The same with any degrees, for which there is a part of the time that the
 * plan's own search took.  *known_p: it was enough. */
static double step_of_any(struct plan_asked *a, int i, struct changed *c,
                          double most_s, bool *known_p)
{
    double seconds = fmax(ALL_LEAST_S, ALL_SHARE * a->result->took_s);
    const int64_t until_ns = a->until_ns;

    c->in.pin = c->plan->in.pin;
    (void)changes[i].make(c);
    if (until_ns < INT64_MAX) {
        seconds = fmin(seconds, (double)(until_ns - merak_clock_ns()) * 1e-9);
        a->until_ns = merak_clock_ns() + (int64_t)(seconds * 1e9);
    }
    most_s = plan_changed_step(a, &c->in, most_s);
    *known_p = !is_over(a) && !a->cut_short;
    a->until_ns = until_ns;
    if (*known_p || most_s > 0)
        snprintf(c->what + strlen(c->what), sizeof(c->what) - strlen(c->what),
                 ", any degrees");
    return most_s;
}

/* Seconds of the fastest plan with a change that relaxes: with the degrees of
 * the plan, of runners-up that recompute if that gains little, then with any.
 */
static double search_all(struct plan_asked *a, int i, struct changed *c,
                         bool *known_p)
{
    const struct merak_search_result *r = a->result;
    double was_s = r->choice[0].step_s, best_s = was_s, step_s;

    *known_p = false;
    for (int k = 0; k < r->n_choices && best_s > (1 - PLAN_SMALL_GAIN) * was_s;
         k++) {
        if (k > 0 && (r->choice[k].plan.recompute == MERAK_RECOMPUTE_NONE ||
                      r->choice[k].plan.stage != NULL))
            continue;
        c->chosen = &r->choice[k].plan;
        fix(c, changes[i].is_same);
        (void)changes[i].make(c);
        step_s = plan_changed_step(a, &c->in, best_s);
        best_s = step_s > 0 ? step_s : best_s;
    }
    if (is_over(a))
        return best_s < was_s ? best_s : 0;
    step_s = step_of_any(a, i, c, best_s, known_p);
    return step_s > 0 ? step_s : best_s;
}

/* The seconds that a change gives; 0: no plan, or not *known_p. */
static double search_change(struct plan_asked *a, int i, struct changed *c,
                            bool *known_p)
{
    const double best_s = a->result->choice[0].step_s;
    double step_s;

    if (changes[i].is_whole)
        return search_all(a, i, c, known_p);
    step_s =
        plan_changed_step(a, &c->in, changes[i].relaxes ? best_s : DBL_MAX);
    *known_p = step_s > 0 || !(is_over(a) || a->cut_short);
    return step_s == 0 && *known_p && changes[i].relaxes ? best_s : step_s;
}

static double tokens_of(const struct merak_search_input *in)
{
    return (double)in->global_batch * (double)in->seq;
}

static void try_change(struct plan_asked *a, int i)
{
    const struct merak_search_choice *best = &a->result->choice[0];
    struct changed c = {.plan = a->plan, .chosen = &best->plan};
    struct plan_change *to = &a->advice->change[a->advice->n_changes];
    double step_s, ranks;
    bool known;

    /* A search keeps no list of stages, and no kind of a stage. */
    if (best->plan.stage != NULL || a->plan->in.n_kinds > 1)
        return;
    fix(&c, changes[i].is_same);
    if (!changes[i].make(&c))
        return;
    step_s = search_change(a, i, &c, &known);
    if (step_s == 0 && !known)
        return;
    ranks = (double)c.in.nodes / a->plan->in.nodes;
    *to = (struct plan_change){.step_s = step_s};
    snprintf(to->what, sizeof(to->what), "%s", c.what);
    a->advice->n_changes++;
    if (step_s == 0)
        return;
    to->tokens_per_s =
        tokens_of(&c.in) / tokens_of(&a->plan->in) * best->step_s / step_s;
    to->gpu_hours = ranks / to->tokens_per_s;
    /* At least so much: whether a little more is little needs all plans. */
    if (changes[i].doubles < PLAN_RESOURCES &&
        (known || 1 - 1 / to->tokens_per_s >= PLAN_SMALL_GAIN))
        a->gain[changes[i].doubles] = 1 - 1 / to->tokens_per_s;
    a->more_nodes = changes[i].make == add_nodes ? to : a->more_nodes;
}

void plan_changes_try(struct plan_asked *a)
{
    for (int i = 0; i < PLAN_RESOURCES; i++)
        a->gain[i] = -1;
    for (int i = 0; i < N_CHANGES; i++)
        try_change(a, i);
}
