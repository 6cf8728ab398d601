#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# gpu.sh - all that is to be known of backend cuda on a machine with a GPU
#
#   bench/gpu.sh [OPTION]... [PART]...       the parts, or all of them
#   bench/gpu.sh pack DIR                    what a bare machine lacks, into DIR
#
#   --builddir DIR    build there (build-gpu)
#   --backend NAME    cuda; fake runs the same on threads of the host with tiny
#                     sizes, to test this script, and leaves out what needs a GPU
#   --out DIR         the table of results (bench/results/gpu)
#   --pack DIR        libraries and sources that `pack` gathered
#   --models LIST     of part gpt2: 124m,774m,1558m (124m)
#   --limit SECONDS   of each part (470; of those that take a minute, 150)
#   --total SECONDS   of all together: what does not fit is cut off or left out,
#                     and the last line says how to go on
#
# Parts: build facts ops step repeat gpt2 ranks shards kernels autotune cudnn
# calibrate losses graphs nccl ckpt llama ceilings sanitize, the most valuable
# first; build is added where there is none.  Each prints `ok`, `FAILED`, `skipped` or `left` and why, in one
# line; its whole output is BUILDDIR/gpu/PART.log; OUT/DATE.md and .json are one
# table of all, OUT/DATE.log has the ends of all outputs, and all three are
# written anew after each part.
# Exit status: 0 if none failed.
#
# On a machine that is lent for ten minutes at a time: `--total 540`, then the
# command in the last line, with the same build tree, or with --pack again.
#
# A machine needs bash, a C compiler, make, CUDA 13 and Python; PyTorch for
# ceilings and its own times.  Slurm, PMIx, UCX and HDF5 are left out where they
# are absent; jansson, xxHash, oneDNN, cmocka and UCX come from --pack where they
# are.
set -u
export LC_ALL=C

here=$(cd "$(dirname "$0")" && pwd)
top=$(dirname "$here")
build=$top/build-gpu backend=cuda out=$here/results/gpu pack= models=124m
limit= total=0 inner=
all="build facts ops step repeat gpt2 ranks shards kernels autotune cudnn calibrate losses graphs nccl ckpt llama ceilings sanitize"
parts=()

die()
{
    echo "gpu.sh: $*" >&2
    exit 2
}

while [ $# -gt 0 ]; do
    case $1 in
    --builddir) build=$2; shift ;;
    --backend) backend=$2; shift ;;
    --out) out=$2; shift ;;
    --pack) pack=$2; shift ;;
    --models) models=$2; shift ;;
    --limit) limit=$2; shift ;;
    --total) total=$2; shift ;;
    --inner) inner=$2; shift ;;
    -h | --help) sed -n '3,/^set -u/s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) die "unknown option $1" ;;
    *) parts+=("$1") ;;
    esac
    shift
done
[ ${#parts[@]} -gt 0 ] || read -ra parts <<<"$all"
case $backend in cuda | fake) ;; *) die "--backend $backend: cuda or fake" ;; esac
few=8 # steps of runs that are held against each other
[ "$backend" = cuda ] || few=3

absolute()
{
    mkdir -p "$1" && (cd "$1" && pwd)
}

# --- pack: on a machine that has the libraries, for one that has not ----------

