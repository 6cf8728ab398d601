/* SPDX-License-Identifier: Apache-2.0 */
/* resume.c - before the first step: the run's directory, and what to resume
 * from
 *
 * To fail before computing anything that could not be saved, the directory is
 * made, claimed for this run, written to by every rank and checked for space
 * before the first step.
 *
 * All ranks load the checkpoint that rank 0 chose.  If a rank finds a wrong
 * checksum in a shard file, all try the next older checkpoint.
 */
#include "config.h"

#include "runtime/train/fingerprint.h"
#include "runtime/train/trainer.h"

#include "base/error.h"
#include "base/log.h"
#include "base/size.h"
#include "base/wait.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* --- the run's directory ----------------------------------------------------
 */

/* If --ckpt names a single checkpoint, new ones are saved next to it, not into
 * it. */
static enum merak_status name_run_dir(struct merak_trainer *t,
                                      struct merak_error *err)
{
    size_t n = strlen(t->opt.ckpt.dir);
    char *slash;

    t->run_dir = malloc(n + sizeof("."));
    if (t->run_dir == NULL)
        return merak_fail_nomem(err, n + sizeof("."));
    strcpy(t->run_dir, t->opt.ckpt.dir);
    while (n > 1 && t->run_dir[n - 1] == '/')
        t->run_dir[--n] = '\0';
    if (!merak_ckpt_is_one(t->run_dir))
        return MERAK_OK;
    slash = strrchr(t->run_dir, '/');
    if (slash == NULL)
        strcpy(t->run_dir, ".");
    else
        slash[slash == t->run_dir] = '\0';
    return MERAK_OK;
}

/* If another run may own the directory, rank 0 has to watch it for a while;
 * the others take part, since their waits have a deadline. */
static enum merak_status claim(struct merak_trainer *t, struct merak_error *err)
{
    bool told = false;
    enum merak_status rc = MERAK_OK, mine;
    double again;

    do {
        mine = t->save.owner == NULL
                   ? MERAK_OK
                   : merak_ckpt_owner_claim(t->save.owner, err);
        again = mine == MERAK_IN_PROGRESS;
        if (mine == MERAK_IN_PROGRESS) {
            if (!told)
                merak_info("train", "%s: waiting to see whether it is alive",
                           err->text);
            told = true;
            merak_nap(1000000000);
        }
        rc = merak_all_reduce_sum(t->tr, &t->world, &again, 1, err);
    } while (rc == MERAK_OK && again > 0);
    return rc == MERAK_OK ? merak_agree(t->tr, &t->world, mine, err) : rc;
}

enum merak_status merak_run_dir_open(struct merak_trainer *t,
                                     struct merak_error *err)
{
    enum merak_status rc;

    if (t->opt.ckpt.dir == NULL)
        return MERAK_OK;
    rc = name_run_dir(t, err);
    if (rc == MERAK_OK && t->program->rank == 0)
        rc = merak_ckpt_owner_create(t->run_dir, &t->save.owner, err);
    rc = merak_agree(t->tr, &t->world, rc, err);
    if (rc == MERAK_OK)
        rc = claim(t, err);
    if (rc != MERAK_OK)
        return rc;
    rc = merak_ckpt_owner_probe(t->run_dir, t->program->rank, err);
    return merak_agree(t->tr, &t->world, rc, err);
}

enum merak_status merak_run_dir_room(struct merak_trainer *t,
                                     struct merak_error *err)
{
    uint64_t every = t->opt.ckpt.every, steps = t->opt.steps, saves;
    uint64_t stay = t->opt.ckpt.keep_every;
    enum merak_status rc;
    double bytes;

    if (t->run_dir == NULL || t->step >= steps)
        return MERAK_OK;
    bytes = (double)merak_saving_bytes(t);
    rc = merak_all_reduce_sum(t->tr, &t->world, &bytes, 1, err);
    if (rc != MERAK_OK)
        return rc;
    t->save.save_bytes = bytes;
    saves = every == 0 ? 1 : (steps - 1) / every - t->step / every + 1;
    if (every == 0 || stay == 0) {
        stay = 0;
    } else { /* steps that both divide */
        stay *= every / merak_size_gcd(every, stay);
        stay = steps / stay - t->step / stay;
    }
    if (t->program->rank == 0)
        rc = merak_ckpt_room(t->run_dir, bytes, saves, stay, t->opt.ckpt.keep,
                             err);
    return merak_agree(t->tr, &t->world, rc, err);
}

