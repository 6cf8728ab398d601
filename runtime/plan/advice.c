/* SPDX-License-Identifier: Apache-2.0 */
/* advice.c - what binds a plan, and what would change it
 *
 * A change is searched for like the plan itself, with its choices fixed; where
 * memory or nodes change, the schedule and its chunks, what is recomputed and
 * where it is cut are chosen again.  For twice the memory other degrees are
 * tried, too, in a part of the time that the plan took: that more would not
 * help is only said if none is faster.
 *
 * What binds is that of which twice as much would shorten a step most.
 */
#include "config.h"

#include "runtime/plan/advice.h"
#include "runtime/plan/draw.h"

#include "base/clock.h"
#include "base/deadline.h"
#include "base/error.h"
#include "base/size.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIME_SHARE 0.25   /* of --search-seconds, of which a search leaves some */
#define ALL_SHARE 0.2     /* of what the search took, .. */
#define ALL_LEAST_S 1     /* .. or so long, one with any degrees may take */
#define MOST_TIMES 16     /* as many nodes, at most, are tried */
#define LITTLE_LEFT 0.02  /* of the limit of memory */
#define SMALL_GAIN 0.05   /* of a step: not worth buying */
#define NO_GAIN 0.01      /* .. nor telling */
#define SHOWN_GAIN 0.0005 /* not "0.0%": rows below say so */
#define AS_FAST 1.1       /* times a step: fewer ranks are enough */

/* --- changes -------------------------------------------------------------- */

/* What a step may be short of. */
enum resource { COMPUTE, MEMORY, LINKS, NET, BATCH, N_RESOURCES };

static const struct {
    const char *binds, *twice;
} resource_text[N_RESOURCES] = {
    [COMPUTE] = {"compute", "twice the FLOP/s"},
    [MEMORY] = {"memory", "twice the memory of a rank"},
    [LINKS] = {"links within nodes", "links within nodes twice as fast"},
    [NET] = {"the network", "a network twice as fast"},
    [BATCH] = {"the pipeline bubble, and what is once a step",
               "twice as many sequences a step"},
};

/* A change that is being made. */
struct changed {
    const struct plan_auto *plan;
    const struct merak_plan *chosen;
    struct merak_search_input in; /* the request, with the plan's choices */
    struct merak_device device;   /* of the request; shares its tables */
    char what[80];
};

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
    snprintf(c->what, sizeof(c->what), "%s (%s)", resource_text[MEMORY].twice,
             text);
    return true;
}

static bool double_links(struct changed *c)
{
    merak_links_scale(&c->device.links, 2, 1);
    snprintf(c->what, sizeof(c->what), "%s", resource_text[LINKS].twice);
    return c->in.ranks_per_node > 1;
}

static bool double_net(struct changed *c)
{
    merak_links_scale(&c->device.links, 1, 2);
    snprintf(c->what, sizeof(c->what), "%s", resource_text[NET].twice);
    return c->in.nodes > merak_search_rack_nodes(&c->in);
}