# copy_library NAME HEADER..: libNAME as the linker finds it, and headers
copy_library()
{
    local so soname

    so=$(${CC:-gcc} -print-file-name="lib$1.so")
    [ -e "$so" ] || die "there is no lib$1.so here"
    soname=$(readelf -d "$so" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
    cp -L "$so" "$to/lib/$soname"
    # no link: not everything that copies a folder keeps them
    echo "INPUT(-l:$soname)" >"$to/lib/lib$1.so"
    shift
    for header in "$@"; do
        (cd /usr/include && cp -rL --parents $header "$to/include/")
    done
}

make_pack()
{
    local opencl ucx

    to=$(absolute "$1") || exit 1
    mkdir -p "$to/include" "$to/lib"
    copy_library jansson jansson.h
    cp -L "$(find /usr/include -name jansson_config.h | head -1)" "$to/include/"
    copy_library xxhash xxhash.h xxh3.h
    copy_library dnnl oneapi
    copy_library cmocka cmocka.h
    # UCX's transports over shared memory and TCP are in its libraries
    for ucx in ucp uct ucs ucm; do
        copy_library $ucx $ucx
    done
    copy_library numa
    # Debian's oneDNN is linked to it
    opencl=$(ldd "$to"/lib/libdnnl.so.* | sed -n 's/.*=> \(.*libOpenCL[^ ]*\).*/\1/p')
    [ -z "$opencl" ] || cp -L "$opencl" "$to/lib/"
    make -s -C "$build" dist-gzip >/dev/null || die "make dist failed in $build"
    cp "$build"/merak-*.tar.gz "$to/"
    git -C "$top" describe --always --dirty >"$to/commit"
    du -sh "$to"
}

if [ "${parts[0]}" = pack ]; then
    [ ${#parts[@]} -eq 2 ] || die "pack needs a directory"
    make_pack "${parts[1]}"
    exit 0
fi

# --- what all parts share -----------------------------------------------------

has_gpu()
{
    [ -e /dev/nvidiactl ] || nvidia-smi -L >/dev/null 2>&1
}
if [ "$backend" = cuda ] && ! has_gpu; then
    echo "gpu.sh: skipped: there is no GPU here (/dev/nvidiactl); --backend fake tests the script"
    exit 0
fi

out=$(absolute "$out") || exit 1
build=$(absolute "$build") || exit 1
work=$(absolute "$build/gpu") || exit 1
# What was built with a pack needs its libraries.
[ -n "$pack" ] || pack=$(cat "$work/pack" 2>/dev/null)
[ -z "$pack" ] || pack=$(cd "$pack" && pwd) || die "there is no such pack"
[ -z "$pack" ] || echo "$pack" >"$work/pack"
python=$(command -v python3)
merak=$build/cmd/merak
trainer=("$merak" train)
tests=$build/tests/unit
[ -z "$pack" ] || export LD_LIBRARY_PATH=$pack/lib:${LD_LIBRARY_PATH:-}
export MERAK_TEST_BACKEND=$backend

# wheel FILE: the directory of Python's nvidia packages that has this file
wheel()
{
    $python - "$1" <<'END'
import glob, os, site, sys
for root in site.getsitepackages():
    for so in glob.glob(os.path.join(root, "nvidia", sys.argv[1])):
        print(os.path.dirname(so))
        raise SystemExit
END
}

# CUDA's libraries and headers may be in Python's packages alone.
wheels=$(wheel "*/lib/libcublasLt.so.*")
wheels=${wheels%/lib}
cuda=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")")")
if [ ! -e "$cuda/lib64/libcublasLt.so.13" ] && [ -n "$wheels" ]; then
    export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}:$wheels/lib
fi

# So may cuDNN, which compiles with the toolkit's nvrtc.
cudnn=$(wheel cudnn/lib/libcudnn.so.9)
if ! ldconfig -p | grep -q libcudnn.so.9 && [ -n "$cudnn" ]; then
    export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$cudnn:$cuda/lib64${wheels:+:$wheels/lib}
fi

# The same for NCCL.
nccl=$(wheel nccl/lib/libnccl.so.2)
if ! ldconfig -p | grep -q libnccl.so.2 && [ -n "$nccl" ]; then
    export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$nccl
fi

# Parts say these; skip ends them.
figure() # NAME VALUE
{
    echo "= $1 $2"
}
skip()
{
    echo "skipped: $*"
    exit 77
}
needs_gpu()
{
    [ "$backend" = cuda ] || skip "needs a GPU"
}
has_torch()
{
    # importing it takes seconds
    $python -c 'import importlib.util as u; exit(u.find_spec("torch") is None)'
}
needs_torch()
{
    has_torch || skip "$python has no PyTorch"
}
needs_build()
{
    [ -x "$merak" ] || skip "part build comes first"
}

# --- parts --------------------------------------------------------------------

# found HEADER: can a program include it?
found()
{
    echo "#include <$1>" | ${CC:-gcc} -E ${2:-} - >/dev/null 2>&1
}

part_build()
{
    local source=$top jobs option=()

    jobs=$(nproc)
    if [ ! -x "$source/configure" ] && [ -n "$pack" ]; then
        tar -C "$build" -xzf "$pack"/merak-*.tar.gz || return 1
        source=$(echo "$build"/merak-*/)
    elif [ ! -x "$source/configure" ]; then
        command -v autoreconf || { echo "no autotools: use --pack"; return 1; }
        (cd "$source" && ./autogen.sh) || return 1
    fi
    option=(--without-spank)
    found pmix.h "$(pkg-config --cflags pmix 2>/dev/null)" ||
        option+=(--without-pmix)
    if [ -e "$pack/include/ucp/api/ucp.h" ]; then
        option+=("--with-ucx=$pack")
    elif ! found ucp/api/ucp.h; then
        option+=(--without-ucx)
    fi
    found hdf5.h "$(pkg-config --cflags hdf5-serial 2>/dev/null)" ||
        option+=(--without-hdf5)
    found zlib.h || option+=(--without-zlib)
    found zstd.h || option+=(--without-zstd)
    if [ -n "$pack" ]; then
        option+=("--with-jansson=$pack" "--with-xxhash=$pack"
            "--with-onednn=$pack" CMOCKA_CFLAGS="-I$pack/include"
            CMOCKA_LIBS="-L$pack/lib -lcmocka")
    fi
    if [ "$backend" = cuda ]; then
        option+=(--with-cuda="$cuda" --with-cuda-arch="$(gpu_arch)")
        [ -e "$cuda/include/cublasLt.h" ] || option+=(CPPFLAGS="-isystem $wheels/include")
    else
        option+=(--without-cuda)
    fi
    [ -e "$build/Makefile" ] ||
        (cd "$build" && "$source/configure" "${option[@]}") || return 1
    make -C "$build" -j"$jobs" || make -C "$build" -j"$jobs" NVCC_WERROR= ||
        return 1
    make -C "$build/tests" -j"$jobs" unit/accel_kernels.t unit/step.t \
        unit/nccl_alone.t && make -C "$build/bench" kernels || return 1
    if grep -q '^#define HAVE_UCX 1' "$build/config.h"; then
        make -C "$build/tests" unit/forked_train || return 1
    fi
    figure commit "$(commit)"
}

commit()
{
    cat "${pack:-none}/commit" 2>/dev/null ||
        git -C "$top" describe --always --dirty 2>/dev/null || echo unknown
}

gpu_arch()
{
    case $(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1) in
    9.0) echo 90a ;;
    10.*) echo 100 ;;
    *) echo 80 ;;
    esac
}

