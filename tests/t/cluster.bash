# SPDX-License-Identifier: Apache-2.0
# cluster.bash - for scripts that run in a sandbox (tests/cluster.sh)
#
# Given: srun, merak and their like in the PATH; $TESTS, the directory of the
# tests' sources; $BUILD, the build tree.

bats_require_minimum_version 1.5.0

# A job waits where the one before it is not quite over, and srun says so in
# lines that no test has asked for.  Commands that start srun say -Q themselves.
# Twice would silence errors, too.
srun()
{
    [ "$1" = -Q ] || set -- -Q "$@"
    command srun "$@"
}

# Is this build one with a sanitizer (of that name)?
is_built_with()
{
    grep -qs "^MERAK_CFLAGS=.*-fsanitize=[a-z,]*${1-}" "$BUILD/config.log"
}

# Every node takes jobs, and says so at once or within a few seconds of the
# last job's end.
assert_no_node_drained()
{
    local bad

    bad=$(sinfo -h -N -o '%N %T %E' -t drain,drng,down,fail,no_respond)
    [ -z "$bad" ] || {
        echo "nodes out of service: $bad"
        return 1
    }
}

# No job and no step is left; completing ones get minutes on a busy machine.
assert_no_job_left()
{
    local left i

    for ((i = 0; i < 3000; i++)); do
        left=$(squeue -h -o '%i %T' && squeue -h -s -o '%i')
        [ -n "$left" ] || return 0
        sleep 0.1
    done
    echo "jobs left: $left"
    return 1
}

# refuse COMMAND...: it ends with exit code 66 and says exactly one line, on
# standard error; nothing runs, nothing is left, no node is drained.  The line
# is then in $line.
refuse()
{
    run --separate-stderr timeout -k 5 600 "$@"
    echo "exit code $status, output: $output, error: $stderr"
    [ "$status" -eq 66 ]
    [ -z "$output" ]
    [ "${#stderr_lines[@]}" -eq 1 ]
    line=${stderr_lines[0]}
    assert_no_job_left
    assert_no_node_drained
}

# A device file of a device that has a host's memory for --offload.
device_with_host()
{
    cat <<'END'
{"name": "box", "ranks_per_node": 4, "memory_bytes": 4e9,
 "flops_per_s": {"f32": 1e11, "bf16": 1e11}, "bytes_per_s": 1e10,
 "kernel_s": 2e-6, "link": {"bytes_per_s": 5e9, "latency_s": 5e-6},
 "host": {"memory_bytes": 1e9, "bytes_per_s": 1e9, "latency_s": 1e-5}}
END
}
