#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""t5.py - a training step of T5-small against transformers, in one run

  bench/t5.py --program PATH [--steps N] [--rounds N] [--threads N]

Run by a Python that has transformers.  PATH is examples/t5 as built.  8 texts of
256 tokens in and 64 out, at random, in fp32, with dropout; a step is forward,
backward and AdamW in both.  Merak alternates with transformers' eager model, as
whole processes with the same number of threads; a step's time is the median
behind the first two.  Prints both, and the ratios round by round; also those of
processor time, which other load of the machine changes less: Merak's is what a
process takes beyond one of the first two steps alone.  Memory is the most that
a process had.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import numpy

BATCH, SOURCE, TARGET, VOCABULARY, SKIP = 8, 256, 64, 32128, 2


def peer(args):
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    model = T5ForConditionalGeneration(T5Config(
        vocab_size=VOCABULARY, d_model=512, d_kv=64, d_ff=2048, num_layers=6,
        num_heads=8, feed_forward_proj="relu", decoder_start_token_id=0))
    model.train()
    adam = torch.optim.AdamW(model.parameters(), lr=3e-4)
    took, busy = [], []
    for _ in range(args.steps):
        ids = torch.randint(1, VOCABULARY, (BATCH, SOURCE))
        labels = torch.randint(1, VOCABULARY, (BATCH, TARGET))
        begin, worked = time.perf_counter(), time.process_time()
        adam.zero_grad()
        model(input_ids=ids, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        took.append(time.perf_counter() - begin)
        busy.append(time.process_time() - worked)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(statistics.median(took[SKIP:]), peak, statistics.median(busy[SKIP:]))


def write_data(folder):
    rng = numpy.random.default_rng(0)
    n = 40 * BATCH
    labels = rng.integers(1, VOCABULARY, (n, TARGET), dtype=numpy.int32)
    decoder = numpy.zeros_like(labels)
    decoder[:, 1:] = labels[:, :-1]
    arrays = {"labels": labels, "decoder": decoder,
              "source": rng.integers(1, VOCABULARY, (n, SOURCE),
                                     dtype=numpy.int32),
              "lengths": numpy.full(n, SOURCE, dtype=numpy.int32)}
    for name, array in arrays.items():
        numpy.save(os.path.join(folder, name + ".npy"), array)
    path = os.path.join(folder, "data.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump({name: name + ".npy" for name in arrays}, f)
    return path


def train(args, steps):
    """Seconds of processor time"""
    metrics = os.path.join(args.folder, "metrics.jsonl")
    if os.path.exists(metrics):
        os.remove(metrics)
    command = [args.program, "small", str(SOURCE), "--data", args.data,
               "--seq", str(TARGET), "--global-batch", str(BATCH),
               "--micro-batch", str(BATCH), "--steps", str(steps),
               "--dtype", "fp32", "--valid-fraction", "0",
               "--threads", str(args.threads), "--metrics", metrics]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}")
    return (after.ru_utime - before.ru_utime + after.ru_stime -
            before.ru_stime)


def run_merak(args):
    busy = -train(args, SKIP) + train(args, args.steps)
    with open(os.path.join(args.folder, "metrics.jsonl"),
              encoding="utf-8") as f:
        steps = [json.loads(line) for line in f]
    return (statistics.median(s["step_s"] for s in steps[SKIP:]),
            max(s["memory_peak_bytes"] for s in steps),
            busy / (args.steps - SKIP))


def run_peer(args):
    out = subprocess.run([sys.executable, __file__, "--peer", "--steps",
                          str(args.steps), "--threads", str(args.threads)],
                         stdout=subprocess.PIPE, text=True, check=True,
                         env=dict(os.environ, HF_HUB_OFFLINE="1",
                                  OMP_NUM_THREADS=str(args.threads)))
    return tuple(float(x) for x in out.stdout.split())


def compare(args):
    rounds = [(run_merak(args), run_peer(args)) for _ in range(args.rounds)]
    for i, what in enumerate(("seconds a step", "bytes of the process",
                              "processor seconds a step")):
        ratios = ", ".join(f"{b[i] / a[i]:.2f}" for a, b in rounds)
        print(f"{what}: Merak {statistics.median(a[i] for a, _ in rounds):.4g}"
              f", transformers {statistics.median(b[i] for _, b in rounds):.4g}"
              f"; transformers / Merak {ratios}", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--program", default="t5")
    p.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    for name, value in (("steps", 6), ("rounds", 3), ("threads", 2)):
        p.add_argument("--" + name, type=int, default=value)
    args = p.parse_args()
    if args.peer:
        peer(args)
        return
    with tempfile.TemporaryDirectory() as folder:
        args.folder = folder
        args.data = write_data(folder)
        compare(args)


if __name__ == "__main__":
    main()
