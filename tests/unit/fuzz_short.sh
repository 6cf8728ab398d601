#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fuzz_short.sh - every fuzz target holds for a moment, those of model folders
# for 15 seconds, and has its seeds read
#
# Run from the build directory of tests/.  The same inputs on every machine,
# though a slower one tries fewer of them.  `make fuzz` goes on for long.

set -u -o pipefail
export LC_ALL=C

. "$(dirname "$0")/tap.sh"
short=${MERAK_TEST_ALL:+2} # seconds of the processor, a target
short=${short:-0.5}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

for source in "$(dirname "$0")"/../fuzz/fuzz_*.c; do
    target=$(basename "$source" .c)
    grep -q '^int LLVMFuzzerTestOneInput' "$source" || continue
    if [ ! -x "fuzz/$target" ]; then
        n=$((n + 1))
        echo "ok $n - $target # SKIP not built"
        continue
    fi
    # what comes from anybody's hands, as a model folder does, has 30 together
    case $target in
    fuzz_safetensors | fuzz_tokenizer) seconds=15 runs=100000000 ;;
    *) seconds=$short runs=100000 ;;
    esac
    TMPDIR=$tmp FUZZ_CRASHES=$tmp "fuzz/$target" --runs "$runs" \
        --seconds "$seconds" >"$tmp/log" 2>&1 && grep -q inputs "$tmp/log"
    ok $? "$target reads or refuses what it is given" "$tmp/log"
    # a failure is kept, to be run again: fuzz/TARGET FILE
    cp "$tmp"/crash-* . 2>/dev/null
    rm -f "$tmp"/crash-*
done
[ "$n" -ge 14 ]
ok $? "there is a target for each kind of file"
[ -z "$(find "$tmp" -name 'merak-fuzz-*')" ]
ok $? "they leave no files"
echo "1..$n"
