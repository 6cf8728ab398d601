#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""cp_pytorch.py - a llama whose sequences are cut over ranks, bench/cp.sh's peer

PyTorch's own context parallelism has no kernels of CPUs (2.15), so this is by
hand: ranks have a piece of the head and one of the tail, keys and values are
gathered over gloo, their gradients reduce-scattered, those of weights summed.
Each piece's attention is fused and sees the keys up to its end.

  cp_pytorch.py make DIR      a random model as a Hugging Face folder
  cp_pytorch.py train DIR     prints the median seconds a step, the peak
                              resident MiB of a rank and the first loss
"""
import argparse
import json
import os
import resource
import statistics
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama",
          "hidden_size": 512, "intermediate_size": 1408,
          "num_hidden_layers": 4, "num_attention_heads": 8,
          "num_key_value_heads": 2, "vocab_size": 256,
          "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
          "rope_theta": 500000.0, "tie_word_embeddings": False,
          "hidden_act": "silu", "torch_dtype": "float32"}


def shapes():
    width, inner = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    kv = width // CONFIG["num_attention_heads"] * CONFIG["num_key_value_heads"]
    yield "model.embed_tokens.weight", (CONFIG["vocab_size"], width)
    for i in range(CONFIG["num_hidden_layers"]):
        at = f"model.layers.{i}."
        yield at + "input_layernorm.weight", (width,)
        yield at + "self_attn.q_proj.weight", (width, width)
        yield at + "self_attn.k_proj.weight", (kv, width)
        yield at + "self_attn.v_proj.weight", (kv, width)
        yield at + "self_attn.o_proj.weight", (width, width)
        yield at + "post_attention_layernorm.weight", (width,)
        yield at + "mlp.gate_proj.weight", (inner, width)
        yield at + "mlp.up_proj.weight", (inner, width)
        yield at + "mlp.down_proj.weight", (width, inner)
    yield "model.norm.weight", (width,)
    yield "lm_head.weight", (CONFIG["vocab_size"], width)


def make(folder):
    torch.manual_seed(1)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w",
              encoding="utf-8") as file:
        json.dump(CONFIG, file)
    save_file({name: torch.ones(shape) if len(shape) == 1
               else torch.randn(shape) * 0.02 for name, shape in shapes()},
              os.path.join(folder, "model.safetensors"))


class Gather(torch.autograd.Function):
    """All ranks' rows (dim 2), in the order of positions; the sum back."""

    @staticmethod
    def forward(ctx, x, order):
        ctx.back = torch.argsort(order)
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts, 2)[:, :, ctx.back]

    @staticmethod
    def backward(ctx, grad):
        order = torch.argsort(ctx.back)
        parts = [part.contiguous()
                 for part in grad[:, :, order].chunk(dist.get_world_size(), 2)]
        dist.all_reduce(whole := torch.stack(parts))
        return whole[dist.get_rank()], None


class Llama:
    def __init__(self, weights, order, mine):
        self.weights = weights
        self.order, self.mine = order, mine
        self.dim = CONFIG["hidden_size"] // CONFIG["num_attention_heads"]
        half = torch.arange(0, self.dim, 2, dtype=torch.float64) / self.dim
        angle = mine[:, None] * CONFIG["rope_theta"] ** -half
        self.cos = torch.cat([angle.cos()] * 2, 1).float()
        self.sin = torch.cat([angle.sin()] * 2, 1).float()

    def turn(self, x):
        a, b = x.chunk(2, -1)
        return x * self.cos + torch.cat([-b, a], -1) * self.sin

    def heads(self, x, name):
        return (F.linear(x, self.weights[name + ".weight"])
                .view(*x.shape[:2], -1, self.dim).transpose(1, 2))

    def attention(self, x, at):
        q = self.turn(self.heads(x, at + "q_proj"))
        k = Gather.apply(self.turn(self.heads(x, at + "k_proj")), self.order)
        v = Gather.apply(self.heads(x, at + "v_proj"), self.order)
        n = x.shape[1] // 2
        pieces = []
        for i, piece in enumerate(q.split(n, 2)):
            end = int(self.mine[i * n]) + n
            keep = torch.ones(n, end, dtype=torch.bool).tril(end - n)
            pieces.append(F.scaled_dot_product_attention(
                piece, k[:, :, :end], v[:, :, :end], attn_mask=keep,
                enable_gqa=True))
        y = torch.cat(pieces, 2).transpose(1, 2).reshape(x.shape)
        return F.linear(y, self.weights[at + "o_proj.weight"])

    def norm(self, x, name):
        return F.rms_norm(x, x.shape[-1:], self.weights[name + ".weight"],
                          CONFIG["rms_norm_eps"])

    def loss(self, tokens, targets):
        w = self.weights
        x = F.embedding(tokens, w["model.embed_tokens.weight"])
        for i in range(CONFIG["num_hidden_layers"]):
            at = f"model.layers.{i}."
            x = x + self.attention(self.norm(x, at + "input_layernorm"),
                                   at + "self_attn.")
            y = self.norm(x, at + "post_attention_layernorm")
            y = (F.silu(F.linear(y, w[at + "mlp.gate_proj.weight"])) *
                 F.linear(y, w[at + "mlp.up_proj.weight"]))
            x = x + F.linear(y, w[at + "mlp.down_proj.weight"])
        logits = F.linear(self.norm(x, "model.norm"), w["lm_head.weight"])
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(),
                               reduction="sum")


def positions_of(rank, ranks, seq):
    n = seq // (2 * ranks)
    return torch.cat([torch.arange(rank * n, (rank + 1) * n),
                      torch.arange((2 * ranks - 1 - rank) * n,
                                   (2 * ranks - rank) * n)])


def step(model, params, optimizer, text, seq):
    mine = model.mine
    loss = model.loss(text[mine][None], text[mine + 1][None]) / seq
    loss.backward()
    flat = torch.cat([p.grad.flatten() for p in params])
    dist.all_reduce(flat)
    at = 0
    for p in params:
        p.grad.copy_(flat[at:at + p.numel()].view_as(p))
        at += p.numel()
    torch.nn.utils.clip_grad_norm_(params, 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    dist.all_reduce(whole := loss.detach())
    return whole.item()


def run(rank, args):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", str(args.port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    weights = {name: value.requires_grad_() for name, value in load_file(
        os.path.join(args.folder, "model.safetensors")).items()}
    with open(args.text, "rb") as file:
        text = torch.tensor(list(file.read(args.seq + 1)))
    order = torch.cat([positions_of(r, args.ranks, args.seq)
                       for r in range(args.ranks)])
    model = Llama(weights, order,
                  positions_of(rank, args.ranks, args.seq))
    params = list(weights.values())
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in params if p.ndim > 1], "weight_decay": 0.1},
         {"params": [p for p in params if p.ndim == 1], "weight_decay": 0.0}],
        lr=1e-3, betas=(0.9, 0.95), fused=True)
    took, losses = [], []
    for _ in range(args.steps):
        begin = time.monotonic()
        losses.append(step(model, params, optimizer, text, args.seq))
        took.append(time.monotonic() - begin)
    if rank == 0:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{statistics.median(took[1:]):.3f} {peak:.0f} {losses[0]:.6f} "
              f"{losses[-1]:.6f}")
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["make", "train"])
    parser.add_argument("folder")
    parser.add_argument("--text", help="a file of bytes")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seq", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--port", type=int, default=29572)
    args = parser.parse_args()
    if args.what == "make":
        make(args.folder)
    else:
        mp.spawn(run, args=(args,), nprocs=args.ranks)


if __name__ == "__main__":
    main()
