/* SPDX-License-Identifier: Apache-2.0 */
/* loop.c - the steps of a run: load, run, agree, report, evaluate, save */
#include "config.h"

#include "runtime/train/loads.h"
#include "runtime/train/losses.h"
#include "runtime/train/metrics.h"
#include "runtime/train/pace.h"
#include "runtime/train/trainer.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Set by SIGUSR1, SIGTERM and SIGINT: save at the end of the step and exit
 * with a request to resubmit. */
static volatile sig_atomic_t stop_asked;

/* Printed on Ctrl-C by one of the tasks; it is prepared, since a handler may
 * only call write(2).  NULL: another task prints it. */
static const char *interrupt_line;

static void on_stop_signal(int sig)
{
    int saved = errno;
    ssize_t n = 0;

    stop_asked = 1;
    if (sig == SIGINT && interrupt_line != NULL)
        n = write(STDERR_FILENO, interrupt_line, strlen(interrupt_line));
    (void)n; /* the run is saved even if the terminal is gone */
    errno = saved;
}

/* Handlers have their own stack: oneDNN's matrix products point the stack
 * pointer into a workspace on the heap, and a signal's frame would overwrite
 * what is below it.  Without this stack, signals are not caught. */
static char handler_stack[64 << 10];

/* SIGINT is caught once: a second one ends the program as usual.  If it is
 * ignored, as in the background of a shell script, it stays ignored. */
