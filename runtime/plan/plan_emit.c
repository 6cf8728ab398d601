/* SPDX-License-Identifier: Apache-2.0 */
/* plan_emit.c - a plan as options of Megatron-LM, torchtitan and DeepSpeed
 *
 * What is written is the plan as that trainer can run it (trainers.c).  What it
 * does otherwise, or would refuse (trainer_rules.c), stands in comments of the
 * output, and what was asked for and cannot be had also on standard error.
 */
#include "config.h"

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

/* What is said beside the options. */
struct notes {
    const struct plan_trainer *trainer;
    FILE *comments; /* a line each */
    FILE *errors;
    int lost; /* lines of errors */
};

/* What its reader has to know. */
static void hint(struct notes *n, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void hint(struct notes *n, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vfprintf(n->comments, fmt, ap);
    va_end(ap);
    fputc('\n', n->comments);
}

/* What was asked for, and is not in the output or not accepted. */
static void lose(struct notes *n, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void lose(struct notes *n, const char *fmt, ...)
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
static void note_choices(const struct plan_emitted *e, struct notes *n)
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
            lose(n, "cannot express: %s %s; emitted %s", c->option.name, want,
                 get);
        else
            hint(n, "%s %s instead of the plan's %s", c->option.name, get,
                 want);
    }
}

/* Parts that recompute differently, and parts of other layers than those of the
 * plan; `can`: the trainer takes any numbers of whole layers. */
static void note_lists(const struct plan_emitted *e, struct notes *n)
{
    const struct merak_plan *p = e->wanted;
    int parts = p->drop != NULL ? merak_plan_own_parts(p) : 0;
    enum merak_recompute all = plan_recompute_of(p);
    char counts[160] = "", word[MERAK_CHOICE_WORD];
    bool alike = parts == 0 || all != MERAK_RECOMPUTE_FULL;

    if (p->stage != NULL)
        lose(n, "cannot express: stages of unlike ranks");
    if (p->ep > 1)
        lose(n, "cannot express: experts divided among %d ranks", p->ep);
    if (!alike || all != e->plan->recompute) {
        merak_choice_word(&merak_choice[MERAK_CHOICE_RECOMPUTE],
                          (long)e->plan->recompute, word);
        if (is_given(e, MERAK_CHOICE_RECOMPUTE))
            lose(n,
                 "cannot express: stages that recompute different parts; "
                 "emitted %s for all",
                 word);
        else
            hint(n, "all stages recompute alike: %s", word);
    }
    if (is_even(e))
        return;
    if (plan_has_counts(e))
        counts_text(&e->layers, counts, sizeof(counts));
    if (plan_has_counts(e) && n->trainer->cuts_layers) {
        if (e->layers.split > 0)
            hint(n,
                 "%d cut%s of the plan inside a layer; here whole layers: %s",
                 e->layers.split, e->layers.split == 1 ? "" : "s", counts);
    } else if (is_given(e, MERAK_CHOICE_CUT)) {
        lose(n, "cannot express: stages of unequal numbers of layers%s%s",
             counts[0] != '\0' ? ": " : " (--cut of the plan)", counts);
    } else {
        hint(n, "%s divides the layers; the plan's stages have%s%s",
             n->trainer->name, counts[0] != '\0' ? " " : " unequal numbers",
             counts);
    }
}

static void note_rule(void *arg, const char *rule, const char *source)
{
    struct notes *n = arg;

    lose(n, "%s refuses it: %s (%s)", n->trainer->name, rule, source);
}

