#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plan_auto.sh - `merak plan` for a machine: what it prints, saves and refuses
#
# Run from the build directory of tests/.

set -u
export LC_ALL=C

merak=../cmd/merak
model=$(cd "$(dirname "$0")/.." && pwd)/vectors/gpt2.json
n=0

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

# has DESCRIPTION FILE TEXT..: the file has every text.
has()
{
    local what=$1 file=$2 text
    shift 2
    n=$((n + 1))
    for text; do
        if ! grep -qF -- "$text" "$file"; then
            echo "not ok $n - $what: no \"$text\""
            sed 's/^/# /' "$file"
            return
        fi
    done
    echo "ok $n - $what"
}

# refuses TEXT OPTION..: exits 66 with one line on standard error that has it.
refuses()
{
    local text=$1
    shift
    n=$((n + 1))
    "$merak" plan --model "$model" "$@" >"$tmp/out" 2>"$tmp/err"
    if [ $? -eq 66 ] && [ ! -s "$tmp/out" ] &&
        [ "$(wc -l <"$tmp/err")" -eq 1 ] && grep -qF -- "$text" "$tmp/err"; then
        echo "ok $n - refused: $text"
    else
        echo "not ok $n - refused: $text"
        sed 's/^/# /' "$tmp/err"
    fi
}

echo 1..182

# A device that is none is said before what else such a plan needs, and fields
# of a model that nobody reads are named.
refuses 'no device "h1000"; there are: a100, a100-2021, h100' --device h1000
sed 's/{/{"attention_multiplier": 2, /' "$model" >"$tmp/scaled.json"
model=$tmp/scaled.json refuses "attention_multiplier; --config-unknown" \
    --config-unknown refuse
"$merak" plan --model "$tmp/scaled.json" --seq 16 >"$tmp/out" 2>"$tmp/err"
has "a field that nobody reads is named and left out" "$tmp/err" \
    "does not read for gpt2 are ignored: attention_multiplier"
"$merak" train --help >"$tmp/out" 2>"$tmp/err"
has "the trainer's help begins with what it needs" "$tmp/out" \
    "usage: merak train --model DIR --data PREFIX" "  --model DIR" "  --seq N"
"$merak" train --modle x >"$tmp/out" 2>&1
has "an unknown option is named" "$tmp/out" '"--modle" (did you mean --model?)'

# Without a limit of time, so that its advice is the same on any machine.
"$merak" plan --model "$model" --device h100 --nodes 2 --global-batch 32 \
    --seq 16 --search-seconds 0 --json "$tmp/plan.json" >"$tmp/out" 2>&1
has "the plan is printed" "$tmp/out" "on 2 x 8 h100" "tokens/s" \
    "stage     layers   params" "pipeline bubble" "total" "runners-up:"
has "it says what binds, what would change it and what to type" "$tmp/out" \
    "what binds: the pipeline bubble" "fewer ranks are better: with --nodes 1" \
    "memory left: 73.59 GiB of 73.59 GiB" "what would change it" \
    "1 GiB more memory of a rank" "a network twice as fast" \
    "srun -N2 --ntasks-per-node=8 --gpus-per-node=8 --gpu-bind=none \
--merak-plan=$tmp/plan.json merak train --backend cuda --model $model" \
    "merak calibrate --backend cuda --out gpu.json"
has "the plan is saved" "$tmp/plan.json" '"merak_plan": 2' '"nodes": 2' \
    '"cut":' '"runners_up":' '"why":'
has "with what to do about it" "$tmp/plan.json" '"advice": {' \
    '"what binds: ' '"what": "1 GiB more memory of a rank"' \
    '"tokens_per_s_times":' "--merak-plan=$tmp/plan.json"
"$merak" plan --model "$model" --device=cpu --ranks-per-node=4 \
    --global-batch=8 --seq=16 --dtype=fp32 \
    --what-if=tp=2,pp=2,micro-batch=2,schedule=gpipe >"$tmp/out" 2>&1
has "what is fixed is kept" "$tmp/out" "tp 2, pp 2, dp 1" \
    "gpipe, 4 micro-batches of 2" "fp32"

# A saved plan instead of choices: all that a search does with its result.
"$merak" plan --model "$model" --plan "$tmp/plan.json" --json "$tmp/again.json" \
    --svg "$tmp/saved.svg" --html "$tmp/saved.html" --print stages \
    >"$tmp/out" 2>&1
has "a saved plan is shown as when it was found" "$tmp/out" "on 2 x 8 h100" \
    "saved as $tmp/plan.json, id " ", with a predicted step of " \
    "pipeline bubble" "memory of a rank; the limit is" "stage 0, rank"
! grep -q "runners-up\|program id was" "$tmp/out" &&
    [ "$(grep '"id"\|"program"' "$tmp/plan.json")" = \
        "$(grep '"id"\|"program"' "$tmp/again.json")" ] || echo >"$tmp/again.json"
has "and saved as the same one" "$tmp/again.json" '"nodes": 2'
has "and drawn" "$tmp/saved.html" '</svg>' 'on 2 x 8 h100'
"$merak" plan --model "$model" --plan "$tmp/plan.json" --emit megatron \
    >"$tmp/out" 2>"$tmp/err"
has "and emitted" "$tmp/out" "--global-batch-size 32" "--seq-length 16" \
    "--num-layers 2"
"$merak" plan --model "$model" --plan "$tmp/plan.json" --device h200 \
    >"$tmp/out" 2>&1
has "for another device, too" "$tmp/out" "on 2 x 8 h200" ", for h100"
"$merak" plan --model "$model" --tp 2 --pp 2 --seq 16 --recompute a-0 --cut 3 \
    --json "$tmp/given.json" >/dev/null 2>&1