static void catch_signals(const struct merak_trainer *t)
{
    const stack_t stack = {.ss_sp = handler_stack,
                           .ss_size = sizeof(handler_stack)};
    struct sigaction was, sa = {.sa_handler = on_stop_signal,
                                .sa_flags = SA_RESTART | SA_ONSTACK};

    if (sigaltstack(&stack, NULL) != 0)
        return;
    if (t->program->rank == 0)
        interrupt_line =
            t->opt.ckpt.dir != NULL
                ? "merak: interrupted: the step is finished and saved; a "
                  "second signal ends the run at once\n"
                : "merak: interrupted: the step is finished, nothing is saved "
                  "(no --ckpt); a second signal ends the run at once\n";
    sigaction(SIGUSR1, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    /* A terminal was closed, unless nohup asked to go on.  In a program of a
     * user's it is UCX's, which has hidden what was asked for. */
    if (sigaction(SIGHUP, NULL, &was) == 0 && was.sa_handler == SIG_DFL)
        sigaction(SIGHUP, &sa, NULL);
    sa.sa_flags |= (int)SA_RESETHAND;
    if (sigaction(SIGINT, NULL, &was) == 0 && was.sa_handler != SIG_IGN)
        sigaction(SIGINT, &sa, NULL);
}

const volatile sig_atomic_t *merak_trainer_stop_flag(void)
{
    return &stop_asked;
}

static double seconds_since(int64_t start_ns)
{
    return merak_clock_since_s(start_ns);
}

/* Was this rank asked to stop, or is its time over? */
static bool should_stop(const struct merak_trainer *t)
{
    return stop_asked != 0 || (t->opt.max_seconds > 0 &&
                               seconds_since(t->start.ns) > t->opt.max_seconds);
}

/* A step without a token to predict has no gradient: AdamW would decay the
 * weights and move them on by what earlier steps left in its moments.  So its
 * learning rate is 0, which leaves them as they are. */
static void fill_step(const struct merak_trainer *t, struct merak_step *s)
{
    struct merak_shares shares;
    double n_shares;

    merak_losses_shares(t, MERAK_TRAIN, t->consumed, t->opt.global_batch,
                        &shares);
    n_shares = shares.all;
    memset(s, 0, sizeof(*s));
    memcpy(s->loss_scale, shares.scale, sizeof(s->loss_scale));
    s->seed = t->opt.seed;
    s->step = t->step;
    s->sample = t->consumed;
    s->lr = isinf(n_shares)
                ? 0
                : merak_learning_rate(&t->opt.optimizer, t->opt.steps, t->step);
    s->beta1 = t->opt.optimizer.beta1;
    s->beta2 = t->opt.optimizer.beta2;
    s->eps = t->opt.optimizer.eps;
    s->weight_decay = t->opt.optimizer.weight_decay;
    s->clip = t->opt.optimizer.clip;
    s->grad_scale = (float)(1 / n_shares);
    s->token_share =
        isinf(n_shares)
            ? 0
            : (float)(n_shares * (double)t->program->mesh.batch /
                      (double)t->opt.global_batch);
    s->train = true;
}

static enum merak_status run_engine(struct merak_trainer *t,
                                    struct merak_engine *engine,
                                    const struct merak_step *step,
                                    struct merak_error *err)
{
    enum merak_status rc;

    t->failure.running = engine;
    rc = merak_engine_run(engine, step, err);
    if (rc == MERAK_OK)
        rc = merak_slots_results(t, engine == t->engine ? t->program : t->eval,
                                 err);
    t->failure.broken = rc != MERAK_OK;
    if (rc == MERAK_OK)
        t->failure.running = NULL;
    return rc;
}

/* The global batches of a validation: of the first eval_samples samples of the
 * held-out split, rounded up. */
static uint64_t eval_runs(const struct merak_trainer *t, uint64_t *per_run_p)
{
    uint64_t per_run =
        (uint64_t)t->plan.microbatches * merak_plan_samples(&t->plan);
    uint64_t have = merak_samples_count(t->load.samples, MERAK_VALID);
    uint64_t want =
        t->opt.data.eval_samples < have ? t->opt.data.eval_samples : have;

    *per_run_p = per_run;
    return (want + per_run - 1) / per_run;
}

/* After each global batch: was any rank asked to stop? */
static enum merak_status agree_to_stop(struct merak_trainer *t, double *stop_p,
                                       struct merak_error *err)
{
    *stop_p = should_stop(t);
    return merak_all_reduce_sum(t->tr, &t->world, stop_p, 1, err);
}

/*
 * Add the mean over these samples, the same ones with every layout, of the
 * loss, and of what one of pairs consists of, to `sum`.  *stop_p is
 * set if a rank was asked to stop before it was known: a job script's notice
 * has to be long enough for the save, not for a validation.  A rank that was
 * asked computes no further (setup.c), so that only messages are left of its
 * global batch.
 */
static enum merak_status evaluate(struct merak_trainer *t,
                                  double sum[MERAK_STEP_LOSSES], double *stop_p,
                                  struct merak_error *err)
{
    uint64_t per_run, runs = eval_runs(t, &per_run);
    bool of_means = merak_losses_are_of_means(t);
    double own[MERAK_STEP_LOSSES];
    struct merak_shares shares;
    struct merak_step step;
    enum merak_status rc = MERAK_OK;

    merak_losses_shares(t, MERAK_VALID, 0, runs * per_run, &shares);
    if (of_means)
        shares.loss[0] /= (double)runs;
    fill_step(t, &step);
    step.train = false;
    t->load.split = MERAK_VALID;
    t->failure.doing = "validation";
    merak_debug("train", "step %llu  validation begins",
                (unsigned long long)t->step);
    for (uint64_t i = 0; i < runs && rc == MERAK_OK && *stop_p == 0; i++) {
        t->load.base = i * per_run;
        rc = run_engine(t, t->eval_engine, &step, err);
        if (rc != MERAK_OK)
            break;
        merak_losses_own(t, t->eval, &shares, own);
        for (int k = 0; k < MERAK_STEP_LOSSES; k++)
            sum[k] += own[k];
        rc = agree_to_stop(t, stop_p, err);
    }
    t->load.split = MERAK_TRAIN;
    if (rc != MERAK_OK || *stop_p != 0)
        return rc;
    for (int k = 0; k < MERAK_STEP_LOSSES && of_means; k++)
        sum[k] /= (double)runs;
    return merak_all_reduce_sum(t->tr, &t->world, sum, MERAK_STEP_LOSSES, err);
}

/* Samples without a token to predict have no loss. */
static bool has_held_out_targets(const struct merak_trainer *t)
{
    uint64_t per_run, runs = eval_runs(t, &per_run);
    struct merak_shares shares;

    if (runs == 0)
        return false;
    merak_losses_shares(t, MERAK_VALID, 0, runs * per_run, &shares);
    if (!isinf(shares.all))
        return true;
    if (t->program->rank == 0)
        merak_warn("train",
                   "the %llu held-out samples of a validation have no token to "
                   "predict: there is no held-out loss; a larger "
                   "--valid-fraction or --eval-samples may have some",
                   (unsigned long long)(runs * per_run));
    return false;
}

static bool evaluates(const struct merak_trainer *t)
{
    if (!t->has_valid)
        return false;
    if (t->step == t->opt.steps)
        return true;
    return t->opt.data.eval_every > 0 &&
           t->step % (uint64_t)t->opt.data.eval_every == 0;
}

static enum merak_status trace_step(struct merak_trainer *t,
                                    struct merak_error *err)
{
    if (t->reports.trace == NULL)
        return MERAK_OK;
    return merak_trace_step(t->reports.trace, merak_engine_records(t->engine),
                            t->program->n_instrs, err);
}

struct step_result {
    double loss[MERAK_STEP_LOSSES], stop, saving;
    float lr;
    bool empty; /* there was no token to predict, and so no loss */
};

/* One optimizer step, then one small sum over all ranks: the loss, whether any
 * was asked to stop, how many are busy with a save, and sometimes the compute
 * times of ranks. */
static enum merak_status run_step(struct merak_trainer *t,
                                  struct step_result *r,
                                  struct merak_error *err)
{
    struct merak_shares shares;
    struct merak_step step;
    double own[MERAK_STEP_SUM], *sum = merak_pace_sum(t);
    enum merak_status rc;

    if (sum == NULL)
        sum = own;
    fill_step(t, &step);
    t->failure.doing = "a step";
    t->load.base = t->consumed;
    merak_inputs_begin(t, t->step + 1 == t->opt.steps);
    rc = run_engine(t, t->engine, &step, err);
    if (rc != MERAK_OK)
        return rc;
    if (t->opt.output.dump_grads != NULL &&
        (t->step == 0 || t->step + 1 == t->opt.steps)) {
        rc = merak_grads_dump(t, step.grad_scale, err);
        if (rc != MERAK_OK)
            return rc;
    }
    merak_losses_shares(t, MERAK_TRAIN, t->load.base, t->opt.global_batch,
                        &shares);
    merak_losses_warn(t, &shares);
    merak_losses_own(t, t->program, &shares, sum);
    sum[MERAK_STEP_LOSSES] = should_stop(t);
    sum[MERAK_STEP_LOSSES + 1] = merak_saving_is_busy(t);
    merak_pace_note(t);
    rc = merak_all_reduce_sum(
        t->tr, &t->world, sum,
        MERAK_STEP_SUM + merak_pace_fill(t, MERAK_STEP_SUM), err);
    memcpy(r->loss, sum, sizeof(r->loss));
    r->lr = step.lr;
    r->empty = step.grad_scale == 0;
    r->stop = sum[MERAK_STEP_LOSSES];
    r->saving = sum[MERAK_STEP_LOSSES + 1];
    return rc;
}

static enum merak_status check_finite(const struct merak_trainer *t,
                                      double loss, double norm,
                                      struct merak_error *err)
{
    if (t->compute.backend->emulated || (isfinite(loss) && isfinite(norm)))
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_PARAM,
                      "step %llu: loss %g, gradient norm %g: not finite; "
                      "nothing was saved after it",
                      (unsigned long long)t->step, loss, norm);
}

