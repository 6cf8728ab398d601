#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# generate_alone.sh - what `merak generate` and `merak eval` make of a model's
# files: a vocabulary larger than the tokenizer's, generation_config.json, a
# tokenizer that begins texts, weights that are no numbers
#
# Run from the build directory of tests/.

set -u
export LC_ALL=C

here=$(cd "$(dirname "$0")" && pwd)
. "$here/tap.sh"

merak=$PWD/../cmd/merak
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1

# generate OPTION...: into $tmp/out and $tmp/err
generate() { "$merak" generate --ckpt m --threads 1 "$@" >out 2>err; }
ids() { generate --ids --ignore-eod --prompt 97 "$@"; }

# says DESCRIPTION TEXT: the last command ended with 0 and said that
says()
{
    [ "$rc" -eq 0 ] && grep -qF -e "$2" err
    ok $? "$1" err out
}

echo 1..35

cat >config.json <<'JSON'
{"model_type": "llama", "vocab_size": 902, "hidden_size": 16,
 "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
 "max_position_embeddings": 64, "eos_token_id": 2}
JSON
seq 5000 >text
"$merak" data pack --tokenizer byte --out text text >/dev/null
"$merak" train --model config.json --data text --seq 32 --steps 1 \
    --global-batch 1 --threads 1 --ckpt run 2>/dev/null
"$merak" ckpt export run --format hf --out m >/dev/null
ok $? "a model with 902 tokens is there"

# --- a damaged checkpoint ---

cp -r run two && cp -r two/step-00000001 two/step-00000002
truncate -s -8 two/step-00000002/shard-*.h5
"$merak" generate --ckpt two --tokenizer byte --tokens 1 --prompt a >out 2>err &&
    [ "$(grep -c 'step-00000002 skipped' err)" -eq 1 ]
ok $? "is said to be skipped once" err

# --- a vocabulary larger than the tokenizer's ---

generate --tokenizer byte --temperature 9 --tokens 60 --ignore-eod --prompt ab
rc=$?
says "ids without a token are left out of the text, and counted" \
    "model's vocabulary of 902 is larger than the tokenizer's 257"
[ -s out ] && grep -q "60 tokens in" err
ok $? "and the text goes on behind them" err
ids --tokens 60 --temperature 9
[ $? -eq 0 ] && [ "$(wc -l <out)" -eq 60 ] && ! grep -q warn err
ok $? "as ids they are printed" err

# --- JSON ---

generate --ids --prompt "97 98" --tokens 4 --ignore-eod
made=$(paste -sd, out)
generate --ids --prompt "97 98" --tokens 4 --ignore-eod --json
[ $? -eq 0 ] && jq -e ".prompt == [97, 98] and .ids == [$made]
    and .prompt_tokens == 2 and .tokens == 4 and .finish_reason == \"length\"
    and (has(\"text\") | not)" out >/dev/null
ok $? "--json has the ids, their count and the reason of the end" err out
generate --tokenizer byte --prompt 'a"b' --tokens 9 --temperature 9 --ignore-eod
cp out plain
generate --tokenizer byte --prompt 'a"b' --tokens 9 --temperature 9 \
    --ignore-eod --json
[ $? -eq 0 ] && [ "$(wc -l <out)" -eq 1 ] &&
    jq -e '.prompt == "a\"b" and .prompt_tokens == 3 and .tokens == 9' out \
        >/dev/null && [ "$(jq -r .text out | tr -cd ' -~')" = \
    "$(tr -cd ' -~' <plain)" ]
ok $? "and the same text as without it" err out plain
printf 'a\377' >bytes
generate --tokenizer byte --prompt-file bytes --tokens 1 --json
[ $? -eq 0 ] && jq -e '.prompt == "a\ufffd" and .prompt_tokens == 2' out \
    >/dev/null
ok $? "a prompt that is no UTF-8 has U+FFFD there" err out

# --- how many ---

ids
[ $? -eq 0 ] && [ "$(wc -l <out)" -eq 63 ]
ok $? "without --tokens, as many as fit are generated" err
ids --tokens 64
[ $? -eq 66 ] && grep -q "prompt of 1 tokens and --tokens 64 are more" err
ok $? "more that are asked for are refused" err
generate --ids --prompt "$(seq 1 64)"
[ $? -eq 66 ] && grep -q "leaves no room for another in the model's 64" err
ok $? "so is a prompt that fills the model's positions" err

# --- generation_config.json ---

ids --tokens 8
first=$(head -1 out)
echo "{\"suppress_tokens\": [$first], \"max_new_tokens\": 5}" \
    >m/generation_config.json
ids
[ $? -eq 0 ] && ! grep -qx "$first" out && [ "$(wc -l <out)" -eq 5 ]
ok $? "tokens it suppresses are not generated, nor more than it says" err out
echo "{\"eos_token_id\": $first}" >m/generation_config.json
generate --ids --prompt 97
[ $? -eq 0 ] && [ ! -s out ]
ok $? "its end ends the text" out
generate --ids --prompt 97 --json
[ $? -eq 0 ] && jq -e '.finish_reason == "stop" and .tokens == 0' out >/dev/null
ok $? "which --json gives as the reason" out
sed -i "s/\"eos_token_id\": 2/\"eos_token_id\": $first/" m/config.json
echo '{}' >m/generation_config.json
generate --ids --prompt 97 --tokens 4
[ $? -eq 0 ] && [ "$(wc -l <out)" -eq 4 ] && grep -q "_id\": $first" m/config.json
ok $? "a file without one has none, whatever config.json says" out
echo '{"num_beams": 4, "do_sample": true, "temperature": 0.6, "top_p": 0.9}' \
    >m/generation_config.json
ids --tokens 4
rc=$?
says "what is not obeyed is named" "these are not obeyed: num_beams"
says "so are the options for sampling as it says" \
    "would sample with --temperature 0.6 --top-k 50 --top-p 0.9"
echo '{"suppress_tokens": "x"}' >m/generation_config.json
ids --tokens 4
[ $? -eq 66 ] && grep -q 'field suppress_tokens is "x"' err
ok $? "a field of the wrong type is refused" err
rm m/generation_config.json

# --- a model that gives orders to the terminal ---

python3 -c 'import json
json.dump({"suppress_tokens": [i for i in range(902) if i != 27]},
          open("m/generation_config.json", "w"))'
orders=("$merak" generate --ckpt m --threads 1 --tokenizer byte --prompt a
    --tokens 2 --ignore-eod)
"${orders[@]}" >out 2>err
[ $? -eq 0 ] && printf '\033\033\n' | cmp - out
ok $? "a file gets control characters as they are generated" out err
python3 -c 'import os, pty, sys
sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))' \
    "${orders[@]}" >out </dev/null
