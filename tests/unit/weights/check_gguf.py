#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_gguf.py - a file of GGUF holds the model of a Hugging Face folder in
fp32

    python3 check_gguf.py FOLDER FILE.gguf f32|f16|bf16|q8_0

Read by the package gguf (from PyPI); names are those of its own table,
numbers those that its own quantization makes of the folder's tensors.
"""
import json
import os
import re
import sys

import gguf
import numpy as np
from safetensors.numpy import load_file

folder, path, want = sys.argv[1:]
config = json.load(open(folder + "/config.json"))
reader = gguf.GGUFReader(path)
family = config["model_type"]
arch = {"mistral": "llama", "gpt_neox": "gptneox", "phi": "phi2",
        "gemma3_text": "gemma3", "mixtral": "llama", "qwen2_moe": "qwen2moe",
        "qwen3_moe": "qwen3moe"}.get(family, family)


def field(name):
    return reader.fields[name].contents()


assert field("general.architecture") == arch
kind = next(k for k, v in gguf.MODEL_ARCH_NAMES.items() if v == arch)
layers = config.get("num_hidden_layers", config.get("n_layer"))
heads = config.get("num_attention_heads", config.get("n_head"))
kv_heads = config.get("num_key_value_heads", heads)
hidden = config.get("hidden_size", config.get("n_embd"))
assert field(arch + ".block_count") == layers
assert field(arch + ".attention.head_count") == heads
assert field(arch + ".attention.head_count_kv") == kv_heads
assert field(arch + ".embedding_length") == hidden
if family != "gpt2":
    head = config.get("head_dim") or hidden // heads
    share = config.get("partial_rotary_factor",
                       config.get("rotary_pct", 0.25)
                       if family == "gpt_neox" else 1)
    assert field(arch + ".rope.dimension_count") == int(share * head)
for key, name in (("attention.scale", "attention_multiplier"),
                  ("embedding_scale", "embedding_multiplier"),
                  ("residual_scale", "residual_multiplier"),
                  ("logit_scale", "logits_scaling")):
    if family == "granite":
        np.testing.assert_allclose(field(arch + "." + key), config[name],
                                   rtol=1e-6)
if family in ("gpt_neox", "stablelm"):
    assert field(arch + ".use_parallel_residual") == \
        config.get("use_parallel_residual", family == "gpt_neox")
if family in ("gemma2", "gemma3_text"):
    assert field(arch + ".attention.sliding_window") == config["sliding_window"]
norm = "norm" if family in ("gpt2", "gpt_neox", "stablelm", "starcoder2",
                            "phi") else "norm_rms"
assert arch + ".attention.layer_%s_epsilon" % norm in reader.fields
table = gguf.get_tensor_name_map(kind, layers)
types = {t.lower(): gguf.GGMLQuantizationType[t]
         for t in ("F32", "F16", "BF16", "Q8_0")}


def pairs(w, n):
    """The rows of a head are (i, i + half) there, and (2i, 2i + 1) here."""
    return w.reshape(n, 2, w.shape[0] // n // 2, *w.shape[1:]).swapaxes(1, 2) \
            .reshape(w.shape)


PAIRED = ("llama", "granite", "arcee", "smollm3")
have = {t.name: t for t in reader.tensors}
weights, experts = {}, {}
for name, w in load_file(folder + "/model.safetensors").items():
    one = re.fullmatch(r"(.*\.experts\.)(\d+)\.(.*)", name)
    if one:
        experts.setdefault(one[1] + one[3], {})[int(one[2])] = w
    else:
        weights[name] = w.reshape(-1) if "shared_expert_gate" in name else w
for name, each in experts.items():
    weights[name] = np.stack([each[i] for i in range(len(each))])
    assert field(arch + ".expert_count") == len(each)
    assert field(arch + ".expert_used_count") == config["num_experts_per_tok"]
for name, w in weights.items():
    assert w.dtype == np.float32, name
    if family == "gpt2" and w.ndim == 2 and \
            (".attn." in name or ".mlp." in name):  # Conv1D
        w = np.ascontiguousarray(w.T)
    if arch in PAIRED and ".q_proj." in name:
        w = pairs(w, heads)
    if arch in PAIRED and ".k_proj." in name:
        w = pairs(w, kv_heads)
    if ".query_key_value." in name:
        w = w.reshape(heads, 3, -1, *w.shape[1:]).swapaxes(0, 1) \
             .reshape(w.shape)
    if family.startswith("gemma") and name.endswith("norm.weight"):
        w = w + 1
    there = table.get_name(name, try_suffixes=(".weight", ".bias"))
    assert there is not None, name
    t = have.pop(there)
    type_ = types["f32"]
    if w.ndim > 1 and "position_embd" not in there and \
            "ffn_gate_inp" not in there:
        type_ = types[want]
        if want == "q8_0" and w.shape[-1] % 32 != 0:
            type_ = types["f16"]
    assert t.tensor_type == type_, (there, t.tensor_type)
    assert tuple(t.shape) == tuple(reversed(w.shape)), (there, t.shape, w.shape)
    expected = gguf.quants.quantize(w, type_)
    assert np.array_equal(np.asarray(t.data).view(np.uint8).reshape(-1),
                          np.ascontiguousarray(expected).view(np.uint8)
                          .reshape(-1)), there
if "rope_freqs.weight" in have:
    t = have.pop("rope_freqs.weight")
    s = config["rope_scaling"]
    d = config.get("head_dim", hidden // heads)
    f = config["rope_theta"] ** -(np.arange(0, d, 2) / d)
    long = 2 * np.pi / f
    smooth = (s["original_max_position_embeddings"] / long -
              s["low_freq_factor"]) / (s["high_freq_factor"] -
                                       s["low_freq_factor"])
    smooth = np.clip(smooth, 0, 1)
    np.testing.assert_allclose(
        t.data, 1 / ((1 - smooth) / s["factor"] + smooth), rtol=1e-6)
assert not have, list(have)

tokens = field("tokenizer.ggml.tokens") \
    if field("tokenizer.ggml.model") != "none" else []
if tokens and not os.path.exists(folder + "/tokenizer.json"):
    import sentencepiece
    own = sentencepiece.SentencePieceProcessor(folder + "/tokenizer.model")
    n = own.get_piece_size()
    assert tokens[:n] == [own.id_to_piece(i) for i in range(n)]
    assert all(t == "[PAD%d]" % (n + i) for i, t in enumerate(tokens[n:]))
    np.testing.assert_array_equal(
        np.float32(field("tokenizer.ggml.scores")[:n]),
        np.float32([own.get_score(i) for i in range(n)]))
    kinds = [gguf.TokenType.UNKNOWN if own.is_unknown(i) else
             gguf.TokenType.CONTROL if own.is_control(i) else
             gguf.TokenType.BYTE if own.is_byte(i) else
             gguf.TokenType.NORMAL for i in range(n)]
    assert field("tokenizer.ggml.token_type")[:n] == kinds
    assert field("tokenizer.ggml.add_space_prefix") == \
        own.encode("x", out_type=str)[0].startswith("\u2581")
elif tokens:
    own = json.load(open(folder + "/tokenizer.json"))
    assert len(tokens) == config["vocab_size"]
    ids = dict(own["model"]["vocab"])
    ids.update({a["content"]: a["id"] for a in own["added_tokens"]})
    assert all(tokens[i] == text for text, i in ids.items())
    special = {a["id"] for a in own["added_tokens"] if a["special"]}
    kinds = field("tokenizer.ggml.token_type")
    unknown = own["model"].get("unk_token")
    assert {i for i, k in enumerate(kinds) if k == gguf.TokenType.CONTROL} == \
        special - {ids.get(unknown)}
    known = set(ids.values())
    assert all((kinds[i] == gguf.TokenType.UNUSED) == (i not in known)
               for i in range(len(kinds)))
    try:
        from tokenizers import Tokenizer
        text = Tokenizer.from_file(folder + "/tokenizer.json")
        bare = text.encode("x", add_special_tokens=False).ids
        whole = text.encode("x").ids
        begin = whole[:-len(bare)]
        assert begin + bare == whole
        assert field("tokenizer.ggml.add_bos_token") == bool(begin)
        assert not begin or begin == [field("tokenizer.ggml.bos_token_id")]
        assert not field("tokenizer.ggml.add_eos_token")
    except ImportError:
        pass
    merges = [m if isinstance(m, str) else " ".join(m)
              for m in own["model"]["merges"]]
    if field("tokenizer.ggml.model") == "gpt2":
        assert field("tokenizer.ggml.merges") == merges
    else:
        scores = field("tokenizer.ggml.scores")
        made = [ids[m.replace(" ", "")] for m in merges]
        order = [scores[i] for i in dict.fromkeys(made)]
        assert order == sorted(order, reverse=True)
        steps = json.dumps([own["normalizer"], own["pre_tokenizer"]])
        assert field("tokenizer.ggml.add_space_prefix") == \
            ('"Prepend"' in steps or "Metaspace" in steps)
print(family, want, len(reader.tensors), "tensors",
      field("tokenizer.ggml.model"),
      reader.fields["tokenizer.ggml.pre"].contents() if tokens else "")
