#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# predict.sh - steps predicted against steps measured
#
#   make -C bench predict-report        (in the build tree)
#   predict.sh SRCDIR [PIECE]           (in BUILD/bench)
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
#        thread, predicted by device files that `merak calibrate` writes, started
#        like the ranks; none of the models is one of those that it times
#
# With a PIECE (predict.sh SRCDIR list shows them) its rows alone: 100 seconds
# of emu, 10 to 15 minutes of cpu.
#
# A virtual core whose host has other guests is half as fast now and then, some
# of the milliseconds of one minute and most of the next.  So a piece of cpu is
# run in turns of one minute or two: each makes a round of `merak calibrate`
# and runs each row once, every other turn backwards.  What was measured is the
# median of the steps of all turns, and the device file that predicts a row has
# the medians of all turns' files: both have seen the same minutes.  The last
# column is what each turn alone, by its own file, was off by.
#
# Exit code 1 if a row is off by more than 3 % (emu) or 10 % (cpu).
set -u
src=$(cd "$1" && pwd) || exit 2
piece=${2:-all}
export PATH=$PWD/../cmd:$PATH
tmp=$(mktemp -d)
spinners=()
trap 'kill "${spinners[@]}" 2>/dev/null; rm -rf "$tmp"' EXIT
root=()
[ "$(id -u)" -ne 0 ] || root=(--allow-run-as-root)
bad=0 rows=0 turns=9
row=()

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

# train RANKS OPTION...: one run; $predicted is the simulator's step, $measured
# the median of the steps, $tmp/steps, but the first, which touches pages
train()
{
    local ranks=$1

    shift
    rm -rf "$tmp/trace" "$tmp/metrics"
    launch "$ranks" merak train --model "$tmp/model.json" --data "$tmp/text" \
        --threads 1 --eval-samples 0 --trace "$tmp/trace" \
        --metrics "$tmp/metrics" "$@" >"$tmp/out" 2>&1 || return 1
    predicted=$(merak trace summary "$tmp/trace" --top 0 |
        awk '$1 == "plan" { print $2 }')
    tail -n +2 "$tmp/metrics" | jq '1000 * .step_s' >"$tmp/steps"
    measured=$(median <"$tmp/steps")
}

