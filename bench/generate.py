#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""generate.py - generated tokens a second against transformers, in one run

  bench/generate.py [--merak PATH] --python PATH [--prompts 8,512]
                    [--tokens N] [--dtypes fp32,bf16] [--rounds N]

GPT-2 124M with weights at random, which --python's transformers makes: one
folder, read by both.  Greedy, one sequence, keys and values kept.  Merak
alternates with bench/generate_pytorch.py, as whole processes with the same
number of threads.  A rate is of the tokens behind the first, so neither
loading nor the prompt is in it; the peer's is the better of transformers'
generate() and of a loop that calls the model itself.  Prints medians, the
ratio to that peer round by round, and whether the tokens are the same.
"""
import argparse
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PEER = os.path.join(HERE, "generate_pytorch.py")
VOCAB = 50257


def environment(args):
    return dict(os.environ, OMP_NUM_THREADS=str(args.threads),
                TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1")


def make_model(args):
    subprocess.run([args.python, PEER, "--make", args.folder], check=True,
                   env=environment(args))


def run_merak(args, prompt, dtype):
    done = subprocess.run(
        [args.merak, "generate", "--ckpt", args.folder, "--ids",
         "--prompt", prompt, "--tokens", str(args.tokens), "--ignore-eod",
         "--threads", str(args.threads), "--dtype", dtype],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(args), check=False)
    rate = re.search(r"([0-9.]+) a second", done.stderr)
    if done.returncode != 0 or rate is None:
        sys.exit(f"{args.merak} failed:\n{done.stderr}")
    return float(rate.group(1)), done.stdout.split()


def run_pytorch(args, prompt, dtype):
    """Rates of generate() and of the loop, and the ids."""
    out = subprocess.run(
        [args.python, PEER, "--model", args.folder, "--prompt", prompt,
         "--tokens", str(args.tokens), "--threads", str(args.threads),
         "--dtype", dtype],
        stdout=subprocess.PIPE, text=True, env=environment(args),
        check=True).stdout.split()
    return float(out[0]), float(out[1]), out[2:]


def same_tokens(ours, theirs):
    n = 0
    while n < len(theirs) and n < len(ours) and ours[n] == theirs[n]:
        n += 1
    return n


def compare(args, length, dtype):
    rng = random.Random(length)
    prompt = " ".join(str(rng.randrange(VOCAB)) for _ in range(length))
    ours, library, loop = [], [], []
    same = args.tokens
    for _ in range(args.rounds):
        rate, ids = run_merak(args, prompt, dtype)
        ours.append(rate)
        rate, other, theirs = run_pytorch(args, prompt, dtype)
        library.append(rate)
        loop.append(other)
        same = min(same, same_tokens(ids, theirs))
    ratios = sorted(o / max(a, b) for o, a, b in zip(ours, library, loop))
    print(f"{length:6} {args.tokens:6}  {dtype:5}",
          *(f"{statistics.median(r):10.2f}" for r in (ours, library, loop)),
          f"  {statistics.median(ratios):.2f} ({ratios[0]:.2f}.."
          f"{ratios[-1]:.2f})  {same}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--merak", default="merak")
    parser.add_argument("--python", default=sys.executable,
                        help="an interpreter that has transformers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompts", default="8,512", help="tokens of them")
    parser.add_argument("--dtypes", default="fp32")
    args = parser.parse_args()

    version = subprocess.run(
        [args.python, "-c", "import torch, transformers as t; "
         "print(torch.__version__, 'transformers', t.__version__)"],
        check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    print(f"GPT-2 124M, {args.threads} threads, PyTorch {version}: medians "
          f"of {args.rounds} alternating runs")
    print("                          tokens/s                   ratio to the "
          "        same")
    print("prompt tokens  dtype      Merak   generate       loop   faster "
          "(min..max)  tokens")
    with tempfile.TemporaryDirectory() as args.folder:
        make_model(args)
        for length in args.prompts.split(","):
            for dtype in args.dtypes.split(","):
                compare(args, int(length), dtype)


if __name__ == "__main__":
    main()
