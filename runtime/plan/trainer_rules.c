/* SPDX-License-Identifier: Apache-2.0 */
/* trainer_rules.c - what the argument checks of other trainers demand
 *
 * A row is one demand, in their words for what it is about, and the file of
 * theirs that refuses what does not meet it.  Versions are in trainers.c.
 */
#include "config.h"

#include "runtime/plan/trainers.h"

/* --- demands -------------------------------------------------------------- */

static bool divides(size_t part, size_t all)
{
    return part > 0 && all % part == 0;
}

static bool has_model(const struct plan_numbers *n)
{
    return n->has_model;
}

static bool has_whole_batch(const struct plan_numbers *n)
{
    return n->micro_batch > 0 &&
           divides(n->micro_batch * n->dp, n->global_batch);
}

static bool has_whole_accumulation(const struct plan_numbers *n)
{
    return n->micro_batch * n->microbatches * n->dp == n->global_batch;
}

static bool has_even_stages(const struct plan_numbers *n)
{
    return n->laid_out || divides(n->pp * n->chunks, n->layers);
}

static bool has_whole_layout(const struct plan_numbers *n)
{
    return !n->laid_out || (divides(n->pp, n->parts) &&
                            (!n->has_model || n->counted == n->layers));
}

static bool has_stages_for_chunks(const struct plan_numbers *n)
{
    return n->chunks == 1 || n->pp > 1;
}

static bool has_groups(const struct plan_numbers *n)
{
    return n->chunks == 1 || divides(n->pp, n->microbatches);
}

static bool has_rounds(const struct plan_numbers *n)
{
    size_t rounds = n->microbatches / n->pp;

    return n->order != PLAN_INTERLEAVED || rounds < 2 ||
           divides(rounds, n->microbatches);
}

static bool has_a_microbatch_a_stage(const struct plan_numbers *n)
{
    return n->order != PLAN_1F1B || n->microbatches >= n->pp;
}

static bool has_layers_for_stages(const struct plan_numbers *n)
{
    return !n->has_model || n->pp == 1 || n->laid_out ||
           n->pp * n->chunks <= n->layers + 2;
}

static bool has_room_for_ends(const struct plan_numbers *n)
{
    if (n->laid_out)
        return n->empty == 0;
    return !n->has_model || n->pp == 1 ||
           (n->layers + 2) / (n->pp * n->chunks) >= 1;
}

static bool has_shared_bf16_grads(const struct plan_numbers *n)
{
    return !n->bf16_grads || n->pp > 1 || n->zero > 0;
}

static bool has_two_chunks(const struct plan_numbers *n)
{
    return n->pp == 1 || n->laid_out || n->chunks <= 2;
}

static bool has_whole_heads(const struct plan_numbers *n)
{
    return !n->has_model || divides(n->tp, n->heads);
}

static bool has_whole_groups(const struct plan_numbers *n)
{
    return !n->has_model || divides(n->tp, n->kv_heads) ||
           divides(n->kv_heads, n->tp);
}

static bool has_cut_sequences(const struct plan_numbers *n)
{
    return divides((n->sp ? n->tp : 1) * (n->cp > 1 ? 2 * n->cp : 1), n->seq);
}

static bool has_no_tied_stages(const struct plan_numbers *n)
{
    return n->pp == 1 || !n->tied;
}

static bool has_whole_kv_heads(const struct plan_numbers *n)
{
    return !n->has_model || divides(n->tp, n->kv_heads);
}

static bool has_head_dim(const struct plan_numbers *n)
{
    return !n->has_model || divides(n->heads, n->hidden) ||
           n->head_dim * n->heads != n->hidden; /* kv-channels is given */
}

static bool has_positions(const struct plan_numbers *n)
{
    return !n->has_model || n->positions >= n->seq;
}

static bool has_sp_ranks(const struct plan_numbers *n)
{
    return !n->sp || n->tp > 1;
}

static bool has_whole_sequences(const struct plan_numbers *n)
{
    return !n->sp || divides(n->tp, n->seq / n->cp);
}