# of numbers, a line each
median()
{
    sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

# off PREDICTED MEASURED: in percent
off()
{
    awk "BEGIN { printf \"%+.1f\n\", 100 * ($1 / $2 - 1) }"
}

not_run()
{
    echo "predict.sh: $*:" >&2
    grep -h error "$tmp/out" >&2 || tail -n 3 "$tmp/out" >&2
    bad=1
}

# print_row LIMIT KIND RANKS WHAT PREDICTED MEASURED OFF TURNS
print_row()
{
    local limit=$1 off=$7

    shift
    printf '| %s | %s | %s | %.2f | %.2f | %s | %s |\n' "$@"
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

    shift 5
    what="tp $tp pp $pp dp $dp, batch $batch ${*//--/}"
    cp "$src/../tests/vectors/parity/gpt2-tied.json" "$tmp/model.json"
    train "$ranks" --tp "$tp" --pp "$pp" --dp "$dp" \
        --global-batch "$batch" "$@" --steps 5 --seq 32 --micro-batch 1 \
        --backend emu --emu-unit-ms 40 --device "$tmp/links.json" ||
        { not_run "emu $ranks $what"; return; }
    print_row 3 emu "$ranks" "${what% }" "$predicted" "$measured" \
        "$(off "$predicted" "$measured")" ""
}

# RANKS FILE: a round
calibrate()
{
    launch "$1" merak calibrate --out "$2" --threads 1 \
        --rounds 1 >"$tmp/out" 2>&1 || calibrate_failed
    grep -hE 'exchange' "$tmp/out" | tr -s ' \n' ' ' >&2
    echo >&2
}

# "FAMILY HIDDEN LAYERS HEADS VOCAB" SEQ MICRO-BATCH GLOBAL-BATCH TP PP DP
# [OPTION...]: a row of the piece, to be run by take_turns
cpu()
{
    row[${#row[@]}]="$*"
}

# NUMBER of a row, STEPS, DEVICE: one run of it; $ranks and $what say of what
cpu_run()
{
    local family hidden layers heads vocab seq micro batch tp pp dp options

    read -r family hidden layers heads vocab seq micro batch tp pp dp options \
        <<<"${row[$1]}"
    model "$family" "$hidden" "$layers" "$heads" "$vocab"
    what="$family $hidden x $layers, $heads heads, vocab $vocab, seq $seq"
    what="$what, tp $tp pp $pp dp $dp, micro-batch $micro of $batch"
    what="$what ${options//--/}"
    what=${what% } ranks=$((tp * pp * dp))
    # shellcheck disable=SC2086
    train "$ranks" --tp "$tp" --pp "$pp" --dp "$dp" \
        --micro-batch "$micro" --global-batch "$batch" $options \
        --steps "$2" --seq "$seq" --device "$3" ||
        { not_run "cpu $what"; return 1; }
}

# NUMBER of a row, TURN: a run of some three seconds, and a line of
# $tmp/off.NUMBER
cpu_turn()
{
    local steps=15

    [ ! -s "$tmp/steps.$1" ] || steps=$(median <"$tmp/steps.$1" |
        awk '{ n = int(3000 / $1); print (n < 9 ? 9 : n > 90 ? 90 : n) }')
    cpu_run "$1" "$steps" "$tmp/device.$2.json" || return
    cat "$tmp/steps" >>"$tmp/steps.$1"
    off "$predicted" "$measured" >>"$tmp/off.$1"
}

# FILE...: a device file of their medians
merge()
{
    jq -s '. as $all | reduce ($all[0] | paths(numbers)) as $p ($all[0];
        setpath($p; [$all[] | getpath($p) | numbers] | sort |
            .[(length - 1) / 2 | floor]))' "$@"
}

# NUMBER of a row: its line, predicted by $tmp/device.json
cpu_print()
{
    [ -s "$tmp/steps.$1" ] || return 0
    cpu_run "$1" 1 "$tmp/device.json" || return 0
    measured=$(median <"$tmp/steps.$1")
    print_row 10 cpu "$ranks" "$what" "$predicted" "$measured" \
        "$(off "$predicted" "$measured")" "$(xargs <"$tmp/off.$1")"
}

# RANKS: the rows that cpu() has listed
take_turns()
{
    local i turn last=$((${#row[@]} - 1)) ranks what

    let_sleep
    rm -f "$tmp"/device.*.json "$tmp"/steps.* "$tmp"/off.*
    for turn in $(seq "$turns"); do
        calibrate "$1" "$tmp/device.$turn.json"
        for i in $(seq 0 "$last"); do
            [ $((turn % 2)) -eq 1 ] || i=$((last - i))
            cpu_turn "$i" "$turn"
        done
    done
    merge "$tmp"/device.?.json >"$tmp/device.json"
    for i in $(seq 0 "$last"); do
        cpu_print "$i"
    done
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
        emu 4 1 4 1 8 --schedule interlaced --chunks 3
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
        emu 8 1 4 2 16 --schedule interlaced --chunks 3
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
        row=()
        cpu "$small" 128 1 8 1 1 1
        cpu "$small" 128 8 8 1 1 1
        cpu "$small" 128 4 8 1 1 1 --recompute full
        cpu "$small" 128 4 8 1 1 1 --recompute selective
        cpu "gpt2 320 3 5 2000" 96 2 4 1 1 1
        cpu "llama 160 5 5 300" 160 4 8 1 1 1
        cpu "llama 448 2 7 1500" 64 4 8 1 1 1 --recompute full
        cpu "$small" 128 4 8 1 1 1 --dtype bf16
        cpu "llama 320 4 5 1000" 128 2 8 1 1 1 --dtype bf16
        cpu "gpt2 576 2 9 3000" 96 2 4 1 1 1 --dtype bf16
        cpu "gpt2 192 6 6 257" 192 2 4 1 1 1 --recompute selective
        cpu "llama 96 8 3 257" 224 2 8 1 1 1
        cpu "gpt2 256 5 2 700" 80 5 10 1 1 1
        cpu "gpt2 640 2 10 2500" 128 1 2 1 1 1
        take_turns 1
        ;;
    cpu-2)
        row=()
        cpu "$small" 128 1 8 1 2 1
        cpu "$small" 128 2 16 1 2 1
        cpu "$small" 128 2 16 1 2 1 --recompute full
        cpu "$small" 128 2 16 1 2 1 --schedule scp --recompute full
        cpu "$small" 128 2 16 1 2 1 --schedule zb-h1
        cpu "llama 320 4 5 1000" 96 2 8 1 2 1
        cpu "gpt2 192 6 6 257" 160 2 8 1 2 1 --schedule interleaved --chunks 2
        cpu "$small" 128 4 8 1 1 2
        cpu "$small" 128 2 16 1 1 2
        cpu "$small" 128 2 16 1 1 2 --recompute full
        cpu "llama 320 3 5 1000" 96 2 8 1 1 2 --zero1 no
        cpu "gpt2 256 3 8 1500" 160 2 16 1 1 2 --dtype bf16
        cpu "llama 192 6 6 700" 128 4 16 1 2 1 --dtype bf16
        cpu "gpt2 448 4 7 500" 64 2 8 1 2 1 --recompute full
        cpu "$small" 128 4 8 2 1 1
        cpu "$small" 128 2 16 2 1 1
        cpu "$small" 128 4 8 2 1 1 --recompute full
        cpu "llama 320 3 10 1000" 160 2 8 2 1 1
        cpu "gpt2 576 2 6 2000" 96 2 4 2 1 1
        cpu "gpt2 320 4 10 600" 128 4 8 2 1 1 --dtype bf16
        take_turns 2
        ;;
    *)
        echo "predict.sh: no piece \"$1\"; there are: $pieces" >&2
        exit 2
        ;;
    esac
}

pieces="emu-1 emu-2 emu-3 emu-4 emu-5 cpu-1 cpu-2"
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

| device | ranks | plan | predicted | measured | off by % | turns' |
| --- | ---: | --- | ---: | ---: | ---: | --- |
EOF
for piece in $pieces; do
    run_piece "$piece"
done
printf '\n%d plans, load %s at the end.  Verdict (emu within 3 %%, cpu within 10 %%): %s.\n' \
    $rows "$(cut -d' ' -f1 /proc/loadavg)" \
    "$([ $bad -eq 0 ] && echo met || echo 'not met')"
exit $bad
