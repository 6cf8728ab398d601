#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""gpt2_pytorch.py - GPT-2 124M training steps in PyTorch, the peer of
bench/gpt2.sh

Prints one line: median seconds a step and peak resident MiB.  The model is
GPT-2 small (Radford et al. 2019) with tied embeddings, no dropout, AdamW on
all parameters, gradients clipped to norm 1; bf16 is autocast.
"""
import argparse
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

    def attention(self, x, mask):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, c // self.heads)
                   .transpose(1, 2) for part in self.qkv(x).split(c, dim=2))
        scores = q @ k.transpose(2, 3) * (c // self.heads) ** -0.5
        scores = scores.masked_fill(mask, float("-inf")).softmax(dim=-1)
        return self.proj((scores @ v).transpose(1, 2).reshape(b, t, c))

    def forward(self, x, mask):
        x = x + self.attention(self.ln_1(x), mask)
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
        t = tokens.shape[1]
        mask = torch.ones(t, t, dtype=torch.bool).triu(1)
        x = self.wte(tokens) + self.wpe(torch.arange(t))
        for block in self.blocks:
            x = block(x, mask)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(),
                               targets.reshape(-1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=256)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    model = Gpt2(50257, 768, 12, 12, 1024)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(50257, (args.batch, args.seq + 1))
    times = []
    for _ in range(args.steps + 1):
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16,
                            enabled=args.dtype == "bf16"):
            loss = model(tokens[:, :-1], tokens[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        times.append(time.perf_counter() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{statistics.median(times[1:]):.4f} s {peak:.0f} MiB")


if __name__ == "__main__":
    main()
