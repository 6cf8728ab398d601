/* SPDX-License-Identifier: Apache-2.0 */
/* test_requests.c - what holds of every search, for random requests
 *
 *   unit/requests.t [FIRST [COUNT]]
 *
 * A model, a machine, a limit of memory and some pinned choices are drawn;
 * larger ones at night.  A request that breaks a rule is printed with its
 * number, by which it can be repeated.
 */
#include "config.h"

#include "unit/all_rows.h"
#include "unit/search/changes.h"
#include "unit/gpt2_config.h"
#include "unit/near.h"

#include "base/rng.h"
#include "io/plan_file.h"
#include "partitioner/search/search.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUESTS (test_all_rows() ? 500 : 60)

/* A sum of a step's seconds in another order. */
#define ROUNDING 1e-9
/* What a plan that is named may be better than the chosen one when it is
 * pinned: its cuts and what it recomputes are then searched again. */
#define RUNNER 1.005

/* --- drawing -------------------------------------------------------------- */

struct draws {
    uint64_t key, at;
};

static size_t draw(struct draws *d, size_t n)
{
    return (size_t)(merak_rng_mix(d->key, d->at++) % n);
}

#define ONE_OF(d, list) ((list)[draw(d, sizeof(list) / sizeof(*(list)))])

struct request {
    uint64_t seed;
    struct merak_hf_config config;
    struct merak_device device;
    struct merak_search_input in;
    int broken; /* rules */
};

static void draw_model(struct draws *d, struct merak_hf_config *config)
{
    static const size_t few[] = {1, 2, 2, 3};
    static const size_t many[] = {2, 4, 6, 8, 12, 16, 24, 32, 40};
    static const size_t heads[] = {4, 6, 8, 12, 16, 32};
    static const size_t vocabs[] = {1000, 32000, 50257, 128256};
    size_t n_heads = ONE_OF(d, heads);

    *config =
        gpt2_config(test_all_rows() ? ONE_OF(d, many) : ONE_OF(d, few),
                    n_heads * (64 << draw(d, 2)), n_heads, ONE_OF(d, vocabs));
    config->tied = draw(d, 2) == 0;
    if (draw(d, 2) == 0)
        return;
    config->family = MERAK_LLAMA;
    if (n_heads % 4 == 0 && draw(d, 2) == 0)
        config->kv_heads = n_heads / 4;
    config->ffn = config->hidden * 7 / 2;
    config->rope.theta = 1e4f;
    config->attn_bias = config->mlp_bias = false;
}

/* About: what a rank keeps from step to step, if all share it out. */
static double state_bytes(const struct request *r)
{
    const struct merak_hf_config *c = &r->config;
    double gate = c->family == MERAK_LLAMA;
    double layer = (double)c->hidden * (double)c->hidden *
                       (2 + 2 * (double)c->kv_heads / (double)c->heads) +
                   (2 + gate) * (double)c->hidden * (double)c->ffn;
    double all = layer * (double)c->layers +
                 (c->tied ? 1 : 2) * (double)c->hidden * (double)c->vocab;

    return 16 * all / (r->in.nodes * r->in.ranks_per_node);
}

static void draw_pin(struct draws *d, struct merak_choices *pin)
{
    static const int degrees[] = {1, 2, 3, 4, 8};
    const struct merak_schedule *const *all = merak_schedules();
    size_t n = 0;

    switch (draw(d, 9)) {
    case 0:
        pin->tp = ONE_OF(d, degrees);
        break;
    case 1:
        pin->pp = ONE_OF(d, degrees);
        break;
    case 2:
        pin->dp = ONE_OF(d, degrees);
        break;
    case 3:
        pin->micro_batch = 1 + draw(d, 4);
        break;
    case 4:
        while (all[n] != NULL)
            n++;
        pin->schedule = all[draw(d, n)]->name;
        break;
    case 5:
        pin->chunks = 1 + (int)draw(d, 3);
        break;
    case 6:
        pin->zero = (int)draw(d, MERAK_MAX_ZERO + 1);
        pin->given[MERAK_CHOICE_ZERO] = true;
        break;
    case 7:
        pin->recompute = (enum merak_recompute)draw(d, 3);
        pin->given[MERAK_CHOICE_RECOMPUTE] = true;
        break;
    default:
        pin->order_tp_pp_dp = draw(d, 2) == 0;
        pin->given[MERAK_CHOICE_ORDER] = true;
    }
}

