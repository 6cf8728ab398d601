#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write gpt2-preferences.vec and llama-preferences.vec: pairs of answers.

The models, the steps and the format are those of make_documents.py.  Two
sequences of 16 places hold three pairs of documents of unequal lengths, the
chosen and the rejected answer to a prompt, and two places that are in none.
The loss is that of direct preference optimization, in float64 and without
packing: each document goes through the model alone, and

    loss = -mean over pairs of log sigmoid(beta (chosen - rejected)),

each of the two being the sum over its targets of log p - log p of a reference,
the same model with other weights.  Records more than there:

    pairs      i  [batch, sequence], the place that the rejected answer of a
                  token's pair begins at, 0 where there is no pair
    reference  f  [batch, sequence], -log p of the reference, 0 without target
    rewards    d  [4, 3], in each step the mean of beta chosen, of beta rejected
                  (TRL's rewards), and the share of pairs in which the first
                  is the larger one

Run it in this folder; it needs python3-torch.
"""

import json
import struct

import numpy as np
import torch
import torch.nn.functional as F

import make_documents as documents

gen, B, T, BETA = documents.gen, documents.B, documents.T, 0.3
# lengths of chosen and rejected documents, by sequence
PAIRS = [[(3, 5), (4, 2)], [(7, 9)]]


def pack(seed, vocab):
    """Tokens, targets, starts, pairs, and the places of each document."""
    ids = (gen.uniform(gen.mix(seed ^ 0xD0C5), B * T) * vocab).astype(np.int64)
    tokens = ids.reshape(B, T)
    targets = np.full((B, T), -1)
    starts = np.tile(np.arange(T), (B, 1))
    pairs = np.zeros((B, T), np.int64)
    where = []
    for b, row in enumerate(PAIRS):
        at = 0
        for lengths in row:
            here = []
            for n in lengths:
                starts[b, at:at + n] = at
                # the first token is the prompt
                targets[b, at:at + n - 1] = tokens[b, at + 1:at + n]
                here.append((b, at, at + n))
                at += n
            pairs[b, here[0][1]:here[1][2]] = here[1][1]
            where.append(here)
    return tokens, targets, starts, pairs, where


def nll(forward, c, w, tokens, targets, place):
    """-log p of a document's targets."""
    b, begin, end = place
    gen.T = end - begin
    logits = forward(c, w, torch.tensor(tokens[b, begin:end])[None])[0]
    return F.cross_entropy(logits, torch.tensor(targets[b, begin:end]),
                           ignore_index=-1, reduction="none")


def run(family, forward, seed):
    with open("../%s.json" % family) as f:
        c = json.load(f)
    w, before = gen.Weights(seed), gen.Weights(seed + 50)
    tokens, targets, starts, pairs, where = pack(seed, c["vocab_size"])
    reference = np.zeros((B, T))
    with torch.no_grad():
        for place in [p for pair in where for p in pair]:
            b, begin, end = place
            reference[b, begin:end] = nll(forward, c, before, tokens, targets,
                                          place).numpy()
    reference = reference.astype(np.float32)
    out = [gen.array("config", "i", [B, T]), gen.array("tokens", "i", tokens),
           gen.array("targets", "i", targets),
           gen.array("starts", "i", starts), gen.array("pairs", "i", pairs),
           gen.array("reference", "f", reference)]

    def loss_of():
        terms, rewards = [], []
        for pair in where:
            up = [(torch.tensor(reference[b, s:e].astype(np.float64)) -
                   nll(forward, c, w, tokens, targets, (b, s, e))).sum()
                  for b, s, e in pair]
            terms.append(-F.logsigmoid(BETA * (up[0] - up[1])))
            rewards.append([BETA * up[0].item(), BETA * up[1].item(),
                            float(up[0] > up[1])])
        return torch.stack(terms).mean(), np.mean(rewards, axis=0)

    losses, rewards, moments = [], [], {}
    for step in range(4):
        for p in w.value.values():
            p.grad = None
        loss, reward = loss_of()
        losses.append(loss.item())
        rewards.append(reward)
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
    out.append(gen.array("rewards", "d", rewards))
    with open(family + "-preferences.vec", "wb") as f:
        f.write(b"MRKVEC01" + struct.pack("<I", len(out)) + b"".join(out))
    print(family, "losses", losses, "of", len(where), "pairs")


if __name__ == "__main__":
    torch.set_num_threads(1)
    run("gpt2", gen.gpt2, 1)
    run("llama", gen.llama, 2)
