#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# pack_tasks.sh - several tasks that pack, killed and started again, write what
# one writes
#
# Run from the build directory of tests/.

set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
. "$here/tap.sh"
tiny=$here/../vectors/tokenizer/tiny.json

. "$here/in_tmp.sh"

# texts: with a byte order mark, blank lines, empty texts, lines longer than a
# part, none at the end of the last
{
    printf '\357\273\277'
    awk 'BEGIN { for (i = 0; i < 4000; i++) {
        n = i == 1700 ? 20000 : i * 7919 % 40
        t = ""
        for (k = 0; k < n; k++) t = t "word" (i + k) " \\n"
        printf "{\"text\": \"%s\"}%s\n", t, i % 9 == 0 ? "\n" : ""
    } printf "{\"text\": \"end\"}" }'
} >a.jsonl
yes 'a plain text' | head -n 9000 >b.txt
awk 'BEGIN { for (i = 0; i < 6000; i++)
    printf "{\"prompt\": \"ask %d\", \"completion\": \"say %d\"}\n", i, i * i
}' >c.jsonl
gzip -k c.jsonl
pack=("$merak" data pack --tokenizer "$tiny" --append-eod --out)

# task OUT I/N FILE..: one task
task()
{
    "${pack[@]}" "$1" --task "$2" "${@:3}" 2>>log
}

# same A B SUFFIX..: the same files
same()
{
    local s
    for s in "${@:3}"; do
        cmp "$1.$s" "$2.$s" || return 1
    done
}

echo 1..21

"${pack[@]}" whole a.jsonl b.txt a.jsonl >log 2>&1
ok $? "one packs all at once" log
for tasks in 1 2 5; do
    for i in $(seq 0 $((tasks - 1))); do
        task t$tasks "$i/$tasks" a.jsonl b.txt a.jsonl >out.$tasks.$i &
    done
    wait
    same whole t$tasks bin idx && [ ! -e t$tasks.parts ] &&
        [ "$(cat out.$tasks.* | grep -c 'tokens of')" -eq 1 ]
    ok $? "$tasks at once write the same files, once" log
done

# Killed in a part, and gone on with by other numbers of tasks
task k 0/3 a.jsonl b.txt a.jsonl >out
[ "$(cat out)" = "task 0 of 3 is done: 9 of 27 parts are packed" ]
ok $? "a task that is not the last says how many parts there are" out log
task k 1/3 a.jsonl b.txt a.jsonl >out &
pid=$!
for _ in $(seq 500); do
    ! compgen -G "k.parts/1-*.json" >/dev/null || break
    sleep 0.01
done
kill -9 $pid
wait $pid 2>/dev/null
done_before=$(ls k.parts | grep -c '^[0-9].*json')
compgen -G "k.parts/1-*.json" >/dev/null && [ ! -e k.bin ]
ok $? "a task is killed, nothing is joined ($done_before parts)" log
touch -d '2000-01-01' k.parts/0-*.bin
task k 0/2 a.jsonl b.txt a.jsonl >out
[ "$(stat -c %Y k.parts/0-*.bin)" -eq 946684800 ] && [ ! -e k.bin ]
ok $? "what is complete is not packed again" out log
task k 1/2 a.jsonl b.txt a.jsonl >out && same whole k bin idx &&
    [ ! -e k.parts ]
ok $? "two tasks finish what three began" out log

"${pack[@]}" answers c.jsonl.gz c.jsonl >log 2>&1
for i in 2 0 1; do
    task m $i/3 c.jsonl.gz c.jsonl >out
done
same answers m bin idx mask
ok $? "answers, compressed and not: the same mask" out log
"${pack[@]}" l1 --format llmc c.jsonl.gz --json-key completion >log 2>&1
task l2 0/1 --format llmc c.jsonl.gz --json-key completion >out
same l1 l2 bin && [ ! -e l2.idx ]
ok $? "llm.c's format" out log

# what one refuses
sed '5000s/.*/{"prompt": 1}/' c.jsonl >bad.jsonl
"${pack[@]}" x bad.jsonl 2>want
for i in 0 1 2 3; do
    "${pack[@]}" x --task $i/4 bad.jsonl >>out 2>>got
done
grep -q 'bad.jsonl line 5000: ' want && [ "$(cat got)" = "$(cat want)" ] &&
    [ ! -e x.bin ]
ok $? "a bad line has its number in the file" want got
rm -r x.parts
"${pack[@]}" w --bad-lines skip bad.jsonl >want
for i in 0 1; do
    task x $i/2 --bad-lines skip bad.jsonl >out
done
sed 's/^w/x/' want | cmp - out && same w x bin idx mask
ok $? "bad lines that are left out are counted" want out
for i in 0 1; do
    "${pack[@]}" y --task $i/2 a.jsonl c.jsonl >/dev/null 2>got
done
grep -q 'c.jsonl: answers, after texts' got
ok $? "texts and answers are refused" got
rm -r y.parts
task z 0/2 a.jsonl >out
"${pack[@]}" z --task 1/2 --special-tokens a.jsonl 2>got
grep -q 'z.parts has parts of another packing, not the same in --special-tokens;' got
ok $? "parts of another packing: by option" got
"${pack[@]}" z --task 1/2 b.txt 2>got
grep -q 'z.parts has parts .* the same in the files, their sizes or their times;' got
ok $? "parts of another packing: by files" got
"${pack[@]}" q --task 0/2 - </dev/null 2>got
grep -q 'several tasks cannot share standard input' got
ok $? "standard input" got
"${pack[@]}" q --task 2/2 b.txt 2>got
grep -q -- '--task 2/2: expected I/N' got
ok $? "a task beyond their number" got
"${pack[@]}" q --task 4294967296/4294967298 b.txt 2>got
grep -q -- '--task 4294967296/4294967298: expected I/N' got
ok $? "a number that is none of an int" got
cp b.txt $'b\xe9.txt'
"${pack[@]}" q --task 0/2 $'b\xe9.txt' 2>got
grep -q 'names in UTF-8' got && [ ! -e q.parts ]
ok $? "a name that JSON cannot have" got
mkdir q.parts && echo '{' >q.parts/plan.json
"${pack[@]}" q --task 0/2 b.txt 2>got
grep -q 'q.parts/plan.json is no plan; remove the folder' got
ok $? "a plan that is none" got
echo '{"run": "0.0.0", "who": "'"$(uname -n)"'-999999999"}' >z.parts/joining
"${pack[@]}" one a.jsonl >/dev/null 2>&1
task z 1/2 a.jsonl >out
same one z bin idx && [ ! -e z.parts ]
ok $? "who began to join them is gone" out log