"$merak" plan --model "$model" --plan "$tmp/given.json" >"$tmp/out" 2>&1
has "one that was not searched for is built for given speeds" "$tmp/out" \
    "4 ranks: tp 2, pp 2" ", for given speeds" "at 150 GFLOP/s"
grep -q "program id was" "$tmp/out" && echo >"$tmp/out"
has "of the same programs" "$tmp/out" "program id "
"$merak" plan --model "${model%/*}/parity/gpt2-tied.json" --tp 2 --pp 2 --seq 16 \
    --schedule sliced:4 >"$tmp/out" 2>&1
has "ranks do not cut sequences that a schedule slices" "$tmp/out" \
    "4 ranks: tp 2, pp 2, dp 1; sliced:4"
for how in "--gflops 1e9 --memory-gbs 1" "--tp 2 --split b0 --micro-batch 2"; do
    "$merak" plan --model "$model" --pp 2 --seq 16 $how \
        --json "$tmp/cut.json" >/dev/null 2>&1
    "$merak" plan --model "$model" --plan "$tmp/cut.json" >"$tmp/out" 2>&1
    grep -q "program id was" "$tmp/out" && echo >"$tmp/out"
    has "so is one with $how, whose cut is saved" "$tmp/out" "program id "
done
"$merak" plan --model "$model" --plan "$tmp/plan.json" \
    --plan "$tmp/given.json" >"$tmp/out" 2>&1
has "several are compared" "$tmp/out" "relative  bubble     memory" \
    "$tmp/plan.json " "1.00x" "given.json 2 x 2 x 1, 1, 1f1b "
refuses "--tp beside --plan $tmp/plan.json: a saved plan has all of its" \
    --plan "$tmp/plan.json" --tp 2
refuses "--seq beside --plan" --plan "$tmp/plan.json" --seq 16
refuses "--what-if beside --plan" --plan "$tmp/plan.json" --what-if tp=2
refuses "none.json: No such file" --plan "$tmp/none.json"
refuses "is not built in" --plan "$tmp/given.json" --plan "$tmp/plan.json"
refuses "given several times prints a table: give one for --json" \
    --plan "$tmp/plan.json" --plan "$tmp/plan.json" --emit megatron
sed 's/"n_embd": *32/"n_embd": 64/' "$model" >"$tmp/wider.json"
model=$tmp/wider.json refuses "is for another model than $tmp/wider.json" \
    --plan "$tmp/plan.json"

# Several machines; other trainers; what a run costs.
"$merak" plan --model "$model" --device h100 --nodes 1,2 --global-batch 32 \
    --seq 16 --tokens 1T --price 2.5 >"$tmp/out" 2>&1
has "several machines make a table" "$tmp/out" " nodes  ranks" "     1      8" \
    "     2     16" "100%" "GPU-hours        cost"
"$merak" plan --print device --device cpu | sed 's/4000000000/1000/' \
    >"$tmp/small.json"
"$merak" plan --model "$model" --device "cpu,$tmp/small.json,a100" \
    --global-batch 32 --seq 16 --ranks-per-node 1 >"$tmp/out" 2>"$tmp/err"
[ $? -eq 0 ] && [ ! -s "$tmp/err" ] && [ "$(wc -l <"$tmp/out")" -eq 4 ] &&
    [ "$(grep -c "^device .* memory GPU-hours/1G$\|^a100 .* 1 x 1 x 1" \
        "$tmp/out")" -eq 2 ] || echo none >"$tmp/out"
has "several devices make a table, which says why one has no plan" "$tmp/out" \
    "$tmp/small.json      1      1 refused: memory: no plan fits in 1000 B"
"$merak" plan --model "$model" --device "$tmp/small.json" --nodes 1,2 \
    --global-batch 32 --seq 16 >"$tmp/out" 2>"$tmp/err"
[ $? -eq 66 ] && [ "$(grep -c refused: "$tmp/out")" -eq 2 ] || echo >"$tmp/err"
has "a table without a plan is an error" "$tmp/err" "none of these has a plan"
refuses "device with several names prints a table" --device a100,h100 \
    --global-batch 32 --emit megatron
refuses 'no device "b"; there are: a100' --device a100,b
refuses "h100 is given twice; name each device once" --device h100,a100,h100 \
    --global-batch 32
refuses "no plan fits in 614.4 MiB per rank, and NCCL alone may take 640 MiB" \
    --device h100 --gpus-per-node 2 --memory-gib 0.6 --global-batch 8
refuses 'several, up to 8, with commas between; got "a100,"' --device a100,

# Links that join the nodes of a rack.
"$merak" plan --model "$model" --device cpu --nodes 4 --ranks-per-node 2 \
    --rack-nodes 2 --tp 4 --seq 16 --global-batch 32 --json "$tmp/rack.json" \
    >"$tmp/out" 2>&1
has "tensor groups may be as large as a rack" "$tmp/out" \
    "on 4 x 2 cpu in racks of 2" "within racks" "intra-rack GB" \
    "--merak-tp-domain=leaf --merak-plan=$tmp/rack.json"
"$merak" plan --model "$model" --plan "$tmp/rack.json" >"$tmp/out" 2>&1
has "a saved plan knows the racks" "$tmp/out" "on 4 x 2 cpu in racks of 2"
refuses "tp must divide the 4 of a rack; nearest: --tp 4" --device cpu --nodes 4 \
    --ranks-per-node 2 --rack-nodes 2 --tp 8 --seq 16 --global-batch 32

# Levels of links between nodes and what joins all.
"$merak" plan --model "$model" --device cpu --nodes 4 --ranks-per-node 2 \
    --levels node:2,leaf:4:2 --tp 1 --pp 1 --seq 16 --global-batch 32 \
    --json "$tmp/levels.json" >"$tmp/out" 2>&1