/* Sequences are cut into halves for each of these ranks. */
static bool has_context_halves(const struct plan_numbers *n)
{
    return n->cp == 1 || divides(2 * n->cp, n->seq);
}

static bool has_whole_experts(const struct plan_numbers *n)
{
    return n->ep == 1 || !n->has_model ||
           (n->experts > 0 && divides(n->ep, n->experts));
}

static bool has_expert_ranks(const struct plan_numbers *n)
{
    return divides(n->ep, n->dp * n->cp);
}

static bool has_cut_rows(const struct plan_numbers *n)
{
    return n->experts == 0 || n->tp == 1 || n->sp;
}

static bool has_pipeline_zero(const struct plan_numbers *n)
{
    return n->pp == 1 || n->zero < MERAK_ZERO_GRADS;
}

static bool has_zero_stage(const struct plan_numbers *n)
{
    return n->zero <= 3;
}

/* --- the table ------------------------------------------------------------ */

#define MEGATRON_ARGUMENTS "megatron/training/arguments.py"
#define MEGATRON_CONFIG "megatron/core/transformer/transformer_config.py"
#define MEGATRON_SCHEDULES "megatron/core/pipeline_parallel/schedules.py"
#define TITAN_TRAINER "torchtitan/trainer.py"
#define TITAN_DECODER "torchtitan/models/common/decoder.py"
#define TITAN_PIPELINE "torchtitan/distributed/pipeline_parallel.py"
#define TORCH_SCHEDULES "torch/distributed/pipelining/schedules.py"
#define DEEPSPEED_CONFIG "deepspeed/runtime/config.py"

