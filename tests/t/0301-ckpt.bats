#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0301-ckpt.bats - merak ckpt: what it shows, finds and refuses

setup()
{
    make_ckpt=$BUILD/tests/unit/ckpt_make
    cd "$BATS_TEST_TMPDIR"
}

# flip FILE [OFFSET]: change one byte
flip()
{
    local at=${2:-$(($(stat -c %s "$1") / 2))} byte

    byte=$(od -An -tu1 -j "$at" -N 1 "$1")
    printf "\\x$(printf %x $((byte ^ 1)))" |
        dd of="$1" bs=1 seek="$at" conv=notrunc status=none
}

@test "ls lists checkpoints newest first, and what is not one" {
    "$make_ckpt" run 20 2 1 1 0
    "$make_ckpt" run 40 1 2 1 0
    mkdir run/step-00000060.tmp
    run merak ckpt ls run
    echo "$output"
    [ "$status" -eq 0 ]
    [[ ${lines[1]} == "step-00000060.tmp "*"not committed"* ]]
    [[ ${lines[2]} == "step-00000040 "*" 1x2x1 "* ]]
    [[ ${lines[3]} == "step-00000020 "*" 2x1x1 "* ]]
    truncate -s 100 run/step-00000040/shard-00001.h5
    run merak ckpt ls run
    [ "$status" -eq 67 ]
    [[ ${lines[2]} == "step-00000040 "*"DAMAGED: shard-00001.h5 has 100 bytes"* ]]
}

@test "show tells the state, the tensors and one tensor's numbers" {
    "$make_ckpt" run 20 2 1 2 1
    run merak ckpt show run
    [ "$status" -eq 0 ]
    [[ $output == *"step              20"*"tp 2, pp 1, dp 2"* ]]
    [[ $output == *"param/wte "*"[37, 12]"*" 444 "* ]]
    run merak ckpt show run/step-00000020 param/h.0.ln.g
    [ "$status" -eq 0 ]
    [[ $output == *"shape             [12]"*"not finite        0"* ]]
    run merak ckpt show run param/none
    [ "$status" -eq 66 ]
    [[ $output == "merak ckpt show: no tensor param/none in "* ]]
}

@test "verify names a flipped byte in every file, and what it hits" {
    "$make_ckpt" run 20 2 1 1 0
    run merak ckpt verify run
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == "run/step-00000020: sound, 21 tensors in 2 shards"* ]]
    for file in run/step-00000020/*; do
        cp "$file" saved
        flip "$file"
        run merak ckpt verify run
        echo "$output"
        [ "$status" -eq 67 ]
        [[ $output == *"$(basename "$file")"* ]]
        cp saved "$file"
    done
    at=$(grep -o '"tensor":"param/big"[^}]*' run/step-00000020/manifest.json |
        head -1 | sed 's/.*"offset":\([0-9]*\).*/\1/')
    flip run/step-00000020/shard-00000.h5 $((at + 1000))
    run merak ckpt verify run/step-00000020
    [[ $output == *"shard-00000.h5: tensor param/big is damaged"* ]]
    run merak ckpt show run param/big
    [ "$status" -eq 67 ]
    [[ $output == *"shard-00000.h5 is damaged"* ]]
}

@test "misuse and absence are one line each" {
    for arguments in "" "ls" "lz run" "ls --all run" "verify a b"; do
        run merak ckpt $arguments
        echo "$output"
        [ "$status" -eq 66 ]
        [ "${#lines[@]}" -eq 1 ]
    done
    mkdir empty
    for verb in ls show verify; do
        run merak ckpt $verb empty
        [ "$status" -eq 67 ]
        [ "${#lines[@]}" -eq 1 ]
        run merak ckpt $verb none
        [ "$status" -eq 67 ]
        [ "${#lines[@]}" -eq 1 ]
    done
    run merak ckpt --help
    [ "$status" -eq 0 ]
}

# in_tmpfs SIZE COMMAND: in a private mount of so much space, as ./full
in_tmpfs()
{
    mkdir -p full
    unshare $unshare_as -m sh -c \
        "mount -t tmpfs -o size=$1 none full && cd full && $2"
}

@test "a full file system: one line, exit code, nothing lost" {
    unshare_as=; [ "$(id -u)" -eq 0 ] || unshare_as=-r
    mkdir -p full
    unshare $unshare_as -m mount -t tmpfs none full 2>/dev/null ||
        skip "cannot mount a tmpfs here"
    # A checkpoint takes 540 kB: too little for the first, for the second.
    for size in 300k 720k 1100k; do
        run in_tmpfs $size "
            '$make_ckpt' run 20 1 1 1 0 >/dev/null 2>&1 && first=1
            '$make_ckpt' run 40 1 1 1 0
            echo code \$?
            merak ckpt ls run; ls run"
        echo "$size: $output"
        [[ $output == *"cannot write run/step-00000040.tmp/shard-00000.h5: No space left on device: "*" bytes needed, "*" free"* ]]
        [[ $output == *"code 69"* ]]
        [[ $output != *"HDF5: infinite loop"* ]]
        [[ $output != *".tmp"*"not committed"* ]]
        [ $size = 300k ] || [[ $output == *"step-00000020 "* ]]
    done
}
