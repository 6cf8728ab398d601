#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run_preferences.sh - pairs of a chosen and a rejected answer, from their lines
# to a run that prefers the first
#
# Run from the build directory of tests/.

set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
. "$here/tap.sh"
. "$here/in_tmp.sh"

small_llama >small.json
for i in $(seq 60); do
    echo "{\"prompt\": \"after $i comes \", \"chosen\": \"$((i + 1))\"," \
        "\"rejected\": \"$(seq -s , $((i % 5 + 1)))\"}"
done >p.jsonl

# pack OUT FILE [OPTION..]
pack()
{
    "$merak" data pack --tokenizer byte --out "$@" >log 2>&1
}

# refuses TEXT COMMAND..: fails with one error that has the text
refuses()
{
    local text=$1
    shift
    ! "$@" >log 2>&1 &&
        [ "$(grep -c 'error: \|^merak [a-z]* *[a-z]*: ' log)" -eq 1 ] &&
        grep 'error: \|^merak ' log | grep -qF -- "$text"
    ok $? "refused: $text" log
}

# losses RUN: of every step
losses()
{
    sed -n 's/.*"loss": \([^,]*\),.*/\1/p' "$1/metrics.jsonl"
}

echo 1..49

pack p p.jsonl && grep -q 'tokens of 120 documents' log &&
    grep -q 'in answers, chosen and rejected$' log
ok $? "a pair is two documents" log
pack two p.jsonl --task 0/2 && pack two p.jsonl --task 1/2 &&
    cmp p.bin two.bin && cmp p.idx two.idx && cmp p.mask two.mask
ok $? "two tasks pack what one does" log
pack j p.jsonl --json && grep -q '"pairs":60}' log
ok $? "pairs are counted in JSON" log

# --- what both begin with is the prompt
chat() # ROLE TEXT
{
    printf '{"role": "%s", "content": "%s"}' "$1" "$2"
}
asked=$(chat user a)
good=$(chat assistant b)
bad=$(chat assistant cd)
echo "{\"prompt\": [$asked], \"chosen\": [$good], \"rejected\": [$bad]}" >a.jsonl
echo "{\"chosen\": [$asked, $good], \"rejected\": [$asked, $bad]}" >b.jsonl
echo "{\"prompt\": \"a\", \"chosen\": [$asked, $good]," \
    "\"rejected\": [$asked, $bad], \"messages\": [$asked, $good]}" >c.jsonl
pack a a.jsonl --chat chatml && pack b b.jsonl --chat chatml &&
    pack c c.jsonl --chat chatml &&
    cmp a.bin b.bin && cmp a.mask b.mask && cmp a.bin c.bin && cmp a.mask c.mask
ok $? "messages with a prompt and without give the same" log
echo "{\"messages\": [$asked, $good]}" >good.jsonl
echo "{\"messages\": [$asked, $bad]}" >bad.jsonl
pack m good.jsonl --chat chatml && "$merak" data pack --tokenizer byte --out n \
    --chat chatml bad.jsonl >>log 2>&1 && cat m.bin n.bin | cmp - a.bin
ok $? "each answer is tokenized as a conversation is" log
{
    head -n 2 p.jsonl
    echo '{"prompt": [], "chosen": [{"role": "assistant", "content": "x"}], "rejected": []}'
    tail -n +3 p.jsonl
} >mixed.jsonl
pack skip mixed.jsonl --bad-lines skip --chat chatml && cmp skip.bin p.bin &&
    grep -q '1 bad line left out.*line 3: "rejected": 0 messages' log
ok $? "a line of which one answer is refused leaves nothing" log
refuses 'p.jsonl line 1: pairs of answers, after answers: pack them separately' \
    "$merak" data pack --tokenizer byte --chat chatml --out x good.jsonl p.jsonl
refuses "cannot mark tokens of answers" \
    "$merak" data pack --tokenizer byte --format llmc --out x p.jsonl

# --- the reference
seq 5000 >x.txt
pack d x.txt
"$merak" train --data d --seq 32 --model small.json --ckpt first --steps 5 \
    --lr 1e-2 >log 2>&1 &&
    "$merak" ckpt export first --format hf --out hf >>log 2>&1
dpo=("$merak" train --data p --seq 48 --model hf --init-from hf --log-every 1
    --lr-schedule constant --objective dpo)
refuses "p.ref does not exist: \`merak eval --ckpt BASE --data p --reference\`" \
    "${dpo[@]}"
refuses "has pairs of a chosen and a rejected answer, and both would be learned" \
    "$merak" train --data p --seq 48 --model hf
refuses "d.bin has no pairs of answers" \
    "$merak" eval --ckpt hf --data d --reference
refuses "each by itself: leave out" \
    "$merak" eval --ckpt hf --data p --reference --samples 3
"$merak" eval --ckpt hf --data p --reference --json >log 2>&1 &&
    grep -q '"pairs": 60, "too_long": 0,' log &&
    [ "$(stat -c %s p.ref)" -eq $((328 + 2 * $(stat -c %s p.bin))) ]