part_facts()
{
    local field value

    needs_gpu
    needs_build
    for field in name driver_version power.limit clocks.max.sm clocks.max.mem \
        memory.total ecc.mode.current mig.mode.current; do
        value=$(nvidia-smi --query-gpu=$field --format=csv,noheader | head -1)
        figure "$field" "$value"
    done
    nvidia-smi
    figure nvcc "$("$cuda/bin/nvcc" --version | sed -n 's/.*release \([^,]*\).*/\1/p')"
    $python -c 'import torch; print("= torch", torch.__version__)' || true
    small_train "$work/one-step" "$backend" --steps 1 || return 1
    figure merak "$(sed -n 's/.*backend cuda: \(GPU.*\)/\1/p' "$work/one-step.log")"
}

part_ceilings()
{
    needs_gpu
    needs_torch
    $python "$here/gpu_pytorch.py" ceilings | tee "$work/ceilings.json" || return 1
    figures "$work/ceilings.json" copy_gb_per_s bf16_tflops fp32_tflops
}

# figures FILE KEY..: of the last line of JSON
figures()
{
    $python - "$@" <<'END'
import json, sys
last = json.loads(open(sys.argv[1]).read().strip().splitlines()[-1])
for key in sys.argv[2:]:
    print("=", key, f"{last[key]:.5g}")
END
}

# run_ops FILE: the test of kernels, its output as it comes, also in FILE
run_ops()
{
    stdbuf -oL "$tests/accel_kernels.t" 2>&1 | tee "$1"
    return "${PIPESTATUS[0]}"
}

# Kernels against ref, twice for bits, on shapes drawn anew.  A kernel that
# breaks the device ends the process: then every op has one of its own.
part_ops()
{
    local rc op

    needs_build
    export MERAK_TEST_SEED=${MERAK_TEST_SEED:-$RANDOM}
    figure seed "$MERAK_TEST_SEED"
    run_ops "$work/ops.tap"
    rc=$?
    figure passed "$(grep -c '^ok' "$work/ops.tap")"
    figure failed "$(grep -cE '^not ok|^Bail out' "$work/ops.tap")"
    grep '^Bail out' "$work/ops.tap" || return $rc
    # the shapes of every seed: those that are drawn take the reference longest
    unset MERAK_TEST_SEED
    export work tests
    sed -n 's/^ *OP(\([a-z_0-9]*\),.*/\1/p' \
        "$top/kernels/ops.h" | xargs -P 8 -I {} bash -c '
        MERAK_TEST_OP={} timeout --foreground 60 "$tests/accel_kernels.t" \
            >"$work/ops-{}.tap" 2>&1 || {
            echo "= {} FAILED"
            grep -E "^not ok|^Bail out|got .*, want" "$work/ops-{}.tap" | head -n 8
        }'
    return $rc
}

# Attention by cuDNN: against ref, twice for bits, in steps, and how fast it is.
part_cudnn()
{
    local rc failed=0 kernel

    needs_gpu
    needs_build
    export MERAK_CUDA_ATTENTION=cudnn MERAK_TEST_SEED=${MERAK_TEST_SEED:-$RANDOM}
    rc=0
    : >"$work/cudnn.tap"
    for kernel in attention attention_packed attention_dx attention_packed_dx; do
        MERAK_TEST_OP=$kernel run_ops "$work/cudnn-$kernel.tap" || rc=1
        cat "$work/cudnn-$kernel.tap" >>"$work/cudnn.tap"
    done
    figure failed "$(grep -cE '^not ok|^Bail out' "$work/cudnn.tap")"
    figure shapes "$(grep -c ': cuDNN .*engine' "$work/cudnn.tap")"
    figure refused "$(grep -c ": Merak's own kernel" "$work/cudnn.tap")"
    grep -q ': cuDNN .*engine' "$work/cudnn.tap" ||
        { echo "cuDNN had no shape"; return 1; }
    small_train "$work/once" "$backend" --steps 8 --dtype bf16 &&
        grep ': cuDNN' "$work/once.log" &&
        small_train "$work/twice" "$backend" --steps 8 --dtype bf16 &&
        compare "$work/once" "$work/twice" 0 &&
        small_train "$work/cpu-cudnn" cpu --steps 8 --dtype bf16 &&
        compare "$work/once" "$work/cpu-cudnn" 3e-2 || failed=1
    for kernel in own cudnn; do
        MERAK_CUDA_ATTENTION=$kernel "$build/bench/kernels" bf16 2 16 1024 \
            "$backend" attention >"$work/attention-$kernel" || return 1
        cat "$work/attention-$kernel"
        figure "${kernel}_forward_ms" \
            "$(awk '$1 == "attention_packed" {print $2}' "$work/attention-$kernel")"
        figure "${kernel}_backward_ms" \
            "$(awk '$1 == "attention_packed_dx" {print $2}' "$work/attention-$kernel")"
    done
    [ $rc -eq 0 ] && [ $failed -eq 0 ]
}

