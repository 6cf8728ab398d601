/* SPDX-License-Identifier: Apache-2.0 */
/* plan_emit.c - a plan as options of Megatron-LM, torchtitan and DeepSpeed
 *
 * What is written is the plan as that trainer can run it (trainers.c).  What it
 * does otherwise, or would refuse (trainer_rules.c), stands in comments of the
 * output, and what was asked for and cannot be had also on standard error.
 */
#include "config.h"

#include "runtime/plan/plan_options.h"
#include "runtime/plan/trainers.h"

#include "base/error.h"
#include "base/size.h"
#include "base/text_writer.h"
#include "io/plan_file.h"
#include "partitioner/plan/choice.h"
#include "partitioner/plan/list_text.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void plan_hint(struct plan_notes *n, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vfprintf(n->comments, fmt, ap);
    va_end(ap);
    fputc('\n', n->comments);
}

void plan_lose(struct plan_notes *n, const char *fmt, ...)
{
    FILE *to[] = {n->comments, n->errors};
    va_list ap;

    fputs("merak plan: ", n->errors);
    for (int i = 0; i < 2; i++) {
        va_start(ap, fmt);
        vfprintf(to[i], fmt, ap);
        va_end(ap);
        fputc('\n', to[i]);
    }
    n->lost++;
}

/* --- layers of parts ------------------------------------------------------ */

enum merak_status plan_layers_of(const struct merak_planned *planned,
                                 struct plan_layers *layers,
                                 struct merak_error *err)
{
    size_t n = (size_t)planned->stages->n;
    int split, *count = calloc(n, sizeof(*count));
    enum merak_status rc;

    if (count == NULL)
        return merak_fail_nomem(err, n * sizeof(*count));
    rc = merak_stages_layers(planned->sharded, planned->stages, count, &split,
                             err);
    if (rc == MERAK_OK)
        *layers = (struct plan_layers){merak_plan_own_parts(&planned->plan),
                                       count, split};
    else
        free(count);
    return rc;
}

/* Has every part as many whole layers?  Unknown layers are even unless the
 * plan has a cut of its own. */
static bool is_even(const struct plan_emitted *e)
{
    const struct plan_layers *l = &e->layers;

    if (l->count == NULL)
        return e->wanted->cut == NULL;
    for (int i = 1; i < l->n; i++) {
        if (l->count[i] != l->count[0])
            return false;
    }
    return l->split == 0;
}

/* "4, 4, 4, 0" */
static void counts_text(const struct plan_layers *l, char *text, size_t bytes)
{
    size_t at = 0;

    for (int i = 0; i < l->n && at < bytes; i++)
        at += (size_t)snprintf(text + at, bytes - at, "%s%d", i > 0 ? ", " : "",
                               l->count[i]);
}

/* --- what differs from the plan ------------------------------------------- */

static bool is_given(const struct plan_emitted *e, enum merak_choice_id id)
{
    return e->given == NULL || e->given[id];
}

/* One line for each choice that the trainer does not have. */
static void note_choices(const struct plan_emitted *e, struct plan_notes *n)
{
    struct merak_choices wanted, has;
    char want[MERAK_CHOICE_TEXT(0)], get[MERAK_CHOICE_TEXT(0)];

    merak_choices_of(e->wanted, &wanted);
    merak_choices_of(e->plan, &has);
    for (int i = 0; i < MERAK_CHOICE_COUNT; i++) {
        const struct merak_choice *c = &merak_choice[i];

        if (c->kind == MERAK_OPTION_CALL || i == MERAK_CHOICE_RECOMPUTE ||
            i == MERAK_CHOICE_BOUNDARY || i == MERAK_CHOICE_BRANCHES ||
            i == MERAK_CHOICE_CHUNKS)
            continue; /* lists are below, the rest is not theirs */
        merak_choice_text(c, &wanted, want, sizeof(want));
        merak_choice_text(c, &has, get, sizeof(get));
        if (strcmp(want, get) == 0 ||
            (i == MERAK_CHOICE_SP && e->wanted->sp == MERAK_SP_AUTO) ||
            (i == MERAK_CHOICE_SCHEDULE && e->wanted->pp == 1))
            continue;
        if (is_given(e, (enum merak_choice_id)i))
            plan_lose(n, "cannot express: %s %s; emitted %s", c->option.name,
                      want, get[0] != '\0' ? get : "nothing");
        else
            plan_hint(n, "%s %s instead of the plan's %s", c->option.name, get,
                      want);
    }
}

/* Parts that recompute differently, and parts of other layers than those of the
 * plan; `can`: the trainer takes any numbers of whole layers. */
