#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write greedy.txt: what transformers generates with the models beside it.

Three lines a model: its name, a prompt of 8 ids, and the 200 ids that greedy
generation in float32 with a cache goes on with; its name, "nll", 200 ids at
random, and minus the logarithm of the probability of each behind those before
it, from the second on, in float64; its name, "logits", and all logits behind
50, 100, 150 and 200 of these ids, in float64.  Weights are those of NAME.vec
(make_hf.py); gpt2_long has more positions than ../gpt2.json, so its .json and
.vec (weights alone) are written here.  The likeliest id is never a close call:
float64 gives the same.  Of 40 prompts the one is taken that most kinds of ids
follow.  Run it in this folder; with names it writes their lines anew.
"""

import json
import os
import struct
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM

import make_hf
from make_hf import plain

PROMPT, NEW = 8, 200
GPT2 = {**make_hf.GPT2, "model_type": "gpt2", "n_positions": 256,
        "attn_pdrop": 0.0}


def write_gpt2(weights):
    with open("gpt2_long.vec", "wb") as f:
        f.write(b"MRKVEC01" + struct.pack("<I", len(weights)) +
                b"".join(weights))
    with open("gpt2_long.json", "w") as f:
        json.dump(GPT2, f, indent=1)
        f.write("\n")


def greedy(model, prompts):
    return model.generate(torch.tensor(prompts), do_sample=False,
                          attention_mask=torch.ones_like(torch.tensor(prompts)),
                          max_new_tokens=NEW, min_new_tokens=NEW,
                          eos_token_id=None, pad_token_id=0,
                          use_cache=True)[:, PROMPT:].tolist()


def likelihoods(model, ids):
    """Of ids from the second on, and some positions' logits."""
    logits = model(torch.tensor([ids])).logits[0]
    nll = torch.nn.functional.cross_entropy(
        logits[:-1], torch.tensor(ids[1:]), reduction="none").tolist()
    return nll, logits[49::50].flatten().tolist()


def run(name, config, seed):
    c = AutoConfig.for_model(**config)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(c, attn_implementation="eager",
                                             experts_implementation="eager")
    model = model.double().eval()
    with torch.no_grad():
        params = make_hf.parameters(c, model)
        weights = make_hf.set_weights(params, c, seed)
        if name == "gpt2_long":
            write_gpt2(weights)
        draw = plain.uniform(plain.mix(seed ^ 0x9E9), 40 * PROMPT + NEW)
        draw = (draw * c.vocab_size).astype(int).tolist()
        text, prompts = draw[:NEW], draw[NEW:]
        prompts = [prompts[i:i + PROMPT] for i in range(0, 40 * PROMPT, PROMPT)]
        nll, logits = likelihoods(model, text)
        exact = greedy(model, prompts)
        near = greedy(model.float(), prompts)
    best = max((i for i in range(40) if exact[i] == near[i]),
               key=lambda i: len(set(near[i])))
    print(name, "kinds of ids:", len(set(near[best])))
    return (" ".join([name, *map(str, prompts[best] + near[best])]) + "\n" +
            " ".join([name, "nll", *map(str, text),
                      *(f"{x:.7f}" for x in nll)]) + "\n" +
            " ".join([name, "logits", *(f"{x:.7f}" for x in logits)]) + "\n")


def read_lines():
    """What is there already, by name."""
    lines = {}
    if os.path.exists("greedy.txt"):
        with open("greedy.txt") as f:
            for line in f:
                name = line.split(" ", 1)[0]
                lines[name] = lines.get(name, "") + line
    return lines


if __name__ == "__main__":
    torch.set_num_threads(1)
    lines, wanted = read_lines(), sys.argv[1:]
    for i, (name, fields) in enumerate(make_hf.MODELS.items()):
        # ../gpt2.json has too few positions
        if name.endswith("dropout") or name == "gpt2-plain" or (
                wanted and name not in wanted):
            continue
        lines[name] = run(name, make_hf.full(fields), 100 + 50 * i)
    if not wanted or "gpt2_long" in wanted:
        lines["gpt2_long"] = run("gpt2_long", GPT2, 7)
    with open("greedy.txt", "w") as f:
        f.writelines(lines.values())
