#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0320-generate.bats - a checkpoint of any degrees goes on with a text, and
# judges texts

load cluster

# bats' tests share no folder of their own
setup_file()
{
    cd "$BATS_FILE_TMPDIR" || return 1
    merak data pack --tokenizer byte --append-eod --out corpus \
        /usr/share/common-licenses/{GPL-2,Artistic}
    cat >config.json <<'JSON'
{"model_type": "llama", "vocab_size": 257, "hidden_size": 64,
 "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
 "num_key_value_heads": 2, "max_position_embeddings": 256,
 "rms_norm_eps": 1e-5, "rope_theta": 10000.0}
JSON
    srun -n4 --merak-tp=2 --merak-pp=2 merak train --model config.json \
        --data corpus --seq 64 --global-batch 8 --micro-batch 2 --steps 20 \
        --lr 3e-3 --valid-fraction 0.2 --ckpt run 2>train.log
    srun -n1 merak train --model config.json --data corpus --seq 64 \
        --global-batch 8 --micro-batch 2 --steps 20 --lr 3e-3 \
        --valid-fraction 0.2 --ckpt alone 2>/dev/null
}

setup() { cd "$BATS_FILE_TMPDIR" || return 1; }

generate()
{
    merak generate --tokenizer byte --prompt "This program is" --tokens 30 "$@"
}

@test "four ranks' checkpoint says what one rank's says" {
    generate --ckpt run --model config.json >run.txt
    generate --ckpt alone --model config.json >alone.txt
    [ "$(wc -c <run.txt)" -gt 20 ]
    cmp run.txt alone.txt
    generate --ckpt alone --model config.json --threads 1 | cmp - alone.txt
}

@test "the model and the tokenizer may lie with the run" {
    generate --ckpt alone | cmp - alone.txt # alone/model, as it was trained
    generate --ckpt alone/step-00000020 | cmp - alone.txt
    cp config.json alone/
    cp "$BATS_TEST_DIRNAME/../vectors/tokenizer/tiny.json" alone/tokenizer.json
    generate --ckpt alone | cmp - alone.txt
    generate --ckpt alone/step-00000020 | cmp - alone.txt
    run merak generate --ckpt alone --prompt "This program is"
    [ "$status" -eq 67 ]
    [[ $output == *"the tokenizer has 661 tokens, the model 257"* ]]
    rm alone/config.json alone/tokenizer.json
}

@test "what is drawn follows from the seed" {
    generate --ckpt run --model config.json --temperature 1 --seed 3 >one.txt
    generate --ckpt run --model config.json --temperature 1 --seed 3 |
        cmp - one.txt
    run cmp <(generate --ckpt run --model config.json --temperature 1) one.txt
    [ "$status" -eq 1 ]
    generate --ckpt run --model config.json --temperature 1 --top-k 1 |
        cmp - run.txt
}

@test "ids go in and come out, a prompt from a pipe too" {
    ids=$(printf 'This program is' | od -An -tu1)
    generate --ckpt run --model config.json --ids --prompt "$ids" 2>/dev/null |
        awk '{ printf "%c", $1 }' >ids.txt
    cmp <(head -c 30 run.txt) <(head -c 30 ids.txt)
    printf 'This program is' | merak generate --ckpt run --model config.json \
        --tokenizer byte --tokens 30 --prompt-file - | cmp - run.txt
}

# training validates by 64 sequences
@test "held-out loss is that of training" {
    trained=$(sed -n 's/.*held-out loss //p' train.log | tail -1)
    merak eval --ckpt run --model config.json --data corpus --seq 64 \
        --valid-fraction 0.2 --samples 64 --json >eval.json
    jq -e --argjson t "$trained" '.loss - $t | fabs < 0.0002' eval.json
    jq -e '(.perplexity | log) - .loss | fabs < 1e-6' eval.json
    merak eval --ckpt run --model config.json --data corpus --seq 64 \
        --valid-fraction 0.2 --tokenizer byte --samples 3 >some.txt
    grep -q "^of  *192 tokens, 19[0-2] bytes$" some.txt
}

@test "answers are judged one by one" {
    cat >q.jsonl <<'JSON'
{"prompt": "This program is", "choices": [" free", " qzx!"], "answer": 0}

{"prompt": "This program is", "choices": [" qzx!"]}
{"prompt": "", "choices": ["qqqq", "the "], "answer": 0}
JSON
    merak eval --ckpt run --model config.json --tokenizer byte \
        --choices q.jsonl >a.jsonl 2>tally.txt
    [ "$(jq -c '[.best, .answer, .tokens[0]]' a.jsonl | tr -d '\n')" = \
        "[0,0,5][0,null,5][1,0,4]" ]
    # the same answer behind the same prompt, whatever was judged between
    [ "$(jq -s '(.[0].loglikelihood[1] - .[1].loglikelihood[0]) * 1000 | round' \
        a.jsonl)" -eq 0 ]
    grep -q "3 questions, 50.00 % right by log-likelihood, 50.00 %" tally.txt
    echo '{"prompt": "x", "choices": ["y"], "answer": 1}' >q.jsonl
    run merak eval --ckpt run --model config.json --tokenizer byte \
        --choices q.jsonl
    [ "$status" -eq 67 ]
    [[ $output == *'q.jsonl, line 1: "answer" is not the number of a choice'* ]]
}

@test "what does not fit is refused" {
    refused()
    {
        local code=$1 text=$2
        shift 2
        run merak generate "$@"
        echo "$output"
        [ "$status" -eq "$code" ]
        [[ $output == *"merak generate: "*"$text"* ]]
    }
    refused 66 "give --prompt TEXT or --prompt-file FILE" --ckpt run
    refused 66 "no weights: give --ckpt DIR" --prompt x
    mv run/model kept
    refused 66 "no config.json in run: give --model DIR" --ckpt run --prompt x
    mv kept run/model
    refused 66 "no tokenizer: give --tokenizer byte" --ckpt run \
        --model config.json --prompt x
    refused 66 "more than the model's 256 positions" --ckpt run --prompt x \
        --model config.json --tokenizer byte --tokens 256
    refused 66 "the prompt has no token" --ckpt run --model config.json \
        --tokenizer byte --prompt ""
    refused 66 '--ids: "x" is not a token id' --ckpt run --model config.json \
        --ids --prompt "1 x"
    refused 66 "token 300 is outside the vocabulary of 257" --ckpt run \
        --model config.json --ids --prompt "1 300 2"
    sed 's/"hidden_size": 64/"hidden_size": 32/' config.json >other.json
    refused 67 "is of another model" --ckpt run --model other.json \
        --tokenizer byte --prompt x
    refused 67 "absent" --ckpt absent --model config.json --tokenizer byte \
        --prompt x
}
