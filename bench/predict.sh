#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# predict.sh - steps predicted against steps measured
#
#   make -C bench predict-report        (in the build tree)
#   predict.sh SRCDIR [emu|cpu]         (in BUILD/bench; default both)
#
# Prints a Markdown table: for each plan the simulator's step, from the run's
# own trace, and the median of the steps that were run.  emu: 4 and 8 ranks on
# however few cores, units of 40 ms.  cpu: as many ranks and threads as cores,
# predicted by a device file that `merak calibrate` has just written.  Exit code
# 1 if one is off by more than 3 % (emu) or 10 % (cpu).
set -u
src=$(cd "$1" && pwd) which=${2:-both}
export PATH=$PWD/../cmd:$PATH
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
load=$(cut -d" " -f1 /proc/loadavg)
root=()
[ "$(id -u)" -ne 0 ] || root=(--allow-run-as-root)
bad=0 rows=0

# row KIND LIMIT RANKS MODEL OPTION...: one run, one line
row()
{
    local kind=$1 limit=$2 ranks=$3 model=$4 off

    shift 4
    rm -rf "$tmp/trace" "$tmp/metrics"
    mpirun "${root[@]}" --oversubscribe --bind-to none -n "$ranks" \
        merak train --model "$model" --data "$tmp/text" --threads 1 \
        --eval-samples 0 --trace "$tmp/trace" --metrics "$tmp/metrics" "$@" \
        >"$tmp/out" 2>&1 || {
        echo "predict.sh: $kind $ranks $*:" >&2
        grep -h error "$tmp/out" >&2 || tail -n 3 "$tmp/out" >&2
        bad=1
        return
    }
    predicted=$(merak trace summary "$tmp/trace" --top 0 |
        awk '$1 == "plan" { print $2 }')
    # The first step is slower: pages are touched.
    measured=$(tail -n +2 "$tmp/metrics" | jq .step_s | sort -n |
        awk '{ v[NR] = $1 } END { print 1000 * v[int((NR + 1) / 2)] }')
    off=$(awk "BEGIN { printf \"%+.1f\", 100 * ($predicted / $measured - 1) }")
    shown=${*//--/}
    shown=${shown%% steps*}
    echo "| $kind | $ranks | ${shown} | $predicted | $measured | $off |"
    rows=$((rows + 1))
    awk "BEGIN { exit !($off > $limit || $off < -$limit) }" && bad=1
}

# RANKS TP PP DP GLOBAL-BATCH [OPTION...]
emu()
{
    local ranks=$1 tp=$2 pp=$3 dp=$4 batch=$5

    shift 5
    row emu 3 "$ranks" "$src/../tests/vectors/parity/gpt2-tied.json" \
        --tp "$tp" --pp "$pp" --dp "$dp" --global-batch "$batch" "$@" \
        --steps 6 --seq 32 --micro-batch 1 --backend emu --emu-unit-ms 40
}

# RANKS TP PP DP MICRO-BATCH GLOBAL-BATCH [OPTION...]
cpu()
{
    local ranks=$1 tp=$2 pp=$3 dp=$4 micro=$5 batch=$6

    shift 6
    row cpu 10 "$ranks" "$src/gpt2-small.json" --tp "$tp" --pp "$pp" \
        --dp "$dp" --micro-batch "$micro" --global-batch "$batch" "$@" \
        --steps 12 --seq 128 --device "$tmp/device-$ranks.json"
}

merak data pack --tokenizer byte --out "$tmp/text" \
    /usr/share/common-licenses/GPL-3 >/dev/null || exit 1
cat <<EOF
# Steps predicted and measured

\`make -C bench predict-report\`: $(date -u +%Y-%m-%d), $(nproc) cores of
$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), load
$(cut -d' ' -f1 /proc/loadavg) at the start.  Times in ms.

| device | ranks | plan | predicted | measured | off by % |
| --- | ---: | --- | ---: | ---: | ---: |
EOF
awk "BEGIN { exit !($load > 0.5) }" &&
    echo "The machine was busy: cpu rows decide nothing." >&2
if [ "$which" != cpu ]; then
    emu 2 1 2 1 8
    emu 2 1 2 1 8 --schedule interleaved --chunks 2
    emu 4 1 4 1 8
    emu 4 1 4 1 16
    for schedule in gpipe eager zb-h1; do
        emu 4 1 4 1 8 --schedule $schedule
    done
    for schedule in 1f1b early last scp; do
        emu 4 1 4 1 8 --schedule $schedule --recompute full
    done
    emu 4 1 2 2 16
    emu 4 1 2 2 16 --recompute full
    emu 4 1 1 4 32
    emu 4 2 2 1 8
    emu 4 4 1 1 8
    emu 4 2 1 2 16
    emu 8 1 8 1 16
    emu 8 1 8 1 16 --schedule scp --recompute full
    emu 8 1 4 2 16
    emu 8 2 4 1 8
    emu 8 2 2 2 16
fi
if [ "$which" != emu ]; then
    # Two at once, as merak-calibrate(1) has it: ranks share the memory's width.
    for ranks in 1 2; do
        for rank in $(seq $ranks); do
            merak calibrate --out "$tmp/device-$ranks-$rank.json" \
                --threads 1 --ranks-per-node $ranks >/dev/null &
        done
        wait
        mv "$tmp/device-$ranks-1.json" "$tmp/device-$ranks.json" || exit 1
    done
    cpu 1 1 1 1 1 8
    cpu 1 1 1 1 4 8
    cpu 1 1 1 1 8 8
    cpu 1 1 1 1 4 8 --recompute full
    cpu 1 1 1 1 4 8 --recompute selective
    cpu 2 1 2 1 1 8
    cpu 2 1 2 1 2 16
    cpu 2 1 2 1 2 16 --recompute full
    cpu 2 1 2 1 2 16 --schedule scp --recompute full
    cpu 2 1 2 1 2 16 --schedule zb-h1
    cpu 2 1 1 2 4 8
    cpu 2 1 1 2 2 16
    cpu 2 2 1 1 4 8
    cpu 2 2 1 1 2 16
fi
printf '\n%d plans, load %s at the end.  Verdict (emu within 3 %%, cpu within 10 %%): %s.\n' \
    $rows "$(cut -d' ' -f1 /proc/loadavg)" \
    "$([ $bad -eq 0 ] && echo met || echo 'not met')"
exit $bad
