#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""windows.py - convolutions of the cpu backend against PyTorch's

  bench/windows.py [--builddir DIR] [--dtype DTYPE] [--threads N] [--rounds N]
                   [--repeat N]

Run by a Python that has torch.  For each shape the two take turns, with the same
number of threads; a time is the least of --repeat calls, by processor time over
threads, which other load of the machine changes less, of PyTorch the better of
its two memory formats.  A ratio is PyTorch's time over Merak's, above 1 where
Merak is faster: medians over rounds.  With --dtype bf16 all but gradients of
weights are, in PyTorch these, too.  With several threads PyTorch's time
includes that in which they wait for each other.
"""
import argparse
import os
import statistics
import subprocess
import time

import torch
from torch.nn import grad
from torch.nn import functional

# dims, samples, points a side, channels in and out, size of windows, stride
SHAPES = [(3, 1, 64, 1, 32, 3, 1), (3, 1, 64, 4, 32, 3, 1),
          (3, 1, 32, 32, 64, 3, 1), (3, 1, 16, 64, 128, 3, 1),
          (3, 1, 8, 256, 512, 3, 1), (3, 4, 16, 64, 128, 3, 1),
          (2, 8, 224, 3, 64, 7, 2), (2, 8, 56, 64, 64, 3, 1),
          (2, 8, 56, 64, 128, 3, 2), (2, 8, 14, 256, 256, 3, 1),
          (2, 32, 28, 16, 32, 3, 1), (2, 8, 56, 64, 256, 1, 1)]
CONVOLVE = {2: (functional.conv2d, grad.conv2d_input, grad.conv2d_weight,
                torch.channels_last),
            3: (functional.conv3d, grad.conv3d_input, grad.conv3d_weight,
                torch.channels_last_3d)}


def least(call, repeat):
    times = []
    for _ in range(repeat + 1):
        begin = time.process_time()
        call()
        times.append(time.process_time() - begin)
    return min(times[1:]) / torch.get_num_threads()


def pytorch(shape, dtype, repeat):
    """Seconds of the output, the gradient of the input, of the weights"""
    dims, samples, points, channels, out, size, stride = shape
    convolve, of_input, of_weight, last = CONVOLVE[dims]
    best = [float("inf")] * 3
    for layout in (torch.contiguous_format, last):
        x = torch.randn(samples, channels, *[points] * dims, dtype=dtype)
        w = torch.randn(out, channels, *[size] * dims, dtype=dtype)
        x, w = (v.contiguous(memory_format=layout) for v in (x, w))
        how = {"stride": stride, "padding": (size - 1) // 2}
        dy = torch.randn_like(convolve(x, w, **how))
        dy = dy.contiguous(memory_format=layout)
        times = (least(lambda: convolve(x, w, **how), repeat),
                 least(lambda: of_input(x.shape, w, dy, **how), repeat),
                 least(lambda: of_weight(x, w.shape, dy, **how), repeat))
        best = [min(pair) for pair in zip(best, times)]
    return best


def merak(args, shape):
    command = [os.path.join(args.builddir, "bench", "windows"), args.dtype,
               str(args.threads), str(args.repeat), *map(str, shape)]
    return list(map(float, subprocess.run(
        command, check=True, text=True, stdout=subprocess.PIPE).stdout.split()))


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("--builddir", default="build")
    parse.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parse.add_argument("--threads", type=int, default=1)
    parse.add_argument("--rounds", type=int, default=5)
    parse.add_argument("--repeat", type=int, default=5)
    args = parse.parse_args()
    dtype = torch.bfloat16 if args.dtype == "bf16" else torch.float32
    torch.set_num_threads(args.threads)
    print("| convolution | output GFLOP/s | ratio | input's gradient | ratio "
          "| weights' gradient | ratio |")
    print("| --- " + "| --: " * 6 + "|")
    for shape in SHAPES:
        dims, samples, points, channels, out, size, stride = shape
        flops = 2 * samples * channels * out * size ** dims * (
            (points + stride - 1) // stride) ** dims
        ours, ratio = [], []
        for _ in range(args.rounds):
            peer, own = pytorch(shape, dtype, args.repeat), merak(args, shape)
            ours.append(own)
            ratio.append([p / o for p, o in zip(peer, own)])
        cells = []
        for k in range(3):
            cells += [f"{flops / statistics.median(o[k] for o in ours) / 1e9:.0f}",
                      f"{statistics.median(r[k] for r in ratio):.2f}"]
        print(f"| {samples} x {points}^{dims}, {channels} to {out}, {size}^{dims}"
              f"{f' by {stride}' if stride > 1 else ''} | " +
              " | ".join(cells) + " |", flush=True)


main()
