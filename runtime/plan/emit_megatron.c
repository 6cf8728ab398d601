/* SPDX-License-Identifier: Apache-2.0 */
/* emit_megatron.c - a plan, and the model it is of, as flags of Megatron-LM */
#include "config.h"

#include "runtime/plan/trainers.h"

/* --- the model ------------------------------------------------------------ */

/* Llama 3.1's ramp, whose ends are fixed there: 1 and 4 turns in 8192
 * positions.
 */
static bool is_fixed_ramp(const struct merak_rope_scaling *s)
{
    return s->kind == MERAK_ROPE_FREQUENCY_RAMP && s->low * 8192 == 1 &&
           s->high * 8192 == 4;
}

static void put_rope(const struct merak_hf_config *c, FILE *out)
{
    const struct merak_rope_scaling *s = &c->rope.scaling;

    fprintf(out, "--position-embedding-type rope\n--rotary-base %.0f\n",
            (double)c->rope.theta);
    if (is_fixed_ramp(s))
        fprintf(out, "--use-rope-scaling\n--rope-scaling-factor %g\n",
                s->factor);
    if (s->turned > 0)
        fprintf(out, "--rotary-percent %g\n",
                (double)s->turned / (double)c->head_dim);
}

/* Layers with one MLP instead, as a list of Python's: "[0]*1+[1]*46". */
static void put_dense_layers(const struct merak_hf_config *c, FILE *out)
{
    const bool *dense = c->mixture.is_dense;
    bool any = false;

    for (size_t i = 0; i < c->layers; i++)
        any = any || dense[i];
    if (!any)
        return;
    fputs("--moe-layer-freq ", out);
    for (size_t i = 0, n; i < c->layers; i += n) {
        for (n = 1; i + n < c->layers && dense[i + n] == dense[i];)
            n++;
        fprintf(out, "%s[%d]*%zu", i > 0 ? "+" : "", !dense[i], n);
    }
    fputc('\n', out);
}

/* It has softmaxes of the chosen logits by default, which are the normalised
 * ones of all; and sigmoids only normalised. */
static void put_experts(const struct merak_hf_config *c, FILE *out)
{
    const struct merak_hf_mixture *m = &c->mixture;

    fprintf(out,
            "--num-experts %zu\n--moe-router-topk %zu\n"
            "--moe-ffn-hidden-size %zu\n--moe-grouped-gemm\n"
            "--moe-token-dispatcher-type alltoall\n",
            m->experts, m->chosen, m->ffn);
    put_dense_layers(c, out);
    if (m->shared_ffn > 0)
        fprintf(out, "--moe-shared-expert-intermediate-size %zu\n%s",
                m->shared_ffn,
                m->shared_gate ? "--moe-shared-expert-gate\n" : "");
    if (m->sigmoid)
        fputs("--moe-router-score-function sigmoid\n"
              "--moe-router-enable-expert-bias\n",
              out);
    else if (!m->normal)
        fputs("--moe-router-pre-softmax\n", out);
    if (m->wide)
        fputs("--moe-router-dtype fp32\n", out);
    if (m->groups > 1)
        fprintf(out,
                "--moe-router-num-groups %zu\n"
                "--moe-router-group-topk %zu\n",
                m->groups, m->groups_kept);
    if (m->scale > 0 && m->scale != 1)
        fprintf(out, "--moe-router-topk-scaling-factor %g\n", (double)m->scale);
    if (m->aux > 0)
        fprintf(out,
                "--moe-router-load-balancing-type aux_loss\n"
                "--moe-aux-loss-coeff %g\n",
                (double)m->aux);
    else
        fputs("--moe-router-load-balancing-type none\n", out);
}

static void put_model(const struct merak_hf_config *c, FILE *out)
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
    if (c->family != MERAK_GPT2) {
        fprintf(out, "%s%s%s",
                !c->plain_mlp              ? "--swiglu\n"
                : c->act == MERAK_HF_RELU2 ? "--squared-relu\n"
                                           : "",
                c->norm.has_mean ? "" : "--normalization RMSNorm\n",
                c->mlp_bias ? "" : "--disable-bias-linear\n");
        put_rope(c, out);
    }
    if (!c->tied)
        fputs("--untie-embeddings-and-output-weights\n", out);
    if (c->qkv_bias)
        fputs("--add-qkv-bias\n", out);
    if (c->norm.of_qk)
        fputs("--qk-layernorm\n", out);
    if (c->mixture.experts > 0)
        put_experts(c, out);
}

