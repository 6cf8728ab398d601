#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run_resume.sh - what a run goes on from: what it refuses, says and leaves
#
# Run from the build directory of tests/.

set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
. "$here/tap.sh"
. "$here/in_tmp.sh"

# FIELD VALUE: a small model with another value
model()
{
    python3 - "$(small_llama)" "$@" <<'PY'
import json, sys
m = json.loads(sys.argv[1])
m.update({sys.argv[2]: json.loads(sys.argv[3])} if sys.argv[2:] else {})
print(json.dumps(m))
PY
}
model >small.json
seq 5000 >x.txt
split -l 100 x.txt part-
"$merak" data pack --tokenizer byte --append-eod --out d part-* >/dev/null
base=("$merak" train --seq 32 --log-every 1)

# files DIR: what is in it, contents and all
files()
{
    (cd "$1" && find . -type f | sort | xargs sha256sum)
}

# refuses TEXT OPTION..: fails with 67, one error that has the text, and leaves
# the run's folder as it was
refuses()
{
    local text=$1
    shift
    files r >before
    "${base[@]}" --model small.json --data d --ckpt r --steps 4 "$@" \
        >log 2>&1
    [ $? -eq 67 ] && [ "$(grep -c 'error: ' log)" -eq 1 ] &&
        grep -F 'error: ' log | grep -qF -- "$text" && files r | cmp -s before -
    ok $? "refused, nothing is left behind: $text" log
}

# says TEXT OPTION..: goes on from step 2 of a copy, with one warning that has
# the text
says()
{
    local text=$1
    shift
    rm -rf copy
    cp -r r copy
    "${base[@]}" --model small.json --data d --ckpt copy --steps 2 "$@" \
        >log 2>&1
    [ $? -eq 0 ] && [ "$(grep -c 'warn: ' log)" -eq 1 ] &&
        grep -F 'warn: ' log | grep -qF -- "$text"
    ok $? "said: $text" log
}

echo 1..49

"${base[@]}" --model small.json --data d --ckpt r --steps 2 >log 2>&1
ok $? "a run of two steps" log

# --- what a run that does not begin leaves

cp -r r/step-00000002 step-00000007
mkdir w
mv step-00000007 w
"${base[@]}" --model small.json --data d --ckpt w/step-00000007 --steps 4 \
    --trace traces --metrics steps.jsonl >log 2>&1
[ $? -eq 67 ] && [ "$(ls w)" = step-00000007 ] && [ ! -e traces ] &&
    [ ! -e steps.jsonl ]
ok $? "beside a checkpoint that is refused there are no new files" log
"${base[@]}" --model small.json --data d --ckpt new/run/dir --resume must \
    >log 2>&1
[ $? -eq 67 ] && [ ! -e new ]
ok $? "a directory that was made for nothing is removed" log
mkdir -p new/run
"${base[@]}" --model small.json --data d --ckpt new/run/dir --resume must \
    >log 2>&1
[ $? -eq 67 ] && [ -e new/run ] && [ ! -e new/run/dir ]
ok $? "those that were there stay" log

# --- metrics of steps that are done again

cp -r r again
for i in 3 4; do
    sed -n '2s/"step": 2/"step": '$i'/p' r/metrics.jsonl
done >>again/metrics.jsonl
printf '{"step": 5, "lo' >>again/metrics.jsonl # a kill cut it off
"${base[@]}" --model small.json --data d --ckpt again --steps 4 >log 2>&1
[ $? -eq 0 ] && [ "$(grep -o '"step": [0-9]*' again/metrics.jsonl |
    tr -dc '0-9\n' | paste -sd' ')" = "1 2 3 4" ] &&
    [ "$(wc -l <again/metrics.jsonl.redone)" -eq 3 ]
