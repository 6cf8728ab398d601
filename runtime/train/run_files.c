/* SPDX-License-Identifier: Apache-2.0 */
/* run_files.c - files that a run keeps next to its checkpoints, for users,
 * `merak top` and `merak report`
 *
 *   settings.toml   the options in effect, degrees and plan resolved; it can be
 *                   given back by --config
 *   run.jsonl       one line of JSON per start; the last one describes the run:
 *     format "merak-run", version 1; time (seconds since 1970), job, restart;
 *     step (it starts from), redone (steps it does again, absent without),
 *     branch (absent in a run that never went back; io/ckpt/branch.c),
 *     steps; parameters, flops (of a step), tokens (of
 *     a step); tp, pp, dp; cp, ep (absent if 1); stages (a list, if they are
 *     unlike: tp and dp are 1); schedule, microbatches; threads; dtype;
 *     backend;
 *     memory (bytes of rank 0's arena); predicted_s (of a step, absent
 *     if nothing was predicted); trace (directory, absent without);
 *     metrics (the file, absent if it is metrics.jsonl here);
 *     hosts ["n1", ..]; ranks [[host's index, stage, tp, dp], ..] by
 *     logical rank
 *   metrics.jsonl   one line per step, unless --metrics names another file;
 *                   metrics.jsonl.redone those of steps done again (redone.c)
 *   ranks.json      what ranks did in the last steps (pace.c)
 *   incidents.jsonl one line of JSON per incident: time (seconds since 1970),
 *     step (steps done), kind, and
 *     "straggler": rank, host; percent, compute_s, usual_s, over_steps: its
 *       kernels took compute_s of a step, its peers' usual_s: both are
 *       medians of over_steps steps; "straggler-over": no longer
 *     "hang": page (file of the report), ranks [[rank, host], ..] that gave no
 * answer
 */
#include "config.h"

#include "runtime/train/trainer.h"

#include "base/error.h"
#include "base/log.h"
#include "base/open.h"
#include "io/json_real.h"
#include "io/weights/run_model.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Options that reproduce this run. */
static struct merak_train_options in_effect(const struct merak_trainer *t)
{
    struct merak_train_options o = t->opt;
    const struct merak_plan *p = &t->plan;

    o.config = NULL;
    merak_choices_of(p, &o.choice);
    if (p->stage != NULL) /* their list is saved instead */
        o.choice.tp = o.choice.pp = o.choice.dp = o.choice.cp = o.choice.ep = 0;
    if (o.ckpt.lora_from != NULL) /* which has the others of --lora */
        o.lora = (struct merak_lora){.dropout = o.lora.dropout};
    o.dtype = p->dtype;
    o.threads = p->threads;
    return o;
}

/* Choices that are lists. */
static void save_lists(const struct merak_plan *p, FILE *out)
{
    char split[MERAK_SPLIT_TEXT], hops[MERAK_LOSSY_TEXT];

    if (merak_split_any(&p->split))
        fprintf(out, "split = \"%s\"\n",
                merak_split_text(&p->split, "b", ",", split, sizeof(split)));
    if (merak_lossy_any(&p->lossy))
        fprintf(out, "lossy-hops = \"%s\"\n",
                merak_lossy_text(&p->lossy, ",", hops, sizeof(hops)));
    if (p->stage == NULL)
        return;
    fputs("stages = \"", out);
    for (int s = 0; s < p->pp; s++)
        fprintf(out, "%s%dx%d", s > 0 ? "," : "", p->stage[s].dp,
                p->stage[s].tp);
    fputs("\"\n", out);
}

static enum merak_status save_settings(const struct merak_trainer *t,
                                       struct merak_error *err)
{
    struct merak_train_options o = in_effect(t);
    char path[PATH_MAX], part[PATH_MAX];
    const char *why;
    FILE *out;
    bool fine;

