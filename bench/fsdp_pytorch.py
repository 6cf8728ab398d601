#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""fsdp_pytorch.py - GPT-2 training steps by FSDP2 over gloo, bench/fsdp.sh's peer

Prints one line: median seconds a step of rank 0, and the peak resident MiB of
the rank with the most, less that of a rank that has loaded all and made no
model.  Each block is a unit of fully_shard(), and so is the rest; gradients are
clipped to norm 1, AdamW is fused.  Of several micro-batches gradients are
summed over ranks each time.
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
from torch.distributed.fsdp import fully_shard

from gpt2_pytorch import Gpt2


def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run(rank, args):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", str(args.port))
    torch.set_num_threads(args.threads)
    dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    torch.manual_seed(1)
    dist.all_reduce(torch.ones(1))
    empty = peak_mib()
    with open(args.model, encoding="utf-8") as f:
        config = json.load(f)
    with torch.device("meta"):
        model = Gpt2(config["vocab_size"], config["n_embd"], config["n_layer"],
                     config["n_head"], config["n_positions"])
    mesh = dist.device_mesh.init_device_mesh("cpu", (args.ranks,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to_empty(device="cpu")
    for param in model.parameters():
        torch.nn.init.normal_(param, std=0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    data = torch.Generator().manual_seed(rank)
    took = []
    for _ in range(args.steps):
        begin = time.monotonic()
        for _ in range(args.micro_batches):
            tokens = torch.randint(config["vocab_size"],
                                   (args.batch, args.seq + 1), generator=data)
            model(tokens[:, :-1], tokens[:, 1:]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        took.append(time.monotonic() - begin)
    most = torch.tensor([peak_mib() - empty])
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    if rank == 0:
        print(f"{statistics.median(took[1:]):.4f} {most.item():.0f}")
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True, help="a config.json")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--micro-batches", type=int, default=1)
    parser.add_argument("--seq", type=int, default=256)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--port", type=int, default=29571)
    args = parser.parse_args()
    mp.spawn(run, args=(args,), nprocs=args.ranks)


if __name__ == "__main__":
    main()
