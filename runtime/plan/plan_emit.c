/* SPDX-License-Identifier: Apache-2.0 */
/* plan_emit.c - a plan as options of Megatron-LM, torchtitan and DeepSpeed
 *
 * Only features that the other trainer has in the same form become its
 * options.  What it does differently, or not at all, is listed: its run is
 * then not the one that was planned.
 */
#include "config.h"

#include "runtime/plan/plan_emit.h"

#include "base/error.h"
#include "base/size.h"
#include "partitioner/plan/list_text.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static void note(FILE *notes, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void note(FILE *notes, const char *fmt, ...)
{
    va_list ap;

    fputs("merak plan: cannot express: ", notes);
    va_start(ap, fmt);
    vfprintf(notes, fmt, ap);
    va_end(ap);
    fputc('\n', notes);
}

static bool is_schedule(const struct merak_plan *p, const char *name)
{
    return strcmp(p->schedule, name) == 0;
}

/* Sequences of a micro-batch, as other trainers count them. */
static size_t micro_batch(const struct merak_plan *p)
{
    return p->micro_batch * (p->sub_pipeline ? 2 : 1);
}

/* What all parts recompute, as far as others can say it: everything where any
 * part does more than its attention. */
static enum merak_recompute recompute_of(const struct merak_plan *p)
{
    int n = p->drop != NULL ? merak_plan_own_parts(p) : 0;
    bool attention = n > 0;

    if (n == 0)
        return p->recompute;
    if (!merak_drops_any(p->drop, n))
        return MERAK_RECOMPUTE_NONE;
    for (int i = 0; i < n; i++)
        attention = attention && p->drop[i].attention && p->drop[i].blocks == 0;
    return attention ? MERAK_RECOMPUTE_SELECTIVE : MERAK_RECOMPUTE_FULL;
}

