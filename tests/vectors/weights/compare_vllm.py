#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Have vLLM's loaders take exported folders, on a machine without a GPU.

    pip install vllm
    merak ckpt export RUN --format hf --out hf
    python3 compare_vllm.py hf ..

Each folder goes through vLLM's checks of config.json and of the tokenizer, and
through the loader of its model class, which refuses a tensor that it does not
know and one that is missing.  The model has to hold what the files hold: the
sum of all numbers' magnitudes, which is the same however they are fused.
Nothing is computed: kernels that vLLM's wheel has only for GPUs are left out.
"""
import os
import sys
import traceback
from glob import glob

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch  # noqa: E402
import vllm.platforms as platforms  # noqa: E402
from vllm.platforms.cpu import CpuPlatform  # noqa: E402

platforms._current_platform = CpuPlatform()
from safetensors import safe_open  # noqa: E402
from vllm.config import set_current_vllm_config  # noqa: E402
from vllm.distributed import (destroy_model_parallel,  # noqa: E402
                              init_distributed_environment,
                              initialize_model_parallel)
from vllm.engine.arg_utils import EngineArgs  # noqa: E402
from vllm.model_executor.layers.fused_moe import \
    unquantized_fused_moe_method as experts  # noqa: E402
from vllm.model_executor.model_loader import get_model  # noqa: E402
from vllm.model_executor.models import registry  # noqa: E402
from vllm.tokenizers.registry import \
    cached_tokenizer_from_config  # noqa: E402

# A process of its own would be one for GPUs.
registry._run_in_subprocess = lambda inspect: inspect()
# What a constructor looks up, and nothing calls.
torch.ops._C.gelu_new = None
experts.select_unquantized_moe_backend = lambda **config: (
    experts.UnquantizedMoeBackend.OOT, None)


def magnitude(tensors):
    return sum(t.detach().double().abs().sum().item() for t in tensors)


def stored(folder, tied):
    """Of all tensors of the files, and how many numbers they are."""
    n = total = 0
    for path in sorted(glob(folder + "/*.safetensors")):
        with safe_open(path, "pt") as f:
            for name in f.keys():
                if tied and name.endswith(("lm_head.weight",
                                           "embed_out.weight")):
                    continue
                t = f.get_tensor(name)
                n += t.numel()
                total += magnitude([t])
    return n, total


def load(folder):
    args = EngineArgs(model=folder, enforce_eager=True, dtype="float32",
                      max_model_len=32)
    config = args.create_engine_config()
    if glob(folder + "/tokenizer*"):
        tokenizer = cached_tokenizer_from_config(config.model_config)
        assert tokenizer.decode(tokenizer.encode("Hello world")), tokenizer
    with set_current_vllm_config(config):
        if not torch.distributed.is_initialized():
            init_distributed_environment(
                1, 0, "tcp://127.0.0.1:%d" % (20000 + os.getpid() % 20000), 0,
                backend="gloo")
        initialize_model_parallel(1, 1)
        try:
            model = get_model(vllm_config=config)
        finally:
            destroy_model_parallel()
    tied = config.model_config.hf_config.tie_word_embeddings
    n, want = stored(folder, tied)
    got = magnitude(dict(model.named_parameters()).values())
    assert abs(got - want) < 1e-6 * want, (got, want)
    return "%d numbers as %s" % (n, type(model).__name__)


def main():
    failed = 0
    for folder in sys.argv[1:]:
        try:
            print("%s: %s" % (folder, load(folder)), flush=True)
        except Exception as e:
            traceback.print_exc()
            print("%s: FAILED: %s" % (folder, str(e)[:500]), flush=True)
            failed += 1
    print("%d of %d folders loaded" % (len(sys.argv) - 1 - failed,
                                       len(sys.argv) - 1))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
