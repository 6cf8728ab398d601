#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hold what llama.cpp makes of a GGUF file against transformers.

    pip install transformers xllamacpp
    merak ckpt export RUN --format hf --out hf
    merak ckpt export RUN --format gguf --dtype fp32 --out gguf
    python3 compare_gguf.py hf gguf/model.gguf

xllamacpp is llama.cpp with its server, in a wheel.  Both get random ids, and
texts, which each tokenizes itself; compared are the logarithms of the
probabilities of all next tokens and the greedy choice.  llama.cpp takes GELU
from a table in fp16: with it they differ by up to 2e-4, else by 1e-5.  What it
reports of a token that ends within a character is nothing: such are left out.
"""
import random
import sys

import torch
import xllamacpp
from transformers import AutoModelForCausalLM, AutoTokenizer

TEXTS = ["Hello world, it's 42 degrees", "The capital of France is",
         " na\u00efve  fa\u00e7ade \u4f60\u597d"]


def serve(path):
    p = xllamacpp.CommonParams()
    p.model.path = path
    p.n_ctx, p.n_parallel, p.warmup, p.verbosity = 256, 1, False, -1
    p.cache_type_k = p.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    p.flash_attn_type = \
        xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    return xllamacpp.Server(p)


def next_of(server, prompt, vocab):
    """How many tokens the prompt has, and (id, log p) of all, best first."""
    r = server.handle_completions({
        "prompt": prompt, "max_tokens": 1, "temperature": 0.0,
        "cache_prompt": False, "logprobs": vocab})
    said = r["choices"][0]["logprobs"]
    top = said["content"][0]["top_logprobs"] if said else []
    return r["usage"]["prompt_tokens"], [(t["id"], t["logprob"]) for t in top]


def main():
    folder, path = sys.argv[1:]
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()
    tok = AutoTokenizer.from_pretrained(folder)
    vocab, r, server = model.config.vocab_size, random.Random(3), serve(path)
    ids = [[r.randrange(vocab) for _ in range(n)]
           for n in (3, 5, 8, 13, 21, 34, 55, 60)]
    seen = same = 0
    worst = 0.0
    for prompt, own in [(p, p) for p in ids] + \
            [(t, tok(t)["input_ids"]) for t in TEXTS]:
        n, top = next_of(server, prompt, vocab)
        if n == len(own) + 1 and tok.bos_token_id is not None:
            own = [tok.bos_token_id] + own  # llama.cpp begins texts so
        assert n == len(own), (prompt, n, len(own))
        if not top:
            continue
        with torch.no_grad():
            want = model(torch.tensor([own])).logits[0, -1].double()
        want = want.log_softmax(-1)
        seen += 1
        same += top[0][0] == want.argmax().item()
        worst = max([worst] + [abs(want[i].item() - x) for i, x in top])
    print("%s: greedy the same in %d of %d, log p differ by at most %.1e" %
          (model.config.model_type, same, seen, worst))
    return not (seen > 0 and same == seen and worst < 2e-4)


if __name__ == "__main__":
    sys.exit(main())
