#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0420-weights.bats - weights of Hugging Face folders: in, trained, and out
#
# Folders and losses are those that tests/vectors/weights/make_weights.py made.

load cluster

setup()
{
    cd "$BATS_TEST_TMPDIR"
    vectors=$TESTS/vectors/weights
    merak data pack --tokenizer byte --out sample "$vectors/sample.txt" >/dev/null
}

# folder FAMILY: its files, in a folder of that name
folder()
{
    local file

    mkdir "$1"
    for file in "$vectors/$1".*; do
        cp "$file" "$1/${file##*/"$1".}"
    done
    rm "$1/loss"
}

# all the sample's sequences in a step, as the stored losses have them
options=(--data sample --seq 32 --global-batch 12 --valid-fraction 0)

# loss_is FILE LINE LOSS: that of a step, within 1e-4 of it
loss_is()
{
    sed -n "$2p" "$1" | grep -o '"loss": [0-9.]*' | awk -v want="$3" '
        { d = $2 / want - 1 }
        NF != 2 || d > 1e-4 || d < -1e-4 { print $2 " is not " want; exit 1 }
        END { exit NR != 1 }'
}

@test "every family starts with the loss that transformers has" {
    for family in gpt2 llama mistral qwen2 qwen3 phi3 olmo2 gemma2 gemma \
        gemma3_text arcee granite smollm3 olmo3 stablelm starcoder2 phi \
        gpt_neox mixtral qwen2_moe qwen3_moe olmoe glm4_moe \
        deepseek_v3 deepseek_v2 gpt_oss mxfp4; do
        folder $family
        run merak train --model $family --init-from $family "${options[@]}" \
            --steps 1 --metrics $family.jsonl
        echo "$output"
        [ "$status" -eq 0 ]
        [[ $output == *"weights are those of $family"* ]]
        loss_is $family.jsonl 1 "$(cat "$vectors/$family.loss")"
        # judged as it is, without an import
        merak eval --ckpt $family --data sample --seq 32 --json >eval.json
        jq -c '{loss}' eval.json | sed 's/:/: /' >eval.loss
        loss_is eval.loss 1 "$(cat "$vectors/$family.loss")"
    done
    # bf16 is for operands: master weights are what was stored
    merak train --model qwen3 --init-from qwen3 "${options[@]}" --steps 1 \
        --dtype bf16 --lr 0 --weight-decay 0 --ckpt half
    merak ckpt export half --format hf --dtype bf16 --out back
    cmp qwen3/model.safetensors back/model.safetensors
}

@test "in, two steps on tp 2 x pp 2, out, and in again" {
    folder llama
    run merak ckpt import llama --out base
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == "llama: 21 tensors of a llama in 4 files, 23.72 KiB, imported in "* ]]
    merak ckpt verify base
    run srun -n4 --merak-tp=2 --merak-pp=2 merak train --model llama \
        --init-from base "${options[@]}" --steps 2 --ckpt tuned \
        --metrics tuned.jsonl
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *"weights are those of base/step-00000000"* ]]
    loss_is tuned.jsonl 1 "$(cat "$vectors/llama.loss")"
    run merak ckpt show tuned
    [[ $output == *"first weights     base/step-00000000"* ]]
    # a folder's weights on other degrees, read by parts
    run srun -n4 --merak-tp=2 --merak-pp=2 merak train --model llama \
        --init-from llama "${options[@]}" --steps 2 --metrics parts.jsonl
    [ "$status" -eq 0 ]
    cmp <(grep -o '"loss": [0-9.]*' tuned.jsonl) \
        <(grep -o '"loss": [0-9.]*' parts.jsonl)
    # all of it in f32, out and in: nothing is lost
    run merak ckpt export tuned --format hf --out out --shard-size 20KB --json
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == '{"from":"tuned","out":"out","family":"llama","tensors":21,"files":3,"bytes":48576,'* ]]
    merak ckpt import out --out again
    for tensor in model.embed_tokens.weight lm_head.weight \
        model.layers.1.self_attn.k_proj.weight; do
        diff <(merak ckpt show tuned/step-00000002 param/$tensor | grep min,) \
            <(merak ckpt show again param/$tensor | grep min,)
    done
    merak ckpt export again --format hf --out twice
    diff -r out twice
    # what comes next is what the run itself would have had
    merak train --model out --init-from out "${options[@]}" --steps 1 \
        --metrics again.jsonl
    merak train --model llama --ckpt tuned "${options[@]}" --steps 3 \
        --metrics tuned.jsonl
    loss_is again.jsonl 1 "$(tail -1 tuned.jsonl | grep -o '"loss": [0-9.]*' | cut -c9-)"
}

