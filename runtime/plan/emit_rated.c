/* SPDX-License-Identifier: Apache-2.0 */
/* emit_rated.c - a plan that was searched for, as another trainer runs it: what
 * that takes is predicted, too
 *
 * Of what that trainer can recompute everywhere, the least that fits is taken,
 * and of its schedules and levels of ZeRO, those with which it is fastest.
 */
#include "config.h"

#include "runtime/plan/auto.h"
#include "runtime/plan/trainers.h"

#include "base/error.h"
#include "base/size.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIME_SHARE 0.25 /* of --search-seconds, for a prediction */

struct rated {
    struct plan_auto *plan;
    const struct plan_trainer *trainer;
    const struct merak_search_result *result; /* of what it was searched with */
    struct merak_plan runs;                   /* as the trainer runs it */
    struct plan_layers layers;
    int *place; /* cut points between them, or NULL */
    double step_s;
    bool given[MERAK_CHOICE_COUNT]; /* they are not changed without a word */
};

/* What options gave; of a saved plan, by what its ranks are placed. */
static void find_given(struct rated *r)
{
    static const enum merak_choice_id placed[] = {
        MERAK_CHOICE_TP, MERAK_CHOICE_PP, MERAK_CHOICE_DP, MERAK_CHOICE_ORDER};

    if (r->plan->opt->saved.n == 0) {
        memcpy(r->given, r->plan->opt->choice.given, sizeof(r->given));
        return;
    }
    for (size_t i = 0; i < sizeof(placed) / sizeof(*placed); i++)
        r->given[placed[i]] = true;
}

/* As many layers in each part, or one more in the first ones. */
static enum merak_status divide_layers(struct rated *r, struct merak_error *err)
{
    size_t parts = (size_t)merak_plan_own_parts(&r->runs), all = 0;
    int *count = calloc(parts, sizeof(*count));

    if (count == NULL)
        return merak_fail_nomem(err, parts * sizeof(*count));
    for (int i = 0; i < r->layers.n; i++)
        all += (size_t)r->layers.count[i];
    for (size_t i = 0; i < parts; i++)
        count[i] = (int)(all / parts + (i < all % parts));
    free(r->layers.count);
    r->layers = (struct plan_layers){(int)parts, count, 0};
    return MERAK_OK;
}

/* Are the plan's parts kept?  Not if they are others, or in another order, or
 * if one between first and last has no whole layer. */
static bool keeps_layers(const struct rated *r, const struct merak_plan *chosen)
{
    if (!r->trainer->cuts_layers ||
        r->layers.n != merak_plan_own_parts(&r->runs) ||
        strcmp(r->runs.schedule, chosen->schedule) != 0)
        return false;
    for (int i = 1; i + 1 < r->layers.n; i++) {
        if (r->layers.count[i] == 0)
            return false;
    }
    return true;
}

/* The layers of the parts as the trainer has them, and where that cuts. */
static enum merak_status find_layers(struct rated *r,
                                     const struct merak_plan *chosen,
                                     struct merak_error *err)
{
    const struct merak_search_input *in = &r->plan->in;
    struct merak_planned *planned = NULL;
    enum merak_status rc =
        merak_plan_build(chosen, in->seq, in->describe, in->arg,
                         MERAK_PLAN_NONE, NULL, &planned, err);

    if (rc == MERAK_OK)
        rc = plan_layers_of(planned, &r->layers, err);
    if (rc == MERAK_OK && !keeps_layers(r, chosen))
        rc = divide_layers(r, err);
    if (rc == MERAK_OK && r->layers.n > 1) {
        r->place = calloc((size_t)r->layers.n, sizeof(*r->place));
        if (r->place == NULL)
            rc = merak_fail_nomem(err, (size_t)r->layers.n * sizeof(int));
        else if (merak_stages_cut_layers(planned->sharded, r->layers.count,
                                         r->layers.n, r->place,
                                         NULL) != MERAK_OK) {
            free(r->place); /* cut by work instead */
            r->place = NULL;
        }
    }
    merak_planned_destroy(planned);
    return rc;
}

/* Predict its step if it recomputes so; false if it does not fit. */
static bool predict(struct rated *r, enum merak_recompute recompute)
{
    struct merak_search_input in = r->plan->in;
    struct merak_search_result *result = NULL;

    r->runs.recompute = recompute;
    merak_choices_of(&r->runs, &in.pin);
    in.pin.list =
        (struct merak_given_lists){.cut = r->place, .n_cut = r->layers.n - 1};
    in.pin.given[MERAK_CHOICE_CUT] = r->place != NULL;
    in.seconds *= TIME_SHARE;
    in.refusal = NULL;
    in.progress = NULL;
    if (merak_search(&in, &result, NULL) != MERAK_OK)
        return false;
    r->step_s = result->choice[0].step_s;
    merak_search_destroy(result);
    return true;
}

static void predict_any(struct rated *r)
{
    static const enum merak_recompute more[] = {
        MERAK_RECOMPUTE_NONE, MERAK_RECOMPUTE_SELECTIVE, MERAK_RECOMPUTE_FULL};
    bool fits = false;

    if (r->given[MERAK_CHOICE_RECOMPUTE]) {
        predict(r, r->runs.recompute);
        return;
    }
    for (size_t i = 0; i < sizeof(more) / sizeof(*more) && !fits; i++)
        fits = predict(r, more[i]);
}

