#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0512-kinds.bats - nodes of two kinds, one twice as fast, emulated: the plan for
# them takes the time that was predicted, and at least a fifth less than the
# best plan of equal stages
#
# Ratios of runs that sleep: the machine's other load matters little.

load cluster

setup()
{
    cd "$BATS_TEST_TMPDIR"
    cat >model.json <<'EOF'
{"model_type": "gpt2", "n_layer": 8, "n_head": 4, "n_embd": 64,
 "vocab_size": 257, "n_positions": 64, "embd_pdrop": 0, "resid_pdrop": 0,
 "attn_pdrop": 0}
EOF
    merak data pack --tokenizer byte --out text \
        /usr/share/common-licenses/GPL-3 >/dev/null
    device slow 4e8
    device fast 8e8
}

# device NAME FLOP/s: whose messages take as long as on a machine with other load
device()
{
    merak plan --print device --device cpu | jq --argjson f "$2" \
        --arg name "$1" '.name = $name | .bytes_per_s = 1e12 |
        .kernel_s = 1e-6 | .link.latency_s = 2e-4 | .net.latency_s = 2e-4 | .flops_per_s = {f32: $f, bf16: $f} |
        del(.peak_flops_per_s)' >"$1.json"
}

request=(--model model.json --ranks-per-node 2 --seq 64 --global-batch 16
    --dtype fp32)

# measured PLAN: the median step of a run of it on a fast and a slow node
measured()
{
    srun -Q -N2 -n4 --ntasks-per-node=2 merak train --model model.json \
        --data text --plan "$1" --backend emu \
        --device 1:fast.json,1:slow.json --steps 6 --eval-samples 0 \
        --metrics "$1l" >"$1.log" 2>&1 || {
        cat "$1.log" >&2
        return 1
    }
    jq -s '[.[1:][].step_s] | sort | .[length / 2 | floor]' "$1l"
}

@test "two kinds of nodes: unlike stages save a fifth, as predicted" {
    merak plan "${request[@]}" --device slow.json --nodes 2 \
        --json equal.json >/dev/null
    run merak plan "${request[@]}" --device fast.json,slow.json \
        --nodes 1:fast.json,1:slow.json --json kinds.json --svg kinds.svg
    echo "$output"
    [ "$status" -eq 0 ]
    drawn=$(sed -n 's/.*step \([0-9.]*\) ms.*/\1/p' kinds.svg)
    jq -e --argjson d "$drawn" '($d / 1e3 / .step_s - 1 | fabs) < 5e-3' \
        kinds.json
    [[ $output == *"on 1 x 2 fast + 1 x 2 slow"* ]]
    equal=$(measured equal.json)
    kinds=$(measured kinds.json)
    echo "# equal $equal s, planned $(jq .step_s equal.json)" >&3
    echo "# kinds $kinds s, planned $(jq .step_s kinds.json)" >&3
    jq -en --argjson k "$kinds" --argjson e "$equal" '$k < 0.8 * $e'
    jq -e --argjson k "$kinds" '($k / .step_s - 1 | fabs) < 0.03' kinds.json
}

# on WORD KINDS..: a run of the plan for both kinds, on nodes of these
on()
{
    srun -Q -N2 -n4 --ntasks-per-node=2 merak train --model model.json \
        --data text --eval-samples 0 --steps 1 "$@"
}

@test "ranks find the nodes of their kind, and refuse others by name" {
    merak plan "${request[@]}" --device fast.json,slow.json \
        --nodes 1:fast.json,1:slow.json --json kinds.json >/dev/null
    jq -e '[.predicted.kinds[] | [.device, .nodes]] | sort ==
        [["fast", 1], ["slow", 1]]' kinds.json
    merak plan "${request[@]}" --device fast.json,slow.json \
        --nodes 1:slow.json,1:fast.json --json turned.json >/dev/null
    [ "$(jq .step_s kinds.json)" = "$(jq .step_s turned.json)" ]
    for device in 1:fast.json,1:slow.json 1:slow.json,1:fast.json; do
        run on --plan kinds.json --backend emu --device $device
        echo "$output"
        [ "$status" -eq 0 ]
        [[ $output == *'(placement: by kinds)'* ]]
        [ "$(grep -c 'node .* is of kind fast' <<<"$output")" -eq 1 ]
        [ "$(grep -c 'node .* is of kind slow' <<<"$output")" -eq 1 ]
    done
    run on --plan kinds.json --backend emu --device fast.json
    echo "$output"
    [ "$status" -eq 66 ]
    [[ $output == *' is fast, one too many: the plan is for 1 node of '* ]]
    sed 's/"slow"/"odd"/' slow.json >odd.json
    run on --plan kinds.json --backend emu --device 1:fast.json,1:odd.json
    echo "$output"
    [ "$status" -eq 66 ]
    [[ $output =~ 'node '[a-z0-9-]+' is odd: the plan is for 1 node of ' ]]
    # processors have no name: they are told by their rate, and here all have one
    run on --plan kinds.json --backend cpu --threads 1
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *' is taken for fast, and multiplies at 0.'* ]]
    [[ $output =~ ' is taken for slow, and multiplies at '[12]'.' ]]
}

@test "auto degrees on nodes of two kinds" {
    run on --stages auto --seq 64 --global-batch 16 --backend emu \
        --device 1:fast.json,1:slow.json
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *'chosen '*'predicted for '* ]]
    [ "$(grep -c 'node .* is of kind fast' <<<"$output")" -eq 1 ]
}

@test "kinds that are not there are named" {
    run merak plan "${request[@]}" --device fast.json \
        --nodes 1:fast.json,1:slow.json
    [ "$status" -eq 66 ]
    [[ $output == *'no kind "slow.json" is in --device'* ]]
    run merak plan "${request[@]}" --device fast.json,slow.json \
        --nodes 2:fast.json
    [ "$status" -eq 66 ]
    [[ $output == *'--device slow.json: --nodes has no nodes of it'* ]]
    run srun -Q -N2 -n4 --ntasks-per-node=2 merak train --model model.json \
        --data text --seq 64 --global-batch 16 --backend emu \
        --device 1:fast.json,2:slow.json --steps 1
    [ "$status" -eq 66 ]
    [[ $output == *'is for 3 nodes, and this run has 2'* ]]
}
