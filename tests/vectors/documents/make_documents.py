#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write gpt2-documents.vec and llama-documents.vec: packed documents.

The models, the steps and the format are those of ../gen_gpt2_llama.py; two
sequences of 16 places hold five documents, and not every token is to be
predicted.  What is stored is computed without packing: each document goes
through the model alone, and PyTorch's cross_entropy with ignore_index takes the
mean over the counted targets of all of them, of which one sequence has fewer
than the other.  A record more than there:

    starts   i  [batch, sequence], the place that a token's document begins at

and targets are -1 where nothing is to be predicted.  Run it in this folder; it
needs python3-torch.
"""

import json
import os
import struct
import sys

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import gen_gpt2_llama as gen  # noqa: E402

B, T = 2, 16
LENGTHS = [[5, 8, 3], [1, 15]]


def pack(seed, vocab):
    n = B * T
    ids = (gen.uniform(gen.mix(seed ^ 0xD0C5), n) * vocab).astype(np.int64)
    want = gen.uniform(gen.mix(seed ^ 0xA5), n) * vocab
    heard = gen.uniform(gen.mix(seed ^ 0x5A), n)
    tokens = ids.reshape(B, T)
    # one sequence has few targets, the other has most
    counted = heard.reshape(B, T) < np.array([[0.3], [0.9]])
    targets = np.where(counted, want.astype(np.int64).reshape(B, T), -1)
    starts = np.array([[s for n, s in zip(row, np.cumsum([0] + row))
                        for _ in range(n)] for row in LENGTHS])
    return tokens, targets, starts


def loss_of(forward, c, w, tokens, targets, starts):
    logits, wanted = [], []
    for b in range(B):
        for s in np.unique(starts[b]):
            here = starts[b] == s
            gen.T = int(here.sum())
            logits.append(forward(c, w, torch.tensor(tokens[b, here])[None])[0])
            wanted.append(torch.tensor(targets[b, here]))
    return F.cross_entropy(torch.cat(logits), torch.cat(wanted),
                           ignore_index=-1)


def run(family, forward, seed):
    with open("../%s.json" % family) as f:
        c = json.load(f)
    w = gen.Weights(seed)
    tokens, targets, starts = pack(seed, c["vocab_size"])
    out = [gen.array("config", "i", [B, T]), gen.array("tokens", "i", tokens),
           gen.array("targets", "i", targets),
           gen.array("starts", "i", starts)]
    losses, moments = [], {}
    for step in range(4):
        for p in w.value.values():
            p.grad = None
        loss = loss_of(forward, c, w, tokens, targets, starts)
        losses.append(loss.item())
        if step == 3:
            break
        loss.backward()
        if step == 0:
            out += [gen.record("param/" + n, "w", tuple(p.shape),
                               struct.pack("<ddQ", *w.form[n]))
                    for n, p in w.value.items()]
            out += [gen.array("grad/" + n, "f", p.grad.numpy())
                    for n, p in w.value.items()]
            out += [gen.norm("param_norm", w.value.values()),
                    gen.norm("grad_norm",
                             [p.grad for p in w.value.values()])]
        gen.adamw(w, moments, step + 1)
    out.append(gen.array("losses", "d", losses))
    with open(family + "-documents.vec", "wb") as f:
        f.write(b"MRKVEC01" + struct.pack("<I", len(out)) + b"".join(out))
    print(family, "losses", losses, "of", int((targets >= 0).sum()), "targets")


if __name__ == "__main__":
    torch.set_num_threads(1)
    run("gpt2", gen.gpt2, 1)
    run("llama", gen.llama, 2)