@test "text comes of a folder as of what is imported from it" {
    for family in gpt2 llama phi3 gemma2 gpt_neox; do
        folder $family
        merak ckpt import $family --out run-$family
        for dtype in fp32 bf16; do
            merak generate --ckpt $family --ids --prompt "5 9 2" --tokens 12 \
                --dtype $dtype >folder.txt
            [ "$(wc -l <folder.txt)" -eq 12 ]
            # config.json is the one that the run keeps
            merak generate --ckpt run-$family --ids --prompt "5 9 2" \
                --tokens 12 --dtype $dtype | cmp - folder.txt
        done
    done
    merak generate --ckpt run-gpt2/step-00000000 --ids --prompt "5 9 2" \
        --tokens 12 >step.txt
    merak generate --ckpt gpt2 --ids --prompt "5 9 2" --tokens 12 |
        cmp - step.txt
    one=(--ids --prompt 1 --tokens 1)
    refused 67 "gemma2: " merak generate --ckpt gemma2 --model llama "${one[@]}"
    truncate -s -1 gpt2/model.safetensors
    refused 67 "gpt2/model.safetensors: tensor" merak generate --ckpt gpt2 \
        "${one[@]}"
    rm gpt2/model.safetensors
    refused 67 "gpt2 holds neither model.safetensors" merak generate \
        --ckpt gpt2 "${one[@]}"
}

@test "an imported run is trained where it is, and stays" {
    folder gpt2
    merak ckpt import gpt2 --out run
    for steps in 1 2 3; do
        run merak train --model gpt2 --ckpt run "${options[@]}" --steps $steps \
            --metrics $steps.jsonl
        echo "$output"
        [ "$status" -eq 0 ]
        [ $steps -ne 1 ] || [[ $output == *"weights are those of run/step-00000000, imported from gpt2"* ]]
    done
    loss_is 1.jsonl 1 "$(cat "$vectors/gpt2.loss")"
    run merak ckpt ls run
    echo "$output"
    [[ $output == *step-00000003*step-00000002*step-00000000* ]]
    [[ $output != *step-00000001* ]]
    merak ckpt export run/step-00000000 --format hf --out out
    diff -r gpt2 out
    merak ckpt export run --format llmc --out llmc
    [ "$(stat -c %s llmc/model.bin)" -eq 56064 ]
    # a run that goes on does not begin again
    run merak train --model gpt2 --ckpt run --init-from gpt2 "${options[@]}" \
        --steps 4
    [[ $output == *"--init-from gpt2 is not read: the run resumes"*"resumed run/step-00000003"* ]]
}

# refused CODE WHAT COMMAND...: one line, which has WHAT
refused()
{
    local code=$1 what=$2

    run --separate-stderr "${@:3}"
    echo "exit code $status: $output $stderr"
    [ "$status" -eq "$code" ]
    [ "$(grep -c "error: \|^merak \(ckpt\|generate\)" <<<"$stderr")" -eq 1 ]
    [[ $stderr == *"$what"* ]]
}

@test "what does not fit is one line that names it" {
    folder qwen3
    folder phi3
    refused 66 "no --out given" merak ckpt import qwen3
    refused 66 "needs a directory" merak ckpt import --out run
    refused 66 "--dtype: expected" merak ckpt export x --format hf --dtype i8 --out y
    refused 66 "no --format given" merak ckpt export x --out y
    refused 66 "--shard-size: expected a size such as 5GB" \
        merak ckpt export x --format hf --shard-size big --out y
    refused 66 "model none: there is no such file or folder" \
        merak ckpt import none --out run
    mkdir bare && cp qwen3/config.json bare
    refused 67 "bare has neither model.safetensors nor" \
        merak ckpt import bare --out run
    [ ! -e run ]
    truncate -s -1 phi3/model.safetensors
    refused 67 "phi3/model.safetensors: tensor" merak ckpt import phi3 --out run
    refused 67 "phi3/model.safetensors: tensor" merak train --model qwen3 \
        --init-from phi3 "${options[@]}" --steps 1
    # the same family, other shapes: before the first step
    sed 's/"intermediate_size": 24/"intermediate_size": 32/' \
        qwen3/config.json >wide.json
    refused 67 "tensor model.layers.0.mlp.gate_proj.weight is [24, 16] by its config.json, expected [32, 16]" \
        merak train --model wide.json --init-from qwen3 "${options[@]}" --steps 1
    merak ckpt import qwen3 --out run
    refused 67 "tensor model.layers.0.mlp.down_proj.weight is [16, 24], expected [16, 32] (and 5 more)" \
        merak train --model wide.json --init-from run "${options[@]}" --steps 1
    refused 67 "holds neither model.safetensors" merak train --model qwen3 \
        --init-from "$vectors" "${options[@]}" --steps 1
    refused 66 "run already has checkpoints" merak ckpt import qwen3 --out run
    refused 66 "llm.c has only models of the gpt2 family" \
        merak ckpt export run --format llmc --out llmc
    [ ! -e llmc ]
    refused 66 "qwen3 is not empty" merak ckpt export run --format hf --out qwen3
    rm -r run/model
    refused 66 "run/model/config.json does not exist: give the" \
        merak ckpt export run --format hf --out out
    merak ckpt export run --format hf --model qwen3 --dtype bf16 --out out
    [ -e out/config.json ]
}
