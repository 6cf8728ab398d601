#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The boxes of bench/boxes.c, sent by PyTorch over gloo, there and back.

    srun -n RANKS boxes_pytorch.py FILE BYTES STORE

FILE has the lines that `boxes` printed; prints "boxes BYTES MICROSECONDS", one
way, the median of as many batches of as many repeats.
"""
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

BATCHES = 9


def main():
    path, total, store = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    me, n = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=me,
                            world_size=n)
    with open(path, encoding="utf-8") as file:
        boxes = [tuple(map(int, line.split()[1:]))
                 for line in file if line.startswith("box ")]
    size = max([at + b for f, _, at, _, b in boxes if f == me] +
               [at + b for _, t, _, at, b in boxes if t == me])
    part = torch.zeros(size // 4)
    lines = part[::16]  # a word of each cache line
    there = [(f, t, part[fa // 4:(fa + b) // 4] if f == me else
              part[ta // 4:(ta + b) // 4])
             for f, t, fa, ta, b in boxes if me in (f, t)]

    def cross(back):
        moves = [(t, f, x) if back else (f, t, x) for f, t, x in there]
        work = [dist.irecv(x, f) for f, t, x in moves if t == me]
        if any(f == me for f, _, _ in moves):
            lines.fill_(1)
        work += [dist.isend(x, t) for f, t, x in moves if f == me]
        for w in work:
            w.wait()

    repeats = max(1, min(400, (24 << 20) // total))
    cross(False)
    cross(True)
    batch = []
    for _ in range(BATCHES):
        dist.barrier()
        start = time.perf_counter()
        for _ in range(repeats):
            cross(False)
            cross(True)
        batch.append((time.perf_counter() - start) / (2 * repeats) * 1e6)
    if me == 0:
        print(f"boxes {total} {statistics.median(batch):.1f}")
    dist.barrier()


main()
