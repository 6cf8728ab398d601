#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0400-data.bats - merak data: what it writes, shows and refuses

TINY=$BATS_TEST_DIRNAME/../vectors/tokenizer/tiny.json

setup()
{
    cd "$BATS_TEST_TMPDIR"
    printf 'hello\n' >a.txt
    printf 'two' >b.txt
}

# refused CODE TEXT: the exit code, and one line on standard error with TEXT
refused()
{
    echo "$output"
    [ "$status" -eq "$1" ]
    [ "${#lines[@]}" -eq 1 ]
    [[ $output == "merak data"*"$2"* ]]
}

only_files()
{
    [ "$(ls | tr '\n' ' ')" = "$* " ]
}

@test "pack writes Megatron's bytes, a document a file" {
    run merak data pack --tokenizer byte --append-eod --out c a.txt b.txt
    [ "$status" -eq 0 ]
    [ "$output" = "c.bin: 11 u16 tokens of 2 documents, vocabulary 257 (byte)" ]
    [ "$(od -An -v -tu2 c.bin | tr -s '\n ' ' ')" = \
        " 104 101 108 108 111 10 256 116 119 111 256 " ]
    [ "$(od -An -v -tu1 -N18 c.idx | tr -s '\n ' ' ')" = \
        " 77 77 73 68 73 68 88 0 0 1 0 0 0 0 0 0 0 8 " ]
    [ "$(od -An -v -tu4 -j34 -N8 c.idx | tr -s ' ')" = " 7 4" ]
    [ "$(stat -c %s c.idx)" -eq 82 ]
    only_files a.txt b.txt c.bin c.idx
}

@test "a document a line of .jsonl, under a key, from a pipe" {
    printf '{"text":"one"}\n\n{"text":"","n":1}\n{"text":"t\\u00e9"}' >d.jsonl
    run merak data pack --tokenizer byte --out d d.jsonl
    [ "$status" -eq 0 ]
    [[ ${lines[0]} == "d.bin: 6 u16 tokens of 2 documents"* ]]
    [ "${lines[1]}" = "1 empty document left out" ]
    gzip -c d.jsonl >d.jsonl.gz
    merak data pack --tokenizer byte --out g d.jsonl.gz
    cmp d.bin g.bin && cmp d.idx g.idx
    head -c 30 d.jsonl.gz >h.jsonl.gz
    run merak data pack --tokenizer byte --bad-lines skip --out h - <h.jsonl.gz
    refused 67 "standard input ends at byte 30, inside the gzip data"
    run merak data pack --tokenizer byte --out e --json-key body - \
        <<<'{"body":"xyz"}'
    [ "$status" -eq 0 ]
    [[ $output == "e.bin: 3 u16 tokens of 1 document"* ]]
    cat a.txt b.txt | merak data pack --tokenizer byte --out f -
    [ "$(od -An -tx2 f.bin)" = "$(printf 'hello\ntwo' | od -An -v -tu1 -w1 |
        awk '{ printf " %04x", $1 } NR % 8 == 0 { print "" } END { print "" }')" ]
}

@test "show prints what pack wrote, with the text, in both formats" {
    merak data pack --tokenizer "$TINY" --out m b.txt a.txt
    merak data pack --tokenizer "$TINY" --format llmc --out l b.txt a.txt
    run merak data show --tokenizer "$TINY" m
    [ "$status" -eq 0 ]
    [[ $output == *"format     Megatron .bin/.idx"* ]]
    [[ $output == *"documents  2"* ]]
    [[ $output == *'text       "twohello\x0a"'* ]]
    run merak data show --tokenizer "$TINY" l.bin
    [ "$status" -eq 0 ]
    [[ $output == *"format     llm.c"* ]]
    [[ $output == *'text       "twohello\x0a"'* ]]
    run merak data show "1 m 2 l.bin"
    [ "$status" -eq 0 ]
    [[ $output == *"weight     2"* ]]
}

@test "a bigram is judged on the validation split" {
    for i in $(seq 400); do printf 'abcab'; done >c.txt
    merak data pack --tokenizer byte --out c c.txt
    run merak data show --bigram --seq 16 --valid-fraction 0.1 --vocab 257 c
    echo "$output"
    [ "$status" -eq 0 ]
    [[ ${lines[-1]} == *"on 192 validation tokens, from 1792" ]]
    # after a and c the next is certain, after b it is a or c: 2/5 log 2
    nats=$(awk '/bigram/ { print $2 }' <<<"$output")
    awk -v x="$nats" 'BEGIN { exit !(x > 0.27 && x < 0.30) }'
}

@test "wrong options are refused with 66" {
    run merak data
    refused 66 'needs "pack" or "show"'
    run merak data pick
    refused 66 'has no command "pick"'
    run merak data pack --out c a.txt
    refused 66 "no --tokenizer given"
    run merak data pack --tokenizer byte a.txt
    refused 66 "no --out given"
    run merak data pack --tokenizer byte --out c
    refused 66 "no files given"
    run merak data pack --tokenizer byte --out c --format arrow a.txt
    refused 66 '--format: expected megatron|llmc, got "arrow"'
    run merak data pack --tokeniser byte --out c a.txt
    refused 66 'unknown option "--tokeniser" (did you mean --tokenizer?)'
    run merak data pack --out
    refused 66 "--out needs a value"
    run merak data show --vocab many a.txt
    refused 66 '--vocab: expected an integer from 0, got "many"'
    run merak data show --bigram c
    refused 66 "--bigram needs --seq and --valid-fraction"
    run merak data show "0.5 x 0.5"
    refused 66 "a weight or a path is missing"
}