ok $? "merak eval writes it beside the data" log
# the mean over all answers is that of both kinds
"$merak" eval --ckpt hf --data p --doc-mask --seq 64 --json >all 2>>log
awk -F'[:,}]' 'NR == FNR { a = $6; b = $8; next }
    { exit !(($2 - a) * ($2 - b) < 0) }' log all
ok $? "its losses are those of merak eval" log all
# share I N: as task I of a step of N
share()
{
    SLURM_STEP_NUM_TASKS=$2 SLURM_PROCID=$1 "$merak" eval --ckpt hf --data m \
        --reference --json
}
for i in $(seq 40); do sed "s/after/$i after/" p.jsonl; done >m.jsonl
pack m m.jsonl && "$merak" eval --ckpt hf --data m --reference --json >want &&
    mv m.ref m.want && share 1 3 >got && [ ! -e m.ref ] &&
    timeout -s KILL 0.2 env SLURM_STEP_NUM_TASKS=3 SLURM_PROCID=0 "$merak" \
        eval --ckpt hf --data m --reference >>got 2>&1
share 1 2 >got1 2>&1 & share 0 2 >got0 2>&1
wait
cmp m.ref m.want && [ ! -e m.ref.parts ] && cat got0 got1 | grep -qF "$(cat want)"
ok $? "tasks, of which one was killed, write what one does" want got got0 got1
share 1 2 >/dev/null
"$merak" ckpt export first --format hf --dtype bf16 --out other >/dev/null
refuses "m.ref.parts has parts of another packing, not the same in --ckpt" env \
    SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 "$merak" eval --ckpt other --data m \
    --reference
cp p.ref whole.ref
refuses "--data has no pair of answers of at most 4 tokens: the longest document has " \
    "$merak" eval --ckpt hf --data p --reference --seq 4
cmp p.ref whole.ref
ok $? "which leaves a reference that is there" log

# --- a reference that is not of this data
# broken TEXT: dpo refuses p.ref, which is put back
broken()
{
    refuses "$1" "${dpo[@]}"
    cp whole.ref p.ref
}
printf 'x' >>p.ref
broken "bytes, expected $(stat -c %s whole.ref) for "
printf 'x' | dd of=p.ref bs=1 seek=400 conv=notrunc 2>/dev/null
broken "p.ref is damaged: its checksum is "
printf 'x' | dd of=p.ref bs=1 conv=notrunc 2>/dev/null
broken "it does not start with MERAKREF"
printf 'x' | dd of=p.ref bs=1 seek=8 conv=notrunc 2>/dev/null
broken "p.ref: version 120, expected at most 2"
printf 'x' | dd of=p.ref bs=1 seek=32 conv=notrunc 2>/dev/null
broken "p.ref was not made with p.bin: make it again"
printf 'x' | dd of=p.ref bs=1 seek=56 conv=notrunc 2>/dev/null
broken "p.ref was not made with p.bin: make it again"
printf 'x' | dd of=p.ref bs=1 seek=327 conv=notrunc 2>/dev/null
broken "p.ref: the name of its model has no end"
head -c 100 whole.ref >p.ref
broken "p.ref: 100 bytes, expected a header of 328"
: >p.ref
broken "p.ref: 0 bytes, expected a header of 56"
"$merak" eval --ckpt hf --data p --reference --seq 20 >log 2>&1
broken "of documents of up to 20 tokens, this has one of "

# --- training
"${dpo[@]}" --ckpt whole --steps 4 --lr 1e-2 >log 2>&1 && cp log whole.log
ok $? "a run of four steps" log
read -r predicted reserved < <(sed -n \
    's/.*predicted \([0-9]*\) bytes.*reserved \([0-9]*\)$/\1 \2/p' log)
[ "$predicted" = "$reserved" ] && [ "$predicted" -gt 0 ]
ok $? "memory is what was predicted, to the byte" log
losses whole | awk 'NR == 1 { first = $1 } { last = $1 }
    END { exit !((first - log(2)) ^ 2 < 1e-12 && last < 0.9 * first) }'
ok $? "the loss begins at log 2, and falls" whole/metrics.jsonl
sed 's/.*"rewards\/chosen": \(.*\), "rewards\/rejected": \(.*\), "rewards\/margins": \(.*\), "rewards\/accuracies": \([^,}]*\).*/\1 \2 \3 \4/' \
    whole/metrics.jsonl >rewards &&
    awk 'NF != 4 || ($1 - $2 - $3) ^ 2 > 1e-12 || $4 < 0 || $4 > 1 { bad = 1 }
    NR == 1 && $3 ^ 2 > 1e-10 { bad = 1 }
    END { exit !(!bad && NR == 4 && $3 > 0.1 && $4 > 0.8) }' rewards
ok $? "rewards are the same at first, and then the chosen answers are larger" rewards
"${dpo[@]}" --ckpt half --steps 2 --lr 1e-2 >log 2>&1 &&
    "${dpo[@]}" --ckpt half --steps 4 --lr 1e-2 >>log 2>&1 &&
    [ "$(losses half)" = "$(losses whole)" ] && cp log half.log