ok $? "each step is once in metrics.jsonl" log again/metrics.jsonl.redone
"$merak" report again -o - | grep -q '3 steps were repeated after a restart'
ok $? "the report says how many were repeated"
"${base[@]}" --model small.json --data d --ckpt again --steps 5 >log 2>&1
[ $? -eq 0 ] && [ "$(wc -l <again/metrics.jsonl.redone)" -eq 3 ] &&
    [ "$(wc -l <again/metrics.jsonl)" -eq 5 ]
ok $? "nothing is moved where nothing is repeated" log
cp -r r named
cp again/metrics.jsonl several
cp again/metrics.jsonl resumed
"${base[@]}" --model small.json --data d --ckpt first --steps 1 \
    --metrics several >log 2>&1 &&
    "${base[@]}" --model small.json --data d --ckpt named --steps 3 \
        --metrics resumed >>log 2>&1
[ $? -eq 0 ] && [ "$(wc -l <several)" -eq 6 ] && [ "$(wc -l <resumed)" -eq 3 ]
ok $? "a file of --metrics is cut where the run resumes, not where it begins" log
cp -r r linked
mkdir beyond
cp again/metrics.jsonl beyond/m.jsonl
ln -s beyond/m.jsonl link.jsonl
touch beyond/page
ln -s beyond/page page
"${base[@]}" --model small.json --data d --ckpt linked --steps 3 \
    --metrics link.jsonl --openmetrics page >log 2>&1
[ $? -eq 0 ] && [ -L link.jsonl ] && [ -L page ] &&
    [ "$(wc -l <beyond/m.jsonl)" -eq 3 ] &&
    [ "$(wc -l <beyond/m.jsonl.redone)" -eq 3 ] &&
    grep -q '^# EOF' beyond/page
ok $? "a link of the user stays one, and what it leads to is cut" log
cp -r r theirs
cp again/metrics.jsonl beyond/other
ln -sf "$PWD/beyond/other" theirs/metrics.jsonl
"${base[@]}" --model small.json --data d --ckpt theirs --steps 3 >log 2>&1
[ $? -ne 0 ] && cmp again/metrics.jsonl beyond/other &&
    grep -q 'metrics.jsonl: a link' log
ok $? "the run's own metrics are neither cut nor written through a link" log

# --- going back to an earlier step

# step OPTION..: the run from which a command starts
from()
{
    "${base[@]}" --model small.json --data d "$@" >log 2>&1 || return 1
    sed -n 's/^merak: resumed \([^:]*\): .*/\1/p' log
}
has()
{
    [ "$(cd b && echo step-*)" = "$*" ]
}
# branch NAME: of a checkpoint
branch()
{
    python3 -c 'import json, sys
print(json.load(open(sys.argv[1]))["state"].get("branch", "none"))' \
        "b/$1/manifest.json"
}
name() { printf 'step-%08d ' "$@" | sed 's/ $//'; }

from --ckpt b --steps 10 --ckpt-every 2 --keep 0 >/dev/null
has $(name 2 4 6 8 10) && [ ! -e b/BRANCH ] && [ "$(branch step-00000010)" = none ]
ok $? "a run that never goes back has no branches" log
[ "$(from --ckpt b/step-00000004 --steps 5)" = b/step-00000004 ] &&
    [ "$(cat b/BRANCH b/LATEST)" = $'1 0:4\nstep-00000005' ] &&
    [ "$(branch step-00000005)" = "1 0:4" ] && has $(name 4 5 6 8 10)
ok $? "going back makes a branch, and --keep counts within it" log
[ "$(from --ckpt b --steps 7)" = b/step-00000005 ] && has $(name 5 6 7 8 10)
ok $? "a resume follows it and not the later steps of the other" log
[ "$(from --ckpt b/step-00000004 --steps 8 --ckpt-every 1)" = b/step-00000007 ] &&
    [ "$(branch step-00000008)" = "1 0:4" ] && has $(name 6 7 8 10) &&
    [ "$(grep -c 'of another branch of the run is replaced' log)" -eq 1 ] &&
    grep -q 'b/step-00000008 of another branch' log
