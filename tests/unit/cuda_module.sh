#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cuda_module.sh - backend cuda, whole, without a GPU: the module's own files
# and the bodies of its kernels on what plays CUDA, cuBLASLt, cuDNN and NCCL
#
# Run from the build directory of tests/.

set -u
export LC_ALL=C

merak=../cmd/merak
. "$(dirname "$0")/tap.sh"
run_tap=$(dirname "$0")/run_tap.sh

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

# The libraries under the names that the module opens.
libs=$PWD/unit/stand_in_cuda/.libs
ln -s "$libs/merak_cuda.so" "$PWD/../runtime/nccl/.libs/merak_nccl.so" "$tmp/"
ln -s "$libs/cublaslt.so" "$tmp/libcublasLt.so.13"
ln -s "$libs/cudnn.so" "$tmp/libcudnn.so.9"
ln -s "$libs/nccl.so" "$tmp/libnccl.so.2"
export MERAK_MODULE_DIR=$tmp
export CUDA_DEVICE_MAX_CONNECTIONS=1 # as for Megatron-LM
with=("LD_LIBRARY_PATH=$tmp${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}")

seq 4000 >"$tmp/text"
cat >"$tmp/model.json" <<END
{"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 2,
 "n_positions": 64, "vocab_size": 257, "activation_function": "gelu_new",
 "embd_pdrop": 0.1, "resid_pdrop": 0.1, "attn_pdrop": 0.0,
 "tie_word_embeddings": true}
END
cat >"$tmp/llama.json" <<END
{"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2,
 "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
 "intermediate_size": 48, "vocab_size": 257, "rms_norm_eps": 1e-5,
 "max_position_embeddings": 64, "rope_theta": 10000.0, "hidden_act": "silu",
 "tie_word_embeddings": false}
END
$merak data pack --tokenizer byte --out "$tmp/data" "$tmp/text" >/dev/null ||
    exit 1

# train NAME BACKEND [VAR=VALUE].. [OPTION]..: metrics in NAME.jsonl, the rest
# in NAME.log; by $trainer
trainer=("$merak" train)
train()
{
    local name=$tmp/$1 backend=$2 env=()

    shift 2
    while [[ ${1-} == [A-Z]*=* ]]; do
        env+=("$1")
        shift
    done
    rm -f "$name.jsonl"
    env "${with[@]}" "${env[@]}" "${trainer[@]}" --model "$tmp/model.json" \
        --data "$tmp/data" --seq 24 --global-batch 4 --micro-batch 2 \
        --eval-samples 0 --lr 1e-3 --lr-schedule constant --steps 4 --threads 1 --deadline 60 \
        --metrics "$name.jsonl" --backend "$backend" "$@" >"$name.log" 2>&1
}

# near A B TOLERANCE: losses and norms of two runs; 0: to the bit
near()
{
    [ -s "$tmp/$1.jsonl" ] && python3 - "$tmp/$1" "$tmp/$2" "$3" <<'END'
import json, sys
a, b = ([json.loads(x) for x in open(f + ".jsonl")] for f in sys.argv[1:3])
worst = max(abs(x[k] / y[k] - 1) for x, y in zip(a, b, strict=True)
            for k in ("loss", "grad_norm"))
print("difference", worst)
sys.exit(not worst <= float(sys.argv[3]))
END
}

"$run_tap" env "${with[@]}" MERAK_TEST_BACKEND=cuda MERAK_CUDA_ATTENTION=own \
    unit/accel_kernels.t >"$tmp/ops" 2>&1
ok $? "every op agrees with the reference, twice to the bit" "$tmp/ops"

"$run_tap" env "${with[@]}" MERAK_TEST_BACKEND=cuda \
    MERAK_CUDA_ATTENTION=cudnn MERAK_TEST_OP=attention_dx \
    unit/accel_kernels.t >"$tmp/ops" 2>&1 &&
    grep -q ': cuDNN .*, engine' "$tmp/ops"
ok $? "attention by cuDNN, in its place among the streams" "$tmp/ops"

