#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write kind_spm_*.model and kind_spm_*.txt: SentencePiece's own ids.

    pip install sentencepiece==0.2.3
    python3 make_spm.py [FOLDER COUNT]

Trained on licence texts.  The format and the arguments are make_kinds.py's;
bos is the only token around a text.  With a folder, a model that normalizes by
nmt_nfkc is written there as well: its map is too large to be kept here.
"""
import pathlib
import random
import sys

import sentencepiece

import make_kinds as kinds
import make_tokenizer as plain

here = pathlib.Path(__file__).parent
# what is replaced by what, as code points
RULES = """41 20 42\t61 62
c4\t61 65
2126\t3c9
9\t20
a\t20
61 301\te1
ff21\t41
ff21 ff22\t41 42
ad\t
"""
MODELS = {
    "spm_bpe": dict(model_type="bpe", byte_fallback=True,
                    normalization_rule_name="identity",
                    remove_extra_whitespaces=False),
    "spm_unigram": dict(model_type="unigram", rules=RULES,
                        user_defined_symbols=["<mask>", "License"]),
    "spm_bytes": dict(model_type="unigram", byte_fallback=True,
                      normalization_rule_name="identity",
                      add_dummy_prefix=False, remove_extra_whitespaces=True),
}
LARGE = {
    "spm_nfkc": dict(model_type="unigram",
                     normalization_rule_name="nmt_nfkc"),
    "spm_nfkc_bpe": dict(model_type="bpe", byte_fallback=True,
                         normalization_rule_name="nmt_nfkc_cf"),
}


def train(folder, name, rules=None, **how):
    lines = [line for text in plain.texts + kinds.FOREIGN
             for line in text.splitlines() if line.strip()]
    if rules is not None:
        tsv = folder / "rules.tsv"
        tsv.write_text(rules)
        how["normalization_rule_tsv"] = str(tsv)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), minloglevel=2, vocab_size=700,
        model_prefix=str(folder / ("kind_" + name)), hard_vocab_limit=False,
        character_coverage=0.999, **how)
    (folder / f"kind_{name}.vocab").unlink()
    if rules is not None:
        tsv.unlink()
    return sentencepiece.SentencePieceProcessor(
        model_file=str(folder / f"kind_{name}.model"))


def write(tok, path, texts):
    with open(path, "w") as out:
        for text in texts:
            if "\0" in text:
                continue  # ends a text there
            ids = " ".join(map(str, tok.encode(text)))
            out.write(f"{text.encode().hex()}\t{ids}\t"
                      f"{tok.bos_id()}{' ' if ids else ''}{ids}\n")


if __name__ == "__main__":
    for name, how in MODELS.items():
        tok = train(here, name, **how)
        rng = random.Random(len(name))
        write(tok, here / f"kind_{name}.txt",
              [*kinds.nasty(), "A B", "\u00c4\u2126\u2126", "a\u0301\uff21"
               "\uff21\uff22", " \t\n x \n ", "x\u00ady", "<mask>x <mask>",
               "License Licenses", "   ", *(kinds.any_text(rng, 60)
                                            for _ in range(60))])
        if len(sys.argv) == 3:
            write(tok, pathlib.Path(sys.argv[1]) / f"kind_{name}.txt",
                  (kinds.any_text(rng, 1000) for _ in range(int(sys.argv[2]))))
    for name, how in LARGE.items() if len(sys.argv) == 3 else ():
        folder = pathlib.Path(sys.argv[1])
        rng = random.Random(len(name))
        write(train(folder, name, **how), folder / f"kind_{name}.txt",
              [*kinds.nasty(), *(kinds.any_text(rng, 1000)
                                 for _ in range(int(sys.argv[2])))])