void merak_run_dir_close(struct merak_trainer *t)
{
    merak_ckpt_owner_destroy(t->save.owner);
    t->save.owner = NULL;
    free(t->run_dir);
    t->run_dir = NULL;
}

/* --- what to go on from -----------------------------------------------------
 */

/* Open the next older checkpoint than `path` ("": the newest) on all ranks and
 * set path.  NOT_FOUND if there never was one. */
static enum merak_status open_next(struct merak_trainer *t, char *path,
                                   struct merak_ckpt **ckpt_p,
                                   struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    if (t->program->rank == 0) {
        rc = merak_ckpt_open_next(
            t->lineage.named ? t->opt.ckpt.dir : t->run_dir,
            path[0] == '\0' ? NULL : path,
            t->opt.ckpt.resume != MERAK_RESUME_MUST, ckpt_p, err);
        if (rc == MERAK_OK)
            strcpy(path, merak_ckpt_path(*ckpt_p));
    }
    rc = merak_agree(t->tr, &t->world, rc, err);
    if (rc == MERAK_OK)
        rc = merak_broadcast(t->tr, &t->world, path, PATH_MAX, 0, err);
    if (rc != MERAK_OK)
        return rc;
    if (t->program->rank != 0)
        rc = merak_ckpt_open(path, ckpt_p, err);
    return merak_agree(t->tr, &t->world, rc, err);
}

/* The part of a recipe that should not change silently: the reduction, which
 * changes bits, and the rules for parameters. */
static const char *rules_of(const char *recipe)
{
    static const char *const rule[] = {" --reduce ", " --freeze ",
                                       " --no-decay ", " --lr-scale "};
    const char *first = recipe + strlen(recipe);

    for (size_t i = 0; i < sizeof(rule) / sizeof(*rule); i++) {
        const char *at = strstr(recipe, rule[i]);

        first = at != NULL && at < first ? at : first;
    }
    return first;
}

/* What a checkpoint's run had of these options; its other options are ours. */
static bool schedule_of(const struct merak_ckpt_state *state,
                        struct merak_train_optimizer *opt)
{
    static const char *const shape[] = {"cosine", "linear", "constant", "wsd"};
    unsigned long long warmup;
    char word[16];
    const char *share;

    if (state->steps == 0 ||
        sscanf(state->recipe,
               "--lr %f --min-lr %f --warmup %llu --lr-schedule %15s", &opt->lr,
               &opt->min_lr, &warmup, word) != 4)
        return false;
    opt->warmup = warmup;
    share = strstr(state->recipe, " --decay-share ");
    if (share != NULL)
        opt->decay_share = strtod(share + strlen(" --decay-share "), NULL);
    for (size_t i = 0; i < sizeof(shape) / sizeof(*shape); i++) {
        if (strcmp(word, shape[i]) == 0)
            opt->lr_shape = (enum merak_lr_shape)i;
    }
    return true;
}

/* A longer --steps stretches a schedule: the learning rate, which was nearly
 * down, jumps up again. */
static void warn_of_schedule(const struct merak_trainer *t,
                             const struct merak_ckpt *ckpt)
{
    const struct merak_ckpt_state *state = merak_ckpt_state(ckpt);
    const struct merak_train_optimizer *is = &t->opt.optimizer;
    struct merak_train_optimizer was = *is;
    double then, now;

    if (state->step == 0 || state->step >= t->opt.steps ||
        !schedule_of(state, &was))
        return;
    then = merak_learning_rate(&was, state->steps, state->step);
    now = merak_learning_rate(is, t->opt.steps, state->step);
    if (state->step >= state->steps) /* its schedule was over */
        then = merak_learning_rate(&was, state->steps, state->steps - 1);
    if (fabs(now - then) <= 1e-3 * fmax(now, then))
        return;
    merak_warn("train",
               "the learning rate of step %" PRIu64 " is %.2e; by the options "
               "that %s was trained with, --steps %" PRIu64 " %.*s, it would "
               "be %.2e",
               state->step + 1, now, merak_ckpt_path(ckpt), state->steps,
               (int)(rules_of(state->recipe) - state->recipe), state->recipe,
               then);
}

/* Fingerprints have kernels' names of types, and options others. */
static const char *as_typed(const char *value)
{
    return strcmp(value, "f32") == 0 ? "fp32" : value;
}