/* The plan, and the plan as the trainer runs it, with their times. */
static void note_times(const struct plan_emitted *e, struct notes *n)
{
    char plan[MERAK_PLAN_TEXT], step[MERAK_SECONDS_TEXT];

    if (e->wanted_s <= 0)
        return;
    merak_plan_describe(e->wanted, plan, sizeof(plan));
    hint(n, "planned: %s a step: %s", merak_seconds_text(e->wanted_s, step),
         plan);
    merak_plan_describe(e->plan, plan, sizeof(plan));
    if (e->step_s > 0)
        hint(n, "as %s runs it: %s a step: %s", n->trainer->name,
             merak_seconds_text(e->step_s, step), plan);
    else
        hint(n, "as %s runs it, not predicted to fit: %s", n->trainer->name,
             plan);
}

/* Merak's states come to the GPU to be updated; there the CPU updates them. */
static void note_offload(struct notes *n)
{
    hint(n,
         "%s updates offloaded states on the CPU, whose time is not predicted: "
         "what is predicted is copying them",
         n->trainer->name);
}

/* --- Megatron-LM ---------------------------------------------------------- */

static void megatron_model(const struct merak_hf_config *c, FILE *out)
{
    fprintf(out,
            "--num-layers %zu\n--hidden-size %zu\n--ffn-hidden-size %zu\n"
            "--num-attention-heads %zu\n--max-position-embeddings %zu\n"
            "--vocab-size %zu\n",
            c->layers, c->hidden, c->ffn, c->heads, c->positions, c->vocab);
    if (c->kv_heads != c->heads)
        fprintf(out, "--group-query-attention\n--num-query-groups %zu\n",
                c->kv_heads);
    if (c->head_dim * c->heads != c->hidden)
        fprintf(out, "--kv-channels %zu\n", c->head_dim);
    if (c->family != MERAK_GPT2)
        fprintf(out,
                "%s%s--position-embedding-type rope\n--rotary-base %.0f\n%s",
                !c->plain_mlp              ? "--swiglu\n"
                : c->act == MERAK_HF_RELU2 ? "--squared-relu\n"
                                           : "",
                c->norm.has_mean ? "" : "--normalization RMSNorm\n",
                (double)c->rope.theta,
                c->mlp_bias ? "" : "--disable-bias-linear\n");
    if (c->rope.scaling.turned > 0)
        fprintf(out, "--rotary-percent %g\n",
                (double)c->rope.scaling.turned / (double)c->head_dim);
    if (!c->tied)
        fputs("--untie-embeddings-and-output-weights\n", out);
    if (c->qkv_bias)
        fputs("--add-qkv-bias\n", out);
    if (c->norm.of_qk)
        fputs("--qk-layernorm\n", out);
}

/* What Megatron-LM has no flags for. */
static bool is_other_model(const struct merak_hf_config *c)
{
    bool geglu = c->act == MERAK_HF_GELU_TANH && !c->plain_mlp;
    bool other = c->norm.is_post || c->norm.is_both || c->norm.plus_1 ||
                 c->parallel || c->embd_scaled || c->embd_factor > 0 ||
                 c->window > 0 || (geglu && c->family != MERAK_GPT2);

    for (size_t i = 0; i < c->layers; i++)
        other = other || c->rope.is_off[i];
    return other;
}

static void megatron_recompute(enum merak_recompute all, FILE *out)
{
    if (all == MERAK_RECOMPUTE_SELECTIVE)
        fputs("--recompute-granularity selective\n", out);
    else if (all != MERAK_RECOMPUTE_NONE)
        fputs("--recompute-granularity full\n--recompute-method uniform\n"
              "--recompute-num-layers 1\n",
              out);
}

/* Without a layout it divides layers evenly, and refuses numbers that do not
 * divide.  "Et*4|t*4|t*3L": parts, the embedding before the first layer, the
 * loss after the last one. */
static void megatron_stages(const struct plan_emitted *e, FILE *out)
{
    const struct plan_layers *l = &e->layers;
    int chunks = merak_plan_chunks(e->plan);

    if (!e->lays_out) {
        if (chunks > 1)
            fprintf(out, "--num-virtual-stages-per-pipeline-rank %d\n", chunks);
        return;
    }
    fputs("--pipeline-model-parallel-layout E", out);
    for (int i = 0; i < l->n; i++) {
        if (i > 0)
            fputc('|', out);
        if (l->count[i] > 0)
            fprintf(out, "t*%d", l->count[i]);
    }
    fputs("L\n", out);
}

