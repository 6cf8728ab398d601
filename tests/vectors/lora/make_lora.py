#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write lora-NAME.vec: models of ../hf with adapters, as PEFT trains them.

What transformers and PEFT compute in PyTorch's float64.  The format is that of
../gen_gpt2_llama.py; models, weights and dropout are those of ../hf/make_hf.py.
Both of an adapter's matrices begin with numbers other than zero.  Records are
those of ../hf, gradients being only those of adapters, and

    logits  d  [batch, sequence, vocabulary] of the model that PEFT has merged
               before the first step

Run it in this folder; it needs PyTorch, transformers 5 and peft.
"""

import math
import os
import struct
import sys

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "hf"))
import make_hf as hf  # noqa: E402

plain = hf.plain
# Model, rank, alpha, dropout, layers, and whether alpha is divided by the
# rank's root.
MODELS = {
    "gpt2": ("gpt2-plain", 4, 6, 0.0, ["c_attn", "c_fc", "c_proj"], False),
    "llama": ("llama2", 4, 4, 0.0, ["q_proj", "v_proj"], False),
    "qwen2": ("qwen2", 3, 5, 0.0, "all-linear", False),
    "dropout": ("llama2", 2, 3, 0.25, "all-linear", False),
    "rslora": ("llama2", 3, 2, 0.0, "all-linear", True),
}


class Adapter:
    """A matrix of PEFT's, in the shape that it has here."""

    def __init__(self, name, tensor, shape):
        self.name, self.tensor, self.shape = name, tensor, shape

    def of(self, tensor):
        return tensor

    def put(self, tensor, x):
        tensor[:] = x


def adapters(model, params):
    """A [rank, in..] and B [out.., rank] of each adapted weight."""
    found = {n.replace("base_model.model.", "").replace("transformer.", "")
              .replace(".default", ""): p
             for n, p in model.named_parameters() if "lora_" in n}
    out = []
    for p in params:
        at = p.name[:-len(".weight")]
        if at + ".lora_A.weight" not in found:
            continue
        a, b = found[at + ".lora_A.weight"], found[at + ".lora_B.weight"]
        k = next(k for k in range(1, len(p.shape))
                 if math.prod(p.shape[k:]) == a.shape[1] and
                 math.prod(p.shape[:k]) == b.shape[0])
        out.append(Adapter(at + ".lora_A.weight", a,
                           (a.shape[0],) + tuple(p.shape[k:])))
        out.append(Adapter(at + ".lora_B.weight", b,
                           tuple(p.shape[:k]) + (b.shape[1],)))
    assert len(out) == len(found)
    return out


def run(name, of, rank, alpha, dropout, targets, by_root, seed):
    fields = hf.MODELS[of]
    config = {**(hf.GPT2 if fields["model_type"] == "gpt2" else hf.SHAPE),
              **fields}
    c = AutoConfig.for_model(**config)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(c, attn_implementation="sdpa")
    model = model.double()
    params = hf.parameters(c, model)
    model = get_peft_model(model, LoraConfig(
        r=rank, lora_alpha=alpha, lora_dropout=dropout, target_modules=targets,
        use_rslora=by_root, task_type="CAUSAL_LM",
        fan_in_fan_out=c.model_type == "gpt2"))
    model = model.double().train()
    mine = adapters(model, params)
    ids = plain.uniform(plain.mix(seed ^ 0xDA7A),
                        hf.B * (hf.T + 1)) * c.vocab_size
    ids = ids.astype(np.int64).reshape(hf.B, hf.T + 1)
    tokens, targets = ids[:, :-1].copy(), ids[:, 1:].copy()
    out = [plain.array("config", "i", [hf.B, hf.T]),
           plain.array("tokens", "i", tokens),
           plain.array("targets", "i", targets)]
    out += hf.set_weights(params + mine, c, seed)
    trained = [p for p in model.parameters() if p.requires_grad]
    assert len(trained) == len(mine)
    adam = torch.optim.AdamW(trained, lr=1e-3, betas=(0.9, 0.95), eps=1e-8,
                             weight_decay=0.1)
    losses = []
    for step in range(hf.STEPS + 1):
        adam.zero_grad()
        hf.DROPOUT.begin(step)
        logits = model(torch.tensor(tokens)).logits
        loss = torch.nn.functional.cross_entropy(
            logits.reshape(-1, c.vocab_size),
            torch.tensor(targets).reshape(-1))
        losses.append(loss.item())
        loss.backward()
        if step == 0:
            out += [plain.array("grad/" + p.name, "f",
                                p.tensor.grad.reshape(p.shape).numpy())
                    for p in mine]
            out.append(plain.norm("grad_norm", [p.grad for p in trained]))
        adam.step()
    out.append(plain.array("losses", "d", losses))
    hf.set_weights(params + mine, c, seed)
    with torch.no_grad():
        merged = model.merge_and_unload().eval()
        out.append(plain.array("logits", "d",
                               merged(torch.tensor(tokens)).logits.numpy()))
    with open("lora-" + name + ".vec", "wb") as f:
        f.write(b"MRKVEC01" + struct.pack("<I", len(out)) + b"".join(out))
    print(name, "losses", losses[0], losses[-1])


if __name__ == "__main__":
    torch.set_num_threads(1)
    for i, (name, args) in enumerate(MODELS.items()):
        run(name, *args, 7000 + 200 * i)
