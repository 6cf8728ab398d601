#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write gpt2.vec and llama.vec: one tiny step of each family in float64.

An independent implementation: plain PyTorch, nothing of Merak.  The shapes
are those of gpt2.json and llama.json beside this file; a micro-batch has two
sequences of 16 tokens.  Run it in this folder; it needs python3-torch.

The format (little-endian, no padding; tests/unit/vectors.c reads it):

    8 bytes   "MRKVEC01"
    u32       number of records
    records   u16 n, n bytes of name, u8 kind, u8 ndim, u32 dim[ndim], data

    kind 'w'  a weight, as a formula: f64 centre, f64 width, u64 key.
              element i = f32(centre + width * (u - 1/2)), all in double but
              the last rounding, u = (mix(key + i) >> 40) / 2^24, and mix the
              finaliser of splitmix64
    kind 'f'  f32 data      kind 'd'  f64 data      kind 'i'  i32 data

    config          i  batch, sequence
    tokens, targets i  [batch, sequence]
    param/NAME      w  before the first step; names and shapes as
                       merak_hf_describe() gives them
    grad/NAME       f  of the mean loss at these weights (computed in double)
    losses          d  [4] before the first step and after 1, 2, 3 steps of
                       AdamW on the same batch: lr 1e-3, betas 0.9 0.95, eps
                       1e-8, weight decay 0.1 on matrices (no bias, no norm)
    param_norm      d  [1] root of the sum of squares of all weights
    grad_norm       d  [1] the same of all gradients
