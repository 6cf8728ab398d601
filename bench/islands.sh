#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# islands.sh - steps over slow links between islands, predicted and measured
#
#   islands.sh --builddir DIR [emu|cpu]      (root, for merak sandbox --links)
#
# Two islands of two nodes each, one rank a node.  Their way carries 8 MB/s in
# each direction, a node's link 50 MB/s.  A byte GPT, its compute emulated (cpu:
# real, predicted by what `merak calibrate` measures there); what is sent is
# real.  `merak plan --links` makes and predicts the plans, srun places ranks by
# them.  Prints Markdown; exit code 1 if a prediction is off by more than 15 %.
set -eu
name=${0##*/} steps=5
if [ "${1-}" = --builddir ]; then
    merak=$(cd "$2" && pwd)/cmd/merak
    [ -x "$merak" ] || { echo "$name: no $merak" >&2; exit 2; }
    tmp=$(mktemp -d)
    trap 'rm -rf "$tmp"' EXIT
    cat >"$tmp/sites.json" <<'END'
{"islands": [{"name": "a", "nodes": "n[1-2]"}, {"name": "b", "nodes": "n[3-4]"}],
 "between": [["a", "b", {"bytes_per_s": 8e6, "latency_s": 2e-4}]]}
END
    "$merak" sandbox --links "$tmp/sites.json" --link-gbit 0.4 -- \
        "$0" "$tmp" "${3:-emu}"
    exit
fi
[ -n "${SLURM_CONF-}" ] || { echo "$name: give --builddir DIR" >&2; exit 2; }
tmp=$1 backend=$2
cd "$tmp"

cat >model.json <<'END'
{"model_type": "gpt2", "n_embd": 256, "n_layer": 8, "n_head": 8,
 "n_positions": 256, "vocab_size": 257, "activation_function": "gelu_new",
 "embd_pdrop": 0, "resid_pdrop": 0, "attn_pdrop": 0,
 "tie_word_embeddings": false}
END
seq 60000 >text
merak data pack --tokenizer byte --out data text >/dev/null
if [ "$backend" = emu ]; then
    cat >device.json <<'END'
{"name": "sandbox", "ranks_per_node": 1, "memory_bytes": 4e9,
 "flops_per_s": {"f32": 8e10, "bf16": 8e10}, "bytes_per_s": 1e10,
 "kernel_s": 2e-6, "link": {"bytes_per_s": 5e9, "latency_s": 5e-6},
 "net": {"bytes_per_s": 4.95e7, "latency_s": 2e-4}}
END
else
    srun -N4 --ntasks-per-node=1 --overcommit merak calibrate --threads 1 \
        --quick --out device.json >calibrate.log 2>&1 ||
        { cat calibrate.log >&2; exit 2; }
    # over all nodes it has measured the way between islands, too
    jq '.net.bytes_per_s = 4.95e7 | .net.latency_s = 2e-4' device.json >d &&
        mv d device.json
fi

# row WHAT OPTION...
row()
{
    local what=$1 predicted measured off

    shift
    rm -rf plan.json metrics
    merak plan --model model.json --device device.json --links sites.json \
        --dtype fp32 --seq 256 --json plan.json "$@" >plan.txt ||
        { cat plan.txt >&2; exit 2; }
    srun -N4 --ntasks-per-node=1 --overcommit --merak-plan=plan.json \
        merak train --model model.json --data data --threads 1 \
        --backend "$backend" --device device.json --eval-samples 0 \
        --steps $steps --log-every 100 --metrics metrics >log 2>&1 ||
        { cat log >&2; exit 2; }
    predicted=$(jq '.step_s * 1e3 | round' plan.json)
    # the median, the first left out
    measured=$(jq -s '.[1:] | map(.step_s) | sort |
        .[(length - 1) / 2 | floor] * 1e3 | round' metrics)
    off=$(awk "BEGIN { printf \"%+.1f\", 100 * ($predicted / $measured - 1) }")
    echo "| $what | $predicted | $measured | $off |"
    ! awk "BEGIN { exit !($off > 15 || $off < -15) }" || bad=1
}

echo "| plan ($backend) | predicted ms | measured ms | off by % |"
echo "| --- | ---: | ---: | ---: |"
bad=0
four="--pp 4 --micro-batch 1 --global-batch 16"
two="--pp 2 --dp 2 --micro-batch 1 --global-batch 32"
# shellcheck disable=SC2086 # options
{
    row "pp 4, 1f1b" $four --schedule 1f1b
    row "pp 4, eager" $four --schedule eager
    row "pp 4, eager:7-6-2-1" $four --schedule eager:7-6-2-1
    row "pp 4, 1f1b, --lossy-hops 2:8" $four --schedule 1f1b --lossy-hops 2:8
    row "pp 4, 1f1b, --lossy-hops 8" $four --schedule 1f1b --lossy-hops 8
    row "pp 4, eager, --lossy-hops 8" $four --schedule eager --lossy-hops 8
    row "pp 2 x dp 2, 1f1b" $two --schedule 1f1b
    row "pp 2 x dp 2, eager:4" $two --schedule eager:4-1
    row "pp 2 x dp 2, 1f1b, --lossy-hops 8" $two --schedule 1f1b \
        --lossy-hops 8
    row "dp 4" --pp 1 --dp 4 --micro-batch 4 --global-batch 32
}
exit $bad
