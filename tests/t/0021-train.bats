#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0021-train.bats - README's first command: examples/train.c as it is, on 32
# tasks of a sandbox as it is

load cluster

@test "srun -n32 --merak-tp=8 --merak-pp=4 ./train" {
    cd "$BATS_TEST_TMPDIR"
    merak data pack --tokenizer byte --append-eod --out corpus \
        /usr/share/common-licenses/GPL-3 >/dev/null
    run timeout -k 5 600 merak sandbox -- srun -n32 --merak-tp=8 \
        --merak-pp=4 "$BUILD/examples/train" --data corpus --steps 2
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *"tp 8 x pp 4 x dp 1 on 4 nodes (placement: spank)"* ]]
    # what one task gets
    losses=$(grep -o 'step ./2  loss [0-9.]*' <<<"$output")
    run "$BUILD/examples/train" --data corpus --steps 2 --global-batch 8
    echo "$output"
    [ "$status" -eq 0 ]
    one=$(grep -o 'step ./2  loss [0-9.]*' <<<"$output")
    paste <(echo "$losses") <(echo "$one") | awk '
        { d = $4 - $8 } NF != 8 || d > 2e-4 || d < -2e-4 { exit 1 }
        END { exit NR != 2 }'
}