static void note_lists(const struct plan_emitted *e, struct plan_notes *n)
{
    const struct merak_plan *p = e->wanted;
    int parts = p->drop != NULL ? merak_plan_own_parts(p) : 0;
    enum merak_recompute all = plan_recompute_of(p);
    char counts[160] = "", word[MERAK_CHOICE_WORD], lossy[128];
    bool alike = parts == 0 || all != MERAK_RECOMPUTE_FULL;

    if (p->stage != NULL)
        plan_lose(n, "cannot express: stages of unlike ranks");
    if (merak_tp_plan_any(&p->tp_plan))
        plan_lose(n, "cannot express: --tp-plan %s: %s cuts weights as its "
                  "layers do",
                  p->tp_plan.text, n->trainer->name);
    if (merak_lossy_any(&p->lossy))
        plan_lose(n, "cannot express: %s; %s sends whole values",
                  merak_lossy_describe(&p->lossy, p->pp, lossy, sizeof(lossy)),
                  n->trainer->name);
    if (!alike || all != e->plan->recompute) {
        merak_choice_word(&merak_choice[MERAK_CHOICE_RECOMPUTE],
                          (long)e->plan->recompute, word);
        if (is_given(e, MERAK_CHOICE_RECOMPUTE))
            plan_lose(n,
                      "cannot express: stages that recompute different parts; "
                      "emitted %s for all",
                      word);
        else
            plan_hint(n, "all stages recompute alike: %s", word);
    }
    if (is_even(e))
        return;
    if (plan_has_counts(e))
        counts_text(&e->layers, counts, sizeof(counts));
    if (plan_has_counts(e) && n->trainer->cuts_layers) {
        if (e->layers.split > 0)
            plan_hint(
                n, "%d cut%s of the plan inside a layer; here whole layers: %s",
                e->layers.split, e->layers.split == 1 ? "" : "s", counts);
    } else if (is_given(e, MERAK_CHOICE_CUT)) {
        plan_lose(n, "cannot express: stages of unequal numbers of layers%s%s",
                  counts[0] != '\0' ? ": " : " (--cut of the plan)", counts);
    } else {
        plan_hint(n, "%s divides the layers; the plan's stages have%s%s",
                  n->trainer->name,
                  counts[0] != '\0' ? " " : " unequal numbers", counts);
    }
}

static void note_rule(void *arg, const char *rule, const char *source)
{
    struct plan_notes *n = arg;

    plan_lose(n, "%s refuses it: %s (%s)", n->trainer->name, rule, source);
}

/* The plan, and the plan as the trainer runs it, with their times. */
static void note_times(const struct plan_emitted *e, struct plan_notes *n)
{
    char plan[MERAK_PLAN_TEXT], step[MERAK_SECONDS_TEXT];

    if (e->wanted_s <= 0)
        return;
    if (e->own != NULL) {
        merak_plan_describe(e->own, plan, sizeof(plan));
        plan_hint(n, "best, but not for %s: %s a step: %s", n->trainer->name,
                  merak_seconds_text(e->own_s, step), plan);
    }
    merak_plan_describe(e->wanted, plan, sizeof(plan));
    plan_hint(n, "planned: %s a step: %s",
              merak_seconds_text(e->wanted_s, step), plan);
    merak_plan_describe(e->plan, plan, sizeof(plan));
    if (e->step_s > 0)
        plan_hint(n, "as %s runs it: %s a step: %s", n->trainer->name,
                  merak_seconds_text(e->step_s, step), plan);
    else
        plan_hint(n, "as %s runs it, not predicted to fit: %s",
                  n->trainer->name, plan);
}

void plan_note_offload(struct plan_notes *n)
{
    plan_hint(
        n,
        "%s updates offloaded states on the CPU, whose time is not predicted: "
        "what is predicted is copying them",
        n->trainer->name);
}

/* --- torchtitan ----------------------------------------------------------- */

/* The modules of each part, which it divides otherwise by default. */
static void titan_parts(const struct plan_emitted *e, FILE *out)
{
    int layer = 0;

    fputs("--parallelism.module_fqns_per_model_part\n", out);
    for (int i = 0; i < e->layers.n; i++) {
        const char *between = i == 0 ? "," : "";

        fprintf(out, "  %s", i == 0 ? "tok_embeddings" : "");
        for (int k = 0; k < e->layers.count[i]; k++, layer++) {
            fprintf(out, "%slayers.%d", between, layer);
            between = ",";
        }
        fprintf(out, "%s%s\n", i + 1 == e->layers.n ? between : "",
                i + 1 == e->layers.n ? "norm,lm_head" : "");
    }
}