has "a machine has levels of links" "$tmp/out" \
    "on 4 x 2 cpu, leaf of 4 ranks" "between (leaf " ", net "
has "a plan has the bytes of each" "$tmp/levels.json" \
    '"levels": "node:2,leaf:4:2"' '"leaf": '
grep "^step" "$tmp/out" >"$tmp/first"
"$merak" plan --model "$model" --plan "$tmp/levels.json" >"$tmp/out" 2>&1
has "a saved plan knows the levels" "$tmp/out" \
    "on 4 x 2 cpu, leaf of 4 ranks" "$(cut -d, -f1 "$tmp/first")"
"$merak" plan --model "$model" --device cpu --nodes 4 --ranks-per-node 2 \
    --levels node:2,nvl:4:9 --tp 1 --pp 1 --seq 16 --global-batch 32 \
    --json "$tmp/levels.json" >"$tmp/first" 2>&1
"$merak" plan --model "$model" --plan "$tmp/levels.json" >"$tmp/out" 2>&1
has "and what leaves a rack" "$tmp/out" \
    "$(grep "^step" "$tmp/first" | cut -d, -f1)"

# Islands, and the order in which the pipeline passes them.
cat >"$tmp/links.json" <<'EOF'
{"islands": [{"name": "a", "nodes": 1}, {"name": "b", "nodes": "n2"},
             {"name": "c", "nodes": 1}],
 "between": [["a", "b", {"bytes_per_s": 1e7, "latency_s": 0.01}],
             ["b", "c", {"bytes_per_s": 1e6, "latency_s": 0.01}],
             ["a", "c", {"bytes_per_s": 1e7, "latency_s": 0.01}]]}
EOF
"$merak" plan --model "$model" --device cpu --links "$tmp/links.json" \
    --ranks-per-node 1 --pp 3 --seq 16 --global-batch 12 \
    --json "$tmp/islands.json" --html "$tmp/islands.html" >"$tmp/out" 2>&1
has "a pipeline passes islands by their fastest ways" "$tmp/out" \
    "on 3 x 1 cpu" "(stage 0), a (stage 1), " "hops of a micro-batch: "
has "a plan file has them" "$tmp/islands.json" '"island_order": [' \
    '"hosts": "n2"' '"island_hops": ['
grep -A9 "^islands, in" "$tmp/out" | grep -B9 "^busy for\|^for " |
    sed 's/>/\&gt;/g; s/^islands/<h2>Islands<\/h2>\n<pre>&/' >"$tmp/lines"
mapfile -t lines <"$tmp/lines"
has "a page has what is printed of them" "$tmp/islands.html" "${lines[@]}"
refuses "--nodes: the islands of $tmp/links.json have 3 together" --device cpu \
    --nodes 4 --links "$tmp/links.json" --seq 16 --global-batch 12
sed 's/: 1}/: 3}/; s/"n2"/"n[4-6]"/; s/"c", "nodes": 1/"c", "nodes": 3/
    ' "$tmp/links.json" >"$tmp/three.json"
refuses "with pp 2 a stage has 9 ranks, each of the islands a, b (n[4-6]), c 6" \
    --device cpu --links "$tmp/three.json" --ranks-per-node 2 --tp 1 \
    --what-if pp=2,order=tp-dp-pp --seq 16 --global-batch 18
refuses "--links beside --stages" --device cpu --stages 1x1-2x1 \
    --links "$tmp/links.json" --seq 16 --global-batch 12
sed 's/"n2"/2/' "$tmp/links.json" >"$tmp/unequal.json"
refuses "island \"a\" has 1 node, and \"b\" 2" --device cpu \
    --links "$tmp/unequal.json" --seq 16 --global-batch 12
refuses "--links: $tmp/none.json: " --device cpu --links "$tmp/none.json" \
    --seq 16 --global-batch 12
levels() {
    refuses "$1" --device cpu --nodes 4 --seq 16 --global-batch 32 \
        --levels "$2" "${@:3}"
}
levels 'level "leaf" of 500 ranks is not a multiple of level "nvl", 64; nearest' \
    node:4,nvl:64,leaf:500
levels 'cpu has no level "nvlink"; expected one of its own, link, net, or node' \
    node:4,nvlink:64
levels 'expected NAME:RANKS[:N],.., a node first, up to 4 levels' node:4,leaf
levels 'as in node:8,leaf:256:2; got "leaf:8:0.5"' node:4,leaf:8:0.5
levels "--levels and --rack-nodes both given" node:4,nvl:64 --rack-nodes 2

# When Slurm would start them: two nodes now, one later, eight never.
mkdir "$tmp/bin"
cat >"$tmp/bin/sbatch" <<'END'
#!/bin/sh
echo "$SLURM_TIME_FORMAT $*" >>"$(dirname "$0")/asked"
case $* in
*-N1*) echo 'sbatch: Job 3 to start at 2031-05-04T10:00:00 using 8 processors' ;;
*-N2*) echo 'sbatch: Job 4 to start at 2031-05-04T09:59:59 using 16 processors' ;;
*-N8*) echo 'sbatch: allocation failure: Requested nodes are busy' && exit 1 ;;
esac >&2
END
chmod +x "$tmp/bin/sbatch"
PATH=$tmp/bin:$PATH "$merak" plan --model "$model" --device h100 \
    --nodes 1,2,8 --global-batch 64 --seq 16 --tokens 1k \
    --sbatch "-p gpu  -t 60" >"$tmp/out" 2>&1
