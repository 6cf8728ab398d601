#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# overlap.sh - how much of the communication is behind compute, on slow links
#
#   overlap.sh --builddir DIR          (root, for merak sandbox --link-gbit)
#
# Two ranks on two nodes with links of 0.5 Gbit/s, compute emulated, transfers
# real.  First tensor parallelism, with sequence parallelism and without: a run
# in which nearly nothing is computed tells how long the exchanges of a step
# take; compute is then set to twice that.  Three alternating rounds of plain
# and sub-pipelined steps follow; of the plain ones, too, some are hidden.
# Hidden is 1 - (sub-pipelined step - compute) / exchanges alone.
# Then replicas with ZeRO-1: the same with reductions and gathers; hidden is
# 1 - (step - compute) / transfers alone; and with ZeRO-3, where compute takes
# as long as transfers, beside what a simulation at the rate of the transfers
# alone predicts; this model has 8 layers, and tables with as large a share of its
# parameters as those of Llama 3 8B.  Prints Markdown.
# Exit code 1 if less than 90 %, 75 % and 90 % of these are hidden.
set -eu
rounds=3 steps=5 vocab=4096
# shellcheck source=links.sh
. "$(dirname "$0")/links.sh"
model=$tmp/model.json

# step UNIT-MS SRUN-OPTIONS TRAIN-OPTION...: median milliseconds of a step,
# the first left out
step()
{
    local unit=$1 where=$2

    shift 2
    rm -f "$tmp/metrics"
    # shellcheck disable=SC2086
    srun -N2 -n2 $where merak train --model "$model" \
        --data "$tmp/data" --seq 256 --threads 1 --backend emu --lr 1e-3 \
        --emu-unit-ms "$unit" --steps "$steps" --log-every 100 \
        --metrics "$tmp/metrics" "$@" >"$tmp/log" 2>&1 ||
        { cat "$tmp/log" >&2; exit 2; }
    median_step
}

tp()
{
    step "$1" "--merak-tp=2 --merak-tp-domain=any" --sp "$3" \
        --global-batch 8 --micro-batch 4 --sub-pipeline "$2"
}

dp()
{
    step "$1" "--merak-dp=2" --global-batch 16 --micro-batch 4 --zero "$2"
}

# predicted LEVEL UNIT-MS MOVED-MS: milliseconds of a step as planned, with links
# that move what a rank sends in so long
predicted()
{
    local plan rate

    plan="merak plan --model $model --seq 256 --backend emu --dp 2 --zero $1
        --global-batch 16 --micro-batch 4 --unit-ms $2 --json"
    rate=$($plan | sed -n 's/.*"dp_bytes": \([0-9]*\).*/\1/p' |
        awk "{ printf \"%.6f\", \$1 / $3 / 1e6 }")
    $plan --link-gbs "$rate" | awk -F '[:,]' '/"step_s":/ { print $2 * 1000; exit }'
}

echo "# Overlap on slow links"
echo
echo "\`bench/overlap.sh --builddir BUILD\`: 2 ranks on 2 nodes of a sandbox,"
echo "links of $gbit Gbit/s, $rounds alternating rounds, medians of $((steps - 1))" \
    "steps, $(date -u +%Y-%m-%d),"
echo "$(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg) at the start."
echo "Compute is emulated (4 layers, width 512; 8 with ZeRO-3), two passes of"
echo "4 x 256 tokens a step and rank; transfers are real."
echo
# tensor SP: plain and sub-pipelined steps, in turn; $hidden is set
tensor()
{
    local comm plain sub

    comm=$(tp 0.1 no "$1")
    unit=$(calc "$comm * 2 / 6") # a forward of both micro-batches 2, backward 4
    compute=$(calc "$unit * 6")
    echo "## Tensor parallelism, 2 ranks, --sp $1"
    echo
    echo "Exchanges alone $comm ms a step, compute $compute ms."
    echo
    echo "| round | plain, ms | sub-pipelined, ms | hidden |"
    echo "| ---: | ---: | ---: | ---: |"
    rm -f "$tmp/hidden"
    for ((i = 1; i <= rounds; i++)); do
        plain=$(tp "$unit" no "$1")
        sub=$(tp "$unit" yes "$1")
        hidden=$(calc "100 * (1 - ($sub - $compute) / $comm)")
        echo "$hidden" >>"$tmp/hidden"
        echo "| $i | $plain | $sub | $hidden % |"
    done
    hidden=$(median <"$tmp/hidden")
    echo
    echo "Hidden: $hidden %, wanted 90 %."
    echo
}

tensor on
sp_hidden=$hidden
tensor off
tp_hidden=$hidden
# replicas LEVEL COMPUTE WANTED: steps of that level of ZeRO with so many
# milliseconds of compute, or, 0, as many as transfers take; $hidden is set
replicas()
{
    local level=$1 compute=$2 moved unit got said

    moved=$(dp 0.1 "$level")
    [ "$compute" != 0 ] || compute=$moved
    unit=$(calc "$compute / 6")
    echo "## Two replicas, ZeRO-$level"
    echo
    echo "Reductions and gathers alone $moved ms a step, compute $compute ms."
    echo
    echo "| round | step, ms | predicted, ms | one after the other, ms | hidden |"
    echo "| ---: | ---: | ---: | ---: | ---: |"
    rm -f "$tmp/hidden"
    said=$(predicted "$level" "$unit" "$moved")
    for ((i = 1; i <= rounds; i++)); do
        got=$(dp "$unit" "$level")
        hidden=$(calc "100 * (1 - ($got - $compute) / $moved)")
        echo "$hidden" >>"$tmp/hidden"
        echo "| $i | $got | $said | $(calc "$compute + $moved") | $hidden % |"
    done
    hidden=$(median <"$tmp/hidden")
    echo
    echo "Hidden: $hidden %, wanted $3 %. The table of embeddings comes before" \
        "the first kernel, and the first layer's reduction behind the last."
    echo
}

replicas 1 "$compute" 75
dp_hidden=$hidden
model=$tmp/fetch.json
sed "s/\"vocab_size\": [0-9]*/\"vocab_size\": 3584/
    s/\"n_layer\": [0-9]*/\"n_layer\": 8/" "$tmp/model.json" >"$model"
replicas 3 0 90
fetch_hidden=$hidden
awk "BEGIN {
    exit !($tp_hidden >= 90 && $sp_hidden >= 90 && $dp_hidden >= 75 &&
           $fetch_hidden >= 90)
}"
