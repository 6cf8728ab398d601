#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run_experts.sh - runs of mixtures of experts: what steps report of their load,
# the biases that it moves; and what is refused, in one line each
#
# Run from the build directory of tests/.

set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
. "$here/tap.sh"
. "$here/in_tmp.sh"
vectors=$here/../vectors

# config TYPE [EDIT]: of its vectors, for bytes
config()
{
    sed -e 's/"vocab_size": 61/"vocab_size": 257/' -e "${2-}" \
        "$vectors/hf/$1.json"
}

# train OUT OPTION..: its metrics are OUT.jsonl
train()
{
    local out=$1
    shift
    timeout 100 "$merak" train --data d --seq 16 --micro-batch 2 \
        --global-batch 8 --metrics "$out.jsonl" "$@" >log 2>&1
}

# says TEXT WORD..: `merak WORD..` fails, and its last line has the text
says()
{
    local text=$1
    shift
    ! timeout 60 "$merak" "$@" >out 2>err </dev/null &&
        tail -n 1 err | grep -qF -- "$text"
    ok $? "refused: $text" err
}

# field NAME FILE: of each line
field()
{
    sed -n "s/.*\"$1\": \([^,}]*\).*/\1/p" "$2"
}

seq 4000 >text
"$merak" data pack --tokenizer byte --out d text >/dev/null || exit 1
config mixtral >mixtral.json
config glm4_moe >glm4.json
echo 1..53

train plain --model mixtral.json --steps 4
ok $? "a mixture trains" log
[ "$(field dropped_rows plain.jsonl | sort -u)" = 0 ] &&
    [ "$(field overflow_rows plain.jsonl | sort -u)" = 0 ] &&
    [ "$(field load_max plain.jsonl | awk '$1 >= 1 && $1 <= 4' | wc -l)" = 4 ]
ok $? "each step says how its experts were loaded" plain.jsonl
grep -q 'step 4/4  loss [0-9.]*  load [0-9.]*  |g|' log
ok $? "so does the log" log
train hot --model glm4.json --steps 3 --ckpt hot
[ "$(field load_layer hot.jsonl | sort -u)" = 1 ] &&
    [ "$(field load_expert hot.jsonl | awk '$1 >= 0 && $1 <= 7' | wc -l)" = 3 ]
ok $? "and which is the fullest, in a model whose layer 0 has none" hot.jsonl
at=$(field load_expert hot.jsonl | tail -1) load=$(field load_max hot.jsonl |
    tail -1 | xargs printf %.4g)
"$merak" top --once hot >out 2>&1 &&
    grep -qF "  expert    $at of layer 1 has $load x the mean" out &&
    "$merak" top --json hot | grep -q '"load_layer": 1.0' &&
    "$merak" report hot -o - >page 2>&1 &&
    grep -qF ">$at of layer 1 has $load x the mean<" page &&
    grep -q 'Rows of the fullest expert over the mean' page
ok $? "top and report say so, too" out page
cat >hot.jsonl <<'JSON'
{"step": 1, "loss": 3, "load_max": 2.5, "load_layer": 1e300, "load_expert": 7, "overflow_rows": 1e300}
JSON
"$merak" top --once hot >out 2>&1 &&
    grep -q '  expert    7 of layer 1e+300 has 2.5 x the mean, 1e+300 rows' out
ok $? "top prints numbers that no run has" out
train more --model mixtral.json --steps 4 --lr 1e-2 --router-aux 3
train less --model mixtral.json --steps 4 --lr 1e-2 --router-aux 0
[ "$(field aux more.jsonl | head -1)" = "$(field aux less.jsonl | head -1)" ] &&
    awk -v a="$(field aux more.jsonl | tail -1)" \
        -v b="$(field aux less.jsonl | tail -1)" 'BEGIN { exit !(a < b) }'
ok $? "--router-aux lowers that loss" more.jsonl less.jsonl
train flat --model mixtral.json --steps 4 --lr 1e-2 --router-z 1
awk -v a="$(field z flat.jsonl | tail -1)" \
    -v b="$(field z less.jsonl | tail -1)" 'BEGIN { exit !(a < b) }'
ok $? "--router-z lowers its own" flat.jsonl less.jsonl
config mixtral 's/{/{"output_router_logits": true, "router_aux_loss_coef": 3,/' \
    >asked.json
train asked --model asked.json --steps 4 --lr 1e-2 &&
    cmp <(field loss asked.jsonl) <(field loss more.jsonl) &&
    grep -q 'router_aux_loss_coef 3: the mean over layers and sequences' log
ok $? "a config asks for it as transformers does" log

train full --model mixtral.json --steps 4 --expert-capacity 1 --ckpt full &&
    grep -q 'step 4/4  loss [0-9.]*  load [0-9.]*  dropped [0-9]*  |g|' log
ok $? "rows beyond --expert-capacity are told" log
[ "$(field dropped_rows full.jsonl | awk '$1 > 0 && $1 < 512' | wc -l)" = 4 ] &&
    grep -q '^expert-capacity = 1$' full/settings.toml
