#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""gpu_pytorch.py - what PyTorch gets out of a GPU, for bench/gpu.sh

  gpu_pytorch.py ceilings
  gpu_pytorch.py train --model CONFIG --batch B --seq T [--steps N]
                 [--compile MODE|no] [--weights autocast|bf16]
                 [--attention flash|cudnn|any]

`ceilings` prints what a copy and products reach.  `train` prints the median
step of GPT-2 (gpt2_pytorch.py) with the settings that are fastest for it:
vocabulary padded to a multiple of 128, fused AdamW, TF32 where f32 is left,
data on the device, nothing read back inside the timed steps.  One line of
JSON each.
"""
import argparse
import contextlib
import json
import statistics
import sys
import time

import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from gpt2_pytorch import Gpt2

CUDA = torch.device("cuda")


def timed(fn, runs):
    """Median seconds, by events on the device."""
    for _ in range(3):
        fn()
    seconds = []
    for _ in range(runs):
        begin = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        begin.record()
        fn()
        end.record()
        end.synchronize()
        seconds.append(begin.elapsed_time(end) * 1e-3)
    return statistics.median(seconds)


def product_rate(n, dtype, runs):
    a = torch.randn(n, n, device=CUDA, dtype=dtype)
    b = torch.randn(n, n, device=CUDA, dtype=dtype)
    return 2 * n ** 3 / timed(lambda: a @ b, runs) / 1e12


def ceilings():
    x = torch.randn(1 << 29, device=CUDA)
    y = torch.empty_like(x)
    copy = 2 * x.numel() * 4 / timed(lambda: y.copy_(x), 10) / 1e9
    del x, y
    torch.backends.cuda.matmul.allow_tf32 = False
    result = {"copy_gb_per_s": copy,
              "bf16_tflops": product_rate(8192, torch.bfloat16, 10),
              "fp32_tflops": product_rate(4096, torch.float32, 5)}
    print(json.dumps(result))


class Padded(torch.nn.Module):
    """Model and loss in one, for the compiler.  The rows that pad the table
    are words that never occur."""

    def __init__(self, config):
        super().__init__()
        self.vocab = config["vocab_size"]
        rows = (self.vocab + 127) // 128 * 128
        self.model = Gpt2(rows, config["n_embd"], config["n_layer"],
                          config["n_head"], config["n_positions"])

    def forward(self, tokens, targets):
        m = self.model
        x = m.wte(tokens) + m.wpe(torch.arange(tokens.shape[1],
                                               device=tokens.device))
        for block in m.blocks:
            x = block(x)
        logits = F.linear(m.ln_f(x), m.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(),
                               targets.reshape(-1))


def attention(name):
    if name == "any":
        return contextlib.nullcontext()
    return sdpa_kernel({"flash": SDPBackend.FLASH_ATTENTION,
                        "cudnn": SDPBackend.CUDNN_ATTENTION}[name])


def train(args):
    with open(args.model, encoding="utf-8") as f:
        config = json.load(f)
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    model = Padded(config).to(CUDA)
    masters = None
    if args.weights == "bf16":
        masters = [p.detach().clone() for p in model.parameters()]
        model.to(torch.bfloat16)
    held = masters if masters is not None else list(model.parameters())
    optimizer = torch.optim.AdamW(held, lr=1e-4, betas=(0.9, 0.95),
                                  weight_decay=0.1, fused=True)
    shape = (args.batch, args.seq + 1)
    tokens = torch.randint(config["vocab_size"], shape, device=CUDA)
    step = model if args.compile == "no" else torch.compile(
        model, mode=args.compile)

    def one():
        with attention(args.attention), torch.autocast(
                "cuda", torch.bfloat16, enabled=args.weights == "autocast"):
            loss = step(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        if masters is not None:
            for master, p in zip(masters, model.parameters()):
                master.grad = p.grad.float()
        torch.nn.utils.clip_grad_norm_(held, 1.0, foreach=True)
        optimizer.step()
        if masters is not None:
            torch._foreach_copy_(list(model.parameters()), masters)
        model.zero_grad(set_to_none=True)

    for _ in range(args.warm_up):
        one()
    torch.cuda.synchronize()
    seconds = []
    for _ in range(args.steps):
        begin = time.perf_counter()
        one()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    median = statistics.median(seconds)
    print(json.dumps({
        "what": "pytorch " + torch.__version__, "compile": args.compile,
        "weights": args.weights, "attention": args.attention,
        "step_s": median, "tokens_per_s": args.batch * args.seq / median,
        "peak_gib": torch.cuda.max_memory_allocated() / 2 ** 30}))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("ceilings", "train"))
    parser.add_argument("--model")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seq", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--warm-up", type=int, default=10)
    parser.add_argument("--compile", default="default")
    parser.add_argument("--weights", choices=("autocast", "bf16"),
                        default="autocast")
    parser.add_argument("--attention", choices=("flash", "cudnn", "any"),
                        default="any")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("gpu_pytorch.py: PyTorch sees no GPU")
    if args.what == "ceilings":
        ceilings()
    else:
        train(args)


if __name__ == "__main__":
    main()