ok $? "the way back typed again goes on, though --keep has removed the step" log
printf x | dd of=b/step-00000008/shard-00000.h5 bs=1 seek=3000 conv=notrunc \
    2>/dev/null
[ "$(from --ckpt b --steps 9)" = b/step-00000007 ] && grep -q 'step-00000008 skipped' log
ok $? "damage falls back within the branch, not to step 6 of the other" log
rm -r b/step-00000008
"$merak" top --once b | grep -q 'saved     step-00000009' &&
    "$merak" ckpt show b | grep -q '^step              9'
ok $? "other commands take the newest of the branch, too"
[ "$(from --ckpt b/step-00000010 --steps 11)" = b/step-00000010 ] &&
    [ "$(cat b/BRANCH b/LATEST)" = $'0\nstep-00000011' ] &&
    [ "$(from --ckpt b --steps 12)" = b/step-00000011 ]
ok $? "the head of another branch goes on as that branch" log
[ "$(from --ckpt b/step-00000009/ --steps 10 --keep 0)" = b/step-00000009/ ] &&
    [ "$(cat b/BRANCH)" = "1 0:4" ]
ok $? "and back again" log
[ "$(from --ckpt b/step-00000009 --steps 10)" = b/step-00000009 ] &&
    [ "$(cat b/BRANCH)" = "2 0:4 1:9" ]
ok $? "a branch of a branch has both behind it" log
"${base[@]}" --model small.json --data d --ckpt b --resume no --steps 1 \
    >log 2>&1
[ $? -eq 0 ] && [ "$(cat b/BRANCH)" = 3 ] &&
    [ "$(from --ckpt b --steps 2)" = b/step-00000001 ]
ok $? "a new beginning is a branch, too" log
"${base[@]}" --model small.json --data d --ckpt b/step-00000003 >log 2>&1
[ $? -eq 67 ] && grep -q 'step-00000003: there is no such checkpoint' log
ok $? "a checkpoint that is not there is said to be so" log
rm -r b/step-0000000[12]
echo '3 0:10' >b/BRANCH
rm -rf b/step-00000010
"${base[@]}" --model small.json --data d --ckpt b >log 2>&1
[ $? -eq 67 ] && grep -q 'only others' log
ok $? "a run does not start anew where only other branches are left" log
for text in '' x '1 1:4' '1 0:4 x' 18446744073709551615 '1 0:'; do
    echo "$text" >b/BRANCH
    "${base[@]}" --model small.json --data d --ckpt b >log 2>&1
    [ $? -eq 67 ] && grep -q 'b/BRANCH is damaged' log || break
done
[ "$text" = '1 0:' ] && grep -q 'b/BRANCH is damaged' log
ok $? "a damaged record of the branch is named" log

# --- what others' programs read of a run over several starts

# start STEPS OPTION..: one of them
start()
{
    SLURM_JOB_ID=7 SLURM_JOB_NAME='say "x"' "${base[@]}" --model small.json \
        --data d --ckpt seen --ckpt-every 2 --lr-schedule constant \
        --eval-every 2 --openmetrics seen.prom --tensorboard yes --steps "$@" >log 2>&1
}
start 3 &&
    printf '%s\n' '{"kind": "hang"}' '{"kind": "straggler-over"}' \
        >>seen/incidents.jsonl &&
    start 5 && rm -r seen/step-00000005 && # as if it was killed there
    start 4 && start 8
ok $? "a run of four starts, one of which is taken back" log
python3 - <<'PY' >log 2>&1
import json, os, re
lines = [json.loads(x) for x in open("seen/metrics.jsonl")]
assert [x["step"] for x in lines] == list(range(1, 9))
page = open("seen.prom").read()
assert page.endswith("# EOF\n") and not os.path.exists("seen.prom.part")
labels = r'\{job_id="7",job_name="say \\"x\\"",run="%s"' % (
    re.escape(os.path.realpath("seen")))
