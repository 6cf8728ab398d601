#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0302-ckpt-tools.bats - merak ckpt: names, differences, other layouts, pruning,
# repair, JSON

load cluster

setup_file()
{
    export RUNS=$BATS_FILE_TMPDIR
    export CONFIG=$TESTS/vectors/parity/gpt2-tied.json
    merak data pack --tokenizer byte --out "$RUNS/text" \
        /usr/share/common-licenses/GPL-3 >/dev/null
}

setup()
{
    make_ckpt=$BUILD/tests/unit/ckpt_make
    TRAIN=(merak train --model "$CONFIG" --data "$RUNS/text" --seq 32
        --global-batch 4 --threads 1 --deadline 60)
    cd "$BATS_TEST_TMPDIR"
}

@test "show takes names as training prints them, and lists the nearest" {
    "$make_ckpt" run 20 2 1 2 1
    for name in param/h.0.ln.g h.0.ln.g /param/h.0.ln.g param/h.0.ln.g@0:12; do
        run merak ckpt show run "$name"
        echo "$output"
        [ "$status" -eq 0 ]
        [[ $output == "tensor            param/h.0.ln.g"* ]]
    done
    run merak ckpt show run h.0.attn.qvk.w
    echo "$output"
    [ "$status" -eq 66 ]
    [ "${#lines[@]}" -eq 1 ]
    [[ $output == *"the nearest are param/h.0.attn.qkv.w"* ]]
    run merak ckpt show run mlp
    [ "$status" -eq 66 ]
    [[ $output == *"param/h.1.mlp.down.w, param/h.1.mlp.up.w"* ]]
}

@test "diff is silent on layouts, and measures what differs" {
    "$make_ckpt" a 20 1 1 1 0
    "$make_ckpt" b 20 2 1 2 1
    run merak ckpt diff a b
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *"tp: 1 and 2, which makes no difference"* ]]
    [[ $output == *"all 21 tensors are equal" ]]
    "$make_ckpt" b 40 2 1 2 1
    run merak ckpt diff a b
    echo "$output"
    [ "$status" -eq 1 ]
    [[ $output == *"step: 20 and 40"* ]]
    [[ $output == *"param/wte: 444 of 444 elements differ, by at most "* ]]
    [[ $output == *"0 of 21 tensors are equal" ]]
    run merak ckpt diff --json b/step-00000020 a
    [ "$status" -eq 0 ]
    jq -e '.equal and .tensors == 21 and (.state | length) == 2' <<<"$output"
    for words in "a" "a b a" "a none" "a --no b"; do
        run merak ckpt diff $words
        echo "$output"
        [ "$status" -gt 1 ]
        [ "${#lines[@]}" -eq 1 ]
    done
}

# curve METRICS: the losses by step
curve()
{
    jq -c '[.step, .loss, .grad_norm]' "$1"
}