/* What it has no flags for. */
static bool is_other_model(const struct merak_hf_config *c)
{
    const struct merak_hf_mixture *m = &c->mixture;
    bool geglu = c->act == MERAK_HF_GELU_TANH && !c->plain_mlp;
    bool scaled = c->rope.scaling.kind != MERAK_ROPE_PLAIN &&
                  !is_fixed_ramp(&c->rope.scaling);
    bool other = c->norm.is_post || c->norm.is_both || c->norm.plus_1 ||
                 c->norm.of_heads || c->parallel || c->embd_scaled ||
                 c->embd_factor > 0 || c->resid_factor > 0 ||
                 c->logit_divisor > 0 || c->attn_scale > 0 || c->attn_cap > 0 ||
                 c->logit_cap > 0 || c->head_bias || c->window > 0 || scaled ||
                 c->latent.kv_rank > 0 || c->sinks || m->biased ||
                 (geglu && c->family != MERAK_GPT2);

    if (m->experts > 0)
        other = other || (m->sigmoid && !m->normal) ||
                (m->chosen == 1 && m->normal);
    for (size_t i = 0; i < c->layers; i++)
        other = other || c->rope.is_off[i];
    return other;
}

/* --- the plan ------------------------------------------------------------- */

static void put_recompute(enum merak_recompute all, FILE *out)
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
static void put_stages(const struct plan_emitted *e, FILE *out)
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

static void put_zero(const struct merak_plan *p, FILE *out)
{
    if (p->zero > 0 && merak_plan_shares(p))
        fputs("--use-distributed-optimizer\n", out);
    if (p->zero >= MERAK_ZERO_GRADS)
        fprintf(out,
                "--use-megatron-fsdp\n--ckpt-format fsdp_dtensor\n"
                "--data-parallel-sharding-strategy optim_grads%s\n",
                p->zero >= MERAK_ZERO_PARAMS ? "_params" : "");
    if (merak_plan_offloads_state(p))
        fputs("--optimizer-cpu-offload\n--optimizer-offload-fraction 1.0\n"
              "--use-precision-aware-optimizer\n"
              "--overlap-cpu-optimizer-d2h-h2d\n",
              out);
}

static void note_plan(const struct plan_emitted *e, struct plan_notes *n)
{
    const struct merak_plan *p = e->plan;
    const char *what;

    if (merak_plan_offloads_state(p))
        plan_note_offload(n);
    if (p->zero >= MERAK_ZERO_GRADS)
        plan_hint(n,
                  "run it with CUDA_DEVICE_MAX_CONNECTIONS unset or above 1");
    else if (p->tp > 1 || p->cp > 1)
        plan_hint(
            n, "before Blackwell, run it with CUDA_DEVICE_MAX_CONNECTIONS=1");
    if (e->config != NULL && !merak_hf_is_causal(e->config, &what))
        plan_lose(n, "cannot express: the model, which is %s", what);
    else if (e->config != NULL && is_other_model(e->config))
        plan_lose(n, "cannot express: the model's norms, activation, windows, "
                     "positions, router or factors, which are not those of "
                     "Llama or Mixtral");
}

void plan_emit_megatron(const struct plan_emitted *e, FILE *out,
                        struct plan_notes *n)
{
    const struct merak_plan *p = e->plan;
    const char *what;

    fprintf(out,
            "--tensor-model-parallel-size %d\n"
            "--pipeline-model-parallel-size %d\n--micro-batch-size %zu\n"
            "--global-batch-size %zu\n--seq-length %zu\n",
            p->tp, p->pp, plan_trainer_micro_batch(p), e->global_batch, e->seq);
    if (p->cp > 1)
        fprintf(out, "--context-parallel-size %d\n", p->cp);
    if (p->ep > 1)
        fprintf(out, "--expert-model-parallel-size %d\n", p->ep);
    put_stages(e, out);
    if (p->tp > 1 && p->sp != MERAK_SP_OFF)
        fputs("--sequence-parallel\n", out);
    put_zero(p, out);
    if (p->order_tp_pp_dp)
        fputs("--use-tp-pp-dp-mapping\n", out);
    if (p->dtype == MERAK_BF16)
        fputs("--bf16\n", out);
    if (p->grad_dtype == MERAK_BF16)
        fputs("--grad-reduce-in-bf16\n", out);
    put_recompute(p->recompute, out);
    if (e->config != NULL && merak_hf_is_causal(e->config, &what))
        put_model(e->config, out);
    note_plan(e, n);
}
