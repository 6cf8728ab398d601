#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write small models of Hugging Face's families as transformers saves them.

NAME.config.json, NAME.model.safetensors .. are the files of a folder with a
model whose weights are random (files of one name would be confused here), and
NAME.loss is the loss of sample.txt by it: tokens are the text's bytes, cut into
sequences of 32, computed in float64 from the numbers that are stored.
Run it in this folder; it needs PyTorch and transformers 5.

    make_weights.py                 write all of them
    make_weights.py NAME..          write these
    make_weights.py --stacked NAME..  of these, already written, the same
                                    weights with the experts of a layer in one
                                    tensor: stacked-NAME.model.safetensors; of
                                    bert, norms named as in its first files
    make_weights.py --packed        of a gpt_oss, mxfp4.*, a folder with experts
                                    in MXFP4, and unpacked-mxfp4.*, what
                                    transformers makes of it in bf16
    make_weights.py --same A B      the folders open, and give the same logits
    make_weights.py --loss DIR..    the loss of each
"""

import glob
import json
import os
import shutil
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers import (AutoConfig, AutoModelForCausalLM,
                          AutoModelForMaskedLM, AutoModelForSeq2SeqLM)
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

T, N = 32, 12  # of a sequence, and sequences
SHAPE = {"vocab_size": 257, "hidden_size": 16, "intermediate_size": 24,
         "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 64,
         "rms_norm_eps": 1e-5, "pad_token_id": None}
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
# fields of the config, dtype, size of a file at most
MODELS = {
    "gpt2": ({"model_type": "gpt2", "vocab_size": 257, "n_embd": 16,
              "n_layer": 2, "n_head": 4, "n_positions": 64,
              "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
              "bos_token_id": 256, "eos_token_id": 256}, F32, "50GB"),
    "llama": ({**SHAPE, "model_type": "llama"}, BF16, "6KB"),
    "mistral": ({**SHAPE, "model_type": "mistral", "head_dim": 6,
                 "sliding_window": None}, F16, "50GB"),
    "qwen2": ({**SHAPE, "model_type": "qwen2", "tie_word_embeddings": True},
              BF16, "50GB"),
    "qwen3": ({**SHAPE, "model_type": "qwen3", "head_dim": 6,
               "tie_word_embeddings": True}, BF16, "50GB"),
    "phi3": ({**SHAPE, "model_type": "phi3"}, F16, "50GB"),
    "olmo2": ({**SHAPE, "model_type": "olmo2"}, BF16, "50GB"),
    "gemma2": ({**SHAPE, "model_type": "gemma2", "head_dim": 6,
                "query_pre_attn_scalar": 9, "sliding_window": 12,
                "attn_logit_softcapping": 2.0,
                "final_logit_softcapping": 3.0}, BF16, "50GB"),
    "gemma": ({**SHAPE, "model_type": "gemma", "head_dim": 6}, BF16, "50GB"),
    "gemma3_text": ({**SHAPE, "model_type": "gemma3_text", "head_dim": 6,
                     "query_pre_attn_scalar": 9, "sliding_window": 12,
                     "sliding_window_pattern": 2}, BF16, "50GB"),
    "arcee": ({**SHAPE, "model_type": "arcee", "attention_bias": True,
               "mlp_bias": True, "bos_token_id": 0, "eos_token_id": 1},
              BF16, "50GB"),
    "granite": ({**SHAPE, "model_type": "granite", "embedding_multiplier": 6.0,
                 "tie_word_embeddings": True, "residual_multiplier": 0.4,
                 "attention_multiplier": 0.3, "logits_scaling": 4.0},
                BF16, "50GB"),
    "smollm3": ({**SHAPE, "model_type": "smollm3", "bos_token_id": 0,
                 "no_rope_layer_interval": 2, "eos_token_id": 1},
                BF16, "50GB"),
    "olmo3": ({**SHAPE, "model_type": "olmo3", "sliding_window": 12,
               "layer_types": ["sliding_attention", "full_attention"],
               "eos_token_id": 1}, BF16, "50GB"),
    "stablelm": ({**SHAPE, "model_type": "stablelm", "use_qkv_bias": True,
                  "partial_rotary_factor": 0.5}, BF16, "50GB"),
    "starcoder2": ({**SHAPE, "model_type": "starcoder2", "bos_token_id": 0,
                    "eos_token_id": 1, "sliding_window": 12}, BF16, "50GB"),
    "phi": ({**SHAPE, "model_type": "phi", "qk_layernorm": True}, F16, "50GB"),
    "gpt_neox": ({**SHAPE, "model_type": "gpt_neox", "rotary_pct": 0.5,
                  "eos_token_id": None}, F16, "9KB"),
    "mixtral": ({**SHAPE, "model_type": "mixtral", "num_local_experts": 3},
                BF16, "12KB"),
    "qwen2_moe": ({**SHAPE, "model_type": "qwen2_moe", "num_experts": 3,
                   "num_experts_per_tok": 2, "moe_intermediate_size": 10,
                   "shared_expert_intermediate_size": 14,
                   "decoder_sparse_step": 2}, BF16, "50GB"),
    "qwen3_moe": ({**SHAPE, "model_type": "qwen3_moe", "num_experts": 4,
                   "num_experts_per_tok": 2, "moe_intermediate_size": 10,
                   "head_dim": 6}, BF16, "50GB"),
    "olmoe": ({**SHAPE, "model_type": "olmoe", "num_experts": 4,
               "num_experts_per_tok": 2, "intermediate_size": 10,
               "eos_token_id": 1}, F16, "50GB"),
    "glm4_moe": ({**SHAPE, "model_type": "glm4_moe", "n_routed_experts": 4,
                  "num_experts_per_tok": 2, "moe_intermediate_size": 10,
                  "n_group": 2, "head_dim": 8}, BF16, "50GB"),
    "deepseek_v3": ({**SHAPE, "model_type": "deepseek_v3",
                     "num_key_value_heads": 4, "n_routed_experts": 4,
                     "num_experts_per_tok": 2, "moe_intermediate_size": 10,
                     "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1,
                     "q_lora_rank": 9, "kv_lora_rank": 8,
                     "qk_nope_head_dim": 4, "qk_rope_head_dim": 6,
                     "v_head_dim": 5, "attention_bias": True,
                     "rope_parameters": {
                         "rope_type": "yarn", "factor": 4.0,
                         "rope_theta": 1e4, "mscale": 1.0,
                         "mscale_all_dim": 0.8,
                         "original_max_position_embeddings": 16}},
                    BF16, "50GB"),
    "deepseek_v2": ({**SHAPE, "model_type": "deepseek_v2",
                     "num_key_value_heads": 4, "n_routed_experts": 4,
                     "num_experts_per_tok": 2, "moe_intermediate_size": 10,
                     "q_lora_rank": None, "kv_lora_rank": 8,
                     "qk_nope_head_dim": 4, "qk_rope_head_dim": 6,
                     "v_head_dim": 5, "first_k_dense_replace": 1},
                    BF16, "50GB"),
    "gpt_oss": ({**SHAPE, "model_type": "gpt_oss", "num_local_experts": 3,
                 "num_experts_per_tok": 2, "intermediate_size": 10,
                 "head_dim": 6, "sliding_window": 12, "swiglu_limit": 0.5,
                 "rope_parameters": {
                     "rope_type": "yarn", "factor": 4.0, "truncate": False,
                     "rope_theta": 1e4, "beta_fast": 32.0, "beta_slow": 1.0,
                     "original_max_position_embeddings": 16}},
                BF16, "12KB"),
    "bert": ({"model_type": "bert", "vocab_size": 257, "hidden_size": 16,
              "intermediate_size": 24, "num_hidden_layers": 2,
              "num_attention_heads": 4, "max_position_embeddings": 64},
             F32, "50GB"),
    "t5": ({"model_type": "t5", "vocab_size": 257, "d_model": 16, "d_ff": 24,
            "d_kv": 6, "num_layers": 2, "num_heads": 4,
            "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
           BF16, "50GB"),
}
# Of those that are not trained on the next token there is no such loss.
ENCODERS = {"bert": AutoModelForMaskedLM, "t5": AutoModelForSeq2SeqLM}


def sequences():
    with open("sample.txt", "rb") as f:
        ids = torch.tensor(list(f.read()))
    assert len(ids) == N * T + 1
    return ids[:-1].reshape(N, T), ids[1:].reshape(N, T)


def logits(folder, tokens):
    model = AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager",
        experts_implementation="eager").double().eval()
    with torch.no_grad():
        return model(tokens).logits


def loss_of(folder):
    tokens, targets = sequences()
    out = logits(folder, tokens)
    return torch.nn.functional.cross_entropy(
        out.reshape(-1, out.shape[-1]), targets.reshape(-1)).item()


def write(name):
    fields, dtype, most = MODELS[name]
    if name == "gpt_neox":  # has no such fields
        fields = {k: v for k, v in fields.items()
                  if k not in ("num_key_value_heads", "rms_norm_eps")}
    torch.manual_seed(7 + len(name))
    model = ENCODERS.get(name, AutoModelForCausalLM).from_config(
        AutoConfig.for_model(**fields))
    if name == "t5":  # as version 1.1, which transformers 5 does not make
        model.lm_head.weight = torch.nn.Parameter(
            torch.zeros_like(model.shared.weight))
    with torch.no_grad():
        biases = [b for n, b in model.named_buffers() if n.endswith("_bias")]
        for p in list(model.parameters()) + biases:
            p.add_(torch.randn_like(p) * (0.2 if p.ndim > 1 else 0.1))
    with tempfile.TemporaryDirectory() as folder:
        model.to(dtype).save_pretrained(folder, max_shard_size=most)
        loss = 0 if name in ENCODERS else loss_of(folder)
        for file in glob.glob(name + ".*"):
            os.remove(file)
        for file in os.listdir(folder):
            if file != "generation_config.json":
                shutil.copyfile(os.path.join(folder, file), name + "." + file)
    if name not in ENCODERS:
        with open(name + ".loss", "w") as f:
            f.write("%.9f\n" % loss)
    print(name, loss)


def name_as_before(name):
    """Norms have gammas and betas."""
    file = ".model.safetensors"
    tensors = {key.replace("LayerNorm.weight", "LayerNorm.gamma")
               .replace("LayerNorm.bias", "LayerNorm.beta"): x
               for key, x in load_file(name + file).items()}
    save_file(tensors, "stacked-" + name + file, metadata={"format": "pt"})


def stack(name):
    with tempfile.TemporaryDirectory() as folder:
        for file in glob.glob(name + ".*"):
            shutil.copyfile(file, os.path.join(folder, file[len(name) + 1:]))
        model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
        out = os.path.join(folder, "out")
        model.to(model.config.dtype)  # what is computed in fp32, too
        model.save_pretrained(out, save_original_format=False)
        file = "model.safetensors"
        shutil.copyfile(os.path.join(out, file), "stacked-%s.%s" % (name, file))


def pack():
    """Bytes at random, as published folders of gpt_oss have them."""
    fields = {**MODELS["gpt_oss"][0], "hidden_size": 32,
              "intermediate_size": 64, "num_local_experts": 2,
              "num_hidden_layers": 1, "vocab_size": 257}
    torch.manual_seed(11)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**fields))
    model = model.to(BF16)
    files = {}
    for name, p in model.named_parameters():
        if not name.endswith("_proj") or "experts" not in name:
            files[name] = p.data
            continue
        E, columns, rows = p.shape
        shape = (E, rows, columns // 32)
        blocks = torch.randint(0, 256, (*shape, 16), dtype=torch.uint8)
        scales = torch.randint(121, 126, shape, dtype=torch.uint8)
        p.data = convert_moe_packed_tensors(blocks, scales)
        files[name + "_blocks"], files[name + "_scales"] = blocks, scales
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        loss = loss_of(folder)
        shutil.copyfile(os.path.join(folder, "model.safetensors"),
                        "unpacked-mxfp4.model.safetensors")
        with open(os.path.join(folder, "config.json")) as f:
            config = json.load(f)
    config["quantization_config"] = {"quant_method": "mxfp4"}
    with open("mxfp4.config.json", "w") as f:
        json.dump(config, f, indent=2)
        f.write("\n")
    save_file(files, "mxfp4.model.safetensors", {"format": "pt"})
    with open("mxfp4.loss", "w") as f:
        f.write("%.9f\n" % loss)
    print("mxfp4", loss)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1:] == ["--packed"]:
        pack()
        sys.exit()
    if sys.argv[1:2] == ["--same"]:
        tokens, _ = sequences()
        a, b = (logits(folder, tokens) for folder in sys.argv[2:4])
        print("largest difference", (a - b).abs().max().item(), "of",
              a.abs().max().item())
        sys.exit(not torch.equal(a, b))
    if sys.argv[1:2] == ["--loss"]:
        for folder in sys.argv[2:]:
            print("%.9f" % loss_of(folder))
        sys.exit()
    if sys.argv[1:2] == ["--stacked"]:
        for name in sys.argv[2:]:
            name_as_before(name) if name == "bert" else stack(name)
        sys.exit()
    for name in sys.argv[1:] or MODELS:
        write(name)
