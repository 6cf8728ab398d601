#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write adapters as PEFT saves them: peft-NAME.json is adapter_config.json,
peft-NAME.safetensors its tensors, peft-NAME-model.json the model's config.json.

Element i of A of a module is (i mod 97) / 97, of B (i mod 89) / 89, as float32.

Run it in this folder; it needs PyTorch, transformers 5 and peft.
"""

import os
import shutil
import tempfile

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

SHAPE = dict(num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
             hidden_size=16, intermediate_size=24, vocab_size=32,
             max_position_embeddings=32, pad_token_id=None, bos_token_id=0,
             eos_token_id=1)
FOLDERS = {
    # qkv_proj and gate_up_proj are modules of several weights
    "phi3": ("phi3", SHAPE, dict(r=3, lora_alpha=6, lora_dropout=0.1,
                                 target_modules="all-linear")),
    "llama": ("llama", SHAPE, dict(r=2, lora_alpha=5,
                                   target_modules=["q_proj", "down_proj"],
                                   layers_to_transform=[1])),
    "gpt2": ("gpt2", dict(n_layer=1, n_head=2, n_embd=8, vocab_size=32,
                          n_positions=16, bos_token_id=0, eos_token_id=1),
             dict(r=2, lora_alpha=2, target_modules=["c_attn"],
                  fan_in_fan_out=True)),
}

for name, (family, shape, lora) in FOLDERS.items():
    config = AutoConfig.for_model(family, **shape)
    model = get_peft_model(AutoModelForCausalLM.from_config(config),
                           LoraConfig(task_type="CAUSAL_LM", **lora))
    with torch.no_grad():
        for key, p in model.named_parameters():
            n = 97 if "lora_A" in key else 89
            if "lora_" in key:
                p.copy_((torch.arange(p.numel()) % n / n).reshape(p.shape))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        config.save_pretrained(folder)
        for old, new in (("adapter_config.json", ".json"),
                         ("adapter_model.safetensors", ".safetensors"),
                         ("config.json", "-model.json")):
            shutil.copyfile(os.path.join(folder, old), "peft-" + name + new)
