#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write kind_NAME.json and kind_NAME.txt of every kind of tokenizer.json.

    pip install tokenizers==0.23.3
    python3 make_kinds.py [FOLDER COUNT] [NAME...]

Each is what Hugging Face's tokenizers package trains on licence texts with the
normalizer, the pre-tokenizer, the template and the decoder that the family's
published file has.  kind_NAME.txt has one case a line, as vectors.txt of
make_tokenizer.py: the text as hex, a tab, the ids, and a second tab and ids
where the template adds some.  With a folder and a count, that many random
texts more, of a kilobyte each, are written there, for a longer comparison;
with names these kinds alone.  What is trained for Unigram is not the same
twice: its .json and its .txt are of one run.
"""
import json
import pathlib
import random
import sys

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models,
                        normalizers, pre_tokenizers, processors, trainers)

import make_tokenizer as plain

here = pathlib.Path(__file__).parent
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
FOREIGN = ["na\u00efve caf\u00e9 \u4f60\u597d \u65e5\u672c\u8a9e \u043c\u0438"
           "\u0440 \u0661\u0662 1234567 3.14 I'LL you'Re WE'VE \u00e9e\u0301 "
           "\n\n  \t x\r\n" * 20]


def split(pattern):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def trained(tok, size, alphabet, special=()):
    tok.train_from_iterator(plain.texts + FOREIGN, trainers.BpeTrainer(
        vocab_size=size, show_progress=False, initial_alphabet=alphabet,
        special_tokens=list(special)))
    return tok


def around(tok, before, after=()):
    names = [*before, "$A", *after]
    return processors.TemplateProcessing(
        single=" ".join(names), special_tokens=[
            (t, tok.token_to_id(t)) for t in {*before, *after}])


def byte_level(pre, size=256 + 300):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre
    tok.decoder = decoders.ByteLevel()
    return trained(tok, size, pre_tokenizers.ByteLevel.alphabet())


def llama3():
    data = json.loads(byte_level(split(LLAMA3)).to_str())
    # tokens that merges do not lead to are found whole
    data["model"]["ignore_merges"] = True
    vocab = data["model"]["vocab"]
    for word in ["Foundation", "\u0120Foundation", "123", "\u0120\u0120\u0120"]:
        vocab.setdefault(word, len(vocab))
    tok = Tokenizer.from_str(json.dumps(data))
    tok.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>"])
    tok.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        around(tok, ["<|begin_of_text|>"])])
    return tok


def qwen2():
    tok = byte_level(split(QWEN2))
    tok.normalizer = normalizers.NFC()
    tok.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tok.add_tokens([AddedToken("caf\u00e9", normalized=True)])
    return tok


def smollm():
    tok = byte_level(pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]))
    tok.add_special_tokens(["<|endoftext|>"])
    return tok


def prefix():
    """A blank in front, and every flag of added tokens."""
    tok = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True))
    tok.add_special_tokens([
        AddedToken("<mask>", lstrip=True, normalized=False),
        AddedToken("<pad>", rstrip=True, normalized=False),
        AddedToken("<both>", lstrip=True, rstrip=True, normalized=False)])
    tok.add_tokens([
        AddedToken("word", single_word=True, normalized=False),
        AddedToken("wordy", normalized=False),
        AddedToken("two  ", normalized=False),
        AddedToken("soft", single_word=True, lstrip=True, normalized=True)])
    return tok


BYTES = [f"<0x{b:02X}>" for b in range(256)]


def characters(tok, size=900):
    """Training knows no byte tokens: they are special for its time."""
    trained(tok, size, [], ["<unk>", "<s>", "</s>", *BYTES])
    data = json.loads(tok.to_str())
    data["added_tokens"] = [t for t in data["added_tokens"]
                            if t["content"] in ("<unk>", "<s>", "</s>")]
    data["model"].update(byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    tok = Tokenizer.from_str(json.dumps(data))
    tok.decoder = decoders.Sequence([
        decoders.Replace("\u2581", " "), decoders.ByteFallback(),
        decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tok.post_processor = around(tok, ["<s>"])
    return tok


def llama2():
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.Sequence([
        normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tok = characters(tok)
    tok.add_special_tokens([AddedToken("<|end|>", rstrip=True,
                                       normalized=False)])
    tok.add_tokens([AddedToken("<tool>", normalized=True)])
    return tok


def mistral():
    """The newer way of saying nearly the same."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first",
                                                 split=False)
    tok = characters(tok)
    tok.add_special_tokens(["[INST]", "[/INST]"])
    tok.post_processor = around(tok, ["<s>"], ["</s>"])
    return tok


