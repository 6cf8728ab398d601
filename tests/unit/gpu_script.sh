#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# gpu_script.sh - bench/gpu.sh without a GPU: it says so, and its parts run on
# the fake device
#
# Run from the build directory of tests/.

set -u
export LC_ALL=C

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

run --backend fake ceilings gpt2 llama graphs calibrate
[ $? -eq 0 ] && grep -Eq '^gpt2 +ok .*merak_tiny [1-9]' "$tmp/text" &&
    grep -Eq '^llama +ok .*merak_tiny-llama [1-9]' "$tmp/text" &&
    grep -Eq '^graphs +ok .*difference 0;.*difference 0;' "$tmp/text" &&
    grep -Eq '^ceilings +skipped .*needs a GPU' "$tmp/text" &&
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
echo "1..$n"
