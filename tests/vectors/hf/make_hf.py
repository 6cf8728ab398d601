#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write NAME.json and NAME.vec of small models of Hugging Face's families.

What transformers computes of NAME.json, in PyTorch's float64 but where
transformers itself goes down to float32 (norms, rotary angles).  The format is
that of ../gen_gpt2_llama.py, from which this takes weights and records;
`losses` has one before each of 30 steps of AdamW, and one behind the last.
What dropout keeps is by the numbers of base/rng.h and kernels/geometry.h,
written here once more: seed 0, the step, sample 0 and 1 of a micro-batch.
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
GPT2 = {"vocab_size": 61, "n_embd": 32, "n_layer": 2, "n_head": 4,
        "n_positions": 24}
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
    "gpt2-dropout": {"model_type": "gpt2"},
    "dropout": {"model_type": "llama", "attention_dropout": 0.3},
    "mistral-window": {"model_type": "mistral", "sliding_window": 5},
    "qwen2-window": {"model_type": "qwen2", "use_sliding_window": True,
                     "sliding_window": 3, "max_window_layers": 1},
    "phi3-window": {"model_type": "phi3", "pad_token_id": None,
                    "sliding_window": 7, "attention_dropout": 0.1,
                    "original_max_position_embeddings": 256},
    "gemma2": {"model_type": "gemma2", "head_dim": 10, "sliding_window": 4,
               "query_pre_attn_scalar": 24, "attn_logit_softcapping": 1.5,
               "final_logit_softcapping": 2.5},
    "gpt2-plain": {"model_type": "gpt2", "attn_pdrop": 0.0, "embd_pdrop": 0.0,
                   "resid_pdrop": 0.0},
    "llama2": {"model_type": "llama", "num_key_value_heads": 4,
               "pretraining_tp": 1, "rope_scaling": None},
    "smollm": {"model_type": "llama", "tie_word_embeddings": True,
               "hidden_size": 36, "num_attention_heads": 9,
               "num_key_value_heads": 3, "is_llama_config": True,
               "rope_interleaved": False, "rope_scaling": None},
    # sequences of 16 are longer than 4; of 208 and of 16, not than 512
    "phi3-long": {"model_type": "phi3", "pad_token_id": 60,
                  "original_max_position_embeddings": 4,
                  "rope_scaling": {"type": "longrope",
                                   "short_factor": [1.0, 1.0, 1.0, 1.0],
                                   "long_factor": [1.0, 1.75, 3.5, 20.0]}},
    "phi3-short": {"model_type": "phi3", "pad_token_id": 60,
                   "max_position_embeddings": 4096,
                   "original_max_position_embeddings": 512,
                   "rope_scaling": {"type": "longrope",
                                    "short_factor": [1.0, 1.25, 1.5, 2.5],
                                    "long_factor": [1.0, 1.75, 3.5, 20.0]}},
}
M64 = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def rng_mix(a, b):
    return plain.mix((a + GOLDEN * b) & M64)


def rng_key(seed, name):
    h = 0xCBF29CE484222325
    for c in name.encode():
        h = ((h ^ c) * 0x100000001B3) & M64
    return rng_mix(h, seed)


def rng_uniform(key, index):
    """Philox4x32-10: elements of the stream `key`, an array of indices."""
    low = np.uint64(0xFFFFFFFF)
    block = np.asarray(index, dtype=np.uint64) // np.uint64(4)
    c = [block & low, block >> np.uint64(32), block * np.uint64(0),
         block * np.uint64(0)]
    k = [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        p0 = c[0] * np.uint64(0xD2511F53)
        p1 = c[2] * np.uint64(0xCD9E8D57)
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k[0]), p1 & low,
             (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k[1]), p0 & low]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    word = np.choose(np.asarray(index) % 4, c)
    return (word >> np.uint64(8)).astype(np.float64) / 2.0**24