static const struct {
    enum plan_emit trainer;
    const char *demand, *source;
    bool (*holds)(const struct plan_numbers *n);
} rules[] = {
    {PLAN_EMIT_MEGATRON,
     "num-layers, hidden-size, num-attention-heads and "
     "max-position-embeddings are given",
     MEGATRON_ARGUMENTS, has_model},
    {PLAN_EMIT_MEGATRON,
     "global-batch-size is a multiple of micro-batch-size times the "
     "data-parallel size",
     "megatron/core/num_microbatches_calculator.py", has_whole_batch},
    {PLAN_EMIT_MEGATRON,
     "num-layers is a multiple of the stages, virtual ones among them, or a "
     "layout lists them",
     MEGATRON_CONFIG, has_even_stages},
    {PLAN_EMIT_MEGATRON,
     "the layout's stages are a multiple of pipeline-model-parallel-size, and "
     "have num-layers together",
     "megatron/core/transformer/pipeline_parallel_layer_layout.py",
     has_whole_layout},
    {PLAN_EMIT_MEGATRON,
     "virtual stages have pipeline-model-parallel-size above 1",
     MEGATRON_ARGUMENTS, has_stages_for_chunks},
    {PLAN_EMIT_MEGATRON,
     "with virtual stages, micro-batches are a multiple of "
     "pipeline-model-parallel-size",
     MEGATRON_SCHEDULES, has_groups},
    {PLAN_EMIT_MEGATRON,
     "num-attention-heads is a multiple of tensor-model-parallel-size",
     MEGATRON_CONFIG, has_whole_heads},
    {PLAN_EMIT_MEGATRON,
     "num-query-groups and tensor-model-parallel-size divide one another",
     MEGATRON_CONFIG, has_whole_groups},
    {PLAN_EMIT_MEGATRON,
     "hidden-size is a multiple of num-attention-heads, or kv-channels is "
     "given",
     MEGATRON_ARGUMENTS, has_head_dim},
    {PLAN_EMIT_MEGATRON, "max-position-embeddings is at least seq-length",
     MEGATRON_ARGUMENTS, has_positions},
    {PLAN_EMIT_MEGATRON,
     "sequence-parallel has tensor-model-parallel-size above 1",
     "megatron/core/model_parallel_config.py", has_sp_ranks},
    {PLAN_EMIT_MEGATRON,
     "with sequence-parallel, seq-length is a multiple of "
     "tensor-model-parallel-size",
     "megatron/core/tensor_parallel/mappings.py", has_whole_sequences},
    {PLAN_EMIT_MEGATRON,
     "seq-length is a multiple of twice context-parallel-size, if that is "
     "above 1",
     MEGATRON_ARGUMENTS, has_context_halves},
    {PLAN_EMIT_MEGATRON,
     "num-experts is a multiple of expert-model-parallel-size",
     MEGATRON_ARGUMENTS, has_whole_experts},
    {PLAN_EMIT_MEGATRON,
     "the data-parallel size times context-parallel-size is a multiple of "
     "expert-model-parallel-size",
     "megatron/core/parallel_state.py", has_expert_ranks},
    {PLAN_EMIT_MEGATRON,
     "experts with tensor-model-parallel-size above 1 have sequence-parallel",
     "megatron/core/transformer/moe/moe_layer.py", has_cut_rows},
    {PLAN_EMIT_TORCHTITAN,
     "global_batch_size is a multiple of local_batch_size times the "
     "data-parallel degree",
     TITAN_TRAINER, has_whole_batch},
    {PLAN_EMIT_TORCHTITAN,
     "seq_len is a multiple of tensor_parallel_degree, if that cuts sequences, "
     "times twice context_parallel_degree, if that is above 1",
     TITAN_TRAINER, has_cut_sequences},
    {PLAN_EMIT_TORCHTITAN,
     "heads, and those of keys, are multiples of tensor_parallel_degree",
     TITAN_DECODER, has_whole_kv_heads},
    {PLAN_EMIT_TORCHTITAN,
     "the experts are a multiple of expert_parallel_degree",
     "torchtitan/models/common/token_dispatcher.py", has_whole_experts},
    {PLAN_EMIT_TORCHTITAN,
     "with stages, the output layer has weights of its own", TITAN_DECODER,
     has_no_tied_stages},
    {PLAN_EMIT_TORCHTITAN,
     "there are no more stages than layers, embedding and output",
     TITAN_PIPELINE, has_layers_for_stages},
    {PLAN_EMIT_TORCHTITAN,
     "a stage has a layer, or the embedding or output in its place",
     TITAN_PIPELINE, has_room_for_ends},
    {PLAN_EMIT_TORCHTITAN,
     "a rank has one stage, or two if the schedule has several, or they are "
     "listed",
     TITAN_PIPELINE, has_two_chunks},
    {PLAN_EMIT_TORCHTITAN, "with 1F1B, there is a micro-batch for each stage",
     TORCH_SCHEDULES, has_a_microbatch_a_stage},
    {PLAN_EMIT_TORCHTITAN,
     "with Interleaved1F1B, micro-batches are a multiple of the rounds of "
     "pipeline_parallel_degree in them",
     TORCH_SCHEDULES, has_rounds},
    {PLAN_EMIT_DEEPSPEED,
     "train_batch_size is train_micro_batch_size_per_gpu times "
     "gradient_accumulation_steps times the data-parallel size",
     DEEPSPEED_CONFIG, has_whole_accumulation},
    {PLAN_EMIT_DEEPSPEED,
     "without pipeline parallelism, gradients accumulated in bf16 have a stage "
     "of zero_optimization above 0",
     "deepspeed/runtime/engine.py", has_shared_bf16_grads},
    {PLAN_EMIT_DEEPSPEED, "the stage of zero_optimization is 3 at most",
     DEEPSPEED_CONFIG, has_zero_stage},
    {PLAN_EMIT_DEEPSPEED,
     "with pipeline parallelism the stage of zero_optimization is 1 at most",
     "deepspeed/runtime/pipe/engine.py", has_pipeline_zero},
};

int plan_rules_check(enum plan_emit what, const struct plan_numbers *n,
                     plan_broken_fn broken, void *arg)
{
    int count = 0;

    for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++) {
        if (rules[i].trainer != what || rules[i].holds(n))
            continue;
        count++;
        if (broken != NULL)
            broken(arg, rules[i].demand, rules[i].source);
    }
    return count;
}
