#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0410-pack-tasks.bats - the tasks of a step pack a data set together

load cluster

setup()
{
    cd "$BATS_FILE_TMPDIR"
}

teardown()
{
    assert_no_job_left
    assert_no_node_drained
}

@test "tasks on several nodes write what one writes, over two steps" {
    awk 'BEGIN { for (i = 0; i < 60000; i++)
        printf "{\"text\": \"line %d of a corpus, %d\"}\n", i, i * i }' >c.jsonl
    merak data pack --tokenizer byte --append-eod --out one c.jsonl
    # the first step is ended when some of it is done
    srun -Q -J packing -N2 -n5 merak data pack --tokenizer byte --append-eod --out many \
        c.jsonl >first.log 2>&1 &
    step=$!
    # as a time limit does
    for _ in $(seq 200); do
        [ -z "$(ls many.parts 2>/dev/null | grep '^[0-9].*json$')" ] || break
        sleep 0.02
    done
    scancel -f -s KILL -n packing
    wait $step || true
    while [ -n "$(squeue -h -n packing)" ]; do
        sleep 0.1
    done
    run srun -Q -N2 -n3 merak data pack --tokenizer byte --append-eod \
        --out many c.jsonl
    echo "$output"
    cat first.log
    [ "$status" -eq 0 ]
    [ "$(grep -c 'many.bin: .* tokens of 60000 documents' <<<"$output")" -eq 1 ]
    cmp one.bin many.bin
    cmp one.idx many.idx
    [ ! -e many.parts ]
}
