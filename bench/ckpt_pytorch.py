# SPDX-License-Identifier: Apache-2.0
# ckpt_pytorch.py - torch.save and torch.load of as many bytes as
# bench/bench_ckpt.c has, for bench/ckpt.sh
#
#   ckpt_pytorch.py DIR BYTES [ROUNDS]     prints lines "WHAT BEST_S MEDIAN_S"

import os
import statistics
import sys
import time

import torch

directory, size = sys.argv[1], int(sys.argv[2])
rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 7
torch.set_num_threads(1)
tensors = 96
state = {f"t{i}": torch.rand(size // 4 // tensors) for i in range(tensors)}
path = os.path.join(directory, "torch.pt")
times = {"torch_save": [], "torch_load": []}
for _ in range(rounds):
    start = time.monotonic()
    with open(path, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    times["torch_save"].append(time.monotonic() - start)
    start = time.monotonic()
    torch.load(path)
    times["torch_load"].append(time.monotonic() - start)
    os.unlink(path)
for what, values in times.items():
    print(what, f"{min(values):.4f} {statistics.median(values):.4f}")
