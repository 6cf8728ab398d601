#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run_lora.sh - runs that train adapters: where they begin, go on and end
#
# Run from the build directory of tests/.

set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
. "$here/tap.sh"
. "$here/in_tmp.sh"

small_llama >small.json
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
    ! "$@" >log 2>&1 &&
        [ "$(grep -c 'error: \|^merak ckpt' log)" -eq 1 ] &&
        grep 'error: \|^merak ckpt' log | grep -qF -- "$text"
    ok $? "refused: $text" log
}

echo 1..46

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
refuses "--lora-dropout and --lora-targets need --lora-rank R" \
    "${base[@]}" --model hf --lora-alpha 4
refuses "lora-targets qproj: no linear layer has such a name; the nearest is q_proj" \
    "${lora[@]}" hf --ckpt none --lora-targets qproj
! "$merak" ckpt export whole --format hf --out bare >log 2>&1 && [ ! -e bare ] &&
    grep -q 'give --merge for weights with its adapters' log
ok $? "a run with adapters is not exported without them" log

# --- to PEFT and back; PEFT's own files are in peft.t
"$merak" ckpt export whole --format peft --out peft >log 2>&1 &&
    grep -q '"r": 4,' peft/adapter_config.json &&
    grep -q '"lora_alpha": 8,' peft/adapter_config.json &&
    grep -q '"base_model_name_or_path": "hf",' peft/adapter_config.json &&
    grep -q '"lora_dropout": 0.1,' peft/adapter_config.json &&
    tr -d ' \n' <peft/adapter_config.json | grep -qF \
        '"target_modules":["q_proj","k_proj","v_proj","o_proj","gate_proj","up_proj","down_proj"]'
ok $? "adapters are exported with their options" log
"$merak" ckpt import peft --out back >log 2>&1 &&
    "$merak" ckpt export back --format peft --out again >>log 2>&1 &&
    cmp peft/adapter_model.safetensors again/adapter_model.safetensors &&
    diff peft/adapter_config.json again/adapter_config.json &&
    ! "$merak" ckpt diff whole back --tensors-only >diff 2>&1 &&
    ! grep -v '^adam_.*: only in the first$\|tensors are equal' diff
ok $? "imported again, beside the base model that they name, all bits are the same" log
[ "$(eval_loss back)" = "$(eval_loss whole)" ]
ok $? "merak eval computes the same with them"
"${base[@]}" --model hf --init-from back --lora-rank 4 --lora-alpha 8 \
    --lora-dropout 0.1 --ckpt on --steps 1 \
    --lora-targets q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj \
    >log 2>&1
ok $? "a run goes on from imported adapters" log
"$merak" ckpt export whole --format hf --merge --out merged >log 2>&1 &&
    [ ! -e merged/adapter_config.json ] &&
    awk -v a="$(eval_loss merged)" -v b="$(eval_loss whole)" \
        'BEGIN { exit !(a > 0 && (a - b) ^ 2 < 1e-12) }'
ok $? "merged weights compute the same" log
# --- a run begins from PEFT's own files
"${base[@]}" --model hf --init-from hf --lora-from peft --ckpt from --steps 2 \
    --lr 1e-2 >log 2>&1 && grep -q 'adapters are those of peft: --lora-rank 4 ' log &&
    "${base[@]}" --model hf --init-from back --lora-rank 4 --lora-alpha 8 \
        --lora-dropout 0.1 --ckpt imported --steps 2 --lr 1e-2 --lora-targets \
        q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj >>log 2>&1 &&
    "$merak" ckpt diff from imported --tensors-only >>log 2>&1 &&
    [ "$(losses from)" = "$(losses imported)" ]
ok $? "--lora-from trains what an imported adapter does, to the bit" log
"${base[@]}" --model hf --init-from hf --lora-from peft --ckpt from --steps 3 \
    --lr 1e-2 >log 2>&1 && [ "$(losses from | wc -l)" -eq 3 ]