@test "a template's tokens are around every document, if asked for" {
    sed 's/"post_processor":null/"post_processor":{"type":"TemplateProcessing",'\
'"single":[{"SpecialToken":{"id":"<|endoftext|>"}},{"Sequence":{"id":"A"}}],'\
'"special_tokens":{"<|endoftext|>":{"ids":[656]}}}/' "$TINY" >tokenizer.json
    merak data pack --tokenizer . --out p a.txt b.txt
    merak data pack --tokenizer . --special-tokens --out q a.txt b.txt
    [ $(($(stat -c %s q.bin) - $(stat -c %s p.bin))) -eq 4 ]
    [ "$(od -An -tu2 -N2 q.bin)" -eq 656 ]
}

@test "a tokenizer that asks for more is refused with 66, broken with 67" {
    sed 's/"normalizer":null/"normalizer":{"type":"Lowercase"}/' "$TINY" >t.json
    run merak data pack --tokenizer t.json --out c a.txt
    refused 66 'normalizer is "Lowercase", supported: null'
    head -c 5000 "$TINY" >t.json
    run merak data pack --tokenizer t.json --out c a.txt
    refused 67 "t.json: not JSON"
    run merak data pack --tokenizer absent.json --out c a.txt
    refused 66 "absent.json: there is no such file or folder"
    only_files a.txt b.txt t.json
}

@test "bad text is refused with 67 and leaves nothing" {
    printf '{"text":"ok"}\n{"txt":"no"}\n' >d.jsonl
    run merak data pack --tokenizer byte --out c d.jsonl
    refused 67 'd.jsonl line 2: no "text"; choose with --json-key'
    printf '{"text":"ok"}\n{"text":\n' >d.jsonl
    run merak data pack --tokenizer byte --out c d.jsonl
    refused 67 "d.jsonl line 2: not JSON"
    printf '{"text":7}\n' >d.jsonl
    run merak data pack --tokenizer byte --out c d.jsonl
    refused 67 'd.jsonl line 1: no text under "text"'
    run merak data pack --tokenizer byte --out c a.txt absent.txt
    refused 67 "cannot open absent.txt: No such file or directory"
    run merak data pack --tokenizer byte --out c .
    refused 67 "cannot read .: Is a directory"
    : >empty.txt
    run merak data pack --tokenizer byte --out c empty.txt
    refused 67 "no text in the 1 file given"
    run merak data pack --tokenizer byte --out no/such a.txt
    refused 69 "--out no/such.bin: folder no: No such file or directory"
    only_files a.txt b.txt d.jsonl empty.txt
}

@test "damaged data is refused with 67, what was found and expected" {
    merak data pack --tokenizer byte --out c a.txt b.txt
    run merak data show --vocab 100 c
    refused 67 "c.bin: token 0 is 104, outside the vocabulary of 100"
    truncate -s -1 c.bin
    run merak data show c
    refused 67 "c.bin: 17 bytes, expected 18 for the 9 u16 tokens of its .idx"
    truncate -s -8 c.idx
    run merak data show c
    refused 67 "c.idx: 74 bytes, expected 82"
    rm c.idx
    run merak data show c
    refused 67 "c.bin has no c.idx beside it"
    run merak data show absent
    refused 67 "absent: no such data set"
    merak data pack --tokenizer byte --out c a.txt
    run merak data show --bigram --seq 64 --valid-fraction 0.1 --vocab 257 c
    [ "$status" -eq 67 ]
    [[ $output == *"c: 6 tokens for training, one sample of 64 needs 65"* ]]
}

@test "a full disk is refused with 69 and leaves the old data set" {
    [ "$(id -u)" -eq 0 ] || skip "mounting a small tmpfs needs root"
    mkdir disk
    mount -t tmpfs -o size=128k none disk || skip "tmpfs cannot be mounted here"
    head -c 100000 /dev/zero >big.txt
    merak data pack --tokenizer byte --out disk/c a.txt
    run merak data pack --tokenizer byte --out disk/c big.txt
    files=$(ls disk | tr '\n' ' ')
    shown=$(merak data show disk/c | awk '/tokens/ { print $2 }')
    umount disk
    refused 69 "cannot write disk/c.bin: No space left on device"
    [ "$files" = "c.bin c.idx " ]
    [ "$shown" -eq 6 ]
}

@test "a stopped run leaves nothing and ends by its signal" {
    mkfifo pipe
    merak data pack --tokenizer byte --out c - <pipe 2>err &
    pid=$!
    exec 7>pipe
    until ls c.bin.tmp-* 2>/dev/null; do sleep 0.02; done
    sleep 0.1
    kill -TERM "$pid"
    code=0
    wait "$pid" || code=$?
    exec 7>&-
    [ "$code" -eq 143 ]
    [ "$(cat err)" = "merak data pack: stopped by signal 15" ]
    only_files a.txt b.txt err pipe
}