part_sanitize()
{
    local tool model options failed=0

    needs_gpu
    needs_build
    command -v compute-sanitizer >/dev/null || PATH=$PATH:$cuda/bin
    command -v compute-sanitizer >/dev/null || skip "no compute-sanitizer"
    make_data
    # a Llama in fp32 has what a GPT-2 in bf16 has not
    for model in "small bf16" "llama fp32"; do
        options=(--model "$work/${model% *}.json" --dtype "${model#* }")
        for tool in memcheck racecheck initcheck synccheck; do
            if timeout --foreground 80 "$build/libtool" --mode=execute \
                compute-sanitizer --tool $tool --error-exitcode 9 "$merak" train \
                "${options[@]}" --data "$work/data" --seq 33 --steps 2 \
                --global-batch 2 --micro-batch 1 --eval-samples 0 \
                --backend cuda; then
                figure "$tool" clean
            else
                figure "$tool" "FAILED ($?, $model)"
                failed=1
            fi
        done
    done
    return $failed
}

# Random bytes, and models: dropout in the small one.
make_data()
{
    [ -e "$work/experts.json" ] && return
    head -c 300000 /dev/urandom >"$work/bytes"
    "$merak" data pack --tokenizer byte --out "$work/data" "$work/bytes" || exit 1
    cat >"$work/small.json" <<END
{"model_type": "gpt2", "n_embd": 128, "n_layer": 3, "n_head": 4,
 "n_positions": 128, "vocab_size": 257, "activation_function": "gelu_new",
 "embd_pdrop": 0.1, "resid_pdrop": 0.1, "attn_pdrop": 0.0,
 "tie_word_embeddings": true}
END
    cat >"$work/llama.json" <<END
{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
 "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
 "intermediate_size": 96, "vocab_size": 257, "rms_norm_eps": 1e-5,
 "max_position_embeddings": 128, "rope_theta": 10000.0, "hidden_act": "silu",
 "tie_word_embeddings": false}
END
    cat >"$work/experts.json" <<END
{"model_type": "qwen3_moe", "hidden_size": 64, "num_hidden_layers": 3,
 "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
 "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48,
 "intermediate_size": 96, "norm_topk_prob": true, "vocab_size": 257,
 "rms_norm_eps": 1e-6, "max_position_embeddings": 128, "rope_theta": 10000.0,
 "hidden_act": "silu", "tie_word_embeddings": false}
END
}

# small_train NAME BACKEND [OPTION]..: metrics in NAME.jsonl, the rest in
# NAME.log; $model.json by $trainer
model=small
small_train()
{
    local name=$1 on=$2

    shift 2
    make_data
    rm -f "$name.jsonl"
    "${trainer[@]}" --model "$work/$model.json" --data "$work/data" --seq 96 \
        --global-batch 8 --micro-batch 2 --eval-samples 0 --lr 1e-3 \
        --backend "$on" --deadline 60 --metrics "$name.jsonl" "$@" \
        >"$name.log" 2>&1 && return
    cat "$name.log"
    [ "$on" = cpu ] || [ -n "${MERAK_ACCEL_SYNC-}" ] && return 1
    # once more with a wait after each instruction, which names the first to fail
    rm -f "$name.jsonl"
    MERAK_ACCEL_SYNC=1 small_train "$name" "$on" "$@" >"$work/synchronous" 2>&1
    echo "--- with MERAK_ACCEL_SYNC=1:"
    tail -n 20 "$work/synchronous"
    return 1
}

# compare A B TOLERANCE: losses and norms of two runs; 0: to the bit
compare()
{
    $python - "$@" <<'END'
import json, sys
a, b = ([json.loads(x) for x in open(f + ".jsonl")] for f in sys.argv[1:3])
tolerance = float(sys.argv[3])
key = "loss", next(k for k in a[0] if "norm" in k)
worst = max((abs(x[k] - y[k]) / abs(y[k]) for x, y in zip(a, b) for k in key),
            default=9)
print(f"{len(a)} and {len(b)} steps, largest relative difference {worst:.3g}, "
      f"at most {tolerance:.3g}")
print("= difference", f"{worst:.3g}")
sys.exit(len(a) != len(b) or not worst <= tolerance)
END
}

# Losses, every gradient and AdamW steps against another implementation's, and
# 20 steps against the CPU's.
part_step()
{
    local failed=0

    needs_build
    "$tests/step.t" || failed=1
    for dtype in fp32 bf16; do
        small_train "$work/cpu-$dtype" cpu --steps 20 --dtype $dtype || return 1
        small_train "$work/gpu-$dtype" "$backend" --steps 20 --dtype $dtype ||
            return 1
        # bf16 rounds what it hands on, and sums differ in their order
        compare "$work/gpu-$dtype" "$work/cpu-$dtype" \
            $([ $dtype = fp32 ] && echo 2e-4 || echo 3e-2) || failed=1
    done
    return $failed
}

# Two runs, and activations computed again, give the same bits; the word that
# asks for it may differ, the losses not.
part_repeat()
{
    local failed=0 dtype

    needs_build
    for dtype in fp32 bf16; do
        small_train "$work/once" "$backend" --steps 8 --dtype $dtype &&
            small_train "$work/twice" "$backend" --steps 8 --dtype $dtype &&
            small_train "$work/again" "$backend" --steps 8 --dtype $dtype \
                --recompute full &&
            compare "$work/once" "$work/twice" 0 &&
            compare "$work/once" "$work/again" 0 || failed=1
    done
    return $failed
}

