# SPDX-License-Identifier: Apache-2.0
# functions.sh - what the job scripts share; assemble.awk puts it into them,
# for a batch script is copied to its node, where it finds no other file

# What the job scripts of Merak share.  In RUN_DIR:
#
#   ckpt/          the checkpoints
#   metrics.jsonl  one line a step
#   starts         one line for each start, with the checkpoint it resumed from
#   crashes        one line for each crash since the last orderly end
#   DONE           training is finished; a job that finds it does nothing
#
# What the program's exit code leads to:
#
#   0        finished: DONE is written
#   75       saved: restart
#   66..69   options, data, launcher, resources: the next run would fail, too:
#            stop
#   other    a crash: restart, unless it is the MAX_CRASHES-th in succession
#
# There is no restart after MAX_IDLE runs in succession without a new
# checkpoint, nor after MAX_RESTARTS.

# No `set -e`: the script acts on exit codes.
set -u -o pipefail

MAX_RESTARTS=${MAX_RESTARTS:-200} # for whatever reason
MAX_CRASHES=${MAX_CRASHES:-3}     # in succession
MAX_IDLE=${MAX_IDLE:-2}           # in succession

say()
{
    printf '%s %s: %s\n' "$(date '+%F %T')" "${SLURM_JOB_NAME:-job}" "$*"
}

# Name of the newest committed checkpoint; nothing if there is none.
newest_checkpoint()
{
    local dir newest=

    for dir in "$RUN_DIR"/ckpt/step-*; do
        case $dir in
        *.tmp | *.old) continue ;;
        esac
        # longer numbers are greater; of the same length the order is that
        # of the names, and so of the pattern
        if [ -e "$dir/COMMITTED" ] && [ "${#dir}" -ge "${#newest}" ]; then
            newest=$dir
        fi
    done
    printf '%s' "${newest##*/}"
}

# decide CODE IDLE RESTARTS CRASHES: what to do after a step that ended with
# exit code CODE; IDLE is how many runs in succession left no new checkpoint,
# RESTARTS how many there were before this one, CRASHES how many in succession
# crashed, this one included.  Prints "done", "again", or "stop" and the reason.
decide()
{
    local code=$1 idle=$2 restarts=$3 crashes=$4

    case $code in
    0) echo "done" && return ;;
    66) echo "stop options, model or degrees do not fit" && return ;;
    67) echo "stop data or checkpoint cannot be used" && return ;;
    68) echo "stop the tasks found no PMIx" && return ;;
    69) echo "stop memory or disk ran out" && return ;;
    esac
    if [ "$idle" -ge "$MAX_IDLE" ]; then
        echo "stop exit code $code, $idle runs without a new checkpoint"
    elif [ "$code" -ne 75 ] && [ "$crashes" -ge "$MAX_CRASHES" ]; then
        echo "stop exit code $code, crash $crashes in succession"
    elif [ "$restarts" -ge "$MAX_RESTARTS" ]; then
        echo "stop restarted $restarts times"
    else
        echo again
    fi
}

# idle_starts SERIES CHECKPOINT: how many of the series' last starts went on
# from this checkpoint, which is the newest.  A run whose node was lost wrote
# nothing at its end, but is among them.
idle_starts()
{
    awk -v series="$1" -v from="${2:-none}" '
        $3 == series { n = $4 == from ? n + 1 : 0 }
        END { print n + 0 }' "$RUN_DIR/starts" 2>/dev/null || echo 0
}

# Count this end: an orderly one clears the crashes before it.  Prints how many
# there are in succession.
count_crash()
{
    case $1 in
    0 | 75) rm -f "$RUN_DIR/crashes" ;;
    6[6-9]) ;; # no crash
    *) echo "$(date '+%F %T') job ${SLURM_JOB_ID-} exit code $1" \
        >>"$RUN_DIR/crashes" ;;
    esac
    if [ -e "$RUN_DIR/crashes" ]; then
        wc -l <"$RUN_DIR/crashes"
    else
        echo 0
    fi
}

step='' asked=no interrupted=no

# srun passes USR1 on to all tasks.  (On TERM it would kill them.)
on_usr1()
{
    asked=yes interrupted=yes
    say "USR1: asking the program to save and end"
    [ -z "$step" ] || kill -USR1 "$step"
}

# run_step SRUN_OPTION...: the step; its exit code is ours.
#
# --kill-on-bad-exit=0: 75 is not zero, and one task always exits first; srun
# would kill the others as they finish.  When a task dies Slurm's PMIx ends the
# step at once, and --wait bounds other hangs.
# --cpus-per-task: Slurm 22.05 to 23.02 do not pass it on to steps.
run_step()
{
    local code

    srun --mpi=pmix --export=ALL --kill-on-bad-exit=0 --wait=120 \
        --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" "$@" "${degrees[@]}" \
        "${program[@]}" --ckpt "$RUN_DIR/ckpt" \
        --metrics "$RUN_DIR/metrics.jsonl" &
    step=$!
    while :; do
        wait "$step"
        code=$?
        # a signal ends wait, too: then srun still runs
        [ "$interrupted" = yes ] || break
        interrupted=no
    done
    step=
    return "$code"
}

# begin SERIES RESTART: is there anything to do?  A series is a job with its
# restarts, or a chain of jobs.
begin()
{
    local idle

    mkdir -p "$RUN_DIR" || exit 69
    if [ -e "$RUN_DIR/DONE" ]; then
        say "$RUN_DIR/DONE exists: nothing to do"
        exit 0
    fi
    before=$(newest_checkpoint)
    idle=$(idle_starts "$1" "$before")
    if [ "$idle" -ge "$MAX_IDLE" ]; then
        say "stop: $idle runs left no checkpoint after ${before:-the beginning}"
        exit 1
    fi
    echo "$(date '+%F %T') $1 ${before:-none} ${SLURM_JOB_NODELIST-}" \
        >>"$RUN_DIR/starts"
    say "restart $2 on ${SLURM_JOB_NODELIST-}, from ${before:-the beginning}"
}

# judge CODE SERIES RESTART: the output of decide(), into $verdict.
judge()
{
    local after

    after=$(newest_checkpoint)
    verdict=$(decide "$1" "$(idle_starts "$2" "$after")" "$3" \
        "$(count_crash "$1")")
    say "exit code $1, newest checkpoint ${after:-none}: $verdict"
    [ "$verdict" != "done" ] || touch "$RUN_DIR/DONE"
}
