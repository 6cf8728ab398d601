# SPDX-License-Identifier: Apache-2.0
# links.sh - what the benchmarks on slow links begin with; they source it
#
# Given: $vocab, the model's vocabulary, and the script's own arguments.  With
# --builddir DIR the script runs again in a sandbox of $nodes nodes, two if that
# is not said, with links of $gbit Gbit/s; there, a model and data are made in
# $tmp.
# shellcheck shell=bash
name=${0##*/} gbit=0.5
if [ "${1-}" = --builddir ]; then
    merak=$(cd "$2" && pwd)/cmd/merak
    [ -x "$merak" ] || { echo "$name: no $merak" >&2; exit 2; }
    exec "$merak" sandbox --nodes "${nodes:-2}" --link-gbit "$gbit" -- "$0"
fi
command -v merak >/dev/null && [ -n "${SLURM_CONF-}" ] ||
    { echo "$name: give --builddir DIR" >&2; exit 2; }

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cat >"$tmp/model.json" <<END
{"model_type": "gpt2", "n_embd": 512, "n_layer": 4, "n_head": 8,
 "n_positions": 256, "vocab_size": $vocab, "activation_function": "gelu_new",
 "embd_pdrop": 0, "resid_pdrop": 0, "attn_pdrop": 0,
 "tie_word_embeddings": false}
END
seq 40000 >"$tmp/text"
merak data pack --tokenizer byte --out "$tmp/data" "$tmp/text" >/dev/null

median()
{
    sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

calc()
{
    awk "BEGIN { printf \"%.1f\", $* }"
}

# Milliseconds of a step from $tmp/metrics: the median, the first left out.
median_step()
{
    sed -n 's/.*"step_s": \([0-9.]*\).*/\1/p' "$tmp/metrics" | tail -n +2 |
        awk '{ print $1 * 1000 }' | median
}
