#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run_arrays.sh - programs whose samples are arrays, examples/classify.c, bert.c,
# t5.c, cosmoflow.c and unet3d.c: what they learn, report, go on from and refuse
#
# Run from the build directory of tests/.

set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
. "$here/tap.sh"
. "$here/in_tmp.sh"

"$here/../make_images.py" . 400
run=("${merak%/cmd/merak}/examples/classify" --threads 1 --global-batch 8
    --lr 1e-3 --log-every 1 --eval-samples 16)

# field NAME FILE: its values, one of each line of metrics
field()
{
    sed -E "/\"$1\": /!s/.*/null/; s/.*\"$1\": ([^,}]*).*/\1/" "$2" |
        tr '\n' ' '
}

# refuses CODE TEXT OPTION..: fails with the code, and one error has the text
refuses()
{
    local code=$1 text=$2

    shift 2
    "${run[@]}" "$@" >out 2>&1
    [ $? -eq "$code" ] && [ "$(grep -c 'error: ' out)" -eq 1 ] &&
        grep -qF -e "$text" out
    ok $? "refused: $text" out
}

echo 1..32

"${run[@]}" --data images.json --steps 60 --metrics m.jsonl --ckpt whole \
    --ckpt-every 20 --keep 9 >out 2>&1
ok $? "a classifier of images is trained" out
last=$(tail -n 1 m.jsonl | sed -E 's/.*"valid_loss": ([^,}]*).*/\1/')
awk -v x="$last" 'BEGIN { exit !(x < 1.0) }'
ok $? "it has learned: held-out loss $last, of 2.30 at first" out
read -ra tokens <<<"$(field tokens_per_s m.jsonl)"
read -ra samples <<<"$(field samples_per_s m.jsonl)"
[ "${tokens[59]}" = null ] && [ "${samples[59]}" != null ] &&
    grep -q 'data: 380 training and 20 held-out samples' out &&
    grep -q 'samples/s  eta' out && ! grep -q tokens out
ok $? "its rate is in samples, not tokens" out m.jsonl

"${run[@]}" --data images.json --steps 60 --metrics n.jsonl --ckpt cut \
    --ckpt-every 20 --max-seconds 0.01 >out 2>&1
[ $? -eq 75 ] && "${run[@]}" --data images.json --steps 60 --metrics n.jsonl \
    --ckpt cut --ckpt-every 20 >>out 2>&1
ok $? "a run that was stopped goes on" out
[ "$(field loss m.jsonl)" = "$(field loss n.jsonl)" ] &&
    [ "$(field valid_loss m.jsonl)" = "$(field valid_loss n.jsonl)" ]
ok $? "with the samples, and the bits, of one that was not" out

# Other numbers, under the same names.
mkdir other
"$here/../make_images.py" other 401
refuses 67 '400 samples for validation 0.001 of them' --data images.json \
    --steps 1 --valid-fraction 0.001
refuses 67 'trained on other data (400 samples of pixels, label' --data other/images.json \
    --steps 80 --ckpt whole
seq 5000 >x.txt
"$merak" data pack --tokenizer byte --out text x.txt >/dev/null
refuses 66 'the model has an input pixels, expected --data FILE.json' \
    --data text --steps 1
refuses 67 'nowhere.json' --data nowhere.json --steps 1
echo '{"pixels": "images.gz"}' >half.json
refuses 66 'no file for input "label"' --data half.json --steps 1
"$merak" train --model "$here/../vectors/parity/gpt2-tied.json" \
    --data images.json --steps 1 --threads 1 >out 2>&1
[ $? -eq 66 ] && grep -q 'declares no inputs that files could be of' out
ok $? "refused: arrays for a model of tokens" out

# --- several losses ---

"${run[0]}" 0.5 "${run[@]:1}" --data images.json --steps 4 --ckpt both \
    --metrics both.jsonl >out 2>&1 &&
    grep -Eq 'step 4/4  loss [0-9.]+  class [0-9.]+  pixels [0-9.]+  ' out &&
    grep -Eq 'held-out loss [0-9.]+  class [0-9.]+  pixels [0-9.]+$' out
ok $? "several losses are told by name" out
tail -n 1 both.jsonl |
    sed -E 's/.*"loss": ([^,]*),.*"losses": \{"class": ([^,]*), "pixels": ([^}]*).*/\1 \2 \3/' |
    awk '{ d = $1 - $2 - 0.5 * $3; exit !($2 > 0 && $3 > 0 && d * d < 1e-20) }'
