#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# backend_module.sh - a backend in a module that is absent, broken, or of a
# machine with what this one lacks is refused in one line, and never replaced
#
# Run from the build directory of tests/.

set -u
export LC_ALL=C

merak=../cmd/merak
. "$(dirname "$0")/tap.sh"

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

seq 2000 >"$tmp/text"
cat >"$tmp/model.json" <<EOF
{"model_type": "gpt2", "n_embd": 32, "n_layer": 1, "n_head": 2,
 "n_positions": 64, "vocab_size": 257, "activation_function": "gelu_new",
 "embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0,
 "tie_word_embeddings": true}
EOF
$merak data pack --tokenizer byte --out "$tmp/data" "$tmp/text" >/dev/null ||
    exit 1

train()
{
    $merak train --model "$tmp/model.json" --data "$tmp/data" --seq 16 \
        --steps 1 --global-batch 1 --threads 1 "$@" >"$tmp/out" 2>"$tmp/err"
}

# refuses DESCRIPTION TEXT: what ran last exits 66, and says one line with TEXT
refuses()
{
    [ $? -eq 66 ] && [ "$(wc -l <"$tmp/err")" -eq 1 ] &&
        grep -qF -- "$2" "$tmp/err"
    ok $? "$1" "$tmp/out" "$tmp/err"
}

mkdir "$tmp/none" "$tmp/broken"
echo no >"$tmp/broken/merak_cuda.so"
MERAK_MODULE_DIR=$tmp/none train --backend cuda
refuses "a module that is not there" "does not have it"
MERAK_MODULE_DIR=$tmp/broken train --backend cuda
refuses "a module that is no module" "cannot be loaded"
# What lies above an installed Merak's prefix may be anybody's.
mkdir -p "$tmp/alice/lib" "$tmp/alice/bin" "$tmp/kernels/cuda/.libs"
cp ../cmd/.libs/merak "$tmp/alice/bin"
cp ../runtime/.libs/libmerak.so.? "$tmp/alice/lib"
cp "$tmp/broken/merak_cuda.so" "$tmp/kernels/cuda/.libs"
(
    merak=$tmp/alice/bin/merak
    export LD_LIBRARY_PATH=$tmp/alice/lib
    train --backend cuda
)
refuses "a module that is planted above the prefix" "was built without it"
mkdir "$tmp/alice/lib/merak"
cp "$tmp/broken/merak_cuda.so" "$tmp/alice/lib/merak"
(
    merak=$tmp/alice/bin/merak
    export LD_LIBRARY_PATH=$tmp/alice/lib
    train --backend cuda
)
refuses "a module beside the library is looked at" "cannot be loaded"
# A folder that is called as one of a build tree is none for that.
alice=$tmp/alice
# at DIR ROOT: run a Merak that lies in DIR, with a module planted below ROOT
at()
{
    mkdir -p "$1" "$2/kernels/cuda/.libs"
    cp ../cmd/.libs/merak ../runtime/.libs/libmerak.so.? "$1"
    cp "$tmp/broken/merak_cuda.so" "$2/kernels/cuda/.libs"
    chmod "$3" "$2"
    [ -z "${4-}" ] || echo "$4" >"$2/config.status"
    (
        merak=$1/merak
        export LD_LIBRARY_PATH=$1
        train --backend cuda
    )
}
at "$alice/bench" "$alice" 755
refuses "a folder called bench is no build tree" "was built without it"
at "$alice/tests/unit" "$alice" 755
refuses "one called tests/unit is none" "was built without it"
at "$alice/x/.libs" "$alice" 755
refuses "one called .libs is none" "was built without it"
at "$alice/bench" "$alice" 777 configured
refuses "nor is one that anybody can write to" "was built without it"
at "$alice/bench" "$alice" 755 configured
refuses "a build tree is looked at" "cannot be loaded"
if [ "$(id -u)" -eq 0 ]; then
    chown nobody "$alice/kernels"
    at "$alice/bench" "$alice" 755 configured
    refuses "one with a folder of another user's is not" "was built without it"
fi
train --backend nix
refuses "a backend that nobody knows" "there are cpu, ref, emu, fake, cuda"
# What a calibration chose is taken on the same kind of device, and no other.
device() # NAME FOR CHOICE
{
    cat >"$tmp/$1.json" <<EOF
{"ranks_per_node": 1, "memory_bytes": 1e9, "flops_per_s": {"f32": 1e9,
 "bf16": 1e9}, "bytes_per_s": 1e9, "kernel_s": 0,
 "link": {"bytes_per_s": 1e9, "latency_s": 0},
 "tuned": {"for": "$2", "choices": ["$3"]}}
EOF
}
device same threads "linear 512"
device other "NVIDIA H200" "linear 512"
device broken threads ""
train --backend fake --device "$tmp/same.json" &&
    grep -q "1 choices of device file .*same.json, for threads" "$tmp/err"
ok $? "choices for this kind of device are taken" "$tmp/out" "$tmp/err"
train --backend fake --device "$tmp/other.json" &&
    grep -q "are for NVIDIA H200, this is threads: they are not used" "$tmp/err"
ok $? "choices for another kind are not, with a warning" "$tmp/out" "$tmp/err"
train --backend fake --device "$tmp/broken.json"
[ $? -ne 0 ] && grep -q "broken.json: .*is not a choice" "$tmp/err"
ok $? "a choice that is none is refused" "$tmp/out" "$tmp/err"
if [ -e /dev/nvidiactl ]; then
    n=$((n + 1))
    echo "ok $n - no GPU # SKIP there is one"
    n=$((n + 1))
    echo "ok $n - a run that says nothing # SKIP there is a GPU"
elif [ -e ../kernels/cuda/.libs/merak_cuda.so ]; then
    train --backend cuda
    refuses "no driver" "there is no NVIDIA driver on this node"
    train && grep -q "backend cpu" "$tmp/err" "$tmp/out"
    ok $? "a run that says nothing computes on the cpu" "$tmp/out" "$tmp/err"
else
    train --backend cuda
    refuses "a module that was not built" "was built without it"
    train && grep -q "backend cpu" "$tmp/err" "$tmp/out"
    ok $? "a run that says nothing computes on the cpu" "$tmp/out" "$tmp/err"
fi
echo "1..$n"
