#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run_gguf.sh - exports to GGUF, read by the package gguf of PyPI
#
# Run from the build directory of tests/.  MERAK_TEST_PYTHON is a python3 with
# gguf and safetensors; without one the files are only written.

set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
. "$here/tap.sh"
kinds=$here/../vectors/tokenizer
python=${MERAK_TEST_PYTHON:-python3}
reads=
"$python" -c 'import gguf, safetensors' 2>/dev/null && reads=yes

. "$here/in_tmp.sh"
seq 3000 >x.txt
"$merak" data pack --tokenizer byte --out d x.txt >/dev/null

shape='"num_hidden_layers": 2, "num_attention_heads": 4,
 "num_key_value_heads": 2, "hidden_size": 64, "intermediate_size": 96,
 "vocab_size": 1000, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
 "rope_theta": 10000.0, "pad_token_id": null'
untied='"tie_word_embeddings": false'

# trained NAME TOKENIZER JSON: a run of one step, and its Hugging Face folder
trained()
{
    mkdir "$1"
    echo "$3" >"$1/config.json"
    case $2 in
    '') ;;
    spm_*) cp "$kinds/kind_$2.model" "$1/tokenizer.model" ;;
    *) cp "$kinds/kind_$2.json" "$1/tokenizer.json" ;;
    esac
    echo '{"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}' \
        >"$1/tokenizer_config.json"
    "$merak" train --data d --seq 32 --model "$1" --ckpt "$1-run" --steps 1 \
        >log 2>&1 &&
        "$merak" ckpt export "$1-run" --format hf --out "$1-hf" >>log 2>&1
}

# writes NAME TOKENIZER JSON [TYPE..]: in these types
writes()
{
    local dtype all=0 types=("${@:4}")

    [ $# -gt 3 ] || types=(q8_0)
    trained "$@" || all=1
    for dtype in "${types[@]}"; do
        "$merak" ckpt export "$1-run" --format gguf --dtype $dtype \
            --out "$1-$dtype" >>log 2>&1 &&
            [ "$(head -c 4 "$1-$dtype/model.gguf")" = GGUF ] || all=1
        [ -z "$reads" ] || "$python" "$here/weights/check_gguf.py" "$1-hf" \
            "$1-$dtype/model.gguf" "${dtype/fp/f}" >>log 2>&1 || all=1
    done
    if [ -n "$reads" ] || [ $all -ne 0 ]; then
        ok $all "$1 in ${types[*]}" log
    else
        n=$((n + 1))
        echo "ok $n - $1 is written # SKIP not read: no python3 with gguf" \
            "and safetensors (MERAK_TEST_PYTHON)"
    fi
}

# refuses TEXT NAME JSON
refuses()
{
    trained "$2" "" "$3"
    ! "$merak" ckpt export "$2-run" --format gguf --out "$2-gguf" >log 2>&1 &&
        grep -qF -- "$1" log && [ ! -e "$2-gguf" ]
    ok $? "refused: $1" log
}

writes llama llama3 '{"model_type": "llama", "attention_bias": true,
 "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
  "high_freq_factor": 4.0, "original_max_position_embeddings": 32},
 '"$shape, $untied}" fp32 fp16 bf16 q8_0
writes mistral llama2 '{"model_type": "mistral", "sliding_window": null,
 '"$shape, $untied}"
writes pieces spm_bpe "{\"model_type\": \"mistral\", \"sliding_window\": null,
 $shape, $untied}"
writes qwen2 qwen2 "{\"model_type\": \"qwen2\", $shape, $untied}"
writes qwen3 qwen2 "{\"model_type\": \"qwen3\", \"head_dim\": 32, $shape,
 $untied}"
writes phi3 llama2 "{\"model_type\": \"phi3\", $shape, $untied}"
writes olmo2 smollm "{\"model_type\": \"olmo2\", $shape, $untied}"
writes gemma2 gemma '{"model_type": "gemma2", "head_dim": 16,
 "query_pre_attn_scalar": 16, "sliding_window": 32, '"$shape}"
writes gemma gemma "{\"model_type\": \"gemma\", \"head_dim\": 16, $shape}"
writes gemma3_text gemma '{"model_type": "gemma3_text", "head_dim": 32,
 "query_pre_attn_scalar": 32, "sliding_window": 32, '"$shape}"
