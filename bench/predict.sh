#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# predict.sh - steps predicted against steps measured
#
#   make -C bench predict-report        (in the build tree)
#   predict.sh SRCDIR [PIECE [each]]    (in BUILD/bench)
#
# Prints a Markdown table: for each plan the simulator's step, from the run's
# own trace, and the median of the steps that were run.
#
#   emu  2, 4 and 8 ranks on however few cores, units of 40 ms.  Kernels take
#        what they are told, exchanges are real: their links are those of a
#        device file that `merak calibrate --from` has just made of traces of
#        another model, emulated by as many ranks, and no row is one of these.
#        A core of a virtual machine that sleeps takes long to wake, and
#        emulated ranks mostly sleep: processes of idle priority keep all awake
#   cpu  as many ranks as cores, 1 or 2, each bound to its core and with one
#        thread, predicted by a device file that `merak calibrate` has just
#        written, started like the ranks; none of the models is one of those
#        that it times
#
# With a PIECE (predict.sh SRCDIR list shows them) its rows alone: some 100
# seconds, for machines that are not quiet for longer.  A piece begins with its
# own calibration; with "each", every row of cpu does: half a minute more for
# each, for machines whose cores change their speed within a piece.
#
# A virtual core may be half as fast in one second as it was in the one before,
# when its host has other guests.  So a loop of a fifth of a second is timed on
# as many cores before and after each calibration and each cpu run.  A
# calibration whose loops differ by more than 6 % is made again, up to twice,
# unless it is of a PIECE's only one; runs beside whose loops the cores were more
# than 6 % off the calibration's speed do not count, and are tried again up to
# three times.  What no run counts of says so, with what all of them took.  The
# last column is half of what the steps between the first and the last tenth
# spread over.
#
# Exit code 1 if a row is off by more than 3 % (emu) or 10 % (cpu).
set -u
src=$(cd "$1" && pwd) piece=${2:-all} each=${3:-}
export PATH=$PWD/../cmd:$PATH
tmp=$(mktemp -d)
spinners=()
trap 'kill "${spinners[@]}" 2>/dev/null; rm -rf "$tmp"' EXIT
root=()
[ "$(id -u)" -ne 0 ] || root=(--allow-run-as-root)
bad=0 rows=0 kind=

# RANKS COMMAND...
launch()
{
    local n=$1 bind=core

    shift
    [ "$n" -le "$(nproc)" ] || bind=none
    if [ "$n" -eq 1 ]; then
        taskset -c 0 "$@"
    else
        mpirun "${root[@]}" --oversubscribe --bind-to "$bind" -n "$n" "$@"
    fi
}

# model FAMILY HIDDEN LAYERS HEADS VOCAB: writes $tmp/model.json
model()
{
    local ffn=$(($2 * 3))

    if [ "$1" = gpt2 ]; then
        cat <<EOF
{"model_type": "gpt2", "n_embd": $2, "n_layer": $3, "n_head": $4,
 "n_positions": 256, "vocab_size": $5, "activation_function": "gelu_new",
 "embd_pdrop": 0.1, "resid_pdrop": 0.1, "attn_pdrop": 0.0,
 "tie_word_embeddings": true}
EOF
    else
        cat <<EOF
{"model_type": "llama", "hidden_size": $2, "num_hidden_layers": $3,
 "num_attention_heads": $4, "num_key_value_heads": $4, "vocab_size": $5,
 "intermediate_size": $ffn, "max_position_embeddings": 256,
 "hidden_act": "silu", "rms_norm_eps": 1e-6, "tie_word_embeddings": false}
EOF
    fi >"$tmp/model.json"
}

# loops RANKS: milliseconds of a loop on each of so many cores at once, the
# slowest of them
loops()
{
    local start core

    start=$(date +%s%N)
    for core in $(seq 0 $(($1 - 1))); do
        taskset -c "$core" awk 'BEGIN {
            for (i = 0; i < 1500000; i++) s += i * i % 7; exit s < 0 }' &
    done
    wait
    echo $((($(date +%s%N) - start) / 1000000))
}

# near A B: within 6 %
near()
{
    awk "BEGIN { r = $1 / $2; exit !(r < 1.06 && r > 1 / 1.06) }"
}