has "jobs have the times that Slurm says" "$tmp/out" \
    "2031-05-04 10:00 2031-05-04 10:00" "2031-05-04 09:59 2031-05-04 10:00" \
    "not known                -" \
    "8 nodes: sbatch says: allocation failure: Requested nodes are busy" \
    "done first: 2 nodes, 2031-05-04 10:00"
has "it is asked in words" "$tmp/bin/asked" "standard --test-only \
-p gpu -t 60 -N8 --ntasks-per-node=8 --wrap=:"
refuses "give --nodes 4,8,16 and one --device" --device h100 --sbatch "-t 60" \
    --global-batch 32 --tokens 1k
refuses "give its --tokens" --device h100 --sbatch "-t 60" --nodes 1,2 \
    --global-batch 32
printf '#!/bin/sh\necho sbatch: not today\nexit 1\n' >"$tmp/bin/sbatch"
PATH=$tmp/bin:$PATH refuses "sbatch, which does not run here: sbatch: not today" \
    --device h100 --sbatch "-t 60" --nodes 1,2 --global-batch 32 --tokens 1k
printf '#!/bin/sh\n[ "$1" = --version ] || exec sleep 60\n' >"$tmp/bin/sbatch"
PATH=$tmp/bin:$PATH "$merak" plan --model "$model" --device h100 --nodes 1,2 \
    --global-batch 64 --seq 16 --tokens 1k --sbatch "" >"$tmp/out" 2>&1
has "one that hangs is not waited for" "$tmp/out" "no answer within 5 s"
"$merak" plan --model "$model" --device h100 --global-batch 32 --seq 16 \
    --emit megatron >"$tmp/out" 2>"$tmp/err"
has "a plan for Megatron is its flags" "$tmp/out" "--global-batch-size 32" \
    "--seq-length 16" "--tensor-model-parallel-size"
cat >"$tmp/deep.json" <<'END'
{"model_type": "gpt2", "n_embd": 256, "n_layer": 8, "n_head": 8,
 "n_positions": 1024, "vocab_size": 8001, "activation_function": "gelu_new",
 "embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0,
 "tie_word_embeddings": false}
END
"$merak" plan --model "$tmp/deep.json" --device h100 --ranks-per-node 4 --pp 4 \
    --global-batch 64 --seq 1024 --emit megatron >"$tmp/out" 2>"$tmp/err"
has "what is fastest there is searched for" "$tmp/out" \
    "# best, but not for Megatron-LM: " "zb-v of 2 chunks" \
    "# planned: " "# as Megatron-LM runs it: "
"$merak" plan --model "$model" --seq 16 --tp 2 --pp 2 --tokens 1G \
    --emit deepspeed >"$tmp/out" 2>"$tmp/err"
has "what the other has no words for is told" "$tmp/out" "num_pp=2, num_mp=2"
"$merak" plan --model "$model" --device h100 --global-batch 32 --seq 16 \
    --schedule zb-h1 --pp 2 --emit megatron >"$tmp/out" 2>"$tmp/err"
[ $? -eq 66 ] || echo none >"$tmp/out"
has "a plan that the other cannot run is not that plan" "$tmp/out" \
    "# planned: " "# as Megatron-LM runs it: " \
    "# cannot express: schedule zb-h1; emitted 1f1b" "--num-layers 2"
has "and an error" "$tmp/err" "cannot express: schedule zb-h1" \
    "1 line above: what was printed is not the plan"
"$merak" plan --model "$model" --seq 16 --pp 2 --global-batch 4 \
    --lossy-hops 8 --emit torchtitan >"$tmp/out" 2>"$tmp/err"
has "nor is one whose hops are sent in part" "$tmp/err" \
    "cannot express: lossy: stage 0 -> 1 ratio 8; torchtitan sends whole values"
refuses "--lossy-hops 8: one stage sends nothing" --pp 1 --lossy-hops 8
refuses "8 ranks have no hop behind stage 9" --nodes 1 --device h100 \
    --global-batch 8 --lossy-hops 9:8
"$merak" plan --model "$model" --device h100 --global-batch 32 --seq 16 \
    --schedule zb-h1 --pp 2 --emit torchtitan --emit-anyway >"$tmp/out" \
    2>"$tmp/err" || echo none >"$tmp/out"
has "unless that does not matter" "$tmp/out" "# as torchtitan runs it: " \
    'pipeline_parallel_schedule 1F1B'
"$merak" plan --model "$model" --seq 16 --lora-rank 2 --objective dpo \
    --emit megatron >"$tmp/out" 2>"$tmp/err"
[ $? -eq 66 ] || echo none >"$tmp/out"
has "nor is one of a model with adapters" "$tmp/out" \
    "# not emitted: --lora-rank, --objective, with which the plan was made"
refuses 'got "4,2"; several, up to 16, are ascending' --nodes 4,2
refuses "--tokens: expected a number" --tokens 1x
refuses "--price needs the tokens of a run: give --tokens" --price 2
refuses "prints a table: give one for --json" --nodes 1,2 --device h100 \
    --global-batch 8 --json x.json

"$merak" plan --model "$model" --device=cpu --ranks-per-node=4 \
    --global-batch=8 --seq=16 --json "$tmp/pins.json" \
    --what-if=tp=2,pp=2,schedule=interleaved,chunks=2,recompute=full \
    >"$tmp/out" 2>&1
has "chunks and recomputation, too" "$tmp/out" "interleaved of 2 chunks" \
    "recomputation full"
has "and are saved" "$tmp/pins.json" '"chunks": 2' '"recompute": "full"' \
    '"sub_pipeline":' '"attention": false' '"blocks":'

