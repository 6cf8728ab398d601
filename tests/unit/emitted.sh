#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# emitted.sh - what is emitted for other trainers passes their own code
#
# Run from the build directory of tests/.  MERAK_TEST_PYTHON is a python3 with
# torchtitan 0.3 and deepspeed; MERAK_TEST_MEGATRON a clone of Megatron-LM, which
# needs PyTorch.  Trainers that are not to be had are skipped; unit/trainers.t
# has their checks in words of our own.

set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
. "$here/tap.sh"
python=${MERAK_TEST_PYTHON:-python3}
program=$PWD/unit/trainers.t

. "$here/in_tmp.sh"
mkdir megatron torchtitan deepspeed

takes() # NAME
{
    local rc

    PYTHONPATH=${MERAK_TEST_MEGATRON:-}:${PYTHONPATH:-} \
        "$python" "$here/ops/check_emitted.py" "$1" "$PWD/$1" >log 2>&1
    rc=$?
    if [ $rc -eq 77 ]; then
        n=$((n + 1))
        echo "ok $n - $1 takes what is emitted # SKIP not to be had"
    else
        [ $rc -ne 0 ] || cat log
        ok $rc "$1 takes what is emitted" log
    fi
}

MERAK_TEST_EMITTED=$PWD "$program" >log 2>&1
ok $? "plans are emitted" log
for name in megatron torchtitan deepspeed; do
    takes $name
done
echo "1..$n"
