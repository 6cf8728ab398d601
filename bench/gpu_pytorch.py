#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""gpu_pytorch.py - what PyTorch gets out of a GPU, for bench/gpu.sh

  gpu_pytorch.py ceilings
  gpu_pytorch.py train --model CONFIG --batch B --seq T [--steps N]
                 [--compile MODE|no] [--weights autocast|bf16]
                 [--attention flash|cudnn|any]
  gpu_pytorch.py losses --model CONFIG --folder DIR --batch B --seq T
                 [--steps N] [--device cuda|cpu]

`ceilings` prints what a copy and products reach.  `losses` writes GPT-2's first
weights into DIR, as Hugging Face has them, and DIR/words, tokens of one batch,
and prints the losses of f32 steps on these.  `train` prints the median
step of GPT-2 (gpt2_pytorch.py) or a Llama with the settings that are fastest:
vocabulary padded to a multiple of 128, fused AdamW, TF32 where f32 is left,
data on the device, nothing read back inside the timed steps.  One line of
JSON each.
"""
import argparse
import contextlib
import json
import os
import statistics
import struct
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


class LlamaBlock(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        width, self.heads = config["hidden_size"], config["num_attention_heads"]
        self.kv, self.dim = config["num_key_value_heads"], config["head_dim"]
        self.eps = config["rms_norm_eps"]
        self.ln_1 = torch.nn.Parameter(torch.ones(width))
        self.ln_2 = torch.nn.Parameter(torch.ones(width))
        linear = lambda i, o: torch.nn.Linear(i, o, bias=False)
        self.qkv = linear(width, (self.heads + 2 * self.kv) * self.dim)
        self.proj = linear(self.heads * self.dim, width)
        self.up = linear(width, 2 * config["intermediate_size"])
        self.down = linear(config["intermediate_size"], width)

    def forward(self, x, cos, sin):
        b, t, c = x.shape
        h = F.rms_norm(x, (c,), self.ln_1, self.eps)
        q, k, v = self.qkv(h).view(b, t, -1, self.dim).split(
            [self.heads, self.kv, self.kv], dim=2)
        turn = lambda y: (y * cos + torch.cat(
            (-y[..., self.dim // 2:], y[..., :self.dim // 2]), -1) * sin
        ).to(v.dtype).transpose(1, 2)
        y = F.scaled_dot_product_attention(
            turn(q), turn(k), v.transpose(1, 2), is_causal=True,
            enable_gqa=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, -1))
        gate, up = self.up(F.rms_norm(x, (c,), self.ln_2, self.eps)).chunk(
            2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Llama(torch.nn.Module):
    """Model and loss in one; the table is the head, too."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.wte = torch.nn.Embedding(config["vocab_size"],
                                      config["hidden_size"])
        torch.nn.init.normal_(self.wte.weight, std=0.02)
        self.blocks = torch.nn.ModuleList(
            LlamaBlock(config) for _ in range(config["num_hidden_layers"]))
        self.ln_f = torch.nn.Parameter(torch.ones(config["hidden_size"]))

    def forward(self, tokens, targets):
        c, x = self.config, self.wte(tokens)
        half = torch.arange(0, c["head_dim"], 2, device=x.device)
        angle = torch.arange(tokens.shape[1], device=x.device)[:, None] \
            / c["rope_theta"] ** (half / c["head_dim"])
        angle = torch.cat((angle, angle), -1)[:, None]
        for block in self.blocks:
            x = block(x, angle.cos(), angle.sin())
        x = F.rms_norm(x, (c["hidden_size"],), self.ln_f, c["rms_norm_eps"])
        logits = F.linear(x, self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(),
                               targets.reshape(-1))


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
    is_llama = config["model_type"] == "llama"
    model = (Llama if is_llama else Padded)(config).to(CUDA)
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
            with torch.no_grad():
                torch._foreach_copy_(list(model.parameters()), masters)
        model.zero_grad(set_to_none=True)

    for _ in range(args.warm_up):
        one()
    torch.cuda.synchronize()
    # what compiling and tuning took is not the step's
    torch.cuda.reset_peak_memory_stats()
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


def hugging_face(model):
    """GPT-2's tensors by the names and in the shapes of Hugging Face."""
    for name, p in model.named_parameters():
        p = p.detach().float().cpu()
        if ".qkv." in name or ".proj." in name or ".fc." in name \
                or ".out." in name:
            p = p.t().contiguous()  # of one dim, too
        for ours, theirs in (("blocks.", "h."), (".qkv.", ".attn.c_attn."),
                             (".proj.", ".attn.c_proj."),
                             (".fc.", ".mlp.c_fc."),
                             (".out.", ".mlp.c_proj.")):
            name = name.replace(ours, theirs)
        yield name, p


def write_folder(folder, config, model, tokens):
    os.makedirs(folder)
    with open(os.path.join(folder, "config.json"), "w",
              encoding="utf-8") as f:
        json.dump(config, f)
    header, data, at = {}, [], 0
    for name, p in hugging_face(model):
        raw = p.numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(p.shape),
                        "data_offsets": [at, at + len(raw)]}
        data.append(raw)
        at += len(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.writelines(data)
    n = tokens.numel()
    with open(os.path.join(folder, "words.bin"), "wb") as f:
        f.write(struct.pack(f"<{n}H", *tokens.tolist()))
    with open(os.path.join(folder, "words.idx"), "wb") as f:
        f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 1, 2))
        f.write(struct.pack("<iqqq", n, 0, 0, 1))


def losses(args):
    with open(args.model, encoding="utf-8") as f:
        config = json.load(f)
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    model = Gpt2(config["vocab_size"], config["n_embd"], config["n_layer"],
                 config["n_head"], config["n_positions"])
    for name, p in model.named_parameters():
        if p.dim() > 1:
            torch.nn.init.normal_(p, std=0.02)
        elif name.endswith("bias"):
            torch.nn.init.normal_(p, std=0.01)
    words = torch.randint(config["vocab_size"], (args.batch * args.seq + 1,))
    write_folder(args.folder, config, model, words)
    model, words = model.to(args.device), words.to(args.device)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1},
         {"params": others, "weight_decay": 0.0}], lr=1e-4, betas=(0.9, 0.95))
    shape = (args.batch, args.seq)
    for _ in range(args.steps):
        loss = model(words[:-1].view(shape), words[1:].view(shape))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(json.dumps({"loss": loss.item()}))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("ceilings", "train", "losses"))
    parser.add_argument("--folder")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--model")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seq", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--warm-up", type=int, default=20)
    parser.add_argument("--compile", default="default")
    parser.add_argument("--weights", choices=("autocast", "bf16"),
                        default="autocast")
    parser.add_argument("--attention", choices=("flash", "cudnn", "any"),
                        default="any")
    args = parser.parse_args()
    if args.what == "losses" and args.device == "cpu":
        losses(args)
        return
    if not torch.cuda.is_available():
        sys.exit("gpu_pytorch.py: PyTorch sees no GPU")
    if args.what == "ceilings":
        ceilings()
    elif args.what == "losses":
        losses(args)
    else:
        train(args)


if __name__ == "__main__":
    main()