# fixed DESCRIPTION CHOICES OPTION..: of a plan that is searched for with these
# choices fixed, or none, what is printed to fix all of them makes that plan
fixed()
{
    local what=$1 choices=$2 list
    shift 2
    "$merak" plan --model "$model" --seq 16 "$@" --json "$tmp/found.json" \
        ${choices:+--what-if "$choices"} >"$tmp/out" 2>&1
    list=$(sed -n 's/^--what-if //p' "$tmp/out")
    "$merak" plan --model "$model" --seq 16 "$@" --json "$tmp/fixed.json" \
        --what-if "$list" >"$tmp/out" 2>&1
    n=$((n + 1))
    if [ -n "$list" ] && [ "$(sed -n 's/^--what-if //p' "$tmp/out")" = "$list" ] &&
        [ "$(grep '"program"\|"id"' "$tmp/found.json")" = \
            "$(grep '"program"\|"id"' "$tmp/fixed.json")" ]; then
        echo "ok $n - $what"
    else
        echo "not ok $n - $what: $list"
        sed 's/^/# /' "$tmp/out"
    fi
}
fixed "every choice that is printed can be fixed" "" --device h100 --nodes 2 \
    --global-batch 32 --search-seconds 0
# the first request once more
sed "s|$tmp/found.json|$tmp/plan.json|" "$tmp/found.json" >"$tmp/again.json"
cmp -s "$tmp/plan.json" "$tmp/again.json" || echo differ >"$tmp/again.json"
has "the same request has the same plan" "$tmp/again.json" '"merak_plan": 2'
fixed "those of chunks" pp=2,schedule=interleaved --device cpu \
    --ranks-per-node 4 --global-batch 8 --dtype fp32
fixed "those that recompute" pp=2,micro-batch=8,schedule=gpipe --device cpu \
    --ranks-per-node 2 --global-batch 64 --dtype fp32 --memory 0.002

"$merak" plan --model "$model" --pp 2 --cut 3 --recompute a-2 --seq 16 \
    --global-batch 8 --json "$tmp/given.json" >"$tmp/out" 2>&1
has "a plan that is given can be cut and recompute so" "$tmp/out" "attention" \
    "2/"
"$merak" plan --model "$model" --device cpu --ranks-per-node=2 --seq 16 \
    --global-batch=8 --what-if cut=3,recompute=a-2 --dtype fp32 --pp 2 \
    >"$tmp/out" 2>&1
has "and so can one that is searched for" "$tmp/out" "cut=3," \
    "recompute=a-2,"

cp "$model" "$tmp/caf"$'\xe9'.json
"$merak" plan --model "$tmp/caf"$'\xe9'.json --device cpu \
    --ranks-per-node 4 --global-batch 8 --seq 16 --json "$tmp/name.json" >/dev/null 2>&1
has "a model's path need not be UTF-8" "$tmp/name.json" '"model": null' \
    '"runners_up":'
"$merak" plan --model "$model" --seq 16 --json - >/dev/full 2>"$tmp/err"
[ $? -eq 69 ] || echo "not 69" >"$tmp/err"
has "output that cannot be written is an error" "$tmp/err" \
    "cannot write the output: No space left"

# pictured DESCRIPTION ARGUMENT..: the picture and the page are whole and have
# every stage
pictured()
{
    local what=$1 file status=0
    shift
    rm -f "$tmp/p.svg" "$tmp/p.html"
    "$merak" plan --model "$model" --seq 16 --global-batch 8 --svg "$tmp/p.svg" \
        --html "$tmp/p.html" "$@" >"$tmp/out" 2>&1 || status=1
    for file in "$tmp/p.svg" "$tmp/p.html"; do
        [ "$(grep -o '<svg' "$file" | wc -l)" -eq 3 ] || status=1
        [ "$(grep -o '</svg>' "$file" | wc -l)" -eq 3 ] || status=1
        [ "$(grep -c '>stage 1<' "$file")" -eq 2 ] || status=1
        grep -q 'memory of a rank of each stage' "$file" || status=1
        grep -q 'nan\|inf"' "$file" && status=1
    done
    tail -n 1 "$tmp/p.html" | grep -q '</html>$' || status=1
    n=$((n + 1))
    [ $status -eq 0 ] || echo -n "not "
    echo "ok $n - $what"
}
pictured "a plan that is searched for can be drawn" --device h100 \
    --what-if pp=2
has "its page says what to do" "$tmp/p.html" "<h2>What to do</h2>" \
    "<li>what binds: " "<td>1 GiB more memory of a rank</td>" "merak train"
# 75.62 GiB, of which NCCL may take 2.66
grep -q 'limit of a rank: 72.97 GiB' "$tmp/p.svg" || echo none >"$tmp/p.html"
has "its page has what lost, and why" "$tmp/p.html" "<h2>Runners-up</h2>" \
    "pipeline bubble" "sent in a step, between nodes" "of peak FLOP/s"
pictured "a plan that is given can be drawn" --pp 2 --schedule gpipe
grep -c fetched "$tmp/out" >"$tmp/times"
has "which fetches nothing, and does not speak of it" "$tmp/times" 0
pictured "one that fetches parameters can be, too" --pp 2 --dp 2 --zero 3
has "what is fetched is told" "$tmp/out" "  fetched  " \
    "fetched for each use: " "a rank sends "
has "also on the page" "$tmp/p.html" ">fetched</th>" "fetched for each use: "
"$merak" plan --model "$model" --device cpu --global-batch 8 --seq 16 \
    --program >"$tmp/out" 2>&1
has "programs of a plan that is searched for" "$tmp/out" "rank 0 of 1: stage 0"

