#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""generate_pytorch.py - text of transformers' GPT-2, bench/generate.py's peer

--make FOLDER writes GPT-2 124M with weights at random.  Else prints one line:
tokens a second of generate(), the same of a loop that calls the model with its
cache and takes the likeliest token, and the loop's ids.
"""
import argparse
import time

import torch
from transformers import (DynamicCache, GPT2Config, GPT2LMHeadModel,
                          StoppingCriteria, StoppingCriteriaList)


def make(folder):
    torch.manual_seed(1)
    model = GPT2LMHeadModel(GPT2Config())
    # at random, all logits are near each other and their order is rounding:
    # larger weights tell tokens apart
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("weight") and weight.dim() == 2:
                weight.mul_(3)
    model.save_pretrained(folder)


class Clock(StoppingCriteria):
    """When each token was there."""

    def __init__(self):
        self.times = []

    def __call__(self, input_ids, scores, **_):
        self.times.append(time.perf_counter())
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)


def by_library(model, prompt, tokens):
    clock = Clock()
    model.generate(prompt, max_new_tokens=tokens, min_new_tokens=tokens,
                   do_sample=False, use_cache=True, pad_token_id=0,
                   attention_mask=torch.ones_like(prompt),
                   stopping_criteria=StoppingCriteriaList([clock]))
    return (len(clock.times) - 1) / (clock.times[-1] - clock.times[0])


def by_loop(model, prompt, tokens):
    cache = DynamicCache()
    out = model(prompt, past_key_values=cache, use_cache=True,
                logits_to_keep=1)
    ids = [out.logits[:, -1].argmax(-1, keepdim=True)]
    start = time.perf_counter()
    for _ in range(tokens - 1):
        out = model(ids[-1], past_key_values=cache, use_cache=True)
        ids.append(out.logits[:, -1].argmax(-1, keepdim=True))
    rate = (tokens - 1) / (time.perf_counter() - start)
    return rate, torch.cat(ids, 1)[0].tolist()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--make")
    parser.add_argument("--model")
    parser.add_argument("--prompt")
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--dtype", choices=("fp32", "bf16"))
    args = parser.parse_args()

    if args.make:
        make(args.make)
        return
    torch.set_num_threads(args.threads)
    model = GPT2LMHeadModel.from_pretrained(
        args.model, dtype={"fp32": torch.float32,
                           "bf16": torch.bfloat16}[args.dtype])
    model.eval()
    prompt = torch.tensor([[int(i) for i in args.prompt.split()]])
    with torch.inference_mode():
        by_loop(model, prompt[:, :4], 4)  # what the first call makes
        library = by_library(model, prompt, args.tokens)
        loop, ids = by_loop(model, prompt, args.tokens)
    print(library, loop, *ids)


if __name__ == "__main__":
    main()