const char *plan_emit_training(const struct plan_options *opt,
                               char text[PLAN_TRAINING_TEXT])
{
    const struct {
        bool given;
        const char *name;
    } of[] = {{opt->lora.rank > 0, "--lora-rank"},
              {opt->rules.n > 0, "--freeze"},
              {opt->objective.kind != MERAK_CROSS_ENTROPY, "--objective"},
              {opt->objective.balance.aux >= 0, "--router-aux"},
              {opt->objective.balance.z >= 0, "--router-z"},
              {opt->objective.balance.bias_rate >= 0, "--router-bias-rate"},
              {opt->objective.capacity > 0, "--expert-capacity"},
              {opt->doc_mask, "--doc-mask"}};
    size_t at = 0;

    text[0] = '\0';
    for (size_t i = 0; i < sizeof(of) / sizeof(*of); i++) {
        if (of[i].given)
            at += (size_t)snprintf(text + at, PLAN_TRAINING_TEXT - at, "%s%s",
                                   at > 0 ? ", " : "", of[i].name);
    }
    return text;
}

/* The plan of a search as the trainer runs it, and what that takes. */
static enum merak_status rate(struct rated *r, struct plan_auto *plan,
                              const struct plan_trainer *trainer,
                              const struct merak_search_result *result,
                              struct merak_error *err)
{
    const struct merak_search_choice *best = &result->choice[0];
    enum merak_status rc;

    *r = (struct rated){.plan = plan,
                        .trainer = trainer,
                        .result = result,
                        .runs = plan_trainer_adapt(trainer, &best->plan)};
    find_given(r);
    rc = find_layers(r, &best->plan, err);
    if (rc == MERAK_OK)
        predict_any(r);
    return rc;
}

static void rated_fini(struct rated *r)
{
    free(r->place);
    free(r->layers.count);
}

/* --- what the trainer runs best --------------------------------------------
 */

/* A choice that is pinned where options leave it open. */
struct attempt {
    enum merak_choice_id id;
    const char *schedule;
    int zero;
};

/* The best plan of all may be a bad one once a trainer has its own schedule, or
 * shares out more: it is searched for with each of these, too.  Returns how
 * many. */
static int
list_attempts(const struct plan_auto *plan, const struct plan_trainer *t,
              const struct merak_plan *found,
              struct attempt to[PLAN_TRAINER_SCHEDULES + MERAK_MAX_ZERO])
{
    const bool *given = plan->in.pin.given;
    int n = 0;

    if (plan->opt->saved.n > 0)
        return 0;
    for (int i = 0; i < PLAN_TRAINER_SCHEDULES; i++) {
        const char *name = t->schedule[i].ours;

        if (name != NULL && !given[MERAK_CHOICE_SCHEDULE] &&
            strcmp(name, found->schedule) != 0)
            to[n++] = (struct attempt){MERAK_CHOICE_SCHEDULE, name, 0};
    }
    for (int z = t->least_zero; z <= MERAK_MAX_ZERO; z++) {
        if (t->least_zero > MERAK_ZERO_STATE && !given[MERAK_CHOICE_ZERO] &&
            z != found->zero)
            to[n++] = (struct attempt){MERAK_CHOICE_ZERO, NULL, z};
    }
    return n;
}

/* Search with one more choice pinned; *r and *result_p are replaced if the
 * trainer runs what is found faster. */
static void attempt_one(struct plan_auto *plan, const struct attempt *a,
                        double seconds, struct rated *r,
                        struct merak_search_result **result_p)
{
    struct merak_search_input in = plan->in;
    struct merak_search_result *result = NULL;
    struct rated other;

    in.seconds = seconds;
    in.refusal = NULL;
    in.pin.given[a->id] = true;
    if (a->schedule != NULL)
        in.pin.schedule = a->schedule;
    else
        in.pin.zero = a->zero;
    if (merak_search(&in, &result, NULL) != MERAK_OK)
        return;
    if (rate(&other, plan, r->trainer, result, NULL) == MERAK_OK &&
        other.step_s > 0 && (r->step_s == 0 || other.step_s < r->step_s)) {
        rated_fini(r);
        merak_search_destroy(*result_p);
        *r = other;
        *result_p = result;
        return;
    }
    rated_fini(&other);
    merak_search_destroy(result);
}

static void attempt_all(struct plan_auto *plan, struct rated *r,
                        struct merak_search_result **result_p)
{
    struct attempt a[PLAN_TRAINER_SCHEDULES + MERAK_MAX_ZERO];
    int n = list_attempts(plan, r->trainer, &r->result->choice[0].plan, a);

    for (int i = 0; i < n; i++)
        attempt_one(plan, &a[i], plan->opt->search_seconds / 2 / n, r,
                    result_p);
}

enum merak_status plan_emit_rated(struct plan_auto *plan,
                                  const struct merak_search_result *result,
                                  struct merak_error *err)
{
    const struct merak_search_choice *own = &result->choice[0], *best;
    enum plan_emit what = (enum plan_emit)plan->opt->emit;
    struct merak_search_result *other = NULL;
    char training[PLAN_TRAINING_TEXT];
    struct rated r;
    enum merak_status rc = rate(&r, plan, plan_trainer_of(what), result, err);
    int lost = 0;

    if (rc == MERAK_OK) {
        attempt_all(plan, &r, &other);
        best = &r.result->choice[0];
        rc = plan_emit(what,
                       &(struct plan_emitted){
                           .plan = &r.runs,
                           .seq = plan->in.seq,
                           .global_batch = plan->in.global_batch,
                           .config = plan_model_config(&plan->model),
                           .layers = r.layers,
                           .own = best != own ? &own->plan : NULL,
                           .own_s = own->step_s,
                           .wanted = &best->plan,
                           .wanted_s = best->step_s,
                           .step_s = r.step_s,
                           .given = r.given,
                           .training = plan_emit_training(plan->opt, training)},
                       stdout, stderr, &lost, err);
    }
    if (rc == MERAK_OK)
        rc = plan_emit_status(plan->opt, lost, err);
    rated_fini(&r);
    merak_search_destroy(other);
    return rc;
}