# What it says to type is what a shell takes, and saves the plan.
mkdir "$tmp/it's" && cp "$model" "$tmp/it's/model.json"
(
    cd "$tmp" || exit
    PATH=$(dirname "$(realpath "$OLDPWD/$merak")"):$PATH
    merak plan --model "it's/model.json" --device cpu --global-batch 8 \
        --seq 16 --memory 0.0005 >typed 2>&1
    eval "$(sed -n '/# to save the plan/{n;p}' typed)" >/dev/null 2>&1
)
has "what it says to type saves the plan" "$tmp/plan.json" '"global_batch": 8'
sed -n '/^what to type:/,$p' "$tmp/typed" >"$tmp/after"
has "all choices come after that" "$tmp/after" "--what-if tp="
# Of little memory no GiB can be spared.
grep "the fullest: it just fits" "$tmp/typed" | grep -q -e --memory-gib &&
    echo none >"$tmp/typed"
has "and what hardly fits is said" "$tmp/typed" ": it just fits"
echo '{"model_type": "gpt2", "n_layer": 1, "n_head": 8, "n_embd": 4096,
    "n_positions": 16, "vocab_size": 50000}' >"$tmp/wide.json"
"$merak" plan --model "$tmp/wide.json" --device cpu --global-batch 1 --seq 16 \
    --memory-gib 7.6 >"$tmp/wide" 2>&1
has "with less memory that leaves a GiB" "$tmp/wide" \
    ": it just fits; --memory-gib 6.6 plans with 1 GiB to spare"

# What it says of twice the memory is what a search with that finds.
echo '{"model_type": "gpt2", "n_layer": 8, "n_head": 16, "n_embd": 2048,
    "n_positions": 1024, "vocab_size": 50257}' >"$tmp/tight.json"
for gib in 4 8; do
    "$merak" plan --model "$tmp/tight.json" --device h100 --seq 1024 \
        --global-batch 32 --memory-gib $gib --search-seconds 0 \
        >"$tmp/with.$gib" 2>&1 # an answer in time may be another
done
step=$(sed -n 's/^step \([0-9.]* m*s\),.*/\1/p' "$tmp/with.8")
grep -q "^step $step," "$tmp/with.4" && echo "as fast" >"$tmp/with.4"
has "twice the memory is searched for with any degrees" "$tmp/with.4" \
    "twice the memory of a rank, which saves" \
    "$(printf '  %-50s %10s' 'twice the memory of a rank (8 GiB), any degrees' \
        "$step")"

"$merak" plan --model "$model" --device cpu --global-batch 8 --seq 16 \
    --schedule auto --program >"$tmp/auto" 2>&1
# the options are among what it says to type
for file in out auto; do
    grep -v '^  merak plan ' "$tmp/$file" >"$tmp/$file.said"
done
cmp -s "$tmp/out.said" "$tmp/auto.said" || echo none >"$tmp/auto"
has "an automatic schedule is one left out" "$tmp/auto" "rank 0 of 1: stage 0"

"$merak" plan --model "$model" --tp 2 --pp 2 --dp 2 --recompute full \
    --print schedule,graph,layouts,stages --global-batch 8 >"$tmp/out" 2>&1
has "every phase of a plan can be printed" "$tmp/out" \
    "F embedding.0 = embedding(tokens, wte.weight) -> f32[1,16,32]" \
    "linear_dx.18[P] -> linear_dx.18@R[R]" \
    "stage 1, ranks 4+5 6+7" "embedding.0 .. " "blocks recomputed" \
    "stage 0: F0 F1 B0 F2 B1 F3 B2 B3"
"$merak" plan --model "$model" --device h100 --global-batch 32 --what-if pp=2 \
    --print schedule >"$tmp/out" 2>&1
has "and of one that is searched for" "$tmp/out" "stage 1: F0"

cpu="--device cpu --global-batch 8 --seq 16"
refuses "--print: no phase \"layout\"; there are graph, layouts" $cpu \
    --print graph,layout
refuses "schedule 3f1b: a model of 1 forward pass given" $cpu --schedule 3f1b
refuses "memory: no plan fits in 1 KiB per rank" $cpu --memory 0.00000095367432
refuses "no device \"b100\"" --device b100 --global-batch 8
refuses "give --device" --nodes 2 --global-batch 8
refuses "give --global-batch" --device h100
refuses "--nodes: expected an integer 1..65535, got \"0\"" $cpu --nodes 0
refuses "--chunks: expected an integer 1..1024, got \"65535\"" --pp 65535 \
    --chunks 65535 --schedule interleaved
refuses "expected at most 2147483647 ranks" $cpu --nodes 65535 \
    --ranks-per-node 65535
refuses "2147483647 micro-batches a step: expected at most" --seq 16 \
    --global-batch 2147483647
refuses "no choice \"chunk\"" $cpu --what-if chunk=2
refuses "without --device" $cpu --gflops 5
refuses "expected NAME=VALUE" $cpu --what-if tp
home="--dp 4 --zero 3 --zero-home in"
refuses "--zero-home in needs dp-in 2 or more" $home
refuses "--dp-in 3 does not divide dp 4 (nearest: 2 or 4)" $home --dp-in 3
refuses "--zero-home in needs --zero 2 or 3" --dp 4 --dp-in 2 --zero-home in
refuses "--zero-home in needs dp-in 2 or more" --device cpu --ranks-per-node 4 \
    --global-batch 64 --what-if zero-home=in