/* Changes of these are allowed, like a changed learning rate. */
static void warn_of_options(const struct merak_trainer *t,
                            const struct merak_ckpt *ckpt)
{
    const char *then = merak_ckpt_state(ckpt)->fingerprint;
    struct merak_difference d;

    for (int i = 0;
         merak_fingerprint_difference(then, t->lineage.fingerprint, i, &d); i++)
        merak_warn("train", "%s is %s, but %s was trained with %s", d.key,
                   as_typed(d.now), merak_ckpt_path(ckpt), as_typed(d.then));
}

/* Changes that resuming allows; of those that it refuses, the ones that the
 * user wants.  Samples of another length make the position in the data inexact.
 * Older checkpoints do not record the sequence length: it follows from tokens
 * and samples. */
static void warn_of_changes(const struct merak_trainer *t,
                            const struct merak_ckpt *ckpt)
{
    const struct merak_ckpt_state *state = merak_ckpt_state(ckpt);
    char recipe[MERAK_RECIPE_BYTES];
    uint64_t seq = state->seq;

    if (seq == 0 && state->consumed_samples > 0)
        seq = state->consumed_tokens / state->consumed_samples;
    if (seq != 0 && seq != t->opt.seq)
        merak_warn(
            "train",
            "--seq %zu, but %s was trained with --seq %" PRIu64
            ": samples are cut differently, tokens may repeat or be lost",
            t->opt.seq, merak_ckpt_path(ckpt), seq);
    if (state->global_batch != 0 && state->global_batch != t->opt.global_batch)
        merak_warn("train",
                   "--global-batch %zu, but %s was trained with "
                   "--global-batch %" PRIu64 ": steps are of another size",
                   t->opt.global_batch, merak_ckpt_path(ckpt),
                   state->global_batch);
    merak_train_recipe(&t->opt, recipe);
    if (state->recipe[0] != '\0' &&
        strcmp(rules_of(state->recipe), rules_of(recipe)) != 0)
        merak_warn("train", "%s, but %s was trained with %s", recipe,
                   merak_ckpt_path(ckpt), state->recipe);
    warn_of_options(t, ckpt);
    warn_of_schedule(t, ckpt);
}

/* When this checkpoint was complete: the time of its file COMMITTED. */
static void note_saved(struct merak_trainer *t, const struct merak_ckpt *ckpt)
{
    char path[PATH_MAX];
    struct stat st;

    snprintf(path, sizeof(path), "%s/COMMITTED", merak_ckpt_path(ckpt));
    if (stat(path, &st) != 0)
        return;
    t->lineage.saved_step = t->step;
    t->lineage.saved_at =
        (double)st.st_mtim.tv_sec + (double)st.st_mtim.tv_nsec * 1e-9;
}

static void report_resume(struct merak_trainer *t,
                          const struct merak_ckpt *ckpt)
{
    char by[MERAK_DEGREES_TEXT];
    const struct merak_ckpt_state *state = merak_ckpt_state(ckpt);

    if (t->opt.ckpt.init_from != NULL)
        merak_info("train", "--init-from %s is not read: the run resumes",
                   t->opt.ckpt.init_from);
    if (state->imported) {
        merak_info("train", "weights are those of %s, imported from %s",
                   merak_ckpt_path(ckpt), state->init_from);
        return;
    }
    merak_info("train", "resumed %s: step %llu, %llu samples, written by %s",
               merak_ckpt_path(ckpt), (unsigned long long)t->step,
               (unsigned long long)t->consumed,
               merak_ckpt_degrees(state, " x ", by));
    if (t->program->rank != 0)
        return;
    note_saved(t, ckpt);
    warn_of_changes(t, ckpt);
}

/* May the run resume from an older checkpoint than the newest? */
static bool may_skip(const struct merak_trainer *t)
{
    return t->opt.ckpt.resume == MERAK_RESUME_AUTO && !t->lineage.named;
}

/* A missing file is damage, too: NOT_FOUND would start the run from
 * scratch. */
static enum merak_status load(struct merak_trainer *t, struct merak_ckpt *ckpt,
                              struct merak_error *err)
{
    enum merak_status rc = merak_weights_load(t, ckpt, err);

    if (rc == MERAK_ERR_NOT_FOUND)
        rc = err->status = MERAK_ERR_CORRUPT;
    rc = merak_agree(t->tr, &t->world, rc, err);
    if (rc == MERAK_OK)
        report_resume(t, ckpt);
    return rc;
}