ok $? "metrics have each, and the weighted sum" both.jsonl
"${run[0]}" 0.25 "${run[@]:1}" --data images.json --steps 8 --ckpt both \
    >out 2>&1
[ $? -eq 67 ] && grep -q 'loss weights' out
ok $? "refused: a run that goes on with another weight" out
mkdir none
"$here/../make_images.py" none 64 1
"${run[0]}" 0.5 "${run[@]:1}" --data none/images.json --steps 3 \
    --metrics none.jsonl >out 2>&1 &&
    [ "$(grep -c 'no target of loss class counts in its samples' out)" -eq 1 ] &&
    [ "$(field class none.jsonl)" = '0 0 0 ' ]
ok $? "a loss without a target is 0, and said to be" out none.jsonl

# Volumes, and numbers of them that layers can find: means of two channels.
python3 - 64 <<'END'
import array
import random
import sys

n = int(sys.argv[1])
draw = random.Random(1)
mass, truth = array.array("f"), array.array("f")
for _ in range(n):
    mean = [draw.uniform(-1, 1) for _ in range(4)]
    mass.extend(mean[c] + draw.uniform(-.1, .1)
                for _ in range(8 ** 3) for c in range(4))
    truth.extend(mean)


# Rows of words that go up by one, some of them masked, of unequal lengths.
ids, types, lengths, masked = (array.array("i") for _ in range(4))
for _ in range(6 * n):
    first, length = 1 + 32 * draw.randrange(6), draw.randrange(20, 33)
    for t in range(32):
        hidden = t < length and draw.random() < .15
        ids.append(0 if hidden else first + t)
        types.append(t % 2)
        masked.append(first + t if hidden else -1)
    lengths.append(length)


def write(name, numbers, shape):
    kind = numbers.typecode + "4"
    head = f"{{'descr': '<{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    head += " " * (63 - (len(head) + 10) % 64) + "\n"
    with open(name, "wb") as out:
        out.write(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little"))
        out.write(head.encode())
        numbers.tofile(out)


write("mass.npy", mass, (n, 8, 8, 8, 4))
write("truth.npy", truth, (n, 4))
write("ids.npy", ids, (6 * n, 32))
write("types.npy", types, (6 * n, 32))
write("masked.npy", masked, (6 * n, 32))
write("lengths.npy", lengths, (6 * n,))
lengths[5] = 0
write("empty.npy", lengths, (6 * n,))
END
echo '{"mass": "mass.npy", "truth": "truth.npy"}' >cubes.json
cosmoflow=${merak%/cmd/merak}/examples/cosmoflow
"$cosmoflow" 8 --data cubes.json --steps 40 --threads 1 --global-batch 8 \
    --lr 3e-3 --metrics c.jsonl --eval-samples 8 --valid-fraction 0.2 >out 2>&1
ok $? "numbers of volumes are learned" out
last=$(tail -n 1 c.jsonl | sed -E 's/.*"valid_loss": ([^,}]*).*/\1/')
awk -v x="$last" 'BEGIN { exit !(x < 0.15) }'
ok $? "held-out error $last, of 0.33 for zeros" out c.jsonl

words='"ids": "ids.npy", "types": "types.npy", "masked": "masked.npy"'
echo "{$words, \"lengths\": \"lengths.npy\"}" >words.json
echo "{$words, \"lengths\": \"empty.npy\"}" >empty.json
bert=("${merak%/cmd/merak}/examples/bert" tiny --seq 32 --threads 1
    --global-batch 16 --micro-batch 8 --lr 3e-3)
"${bert[@]}" --data words.json --steps 90 --warmup 20 --metrics b.jsonl \
    --eval-samples 16 --valid-fraction 0.05 >out 2>&1
ok $? "masked words are learned" out
last=$(tail -n 1 b.jsonl | sed -E 's/.*"valid_loss": ([^,}]*).*/\1/')
awk -v x="$last" 'BEGIN { exit !(x < 4.0) }'
ok $? "held-out loss $last, of 5.5 at first" out b.jsonl
"${bert[@]}" --data empty.json --steps 40 >out 2>&1
[ $? -ne 0 ] && grep -q 'the key length of sample . of the micro-batch is 0' out
ok $? "refused: a sample without words" out

# what is hidden is to be told, from the words around it
echo '{"source": "ids.npy", "lengths": "lengths.npy", "decoder": "ids.npy",
    "labels": "masked.npy"}' >texts.json