static bool parts_recompute_alike(const struct merak_plan *p)
{
    int n = p->drop != NULL ? merak_plan_own_parts(p) : 0;
    enum merak_recompute all = recompute_of(p);

    return n == 0 || all == MERAK_RECOMPUTE_NONE ||
           all == MERAK_RECOMPUTE_SELECTIVE;
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
        return e->plan->cut == NULL;
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

/* Where layers are cut, or their numbers are not as even as the trainer makes
 * them; `can`: the trainer takes any numbers of whole layers. */
static void note_layers(const struct plan_emitted *e, bool can, FILE *notes)
{
    char counts[160] = "";

    if (is_even(e))
        return;
    if (e->layers.count == NULL) {
        note(notes, "stages of unequal numbers of layers (--cut of the plan)");
        return;
    }
    counts_text(&e->layers, counts, sizeof(counts));
    if (!can)
        note(notes, "stages of unequal numbers of layers: %s", counts);
    else if (e->layers.split > 0)
        note(notes, "%d cut%s inside a layer; emitted with whole layers: %s",
             e->layers.split, e->layers.split == 1 ? "" : "s", counts);
}

/* Features that none of them has. */
static void note_own(const struct plan_emitted *e, bool can_cut, FILE *notes)
{
    const struct merak_plan *p = e->plan;

    if (p->tp_batch_percent > 0)
        note(notes,
             "samples divided over tensor ranks in the last %d %% of the model",
             p->tp_batch_percent);
    if (p->sub_pipeline)
        note(notes, "micro-batches in two halves, communication of one "
                    "overlapped with compute of the other");
    note_layers(e, can_cut, notes);
    if (!parts_recompute_alike(p))
        note(notes, "stages that recompute different parts; emitted the same "
                    "for all");
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

static void megatron_recompute(const struct merak_plan *p, FILE *out)
{
    enum merak_recompute all = recompute_of(p);

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

    if (l->count == NULL || l->n < 2 || is_even(e)) {
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

static void emit_megatron(const struct plan_emitted *e, FILE *out, FILE *notes)
{
    const struct merak_plan *p = e->plan;

    fprintf(out,
            "--tensor-model-parallel-size %d\n"
            "--pipeline-model-parallel-size %d\n--micro-batch-size %zu\n"
            "--global-batch-size %zu\n--seq-length %zu\n",
            p->tp, p->pp, micro_batch(p), e->global_batch, e->seq);
    if (p->cp > 1)
        fprintf(out, "--context-parallel-size %d\n", p->cp);
    megatron_stages(e, out);
    if (p->tp > 1 && p->sp != MERAK_SP_OFF)
        fputs("--sequence-parallel\n", out);
    if (p->zero > 0 && p->dp > 1)
        fputs("--use-distributed-optimizer\n", out);
    if (p->zero >= MERAK_ZERO_GRADS)
        fprintf(out,
                "--use-megatron-fsdp\n"
                "--data-parallel-sharding-strategy optim_grads%s\n",
                p->zero >= MERAK_ZERO_PARAMS ? "_params" : "");
    if (p->order_tp_pp_dp)
        fputs("--use-tp-pp-dp-mapping\n", out);
    if (p->dtype == MERAK_BF16)
        fputs("--bf16\n", out);
    megatron_recompute(p, out);
    if (e->config != NULL)
        megatron_model(e->config, out);
    if (p->pp > 1 && !is_schedule(p, "1f1b") && !is_schedule(p, "interleaved"))
        note(notes,
             "schedule %s; Megatron-LM runs 1f1b, or interleaved with "
             "virtual stages",
             p->schedule);
    if (e->config != NULL && is_other_model(e->config))
        note(notes, "the model's norms, activation, windows or factors, "
                    "which are not those of Llama");
    if (e->config == NULL)
        note(notes, "the model, which a program describes");
    note_own(e, e->layers.count != NULL, notes);
}

/* --- torchtitan ----------------------------------------------------------- */

static const char *titan_schedule(const struct merak_plan *p)
{
    static const char *const name[][2] = {{"1f1b", "1F1B"},
                                          {"gpipe", "GPipe"},
                                          {"interleaved", "Interleaved1F1B"},
                                          {"zb-v", "ZBVZeroBubble"}};

    for (size_t i = 0; i < sizeof(name) / sizeof(name[0]); i++) {
        if (is_schedule(p, name[i][0]))
            return name[i][1];
    }
    return NULL;
}

static void emit_torchtitan(const struct plan_emitted *e, FILE *out,
                            FILE *notes)
{
    const struct merak_plan *p = e->plan;
    const char *schedule = titan_schedule(p);
    enum merak_recompute all = recompute_of(p);

    fprintf(out,
            "[training]\nseq_len = %zu\nlocal_batch_size = %zu\n"
            "global_batch_size = %zu\nmixed_precision_param = \"%s\"\n\n",
            e->seq, micro_batch(p) * (p->pp > 1 ? (size_t)p->microbatches : 1),
            e->global_batch, p->dtype == MERAK_BF16 ? "bfloat16" : "float32");
    fprintf(out,
            "[parallelism]\ndata_parallel_replicate_degree = %d\n"
            "data_parallel_shard_degree = %d\ntensor_parallel_degree = %d\n"
            "pipeline_parallel_degree = %d\n",
            p->zero > 0 ? 1 : p->dp, p->zero > 0 ? p->dp : 1, p->tp, p->pp);
    if (p->cp > 1)
        fprintf(out, "context_parallel_degree = %d\n", p->cp);
    if (p->zero > 0 && p->dp > 1)
        fprintf(out, "fsdp_reshard_after_forward = \"%s\"\n",
                p->zero >= MERAK_ZERO_PARAMS ? "always" : "never");
    if (p->pp > 1)
        fprintf(out,
                "pipeline_parallel_schedule = \"%s\"\n"
                "pipeline_parallel_microbatch_size = %zu\n",
                schedule != NULL ? schedule : "1F1B", micro_batch(p));
    fprintf(out, "\n[activation_checkpoint]\nmode = \"%s\"\n",
            all == MERAK_RECOMPUTE_SELECTIVE ? "selective"
            : all != MERAK_RECOMPUTE_NONE    ? "full"
                                             : "none");
    if (p->pp > 1 && schedule == NULL)
        note(notes, "schedule %s; emitted 1F1B instead", p->schedule);
    if (p->zero > 0 && p->zero < MERAK_ZERO_PARAMS && p->dp > 1)
        note(notes,
             "sharding of the optimizer state%s alone; torchtitan "
             "shards parameters, too, and gathers them once a step",
             p->zero >= MERAK_ZERO_GRADS ? " and gradients" : "");
    if (p->tp > 1 && p->sp == MERAK_SP_OFF)
        note(notes, "no sequence parallelism; torchtitan's tensor parallelism "
                    "always has it");
    if (p->order_tp_pp_dp)
        note(notes, "ranks in the order tp-pp-dp; torchtitan's are "
                    "tp-dp-pp");
    note(notes, "the model: torchtitan has its own name for it ([model])");
    note_own(e, false, notes);
}

/* --- DeepSpeed ------------------------------------------------------------ */

static void emit_deepspeed(const struct plan_emitted *e, FILE *out, FILE *notes)
{
    const struct merak_plan *p = e->plan;
    json_t *o = json_pack(
        "{s: I, s: I, s: i, s: {s: i}, s: {s: b}}", "train_batch_size",
        (json_int_t)e->global_batch, "train_micro_batch_size_per_gpu",
        (json_int_t)micro_batch(p), "gradient_accumulation_steps",
        p->microbatches / (p->sub_pipeline ? 2 : 1), "zero_optimization",
        "stage", p->dp > 1 ? p->zero : 0, "bf16", "enabled",
        p->dtype == MERAK_BF16);

    if (recompute_of(p) != MERAK_RECOMPUTE_NONE)
        json_object_set_new(
            o, "activation_checkpointing",
            json_pack("{s: b}", "partition_activations", p->tp > 1));
    json_dumpf(o, out, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
    fputc('\n', out);
    json_decref(o);
    if (p->tp > 1 || p->pp > 1)
        note(notes,
             "degrees, which the program sets: PipelineModule(..., "
             "topology=PipeModelDataParallelTopology(num_pp=%d, num_mp=%d, "
             "num_dp=%d))",
             p->pp, p->tp, p->dp);
    if (p->cp > 1)
        note(notes,
             "sequences cut over %d ranks; the model does that, by "
             "DistributedAttention",
             p->cp);
    if (p->pp > 1 && !is_schedule(p, "1f1b"))
        note(notes, "schedule %s; DeepSpeed's pipeline runs 1f1b", p->schedule);
    if (p->order_tp_pp_dp)
        note(notes, "ranks in the order tp-pp-dp");
    if (recompute_of(p) == MERAK_RECOMPUTE_SELECTIVE)
        note(notes, "recomputation of attention alone; the model decides");
    note_own(e, false, notes);
}

void plan_emit(enum plan_emit what, const struct plan_emitted *e, FILE *out,
               FILE *notes)
{
    switch (what) {
    case PLAN_EMIT_MEGATRON:
        emit_megatron(e, out, notes);
        break;
    case PLAN_EMIT_TORCHTITAN:
        emit_torchtitan(e, out, notes);
        break;
    case PLAN_EMIT_DEEPSPEED:
        emit_deepspeed(e, out, notes);
        break;
    default:
        break;
    }
}

/* --- what it costs -------------------------------------------------------- */

void plan_cost_print(const struct plan_cost *cost, double tokens_per_s,
                     int ranks, FILE *out)
{
    double hours = cost->tokens / tokens_per_s / 3600;
    char text[MERAK_NUMBER_TEXT];

    if (cost->tokens <= 0 || tokens_per_s <= 0)
        return;
    fprintf(out, "\n%.4g tokens: %.4g days, %s GPU-hours", cost->tokens,
            hours / 24, merak_number_text(hours * ranks, text));
    if (cost->price > 0)
        fprintf(out, ", %s at %.4g an hour",
                merak_number_text(hours * ranks * cost->price, text),
                cost->price);
    fputc('\n', out);
}

int plan_knee(const int *nodes, const double *tokens_per_s, int n)
{
    double first = tokens_per_s[0] / nodes[0];
    int knee = 0;

    for (int i = 1; i < n; i++) {
        double gained =
            (tokens_per_s[i] - tokens_per_s[i - 1]) / (nodes[i] - nodes[i - 1]);

        if (gained < first / 2)
            break;
        knee = i;
    }
    return knee;
}
