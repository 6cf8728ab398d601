#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# refusals.sh - what is wrong on a command line: the exit code is README's, the
# message names what was given and what to give instead, and it comes first
#
# Run from the build directory of tests/.

set -u
export LC_ALL=C

top=$(cd "$(dirname "$0")/../.." && pwd)
. "$(dirname "$0")/tap.sh"
. "$top/tests/unit/in_tmp.sh"
cp "$top/examples/small.json" .
seq 4000 >text
"$merak" data pack --tokenizer byte --out d text >/dev/null || exit 1
run=$("$merak" train --help | grep -q -- --ckpt && echo run)
"$merak" train --model small.json --data d --seq 32 --steps 3 --ckpt run \
    >/dev/null 2>&1 || run=

# says CODE TEXT WORD..: `merak WORD..` exits with the code, and its last line has
# the text
says()
{
    local code=$1 text=$2

    shift 2
    timeout 60 "$merak" "$@" >out 2>err </dev/null
    [ $? -eq "$code" ] && tail -n 1 err | grep -qF -- "$text"
    ok $? "$code: $text" err
}

train="train --model small.json --data d --steps 1"
hub="has to be downloaded first: hf download NAME (to "

# configuration that options name
says 66 "model org/name: there is no such file or folder; give a folder with" \
    train --model org/name --data d
says 66 "$hub" train --model org/name --data d
says 66 "model none.json: there is no such" plan --model none.json
says 66 "tokenizer gpt2: there is no such file or folder; give byte, a tokeni" \
    data pack --tokenizer gpt2 --out y text
says 66 "$hub" data pack --tokenizer gpt2 --out y text
home=$(getent passwd "$(id -u)" | cut -d: -f6)
HOME= HF_HOME= HF_HUB_CACHE= HUGGINGFACE_HUB_CACHE= XDG_CACHE_HOME= \
    says 66 "hf download NAME (to $home/.cache/huggingface/hub)" \
    train --model org/name --data d
says 66 "device file none.json: No such file" $train --device none.json \
    --backend emu
says 66 "device file none.json: No such file" plan --model small.json \
    --global-batch 4 --device none.json
says 66 "plan none.json: No such file" $train --plan none.json
says 66 "plan none.json: No such file" plan --model small.json --plan none.json
says 66 "--config none.toml: No such file" train --config none.toml

# data, before anything is planned: the model of this request cannot be
says 67 "none: no such data set" train --model small.json --data none --tp 999
says 67 "none: no such data set" train --model small.json --data "1 d 2 none"
says 67 "--init-from none: there is no such file or folder; give a Hugging Face" \
    $train --init-from none
says 67 "there is no such file or folder; give a Hugging Face folder, a run" \
    generate --ckpt none --tokenizer byte --prompt a
says 67 "there is no such file or folder" eval --ckpt none --data d
says 69 "--metrics no/m: folder no: No such file" $train --metrics no/m
says 69 "cannot write /dev/full: No space left on device" $train --seq 32 \
    --metrics /dev/full
says 66 "--resume needs a value" $train --resume --metrics m
says 66 "--model needs a value" plan --model --device cpu
says 66 "--device needs a value" plan --model small.json --device
for words in --help --version "plan --help" "train --help" "top --help"; do
    "$merak" $words >/dev/full 2>err
    [ $? -eq 69 ] && grep -q "cannot write the output: No space left" err
    ok $? "69: merak $words on a full disk" err
done
says 66 "--tensorboard yes needs --ckpt DIR" $train --tensorboard yes
touch there
says 66 "--tensorboard: there is not a directory" $train --tensorboard there/tb

for verb in "import m" "export run --format hf" "reshard run"; do
    says 66 "--out: there is not a directory" ckpt $verb --out there/x
done

# numbers
says 66 '--steps: expected a positive integer, got "0"' train --data d \
    --model small.json --steps 0
says 66 '--threads: expected an integer 1..65535, got "0"' $train --threads 0
for speed in --unit-ms --gflops --memory-gbs --link-gbs; do
    for number in 1e-320 1e308; do
        says 66 "$speed: expected a number from 1e-09 to 1e+12, got \"$number\"" \
            plan --model small.json $speed $number
    done
done
for command in "train --data d" plan; do
    says 66 "--seq 512 is longer than the model's sequences: its n_positions is" \
        $command --model small.json --seq 512
done
experts="--model $top/tests/vectors/hf/mixtral.json --seq 8 --ep 2"
search="--device h100 --ranks-per-node 4 --global-batch 8"
says 66 "--cp-form is about sequences that are cut over ranks, and cp is 1: give" \
    plan --model small.json --device cpu --cp-form heads
says 66 "--cp-axes is about space that is cut over ranks, and cp is 1" \
    plan --model small.json --device cpu --cp 1 --cp-axes 2
says 66 "--cp-axes 2x2 cuts dims of space, and this model has sequences: leave" \
    plan --model small.json $search --cp-axes 2x2
says 66 "or leave out --cp-order" plan --model small.json --device cpu --cp 1 \
    --cp-order contiguous
says 66 "or leave out --cp-order" $train --cp-order head-tail

says 66 "tp x pp x dp must be the 4 ranks that cp 2 leaves, and tp must divide" \
    plan --model small.json --device h100 --ranks-per-node 8 --global-batch 8 \
    --tp 1 --pp 1 --dp 1 --cp 2
for how in "" "$search"; do
    "$merak" plan $experts --cp 2 --micro-batch 2 $how >out 2>err
    ok $? "ep beside cp is planned $how" out err
    says 66 "micro-batch of 3 cannot be cut over ep=2; it needs a --micro-batch" \
        plan $experts --micro-batch 3 ${how:+${how%8}24}