# Several ranks on the one GPU, which exchange by way of the host: the losses of
# one rank of the CPU, and the same bits again; stages have those of one rank.
part_ranks()
{
    local failed=0 dtypes="fp32 bf16" dtype layout name
    local layouts=("2 --pp 2" "2 --tp 2" "4 --tp 2 --pp 2" "2 --dp 2")

    needs_build
    [ -x "$tests/forked_train" ] || skip "built without UCX"
    [ "$backend" = cuda ] || { dtypes=fp32 layouts=("2 --pp 2" "4 --tp 2 --pp 2"); }
    for dtype in $dtypes; do
        trainer=("$merak" train)
        small_train "$work/cpu-$dtype" cpu --steps $few --dtype $dtype &&
            small_train "$work/alone" "$backend" --steps $few --dtype $dtype ||
            return 1
        for layout in "${layouts[@]}"; do
            echo "--- $dtype, ranks $layout"
            trainer=("$tests/forked_train" "${layout%% *}")
            for name in once twice; do
                # word by word
                small_train "$work/$name" "$backend" --steps $few --dtype $dtype \
                    ${layout#* } || return 1
            done
            tail -n 3 "$work/once.log"
            compare "$work/once" "$work/cpu-$dtype" \
                $([ $dtype = fp32 ] && echo 2e-4 || echo 3e-2) || failed=1
            compare "$work/once" "$work/twice" 0 || failed=1
            [ "$layout" != "2 --pp 2" ] ||
                compare "$work/once" "$work/alone" 0 || failed=1
        done
    done
    return $failed
}

# What cuts parameters, positions and experts over ranks, and what goes to the
# host's memory: the losses of one rank of the CPU.  A copy to the host and back
# changes no bit.
part_shards()
{
    local failed=0 dtypes="fp32 bf16" dtype layout way device=()
    local ways="none acts all"
    local layouts=("small 2 --zero 2" "small 2 --zero 3" "llama 2 --cp 2"
        "llama 2 --cp 2 --cp-form heads" "experts 1" "experts 2 --ep 2"
        "experts 2 --ep 2 --ep-form exchange"
        "experts 2 --ep 2 --ep-form exchange --expert-room 30"
        "small 2 --zero 3 --recompute full --offload all")

    needs_build
    [ -x "$tests/forked_train" ] || skip "built without UCX"
    if [ "$backend" != cuda ]; then
        # the tests of each have its other forms
        dtypes=fp32 ways="none acts" device=(--device "$work/host.json")
        layouts=("llama 2 --cp 2"
            "experts 2 --ep 2 --ep-form exchange --expert-room 30")
        echo '{"name": "host", "ranks_per_node": 1, "memory_bytes": 4e9,
            "flops_per_s": {"f32": 1e11, "bf16": 1e11}, "bytes_per_s": 1e10,
            "kernel_s": 2e-6,
            "host": {"memory_bytes": 1e9, "bytes_per_s": 1e9, "latency_s": 1e-5},
            "link": {"bytes_per_s": 5e9, "latency_s": 5e-6}}' >"$work/host.json"
    fi
    for dtype in $dtypes; do
        trainer=("$merak" train)
        for model in small llama experts; do
            small_train "$work/cpu-$model" cpu --steps $few --dtype $dtype ||
                return 1
        done
        for layout in "${layouts[@]}"; do
            echo "--- $dtype, $layout"
            set -- $layout
            model=$1
            trainer=("$tests/forked_train" "$2")
            shift 2
            small_train "$work/once" "$backend" --steps $few --dtype $dtype \
                "${device[@]}" "$@" &&
                compare "$work/once" "$work/cpu-$model" \
                    $([ $dtype = fp32 ] && echo 2e-4 || echo 3e-2) || failed=1
        done
        model=llama
        trainer=("$merak" train)
        for way in $ways; do
            echo "--- $dtype, --offload $way"
            small_train "$work/$way" "$backend" --steps $few --dtype $dtype \
                "${device[@]}" --recompute full --offload $way &&
                compare "$work/$way" "$work/none" 0 || failed=1
        done
    done
    return $failed
}

# A run that is saved on one backend and goes on on the other.
part_ckpt()
{
    local failed=0 from to

    needs_build
    grep -q '^#define HAVE_HDF5 1' "$build/config.h" ||
        skip "built without HDF5"
    for from in cpu "$backend"; do
        to=$([ "$from" = cpu ] && echo "$backend" || echo cpu)
        rm -rf "$work/ckpt"
        small_train "$work/whole" "$from" --steps 6 &&
            small_train "$work/first" "$from" --steps 6 --ckpt "$work/ckpt" \
                --ckpt-every 3 &&
            rm -rf "$work/ckpt/step-00000006" &&
            small_train "$work/rest" "$to" --steps 6 --ckpt "$work/ckpt" \
                --resume must || return 1
        tail -n 3 "$work/whole.jsonl" >"$work/tail.jsonl"
        compare "$work/rest" "$work/tail" 2e-4 || failed=1
    done
    return $failed
}

