#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0011-place.bats - every task's variables against where Slurm really put it
#
# modes: root guest user

load cluster

SAY='echo $SLURM_PROCID $SLURMD_NODENAME $MERAK_RANK $MERAK_TP_RANK \
$MERAK_PP_RANK $MERAK_DP_RANK $MERAK_TP_SIZE $MERAK_PP_SIZE $MERAK_DP_SIZE \
$MERAK_WORLD_SIZE $MERAK_PLAN_ID $MERAK_ORDER $MERAK_TOPO_ADDR \
$SLURM_TOPOLOGY_ADDR $MERAK_PLAN_SOURCE $PMIX_RANK'

# Hold the lines of $SAY on standard input against what must be true of any
# placement of $1 tasks with tp=$2, pp=$3 in order $4.
check()
{
    awk -v n="$1" -v tp="$2" -v pp="$3" -v order="$4" '
        function bad(what) { print "task " $1 ": " what ": " $0; wrong = 1 }
        { dp = n / tp / pp }
        NF != 16 { bad("a variable is missing") }
        $7 != tp || $8 != pp || $9 != dp || $10 != n { bad("sizes") }
        $4 < 0 || $4 >= tp || $5 < 0 || $5 >= pp || $6 < 0 || $6 >= dp {
            bad("coordinates out of range")
        }
        {
            rank = order == "tp-dp-pp" ? $4 + tp * ($6 + dp * $5) \
                                       : $4 + tp * ($5 + pp * $6)
        }
        $3 != rank { bad("rank does not follow from the coordinates") }
        seen[$3]++ { bad("rank given twice") }
        # the group of one stage and replica is on one node
        ($5, $6) in node && node[$5, $6] != $2 { bad("tp group on two nodes") }
        { node[$5, $6] = $2 }
        NR > 1 && $11 != id { bad("another plan") }
        { id = $11 }
        $12 != order { bad("order") }
        $13 != $14 { bad("address") }
        $15 != "spank" { bad("source") }
        $16 != $1 { bad("PMIx rank is not the task id") }
        END {
            if (NR != n) { print NR " tasks of " n; wrong = 1 }
            exit wrong
        }'
}

# places N TP PP [SRUN OPTION]...
places()
{
    local n=$1 tp=$2 pp=$3 order

    shift 3
    for order in tp-dp-pp tp-pp-dp; do
        run timeout -k 5 600 srun -Q -n"$n" --merak-tp="$tp" --merak-pp="$pp" \
            --merak-order="$order" "$@" sh -c "$SAY"
        echo "$output"
        [ "$status" -eq 0 ]
        check "$n" "$tp" "$pp" "$order" <<<"$output"
    done
}

@test "block" { places 16 2 2 -N4 --ntasks-per-node=4 -m block; }
@test "cyclic" { places 16 2 2 -N4 --ntasks-per-node=4 -m cyclic; }
@test "plane" { places 16 4 2 -N4 --ntasks-per-node=4 -m plane=2; }
@test "one node" { places 4 2 2 -N1; }
@test "tp alone, pp alone, dp alone" {
    places 4 4 1 -N1
    places 4 1 4 -N4
    places 4 1 1 -N4
}

# on N TP PP NODE...: task i on the i-th node
on()
{
    local degrees=("$1" "$2" "$3")

    shift 3
    printf '%s\n' "$@" >"$BATS_TEST_TMPDIR/hosts"
    SLURM_HOSTFILE=$BATS_TEST_TMPDIR/hosts places "${degrees[@]}" \
        -m arbitrary --overcommit
}

@test "nodes with 4 and 2 tasks" { on 6 2 3 n1 n1 n1 n1 n2 n2; }

@test "nodes with 8 and 4 tasks, more tasks than CPUs" {
    on 12 4 3 n1 n1 n1 n1 n1 n1 n1 n1 n2 n2 n2 n2
}

@test "an arbitrary layout" { on 8 2 2 n3 n1 n3 n4 n1 n4 n2 n2; }

