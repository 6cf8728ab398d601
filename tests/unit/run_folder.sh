#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run_folder.sh - a run's folder that others can write to, and a run whose
# standard descriptors are closed
#
# Run from the build directory of tests/.

set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
. "$here/tap.sh"
. "$here/in_tmp.sh"

echo 1..22

cat >small.json <<'JSON'
{"model_type": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 16,
 "vocab_size": 257, "n_positions": 64, "activation_function": "gelu_new",
 "layer_norm_epsilon": 1e-5}
JSON
seq 5000 >x.txt
"$merak" data pack --tokenizer byte --out d x.txt >/dev/null
train=("$merak" train --model small.json --data d --seq 32 --steps 2)

# --- links and pipes in place of a run's files

"${train[@]}" --ckpt r >log 2>&1
ok $? "a run of two steps" log
echo theirs >theirs
mkdir elsewhere
echo theirs >elsewhere/file
for name in LATEST settings.toml.part ranks.json.part LATEST.tmp; do
    ln -sf ../theirs r/$name
done
ln -s ../elsewhere r/step-00000009.tmp
"${train[@]}" --ckpt r --steps 4 >log 2>&1
[ $? -eq 0 ] && [ "$(cat theirs elsewhere/file r/LATEST)" = \
    $'theirs\ntheirs\nstep-00000004' ] && [ ! -L r/LATEST ]
ok $? "links in place of files that are replaced lead nowhere" log theirs

for name in run.jsonl metrics.jsonl; do
    mv r/$name kept
    ln -s ../theirs r/$name
    "${train[@]}" --ckpt r --steps 6 >log 2>&1
    code=$?
    rm r/$name
    mv kept r/$name
    [ $code -ge 64 ] && [ "$(cat theirs)" = theirs ] && grep -q \
        "cannot write r/$name: a link, not a file of the run itself" log
    ok $? "a link in place of $name is refused" log
done
mv r/model model
ln -s ../elsewhere r/model
"${train[@]}" --ckpt r --steps 6 >log 2>&1
[ $? -ne 0 ] && [ "$(ls elsewhere)" = file ] && grep -q 'r/model is a link' log
ok $? "a link in place of the model's folder is refused" log
rm r/model
mv model r/model

echo SECRET >secret
ln -s ../secret r/hang-1.txt
mkfifo r/hang-2.txt
echo 'rank 3 gave no answer' >r/hang-3.txt
ln r/hang-3.txt second
timeout 20 "$merak" report r -o page.html 2>log
[ $? -eq 0 ] && ! grep -q SECRET page.html && ! grep -q 'rank 3' page.html &&
    grep -q 'r/hang-1.txt is not read: it is a link' page.html &&
    grep -q 'r/hang-2.txt is not read: it is a pipe' page.html
ok $? "the report reads neither links nor pipes nor files of two names" log
rm second
timeout 20 "$merak" report r -o page.html && grep -q 'rank 3 gave' page.html
ok $? "the report has the run's own page"
rm r/hang-*
for name in ranks.json incidents.jsonl metrics.jsonl; do
    [ ! -e r/$name ] || mv r/$name kept
    mkfifo r/$name
    timeout 20 "$merak" top --once r >out 2>log
    [ $? -eq 0 ] && grep -q "warning   r/$name is not read: it is a pipe" out
    ok $? "top does not wait for a pipe, $name" out log
    rm r/$name
    [ ! -e kept ] || mv kept r/$name
done

# --- files that are no run's

: >empty.jsonl
timeout 20 "$merak" top --once empty.jsonl >out 2>&1 &&
    grep -q '^empty.jsonl  starting$' out
ok $? "a metrics file without a line is of a run that starts" out
for how in "top --once" "report -o page.html"; do
    timeout 20 "$merak" $how small.json >out 2>&1
    [ $? -eq 67 ] && [ "$(wc -l <out)" -eq 1 ] &&
        grep -q "small.json has no step of a run: expected the file" out
    ok $? "$how refuses a file that is no run's" out
done

# --- numbers that no run has

mkdir huge
places=$(printf ',[0,0,0,0]%.0s' {1..40}) times=$(printf ',[0.4,1,1,0]%.0s' {1..41})
for pp in 2000000000 1e300 -5; do
    cat >huge/run.jsonl <<JSON
{"format":"merak-run","version":1,"time":1e300,"step":0,"steps":9,"schedule":"x","dtype":"f32","tp":$pp,"pp":$pp,"dp":1,"microbatches":$pp,"hosts":["n1"],"ranks":[[4294967296,9223372036854775807,-1,0]$places]}
JSON
    echo '{"step":1,"loss":3,"grad_norm":1,"lr":1,"step_s":1,"time":5}' \
        >huge/metrics.jsonl
    echo "{\"time\":2e300,\"step_s\":1,\"idle\":0,\"ranks\":[${times#,}]}" \
        >huge/ranks.json
    {
        timeout 20 "$merak" top --once huge &&
            timeout 20 "$merak" report huge -o page.html
    } >out 2>&1
    ok $? "top and report of a run with pp $pp end" out
done

# --- strings for the terminal: ESC, CSI as a C1 character, as a byte

mkdir bad
esc=$'\x1b' csi=$'\xc2\x9b' byte=$'\x9b'
cat >bad/run.jsonl <<JSON
{"format":"merak-run","version":1,"time":1,"job":"\u001b]0;J\u0007","step":0,"steps":9,"schedule":"x\u009b2J","dtype":"f32","tp":2,"cp":4,"hosts":["n\u001b1"],"ranks":[[0,0,0,0]]}
JSON
echo '{"step":1,"loss":3,"grad_norm":1,"lr":1,"step_s":1,"time":5}' \
    >bad/metrics.jsonl
: >"bad/hang-$byte.txt"
{
    "$merak" top --once bad
    "$merak" top --json bad
    "$merak" report bad -o -
} >out 2>&1
! grep -qaF -e "$esc" -e "$csi" -e "$byte" out && grep -q '\\u001b]0;J' out
ok $? "top and report print no control characters" out
[ "$(grep -c 'tp 2 x cp 4 x pp 1 x dp 1' out)" -eq 3 ]
ok $? "top and report name the degrees of all axes" out
"$merak" top --json bad | python3 -c 'import json, sys
assert json.load(sys.stdin)["start"]["schedule"] == "x\x9b2J"'
ok $? "JSON has the same strings, escaped"
# init_from of the checkpoint
cp -r r "in$esc$csi"
"${train[@]}" --ckpt from --init-from "in$esc$csi" >out 2>&1
{
    "$merak" ckpt show from
    "$merak" ckpt ls "in$byte$esc"
    "$merak" ckpt verify "in$esc$csi"
} >>out 2>&1
! grep -qaF -e "$esc" -e "$csi" -e "$byte" out &&
    grep -q 'in.u001b' out
ok $? "ckpt prints no control characters" out

# --- closed descriptors

"${train[@]}" --ckpt closed <&- >&- 2>&-
[ $? -eq 0 ] && "$merak" ckpt verify closed >out 2>&1 &&
    ! grep -rlI '^merak: ' closed
ok $? "a run whose descriptors are closed saves, and logs into no file" out
"$merak" report closed -o page.html >&- 2>&- <&- && grep -q '</html>' page.html
ok $? "so does the report"
