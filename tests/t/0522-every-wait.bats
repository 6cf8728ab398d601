#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0522-every-wait.bats - a rank is stopped or killed while the others wait in
# tp, pp, dp, parameters to be fetched, set-up, a save or validation, or while
# activations and state come and go: its rank and node are told
#
# One run of each wait, unless HANG_COUNT=20 asks for so many of each wait and
# signal, ranks in turn; HANG_COUNT=80 is twenty of each rank.  Then the report
# has also to come within the deadline and five seconds, and `figures` says how
# long they took (a busy machine is no place for that).

load cluster

DEADLINE=6

setup_file()
{
    export RUNS=$BATS_FILE_TMPDIR
    merak data pack --tokenizer byte --out "$RUNS/text" \
        /usr/share/common-licenses/GPL-3 >/dev/null
    device_with_host >"$RUNS/host.json"
}

teardown() { assert_no_node_drained; }

# Options of srun and of a run whose ranks mostly wait in that.
options_of()
{
    local node=(-N2 --ntasks-per-node=2)

    case $1 in
    tp) echo -N1 -n4 --merak-tp=4 ;;
    pp) echo "${node[@]}" --merak-pp=4 ;;
    dp | fetch | fetch-in | set-up) echo "${node[@]}" --merak-dp=4 ;;
    save | fetch-save | away) echo "${node[@]}" --merak-pp=2 --merak-dp=2 ;;
    validation) echo "${node[@]}" --merak-tp=2 --merak-dp=2 ;;
    esac
}

more_of()
{
    case $1 in
    save) echo --ckpt "$2/run" --ckpt-every 1 --ckpt-async no ;;
    fetch) echo --zero 3 --eval-samples 0 ;;
    fetch-in) echo --zero 3 --dp-in 2 --zero-home in --eval-samples 0 ;;
    fetch-save) echo --zero 3 "$(more_of save "$2")" ;;
    away)
        echo --zero 3 --offload all --recompute full \
            --device "$RUNS/host.json" --eval-samples 0
        ;;
    validation) echo --eval-every 1 --eval-samples 2048 ;;
    *) echo --eval-samples 0 ;;
    esac
}

# In the task that is struck: leave its node, wait for the moment, and say when
# it was.
STRIKE='
    dir=$1 wait=$2 signal=$3 rank=$4 pause=$5
    shift 5
    "$@" &
    pid=$!
    if [ "$SLURM_PROCID" = "$rank" ]; then
        echo "$SLURMD_NODENAME" >"$dir/node"
        case $wait in
        set-up) ;;
        *save) until compgen -G "$dir/run/step-*.tmp" >"$dir/seen"; do :; done ;;
        *) until [ -s "$dir/metrics.jsonl" ]; do sleep 0.05; done ;;
        esac
        [[ $wait = *save ]] || sleep "$pause"
        kill -"$signal" "$pid"
        echo "$EPOCHREALTIME" >"$dir/struck"
    fi
    wait "$pid"'

# strike WAIT SIGNAL RANK NUMBER: into a directory of that name
strike()
{
    local dir=$RUNS/$1-$2-$3-$4 status=0 pause

    mkdir -p "$dir"
    # of a second, the same in every run of the script
    pause=0.$(printf '%03d' $((($4 * 389 + $3 * 151 + 97) % 600)))
    # shellcheck disable=SC2046
    srun --kill-on-bad-exit=0 $(options_of "$1") bash -c "$STRIKE" - \
        "$dir" "$1" "$2" "$3" "$pause" merak train \
        --model "$TESTS/vectors/parity/gpt2-tied.json" --data "$RUNS/text" \
        --seq 32 --global-batch 8 --steps 1000000 --threads 1 \
        --metrics "$dir/metrics.jsonl" --deadline $DEADLINE \
        $(more_of "$1" "$dir") 2>&1 </dev/null |
        while IFS= read -r line; do
            printf '%s %s\n' "$EPOCHREALTIME" "$line"
        done >"$dir/out"
    status=${PIPESTATUS[0]}
    rm -rf "$dir/run"
    echo "$status" >"$dir/status"
}

# Seconds from the signal to the line that names who got it.  Of a task that is
# killed while it connects to PMIx, Slurm hears first, and ends the step.
seconds_of()
{
    local dir=$RUNS/$1-$2-$3-$4 node named

    node=$(cat "$dir/node")
    named="(rank|task) $3 on $node\\b"
    [ "$1 $2" != "set-up KILL" ] ||
        ! grep -q 'mpi/pmix.*Error handler invoked' "$dir/out" ||
        named="$named|srun: error: $node: task $3: Exited with exit code 137"
    grep -E "$named" "$dir/out" |
        awk -v t="$(cat "$dir/struck")" 'NR == 1 { print $1 - t; some = 1 }
            END { exit !some }'
}

judge()
{
    local dir=$RUNS/$1-$2-$3-$4 seconds

    [ "$(cat "$dir/status")" -ne 0 ] || echo "$* ended well"
    if ! seconds=$(seconds_of "$@"); then
        echo "$*: nobody names rank $3 on $(cat "$dir/node")"
        sed 's/^/  /' "$dir/out"
        return 1
    fi
    # in plain words, not in those of UCX's connections
    if grep -E 'error: .*(Endpoint timeout|Connection reset)' "$dir/out"; then
        return 1
    fi
    echo "$1 $2 $3 $seconds" >>"$RUNS/seconds"
    [ -z "${HANG_COUNT-}" ] ||
        awk "BEGIN { exit !($seconds <= $DEADLINE + 5) }" || {
        echo "$*: named after $seconds s"
        sed 's/^/  /' "$dir/out"
        return 1
    }
}

# Four at a time; a run that is struck between two waits is one like any other.
strike_all()
{
    local line failed=0

    export -f strike options_of more_of
    export STRIKE DEADLINE
    xargs -P "${HANG_JOBS:-4}" -L 1 bash -c 'strike "$@"' - <"$RUNS/list"
    while read -r line; do
        # shellcheck disable=SC2086
        judge $line || failed=1
    done <"$RUNS/list"
    return $failed
}

figures()
{
    sort -k1,2 "$RUNS/seconds" | awk '
        { k = $1 " " $2; n[k]++; s[k] += $4; if ($4 > m[k]) m[k] = $4 }
        END { for (k in n) printf "# %-16s %3d named, mean %.1f s, most %.1f s\n",
                  k, n[k], s[k] / n[k], m[k] }' | sort >&3
}

@test "who is stopped or killed is named, whatever the others wait for" {
    if [ -z "${HANG_COUNT-}" ]; then
        printf '%s 0\n' "set-up STOP 1" "save STOP 2" "validation STOP 3" \
            "tp KILL 0" "pp KILL 3" "dp KILL 1" "fetch KILL 2" \
            "fetch STOP 0" "fetch-in KILL 1" "fetch-in STOP 2" \
            "fetch-save KILL 3" "away KILL 2" "away STOP 1" >"$RUNS/list"
    else
        for ((i = 0; i < HANG_COUNT; i++)); do
            for wait in ${HANG_WAITS:-tp pp dp fetch fetch-in set-up save \
                fetch-save validation away}; do
                echo "$wait STOP $((i % 4)) $i"
                echo "$wait KILL $((i % 4)) $i"
            done
        done >"$RUNS/list"
    fi
    strike_all
    [ "$(wc -l <"$RUNS/seconds")" -eq "$(wc -l <"$RUNS/list")" ]
    [ -z "${HANG_COUNT-}" ] || figures
    assert_no_job_left
}
