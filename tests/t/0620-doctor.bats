#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0620-doctor.bats - merak doctor alone, in a job, and on its nodes

load cluster

setup()
{
    cd "$BATS_TEST_TMPDIR"
}

# found AREA LEVEL WORDS: out.json has such a finding
found()
{
    jq -e --arg a "$1" --arg l "$2" --arg t "$3" '.findings[] |
        select(.area == $a and .level == $l and (.text | contains($t)))' \
        out.json || { jq . out.json && false; }
}

@test "alone, with a Slurm beside it: plugins, switches, UCX, a directory" {
    local start=$EPOCHREALTIME

    run merak doctor --dir . --json out.json
    echo "$output" "$start" "$EPOCHREALTIME"
    [ "$status" -eq 0 ]
    [[ $output == *"0 errors"* ]]
    found slurm ok "$(srun --version)"
    found PMIx ok "MpiDefault is pmix"
    found plugin ok "spank_plugin/.libs/spank_merak.so, for Slurm"
    found topology ok switches
    found links ok "within the node"
    found links ok "tcp/"
    found files ok "free"
    [ -z "$(ls -A | grep -v out.json)" ]
}

@test "a plugin of another release, one that is gone, one that is required" {
    local plugin=$BUILD/spank_plugin/.libs/spank_merak.so
    local release=$(srun --version | grep -oE '[0-9]+\.[0-9]+' | head -n 1)

    # the constant that Slurm compares, one minor release on
    at=$(readelf -sW "$plugin" | awk '$8 == "plugin_version" { print "0x" $2; exit }')
    cp "$plugin" spank_merak.so
    section=$(readelf -SW "$plugin" | sed 's/^ *\[ *[0-9]*\]//' |
        awk '$1 == ".rodata" { print "0x" $3, "0x" $4 }')
    set -- $section
    printf '\x63' | dd of=spank_merak.so bs=1 conv=notrunc status=none \
        seek=$((at - $1 + $2 + 1))
    cat >inner <<'SCRIPT'
plugstack=$(dirname "$SLURM_CONF")/plugstack.conf
echo "optional $PWD/spank_merak.so" >"$plugstack"
merak doctor --json other.json >/dev/null
echo "optional $PWD/gone/spank_merak.so" >"$plugstack"
merak doctor --json gone.json >/dev/null
echo "required $PLUGIN" >"$plugstack"
merak doctor --json required.json >/dev/null
: >"$plugstack"
merak doctor --json none.json >/dev/null
SCRIPT
    PLUGIN=$plugin run merak sandbox --nodes 1 --plugin "$plugin" -- sh inner
    echo "$output"
    [ "$status" -eq 0 ]
    cp other.json out.json
    found plugin warning "was built for Slurm ${release%.*}.99, this is $release"
    cp gone.json out.json
    found plugin warning "gone/spank_merak.so, which does not exist"
    cp required.json out.json
    found plugin warning 'has `required`'
    cp none.json out.json
    found plugin note "srun has no --merak-tp"
}

@test "in a step: binding, links between nodes, a directory that all share" {
    mkdir shared
    run srun -Q -N2 -n4 merak doctor --dir shared --json out.json
    echo "$output"
    [ "$status" -eq 0 ]
    # behind what UCX may warn of, which it prints on standard output
    [ "$(grep -v ' UCX ' <<<"$output" | head -n 1)" = "4 tasks on n[1-2]" ]
    found PMIx ok "4 tasks on 2 nodes"
    found links ok "between two tasks of a node"
    found "between nodes" ok "all nodes at once"
    [ "$(jq -r '.nodes | join(",")' out.json)" = n1,n2 ]
    jq -e '.findings[] | select(.area == "binding")' out.json
    [ -z "$(ls -A shared)" ]
}

@test "in a step without Slurm's programs, as in a container" {
    mkdir bin
    ln -s /usr/bin/* bin/
    rm bin/srun bin/scontrol
    run srun -Q -N2 -n2 env PATH="$BUILD/cmd:$PWD/bin" merak doctor \
        --json out.json
    echo "$output"
    [ "$status" -eq 0 ]
    found slurm note "as in a container: Slurm's plugins and switches are not"
    found PMIx ok "2 tasks on 2 nodes"
    found "between nodes" ok "all nodes at once"
}

@test "in a step: exit codes of what a run would end with" {
    run srun -Q -N2 -n2 merak doctor --dir /proc/self
    echo "$output"
    [ "$status" -eq 69 ]
    [[ $output == *"cannot write in /proc/self"*"fix: "* ]]
    run --separate-stderr srun -Q -n2 --mpi=none merak doctor
    [ "$status" -eq 68 ]
    [[ $stderr == *"srun --mpi=pmix"* ]]
    refuse merak doctor --dirr x
    [[ $line == *'unknown option "--dirr" (did you mean --dir?)'* ]]
}

@test "in a job, outside of its tasks, it says how to examine them" {
    run salloc -Q -n1 merak doctor --json
    [ "$status" -eq 0 ]
    printf '%s\n' "$output" >out.json
    found slurm note "outside of its tasks"
}

teardown()
{
    assert_no_job_left
    assert_no_node_drained
}
