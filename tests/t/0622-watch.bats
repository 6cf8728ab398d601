#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0622-watch.bats - options from a file, what a run keeps, merak top and merak
# report

load cluster

setup_file()
{
    cd "$BATS_FILE_TMPDIR"
    cat >small.json <<'JSON'
{"model_type": "gpt2", "n_layer": 2, "n_head": 4, "n_embd": 64,
 "vocab_size": 257, "n_positions": 128, "activation_function": "gelu_new",
 "layer_norm_epsilon": 1e-5}
JSON
    cat >run.toml <<'TOML'
model = "small.json"   # beside it
[data]
data = "corpus"
seq = 64
steps = 8
max_seconds = 0
log-every = 4
TOML
    merak data pack --tokenizer byte --append-eod --out corpus "$TESTS"/*.py \
        >/dev/null
    srun -Q -n4 --merak-tp=2 --merak-pp=2 merak train --config run.toml \
        --ckpt 'runs/<1>' --lr 1e-3 2>first.log
}

setup()
{
    cd "$BATS_FILE_TMPDIR"
}

teardown()
{
    assert_no_job_left
    assert_no_node_drained
}

@test "a run keeps its settings, which ask for the same run" {
    cat first.log
    grep -qx 'tp = 2' 'runs/<1>/settings.toml'
    grep -qx 'pp = 2' 'runs/<1>/settings.toml'
    grep -qx 'lr = 0.001' 'runs/<1>/settings.toml'
    srun -Q -n4 merak train --model small.json --config 'runs/<1>/settings.toml' \
        --ckpt again 2>again.log
    [ "$(jq -c '[.step, .loss]' again/metrics.jsonl)" = \
        "$(jq -c '[.step, .loss]' 'runs/<1>/metrics.jsonl')" ]
}

@test "what is wrong in the file is named once, with its line" {
    printf 'seq = 64\nlrr = 1\n' >bad.toml
    refuse merak train --model small.json --config bad.toml
    [[ $line == *'bad.toml:2: no option "lrr" (did you mean --lr?)'* ]]
    refuse merak train --config gone.toml
    [[ $line == *"--config gone.toml: No such file or directory"* ]]
}

@test "top finds a job's run" {
    job=$(sed -n 's/.*"job":"\([0-9]*\)".*/\1/p' 'runs/<1>/run.jsonl')
    run merak top "$job" --once
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *"runs/<1>  finished"* ]]
}

@test "top tells of a run that is over, one that stopped, one that is silent" {
    run merak top 'runs/<1>'
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *"runs/<1>  finished"*"step      8 of 8, 100.0 %"* ]]
    [[ $output == *"tp 2 x pp 2 x dp 1, 1f1b, on n1"* ]]
    [[ $output == *"saved     step-00000008"* ]]

    cp -r 'runs/<1>' stopped
    head -n 5 'runs/<1>/metrics.jsonl' >stopped/metrics.jsonl
    printf '{"step": 6, "lo' >>stopped/metrics.jsonl # as it is being written
    merak top stopped --json >top.json
    jq -e '.state == "stopped" and .step == 5 and .steps == 8 and .loss > 0 and
        .start.tp == 2 and (.start.ranks | length) == 4' top.json
    jq -c '.time -= 1000' stopped/run.jsonl >run.jsonl
    mv run.jsonl stopped/
    jq -c '.time -= 1000' <(head -n 5 'runs/<1>/metrics.jsonl') \
        >stopped/metrics.jsonl
    : >stopped/OWNER
    echo 'rank 3 on n2 gave no answer' >stopped/hang-00000005.txt
    merak top stopped --json >top.json
    jq -e '.state == "silent" and .silent_s > 900 and
        .hangs == ["hang-00000005.txt"]' top.json

    run --separate-stderr merak top nowhere
    [ "$status" -eq 67 ]
    [[ $stderr == *"there is no nowhere"* ]]
    refuse merak top
}

@test "report is one well-formed page with all of it" {
    cat 'runs/<1>/run.jsonl' stopped/run.jsonl >both
    cp both stopped/run.jsonl
    jq -c '.step -= 2' stopped/metrics.jsonl >more
    cat more >>stopped/metrics.jsonl
    merak report stopped -o page.html
    python3 - <<'PY'
import html.parser, re
page = open("page.html").read()
class Parser(html.parser.HTMLParser):
    stack, tags = [], {}
    def handle_starttag(self, tag, attrs):
        self.tags[tag] = self.tags.get(tag, 0) + 1
        if tag not in ("meta", "line", "rect", "polyline"):
            self.stack.append(tag)
    def handle_startendtag(self, tag, attrs):
        self.tags[tag] = self.tags.get(tag, 0) + 1
    def handle_endtag(self, tag):
        assert self.stack.pop() == tag, tag
p = Parser()
p.feed(page)
assert p.stack == [], p.stack
assert p.tags["svg"] == 5, p.tags
assert "rank 3 on n2 gave no answer" in page
assert "steps were repeated" in page
assert page.count("started at step") == 2
assert "http" not in page
# labels are round numbers; values that stand alone are dots
for svg in re.findall("<svg.*?</svg>", page, re.S)[:4]:
    at = [float(v) for v in re.findall('"end">([^<]*)<', svg)]
    ticks = {"%.2e" % (b - a) for a, b in zip(at, at[1:])}
    assert 1 < len(at) < 8, at
    assert len(ticks) == 1 and ticks.pop()[:4] in "1.00 2.00 5.00", at
    assert '"middle">2<' in svg and "<circle" in svg
PY
    merak report 'runs/<1>' --out - | grep -q 'runs/&lt;1&gt;'
    refuse merak report stopped
}

@test "top in a terminal looks again, ends with q and leaves the terminal as it was" {
    cp -r 'runs/<1>' live
    head -n 3 live/metrics.jsonl >live/some
    mv live/metrics.jsonl live/all
    mv live/some live/metrics.jsonl
    python3 - <<'PY'
import os, pty, select, termios, time
pid, fd = pty.fork()
if pid == 0:
    os.execvp("merak", ["merak", "top", "live", "--every", "0.2"])
text = b""
def read_until(wanted):
    global text
    end = time.monotonic() + 120
    while wanted not in text:
        assert time.monotonic() < end, text
        if select.select([fd], [], [], 1)[0]:
            text += os.read(fd, 65536)
read_until(b"step      3 of 8")
assert text.startswith(b"\033[?1049h\033[?25l"), text
assert b"q quits" in text or read_until(b"q quits") is None
raw = termios.tcgetattr(fd)[3]
assert not raw & termios.ECHO and not raw & termios.ICANON
os.rename("live/all", "live/metrics.jsonl")
read_until(b"step      8 of 8, 100.0 %")
os.write(fd, b"q")
read_until(b"\033[?25h\033[?1049l")
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
PY
}

@test "what a run wrote elsewhere is found, and a job script's directory is a run" {
    srun -Q -n2 --merak-pp=2 merak train --config run.toml --steps 2 \
        --ckpt script/ckpt --metrics script/metrics.jsonl 2>script.log
    [ ! -e script/ckpt/metrics.jsonl ]
    echo 'rank 1 on n1 gave no answer' >script/hang-00000001.txt
    for dir in script script/ckpt; do
        merak top $dir --json | jq -e '.step == 2 and .state == "finished" and
            .hangs == ["hang-00000001.txt"]'
    done
    merak report script --out - | grep -q 'rank 1 on n1 gave no answer'
}
