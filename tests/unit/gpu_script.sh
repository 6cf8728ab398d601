#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# gpu_script.sh - bench/gpu.sh without a GPU: it says so, and its parts run on
# the fake device
#
# Run from the build directory of tests/.

set -u
export LC_ALL=C
# the fake device has a thread of its own: others would spin for its core
export SLURM_CPUS_PER_TASK=1

gpu=$(dirname "$0")/../../bench/gpu.sh
. "$(dirname "$0")/tap.sh"

tmp=$(mktemp -d) || exit 1
# where the script works, unless somebody's results are there
[ -e ../gpu ] && made= || made=../gpu
trap 'rm -rf "$tmp" $made' EXIT

run()
{
    "$gpu" --builddir "$PWD/.." --out "$tmp/out" "$@" >"$tmp/text" 2>&1
}

if [ -e /dev/nvidiactl ]; then
    n=$((n + 1))
    echo "ok $n - without a GPU # SKIP there is one"
else
    run
    [ $? -eq 0 ] && [ "$(wc -l <"$tmp/text")" -eq 1 ] && [ ! -e "$tmp/out" ] &&
        grep -q 'skipped: there is no GPU' "$tmp/text"
    ok $? "without a GPU it says so and does nothing" "$tmp/text"
fi

run --backend fake ceilings gpt2 llama graphs ranks shards calibrate
[ $? -eq 0 ] && grep -Eq '^gpt2 +ok .*merak_tiny [1-9]' "$tmp/text" &&
    grep -Eq '^llama +ok .*merak_tiny-llama [1-9]' "$tmp/text" &&
    grep -Eq '^graphs +ok .*difference 0;.*difference 0;' "$tmp/text" &&
    if grep -q '^#define HAVE_UCX 1' ../config.h; then
        grep -Eq '^ranks +ok .*difference 0;' "$tmp/text" &&
            grep -Eq '^shards +ok .*difference 0;' "$tmp/text"
    else
        grep -Eq '^ranks +skipped .*without UCX' "$tmp/text"
    fi && grep -Eq '^ceilings +skipped .*needs a GPU' "$tmp/text" &&
    grep -Eq '^calibrate +skipped' "$tmp/text"
ok $? "parts run on the fake device, those that need a GPU are left out" \
    "$tmp/text"

python3 -c '
import glob, json, sys
report = json.load(open(glob.glob(sys.argv[1] + "/*.json")[0]))
assert report["backend"] == "fake"
assert report["parts"]["gpt2"]["status"] == "ok"
assert float(report["parts"]["gpt2"]["figures"]["merak_tiny"][0]) > 0
assert report["parts"]["ceilings"]["why"] == "needs a GPU"
' "$tmp/out" 2>"$tmp/text"
ok $? "one file of JSON has the figures" "$tmp/text"

run --backend fake nix
[ $? -eq 2 ] && grep -q 'no part nix: build facts' "$tmp/text"
ok $? "a part that there is not is refused" "$tmp/text"

run --backend fake --limit 0.01 gpt2
[ $? -eq 1 ] && grep -q 'FAILED (over 0.01 s)' "$tmp/text"
ok $? "a part that takes too long fails" "$tmp/text"

