#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write NAME.json and NAME.vec of small models of Hugging Face's families.

What transformers computes of NAME.json, in PyTorch's float64 but where
transformers itself goes down to float32 (norms, rotary angles).  The format is
that of ../gen_gpt2_llama.py, from which this takes weights and records;
`losses` has one before each of 30 steps of AdamW, and one behind the last.
Run it in this folder; it needs PyTorch and transformers 5.
"""

import json
import math
import os
import struct
import sys

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import gen_gpt2_llama as plain  # noqa: E402

B, T, STEPS = 2, 16, 30
SHAPE = {"vocab_size": 61, "hidden_size": 32, "intermediate_size": 48,
         "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 256,
         "rms_norm_eps": 1e-5, "rope_theta": 100.0}
MODELS = {
    "llama3": {"model_type": "llama", "tie_word_embeddings": True,
               "pad_token_id": 7,
               "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
                                "low_freq_factor": 1.0,
                                "high_freq_factor": 4.0,
                                "original_max_position_embeddings": 64}},
    "linear": {"model_type": "llama", "pad_token_id": -3,
               "rope_scaling": {"type": "linear", "factor": 3.0}},
    "dynamic": {"model_type": "llama", "head_dim": 6,
                "rope_scaling": {"type": "dynamic", "factor": 2.0}},
    "yarn": {"model_type": "llama", "attention_bias": True, "mlp_bias": True,
             "rope_parameters": {"rope_type": "yarn", "factor": 4.0,
                                 "rope_theta": 90.0,
                                 "original_max_position_embeddings": 64}},
    "qwen2": {"model_type": "qwen2", "use_sliding_window": False,
              "sliding_window": 4, "max_window_layers": 1},
    "qwen3": {"model_type": "qwen3", "head_dim": 12,
              "tie_word_embeddings": True},
    "mistral": {"model_type": "mistral", "sliding_window": 16},
    "phi3": {"model_type": "phi3", "pad_token_id": 60,
             "original_max_position_embeddings": 256},
    "olmo2": {"model_type": "olmo2"},
}


class Parameter:
    """One of ours: the rows of a tensor of transformers that it is."""

    def __init__(self, name, tensor, first, rows, shape):
        self.name, self.tensor, self.shape = name, tensor, shape
        self.rows = slice(first, first + rows)


def parameters(c, model):
    """All of ours, from the names and shapes of transformers' tensors."""
    H, G = c.num_attention_heads, c.num_key_value_heads
    C, F = c.hidden_size, c.intermediate_size
    D = getattr(c, "head_dim", None) or C // H
    dims = {"q": (G, H // G, D), "k": (G, D), "v": (G, D)}
    out = []
    for name, p in model.named_parameters():
        end = name.rsplit(".", 2)[-2]
        rest = tuple(p.shape[1:])
        if end == "qkv_proj":
            parts = [("q", H * D), ("k", G * D), ("v", G * D)]
        elif end == "gate_up_proj":
            parts = [("gate", F), ("up", F)]
        else:
            parts = [(None, p.shape[0])]
        at = 0
        for part, rows in parts:
            ours = name.replace(end, part + "_proj") if part else name
            of = part or end[0]
            shape = (rows,) + rest
            if end == "o_proj":
                shape = (C, G, H // G, D) if rest else (C,)
            elif end in ("q_norm", "k_norm") and p.shape[0] != D:
                shape = dims[of]
            elif end in ("q_proj", "k_proj", "v_proj", "qkv_proj"):
                shape = dims[of] + rest
            out.append(Parameter(ours, p, at, rows, shape))
            at += rows
    return out


def form_of(name, shape):
    if name.endswith("norm.weight"):
        return 1.0, 0.5
    return 0.0, 0.2 if name.endswith(".bias") else 0.4


def set_weights(params, seed):
    out = []
    with torch.no_grad():
        for i, p in enumerate(params):
            key = plain.mix(seed + i)
            centre, width = form_of(p.name, p.shape)
            u = plain.uniform(key, math.prod(p.shape))
            x = (centre + width * (u - 0.5)).astype(np.float32)
            rows = p.tensor[p.rows]
            rows.copy_(torch.tensor(x.astype(np.float64)).reshape(rows.shape))
            out.append(plain.record("param/" + p.name, "w", p.shape,
                                    struct.pack("<ddQ", centre, width, key)))
    return out


def run(name, fields, seed):
    config = {**SHAPE, **fields}
    if "rope_theta" in config.get("rope_parameters", {}):
        del config["rope_theta"]
    with open(name + ".json", "w") as f:
        json.dump(config, f, indent=1)
        f.write("\n")
    c = AutoConfig.for_model(**config)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(c, attn_implementation="sdpa")
    model = model.double().train()
    params = parameters(c, model)
    ids = plain.uniform(plain.mix(seed ^ 0xDA7A), B * (T + 1)) * c.vocab_size
    ids = ids.astype(np.int64).reshape(B, T + 1)
    if c.pad_token_id is not None:
        ids[:, 3] = ids[:, 9] = c.pad_token_id % c.vocab_size
    tokens, targets = ids[:, :-1].copy(), ids[:, 1:].copy()
    out = [plain.array("config", "i", [B, T]),
           plain.array("tokens", "i", tokens),
           plain.array("targets", "i", targets)]
    out += set_weights(params, seed)
    groups = [[], []]
    for p in model.parameters():
        groups[p.ndim < 2].append(p)
    adam = torch.optim.AdamW(
        [{"params": groups[0], "weight_decay": 0.1},
         {"params": groups[1], "weight_decay": 0.0}],
        lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for step in range(STEPS + 1):
        adam.zero_grad()
        logits = model(torch.tensor(tokens)).logits
        loss = torch.nn.functional.cross_entropy(
            logits.reshape(-1, c.vocab_size),
            torch.tensor(targets).reshape(-1))
        losses.append(loss.item())
        loss.backward()
        if step == 0:
            out += [plain.array("grad/" + p.name, "f",
                                p.tensor.grad[p.rows].reshape(p.shape).numpy())
                    for p in params]
            out += [plain.norm("param_norm", model.parameters()),
                    plain.norm("grad_norm",
                               [p.grad for p in model.parameters()])]
        adam.step()
    out.append(plain.array("losses", "d", losses))
    with open(name + ".vec", "wb") as f:
        f.write(b"MRKVEC01" + struct.pack("<I", len(out)) + b"".join(out))
    print(name, "losses", losses[0], losses[-1])


if __name__ == "__main__":
    torch.set_num_threads(1)
    for i, (name, fields) in enumerate(MODELS.items()):
        if len(sys.argv) == 1 or name in sys.argv[1:]:
            run(name, fields, 100 + 50 * i)
