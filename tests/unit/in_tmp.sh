# SPDX-License-Identifier: Apache-2.0
# in_tmp.sh - for unit tests that run merak in a folder of their own; sourced by
# bash from the build directory of tests/
merak=$(cd ../cmd && pwd)/merak

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
# One thread each, unless a test says how many: others would wait, spinning,
# for a core that the test beside this one has.
export SLURM_CPUS_PER_TASK=1

# A llama of two layers.
small_llama()
{
    cat <<'JSON'
{"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 2,
 "num_key_value_heads": 1, "hidden_size": 16, "intermediate_size": 32,
 "vocab_size": 257, "max_position_embeddings": 64, "hidden_act": "silu",
 "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false}
JSON
}