[ $? -eq 0 ] && grep -qF '\u001b\u001b' out && ! grep -qF $'\x1b' out
ok $? "a terminal gets them escaped" out
rm m/generation_config.json

# --- a tokenizer that begins texts ---

kind=$here/../vectors/tokenizer/kind_llama2.json
generate --tokenizer "$kind" --tokens 2 --prompt '<s>a'
rc=$?
says "the token that begins a text twice is warned of" \
    "begins with token 1 twice"
generate --tokenizer "$kind" --tokens 2 --prompt 'a'
[ $? -eq 0 ] && ! grep -q twice err
ok $? "once it is as it should be" err

mkdir chat
cp "$kind" chat/tokenizer.json
cat >chat/tokenizer_config.json <<'JSON'
{"bos_token": "<s>", "chat_template": "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{% endfor %}"}
JSON
talk='[{"role": "user", "content": "%s"}, {"role": "assistant", "content": "b"}]'
for text in '<s>a' a '<s>c'; do
    printf "{\"messages\": $talk}\\n" "$text"
done >talks.jsonl
"$merak" data pack --tokenizer chat --out talks talks.jsonl >out 2>err
rc=$?
says "so are conversations that begin with it twice, once for all" \
    "2 documents begin with token 1 twice"
for i in 0 1; do
    "$merak" data pack --tokenizer chat --out parts --task $i/2 talks.jsonl
done >out 2>err
rc=$?
says "several tasks count them together" \
    "2 documents begin with token 1 twice"
grep -v '<s>' talks.jsonl >talk.jsonl
"$merak" data pack --tokenizer chat --out talk talk.jsonl >out 2>err &&
    ! grep -q twice err
ok $? "and one that begins with it once is not" err

mkdir spm
cp "$here/../vectors/tokenizer/kind_spm_bpe.model" spm/tokenizer.model
spm() { generate --tokenizer spm --tokens 1 --prompt a; sed 's/ in.*//' err; }
whole=$(spm)
echo '{"add_bos_token": false}' >spm/tokenizer_config.json
[ "$whole" = "merak generate: prompt of 2 tokens" ] &&
    [ "$(spm)" = "merak generate: prompt of 1 token" ]
ok $? "add_bos_token of a SentencePiece model's folder is obeyed" err
echo '{"add_eos_token": true}' >spm/tokenizer_config.json
[ "$(spm)" = "merak generate: prompt of 3 tokens" ]
ok $? "so is add_eos_token" err

# --- the first sequences of data ---

head -c 65 text >first
"$merak" data pack --tokenizer byte --out first first >/dev/null
eval_() { "$merak" eval --ckpt m --seq 32 --threads 1 --json "$@"; }
[ "$(eval_ --data text --samples 2)" = "$(eval_ --data first)" ]
ok $? "--samples takes the first sequences of the data"
[ "$(eval_ --data "0.9 first 0.1 text" | sed 's/.*tokens": //')" = \
    "$((64 + ($(wc -c <text) - 1) / 32 * 32))}" ]
ok $? "of a blend each sequence counts once"

eval_default() { "$merak" eval --ckpt m --threads 1 --json "$@"; }
sed -i 's/"max_position_embeddings": 64/"max_position_embeddings": 512/' \
    m/config.json
[ "$(eval_default --data text | sed 's/.*tokens": //')" = \
    "$((($(wc -c <text) - 1) / 256 * 256))}" ]
ok $? "without --seq, sequences are as long as in training"

# --- fields that are not read ---

sed 's/{/{"of_no_use": 1,/' m/config.json >odd.json
for verb in "export run --format hf --out odd-m" "reshard run --out odd-run"; do
    "$merak" ckpt $verb --model odd.json >out 2>err
    [ $? -eq 0 ] && [ "$(grep -c 'are ignored: of_no_use' err)" -eq 1 ]
    ok $? "ckpt ${verb%% *} names them once" err
done

# --- weights that are no numbers ---

printf '\377\377\377\377' | dd of=m/model.safetensors bs=1 conv=notrunc \
    seek=$(($(wc -c <m/model.safetensors) - 4)) 2>/dev/null
"$merak" ckpt import m --out nan >out 2>err
rc=$?
says "an import names weights with NaN" \
    "1 of the weights have numbers that are NaN or infinite"
"$merak" train --model m --data text --seq 32 --steps 1 --global-batch 1 \
    --threads 1 --init-from m >out 2>&1
grep -q 'warn: .*--init-from: .* of m has numbers that are NaN or infinite' out
ok $? "a run that begins with them does, too" out
eval_ --data first >out 2>err
[ $? -eq 0 ] && grep -q '"loss": null, "perplexity": null, "tokens": 64' out
ok $? "a loss that is no number is null in JSON" out err
