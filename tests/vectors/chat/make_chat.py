#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write chat.jsonl: conversations as chat templates make them.

    pip install transformers==5.23.0 jinja2
    python3 make_chat.py

The templates are short ones of our own, which make the same text of messages as
those that models are published with, of the same special tokens; they are run
by transformers.  A line has the template's tokenizer_config.json, the name that
`merak data pack --chat` has for it, messages, the text, and what of it are
answers.
"""
import json
import pathlib

from transformers.utils.chat_template_utils import render_jinja_template

LOOP = "{% for message in messages %}"
END = "{% endfor %}"
SAID = "message['content']"


def turns(system, user, answer, said=SAID):
    """One expression a role: before and behind what is said."""
    def case(role, pair):
        return ("message['role'] == '%s' %%}{{ %s + %s + %s }}"
                % (role, pair[0], said, pair[1]))
    return (LOOP + "{% if " + case("system", system) + "{% elif " +
            case("user", user) + "{% elif " + case("assistant", answer) +
            "{% endif %}" + END)


def chatml(sentence):
    return (LOOP + "{% if loop.first and message['role'] != 'system' %}"
            "{{ '<|im_start|>system\\n" + sentence + "<|im_end|>\\n' }}"
            "{% endif %}{{ '<|im_start|>' + message['role'] + '\\n' + " +
            SAID + " + '<|im_end|>' + '\\n' }}" + END)


HEADER = "'<|start_header_id|>%s<|end_header_id|>\\n\\n'"
LLAMA3 = ("{{ bos_token }}" + turns(
    *((HEADER % r, "'<|eot_id|>'") for r in ("system", "user", "assistant")),
    said="(message['content'] | trim)"))
LLAMA31 = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
    "{% set system = messages[0]['content'] | trim %}"
    "{% set messages = messages[1:] %}{% else %}{% set system = '' %}"
    "{% endif %}{{ " + HEADER % "system" + " }}"
    "{{ 'Cutting Knowledge Date: December 2023\\n' }}"
    "{{ 'Today Date: 26 Jul 2024\\n\\n' }}{{ system + '<|eot_id|>' }}" +
    LOOP + "{{ '<|start_header_id|>' + message['role'] + "
    "'<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}" +
    END)
QWEN3 = (
    "{% set reasoning_content = '' %}" + LOOP +
    "{{ '<|im_start|>' + message['role'] + '\\n' }}"
    "{% if message['role'] == 'assistant' and loop.last %}"
    "{{ '<think>\\n' + reasoning_content + '\\n</think>\\n\\n' }}{% endif %}"
    "{{ " + SAID + " + '<|im_end|>\\n' }}" + END)
GEMMA = (
    "{{ bos_token }}" + LOOP +
    "{% if message['role'] == 'assistant' %}{% set role = 'model' %}"
    "{% else %}{% set role = message['role'] %}{% endif %}"
    "{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + "
    "'<end_of_turn>\\n' }}" + END)
GEMMA3 = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
    "{% set first_user_prefix = messages[0]['content'] + '\\n\\n' %}"
    "{% set messages = messages[1:] %}{% else %}"
    "{% set first_user_prefix = '' %}{% endif %}" + LOOP +
    "{{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else "
    "'user') + '\\n' + (first_user_prefix if loop.first else '') + "
    "message['content'] | trim + '<end_of_turn>\\n' }}" + END)
PHI3 = turns(*(("'<|%s|>\\n'" % r, "'<|end|>\\n'")
               for r in ("system", "user", "assistant"))) + "{{ eos_token }}"
ZEPHYR = turns(*(("'<|%s|>\\n'" % r, "eos_token + '\\n'")
                 for r in ("system", "user", "assistant")))
LLAMA2 = (
    "{% if messages[0]['role'] == 'system' %}{% set system = '<<SYS>>\\n' + "
    "messages[0]['content'] + '\\n<</SYS>>\\n\\n' %}"
    "{% set messages = messages[1:] %}{% else %}{% set system = '' %}"
    "{% endif %}" + LOOP + "{% if message['role'] == 'user' %}"
    "{{ bos_token + '[INST] ' + (system if loop.first else '') + "
    "message['content'].strip() + ' [/INST]' }}{% else %}"
    "{{ ' ' + message['content'].strip() + ' ' + eos_token }}{% endif %}" + END)
MISTRAL = (
    "{{ bos_token }}" + LOOP + "{% if message['role'] == 'user' %}"
    "{{ '[INST] ' + message['content'] + ' [/INST]' }}{% else %}"
    "{{ message['content'] + eos_token }}{% endif %}" + END)
MISTRAL3 = (
    "{% if messages[0]['role'] == 'system' %}"
    "{% set system_message = messages[0]['content'] + '\\n\\n' %}"
    "{% set messages = messages[1:] %}{% else %}{% set system_message = '' %}"
    "{% endif %}{{ bos_token }}" + LOOP +
    "{% if message['role'] == 'user' %}{{ '[INST] ' + "
    "(system_message if loop.last or loop.index == messages | length - 1 else "
    "'') + message['content'] + '[/INST]' }}{% else %}"
    "{{ ' ' + message['content'] + eos_token }}{% endif %}" + END)

S = {"bos_token": "<s>", "eos_token": "</s>"}
# name, template, tokens, ends of answers, trims, takes a system's message
CASES = [
    ("chatml", chatml("You are Someone, made by us."),
     {"bos_token": None, "eos_token": "<|im_end|>"}, "<|im_end|>", False, True),
    ("chatml", chatml("Be brief."),
     {"bos_token": {"content": "<|im_start|>"}}, "<|im_end|>", False, True),
    ("chatml", "{{ bos_token }}" + LOOP + "{{ '<|im_start|>' + message['role']"
     " + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}" + END, S,
     "<|im_end|>", False, True),
    ("qwen3", QWEN3, {"eos_token": "<|im_end|>"}, "<|im_end|>", False, True),
    ("llama3", LLAMA3, {"bos_token": "<|begin_of_text|>"}, "<|eot_id|>", True,
     True),
    ("llama3.1", LLAMA31, {"bos_token": "<|begin_of_text|>"}, "<|eot_id|>",
     True, True),
    ("gemma", GEMMA, {"bos_token": "<bos>"}, "<end_of_turn>", True, False),
    ("gemma", GEMMA3, {"bos_token": "<bos>"}, "<end_of_turn>", True, True),
    ("phi3", PHI3, {"bos_token": "<s>", "eos_token": "<|endoftext|>"},
     "<|end|>", False, True),
    ("zephyr", ZEPHYR, S, "</s>", False, True),
    ("llama2", LLAMA2, S, " </s>", True, True),
    ("mistral", MISTRAL, S, "</s>", False, False),
    ("mistral", MISTRAL3, S, "</s>", False, True),
]


def say(*pairs):
    return [{"role": r, "content": c} for r, c in pairs]


TALKS = [
    say(("user", "Hi"), ("assistant", "Hello!")),
    say(("user", "  two\nlines "), ("assistant", " na\u00efve \u4f60 "),
        ("user", "and?"), ("assistant", "")),
    say(("system", "Speak Dutch."), ("user", "Hi"), ("assistant", "Hoi"),
        ("user", "[bye]"), ("assistant", "Doei\n")),
]


def main():
    out = pathlib.Path(__file__).parent / "chat.jsonl"
    with open(out, "w") as f:
        for name, template, tokens, end, trims, system in CASES:
            for talk in TALKS:
                if talk[0]["role"] == "system" and not system:
                    continue
                words = {k: (v["content"] if isinstance(v, dict) else v) or ""
                         for k, v in tokens.items()}
                text = render_jinja_template(
                    [talk], chat_template=template, **words)[0][0]
                said = [m["content"] for m in talk if m["role"] == "assistant"]
                answers = [(s.strip() if trims else s) + end for s in said]
                assert all(a in text for a in answers)
                f.write(json.dumps({
                    "name": name, "config": {"chat_template": template,
                                             **tokens},
                    "messages": talk, "text": text, "answers": answers}) + "\n")


if __name__ == "__main__":
    main()