def metaspace():
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always",
                                                 split=True)
    return characters(tok)


def gemma():
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.Replace(" ", "\u2581")
    tok.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tok = characters(tok)
    tok.decoder = decoders.Sequence([
        decoders.Replace("\u2581", " "), decoders.ByteFallback(),
        decoders.Fuse()])
    tok.add_tokens([AddedToken("\n\n", normalized=False),
                    AddedToken("\u2581\u2581\u2581", normalized=False)])
    return tok


def unknown():
    """Characters without bytes to fall back to."""
    tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tok.pre_tokenizer = pre_tokenizers.Metaspace()
    trained(tok, 400, [], ["<unk>"])
    tok.decoder = decoders.Metaspace()
    return tok


def unigram_trained(tok, size, special, **model):
    tok.train_from_iterator(plain.texts + FOREIGN, trainers.UnigramTrainer(
        vocab_size=size, show_progress=False, unk_token="<unk>",
        special_tokens=list(special)))
    data = json.loads(tok.to_str())
    data["model"].update(model)
    return data


def varint(data, at):
    value = shift = 0
    while True:
        byte, at = data[at], at + 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def field(data, number):
    """A protocol buffer's first field of that number that is bytes."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            _, at = varint(data, at)
            continue
        size = {1: 8, 5: 4}.get(key & 7)
        if size is None:
            size, at = varint(data, at)
        if key == number << 3 | 2:
            return data[at:at + size]
        at += size
    return b""


def charsmap(model):
    """The map of a SentencePiece model's normalizer."""
    return field(field(model.read_bytes(), 3), 2)


def unigram(model=here / "kind_spm_unigram.model"):
    """What T5's family asks for, with the map of make_spm.py's model."""
    tok = Tokenizer(models.Unigram())
    tok.normalizer = normalizers.Sequence([
        normalizers.Precompiled(charsmap(model)),
        normalizers.Strip(left=False, right=True),
        normalizers.Replace(Regex(" {2,}"), "\u2581")])
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(),
        pre_tokenizers.Metaspace(prepend_scheme="always", split=True)])
    data = unigram_trained(tok, 600, ["<pad>", "</s>", "<unk>"])
    # side by side unknown, and a token all the same
    data["model"]["vocab"].append(["\u4f60\u4f60", -60.0])
    tok = Tokenizer.from_str(json.dumps(data))
    tok.decoder = decoders.Metaspace(prepend_scheme="always", split=True)
    tok.post_processor = around(tok, [], ["</s>"])
    return tok