writes arcee llama3 "{\"model_type\": \"arcee\", $shape, $untied}"
writes granite smollm2 '{"model_type": "granite", "embedding_multiplier": 12.0,
 "attention_multiplier": 0.1, "residual_multiplier": 0.22,
 "logits_scaling": 8.0, '"$shape, $untied}"
writes smollm3 llama3 '{"model_type": "smollm3", "no_rope_layers": [1, 1],
 '"$shape, $untied}"
writes stablelm qwen2 '{"model_type": "stablelm", "use_qkv_bias": true,
 "partial_rotary_factor": 0.25, '"$shape, $untied}"
writes starcoder2 smollm2 '{"model_type": "starcoder2", "sliding_window": null,
 '"$shape}"
writes phi smollm2 '{"model_type": "phi", "partial_rotary_factor": 0.5,
 '"$shape, $untied}"
writes gpt_neox gpt_neox '{"model_type": "gpt_neox", "num_hidden_layers": 2,
 "num_attention_heads": 4, "hidden_size": 64, "intermediate_size": 96,
 "vocab_size": 1000, "max_position_embeddings": 64, "pad_token_id": null,
 "hidden_act": "gelu", "use_parallel_residual": false}'
routed='"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32'
writes mixtral llama2 '{"model_type": "mixtral", "num_local_experts": 4,
 "num_experts_per_tok": 2, "sliding_window": null, '"$shape, $untied}"
writes qwen2_moe qwen2 "{\"model_type\": \"qwen2_moe\", $routed,
 \"norm_topk_prob\": false, \"shared_expert_intermediate_size\": 96,
 \"use_sliding_window\": false, $shape, $untied}" fp32 q8_0
writes qwen3_moe qwen2 "{\"model_type\": \"qwen3_moe\", $routed,
 \"norm_topk_prob\": true, \"head_dim\": 32, $shape, $untied}"
writes olmoe smollm "{\"model_type\": \"olmoe\", \"num_experts\": 4,
 \"num_experts_per_tok\": 2, \"norm_topk_prob\": false,
 ${shape/value_heads\": 2/value_heads\": 4}, $untied}"
# rows of 48 are no blocks of 32
writes gpt2 smollm2 '{"model_type": "gpt2", "n_layer": 2, "n_head": 2,
 "n_embd": 48, "vocab_size": 1000, "n_positions": 64}' q8_0 bf16

cp -r pieces-run unigram-run
cp "$kinds/kind_spm_unigram.model" unigram-run/model/tokenizer.model
! "$merak" ckpt export unigram-run --format gguf --out none >log 2>&1 &&
    grep -qF "tokenizer.model is of Unigram, which it cannot say" log
ok $? "refused: pieces of Unigram" log
refuses "the family olmo3 cannot be written" olmo3 \
    "{\"model_type\": \"olmo3\", $shape, $untied}"
refuses "its way of weighing experts" weighed "{\"model_type\": \"qwen3_moe\",
 $routed, \"norm_topk_prob\": false, \"head_dim\": 32, $shape, $untied}"
refuses "a layer without experts" dense "{\"model_type\": \"qwen3_moe\", $routed,
 \"mlp_only_layers\": [1], \"norm_topk_prob\": true, \"head_dim\": 32, $shape,
 $untied}"
refuses "its rotary positions of some layers" turned '{"model_type": "smollm3",
 "no_rope_layers": [1, 0], '"$shape, $untied}"
refuses "its window of attention of this model cannot be written for llama" \
    window "{\"model_type\": \"mistral\", \"sliding_window\": 16, $shape,
 $untied}"
refuses "its scaling of rotary positions" yarn '{"model_type": "llama",
 "rope_scaling": {"rope_type": "yarn", "factor": 2.0,
  "original_max_position_embeddings": 32}, '"$shape, $untied}"
! "$merak" ckpt export gpt2-run --format hf --dtype q8_0 --out none >log 2>&1 &&
    grep -qF -- "--dtype q8_0 is of --format gguf, not hf" log
ok $? "q8_0 is of GGUF" log
cp "$kinds/kind_unigram.json" qwen2-run/model/tokenizer.json
! "$merak" ckpt export qwen2-run --format gguf --out none >log 2>&1 &&
    grep -qF "has a model other than BPE" log
ok $? "a tokenizer that GGUF cannot say is refused" log
echo "1..$n"