ok $? "it resumes with the same option" log
"$merak" train --model hf --config from/settings.toml --steps 4 >log 2>&1
ok $? "the saved settings of such a run are taken back" log
refuses "--lora-from has --lora-rank, --lora-alpha, --lora-scale and --lora-targets" \
    "${base[@]}" --model hf --init-from hf --lora-from peft --lora-rank 4
refuses "--lora-from needs --init-from" \
    "${base[@]}" --model hf --lora-from peft
refuses "--lora-from hf: it has no adapter_config.json" \
    "${base[@]}" --model hf --init-from hf --lora-from hf
refuses "whole/step-00000004 has adapters of its own" \
    "${base[@]}" --model hf --init-from whole --lora-from peft --ckpt none

# --- alpha / sqrt(rank)
"${lora[@]}" hf --ckpt rs --steps 3 --lr 1e-2 --lora-scale sqrt >log 2>&1 &&
    "$merak" ckpt export rs --format peft --out rs-peft >>log 2>&1 &&
    grep -q '"use_rslora": true' rs-peft/adapter_config.json &&
    "$merak" ckpt import rs-peft --out rs-back >>log 2>&1 &&
    "$merak" ckpt export rs-back --format hf --merge --out rs-merged \
        >>log 2>&1 &&
    awk -v a="$(eval_loss rs-merged)" -v b="$(eval_loss rs)" \
        -v c="$(eval_loss whole)" \
        'BEGIN { exit !(a > 0 && (a - b) ^ 2 < 1e-12 && (b - c) ^ 2 > 1e-8) }'
ok $? "rsLoRA's factor goes to PEFT and back, and into the weights" log

# fused NAME FAMILY TARGETS RANKS [FIELD [SCALE]]: adapters of projections that are one
# tensor in files go to PEFT and back, and into the weights
fused()
{
    rm -rf p base fused fused-*
    cat >base.json <<JSON
{"model_type": "$2", "num_hidden_layers": 2, "num_attention_heads": 2,
 "hidden_size": 16, "intermediate_size": 32, "vocab_size": 257,
 "max_position_embeddings": 64, "pad_token_id": null ${5-}}
JSON
    "${base[@]}" --model base.json --ckpt p --steps 1 >log 2>&1 &&
        "$merak" ckpt export p --format hf --out base >>log 2>&1 &&
        "${base[@]}" --model base --init-from base --lora-rank 2 \
            --lora-targets "$3" --ckpt fused --steps 3 --lr 1e-2 \
            --lora-scale "${6-rank}" >>log 2>&1 &&
        "$merak" ckpt export fused --format peft --out fused-peft >>log 2>&1 &&
        tr -d ' \n' <fused-peft/adapter_config.json |
        grep -qF "\"rank_pattern\":{$4}" &&
        "$merak" ckpt import fused-peft --init-from base --out fused-back \
            >>log 2>&1 &&
        ! "$merak" ckpt diff fused fused-back --tensors-only >diff 2>&1 &&
        ! grep -v '^adam_.*: only in the first$\|tensors are equal' diff &&
        "$merak" ckpt export fused --format hf --merge --out fused-merged \
            >>log 2>&1 &&
        awk -v a="$(eval_loss fused-merged)" -v b="$(eval_loss fused)" \
            'BEGIN { exit !(a > 0 && (a - b) ^ 2 < 1e-12) }'
    ok $? "so do those of $1" log
}
fused "projections that are one tensor there" phi3 \
    q_proj,v_proj,gate_proj,o_proj '"gate_up_proj":4,"qkv_proj":6' \
    ', "num_key_value_heads": 1'
fused "those of rsLoRA" phi3 \
    q_proj,v_proj,gate_proj,o_proj '"gate_up_proj":4,"qkv_proj":6' \
    ', "num_key_value_heads": 1' sqrt
fused "projections that alternate by heads there" gpt_neox \
    query,value,dense,dense_h_to_4h '"query_key_value":6'
refuses "has adapters, and their base model gone is no folder" \
    "$merak" ckpt import peft --init-from gone --out none
refuses "has no adapters, and --format peft is for those of --lora-rank" \
    "$merak" ckpt export first --format peft --out none
mkdir oss
for file in "$here"/../vectors/weights/gpt_oss.*; do
    cp "$file" "oss/${file##*/gpt_oss.}"
