#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fuzz_short.sh - every fuzz target holds for a moment, those of model folders
# for 5 seconds (15 at night), or all for MERAK_TEST_FUZZ_SECONDS (30 in
# ./check, but for CI), and has its seeds read
#
# Run from the build directory of tests/.  The same inputs on every machine,
# though a slower one tries fewer of them.  `make fuzz` goes on for long.

set -u -o pipefail
export LC_ALL=C

. "$(dirname "$0")/tap.sh"
short=${MERAK_TEST_ALL:+2} # seconds of the processor, a target
short=${short:-0.5}
folders=${MERAK_TEST_ALL:+15}
folders=${folders:-5}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

targets=()
for source in "$(dirname "$0")"/../fuzz/fuzz_*.c; do
    ! grep -q '^int LLVMFuzzerTestOneInput' "$source" ||
        targets+=("$(basename "$source" .c)")
done

# run TARGET: it ends well, having tried some inputs
run()
{
    local seconds runs

    # model folders come from anybody's hands
    case $1 in
    fuzz_safetensors | fuzz_tokenizer) seconds=$folders runs=100000000 ;;
    *) seconds=$short runs=100000 ;;
    esac
    if [ -n "${MERAK_TEST_FUZZ_SECONDS-}" ]; then
        seconds=$MERAK_TEST_FUZZ_SECONDS runs=100000000
    fi
    TMPDIR=$tmp FUZZ_CRASHES=$tmp "fuzz/$1" --runs "$runs" \
        --seconds "$seconds" >"$tmp/$1.log" 2>&1 &&
        grep -q inputs "$tmp/$1.log"
}

# All at once: seconds are those of a processor.
pids=()
for target in "${targets[@]}"; do
    if [ -x "fuzz/$target" ]; then
        run "$target" &
        pids+=($!)
    else
        pids+=(none)
    fi
done
for i in "${!targets[@]}"; do
    if [ "${pids[i]}" = none ]; then
        n=$((n + 1))
        echo "ok $n - ${targets[i]} # SKIP not built"
        continue
    fi
    wait "${pids[i]}"
    ok $? "${targets[i]} reads or refuses what it is given" \
        "$tmp/${targets[i]}.log"
done
# a failure is kept, to be run again: fuzz/TARGET FILE
cp "$tmp"/crash-* . 2>/dev/null
[ "$n" -ge 14 ]
ok $? "there is a target for each kind of file"
[ -z "$(find "$tmp" -name 'merak-fuzz-*')" ]
ok $? "they leave no files"
echo "1..$n"