# train RANKS OPTION...: one run; its steps but the first, which touches
# pages, are added to $tmp/steps
train()
{
    local ranks=$1

    shift
    rm -rf "$tmp/trace" "$tmp/metrics"
    launch "$ranks" merak train --model "$tmp/model.json" --data "$tmp/text" \
        --threads 1 --eval-samples 0 --trace "$tmp/trace" \
        --metrics "$tmp/metrics" "$@" >"$tmp/out" 2>&1 || return 1
    tail -n +2 "$tmp/metrics" | jq .step_s >"$tmp/run"
    cat "$tmp/run" >>"$tmp/steps"
}

# train_steadily RUNS RANKS OPTION...: runs on cores that are as fast as in the
# calibration; $steady is how many there were
train_steadily()
{
    local runs=$1 ranks=$2 before after

    shift 2
    steady=0
    : >"$tmp/steady"
    before=$(loops "$ranks")
    for _ in $(seq $((runs + 3))); do
        train "$ranks" "$@" || return 1
        after=$(loops "$ranks")
        if near "$before" "$speed" && near "$after" "$speed"; then
            cat "$tmp/run" >>"$tmp/steady"
            steady=$((steady + 1))
        fi
        [ "$steady" -lt "$runs" ] || break
        before=$after
    done
    [ "$steady" -eq 0 ] || mv "$tmp/steady" "$tmp/steps"
}

# train_runs RUNS RANKS OPTION...: emu's take as long on any core
train_runs()
{
    local runs=$1

    shift
    [ "$kind" = emu ] || { train_steadily "$runs" "$@"; return; }
    for _ in $(seq "$runs"); do
        train "$@" || return 1
    done
}

# row LIMIT RUNS RANKS WHAT OPTION...: one line
row()
{
    local limit=$1 runs=$2 ranks=$3 what=$4 predicted measured off spread

    shift 4
    : >"$tmp/steps"
    steady=$runs
    if ! train_runs "$runs" "$ranks" "$@"; then
        echo "predict.sh: $kind $ranks $*:" >&2
        grep -h error "$tmp/out" >&2 || tail -n 3 "$tmp/out" >&2
        bad=1
        return
    fi
    [ "$steady" -gt 0 ] || what="$what (cores not as calibrated)"
    predicted=$(merak trace summary "$tmp/trace" --top 0 |
        awk '$1 == "plan" { print $2 }')
    measured=$(sort -n "$tmp/steps" |
        awk '{ v[NR] = $1 } END { print 1000 * v[int((NR + 1) / 2)] }')
    spread=$(sort -n "$tmp/steps" | awk '{ v[NR] = $1 } END {
        lo = v[int(1 + NR / 10)]; hi = v[int(NR - NR / 10)]
        printf "%.1f", 50 * (hi - lo) / v[int((NR + 1) / 2)] }')
    off=$(awk "BEGIN { printf \"%+.1f\", 100 * ($predicted / $measured - 1) }")
    echo "| $kind | $ranks | $what | $predicted | $measured | $off | $spread |"
    rows=$((rows + 1))
    awk "BEGIN { exit !($off > $limit || $off < -$limit) }" && bad=1
}