class Dropout:
    """Stands for PyTorch's: streams are counted as they are used."""

    def __init__(self):
        self.step = self.stream = 0

    def begin(self, step):
        self.step, self.stream = step, 0

    def __call__(self, x, p=0.5, training=True, inplace=False):
        if p == 0 or not training:
            return x
        element = np.arange(x[0].numel()).reshape(x.shape[1:])
        if x.ndim == 4:  # probabilities [B, H, queries, keys]
            H, Q, K = x.shape[1:]
            h, q, k = np.ogrid[:H, :Q, :K]
            element = (h * K + k) * ((Q + 3) // 4 * 4) + q
        keep = []
        for sample in range(x.shape[0]):
            key = rng_mix(rng_key(0, "dropout"), self.step)
            key = rng_mix(rng_mix(key, sample), self.stream)
            keep.append(rng_uniform(key, element) >= p)
        self.stream += 1
        return x * torch.tensor(np.array(keep)) / (1 - p)


DROPOUT = Dropout()
torch.nn.functional.dropout = DROPOUT


class Parameter:
    """One of ours: the rows of a tensor of transformers that it is."""

    def __init__(self, name, tensor, first, rows, shape, turned=False):
        self.name, self.tensor, self.shape = name, tensor, shape
        self.rows, self.turned = slice(first, first + rows), turned

    def of(self, tensor):
        """Its rows of the tensor, or of the tensor's gradient."""
        return (tensor.T if self.turned else tensor)[self.rows]


def gpt2_parameters(c, model):
    """Matrices but the tables are [in, out] there."""
    C, H = c.n_embd, c.n_head
    heads = {"c_attn": (3, H, C // H)}
    out = []
    for name, p in model.named_parameters():
        end = name.rsplit(".", 2)[-2]
        turned = p.ndim == 2 and end.startswith("c_")
        shape = tuple(p.T.shape if turned else p.shape)
        if end == "c_attn":
            shape = heads[end] + shape[1:]
        elif name.endswith("attn.c_proj.weight"):
            shape = (C, H, C // H)
        rows = p.shape[1] if turned else p.shape[0]
        out.append(Parameter(name.replace("transformer.", ""), p, 0, rows,
                             shape, turned))
    return out


def parameters(c, model):
    """All of ours, from the names and shapes of transformers' tensors."""
    if c.model_type == "gpt2":
        return gpt2_parameters(c, model)
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


def form_of(name, c):
    if name.endswith("norm.weight") or ".ln_" in "." + name:
        if name.endswith("weight"):
            return 0.0 if c.model_type == "gemma2" else 1.0, 0.5
    return 0.0, 0.2 if name.endswith(".bias") else 0.4


def set_weights(params, c, seed):
    out = []
    with torch.no_grad():
        for i, p in enumerate(params):
            key = plain.mix(seed + i)
            centre, width = form_of(p.name, c)
            u = plain.uniform(key, math.prod(p.shape))
            x = (centre + width * (u - 0.5)).astype(np.float32)
            rows = p.of(p.tensor)
            rows.copy_(torch.tensor(x.astype(np.float64)).reshape(rows.shape))
            out.append(plain.record("param/" + p.name, "w", p.shape,
                                    struct.pack("<ddQ", centre, width, key)))
    return out


def run(name, fields, seed):
    config = {**(GPT2 if fields["model_type"] == "gpt2" else SHAPE), **fields}
    if "rope_theta" in config.get("rope_parameters", {}):
        del config["rope_theta"]
    with open(name + ".json", "w") as f:
        json.dump(config, f, indent=1)
        f.write("\n")
    c = AutoConfig.for_model(**config)
    torch.manual_seed(0)
    drops = getattr(c, "attention_dropout", 0) or getattr(c, "attn_pdrop", 0)
    kind = "eager" if drops or c.model_type == "gemma2" else "sdpa"
    model = AutoModelForCausalLM.from_config(c, attn_implementation=kind)
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
    out += set_weights(params, c, seed)
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
        DROPOUT.begin(step)
        logits = model(torch.tensor(tokens)).logits
        loss = torch.nn.functional.cross_entropy(
            logits.reshape(-1, c.vocab_size),
            torch.tensor(targets).reshape(-1))
        losses.append(loss.item())
        loss.backward()
        if step == 0:
            out += [plain.array("grad/" + p.name, "f",
                                p.of(p.tensor.grad).reshape(p.shape).numpy())
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