static void titan_degrees(const struct merak_plan *p, FILE *out)
{
    int among = merak_plan_is_home_in(p) ? p->dp_in : p->zero > 0 ? p->dp : 1;
    size_t sharded = (size_t)among * (p->ep > 1 ? (size_t)p->ep : 1);

    fprintf(out,
            "--parallelism.data_parallel_replicate_degree %zu\n"
            "--parallelism.data_parallel_shard_degree %zu\n"
            "--parallelism.tensor_parallel_degree %d\n"
            "--parallelism.pipeline_parallel_degree %d\n",
            plan_trainer_replicas(p) / sharded, sharded, p->tp, p->pp);
    if (p->tp > 1 && p->sp == MERAK_SP_OFF)
        fputs("--parallelism.no_enable_sequence_parallel\n", out);
    if (p->cp > 1)
        fprintf(out, "--parallelism.context_parallel_degree %d\n", p->cp);
    if (p->ep > 1)
        fprintf(out, "--parallelism.expert_parallel_degree %d\n", p->ep);
    if (p->zero > 0 && merak_plan_shares(p))
        fprintf(out, "--parallelism.fsdp_reshard_after_forward %s\n",
                p->zero >= MERAK_ZERO_PARAMS ? "always" : "never");
}

static void emit_torchtitan(const struct plan_emitted *e, FILE *out,
                            struct plan_notes *n)
{
    const struct merak_plan *p = e->plan;
    enum merak_recompute all = p->recompute;
    bool offloads = merak_plan_offloads_state(p);

    fprintf(out,
            "--training.seq_len %zu\n--training.local_batch_size %zu\n"
            "--training.global_batch_size %zu\n"
            "--training.mixed_precision_param %s\n%s",
            e->seq,
            plan_trainer_micro_batch(p) *
                (p->pp > 1 ? (size_t)p->microbatches : 1),
            e->global_batch, p->dtype == MERAK_BF16 ? "bfloat16" : "float32",
            offloads ? "--training.enable_cpu_offload\n" : "");
    titan_degrees(p, out);
    if (p->pp > 1)
        fprintf(out,
                "--parallelism.pipeline_parallel_schedule %s\n"
                "--parallelism.pipeline_parallel_microbatch_size %zu\n",
                plan_trainer_schedule(n->trainer, p)->its,
                plan_trainer_micro_batch(p));
    if (p->pp > 1 || p->ep > 1) /* CUDA graphs capture neither */
        fputs("--training.disable_cuda_graphs\n", out);
    if (e->lays_out)
        titan_parts(e, out);
    fprintf(out, "activation-checkpoint:%s\n",
            all == MERAK_RECOMPUTE_SELECTIVE ? "selective"
            : all != MERAK_RECOMPUTE_NONE    ? "full"
                                             : "none");
    if (all == MERAK_RECOMPUTE_SELECTIVE)
        plan_hint(n,
                  "its selective recomputes what lies between matrix products "
                  "and attention, not attention");
    if (p->ep > 1 && p->tp > 1)
        plan_hint(n, "it divides experts among tensor groups, too, and does "
                     "not cut them, so takes more");
    if (p->zero == MERAK_ZERO_GRADS)
        plan_hint(n, "it shards parameters, too, and gathers them once a step");
    if (merak_plan_is_home_in(p))
        plan_hint(n,
                  "it shards optimizer state like parameters, so takes more");
    if (offloads) {
        plan_hint(
            n, "it keeps parameters and gradients in the host's memory, too");
        plan_note_offload(n);
    }
    plan_hint(n,
              "before these options, give the model by its own names for it: "
              "--module and --config");
}

/* --- DeepSpeed ------------------------------------------------------------ */

static json_t *deepspeed_object(const struct plan_emitted *e,
                                struct plan_notes *n)
{
    const struct merak_plan *p = e->plan;
    bool offloads = merak_plan_offloads_state(p);
    int shared = merak_plan_shares(p) ? p->zero : MERAK_ZERO_NONE;
    int stage =
        offloads && shared == MERAK_ZERO_NONE ? MERAK_ZERO_STATE : shared;
    json_t *o = json_pack(
        "{s: I, s: I, s: i, s: {s: i}, s: {s: b}}", "train_batch_size",
        (json_int_t)e->global_batch, "train_micro_batch_size_per_gpu",
        (json_int_t)plan_trainer_micro_batch(p), "gradient_accumulation_steps",
        p->microbatches, "zero_optimization", "stage", stage, "bf16", "enabled",
        p->dtype == MERAK_BF16);

