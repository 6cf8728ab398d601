#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""gpt2.py - GPT-2 124M training steps against PyTorch, in one run

  bench/gpt2.py [--merak PATH] [--rounds N] [--dtypes fp32,bf16]

Alternates Merak and bench/gpt2_pytorch.py as whole processes, both with two
threads, the C library's allocator told to keep its memory, and OpenBLAS's
core type set; PyTorch gets Debian's OpenMP build of OpenBLAS where that is
installed, with which it is 1.4 times as fast as with the default one.  Prints
medians, the ratio pair by pair, and peak memory.
"""
import argparse
import json
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
VOCAB = 50257


def write_tokens(prefix, n):
    """A Megatron .bin/.idx of n random tokens, one document."""
    rng = random.Random(1)
    with open(prefix + ".bin", "wb") as f:
        f.write(struct.pack(f"<{n}H", *(rng.randrange(VOCAB)
                                        for _ in range(n))))
    with open(prefix + ".idx", "wb") as f:
        f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 1, 2))
        f.write(struct.pack("<iqqq", n, 0, 0, 1))


def tuned_environment(threads):
    env = dict(os.environ, OMP_NUM_THREADS=str(threads),
               MALLOC_TRIM_THRESHOLD_="-1", MALLOC_MMAP_MAX_="0",
               MALLOC_TOP_PAD_=str(1 << 29))
    with open("/proc/cpuinfo", encoding="ascii") as f:
        if "avx512bw" in f.read():
            env["OPENBLAS_CORETYPE"] = "SkylakeX"
    return env


# PyTorch has OpenMP threads of its own: the other build adds a second pool.
OPENBLAS_OPENMP = "/usr/lib/x86_64-linux-gnu/openblas-openmp"


def run_pytorch(args, dtype):
    env = tuned_environment(args.threads)
    if os.path.isdir(OPENBLAS_OPENMP):
        env["LD_LIBRARY_PATH"] = OPENBLAS_OPENMP
    out = subprocess.run(
        ["/usr/bin/python3", os.path.join(HERE, "gpt2_pytorch.py"),
         "--batch", str(args.batch), "--seq", str(args.seq),
         "--steps", str(args.steps), "--threads", str(args.threads),
         "--dtype", dtype], env=env, check=True,
        capture_output=True, text=True).stdout.split()
    return float(out[0]), float(out[2])


def run_merak(args, dtype, folder):
    metrics = os.path.join(folder, "metrics.jsonl")
    if os.path.exists(metrics):
        os.remove(metrics)
    child = subprocess.Popen(
        [args.merak, "train", "--model",
         os.path.join(HERE, "gpt2-124m.json"),
         "--data", os.path.join(folder, "tokens"), "--seq", str(args.seq),
         "--micro-batch", str(args.batch), "--global-batch", str(args.batch),
         "--steps", str(args.steps + 1), "--eval-samples", "0",
         "--lr", "1e-4", "--clip", "1", "--threads", str(args.threads),
         "--dtype", dtype, "--metrics", metrics],
        stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = 0 # reaped
    if status != 0:
        sys.exit(f"{args.merak} failed")
    with open(metrics, encoding="ascii") as f:
        times = [json.loads(line)["step_s"] for line in f]
    return statistics.median(times[1:]), usage.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--merak", default="merak")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtypes", default="fp32,bf16")
    args = parser.parse_args()

    tokens = args.batch * args.seq
    print(f"GPT-2 124M, B={args.batch}, T={args.seq}, {args.threads} threads, "
          f"medians of {args.rounds} alternating runs of {args.steps} steps")
    print("dtype  Merak tok/s  PyTorch tok/s  ratio (min..max)   "
          "Merak MiB  PyTorch MiB")
    with tempfile.TemporaryDirectory() as folder:
        write_tokens(os.path.join(folder, "tokens"), 200000)
        for dtype in args.dtypes.split(","):
            ours, theirs = [], []
            for _ in range(args.rounds):
                ours.append(run_merak(args, dtype, folder))
                theirs.append(run_pytorch(args, dtype))
            ratios = sorted(t[0] / o[0] for o, t in zip(ours, theirs))
            print(f"{dtype:5}  "
                  f"{tokens / statistics.median(o[0] for o in ours):11.1f}  "
                  f"{tokens / statistics.median(t[0] for t in theirs):13.1f}  "
                  f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}.."
                  f"{ratios[-1]:.2f})   "
                  f"{max(o[1] for o in ours):11.0f}  "
                  f"{max(t[1] for t in theirs):11.0f}", flush=True)


if __name__ == "__main__":
    main()