ok $? "and counted; settings say so" full.jsonl full/settings.toml
train none --model mixtral.json --steps 4 --expert-capacity none &&
    cmp <(field loss plain.jsonl) <(field loss none.jsonl)
train wide --model mixtral.json --steps 4 --expert-capacity 2 &&
    cmp <(field loss plain.jsonl) <(field loss wide.jsonl) &&
    [ "$(field dropped_rows wide.jsonl | sort -u)" = 0 ]
ok $? "with places for all the losses are those without a capacity" wide.jsonl
train full --model mixtral.json --steps 5 --ckpt full && grep -q resumed log
ok $? "it goes on without" log
"$merak" generate --ckpt full --tokenizer byte --prompt 12 --tokens 4 >out 2>&1
ok $? "and a text is made of all rows" out

# as many tokens, of which 7 in 10 or all are predicted: other losses' gradients
# are those of all tokens, so large that nothing else counts
for i in $(seq 200 299); do
    echo "{\"prompt\": \"$i\", \"completion\": \"$((i * i * 7))\"}"
done >some.jsonl
sed 's/"prompt": "\([0-9]*\)", "completion": "/"prompt": "", "completion": "\1/' \
    some.jsonl >all.jsonl
for of in some all; do
    "$merak" data pack --tokenizer byte --out $of $of.jsonl >pack.log
    tail -n 1 pack.log >>counted
    train of-$of --model mixtral.json --steps 1 --data $of \
        --valid-fraction 0 --router-aux 1e6
done
grep -q ': 700 of' counted && grep -q ': 1000 of' counted &&
    awk -v a="$(field grad_norm of-some.jsonl)" \
        -v b="$(field grad_norm of-all.jsonl)" \
        'BEGIN { d = a / b - 1; exit !(a > 1e5 && d < 1e-6 && d > -1e-6) }'
ok $? "gradients of router losses do not depend on what is predicted" \
    counted of-some.jsonl of-all.jsonl

# --- biases
rate="--model glm4.json --lr 1e-2 --lr-schedule constant --router-bias-rate 0.01 --ckpt"
train whole --steps 4 $rate whole && train half --steps 2 $rate half &&
    train half --steps 4 $rate half
cmp <(field loss whole.jsonl | tail -2) <(field loss half.jsonl | tail -2)
ok $? "biases are saved and resumed" log
"$merak" ckpt export whole --format hf --out hf >log 2>&1 &&
    name=model.layers.1.mlp.gate.e_score_correction_bias &&
    "$merak" ckpt show whole "$name" >out 2>&1 &&
    grep -q '0\.0[1-4]' out && grep -aq "$name" hf/model.safetensors
ok $? "they have moved, and are exported" log out
train still --model glm4.json --steps 4 --ckpt still &&
    "$merak" ckpt show still "$name" >out 2>&1 && ! grep -q '0\.01' out
ok $? "without a rate they stay as they are" out

# --- a router in fp32, as transformers has glm4_moe's: so is its matrix, and
# the model is the same
"$merak" plan --model glm4.json --seq 16 --dtype bf16 --print graph >out 2>&1
"$merak" plan --model mixtral.json --seq 16 --dtype bf16 --print graph >none
"$merak" plan --model glm4.json --seq 16 --print graph >fp32
grep -q '= widen' out && grep -q 'mlp.gate.weight.* f32' out &&
    ! grep -q widen none fp32
ok $? "only its logits are computed in fp32 in a bf16 run" out
train wide --model glm4.json --dtype bf16 --steps 2 --ckpt wide &&
    train wide --model glm4.json --dtype fp32 --steps 4 --ckpt wide
ok $? "a run of either dtype goes on from one of the other" log

# --- refused
says "--router-bias-rate 0.01: no router of the model has a bias that is" \
    plan --model mixtral.json --seq 16 --router-bias-rate 0.01
small_llama >llama.json
says "--router-aux 0.1 --router-z 0: the model has no experts; leave it out" \
    plan --model llama.json --seq 16 --router-aux 0.1 --router-z 0
says '--router-aux: expected a number from 0, got "-1"' \
    plan --model mixtral.json --seq 16 --router-aux -1
says '--router-z: expected a number from 0, got "nan"' \
    plan --model mixtral.json --seq 16 --router-z nan
says '--expert-capacity: expected a positive number or none, got "0"' \
    plan --model mixtral.json --seq 16 --expert-capacity 0
says "--ep 2: the model has no experts; use --tp or --dp" \
    plan --model llama.json --seq 16 --ep 2 --micro-batch 2
says "--expert-capacity 1: the model has no experts; leave it out" \
    plan --model llama.json --seq 16 --expert-capacity 1
while IFS='|' read -r edit options text; do
    config mixtral "$edit" >v.json
    says "$text" plan --model v.json --seq 16 $options