static void request_draw(struct request *r, uint64_t seed)
{
    static const char *const devices[] = {"a100",    "h100", "h100-2023",
                                          "rtx3090", "h200", "cpu"};
    static const int ranks[] = {1, 2, 3, 4, 6, 8, 8, 8};
    static const int few[] = {1, 1, 1, 2, 3}, many[] = {1, 2, 3, 4, 7, 8, 16};
    static const size_t lengths[] = {256, 512, 1024, 2048};
    struct draws d = {merak_rng_key(seed, "request"), 0};
    size_t pins;

    *r = (struct request){.seed = seed};
    draw_model(&d, &r->config);
    assert_int_equal(merak_device_find(ONE_OF(&d, devices), &r->device, NULL),
                     MERAK_OK);
    r->in = (struct merak_search_input){
        .describe = merak_hf_describe,
        .arg = &r->config,
        .seq = ONE_OF(&d, lengths),
        .dtype = merak_device_dtype(&r->device),
        .nodes = test_all_rows() ? ONE_OF(&d, many) : ONE_OF(&d, few),
        .ranks_per_node =
            test_all_rows() ? ONE_OF(&d, ranks) : ranks[draw(&d, 5)],
        .threads = 1,
        .device = &r->device,
        .direct = r->device.direct && draw(&d, 2) == 0};
    r->in.global_batch = test_all_rows() ? (1 + draw(&d, 8)) << draw(&d, 7)
                                         : (1 + draw(&d, 6)) << draw(&d, 3);
    r->config.positions = r->in.seq;
    if (draw(&d, 3) == 0)
        r->in.memory_bytes =
            (size_t)(state_bytes(r) * pow(2, (double)draw(&d, 64) / 16 - 0.5));
    for (pins = draw(&d, 3); pins > 0; pins--)
        draw_pin(&d, &r->in.pin);
}

/* --- rules ---------------------------------------------------------------- */

