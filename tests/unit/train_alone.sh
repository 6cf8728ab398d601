#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# train_alone.sh - what `merak train` of one process says and leaves behind:
# steps without a token to predict, requests to stop, what Slurm's variables say
#
# Run from the build directory of tests/.

set -u
export LC_ALL=C

here=$(cd "$(dirname "$0")" && pwd)
. "$here/tap.sh"

merak=$PWD/../cmd/merak
model=$here/../vectors/parity/gpt2-tied.json
tmp=$(mktemp -d) || exit 1
trap 'kill $daemon $watched 2>/dev/null; rm -rf "$tmp"' EXIT
daemon= watched=

# train OPTION...: a run on $data, its output in $tmp/out
train()
{
    "$merak" train --model "$model" --data "$data" --threads 1 \
        --log-every 1 "$@" >"$tmp/out" 2>&1
}

# field NAME FILE: its values, one of each line of metrics; null where absent
field()
{
    sed -E "/\"$1\": /!s/.*/null/; s/.*\"$1\": ([^,}]*).*/\1/" "$2" |
        tr '\n' ' '
}

echo 1..23

seq 1000000 >"$tmp/text"
"$merak" data pack --tokenizer byte --out "$tmp/text" "$tmp/text" >/dev/null

# --- a slurmd that ends, beside what follows ---

printf '#!/bin/sh\nwhile sleep 1; do :; done\n' >"$tmp/slurmd"
chmod +x "$tmp/slurmd"
"$tmp/slurmd" -D -N "test$$" &
daemon=$!
SLURMD_NODENAME=test$$ "$merak" train --model "$model" --data "$tmp/text" \
    --threads 1 --seq 64 --global-batch 8 --steps 1000000 \
    --metrics "$tmp/watched.jsonl" >"$tmp/watched" 2>&1 &
watched=$!
for ((i = 0; i < 600; i++)); do
    [ ! -s "$tmp/watched.jsonl" ] || break
    sleep 0.1
done
kill $daemon

# --- steps without a token to predict ---

# Of the pieces of 32 tokens of each document, only the last has an answer.
for ((i = 0; i < 64; i++)); do
    printf '{"prompt":"%0200d","completion":"y"}\n' $i
done >"$tmp/long.jsonl"
data=$tmp/long
"$merak" data pack --tokenizer byte --out "$data" "$tmp/long.jsonl" >/dev/null
train --packing stream --seq 32 --global-batch 1 --steps 9 --ckpt "$tmp/run" \
    --ckpt-every 1 --keep 100 --valid-fraction 0 --warmup 0
ok $? "steps without a token to predict are taken" "$tmp/out"
grep -q 'without --ckpt DIR no weights of this run are kept$' "$tmp/watched" &&
    ! grep -q 'without --ckpt' "$tmp/out"
ok $? "a run without --ckpt says that nothing is kept, no other does" \
    "$tmp/watched"
read -ra loss <<<"$(field loss "$tmp/run/metrics.jsonl")"
read -ra count <<<"$(field empty_steps "$tmp/run/metrics.jsonl")"
empty=0 with=0 wrong=0
for ((s = 0; s < 9; s++)); do
    if [ "${loss[s]}" = null ]; then
        empty=$((empty + 1))
    else
        with=$((with + 1))
    fi
    [ $empty -eq 0 ] || [ "${count[s]}" = $empty ] || wrong=1
done
[ $wrong -eq 0 ] && [ $empty -gt 2 ] && [ $with -gt 0 ] &&
    grep -q "$empty of 9 steps had no token to predict" "$tmp/out"
ok $? "they are counted in metrics, and have no loss" "$tmp/out" \
    "$tmp/run/metrics.jsonl"
[ "$(grep -c "warn.* no token to predict" "$tmp/out")" -eq 1 ] &&
    [ "$(grep -c '/9  no token to predict' "$tmp/out")" -eq $empty ] &&
    ! grep -q 'loss 0.0000' "$tmp/out"
ok $? "one warning names them" "$tmp/out"

# same A B: the weights of two steps are the same
same()
{
    "$merak" ckpt diff "$tmp/run/step-0000000$1" "$tmp/run/step-0000000$2" \
        >"$tmp/diff" 2>&1
    ! grep -q '^param/' "$tmp/diff" && grep -q '^adam_m/' "$tmp/diff"
}
wrong=
for ((s = 1; s < 9; s++)); do
    if [ "${loss[s]}" = null ]; then
        same $s $((s + 1)) || wrong+=" $((s + 1))"
    else
        same $s $((s + 1)) && wrong+=" $((s + 1))"
    fi
done
[ -z "$wrong" ]
ok $? "weights stay as they are in those steps alone$wrong"
"$merak" top --json "$tmp/run" >"$tmp/out" 2>&1 &&
    "$merak" top "$tmp/run" >"$tmp/top" &&
    "$merak" report "$tmp/run" --out "$tmp/page.html" >>"$tmp/out" 2>&1 &&
    ! grep -qwi nan "$tmp/out" "$tmp/top" "$tmp/page.html"
ok $? "top and report leave them out" "$tmp/out" "$tmp/top"

# No held-out token is to be predicted: there is no held-out loss to report.
train --packing stream --seq 32 --global-batch 1 --steps 1 --eval-samples 1
said='the 1 held-out samples of a validation have no token'
[ "$(grep -c "$said" "$tmp/out")" -eq 1 ] &&
    ! grep -q 'held-out loss [0-9]' "$tmp/out"