done
"${base[@]}" --model oss --init-from oss --lora-rank 2 --steps 1 --ckpt routed \
    >log 2>&1
refuses "PEFT has no adapters for model.layers.0.mlp.router of GptOssForCausalLM" \
    "$merak" ckpt export routed --format peft --out none
refuses "has no adapters, and --merge is for those of --lora-rank" \
    "$merak" ckpt export first --format hf --merge --out none
refuses "has no adapter_config.json" \
    "$merak" ckpt import hf --init-from hf --out none

# --- a model in the hub's cache is found by its name
commit=0123456789abcdef0123456789abcdef01234567
hub=$tmp/home/hub/models--org--name
mkdir -p "$hub"/{refs,blobs,snapshots/$commit}
printf '%s' $commit >"$hub/refs/main"
echo '{"eos_token_id": 256}' >hf/generation_config.json
for f in hf/*; do
    cp "$f" "$hub/blobs/${f#hf/}"
    ln -s "../../blobs/${f#hf/}" "$hub/snapshots/$commit/${f#hf/}"
done
hub()
{
    HF_HOME=$tmp/home "$@"
}
hub "${base[@]}" --model org/name --init-from org/name --lora-rank 2 \
    --ckpt hubbed --steps 2 >log 2>&1 &&
    cmp hubbed/model/config.json hf/config.json &&
    cmp hubbed/model/generation_config.json hf/generation_config.json &&
    "$merak" ckpt export hubbed --format peft --out hub-peft >>log 2>&1 &&
    grep -q '"base_model_name_or_path": "org/name",' \
        hub-peft/adapter_config.json &&
    hub "$merak" ckpt import hub-peft --out hub-back >>log 2>&1 &&
    "$merak" ckpt export hub-back --format hf --merge --out hub-merged \
        >>log 2>&1 &&
    cmp hub-merged/generation_config.json hf/generation_config.json
ok $? "a model of the hub's cache is trained and exported by its name" log
[ "$(hub eval_loss org/name)" = "$(eval_loss hf)" ] &&
    hub "$merak" plan --model org/name --global-batch 4 --device cpu --seq 32 \
        >log 2>&1 &&
    hub "$merak" ckpt import org/name --out hub-run >>log 2>&1
ok $? "so do eval, plan and ckpt import" log
far=$tmp/a/folder/with/a/path/of/more/than/fifty/characters
refuses "hf download NAME (to $far/hub)" \
    env HF_HOME="$far" "$merak" train --data d --model org/other
! env HF_HOME="$far" "$merak" eval --ckpt org/other --data d >log 2>&1 &&
    grep -qF "hf download NAME (to $far/hub)" log
ok $? "merak eval says how to download a model" log
refuses "hf download NAME (to $far/hub)" \
    env HF_HOME="$far" "${base[@]}" --model hf --init-from org/other
refuses "--lora-from org/other: there is no such file or folder" \
    env HF_HOME="$far" "${base[@]}" --model hf --init-from hf --lora-from org/other

"$merak" ckpt ls whole >log && grep -q '^step-00000004 ' log
ok $? "its checkpoints are listed" log
"$merak" generate --ckpt whole --prompt 1 --tokens 4 --temperature 0 \
    --tokenizer byte >text 2>log &&
    "$merak" generate --ckpt merged --prompt 1 --tokens 4 --temperature 0 \
        --tokenizer byte >text2 2>>log && cmp text text2 && [ -s text ]
ok $? "merak generate writes with adapters what it does with merged weights" log
"$merak" ckpt reshard whole --out wide --tp 2 --dp 2 >log 2>&1 &&
    "$merak" ckpt diff whole/step-00000004 wide/step-00000004 >>log 2>&1 &&
    "${lora[@]}" hf --ckpt wide --steps 5 --lr 1e-2 >>log 2>&1 &&
    "${lora[@]}" hf --ckpt whole --steps 5 --lr 1e-2 >>log 2>&1 &&
    "$merak" ckpt diff whole wide >>log 2>&1
ok $? "it is resharded, and resumed from that" log
