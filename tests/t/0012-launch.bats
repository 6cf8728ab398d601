#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0012-launch.bats - who wins where options are said twice, and the ways a
# step can be launched
#
# modes: root guest

load cluster

SAY='echo $MERAK_TP_SIZE.$MERAK_PP_SIZE.$MERAK_DP_SIZE'

setup()
{
    cd "$BATS_TEST_TMPDIR"
}

teardown()
{
    assert_no_job_left
    assert_no_node_drained
}

# batch OPTION...: run the script on standard input under sbatch; what all its
# tasks say, once each
batch()
{
    { echo '#!/bin/bash' && cat; } >script
    timeout -k 5 600 sbatch -Q -W -o out "$@" script || true
    sort -u out
}

@test "the command line wins over the environment, that over nothing" {
    [ "$(MERAK_TP=2 srun -Q -n4 sh -c "$SAY" | sort -u)" = 2.1.2 ]
    [ "$(MERAK_TP=2 MERAK_PP=2 srun -Q -n4 sh -c "$SAY" | sort -u)" = 2.2.1 ]
    [ "$(MERAK_TP=2 srun -Q -n4 --merak-tp=4 sh -c "$SAY" | sort -u)" = 4.1.1 ]
    [ "$(MERAK_TP= MERAK_DP=4 srun -Q -n4 sh -c "$SAY" | sort -u)" = 1.1.4 ]
}

@test "#SBATCH is inherited by the inner srun, which may say otherwise" {
    run batch <<SCRIPT
#SBATCH -n4 --merak-tp=2
srun -Q sh -c '$SAY'
srun -Q --merak-tp=4 sh -c '$SAY'
SCRIPT
    [ "$output" = "$(printf '2.1.2\n4.1.1')" ]
}

@test "sbatch's command line wins over #SBATCH, that over the environment" {
    MERAK_TP=1 run batch --merak-tp=4 <<SCRIPT
#SBATCH -n4 --merak-tp=2
srun -Q sh -c '$SAY'
SCRIPT
    [ "$output" = 4.1.1 ]
    MERAK_TP=1 run batch <<SCRIPT
#SBATCH -n4 --merak-tp=2
srun -Q sh -c '$SAY'
SCRIPT
    [ "$output" = 2.1.2 ]
}

@test "--export=NONE, of sbatch and of srun" {
    run batch --export=NONE <<SCRIPT
#SBATCH -n4 --merak-tp=2
srun -Q --export=ALL /bin/sh -c '$SAY'
SCRIPT
    [ "$output" = 2.1.2 ]
    run srun -Q -n4 --export=NONE --merak-pp=2 /bin/sh -c "$SAY"
    [ "$(sort -u <<<"$output")" = 1.2.2 ]
}

@test "salloc" {
    run timeout -k 5 600 salloc -Q -n4 --merak-pp=4 srun -Q sh -c "$SAY"
    [ "$(sort -u <<<"$output")" = 1.4.1 ]
    run timeout -k 5 600 salloc -Q -n4 --merak-pp=4 sh -c 'echo $MERAK_PP'
    [ "$output" = 4 ]
}

@test "array elements have a plan each" {
    cat >script <<SCRIPT
#!/bin/bash
#SBATCH -n2 --array=0-1 --merak-tp=2 -o out-%a
srun -Q sh -c 'echo \$SLURM_ARRAY_TASK_ID \$MERAK_TP_RANK'
SCRIPT
    timeout -k 5 600 sbatch -Q -W script
    [ "$(sort out-0 | tr '\n' ';')" = "0 0;0 1;" ]
    [ "$(sort out-1 | tr '\n' ';')" = "1 0;1 1;" ]
}

@test "without PMIx the variables are there all the same" {
    run srun -Q -n4 --mpi=none --merak-tp=4 sh -c "$SAY"
    [ "$(sort -u <<<"$output")" = 4.1.1 ]
}