# Stretches that are repeated by one call: the bits of a run without, and what
# they are worth.
part_graphs()
{
    local failed=0 dtype

    needs_build
    for dtype in fp32 bf16; do
        small_train "$work/no-graphs" "$backend" --steps $few --dtype $dtype &&
            MERAK_ACCEL_GRAPHS=1 small_train "$work/with-graphs" "$backend" \
                --steps $few --dtype $dtype &&
            compare "$work/with-graphs" "$work/no-graphs" 0 || failed=1
    done
    [ "$backend" = cuda ] || return $failed
    make_words
    model_json 124m
    merak_rate 124m 4 1024 30 gpt2_plain || return 1
    MERAK_ACCEL_GRAPHS=1 merak_rate 124m 4 1024 30 gpt2_graphs || return 1
    return $failed
}

# 20 losses of GPT-2 124M against PyTorch's in f32: the same first weights, and
# as many samples as a batch has, so that their order means nothing.
part_losses()
{
    local model=124m seq=256 steps=20 device=cuda dtype failed=0

    needs_build
    needs_torch
    [ "$backend" = cuda ] || { model=tiny seq=32 steps=6 device=cpu; }
    model_json $model
    rm -rf "$work/first"
    $python "$here/gpu_pytorch.py" losses --model "$work/model-$model.json" \
        --folder "$work/first" --batch 4 --seq $seq --steps $steps \
        --device $device >"$work/torch.jsonl" || return 1
    for dtype in fp32 bf16; do
        rm -f "$work/losses.jsonl"
        "$merak" train --model "$work/first/config.json" \
            --init-from "$work/first" --data "$work/first/words" \
            --valid-fraction 0 --eval-samples 0 --seq $seq --micro-batch 2 \
            --global-batch 4 --steps $steps --lr 1e-4 --lr-schedule constant \
            --dtype $dtype --backend "$backend" \
            --metrics "$work/losses.jsonl" || return 1
        $python - "$work/torch.jsonl" "$work/losses.jsonl" $dtype <<'END' || failed=1
import json, sys
torch, ours = ([json.loads(x)["loss"] for x in open(f)] for f in sys.argv[1:3])
worst = max(abs(a - b) / b for a, b in zip(ours, torch))
tolerance = {"fp32": 2e-4, "bf16": 2e-2}[sys.argv[3]]
print("ours", *(f"{x:.5f}" for x in ours))
print("PyTorch's", *(f"{x:.5f}" for x in torch))
print("=", "losses_" + sys.argv[3], f"{worst:.3g}")
sys.exit(len(ours) != len(torch) or not worst <= tolerance)
END
    done
    return $failed
}

part_kernels()
{
    local B=16 T=1024 dtype

    needs_build
    [ "$backend" = cuda ] || { B=1 T=32; }
    for dtype in bf16 f32; do
        "$build/bench/kernels" $dtype 2 $B $T "$backend" >"$work/kernels-$dtype" ||
            return 1
        echo "kernel ms ms times sum sum GB/s GFLOP/s"
        cat "$work/kernels-$dtype"
        figure "step_of_kernels_ms_$dtype" \
            "$(sed -n 's/.*kernels of a step: \([0-9.]*\) s.*/\1/p' "$work/kernels-$dtype" |
                awk '{print 1000 * $1}')"
    done
}

model_json() # NAME
{
    local layers width heads

    case $1 in
    124m) layers=12 width=768 heads=12 ;;
    774m) layers=36 width=1280 heads=20 ;;
    1558m) layers=48 width=1600 heads=25 ;;
    tiny) layers=2 width=64 heads=2 ;;
    llama1b)
        cat >"$work/model-$1.json" <<END
{"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16,
 "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
 "intermediate_size": 8192, "vocab_size": 128256, "rms_norm_eps": 1e-5,
 "max_position_embeddings": 8192, "rope_theta": 500000.0,
 "hidden_act": "silu", "tie_word_embeddings": true}
END
        return ;;
    tiny-llama)
        cat >"$work/model-$1.json" <<END
{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
 "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
 "intermediate_size": 128, "vocab_size": 50257, "rms_norm_eps": 1e-5,
 "max_position_embeddings": 1024, "rope_theta": 10000.0,
 "hidden_act": "silu", "tie_word_embeddings": true}
END
        return ;;
    *) die "no model $1: 124m, 774m, 1558m" ;;
    esac
    cat >"$work/model-$1.json" <<END
{"model_type": "gpt2", "n_embd": $width, "n_layer": $layers, "n_head": $heads,
 "n_positions": 1024, "vocab_size": 50257, "activation_function": "gelu_new",
 "embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0,
 "tie_word_embeddings": true}
END
}

# Random tokens of GPT-2's vocabulary.
make_words()
{
    local n=2000000

    [ -e "$work/words.bin" ] && return
    [ "$backend" = cuda ] || n=20000
    PYTHONPATH=$here $python -c "
import gpt2
gpt2.write_tokens('$work/words', $n)"
}

