# SPDX-License-Identifier: Apache-2.0
"""torch_groups.py - a program of PyTorch on the groups that Merak placed

    srun -n8 --merak-tp=2 --merak-pp=2 --merak-env=torch python3 torch_groups.py

Makes a process group for each axis as Megatron-LM and torchtitan do, from RANK
and the degrees alone, and trains a two-layer network: its hidden width is split
over the tensor group, samples over the data group.  Every pipeline stage does
the same.  The losses have to be those of one process; exit code 1 if not.
"""
import os
import sys

import torch
import torch.distributed as dist

STEPS, BATCH, WIDTH, HIDDEN = 10, 16, 8, 32


def axes(tp, dp, pp):
    """Ranks of the groups of each axis, in Megatron's order."""
    def rank(t, d, p):
        return t + tp * (d + dp * p)
    return {
        "tp": [[rank(t, d, p) for t in range(tp)]
               for d in range(dp) for p in range(pp)],
        "dp": [[rank(t, d, p) for d in range(dp)]
               for t in range(tp) for p in range(pp)],
        "pp": [[rank(t, d, p) for p in range(pp)]
               for t in range(tp) for d in range(dp)],
    }


def make_groups(degree, me):
    mine = {}
    for axis, groups in axes(**degree).items():
        for ranks in groups:
            group = dist.new_group(ranks)  # all of them, in one order
            if me in ranks:
                mine[axis] = (group, ranks)
    return mine


def data():
    torch.manual_seed(1)
    x = torch.randn(STEPS, BATCH, WIDTH, dtype=torch.float64)
    return x, x.sin().sum(-1, keepdim=True)


def train(tp=1, dp=1, t=0, d=0, tp_group=None, dp_group=None):
    """Losses of the whole batch; the part of one rank, or all by itself."""
    torch.manual_seed(2)
    first = torch.randn(WIDTH, HIDDEN, dtype=torch.float64) / WIDTH ** 0.5
    second = torch.randn(HIDDEN, 1, dtype=torch.float64) / HIDDEN ** 0.5
    own = slice(t * HIDDEN // tp, (t + 1) * HIDDEN // tp)
    a = first[:, own].clone().requires_grad_()
    b = second[own].clone().requires_grad_()
    x, y = data()
    rows = slice(d * BATCH // dp, (d + 1) * BATCH // dp)
    losses = []
    for step in range(STEPS):
        part = torch.tanh(x[step, rows] @ a) @ b
        out = part.detach().clone()
        if tp > 1:
            dist.all_reduce(out, group=tp_group)
        error = out - y[step, rows]
        loss = (error ** 2).sum() / BATCH
        # the sum over the tensor group passes its gradient on as it is
        part.backward(2 * error / BATCH)
        for w in (a, b):
            if dp > 1:
                dist.all_reduce(w.grad, group=dp_group)
            with torch.no_grad():
                w -= 0.1 * w.grad
            w.grad = None
        if dp > 1:
            dist.all_reduce(loss, group=dp_group)
        losses.append(loss.item())
    return losses


def main():
    degree = {axis: int(os.environ[f"MERAK_{axis.upper()}_SIZE"])
              for axis in ("tp", "dp", "pp")}
    dist.init_process_group("gloo")  # "nccl" on GPUs
    me = dist.get_rank()
    groups = make_groups(degree, me)
    for axis, (_, ranks) in groups.items():
        place = int(os.environ[f"MERAK_{axis.upper()}_RANK"])
        if ranks.index(me) != place:
            sys.exit(f"rank {me}: {axis} {ranks.index(me)} by RANK, {place} "
                     "by Merak")
    got = train(degree["tp"], degree["dp"],
                groups["tp"][1].index(me), groups["dp"][1].index(me),
                groups["tp"][0], groups["dp"][0])
    want = train()
    worst = max(abs(g - w) for g, w in zip(got, want))
    if worst > 1e-9:  # sums in another order, of numbers near 1, in fp64
        sys.exit(f"rank {me}: a loss is {worst:g} off")
    print(f"rank {me} of {dist.get_world_size()} on {os.uname().nodename}, "
          f"local {os.environ['LOCAL_RANK']}: "
          + " ".join(f"{a} {r}" for a, (_, r) in groups.items())
          + f", loss {got[0]:.4f} to {got[-1]:.4f}")
    dist.destroy_process_group()


main()