# what a part has found is there when another fails, or the time is up
rm -rf "$tmp/out"
run --backend fake --total 1 gpt2 kernels
[ $? -eq 0 ] && grep -Eq '^gpt2 +left .*no time' "$tmp/text" &&
    grep -Eq 'to go on: .*/gpu.sh --builddir .* --total 1 gpt2 kernels' \
        "$tmp/text" &&
    grep -q '| kernels | left (no time) | 0 |' "$tmp"/out/*-fake.md
ok $? "what there is no time for is left, and said" "$tmp/text"

# What parts do that need a GPU, with stand-ins for all that they call: nothing
# is computed, and every figure has to come through.
s=$tmp/stand-ins
mkdir -p "$s/bin" "$s/build/cmd" "$s/build/tests/unit" "$s/build/bench"
cat >"$s/bin/nvidia-smi" <<'END'
#!/bin/bash
case $* in
*name,driver*) echo "NVIDIA None, 580.1, 700 W" ;;
*compute_cap*) echo 9.0 ;;
*--query-gpu*) echo "about $*" ;;
esac
END
cat >"$s/bin/python3" <<END
#!/bin/bash
case \$* in
*find_spec*) ;;
*'import torch'*) [[ \$* != *version* ]] || echo "= torch 2" ;;
*gpu_pytorch.py\ ceilings*)
    echo '{"copy_gb_per_s": 4200, "bf16_tflops": 780, "fp32_tflops": 50}' ;;
*gpu_pytorch.py\ losses*) for i in {1..20}; do echo '{"loss": 4.5}'; done ;;
*gpu_pytorch.py\ train*)
    echo '{"compile": "default", "weights": "bf16", "attention": "flash", "tokens_per_s": 777, "peak_gib": 8}' ;;
*gpt2.write_tokens*) ;;
*) exec $(command -v python3) "\$@" ;;
esac
END
cat >"$s/build/cmd/merak" <<'END'
#!/bin/bash
for ((i = 1; i <= $#; i++)); do
    next=$((i + 1))
    case ${!i} in
    --metrics) metrics=${!next} ;;
    --steps) steps=${!next} ;;
    --json) echo '{"predicted": {"step_s": 0.021}}' >"${!next}" ;;
    --out) out=${!next} ;;
    --resume) resumed=yes ;;
    esac
done
[ -z "${resumed:-}" ] || steps=$((steps / 2))
for ((i = 0; i < ${steps:-0}; i++)); do
    echo '{"loss": 4.5, "grad_norm": 1.5, "tokens_per_s": 1000, "step_s": 0.02}'
done >"${metrics:-/dev/null}"
echo "merak: backend cuda: GPU 0, NVIDIA None"
echo "merak: memory of rank 0: 512.0 MiB of the device, +0.0 %"
[ "$1" != calibrate ] || echo '{}' >"$out"
END
printf '#!/bin/bash\nshift 6\n"$@"\n' >"$s/build/libtool"
printf '#!/bin/bash\necho "ok 1 - well"\n' >"$s/build/tests/unit/step.t"
cp "$s/build/tests/unit/step.t" "$s/build/tests/unit/nccl_alone.t"
# the device breaks in one op, and the others are tried by themselves
cat >"$s/build/tests/unit/accel_kernels.t" <<'END'
#!/bin/bash
case ${MERAK_TEST_OP-all}:${BREAK-} in
all:* | rope:*)
    [ -z "${BREAK-}" ] || { echo "Bail out! rope f32 [1, 2]: it broke"; exit 1; } ;;
esac
echo "ok 1 - well"
echo "attention bf16: cuDNN 9, engine 3"
END
printf '#!/bin/bash\n:\n' >"$s/bin/compute-sanitizer"
printf '#!/bin/bash\necho "12 kernels of a step: 0.125 s"\n' \
    >"$s/build/bench/kernels"
echo '#define HAVE_HDF5 1' >"$s/build/config.h"
chmod +x "$s"/bin/* "$s"/build/{cmd,bench}/* "$s"/build/tests/unit/* \
    "$s/build/libtool"
rm -rf "$tmp/out"
PATH=$s/bin:$PATH "$gpu" --builddir "$s/build" --out "$tmp/out" \
    --models 124m,774m facts ops step repeat gpt2 kernels autotune losses graphs nccl \
    ckpt calibrate llama ceilings sanitize >"$tmp/text" 2>&1
[ $? -eq 0 ] && ! grep -Eq 'FAILED|skipped|left' "$tmp/text" &&
    python3 - "$tmp"/out/*-cuda.json <<'END' >>"$tmp/text" 2>&1
import json, sys
report = json.load(open(sys.argv[1]))
figures = {name: part["figures"] for name, part in report["parts"].items()}
assert report["about"]["gpu"] == "NVIDIA None", report["about"]
assert report["about"]["power limit"] == "700 W", report["about"]
assert figures["facts"]["merak"] == ["GPU 0, NVIDIA None"], figures["facts"]
assert figures["ops"]["failed"] == ["0"], figures["ops"]
assert figures["step"]["difference"] == ["0", "0"], figures["step"]
assert figures["repeat"]["difference"] == ["0"] * 4, figures["repeat"]
for model in "124m", "774m":
    assert figures["gpt2"]["merak_" + model] == ["1000"] * 2, figures["gpt2"]
assert figures["gpt2"]["pytorch_774m_default_bf16_flash"] == ["777"] * 3
assert figures["gpt2"]["merak_774m_gib"] == ["0.5"] * 2, figures["gpt2"]
assert len(figures["gpt2"]["pytorch_774m_default_bf16_flash_mfu"]) == 3
assert figures["calibrate"]["predicted_off_percent"] == ["5.0"], figures["calibrate"]
assert figures["kernels"]["step_of_kernels_ms_bf16"] == ["125"]
assert figures["losses"]["losses_fp32"] == ["0"], figures["losses"]
assert figures["graphs"]["merak_gpt2_graphs"] == ["1000"], figures["graphs"]
assert figures["ckpt"]["difference"] == ["0", "0"], figures["ckpt"]
assert figures["calibrate"]["merak_tuned"] == ["1000"], figures["calibrate"]
assert figures["llama"]["merak_llama1b"] == ["1000"] * 2, figures["llama"]
assert figures["ceilings"]["bf16_tflops"] == ["780"], figures["ceilings"]
assert figures["sanitize"]["racecheck"] == ["clean"] * 2, figures["sanitize"]
END
ok $? "all parts that need a GPU run on stand-ins, and tell what they are told" \
    "$tmp/text"

rm -rf "$tmp/out"
BREAK=yes PATH=$s/bin:$PATH "$gpu" --builddir "$s/build" --out "$tmp/out" \
    ops >"$tmp/text" 2>&1
[ $? -eq 1 ] && grep -Eq '^ops +FAILED .*failed 1; *rope FAILED; *$' "$tmp/text" &&
    grep -q 'Bail out! rope f32' "$tmp"/out/*-cuda.log
ok $? "a kernel that breaks the device is found among the others" "$tmp/text"

# part step hangs in its first run
rm -rf "$tmp/out"
mkdir -p "$tmp/stuck/cmd"
cat >"$tmp/stuck/cmd/merak" <<END
#!/bin/bash
[[ \$* != *'--seq 96'* ]] || exec sleep 600
exec $PWD/../cmd/merak "\$@"
END
chmod +x "$tmp/stuck/cmd/merak"
"$gpu" --builddir "$tmp/stuck" --out "$tmp/out" --backend fake facts gpt2 step \
    >"$tmp/text" 2>&1 &
script=$!
for ((i = 0; i < 600; i++)); do
    [ -e "$tmp/stuck/gpu/cpu-fp32.log" ] && break
    sleep 0.1
done
kill -TERM "$script"
wait "$script"
[ $? -eq 1 ] && grep -Eq '^\| gpt2 \| ok \| .*merak_tiny [1-9]' "$tmp"/out/*.md &&
    grep -q '^| step | FAILED (stopped) |' "$tmp"/out/*.md &&
    grep -q '^commit ' "$tmp"/out/*.md
ok $? "a run that is stopped leaves the table of what it found" "$tmp/text"
echo "1..$n"