static void emit_megatron(const struct plan_emitted *e, FILE *out,
                          struct notes *n)
{
    const struct merak_plan *p = e->plan;

    fprintf(out,
            "--tensor-model-parallel-size %d\n"
            "--pipeline-model-parallel-size %d\n--micro-batch-size %zu\n"
            "--global-batch-size %zu\n--seq-length %zu\n",
            p->tp, p->pp, plan_trainer_micro_batch(p), e->global_batch, e->seq);
    if (p->cp > 1)
        fprintf(out, "--context-parallel-size %d\n", p->cp);
    megatron_stages(e, out);
    if (p->tp > 1 && p->sp != MERAK_SP_OFF)
        fputs("--sequence-parallel\n", out);
    if (p->zero > 0 && (p->dp > 1 || p->cp > 1))
        fputs("--use-distributed-optimizer\n", out);
    if (p->zero >= MERAK_ZERO_GRADS)
        fprintf(out,
                "--use-megatron-fsdp\n--ckpt-format fsdp_dtensor\n"
                "--data-parallel-sharding-strategy optim_grads%s\n",
                p->zero >= MERAK_ZERO_PARAMS ? "_params" : "");
    if (p->offload != MERAK_OFFLOAD_NONE) {
        fputs("--optimizer-cpu-offload\n--optimizer-offload-fraction 1.0\n"
              "--use-precision-aware-optimizer\n"
              "--overlap-cpu-optimizer-d2h-h2d\n",
              out);
        note_offload(n);
    }
    if (p->order_tp_pp_dp)
        fputs("--use-tp-pp-dp-mapping\n", out);
    if (p->dtype == MERAK_BF16)
        fputs("--bf16\n", out);
    megatron_recompute(p->recompute, out);
    if (e->config != NULL)
        megatron_model(e->config, out);
    if (p->zero >= MERAK_ZERO_GRADS)
        hint(n, "run it with CUDA_DEVICE_MAX_CONNECTIONS unset or above 1");
    else if (p->tp > 1 || p->cp > 1)
        hint(n, "before Blackwell, run it with CUDA_DEVICE_MAX_CONNECTIONS=1");
    if (e->config != NULL && is_other_model(e->config))
        lose(n, "cannot express: the model's norms, activation, windows or "
                "factors, which are not those of Llama");
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
    int sharded = merak_plan_is_home_in(p) ? p->dp_in : p->zero > 0 ? p->dp : 1;

    fprintf(out,
            "--parallelism.data_parallel_replicate_degree %d\n"
            "--parallelism.data_parallel_shard_degree %d\n"
            "--parallelism.tensor_parallel_degree %d\n"
            "--parallelism.pipeline_parallel_degree %d\n",
            p->dp / sharded, sharded, p->tp, p->pp);
    if (p->tp > 1 && p->sp == MERAK_SP_OFF)
        fputs("--parallelism.no_enable_sequence_parallel\n", out);
    if (p->cp > 1)
        fprintf(out, "--parallelism.context_parallel_degree %d\n", p->cp);
    if (p->zero > 0 && (p->dp > 1 || p->cp > 1))
        fprintf(out, "--parallelism.fsdp_reshard_after_forward %s\n",
                p->zero >= MERAK_ZERO_PARAMS ? "always" : "never");
}

