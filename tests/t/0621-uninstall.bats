#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0621-uninstall.bats - the plugin comes and goes with its files, as packages
# install and remove them, and srun says nothing of it

load cluster

@test "plugstack.conf that includes what packages install, before and after" {
    local plugin=$BUILD/spank_plugin/.libs/spank_merak.so

    cd "$BATS_TEST_TMPDIR"
    mkdir -p lib share
    cp "$plugin" lib/
    # the site's file, and the package's, as in packaging/merak.conf
    sed "s|^include .*|include $PWD/share/*.conf|" \
        "$TESTS/../packaging/merak.conf" >site.conf
    [ "$(grep -c '^include' site.conf)" -eq 1 ]
    echo "optional $PWD/lib/spank_merak.so" >share/merak.conf
    cat >inner <<'SCRIPT'
cp site.conf "$(dirname "$SLURM_CONF")/plugstack.conf"
srun -Q -n2 --merak-tp=2 sh -c 'echo $MERAK_TP_SIZE $MERAK_TP_RANK' | sort
rm lib/spank_merak.so share/merak.conf
srun -Q -n2 sh -c 'echo ${MERAK_TP_SIZE-plain}' 2>&1
printf '#!/bin/sh\nsrun -Q -n1 echo batch\n' >script
sbatch -Q -W -n1 -o out script 2>&1
cat out
sinfo -h -N -o '%N %T %E' -t drain,drng,down,fail,no_respond
SCRIPT
    run merak sandbox --nodes 1 --plugin none -- sh inner
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$output" = "$(printf '2 0\n2 1\nplain\nplain\nbatch')" ]
}