got = {}
for text in page.splitlines():
    if not text.startswith("# "):
        m = re.fullmatch(r"merak_(\w+)" + labels + r'(?:,kind="(\w+)")?\} (\S+)',
                         text)
        got[m[1] + (":" + m[2] if m[2] else "")] = float(m[3])
last = lines[-1]
want = {"step": 8, "steps_planned": 8, "checkpoint_step": 8,
        "incidents_total:hang": 1, "incidents_total:straggler": 0,
        "loss": last["loss"], "valid_loss": last["valid_loss"],
        "learning_rate": last["lr"], "tokens": last["tokens"],
        "samples_per_second": last["samples_per_s"],
        "tokens_per_second": last["tokens_per_s"],
        "step_timestamp_seconds": last["time"],
        "checkpoint_timestamp_seconds":
            os.stat("seen/step-00000008/COMMITTED").st_mtime}
for name, value in want.items():
    assert abs(got[name] - value) <= 1e-4 * abs(value), (name, got, value)
assert abs(got["checkpoint_timestamp_seconds"] - want[
    "checkpoint_timestamp_seconds"]) < 1
PY
ok $? "the page for node exporter has the last step's values" log seen.prom
python3 - "$here/../../examples/grafana.json" <<'PY' >log 2>&1
import json, re, sys
page = set(re.findall(r"^(merak_\w+)\{", open("seen.prom").read(), re.M))
panels = json.load(open(sys.argv[1]))["panels"]
shown = {m for p in panels for t in p["targets"]
         for m in re.findall(r"\bmerak_\w+", t["expr"])}
# one task on a device without a peak has neither of these
assert shown - page == {"merak_mfu_ratio", "merak_idle_ratio"}, shown - page
PY
ok $? "the dashboard shows metrics that are there" log

# --tensorboard: decoded here by the rules at the top of io/event_file.c, except
# for checksums, which unit/metrics.t reads
python3 - <<'PY' >log 2>&1
import glob, json, struct
def fields(data):
    at = 0
    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            n = {1: 8, 2: 0, 5: 4}[key & 7] or varint()
            yield key >> 3, data[at:at + n]
            at += n
got = []
for name in sorted(glob.glob("seen/tensorboard/events.out.tfevents.*")):
    data = open(name, "rb").read()
    while data:
        n, = struct.unpack_from("<Q", data)
        event = dict(fields(data[12:12 + n]))
        data = data[16 + n:]
        if 5 in event:
            values = [dict(fields(v)) for _, v in fields(event[5])]
            got.append((event[2], struct.unpack("<d", event[1])[0],
                        {v[1].decode(): struct.unpack("<f", v[2])[0]
                         for v in values}))
lines = [json.loads(x) for x in open("seen/metrics.jsonl")]
assert [step for step, _, _ in got] == list(range(1, 9)), got
keys = {"train/loss": "loss", "train/grad_norm": "grad_norm",
        "train/lr": "lr", "valid/loss": "valid_loss",
        "speed/samples_per_s": "samples_per_s",
        "speed/tokens_per_s": "tokens_per_s", "speed/step_s": "step_s",
        "speed/flops_per_s": "flops_per_s", "memory/bytes": "memory_bytes",
        "memory/peak_bytes": "memory_peak_bytes"}
for line, (step, time, values) in zip(lines, got):
    want = {tag: line[key] for tag, key in keys.items() if key in line}
    assert values.keys() == want.keys() and abs(time - line["time"]) < 2e-3
    for tag in want: # six digits, of times a microsecond
        assert abs(values[tag] - want[tag]) <= 1e-3 * abs(want[tag]), (step, tag)
PY
ok $? "TensorBoard's files have every step once, with its values" log
# A stand-in for wandb, which keeps what it is given.
mkdir stand-in
cat >stand-in/wandb.py <<'PY'
import json
class run:
    dir = "wandb/offline-run-1/files"
    rows = []
    def log(self, row, step):
        self.rows.append(row)
        assert row["step"] == step
    def finish(self):
        json.dump([self.about, self.rows], open("handed.json", "w"))
