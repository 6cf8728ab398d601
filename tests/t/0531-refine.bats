#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0531-refine.bats - devices that the trace of a run corrects; what cannot is in
# t/0532
#
# alone: it compares times

load cluster
load calm

setup_file()
{
    export RUNS=$BATS_FILE_TMPDIR
    export MODEL=$RUNS/model.json
    cat >"$MODEL" <<'END'
{"model_type": "gpt2", "n_embd": 128, "n_layer": 4, "n_head": 4,
 "n_positions": 128, "vocab_size": 257, "activation_function": "gelu_new",
 "embd_pdrop": 0.1, "resid_pdrop": 0.1, "attn_pdrop": 0.0,
 "tie_word_embeddings": true}
END
    # wrong in all that is predicted from
    cat >"$RUNS/wrong.json" <<'END'
{"name": "wrong", "ranks_per_node": 2, "memory_bytes": 1e9,
 "flops_per_s": {"f32": 5e8, "bf16": 5e8}, "bytes_per_s": 1e8,
 "kernel_s": 1e-3, "link": {"bytes_per_s": 1e7, "latency_s": 2e-2}}
END
    merak data pack --tokenizer byte --out "$RUNS/text" \
        /usr/share/common-licenses/GPL-3 >/dev/null
}

teardown() { assert_no_node_drained; }

# train N NAME OPTION...: traced in $RUNS/NAME
train()
{
    local n=$1 name=$2

    shift 2
    rm -rf "${RUNS:?}/$name"
    mkdir "$RUNS/$name"
    run srun -N1 -n"$n" --overcommit merak train --model "$MODEL" \
        --data "$RUNS/text" --eval-samples 0 --threads 1 --seq 64 \
        --global-batch 8 --deadline 900 --trace "$RUNS/$name/trace" \
        --metrics "$RUNS/$name/metrics" "$@"
    echo "$output"
    [ "$status" -eq 0 ]
}

predicted()
{
    merak trace summary "$RUNS/$1/trace" --top 0 |
        awk '$1 == "plan" { print $2 }'
}

measured() # the mean of the middle third of the steps, the first left out
{
    tail -n +2 "$RUNS/$1/metrics" | jq .step_s | sort -n |
        awk '{ v[NR] = $1 }
            END { low = int(NR / 3)
                for (i = low + 1; i <= NR - low; i++) s += v[i]
                print 1000 * s / (NR - 2 * low) }'
}

# off A B: by how many per cent A is more than B, without sign
off() { awk "BEGIN { x = 100 * ($1 / $2 - 1); print x < 0 ? -x : x }"; }

# corrects LIMIT N OPTION...: a run, predicted by a device that it corrected
corrects()
{
    local limit=$1 n=$2 before after is

    shift 2
    train "$n" run "$@" --micro-batch 2 --steps 16 --trace-every 1 \
        --device "$RUNS/wrong.json" || return
    before=$(predicted run)
    is=$(measured run)
    merak calibrate --from "$RUNS/run/trace" --device "$RUNS/wrong.json" \
        --out "$RUNS/right.json" || return
    train "$n" again "$@" --micro-batch 2 --steps 1 \
        --device "$RUNS/right.json" || return
    after=$(predicted again)
    echo "measured $is ms, predicted $before, then $after"
    [ "$(off "$before" "$is" | cut -d. -f1)" -ge 30 ] &&
        [ "$(off "$after" "$is" | cut -d. -f1)" -lt "$limit" ]
}

@test "a run is predicted within 10 % by a device that its trace corrected" {
    in_calm corrects 10 1
    run merak calibrate --from "$RUNS/run/trace" --device "$RUNS/wrong.json" \
        --out "$RUNS/right.json"
    [[ ${lines[0]} == *"1 rank, tp 1, pp 1, dp 1, 1f1b, fp32, 1 thread; "* ]]
    [[ $output =~ rate\ of\ products\ +0\.5000 ]]
    [[ $output =~ linear\ .*ms\ a\ step ]]
    jq -e '.name == "wrong, refined" and .flops_per_s.bf16 == 5e8 and
        .flops_per_s.f32 > 1e9 and (.kernels.f32.linear | length) >= 4 and
        (.kernels.bf16 | length) == 0' "$RUNS/right.json"
    # corrected once more it is what it was
    merak calibrate --from "$RUNS/run/trace" --device "$RUNS/right.json" \
        --out "$RUNS/twice.json" >"$RUNS/twice"
    awk '/a step/ && ($7 < 0.99 || $7 > 1.01) { print; bad = 1 }
        END { exit bad }' "$RUNS/twice"
}

@test "links are corrected with the kernels, of pipelines and of replicas" {
    # ranks wait for the later one, by chance, which is in no link
    in_calm corrects 30 2 --pp 2
    jq -e '.link.latency_s < 1e-2' "$RUNS/right.json"
    in_calm corrects 40 2 --dp 2
    jq -e '.link.groups | length == 1 and .[0].ranks == 2 and
        .[0].latency_s < 1e-2' "$RUNS/right.json"
}