refuses "--dp-in 2: replicas of unlike stages" --stages 2x4,8x1 --dp-in 2
refuses "--zero1: expected no|yes" $cpu --what-if zero1=maybe
refuses "--no-zero1 is --zero 0" $cpu --no-zero1 --zero 3
refuses "--zero1 no is --zero 0, and another level" $cpu --zero 1 --zero1 no
refuses "--zero1 no is --zero 0, and another level" $cpu --zero1 no --zero 1
refuses "--no-zero1 is --zero 0" $cpu --no-zero1 --what-if zero=1
refuses "--fetch 2 needs --zero 3, not 1" --dp 2 --fetch 2
refuses "--grad-sum step needs --zero 3" $cpu --grad-sum step --zero 2
refuses "no schedule" $cpu --what-if schedule=none
refuses "tp x pp x dp must be the 1 rank," $cpu --what-if tp=2
refuses "degrees: tp 3, pp 5" --device h100 --nodes 8 --global-batch 64 \
    --what-if tp=3,pp=5
refuses "nearest: tp=4,pp=4" --device h100 --nodes 8 --global-batch 64 \
    --what-if tp=3,pp=5
refuses "nearest: --tp 4 --pp 4" --device h100 --nodes 8 --global-batch 64 \
    --tp 3 --pp 5

"$merak" calibrate --quick --steps 1 --out "$tmp/here.json" --ranks-per-node 2 \
    --memory-gib 1 >"$tmp/out" 2>&1
has "this machine is measured" "$tmp/out" "linear f32" "linear bf16" "GB/s"
"$merak" plan --model "$model" --device "$tmp/here.json" --global-batch 8 \
    --seq 16 --dtype fp32 >"$tmp/out" 2>&1
has "a plan is made for it" "$tmp/out" "on 1 x 2 cpu, 1 thread" "the limit is 1 GiB"
n=$((n + 1))
"$merak" calibrate >/dev/null 2>"$tmp/err"
if [ $? -eq 66 ] && grep -qF "give --out" "$tmp/err"; then
    echo "ok $n - refused: calibrate without --out"
else
    echo "not ok $n - refused: calibrate without --out"
fi
refuses "--what-if tp=2: tp is fixed already" $cpu --what-if tp=1,tp=2
refuses "--what-if tp=2: tp is fixed already" $cpu --what-if tp=2 --tp 1
refuses "boundary is fixed already" $cpu --boundary whole \
    --what-if boundary=scatter
cut="--pp 2 --seq 16"
refuses "or cut points with dashes between, as in 1-3-5, got \"1-\"" \
    $cut --cut 1-
refuses "--cut 3-3: nothing lies between 3 and 3" $cut --cut 3-3
refuses "--cut 3-1: 1 comes after 3; expected ascending" $cut --cut 3-1
refuses "cut 1-3 makes 3 parts, and pp 2 has 2: give 1 cut point" $cut --cut 1-3
refuses "expected ascending ones from 0 to" $cut --cut 99
refuses "--recompute: expected none|full|selective|auto, or for each part" \
    $cut --recompute a-b
refuses "recompute a lists 1 part, and pp 2 has 2: give a list of 2" $cut \
    --recompute a
refuses "recompute: part 1 has " $cut --recompute 0-99
refuses "on stage 1; give 0 for part 1" $cut --schedule scp --recompute 0-a
refuses "cut is fixed already" $cpu --cut 1 --what-if cut=1
refuses "cut 99: there is no cut point 99; expected 0 to" \
    --device cpu --ranks-per-node 2 --global-batch 8 --what-if pp=2,cut=99
refuses "device file ./none.json: No such file" \
    --device ./none.json --global-batch 8
echo '{"name": "x", "ntes": 1, "ranks_per_node": 1}' >"$tmp/misspelt.json"
refuses 'choice; write commas between: tp=2,pp=2' $cpu --what-if 'tp=2;pp=2'
refuses "no field \"ntes\"" --device "$tmp/misspelt.json" --global-batch 8

"$merak" plan --print device --device H200 >"$tmp/h200.json" 2>&1
has "a device is printed as a file" "$tmp/h200.json" '"name": "h200"' \
    '"peak_flops_per_s":'
jq 'del(.peak_flops_per_s)' "$tmp/h200.json" >"$tmp/no_peak.json"
"$merak" plan --model "$model" --device "$tmp/no_peak.json" --global-batch 8 \
    --seq 16 --json "$tmp/no_peak.plan" >"$tmp/out" 2>&1
has "without a peak it is said what FLOP/s are of" "$tmp/out" \
    "% of sustained FLOP/s (the device file has no peak_flops_per_s)"
"$merak" plan --model "$model" --device cpu --global-batch 8 --seq 16 \
    >"$tmp/out" 2>&1
grep -v '^--what-if' "$tmp/out" | grep -q '1f1b\|sequence parallelism' &&
    echo >"$tmp/out"
has "one rank has no pipeline and no tensor peers" "$tmp/out" \
    "tp 1, pp 1, dp 1; 1 micro-batch" "pipeline bubble                           0 s"
"$merak" plan --model "$model" --device cpu --ranks-per-node 4 --memory 0.00024 \
    --global-batch 8 --seq 16 --what-if tp=2,pp=2,sp=auto,tp-batch=0 >"$tmp/out" 2>&1
has "what automatic choices came to is said" "$tmp/out" \
    "sequence parallelism auto" "recomputation auto (" "cut over tp"

# Unlike stages on a machine: its speeds, nodes and memory.
stages="--stages 2x4,8x1,4x2 --device h100 --seq 16"
"$merak" plan --model "$model" $stages --json "$tmp/unlike.json" \
    --html "$tmp/unlike.html" >"$tmp/out" 2>&1
has "unlike stages are planned for a device" "$tmp/out" "on 3 x 8 h100" \
    "stages of unlike ranks: 2 x 4, 8 x 1, 4 x 2; 1f1b, bf16" \
    "at 7.4e+05 GFLOP/s" "between nodes 45 GB/s" "of a limit of 77438.35"