    snprintf(path, sizeof(path), "%s/settings.toml", t->run_dir);
    snprintf(part, sizeof(part), "%s/settings.toml.part", t->run_dir);
    why = merak_fopen_new(part, &out);
    if (why != NULL)
        return merak_fail(err, MERAK_ERR_IO, "cannot write %.150s: %s", part,
                          why);
    fputs("# The options in effect; --config takes this file.  The model is "
          "not among them.\n\n",
          out);
    merak_options_save(merak_train_options_table(), &o, out);
    fprintf(out, "\n[plan]\nschedule = \"%s\"\n", t->plan.schedule);
    save_lists(&t->plan, out);
    fine = !ferror(out);
    if (fclose(out) != 0 || !fine || rename(part, path) != 0)
        return merak_fail(err,
                          errno == ENOSPC ? MERAK_ERR_NOSPACE : MERAK_ERR_IO,
                          "cannot write %.150s: %s", path, strerror(errno));
    return MERAK_OK;
}

static json_t *ranks_json(const struct merak_trainer *t)
{
    json_t *list = json_array();

    for (int r = 0; r < t->boot->size; r++) {
        int tp, dp, stage;

        merak_plan_coords(&t->plan, r, &tp, &dp, &stage);
        json_array_append_new(
            list, json_pack("[i, i, i, i]",
                            t->boot->node_of[t->ranks.transport_rank[r]], stage,
                            tp, dp));
    }
    return list;
}

static json_t *hosts_json(const struct merak_trainer *t)
{
    json_t *list = json_array();

    for (int i = 0; i < t->boot->n_nodes; i++)
        json_array_append_new(list, json_string(t->boot->hosts[i]));
    return list;
}

static void set_text(json_t *object, const char *key, const char *value)
{
    if (value != NULL && *value != '\0')
        json_object_set_new(object, key, json_string(value));
}

static void set_number(json_t *object, const char *key, double value)
{
    json_object_set_new(object, key, merak_json_real(value));
}

/* The absolute path, valid from any directory; path[PATH_MAX]. */
static const char *absolute(const char *file, char *path)
{
    char here[PATH_MAX];

    if (file == NULL || file[0] == '/' || getcwd(here, sizeof(here)) == NULL)
        return file;
    snprintf(path, PATH_MAX, "%.2000s/%.2000s", here, file);
    return path;
}

static json_t *start_json(const struct merak_trainer *t)
{
    const struct merak_graph *graph = t->sharded->graph;
    const struct merak_plan *p = &t->plan;
    char path[PATH_MAX], stages[MERAK_CKPT_STAGES] = "";
    json_t *o = json_pack(
        "{s: s, s: i, s: I, s: I, s: I, s: i, s: i, s: i, s: s, s: i, s: i}",
        "format", "merak-run", "version", 1, "time", (json_int_t)time(NULL),
        "step", (json_int_t)t->step, "steps", (json_int_t)t->opt.steps, "tp",
        p->tp, "pp", p->pp, "dp", p->dp, "schedule", p->schedule,
        "microbatches", p->microbatches, "threads", p->threads);

    if (p->cp > 1)
        json_object_set_new(o, "cp", json_integer(p->cp));
    if (p->ep > 1)
        json_object_set_new(o, "ep", json_integer(p->ep));
    if (p->stage != NULL)
        merak_stages_text(p->stage, p->pp, stages, sizeof(stages));
    set_text(o, "stages", stages);
    set_text(o, "job", getenv("SLURM_JOB_ID"));
    set_text(o, "restart", getenv("SLURM_RESTART_COUNT"));
    set_text(o, "branch", t->lineage.branch);
    if (t->lineage.n_redone > 0)
        json_object_set_new(o, "redone",
                            json_integer((json_int_t)t->lineage.n_redone));
    set_text(o, "dtype", p->dtype == MERAK_BF16 ? "bf16" : "fp32");
    set_text(o, "backend", t->opt.backend);
    set_text(o, "trace", t->opt.output.trace);
    set_text(o, "metrics", absolute(t->opt.output.metrics, path));
    set_number(o, "parameters", (double)merak_graph_param_count(graph));
    set_number(o, "flops",
               merak_graph_flops(graph) * (double)p->microbatches *
                   t->program->mesh.dp);
    set_number(o, "tokens", (double)t->opt.global_batch * (double)t->opt.seq);
    set_number(o, "memory", (double)t->memory.arena_bytes);
    if (t->chosen != NULL && t->chosen->step_s > 0)
        set_number(o, "predicted_s", t->chosen->step_s);
    json_object_set_new(o, "hosts", hosts_json(t));
    json_object_set_new(o, "ranks", ranks_json(t));
    return o;
}

