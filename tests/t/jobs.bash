# SPDX-License-Identifier: Apache-2.0
# jobs.bash - for tests of scripts that sbatch runs and that come back
#
# Given: $LOG, the files that a job writes, a pattern; $JOB, its id.

# field NAME: of the job, from the controller
field()
{
    scontrol -o show job "$JOB" | grep -oE "(^| )$1=[^ ]*" | cut -d= -f2-
}

# within SECONDS COMMAND...: it succeeds before long, which is minutes where the
# machine is busy
within()
{
    local end=$((SECONDS + $1))

    shift
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || {
            echo "not in time: $*"
            squeue
            cat $LOG
            return 1
        }
        sleep 0.2
    done
}

is_over()
{
    case $(field JobState) in
    COMPLETED | FAILED | CANCELLED | TIMEOUT | NODE_FAIL) ;;
    *) return 1 ;;
    esac
}

# is_requeued N: it has been so often
is_requeued()
{
    [ "$(field Restarts)" = "$1" ]
}
