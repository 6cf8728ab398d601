#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write forms.jsonl: config.json files in the forms that people have them.

Each line is a published model's fields, as transformers 4 or 5 or another tool
wrote them, how many parameters the model has by transformers, and a copy that is as small as a test wants it, in which nothing but
numbers is smaller, with its loss by transformers in float64; or what Merak
refuses it for.  Weights are a function of their tensor's name (weight_of()), of
which test_hf_forms.c has the other copy.
Run it in this folder; it needs PyTorch and transformers 5.
"""

import copy
import json

import torch
from transformers import AutoConfig, AutoModelForCausalLM

T, VOCAB, HEADS = 24, 61, 4
M64 = (1 << 64) - 1


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & M64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & M64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & M64
    return x ^ (x >> 31)


def weight_of(name, shape):
    """Vectors of norms are around 1, all other numbers around 0."""
    key, n = 0, 1
    for byte in name.encode():
        key = mix(key ^ byte)
    for dim in shape:
        n *= dim
    norm = len(shape) == 1 and name.endswith("weight")
    width = 1.0 if len(shape) > 1 else 0.5
    u = torch.tensor([(mix((key + i) & M64) >> 40) / 2.0**24
                      for i in range(n)], dtype=torch.float64)
    return (norm + width * (u - 0.5)).reshape(shape)


def tokens():
    return [mix(i) % VOCAB for i in range(T + 1)]


# --- the forms -----------------------------------------------------------------

def form(*parts, without=(), **more):
    out = {}
    for part in parts:
        out.update(part)
    out.update(more)
    return {k: v for k, v in out.items() if k not in without}


def classes(name, **more):
    return {"architectures": [name], **more}


GPT2 = form(
    classes("GPT2LMHeadModel"), activation_function="gelu_new", attn_pdrop=0.1,
    bos_token_id=50256, embd_pdrop=0.1, eos_token_id=50256,
    initializer_range=0.02, layer_norm_epsilon=1e-05, model_type="gpt2",
    n_ctx=1024, n_embd=768, n_head=12, n_layer=12, n_positions=1024,
    resid_pdrop=0.1, summary_activation=None, summary_first_dropout=0.1,
    summary_proj_to_labels=True, summary_type="cls_index",
    summary_use_proj=True, vocab_size=50257,
    task_specific_params={"text-generation": {"do_sample": True,
                                              "max_length": 50}})
MEDIUM = form(GPT2, n_special=0, predict_special_tokens=True)
LLAMA = form(
    classes("LlamaForCausalLM"), bos_token_id=1, eos_token_id=2,
    hidden_act="silu", hidden_size=4096, initializer_range=0.02,
    intermediate_size=11008, max_position_embeddings=4096, model_type="llama",
    num_attention_heads=32, num_hidden_layers=32, num_key_value_heads=32,
    pretraining_tp=1, rms_norm_eps=1e-05, rope_scaling=None,
    tie_word_embeddings=False, torch_dtype="float16",
    transformers_version="4.31.0.dev0", use_cache=True, vocab_size=32000)
LLAMA3 = form(
    LLAMA, attention_bias=False, attention_dropout=0.0, bos_token_id=128000,
    eos_token_id=128001, intermediate_size=14336, max_position_embeddings=8192,
    num_key_value_heads=8, rope_theta=500000.0, torch_dtype="bfloat16",
    transformers_version="4.40.0.dev0", vocab_size=128256)
ROPE31 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192, "rope_type": "llama3"}
LLAMA31 = form(LLAMA3, max_position_embeddings=131072, mlp_bias=False,
               rope_scaling=ROPE31, eos_token_id=[128001, 128008, 128009])
QWEN2 = form(
    classes("Qwen2ForCausalLM"), attention_dropout=0.0, bos_token_id=151643,
    eos_token_id=151643, hidden_act="silu", hidden_size=896,
    initializer_range=0.02, intermediate_size=4864,
    max_position_embeddings=131072, max_window_layers=24, model_type="qwen2",
    num_attention_heads=14, num_hidden_layers=24, num_key_value_heads=2,
    rms_norm_eps=1e-06, rope_theta=1000000.0, sliding_window=131072,
    tie_word_embeddings=True, torch_dtype="bfloat16",
    transformers_version="4.40.1", use_cache=True, use_sliding_window=False,
    vocab_size=151936)
QWEN25 = form(
    QWEN2, hidden_size=3584, intermediate_size=18944,
    max_position_embeddings=32768, max_window_layers=28,
    num_attention_heads=28, num_hidden_layers=28, num_key_value_heads=4,
    tie_word_embeddings=False, transformers_version="4.43.1", use_mrope=False,
    vocab_size=152064)
QWEN3 = form(
    QWEN2, classes("Qwen3ForCausalLM"), attention_bias=False, head_dim=128,
    hidden_size=4096, intermediate_size=12288, max_position_embeddings=40960,
    max_window_layers=36, model_type="qwen3", num_attention_heads=32,
    num_hidden_layers=36, num_key_value_heads=8, rope_scaling=None,
    rope_theta=1000000, sliding_window=None, tie_word_embeddings=False,
    transformers_version="4.51.0")
MISTRAL = form(
    LLAMA, classes("MistralForCausalLM"), intermediate_size=14336,
    max_position_embeddings=32768, model_type="mistral", num_key_value_heads=8,
    rope_theta=10000.0, sliding_window=4096, torch_dtype="bfloat16",
    without=("pretraining_tp", "rope_scaling"))
PHI3 = form(
    LLAMA, classes("Phi3ForCausalLM"), attention_bias=False,
    attention_dropout=0.0, auto_map={
        "AutoConfig": "configuration_phi3.Phi3Config",
        "AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM"},
    embd_pdrop=0.0, eos_token_id=32000, hidden_size=3072,
    intermediate_size=8192, model_type="phi3",
    original_max_position_embeddings=4096, pad_token_id=32000, resid_pdrop=0.0,
    rope_theta=10000.0, sliding_window=2047, torch_dtype="bfloat16",
    vocab_size=32064, without=("pretraining_tp",))


def longrope(first, kind="longrope"):
    return {"long_factor": [first + i * 0.25 for i in range(48)],
            "short_factor": [1.0 + i / 64 for i in range(48)], "type": kind}


OLMO2 = form(
    classes("Olmo2ForCausalLM"), attention_bias=False, attention_dropout=0.0,
    eos_token_id=100257, hidden_act="silu", hidden_size=4096,
    initializer_range=0.02, intermediate_size=11008,
    max_position_embeddings=4096, model_type="olmo2", num_attention_heads=32,
    num_hidden_layers=32, num_key_value_heads=32, pad_token_id=100277,
    rms_norm_eps=1e-06, rope_scaling=None, rope_theta=500000,
    tie_word_embeddings=False, torch_dtype="float32",
    transformers_version="4.47.0", use_cache=True, vocab_size=100352)
GEMMA2 = form(
    classes("Gemma2ForCausalLM"), attention_bias=False, attention_dropout=0.0,
    attn_logit_softcapping=50.0, bos_token_id=2, cache_implementation="hybrid",
    eos_token_id=1, final_logit_softcapping=30.0, head_dim=256,
    hidden_act="gelu_pytorch_tanh", hidden_activation="gelu_pytorch_tanh",
    hidden_size=2304, initializer_range=0.02, intermediate_size=9216,
    max_position_embeddings=8192, model_type="gemma2", num_attention_heads=8,
    num_hidden_layers=26, num_key_value_heads=4, pad_token_id=0,
    query_pre_attn_scalar=256, rms_norm_eps=1e-06, rope_theta=10000.0,
    sliding_window=4096, torch_dtype="float32",
    transformers_version="4.42.4", use_cache=True, vocab_size=256000)
GEMMA = form(
    GEMMA2, classes("GemmaForCausalLM"), head_dim=256, hidden_act="gelu",
    hidden_activation=None, hidden_size=2048, intermediate_size=16384,
    model_type="gemma", num_hidden_layers=18, num_key_value_heads=1,
    torch_dtype="bfloat16", transformers_version="4.38.0.dev0",
    without=("attn_logit_softcapping", "cache_implementation",
             "final_logit_softcapping", "query_pre_attn_scalar",
             "sliding_window"))
GEMMA3 = form(
    GEMMA2, classes("Gemma3ForCausalLM"), attn_logit_softcapping=None,
    final_logit_softcapping=None, hidden_size=1152, intermediate_size=6912,
    max_position_embeddings=32768, model_type="gemma3_text",
    num_attention_heads=4, num_key_value_heads=1, rope_local_base_freq=10000,
    rope_scaling=None, rope_theta=1000000, sliding_window=512,
    sliding_window_pattern=6, torch_dtype="bfloat16",
    transformers_version="4.50.0.dev0", vocab_size=262144,
    without=("hidden_act",))
KINDS3 = (["sliding_attention"] * 5 + ["full_attention"]) * 5
ARCEE = form(
    LLAMA, classes("ArceeForCausalLM"), attention_bias=False,
    attention_dropout=0.0, bos_token_id=128000, eos_token_id=128001,
    head_dim=128, hidden_act="relu2", hidden_size=2560,
    intermediate_size=18432, max_position_embeddings=65536, mlp_bias=False,
    model_type="arcee", num_attention_heads=20, num_hidden_layers=36,
    num_key_value_heads=4, rope_theta=10000.0, rope_scaling={
        "beta_fast": 32.0, "beta_slow": 1.0, "factor": 20.0, "mscale": 1.0,
        "original_max_position_embeddings": 4096, "rope_type": "yarn",
        "type": "yarn"},
    torch_dtype="bfloat16", vocab_size=128004, without=("pretraining_tp",))
GRANITE = form(
    LLAMA, classes("GraniteForCausalLM"), attention_bias=False,
    attention_dropout=0.1, attention_multiplier=0.015625, bos_token_id=0,
    embedding_multiplier=12.0, eos_token_id=0, hidden_size=2048,
    intermediate_size=8192, logits_scaling=8.0, max_position_embeddings=4096,
    mlp_bias=False, model_type="granite", num_attention_heads=32,
    num_hidden_layers=40, num_key_value_heads=8, pad_token_id=0,
    residual_multiplier=0.22, rope_theta=10000.0, tie_word_embeddings=True,
    torch_dtype="bfloat16", transformers_version="4.45.0.dev0",
    vocab_size=49155, without=("pretraining_tp",))
SMOLLM3 = form(
    LLAMA, classes("SmolLM3ForCausalLM"), attention_bias=False,
    attention_dropout=0.0, bos_token_id=128000, eos_token_id=128001,
    hidden_size=2048, intermediate_size=11008,
    layer_types=["full_attention"] * 36, max_position_embeddings=65536,
    max_window_layers=28, mlp_bias=False, model_type="smollm3",
    no_rope_layer_interval=4, no_rope_layers=[1, 1, 1, 0] * 9,
    num_attention_heads=16, num_hidden_layers=36, num_key_value_heads=4,
    pad_token_id=128004, pretraining_tp=2, rms_norm_eps=1e-06,
    rope_theta=5000000.0, sliding_window=None, tie_word_embeddings=True,
    torch_dtype="bfloat16", use_sliding_window=False, vocab_size=128256)
OLMO3 = form(
    OLMO2, classes("Olmo3ForCausalLM"), eos_token_id=100257,
    layer_types=(["sliding_attention"] * 3 + ["full_attention"]) * 8,
    max_position_embeddings=65536, model_type="olmo3", pad_token_id=100277,
    rope_scaling={"attention_factor": 1.2079441541679836, "beta_fast": 32,
                  "beta_slow": 1, "factor": 8.0,
                  "original_max_position_embeddings": 8192,
                  "rope_type": "yarn"},
    sliding_window=4096, vocab_size=100278)
STABLELM = form(
    LLAMA, classes("StableLmForCausalLM"), attention_dropout=0.0,
    bos_token_id=100257, eos_token_id=100257, hidden_dropout=0.0,
    hidden_size=2048, intermediate_size=5632, layer_norm_eps=1e-05,
    max_position_embeddings=4096, model_type="stablelm",
    num_hidden_layers=24, partial_rotary_factor=0.25, qk_layernorm=False,
    rope_theta=10000, torch_dtype="float16", use_parallel_residual=False,
    use_qkv_bias=True, vocab_size=100352,
    without=("pretraining_tp", "rms_norm_eps", "rope_scaling"))
STARCODER2 = form(
    classes("Starcoder2ForCausalLM"), activation_function="gelu",
    attention_dropout=0.1, attention_softmax_in_fp32=True, bos_token_id=0,
    embedding_dropout=0.1, eos_token_id=0, hidden_act="gelu_pytorch_tanh",
    hidden_size=3072, initializer_range=0.018042, intermediate_size=12288,
    layer_norm_epsilon=1e-05, max_position_embeddings=16384,
    mlp_type="default", model_type="starcoder2", norm_epsilon=1e-05,
    norm_type="layer_norm", num_attention_heads=24, num_hidden_layers=30,
    num_key_value_heads=2, residual_dropout=0.1, rope_theta=999999.4420358813,
    scale_attention_softmax_in_fp32=True, scale_attn_weights=True,
    sliding_window=4096, torch_dtype="bfloat16",
    transformers_version="4.37.0.dev0", use_bias=True, use_cache=True,
    vocab_size=49152)
PHI = form(
    classes("PhiForCausalLM"), attention_dropout=0.0, bos_token_id=50256,
    embd_pdrop=0.0, eos_token_id=50256, hidden_act="gelu_new",
    hidden_size=2560, initializer_range=0.02, intermediate_size=10240,
    layer_norm_eps=1e-05, max_position_embeddings=2048, model_type="phi",
    num_attention_heads=32, num_hidden_layers=32, num_key_value_heads=32,
    partial_rotary_factor=0.4, qk_layernorm=False, resid_pdrop=0.1,
    rope_scaling=None, rope_theta=10000.0, tie_word_embeddings=False,
    torch_dtype="float16", transformers_version="4.37.0", use_cache=True,
    vocab_size=51200)
PYTHIA = form(
    classes("GPTNeoXForCausalLM"), bos_token_id=0, eos_token_id=0,
    hidden_act="gelu", hidden_size=512, initializer_range=0.02,
    intermediate_size=2048, layer_norm_eps=1e-05, max_position_embeddings=2048,
    model_type="gpt_neox", num_attention_heads=8, num_hidden_layers=6,
    rotary_emb_base=10000, rotary_pct=0.25, tie_word_embeddings=False,
    torch_dtype="float16", transformers_version="4.24.0", use_cache=True,
    use_parallel_residual=True, vocab_size=50304)

YARN = {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0,
        "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096,
        "type": "yarn"}
DEEPSEEK_V3 = form(
    classes("DeepseekV3ForCausalLM"), attention_bias=False,
    attention_dropout=0.0, auto_map={
        "AutoConfig": "configuration_deepseek.DeepseekV3Config",
        "AutoModel": "modeling_deepseek.DeepseekV3Model",
        "AutoModelForCausalLM": "modeling_deepseek.DeepseekV3ForCausalLM"},
    bos_token_id=0, eos_token_id=1, ep_size=1, first_k_dense_replace=3,
    hidden_act="silu", hidden_size=7168, initializer_range=0.02,
    intermediate_size=18432, kv_lora_rank=512, max_position_embeddings=163840,
    model_type="deepseek_v3", moe_intermediate_size=2048, moe_layer_freq=1,
    n_group=8, n_routed_experts=256, n_shared_experts=1, norm_topk_prob=True,
    num_attention_heads=128, num_experts_per_tok=8, num_hidden_layers=61,
    num_key_value_heads=128, num_nextn_predict_layers=1, q_lora_rank=1536,
    qk_nope_head_dim=128, qk_rope_head_dim=64,
    quantization_config={"activation_scheme": "dynamic", "fmt": "e4m3",
                         "quant_method": "fp8",
                         "weight_block_size": [128, 128]},
    rms_norm_eps=1e-06, rope_scaling=YARN, rope_theta=10000,
    routed_scaling_factor=2.5, scoring_func="sigmoid",
    tie_word_embeddings=False, topk_group=4, topk_method="noaux_tc",
    torch_dtype="bfloat16", transformers_version="4.33.1", use_cache=True,
    v_head_dim=128, vocab_size=129280)
DEEPSEEK_V2 = form(
    classes("DeepseekV2ForCausalLM"), attention_bias=False,
    attention_dropout=0.0, auto_map={
        "AutoConfig": "configuration_deepseek.DeepseekV2Config",
        "AutoModel": "modeling_deepseek.DeepseekV2Model",
        "AutoModelForCausalLM": "modeling_deepseek.DeepseekV2ForCausalLM"},
    aux_loss_alpha=0.003, bos_token_id=100000, eos_token_id=100001, ep_size=1,
    first_k_dense_replace=1, hidden_act="silu", hidden_size=5120,
    initializer_range=0.02, intermediate_size=12288, kv_lora_rank=512,
    max_position_embeddings=163840, model_type="deepseek_v2",
    moe_intermediate_size=1536, moe_layer_freq=1, n_group=8,
    n_routed_experts=160, n_shared_experts=2, norm_topk_prob=False,
    num_attention_heads=128, num_experts_per_tok=6, num_hidden_layers=60,
    num_key_value_heads=128, pretraining_tp=1, q_lora_rank=1536,
    qk_nope_head_dim=128, qk_rope_head_dim=64, rms_norm_eps=1e-06,
    rope_scaling={**YARN, "mscale": 0.707, "mscale_all_dim": 0.707},
    rope_theta=10000, routed_scaling_factor=16.0, scoring_func="softmax",
    seq_aux=True, tie_word_embeddings=False, topk_group=3,
    topk_method="group_limited_greedy", torch_dtype="bfloat16",
    transformers_version="4.33.1", use_cache=True, v_head_dim=128,
    vocab_size=102400)
GPT_OSS = form(
    classes("GptOssForCausalLM"), attention_bias=True, attention_dropout=0.0,
    eos_token_id=200002, experts_per_token=4, head_dim=64, hidden_act="silu",
    hidden_size=2880, initial_context_length=4096, initializer_range=0.02,
    intermediate_size=2880,
    layer_types=["sliding_attention", "full_attention"] * 12,
    max_position_embeddings=131072, model_type="gpt_oss",
    num_attention_heads=64, num_experts_per_tok=4, num_hidden_layers=24,
    num_key_value_heads=8, num_local_experts=32, output_router_logits=False,
    pad_token_id=199999, quantization_config={
        "modules_to_not_convert": [
            "model.layers.*.self_attn", "model.layers.*.mlp.router",
            "model.embed_tokens", "lm_head"], "quant_method": "mxfp4"},
    rms_norm_eps=1e-05, rope_scaling={
        "beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0,
        "original_max_position_embeddings": 4096, "rope_type": "yarn",
        "truncate": False},
    rope_theta=150000, router_aux_loss_coef=0.9, sliding_window=128,
    swiglu_limit=7.0, tie_word_embeddings=False,
    transformers_version="4.55.0.dev0", use_cache=True, vocab_size=201088)
FORMS = {
    "gpt2": GPT2,
    "gpt2-medium": form(MEDIUM, n_embd=1024, n_head=16, n_layer=24),
    "gpt2-large": form(MEDIUM, n_embd=1280, n_head=20, n_layer=36),
    "gpt2-xl": form(MEDIUM, n_embd=1600, n_head=25, n_layer=48,
                    output_past=True),
    "distilgpt2": form(GPT2, n_layer=6, _num_labels=1,
                       id2label={"0": "LABEL_0"}, label2id={"LABEL_0": 0}),
    "gpt2 of a chat": form(
        GPT2, n_embd=1024, n_head=16, n_layer=24,
        task_specific_params={"conversational": {"max_length": 1000}},
        without=("n_ctx", "activation_function")),
    "gpt2 with a layer's own scale": (
        form(GPT2, scale_attn_by_inverse_layer_idx=True,
             reorder_and_upcast_attn=True, scale_attn_weights=True),
        "scale_attn_by_inverse_layer_idx is true"),
    "gpt2 by version 5": form(
        GPT2, add_cross_attention=False, dtype="float32", pad_token_id=None,
        reorder_and_upcast_attn=False, scale_attn_by_inverse_layer_idx=False,
        scale_attn_weights=True, tie_word_embeddings=True, use_cache=True,
        transformers_version="5.0.0", without=("n_ctx",)),
    "llama's first conversion": form(
        LLAMA, bos_token_id=0, eos_token_id=1, max_sequence_length=2048,
        pad_token_id=-1, rms_norm_eps=1e-06,
        without=("max_position_embeddings", "num_key_value_heads",
                 "pretraining_tp", "rope_scaling")),
    "llama 2 7B": LLAMA,
    "llama 2 70B": form(LLAMA, hidden_size=8192, intermediate_size=28672,
                        num_attention_heads=64, num_hidden_layers=80,
                        num_key_value_heads=8),
    "a small llama": form(LLAMA, hidden_size=2048, intermediate_size=5632,
                          max_position_embeddings=2048, num_key_value_heads=4,
                          num_hidden_layers=22),
    "vicuna, longer": form(
        LLAMA, max_sequence_length=16384, pad_token_id=0,
        rope_scaling={"factor": 4.0, "type": "linear"}),
    "llama 2, yarn by its own code": form(
        LLAMA, auto_map={
            "AutoConfig": "configuration_llama.LlamaConfig",
            "AutoModelForCausalLM": "modeling_llama_yarn.LlamaForCausalLM"},
        rope_scaling={"factor": 16.0, "finetuned": True, "type": "yarn",
                      "original_max_position_embeddings": 4096}),
    "a model of its own code": (
        form(LLAMA, auto_map={
            "AutoConfig": "configuration_own.OwnConfig",
            "AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}),
        "auto_map has the model computed by code of its own"),
    "llama 3 8B": LLAMA3,
    "llama 3.1 8B": LLAMA31,
    "llama 3.2 1B": form(
        LLAMA31, head_dim=64, hidden_size=2048, intermediate_size=8192,
        num_hidden_layers=16, tie_word_embeddings=True,
        rope_scaling={**ROPE31, "factor": 32.0}),
    "llama 3.3 70B": form(LLAMA31, head_dim=128, hidden_size=8192,
                          intermediate_size=28672, num_attention_heads=64,
                          num_hidden_layers=80),
    "llama 3.1 by version 5": form(
        LLAMA31, dtype="bfloat16", head_dim=128, pad_token_id=None,
        rope_parameters={**ROPE31, "rope_theta": 500000.0},
        without=("rope_scaling", "rope_theta", "torch_dtype",
                 "pretraining_tp")),
    "llama 3.1 of 4 bits": (
        form(LLAMA31, quantization_config={"bits": 4, "quant_method": "gptq"}),
        "quantization_config is"),
    "a llama that judges": form(
        LLAMA3, classes("LlamaForSequenceClassification"), num_labels=1,
        id2label={"0": "LABEL_0"}, label2id={"LABEL_0": 0},
        problem_type="regression", pad_token_id=128256 - 1),
    "falcon3 7B": form(
        LLAMA3, activation="swiglu", head_dim=256, hidden_size=3072,
        intermediate_size=23040, max_position_embeddings=32768, mlp_bias=False,
        num_attention_heads=12, num_hidden_layers=28, num_key_value_heads=4,
        rope_theta=1000042, vocab_size=131072),
    "deepseek coder": form(
        LLAMA3, rope_scaling={"factor": 4.0, "type": "linear"},
        rope_theta=100000, num_key_value_heads=32, vocab_size=32256),
    "yi": form(LLAMA3, num_key_value_heads=4, rope_theta=5000000.0,
               pad_token_id=0, vocab_size=64000),
    "smollm2": form(
        LLAMA3, hidden_size=576, intermediate_size=1536, is_llama_config=True,
        num_attention_heads=9, num_hidden_layers=30, num_key_value_heads=3,
        rope_interleaved=False, rope_theta=100000, tie_word_embeddings=True,
        **{"transformers.js_config": {"dtype": "q4"}}),
    "codeqwen": form(
        QWEN2, hidden_size=4096, intermediate_size=13440,
        max_position_embeddings=65536, max_window_layers=28,
        num_attention_heads=32, num_hidden_layers=32, num_key_value_heads=4,
        rotary_emb_base=1000000, seq_length=65536, sliding_window=65536,
        tie_word_embeddings=False, vocab_size=92416),
    "qwen2 0.5B": QWEN2,
    "qwen2 with windows": form(QWEN2, use_sliding_window=True,
                               sliding_window=32768, max_window_layers=12),
    "qwen2.5 7B": QWEN25,
    "qwen2.5 7B, yarn": form(
        QWEN25, rope_scaling={"factor": 4.0, "type": "yarn",
                              "original_max_position_embeddings": 32768}),
    "a qwen2.5 that judges": form(
        QWEN25, classes("Qwen2ForRewardModel"), num_labels=2,
        classifier_dropout=0.0),
    "qwen2.5 of 4 bits": (
        form(QWEN25, quantization_config={"bits": 4, "quant_method": "awq"}),
        "quantization_config is"),
    "qwen2.5 by unsloth": form(QWEN25, pad_token_id=151654, unsloth_fixed=True,
                               unsloth_version="2025.3.19"),
    "qwen3 8B": QWEN3,
    "qwen3 0.6B": form(QWEN3, hidden_size=1024, intermediate_size=3072,
                       max_window_layers=28, num_attention_heads=16,
                       num_hidden_layers=28, tie_word_embeddings=True),
    "qwen3 8B, a distillation": form(
        QWEN3, max_position_embeddings=131072,
        rope_scaling={"attn_factor": 0.8782488562869419, "factor": 4.0,
                      "original_max_position_embeddings": 32768,
                      "rope_type": "yarn"}),
    "qwen3 8B by version 5": form(
        QWEN3, dtype="bfloat16", layer_types=["full_attention"] * 36,
        pad_token_id=None,
        rope_parameters={"rope_theta": 1000000, "rope_type": "default"},
        without=("rope_scaling", "rope_theta", "torch_dtype")),
    "mistral 7B": MISTRAL,
    "mistral 7B 0.3": form(MISTRAL, rope_theta=1000000.0, sliding_window=None,
                           attention_dropout=0.0, vocab_size=32768),
    "mistral nemo": form(
        MISTRAL, attention_dropout=0.0, head_dim=128, hidden_size=5120,
        max_position_embeddings=1024000, num_hidden_layers=40,
        rope_theta=1000000.0, sliding_window=None, vocab_size=131072),
    "mistral 7B, yarn by its own code": form(
        MISTRAL, auto_map={
            "AutoModelForCausalLM": "modeling_mistral_yarn.MistralForCausalLM"},
        max_sequence_length=131072, pad_token_id=0, rope_scaling={
            "factor": 16.0, "finetuned": True, "type": "yarn",
            "original_max_position_embeddings": 8192}),
    "phi 3 mini": form(PHI3, rope_scaling=None),
    "phi 3 mini, longer": form(
        PHI3, max_position_embeddings=131072, rope_scaling=longrope(1.0),
        sliding_window=262144),
    "phi 3 mini, longer, of old": form(
        PHI3, max_position_embeddings=131072, rope_scaling=longrope(1.0, "su"),
        sliding_window=262144),
    "phi 3 medium": form(PHI3, hidden_size=5120, intermediate_size=17920,
                         num_attention_heads=40, num_hidden_layers=40,
                         num_key_value_heads=10, rope_scaling=None),
    "phi 4": form(
        PHI3, eos_token_id=100265, hidden_size=5120, intermediate_size=17920,
        max_position_embeddings=16384, num_attention_heads=40,
        num_hidden_layers=40, num_key_value_heads=10, pad_token_id=100349,
        original_max_position_embeddings=16384, rope_scaling=None,
        rope_theta=250000, sliding_window=None, vocab_size=100352,
        without=("auto_map", "pretraining_tp")),
    "phi 4 mini": form(
        PHI3, bos_token_id=199999, eos_token_id=199999, full_attn_mod=1,
        interpolate_factor=1, lm_head_bias=False, mlp_bias=False,
        max_position_embeddings=131072, num_attention_heads=24,
        num_key_value_heads=8, pad_token_id=199999, partial_rotary_factor=0.75,
        rope_scaling=longrope(1.0), sliding_window=262144,
        tie_word_embeddings=True, vocab_size=200064),
    "olmo 2 7B": OLMO2,
    "olmo 2 1B by version 5": form(
        OLMO2, dtype="bfloat16", hidden_size=2048, intermediate_size=8192,
        num_attention_heads=16, num_hidden_layers=16, num_key_value_heads=16,
        rope_parameters={"rope_theta": 500000, "rope_type": "default"},
        without=("rope_scaling", "rope_theta", "torch_dtype")),
    "gemma 2 2B": GEMMA2,
    "gemma 2 9B": form(GEMMA2, hidden_size=3584, intermediate_size=14336,
                       num_attention_heads=16, num_hidden_layers=42,
                       num_key_value_heads=8, sliding_window_size=4096),
    "gemma 2 27B": form(GEMMA2, head_dim=128, hidden_size=4608,
                        intermediate_size=36864, num_attention_heads=32,
                        num_hidden_layers=46, num_key_value_heads=16,
                        query_pre_attn_scalar=144, _attn_implementation="x"),
    "gemma 2 2B by version 5": form(
        GEMMA2, dtype="bfloat16", tie_word_embeddings=True,
        layer_types=["sliding_attention", "full_attention"] * 13,
        rope_parameters={"rope_theta": 10000.0, "rope_type": "default"},
        use_bidirectional_attention=None,
        without=("rope_theta", "torch_dtype", "hidden_act",
                 "cache_implementation")),
    "gemma 2B": GEMMA,
    "gemma 7B": form(GEMMA, hidden_size=3072, intermediate_size=24576,
                     hidden_activation="gelu_pytorch_tanh",
                     num_attention_heads=16, num_hidden_layers=28,
                     num_key_value_heads=16),
    "gemma 2B by version 5": form(
        GEMMA, dtype="bfloat16", hidden_act="gelu_pytorch_tanh",
        rope_parameters={"rope_theta": 10000.0, "rope_type": "default"},
        tie_word_embeddings=True, use_bidirectional_attention=None,
        without=("rope_theta", "torch_dtype", "hidden_activation")),
    "gemma 3 1B": GEMMA3,
    "gemma 3 4B, its text": form(
        GEMMA3, hidden_size=2560, intermediate_size=10240,
        max_position_embeddings=131072, num_attention_heads=8,
        num_hidden_layers=34, num_key_value_heads=4,
        rope_scaling={"factor": 8.0, "rope_type": "linear"},
        sliding_window=1024, vocab_size=262208),
    "gemma 3 1B by version 5": form(
        GEMMA3, dtype="bfloat16", layer_types=KINDS3[:26], rope_parameters={
            "full_attention": {"rope_theta": 1000000, "rope_type": "default"},
            "sliding_attention": {"rope_theta": 10000,
                                  "rope_type": "default"}},
        use_bidirectional_attention=False,
        without=("rope_local_base_freq", "rope_scaling", "rope_theta",
                 "torch_dtype", "cache_implementation")),
    "gemma 3 that embeds": (
        form(GEMMA3, use_bidirectional_attention=True),
        "use_bidirectional_attention is true"),
    "gemma 3 with pictures": (
        form(model_type="gemma3", text_config=GEMMA3, vision_config={}),
        "model_type is \"gemma3\""),
    "arcee 4.5B": ARCEE,
    "granite 3.0 2B": GRANITE,
    "granite 3.3 8B": form(
        GRANITE, attention_dropout=0.0, attention_multiplier=0.0078125,
        hidden_size=4096, intermediate_size=12800, logits_scaling=16.0,
        max_position_embeddings=131072, rope_theta=10000000.0,
        vocab_size=49159),
    "smollm3 3B": SMOLLM3,
    "smollm3 with windows": form(
        SMOLLM3, use_sliding_window=True, sliding_window=4096,
        without=("layer_types",)),
    "olmo 3 7B": OLMO3,
    "olmo 3 32B": form(
        OLMO3, hidden_size=5120, intermediate_size=27648,
        layer_types=(["sliding_attention"] * 3 + ["full_attention"]) * 16,
        num_attention_heads=40, num_hidden_layers=64, num_key_value_heads=8),
    "olmo 3 7B by version 5": form(
        OLMO3, dtype="bfloat16", rope_parameters={
            "full_attention": {**OLMO3["rope_scaling"], "rope_theta": 500000},
            "sliding_attention": {"rope_theta": 500000,
                                  "rope_type": "default"}},
        without=("rope_scaling", "rope_theta", "torch_dtype")),
    "stablelm 2 1.6B": STABLELM,
    "stablelm 3B": form(
        STABLELM, hidden_size=2560, intermediate_size=6912,
        num_hidden_layers=32, use_qkv_bias=False, vocab_size=50304,
        bos_token_id=0, eos_token_id=0,
        without=("qk_layernorm", "use_parallel_residual")),
    "stablelm 2 12B": (
        form(STABLELM, hidden_size=5120, intermediate_size=13824,
             num_hidden_layers=40, num_key_value_heads=8, qk_layernorm=True,
             use_parallel_residual=True, use_qkv_bias=False),
        "qk_layernorm is true"),
    "starcoder2 3B": STARCODER2,
    "starcoder2 15B": form(
        STARCODER2, hidden_size=6144, intermediate_size=24576,
        num_attention_heads=48, num_hidden_layers=40, num_key_value_heads=4,
        rope_theta=100000),
    "phi 2": PHI,
    "phi 1.5": form(PHI, hidden_size=2048, intermediate_size=8192,
                    num_hidden_layers=24, num_key_value_heads=None,
                    partial_rotary_factor=0.5, resid_pdrop=0.0),
    "phi 2 by version 5": form(
        PHI, dtype="float16", pad_token_id=None, rope_parameters={
            "partial_rotary_factor": 0.4, "rope_theta": 10000.0,
            "rope_type": "default"},
        without=("partial_rotary_factor", "rope_scaling", "rope_theta",
                 "torch_dtype")),
    "pythia 70M": PYTHIA,
    "pythia 12B": form(
        PYTHIA, hidden_size=5120, intermediate_size=20480,
        num_attention_heads=40, num_hidden_layers=36, vocab_size=50688),
    "gpt-neox 20B": form(
        PYTHIA, attention_probs_dropout_prob=0, hidden_act="gelu_fast",
        hidden_dropout_prob=0, hidden_size=6144, intermediate_size=24576,
        num_attention_heads=64, num_hidden_layers=44, vocab_size=50432),
    "pythia 410M by a later version 4": form(
        PYTHIA, attention_bias=True, attention_dropout=0.0, hidden_dropout=0.0,
        classifier_dropout=0.1, hidden_size=1024, intermediate_size=4096,
        num_attention_heads=16, num_hidden_layers=24,
        partial_rotary_factor=0.25, rope_scaling=None, rope_theta=10000),
    "pythia 70M by version 5": form(
        PYTHIA, dtype="float16", is_decoder=False, pad_token_id=None,
        attention_bias=True, attention_dropout=0.0, classifier_dropout=0.1,
        hidden_dropout=0.0, rope_parameters={
            "partial_rotary_factor": 0.25, "rope_theta": 10000,
            "rope_type": "default"},
        without=("rotary_emb_base", "rotary_pct", "torch_dtype")),
    "deepseek v3": DEEPSEEK_V3,
    "moonlight": form(
        DEEPSEEK_V3, first_k_dense_replace=1, hidden_size=2048,
        intermediate_size=11264, max_position_embeddings=8192,
        moe_intermediate_size=1408, n_group=1, n_routed_experts=64,
        n_shared_experts=2, num_attention_heads=16, num_experts_per_tok=6,
        num_hidden_layers=27, num_key_value_heads=16, pad_token_id=163839,
        num_nextn_predict_layers=0, q_lora_rank=None, rope_theta=50000.0,
        routed_scaling_factor=2.446, topk_group=1, vocab_size=163840,
        without=("rope_scaling", "quantization_config")),
    "kimi k2": form(
        DEEPSEEK_V3, model_type="kimi_k2", first_k_dense_replace=1,
        n_group=1, n_routed_experts=384, num_attention_heads=64,
        num_key_value_heads=64, num_nextn_predict_layers=0,
        rope_theta=50000.0, routed_scaling_factor=2.827, topk_group=1,
        vocab_size=163840, max_position_embeddings=131072,
        rope_scaling={**YARN, "beta_fast": 1.0, "beta_slow": 1.0,
                      "factor": 32.0}),
    "deepseek v2": DEEPSEEK_V2,
    "deepseek v2 lite": form(
        DEEPSEEK_V2, hidden_size=2048, intermediate_size=10944,
        moe_intermediate_size=1408, n_group=1, n_routed_experts=64,
        num_attention_heads=16, num_hidden_layers=27, num_key_value_heads=16,
        q_lora_rank=None, routed_scaling_factor=1.0, topk_group=1,
        topk_method="greedy",
        rope_scaling={**YARN, "mscale": 0.707, "mscale_all_dim": 0.707}),
    "gpt-oss 20b": GPT_OSS,
    "gpt-oss 120b": form(
        GPT_OSS, layer_types=["sliding_attention", "full_attention"] * 18,
        num_hidden_layers=36, num_local_experts=128),
    "gpt-oss 20b, bf16, transformers 5": form(
        GPT_OSS, dtype="bfloat16", transformers_version="5.0.0",
        rope_parameters={**GPT_OSS["rope_scaling"], "rope_theta": 150000},
        without=("rope_scaling", "rope_theta", "quantization_config")),
}


# --- small copies --------------------------------------------------------------

def small_share(c):
    """An even number of 8 channels."""
    for name in ("partial_rotary_factor", "rotary_pct"):
        if name in c:
            c[name] = max(int(8 * c[name]) // 2 * 2, 2) / 8


def small_rope(rope, c):
    """Lengths are divided, so that T is long for them."""
    rope = {k: small_rope(v, c) if isinstance(v, dict) else v
            for k, v in rope.items()}
    if rope.get("original_max_position_embeddings"):
        rope["original_max_position_embeddings"] //= 512
    if "rope_theta" in rope:
        rope["rope_theta"] = 100.0
    small_share(rope)
    pairs = int(c["hidden_size"] // HEADS * c.get("partial_rotary_factor", 1))
    for name in ("long_factor", "short_factor"):
        if name in rope:
            rope[name] = rope[name][:pairs // 2]
    return rope


def small(config):
    c = dict(config)
    if c["model_type"] == "gpt2":
        for name, n in {"n_embd": 32, "n_head": 4, "n_layer": 2, "n_ctx": 32,
                        "n_positions": 32}.items():
            if name in c:
                c[name] = n
    else:
        kv = c.get("num_key_value_heads")
        if kv is not None:
            ratio = c["num_attention_heads"] // kv
            c["num_key_value_heads"] = max(HEADS // ratio, 1)
        if c["num_hidden_layers"] <= c.get("max_window_layers", 0):
            c["max_window_layers"] = 2
        elif "max_window_layers" in c:
            c["max_window_layers"] = 1
        c.update(hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                 num_attention_heads=HEADS)
        if c.get("head_dim"):
            c["head_dim"] = 10
    if c["model_type"] == "gpt_oss":
        c.update(num_local_experts=6, num_experts_per_tok=3, sliding_window=4)
    if "kv_lora_rank" in c:
        c.update(kv_lora_rank=10, qk_nope_head_dim=6, qk_rope_head_dim=4,
                 v_head_dim=7, n_routed_experts=8, num_experts_per_tok=3,
                 moe_intermediate_size=20, first_k_dense_replace=1)
        if c["q_lora_rank"]:
            c["q_lora_rank"] = 12
        if c["n_group"] > 1:
            c.update(n_group=4, topk_group=2)
    c["vocab_size"] = VOCAB
    if "query_pre_attn_scalar" in c:
        c["query_pre_attn_scalar"] //= 16
    if c.get("sliding_window"):
        c["sliding_window"] = 5 if c["sliding_window"] < 65536 else 512
    if "layer_types" in c:  # the first two, or those around the first full one
        kinds = c["layer_types"]
        first = kinds.index("full_attention")
        c["layer_types"] = kinds[max(first - 1, 0):][:2]
    for name in ("sliding_window_pattern", "no_rope_layer_interval"):
        if name in c:
            c[name] = 2
    if "no_rope_layers" in c:
        c["no_rope_layers"] = c["no_rope_layers"][2:4]
    for name in ("max_position_embeddings", "original_max_position_embeddings"):
        if name in c and c["model_type"] != "gpt2":
            c[name] = max(c[name] // 512, 1)
    if "max_position_embeddings" in c:
        c["max_position_embeddings"] = max(c["max_position_embeddings"], 32)
    for name in ("rope_theta", "rotary_emb_base"):
        if name in c and (name == "rope_theta" or "rotary_pct" in c):
            c[name] = 100.0
    small_share(c)
    for name in ("rope_scaling", "rope_parameters"):
        if c.get(name):
            c[name] = small_rope(c[name], c)
    if (c.get("pad_token_id") or 0) > 0:
        c["pad_token_id"] = VOCAB - 2
    for name in ("bos_token_id", "eos_token_id"):
        if name in c:
            c[name] = 3
    return c


def stored(name, model):
    """A tensor's name in files, without a prefix."""
    if model.config.model_type == "gpt_neox":
        name = name.replace("lm_head", "embed_out")
    return name.removeprefix(model.base_model_prefix + ".") if (
        model.config.model_type in ("gpt2", "gpt_neox")) else name