@test "a checkpoint resharded is the same, and is trained on in its layout" {
    "${TRAIN[@]}" --steps 2 --ckpt one
    run merak ckpt reshard one --out three --tp 2 --pp 1 --dp 2
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == "three/step-00000002: "*" tensors in 4 shards, "*" as tp 2, pp 1, dp 2, resharded in "* ]]
    merak ckpt verify three
    run merak ckpt diff one three
    echo "$output"
    [ "$status" -eq 0 ]
    merak ckpt ls three | grep "2x1x2"
    # each rank of that layout would have written the same file
    parts()
    {
        jq -c '.shards[] | [.file, ([.parts[] | [.tensor, .lo, .len]] | sort)]' \
            "$1/manifest.json" | cksum
    }
    cut=$(parts three/step-00000002)
    cp -r one same
    srun -n4 --merak-tp=2 --merak-dp=2 "${TRAIN[@]}" --steps 4 \
        --metrics same.jsonl --ckpt same
    srun -n4 --merak-tp=2 --merak-dp=2 "${TRAIN[@]}" --steps 4 \
        --metrics three.jsonl --ckpt three --ckpt-every 1 --trace trace
    # each rank's times are in the trace
    run merak trace summary trace
    echo "$output"
    [[ $output == *"SAVED AT"* ]]
    [[ ${lines[-2]} == "       3 "* && ${lines[-1]} == "       4 "* ]]
    diff <(curve same.jsonl) <(curve three.jsonl)
    [ "$(parts three/step-00000004)" = "$cut" ]
    # and back
    merak ckpt reshard --json three/step-00000004 --out back --tp=1 |
        jq -e '.shards == 1 and .pp == 1'
    merak ckpt diff back same
    # what is in the way is named, and nothing is left behind
    run merak ckpt reshard one --out back --tp 2
    [ "$status" -eq 66 ]
    [[ $output == *"back already has checkpoints"* ]]
    run merak ckpt reshard one --out four --tp 3
    echo "$output"
    [ "$status" -eq 66 ]
    [ "${#lines[@]}" -eq 1 ]
    [ ! -e four ]
    # nor is what was there removed
    mkdir -p five/model/config.json
    echo mine >five/model/notes
    run merak ckpt reshard one --out five
    echo "$output"
    [ "$status" -ne 0 ]
    [ "$(cat five/model/notes)" = mine ]
    "$make_ckpt" own 20 1 1 1 0
    run merak ckpt reshard own --out four
    [ "$status" -eq 66 ]
    [[ $output == *"own/model does not exist: give the model's config.json with --model"* ]]
    run merak ckpt reshard own --out four --model "$CONFIG"
    [ "$status" -eq 67 ]
    [[ $output == *"of another model"* ]]
}

@test "one file a node holds what one a rank does, and resumes it" {
    for writers in rank node; do
        srun -N2 --ntasks-per-node=2 --merak-tp=2 --merak-dp=2 "${TRAIN[@]}" --steps 4 \
            --ckpt-every 2 --ckpt-writers $writers --ckpt $writers \
            --metrics $writers.jsonl
    done
    ls node/step-00000004
    [ "$(ls node/step-00000004/shard-*.h5 | wc -l)" -eq 2 ]
    [ "$(ls rank/step-00000004/shard-*.h5 | wc -l)" -eq 4 ]
    diff <(curve rank.jsonl) <(curve node.jsonl)
    for step in 2 4; do
        merak ckpt verify node/step-0000000$step
        merak ckpt diff node/step-0000000$step rank/step-0000000$step
    done
    # without a copy of its own the last step has one, too
    srun -N2 --ntasks-per-node=1 --merak-pp=2 "${TRAIN[@]}" --steps 5 --ckpt node \
        --ckpt-async no --ckpt-writers node --metrics node.jsonl
    srun -N2 --ntasks-per-node=1 --merak-pp=2 "${TRAIN[@]}" --steps 5 --ckpt rank \
        --metrics rank.jsonl
    diff <(curve rank.jsonl) <(curve node.jsonl)
    merak ckpt diff node rank
}

@test "prune removes what a run with these options would have" {
    for step in 10 20 30 40; do
        "$make_ckpt" run $step 1 1 1 0
    done
    mkdir run/step-00000050.tmp
    run merak ckpt prune run --keep-every 20 --dry-run
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c 'would go ' <<<"$output")" -eq 2 ]
    [[ $output == *"step-00000020 "*" stays "*"multiple"* ]]
    [ -d run/step-00000010 ]
    run merak ckpt prune run --keep 2 --keep-every 20 --json
    [ "$status" -eq 0 ]
    jq -e '.removed == 2 and .bytes > 100000' <<<"$output"
    run ls run
    [[ $output == *"step-00000020"*"step-00000030"*"step-00000040"* ]]
    [[ $output != *"step-00000010"* && $output != *tmp* ]]
    run merak ckpt prune run --keep 1
    [ "$status" -eq 66 ]
    run merak ckpt prune run/step-00000040
    [ "$status" -eq 66 ]
    # another run is at work there
    jq -nc --arg host "$(hostname)" '{format: "merak-owner", version: 1,
        host: $host, pid: 1, started: 0, boot: "?", pids: "?", cluster: "",
        job: "", step: "", restart: 0}' >run/OWNER
    merak ckpt prune run --dry-run
}

