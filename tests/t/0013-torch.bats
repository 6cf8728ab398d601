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
size = {a: int(e["MERAK_%s_SIZE" % a.upper()]) for a in ("tp", "pp", "dp")}
rank, stride = 0, 1
for axis in e["MERAK_ORDER"].split("-"):
    rank += stride * int(e["MERAK_%s_RANK" % axis.upper()])
    stride *= size[axis]
assert int(e["RANK"]) == rank, (rank, e["RANK"])
assert e["MERAK_ORDER"] == "tp-dp-pp" or "--use-tp-pp-dp-mapping" in sys.argv
assert e["WORLD_SIZE"] == "32" and e["MASTER_ADDR"] and e["MASTER_PORT"]
print("RANK", e["RANK"], *sys.argv[1:])
PY
}

# plan_for SCRIPT: the plan and its words for another trainer, by the commands
# that the script's head has for them, as they are
plan_for()
{
    local commands

    mkdir llama
    cat >llama/config.json <<'JSON'
{"model_type": "llama", "num_hidden_layers": 4, "num_attention_heads": 8,
 "hidden_size": 64, "intermediate_size": 128, "vocab_size": 512,
 "max_position_embeddings": 4096, "hidden_act": "silu", "rms_norm_eps": 1e-5,
 "num_key_value_heads": 8, "tie_word_embeddings": false}
JSON
    commands=$(sed -n '/^#   merak plan/,/^#   sbatch/s/^#//p' "$1" | grep -v sbatch)
    [ "$(grep -c "merak plan" <<<"$commands")" -eq 2 ]
    bash -ec "$commands" >plan.log
    tp=$(jq .plan.tp plan.json) pp=$(jq .plan.pp plan.json)
}

# submit SCRIPT [ARGUMENT..]: to nodes of eight cores, which have no GPUs
submit()
{
    timeout -k 5 600 merak sandbox --nodes 4 --cpus 8 -- \
        sbatch -Q -W --gpus-per-node=0 --cpus-per-task=1 --output=log "$@"
    cat log
}

@test "Megatron's job script gives every rank the plan's flags" {
    plan_for "$EXAMPLES/megatron.sbatch"
    mkdir megatron
    stub >megatron/pretrain_gpt.py
    MEGATRON=$PWD/megatron submit "$EXAMPLES/megatron.sbatch" --train-iters 3
    [ "$(grep -o '^RANK [0-9]*' log | sort -u | wc -l)" -eq 32 ]
    [ "$(grep -c -e "--tensor-model-parallel-size $tp .*--train-iters 3\$" log)" \
        -eq 32 ]
    [ "$(grep -c -e "--pipeline-model-parallel-size $pp .*--num-layers 4 " log)" \
        -eq 32 ]
}

@test "torchtitan's job script gives every rank the plan's options" {
    plan_for "$EXAMPLES/torchtitan.sbatch"
    mkdir -p modules/torchtitan
    touch modules/torchtitan/__init__.py
    stub >modules/torchtitan/train.py
    PYTHONPATH=$PWD/modules submit "$EXAMPLES/torchtitan.sbatch" \
        --module llama3 --config llama3_debugmodel
    [ "$(grep -o '^RANK [0-9]* --module llama3 --config llama3_debugmodel ' log |
        sort -u | wc -l)" -eq 32 ]
    [ "$(grep -c -e "--parallelism.tensor_parallel_degree $tp .*-checkpoint:" \
        log)" -eq 32 ]
}