done <<'ROWS'
s/experts": 4/experts": 60/|--ep 8 --micro-batch 8|60 experts cannot be cut over ep=8 (nearest: 6 or 10)
|--ep 4 --micro-batch 2|micro-batch of 2 cannot be cut over ep=4; it needs a --micro-batch that ep divides (nearest: 4)
s/per_tok": 2/per_tok": 8/||8 of 4 experts for each token: num_experts_per_tok is above num_local_experts
s/{/{"router_jitter_noise": 0.01,/||router_jitter_noise is 0.01, which is not supported; expected 0
s/{/{"router_aux_loss_coef": -1,/||router_aux_loss_coef is -1, which is not supported; expected a number not below 0
s/experts": 4/experts": 0/||num_local_experts is 0, expected a whole number from 1
|--ep 2 --micro-batch 2 --pp 2 --schedule sliced:4 --global-batch 4|ep=2 needs one for each of its ranks: use --ep 1, or --schedule 1f1b
|--ep 3 --micro-batch 3|4 experts cannot be cut over ep=3 (nearest: 2 or 4)
|--ep 0|--ep: expected an integer 1..65535 or auto, got "0"
|--ep 2 --micro-batch 2 --ep-form both|--ep-form: expected gather|exchange|auto, got "both"
|--ep 2 --micro-batch 2 --expert-room 0|--expert-room: expected an integer 1..100000 (percent of an even share), got "0"
|--expert-capacity 1 --cp 2|needs whole sequences: use --cp 1
|--expert-capacity 1 --pp 2 --schedule sliced:4 --global-batch 4|needs whole ones: use --schedule 1f1b
ROWS
config olmoe 's/{/{"clip_qkv": 8.0,/' >v.json
says "clip_qkv is 8.0, which is not supported; expected null" \
    plan --model v.json --seq 16

# folder EDIT: a qwen3_moe whose header of tensors is edited
folder()
{
    mkdir -p folder
    cp "$vectors/weights/qwen3_moe.config.json" folder/config.json
    sed "$1" "$vectors/weights/qwen3_moe.model.safetensors" \
        >folder/model.safetensors
}
one='layers\.0\.mlp\.experts\.1\.up_proj'
folder "s/$one/layers.0.mlp.experts.9.up_proj/"
says "has no tensor model.layers.0.mlp.experts.1.up_proj.weight, the nearest" \
    ckpt import folder --out x
folder "s/$one/layers.0.mlp.experts.0.up_proj/"
says "duplicate object key" ckpt import folder --out x
folder "s/\($one.weight\":{\"dtype\":\"\)BF16\(\",\"shape\":\)\[10/\1BOOL\2[20/"
says "up_proj.weight is of BOOL, expected F32, BF16 or F16: convert the folder" \
    ckpt import folder --out x
folder "s/\($one.weight\":{\"dtype\":\"BF16\",\"shape\":\)\[10,16\]/\1[16,10]/"
says "experts.1.up_proj.weight is [16, 10], expected [10, 16]" \
    ckpt import folder --out x
cp "$vectors/weights/stacked-qwen3_moe.model.safetensors" \
    folder/model.safetensors
sed -i 's/moe_intermediate_size": 10/moe_intermediate_size": 9/' \
    folder/config.json
says "0.mlp.experts.down_proj is [4, 16, 10], expected [4, 16, 9]" \
    ckpt import folder --out x
folder s/,,//
sed 's/0\.mlp\.experts\.down_proj/0.mlp.experts.down_prox/' \
    "$vectors/weights/stacked-qwen3_moe.model.safetensors" \
    >folder/model.safetensors
says "has no tensor model.layers.0.mlp.experts.down_proj, the nearest" \
    ckpt import folder --out x
# numbers in MXFP4 whose scales have another name, or shape
cp "$vectors/weights/mxfp4.config.json" folder/config.json
for edit in "s/down_proj_scales/down_proj_scalez/|has no tensor model.layers.0.mlp.experts.down_proj, the nearest" \
    "s/\[2,32,2\]/[2,16,4]/|down_proj_blocks and _scales: expected 16 bytes of"; do
    sed "${edit%|*}" "$vectors/weights/mxfp4.model.safetensors" \
        >folder/model.safetensors
    says "${edit#*|}" ckpt import folder --out x
done
cp "$vectors/weights/qwen3_moe.config.json" folder/config.json
cp "$vectors/weights/qwen3.model.safetensors" folder/model.safetensors
says "has no tensor lm_head.weight (and 26 more)" ckpt import folder --out x

# --- the edges: one expert, all of them, and none that is uneven
for edit in 's/experts": 4/experts": 1/; s/per_tok": 2/per_tok": 1/' \
    's/per_tok": 2/per_tok": 4/'; do
    config mixtral "$edit" >v.json
    rm -f edge.jsonl
    train edge --model v.json --steps 2 &&
        [ "$(field load_max edge.jsonl | sort -u)" = 1 ]
    ok $? "the load of all is even: $edit" log edge.jsonl
done
train edge2 --model v.json --steps 2 --router-aux 0.5 --router-z 0.1
ok $? "its losses have gradients" log