@test "replicas share a leaf, stages are across, or the other way round" {
    run srun -Q -N4 --ntasks-per-node=2 --merak-tp=2 --merak-pp=2 \
        --merak-map=show true
    [[ $output == *"tp groups of 2: 4 in a node"* ]]
    [[ $output == *"pp groups of 2: 4 across 2 switch levels"* ]]
    [[ $output == *"dp groups of 2: 4 under one leaf switch"* ]]
    [[ $output == *"root.leaf1 n2: 2=t0.p0.d1 3=t1.p0.d1"* ]]
    run srun -Q -N4 --ntasks-per-node=2 --merak-tp=2 --merak-pp=2 \
        --merak-order=tp-pp-dp --merak-map=show true
    [[ $output == *"pp groups of 2: 4 under one leaf switch"* ]]
    [[ $output == *"dp groups of 2: 4 across 2 switch levels"* ]]
}

@test "ranks of a sequence share a node, beside those of a layer" {
    run srun -Q -N2 --ntasks-per-node=4 --merak-tp=2 --merak-cp=2 \
        --merak-map=show true
    [[ $output == *"tp=2 x cp=2 x pp=1 x dp=2"* ]]
    [[ $output == *"tp x cp groups of 4: 2 in a node"* ]]
    run srun -Q -N2 --ntasks-per-node=4 --merak-tp=2 --merak-cp=2 bash -c \
        'echo $MERAK_RANK $((MERAK_TP_RANK + 2 * (MERAK_CP_RANK + \
            MERAK_CP_SIZE * MERAK_DP_RANK)))'
    [ "$(sort -n <<<"$output")" = "$(for r in {0..7}; do echo $r $r; done)" ]
}

@test "beside more ranks of a layer they share whole nodes" {
    run srun -Q -N4 --ntasks-per-node=2 --merak-tp=2 --merak-cp=2 bash -c \
        'echo $MERAK_DP_RANK $MERAK_CP_RANK $SLURMD_NODENAME'
    [ "$(cut -d" " -f1,2,3 <<<"$output" | sort | uniq -c | \
        awk '{ print $1, $2, $3 }')" = "$(printf '2 %s\n' '0 0' '0 1' '1 0' \
            '1 1')" ]
}

@test "the map can be written to a file" {
    run srun -Q -n2 --merak-tp=2 --merak-map="$BATS_TEST_TMPDIR/plan" true
    [ -z "$output" ]
    grep -q ': 2 tasks on 1 node, tp=2 x pp=1 x dp=1' "$BATS_TEST_TMPDIR/plan"
}

@test "a map that cannot be written is said; the step runs" {
    run srun -Q -n1 --merak-map=/no/such/dir/plan echo ran
    [ "$status" -eq 0 ]
    [[ $output == *"cannot write /no/such/dir/plan: No such file"* ]]
    [[ $output == *ran* ]]
}

@test "tp may leave a node if told so" {
    run srun -Q -N2 --ntasks-per-node=2 --merak-tp=4 --merak-tp-domain=any \
        sh -c 'echo $SLURM_PROCID $MERAK_TP_RANK'
    [ "$(sort <<<"$output" | tr '\n' ';')" = "0 0;1 1;2 2;3 3;" ]
}

@test "tp may leave a node, but not its leaf switch" {
    run srun -Q -w 'n[1-2]' --ntasks-per-node=2 --merak-tp=4 \
        --merak-tp-domain=leaf sh -c 'echo $SLURM_PROCID $MERAK_TP_RANK'
    [ "$(sort <<<"$output" | tr '\n' ';')" = "0 0;1 1;2 2;3 3;" ]
    run srun -Q -w 'n[1-3]' --ntasks-per-node=2 --merak-tp=6 \
        --merak-tp-domain=leaf true
    [ "$status" -ne 0 ]
    [[ $output == *"leaf leaf1 has 4 tasks, not a multiple of tp=6; give each \
leaf whole groups, as sbatch --segment=3 gives, or --merak-tp-domain=any"* ]]
}

