#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Give what `merak plan --emit` printed to the trainer's own argument checks.

check_emitted.py megatron|torchtitan|deepspeed DIR

DIR has a file for each plan, named by its ranks and a number, "16.42".  Needs the
trainer's modules (Megatron-LM: a clone in PYTHONPATH) and PyTorch, no GPU.  Prints
a line for each refused plan and how many were taken; exits 1 if any was refused,
77 if the trainer is not to be had.
"""
import contextlib
import io
import json
import logging
import os
import re
import sys
import types
import typing
import warnings

logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")


def words(text):
    return [w for line in text.splitlines() if not line.startswith("#")
            for w in line.split()]


def megatron():
    """Arguments, and the transformer's configuration, as for an H100."""
    import torch
    import typing_extensions

    if not hasattr(typing, "override"):  # Python 3.11
        typing.override = typing_extensions.override
    from megatron.core import num_microbatches_calculator as microbatches
    from megatron.training import arguments

    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 8
    torch.cuda.get_device_capability = lambda *_, **__: (9, 0)
    torch.cuda.get_device_properties = \
        lambda *_, **__: types.SimpleNamespace(major=9, minor=0)

    def check(text, ranks):
        queues = re.search(r"CUDA_DEVICE_MAX_CONNECTIONS=(\d+)", text)
        os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
        if queues:
            os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = queues[1]
        os.environ.update(WORLD_SIZE=str(ranks), RANK="0")
        # What the plan does not decide; rope fusion needs another package.
        sys.argv = ["train", *words(text), "--lr", "1e-4", "--train-iters", "10",
                    "--mock-data", "--tokenizer-type", "NullTokenizer",
                    "--no-rope-fusion"]
        args = arguments.parse_args()
        arguments.validate_args(args)
        with contextlib.suppress(Exception):
            microbatches.destroy_num_microbatches_calculator()
        microbatches.init_num_microbatches_calculator(
            0, args.rampup_batch_size, args.global_batch_size,
            args.micro_batch_size, args.data_parallel_size)
        arguments.core_transformer_config_from_args(args)

    return check


def torchtitan():
    """Options, degrees, parts of the model and the schedule that runs them."""
    from torch.distributed.pipelining.schedules import (
        PipelineScheduleMulti, ScheduleZBVZeroBubble, get_schedule_class)
    from torchtitan.config.manager import ConfigManager
    from torchtitan.distributed.parallel_dims import ParallelDims

    def stage(index, stages, pp):
        return types.SimpleNamespace(
            num_stages=stages, stage_index=index, group_size=pp, group_rank=0,
            is_first=index == 0, is_last=False, has_backward=True, group=None,
            stage_index_to_group_rank=None, device="cpu", submod=None)

    def check_schedule(config, pp):
        p = config.parallelism
        kind = get_schedule_class(p.pipeline_parallel_schedule)
        n = config.training.local_batch_size // p.pipeline_parallel_microbatch_size
        parts = (len(p.module_fqns_per_model_part)
                 if p.module_fqns_per_model_part is not None
                 else pp * (2 if issubclass(kind, PipelineScheduleMulti) else 1))
        own = range(0, parts, pp)
        if kind is ScheduleZBVZeroBubble:
            own = [0, parts - 1]
        own = [stage(i, parts, pp) for i in own]
        options = {"n_microbatches": n, "loss_fn": lambda *_: 0,
                   "scale_grads": False}
        if issubclass(kind, PipelineScheduleMulti):
            assert len(own) > 1, "one part a rank"
            kind(own, **options)
        else:
            assert len(own) == 1, "several parts a rank"
            kind(own[0], **options)
            assert kind.__name__ != "Schedule1F1B" or n >= pp, "too few"

    def check(text, ranks):
        config = ConfigManager().parse_args(
            ["--module", "llama3", "--config", "llama3_debugmodel", *words(text)])
        p, t = config.parallelism, config.training
        d = ParallelDims.from_config(p, ranks)
        # As torchtitan.trainer.Trainer, which needs all of its processes.
        cuts = (d.tp if p.enable_sequence_parallel else 1) * (
            2 * d.cp if d.cp > 1 else 1)
        assert t.seq_len % cuts == 0, f"seq_len is no multiple of {cuts}"
        replicas = d.dp_replicate * d.dp_shard
        assert t.global_batch_size % (t.local_batch_size * replicas) == 0
        assert d.dp_shard * d.cp * d.tp % d.ep == 0, "expert_parallel_degree"
        if d.pp > 1:
            check_schedule(config, d.pp)

    return check


def deepspeed():
    """The configuration, for the data-parallel ranks that comments leave."""
    os.environ["DS_ACCELERATOR"] = "cpu"
    from deepspeed import comm
    from deepspeed.runtime.config import DeepSpeedConfig

    def check(text, ranks):
        config = json.loads(text)
        comments = " ".join(config.pop("comment", []))
        for degree in (r"num_pp=(\d+)", r"num_mp=(\d+)", r"over (\d+) ranks, by"):
            found = re.search(degree, comments)
            ranks //= int(found[1]) if found else 1
        comm.get_world_size = lambda *_, **__: ranks
        comm.get_rank = lambda *_, **__: 0
        made = DeepSpeedConfig(config, mpu=None)
        piped = re.search(r"num_pp=([2-9]|\d\d)", comments)
        assert not piped or made.zero_optimization_stage < 2, "ZeRO and stages"

    return check


def main():
    name, folder = sys.argv[1:]
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            check = {"megatron": megatron, "torchtitan": torchtitan,
                     "deepspeed": deepspeed}[name]()
    except ImportError as e:
        print(f"# {name}: {e}")
        return 77
    taken, files = 0, sorted(os.listdir(folder))
    for file in files:
        said.seek(said.truncate(0))
        try:
            with open(os.path.join(folder, file)) as f, \
                    contextlib.redirect_stdout(said), \
                    contextlib.redirect_stderr(said):
                check(f.read(), int(file.split(".")[0]))
            taken += 1
        except (Exception, SystemExit) as e:
            text = " ".join(str(e).split()) + " " + " ".join(
                said.getvalue().split())[-200:]
            print(f"# {file}: {type(e).__name__}: {text[:300]}")
    print(f"# {name}: {taken} of {len(files)} plans are taken")
    return int(taken < len(files) or taken == 0)


if __name__ == "__main__":
    sys.exit(main())