for dtype in fp32:1e-5 bf16:2e-2; do
    train cpu-${dtype%:*} cpu --dtype ${dtype%:*} &&
        train cuda cuda --dtype ${dtype%:*} &&
        near cuda cpu-${dtype%:*} ${dtype#*:} >"$tmp/near"
    ok $? "steps in ${dtype%:*} have the cpu backend's losses" "$tmp/cuda.log" \
        "$tmp/near"
done

train again cuda --dtype bf16 && near again cuda 0 >"$tmp/near"
ok $? "and those of another run to the bit" "$tmp/again.log" "$tmp/near"

train graphs cuda MERAK_ACCEL_GRAPHS=1 --dtype bf16 &&
    near graphs cuda 0 >"$tmp/near"
ok $? "so do CUDA graphs" "$tmp/graphs.log" "$tmp/near"

half=(--dtype bf16 --grad-dtype bf16)
train cpu-half cpu "${half[@]}" && train half cuda "${half[@]}" &&
    near half cpu-half 2e-2 >"$tmp/near"
ok $? "gradients in bf16: the cpu backend's losses" "$tmp/half.log" "$tmp/near"

for dtype in bf16 fp32; do
    train fused cuda --dtype $dtype &&
        train single cuda MERAK_ACCEL_FUSE=0 --dtype $dtype &&
        near single fused 0 >"$tmp/near"
    ok $? "and single kernels in place of fused ones in $dtype" \
        "$tmp/single.log" "$tmp/near"
done

train traced cuda --dtype bf16 --trace "$tmp/trace" &&
    near traced cuda 0 >"$tmp/near"
ok $? "and a traced run" "$tmp/traced.log" "$tmp/near"

train llama-cpu cpu --model "$tmp/llama.json" &&
    train llama cuda --model "$tmp/llama.json" &&
    near llama llama-cpu 1e-5 >"$tmp/near"
ok $? "a Llama's steps have the cpu backend's losses" "$tmp/llama.log" \
    "$tmp/near"

train llama cuda --model "$tmp/llama.json" --dtype bf16 &&
    train llama-single cuda MERAK_ACCEL_FUSE=0 --model "$tmp/llama.json" \
        --dtype bf16 && near llama-single llama 0 >"$tmp/near"
ok $? "fused or not, to the bit" "$tmp/llama-single.log" "$tmp/near"

if grep -q '^#define HAVE_UCX 1' ../config.h; then
    train alone cuda --dtype fp32
    # ranks, their degrees, dtype and tolerance, and whose bits they have
    while read -r ranks degrees dtype most same; do
        trainer=(unit/forked_train "$ranks")
        for name in ranks again; do
            # shellcheck disable=SC2086
            train $name cuda MERAK_STAND_IN_CUDA=memory=$((1100 * (ranks + 1))) \
                --dtype "$dtype" ${degrees//,/ } || break
        done
        # NCCL, which they cannot use, would take more than there is
        grep -q 'shares its GPU with another task, and NCCL needs' \
            "$tmp/ranks.log" &&
            near ranks cpu-$dtype $most >"$tmp/near" &&
            near again ranks 0 >>"$tmp/near" && near ranks $same 0 >>"$tmp/near"
        ok $? "$ranks ranks on one GPU (${degrees//,/ }, $dtype): the cpu's losses" \
            "$tmp/ranks.log" "$tmp/near"
    done <<END
2 --tp,2 fp32 1e-5 again
2 --pp,2 fp32 1e-5 alone
4 --tp,2,--pp,2 bf16 2e-2 again
END
    trainer=("$merak" train)
fi

if grep -q '^#define HAVE_HDF5 1' ../config.h; then
    train whole cpu --steps 4 &&
        train half cuda --steps 2 --ckpt "$tmp/ckpt" &&
        train rest cpu --ckpt "$tmp/ckpt" --resume must
    tail -n 2 "$tmp/whole.jsonl" >"$tmp/end.jsonl"
    near rest end 1e-5 >"$tmp/near"
    ok $? "the cpu backend goes on from its checkpoint" "$tmp/half.log" \
        "$tmp/rest.log" "$tmp/near"
fi

# one line, with what is to be done
refused()
{
    [ "$(grep -c '^merak: .*error: ' "$tmp/$1.log")" -eq 1 ] &&
        grep -qF -- "$2" "$tmp/$1.log"
}

! train fault cuda MERAK_STAND_IN_CUDA=fault=300 &&
    refused fault "an illegal memory access was encountered; a kernel touched"
ok $? "a kernel's fault ends the run" "$tmp/fault.log"

# an event is recorded behind a kernel and waited for: either meets the fault
! train sync cuda MERAK_STAND_IN_CUDA=fault=300 MERAK_ACCEL_SYNC=1 &&
    grep -Eq 'error: step [0-9]+, [^:]+: cannot (record an event|run what was queued) on' \
        "$tmp/sync.log"
ok $? "and is traced to its instruction" "$tmp/sync.log"

! train small cuda MERAK_STAND_IN_CUDA=memory=1000 &&
    refused small "are available on its GPU; use more stages"
ok $? "too little memory is refused with what takes it" "$tmp/small.log"

! train old cuda MERAK_STAND_IN_CUDA=driver=12040 &&
    refused old "needs one for 13.0 or later, release 580: update"
ok $? "so is an old driver" "$tmp/old.log"

! train word cuda MERAK_ACCEL_FUSE=no &&
    refused word 'MERAK_ACCEL_FUSE is "no": set it to 0 or 1, or unset it'
ok $? "so is a switch that is neither 0 nor 1" "$tmp/word.log"

train one cuda MERAK_STAND_IN_CUDA=devices=2,prohibited=0 --steps 1 &&
    grep -q 'warn: .*: not used: GPU 0 .* is in compute mode "prohibited"' \
        "$tmp/one.log" && grep -q 'backend cuda: GPU 1 at' "$tmp/one.log"
ok $? "of two GPUs the one that can be used is, and the other is named" \
    "$tmp/one.log"

! train none cuda CUDA_VISIBLE_DEVICES= &&
    refused none "this task was given no GPU"
ok $? "so is a task without a GPU" "$tmp/none.log"

! train nothing cuda MERAK_STAND_IN_CUBLASLT=nothing &&
    refused nothing "cannot multiply"
ok $? "a product that cuBLASLt has no algorithm for is named" "$tmp/nothing.log"

"$run_tap" env "${with[@]}" MERAK_TEST_BACKEND=cuda \
    MERAK_STAND_IN_CUDA=devices=2 unit/two_devices.t >"$tmp/two" 2>&1
ok $? "a thread uses two GPUs in turn" "$tmp/two"

if [ -e "$tmp/merak_nccl.so" ]; then
    "$run_tap" env "${with[@]}" MERAK_TEST_BACKEND=cuda unit/nccl_alone.t \
        >"$tmp/nccl" 2>&1
    ok $? "NCCL's communicators work on its streams" "$tmp/nccl"
fi

! $merak calibrate --backend cuda --model "$tmp/model.json" --seq 65 \
    --out "$tmp/device.json" >"$tmp/calibrate" 2>&1 &&
    grep -q -- '--seq 65 is longer than the 64 positions' "$tmp/calibrate" &&
    [ "$(wc -l <"$tmp/calibrate")" -eq 1 ]
ok $? "a model that cannot be tuned for is refused before it measures" \
    "$tmp/calibrate"
echo "1..$n"