static bool double_batch(struct changed *c)
{
    c->in.global_batch *= 2;
    snprintf(c->what, sizeof(c->what), "%s (%zu)", resource_text[BATCH].twice,
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
    return c->in.pin.dp > 0;
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
    enum resource doubles; /* what there is twice as much of, or N_RESOURCES */
    bool relaxes;          /* the plan itself stays possible, and as fast */
    bool is_same;          /* its schedule, cut and recomputation stay, too */
    bool is_whole;         /* searched for with other degrees, too */
} changes[] = {
    {add_nodes, N_RESOURCES, false, false, false},
    {remove_nodes, N_RESOURCES, false, false, false},
    {add_gib, N_RESOURCES, true, false, false},
    {double_net, NET, true, true, false},
    {double_links, LINKS, true, true, false},
    {double_batch, BATCH, false, true, false},
    {sum_fast, N_RESOURCES, true, true, false},
    {double_memory, MEMORY, true, false, true}, /* takes longest */
};

enum { N_CHANGES = sizeof(changes) / sizeof(*changes) };

/* --- searching for one ---------------------------------------------------- */

/* What the advice is about, and how long it may take. */
struct asked {
    struct plan_auto *plan;
    const struct merak_search_result *result;
    int64_t until_ns;         /* INT64_MAX: as long as it takes */
    bool cut_short;           /* the latest search was */
    double gain[N_RESOURCES]; /* by twice as much, of the step; -1: unknown */
    const struct plan_change *more_nodes; /* or NULL */
    struct plan_advice *advice;
};

static bool is_over(const struct asked *a)
{
    return merak_stop_is_set(a->plan->in.stop) ||
           (a->until_ns < INT64_MAX && merak_clock_ns() >= a->until_ns);
}

/* Seconds of the best plan's step, if that is shorter than most_s; 0: none was
 * found in time. */
static double step_of(struct asked *a, struct merak_search_input *in,
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
static double step_of_any(struct asked *a, int i, struct changed *c,
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
    most_s = step_of(a, &c->in, most_s);
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
static double search_all(struct asked *a, int i, struct changed *c,
                         bool *known_p)
{
    const struct merak_search_result *r = a->result;
    double was_s = r->choice[0].step_s, best_s = was_s, step_s;

    *known_p = false;
    for (int k = 0; k < r->n_choices && best_s > (1 - SMALL_GAIN) * was_s;
         k++) {
        if (k > 0 && (r->choice[k].plan.recompute == MERAK_RECOMPUTE_NONE ||
                      r->choice[k].plan.stage != NULL))
            continue;
        c->chosen = &r->choice[k].plan;
        fix(c, changes[i].is_same);
        (void)changes[i].make(c);
        step_s = step_of(a, &c->in, best_s);
        best_s = step_s > 0 ? step_s : best_s;
    }
    if (is_over(a))
        return best_s < was_s ? best_s : 0;
    step_s = step_of_any(a, i, c, best_s, known_p);
    return step_s > 0 ? step_s : best_s;
}

/* The seconds that a change gives; 0: no plan, or not *known_p. */
static double search_change(struct asked *a, int i, struct changed *c,
                            bool *known_p)
{
    const double best_s = a->result->choice[0].step_s;
    double step_s;

    if (changes[i].is_whole)
        return search_all(a, i, c, known_p);
    step_s = step_of(a, &c->in, changes[i].relaxes ? best_s : DBL_MAX);
    *known_p = step_s > 0 || !(is_over(a) || a->cut_short);
    return step_s == 0 && *known_p && changes[i].relaxes ? best_s : step_s;
}

static double tokens_of(const struct merak_search_input *in)
{
    return (double)in->global_batch * (double)in->seq;
}

static void try_change(struct asked *a, int i)
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
    if (changes[i].doubles < N_RESOURCES &&
        (known || 1 - 1 / to->tokens_per_s >= SMALL_GAIN))
        a->gain[changes[i].doubles] = 1 - 1 / to->tokens_per_s;
    a->more_nodes = changes[i].make == add_nodes ? to : a->more_nodes;
}

/* --- in words ------------------------------------------------------------- */

enum merak_status plan_lines_add(struct plan_lines *lines,
                                 struct merak_error *err, const char *fmt, ...)
{
    va_list ap;
    char *line = NULL;
    int bytes;

    if (lines->n == PLAN_MOST_LINES)
        return MERAK_OK;
    va_start(ap, fmt);
    bytes = vasprintf(&line, fmt, ap);
    va_end(ap);
    if (bytes < 0)
        return merak_fail_nomem(err, strlen(fmt));
    lines->line[lines->n++] = line;
    return MERAK_OK;
}

/* Kernels' share of the step on the stage with the most work. */
static double compute_share(const struct merak_search_choice *c)
{
    return (c->part_s[MERAK_PART_COMPUTE] + c->part_s[MERAK_PART_RECOMPUTE]) /
           c->step_s;
}

static enum merak_status say_what_binds(struct asked *a,
                                        struct merak_error *err)
{
    const struct merak_search_result *r = a->result;
    enum resource most = COMPUTE;
    char where[PLAN_WHERE_TEXT];

    /* What kernels of twice the FLOP/s would save at most. */
    a->gain[COMPUTE] = compute_share(&r->choice[0]) / 2;
    for (int i = COMPUTE; i < N_RESOURCES; i++)
        most = a->gain[i] > a->gain[most] ? (enum resource)i : most;
    return plan_lines_add(&a->advice->words, err,
                          "what binds: %s; kernels take %.1f%% of the step%s",
                          resource_text[most].binds,
                          100 * compute_share(&r->choice[0]),
                          plan_report_where(r, where));
}

/* "; twice the memory of a rank would save 1.2% of the step, ..": all but one
 * that save something. */
static void list_gains(const struct asked *a, int but, char *text, size_t bytes)
{
    size_t n = 0;

    text[0] = '\0';
    for (int i = MEMORY; i <= NET; i++) {
        if (a->gain[i] < SHOWN_GAIN || i == but || n >= bytes)
            continue;
        n += (size_t)snprintf(text + n, bytes - n, "%s%s%s %.1f%%%s",
                              n > 0 ? ", " : "; ", resource_text[i].twice,
                              n > 0 ? "" : " would save", 100 * a->gain[i],
                              n > 0 ? "" : " of the step");
    }
}

static enum merak_status say_what_to_buy(struct asked *a,
                                         struct merak_error *err)
{
    const struct plan_change *more = a->more_nodes;
    enum resource most = MEMORY;
    char gains[256], buy[160];

    for (int i = MEMORY; i <= NET; i++)
        most = a->gain[i] > a->gain[most] ? (enum resource)i : most;
    if (a->gain[most] < 0 && more == NULL)
        return MERAK_OK; /* no change was tried, for kinds or lack of time */
    list_gains(a, a->gain[most] >= SMALL_GAIN ? (int)most : -1, gains,
               sizeof(gains));
    if (a->gain[most] >= SMALL_GAIN)
        snprintf(buy, sizeof(buy), "%s, which saves %.1f%% of the step",
                 resource_text[most].twice, 100 * a->gain[most]);
    else if (more != NULL && more->gpu_hours < 2) /* half of the first ones */
        snprintf(buy, sizeof(buy),
                 "more nodes: %s train %.2f times as fast, for %.2f times the "
                 "GPU-hours",
                 more->what, more->tokens_per_s, more->gpu_hours);
    else
        snprintf(buy, sizeof(buy), "nothing%s",
                 a->gain[BATCH] >= SMALL_GAIN
                     ? "; more sequences a step would help, see below"
                     : " that is modelled would help much");
    return plan_lines_add(&a->advice->words, err, "what to buy: %s%s", buy,
                          gains);
}

/* The stage whose ranks take most. */
static int fullest(const struct merak_search_result *r)
{
    int at = 0;

    for (int s = 1; s < r->choice[0].plan.pp; s++) {
        if (r->stage[s].arena_bytes > r->stage[at].arena_bytes)
            at = s;
    }
    return at;
}

static enum merak_status say_margin(const struct asked *a,
                                    struct merak_error *err)
{
    const struct merak_search_result *r = a->result;
    int at = fullest(r);
    double limit = (double)r->memory_limit;
    double left = limit - (double)r->stage[at].arena_bytes;
    double given_gib = (double)merak_search_memory(&a->plan->in) / 0x1p30;
    bool just_fits = left < LITTLE_LEFT * limit;
    char left_text[MERAK_BYTES_TEXT], limit_text[MERAK_BYTES_TEXT];
    char less[128] = "";

    merak_bytes_text(left, left_text);
    merak_bytes_text(limit, limit_text);
    if (just_fits && given_gib >= 2)
        snprintf(less, sizeof(less),
                 "; --memory-gib %.1f plans with 1 GiB to spare",
                 given_gib - 1);
    if (just_fits && a->gain[MEMORY] >= 0 && a->gain[MEMORY] < NO_GAIN)
        snprintf(less + strlen(less), sizeof(less) - strlen(less),
                 "; more would hardly make it faster");
    return plan_lines_add(&a->advice->words, err,
                          "memory left: %s of %s on stage %d, the fullest%s%s",
                          left_text, limit_text, at,
                          just_fits ? ": it just fits" : "", less);
}

/* --- fewer ranks ---------------------------------------------------------- */

/* Half as many nodes or, of one, ranks; false: no more halves. */
static bool halve(struct merak_search_input *in)
{
    if (in->nodes > 1)
        in->nodes /= 2;
    else if (in->ranks_per_node % 2 == 0)
        in->ranks_per_node /= 2;
    else
        return false;
    return true;
}

/* Where ranks mostly wait for each other, fewer may be faster, and nothing has
 * to be bought.  No plan beats the time of its operations, so most requests
 * need no search here. */
static enum merak_status say_size(struct asked *a, struct merak_error *err)
{
    const struct plan_auto *plan = a->plan;
    struct merak_search_input in = plan->in, best = in;
    double all_s = a->result->choice[0].step_s, step_s = all_s, enough_s = 0;
    double work = a->result->least_s * in.nodes * in.ranks_per_node;
    char step[MERAK_SECONDS_TEXT];

    in.refusal = NULL;
    in.unlike = false;
    while (in.n_kinds < 2 && halve(&in) &&
           work / in.nodes / in.ranks_per_node < AS_FAST * all_s) {
        step_s = step_of(a, &in, AS_FAST * all_s);
        if (step_s > 0) {
            best = in;
            enough_s = step_s;
        }
    }
    if (enough_s == 0)
        return say_what_to_buy(a, err);
    return plan_lines_add(
        &a->advice->words, err,
        "fewer ranks are %s: with --nodes %d --ranks-per-node %d a step takes "
        "%s",
        enough_s < all_s ? "better" : "enough", best.nodes, best.ranks_per_node,
        merak_seconds_text(enough_s, step));
}

/* --- together ------------------------------------------------------------- */

enum merak_status plan_advice_make(struct plan_auto *plan,
                                   const struct merak_search_result *result,
                                   struct plan_advice *advice,
                                   struct merak_error *err)
{
    double all_s = plan->opt->search_seconds;
    double seconds = fmin(all_s * TIME_SHARE, all_s - result->took_s);
    struct asked a = {.plan = plan,
                      .result = result,
                      .until_ns = INT64_MAX,
                      .advice = advice};
    enum merak_status rc;

    *advice = (struct plan_advice){
        .counts = plan_rate_of(result->choice[0].cuts.letter, 1, 1, 1).what};
    if (all_s > 0)
        a.until_ns = merak_clock_ns() + (int64_t)(seconds * 1e9);
    for (int i = 0; i < N_RESOURCES; i++)
        a.gain[i] = -1;
    for (int i = 0; i < N_CHANGES; i++)
        try_change(&a, i);
    rc = say_what_binds(&a, err);
    if (rc == MERAK_OK)
        rc = say_size(&a, err);
    if (rc == MERAK_OK)
        rc = say_margin(&a, err);
    if (rc == MERAK_OK)
        rc = plan_commands_make(plan, &result->choice[0].plan,
                                &advice->commands, err);
    return rc;
}

void plan_advice_fini(struct plan_advice *advice)
{
    for (int i = 0; i < advice->words.n; i++)
        free(advice->words.line[i]);
    for (int i = 0; i < advice->commands.n; i++)
        free(advice->commands.line[i]);
    *advice = (struct plan_advice){.n_changes = 0};
}

void plan_advice_print(const struct plan_advice *advice)
{
    char step[MERAK_SECONDS_TEXT];

    putchar('\n');
    for (int i = 0; i < advice->words.n; i++)
        puts(advice->words.line[i]);
    if (advice->n_changes > 0)
        printf("\n%-52s %10s %8s/s %10s\n",
               "what would change it (same degrees, unless said)", "step",
               advice->counts, "GPU-hours");
    for (int i = 0; i < advice->n_changes; i++) {
        const struct plan_change *c = &advice->change[i];

        if (c->step_s == 0)
            printf("  %-50s %10s\n", c->what, "no plan");
        else
            printf("  %-50s %10s %9.2fx %9.2fx\n", c->what,
                   merak_seconds_text(c->step_s, step), c->tokens_per_s,
                   c->gpu_hours);
    }
    puts("\nwhat to type:");
    for (int i = 0; i < advice->commands.n; i++)
        printf("  %s\n", advice->commands.line[i]);
    putchar('\n');
}
