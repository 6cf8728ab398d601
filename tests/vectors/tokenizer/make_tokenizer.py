#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train tiny.json and write the ids that Hugging Face gives to sample texts.

    pip install tokenizers==0.23.3
    python3 make_tokenizer.py

tiny.json is a byte-level BPE of 400 merges trained on licence texts.
vectors.txt has one case a line: the text as hex, a tab, the ids.
classes.txt lists each code point at which the class that the pattern splits
by changes ("L", "N", "S", "O"), asked of the package itself.
"""
import json
import pathlib
import random

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers

here = pathlib.Path(__file__).parent
licences = pathlib.Path("/usr/share/common-licenses")
texts = [(licences / n).read_text()
         for n in ("Apache-2.0", "GPL-3", "MPL-2.0", "Artistic")]


def train():
    tok = Tokenizer(models.BPE())
    level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.pre_tokenizer = level
    tok.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=256 + 400, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tok.add_special_tokens(["<|endoftext|>", "<|end|>"])
    tok.add_tokens([AddedToken("<|endof", normalized=True),
                    AddedToken("wörd", normalized=True),
                    AddedToken(" odd  token ", normalized=False)])
    return tok


def samples():
    yield from ["", "a", " ", "\n", "Hello, world!", " leading", "trailing ",
                "two  spaces", "three   spaces ", "tab\tand\nnewline\r\n",
                "\n\n\n  indented\n", " \t \n x", "   ", "x   ", "\u00a0x",
                "a\u3000\u3000b", "\u2028line\u2029", "\x85next", "\x1c\x1d a"]
    yield from ["it's we're I've he'll she'd I'm don't", "IT'S 'S 'sx ''s",
                "'", "''", "a'", "'r", "'re", "'ve'll", " 's", "x'lly"]
    yield from ["int main(void)\n{\n\treturn 0x1F + a[i++]; /* ok */\n}\n",
                "for (size_t i = 0; i < n; ++i) {\n    sum += x[i];\n}",
                "def f(x):\n    return x**2  # comment\n",
                "SELECT * FROM t WHERE a<>b;", "https://a.b/c?d=e&f#g"]
    yield from ["1234567890", "3.14159", "1,000,000", "v1.2.3-rc4",
                "\u00bd \u2167 \u0664\u0662 \U0001d7d8", "x2y", "2nd"]
    yield from ["na\u00efve caf\u00e9 \u00c5ngstr\u00f6m", "e\u0301 combining",
                "\u4f60\u597d\uff0c\u4e16\u754c\uff01", "\u65e5\u672c\u8a9e"
                "\u306e\u30c6\u30ad\u30b9\u30c8", "\ud55c\uad6d\uc5b4 \ud14d",
                "\u0645\u0631\u062d\u0628\u0627", "\u0928\u092e\u0938\u094d",
                "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
                "\U00031350\U0002ebf0 rare", "\U0001e5d0\U0001e5f1"]
    yield from ["\U0001f600\U0001f44d\U0001f3fd", "\U0001f468\u200d\U0001f469"
                "\u200d\U0001f467 family", "\U0001f1e9\U0001f1ea flag",
                "a\ufe0f\u20e3", "\ufeffbom", "\u180emongolian\u180e x",
                "\u200bzero\u200bwidth"]
    yield from ["<|endoftext|>", "a<|endoftext|>b", "<|endoftext|><|end|>",
                "<|endof", "<|endoftext", "x <|end|> y", "<|endoftext|>'s",
                "a  <|end|>  b", "a w\u00f6rd", "w\u00f6rdw\u00f6rdx",
                "an odd  token here", " odd  token  odd  token ",
                "<<|end|>|>", "'<|end|>s"]
    yield from ["a" * 300, "ab" * 100, "-" * 80, "=-" * 50, " " * 100 + "x",
                "the " * 40, "License" * 10, "\u0000\u0001\u007f"]
    for text in texts:
        yield text[1000:1400]


def random_samples(n):
    rng = random.Random(1)
    pool = ([chr(c) for c in range(128)] * 2 + list("     \n\n\t'''") * 8 +
            [chr(rng.choice([0x100, 0x370, 0x400, 0x600, 0x900, 0x2000,
                             0x2070, 0x3000, 0x4e00, 0xac00, 0xff00,
                             0x1f300, 0x10400, 0x16100]) + rng.randrange(200))
             for _ in range(300)] +
            ["the", " the", "ing", " of", "tion", "'re", "'ll", "<|end|>"])
    for _ in range(n):
        yield "".join(rng.choices(pool, k=rng.randrange(1, 60)))


def classes():
    level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    last = None
    for cp in [*range(0xd800), *range(0xe000, 0x110000)]:
        joined = [len(level.pre_tokenize_str(c + chr(cp))) == 1
                  for c in "a1!"]
        name = "LNO"[joined.index(True)] if any(joined) else "S"
        if name != last:
            yield f"{cp:x} {name}\n"
            last = name


if __name__ == "__main__":
    tok = train()
    data = json.loads(tok.to_str())
    as_text = dict(data, model=dict(data["model"], merges=[
        " ".join(m) for m in data["model"]["merges"]]))
    (here / "tiny.json").write_text(
        json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n")
    assert Tokenizer.from_str(json.dumps(as_text)).to_str() == tok.to_str()
    with open(here / "vectors.txt", "w") as out:
        for text in [*samples(), *random_samples(150)]:
            ids = tok.encode(text).ids
            out.write(text.encode().hex() + "\t" +
                      " ".join(map(str, ids)) + "\n")
    (here / "classes.txt").write_text("".join(classes()))
