#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run_lora.sh - runs that train adapters: where they begin, go on and end
#
# Run from the build directory of tests/.

set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
. "$here/tap.sh"
merak=$(cd ../cmd && pwd)/merak

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1

cat >small.json <<'JSON'
{"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 2,
 "num_key_value_heads": 1, "hidden_size": 16, "intermediate_size": 32,
 "vocab_size": 257, "max_position_embeddings": 64, "hidden_act": "silu",
 "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false}
JSON
seq 5000 >x.txt
"$merak" data pack --tokenizer byte --out d x.txt >/dev/null
base=("$merak" train --data d --seq 32 --lr-schedule constant --log-every 1)
"${base[@]}" --model small.json --ckpt first --steps 3 --lr 1e-2 >log 2>&1 &&
    "$merak" ckpt export first --format hf --out hf >>log 2>&1
lora=("${base[@]}" --model hf --lora-rank 4 --lora-alpha 8 --lora-dropout 0.1
    --init-from)

# losses RUN: of every step
losses()
{
    sed -n 's/.*"loss": \([^,]*\),.*/\1/p' "$1/metrics.jsonl"
}

# refuses TEXT OPTION..: fails with one error that has the text
refuses()
{
    local text=$1
    shift
    ! "$@" >log 2>&1 && [ "$(grep -c 'error: ' log)" -eq 1 ] &&
        grep 'error: ' log | grep -qF -- "$text"
    ok $? "refused: $text" log
}

echo 1..16

"${lora[@]}" hf --ckpt whole --steps 4 --lr 1e-2 >log 2>&1
ok $? "a run of four steps" log
read -r predicted reserved < <(sed -n \
    's/.*predicted \([0-9]*\) bytes.*reserved \([0-9]*\)$/\1 \2/p' log)
[ "$predicted" = "$reserved" ] && [ "$predicted" -gt 0 ]
ok $? "memory is what was predicted, to the byte" log
"$merak" ckpt show whole >log
[ "$(grep -c '^adam_m/.*lora_[AB].weight' log)" -eq 28 ] &&
    [ "$(grep -c '^adam_m/' log)" -eq 28 ] &&
    [ "$(grep -c '^param/' log)" -eq 49 ]
ok $? "only adapters have moments" log
"${lora[@]}" hf --ckpt half --steps 2 --lr 1e-2 >log 2>&1 &&
    "${lora[@]}" hf --ckpt half --steps 4 --lr 1e-2 >>log 2>&1 &&
    [ "$(losses half)" = "$(losses whole)" ] && [ "$(losses half | wc -l)" -eq 4 ]
ok $? "a run that was stopped goes on as if it had not been" log
"${base[@]}" --model hf --ckpt before --steps 1 --init-from hf >log 2>&1 &&
    "${lora[@]}" hf --ckpt one --steps 1 --lora-dropout 0 >>log 2>&1 &&
    [ "$(losses before)" = "$(losses one)" ]
ok $? "before the first step the model is that without adapters" log
"${lora[@]}" first --ckpt other --steps 1 >log 2>&1 &&
    "${lora[@]}" hf --ckpt same --steps 1 >>log 2>&1 &&
    [ "$(losses other)" = "$(losses same)" ]
ok $? "adapters begin the same beside a run's weights and a folder's" log
"${lora[@]}" whole --ckpt next --steps 1 --lora-dropout 0.1 >log 2>&1
ok $? "a run goes on from another's adapters" log

# eval_loss DIR: its loss
eval_loss()
{
    "$merak" eval --ckpt "$1" --data d --seq 32 --json |
        sed 's/.*"loss": \([^,]*\),.*/\1/'
}
awk -v a="$(eval_loss hf)" -v b="$(eval_loss whole)" \
    'BEGIN { exit !(b > 0 && b < a - 0.001) }'
ok $? "merak eval computes with adapters"

refuses "was trained with --lora-rank 4 --lora-alpha 8 --lora-dropout 0.1 --lora-targets *.*, and this run has --lora-rank 4 --lora-alpha 9 " \
    "${lora[@]}" hf --ckpt whole --steps 6 --lora-alpha 9
refuses "and this run has no adapters" \
    "${base[@]}" --model hf --ckpt whole --steps 6
refuses "has no adapters, and --lora-rank asks for them" \
    "${lora[@]}" hf --ckpt first --steps 6
refuses "has adapters of --lora-rank 4 --lora-alpha 8" \
    "${lora[@]}" whole --ckpt none --lora-rank 2
refuses "--lora-rank needs --init-from" \
    "${base[@]}" --model hf --lora-rank 4
refuses "--lora-dropout and --lora-targets need --lora-rank" \
    "${base[@]}" --model hf --lora-alpha 4
refuses "lora-targets qproj: no linear layer has such a name; the nearest is q_proj" \
    "${lora[@]}" hf --ckpt none --lora-targets qproj
! "$merak" ckpt export whole --format hf --out bare >log 2>&1 && [ ! -e bare ] &&
    grep -q 'weights with adapters are not exported' log
ok $? "a run with adapters is not exported without them" log