/* Check the weights after the step: all ranks have the same sum, so the result
 * is the same. */
static enum merak_status check_valid_loss(const struct merak_trainer *t,
                                          double loss, struct merak_error *err)
{
    if (t->compute.backend->emulated || isfinite(loss))
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_PARAM,
                      "step %llu: held-out loss %g: not finite; the step was "
                      "not saved",
                      (unsigned long long)t->step, loss);
}

static double grad_norm(const struct merak_trainer *t)
{
    const float *norm = merak_slot_host(t, t->program, t->program->norm);

    return (double)norm[1];
}

/* Count a step without a token to predict; say so at the first. */
static void count_empty(struct merak_trainer *t)
{
    t->empty_steps++;
    if (t->empty_steps == 1 && t->program->rank == 0)
        merak_warn("train",
                   "step %llu: no token to predict in its %zu sequence%s of "
                   "%zu tokens: the weights stay as they are, also in other "
                   "such steps, which metrics count as empty_steps; for fewer "
                   "of them: longer --seq, a larger --global-batch, --packing "
                   "best-fit",
                   (unsigned long long)t->step, t->opt.global_batch,
                   t->opt.global_batch == 1 ? "" : "s", t->opt.seq);
}

/* Only pairs have rewards. */
static struct merak_rewards rewards_of(const struct merak_trainer *t,
                                       const double loss[MERAK_STEP_LOSSES])
{
    bool pairs = t->opt.optimizer.objective.kind == MERAK_DPO && loss != NULL;
    double chosen = pairs ? loss[MERAK_LOSS_CHOSEN] : NAN;
    double rejected = pairs ? loss[MERAK_LOSS_REJECTED] : NAN;

    return (struct merak_rewards){chosen, rejected, chosen - rejected,
                                  pairs ? loss[MERAK_LOSS_ACCURACY] : NAN};
}