def init(**about):
    run.about = about
    return run()
PY
PYTHONPATH=stand-in python3 "$here/../../examples/wandb_offline.py" seen tests \
    >log 2>&1 && [ "$(cat log)" = wandb/offline-run-1 ] &&
    python3 - <<'PY' >>log 2>&1
import json
about, rows = json.load(open("handed.json"))
lines = [json.loads(x) for x in open("seen/metrics.jsonl")]
starts = [json.loads(x) for x in open("seen/run.jsonl")]
assert rows == [{**x, "_timestamp": x["time"]} for x in lines]
assert about["mode"] == "offline" and about["project"] == "tests"
assert about["id"] == "seen-%d" % starts[0]["time"]
assert about["config"]["steps"] == 8 and about["config"]["job"] == "7"
PY
ok $? "wandb_offline.py hands every step to wandb" log
rm -r seen/tensorboard
mkdir elsewhere
ln -s ../elsewhere seen/tensorboard
start 9
[ $? -eq 66 ] && grep -q 'seen/tensorboard: it is a link' log &&
    [ -z "$(ls elsewhere)" ]
ok $? "they are not written behind a link in the run's folder" log

# --- the model

model rope_theta 500000.0 >theta.json
model rms_norm_eps 1e-6 >eps.json
model attention_dropout 0.1 >dropout.json
model sliding_window 8 | sed 's/llama/mistral/' >window.json
refuses "is of a model with rope theta 10000 x 4, this run has 500000 x 4" \
    --model theta.json
refuses "rmsnorm eps 1e-05 x 5, this run has 1e-06 x 5" --model eps.json
refuses "attention dropout 0, this run has 0.1 x 2" --model dropout.json
refuses "attention window 0, this run has 8 x 2" --model window.json
says "rope theta is 500000 x 4, but copy/step-00000002 was trained with 10000" \
    --model theta.json --model-changed yes

# --- the data

cp d.bin e.bin
cp d.idx e.idx
"${base[@]}" --model small.json --data e --ckpt r --steps 2 >log 2>&1 &&
    ! grep -q 'warn: ' log
ok $? "the same data under another name are the same data" log
seq 10000 15000 | head -c "$(wc -c <x.txt)" >y.txt
split -l 100 y.txt other-
"$merak" data pack --tokenizer byte --append-eod --out f other-* >/dev/null
refuses "was trained on other data (23943 tokens in 1 file, " --data f
# one byte in the middle
cp d.idx g.idx
python3 - <<'PY'
b = bytearray(open("d.bin", "rb").read())
middle = len(b) // 15 * 7 // 2 * 2
for i in range(middle, middle + 400, 2):
    b[i] = 65
open("g.bin", "wb").write(b)
PY
refuses "was trained on other data" --data g
says "data is 23933 tokens in 1 file" --data f --data-changed yes
refuses "was trained with --valid-fraction 0.05, not 0.1" --valid-fraction 0.1
refuses "was trained with --packing stream, not best-fit" --packing best-fit
refuses "was trained with --doc-mask no, not yes" --doc-mask
refuses "was trained with --seq 32, not 16" --seq 16
refuses "was made with --seed 1234, not 7" --seed 7

# --- what only changes how weights move

says "--clip is 0.5, but copy/step-00000002 was trained with 1" --clip 0.5
says "--weight-decay is 0, but" --weight-decay 0
says "--dtype is bf16, but copy/step-00000002 was trained with fp32" --dtype bf16
says "--global-batch 4, but" --global-batch 4
says "the learning rate of step 3 is 1.23e-04; by the options that" --steps 5
says "--steps 2 --lr 0.0003 --min-lr 3e-05 --warmup 0 --lr-schedule cosine, it would be 3.00e-05" \
    --steps 5