# mfu MODEL T TOKENS_PER_S: model FLOPs as a percentage of an H100's or H200's
# 989 TFLOP/s (bf16, dense), with attention's as in PaLM
mfu()
{
    $python - "$work/model-$1.json" "$2" "$3" <<'END'
import json, sys
c = json.load(open(sys.argv[1]))
if c["model_type"] == "gpt2":
    layers, width, vocab = c["n_layer"], c["n_embd"], c["vocab_size"]
    heads = width
    layer = 12 * width ** 2 + 13 * width
    n = (vocab + c["n_positions"] + 2) * width + layers * layer
else:
    layers, width, vocab = c["num_hidden_layers"], c["hidden_size"], c["vocab_size"]
    heads = c["num_attention_heads"] * c["head_dim"]
    kv = c["num_key_value_heads"] * c["head_dim"]
    layer = width * (2 * heads + 2 * kv + 3 * c["intermediate_size"] + 2)
    n = (vocab + 1) * width + layers * layer
flops = 6 * n + 12 * layers * heads * int(sys.argv[2])
print(f"{flops * float(sys.argv[3]) / 989e12 * 100:.1f}")
END
}

# merak_rate MODEL B T STEPS [NAME [OPTION]..]: tokens/s, the median of the last half
merak_rate()
{
    rm -f "$work/rate.jsonl"
    "$merak" train --model "$work/model-$1.json" --data "$work/words" --seq "$3" \
        --micro-batch "$2" --global-batch "$2" --steps "$4" --dtype bf16 \
        --backend "$backend" --eval-samples 0 --deadline 60 \
        --metrics "$work/rate.jsonl" "${@:6}" >"$work/rate.log" 2>&1 ||
        { cat "$work/rate.log"; return 1; }
    grep -v ' step ' "$work/rate.log"
    figure "merak_${5:-$1}_gib" "$(sed -n \
        's/.*: \([0-9.]*\) MiB of the device.*/\1/p' "$work/rate.log" |
        awk '{print $1 / 1024}')"
    $python - "$work/rate.jsonl" "${5:-$1}" <<'END' >"$work/rate" || return 1
import json, statistics, sys
rows = [json.loads(x) for x in open(sys.argv[1])]
late = rows[len(rows) // 2:]
print("losses", *(f"{x['loss']:.4f}" for x in rows[:20]))
print("=", "merak_" + sys.argv[2],
      f"{statistics.median(x['tokens_per_s'] for x in late):.0f}")
END
    cat "$work/rate"
    [ "$backend" != cuda ] || figure "merak_${5:-$1}_mfu" \
        "$(mfu "$1" "$3" "$(awk '/^= / {print $3}' "$work/rate")")"
}

# torch_rate MODEL B T OPTION..: its failure is a figure, not the part's
torch_rate()
{
    local name=$1 B=$2 T=$3 rc

    shift 3
    timeout --foreground 200 $python "$here/gpu_pytorch.py" train \
        --model "$work/model-$name.json" --batch "$B" --seq "$T" "$@" \
        >"$work/torch.json"
    rc=$?
    if [ $rc -ne 0 ]; then
        figure "pytorch_$name $*" "FAILED ($rc)"
        return
    fi
    cat "$work/torch.json"
    $python - "$work/torch.json" "$name" <<'END' >"$work/rate"
import json, sys
x = json.loads(open(sys.argv[1]).read().splitlines()[-1])
name = f"pytorch_{sys.argv[2]}_{x['compile']}_{x['weights']}_{x['attention']}"
print("=", name, f"{x['tokens_per_s']:.0f}")
print("=", name + "_gib", f"{x['peak_gib']:.3f}")
END
    cat "$work/rate"
    figure "$(awk 'NR == 1 {print $2}' "$work/rate")_mfu" \
        "$(mfu "$name" "$T" "$(awk 'NR == 1 {print $3}' "$work/rate")")"
}