static void emit_torchtitan(const struct plan_emitted *e, FILE *out,
                            struct notes *n)
{
    const struct merak_plan *p = e->plan;
    enum merak_recompute all = p->recompute;
    bool offloads = p->offload != MERAK_OFFLOAD_NONE;

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
    if (p->pp > 1) /* it does not capture pipelines in CUDA graphs */
        fprintf(out,
                "--parallelism.pipeline_parallel_schedule %s\n"
                "--parallelism.pipeline_parallel_microbatch_size %zu\n"
                "--training.disable_cuda_graphs\n",
                plan_trainer_schedule(n->trainer, p)->its,
                plan_trainer_micro_batch(p));
    if (e->lays_out)
        titan_parts(e, out);
    fprintf(out, "activation-checkpoint:%s\n",
            all == MERAK_RECOMPUTE_SELECTIVE ? "selective"
            : all != MERAK_RECOMPUTE_NONE    ? "full"
                                             : "none");
    if (all == MERAK_RECOMPUTE_SELECTIVE)
        hint(n, "its selective recomputes what lies between matrix products "
                "and attention, not attention");
    if (p->zero == MERAK_ZERO_GRADS)
        hint(n, "it shards parameters, too, and gathers them once a step");
    if (merak_plan_is_home_in(p))
        hint(n, "it shards optimizer state like parameters, so takes more");
    if (offloads) {
        hint(n, "it keeps parameters and gradients in the host's memory, too");
        note_offload(n);
    }
    hint(n, "before these options, give the model by its own names for it: "
            "--module and --config");
}

/* --- DeepSpeed ------------------------------------------------------------ */

static json_t *deepspeed_object(const struct plan_emitted *e, struct notes *n)
{
    const struct merak_plan *p = e->plan;
    bool offloads = p->offload != MERAK_OFFLOAD_NONE;
    int shared = p->dp > 1 ? p->zero : MERAK_ZERO_NONE;
    int stage =
        offloads && shared == MERAK_ZERO_NONE ? MERAK_ZERO_STATE : shared;
    json_t *o = json_pack(
        "{s: I, s: I, s: i, s: {s: i}, s: {s: b}}", "train_batch_size",
        (json_int_t)e->global_batch, "train_micro_batch_size_per_gpu",
        (json_int_t)plan_trainer_micro_batch(p), "gradient_accumulation_steps",
        p->microbatches, "zero_optimization", "stage", stage, "bf16", "enabled",
        p->dtype == MERAK_BF16);

    if (offloads) {
        json_object_set_new(
            json_object_get(o, "zero_optimization"), "offload_optimizer",
            json_pack("{s: s, s: b}", "device", "cpu", "pin_memory", true));
        note_offload(n);
    }
    if (p->recompute != MERAK_RECOMPUTE_NONE)
        json_object_set_new(
            o, "activation_checkpointing",
            json_pack("{s: b}", "partition_activations", p->tp > 1));
    if (p->tp > 1 || p->pp > 1)
        hint(n,
             "the program sets degrees: PipelineModule(..., "
             "topology=PipeModelDataParallelTopology(num_pp=%d, num_mp=%d, "
             "num_dp=%d))",
             p->pp, p->tp, p->dp);
    if (p->cp > 1)
        hint(n,
             "the model cuts sequences over %d ranks, by "
             "DistributedAttention",
             p->cp);
    if (p->recompute == MERAK_RECOMPUTE_SELECTIVE)
        hint(n, "the model decides that attention alone is recomputed");
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
                     struct notes *n)
{
    const struct plan_numbers numbers = plan_numbers_of(n->trainer, e);

    note_times(e, n);
    note_choices(e, n);
    note_lists(e, n);
    if (e->training != NULL && *e->training != '\0')
        lose(n, "not emitted: %s, with which the plan was made", e->training);
    plan_rules_check(what, &numbers, note_rule, n);
}

enum merak_status plan_emit(enum plan_emit what,
                            const struct plan_emitted *emitted, FILE *out,
                            FILE *errors, int *lost_p, struct merak_error *err)
{
    struct plan_emitted e = *emitted;
    struct merak_plan runs;
    struct merak_text_writer said, written;
    struct notes n = {.trainer = plan_trainer_of(what),
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
            emit_megatron(&e, body, &n);
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
