#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""parity.py - hold one training run against another

  parity.py near REF RUN [REF RUN]... [--loss R] [--first R] [--last R]
  parity.py equal REF RUN [REF RUN]...
  parity.py bf16 FP32 REF RUN     (prefixes: one run a seed)

A run is a directory with metrics.jsonl and, where the run wrote them,
grads/step-N/master.h5 (gradients of its first and last step) and
ckpt/step-N/master.h5.

near:  loss, losses of routers and pre-clip gradient norm of every step within
       --loss relative (1e-5); every parameter's gradient within --first (1e-5) at the first
       and --last (1e-4) at the last step, as the norm of the difference over
       the norm of the reference.
equal: losses, norms, gradients and final weights bit for bit.
bf16:  RUN (bf16) is no further from REF (bf16, one rank) than twice REF's
       distance to FP32: medians over the seeds of the root mean squares of
       the losses of every step, and of the parameters' gradients at the
       first and last.
"""
import argparse
import glob
import json
import math
import os
import statistics
import sys

import h5py
import numpy as np


def metrics(run):
    with open(os.path.join(run, "metrics.jsonl"), encoding="ascii") as lines:
        return [json.loads(line) for line in lines]


def tensors(master):
    found = {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset):
            found[name] = item[()]

    with h5py.File(master, "r") as f:
        f.visititems(visit)
    return found


def masters(run, kind):
    paths = glob.glob(os.path.join(run, kind, "step-*", "master.h5"))
    return sorted(paths)


def fail(text):
    print(text)
    sys.exit(1)


def relative(a, b):
    scale = max(abs(a), 1e-300)
    return abs(a - b) / scale


def distance(a, b):
    norm = np.linalg.norm(a.astype(np.float64).ravel())
    diff = np.linalg.norm((a.astype(np.float64) - b).ravel())
    if norm == 0:
        return diff
    return diff / norm


def steps_of(ref, run):
    a, b = metrics(ref), metrics(run)
    if len(a) != len(b) or not a:
        fail(f"{len(a)} steps in {ref}, {len(b)} in {run}")
    return zip(a, b)


def gradient_pairs(ref, run):
    a, b = masters(ref, "grads"), masters(run, "grads")
    if len(a) != len(b) or not a:
        fail(f"gradients: {len(a)} dumps in {ref}, {len(b)} in {run}")
    for pa, pb in zip(a, b):
        ta, tb = tensors(pa), tensors(pb)
        if sorted(ta) != sorted(tb):
            fail(f"{pa} and {pb} hold different tensors")
        yield pa, ta, tb


def near(args, ref, run):
    worst = 0.0
    for a, b in steps_of(ref, run):
        for what in ("loss", "grad_norm", "aux", "z"):
            if what not in a:
                continue
            off = relative(a[what], b[what])
            worst = max(worst, off)
            if not off <= args.loss:
                fail(f"step {a['step']}: {what} {b[what]} against {a[what]}, "
                     f"off by {off:.2e}, allowed {args.loss:.0e}")
    limits = [args.first, args.last]
    worst_grads = []
    for (path, a, b), limit in zip(gradient_pairs(ref, run), limits):
        worst_grads.append(0.0)
        for name in a:
            off = distance(a[name], b[name])
            worst_grads[-1] = max(worst_grads[-1], off)
            if not off <= limit:
                fail(f"{path} {name}: gradient off by {off:.2e}, allowed "
                     f"{limit:.0e}")
    print(f"loss and norm within {worst:.1e}, gradients within "
          + ", ".join(f"{w:.1e}" for w in worst_grads))


def equal(_, ref, run):
    for a, b in steps_of(ref, run):
        for what in ("loss", "grad_norm"):
            if a[what] != b[what]:
                fail(f"step {a['step']}: {what} {b[what]!r} is not "
                     f"{a[what]!r}")
    compared = 0
    for kind in ("grads", "ckpt"):
        a, b = masters(ref, kind), masters(run, kind)
        if kind == "ckpt":
            a, b = a[-1:], b[-1:]
        if len(a) != len(b):
            fail(f"{kind}: {len(a)} in {ref}, {len(b)} in {run}")
        for pa, pb in zip(a, b):
            ta, tb = tensors(pa), tensors(pb)
            if sorted(ta) != sorted(tb):
                fail(f"{pa} and {pb} hold different tensors")
            for name in ta:
                compared += 1
                if ta[name].tobytes() != tb[name].tobytes():
                    fail(f"{pb} {name} differs from {pa}")
    if compared == 0:
        fail("nothing to compare")
    print(f"{compared} tensors equal")


def rms(values):
    values = list(values)
    return math.sqrt(sum(v * v for v in values) / len(values))


def runs_of(prefix):
    found = sorted(glob.glob(prefix + "*"))
    if not found:
        fail(f"no run is named {prefix}*")
    return found


def each_pair(args):
    if len(args.runs) % 2 != 0:
        fail(f"a reference and a run each, got {len(args.runs)}")
    for ref, run in zip(args.runs[::2], args.runs[1::2]):
        args.hold(args, ref, run)


def bf16(args):
    seeds = list(zip(runs_of(args.fp32), runs_of(args.ref),
                     runs_of(args.run)))
    losses, grads = [[], []], [[], []]
    for fp32, ref, run in seeds:
        for k, (x, y) in enumerate(((fp32, ref), (ref, run))):
            losses[k].append(rms(b["loss"] - a["loss"]
                                 for a, b in steps_of(x, y)))
            grads[k].append(rms(distance(a[n], b[n])
                                for _, a, b in gradient_pairs(x, y)
                                for n in a))
    own, off = (statistics.median(k) for k in losses)
    own_grads, off_grads = (statistics.median(k) for k in grads)
    print(f"{len(seeds)} seeds: loss {off:.1e} (own {own:.1e}), gradients "
          f"{off_grads:.1e} (own {own_grads:.1e})")
    if not off <= 2 * own or not off_grads <= 2 * own_grads:
        fail(f"{args.run}* are further from {args.ref}* than twice these are "
             f"from {args.fp32}*")


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    cmd = commands.add_parser("near")
    cmd.add_argument("runs", nargs="+")
    cmd.add_argument("--loss", type=float, default=1e-5)
    cmd.add_argument("--first", type=float, default=1e-5)
    cmd.add_argument("--last", type=float, default=1e-4)
    cmd.set_defaults(call=each_pair, hold=near)
    cmd = commands.add_parser("equal")
    cmd.add_argument("runs", nargs="+")
    cmd.set_defaults(call=each_pair, hold=equal)
    cmd = commands.add_parser("bf16")
    cmd.add_argument("fp32")
    cmd.add_argument("ref")
    cmd.add_argument("run")
    cmd.set_defaults(call=bf16)
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