    if (p->grad_dtype == MERAK_BF16) {
        json_object_set_new(o, "data_types",
                            json_pack("{s: s}", "grad_accum_dtype", "bf16"));
        json_object_set_new(o, "communication_data_type", json_string("bf16"));
    }
    if (offloads) {
        json_object_set_new(
            json_object_get(o, "zero_optimization"), "offload_optimizer",
            json_pack("{s: s, s: b}", "device", "cpu", "pin_memory", true));
        plan_note_offload(n);
    }
    if (p->recompute != MERAK_RECOMPUTE_NONE)
        json_object_set_new(
            o, "activation_checkpointing",
            json_pack("{s: b}", "partition_activations", p->tp > 1));
    if (p->tp > 1 || p->pp > 1)
        plan_hint(
            n,
            "the program sets degrees: PipelineModule(..., "
            "topology=PipeModelDataParallelTopology(num_pp=%d, num_mp=%d, "
            "num_dp=%d))",
            p->pp, p->tp, p->dp);
    if (p->cp > 1)
        plan_hint(n,
                  "the model cuts sequences over %d ranks, by "
                  "DistributedAttention",
                  p->cp);
    if (p->recompute == MERAK_RECOMPUTE_SELECTIVE)
        plan_hint(n, "the model decides that attention alone is recomputed");
    return o;
}

/* --- together ------------------------------------------------------------- */

/* A layout is written where the trainer would divide the layers otherwise. */
static bool lays_out(const struct plan_trainer *t, const struct plan_emitted *e)
{
    return plan_has_counts(e) && e->plan->pp > 1 && t->cuts_layers &&
           (t->lists_even || !is_even(e));
}

static void put_text(const char *comments, const char *text, FILE *out)
{
    for (const char *at = comments; *at != '\0';) {
        size_t bytes = strcspn(at, "\n");

        fprintf(out, "# %.*s\n", (int)bytes, at);
        at += bytes + (at[bytes] == '\n');
    }
    fputs(text, out);
}

/* JSON has no comments: they are a list of strings. */
static enum merak_status put_object(json_t *object, const char *comments,
                                    FILE *out, struct merak_error *err)
{
    json_t *list = json_array();

    if (object == NULL || list == NULL) {
        json_decref(list);
        return merak_fail_nomem(err, strlen(comments) + 1);
    }
    for (const char *at = comments; *at != '\0';) {
        size_t bytes = strcspn(at, "\n");

        json_array_append_new(list, json_stringn(at, bytes));
        at += bytes + (at[bytes] == '\n');
    }
    if (json_array_size(list) > 0)
        json_object_set(object, "comment", list);
    json_decref(list);
    json_dumpf(object, out, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
    fputc('\n', out);
    return MERAK_OK;
}

/* What differs from the plan, and what is refused. */
static void note_all(enum plan_emit what, const struct plan_emitted *e,
                     struct plan_notes *n)
{
    const struct plan_numbers numbers = plan_numbers_of(n->trainer, e);

    note_times(e, n);
    note_choices(e, n);
    note_lists(e, n);
    if (e->training != NULL && *e->training != '\0')
        plan_lose(n, "not emitted: %s, with which the plan was made",
                  e->training);
    plan_rules_check(what, &numbers, note_rule, n);
}

enum merak_status plan_emit(enum plan_emit what,
                            const struct plan_emitted *emitted, FILE *out,
                            FILE *errors, int *lost_p, struct merak_error *err)
{
    struct plan_emitted e = *emitted;
    struct merak_plan runs;
    struct merak_text_writer said, written;
    struct plan_notes n = {.trainer = plan_trainer_of(what),
                           .comments = merak_text_open(&said),
                           .errors = errors};
    FILE *body = merak_text_open(&written);
    char *comments = NULL, *text = NULL;
    json_t *object = NULL;
    enum merak_status rc, text_rc;

    if (e.wanted == NULL) {
        runs = plan_trainer_adapt(n.trainer, e.plan);
        e.wanted = e.plan;
        e.plan = &runs;
    }
    e.lays_out = lays_out(n.trainer, &e);
    if (n.comments != NULL && body != NULL) {
        note_all(what, &e, &n);
        if (what == PLAN_EMIT_MEGATRON)
            plan_emit_megatron(&e, body, &n);
        else if (what == PLAN_EMIT_TORCHTITAN)
            emit_torchtitan(&e, body, &n);
        else
            object = deepspeed_object(&e, &n);
    }
    rc = merak_text_close(&said, &comments, err);
    text_rc = merak_text_close(&written, &text, err);
    rc = rc == MERAK_OK ? text_rc : rc;
    if (rc == MERAK_OK && what == PLAN_EMIT_DEEPSPEED)
        rc = put_object(object, comments, out, err);
    else if (rc == MERAK_OK)
        put_text(comments, text, out);
    if (rc == MERAK_OK)
        *lost_p = n.lost;
    json_decref(object);
    free(comments);
    free(text);
    return rc;
}

enum merak_status plan_emit_status(const struct plan_options *opt, int lost,
                                   struct merak_error *err)
{
    if (lost == 0 || opt->emit_anyway)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "%d line%s above: what was printed is not the plan that "
                      "was asked for, or is refused; change the plan, or take "
                      "it with --emit-anyway",
                      lost, merak_plural(lost));
}
