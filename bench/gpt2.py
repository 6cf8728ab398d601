#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""gpt2.py - GPT-2 training steps against PyTorch, in one run

  bench/gpt2.py [--merak PATH] [--python PATH | --venv DIR] [--isa avx2]
                [--models 124m:256,124m:64,30m:256] [--dtypes fp32,bf16]
                [--rounds N] [--steps N]

Alternates Merak with bench/gpt2_pytorch.py, eager and compiled, as whole
processes with the same number of threads and the C library's allocator told
to keep its memory.  Prints medians, the ratio of Merak to the faster of the
two round by round, and peak memory.

PyTorch is what --python's interpreter has; without it, what pip installs into
the virtual environment --venv, which is made if it is not there.  Compiling
wants a C++ compiler and Python's headers; what is compiled is kept from round
to round.  --isa avx2 narrows both sides to AVX2.
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
NARROW = {
    "merak": {"MERAK_CPU_ISA": "avx2"},
    "pytorch": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2",
                "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
}


def write_tokens(prefix, n):
    """A Megatron .bin/.idx of n random tokens, one document."""
    rng = random.Random(1)
    with open(prefix + ".bin", "wb") as f:
        f.write(struct.pack(f"<{n}H", *(rng.randrange(VOCAB)
                                        for _ in range(n))))
    with open(prefix + ".idx", "wb") as f:
        f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 1, 2))
        f.write(struct.pack("<iqqq", n, 0, 0, 1))


def find_python(args):
    """The interpreter that has PyTorch."""
    if args.python:
        return args.python
    python = os.path.join(args.venv, "bin", "python")
    if not os.path.exists(python):
        subprocess.run([sys.executable, "-m", "venv", args.venv], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "torch",
                        "numpy"], check=True)
    return python


def environment(args, side):
    env = dict(os.environ, OMP_NUM_THREADS=str(args.threads),
               MALLOC_TRIM_THRESHOLD_="-1", MALLOC_MMAP_MAX_="0",
               MALLOC_TOP_PAD_=str(1 << 29))
    env.setdefault("TORCHINDUCTOR_CACHE_DIR",
                   os.path.join(args.folder, "inductor"))
    if args.isa == "avx2":
        env.update(NARROW[side])
    return env


def model_file(model):
    return os.path.join(HERE, f"gpt2-{model}.json")


def run_pytorch(args, model, seq, dtype, compiled):
    out = subprocess.run(
        [args.python, os.path.join(HERE, "gpt2_pytorch.py"),
         "--model", model_file(model), "--batch", str(args.batch),
         "--seq", str(seq), "--steps", str(args.steps),
         "--threads", str(args.threads), "--dtype", dtype]
        + ["--compile"] * compiled,
        env=environment(args, "pytorch"), check=True,
        stdout=subprocess.PIPE, text=True).stdout.split()
    return float(out[0]), float(out[2])


def run_merak(args, model, seq, dtype):
    metrics = os.path.join(args.folder, "metrics.jsonl")
    if os.path.exists(metrics):
        os.remove(metrics)
    with open(os.path.join(args.folder, "log"), "w+", encoding="utf-8") as log:
        child = subprocess.Popen(
            [args.merak, "train", "--model", model_file(model),
             "--data", os.path.join(args.folder, "tokens"),
             "--seq", str(seq), "--micro-batch", str(args.batch),
             "--global-batch", str(args.batch),
             "--steps", str(args.steps + 1), "--eval-samples", "0",
             "--lr", "1e-4", "--clip", "1", "--threads", str(args.threads),
             "--dtype", dtype, "--metrics", metrics],
            env=environment(args, "merak"), stderr=log)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = 0 # reaped
        if status != 0:
            log.seek(0)
            sys.exit(f"{args.merak} failed:\n{log.read()}")
    with open(metrics, encoding="ascii") as f:
        times = [json.loads(line)["step_s"] for line in f]
    return statistics.median(times[1:]), usage.ru_maxrss / 1024


def compare(args, model, seq, dtype):
    ours, eager, compiled = [], [], []
    for _ in range(args.rounds):
        ours.append(run_merak(args, model, seq, dtype))
        eager.append(run_pytorch(args, model, seq, dtype, False))
        compiled.append(run_pytorch(args, model, seq, dtype, True))
    rates = [args.batch * seq / statistics.median(run[0] for run in runs)
             for runs in (ours, eager, compiled)]
    ratios = sorted(min(e[0], c[0]) / o[0]
                    for o, e, c in zip(ours, eager, compiled))
    peaks = [max(run[1] for run in runs) for runs in (ours, eager, compiled)]
    print(f"{model:5} {seq:5}  {dtype:5}", *(f"{r:8.1f}" for r in rates),
          f"  {statistics.median(ratios):.2f} ({ratios[0]:.2f}.."
          f"{ratios[-1]:.2f})  ", *(f"{p:8.0f}" for p in peaks), flush=True)


def main():
    cache = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
    parser = argparse.ArgumentParser()
    parser.add_argument("--merak", default="merak")
    parser.add_argument("--python", help="an interpreter that has PyTorch")
    parser.add_argument("--venv",
                        default=os.path.join(cache, "merak-bench-pytorch"))
    parser.add_argument("--isa", choices=("native", "avx2"), default="native")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--models", default="124m:256,124m:64,30m:256",
                        help="MODEL:T,...; MODEL is of gpt2-MODEL.json here")
    parser.add_argument("--dtypes", default="fp32,bf16")
    args = parser.parse_args()

    args.python = find_python(args)
    version = subprocess.run(
        [args.python, "-c", "import torch; print(torch.__version__)"],
        check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    print(f"GPT-2, B={args.batch}, {args.threads} threads, instructions "
          f"{args.isa}, PyTorch {version}: medians of {args.rounds} "
          f"alternating runs of {args.steps} steps")
    print("                    tokens/s                     ratio to the"
          "          peak MiB")
    print("model     T  dtype    Merak    eager compiled   faster (min..max)"
          "     Merak    eager compiled")
    with tempfile.TemporaryDirectory() as args.folder:
        write_tokens(os.path.join(args.folder, "tokens"), 200000)
        for row in args.models.split(","):
            model, seq = row.split(":")
            for dtype in args.dtypes.split(","):
                compare(args, model, int(seq), dtype)


if __name__ == "__main__":
    main()