done
says 66 "the rows kept for each expert cannot be cut over cp=2: use another" \
    plan $experts --cp 2 --micro-batch 2 --expert-room 30
says 66 "cp=2 cuts them: use --ep-form gather, or --cp 1" \
    plan $experts --cp 2 --micro-batch 2 --ep-form exchange
halves="$experts --tp 2 --tp-batch 100 --micro-batch 2"
says 66 "micro-batch of 2 cannot be cut over tp x ep=4; --tp-batch 100 needs" \
    plan $halves
says 66 "micro-batch 2 cannot be split over tensor-parallel ranks, which" \
    plan $halves $search
"$merak" plan $experts --micro-batch 2 $search --json p.json >out 2>err &&
    grep -q '"ep": 2' p.json && grep -q '"micro_batch": 2' p.json
ok $? "a search takes the least micro-batch that ep divides" out err
"$merak" plan $experts --micro-batch 2 $search --expert-load 1.5 >out 2>err &&
    grep -q "ep 1.5 times an even share, of at most 2: [0-9.]* [mu]*s" out
ok $? "and the step at an uneven load is told" out err
# of 32 rows 1.25 of a rank's half, each of 2 x 48 numbers in bf16
grep -q "^experts: 4 over ep 2, 2 a rank; tokens gathered; 3.75 KiB of .* 125 % of an even share of rows, of at most 200 %; more is computed again, nothing" out
ok $? "and what is kept of experts' rows" out err
says 66 "--expert-load 0.5: the fullest rank has an even share or more" \
    plan $experts --expert-load 0.5
says 66 "--expert-load is for one plan of one machine: give one --device" \
    plan $experts --expert-load 2
sed 's/256/64/' small.json >m64.json
"$merak" plan --model m64.json --global-batch 4 >out 2>err &&
    grep -q " sequences of 64 tokens" out
ok $? "without --seq the model's own, if that is short" out err
"$merak" plan --model m64.json --device h100 --global-batch 8 --json p.json \
    >out 2>err && grep -q '"seq": 64' p.json
ok $? "and so in a search" out err
"$merak" train --model m64.json --data d --steps 1 >out 2>err &&
    grep -q "of 1 x 64 tokens" err
ok $? "and in a run" out err
if [ -n "$run" ]; then
    says 0 "all 3 steps are done; give more --steps to go on" \
        train --config run/settings.toml --model small.json
    says 0 "--steps 2, the total of the run, is less than the 3 steps that are" \
        train --model small.json --data d --seq 32 --steps 2 --ckpt run
    sed 's/128/32768/' small.json >large.json # does not fit, but is not asked to
    says 67 "is of another model (" generate --ckpt run --model large.json \
        --tokenizer byte --prompt a
    says 66 "tokenizer gpt2: there is" generate --ckpt run --tokenizer gpt2 \
        --prompt a
    says 66 "model none.json: there is no" generate --ckpt run --prompt a \
        --model none.json --tokenizer byte
    says 66 "unknown option \"--max-new-tokens\" (did you mean --tokens?)" \
        generate --ckpt run --max-new-tokens 4
fi

# values of variables that are not set, files where a folder is and in one place
says 66 "--ckpt: its value is empty, as of a variable that is not set: give" \
    $train --ckpt ""
says 66 "--out: its value is empty" data pack --tokenizer byte --out "" text
mkdir d.json
says 67 "d.json is a directory, not a file" \
    train --model small.json --data d.json
says 66 "--json and --html are both to be written to p.html: give each a place" \
    plan --model small.json --json p.html --html p.html

# words
says 66 '"--learning-rate" (did you mean --lr?)' $train --learning-rate 1
says 66 '"--batch_size=4" (did you mean --global-batch?)' $train --batch_size=4
says 66 "(did you mean --tp?)" plan --tensor-model-parallel-size 2
says 66 'no command "trian" (did you mean train?)' trian
says 66 '"sumary" (did you mean summary?)' trace sumary x
says 66 '"lst" (did you mean ls?)' ckpt lst
says 66 '"pakc" (did you mean pack?), only pack and show' data pakc

# outputs, before what they are to hold is computed or even looked for
for option in --json --svg --html; do
    says 69 "$option no/x: folder no: No such file" plan --model none.json \
        --tp 999 $option no/x
done
says 69 "--svg .: expected the name of a file" plan --model small.json --svg .
says 69 "--out no/x: folder no: No such file" trace svg none -o no/x
says 69 "--out no/x: folder no: No such file" trace plan none -o no/x
says 69 "--out no/x: folder no: No such file" report none -o no/x
says 69 "--out no/x.bin: folder no: No such" data pack --tokenizer none \
    --out no/x text
says 69 "--json no/x: folder no: No such file" doctor --json no/x
[ ! -s out ]
ok $? "and nothing was examined" out
says 69 "--out no/x.json: folder no: No such file" calibrate --out no/x.json
[ ! -s out ]
ok $? "and nothing was measured" out
says 69 "--out no/x.json: folder no: No such" calibrate --from none \
    --out no/x.json
for option in --ckpt --trace --dump-grads; do
    says 66 "$option: text is not a directory: expected one" \
        train --model small.json --data d --tp 999 $option text/run
done

# dtypes also as files and PyTorch call them; those that there are not
for name in f32 float32 bfloat16; do
    "$merak" plan --model small.json --seq 32 --dtype $name >out 2>err
    ok $? "--dtype $name is known" err
done
grep -q bf16 out
ok $? "and said as bf16" out
for name in f16 F32; do
    says 66 "--dtype: expected fp32|bf16, got \"$name\"" \
        plan --model small.json --seq 32 --dtype $name
done
echo "1..$n"