t5=${merak%/cmd/merak}/examples/t5
"$t5" tiny 32 --data texts.json --seq 32 --threads 1 --global-batch 16 \
    --micro-batch 8 --lr 3e-3 --steps 60 --warmup 10 --metrics t.jsonl \
    --eval-samples 16 --valid-fraction 0.05 >out 2>&1
ok $? "an encoder and a decoder learn" out
last=$(tail -n 1 t.jsonl | sed -E 's/.*"valid_loss": ([^,}]*).*/\1/')
awk -v x="$last" 'BEGIN { exit !(x < 4.5) }'
ok $? "held-out loss $last, of more than 5.5 at first" out t.jsonl
# A text, of which tokens are hidden: ids of a byte, 256 at its end; in UTF-8
# none is above 247.
cat "$here/../../README.md" "$here/../../HACKING.md" >text.txt
"$merak" data pack --tokenizer byte --out hidden text.txt >/dev/null
bert+=(--data hidden --mask-id 257 --steps 40 --warmup 10)
"${bert[@]}" --metrics h.jsonl --eval-samples 16 --ckpt h >out 2>&1 &&
    grep -q -e '--corrupt mask:0.15: 5 tokens of a sample are to' out
ok $? "words that --corrupt masks are learned" out
last=$(tail -n 1 h.jsonl | sed -E 's/.*"valid_loss": ([^,}]*).*/\1/')
awk -v x="$last" 'BEGIN { exit !(x < 4.0) }'
ok $? "held-out loss $last, of 5.5 at first" out h.jsonl
"${bert[@]}" --metrics i.jsonl --eval-samples 16 --ckpt i --ckpt-every 10 \
    --max-seconds 0.01 >out 2>&1
[ $? -eq 75 ] && "${bert[@]}" --metrics i.jsonl --eval-samples 16 --ckpt i >>out 2>&1 &&
    [ "$(field valid_loss h.jsonl)" = "$(field valid_loss i.jsonl)" ]
ok $? "a run that was stopped goes on with the same ones masked" out
"${bert[@]}" --ckpt h --steps 50 --corrupt mask:0.2 >out 2>&1
[ $? -eq 67 ] && grep -q 'with --corrupt mask:0.15, not mask:0.2: samples' out
ok $? "refused: a run that goes on with another share" out
"$t5" tiny 32 --data hidden --sentinel-id 255 --seq 8 --threads 1 \
    --global-batch 16 --micro-batch 8 --lr 3e-3 --steps 40 --warmup 10 \
    --metrics s.jsonl --eval-samples 16 >out 2>&1
last=$(tail -n 1 s.jsonl | sed -E 's/.*"valid_loss": ([^,}]*).*/\1/')
awk -v x="$last" 'BEGIN { exit !(x < 4.5) }'
ok $? "spans are learned: held-out loss $last, of 5.6 at first" out s.jsonl
"$t5" huge 32 >out 2>&1
[ $? -eq 64 ] && grep -q '^t5: expected a size first, tiny, small, ' out
ok $? "refused: a size that t5 does not have" out
"$t5" small 512 plan --nodes 1 --ranks-per-node 4 --device a100 --pp 4 --seq 114 \
    --global-batch 32 --json t5.plan >out 2>&1 &&
    grep -q '^t5, 60.51 M parameters, on 1 x 4 a100' out
ok $? "an encoder and a decoder are planned on four stages" out

"$cosmoflow" 32 plan --nodes 1 --ranks-per-node 4 --device a100 --cp 2 \
    --global-batch 8 --html p.html >out 2>&1 &&
    grep -q '^step .* samples/s' out && grep -q 'cut along z' out &&
    ! grep -q 'tokens' out && grep -q 'samples a second' p.html &&
    grep -q 'twice as many samples a step (16)' out &&
    ! grep -q 'sequences' out && grep -q -e '--data FILE.json' out
ok $? "plans of volumes are in samples, cut along z" out
"${cosmoflow%/*}/unet3d" 256 plan --nodes 1 --ranks-per-node 8 --device a100 \
    --cp 8 --global-batch 1 --json unet3d.plan >out 2>&1 &&
    grep -q '^unet3d, 19.07 M parameters, on 1 x 8 a100' out &&
    grep -q 'samples are cut along z' out &&
    grep -q '"params": 19070560' unet3d.plan
ok $? "a scan of 256 points a side is cut over 8 ranks" out

refuses 66 '--seq 9 is for models of sequences, and this one has none' \
    --data images.json --seq 9 --steps 1
