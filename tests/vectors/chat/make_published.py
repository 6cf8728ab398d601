#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hold chat templates as they are published against merak.

    pip install transformers==5.23.0 jinja2
    pip download --no-deps trl==1.16.0 axolotl==0.19.0 xinference==4.1.0
    pip download --no-deps --no-binary :all: llama-cpp-python==0.3.36
    for w in *.whl; do unzip $w; done; tar xf llama_cpp_python-*.tar.gz
    python3 make_published.py . --all all.jsonl

The packages carry templates of published models word for word (trl in
trl/chat_templates, llama-cpp-python in vendor/llama.cpp/models/templates,
axolotl in axolotl/utils/chat_templates, xinference in JSON files; more are in
vllm's sources, examples/*.jinja).
They are run by transformers here and are not kept: published.jsonl has for the
formats of `merak data pack --chat` the messages and the text.  With --all a
file is written that has every template with its texts; `unit/chat.t all.jsonl`
runs all of them, and tells which differ or cannot be run.
"""
import argparse
import datetime
import json
import pathlib

from transformers.utils import chat_template_utils
from transformers.utils.chat_template_utils import render_jinja_template


class Epoch(datetime.datetime):
    """Templates that ask for the date get the one that unit/chat.t sets."""
    @classmethod
    def now(cls, tz=None):
        return cls(1970, 1, 1)


chat_template_utils.datetime = Epoch

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


TOOL2 = {"type": "function", "function": {
    "name": "book", "description": "Books it,\nall of it", "parameters": {
        "type": "object", "required": ["rooms", "who"], "properties": {
            "rooms": {"type": "array", "description": "Which",
                      "items": {"type": "string", "enum": ["a", "b"]}},
            "who": {"type": "object", "description": "Whom", "properties": {
                "name": {"type": "string"}, "age": {"type": "integer"}},
                "required": ["name"]},
            "how": {"type": "string", "enum": ["fast", "slow"],
                    "default": "slow"},
            "until": {"type": ["string", "null"], "nullable": True},
            "price": {"anyOf": [{"type": "number"}, {"type": "null"}]}}},
    "return": {"type": "string"}}}


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


def text_parts(*texts):
    return [{"type": "text", "text": t} for t in texts]


# Content as parts, thoughts under other names, two calls at once, arguments of
# every type, tools with nested parameters.
PARTS = [
    ([{"role": r, "content": text_parts(*c)} for r, c in talk], {})
    for talk in ([("user", ["Hi"]), ("assistant", ["Hello!"])],
                 [("system", ["Be", " brief."]), ("user", ["Hi", "you "]),
                  ("assistant", [" a", "b "])],
                 [("user", ["Hi"]), ("assistant", ["a"]), ("user", ["and?"]),
                  ("assistant", ["b"])])]
NAMES = [
    ([*say(("user", "Hi")), {"role": "assistant", key: "why", "content": "a"},
      *say(("user", "Go")), {"role": "assistant", key: "so", "content": "b"}],
     {}) for key in ("reasoning_content", "reasoning", "thinking")]
MANY = {"rooms": ["a", "b"], "who": {"name": "Bo", "age": 4}, "how": "fast",
        "until": None, "price": 2.5, "x": True}
CALLS = [
    ([*say(("user", "Hi")),
      {"role": "assistant", "content": "", "tool_calls": [
          {"type": "function", "id": "callnumb1",
           "function": {"name": "weather", "arguments": {"city": "Oslo"}}},
          {"type": "function", "id": "callnumb2",
           "function": {"name": "book", "arguments": MANY}}]},
      {"role": "tool", "name": "weather", "tool_call_id": "callnumb1",
       "content": "cold"},
      {"role": "tool", "name": "book", "tool_call_id": "callnumb2",
       "content": "{\"ok\": true}"},
      *say(("assistant", "Done."), ("user", "Thanks"), ("assistant", "!"))],
     {"tools": [TOOL, TOOL2]}),
    ([*say(("system", "S"), ("user", "Hi")),
      {"role": "assistant", "tool_calls": [
          {"function": {"name": "book", "arguments": MANY}}]}],
     {"tools": [TOOL2]}),
    ([*say(("user", "Hi")),
      {"role": "assistant", "reasoning_content": "I must", "content": None,
       "tool_calls": [{"id": "callnumb1", "type": "function", "function":
                       {"name": "weather", "arguments": {}}}]}],
     {"tools": [TOOL]}),
    ([*say(("user", "Hi")),
      {"role": "assistant", "content": "", "tool_calls": [
          {"type": "function", "id": "callnumb1", "function": {
              "name": "weather", "arguments": "{\"city\": \"Oslo\"}"}}]}],
     {"tools": [TOOL]}),
    (say(("user", "Hi"), ("assistant", "No.")), {"tools": [TOOL, TOOL2]}),
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


def in_json(value, key=None):
    if isinstance(value, dict):
        for k, v in value.items():
            yield from in_json(v, k)
    elif isinstance(value, list):
        for v in value:
            yield from in_json(v)
    elif key == "chat_template" and isinstance(value, str) and "{" in value:
        yield value


def templates(folder):
    """Name and text of each, once."""
    found = [(p.stem, p.read_text()) for p in sorted(folder.rglob("*.jinja"))]
    for path in sorted(folder.rglob("model/llm/models/*.json")):
        found += [(path.stem, t) for t in in_json(json.loads(path.read_text()))]
    seen = set()
    for name, text in found:
        if text.strip() not in seen:
            seen.add(text.strip())
            yield name, text


def write_all(folder, out):
    talks = [(t, {}) for t in TALKS + MORE] + WHOLE + PARTS + NAMES + CALLS
    with open(out, "w") as f:
        for name, template in templates(folder):
            config = {"chat_template": template,
                      "bos_token": "<s>", "eos_token": "</s>"}
            for talk, more in talks:
                text = render(talk, template, "<s>", "</s>", more)
                f.write(json.dumps({"name": name, "config": config,
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