/* Is one checkpoint named, to go on from that and no other?  Who types the same
 * command again, to which the run was taken back before, wants that to go on.
 */
static enum merak_status find_named(struct merak_trainer *t,
                                    struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;
    bool named = false, again = false;
    double share;

    if (t->program->rank == 0) {
        named = merak_ckpt_is_one(t->opt.ckpt.dir);
        if (named)
            rc = merak_ckpt_branch_at(t->run_dir, t->opt.ckpt.dir, &again, err);
        if (again)
            merak_info("train",
                       "%s was gone back to before: its branch goes on",
                       t->opt.ckpt.dir);
    }
    rc = merak_agree(t->tr, &t->world, rc, err);
    share = named && !again;
    if (rc == MERAK_OK)
        rc = merak_all_reduce_sum(t->tr, &t->world, &share, 1, err);
    t->lineage.named = share > 0;
    return rc;
}

static enum merak_status resume(struct merak_trainer *t,
                                struct merak_error *err)
{
    char path[PATH_MAX] = "";
    enum merak_status rc = find_named(t, err);

    if (rc != MERAK_OK)
        return rc;
    do {
        struct merak_ckpt *ckpt = NULL;

        if (path[0] != '\0' && t->program->rank == 0)
            merak_warn("train", "%s skipped: %s", path, err->text);
        rc = open_next(t, path, &ckpt, err);
        if (rc != MERAK_OK) {
            merak_ckpt_close(ckpt);
            return rc;
        }
        rc = load(t, ckpt, err);
        merak_ckpt_close(ckpt);
    } while (rc == MERAK_ERR_CORRUPT && may_skip(t));
    return rc;
}

enum merak_status merak_weights_start(struct merak_trainer *t,
                                      struct merak_error *err)
{
    enum merak_status rc = MERAK_ERR_NOT_FOUND;

    if (t->opt.ckpt.dir == NULL)
        merak_info("train", "without --ckpt DIR no weights of this run are "
                            "kept");
    if (t->opt.ckpt.dir != NULL && t->opt.ckpt.resume != MERAK_RESUME_NO)
        rc = resume(t, err);
    if (rc != MERAK_ERR_NOT_FOUND)
        return rc;
    if (t->opt.ckpt.resume == MERAK_RESUME_MUST)
        return merak_fail(err, rc,
                          "--resume must: there is no committed "
                          "checkpoint in %s",
                          t->opt.ckpt.dir);
    if (t->opt.ckpt.init_from != NULL)
        return merak_weights_init_from(t, err);
    if (t->opt.ckpt.dir != NULL)
        merak_info("train", "no checkpoint in %s: starting from seed %llu",
                   t->opt.ckpt.dir, (unsigned long long)t->opt.seed);
    rc = merak_weights_init(t, err);
    return merak_agree(t->tr, &t->world, rc, err);
}

/* --- what the next one resumes from ----------------------------------------
 */

void merak_resume_state(const struct merak_trainer *t,
                        struct merak_ckpt_state *state)
{
    const struct merak_stage_mesh mesh = merak_plan_mesh(&t->plan, 0);

    memset(state, 0, sizeof(*state));
    state->step = t->step;
    state->consumed_samples = t->consumed;
    state->consumed_tokens = t->tokens;
    state->seed = t->opt.seed;
    state->seq = merak_trainer_positions(t);
    state->global_batch = t->opt.global_batch;
    snprintf(state->model_id, sizeof(state->model_id), "%s",
             t->lineage.model_id);
    strcpy(state->data_id, merak_samples_id(t->load.samples));
    strcpy(state->dtype, merak_dtype_name(t->opt.dtype));
    memcpy(state->init_from, t->lineage.init_from, sizeof(state->init_from));
    merak_train_recipe(&t->opt, state->recipe);
    memcpy(state->fingerprint, t->lineage.fingerprint,
           sizeof(state->fingerprint));
    strcpy(state->branch, t->lineage.branch);
    state->steps = t->opt.steps;
    state->cp = t->plan.cp > 1 ? t->plan.cp : 1;
    state->ep = t->plan.ep > 1 ? t->plan.ep : 1;
    state->tp = mesh.tp / state->cp / state->ep;
    state->pp = t->plan.pp, state->dp = mesh.dp;
    if (t->plan.stage != NULL)
        merak_stages_text(t->plan.stage, t->plan.pp, state->stages,
                          sizeof(state->stages));
}
