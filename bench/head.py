#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""head.py - a head and its cross-entropy, whole and in pieces, against PyTorch's

  bench/head.py [--builddir DIR] [--python PATH] [--rows N] [--channels N]
                [--vocabulary N] [--pieces 1,4,8] [--threads N] [--rounds N]
                [--steps N]

Forward and backward of a product with the vocabulary and its cross-entropy, f32:
kernels of the cpu backend as programs run them with --loss-pieces, and PyTorch's
linear and cross_entropy, with pieces as a person would write the loop.  The two
take turns as whole processes; a time is the least of --steps, by processor time
over threads, which other load of the machine changes less; memory is by what the
process grew over input, weights and their gradients.  Ratios are to PyTorch's
time and memory with whole logits: medians over rounds.  --python has torch.
"""
import argparse
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def measure(command, args, pieces):
    out = subprocess.run(
        command + [str(args.rows), str(args.channels), str(args.vocabulary),
                   str(pieces), str(args.threads), str(args.steps)],
        check=True, text=True, stdout=subprocess.PIPE).stdout.split()
    return float(out[0]), float(out[1])


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("--builddir", default="build")
    parse.add_argument("--python", default=sys.executable)
    parse.add_argument("--rows", type=int, default=1024)
    parse.add_argument("--channels", type=int, default=768)
    parse.add_argument("--vocabulary", type=int, default=50257)
    parse.add_argument("--pieces", default="1,2,4,8")
    parse.add_argument("--threads", type=int, default=1)
    parse.add_argument("--rounds", type=int, default=3)
    parse.add_argument("--steps", type=int, default=3)
    args = parse.parse_args()
    commands = {
        "PyTorch": [args.python, os.path.join(HERE, "head_pytorch.py")],
        "Merak": [os.path.join(args.builddir, "bench", "head")]}
    runs = {}
    for _ in range(args.rounds):
        whole = None
        for pieces in map(int, args.pieces.split(",")):
            for who, command in commands.items():
                if who == "PyTorch" and pieces not in (1, 4):
                    continue
                took, grew = measure(command, args, pieces)
                whole = whole or (took, grew)
                runs.setdefault((who, pieces), []).append(
                    (took, grew / 1e6, whole[0] / took, grew / whole[1]))
    print("| | pieces | ms | MB | speed | memory |")
    print("| --- " + "| --: " * 5 + "|")
    for (who, pieces), rows in sorted(runs.items()):
        took, grew, speed, memory = map(statistics.median, zip(*rows))
        print(f"| {who} | {pieces} | {1e3 * took:.0f} | {grew:.0f} | "
              f"{speed:.2f} | {memory:.2f} |")


main()
