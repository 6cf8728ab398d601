#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""List what transformers reads of config.json, for each family: fields.json.

For each family:
    defaults  what transformers writes into a file with nothing but a model_type
    reads     the fields that its code for the family reads: those that the
              configuration class declares, those that the family's modeling
              file names, and those that are looked up by any other code while
              a small model is made, and its loss and gradients computed
and for all of them:
    common    the fields of any file that the base class of configurations
              declares or takes out by name, those that choose the weights, and
              those of generation, which it passes over
    rope      the fields of rope_parameters

test_hf_fields.c holds Merak against it: a field in these lists is used, refused
by name, or known to change no number; any other is named and passed over.
Run it in this folder; it needs PyTorch and transformers 5.
"""

import dataclasses
import inspect
import json
import re
import sys

import torch
import transformers
from transformers import (AutoConfig, AutoModelForCausalLM,
                          AutoModelForMaskedLM, AutoModelForSeq2SeqLM,
                          GenerationConfig, PreTrainedConfig,
                          configuration_utils, modeling_rope_utils)
from transformers.modeling_rope_utils import RotaryEmbeddingConfigMixin
from transformers.utils import generic

FAMILIES = ["gpt2", "llama", "qwen2", "qwen3", "mistral", "phi3", "olmo2",
            "gemma2", "gemma", "gemma3_text", "arcee", "granite", "smollm3",
            "olmo3", "stablelm", "starcoder2", "phi", "gpt_neox",
            "deepseek_v3", "gpt_oss", "bert", "t5"]
# Of what is not trained on the next token.
MODELS = {"bert": AutoModelForMaskedLM, "t5": AutoModelForSeq2SeqLM}
SMALL = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 16,
         "num_hidden_layers": 2, "num_attention_heads": 2,
         "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 0,
         "eos_token_id": 0, "decoder_start_token_id": 0}
NAMED = r"config\.([a-z_0-9]+)|attr\((?:self\.)?config, \"([a-z_0-9]+)\""
POPPED = r"kwargs\.(?:pop|get)\(\"([a-z_0-9]+)\"|attr\(self, \"([a-z_0-9]+)\""
IN_ROPE = (r"rope_parameters(?:_dict)?(?:\[|\.get\(|\.pop\(|\.setdefault\()"
           r"\"([a-z_0-9]+)\"")


def names_in(pattern, text):
    return {a for match in re.findall(pattern, text)
            for a in ([match] if isinstance(match, str) else match) if a}


def fields_only(names, cls):
    """Without what a file cannot set: methods, and names of its own."""
    keep = {f.name for f in dataclasses.fields(cls)} | set(cls.attribute_map)
    return {n for n in names if not n.startswith("_") and
            (n in keep or not hasattr(cls, n) or
             getattr(getattr(cls, n), "fset", None) is not None)}


def looked_up(family):
    """The fields that code looks up while a small model computes a step."""
    config = AutoConfig.for_model(family, **SMALL)
    names, plain = set(), PreTrainedConfig.__getattribute__

    def noting(self, name):
        file = sys._getframe(1).f_code.co_filename
        if file not in (configuration_utils.__file__, generic.__file__):
            names.add(name)
        return plain(self, name)

    PreTrainedConfig.__getattribute__ = noting
    model = MODELS.get(family, AutoModelForCausalLM).from_config(config).train()
    ids = torch.arange(8).reshape(1, 8)
    model(ids, labels=ids).loss.backward()
    PreTrainedConfig.__getattribute__ = plain
    return names


def of_family(family):
    cls = type(AutoConfig.for_model(family))
    modeling = inspect.getmodule(
        MODELS.get(family, AutoModelForCausalLM)._model_mapping[cls]).__file__
    declared = {f.name for f in dataclasses.fields(cls)
                if f.name in cls.__annotations__} | set(cls.attribute_map)
    with open(modeling) as f:
        named = names_in(NAMED, f.read())
    config = cls().to_dict()
    if "rope_parameters" in config:
        named |= names_in(POPPED,
                          inspect.getsource(RotaryEmbeddingConfigMixin))
    return {"defaults": config,
            "reads": sorted(fields_only(
                declared | named | looked_up(family), cls))}


def common():
    text = inspect.getsource(PreTrainedConfig.__post_init__)
    declared = {f.name for f in dataclasses.fields(PreTrainedConfig)}
    return sorted(fields_only(
        declared | names_in(POPPED, text) -
        {"rope_scaling", "rope_theta", "rope_parameters"} |
        {"auto_map", "quantization_config", "transformers_weights"} |
        set(GenerationConfig._get_default_generation_params()),
        PreTrainedConfig))


def rope():
    names = names_in(IN_ROPE, inspect.getsource(modeling_rope_utils))
    for family in FAMILIES:
        cls = type(AutoConfig.for_model(family))
        names |= names_in(IN_ROPE, inspect.getsource(cls))
    return sorted(names)


if __name__ == "__main__":
    torch.manual_seed(0)
    out = {"transformers": transformers.__version__, "common": common(),
           "rope": rope(), "families": {f: of_family(f) for f in FAMILIES}}
    with open("fields.json", "w") as f:
        json.dump(out, f, indent=4, sort_keys=True)
        f.write("\n")
