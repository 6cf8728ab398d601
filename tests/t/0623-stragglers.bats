#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0623-stragglers.bats - a rank that computes longer than its peers is named,
# in the log, by merak top and in the report; others are not

load cluster

setup_file()
{
    cd "$BATS_FILE_TMPDIR"
    merak data pack --tokenizer byte --out text \
        /usr/share/common-licenses/GPL-3 >/dev/null
    cp "$TESTS/vectors/parity/gpt2-tied.json" small.json
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

# train DIR DEGREES.. -- OPTION..: emulated, each rank's kernels as long as the
# word of that number in $UNITS has it
train()
{
    local dir=$1 degrees=()

    shift
    while [ "$1" != -- ]; do
        degrees+=("$1")
        shift
    done
    shift
    srun -Q -N2 -n4 "${degrees[@]}" sh -c '
        shift "$SLURM_PROCID"
        unit=$1
        while [ "$1" != -- ]; do shift; done
        shift
        exec "$@" --emu-unit-ms "$unit"' - $UNITS -- \
        merak train --model small.json --data text --seq 32 \
        --global-batch 8 --eval-samples 0 --backend emu --ckpt "$dir" \
        --straggler-steps 8 "$@" >"$dir.log" 2>&1 || {
        cat "$dir.log"
        return 1
    }
}

@test "one of four replicas is named, with its node and by how much" {
    UNITS="1 1 1.5 1" train slow --merak-dp=4 -- --steps 24 \
        --openmetrics slow.prom
    cat slow.log
    [ "$(grep -c 'is slower than its peers' slow.log)" -eq 1 ]
    host=$(jq -r '.hosts[.ranks[2][0]]' slow/run.jsonl)
    grep -Eq "rank 2 on $host is slower than its peers: it computed .* s a step, (49|50|51) % more than the usual .*, in the last 8 steps" slow.log
    jq -e --arg host "$host" '.kind == "straggler" and .rank == 2 and
        .host == $host and (.percent | . > 49 and . < 51) and .step == 16 and
        .over_steps == 8' slow/incidents.jsonl

    cat slow.prom
    grep -Eq '^merak_incidents_total\{job_id="[0-9]+",job_name="[^"]+",run="[^"]*/slow",kind="straggler"\} 1$' slow.prom
    idle=$(sed -n 's/^merak_idle_ratio{.*} //p' slow.prom)
    jq -se --argjson idle "$idle" '[.[].idle | values] |
        all(. > 0 and . < 1) and (.[-1] - $idle | fabs) < 1e-5' slow/metrics.jsonl

    run merak top slow
    echo "$output"
    [[ $output == *"rank 2    $host, stage 0, computes "*"SLOW: 50 % longer"* ]]
    [ "$(grep -c SLOW <<<"$output")" -eq 1 ]
    merak top slow --json | jq -e '[.ranks[] | .slow] ==
        [false, false, true, false] and .idle > 0 and .idle < 1 and
        (.incidents | length) == 1 and .ranks[3].memory_bytes > 1e6'
    merak report slow -o slow.html
    grep -q "rank 2 on $host was slow: it computed" slow.html
    grep -q "bound by rank 2: it computes for .* % of the step and its peers" \
        slow.html
}

@test "nothing is said where it is turned off" {
    UNITS="1 1 1.5 1" train off --merak-dp=4 -- --steps 16 \
        --straggler-percent 0
    (! grep -q 'slower' off.log)
    [ ! -e off/incidents.jsonl ] && [ ! -e off/ranks.json ]
}

@test "stages with different work, and what is less than was asked for, are not" {
    UNITS="1 2 1 3" train stages --merak-pp=4 -- --steps 16
    UNITS="1 1 1.5 1" train less --merak-dp=4 -- --steps 16 \
        --straggler-percent 60
    (! grep -q 'slower' stages.log less.log)
}

# real RUN: four replicas of some size on the cpu; rank 3 with $HELD=yes for a
# tenth of the time only, a few milliseconds at once, from the first line of
# metrics on.  Over six steps others may find a busy machine half as fast, but
# not for three of four.
real()
{
    srun -Q -n4 --merak-dp=4 bash -c '
        [ "$SLURM_PROCID-$HELD" = 3-yes ] || exec "$@"
        exec python3 - "$@" <<PY
import os, signal, subprocess, sys, time
rank = subprocess.Popen(sys.argv[1:])
lines = os.path.join(sys.argv[sys.argv.index("--ckpt") + 1], "metrics.jsonl")
while rank.poll() is None:
    if not os.path.exists(lines) or not os.path.getsize(lines):
        time.sleep(0.001)
        continue
    rank.send_signal(signal.SIGSTOP)
    time.sleep(0.06)
    rank.send_signal(signal.SIGCONT)
    time.sleep(0.004)
sys.exit(rank.returncode)
PY
        ' - merak train --model medium.json --data text --seq 64 \
        --global-batch 16 --eval-samples 0 --threads 1 --ckpt "$1" \
        --steps 36 --straggler-steps 6 --straggler-percent 100 >"$1.log" 2>&1 || {
        cat "$1.log"
        return 1
    }
}

@test "a rank whose processor is taken away is named, and losses stay the same" {
    cat >medium.json <<'JSON'
{"model_type": "gpt2", "n_layer": 2, "n_head": 4, "n_embd": 128,
 "vocab_size": 257, "n_positions": 64, "attn_pdrop": 0, "embd_pdrop": 0,
 "resid_pdrop": 0}
JSON
    # beside two that compute as well, and alone but for the one who holds it
    for _ in 1 2; do
        timeout 600 sh -c 'while :; do :; done' 3>&- &
    done
    real busy || { kill %1 %2; false; }
    kill %1 %2
    HELD=yes real held
    cat busy.log held.log
    grep -q 'rank 3 on n. is slower than its peers' held.log
    (! grep -q 'rank [012] on n. is slower' held.log)
    # and the sum of the losses is what it was
    diff <(jq -c '[.step, .loss]' busy/metrics.jsonl) \
        <(jq -c '[.step, .loss]' held/metrics.jsonl)
}
