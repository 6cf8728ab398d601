#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hold chat templates as they are published against merak.

    pip install transformers==5.23.0 jinja2
    pip download --no-deps trl==1.16.0
    pip download --no-deps --no-binary :all: llama-cpp-python==0.3.36
    unzip trl-*.whl; tar xf llama_cpp_python-*.tar.gz
    python3 make_published.py . --all all.jsonl

Both packages carry templates of published models word for word (trl in
trl/chat_templates, llama-cpp-python in vendor/llama.cpp/models/templates).
They are run by transformers here and are not kept: published.jsonl has for the
formats of `merak data pack --chat` the messages and the text.  With --all a
file is written that has every template with its texts; `unit/chat.t all.jsonl`
runs all of them, and tells which differ or cannot be run.
"""
import argparse
import json
import pathlib

from transformers.utils.chat_template_utils import render_jinja_template

# Format, template, bos_token, eos_token.
FORMATS = [
    ("llama3", "trl/chat_templates/llama3", "<|begin_of_text|>", "<|eot_id|>"),
    ("llama3.1", "trl/chat_templates/llama3_1", "<|begin_of_text|>",
     "<|eot_id|>"),
    ("llama3.1", "templates/meta-llama-Llama-3.3-70B-Instruct",
     "<|begin_of_text|>", "<|eot_id|>"),
    ("qwen3", "trl/chat_templates/qwen3", None, "<|im_end|>"),
    ("chatml", "trl/chat_templates/qwen3_instruct_2507", None, "<|im_end|>"),
    ("gemma", "trl/chat_templates/gemma", "<bos>", "<eos>"),
    ("gemma", "templates/google-gemma-2-2b-it", "<bos>", "<eos>"),
    ("phi3", "trl/chat_templates/phi3", "<s>", "<|endoftext|>"),
    ("phi3", "trl/chat_templates/phi3_5", "<s>", "<|endoftext|>"),
]


def say(*pairs):
    return [{"role": r, "content": c} for r, c in pairs]


TALKS = [
    say(("user", "Hi"), ("assistant", "Hello!")),
    say(("user", "  two\nlines "), ("assistant", "na\u00efve \u4f60 "),
        ("user", "and?"), ("assistant", "ok")),
    say(("system", "Speak Dutch."), ("user", "Hi"), ("assistant", "Hoi"),
        ("user", "[bye]"), ("assistant", "Doei\n")),
]
MORE = [
    say(("system", ""), ("user", "Hi"), ("assistant", "Hoi")),
    say(("system", " be\n brief \n"), ("user", " Hi\n"),
        ("assistant", "\n Hoi\u3000 ")),
    say(("user", "Hi"), ("assistant", "")),
    say(("user", "Hi"), ("assistant", "<think>\nwell\n</think>\n\nHoi")),
    say(("user", "Hi"), ("assistant", "Hoi"), ("system", "x"), ("user", "Hi"),
        ("assistant", "Hoi")),
    say(("user", "Hi"), ("assistant", "Hoi"), ("assistant", "Hoi2")),
    say(("user", "Hi"), ("user", "Hi2"), ("assistant", "Hoi2")),
    say(("assistant", "Hoi"), ("user", "Hi2"), ("assistant", "Hoi2")),
    say(("user", "Hi"), ("assistant", "Hoi"), ("user", "A"),
        ("assistant", "<think>\na\n</think>\n\nB"), ("user", "Hi2"),
        ("assistant", "c")),
]


TOOL = {"type": "function", "function": {
    "name": "weather", "description": "Says \"how\" it is.", "parameters": {
        "type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "description": "Where"},
            "days": {"type": "integer"}}}}}


def call(content, **arguments):
    return {"role": "assistant", "content": content, "tool_calls": [
        {"type": "function", "id": "abcdefghi",
         "function": {"name": "weather", "arguments": arguments}}]}


ANSWERED = [*say(("user", "Hi")), call("", city="Oslo", days=2),
            {"role": "tool", "name": "weather", "tool_call_id": "abcdefghi",
             "content": "cold"}, *say(("assistant", "Cold."))]
WHOLE = [
    ([*say(("user", "Hi")),
      {"role": "assistant", "reasoning_content": "why", "content": "a"}], {}),
    ([*say(("user", "Hi")),
      {"role": "assistant", "content": "no", "weight": 0},
      *say(("user", "Hi"), ("assistant", "yes"))], {}),
    (ANSWERED, {"tools": [TOOL]}),
    ([*say(("system", "Be brief.")), *ANSWERED], {"tools": [TOOL]}),
    (ANSWERED[:1] + [call("I look.", city="K\u00f8ge")], {"tools": [TOOL]}),
]


def render(talk, template, bos, eos, more={}):
    words = {k: v for k, v in (("bos_token", bos), ("eos_token", eos)) if v}
    try:
        return render_jinja_template([talk], chat_template=template,
                                     **words, **more)[0][0]
    except Exception:
        return None


def write_formats(folder, out):
    with open(out, "w") as f:
        for name, where, bos, eos in FORMATS:
            path, = folder.rglob(where + ".jinja")
            for talk in TALKS:
                text = render(talk, path.read_text(), bos, eos)
                f.write(json.dumps({"name": name, "of": path.stem,
                                    "messages": talk, "text": text}) + "\n")


def write_all(folder, out):
    with open(out, "w") as f:
        for path in sorted(folder.rglob("*.jinja")):
            for talk, more in [(t, {}) for t in TALKS + MORE] + WHOLE:
                config = {"chat_template": path.read_text(),
                          "bos_token": "<s>", "eos_token": "</s>"}
                text = render(talk, config["chat_template"], "<s>", "</s>",
                              more)
                f.write(json.dumps({"name": str(path.stem), "config": config,
                                    "messages": talk, "more": more,
                                    "text": text}) + "\n")


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("--all", type=pathlib.Path)
    a = p.parse_args()
    write_formats(a.folder, pathlib.Path(__file__).parent / "published.jsonl")
    if a.all:
        write_all(a.folder, a.all)