/* Validate, if it is time to.  NAN if there is no loss. */
static enum merak_status validate(struct merak_trainer *t,
                                  struct merak_step_values *v, double *stop_p,
                                  struct merak_error *err)
{
    double sum[MERAK_STEP_LOSSES] = {0};
    enum merak_status rc;

    v->valid_loss = NAN;
    v->valid_reward = rewards_of(t, NULL);
    if (!evaluates(t))
        return MERAK_OK;
    rc = evaluate(t, sum, stop_p, err);
    if (rc == MERAK_OK && *stop_p == 0) {
        v->valid_loss = sum[MERAK_LOSS];
        v->valid_reward = rewards_of(t, sum);
        memcpy(v->valid_part, sum + 1, sizeof(v->valid_part));
        return check_valid_loss(t, v->valid_loss, err);
    }
    if (rc != MERAK_OK)
        return rc;
    merak_info("train",
               "step %llu  validation ends here, since the run was asked to "
               "stop: no held-out loss",
               (unsigned long long)t->step);
    return MERAK_OK;
}

/* What the step is known by so far; without a token to predict there is no
 * loss. */
static void fill_values(const struct merak_trainer *t,
                        const struct step_result *r,
                        struct merak_step_values *v)
{
    v->loss = r->empty ? NAN : r->loss[MERAK_LOSS];
    v->reward = rewards_of(t, r->empty ? NULL : r->loss);
    memcpy(v->part, r->loss + 1, sizeof(v->part));
    v->lr = (double)r->lr;
}

static enum merak_status finish_step(struct merak_trainer *t,
                                     struct step_result *r, int64_t began,
                                     struct merak_error *err)
{
    struct merak_step_values v = {.grad_norm = grad_norm(t),
                                  .step_s = seconds_since(began)};
    enum merak_status rc =
        check_finite(t, r->loss[MERAK_LOSS], v.grad_norm, err);

    t->failure.doing = "the end of a step";
    if (rc == MERAK_OK)
        rc = trace_step(t, err);
    rc = merak_agree(t->tr, &t->world, rc, err);
    if (rc != MERAK_OK)
        return rc;
    t->step++;
    t->consumed += t->opt.global_batch;
    t->tokens += t->opt.global_batch * merak_trainer_positions(t);
    rc = merak_loads_step(t, &v, err); /* validation takes their memory */
    if (rc == MERAK_OK)
        rc = validate(t, &v, &r->stop, err);
    if (rc != MERAK_OK)
        return rc;
    if (r->empty)
        count_empty(t);
    fill_values(t, r, &v);
    merak_report_step(t, &v);
    if (!r->empty)
        merak_report_reference(t, v.loss);
    merak_pace_judge(t, v.step_s);
    merak_report_valid(t, &v);
    rc = merak_metrics_step(t, &v, err);
    t->failure.broken = rc != MERAK_OK; /* only rank 0 writes them */
    return rc;
}

/* Slurm itself tells nobody, least of all the tasks that go on. */
static void look_for_slurmd(struct merak_trainer *t)
{
    const char *node = t->slurmd.node;

    switch (merak_slurmd_check(&t->slurmd, merak_clock_ns())) {
    case MERAK_SLURMD_GONE:
        merak_warn("train",
                   "slurmd on %s has ended and its tasks go on: Slurm cannot "
                   "signal them any more, and ends the job after SlurmdTimeout "
                   "unless slurmd starts again there; to save and end the run "
                   "before: kill -USR1 %ld on %s",
                   node, (long)getpid(), node);
        break;
    case MERAK_SLURMD_BACK:
        merak_warn("train", "slurmd on %s is back", node);
        break;
    case MERAK_SLURMD_NO_NEWS:
        break;
    }
}