ok $? "held-out samples without one are named" "$tmp/out"

# --- requests to stop ---

# A validation that would take many seconds ends at once, and the step is saved.
data=$tmp/text
rm -r "$tmp/run"
MERAK_LOG=debug env --default-signal=HUP "$merak" train --model "$model" \
    --data "$data" \
    --threads 1 --seq 64 --global-batch 8 --valid-fraction 0.5 --eval-every 1 \
    --eval-samples 100000000 --steps 9 --ckpt "$tmp/run" --ckpt-every 9 \
    >"$tmp/out" 2>&1 &
pid=$!
for ((i = 0; i < 600; i++)); do
    ! grep -q 'validation begins' "$tmp/out" || break
    sleep 0.1
done
kill -HUP $pid # as of a terminal that is closed
wait $pid
code=$?
[ $code -eq 75 ] && grep -q 'step 1  validation ends here' "$tmp/out" &&
    ! grep -q 'held-out loss [0-9]\|valid_loss' "$tmp/out" "$tmp/run/metrics.jsonl"
ok $? "a request to stop ends a validation" "$tmp/out"
"$merak" ckpt verify "$tmp/run/step-00000001" >"$tmp/out" 2>&1
ok $? "its step is saved" "$tmp/out"

# A hangup that nohup asks to ignore, before and after libraries begin.
mkfifo "$tmp/fifo"
(trap '' HUP && exec "$merak" data pack --tokenizer byte --out "$tmp/late" \
    "$tmp/fifo") >"$tmp/out" 2>&1 &
pid=$!
exec 3>"$tmp/fifo" # once it is opened there
kill -HUP $pid
echo text >&3
exec 3>&-
wait $pid && [ -s "$tmp/late.bin" ]
ok $? "nohup is heeded" "$tmp/out"

# --- what is said at the end, and Slurm's variables ---

train --seq 64 --global-batch 1 --steps 1
! grep -q 'peak resident' "$tmp/out"
ok $? "a small arena has no line about its peak" "$tmp/out"
for warmup in 0 1 2; do
    train --seq 64 --global-batch 1 --steps 1 --lr 1e-3 --warmup $warmup
    grep -c 'warn: train: --warmup 2 .* --steps 1: .* rate of 0.0005, not --lr 0.001' \
        "$tmp/out"
done | tr '\n' ' ' | grep -qx '0 0 1 '
ok $? "a warm-up that the run does not outlast is named" "$tmp/out"
MERAK_LOG=debug train --seq 64 --global-batch 1 --steps 1
grep -q 'peak resident' "$tmp/out"
ok $? "it is in the debug log" "$tmp/out"

# refuses VALUE COMMAND OPTION...
refuses()
{
    local value=$1

    shift
    SLURM_CPUS_PER_TASK=$value "$merak" "$@" >"$tmp/out" 2>&1
    [ $? -eq 66 ] && grep -q "SLURM_CPUS_PER_TASK is \"$value\"" "$tmp/out"
    ok $? "SLURM_CPUS_PER_TASK=$value is refused by $1" "$tmp/out"
}
step=(--model "$model" --data "$data" --seq 64 --global-batch 1
    --steps 1)
for value in abc 0 -1 2x 1.5; do
    refuses $value train "${step[@]}"
done
refuses abc eval --ckpt "$tmp/run" --model "$model" --data "$data"
SLURM_CPUS_PER_TASK=abc train --seq 64 --global-batch 1 --steps 1
ok $? "it is not looked at where --threads is given" "$tmp/out"
SLURM_CPUS_PER_TASK=2 "$merak" train "${step[@]}" >"$tmp/out" 2>&1
grep -q ' 2 threads a task' "$tmp/out"
ok $? "it is the number of threads" "$tmp/out"

# --- gradients in bf16 ---

# They are rounded 9 times a step, each time by 1/512 at most and either way.
for dtype in fp32 bf16; do
    train --seq 64 --global-batch 8 --micro-batch 1 --steps 30 --lr 1e-3 \
        --dtype bf16 --grad-dtype $dtype --metrics "$tmp/$dtype.jsonl"
done
paste -d ' ' <(field loss "$tmp/fp32.jsonl" | tr ' ' '\n') \
    <(field loss "$tmp/bf16.jsonl" | tr ' ' '\n') |
    awk 'NF == 2 { n++; far = far || ($1 - $2) ^ 2 > 1e-6; differ += $1 != $2 }
        END { exit n != 30 || far || differ < 25 }'
ok $? "gradients in bf16: 30 losses within 0.001 of those with fp32" "$tmp/out"

# --- the slurmd that has ended ---

for ((i = 0; i < 600; i++)); do
    ! grep -q slurmd "$tmp/watched" || break
    sleep 0.1
done
kill -TERM $watched
wait $watched
[ $? -eq 75 ] && [ "$(grep -c slurmd "$tmp/watched")" -eq 1 ] &&
    grep -q "warn.* slurmd on test$$ has ended and its tasks go on" \
        "$tmp/watched" &&
    grep -q "kill -USR1 $watched on test$$" "$tmp/watched"
ok $? "a slurmd that ends is told of" "$tmp/watched"