static void breaks(struct request *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void breaks(struct request *r, const char *format, ...)
{
    char text[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    print_message("# request %llu (%s, %zu layers of %zu, %zu heads, "
                  "vocabulary %zu, %zu tokens; %d x %d %s, batch %zu, "
                  "%zu bytes): %s\n",
                  (unsigned long long)r->seed,
                  r->config.family == MERAK_LLAMA ? "llama" : "gpt2",
                  r->config.layers, r->config.hidden, r->config.heads,
                  r->config.vocab, r->in.seq, r->in.nodes, r->in.ranks_per_node,
                  r->device.name, r->in.global_batch, r->in.memory_bytes, text);
    r->broken++;
}

/* Seconds of the plan that is found; DBL_MAX, and why, if there is none. */
static double step_of(const struct merak_search_input *in,
                      struct merak_error *err)
{
    struct merak_search_result *result = NULL;
    double step_s;

    if (merak_search(in, &result, err) != MERAK_OK)
        return DBL_MAX;
    step_s = result->choice[0].step_s;
    merak_search_destroy(result);
    return step_s;
}

static void describe(const struct merak_plan *plan, char text[MERAK_PLAN_TEXT])
{
    merak_plan_describe(plan, text, MERAK_PLAN_TEXT);
}

static void adds_up(struct request *r, const struct merak_search_result *result)
{
    for (int i = 0; i < result->n_choices; i++) {
        const struct merak_search_choice *c = &result->choice[i];
        double sum = 0;

        for (int p = 0; p < MERAK_PART_COUNT; p++) {
            sum += c->part_s[p];
            if (!(c->part_s[p] >= 0))
                breaks(r, "choice %d spends %g s on %s", i, c->part_s[p],
                       merak_search_part_name((enum merak_search_part)p));
        }
        if (!(fabs(sum - c->step_s) <= 1e-6 * c->step_s))
            breaks(r, "parts of choice %d add up to %g of %g s", i, sum,
                   c->step_s);
    }
    if (!(result->least_s <= result->bound_s) ||
        !(result->bound_s <= result->choice[0].step_s))
        breaks(r, "no plan takes less than %g or %g s, and this one %g",
               result->least_s, result->bound_s, result->choice[0].step_s);
    if (result->choice[0].memory_bytes > result->memory_limit)
        breaks(r, "it needs %zu of %zu bytes", result->choice[0].memory_bytes,
               result->memory_limit);
}

static void more_memory_is_no_slower(struct request *r,
                                     const struct merak_search_result *result)
{
    struct merak_search_input in = r->in;
    double step_s;

    in.memory_bytes = result->memory_limit + result->memory_limit / 3;
    step_s = step_of(&in, NULL);
    if (step_s > result->choice[0].step_s * (1 + ROUNDING))
        breaks(r, "with more memory %g s instead of %g", step_s,
               result->choice[0].step_s);
}

/* Twice the nodes, whose ranks all have a part of the same batch, are faster,
 * or their bound leaves it open that half of them are: then `merak plan` looks
 * for that (runtime/plan/advice.c). */
static void more_nodes_are_no_slower(struct request *r,
                                     const struct merak_search_result *result)
{
    const double step_s = result->choice[0].step_s;
    struct merak_search_result *more = NULL;
    struct merak_search_input in = r->in;

    in.nodes *= 2;
    if (merak_search(&in, &more, NULL) != MERAK_OK)
        return; /* what is pinned does not divide them */
    if (more->choice[0].step_s > step_s * (1 + ROUNDING) &&
        !(more->least_s > 0 && 2 * more->least_s <= step_s * (1 + ROUNDING)))
        breaks(r, "on %d nodes %g s instead of %g, and at least %g", in.nodes,
               more->choice[0].step_s, step_s, more->least_s);
    merak_search_destroy(more);
}

/* What a search of nothing but a saved plan says of it: the same step, stages
 * that begin where they did and take as much memory, and the same least that
 * kernels alone take.  The bound is that of its degrees alone: no less than of
 * all that were looked at. */
static void compare_saved(struct request *r,
                          const struct merak_search_result *result,
                          const struct merak_search_result *saved)
{
    const struct merak_search_choice *a = &result->choice[0];
    const struct merak_search_choice *b = &saved->choice[0];

    if (fabs(b->step_s - a->step_s) > ROUNDING * a->step_s)
        breaks(r, "%g s instead of %g once it is saved", b->step_s, a->step_s);
    if (b->memory_bytes != a->memory_bytes)
        breaks(r, "%zu bytes instead of %zu once it is saved", b->memory_bytes,
               a->memory_bytes);
    for (int s = 0; s < a->plan.pp; s++) {
        if (saved->stage[s].first_segment != result->stage[s].first_segment ||
            saved->stage[s].n_segments != result->stage[s].n_segments)
            breaks(r,
                   "stage %d is %d segments from %d, not %d from %d, once "
                   "it is saved",
                   s, saved->stage[s].n_segments, saved->stage[s].first_segment,
                   result->stage[s].n_segments, result->stage[s].first_segment);
    }
    if (fabs(saved->least_s - result->least_s) > ROUNDING * result->least_s)
        breaks(r, "kernels alone take %g s instead of %g once it is saved",
               saved->least_s, result->least_s);
    if (saved->bound_s < result->bound_s * (1 - ROUNDING) ||
        saved->bound_s > b->step_s * (1 + ROUNDING))
        breaks(r, "a bound of %g s once it is saved, %g before, of %g",
               saved->bound_s, result->bound_s, b->step_s);
}

/* As a run or `merak plan --plan` replays it, through its file. */
static void saved_predicts_the_same(struct request *r,
                                    const struct merak_search_result *result)
{
    const struct merak_search_choice *chosen = &result->choice[0];
    struct merak_plan_file out = {.plan = chosen->plan,
                                  .model = "0123456789abcdef",
                                  .seq = r->in.seq,
                                  .global_batch = r->in.global_batch};
    struct merak_search_input in = r->in;
    struct merak_plan_file *file = NULL;
    struct merak_error err = {0};
    struct merak_search_result *saved = NULL;
    json_t *object;
    char *text;

    out.plan.dtype = r->in.dtype;
    out.plan.memory_bytes = 0;
    object = merak_plan_file_object(&out);
    text = object == NULL ? NULL : json_dumps(object, 0);
    json_decref(object);
    assert_non_null(text);
    if (merak_plan_file_decode(text, strlen(text), "saved", &file, &err) !=
        MERAK_OK) {
        breaks(r, "saved, it cannot be read: %s", err.text);
        free(text);
        return;
    }
    free(text);
    merak_choices_of(&file->plan, &in.pin);
    if (merak_search(&in, &saved, &err) != MERAK_OK)
        breaks(r, "saved, it is refused: %s", err.text);
    else
        compare_saved(r, result, saved);
    merak_search_destroy(saved);
    merak_plan_file_destroy(file);
}

static void no_runner_up_is_better(struct request *r,
                                   const struct merak_search_result *result)
{
    const struct merak_search_choice *chosen = &result->choice[0];
    char best[MERAK_PLAN_TEXT], text[MERAK_PLAN_TEXT];

    for (int i = 1; i < result->n_choices; i++) {
        struct merak_search_input in = r->in;
        double step_s;

        merak_choices_of(&result->choice[i].plan, &in.pin);
        in.pin.list = (struct merak_given_lists){.cut = NULL};
        if (result->choice[i].plan.recompute == MERAK_RECOMPUTE_AUTO)
            in.pin.given[MERAK_CHOICE_RECOMPUTE] = false;
        step_s = step_of(&in, NULL);
        if (step_s * RUNNER >= chosen->step_s)
            continue;
        describe(&chosen->plan, best);
        describe(&result->choice[i].plan, text);
        breaks(r, "%s takes %g s; pinned, %s (%g s, %s) %g", best,
               chosen->step_s, text, result->choice[i].step_s,
               result->choice[i].simulated ? "simulated" : "estimated", step_s);
    }
}

static void a_change_that_is_named_works(struct request *r,
                                         const struct merak_error *refusal)
{
    const char *change = changes_first(refusal->text);

    while (change != NULL) {
        struct merak_search_input in;
        struct merak_error err = {0};

        change = changes_make(change, &r->in, &in);
        if (step_of(&in, &err) == DBL_MAX)
            breaks(r, "\"%s\", and then: \"%s\"", refusal->text, err.text);
    }
}

/* Returns whether there is a plan. */
static bool keeps_the_rules(struct request *r)
{
    struct merak_search_result *result = NULL;
    struct merak_error err = {0};
    enum merak_status rc = merak_search(&r->in, &result, &err);

    if (rc != MERAK_OK) {
        if (rc != MERAK_ERR_CONFIG && rc != MERAK_ERR_CORRUPT &&
            rc != MERAK_ERR_UNSUPPORTED)
            breaks(r, "status %d: %s", (int)rc, err.text);
        a_change_that_is_named_works(r, &err);
        return false;
    }
    adds_up(r, result);
    more_memory_is_no_slower(r, result);
    if (test_all_rows() || r->seed % 4 == 0) /* the rule that takes longest */
        more_nodes_are_no_slower(r, result);
    saved_predicts_the_same(r, result);
    no_runner_up_is_better(r, result);
    merak_search_destroy(result);
    return true;
}

static uint64_t first_seed;
static int n_seeds;

static void random_requests_keep_the_rules(void **state)
{
    int plans = 0, broken = 0;

    (void)state;
    for (int i = 0; i < n_seeds; i++) {
        static struct request r;

        request_draw(&r, first_seed + (uint64_t)i);
        plans += keeps_the_rules(&r);
        broken += r.broken > 0;
    }
    print_message("# %d requests, %d with a plan; %d break a rule\n", n_seeds,
                  plans, broken);
    assert_int_equal(broken, 0);
    assert_true(plans >= n_seeds / 2);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_requests_keep_the_rules),
    };

    first_seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    n_seeds = argc > 2 ? atoi(argv[2]) : argc > 1 ? 1 : REQUESTS;
    return cmocka_run_group_tests_name("requests", tests, NULL, NULL);
}
