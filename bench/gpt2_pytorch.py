#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""gpt2_pytorch.py - GPT-2 training steps in PyTorch, the peer of bench/gpt2.py

Prints one line: median seconds a step and peak resident MiB.  The model is
GPT-2 (Radford et al. 2019) of the sizes that a config.json says, with tied
embeddings and no dropout: fused attention and AdamW, gradients clipped to
norm 1, with --compile through torch.compile; bf16 is autocast.
"""
import argparse
import json
import resource
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.ln_2 = nn.LayerNorm(width)
        self.fc = nn.Linear(width, 4 * width)
        self.out = nn.Linear(4 * width, width)

    def attention(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, c // self.heads)
                   .transpose(1, 2) for part in self.qkv(x).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(b, t, c))

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, vocab, width, layers, heads, positions):
        super().__init__()
        self.wte = nn.Embedding(vocab, width)
        self.wpe = nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(Block(width, heads)
                                    for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(
            tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(),
                               targets.reshape(-1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True, help="a config.json")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=256)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()

    with open(args.model, encoding="utf-8") as f:
        config = json.load(f)
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    vocab = config["vocab_size"]
    model = Gpt2(vocab, config["n_embd"], config["n_layer"], config["n_head"],
                 config["n_positions"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(vocab, (args.batch, args.seq + 1))
    step = torch.compile(model) if args.compile else model
    times = []
    for _ in range(args.steps + 1):
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16,
                            enabled=args.dtype == "bf16"):
            loss = step(tokens[:, :-1], tokens[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        times.append(time.perf_counter() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{statistics.median(times[1:]):.4f} s {peak:.0f} MiB")


if __name__ == "__main__":
    main()
