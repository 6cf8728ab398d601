#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""head_pytorch.py - a head and its cross-entropy in PyTorch, for head.py

    head_pytorch.py ROWS CHANNELS VOCABULARY PIECES THREADS STEPS

Prints the least seconds of forward and backward, of processor time over
threads, and by how many bytes the
process grew over input, weights and their gradients.
"""

import resource
import sys
import time

import torch
import torch.nn.functional as F


def step(x, w, targets, pieces):
    """Gradients of both; with pieces, as a person would write it: forward and
    backward of one after the other, so that no two have logits."""
    n = x.shape[0]
    loss = 0.0
    for at in range(0, n, n // pieces):
        rows = slice(at, at + n // pieces)
        part = F.cross_entropy(x[rows] @ w.T, targets[rows],
                               reduction="sum") / n
        part.backward()
        loss += part.item()
    return loss


def main():
    rows, channels, vocabulary, pieces, threads, steps = map(int, sys.argv[1:])
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    x = torch.randn(rows, channels, requires_grad=True)
    w = (0.02 * torch.randn(vocabulary, channels)).requires_grad_()
    targets = torch.randint(0, vocabulary, (rows,))
    x.grad = torch.ones_like(x)
    w.grad = torch.ones_like(w)
    # what products of a few rows need, so that it does not count
    step(x[:8].detach().requires_grad_(), w, targets[:8], 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    least = float("inf")
    for _ in range(steps):
        begin = time.process_time()
        step(x, w, targets, pieces)
        least = min(least, (time.process_time() - begin) / threads)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{least:.6f} {(after - before) * 1024}")


if __name__ == "__main__":
    main()