/* Will this step be saved, unless the run is stopped before? */
static bool will_save(const struct merak_trainer *t, uint64_t step)
{
    if (t->run_dir == NULL)
        return false;
    return step == t->opt.steps ||
           (t->opt.ckpt.every > 0 && step % t->opt.ckpt.every == 0);
}

/* A request to stop that comes during a save is obeyed after it, not after one
 * more step. */
static enum merak_status save_step(struct merak_trainer *t,
                                   struct step_result *r,
                                   struct merak_error *err)
{
    bool last = r->stop != 0 || t->step == t->opt.steps;
    enum merak_status rc = MERAK_OK;

    t->failure.doing = "saving";
    if (r->saving == 0)
        rc = merak_saving_advance(t, err);
    if (rc != MERAK_OK || t->run_dir == NULL)
        return rc;
    if (!last && !will_save(t, t->step))
        return MERAK_OK;
    rc = merak_weights_save(t, last, err);
    if (rc == MERAK_OK && !last)
        rc = agree_to_stop(t, &r->stop, err);
    return rc == MERAK_OK && !last && r->stop != 0 ? merak_saving_settle(t, err)
                                                   : rc;
}

static enum merak_status run_steps(struct merak_trainer *t,
                                   struct merak_error *err)
{
    struct step_result r = {.stop = 0};
    enum merak_status rc = MERAK_OK;

    while (rc == MERAK_OK && t->step < t->opt.steps && r.stop == 0) {
        int64_t began = merak_clock_ns();

        rc = run_step(t, &r, err);
        if (rc == MERAK_OK)
            rc = finish_step(t, &r, began, err);
        look_for_slurmd(t);
        if (rc == MERAK_OK)
            rc = save_step(t, &r, err);
    }
    return rc;
}

/* Complete the previous save, even if all ranks agree that a step failed. */
static void settle_after(struct merak_trainer *t, enum merak_status rc)
{
    struct merak_error why;

    if (!t->failure.broken && rc != MERAK_ERR_PEER && rc != MERAK_ERR_TIMEOUT &&
        rc != MERAK_ERR_FABRIC && rc != MERAK_ERR_LOST &&
        merak_saving_settle(t, &why) != MERAK_OK)
        merak_warn("train", "%s", why.text);
}

enum merak_status merak_trainer_loop(struct merak_trainer *t, int *exit_code_p,
                                     struct merak_error *err)
{
    enum merak_status rc;

    catch_signals(t);
    merak_slurmd_watch(&t->slurmd, t->boot->local_rank == 0
                                       ? getenv("SLURMD_NODENAME")
                                       : NULL);
    t->has_valid = has_held_out_targets(t);
    t->start.step = t->step;
    t->start.loop_ns = merak_clock_ns();
    *exit_code_p = MERAK_EXIT_DONE;
    if (t->step > t->opt.steps)
        merak_warn("train",
                   "nothing to do: --steps %llu, the total of the run, is less "
                   "than the %llu steps that are done; give more to go on",
                   (unsigned long long)t->opt.steps,
                   (unsigned long long)t->step);
    else if (t->step == t->opt.steps)
        merak_info("train",
                   "nothing to do: all %llu steps are done; give more --steps "
                   "to go on",
                   (unsigned long long)t->step);
    rc = run_steps(t, err);
    if (rc != MERAK_OK) {
        settle_after(t, rc);
        return rc;
    }
    if (t->empty_steps > 0)
        merak_info("train", "%llu of %llu steps had no token to predict",
                   (unsigned long long)t->empty_steps,
                   (unsigned long long)(t->step - t->start.step));
    if (t->step < t->opt.steps) {
        merak_info("train", "stopped after step %llu of %llu%s",
                   (unsigned long long)t->step,
                   (unsigned long long)t->opt.steps,
                   t->opt.ckpt.dir != NULL ? "; saved: resubmit to continue"
                                           : "; nothing saved: no --ckpt");
        *exit_code_p = MERAK_EXIT_AGAIN;
    }
    return MERAK_OK;
}