# Whole steps, Merak and PyTorch in turn.
part_gpt2()
{
    local model attention

    needs_build
    make_words
    if [ "$backend" != cuda ]; then
        model_json tiny
        merak_rate tiny 1 64 4
        return
    fi
    for model in ${models//,/ }; do
        model_json "$model"
        merak_rate "$model" 16 1024 40 || return 1
        MERAK_CUDA_ATTENTION=cudnn merak_rate "$model" 16 1024 40 \
            "${model}_cudnn" || figure "merak_${model}_cudnn" FAILED
        has_torch || continue
        torch_rate "$model" 16 1024 --compile default --weights autocast \
            --attention flash
        merak_rate "$model" 16 1024 40 || return 1
        for attention in flash cudnn; do
            torch_rate "$model" 16 1024 --compile default --weights bf16 \
                --attention $attention
        done
    done
}

# PyTorch's other compile modes, each with minutes of tuning.
part_autotune()
{
    local mode

    needs_gpu
    needs_build
    needs_torch
    make_words
    model_json 124m
    merak_rate 124m 16 1024 40 || return 1
    for mode in max-autotune max-autotune-no-cudagraphs; do
        torch_rate 124m 16 1024 --compile $mode --weights bf16 --attention flash
    done
}

# Llama 3.2 1B's sizes.
part_llama()
{
    needs_build
    make_words
    if [ "$backend" != cuda ]; then
        model_json tiny-llama
        merak_rate tiny-llama 1 64 4
        return
    fi
    model_json llama1b
    merak_rate llama1b 4 2048 30 || return 1
    has_torch || return 0
    torch_rate llama1b 4 2048 --compile default --weights autocast
    merak_rate llama1b 4 2048 30 || return 1
    torch_rate llama1b 4 2048 --compile default --weights bf16
}

part_calibrate()
{
    needs_gpu
    needs_build
    model_json 124m
    make_words
    merak_rate 124m 16 1024 30 untuned || return 1
    # all models and rounds take a quarter of an hour
    "$merak" calibrate --backend "$backend" --model "$work/model-124m.json" \
        --quick --micro-batch 16 --out "$out/device.json" || return 1
    merak_rate 124m 16 1024 30 tuned --device "$out/device.json" || return 1
    "$merak" plan --model "$work/model-124m.json" --device "$out/device.json" \
        --micro-batch 16 --global-batch 16 --seq 1024 --dtype bf16 \
        --json "$work/plan.json" >"$work/plan" || return 1
    $python - "$work/plan.json" "$work/rate.jsonl" <<'END'
import json, statistics, sys
predicted = json.load(open(sys.argv[1]))["predicted"]["step_s"]
rows = [json.loads(x)["step_s"] for x in open(sys.argv[2])]
off = 100 * (predicted / statistics.median(rows[len(rows) // 2:]) - 1)
print("= predicted_off_percent", f"{off:.1f}")
sys.exit(not abs(off) <= 10)
END
}

# A communicator of one rank: opened, used, left and aborted for real.
part_nccl()
{
    needs_gpu
    needs_build
    [ -x "$tests/nccl_alone.t" ] || skip "built without part build"
    stdbuf -oL "$tests/nccl_alone.t"
}

# --- the run ------------------------------------------------------------------

if [ -n "$inner" ]; then
    "part_$inner"
    exit
fi
for part in "${parts[@]}"; do
    declare -F "part_$part" >/dev/null || die "no part $part: $all"
done
# A run of some parts is of a build that is there, or it makes one.
if [ ! -x "$merak" ] && [[ " ${parts[*]} " != *" build "* ]]; then
    parts=(build "${parts[@]}")
fi
failed=0 begun=$SECONDS stamp=$(date -u +%Y%m%d-%H%M%S)-$backend left=() child=
: >"$work/status"
{
    echo "commit|$(commit)"
    [ "$backend" != cuda ] ||
        nvidia-smi --query-gpu=name,driver_version,power.limit \
            --format=csv,noheader | head -1 |
        sed -E 's/(.*), (.*), (.*)/gpu|\1\ndriver|\2\npower limit|\3/'
} >"$work/about"

report()
{
    local log

    : >"$out/$stamp.log"
    while IFS='|' read -r log _; do
        echo "===== $log"
        tail -c 200000 "$work/$log.log"
    done <"$work/status" >>"$out/$stamp.log"
    $python "$here/gpu_report.py" "$work" "$out" "$stamp"
}

# Whoever ends this script gets the table of what there is.
stopped()
{
    if [ -n "$child" ]; then
        kill "$child" 2>/dev/null
        echo "$part|FAILED (stopped)|$((SECONDS - start))" >>"$work/status"
    fi
    report
    exit 1
}
trap stopped TERM INT HUP

# left PART WHY: it is not run
left()
{
    : >"$work/$1.log"
    printf '%-10s %-10s %5d s  %s\n' "$1" left 0 "$2"
    echo "$1|left ($2)|0" >>"$work/status"
    left+=("$1")
}

# A hang must not take the time of all other parts.
limit_of()
{
    case $1 in
    # the reference is one thread's; a seed's shapes may take it two minutes
    ops) echo "${limit:-300}" ;;
    step | repeat | ckpt | nccl | facts) echo "${limit:-150}" ;;
    *) echo "${limit:-470}" ;;
    esac
}

for part in "${parts[@]}"; do
    start=$SECONDS most=$(limit_of "$part")
    allowed=$most why="over $most s"
    if [ "$total" -gt 0 ]; then
        rest=$((total - (start - begun)))
        # nothing is known after so little
        if [ "$rest" -lt 20 ]; then
            left "$part" "no time"
            continue
        fi
        if ((rest < ${most%.*})); then
            most=$rest why="over the $total s of all"
        fi
    fi
    timeout -k 10 "$most" bash "$0" --builddir "$build" --backend "$backend" \
        --out "$out" ${pack:+--pack "$pack"} --models "$models" \
        --inner "$part" >"$work/$part.log" 2>&1 &
    child=$!
    wait "$child"
    rc=$?
    child=
    case $rc in
    0) word=ok ;;
    77) word=skipped ;;
    124 | 137) word="FAILED ($why)" failed=1 ;;
    *) word=FAILED failed=1 ;;
    esac
    printf '%-10s %-10s %5d s  %s\n' "$part" "$word" $((SECONDS - start)) \
        "$(sed -n 's/^skipped: //p; s/^= \(.*\)/\1;/p' "$work/$part.log" | tr '\n' ' ')"
    echo "$part|$word|$((SECONDS - start))" >>"$work/status"
    if [ "$word" != ok ] && [ $rc -ne 77 ]; then
        tail -n 15 "$work/$part.log" | sed 's/^/    /'
        case $rc in 124 | 137) [ "$most" = "$allowed" ] || left+=("$part") ;; esac
        [ "$part" != build ] || break
    fi
    report >/dev/null
done
report || failed=1
[ ${#left[@]} -eq 0 ] ||
    echo "gpu.sh: to go on: $0 --builddir $build --backend $backend --out $out" \
        "${pack:+--pack $pack }--models $models --total $total ${left[*]}"
exit $failed