# Not with PMIx: srun 22.05 then hangs at the end now and then (its
# components stop one PMIx agent each), whatever is run.
@test "a heterogeneous step is left to the program, which gets all options" {
    WISH='echo ${MERAK_RANK-none} $MERAK_TP.$MERAK_PP $MERAK_ORDER.${MERAK_TP_DOMAIN-unset} ${SLURM_MERAK_TP-gone}'
    # wished OPTION...: what the tasks of such a step find, all of them alike
    wished()
    {
        run timeout -k 5 600 srun --mpi=none "$@"
        echo "$output"
        [ "$status" -eq 0 ]
        [[ $output == *"merak: a heterogeneous step: the program plans by itself"* ]]
        [ "$(grep -v ^srun: <<<"$output" | sort | uniq -c | xargs)" = \
            "4 none 2.2 tp-pp-dp.unset gone" ]
    }
    local all=(--merak-tp=2 --merak-pp=2 --merak-order=tp-pp-dp)
    wished "${all[@]}" -n2 sh -c "$WISH" : -n2 sh -c "$WISH"
    wished -n2 sh -c "$WISH" : "${all[@]}" -n2 sh -c "$WISH"
    wished --merak-tp=2 -n2 sh -c "$WISH" : "${all[@]:1}" -n2 sh -c "$WISH"
    wished --export=NONE "${all[@]}" -n2 /bin/sh -c "$WISH" : \
        --export=NONE -n2 /bin/sh -c "$WISH"
}

@test "--het-group of an allocation gets them too" {
    local group=(--mpi=none --het-group=0,1)

    run timeout -k 5 600 salloc -Q -n1 : -n1 srun "${group[@]}" \
        --merak-tp=2 sh -c 'echo $MERAK_TP'
    [ "$(grep -cx 2 <<<"$output")" -eq 2 ]
    run timeout -k 5 600 salloc -Q -n1 --merak-tp=2 : -n1 srun "${group[@]}" \
        sh -c 'echo $MERAK_TP'
    [ "$(grep -cx 2 <<<"$output")" -eq 2 ]
}

@test "a step of fewer tasks than the job is planned for itself" {
    run batch <<SCRIPT
#SBATCH -n4 --merak-tp=2
srun -Q -n2 sh -c '$SAY'
SCRIPT
    [ "$output" = 2.1.1 ]
}

@test "options stay off steps that are not asked for them" {
    run batch <<SCRIPT
#SBATCH -n4
srun -Q --merak-tp=4 sh -c '$SAY'
srun -Q sh -c 'echo \${MERAK_TP_SIZE-none}'
SCRIPT
    [ "$output" = "$(printf '4.1.1\nnone')" ]
}

@test "site defaults fill in, and alone do nothing" {
    plugin=$BUILD/spank_plugin/.libs/spank_merak.so
    cat >inner <<SCRIPT
sed -i 's/\$/ pp=2 order=tp-pp-dp/' "\$(dirname "\$SLURM_CONF")/plugstack.conf"
srun -Q -n3 sh -c 'echo \${MERAK_PP_SIZE-none}'
srun -Q -n4 --merak-tp=2 sh -c 'echo \$MERAK_TP_SIZE.\$MERAK_PP_SIZE \$MERAK_ORDER'
srun -Q -n4 --merak-pp=4 sh -c 'echo \$MERAK_PP_SIZE'
sed -i 's/\$/ nonsense/' "\$(dirname "\$SLURM_CONF")/plugstack.conf"
srun -Q -n1 echo untouched
srun -Q -n4 --merak-tp=2 true
echo \$?
SCRIPT
    run merak sandbox --nodes 1 --plugin "$plugin" -- sh inner
    echo "$output"
    [ "$(uniq <<<"$output")" = "$(printf 'none\n2.2 tp-pp-dp\n4\nuntouched\n%s\n66' \
        'srun: error: merak: plugstack.conf: expected tp=, pp=, dp=, cp=, ep=, order=, tp-domain= or env=, got "nonsense"')" ]
}

@test "no task leaves a barrier before those of other nodes have come to it" {
    srun -Q -N2 -n2 "$BUILD/tests/unit/boot_make" late .
    [ -d late ]
}

@test "the plugin exports its callbacks and nothing else, needs libc alone" {
    plugin=$BUILD/spank_plugin/.libs/spank_merak.so
    run nm -D --defined-only "$plugin"
    [ "$(awk '{ print $3 }' <<<"$output" | grep -cvE \
        '^(plugin_(name|type|version)|spank_plugin_version|slurm_spank_[a-z_]+)$')" -eq 0 ]
    run readelf -d "$plugin"
    [ "$(grep -c NEEDED <<<"$output")" -eq 1 ]
    [[ $output == *"libc.so.6"* ]]
}
