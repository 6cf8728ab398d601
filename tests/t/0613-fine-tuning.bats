#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0613-fine-tuning.bats - the path of doc/fine-tuning.md by the scripts of
# examples/fine-tuning: tokens over two time limits, adapters over restarts,
# merged, asked, and taught preferences; the model is found in a cache of the hub
#
# long

load cluster
load jobs

# How often the run is asked to stop: each takes the 31 s for which Slurm does
# not start a job again.
STOPS=1
[ -z "${TEST_ALL-}" ] || STOPS=5

setup()
{
    cd "$BATS_TEST_TMPDIR"
    cp "$TESTS"/../examples/fine-tuning/* .
    make_cache
    make_talks
    export WORK=$BATS_TEST_TMPDIR/work MODEL=org/small TALKS=talks.jsonl
    export SETTING=$BATS_TEST_TMPDIR/setting.sh TASKS=4 CPUS=1 TP=2 PP=1
    export SEQ=64 BATCH=8 STEPS=$((100 * (STOPS + 1))) TIME=20 SAVE_SECONDS=60
    export DTYPE=fp32 TOKENS=8
    LOG=$BATS_TEST_TMPDIR/log
}

teardown()
{
    scancel -u "$(id -un)"
    assert_no_job_left
    assert_no_node_drained
}

# A model in a cache of the hub: files are links.
make_cache()
{
    local commit=0123456789abcdef0123456789abcdef01234567
    local hub file

    export HF_HOME=$BATS_TEST_TMPDIR/hub-home
    hub=$HF_HOME/hub/models--org--small
    mkdir -p "$hub"/{refs,snapshots/$commit} first
    printf '%s' $commit >"$hub/refs/main"
    cat >first/config.json <<'JSON'
{"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4,
 "num_key_value_heads": 2, "hidden_size": 32, "intermediate_size": 64,
 "vocab_size": 576, "max_position_embeddings": 128, "hidden_act": "silu",
 "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false}
JSON
    cp "$TESTS/vectors/tokenizer/kind_llama3.json" first/tokenizer.json
    cat >first/tokenizer_config.json <<'JSON'
{"eos_token": "<|end_of_text|>", "chat_template": "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '<|end_of_text|>' }}{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"}
JSON
    echo '{"eos_token_id": 560}' >first/generation_config.json
    merak data pack --tokenizer first --out seeds first/tokenizer.json
    merak train --model first --data seeds --seq 16 --steps 1 --ckpt origin
    merak ckpt export origin --format hf --out folder
    for file in folder/*; do
        mv "$file" "$hub/"
        ln -s "../../${file#folder/}" "$hub/snapshots/$commit/${file#folder/}"
    done
}

make_talks()
{
    local i

    for ((i = 0; i < 2000; i++)); do
        printf '{"messages": [{"role": "user", "content": "What is %d plus %d?"}, {"role": "assistant", "content": "It is %d."}]}\n' \
            $i 7 $((i + 7))
    done >talks.jsonl
}

# has_steps_after N: the run has gone on for a few steps
has_steps_after()
{
    [ "$(sed -n '$s/{"step": \([0-9]*\),.*/\1/p' "$WORK/run/metrics.jsonl")" \
        -gt $(($1 + 5)) ]
}

@test "from conversations to answers, over time limits" {
    # --- 1: tokens, by 4 tasks on two nodes; the job is asked to come back
    mkdir work
    JOB=$(sbatch --parsable --ntasks-per-node=2 --output="$LOG" 1-pack.sbatch)
    within 600 is_over
    cat "$LOG"
    [ "$(field JobState)" = COMPLETED ]
    merak data pack --tokenizer org/small --out alone talks.jsonl
    cmp alone.bin work/talks.bin
    cmp alone.idx work/talks.idx

    # --- 2: adapters, over restarts
    export SBATCH_OPTIONS="--output=$LOG.train"
    JOB=$(bash 2-train.sh)
    LOG=$LOG.train
    local i step=0
    for ((i = 1; i <= STOPS; i++)); do
        within 600 has_steps_after $step
        scancel --batch --signal=USR1 "$JOB"
        within 600 is_requeued $i
        step=$(sed -n 's/.*stopped after step \([0-9]*\) of .*/\1/p' "$LOG" |
            tail -n 1)
    done
    within 600 test -e "$WORK/run/DONE"
    cat "$LOG"
    # one run: every step once, in order
    [ "$(sed 's/{"step": \([0-9]*\),.*/\1/' "$WORK/run/metrics.jsonl")" = \
        "$(seq "$STEPS")" ]
    [ "$(grep -c . "$WORK/run/starts")" -eq $((STOPS + 1)) ]
    ls "$WORK"/run/ckpt/tensorboard/*
    grep -q "^merak_step.* $STEPS\$" "$WORK/merak.prom"

    # --- 3: what it reports
    bash 3-watch.sh
    grep -q '<html' "$WORK/report.html"

    # other degrees go on from it
    srun -N1 -n4 --merak-tp=1 --merak-pp=2 merak train --model org/small \
        --init-from org/small --lora-rank 16 --lora-alpha 32 \
        --lora-dropout 0.05 --data work/talks --seq "$SEQ" \
        --global-batch "$BATCH" --steps $((STEPS + 3)) --lr 1e-4 --warmup 10 \
        --dtype fp32 --threads 1 --ckpt "$WORK/run/ckpt" >further 2>&1
    cat further
    grep -q "step $STEPS, .* written by tp 2 x pp 1 x dp 2" further
    grep -q 'tp 1 x pp 2 x dp 2 on 1 node' further
    grep -q "step $((STEPS + 3))/$((STEPS + 3)) " further

    # --- 4: merged, and the adapters alone
    bash 4-merge.sh
    merak ckpt import "$WORK/adapter" --out back
    merak ckpt export back --format peft --out adapter
    cmp adapter/adapter_model.safetensors \
        "$WORK/adapter/adapter_model.safetensors"
    grep -q '"base_model_name_or_path": "org/small"' adapter/adapter_config.json
    # every file of the origin, and weights of the same layers
    [ "$(ls "$WORK/merged")" = "$(ls "$HF_HOME"/hub/models--org--small/snapshots/*)" ]
    for file in tokenizer.json tokenizer_config.json generation_config.json; do
        cmp "$WORK/merged/$file" \
            "$HF_HOME"/hub/models--org--small/snapshots/*/$file
    done

    # --- 5: the merged model answers as the run does
    bash 5-serve.sh "user: What is 5 plus 7?" >merged
    merak generate --ckpt "$WORK/run/ckpt" --tokens 8 \
        --prompt "user: What is 5 plus 7?" >adapted
    cat merged
    cmp merged adapted

    # --- 6: pairs of answers, from the merged model on
    sed 's/{"messages": \[\(.*\), \({"role": "assistant".* is \)\(.*\)"}\]}/{"prompt": [\1], "chosen": [\2\3"}], "rejected": [\2not known."}]}/' \
        talks.jsonl | head -n 64 >pairs.jsonl
    LOG=$BATS_TEST_TMPDIR/log.prefer
    JOB=$(SBATCH_OPTIONS=--output=$LOG SEQ=96 PREFER_STEPS=5 bash 6-prefer.sh |
        tail -n 1)
    within 600 is_over
    cat "$LOG"
    [ -e "$WORK/prefer/run/DONE" ]
    grep -q 'training samples are of [0-9]* pairs of answers' "$LOG"
    grep -q '^{"step": 1, "loss": 0.693147' "$WORK/prefer/run/metrics.jsonl"
}