def unigram_bytes():
    """Bytes for what has no token, a blank where the text begins."""
    tok = Tokenizer(models.Unigram())
    tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first",
                                                 split=False)
    data = unigram_trained(tok, 500, ["<unk>", "<s>", "</s>"],
                           byte_fallback=True)
    data["model"]["vocab"] += [[b, -20.0] for b in BYTES]
    tok = Tokenizer.from_str(json.dumps(data))
    tok.decoder = decoders.Sequence([
        decoders.Replace("\u2581", " "), decoders.ByteFallback(),
        decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tok.post_processor = around(tok, ["<s>"])
    tok.add_tokens([AddedToken("<mask>", lstrip=True, normalized=False),
                    AddedToken("word", single_word=True, normalized=True)])
    return tok


def smollm2():
    """Bytes that the texts lack have no token, and there is no unknown one."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tok.decoder = decoders.ByteLevel()
    trained(tok, 300, [], ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    return tok


def form(normalizer):
    tok = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), 300)
    tok.normalizer = normalizer
    tok.add_tokens([AddedToken("caf\u00e9\ufb01", normalized=True)])
    return tok


def nfkc():
    return form(normalizers.NFKC())


def nfkd():
    return form(normalizers.Sequence([normalizers.NFKD(),
                                      normalizers.Strip()]))


def nfd():
    return form(normalizers.NFD())


def raw_bytes():
    """A vocabulary as of Latin-1 and ASCII, as torchtitan's tests have: of
    what ByteLevel makes of a text only printable ASCII is in it."""
    tok = Tokenizer(models.BPE())
    trained(tok, 400, [chr(b) for b in range(128)])
    data = json.loads(tok.to_str())
    vocab = data["model"]["vocab"]
    for b in range(128, 256):
        vocab[f"\\x{b:x}"] = len(vocab)
    tok = Tokenizer.from_str(json.dumps(data))
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.post_processor = processors.ByteLevel()
    tok.decoder = decoders.ByteLevel()
    tok.add_special_tokens(["<|endoftext|>"])
    return tok


def nul():
    """Characters, NUL among them, and none for those without a token."""
    tok = Tokenizer(models.BPE())
    tok.train_from_iterator(
        ["\0\7ab\0\0c", "\0\7 tab\tx \0\0"] * 20 + plain.texts,
        trainers.BpeTrainer(vocab_size=200, show_progress=False,
                            initial_alphabet=["\0"]))
    tok.add_tokens([AddedToken("x\0y", normalized=False)])
    return tok


def gpt_neox():
    """Runs of blanks are tokens, of composed characters."""
    tok = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))
    tok.normalizer = normalizers.NFC()
    tok.add_special_tokens(["<|endoftext|>", "<|padding|>"])
    tok.add_tokens([AddedToken(" " * n, normalized=True)
                    for n in range(24, 1, -1)])
    tok.post_processor = processors.ByteLevel(trim_offsets=True)
    return tok


KINDS = [llama3, qwen2, smollm, prefix, llama2, mistral, metaspace, gemma,
         unknown, unigram, unigram_bytes, smollm2, nfkc, nfkd, nfd,
         raw_bytes, nul, gpt_neox]


def nasty():
    yield from plain.samples()
    yield from ["I'LL you'Re WE'VE '\u017f 'T'd'M", "a\r\n\r\n  b\n c \n",
                "x\n\n", " \n", "\n ", "  \n  x", "--\n\n--", "?!\r\nx",
                " ?x", "\tx", "\u00a0x\u00a0 y", "\x85\x85x", "\u2028\n x",
                "12345", "1234567 89", "a1b22c333d4444", "\u0661\u0662\u0663"
                "\u0664x", "\u00bd\u00bd", "x\u0301y", "\u0301", " \u0301"]
    yield from ["e\u0301", "\u0065\u0323\u0302", "\u1ec7", "\u212b", "\u1100"
                "\u1161\u11a8", "\uac00\u11a8", "\uac01\u11a8", "\u0958",
                "\ufb1d \u2126", "q\u0307\u0323", "\u0344", "\u0f71\u0f74"
                "\u0f80", "a\u05ae\u0300\u0315b", "\U0001d15e", "\u0340\u0341",
                "\u1e9b\u0323", "cafe\u0301 caf\u00e9s", "\u3099\u304b\u3099",
                "x" + "\u0323\u0307" * 40 + "y", "\ufa0e\uf900"]
    yield from ["<mask>", "a <mask> b", "a  <mask>  b", "<pad>  x", " <pad> ",
                "a <both> b", "<both>  <both>", "  <mask>", "<mask><pad>",
                "word", "a word b", "words", "sword", "word,word", "wordy",
                "word\u0301", "_word", "9word", "\u00e9word", "two  two   x",
                "a  soft x", "soft", "softly", "a\u2003<mask>\u2003b",
                "<pad> two  x"]
    yield from ["<s>", "</s>x", "<unk>", "a <s> b", "<0x0A>", "\u2581",
                " \u2581 x", "x\u2581y", "<tool>", " <tool> x", "a<tool>",
                "<|end|>  x", "[INST] x [/INST]", "[INST]x", "x [INST]",
                "   three", "\n\n\n", "\u4f60\u4f60\u4f60 \U0001f600",
                "\u0000\u0007", "tab\tx", "a\u2581\u2581\u2581b",
                "<|im_start|>user\nhi<|im_end|>\n", "<|begin_of_text|>x",
                "Foundation Foundation Foundations 123 1234    x"]


def compatible():
    yield from ["\ufb01 \ufb03x", "\uff21\uff22 \uff76\uff9e", "\u00bd\u00b2",
                "\u2460\u3392", "\ufdfa", "\u1e9b\u0323", "a\u00a0b",
                "\u0132\u0301", "caf\u00e9\ufb01 cafe\u0301fi", "\u2003x ",
                "\ufb01\u0301", "\uffe3\u0301", "\u00a8\u0301", "\u00b4",
                "\u2fa1d", "\U0001d400", "\U0001f100", "\u00e9\u00c5\u1ec7"]


def graphemes():
    """What one reads as a character, of less than six bytes and of more."""
    yield from ["A B", "A\u0301 B", "a\u0301x", "xa\u0301\u0301", "\uff21\u0301",
                "\uff21\u0323\u0301", "\u00c4\u0301\u0301", "\t\u0301",
                "\r\n", "a\r\nb", "\n\r", "\u2126\u200d\u2126", "x\u00ad\u0301y",
                "\u00ad", "\u00a9\u200d\u00a9\u0301", "\u0600A\u0301",
                "\u1100\u0301", "\u0915\u094d\u0937\u0301",
                "\U0001f1e9\U0001f1ea\U0001f1eb", "\uac00\u11a8\u0301"]


def write(tok, path, texts):
    with open(path, "w") as out:
        for text in texts:
            ids = tok.encode(text, add_special_tokens=False).ids
            whole = tok.encode(text).ids
            line = [text.encode().hex(), " ".join(map(str, ids))]
            if whole != ids:
                line.append(" ".join(map(str, whole)))
            out.write("\t".join(line) + "\n")


def any_text(rng, bytes_wanted):
    """Scalars of all planes, many that normalize, most of them not letters."""
    pools = [range(0x20, 0x7f), range(0x80, 0x250), range(0x300, 0x370),
             range(0x370, 0x600), range(0x900, 0xe00), range(0x1100, 0x1200),
             range(0x1e00, 0x2000), range(0x2000, 0x2100),
             range(0x3000, 0x3100), range(0x4e00, 0x9fff),
             range(0xac00, 0xd7a4), range(0xf900, 0xfb00),
             range(0x1d100, 0x1d200), range(0x1f300, 0x1f700),
             range(0x0, 0xd800), range(0xe000, 0x110000)]
    words = [" the", " ", "  ", "\n", "\r\n", "'ll", "'S", " word ", "123",
             "<mask>", "<s>", "\u2581", "e\u0301", "License", " soft "]
    out, n = [], 0
    while n < bytes_wanted:
        pool = rng.choice(pools)
        part = rng.choice(words) if rng.random() < 0.4 else "".join(
            chr(rng.choice(pool)) for _ in range(rng.randrange(1, 6)))
        out.append(part)
        n += len(part.encode())
    return "".join(out)


if __name__ == "__main__":
    more = sys.argv[1:3] if sys.argv[2:] and sys.argv[2].isdigit() else []
    wanted = sys.argv[1 + len(more):]
    for make in KINDS:
        if wanted and make.__name__ not in wanted:
            continue
        tok = make()
        name = make.__name__
        (here / f"kind_{name}.json").write_text(
            json.dumps(json.loads(tok.to_str()), ensure_ascii=False,
                       separators=(",", ":")) + "\n")
        rng = random.Random(len(name))
        cases = [*nasty(), *(any_text(rng, 60) for _ in range(60))]
        if name.startswith("nf"):
            cases += compatible()
        if name == "nul":
            cases += ["x\0y", "a\0b\0\0c", "\0", "x\0", "\0\7", "\u4f60a"]
        if name.startswith("unigram"):
            cases += graphemes()
        write(tok, here / f"kind_{name}.txt", cases)
        if more:
            write(tok, pathlib.Path(more[0]) / f"kind_{name}.txt",
                  (any_text(rng, 1000) for _ in range(int(more[1]))))