/* Append a line to a file of the run's directory; takes ownership of the
 * object.  Returns NULL, or why not. */
static const char *add_line(const struct merak_trainer *t, const char *name,
                            json_t *object, char path[PATH_MAX])
{
    FILE *out = NULL;
    const char *why;
    bool fine;

    snprintf(path, PATH_MAX, "%s/%s", t->run_dir, name);
    why = merak_fopen_append(path, &out);
    fine = why == NULL && object != NULL &&
           json_dumpf(object, out, JSON_COMPACT) == 0 &&
           fputc('\n', out) != EOF;
    json_decref(object);
    if (why == NULL && (fclose(out) != 0 || !fine))
        why = strerror(errno);
    return why;
}

void merak_run_files_incident(const struct merak_trainer *t, json_t *incident)
{
    char path[PATH_MAX];

    merak_metrics_incident(t, incident);
    if (t->run_dir == NULL || incident == NULL) {
        json_decref(incident);
        return;
    }
    json_object_set_new(incident, "time", json_integer((json_int_t)time(NULL)));
    json_object_set_new(incident, "step", json_integer((json_int_t)t->step));
    /* it is also in the log */
    (void)add_line(t, "incidents.jsonl", incident, path);
}

static enum merak_status add_start(const struct merak_trainer *t,
                                   struct merak_error *err)
{
    char path[PATH_MAX];
    const char *why = add_line(t, "run.jsonl", start_json(t), path);

    return why == NULL
               ? MERAK_OK
               : merak_fail(err,
                            errno == ENOSPC ? MERAK_ERR_NOSPACE : MERAK_ERR_IO,
                            "cannot write %.150s: %s", path, why);
}

static enum merak_status enter_branch(struct merak_trainer *t,
                                      struct merak_error *err)
{
    struct merak_ckpt_state state = {.step = t->step};
    const struct merak_ckpt_state *from = t->lineage.resumed ? &state : NULL;
    char was[MERAK_CKPT_BRANCH];
    enum merak_status rc;

    strcpy(state.branch, t->lineage.branch);
    strcpy(was, t->lineage.branch);
    rc = merak_ckpt_branch_choose(t->run_dir, t->lineage.named, from,
                                  t->lineage.branch, err);
    if (rc == MERAK_OK)
        rc = merak_ckpt_branch_enter(t->run_dir, t->lineage.branch, from, err);
    if (rc == MERAK_OK && strcmp(was, t->lineage.branch) != 0 &&
        t->lineage.named)
        merak_info(
            "train",
            "gone back to step %llu: a branch of its own, checkpoints "
            "after that step are not resumed from, and stay until a save "
            "of the same step replaces them",
            (unsigned long long)t->step);
    return rc;
}

enum merak_status merak_run_files_start(struct merak_trainer *t,
                                        struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    if (t->run_dir == NULL)
        return MERAK_OK;
    if (t->program->rank == 0) {
        rc = enter_branch(t, err);
        if (rc == MERAK_OK && t->source.model_path != NULL)
            rc = merak_run_model_record(t->run_dir, t->source.model_path, err);
        if (rc == MERAK_OK)
            rc = save_settings(t, err);
        if (rc == MERAK_OK)
            rc = add_start(t, err);
    }
    return merak_agree(t->tr, &t->world, rc, err);
}

void merak_run_files_metrics(const struct merak_trainer *t, char *path,
                             size_t size)
{
    path[0] = '\0';
    if (t->opt.output.metrics != NULL)
        snprintf(path, size, "%s", t->opt.output.metrics);
    else if (t->run_dir != NULL)
        snprintf(path, size, "%s/metrics.jsonl", t->run_dir);
}
