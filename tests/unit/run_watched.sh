#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run_watched.sh - one run over three restarts, as the readers of others see it:
# TensorBoard's, the parser of Prometheus' text, pandas
#
# Run from the build directory of tests/.  MERAK_TEST_PYTHON is a python3 with
# tensorboard, prometheus_client and pandas; without one nothing is read.

set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
. "$here/tap.sh"
python=${MERAK_TEST_PYTHON:-python3}

"$python" -c 'import pandas, prometheus_client, tensorboard' 2>/dev/null || {
    echo "1..0 # SKIP no python3 with tensorboard, prometheus_client and" \
        "pandas (MERAK_TEST_PYTHON)"
    exit 0
}

. "$here/in_tmp.sh"
steps=40

small_llama >small.json
seq 5000 >x.txt
"$merak" data pack --tokenizer byte --out d x.txt >/dev/null
# steps take a while, so that a signal is in time
run=("$merak" train --model small.json --data d --seq 32 --global-batch 4
    --steps $steps --ckpt ckpt --ckpt-every 5 --eval-every 10 --log-every 1
    --tensorboard yes --openmetrics run.prom --threads 1 --ckpt-async no)

# ended SIGNAL STEP: start the run, and send it a signal once it is at that step
ended()
{
    "${run[@]}" >>log 2>&1 &
    local pid=$!

    until [ "$(sed -n '$s/{"step": \([0-9]*\),.*/\1/p' \
        ckpt/metrics.jsonl 2>/dev/null || echo 0)0" -ge "${2}0" ]; do
        kill -0 $pid 2>/dev/null || {
            echo "the run ended before step $2" >>log
            return 1
        }
        sleep 0.02
    done
    kill -"$1" $pid 2>/dev/null
    wait $pid 2>/dev/null
    "$python" "$here/ckpt/check_watched.py" ckpt run.prom >>log 2>&1
}

echo 1..2
ended KILL 7 && ended USR1 14 && ended KILL 23
ok $? "the readers find every step once after each of three ends" log
"${run[@]}" >>log 2>&1 &&
    "$python" "$here/ckpt/check_watched.py" ckpt run.prom $steps >>log 2>&1
ok $? "and all $steps at the end, with the values of metrics.jsonl" log