keep_awake()
{
    local core

    [ ${#spinners[@]} -eq 0 ] || return 0
    for core in $(seq 0 $(($(nproc) - 1))); do
        chrt -i 0 taskset -c "$core" sh -c 'while :; do :; done' &
        spinners+=($!)
    done
}

let_sleep()
{
    [ ${#spinners[@]} -eq 0 ] || kill "${spinners[@]}"
    spinners=()
}

calibrate_failed()
{
    tail -n 3 "$tmp/out" >&2
    exit 1
}

# RANKS "TP PP DP"...: links as so many emulated ranks meet them, of runs with
# these degrees one after the other, into $tmp/links.json
emu_links()
{
    local ranks=$1 degrees base=cpu tp pp dp

    shift
    keep_awake
    model llama 64 4 4 300
    for degrees in "$@"; do
        read -r tp pp dp <<<"$degrees"
        : >"$tmp/steps"
        train "$ranks" --tp "$tp" --pp "$pp" --dp "$dp" --steps 7 --seq 32 \
            --micro-batch 1 --global-batch $((4 * dp)) --trace-every 1 \
            --backend emu --emu-unit-ms 40 || calibrate_failed
        merak calibrate --from "$tmp/trace" --backend emu --device "$base" \
            --out "$tmp/links.json" >"$tmp/out" 2>&1 || calibrate_failed
        base=$tmp/links.json
    done
}

# RANKS TP PP DP GLOBAL-BATCH [OPTION...]
emu()
{
    local ranks=$1 tp=$2 pp=$3 dp=$4 batch=$5 what

    kind=emu
    shift 5
    what="tp $tp pp $pp dp $dp, batch $batch ${*//--/}"
    cp "$src/../tests/vectors/parity/gpt2-tied.json" "$tmp/model.json"
    row 3 1 "$ranks" "${what% }" --tp "$tp" --pp "$pp" --dp "$dp" \
        --global-batch "$batch" "$@" --steps 5 --seq 32 --micro-batch 1 \
        --backend emu --emu-unit-ms 40 --device "$tmp/links.json"
}

# RANKS: into $tmp/device.json; $speed is what a loop took meanwhile
calibrate()
{
    local after tries=1

    let_sleep
    device=$tmp/device.json
    [ "$piece" != all ] && [ -z "$each" ] || tries=3
    for _ in $(seq $tries); do
        speed=$(loops "$1")
        launch "$1" merak calibrate --out "$device" --threads 1 \
            >"$tmp/out" 2>&1 || {
            tail -n 3 "$tmp/out" >&2
            exit 1
        }
        after=$(loops "$1")
        near "$speed" "$after" && break
    done
    echo "predict.sh: a loop took $speed ms, $after at the end;" \
        "$(grep -h exchange "$tmp/out" | tr -s ' \n' ' ')" >&2
}

# "FAMILY HIDDEN LAYERS HEADS VOCAB" SEQ MICRO-BATCH GLOBAL-BATCH TP PP DP
# [OPTION...]
cpu()
{
    local m=$1 seq=$2 micro=$3 batch=$4 tp=$5 pp=$6 dp=$7 what

    kind=cpu
    shift 7
    # shellcheck disable=SC2086
    model $m
    # shellcheck disable=SC2086
    set -- $m "$@"
    what="$1 $2 x $3, $4 heads, vocab $5, seq $seq, tp $tp pp $pp dp $dp"
    shift 5
    what="$what, micro-batch $micro of $batch ${*//--/}"
    [ -z "$each" ] || calibrate $((tp * pp * dp))
    row 10 2 $((tp * pp * dp)) "${what% }" --tp "$tp" --pp "$pp" --dp "$dp" \
        --micro-batch "$micro" --global-batch "$batch" "$@" \
        --steps 9 --seq "$seq" --device "$device"
}

small="gpt2 128 4 4 257"

run_piece()
{
    case $1 in
    emu-1)
        emu_links 2 "2 1 1" "1 2 1"
        emu 2 1 2 1 8
        emu 2 1 2 1 8 --schedule interleaved --chunks 2
        emu 2 1 2 1 16 --schedule zb-h1
        emu 2 2 1 1 8
        emu 2 1 1 2 16
        emu_links 4 "1 4 1"
        emu 4 1 4 1 8
        emu 4 1 4 1 16
        emu 4 1 4 1 8 --schedule gpipe
        emu 4 1 4 1 8 --schedule eager
        ;;
    emu-2)
        emu_links 4 "1 2 2"
        emu 4 1 4 1 8 --schedule zb-h1
        emu 4 1 4 1 8 --schedule 1f1b --recompute full
        emu 4 1 4 1 8 --schedule early --recompute full
        emu 4 1 4 1 8 --schedule last --recompute full
        emu 4 1 4 1 8 --schedule scp --recompute full
        emu 4 1 4 1 8 --recompute selective
        emu 4 1 2 2 16
        emu 4 1 2 2 16 --recompute full
        ;;
    emu-3)
        emu_links 4 "2 2 1" "2 1 2" "4 1 1"
        emu 4 1 1 4 32
        emu 4 2 2 1 8
        emu 4 2 2 1 8 --schedule zb-h1
        emu 4 2 2 1 8 --recompute full
        emu 4 2 1 2 16
        emu 4 4 1 1 8
        emu 4 1 2 2 16 --zero1 no
        ;;
    emu-4)
        emu_links 8 "1 4 2"
        emu 8 1 8 1 16
        emu 8 1 8 1 16 --schedule scp --recompute full
        emu 8 1 4 2 16
        emu 8 1 4 2 16 --schedule scp --recompute full
        ;;
    emu-5)
        emu_links 8 "1 2 4" "2 2 2"
        emu 8 1 2 4 32
        emu 8 2 4 1 8
        emu 8 2 4 1 8 --recompute full
        emu 8 2 2 2 16
        emu 8 2 2 2 16 --schedule zb-h1
        ;;
    cpu-1)
        [ -n "$each" ] || calibrate 1
        cpu "$small" 128 1 8 1 1 1
        cpu "$small" 128 8 8 1 1 1
        cpu "$small" 128 4 8 1 1 1 --recompute full
        cpu "$small" 128 4 8 1 1 1 --recompute selective
        cpu "gpt2 320 3 5 2000" 96 2 4 1 1 1
        cpu "llama 160 5 5 300" 160 4 8 1 1 1
        cpu "llama 448 2 7 1500" 64 4 8 1 1 1 --recompute full
        ;;
    cpu-2)
        [ -n "$each" ] || calibrate 1
        cpu "$small" 128 4 8 1 1 1 --dtype bf16
        cpu "llama 320 4 5 1000" 128 2 8 1 1 1 --dtype bf16
        cpu "gpt2 576 2 9 3000" 96 2 4 1 1 1 --dtype bf16
        cpu "gpt2 192 6 6 257" 192 2 4 1 1 1 --recompute selective
        cpu "llama 96 8 3 257" 224 2 8 1 1 1
        cpu "gpt2 256 5 2 700" 80 5 10 1 1 1
        cpu "gpt2 640 2 10 2500" 128 1 2 1 1 1
        ;;
    cpu-3)
        [ -n "$each" ] || calibrate 2
        cpu "$small" 128 1 8 1 2 1
        cpu "$small" 128 2 16 1 2 1
        cpu "$small" 128 2 16 1 2 1 --recompute full
        cpu "$small" 128 2 16 1 2 1 --schedule scp --recompute full
        cpu "$small" 128 2 16 1 2 1 --schedule zb-h1
        cpu "llama 320 4 5 1000" 96 2 8 1 2 1
        cpu "gpt2 192 6 6 257" 160 2 8 1 2 1 --schedule interleaved --chunks 2
        ;;
    cpu-4)
        [ -n "$each" ] || calibrate 2
        cpu "$small" 128 4 8 1 1 2
        cpu "$small" 128 2 16 1 1 2
        cpu "$small" 128 2 16 1 1 2 --recompute full
        cpu "llama 320 3 5 1000" 96 2 8 1 1 2 --zero1 no
        cpu "gpt2 256 3 8 1500" 160 2 16 1 1 2 --dtype bf16
        cpu "llama 192 6 6 700" 128 4 16 1 2 1 --dtype bf16
        cpu "gpt2 448 4 7 500" 64 2 8 1 2 1 --recompute full
        ;;
    cpu-5)
        [ -n "$each" ] || calibrate 2
        cpu "$small" 128 4 8 2 1 1
        cpu "$small" 128 2 16 2 1 1
        cpu "$small" 128 4 8 2 1 1 --recompute full
        cpu "llama 320 3 10 1000" 160 2 8 2 1 1
        cpu "gpt2 576 2 6 2000" 96 2 4 2 1 1
        cpu "gpt2 320 4 10 600" 128 4 8 2 1 1 --dtype bf16
        ;;
    *)
        echo "predict.sh: no piece \"$1\"; there are: $pieces" >&2
        exit 2
        ;;
    esac
}

pieces="emu-1 emu-2 emu-3 emu-4 emu-5 cpu-1 cpu-2 cpu-3 cpu-4 cpu-5"
if [ "$piece" = list ]; then
    echo "$pieces"
    exit 0
fi
merak data pack --tokenizer byte --out "$tmp/text" \
    /usr/share/common-licenses/GPL-3 >/dev/null || exit 1
if [ "$piece" != all ]; then
    run_piece "$piece"
    exit $bad
fi
cat <<EOF
# Steps predicted and measured

\`make -C bench predict-report\`: $(date -u +%Y-%m-%d), $(nproc) cores of
$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), load
$(cut -d' ' -f1 /proc/loadavg) at the start.  Times in ms.

| device | ranks | plan | predicted | measured | off by % | spread % |
| --- | ---: | --- | ---: | ---: | ---: | ---: |
EOF
for piece in $pieces; do
    run_piece "$piece"
done
printf '\n%d plans, load %s at the end.  Verdict (emu within 3 %%, cpu within 10 %%): %s.\n' \
    $rows "$(cut -d' ' -f1 /proc/loadavg)" \
    "$([ $bad -eq 0 ] && echo met || echo 'not met')"
exit $bad