@test "the whole map goes along, the transport variable does not" {
    run srun -Q -w 'n[1-2]' --ntasks-per-node=2 --merak-tp=2 \
        sh -c 'echo ${SLURM_MERAK_PLAN-gone} ${MERAK_PLAN#*/*/*/}'
    [ "$(sort -u <<<"$output")" = \
        "gone 2x1x2/tp-dp-pp/node/n[1-2]/root(leaf1(0-1))/0+2*2" ]
}

@test "auto: the topology and no coordinates" {
    run srun -Q -w 'n[1-2]' --ntasks-per-node=2 --merak-tp=auto sh -c \
        'echo ${MERAK_TP_RANK-none} ${MERAK_RANK-none} $MERAK_TOPO_ADDR ${MERAK_PLAN#*/*/*/}'
    [ "$(sort -u <<<"$output" | head -n 1)" = \
        "none none root.leaf1.n1 0x0x0/auto/node/n[1-2]/root(leaf1(0-1))/0+2*2" ]
}

@test "torch: ranks are the mesh's, rank 0 is where they meet" {
    run srun -Q -w 'n[1-3]' --ntasks-per-node=2 --merak-tp=2 \
        --merak-env=torch sh -c 'echo $RANK $MERAK_RANK $WORLD_SIZE \
            $LOCAL_WORLD_SIZE $LOCAL_RANK $SLURM_LOCALID $MASTER_ADDR \
            $MASTER_PORT $SLURMD_NODENAME ${SLURM_MERAK_ENV-gone}'
    echo "$output"
    [ "$(wc -l <<<"$output")" -eq 6 ]
    awk '$1 != $2 || $3 != 6 || $4 != 2 || $5 != $6 || $10 != "gone" ||
        $8 < 20000 || $8 >= 32000 || seen[$1]++ { exit 1 }
        { at[$7]; port[$8] }
        $1 == 0 && $7 != $9 { exit 1 }
        END { exit length(at) != 1 || length(port) != 1 }' <<<"$output"
    run srun -Q -n2 --merak-tp=2 sh -c 'echo ${RANK-none} ${MASTER_ADDR-none}'
    [ "$(sort -u <<<"$output")" = "none none" ]
}

@test "torch's own rendezvous over the ranks" {
    /usr/bin/python3 -c 'import torch.distributed' || skip "no torch"
    # The nodes' names are Slurm's alone here: all are on this machine, and so
    # are those of other sandboxes, whose jobs have the same numbers and ports.
    export PORT_HERE=$((10000 + BASHPID % 9000))
    run timeout -k 5 600 srun -Q -n4 -N2 --overcommit --merak-tp=2 \
        --merak-env=torch /usr/bin/python3 -c 'if True:
            import os, torch, torch.distributed as d
            os.environ.update(MASTER_ADDR="127.0.0.1", GLOO_SOCKET_IFNAME="lo",
                MASTER_PORT=os.environ["PORT_HERE"])
            d.init_process_group("gloo")
            t = torch.tensor([float(os.environ["MERAK_RANK"])])
            d.all_reduce(t)
            print(int(t.item()))'
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -cx 6 <<<"$output")" -eq 4 ]
}

@test "without an option the plugin does nothing" {
    run srun -Q -n4 -N2 sh -c 'env | grep -c MERAK'
    [ "$(sort -u <<<"$output" | head -n 1)" = 0 ]
}

@test "a stale or forged plan is not believed" {
    run srun -Q -n2 --merak-tp=2 sh -c 'unset MERAK_TP_RANK MERAK_PLAN
        SLURM_MERAK_PLAN=refused; export SLURM_MERAK_PLAN; echo $MERAK_PP_RANK'
    [ "$output" = "$(printf '0\n0')" ]
    SLURM_MERAK_PLAN=refused run srun -Q -n1 echo ran
    [ "$output" = ran ]
    for plan in x merak2/0000000000000000/1.0/1x1x1/tp-dp-pp/node/n1/0/0+1*1; do
        SLURM_MERAK_PLAN=$plan run srun -Q -n1 sh -c 'echo ${MERAK_RANK-none}'
        [ "$output" = none ]
    done
    assert_no_node_drained
}
