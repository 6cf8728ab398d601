/* SPDX-License-Identifier: Apache-2.0 */
/* advice.c - what binds a plan, and what would change it
 *
 * What binds is that of which twice as much would shorten a step most.
 */
#include "config.h"

#include "runtime/plan/advice.h"
#include "runtime/plan/plan_changes.h"
#include "runtime/plan/draw.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/size.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIME_SHARE 0.25   /* of --search-seconds; a search leaves some */
#define LITTLE_LEFT 0.02  /* of the limit of memory */
#define NO_GAIN 0.01      /* .. nor telling */
#define SHOWN_GAIN 0.0005 /* not "0.0%": rows below say so */
#define AS_FAST 1.1       /* times a step: fewer ranks are enough */

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

static enum merak_status say_what_binds(struct plan_asked *a,
                                        struct merak_error *err)
{
    const struct merak_search_result *r = a->result;
    enum plan_resource most = PLAN_COMPUTE;
    char where[PLAN_WHERE_TEXT];

    /* What kernels of twice the FLOP/s would save at most. */
    a->gain[PLAN_COMPUTE] = compute_share(&r->choice[0]) / 2;
    for (int i = PLAN_COMPUTE; i < PLAN_RESOURCES; i++)
        most = a->gain[i] > a->gain[most] ? (enum plan_resource)i : most;
    return plan_lines_add(&a->advice->words, err,
                          "what binds: %s; kernels take %.1f%% of the step%s",
                          plan_resource_text[most].binds,
                          100 * compute_share(&r->choice[0]),
                          plan_report_where(r, where));
}

/* "; twice the memory of a rank would save 1.2% of the step, ..": all but one
 * that save something. */
static void list_gains(const struct plan_asked *a, int but, char *text,
                       size_t bytes)
{
    size_t n = 0;

    text[0] = '\0';
    for (int i = PLAN_MEMORY; i <= PLAN_NET; i++) {
        if (a->gain[i] < SHOWN_GAIN || i == but || n >= bytes)
            continue;
        n += (size_t)snprintf(text + n, bytes - n, "%s%s%s %.1f%%%s",
                              n > 0 ? ", " : "; ", plan_resource_text[i].twice,
                              n > 0 ? "" : " would save", 100 * a->gain[i],
                              n > 0 ? "" : " of the step");
    }
}

static enum merak_status say_what_to_buy(struct plan_asked *a,
                                         struct merak_error *err)
{
    const struct plan_change *more = a->more_nodes;
    enum plan_resource most = PLAN_MEMORY;
    char gains[256], buy[160];

    for (int i = PLAN_MEMORY; i <= PLAN_NET; i++)
        most = a->gain[i] > a->gain[most] ? (enum plan_resource)i : most;
    if (a->gain[most] < 0 && more == NULL)
        return MERAK_OK; /* no change was tried, for kinds or lack of time */
    list_gains(a, a->gain[most] >= PLAN_SMALL_GAIN ? (int)most : -1, gains,
               sizeof(gains));
    if (a->gain[most] >= PLAN_SMALL_GAIN)
        snprintf(buy, sizeof(buy), "%s, which saves %.1f%% of the step",
                 plan_resource_text[most].twice, 100 * a->gain[most]);
    else if (more != NULL && more->gpu_hours < 2) /* half of the first ones */
        snprintf(buy, sizeof(buy),
                 "more nodes: %s train %.2f times as fast, for %.2f times the "
                 "GPU-hours",
                 more->what, more->tokens_per_s, more->gpu_hours);
    else if (a->gain[PLAN_BATCH] >= PLAN_SMALL_GAIN)
        snprintf(buy, sizeof(buy),
                 "nothing; more %s a step would help, see below",
                 plan_batch_word(a->plan));
    else
        snprintf(buy, sizeof(buy), "nothing that is modelled would help much");
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

static enum merak_status say_margin(const struct plan_asked *a,
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
    if (just_fits && a->gain[PLAN_MEMORY] >= 0 &&
        a->gain[PLAN_MEMORY] < NO_GAIN)
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
static enum merak_status say_size(struct plan_asked *a, struct merak_error *err)
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
        if (!merak_links_may_have(&plan->device.links, in.nodes))
            continue;
        step_s = plan_changed_step(a, &in, AS_FAST * all_s);
        if (step_s > 0) {
            best = in;
            enough_s = step_s;
        }
    }
    if (enough_s == 0)
        return say_what_to_buy(a, err);
    return plan_lines_add(
        &a->advice->words, err,
        "fewer ranks are %s: with --nodes %d --ranks-per-node %d%s a step "
        "takes "
        "%s",
        enough_s < all_s ? "better" : "enough", best.nodes, best.ranks_per_node,
        plan->opt->machine.islands != NULL && best.nodes < plan->in.nodes
            ? ", of one island,"
            : "",
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
    struct plan_asked a = {.plan = plan,
                           .result = result,
                           .until_ns = INT64_MAX,
                           .advice = advice};
    enum merak_status rc;

    *advice = (struct plan_advice){
        .counts = plan_rate_of(result->choice[0].cuts.letter, 1, 1, 1).what};
    if (all_s > 0)
        a.until_ns = merak_clock_ns() + (int64_t)(seconds * 1e9);
    plan_changes_try(&a);
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