"""

import json
import math
import struct

import numpy as np
import torch

B, T = 2, 16
M64 = (1 << 64) - 1


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & M64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & M64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & M64
    return x ^ (x >> 31)


def uniform(key, n):
    return np.array([(mix((key + i) & M64) >> 40) / 2.0**24 for i in range(n)])


class Weights:
    """Parameters by name, in the order they were asked for."""

    def __init__(self, seed):
        self.seed = seed
        self.form = {}
        self.value = {}

    def get(self, name, shape, centre=0.0, width=0.4):
        if name not in self.value:
            key = mix(self.seed + len(self.form))
            u = uniform(key, math.prod(shape))
            x = (centre + width * (u - 0.5)).astype(np.float32)
            self.form[name] = (centre, width, key)
            self.value[name] = torch.tensor(
                x.astype(np.float64).reshape(shape), requires_grad=True)
        return self.value[name]

    def gain(self, name, n):
        return self.get(name, (n,), 1.0, 0.5)

    def bias(self, name, shape):
        return self.get(name, shape, 0.0, 0.2)


def causal(q, k, v):
    """[B, heads, T, D] each."""
    s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    mask = torch.triu(torch.ones(T, T, dtype=torch.bool), diagonal=1)
    return torch.softmax(s.masked_fill(mask, -math.inf), dim=-1) @ v


def gpt2(c, w, tokens):
    C, H, V = c["n_embd"], c["n_head"], c["vocab_size"]
    D, F = C // H, 4 * C

    def norm(x, name):
        g, b = w.gain(name + ".weight", C), w.bias(name + ".bias", (C,))
        mean = x.mean(-1, keepdim=True)
        var = ((x - mean) ** 2).mean(-1, keepdim=True)
        return (x - mean) / torch.sqrt(var + 1e-5) * g + b

    wte = w.get("wte.weight", (V, C))
    x = wte[tokens] + w.get("wpe.weight", (c["n_positions"], C))[:T]
    for i in range(c["n_layer"]):
        at = "h.%d" % i
        h = norm(x, at + ".ln_1")
        qkv = torch.einsum("btc,shdc->sbhtd", h,
                           w.get(at + ".attn.c_attn.weight", (3, H, D, C)))
        qkv = qkv + w.bias(at + ".attn.c_attn.bias",
                           (3, H, D))[:, None, :, None, :]
        h = causal(qkv[0], qkv[1], qkv[2])
        h = torch.einsum("bhtd,chd->btc", h,
                         w.get(at + ".attn.c_proj.weight", (C, H, D)))
        x = x + h + w.bias(at + ".attn.c_proj.bias", (C,))
        h = norm(x, at + ".ln_2") @ w.get(at + ".mlp.c_fc.weight", (F, C)).T
        h = h + w.bias(at + ".mlp.c_fc.bias", (F,))
        h = 0.5 * h * (1 + torch.tanh(math.sqrt(2 / math.pi) *
                                      (h + 0.044715 * h**3)))
        h = h @ w.get(at + ".mlp.c_proj.weight", (C, F)).T
        x = x + h + w.bias(at + ".mlp.c_proj.bias", (C,))
    return norm(x, "ln_f") @ wte.T


def llama(c, w, tokens):
    C, V, F = c["hidden_size"], c["vocab_size"], c["intermediate_size"]
    H, G = c["num_attention_heads"], c["num_key_value_heads"]
    D, R = C // H, H // G

    def norm(x, name):
        ms = (x * x).mean(-1, keepdim=True) + c["rms_norm_eps"]
        return x / torch.sqrt(ms) * w.gain(name + ".weight", C)

    def rope(x):
        """[B, heads, T, D]; channel i turns with channel i + D/2."""
        i = torch.arange(D // 2, dtype=torch.float64)
        angle = (torch.arange(T, dtype=torch.float64)[:, None] *
                 c["rope_theta"] ** (-2 * i / D))
        lo, hi = x[..., :D // 2], x[..., D // 2:]
        cos, sin = torch.cos(angle), torch.sin(angle)
        return torch.cat([lo * cos - hi * sin, hi * cos + lo * sin], dim=-1)

    x = w.get("model.embed_tokens.weight", (V, C))[tokens]
    for i in range(c["num_hidden_layers"]):
        at = "model.layers.%d" % i
        h = norm(x, at + ".input_layernorm")
        wq = w.get(at + ".self_attn.q_proj.weight", (G, R, D, C))
        wk = w.get(at + ".self_attn.k_proj.weight", (G, D, C))
        wv = w.get(at + ".self_attn.v_proj.weight", (G, D, C))
        q = torch.einsum("btc,hdc->bhtd", h, wq.reshape(H, D, C))
        k = torch.einsum("btc,hdc->bhtd", h, wk)
        v = torch.einsum("btc,hdc->bhtd", h, wv)
        k, v = (y.repeat_interleave(R, dim=1) for y in (rope(k), v))
        wo = w.get(at + ".self_attn.o_proj.weight", (C, G, R, D))
        h = causal(rope(q), k, v)
        x = x + torch.einsum("bhtd,chd->btc", h, wo.reshape(C, H, D))
        h = norm(x, at + ".post_attention_layernorm")
        gate = h @ w.get(at + ".mlp.gate_proj.weight", (F, C)).T
        up = h @ w.get(at + ".mlp.up_proj.weight", (F, C)).T
        h = gate * torch.sigmoid(gate) * up
        x = x + h @ w.get(at + ".mlp.down_proj.weight", (C, F)).T
    return norm(x, "model.norm") @ w.get("lm_head.weight", (V, C)).T


def loss_of(forward, c, w, tokens, targets):
    logits = forward(c, w, torch.tensor(tokens))
    z = logits.gather(-1, torch.tensor(targets)[..., None])[..., 0]
    return (torch.logsumexp(logits, dim=-1) - z).mean()


def adamw(w, moments, step):
    lr, b1, b2, eps, wd = 1e-3, 0.9, 0.95, 1e-8, 0.1
    with torch.no_grad():
        for name, p in w.value.items():
            m, v = moments.setdefault(
                name, (torch.zeros_like(p), torch.zeros_like(p)))
            m.mul_(b1).add_((1 - b1) * p.grad)
            v.mul_(b2).add_((1 - b2) * p.grad**2)
            matrix = p.ndim >= 2 and not name.endswith(".bias")
            update = (m / (1 - b1**step)) / (
                torch.sqrt(v / (1 - b2**step)) + eps)
            p.sub_(lr * (update + (wd if matrix else 0.0) * p))


def record(name, kind, shape, data):
    head = struct.pack("<H", len(name)) + name.encode() + kind.encode()
    return head + struct.pack("<B%dI" % len(shape), len(shape), *shape) + data


def array(name, kind, x):
    dtype = {"f": "<f4", "d": "<f8", "i": "<i4"}[kind]
    x = np.asarray(x)
    return record(name, kind, x.shape, x.astype(dtype).tobytes())


def norm(name, tensors):
    square = sum((x.detach()**2).sum().item() for x in tensors)
    return array(name, "d", [math.sqrt(square)])


def run(family, forward, seed):
    with open(family + ".json") as f:
        c = json.load(f)
    w = Weights(seed)
    ids = uniform(mix(seed ^ 0xDA7A), B * (T + 1)) * c["vocab_size"]
    ids = ids.astype(np.int64).reshape(B, T + 1)
    tokens, targets = ids[:, :-1].copy(), ids[:, 1:].copy()
    out = [array("config", "i", [B, T]), array("tokens", "i", tokens),
           array("targets", "i", targets)]
    losses, moments = [], {}
    for step in range(4):
        for p in w.value.values():
            p.grad = None
        loss = loss_of(forward, c, w, tokens, targets)
        losses.append(loss.item())
        if step == 3:
            break
        loss.backward()
        if step == 0:
            out += [record("param/" + n, "w", tuple(p.shape),
                           struct.pack("<ddQ", *w.form[n]))
                    for n, p in w.value.items()]
            out += [array("grad/" + n, "f", p.grad.numpy())
                    for n, p in w.value.items()]
            out += [norm("param_norm", w.value.values()),
                    norm("grad_norm", [p.grad for p in w.value.values()])]
        adamw(w, moments, step + 1)
    out.append(array("losses", "d", losses))
    with open(family + ".vec", "wb") as f:
        f.write(b"MRKVEC01" + struct.pack("<I", len(out)) + b"".join(out))
    print(family, "losses", losses)


if __name__ == "__main__":
    torch.set_num_threads(1)
    run("gpt2", gpt2, 1)
    run("llama", llama, 2)
