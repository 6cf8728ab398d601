#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# 0013-torch.bats - trainers of PyTorch on ranks that Merak placed: the groups
# they make, and the job scripts for Megatron-LM and torchtitan
#
# PyTorch is not installed for tests: what needs it is skipped where it is not.

load cluster

setup()
{
    EXAMPLES=$(sed -n "s/^abs_top_srcdir = //p" "$BUILD/Makefile")/examples
    PYTHON=${PYTHON:-/usr/bin/python3}
    cd "$BATS_TEST_TMPDIR"
}

teardown()
{
    assert_no_job_left
    assert_no_node_drained
}

@test "groups made from RANK are those that were placed, and train alike" {
    "$PYTHON" -c 'import torch.distributed' || skip "no PyTorch"
    # the nodes' names are Slurm's alone here, and other sandboxes have the same
    # ports: all meet on this machine, at a port of this test's
    export PORT_HERE=$((10000 + BASHPID % 9000)) GLOO_SOCKET_IFNAME=lo
    run timeout -k 5 600 srun -Q -N4 --ntasks-per-node=2 --overcommit \
        --mpi=none --merak-tp=2 --merak-pp=2 --merak-env=torch sh -c '
        export MASTER_ADDR=127.0.0.1 MASTER_PORT=$PORT_HERE OMP_NUM_THREADS=1
        exec "$@"' - "$PYTHON" "$EXAMPLES/torch_groups.py"
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c '^rank [0-7] of 8 on .* tp .* dp .* pp .*, loss' \
        <<<"$output")" -eq 8 ]
}

# A trainer that says where it is and what it was given.
stub()
{
    cat <<'PY'
import os, sys
e = os.environ
tp, dp = int(e["MERAK_TP_SIZE"]), int(e["MERAK_DP_SIZE"])
assert int(e["RANK"]) == int(e["MERAK_TP_RANK"]) + tp * (
    int(e["MERAK_DP_RANK"]) + dp * int(e["MERAK_PP_RANK"]))
assert e["WORLD_SIZE"] == "8" and e["MASTER_ADDR"] and e["MASTER_PORT"]
print("RANK", e["RANK"], *sys.argv[1:])
PY
}

# plan_for NAME: plan.json, and the same plan in another trainer's words
plan_for()
{
    cat >small.json <<'JSON'
{"model_type": "llama", "num_hidden_layers": 4, "num_attention_heads": 4,
 "hidden_size": 64, "intermediate_size": 128, "vocab_size": 512,
 "max_position_embeddings": 64, "hidden_act": "silu", "rms_norm_eps": 1e-5,
 "num_key_value_heads": 4, "tie_word_embeddings": false}
JSON
    set -- merak plan --model small.json --nodes 4 --ranks-per-node 2 \
        --device h200 --seq 64 --global-batch 16 --tp 2 --pp 2 --emit "$1"
    "$@" --json plan.json >/dev/null
    "$@"
}

@test "Megatron's job script gives every rank the plan's flags" {
    plan_for megatron >plan.flags
    mkdir megatron
    stub >megatron/pretrain_gpt.py
    MEGATRON=$PWD/megatron timeout -k 5 600 sbatch -Q -W -N4 \
        --ntasks-per-node=2 --gpus-per-node=0 --cpus-per-task=1 \
        --output=log "$EXAMPLES/megatron.sbatch" --train-iters 3
    cat log
    [ "$(grep -o '^RANK [0-7]' log | sort -u | wc -l)" -eq 8 ]
    [ "$(grep -c -e '--tensor-model-parallel-size 2 .*--train-iters 3$' log)" \
        -eq 8 ]
    [ "$(grep -c -e '--pipeline-model-parallel-size 2 ' log)" -eq 8 ]
}

@test "torchtitan's job script gives every rank the plan's file" {
    plan_for torchtitan >plan.toml
    mkdir -p modules/torchtitan
    touch modules/torchtitan/__init__.py
    stub >modules/torchtitan/train.py
    PYTHONPATH=$PWD/modules timeout -k 5 600 sbatch -Q -W -N4 \
        --ntasks-per-node=2 --gpus-per-node=0 --cpus-per-task=1 \
        --output=log "$EXAMPLES/torchtitan.sbatch"
    cat log
    [ "$(grep -cx 'RANK [0-7] --job.config_file plan.toml' log)" -eq 8 ]
    python3 -c 'import tomllib; p = tomllib.load(open("plan.toml", "rb"))
assert p["parallelism"]["tensor_parallel_degree"] == 2, p'
}