ok $? "a run that was stopped goes on as if it had not been" log
"${dpo[@]}" --ckpt lora --steps 4 --lr 1e-2 --lora-rank 4 --dpo-beta 0.5 \
    >log 2>&1 &&
    losses lora | awk 'NR == 1 { exit !(($1 - log(2)) ^ 2 < 1e-12) }' &&
    "$merak" ckpt export lora --format peft --out peft >>log 2>&1
ok $? "beside adapters the base model is the reference" log
"$merak" eval --ckpt whole --data two --reference >log 2>&1 &&
    grep -q '^chosen likelier   [0-9.]* % of 60 pairs' log && ! cmp -s p.ref two.ref
ok $? "the chosen answers are likelier afterwards" log
# Of held-out pairs, which begin in the last 5 % of the tokens: the sums of both
# references' losses over each answer.
numbers() # FILE FIRST-BYTE TYPE
{
    od -An -v -w4 -t "$3" -j "$2" "$1"
}
awk -v beta=0.1 'FILENAME == ARGV[1] { if (n < 120) { len[n++] = $1; all += $1 } }
    FILENAME == ARGV[2] { before[++b] = $1 }
    FILENAME == ARGV[3] { after[++a] = $1 }
    END {
        for (d = 0; d < n; d++) {
            if (d % 2 == 0)
                out = at >= all - int(all * 0.05)
            r = 0
            for (i = 1; i <= len[d]; i++)
                r += beta * (before[at + i] - after[at + i])
            at += len[d]
            sum[d % 2] += out * r
            if (d % 2 == 0)
                chosen = r
            else if (out) {
                pairs++
                wins += chosen > r
            }
        }
        print sum[0] / pairs, sum[1] / pairs, (sum[0] - sum[1]) / pairs, \
            wins / pairs
    }' <(numbers p.idx 34 d4) <(numbers p.ref 328 f4) \
    <(numbers two.ref 328 f4) >want
sed -n 's/.*"valid_rewards\/chosen": \(.*\), "valid_rewards\/rejected": \(.*\), "valid_rewards\/margins": \(.*\), "valid_rewards\/accuracies": \([^,}]*\).*/\1 \2 \3 \4/p' \
    whole/metrics.jsonl >got
paste -d ' ' want got | awk '{ for (i = 1; i <= 4; i++)
        if (($i - $(i + 4)) ^ 2 > 1e-10) bad = 1 }
    END { exit !(NR == 1 && NF == 8 && $3 > 0.1 && !bad) }' &&
    grep -q 'step 4  held-out loss [0-9.]*  margin [0-9.]*  accuracy [01]' whole.log
ok $? "held-out rewards are those of what eval makes of the run" want got whole.log
refuses ", and two.ref was made with others, " "${dpo[@]}" --data two --steps 1
refuses " of whole: make it again with \`merak eval --ckpt hf --reference\`, or" \
    "${dpo[@]}" --data two --steps 1
"${dpo[@]}" --data two --steps 1 --model-changed yes >log 2>&1
ok $? "but for those who want it" log
# The numbers of a model are the same in a run and in its exports.
for of in first "hf --dtype bf16" other; do
    rm two.ref
    "$merak" eval --ckpt $of --model hf --data two --reference >log 2>&1 &&
        "${dpo[@]}" --data two --steps 1 --init-from first >>log 2>&1 || break
done
ok $? "run and exports are the same model, in any type" log
rm two.ref
"$merak" eval --ckpt lora --data two --reference >log 2>&1 &&
    "${dpo[@]}" --data two --steps 1 --lora-rank 4 --init-from lora >>log 2>&1 &&
    "${dpo[@]}" --data p --steps 1 --lora-rank 4 --init-from lora >>log 2>&1
ok $? "with adapters the reference is either model" log
refuses ", and two.ref was made with others, " \
    "${dpo[@]}" --data two --steps 1 --lora-rank 4
# A file of the first version: no fields at 56 to 327.
{
    head -c 8 two.ref
    printf '\1'
    head -c 56 two.ref | tail -c 47
    tail -c +329 two.ref
} >old && mv old two.ref
grep -L 'the first loss is' half.log | grep -q . &&
    "${dpo[@]}" --data two --steps 1 --dpo-beta 2 >log 2>&1 &&
    grep -q 'two.ref does not say of which model it is, an earlier' log &&
    grep -q 'warn: train: the first loss is .*merak eval --ckpt hf ' log
ok $? "one of an earlier version is read, and another model noticed" log
refuses "is of a model with DPO beta (--dpo-beta) 0.1, this run has 0.2" \
    "${dpo[@]}" --ckpt whole --steps 6 --dpo-beta 0.2
refuses "--dpo-beta needs --objective dpo" \
    "$merak" train --data d --model hf --dpo-beta 0.2
refuses "expected --packing best-fit or auto, got stream" \
    "${dpo[@]}" --packing stream
refuses "(pair_loss) needs whole sequences: use --cp 1" \
    "$merak" plan --model hf --objective dpo --seq 48 --cp 2
refuses "cuts sequences, and pair_loss" \
    "${dpo[@]}" --schedule sliced:2 --micro-batch 1
refuses "all 58 pairs for training are longer than a sequence of 16 tokens" \
    "${dpo[@]}" --seq 16