@test "verify makes a missing master anew" {
    "$make_ckpt" run 20 2 1 2 1
    cp run/step-00000020/master.h5 was
    rm run/step-00000020/master.h5
    run merak ckpt verify run
    [ "$status" -eq 67 ]
    [[ $output == *"master.h5 is missing"* ]]
    run merak ckpt verify --repair-master run
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *"run/step-00000020: master.h5 is rewritten, as it was"* ]]
    cmp was run/step-00000020/master.h5
    [ "$(merak ckpt verify --repair-master --json run |
        jq -r '.checkpoints[0] | [.sound, .master] | join(" ")')" = "true sound" ]
}

@test "a limit of a file's size is one line, and nothing is left behind" {
    "${TRAIN[@]}" --steps 2 --ckpt one
    merak ckpt export one --format hf --out hf
    cp -r one broken
    rm broken/step-00000002/master.h5
    # limited KIB WORD...: fails by the limit, as a program does
    limited()
    {
        run bash -c 'ulimit -c 0; ulimit -f "$1" && shift && exec "$@"' - "$@"
        echo "$output"
        [ "$status" -eq 67 ]
        [ "$(grep -c 'File too large: .ulimit -f. allows [0-9]* bytes$' \
            <<<"$output")" -eq 1 ]
    }
    for kib in 1 40 200; do
        limited $kib merak ckpt reshard one --out two --tp 2
        [ "${#lines[@]}" -eq 1 ]
        limited $kib merak ckpt import hf --out two
        [ "${#lines[@]}" -eq 1 ]
        limited $kib merak ckpt export one --format hf --out two
        [ "${#lines[@]}" -eq 1 ]
        [ ! -e two ]
    done
    for kib in 1 40; do
        limited $kib merak ckpt verify --repair-master broken
        [ ! -e broken/step-00000002/master.h5.new ]
    done
    merak ckpt verify --repair-master broken
    merak ckpt diff one broken
    # training: a trace has room for more than that from the beginning
    run bash -c 'ulimit -c 0; ulimit -f 2000; exec "$@"' - "${TRAIN[@]}" \
        --steps 2 --ckpt run --trace trace
    echo "$output"
    [ "$status" -eq 69 ]
    [[ ${lines[-1]} == "merak: error: "*"cannot write trace/trace-00000.h5: File too large: \`ulimit -f\` allows 2048000 bytes" ]]
}

@test "every verb has its JSON, one line that says what the text says" {
    "$make_ckpt" run 20 2 1 1 0
    mkdir run/step-00000040.tmp
    merak ckpt ls run --json | jq -e '.checkpoints |
        length == 2 and .[0].status == "not committed" and .[1].tp == 2 and
        .[1].shards == 2 and (.[1].saved | fromdate) > 0'
    merak ckpt show --json run | jq -e '.state.step == 20 and
        (.tensors | length) == 21'
    merak ckpt show run wte --json | jq -e '.tensor == "param/wte" and
        (.parts | map(.bytes) | add) == 4 * .elements and
        .shape == [37, 12] and (.parts | length) == 2 and .max > .min'
    truncate -s 100 run/step-00000020/shard-00001.h5
    run merak ckpt verify --json run
    [ "$status" -eq 67 ]
    jq -e '.checkpoints[0] | .sound == false and
        (.damage[0] | contains("shard-00001.h5"))' <<<"$output"
    merak ckpt diff --help | grep -- --tensors-only
}