def model_of(config):
    own = {k: v for k, v in config.items() if not k.startswith("_") and
           k not in ("dtype", "torch_dtype")}  # all in float64
    if (own.get("rope_scaling") or {}).get("type") == "su":
        own["rope_scaling"] = {**own["rope_scaling"], "type": "longrope"}
    if own["model_type"] == "kimi_k2":  # which its own code is
        own["model_type"] = "deepseek_v3"
    own.pop("quantization_config", None)
    config = AutoConfig.for_model(**own)
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    return AutoModelForCausalLM.from_config(config)


def weights_of(model):
    """And the biases of routers, which nothing but the load moves."""
    return list(model.named_parameters()) + [
        b for b in model.named_buffers() if b[0].endswith("_bias")]


def put(model, name, p):
    """The experts of a layer are tensors of their own in files."""
    name = stored(name, model)
    base, end = name.rsplit(".", 1)
    if base.endswith("experts") and model.config.model_type != "gpt_oss":
        parts = ["gate_proj", "up_proj"] if end == "gate_up_proj" else [end]
        n = p.shape[1] // len(parts)
        for e in range(p.shape[0]):
            for i, part in enumerate(parts):
                one = p[e, i * n:(i + 1) * n]
                one.copy_(weight_of("%s.%d.%s.weight" % (base, e, part),
                                    tuple(one.shape)))
    else:
        p.copy_(weight_of(name, tuple(p.shape)))


def parameters_of(config):
    """Counted without weights; what is tied counts once."""
    with torch.device("meta"):
        model = model_of(copy.deepcopy(config))
    return sum(p.numel() for _, p in weights_of(model))


def loss_of(config):
    model = model_of(config)
    model = model.double().eval()
    with torch.no_grad():
        for name, p in weights_of(model):
            put(model, name, p)
        ids = torch.tensor(tokens())
        logits = model(ids[None, :-1]).logits[0]
        return torch.nn.functional.cross_entropy(logits, ids[1:]).item()


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with open("forms.jsonl", "w") as f:
        for name, one in FORMS.items():
            if isinstance(one, tuple):
                line = {"name": name, "config": one[0], "refused": one[1]}
            else:
                line = {"name": name, "config": one,
                        "parameters": parameters_of(one), "small": small(one)}
                line["loss"] = loss_of(dict(line["small"]))
            f.write(json.dumps(line) + "\n")
            print(name, line.get("loss", line.get("refused")), flush=True)
