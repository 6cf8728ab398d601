#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hold `merak data pack` against what datasets and transformers read.

    pip install datasets transformers zstandard    # datasets has pyarrow
    python3 compare_formats.py ../../../build/cmd/merak

Random conversations are written in every form of fine-tuning data, and in every
kind of file.  datasets.load_dataset() reads each file, its lines become
messages as the form's own tools make them, and transformers'
apply_chat_template() tokenizes these and says which tokens are of the
assistant.  Compared are all ids, and all marks of what is to be predicted, in
the three files that merak writes.  The printed table is that of
doc/fine-tuning.md.
"""
import argparse
import collections
import gzip
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import zstandard
from datasets import Dataset, load_dataset
from transformers import PreTrainedTokenizerFast

HERE = pathlib.Path(__file__).resolve().parent
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] }}"
    "<|im_end|>{% endgeneration %}{% else %}{{ m['content'] }}<|im_end|>"
    "{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
HEADERS = (
    "{% for m in messages %}<|start_header_id|>{{ m['role'] }}"
    "<|end_header_id|>\n\n{% if m['role'] == 'assistant' %}{% generation %}"
    "{{ m['content'] | trim }}<|eot_id|>{% endgeneration %}{% else %}"
    "{{ m['content'] | trim }}<|eot_id|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant"
    "<|end_header_id|>\n\n{% endif %}")
# Tokenizer, template, the token that ends a text, and more of the template's.
MODELS = [
    ("qwen2", CHATML, "<|endoftext|>", ["<|im_start|>", "<|im_end|>"]),
    ("llama3", HEADERS, "<|end_of_text|>",
     ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]),
    ("smollm2", CHATML, "<|endoftext|>", ["<|im_start|>", "<|im_end|>"]),
]
WORDS = ["What", " is", " the", " capital", " of", " France", "?", "\n", " 42",
         "na\u00efve", " \u4f60\u597d", "\U0001f600", " \"so\"", " \\n", "\t",
         " it's", "  two", " <b>", "&amp;", " \u0645\u0631\u062d\u0628\u0627",
         " e\u0301", "1234567", ".", ","]


def text(r, least=1):
    return "".join(r.choice(WORDS) for _ in range(r.randint(least, 30))).strip(
    ) or "x"


def talk(r):
    out = [{"role": "system", "content": text(r)}] if r.random() < 0.3 else []
    for _ in range(r.randint(1, 4)):
        out += [{"role": "user", "content": text(r)},
                {"role": "assistant", "content": text(r)}]
    return out


# --- forms: a random line, and what it means: documents of (prompt, messages),
# of which only assistant's messages behind the prompt are learned, or of two
# texts.

def plain(line):
    return [([], line["messages"])]


def make_plain(r):
    return {"messages": talk(r), "id": r.randint(0, 9)}


SHARED = {"system": "system", "user": "human", "assistant": "gpt"}
ROLES = {v: k for k, v in SHARED.items()}


def make_sharegpt(r):
    return {"conversations": [{"from": SHARED[m["role"]],
                               "value": m["content"]} for m in talk(r)]}


def sharegpt(line):
    return [([], [{"role": ROLES[m["from"]], "content": m["value"]}
                  for m in line["conversations"]])]


def make_alpaca(r):
    return {"instruction": text(r), "input": r.choice(["", text(r)]),
            "output": text(r)}


def alpaca(line):
    asked = "\n".join(t for t in (line["instruction"], line["input"]) if t)
    return [([], [{"role": "user", "content": asked},
                  {"role": "assistant", "content": line["output"]}])]


def make_texts(r):
    return {"prompt": text(r), "completion": text(r)}


def texts(line):
    return [(line["prompt"], line["completion"])]


def make_lists(r):
    said = talk(r)
    return {"prompt": said[:-1], "completion": said[-1:]}


def lists(line):
    return [(line["prompt"], line["prompt"] + line["completion"])]


def make_pairs(r):
    return {"prompt": text(r), "chosen": text(r), "rejected": text(r)}


def pairs(line):
    return [(line["prompt"], line["chosen"]), (line["prompt"],
                                               line["rejected"])]


def make_pair_lists(r):
    said = talk(r)
    return {"prompt": said[:-1], "chosen": said[-1:],
            "rejected": [{"role": "assistant", "content": text(r)}]}


def pair_lists(line):
    return [(line["prompt"], line["prompt"] + line[k])
            for k in ("chosen", "rejected")]


def make_implicit(r):
    line = make_pair_lists(r)
    return {k: line["prompt"] + line[k] for k in ("chosen", "rejected")}


def implicit(line):
    n = 0
    while (n < min(len(line["chosen"]), len(line["rejected"])) - 1 and
           line["chosen"][n] == line["rejected"][n]):
        n += 1
    return [(line[k][:n], line[k]) for k in ("chosen", "rejected")]


FORMS = [("`messages`", make_plain, plain),
         ("ShareGPT `conversations`", make_sharegpt, sharegpt),
         ("Alpaca", make_alpaca, alpaca),
         ("`prompt`, `completion`: texts", make_texts, texts),
         ("the same: messages", make_lists, lists),
         ("`chosen`, `rejected`: texts", make_pairs, pairs),
         ("the same: messages", make_pair_lists, pair_lists),
         ("the same without `prompt`", make_implicit, implicit)]


def write(path, lines):
    if path.suffix == ".parquet":
        Dataset.from_list(lines).to_parquet(path, batch_size=100)
        return
    rows = [json.dumps(line, ensure_ascii=i % 2 == 0)
            for i, line in enumerate(lines)]
    whole = "\n".join(rows) + "\n"
    if ".json" in path.suffixes and ".jsonl" not in path.suffixes:
        whole = "[\n" + ",\n".join(rows) + "\n]\n"
    data = whole.encode()
    if path.suffix == ".gz":
        data = gzip.compress(data)
    if path.suffix == ".zst":
        data = zstandard.compress(data)
    path.write_bytes(data)


KINDS = ["x.jsonl", "x.json", "x.jsonl.gz", "x.jsonl.zst", "x.parquet"]


def expected(tok, document):
    """Ids of a document, and which are to be predicted."""
    prompt, rest = document
    if isinstance(rest, str):
        first = tok(prompt, add_special_tokens=False)["input_ids"]
        last = tok(rest, add_special_tokens=False)["input_ids"]
        last.append(tok.eos_token_id)
        return first + last, [0] * len(first) + [1] * len(last)
    out = tok.apply_chat_template(rest, tokenize=True, return_dict=True,
                                  return_assistant_tokens_mask=True)
    ids, mask = list(out["input_ids"]), list(out["assistant_masks"])
    if prompt:
        n = len(tok.apply_chat_template(prompt, tokenize=True,
                                        add_generation_prompt=True,
                                        return_dict=True)["input_ids"])
        mask[:n] = [0] * n
    return ids, mask


def packed(prefix):
    index = (prefix.with_suffix(".idx")).read_bytes()
    kind = {4: np.int32, 8: np.uint16}[index[17]]
    n = int(np.frombuffer(index, np.uint64, 1, 18)[0])
    lengths = np.frombuffer(index, np.int32, n, 34)
    ids = np.fromfile(prefix.with_suffix(".bin"), kind)
    bits = np.frombuffer(prefix.with_suffix(".mask").read_bytes()[48:],
                         np.uint8)
    mask = np.unpackbits(bits, bitorder="little")[:len(ids)]
    ends = np.cumsum(lengths)
    return (np.split(ids, ends[:-1]), np.split(mask, ends[:-1]))


def tokenizer(folder, name, template, end, more):
    source = HERE.parent / "tokenizer" / ("kind_%s.json" % name)
    folder.mkdir()
    shutil.copy(source, folder / "tokenizer.json")
    tok = PreTrainedTokenizerFast(tokenizer_file=str(folder /
                                                     "tokenizer.json"),
                                  eos_token=end)
    tok.add_special_tokens({"additional_special_tokens": more})
    tok.chat_template = template
    tok.save_pretrained(folder)
    return tok


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    args.add_argument("merak")
    args.add_argument("--lines", type=int, default=250)
    args = args.parse_args()
    bad = 0
    print("| form | lines | tokens | ids that differ | marks that differ |")
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as tmp:
        tmp = pathlib.Path(tmp)
        models = [(m[0], tokenizer(tmp / m[0], *m)) for m in MODELS]
        for i, (title, make, means) in enumerate(FORMS):
            count = collections.Counter()
            r = random.Random(i)
            lines = [make(r) for _ in range(args.lines)]
            for kind in KINDS:
                file = tmp / kind
                write(file, lines)
                form = "parquet" if file.suffix == ".parquet" else "json"
                read = load_dataset(form, data_files=str(file),
                                    cache_dir=str(tmp / ("c%d" % i + kind)),
                                    split="train")
                for name, tok in models:
                    subprocess.run(
                        [args.merak, "data", "pack", "--tokenizer",
                         str(tmp / name), "--out", str(tmp / "p"), str(file)],
                        check=True, stdout=subprocess.DEVNULL,
                        env=dict(os.environ, MERAK_PYTHON=sys.executable))
                    want = [expected(tok, d) for line in read
                            for d in means(line)]
                    ids, mask = packed(tmp / "p")
                    if len(ids) != len(want):
                        sys.exit("%s: %d documents, expected %d" %
                                 (title, len(ids), len(want)))
                    count["lines"] += len(read)
                    for a, b, (c, d) in zip(ids, mask, want):
                        count["tokens"] += len(c)
                        same = len(a) == len(c) and (a == c).all()
                        count["ids"] += 0 if same else len(c)
                        count["marks"] += (len(c) if not same else
                                           int((b != d).sum()))
            print("| %s | %d | %d | %d | %d |" % (
                title, count["lines"], count["tokens"], count["ids"],
                count["marks"]))
            bad += count["ids"] + count["marks"]
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
