#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""experts_pytorch.py - the peer of experts.py: steps of transformers' model

Prints tokens a second of all ranks, the most bytes that one had, and the
seconds of processor time that it took for a step.
"""
import argparse
import json
import os
import resource
import statistics
import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM


def train(rank, args, out):
    torch.set_num_threads(args.threads)
    with open(args.model, encoding="utf-8") as f:
        config = AutoConfig.for_model(**json.load(f))
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        config, attn_implementation="sdpa", experts_implementation="eager")
    model.train()
    if args.ranks > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(args.port))
        torch.distributed.init_process_group("gloo", rank=rank,
                                             world_size=args.ranks)
        model = torch.nn.parallel.DistributedDataParallel(model)
    adam = torch.optim.AdamW(model.parameters(), lr=3e-4)
    rows = args.batch // args.ranks
    took, busy = [], []
    for _ in range(args.steps):
        ids = torch.randint(0, config.vocab_size, (rows, args.seq))
        begin, worked = time.perf_counter(), time.process_time()
        adam.zero_grad()
        model(ids, labels=ids).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        took.append(time.perf_counter() - begin)
        busy.append(time.process_time() - worked)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    out.put((statistics.median(took[args.skip:]), peak,
             statistics.median(busy[args.skip:])))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model")
    p.add_argument("--port", type=int, default=29517)
    for name in ("ranks", "seq", "batch", "steps", "skip", "threads"):
        p.add_argument("--" + name, type=int)
    args = p.parse_args()
    spawn = torch.multiprocessing.get_context("spawn")
    out = spawn.SimpleQueue()
    ranks = [spawn.Process(target=train, args=(r, args, out))
             for r in range(args.ranks)]
    for r in ranks:
        r.start()
    results = [out.get() for _ in ranks]
    for r in ranks:
        r.join()
    print(args.batch * args.seq / max(x[0] for x in results),
          max(x[1] for x in results), max(x[2] for x in results))


if __name__ == "__main__":
    main()