has "and saved, with where they are cut" "$tmp/unlike.json" \
    '"device": "h100"' '"nodes": 3' '"memory_limit_bytes": 81200000000' \
    '"meshes": [' '"cut": ['
has "and drawn" "$tmp/unlike.html" "on 3 x 8 h100" "2 x 4, 8 x 1, 4 x 2"
"$merak" plan --model "$model" --plan "$tmp/unlike.json" --device cpu \
    >"$tmp/out" 2>&1
grep -q "program id was" "$tmp/out" && echo >"$tmp/out"
has "saved ones are the same programs for another device" "$tmp/out" \
    "on 3 x 8 cpu" "saved as $tmp/unlike.json, id " ", for h100"
refuses "--stages of 24 ranks on 2 nodes of 8: expected as many ranks as these" \
    $stages --nodes 2
refuses "--stages: stage 2, 4 x 2, does not fit: its rank 16 needs " $stages \
    --memory-gib 0.0001
refuses "--stages: stage 1, 1 x 4, does not fit whole nodes of 8 behind stage 0" \
    --stages 6x1,1x4,6x1 --device h100 --seq 16
refuses "one list and one machine at a time" $stages --nodes 3,6

# Nodes of several kinds: stages that are searched for or listed, and what is
# predicted of either once it is saved.
kinds="--nodes 1:h100,1:a100 --device h100,a100 --gpus-per-node 2"
predicted()
{
    sed -n 's/^ *"step_s": \([0-9.e-]*\),*$/\1/p' "$1" | head -1
}
sed 's/"n_embd": *32/"n_embd": 8192/' "$model" >"$tmp/wide.json"
"$merak" plan --model "$tmp/wide.json" $kinds --global-batch 64 --seq 16 \
    --json "$tmp/kinds.json" >"$tmp/out" 2>&1
"$merak" plan --model "$tmp/wide.json" --plan "$tmp/kinds.json" \
    --json "$tmp/again.json" >"$tmp/out" 2>&1
[ "$(predicted "$tmp/kinds.json")" = "$(predicted "$tmp/again.json")" ] ||
    echo "not as before" >"$tmp/out"
has "a saved plan for two kinds is predicted for them" "$tmp/out" \
    "on 1 x 2 h100 + 1 x 2 a100" "h100: at " "a100: at "
"$merak" plan --model "$model" $kinds --stages 2x1,2x1 --micro-batch 2 \
    --global-batch 16 --seq 16 --json "$tmp/kinds.json" >"$tmp/out" 2>&1
has "stages are listed for two kinds" "$tmp/out" "stage     device" \
    "    0       h100" "    1       a100"
sed -n 's/^step/step/p' "$tmp/out" >"$tmp/before"
"$merak" plan --model "$model" --plan "$tmp/kinds.json" >"$tmp/out" 2>&1
grep -qF "$(cat "$tmp/before")" "$tmp/out" || echo "not as before" >"$tmp/out"
has "and predicted as before once saved" "$tmp/out" "device" "h100,a100"
refuses "stage 1, 2 x 1, would be on nodes of h100 and of a100" $kinds \
    --stages 1x1,2x1,1x1 --seq 16 --micro-batch 2
refuses 'stages on nodes of "a100", which --device does not have' \
    --plan "$tmp/kinds.json" --device h100,h200
refuses "no other trainer can express stages" \
    --plan "$tmp/kinds.json" --emit megatron
refuses "no other trainer can express" $stages --emit megatron
refuses "give --device: a100" --stages 2x1,1x1 --nodes 3
refuses "which is chosen with them; leave it out" --stages auto --device cpu \
    --global-batch 8 --seq 16 --micro-batch 2
refuses "--dp beside --stages auto" --stages auto --device cpu --dp 2 \
    --global-batch 8 --seq 16

refuses "--reduce fast needs --transport nccl" --device cpu \
    --global-batch 8 --seq 16 --reduce fast
refuses "--reduce fast needs --transport nccl" --pp 2 --reduce fast

# A search has an answer when its time is over, and when Ctrl-C is typed; the
# time comes as far as the search, whatever the machine.
"$merak" plan --model "$model" --device h100 --nodes 8 --global-batch 512 \
    --seq 16 --search-seconds 1e-6 --json "$tmp/short.json" >"$tmp/out" 2>&1
has "a search that is cut short has a plan, and a bound" "$tmp/out" \
    "the search was cut short after 0 s (--search-seconds), with " \
    "can take less than" "pipeline bubble"
has "a saved plan says that its search was cut short" "$tmp/short.json" \
    '"search_cut_short": {' '"least_step_s":'
# one signal: without --foreground timeout sends another one to its group
(trap - INT; exec timeout --foreground -s INT 0.5 "$merak" plan --model "$model" \
    --device h100 --nodes 4096 --global-batch 65536 --seq 16 \
    --search-seconds 0 >"$tmp/out" 2>&1)
has "Ctrl-C prints the best plan so far" "$tmp/out" \
    "the search was cut short after" "on 4096 x 8 h100" "pipeline bubble"

# Groups of 640 MiB of tp, ep, both and dp; what pins leave open counts for the
# plan that was found alone.
for ep in 3 1; do
    "$merak" plan --model "$srcdir/vectors/weights/mixtral.config.json" \
        --device h100 --nodes 1 --ranks-per-node 6 --seq 16 --global-batch 6 \
        --tp 2 --pp 1 --ep $ep >"$tmp/ep$ep" 2>&1
done
has "NCCL may take more where experts are divided" "$tmp/ep3" \
    "less 1.875 GiB that NCCL may take"
has "and not where they are not" "$tmp/ep1" \
    "less 1.25 GiB that NCCL may take"
