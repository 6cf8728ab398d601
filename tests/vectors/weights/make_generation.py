#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write generation.jsonl: what transformers generates from folders with a
generation_config.json, greedily, from the weights beside this.

    family  the folder
    file    generation_config.json; null: there is none
    fields  put into config.json
    prompt, ids   and what follows, with the token that ends a text

Run it in this folder, after make_weights.py; it needs PyTorch and
transformers 5.
"""

import json
import os
import shutil
import tempfile

import torch
from transformers import AutoModelForCausalLM

PROMPT = [72, 101, 108, 108, 111, 72, 101]
MOST = 24


def generate(family, file, fields, prompt):
    with tempfile.TemporaryDirectory() as folder:
        for name in os.listdir("."):
            if name.startswith(family + ".") and not name.endswith(".loss"):
                shutil.copyfile(name, os.path.join(folder,
                                                   name[len(family) + 1:]))
        path = os.path.join(folder, "config.json")
        with open(path) as f:
            config = {**json.load(f), **fields}
        with open(path, "w") as f:
            json.dump(config, f)
        if file is not None:
            with open(os.path.join(folder, "generation_config.json"),
                      "w") as f:
                json.dump(file, f)
        model = AutoModelForCausalLM.from_pretrained(
            folder, attn_implementation="eager").double().eval()
        # padding behind an end has an id that is none
        model.generation_config.pad_token_id = 256
        ids = model.generate(torch.tensor([prompt]), max_new_tokens=MOST,
                             attention_mask=torch.ones(1, len(prompt)))
    return ids[0, len(prompt):].tolist()


if __name__ == "__main__":
    torch.set_num_threads(1)
    with open("generation.jsonl", "w") as out:
        for family in ("gpt2", "llama", "qwen2"):
            plain = generate(family, {}, {}, PROMPT)
            end, second = plain[5], plain[1]
            rows = [
                ({}, {}),
                ({"suppress_tokens": [end, plain[0]]}, {}),
                ({"begin_suppress_tokens": [plain[0]]}, {}),
                ({"repetition_penalty": 1.3}, {}),
                ({"repetition_penalty": 0.9}, {}),
                ({"no_repeat_ngram_size": 2}, {}),
                ({"no_repeat_ngram_size": 1}, {}),
                ({"eos_token_id": end}, {}),
                ({"eos_token_id": [end, second]}, {}),
                ({"eos_token_id": end, "min_new_tokens": 9}, {}),
                ({"eos_token_id": [end], "min_length": 14}, {}),
                ({"eos_token_id": second, "suppress_tokens": None}, {}),
                ({}, {"eos_token_id": second}),
                (None, {"eos_token_id": second}),
                (None, {"eos_token_id": None, "suppress_tokens": [second]}),
                ({"eos_token_id": end, "repetition_penalty": 1.7,
                  "no_repeat_ngram_size": 3, "min_new_tokens": 3,
                  "begin_suppress_tokens": [second]}, {}),
            ]
            for file, fields in rows:
                line = {"family": family, "file": file, "fields": fields,
                        "prompt": PROMPT,
                        "ids": generate(family, file, fields, PROMPT)}
                out.write(json.dumps(line) + "\n")
